//! The functions that the proxy calls, for one type of filter. [`entry!`](crate::entry) exports them under the interface's
//! names; nobody else calls them.

use std::any::Any;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{Buffer, ConfigRef, Header, Own, StreamRef, items};
use crate::background::Background;
use crate::calls::{Answer, CallId, Failure};
use crate::filter::{Head, HttpFilter, Piece, RouteConfig, Trailers};
use crate::guard::{self, Outcome, OwnedAnswer, complain};
use crate::http::{Event, Http};
use crate::process::{Level, log};
use crate::setup::{Refusal, Setup};

/// What the proxy keeps of a stream for such a filter.
pub(crate) type Held<F> = guard::Held<Http<F>>;

/// What the interface's version is that this crate is built on: the oldest, which all proxies take.
pub const VERSION: &std::ffi::CStr = c"v0.1.0";

/// The version, where the proxy reads it.
pub fn version() -> *const c_char {
    VERSION.as_ptr()
}

/// What somebody's constructor made, on the heap; null when it did not.
pub(crate) fn made<T>(what: &str, make: impl FnOnce() -> Result<T, Refusal>) -> *const T {
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(Ok(value)) => Box::into_raw(Box::new(value)).cast_const(),
        Ok(Err(refusal)) => {
            log(Level::Error, format_args!("a module refuses {what}: {}", refusal.text()));
            ptr::null()
        }
        Err(panic) => {
            complain(what, &*panic);
            ptr::null()
        }
    }
}

/// # Safety
/// `own` is what [`made`] answered, once; nobody uses it any more.
pub(crate) unsafe fn unmade<T>(what: &str, own: Own) {
    if own.is_null() {
        return;
    }
    // SAFETY: by the contract above.
    let value = unsafe { Box::from_raw(own.cast::<T>().cast_mut()) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        complain(what, &*panic);
    }
}

/// # Safety
/// For this and all functions below: called by the proxy, as the interface says for the function of that name.
pub unsafe fn config_new<F: HttpFilter>(config: ConfigRef, name: Buffer, text: Buffer) -> Own {
    // SAFETY: by the contract above.
    let (name, text) = unsafe { (name.bytes(), text.bytes()) };
    made("a filter's configuration", || F::new(&mut Setup::new(config, &String::from_utf8_lossy(name), text))).cast()
}

/// # Safety
/// As above.
pub unsafe fn config_destroy<F: HttpFilter>(own: Own) {
    // SAFETY: by the contract above.
    unsafe { unmade::<F>("the end of a filter's configuration", own) };
}

/// # Safety
/// As above.
pub unsafe fn route_config_new<R: RouteConfig>(name: Buffer, text: Buffer) -> Own {
    // SAFETY: by the contract above.
    let (name, text) = unsafe { (name.bytes(), text.bytes()) };
    let make = || {
        let config: Box<dyn Any + Send + Sync> = Box::new(R::new(&String::from_utf8_lossy(name), text)?);
        Ok(config)
    };
    made("a route's configuration", make).cast()
}

/// # Safety
/// As above.
pub unsafe fn route_config_destroy(own: Own) {
    // SAFETY: by the contract above.
    unsafe { unmade::<Box<dyn Any + Send + Sync>>("the end of a route's configuration", own) };
}

/// # Safety
/// As above.
pub unsafe fn wanted<F: HttpFilter>(own: Own) -> u32 {
    // SAFETY: what `config_new` answered.
    let filter = unsafe { &*own.cast::<F>() };
    catch_unwind(AssertUnwindSafe(|| filter.hooks().bits())).unwrap_or(crate::Hooks::ALL.bits())
}

