//! What runs on workers without any listener: extensions of the bootstrap, and plugins that statistics are sent to.

use std::rc::Rc;
use std::sync::Arc;

use crate::{ConfigError, Place, WatchedFile, plugin};

/// What runs of a service on one worker.
pub trait Service {
    /// It is a sink of statistics, and this is what changed since the last time, in the form of the worker's `sinks::plugin`.
    fn on_statistics(&self, _: &[u8]) {}
}

/// A service with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait ServiceFactory: Send + Sync {
    /// Begins it on one worker. Called there when the configuration comes into force, before its listeners serve: it must be
    /// quick. What it answers is kept until a configuration without it comes into force; `None` where it does not run.
    fn begin(&self, place: &Place<'_>) -> Option<Rc<dyn Service>>;

    /// Files that were read for it.
    fn files(&self) -> &[WatchedFile] {
        &[]
    }

    /// Whether building it now would give the same, as far as that depends on more than its configuration and its files.
    fn is_current(&self) -> bool {
        true
    }

    /// What the admin tells about it, when it is a plugin.
    fn plugin(&self) -> Option<&plugin::Facts> {
        None
    }

    /// What the admin tells about a plugin's state for the time being.
    fn note(&self) -> Option<&'static str> {
        None
    }
}

/// Builds a factory from a service's name and its configuration.
pub type BuildService = fn(&str, &postrider_model::Value) -> Result<Arc<dyn ServiceFactory>, ConfigError>;
