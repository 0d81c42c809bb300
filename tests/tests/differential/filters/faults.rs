//! Faults on purpose.

use super::{filter, noted, own, scope};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![fault(), asked_for(), meant(), scopes()]
}

fn fault() -> Scene {
    let abort = |status: u32| json!({"abort": {"http_status": status, "percentage": {"numerator": 100}}});
    let some = json!({"abort": {"http_status": 418, "percentage": {"numerator": 100}}, "headers": [{"name": "x-fault", "present_match": true}]});
    let asked = json!({"abort": {"header_abort": {}, "percentage": {"numerator": 100}}});
    let grpc = json!({"abort": {"grpc_status": 14, "percentage": {"numerator": 100}}});
    Scene::filtered(
        "fault",
        vec![filter("fault", "HTTPFault", json!({}))],
        json!([
            own("/all", "fault", "HTTPFault", abort(503)),
            own("/some", "fault", "HTTPFault", some),
            own("/asked", "fault", "HTTPFault", asked),
            own("/grpc", "fault", "HTTPFault", grpc),
            own("/never", "fault", "HTTPFault", json!({"abort": {"http_status": 500, "percentage": {"numerator": 0}}})),
        ]),
    )
    .gets(&["/all", "/some", "/asked", "/grpc", "/never", "/"])
    .get_with("/some", "x-fault: 1\r\n")
    .each(
        "/asked",
        &[
            "x-envoy-fault-abort-request: 418\r\n",
            "x-envoy-fault-abort-request: 99\r\n",
            "x-envoy-fault-abort-request: 503\r\nx-envoy-fault-abort-request-percentage: 0\r\n",
        ],
    )
    .each("/grpc", &["content-type: application/grpc\r\n"])
}

/// So many of a hundred.
fn of(numerator: u32) -> Value {
    json!({"numerator": numerator})
}

/// The request says which fault it wants, and may want less of it.
fn asked_for() -> Scene {
    let all = json!({
        "delay": {"header_delay": {}, "percentage": of(100)}, "abort": {"header_abort": {}, "percentage": of(100)},
        "response_rate_limit": {"header_limit": {}, "percentage": of(100)},
        "filter_metadata": {"why": "asked", "of": {"kind": 1}},
    });
    let never = json!({
        "delay": {"header_delay": {}, "percentage": of(0)}, "abort": {"header_abort": {}, "percentage": of(0)},
        "response_rate_limit": {"header_limit": {}, "percentage": of(0)},
    });
    let lines = [
        "",
        "x-envoy-fault-abort-request: 418\r\n",
        "x-envoy-fault-abort-request: 200\r\n",
        "x-envoy-fault-abort-request: 599\r\n",
        "x-envoy-fault-abort-request: 600\r\n",
        "x-envoy-fault-abort-request: 199\r\n",
        "x-envoy-fault-abort-request: abc\r\n",
        "x-envoy-fault-abort-request: \r\n",
        "x-envoy-fault-abort-request: 503\r\nx-envoy-fault-abort-request-percentage: 0\r\n",
        "x-envoy-fault-abort-request: 503\r\nx-envoy-fault-abort-request-percentage: 100\r\n",
        "x-envoy-fault-abort-request: 503\r\nx-envoy-fault-abort-request-percentage: 500\r\n",
        "x-envoy-fault-abort-request: 503\r\nx-envoy-fault-abort-request-percentage: x\r\n",
        "x-envoy-fault-abort-grpc-request: 5\r\n",
        "x-envoy-fault-abort-grpc-request: 5\r\ncontent-type: application/grpc\r\n",
        "x-envoy-fault-abort-grpc-request: 0\r\n",
        "x-envoy-fault-abort-grpc-request: 5\r\nx-envoy-fault-abort-request: 503\r\n",
        "x-envoy-fault-delay-request: 1\r\n",
        "x-envoy-fault-delay-request: 0\r\n",
        "x-envoy-fault-delay-request: -1\r\n",
        "x-envoy-fault-delay-request: abc\r\n",
        "x-envoy-fault-delay-request: 1\r\nx-envoy-fault-delay-request-percentage: 0\r\n",
        "x-envoy-fault-delay-request: 1\r\nx-envoy-fault-abort-request: 503\r\n",
        "x-envoy-fault-throughput-response: 1000\r\n",
        "x-envoy-fault-throughput-response: 0\r\n",
        "x-envoy-fault-throughput-response: 1000\r\nx-envoy-fault-throughput-response-percentage: 0\r\n",
    ];
    Scene::filtered("fault-asked-for", vec![filter("fault", "HTTPFault", all)], json!([own("/never", "fault", "HTTPFault", never)]))
        .logging(noted("fault"))
        .each("/", &lines)
        .each("/never", &["x-envoy-fault-abort-request: 418\r\nx-envoy-fault-delay-request: 1\r\nx-envoy-fault-throughput-response: 9\r\n"])
        .post("/", "x-envoy-fault-abort-request: 503\r\n", "")
}

