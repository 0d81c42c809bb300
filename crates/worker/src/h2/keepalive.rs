//! PINGs that show whether a peer is still there (RFC 9113 section 6.7, Envoy's `KeepaliveSettings`).

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use postrider_filter_api::Moment;
use postrider_model::Http2Keepalive;

use crate::timers::Deadline;
use crate::worker::Worker;

pub(super) struct Keepalive {
    ping: PingPong,
    options: Http2Keepalive,
    worker: Rc<Worker>,
    deadline: Deadline,
    /// When the next one is due; `None` when only [`Keepalive::ask_now`] sends one.
    next: Option<Moment>,
    /// When the one was sent that was not answered yet.
    sent: Option<Moment>,
}

impl Keepalive {
    /// `ping` is the connection's, which has one to give.
    pub(super) fn new(
        ping: Option<PingPong>,
        options: &Option<Http2Keepalive>,
        worker: &Rc<Worker>,
    ) -> Option<Keepalive> {
        let options = options.clone()?;
        let deadline = worker.timers.register();
        let mut keepalive =
            Keepalive { ping: ping?, options, worker: worker.clone(), deadline, next: None, sent: None };
        keepalive.plan(worker.clock.now());
        Some(keepalive)
    }

    /// Sends one with what goes out next, whatever the clock says.
    pub(super) fn ask_now(&mut self) {
        if self.sent.is_none() {
            self.next = Some(self.worker.clock.now());
        }
    }

    /// Sends what is due and takes what is answered; ready when an answer is overdue. To be polled after the connection.
    pub(super) fn poll_dead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.worker.clock.now();
            let Some(sent) = self.sent else {
                if self.next.is_none_or(|next| now < next) {
                    return self.wait(self.next, cx);
                }
                if self.ping.send_ping(Ping::opaque()).is_err() {
                    // The connection is ending, which whoever polls it learns.
                    return Poll::Pending;
                }
                self.sent = Some(now);
                continue;
            };
            match self.ping.poll_pong(cx) {
                Poll::Ready(Ok(_)) => {
                    self.sent = None;
                    self.plan(now);
                }
                Poll::Ready(Err(_)) => return Poll::Pending,
                Poll::Pending if now >= sent + self.options.timeout => return Poll::Ready(()),
                Poll::Pending => return self.wait(Some(sent + self.options.timeout), cx),
            }
        }
    }

    fn wait(&self, until: Option<Moment>, cx: &Context<'_>) -> Poll<()> {
        self.deadline.set(until);
        self.deadline.watch(cx.waker());
        Poll::Pending
    }

    fn plan(&mut self, now: Moment) {
        let random = self.worker.random.next();
        self.next =
            self.options.interval.map(|interval| now + with_jitter(interval, self.options.jitter_percent, random));
    }
}

/// `interval` and up to `percent` of it more.
fn with_jitter(interval: Duration, percent: f64, random: u64) -> Duration {
    let share = (random >> 11) as f64 / (1u64 << 53) as f64;
    interval + interval.mul_f64((percent / 100.0).clamp(0.0, 1.0) * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_share() {
        let second = Duration::from_secs(1);
        assert_eq!(with_jitter(second, 15.0, 0), second);
        let most = with_jitter(second, 15.0, u64::MAX);
        assert!(most > second + Duration::from_millis(149) && most <= second + Duration::from_millis(150), "{most:?}");
        assert_eq!(with_jitter(second, 0.0, u64::MAX), second);
    }
}
