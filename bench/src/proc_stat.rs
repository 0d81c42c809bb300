//! Readings of /proc: CPU time and memory of a process and all its descendants, and what else ran on a CPU.
//!
//! Every figure of the report that is not from the load generator comes from here.

use std::collections::HashMap;
use std::fs;
use std::ops::Sub;

use crate::pin::Cpus;

/// CPU time in clock ticks (100 per second on Linux as built by all distributions).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    pub user: u64,
    pub system: u64,
}

impl CpuTime {
    pub fn total(self) -> u64 {
        self.user + self.system
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user.saturating_sub(earlier.user), system: self.system.saturating_sub(earlier.system) }
    }
}

/// Memory in KiB: resident (shared pages counted in full) and proportional (shared pages divided by their users).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    pub rss_kib: u64,
    pub pss_kib: u64,
}

/// Microseconds in one clock tick.
pub fn tick_micros() -> f64 {
    1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// `root` and all its descendants, `root` first.
pub fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(stat) = read_stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// CPU time of these processes, with that of children which they have already waited for.
pub fn cpu_time(pids: &[u32]) -> CpuTime {
    let mut sum = CpuTime::default();
    for stat in pids.iter().filter_map(|&pid| read_stat(pid)) {
        sum.user += stat.own.user + stat.waited_for.user;
        sum.system += stat.own.system + stat.waited_for.system;
    }
    sum
}

/// Memory of these processes, summed.
pub fn memory(pids: &[u32]) -> Memory {
    let mut sum = Memory::default();
    for pid in pids {
        if let Some(memory) =
            fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().as_deref().and_then(parse_rollup)
        {
            sum.rss_kib += memory.rss_kib;
            sum.pss_kib += memory.pss_kib;
        }
    }
    sum
}

/// Ticks in which the two CPUs of the bench were not idle, whoever used them (other machines on the same host included).
pub fn busy_ticks(cpus: Cpus) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    [cpus.proxy, cpus.load].iter().filter_map(|&cpu| parse_busy(&text, cpu)).sum()
}

struct Stat {
    parent: u32,
    own: CpuTime,
    waited_for: CpuTime,
}

fn read_stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// proc_pid_stat(5): the name in parentheses may hold blanks and parentheses, so fields count from the last `)`.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: CpuTime { user: number(11)?, system: number(12)? },
        waited_for: CpuTime { user: number(13)?, system: number(14)? },
    })
}

fn parse_rollup(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
    };
    Some(Memory { rss_kib: field("Rss:")?, pss_kib: field("Pss:")? })
}

/// proc_stat(5): user nice system idle iowait irq softirq steal (guest time is part of user).
fn parse_busy(text: &str, cpu: usize) -> Option<u64> {
    let label = format!("cpu{cpu}");
    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(&label))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    Some(ticks.iter().take(8).sum::<u64>() - ticks.get(3)? - ticks.get(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat =
            parse_stat("77 (a) b (c)) S 12 77 77 0 -1 4194304 102 0 0 0 31 42 5 6 20 0 1 0 76918 3133440").unwrap();
        assert_eq!(stat.parent, 12);
        assert_eq!(stat.own, CpuTime { user: 31, system: 42 });
        assert_eq!(stat.waited_for, CpuTime { user: 5, system: 6 });
    }

    #[test]
    fn resident_and_proportional_memory_are_read() {
        let text =
            "5588-7ffd ---p 00000000 00:00 0   [rollup]\nRss:    1540 kB\nPss:     310 kB\nPss_Dirty:    99 kB\n";
        assert_eq!(parse_rollup(text), Some(Memory { rss_kib: 1540, pss_kib: 310 }));
        assert_eq!(parse_rollup("Rss: 1 kB\n"), None);
    }

    #[test]
    fn busy_is_everything_but_idle_and_waiting_for_disks() {
        let text = "cpu  9 9 9 9\ncpu1 100 10 50 9000 800 1 2 3 40 0\ncpu10 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_busy(text, 1), Some(166));
        assert_eq!(parse_busy(text, 2), None);
    }

    #[test]
    fn this_process_is_in_its_own_tree_and_has_memory() {
        let pids = tree(std::process::id());
        assert_eq!(pids[0], std::process::id());
        assert!(memory(&pids[..1]).rss_kib > 0);
    }
}
