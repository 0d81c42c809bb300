//! The figures that Postrider has to reach, and the verdict of a run on each.

use std::fmt;

use crate::gate::{INSTRUCTION_LIMIT, SYSCALL_LIMIT};
use crate::load::Subject;
use crate::peer::Peer;
use crate::results::Results;
use crate::scenario::{
    C_API, ENTRIES, ENTRY, ENTRY_CHAIN, ENTRY_MACHINES, IDLE_CHAIN, IDLE_MACHINES, NATIVE_MODULE, R1, READ,
};
use crate::shape::READS;
use crate::stall::{self, StallSubject};

/// A target with what was measured for it.
#[derive(Debug)]
pub struct Verdict {
    pub target: &'static str,
    /// What is compared with the limit.
    pub unit: &'static str,
    pub limit: f64,
    /// `None`: its scenario or its peer was not part of the run, or failed.
    pub measured: Option<f64>,
    /// The comparison stands on samples which other load on the machine disturbed.
    pub disturbed: bool,
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self.measured {
            None => "NOT MEASURED",
            Some(value) if value <= self.limit => "PASS",
            Some(_) => "FAIL",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: limit {} {}", self.word(), self.target, self.limit, self.unit)?;
        if let Some(value) = self.measured {
            write!(f, ", measured {value:.3}")?;
        }
        if self.disturbed {
            f.write_str(" (no round was free of other load)")?;
        }
        Ok(())
    }
}

