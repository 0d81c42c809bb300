//! Changing the configuration, losing an upstream and shutting down, all while
//! requests are on their way.

use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, RawClient, TempDir, config, net, wait_until};
use postrider_tests::load::Load;
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

/// An origin that answers `/slow` only once the gate is open, and everything else at once.
fn slow_origin() -> (Gate, Origin) {
    let gate = Gate::default();
    let opened = gate.clone();
    let origin = Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            if request.target == "/slow" {
                opened.wait();
            }
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    (gate, origin)
}

/// One route to `origin` that marks its answers with `mark`.
fn marked(origin: &Origin, mark: &str) -> Config {
    Config::routes(json!([{
        "match": {"prefix": "/"}, "route": {"cluster": "origin"},
        "response_headers_to_add": [{"header": {"key": "x-mark", "value": mark}}],
    }]))
    .cluster("origin", &[origin.address])
}

/// Waits until a fresh connection is served by the config marked so: workers
/// take an accepted one each in its own turn.
fn await_mark(proxy: &Proxy, mark: &str) {
    wait_until("the new configuration serves", || proxy.get("/").header("x-mark") == mark);
}

#[test]
fn reloads_under_load_lose_no_request() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let mut proxy = Proxy::start_with(&marked(&origin, "0"), Launch { concurrency: 2, ..Launch::default() });
    let load = Load::start(proxy.address("http"), 8, "GET", get("/"));
    for turn in 1..=15 {
        let mark = turn.to_string();
        let verdict = proxy.reload(marked(&origin, &mark).to_yaml());
        assert!(accepted(&verdict), "{verdict}");
        await_mark(&proxy, &mark);
        load.wait_progress(50);
    }
    let failures = load.finish();
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
    assert!(proxy.history().len() >= 16);
}

#[test]
fn listeners_and_clusters_come_and_go_under_load() {
    if !postrider_only() {
        return;
    }
    let (origin, other) = (Origin::echo("a"), Origin::echo("b"));
    let port = net::free_port();
    let base = || marked(&origin, "base");
    let more = || {
        base()
            .http_named(
                "more",
                json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": "other"}},
                ]}]}}),
            )
            .overlay_listener("more", json!({"address": {"socket_address": {"port_value": port}}}))
            .cluster("other", &[other.address])
    };
    let mut proxy = Proxy::start(&base());
    let address = proxy.address("http");
    let load = Load::start(address, 4, "GET", get("/"));
    for _ in 0..5 {
        assert!(accepted(&proxy.reload(more().to_yaml())));
        assert_eq!(RawClient::connect(proxy.address("more")).exchange(get("/")).header("x-origin"), "b");
        assert!(accepted(&proxy.reload(base().to_yaml())));
        wait_until("the port is free again", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        assert_eq!(proxy.address("http"), address);
        load.wait_progress(50);
    }
    let failures = load.finish();
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
}

#[test]
fn a_bad_file_is_refused_and_the_last_good_one_serves_on() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let mut proxy = Proxy::start(&marked(&origin, "good"));
    let load = Load::start(proxy.address("http"), 2, "GET", get("/"));
    let dangling = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "nowhere"}}])).to_yaml();
    let misspelt = marked(&origin, "bad").to_yaml().replace("connect_timeout", "conect_timeout");
    for bad in ["static_resources: [", "", "{}x", &dangling, &misspelt] {
        let verdict = proxy.reload(bad);
        assert!(!accepted(&verdict), "{bad:?}: {verdict}");
        assert_eq!(verdict["outcome"], "refused");
        let errors = verdict["errors"].as_array().map_or(0, Vec::len);
        assert!(errors > 0, "a refusal says why: {verdict}");
        assert_eq!(proxy.get("/").header("x-mark"), "good");
    }
    // A file may be read twice, for the signal and for the change that it is.
    wait_until("the last refusal is in the history", || {
        let latest = proxy.latest_verdict().unwrap();
        latest["time"].is_string() && latest["errors"].to_string().contains("conect_timeout")
    });
    proxy.reload(marked(&origin, "better").to_yaml());
    wait_until("a good file is accepted again", || proxy.latest_verdict().is_some_and(|entry| accepted(&entry)));
    await_mark(&proxy, "better");
    assert!(load.finish().is_empty());
}

fn websocket_listener(config: Config, name: &str) -> Config {
    config.http_named(
        name,
        json!({
            "upgrade_configs": [{"upgrade_type": "websocket"}],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "sockets", "timeout": "0s"}},
            ]}]},
        }),
    )
}

