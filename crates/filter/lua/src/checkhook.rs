//! Whether this program's LuaJIT looks for hooks in compiled code, which it does only when it was built so. Without that the
//! watchdog could not stop a compiled endless loop, and one script would stop its worker for good.

use std::cell::Cell;
use std::ptr;
use std::sync::OnceLock;

use mlua_sys as lua;
use mlua_sys::lua_State;

use crate::vm::Fault;

/// Rounds of the loop that is tried, and the one in which a hook is set: by then it is compiled.
const ROUNDS: u32 = 100_000;
const SET_IN: u32 = 10_000;

const LOOP: &[u8] = b"local set = require('ffi').cast('void (*)(void)', (...))
    for round = 1, 100000 do set() end";

thread_local! {
    /// The machine on trial, and how many rounds it went.
    static TRIED: Cell<(*mut lua_State, u32)> = const { Cell::new((ptr::null_mut(), 0)) };
}

/// Found out once, in a machine of its own.
///
/// # Errors
/// It does not: no script may run.
pub(crate) fn required() -> Result<(), Fault> {
    static STOPS: OnceLock<bool> = OnceLock::new();
    if *STOPS.get_or_init(|| rounds().is_some_and(|rounds| rounds < ROUNDS)) {
        return Ok(());
    }
    Err(Fault::Error(
        "this program's LuaJIT was built without LUAJIT_ENABLE_CHECKHOOK, so nothing could stop a compiled endless loop, and no \
         script is run: build it with -DLUAJIT_ENABLE_CHECKHOOK in CFLAGS, as .cargo/config.toml does where CFLAGS is not set"
            .to_owned(),
    ))
}

/// How many rounds a compiled loop goes when a hook is set in it; `None` when it cannot be tried.
fn rounds() -> Option<u32> {
    // SAFETY: the machine is fresh, used on this thread alone and closed at the end; whatever runs in it runs protected.
    unsafe {
        let state = lua::luaL_newstate();
        if state.is_null() {
            return None;
        }
        lua::luaL_openlibs(state);
        TRIED.set((state, 0));
        let loaded = lua::luaL_loadbufferx(state, LOOP.as_ptr().cast(), LOOP.len(), c"=try".as_ptr(), c"t".as_ptr());
        if loaded == lua::LUA_OK {
            lua::lua_pushlightuserdata(state, set as *mut std::ffi::c_void);
            lua::lua_pcall(state, 1, 0, 0);
        }
        let (_, rounds) = TRIED.replace((ptr::null_mut(), 0));
        lua::lua_close(state);
        (loaded == lua::LUA_OK && rounds >= SET_IN).then_some(rounds)
    }
}

/// One round of the loop.
extern "C" fn set() {
    let (state, rounds) = TRIED.get();
    TRIED.set((state, rounds + 1));
    if rounds + 1 == SET_IN {
        // SAFETY: the machine on trial, on its own thread; LuaJIT allows setting a hook wherever a machine runs.
        unsafe { lua::lua_sethook(state, Some(stop), lua::LUA_MASKCOUNT, 1) };
    }
}

unsafe extern "C-unwind" fn stop(state: *mut lua_State, _: *mut lua::lua_Debug) {
    // SAFETY: called by Lua in the running machine; there is nothing here to be dropped.
    unsafe { lua::luaL_error(state, c"stopped".as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_luajit_stops_compiled_loops() {
        let rounds = rounds().unwrap();
        assert!((SET_IN..SET_IN + 100).contains(&rounds), "{rounds}");
        required().unwrap();
    }
}
