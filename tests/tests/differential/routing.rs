//! Which virtual host and route a request takes.

use crate::scene::{Scene, says};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        cookies(),
        templates(),
        hosts(),
        ports(),
        dots(),
        paths(),
        order(),
        headers(),
        queries(),
        hidden_hosts(),
        grpc(),
        normal(),
        slashes(),
    ]
}

fn host(name: &str, domains: &[&str]) -> Value {
    json!({"name": name, "domains": domains, "routes": [says(name, json!({}))]})
}

const HOSTS: &[&str] = &[
    "example.com",
    "EXAMPLE.com",
    "www.example.com",
    "example.com:8080",
    "example.com:8081",
    "[::1]:80",
    "[::1]",
    "a.example.com",
    "a.b.example.com",
    "a-api.example.com",
    "www.other.test",
    "www.shop.test",
    "elsewhere",
    "xexample.com",
    "www.",
    "www",
    "example.com.",
    "a.example.com:80",
    "127.0.0.1",
    "127.0.0.1:1",
    "sub.www.example.com",
];

fn all_hosts() -> Value {
    json!([
        host("any", &["*"]),
        host("suffix", &["*.example.com"]),
        host("longer-suffix", &["*-api.example.com"]),
        host("prefix", &["www.*"]),
        host("longer-prefix", &["www.shop.*"]),
        host("exact", &["example.com", "www.example.com"]),
        host("port", &["example.com:8080", "[::1]:80"]),
    ])
}

fn hosts() -> Scene {
    Scene::new("hosts", json!({"route_config": {"virtual_hosts": all_hosts()}}))
        .hosts(HOSTS)
        .raw("GET http://example.com/ HTTP/1.1\r\nhost: elsewhere\r\n\r\n")
        .raw("GET http://example.com:8080/x?y HTTP/1.1\r\nhost: elsewhere\r\n\r\n")
        .raw("GET http://example.com HTTP/1.1\r\nhost: elsewhere\r\n\r\n")
        .raw("GET http://example.com?x HTTP/1.1\r\nhost: elsewhere\r\n\r\n")
        .raw("GET https://example.com/x HTTP/1.1\r\nhost: elsewhere\r\n\r\n")
}

fn hidden_hosts() -> Scene {
    Scene::new("some-hosts", json!({"route_config": {"virtual_hosts": [
        {"name": "one", "domains": ["one.test"], "routes": [says("one", json!({"prefix": "/a"}))]},
        {"name": "tls", "domains": ["tls.test"], "require_tls": "ALL", "routes": [says("tls", json!({}))]},
        {"name": "outside", "domains": ["outside.test"], "require_tls": "EXTERNAL_ONLY", "routes": [says("outside", json!({}))]},
    ]}}))
    .hosts(&["one.test", "two.test", "tls.test", "tls.test:80", "outside.test"])
    .ask("GET", "one.test", "/abc", "")
    .ask("POST", "tls.test", "/abc?d=e", "content-length: 0\r\n")
}

fn ports() -> Scene {
    Scene::new("ports", json!({"strip_any_host_port": true, "route_config": {"virtual_hosts": all_hosts()}}))
        .hosts(HOSTS)
}

fn dots() -> Scene {
    Scene::new(
        "dots",
        json!({
            "strip_trailing_host_dot": true,
            "route_config": {"ignore_port_in_host_matching": true, "virtual_hosts": all_hosts()},
        }),
    )
    .hosts(HOSTS)
    .hosts(&["example.com.:80", "www.example.com.", "..", "example.com.."])
}

fn paths() -> Scene {
    Scene::routes(
        "paths",
        json!([
            says("whole", json!({"path": "/exact"})),
            says("separated", json!({"path_separated_prefix": "/api"})),
            says("regex", json!({"safe_regex": {"regex": "/r/[0-9]+(/.*)?"}})),
            says("folded", json!({"prefix": "/CaSe", "case_sensitive": false})),
            says("folded-whole", json!({"path": "/Whole", "case_sensitive": false})),
            says("folded-separated", json!({"path_separated_prefix": "/SEP", "case_sensitive": false})),
            says("encoded", json!({"prefix": "/%41"})),
            says("prefix", json!({"prefix": "/pre"})),
            says("words", json!({"safe_regex": {"regex": "/w/\\w+\\.(?i:html)"}})),
        ]),
    )
    .gets(&[
        "/exact",
        "/exact?q=1",
        "/exact/",
        "/exac",
        "/EXACT",
        "/api",
        "/api?x",
        "/api/x",
        "/apix",
        "/api/",
        "/api#f",
        "/r/12",
        "/r/12?x=y",
        "/r/12/more",
        "/r/12x",
        "/x/r/12",
        "/cAsE/x",
        "/wHOLE",
        "/sep/x",
        "/sepx",
        "/%41",
        "/A",
        "/prefixed",
        "/Pre",
        "/pre?a=b&c",
        "/w/some.HTML",
        "/w/some.htm",
        "/",
        "//exact",
        "/exact?",
        "/exact%3Fa",
        "/pre%20x",
    ])
    .ask("OPTIONS", "test", "*", "")
    .ask("GET", "test", "*", "")
    .ask("HEAD", "test", "/exact", "")
    .ask("PURGE", "test", "/exact", "")
}