/// All targets, in the order of the report.
pub fn judge(results: &Results) -> Vec<Verdict> {
    use Peer::{Envoy, Haproxy, Nginx, Relay};
    let ratio = |target, scenario: &str, peer, limit| {
        let own = results.load(scenario, Peer::Postrider, 0);
        let other = results.load(scenario, peer, 0);
        Verdict {
            target,
            unit: "x",
            limit,
            measured: own.zip(other).and_then(|(own, other)| Some(own.ratio_to(other)?.median)),
            disturbed: disturbed(own.zip(other)),
        }
    };
    let pair = |scenario: &str| {
        let base = results.load(scenario, Peer::Postrider, 0);
        let more = results.load(scenario, Peer::Postrider, 1);
        (base.zip(more), disturbed(base.zip(more)))
    };
    let adds = |target, scenario: &str, limit| {
        let (compared, disturbed) = pair(scenario);
        let measured = compared.and_then(|(bare, more)| Some(more.excess_over(bare)?.median));
        Verdict { target, unit: "us", limit, measured, disturbed }
    };
    // A machine twice as slow adds twice the microseconds, to both.
    let of_envoys = |target, scenario: &str, label, limit| {
        let added = |peer| {
            let (bare, more) = (results.load(scenario, peer, 0)?, results.variant(scenario, peer, label)?);
            Some((more.excess_over(bare)?.median, disturbed(Some((bare, more)))))
        };
        let compared = added(Peer::Postrider).zip(added(Envoy));
        Verdict {
            target,
            unit: "x",
            limit,
            measured: compared.map(|((own, _), (envoys, _))| own / envoys),
            disturbed: compared.is_some_and(|((_, own), (_, envoys))| own || envoys),
        }
    };
    // R5 compares what a proxy carries in all, not what a filter adds.
    let of_natives = |target, scenario: &str| {
        let script = results.load(scenario, Peer::Postrider, 1);
        let compared = script.zip(results.variant(scenario, Peer::Postrider, NATIVE_MODULE));
        let measured = compared.and_then(|(script, native)| Some(script.ratio_to(native)?.median));
        Verdict { target, unit: "x", limit: 1.15, measured, disturbed: disturbed(compared) }
    };
    let by_c_api = {
        let compared = results.variant("lua-body100", Peer::Postrider, "Rider");
        let compared = compared.zip(results.variant("lua-body100", Peer::Postrider, C_API));
        Verdict {
            target: "CPU with 100 body reads by the SDK, of the same by Lua's C API",
            unit: "x",
            limit: 1.0,
            measured: compared.and_then(|(sdk, c_api)| Some(sdk.ratio_to(c_api)?.median)),
            disturbed: disturbed(compared),
        }
    };
    // What many of them add to a request, for one.
    let operation = |target, few: &str, many: &str, times: f64, limit| {
        let of = |label| results.variant("lua-operations", Peer::Postrider, label);
        let compared = of(few).zip(of(many));
        let measured = compared.and_then(|(few, many)| Some(many.excess_over(few)?.median * 1000.0 / times));
        Verdict { target, unit: "ns", limit, measured, disturbed: disturbed(compared) }
    };
    let plugin = |target, scenario: &str, label: &str, limit| {
        let bare = results.load(scenario, Peer::Postrider, 0);
        let compared = bare.zip(results.variant(scenario, Peer::Postrider, label));
        let measured = compared.and_then(|(bare, more)| Some(more.excess_over(bare)?.median));
        Verdict { target, unit: "us", limit, measured, disturbed: disturbed(compared) }
    };
    // Their part of the instructions, of the user time for the same requests.
    let statistics = {
        let user = results.load("http-4k", Peer::Postrider, 0).and_then(|own| own.spread(|sample| sample.user_us));
        results.statistics(Peer::Postrider).zip(user).map(|(part, user)| part * user.median)
    };
    let (passthrough, basic_auth) = (R1[0], R1[1]);
    let (routes, routes_disturbed) = pair("routes");
    let (auth, auth_disturbed) = pair("basic-auth");
    let plain = |target, unit, limit, measured| Verdict { target, unit, limit, measured, disturbed: false };
    let stall = |target, label| {
        let own = results.stall("handshake-stall", Peer::Postrider, label);
        Verdict {
            target,
            unit: "ms",
            limit: 1.0,
            measured: own.and_then(|own| Some(own.added(|latency| latency.p99_ms)?.median)),
            disturbed: own.is_some_and(StallSubject::only_disturbed),
        }
    };
    let idle =
        |scenario: &str| results.idle(scenario, Peer::Postrider).and_then(|own| Some(own.rss_per_unit()?.median));
    vec![
        ratio("CPU, 4 KB, 64 connections, of the relay", "http-4k", Relay, 1.20),
        ratio("CPU, 4 KB, 64 connections, of nginx", "http-4k", Nginx, 0.80),
        ratio("CPU, 4 KB, 64 connections, of Envoy", "http-4k", Envoy, 0.25),
        ratio("CPU, 4 KB, 16 connections, of the relay", "http-4k-16", Relay, 1.25),
        ratio("CPU, 4 KB, 16 connections, of nginx", "http-4k-16", Nginx, 0.85),
        ratio("CPU, 4 KB, 16 connections, of Envoy", "http-4k-16", Envoy, 0.30),
        ratio("CPU, 4 KB, 256 connections, of the relay", "http-4k-256", Relay, 1.25),
        ratio("CPU, 4 KB, 256 connections, of nginx", "http-4k-256", Nginx, 0.85),
        ratio("CPU, 4 KB, 256 connections, of Envoy", "http-4k-256", Envoy, 0.30),
        ratio("CPU, Envoy's default configuration, of Envoy", "defaults", Envoy, 0.28),
        adds("CPU that an access log adds", "access-log", 1.0),
        Verdict { target: "CPU that statistics add", unit: "us", limit: 0.3, measured: statistics, disturbed: false },
        ratio("CPU, 500 KB, of the relay", "http-500k", Relay, 1.15),
        ratio("CPU, TCP proxy 1 KB, of the relay", "tcp-1k", Relay, 1.10),
        ratio("CPU, TLS 4 KB, of nginx", "tls-4k", Nginx, 0.90),
        ratio("CPU, TLS 4 KB, of Envoy", "tls-4k", Envoy, 0.35),
        ratio("CPU, full handshake with ECDSA, of Envoy", "tls-handshake", Envoy, 1.00),
        ratio("CPU, full handshake with RSA, of Envoy", "tls-handshake-rsa", Envoy, 1.00),
        ratio("CPU, resumed handshake, of Envoy", "tls-resumed", Envoy, 1.00),
        ratio("CPU, HTTP/2 to HTTP/1.1 4 KB, of HAProxy", "h2-h1-4k", Haproxy, 1.10),
        ratio("CPU, HTTP/2 to HTTP/1.1 4 KB, of Envoy", "h2-h1-4k", Envoy, 0.32),
        ratio("CPU, HTTP/2 to HTTP/2 4 KB, of HAProxy", "h2-h2-4k", Haproxy, 1.10),
        ratio("CPU, HTTP/2 to HTTP/2 4 KB, of Envoy", "h2-h2-4k", Envoy, 0.32),
        Verdict {
            target: "CPU, 10,000 routes, of one route",
            unit: "x",
            limit: 1.05,
            measured: routes.and_then(|(one, many)| Some(many.ratio_to(one)?.median)),
            disturbed: routes_disturbed,
        },
        Verdict {
            target: "CPU that basic auth adds",
            unit: "us",
            limit: 0.5,
            measured: auth.and_then(|(bare, auth)| Some(auth.excess_over(bare)?.median)),
            disturbed: auth_disturbed,
        },
        adds("CPU that a script adds that does nothing", "lua-passthrough", 0.3),
        adds("CPU that a script adds with a statement in each function", "lua-entry", 0.5),
        adds("CPU that a compiled script's basic auth adds", "lua-basic-auth-jit", 1.0),
        adds("CPU that a plain script's basic auth adds", "lua-basic-auth-plain", 8.0),
        // What the limits in microseconds are of the figures that were published of Envoy.
        of_envoys("CPU that an empty script adds, of what it adds to Envoy", "lua-passthrough", "Lua", 0.086),
        of_envoys("CPU that a compiled script adds, of what it adds to Envoy", "lua-basic-auth-jit", "Lua", 0.21),
        of_envoys("CPU that a plain script adds, of what it adds to Envoy", "lua-basic-auth-plain", "Lua", 0.35),
        of_envoys("CPU that 10 reads add, of what they add to Envoy", "lua-simple", "Lua", 0.5),
        of_envoys("CPU that the normal script adds, of what it adds to Envoy", "lua-normal", "Lua", 0.5),
        of_envoys("CPU that the complex script adds, of what it adds to Envoy", "lua-complex", "Lua", 0.5),
        of_natives("CPU with 10 reads by a script, of the same in C", "lua-simple"),
        of_natives("CPU with the normal script, of the same in C", "lua-normal"),
        of_natives("CPU with the complex script, of the same in C", "lua-complex"),
        by_c_api,
        operation("CPU of a header read", ENTRY, READ, READS, 35.0),
        operation("CPU of an entry into a script", IDLE_CHAIN, ENTRY_CHAIN, ENTRIES, 60.0),
        operation("CPU of an entry into one of twenty machines", IDLE_MACHINES, ENTRY_MACHINES, ENTRIES, 60.0),
        plugin("CPU that a Wasm module in C adds that does nothing", passthrough, "Wasm, C", 0.6),
        plugin("CPU that a Wasm module in Go adds that does nothing", passthrough, "Wasm, Go", 1.5),
        plugin("CPU that a Go filter adds that does nothing", passthrough, "Go filter", 1.5),
        plugin("CPU that a native module adds that does nothing", passthrough, NATIVE_MODULE, 0.1),
        plugin("CPU that basic auth by a Wasm module in C adds", basic_auth, "Wasm, C", 1.5),
        plugin("CPU that basic auth by a Wasm module in Go adds", basic_auth, "Wasm, Go", 3.0),
        plugin("CPU that basic auth by a Go filter adds", basic_auth, "Go filter", 3.0),
        plugin("CPU that basic auth by a native module adds", basic_auth, NATIVE_MODULE, 0.5),
        of_envoys("the Wasm module in C that does nothing, of what it adds to Envoy", passthrough, "Wasm, C", 0.2),
        of_envoys("the Wasm module in Go that does nothing, of what it adds to Envoy", passthrough, "Wasm, Go", 0.27),
        of_envoys("basic auth by a Wasm module in C, of what it adds to Envoy", basic_auth, "Wasm, C", 0.28),
        of_envoys("basic auth by a Wasm module in Go, of what it adds to Envoy", basic_auth, "Wasm, Go", 0.38),
        plugin("CPU that basic auth on a goroutine adds", "go-goroutine", "goroutine", 9.0),
        plain(
            "resident memory at 64 connections",
            "MB",
            16.0,
            results
                .load("http-4k", Peer::Postrider, 0)
                .and_then(|own| Some(own.spread(|sample| sample.rss_kib as f64 * 1024.0 / 1e6)?.median)),
        ),
        plain("memory of an idle downstream connection", "KiB", 3.0, idle("idle-connections")),
        plain("the same with its pooled upstream connection", "KiB", 8.0, idle("idle-connections-pooled")),
        plain(
            "memory of an idle downstream TLS connection",
            "KB",
            25.0,
            idle("idle-tls-connections").map(|kib| kib * 1.024),
        ),
        plain("memory of an idle cluster", "KB", 5.0, idle("idle-clusters").map(|kib| kib * 1.024)),
        stall("p99 that bursts of ECDSA handshakes add to other requests", stall::VARIANTS[0].label),
        stall("p99 that bursts of RSA handshakes add to other requests", stall::VARIANTS[1].label),
        plain("user instructions per request", "", INSTRUCTION_LIMIT, results.instructions(Peer::Postrider)),
        plain("system calls per request", "", SYSCALL_LIMIT, results.syscalls(Peer::Postrider)),
    ]
}

