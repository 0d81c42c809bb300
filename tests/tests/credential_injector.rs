//! The filter that puts credentials of the proxy's own into requests, as Envoy's does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_tests::kit::config::extension;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Origin, TempDir};
use postrider_tests::site::{self, Plan, Site};
use postrider_tests::{envoy, kit::wait_until};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.credential_injector";
const TYPE: &str = "filters.http.credential_injector.v3.CredentialInjector";

fn injector(kind: &str, mut credential: Value, more: Value) -> Value {
    credential["@type"] = json!(format!("type.googleapis.com/envoy.extensions.http.injected_credentials.{kind}"));
    let mut config = json!({"credential": {"name": "credential", "typed_config": credential}});
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    extension(NAME, TYPE, config)
}

fn generic(credential: Value, more: Value) -> Value {
    injector("generic.v3.Generic", credential, more)
}

fn secrets(secrets: &[(&str, &str)]) -> Value {
    let secret =
        |(name, text): &(&str, &str)| json!({"name": name, "generic_secret": {"secret": {"inline_string": text}}});
    json!({"static_resources": {"secrets": secrets.iter().map(secret).collect::<Vec<_>>()}})
}

fn sent(site: &Site, header: &str) -> String {
    let request = site.origin.requests().pop().unwrap();
    request.headers.values(header).join("|")
}

fn stat(site: &Site, name: &str) -> u64 {
    site.stat(&format!("http.ingress_http.credential_injector.{name}"))
}

#[test]
fn a_secret_of_the_bootstrap_is_injected() {
    let site = site::with([generic(json!({"credential": {"name": "s"}}), json!({}))])
        .whole(secrets(&[("s", "Basic YTpi")]))
        .start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(sent(&site, "authorization"), "Basic YTpi");
    // One that is there stays.
    assert_eq!(site.get("/", "authorization: own\r\n").status, 200);
    assert_eq!(sent(&site, "authorization"), "own");
    assert_eq!(["injected", "already_exists", "failed"].map(|name| stat(&site, name)), [1, 1, 0]);
}

#[test]
fn a_secret_of_a_file_takes_the_place_of_what_is_there() {
    let folder = TempDir::new();
    let file = folder.path().join("secret.yaml");
    std::fs::write(
        &file,
        r#"
resources:
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: key
  generic_secret: { secret: { inline_string: "k1" } }
"#,
    )
    .unwrap();
    let credential = json!({
        "credential": {"name": "key", "sds_config": {"path_config_source": {"path": file}}},
        "header": "X-Key", "header_value_prefix": "Key ",
    });
    let node = json!({"node": {"id": "n", "cluster": "c"}});
    let site = site::with([generic(credential, json!({"overwrite": true}))]).whole(node).start();
    assert_eq!(site.get("/", "x-key: a\r\nx-key: b\r\n").status, 200);
    assert_eq!((sent(&site, "x-key").as_str(), sent(&site, "authorization").as_str()), ("Key k1", ""));
    assert_eq!(["injected", "already_exists", "failed"].map(|name| stat(&site, name)), [1, 0, 0]);
}

#[test]
fn without_a_credential_a_request_goes_on_only_where_that_is_allowed() {
    let empty = |more: Value| {
        site::with([generic(json!({"credential": {"name": "s"}}), more)]).whole(secrets(&[("s", "")])).start()
    };
    let site = empty(json!({}));
    let answer = site.get("/", "");
    assert_eq!((answer.status, answer.text()), (401, "Failed to inject credential."));
    assert_eq!(site.logged(1), "401 - failed_to_inject_credential");
    assert_eq!(stat(&site, "failed"), 1);
    let site = empty(json!({"allow_request_without_credential": true}));
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(sent(&site, "authorization"), "");
    assert_eq!(["injected", "already_exists", "failed"].map(|name| stat(&site, name)), [0, 0, 1]);
}

/// Answers with these bodies, the last one from then on.
fn server(status: &'static str, bodies: &[&str]) -> Origin {
    let bodies: Vec<String> = bodies.iter().map(|body| (*body).to_owned()).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    Origin::start(move |connection| {
        while connection.request().is_some() {
            let at = asked.fetch_add(1, Ordering::Relaxed).min(bodies.len() - 1);
            let body = &bodies[at];
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            connection.write(format!("{head}{body}").as_bytes());
        }
    })
}

fn oauth2(client: Value, more: Value) -> Plan {
    let mut credential = json!({
        "token_endpoint": {"uri": "http://auth.test/token?v=1", "cluster": "auth", "timeout": "3s"},
        "client_credentials": client,
        "token_fetch_retry_interval": "1s",
    });
    for (key, value) in more.as_object().unwrap() {
        credential[key] = value.clone();
    }
    site::with([injector("oauth2.v3.OAuth2", credential, json!({}))]).whole(secrets(&[("s", "s&t")]))
}

