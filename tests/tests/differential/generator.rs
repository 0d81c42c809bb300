//! Route tables and requests by chance, from a seed: valid for both proxies, and small enough in their words that requests
//! often meet what the tables ask for.

use crate::scene::Scene;
pub use postrider_tests::chance::Chance;
use serde_json::{Map, Value, json};

const HOSTS: &[&str] = &["a.test", "b.test", "www.a.test", "api.b.test", "a.test:8080", "c.d.test"];
const DOMAINS: &[&str] =
    &["a.test", "b.test", "*.test", "*.a.test", "www.*", "api.*", "a.test:8080", "*.d.test", "*-x.test"];
const SEGMENTS: &[&str] = &["a", "b", "ab", "A", "v1", "x.y", "a-b", "%41", "1", "12"];
const FIELDS: &[&str] = &["x-a", "x-b", "x-c", "x-d"];
const VALUES: &[&str] = &["a", "b", "ab", "1", "12", "-3", "A", "abc", ""];
const NAMES: &[&str] = &["q", "r", "s"];
const METHODS: &[&str] = &["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE"];
const REGEXES: &[&str] = &["/a/.*", "/[ab]+/?.*", "/.*/v1", "/(a|b)/[0-9]+", "/x\\.y.*", "/.*"];
const VALUE_REGEXES: &[&str] = &["a.*", "[0-9]+", "(a|b)", ".*b", "-?[0-9]{1,2}"];
const COMMANDS: &[&str] =
    &["plain", "%REQ(x-a)%", "%REQ(:path)%", "%PROTOCOL%", "%REQ(x-none?x-b)%", "100%%", "%ROUTE_NAME%-%REQ(:method)%"];

/// One listener with a table of its own, and as many requests.
pub fn scene(seed: u64, requests: usize) -> Scene {
    let mut chance = Chance::new(seed);
    let mut domains: Vec<&str> = DOMAINS.to_vec();
    let mut hosts = Vec::new();
    for index in 0..1 + chance.below(3) {
        let own: Vec<&str> = (0..1 + chance.below(2)).map(|_| domains.remove(chance.below(domains.len()))).collect();
        hosts.push(virtual_host(&mut chance, &format!("v{index}"), &own));
    }
    if chance.percent(80) {
        hosts.push(virtual_host(&mut chance, "rest", &["*"]));
    }
    let mut table = json!({"virtual_hosts": hosts, "most_specific_header_mutations_wins": chance.percent(30)});
    edits(&mut chance, table.as_object_mut().expect("a table"), 30);
    if chance.percent(20) {
        table["ignore_port_in_host_matching"] = json!(true);
    }
    let mut manager = json!({"route_config": table});
    manager["normalize_path"] = json!(chance.percent(30));
    manager["merge_slashes"] = json!(chance.percent(30));
    let mut scene = Scene::new(&format!("random-{seed}"), manager);
    for _ in 0..requests {
        scene = request(&mut chance, scene);
    }
    scene
}

fn virtual_host(chance: &mut Chance, name: &str, domains: &[&str]) -> Value {
    let routes: Vec<Value> = (0..2 + chance.below(7)).map(|index| route(chance, &format!("{name}-r{index}"))).collect();
    let mut host = json!({"name": name, "domains": domains, "routes": routes});
    edits(chance, host.as_object_mut().expect("a host"), 30);
    if chance.percent(15) {
        host["include_request_attempt_count"] = json!(true);
    }
    host
}

