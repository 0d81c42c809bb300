//! Real Envoy beside Postrider: the same configuration, the same bytes, and everything that can be seen from outside is
//! compared: the answer, what reached the upstreams, the line of the access log, the counters.
//!
//! A difference is a fault, or stands in `docs/envoy-differences.md` and in [`allowed`]. Where Postrider has a safer
//! default the configuration says what both shall do, so that defaults are no differences here.
//!
//! `POSTRIDER_DIFFERENTIAL_SEED` and `POSTRIDER_DIFFERENTIAL_COUNT` make the random part another or a longer one;
//! `POSTRIDER_DIFFERENTIAL_SCENE` plays one scene of the fixed part alone.

mod actions;
mod allowed;
mod commands;
mod connections;
mod drawn;
mod filters;
mod forwarding;
mod found;
mod generator;
mod hosts;
mod logged;
mod made;
mod native;
mod neighbours;
mod origins;
mod packing;
mod pair;
mod plugins;
mod policies;
mod protocol;
mod retries;
mod routing;
mod scene;
mod secured;
mod seen;
mod shrink;
mod streams;
mod tapped;
mod tcp;
mod wasm;
mod wire;

use pair::Pair;
use postrider_tests::kit::yaml;
use scene::{Scene, shown};

/// So many listeners to one pair of processes: what a scene counted is found among the statistics of all of them.
const SCENES: usize = 30;

/// Plays scenes; fails with every difference.
fn check(scenes: &[Scene]) {
    let only = std::env::var("POSTRIDER_DIFFERENTIAL_SCENE").ok();
    let mut report = String::new();
    let mut count = 0;
    for scenes in scenes.chunks(SCENES) {
        let mut pair = Pair::start(scenes);
        for scene in scenes.iter().filter(|scene| only.as_ref().is_none_or(|name| *name == scene.name)) {
            count += scene.requests.len();
            for finding in pair.play(scene) {
                let about = "the scene's counters".to_owned();
                let request = finding.request.map_or(about, |index| shown(&scene.requests[index]));
                report += &format!("\n{}: {request}\n{}", finding.scene, finding.difference);
            }
        }
    }
    eprintln!("{count} requests in {} scenes", scenes.len());
    assert!(report.is_empty(), "{report}");
}

#[test]
fn routes_are_chosen_as_in_envoy() {
    check(&routing::scenes());
}

#[test]
fn routes_act_as_in_envoy() {
    check(&actions::scenes());
}

#[test]
fn requests_are_forwarded_as_in_envoy() {
    check(&forwarding::scenes());
}

#[test]
fn http_1_is_spoken_as_in_envoy() {
    check(&protocol::scenes());
}

#[test]
fn requests_are_tried_again_as_in_envoy() {
    check(&retries::scenes());
}

#[test]
fn hosts_are_chosen_as_in_envoy() {
    check(&hosts::scenes());
}

#[test]
fn requests_are_found_out_about_as_in_envoy() {
    check(&found::scenes());
}

#[test]
fn requests_are_logged_as_in_envoy() {
    check(&logged::scenes());
}

#[test]
fn filters_judge_as_in_envoy() {
    check(&filters::policies());
}

#[test]
fn filters_change_as_in_envoy() {
    check(&filters::changes());
}

#[test]
fn webassembly_runs_as_in_envoy() {
    check(&plugins::wasm());
}

#[test]
fn native_modules_run_as_in_envoy() {
    check(&plugins::native());
}

#[test]
fn tls_is_told_of_as_in_envoy() {
    check(&secured::scenes());
}

#[test]
fn streams_are_treated_as_in_envoy() {
    let all = [routing::scenes(), actions::scenes(), forwarding::scenes(), filters::policies(), filters::changes()];
    check(&streams::scenes(all.into_iter().flatten(), 4));
}

/// Requests to each random configuration.
const REQUESTS: usize = 25;

#[test]
fn random_tables_and_requests_are_treated_as_in_envoy() {
    check_random(generator::scene, 1_000);
}

#[test]
fn random_filters_and_requests_are_treated_as_in_envoy() {
    check_random(policies::scene, 1_000);
}

/// Plays scenes from seeds, with so many requests in all unless another number is asked for.
fn check_random(scene: fn(u64, usize) -> Scene, usual: u64) {
    let number = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
    };
    let seed = number("POSTRIDER_DIFFERENTIAL_SEED", 1);
    let count = number("POSTRIDER_DIFFERENTIAL_COUNT", usual);
    let scenes: Vec<Scene> = (seed..seed + count.div_ceil(REQUESTS as u64)).map(|seed| scene(seed, REQUESTS)).collect();
    let mut report = String::new();
    // So many listeners to one pair of processes.
    for scenes in scenes.chunks(50) {
        let mut pair = Pair::start(scenes);
        for scene in scenes {
            for finding in pair.play(scene) {
                let request = finding.request.map_or("counters".to_owned(), |index| shown(&scene.requests[index]));
                // The first one is made small; the others may be the same.
                let table = match finding.request.filter(|_| report.is_empty()) {
                    Some(index) => yaml::to_yaml(&shrink::smallest(scene, index).manager),
                    None => String::new(),
                };
                report += &format!("\n{}: {request}\n{}{table}", finding.scene, finding.difference);
            }
        }
    }
    assert!(report.is_empty(), "the number behind the name is the POSTRIDER_DIFFERENTIAL_SEED{report}");
}
