//! Names, values and formats against what a real Envoy 1.40 printed for two listeners, two clusters and six requests
//! (`envoy-1.40/`): the same counts must come out as the same lines.

use postrider_telemetry::render::{self, PrometheusForm, Query, TagRule, TagValue, Tagger};
use postrider_telemetry::stats::sets::*;
use postrider_telemetry::stats::{KnownScope, Registry, ScopeValues, StatSet};
use std::collections::{BTreeMap, BTreeSet};

const STATS: &str = include_str!("envoy-1.40/stats.txt");
const PROMETHEUS: &str = include_str!("envoy-1.40/prometheus.txt");

/// The scopes of the recorded process that we have too.
const SCOPES: [(&StatSet, &str); 29] = [
    (&cluster::SET, "adm"),
    (&cluster::SET, "dead"),
    (&cluster_http1::SET, "adm"),
    (&cluster_manager::SET, ""),
    (&cluster_subsets::SET, "adm"),
    (&cluster_subsets::SET, "dead"),
    (&cluster_zones::SET, "adm"),
    (&cluster_zones::SET, "dead"),
    (&clusters_of_thread::SET, "main_thread"),
    (&clusters_of_thread::SET, "worker_0"),
    (&clusters_of_thread::SET, "worker_1"),
    (&filesystem::SET, ""),
    (&http::SET, "ingress"),
    (&http_tracing::SET, "ingress.tracing"),
    (&http1::SET, ""),
    (&listener::SET, "127.0.0.1_18731"),
    (&listener::SET, "127.0.0.1_18732"),
    (&listener_discovery::SET, "127.0.0.1_18731"),
    (&listener_discovery::SET, "127.0.0.1_18732"),
    (&listener_http::SET, "127.0.0.1_18731.http.ingress"),
    (&listener_manager::SET, ""),
    (&listener_worker::SET, "127.0.0.1_18731.worker_0"),
    (&listener_worker::SET, "127.0.0.1_18731.worker_1"),
    (&listener_worker::SET, "127.0.0.1_18732.worker_0"),
    (&server::SET, ""),
    (&tcp::SET, "raw_tcp"),
    (&watchdog::SET, "server.main_thread"),
    (&watchdog::SET, "server.worker_0"),
    (&watchdog::SET, "server.worker_1"),
];

/// The one that Envoy counts and we have no use for.
const LOOKUPS: &str = "server.stats_recent_lookups";

#[test]
fn every_name_is_envoys() {
    let envoys: BTreeSet<&str> = recorded().into_keys().collect();
    let known: Vec<KnownScope> = SCOPES.iter().map(|(set, prefix)| KnownScope::new(set, *prefix)).collect();
    let ours = joined(render::text(Registry::new().read(&known), Query::default()));
    let ours: BTreeSet<&str> = ours.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let invented: Vec<_> = ours.difference(&envoys).collect();
    assert!(invented.is_empty(), "not in Envoy: {invented:#?}");
    let by_code = |name: &str| name.rsplit_once("upstream_rq_").is_some_and(|(_, code)| is_code(code));
    let lacking = envoys.difference(&ours).filter(|name| !by_code(name));
    let lazy = |name: &str| ["external.upstream_rq_completed", "upstream_rq_time"].iter().any(|n| name.ends_with(n));
    let lacking: Vec<_> = lacking.filter(|name| !lazy(name) && !name.contains("18732.worker_1")).collect();
    assert!(lacking.is_empty(), "in Envoy only: {lacking:#?}");
}

#[test]
fn text_prints_the_same_lines_in_the_same_order() {
    let (values, names) = values();
    let ours = joined(render::text(values, Query::default()));
    let cells = ours.lines().filter(|line| !line.contains(": No recorded") && !line.starts_with(LOOKUPS));
    let envoys = STATS.lines().filter(|line| line.split_once(": ").is_some_and(|(name, _)| names.contains(name)));
    let mut envoys: Vec<_> = envoys.collect();
    // The recording holds its sections one after the other.
    envoys.sort_by_key(|line| line.split_once(": ").map(|(name, _)| name));
    assert!(envoys.len() > 280, "{}", envoys.len());
    assert_eq!(cells.collect::<Vec<_>>(), envoys);
}

