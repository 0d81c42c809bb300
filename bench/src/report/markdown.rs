//! The report as Markdown with aligned columns, so that the same text is readable on a terminal and in a browser.

use std::fmt::Write;

use crate::idle::IdleSubject;
use crate::load::{FOREIGN_LIMIT, Subject};
use crate::pacer::PACE;
use crate::peer::Peer;
use crate::report::r1;
use crate::results::{Measured, Outcome, Results};
use crate::scenario::Variant;
use crate::stall::StallSubject;
use crate::stats::Spread;
use crate::targets::{Verdict, judge};

/// The whole report.
pub fn render(results: &Results) -> String {
    let mut text = String::from("# Results of the bench\n\n");
    text.push_str(
        "CPU is user and system time of all the proxy's processes over completed requests, in microseconds. Figures are \
         medians with the range in brackets; ratios are formed in each round and then the median is taken.\n\n",
    );
    for (label, value) in &results.circumstances {
        let _ = writeln!(text, "- {label}: {value}");
    }
    text.push_str("\n## Targets\n\n");
    text.push_str(&targets(&judge(results)));
    if let Some(plugins) = r1::table(results) {
        let _ = write!(text, "\n## Plugins in every runtime (R1)\n\n{plugins}");
    }
    for measured in &results.scenarios {
        text.push('\n');
        text.push_str(&scenario(measured));
    }
    text
}

/// One scenario with its heading.
pub fn scenario(measured: &Measured) -> String {
    let mut text = format!("## {}: {}\n\n", measured.scenario.name, measured.scenario.title);
    match &measured.outcome {
        Outcome::Load(_, subjects) => text.push_str(&load(subjects)),
        Outcome::Idle(subjects) => text.push_str(&idle(subjects)),
        Outcome::Stall(subjects) => text.push_str(&stall(subjects)),
        Outcome::Instructions(counts) => {
            let rows = counts.iter().map(|(peer, count)| vec![peer.name().to_owned(), format!("{count:.0}")]);
            text.push_str(&table(&["proxy", "instructions/request"], rows.collect()));
        }
        Outcome::Statistics(counts) => {
            let rows = counts.iter().map(|(peer, [statistics, all])| {
                let share = format!("{:.2} %", statistics / all * 100.0);
                vec![peer.name().to_owned(), format!("{statistics:.0}"), format!("{all:.0}"), share]
            });
            text.push_str(&table(&["proxy", "statistics/request", "instructions/request", "share"], rows.collect()));
        }
        Outcome::Syscalls(counts) => {
            let rows = counts.iter().map(|(peer, count, each)| {
                let each: Vec<String> = each.iter().map(|(name, calls)| format!("{name} {calls:.2}")).collect();
                vec![peer.name().to_owned(), format!("{count:.2}"), each.join(", ")]
            });
            text.push_str(&table(&["proxy", "calls/request", "of which"], rows.collect()));
        }
        Outcome::Failed(reason) => {
            let _ = writeln!(text, "Not measured: {reason}");
        }
    }
    text
}

/// The verdicts as a table.
pub fn targets(verdicts: &[Verdict]) -> String {
    let rows = verdicts.iter().map(|verdict| {
        vec![
            verdict.word().to_owned(),
            verdict.target.to_owned(),
            format!("<= {} {}", verdict.limit, verdict.unit).trim_end().to_owned(),
            verdict.measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
                + if verdict.disturbed { " (disturbed)" } else { "" },
        ]
    });
    table(&["verdict", "target", "limit", "measured"], rows.collect())
}

fn load(subjects: &[Subject]) -> String {
    let baseline = |of: &Subject, peer: Peer| {
        let other = subjects.iter().find(|other| other.peer == peer && other.variant.label == of.variant.label)?;
        of.ratio_to(other)
    };
    // A column for every proxy that others can be compared with.
    let compared: Vec<Peer> = Peer::ALL
        .into_iter()
        .filter(|&peer| peer != Peer::Postrider && subjects.iter().any(|subject| subject.peer == peer))
        .collect();
    let rows = subjects.iter().map(|subject| {
        let name = name(subject.peer, subject.variant);
        let cpu = subject.spread(|sample| sample.cpu_us);
        let mut row = vec![
            name,
            cpu.map_or_else(dash, |cpu| format!("{:.2} ({:.2}-{:.2})", cpu.median, cpu.min, cpu.max)),
            median(subject.spread(|sample| sample.user_us), 2),
            median(subject.spread(|sample| sample.requests_per_second), 0),
            median(subject.spread(|sample| sample.p50_ms), 2),
            median(subject.spread(|sample| sample.p99_ms), 2),
            median(subject.spread(|sample| sample.rss_kib as f64 * 1024.0 / 1e6), 1),
            median(subject.spread(|sample| sample.pss_kib as f64 * 1024.0 / 1e6), 1),
        ];
        row.extend(compared.iter().map(|&peer| median(baseline(subject, peer), 2)));
        row.extend([
            median(subject.spread(|sample| sample.foreign * 100.0), 0),
            format!(
                "{}{}",
                subject.counted().count(),
                match (subject.only_disturbed() && !subject.samples.is_empty(), subject.dropped()) {
                    (true, _) => " (all disturbed)".to_owned(),
                    (false, 0) => String::new(),
                    (false, dropped) => format!(" (+{dropped} dropped)"),
                }
            ),
        ]);
        row
    });
    let mut heads =
        ["proxy", "CPU us/req", "user us", "req/s", "p50 ms", "p99 ms", "RSS MB", "PSS MB"].map(String::from).to_vec();
    heads.extend(compared.iter().map(|peer| format!("/{}", peer.name())));
    heads.extend(["foreign %", "samples"].map(String::from));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut text = table(&heads, rows.collect());
    added(&mut text, subjects);
    failures(&mut text, subjects.iter().map(|subject| (subject.peer, &subject.failure)));
    if subjects.iter().any(|subject| subject.dropped() > 0) {
        let _ = writeln!(
            text,
            "\nDropped: other programs used more than {:.0} % of a CPU during the sample.",
            FOREIGN_LIMIT * 100.0
        );
    }
    text
}

