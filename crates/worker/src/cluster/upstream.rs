//! A connection to a host, busy or pooled, and what it counts.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use postrider_filter_api::{ConnectTimes, Moment, TlsSession};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::Permit;

use super::soundness::Soundness;
use super::{Host, millis};
use crate::buffers::Input;
use crate::io::Io;
use crate::party::Party;
use crate::plan::ClusterPlan;
use crate::worker::Worker;

/// A connection to a host, busy or pooled.
pub(crate) struct Upstream {
    pub(crate) io: Io,
    pub(crate) input: Input,
    pub(crate) host: Rc<Host>,
    pub(crate) id: u64,
    /// The address that it goes to, as logs show it.
    pub(crate) name: Rc<str>,
    /// Bytes that one read may bring.
    pub(crate) buffer_limit: usize,
    pub(super) idle_since: Cell<Moment>,
    /// For whom it was made, where that decides who may use it.
    pub(super) party: Option<Rc<Party>>,
    /// Of a stream: the peer ended it, or it is counted why we do.
    pub(super) is_broken: Cell<bool>,
    pub(super) account: Rc<Account>,
}

/// A connection's share in the counts of its host and cluster. The streams of one connection have it in common.
pub(crate) struct Account {
    pub(super) host: Rc<Host>,
    pub(crate) stats: Rc<Block>,
    pub(crate) worker: Rc<Worker>,
    /// Requests that the connection carried so far.
    pub(super) served: Cell<u32>,
    /// Requests that it carries now.
    pub(crate) busy: Cell<usize>,
    /// The peer ended it.
    pub(super) ended_by_peer: Cell<bool>,
    /// It carried requests when it ended.
    pub(super) ended_busy: Cell<bool>,
    pub(super) created: Moment,
    pub(super) times: ConnectTimes,
    /// Our end of the connection; `None` on a Unix socket.
    pub(super) local: Option<SocketAddr>,
    /// The other end, as logs show it.
    pub(super) name: Rc<str>,
    /// `None` for a plain connection.
    pub(crate) tls: Option<Rc<TlsSession>>,
    pub(crate) soundness: Soundness,
    pub(super) _permit: Permit,
}

impl Upstream {
    pub(crate) fn stats(&self) -> &Block {
        &self.account.stats
    }

    /// The same, for whoever keeps it.
    pub(crate) fn counted(&self) -> &Rc<Block> {
        &self.account.stats
    }

    /// Our end of the connection; `None` on a Unix socket.
    #[inline]
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.account.local
    }

    /// When it was made.
    #[inline]
    pub(crate) fn times(&self) -> ConnectTimes {
        self.account.times
    }

    /// What was agreed on; `None` for a plain connection.
    #[inline]
    pub(crate) fn tls(&self) -> Option<&Rc<TlsSession>> {
        self.account.tls.as_ref()
    }

    pub(crate) fn worker(&self) -> Rc<Worker> {
        self.account.worker.clone()
    }

    /// It is one stream of a connection.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.io, Io::Http2(_))
    }

    /// As logs show it.
    #[inline]
    pub(crate) fn protocol(&self) -> &'static str {
        match self.io {
            Io::Http2(_) => "HTTP/2",
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) => "HTTP/1.1",
            // None that has a name.
            Io::Bridged(_) => "",
        }
    }

    /// Counts a request that goes out on this connection.
    pub(crate) fn begin_request(&self) {
        self.account.served.set(self.account.served.get() + 1);
        if !self.is_stream() {
            self.account.busy.set(1);
        }
    }

    /// All of the connection is for one client.
    pub(crate) fn carry(&self) {
        if !self.is_stream() {
            self.account.busy.set(1);
        }
    }

    /// The request is over, and what becomes of the connection does not concern it.
    pub(crate) fn end_request(&self) {
        if !self.is_stream() {
            self.account.busy.set(0);
        }
    }

    /// The peer closed or broke the connection, or this stream of it.
    pub(crate) fn peer_ended(&self) {
        match self.is_stream() {
            true => self.is_broken.set(true),
            false => self.account.ended_by_peer.set(true),
        }
    }

    /// A stream of HTTP/2 ends because what came on it is no answer.
    pub(crate) fn count_reset(&self) {
        if self.is_stream() && !self.is_broken.replace(true) {
            self.account.stats.inc(stat::UPSTREAM_RQ_TX_RESET);
        }
    }

    /// The head of an answer means nothing: what else comes on this connection cannot be trusted either.
    #[cold]
    pub(crate) fn refuse_answer(&self) {
        match &self.io {
            Io::Http2(_) if self.account.soundness.spares() => {}
            Io::Http2(_) => self.account.lose(),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => {
                self.stats().inc(stat::UPSTREAM_CX_PROTOCOL_ERROR);
            }
        }
    }

    /// The codec gave this stream of HTTP/2 up with `error`, `begun` when the head of its answer had come.
    #[cold]
    pub(crate) fn gave_up(&self, error: &h2::Error, begun: bool) {
        let Io::Http2(stream) = &self.io else { return };
        if !error.is_reset() {
            self.account.lose();
        } else if error.reason() == Some(h2::Reason::PROTOCOL_ERROR) && !(begun && stream.counts_bytes()) {
            self.refuse_answer();
        }
    }

    /// The connection ends, or has ended, because what came on it is no HTTP.
    pub(crate) fn is_unsound(&self) -> bool {
        self.account.soundness.is_lost()
    }

    /// Whether it carried a request before this one.
    pub(crate) fn is_reused(&self) -> bool {
        self.account.served.get() > 1
    }

    /// Nothing came from a peer that had nothing to say, and the connection is not too old.
    #[inline(always)]
    pub(super) fn is_usable(&mut self, plan: &ClusterPlan, now: Moment) -> bool {
        // Used a moment ago: what could have happened since could as well happen a moment later.
        if self.idle_since.get() == now {
            return true;
        }
        let options = &plan.model.upstream;
        let idle = now.saturating_duration_since(self.idle_since.get());
        if options.idle_timeout.is_some_and(|limit| idle >= limit) {
            self.account.stats.inc(stat::UPSTREAM_CX_IDLE_TIMEOUT);
            return false;
        }
        if options
            .max_connection_duration
            .is_some_and(|limit| now.saturating_duration_since(self.account.created) >= limit)
        {
            self.account.stats.inc(stat::UPSTREAM_CX_MAX_DURATION_REACHED);
            return false;
        }
        // Ready to read means closed, or bytes that nobody asked for; either ends it.
        let quiet = self.io.is_quiet();
        self.account.ended_by_peer.set(!quiet);
        quiet
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.input.release(&self.account.worker.buffers);
        if let Io::Http2(stream) = &self.io {
            self.account.busy.set(self.account.busy.get().saturating_sub(1));
            if !self.is_broken.get() && stream.is_cut_off() {
                self.account.stats.inc(stat::UPSTREAM_RQ_TX_RESET);
            }
        }
    }
}