fn order() -> Scene {
    Scene::routes("order", json!([
        says("header", json!({"prefix": "/a", "headers": [{"name": "x-v", "string_match": {"exact": "2"}}]})),
        says("short", json!({"prefix": "/a"})),
        says("long", json!({"prefix": "/a/b/c"})),
        says("method", json!({"headers": [{"name": ":method", "string_match": {"exact": "PUT"}}]})),
        says("authority", json!({"headers": [{"name": ":authority", "string_match": {"suffix": "st2"}}]})),
        says("scheme", json!({"prefix": "/scheme", "headers": [{"name": ":scheme", "string_match": {"exact": "http"}}]})),
        says("path", json!({"headers": [{"name": ":path", "string_match": {"contains": "?find"}}]})),
        says("runtime", json!({"prefix": "/r", "runtime_fraction": {"default_value": {"numerator": 0}, "runtime_key": "none"}})),
        says("runtime-all", json!({"prefix": "/r", "runtime_fraction": {"default_value": {"numerator": 100}, "runtime_key": "none"}})),
    ]))
    .gets(&["/a", "/a/b/c", "/scheme", "/x?find", "/r", "/none"])
    .get_with("/a", "x-v: 2\r\n")
    .get_with("/a", "X-V:2\r\n")
    .ask("PUT", "test", "/z", "content-length: 0\r\n")
    .ask("GET", "test2", "/z", "")
}

fn headers() -> Scene {
    let matchers = [
        ("exact", json!({"string_match": {"exact": "abc"}})),
        ("exact-folded", json!({"string_match": {"exact": "AbC", "ignore_case": true}})),
        ("prefix", json!({"string_match": {"prefix": "ab"}})),
        ("suffix", json!({"string_match": {"suffix": "bc"}})),
        ("contains", json!({"string_match": {"contains": "b"}})),
        ("contains-folded", json!({"string_match": {"contains": "B", "ignore_case": true}})),
        ("regex", json!({"string_match": {"safe_regex": {"regex": "a.c"}}})),
        ("range", json!({"range_match": {"start": -5, "end": 10}})),
        ("present", json!({"present_match": true})),
        ("absent", json!({"present_match": false})),
        ("not-present", json!({"present_match": true, "invert_match": true})),
        ("not-exact", json!({"string_match": {"exact": "abc"}, "invert_match": true})),
        ("not-range", json!({"range_match": {"start": 0, "end": 10}, "invert_match": true})),
        ("empty", json!({"string_match": {"exact": ""}, "treat_missing_header_as_empty": true})),
        (
            "not-empty",
            json!({"string_match": {"exact": ""}, "treat_missing_header_as_empty": true, "invert_match": true}),
        ),
        ("bare", json!({})),
        ("old-exact", json!({"exact_match": "abc"})),
        ("old-prefix", json!({"prefix_match": "ab"})),
        ("old-regex", json!({"safe_regex_match": {"regex": "ab?c"}})),
        ("old-contains", json!({"contains_match": "b"})),
    ];
    let route = |(name, matcher): &(&str, Value)| {
        let mut matcher = matcher.clone();
        matcher["name"] = json!("x-h");
        says(name, json!({"path": format!("/{name}"), "headers": [matcher]}))
    };
    let mut scene = Scene::routes("headers", Value::Array(matchers.iter().map(route).collect()));
    let lines = [
        "",
        "x-h: abc\r\n",
        "x-h: ABC\r\n",
        "x-h:\r\n",
        "x-h: 7\r\n",
        "x-h: 10\r\n",
        "x-h: -5\r\n",
        "x-h: abc\r\nX-H: x\r\n",
    ];
    for (name, _) in &matchers {
        scene = scene.each(&format!("/{name}"), &lines);
    }
    scene.each(
        "/range",
        &["x-h: 9x\r\n", "x-h: +1\r\n", "x-h: 1.5\r\n", "x-h: 99999999999999999999\r\n", "x-h:  3 \r\n"],
    )
}

