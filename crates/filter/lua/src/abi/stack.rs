//! How much of the thread's stack is left: functions of C that call scripts back take some of it each time, which LuaJIT does not
//! count.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

/// Most functions of C take so little that one coroutine, which LuaJIT bounds by what it holds, takes three quarters of this with
/// them. Those that take more are not called any more when less is left, and no coroutine within a coroutine goes on.
const RESERVE: usize = 4 << 20;

thread_local! {
    /// Below this address it is low; 0 when that was not yet asked for.
    static LOW: Cell<usize> = const { Cell::new(0) };
}

/// Whether less than [`RESERVE`] is left, or less than half of a thread's that has little.
pub(super) unsafe extern "C" fn is_low() -> c_int {
    let here = 0_u8;
    let low = match LOW.get() {
        0 => find(),
        known => known,
    };
    c_int::from(ptr::from_ref(&here).addr() < low)
}

#[cold]
fn find() -> usize {
    // SAFETY: asks about the calling thread; the places are valid, and what was filled in is taken down again.
    let low = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            // Nobody knows: as if there were no end.
            return 0;
        }
        let (mut start, mut size): (*mut c_void, usize) = (ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut start, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        start.addr() + RESERVE.min(size / 2)
    };
    LOW.set(low);
    low
}
