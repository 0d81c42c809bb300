//! The border to the proxy for filters of connections and for loggers, with a proxy that calls back whenever it may.

use std::cell::Cell;
use std::ptr;

use crate::abi::Buffer;
use crate::fake::{asked, at_once};
use crate::{
    AccessLogger, Connection, ConnectionEvent, Ending, LoggerSetup, NetworkFilter, NetworkSetup, Passage, Record,
    Refusal, logger, network_hooks as hooks,
};

thread_local! {
    static CONNECTION: Cell<*const std::ffi::c_void> = const { Cell::new(ptr::null()) };
}

struct Filter;

impl NetworkFilter for Filter {
    type State = u32;

    fn new(_: &mut NetworkSetup<'_>) -> Result<Filter, Refusal> {
        Ok(Filter)
    }

    fn begin(&self) -> Option<u32> {
        Some(0)
    }

    fn on_received(&self, state: &mut u32, connection: &mut Connection<'_>, end: bool) -> Passage {
        connection.send("said", false);
        assert!(!end, "enough");
        connection.keep(true);
        connection.close(Ending::Flushed, "done");
        *state += 1;
        Passage::Continue
    }

    fn on_sent(&self, state: &mut u32, _: &mut Connection<'_>, _: bool) -> Passage {
        *state += 10;
        Passage::Continue
    }

    fn on_event(&self, state: &mut u32, connection: &mut Connection<'_>, event: ConnectionEvent) {
        connection.send(format!("{event:?} {state}"), true);
    }
}

fn connection() -> *const std::ffi::c_void {
    // SAFETY: as a proxy calls it. So below.
    let own = unsafe {
        let config = hooks::config_new::<Filter>(ptr::null_mut(), Buffer::NOTHING, Buffer::NOTHING);
        hooks::new::<Filter>(config, ptr::null_mut())
    };
    CONNECTION.set(own);
    own
}

#[test]
fn what_a_filter_wants_is_done_when_its_hook_has_returned() {
    let own = connection();
    at_once(|| {
        // The proxy shows the filter its own bytes at once, and its state is free for that.
        // SAFETY: as above.
        let answer = unsafe { hooks::sent::<Filter>(ptr::null_mut(), CONNECTION.get(), 4, false) };
        assert_eq!(answer, Passage::Continue as i32);
    });
    // SAFETY: as above.
    let answer = unsafe { hooks::received::<Filter>(ptr::null_mut(), own, 1, false) };
    assert_eq!(answer, Passage::Stop as i32, "it ends");
    assert_eq!(asked(), ["write said, end false", "keep true", "close 0 done"]);
    // SAFETY: as above.
    unsafe { hooks::event::<Filter>(ptr::null_mut(), own, 1) };
    assert_eq!(asked(), ["write ClosedByProxy 11, end true"]);
    // SAFETY: as above.
    unsafe { hooks::destroy::<Filter>(own) };
}

#[test]
fn a_panic_ends_the_connection_and_nothing_is_called_again() {
    let own = connection();
    // SAFETY: as above.
    unsafe {
        assert_eq!(hooks::received::<Filter>(ptr::null_mut(), own, 1, true), Passage::Stop as i32);
        assert_eq!(asked(), ["log a module panicked in a hook: enough", "close 1 module_panicked"]);
        assert_eq!(hooks::received::<Filter>(ptr::null_mut(), own, 1, false), Passage::Stop as i32);
        hooks::event::<Filter>(ptr::null_mut(), own, 0);
        hooks::destroy::<Filter>(own);
    }
    assert_eq!(asked(), [""; 0]);
}

struct Logger;

impl AccessLogger for Logger {
    type State = ();

    fn new(_: &mut LoggerSetup<'_>) -> Result<Logger, Refusal> {
        Ok(Logger)
    }

    fn begin(&self) -> Option<()> {
        Some(())
    }

    fn log(&self, _: &mut (), record: &Record<'_>) {
        assert!(record.moment() != 6, "a request");
        crate::log(crate::Level::Info, format_args!("told {}", record.moment()));
    }

    fn flush(&self, _: &mut ()) {
        crate::log(crate::Level::Info, format_args!("flushed"));
    }
}

#[test]
fn a_logger_that_panicked_is_told_nothing_more() {
    // SAFETY: as above.
    unsafe {
        let config = logger::config_new::<Logger>(ptr::null_mut(), Buffer::NOTHING, Buffer::NOTHING);
        let worker = || logger::new::<Logger>(config, ptr::null_mut());
        let (first, second) = (worker(), worker());
        for moment in [3, 6, 3] {
            logger::log::<Logger>(ptr::null_mut(), first, moment);
        }
        logger::flush::<Logger>(first);
        assert_eq!(asked(), ["log told 3", "log a module panicked in a logger: a request"]);
        logger::log::<Logger>(ptr::null_mut(), second, 3);
        logger::flush::<Logger>(second);
        assert_eq!(asked(), ["log told 3", "log flushed"], "another worker's goes on");
        logger::destroy::<Logger>(first);
        logger::destroy::<Logger>(second);
        logger::config_destroy::<Logger>(config);
    }
}
