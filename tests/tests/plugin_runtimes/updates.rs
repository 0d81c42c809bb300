//! New configurations of a plugin under load, in every runtime: no request is lost, each takes effect, and what the old ones took
//! is given back.
//!
//! `make soak` runs the whole, a thousand for each runtime (`SOAK_UPDATES` says how many).

use std::time::Duration;

use postrider_tests::kit::process::resident_kib;
use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Origin, Proxy, wait_until};
use postrider_tests::load::Load;
use postrider_tests::plugins::{config, everything};
use postrider_tests::runtimes::Runtime;
use postrider_tests::{get, postrider_only};
use serde_json::json;

in_every_runtime! { updates_under_load_lose_no_request }

/// How many in the ordinary run.
const FEW: u32 = 50;

/// How many in the whole, without an order from outside. Fewer than some 600 say little of modules in Go: configurations share a
/// machine, and Go's heap in it grows for the first 120, from 3 to 8 MiB on each worker, before its collector keeps it so.
const MANY: u32 = 1_000;

/// In the first of so many parts the process may still grow: workers meet their machines, allocators their sizes.
const WARM_UP: usize = 5;

/// What the process may have grown by between the two halves of the rest, in the whole run.
const MAX_GROWTH: f64 = 0.05;

/// The same after few updates, in KiB for each: a machine or a library that stayed would be more.
const MAX_KIB_PER_UPDATE: u64 = 256;

const WORKERS: u32 = 2;

/// What the process may have more of, after all of them, than after the first: threads, and open files.
const MAX_MORE: usize = 8;

/// Threads, and open files.
fn held(proxy: &Proxy) -> [usize; 2] {
    ["task", "fd"].map(|what| std::fs::read_dir(format!("/proc/{}/{what}", proxy.pid())).unwrap().count())
}

/// A plugin that renames a field of the answer to one with the update's number.
fn with(runtime: Runtime, update: u32, origin: &Origin) -> Config {
    let headers = json!({"from": "x-old-", "to": format!("x-{update}-")});
    config(&[runtime.manifest("headers", &headers, json!({}))], everything(), origin)
}

/// How long each client waits between its requests. The SDK for AssemblyScript gives some 34 bytes of every request back to nobody,
/// in Envoy as well: with as many as can be, what they lose between the updates would hide what the updates do.
fn pause(runtime: Runtime) -> Duration {
    match runtime {
        Runtime::Wasm("assemblyscript") => Duration::from_millis(100),
        _ => Duration::ZERO,
    }
}

/// What the runtime's SDK keeps of each old configuration, in KiB on all workers, and no host can take from it: that for
/// AssemblyScript never frees a root context (0.8 KiB in the memory of each machine).
fn kept_by_sdk(runtime: Runtime) -> u64 {
    match runtime {
        Runtime::Wasm("assemblyscript") => 1,
        _ => 0,
    }
}

/// How large the process was after each of so many updates under load, in KiB.
fn update(runtime: Runtime, updates: u32) -> Vec<u64> {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nx-old-mark: set\r\ncontent-length: 2\r\n\r\nok");
    let launch = Launch { concurrency: WORKERS, ..Launch::default() };
    runtime.compile(&[("headers", json!({"from": "x-old-", "to": "x-new-"}))]);
    let mut proxy = Proxy::start_with(&with(runtime, 0, &origin), launch);
    let load = Load::start_paced(proxy.address("http"), 2, pause(runtime), "GET", get("/"));
    let has_one_set = |proxy: &Proxy| proxy.children().len() <= usize::from(runtime.has_process());
    let (mut sizes, mut early) = (Vec::new(), [0, 0]);
    for update in 1..=updates {
        let verdict = proxy.reload(with(runtime, update, &origin).to_yaml());
        assert!(accepted(&verdict), "{runtime:?}: {verdict}");
        let field = format!("x-{update}-mark");
        wait_until("the new one serves", || proxy.exchange(get("/")).header(&field) == "set");
        load.wait_progress(5);
        // With what runs beside it. An old process that is about to end would count like growth.
        wait_until("processes of old configurations to go", || has_one_set(&proxy));
        let others: u64 = proxy.children().into_iter().map(resident_kib).sum();
        sizes.push(proxy.resident_kib() + others);
        if update <= updates.div_ceil(WARM_UP as u32) {
            early = held(&proxy);
        }
        // What they got would fill the test's own memory.
        origin.forget();
    }
    let is_as_before = |now: [usize; 2]| now.iter().zip(early).all(|(now, early)| *now <= early + MAX_MORE);
    wait_until("threads and files of old configurations to go", || is_as_before(held(&proxy)));
    let failures = load.finish();
    assert!(failures.is_empty(), "{runtime:?}: {} failures, first {:?}", failures.len(), failures.first());
    if let Runtime::Wasm(_) = runtime {
        let machines = || proxy.stats().value("wasm.wasm_vm_count");
        wait_until("the machines of old configurations to end", || machines() == u64::from(WORKERS));
    }
    sizes
}

/// The medians of the two halves of what follows the warm-up.
fn medians(sizes: &[u64]) -> (u64, u64) {
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    };
    let rest = &sizes[sizes.len() / WARM_UP..];
    let (first, second) = rest.split_at(rest.len() / 2);
    (median(first), median(second))
}

fn updates_under_load_lose_no_request(runtime: Runtime) {
    let sizes = update(runtime, FEW);
    let (first, second) = medians(&sizes);
    println!("{runtime:?}: {FEW} updates, medians of {first} and {second} KiB");
    let bound = MAX_KIB_PER_UPDATE * u64::from(FEW) / 2;
    assert!(second < first + bound, "{runtime:?}: it grew from {first} to {second} KiB: {sizes:?}");
}

#[test]
#[ignore = "many minutes: make soak"]
fn a_thousand_updates_under_load_leave_the_process_as_large_as_it_was() {
    if !postrider_only() {
        return;
    }
    let updates = std::env::var("SOAK_UPDATES").ok().and_then(|text| text.parse().ok()).unwrap_or(MANY);
    let mut grown = Vec::new();
    for runtime in Runtime::all() {
        let (first, second) = medians(&update(runtime, updates));
        let grown_by_sdk = kept_by_sdk(runtime) * u64::from(updates - updates / WARM_UP as u32) / 2;
        let growth = second.saturating_sub(grown_by_sdk) as f64 / first as f64 - 1.0;
        println!("{runtime:?}: {updates} updates, medians of {first} and {second} KiB: {:+.2}%", growth * 100.0);
        if growth >= MAX_GROWTH {
            grown.push(runtime);
        }
    }
    assert!(grown.is_empty(), "{grown:?} grew");
}
