//! What is measured, each as a share of what there is.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use postrider_model::Resource;

use crate::control_group::{ControlGroup, Memory};

/// How much of the last measurement counts in the processor's mean: Envoy's weight.
const PROCESSOR_WEIGHT: f64 = 0.05;

/// Where a process has less of the control group's memory than this, others fill it, and it is not for us to make room.
const OWN_SHARE: f64 = 0.5;

pub(crate) enum Monitor {
    Heap(u64),
    ControlGroup(Option<u64>),
    Host(Mean<Times>),
    Processor(Mean<(Instant, u64)>),
    File(PathBuf),
    OwnMemory,
    Descriptors,
}

/// A mean over time of what happens between two readings.
#[derive(Default)]
pub(crate) struct Mean<T> {
    last: Option<T>,
    mean: f64,
}

/// Processor time at work, and in all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Times {
    work: u64,
    all: u64,
}

impl Monitor {
    pub(crate) fn new(resource: &Resource) -> Monitor {
        match resource {
            Resource::Heap { most } => Monitor::Heap(*most),
            Resource::ControlGroup { most } => Monitor::ControlGroup(*most),
            Resource::Processor { of_control_group: false } => Monitor::Host(Mean { last: None, mean: 0.0 }),
            Resource::Processor { of_control_group: true } => Monitor::Processor(Mean { last: None, mean: 0.0 }),
            Resource::File(path) => Monitor::File(path.clone()),
            Resource::OwnMemory => Monitor::OwnMemory,
            Resource::Descriptors => Monitor::Descriptors,
        }
    }

    /// The pressure now.
    ///
    /// # Errors
    /// The system does not tell, or what it tells makes no sense.
    pub(crate) fn measure(&mut self) -> io::Result<f64> {
        match self {
            Monitor::Heap(most) => Ok(share(own_memory()?.1, *most)),
            Monitor::ControlGroup(most) => {
                let Memory { used, limit, .. } = ControlGroup::default().memory()?;
                let most = match (limit, *most) {
                    (Some(limit), Some(most)) => Some(limit.min(most)),
                    (limit, most) => limit.or(most),
                };
                Ok(most.map_or(0.0, |most| share(used, most)))
            }
            Monitor::Host(mean) => {
                let now = processor_times(&std::fs::read_to_string("/proc/stat")?)
                    .ok_or_else(|| io::Error::other("/proc/stat does not tell of processor time"))?;
                let passed = mean.last.replace(now);
                let passed = passed.map(|last| (now.work.saturating_sub(last.work), now.all.saturating_sub(last.all)));
                Ok(mean.add(passed.filter(|(_, all)| *all > 0).map(|(work, all)| share(work, all))))
            }
            Monitor::Processor(mean) => {
                let (used, processors) = ControlGroup::default().processor()?;
                let now = Instant::now();
                let passed = mean.last.replace((now, used));
                let load = passed.map(|(then, before)| {
                    let micros = now.saturating_duration_since(then).as_micros().max(1) as f64;
                    used.saturating_sub(before) as f64 / (micros * processors.max(f64::MIN_POSITIVE))
                });
                Ok(mean.add(load.map(|load| load.clamp(0.0, 1.0))))
            }
            Monitor::File(path) => in_file(path),
            Monitor::OwnMemory => match ControlGroup::default().memory() {
                Ok(memory) => Ok(memory_that_we_fill(&memory, own_memory()?.0)),
                // Where there is no control group, there is no limit to come near.
                Err(_) => Ok(0.0),
            },
            Monitor::Descriptors => {
                let (most, open) = postrider_sys::open_files().ok_or_else(io::Error::last_os_error)?;
                Ok(share(open, most))
            }
        }
    }
}

impl<T> Mean<T> {
    /// The mean with one more value; the first reading has none.
    fn add(&mut self, value: Option<f64>) -> f64 {
        if let Some(value) = value {
            self.mean = value * PROCESSOR_WEIGHT + self.mean * (1.0 - PROCESSOR_WEIGHT);
        }
        self.mean
    }
}

fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

/// What cannot be dropped, of the limit; nothing where it is not this process that has most of it.
fn memory_that_we_fill(memory: &Memory, own: u64) -> f64 {
    let Some(limit) = memory.limit else { return 0.0 };
    if share(own, limit) < OWN_SHARE {
        return 0.0;
    }
    share(memory.used.saturating_sub(memory.droppable), limit)
}

/// Memory of this process, and what of it belongs to no file: its heap and stacks.
fn own_memory() -> io::Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let (resident, of_none) =
        pages(&text).ok_or_else(|| io::Error::other("/proc/self/statm does not tell of memory"))?;
    let page = postrider_sys::page_size();
    Ok((resident * page, of_none * page))
}

/// All that are in memory, and those of no file.
fn pages(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().skip(1).map_while(|number| number.parse::<u64>().ok());
    let (resident, of_files) = (numbers.next()?, numbers.next()?);
    Some((resident, resident.saturating_sub(of_files)))
}

/// Of the first line: `cpu user nice system idle …`, as Envoy adds them.
fn processor_times(text: &str) -> Option<Times> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line.split_ascii_whitespace().take(4).map_while(|number| number.parse().ok()).collect();
    let [user, nice, system, idle] = numbers.try_into().ok()?;
    let work = user + nice + system;
    Some(Times { work, all: work + idle })
}

fn in_file(path: &Path) -> io::Result<f64> {
    let text = std::fs::read_to_string(path)?;
    let pressure: f64 = text.trim().parse().map_err(io::Error::other)?;
    match (0.0..=1.0).contains(&pressure) {
        true => Ok(pressure),
        false => Err(io::Error::other(format!("{pressure} is not between 0 and 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_testkit::TempDir;

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let heap = |most| Monitor::new(&Resource::Heap { most }).measure().unwrap();
        assert!(heap(1) > 1000.0 && heap(1 << 50) < 0.001);
        let descriptors = Monitor::new(&Resource::Descriptors).measure().unwrap();
        assert!(descriptors > 0.0 && descriptors < 1.0, "{descriptors}");
        assert_eq!(pages("9 5 2 1 0 3 0\n"), Some((5, 3)));
    }

    #[test]
    fn the_processor_is_a_mean_of_what_passed() {
        let times = processor_times("cpu  10 5 5 80 9 9\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!(times, Times { work: 20, all: 100 });
        assert_eq!(processor_times("intr 5"), None);
        let mut mean = Mean::<Times> { last: None, mean: 0.0 };
        assert_eq!(mean.add(None), 0.0);
        assert!((mean.add(Some(1.0)) - 0.05).abs() < 1e-9);
        assert!((mean.add(Some(1.0)) - 0.0975).abs() < 1e-9);
        let mut host = Monitor::new(&Resource::Processor { of_control_group: false });
        assert_eq!(host.measure().unwrap(), 0.0);
    }

    #[test]
    fn a_file_is_believed_between_nothing_and_all() {
        let folder = TempDir::new();
        let path = folder.path().join("pressure");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            in_file(&path).ok()
        };
        assert_eq!(
            [read("0.6\n"), read("1"), read("1.5"), read("x"), read("")],
            [Some(0.6), Some(1.0), None, None, None]
        );
        assert!(in_file(&folder.path().join("none")).is_err());
    }

    #[test]
    fn memory_that_others_fill_is_no_pressure() {
        let memory = |limit| Memory { used: 950, limit, droppable: 100 };
        assert_eq!(memory_that_we_fill(&memory(Some(1000)), 600), 0.85);
        assert_eq!(memory_that_we_fill(&memory(Some(1000)), 400), 0.0);
        assert_eq!(memory_that_we_fill(&memory(None), 600), 0.0);
    }
}
