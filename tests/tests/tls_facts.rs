//! What is logged of TLS sessions and of the certificates that were shown in them, with clients and with upstreams.

use postrider_tests::kit::config::{file_access_log, overlay};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, Identity, secured, tls_inspector, upstream};
use postrider_tests::{envoy, get};
use rcgen::{CertificateParams, DistinguishedName, DnType, SanType};
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const COMMANDS: &[&str] = &[
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_PEER_CERT_V_END(%Y/%m/%d %s)",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER_SERIAL",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_TLS_VERSION",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_CERT_V_START(%Y)",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_SERVER_NAME",
];

/// Logs every command as `NAME=value`, and reads the lines back.
struct Log {
    folder: TempDir,
}

impl Log {
    fn new() -> Self {
        Self { folder: TempDir::new() }
    }

    fn logger(&self) -> Value {
        let name = |command: &str| command.split('(').next().unwrap_or_default().to_owned();
        let fields: String = COMMANDS.iter().map(|command| format!("{}=%{command}%|", name(command))).collect();
        let text = format!("{fields}\n");
        let format = json!({"log_format": {"text_format_source": {"inline_string": text}}});
        file_access_log(&self.folder.path().join("access.log"), format)
    }

    /// The line of the `count`th request.
    fn line(&self, count: usize) -> BTreeMap<String, String> {
        let lines = || std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        wait_until("it is logged", || lines().lines().count() == count);
        let lines = lines();
        let pairs = lines.lines().last().unwrap().split('|').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

fn name(params: &mut CertificateParams, parts: &[(DnType, &str)], names: Vec<SanType>) {
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in parts {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params.subject_alt_names = names;
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn email(text: &str) -> SanType {
    SanType::Rfc822Name(text.try_into().unwrap())
}

fn ip(text: &str) -> SanType {
    SanType::IpAddress(text.parse().unwrap())
}

fn server(authority: &Authority) -> Identity {
    authority.issue_as(|params| {
        let names = vec![dns("site.test"), uri("spiffe://site/a"), email("admin@site.test"), ip("127.0.0.1")];
        name(params, &[(DnType::CommonName, "server")], names);
    })
}

fn client(authority: &Authority) -> Identity {
    authority.issue_as(|params| {
        let upn = SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 3], "user@upn.test".into()));
        let names = vec![dns("one.test"), dns("two.test"), uri("spiffe://c/x"), email("a@c.test"), ip("fd00::1"), upn];
        name(params, &[(DnType::OrganizationName, "A, B"), (DnType::CommonName, "client")], names);
        params.serial_number = Some(vec![0x0a, 0x0b, 0x0c].into());
        params.not_before = rcgen::date_time_ymd(2024, 3, 1);
        params.not_after = rcgen::date_time_ymd(2040, 3, 2);
    })
}

fn escaped(pem: &str) -> String {
    let pem = pem.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    pem.replace('\n', "%0A").replace(' ', "%20")
}

#[test]
fn every_fact_of_both_sides_is_logged_as_envoy_logs_it() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let below = clients.below("below");
    let (serving, showing) = (server(&servers), client(&below));
    let trusting = |authority: &Authority| json!({"trusted_ca": {"inline_string": authority.pem()}});
    // The upstream is a listener of the same proxy.
    let back = Config::new()
        .http_named(
            "back",
            json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
            ]}]}}),
        )
        .overlay_chain(
            "back",
            json!({"transport_socket": postrider_tests::tls::downstream(
                &[serving.inline()],
                json!({"common_tls_context": {"validation_context": trusting(&clients)}}),
            )}),
        );
    let back = Proxy::start(&back);
    let log = Log::new();
    let socket = upstream(json!({
        "sni": "site.test",
        "common_tls_context": {"tls_certificates": [showing.inline()], "validation_context": trusting(&servers)},
    }));
    let mut front = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "back"}}]));
    front = front.cluster_with("back", &[back.address("back")], json!({"transport_socket": socket}));
    front = front.overlay_filter("http", json!({"access_log": [log.logger()]}));
    let context = json!({"common_tls_context": {"validation_context": trusting(&clients)}});
    let proxy = Proxy::start(&secured(front, &serving, context));

    let mut of_peer: BTreeMap<String, String> = BTreeMap::new();
    for (count, version) in [(1, &TLS12), (2, &TLS13)] {
        let mut visitor =
            Client::showing_over(&servers, &showing, &[version]).connect(proxy.address("http"), "site.test");
        assert_eq!(visitor.exchange(get("/")).status, 200);
        drop(visitor);
        let line = log.line(count);
        let hashes = [showing.sha256(), below.sha256()];
        let pem = escaped(&showing.pems()[0]);
        for (command, value) in [
            ("DOWNSTREAM_PEER_SUBJECT", "CN=client,O=A\\, B"),
            ("DOWNSTREAM_PEER_ISSUER", "CN=below"),
            ("DOWNSTREAM_PEER_SERIAL", "0a0b0c"),
            ("DOWNSTREAM_PEER_FINGERPRINT_256", &hashes[0]),
            ("DOWNSTREAM_PEER_CERT", &pem),
            ("DOWNSTREAM_PEER_CERT_V_START", "2024-03-01T00:00:00.000Z"),
            ("DOWNSTREAM_PEER_CERT_V_END", "2040/03/02 2214259200"),
            ("DOWNSTREAM_PEER_DNS_SAN", "one.test,two.test"),
            ("DOWNSTREAM_PEER_URI_SAN", "spiffe://c/x"),
            ("DOWNSTREAM_PEER_EMAIL_SAN", "a@c.test"),
            ("DOWNSTREAM_PEER_IP_SAN", "fd00::1"),
            ("DOWNSTREAM_PEER_OTHERNAME_SAN", "user@upn.test"),
            ("DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256", &hashes.join(",")),
            ("DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256", &hashes[1]),
            ("DOWNSTREAM_LOCAL_SUBJECT", "CN=server"),
            ("DOWNSTREAM_LOCAL_DNS_SAN", "site.test"),
            ("DOWNSTREAM_LOCAL_URI_SAN", "spiffe://site/a"),
            ("DOWNSTREAM_LOCAL_EMAIL_SAN", "admin@site.test"),
            ("DOWNSTREAM_LOCAL_IP_SAN", "127.0.0.1"),
            ("DOWNSTREAM_LOCAL_OTHERNAME_SAN", "-"),
            ("DOWNSTREAM_TLS_VERSION", if count == 1 { "TLSv1.2" } else { "TLSv1.3" }),
            ("UPSTREAM_PEER_SUBJECT", "CN=server"),
            ("UPSTREAM_PEER_ISSUER", "CN=servers"),
            ("UPSTREAM_PEER_CERT", &escaped(&serving.chain_pem())),
            ("UPSTREAM_PEER_CERT_V_START", "1975"),
            ("UPSTREAM_PEER_CERT_V_END", "4096-01-01T00:00:00.000Z"),
            ("UPSTREAM_PEER_DNS_SAN", "site.test"),
            ("UPSTREAM_PEER_URI_SAN", "spiffe://site/a"),
            ("UPSTREAM_PEER_IP_SAN", "127.0.0.1"),
            ("UPSTREAM_LOCAL_DNS_SAN", "one.test,two.test"),
            ("UPSTREAM_LOCAL_URI_SAN", "spiffe://c/x"),
            ("UPSTREAM_LOCAL_IP_SAN", "fd00::1"),
            ("UPSTREAM_TLS_VERSION", if envoy() { "TLSv1.2" } else { "TLSv1.3" }),
            ("UPSTREAM_SERVER_NAME", "site.test"),
        ] {
            assert_eq!(line[command], value, "{command}");
        }
        assert_eq!(line["DOWNSTREAM_PEER_CHAIN_SERIALS"], format!("0a0b0c,{}", line["DOWNSTREAM_PEER_ISSUER_SERIAL"]));
        let first = line["DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1"].split(',').next().unwrap().to_owned();
        assert_eq!((first.len(), &first), (40, &line["DOWNSTREAM_PEER_FINGERPRINT_1"]));
        assert!(!line["UPSTREAM_TLS_CIPHER"].is_empty() && line["UPSTREAM_TLS_CIPHER"] != "-", "{line:?}");
        assert!(["X25519", "X25519MLKEM768"].contains(&line["UPSTREAM_TLS_GROUP"].as_str()), "{line:?}");
        of_peer.extend(line);
    }
    assert_eq!(of_peer.len(), COMMANDS.len());
}

