//! Rate limits that a service keeps for many proxies, as Envoy asks it.

use postrider_grpc::core::{HeaderValue, RateLimitUnit};
use postrider_grpc::rate::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit};
use postrider_grpc::rate::{RateLimitRequest, RateLimitResponse};
use postrider_grpc::{Duration, Message, Struct, value, value_of};
use postrider_tests::ask;
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::grpc::Step;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, Response, TempDir, wait_until};
use serde_json::{Value, json};

const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";

struct Site {
    proxy: Proxy,
    origin: Origin,
    log: std::path::PathBuf,
    _folder: TempDir,
}

/// A proxy with the filter; `limits` are the route's, `host` goes into the virtual host.
fn site(service: std::net::SocketAddr, more: Value, route: Value, host: Value) -> Site {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-old: old\r\n\r\nok");
    let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.ratelimit:who)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let mut fields = json!({
        "domain": "shop",
        "timeout": "10s",
        "rate_limit_service": {
            "grpc_service": {"envoy_grpc": {"cluster_name": "limits"}},
            "transport_api_version": "V3",
        },
    });
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    let filter = extension("envoy.filters.http.ratelimit", "filters.http.ratelimit.v3.RateLimit", fields);
    let mut to_origin = json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}});
    for (key, value) in route.as_object().unwrap() {
        match key.as_str() {
            "typed_per_filter_config" | "metadata" => to_origin[key] = value.clone(),
            _ => to_origin["route"][key] = value.clone(),
        }
    }
    let mut virtual_host = json!({"name": "all", "domains": ["test"], "routes": [to_origin]});
    for (key, value) in host.as_object().unwrap() {
        virtual_host[key] = value.clone();
    }
    let config = Config::new()
        .http(json!({
            "access_log": [file_access_log(&log, format)],
            "http_filters": [filter, router()],
            "route_config": {"virtual_hosts": [virtual_host]},
        }))
        .cluster_with("limits", &[service], http2())
        .cluster("origin", &[origin.address])
        .overlay(json!({"node": {"id": "me", "cluster": "edge"}}));
    Site { proxy: Proxy::start(&config), origin, log, _folder: folder }
}

impl Site {
    fn get(&self, path: &str, fields: &str) -> Response {
        ask(&self.proxy, "GET", "test", path, fields)
    }

    fn logged(&self, lines: usize) -> String {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= lines);
        read().lines().nth(lines - 1).unwrap().to_owned()
    }

    fn stat(&self, name: &str) -> u64 {
        self.proxy.stats().value(name)
    }
}

fn asked(service: &GrpcOrigin, index: usize) -> RateLimitRequest {
    RateLimitRequest::decode(service.messages()[index].as_slice()).unwrap()
}

/// Each descriptor as `key=value,key=value`.
fn descriptors(request: &RateLimitRequest) -> Vec<String> {
    let pairs = request.descriptors.iter().map(|descriptor| {
        descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect::<Vec<_>>().join(",")
    });
    pairs.collect()
}

fn answer(code: Code) -> RateLimitResponse {
    RateLimitResponse { overall_code: code as i32, ..RateLimitResponse::default() }
}

fn always(answer: RateLimitResponse) -> GrpcOrigin {
    GrpcOrigin::fixed(answer.encode_to_vec())
}

fn rules(actions: &[Value]) -> Value {
    json!({"rate_limits": actions.iter().map(|actions| json!({"actions": actions})).collect::<Vec<_>>()})
}

fn generic(value: &str) -> Value {
    json!({"generic_key": {"descriptor_value": value}})
}

fn header(key: &str, value: &str) -> HeaderValue {
    HeaderValue { key: key.into(), value: value.into(), ..HeaderValue::default() }
}

