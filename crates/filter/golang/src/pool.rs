//! What a worker has for its streams in Go: their objects, used again, and the way back to them from other threads.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_filter_api::Remote;

use crate::apart::Outlet;
use crate::bells::{Bells, Side};
use crate::request::Request;

/// Most objects that are kept for later streams. Go's collector gives them back in bursts.
const MAX_FREE: usize = 4096;

/// One worker, as Go's threads see it.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) worker: u32,
    way: Way,
    /// Objects that Go's collector gave back.
    free: Mutex<Vec<Free>>,
}

/// The way back to the worker from other threads.
#[derive(Debug)]
enum Way {
    Thread(Remote),
    /// It is in another process.
    Process(Outlet),
}

/// An object that nobody uses.
#[derive(Debug)]
struct Free(*mut Request);

// SAFETY: nobody else has the pointer, and all that it leads to may go from thread to thread.
unsafe impl Send for Free {}

thread_local! {
    /// This thread's pool; made when a Go filter is first made here.
    static HERE: Cell<Option<&'static Pool>> = const { Cell::new(None) };
    /// Streams of this worker that wait, by their numbers.
    static WAITING: RefCell<HashMap<u64, Rc<Bells>>> = RefCell::default();
    static LAST_STREAM: Cell<u64> = const { Cell::new(0) };
    /// Free objects that were fetched already.
    static AT_HAND: RefCell<Vec<Free>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    /// The pool of the calling worker. It stays for as long as the process lives: Go's collector gives objects back when it
    /// likes.
    pub(crate) fn here(worker: u32, remote: impl FnOnce() -> Remote) -> &'static Pool {
        HERE.get().unwrap_or_else(|| Pool::make(worker, Way::Thread(remote())))
    }

    /// The pool of a worker's streams in a process of their own, for the thread that does what the worker says.
    pub(crate) fn of_process(worker: u32, outlet: Outlet) -> &'static Pool {
        Pool::make(worker, Way::Process(outlet))
    }

    fn make(worker: u32, way: Way) -> &'static Pool {
        let pool: &'static Pool = Box::leak(Box::new(Pool { worker, way, free: Mutex::default() }));
        HERE.set(Some(pool));
        pool
    }

    /// Where the worker is in another process, the way there.
    #[inline]
    pub(crate) fn outlet(&self) -> Option<&Outlet> {
        match &self.way {
            Way::Thread(_) => None,
            Way::Process(outlet) => Some(outlet),
        }
    }

    /// The calling thread is this pool's worker.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        HERE.get().is_some_and(|here| ptr::eq(here, self))
    }

    /// An object for a stream. On the worker.
    pub(crate) fn take(&'static self) -> *mut Request {
        AT_HAND.with_borrow_mut(|at_hand| {
            if at_hand.is_empty() {
                *at_hand = std::mem::take(&mut *self.lock());
            }
            match at_hand.pop() {
                Some(free) => free.0,
                None => Box::into_raw(Box::new(Request::new(self))),
            }
        })
    }

    /// Nobody uses the object any more. On any thread.
    pub(crate) fn give_back(&self, request: *mut Request) {
        // SAFETY: it was made by `take`, and nobody uses it any more.
        unsafe { (*request).lock().forget() };
        let mut free = self.lock();
        if free.len() < MAX_FREE {
            free.push(Free(request));
            return;
        }
        drop(free);
        // SAFETY: it was made by `take`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(request) });
    }

    /// Rings the bells of a stream, on its worker and not within this call.
    pub(crate) fn wake(&self, stream: u64) {
        if let Way::Thread(remote) = &self.way {
            // Of a worker that has ended, the streams have, too.
            let _ = remote.post(move || ring(stream));
        }
    }

    /// A panic with the lock held leaves a whole list behind.
    fn lock(&self) -> MutexGuard<'_, Vec<Free>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rings the bells of a stream of this worker.
pub(crate) fn ring(stream: u64) {
    let bells = WAITING.with_borrow(|waiting| waiting.get(&stream).cloned());
    if let Some(bells) = bells {
        Side::BOTH.into_iter().for_each(|side| bells.ring(side));
    }
}

/// A number for a stream of this worker, none of which comes twice.
pub(crate) fn next_stream() -> u64 {
    LAST_STREAM.set(LAST_STREAM.get() + 1);
    LAST_STREAM.get()
}

/// From here on the stream is found by [`Pool::wake`].
pub(crate) fn wait(stream: u64, bells: &Rc<Bells>) {
    WAITING.with_borrow_mut(|waiting| {
        waiting.entry(stream).or_insert_with(|| bells.clone());
    });
}

/// The stream is over.
pub(crate) fn leave(stream: u64) {
    WAITING.with_borrow_mut(|waiting| waiting.remove(&stream));
}
