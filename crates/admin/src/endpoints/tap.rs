//! `/tap`: traces of requests, sent as they are made for as long as the client stays.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::control::Control;
use crate::request::Request;
use crate::response::{Feed, Reply};

pub(super) const PARAMETERS: &[(&str, &str)] =
    &[("only_failed", "Only requests that failed: status 500 or above, no answer, or a response flag")];

/// Gathered traces are sent at the latest when they have so many bytes.
pub const MAX_BATCH_BYTES: usize = 16 << 20;

/// A tap in force. Dropping it ends it.
pub struct Tap {
    /// Each makes its bytes when it is sent. The queue's bound is what a slow client may be behind.
    pub traces: mpsc::Receiver<Trace>,
    /// Traces are sent together, and then it is over.
    pub batch: Option<TapBatch>,
    /// Ends the tap when it is dropped.
    pub guard: Box<dyn Send>,
}

pub type Trace = Box<dyn FnOnce() -> Vec<u8> + Send>;

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("batch", &self.batch).finish_non_exhaustive()
    }
}

/// When gathered traces are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapBatch {
    /// When there are so many.
    pub traces: u64,
    /// When so much time has passed; `None` waits for them.
    pub timeout: Option<Duration>,
}

pub(super) fn tap(control: &dyn Control, request: &Request) -> Reply {
    if request.body.is_empty() {
        return Reply::bad_request("/tap requires a JSON/YAML body");
    }
    match control.tap(&request.body, request.has("only_failed")) {
        Ok(tap) => Reply::feed(Box::new(Traces::of(tap))),
        Err(why) => Reply::bad_request(why),
    }
}

struct Traces {
    /// `None` when it is over.
    tap: Option<Tap>,
    gathered: Vec<u8>,
    count: u64,
    /// Begins with the answer.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Traces {
    fn of(tap: Tap) -> Traces {
        let timeout = tap.batch.and_then(|batch| batch.timeout);
        let timer = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        Traces { tap: Some(tap), gathered: Vec::new(), count: 0, timer }
    }

    /// What was gathered, as the last that is sent.
    fn finish(&mut self) -> Option<Vec<u8>> {
        self.tap = None;
        Some(std::mem::take(&mut self.gathered)).filter(|bytes| !bytes.is_empty())
    }
}

impl Feed for Traces {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        loop {
            let Some(tap) = &mut self.tap else { return Poll::Ready(None) };
            let wanted = tap.batch.map(|batch| batch.traces);
            match tap.traces.poll_recv(context) {
                Poll::Ready(Some(trace)) => {
                    let Some(wanted) = wanted else { return Poll::Ready(Some(trace())) };
                    self.gathered.append(&mut trace());
                    self.count += 1;
                    if self.count >= wanted || self.gathered.len() >= MAX_BATCH_BYTES {
                        return Poll::Ready(self.finish());
                    }
                }
                Poll::Ready(None) => return Poll::Ready(self.finish()),
                Poll::Pending => break,
            }
        }
        match self.timer.as_mut().map(|timer| timer.as_mut().poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(self.finish()),
            _ => Poll::Pending,
        }
    }
}
