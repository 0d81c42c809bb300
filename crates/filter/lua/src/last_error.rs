//! What a plugin's script last failed with, on whatever worker: for the admin.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Characters of an error that are kept: scripts raise what they like.
const LONGEST: usize = 4000;

/// Shared by the workers, and locked about once a second at most: see [`crate::plugin::Plugin::explains`].
#[derive(Debug, Clone, Default)]
pub(crate) struct LastError(Arc<Mutex<Option<(SystemTime, String)>>>);

impl LastError {
    pub(crate) fn note(&self, at: SystemTime, text: &str) {
        let text = match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text.to_owned(),
        };
        *self.lock() = Some((at, text));
    }

    pub(crate) fn seen(&self) -> Option<(SystemTime, String)> {
        self.lock().clone()
    }

    /// A panic with the lock held leaves a whole value behind.
    fn lock(&self) -> MutexGuard<'_, Option<(SystemTime, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
