//! A stream's state between its hooks: nothing of it is borrowed twice, a panic ends it and nothing else, and it is not freed
//! while one of its hooks runs.
//!
//! ```text
//! enter ─> hook (state borrowed, panics caught) ─> what it wants done later ─> events that came meanwhile ─> leave
//!                    │ a proxy may call back at once                │
//!                    └─> put off as an event, owned                 └─> other hooks may run here: the state is free
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{Buffer, Header, StreamRef};
use crate::calls::Answer;
use crate::process::{Level, log};

/// What filters of requests and of connections differ in here.
pub(crate) trait Kind: 'static {
    type Filter: 'static;
    type State: 'static;
    /// What a hook wants done when it has returned: a proxy may call other hooks at once when it is asked for one of these.
    type Later;
    /// What came while a hook ran.
    type Event;
    /// What hooks are lent.
    type Lent<'l>;

    fn lend(handle: StreamRef, later: &RefCell<Vec<Self::Later>>) -> Self::Lent<'_>;

    /// Whether nothing is left to decide for the hook behind this.
    fn is_end(later: &Self::Later) -> bool;

    fn perform(later: Self::Later, handle: StreamRef);

    /// What is done about a stream whose hook panicked.
    fn after_panic() -> Self::Later;

    fn tell(event: Self::Event, filter: &Self::Filter, state: &mut Self::State, lent: &mut Self::Lent<'_>);
}

/// An answer that outlives the call that it came with.
pub(crate) struct OwnedAnswer {
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// What the proxy keeps of a stream for the module.
pub(crate) struct Held<K: Kind> {
    /// The configuration, which the proxy keeps longer than its streams.
    filter: *const K::Filter,
    state: RefCell<K::State>,
    later: RefCell<Vec<K::Later>>,
    events: RefCell<VecDeque<K::Event>>,
    /// Hooks that run now, one within the other.
    depth: Cell<u32>,
    /// The proxy is done with the stream.
    gone: Cell<bool>,
    /// A hook panicked, or the last one ran: no other does.
    failed: Cell<bool>,
}

/// What became of a hook.
pub(crate) enum Outcome<T> {
    Returned(T),
    /// The stream has another answer, or is cut off.
    Replied,
    /// It was not run, or panicked.
    Not,
}

impl<K: Kind> Held<K> {
    pub(crate) fn new(filter: *const K::Filter, state: K::State) -> *mut Held<K> {
        Box::into_raw(Box::new(Held {
            filter,
            state: RefCell::new(state),
            later: RefCell::new(Vec::new()),
            events: RefCell::new(VecDeque::new()),
            depth: Cell::new(0),
            gone: Cell::new(false),
            failed: Cell::new(false),
        }))
    }

