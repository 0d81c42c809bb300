//! Headers that are changed or added: header_mutation, ip_tagging and cdn_loop.

use super::{filter, own, scope};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        header_mutation(),
        mutation_scopes("mutation-scopes", false),
        mutation_scopes("mutation-scopes-specific", true),
        matched(),
        commands(),
        ip_tagging(),
        ip_tagging_header(),
        cdn_loop(),
    ]
}

fn header_mutation() -> Scene {
    let add = |key: &str, value: &str, action: &str| json!({"append": {"header": {"key": key, "value": value}, "append_action": action}});
    let all = |who: &str| {
        json!([
            add("x-append", who, "APPEND_IF_EXISTS_OR_ADD"), add("x-add", who, "ADD_IF_ABSENT"), add("x-over", who, "OVERWRITE_IF_EXISTS_OR_ADD"),
            add("x-old", who, "OVERWRITE_IF_EXISTS"), {"remove": "x-gone"}, add("x-said", "%REQ(x-a)%", "APPEND_IF_EXISTS_OR_ADD"),
        ])
    };
    let fields = json!({"mutations": {"request_mutations": all("filter"), "response_mutations": all("filter")}});
    let per_route = json!({"mutations": {"request_mutations": all("route"), "response_mutations": all("route")}});
    Scene::filtered(
        "mutations",
        vec![filter("header_mutation", "HeaderMutation", fields)],
        json!([own("/own", "header_mutation", "HeaderMutationPerRoute", per_route)]),
    )
    .gets(&["/", "/own", "/?answer=fields"])
    .each("/", &["x-append: 1\r\nx-add: 1\r\nx-over: 1\r\nx-old: 1\r\nx-gone: 1\r\nx-a: said\r\n"])
    .each("/own", &["x-append: 1\r\nx-add: 1\r\nx-over: 1\r\nx-old: 1\r\nx-gone: 1\r\nx-a: said\r\n"])
}

fn append(key: &str, value: &str, action: &str) -> Value {
    json!({"append": {"header": {"key": key, "value": value}, "append_action": action}})
}

/// Everything that a scope can do, each with its own name in it.
fn edits(who: &str) -> Value {
    let list = json!([
        append("x-list", who, "APPEND_IF_EXISTS_OR_ADD"), append("x-one", who, "OVERWRITE_IF_EXISTS_OR_ADD"), append("x-first", who, "ADD_IF_ABSENT"),
        append("x-old", who, "OVERWRITE_IF_EXISTS"), {"remove": format!("x-no-{who}")}, append(&format!("x-no-{who}"), "again", "ADD_IF_ABSENT"),
    ]);
    json!({"mutations": {"request_mutations": list, "response_mutations": list}})
}

/// Filter, table, virtual host, route and weighted cluster.
fn mutation_scopes(name: &str, specific_wins: bool) -> Scene {
    let of = |who: &str| scope("header_mutation", "HeaderMutationPerRoute", edits(who));
    let mut cluster = json!({"name": "a", "weight": 1});
    overlay(&mut cluster, of("cluster"));
    let mut weighted =
        json!({"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": [cluster]}}});
    overlay(&mut weighted, of("route"));
    let mut own =
        json!({"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own"}}});
    overlay(&mut own, of("route"));
    let off = json!({"typed_per_filter_config": {"envoy.filters.http.header_mutation": {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true,
    }}});
    let mut edited = to_a("/edited", of("route"));
    let edit = json!([{"header": {"key": "x-list", "value": "by the router"}}]);
    overlay(
        &mut edited,
        json!({"request_headers_to_add": edit, "response_headers_to_add": edit, "response_headers_to_remove": ["x-one"]}),
    );
    let routes = json!([weighted, own, edited, to_a("/route", of("route")), to_a("/off", off), to_a("/", json!({}))]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, of("host"));
    let mut table =
        json!({"virtual_hosts": [host, {"name": "other", "domains": ["own.test"], "routes": [to_a("/", json!({}))]}]});
    overlay(&mut table, of("table"));
    let mut fields = edits("filter");
    fields["most_specific_header_mutations_wins"] = json!(specific_wins);
    let mut scene = Scene::with_table(name, vec![filter("header_mutation", "HeaderMutation", fields)], table);
    for path in ["/weighted", "/own", "/edited", "/route", "/off", "/"] {
        let lines = "x-old: 1\r\nx-list: 1\r\nx-no-route: 1\r\nx-no-host: 1\r\nx-no-filter: 1\r\n";
        scene = scene.get(path).get_with(path, lines).ask("GET", "own.test", path, lines);
        scene = scene.makes(path, "", &["200|x-old=1|x-list=1|x-first=1|x-no-route=1|x-no-host=1"]);
    }
    scene
}

