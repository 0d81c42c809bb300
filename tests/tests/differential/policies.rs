//! Chains of filters and requests by chance, from a seed: filters that judge, note and change, in any order, with
//! configuration of their own for virtual hosts and routes.

use crate::drawn;
use crate::generator::Chance;
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::{extension, overlay};
use serde_json::{Map, Value, json};

/// A kind of filter: its name, its message and that of scopes, which may be absent, and what makes one of them.
struct Kind {
    name: &'static str,
    message: &'static str,
    of_scope: Option<&'static str>,
    make: fn(&mut Chance, bool) -> Value,
}

const KINDS: &[Kind] = &[
    Kind { name: "rbac", message: "RBAC", of_scope: Some("RBACPerRoute"), make: rbac },
    Kind { name: "cors", message: "Cors", of_scope: Some("CorsPolicy"), make: cors },
    Kind { name: "csrf", message: "CsrfPolicy", of_scope: Some("CsrfPolicy"), make: csrf },
    Kind { name: "fault", message: "HTTPFault", of_scope: Some("HTTPFault"), make: fault },
    Kind {
        name: "header_mutation",
        message: "HeaderMutation",
        of_scope: Some("HeaderMutationPerRoute"),
        make: mutation,
    },
    Kind { name: "basic_auth", message: "BasicAuth", of_scope: Some("BasicAuthPerRoute"), make: basic_auth },
    Kind { name: "api_key_auth", message: "ApiKeyAuth", of_scope: Some("ApiKeyAuthPerRoute"), make: api_key_auth },
    Kind { name: "buffer", message: "Buffer", of_scope: Some("BufferPerRoute"), make: buffer },
    Kind { name: "header_to_metadata", message: "Config", of_scope: Some("Config"), make: header_to_metadata },
    Kind {
        name: "json_to_metadata",
        message: "JsonToMetadata",
        of_scope: Some("JsonToMetadata"),
        make: json_to_metadata,
    },
    Kind { name: "set_metadata", message: "Config", of_scope: None, make: set_metadata },
    Kind { name: "set_filter_state", message: "Config", of_scope: Some("Config"), make: set_filter_state },
    Kind { name: "ip_tagging", message: "IPTagging", of_scope: None, make: ip_tagging },
    Kind {
        name: "local_ratelimit",
        message: "LocalRateLimit",
        of_scope: Some("LocalRateLimit"),
        make: local_ratelimit,
    },
    Kind {
        name: "custom_response",
        message: "CustomResponse",
        of_scope: Some("CustomResponse"),
        make: custom_response,
    },
    Kind { name: "health_check", message: "HealthCheck", of_scope: None, make: health_check },
    Kind { name: "ext_authz", message: "ExtAuthz", of_scope: Some("ExtAuthzPerRoute"), make: drawn::ext_authz },
    Kind { name: "jwt_authn", message: "JwtAuthentication", of_scope: Some("PerRouteConfig"), make: drawn::jwt_authn },
    Kind { name: "compressor", message: "Compressor", of_scope: Some("CompressorPerRoute"), make: drawn::compressor },
    Kind {
        name: "stateful_session",
        message: "StatefulSession",
        of_scope: Some("StatefulSessionPerRoute"),
        make: drawn::stateful_session,
    },
];

const FIELDS: &[&str] = &["x-a", "x-b", "x-c"];
const VALUES: &[&str] = &["a", "b", "ab", "1", "-2", "A"];
const PATHS: &[&str] = &["/", "/a", "/b", "/a/b", "/own", "/check"];

