//! Requests that go round in circles between CDNs.

use postrider_tests::ask;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::json;

#[test]
fn a_loop_is_cut() {
    let origin = Origin::echo("a");
    for (allowed, rows) in [
        (
            0,
            &[
                ("", 200, "me"),
                ("other; a=b", 200, "other; a=b,me"),
                ("me", 502, ""),
                ("me; a=\"x,me\"", 502, ""),
                ("a b", 400, ""),
            ][..],
        ),
        (2, &[("me, me", 200, "me, me,me"), ("me,me,me", 502, ""), ("\"", 400, ""), ("a,,b", 200, "a,,b,me")]),
    ] {
        let fields = json!({"cdn_id": "me", "max_allowed_occurrences": allowed});
        let filter = extension("envoy.filters.http.cdn_loop", "filters.http.cdn_loop.v3.CdnLoopConfig", fields);
        let config = Config::new()
            .http(json!({
                "http_filters": [filter, router()],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
                ]}]},
            }))
            .cluster("origin", &[origin.address]);
        let proxy = Proxy::start(&config);
        for (seen, status, forwarded) in rows {
            let fields = if seen.is_empty() { String::new() } else { format!("cdn-loop: {seen}\r\n") };
            let answer = ask(&proxy, "GET", "test", "/", &fields);
            assert_eq!(answer.status, *status, "{seen}");
            match status {
                200 => assert_eq!(origin.requests().pop().unwrap().header("cdn-loop"), *forwarded),
                502 => assert_eq!(answer.text(), "The server has detected a loop between CDNs."),
                _ => assert_eq!(answer.text(), "Invalid CDN-Loop header in request."),
            }
        }
    }
}
