//! The scenarios of the bench, as data.

use crate::config::nginx::Body;
use crate::error::{Error, Result};
use crate::generator::Generator;
use crate::grpc;
use crate::handshakes::Handshake;
use crate::plugin::{Plugin, Runtime, Task};
use crate::shape::{AUTHORIZATION, Dialect, Filter, Http, Key, Script, Shape};

/// Bodies that the upstream serves; `4k` is the 4,000 bytes of the reference scenario R2.
pub const BODIES: [Body; 4] = [
    Body { name: "13", bytes: 13 },
    Body { name: "1k", bytes: 1024 },
    Body { name: "4k", bytes: 4000 },
    Body { name: "500k", bytes: 512_000 },
];

/// Routes in the large table, and the one that is asked for: late, so that a list would have to be walked.
pub const MANY_ROUTES: usize = 10_000;
/// Connections and clusters in the idle scenarios.
pub const IDLE_CONNECTIONS: usize = 10_000;
pub const IDLE_CLUSTERS: usize = 5_000;

/// Something to measure.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub title: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Load(LoadPlan),
    IdleConnections(Idle),
    IdleClusters,
    /// What handshakes that come in bursts cost others, in milliseconds.
    HandshakeStall,
    Instructions,
    /// What of the instructions statistics cost.
    Statistics,
    Syscalls,
}

/// What an idle downstream connection has besides its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    Nothing,
    /// An idle upstream connection.
    Pooled,
    /// A TLS session.
    Tls,
}

/// A load on a proxy in one shape or several.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// The first is what the others are compared with.
    pub variants: &'static [Variant],
    pub path: &'static str,
    pub body: usize,
    pub connections: usize,
    pub headers: &'static [&'static str],
    pub sends: Sends,
    pub generator: Generator,
}

/// What each request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// It is a GET.
    Nothing,
    /// It is a POST of so many bytes.
    Bytes(usize),
    /// It is a gRPC call with a message of so many bytes, for the bench's own upstream.
    Message(usize),
}

#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub label: &'static str,
    pub shape: Shape,
}

const PLAIN: &[Variant] = &[Variant { label: "", shape: Shape::HTTP }];
const TCP: &[Variant] = &[Variant { label: "", shape: Shape::TCP }];
const ROUTES: &[Variant] = &[
    Variant { label: "1 route", shape: Shape::HTTP },
    Variant { label: "10,000 routes", shape: Shape { routes: MANY_ROUTES, ..Shape::HTTP } },
];
const AUTH: &[Variant] = &[
    Variant { label: "bare", shape: Shape::HTTP },
    Variant { label: "basic auth", shape: Shape { filter: Filter::BasicAuth, ..Shape::HTTP } },
];

const DEFAULTS: &[Variant] = &[Variant { label: "", shape: Shape { request_ids: true, ..Shape::HTTP } }];
const LOGGED: &[Variant] = &[
    Variant { label: "no log", shape: Shape::HTTP },
    Variant { label: "access log", shape: Shape { access_log: true, ..Shape::HTTP } },
];
const TLS: &[Variant] = &[Variant { label: "", shape: Shape { tls: Some(Key::Ecdsa), ..Shape::HTTP } }];
const TLS_RSA: &[Variant] = &[Variant { label: "", shape: Shape { tls: Some(Key::Rsa), ..Shape::HTTP } }];
const H2_H1: &[Variant] = &[Variant { label: "", shape: Shape { downstream: Http::Two, ..Shape::HTTP } }];
const H2_H2: &[Variant] =
    &[Variant { label: "", shape: Shape { downstream: Http::Two, upstream: Http::Two, ..Shape::HTTP } }];
const H2_TLS: &[Variant] =
    &[Variant { label: "", shape: Shape { downstream: Http::Two, tls: Some(Key::Ecdsa), ..Shape::HTTP } }];

/// Bytes of a gRPC message.
const MESSAGE: usize = 100;

/// The label of a variant that runs the native module.
pub const NATIVE_MODULE: &str = "native module";
/// The label of the plugin that reads bodies by a function in C.
pub const C_API: &str = "C API";