impl Account {
    /// The peer ended the connection.
    pub(crate) fn peer_ended(&self) {
        self.ended_by_peer.set(true);
    }

    /// What came is no HTTP: the connection ends, and all its streams with it.
    #[cold]
    pub(crate) fn lose(&self) {
        if self.soundness.lose() {
            self.stats.inc(stat::UPSTREAM_CX_PROTOCOL_ERROR);
        }
    }

    /// The connection is over; its streams hear of it, and are gone before this is.
    pub(crate) fn note_end(&self) {
        // Where it ends for what came on it, its streams are reset first.
        self.ended_busy.set(self.busy.get() > 0 && !self.soundness.is_lost());
    }

    /// How long the connection has lived.
    pub(crate) fn age(&self, now: Moment) -> std::time::Duration {
        now.saturating_duration_since(self.created)
    }

    /// Requests that the connection carried so far.
    pub(crate) fn served(&self) -> u32 {
        self.served.get()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.host.end_connection();
        self.stats.gauge_dec(stat::UPSTREAM_CX_ACTIVE);
        self.stats.inc(stat::UPSTREAM_CX_DESTROY);
        let (ended, ended_busy) = match self.ended_by_peer.get() {
            true => (stat::UPSTREAM_CX_DESTROY_REMOTE, stat::UPSTREAM_CX_DESTROY_REMOTE_WITH_ACTIVE_RQ),
            false => (stat::UPSTREAM_CX_DESTROY_LOCAL, stat::UPSTREAM_CX_DESTROY_LOCAL_WITH_ACTIVE_RQ),
        };
        self.stats.inc(ended);
        if self.busy.get() > 0 || self.ended_busy.get() {
            self.stats.inc(stat::UPSTREAM_CX_DESTROY_WITH_ACTIVE_RQ);
            self.stats.inc(ended_busy);
        }
        let age = self.age(self.worker.clock.now());
        self.stats.record(stat::UPSTREAM_CX_LENGTH_MS, millis(age));
        self.stats.record(stat::UPSTREAM_RQ_PER_CX, u64::from(self.served.get()));
    }
}

/// A gauge that is one higher while this lives.
pub(crate) struct Active {
    stats: Rc<Block>,
    gauge: postrider_telemetry::stats::Gauge,
}

impl Active {
    pub(crate) fn count(stats: &Rc<Block>, gauge: postrider_telemetry::stats::Gauge) -> Active {
        stats.gauge_inc(gauge);
        Active { stats: stats.clone(), gauge }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.stats.gauge_dec(self.gauge);
    }
}
