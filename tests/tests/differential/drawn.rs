//! Filters by chance that ask somebody, check tokens, pack answers or keep clients with their hosts: see [`crate::policies`].

use crate::filters::tokens;
use crate::generator::Chance;
use postrider_tests::kit::config::{extension, overlay};
use serde_json::{Value, json};

pub fn ext_authz(chance: &mut Chance, scope: bool) -> Value {
    if scope {
        return match chance.percent(50) {
            true => json!({"disabled": true}),
            false => json!({"check_settings": {"disable_request_body_buffering": true}}),
        };
    }
    let list = |names: Value| json!({"patterns": names});
    let mut fields = json!({
        "http_service": {
            "server_uri": {"uri": "http://authz.test", "cluster": "authz", "timeout": "2s"},
            "path_prefix": "/asked",
            "authorization_response": {
                "allowed_upstream_headers": list(json!([{"exact": chance.pick(&["x-a", "x-origin"])}])),
                "allowed_client_headers_on_success": list(json!([{"exact": "x-b"}])),
            },
        },
        "allowed_headers": list(json!([{"exact": chance.pick(&["x-answer", "x-make"])}, {"exact": "x-a"}])),
    });
    for (field, value) in [
        ("failure_mode_allow", json!(true)),
        ("failure_mode_allow_header_add", json!(true)),
        ("clear_route_cache", json!(true)),
        ("shadow_mode", json!(true)),
        ("status_on_error", json!({"code": "ServiceUnavailable"})),
        ("with_request_body", json!({"max_request_bytes": 5, "allow_partial_message": true})),
    ] {
        if chance.percent(25) {
            fields[field] = value;
        }
    }
    fields
}

pub fn jwt_authn(chance: &mut Chance, scope: bool) -> Value {
    if scope {
        return match chance.percent(40) {
            true => json!({"disabled": true}),
            // Of one that is unknown Envoy lists the others in an order that is another one in each process.
            false => json!({"requirement_name": chance.pick(&["one", "maybe"])}),
        };
    }
    let mut said = json!({"failed_status_in_metadata": "failure"});
    for (field, value) in [
        ("forward", json!(true)),
        ("forward_payload_header", json!("x-payload")),
        ("payload_in_metadata", json!("payload")),
        ("claim_to_headers", json!([{"header_name": "x-sub", "claim_name": "sub"}])),
    ] {
        if chance.percent(50) {
            said[field] = value;
        }
    }
    let one = json!({"provider_name": "one"});
    let requires = match chance.below(4) {
        0 => json!({"allow_missing": {}}),
        1 => json!({"requires_any": {"requirements": [one, {"allow_missing_or_failed": {}}]}}),
        2 => json!({"extract_only_without_validation": {}}),
        _ => one.clone(),
    };
    json!({
        "providers": {"one": tokens::provider(said)},
        "rules": [{"match": {"prefix": chance.pick(&["/", "/a"])}, "requires": requires}],
        "requirement_map": {"one": one, "maybe": {"allow_missing": {}}},
        "bypass_cors_preflight": chance.percent(30),
    })
}

pub fn compressor(chance: &mut Chance, scope: bool) -> Value {
    if scope {
        return match chance.percent(50) {
            true => json!({"disabled": true}),
            false => json!({"overrides": {"response_direction_config": {
                "remove_accept_encoding_header": chance.percent(50),
            }}}),
        };
    }
    let mut answers = json!({"common_config": {"min_content_length": 30}});
    for field in ["disable_on_etag_header", "remove_accept_encoding_header"] {
        if chance.percent(30) {
            answers[field] = json!(true);
        }
    }
    let kind = chance.pick(&["gzip", "brotli", "zstd"]);
    let message = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    let library = extension(kind, &format!("compression.{kind}.compressor.v3.{message}"), json!({}));
    json!({"compressor_library": library, "response_direction_config": answers})
}

pub fn stateful_session(chance: &mut Chance, scope: bool) -> Value {
    if scope && chance.percent(40) {
        return json!({"disabled": true});
    }
    let (kind, message, state) = match chance.below(2) {
        0 => ("header", "HeaderBasedSessionState", json!({"name": "x-sess"})),
        _ => ("cookie", "CookieBasedSessionState", json!({"cookie": {"name": "sess", "path": "/"}})),
    };
    let name = format!("envoy.http.stateful_session.{kind}");
    let state = extension(&name, &format!("http.stateful_session.{kind}.v3.{message}"), state);
    let mut fields = json!({"session_state": state});
    if chance.percent(30) {
        overlay(&mut fields, json!({"strict": true}));
    }
    match scope {
        true => json!({"stateful_session": fields}),
        false => fields,
    }
}

/// Lines that these look at.
pub const LINES: &[&str] = &[
    "accept-encoding: gzip",
    "accept-encoding: br, zstd;q=0.5",
    "x-sess: $<a in base64>",
    "x-sess: $<b in base64>",
    "x-sess: !!",
    "cookie: sess=$<a in a message>",
    "x-make: 200|content-type=text/html|length=300",
    "x-answer: allow",
];

/// A line with a token, good or not.
pub fn token(chance: &mut Chance) -> String {
    let token = match chance.below(4) {
        0 => tokens::token(json!({"exp": 1_000_000_000})),
        1 => "rubbish".to_owned(),
        _ => tokens::token(json!({})),
    };
    format!("authorization: Bearer {token}\r\n")
}
