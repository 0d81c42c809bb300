//! Scenario R1 as one table: each task in each runtime, for every proxy that was measured, beside what was published of Envoy
//! 1.26.
//!
//! `of bare` is requests per second over those of the same proxy without a plugin, `+us` the CPU time that a request takes more.

use crate::load::Subject;
use crate::peer::Peer;
use crate::report::markdown;
use crate::results::{Outcome, Results};
use crate::scenario::R1;
use crate::stats::Spread;

/// What was published: the scenario, the variant and the requests per second as a share of those without a plugin. Of the Go
/// filter the newer compiler's figure; the module was built with TinyGo.
const PUBLISHED: [(&str, &str, f64); 7] = [
    (R1[0], "Lua", 0.90),
    (R1[0], "Wasm, Go", 0.88),
    (R1[0], "Go filter", 0.76),
    (R1[1], "Lua", 0.62),
    (R1[1], "Lua, JIT-friendly", 0.82),
    (R1[1], "Wasm, Go", 0.59),
    (R1[1], "Go filter", 0.72),
];

/// `None` when nothing of it was measured.
pub fn table(results: &Results) -> Option<String> {
    let tasks: Vec<(&str, &[Subject])> = R1
        .iter()
        .filter_map(|&name| {
            let measured = results.scenarios.iter().find(|measured| measured.scenario.name == name)?;
            let Outcome::Load(_, subjects) = &measured.outcome else { return None };
            Some((name, subjects.as_slice()))
        })
        .collect();
    let takes_part =
        |peer: &Peer| tasks.iter().any(|(_, subjects)| subjects.iter().any(|subject| subject.peer == *peer));
    let peers: Vec<Peer> = Peer::ALL.into_iter().filter(takes_part).collect();
    if peers.is_empty() {
        return None;
    }
    let mut rows = Vec::new();
    for (scenario, subjects) in tasks {
        let mut seen = Vec::new();
        for subject in subjects {
            let label = subject.variant.label;
            if seen.contains(&label) {
                continue;
            }
            seen.push(label);
            let mut row = vec![scenario.trim_start_matches("r1-").to_owned(), label.to_owned()];
            let published = PUBLISHED.iter().find(|(of, variant, _)| *of == scenario && *variant == label);
            row.push(published.map_or_else(dash, |(.., share)| percent(*share)));
            for &peer in &peers {
                let find = |label: &str| subjects.iter().find(|it| it.peer == peer && it.variant.label == label);
                row.extend(cells(find(seen[0]), find(label)));
            }
            rows.push(row);
        }
    }
    let mut heads = ["task", "plugin", "published"].map(String::from).to_vec();
    for peer in peers {
        heads.extend([format!("{} req/s", peer.name()), "of bare".to_owned(), "+us".to_owned()]);
    }
    Some(markdown::table(&heads.iter().map(String::as_str).collect::<Vec<_>>(), rows))
}

fn cells(bare: Option<&Subject>, subject: Option<&Subject>) -> [String; 3] {
    let throughput =
        |subject: &Subject| subject.spread(|sample| sample.requests_per_second).map(|spread| spread.median);
    let requests = subject.and_then(throughput);
    let share = requests.zip(bare.and_then(throughput)).map(|(own, bare)| own / bare);
    let added: Option<Spread> = subject.zip(bare).and_then(|(subject, bare)| subject.excess_over(bare));
    [
        requests.map_or_else(dash, |requests| format!("{requests:.0}")),
        share.map_or_else(dash, percent),
        added.map_or_else(dash, |added| format!("{:+.2}", added.median)),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Sample;
    use crate::results::Measured;
    use crate::scenario::{Kind, select};

    #[test]
    fn each_proxy_is_compared_with_itself_without_a_plugin() {
        let scenario = select(&[R1[0].to_owned()]).unwrap()[0];
        let Kind::Load(plan) = scenario.kind else { panic!("a load") };
        let subject = |peer, index: usize, cpu_us, requests_per_second| Subject {
            peer,
            variant: plan.variants[index],
            samples: vec![Sample {
                round: 0,
                cpu_us,
                user_us: 0.0,
                requests_per_second,
                p50_ms: 1.0,
                p99_ms: 1.0,
                rss_kib: 1,
                pss_kib: 1,
                foreign: 0.0,
            }],
            failure: None,
        };
        let subjects = vec![
            subject(Peer::Postrider, 0, 10.0, 1000.0),
            subject(Peer::Envoy, 0, 40.0, 300.0),
            subject(Peer::Postrider, 1, 10.5, 900.0),
            subject(Peer::Envoy, 1, 50.0, 150.0),
        ];
        let results = Results {
            circumstances: Vec::new(),
            scenarios: vec![Measured { scenario, outcome: Outcome::Load(plan, subjects) }],
        };
        let text = table(&results).unwrap();
        let last: Vec<&str> = text.lines().last().unwrap().split('|').map(str::trim).collect();
        assert_eq!(
            last[1..10],
            ["passthrough", "Lua", "90 %", "900", "90 %", "+0.50", "150", "50 %", "+10.00"],
            "{text}"
        );
        assert!(table(&Results { circumstances: Vec::new(), scenarios: Vec::new() }).is_none());
    }
}
