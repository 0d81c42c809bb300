//! The admin over a real socket, with a process that is made up: answers against what Envoy 1.40 sent (`envoy-1.40/`),
//! refusals, limits.

use postrider_admin::*;
use postrider_model::{Address, StatsRules};
use postrider_telemetry::log::{self, Component, Level};
use postrider_telemetry::stats::sets::{cluster, http, server};
use postrider_telemetry::{KnownScope, Registry};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A process that remembers what it was told to do.
struct Process {
    state: Mutex<ServerState>,
    orders: mpsc::SyncSender<String>,
    clusters: Vec<ClusterStatus>,
    listeners: Vec<ListenerStatus>,
    history: History,
    registry: Registry,
    /// Where traces of the tap in force go.
    traces: Mutex<Option<tokio::sync::mpsc::Sender<Trace>>>,
}

/// Tells that a tap is over.
struct Over(mpsc::SyncSender<String>);

impl Drop for Over {
    fn drop(&mut self) {
        let _ = self.0.send("over".into());
    }
}

struct Fixture {
    server: Server,
    process: Arc<Process>,
    orders: mpsc::Receiver<String>,
}

impl Control for Process {
    fn state(&self) -> ServerState {
        *self.state.lock().unwrap()
    }

    fn started(&self) -> SystemTime {
        SystemTime::now() - Duration::from_secs(10)
    }

    fn version(&self) -> String {
        "0.1.0/postrider".into()
    }

    fn command_line_options(&self) -> Value {
        json!({ "concurrency": 2, "drain_time": "600s" })
    }

    fn heap_size(&self) -> u64 {
        100 << 20
    }

    fn node(&self) -> Value {
        json!({ "id": "one" })
    }

    fn config_dump(&self) -> Vec<Value> {
        let cluster = |name: &str| {
            let kind = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
            json!({ "cluster": { "@type": kind, "name": name, "type": "STATIC" }, "last_updated": "2026-11-20T10:11:12.345Z" })
        };
        vec![
            json!({ "@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": { "node": {} } }),
            json!({
                "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump",
                "static_clusters": [cluster("adm"), cluster("dead")]
            }),
        ]
    }

    fn clusters(&self) -> Vec<ClusterStatus> {
        self.clusters.clone()
    }

    fn listeners(&self) -> Vec<ListenerStatus> {
        self.listeners.clone()
    }

    fn plugins(&self) -> Vec<PluginStatus> {
        let plugin = |name: &str| PluginStatus {
            name: name.into(),
            version: "1.2".into(),
            runtime: "rider".into(),
            places: vec![PluginPlace { listener: "web".into(), chain: "default".into() }],
            is_service: false,
            is_by_admin: false,
            source: "/etc/plugins/mark.lua".into(),
            digest: "00c0ffee00c0ffee".into(),
            note: (name == "mark.er").then(|| "being made".into()),
            scripts: vec![("other".into(), "other.lua".into(), "beef".into())],
            last_error: (name == "mark.er").then(|| (UNIX_EPOCH, "mark.lua:1: no\nstack".into())),
            on_error: "continue".into(),
            cpu: Duration::from_millis(100),
            memory: 64 << 20,
            circuit: CircuitStatus {
                faults: 10,
                cpu_kills: 1,
                window: Duration::from_secs(10),
                retry: Duration::from_secs(5),
                kills_only: name == "mark.er",
            },
            clusters: Some(vec!["auth".into()]),
            config: json!({ "weight": 1 }),
            route_configs: [Seen::Merged, Seen::Config(json!({ "weight": 3 })), Seen::Nothing, Seen::Off]
                .into_iter()
                .map(|seen| RouteConfigStatus {
                    route: "api".into(),
                    scope: "route",
                    config: json!({ "weight": 2 }),
                    seen,
                })
                .collect(),
            schema: Some(json!({ "type": "object" })),
        };
        vec![plugin("mark"), plugin("mark.er")]
    }

    fn certificates(&self) -> Vec<TlsContextStatus> {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let certificate = |path: &str, not_after, ocsp| CertificateStatus {
            path: path.into(),
            subject: "CN=a".into(),
            serial: "0d".into(),
            names: vec![("dns", "a.test".into()), ("uri", "spiffe://a/b".into()), ("ip_address", "::1".into())],
            not_before: at(1_000_000_000),
            not_after,
            ocsp,
        };
        let far = SystemTime::now() + Duration::from_secs(20 * 86_400 - 60);
        let listener = TlsPlace::Listener { listener: "web".into(), chain: "one".into() };
        let ocsp = Some((at(1_000_000_000), Some(at(1_000_086_400))));
        vec![
            TlsContextStatus {
                place: listener,
                roots: vec![certificate("<inline>", at(1_100_000_000), None)],
                certificates: vec![certificate("a.pem", far, ocsp)],
            },
            TlsContextStatus { place: TlsPlace::Cluster("adm".into()), roots: Vec::new(), certificates: Vec::new() },
        ]
    }

    fn history(&self) -> Vec<HistoryEntry> {
        self.history.entries()
    }

    fn statistics(&self) -> &Registry {
        &self.registry
    }

    fn stats_rules(&self) -> Option<Arc<StatsRules>> {
        None
    }

    fn known_scopes(&self) -> Vec<KnownScope> {
        let mut process = KnownScope::new(&server::SET, "");
        process.computed.push((server::CONCURRENCY, 2));
        vec![process, KnownScope::new(&cluster::SET, "adm")]
    }

    fn drain_listeners(&self, drain: Drain) {
        self.told(format!("drain {drain:?}"));
    }

    fn quit(&self) {
        self.told("quit".into());
    }

    fn reopen_logs(&self) {
        self.told("reopen".into());
    }

    fn fail_health_checks(&self, fail: bool) {
        *self.state.lock().unwrap() = if fail { ServerState::Draining } else { ServerState::Live };
    }

    fn tap(&self, request: &[u8], only_failed: bool) -> Result<Tap, String> {
        let batch = match request {
            b"pieces" => None,
            b"two" => Some(TapBatch { traces: 2, timeout: None }),
            b"time" => Some(TapBatch { traces: 9, timeout: Some(Duration::from_millis(1)) }),
            _ => return Err(format!("only failed: {only_failed}")),
        };
        let (sender, traces) = tokio::sync::mpsc::channel::<Trace>(2);
        if batch.is_some() {
            for text in ["one,", "two"] {
                sender.try_send(Box::new(move || text.into())).unwrap();
            }
        }
        *self.traces.lock().unwrap() = Some(sender);
        Ok(Tap { traces, batch, guard: Box::new(Over(self.orders.clone())) })
    }