/// Removal by patterns, and edits of trailers.
fn matched() -> Scene {
    let gone = |matcher: Value| json!({"remove_on_match": {"key_matcher": matcher}});
    let list = json!([
        gone(json!({"prefix": "x-secret"})),
        gone(json!({"suffix": "-gone"})),
        gone(json!({"exact": "X-Exact", "ignore_case": true})),
        gone(json!({"contains": "mid"})),
        gone(json!({"safe_regex": {"regex": "x-[0-9]+"}})),
        append("x-secret-new", "1", "ADD_IF_ABSENT"),
    ]);
    let trailers = json!([{"remove": "x-more"}, append("x-end", "2", "APPEND_IF_EXISTS_OR_ADD"), append("x-new", "%RESPONSE_CODE%", "ADD_IF_ABSENT")]);
    let fields = json!({"mutations": {
        "request_mutations": list, "response_mutations": list, "response_trailers_mutations": trailers, "request_trailers_mutations": trailers,
    }});
    Scene::filtered("mutations-matched", vec![filter("header_mutation", "HeaderMutation", fields)], json!([
        to_a("/", json!({"route": {"cluster": "trailers"}})),
    ]))
        .with(json!({"http_protocol_options": {"enable_trailers": true}}))
        .each("/", &["x-secret: 1\r\nx-secret-2: 2\r\nx-a-gone: 3\r\nx-exact: 4\r\na-mid-b: 5\r\nx-55: 6\r\nx-5a: 7\r\nX-Secret-3: 8\r\n"])
        .makes("/", "", &["200|x-secret=1|x-a-gone=2|X-EXACT=3|x-12=4|stays=5", "200|length=5|chunked=1|trailer-x-end=1|trailer-x-more=2"])
        .get("/")
}

/// Values with commands, empty ones and names in capitals.
fn commands() -> Scene {
    let texts = [
        "%REQ(x-a)%",
        "%REQ(x-a?x-b)%-%REQ(x-none)%",
        "%REQ(:path)%",
        "%REQ(:authority)%",
        "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        "%PROTOCOL%",
        "%ROUTE_NAME%",
        "%UPSTREAM_CLUSTER%",
        "%RESPONSE_CODE%",
        "%RESP(x-origin)%",
        "%%",
        "",
        "%DYNAMIC_METADATA(none:x)%",
        "%REQ(x-a):1%",
        "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
        "%FILTER_STATE(none:PLAIN)%",
        "%VIRTUAL_CLUSTER_NAME%",
        "%RESPONSE_FLAGS%",
    ];
    let list: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| append(&format!("X-C-{index}"), text, "APPEND_IF_EXISTS_OR_ADD"))
        .collect();
    let kept = json!({"append": {"header": {"key": "x-kept", "value": "%REQ(x-none)%"}, "keep_empty_value": true}});
    let list: Vec<Value> = list.into_iter().chain([kept]).collect();
    let fields = json!({"mutations": {"request_mutations": list, "response_mutations": list}});
    let own = json!({"match": {"prefix": "/own"}, "direct_response": {"status": 403}, "name": "named"});
    Scene::filtered("mutations-commands", vec![filter("header_mutation", "HeaderMutation", fields)], json!([own]))
        .gets(&["/p?q=1", "/own", "/?answer=404"])
        .each("/", &["x-a: abc\r\n", "x-b: b\r\n", "x-a: 1\r\nx-a: 2\r\n", "x-a:\r\n"])
}

