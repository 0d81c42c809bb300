//! What filters cost, by route: in `/stats`, `/plugins` and `postrider top`.

use postrider_tests::kit::config::extension;
use postrider_tests::kit::proxy;
use postrider_tests::postrider_only;
use postrider_tests::site;
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.csrf";

#[test]
fn each_filter_is_accounted_for_by_route() {
    if !postrider_only() {
        return;
    }
    let enabled = json!({"filter_enabled": {"default_value": {"numerator": 100}}});
    let site = site::with([
        extension(NAME, "filters.http.csrf.v3.CsrfPolicy", enabled),
        extension("second.one", "filters.http.buffer.v3.Buffer", json!({"max_request_bytes": 100})),
    ])
    .start();
    assert_eq!(site.ask("GET", "/", "").status, 200);
    assert_eq!(site.ask("POST", "/", "origin: http://evil.test\r\ncontent-length: 0\r\n").status, 403);
    site.proxy.wait_stat("http.ingress_http.downstream_rq_completed", 2);
    let stats = site.proxy.stats();
    let counts = |filter: &str, count: &str| -> Vec<u64> {
        let (start, end) = (format!("filter.{filter}."), format!(".{count}"));
        let names = stats.0.keys().filter(|name| name.starts_with(&start) && name.ends_with(&end));
        names.map(|name| stats.value(name)).collect()
    };
    assert_eq!(counts("envoy_filters_http_csrf", "calls"), [2]);
    assert_eq!(counts("envoy_filters_http_csrf", "local_replies"), [1]);
    assert!(counts("envoy_filters_http_csrf", "time_ns")[0] > 0);
    // It saw the one request that csrf let through.
    assert_eq!(counts("second_one", "calls"), [1]);

    let shown = site.proxy.admin_json("/plugins?format=json");
    let filter =
        shown["filters"].as_array().unwrap().iter().find(|it| it["name"] == "envoy_filters_http_csrf").unwrap();
    assert_eq!((&filter["routes"][0]["calls"], &filter["routes"][0]["local_replies"]), (&json!(2), &json!(1)));
    let text = site.proxy.admin_get("/plugins");
    assert!(text.text().contains("filter envoy_filters_http_csrf\n  route "), "{}", text.text());

    let admin = site.proxy.admin_address().to_string();
    let top = proxy::run(&["top", "--once", "--json", "--interval", "10ms", "--admin", &admin]);
    let top: Value = serde_json::from_str(&top.stdout).unwrap();
    let filters = top["filters"].as_array().unwrap();
    assert!(filters.iter().any(|it| it["filter"] == "second_one" && it["calls_per_second"] == 0.0), "{top}");
}

#[test]
fn an_answer_of_a_filter_is_allocated_and_a_request_that_goes_by_is_not() {
    if !postrider_only() {
        return;
    }
    let enabled = json!({"filter_enabled": {"default_value": {"numerator": 100}}});
    let site = site::with([
        extension(NAME, "filters.http.csrf.v3.CsrfPolicy", enabled),
        extension("second.one", "filters.http.buffer.v3.Buffer", json!({"max_request_bytes": 100})),
    ])
    .start();
    let mut requests = 0;
    // Every so many calls are measured, and stand for those between.
    let mut allocated = |method: &str, filter: &str| {
        for _ in 0..200 {
            site.ask(method, "/", "content-length: 0\r\n");
        }
        requests += 200;
        site.proxy.wait_stat("http.ingress_http.downstream_rq_completed", requests);
        let stats = site.proxy.stats();
        let wanted = format!("filter.{filter}.all.0.allocations");
        stats.value(&wanted)
    };
    // What is made once is there by then.
    let known = [allocated("GET", "envoy_filters_http_csrf"), allocated("GET", "second_one")];
    assert_eq!([allocated("GET", "envoy_filters_http_csrf"), allocated("GET", "second_one")], known);
    assert!(allocated("POST", "envoy_filters_http_csrf") > known[0]);
    assert_eq!(allocated("GET", "second_one"), known[1]);
}
