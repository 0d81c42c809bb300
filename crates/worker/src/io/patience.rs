//! How long a peer may leave what is for it waiting (`per_connection_buffer_high_watermark_timeout`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Runs from the first bytes that the system does not take until all of them left, or as many as half a buffer.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// So many bytes are progress.
    enough: usize,
    taken: usize,
    running: Option<Pin<Box<Sleep>>>,
    pub(super) is_over: bool,
}

impl Patience {
    pub(super) fn new(limit: Duration, buffer: usize) -> Patience {
        Patience { limit, enough: (buffer / 2).max(1), taken: 0, running: None, is_over: false }
    }

    /// The system takes nothing at the moment.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let running = self.running.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(running.as_mut().poll(cx));
        self.is_over = true;
        Poll::Ready(())
    }

    /// The system took `count` of the `offered` bytes that wait.
    pub(super) fn took(&mut self, count: usize, offered: usize) {
        self.taken += count;
        if count == offered || self.taken >= self.enough {
            self.taken = 0;
            self.running = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[tokio::test(start_paused = true)]
    async fn it_runs_until_enough_was_taken() {
        let mut patience = Patience::new(Duration::from_secs(2), 100);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(patience.poll_over(&mut cx).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        patience.took(10, 80);
        assert!(patience.poll_over(&mut cx).is_pending());
        patience.took(40, 70);
        assert!(patience.poll_over(&mut cx).is_pending(), "it begins anew");
        tokio::time::advance(Duration::from_secs(1)).await;
        patience.took(30, 30);
        assert!(patience.poll_over(&mut cx).is_pending(), "nothing was left");
        tokio::time::advance(Duration::from_secs(1)).await;
        patience.took(10, 80);
        assert!(patience.poll_over(&mut cx).is_pending());
        tokio::time::advance(Duration::from_millis(1001)).await;
        assert!(patience.poll_over(&mut cx).is_ready());
        assert!(patience.is_over);
    }
}
