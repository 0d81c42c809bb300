//! What a proxy is asked to be: the same few words for every peer, turned into each one's configuration by `config`.

use std::path::Path;

use crate::plugin::Plugin;
use crate::tls::Certificate;

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

/// The version of HTTP on one side of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    One,
    /// In clear text with prior knowledge, over TLS by ALPN.
    Two,
}

impl Http {
    /// Its name in ALPN (RFC 7301 section 6, RFC 9113 section 3.1).
    pub fn alpn(self) -> &'static str {
        match self {
            Self::One => "http/1.1",
            Self::Two => "h2",
        }
    }
}

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// ECDSA on P-256.
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
}

/// A filter in the proxy's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    None,
    /// Check the user and password above, by the proxy's own means.
    BasicAuth,
    /// A script of `lua/`.
    Lua(Script, Dialect),
    /// Code that was compiled before the run.
    Plugin(Plugin),
}

/// Whose objects a script uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The peer's own: Envoy's Lua filter for Postrider and Envoy, HAProxy's actions for HAProxy.
    Usual,
    /// Rider v2; Postrider alone has it.
    Rider,
}

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Passthrough,
    Entry,
    BasicAuthJit,
    BasicAuthPlain,
    Simple,
    Normal,
    Complex,
    Body100,
    /// One header, [`READS`] times.
    Reads,
}

/// How often [`Script::Reads`] reads.
pub const READS: f64 = 1000.0;

impl Filter {
    /// Whether a request without a password is answered with 401.
    pub fn asks_for_password(self) -> bool {
        match self {
            Self::BasicAuth | Self::Lua(Script::BasicAuthJit | Script::BasicAuthPlain, _) => true,
            Self::Plugin(plugin) => plugin.task.asks_for_password(),
            Self::None | Self::Lua(..) => false,
        }
    }

    /// The plugin, if it is one.
    pub fn plugin(self) -> Option<Plugin> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            Self::None | Self::BasicAuth | Self::Lua(..) => None,
        }
    }
}

/// A script in each dialect.
macro_rules! sources {
    ($name:literal) => {
        (include_str!(concat!("../lua/", $name, ".lua")), include_str!(concat!("../lua/", $name, ".rider.lua")))
    };
}

impl Script {
    /// Its file in `lua/`, without what ends it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::Entry => "entry",
            Self::BasicAuthJit => "basic_auth_jit",
            Self::BasicAuthPlain => "basic_auth_plain",
            Self::Simple => "simple",
            Self::Normal => "normal",
            Self::Complex => "complex",
            Self::Body100 => "body100",
            Self::Reads => "reads",
        }
    }

    /// For Postrider and Envoy.
    pub fn source(self, dialect: Dialect) -> &'static str {
        let (usual, rider) = match self {
            Self::Passthrough => sources!("passthrough"),
            Self::Entry => sources!("entry"),
            Self::BasicAuthJit => sources!("basic_auth_jit"),
            Self::BasicAuthPlain => sources!("basic_auth_plain"),
            Self::Simple => sources!("simple"),
            Self::Normal => sources!("normal"),
            Self::Complex => sources!("complex"),
            Self::Body100 => sources!("body100"),
            Self::Reads => sources!("reads"),
        };
        match dialect {
            Dialect::Usual => usual,
            Dialect::Rider => rider,
        }
    }

    /// For HAProxy.
    pub fn haproxy(self) -> &'static str {
        match self {
            Self::Passthrough => include_str!("../lua/passthrough.haproxy.lua"),
            Self::Entry => include_str!("../lua/entry.haproxy.lua"),
            Self::BasicAuthJit => include_str!("../lua/basic_auth_jit.haproxy.lua"),
            Self::BasicAuthPlain => include_str!("../lua/basic_auth_plain.haproxy.lua"),
            Self::Simple => include_str!("../lua/simple.haproxy.lua"),
            Self::Normal => include_str!("../lua/normal.haproxy.lua"),
            Self::Complex => include_str!("../lua/complex.haproxy.lua"),
            Self::Body100 => include_str!("../lua/body100.haproxy.lua"),
            Self::Reads => include_str!("../lua/reads.haproxy.lua"),
        }
    }

    /// Whether it has something to do with the answer.
    pub fn sees_answers(self) -> bool {
        matches!(self, Self::Passthrough | Self::Entry)
    }

    /// Whether it reads the request's body.
    pub fn reads_body(self) -> bool {
        matches!(self, Self::Complex | Self::Body100)
    }
}

/// A configuration, in no peer's words.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub protocol: Protocol,
    /// HTTP with clients.
    pub downstream: Http,
    /// HTTP with the upstream.
    pub upstream: Http,
    /// Clients come over TLS, and this kind of key proves who the proxy is.
    pub tls: Option<Key>,
    /// A second listener that does the same without TLS, served by the same worker.
    pub plain_beside: bool,
    /// 1: a route for every path. More: that many prefixes `/rNNNNN/`.
    pub routes: usize,
    /// What the proxy does with a request on its way.
    pub filter: Filter,
    /// How often one after the other, if it is a script.
    pub filters: usize,
    /// Requests without an id get one, as by Envoy's default.
    pub request_ids: bool,
    /// Each request is a line of a file, in the proxy's own default format.
    pub access_log: bool,
    /// Clusters beside the one in use that get no traffic.
    pub idle_clusters: usize,
    /// Downstream connections that must fit, each perhaps with an upstream connection.
    pub connections: usize,
}

impl Shape {
    pub const HTTP: Self = Self {
        protocol: Protocol::Http,
        downstream: Http::One,
        upstream: Http::One,
        tls: None,
        plain_beside: false,
        routes: 1,
        filter: Filter::None,
        filters: 1,
        request_ids: false,
        access_log: false,
        idle_clusters: 0,
        connections: 500,
    };
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
    /// The port of the listener without TLS, if the shape has one beside.
    pub plain: u16,
    /// The certificate to show, if the shape has TLS.
    pub certificate: Option<&'a Certificate>,
    /// The file of the plugin, if the shape has one.
    pub module: Option<&'a Path>,
    /// Where WebAssembly that is compiled is kept, for the next start.
    pub compiled: &'a Path,
    /// One process only, because a tracer wants it so (nginx: no master).
    pub single_process: bool,
    /// Open files that a process may have.
    pub file_limit: u64,
}

/// The prefix of a numbered route.
pub fn route_prefix(number: usize) -> String {
    format!("/r{number:05}/")
}
