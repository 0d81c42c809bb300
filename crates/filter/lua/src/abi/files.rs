//! What files scripts may open at the sandbox level `standard` (`sdk/files.lua`).

use std::ffi::{OsStr, c_char, c_int};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::text::take;

/// Whether opening or reading this could wait for somebody else, or never end: all but files, folders and the devices of
/// [`QUICK_DEVICES`]. What is not there is not waited for.
pub(super) unsafe extern "C" fn may_wait(name: *const c_char, length: usize) -> c_int {
    // SAFETY: the SDK passes a Lua string with its length.
    let name = unsafe { take(name, length) };
    // C's names end with the first zero.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    c_int::from(fs::metadata(OsStr::from_bytes(name)).is_ok_and(|found| !is_quick(&found)))
}

/// Numbers of Linux's memory devices that answer at once and whose lines end (devices.txt, 1 char): null, random, urandom.
const QUICK_DEVICES: [u32; 3] = [3, 8, 9];
const MEMORY_DEVICES: u32 = 1;

fn is_quick(found: &Metadata) -> bool {
    let kind = found.file_type();
    let is_quick_device =
        || libc::major(found.rdev()) == MEMORY_DEVICES && QUICK_DEVICES.contains(&libc::minor(found.rdev()));
    kind.is_file() || kind.is_dir() || kind.is_char_device() && is_quick_device()
}
