//! A copy of a request, and what is known of it for the router's own log (Envoy's `upstream_log`), which has a record of
//! copies as of every try. A copy has no client: the record tells the upstream's side, and nothing of the request's route.

use std::cell::RefCell;
use std::rc::Rc;

use postrider_filter_api::{Flags, Logged, StreamInfo};
use postrider_http::{BodyFraming, Fields, RequestHead, ResponseHead};

use super::Feed;
use crate::chain::{Chain, Handler};
use crate::cluster::{Cluster, Host, NoConnection, Upstream};
use crate::format::{Context, OfUpstream};
use crate::http::{size_of_request, size_of_response};
use crate::worker::Worker;

/// The body of a copy, and its record.
pub(crate) struct Copied {
    pub(crate) framing: BodyFraming,
    pub(crate) feed: Rc<Feed>,
    /// `None` where nobody logs tries.
    pub(crate) record: Option<CopyRecord>,
}

/// What is known of a copy so far.
pub(crate) struct CopyRecord {
    chain: Rc<Chain>,
    worker: Rc<Worker>,
    cluster: Rc<Cluster>,
    /// `None` while it has no host: then there is nothing to tell.
    seen: RefCell<Option<Box<Seen>>>,
}

struct Seen {
    info: StreamInfo,
    answer: ResponseHead,
    trailers: Fields,
}

impl CopyRecord {
    pub(crate) fn new(chain: &Rc<Chain>, worker: &Rc<Worker>, cluster: &Rc<Cluster>) -> CopyRecord {
        CopyRecord { chain: chain.clone(), worker: worker.clone(), cluster: cluster.clone(), seen: RefCell::new(None) }
    }

    /// It goes to this host.
    pub(super) fn chosen(&self, host: &Host, head: &RequestHead) {
        let began = self.worker.clock.now();
        let mut info = StreamInfo::new(began, self.worker.clock.wall(began));
        self.chain.surround(&mut info);
        info.upstream_cluster = Some(self.cluster.name.clone());
        info.upstream_remote = Some(host.endpoint.address.to_string().into());
        info.upstream_protocol = "";
        info.request_head_bytes = size_of_request(head).bytes;
        let seen = Seen { info, answer: ResponseHead::new(), trailers: Fields::new() };
        *self.seen.borrow_mut() = Some(Box::new(seen));
    }

    /// There is no connection for it.
    pub(super) fn unreached(&self, failure: &NoConnection) {
        self.note(|seen| match failure {
            NoConnection::Overflow | NoConnection::NoPool => seen.info.flags.insert(Flags::UPSTREAM_OVERFLOW),
            NoConnection::Timeout => seen.info.flags.insert(Flags::UPSTREAM_CONNECTION_FAILURE),
            NoConnection::Failed(cause) => {
                seen.info.flags.insert(Flags::UPSTREAM_CONNECTION_FAILURE);
                seen.info.upstream_failure = (!cause.is_empty()).then(|| cause.as_str().into());
            }
        });
    }

    /// The circuit breaker lets no more requests through.
    pub(super) fn turned_away(&self) {
        self.note(|seen| seen.info.flags.insert(Flags::UPSTREAM_OVERFLOW));
    }

    /// It goes out on this connection.
    pub(super) fn connected(&self, upstream: &Upstream, head: &RequestHead) {
        let now = self.worker.clock.now();
        self.note(|seen| {
            let info = &mut seen.info;
            info.upstream_local = upstream.local();
            info.upstream_remote = Some(upstream.name.clone());
            info.upstream_connection_id = upstream.id;
            info.upstream_protocol = upstream.protocol();
            info.upstream_tls = upstream.tls().cloned();
            info.upstream_connect = upstream.times();
            info.request_send_began = Some(now);
            info.upstream_wait = Some(now.saturating_duration_since(info.started));
        });
        if let Handler::Http(http) = &self.chain.handler
            && http.model.router.upstream_log_moments.connected
        {
            self.write(Logged::TryReady, head);
        }
    }

    /// So many bytes of the request's body leave.
    pub(super) fn add_sent(&self, bytes: usize) {
        self.note(|seen| seen.info.bytes_sent += bytes as u64);
    }

    /// The last of the request left.
    pub(super) fn complete(&self) {
        let now = self.worker.clock.now();
        self.note(|seen| {
            seen.info.request_sent.get_or_insert(now);
        });
    }

    /// So many bytes of the answer's body came.
    pub(super) fn add_received(&self, bytes: usize) {
        self.note(|seen| seen.info.bytes_received += bytes as u64);
    }

    /// The head of the answer came.
    pub(super) fn answered(&self, head: &ResponseHead) {
        let now = self.worker.clock.now();
        self.note(|seen| {
            seen.info.response_began = Some(now);
            seen.info.status = head.status();
            seen.info.response_head_bytes = size_of_response(head).bytes;
            seen.answer = head.clone();
        });
    }

    /// The answer breaks off, or is none.
    pub(super) fn broke(&self, ended: bool) {
        self.note(|seen| {
            let closed = ended && seen.info.response_began.is_none();
            let flag = if closed { Flags::UPSTREAM_CONNECTION_TERMINATION } else { Flags::UPSTREAM_PROTOCOL_ERROR };
            seen.info.flags.insert(flag);
        });
    }

    /// It is over.
    pub(super) fn end(&self, head: &RequestHead, trailers: Option<&Fields>) {
        self.note(|seen| {
            if let Some(trailers) = trailers {
                seen.trailers = trailers.clone();
            }
        });
        self.write(Logged::TryEnd, head);
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = &mut *self.seen.borrow_mut() {
            change(seen);
        }
    }

    fn write(&self, logged: Logged, head: &RequestHead) {
        let Handler::Http(http) = &self.chain.handler else { return };
        let now = self.worker.clock.now();
        self.note(|seen| {
            seen.info.ended = Some(now);
            seen.info.logged = logged;
            http.try_logs.write(&Context {
                request: head,
                response: &seen.answer,
                trailers: &seen.trailers,
                info: &seen.info,
                route: None,
                weighted: None,
                reply_body: &[],
                http: true,
                now: self.worker.clock.wall(now),
                upstream: OfUpstream { cluster: Some(&self.cluster), tried: &[], tried_on: &[] },
            });
        });
    }
}
