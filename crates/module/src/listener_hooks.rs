//! The functions that the proxy calls for filters of listeners. [`entry!`](crate::entry) exports them under the interface's
//! names; nobody else calls them.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef, items};
use crate::calls::{Answer, CallId};
use crate::guard::{self, Outcome, OwnedAnswer, complain};
use crate::hooks::{made, outcome, unmade};
use crate::network::Passage;
use crate::newcomer::{Event, ListenerFilter, OfListener};
use crate::setup::ListenerSetup;

type Held<F> = guard::Held<OfListener<F>>;

/// # Safety
/// For this and all functions below: called by the proxy, as the interface says for the function of that name.
pub unsafe fn config_new<F: ListenerFilter>(config: ConfigRef, name: Buffer, text: Buffer) -> Own {
    // SAFETY: by the contract above.
    let (name, text) = unsafe { (name.bytes(), text.bytes()) };
    let make = || F::new(&mut ListenerSetup::new(config, &String::from_utf8_lossy(name), text));
    made("a filter's configuration", make).cast()
}

/// # Safety
/// As above.
pub unsafe fn config_destroy<F: ListenerFilter>(own: Own) {
    // SAFETY: by the contract above.
    unsafe { unmade::<F>("the end of a filter's configuration", own) };
}

/// What one connection has: its filter lies beside, for what is asked of that alone.
struct Part<F: ListenerFilter> {
    filter: *const F,
    held: *mut Held<F>,
}

/// # Safety
/// As above.
pub unsafe fn new<F: ListenerFilter>(config: Own, _: StreamRef) -> Own {
    let filter = config.cast::<F>();
    // SAFETY: what `config_new` answered.
    let begin = AssertUnwindSafe(|| unsafe { &*filter }.begin());
    match catch_unwind(begin) {
        Ok(Some(state)) => {
            Box::into_raw(Box::new(Part { filter, held: Held::<F>::new(filter, state) })).cast_const().cast()
        }
        Ok(None) => ptr::null(),
        Err(panic) => {
            complain("the beginning of a connection", &*panic);
            ptr::null()
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn destroy<F: ListenerFilter>(own: Own) {
    if !own.is_null() {
        // SAFETY: what `new` answered, once.
        unsafe {
            let part = Box::from_raw(own.cast_mut().cast::<Part<F>>());
            Held::<F>::destroy(part.held);
        }
    }
}

/// # Safety
/// What `new` answered.
unsafe fn held<F: ListenerFilter>(own: Own) -> *mut Held<F> {
    // SAFETY: by the contract above.
    unsafe { (*own.cast::<Part<F>>()).held }
}

fn passage(outcome: Outcome<Passage>) -> c_int {
    (match outcome {
        Outcome::Returned(passage) => passage,
        // It ends, or its filter panicked before.
        Outcome::Replied | Outcome::Not => Passage::Stop,
    }) as c_int
}

/// # Safety
/// As above.
pub unsafe fn accepted<F: ListenerFilter>(newcomer: StreamRef, own: Own) -> c_int {
    // SAFETY: by the contract above. So below.
    passage(unsafe {
        Held::<F>::enter(held::<F>(own), newcomer, |filter, state, newcomer| filter.on_accept(state, newcomer))
    })
}

/// # Safety
/// As above.
pub unsafe fn most<F: ListenerFilter>(_: StreamRef, own: Own) -> usize {
    // SAFETY: as above.
    let filter = unsafe { (*own.cast::<Part<F>>()).filter };
    // SAFETY: what `config_new` answered.
    let ask = AssertUnwindSafe(|| unsafe { &*filter }.most());
    catch_unwind(ask).unwrap_or_else(|panic| {
        complain("how much a filter wants to see", &*panic);
        0
    })
}

/// # Safety
/// As above.
pub unsafe fn data<F: ListenerFilter>(newcomer: StreamRef, own: Own, _: usize) -> c_int {
    // SAFETY: as above.
    passage(unsafe {
        Held::<F>::enter(held::<F>(own), newcomer, |filter, state, newcomer| filter.on_data(state, newcomer))
    })
}

/// # Safety
/// As above.
pub unsafe fn closed<F: ListenerFilter>(newcomer: StreamRef, own: Own) {
    // SAFETY: as above.
    unsafe { Held::<F>::notify(held::<F>(own), newcomer, Event::Closed) };
}

/// # Safety
/// As above.
pub unsafe fn scheduled<F: ListenerFilter>(newcomer: StreamRef, own: Own, event: u64) {
    // SAFETY: as above.
    let _ = unsafe {
        Held::<F>::enter(held::<F>(own), newcomer, |filter, state, newcomer| {
            filter.on_scheduled(state, newcomer, event);
        })
    };
}

/// # Safety
/// As above.
#[allow(clippy::too_many_arguments, reason = "the interface's")]
pub unsafe fn call_done<F: ListenerFilter>(
    newcomer: StreamRef,
    own: Own,
    id: u64,
    result: c_int,
    headers: *const Header,
    header_count: usize,
    body: *const Buffer,
    body_count: usize,
) {
    // SAFETY: by the contract above.
    let (headers, body) = unsafe { (items(headers, header_count), items(body, body_count)) };
    let answer = outcome(result, Answer::new(headers, body));
    // SAFETY: as above.
    unsafe {
        let (held, call) = (held::<F>(own), CallId(id));
        if Held::<F>::is_busy(held) {
            Held::<F>::notify(held, newcomer, Event::Done(call, answer.map(OwnedAnswer::of)));
        } else {
            Held::<F>::enter(held, newcomer, |filter, state, newcomer| {
                filter.on_call_done(state, newcomer, call, answer);
            });
        }
    }
}