/// # Safety
/// As above.
pub unsafe fn new<F: HttpFilter>(config: Own, _: StreamRef) -> Own {
    let filter = config.cast::<F>();
    // SAFETY: what `config_new` answered.
    let begin = AssertUnwindSafe(|| unsafe { &*filter }.begin());
    match catch_unwind(begin) {
        Ok(Some(state)) => Held::<F>::new(filter, state).cast_const().cast(),
        Ok(None) => ptr::null(),
        Err(panic) => {
            complain("the beginning of a stream", &*panic);
            ptr::null()
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn destroy<F: HttpFilter>(own: Own) {
    if !own.is_null() {
        // SAFETY: what `new` answered, once.
        unsafe { Held::<F>::destroy(held::<F>(own)) };
    }
}

fn held<F: HttpFilter>(own: Own) -> *mut Held<F> {
    own.cast_mut().cast()
}

macro_rules! on_message {
    ($($name:ident = $method:ident($($end:ident)?) -> $answer:ident, $stopped:ident;)*) => {
        $(
            /// # Safety
            /// As above.
            pub unsafe fn $name<F: HttpFilter>(stream: StreamRef, own: Own $(, $end: bool)?) -> c_int {
                // SAFETY: by the contract above.
                let outcome = unsafe {
                    Held::<F>::enter(held(own), stream, |filter, state, stream| filter.$method(state, stream $(, $end)?))
                };
                (match outcome {
                    Outcome::Returned(answer) => answer,
                    Outcome::Replied => $answer::$stopped,
                    Outcome::Not => $answer::Continue,
                }) as c_int
            }
        )*
    };
}

on_message! {
    request_headers = on_request_headers(end) -> Head, Stop;
    request_body = on_request_body(end) -> Piece, StopNoBuffer;
    request_trailers = on_request_trailers() -> Trailers, Stop;
    response_headers = on_response_headers(end) -> Head, Stop;
    response_body = on_response_body(end) -> Piece, StopNoBuffer;
    response_trailers = on_response_trailers() -> Trailers, Stop;
}

/// # Safety
/// As above.
pub unsafe fn local_reply<F: HttpFilter>(stream: StreamRef, own: Own, status: u32, details: Buffer) -> c_int {
    // SAFETY: by the contract above.
    let details = unsafe { details.bytes() };
    // SAFETY: by the contract above.
    let _ = unsafe {
        Held::<F>::enter(held(own), stream, |filter, state, stream| {
            let status = u16::try_from(status).unwrap_or(0);
            filter.on_local_reply(state, stream, status, &String::from_utf8_lossy(details));
        })
    };
    0
}

/// # Safety
/// As above.
pub unsafe fn complete<F: HttpFilter>(stream: StreamRef, own: Own) {
    // SAFETY: by the contract above.
    unsafe { Held::<F>::finish(held(own), stream, |filter, state, stream| filter.on_complete(state, stream)) };
}

/// # Safety
/// As above.
pub unsafe fn scheduled<F: HttpFilter>(stream: StreamRef, own: Own, event: u64) {
    // SAFETY: by the contract above.
    let _ = unsafe {
        Held::<F>::enter(held(own), stream, |filter, state, stream| filter.on_scheduled(state, stream, event))
    };
}

/// # Safety
/// As above.
pub unsafe fn congested<F: HttpFilter>(stream: StreamRef, own: Own, much: bool) {
    // SAFETY: by the contract above.
    let _ = unsafe {
        Held::<F>::enter(held(own), stream, |filter, state, stream| filter.on_congested(state, stream, much))
    };
}

pub(crate) fn outcome<'a>(result: c_int, answer: Answer<'a>) -> Result<Answer<'a>, Failure> {
    match result {
        0 => Ok(answer),
        2 => Err(Failure::TooLarge),
        _ => Err(Failure::Reset),
    }
}

/// # Safety
/// As above.
#[allow(clippy::too_many_arguments, reason = "the interface's")]
pub unsafe fn call_done<F: HttpFilter>(
    stream: StreamRef,
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
    // SAFETY: by the contract above. So below.
    unsafe {
        if Held::<F>::is_busy(held) {
            Held::<F>::notify(held, stream, Event::Done(call, answer.map(OwnedAnswer::of)));
        } else {
            Held::<F>::enter(held, stream, |filter, state, stream| filter.on_call_done(state, stream, call, answer));
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn call_headers<F: HttpFilter>(
    stream: StreamRef,
    own: Own,
    id: u64,
    headers: *const Header,
    count: usize,
    end: bool,
) {
    // SAFETY: by the contract above.
    let head = Answer::new(unsafe { items(headers, count) }, &[]);
    let (held, call) = (held::<F>(own), CallId(id));
    // SAFETY: by the contract above.
    unsafe {
        if Held::<F>::is_busy(held) {
            Held::<F>::notify(held, stream, Event::Headers(call, OwnedAnswer::of(head), end));
        } else {
            Held::<F>::enter(held, stream, |filter, state, stream| {
                filter.on_call_headers(state, stream, call, head, end)
            });
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn call_body<F: HttpFilter>(
    stream: StreamRef,
    own: Own,
    id: u64,
    chunks: *const Buffer,
    count: usize,
    end: bool,
) {
    // SAFETY: by the contract above, the array and what it points to.
    let chunks: Vec<&[u8]> = unsafe { items(chunks, count) }.iter().map(|chunk| unsafe { chunk.bytes() }).collect();
    let (held, call) = (held::<F>(own), CallId(id));
    // SAFETY: by the contract above.
    unsafe {
        if Held::<F>::is_busy(held) {
            Held::<F>::notify(held, stream, Event::Body(call, chunks.concat(), end));
        } else {
            Held::<F>::enter(held, stream, |filter, state, stream| {
                filter.on_call_body(state, stream, call, &chunks, end)
            });
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn call_trailers<F: HttpFilter>(
    stream: StreamRef,
    own: Own,
    id: u64,
    trailers: *const Header,
    count: usize,
) {
    // SAFETY: by the contract above.
    let trailers = Answer::new(unsafe { items(trailers, count) }, &[]);
    let (held, call) = (held::<F>(own), CallId(id));
    // SAFETY: by the contract above.
    unsafe {
        if Held::<F>::is_busy(held) {
            Held::<F>::notify(held, stream, Event::Trailers(call, OwnedAnswer::of(trailers)));
        } else {
            Held::<F>::enter(held, stream, |filter, state, stream| {
                filter.on_call_trailers(state, stream, call, trailers)
            });
        }
    }
}

/// # Safety
/// As above.
pub unsafe fn call_end<F: HttpFilter>(stream: StreamRef, own: Own, id: u64, end: Result<(), Failure>) {
    // SAFETY: by the contract above.
    unsafe { Held::notify(held::<F>(own), stream, Event::End(CallId(id), end)) };
}

/// # Safety
/// As above.
pub unsafe fn background_event<F: HttpFilter>(config: ConfigRef, own: Own, event: u64) {
    // SAFETY: what `config_new` answered.
    let filter = unsafe { &*own.cast::<F>() };
    let tell = AssertUnwindSafe(|| filter.on_background_event(&Background::new(config), event));
    if let Err(panic) = catch_unwind(tell) {
        complain("an event of a configuration", &*panic);
    }
}

/// # Safety
/// As above.
#[allow(clippy::too_many_arguments, reason = "the interface's")]
pub unsafe fn background_call_done<F: HttpFilter>(
    config: ConfigRef,
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
    // SAFETY: what `config_new` answered.
    let filter = unsafe { &*own.cast::<F>() };
    let tell = AssertUnwindSafe(|| filter.on_background_call_done(&Background::new(config), CallId(id), answer));
    if let Err(panic) = catch_unwind(tell) {
        complain("the end of a configuration's call", &*panic);
    }
}

/// Tells a configuration what came of its call in pieces.
///
/// # Safety
/// As above.
unsafe fn of_background_call<F: HttpFilter>(config: ConfigRef, own: Own, tell: impl FnOnce(&F, &Background<'_>)) {
    // SAFETY: what `config_new` answered.
    let filter = unsafe { &*own.cast::<F>() };
    let tell = AssertUnwindSafe(|| tell(filter, &Background::new(config)));
    if let Err(panic) = catch_unwind(tell) {
        complain("the answer to a configuration's call", &*panic);
    }
}

/// # Safety
/// As above.
pub unsafe fn background_call_headers<F: HttpFilter>(
    config: ConfigRef,
    own: Own,
    id: u64,
    headers: *const Header,
    count: usize,
    end: bool,
) {
    // SAFETY: by the contract above. So below.
    let head = Answer::new(unsafe { items(headers, count) }, &[]);
    // SAFETY: as above.
    unsafe {
        of_background_call::<F>(config, own, |filter, at| filter.on_background_call_headers(at, CallId(id), head, end));
    }
}

/// # Safety
/// As above.
pub unsafe fn background_call_body<F: HttpFilter>(
    config: ConfigRef,
    own: Own,
    id: u64,
    chunks: *const Buffer,
    count: usize,
    end: bool,
) {
    // SAFETY: as above, the array and what it points to.
    let chunks: Vec<&[u8]> = unsafe { items(chunks, count) }.iter().map(|chunk| unsafe { chunk.bytes() }).collect();
    // SAFETY: as above.
    unsafe {
        of_background_call::<F>(config, own, |filter, at| filter.on_background_call_body(at, CallId(id), &chunks, end));
    }
}

/// # Safety
/// As above.
pub unsafe fn background_call_trailers<F: HttpFilter>(
    config: ConfigRef,
    own: Own,
    id: u64,
    trailers: *const Header,
    count: usize,
) {
    // SAFETY: as above.
    let trailers = Answer::new(unsafe { items(trailers, count) }, &[]);
    // SAFETY: as above.
    unsafe {
        of_background_call::<F>(config, own, |filter, at| filter.on_background_call_trailers(at, CallId(id), trailers));
    }
}

/// # Safety
/// As above.
pub unsafe fn background_call_complete<F: HttpFilter>(config: ConfigRef, own: Own, id: u64) {
    // SAFETY: as above.
    unsafe {
        of_background_call::<F>(config, own, |filter, at| filter.on_background_call_end(at, CallId(id), Ok(())));
    }
}

/// # Safety
/// As above.
pub unsafe fn background_call_reset<F: HttpFilter>(config: ConfigRef, own: Own, id: u64, _: c_int) {
    // SAFETY: as above.
    unsafe {
        of_background_call::<F>(config, own, |filter, at| filter.on_background_call_end(at, CallId(id), RESET));
    }
}

/// The failure that a call in pieces ended with.
pub const RESET: Result<(), Failure> = Err(Failure::Reset);
