//! gRPC, as far as clients of HTTP/1 see it: grpc_web, grpc_stats and the bridges.

use super::{filter, own};
use crate::scene::Scene;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        grpc_web(),
        counted("grpc-stats", json!({"emit_filter_state": true})),
        counted_by_method(),
        bridge(),
        reverse_bridge(),
    ]
}

fn grpc_web() -> Scene {
    let body = "\0\0\0\0\u{2}ab";
    Scene::filtered("grpc-web", vec![filter("grpc_web", "GrpcWeb", json!({}))], json!([]))
        .post("/p.S/M", "content-type: application/grpc-web+proto\r\nx-answer: grpc\r\n", body)
        .post("/p.S/M", "content-type: application/grpc-web-text\r\nx-answer: grpc\r\n", "AAAAAAJhYg==")
        .post("/p.S/M", "content-type: application/grpc-web\r\nx-answer: 503\r\n", body)
        .post("/p.S/M", "content-type: text/plain\r\n", body)
}

/// Messages of one, two and three bytes.
const MESSAGES: &[u8] = b"\0\0\0\0\x01a\0\0\0\0\x02bc\0\0\0\0\x03def";

fn called(scene: Scene) -> Scene {
    let mut scene = scene;
    for answer in ["grpc", "unavailable", "503", "", "404"] {
        scene = scene.post(
            "/shop.v1.Orders/Place",
            &format!("content-type: application/grpc\r\nx-answer: {answer}\r\n"),
            MESSAGES,
        );
    }
    for path in ["/shop.v1.Orders/Cancel", "/other.S/M", "/no-method", "/a/b/c", "/own/403", "/empty.S/M"] {
        scene = scene.post(path, "content-type: application/grpc\r\nx-answer: grpc\r\n", MESSAGES);
    }
    scene
        .post("/shop.v1.Orders/Place", "content-type: application/grpc+proto\r\nx-answer: grpc\r\n", b"\0\0\0")
        .post("/shop.v1.Orders/Place", "content-type: text/plain\r\nx-answer: grpc\r\n", MESSAGES)
        .post("/shop.v1.Orders/Place?x=1", "content-type: application/grpc\r\nx-answer: grpc\r\n", "")
        .get_with("/shop.v1.Orders/Place", "content-type: application/grpc\r\n")
        .raw("POST /shop.v1.Orders/Place HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\nx-answer: grpc\r\n\r\n6\r\n\0\0\0\0\u{1}a\r\n0\r\n\r\n")
}

fn routes() -> Value {
    json!([
        {"match": {"path": "/own/403"}, "direct_response": {"status": 403, "body": {"inline_string": "no, \"not\" you"}}},
        {"match": {"prefix": "/empty.S"}, "route": {"cluster": "empty"}},
    ])
}

fn counted(name: &str, fields: Value) -> Scene {
    let state = json!({"state": "%FILTER_STATE(envoy.filters.http.grpc_stats:TYPED)%"});
    called(Scene::filtered(name, vec![filter("grpc_stats", "FilterConfig", fields)], routes()).logging(state))
}

fn counted_by_method() -> Scene {
    let methods = json!({"services": [{"name": "shop.v1.Orders", "method_names": ["Place"]}]});
    counted("grpc-stats-methods", json!({"individual_method_stats_allowlist": methods}))
}

fn bridge() -> Scene {
    let fields = json!({"upgrade_protobuf_to_grpc": true, "ignore_query_parameters": true});
    let scene = called(Scene::filtered("grpc-bridge", vec![filter("grpc_http1_bridge", "Config", fields)], routes()));
    scene.post("/shop.v1.Orders/Place?q=1", "content-type: application/x-protobuf\r\nx-answer: grpc\r\n", "abc").post(
        "/shop.v1.Orders/Place",
        "content-type: application/x-protobuf\r\nx-answer: 503\r\n",
        "",
    )
}

fn reverse_bridge() -> Scene {
    let fields = json!({"content_type": "application/x-protobuf", "withhold_grpc_frames": true});
    let kind = "grpc_http1_reverse_bridge";
    let filters = vec![filter(kind, "FilterConfig", fields)];
    let off = own("/off.S", kind, "FilterConfigPerRoute", json!({"disabled": true}));
    let mut scene = Scene::filtered("grpc-reverse-bridge", filters, json!([off]));
    let message = b"\0\0\0\0\x03abc";
    for order in [
        "200|content-type=application/x-protobuf|body=xyz",
        "200|content-type=text/plain|body=xyz",
        "503|content-type=application/x-protobuf",
        "200|content-type=application/x-protobuf|body=xyz|chunked=1",
    ] {
        let lines = format!("content-type: application/grpc\r\nx-make: {order}\r\n");
        scene = scene.post("/p.S/M", &lines, message).post("/off.S/M", &lines, message);
    }
    scene
        .post("/p.S/M", "content-type: application/grpc\r\n", b"\0\0")
        .post("/p.S/M", "content-type: application/grpc\r\n", "")
        .post("/p.S/M", "content-type: text/plain\r\n", "abc")
}
