//! JSON Web Tokens: requirements, where tokens stand, what they say and what becomes of them.

use super::{filter, noted, scope};
use crate::scene::{Scene, to_a};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![failures(), requirements(), marked(), places(), effects(), times(), scopes()]
}

const SECRET: &[u8] = b"a key that nobody else has, 32 bytes";

/// Signed by the key `k1` unless `head` says otherwise.
fn token_with(head: Value, claims: Value) -> String {
    let mut all = json!({"alg": "HS256", "kid": "k1", "typ": "JWT"});
    overlay(&mut all, head);
    let algorithm = match all["alg"].as_str() {
        Some("HS384") => hmac::HMAC_SHA384,
        Some("HS512") => hmac::HMAC_SHA512,
        _ => hmac::HMAC_SHA256,
    };
    let said = format!("{}.{}", BASE64.encode(all.to_string()), BASE64.encode(claims.to_string()));
    let signature = hmac::sign(&hmac::Key::new(algorithm, SECRET), said.as_bytes());
    format!("{said}.{}", BASE64.encode(signature))
}

/// What a good one says, until 2100, and more.
fn claims(more: Value) -> Value {
    let mut claims = json!({"iss": "issuer.test", "sub": "ann", "aud": "web", "exp": 4_102_444_800_u64});
    overlay(&mut claims, more);
    claims
}

pub fn token(more: Value) -> String {
    token_with(json!({}), claims(more))
}

fn keys() -> Value {
    let key =
        |id: &str, algorithm: &str| json!({"kty": "oct", "kid": id, "alg": algorithm, "k": BASE64.encode(SECRET)});
    let set = json!({"keys": [key("k1", "HS256"), key("k384", "HS384"), key("k512", "HS512")]});
    json!({"inline_string": set.to_string()})
}

/// The issuer `issuer.test` and the audience `web`.
pub fn provider(more: Value) -> Value {
    let mut fields = json!({"issuer": "issuer.test", "audiences": ["web"], "local_jwks": keys()});
    overlay(&mut fields, more);
    fields
}

