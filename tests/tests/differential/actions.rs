//! What a route does: redirects, answers of its own, rewrites, edits of fields, the choice of a cluster.

use crate::scene::{Scene, to_a};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        internal_redirects(),
        mapper(),
        redirects(),
        direct(),
        rewrites(),
        host_rewrites(),
        actions(),
        commands(),
        levels(),
        levels_reversed(),
        removals(),
        removed_beside_additions(),
        clusters(),
        attempts(),
        policies(),
        forwarded_hosts(),
        local_answers(),
        weighted(),
    ]
}

fn forwarded_hosts() -> Scene {
    let told = json!({"route": {"host_rewrite_literal": "new.test", "append_x_forwarded_host": true}});
    Scene::routes("forwarded-hosts", json!([to_a("/", told)])).each(
        "/",
        &[
            "",
            "x-forwarded-host: test\r\n",
            "x-forwarded-host: before, test\r\n",
            "x-forwarded-host: before,test\r\n",
            "x-forwarded-host: one\r\nx-forwarded-host: two\r\n",
            "x-forwarded-host:\r\n",
            "x-envoy-original-host: mine\r\n",
        ],
    )
}

/// What the proxy answers itself, and what routes say about the fields of answers.
fn local_answers() -> Scene {
    let edit = |level: &str| json!([{"header": {"key": format!("x-{level}"), "value": "%UPSTREAM_CLUSTER%:%RESPONSE_CODE_DETAILS%"}}]);
    let route = |prefix: &str, action: Value| {
        let mut route = json!({"match": {"prefix": prefix}, "response_headers_to_add": edit("route")});
        postrider_tests::kit::config::overlay(&mut route, action);
        route
    };
    let late = |fields: Value| {
        let mut action = json!({"cluster": "a"});
        postrider_tests::kit::config::overlay(&mut action, fields);
        json!({"route": action})
    };
    Scene::new("local-answers", json!({"request_timeout": "0.3s", "route_config": {
        "response_headers_to_add": edit("config"),
        "virtual_hosts": [
            {"name": "tls", "domains": ["tls.test"], "require_tls": "ALL", "response_headers_to_add": edit("vhost"),
             "routes": [route("/", late(json!({})))]},
            {"name": "all", "domains": ["*"], "response_headers_to_add": edit("vhost"), "routes": [
                route("/direct", json!({"direct_response": {"status": 200}})),
                route("/redirect", json!({"redirect": {"host_redirect": "new.test"}})),
                route("/header", json!({"route": {"cluster_header": "x-cluster"}})),
                route("/down", json!({"route": {"cluster": "down"}})),
                route("/empty", json!({"route": {"cluster": "empty"}})),
                route("/closed", json!({"route": {"cluster": "closed"}})),
                route("/timeout", late(json!({"timeout": "0.1s"}))),
                route("/try", late(json!({"retry_policy": {"num_retries": 0, "per_try_timeout": "0.1s"}}))),
                route("/idle", late(json!({"timeout": "0s", "idle_timeout": "0.1s"}))),
                route("/weighted", json!({"route": {"weighted_clusters": {"clusters": [
                    {"name": "down", "weight": 1, "response_headers_to_add": edit("weight"), "response_headers_to_remove": ["x-gone"]},
                ]}}})),
                route("/a", late(json!({}))),
            ]},
        ],
    }}))
    .gets(&["/direct", "/redirect", "/header", "/none", "/down", "/empty", "/closed", "/weighted"])
    .get_with("/header", "x-cluster: nope\r\n")
    .answers("/timeout", &["silent"])
    .answers("/try", &["silent"])
    .answers("/idle", &["silent"])
    .answers("/a", &["hangup", "reset", "garbage"])
    .get_with("/a", "connection: upgrade\r\nupgrade: odd\r\n")
    .ask("GET", "tls.test", "/a", "")
    .raw("POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nabc")
    .raw("GET /a HTTP/1.1\r\n\r\n")
}