/// In a scenario of several shapes, what each costs beyond the first.
fn added(text: &mut String, subjects: &[Subject]) {
    for more in subjects {
        let base = subjects.iter().find(|base| base.peer == more.peer);
        let Some(base) = base.filter(|base| base.variant.label != more.variant.label) else { continue };
        if let (Some(ratio), Some(excess)) = (more.ratio_to(base), more.excess_over(base)) {
            let _ = writeln!(
                text,
                "\n{}: {} costs {:.2} x {}, {:+.2} us.",
                more.peer.name(),
                more.variant.label,
                ratio.median,
                base.variant.label,
                excess.median
            );
        }
    }
}

fn idle(subjects: &[IdleSubject]) -> String {
    let timed = subjects.iter().flat_map(|subject| &subject.samples).any(|sample| sample.ready_ms.is_some());
    let rows = subjects.iter().map(|subject| {
        let mut row = vec![
            subject.peer.name().to_owned(),
            subject.units.to_string(),
            median(subject.spread(|sample| sample.base_rss_kib as f64 * 1024.0 / 1e6), 1),
            median(subject.spread(|sample| sample.full_rss_kib as f64 * 1024.0 / 1e6), 1),
            median(subject.rss_per_unit(), 2),
            median(subject.pss_per_unit(), 2),
        ];
        if timed {
            row.push(median(subject.spread(|sample| sample.ready_ms.map_or(f64::NAN, |(base, _)| base)), 0));
            row.push(median(subject.spread(|sample| sample.ready_ms.map_or(f64::NAN, |(_, full)| full)), 0));
        }
        row
    });
    let mut heads = vec!["proxy", "count", "RSS MB without", "RSS MB with", "RSS KiB each", "PSS KiB each"];
    if timed {
        heads.extend(["ready ms without", "ready ms with"]);
    }
    let mut text = table(&heads, rows.collect());
    failures(&mut text, subjects.iter().map(|subject| (subject.peer, &subject.failure)));
    text
}

fn stall(subjects: &[StallSubject]) -> String {
    let rows = subjects.iter().map(|subject| {
        vec![
            name(subject.peer, subject.variant),
            median(subject.spread(|sample| sample.quiet.p50_ms), 3),
            median(subject.spread(|sample| sample.quiet.p99_ms), 3),
            median(subject.spread(|sample| sample.quiet.max_ms), 3),
            median(subject.added(|latency| latency.p50_ms), 3),
            median(subject.added(|latency| latency.p99_ms), 3),
            median(subject.added(|latency| latency.max_ms), 3),
            median(subject.spread(|sample| sample.handshakes_per_second), 0),
            median(subject.spread(|sample| sample.foreign * 100.0), 0),
            format!(
                "{}{}",
                subject.samples.len(),
                if subject.only_disturbed() && !subject.samples.is_empty() { " (all disturbed)" } else { "" }
            ),
        ]
    });
    let mut text = table(
        &[
            "proxy, key",
            "p50 ms",
            "p99 ms",
            "max ms",
            "p50 +ms",
            "p99 +ms",
            "max +ms",
            "handshakes/s",
            "foreign %",
            "samples",
        ],
        rows.collect(),
    );
    let _ = writeln!(
        text,
        "\nThe first three are without handshakes, `+` is what the bursts add. A request is due every {} ms, and counts \
         from when it was due if the one before it was still unanswered.",
        PACE.as_millis()
    );
    failures(&mut text, subjects.iter().map(|subject| (subject.peer, &subject.failure)));
    text
}

fn name(peer: Peer, variant: Variant) -> String {
    match variant.label {
        "" => peer.name().to_owned(),
        label => format!("{}, {label}", peer.name()),
    }
}

fn failures<'a>(text: &mut String, all: impl Iterator<Item = (Peer, &'a Option<String>)>) {
    for (peer, failure) in all {
        if let Some(failure) = failure {
            let _ = writeln!(text, "\n{} failed: {}", peer.name(), failure.lines().next().unwrap_or_default());
        }
    }
}

fn median(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or_else(dash, |spread| format!("{:.decimals$}", spread.median))
}

fn dash() -> String {
    "-".to_owned()
}

/// A Markdown table; the first column to the left, the others too, all padded to their widest cell.
pub fn table(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let mut text = line(heads.to_vec());
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width + 2)).collect();
    let _ = writeln!(text, "|{}|", rules.join("|"));
    for row in &rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_are_as_wide_as_their_widest_cell() {
        let text = table(&["proxy", "n"], vec![vec!["a".into(), "12345".into()]]);
        assert_eq!(text, "| proxy | n     |\n|-------|-------|\n| a     | 12345 |\n");
    }
}
