//! Envoy and Postrider beside each other, on the same configuration but for the ports of their upstreams.

use crate::allowed::{self, COUNTERS};
use crate::origins::Upstream;
use crate::scene::{Over, Scene, shown};
use crate::seen::{self, Mask, Seen};
use crate::wire::{self, Names};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::kit::config::{self, Config, file_access_log};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{DEADLINE, Proxy, RawClient, Stats, TempDir, net, wait_until};
use postrider_tests::tls::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long what one side still lacks may take, before it is a difference.
const SETTLING: Duration = Duration::from_millis(300);

/// The listener whose log line says that those before it are written.
const MARK: &str = "mark";

/// Both proxies.
pub struct Pair {
    envoy: Side,
    postrider: Side,
}

/// One proxy, its upstreams and its log.
struct Side {
    proxy: Proxy,
    upstreams: Vec<Upstream>,
    addresses: BTreeMap<String, SocketAddr>,
    tls: Client,
    log: std::path::PathBuf,
    read: usize,
    _folder: TempDir,
}

/// What the two did differently with one request, or counted differently over a scene.
#[derive(Debug)]
pub struct Finding {
    pub scene: String,
    /// The place of the request, unless it is about counters.
    pub request: Option<usize>,
    pub difference: seen::Difference,
}

impl Pair {
    pub fn start(scenes: &[Scene]) -> Self {
        // No server listens there, on neither side.
        let down = net::refusing_address();
        let envoy = Launch::envoy().unwrap_or_else(|| {
            panic!("Envoy 1.40 is needed to compare with: set ENVOY_BIN, or let `make test` install it into target/tools/envoy")
        });
        let postrider = Launch { binary: Some(postrider_tests::kit::proxy::binary().to_owned()), ..Launch::default() };
        let names = Names::new();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| Side::start(scenes, envoy, down, &names));
            let postrider = Side::start(scenes, postrider, down, &names);
            Self { envoy: other.join().expect("Envoy"), postrider }
        })
    }

    /// Sends a scene's requests to both, and tells where they part.
    pub fn play(&mut self, scene: &Scene) -> Vec<Finding> {
        let mut counts = Counts::from(self.stats(scene));
        let mut both: Vec<(Exchange, Exchange)> = Vec::new();
        for (index, request) in scene.requests.iter().enumerate() {
            // What such a request counts is looked at apart from what the others do.
            let alone = allowed::may_be_whole(scene, &shown(request));
            if alone && index > counts.end {
                self.count(scene, &mut counts, index);
            }
            let (envoy, postrider) = std::thread::scope(|scope| {
                let envoy = scope.spawn(|| self.envoy.exchange(scene, request));
                let postrider = self.postrider.exchange(scene, request);
                (envoy.join().expect("an exchange"), postrider)
            });
            both.push((envoy, postrider));
            if scene.copies {
                // Both could agree that there is none before either is there.
                [&self.envoy, &self.postrider].into_iter().for_each(Side::await_copies);
            }
            self.settle_origins();
            let (envoy, postrider) = both.last_mut().expect("an exchange");
            self.envoy.note_origins(envoy);
            self.postrider.note_origins(postrider);
            if alone {
                self.count(scene, &mut counts, index + 1);
            }
        }
        self.note_logs(scene, &mut both);
        if counts.end < both.len() {
            self.count(scene, &mut counts, both.len());
        }
        let mut findings = Vec::new();
        let mut treated_otherwise = Vec::new();
        for (index, (mut envoy, mut postrider)) in both.into_iter().enumerate() {
            let request = &scene.requests[index];
            seen::mask_peer(&mut envoy.seen, request);
            seen::mask_peer(&mut postrider.seen, request);
            let mut difference = seen::compare(&envoy.seen, &postrider.seen);
            if allowed::forgive(scene, &shown(request), &mut difference) {
                treated_otherwise.push(index);
            }
            if !difference.is_empty() {
                findings.push(Finding { scene: scene.name.clone(), request: Some(index), difference });
            }
        }
        for (requests, difference) in counts.differences {
            // A request that is treated otherwise counts otherwise; it is alone in its part then.
            if !treated_otherwise.iter().any(|index| requests.contains(index)) {
                findings.push(Finding { scene: scene.name.clone(), request: None, difference });
            }
        }
        findings
    }

    /// Compares what the requests up to `end` counted since the last time.
    fn count(&self, scene: &Scene, counts: &mut Counts, end: usize) {
        // Behind its line in the log a request counts nothing more.
        self.envoy.mark();
        self.postrider.mark();
        let mut difference = seen::Difference::default();
        let mut now = None;
        settle(|| {
            let now = now.insert(self.stats(scene));
            let theirs = seen::counted(&scene.name, &counts.before.0, &now.0);
            let ours = seen::counted(&scene.name, &counts.before.1, &now.1);
            difference = seen::compare(&theirs, &ours);
            allowed::forgive(scene, COUNTERS, &mut difference);
            difference.is_empty()
        });
        if !difference.is_empty() {
            counts.differences.push((counts.end..end, difference));
        }
        counts.before = now.expect("they were read at least once");
        counts.end = end;
    }

    fn settle_origins(&self) {
        settle(|| self.envoy.got() == self.postrider.got());
    }

    fn note_logs(&mut self, scene: &Scene, both: &mut [(Exchange, Exchange)]) {
        self.envoy.mark();
        self.postrider.mark();
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        settle(|| {
            theirs.extend(self.envoy.new_lines());
            ours.extend(self.postrider.new_lines());
            theirs.len() == ours.len()
        });
        for index in 0..both.len() {
            let (envoy, postrider) = (nth(both, index, |it| &it.0), nth(both, index, |it| &it.1));
            self.envoy.note_log(scene, &theirs, envoy, &mut both[index].0);
            self.postrider.note_log(scene, &ours, postrider, &mut both[index].1);
        }
    }

    fn stats(&self, scene: &Scene) -> (Stats, Stats) {
        (self.envoy.stats(scene), self.postrider.stats(scene))
    }
}

