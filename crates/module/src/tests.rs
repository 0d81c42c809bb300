//! The border to the proxy, with a proxy that calls back whenever it may.

use std::cell::{Cell, RefCell};
use std::ptr;

use crate::fake::{asked, at_once};
use crate::{CallId, Failure, Head, HttpFilter, Piece, Refusal, Reply, RouteConfig, Setup, Stream, hooks};

thread_local! {
    static STREAM: Cell<*const std::ffi::c_void> = const { Cell::new(ptr::null()) };
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

struct Filter;

#[derive(Default)]
struct State {
    told: RefCell<Vec<String>>,
}

impl Drop for State {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

impl HttpFilter for Filter {
    type State = State;

    fn new(setup: &mut Setup<'_>) -> Result<Filter, Refusal> {
        assert_eq!(setup.name(), "");
        match setup.config() {
            b"panic" => panic!("as the configuration wants it"),
            b"refuse" => Err("not this one".into()),
            _ => Ok(Filter),
        }
    }

    fn begin(&self) -> Option<State> {
        Some(State::default())
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Head {
        if end {
            stream.reply(Reply::new(200));
            panic!("no more");
        }
        stream.reply(Reply::new(401).body("who?").details("nobody"));
        Head::Continue
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, _: bool) -> Piece {
        stream.reset_call(CallId(7));
        // The proxy told of its end at once, which was put off: the state is this hook's.
        state.told.borrow_mut().push("hook".to_owned());
        stream.continue_request();
        Piece::StopAndBuffer
    }

    fn on_call_end(&self, state: &mut State, _: &mut Stream<'_>, call: CallId, end: Result<(), Failure>) {
        let mut told = state.told.borrow_mut();
        told.push(format!("end of {} {end:?}", call.0));
        crate::log(crate::Level::Info, format_args!("{}", told.join(", ")));
    }

    fn on_complete(&self, _: &mut State, stream: &mut Stream<'_>) {
        stream.reply(Reply::new(200));
        panic!("too late");
    }
}

fn config() -> *const std::ffi::c_void {
    // SAFETY: as a proxy calls it. So below.
    unsafe { hooks::config_new::<Filter>(ptr::null_mut(), crate::abi::Buffer::NOTHING, crate::abi::Buffer::NOTHING) }
}

fn stream() -> *const std::ffi::c_void {
    // SAFETY: as above.
    let stream = unsafe { hooks::new::<Filter>(config(), ptr::null_mut()) };
    STREAM.set(stream);
    stream
}

#[test]
fn a_configuration_that_is_refused_or_panics_is_none() {
    let made = |text: &[u8]| {
        let text = crate::abi::Buffer::of(text);
        // SAFETY: as above.
        unsafe { hooks::config_new::<Filter>(ptr::null_mut(), crate::abi::Buffer::NOTHING, text) }
    };
    assert!(made(b"refuse").is_null());
    assert_eq!(asked(), ["log a module refuses a filter's configuration: not this one"]);
    assert!(made(b"panic").is_null());
    assert_eq!(asked(), ["log a module panicked in a filter's configuration: as the configuration wants it"]);
    let good = made(b"");
    assert!(!good.is_null());
    // SAFETY: as above.
    unsafe { hooks::config_destroy::<Filter>(good) };
}

#[test]
fn an_answer_stops_the_message_whatever_the_hook_says() {
    let own = stream();
    // SAFETY: as above.
    let answer = unsafe { hooks::request_headers::<Filter>(ptr::null_mut(), own, false) };
    assert_eq!(answer, Head::Stop as i32);
    assert_eq!(asked(), ["reply 401 who? nobody"]);
}

#[test]
fn a_panic_is_answered_with_500_and_nothing_is_called_again() {
    let own = stream();
    // SAFETY: as above.
    unsafe {
        assert_eq!(hooks::request_headers::<Filter>(ptr::null_mut(), own, true), Head::Stop as i32);
        assert_eq!(asked(), ["log a module panicked in a hook: no more", "reply 500  module_panicked"]);
        assert_eq!(hooks::request_headers::<Filter>(ptr::null_mut(), own, true), Head::Continue as i32);
        hooks::complete::<Filter>(ptr::null_mut(), own);
        assert_eq!(asked(), [""; 0]);
        hooks::destroy::<Filter>(own);
    }
}

#[test]
fn an_answer_in_pieces_begins_with_its_status() {
    let held = crate::hooks::Held::<Filter>::new(config().cast::<Filter>(), State::default());
    // SAFETY: as above.
    let _ = unsafe {
        crate::hooks::Held::<Filter>::enter(held, ptr::null_mut(), |_, _, stream| {
            stream.begin_reply(Reply::new(200).header("a", "b").body("one"), false);
            stream.reply_piece("two", false);
            stream.end_reply(vec![("x".to_owned(), b"y".to_vec())]);
        })
    };
    assert_eq!(asked(), ["begin with 2, end false", "piece one, end false", "piece two, end false", "1 trailers"]);
}

#[test]
fn a_panic_in_the_last_hook_has_no_answer() {
    let own = stream();
    // SAFETY: as above.
    unsafe { hooks::complete::<Filter>(ptr::null_mut(), own) };
    assert_eq!(asked(), ["log a module panicked in a hook: too late"]);
}

#[test]
fn what_comes_during_a_hook_is_told_after_it() {
    let own = stream();
    // SAFETY: as above.
    at_once(|| unsafe { hooks::call_end::<Filter>(ptr::null_mut(), STREAM.get(), 7, hooks::RESET) });
    // SAFETY: as above.
    let answer = unsafe { hooks::request_body::<Filter>(ptr::null_mut(), own, false) };
    assert_eq!(answer, Piece::StopAndBuffer as i32);
    assert_eq!(asked(), ["reset 7", "continue", "log hook, end of 7 Err(Reset)"]);
}

#[test]
fn a_stream_that_ends_while_its_hook_runs_is_freed_after_it() {
    let own = stream();
    DROPPED.set(0);
    at_once(|| {
        // SAFETY: as above.
        unsafe { hooks::destroy::<Filter>(STREAM.get()) };
        assert_eq!(DROPPED.get(), 0);
    });
    // SAFETY: as above.
    unsafe { hooks::request_body::<Filter>(ptr::null_mut(), own, false) };
    assert_eq!(DROPPED.get(), 1);
    assert_eq!(asked(), ["reset 7"], "nothing is asked for a stream that is over");
}

struct One(u8);

impl RouteConfig for One {
    fn new(_: &str, config: &[u8]) -> Result<One, Refusal> {
        config.first().map(|first| One(*first)).ok_or_else(|| "empty".into())
    }
}

#[test]
fn a_route_s_configuration_is_of_its_own_type_only() {
    let made = |text: &[u8]| {
        // SAFETY: as above.
        unsafe { hooks::route_config_new::<One>(crate::abi::Buffer::NOTHING, crate::abi::Buffer::of(text)) }
    };
    assert!(made(b"").is_null());
    asked();
    let own = made(b"x");
    let later = RefCell::default();
    let stream = Stream::new(own.cast_mut(), &later);
    assert_eq!(stream.route_config::<One>().map(|one| one.0), Some(b'x'));
    assert!(stream.route_config::<String>().is_none());
    // SAFETY: as above.
    unsafe { hooks::route_config_destroy(own) };
}
