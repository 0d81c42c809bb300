//! Access logs that go to a service, entry by entry.

use std::sync::Arc;
use std::time::Duration;

use crate::{CustomTag, GrpcTarget};

/// What one logger tells a service.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntries {
    /// Loggers with an equal one share its stream.
    pub service: Arc<LogService>,
    /// Lower case, beside what every entry has.
    pub request_headers: Vec<String>,
    pub response_headers: Vec<String>,
    pub response_trailers: Vec<String>,
    /// Names of objects of the filter state that are told.
    pub objects: Vec<String>,
    /// Told with every entry, as texts.
    pub tags: Vec<CustomTag>,
}

/// A service that takes access logs by gRPC, and what waits for it at most.
#[derive(Debug, Clone, PartialEq)]
pub struct LogService {
    pub target: GrpcTarget,
    pub log_name: String,
    pub kind: EntryKind,
    /// How long an entry waits for others at most.
    pub flush_interval: Duration,
    /// So many bytes of entries are sent at once. While they cannot be, no further entry is taken.
    pub buffer_bytes: usize,
}

/// What an entry tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A request.
    Http,
    /// A connection, or of a request what it has in common with one.
    Tcp,
}