    fn served(&self, served: &Served<'_>) {
        if served.target.contains("seen") {
            let field = |fields: &[(&str, &[u8])], name: &str| {
                let found = fields.iter().find(|(known, _)| *known == name);
                found.map_or("-".to_owned(), |(_, value)| String::from_utf8_lossy(value).into_owned())
            };
            assert_eq!(served.local.map(|local| local.ip()), served.peer.map(|peer| peer.ip()));
            self.told(format!(
                "{} {} {} of {} for {}: {} {} {}",
                served.method,
                served.target,
                served.received,
                field(&served.request_fields, "user-agent"),
                field(&served.request_fields, "host"),
                served.status,
                served.sent,
                field(&served.response_fields, "content-type"),
            ));
        }
    }
}

impl Process {
    fn told(&self, order: String) {
        self.orders.send(order).unwrap();
    }
}

fn listener(name: &str, address: &str) -> ListenerStatus {
    ListenerStatus {
        name: name.into(),
        address: Address::Tcp(address.parse().unwrap()),
        additional_addresses: Vec::new(),
    }
}

/// The two clusters of the recorded process.
fn recorded_clusters() -> Vec<ClusterStatus> {
    let mut adm = EndpointStatus::new(Address::Tcp("127.0.0.1:18733".parse().unwrap()));
    (adm.cx_total, adm.rq_success, adm.rq_total) = (3, 2, 3);
    let mut dead = EndpointStatus::new(Address::Tcp("[::1]:1".parse().unwrap()));
    dead.hostname = "localhost".into();
    [("adm", adm), ("dead", dead)]
        .map(|(name, endpoint)| ClusterStatus {
            name: name.into(),
            observability_name: name.into(),
            endpoints: vec![endpoint],
            ..ClusterStatus::default()
        })
        .into()
}

fn start_with(address: &Address, clusters: Vec<ClusterStatus>, more: Vec<Endpoint>) -> io::Result<Fixture> {
    let listeners = [("web", "127.0.0.1:18731"), ("raw", "127.0.0.1:18732")];
    let listeners = listeners.map(|(name, address)| listener(name, address)).into();
    start_process(address, clusters, listeners, more)
}

fn start_process(
    address: &Address,
    clusters: Vec<ClusterStatus>,
    listeners: Vec<ListenerStatus>,
    more: Vec<Endpoint>,
) -> io::Result<Fixture> {
    let (orders, received) = mpsc::sync_channel(16);
    let process = Arc::new(Process {
        state: Mutex::new(ServerState::Live),
        orders,
        clusters,
        listeners,
        history: History::default(),
        registry: Registry::new(),
        traces: Mutex::default(),
    });
    let server = Server::start(address, process.clone(), more)?;
    Ok(Fixture { server, process, orders: received })
}

fn start() -> Fixture {
    start_with(&anywhere(), recorded_clusters(), Vec::new()).unwrap()
}