/// What requests counted differently.
struct Counts {
    /// What each side had counted before the requests that are not compared yet.
    before: (Stats, Stats),
    /// The place of the first of these.
    end: usize,
    differences: Vec<(Range<usize>, seen::Difference)>,
}

impl From<(Stats, Stats)> for Counts {
    fn from(before: (Stats, Stats)) -> Self {
        Self { before, end: 0, differences: Vec::new() }
    }
}

/// One request and what became of it.
struct Exchange {
    client: SocketAddr,
    seen: Seen,
}

impl Side {
    fn start(scenes: &[Scene], launch: Launch, down: SocketAddr, names: &Names) -> Self {
        let upstreams: Vec<Upstream> = ["a", "b", "authz"].into_iter().map(Upstream::start).collect();
        let folder = TempDir::new();
        let log = folder.path().join("log");
        let config = configure(scenes, &upstreams, down, &log, names);
        let proxy = Proxy::start_with(&config, launch.with_arguments(&["--file-flush-interval-msec", "1"]));
        let listeners = scenes.iter().map(|scene| scene.name.as_str()).chain([MARK]);
        let addresses = addresses(&proxy, &listeners.collect::<Vec<_>>());
        Self { proxy, upstreams, addresses, tls: names.client(), log, read: 0, _folder: folder }
    }

    fn exchange(&self, scene: &Scene, request: &[u8]) -> Exchange {
        for upstream in &self.upstreams {
            upstream.forget();
        }
        let request = self.filled_in(request);
        let mut seen = Seen::default();
        let mut mask = self.mask(scene);
        let client = wire::exchange(scene.over, &self.tls, self.addresses[&scene.name], &request, &mut mask, &mut seen);
        Exchange { client, seen }
    }

    /// The request with this side's addresses in the place of their names, which stand behind a `$`.
    fn filled_in(&self, request: &[u8]) -> Vec<u8> {
        let Some(text) = std::str::from_utf8(request).ok().filter(|text| text.contains("$<")) else {
            return request.to_vec();
        };
        let names = self.upstreams.iter().flat_map(|upstream| names(upstream.name, upstream.origin.address));
        names.fold(text.to_owned(), |text, (address, name)| text.replace(&format!("${name}"), &address)).into_bytes()
    }

    fn mask(&self, scene: &Scene) -> Mask {
        let mut all: Vec<(String, String)> =
            self.upstreams.iter().flat_map(|it| names(it.name, it.origin.address)).collect();
        all.push((self.addresses[&scene.name].to_string(), "<listener>".to_owned()));
        Mask(all)
    }

