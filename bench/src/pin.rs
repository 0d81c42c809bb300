//! Who runs where: the proxy alone on one CPU, load and upstream together on another.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

/// The CPUs of a run.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    pub proxy: usize,
    pub load: usize,
}

impl Cpus {
    /// The first two that this process may use.
    pub fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None).map_err(|errno| Error::io("reading the CPU affinity")(errno.into()))?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        match (usable.next(), usable.next()) {
            (Some(proxy), Some(load)) => Ok(Self { proxy, load }),
            _ => Err(Error::TooFewCpus { allowed: allowed.count() as usize }),
        }
    }
}

/// Moves the calling thread, and so every process that it starts from now on, to one CPU.
pub fn pin_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| Error::io(format!("pinning to CPU {cpu}"))(errno.into()))
}

/// Raises the soft limit of open files to the hard one, for this process and its children; returns the limit.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_err() {
        return limit.current.unwrap_or(u64::MAX);
    }
    limit.maximum.unwrap_or(u64::MAX)
}
