//! What a module reads of the proxy's configuration: secrets, and values of its runtime layers.

use crate::abi::{self, Buffer};
use crate::setup::Setup;
use crate::stream::Stream;

/// A secret that the configuration has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secret(usize);

/// Secrets. Envoy has them from 1.40 on.
impl Setup<'_> {
    /// The generic secret of that name in `static_resources.secrets`; `None` when it cannot be had, which the log tells why.
    pub fn secret(&mut self, name: &str) -> Option<Secret> {
        // SAFETY: the handle is that of the configuration that is being made; the text is there during the call.
        let number = unsafe { abi::subscribe_secret(self.handle(), Buffer::of(name.as_bytes()), Buffer::NOTHING) };
        (number != 0).then_some(Secret(number))
    }

    /// Its bytes as they are now; `None` while they are not there.
    pub fn read(&self, secret: Secret) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: as above.
        let found = unsafe { abi::get_config_secret(self.handle(), secret.0, &raw mut value) };
        // SAFETY: the proxy's bytes are there while the configuration is made.
        found.then(|| unsafe { value.bytes() })
    }
}

impl Stream<'_> {
    /// The bytes of a secret as they are now; `None` while they are not there.
    pub fn secret(&self, secret: Secret) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: the handle is that of a stream in a hook.
        let found = unsafe { abi::get_secret(self.handle(), secret.0, &raw mut value) };
        // SAFETY: the proxy's bytes are there until the hook ends.
        found.then(|| unsafe { value.bytes() })
    }
}

/// A key of `layered_runtime` as true or false, while a configuration is made; elsewhere, and where it is nothing of the kind,
/// `instead`. Envoy has it from 1.40 on; so the next two.
pub fn runtime_truth(key: &str, instead: bool) -> bool {
    // SAFETY: the text is there during the call. So below.
    unsafe { abi::get_runtime_bool(Buffer::of(key.as_bytes()), instead) }
}

/// The whole part of a number that is not negative.
pub fn runtime_whole(key: &str, instead: u64) -> u64 {
    // SAFETY: as above.
    unsafe { abi::get_runtime_int(Buffer::of(key.as_bytes()), instead) }
}

/// A number.
pub fn runtime_number(key: &str, instead: f64) -> f64 {
    // SAFETY: as above.
    unsafe { abi::get_runtime_number(Buffer::of(key.as_bytes()), instead) }
}