/// Without a filter, with the script, and with the same for Rider and in C.
const fn scripted(script: Script, native: Task) -> [Variant; 4] {
    [
        BARE,
        with("Lua", Filter::Lua(script, Dialect::Usual)),
        with("Rider", Filter::Lua(script, Dialect::Rider)),
        plugin(NATIVE_MODULE, Runtime::Native, native),
    ]
}
const LUA_PASSTHROUGH: &[Variant] = &scripted(Script::Passthrough, Task::Passthrough);
const LUA_ENTRY: &[Variant] = &scripted(Script::Entry, Task::Passthrough);
const LUA_BASIC_AUTH_JIT: &[Variant] = &scripted(Script::BasicAuthJit, Task::BasicAuth);
const LUA_BASIC_AUTH_PLAIN: &[Variant] = &scripted(Script::BasicAuthPlain, Task::BasicAuth);
const LUA_SIMPLE: &[Variant] = &scripted(Script::Simple, Task::Like(Script::Simple));
const LUA_NORMAL: &[Variant] = &scripted(Script::Normal, Task::Like(Script::Normal));
const LUA_COMPLEX: &[Variant] = &scripted(Script::Complex, Task::Like(Script::Complex));
const LUA_BODY100: &[Variant] = &{
    let like = Task::Like(Script::Body100);
    let [bare, lua, rider, native] = scripted(Script::Body100, like);
    [bare, lua, rider, native, plugin(C_API, Runtime::RiderC, like)]
};

/// Labels of [`OPERATIONS`].
pub const ENTRY: &str = "Rider, entry";
pub const READ: &str = "Rider, 1000 reads";
/// A chain of scripts that are equal, which have one machine: what is entered is warm, as what is read is in [`READ`].
pub const IDLE_CHAIN: &str = "20 empty scripts";
pub const ENTRY_CHAIN: &str = "20 scripts";
/// A chain of plugins of Rider, which have a machine each: what is entered was last used twenty entries before.
pub const IDLE_MACHINES: &str = "20 empty plugins";
pub const ENTRY_MACHINES: &str = "20 plugins";
/// Scripts in a chain, and functions that they have together.
const CHAIN: usize = 20;
pub const ENTRIES: f64 = 2.0 * CHAIN as f64;

/// What single operations of scripts cost, as differences between these.
const OPERATIONS: &[Variant] = &[
    BARE,
    with("Lua, entry", Filter::Lua(Script::Entry, Dialect::Usual)),
    with("Lua, 1000 reads", Filter::Lua(Script::Reads, Dialect::Usual)),
    with(ENTRY, Filter::Lua(Script::Entry, Dialect::Rider)),
    with(READ, Filter::Lua(Script::Reads, Dialect::Rider)),
    chain(IDLE_CHAIN, Script::Passthrough, Dialect::Usual),
    chain(ENTRY_CHAIN, Script::Entry, Dialect::Usual),
    chain(IDLE_MACHINES, Script::Passthrough, Dialect::Rider),
    chain(ENTRY_MACHINES, Script::Entry, Dialect::Rider),
];

const fn chain(label: &'static str, script: Script, dialect: Dialect) -> Variant {
    let filter = Filter::Lua(script, dialect);
    Variant { label, shape: Shape { filter, filters: CHAIN, ..Shape::HTTP } }
}

const BARE: Variant = Variant { label: "bare", shape: Shape::HTTP };

const fn with(label: &'static str, filter: Filter) -> Variant {
    Variant { label, shape: Shape { filter, ..Shape::HTTP } }
}

const fn plugin(label: &'static str, runtime: Runtime, task: Task) -> Variant {
    with(label, Filter::Plugin(Plugin { runtime, task }))
}

