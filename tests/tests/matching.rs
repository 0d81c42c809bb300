//! Trees of conditions and expressions: which route a request takes, who is let in, what is logged. The same expectations
//! hold for Envoy.

use std::path::Path;

use postrider_tests::kit::config::{Config, extension, file_access_log, overlay, router, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::{ask, get, named_route, postrider_only};
use serde_json::{Value, json};

const FAST: &[&str] = &["--file-flush-interval-msec", "20"];

fn typed(kind: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/{kind}"));
    json!({"name": "any", "typed_config": fields})
}

fn header(name: &str) -> Value {
    typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", json!({"header_name": name}))
}

fn network(input: &str) -> Value {
    typed(&format!("envoy.extensions.matching.common_inputs.network.v3.{input}"), json!({}))
}

fn one(input: Value, condition: Value) -> Value {
    json!({"single_predicate": {"input": input, "value_match": condition}})
}

fn when(predicate: Value, on_match: Value) -> Value {
    json!({"predicate": predicate, "on_match": on_match})
}

fn to_route(name: &str) -> Value {
    json!({"action": typed("envoy.config.route.v3.Route", named_route(name, json!({})))})
}

fn verdict(name: &str, action: &str) -> Value {
    json!({"action": typed("envoy.config.rbac.v3.Action", json!({"name": name, "action": action}))})
}

fn by_routes(matcher: Value) -> Proxy {
    let host = json!({"name": "all", "domains": ["*"], "matcher": matcher});
    let config = Config::new().http(json!({
        "http_filters": [router()],
        "route_config": {"virtual_hosts": [host]},
    }));
    Proxy::start(&config)
}

/// Status and body.
fn answer(proxy: &Proxy, path: &str, fields: &str) -> String {
    let response = ask(proxy, "GET", "test", path, fields);
    format!("{} {}", response.status, response.text())
}

fn state(key: &str) -> Value {
    typed("envoy.extensions.matching.common_inputs.network.v3.FilterStateInput", json!({"key": key}))
}

fn variable(name: &str) -> Value {
    typed("envoy.extensions.matching.common_inputs.environment_variable.v3.Config", json!({"name": name}))
}

#[test]
fn a_route_is_chosen_by_what_filters_noted_and_by_the_environment() {
    let note = extension(
        "set",
        "filters.http.set_filter_state.v3.Config",
        json!({
            "on_request_headers": [{
                "object_key": "team", "factory_key": "envoy.string", "skip_if_empty": true,
                "format_string": {"text_format_source": {"inline_string": "%REQ(x-team)%"}, "omit_empty_values": true},
            }],
            "clear_route_cache": true,
        }),
    );
    let map = json!({"matcher_tree": {
        "input": state("team"), "exact_match_map": {"map": {"blue": to_route("blue"), "green": to_route("green")}},
    }});
    let host = json!({"name": "all", "domains": ["*"], "matcher": {
        "matcher_list": {"matchers": [
            // The proxy has a variable of the one name and none of the other.
            when(one(variable("NO_SUCH_VARIABLE"), json!({"safe_regex": {"google_re2": {}, "regex": ".*"}})), to_route("nowhere")),
            when(one(variable("PATH"), json!({"prefix": "/nowhere"})), to_route("nowhere")),
            when(one(state("team"), json!({"prefix": "red"})), to_route("red")),
            when(one(variable("PATH"), json!({"contains": "/"})), json!({"matcher": map})),
        ]},
        "on_no_match": to_route("rest"),
    }});
    let proxy = Proxy::start(&Config::new().http(json!({
        "http_filters": [note, router()], "route_config": {"virtual_hosts": [host]},
    })));
    for (fields, want) in [
        ("", "200 rest"),
        ("x-team: blue\r\n", "200 blue"),
        ("x-team: green\r\n", "200 green"),
        ("x-team: red one\r\n", "200 red"),
        ("x-team: none\r\n", "200 rest"),
    ] {
        assert_eq!(answer(&proxy, "/", fields), want, "{fields}");
    }
}

#[test]
fn a_route_is_chosen_by_a_list_of_conditions() {
    let list = json!({"action": typed("envoy.config.route.v3.RouteList", json!({"routes": [
        named_route("first", json!({"prefix": "/a"})),
        named_route("second", json!({"prefix": "/b"})),
    ]}))});
    let inner = json!({"matcher": {"matcher_list": {"matchers": [
        when(one(header("y"), json!({"exact": "1"})), to_route("inner")),
    ]}}});
    let both = json!({"and_matcher": {"predicate": [
        one(header("x"), json!({"prefix": "p"})), {"not_matcher": one(header("z"), json!({"exact": "1"}))},
    ]}});
    let proxy = by_routes(json!({
        "matcher_list": {"matchers": [
            when(one(header("x"), json!({"exact": "list"})), list),
            when(one(header("x"), json!({"exact": "inner"})), inner),
            when(one(header("x"), json!({"exact": "inner"})), to_route("behind")),
            when(both, to_route("both")),
        ]},
        "on_no_match": to_route("rest"),
    }));
    for (path, fields, want) in [
        ("/a", "x: list\r\n", "200 first"),
        ("/b", "x: list\r\n", "200 second"),
        // The tree has decided: what it does not lead to is not looked at.
        ("/c", "x: list\r\n", "404 "),
        ("/", "x: inner\r\ny: 1\r\n", "200 inner"),
        ("/", "x: inner\r\n", "200 behind"),
        ("/", "x: pq\r\n", "200 both"),
        ("/", "x: p\r\nx: q\r\n", "200 both"),
        ("/", "x: pq\r\nz: 1\r\n", "200 rest"),
        ("/", "", "200 rest"),
    ] {
        assert_eq!(answer(&proxy, path, fields), want, "{path} {fields}");
    }
}

#[test]
fn a_route_is_chosen_by_maps() {
    let inner = json!({"matcher": {"matcher_list": {"matchers": [
        when(one(header("y"), json!({"exact": "1"})), to_route("ab")),
    ]}}});
    let prefix = by_routes(json!({
        "matcher_tree": {"input": header("x"), "prefix_match_map": {"map": {"a": to_route("a"), "ab": inner}}},
        "on_no_match": to_route("none"),
    }));
    let cases = [("x: abc\r\ny: 1\r\n", "ab"), ("x: abc\r\n", "a"), ("x: b\r\n", "none"), ("", "none")];
    for (fields, want) in cases {
        assert_eq!(answer(&prefix, "/", fields), format!("200 {want}"), "{fields}");
    }
    let exact = by_routes(json!({
        "matcher_tree": {"input": header("x"), "exact_match_map": {"map": {"a": to_route("a"), "p,q": to_route("pq")}}},
    }));
    for (fields, want) in [("x: a\r\n", "200 a"), ("x: p\r\nx: q\r\n", "200 pq"), ("x: A\r\n", "404 "), ("", "404 ")] {
        assert_eq!(answer(&exact, "/", fields), want, "{fields}");
    }
    let range = |prefix: &str, length: u8| json!({"address_prefix": prefix, "prefix_len": length});
    let by_address = by_routes(json!({
        "matcher_tree": {"input": header("x"), "custom_match": typed("xds.type.matcher.v3.IPMatcher", json!({
            "range_matchers": [
                {"ranges": [range("10.0.0.0", 8)], "on_match": to_route("wide")},
                {"ranges": [range("10.1.0.0", 16), range("fc00::", 7)], "on_match": to_route("narrow")},
            ],
        }))},
        "on_no_match": to_route("none"),
    }));
    for (address, want) in [("10.2.0.1", "wide"), ("10.1.0.1", "narrow"), ("fd00::1", "narrow"), ("nobody", "none")] {
        assert_eq!(answer(&by_address, "/", &format!("x: {address}\r\n")), format!("200 {want}"), "{address}");
    }
    let domains = |names: Value, route: &str| json!({"domains": names, "on_match": to_route(route)});
    let by_name = by_routes(json!({
        "matcher_tree": {"input": header("x"), "custom_match": typed("xds.type.matcher.v3.ServerNameMatcher", json!({
            "domain_matchers": [
                domains(json!(["a.test"]), "exact"), domains(json!(["*.test"]), "below"), domains(json!(["*"]), "any"),
            ],
        }))},
    }));
    for (name, want) in [("a.test", "exact"), ("b.test", "below"), ("c.b.test", "below"), ("test", "any")] {
        assert_eq!(answer(&by_name, "/", &format!("x: {name}\r\n")), format!("200 {want}"), "{name}");
    }
}

fn guarded(fields: Value, log: &Path, origin: &Origin) -> Proxy {
    let line = "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.rbac)% %DYNAMIC_METADATA(envoy.common)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let noted = json!({"metadata": [{"metadata_namespace": "ns", "value": {"group": "ops"}}]});
    let config = Config::new()
        .http(json!({
            "access_log": [file_access_log(log, format)],
            "http_filters": [
                extension("set", "filters.http.set_metadata.v3.Config", noted),
                extension("envoy.filters.http.rbac", "filters.http.rbac.v3.RBAC", fields),
                router(),
            ],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"name": "everything", "match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .cluster("origin", &[origin.address]);
    Proxy::start_with(&config, Launch::default().with_arguments(FAST))
}

fn logged(path: &Path, lines: usize) -> String {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until("the access log", || read().lines().count() >= lines);
    read().lines().nth(lines - 1).unwrap().to_owned()
}

#[test]
fn a_tree_says_who_is_let_in() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let origin = Origin::echo("a");
    let metadata = typed(
        "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput",
        json!({"filter": "ns", "path": [{"key": "group"}]}),
    );
    let ops = typed(
        "envoy.extensions.matching.input_matchers.metadata.v3.Metadata",
        json!({"value": {"string_match": {"exact": "ops"}}}),
    );
    let noted = json!({"single_predicate": {"input": metadata, "custom_match": ops}});
    let range = json!([{"address_prefix": "127.0.0.0", "prefix_len": 8}]);
    let local = json!({"single_predicate": {"input": network("SourceIPInput"), "custom_match":
        typed("envoy.extensions.matching.input_matchers.ip.v3.Ip", json!({"stat_prefix": "ip", "cidr_ranges": range}))}});
    let nowhere = one(network("DestinationPortInput"), json!({"exact": "1"}));
    let proxy = guarded(
        json!({"matcher": {"matcher_list": {"matchers": [
            when(one(header(":path"), json!({"prefix": "/admin"})), verdict("no admin", "DENY")),
            when(one(header("y"), json!({"exact": "1"})), verdict("by header", "ALLOW")),
            when(nowhere, verdict("nowhere", "DENY")),
            when(
                json!({"and_matcher": {"predicate": [noted, one(header("x"), json!({"exact": "1"}))]}}),
                verdict("noted", "ALLOW"),
            ),
            when(
                json!({"and_matcher": {"predicate": [local, one(header("x"), json!({"exact": "log"}))]}}),
                verdict("told", "LOG"),
            ),
        ]}}, "track_per_rule_stats": true}),
        &log,
        &origin,
    );
    let status = |path: &str, fields: &str| ask(&proxy, "GET", "test", path, fields).status;
    assert_eq!(status("/admin", ""), 403);
    assert_eq!(
        logged(&log, 1),
        r#"403 rbac_access_denied_matched_policy[no_admin] {"enforced_effective_policy_id":"no admin","enforced_engine_result":"denied"} {"access_log_hint":false}"#
    );
    assert_eq!(status("/", "y: 1\r\n"), 200);
    assert_eq!(
        logged(&log, 2),
        r#"200 via_upstream {"enforced_effective_policy_id":"by header","enforced_engine_result":"allowed"} {"access_log_hint":false}"#
    );
    assert_eq!(status("/", "x: 1\r\n"), 200);
    assert_eq!(status("/", "x: log\r\n"), 200);
    assert_eq!(
        logged(&log, 4),
        r#"200 via_upstream {"enforced_effective_policy_id":"told","enforced_engine_result":"allowed"} {"access_log_hint":true}"#
    );
    // Who is led nowhere is turned away.
    assert_eq!(status("/", ""), 403);
    assert_eq!(logged(&log, 5), r#"403 rbac_access_denied_matched_policy[none] {"enforced_engine_result":"denied"} -"#);
    let stats = proxy.stats();
    assert_eq!(stats.value("http.ingress_http.rbac.allowed"), 3);
    assert_eq!(stats.value("http.ingress_http.rbac.denied"), 2);
    assert_eq!(stats.value("http.ingress_http.rbac.policy.no admin.denied"), 1);
    assert_eq!(stats.value("http.ingress_http.rbac.policy.told.allowed"), 1);
}

#[test]
fn nobody_gets_in_by_the_absence_of_a_certificate() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let origin = Origin::echo("a");
    let names = typed("envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInput", json!({}));
    let stranger = json!({"not_matcher": one(names, json!({"exact": "a.test"}))});
    let fields = json!({"matcher": {
        "matcher_list": {"matchers": [when(stranger, verdict("stranger", "ALLOW"))]},
        "on_no_match": verdict("rest", "ALLOW"),
    }});
    let proxy = guarded(fields, &log, &origin);
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 403);
    assert!(logged(&log, 1).contains("rbac_access_denied_matched_policy[none]"), "{}", logged(&log, 1));
}

/// Envoy has this input for other filters.
#[test]
fn a_tree_looks_at_parameters_of_the_query() {
    if !postrider_only() {
        return;
    }
    let folder = TempDir::new();
    let origin = Origin::echo("a");
    let query = typed("envoy.type.matcher.v3.HttpRequestQueryParamMatchInput", json!({"query_param": "k"}));
    let matcher =
        json!({"matcher_tree": {"input": query, "exact_match_map": {"map": {"a%20b": verdict("a", "ALLOW")}}}});
    let proxy = guarded(json!({"matcher": matcher}), &folder.path().join("log"), &origin);
    assert_eq!(ask(&proxy, "GET", "test", "/?j=1&k=a%20b&k=c", "").status, 200);
    assert_eq!(ask(&proxy, "GET", "test", "/?k=c", "").status, 403);
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 403);
}

#[test]
fn a_shadow_tree_tells_and_turns_nobody_away() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let origin = Origin::echo("a");
    let fields = json!({"shadow_matcher": {
        "matcher_tree": {"input": header("x"), "exact_match_map": {"map": {"1": verdict("one", "ALLOW")}}},
        "on_no_match": verdict("rest", "DENY"),
    }, "shadow_rules_stat_prefix": "dry_"});
    let proxy = guarded(fields, &log, &origin);
    assert_eq!(ask(&proxy, "GET", "test", "/", "x: 1\r\n").status, 200);
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 200);
    let noted = r#"{"dry_shadow_effective_policy_id":"one","dry_shadow_engine_result":"allowed"}"#;
    assert_eq!(logged(&log, 1), format!("200 via_upstream {noted} -"));
    let noted = r#"{"dry_shadow_effective_policy_id":"rest","dry_shadow_engine_result":"denied"}"#;
    assert_eq!(logged(&log, 2), format!("200 via_upstream {noted} -"));
    assert_eq!(proxy.stats().value("http.ingress_http.rbac.dry_.shadow_denied"), 1);
}