#[test]
fn prometheus_prints_the_same_series_in_the_same_order() {
    let (values, _) = values();
    let ours = joined(render::prometheus(values, Query::default(), Tagger::default(), PrometheusForm::Text));
    let process = ["envoy_server", "envoy_filesystem", "envoy_thread_local_cluster_manager"];
    let process = |line: &&str| process.iter().any(|start| line.starts_with(start));
    let ours = ours.lines().filter(|line| !line.starts_with('#') && !process(line));
    let histogram = |line: &&str| line.contains("_ms_") || line.contains("rq_time_") || line.contains("rq_per_cx");
    let ours = ours.filter(|line| !histogram(line) && !line.contains("_per_socket_event"));
    let ours: Vec<&str> = ours.filter(|line| !line.starts_with("envoy_http1")).collect();
    let set: BTreeSet<&str> = ours.iter().copied().collect();
    let envoys: Vec<&str> = PROMETHEUS.lines().filter(|line| set.contains(line)).collect();
    assert!(ours.len() > 250, "{}", ours.len());
    let invented: Vec<_> = set.iter().filter(|line| !envoys.contains(line)).collect();
    assert!(invented.is_empty(), "not what Envoy prints: {invented:#?}");
    let first = ours.iter().zip(&envoys).find(|(ours, envoys)| ours != envoys);
    assert_eq!((first, ours.len()), (None, envoys.len()));
}

#[test]
fn histograms_print_as_envoys() {
    let registry = Registry::new();
    let worker = registry.worker(0);
    let block = worker.block(&cluster::SET, "adm");
    [1, 1, 4].iter().for_each(|ms| block.record(cluster::UPSTREAM_CX_LENGTH_MS, *ms));
    [1, 2].iter().for_each(|n| block.record(cluster::UPSTREAM_RQ_PER_CX, *n));
    let query = || Query { filter: Some(Box::new(|name| name.ends_with("upstream_cx_length_ms"))), ..Query::default() };
    let ours = joined(render::prometheus(registry.read(&[]), query(), Tagger::default(), PrometheusForm::Text));
    let envoys = |line: &&str| line.starts_with("envoy_cluster_upstream_cx_length_ms") && line.contains("\"adm\"");
    let without_sum = |line: &&str| !line.contains("_sum{");
    let envoys: Vec<_> = PROMETHEUS.lines().filter(envoys).filter(without_sum).collect();
    assert_eq!(ours.lines().skip(1).filter(without_sum).collect::<Vec<_>>(), envoys);
    assert!(ours.starts_with("# TYPE envoy_cluster_upstream_cx_length_ms histogram\n"), "{ours}");
    assert!(ours.contains("_sum{envoy_cluster_name=\"adm\"} 6\n"), "the exact sum, where Envoy estimates: {ours}");

    let ours = joined(render::text(registry.read(&[]), query()));
    let envoys = STATS.lines().find(|line| line.starts_with("cluster.adm.upstream_cx_length_ms")).unwrap();
    // Envoy keeps the last interval as well, and prints it first.
    let without_interval = |part: &str| match (part.split_once('('), part.split_once(',')) {
        (Some((quantile, _)), Some((_, whole))) => format!("{quantile}(nan,{whole}"),
        _ => part.to_string(),
    };
    assert_eq!(ours.trim_end(), envoys.split(' ').map(without_interval).collect::<Vec<_>>().join(" "));
}

