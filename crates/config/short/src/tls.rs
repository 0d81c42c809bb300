//! `tls: auto`: certificates for the hosts of the routes from an authority that speaks ACME, and what that takes beside
//! the listener: one on port 80, which answers challenges and sends everybody else to HTTPS, or for TLS-ALPN-01 a filter
//! chain in the listener itself.

use std::path::Path;

use postrider_config_core::{Diagnostics, Span};
use postrider_config_envoy::tree::{Node, NodeKind};

use crate::build::{extension, list, map, pair, plain, text};
use crate::fields::{self, Fields, join};
use crate::listen;

const KEYS: [&str; 8] = ["names", "contact", "directory", "directory_ca", "state", "http", "retry", "challenge"];

const EXPECTED: &str = "`auto`, or `{ auto: { names, contact, directory, … } }`";

/// Let's Encrypt.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

const STATE: &str = "/var/lib/postrider/acme";

/// Where authorities ask for HTTP-01.
const HTTP: &str = ":80";

/// Where challenges are answered: the state directory's socket, as a cluster.
const CLUSTER: &str = "acme-challenge";

/// What `tls` adds to the document.
pub struct Tls {
    /// The transport socket of the listener.
    pub transport_socket: Node,
    /// For TLS-ALPN-01: the filter chain that answers challenges, in the same listener.
    pub chain: Option<Node>,
    /// For HTTP-01: the listener on port 80.
    pub listener: Option<Node>,
    pub cluster: Option<Node>,
    /// The extension of the bootstrap that gets certificates.
    pub extension: Node,
}

/// `hosts` are the virtual hosts of the routes, `listen` is where they are served.
pub fn read(node: &Node, hosts: &[Node], listen: Option<&Node>, diagnostics: &mut Diagnostics) -> Option<Tls> {
    const PATH: &str = "tls.auto";
    let span = node.span;
    let auto = match &node.kind {
        NodeKind::Scalar(scalar) if scalar.text == "auto" => None,
        NodeKind::Map(_) => {
            let fields = Fields::of(node, "tls", diagnostics);
            let auto = fields.take("auto");
            fields.finish(&["auto"]);
            if auto.is_none() {
                fields::missing(node, "tls", "auto", EXPECTED, diagnostics);
                return None;
            }
            auto.filter(|auto| auto.text() != Some("true"))
        }
        NodeKind::Scalar(_) => {
            fields::invalid(node, "tls", "the one way to TLS in the short form is `auto`", EXPECTED, diagnostics);
            return None;
        }
        _ => {
            fields::wrong(node, "tls", EXPECTED, diagnostics);
            return None;
        }
    };
    let [names, contact, directory, ca, state, http, retry, challenge] = match auto {
        Some(auto) => {
            let fields = Fields::of(auto, PATH, diagnostics);
            let all = KEYS.map(|key| fields.take(key));
            fields.finish(&KEYS);
            all
        }
        None => [None; 8],
    };
    let alpn = match challenge.map(|challenge| (challenge, challenge.text().unwrap_or_default())) {
        None | Some((_, "http-01")) => false,
        Some((_, "tls-alpn-01")) => true,
        Some((node, said)) => {
            let message = format!("the challenge `{said}` is not supported");
            fields::invalid(node, &join(PATH, "challenge"), message, "`http-01` or `tls-alpn-01`", diagnostics);
            return None;
        }
    };
    if let (Some(http), true) = (http, alpn) {
        let message = "`http` has no effect with the challenge `tls-alpn-01`: port 80 is not used";
        fields::invalid(http, &join(PATH, "http"), message, "nothing here", diagnostics);
    }
    let names = match names {
        Some(names) => texts(names, &join(PATH, "names"), "host names such as shop.example", diagnostics),
        None => hosts_of(hosts, diagnostics),
    };
    if names.is_empty() {
        let message = "there is no host to get a certificate for";
        fields::invalid(node, "tls", message, "`hosts` in routes, or `names` in `tls.auto`", diagnostics);
        return None;
    }
    let mut scalar = |node: Option<&Node>, key: &str, default: &str, expected: &str| match node {
        Some(node) => Some(text(node.span, fields::text(node, &join(PATH, key), expected, diagnostics)?)),
        None => Some(text(span, default)),
    };
    let directory = scalar(directory, "directory", DIRECTORY, "the URL of an ACME directory")?;
    let state = scalar(state, "state", STATE, "a directory")?;
    let ca = scalar(ca, "directory_ca", "", "a file of root certificates")?;
    let contacts = contact.map(|node| texts(node, &join(PATH, "contact"), "a mail address", diagnostics));
    let retry = match retry {
        Some(retry) => {
            Some(pair("retry_delay", text(retry.span, fields::duration(retry, &join(PATH, "retry"), diagnostics)?)))
        }
        None => None,
    };
    let http = match http {
        Some(http) => listen::address(http, &join(PATH, "http"), diagnostics)?,
        None => listen::address(&text(span, HTTP), "tls", diagnostics)?,
    };

    let mut acme = vec![pair("directory_url", directory)];
    if ca.text().is_some_and(|ca| !ca.is_empty()) {
        acme.push(pair("directory_ca_file", ca));
    }
    if let Some(contacts) = contacts {
        let url = |(contact, span): &(String, Span)| match contact.starts_with("mailto:") {
            true => text(*span, contact.clone()),
            false => text(*span, format!("mailto:{contact}")),
        };
        acme.push(pair("contacts", list(span, contacts.iter().map(url).collect())));
    }
    acme.push(pair("terms_of_service_agreed", plain(span, true)));
    acme.push(pair("state_directory", state.clone()));
    let certificate =
        |(name, span): &(String, Span)| map(*span, vec![pair("names", list(*span, vec![text(*span, name.clone())]))]);
    acme.push(pair("certificates", list(span, names.iter().map(certificate).collect())));
    acme.extend(retry);
    if alpn {
        acme.push(pair("challenge", text(span, "TLS_ALPN_01")));
    }
    let state = Path::new(state.text().unwrap_or_default());
    Some(Tls {
        transport_socket: transport_socket(&names, &state.join("certificates"), &["h2", "http/1.1"], span),
        chain: alpn.then(|| challenge_chain(&names, state, span)),
        listener: (!alpn).then(|| listener(http, https_port(listen), span)),
        cluster: (!alpn).then(|| cluster(state, span)),
        extension: extension(span, "postrider.acme", "postrider.acme.v1.Acme", acme),
    })
}