#[test]
fn a_tree_decides_on_connections() {
    let origin = Origin::echo("a");
    let proxy = |matcher: Value| {
        let rbac = extension(
            "envoy.filters.network.rbac",
            "filters.network.rbac.v3.RBAC",
            json!({"stat_prefix": "door", "matcher": matcher}),
        );
        let config = Config::new()
            .listener("tcp", json!({"filter_chains": [{"filters": [rbac, tcp_filter(json!({"cluster": "origin"}))]}]}))
            .cluster("origin", &[origin.address]);
        Proxy::start(&config)
    };
    let by_address = |address: &str| {
        json!({"matcher_tree": {"input": network("DirectSourceIPInput"),
            "exact_match_map": {"map": {address: verdict("known", "ALLOW")}}}})
    };
    let open = proxy(by_address("127.0.0.1"));
    assert_eq!(RawClient::once(open.address("tcp"), get("/")).unwrap().status, 200);
    let shut = proxy(by_address("10.0.0.1"));
    assert!(RawClient::once(shut.address("tcp"), get("/")).is_err());
    wait_until("the count", || shut.stats().value("door.rbac.denied") == 1);
}

fn ident(name: &str) -> Value {
    json!({"ident_expr": {"name": name}})
}

fn select(operand: Value, field: &str) -> Value {
    json!({"select_expr": {"operand": operand, "field": field}})
}

