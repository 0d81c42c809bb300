//! Real Envoy beside Postrider: the same configuration, the same bytes, and everything that can be seen from outside is
//! compared: the answer, what reached the upstreams, the line of the access log, the counters.
//!
//! A difference is a fault, or stands in `docs/envoy-differences.md` and in [`allowed`]. Where Postrider has a safer
//! default the configuration says what both shall do, so that defaults are no differences here.
//!
//! `POSTRIDER_DIFFERENTIAL_SEED` and `POSTRIDER_DIFFERENTIAL_COUNT` make the random part another or a longer one.

mod actions;
mod allowed;
mod filters;
mod forwarding;
mod origins;
mod pair;
mod protocol;
mod retries;
mod routing;
mod scene;
mod seen;

use pair::Pair;
use scene::{Scene, shown};

/// Plays scenes on one pair of processes; fails with every difference.
fn check(scenes: &[Scene]) {
    let mut pair = Pair::start(scenes);
    let only = std::env::var("POSTRIDER_DIFFERENTIAL_SCENE").ok();
    let mut report = String::new();
    let mut count = 0;
    for scene in scenes.iter().filter(|scene| only.as_ref().is_none_or(|name| *name == scene.name)) {
        count += scene.requests.len();
        for finding in pair.play(scene) {
            let about = "the scene's counters".to_owned();
            let request = finding.request.map_or(about, |index| shown(&scene.requests[index]));
            report += &format!("\n{}: {request}\n{}", finding.scene, finding.difference);
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
fn filters_do_as_in_envoy() {
    check(&filters::scenes());
}
