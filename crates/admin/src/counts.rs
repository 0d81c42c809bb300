//! What the admin's own clients do, under the names that Envoy has for its admin: `listener.admin.…` and `http.admin.…`.
//!
//! They are counted on the admin's thread, which alone has these blocks.

use postrider_telemetry::stats::sets::{
    count_downstream_response, count_listener_response, http, listener, listener_http, listener_worker,
};
use postrider_telemetry::{Block, WorkerStats};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The name of the admin's listener, and of its connection manager.
pub(crate) const ADMIN: &str = "admin";

/// The admin's statistics.
#[derive(Debug)]
pub(crate) struct Counts {
    http: Rc<Block>,
    listener: Rc<Block>,
    answers: Rc<Block>,
    thread: Rc<Block>,
}

impl Counts {
    pub(crate) fn new(stats: &WorkerStats) -> Rc<Counts> {
        Rc::new(Counts {
            http: stats.block(&http::SET, ADMIN),
            listener: stats.block(&listener::SET, ADMIN),
            answers: stats.block(&listener_http::SET, &format!("{ADMIN}.http.{ADMIN}")),
            thread: stats.block(&listener_worker::SET, &format!("{ADMIN}.main_thread")),
        })
    }

    /// A connection was accepted.
    pub(crate) fn accepted(self: &Rc<Self>) -> Counted {
        self.listener.inc(listener::DOWNSTREAM_CX_TOTAL);
        self.listener.gauge_inc(listener::DOWNSTREAM_CX_ACTIVE);
        self.thread.inc(listener_worker::DOWNSTREAM_CX_TOTAL);
        self.thread.gauge_inc(listener_worker::DOWNSTREAM_CX_ACTIVE);
        self.http.inc(http::DOWNSTREAM_CX_TOTAL);
        self.http.inc(http::DOWNSTREAM_CX_HTTP1_TOTAL);
        self.http.gauge_inc(http::DOWNSTREAM_CX_ACTIVE);
        self.http.gauge_inc(http::DOWNSTREAM_CX_HTTP1_ACTIVE);
        Counted { counts: self.clone(), since: Instant::now(), ends_here: Cell::new(true) }
    }

    /// A request has come.
    pub(crate) fn begun(&self) {
        self.http.inc(http::DOWNSTREAM_RQ_HTTP1_TOTAL);
        self.http.gauge_inc(http::DOWNSTREAM_RQ_ACTIVE);
    }

    /// Its answer is made.
    pub(crate) fn answered(&self, status: u16, took: Duration) {
        self.http.gauge_dec(http::DOWNSTREAM_RQ_ACTIVE);
        self.http.record(http::DOWNSTREAM_RQ_TIME, millis(took));
        count_downstream_response(&self.http, status);
        count_listener_response(&self.answers, status);
    }
}

/// A connection that counts as long as it is there.
pub(crate) struct Counted {
    counts: Rc<Counts>,
    since: Instant,
    ends_here: Cell<bool>,
}

impl Counted {
    /// The client has ended it.
    pub(crate) fn left(&self) {
        self.ends_here.set(false);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Counts { http, listener, thread, .. } = &*self.counts;
        let length = millis(self.since.elapsed());
        listener.gauge_dec(listener::DOWNSTREAM_CX_ACTIVE);
        listener.inc(listener::DOWNSTREAM_CX_DESTROY);
        listener.record(listener::DOWNSTREAM_CX_LENGTH_MS, length);
        thread.gauge_dec(listener_worker::DOWNSTREAM_CX_ACTIVE);
        http.gauge_dec(http::DOWNSTREAM_CX_ACTIVE);
        http.gauge_dec(http::DOWNSTREAM_CX_HTTP1_ACTIVE);
        http.inc(http::DOWNSTREAM_CX_DESTROY);
        http.inc(match self.ends_here.get() {
            true => http::DOWNSTREAM_CX_DESTROY_LOCAL,
            false => http::DOWNSTREAM_CX_DESTROY_REMOTE,
        });
        http.record(http::DOWNSTREAM_CX_LENGTH_MS, length);
    }
}

/// A socket whose bytes are counted.
pub(crate) struct Metered<S> {
    pub(crate) socket: S,
    pub(crate) counts: Rc<Counts>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, into))?;
        let count = into.filled().len() - before;
        self.counts.http.add(http::DOWNSTREAM_CX_RX_BYTES_TOTAL, count as u64);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes))?;
        self.counts.http.add(http::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
