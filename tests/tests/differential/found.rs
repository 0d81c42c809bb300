//! What is found out about a request in front of its route, and what is told of it behind: clients, early edits, conditions by
//! expressions and networks, virtual clusters, `Proxy-Status`, records at the start.

use crate::scene::{Scene, says, to_a};
use postrider_tests::kit::config::extension;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        clients(),
        early(),
        expressions(),
        bytes_and_expressions(),
        networks(),
        virtual_clusters(),
        proxy_status(),
        started(),
        paced(),
    ]
}

/// The client's address by a header of one's own.
fn clients() -> Scene {
    let fields = json!({
        "header_name": "x-client", "allow_extension_to_set_address_as_trusted": true,
        "reject_with_status": {"code": "Forbidden"},
    });
    let kind = "http.original_ip_detection.custom_header.v3.CustomHeaderConfig";
    let detection = extension("envoy.http.original_ip_detection.custom_header", kind, fields);
    Scene::forward("clients")
        .with(json!({"use_remote_address": false, "original_ip_detection_extensions": [detection]}))
        .each(
            "/",
            &[
                "x-client: 192.0.2.7\r\n",
                "x-client: 10.0.0.1\r\n",
                "x-client: 2001:db8::1\r\n",
                "x-client: nobody\r\n",
                "x-client: 192.0.2.7, 192.0.2.8\r\n",
                "x-client:\r\n",
                "x-client: 192.0.2.7\r\nx-forwarded-for: 192.0.2.9\r\n",
                "x-forwarded-for: 192.0.2.9\r\n",
                "",
            ],
        )
}

/// Fields that change before the route is chosen.
fn early() -> Scene {
    let append = |key: &str, value: &str, action: &str| json!({"append": {"header": {"key": key, "value": value}, "append_action": action}});
    let edits = json!({"mutations": [
        append("x-early", "%REQ(x-a)%", "OVERWRITE_IF_EXISTS_OR_ADD"),
        append("x-once", "new", "ADD_IF_ABSENT"),
        append("x-more", "more", "APPEND_IF_EXISTS_OR_ADD"),
        {"remove": "x-gone"},
    ]});
    let name = "envoy.http.early_header_mutation.header_mutation";
    let mutation = extension(name, "http.early_header_mutation.header_mutation.v3.HeaderMutation", edits);
    let by_early = json!({"prefix": "/", "headers": [{"name": "x-early", "string_match": {"exact": "b"}}]});
    let routes = json!([{"match": by_early, "route": {"cluster": "b"}}, to_a("/", json!({}))]);
    Scene::routes("early", routes)
        .with(json!({"early_header_mutation_extensions": [mutation]}))
        .each("/", &["", "x-a: b\r\n", "x-a: c\r\nx-early: b\r\n", "x-once: old\r\nx-more: old\r\n", "x-gone: 1\r\n"])
}

fn typed(kind: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/{kind}"));
    json!({"name": "any", "typed_config": fields})
}

fn to_route(name: &str) -> Value {
    json!({"action": typed("envoy.config.route.v3.Route", says(name, json!({"prefix": "/"})))})
}

fn tree(name: &str, matcher: Value) -> Scene {
    Scene::new(
        name,
        json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "matcher": matcher}]}}),
    )
}

/// `rbac` by expressions.
fn expressions() -> Scene {
    let call = |function: &str, args: Value| json!({"call_expr": {"function": function, "args": args}});
    let ident = |name: &str| json!({"ident_expr": {"name": name}});
    let field = |operand: Value, field: &str| json!({"select_expr": {"operand": operand, "field": field}});
    let text = |text: &str| json!({"const_expr": {"string_value": text}});
    let header = |name: &str| call("_[_]", json!([field(ident("request"), "headers"), text(name)]));
    let condition = call(
        "_||_",
        json!([
            call("_==_", json!([header("x-a"), text("b")])),
            call("_==_", json!([field(ident("request"), "path"), text("/open")])),
        ]),
    );
    let policy = json!({"permissions": [{"any": true}], "principals": [{"any": true}], "condition": condition});
    let fields = json!({"rules": {"action": "ALLOW", "policies": {"by expression": policy}}});
    let rbac = extension("envoy.filters.http.rbac", "filters.http.rbac.v3.RBAC", fields);
    Scene::filtered("expressions", vec![rbac], json!([]))
        .logging(json!({"method_cel": "%CEL(request.method)%", "size_cel": "%CEL(request.headers['x-a'])%"}))
        .gets(&["/", "/open", "/open?q"])
        .each("/", &["x-a: b\r\n", "x-a: c\r\n", "x-a: b\r\nx-a: c\r\n"])
}