fn route(chance: &mut Chance, name: &str) -> Value {
    let mut matcher = Map::new();
    let kind = chance.below(5);
    match kind {
        0 => matcher.insert("path".into(), json!(path(chance, 3))),
        1 => matcher.insert("safe_regex".into(), json!({"regex": chance.pick(REGEXES)})),
        2 => matcher.insert("path_separated_prefix".into(), json!(path(chance, 2))),
        _ => matcher.insert("prefix".into(), json!(if chance.percent(30) { "/".to_owned() } else { path(chance, 2) })),
    };
    if kind != 1 && chance.percent(20) {
        matcher.insert("case_sensitive".into(), json!(false));
    }
    if chance.percent(35) {
        let headers: Vec<Value> = (0..1 + chance.below(2)).map(|_| header_matcher(chance)).collect();
        matcher.insert("headers".into(), Value::Array(headers));
    }
    if chance.percent(20) {
        matcher.insert("query_parameters".into(), json!([query_matcher(chance)]));
    }
    let mut route = json!({"name": name, "match": matcher});
    match chance.below(10) {
        0 => route["redirect"] = redirect(chance),
        1 => {
            let status = [200, 204, 403, 404, 500][chance.below(5)];
            route["direct_response"] = json!({"status": status});
            if status != 204 && chance.percent(50) {
                route["direct_response"]["body"] = json!({"inline_string": format!("from {name}")});
            }
        }
        _ => route["route"] = forward(chance, kind == 1),
    }
    edits(chance, route.as_object_mut().expect("a route"), 40);
    route
}

fn path(chance: &mut Chance, longest: usize) -> String {
    (0..1 + chance.below(longest)).map(|_| format!("/{}", chance.pick(&SEGMENTS[..7]))).collect()
}

fn string_matcher(chance: &mut Chance) -> Value {
    let value = chance.pick(&VALUES[..8]);
    let mut matcher = match chance.below(5) {
        0 => json!({"prefix": value}),
        1 => json!({"suffix": value}),
        2 => json!({"contains": value}),
        3 => return json!({"safe_regex": {"regex": chance.pick(VALUE_REGEXES)}}),
        _ => json!({"exact": value}),
    };
    if chance.percent(25) {
        matcher["ignore_case"] = json!(true);
    }
    matcher
}

fn header_matcher(chance: &mut Chance) -> Value {
    let name = if chance.percent(12) { chance.pick(&[":method", ":authority", ":path"]) } else { chance.pick(FIELDS) };
    let mut matcher = json!({"name": name});
    match chance.below(5) {
        0 => matcher["present_match"] = json!(chance.percent(70)),
        1 if !name.starts_with(':') => {
            let start = i64::try_from(chance.below(10)).expect("small") - 5;
            matcher["range_match"] =
                json!({"start": start, "end": start + 1 + i64::try_from(chance.below(12)).expect("small")});
        }
        _ => matcher["string_match"] = string_matcher(chance),
    }
    if chance.percent(25) {
        matcher["invert_match"] = json!(true);
    }
    if chance.percent(15) {
        matcher["treat_missing_header_as_empty"] = json!(true);
    }
    matcher
}

fn query_matcher(chance: &mut Chance) -> Value {
    let name = chance.pick(NAMES);
    if chance.percent(40) {
        return json!({"name": name, "present_match": chance.percent(70)});
    }
    json!({"name": name, "string_match": string_matcher(chance)})
}

fn redirect(chance: &mut Chance) -> Value {
    let mut redirect = Map::new();
    match chance.below(4) {
        0 => redirect.insert("path_redirect".into(), json!(path(chance, 2))),
        1 => redirect.insert("prefix_rewrite".into(), json!(path(chance, 2))),
        _ => None,
    };
    if chance.percent(40) {
        redirect.insert("host_redirect".into(), json!(chance.pick(HOSTS)));
    }
    if chance.percent(30) {
        redirect.insert("https_redirect".into(), json!(true));
    }
    if chance.percent(25) {
        redirect.insert("port_redirect".into(), json!([80, 443, 8443][chance.below(3)]));
    }
    if chance.percent(25) {
        redirect.insert("strip_query".into(), json!(true));
    }
    if chance.percent(40) {
        redirect.insert(
            "response_code".into(),
            json!(chance.pick(&["FOUND", "SEE_OTHER", "TEMPORARY_REDIRECT", "PERMANENT_REDIRECT"])),
        );
    }
    Value::Object(redirect)
}