/// One listener with a chain of its own, and as many requests.
pub fn scene(seed: u64, requests: usize) -> Scene {
    let mut chance = Chance::new(seed);
    let mut kinds: Vec<&Kind> = KINDS.iter().collect();
    let mut chosen: Vec<&Kind> = (0..1 + chance.below(4)).map(|_| kinds.remove(chance.below(kinds.len()))).collect();
    // In Envoy no other filter sees what `custom_response` puts in the place of an answer, and `buffer` lets pass what one in
    // front of it holds already; here those in front see it, and the limit holds.
    chosen.sort_by_key(|kind| (kind.name != "custom_response", kind.name != "buffer"));
    let mut filters: Vec<Value> = chosen.iter().map(|kind| filter(&mut chance, kind)).collect();
    filters.push(postrider_tests::kit::config::router());
    let mut routes: Vec<Value> =
        ["/a", "/b"].iter().map(|prefix| scoped(&mut chance, &chosen, to_a(prefix, json!({})))).collect();
    let own = json!({"match": {"prefix": "/own"}, "direct_response": {"status": ([200, 403, 404][chance.below(3)]), "body": {"inline_string": "own"}}});
    let mut own = scoped(&mut chance, &chosen, own);
    if chosen.iter().any(|kind| kind.name == "cors") {
        // Envoy has no cors there.
        overlay(&mut own, json!({"typed_per_filter_config": {"envoy.filters.http.cors": null}}));
        overlay(
            &mut own,
            json!({"typed_per_filter_config": {"envoy.filters.http.cors": {
                "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
            }}}),
        );
    }
    routes.push(own);
    routes.push(to_a("/", json!({})));
    let host = json!({"name": "all", "domains": ["*"], "routes": routes});
    let mut host = scoped(&mut chance, &chosen, host);
    if chance.percent(30) {
        overlay(&mut host, json!({"response_headers_to_add": [{"header": {"key": "x-host", "value": "%REQ(x-a)%"}}]}));
    }
    let name = format!("policies-{seed}");
    let manager = json!({"route_config": {"virtual_hosts": [host]}, "http_filters": named(filters, &name)});
    let scene = Scene::new(&name, manager).logging(json!({
        "seen": "%DYNAMIC_METADATA(seen)%", "rbac": "%DYNAMIC_METADATA(envoy.filters.http.rbac)%", "state": "%FILTER_STATE(state:PLAIN)%",
    }));
    (0..requests).fold(scene, |scene, _| request(&mut chance, scene))
}

/// Statistics that are named by the configuration are named after the scene.
fn named(filters: Vec<Value>, name: &str) -> Vec<Value> {
    let rename = |mut filter: Value| {
        if filter["typed_config"].get("stat_prefix").is_some() {
            filter["typed_config"]["stat_prefix"] = json!(name);
        }
        filter
    };
    filters.into_iter().map(rename).collect()
}

fn filter(chance: &mut Chance, kind: &Kind) -> Value {
    let fields = match kind.name {
        "cors" => json!({}),
        _ => (kind.make)(chance, false),
    };
    let mut made = extension(&full(kind), &format!("filters.http.{}.v3.{}", kind.name, kind.message), fields);
    if kind.of_scope.is_some() && chance.percent(10) {
        made["disabled"] = json!(true);
    }
    made
}

fn full(kind: &Kind) -> String {
    format!("envoy.filters.http.{}", kind.name)
}

