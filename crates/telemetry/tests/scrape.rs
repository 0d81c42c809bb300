//! What a scrape of a million series costs whoever asks for it. Workers take no part in it.

use postrider_telemetry::render::{self, CHUNK_BYTES, PrometheusForm, Query, TagRule, TagValue, Tagger};
use postrider_telemetry::stats::sets::{cluster, count_upstream_response};
use postrider_telemetry::{KnownScope, Registry};
use std::time::Duration;

/// So many clusters that each had a request, and their statistics.
fn registry(clusters: usize) -> (Registry, Vec<KnownScope>) {
    let registry = Registry::new();
    let worker = registry.worker(0);
    let known =
        (0..clusters).map(|at| KnownScope::new(&cluster::SET, format!("service-{at}-of-many"))).collect::<Vec<_>>();
    for scope in &known {
        let block = worker.block(&cluster::SET, &scope.prefix);
        block.inc(cluster::UPSTREAM_CX_TOTAL);
        block.record(cluster::UPSTREAM_CX_LENGTH_MS, 1_234);
        count_upstream_response(&block, 200, false);
    }
    (registry, known)
}

fn own_tag() -> Tagger {
    let fleet = TagRule { name: "fleet".into(), value: TagValue::Fixed("blue".into()), rooted: false };
    Tagger { rules: vec![fleet], ..Tagger::default() }
}

#[test]
fn a_chunk_does_not_grow_with_the_number_of_scopes() {
    let (registry, known) = registry(300);
    for tagger in [Tagger::default(), own_tag()] {
        let chunks: Vec<_> =
            render::prometheus(registry.read(&known), Query::default(), tagger, PrometheusForm::Text).collect();
        assert!(chunks.len() > 100, "{}", chunks.len());
        // One series more than fits: a histogram has some twenty lines.
        let longest = chunks.iter().map(Vec::len).max().unwrap();
        assert!(longest < CHUNK_BYTES + 8 * 1024, "{longest}");
    }
}

/// `cargo test -p postrider-telemetry --test scrape -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_million_series() {
    for (what, tagger) in [("default tags", Tagger::default()), ("a tag of one's own", own_tag())] {
        let (registry, known) = registry(8_500);
        let before = resident();
        let start = processor_time();
        let values = registry.read(&known);
        let read = processor_time() - start;
        let (mut series, mut bytes, mut peak) = (0, 0, 0);
        for chunk in render::prometheus(values, Query::default(), tagger, PrometheusForm::Text) {
            series += chunk.iter().filter(|byte| **byte == b'\n').count();
            bytes += chunk.len();
            peak = peak.max(resident().saturating_sub(before));
        }
        println!(
            "{what}: {series} lines, {} MB, read in {read:?}, all in {:?} of a processor, at most {} MB more memory",
            bytes >> 20,
            processor_time() - start,
            peak >> 20
        );
    }
}

/// Bytes in physical memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// What this process had of processors, which other programs do not change: in hundredths of a second, as Linux tells it.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    let ticks: u64 = fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
