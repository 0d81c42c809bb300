//! `proxy-status`: clients are told what went wrong with their requests.

use postrider_tests::ask;
use postrider_tests::kit::Origin;
use postrider_tests::kit::config::extension;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::site::{self, OUTCOME, Site};
use serde_json::{Value, json};

fn telling(config: Value) -> Site {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let answer: &[u8] = match request.target.as_str() {
                "/slow" => return drop(connection.request()),
                "/bad" => b"HTTP/1.1 503 Service Unavailable\r\nproxy-status: inner; x=1\r\ncontent-length: 0\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            };
            connection.write(answer);
        }
    });
    site::with([])
        .log(OUTCOME)
        .manager(json!({"proxy_status_config": config}))
        .whole(json!({"node": {"id": "gateway-7", "cluster": "gateways"}}))
        .routes(json!([
            {"match": {"prefix": "/dead"}, "route": {"cluster": "dead"}},
            {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
            {"match": {"prefix": "/bad"}, "route": {"cluster": "origin", "retry_policy": {"retry_on": "5xx"}}},
            {"match": {"prefix": "/slow"}, "route": {"cluster": "origin", "timeout": "0.1s"}},
            {"match": {"prefix": "/good"}, "route": {"cluster": "origin"}},
            {"match": {"prefix": "/here"}, "direct_response": {"status": 503}},
        ]))
        .cluster("dead", &[refusing_address()], json!({}))
        .cluster("empty", &[], json!({}))
        .start_before(origin)
}

#[test]
fn clients_learn_what_went_wrong() {
    let site = telling(json!({}));
    for (path, status, told) in [
        ("/nowhere", 404, r#"envoy; error=destination_not_found; details="route_not_found; NR""#),
        ("/empty", 503, r#"envoy; error=destination_unavailable; details="no_healthy_upstream; UH""#),
        ("/slow", 504, r#"envoy; error=http_response_timeout; details="response_timeout; UT""#),
        ("/bad", 503, r#"inner; x=1, envoy; error=destination_unavailable; details="via_upstream; URX""#),
        ("/good", 200, ""),
        ("/here", 503, ""),
    ] {
        let answer = site.get(path, "");
        assert_eq!((answer.status, answer.header("proxy-status")), (status, told), "{path}");
    }
    let dead = site.get("/dead", "");
    assert!(
        dead.header("proxy-status").starts_with("envoy; error=connection_refused; details=\"upstream_reset_before")
    );
    let refused = ask(&site.proxy, "GET", "test", "/good", "no colon\r\n");
    assert_eq!((refused.status, refused.header("proxy-status")), (400, ""), "the codec tells nothing");
}

#[test]
fn faults_and_dropped_requests_were_told_without_a_reason() {
    let fault = extension(
        "envoy.filters.http.fault",
        "filters.http.fault.v3.HTTPFault",
        json!({"abort": {"http_status": 418, "percentage": {"numerator": 100}}, "headers": [{"name": "x-fault"}]}),
    );
    // All but one of a million.
    let dropping = json!({"load_assignment": {"policy": {"drop_overloads": [
        {"category": "x", "drop_percentage": {"numerator": 999_999, "denominator": "MILLION"}},
    ]}}});
    let site = site::with([fault])
        .manager(json!({"proxy_status_config": {"set_recommended_response_code": true}}))
        .routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "dropping"}}]))
        .cluster("dropping", &[refusing_address()], dropping)
        .start();
    for (fields, status, told) in [
        ("x-fault: 1\r\n", 418, r#"envoy; error=http_request_error; details="fault_filter_abort; FI""#),
        ("", 503, r#"envoy; error=connection_limit_reached; details="drop_overload; DO""#),
    ] {
        let answer = site.get("/", fields);
        assert_eq!((answer.status, answer.header("proxy-status")), (status, told));
    }
}

#[test]
fn the_kind_of_error_may_decide_on_the_status() {
    let site = telling(json!({"set_recommended_response_code": true, "use_node_id": true, "remove_details": true}));
    for (line, path, status, told, logged) in [
        (1, "/nowhere", 500, "gateway-7; error=destination_not_found", "500 NR route_not_found"),
        (2, "/slow", 504, "gateway-7; error=http_response_timeout", "504 UT response_timeout"),
        (3, "/dead", 502, "gateway-7; error=connection_refused", "502 UF "),
    ] {
        let answer = site.get(path, "");
        assert_eq!((answer.status, answer.header("proxy-status")), (status, told), "{path}");
        assert!(site.logged(line).starts_with(logged), "{}", site.logged(line));
    }
    assert_eq!(site.stat("cluster.dead.upstream_rq_503"), 1, "the cluster counts what happened");
}

#[test]
fn flags_may_be_left_out() {
    let site = telling(json!({"literal_proxy_name": "my proxy", "remove_response_flags": true}));
    let answer = site.get("/empty", "");
    let told = r#"my proxy; error=destination_unavailable; details="no_healthy_upstream""#;
    assert_eq!(answer.header("proxy-status"), told);
}
