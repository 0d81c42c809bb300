//! Filters in the shadow: they decide, and nothing comes of it but counts and notes.

use postrider_tests::kit::config::extension;
use postrider_tests::postrider_only;
use postrider_tests::site::{self, OUTCOME, Plan};
use serde_json::{Value, json};

const NOTED: &str = "%DYNAMIC_METADATA(guard:shadow_status)% %DYNAMIC_METADATA(guard:shadow_details)%";

/// An `Any` with one of Envoy's types.
fn any(kind: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.filters.http.{kind}"));
    fields
}

fn shadowed(filter: Value) -> Plan {
    let filter = json!({
        "name": "guard",
        "typed_config": {
            "@type": "type.googleapis.com/postrider.filters.http.shadow.v3.Shadow", "filter": filter,
        },
    });
    site::with([filter]).log(&format!("{OUTCOME} {NOTED}"))
}

fn per_route(mut fields: Value) -> Value {
    fields["@type"] = json!("type.googleapis.com/postrider.filters.http.shadow.v3.ShadowPerRoute");
    fields
}

fn all() -> Value {
    json!({"default_value": {"numerator": 100}})
}

const USERS: &str = "bar:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

#[test]
fn what_each_filter_would_refuse_goes_on() {
    if !postrider_only() {
        return;
    }
    let bucket = json!({"max_tokens": 1, "fill_interval": "3600s"});
    let abort = json!({"abort": {"http_status": 503, "percentage": {"numerator": 100}}});
    for (kind, config, status, details, counts) in [
        ("csrf.v3.CsrfPolicy", json!({"filter_enabled": all()}), 403, "csrf_origin_mismatch", 2),
        ("basic_auth.v3.BasicAuth", json!({"users": {"inline_string": USERS}}), 401, "no_credential_for_basic_auth", 2),
        ("fault.v3.HTTPFault", abort, 503, "fault_filter_abort", 2),
        (
            "local_ratelimit.v3.LocalRateLimit",
            json!({"stat_prefix": "p", "token_bucket": bucket, "filter_enabled": all(), "filter_enforced": all()}),
            429,
            "local_rate_limited",
            1,
        ),
        ("buffer.v3.Buffer", json!({"max_request_bytes": 2}), 413, "request_payload_too_large", 2),
    ] {
        let site = shadowed(any(kind, config)).start();
        for _ in 0..2 {
            let answer = site.ask("POST", "/", "x-a: b\r\ncontent-length: 3\r\n\r\nabc");
            assert_eq!((answer.status, answer.header("x-origin")), (200, "a"), "{kind}");
        }
        assert!(site.origin.requests().iter().all(|request| request.body == b"abc"), "{kind}");
        assert_eq!(site.logged(2), format!("200 - via_upstream {status} {details}"), "{kind}");
        let counted = |name: &str| site.stat(&format!("http.ingress_http.shadow.guard.{name}"));
        let class = format!("would_deny_{}xx", status / 100);
        assert_eq!((counted("would_deny"), counted(&class)), (counts, counts), "{kind}");
    }
}

#[test]
fn what_is_allowed_is_as_without_a_shadow() {
    if !postrider_only() {
        return;
    }
    let config = json!({"users": {"inline_string": USERS}, "forward_username_header": "x-user"});
    let site = shadowed(any("basic_auth.v3.BasicAuth", config)).start();
    assert_eq!(site.get("/", "authorization: Basic YmFyOnNlY3JldA==\r\n").status, 200);
    assert_eq!(site.origin.requests()[0].headers.values("x-user"), ["bar"]);
    assert_eq!(site.logged(1), "200 - via_upstream - -");
    assert_eq!(site.stat("http.ingress_http.shadow.guard.would_deny"), 0);
    assert_eq!(site.stat("http.ingress_http.basic_auth.allowed"), 1);
}

#[test]
fn a_route_has_its_own_configuration_and_may_enforce_it() {
    if !postrider_only() {
        return;
    }
    let abort = |status: u16| {
        any("fault.v3.HTTPFault", json!({"abort": {"http_status": status, "percentage": {"numerator": 100}}}))
    };
    let site = shadowed(abort(500))
        .routes(json!([
            site::route("/own", "guard", abort(501)),
            site::route("/both", "guard", per_route(json!({"enforced": true, "filter": abort(502)}))),
            site::route("/enforced", "guard", per_route(json!({"enforced": true}))),
            site::rest(),
        ]))
        .start();
    for (line, (path, status, noted)) in
        [("/", 200, "500"), ("/own", 200, "501"), ("/both", 502, "-"), ("/enforced", 500, "-")].iter().enumerate()
    {
        assert_eq!(site.get(path, "").status, *status, "{path}");
        assert_eq!(site.logged(line + 1).split(' ').nth(3), Some(*noted), "{path}");
    }
}

#[test]
fn a_request_that_would_be_refused_late_keeps_its_body() {
    if !postrider_only() {
        return;
    }
    let site = shadowed(any("buffer.v3.Buffer", json!({"max_request_bytes": 1000}))).start();
    let body = "b".repeat(600_000);
    let answer =
        site.proxy.exchange(format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(answer.status, 200);
    assert_eq!(site.origin.requests()[0].body.len(), body.len());
    assert_eq!(site.stat("http.ingress_http.shadow.guard.would_deny_4xx"), 1);
}

#[test]
fn filters_around_it_see_the_request() {
    if !postrider_only() {
        return;
    }
    let add = json!({"mutations": {"request_mutations": [{"append": {"header": {"key": "x-status", "value": "%DYNAMIC_METADATA(guard:shadow_status)%"}}}]}});
    let inner = any("csrf.v3.CsrfPolicy", json!({"filter_enabled": all()}));
    let shadow = json!({
        "name": "guard",
        "typed_config": {
            "@type": "type.googleapis.com/postrider.filters.http.shadow.v3.Shadow",
            "filter": inner, "stat_prefix": "origins",
        },
    });
    let mutation =
        extension("envoy.filters.http.header_mutation", "filters.http.header_mutation.v3.HeaderMutation", add);
    let site = site::with([shadow, mutation]).start();
    assert_eq!(site.ask("POST", "/", "content-length: 0\r\n").status, 200);
    assert_eq!(site.origin.requests()[0].headers.values("x-status"), ["403"]);
    assert_eq!(site.stat("http.ingress_http.shadow.origins.would_deny"), 1);
    assert_eq!(site.stat("http.ingress_http.csrf.missing_source_origin"), 1);
}
