//! What a proxy is asked to be: the same few words for every peer, turned into each one's configuration by `config`.

use std::path::Path;

/// The user and password of the reference scenario R1.
pub const USER: &str = "fooname";
pub const PASSWORD: &str = "validpassword";
/// `Authorization` for them (RFC 7617 section 2).
pub const AUTHORIZATION: &str = "Authorization: Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk";
/// The password as htpasswd's `{SHA}` form, which nginx and Envoy read.
pub const PASSWORD_SHA: &str = "{SHA}uyEhawnTvi2eQL6rOK5XrysR0IE=";

/// What the proxy does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Tcp,
}

/// A configuration, in no peer's words.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub protocol: Protocol,
    /// 1: a route for every path. More: that many prefixes `/rNNNNN/`.
    pub routes: usize,
    /// Check the user and password above.
    pub basic_auth: bool,
    /// Clusters beside the one in use that get no traffic.
    pub idle_clusters: usize,
    /// Downstream connections that must fit, each perhaps with an upstream connection.
    pub connections: usize,
}

impl Shape {
    pub const HTTP: Self =
        Self { protocol: Protocol::Http, routes: 1, basic_auth: false, idle_clusters: 0, connections: 500 };
    pub const TCP: Self = Self { protocol: Protocol::Tcp, ..Self::HTTP };
}

/// A shape with the addresses and files of one start.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub shape: Shape,
    pub directory: &'a Path,
    /// Loopback ports.
    pub listen: u16,
    pub admin: u16,
    pub upstream: u16,
    /// One process only, because a tracer wants it so (nginx: no master).
    pub single_process: bool,
    /// Open files that a process may have.
    pub file_limit: u64,
}

/// The prefix of a numbered route.
pub fn route_prefix(number: usize) -> String {
    format!("/r{number:05}/")
}
