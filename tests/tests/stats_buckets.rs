//! `histogram_bucket_settings`: buckets of one's own. The same expectations hold for Envoy.

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Origin, Proxy, wait_until};
use serde_json::json;

/// A proxy that answered one request, and counted how long its upstream took.
fn site() -> (Origin, Proxy) {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let config = Config::proxy_to(origin.address).overlay(json!({"stats_config": {"histogram_bucket_settings": [
        {"match": {"suffix": "upstream_rq_time"}, "buckets": [1_000_000.0, 1.5, 0.1], "bins": 50},
        {"match": {"prefix": "cluster."}, "buckets": [7.0]},
        {"match": {"prefix": "server."}, "bins": 50},
        {"match": {"prefix": "server."}, "buckets": [3.0]},
    ]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    // A request is counted when it is over, which its client may see first; Envoy adds histograms up every few seconds.
    wait_until("the request's time", || {
        let text = proxy.admin_get("/stats?filter=http.ingress_http.downstream_rq_time").text().to_owned();
        text.contains("P0") && proxy.admin_get("/stats?filter=upstream_rq_time").text().contains("P0")
    });
    (origin, proxy)
}

#[test]
fn the_first_rule_that_matches_gives_the_buckets() {
    let (_origin, proxy) = site();
    let metrics = proxy.admin_get("/stats/prometheus").text().to_owned();
    let bounds = |metric: &str| -> Vec<String> {
        let start = format!("{metric}_bucket{{");
        let lines = metrics.lines().filter(|line| line.starts_with(&start));
        lines.filter_map(|line| Some(line.split_once("le=\"")?.1.split_once('"')?.0.to_owned())).collect()
    };
    let of_times = ["0.10000000000000000555111512312578", "1.5", "1000000", "+Inf"];
    assert_eq!(bounds("envoy_cluster_upstream_rq_time"), of_times);
    assert_eq!(bounds("envoy_cluster_upstream_cx_connect_ms"), ["7", "+Inf"]);
    let server = bounds("envoy_server_initialization_time_ms");
    assert_eq!(server, ["3", "+Inf"], "a rule without buckets is passed over");
    assert_eq!(bounds("envoy_http_downstream_cx_length_ms").len() % 20, 0, "others keep the usual ones");
}

#[test]
fn text_has_the_same_buckets() {
    let (_origin, proxy) = site();
    let line = |buckets: &str| {
        let asked = format!("/stats?filter=cluster.*external.upstream_rq_time&histogram_buckets={buckets}");
        proxy.admin_get(&asked).text().trim().to_owned()
    };
    for style in ["cumulative", "disjoint"] {
        let text = line(style);
        let parts: Vec<&str> = text.split_once(": ").unwrap().1.split(' ').collect();
        assert_eq!(parts.len(), 3, "{text}");
        let starts = parts.iter().zip(["B0.1(", "B1.5(", "B1e+06("]);
        assert!(starts.into_iter().all(|(part, start)| part.starts_with(start)), "{text}");
    }
    assert!(line("cumulative").ends_with(",1)"), "{}", line("cumulative"));
}

#[test]
fn summaries_for_prometheus_tell_the_last_interval() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let config = Config::proxy_to(origin.address).overlay(json!({"stats_flush_interval": "0.2s"}));
    let proxy = Proxy::start(&config);
    let count = || {
        let path = "/stats/prometheus?filter=ingress_http.downstream_rq_time$&histogram_buckets=summary";
        let answer = proxy.admin_get(path);
        let line = answer.text().lines().find(|line| line.starts_with("envoy_http_downstream_rq_time_count{"))?;
        line.rsplit_once(' ')?.1.parse::<u64>().ok()
    };
    wait_until("an interval with requests", || {
        assert_eq!(proxy.get("/").status, 200);
        count().is_some_and(|count| count > 0)
    });
    wait_until("an interval without any", || count() == Some(0));
}

#[test]
fn the_last_interval_stands_beside_the_total() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let config = Config::proxy_to(origin.address).overlay(json!({"stats_flush_interval": "0.2s"}));
    let proxy = Proxy::start(&config);
    let show = |style: &str| {
        let asked = format!("/stats?filter=ingress_http.downstream_rq_time$&histogram_buckets={style}");
        proxy.admin_get(&asked).text().trim().to_owned()
    };
    // The last bucket has all: of the interval, and at all.
    let counts = || {
        let text = show("cumulative");
        let (_, last) = text.rsplit_once('(')?;
        let (new, all) = last.trim_end_matches(')').split_once(',')?;
        Some((new.parse::<u64>().ok()?, all.parse::<u64>().ok()?))
    };
    counts();
    let mut sent = 0;
    wait_until("an interval with requests", || {
        assert_eq!(proxy.get("/").status, 200);
        sent += 1;
        counts().is_some_and(|(new, all)| new > 0 && new <= all)
    });
    wait_until("an interval without any", || counts() == Some((0, sent)));
    assert!(show("summary").contains("P0(nan,"), "{}", show("summary"));
    wait_until("details of an interval with requests", || {
        assert_eq!(proxy.get("/").status, 200);
        let text = show("detailed");
        text.lines().any(|line| line.trim().strip_prefix("intervals=").is_some_and(|all| !all.is_empty()))
    });
    wait_until("quantiles of an interval with requests", || {
        assert_eq!(proxy.get("/").status, 200);
        let text = show("summary");
        text.contains("P0(") && !text.contains("P0(nan,")
    });
}
