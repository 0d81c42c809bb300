//! Upgrades: a tunnel exists only when it is configured and the origin has
//! agreed with a 101 to what this client asked for.

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Gate, Origin, OriginConnection, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::{envoy, get, site};
use serde_json::{Value, json};

const ASK: &str = "GET /chat HTTP/1.1\r\nhost: test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";

fn websockets(origin: &Origin) -> Config {
    Config::proxy_to(origin.address).overlay_filter("http", json!({"upgrade_configs": [{"upgrade_type": "websocket"}]}))
}

/// Agrees to an upgrade, greets, then sends every byte back.
fn agree_and_echo(connection: &mut OriginConnection) {
    while let Some(request) = connection.request() {
        if request.header("upgrade") != "websocket" {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain");
            continue;
        }
        connection.write(AGREE.as_bytes());
        connection.write(b"hi");
        while let Some(byte) = connection.read_exact(1) {
            connection.write(&byte);
        }
        return connection.half_close();
    }
}

fn open(client: &mut RawClient) {
    client.send(ASK);
    let answer = client.response("GET").unwrap();
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.header("upgrade"), "websocket");
    assert!(answer.header("connection").eq_ignore_ascii_case("upgrade"));
    assert_eq!(client.read_exact(2).unwrap(), b"hi");
}

#[test]
fn a_tunnel_is_told_of_in_the_log_when_it_opens() {
    let origin = Origin::start(agree_and_echo);
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let log = json!({
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": path,
            "log_format": {"text_format_source": {"inline_string":
                "%ACCESS_LOG_TYPE% %REQ(:PATH)% %RESPONSE_CODE% %UPSTREAM_HOST%\n"}},
        },
    });
    let options = json!({"flush_log_on_tunnel_successfully_established": true});
    let config =
        websockets(&origin).overlay_filter("http", json!({"access_log": [log], "access_log_options": options}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/plain").status, 200);
    let mut client = proxy.client();
    open(&mut client);
    let mut lines: Vec<String> = Vec::new();
    let mut wait_for = |count: usize| {
        wait_until("lines in the log", || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            lines = text.lines().map(str::to_owned).collect();
            lines.len() >= count
        });
        lines.clone()
    };
    let host = origin.address;
    let first = [
        format!("DownstreamEnd /plain 200 {host}"),
        format!("DownstreamTunnelSuccessfullyEstablished /chat 101 {host}"),
    ];
    assert_eq!(wait_for(2), first);
    client.half_close();
    assert!(client.closed());
    assert_eq!(wait_for(3)[2], format!("DownstreamEnd /chat 101 {host}"));
}

#[test]
fn bytes_flow_both_ways_after_the_101() {
    let origin = Origin::start(agree_and_echo);
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    open(&mut client);
    for message in [&b"\x81\x05hello"[..], b"GET /canary HTTP/1.1\r\nhost: test\r\n\r\n", b"\0\r\n\xff"] {
        client.send(message);
        assert_eq!(client.read_exact(message.len()).unwrap(), message);
    }
    let seen = &origin.requests();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("upgrade"), "websocket");
    assert!(seen[0].header("connection").eq_ignore_ascii_case("upgrade"));
    assert_eq!(seen[0].header("sec-websocket-version"), "13");
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_cx_upgrades_active"), 1);
    client.half_close();
    assert!(client.closed());
    origin.wait_open_at_most(0);
    proxy.wait_stat("http.ingress_http.downstream_cx_upgrades_active", 0);
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_cx_upgrades_total"), 1);
}

#[test]
fn bytes_sent_before_the_101_wait_for_it() {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        if connection.request().is_some() {
            opened.wait();
            connection.write(AGREE.as_bytes());
            if let Some(early) = connection.read_exact(5) {
                connection.write(&early);
            }
        }
    });
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    client.send(ASK).send("early");
    origin.wait_requests(1);
    gate.open();
    assert_eq!(client.response("GET").unwrap().status, 101);
    assert_eq!(client.read_exact(5).unwrap(), b"early");
}

#[test]
fn the_end_of_one_side_ends_the_tunnel() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(AGREE.as_bytes());
            connection.write(b"hi");
            if connection.read_exact(1).is_some() {
                connection.write(b"bye");
            }
        }
    });
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    open(&mut client);
    client.send("x");
    assert_eq!(client.read_exact(3).unwrap(), b"bye");
    assert!(client.closed());

    let mut client = proxy.client();
    open(&mut client);
    client.reset();
    origin.wait_open_at_most(0);
}