    /// Those that a scene can move: all of a page with many scenes would take long to read.
    fn stats(&self, scene: &Scene) -> Stats {
        let name = &scene.name;
        // (http.NAME.|NAME.|cluster.|vhost.|json_to_metadata.|wasmcustom.|dynamicmodulescustom.)
        let filter = format!(
            "%28http%5C.{name}%5C.%7C{name}%5C.%7Ccluster%5C.%7Cvhost%5C.%7Cjson_to_metadata%5C.%7Cwasmcustom%5C.%7Cdynamicmodulescustom%5C.%29"
        );
        Stats::parse(self.proxy.admin_get(&format!("/stats?filter={filter}")).text())
    }

    /// Waits until no request is on its way to an upstream any more.
    fn await_copies(&self) {
        let under_way = |stats: &Stats| {
            let gauges = ["upstream_rq_active", "upstream_rq_pending_active"];
            let of =
                |upstream: &Upstream| gauges.map(|gauge| stats.value(&format!("cluster.{}.{gauge}", upstream.name)));
            self.upstreams.iter().flat_map(of).sum::<u64>()
        };
        wait_until("the copies have their answers", || under_way(&self.proxy.stats()) == 0);
    }

    /// How many requests reached each upstream.
    fn got(&self) -> Vec<usize> {
        self.upstreams.iter().map(|it| it.origin.requests().len() + it.origin.malformed().len()).collect()
    }

    fn note_origins(&self, exchange: &mut Exchange) {
        let all = self.upstreams.iter().flat_map(|it| names(it.name, it.origin.address));
        let mask = Mask(all.collect());
        for upstream in &self.upstreams {
            for (index, request) in upstream.origin.requests().iter().enumerate() {
                seen::note_request(&mut exchange.seen, &mask, &format!("{} got #{index}", upstream.name), request);
            }
            for malformed in upstream.origin.malformed() {
                exchange.seen.push(format!("{} got what is malformed: {malformed}", upstream.name));
            }
        }
    }

    /// Has a line written behind those of what came before, and waits for it.
    fn mark(&self) {
        let mut client = RawClient::connect(self.addresses[MARK]);
        let port = client.local_addr().to_string();
        client.exchange("GET /mark HTTP/1.1\r\nhost: mark\r\n\r\n");
        let written = || std::fs::read_to_string(&self.log).is_ok_and(|text| text.contains(&port));
        wait_until("the mark in the log", || {
            let text = std::fs::read(&self.log).unwrap_or_default();
            let fresh = String::from_utf8_lossy(text.get(self.read..).unwrap_or_default()).into_owned();
            fresh.lines().any(|line| line.contains("/mark") && line.contains(&port)) && written()
        });
    }

    /// The whole lines that were written since the last call.
    fn new_lines(&mut self) -> Vec<Value> {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let fresh = text.get(self.read..).unwrap_or_default();
        let end = fresh.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += end;
        let lines = String::from_utf8_lossy(&fresh[..end]).into_owned();
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| json!({"unreadable": line}));
        lines.lines().map(parse).collect()
    }

    fn note_log(&self, scene: &Scene, lines: &[Value], place: (usize, usize), exchange: &mut Exchange) {
        let client = exchange.client.to_string();
        let mut mask = self.mask(scene);
        mask.with_client(exchange.client);
        let its = lines.iter().filter(|line| line["client"] == client.as_str() && line["path"] != "/mark");
        let its: Vec<&Value> = its.collect();
        let (nth, of) = place;
        // The port of a connection may have been that of an earlier one: each has its share of the lines.
        let share = its.len() / of;
        for line in its.into_iter().skip(nth * share).take(share) {
            seen::note_log(&mut exchange.seen, &mask, line);
        }
        seen::mask_packed(&mut exchange.seen);
    }
}

/// What stands for an upstream's address, and for that address as sessions have it: in base64, alone and as the first field of
/// a message.
fn names(name: &str, address: SocketAddr) -> [(String, String); 3] {
    let address = address.to_string();
    let message = [&[10, u8::try_from(address.len()).expect("a short address")], address.as_bytes()].concat();
    let (alone, message) = (STANDARD.encode(&address), STANDARD.encode(message));
    [
        (address, format!("<{name}>")),
        (alone, format!("<{name} in base64>")),
        (message, format!("<{name} in a message>")),
    ]
}

