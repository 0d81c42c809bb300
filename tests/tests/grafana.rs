//! The Grafana board asks for nothing that a running proxy does not tell.

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Origin, Proxy, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;

const BOARD: &str = include_str!("../../packaging/grafana.json");

/// Every text of the board below `value` that is asked of Prometheus.
fn questions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                match value {
                    Value::String(text) if matches!(key.as_str(), "expr" | "query" | "definition") => {
                        found.push(text.clone());
                    }
                    value => questions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| questions(item, found)),
        _ => {}
    }
}

/// Words that begin as metrics and labels do.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("envoy_"))
}

#[test]
fn every_metric_and_label_of_the_board_exists() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    assert_eq!(proxy.exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n").status, 200);
    // A request is counted when it is over, which its client may see first.
    let mut text = String::new();
    wait_until("the request's counts", || {
        text = proxy.admin_get("/stats/prometheus").text().to_owned();
        text.contains("envoy_cluster_upstream_rq_xx") && text.contains("envoy_http_downstream_rq_xx")
    });
    let told: BTreeSet<&str> = text.lines().flat_map(words).collect();
    let board: Value = serde_json::from_str(BOARD).expect("a board is JSON");
    let mut asked = Vec::new();
    questions(&board, &mut asked);
    let wanted: BTreeSet<&str> = asked.iter().flat_map(|question| words(question)).collect();
    assert!(wanted.len() > 20, "{wanted:?}");
    let missing: Vec<_> = wanted.difference(&told).collect();
    assert!(missing.is_empty(), "{missing:?}\nin\n{text}");
}

#[test]
fn panels_have_numbers_of_their_own_and_do_not_overlap() {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let (mut numbers, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let part = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in part("x")..part("x") + part("w") {
            assert!(x < 24, "{panel}");
            for y in part("y")..part("y") + part("h") {
                assert!(cells.insert((x, y)), "{panel}");
            }
        }
    }
}