#[test]
fn json_is_envoys_shape() {
    let registry = Registry::new();
    let worker = registry.worker(0);
    worker.block(&tcp::SET, "a\"b").inc(tcp::DOWNSTREAM_CX_TOTAL);
    let tcp_only = || Query { used_only: true, ..Query::default() };
    assert_eq!(
        joined(render::json(registry.read(&[]), tcp_only())),
        r#"{"stats":[{"name":"tcp.a\"b.downstream_cx_total","value":1}]}"#
    );
    let nothing = Query { filter: Some(Box::new(|_| false)), ..Query::default() };
    assert_eq!(joined(render::json(registry.read(&[]), nothing)), r#"{"stats":[]}"#);
    assert_eq!(joined(render::json(Vec::new(), Query::default())), r#"{"stats":[]}"#);
    let block = worker.block(&http::SET, "x");
    block.record(http::DOWNSTREAM_RQ_TIME, 0);
    let query = Query {
        filter: Some(Box::new(|name| name.starts_with("http") && name.ends_with("rq_time"))),
        ..Query::default()
    };
    let json = joined(render::json(registry.read(&[]), query));
    let start = r#"{"stats":[{"histograms":{"supported_quantiles":[0,25,50,75,90,95,99,99.5,99.9,100],"computed_quantiles":[{"name":"http.x.downstream_rq_time","values":[{"cumulative":0,"interval":null},"#;
    assert!(json.starts_with(start) && json.ends_with("]}]}}]}"), "{json}");
}

#[test]
fn thousands_of_clusters_stream_in_small_chunks() {
    let known: Vec<_> = (0..2_000).map(|n| KnownScope::new(&cluster::SET, format!("c{n}"))).collect();
    let registry = Registry::new();
    let chunks: Vec<_> = render::text(registry.read(&known), Query::default()).collect();
    assert!(chunks.len() > 100 && chunks.iter().all(|chunk| chunk.len() < 2 * render::CHUNK_BYTES));
    let lines = joined(chunks.into_iter());
    let mut names: Vec<_> = lines.lines().filter(|line| !line.contains("No recorded")).collect();
    let printed = names.clone();
    names.sort();
    assert_eq!(printed, names, "sorted across chunks");
}

/// The recorded counts, in our sets.
fn values() -> (Vec<ScopeValues>, BTreeSet<String>) {
    let recorded = recorded();
    let known: Vec<KnownScope> = SCOPES.iter().map(|(set, prefix)| KnownScope::new(set, *prefix)).collect();
    let mut scopes = Registry::new().read(&known);
    let mut names = BTreeSet::new();
    for scope in &mut scopes {
        let scope_name = scope.set.scope_name(&scope.prefix);
        scope.cells = vec![0; scope.set.cells.len()];
        for (cell, stat) in scope.cells.iter_mut().zip(scope.set.cells) {
            let name = format!("{scope_name}{}", stat.name);
            if let Some(value) = recorded.get(name.as_str()).and_then(|value| value.parse().ok()) {
                *cell = value;
                names.insert(name);
            }
        }
        for stat in scope.set.shown().skip(scope.set.cells.len()) {
            let name = format!("{scope_name}{}", stat.name);
            assert!(name == LOOKUPS || recorded.get(name.as_str()) == Some(&"0"), "{name} is not always zero");
            names.extend((name != LOOKUPS).then_some(name));
        }
        for (family, stem) in scope.set.codes.iter().enumerate() {
            for code in 100..600 {
                let name = format!("{scope_name}{stem}{code}");
                if let Some(value) = recorded.get(name.as_str()) {
                    scope.codes.push((family as u16, code, value.parse().unwrap()));
                    names.insert(name);
                }
            }
        }
    }
    (scopes, names)
}

fn recorded() -> BTreeMap<&'static str, &'static str> {
    STATS.lines().filter_map(|line| line.split_once(": ")).collect()
}

fn is_code(text: &str) -> bool {
    text.len() == 3 && text.starts_with(|c: char| c.is_ascii_digit())
}

fn joined(chunks: impl Iterator<Item = Vec<u8>>) -> String {
    String::from_utf8(chunks.flatten().collect()).unwrap()
}

/// With tags of one's own each series is named by itself, by the same rules.
#[test]
fn a_tag_that_is_never_found_changes_nothing() {
    let registry = Registry::new();
    let worker = registry.worker(0);
    for name in ["a", "b.c"] {
        let block = worker.block(&cluster::SET, name);
        block.record(cluster::UPSTREAM_CX_LENGTH_MS, 12);
        count_upstream_response(&block, 404, true);
    }
    let known = [
        KnownScope::new(&listener_worker::SET, "127.0.0.1_80.worker_0"),
        KnownScope::new(&listener_http::SET, "127.0.0.1_80.http.x"),
        KnownScope::new(&http::SET, "x"),
        KnownScope::new(&server::SET, ""),
    ];
    let nothing = TagRule { name: "none".into(), value: TagValue::Found(Box::new(|_| None)), rooted: false };
    let tagger = Tagger { rules: vec![nothing], ..Tagger::default() };
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let plain =
        joined(render::prometheus(registry.read(&known), Query::default(), Tagger::default(), PrometheusForm::Text));
    let own = joined(render::prometheus(registry.read(&known), Query::default(), tagger, PrometheusForm::Text));
    assert_eq!(sorted(own), sorted(plain));
}
