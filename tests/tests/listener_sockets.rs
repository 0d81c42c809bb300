//! What listeners set on their sockets, for each of their addresses: keep-alive, and IPv4 on IPv6.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use postrider_tests::get;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Proxy, RawClient, net, process, wait_until};
use postrider_tests::probes::probed;
use serde_json::{Value, json};

fn answering(format: &str, listener: Value) -> Config {
    let body = json!({"text_format_source": {"inline_string": format}});
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body_format": body}}]);
    Config::routes(routes).overlay_listener("http", listener)
}

/// In how many seconds the system asks the client of a connection whether it is still there, as the server's side of the
/// connection has it; `None` when it does not.
fn asks_in(client: &RawClient, server: SocketAddr) -> Option<u64> {
    let mut seen = Vec::new();
    // The table may change while it is read, and lack a line or have it twice.
    wait_until("the connection stands in the table once", || {
        seen = probed(Some(server), client.local_addr());
        seen.len() == 1
    });
    seen[0]
}

#[test]
fn clients_are_asked_whether_they_are_still_there() {
    let port = net::free_port();
    let more = net::free_port();
    let silent = net::free_port();
    let place = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let proxy = Proxy::start(&answering(
        "",
        json!({
            "address": place(port),
            "tcp_keepalive": {"keepalive_time": 1000},
            "additional_addresses": [
                {"address": place(more), "tcp_keepalive": {"keepalive_time": 3000}},
                {"address": place(silent), "tcp_keepalive": {"keepalive_probes": 0}},
            ],
        }),
    ));
    let asked = |port: u16| {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut client = RawClient::connect(server);
        assert_eq!(client.exchange(get("/")).status, 200);
        // What the answer waits for comes first.
        wait_until("nothing else is under way", || asks_in(&client, server).is_some() || port == silent);
        asks_in(&client, server)
    };
    assert_eq!(proxy.address("http").port(), port);
    let (first, second) = (asked(port), asked(more));
    assert!(first.is_some_and(|seconds| (900..=1000).contains(&seconds)), "{first:?}");
    assert!(second.is_some_and(|seconds| (2900..=3000).contains(&seconds)), "{second:?}");
    assert_eq!(asked(silent), None, "0 turns it off");
}

#[test]
fn an_additional_address_has_options_of_its_own() {
    let (main, more) = (net::free_port(), net::free_port());
    let place = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    // SO_KEEPALIVE by its number, for the listener; none for the other.
    let keepalive = json!({"level": 1, "name": 9, "int_value": 1});
    let _proxy = Proxy::start(&answering(
        "",
        json!({
            "address": place(main),
            "socket_options": [keepalive],
            "additional_addresses": [{"address": place(more), "socket_options": {}}],
        }),
    ));
    let asked = |port: u16| {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut client = RawClient::connect(server);
        assert_eq!(client.exchange(get("/")).status, 200);
        wait_until("nothing else is under way", || asks_in(&client, server).is_some() || port == more);
        asks_in(&client, server).is_some()
    };
    assert_eq!((asked(main), asked(more)), (true, false));
}

#[test]
fn a_socket_option_may_be_for_one_kind_of_sockets() {
    let ports: [u16; 5] = std::array::from_fn(|_| net::free_port());
    let place = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    // SO_KEEPALIVE by its number.
    let keepalive = |kind: Value| {
        let mut option = json!({"level": 1, "name": 9, "int_value": 1});
        option.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        json!([option])
    };
    let kinds = [
        (json!({"type": {"stream": {}}}), true),
        (json!({"type": {"datagram": {}}}), false),
        (json!({"ip_version": "SOCKET_IP_VERSION_IPV4"}), true),
        (json!({"ip_version": "SOCKET_IP_VERSION_IPV6"}), false),
        (json!({"type": {}, "ip_version": "SOCKET_IP_VERSION_UNSPECIFIED"}), true),
    ];
    let more: Vec<Value> = kinds[1..]
        .iter()
        .zip(&ports[1..])
        .map(|((kind, _), port)| {
            json!({"address": place(*port), "socket_options": {"socket_options": keepalive(kind.clone())}})
        })
        .collect();
    let _proxy = Proxy::start(&answering(
        "",
        json!({
            "address": place(ports[0]),
            "socket_options": keepalive(kinds[0].0.clone()),
            "additional_addresses": more,
        }),
    ));
    for (port, (kind, is_set)) in ports.into_iter().zip(kinds) {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut client = RawClient::connect(server);
        assert_eq!(client.exchange(get("/")).status, 200);
        wait_until("nothing else is under way", || asks_in(&client, server).is_some() || !is_set);
        assert_eq!(asks_in(&client, server).is_some(), is_set, "{kind}");
    }
}