/// Regular expressions and bytes that are no text in UTF-8, or more than one for a character.
fn bytes_and_expressions() -> Scene {
    let patterns = [".*", ".", "..", "[^a]", "x[^z]y", "\\xe9", "é", "é.*", "\\W", "\\d", ".{2}", "[\\x80-\\xff]+"];
    let of = |name: String, matcher: Value| {
        json!({"match": {"prefix": "/", "headers": [{"name": "x-way", "string_match": {"exact": name}}, matcher]},
               "direct_response": {"status": 202}})
    };
    let plain = |pattern: &str| json!({"name": "x-m", "string_match": {"safe_regex": {"regex": pattern}}});
    let denied = |pattern: &str| {
        let mut denied = plain(pattern);
        denied["invert_match"] = json!(true);
        denied
    };
    let numbered = || patterns.iter().enumerate();
    let routes = numbered().map(|(index, pattern)| of(format!("{index}"), plain(pattern)));
    let routes: Vec<Value> =
        routes.chain(numbered().map(|(index, pattern)| of(format!("-{index}"), denied(pattern)))).collect();
    let values: [&[u8]; 7] = [b"\xe9", b"x\xe9y", "é".as_bytes(), "xéy".as_bytes(), b"\xff\xfe", b"\xc0\xaf", b"b"];
    numbered().fold(Scene::routes("bytes-and-expressions", json!(routes)), |scene, (index, _)| {
        values.iter().fold(scene, |scene, value| {
            let ask = |scene: Scene, way: String| {
                scene.raw(
                    [format!("GET / HTTP/1.1\r\nhost: a\r\nx-way: {way}\r\nx-m: ").as_bytes(), value, b"\r\n\r\n"]
                        .concat(),
                )
            };
            ask(ask(scene, format!("{index}")), format!("-{index}"))
        })
    })
}

/// Routes by networks.
fn networks() -> Scene {
    let range = |address: &str, length: u32| json!({"address_prefix": address, "prefix_len": length});
    let input = typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", json!({"header_name": "x-net"}));
    let maps = typed(
        "xds.type.matcher.v3.IPMatcher",
        json!({"range_matchers": [
            {"ranges": [range("10.0.0.0", 8)], "on_match": to_route("ten")},
            {"ranges": [range("10.1.0.0", 16), range("2001:db8::", 32)], "on_match": to_route("narrow")},
            {"ranges": [range("0.0.0.0", 0)], "on_match": to_route("four")},
        ]}),
    );
    tree("networks", json!({"matcher_tree": {"input": input, "custom_match": maps}, "on_no_match": to_route("rest")}))
        .each(
            "/",
            &[
                "x-net: 10.2.0.1\r\n",
                "x-net: 10.1.0.1\r\n",
                "x-net: 192.0.2.1\r\n",
                "x-net: 2001:db8::5\r\n",
                "x-net: 2001:db9::5\r\n",
                "x-net: nonsense\r\n",
                "",
            ],
        )
}

fn virtual_clusters() -> Scene {
    let of = |name: &str, headers: Value| json!({"name": name, "headers": headers});
    let path = |regex: &str| json!({"name": ":path", "string_match": {"safe_regex": {"regex": regex}}});
    let host = json!({
        "name": "found", "domains": ["*"],
        "virtual_clusters": [
            of("writes", json!([path("/users/.*"), {"name": ":method", "string_match": {"exact": "POST"}}])),
            of("users", json!([path("/users/.*")])),
            of("down", json!([path("/down.*")])),
        ],
        "routes": [{"match": {"prefix": "/down"}, "route": {"cluster": "down"}}, to_a("/", json!({}))],
    });
    Scene::new("virtual-clusters", json!({"route_config": {"virtual_hosts": [host]}}))
        .gets(&["/users/1", "/users/1?answer=404", "/users/1?answer=503", "/down", "/other", "/users"])
        .post("/users/1", "", "abc")
}

fn proxy_status() -> Scene {
    let routes = json!([
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/own"}, "direct_response": {"status": 404}},
        to_a("/slow", json!({"route": {"timeout": "0.1s"}})),
        to_a("/", json!({})),
    ]);
    Scene::routes("proxy-status", routes)
        .with(json!({"proxy_status_config": {"set_recommended_response_code": true, "literal_proxy_name": "edge"}}))
        .gets(&[
            "/",
            "/down",
            "/empty",
            "/own",
            "/?answer=404",
            "/?answer=503",
            "/?answer=reset",
            "/slow?answer=silent",
        ])
        .makes("/", "", &["200|proxy-status=other; error=http_request_error"])
}

/// A record when a request begins, beside that of its end.
fn started() -> Scene {
    Scene::forward("started")
        .with(json!({"access_log_options": {"flush_access_log_on_new_request": true}}))
        .gets(&["/", "/?answer=404", "/?answer=reset"])
        .post("/", "", "a body")
}

/// Bodies under a limit that they do not reach.
fn paced() -> Scene {
    let fields = json!({"stat_prefix": "paced", "enable_mode": "REQUEST_AND_RESPONSE", "limit_kbps": 100_000, "fill_interval": "0.02s"});
    let limit =
        extension("envoy.filters.http.bandwidth_limit", "filters.http.bandwidth_limit.v3.BandwidthLimit", fields);
    Scene::filtered("paced", vec![limit], json!([]))
        .gets(&["/", "/?answer=chunked", "/?answer=204"])
        .post("/", "", "a body")
        .ask("HEAD", "test", "/", "")
}
