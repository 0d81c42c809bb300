//! Filters of connections: whether one is served, before anything of it is read.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use crate::{Place, StreamInfo};

/// A guard with its configuration. Lives as long as the snapshot; shared by the workers.
pub trait GuardFactory: Send + Sync {
    /// The guard on one worker. Called there: it must be quick.
    fn guard(&self, place: &Place<'_>) -> Rc<dyn Guard>;
}

/// Asked about each connection of its chain, once its TLS is agreed on.
pub trait Guard {
    /// `server_name` is what the client asked for, in lower case. What is noted in `info` reaches logs.
    fn on_connection(&self, info: &mut StreamInfo, server_name: Option<&str>) -> Admission;
}

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