/// Scenario R1: the same task in every runtime, beside none.
const R1_PASSTHROUGH: &[Variant] = &[
    BARE,
    with("Lua", Filter::Lua(Script::Passthrough, Dialect::Usual)),
    with("Lua, a statement", Filter::Lua(Script::Entry, Dialect::Usual)),
    plugin("Wasm, C", Runtime::WasmC, Task::Passthrough),
    plugin("Wasm, Go", Runtime::WasmGo, Task::Passthrough),
    plugin("Wasm, Rust", Runtime::WasmRust, Task::Passthrough),
    plugin("Go filter", Runtime::Golang, Task::Passthrough),
    plugin("Go filter, own process", Runtime::GolangApart, Task::Passthrough),
    plugin(NATIVE_MODULE, Runtime::Native, Task::Passthrough),
];
const R1_BASIC_AUTH: &[Variant] = &[
    BARE,
    with("built-in filter", Filter::BasicAuth),
    with("Lua", Filter::Lua(Script::BasicAuthPlain, Dialect::Usual)),
    with("Lua, JIT-friendly", Filter::Lua(Script::BasicAuthJit, Dialect::Usual)),
    plugin("Wasm, C", Runtime::WasmC, Task::BasicAuth),
    plugin("Wasm, Go", Runtime::WasmGo, Task::BasicAuth),
    plugin("Wasm, Rust", Runtime::WasmRust, Task::BasicAuth),
    plugin("Go filter", Runtime::Golang, Task::BasicAuth),
    plugin("Go filter, own process", Runtime::GolangApart, Task::BasicAuth),
    plugin(NATIVE_MODULE, Runtime::Native, Task::BasicAuth),
];
const GOROUTINE: &[Variant] = &[BARE, plugin("goroutine", Runtime::Golang, Task::BasicAuthOnGoroutine)];

/// Requests in flight where a filter answers from a goroutine.
const IN_FLIGHT: usize = 32;

/// A load of scenario R1's kind: 13-byte answers, 100 connections, a password.
const fn script(variants: &'static [Variant], sends: Sends) -> Kind {
    let headers = &[AUTHORIZATION];
    Kind::Load(LoadPlan { headers, sends, ..get(variants, "/13", 13, 100, Generator::Wrk) })
}

const fn http(path: &'static str, body: usize, connections: usize) -> Kind {
    Kind::Load(get(PLAIN, path, body, connections, Generator::Wrk))
}

/// 8 connections with 8 streams each.
const fn http2(variants: &'static [Variant]) -> Kind {
    Kind::Load(get(variants, "/4k", 4000, 8, Generator::H2load { streams: 8 }))
}

/// A connection for each request, 64 at a time.
const fn handshakes(variants: &'static [Variant], kind: Handshake) -> Kind {
    Kind::Load(get(variants, "/13", 13, 64, Generator::Handshakes(kind)))
}

const fn get(
    variants: &'static [Variant],
    path: &'static str,
    body: usize,
    connections: usize,
    generator: Generator,
) -> LoadPlan {
    LoadPlan { variants, path, body, connections, headers: &[], sends: Sends::Nothing, generator }
}

/// The scenarios of the table of R1, in its order.
pub const R1: [&str; 2] = ["r1-passthrough", "r1-basic-auth"];

