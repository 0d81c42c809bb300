//! The report for machines: every sample, so that other statistics can be drawn from it later.

use serde_json::{Map, Value, json};

use crate::load::FOREIGN_LIMIT;
use crate::pacer::Latency;
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use crate::targets::judge;

pub fn render(results: &Results) -> Value {
    let circumstances: Map<String, Value> =
        results.circumstances.iter().map(|(label, value)| (label.clone(), json!(value))).collect();
    let targets: Vec<Value> = judge(results)
        .iter()
        .map(|verdict| {
            json!({
                "target": verdict.target, "verdict": verdict.word(), "limit": verdict.limit, "unit": verdict.unit,
                "measured": verdict.measured, "disturbed": verdict.disturbed,
            })
        })
        .collect();
    let scenarios: Vec<Value> = results
        .scenarios
        .iter()
        .map(|measured| {
            json!({
                "name": measured.scenario.name,
                "title": measured.scenario.title,
                "subjects": subjects(&measured.outcome),
            })
        })
        .collect();
    json!({ "circumstances": circumstances, "targets": targets, "scenarios": scenarios })
}

fn subjects(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Load(_, subjects) => subjects
            .iter()
            .map(|subject| {
                let ratios: Map<String, Value> = subjects
                    .iter()
                    .filter(|other| !std::ptr::eq(*other, subject))
                    .filter(|other| other.variant.label == subject.variant.label)
                    .map(|other| (other.peer.name().to_owned(), spread(subject.ratio_to(other))))
                    .collect();
                let samples: Vec<Value> = subject
                    .samples
                    .iter()
                    .map(|sample| {
                        json!({
                            "round": sample.round, "cpu_us": sample.cpu_us, "user_us": sample.user_us,
                            "requests_per_second": sample.requests_per_second, "p50_ms": sample.p50_ms,
                            "p99_ms": sample.p99_ms, "rss_kib": sample.rss_kib, "pss_kib": sample.pss_kib,
                            "foreign": sample.foreign, "disturbed": sample.foreign > FOREIGN_LIMIT,
                        })
                    })
                    .collect();
                json!({
                    "proxy": subject.peer.name(), "variant": subject.variant.label,
                    "cpu_us": spread(subject.spread(|sample| sample.cpu_us)),
                    "user_us": spread(subject.spread(|sample| sample.user_us)),
                    "requests_per_second": spread(subject.spread(|sample| sample.requests_per_second)),
                    "cpu_ratio_to": ratios, "dropped": subject.dropped(), "samples": samples,
                    "failure": subject.failure,
                })
            })
            .collect(),
        Outcome::Idle(subjects) => subjects
            .iter()
            .map(|subject| {
                let samples: Vec<Value> = subject
                    .samples
                    .iter()
                    .map(|sample| {
                        json!({
                            "base_rss_kib": sample.base_rss_kib, "base_pss_kib": sample.base_pss_kib,
                            "full_rss_kib": sample.full_rss_kib, "full_pss_kib": sample.full_pss_kib,
                            "ready_ms_without": sample.ready_ms.map(|(base, _)| base),
                            "ready_ms_with": sample.ready_ms.map(|(_, full)| full),
                        })
                    })
                    .collect();
                json!({
                    "proxy": subject.peer.name(), "units": subject.units,
                    "rss_kib_each": spread(subject.rss_per_unit()), "pss_kib_each": spread(subject.pss_per_unit()),
                    "samples": samples, "failure": subject.failure,
                })
            })
            .collect(),
        Outcome::Stall(subjects) => subjects
            .iter()
            .map(|subject| {
                let latency = |latency: Latency| {
                    json!({ "p50_ms": latency.p50_ms, "p99_ms": latency.p99_ms, "max_ms": latency.max_ms })
                };
                let samples: Vec<Value> = subject
                    .samples
                    .iter()
                    .map(|sample| {
                        json!({
                            "quiet": latency(sample.quiet), "with_bursts": latency(sample.bursts),
                            "handshakes_per_second": sample.handshakes_per_second,
                            "foreign": sample.foreign, "disturbed": sample.foreign > FOREIGN_LIMIT,
                        })
                    })
                    .collect();
                json!({
                    "proxy": subject.peer.name(), "variant": subject.variant.label,
                    "added_p50_ms": spread(subject.added(|latency| latency.p50_ms)),
                    "added_p99_ms": spread(subject.added(|latency| latency.p99_ms)),
                    "added_max_ms": spread(subject.added(|latency| latency.max_ms)),
                    "samples": samples, "failure": subject.failure,
                })
            })
            .collect(),
        Outcome::Instructions(counts) => counts
            .iter()
            .map(|(peer, count)| json!({ "proxy": peer.name(), "instructions_per_request": count }))
            .collect(),
        Outcome::Statistics(counts) => counts
            .iter()
            .map(|(peer, [statistics, all])| {
                json!({ "proxy": peer.name(), "statistics_per_request": statistics, "instructions_per_request": all })
            })
            .collect(),
        Outcome::Syscalls(counts) => counts
            .iter()
            .map(|(peer, count, each)| {
                let each: Map<String, Value> = each.iter().map(|(name, calls)| (name.clone(), json!(calls))).collect();
                json!({ "proxy": peer.name(), "syscalls_per_request": count, "each": each })
            })
            .collect(),
        Outcome::Failed(reason) => json!({ "failure": reason }),
    }
}

fn spread(spread: Option<Spread>) -> Value {
    spread.map_or(
        Value::Null,
        |spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max, "count": spread.count }),
    )
}
