//! How other threads reach a worker: plugins with threads of their own answer from wherever they are.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What a worker is asked to do.
pub type Job = Box<dyn FnOnce() + Send>;

/// A way to one worker, for any thread.
#[derive(Clone)]
pub struct Remote(Arc<Mailbox>);

/// The worker's end. Without it, nothing arrives.
pub struct Jobs(Arc<Mailbox>);

/// The worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

#[derive(Default)]
struct Mailbox(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    jobs: Vec<Job>,
    waker: Option<Waker>,
    closed: bool,
}

impl Remote {
    /// A way to whoever runs the jobs.
    pub fn new() -> (Remote, Jobs) {
        let mailbox = Arc::new(Mailbox::default());
        (Remote(mailbox.clone()), Jobs(mailbox))
    }

    /// Has the worker run `job`, after those that were posted before it and never within this call. A worker is woken once
    /// for all that is posted until it looks.
    ///
    /// # Errors
    /// There is no worker any more.
    pub fn post(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Gone> {
        let job: Job = Box::new(job);
        let waker = {
            let mut waiting = self.0.lock();
            if waiting.closed {
                // The job may hold a way to this mailbox: it is dropped behind the lock.
                drop(waiting);
                return Err(Gone);
            }
            waiting.jobs.push(job);
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl Jobs {
    /// What was posted since the last look, oldest first.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<Vec<Job>> {
        let mut waiting = self.0.lock();
        if !waiting.jobs.is_empty() {
            return Poll::Ready(std::mem::take(&mut waiting.jobs));
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        let jobs = {
            let mut waiting = self.0.lock();
            waiting.closed = true;
            std::mem::take(&mut waiting.jobs)
        };
        drop(jobs);
    }
}

impl Mailbox {
    /// Nothing that can panic runs behind the lock.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn jobs_of_other_threads_run_in_their_order() {
        let (remote, jobs) = Remote::new();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let of_thread = (remote.clone(), ran.clone());
        let posting = move || {
            for number in 0..3 {
                let ran = of_thread.1.clone();
                of_thread.0.post(move || ran.lock().unwrap().push(number)).unwrap();
            }
        };
        std::thread::spawn(posting).join().unwrap();
        let Poll::Ready(posted) = jobs.poll(&Context::from_waker(Waker::noop())) else { panic!("nothing came") };
        posted.into_iter().for_each(|job| job());
        assert_eq!(*ran.lock().unwrap(), [0, 1, 2]);
        assert!(jobs.poll(&Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn a_worker_that_waits_is_woken_once() {
        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (remote, jobs) = Remote::new();
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(count.clone());
        assert!(jobs.poll(&Context::from_waker(&waker)).is_pending());
        remote.post(|| {}).unwrap();
        remote.post(|| {}).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(matches!(jobs.poll(&Context::from_waker(&waker)), Poll::Ready(jobs) if jobs.len() == 2));
    }

    #[test]
    fn a_worker_that_has_ended_is_posted_nothing() {
        let (remote, jobs) = Remote::new();
        let inner = remote.clone();
        remote.post(move || drop(inner)).unwrap();
        drop(jobs);
        assert_eq!(remote.post(|| {}), Err(Gone));
    }
}
