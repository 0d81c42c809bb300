//! Settings of a connection manager that few set: how it reads HTTP/1, what it says of addresses and schemes, how its
//! connections come of age.

use postrider_tests::kit::config::{extension, upstream_http_options};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::site::{self, Site};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};

/// In front of an echo, with these fields of the connection manager.
fn with(fields: Value) -> Site {
    site::with([]).manager(fields).start()
}

fn http1(options: Value) -> Value {
    json!({"http_protocol_options": options})
}

#[test]
fn a_whole_url_is_no_target_where_none_is_taken() {
    let site = with(http1(json!({"allow_absolute_url": false})));
    let mut client = site.proxy.client();
    let answer = client.exchange("GET http://test/a HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((answer.status, answer.text(), answer.header("connection")), (404, "", ""));
    assert_eq!(client.exchange(get("/a")).status, 200, "the connection goes on");
    assert_eq!(site.logged(1), "404 - absolute_path_rejected");
    assert_eq!(site.stat("http.ingress_http.downstream_rq_non_relative_path"), 1);
    assert_eq!(site.origin.requests().len(), 1);
}

#[test]
fn a_request_that_is_refused_for_what_it_says_may_leave_its_connection_open() {
    let hostless = "GET / HTTP/1.1\r\n\r\n";
    for fields in [
        json!({"stream_error_on_invalid_http_message": true}),
        http1(json!({"override_stream_error_on_invalid_http_message": true})),
    ] {
        let site = with(fields);
        let mut client = site.proxy.client();
        let answer = client.exchange(hostless);
        assert_eq!((answer.status, answer.text(), answer.header("connection")), (400, "", ""));
        assert_eq!(client.exchange(get("/")).status, 200);
        assert_eq!(site.logged(1), "400 - missing_host_header");
        // What cannot be understood ends it all the same.
        let mut client = site.proxy.client();
        assert_eq!(client.exchange("GET / HTTP/1.1\r\nhost: a\r\nx y: 1\r\n\r\n").status, 400);
        assert!(client.closed());
    }
    let site = with(json!({
        "stream_error_on_invalid_http_message": true,
        "http_protocol_options": {"override_stream_error_on_invalid_http_message": false},
    }));
    let mut client = site.proxy.client();
    assert_eq!(client.exchange(hostless).header("connection"), "close");
    assert!(client.closed());
}

#[test]
fn upgrades_that_are_ignored_were_never_asked_for() {
    let site = with(http1(json!({"ignore_http_11_upgrade": [{"prefix": "TLS"}, {"exact": "x"}]})));
    let ask = |token: &str| site.get("/", &format!("connection: upgrade\r\nupgrade: {token}\r\n")).status;
    assert_eq!((ask("TLS/1.2"), ask("TLS/1.0, x"), ask("y")), (200, 200, 403));
    assert!(site.origin.requests().iter().all(|request| request.header("upgrade").is_empty()));
    assert!(site.origin.requests().iter().all(|request| request.header("connection").is_empty()));
}

#[test]
fn an_upstream_that_is_a_proxy_is_asked_by_whole_urls() {
    let origin = Origin::echo("a");
    let options = json!({"explicit_http_config": {"http_protocol_options": {"send_fully_qualified_url": true}}});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])).cluster_with(
        "origin",
        &[origin.address],
        upstream_http_options(options),
    );
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/a?b=c").status, 200);
    assert_eq!(proxy.exchange("POST /p HTTP/1.1\r\nhost: h:81\r\nx-forwarded-proto: https\r\n\r\n").status, 200);
    let targets: Vec<_> = origin.requests().iter().map(|request| request.target.clone()).collect();
    assert_eq!(targets, ["http://test/a?b=c", "https://h:81/p"]);
    assert_eq!(origin.requests()[1].header("host"), "h:81");
}