#[test]
fn a_request_counts_as_what_the_rules_of_its_route_make_of_it() {
    let service = always(answer(Code::Ok));
    let metadata_key = |key: &str| json!({"key": "of.route", "path": [{"key": key}]});
    let networks =
        |invert: bool| json!({"ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}], "invert_match": invert});
    let actions = [
        json!([{"source_cluster": {}}, {"destination_cluster": {}}]),
        json!([{"remote_address": {}}, {"masked_remote_address": {"v4_prefix_mask_len": 8}}]),
        json!([{"request_headers": {"header_name": "X-Two", "descriptor_key": "two"}}]),
        json!([{"request_headers": {"header_name": "x-none", "descriptor_key": "none"}}]),
        json!([generic("first"), {"request_headers": {"header_name": "x-none", "descriptor_key": "none", "skip_if_absent": true}}]),
        json!([{"query_parameters": {"query_parameter_name": "q", "descriptor_key": "query"}}]),
        json!([{"generic_key": {"descriptor_value": "%REQ(x-two)%", "descriptor_key": "own"}}]),
        json!([{"header_value_match": {"descriptor_value": "matched", "headers": [{"name": "x-two", "string_match": {"exact": "2"}}]}}]),
        json!([{"header_value_match": {"descriptor_value": "absent", "expect_match": false, "headers": [{"name": "x-none", "present_match": true}]}}]),
        json!([{"header_value_match": {"descriptor_value": "never", "headers": [{"name": "x-none", "present_match": true}]}}]),
        json!([{"query_parameter_value_match": {"descriptor_value": "queried", "query_parameters": [{"name": "q", "present_match": true}]}}]),
        json!([{"metadata": {"descriptor_key": "m", "metadata_key": metadata_key("k"), "source": "ROUTE_ENTRY"}}]),
        json!([{"remote_address_match": {"descriptor_value": "<%REQ(x-two)%>", "address_matcher": networks(false)}}]),
        json!([{"remote_address_match": {"descriptor_value": "far", "address_matcher": networks(true)}}]),
        json!([{"metadata": {"descriptor_key": "m", "metadata_key": metadata_key("none"), "source": "ROUTE_ENTRY", "default_value": "else"}}]),
    ];
    let mut route = rules(&actions);
    route["metadata"] = json!({"filter_metadata": {"of.route": {"k": "v"}}});
    let site = site(service.address, json!({}), route, json!({}));
    assert_eq!(site.get("/p?q=a%20b&q=c", "x-two: 1\r\nx-two: 2\r\n").status, 200);
    let request = asked(&service, 0);
    assert_eq!((&*request.domain, request.hits_addend), ("shop", 0));
    let want = [
        "source_cluster=edge,destination_cluster=origin",
        "remote_address=127.0.0.1,masked_remote_address=127.0.0.0/8",
        "two=1",
        "generic_key=first",
        "query=a b",
        "own=%REQ(x-two)%",
        "header_match=matched",
        "header_match=absent",
        "query_match=queried",
        "m=v",
        "remote_address_match=<1>",
        "m=else",
    ];
    assert_eq!(descriptors(&request), want);
    let call = &service.calls()[0];
    assert_eq!(call.path, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    assert_eq!(call.headers.value("grpc-timeout"), Some("10000m"));
    assert_eq!(site.stat("cluster.origin.ratelimit.ok"), 1);
}

#[test]
fn a_request_too_many_is_refused() {
    let service = always(RateLimitResponse {
        response_headers_to_add: vec![header("x-from-service", "1"), header("content-type", "text/html")],
        raw_body: b"<b>slow down</b>".to_vec(),
        dynamic_metadata: Some(Struct {
            fields: [("who".to_owned(), value_of(value::Kind::StringValue("eve".into())))].into(),
        }),
        ..answer(Code::OverLimit)
    });
    let more =
        json!({"response_headers_to_add": [{"header": {"key": "x-own", "value": "%REQ(:path)%"}}], "stat_prefix": "a"});
    let site = site(service.address, more, rules(&[json!([generic("a")])]), json!({}));
    let refused = site.get("/p", "");
    assert_eq!((refused.status, refused.text()), (429, "<b>slow down</b>"));
    assert_eq!(refused.headers.values("x-envoy-ratelimited"), ["true"]);
    assert_eq!(refused.headers.values("x-from-service"), ["1"]);
    assert_eq!(refused.headers.values("x-own"), ["/p"]);
    assert_eq!(refused.headers.values("content-type"), ["text/html"]);
    assert_eq!(site.logged(1), "429 RL request_rate_limited eve");
    assert!(site.origin.requests().is_empty());
    assert_eq!(site.stat("cluster.origin.ratelimit.a.over_limit"), 1);
    assert_eq!(site.stat("cluster.origin.upstream_rq_429"), 1);
    assert_eq!(site.stat("cluster.origin.internal.upstream_rq_4xx"), 1);
}

#[test]
fn how_a_refusal_looks_is_configured() {
    let service = always(answer(Code::OverLimit));
    let route = || rules(&[json!([generic("a")])]);
    let fields =
        json!({"rate_limited_status": {"code": "ServiceUnavailable"}, "disable_x_envoy_ratelimited_header": true});
    let other = site(service.address, fields, route(), json!({}));
    let refused = other.get("/", "");
    assert_eq!((refused.status, refused.text()), (503, ""));
    assert!(!refused.headers.contains("x-envoy-ratelimited"));
    let low = site(service.address, json!({"rate_limited_status": {"code": "OK"}}), route(), json!({}));
    assert_eq!(low.get("/", "").status, 429, "an answer below 400 would not refuse");
    let none = json!({"default_value": {"numerator": 0}, "runtime_key": "x"});
    let lax = site(service.address, json!({"filter_enforced": none}), route(), json!({}));
    let passed = lax.get("/", "");
    assert_eq!((passed.status, passed.header("x-envoy-ratelimited")), (200, "true"));
    assert_eq!(lax.stat("cluster.origin.ratelimit.over_limit"), 1);
    let off = site(service.address, json!({"filter_enabled": none}), route(), json!({}));
    let before = service.calls().len();
    assert_eq!(off.get("/", "").status, 200);
    assert_eq!(service.calls().len(), before);
}

#[test]
fn requests_within_the_limit_carry_what_the_service_adds() {
    let service = always(RateLimitResponse {
        response_headers_to_add: vec![header("x-old", "new")],
        request_headers_to_add: vec![header("x-two", "2"), header("x-new", "3")],
        ..answer(Code::Ok)
    });
    let site = site(service.address, json!({}), rules(&[json!([generic("a")])]), json!({}));
    let passed = site.get("/", "x-two: 1\r\n");
    assert_eq!((passed.status, passed.headers.values("x-old")), (200, vec!["old", "new"]));
    let seen = &site.origin.requests()[0].headers;
    assert_eq!((seen.values("x-two"), seen.values("x-new")), (vec!["1", "2"], vec!["3"]));
}

#[test]
fn quotas_are_told_as_the_third_draft_says() {
    let status = |requests_per_unit, unit: Unit, name: &str, left, reset| DescriptorStatus {
        current_limit: Some(RateLimit {
            requests_per_unit,
            unit: unit as i32,
            name: name.into(),
            ..RateLimit::default()
        }),
        limit_remaining: left,
        duration_until_reset: Some(Duration { seconds: reset, nanos: 500_000_000 }),
        ..DescriptorStatus::default()
    };
    let statuses = vec![
        status(10, Unit::Minute, "first", 4, 30),
        DescriptorStatus::default(),
        status(1, Unit::Hour, "second", 2, 40),
        status(7, Unit::Unknown, "third", 9, 50),
    ];
    let service = always(RateLimitResponse { statuses: statuses.clone(), ..answer(Code::Ok) });
    let fields = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
    let told = site(service.address, fields.clone(), rules(&[json!([generic("a")])]), json!({}));
    let passed = told.get("/", "");
    assert_eq!(passed.header("x-ratelimit-limit"), "1, 10;w=60;name=\"first\", 1;w=3600;name=\"second\"");
    assert_eq!(passed.header("x-ratelimit-remaining"), "2");
    assert_eq!(passed.header("x-ratelimit-reset"), "40");
    let by_rule = |options: &[&str]| {
        let rules = options.iter().map(|option| json!({"actions": [generic("a")], "x_ratelimit_option": option}));
        json!({"rate_limits": rules.collect::<Vec<_>>()})
    };
    for (headers, options, want) in [
        ("DRAFT_VERSION_03", &["UNSPECIFIED", "UNSPECIFIED", "OFF"], ""),
        ("DRAFT_VERSION_03", &["OFF", "OFF", "UNSPECIFIED"], "1, 1;w=3600;name=\"second\""),
        ("OFF", &["OFF", "OFF", "DRAFT_VERSION_03"], "1, 1;w=3600;name=\"second\""),
        ("OFF", &["DRAFT_VERSION_03", "OFF", "UNSPECIFIED"], ""),
    ] {
        let fields = json!({"enable_x_ratelimit_headers": headers});
        let told = site(service.address, fields, by_rule(options), json!({}));
        assert_eq!(told.get("/", "").header("x-ratelimit-limit"), want, "{headers} {options:?}");
    }
    let mut over = statuses;
    over[2].code = Code::OverLimit as i32;
    over[2].limit_remaining = 0;
    let service = always(RateLimitResponse { statuses: over, ..answer(Code::OverLimit) });
    let fields = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03", "enable_retry_after_header": true});
    let refusing = site(service.address, fields, rules(&[json!([generic("a")])]), json!({}));
    let refused = refusing.get("/", "");
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, "0"));
    assert_eq!(refused.header("retry-after"), "40");
}

#[test]
fn without_an_answer_requests_pass_unless_configured_otherwise() {
    let service = GrpcOrigin::start(|_| vec![Step::End(14, "")]);
    let route = || rules(&[json!([generic("a")])]);
    let open = site(service.address, json!({}), route(), json!({}));
    assert_eq!(open.get("/", "").status, 200);
    assert_eq!(open.stat("cluster.origin.ratelimit.error"), 1);
    assert_eq!(open.stat("cluster.origin.ratelimit.failure_mode_allowed"), 1);
    let closed = site(service.address, json!({"failure_mode_deny": true}), route(), json!({}));
    let refused = closed.get("/", "");
    assert_eq!((refused.status, refused.text()), (500, ""));
    assert_eq!(closed.logged(1), "500 RLSE rate_limiter_error -");
    let fields = json!({"failure_mode_deny": true, "status_on_error": {"code": "BadGateway"}});
    assert_eq!(site(service.address, fields, route(), json!({})).get("/", "").status, 502);
    let silent = GrpcOrigin::silent();
    let late = site(silent.address, json!({"timeout": "0.05s", "failure_mode_deny": true}), route(), json!({}));
    assert_eq!(late.get("/", "").status, 500);
    silent.wait_abandoned(1);
    let ranged = json!({"failure_mode_deny": true, "failure_mode_deny_percent": {"default_value": {"numerator": 0}, "runtime_key": "x"}});
    assert_eq!(site(service.address, ranged, route(), json!({})).get("/", "").status, 200);
}

#[test]
fn rules_of_the_virtual_host_hold_where_routes_have_none_or_both_are_wanted() {
    let service = always(answer(Code::Ok));
    let host = || rules(&[json!([generic("host")])]);
    let mut index = 0;
    let mut count = |more: Value, route: Value| -> Vec<String> {
        let site = site(service.address, more, route, host());
        assert_eq!(site.get("/", "").status, 200);
        let found = if service.messages().len() > index { descriptors(&asked(&service, index)) } else { Vec::new() };
        index = service.messages().len();
        found
    };
    let own = || rules(&[json!([generic("route")])]);
    let with = |fields: Value| {
        let mut fields = fields;
        fields["@type"] = json!(PER_ROUTE);
        let mut route = own();
        route["typed_per_filter_config"] = json!({"envoy.filters.http.ratelimit": fields});
        route
    };
    assert_eq!(count(json!({}), json!({})), ["generic_key=host"]);
    assert_eq!(count(json!({}), own()), ["generic_key=route"]);
    let mut both = own();
    both["include_vh_rate_limits"] = json!(true);
    assert_eq!(count(json!({}), both), ["generic_key=route", "generic_key=host"]);
    assert_eq!(count(json!({}), with(json!({"vh_rate_limits": "INCLUDE"}))), ["generic_key=route", "generic_key=host"]);
    let own_rules = json!({"rate_limits": [{"actions": [generic("filter")], "hits_addend": {"number": 3}}]});
    assert_eq!(count(own_rules.clone(), own()), ["generic_key=filter"]);
    let over = json!({"rate_limits": [{"actions": [generic("override")]}], "domain": "other"});
    assert_eq!(count(own_rules, with(over)), ["generic_key=override"]);
    let last = asked(&service, service.messages().len() - 1);
    assert_eq!(last.domain, "other");
    let weighed = asked(&service, service.messages().len() - 2);
    assert_eq!(weighed.descriptors[0].hits_addend, Some(3));
    assert_eq!(count(json!({"request_type": "internal"}), own()), [""; 0]);
    assert_eq!(count(json!({"stage": 1}), own()), [""; 0]);
}

#[test]
fn a_rule_may_bring_its_own_limit() {
    let service = always(answer(Code::Ok));
    let limit = json!({"rate_limit": {"requests_per_unit": 42, "unit": "HOUR"}});
    let route = json!({"rate_limits": [{"actions": [generic("a")], "limit": limit}]});
    let site = site(service.address, json!({}), route, json!({}));
    assert_eq!(site.get("/", "").status, 200);
    let found = asked(&service, 0).descriptors[0].limit.unwrap();
    assert_eq!((found.requests_per_unit, found.unit()), (42, RateLimitUnit::Hour));
}

#[test]
fn a_grpc_call_too_many_is_told_that_something_is_exhausted_where_the_filter_says_so() {
    let service = always(answer(Code::OverLimit));
    let call = "content-type: application/grpc\r\nte: trailers\r\n";
    let plain = site(service.address, json!({}), rules(&[json!([generic("a")])]), json!({}));
    let refused = plain.get("/p.S/M", call);
    assert_eq!((refused.status, refused.headers.value("grpc-status")), (200, Some("14")));

    let more = json!({"rate_limited_as_resource_exhausted": true});
    let exhausted = site(service.address, more, rules(&[json!([generic("a")])]), json!({}));
    let refused = exhausted.get("/p.S/M", call);
    assert_eq!((refused.status, refused.headers.value("grpc-status")), (200, Some("8")));
    assert_eq!(exhausted.get("/p", "").status, 429);
}

#[test]
fn a_rule_says_how_much_a_request_counts_and_whether_it_gives_back() {
    let service = always(answer(Code::Ok));
    let rule = |hits: Value| json!({"actions": [generic("a")], "hits_addend": hits});
    let rules = [
        rule(json!({"number": 3})),
        rule(json!({"number": 4, "is_negative_hits": true})),
        rule(json!({"format": "%REQ(x-hits)%", "is_negative_hits": true})),
    ];
    let own = json!({"envoy.filters.http.ratelimit": {"@type": PER_ROUTE, "rate_limits": rules}});
    let site = site(service.address, json!({}), json!({"typed_per_filter_config": own}), json!({}));
    assert_eq!(site.get("/", "x-hits: 5\r\n").status, 200);
    let request = asked(&service, 0);
    let hits: Vec<_> = request.descriptors.iter().map(|each| (each.hits_addend, each.is_negative_hits)).collect();
    assert_eq!(hits, [(Some(3), false), (Some(4), true), (Some(5), true)]);
}

#[test]
fn a_client_may_count_with_its_network() {
    let service = always(answer(Code::Ok));
    let masked = |fields: Value| json!([{"masked_remote_address": fields}]);
    let route = rules(&[
        masked(json!({"v4_prefix_mask_len": 20, "v6_prefix_mask_len": 44})),
        masked(json!({"v6_prefix_mask_len": 0})),
        masked(json!({})),
    ]);
    let site = site(service.address, json!({}), route, json!({}));
    assert_eq!(site.get("/", "x-forwarded-for: 2001:db8:1:2:3::4\r\n").status, 200);
    assert_eq!(site.get("/", "x-forwarded-for: 192.0.2.77\r\n").status, 200);
    let key = |value: &str| format!("masked_remote_address={value}");
    let expected = ["2001:db8::/44", "::/0", "2001:db8:1:2:3::4/128"].map(key);
    assert_eq!(descriptors(&asked(&service, 0)), expected);
    assert_eq!(descriptors(&asked(&service, 1)), ["192.0.0.0/20", "192.0.2.77/32", "192.0.2.77/32"].map(key));
}