fn call(function: &str, args: Value) -> Value {
    json!({"call_expr": {"function": function, "args": args}})
}

fn text(text: &str) -> Value {
    json!({"const_expr": {"string_value": text}})
}

/// `request.headers[name] == value`.
fn header_is(name: &str, value: &str) -> Value {
    call("_==_", json!([call("_[_]", json!([select(ident("request"), "headers"), text(name)])), text(value)]))
}

#[test]
fn a_policy_has_a_condition() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let origin = Origin::echo("a");
    let any = json!([{"any": true}]);
    let group = select(select(select(ident("metadata"), "filter_metadata"), "ns"), "group");
    let starts = json!({"call_expr": {"target": select(ident("request"), "path"), "function": "startsWith", "args": [text("/a")]}});
    let condition = call(
        "_&&_",
        json!([call("_||_", json!([header_is("x", "1"), starts])), call("_==_", json!([group, text("ops")]))]),
    );
    let fields = json!({"rules": {"action": "ALLOW", "policies": {
        "by expression": {"permissions": any, "principals": any, "condition": condition},
    }}});
    let proxy = guarded(fields, &log, &origin);
    let status = |path: &str, fields: &str| ask(&proxy, "GET", "test", path, fields).status;
    // A missing header makes its comparison neither true nor false; the other one decides.
    assert_eq!(status("/a", ""), 200);
    assert_eq!(status("/b", "x: 1\r\n"), 200);
    assert_eq!(status("/b", "x: 2\r\n"), 403);
    assert_eq!(status("/b", ""), 403);
    assert!(logged(&log, 1).contains("by expression"), "{}", logged(&log, 1));
}

