//! Hosts that answer slowly get less: the policy `peak_ewma`, which no Envoy has.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_tests::kit::proxy::flavour;
use postrider_tests::kit::{Config, Flavour, Origin, Proxy};
use serde_json::{Value, json};

/// So many milliseconds.
#[expect(clippy::disallowed_methods, reason = "an upstream that is slow: nothing waits for a condition here")]
fn be_slow(time: u64) {
    std::thread::sleep(Duration::from_millis(time));
}

/// Answers with a letter, after so many milliseconds.
fn origin(letter: char, delay: u64) -> Origin {
    Origin::start(move |connection| {
        while connection.request().is_some() {
            be_slow(delay);
            if !connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{letter}").as_bytes()) {
                return;
            }
        }
    })
}

fn start(origins: &[Origin], settings: Value) -> Proxy {
    let mut policy = json!({"@type": "type.googleapis.com/postrider.load_balancing_policies.peak_ewma.v1.PeakEwma"});
    postrider_tests::kit::config::overlay(&mut policy, settings);
    let policies = json!([{"typed_extension_config": {"name": "x", "typed_config": policy}}]);
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let cluster = json!({"load_balancing_policy": {"policies": policies}});
    Proxy::start(&Config::routes(routes).cluster_with("origin", &addresses, cluster))
}

fn counts(proxy: &Proxy, requests: usize) -> BTreeMap<String, usize> {
    let mut client = proxy.client();
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        let response = client.exchange("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        *counts.entry(response.text().to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn a_slow_host_gets_next_to_nothing() {
    if flavour() != Flavour::Postrider {
        return;
    }
    let origins = [origin('f', 0), origin('g', 0), origin('s', 150)];
    for choices in [2, 3] {
        let proxy = start(&origins, json!({"decay_time": "600s", "choice_count": choices}));
        let counts = counts(&proxy, 100);
        // Until its first answer it looks like the others.
        assert!(counts.get("s").is_none_or(|slow| *slow == 1), "{choices}: {counts:?}");
    }
}

#[test]
fn one_that_does_not_answer_is_no_fast_one() {
    if flavour() != Flavour::Postrider {
        return;
    }
    // It takes the request, and closes 60 ms later, which is more than answers are taken to need.
    let broken = Origin::start(|connection| {
        connection.request();
        be_slow(60);
    });
    let origins = [origin('f', 0), origin('g', 0), broken];
    let proxy = start(&origins, json!({"decay_time": "600s", "default_latency": "0.02s"}));
    let counts = counts(&proxy, 100);
    let failed: usize = counts.iter().filter(|(body, _)| body.len() > 1).map(|(_, count)| count).sum();
    assert!(failed <= 1, "{counts:?}");
}
