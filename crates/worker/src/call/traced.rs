//! The span of a request of a filter's own, where the request that it is for is part of a trace: begun and said to the cluster
//! before it is sent, told when it is over, and told as canceled when its filter gave it up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use postrider_filter_api::{Answer, CallFailure, CallTrace, Flags, OpenSpan};
use postrider_http::{HeaderId, RequestHead};

use crate::cluster::{Cluster, Host};
use crate::http::Reset;
use crate::trace::{new_span, traceparent};
use crate::worker::Worker;

pub(super) struct CallSpan {
    /// `None` once it was told.
    span: Option<OpenSpan>,
    worker: Rc<Worker>,
    cluster: Rc<Cluster>,
    address: RefCell<Option<String>>,
    flags: Cell<Flags>,
    kind: Kind,
}

/// Of what a span tells.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Http,
    Grpc,
}

impl CallSpan {
    /// `None` where only the cluster is told of the trace.
    pub(super) fn begin(
        kind: Kind,
        trace: &CallTrace,
        worker: &Rc<Worker>,
        cluster: &Rc<Cluster>,
        head: &mut RequestHead,
    ) -> Option<CallSpan> {
        if !trace.has_span {
            propagate(&trace.parent, head);
            return None;
        }
        let name = match kind {
            Kind::Http => format!("async {} egress", cluster.name),
            // After its method.
            Kind::Grpc => {
                let path = String::from_utf8_lossy(head.path());
                format!("async {} egress", path.trim_start_matches('/').replace('/', "."))
            }
        };
        let span = trace.parent.child(new_span(&worker.random), name, worker.clock.wall_now());
        if let Some(is_told) = trace.is_told {
            span.is_told.set(is_told);
        }
        propagate(&span, head);
        Some(CallSpan {
            span: Some(span),
            worker: worker.clone(),
            cluster: cluster.clone(),
            address: RefCell::default(),
            flags: Cell::default(),
            kind,
        })
    }

    /// It goes to this host.
    pub(super) fn chosen(&self, host: &Host) {
        self.address.replace(Some(host.endpoint.address.to_string()));
    }

    /// Why there is no answer.
    pub(super) fn flag(&self, flag: Flags) {
        self.flags.set(flag);
    }

    /// The same, of an exchange that broke.
    pub(super) fn broke(&self, reset: Reset) {
        self.flag(match reset {
            Reset::ConnectFailure => Flags::UPSTREAM_CONNECTION_FAILURE,
            Reset::ConnectionTermination => Flags::UPSTREAM_CONNECTION_TERMINATION,
            Reset::Stream | Reset::RefusedStream => Flags::UPSTREAM_REMOTE_RESET,
            Reset::ProtocolError => Flags::UPSTREAM_PROTOCOL_ERROR,
            Reset::Timeout => Flags::UPSTREAM_REQUEST_TIMEOUT,
        });
    }

    /// A call of gRPC is over.
    pub(super) fn end_grpc(mut self, code: u32) {
        self.tell_grpc(Some(code));
    }

    fn tell_grpc(&mut self, code: Option<u32>) {
        let Some(span) = self.span.take() else { return };
        let say = |name: &str, value: &str| span.tags.borrow_mut().push((name.to_owned(), value.to_owned()));
        say("upstream_cluster", &self.cluster.name);
        say("upstream_address", &self.cluster.name);
        say("component", "proxy");
        match code {
            Some(code) => say("grpc.status_code", &code.to_string()),
            None => say("status", "canceled"),
        }
        if code.is_some_and(|code| code != 0) {
            say("error", "true");
            span.failed.set(true);
        }
        span.end(self.worker.clock.wall_now());
    }

    /// It is over.
    pub(super) fn end(mut self, outcome: &Result<Answer, CallFailure>) {
        let status = match outcome {
            Ok(answer) => answer.head.status(),
            Err(failure) => {
                if *failure == CallFailure::Timeout {
                    self.flag(Flags::UPSTREAM_REQUEST_TIMEOUT);
                }
                failure.status()
            }
        };
        self.tell(status, false);
    }

    /// Says what Envoy says, in its order; a status of 0 is none.
    fn tell(&mut self, status: u16, canceled: bool) {
        let Some(span) = self.span.take() else { return };
        let say = |name: &str, value: &str| span.tags.borrow_mut().push((name.to_owned(), value.to_owned()));
        if canceled {
            say("canceled", "true");
        }
        say("http.protocol", "HTTP/1.1");
        if let Some(address) = self.address.take() {
            say("upstream_address", &address);
            say("peer.address", &address);
        }
        say("component", "proxy");
        say("upstream_cluster", &self.cluster.name);
        say("upstream_cluster.name", self.cluster.shown_name());
        say("http.status_code", &status.to_string());
        let flags: Vec<_> = self.flags.get().names(true).map(|(short, _)| short).collect();
        say("response_flags", &if flags.is_empty() { "-".to_owned() } else { flags.join(",") });
        if status == 0 || status >= 500 {
            say("error", "true");
        }
        span.failed.set(status >= 400);
        span.end(self.worker.clock.wall_now());
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        match self.kind {
            Kind::Http => self.tell(0, true),
            Kind::Grpc => self.tell_grpc(None),
        }
    }
}

/// Says to whoever gets this request that it is part of `span`.
fn propagate(span: &OpenSpan, head: &mut RequestHead) {
    let fields = &mut head.fields;
    // What we write, and what was received, can be said.
    let _ = fields.set(HeaderId::Traceparent, &traceparent(&span.ids, span.is_told.get()));
    match &*span.state {
        // What a script wrote itself belongs to no trace of ours.
        "" => {
            fields.remove(HeaderId::Tracestate);
        }
        state => {
            let _ = fields.set(HeaderId::Tracestate, state.as_bytes());
        }
    }
}
