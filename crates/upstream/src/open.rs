//! Connections to each host of a cluster, counted over all workers, where hosts have limits of their own.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_model::Address;

/// A number per host, made with its first worker and gone with the last.
#[derive(Debug, Default)]
pub struct OpenConnections(Mutex<HashMap<Address, Weak<AtomicU32>>>);

impl OpenConnections {
    /// That of a host, the same for every worker.
    pub fn of(&self, address: &Address) -> Arc<AtomicU32> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(address).and_then(Weak::upgrade) {
            return count;
        }
        known.retain(|_, count| count.strong_count() > 0);
        let count = Arc::new(AtomicU32::new(0));
        known.insert(address.clone(), Arc::downgrade(&count));
        count
    }
}
