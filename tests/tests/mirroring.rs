//! Request mirroring: a copy goes to another cluster, and nobody waits for it.

use postrider_tests::ask;
use postrider_tests::grpc::http2;
use postrider_tests::grpc_origin::{Answer, Call, GrpcOrigin};
use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, net::refusing_address, wait_until};
use serde_json::{Value, json};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn start(route: Value, host: Value, shadow: &Origin, origin: &Origin) -> Proxy {
    let mut action = json!({"cluster": "origin"});
    postrider_tests::kit::config::overlay(&mut action, route);
    let mut virtual_host =
        json!({"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": action}]});
    postrider_tests::kit::config::overlay(&mut virtual_host, host);
    let config = Config::new()
        .http(json!({"route_config": {"virtual_hosts": [virtual_host]}}))
        .cluster("origin", &[origin.address])
        .cluster("shadow", &[shadow.address])
        .cluster("down", &[refusing_address()]);
    Proxy::start(&config)
}

fn post(proxy: &Proxy, host: &str, fields: &str, body: &str) -> u16 {
    let head = format!("POST /a?q HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
    proxy.exchange(format!("{head}{body}")).status
}

#[test]
fn the_copy_has_head_and_body_and_a_marked_host() {
    let (origin, shadow) = (Origin::fixed(OK), Origin::fixed(OK));
    let mirror = json!({"request_mirror_policies": [{"cluster": "shadow"}], "prefix_rewrite": "/z/"});
    let proxy = start(mirror, json!({}), &shadow, &origin);
    assert_eq!(post(&proxy, "a.test:81", "x-gone: 1\r\n", "hello"), 200);
    shadow.wait_requests(1);
    let (real, copy) = (origin.requests().remove(0), shadow.requests().remove(0));
    assert_eq!((real.target.as_str(), real.header("host")), ("/z/a?q", "a.test:81"));
    assert_eq!((copy.target.as_str(), copy.header("host")), ("/z/a?q", "a.test-shadow:81"));
    assert_eq!((copy.body.as_slice(), copy.header("x-gone")), (&b"hello"[..], "1"));
    assert_eq!(copy.header("x-envoy-internal"), "true");
    assert!(!real.headers.contains("x-envoy-internal"));
    proxy.wait_stat("cluster.shadow.internal.upstream_rq_200", 1);
    assert_eq!(proxy.stats().value("cluster.shadow.upstream_rq_total"), 1);
    assert_eq!(proxy.stats().value("cluster.origin.upstream_rq_total"), 1);
}

#[test]
fn a_chunked_body_is_copied_piece_by_piece() {
    let (origin, shadow) = (Origin::fixed(OK), Origin::fixed(OK));
    let proxy = start(json!({"request_mirror_policies": [{"cluster": "shadow"}]}), json!({}), &shadow, &origin);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    // The copy is under way before the request is complete.
    origin.wait_connections(1);
    shadow.wait_connections(1);
    client.send("6\r\n world\r\n0\r\n\r\n");
    shadow.wait_requests(1);
    origin.wait_requests(1);
    assert_eq!(shadow.requests().remove(0).body, b"hello world");
    assert_eq!(origin.requests().remove(0).body, b"hello world");
}

#[test]
fn policies_say_which_cluster_which_host_which_fields_and_how_many() {
    let (origin, shadow) = (Origin::fixed(OK), Origin::fixed(OK));
    let policies = json!({"request_mirror_policies": [
        {"cluster_header": "x-to", "disable_shadow_host_suffix_append": true, "request_headers_mutations": [
            {"append": {"header": {"key": "x-path", "value": "%REQ(:path)%"}}}, {"remove": "x-gone"}]},
        {"cluster": "shadow", "runtime_fraction": {"default_value": {"numerator": 0}}},
    ]});
    let proxy = start(policies, json!({}), &shadow, &origin);
    ask(&proxy, "GET", "t", "/x", "");
    ask(&proxy, "GET", "t", "/y", "x-to: shadow\r\nx-gone: 1\r\n");
    shadow.wait_requests(1);
    origin.wait_requests(2);
    let copy = shadow.requests().remove(0);
    assert_eq!((copy.target.as_str(), copy.header("host"), copy.header("x-path")), ("/y", "t", "/y"));
    assert!(!copy.headers.contains("x-gone"));
    assert_eq!(proxy.stats().value("cluster.shadow.upstream_rq_total"), 1);
}

#[test]
fn a_route_without_policies_has_those_of_its_virtual_host() {
    let (origin, shadow) = (Origin::fixed(OK), Origin::fixed(OK));
    let policies = json!({"request_mirror_policies": [{"cluster": "shadow", "host_rewrite_literal": "lit"}]});
    let proxy = start(json!({}), policies, &shadow, &origin);
    assert_eq!(proxy.get("/").status, 200);
    shadow.wait_requests(1);
    assert_eq!(shadow.requests().remove(0).header("host"), "lit");
}

#[test]
fn nothing_of_the_request_waits_for_the_copy() {
    let gate = Gate::default();
    let waits = gate.clone();
    let origin = Origin::fixed(OK);
    let shadow = Origin::start(move |connection| {
        while connection.request().is_some() {
            waits.wait();
            connection.write(OK.as_bytes());
        }
    });
    let policies = json!({"request_mirror_policies": [{"cluster": "shadow"}, {"cluster": "down"}]});
    let proxy = start(policies, json!({}), &shadow, &origin);
    for _ in 0..3 {
        assert_eq!(post(&proxy, "t", "", "hello"), 200);
    }
    shadow.wait_requests(3);
    gate.open();
    proxy.wait_stat("cluster.shadow.upstream_rq_200", 3);
    proxy.wait_stat("cluster.down.upstream_rq_503", 3);
}

#[test]
fn copies_go_over_http_2_as_well() {
    let answer = |_: &Call| Answer::messages([b"x".to_vec()]);
    let (origin, shadow) = (Origin::fixed(OK), GrpcOrigin::start(answer));
    let config = Config::routes(json!([{"match": {"prefix": "/"},
        "route": {"cluster": "origin", "request_mirror_policies": [{"cluster": "shadow"}]}}]))
    .cluster("origin", &[origin.address])
    .cluster_with("shadow", &[shadow.address], http2());
    let proxy = Proxy::start(&config);
    let chunked = "POST /c HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    assert_eq!(proxy.exchange(chunked).status, 200);
    wait_until("the copy of a chunked request", || shadow.calls().len() == 1);
    assert_eq!((shadow.last().path.as_str(), shadow.last().rest.as_slice()), ("/c", &b"hello"[..]));
    assert_eq!(post(&proxy, "t", "", "hallo"), 200);
    wait_until("the copy of a sized request", || shadow.calls().len() == 2);
    assert_eq!(shadow.last().rest, b"hallo");
    // From a client that says no length either.
    let mut client = H2Client::connect(proxy.address("http"));
    let mut exchange = client.start(request("POST", "/h2").body(()).unwrap(), false);
    client.send_all(&mut exchange.body, b"hullo", true).unwrap();
    assert_eq!(client.answer(exchange).unwrap().text(), "ok");
    wait_until("the copy of a stream", || shadow.calls().len() == 3);
    assert_eq!(shadow.last().rest, b"hullo");
    proxy.wait_stat("cluster.shadow.upstream_rq_200", 3);
}

/// The copy had no count of tries, and the route's time where the request had asked for less.
#[test]
fn a_copy_says_which_try_it_is_and_has_the_requests_own_time() {
    let origin = Origin::fixed(OK);
    let shadow = Origin::start(|connection| {
        connection.request();
        connection.read_to_end();
    });
    let ranges = json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]});
    let action = json!({"cluster": "origin", "timeout": "60s", "request_mirror_policies": [{"cluster": "shadow"}]});
    let routes = json!([{"match": {"prefix": "/"}, "route": action}]);
    let host = json!({"name": "all", "domains": ["*"], "include_request_attempt_count": true, "routes": routes});
    let inside = json!({"use_remote_address": true, "internal_address_config": ranges});
    let config = Config::new()
        .http(json!({"route_config": {"virtual_hosts": [host]}}))
        .overlay_filter("http", inside)
        .cluster("origin", &[origin.address])
        .cluster("shadow", &[shadow.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(post(&proxy, "t", "x-envoy-upstream-rq-timeout-ms: 100\r\n", "hello"), 200);
    proxy.wait_stat("cluster.shadow.upstream_rq_timeout", 1);
    let copy = shadow.requests().remove(0);
    assert_eq!((copy.header("x-envoy-attempt-count"), copy.header("x-envoy-expected-rq-timeout-ms")), ("1", "100"));
}

/// `request_mirror_policies` of a cluster were refused.
#[test]
fn a_cluster_has_the_last_word_about_copies() {
    let (origin, shadow, other) = (Origin::fixed(OK), Origin::fixed(OK), Origin::fixed(OK));
    let action = json!({"cluster": "origin", "request_mirror_policies": [{"cluster": "other"}]});
    let routes = json!([
        {"match": {"path": "/own"}, "route": action},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let own = json!({"request_mirror_policies": [{"cluster": "shadow"}, {"cluster": "nobody"}]});
    let options = postrider_tests::kit::config::upstream_http_options(own);
    let config = Config::routes(routes)
        .cluster_with("origin", &[origin.address], options)
        .cluster("shadow", &[shadow.address])
        .cluster("other", &[other.address]);
    let proxy = Proxy::start(&config);
    for path in ["/", "/own"] {
        assert_eq!(ask(&proxy, "GET", "t", path, "").status, 200, "{path}");
    }
    shadow.wait_requests(2);
    assert!(other.requests().is_empty());
}
