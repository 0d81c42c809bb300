//! What plugins do wrong, in every runtime that can contain it: the stream goes on or is answered as the plugin's policy says,
//! others notice nothing, the next request meets a plugin that works, and it is counted what happened.

use postrider_tests::golang;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, RawClient, wait_until};
use postrider_tests::load::Load;
use postrider_tests::plugins::everything;
use postrider_tests::runtimes::{Runtime, in_place};
use postrider_tests::site::{self, Site};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};

in_every_runtime! { what_a_plugin_does_wrong_ends_its_call_and_nothing_else }

/// What a machine of a runtime may take: Go's own runtime needs some of it to begin with.
const MEMORY: u64 = 32 << 20;

/// How often each is done.
const TIMES: u64 = 2;

/// What a runtime survives. Machine code cannot be stopped: a loop of a native module keeps its worker, and memory that it or Go
/// code hoards is the process's. In them only errors that they tell of are contained, and Go's panics. Go code in a process of
/// its own is ended with that.
fn deeds(runtime: Runtime) -> &'static [&'static str] {
    if runtime.is_machine_code() { &["error"] } else { &["error", "loop", "hoard"] }
}

fn site(runtime: Runtime, on_error: &str) -> Site {
    // Where the clock counts, a busy machine must not look like a loop; nor must taking memory until there is no more.
    let cpu = if runtime.has_process() { "1s" } else { "0.4s" };
    let mut more = runtime.budget(cpu, MEMORY);
    more["on_error"] = json!(on_error);
    more["circuit"] = json!({"faults": 0});
    let mut routes: Vec<Value> = deeds(runtime)
        .iter()
        .map(|deed| {
            let mut config = json!({"do": deed});
            if runtime.has_process() {
                config["forever"] = json!("yes");
            }
            let own = in_place("villain", &config);
            json!({"match": {"prefix": format!("/{deed}")}, "route": {"cluster": "origin"}, "typed_per_filter_config": own})
        })
        .collect();
    routes.extend(everything().as_array().cloned().unwrap());
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let villain = runtime.manifest("villain", &json!({"do": "nothing"}), more);
    site::with([villain]).routes(json!(routes)).start_with(Origin::echo("a"), launch)
}

/// Whether the plugin marked the request; the origin tells what it got.
fn is_done(site: &Site) -> bool {
    let answer = site.get("/", "");
    assert_eq!(answer.status, 200);
    answer.text().contains("x-done: yes")
}

fn what_a_plugin_does_wrong_ends_its_call_and_nothing_else(runtime: Runtime) {
    runtime.compile(&[("villain", json!({"do": "nothing"}))]);
    for (on_error, status) in [("continue", 200), ("503", 503)] {
        let site = site(runtime, on_error);
        assert!(is_done(&site), "{runtime:?}");
        let load = (status == 200).then(|| Load::start(site.proxy.address("http"), 2, "GET", get("/")));
        for deed in deeds(runtime) {
            for _ in 0..TIMES {
                let answer = site.get(&format!("/{deed}"), "");
                assert_eq!(answer.status, status, "{runtime:?} {on_error} {deed}: {answer:?}");
                assert!(!answer.text().contains("x-done"), "{runtime:?} {deed}: {answer:?}");
                if runtime.has_process() && *deed != "error" {
                    wait_until("another process", || site.get("/", "").text().contains("x-done: yes"));
                }
                for next in 0..4 {
                    assert!(is_done(&site), "{runtime:?} {on_error}: request {next} after {deed}");
                }
            }
        }
        if let Some(load) = load {
            load.wait_progress(50);
            let failures = load.finish();
            assert!(failures.is_empty(), "{runtime:?}: {} failures, first {:?}", failures.len(), failures.first());
        }
        counted(&site, runtime);
    }
}

fn counted(site: &Site, runtime: Runtime) {
    let stats = site.proxy.stats();
    let sum = |name: &str| stats.sum("plugin.villain.", &format!(".{name}"));
    let done = |deed: &str| if deeds(runtime).contains(&deed) { TIMES } else { 0 };
    if runtime.has_process() {
        let said = |what: &str| site.proxy.stderr().matches(what).count() as u64;
        let kills = (said("ended: a call into it took longer"), said("ended: it had"));
        assert_eq!(kills, (done("loop"), done("hoard")), "{}", site.proxy.stderr());
        assert_eq!(stats.value("plugin.villain.restarts"), kills.0 + kills.1);
    } else {
        assert_eq!(sum("cpu_kills"), done("loop"), "{runtime:?}");
        assert_eq!(sum("memory_kills"), done("hoard"), "{runtime:?}");
    }
    let errors = done("error") + done("loop") + done("hoard");
    assert!(sum("errors") >= errors, "{runtime:?}: {} errors", sum("errors"));
}

/// A goroutine that never ends cannot be stopped from outside. It holds its own stream, until the client goes, and a core; nobody
/// else notices.
#[test]
fn a_go_plugin_that_loops_holds_its_own_stream_only() {
    if !postrider_only() {
        return;
    }
    let own = in_place("villain", &json!({"do": "loop"}));
    let routes = json!([
        {"match": {"prefix": "/loop"}, "route": {"cluster": "origin"}, "typed_per_filter_config": own},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let villain = Runtime::Go.manifest("villain", &json!({"do": "nothing"}), json!({}));
    let site = site::with([villain]).routes(routes).start();
    let mut waiting = RawClient::connect(site.proxy.address("http"));
    waiting.send(get("/loop"));
    site.proxy.wait_stat("plugin.villain.all.0.calls", 1);
    for _ in 0..20 {
        assert!(is_done(&site));
    }
    waiting.reset();
    site.proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
    assert!(is_done(&site));
    // The library is there, so that a runtime without it is no reason for this to pass.
    assert!(golang::library("sdk38").exists());
}
