//! What other threads post to the thread that tries plugins out. It is one worker whatever is loaded: a runtime may know the way to
//! it for as long as the process lives.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use postrider_filter_api::{Jobs, Remote};

/// The calling thread's.
pub(crate) fn here() -> Rc<(Remote, Jobs)> {
    thread_local! {
        static MAILBOX: Rc<(Remote, Jobs)> = Rc::new(Remote::new());
    }
    MAILBOX.with(Rc::clone)
}

/// Waits until something was posted, for so long at most, and runs it; whether there was any.
pub(crate) fn run_posted(jobs: &Jobs, patience: Duration) -> bool {
    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let deadline = Instant::now() + patience;
    loop {
        if let Poll::Ready(jobs) = jobs.poll(&Context::from_waker(&waker)) {
            jobs.into_iter().for_each(|job| job());
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // Whatever else ends it, it looks again.
        std::thread::park_timeout(left);
    }
}

/// A thread that waits.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_posts_is_waited_for() {
        let mailbox = here();
        let remote = mailbox.0.clone();
        let poster = std::thread::spawn(move || remote.post(|| ()));
        assert!(run_posted(&mailbox.1, Duration::from_secs(60)));
        assert_eq!(poster.join().unwrap(), Ok(()));
        assert!(!run_posted(&mailbox.1, Duration::ZERO) && Rc::ptr_eq(&mailbox, &here()));
    }
}