fn open_websocket(address: SocketAddr) -> RawClient {
    let mut client = RawClient::connect(address);
    client.send("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(client.response("GET").unwrap().status, 101);
    client
}

fn websocket_origin() -> Origin {
    Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
            while let Some(byte) = connection.read_exact(1) {
                connection.write(&byte);
            }
        }
    })
}

#[test]
fn websockets_of_an_unchanged_listener_survive_reloads() {
    if !postrider_only() {
        return;
    }
    let (origin, sockets) = (Origin::echo("a"), websocket_origin());
    let build =
        |mark: &str| websocket_listener(marked(&origin, mark), "sockets").cluster("sockets", &[sockets.address]);
    let mut proxy = Proxy::start(&build("0"));
    let mut tunnels: Vec<RawClient> = (0..10).map(|_| open_websocket(proxy.address("sockets"))).collect();
    let mut kept = RawClient::connect(proxy.address("http"));
    kept.exchange(get("/"));
    for turn in 1..=5 {
        assert!(accepted(&proxy.reload(build(&turn.to_string()).to_yaml())));
        for tunnel in &mut tunnels {
            tunnel.send("ping");
            assert_eq!(tunnel.read_exact(4).unwrap(), b"ping");
        }
    }
    assert_eq!(sockets.connection_count(), 10);
}

#[test]
fn a_websocket_outlives_even_a_change_of_its_own_routes() {
    if !postrider_only() {
        return;
    }
    let sockets = websocket_origin();
    let build = |domains: Value| {
        websocket_listener(Config::new(), "sockets")
            .overlay_filter("sockets", json!({"route_config": {"virtual_hosts": [
                {"name": "all", "domains": domains, "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "sockets", "timeout": "0s"}}]},
            ]}}))
            .cluster("sockets", &[sockets.address])
    };
    let mut proxy = Proxy::start(&build(json!(["*"])));
    let mut tunnel = open_websocket(proxy.address("sockets"));
    assert!(accepted(&proxy.reload(build(json!(["elsewhere.test"])).to_yaml())));
    tunnel.send("ping");
    assert_eq!(tunnel.read_exact(4).unwrap(), b"ping");
}

/// A listener whose chains relay what comes from either address; `changed` names the statistics of the first.
fn relays(echo: &Origin, changed: &str) -> Config {
    let chain = |source: &str, prefix: &str| {
        json!({
            "filter_chain_match": {"source_prefix_ranges": [{"address_prefix": source, "prefix_len": 32}]},
            "filters": [config::tcp_filter(json!({"stat_prefix": prefix, "cluster": "echo"}))],
        })
    };
    let chains = json!([chain("127.0.0.2", changed), chain("127.0.0.3", "same")]);
    Config::new().listener("relays", json!({"filter_chains": chains})).cluster("echo", &[echo.address])
}

fn relayed(source: [u8; 4], address: SocketAddr) -> RawClient {
    let mut client = RawClient::from_stream(net::connect_from(source.into(), address));
    client.send("ping");
    assert_eq!(client.read_exact(4).unwrap(), b"ping");
    client
}

#[test]
fn connections_of_a_dropped_filter_chain_end_after_the_drain_time_and_its_neighbours_stay() {
    if !postrider_only() {
        return;
    }
    let echo = Origin::tcp_echo("");
    let launch = Launch::default().with_arguments(&["--drain-time-s", "1"]);
    let mut proxy = Proxy::start_with(&relays(&echo, "old"), launch);
    let address = proxy.address("relays");
    let mut dropped = relayed([127, 0, 0, 2], address);
    let mut kept = relayed([127, 0, 0, 3], address);
    assert!(accepted(&proxy.reload(relays(&echo, "new").to_yaml())));
    dropped.send("pong");
    assert_eq!(dropped.read_exact(4).unwrap(), b"pong", "it goes on for the drain time");
    assert_eq!(dropped.read_to_end().unwrap(), b"");
    echo.wait_open_at_most(1);
    kept.send("pong");
    assert_eq!(kept.read_exact(4).unwrap(), b"pong");
    relayed([127, 0, 0, 2], address);
    wait_until("nothing drains any more", || proxy.stats().value("listener_manager.total_filter_chains_draining") == 0);
}

#[test]
fn whatever_a_removed_listener_serves_ends_after_the_drain_time() {
    if !postrider_only() {
        return;
    }
    let (gate, slow) = slow_origin();
    let (sockets, echo) = (websocket_origin(), Origin::tcp_echo(""));
    let stays = || marked(&slow, "stays");
    let build = websocket_listener(stays(), "sockets")
        .cluster("sockets", &[sockets.address])
        .http_named(
            "slow",
            json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}},
            ]}]}}),
        )
        .listener(
            "echo",
            json!({"filter_chains": [{"filters": [config::extension(
                "envoy.filters.network.echo", "filters.network.echo.v3.Echo", json!({}),
            )]}]}),
        )
        .tcp("relay", json!({"cluster": "echo"}))
        .cluster("echo", &[echo.address]);
    let launch = Launch::default().with_arguments(&["--drain-time-s", "1"]);
    let mut proxy = Proxy::start_with(&build, launch);
    let mut tunnel = open_websocket(proxy.address("sockets"));
    let mut waiting = RawClient::connect(proxy.address("slow"));
    waiting.send(get("/slow"));
    slow.wait_requests(1);
    let mut relayed = RawClient::connect(proxy.address("relay"));
    let mut echoed = RawClient::connect(proxy.address("echo"));
    for client in [&mut relayed, &mut echoed] {
        client.send("ping");
        assert_eq!(client.read_exact(4).unwrap(), b"ping");
    }
    assert!(accepted(&proxy.reload(stays().to_yaml())));
    for client in [&mut tunnel, &mut relayed, &mut echoed, &mut waiting] {
        assert!(client.closed(), "the drain time is over");
    }
    sockets.wait_open_at_most(0);
    echo.wait_open_at_most(0);
    gate.open();
    assert_eq!(proxy.get("/").header("x-mark"), "stays");
    wait_until("nothing drains any more", || proxy.stats().value("listener_manager.total_listeners_draining") == 0);
}

