//! Sessions that the server keeps, for clients of TLS 1.2 that take no tickets.
//!
//! One store serves the whole process: a client that comes back may meet another worker. It is asked once per handshake
//! of such clients, so one lock is enough.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustls::server::StoresServerSessions;

use crate::tickets::{ContextId, now};

/// Sessions in the store at once; the oldest goes first. As many as BoringSSL keeps.
const MAX_SESSIONS: usize = 20_480;

/// The process' store.
pub(crate) fn shared() -> Arc<Store> {
    static STORE: OnceLock<Arc<Store>> = OnceLock::new();
    STORE.get_or_init(|| Arc::new(Store::new(MAX_SESSIONS))).clone()
}

pub(crate) struct Store {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<Vec<u8>, Session>,
    /// Keys in the order in which they came; some may be gone.
    order: VecDeque<Vec<u8>>,
}

struct Session {
    issued: u64,
    value: Vec<u8>,
}

impl Store {
    pub fn new(most: usize) -> Store {
        Store { most, kept: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        // Who panicked while holding it left a map that is whole: nothing runs between two changes of it.
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, key: Vec<u8>, session: Session) {
        self.with(|kept| {
            if kept.sessions.insert(key.clone(), session).is_none() {
                kept.order.push_back(key);
            }
            while kept.order.len() > self.most {
                if let Some(oldest) = kept.order.pop_front() {
                    kept.sessions.remove(&oldest);
                }
            }
        });
    }
}

/// Sessions of one context in the shared store. The context is part of the key, so no other finds them.
pub(crate) struct Bound {
    store: Arc<Store>,
    context: ContextId,
    lifetime: Duration,
    clock: fn() -> u64,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sessions::Bound")
    }
}

impl Bound {
    pub fn new(store: Arc<Store>, context: ContextId, lifetime: Duration) -> Bound {
        Bound { store, context, lifetime, clock: now }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.context[..], key].concat()
    }

    fn is_fresh(&self, session: &Session) -> bool {
        (self.clock)().saturating_sub(session.issued) < self.lifetime.as_secs()
    }
}

impl StoresServerSessions for Bound {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.store.put(self.key(&key), Session { issued: (self.clock)(), value });
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(key);
        self.store.with(|kept| kept.sessions.get(&key).filter(|it| self.is_fresh(it)).map(|it| it.value.clone()))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(key);
        let session = self.store.with(|kept| kept.sessions.remove(&key))?;
        self.is_fresh(&session).then_some(session.value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(store: &Arc<Store>, context: u8, clock: fn() -> u64) -> Bound {
        Bound { store: store.clone(), context: [context; 32], lifetime: Duration::from_secs(60), clock }
    }

    #[test]
    fn a_session_is_found_in_its_own_context_only() {
        let store = Arc::new(Store::new(8));
        let (one, other) = (bound(&store, 1, || 0), bound(&store, 2, || 0));
        assert!(one.put(vec![9], vec![1, 2]));
        assert_eq!(other.get(&[9]), None);
        assert_eq!(one.get(&[9]), Some(vec![1, 2]));
        assert_eq!(one.take(&[9]), Some(vec![1, 2]));
        assert_eq!(one.take(&[9]), None);
    }

    #[test]
    fn a_session_ends() {
        let store = Arc::new(Store::new(8));
        bound(&store, 1, || 100).put(vec![9], vec![1]);
        assert!(bound(&store, 1, || 159).get(&[9]).is_some());
        assert!(bound(&store, 1, || 160).get(&[9]).is_none());
        assert!(bound(&store, 1, || 160).take(&[9]).is_none());
    }

    #[test]
    fn the_oldest_goes_when_the_store_is_full() {
        let store = Arc::new(Store::new(2));
        let sessions = bound(&store, 1, || 0);
        for key in 1..=3 {
            sessions.put(vec![key], vec![key]);
        }
        sessions.take(&[2]);
        sessions.put(vec![4], vec![4]);
        assert_eq!([1, 2, 3, 4].map(|key| sessions.get(&[key]).is_some()), [false, false, true, true]);
        assert!(store.with(|kept| kept.order.len() <= 2 && kept.sessions.len() <= 2));
    }
}