/// All scenarios, in the order of a full run.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "http-4k", title: "HTTP/1.1, 4 KB body, 64 connections", kind: http("/4k", 4000, 64) },
    Scenario { name: "http-4k-16", title: "HTTP/1.1, 4 KB body, 16 connections", kind: http("/4k", 4000, 16) },
    Scenario { name: "http-4k-256", title: "HTTP/1.1, 4 KB body, 256 connections", kind: http("/4k", 4000, 256) },
    Scenario { name: "http-13b", title: "HTTP/1.1, 13-byte body, 64 connections", kind: http("/13", 13, 64) },
    Scenario { name: "http-1k", title: "HTTP/1.1, 1 KB body, 64 connections", kind: http("/1k", 1024, 64) },
    Scenario { name: "http-500k", title: "HTTP/1.1, 500 KB body, 64 connections", kind: http("/500k", 512_000, 64) },
    Scenario {
        name: "http-new-connection",
        title: "a new connection for each request, 1 KB body, 64 at a time",
        kind: Kind::Load(LoadPlan { headers: &["Connection: close"], ..get(PLAIN, "/1k", 1024, 64, Generator::Wrk) }),
    },
    Scenario {
        name: "tcp-1k",
        title: "TCP proxy, 1 KB answers, 64 connections",
        kind: Kind::Load(get(TCP, "/1k", 1024, 64, Generator::Wrk)),
    },
    Scenario {
        name: "tls-4k",
        title: "HTTP/1.1 over TLS, ECDSA P-256, 4 KB body, 64 kept connections",
        kind: Kind::Load(get(TLS, "/4k", 4000, 64, Generator::Wrk)),
    },
    Scenario {
        name: "tls-handshake",
        title: "a full TLS 1.3 handshake for each request, ECDSA P-256, 13-byte body, 64 at a time",
        kind: handshakes(TLS, Handshake::Full),
    },
    Scenario {
        name: "tls-handshake-rsa",
        title: "a full TLS 1.3 handshake for each request, RSA 2048, 13-byte body, 64 at a time",
        kind: handshakes(TLS_RSA, Handshake::Full),
    },
    Scenario {
        name: "tls-resumed",
        title: "a resumed TLS 1.3 handshake for each request, 13-byte body, 64 at a time",
        kind: handshakes(TLS, Handshake::Resumed),
    },
    Scenario {
        name: "h2-h1-4k",
        title: "HTTP/2 to HTTP/1.1, 4 KB body, 8 connections with 8 streams",
        kind: http2(H2_H1),
    },
    Scenario {
        name: "h2-h2-4k",
        title: "HTTP/2 to HTTP/2, 4 KB body, 8 connections with 8 streams",
        kind: http2(H2_H2),
    },
    Scenario {
        name: "h2-tls-4k",
        title: "HTTP/2 over TLS to HTTP/1.1, ECDSA P-256, 4 KB body, 8 connections with 8 streams",
        kind: http2(H2_TLS),
    },
    Scenario {
        name: "grpc-unary",
        title: "unary gRPC calls over HTTP/2 on both sides, 100-byte messages, 8 connections with 8 streams",
        kind: Kind::Load(LoadPlan {
            headers: grpc::HEADERS,
            sends: Sends::Message(MESSAGE),
            ..get(H2_H2, grpc::PATH, grpc::framed(MESSAGE), 8, Generator::H2load { streams: 8 })
        }),
    },
    Scenario {
        name: "routes",
        title: "10,000 prefix routes against one, 4 KB body, 64 connections, a late route",
        kind: Kind::Load(get(ROUTES, "/r09990/4k", 4000, 64, Generator::Wrk)),
    },
    Scenario {
        name: "defaults",
        title: "the same as http-4k with what Envoy does by default: request ids",
        kind: Kind::Load(get(DEFAULTS, "/4k", 4000, 64, Generator::Wrk)),
    },
    Scenario {
        name: "access-log",
        title: "an access log in a file against none, 13-byte body, 64 connections",
        kind: Kind::Load(get(LOGGED, "/13", 13, 64, Generator::Wrk)),
    },
    Scenario {
        name: "basic-auth",
        title: "native basic auth against none, 13-byte body, 100 connections",
        kind: script(AUTH, Sends::Nothing),
    },
    Scenario {
        name: "lua-passthrough",
        title: "a script that does nothing (R1); functions without a statement are counted and not run by Postrider",
        kind: script(LUA_PASSTHROUGH, Sends::Nothing),
    },
    Scenario {
        name: "lua-entry",
        title: "a script with one statement in each function, all of which run it",
        kind: script(LUA_ENTRY, Sends::Nothing),
    },
    Scenario {
        name: "lua-basic-auth-jit",
        title: "basic auth by a script that compiles (R1)",
        kind: script(LUA_BASIC_AUTH_JIT, Sends::Nothing),
    },
    Scenario {
        name: "lua-basic-auth-plain",
        title: "basic auth by a script with patterns and closures (R1)",
        kind: script(LUA_BASIC_AUTH_PLAIN, Sends::Nothing),
    },
    Scenario { name: "lua-simple", title: "10 headers read (R5)", kind: script(LUA_SIMPLE, Sends::Nothing) },
    Scenario {
        name: "lua-normal",
        title: "20 headers set, 10 read, 20 removed (R5)",
        kind: script(LUA_NORMAL, Sends::Nothing),
    },
    Scenario {
        name: "lua-complex",
        title: "the same and a 1 KB body read 30 times (R5)",
        kind: script(LUA_COMPLEX, Sends::Bytes(1024)),
    },
    Scenario {
        name: "lua-body100",
        title: "a 1 KB body read 100 times (R5)",
        kind: script(LUA_BODY100, Sends::Bytes(1024)),
    },
    Scenario {
        name: "lua-operations",
        title: "what single operations of scripts cost: an entry, a header read",
        kind: script(OPERATIONS, Sends::Nothing),
    },
    Scenario {
        name: R1[0],
        title: "a plugin that does nothing, in every runtime (R1)",
        kind: script(R1_PASSTHROUGH, Sends::Nothing),
    },
    Scenario { name: R1[1], title: "basic auth, in every runtime (R1)", kind: script(R1_BASIC_AUTH, Sends::Nothing) },
    Scenario {
        name: "go-goroutine",
        title: "basic auth by a Go filter on a goroutine, 32 requests in flight",
        kind: Kind::Load(LoadPlan {
            headers: &[AUTHORIZATION],
            ..get(GOROUTINE, "/13", 13, IN_FLIGHT, Generator::Wrk)
        }),
    },
    Scenario {
        name: "idle-connections",
        title: "10,000 idle downstream connections after one request each",
        kind: Kind::IdleConnections(Idle::Nothing),
    },
    Scenario {
        name: "idle-connections-pooled",
        title: "10,000 idle downstream connections, each with an idle upstream connection",
        kind: Kind::IdleConnections(Idle::Pooled),
    },
    Scenario {
        name: "idle-tls-connections",
        title: "10,000 idle downstream TLS connections after one request each",
        kind: Kind::IdleConnections(Idle::Tls),
    },
    Scenario { name: "idle-clusters", title: "5,000 clusters without traffic", kind: Kind::IdleClusters },
    Scenario {
        name: "handshake-stall",
        title: "requests on a plain connection while bursts of 32 TLS handshakes reach the same worker",
        kind: Kind::HandshakeStall,
    },
    Scenario {
        name: "instructions",
        title: "user instructions per request (callgrind), 4 KB body, 64 connections",
        kind: Kind::Instructions,
    },
    Scenario {
        name: "statistics",
        title: "user instructions per request that statistics take (callgrind), 4 KB body, 64 connections",
        kind: Kind::Statistics,
    },
    Scenario {
        name: "syscalls",
        title: "system calls per request (strace), 4 KB body, 64 connections",
        kind: Kind::Syscalls,
    },
];

