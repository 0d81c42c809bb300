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

/// What a scrape came to.
struct Scrape {
    series: usize,
    bytes: usize,
    longest_chunk: usize,
    /// What the values themselves took, before anything was written.
    read: usize,
    /// The most that was needed above that.
    written: usize,
    processor: Duration,
}

fn scrape(clusters: usize, tagger: Tagger) -> Scrape {
    let (registry, known) = registry(clusters);
    let (before, start) = (resident(), processor_time());
    let values = registry.read(&known);
    let after = resident();
    let mut seen = Scrape {
        series: 0,
        bytes: 0,
        longest_chunk: 0,
        read: after.saturating_sub(before),
        written: 0,
        processor: Duration::ZERO,
    };
    for chunk in render::prometheus(values, Query::default(), tagger, PrometheusForm::Text) {
        seen.series += chunk.iter().filter(|byte| **byte == b'\n').count();
        seen.bytes += chunk.len();
        seen.longest_chunk = seen.longest_chunk.max(chunk.len());
        seen.written = seen.written.max(resident().saturating_sub(after));
    }
    seen.processor = processor_time() - start;
    seen
}

impl Scrape {
    /// Text is made as it is sent: what is kept is what stands for the series, and not what they are called.
    fn is_bounded(&self) {
        let Scrape { series, bytes, longest_chunk, read, written, .. } = self;
        assert!(*longest_chunk < CHUNK_BYTES + 8 * 1024, "{longest_chunk}");
        assert!(read / series <= READ_PER_SERIES, "{read} bytes of values for {series} series");
        let most = SPARE + series * WRITTEN_PER_SERIES;
        assert!(*written <= most, "{written} bytes more while {bytes} bytes were written, and not {most}");
    }
}

/// Bytes that a scrape may take for each of its series: as it begins, and while it goes on.
const READ_PER_SERIES: usize = 64;
const WRITTEN_PER_SERIES: usize = 16;
/// What an allocator may take besides.
const SPARE: usize = 4 << 20;

/// At a million series, one scrape after the other: they watch the memory of the process.
#[test]
fn a_scrape_is_streamed_in_bounded_memory() {
    for (what, tagger) in [("default tags", Tagger::default()), ("a tag of one's own", own_tag())] {
        let seen = scrape(8_500, tagger);
        println!(
            "{what}: {} lines, {} MB, {:?} of a processor, {} MB for values and {} MB more",
            seen.series,
            seen.bytes >> 20,
            seen.processor,
            seen.read >> 20,
            seen.written >> 20
        );
        assert!(seen.series > 1_000_000, "{}", seen.series);
        seen.is_bounded();
    }
}

/// Nothing that a worker does waits for somebody who reads statistics, however slowly he does.
#[test]
fn a_worker_goes_on_in_the_middle_of_a_scrape() {
    let (registry, known) = registry(200);
    let mut chunks =
        render::prometheus(registry.read(&known), Query::default(), Tagger::default(), PrometheusForm::Text);
    assert!(chunks.next().is_some());
    let (done, wait) = std::sync::mpsc::sync_channel(1);
    let of_worker = registry.clone();
    std::thread::spawn(move || {
        let worker = of_worker.worker(1);
        for at in 0..100 {
            // A scope that is known, and one that is not.
            for prefix in [format!("service-{at}-of-many"), format!("new-{at}")] {
                let block = worker.block(&cluster::SET, &prefix);
                block.inc(cluster::UPSTREAM_CX_TOTAL);
                count_upstream_response(&block, 503, false);
            }
        }
        done.send(()).unwrap();
    });
    // With a lock held over the scrape this would never come.
    wait.recv_timeout(Duration::from_secs(60)).expect("the worker waits for the scrape");
    assert!(chunks.count() > 50, "and the scrape goes on");
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
