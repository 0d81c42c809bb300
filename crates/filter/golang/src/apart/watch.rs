//! What a process may take, seen from outside: how long a call into it lasts, and how much memory it has.
//!
//! One that takes more is killed by its keeper, and started again. Nothing here trusts the process's own clock.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::ring::Segment;

/// How long a call into a process may last where nobody says otherwise.
const DEADLINE: Duration = Duration::from_secs(10);

/// How often memory is looked at: what is allocated faster shows when it is there.
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);

/// How often, at most and at least, calls are looked at.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(5);

/// What a process may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From the first look at a message to the end of the call into Go with it. What goroutines do meanwhile or later is
    /// not in it.
    pub(crate) deadline: Duration,
    /// Bytes of its own: files that it maps and what it shares with the proxy do not count.
    pub(crate) memory: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { deadline: DEADLINE, memory: None }
    }
}

/// Looks at a process.
pub(super) struct Watch {
    limits: Limits,
    process: u32,
    looked: Instant,
    /// Of each lane, what it had done when it was last seen to go on, and when that was.
    lanes: Vec<Option<((u64, u64), Instant)>>,
}

impl Watch {
    pub(super) fn new(limits: Limits, process: u32, lanes: usize) -> Watch {
        Watch { limits, process, looked: Instant::now(), lanes: vec![None; lanes] }
    }

    /// How long to wait between two looks.
    fn interval(&self) -> Duration {
        let interval = (self.limits.deadline / 8).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        if self.limits.memory.is_some() { interval.min(MEMORY_INTERVAL) } else { interval }
    }

    /// Waits until there is something to read from the process, or it is gone.
    ///
    /// # Errors
    /// It took more than it may: what that was.
    pub(super) fn wait(&mut self, control: &UnixStream, segment: &Segment) -> Result<(), String> {
        loop {
            let now = Instant::now();
            if now.duration_since(self.looked) >= self.interval() {
                self.looked = now;
                self.look(segment, now)?;
            }
            let mut polled = libc::pollfd { fd: control.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let wait = i32::try_from(self.interval().as_millis()).unwrap_or(i32::MAX);
            // SAFETY: one structure of ours, for the time of the call.
            match unsafe { libc::poll(&raw mut polled, 1, wait) } {
                0 => {}
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Ok(()),
            }
        }
    }

    fn look(&mut self, segment: &Segment, now: Instant) -> Result<(), String> {
        for (index, seen) in self.lanes.iter_mut().enumerate() {
            *seen = match (segment.progress(index), *seen) {
                (None, _) => None,
                (Some(done), Some((before, since))) if done == before => Some((before, since)),
                (Some(done), _) => Some((done, now)),
            };
            if let Some((_, since)) = seen
                && now.duration_since(*since) > self.limits.deadline
            {
                return Err(format!("a call into it took longer than {:?}", self.limits.deadline));
            }
        }
        let Some(limit) = self.limits.memory else { return Ok(()) };
        match memory(self.process) {
            Some(bytes) if bytes > limit => Err(format!("it had {bytes} bytes of memory, of {limit} that it may have")),
            _ => Ok(()),
        }
    }
}

/// Bytes that a process has to itself.
fn memory(process: u32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let mut pages = pages.split(' ').map(|number| number.parse::<u64>().unwrap_or(0)).skip(1);
    let (resident, shared) = (pages.next()?, pages.next()?);
    // SAFETY: a call without pointers.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(resident.saturating_sub(shared) * page)
}

/// Whoever waits for the process's words hears that there are no more.
pub(super) fn hang_up(control: &UnixStream) {
    // It may be gone already.
    let _ = control.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_call_that_does_not_end_is_found_and_one_that_goes_on_is_not() {
        let (segment, _memory) = Segment::create(2).unwrap();
        let limits = Limits { deadline: Duration::from_secs(1), memory: None };
        let mut watch = Watch::new(limits, std::process::id(), 2);
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        assert_eq!(watch.look(&segment, at(0)), Ok(()));
        segment.busy(1).store(1, Ordering::Relaxed);
        assert_eq!(watch.look(&segment, at(10)), Ok(()), "seen for the first time");
        segment.busy(1).store(3, Ordering::Relaxed);
        assert_eq!(watch.look(&segment, at(20)), Ok(()), "another call");
        assert!(watch.look(&segment, at(22)).unwrap_err().contains("took longer than 1s"));
        segment.busy(1).store(4, Ordering::Relaxed);
        assert_eq!(watch.look(&segment, at(30)), Ok(()));
    }

    #[test]
    fn memory_of_its_own_is_bounded() {
        let (segment, _memory) = Segment::create(1).unwrap();
        let own = memory(std::process::id()).unwrap();
        let look = |memory: u64| {
            let limits = Limits { memory: Some(memory), ..Limits::default() };
            Watch::new(limits, std::process::id(), 1).look(&segment, Instant::now())
        };
        assert!(own > 0 && look(own / 2).unwrap_err().contains("of memory"));
        assert_eq!(look(u64::MAX), Ok(()));
    }
}
