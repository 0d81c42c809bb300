//! What every plugin has, whatever runs it: the facts that the admin shows and the rules that its host keeps.

use std::time::{Duration, SystemTime};

use postrider_model::Value;

/// What is known about a plugin once its configuration was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Unique in its chain; names its statistics.
    pub name: String,
    /// As its author numbers it; may be empty.
    pub version: String,
    /// `rider`, `envoy-lua`, …
    pub runtime: &'static str,
    /// Where its code came from: a path, `inline`, or an environment variable.
    pub source: String,
    /// Tells two versions of its code apart: a short hash.
    pub digest: String,
    pub policy: Policy,
    /// The gateway-level configuration.
    pub config: Value,
    /// The JSON Schema that configurations must satisfy.
    pub schema: Option<Value>,
}

/// What the admin tells of a plugin beside its facts, as it is at the moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    pub scripts: Vec<Script>,
    /// When it last failed, and how.
    pub last_error: Option<(SystemTime, String)>,
}

/// Further code of a plugin's, for routes to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub name: String,
    /// As in [`Facts`].
    pub source: String,
    pub digest: String,
}

/// What counts for a plugin on a route, of all that its scopes say.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// It does not run there.
    Off,
    /// Nothing: it runs with the gateway-level configuration alone.
    Nothing,
    /// This configuration.
    Config(Value),
}

/// What a plugin may do, and what happens when it fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub on_error: OnError,
    /// For one call of a hook, between two waits; [`Duration::MAX`] where nothing bounds it.
    pub cpu: Duration,
    /// Bytes of its virtual machine, per worker; [`usize::MAX`] where nothing bounds them.
    pub memory: usize,
    pub circuit: CircuitRule,
    /// The clusters that it may call; `None` is any.
    pub clusters: Option<Vec<String>>,
    /// Where there is nothing to answer: what ends, whatever `on_error` says.
    pub ends: Option<Ends>,
}

/// What a plugin ends that fails where there is nothing to answer: at connections and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The connection, and each later one that it cannot have its part of.
    Connection,
    /// The connection; later ones pass it by.
    OneConnection,
    Process,
    /// The record that it would have written, and nothing else.
    Record,
}

/// What becomes of a stream whose plugin failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// It goes on as if the plugin were not there; edits made before the fault stay.
    #[default]
    Continue,
    /// It is answered with this status.
    Respond(u16),
}

/// When a plugin that keeps failing is no longer called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitRule {
    /// So many faults within the window open the circuit; 0 never does.
    pub faults: u32,
    /// So many calls within the window that were stopped at their CPU budget open it as well: each of them held up all other
    /// requests of its worker. 0 never does.
    pub cpu_kills: u32,
    pub window: Duration,
    /// After this a call is tried again.
    pub retry: Duration,
    /// Calls that were stopped at their budget count as faults, errors of the plugin's own do not: where a client may be
    /// able to cause errors, it must not be able to switch the plugin off for others.
    pub kills_only: bool,
}

/// The CPU time that a hook gets unless its configuration says otherwise.
pub const DEFAULT_CPU: Duration = Duration::from_millis(100);

/// The memory that a plugin gets on each worker unless its configuration says otherwise.
pub const DEFAULT_MEMORY: usize = 64 << 20;

/// Ten faults in ten seconds open the circuit for five, and so does one call that used up its CPU time.
pub const DEFAULT_CIRCUIT: CircuitRule = CircuitRule {
    faults: 10,
    cpu_kills: 1,
    window: Duration::from_secs(10),
    retry: Duration::from_secs(5),
    kills_only: false,
};

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            on_error: OnError::default(),
            cpu: DEFAULT_CPU,
            memory: DEFAULT_MEMORY,
            circuit: DEFAULT_CIRCUIT,
            clusters: None,
            ends: None,
        }
    }
}