/// Requests by cluster, headers and the node that they come from.
fn meant() -> Scene {
    let abort = |more: Value| {
        let mut fields = json!({"abort": {"http_status": 503, "percentage": of(100)}});
        overlay(&mut fields, more);
        fields
    };
    let route = |prefix: &str, more: Value| own(prefix, "fault", "HTTPFault", abort(more));
    let routes = json!([
        route("/cluster", json!({"upstream_cluster": "a"})),
        route("/other", json!({"upstream_cluster": "b"})),
        route("/nodes", json!({"downstream_nodes": ["n1", "n2"]})),
        route("/headers", json!({"headers": [{"name": "x-f", "string_match": {"exact": "1"}}, {"name": "x-g", "present_match": false}]})),
        route("/full", json!({"max_active_faults": 0})),
        route("/slow", json!({"delay": {"fixed_delay": "0.001s", "percentage": of(100)}})),
        route("/late", json!({"delay": {"fixed_delay": "0.001s", "percentage": of(100)}, "abort": null})),
        route("/uncounted", json!({"disable_downstream_cluster_stats": true})),
        route("/ok", json!({"abort": {"http_status": 200}})),
        route("/millionth", json!({"abort": {"percentage": {"numerator": 1_000_000, "denominator": "MILLION"}}})),
        route("/limited", json!({"abort": null, "response_rate_limit": {"fixed_limit": {"limit_kbps": 4096}, "percentage": of(100)}})),
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own"}},
            "typed_per_filter_config": {"envoy.filters.http.fault": super::typed("fault", "HTTPFault", abort(json!({})))}},
    ]);
    let mut scene = Scene::filtered("fault-meant", vec![filter("fault", "HTTPFault", json!({}))], routes);
    for path in [
        "/cluster",
        "/other",
        "/nodes",
        "/headers",
        "/full",
        "/slow",
        "/late",
        "/uncounted",
        "/ok",
        "/millionth",
        "/limited",
        "/own",
    ] {
        scene = scene.each(
            path,
            &[
                "",
                "x-envoy-downstream-service-node: n2\r\nx-envoy-downstream-service-cluster: from.here\r\n",
                "x-f: 1\r\n",
                "x-f: 1\r\nx-g: 1\r\n",
            ],
        );
    }
    scene
        .makes("/limited", "", &["200|length=5000", "200|length=3000|chunked=1|trailer-x-end=1", "204"])
        .ask("HEAD", "test", "/cluster", "")
}

/// What table, virtual host, route and weighted cluster say, the nearest alone.
fn scopes() -> Scene {
    let abort =
        |status: u32| scope("fault", "HTTPFault", json!({"abort": {"http_status": status, "percentage": of(100)}}));
    let mut cluster = json!({"name": "a", "weight": 1});
    overlay(&mut cluster, abort(421));
    let mut weighted =
        json!({"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": [cluster]}}});
    overlay(&mut weighted, abort(422));
    let routes = json!([
        weighted,
        to_a("/route", abort(422)),
        to_a("/nothing", scope("fault", "HTTPFault", json!({}))),
        to_a("/", json!({}))
    ]);
    let mut host = json!({"name": "all", "domains": ["*"], "routes": routes});
    overlay(&mut host, abort(423));
    let mut table =
        json!({"virtual_hosts": [host, {"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]}]});
    overlay(&mut table, abort(424));
    Scene::with_table("fault-scopes", vec![filter("fault", "HTTPFault", json!({}))], table)
        .gets(&["/weighted", "/route", "/nothing", "/"])
        .ask("GET", "own.test", "/", "")
}