fn anywhere() -> Address {
    Address::Tcp("127.0.0.1:0".parse().unwrap())
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

impl Fixture {
    fn connect(&self) -> TcpStream {
        let Address::Tcp(address) = self.server.address() else { panic!("not TCP") };
        assert_ne!(address.port(), 0, "the bound port is told");
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn send(&self, head: &str) -> Answer {
        self.raw(format!("{head}\r\nhost: admin\r\nconnection: close\r\n\r\n").as_bytes())
    }

    fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        parse(&answer)
    }

    fn read(&self, target: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1"))
    }

    fn order(&self, target: &str) -> Answer {
        self.send(&format!("POST {target} HTTP/1.1"))
    }

    fn told(&self) -> String {
        self.orders.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

/// An answer on a connection that was closed after it.
fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> = headers.map(|(name, value)| (name.to_lowercase(), value.to_string())).collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        body = unchunk(&body);
    }
    Answer { status, headers, body: String::from_utf8(body).unwrap() }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return out;
        }
        out.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

#[test]
fn answers_carry_envoys_headers() {
    let fixture = start();
    let answer = fixture.read("/listeners");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    assert_eq!(answer.header("cache-control"), "no-cache, max-age=0");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(fixture.read("/certs").header("content-type"), "application/json");
    assert_eq!(fixture.read("/hot_restart_version").body, "disabled");
    let head = fixture.send("HEAD /stats HTTP/1.1");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn clusters_and_listeners_are_envoys_bytes() {
    let fixture = start();
    assert_eq!(fixture.read("/listeners").body, include_str!("envoy-1.40/listeners.txt"));
    assert_eq!(fixture.read("/listeners?format=json").body, include_str!("envoy-1.40/listeners.json"));
    assert_eq!(fixture.read("/clusters").body, include_str!("envoy-1.40/clusters.txt"));
    let adm: String =
        include_str!("envoy-1.40/clusters.txt").split_inclusive('\n').filter(|l| l.starts_with("adm:")).collect();
    assert_eq!(fixture.read("/clusters?filter=%5Eadm%24").body, adm);
    assert_eq!(fixture.read("/clusters?filter=(").status, 400);
    // Envoy lists clusters in no order; the recording has them the other way round.
    let mut clusters = recorded_clusters();
    clusters.reverse();
    let fixture = start_with(&anywhere(), clusters, Vec::new()).unwrap();
    assert_eq!(fixture.read("/clusters?format=json").body, include_str!("envoy-1.40/clusters.json"));
}

#[test]
fn each_address_of_a_listener_has_a_line() {
    let mut web = listener("web", "127.0.0.1:1");
    web.additional_addresses = vec![Address::Tcp("127.0.0.1:2".parse().unwrap())];
    let fixture = start_process(&anywhere(), Vec::new(), vec![web], Vec::new()).unwrap();
    assert_eq!(fixture.read("/listeners").body, "web::127.0.0.1:1\nweb::127.0.0.1:2\n");
    let json: Value = serde_json::from_str(&fixture.read("/listeners?format=json").body).unwrap();
    let others = &json["listener_statuses"][0]["additional_local_addresses"];
    assert_eq!(others[0]["socket_address"]["port_value"], 2);
}

#[test]
fn an_endpoint_says_why_it_is_not_healthy() {
    let mut clusters = recorded_clusters();
    clusters[0].endpoints[0].health = vec![HealthFlag::FailedActiveCheck, HealthFlag::FailedByConfiguration];
    clusters[0].endpoints[0].priority = 1;
    clusters[0].endpoints[0].zone = "a".into();
    let fixture = start_with(&anywhere(), clusters, Vec::new()).unwrap();
    let text = fixture.read("/clusters").body;
    assert!(text.contains("adm::127.0.0.1:18733::health_flags::/failed_active_hc/failed_eds_health\n"), "{text}");
    let json: Value = serde_json::from_str(&fixture.read("/clusters?format=json").body).unwrap();
    let host = &json["cluster_statuses"][0]["host_statuses"][0];
    assert_eq!(host["health_status"], json!({ "failed_active_health_check": true, "eds_health_status": "UNHEALTHY" }));
    assert_eq!((&host["priority"], &host["locality"]), (&json!(1), &json!({ "zone": "a" })));
}

#[test]
fn a_draining_endpoint_is_told_as_such() {
    let mut clusters = recorded_clusters();
    clusters[0].endpoints[0].health = vec![HealthFlag::DrainingByConfiguration];
    let fixture = start_with(&anywhere(), clusters, Vec::new()).unwrap();
    let text = fixture.read("/clusters").body;
    assert!(text.contains("adm::127.0.0.1:18733::health_flags::/eds_status_draining\n"), "{text}");
    let json: Value = serde_json::from_str(&fixture.read("/clusters?format=json").body).unwrap();
    let host = &json["cluster_statuses"][0]["host_statuses"][0];
    assert_eq!(host["health_status"], json!({ "eds_health_status": "DRAINING" }));
    let dump = fixture.read("/config_dump?include_eds&resource=static_endpoint_configs&name_regex=adm").body;
    assert!(dump.contains("\"health_status\": \"UNHEALTHY\""), "as in Envoy: {dump}");
}

#[test]
fn what_success_rates_were_compared_with_is_shown() {
    let mut clusters = recorded_clusters();
    let compared = |average, threshold| Some(RateComparison { average, threshold });
    clusters[0].outliers =
        Some(OutlierStatus { answers: compared(250.0 / 3.0, 71.54822031355754), local_origin: None });
    clusters[0].endpoints[0].success_rate = Some(200.0 / 3.0);
    clusters[0].endpoints[0].local_origin_success_rate = Some(0.0);
    clusters[1].outliers = Some(OutlierStatus { answers: compared(50.0, -8.5), local_origin: compared(75.0, 0.0) });
    let fixture = start_with(&anywhere(), clusters, Vec::new()).unwrap();
    let text = fixture.read("/clusters").body;
    let shown = |name: &str| text.lines().filter(|line| line.starts_with(name)).take(6).collect::<Vec<_>>().join(" ");
    assert_eq!(
        shown("adm::"),
        "adm::observability_name::adm adm::outlier::success_rate_average::83.3333 \
         adm::outlier::success_rate_ejection_threshold::71.5482 adm::outlier::local_origin_success_rate_average::-1 \
         adm::outlier::local_origin_success_rate_ejection_threshold::-1 adm::default_priority::max_connections::1024"
    );
    assert!(shown("dead::").contains("dead::outlier::success_rate_ejection_threshold::-8.5 "), "{text}");
    let json: Value = serde_json::from_str(&fixture.read("/clusters?format=json").body).unwrap();
    let [adm, dead] = [0, 1].map(|at| &json["cluster_statuses"][at]);
    assert_eq!(adm["success_rate_ejection_threshold"], json!({ "value": 71.54822031355754 }));
    assert_eq!(adm["local_origin_success_rate_ejection_threshold"], Value::Null);
    assert_eq!(dead["success_rate_ejection_threshold"], Value::Null, "it is none");
    assert_eq!(dead["local_origin_success_rate_ejection_threshold"], json!({}));
    let host = &adm["host_statuses"][0];
    assert_eq!(host["success_rate"], json!({ "value": 200.0 / 3.0 }));
    assert_eq!(host["local_origin_success_rate"], json!({}));
}

postrider_telemetry::stat_set! {
    /// As the hosts of plugins count them.
    mod of_route = "plugin";
    counters { CALLS = "calls", ERRORS = "errors", ALLOCATED = "allocated_bytes" }
    histograms { TIME = "time_ns" Unspecified }
}

postrider_telemetry::stat_set! {
    mod of_plugin = "plugin";
    gauges { MEMORY_BYTES = "memory_bytes" }
    flags { CIRCUIT_OPEN = "circuit_open" }
}

#[test]
fn plugins_are_shown_with_what_they_cost() {
    let fixture = start();
    let worker = fixture.process.registry.worker(0);
    let api = worker.block(&of_route::SET, "mark.api");
    api.add(of_route::CALLS, 3);
    api.inc(of_route::ERRORS);
    api.add(of_route::ALLOCATED, 600);
    api.record(of_route::TIME, 1000);
    api.record(of_route::TIME, 3000);
    let other = worker.block(&of_route::SET, "mark.er.api");
    other.inc(of_route::CALLS);
    let whole = worker.block(&of_plugin::SET, "mark");
    whole.gauge_add(of_plugin::MEMORY_BYTES, 2048);
    whole.gauge_set(of_plugin::CIRCUIT_OPEN, 1);
    let json: Value = serde_json::from_str(&fixture.read("/plugins?format=json").body).unwrap();
    let mark = &json["plugins"][0];
    assert_eq!(
        (&mark["memory_bytes"], &mark["circuit"], &mark["runtime"]),
        (&json!(2048), &json!("open"), &json!("rider"))
    );
    let route = &mark["routes"][0];
    assert_eq!((&route["route"], &route["calls"], &route["errors"]), (&json!("api"), &json!(3), &json!(1)));
    assert_eq!(route["allocated_bytes"], json!(600));
    assert_eq!(json["plugins"][1]["routes"][0]["allocated_bytes"], Value::Null, "nobody told");
    // Two of the three calls were measured: the sum is that of all three, in proportion.
    assert_eq!((&route["time_ns"]["count"], &route["time_ns"]["sum"]), (&json!(2), &json!(6000)));
    assert_eq!(mark["routes"].as_array().unwrap().len(), 1, "the other plugin's routes are its own: {mark:#}");
    assert_eq!(
        (&json["plugins"][1]["routes"][0]["calls"], &json["plugins"][1]["circuit"]),
        (&json!(1), &json!("closed"))
    );
    assert_eq!(mark["config"], json!({ "weight": 1 }));
    assert!(mark.get("config_schema").is_none());
    let json: Value = serde_json::from_str(&fixture.read("/plugins?format=json&config=1").body).unwrap();
    assert_eq!(json["plugins"][0]["config_schema"], json!({ "type": "object" }));
    let seen = &json["plugins"][0]["route_configs"];
    assert_eq!(
        (&seen[1]["runs"], &seen[1]["sees"], &seen[3]["runs"]),
        (&json!(true), &json!({ "weight": 3 }), &json!(false))
    );
    assert!(seen[0].get("runs").is_none() && seen[2]["sees"] == Value::Null, "{seen}");
    let kills_only = |at: usize| &json["plugins"][at]["policy"]["circuit"]["kills_only"];
    assert_eq!((kills_only(0), kills_only(1)), (&json!(false), &json!(true)));
    let text = fixture.read("/plugins").body;
    for line in [
        "mark 1.2 (rider): circuit open, 2 KiB\n",
        "  in listener web, filter chain default\n",
        "  code 00c0ffee00c0ffee from /etc/plugins/mark.lua\n",
        "  on error continue; a call has 100 ms, a worker 64 MiB; circuit opens at 10 faults or 1 CPU kills in 10 s for 5 s\n",
        "  may call auth\n",
        "  route api: calls 3 errors 1 ",
        " 200 B a call\n",
        "circuit opens at 10 calls that were stopped or 1 CPU kills in 10 s for 5 s\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    assert!(
        !text.contains("weight")
            && fixture.read("/plugins?config=1").body.contains(
                "  config of api, by its route: {\"weight\":2}\n  config of api, by its route: sees {\"weight\":3}\n  config of api, by \
                 its route: sees nothing\n  config of api, by its route: does not run here\n"
            )
    );
    assert_eq!(fixture.read("/plugins?format=xml").status, 400);
}

#[test]
fn readiness_follows_the_state() {
    let fixture = start();
    assert_eq!(fixture.read("/ready").body, "LIVE\n");
    for (state, name) in [
        (ServerState::Draining, "DRAINING\n"),
        (ServerState::PreInitializing, "PRE_INITIALIZING\n"),
        (ServerState::Initializing, "INITIALIZING\n"),
    ] {
        *fixture.process.state.lock().unwrap() = state;
        let answer = fixture.read("/ready");
        assert_eq!((answer.status, answer.body.as_str()), (503, name));
    }
    assert_eq!(fixture.order("/healthcheck/ok").body, "OK\n");
    assert_eq!(fixture.read("/ready").status, 200);
    assert_eq!(fixture.order("/healthcheck/fail").body, "OK\n");
    assert_eq!(fixture.read("/ready").status, 503);
    assert!(fixture.read("/stats?filter=server.state").body.ends_with("server.state: 1\n"));
}

#[test]
fn server_info_has_envoys_fields() {
    let info: Value = serde_json::from_str(&start().read("/server_info").body).unwrap();
    let fields: Vec<_> = info.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        [
            "version",
            "state",
            "uptime_current_epoch",
            "uptime_all_epochs",
            "hot_restart_version",
            "command_line_options",
            "node",
            "hot_restart_initializing"
        ]
    );
    assert_eq!((&info["state"], &info["command_line_options"]["concurrency"]), (&json!("LIVE"), &json!(2)));
    assert!(info["uptime_current_epoch"].as_str().unwrap().ends_with('s'));
    let memory: Value = serde_json::from_str(&start().read("/memory").body).unwrap();
    let keys: Vec<_> = memory.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["allocated", "heap_size", "pageheap_unmapped", "pageheap_free", "total_thread_cache", "total_physical_bytes"]
    );
    assert_eq!(memory["heap_size"], (100 << 20).to_string());
    assert!(memory["total_physical_bytes"].as_str().unwrap().parse::<u64>().unwrap() > 1_000_000, "{memory}");
}

