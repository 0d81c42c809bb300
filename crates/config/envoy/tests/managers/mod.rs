//! What tests of connection managers look at.

use postrider_model::{ConnectionHandler, HttpConnection, Listener};

/// The connection manager of a listener; panics where something else serves it.
#[track_caller]
pub fn http(listener: &Listener) -> &HttpConnection {
    match &listener.filter_chains[0].handler {
        ConnectionHandler::Http(http) => http,
        _ => panic!("no HTTP"),
    }
}
