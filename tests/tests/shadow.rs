//! Filters in the shadow: they decide, and nothing comes of it but counts and notes.

use std::time::{Duration, Instant};

use postrider_tests::kit::config::extension;
use postrider_tests::kit::message::Headers;
use postrider_tests::kit::{Origin, Request, Response};
use postrider_tests::postrider_only;
use postrider_tests::site::{self, OUTCOME, Plan, Site};
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
fn what_is_allowed_goes_on_as_it_came() {
    if !postrider_only() {
        return;
    }
    let config = json!({"users": {"inline_string": USERS}, "forward_username_header": "x-user"});
    let site = shadowed(any("basic_auth.v3.BasicAuth", config)).start();
    assert_eq!(site.get("/", "authorization: Basic YmFyOnNlY3JldA==\r\n").status, 200);
    assert!(!site.origin.requests()[0].headers.contains("x-user"));
    assert_eq!(site.logged(1), "200 - via_upstream - -");
    assert_eq!(site.stat("http.ingress_http.shadow.guard.would_deny"), 0);
    assert_eq!(site.stat("http.ingress_http.shadow.guard.would_change_request"), 1);
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

/// Answers with the status that the path begins with; below `/gzip`, with a coding that is not so.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = if request.target.starts_with("/503") { 503 } else { 200 };
            let coding = if request.target.starts_with("/gzip") { "content-encoding: gzip\r\n" } else { "" };
            let head = format!("HTTP/1.1 {status} X\r\n{coding}x-note: n\r\ncontent-type: text/plain\r\n");
            let body = "a".repeat(30_000);
            connection.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        }
    })
}

/// What tells two exchanges apart but who served them when.
fn told(headers: &Headers) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let of_its_own = ["x-request-id", "date", "x-envoy-upstream-service-time", "host"];
    let lines = headers.0.iter().filter(|(name, _)| !of_its_own.contains(&name.as_str()));
    lines.map(|(name, value)| (name.clone(), text(value))).collect()
}

type Shown = (String, Vec<(String, String)>, Vec<u8>, Vec<(String, String)>);

fn of_request(request: &Request) -> Shown {
    let line = format!("{} {} {:?}", request.method, request.target, request.framing);
    (line, told(&request.headers), request.body.clone(), told(&request.trailers))
}

fn of_answer(answer: &Response) -> Shown {
    let line = format!("{} {:?}", answer.status, answer.framing);
    (line, told(&answer.headers), answer.body.clone(), told(&answer.trailers))
}

/// One filter, a path, and what is counted of two requests there.
struct Case {
    filter: Value,
    /// In the virtual host, where the filter is configured there.
    host: Option<Value>,
    path: &'static str,
    lines: &'static str,
    counts: &'static [(&'static str, u64)],
}

fn case(filter: Value, path: &'static str, lines: &'static str, counts: &'static [(&'static str, u64)]) -> Case {
    Case { filter, host: None, path, lines, counts }
}

const BODY: &str = r#"{"a": "b"}"#;

fn exchange(site: &Site, case: &Case) -> (Shown, Shown) {
    site.origin.forget();
    let head = format!("POST {} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n{}", case.path, case.lines);
    // In chunks, and as one piece whose length is told.
    let answer = match case.path.contains("chunks") {
        true => site.proxy.exchange(format!("{head}transfer-encoding: chunked\r\n\r\na\r\n{BODY}\r\n0\r\n\r\n")),
        false => site.proxy.exchange(format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len())),
    };
    let requests = site.origin.requests();
    assert_eq!(requests.len(), 1, "{} {}", case.filter, answer.status);
    (of_request(&requests[0]), of_answer(&answer))
}