/// Gives a route or virtual host configuration of its own for some of the filters.
fn scoped(chance: &mut Chance, kinds: &[&Kind], mut scope: Value) -> Value {
    let mut own = Map::new();
    for kind in kinds {
        let Some(message) = kind.of_scope.filter(|_| chance.percent(50)) else { continue };
        let config = match chance.percent(15) {
            true => json!({"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true}),
            false => {
                let mut config = (kind.make)(chance, true);
                config["@type"] =
                    json!(format!("type.googleapis.com/envoy.extensions.filters.http.{}.v3.{message}", kind.name));
                config
            }
        };
        own.insert(full(kind), config);
    }
    if !own.is_empty() {
        scope["typed_per_filter_config"] = Value::Object(own);
    }
    scope
}

fn share(chance: &mut Chance) -> Value {
    json!({"default_value": {"numerator": if chance.percent(75) { 100 } else { 0 }}})
}

fn text_match(chance: &mut Chance) -> Value {
    let value = chance.pick(VALUES);
    let mut matcher = match chance.below(4) {
        0 => json!({"prefix": value}),
        1 => json!({"suffix": value}),
        2 => json!({"contains": value}),
        _ => json!({"exact": value}),
    };
    if chance.percent(25) {
        matcher["ignore_case"] = json!(true);
    }
    matcher
}

fn header_match(chance: &mut Chance) -> Value {
    let mut matcher = json!({"name": chance.pick(FIELDS)});
    match chance.below(3) {
        0 => matcher["present_match"] = json!(chance.percent(70)),
        _ => matcher["string_match"] = text_match(chance),
    }
    if chance.percent(25) {
        matcher["invert_match"] = json!(true);
    }
    matcher
}

/// A rule for a permission (`rule`) or a principal (`id`), which may be made of others.
fn rule(chance: &mut Chance, suffix: &str, depth: usize) -> Value {
    let kinds = if depth == 0 { 4 } else { 7 };
    let list = |chance: &mut Chance| -> Vec<Value> {
        (0..1 + chance.below(2)).map(|_| rule(chance, suffix, depth - 1)).collect()
    };
    let plural = format!("{suffix}s");
    match chance.below(kinds) {
        0 => json!({"any": true}),
        1 => json!({"url_path": {"path": {"prefix": chance.pick(PATHS)}}}),
        2 => {
            json!({"metadata": {"filter": "seen", "path": [{"key": chance.pick(FIELDS)}], "value": {"string_match": text_match(chance)}}})
        }
        3 => json!({"header": header_match(chance)}),
        4 => json!({format!("not_{suffix}"): rule(chance, suffix, depth - 1)}),
        5 => json!({format!("and_{plural}"): {&plural: list(chance)}}),
        _ => json!({format!("or_{plural}"): {&plural: list(chance)}}),
    }
}

fn rules(chance: &mut Chance) -> Value {
    let mut policies = Map::new();
    for name in ["p", "q"].iter().take(1 + chance.below(2)) {
        let policy = json!({"permissions": [rule(chance, "rule", 2)], "principals": [rule(chance, "id", 2)]});
        policies.insert((*name).to_owned(), policy);
    }
    json!({"action": chance.pick(&["ALLOW", "DENY", "DENY", "LOG"]), "policies": policies})
}

fn rbac(chance: &mut Chance, scope: bool) -> Value {
    let mut fields = json!({});
    if chance.percent(80) {
        fields["rules"] = rules(chance);
    }
    if chance.percent(50) {
        fields["shadow_rules"] = rules(chance);
    }
    if chance.percent(30) {
        fields["shadow_rules_stat_prefix"] = json!("s_");
    }
    if chance.percent(50) {
        fields["track_per_rule_stats"] = json!(true);
    }
    match scope {
        true if chance.percent(20) => json!({}),
        true => json!({"rbac": fields}),
        false => fields,
    }
}

const ORIGINS: &[&str] = &["http://a.test", "http://b.test", "https://a.test:81", "null"];

fn cors(chance: &mut Chance, _: bool) -> Value {
    let mut policy = json!({"allow_origin_string_match": [{"exact": chance.pick(ORIGINS)}]});
    for (field, value) in [
        ("allow_methods", json!("GET")),
        ("allow_headers", json!("x-a")),
        ("expose_headers", json!("x-b")),
        ("max_age", json!("5")),
        ("allow_credentials", json!(true)),
        ("forward_not_matching_preflights", json!(false)),
    ] {
        if chance.percent(40) {
            policy[field] = value;
        }
    }
    if chance.percent(30) {
        policy["filter_enabled"] = share(chance);
    }
    policy
}

fn csrf(chance: &mut Chance, _: bool) -> Value {
    json!({
        "filter_enabled": share(chance), "shadow_enabled": share(chance),
        "additional_origins": [{"exact": chance.pick(&["a.test", "b.test", "a.test:81"])}],
    })
}

fn fault(chance: &mut Chance, _: bool) -> Value {
    let percentage = json!({"numerator": if chance.percent(60) { 100 } else { 0 }});
    let mut fields = match chance.below(3) {
        0 => json!({"abort": {"http_status": 418, "percentage": percentage}}),
        1 => json!({"abort": {"grpc_status": 5, "percentage": percentage}}),
        _ => json!({"abort": {"header_abort": {}, "percentage": percentage}}),
    };
    if chance.percent(60) {
        fields["headers"] = json!([header_match(chance)]);
    }
    fields
}

fn mutation(chance: &mut Chance, _: bool) -> Value {
    let list = |chance: &mut Chance| -> Vec<Value> {
        let one = |chance: &mut Chance| match chance.below(4) {
            0 => json!({"remove": chance.pick(FIELDS)}),
            _ => json!({"append": {
                "header": {"key": chance.pick(FIELDS), "value": chance.pick(&["m", "%REQ(x-a)%", "%REQ(:path)%", "%DYNAMIC_METADATA(seen:x-a)%", "%FILTER_STATE(state:PLAIN)%"])},
                "append_action": chance.pick(&["APPEND_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT", "OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS"]),
            }}),
        };
        (0..1 + chance.below(3)).map(|_| one(chance)).collect()
    };
    json!({"mutations": {"request_mutations": list(chance), "response_mutations": list(chance)}})
}

fn basic_auth(chance: &mut Chance, scope: bool) -> Value {
    // The password is `secret`.
    let mut fields = json!({"users": {"inline_string": format!("{}:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=", chance.pick(&["ann", "bob"]))}});
    if !scope && chance.percent(50) {
        fields["forward_username_header"] = json!(chance.pick(FIELDS));
    }
    fields
}

fn api_key_auth(chance: &mut Chance, scope: bool) -> Value {
    let source = |chance: &mut Chance| match chance.below(3) {
        0 => json!({"query": "key"}),
        1 => json!({"cookie": "ck"}),
        _ => json!({"header": chance.pick(FIELDS)}),
    };
    let mut fields = json!({
        "credentials": [{"key": "a", "client": "ann"}, {"key": "1", "client": "bob"}], "key_sources": [source(chance), source(chance)],
    });
    if scope {
        fields["allowed_clients"] = json!([chance.pick(&["ann", "bob"])]);
    }
    if chance.percent(60) {
        fields["forwarding"] = json!({"header": "x-client", "hide_credentials": chance.percent(50)});
    }
    fields
}

fn buffer(chance: &mut Chance, scope: bool) -> Value {
    let fields = json!({"max_request_bytes": ([5, 20, 100][chance.below(3)])});
    match scope {
        true if chance.percent(20) => json!({"disabled": true}),
        true => json!({"buffer": fields}),
        false => fields,
    }
}

fn header_to_metadata(chance: &mut Chance, _: bool) -> Value {
    let rule = |chance: &mut Chance, fields: &[&str]| {
        let field = chance.pick(fields);
        let key = chance.pick(FIELDS);
        let mut present = json!({"metadata_namespace": "seen", "key": key, "type": chance.pick(&["STRING", "NUMBER"])});
        if chance.percent(20) {
            present["value"] = json!("7");
        }
        let mut rule = json!({"header": field, "on_header_present": present});
        if chance.percent(40) {
            rule["on_header_missing"] = json!({"metadata_namespace": "seen", "key": key, "value": "none"});
        }
        if chance.percent(30) && !field.starts_with(':') {
            rule["remove"] = json!(true);
        }
        rule
    };
    let requests: Vec<Value> =
        (0..1 + chance.below(2)).map(|_| rule(chance, &["x-a", "x-b", "x-c", ":path"])).collect();
    let answers: Vec<Value> = (0..chance.below(2)).map(|_| rule(chance, &["x-a", ":status", "x-origin"])).collect();
    json!({"request_rules": requests, "response_rules": answers})
}

fn json_to_metadata(chance: &mut Chance, _: bool) -> Value {
    let rule = |chance: &mut Chance| {
        let key = chance.pick(FIELDS);
        let noted = |value: &str| json!({"metadata_namespace": "seen", "key": key, "value": value});
        json!({
            "selectors": [{"key": chance.pick(&["a", "b"])}], "on_present": {"metadata_namespace": "seen", "key": key},
            "on_missing": noted("missing"), "on_error": noted("error"),
        })
    };
    let rules: Vec<Value> = (0..1 + chance.below(2)).map(|_| rule(chance)).collect();
    json!({"request_rules": {"rules": rules, "allow_empty_content_type": chance.percent(30)}})
}

fn set_metadata(chance: &mut Chance, _: bool) -> Value {
    let entry = |chance: &mut Chance| {
        let value = json!({chance.pick(FIELDS): chance.pick(VALUES), "list": [1], "map": {chance.pick(VALUES): true}});
        json!({"metadata_namespace": "seen", "value": value, "allow_overwrite": chance.percent(60)})
    };
    json!({"metadata": (0..1 + chance.below(2)).map(|_| entry(chance)).collect::<Vec<_>>()})
}

fn set_filter_state(chance: &mut Chance, _: bool) -> Value {
    let text = chance.pick(&["%REQ(x-a)%", "fixed", "%FILTER_STATE(state:PLAIN)%.", "%DYNAMIC_METADATA(seen:x-b)%"]);
    json!({"on_request_headers": [{
        "object_key": "state", "factory_key": "envoy.string", "skip_if_empty": chance.percent(50),
        "format_string": {"text_format_source": {"inline_string": text}, "omit_empty_values": chance.percent(50)},
    }]})
}

fn ip_tagging(chance: &mut Chance, _: bool) -> Value {
    let mut fields = json!({"ip_tags": [
        {"ip_tag_name": "ten", "ip_list": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]},
        {"ip_tag_name": "nine", "ip_list": [{"address_prefix": "9.9.9.0", "prefix_len": 24}]},
    ]});
    if chance.percent(50) {
        // One that comes in several lines gets its tags elsewhere in Envoy.
        fields["ip_tag_header"] = match chance.percent(50) {
            true => json!({"header": chance.pick(FIELDS), "action": "SANITIZE"}),
            false => json!({"header": "x-sess", "action": "APPEND_IF_EXISTS_OR_ADD"}),
        };
    }
    fields
}

fn local_ratelimit(chance: &mut Chance, _: bool) -> Value {
    let bucket = |most: usize| json!({"max_tokens": most, "tokens_per_fill": 1, "fill_interval": "36000s"});
    let mut fields = json!({
        "stat_prefix": "limit", "token_bucket": bucket(1 + chance.below(20)), "filter_enabled": share(chance), "filter_enforced": share(chance),
    });
    if chance.percent(50) {
        fields["rate_limits"] =
            json!([{"actions": [{"request_headers": {"header_name": chance.pick(FIELDS), "descriptor_key": "k"}}]}]);
        let mut entry = json!({"key": "k"});
        if chance.percent(50) {
            entry["value"] = json!(chance.pick(VALUES));
        }
        fields["descriptors"] = json!([{"entries": [entry], "token_bucket": bucket(1 + chance.below(3))}]);
    }
    if chance.percent(50) {
        fields["enable_x_ratelimit_headers"] = json!("DRAFT_VERSION_03");
    }
    fields
}

fn custom_response(chance: &mut Chance, _: bool) -> Value {
    let matcher = |chance: &mut Chance| {
        let (kind, value) = match chance.below(3) {
            0 => ("HttpResponseStatusCodeMatchInput", chance.pick(&["200", "403", "404", "429", "503"])),
            1 => ("HttpResponseStatusCodeClassMatchInput", chance.pick(&["2xx", "4xx", "5xx"])),
            _ => ("HttpResponseLocalReplyMatchInput", chance.pick(&["true", "false"])),
        };
        let mut policy = json!({
            "@type": "type.googleapis.com/envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy",
            "body": {"inline_string": "in its place"}, "preserve_response_code_details": true,
        });
        if chance.percent(50) {
            policy["status_code"] = json!([201, 404, 502][chance.below(3)]);
        }
        if chance.percent(50) {
            policy["response_headers_to_add"] = json!([{"header": {"key": "x-c", "value": "%REQ(x-a)%"}}]);
        }
        json!({
            "predicate": {"single_predicate": {
                "input": {"name": "input", "typed_config": {"@type": format!("type.googleapis.com/envoy.type.matcher.v3.{kind}")}},
                "value_match": {"exact": value},
            }},
            "on_match": {"action": {"name": "action", "typed_config": policy}},
        })
    };
    let matchers: Vec<Value> = (0..1 + chance.below(2)).map(|_| matcher(chance)).collect();
    json!({"custom_response_matcher": {"matcher_list": {"matchers": matchers}}})
}

fn health_check(chance: &mut Chance, _: bool) -> Value {
    let mut headers = vec![json!({"name": ":path", "string_match": {"prefix": "/check"}})];
    if chance.percent(30) {
        headers.push(header_match(chance));
    }
    json!({"pass_through_mode": false, "headers": headers})
}

/// Lines that some filter looks at.
const LINES: &[&str] = &[
    "authorization: Basic YW5uOnNlY3JldA==",
    "authorization: Basic Ym9iOnNlY3JldA==",
    "authorization: Basic YW5uOndyb25n",
    "cookie: ck=a",
    "cookie: x=y; ck=2",
    "x-envoy-fault-abort-request: 503",
    "x-envoy-fault-abort-request: 404\r\nx-envoy-fault-abort-request-percentage: 0",
    "x-forwarded-for: 10.1.1.1",
    "x-forwarded-for: 9.9.9.9, 10.1.1.1",
    "access-control-request-method: PUT",
    "referer: http://test/x",
    "content-type: application/grpc",
    "x-answer: 404",
    "x-answer: 503",
    "x-answer: chunked",
    "x-make: 200|x-a=o|x-b=o|content-type=text/html|body=made",
    "x-make: 403|x-c=o",
];

fn request(chance: &mut Chance, scene: Scene) -> Scene {
    let mut path = chance.pick(PATHS).to_owned();
    if chance.percent(25) {
        path += chance.pick(&["?key=a", "?key=2", "?x=1&key=1", "?key"]);
    }
    let mut fields = String::new();
    for _ in 0..chance.below(4) {
        fields += &format!("{}: {}\r\n", chance.pick(FIELDS), chance.pick(VALUES));
    }
    if chance.percent(40) {
        fields += &format!(
            "origin: {}\r\n",
            chance.pick(&["http://a.test", "http://b.test", "https://a.test:81", "http://test", "null"])
        );
    }
    let mut lines: Vec<&str> = [LINES, drawn::LINES].concat();
    if chance.percent(30) {
        lines.retain(|line| !line.starts_with("authorization"));
        fields += &drawn::token(chance);
    }
    for _ in 0..chance.below(4) {
        let line = lines.remove(chance.below(lines.len()));
        let name = line.split(':').next().unwrap_or_default();
        lines.retain(|other| !other.starts_with(name));
        fields += &format!("{line}\r\n");
    }
    match chance.below(8) {
        0 => scene.ask("OPTIONS", "test", &path, &fields),
        1 => scene.ask("HEAD", "test", &path, &fields),
        2 | 3 => {
            let (kind, body) = match chance.below(4) {
                0 => (
                    "content-type: application/json\r\n",
                    chance.pick(&["{\"a\":1}", "{\"b\":\"x\"}", "{\"a\":null,\"b\":true}", "no json"]),
                ),
                1 => ("", ""),
                _ => ("", chance.pick(&["abc", "more than five", "{\"a\":1}"])),
            };
            let kind = if fields.contains("content-type") { "" } else { kind };
            scene.post(&path, &format!("{kind}{fields}"), body)
        }
        _ => scene.ask("GET", "test", &path, &fields),
    }
}