#[test]
fn the_signer_of_a_client_is_found_among_the_roots() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let log = Log::new();
    let config = Config::proxy_to(Origin::echo("a").address);
    let config = config.overlay_filter("http", json!({"access_log": [log.logger()]}));
    let validation = json!({"trusted_ca": {"inline_string": clients.pem()}});
    let context = json!({"common_tls_context": {"validation_context": validation}});
    let proxy = Proxy::start(&secured(config, &server(&servers), context));
    let showing = clients.issue(&["client.test"]);
    let mut visitor = Client::showing(&servers, &showing).connect(proxy.address("http"), "site.test");
    visitor.exchange(get("/"));
    let line = log.line(1);
    assert_eq!(line["DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256"], showing.sha256());
    assert_eq!(line["DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256"], clients.sha256());
    assert_ne!(line["DOWNSTREAM_PEER_ISSUER_SERIAL"], "-");
}

#[test]
fn without_tls_or_without_a_certificate_there_is_nothing_to_log() {
    let origin = Origin::echo("a");
    let log = Log::new();
    let config = || Config::proxy_to(origin.address).overlay_filter("http", json!({"access_log": [log.logger()]}));
    let plain = Proxy::start(&config());
    assert_eq!(plain.exchange(get("/")).status, 200);
    let line = log.line(1);
    assert!(line.values().all(|value| value == "-"), "{line:?}");
    drop(plain);
    let servers = Authority::new("servers");
    let proxy = Proxy::start(&secured(config(), &server(&servers), json!({})));
    let mut visitor = Client::trusting(&servers).connect(proxy.address("http"), "site.test");
    assert_eq!(visitor.exchange(get("/")).status, 200);
    let line = log.line(2);
    for (command, value) in &line {
        let known = command.starts_with("DOWNSTREAM_LOCAL_") || command == "DOWNSTREAM_TLS_VERSION";
        assert!(known || value == "-", "{command}={value}");
    }
    assert_eq!(
        (line["DOWNSTREAM_LOCAL_SUBJECT"].as_str(), line["DOWNSTREAM_TLS_VERSION"].as_str()),
        ("CN=server", "TLSv1.3")
    );
}

