//! Clusters of original destinations: connections and requests go where they were meant to go.

use postrider_tests::kit::config::{extension, overlay, upstream_http_options};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::{ask, get};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn proxy_protocol() -> Value {
    let type_name = "filters.listener.proxy_protocol.v3.ProxyProtocol";
    extension(
        "envoy.filters.listener.proxy_protocol",
        type_name,
        json!({"allow_requests_without_proxy_protocol": true}),
    )
}

fn original_dst() -> Value {
    extension("envoy.filters.listener.original_dst", "filters.listener.original_dst.v3.OriginalDst", json!({}))
}

fn cluster(fields: Value) -> Value {
    let mut cluster = json!({"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "load_assignment": null});
    overlay(&mut cluster, fields);
    cluster
}

fn http(fields: Value) -> Proxy {
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "meant"}}]);
    let config = Config::routes(routes)
        .cluster_with("meant", &[], cluster(fields))
        .overlay_listener("http", json!({"listener_filters": [proxy_protocol(), original_dst()]}));
    Proxy::start(&config)
}

/// As a proxy in front says that a connection was meant for `address`.
fn meant_for(address: SocketAddr) -> String {
    format!("PROXY TCP4 127.0.0.1 {} 1111 {}\r\n", address.ip(), address.port())
}

#[test]
fn each_connection_goes_to_its_own_destination() {
    let (blue, green) = (Origin::echo("blue"), Origin::echo("green"));
    let proxy = http(json!({}));
    for (origin, name) in [(&blue, "blue"), (&green, "green"), (&blue, "blue")] {
        let mut client = proxy.client();
        client.send(meant_for(origin.address));
        for _ in 0..2 {
            let response = client.exchange(get("/"));
            assert!(response.status == 200 && response.header("x-origin") == name, "{response:?}");
        }
    }
    assert_eq!(blue.connection_count(), 1, "the second client takes the pooled connection");
    assert_eq!(proxy.get("/").status, 503, "nobody said where this one was meant to go");
}

#[test]
fn a_request_may_name_its_destination_where_that_is_allowed() {
    let origin = Origin::echo("named");
    let field = |name: &str, value: &str| format!("{name}: {value}\r\n");
    let named = field("x-envoy-original-dst-host", &origin.address.to_string());
    assert_eq!(ask(&http(json!({})), "GET", "test", "/", &named).status, 503, "it is not allowed by default");

    let proxy = http(json!({"original_dst_lb_config": {"use_http_header": true}}));
    assert_eq!(ask(&proxy, "GET", "test", "/", &named).header("x-origin"), "named");
    for wrong in ["nobody", "127.0.0.1", "localhost:80"] {
        let named = field("x-envoy-original-dst-host", wrong);
        assert_eq!(ask(&proxy, "GET", "test", "/", &named).status, 503, "{wrong}");
    }
    assert_eq!(proxy.stats().value("cluster.meant.original_dst_host_invalid"), 3);

    let other = json!({"original_dst_lb_config": {
        "use_http_header": true, "http_header_name": "x-to", "upstream_port_override": origin.address.port(),
    }});
    assert_eq!(ask(&http(other), "GET", "test", "/", &field("x-to", "127.0.0.1:1")).header("x-origin"), "named");

    for name in [":authority", "Host"] {
        let by_host = http(json!({"original_dst_lb_config": {"use_http_header": true, "http_header_name": name}}));
        assert_eq!(ask(&by_host, "GET", &origin.address.to_string(), "/", "").header("x-origin"), "named", "{name}");
        assert_eq!(ask(&by_host, "GET", "test", "/", "").status, 503, "{name}");
    }
}

