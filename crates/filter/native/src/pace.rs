//! Bodies that go on no faster than a bucket allows.

use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{Action, Bucket, CallHandle, Moment, Stream};

/// One direction of one stream.
pub(crate) struct Pace {
    bucket: Arc<Bucket>,
    interval: Duration,
    /// When the bucket is looked at again.
    due: Moment,
    wait: Option<CallHandle>,
}

/// What becomes of the piece in hand.
pub(crate) enum Step {
    /// So many bytes of it go on now, which may be none or all of them.
    Go(usize),
    /// It is too early to look again.
    Wait,
}

impl Pace {
    /// Takes from `bucket`, and when that does not suffice looks again every `interval`.
    pub(crate) fn new(bucket: Arc<Bucket>, interval: Duration) -> Pace {
        Pace { bucket, interval, due: Moment::default(), wait: None }
    }

    /// A bucket for so many bytes per second: what a second brings at most, and of the first one only an interval's.
    pub(crate) fn bucket(kib_per_second: u64, interval: Duration) -> Bucket {
        let rate = kib_per_second as f64 * 1024.0;
        Bucket::holding((rate * interval.as_secs_f64()).floor(), rate, rate)
    }

    /// How many of `held` bytes might go on now. They are taken from the bucket, whatever becomes of the rest.
    pub(crate) fn draw(&self, held: usize, now: Moment) -> usize {
        self.bucket.take_up_to(now, held)
    }

    /// What of `held` bytes may go on now; to be asked again when they did, and when a wait is over.
    pub(crate) fn step(&mut self, held: usize, stream: &Stream<'_>) -> Step {
        let now = stream.host.now();
        if now < self.due {
            let left = self.due.saturating_duration_since(now);
            self.wait = Some(stream.resume_after(left));
            return Step::Wait;
        }
        let taken = self.bucket.take_up_to(now, held);
        self.wait = None;
        if taken < held {
            self.due = now + self.interval;
        }
        if taken == 0 && held > 0 {
            self.wait = Some(stream.resume_after(self.interval));
        }
        Step::Go(taken)
    }
}

impl Step {
    /// The hook's answer about `held` bytes.
    pub(crate) fn action(&self, held: usize) -> Action {
        match self {
            Step::Go(taken) if *taken == held => Action::Continue,
            Step::Go(0) | Step::Wait => Action::Pause,
            Step::Go(taken) => Action::Part(*taken),
        }
    }
}
