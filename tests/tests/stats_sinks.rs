//! Statistics that are sent: statsd and DogStatsD over UDP. The same expectations hold for Envoy, but where a test says so.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{DEADLINE, Origin, Proxy, TempDir, wait_until};
use postrider_tests::postrider_only;
use serde_json::{Value, json};

/// Datagrams that wait for a test: more than any of these tests looks at late.
const HELD: usize = 65_536;

/// A server that takes datagrams as they come: a flush is more of them than a socket's buffer holds.
struct Recorder {
    address: SocketAddr,
    datagrams: Receiver<String>,
}

impl Recorder {
    fn start() -> Recorder {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let (sender, datagrams) = mpsc::sync_channel(HELD);
        // Blocked in a system call or not, the thread is gone with the process: nothing can come for it any more.
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok(length) = socket.recv(&mut buffer) {
                if sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        Recorder { address, datagrams }
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next datagram.
    fn datagram(&self) -> String {
        self.datagrams.recv_timeout(DEADLINE).expect("a datagram")
    }

    /// All lines up to the one that `last` knows, that one as well.
    fn until(&self, last: impl Fn(&str) -> bool) -> Vec<String> {
        let deadline = Instant::now() + DEADLINE;
        let mut lines: Vec<String> = Vec::new();
        while !lines.iter().any(|line| last(line)) {
            assert!(Instant::now() < deadline, "among what is told over and over: {lines:?}");
            lines.extend(self.datagram().split('\n').map(str::to_owned));
        }
        lines
    }
}

fn sink(name: &str, kind: &str, address: SocketAddr, more: Value) -> Value {
    let mut config = json!({
        "@type": format!("type.googleapis.com/{kind}"),
        "address": {"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}},
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    json!({"name": name, "typed_config": config})
}

fn statsd(address: SocketAddr, more: Value) -> Value {
    sink("envoy.stat_sinks.statsd", "envoy.config.metrics.v3.StatsdSink", address, more)
}

fn dog_statsd(address: SocketAddr, more: Value) -> Value {
    sink("envoy.stat_sinks.dog_statsd", "envoy.config.metrics.v3.DogStatsdSink", address, more)
}

fn site(origin: &Origin, sinks: Value) -> Config {
    Config::proxy_to(origin.address).overlay(json!({"stats_sinks": sinks, "stats_flush_interval": "0.2s"}))
}

/// Few enough statistics for the buffer of a socket that nobody reads for a while: what a system drops is not told again.
fn few() -> Value {
    let prefixes = ["http.ingress_http.downstream_rq_", "server.live"];
    let prefixes = prefixes.iter().map(|prefix| json!({"prefix": prefix}));
    let patterns: Vec<Value> = prefixes.chain([json!({"contains": ".upstream_rq"})]).collect();
    json!({"stats_config": {"stats_matcher": {"inclusion_list": {"patterns": patterns}}}})
}

fn hello() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

const COMPLETED: &str = "http.ingress_http.downstream_rq_completed";

#[test]
fn statsd_is_told_what_changed() {
    let (origin, server) = (hello(), Recorder::start());
    let proxy = Proxy::start(&site(&origin, json!([statsd(server.address(), json!({}))])).overlay(few()));
    (0..3).for_each(|_| assert_eq!(proxy.get("/").status, 200));
    let mut completed = 0;
    let mut seen = BTreeSet::new();
    // Counters come as what is new; how the three requests are spread over flushes is a matter of time.
    while completed < 3 {
        let lines = server.until(|line| line.starts_with(&format!("envoy.{COMPLETED}:")));
        for line in lines {
            assert!(!line.contains('#'), "no tags: {line}");
            let (name, value) = line.rsplit_once(':').unwrap();
            seen.insert(format!("{name} {}", value.split_once('|').unwrap().1));
            if name == format!("envoy.{COMPLETED}") {
                completed += value.trim_end_matches("|c").parse::<u64>().unwrap();
            }
        }
    }
    assert_eq!(completed, 3);
    server.until(|line| line.starts_with("envoy.server.live:1|g"));
    assert!(seen.contains(&format!("envoy.{COMPLETED} c")), "{seen:?}");
    server.until(|line| line == format!("envoy.{COMPLETED}:0|c"));
}

#[test]
fn times_come_as_timers() {
    let (origin, server) = (hello(), Recorder::start());
    let proxy =
        Proxy::start(&site(&origin, json!([statsd(server.address(), json!({"prefix": "shop"}))])).overlay(few()));
    assert_eq!(proxy.get("/").status, 200);
    let lines = server.until(|line| line.starts_with("shop.http.ingress_http.downstream_rq_time:"));
    let line = lines.iter().find(|line| line.starts_with("shop.http.ingress_http.downstream_rq_time:")).unwrap();
    let value = line.rsplit_once(':').unwrap().1;
    assert!(value.strip_suffix("|ms").is_some_and(|millis| millis.parse::<u64>().is_ok()), "{line}");
    assert!(lines.iter().all(|line| line.starts_with("shop.")), "{lines:?}");
}

#[test]
fn dog_statsd_has_tags_and_several_lines_in_a_datagram() {
    let (origin, server) = (hello(), Recorder::start());
    let more = json!({"prefix": "dog", "max_bytes_per_datagram": 300});
    let mut config = site(&origin, json!([dog_statsd(server.address(), more)])).overlay(few());
    config = config.overlay(json!({"stats_config": {"stats_tags": [{"tag_name": "fleet", "fixed_value": "blue"}]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let want = "|c|#envoy.response_code:200,fleet:blue,envoy.cluster_name:";
    let mut several = false;
    let deadline = Instant::now() + DEADLINE;
    loop {
        let datagram = server.datagram();
        assert!(Instant::now() < deadline, "told over and over: {datagram}");
        several |= datagram.contains('\n');
        assert!(!datagram.contains('\n') || datagram.len() <= 300, "{datagram}");
        if datagram.split('\n').any(|line| line.starts_with("dog.cluster.upstream_rq:") && line.contains(want)) {
            break;
        }
    }
    assert!(several);
}

#[test]
fn an_agent_may_be_told_by_its_unix_domain_socket() {
    let folder = TempDir::new();
    let path = folder.path().join("agent");
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let origin = hello();
    // Such a socket has room for a few datagrams only; what finds none is lost.
    let agent = json!({"address": {"pipe": {"path": path}}, "max_bytes_per_datagram": 4096});
    let sink = dog_statsd(SocketAddr::from(([127, 0, 0, 1], 1)), agent);
    let proxy = Proxy::start(&site(&origin, json!([sink])).overlay(few()));
    let mut room = [0; 4096];
    let mut hears = || {
        let length = server.recv(&mut room).unwrap_or(0);
        String::from_utf8_lossy(&room[..length]).lines().any(|line| {
            line.starts_with("envoy.http.downstream_rq_completed:")
                && line.ends_with("|c|#envoy.http_conn_manager_prefix:ingress_http")
        })
    };
    // A counter is told once: where that was lost, another request has it told anew.
    wait_until("the agent", || {
        assert_eq!(proxy.get("/").status, 200);
        (0..50).any(|_| hears())
    });
}

#[test]
fn graphite_has_tags_behind_names() {
    let (origin, server) = (hello(), Recorder::start());
    let kind = "envoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSink";
    let graphite = sink("envoy.stat_sinks.graphite_statsd", kind, server.address(), json!({}));
    let proxy = Proxy::start(&site(&origin, json!([graphite])).overlay(few()));
    assert_eq!(proxy.get("/").status, 200);
    let told = |line: &str| line.starts_with("envoy.cluster.upstream_rq;envoy.response_code=200;envoy.cluster_name=");
    let lines = server.until(told);
    assert!(lines.last().unwrap().ends_with(":1|c"), "{lines:?}");
}

#[test]
fn asking_the_admin_flushes_when_that_is_wanted() {
    let (origin, server) = (hello(), Recorder::start());
    let config = Config::proxy_to(origin.address)
        .overlay(json!({"stats_sinks": [statsd(server.address(), json!({}))], "stats_flush_on_admin": true}))
        .overlay(few());
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    wait_until("the request is counted and told", || {
        proxy.admin_get("/stats?filter=nothing");
        // Whether all of a flush arrives is the system's choice: what was told by now is looked at, not waited for.
        std::iter::from_fn(|| server.datagrams.try_recv().ok()).any(|told| told.contains(&format!("{COMPLETED}:1|c")))
    });
}

#[test]
fn what_is_not_told_is_not_sent() {
    let (origin, server) = (hello(), Recorder::start());
    let matcher = json!({"exclusion_list": {"patterns": [{"prefix": "http."}]}});
    let config = site(&origin, json!([statsd(server.address(), json!({}))]))
        .overlay(json!({"stats_config": {"stats_matcher": matcher}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let lines = server.until(|line| line.contains("upstream_rq_200:1|c"));
    assert!(!lines.iter().any(|line| line.starts_with("envoy.http.")), "{lines:?}");
}

/// Envoy counts nothing of its own here.
#[test]
fn flushes_and_what_was_lost_are_counted() {
    if !postrider_only() {
        return;
    }
    let origin = hello();
    // No datagram goes to port 0.
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let proxy = Proxy::start(&site(&origin, json!([statsd(nowhere, json!({}))])));
    wait_until("dropped datagrams", || {
        let text = proxy.admin_get("/stats?filter=stats_sinks").text().to_owned();
        let count = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |value| value.parse().unwrap())
        };
        count("stats_sinks.flushes: ") > 1 && count("stats_sinks.dropped: ") > 10
    });
    assert_eq!(proxy.get("/").status, 200);
}
