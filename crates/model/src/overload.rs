//! What the process does when it is short of something: memory, processor time, descriptors.

use std::path::PathBuf;
use std::time::Duration;

use crate::TimerScale;

/// Monitors that measure, and what is done at which pressure (Envoy's overload manager).
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadRules {
    /// How often the monitors measure.
    pub interval: Duration,
    pub monitors: Vec<ResourceMonitor>,
    pub actions: Vec<OverloadAction>,
    pub points: Vec<LoadShedPoint>,
    /// The most connections that all listeners hold together.
    pub max_connections: Option<ConnectionBound>,
}

/// Something that can run short, measured as a share: 0 is none of it, 1 all.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceMonitor {
    /// As triggers and statistics call it.
    pub name: String,
    pub resource: Resource,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Resource {
    /// Memory of this process that is not a file's, of so many bytes.
    Heap { most: u64 },
    /// What the control group uses, of its limit or of `most`, whichever is less.
    ControlGroup { most: Option<u64> },
    /// Processor time, of all that there is or of the control group's share.
    Processor { of_control_group: bool },
    /// A number in a file.
    File(PathBuf),
    /// The control group's memory without what can be dropped, where this process has most of it.
    OwnMemory,
    /// Open files, of those that the process may have.
    Descriptors,
}

/// A limit of connections that counts as a resource, too.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionBound {
    pub name: String,
    pub most: u64,
}

/// When something is done, and how much of it: the strongest of several triggers counts.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureTrigger {
    /// The monitor's name.
    pub resource: String,
    pub at: Ramp,
}

/// From a pressure to a strength between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ramp {
    /// Nothing below, everything from here on.
    Step(f64),
    /// Nothing up to `from`, everything from `to` on, in between in proportion.
    Linear { from: f64, to: f64 },
}

impl Ramp {
    /// How much is to be done at `pressure`.
    pub fn strength(self, pressure: f64) -> f64 {
        match self {
            Ramp::Step(at) => f64::from(u8::from(pressure >= at)),
            Ramp::Linear { from, .. } if pressure <= from => 0.0,
            Ramp::Linear { to, .. } if pressure >= to => 1.0,
            Ramp::Linear { from, to } => (pressure - from) / (to - from),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OverloadAction {
    /// As statistics call it.
    pub name: String,
    pub kind: OverloadKind,
    pub triggers: Vec<PressureTrigger>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum OverloadKind {
    /// A share of requests is answered 503 as soon as their heads are read.
    RefuseRequests,
    /// A share of connections ends after the request that it is at.
    EndConnections,
    /// At full strength, connections wait in the system's queue.
    PauseAccepting,
    /// A share of connections is closed as soon as it is accepted.
    RefuseConnections,
    /// At full strength, free memory is given back, this often.
    ReleaseMemory { interval: Duration },
    /// Timers run out earlier, down to these.
    ShortenTimers(Vec<TimerScale>),
    /// Streams are reset that hold most memory, the more of them the stronger. There are eight classes: those that hold two
    /// to the power of so many bytes, twice as much, and so on.
    ResetStreams { least_power: u32 },
}

/// A share of what comes to a point of the pipeline is turned away there.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadShedPoint {
    /// As statistics call it.
    pub name: String,
    pub kind: ShedKind,
    pub triggers: Vec<PressureTrigger>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedKind {
    /// A connection was accepted.
    Accept,
    /// The first bytes of a connection came: it is closed.
    Codec,
    /// A request came over HTTP/1: it is answered 500, and its connection ends.
    Http1,
    /// A request came: its connection takes no others.
    GoAway,
    /// A head is there: the request is answered 503, and its connection ends.
    Head,
    /// The same before filters see it; the connection stays.
    Filters,
    /// An upstream is to get a connection.
    Upstream,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_two_values_and_a_ramp_all() {
        let step = Ramp::Step(0.9);
        assert_eq!([0.0, 0.89, 0.9, 1.5].map(|at| step.strength(at)), [0.0, 0.0, 1.0, 1.0]);
        let ramp = Ramp::Linear { from: 0.5, to: 0.9 };
        assert_eq!(
            [0.4, 0.5, 0.7, 0.9, 2.0].map(|at| (ramp.strength(at) * 100.0).round()),
            [0.0, 0.0, 50.0, 100.0, 100.0]
        );
    }
}