fn disturbed(compared: Option<(&Subject, &Subject)>) -> bool {
    compared.is_some_and(|(one, other)| !one.shares_quiet_round(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Sample;
    use crate::results::{Measured, Outcome};
    use crate::scenario::{Kind, select};

    fn run_of(own: f64, nginx: f64) -> Results {
        let scenario = select(&["http-4k".to_owned()]).unwrap()[0];
        let Kind::Load(plan) = scenario.kind else { panic!("not a load scenario") };
        let subject = |peer, cpu_us| Subject {
            peer,
            variant: plan.variants[0],
            samples: vec![Sample {
                round: 0,
                cpu_us,
                user_us: 0.0,
                requests_per_second: 1.0,
                p50_ms: 1.0,
                p99_ms: 1.0,
                rss_kib: 10_000,
                pss_kib: 9_000,
                foreign: 0.0,
            }],
            failure: None,
        };
        Results {
            circumstances: Vec::new(),
            scenarios: vec![Measured {
                scenario,
                outcome: Outcome::Load(plan, vec![subject(Peer::Postrider, own), subject(Peer::Nginx, nginx)]),
            }],
        }
    }

    fn word(results: &Results, target: &str) -> &'static str {
        judge(results).iter().find(|verdict| verdict.target == target).expect("a target").word()
    }

    #[test]
    fn every_plugin_that_has_a_target_is_a_variant_of_its_scenario() {
        let sample = |cpu_us| run_of(cpu_us, 1.0).scenarios.remove(0);
        let of = |name: &str| {
            let scenario = select(&[name.to_owned()]).unwrap()[0];
            let Kind::Load(plan) = scenario.kind else { panic!("not a load scenario") };
            let Outcome::Load(_, mut subjects) = sample(10.0).outcome else { panic!("not a load") };
            let template = subjects.remove(0);
            let subjects = plan.variants.iter().enumerate().map(|(index, &variant)| Subject {
                variant,
                samples: template
                    .samples
                    .iter()
                    .map(|sample| Sample { cpu_us: 10.0 + index as f64, ..sample.clone() })
                    .collect(),
                peer: template.peer,
                failure: None,
            });
            Measured { scenario, outcome: Outcome::Load(plan, subjects.collect()) }
        };
        let scenarios = ["r1-passthrough", "r1-basic-auth", "go-goroutine", "lua-body100", "lua-operations"].map(of);
        let results = Results { circumstances: Vec::new(), scenarios: scenarios.into() };
        let verdicts = judge(&results);
        let added = |target: &str| verdicts.iter().find(|verdict| verdict.target == target).unwrap().measured;
        // What was put in as the place among the variants.
        assert_eq!(added("CPU that a Wasm module in C adds that does nothing"), Some(3.0));
        assert_eq!(added("CPU that basic auth by a native module adds"), Some(9.0));
        assert_eq!(added("CPU with 100 body reads by the SDK, of the same by Lua's C API"), Some(12.0 / 14.0));
        assert_eq!(added("CPU of a header read"), Some(1.0), "a microsecond for a thousand");
        assert_eq!(added("CPU of an entry into a script"), Some(25.0), "a microsecond for forty");
        assert_eq!(added("CPU of an entry into one of twenty machines"), Some(25.0), "the same");
        assert_eq!(verdicts.iter().filter(|verdict| verdict.measured.is_some()).count(), 13);
    }

    #[test]
    fn a_ratio_at_its_limit_passes_and_one_above_it_fails() {
        let target = "CPU, 4 KB, 64 connections, of nginx";
        assert_eq!(word(&run_of(8.0, 10.0), target), "PASS");
        assert_eq!(word(&run_of(8.1, 10.0), target), "FAIL");
    }

    #[test]
    fn what_was_not_part_of_the_run_is_neither_passed_nor_failed() {
        let results = run_of(8.0, 10.0);
        assert_eq!(word(&results, "CPU, 4 KB, 64 connections, of Envoy"), "NOT MEASURED");
        assert_eq!(word(&results, "system calls per request"), "NOT MEASURED");
    }
}