#[test]
fn orders_take_post_only_and_nothing_from_a_page() {
    let fixture = start();
    let all = [
        "/drain_listeners",
        "/healthcheck/fail",
        "/healthcheck/ok",
        "/logging",
        "/quitquitquit",
        "/reopen_logs",
        "/reset_counters",
        "/routes/watch",
    ];
    for path in all {
        let answer = fixture.read(path);
        assert_eq!((answer.status, answer.body.as_str()), (405, "Method GET not allowed, POST required."), "{path}");
        assert_eq!(answer.header("allow"), "POST");
        assert_eq!(fixture.send(&format!("PUT {path} HTTP/1.1")).body, "Method PUT not allowed, POST required.");
        let from_a_page = fixture.send(&format!("POST {path} HTTP/1.1\r\norigin: http://evil.example"));
        assert_eq!(from_a_page.status, 403, "{path}");
    }
    assert!(fixture.orders.try_recv().is_err(), "nothing was done");
    assert_eq!(*fixture.process.state.lock().unwrap(), ServerState::Live);
    assert_eq!(fixture.send("GET /ready HTTP/1.1\r\norigin: http://some.example").status, 200, "reading is no order");
}

#[test]
fn orders_are_passed_on() {
    let fixture = start();
    assert_eq!(fixture.order("/drain_listeners?graceful&inboundonly").body, "OK\n");
    assert_eq!(fixture.told(), "drain Drain { inbound_only: true, graceful: true, skip_exit: false }");
    assert_eq!(fixture.order("/reopen_logs").body, "OK\n");
    assert_eq!(fixture.told(), "reopen");
    // Without asking to close: the answer comes before the end all the same.
    assert_eq!(fixture.raw(b"POST /quitquitquit HTTP/1.1\r\nhost: a\r\n\r\n").body, "OK\n");
    assert_eq!(fixture.told(), "quit");
    assert_eq!(fixture.send("GET /ready?seen HTTP/1.1\r\nuser-agent: probe").status, 200);
    assert_eq!(fixture.told(), "GET /ready?seen 0 of probe for admin: 200 5 text/plain; charset=UTF-8");
    let body = b"POST /nope?seen HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc";
    let length = fixture.raw(body).body.len();
    assert_eq!(fixture.told(), format!("POST /nope?seen 3 of - for a: 404 {length} text/plain; charset=UTF-8"));
}