/// One text or a list of them, each with its place.
fn texts(node: &Node, path: &str, expected: &str, diagnostics: &mut Diagnostics) -> Vec<(String, Span)> {
    let items = fields::several(node, path).into_iter();
    items
        .filter_map(|(path, item)| Some((fields::text(item, &path, expected, diagnostics)?.to_owned(), item.span)))
        .collect()
}

/// The exact hosts of the routes.
fn hosts_of(hosts: &[Node], diagnostics: &mut Diagnostics) -> Vec<(String, Span)> {
    let mut names: Vec<(String, Span)> = Vec::new();
    let domains = hosts.iter().filter_map(|host| match &host.get("domains")?.kind {
        NodeKind::List(domains) => Some(domains),
        _ => None,
    });
    for domain in domains.flatten() {
        let Some(name) = domain.text().filter(|name| *name != "*") else { continue };
        if name.contains('*') {
            let message =
                format!("`{name}`: a certificate for a wildcard takes a DNS-01 challenge, which is not supported");
            fields::invalid(domain, "routes", message, "exact hosts, or `names` in `tls.auto`", diagnostics);
        } else if !names.iter().any(|(known, _)| known == name) {
            names.push((name.to_owned(), domain.span));
        }
    }
    names
}

fn transport_socket(names: &[(String, Span)], folder: &Path, protocols: &[&str], span: Span) -> Node {
    let certificates = names.iter().map(|(name, span)| {
        // As `Acme::certificate_file` and `Acme::challenge_file` say.
        let file = folder.join(format!("{}.pem", name.to_ascii_lowercase()));
        let source = || map(*span, vec![pair("filename", text(*span, file.display().to_string()))]);
        map(*span, vec![pair("certificate_chain", source()), pair("private_key", source())])
    });
    let common = map(
        span,
        vec![
            pair("alpn_protocols", list(span, protocols.iter().map(|it| text(span, *it)).collect())),
            pair("tls_certificates", list(span, certificates.collect())),
        ],
    );
    extension(
        span,
        "envoy.transport_sockets.tls",
        "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        vec![pair("common_tls_context", common)],
    )
}

/// What an authority meets that asks by TLS-ALPN-01 (RFC 8737): a certificate, and nobody to talk to.
fn challenge_chain(names: &[(String, Span)], state: &Path, span: Span) -> Node {
    const PROTOCOL: &str = "acme-tls/1";
    let socket = transport_socket(names, &state.join("challenges"), &[PROTOCOL], span);
    let filter = listen::plain_http_filter("acme-tls", list(span, vec![]), span);
    map(
        span,
        vec![
            pair(
                "filter_chain_match",
                map(span, vec![pair("application_protocols", list(span, vec![text(span, PROTOCOL)]))]),
            ),
            pair("filters", list(span, vec![filter])),
            pair("transport_socket", socket),
        ],
    )
}

/// The port that the redirect has to name; `None` when it is HTTPS's own, or not known before it is bound.
fn https_port(listen: Option<&Node>) -> Option<u16> {
    let first = fields::several(listen?, "listen").into_iter().next()?.1;
    let port = first.text()?.rsplit(':').next()?.parse().ok()?;
    (port != 443 && port != 0).then_some(port)
}

fn listener(address: Node, https_port: Option<u16>, span: Span) -> Node {
    let prefix = |prefix: &str| pair("match", map(span, vec![pair("prefix", text(span, prefix))]));
    let forward = vec![pair("cluster", text(span, CLUSTER)), pair("timeout", text(span, "5s"))];
    let mut redirect = vec![pair("https_redirect", plain(span, true))];
    redirect.extend(https_port.map(|port| pair("port_redirect", plain(span, port))));
    let routes = vec![
        map(span, vec![prefix("/.well-known/acme-challenge/"), pair("route", map(span, forward))]),
        map(span, vec![prefix("/"), pair("redirect", map(span, redirect))]),
    ];
    let host = map(
        span,
        vec![
            pair("name", text(span, "any")),
            pair("domains", list(span, vec![text(span, "*")])),
            pair("routes", list(span, routes)),
        ],
    );
    listen::plain_http("acme-http", address, list(span, vec![host]), span)
}

fn cluster(state: &Path, span: Span) -> Node {
    // As `Acme::challenge_socket` says.
    let socket = state.join("challenge.sock").display().to_string();
    let pipe = map(span, vec![pair("pipe", map(span, vec![pair("path", text(span, socket))]))]);
    let endpoint = map(span, vec![pair("endpoint", map(span, vec![pair("address", pipe)]))]);
    let endpoints = map(span, vec![pair("lb_endpoints", list(span, vec![endpoint]))]);
    let assignment = vec![pair("cluster_name", text(span, CLUSTER)), pair("endpoints", list(span, vec![endpoints]))];
    map(
        span,
        vec![
            pair("name", text(span, CLUSTER)),
            pair("type", text(span, "STATIC")),
            pair("load_assignment", map(span, assignment)),
        ],
    )
}
