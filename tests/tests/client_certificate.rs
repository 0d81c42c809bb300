//! `x-forwarded-client-cert`: what upstreams are told of a client's certificate, and whom they may believe.

use postrider_tests::h2_frames::{self as raw, Frames};
use postrider_tests::kit::config::overlay;
use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::tls::{Authority, Client, Identity, secured};
use postrider_tests::{envoy, get};
use rcgen::{DistinguishedName, DnType, SanType};
use serde_json::{Value, json};

const FIELD: &str = "x-forwarded-client-cert";

struct Site {
    servers: Authority,
    clients: Authority,
    identity: Identity,
    origin: Origin,
}

impl Site {
    fn new() -> Self {
        let servers = Authority::new("servers");
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let identity = servers.issue_as(|params| {
            let name = SanType::DnsName("site.test".try_into().unwrap());
            params.subject_alt_names = vec![name, uri("spiffe://site/a"), uri("spiffe://site/b")];
        });
        Self { servers, clients: Authority::new("clients"), identity, origin: Origin::echo("a") }
    }

    /// Over TLS, where a client may show a certificate.
    fn start(&self, details: &str, parts: Value) -> Proxy {
        let context = json!({"common_tls_context": {
            "validation_context": {"trusted_ca": {"inline_string": self.clients.pem()}},
            "alpn_protocols": ["h2", "http/1.1"],
        }});
        Proxy::start(&secured(self.config(details, parts), &self.identity, context))
    }

    fn config(&self, details: &str, parts: Value) -> Config {
        let mut fields = json!({"forward_client_cert_details": details});
        if parts != json!({}) {
            overlay(&mut fields, json!({"set_current_client_cert_details": parts}));
        }
        Config::proxy_to(self.origin.address).overlay_filter("http", fields)
    }

    fn showing(&self, identity: &Identity) -> Client {
        Client::showing(&self.servers, identity)
    }

    fn told(&self, proxy: &Proxy, client: &Client, sent: &[&str]) -> Vec<String> {
        let mut client = client.connect(proxy.address("http"), "site.test");
        values(client.exchange(request(sent)).text())
    }
}

fn request(sent: &[&str]) -> String {
    let fields: String = sent.iter().map(|value| format!("X-Forwarded-Client-Cert: {value}\r\n")).collect();
    format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n")
}

/// Of the field in a head that came back.
fn values(head: &str) -> Vec<String> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(name, _)| name.eq_ignore_ascii_case(FIELD)).map(|(_, value)| value.to_owned()).collect()
}

#[test]
fn a_plain_client_is_not_believed() {
    let site = Site::new();
    for details in ["SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET"] {
        let proxy = Proxy::start(&site.config(details, json!({})));
        for sent in [&[][..], &["By=a;Hash=b"], &["one", "two", "Hash=c"]] {
            assert_eq!(values(proxy.exchange(request(sent)).text()), [""; 0], "{details} {sent:?}");
        }
        let mut frames = Frames::connect(proxy.address("http"), &[]);
        let block = raw::request("GET", "/", &[(FIELD, "Hash=a"), (FIELD, "Hash=b")]);
        frames.send(raw::frame(raw::HEADERS, raw::END_HEADERS | raw::END_STREAM, 1, &block));
        let data = frames.await_frame("an answer", |frame| frame.kind == raw::DATA);
        assert_eq!(values(&String::from_utf8(data.payload).unwrap()), [""; 0], "{details} over HTTP/2");
    }
    let proxy = Proxy::start(&site.config("ALWAYS_FORWARD_ONLY", json!({})));
    assert_eq!(values(proxy.exchange(request(&["Hash=a"])).text()), ["Hash=a"]);
    assert_eq!(values(proxy.exchange(get("/")).text()), [""; 0]);
}

#[test]
fn nothing_is_said_where_nothing_is_configured() {
    let site = Site::new();
    let proxy = Proxy::start(&Config::proxy_to(site.origin.address));
    assert_eq!(values(proxy.exchange(request(&["Hash=a"])).text()), [""; 0]);
}

#[test]
fn over_tls_it_matters_whether_a_certificate_was_shown() {
    let site = Site::new();
    let identity = site.clients.issue(&["client.test"]);
    let own = format!("By=spiffe://site/a;By=spiffe://site/b;Hash={}", identity.sha256());
    let appended = format!("one,two,{own}");
    let (anybody, shown) = (Client::trusting(&site.servers), site.showing(&identity));
    for (details, without, with, with_own) in [
        ("SANITIZE", None, None, None),
        ("FORWARD_ONLY", None, Some("one,two"), None),
        ("APPEND_FORWARD", None, Some(appended.as_str()), Some(own.as_str())),
        ("SANITIZE_SET", None, Some(own.as_str()), Some(own.as_str())),
        ("ALWAYS_FORWARD_ONLY", Some("one,two"), Some("one,two"), None),
    ] {
        let proxy = site.start(details, json!({}));
        let told = |client: &Client, sent: &[&str]| site.told(&proxy, client, sent).join(",");
        assert_eq!(told(&anybody, &["one", "two"]), without.unwrap_or_default(), "{details}");
        assert_eq!(told(&shown, &["one", "two"]), with.unwrap_or_default(), "{details}");
        assert_eq!(told(&anybody, &[]), "", "{details}");
        assert_eq!(told(&shown, &[]), with_own.unwrap_or_default(), "{details}");
        // The second connection resumed the session of the first.
        assert_eq!(told(&shown, &["one", "two"]), with.unwrap_or_default(), "{details}");
    }
}

