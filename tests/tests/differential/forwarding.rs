//! What the proxy adds to and takes from a message on its way: addresses, identifiers, hop-by-hop fields, its own name.

use crate::scene::{Scene, to_a};
use serde_json::json;

pub fn scenes() -> Vec<Scene> {
    vec![
        plain(),
        edge(),
        hops(),
        no_append(),
        ids(),
        external_ids(),
        kept_ids(),
        named(),
        passed(),
        absent_server(),
        via(),
        fields(),
        answers(),
        methods(),
        keep_slashes(),
        reject_slashes(),
        redirect_slashes(),
        underscores_dropped(),
        suppressed(),
        detection(),
        early(),
        inside_edge(),
        inside_behind(),
        inside_hops(),
        inside_private(),
        inside_only(),
        user_agent(),
    ]
}

const FORWARDED: &[&str] = &[
    "",
    "x-forwarded-for: 1.2.3.4\r\n",
    "x-forwarded-for: 1.2.3.4, 10.0.0.1\r\n",
    "x-forwarded-for: 1.2.3.4,10.0.0.1\r\nx-forwarded-for: 8.8.8.8\r\n",
    "x-forwarded-for: rubbish\r\n",
    "x-forwarded-for: 10.0.0.1\r\n",
    "x-forwarded-for: 2001:db8::1\r\n",
    "x-forwarded-for: 1.2.3.4:80\r\n",
    "x-forwarded-for:\r\n",
    "x-forwarded-proto: https\r\n",
    "x-forwarded-proto: ftp\r\n",
    "x-forwarded-proto: HTTPS\r\n",
    "x-forwarded-host: other\r\nx-forwarded-port: 1\r\n",
    "forwarded: for=1.2.3.4\r\n",
    "x-envoy-internal: true\r\n",
    "x-envoy-external-address: 9.9.9.9\r\n",
    "x-envoy-original-path: /before\r\n",
    "x-envoy-decorator-operation: op\r\n",
    "x-envoy-downstream-service-cluster: c\r\nx-envoy-downstream-service-node: n\r\n",
    "x-envoy-retry-on: 5xx\r\nx-envoy-max-retries: 2\r\n",
    "x-envoy-ip-tags: t\r\nx-envoy-force-trace: true\r\n",
    "x-envoy-hedge-on-per-try-timeout: true\r\nx-envoy-retriable-status-codes: 404\r\n",
    "x-envoy-original-url: u\r\nx-envoy-original-host: o\r\nx-envoy-upstream-alt-stat-name: alt\r\n",
    "x-envoy-upstream-stream-duration-ms: 5000\r\nx-envoy-expected-rq-timeout-ms: 77\r\n",
    "x-envoy-upstream-rq-timeout-alt-response: 204\r\nx-envoy-attempt-count: 4\r\nx-envoy-is-timeout-retry: 1\r\n",
    "x-request-id: mine\r\n",
    "x-client-trace-id: t\r\n",
];

fn plain() -> Scene {
    Scene::forward("plain").each("/", FORWARDED)
}

fn edge() -> Scene {
    Scene::forward("edge").with(json!({"use_remote_address": true})).each("/", FORWARDED)
}

fn hops() -> Scene {
    Scene::forward("hops").with(json!({"use_remote_address": true, "xff_num_trusted_hops": 1})).each("/", FORWARDED)
}

fn detection() -> Scene {
    Scene::forward("detection").with(json!({"xff_num_trusted_hops": 1})).each("/", FORWARDED)
}

fn no_append() -> Scene {
    Scene::forward("no-append").with(json!({"use_remote_address": true, "skip_xff_append": true})).each("/", FORWARDED)
}

/// For whom loopback and one more network are inside.
fn inside(more: serde_json::Value) -> serde_json::Value {
    let ranges =
        json!([{"address_prefix": "127.0.0.0", "prefix_len": 8}, {"address_prefix": "10.0.0.0", "prefix_len": 8}]);
    let mut fields = json!({"internal_address_config": {"cidr_ranges": ranges}});
    postrider_tests::kit::config::overlay(&mut fields, more);
    fields
}

fn inside_edge() -> Scene {
    Scene::forward("inside-edge").with(inside(json!({"use_remote_address": true}))).each("/", FORWARDED)
}

fn inside_behind() -> Scene {
    Scene::forward("inside-behind").with(inside(json!({}))).each("/", FORWARDED)
}

fn inside_hops() -> Scene {
    let hops = json!({"use_remote_address": true, "xff_num_trusted_hops": 1});
    Scene::forward("inside-hops").with(inside(hops)).each("/", FORWARDED)
}

