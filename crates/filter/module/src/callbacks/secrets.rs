//! Secrets that a module asks for by name when it makes its configuration, and reads whenever it likes.

use postrider_telemetry::log::{Component, Level, write};

use super::{config, instance, put};
use crate::abi::{Buffer, ConfigRef, StreamRef};
use crate::config::Config;

/// The number by which a secret is read; 0 when it cannot be had, which the log tells why.
pub(super) unsafe fn subscribe(handle: ConfigRef, name: Buffer, source: Buffer) -> usize {
    // SAFETY: the caller is a module that follows the interface, here and below.
    let (config, name, source) = unsafe { (config(handle), name.bytes(), source.bytes()) };
    let Some(config) = config else { return 0 };
    let name = String::from_utf8_lossy(name);
    match find(config, &name, source) {
        Ok(at) => at + 1,
        Err(reason) => {
            let filter = &config.facts.name;
            let line = format_args!("{filter}: the module does not get the secret `{name}`: {reason}");
            write(Component::Filter, Level::Error, line);
            0
        }
    }
}

fn find<'c>(config: &'c Config, name: &str, source: &[u8]) -> Result<usize, &'c str> {
    if !source.is_empty() {
        return Err("it names a source of its own, and there are only those of `static_resources.secrets`");
    }
    let at = config.given.secrets.iter().position(|(known, _)| known == name);
    let at = at.ok_or("there is none of that name in `static_resources.secrets`")?;
    match config.given.secrets.get(at) {
        Some((_, Err(reason))) => Err(reason),
        _ => Ok(at),
    }
}

fn read(config: &Config, number: usize) -> Option<Buffer> {
    let (_, secret) = config.given.secrets.get(number.checked_sub(1)?)?;
    secret.as_deref().ok().map(Buffer::of)
}

pub(super) unsafe fn of_config(handle: ConfigRef, number: usize, out: *mut Buffer) -> bool {
    // SAFETY: as above.
    let found = unsafe { config(handle) }.and_then(|config| read(config, number));
    // SAFETY: as above.
    found.map(|found| unsafe { put(out, found) }).is_some()
}

pub(super) unsafe fn of_stream(handle: StreamRef, number: usize, out: *mut Buffer) -> bool {
    // SAFETY: as above.
    let found = unsafe { instance(handle) }.and_then(|instance| read(instance.config(), number));
    // SAFETY: as above.
    found.map(|found| unsafe { put(out, found) }).is_some()
}