fn client(kind: &str) -> Value {
    json!({"client_id": "i:d", "client_secret": {"name": "s"}, "auth_type": kind})
}

const TOKEN: &str = r#"{"access_token": "t1", "token_type": "Bearer", "expires_in": 3600}"#;

/// Asks until the token is there: Envoy fetches it beside the requests.
fn injected(site: &Site) {
    let ask = || site.get("/", "").status == 200;
    wait_until("the token", ask);
}

#[test]
fn a_token_is_fetched_and_injected() {
    let auth = server("200 OK", &[TOKEN]);
    let site = oauth2(client("BASIC_AUTH"), json!({"scopes": ["read", "a b"]}))
        .cluster("auth", &[auth.address], json!({}))
        .start();
    if !envoy() {
        // Whoever comes first waits for it.
        assert_eq!(site.get("/", "").status, 200);
    }
    injected(&site);
    assert_eq!(sent(&site, "authorization"), "Bearer t1");
    let asked = auth.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].method.as_str(), asked[0].target.as_str()), ("POST", "/token?v=1"));
    for (name, value) in [
        ("host", "auth.test"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("user-agent", "Go-browser"),
        ("accept", "application/json"),
    ] {
        assert_eq!(asked[0].header(name), value);
    }
    let body = String::from_utf8(asked[0].body.clone()).unwrap();
    assert_eq!(body, "grant_type=client_credentials&client_id=i%3Ad&client_secret=s%26t&scope=read%20a%20b");
    assert_eq!(["oauth2.token_requested", "oauth2.token_fetched"].map(|name| stat(&site, name)), [1, 1]);
}

#[test]
fn a_client_says_who_it_is_by_a_secret_or_a_certificate() {
    for (kind, who) in [
        ("BASIC_AUTH", "client_id=i%3Ad&client_secret=s%26t"),
        ("URL_ENCODED_BODY", "client_id=i%3Ad&client_secret=s%26t"),
        ("TLS_CLIENT_AUTH", "client_id=i%3Ad"),
    ] {
        let auth = server("200 OK", &[TOKEN]);
        let more = json!({"endpoint_params": [{"name": "audience", "value": "a/b"}]});
        let site = oauth2(client(kind), more).cluster("auth", &[auth.address], json!({})).start();
        injected(&site);
        let asked = auth.requests().remove(0);
        assert!(!asked.headers.contains("authorization"));
        let body = String::from_utf8(asked.body.clone()).unwrap();
        assert_eq!(body, format!("grant_type=client_credentials&{who}&audience=a%2Fb"));
    }
}

#[test]
fn what_is_no_token_is_asked_for_again() {
    for (status, bad, counter) in [
        ("500 Oops", TOKEN, "bad_response_code"),
        ("200 OK", r#"{"token_type": "Bearer"}"#, "bad_token"),
        ("200 OK", r#"{"access_token": "t1"}"#, "bad_token"),
        ("200 OK", "no JSON", "bad_token"),
    ] {
        let auth = server(status, &[bad]);
        let site = oauth2(client("BASIC_AUTH"), json!({})).cluster("auth", &[auth.address], json!({})).start();
        let answer = site.get("/", "");
        assert_eq!((answer.status, answer.text()), (401, "Failed to inject credential."), "{status} {bad}");
        let counter = format!("oauth2.token_fetch_failed_on_{counter}");
        wait_until("the failure", || stat(&site, &counter) >= 1);
        // After the interval. Envoy does not come to that after what was no token.
        if !envoy() {
            wait_until("another try", || {
                site.get("/", "");
                stat(&site, &counter) >= 2
            });
        }
    }
}

#[test]
fn a_server_that_is_not_there_gives_no_token() {
    let site = oauth2(client("BASIC_AUTH"), json!({})).cluster("auth", &[refusing_address()], json!({})).start();
    assert_eq!(site.get("/", "").status, 401);
    wait_until("the failure", || stat(&site, "oauth2.token_fetch_failed_on_bad_response_code") >= 1);
    assert_eq!(stat(&site, "oauth2.token_fetched"), 0);
}

#[test]
fn another_token_is_fetched_at_half_of_its_time() {
    let auth = server(
        "200 OK",
        &[r#"{"access_token": "t1", "expires_in": 2}"#, r#"{"access_token": "t2", "expires_in": 3600}"#],
    );
    let site = oauth2(client("BASIC_AUTH"), json!({})).cluster("auth", &[auth.address], json!({})).start();
    injected(&site);
    assert_eq!(sent(&site, "authorization"), "Bearer t1");
    wait_until("the next token", || {
        assert_eq!(site.get("/", "").status, 200);
        sent(&site, "authorization") == "Bearer t2"
    });
    assert_eq!(auth.requests().len(), 2);
}