/// Without ranges private addresses are inside.
fn inside_private() -> Scene {
    let addresses = [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.1",
        "172.32.0.1",
        "192.168.0.1",
        "127.0.0.1",
        "127.0.0.2",
        "::1",
        "fd00::1",
        "fd12::1",
        "fc00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "1.2.3.4",
        "10.0.0.1,10.0.0.2",
        "10.0.0.1, 1.2.3.4",
    ];
    let scene = Scene::forward("inside-private").with(json!({"internal_address_config": {}}));
    addresses.iter().fold(scene, |scene, address| scene.get_with("/", &format!("x-forwarded-for: {address}\r\n")))
}

fn inside_only() -> Scene {
    Scene::forward("inside-only").with(inside(json!({"route_config": {"internal_only_headers": ["x-ours"]}}))).each(
        "/",
        &["x-ours: 1\r\n", "x-ours: 1\r\nx-forwarded-for: 10.0.0.1\r\n", "x-forwarded-for: 1.2.3.4\r\nx-ours: 1\r\n"],
    )
}

fn user_agent() -> Scene {
    let names = "x-envoy-downstream-service-cluster: c\r\nx-envoy-downstream-service-node: n\r\n";
    Scene::forward("user-agent")
        .with(json!({"add_user_agent": true, "use_remote_address": true}))
        .each("/", &["", "user-agent: mine\r\n", "user-agent:\r\n", names])
}

fn ids() -> Scene {
    let ids = json!({"generate_request_id": true, "always_set_request_id_in_response": true});
    Scene::forward("ids")
        .with(ids)
        .each(
            "/",
            &[
                "",
                "x-request-id: mine\r\n",
                "x-request-id: 11111111-2222-4333-8444-555555555555\r\n",
                "x-request-id:\r\n",
            ],
        )
        .get("/?answer=503")
}

fn external_ids() -> Scene {
    let ids = json!({"generate_request_id": true, "use_remote_address": true});
    Scene::forward("external-ids")
        .with(ids)
        .each("/", &["x-request-id: mine\r\n", "", "x-forwarded-for: 1.2.3.4\r\nx-request-id: mine\r\n"])
}

fn kept_ids() -> Scene {
    let ids = json!({"generate_request_id": true, "use_remote_address": true, "preserve_external_request_id": true});
    Scene::forward("kept-ids")
        .with(ids)
        .each("/", &["x-request-id: mine\r\n", "", "x-request-id: a\r\nx-request-id: b\r\n"])
}

fn named() -> Scene {
    Scene::forward("named")
        .with(json!({"server_name": "mine"}))
        .answers("/", &["", "fields", "404"])
        .raw("GET / HTTP/1.1\r\n\r\n")
}

fn passed() -> Scene {
    Scene::forward("passed")
        .with(json!({"server_header_transformation": "PASS_THROUGH"}))
        .answers("/", &["", "fields"])
        .ask("PUT", "test", "http://", "")
}

fn absent_server() -> Scene {
    Scene::forward("server-if-absent")
        .with(json!({"server_header_transformation": "APPEND_IF_ABSENT"}))
        .answers("/", &["", "fields"])
}

fn via() -> Scene {
    Scene::forward("via")
        .with(json!({"via": "proxy"}))
        .answers("/", &["", "fields", "503"])
        .get_with("/", "via: 1.0 before\r\n")
        .get_with("/", "via: 1.0 a\r\nvia: 1.0 b\r\n")
}

fn fields() -> Scene {
    Scene::forward("fields").each(
        "/x?y",
        &[
            "X-MiXed: V\r\nACCEPT: */*\r\n",
            "x-dup: 1\r\nx-dup: 2\r\nX-DUP: 3\r\n",
            "cookie: a=b\r\ncookie: c=d\r\n",
            "accept: a\r\naccept: b\r\n",
            "connection: close\r\n",
            "connection: keep-alive\r\nkeep-alive: timeout=5\r\n",
            "connection: x-hop\r\nx-hop: 1\r\n",
            "connection: x-hop, close\r\nx-hop: 1\r\n",
            "Connection: Keep-Alive, X-Hop\r\nx-hop: 1\r\n",
            "proxy-connection: keep-alive\r\n",
            "te: trailers\r\n",
            "te: gzip\r\n",
            "te: trailers, gzip\r\nconnection: te\r\n",
            "trailer: x-end\r\n",
            "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
            "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\n",
            "x-empty:\r\n",
            "x-space:   in the  middle   \r\n",
            "x-tab:\ta\tb\t\r\n",
            "x-latin: caf\u{e9}\r\n",
            "x_under: 1\r\n",
            "authorization: Basic YTpi\r\nproxy-authorization: Basic YTpi\r\n",
            "content-type: application/json\r\nuser-agent: tests\r\nreferer: x\r\nrange: bytes=0-1\r\n",
            "max-forwards: 0\r\n",
            "content-length: 0\r\n",
            "x-forwarded-client-cert: By=x\r\n",
            "expect:\r\n",
            "sec-fetch-mode: cors\r\norigin: http://o\r\n",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
            "host2: x\r\n!#$%&'*+-.^`|~: odd\r\n",
            "pragma: no-cache\r\ncache-control: no-store\r\n",
            "grpc-timeout: 1S\r\n",
            "x-envoy-: odd\r\n",
        ],
    )
}