fn tag(name: &str, networks: &[(&str, u32)]) -> Value {
    let network = |(prefix, length): &(&str, u32)| json!({"address_prefix": prefix, "prefix_len": length});
    json!({"ip_tag_name": name, "ip_list": networks.iter().map(network).collect::<Vec<_>>()})
}

fn tags(more: Value) -> Value {
    let mut fields = json!({"ip_tags": [
        tag("ten", &[("10.0.0.0", 8)]), tag("out", &[("9.9.9.0", 24), ("8.8.8.8", 32)]), tag("six", &[("2001:db8::", 32)]), tag("local", &[("127.0.0.0", 8)]),
    ]});
    overlay(&mut fields, more);
    filter("ip_tagging", "IPTagging", fields)
}

const CLIENTS: &[&str] = &[
    "10.1.2.3",
    "9.9.9.9",
    "8.8.8.8",
    "8.8.8.9",
    "2001:db8::1",
    "1.1.1.1",
    "10.1.2.3, 9.9.9.9",
    "rubbish",
    "10.1.2.3:80",
    "",
];

fn clients(scene: Scene) -> Scene {
    let said = ["", "x-envoy-ip-tags: own\r\nx-tag: own\r\nx-tag: two\r\n"];
    CLIENTS
        .iter()
        .fold(scene, |scene, client| {
            said.iter()
                .fold(scene, |scene, lines| scene.get_with("/", &format!("x-forwarded-for: {client}\r\n{lines}")))
        })
        .get("/")
}

/// The networks of clients in the usual header, by which a route goes.
fn ip_tagging() -> Scene {
    let by_tag = json!({"match": {"prefix": "/", "headers": [{"name": "x-envoy-ip-tags", "string_match": {"exact": "six"}}]},
        "direct_response": {"status": 200, "body": {"inline_string": "six"}}});
    clients(Scene::filtered("ip-tagging", vec![tags(json!({}))], json!([by_tag])))
}

fn ip_tagging_header() -> Scene {
    let header = |action: &str| json!({"ip_tag_header": {"header": "x-tag", "action": action}});
    let mut second = tags(
        json!({"ip_tag_header": {"header": "x-more", "action": "APPEND_IF_EXISTS_OR_ADD"}, "request_type": "EXTERNAL"}),
    );
    second["name"] = json!("second");
    clients(Scene::filtered("ip-tagging-header", vec![tags(header("SANITIZE")), second], json!([])))
}

fn cdn_loop() -> Scene {
    let filters =
        vec![filter("cdn_loop", "CdnLoopConfig", json!({"cdn_id": "edge.test", "max_allowed_occurrences": 1}))];
    Scene::filtered("cdn-loop", filters, json!([])).get("/").each(
        "/",
        &[
            "cdn-loop: edge.test\r\n",
            "cdn-loop: other\r\n",
            "cdn-loop: edge.test, edge.test\r\n",
            "cdn-loop: edge.test\r\ncdn-loop: edge.test\r\n",
            "cdn-loop: edge.test; v=\"1.0\", other;a=b\r\n",
            "cdn-loop: EDGE.test, edge.test\r\n",
            "cdn-loop: ,,edge.test\r\n",
            "cdn-loop:\r\n",
            "cdn-loop: \"bad\r\n",
            "cdn-loop: edge.test:80\r\n",
            "cdn-loop: [::1]\r\n",
            "cdn-loop: a b\r\n",
        ],
    )
}