fn forward(chance: &mut Chance, regex: bool) -> Value {
    let mut forward = Map::new();
    match chance.below(6) {
        0 => forward.insert("cluster".into(), json!("b")),
        1 => forward.insert("cluster_header".into(), json!("x-cluster")),
        2 => {
            let clusters = json!([{"name": "a", "weight": 0}, {"name": "b", "weight": 10}]);
            forward.insert("weighted_clusters".into(), json!({"clusters": clusters}))
        }
        _ => forward.insert("cluster".into(), json!("a")),
    };
    match chance.below(6) {
        0 if !regex => forward.insert("prefix_rewrite".into(), json!(path(chance, 2))),
        1 => forward.insert(
            "regex_rewrite".into(),
            json!({"pattern": {"regex": chance.pick(&["^/([^/]+)/(.*)$", "a", "/v1", "b$"])}, "substitution": chance.pick(&["/\\0", "/z", "/new"])}),
        ),
        _ => None,
    };
    if chance.percent(15) {
        forward.insert("host_rewrite_literal".into(), json!(chance.pick(HOSTS)));
    }
    if chance.percent(10) {
        forward.insert("timeout".into(), json!("7s"));
    }
    Value::Object(forward)
}

/// Edits of fields for a route, a virtual host or a table.
fn edits(chance: &mut Chance, into: &mut Map<String, Value>, share: usize) {
    for side in ["request", "response"] {
        if chance.percent(share) {
            let list: Vec<Value> = (0..1 + chance.below(3)).map(|_| edit(chance)).collect();
            into.insert(format!("{side}_headers_to_add"), Value::Array(list));
        }
        if chance.percent(share / 2) {
            into.insert(format!("{side}_headers_to_remove"), json!([chance.pick(FIELDS)]));
        }
    }
}

fn edit(chance: &mut Chance) -> Value {
    let action =
        chance.pick(&["APPEND_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT", "OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS"]);
    let mut edit =
        json!({"header": {"key": chance.pick(FIELDS), "value": chance.pick(COMMANDS)}, "append_action": action});
    if chance.percent(15) {
        edit["keep_empty_value"] = json!(true);
    }
    edit
}

fn request(chance: &mut Chance, scene: Scene) -> Scene {
    let mut target: String = (0..1 + chance.below(3)).map(|_| format!("/{}", chance.pick(SEGMENTS))).collect();
    match chance.below(12) {
        0 => target.push('/'),
        1 => target.insert(0, '/'),
        2 => target.push_str("/../a"),
        3 => target.push_str("/./b"),
        4 => target = "/".to_owned(),
        _ => {}
    }
    if chance.percent(35) {
        let pair = |chance: &mut Chance| match chance.pick(VALUES) {
            "" => chance.pick(NAMES).to_owned(),
            value => format!("{}={value}", chance.pick(NAMES)),
        };
        let pairs: Vec<String> = (0..1 + chance.below(2)).map(|_| pair(chance)).collect();
        target = format!("{target}?{}", pairs.join("&"));
    }
    let mut fields = String::new();
    for _ in 0..chance.below(4) {
        fields += &format!("{}: {}\r\n", chance.pick(FIELDS), chance.pick(VALUES));
    }
    if chance.percent(40) {
        fields += &format!("x-cluster: {}\r\n", chance.pick(&["a", "b", "nobody"]));
    }
    if chance.percent(15) {
        fields +=
            &format!("x-answer: {}\r\n", chance.pick(&["204", "304", "404", "503", "chunked", "big", "location"]));
    }
    let (method, host) = (chance.pick(METHODS), chance.pick(HOSTS));
    let body = match method {
        "POST" | "PUT" if chance.percent(70) => "some text",
        "POST" | "PUT" => "",
        _ => return scene.ask(method, host, &target, &fields),
    };
    fields += &format!("content-length: {}\r\n", body.len());
    scene.raw(format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n{body}"))
}