#[test]
fn a_filter_may_note_the_destination_before_any_header() {
    let (noted, named, meant) = (Origin::echo("noted"), Origin::echo("named"), Origin::echo("meant"));
    let to_metadata = extension(
        "envoy.filters.http.header_to_metadata",
        "filters.http.header_to_metadata.v3.Config",
        json!({"request_rules": [{"header": "x-noted", "on_header_present": {"metadata_namespace": "ns", "key": "to"}}]}),
    );
    let settings = json!({"original_dst_lb_config": {
        "use_http_header": true, "metadata_key": {"key": "ns", "path": [{"key": "to"}]},
    }});
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "meant"}}]);
    let config = Config::routes(routes)
        .cluster_with("meant", &[], cluster(settings))
        .overlay_filter("http", json!({"http_filters": [to_metadata, postrider_tests::kit::config::router()]}))
        .overlay_listener("http", json!({"listener_filters": [proxy_protocol()]}));
    let proxy = Proxy::start(&config);
    let reached = |fields: String| {
        let mut client = proxy.client();
        client.send(meant_for(meant.address));
        client.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n")).header("x-origin").to_owned()
    };
    let by_header = format!("x-envoy-original-dst-host: {}\r\n", named.address);
    assert_eq!(reached(format!("x-noted: {}\r\n{by_header}", noted.address)), "noted");
    assert_eq!(reached(format!("x-noted: nobody\r\n{by_header}")), "named");
    assert_eq!(reached(by_header), "named");
    // A name that is none leaves the request to where its connection was meant to go.
    assert_eq!(reached("x-envoy-original-dst-host: nobody\r\n".to_owned()), "meant");
    assert_eq!(reached("x-noted: nobody\r\n".to_owned()), "meant");
    assert_eq!(proxy.stats().value("cluster.meant.original_dst_host_invalid"), 3);
}

#[test]
fn the_first_of_a_noted_list_is_the_destination() {
    let noted = Origin::echo("noted");
    let values = json!({"to": [noted.address.to_string(), "127.0.0.1:1"]});
    let notes = extension(
        "envoy.filters.http.set_metadata",
        "filters.http.set_metadata.v3.Config",
        json!({"metadata": [{"metadata_namespace": "ns", "value": values}]}),
    );
    let settings = json!({"original_dst_lb_config": {"metadata_key": {"key": "ns", "path": [{"key": "to"}]}}});
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "meant"}}]);
    let config = Config::routes(routes)
        .cluster_with("meant", &[], cluster(settings))
        .overlay_filter("http", json!({"http_filters": [notes, postrider_tests::kit::config::router()]}));
    assert_eq!(ask(&Proxy::start(&config), "GET", "test", "/", "").header("x-origin"), "noted");
}

#[test]
fn so_do_connections_that_nobody_reads() {
    let origins = [Origin::tcp_echo("0"), Origin::tcp_echo("1")];
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "meant"}))
        .cluster_with("meant", &[], cluster(json!({})))
        .overlay_listener("tcp", json!({"listener_filters": [proxy_protocol()]}));
    let proxy = Proxy::start(&config);
    for (origin, greeting) in origins.iter().zip([b"0", b"1"]) {
        let mut client = RawClient::connect(proxy.address("tcp"));
        client.send(meant_for(origin.address));
        assert_eq!(client.read_exact(1).unwrap(), greeting);
    }
    let mut lost = RawClient::connect(proxy.address("tcp"));
    lost.send("hello");
    assert!(lost.closed());
}

#[test]
fn a_destination_that_nobody_needs_is_made_anew() {
    let origin = Origin::echo("once");
    let idle = json!({"common_http_protocol_options": {"idle_timeout": "0.2s"}});
    let mut fields = upstream_http_options(idle);
    fields["cleanup_interval"] = json!("0.2s");
    let proxy = http(fields);
    let mut client = proxy.client();
    client.send(meant_for(origin.address));
    assert_eq!(client.exchange(get("/")).status, 200);
    wait_until("its pooled connection is closed", || origin.open_connections() == 0);
    assert_eq!(client.exchange(get("/")).status, 200);
    assert_eq!(origin.connection_count(), 2);
}
