//! Filters of connections: whether one is served, before anything of it is read.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use postrider_model::LogFormat;

use crate::{Place, StreamInfo, WatchedFile};

/// A guard with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait GuardFactory: Send + Sync {
    /// The guard on one worker. Called there: it must be quick.
    fn guard(&self, place: &Place<'_>) -> Rc<dyn Guard>;

    /// Files that were read for it.
    fn files(&self) -> &[WatchedFile] {
        &[]
    }
}

/// Asked about each connection of its chain, once its TLS is agreed on.
pub trait Guard {
    fn on_connection(&self, visit: &mut Visit<'_>) -> Admission;
}

/// A connection, as a guard sees it.
pub struct Visit<'a> {
    /// The metadata that is noted here reaches logs, the filter state requests of the connection as well.
    pub info: &'a mut StreamInfo,
    /// What the client asked for, in lower case.
    pub server_name: Option<&'a str>,
    /// Appends what a log would write, `-` for a command without a value.
    pub write: &'a dyn Fn(&StreamInfo, &LogFormat, &mut Vec<u8>),
}

/// The object of the filter state that names the cluster of a connection that is carried without being read, in the place of
/// the one that its configuration names.
pub const TCP_CLUSTER: &str = "envoy.tcp_proxy.cluster";

/// What becomes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Serve,
    /// It ends without a word.
    Close {
        after: Option<Duration>,
        /// For `%CONNECTION_TERMINATION_DETAILS%`; a token.
        details: Cow<'static, str>,
    },
}
