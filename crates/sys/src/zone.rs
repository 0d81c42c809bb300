//! The time zone of the machine.

use std::ffi::CStr;
use std::sync::Once;

/// What local time is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalZone {
    /// East of Greenwich.
    pub offset_seconds: i32,
    /// Such as `CET`; empty in UTC.
    pub name: String,
}

impl LocalZone {
    pub fn utc() -> LocalZone {
        LocalZone { offset_seconds: 0, name: String::new() }
    }
}

/// Local time at `epoch`, in seconds since 1970, by `TZ` or `/etc/localtime` as they were at the first call.
pub fn local_zone(epoch: u64) -> LocalZone {
    static READ: Once = Once::new();
    unsafe extern "C" {
        /// POSIX `tzset`, which `localtime_r` need not call by itself.
        fn tzset();
    }
    // SAFETY: takes nothing, and is called once, before any call of `localtime_r` here.
    READ.call_once(|| unsafe { tzset() });
    let Ok(moment) = libc::time_t::try_from(epoch) else { return LocalZone::utc() };
    // SAFETY: all zeros are a valid `tm`: numbers and a null pointer.
    let mut broken: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::localtime_r(&raw const moment, &raw mut broken) }.is_null() || broken.tm_zone.is_null() {
        return LocalZone::utc();
    }
    // SAFETY: on success `tm_zone` is a string that lives as long as the process.
    let name = unsafe { CStr::from_ptr(broken.tm_zone) };
    LocalZone { offset_seconds: broken.tm_gmtoff as i32, name: name.to_string_lossy().into_owned() }
}