fn policies(deny: &str, allow: &str) -> Vec<Case> {
    let always = |mut fields: Value| {
        fields["percentage"] = json!({"numerator": 100});
        fields
    };
    let library = |way: &str| {
        let kind = format!("type.googleapis.com/envoy.extensions.compression.gzip.{way}.v3.Gzip");
        json!({"name": "gzip", "typed_config": {"@type": kind}})
    };
    let text = |kind: &str| format!("type.googleapis.com/envoy.extensions.http.{kind}");
    let authz = |cluster: &str| {
        any(
            "ext_authz.v3.ExtAuthz",
            json!({"http_service": {
            "server_uri": {"uri": "http://authz.test", "cluster": cluster, "timeout": "10s"},
            "authorization_response": {"allowed_upstream_headers": {"patterns": [{"exact": "x-user"}]}},
        }, "with_request_body": {"max_request_bytes": 100}}),
        )
    };
    let session = |strict: bool| {
        let kind = text("stateful_session.header.v3.HeaderBasedSessionState");
        let state = json!({"name": "header", "typed_config": {"@type": kind, "name": "x-session"}});
        any("stateful_session.v3.StatefulSession", json!({"session_state": state, "strict": strict}))
    };
    let noted = |key: &str| json!({"metadata_namespace": "n", "key": key});
    let keys = json!({"keys": [{"kty": "oct", "alg": "HS256", "kid": "k", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]});
    let status = json!({
        "name": "status",
        "typed_config": {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput"},
    });
    let policy = json!({
        "@type": text("custom_response.local_response_policy.v3.LocalResponsePolicy"),
        "status_code": 299, "body": {"inline_string": "own"},
    });
    let limit = json!({
        "stat_prefix": "p", "token_bucket": {"max_tokens": 1, "fill_interval": "3600s"},
        "filter_enabled": all(), "filter_enforced": all(), "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    });
    let pace = json!({
        "stat_prefix": "p", "enable_mode": "RESPONSE", "limit_kbps": 1, "fill_interval": "1s",
        "enable_response_trailers": true,
    });
    let cors = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy",
        "allow_origin_string_match": [{"exact": "http://a.test"}],
    });
    let api_key = json!({
        "credentials": [{"key": "one", "client": "ann"}], "key_sources": [{"header": "x-key"}],
        "forwarding": {"header": "x-client", "hide_credentials": true},
    });
    let object = json!({"on_request_headers": [{
        "object_key": "envoy.network.upstream_server_name",
        "format_string": {"text_format_source": {"inline_string": "elsewhere.test"}},
    }], "clear_route_cache": true});
    vec![
        Case {
            host: Some(cors),
            ..case(any("cors.v3.Cors", json!({})), "/", "origin: http://a.test\r\n", &[("would_change_response", 2)])
        },
        case(any("csrf.v3.CsrfPolicy", json!({"filter_enabled": all()})), "/", "", &[("would_deny_4xx", 2)]),
        case(
            any(
                "fault.v3.HTTPFault",
                json!({
                    "delay": always(json!({"fixed_delay": "3600s"})),
                    "response_rate_limit": always(json!({"fixed_limit": {"limit_kbps": 1}})),
                }),
            ),
            "/",
            "",
            &[("would_delay", 2), ("would_pace", 2)],
        ),
        case(
            any(
                "fault.v3.HTTPFault",
                json!({
                    "delay": always(json!({"fixed_delay": "3600s"})), "abort": always(json!({"http_status": 503})),
                }),
            ),
            "/",
            "",
            &[("would_delay", 2), ("would_deny_5xx", 2)],
        ),
        case(
            any("local_ratelimit.v3.LocalRateLimit", limit),
            "/",
            "",
            &[("would_deny_4xx", 1), ("would_change_response", 1)],
        ),
        case(authz(deny), "/chunks", "", &[("would_deny_4xx", 2)]),
        case(authz(allow), "/chunks", "", &[("would_change_request", 2), ("would_deny", 0)]),
        case(
            any(
                "jwt_authn.v3.JwtAuthentication",
                json!({
                    "providers": {"p": {"issuer": "i", "local_jwks": {"inline_string": keys.to_string()}}},
                    "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}],
                }),
            ),
            "/",
            "",
            &[("would_deny_4xx", 2)],
        ),
        case(
            any(
                "rbac.v3.RBAC",
                json!({"rules": {"action": "DENY", "policies": {
                    "p": {"permissions": [{"any": true}], "principals": [{"any": true}]},
                }}}),
            ),
            "/",
            "",
            &[("would_deny_4xx", 2)],
        ),
        case(any("api_key_auth.v3.ApiKeyAuth", api_key.clone()), "/", "", &[("would_deny_4xx", 2)]),
        case(any("api_key_auth.v3.ApiKeyAuth", api_key), "/", "x-key: one\r\n", &[("would_change_request", 2)]),
        case(any("buffer.v3.Buffer", json!({"max_request_bytes": 2})), "/chunks", "", &[("would_deny_4xx", 2)]),
        case(any("buffer.v3.Buffer", json!({"max_request_bytes": 200})), "/chunks", "", &[("would_deny", 0)]),
        case(any("bandwidth_limit.v3.BandwidthLimit", pace), "/", "", &[("would_pace", 2)]),
        case(
            any(
                "compressor.v3.Compressor",
                json!({
                    "compressor_library": library("compressor"),
                    "request_direction_config": {"common_config": {
                        "min_content_length": 1, "enabled": {"default_value": true, "runtime_key": "k"},
                    }},
                    "response_direction_config": {"remove_accept_encoding_header": true},
                }),
            ),
            "/",
            "accept-encoding: gzip\r\n",
            &[("would_change_request", 2), ("would_change_response", 2), ("would_deny", 0)],
        ),
        // What the origin sends is no gzip, so that the filter would cut it off.
        case(
            any("decompressor.v3.Decompressor", json!({"decompressor_library": library("decompressor")})),
            "/gzip",
            "",
            &[("would_change_request", 2), ("would_change_response", 2), ("would_deny_5xx", 2)],
        ),
        case(
            any(
                "header_to_metadata.v3.Config",
                json!({
                    "request_rules": [{"header": "x-a", "on_header_present": noted("a"), "remove": true}],
                    "response_rules": [{"header": "x-note", "on_header_present": noted("b"), "remove": true}],
                }),
            ),
            "/",
            "x-a: b\r\n",
            &[("would_change_request", 2), ("would_change_response", 2)],
        ),
        case(
            any(
                "json_to_metadata.v3.JsonToMetadata",
                json!({"request_rules": {"rules": [
                    {"selectors": [{"key": "a"}], "on_present": noted("a")},
                ]}}),
            ),
            "/chunks",
            "",
            &[("would_change_request", 0), ("would_deny", 0)],
        ),
        case(
            any("set_metadata.v3.Config", json!({"metadata": [{"metadata_namespace": "n", "value": {"a": "b"}}]})),
            "/",
            "",
            &[("would_change_request", 0)],
        ),
        case(any("set_filter_state.v3.Config", object), "/", "", &[("would_change_request", 0)]),
        case(
            any("health_check.v3.HealthCheck", json!({"pass_through_mode": false})),
            "/",
            "",
            &[("would_deny_2xx", 2)],
        ),
        // There is no such host.
        case(
            session(true),
            "/",
            "x-session: MTI3LjAuMC4xOjE=\r\n",
            &[("would_choose_host", 2), ("would_deny_5xx", 2), ("would_change_response", 0)],
        ),
        case(
            session(false),
            "/",
            "x-session: MTI3LjAuMC4xOjE=\r\n",
            &[("would_choose_host", 2), ("would_deny", 0), ("would_change_response", 2)],
        ),
        case(
            any(
                "custom_response.v3.CustomResponse",
                json!({"custom_response_matcher": {"matcher_list": {"matchers": [{
                    "predicate": {"single_predicate": {"input": status, "value_match": {"exact": "503"}}},
                    "on_match": {"action": {"name": "own", "typed_config": policy}},
                }]}}}),
            ),
            "/503",
            "",
            &[("would_deny_2xx", 2)],
        ),
        case(
            any("tap.v3.Tap", json!({"common_config": {"admin_config": {"config_id": "it"}}})),
            "/chunks",
            "",
            &[("would_change_request", 0), ("would_deny", 0)],
        ),
    ]
}

#[test]
fn no_policy_in_the_shadow_changes_what_goes_by_or_holds_it_up() {
    if !postrider_only() {
        return;
    }
    let deny = Origin::fixed("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
    let allow = Origin::fixed("HTTP/1.1 200 OK\r\nx-user: ann\r\ncontent-length: 0\r\n\r\n");
    let trailers = json!({"http_protocol_options": {"enable_trailers": true}});
    let plain = site::with([]).manager(trailers.clone()).start_before(origin());
    for case in policies("deny", "allow") {
        let mut plan = shadowed(case.filter.clone())
            .manager(trailers.clone())
            .cluster("deny", &[deny.address], json!({}))
            .cluster("allow", &[allow.address], json!({}));
        if let Some(host) = &case.host {
            plan = plan.host(json!({"typed_per_filter_config": {"guard": host}}));
        }
        let site = plan.start_before(origin());
        let began = Instant::now();
        let want = exchange(&plain, &case);
        for _ in 0..2 {
            assert_eq!(exchange(&site, &case), want, "{}", case.filter);
        }
        // Whoever lets 1 KiB go on in a second takes longer.
        assert!(began.elapsed() < Duration::from_secs(20), "{} {:?}", case.filter, began.elapsed());
        let line = site.logged(1);
        assert!(
            line.starts_with(if case.path == "/503" { "503 - via_upstream" } else { "200 - via_upstream" }),
            "{line}"
        );
        for (name, count) in case.counts {
            assert_eq!(site.stat(&format!("http.ingress_http.shadow.guard.{name}")), *count, "{name} {}", case.filter);
        }
    }
}

#[test]
fn a_large_message_in_front_of_a_filter_in_the_shadow_is_not_refused() {
    if !postrider_only() {
        return;
    }
    let rule = json!({"selectors": [{"key": "a"}], "on_present": {"metadata_namespace": "n", "key": "a"}});
    let site = shadowed(any("json_to_metadata.v3.JsonToMetadata", json!({
        "request_rules": {"rules": [rule.clone()]},
        "response_rules": {"rules": [rule], "allow_empty_content_type": true, "allow_content_types": ["text/plain"]},
    })))
    .listener(json!({"per_connection_buffer_limit_bytes": 20000}))
    .start();
    let body = "b".repeat(100_000);
    let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
    let answer = site.proxy.exchange(format!("{head}content-length: {}\r\n\r\n{body}", body.len()));
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > body.len());
    assert_eq!(site.origin.requests()[0].body.len(), body.len());
    assert_eq!(site.logged(1), "200 - via_upstream 413 request_payload_too_large");
}