#[test]
fn a_request_in_flight_ends_on_the_configuration_it_began_with() {
    if !postrider_only() {
        return;
    }
    let (gate, origin) = slow_origin();
    let mut proxy = Proxy::start(&marked(&origin, "old"));
    let mut client = proxy.client();
    client.send(get("/slow"));
    origin.wait_requests(1);
    assert!(accepted(&proxy.reload(marked(&origin, "new").to_yaml())));
    await_mark(&proxy, "new");
    gate.open();
    let response = client.response("GET").unwrap();
    assert_eq!((response.text(), response.header("x-mark")), ("ok", "old"));
    if response.header("connection") != "close" {
        assert_eq!(client.exchange(get("/")).header("x-mark"), "new");
    }
}

#[test]
fn a_changed_file_is_taken_without_a_signal() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&marked(&origin, "0"));
    let before = proxy.latest_verdict();
    // By rename, as editors do, then in place.
    proxy.directory().write("config.yaml", marked(&origin, "1").to_yaml());
    assert!(accepted(&proxy.await_verdict(before.as_ref())));
    wait_until("the renamed file serves", || proxy.get("/").header("x-mark") == "1");
    // In place a reader may meet half a file first: refused, then taken whole.
    std::fs::write(proxy.config_path(), marked(&origin, "2").to_yaml()).unwrap();
    wait_until("the rewritten file serves", || proxy.get("/").header("x-mark") == "2");
}

#[test]
fn a_swap_of_symbolic_links_as_kubernetes_does_it_is_taken() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let directory = TempDir::new();
    let root = directory.path().to_path_buf();
    let version = |name: &str, mark: &str| {
        let folder = root.join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("config.yaml"), marked(&origin, mark).to_yaml()).unwrap();
        let draft = root.join("..data_tmp");
        symlink(name, &draft).unwrap();
        std::fs::rename(&draft, root.join("..data")).unwrap();
    };
    version("..2026_01", "1");
    let file = root.join("config.yaml");
    symlink("..data/config.yaml", &file).unwrap();
    let proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(proxy.get("/").header("x-mark"), "1");
    for (name, mark) in [("..2026_02", "2"), ("..2026_03", "3")] {
        let before = proxy.latest_verdict();
        version(name, mark);
        assert!(accepted(&proxy.await_verdict(before.as_ref())));
        wait_until("the new version serves", || proxy.get("/").header("x-mark") == mark);
    }
}