fn jwt(name: &str, fields: Value) -> Scene {
    Scene::filtered(name, vec![filter("jwt_authn", "JwtAuthentication", fields)], json!([])).logging(noted("jwt_authn"))
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// Every way in which a token can be wrong.
fn failures() -> Scene {
    let said = json!({"failed_status_in_metadata": "failure", "payload_in_metadata": "payload", "header_in_metadata": "header"});
    let fields = json!({
        "providers": {"one": provider(said)},
        "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "one"}}],
    });
    let good = token(json!({}));
    let parts: Vec<&str> = good.split('.').collect();
    let (head, body, signature) = (parts[0], parts[1], parts[2]);
    let encoded = |text: &str| BASE64.encode(text);
    let tokens = [
        good.clone(),
        token(json!({"iss": "stranger.test"})),
        token(json!({"iss": null})),
        token(json!({"iss": 5})),
        token(json!({"sub": 5})),
        token(json!({"sub": null})),
        token(json!({"aud": "other"})),
        token(json!({"aud": ["other", "web"]})),
        token(json!({"aud": []})),
        token(json!({"aud": null})),
        token(json!({"aud": 5})),
        token(json!({"aud": "https://web/"})),
        token(json!({"exp": 1_000_000_000})),
        token(json!({"exp": null})),
        token(json!({"exp": "soon"})),
        token(json!({"exp": -1})),
        token(json!({"nbf": 4_102_444_800_u64})),
        token(json!({"nbf": "x"})),
        token(json!({"iat": "x"})),
        token_with(json!({"kid": "unknown"}), claims(json!({}))),
        token_with(json!({"kid": null}), claims(json!({}))),
        token_with(json!({"kid": 5}), claims(json!({}))),
        token_with(json!({"alg": null}), claims(json!({}))),
        token_with(json!({"alg": 5}), claims(json!({}))),
        token_with(json!({"alg": "none"}), claims(json!({}))),
        token_with(json!({"alg": "HS999"}), claims(json!({}))),
        token_with(json!({"alg": "RS256"}), claims(json!({}))),
        token_with(json!({"alg": "HS384", "kid": "k384"}), claims(json!({}))),
        token_with(json!({"alg": "HS512", "kid": "k512"}), claims(json!({}))),
        token_with(json!({"alg": "HS512", "kid": null}), claims(json!({}))),
        format!("{head}.{body}."),
        format!("{head}.{body}"),
        format!("{head}.{body}.AAAA"),
        format!("{head}.{body}.{signature}.more"),
        format!("{head}.{body}.!!"),
        format!("{head}.!!.{signature}"),
        format!("!!.{body}.{signature}"),
        format!("{}.{body}.{signature}", encoded("no JSON")),
        format!("{}.{body}.{signature}", encoded("[]")),
        format!("{head}.{}.{signature}", encoded("no JSON")),
        format!("{head}.{}.{signature}", encoded("[1]")),
        format!("{head}.{}.{signature}", encoded("")),
        String::new(),
        "..".to_owned(),
        "rubbish".to_owned(),
    ];
    let lines: Vec<String> = tokens.iter().map(|token| bearer(token)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    jwt("jwt", fields)
        .each("/p?q=1", &lines)
        .get("/")
        .ask("POST", "other.test:81", "/", "content-length: 0\r\n")
        .ask("HEAD", "test", "/", "")
        .ask("OPTIONS", "test", "/", "origin: http://a.test\r\naccess-control-request-method: GET\r\n")
        .get_with("/", "content-type: application/grpc\r\n")
        .get_with("/", &format!("x-forwarded-proto: https\r\n{}", bearer("x")))
        .each("/", &["authorization: Basic x\r\n", "authorization: Bearer\r\n", "authorization: bearer x\r\n"])
        .get_with("/", &format!("{}{}", bearer(&good), bearer("x")))
}

/// Bad tokens that are told of and not refused, and rules for paths by a template.
fn marked() -> Scene {
    let said = json!({
        "failed_status_in_metadata": "failure", "payload_in_metadata": "payload", "forward_payload_header": "x-payload",
        "claim_to_headers": [{"header_name": "x-sub", "claim_name": "sub"}],
    });
    let marks = |fields: Value| json!({"extract_only_without_validation": fields});
    let one = json!({"provider_name": "one"});
    let rule = |template: &str, requires: Value| {
        let kind = "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";
        let config = json!({"@type": kind, "path_template": template});
        json!({"match": {"path_match_policy": {"name": "template", "typed_config": config}}, "requires": requires})
    };
    let list = |requirements: Value| json!({"requirements": requirements});
    let fields = json!({
        "providers": {"one": provider(said)},
        "rules": [
            rule("/plain/**", marks(json!({}))),
            rule("/named/{name}", marks(json!({"verification_status_header": "X-Good"}))),
            rule("/any/*", json!({"requires_any": list(json!([one, marks(json!({}))]))})),
            rule("/all/*.jpg", json!({"requires_all": list(json!([one, marks(json!({}))]))})),
        ],
    });
    let (good, old, other) = (token(json!({})), token(json!({"exp": 1_000_000_000})), token(json!({"aud": "other"})));
    let mut scene = jwt("jwt-marked", fields);
    for path in ["/plain/a/b", "/named/x", "/named", "/any/x", "/all/x.jpg", "/all/x.png"] {
        scene = scene.get(path);
        for token in [good.as_str(), &old, &other, "rubbish", &format!("{good}x")] {
            scene = scene.get_with(path, &bearer(token));
        }
        scene = scene.get_with(&format!("{path}?access_token={old}"), &bearer(&good));
    }
    scene
}

/// Requirements of all kinds, each for a path.
fn requirements() -> Scene {
    let (one, two) = (json!({"provider_name": "one"}), json!({"provider_name": "two"}));
    let rule = |prefix: &str, requires: Value| json!({"match": {"prefix": prefix}, "requires": requires});
    let list = |requirements: Value| json!({"requirements": requirements});
    let fields = json!({
        "providers": {
            "one": provider(json!({"payload_in_metadata": "one"})),
            "two": provider(json!({"issuer": "two.test", "from_headers": [{"name": "x-two"}], "payload_in_metadata": "two"})),
        },
        "rules": [
            {"match": {"prefix": "/open"}},
            rule("/nothing", json!({})),
            rule("/one", one.clone()),
            rule("/audiences", json!({"provider_and_audiences": {"provider_name": "one", "audiences": ["other", "more"]}})),
            rule("/any", json!({"requires_any": list(json!([one, two]))})),
            rule("/all", json!({"requires_all": list(json!([one, two]))})),
            rule("/maybe", json!({"requires_any": list(json!([one, {"allow_missing": {}}]))})),
            rule("/whatever", json!({"requires_any": list(json!([one, {"allow_missing_or_failed": {}}]))})),
            rule("/missing", json!({"allow_missing": {}})),
            rule("/failed", json!({"allow_missing_or_failed": {}})),
            rule("/deep", json!({"requires_any": list(json!([{"requires_all": list(json!([one, two]))}, {"requires_any": list(json!([two, {"allow_missing": {}}]))}]))})),
            {"match": {"prefix": "/named"}, "requirement_name": "both"},
            {"match": {"prefix": "/", "headers": [{"name": "x-check", "present_match": true}]}, "requires": one},
            {"match": {"safe_regex": {"regex": "/re/[0-9]+"}}, "requires": two},
            {"match": {"path": "/exact", "query_parameters": [{"name": "q", "string_match": {"exact": "1"}}]}, "requires": two},
        ],
        "requirement_map": {"both": {"requires_all": list(json!([one, two]))}},
    });
    let mut scene = jwt("jwt-requirements", fields);
    let (good, old, other) = (token(json!({})), token(json!({"exp": 1_000_000_000})), token(json!({"aud": "other"})));
    let second = token(json!({"iss": "two.test"}));
    let lines = [
        String::new(),
        bearer(&good),
        bearer(&old),
        bearer(&other),
        bearer("rubbish"),
        format!("x-two: {second}\r\n"),
        format!("{}x-two: {second}\r\n", bearer(&good)),
        format!("{}x-two: {second}\r\n", bearer(&old)),
        format!("{}x-two: {good}\r\n", bearer(&good)),
        bearer(&second),
    ];
    for path in [
        "/open",
        "/nothing",
        "/one",
        "/audiences",
        "/any",
        "/all",
        "/maybe",
        "/whatever",
        "/missing",
        "/failed",
        "/deep",
        "/named",
    ] {
        for lines in &lines {
            scene = scene.get_with(path, lines);
        }
    }
    scene.gets(&["/re/5", "/re/x", "/exact", "/exact?q=1", "/else"]).each("/else", &["x-check: 1\r\n"])
}

/// Headers, parameters and cookies that a token may stand in, and whether the upstream sees it.
fn places() -> Scene {
    let from = |more: Value| {
        let mut fields = json!({
            "from_headers": [{"name": "x-token"}, {"name": "x-words", "value_prefix": "token="}, {"name": "authorization", "value_prefix": "Bearer "}],
            "from_params": ["token", "t"], "from_cookies": ["ck"], "payload_in_metadata": "payload",
        });
        overlay(&mut fields, more);
        provider(fields)
    };
    let rule =
        |prefix: &str, provider: &str| json!({"match": {"prefix": prefix}, "requires": {"provider_name": provider}});
    let fields = json!({
        "providers": {
            "kept": from(json!({"forward": true, "forward_payload_header": "x-payload", "pad_forward_payload_header": true})),
            "taken": from(json!({"forward_payload_header": "x-payload"})),
            "usual": provider(json!({"issuer": "usual.test"})),
        },
        "rules": [rule("/kept", "kept"), rule("/taken", "taken"), rule("/usual", "usual")],
    });
    let good = token(json!({}));
    let usual = token(json!({"iss": "usual.test"}));
    let mut scene = jwt("jwt-places", fields);
    for path in ["/kept", "/taken"] {
        scene = scene
            .get_with(path, &format!("x-token: {good}\r\n"))
            .get_with(path, &format!("x-words: some token={good}, more\r\n"))
            .get_with(path, &format!("x-words: {good}\r\n"))
            .get_with(path, &bearer(&good))
            .get_with(path, &format!("cookie: a=b; ck={good}; c=d\r\n"))
            .get_with(path, &format!("cookie: ck=\"{good}\"\r\n"))
            .get_with(path, "x-payload: forged\r\n")
            .get(&format!("{path}?token={good}"))
            .get(&format!("{path}?t={good}"))
            .get(&format!("{path}?access_token={good}"))
            .get(&format!("{path}?token=x&t={good}"))
            .get_with(path, &format!("x-token: {good}\r\nx-token: {good}\r\n"))
            .get_with(path, &format!("x-token: {good}\r\n{}", bearer("x")));
    }
    scene
        .get_with("/usual", &bearer(&usual))
        .get(&format!("/usual?access_token={usual}"))
        .get_with("/usual", &format!("x-token: {usual}\r\n"))
        .get_with("/else", "x-payload: forged\r\n")
}

/// What a token says, for the upstream, the log and the route.
fn effects() -> Scene {
    let said = json!({
        "text": "a b", "number": 5, "large": 12_345_678_901_i64, "fraction": 0.5, "yes": true, "no": false, "none": null, "empty": "",
        "list": ["a", 1, {"b": 2}], "map": {"b": 1, "a": {"c": "deep"}}, "scope": "read write", "nested.name": "dotted",
        "odd": "caf\u{e9} \"q\"", "lines": "a\nb",
    });
    let names = [
        "sub", "text", "number", "large", "fraction", "yes", "no", "none", "empty", "list", "map", "map.a.c", "exp",
        "aud", "nobody", "odd", "lines",
    ];
    let header = |(index, name): (usize, &&str)| json!({"header_name": format!("x-c-{index}"), "claim_name": name});
    let headers: Value = names.iter().enumerate().map(header).collect();
    let one = provider(json!({
        "claim_to_headers": headers, "payload_in_metadata": "payload", "header_in_metadata": "header", "clear_route_cache": true,
        "forward_payload_header": "x-payload", "normalize_payload_in_metadata": {"space_delimited_claims": ["scope"]},
    }));
    let maybe = json!({"requires_any": {"requirements": [{"provider_name": "one"}, {"allow_missing": {}}]}});
    let fields = json!({"providers": {"one": one}, "rules": [{"match": {"prefix": "/"}, "requires": maybe}]});
    let hello = |name: &str| json!({"status": 200, "body": {"inline_string": format!("hello {name}")}});
    let by_header = json!({"name": "x-c-0", "string_match": {"exact": "bob"}});
    let by_metadata = json!({
        "filter": "envoy.filters.http.jwt_authn", "path": [{"key": "payload"}, {"key": "sub"}],
        "value": {"string_match": {"exact": "eve"}},
    });
    let routes = json!([
        {"match": {"prefix": "/", "headers": [by_header]}, "direct_response": hello("bob")},
        {"match": {"prefix": "/", "dynamic_metadata": [by_metadata]}, "direct_response": hello("eve")},
    ]);
    Scene::filtered("jwt-effects", vec![filter("jwt_authn", "JwtAuthentication", fields)], routes)
        .logging(noted("jwt_authn"))
        .get_with("/", &bearer(&token(said)))
        .get_with("/", &bearer(&token(json!({"sub": "bob"}))))
        .get_with("/", &bearer(&token(json!({"sub": "eve"}))))
        .get_with("/", &bearer(&token(json!({"sub": ""}))))
        .get_with("/", "x-c-0: forged\r\nx-c-1: forged\r\nx-payload: forged\r\n")
        .get_with("/", &format!("x-c-0: forged\r\nx-c-14: forged\r\n{}", bearer(&token(json!({})))))
        .get("/")
}

/// `exp` and `nbf` are not wanted, or wanted, and how long a token may be good.
fn times() -> Scene {
    let rule = |prefix: &str| json!({"match": {"prefix": format!("/{prefix}")}, "requires": {"provider_name": prefix}});
    let fields = json!({
        "providers": {
            "expiring": provider(json!({"require_expiration": true})),
            "short": provider(json!({"max_lifetime": "3600s"})),
            "long": provider(json!({"max_lifetime": "4000000000s"})),
            "exact": provider(json!({"clock_skew_seconds": 1})),
            "subject": provider(json!({"subjects": {"prefix": "a"}})),
            "anybody": json!({"local_jwks": keys()}),
        },
        "rules": [rule("expiring"), rule("short"), rule("long"), rule("exact"), rule("subject"), rule("anybody")],
        "strip_failure_response": false,
    });
    let mut scene = jwt("jwt-times", fields);
    let tokens = [
        token(json!({})),
        token(json!({"exp": null})),
        token(json!({"exp": 0})),
        token(json!({"sub": "bob"})),
        token(json!({"sub": null})),
        token(json!({"iss": "else.test", "aud": null})),
        token(json!({"iss": null, "aud": null})),
        token(json!({"iat": 4_102_444_000_u64})),
        token(json!({"iat": 1_000_000_000, "nbf": 1_000_000_000})),
    ];
    for path in ["/expiring", "/short", "/long", "/exact", "/subject", "/anybody"] {
        for token in &tokens {
            scene = scene.get_with(path, &bearer(token));
        }
    }
    scene
}

/// Routes that ask for something else or nothing, and clients that are told nothing.
fn scopes() -> Scene {
    let per_route = |fields: Value| scope("jwt_authn", "PerRouteConfig", fields);
    let routes = json!([
        to_a("/off", per_route(json!({"disabled": true}))),
        to_a("/named", per_route(json!({"requirement_name": "two"}))),
        to_a("/nobody", per_route(json!({"requirement_name": "unknown"}))),
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]});
    overlay(&mut host, per_route(json!({"requirement_name": "two"})));
    let fields = json!({
        "providers": {"one": provider(json!({})), "two": provider(json!({"issuer": "two.test"}))},
        "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "one"}}],
        "requirement_map": {"two": {"provider_name": "two"}}, "bypass_cors_preflight": true, "strip_failure_response": true,
        "stat_prefix": "more",
    });
    let table = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}, host]});
    let mut scene = Scene::with_table("jwt-scopes", vec![filter("jwt_authn", "JwtAuthentication", fields)], table);
    let (one, two) = (bearer(&token(json!({}))), bearer(&token(json!({"iss": "two.test"}))));
    for path in ["/", "/off", "/named", "/nobody"] {
        for lines in ["", &one, &two, &bearer("x")] {
            scene = scene.get_with(path, lines).ask("GET", "own.test", path, lines);
        }
    }
    scene.ask("OPTIONS", "test", "/", "origin: http://a.test\r\naccess-control-request-method: GET\r\n").ask(
        "OPTIONS",
        "test",
        "/",
        "origin: http://a.test\r\n",
    )
}