/// Weighted clusters that the client's number chooses among, with edits of their own.
fn weighted() -> Scene {
    let edit = |name: &str| {
        json!([
            {"header": {"key": "x-weight", "value": name}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
            {"header": {"key": "x-list", "value": name}},
        ])
    };
    let cluster = |name: &str, weight: u32| {
        json!({"name": name, "weight": weight, "request_headers_to_add": edit(name), "response_headers_to_add": edit(name),
            "request_headers_to_remove": [format!("x-gone-{name}")], "response_headers_to_remove": ["x-origin"]})
    };
    let mut named = cluster("b", 70);
    named["host_rewrite_literal"] = json!("b.test");
    let mut scene = Scene::routes(
        "weighted",
        json!([
            to_a(
                "/a/",
                json!({"request_headers_to_add": edit("route"), "response_headers_to_add": edit("route"), "route": {
                    "cluster": null, "prefix_rewrite": "/", "weighted_clusters": {"header_name": "x-number", "clusters": [cluster("a", 30), named]},
                }})
            ),
            to_a("/", json!({})),
        ]),
    );
    for number in ["0", "29", "30", "99", "100", "130", "18446744073709551615", "29 "] {
        scene =
            scene.get_with("/a/x", &format!("x-number: {number}\r\nx-gone-a: 1\r\nx-gone-b: 1\r\nx-list: mine\r\n"));
    }
    scene.get("/x").answers("/a/x?y", &[])
}

fn redirects() -> Scene {
    let redirects = json!({
        "/host": {"host_redirect": "new.test"},
        "/host-port": {"host_redirect": "new.test:81"},
        "/path": {"path_redirect": "/there"},
        "/pathq": {"path_redirect": "/there?z=2"},
        "/prefix": {"prefix_rewrite": "/p"},
        "/prefix-root": {"prefix_rewrite": "/"},
        "/https": {"https_redirect": true},
        "/scheme": {"scheme_redirect": "https"},
        "/other-scheme": {"scheme_redirect": "ftp"},
        "/port": {"port_redirect": 8443},
        "/port-80": {"port_redirect": 80},
        "/strip": {"strip_query": true, "path_redirect": "/s"},
        "/strip-only": {"strip_query": true, "host_redirect": "s.test"},
        "/302": {"host_redirect": "h", "response_code": "FOUND"},
        "/303": {"host_redirect": "h", "response_code": "SEE_OTHER"},
        "/307": {"host_redirect": "h", "response_code": "TEMPORARY_REDIRECT"},
        "/308": {"host_redirect": "h", "response_code": "PERMANENT_REDIRECT"},
        "/all": {"scheme_redirect": "https", "host_redirect": "h", "port_redirect": 1, "prefix_rewrite": "/z"},
        "/https-port": {"https_redirect": true, "port_redirect": 443},
        "/https-host": {"https_redirect": true, "host_redirect": "h.test"},
        "/regex": {"regex_rewrite": {"pattern": {"regex": "^/regex/(.*)$"}, "substitution": "/\\1/end"}},
        "/nothing": {},
    });
    let routes = redirects.as_object().expect("a table").iter();
    let routes: Vec<Value> = routes
        .map(|(prefix, redirect)| json!({"name": prefix, "match": {"path_separated_prefix": prefix}, "redirect": redirect}))
        .collect();
    let paths: Vec<String> = redirects.as_object().expect("a table").keys().cloned().collect();
    let mut scene = Scene::routes("redirects", Value::Array(routes));
    for path in paths {
        scene = scene
            .get(&format!("{path}/x?q=1"))
            .ask("GET", "test:80", &path, "")
            .ask("GET", "test:8080", &path, "x-forwarded-proto: https\r\n")
            .ask("GET", "test:443", &path, "x-forwarded-proto: https\r\n")
            .ask("POST", "[::1]:80", &path, "content-length: 0\r\n");
    }
    scene
}

fn direct() -> Scene {
    Scene::routes("direct", json!([
        {"match": {"path": "/text"}, "direct_response": {"status": 418, "body": {"inline_string": "teapot"}},
         "response_headers_to_add": [{"header": {"key": "x-a", "value": "b"}}]},
        {"match": {"path": "/typed"}, "direct_response": {"status": 200, "body": {"inline_string": "{}"}},
         "response_headers_to_add": [{"header": {"key": "content-type", "value": "application/json"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]},
        {"match": {"path": "/bytes"}, "direct_response": {"status": 200, "body": {"inline_bytes": "aGk="}}},
        {"match": {"path": "/empty"}, "direct_response": {"status": 204}},
        {"match": {"path": "/304"}, "direct_response": {"status": 304}},
        {"match": {"path": "/500"}, "direct_response": {"status": 500}},
        {"match": {"path": "/599"}, "direct_response": {"status": 599, "body": {"inline_string": "x"}}},
        {"match": {"path": "/location"}, "direct_response": {"status": 201}, "response_headers_to_add": [{"header": {"key": "location", "value": "/there"}}]},
    ]))
    .gets(&["/text", "/text?x", "/typed", "/bytes", "/empty", "/304", "/500", "/599", "/location", "/none"])
    .ask("HEAD", "test", "/text", "")
    .ask("HEAD", "test", "/none", "")
    .post("/text", "", "with a body")
    .post("/none", "", "with a body")
    .get_with("/text", "accept: application/json\r\nconnection: close\r\n")
    .get_with("/text", "content-type: application/grpc\r\n")
    .get_with("/none", "content-type: application/grpc\r\n")
}

fn rewrites() -> Scene {
    let regex = |pattern: &str, to: &str| json!({"route": {"regex_rewrite": {"pattern": {"regex": pattern}, "substitution": to}}});
    Scene::routes(
        "rewrites",
        json!([
            to_a("/prefix/", json!({"route": {"prefix_rewrite": "/p/"}})),
            to_a("/root", json!({"route": {"prefix_rewrite": "/"}})),
            to_a("/longer", json!({"route": {"prefix_rewrite": "/longer/and/longer"}})),
            {"match": {"path": "/whole"}, "route": {"cluster": "a", "prefix_rewrite": "/other"}},
            {"match": {"path_separated_prefix": "/sep"}, "route": {"cluster": "a", "prefix_rewrite": "/s"}},
            {"match": {"prefix": "/FOLD", "case_sensitive": false}, "route": {"cluster": "a", "prefix_rewrite": "/f"}},
            {"match": {"safe_regex": {"regex": "/re/.*"}}, "route": {"cluster": "a", "prefix_rewrite": "/whole-path"}},
            to_a("/swap", regex("^/swap/([^/]+)/([^/]+)$", "/\\2/\\1")),
            to_a("/every", regex("a", "b")),
            to_a("/drop", regex("/drop(.*)", "\\1")),
            to_a("/group", regex("/group", "/\\0/x")),
        ]),
    )
    .gets(&[
        "/prefix/x",
        "/prefix/x?q=1",
        "/prefix/",
        "/root",
        "/root/x",
        "/rootx?y",
        "/longer?",
        "/whole",
        "/whole?a=b",
        "/sep",
        "/sep/x",
        "/sep?x",
        "/fOLd/x",
        "/re/x?y=z",
        "/swap/1/2",
        "/swap/1/2?q=/3",
        "/swap/1",
        "/every/a/aa?a",
        "/drop/x?y",
        "/drop/%41",
        "/group/y",
        "/prefix/%2F?%2F",
    ])
}

fn host_rewrites() -> Scene {
    Scene::routes("host-rewrites", json!([
        to_a("/literal", json!({"route": {"host_rewrite_literal": "new.test:81"}})),
        to_a("/header", json!({"route": {"host_rewrite_header": "x-host"}})),
        to_a("/path/", json!({"route": {"host_rewrite_path_regex": {"pattern": {"regex": "^/path/([a-z.]+).*$"}, "substitution": "\\1"}}})),
        to_a("/told", json!({"route": {"host_rewrite_literal": "new.test", "append_x_forwarded_host": true}})),
        to_a("/auto", json!({"route": {"auto_host_rewrite": true}})),
        to_a("/keep", json!({})),
    ]))
    .gets(&["/literal", "/header", "/path/some.test/x?y", "/path/123", "/told", "/auto", "/keep"])
    .get_with("/header", "x-host: from.header\r\n")
    .get_with("/header", "x-host: \r\n")
    .get_with("/told", "x-forwarded-host: before\r\n")
}

fn actions() -> Scene {
    let edits = |key: &str| {
        json!([
            {"header": {"key": format!("{key}-append"), "value": "new"}, "append_action": "APPEND_IF_EXISTS_OR_ADD"},
            {"header": {"key": format!("{key}-add"), "value": "new"}, "append_action": "ADD_IF_ABSENT"},
            {"header": {"key": format!("{key}-overwrite"), "value": "new"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
            {"header": {"key": format!("{key}-replace"), "value": "new"}, "append_action": "OVERWRITE_IF_EXISTS"},
            {"header": {"key": format!("{key}-empty"), "value": ""}},
            {"header": {"key": format!("{key}-kept"), "value": ""}, "keep_empty_value": true},
            {"header": {"key": format!("{key}-old"), "value": "new"}, "append": false},
            {"header": {"key": format!("{key}-old-append"), "value": "new"}, "append": true},
        ])
    };
    let present = "x-append: 1\r\nx-add: 1\r\nX-Overwrite: 1\r\nx-overwrite: 2\r\nx-replace: 1\r\nx-old: 1\r\nx-old-append: 1\r\nx-append: 2\r\n";
    Scene::routes(
        "append-actions",
        json!([to_a(
            "/",
            json!({
                "request_headers_to_add": edits("x"),
                "response_headers_to_add": [
                    {"header": {"key": "x-dup", "value": "3"}},
                    {"header": {"key": "x-mixed", "value": "new"}, "append_action": "OVERWRITE_IF_EXISTS"},
                    {"header": {"key": "x-none", "value": "new"}, "append_action": "OVERWRITE_IF_EXISTS"},
                    {"header": {"key": "set-cookie", "value": "c=3"}},
                    {"header": {"key": "server", "value": "mine"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
                    {"header": {"key": "x-origin", "value": "me"}, "append_action": "ADD_IF_ABSENT"},
                ],
            })
        )]),
    )
    .each("/", &["", present, "x-answer: fields\r\n"])
    .get_with("/", &format!("{present}x-answer: fields\r\n"))
}

const COMMANDS: &[&str] = &[
    "%REQ(:METHOD)%",
    "%REQ(:PATH)%",
    "%REQ(X-A?:AUTHORITY)%",
    "%REQ(absent)%",
    "%REQ(x-a):2%",
    "100%%",
    "a%PROTOCOL%b",
    "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
    "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
    "%ROUTE_NAME%",
    "%START_TIME(%Y)%",
    "%METADATA(ROUTE:ns:key)%",
    "%METADATA(ROUTE:ns:deep:er)%",
    "%METADATA(ROUTE:ns)%",
    "%DYNAMIC_METADATA(none:x)%",
    "%ENVIRONMENT(POSTRIDER_NOT_SET)%",
    "%PATH%",
    "%PATH(NQ)%",
    "%QUERY_PARAM(q)%",
    "%FILTER_CHAIN_NAME%",
    "%REQUESTED_SERVER_NAME%",
    "%DOWNSTREAM_TLS_VERSION%",
    "%UPSTREAM_CLUSTER%",
    "%VIRTUAL_CLUSTER_NAME%",
];

fn commands() -> Scene {
    let edits = |side: &str| -> Vec<Value> {
        let edit = |(index, command): (usize, &&str)| json!({"header": {"key": format!("x-{side}-{index}"), "value": command}});
        COMMANDS.iter().enumerate().map(edit).collect()
    };
    let mut answer = edits("p");
    for (index, command) in [
        "%RESPONSE_CODE%",
        "%RESPONSE_CODE_DETAILS%",
        "%RESPONSE_FLAGS%",
        "%RESP(x-origin)%",
        "%UPSTREAM_HOST%",
        "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    ]
    .iter()
    .enumerate()
    {
        answer.push(json!({"header": {"key": format!("x-q-{index}"), "value": command}}));
    }
    let metadata = json!({"filter_metadata": {"ns": {"key": "value", "deep": {"er": [1, 2.5, true, null, "x"]}}}});
    Scene::routes("commands", json!([
        to_a("/a", json!({"name": "named", "metadata": metadata, "request_headers_to_add": edits("q"), "response_headers_to_add": answer})),
        {"match": {"prefix": "/own"}, "metadata": metadata, "direct_response": {"status": 200}, "response_headers_to_add": answer},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}, "response_headers_to_add": answer},
    ]))
    .gets(&["/a", "/a?q=v&q=w", "/own", "/down"])
    .get_with("/a?q=%41", "x-a: value\r\n")
    .get_with("/own", "x-a: caf\u{e9}\r\n")
}

fn levels_config(first: bool) -> Value {
    let edit = |level: &str| {
        json!([
            {"header": {"key": "x-all", "value": level}},
            {"header": {"key": "x-last", "value": level}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
            {"header": {"key": "x-first", "value": level}, "append_action": "ADD_IF_ABSENT"},
            {"header": {"key": format!("x-{level}"), "value": "1"}},
        ])
    };
    json!({"route_config": {
        "most_specific_header_mutations_wins": first,
        "request_headers_to_add": edit("config"), "response_headers_to_add": edit("config"),
        "request_headers_to_remove": ["x-route"], "response_headers_to_remove": ["x-route"],
        "virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "request_headers_to_add": edit("vhost"), "response_headers_to_add": edit("vhost"),
            "request_headers_to_remove": ["x-config"], "response_headers_to_remove": ["x-config"],
            "routes": [
                to_a("/a", json!({"request_headers_to_add": edit("route"), "response_headers_to_add": edit("route"),
                    "request_headers_to_remove": ["x-vhost"], "response_headers_to_remove": ["x-vhost"]})),
                {"match": {"prefix": "/w"}, "request_headers_to_add": edit("route"), "response_headers_to_add": edit("route"),
                 "route": {"weighted_clusters": {"clusters": [
                    {"name": "a", "weight": 100, "request_headers_to_add": edit("weight"), "response_headers_to_add": edit("weight"),
                     "request_headers_to_remove": ["x-all"], "response_headers_to_remove": ["x-first"]},
                    {"name": "b", "weight": 0},
                 ]}}},
                {"match": {"prefix": "/own"}, "direct_response": {"status": 200}, "response_headers_to_add": edit("route")},
            ],
        }],
    }})
}

fn levels() -> Scene {
    Scene::new("levels", levels_config(false))
        .gets(&["/a", "/w", "/own", "/none"])
        .each("/a", &["x-all: client\r\nx-first: client\r\nx-last: client\r\n"])
}

fn levels_reversed() -> Scene {
    Scene::new("levels-reversed", levels_config(true))
        .gets(&["/a", "/w", "/own", "/none"])
        .each("/w", &["x-all: client\r\nx-first: client\r\nx-last: client\r\n"])
}

fn removals() -> Scene {
    Scene::routes(
        "removals",
        json!([to_a(
            "/",
            json!({
                "request_headers_to_remove": ["x-gone", "User-Agent", "cookie", "accept"],
                "response_headers_to_remove": ["x-dup", "set-cookie", "X-Origin", "content-type", "server"],
            })
        )]),
    )
    .get_with("/", "x-gone: 1\r\nX-Gone: 2\r\nuser-agent: me\r\naccept: */*\r\ncookie: a=b\r\nx-kept: 1\r\n")
    .answers("/", &["fields"])
}

fn removed_beside_additions() -> Scene {
    let says = |name: &str, value: &str, action: &str| json!({"header": {"key": name, "value": value}, "append_action": action});
    Scene::routes(
        "removed-beside-additions",
        json!([to_a(
            "/",
            json!({
                "request_headers_to_remove": ["x-old"],
                "request_headers_to_add": [
                    says("x-new", "%REQ(x-old)%", "ADD_IF_ABSENT"),
                    says("x-kept", "%REQ(x-old?x-other)%", "OVERWRITE_IF_EXISTS"),
                ],
                "response_headers_to_remove": ["x-origin"],
                "response_headers_to_add": [
                    says("x-new", "%RESP(x-origin)%", "ADD_IF_ABSENT"),
                    says("x-was", "%REQ(x-old)%", "APPEND_IF_EXISTS_OR_ADD"),
                ],
            })
        )]),
    )
    .each("/", &["", "x-old: 1\r\n", "x-old: 1\r\nx-kept: 2\r\n", "x-old: 1\r\nx-kept: 2\r\nx-other: 3\r\n"])
}

fn clusters() -> Scene {
    let weighted = |one: u32, other: u32| json!({"weighted_clusters": {"clusters": [{"name": "a", "weight": one}, {"name": "b", "weight": other}]}});
    Scene::routes("clusters", json!([
        {"match": {"prefix": "/all-a"}, "route": weighted(100, 0)},
        {"match": {"prefix": "/all-b"}, "route": weighted(0, 1)},
        {"match": {"prefix": "/header"}, "route": {"cluster_header": "x-cluster"}},
        {"match": {"prefix": "/header-404"}, "route": {"cluster_header": "x-cluster", "cluster_not_found_response_code": "NOT_FOUND"}},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        {"match": {"prefix": "/closed"}, "route": {"cluster": "closed"}},
        {"match": {"prefix": "/b"}, "route": {"cluster": "b", "priority": "HIGH"}},
    ]))
    .gets(&["/all-a", "/all-b", "/header", "/empty", "/down", "/closed", "/b"])
    .each("/header", &["x-cluster: a\r\n", "x-cluster: b\r\n", "x-cluster: nope\r\n", "x-cluster:\r\n", "x-cluster: a\r\nx-cluster: b\r\n", "x-cluster: empty\r\n"])
    .ask("HEAD", "test", "/down", "")
    .ask("HEAD", "test", "/empty", "")
    .get_with("/down", "content-type: application/grpc\r\n")
    .get_with("/empty", "content-type: application/grpc\r\n")
    .post("/down", "", "with a body")
    .post("/empty", "connection: close\r\n", "with a body")
}

fn attempts() -> Scene {
    Scene::new("attempts", json!({"route_config": {"virtual_hosts": [{
        "name": "all", "domains": ["*"], "include_request_attempt_count": true, "include_attempt_count_in_response": true,
        "routes": [to_a("/", json!({}))],
    }]}}))
    .gets(&["/", "/users/1"])
    .post("/users", "", "x")
    .post("/other", "", "x")
    .get_with("/", "x-envoy-attempt-count: 7\r\n")
    .answers("/", &["503", "fields"])
}

fn policies() -> Scene {
    Scene::routes("route-timeouts", json!([
        to_a("/short", json!({"route": {"timeout": "0.05s"}})),
        to_a("/none", json!({"route": {"timeout": "0s"}})),
        to_a("/max", json!({"route": {"max_stream_duration": {"max_stream_duration": "9s", "grpc_timeout_header_max": "5s"}}})),
        to_a("/", json!({})),
    ]))
    .gets(&["/short", "/none", "/max", "/"])
    .answers("/short", &["silent"])
    .ask("HEAD", "test", "/short?answer=silent", "")
    .each("/", &["x-envoy-upstream-rq-timeout-ms: 50\r\n",  "x-envoy-upstream-rq-per-try-timeout-ms: 40\r\n",
        "x-envoy-expected-rq-timeout-ms: 30\r\n", "grpc-timeout: 1S\r\ncontent-type: application/grpc\r\n", "x-envoy-upstream-stream-duration-ms: 8\r\n"])
    .each("/max", &["grpc-timeout: 9S\r\ncontent-type: application/grpc\r\n"])
}

fn internal_redirects() -> Scene {
    Scene::routes("internal-redirects", json!([
        to_a("/follow", json!({"route": {"internal_redirect_policy": {"max_internal_redirects": 2, "redirect_response_codes": [302]}}})),
        {"match": {"prefix": "/redirected"}, "route": {"cluster": "b"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "b"}},
    ]))
    .answers("/follow", &["location", "redirect", "404"])
    .gets(&["/follow?answer=redirect", "/follow?answer=location", "/plain?answer=location"])
    .post("/follow?answer=redirect", "", "a body")
}

fn mapper() -> Scene {
    let status = |code: u64| json!({"status_code_filter": {"comparison": {"op": "EQ", "value": {"default_value": code, "runtime_key": "none"}}}});
    Scene::routes("mapped", json!([
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/a"}, "route": {"cluster": "a"}},
        {"match": {"prefix": "/own"}, "direct_response": {"status": 410, "body": {"inline_string": "own"}}},
    ]))
    .with(json!({"local_reply_config": {
        "mappers": [
            {"filter": status(404), "status_code": 418, "body": {"inline_string": "nothing at all"},
             "headers_to_add": [{"header": {"key": "x-mapped", "value": "%RESPONSE_CODE%"}}]},
            {"filter": status(410), "body_format_override": {"text_format_source": {"inline_string": "<%LOCAL_REPLY_BODY%>"}, "content_type": "text/html"}},
        ],
        "body_format": {"json_format": {"code": "%RESPONSE_CODE%", "said": "%LOCAL_REPLY_BODY%", "path": "%REQ(:path)%", "flags": "%RESPONSE_FLAGS%"}},
    }}))
    .gets(&["/none", "/down", "/empty", "/a", "/own", "/a?answer=404"])
    .ask("HEAD", "test", "/none", "")
    .get_with("/none", "content-type: application/grpc\r\n")
    .raw("GET /x HTTP/1.1\r\n\r\n")
}