    /// Runs a hook.
    ///
    /// # Safety
    /// `held` is what [`Held::new`] answered and was not destroyed; `stream` is its stream's handle, in a hook.
    #[inline]
    pub(crate) unsafe fn enter<T>(
        held: *mut Held<K>,
        stream: StreamRef,
        hook: impl FnOnce(&K::Filter, &mut K::State, &mut K::Lent<'_>) -> T,
    ) -> Outcome<T> {
        // SAFETY: by the contract above. It stays until `leave`, because `depth` says so.
        let this = unsafe { &*held };
        this.depth.set(this.depth.get() + 1);
        let mut outcome = this.run(stream, hook);
        if !this.later.borrow().is_empty() {
            let replied = this.do_later(stream);
            if replied {
                outcome = Outcome::Replied;
            }
        }
        if this.depth.get() == 1 && !this.events.borrow().is_empty() {
            this.tell(stream);
        }
        // SAFETY: nothing of it is used any more.
        unsafe { Held::leave(held) };
        outcome
    }

    /// Runs the stream's last hook: what it wants done has no place any more.
    ///
    /// # Safety
    /// As for [`Held::enter`].
    pub(crate) unsafe fn finish(
        held: *mut Held<K>,
        stream: StreamRef,
        hook: impl FnOnce(&K::Filter, &mut K::State, &mut K::Lent<'_>),
    ) {
        // SAFETY: by the contract above.
        let this = unsafe { &*held };
        this.depth.set(this.depth.get() + 1);
        let _ = this.run(stream, hook);
        this.failed.set(true);
        this.later.borrow_mut().clear();
        // SAFETY: nothing of it is used any more.
        unsafe { Held::leave(held) };
    }

    /// Tells the filter of a call, now or when the hook that runs has returned.
    ///
    /// # Safety
    /// As for [`Held::enter`].
    pub(crate) unsafe fn notify(held: *mut Held<K>, stream: StreamRef, event: K::Event) {
        // SAFETY: by the contract above.
        let this = unsafe { &*held };
        this.events.borrow_mut().push_back(event);
        if this.state.try_borrow_mut().is_ok() {
            this.depth.set(this.depth.get() + 1);
            this.tell(stream);
            // SAFETY: nothing of it is used any more.
            unsafe { Held::leave(held) };
        }
    }

    /// Whether a hook of the stream runs, so that another must wait.
    ///
    /// # Safety
    /// As for [`Held::enter`].
    pub(crate) unsafe fn is_busy(held: *mut Held<K>) -> bool {
        // SAFETY: by the contract above.
        unsafe { &*held }.state.try_borrow_mut().is_err()
    }

    /// The proxy is done with the stream.
    ///
    /// # Safety
    /// As for [`Held::enter`], once.
    pub(crate) unsafe fn destroy(held: *mut Held<K>) {
        // SAFETY: by the contract above.
        let this = unsafe { &*held };
        this.gone.set(true);
        this.depth.set(this.depth.get() + 1);
        // SAFETY: nothing of it is used any more.
        unsafe { Held::leave(held) };
    }

    /// # Safety
    /// As for [`Held::enter`]; `held` is not used any more when it is gone.
    unsafe fn leave(held: *mut Held<K>) {
        // SAFETY: by the contract above.
        let this = unsafe { &*held };
        this.depth.set(this.depth.get() - 1);
        if this.depth.get() == 0 && this.gone.get() {
            // SAFETY: made by `new`; the proxy is done with it and no hook of it runs.
            let held = unsafe { Box::from_raw(held) };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(held))) {
                complain("the end of a stream's state", &*panic);
            }
        }
    }

    fn run<T>(
        &self,
        stream: StreamRef,
        hook: impl FnOnce(&K::Filter, &mut K::State, &mut K::Lent<'_>) -> T,
    ) -> Outcome<T> {
        if self.failed.get() || self.gone.get() {
            return Outcome::Not;
        }
        let Ok(mut state) = self.state.try_borrow_mut() else { return Outcome::Not };
        // SAFETY: the proxy keeps configurations longer than their streams.
        let filter = unsafe { &*self.filter };
        // What a panic leaves half done is not looked at again: `failed` sees to it.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut lent = K::lend(stream, &self.later);
            hook(filter, &mut state, &mut lent)
        }));
        result.map_or_else(
            |panic| {
                self.fail(&*panic);
                Outcome::Not
            },
            Outcome::Returned,
        )
    }

    #[cold]
    fn fail(&self, panic: &(dyn Any + Send)) {
        self.failed.set(true);
        complain("a hook", panic);
        let mut later = self.later.borrow_mut();
        later.clear();
        later.push(K::after_panic());
    }

    /// Answers whether the stream has another answer now, or is cut off.
    #[cold]
    fn do_later(&self, stream: StreamRef) -> bool {
        let mut replied = false;
        loop {
            let all = std::mem::take(&mut *self.later.borrow_mut());
            if all.is_empty() {
                return replied;
            }
            for act in all {
                if self.gone.get() {
                    return true;
                }
                replied |= K::is_end(&act);
                K::perform(act, stream);
            }
        }
    }

    #[cold]
    fn tell(&self, stream: StreamRef) {
        loop {
            let Some(event) = self.events.borrow_mut().pop_front() else { return };
            // What a panic wants is done below.
            let _ = self.run(stream, |filter, state, lent| K::tell(event, filter, state, lent));
            self.do_later(stream);
            if self.gone.get() {
                return;
            }
        }
    }
}

impl OwnedAnswer {
    pub(crate) fn of(answer: Answer<'_>) -> OwnedAnswer {
        OwnedAnswer {
            headers: answer.headers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            body: answer.body(),
        }
    }

    pub(crate) fn lend(&self, act: impl FnOnce(Answer<'_>)) {
        let headers: Vec<Header> = self.headers.iter().map(|(name, value)| Header::of(name, value)).collect();
        let body = [Buffer::of(&self.body)];
        act(Answer::new(&headers, if self.body.is_empty() { &[] } else { &body }));
    }
}

/// Writes into the log what a panic said. Where it was, the module's panic hook tells on its standard error.
#[cold]
pub(crate) fn complain(where_: &str, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    log(Level::Error, format_args!("a module panicked in {where_}: {text}"));
}