#[test]
fn an_upstream_killed_under_load_fails_only_its_own_requests_in_flight() {
    let gate = Gate::default();
    let opened = gate.clone();
    let doomed = Origin::start(move |connection| {
        while let Some(request) = connection.request() {
            if request.target == "/doomed/wait" {
                opened.wait();
            }
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let steady = Origin::echo("steady");
    let config = Config::routes(json!([
        {"match": {"prefix": "/doomed"}, "route": {"cluster": "doomed"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "steady"}},
    ]))
    .cluster("doomed", &[doomed.address])
    .cluster("steady", &[steady.address]);
    let proxy = Proxy::start(&config);
    let load = Load::start(proxy.address("http"), 4, "GET", get("/steady"));
    let mut waiting: Vec<RawClient> = (0..3).map(|_| proxy.client()).collect();
    for client in &mut waiting {
        client.send(get("/doomed/wait"));
    }
    doomed.wait_requests(3);
    doomed.kill();
    gate.open();
    for client in &mut waiting {
        let response = client.response("GET").unwrap();
        assert_eq!(response.status, 503, "{response:?}");
        // The client's own connection is not to blame and lives on.
        assert_eq!(client.exchange(get("/steady")).status, 200);
    }
    load.wait_progress(100);
    // Back at the same address it is used again, with no leftover of before.
    wait_until("the old listener is gone", || std::net::TcpStream::connect(doomed.address).is_err());
    let back = Origin::start_at(doomed.address, |connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let revived = Load::start(proxy.address("http"), 2, "GET", get("/doomed"));
    revived.wait_progress(100);
    assert_eq!(revived.finish(), Vec::<String>::new());
    assert_eq!(load.finish(), Vec::<String>::new());
    drop(back);
}

#[test]
fn sigterm_drains_before_it_ends() {
    if !postrider_only() {
        return;
    }
    let (gate, origin) = slow_origin();
    let mut proxy = Proxy::start(&marked(&origin, "a"));
    let address = proxy.address("http");
    let mut idle = proxy.client();
    idle.exchange(get("/"));
    let mut busy = proxy.client();
    busy.send(get("/slow"));
    origin.wait_requests(2);
    proxy.signal("TERM");
    wait_until("new connections are refused", || std::net::TcpStream::connect(address).is_err());
    assert!(idle.closed());
    assert_ne!(proxy.admin_get("/ready").status, 200);
    gate.open();
    let last = busy.response("GET").unwrap();
    assert_eq!((last.status, last.text(), last.header("connection")), (200, "ok", "close"));
    assert!(busy.closed());
    assert_eq!(proxy.wait_exit().code(), Some(0));
}

#[test]
fn draining_ends_at_the_drain_time() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::silent();
    let launch = Launch::default().with_arguments(&["--drain-time-s", "1"]);
    let mut proxy = Proxy::start_with(&marked(&origin, "a"), launch);
    let mut stuck = proxy.client();
    stuck.send(get("/"));
    origin.wait_connections(1);
    proxy.signal("TERM");
    assert_eq!(proxy.wait_exit().code(), Some(0));
}

#[test]
fn reloading_a_hundred_times_does_not_grow() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let mut proxy = Proxy::start(&marked(&origin, "start"));
    let files = |proxy: &Proxy| postrider_tests::kit::process::open_files(proxy.pid());
    for turn in 0..20 {
        assert!(accepted(&proxy.reload(marked(&origin, &format!("warm {turn}")).to_yaml())));
    }
    let (memory, open) = (proxy.resident_kib(), files(&proxy));
    for turn in 0..100 {
        assert!(accepted(&proxy.reload(marked(&origin, &turn.to_string()).to_yaml())));
    }
    let growth = proxy.resident_kib().saturating_sub(memory);
    assert!(growth < 2048, "grew by {growth} KiB");
    assert!(files(&proxy) <= open + 2, "{} files, {open} before", files(&proxy));
}

#[test]
fn systemd_is_told_when_it_is_ready() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let path = directory.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(postrider_tests::kit::DEADLINE)).unwrap();
    let origin = Origin::echo("a");
    let launch =
        Launch { environment: vec![("NOTIFY_SOCKET".into(), path.to_str().unwrap().into())], ..Launch::default() };
    let config = marked(&origin, "a").overlay_filter("http", json!({"http_filters": [config::router()]}));
    let mut proxy = Proxy::start_with(&config, launch);
    let await_state = |state: &str| {
        let mut buffer = [0; 4096];
        loop {
            let count = socket.recv(&mut buffer).expect(state);
            if String::from_utf8_lossy(&buffer[..count]).lines().any(|line| line == state) {
                return;
            }
        }
    };
    await_state("READY=1");
    proxy.signal("TERM");
    await_state("STOPPING=1");
}
