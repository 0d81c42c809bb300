//! Code that stands between requests and a cluster whose hosts speak something else than HTTP.
//!
//! ```text
//! request ── head, body ──> session ── bytes ──> host
//! answer  <── head, body ── session <── bytes ── host      a connection of its own for each request
//! ```

use std::sync::Arc;

use postrider_http::{RequestHead, ResponseHead};
use postrider_model::Value;

use crate::{ConfigError, WatchedFile};

/// Such code with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait BridgeFactory: Send + Sync {
    /// What stands between one request and its connection. Called on a worker: it must be quick.
    fn begin(&self, facts: &BridgeFacts<'_>) -> Box<dyn BridgeSession>;

    /// Files that were read for it.
    fn files(&self) -> &[WatchedFile] {
        &[]
    }
}

/// What is known of a request beside its head.
#[derive(Debug, Clone, Copy)]
pub struct BridgeFacts<'a> {
    /// The name of the table that its route stands in; empty where nobody chose a route.
    pub table: &'a str,
    pub cluster: &'a str,
    /// The client came over TLS.
    pub tls: bool,
}

/// One request with its connection. Hooks are called one after the other, on one worker.
pub trait BridgeSession {
    /// The first call. What it puts into `data` goes to the host; with [`BridgeStep::Answer`], to the client. `end`: there is
    /// no body.
    fn on_request_head(&mut self, head: &RequestHead, data: &mut Vec<u8>, end: bool) -> BridgeStep;

    /// `data` came from the client: what is left of it goes to the host, or is the answer. With `end` nothing follows.
    fn on_request_body(&mut self, data: &mut Vec<u8>, end: bool) -> BridgeStep;

    /// `data` came from the host: what is left of it goes to the client, the first time with `head` in front of it. With
    /// `end` the host said its last word.
    fn on_received(&mut self, head: &mut ResponseHead, data: &mut Vec<u8>, end: bool) -> BridgeStep;

    /// The host is told that nothing more comes behind what is sent next.
    fn half_closes(&self) -> bool {
        false
    }
}

/// What becomes of the bytes that a hook was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeStep {
    /// They go on.
    Continue,
    /// They wait for more. Of a request, all of the body comes in one piece; of an answer, each piece with those before it.
    Hold,
    /// They go to the client, and the answer ends behind them.
    Answer,
}

/// Builds a factory from the configuration of its type.
pub type BuildBridge = fn(&Value) -> Result<Arc<dyn BridgeFactory>, ConfigError>;
