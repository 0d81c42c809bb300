//! The plugins of `examples/plugins`.

use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Answer, CallFailure};
use postrider_http::ResponseHead;
use serde_json::{Value, json};

use super::{Trial, get};
use crate::testing::Outcome;

/// The file `name` with this base configuration and, when it is not null, that configuration of the route.
pub(super) fn example(name: &str, base: Value, route: Value) -> Trial {
    let path = format!("{}/../../../examples/plugins/{name}.lua", env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(&path).unwrap();
    let entry = match route {
        Value::Null => json!({ "name": "another" }),
        config => json!({ "name": "test", "config": config }),
    };
    Trial::rider_with(&script, base, entry).unwrap_or_else(|errors| panic!("{name}: {errors:?}"))
}

#[test]
fn basic_auth_in_three_forms() {
    let config = json!({ "user": "fooname", "password": "validpassword" });
    for name in ["basic_auth", "basic_auth_plain", "basic_auth_jit"] {
        for (value, passes) in [
            ("Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk", true),
            ("basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk", true),
            ("Basic Zm9vbmFtZTppbnZhbGlk", false),
            ("Basic ???", false),
            ("Bearer Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk", false),
            ("x", false),
        ] {
            for (base, route) in [(config.clone(), Value::Null), (json!({}), config.clone())] {
                let mut trial = example(name, base, route);
                trial.restart(get(&[("authorization", value)]));
                let outcome = trial.request(&[]);
                assert_eq!(outcome == Outcome::Passed, passes, "{name} {value}: {outcome:?}");
                assert!(passes || matches!(outcome, Outcome::Answered(401, _)));
            }
        }
        assert!(matches!(example(name, config.clone(), Value::Null).request(&[]), Outcome::Answered(401, _)), "{name}");
    }
}

#[test]
fn rate_limit() {
    let mut trial = example("rate_limit", json!({}), json!({ "rate": 0.001, "burst": 2, "header": "x-key" }));
    for (key, passes) in [("a", true), ("a", true), ("a", false), ("b", true), ("a", false)] {
        trial.restart(get(&[("x-key", key)]));
        assert_eq!(trial.request(&[]) == Outcome::Passed, passes, "{key}");
    }
    for expected in [true, true, false] {
        let mut stream = get(&[]);
        stream.info.downstream_remote = Some("10.0.0.9:4711".parse().unwrap());
        trial.restart(stream);
        assert_eq!(trial.request(&[]) == Outcome::Passed, expected);
    }
}

#[test]
fn header_rewrite() {
    let config = json!({
        "set": { "x-who": "$user-agent/1", "x-none": "$nothing" }, "remove": ["cookie"], "response_set": { "x-frame": "deny" },
    });
    let mut trial = example("header_rewrite", json!({}), config);
    trial.restart(get(&[("user-agent", "me"), ("cookie", "a=b")]));
    trial.stream.response.set_status(200);
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x-who").as_deref(), Some("me/1"));
    assert_eq!(trial.request_header("x-none"), None);
    assert_eq!(trial.request_header("cookie"), None);
    trial.response(&[]);
    assert_eq!(trial.response_header("x-frame").as_deref(), Some("deny"));
    assert!(trial.response_header("x-took-ms").is_some());
}

#[test]
fn jwt_claims() {
    // Made with the secret `key`: {"alg":"HS256"}.{"iss":"me","sub":"alice","admin":true}
    let script = "local base64, sha2 = require('base64'), require('sha2')
        require('rider.v2')
        local h = { version = 'v2' }
        function h.on_request_header()
          local parts = base64.encode_url('{\"alg\":\"HS256\"}') .. '.' .. base64.encode_url('{\"iss\":\"me\",\"sub\":\"alice\",\"admin\":true}')
          local signature = base64.encode_url(sha2.hex_to_bin(sha2.hmac(sha2.sha256, 'key', parts)))
          envoy.req.set_header('x-out', parts .. '.' .. signature)
        end
        return h";
    let token = super::out_of(&mut Trial::rider(script)).unwrap();
    let cases = [
        (json!({ "secret": "key" }), token.clone(), None),
        (json!({ "secret": "key", "issuer": "me", "claims": { "admin": true } }), token.clone(), None),
        (json!({ "secret": "other" }), token.clone(), Some("the signature is wrong")),
        (json!({ "secret": "key", "issuer": "you" }), token.clone(), Some("the issuer is another")),
        (json!({ "secret": "key", "claims": { "admin": false } }), token.clone(), Some("the claim admin is another")),
        (json!({ "secret": "key" }), "a.b.c".to_owned(), Some("not signed with HS256")),
        (json!({ "secret": "key" }), "x".to_owned(), Some("no token")),
    ];
    for (config, token, expected) in cases {
        let mut trial = example("jwt_claims", config.clone(), Value::Null);
        trial.restart(get(&[("authorization", &format!("Bearer {token}")), ("x-user", "forged")]));
        match (trial.request(&[]), expected) {
            (Outcome::Passed, None) => assert_eq!(trial.request_header("x-user").as_deref(), Some("alice")),
            (Outcome::Answered(401, body), Some(why)) => assert!(body.contains(why), "{body}"),
            (outcome, _) => panic!("{config}: {outcome:?}"),
        }
    }
}

#[test]
fn request_rewrite() {
    let mut trial =
        example("request_rewrite", json!({ "drop": ["secret"], "add": { "via": "postrider" } }), Value::Null);
    trial.restart(FakeStream::new("POST", "/", &[("content-type", "application/json")]));
    assert_eq!(trial.request(&["{\"secret\":1,", "\"list\":[]}"]), Outcome::Passed);
    let body: Value = serde_json::from_slice(trial.stream.request_body.bytes()).unwrap();
    assert_eq!(body, json!({ "list": [], "via": "postrider" }));
    trial.restart(FakeStream::new("POST", "/", &[("content-type", "application/json")]));
    assert!(matches!(trial.request(&["{"]), Outcome::Answered(400, _)));
    trial.restart(FakeStream::new("POST", "/", &[("content-type", "text/plain")]));
    assert_eq!(trial.request(&["{"]), Outcome::Passed);
}

#[test]
fn response_rewrite() {
    let mut trial = example("response_rewrite", json!({}), json!({}));
    for (status, expected) in [(500, "{\"status\":500,\"request\":\"r1\"}"), (200, "all well")] {
        trial.restart(get(&[("x-request-id", "r1")]));
        trial.stream.response.set_status(status);
        trial.stream.response.fields.append_name(b"server", b"secret/1.0").unwrap();
        trial.request(&[]);
        assert_eq!(trial.response(&["all ", "well"]), Outcome::Passed);
        assert_eq!(trial.response_header("server"), None);
        let body = trial.stream.response_body.bytes();
        match serde_json::from_slice::<Value>(body) {
            Ok(document) => assert_eq!(document, serde_json::from_str::<Value>(expected).unwrap()),
            Err(_) => assert_eq!(body, expected.as_bytes()),
        }
    }
}

#[test]
fn authz() {
    let answer = |status: u16, lines: &[(&str, &str)], body: &str| {
        let mut head = ResponseHead::new();
        head.set_status(status);
        for (name, value) in lines {
            head.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
        }
        Ok(Answer { head, body: body.as_bytes().to_vec(), trailers: Default::default() })
    };
    let cases = [
        (json!({ "cluster": "authz" }), answer(200, &[("x-user", "alice")], ""), Outcome::Passed),
        (json!({ "cluster": "authz" }), answer(403, &[], "no"), Outcome::Answered(403, "no".to_owned())),
        (
            json!({ "cluster": "authz" }),
            Err(CallFailure::Timeout),
            Outcome::Answered(503, "cannot check at the moment\n".to_owned()),
        ),
        (json!({ "cluster": "authz", "fail_open": true }), Err(CallFailure::Upstream), Outcome::Passed),
    ];
    for (config, outcome, expected) in cases {
        let mut trial = example("authz", config.clone(), Value::Null);
        trial.restart(FakeStream::new("PUT", "/thing?x=1", &[("authorization", "secret")]));
        assert_eq!(trial.request(&[]), Outcome::Paused);
        {
            let calls = trial.stream.host.calls.borrow();
            let fields = &calls.front().unwrap().head.fields;
            assert_eq!(fields.get_name(b"x-original-method"), Some(&b"PUT"[..]));
            assert_eq!(fields.get_name(b"x-original-path"), Some(&b"/thing?x=1"[..]));
            assert_eq!(fields.get_name(b"authorization"), Some(&b"secret"[..]));
        }
        trial.stream.host.answer(outcome);
        assert_eq!(trial.resume(true), expected, "{config}");
        assert_eq!(
            trial.request_header("x-user").is_some(),
            config.get("fail_open").is_none() && expected == Outcome::Passed
        );
    }
}