#[test]
fn stats_in_every_format() {
    let fixture = start();
    let worker = fixture.process.registry.worker(0);
    let block = worker.block(&http::SET, "ingress");
    block.add(http::DOWNSTREAM_RQ_TOTAL, 7);
    block.record(http::DOWNSTREAM_RQ_TIME, 3);
    let text = fixture.read("/stats").body;
    assert!(text.contains("\nhttp.ingress.downstream_rq_total: 7\n"), "{text}");
    assert!(text.contains("\ncluster.adm.upstream_rq_total: 0\n"), "a known scope shows its zeros");
    assert!(text.contains("\nserver.concurrency: 2\n") && text.contains("\nserver.live: 1\n"));
    assert!(text.contains("http.ingress.downstream_rq_time: P0(nan,3.05) "));
    assert_eq!(
        fixture.read("/stats?filter=ingress.downstream_rq_t.*l&usedonly").body,
        "http.ingress.downstream_rq_total: 7\n"
    );
    let inverted = fixture.read("/stats?filter=cluster%7Cserver%7Chttp%7Cadmin&invert_filter").body;
    assert_eq!(inverted, "");
    let only = fixture.read("/stats?filter=ingress&type=Histograms&usedonly&histogram_buckets=cumulative").body;
    assert!(only.starts_with("http.ingress.downstream_rq_time: B0.5(0,0) B1(0,0) B5(0,1) "), "{only}");
    assert!(only.ends_with("B1.8e+06(0,1) B3.6e+06(0,1)\n"), "{only}");
    let disjoint = fixture.read("/stats?filter=ingress&type=Histograms&usedonly&histogram_buckets=disjoint").body;
    assert!(disjoint.contains("B5(0,1) B10(0,0)"), "{disjoint}");
    let json = fixture.read("/stats?format=json&filter=ingress.downstream_rq_total");
    assert_eq!(json.header("content-type"), "application/json");
    assert_eq!(json.body, r#"{"stats":[{"name":"http.ingress.downstream_rq_total","value":7}]}"#);
    let series = "# TYPE envoy_http_downstream_rq_total counter\n\
                  envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix=\"ingress\"} 7\n";
    assert_eq!(fixture.read("/stats/prometheus?filter=ingress.downstream_rq_total").body, series);
    assert_eq!(fixture.read("/stats?format=prometheus&filter=ingress.downstream_rq_total").body, series);
    let refused = |query: &str| {
        let answer = fixture.read(query);
        assert_eq!(answer.status, 400, "{query}");
        answer.body.lines().next().unwrap_or_default().to_owned()
    };
    for page in ["/stats", "/stats/prometheus", "/stats?format=json&a", "/stats?format=html&a"] {
        let page = format!("{page}{}", if page.contains('?') { '&' } else { '?' });
        assert_eq!(refused(&format!("{page}hidden=Only")), "usage: /stats?hidden=(include|only|exclude)");
        let filterless = "invert_filter can only be used if filter is also provided";
        assert_eq!(refused(&format!("{page}invert_filter&type=foo")), filterless);
        assert_eq!(refused(&format!("{page}invert_filter&filter=")), filterless);
        assert_eq!(refused(&format!("{page}type=foo&hidden=foo")), "invalid &type= param");
    }
    assert_eq!(refused("/stats/prometheus?histogram_buckets=detailed&type=foo"), "invalid &type= param");
    assert_eq!([fixture.read("/stats?hidden=only").body, fixture.read("/stats/prometheus?hidden=only").body], ["", ""]);
    assert_eq!(fixture.read("/stats?hidden=only&format=json").body, r#"{"stats":[]}"#);
    for hidden in ["", "include", "exclude"] {
        let page = format!("/stats?hidden={hidden}&filter=ingress.downstream_rq_total");
        assert_eq!(fixture.read(&page).body, "http.ingress.downstream_rq_total: 7\n");
    }
    assert_eq!(fixture.read("/stats/prometheus?type=Gauges&filter=ingress.downstream_rq_total").body, series);
    assert_eq!(fixture.order("/reset_counters").body, "OK\n");
    assert_eq!(fixture.read("/stats?filter=ingress.downstream_rq_total").body, "http.ingress.downstream_rq_total: 0\n");
}

#[test]
fn the_admins_own_clients_are_counted() {
    let fixture = start();
    assert_eq!(fixture.read("/ready").status, 200);
    assert_eq!(fixture.read("/nowhere").status, 404);
    let stats = fixture.read("/stats?filter=admin").body;
    let value = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {stats}")).parse::<u64>().unwrap()
    };
    for (name, wanted) in [
        ("http.admin.downstream_cx_total", 3),
        ("http.admin.downstream_rq_total", 3),
        ("http.admin.downstream_rq_2xx", 1),
        ("http.admin.downstream_rq_4xx", 1),
        ("http.admin.downstream_rq_active", 1),
        ("listener.admin.downstream_cx_total", 3),
        ("listener.admin.http.admin.downstream_rq_completed", 2),
        ("listener.admin.main_thread.downstream_cx_total", 3),
    ] {
        assert_eq!(value(name), wanted, "{name}");
    }
    assert!(value("http.admin.downstream_cx_rx_bytes_total") > 50);
    assert!(value("http.admin.downstream_cx_tx_bytes_total") > 50);
}

#[test]
fn what_stats_cannot_do_is_refused() {
    let fixture = start();
    for (target, message) in [
        ("/stats?format=nope", "usage: /stats?format=(html|active-html|json|prometheus|text)\n\n"),
        ("/stats?type=Nope", "invalid &type= param"),
        ("/stats?histogram_buckets=nope", "usage: /stats?histogram_buckets=(cumulative|disjoint|detailed|summary)\n"),
        ("/stats/prometheus?histogram_buckets=disjoint", "unsupported prometheus histogram bucket mode"),
        ("/stats?filter=(", "Invalid re2 regex: unclosed group: ("),
    ] {
        let answer = fixture.read(target);
        assert_eq!((answer.status, answer.body.as_str()), (400, message), "{target}");
    }
}

#[test]
fn config_dump_whole_and_in_part() {
    let fixture = start();
    let dump = |query: &str| {
        let answer = fixture.read(&format!("/config_dump{query}"));
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        serde_json::from_str::<Value>(&answer.body).unwrap()
    };
    let whole = dump("");
    assert_eq!(whole["configs"], json!(fixture.process.config_dump()));
    let elements = dump("?resource=static_clusters");
    let kind = "type.googleapis.com/envoy.admin.v3.ClustersConfigDump.StaticCluster";
    assert_eq!(elements["configs"][0]["@type"], kind);
    assert_eq!(elements["configs"][1]["cluster"]["name"], "dead");
    let masked = dump("?resource=static_clusters&mask=cluster.name");
    let cluster = json!({ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "adm" });
    assert_eq!(masked["configs"][0], json!({ "@type": kind, "cluster": cluster }));
    assert_eq!(dump("?resource=static_clusters&name_regex=de.*")["configs"].as_array().unwrap().len(), 1);
    assert_eq!(dump("?resource=static_clusters&name_regex=de"), json!({}), "a part of a name is no match");
    assert_eq!(dump("?resource=dynamic_listeners"), json!({}));
    assert_eq!(dump("?name_regex=dead")["configs"][1]["static_clusters"].as_array().unwrap().len(), 1);
    assert_eq!(dump("?mask=bootstrap")["configs"].as_array().unwrap().len(), 1);
    for (query, status, message) in [
        ("?resource=x", 404, "x not found in config dump"),
        ("?resource=bootstrap", 400, "bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field"),
        ("?mask=x", 400, "FieldMask x could not be successfully applied to any configs."),
        (
            "?mask=static_clusters.cluster",
            400,
            "FieldMask static_clusters.cluster could not be successfully applied to any configs.",
        ),
        ("?resource=static_clusters&mask=x", 400, "FieldMask x could not be successfully used.\n"),
        ("?name_regex=(", 400, "INVALID_ARGUMENT: Error while parsing name_regex from (: unclosed group: ("),
        (
            "?mask=bootstrap.node,static_clusters",
            400,
            "FieldMask bootstrap.node,static_clusters could not be successfully applied to any configs.",
        ),
        (
            "?mask=static_clusters,nothing",
            400,
            "FieldMask static_clusters,nothing could not be successfully applied to any configs.",
        ),
        ("?mask=@type", 400, "FieldMask @type could not be successfully applied to any configs."),
        ("?resource=static_endpoint_configs", 404, "static_endpoint_configs not found in config dump"),
    ] {
        let answer = fixture.read(&format!("/config_dump{query}"));
        assert_eq!((answer.status, answer.body.as_str()), (status, message), "{query}");
        assert_eq!(answer.header("content-type"), "text/plain", "{query}");
    }
    assert_eq!(dump("?mask=,"), whole, "there is no path in it");
    let kind = |name: &str| json!({ "@type": format!("type.googleapis.com/envoy.admin.v3.{name}") });
    assert_eq!(dump("?mask=dynamic_active_clusters,"), json!({ "configs": [kind("ClustersConfigDump")] }));
    let endpoints = dump("?include_eds&resource=static_endpoint_configs&name_regex=dead");
    let assignment = &endpoints["configs"][0]["endpoint_config"];
    assert_eq!(assignment["cluster_name"], "dead");
    let host = &assignment["endpoints"][0]["lb_endpoints"][0];
    assert_eq!((&host["endpoint"]["hostname"], &host["health_status"]), (&json!("localhost"), &json!("HEALTHY")));
    assert_eq!(dump("?include_eds&resource=dynamic_endpoint_configs"), json!({}), "none comes from a control plane");
    assert_eq!(fixture.read("/config_dump?resource=dynamic_endpoint_configs").status, 404);
    assert_eq!(dump("?include_eds")["configs"][2]["static_endpoint_configs"].as_array().unwrap().len(), 2);
}

#[test]
fn the_dump_of_endpoints_has_priorities_localities_and_health() {
    let host = |port: u16, zone: &str, priority: u32, health: Vec<HealthFlag>| {
        let mut host = EndpointStatus::new(Address::Tcp(([127, 0, 0, 1], port).into()));
        (host.zone, host.priority, host.health) = (zone.into(), priority, health);
        host
    };
    let endpoints = vec![
        host(3, "", 1, vec![HealthFlag::DegradedByConfiguration]),
        host(1, "a", 0, vec![HealthFlag::FailedActiveCheck]),
        host(2, "a", 0, Vec::new()),
    ];
    let cluster = ClusterStatus { name: "c".into(), endpoints, overprovisioning: 150, ..ClusterStatus::default() };
    let fixture = start_with(&anywhere(), vec![cluster], Vec::new()).unwrap();
    let dump = fixture.read("/config_dump?include_eds&resource=static_endpoint_configs").body;
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let assignment = &dump["configs"][0]["endpoint_config"];
    assert_eq!(assignment["policy"]["overprovisioning_factor"], 150);
    let [first, second] = assignment["endpoints"].as_array().unwrap().as_slice() else { panic!("{dump}") };
    assert_eq!((&first["locality"], first.get("priority")), (&json!({ "zone": "a" }), None));
    let health = |group: &Value| -> Vec<String> {
        let hosts = group["lb_endpoints"].as_array().unwrap();
        hosts.iter().map(|host| host["health_status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((health(first), health(second)), (vec!["UNHEALTHY".into(), "HEALTHY".into()], vec!["DEGRADED".into()]));
    assert_eq!((&second["locality"], &second["priority"]), (&json!({}), &json!(1)));
}

#[test]
fn what_the_start_waits_for_is_told() {
    let fixture = start();
    assert_eq!(fixture.read("/init_dump").body, "{}\n");
    *fixture.process.state.lock().unwrap() = ServerState::PreInitializing;
    let dump: Value = serde_json::from_str(&fixture.read("/init_dump").body).unwrap();
    assert_eq!(dump["unready_targets_dumps"][0]["target_names"], json!(["clusters"]));
    assert_eq!(fixture.read("/init_dump?mask=listener").body, "{}\n");
    *fixture.process.state.lock().unwrap() = ServerState::Initializing;
    let dump: Value = serde_json::from_str(&fixture.read("/init_dump?mask=listener").body).unwrap();
    assert_eq!(dump["unready_targets_dumps"][0]["target_names"], json!(["listeners"]));
}

#[test]
fn histograms_are_told_in_every_form() {
    let fixture = start();
    let block = fixture.process.registry.worker(0).block(&http::SET, "ingress");
    [3, 3, 120].iter().for_each(|value| block.record(http::DOWNSTREAM_RQ_TIME, *value));
    let only = "filter=ingress.downstream_rq_time$";
    let detailed = fixture.read(&format!("/stats?{only}&histogram_buckets=detailed")).body;
    assert!(
        detailed
            .starts_with("http.ingress.downstream_rq_time:\n  totals=3,0.1:2, 120,10:1\n  intervals=\n  summary=P0(")
    );
    let json = |mode: &str| -> Value {
        let body = fixture.read(&format!("/stats?{only}&format=json&histogram_buckets={mode}")).body;
        serde_json::from_str::<Value>(&body).unwrap()["stats"][0]["histograms"].clone()
    };
    let bucket = |mode: &str, at: usize| json(mode)[0]["buckets"][at].clone();
    assert_eq!(bucket("cumulative", 7), json!({ "upper_bound": 250, "interval": 0, "cumulative": 3 }));
    assert_eq!(bucket("disjoint", 7), json!({ "upper_bound": 250, "interval": 0, "cumulative": 1 }));
    let details = json("detailed");
    assert_eq!(details["supported_percentiles"].as_array().unwrap().len(), 10);
    let totals =
        json!([{ "lower_bound": 3, "width": 0.1, "count": 2 }, { "lower_bound": 120, "width": 10, "count": 1 }]);
    assert_eq!(details["details"][0]["totals"], totals);
    assert_eq!(json("summary")["computed_quantiles"][0]["values"].as_array().unwrap().len(), 10);
    let summary = fixture.read(&format!("/stats/prometheus?{only}&histogram_buckets=summary")).body;
    let lines: Vec<&str> = summary.lines().collect();
    assert_eq!(lines[0], "# TYPE envoy_http_downstream_rq_time summary");
    // Of the last interval, of which none is over.
    let of = "envoy_http_conn_manager_prefix=\"ingress\"";
    assert_eq!(lines[3], format!("envoy_http_downstream_rq_time{{{of},quantile=\"0.5\"}} NaN"));
    assert_eq!(lines[11], format!("envoy_http_downstream_rq_time_sum{{{of}}} 0"));
    assert_eq!(lines.len(), 13);
}

#[test]
fn pages_for_people_escape_what_they_show() {
    let fixture = start();
    fixture.process.registry.worker(0).block(&cluster::SET, "<&>").inc(cluster::UPSTREAM_CX_TOTAL);
    let page = fixture.read("/stats?format=html&usedonly&filter=%3C%22&filter=x");
    assert_eq!(page.header("content-type"), "text/html; charset=UTF-8");
    assert!(page.body.contains("value=\"&lt;&quot;\"") && page.body.contains(" checked>"), "{}", page.body);
    let page = fixture.read("/stats?format=html&usedonly&filter=cx_total").body;
    assert!(page.contains("\ncluster.&lt;&amp;&gt;.upstream_cx_total: 1\n"), "{page}");
    let active = fixture.read("/stats?format=active-html");
    assert_eq!(active.header("content-type"), "text/html; charset=UTF-8");
    assert!(active.body.contains("format: \"json\""));
}

/// One test, since levels belong to the whole process.
#[test]
fn logging_levels_are_listed_and_changed() {
    let fixture = start();
    assert!(fixture.order("/logging").body.starts_with("active loggers:\n  admin: info\n"));
    let changed = fixture.order("/logging?paths=dns:debug,router:error").body;
    assert!(changed.contains("\n  dns: debug\n") && changed.contains("\n  router: error\n"), "{changed}");
    assert_eq!(log::level(Component::Dns), Level::Debug);
    assert!(fixture.order("/logging?dns=trace").body.contains("\n  dns: trace\n"));
    for (query, reason) in [
        ("nope=debug", "unknown logger name"),
        ("paths=dns:info,nope:debug", "unknown logger name"),
        ("level=nope", "unknown logger level"),
        ("level=warn", "unknown logger level"),
        ("dns=warn", "unknown logger level"),
        ("paths=admin", "empty logger name or empty logger level"),
        ("level=info&dns=debug", "invalid number of parameters"),
        ("group=x", "group parameter requires fine-grain logging to be enabled"),
    ] {
        let answer = fixture.order(&format!("/logging?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body.starts_with(&format!("error: {reason}\n\nusage: /logging?")), "{}", answer.body);
    }
    assert_eq!(log::level(Component::Dns), Level::Trace, "a refused list changes nothing");
    for query in ["group=&dns=", "paths=,", "level=&paths=", "level"] {
        assert_eq!(fixture.order(&format!("/logging?{query}")).status, 200, "{query}");
    }
    assert_eq!(log::level(Component::Dns), Level::Trace, "what is empty changes nothing");
    for (query, level) in [
        ("level=&paths=dns:debug", "debug"),
        ("paths=dns:error,,", "error"),
        ("paths=dns:off&paths=nope", "off"),
        ("level=warning&level=debug", "warning"),
        ("level=info&paths=", "info"),
    ] {
        let changed = fixture.order(&format!("/logging?{query}"));
        assert_eq!(changed.status, 200, "{query}");
        assert!(changed.body.contains(&format!("\n  dns: {level}\n")), "{query}: {}", changed.body);
    }
}

#[test]
fn parameters_come_as_a_form_where_the_path_has_none() {
    let fixture = start();
    let send = |target: &str, kind: &str, form: &str| {
        let fields = format!("host: a\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}", form.len());
        fixture.raw(format!("POST {target} HTTP/1.1\r\n{fields}\r\n\r\n{form}").as_bytes())
    };
    let refused = |answer: Answer| answer.body.starts_with("error: unknown logger level\n");
    for kind in ["application/x-www-form-urlencoded", "Application/X-WWW-Form-URLEncoded; charset=UTF-8"] {
        assert!(refused(send("/logging", kind, "level=nope")), "{kind}");
        assert_eq!(send("/clusters?filter=x", kind, "format=json").body, "", "the path says what is asked for");
        assert_eq!(send("/runtime_modify", kind, "a=1").status, 503, "{kind}");
    }
    assert!(!refused(send("/logging", "text/plain", "level=nope")));
    assert!(send("/runtime_modify", "text/plain", "a=1").body.starts_with("usage: /runtime_modify?"));
}

#[test]
fn history_tells_what_became_of_each_configuration() {
    let fixture = start();
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_169_472_345);
    let push = |outcome| fixture.process.history.push(HistoryEntry { time, source: "e.yaml".into(), outcome });
    push(Outcome::Accepted { changes: vec![Change { kind: ChangeKind::Added, what: "cluster web".into() }] });
    push(Outcome::Refused { errors: vec!["e.yaml:3:5: unknown field `nme`\nhelp: did you mean `name`?".into()] });
    push(Outcome::Accepted { changes: vec![] });
    let text = "2026-11-20T10:11:12.345Z accepted e.yaml: nothing changed\n\
                2026-11-20T10:11:12.345Z refused e.yaml\n\
                \x20 e.yaml:3:5: unknown field `nme`\n\
                \x20 help: did you mean `name`?\n\
                2026-11-20T10:11:12.345Z accepted e.yaml\n\
                \x20 + cluster web\n";
    assert_eq!(fixture.read("/history").body, text);
    let json: Value = serde_json::from_str(&fixture.read("/history?format=json").body).unwrap();
    assert_eq!(json["history"][1]["outcome"], "refused");
    assert_eq!(json["history"][2]["changes"], json!([{ "kind": "added", "what": "cluster web" }]));
    assert_eq!(fixture.read("/history?format=xml").status, 400);
}

#[test]
fn paths_are_listed_and_others_are_not_found() {
    let explain = || Endpoint {
        path: "/explain",
        help: "say which route a request takes <&>",
        parameters: &[("path", "the request's path")],
        mutating: false,
        handler: Box::new(|_, request| {
            Reply::text(format!("{} {:?}", request.parameter("path").unwrap_or("-"), request.body.len()))
        }),
    };
    let fixture = start_with(&anywhere(), Vec::new(), vec![explain()]).unwrap();
    let help = fixture.read("/help").body;
    assert!(help.starts_with("admin commands are:\n  /: Admin home page\n  /allocprofiler (POST): "), "{help}");
    assert!(help.contains("\n  /certs: print certs on machine\n      places: "), "{help}");
    assert!(
        help.contains("\n  /explain: say which route a request takes <&>\n      path: the request's path\n"),
        "{help}"
    );
    assert!(help.contains("\n  /quitquitquit (POST): exit the server\n"));
    let paths =
        help.lines().filter(|line| line.starts_with("  /")).filter_map(|line| line.trim().split([' ', ':']).next());
    assert!(paths.is_sorted(), "{help}");
    let missing = fixture.read("/ready/");
    assert_eq!((missing.status, missing.body), (404, format!("invalid path. {help}")));
    let page = fixture.read("/");
    assert_eq!(page.header("content-type"), "text/html; charset=UTF-8");
    assert!(page.body.contains("takes &lt;&amp;&gt;"), "{}", page.body);
    assert_eq!(fixture.read("/explain?path=%2Fa%20b").body, "/a b 0");
    let with_body = b"POST /explain HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(fixture.raw(with_body).body, "- 3");
}

#[test]
fn too_much_is_refused() {
    let fixture = start();
    let long = fixture.send(&format!("GET /ready HTTP/1.1\r\nx: {}", "y".repeat(2 * MAX_HEAD_BYTES)));
    assert_eq!(long.status, 431);
    let many = "\r\nx: y".repeat(MAX_HEADERS);
    assert_eq!(fixture.send(&format!("GET /ready HTTP/1.1{many}")).status, 431);
    let body = format!(
        "POST /logging HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        MAX_BODY_BYTES + 1
    );
    let mut stream = fixture.connect();
    stream.write_all(body.as_bytes()).unwrap();
    // What is sent after the refusal may find the connection closed.
    let _ = stream.write_all(&vec![b'x'; MAX_BODY_BYTES + 1]);
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");
}

#[test]
fn a_request_that_http_forbids_is_refused() {
    let fixture = start();
    let send = |line: &str, hosts: &str| {
        let answer = fixture.raw(format!("{line}\r\n{hosts}connection: close\r\n\r\n").as_bytes());
        (answer.status, answer.body)
    };
    let refused = (400, "Bad Request".to_owned());
    for hosts in ["", "host: a\r\nhost: b\r\n", "host: a b\r\n", "host: u@a\r\n", "host: a/b\r\n"] {
        assert_eq!(send("GET /ready HTTP/1.1", hosts), refused, "{hosts:?}");
    }
    for line in ["FOO /ready HTTP/1.1", "get /ready HTTP/1.1", "CONNECT a:1 HTTP/1.1", "GET ready HTTP/1.1"] {
        assert_eq!(send(line, "host: a\r\n"), refused, "{line}");
    }
    let ready = (200, "LIVE\n".to_owned());
    for hosts in ["host: a\r\n", "host:\r\n", "host: [::1]:80\r\n", "Host: a.b:1\r\n"] {
        assert_eq!(send("GET /ready HTTP/1.1", hosts), ready, "{hosts:?}");
        assert_eq!(send("GET http://x/ready HTTP/1.1", hosts), ready, "{hosts:?}");
    }
    assert_eq!(send("GET /ready HTTP/1.0", ""), ready);
    assert_eq!(send("OPTIONS /ready HTTP/1.1", "host: a\r\n"), ready);
}

#[test]
fn connections_over_the_limit_wait_their_turn() {
    let fixture = start();
    let request = b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut all: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| fixture.connect()).collect();
    let mut answer = [0; 15];
    for stream in &mut all {
        stream.write_all(request).unwrap();
        stream.read_exact(&mut answer).unwrap();
    }
    let mut late = fixture.connect();
    late.write_all(request).unwrap();
    late.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(late.read(&mut answer).is_err(), "all slots are taken");
    drop(all.pop());
    late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    late.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[test]
fn it_stops_although_clients_hold_on() {
    let fixture = start();
    let idle = fixture.connect();
    let Fixture { server, .. } = fixture;
    let address = server.address().clone();
    server.stop();
    let Address::Tcp(address) = address else { panic!("not TCP") };
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    drop(idle);
}

#[test]
fn traces_are_sent_as_they_come_until_the_client_goes() {
    let fixture = start();
    let mut client = fixture.connect();
    client.write_all(b"POST /tap HTTP/1.1\r\nhost: admin\r\ncontent-length: 6\r\n\r\npieces").unwrap();
    let mut received = Vec::new();
    let mut until = |end: &str| {
        while !String::from_utf8_lossy(&received).ends_with(end) {
            let mut room = [0; 1024];
            let count = client.read(&mut room).unwrap();
            assert!(count > 0, "closed");
            received.extend_from_slice(&room[..count]);
        }
    };
    until("\r\n\r\n");
    let traces = fixture.process.traces.lock().unwrap().take().unwrap();
    traces.try_send(Box::new(|| b"one".into())).unwrap();
    until("3\r\none\r\n");
    traces.try_send(Box::new(|| b"more".into())).unwrap();
    until("4\r\nmore\r\n");
    assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"));
    drop(client);
    assert_eq!(fixture.told(), "over");
    // One that nobody ends does not keep the server.
    let mut client = fixture.connect();
    client.write_all(b"POST /tap HTTP/1.1\r\nhost: admin\r\ncontent-length: 6\r\n\r\npieces").unwrap();
    assert!(client.read(&mut [0; 16]).unwrap() > 0);
    fixture.server.stop();
    assert_eq!(fixture.orders.recv_timeout(Duration::from_secs(20)).unwrap(), "over");
}

#[test]
fn traces_are_gathered_up_to_a_number_or_for_a_time() {
    let fixture = start();
    let ask = |body: &str| {
        let fields = format!("host: admin\r\nconnection: close\r\ncontent-length: {}", body.len());
        fixture.raw(format!("POST /tap?only_failed HTTP/1.1\r\n{fields}\r\n\r\n{body}").as_bytes())
    };
    for body in ["two", "time"] {
        let answer = ask(body);
        assert_eq!((answer.status, answer.body.as_str()), (200, "one,two"), "{body}");
        assert_eq!(fixture.told(), "over");
    }
    let refused = [ask("nonsense"), ask("")].map(|answer| (answer.status, answer.body));
    assert_eq!(refused, [(400, "only failed: true".into()), (400, "/tap requires a JSON/YAML body".into())]);
    assert_eq!(fixture.read("/tap").status, 405);
}

#[test]
fn a_unix_socket_serves_too() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    let folder = std::env::temp_dir().join(format!("postrider-admin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("admin.sock");
    let address = Address::Unix { path: path.clone(), mode: Some(0o600) };
    for round in ["the first", "after one that left its file behind"] {
        let fixture = start_with(&address, Vec::new(), Vec::new()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET /ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(parse(&answer).body, "LIVE\n", "{round}");
        fixture.server.stop();
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "not a socket").unwrap();
    assert!(start_with(&address, Vec::new(), Vec::new()).is_err(), "another file is not removed");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a socket");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn certificates_are_told_in_envoys_form() {
    let fixture = start();
    let names = json!([{"dns": "a.test"}, {"uri": "spiffe://a/b"}, {"ip_address": "::1"}]);
    let told: Value = serde_json::from_str(&fixture.read("/certs").body).unwrap();
    let own = &told["certificates"][0]["cert_chain"][0];
    let root = json!({
        "path": "<inline>",
        "serial_number": "0d",
        "subject_alt_names": names,
        "days_until_expiration": "0",
        "valid_from": "2001-09-09T01:46:40Z",
        "expiration_time": "2004-11-09T11:33:20Z",
    });
    assert_eq!(told["certificates"][0]["ca_cert"], json!([root]));
    assert_eq!((&own["days_until_expiration"], &own["path"]), (&json!("19"), &json!("a.pem")));
    let ocsp = json!({"valid_from": "2001-09-09T01:46:40Z", "expiration": "2001-09-10T01:46:40Z"});
    assert_eq!(own["ocsp_details"], ocsp);
    assert_eq!(told["certificates"][1], json!({"ca_cert": [], "cert_chain": []}));
    assert_eq!(own["subject"], Value::Null);

    let told: Value = serde_json::from_str(&fixture.read("/certs?places=1").body).unwrap();
    let first = &told["certificates"][0];
    assert_eq!((&first["listener"], &first["filter_chain"]), (&json!("web"), &json!("one")));
    assert_eq!(first["cert_chain"][0]["subject"], "CN=a");
    assert_eq!(told["certificates"][1]["cluster"], "adm");
}
