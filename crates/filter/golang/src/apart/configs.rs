//! Configurations that Go code parsed or merged in its process, by the numbers that the proxy gave them.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The plugin, and the number that Go code gave the configuration.
type Config = (&'static str, u64);

/// Shared by who hears of them and who begins streams with them.
#[derive(Debug, Default)]
pub(super) struct Configs {
    /// `None` where Go code refused it.
    known: Mutex<HashMap<u64, Option<Config>>>,
    came: Condvar,
}

impl Configs {
    pub(super) fn put(&self, key: u64, config: Option<Config>) {
        self.lock().insert(key, config);
        self.came.notify_all();
    }

    pub(super) fn forget(&self, key: u64) -> Option<Config> {
        self.lock().remove(&key).flatten()
    }

    /// One that was told of before, if Go code took it.
    pub(super) fn find(&self, key: u64) -> Option<Config> {
        self.lock().get(&key).copied().flatten()
    }

    /// The same, which may have been told of by another way than who asks: it waits until that is heard. The proxy ends a
    /// process that never hears it.
    pub(super) fn wait(&self, key: u64) -> Option<Config> {
        let known = self.came.wait_while(self.lock(), |known| !known.contains_key(&key));
        known.unwrap_or_else(PoisonError::into_inner).get(&key).copied().flatten()
    }

    /// A panic with the lock held ends the process.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Option<Config>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_a_stream_waits_for_its_configuration() {
        let configs = Configs::default();
        configs.put(1, None);
        assert_eq!((configs.wait(1), configs.find(2)), (None, None), "refused is known, too");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| configs.wait(2));
            configs.put(2, Some(("p", 7)));
            assert_eq!(waiting.join().unwrap(), Some(("p", 7)));
        });
        assert_eq!((configs.forget(2), configs.forget(2)), (Some(("p", 7)), None));
    }
}