#[test]
fn a_tree_asks_an_expression() {
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let origin = Origin::echo("a");
    let attributes = typed("xds.type.matcher.v3.HttpAttributesCelMatchInput", json!({}));
    let expression = json!({"expr_match": {"cel_expr_parsed": {"expr": header_is("x", "1")}}});
    let predicate = json!({"single_predicate":
        {"input": attributes, "custom_match": typed("xds.type.matcher.v3.CelMatcher", expression)}});
    let fields = json!({"matcher": {
        "matcher_list": {"matchers": [when(predicate, verdict("one", "DENY"))]},
        "on_no_match": verdict("rest", "ALLOW"),
    }});
    let proxy = guarded(fields, &log, &origin);
    assert_eq!(ask(&proxy, "GET", "test", "/", "x: 1\r\n").status, 403);
    assert_eq!(ask(&proxy, "GET", "test", "/", "x: 2\r\n").status, 200);
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 200);
}

#[test]
fn expressions_choose_what_is_logged() {
    let folder = TempDir::new();
    let path = folder.path().join("log");
    let origin = Origin::echo("a");
    let allowed =
        json!({"enable_string_conversion": true, "enable_string_concat": true, "enable_string_functions": true});
    let expressions = [
        ("errors", "response.code >= 400"),
        ("upstream", "upstream.port > 0 && response.code_details == 'via_upstream'"),
        ("header", "request.headers['x'] == '1'"),
        ("no header", "!('x' in request.headers) || request.headers['x'] != '1'"),
        ("agent", "request.useragent.matches('^curl/[0-9]')"),
        ("named", "xds.route_name == 'origin' && xds.cluster_name == 'origin' && xds.virtual_host_name == 'all'"),
        ("local", "source.address.startsWith('127.0.0.1:') && !connection.mtls"),
        ("never", "request.headers['x'] + '' == 1"),
        ("quick", "request.duration < duration('1h') && request.time > timestamp('2020-01-01T00:00:00Z')"),
        ("sized", "response.size > 0 && request.size == 0"),
    ];
    let logger = |(name, expression): &(&str, &str)| {
        let format = format!("{name} %REQ(:PATH)%\n");
        let mut log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
        let filter = typed(
            "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            json!({"expression": expression, "cel_config": allowed}),
        );
        overlay(&mut log, json!({"filter": {"extension_filter": filter}}));
        log
    };
    let config = Config::new()
        .http(json!({
            "access_log": expressions.iter().map(logger).collect::<Vec<_>>(),
            "http_filters": [router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"path": "/gone"}, "direct_response": {"status": 410}},
                {"name": "origin", "match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(FAST));
    let lines = |wanted: &str| {
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let of = |text: &str| {
            let mut all: Vec<String> =
                text.lines().filter_map(|line| line.strip_suffix(wanted)).map(|name| name.trim().to_owned()).collect();
            all.sort();
            all
        };
        wait_until("the last line", || read().lines().any(|line| line == format!("quick {wanted}")));
        wait_until("all lines", || {
            let once = of(&read());
            std::thread::yield_now();
            once.contains(&"local".to_owned()) && (once.contains(&"sized".to_owned()) || wanted == "/gone")
        });
        of(&read())
    };
    assert_eq!(ask(&proxy, "GET", "test", "/gone", "").status, 410);
    assert_eq!(lines("/gone"), ["errors", "local", "no header", "quick"]);
    assert_eq!(ask(&proxy, "GET", "test", "/", "x: 1\r\nuser-agent: curl/8\r\n").status, 200);
    assert_eq!(lines("/"), ["agent", "header", "local", "named", "quick", "sized", "upstream"]);
}
