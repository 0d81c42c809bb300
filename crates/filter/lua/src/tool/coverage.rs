//! Which lines of a script ran.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;

use mlua_sys as lua;
use mlua_sys::lua_State;

/// How often each line of a chunk ran, by the chunk's name.
#[derive(Default)]
struct Counts {
    chunk: Vec<u8>,
    lines: BTreeMap<u32, u64>,
}

thread_local! {
    static COUNTS: RefCell<Counts> = RefCell::default();
}

/// Counts the lines of this chunk from now on; what was counted of the same one stays.
pub(crate) fn count(chunk: &str) {
    COUNTS.with_borrow_mut(|counts| {
        if counts.chunk != chunk.as_bytes() {
            *counts = Counts { chunk: chunk.as_bytes().to_vec(), lines: BTreeMap::new() };
        }
    });
}

/// How often each line ran; forgotten with that.
pub(super) fn take() -> BTreeMap<u32, u64> {
    COUNTS.take().lines
}

/// LuaJIT's hook: a line is about to run.
pub(crate) unsafe extern "C-unwind" fn on_line(state: *mut lua_State, about: *mut lua::lua_Debug) {
    // SAFETY: called by Lua with the line's own record; `S` fills in the source, a text with a zero byte at its end that
    // lives as long as the function does. Neither raises an error, so nothing here is left undropped.
    let (source, line) = unsafe {
        if lua::lua_getinfo(state, c"S".as_ptr(), about) == 0 {
            return;
        }
        (CStr::from_ptr((*about).source), (*about).currentline)
    };
    let Ok(line) = u32::try_from(line) else { return };
    COUNTS.with_borrow_mut(|counts| {
        if counts.chunk == source.to_bytes() {
            *counts.lines.entry(line).or_default() += 1;
        }
    });
}