#[test]
fn an_address_of_ipv6_may_serve_ipv4_as_well() {
    if std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() {
        eprintln!("skipped: this system has no IPv6");
        return;
    }
    let port = net::free_port();
    let socket = json!({"socket_address": {"address": "::", "port_value": port, "ipv4_compat": true}});
    let proxy = Proxy::start(&answering(
        "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_LOCAL_ADDRESS%",
        json!({"address": socket}),
    ));
    let told = |address: SocketAddr| RawClient::connect(address).exchange(get("/")).text().to_owned();
    let four = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    assert_eq!(told(four), format!("127.0.0.1 {four}"));
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        let six = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        assert_eq!(told(six), format!("::1 {six}"));
    }
    drop(proxy);
    let socket = json!({"socket_address": {"address": "::", "port_value": port}});
    let _proxy = Proxy::start(&answering("", json!({"address": socket})));
    assert!(std::net::TcpStream::connect(four).is_err(), "and does not of itself");
}

/// In how many goes a worker accepted seven connections that waited for it.
fn goes_for_seven(most: Option<u32>) -> f64 {
    let mut listener = json!({"stat_prefix": "at"});
    if let Some(most) = most {
        listener["max_connections_to_accept_per_socket_event"] = json!(most);
    }
    let mut proxy = Proxy::start(&answering("", listener));
    let address = proxy.address("http");
    process::stop(proxy.pid());
    let clients: Vec<_> = (0..7).map(|_| RawClient::connect(address)).collect();
    proxy.signal("CONT");
    let told = |what: &str| {
        let start = format!("envoy_listener_connections_accepted_per_socket_event_{what}{{");
        let page = proxy.admin_get("/stats/prometheus");
        let line = page.text().lines().find(|line| line.starts_with(&start) && line.contains("\"at\""));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    wait_until("all of them to be accepted", || told("sum").round() >= clients.len() as f64);
    told("count")
}

#[test]
fn a_worker_accepts_as_many_connections_at_once_as_it_is_told() {
    assert_eq!(goes_for_seven(None), 1.0, "all that wait");
    assert_eq!(goes_for_seven(Some(3)), 3.0);
    assert_eq!(goes_for_seven(Some(1)), 7.0);
}

/// How many sockets listen on a port of IPv4.
fn listening(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
    let here = format!("0100007F:{port:04X}");
    let listens = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(here.as_str()) && fields.nth(1) == Some("0A")
    };
    table.lines().filter(listens).count()
}

#[test]
fn workers_share_one_socket_where_ports_are_not_to_be_reused() {
    let launch = || Launch { concurrency: 2, ..Launch::default() };
    let several = Proxy::start_with(&answering("x", json!({})), launch());
    assert_eq!(listening(several.address("http").port()), 2, "one for each worker");
    let proxy = Proxy::start_with(&answering("x", json!({"enable_reuse_port": false})), launch());
    let address = proxy.address("http");
    assert_eq!(listening(address.port()), 1);
    let mut clients: Vec<_> = (0..20).map(|_| RawClient::connect(address)).collect();
    assert!(clients.iter_mut().all(|client| client.exchange(get("/")).text() == "x"));
}