#[test]
fn without_configuration_an_upgrade_is_refused() {
    let origin = Origin::start(agree_and_echo);
    for overlay in [
        json!({}),
        json!({"upgrade_configs": [{"upgrade_type": "websocket", "enabled": false}]}),
        json!({"upgrade_configs": [{"upgrade_type": "other"}]}),
    ] {
        let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", overlay));
        let response = RawClient::once(proxy.address("http"), ASK).unwrap();
        assert_eq!(response.status, 403);
    }
    assert_eq!(origin.connection_count(), 0);
}

/// What follows may be meant for the tunnel, and must not be read as a request.
#[test]
fn an_upgrade_that_is_refused_reached_the_filters_and_left_the_connection_open() {
    let origin = Origin::start(agree_and_echo);
    let routes = json!([
        {"match": {"path": "/direct"}, "direct_response": {"status": 200}},
        {"match": {"path": "/redirect"}, "redirect": {"path_redirect": "/"}},
        {"match": {"path": "/chat"}, "route": {"cluster": "origin"}},
    ]);
    let config = Config::routes(routes).cluster("origin", &[origin.address]).overlay_filter(
        "http",
        json!({"http_filters": [extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string":
            "function envoy_on_request(h) h:respond({[':status'] = '418'}, '') end"}})), router()]}),
    );
    let proxy = Proxy::start(&config);
    for path in ["/direct", "/redirect", "/chat"] {
        let mut client = proxy.client();
        client.send(format!("{}GET /direct HTTP/1.1\r\nhost: test\r\n\r\n", ASK.replace("/chat", path)));
        assert_eq!(client.response("GET").unwrap().status, 403, "{path}");
        assert!(client.response("GET").is_err(), "{path}: the connection is left");
    }
    let unrouted = RawClient::once(proxy.address("http"), ASK.replace("/chat", "/none")).unwrap();
    assert_eq!(unrouted.status, 418, "without a route, filters see it");
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_rq_ws_on_non_ws_route"), 3);
}

#[test]
fn a_route_can_allow_or_forbid_upgrades() {
    let origin = Origin::start(agree_and_echo);
    let routes = |enabled: bool| -> Value {
        json!([{"match": {"prefix": "/"}, "route": {
            "cluster": "origin", "upgrade_configs": [{"upgrade_type": "websocket", "enabled": enabled}],
        }}])
    };
    let allowed = Config::routes(routes(true)).cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&allowed);
    open(&mut proxy.client());
    let forbidden = Config::routes(routes(false))
        .cluster("origin", &[origin.address])
        .overlay_filter("http", json!({"upgrade_configs": [{"upgrade_type": "websocket"}]}));
    let proxy = Proxy::start(&forbidden);
    assert_eq!(RawClient::once(proxy.address("http"), ASK).unwrap().status, 403);
}

#[test]
fn an_origin_that_declines_answers_as_usual() {
    let origin = Origin::fixed("HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno");
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    client.send(ASK);
    let response = client.response("GET").unwrap();
    assert_eq!((response.status, response.text()), (400, "no"));
}

#[test]
fn a_plain_request_is_untouched_where_upgrades_are_allowed() {
    let origin = Origin::start(agree_and_echo);
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.exchange(get("/")).text(), "plain");
    }
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn a_101_that_nobody_asked_for_is_refused() {
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(AGREE.as_bytes());
            connection.write(b"tunnel");
            connection.read_to_end();
        }
    });
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    client.send(get("/"));
    let response = client.response("GET").unwrap();
    if envoy() {
        // Passed on, as the hostile-input notes record.
        assert_eq!(response.status, 101);
        return;
    }
    assert_eq!(response.status, 502, "{response:?}");
    assert!(!response.text().contains("tunnel"));
    origin.wait_open_at_most(0);
}

#[test]
fn a_101_to_another_protocol_is_refused() {
    if envoy() {
        // Envoy does not compare what was asked with what was agreed.
        return;
    }
    let origin = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
            connection.read_to_end();
        }
    });
    let proxy = Proxy::start(&websockets(&origin));
    assert_eq!(RawClient::once(proxy.address("http"), ASK).unwrap().status, 502);
}

#[test]
fn an_idle_tunnel_ends_after_the_stream_idle_timeout() {
    let origin = Origin::start(agree_and_echo);
    let config = websockets(&origin).overlay_filter("http", json!({"stream_idle_timeout": "0.5s"}));
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    open(&mut client);
    assert!(client.closed());
    origin.wait_open_at_most(0);
}

/// A filter that names itself to the upstream; routes say what in its place.
fn naming(name: &str, said: &str) -> Value {
    extension(
        name,
        "filters.http.header_mutation.v3.HeaderMutation",
        json!({"mutations": {"request_mutations": [append(said)]}}),
    )
}

