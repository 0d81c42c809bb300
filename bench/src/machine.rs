//! What a report must say about its circumstances: date, machine, versions, and whether the machine was quiet.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::pause::pause;
use crate::peer::{Peer, Tools, first_line};
use crate::pin::Cpus;
use crate::proc_stat::{busy_ticks, tick_micros};

/// The circumstances of a run: label and value.
pub fn circumstances(tools: &Tools, cpus: Cpus, peers: &[Peer]) -> Vec<(String, String)> {
    let mut facts = vec![
        ("date".to_owned(), today()),
        ("CPU".to_owned(), cpu_model()),
        ("CPUs".to_owned(), format!("proxy on {}, load and upstream on {}", cpus.proxy, cpus.load)),
        ("kernel".to_owned(), read_trimmed("/proc/sys/kernel/osrelease")),
        ("congestion control".to_owned(), read_trimmed("/proc/sys/net/ipv4/tcp_congestion_control")),
    ];
    if let Some(revision) = revision() {
        facts.push(("revision".to_owned(), revision));
    }
    facts.extend(peers.iter().map(|peer| (peer.name().to_owned(), peer.version(tools))));
    if let Ok(wrk) = tools.wrk() {
        facts.push(("wrk".to_owned(), first_line(wrk, "-v")));
    }
    if let Ok(h2load) = tools.h2load() {
        facts.push(("h2load".to_owned(), first_line(h2load, "--version")));
    }
    facts
}

/// Share of one CPU that other programs use on the two CPUs of the bench, watched for a second.
pub fn foreign_load(cpus: Cpus) -> f64 {
    const WATCH: Duration = Duration::from_secs(1);
    let before = busy_ticks(cpus);
    pause(WATCH);
    busy_ticks(cpus).saturating_sub(before) as f64 * tick_micros() / WATCH.as_micros() as f64
}

fn cpu_model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            Some(text.lines().find_map(|line| line.strip_prefix("model name"))?.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn revision() -> Option<String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=10"])
        .current_dir(repository.is_dir().then_some(repository)?)
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs() / 86_400);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02} (UTC)")
}

/// The Gregorian date of a day counted from 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_819), (2027, 1, 1));
    }
}