/// Scenarios by name, all when none is named; always in the order of a full run.
pub fn select(names: &[String]) -> Result<Vec<Scenario>> {
    if let Some(name) = names.iter().find(|name| SCENARIOS.iter().all(|scenario| scenario.name != **name)) {
        let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        return Err(Error::UnknownName { kind: "scenario", name: name.clone(), known: known.join(", ") });
    }
    let wanted = |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(SCENARIOS.iter().filter(wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_select_exactly_their_scenario() {
        for scenario in SCENARIOS {
            let selected = select(&[scenario.name.to_owned()]).unwrap();
            assert_eq!(selected.len(), 1, "{}", scenario.name);
        }
        assert!(select(&["http-5k".to_owned()]).is_err());
        assert_eq!(select(&[]).unwrap().len(), SCENARIOS.len());
    }

    #[test]
    fn every_load_asks_for_a_body_that_the_upstream_serves() {
        for scenario in SCENARIOS {
            if let Kind::Load(plan) = scenario.kind
                && !matches!(plan.sends, Sends::Message(_))
            {
                let name = plan.path.rsplit('/').next().unwrap();
                assert!(BODIES.iter().any(|body| body.name == name && body.bytes == plan.body), "{}", scenario.name);
            }
        }
    }

    #[test]
    fn the_variants_of_a_plan_have_names_of_their_own() {
        for scenario in SCENARIOS {
            if let Kind::Load(plan) = scenario.kind {
                let labels: std::collections::HashSet<_> = plan.variants.iter().map(|variant| variant.label).collect();
                assert_eq!(labels.len(), plan.variants.len(), "{}", scenario.name);
            }
        }
    }

    #[test]
    fn the_shapes_of_a_plan_share_their_upstream() {
        for scenario in SCENARIOS {
            if let Kind::Load(plan) = scenario.kind {
                let upstreams: Vec<Http> = plan.variants.iter().map(|variant| variant.shape.upstream).collect();
                assert!(upstreams.windows(2).all(|pair| pair[0] == pair[1]), "{}", scenario.name);
            }
        }
    }
}
