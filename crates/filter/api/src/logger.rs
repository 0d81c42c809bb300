//! Access loggers that are plugins: they are told of each record, and write where they like.

use std::rc::Rc;
use std::sync::Arc;

use crate::{ConfigError, Ended, Place, WatchedFile, plugin};

/// A logger with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait LoggerFactory: Send + Sync {
    /// The logger on one worker. Called there, when the configuration comes into force: it must be quick.
    fn logger(&self, place: &Place<'_>) -> Rc<dyn AccessLogger>;

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
}

/// On one worker.
pub trait AccessLogger {
    /// What the log's condition lets through; [`StreamInfo::logged`](crate::StreamInfo::logged) says what it is about. Of a
    /// connection, for which `http` is false, the messages are empty. `id` tells it from all others, where it has one.
    fn log(&self, record: &Ended<'_>, http: bool, id: Option<&[u8]>);
}

/// Builds a factory from a logger's name and its configuration.
pub type BuildLogger = fn(&str, &postrider_model::Value) -> Result<Arc<dyn LoggerFactory>, ConfigError>;
