//! Configurations that another process reads first: the SDK recovers no panic of code that reads one, which would end the
//! proxy with it.
//!
//! It is the proxy's own executable, which loads the library, has it read that one configuration, and ends.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_filter_api::fingerprint;
use postrider_telemetry::warning;

use crate::apart::COMMAND;
use crate::object::Object;
use crate::{bridge, network, specifier};

/// Stands in front of the arguments of such a process.
pub(crate) const ARGUMENT: &str = "try";

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is read of what a process says.
const MAX_SAID: u64 = 64 << 10;

/// Most configurations that are remembered as good.
const MAX_PASSED: usize = 4096;

/// What it ends with when Go code refuses the configuration.
const REFUSED: i32 = 1;

/// What the configuration is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Clusters,
    Connections,
    Hosts,
}

impl Kind {
    const ALL: [(Kind, &str); 3] =
        [(Kind::Clusters, "clusters"), (Kind::Connections, "connections"), (Kind::Hosts, "hosts")];

    fn name(self) -> &'static str {
        Kind::ALL.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// Has a process read a configuration, unless one did before.
///
/// # Errors
/// It did not come to the end of it: why. That Go code refuses it is no error: the proxy will hear it, too.
pub(crate) fn of(kind: Kind, object: &Object, plugin: &str, any: &[u8]) -> Result<(), String> {
    static PASSED: Mutex<Option<HashSet<u64>>> = Mutex::new(None);
    let parts = [object.path.as_os_str().as_encoded_bytes(), object.digest.as_bytes(), plugin.as_bytes(), any];
    let number = parts.into_iter().fold(kind as u64, fingerprint);
    // A panic with the lock held leaves a whole set behind.
    let passed = || PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if passed().as_ref().is_some_and(|passed| passed.contains(&number)) {
        return Ok(());
    }
    attempt(kind, &object.path, plugin, any)?;
    let mut passed = passed();
    let passed = passed.get_or_insert_default();
    if passed.len() >= MAX_PASSED {
        passed.clear();
    }
    passed.insert(number);
    Ok(())
}

fn attempt(kind: Kind, path: &Path, plugin: &str, any: &[u8]) -> Result<(), String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot start a process for {shown}: {error}");
    let mut command = Command::new("/proc/self/exe");
    command.arg0("postrider").arg(COMMAND).arg(ARGUMENT).arg(kind.name()).arg(path).arg(plugin);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (input, output) = (child.stdin.take(), child.stderr.take());
    let (told, heard) = sync_channel(1);
    let reader = std::thread::Builder::new().name("go-trial".to_owned());
    let reading = reader.spawn(move || {
        let mut said = Vec::new();
        if let Some(output) = output {
            // What could be read counts.
            let _ = output.take(MAX_SAID).read_to_end(&mut said);
        }
        // Nobody waits for it who gave it up.
        let _ = told.try_send(said);
    });
    if let Some(mut input) = input {
        // One that is gone already says why.
        let _ = input.write_all(any);
    }
    let said = reading.ok().and_then(|_| heard.recv_timeout(PATIENCE).ok());
    if said.is_none() {
        // It may be gone already.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    let Some(said) = said else {
        return Err(format!(
            "the Go code of {shown} did not come to the end of this configuration within {PATIENCE:?}"
        ));
    };
    let said = String::from_utf8_lossy(&said);
    for line in said.lines().filter(|line| !line.is_empty()) {
        warning!(Filter, "{shown}, tried out: {line}");
    }
    match status.code() {
        Some(0 | REFUSED) => Ok(()),
        _ => {
            let is_reason = |line: &&str| line.starts_with("panic: ") || line.starts_with("fatal error: ");
            let why = said.lines().find(is_reason).map_or_else(|| status.to_string(), str::to_owned);
            Err(format!("the Go code of {shown} would end the process with this configuration: {why}"))
        }
    }
}

/// The process: reads the configuration from its standard input. `arguments`: kind, library and plugin.
///
/// # Errors
/// It was not the proxy that started it.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), String> {
    let [kind, path, plugin] = arguments else { return Err("a kind, a library and a plugin".to_owned()) };
    let kind = Kind::ALL.into_iter().find(|(_, name)| kind == name).map(|(kind, _)| kind);
    let kind = kind.ok_or("no such kind")?;
    let plugin = plugin.to_str().ok_or("a plugin is a text")?;
    let mut any = Vec::new();
    std::io::stdin().read_to_end(&mut any).map_err(|error| error.to_string())?;
    let accepted = match kind {
        Kind::Clusters => specifier::accepts(Path::new(path), &any),
        Kind::Connections => network::accepts(Path::new(path), &any),
        Kind::Hosts => bridge::accepts(Path::new(path), plugin, &any),
    }?;
    // SAFETY: ends the process, whatever Go's threads do.
    unsafe { libc::_exit(if accepted { 0 } else { REFUSED }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_proxy_starts_it() {
        let of = |arguments: &[&str]| run(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).unwrap_err();
        assert_eq!(of(&["clusters"]), "a kind, a library and a plugin");
        assert_eq!(of(&["trains", "x.so", "p"]), "no such kind");
        assert!(Kind::ALL.into_iter().all(|(kind, name)| kind.name() == name));
    }
}