fn answers() -> Scene {
    let names = [
        "",
        "204",
        "304",
        "304-length",
        "404",
        "500",
        "502",
        "503",
        "limited",
        "chunked",
        "trailers",
        "until-close",
        "close",
        "truncated",
        "half-chunk",
        "1.0",
        "early",
        "continue",
        "garbage",
        "no-reason",
        "odd-reason",
        "two-lengths",
        "both-framings",
        "bad-coding",
        "bad-chunk",
        "fields",
        "big",
        "hangup",
        "reset",
        "grpc",
        "unavailable",
        "location",
    ];
    let mut scene = Scene::forward("answers").answers("/", &names);
    for name in names {
        scene = scene.ask("HEAD", "test", "/", &format!("x-answer: {name}\r\n"));
    }
    for name in ["", "503", "garbage", "hangup", "chunked"] {
        scene = scene.get_with("/s.S/M", &format!("x-answer: {name}\r\ncontent-type: application/grpc\r\n"));
        scene = scene.get_with("/", &format!("x-answer: {name}\r\nconnection: close\r\n"));
        scene = scene.post("/", &format!("x-answer: {name}\r\n"), "body");
    }
    scene
}

fn methods() -> Scene {
    let mut scene = Scene::forward("methods");
    for method in [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PURGE", "PROPFIND", "MKCOL", "M-SEARCH",
        "REPORT", "LOCK", "LINK", "BIND",
    ] {
        scene = scene
            .ask(method, "test", "/x", "")
            .raw(format!("{method} /x HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc"));
    }
    scene.ask("FROBNICATE", "test", "/x", "").ask("get", "test", "/x", "").ask(
        "QUERY",
        "test",
        "/x",
        "content-length: 0\r\n",
    )
}

const SLASHES: &[&str] = &["/a%2Fb", "/a%2fb?c=%2F", "/a%5Cb", "/a%5cb", "/a%252Fb", "/a/b", "/a?b=%2f", "/%2F"];

fn keep_slashes() -> Scene {
    Scene::forward("keep-slashes").gets(SLASHES)
}

fn reject_slashes() -> Scene {
    Scene::forward("reject-slashes")
        .with(json!({"path_with_escaped_slashes_action": "REJECT_REQUEST"}))
        .gets(SLASHES)
        .ask("HEAD", "test", "/a%2Fb", "")
}

fn redirect_slashes() -> Scene {
    Scene::forward("redirect-slashes")
        .with(json!({"path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT", "normalize_path": true}))
        .gets(SLASHES)
        .gets(&["/x/../a", "/x//y"])
}

fn underscores_dropped() -> Scene {
    let fields = ["x_under: 1\r\nx-kept: 2\r\n", "x_forwarded_for: 1.2.3.4\r\n", "_: x\r\n"];
    Scene::forward("underscores")
        .with(json!({"common_http_protocol_options": {"headers_with_underscores_action": "DROP_HEADER"}}))
        .each("/", &fields)
}

fn suppressed() -> Scene {
    let mut scene = Scene::routes("suppressed", json!([to_a("/", json!({}))]));
    scene.manager["http_filters"] = json!([{
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", "suppress_envoy_headers": true},
    }]);
    scene.answers("/", &["", "503", "fields"]).get_with("/", "x-envoy-upstream-rq-timeout-ms: 5000\r\n")
}

fn early() -> Scene {
    Scene::forward("no-underscores").with(json!({"common_http_protocol_options": {"headers_with_underscores_action": "REJECT_REQUEST", "max_headers_count": 20}})).each("/", &[
        "x_under: 1\r\n",
        "x-a: 1\r\n",
    ])
    .get_with("/", &"x-many: 1\r\n".repeat(18))
    .get_with("/", &"x-many: 1\r\n".repeat(19))
    .get_with("/", &"x-many: 1\r\n".repeat(30))
}
