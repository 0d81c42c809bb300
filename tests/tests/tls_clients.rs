//! Clients that show certificates: who is let in, and who is not, however often he comes.

use postrider_tests::kit::proxy::accepted;
use postrider_tests::kit::{Config, Proxy};
use postrider_tests::tls::{Authority, Client, Identity, await_listener_stat, downstream, secured, tls_inspector};
use postrider_tests::{get, postrider_only};
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};

fn hello() -> Config {
    Config::routes(json!([
        {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
    ]))
}

/// Verifies clients against `authority`, and more.
fn verified(authority: &Authority, required: bool, more: Value) -> Value {
    let mut validation = json!({"trusted_ca": {"inline_string": authority.pem()}});
    postrider_tests::kit::config::overlay(&mut validation, more);
    json!({"require_client_certificate": required, "common_tls_context": {"validation_context": validation}})
}

struct Site {
    servers: Authority,
    clients: Authority,
    identity: Identity,
}

impl Site {
    fn new() -> Self {
        let servers = Authority::new("servers");
        let identity = servers.issue(&["site.test"]);
        Self { servers, clients: Authority::new("clients"), identity }
    }

    fn config(&self, context: Value) -> Config {
        secured(hello(), &self.identity, context)
    }

    fn start(&self, required: bool, more: Value) -> Proxy {
        Proxy::start(&self.config(verified(&self.clients, required, more)))
    }

    fn showing(&self, identity: &Identity) -> Client {
        Client::showing(&self.servers, identity)
    }
}

/// What the proxy says to a client.
fn visit(client: &Client, proxy: &Proxy) -> Result<String, String> {
    client.get(proxy.address("http"), "site.test").map(|response| response.text().to_owned())
}

#[test]
fn a_client_without_a_certificate_is_turned_away_where_one_is_required() {
    let site = Site::new();
    let proxy = site.start(true, json!({}));
    assert_eq!(visit(&site.showing(&site.clients.issue(&["good.test"])), &proxy).unwrap(), "hello");
    for versions in [[&TLS12], [&TLS13]] {
        let refused = visit(&Client::speaking(&site.servers, &versions), &proxy).unwrap_err();
        assert!(refused.contains("alert"), "{refused}");
    }
    await_listener_stat(&proxy, "ssl.fail_verify_no_cert", 2);
}

#[test]
fn a_client_may_come_without_a_certificate_where_none_is_required() {
    let site = Site::new();
    let proxy = site.start(false, json!({}));
    assert_eq!(visit(&site.showing(&site.clients.issue(&["good.test"])), &proxy).unwrap(), "hello");
    assert_eq!(visit(&Client::trusting(&site.servers), &proxy).unwrap(), "hello");
    // One that is shown has to be good all the same.
    let stranger = Authority::new("strangers").issue(&["good.test"]);
    assert!(visit(&site.showing(&stranger), &proxy).unwrap_err().contains("alert"));
}

#[test]
fn certificates_of_strangers_and_of_yesterday_are_refused() {
    let site = Site::new();
    let proxy = site.start(true, json!({}));
    // The same name does not make it the same authority.
    let forged = Authority::new("clients").issue(&["good.test"]);
    let expired = site.clients.issue_expired(&["good.test"]);
    for (name, identity) in [("forged", forged), ("expired", expired)] {
        let refused = visit(&site.showing(&identity), &proxy).unwrap_err();
        assert!(refused.contains("alert"), "{name}: {refused}");
    }
    await_listener_stat(&proxy, "ssl.fail_verify_error", 2);
}

#[test]
fn an_expired_certificate_is_good_where_that_is_allowed() {
    let site = Site::new();
    let proxy = site.start(true, json!({"allow_expired_certificate": true}));
    assert_eq!(visit(&site.showing(&site.clients.issue_expired(&["good.test"])), &proxy).unwrap(), "hello");
    assert!(visit(&site.showing(&Authority::new("x").issue_expired(&["good.test"])), &proxy).is_err());
}

#[test]
fn only_the_names_that_are_asked_for_are_let_in() {
    let site = Site::new();
    let names = json!({"match_typed_subject_alt_names": [
        {"san_type": "DNS", "matcher": {"exact": "good.test"}},
        {"san_type": "DNS", "matcher": {"suffix": ".team.test"}},
    ]});
    let proxy = site.start(true, names);
    let cases: [(&[&str], bool); 5] = [
        (&["good.test"], true),
        (&["other.test", "good.test"], true),
        (&["a.team.test"], true),
        (&["bad.test"], false),
        (&["good.test.evil.test"], false),
    ];
    for (names, good) in cases {
        let answer = visit(&site.showing(&site.clients.issue(names)), &proxy);
        assert_eq!(answer.is_ok(), good, "{names:?}: {answer:?}");
    }
}

#[test]
fn a_session_gets_nobody_past_another_authority() {
    if !postrider_only() {
        return;
    }
    let site = Site::new();
    let newer = Authority::new("newer clients");
    let mut proxy = site.start(true, json!({}));
    for versions in [[&TLS12], [&TLS13]] {
        assert!(accepted(&proxy.reload(site.config(verified(&site.clients, true, json!({}))).to_yaml())));
        let client = Client::showing_over(&site.servers, &site.clients.issue(&["good.test"]), &versions);
        postrider_tests::kit::wait_until("the first authority", || visit(&client, &proxy).is_ok());
        let mut again = client.connect(proxy.address("http"), "site.test");
        assert_eq!(again.exchange(get("/")).text(), "hello");
        assert!(again.stream().resumed(), "{versions:?}");
        assert!(accepted(&proxy.reload(site.config(verified(&newer, true, json!({}))).to_yaml())));
        let other = site.showing(&newer.issue(&["good.test"]));
        postrider_tests::kit::wait_until("the other authority", || visit(&other, &proxy).is_ok());
        let refused = visit(&client, &proxy);
        assert!(refused.is_err(), "{versions:?}: the ticket of another time opens the door");
    }
}

#[test]
fn a_session_of_one_filter_chain_does_not_open_another() {
    let site = Site::new();
    let chain = |name: &str, context: Value| {
        let routes = json!([
            {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": name}}},
        ]);
        let virtual_host = json!({"name": "all", "domains": ["*"], "routes": routes});
        let hcm = json!({"route_config": {"virtual_hosts": [virtual_host]}});
        json!({
            "name": name,
            "filter_chain_match": {"server_names": [name]},
            "filters": [postrider_tests::kit::config::http_filter(hcm)],
            "transport_socket": downstream(&[site.servers.issue(&[name]).inline()], context),
        })
    };
    let chains = json!([chain("open.test", json!({})), chain("closed.test", verified(&site.clients, true, json!({})))]);
    let fields = json!({"listener_filters": [tls_inspector()], "filter_chains": chains});
    let proxy = Proxy::start(&Config::new().listener("http", fields));
    for versions in [[&TLS12], [&TLS13]] {
        let client = Client::speaking(&site.servers, &versions).confusing_names();
        assert_eq!(client.get(proxy.address("http"), "open.test").unwrap().text(), "open.test");
        let refused = client.get(proxy.address("http"), "closed.test");
        assert!(refused.is_err(), "{versions:?}: {refused:?}");
    }
}
