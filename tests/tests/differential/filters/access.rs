//! Access by rules: rbac.

use super::{filter, noted, own, scope};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Map, Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![allows(), denies(), permissions(), principals(), notes(), watches(), trees(), scopes()]
}

fn policies(action: &str) -> Value {
    json!({"rules": {"action": action, "policies": {
        "by-path": {"permissions": [{"url_path": {"path": {"prefix": "/open"}}}], "principals": [{"any": true}]},
        "by-header": {"permissions": [{"header": {"name": "x-pass", "string_match": {"exact": "yes"}}}], "principals": [{"any": true}]},
        "by-address": {"permissions": [{"url_path": {"path": {"exact": "/local"}}}], "principals": [{"direct_remote_ip": {"address_prefix": "127.0.0.0", "prefix_len": 8}}]},
        "by-all": {"permissions": [{"and_rules": {"rules": [{"header": {"name": ":method", "string_match": {"exact": "POST"}}}, {"not_rule": {"header": {"name": "x-not", "present_match": true}}}]}}],
            "principals": [{"or_ids": {"ids": [{"header": {"name": "x-who", "string_match": {"prefix": "a"}}}, {"not_id": {"header": {"name": "x-who", "present_match": true}}}]}}]},
    }}})
}

fn asked_for_access(scene: Scene) -> Scene {
    let lines = [
        "content-length: 0\r\n",
        "content-length: 0\r\nx-not: 1\r\n",
        "content-length: 0\r\nx-who: ann\r\n",
        "content-length: 0\r\nx-who: eve\r\n",
    ];
    let scene = scene
        .gets(&["/", "/open", "/open/x?y", "/local", "/local?x", "/Open"])
        .each("/", &["x-pass: yes\r\n", "x-pass: no\r\n", "x-pass: yes\r\nx-pass: yes\r\n"]);
    lines.iter().fold(scene, |scene, lines| scene.ask("POST", "test", "/", lines))
}

fn allows() -> Scene {
    asked_for_access(Scene::filtered(
        "rbac",
        vec![filter("rbac", "RBAC", policies("ALLOW"))],
        json!([own("/off", "rbac", "RBACPerRoute", json!({})),]),
    ))
    .get("/off")
}

fn denies() -> Scene {
    asked_for_access(Scene::filtered("rbac-denies", vec![filter("rbac", "RBAC", policies("DENY"))], json!([])))
}

fn rbac(fields: Value) -> Value {
    filter("rbac", "RBAC", fields)
}

fn policy(permission: Value, principal: Value) -> Value {
    json!({"permissions": [permission], "principals": [principal]})
}

fn path(path: &str) -> Value {
    json!({"url_path": {"path": {"exact": path}}})
}

fn any() -> Value {
    json!({"any": true})
}

fn is(name: &str, value: &str) -> Value {
    json!({"header": {"name": name, "string_match": {"exact": value}}})
}

/// A policy for each rule, that is asked at the path of its name; whoever keeps none is turned away.
fn each(rules: &[(&str, Value)], make: impl Fn(&str, &Value) -> Value) -> Value {
    let policies: Map<String, Value> =
        rules.iter().map(|(name, rule)| ((*name).to_owned(), make(name, rule))).collect();
    json!({"rules": {"action": "ALLOW", "policies": policies}, "track_per_rule_stats": true})
}

/// Filters that note what rules ask for.
fn noting() -> Vec<Value> {
    let rule = |header: &str, kind: &str| json!({"header": header, "on_header_present": {"metadata_namespace": "seen", "key": header, "type": kind}});
    let state = json!({
        "object_key": "state", "factory_key": "envoy.string",
        "format_string": {"text_format_source": {"inline_string": "%REQ(x-state)%"}, "omit_empty_values": true}, "skip_if_empty": true,
    });
    vec![
        filter(
            "header_to_metadata",
            "Config",
            json!({"request_rules": [rule("x-text", "STRING"), rule("x-number", "NUMBER")]}),
        ),
        filter("set_filter_state", "Config", json!({"on_request_headers": [state]})),
        filter(
            "set_metadata",
            "Config",
            json!({"metadata": [
                {"metadata_namespace": "fixed", "value": {"yes": true, "list": ["a", "b"], "deep": {"er": {"text": "here"}}, "none": null}},
            ]}),
        ),
    ]
}

