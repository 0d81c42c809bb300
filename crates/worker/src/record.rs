//! What a listener's own log says of a connection: one line at its end, whoever served it, or nobody.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use postrider_filter_api::{Flags, Logged, Moment, Noted, StreamInfo};
use postrider_http::{Fields, RequestHead, ResponseHead};

use crate::format::{Context, OfUpstream};
use crate::log::Logs;
use crate::worker::Worker;

/// No filter chain took the connection, in the words of `%RESPONSE_CODE_DETAILS%`.
const NO_CHAIN: &str = "filter_chain_not_found";

/// The line is written when nobody has the connection any more.
pub(crate) struct Record {
    info: RefCell<StreamInfo>,
    logs: Rc<Logs>,
    worker: Rc<Worker>,
}

impl Record {
    #[cold]
    pub(crate) fn begin(
        logs: &Rc<Logs>,
        worker: &Rc<Worker>,
        accepted: Moment,
        local: Option<SocketAddr>,
        remote: Option<SocketAddr>,
    ) -> Rc<Record> {
        let mut info = StreamInfo::new(accepted, worker.clock.wall(accepted));
        info.logged = Logged::OfListener("");
        info.downstream_local = local;
        info.downstream_remote = remote;
        info.downstream_direct_remote = remote;
        Rc::new(Record { info: RefCell::new(info), logs: logs.clone(), worker: worker.clone() })
    }

    /// Notes what became known meanwhile.
    pub(crate) fn note(&self, change: impl FnOnce(&mut StreamInfo)) {
        change(&mut self.info.borrow_mut());
    }

    #[cold]
    pub(crate) fn no_chain(&self) {
        self.note(|info| {
            info.flags.insert(Flags::NO_ROUTE_FOUND);
            info.details = NO_CHAIN.into();
        });
    }

    /// A request of the connection is over: its bytes are those of the connection, but for those that are `repeated`.
    #[cold]
    pub(crate) fn add(&self, stream: &StreamInfo, repeated: u64, protocol: Option<&'static str>) {
        self.note(|info| {
            info.bytes_received += (stream.request_head_bytes + stream.bytes_received).saturating_sub(repeated);
            info.bytes_sent += stream.response_head_bytes + stream.bytes_sent;
            if let Some(protocol) = protocol {
                info.logged = Logged::OfListener(protocol);
            }
            if stream.flags.contains(Flags::DOWNSTREAM_PROTOCOL_ERROR) {
                info.flags.insert(Flags::DOWNSTREAM_PROTOCOL_ERROR);
            }
        });
    }

    /// What was noted of the connection itself.
    #[cold]
    pub(crate) fn keep(&self, noted: &Noted) {
        self.note(|info| {
            info.metadata.clone_from(&noted.metadata);
            info.filter_state.clone_from(&noted.state);
            info.upstream_objects.clone_from(&noted.objects);
        });
    }

    /// The connection was carried without being read, and this is all that is known about it.
    #[cold]
    pub(crate) fn settle(&self, all: StreamInfo) {
        self.note(|info| {
            let (start, started) = (info.start, info.started);
            *info = StreamInfo { start, started, logged: Logged::OfListener(""), ..all };
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let now = self.worker.clock.now();
        let info = self.info.get_mut();
        info.ended = Some(now);
        self.logs.write(&Context {
            request: &RequestHead::new(),
            response: &ResponseHead::new(),
            trailers: &Fields::new(),
            info,
            route: None,
            weighted: None,
            reply_body: &[],
            http: false,
            now: self.worker.clock.wall(now),
            upstream: OfUpstream::default(),
        });
    }
}
