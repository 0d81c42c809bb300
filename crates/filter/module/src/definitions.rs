//! The statistics that a module names while its configuration is made, and at no other time.

use std::sync::{Mutex, OnceLock, PoisonError};

use postrider_filter_plugin::Sort;

/// Most statistics that one configuration may define.
const MAX_DEFINED: usize = 1000;

/// A statistic that the module named.
#[derive(Debug, Clone)]
pub(crate) struct Defined {
    pub(crate) sort: Sort,
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
}

pub(crate) struct Definitions {
    /// While the module makes its part; then as it is.
    defining: Mutex<Option<Vec<Defined>>>,
    defined: OnceLock<Vec<Defined>>,
}

impl Default for Definitions {
    fn default() -> Definitions {
        Definitions { defining: Mutex::new(Some(Vec::new())), defined: OnceLock::new() }
    }
}

impl Definitions {
    /// A number for the statistic; `None` when the time for that is over.
    pub(crate) fn define(&self, defined: Defined) -> Option<usize> {
        let mut defining = self.defining.lock().unwrap_or_else(PoisonError::into_inner);
        let all = defining.as_mut().filter(|all| all.len() < MAX_DEFINED)?;
        all.push(defined);
        Some(all.len())
    }

    /// The time for that is over.
    pub(crate) fn close(&self) {
        let defined = self.defining.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It is closed once.
        let _ = self.defined.set(defined.unwrap_or_default());
    }

    pub(crate) fn get(&self, id: usize) -> Option<&Defined> {
        self.all().get(id.checked_sub(1)?)
    }

    /// Every statistic that the module defined.
    pub(crate) fn all(&self) -> &[Defined] {
        self.defined.get().map_or(&[], Vec::as_slice)
    }
}
