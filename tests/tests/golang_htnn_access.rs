//! HTNN's plugins that say who may come in: by policies in files and texts, by signatures, and by an OpenID provider.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::envoy;
use postrider_tests::golang::filter;
use postrider_tests::htnn::{HOMES, ask, consumers, plugins, site, with};
use postrider_tests::kit::{Origin, TempDir, wait_until};
use serde_json::{Value, json};

const MODEL: &str = "[request_definition]
r = sub, obj, act

[policy_definition]
p = sub, obj, act

[role_definition]
g = _, _

[policy_effect]
e = some(where (p.eft == allow))

[matchers]
m = (g(r.sub, p.sub) || keyMatch(r.sub, p.sub)) && keyMatch(r.obj, p.obj) && keyMatch(r.act, p.act)
";

#[test]
fn a_policy_in_the_configuration_decides() {
    if envoy() {
        return;
    }
    let policy = "package test
        default allow = false
        allow {
            input.request.method == \"GET\"
            input.request.path == \"/in\"
            input.request.host == \"test\"
            input.request.query.who == \"ann\"
            input.request.headers[\"x-role\"] == \"dev,ops\"
        }";
    for home in HOMES {
        let site = with(home, "opa", json!({"local": {"text": policy}}));
        for (path, role, wanted) in [
            ("/in?who=ann", "dev,ops", 200),
            ("/in?who=eve", "dev,ops", 403),
            ("/in?who=ann", "dev", 403),
            ("/out?who=ann", "dev,ops", 403),
        ] {
            let answer = ask(&site, path, &format!("x-role: {role}\r\n"));
            assert_eq!(answer.status, wanted, "{home} {path} {role}: {answer:?}");
        }
        assert_eq!(site.origin.requests().len(), 1);
    }
}

#[test]
fn a_policy_agent_decides() {
    if envoy() {
        return;
    }
    let agent = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let asked: Value = serde_json::from_slice(&request.body).expect("JSON");
            let allow = asked["input"]["request"]["path"] == "/in";
            let body = json!({"result": {"allow": allow}}).to_string();
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        }
    });
    let remote = |address| json!({"remote": {"url": format!("http://{address}"), "policy": "web", "timeout": "10s"}});
    let site = with("", "opa", remote(agent.address));
    assert_eq!(site.proxy.get("/in").status, 200);
    assert_eq!(site.proxy.get("/out").status, 403);
    assert!(agent.requests().iter().all(|request| request.target == "/v1/data/web"));
    let alone = with("", "opa", remote(postrider_tests::kit::net::refusing_address()));
    assert_eq!(alone.proxy.get("/in").status, 503);
}

#[test]
fn a_policy_in_a_file_decides_and_is_read_anew_when_it_changes() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let folder = TempDir::new();
        let model = folder.write("model.conf", MODEL);
        let policy = folder.write("policy.csv", "p, *, /, GET\np, admin, *, *\ng, alice, admin\n");
        let config = json!({"rule": {"model": model, "policy": &policy}, "token": {"name": "x-user"}});
        let site = with(home, "casbin", config);
        let status = |method: &str, path: &str, user: &str| {
            postrider_tests::ask(&site.proxy, method, "test", path, &format!("x-user: {user}\r\n")).status
        };
        assert_eq!(status("GET", "/", "bob"), 200, "{home}");
        assert_eq!(status("GET", "/private", "bob"), 403, "{home}");
        assert_eq!(status("DELETE", "/private", "alice"), 200, "{home}");
        let new = folder.write("new.csv", "p, admin, *, *\ng, bob, admin\n");
        std::fs::rename(new, &policy).unwrap();
        wait_until("the new policy", || status("GET", "/private", "bob") == 200);
        assert_eq!(status("GET", "/private", "alice"), 403, "{home}");
    }
}

#[test]
fn requests_are_known_by_their_signatures() {
    if envoy() {
        return;
    }
    let consumer =
        json!({"accessKey": "key", "secretKey": "secret", "algorithm": "HMAC_SHA384", "signedHeaders": ["x-b", "x-a"]});
    let signature = |path: &str, query: &str| {
        let text = format!("GET\n{path}\n{query}\nkey\nMon, 02 Jan 2006 15:04:05 GMT\nx-b:2\nx-b:3\nx-a:1\n");
        let key = hmac::Key::new(hmac::HMAC_SHA384, b"secret");
        STANDARD.encode(hmac::sign(&key, text.as_bytes()).as_ref())
    };
    for home in HOMES {
        let all = [
            consumers(1, &[("ann", "hmacAuth", consumer.clone())]),
            filter(
                "htnn",
                "fm",
                &plugins(&[
                    ("hmacAuth", json!({"signatureHeader": "x-sign"})),
                    ("consumerRestriction", json!({"denyIfNoConsumer": true})),
                ]),
            ),
        ];
        let site = site(home, &all, Origin::echo("a"), json!({}));
        let status = |target: &str, key: &str, signature: &str| {
            let fields = "date: Mon, 02 Jan 2006 15:04:05 GMT\r\nx-a: 1\r\nx-b: 3\r\nx-b: 2\r\n";
            ask(&site, target, &format!("{fields}x-hmac-access-key: {key}\r\nx-sign: {signature}\r\n")).status
        };
        let good = signature("/a", "a=1&b=2&b=3");
        assert_eq!(status("/a?b=3&a=1&b=2", "key", &good), 200, "{home}");
        assert_eq!(status("/a?b=3&a=1&b=4", "key", &good), 401, "{home}: another query");
        assert_eq!(status("/a?b=3&a=1&b=2", "other", &good), 401, "{home}: another key");
        assert_eq!(ask(&site, "/a", "").status, 401, "{home}: no signature");
        let [arrived] = &site.origin.requests()[..] else { panic!("{:?}", site.origin.requests()) };
        assert!(!arrived.headers.contains("x-sign") && !arrived.headers.contains("x-hmac-access-key"));
    }
}
