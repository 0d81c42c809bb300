//! The functions that the proxy calls for filters of connections. [`entry!`](crate::entry) exports them under the interface's
//! names; nobody else calls them.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef, items};
use crate::calls::{Answer, CallId};
use crate::guard::{self, Outcome, OwnedAnswer, complain};
use crate::hooks::{made, outcome, unmade};
use crate::network::{ConnectionEvent, Event, Network, NetworkFilter, Passage};
use crate::setup::NetworkSetup;

type Held<F> = guard::Held<Network<F>>;

/// # Safety
/// For this and all functions below: called by the proxy, as the interface says for the function of that name.
pub unsafe fn config_new<F: NetworkFilter>(config: ConfigRef, name: Buffer, text: Buffer) -> Own {
    // SAFETY: by the contract above.
    let (name, text) = unsafe { (name.bytes(), text.bytes()) };
    let make = || F::new(&mut NetworkSetup::new(config, &String::from_utf8_lossy(name), text));
    made("a filter's configuration", make).cast()
}

/// # Safety
/// As above.
pub unsafe fn config_destroy<F: NetworkFilter>(own: Own) {
    // SAFETY: by the contract above.
    unsafe { unmade::<F>("the end of a filter's configuration", own) };
}

/// # Safety
/// As above.
pub unsafe fn new<F: NetworkFilter>(config: Own, _: StreamRef) -> Own {
    let filter = config.cast::<F>();
    // SAFETY: what `config_new` answered.
    let begin = AssertUnwindSafe(|| unsafe { &*filter }.begin());
    match catch_unwind(begin) {
        Ok(Some(state)) => Held::<F>::new(filter, state).cast_const().cast(),
        Ok(None) => ptr::null(),
        Err(panic) => {
            complain("the beginning of a connection", &*panic);
            ptr::null()
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn destroy<F: NetworkFilter>(own: Own) {
    if !own.is_null() {
        // SAFETY: what `new` answered, once.
        unsafe { Held::<F>::destroy(held::<F>(own)) };
    }
}

fn held<F: NetworkFilter>(own: Own) -> *mut Held<F> {
    own.cast_mut().cast()
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
pub unsafe fn connected<F: NetworkFilter>(connection: StreamRef, own: Own) -> c_int {
    // SAFETY: by the contract above. So below.
    passage(unsafe {
        Held::<F>::enter(held(own), connection, |filter, state, connection| filter.on_connection(state, connection))
    })
}

/// # Safety
/// As above.
pub unsafe fn received<F: NetworkFilter>(connection: StreamRef, own: Own, _: usize, end: bool) -> c_int {
    // SAFETY: as above.
    passage(unsafe {
        Held::<F>::enter(held(own), connection, |filter, state, connection| filter.on_received(state, connection, end))
    })
}

/// # Safety
/// As above.
pub unsafe fn sent<F: NetworkFilter>(connection: StreamRef, own: Own, _: usize, end: bool) -> c_int {
    // SAFETY: as above.
    passage(unsafe {
        Held::<F>::enter(held(own), connection, |filter, state, connection| filter.on_sent(state, connection, end))
    })
}

/// # Safety
/// As above.
pub unsafe fn event<F: NetworkFilter>(connection: StreamRef, own: Own, event: c_int) {
    let event = match event {
        0 => ConnectionEvent::ClosedByClient,
        1 => ConnectionEvent::ClosedByProxy,
        _ => ConnectionEvent::Connected,
    };
    // SAFETY: as above.
    unsafe { Held::<F>::notify(held::<F>(own), connection, Event::Of(event)) };
}

/// # Safety
/// As above.
pub unsafe fn scheduled<F: NetworkFilter>(connection: StreamRef, own: Own, event: u64) {
    // SAFETY: as above.
    let _ = unsafe {
        Held::<F>::enter(held(own), connection, |filter, state, connection| {
            filter.on_scheduled(state, connection, event);
        })
    };
}

/// # Safety
/// As above.
pub unsafe fn above<F: NetworkFilter>(connection: StreamRef, own: Own) {
    // SAFETY: as above.
    unsafe { congested::<F>(connection, own, true) };
}

/// # Safety
/// As above.
pub unsafe fn below<F: NetworkFilter>(connection: StreamRef, own: Own) {
    // SAFETY: as above.
    unsafe { congested::<F>(connection, own, false) };
}

/// # Safety
/// As above.
unsafe fn congested<F: NetworkFilter>(connection: StreamRef, own: Own, much: bool) {
    // SAFETY: as above.
    let _ = unsafe {
        Held::<F>::enter(held(own), connection, |filter, state, connection| {
            filter.on_congested(state, connection, much);
        })
    };
}

/// # Safety
/// As above.
#[allow(clippy::too_many_arguments, reason = "the interface's")]
pub unsafe fn call_done<F: NetworkFilter>(
    connection: StreamRef,
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
    let (held, call) = (held::<F>(own), CallId(id));
    // SAFETY: as above.
    unsafe {
        if Held::<F>::is_busy(held) {
            Held::<F>::notify(held, connection, Event::Done(call, answer.map(OwnedAnswer::of)));
        } else {
            Held::<F>::enter(held, connection, |filter, state, connection| {
                filter.on_call_done(state, connection, call, answer);
            });
        }
    }
}