/// A condition on metadata.
fn meta(filter: &str, keys: &[&str], value: Value) -> Value {
    let path: Vec<Value> = keys.iter().map(|key| json!({"key": key})).collect();
    json!({"metadata": {"filter": filter, "path": path, "value": value}})
}

/// What requests say of themselves; each is asked at each path.
const SAID: &[&str] = &[
    "",
    "x-h: abc\r\n",
    "x-h: ABC\r\nx-h: b\r\n",
    "x-h:\r\n",
    "x-n: 5\r\nx-text: a\r\nx-number: 2.5\r\n",
    "x-n: 10\r\nx-text: b\r\nx-number: 7\r\n",
    "x-n: -1\r\nx-state: on\r\nx-number: x\r\n",
    "x-forwarded-for: 10.1.1.1\r\nx-state: off\r\n",
    "x-forwarded-for: 10.1.1.1, 9.9.9.9\r\n",
];

fn asked(scene: Scene, rules: &[(&str, Value)]) -> Scene {
    rules.iter().fold(scene, |scene, (name, _)| scene.each(&format!("/{name}?q=1"), SAID))
}

/// The kinds of permissions.
fn permissions() -> Scene {
    let h = |matcher: Value| {
        let mut header = json!({"name": "x-h"});
        overlay(&mut header, matcher);
        json!({"header": header})
    };
    let rules = [
        ("any", any()),
        ("present", h(json!({"present_match": true}))),
        ("absent", h(json!({"present_match": false}))),
        ("inverted", h(json!({"present_match": true, "invert_match": true}))),
        ("prefix", h(json!({"string_match": {"prefix": "a"}}))),
        ("suffix", h(json!({"string_match": {"suffix": "c", "ignore_case": true}}))),
        ("contains", h(json!({"string_match": {"contains": "B"}}))),
        ("regex", h(json!({"string_match": {"safe_regex": {"regex": "[a-c]+"}}}))),
        ("not-exact", h(json!({"string_match": {"exact": "abc"}, "invert_match": true}))),
        ("empty", h(json!({"string_match": {"exact": ""}, "treat_missing_header_as_empty": true}))),
        ("range", json!({"header": {"name": "x-n", "range_match": {"start": 0, "end": 10}}})),
        ("method", is(":method", "GET")),
        ("authority", is(":authority", "test")),
        ("scheme", is(":scheme", "http")),
        ("whole-path", is(":path", "/whole-path?q=1")),
        ("url", json!({"url_path": {"path": {"exact": "/url"}}})),
        (
            "template",
            json!({"uri_template": {"name": "t", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig", "path_template": "/{x}",
            }}}),
        ),
        ("to", json!({"destination_ip": {"address_prefix": "127.0.0.0", "prefix_len": 8}})),
        ("elsewhere", json!({"destination_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}})),
        ("port", json!({"destination_port": 1})),
        ("ports", json!({"destination_port_range": {"start": 1024, "end": 65536}})),
        ("name", json!({"requested_server_name": {"exact": ""}})),
        ("not", json!({"not_rule": h(json!({"present_match": true}))})),
        (
            "and",
            json!({"and_rules": {"rules": [h(json!({"present_match": true})), {"not_rule": h(json!({"string_match": {"exact": "abc"}}))}]}}),
        ),
        ("or", json!({"or_rules": {"rules": [h(json!({"string_match": {"exact": "abc"}})), is("x-n", "5")]}})),
        ("text", meta("seen", &["x-text"], json!({"string_match": {"exact": "a"}}))),
        ("number", meta("seen", &["x-number"], json!({"double_match": {"range": {"start": 2, "end": 5}}}))),
        ("number-is", meta("seen", &["x-number"], json!({"double_match": {"exact": 7}}))),
        ("noted", meta("seen", &["x-text"], json!({"present_match": true}))),
        ("not-noted", meta("seen", &["x-text"], json!({"present_match": false}))),
        ("truth", meta("fixed", &["yes"], json!({"bool_match": true}))),
        ("list", meta("fixed", &["list"], json!({"list_match": {"one_of": {"string_match": {"exact": "b"}}}}))),
        ("deep", meta("fixed", &["deep", "er", "text"], json!({"string_match": {"prefix": "he"}}))),
        (
            "either",
            meta(
                "fixed",
                &["yes"],
                json!({"or_match": {"value_matchers": [{"bool_match": false}, {"present_match": true}]}}),
            ),
        ),
        ("nothing", meta("fixed", &["none"], json!({"null_match": {}}))),
        ("too-deep", meta("fixed", &["yes", "more"], json!({"present_match": true}))),
        (
            "route",
            json!({"sourced_metadata": {
                "metadata_source": "ROUTE", "metadata_matcher": meta("of-route", &["tier"], json!({"string_match": {"exact": "gold"}}))["metadata"],
            }}),
        ),
        (
            "dynamic",
            json!({"sourced_metadata": {
                "metadata_source": "DYNAMIC", "metadata_matcher": meta("seen", &["x-text"], json!({"string_match": {"exact": "b"}}))["metadata"],
            }}),
        ),
    ];
    let make = |name: &str, rule: &Value| {
        let here = json!({"url_path": {"path": {"exact": format!("/{name}")}}});
        policy(json!({"and_rules": {"rules": [here, rule]}}), any())
    };
    let mut filters = noting();
    filters.push(rbac(each(&rules, make)));
    let route = to_a("/", json!({"metadata": {"filter_metadata": {"of-route": {"tier": "gold"}}}}));
    asked(Scene::filtered("rbac-permissions", filters, json!([route])).logging(noted("rbac")), &rules)
}

/// The kinds of principals.
fn principals() -> Scene {
    let network = |prefix: &str, length: u32| json!({"address_prefix": prefix, "prefix_len": length});
    let rules = [
        ("any", any()),
        ("authenticated", json!({"authenticated": {}})),
        ("somebody", json!({"authenticated": {"principal_name": {"exact": "ann"}}})),
        ("direct", json!({"direct_remote_ip": network("127.0.0.1", 32)})),
        ("remote", json!({"remote_ip": network("10.0.0.0", 8)})),
        ("remote-last", json!({"remote_ip": network("9.0.0.0", 8)})),
        ("source", json!({"source_ip": network("127.0.0.0", 8)})),
        ("six", json!({"direct_remote_ip": network("::1", 128)})),
        ("header", json!({"header": {"name": "x-h", "string_match": {"exact": "b"}}})),
        ("path", json!({"url_path": {"path": {"prefix": "/path"}}})),
        ("text", meta("seen", &["x-text"], json!({"string_match": {"exact": "a"}}))),
        ("state", json!({"filter_state": {"key": "state", "string_match": {"exact": "on"}}})),
        ("not", json!({"not_id": {"filter_state": {"key": "state", "string_match": {"exact": "on"}}}})),
        (
            "or",
            json!({"or_ids": {"ids": [{"header": {"name": "x-n", "present_match": true}}, {"remote_ip": network("10.0.0.0", 8)}]}}),
        ),
        (
            "and",
            json!({"and_ids": {"ids": [{"header": {"name": "x-n", "present_match": true}}, {"not_id": is("x-n", "5")}]}}),
        ),
        (
            "sourced",
            json!({"sourced_metadata": {
                "metadata_source": "DYNAMIC", "metadata_matcher": meta("seen", &["x-text"], json!({"string_match": {"exact": "b"}}))["metadata"],
            }}),
        ),
    ];
    let make = |name: &str, rule: &Value| policy(path(&format!("/{name}")), rule.clone());
    let mut filters = noting();
    filters.push(rbac(each(&rules, make)));
    let scene = Scene::filtered("rbac-principals", filters, json!([])).logging(noted("rbac"));
    asked(scene.with(json!({"use_remote_address": true, "xff_num_trusted_hops": 1})), &rules)
}

/// Conditions in CEL, rules that only log, and verdicts that later filters and routes see.
fn notes() -> Scene {
    let policies = json!({"log": {
        "permissions": [any()], "principals": [any()],
        "condition": {"call_expr": {"function": "_==_", "args": [
            {"select_expr": {"operand": {"ident_expr": {"name": "request"}}, "field": "method"}},
            {"const_expr": {"string_value": "POST"}},
        ]}},
    }});
    let verdict = |result: &str| {
        meta("envoy.filters.http.rbac", &["first_shadow_engine_result"], json!({"string_match": {"exact": result}}))
    };
    Scene::filtered(
        "rbac-notes",
        vec![
            rbac(json!({
                "rules": {"action": "LOG", "policies": policies},
                "shadow_rules": {"action": "DENY", "policies": {"shadow": policy(path("/shadow"), any())}},
                "shadow_rules_stat_prefix": "first_",
            })),
            filter("header_mutation", "HeaderMutation", json!({"mutations": {"request_mutations": [
                {"append": {"header": {"key": "x-verdict", "value": "%DYNAMIC_METADATA(envoy.filters.http.rbac:first_shadow_engine_result)%"}}},
            ]}})),
            {
                let mut second = rbac(json!({
                    "rules": {"action": "DENY", "policies": {"second": policy(verdict("denied"), any())}}, "rules_stat_prefix": "second_",
                    "track_per_rule_stats": true,
                }));
                second["name"] = json!("second");
                second
            },
        ],
        json!([]),
    )
    .logging(noted("rbac"))
    .logging(json!({"hint": "%DYNAMIC_METADATA(envoy.common)%"}))
    .gets(&["/", "/shadow", "/shadow?x"])
    .post("/", "", "x")
    .post("/shadow", "", "x")
    .ask("HEAD", "test", "/shadow", "")
    .get_with("/shadow", "content-type: application/grpc\r\n")
}

/// Shadow rules alone, with and without names, and rules without policies.
fn watches() -> Scene {
    let shadow = json!({"shadow_rules": {"action": "ALLOW", "policies": {"a": policy(path("/a"), any()), "b": policy(any(), is("x-b", "1"))}}});
    let with = |more: Value| {
        let mut fields = shadow.clone();
        overlay(&mut fields, more);
        json!({"rbac": fields})
    };
    let per_route = |prefix: &str, fields: Value| own(prefix, "rbac", "RBACPerRoute", fields);
    Scene::filtered(
        "rbac-watches",
        vec![rbac(shadow.clone())],
        json!([
            per_route(
                "/named",
                with(json!({"shadow_rules_stat_prefix": "s_", "rules_stat_prefix": "e_", "track_per_rule_stats": true,
            "rules": {"action": "DENY", "policies": {"never": policy(any(), is("x-never", "1"))}}}))
            ),
            per_route("/closed", json!({"rbac": {"rules": {}}})),
            per_route("/open", json!({"rbac": {"rules": {"action": "DENY"}}})),
            per_route("/none", json!({})),
        ]),
    )
    .logging(noted("rbac"))
    .gets(&["/a", "/", "/named", "/closed", "/open", "/none"])
    .each("/", &["x-b: 1\r\n"])
    .each("/named", &["x-b: 1\r\n", "x-never: 1\r\n", "x-b: 1\r\nx-never: 1\r\n"])
}

/// A tree in place of rules, and one beside them.
fn trees() -> Scene {
    let input = |name: &str| {
        json!({"name": name, "typed_config": {
            "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": name,
        }})
    };
    let verdict = |name: &str, action: &str| {
        json!({"action": {"name": "action", "typed_config": {
            "@type": "type.googleapis.com/envoy.config.rbac.v3.Action", "name": name, "action": action,
        }}})
    };
    let single = |name: &str, value: Value| json!({"single_predicate": {"input": input(name), "value_match": value}});
    let list = json!({"matcher_list": {"matchers": [
        {"predicate": single(":path", json!({"prefix": "/admin"})), "on_match": {"matcher": {
            "matcher_tree": {"input": input("x-role"), "exact_match_map": {"map": {"root": verdict("root", "ALLOW"), "none": verdict("none", "DENY")}}},
            "on_no_match": verdict("nobody", "DENY"),
        }}},
        {"predicate": {"and_matcher": {"predicate": [single(":method", json!({"exact": "POST"})), {"not_matcher": single("x-b", json!({"exact": "1"}))}]}},
            "on_match": verdict("posts", "LOG")},
        {"predicate": {"or_matcher": {"predicate": [single("x-a", json!({"suffix": "z"})), single("x-a", json!({"safe_regex": {"google_re2": {}, "regex": "[0-9]+"}}))]}},
            "on_match": verdict("or", "DENY")},
    ]}, "on_no_match": verdict("rest", "ALLOW")});
    let shadow = json!({"matcher_tree": {"input": input(":path"), "prefix_match_map": {"map": {
        "/": verdict("short", "ALLOW"), "/admin/x": verdict("long", "DENY"),
    }}}});
    Scene::filtered(
        "rbac-trees",
        vec![rbac(json!({"matcher": list, "shadow_matcher": shadow}))],
        json!([own(
            "/silent",
            "rbac",
            "RBACPerRoute",
            json!({"rbac": {"matcher": {"matcher_list": {"matchers": [
                {"predicate": single("x-a", json!({"exact": "1"})), "on_match": verdict("one", "ALLOW")},
            ]}}}})
        ),]),
    )
    .logging(noted("rbac"))
    .logging(json!({"hint": "%DYNAMIC_METADATA(envoy.common)%"}))
    .gets(&["/", "/admin", "/admin/x", "/silent"])
    .each("/admin", &["x-role: root\r\n", "x-role: none\r\n", "x-role: other\r\n", "x-role: root\r\nx-role: none\r\n"])
    .each("/", &["x-a: z\r\n", "x-a: 12\r\n", "x-a: 1a\r\n"])
    .each("/silent", &["x-a: 1\r\n"])
    .post("/", "", "")
    .post("/", "x-b: 1\r\n", "")
}

/// What table, virtual host, route and weighted cluster say, the nearest alone.
fn scopes() -> Scene {
    let denies = |name: &str| {
        scope(
            "rbac",
            "RBACPerRoute",
            json!({"rbac": {"rules": {"action": "DENY", "policies": {name: policy(any(), is("x-deny", name))}}}}),
        )
    };
    let mut cluster = json!({"name": "a", "weight": 1});
    overlay(&mut cluster, denies("cluster"));
    let off = json!({"typed_per_filter_config": {"envoy.filters.http.rbac": {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
    }}});
    let mut weighted =
        json!({"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": [cluster]}}});
    overlay(&mut weighted, denies("route"));
    let routes = json!([weighted, to_a("/route", denies("route")), to_a("/off", off), to_a("/", json!({}))]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, denies("host"));
    let mut table =
        json!({"virtual_hosts": [host, {"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]}]});
    overlay(&mut table, denies("table"));
    let all = json!({"rules": {"action": "DENY", "policies": {"filter": policy(any(), is("x-deny", "filter"))}}});
    let mut scene = Scene::with_table("rbac-scopes", vec![rbac(all)], table).logging(noted("rbac"));
    for path in ["/weighted", "/route", "/off", "/"] {
        for who in ["filter", "table", "host", "route", "cluster"] {
            scene = scene.get_with(path, &format!("x-deny: {who}\r\n")).ask(
                "GET",
                "own.test",
                path,
                &format!("x-deny: {who}\r\n"),
            );
        }
    }
    scene
}