#[test]
fn the_port_that_a_connection_was_meant_for_may_stand_for_its_scheme() {
    let filter = extension(
        "envoy.filters.listener.proxy_protocol",
        "filters.listener.proxy_protocol.v3.ProxyProtocol",
        json!({"allow_requests_without_proxy_protocol": true}),
    );
    let ports = json!({"https_destination_ports": [443], "http_destination_ports": [80]});
    let origin = Origin::echo("a");
    let config = Config::proxy_to(origin.address)
        .overlay_filter("http", json!({"forward_proto_config": ports}))
        .overlay_listener("http", json!({"listener_filters": [filter]}));
    let proxy = Proxy::start(&config);
    let told = |introduction: &str, fields: &str| {
        origin.forget();
        let mut client = RawClient::connect(proxy.address("http"));
        client.send(introduction);
        assert_eq!(client.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n")).status, 200);
        origin.requests()[0].header("x-forwarded-proto").to_owned()
    };
    let meant = |port: u16| format!("PROXY TCP4 10.0.0.1 10.0.0.2 1111 {port}\r\n");
    assert_eq!(told(&meant(443), ""), "https");
    assert_eq!(told(&meant(80), ""), "http");
    assert_eq!(told(&meant(8080), ""), "http");
    assert_eq!(told("", ""), "http");
    assert_eq!(told(&meant(80), "x-forwarded-proto: https\r\n"), "https", "who is trusted has said it");
}

#[test]
fn an_upstream_hears_nothing_of_the_client_where_that_is_off() {
    let transport = extension(
        "envoy.transport_sockets.upstream_proxy_protocol",
        "transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
        json!({"config": {"version": "V1"}, "transport_socket": extension(
            "envoy.transport_sockets.raw_buffer", "transport_sockets.raw_buffer.v3.RawBuffer", json!({}),
        )}),
    );
    for (tells, manager) in [(true, json!({})), (false, json!({"add_proxy_protocol_connection_state": false}))] {
        let origin = Origin::start(|connection| {
            let mut line = Vec::new();
            while let Some(byte) = connection.read_exact(1) {
                line.extend_from_slice(&byte);
                if line.ends_with(b"\r\n\r\n") {
                    let body = String::from_utf8_lossy(&line).lines().next().unwrap_or_default().to_owned();
                    connection
                        .write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes());
                    return;
                }
            }
        });
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
            .cluster_with("origin", &[origin.address], json!({"transport_socket": transport}))
            .overlay_filter("http", manager);
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        let own = client.local_addr().port().to_string();
        let answer = client.exchange(get("/"));
        let told: Vec<_> = answer.text().split(' ').collect();
        assert_eq!(told[0], "PROXY", "{told:?}");
        assert_eq!(told[4] == own, tells, "{told:?}");
        assert_eq!(told[5] == origin.address.port().to_string(), !tells, "{told:?}");
    }
}

/// A connection that is older than it may become, and idle.
fn aged(site: &Site) -> RawClient {
    let mut client = site.proxy.client();
    let first = client.exchange(get("/"));
    assert_eq!((first.status, first.header("connection")), (200, ""));
    site.proxy.wait_stat("http.ingress_http.downstream_cx_max_duration_reached", 1);
    client
}

#[test]
fn a_connection_that_is_too_old_takes_one_more_request() {
    for fields in [
        json!({"drain_timeout": "60s"}),
        json!({"drain_timeout": "0.001s", "http1_safe_max_connection_duration": true}),
        json!({"drain_timeout": "30s", "drain_timeout_jitter": {"value": 100.0}}),
    ] {
        let mut manager = json!({"common_http_protocol_options": {"max_connection_duration": "0.5s"}});
        for (key, value) in fields.as_object().unwrap() {
            manager[key] = value.clone();
        }
        let site = with(manager);
        let mut client = aged(&site);
        let waits_for_good = u64::from(fields.get("http1_safe_max_connection_duration").is_some());
        let waiting = || site.stat("http.ingress_http.downstream_cx_http1_soft_drain");
        assert_eq!(waiting(), waits_for_good, "{fields}");
        let last = client.exchange(get("/"));
        assert_eq!((last.status, last.header("connection")), (200, "close"), "{fields}");
        // Envoy waits for the client to close.
        assert!(envoy() || client.closed());
        assert_eq!(site.stat("http.ingress_http.downstream_cx_max_duration_reached"), 1);
        drop(client);
        wait_until("the connection is counted as gone", || waiting() == 0);
    }
}

#[test]
fn one_that_no_request_comes_on_is_closed_in_time() {
    let site = with(json!({
        "common_http_protocol_options": {"max_connection_duration": "0.5s"}, "drain_timeout": "0.1s",
        "drain_timeout_jitter": {"value": 50.0},
    }));
    assert!(aged(&site).closed());
    assert_eq!(site.stat("http.ingress_http.downstream_cx_max_duration_reached"), 1);
    assert_eq!(site.stat("http.ingress_http.downstream_cx_idle_timeout"), 0);
}