/// Which of the exchanges from the same client's address this one is, and how many there are.
fn nth(both: &[(Exchange, Exchange)], index: usize, side: fn(&(Exchange, Exchange)) -> &Exchange) -> (usize, usize) {
    let same = |pair: &&(Exchange, Exchange)| side(pair).client == side(&both[index]).client;
    (both[..index].iter().filter(same).count(), both.iter().filter(same).count())
}

/// Polls until both sides agree, or for [`SETTLING`].
fn settle(mut agree: impl FnMut() -> bool) {
    let deadline = Instant::now() + SETTLING.min(DEADLINE);
    while !agree() && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

fn addresses(proxy: &Proxy, names: &[&str]) -> BTreeMap<String, SocketAddr> {
    let mut found = BTreeMap::new();
    wait_until("all listeners", || {
        let listeners = proxy.admin_json("/listeners?format=json");
        for status in listeners["listener_statuses"].as_array().into_iter().flatten() {
            let address = &status["local_address"]["socket_address"];
            let port = address["port_value"].as_u64().and_then(|port| u16::try_from(port).ok());
            if let (Some(name), Some(port)) = (status["name"].as_str(), port) {
                found.insert(name.to_owned(), SocketAddr::from(([127, 0, 0, 1], port)));
            }
        }
        names.iter().all(|name| found.contains_key(*name))
    });
    found
}

/// What both get. Where Postrider's default is a safer one than Envoy's the field is set, so that both mean the same.
fn configure(
    scenes: &[Scene],
    upstreams: &[Upstream],
    down: SocketAddr,
    log: &std::path::Path,
    names: &Names,
) -> Config {
    let logger = |more: &Value| {
        let mut format = seen::log_format();
        config::overlay(&mut format, more.clone());
        // This one alone is no command by itself in Envoy.
        let kind = "formatter.req_without_query.v3.ReqWithoutQuery";
        let formatters = [config::extension("envoy.formatter.req_without_query", kind, json!({}))];
        file_access_log(log, json!({"log_format": {"json_format": format, "formatters": formatters}}))
    };
    let loggers = |scene: &Scene| {
        let further = scene.loggers.iter().map(|(name, condition)| {
            let format =
                json!({"client": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%", "logger": name, "moment": "%ACCESS_LOG_TYPE%"});
            let mut further = file_access_log(log, json!({"log_format": {"json_format": format}}));
            further["filter"] = condition.clone();
            further
        });
        [logger(&scene.log)].into_iter().chain(further).collect::<Vec<Value>>()
    };
    let mut config = Config::new();
    for scene in scenes {
        let mut manager = json!({
            "stat_prefix": scene.name,
            "normalize_path": false,
            "merge_slashes": false,
            "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
            "request_headers_timeout": "0s",
            "common_http_protocol_options": {"headers_with_underscores_action": "ALLOW"},
            "access_log": loggers(scene),
        });
        config::overlay(&mut manager, scene.manager.clone());
        config = config.http_named(&scene.name, manager);
        config = config.overlay_listener(&scene.name, json!({"per_connection_buffer_limit_bytes": 1_048_576}));
        if scene.over == Over::Tls {
            let inspector = postrider_tests::tls::tls_inspector();
            config = config.overlay_listener(&scene.name, json!({"listener_filters": [inspector]}));
            config = config.overlay_chain(&scene.name, json!({"transport_socket": names.listener()}));
        }
    }
    let answer = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]);
    let hosts = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": answer}]});
    config = config
        .http_named(MARK, json!({"stat_prefix": MARK, "access_log": [logger(&json!({}))], "route_config": hosts}));
    let limit = json!({"per_connection_buffer_limit_bytes": 1_048_576});
    for upstream in upstreams {
        config = config.cluster_with(upstream.name, &[upstream.origin.address], limit.clone());
    }
    config = crate::hosts::clusters(config, upstreams);
    let trailers = config::upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}}),
    );
    let mut with_trailers = limit.clone();
    config::overlay(&mut with_trailers, trailers);
    config = config.cluster_with("trailers", &[upstreams[0].origin.address], with_trailers);
    config = config.cluster_with("down", &[down], limit.clone()).cluster_with("empty", &[], limit);
    config = config.cluster_with(
        "closed",
        &[upstreams[0].origin.address],
        json!({"circuit_breakers": {"thresholds": [
            {"max_requests": 0, "max_pending_requests": 0, "max_connections": 0},
        ]}}),
    );
    config
}
