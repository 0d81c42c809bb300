//! The scenarios of the bench, as data.

use crate::config::nginx::Body;
use crate::error::{Error, Result};
use crate::shape::{AUTHORIZATION, Dialect, Filter, Script, Shape};

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
    /// Memory per idle downstream connection; `pooled`: each with an idle upstream connection.
    IdleConnections {
        pooled: bool,
    },
    IdleClusters,
    Instructions,
    Syscalls,
}

/// A load on a proxy in one or two shapes.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// The first is what the second is compared with.
    pub variants: &'static [Variant],
    pub path: &'static str,
    pub body: usize,
    pub connections: usize,
    pub headers: &'static [&'static str],
    /// Bytes that each request carries; 0 is a GET.
    pub sends: usize,
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

/// Without a filter, with the script, and with the same for Rider.
macro_rules! scripted {
    ($name:ident, $script:ident) => {
        const $name: &[Variant] = &[
            Variant { label: "bare", shape: Shape::HTTP },
            Variant {
                label: "Lua",
                shape: Shape { filter: Filter::Lua(Script::$script, Dialect::Usual), ..Shape::HTTP },
            },
            Variant {
                label: "Rider",
                shape: Shape { filter: Filter::Lua(Script::$script, Dialect::Rider), ..Shape::HTTP },
            },
        ];
    };
}
scripted!(LUA_PASSTHROUGH, Passthrough);
scripted!(LUA_BASIC_AUTH_JIT, BasicAuthJit);
scripted!(LUA_BASIC_AUTH_PLAIN, BasicAuthPlain);
scripted!(LUA_SIMPLE, Simple);
scripted!(LUA_NORMAL, Normal);
scripted!(LUA_COMPLEX, Complex);
scripted!(LUA_BODY100, Body100);

/// A scripted load of scenario R1's kind: 13-byte answers, 100 connections, a password.
const fn script(variants: &'static [Variant], sends: usize) -> Kind {
    Kind::Load(LoadPlan { variants, path: "/13", body: 13, connections: 100, headers: &[AUTHORIZATION], sends })
}

const fn http(path: &'static str, body: usize, connections: usize) -> Kind {
    Kind::Load(LoadPlan { variants: PLAIN, path, body, connections, headers: &[], sends: 0 })
}

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
        kind: Kind::Load(LoadPlan {
            variants: PLAIN,
            path: "/1k",
            body: 1024,
            connections: 64,
            headers: &["Connection: close"],
            sends: 0,
        }),
    },
    Scenario {
        name: "tcp-1k",
        title: "TCP proxy, 1 KB answers, 64 connections",
        kind: Kind::Load(LoadPlan { variants: TCP, path: "/1k", body: 1024, connections: 64, headers: &[], sends: 0 }),
    },
    Scenario {
        name: "routes",
        title: "10,000 prefix routes against one, 4 KB body, 64 connections, a late route",
        kind: Kind::Load(LoadPlan {
            variants: ROUTES,
            path: "/r09990/4k",
            body: 4000,
            connections: 64,
            headers: &[],
            sends: 0,
        }),
    },
    Scenario {
        name: "basic-auth",
        title: "native basic auth against none, 13-byte body, 100 connections",
        kind: Kind::Load(LoadPlan {
            variants: AUTH,
            path: "/13",
            body: 13,
            connections: 100,
            headers: &[AUTHORIZATION],
            sends: 0,
        }),
    },
    Scenario { name: "lua-passthrough", title: "a script that does nothing (R1)", kind: script(LUA_PASSTHROUGH, 0) },
    Scenario {
        name: "lua-basic-auth-jit",
        title: "basic auth by a script that compiles (R1)",
        kind: script(LUA_BASIC_AUTH_JIT, 0),
    },
    Scenario {
        name: "lua-basic-auth-plain",
        title: "basic auth by a script with patterns and closures (R1)",
        kind: script(LUA_BASIC_AUTH_PLAIN, 0),
    },
    Scenario { name: "lua-simple", title: "10 headers read (R5)", kind: script(LUA_SIMPLE, 0) },
    Scenario { name: "lua-normal", title: "20 headers set, 10 read, 20 removed (R5)", kind: script(LUA_NORMAL, 0) },
    Scenario {
        name: "lua-complex",
        title: "the same and a 1 KB body read 30 times (R5)",
        kind: script(LUA_COMPLEX, 1024),
    },
    Scenario { name: "lua-body100", title: "a 1 KB body read 100 times (R5)", kind: script(LUA_BODY100, 1024) },
    Scenario {
        name: "idle-connections",
        title: "10,000 idle downstream connections after one request each",
        kind: Kind::IdleConnections { pooled: false },
    },
    Scenario {
        name: "idle-connections-pooled",
        title: "10,000 idle downstream connections, each with an idle upstream connection",
        kind: Kind::IdleConnections { pooled: true },
    },
    Scenario { name: "idle-clusters", title: "5,000 clusters without traffic", kind: Kind::IdleClusters },
    Scenario {
        name: "instructions",
        title: "user instructions per request (callgrind), 4 KB body, 64 connections",
        kind: Kind::Instructions,
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
            if let Kind::Load(plan) = scenario.kind {
                let name = plan.path.rsplit('/').next().unwrap();
                assert!(BODIES.iter().any(|body| body.name == name && body.bytes == plan.body), "{}", scenario.name);
            }
        }
    }
}