fn queries() -> Scene {
    let one =
        |name: &str, matcher: Value| says(name, json!({"path": format!("/{name}"), "query_parameters": [matcher]}));
    let mut scene = Scene::routes(
        "queries",
        json!([
            one("exact", json!({"name": "q", "string_match": {"exact": "v"}})),
            one("present", json!({"name": "q", "present_match": true})),
            one("absent", json!({"name": "q", "present_match": false})),
            one("bare", json!({"name": "q"})),
            one("regex", json!({"name": "q", "string_match": {"safe_regex": {"regex": "v+"}}})),
            one("prefix", json!({"name": "q", "string_match": {"prefix": "v", "ignore_case": true}})),
            says(
                "two",
                json!({"path": "/two", "query_parameters": [{"name": "q"}, {"name": "r", "string_match": {"exact": "1"}}]})
            ),
        ]),
    );
    for name in ["exact", "present", "absent", "bare", "regex", "prefix", "two"] {
        for query in [
            "", "?", "?q", "?q=", "?q=v", "?q=vv", "?q=V", "?Q=v", "?r=1&q=v", "?q=x&q=v", "?q=%76", "?q=v#f",
            "?q=v;r=1", "?&&q=v&",
        ] {
            scene = scene.get(&format!("/{name}{query}"));
        }
    }
    scene
}

fn grpc() -> Scene {
    Scene::routes("grpc", json!([says("grpc", json!({"grpc": {}})), says("rest", json!({}))])).each(
        "/p.S/M",
        &[
            "",
            "content-type: application/grpc\r\n",
            "content-type: application/grpc+proto\r\n",
            "content-type: application/grpc-web\r\n",
            "content-type: Application/grpc\r\n",
            "content-type: application/grpc; charset=x\r\n",
        ],
    )
}

fn normal() -> Scene {
    let routes = json!([
        {"match": {"path": "/admin"}, "route": {"cluster": "a"}},
        {"match": {"prefix": "/x"}, "route": {"cluster": "b"}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 404, "body": {"inline_string": "rest"}}},
    ]);
    Scene::routes("normal", routes).with(json!({"normalize_path": true, "merge_slashes": true})).gets(&[
        "/admin",
        "/x/../admin",
        "/x/./y",
        "//admin",
        "/x//y",
        "/%61dmin",
        "/x/%2e%2e/admin",
        "/x/..",
        "/x/.",
        "/..",
        "/../../admin",
        "/x/../",
        "/x%2Fy",
        "/x/%2F/",
        "/x/y?a=/../b//c",
        "/x/a%7Eb",
        "/x/a%2db",
        "/x/%C3%A9",
        "/x/;p/y",
        "/x/a;b=c",
        "/x/...",
        "/x/..a",
        "/x///",
        "/x/%20",
    ])
}

fn slashes() -> Scene {
    // Two managers cannot share a scene: the one that decodes stands here, the others in `forwarding`.
    let routes = json!([{"match": {"prefix": "/a/b"}, "route": {"cluster": "a"}}, {"match": {"prefix": "/"}, "route": {"cluster": "b"}}]);
    Scene::routes("slashes", routes).with(json!({"path_with_escaped_slashes_action": "UNESCAPE_AND_FORWARD"})).gets(&[
        "/a%2Fb",
        "/a%2fb?c=%2F",
        "/a%5Cb",
        "/a%5cb",
        "/a%252Fb",
        "/a/b",
        "/a%2F",
    ])
}

fn cookies() -> Scene {
    let one = |name: &str, matcher: Value| says(name, json!({"path": format!("/{name}"), "cookies": [matcher]}));
    let mut scene = Scene::routes(
        "cookies",
        json!([
            one("exact", json!({"name": "c", "string_match": {"exact": "v"}})),
            one("not", json!({"name": "c", "string_match": {"exact": "v"}, "invert_match": true})),
            one("prefix", json!({"name": "c", "string_match": {"prefix": "v"}})),
        ]),
    );
    for name in ["exact", "not", "prefix"] {
        scene = scene.each(
            &format!("/{name}"),
            &[
                "",
                "cookie: c=v\r\n",
                "cookie: a=b; c=v\r\n",
                "cookie: c=w\r\n",
                "cookie: c=\"v\"\r\n",
                "cookie: a=b\r\ncookie: c=v\r\n",
                "cookie: c=vv;c=v\r\n",
                "cookie: C=v\r\n",
                "cookie: c\r\n",
                "cookie: c= v\r\n",
            ],
        );
    }
    scene
}

fn templates() -> Scene {
    let template = |pattern: &str| {
        json!({"path_match_policy": {
            "name": "envoy.path.match.uri_template.uri_template_matcher",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig",
                "path_template": pattern,
            },
        }})
    };
    Scene::routes(
        "templates",
        json!([
            {"name": "one", "match": template("/t/{name}/end"), "direct_response": {"status": 200}},
            {"name": "rest", "match": template("/u/{rest=**}"), "direct_response": {"status": 201}},
            {"name": "star", "match": template("/v/*/x"), "direct_response": {"status": 202}},
        ]),
    )
    .gets(&[
        "/t/a/end",
        "/t/a/b/end",
        "/t//end",
        "/t/a/end/",
        "/t/a/end?q",
        "/u/",
        "/u",
        "/u/a",
        "/u/a/b.c",
        "/v/q/x",
        "/v/q/y",
        "/t/%41/end",
    ])
}