#[test]
fn a_tcp_proxy_logs_the_same() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let origin = Origin::tcp_echo("");
    let log = Log::new();
    let config = Config::new()
        .tcp("http", json!({"cluster": "origin", "access_log": [log.logger()]}))
        .cluster("origin", &[origin.address]);
    let mut context = json!({"require_client_certificate": true});
    let validation = json!({"trusted_ca": {"inline_string": clients.pem()}});
    overlay(&mut context, json!({"common_tls_context": {"validation_context": validation}}));
    let proxy = Proxy::start(&secured(config, &server(&servers), context));
    let showing = client(&clients);
    let mut visitor = Client::showing(&servers, &showing).connect(proxy.address("http"), "site.test");
    visitor.send("x");
    assert_eq!(visitor.read_exact(1), Ok(b"x".to_vec()));
    drop(visitor);
    let line = log.line(1);
    assert_eq!(line["DOWNSTREAM_PEER_URI_SAN"], "spiffe://c/x");
    assert_eq!(line["DOWNSTREAM_LOCAL_URI_SAN"], "spiffe://site/a");
    assert_eq!(line["UPSTREAM_PEER_SUBJECT"], "-");
}

const SCRIPT: &str = "
    function envoy_on_request(h)
      local ssl, out = h:streamInfo():downstreamSslConnection(), {}
      local function show(...) for i = 1, select('#', ...) do out[#out + 1] = tostring((select(i, ...))) end end
      show(h:connection():ssl() ~= nil, h:streamInfo():requestedServerName(), ssl:tlsVersion())
      show(ssl:ciphersuiteId():match('^0x%x%x%x%x$') ~= nil, #ssl:ciphersuiteString() > 10)
      show(ssl:peerCertificatePresented(), ssl:peerCertificateValidated())
      show(string.format('%d', ssl:validFromPeerCertificate()), string.format('%d', ssl:expirationPeerCertificate()))
      show(table.concat(ssl:uriSanPeerCertificate(), '+'), table.concat(ssl:uriSanLocalCertificate(), '+'))
      show(table.concat(ssl:dnsSansPeerCertificate(), '+'), table.concat(ssl:dnsSansLocalCertificate(), '+'))
      show(table.concat(ssl:oidsPeerCertificate(), '+'), table.concat(ssl:oidsLocalCertificate(), '+'))
      show(ssl:sha256PeerCertificateDigest(), ssl:serialNumberPeerCertificate(), ssl:issuerPeerCertificate())
      show(ssl:subjectPeerCertificate(), ssl:subjectLocalCertificate())
      show(#ssl:urlEncodedPemEncodedPeerCertificate(), #ssl:urlEncodedPemEncodedPeerCertificateChain())
      local subject = ssl:parsedSubjectPeerCertificate()
      show(subject and subject:commonName() or 'nobody', subject and table.concat(subject:organizationName(), '+') or '')
      h:respond({[':status'] = '200'}, table.concat(out, '|'))
    end";

#[test]
fn a_lua_script_is_told_the_same() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let below = clients.below("below");
    let lua = postrider_tests::kit::config::extension(
        "envoy.filters.http.lua",
        "filters.http.lua.v3.Lua",
        json!({"default_source_code": {"inline_string": SCRIPT}}),
    );
    let filters = json!({"http_filters": [lua, postrider_tests::kit::config::router()]});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 404}}]));
    let validation = json!({"trusted_ca": {"inline_string": clients.pem()}});
    let context = json!({"common_tls_context": {"validation_context": validation}});
    let config = config.overlay_filter("http", filters);
    let config = config.overlay_listener("http", json!({"listener_filters": [tls_inspector()]}));
    let proxy = Proxy::start(&secured(config, &server(&servers), context));
    let showing = client(&below);
    let mut visitor = Client::showing(&servers, &showing).connect(proxy.address("http"), "site.test");
    let told = visitor.exchange(get("/")).text().to_owned();
    let escaped_lengths = (escaped(&showing.pems()[0]).len(), escaped(&showing.chain_pem()).len());
    assert_eq!(
        told,
        format!(
            "true|site.test|TLSv1.3|true|true|true|true|1709251200|2214259200|spiffe://c/x|spiffe://site/a|\
             one.test+two.test|site.test|2.5.29.17|2.5.29.17|{}|0a0b0c|CN=below|CN=client,O=A\\, B|CN=server|{}|{}|client|A, B",
            showing.sha256(),
            escaped_lengths.0,
            escaped_lengths.1,
        )
    );
    let mut visitor = Client::trusting(&servers).connect(proxy.address("http"), "site.test");
    let told = visitor.exchange(get("/")).text().to_owned();
    let wanted = "true|site.test|TLSv1.3|true|true|false|false|0|0||spiffe://site/a||site.test||2.5.29.17||||||";
    assert!(
        told.replace("||CN=server", "|||").starts_with(wanted) && told.ends_with("|CN=server|0|0|nobody|"),
        "{told}"
    );
}
