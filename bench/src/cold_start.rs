//! How long a module of WebAssembly takes until it serves.
//!
//! A proxy is started without a plugin, with a module that it has to compile, and once more with what the second start kept.
//! What a start takes more than one without a plugin, from the start of the process to its first right answer, is the module's.
//! As in every measurement the proxy has one CPU.

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::peer::Peer;
use crate::plugin::{Plugin, Runtime, Task};
use crate::probe::Probe;
use crate::rig::{Rig, Wrap};
use crate::shape::{AUTHORIZATION, Filter, Http, Shape};
use crate::stats::Spread;

/// What it is measured with: more than 3 MB of code and data, of the Go compiler.
const PLUGIN: Plugin = Plugin { runtime: Runtime::WasmGo, task: Task::BasicAuth };

/// Milliseconds from which on a module that is compiled at the start is too slow, and one that was kept.
const COMPILED_LIMIT_MS: f64 = 1000.0;
const KEPT_LIMIT_MS: f64 = 20.0;

/// The starts of one proxy, in milliseconds.
pub struct Starts {
    peer: Peer,
    bare: Vec<f64>,
    /// Beyond those of the same round without a plugin.
    compiled: Vec<f64>,
    kept: Vec<f64>,
}

/// Everything that was measured.
pub struct Outcome {
    module_bytes: u64,
    starts: Vec<Starts>,
}

/// # Errors
/// A proxy did not start, or the module is not built.
pub fn measure(rig: &Rig, peers: &[Peer], rounds: usize) -> Result<Outcome> {
    let module = rig.tools.module(PLUGIN)?;
    let module_bytes = std::fs::metadata(&module).map_err(Error::io("reading the module"))?.len();
    let (upstream, port) = rig.start_upstream(Http::One)?;
    let probe = Probe { headers: &[AUTHORIZATION], ..Probe::get("/13", 13) };
    let start = |peer, filter| -> Result<f64> {
        let proxy = rig.start_proxy(peer, Shape { filter, ..Shape::HTTP }, port, probe, Wrap::Plain)?;
        let ready = milliseconds(proxy.ready_after);
        proxy.finish()?;
        Ok(ready)
    };
    let mut starts = Vec::new();
    for &peer in peers {
        let mut all = Starts { peer, bare: Vec::new(), compiled: Vec::new(), kept: Vec::new() };
        for _ in 0..rounds {
            rig.forget_compiled()?;
            let bare = start(peer, Filter::None)?;
            all.bare.push(bare);
            all.compiled.push(start(peer, Filter::Plugin(PLUGIN))? - bare);
            all.kept.push(start(peer, Filter::Plugin(PLUGIN))? - bare);
        }
        starts.push(all);
    }
    upstream.stop()?;
    Ok(Outcome { module_bytes, starts })
}

impl Outcome {
    /// Whether Postrider stayed within both limits.
    pub fn passed(&self) -> bool {
        let own = self.starts.iter().filter(|starts| starts.peer == Peer::Postrider);
        let mut own = own.map(|starts| (median(&starts.compiled), median(&starts.kept)));
        own.all(|(compiled, kept)| compiled <= COMPILED_LIMIT_MS && kept <= KEPT_LIMIT_MS)
    }

    pub fn table(&self) -> String {
        let mut text = format!("a module of {:.1} MB, in Go\n", self.module_bytes as f64 / 1e6);
        let row = |name: &str, bare: &str, compiled: &str, kept: &str| {
            format!("{name:<12} {bare:>12} {compiled:>12} {kept:>12}\n")
        };
        text += &row("", "bare ms", "compiled +ms", "kept +ms");
        for starts in &self.starts {
            let [bare, compiled, kept] =
                [&starts.bare, &starts.compiled, &starts.kept].map(|it| format!("{:.1}", median(it)));
            text += &row(starts.peer.name(), &bare, &compiled, &kept);
        }
        text + &row("limit", "", &format!("{COMPILED_LIMIT_MS:.0}"), &format!("{KEPT_LIMIT_MS:.0}"))
    }

    pub fn json(&self) -> Value {
        let starts: Vec<Value> = self
            .starts
            .iter()
            .map(|starts| {
                json!({
                    "proxy": starts.peer.name(), "bare_ms": starts.bare, "compiled_ms": starts.compiled, "kept_ms": starts.kept,
                })
            })
            .collect();
        json!({
            "module_bytes": self.module_bytes, "compiled_limit_ms": COMPILED_LIMIT_MS, "kept_limit_ms": KEPT_LIMIT_MS,
            "starts": starts,
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(all: &[f64]) -> f64 {
    Spread::of(all.iter().copied()).map_or(f64::NAN, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(compiled: f64, kept: f64) -> Outcome {
        let starts =
            |peer, compiled, kept| Starts { peer, bare: vec![50.0], compiled: vec![compiled], kept: vec![kept] };
        let starts = vec![starts(Peer::Postrider, compiled, kept), starts(Peer::Envoy, 5000.0, 5000.0)];
        Outcome { module_bytes: 3_300_000, starts }
    }

    #[test]
    fn only_postriders_own_starts_are_judged() {
        assert!(outcome(1000.0, 20.0).passed());
        assert!(!outcome(1000.5, 20.0).passed());
        assert!(!outcome(900.0, 20.5).passed());
    }

    #[test]
    fn the_table_shows_what_a_module_adds() {
        let text = outcome(700.25, 12.0).table();
        assert!(text.contains("3.3 MB") && text.contains("700.2") && text.contains("12.0"), "{text}");
    }
}