fn append(said: &str) -> Value {
    json!({"append": {"header": {"key": "x-filters", "value": said}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}})
}

#[test]
fn requests_for_an_upgrade_pass_filters_of_their_own() {
    let origin = Origin::start(agree_and_echo);
    let of_route = json!({"mine": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute",
        "mutations": {"request_mutations": [append("of-route")]},
    }});
    let enabled = |enabled: bool| json!([{"upgrade_type": "WebSocket", "enabled": enabled}]);
    let to = |prefix: &str, upgrades: Value| json!({"match": {"prefix": prefix}, "route": {"cluster": "origin", "upgrade_configs": upgrades}});
    let mut overridden = to("/overridden", enabled(true));
    overridden["typed_per_filter_config"] = of_route;
    let routes = json!([to("/off", enabled(false)), overridden, to("/", json!([]))]);
    let config = Config::routes(routes).cluster("origin", &[origin.address]).overlay_filter(
        "http",
        json!({
            "http_filters": [naming("usual", "usual"), router()],
            "upgrade_configs": [
                {"upgrade_type": "websocket", "filters": [naming("mine", "mine"), naming("more", "more"), router()]},
                {"upgrade_type": "other", "filters": [router()]},
            ],
        }),
    );
    let proxy = Proxy::start(&config);
    let seen = |path: &str, upgrade: &str| {
        let mut client = proxy.client();
        let ask = ASK.replace("/chat", path).replace("upgrade: websocket", &format!("upgrade: {upgrade}"));
        client.send(ask);
        let status = client.response("GET").expect("an answer").status;
        let requests = origin.requests();
        let names = requests.iter().rev().find(|request| request.target == path);
        (status, names.map(|request| request.headers.values("x-filters").join(" ")).unwrap_or_default())
    };
    let own = |status, names: &str| (status, names.to_owned());
    assert_eq!(seen("/chat", "websocket"), own(101, "mine more"));
    // What a route says of a filter is added to what the filter does.
    assert_eq!(seen("/overridden", "websocket"), own(101, "mine of-route more"));
    assert_eq!(seen("/other", "other"), own(200, ""));
    assert_eq!(seen("/off", "websocket"), own(403, ""), "it is not allowed there");
    assert_eq!(seen("/unknown", "unknown"), own(403, ""));
    assert_eq!(proxy.get("/plain").status, 200);
    assert_eq!(origin.requests().last().unwrap().header("x-filters"), "usual");
}

/// Agrees to an upgrade and is gone.
fn agree_and_leave(connection: &mut OriginConnection) {
    if connection.request().is_some() {
        connection.write(format!("{AGREE}hi").as_bytes());
        connection.half_close();
    }
}

#[test]
fn the_log_did_not_say_which_end_left_a_tunnel() {
    let websockets = |origin| {
        site::with([])
            .manager(json!({"upgrade_configs": [{"upgrade_type": "websocket"}]}))
            .log("%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%")
            .start_before(origin)
    };
    let site = websockets(Origin::start(agree_and_echo));
    let mut client = site.proxy.client();
    open(&mut client);
    client.half_close();
    assert!(client.closed());
    assert_eq!(site.logged(1), "101 DC downstream_remote_disconnect");
    let mut client = site.proxy.client();
    open(&mut client);
    drop(client);
    assert_eq!(site.logged(2), "101 DC downstream_remote_disconnect");
    let site = websockets(Origin::start(agree_and_leave));
    let mut client = site.proxy.client();
    open(&mut client);
    assert!(client.closed());
    drop(client);
    assert_eq!(site.logged(1), "101 UC upstream_reset_after_response_started{connection_termination}");
}

#[test]
fn an_accepted_upgrade_told_the_time_of_a_request_that_goes_on() {
    let origin = Origin::start(agree_and_echo);
    let proxy = Proxy::start(&websockets(&origin));
    let mut client = proxy.client();
    client.send(ASK);
    let answer = client.response("GET").unwrap();
    assert_eq!(answer.status, 101);
    assert!(!answer.headers.contains("x-envoy-upstream-service-time"), "{answer:?}");
    assert!(proxy.get("/plain").headers.contains("x-envoy-upstream-service-time"));
}

#[test]
fn an_answer_before_the_end_of_its_request_told_the_time_of_all_of_it() {
    let origin = Origin::start(|connection| {
        connection.request_head();
        connection.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno");
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nabc");
    let answer = client.response("POST").unwrap();
    assert_eq!((answer.status, answer.text()), (413, "no"));
    assert!(!answer.headers.contains("x-envoy-upstream-service-time"), "{answer:?}");
}
