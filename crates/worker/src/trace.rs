//! Spans: what a request's part in a trace is called and says, and what its caller said of the trace.
//!
//! What it must never do: decide, or touch a request; `http/trace.rs` does both, and calls this.

mod caller;
mod span;
mod tags;

use std::rc::Rc;
use std::sync::Arc;

use postrider_model::{HttpConnection, Tracing};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::http_tracing as stat;
use postrider_upstream::Random;

use crate::otlp::{Exporter, Rules};
use crate::worker::Worker;
pub(crate) use caller::{Caller, hex, traceparent};
pub(crate) use span::{Outline, of_child, of_client, of_try};
pub(crate) use tags::value_of;

/// The tracing of one connection manager on one worker.
pub(crate) struct HttpTracing {
    pub(crate) model: Arc<Tracing>,
    pub(crate) stats: Rc<Block>,
    /// `None` where nobody is told of spans.
    pub(crate) exporter: Option<Rc<Exporter>>,
    /// Each try has a span of its own.
    pub(crate) spawns: bool,
}

impl HttpTracing {
    pub(crate) fn new(model: &HttpConnection, prefix: &str, worker: &Rc<Worker>) -> Option<Box<HttpTracing>> {
        let tracing = model.tracing.as_ref()?;
        let exporter = tracing.tracer.as_ref().map(|tracer| worker.exporters.of(Rules::of_tracer(tracer), worker));
        Some(Box::new(HttpTracing {
            model: tracing.clone(),
            stats: worker.stats.block(&stat::SET, &format!("{prefix}.tracing")),
            spawns: exporter.is_some() && spawns(model),
            exporter,
        }))
    }
}

/// The identifier of a new part of a trace: not all zeros, which would be none.
pub(crate) fn new_span(random: &Random) -> [u8; 8] {
    random.next().max(1).to_be_bytes()
}

/// Whether each try of a request has a span, where spans are told at all.
pub(crate) fn spawns(model: &HttpConnection) -> bool {
    model
        .tracing
        .as_ref()
        .is_some_and(|tracing| tracing.tracer.is_some() && (tracing.spawns_upstream_span || model.router.spawns_span))
}
