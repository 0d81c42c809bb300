//! What became of each configuration that the process was given.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Configurations remembered; the oldest gives way.
pub const HISTORY_ENTRIES: usize = 64;

/// One configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    pub time: SystemTime,
    /// Where it came from: a file, a control plane.
    pub source: String,
    pub outcome: Outcome,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// In force since then, with what it changed; empty when it meant the same as the one before.
    Accepted { changes: Vec<Change> },
    /// Refused whole, for each of these reasons; the one before stays in force.
    Refused { errors: Vec<String> },
}

/// A part of the configuration that differs from before.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub kind: ChangeKind,
    /// `cluster web`, `listener front`.
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Changed,
    Removed,
}

impl ChangeKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// The last [`HISTORY_ENTRIES`], shared between who loads configurations and who shows them.
#[derive(Debug, Default)]
pub struct History {
    entries: Mutex<VecDeque<HistoryEntry>>,
}

impl History {
    pub fn push(&self, entry: HistoryEntry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.truncate(HISTORY_ENTRIES - 1);
        entries.push_front(entry);
    }

    /// The newest first.
    pub fn entries(&self) -> Vec<HistoryEntry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_give_way() {
        let history = History::default();
        for n in 0..HISTORY_ENTRIES + 3 {
            let outcome = Outcome::Refused { errors: vec![] };
            history.push(HistoryEntry { time: SystemTime::UNIX_EPOCH, source: n.to_string(), outcome });
        }
        let entries = history.entries();
        assert_eq!(entries.len(), HISTORY_ENTRIES);
        assert_eq!(entries[0].source, (HISTORY_ENTRIES + 2).to_string());
        assert_eq!(entries.last().map(|entry| entry.source.as_str()), Some("3"));
    }
}