/// One whose every part says something that has to be escaped somewhere.
fn elaborate(clients: &Authority) -> Identity {
    clients.issue_as(|params| {
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "A, \"B\"; C=d");
        name.push(DnType::CommonName, "Lučić");
        params.distinguished_name = name;
        params.subject_alt_names = vec![
            SanType::URI("https://client.test/?a=b".try_into().unwrap()),
            SanType::DnsName("one.test".try_into().unwrap()),
            SanType::URI("spiffe://client/c".try_into().unwrap()),
            SanType::DnsName("two.test".try_into().unwrap()),
        ];
    })
}

#[test]
fn every_part_is_told_as_envoy_tells_it() {
    let site = Site::new();
    let below = site.clients.below("Below \"clients\"");
    let identity = elaborate(&below);
    let all = json!({"subject": true, "cert": true, "chain": true, "dns": true, "uri": true, "issuer": true});
    let proxy = site.start("SANITIZE_SET", all.clone());
    let escaped = |pem: &str| {
        let pem = pem.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        pem.replace('\n', "%0A").replace(' ', "%20")
    };
    let told = format!(
        "By=spiffe://site/a;By=spiffe://site/b;Hash={};Cert=\"{}\";Chain=\"{}\";\
         Subject=\"CN=Lu\\C4\\8Di\\C4\\87,O=A\\, \\\"B\\\"\\; C=d\";\
         URI=https://client.test/?a=b;URI=spiffe://client/c;DNS=one.test;DNS=two.test;\
         Issuer=\"CN=Below \\\"clients\\\"\"",
        identity.sha256(),
        escaped(&identity.pems()[0]),
        escaped(&identity.chain_pem()),
    );
    let client = site.showing(&identity);
    assert_eq!(site.told(&proxy, &client, &["Hash=a"]), [told.as_str()]);
    // Each request of a connection is told the same, and so is a stream of HTTP/2.
    let mut kept = client.connect(proxy.address("http"), "site.test");
    for _ in 0..2 {
        assert_eq!(values(kept.exchange(request(&["Hash=b"])).text()), [told.as_str()]);
    }
    let modern = client.offering(&["h2"]).connect(proxy.address("http"), "site.test");
    let mut frames = Frames::over(modern.into_transport(), &[]);
    for stream in [1, 3] {
        frames.send(raw::get(stream, "/"));
        // A stream may end with one that has nothing in it.
        let data = frames.await_frame("an answer", |frame| frame.kind == raw::DATA && !frame.payload.is_empty());
        assert_eq!(values(&String::from_utf8(data.payload).unwrap()), [told.as_str()]);
    }
}

#[test]
fn the_same_as_json() {
    let site = Site::new();
    let below = site.clients.below("below");
    let identity = elaborate(&below);
    let parts = json!({
        "subject": true, "cert": true, "chain": true, "dns": true, "uri": true, "issuer": true, "format": "JSON",
    });
    let chain = identity.pems();
    let own = json!({
        "by": ["spiffe://site/a", "spiffe://site/b"],
        "hash": identity.sha256(),
        "cert": chain[0],
        "chain": chain,
        "subject": "CN=Lu\\C4\\8Di\\C4\\87,O=A\\, \\\"B\\\"\\; C=d",
        "uri": ["https://client.test/?a=b", "spiffe://client/c"],
        "dns": ["one.test", "two.test"],
        "issuer": "CN=below",
    });
    for (details, sent, wanted) in [
        ("SANITIZE_SET", "Hash=a", Some(json!([own]))),
        ("APPEND_FORWARD", "[{\"hash\":\"a\"}]", Some(json!([{"hash": "a"}, own]))),
        // The form is that of what is there.
        ("APPEND_FORWARD", "Hash=a", None),
    ] {
        let proxy = site.start(details, parts.clone());
        let told = site.told(&proxy, &site.showing(&identity), &[sent]);
        match wanted {
            Some(wanted) => assert_eq!(serde_json::from_str::<Value>(&told[0]).unwrap(), wanted, "{details}"),
            None => assert!(told[0].starts_with("Hash=a,By=spiffe://site/a;By="), "{told:?}"),
        }
    }
    // A single value of a list is a list all the same, and what is empty is left out.
    let bare = site.clients.issue_as(|params| params.distinguished_name = DistinguishedName::new());
    let proxy = site.start("SANITIZE_SET", json!({"subject": true, "uri": true, "dns": true, "format": "JSON"}));
    let told = site.told(&proxy, &site.showing(&bare), &[]);
    let wanted = json!([{"by": ["spiffe://site/a", "spiffe://site/b"], "hash": bare.sha256()}]);
    assert_eq!(serde_json::from_str::<Value>(&told[0]).unwrap(), wanted);
    let proxy = site.start("SANITIZE_SET", json!({"subject": true, "uri": true, "dns": true}));
    let told = site.told(&proxy, &site.showing(&bare), &[]);
    assert!(told[0].ends_with(&format!(";Hash={};Subject=\"\";URI=", bare.sha256())), "{told:?}");
}

