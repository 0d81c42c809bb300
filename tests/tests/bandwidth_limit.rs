//! Bodies that go no faster than a limit, as Envoy lets them.

use std::time::{Duration, Instant};

use postrider_tests::kit::Origin;
use postrider_tests::kit::config::extension;
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.bandwidth_limit";
const TYPE: &str = "filters.http.bandwidth_limit.v3.BandwidthLimit";

fn fields(more: Value) -> Value {
    let mut fields = json!({"stat_prefix": "edge"});
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

fn limit(more: Value) -> Plan {
    site::with([extension(NAME, TYPE, fields(more))])
}

fn of_route(more: Value) -> Value {
    let mut fields = fields(more);
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
    fields
}

fn stat(site: &Site, name: &str) -> u64 {
    site.stat(&format!("edge.http_bandwidth_limit.{name}"))
}

fn serving(bytes: usize) -> Origin {
    let body = "a".repeat(bytes);
    Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{body}"))
}

fn post(bytes: usize) -> String {
    format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {bytes}\r\n\r\n{}", "b".repeat(bytes))
}

#[test]
fn an_answer_goes_no_faster_than_the_limit() {
    let site = limit(json!({"enable_mode": "RESPONSE", "limit_kbps": 8})).start_before(serving(4096));
    let began = Instant::now();
    let answer = site.proxy.exchange(post(4096));
    let took = began.elapsed();
    assert_eq!((answer.status, answer.body.len(), answer.header("content-length")), (200, 4096, "4096"));
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(site.origin.requests()[0].body.len(), 4096);
    site.proxy.wait_stat("edge.http_bandwidth_limit.response_pending", 0);
    for (name, value) in [
        ("request_enabled", 0),
        ("response_enabled", 1),
        ("response_incoming_total_size", 4096),
        ("response_allowed_total_size", 4096),
        ("request_allowed_total_size", 0),
    ] {
        assert_eq!(stat(&site, name), value, "{name}");
    }
    let enforced = stat(&site, "response_enforced");
    assert!((5..=12).contains(&enforced), "{enforced}");
}

#[test]
fn a_request_goes_no_faster_than_the_limit() {
    let site =
        limit(json!({"enable_mode": "REQUEST", "limit_kbps": 8, "fill_interval": "0.02s"})).start_before(serving(4096));
    let began = Instant::now();
    let answer = site.proxy.exchange(post(4096));
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!((answer.status, answer.body.len()), (200, 4096));
    let request = &site.origin.requests()[0];
    assert_eq!((request.body.len(), request.headers.values("content-length")), (4096, vec!["4096"]));
    assert_eq!((stat(&site, "request_enabled"), stat(&site, "response_enabled")), (1, 0));
    assert_eq!(stat(&site, "request_allowed_total_size"), 4096);
    assert!(stat(&site, "request_enforced") >= 5);
}

/// The upstream is not late when a filter paces what it says.
#[test]
fn what_is_paced_was_cut_at_the_routes_timeout() {
    let route = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0.2s"}}]);
    for mode in ["REQUEST", "RESPONSE"] {
        let site = limit(json!({"enable_mode": mode, "limit_kbps": 8, "fill_interval": "0.02s"}))
            .routes(route.clone())
            .start_before(serving(4096));
        let began = Instant::now();
        let answer = site.proxy.exchange(post(4096));
        assert_eq!((answer.status, answer.body.len()), (200, 4096), "{mode}");
        assert!(began.elapsed() >= Duration::from_millis(400), "{mode}");
        assert_eq!(site.stat("cluster.origin.upstream_rq_timeout"), 0, "{mode}");
    }
}

#[test]
fn a_route_has_its_own_limit_and_one_without_is_free() {
    let off = of_route(json!({"limit_kbps": 1, "enable_mode": "DISABLED"}));
    let unset = json!({"enable_mode": "RESPONSE", "limit_kbps": 1, "runtime_enabled": {"default_value": false, "runtime_key": "k"}});
    let slow = of_route(json!({"limit_kbps": 4, "enable_mode": "RESPONSE"}));
    let site = limit(json!({"enable_mode": "DISABLED"}))
        .routes(json!([
            site::route("/off", NAME, off),
            site::route("/runtime", NAME, of_route(unset)),
            site::route("/slow", NAME, slow),
            site::rest(),
        ]))
        .start_before(serving(1500));
    for path in ["/off", "/runtime", "/"] {
        assert_eq!(site.get(path, "").body.len(), 1500, "{path}");
        assert_eq!(stat(&site, "response_enabled"), 0, "{path}");
    }
    assert_eq!(site.get("/slow", "").body.len(), 1500);
    assert_eq!(stat(&site, "response_enabled"), 1);
    assert!(stat(&site, "response_enforced") >= 5);
}

#[test]
fn trailers_tell_how_long_it_took() {
    let site = limit(json!({
        "enable_mode": "REQUEST_AND_RESPONSE", "limit_kbps": 4, "enable_response_trailers": true,
        "response_trailer_prefix": "x",
    }))
    .manager(json!({"http_protocol_options": {"enable_trailers": true}}))
    .start_before(Origin::fixed(format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e8\r\n{}\r\n0\r\n\r\n",
        "a".repeat(1000)
    )));
    let answer = site.proxy.exchange(post(1000));
    assert_eq!((answer.status, answer.body.len()), (200, 1000));
    for what in ["request-delay", "response-delay", "request-filter-delay", "response-filter-delay"] {
        let time: u64 = answer.trailers.value(&format!("x-bandwidth-{what}-ms")).unwrap_or("0").parse().unwrap();
        assert!((50..5000).contains(&time), "{what}: {time} {:?}", answer.trailers);
    }
}
