//! Whose turn it is: the stream, the side and the plugin that the running script belongs to.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr;

use postrider_filter_api::{LocalReply, Stream};
use postrider_model::Part;

use super::{CallRequest, NOT_HERE};
use crate::plugin::Plugin;
use crate::script::Script;
use crate::view::View;

/// Which message a hook is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

impl From<Side> for postrider_filter_trial::Side {
    fn from(side: Side) -> postrider_filter_trial::Side {
        match side {
            Side::Request => postrider_filter_trial::Side::Request,
            Side::Response => postrider_filter_trial::Side::Response,
        }
    }
}

/// `pr_ctx`: what a script may read without a call. One per machine.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Differs from stream to stream.
    pub(crate) stream: Cell<i32>,
    /// Differs from entry to entry, and from all streams: what was handed out before is out of scope.
    pub(crate) turn: Cell<i32>,
    /// 0 request, 1 response, -1 outside a stream.
    pub(crate) side: Cell<i32>,
    /// Differs from stream to stream and from side to side.
    pub(crate) message: Cell<i32>,
    /// Differs from plugin to plugin: several may share a machine.
    pub(crate) plugin: Cell<i32>,
}

/// One entry into a script.
pub(crate) struct Turn<'a, 's> {
    /// `None` while a plugin is loaded and configured.
    pub(crate) stream: Option<&'a mut Stream<'s>>,
    pub(crate) script: &'a mut Script,
    pub(crate) plugin: &'a Plugin,
    pub(crate) view: &'a View,
    pub(crate) scratch: &'a mut Scratch,
}

/// What a script is putting together, and room for texts that lie nowhere. Kept from turn to turn.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) reply: Option<Box<LocalReply>>,
    pub(crate) call: CallRequest,
    /// What a script has not yet seen of a message.
    pub(crate) parts: std::vec::IntoIter<Part>,
    /// Files that `require` loaded while the script was loaded.
    pub(crate) required: Vec<PathBuf>,
}

/// What 190 coroutines take of the thread's stack that run within each other, each with some functions of C, and then some.
const PLENTY: usize = 256 << 10;

thread_local! {
    static CURRENT: Cell<*mut Turn<'static, 'static>> = const { Cell::new(ptr::null_mut()) };
}

impl Turn<'_, '_> {
    /// Makes this the current turn while `run` runs.
    pub(crate) fn during<T>(&mut self, run: impl FnOnce() -> T) -> T {
        struct Restore(*mut Turn<'static, 'static>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let this: *mut Turn<'_, '_> = self;
        // The lifetimes end with `run`: `Restore` takes the pointer away whatever happens.
        let _restore = Restore(CURRENT.replace(this.cast()));
        run()
    }
}

/// Whether what runs is so deep in functions of C and scripts which call each other that it can only be without end.
pub(crate) fn is_deep() -> bool {
    let (here, turn) = (0_u8, CURRENT.get().addr());
    // The turn lies where the script was entered, on the same stack. Of a machine without one nothing is known.
    turn.saturating_sub(ptr::from_ref(&here).addr()) > PLENTY
}

/// Lets `act` work on the current turn; a panic in it is an answer, not an end of the process.
pub(super) fn with(act: impl FnOnce(&mut Turn<'_, '_>) -> c_int) -> c_int {
    let current = CURRENT.get();
    // SAFETY: set by `during` for as long as the turn lives, on this thread; scripts run inside `during`, where the
    // turn itself is not used otherwise, and the functions of the table do not call each other.
    let Some(turn) = (unsafe { current.as_mut() }) else { return NOT_HERE };
    catch_unwind(AssertUnwindSafe(|| act(turn))).unwrap_or(NOT_HERE)
}

/// The same for what needs a stream.
pub(super) fn with_stream(act: impl FnOnce(&mut Stream<'_>, &mut Scratch, &mut Script) -> c_int) -> c_int {
    with(|turn| match &mut turn.stream {
        Some(stream) => act(stream, turn.scratch, turn.script),
        None => NOT_HERE,
    })
}