#[test]
fn a_certificate_cannot_add_to_what_is_said_of_it() {
    let site = Site::new();
    let forged = "spiffe://client/c,By=spiffe://site/a;Hash=00;URI=spiffe://client/admin";
    let identity = site.clients.issue_as(|params| {
        params.subject_alt_names = vec![SanType::URI(forged.try_into().unwrap())];
    });
    let proxy = site.start("SANITIZE_SET", json!({"uri": true}));
    let told = site.told(&proxy, &site.showing(&identity), &[]);
    // Envoy says it as it is.
    let wanted = if envoy() { format!(";URI={forged}") } else { format!(";URI=\"{forged}\"") };
    assert!(told[0].ends_with(&wanted), "{told:?}");
}

/// A leaf of `forward_client_cert_matcher`.
fn leaf(details: &str, parts: Value) -> Value {
    json!({"action": {"name": "a", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
                  HttpConnectionManager.ForwardClientCertConfig",
        "forward_client_cert_details": details,
        "set_current_client_cert_details": parts,
    }}})
}

/// A condition on an input of this type.
fn condition(kind: &str, input: Value, condition: Value) -> Value {
    let mut config = json!({"@type": format!("type.googleapis.com/{kind}")});
    overlay(&mut config, input);
    json!({"single_predicate": {"input": {"name": "a", "typed_config": config}, "value_match": condition}})
}

#[test]
fn what_is_said_depends_on_the_request() {
    let site = Site::new();
    let identity = elaborate(&site.clients);
    let header = |name: &str, value: &str| {
        condition(
            "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
            json!({"header_name": name}),
            json!({"contains": value}),
        )
    };
    let names = condition(
        "envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInput",
        json!({}),
        json!({"contains": "two.test"}),
    );
    let nobody = condition(
        "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput",
        json!({}),
        json!({"exact": "192.0.2.1"}),
    );
    let config = site.config("SANITIZE_SET", json!({"dns": true}));
    let config = config.overlay_filter(
        "http",
        json!({"forward_client_cert_matcher": {"matcher_list": {"matchers": [
            {"predicate": nobody, "on_match": leaf("SANITIZE", json!({}))},
            {"predicate": header(FIELD, "trusted"), "on_match": leaf("APPEND_FORWARD", json!({"uri": true}))},
            {
                "predicate": {"and_matcher": {"predicate": [names, header(":path", "/named")]}},
                "on_match": leaf("SANITIZE_SET", json!({"subject": true, "uri": true})),
            },
            {"predicate": header(":path", "/always"), "on_match": leaf("ALWAYS_FORWARD_ONLY", json!({}))},
        ]}}}),
    );
    let context = json!({"common_tls_context": {
        "validation_context": {"trusted_ca": {"inline_string": site.clients.pem()}},
    }});
    let proxy = Proxy::start(&secured(config, &site.identity, context));
    let mut shown = site.showing(&identity).connect(proxy.address("http"), "site.test");
    let mut anybody = Client::trusting(&site.servers).connect(proxy.address("http"), "site.test");
    let own = format!("By=spiffe://site/a;By=spiffe://site/b;Hash={}", identity.sha256());
    let uris = "URI=https://client.test/?a=b;URI=spiffe://client/c";
    let subject = "Subject=\"CN=Lu\\C4\\8Di\\C4\\87,O=A\\, \\\"B\\\"\\; C=d\"";
    for (path, sent, wanted, of_anybody) in [
        ("/", "Hash=b", format!("{own};DNS=one.test;DNS=two.test"), ""),
        ("/", "trusted", format!("trusted,{own};{uris}"), ""),
        ("/named", "Hash=b", format!("{own};{subject};{uris}"), ""),
        ("/always", "Hash=b", "Hash=b".to_owned(), "Hash=b"),
        ("/", "Hash=b", format!("{own};DNS=one.test;DNS=two.test"), ""),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n{FIELD}: {sent}\r\n\r\n");
        assert_eq!(values(shown.exchange(&request).text()), [wanted], "{path} {sent}");
        assert_eq!(values(anybody.exchange(&request).text()).join(","), of_anybody, "{path} {sent}");
    }
}
