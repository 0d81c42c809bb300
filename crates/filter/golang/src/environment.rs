//! What Go reads from the environment, where the user has not said anything else.
//!
//! Go looks at the environment that the process was started with, not at what it is when a library is loaded. So whoever
//! comes to load the first library starts the program anew, in the same process, while nothing has begun yet.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_telemetry::warning;

/// Go's variable for what it checks and shows.
const DEBUG: &str = "GODEBUG";

/// Does not look into what is passed to C. The SDK passes texts by their addresses, for which Go would end the process:
/// Envoy's documentation asks its users to set this.
const UNCHECKED: &str = "cgocheck=0";

/// The environment is another one than the process was started with.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// Nothing has begun: the program may be started anew.
static AT_START: AtomicBool = AtomicBool::new(false);

/// Says whether the program may be started anew when a library is to be loaded: nobody would notice.
pub fn at_start(is_start: bool) {
    AT_START.store(is_start, Ordering::Release);
}

/// Starts the program anew where Go would not see the environment as it is. To be called before a library is loaded.
pub(crate) fn put_in_force() {
    if !AT_START.load(Ordering::Acquire) || !CHANGED.load(Ordering::Acquire) {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    let error = command.exec();
    warning!(Filter, "Go's settings are not in force: the program cannot be started anew: {error}");
}

/// Has Go let pass what Envoy's SDK passes. To be called before there is a second thread; does nothing behind that.
pub fn settle_checks() {
    if let Some(value) = unchecked(std::env::var_os(DEBUG).as_deref()) {
        set(DEBUG, &value);
    }
}

/// The variable with that setting; `None` where it has one.
fn unchecked(now: Option<&OsStr>) -> Option<OsString> {
    let Some(now) = now.filter(|now| !now.is_empty()) else { return Some(UNCHECKED.into()) };
    if now.to_string_lossy().split(',').any(|setting| setting.trim().starts_with("cgocheck=")) {
        return None;
    }
    let mut value = now.to_owned();
    value.push(",");
    value.push(UNCHECKED);
    Some(value)
}

/// Sets a variable, unless there are other threads, which may read the environment.
#[expect(clippy::disallowed_methods, reason = "Go reads its settings there alone, and there is no other thread")]
pub(crate) fn set(name: &str, value: &OsStr) {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1) {
        // SAFETY: no other thread reads the environment meanwhile: there is none.
        unsafe { std::env::set_var(name, value) };
        CHANGED.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_says_stays() {
        let of = |now: Option<&str>| unchecked(now.map(OsStr::new)).map(|value| value.into_string().unwrap());
        assert_eq!(of(None).as_deref(), Some("cgocheck=0"));
        assert_eq!(of(Some("")).as_deref(), Some("cgocheck=0"));
        assert_eq!(of(Some("gctrace=1")).as_deref(), Some("gctrace=1,cgocheck=0"));
        assert_eq!(of(Some("gctrace=1, cgocheck=1")), None);
    }
}
