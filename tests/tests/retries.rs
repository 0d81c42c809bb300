//! Requests are tried again as their route and their own fields say, and no other way.

use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, TempDir, net, wait_until};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
const FAST: &[&str] = &["--file-flush-interval-msec", "20"];

/// Answers the first requests with `answers`, one each, and all others with 200. An empty answer closes the connection,
/// `-` is none.
fn origin(answers: &[&str]) -> Origin {
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let count = Arc::new(AtomicUsize::new(0));
    Origin::start(move |connection| {
        while connection.request().is_some() {
            match answers.get(count.fetch_add(1, Ordering::SeqCst)).map_or(OK, String::as_str) {
                "" => return,
                "-" => {
                    connection.read_to_end();
                    return;
                }
                answer => connection.write(answer.as_bytes()),
            };
        }
    })
}

fn config(endpoints: &[SocketAddr], policy: Value) -> Config {
    let mut policy = policy;
    config::overlay(&mut policy, json!({"retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"}}));
    Config::new()
        .http(json!({"route_config": {"name": "local_route", "virtual_hosts": [{
            "name": "everything",
            "domains": ["*"],
            "include_request_attempt_count": true,
            "include_attempt_count_in_response": true,
            "retry_policy": policy,
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}],
        }]}}))
        .cluster("origin", endpoints)
}

fn proxy(origin: &Origin, policy: Value) -> Proxy {
    Proxy::start(&config(&[origin.address], policy))
}

/// With a listener for which loopback is inside, and so may say more.
fn inside(origin: &Origin) -> Proxy {
    let ranges = json!({"cidr_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": 8}]});
    let inside = json!({"use_remote_address": true, "internal_address_config": ranges});
    Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", inside))
}

fn stat(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("cluster.origin.{name}"))
}

/// Starts with a log of flags, tries and details; answers its lines after `drive`.
fn logged(config: Config, count: usize, drive: impl Fn(&Proxy)) -> Vec<String> {
    let directory = TempDir::new();
    let path = directory.path().join("access.log");
    let format = "%RESPONSE_FLAGS% %UPSTREAM_REQUEST_ATTEMPT_COUNT% %RESPONSE_CODE_DETAILS%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": format}}});
    let config = config.overlay_filter("http", json!({"access_log": [config::file_access_log(&path, format)]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(FAST));
    drive(&proxy);
    let mut lines = Vec::new();
    wait_until("log lines", || {
        lines = std::fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
        lines.len() >= count
    });
    lines
}

#[test]
fn an_answer_that_is_worth_it_is_tried_again_and_only_the_last_one_is_seen() {
    let origin = origin(&[BAD]);
    let proxy = proxy(&origin, json!({"retry_on": "5xx"}));
    let response = proxy.get("/a");
    assert_eq!((response.status, response.text()), (200, "ok"));
    assert_eq!(response.header("x-envoy-attempt-count"), "2");
    let counts: Vec<_> =
        origin.requests().iter().map(|request| request.header("x-envoy-attempt-count").to_owned()).collect();
    assert_eq!(counts, ["1", "2"]);
    for (name, value) in [
        ("upstream_rq_retry", 1),
        ("upstream_rq_retry_success", 1),
        ("upstream_rq_retry_backoff_exponential", 1),
        ("upstream_rq_retry_limit_exceeded", 0),
        ("retry.upstream_rq_503", 1),
        ("retry.upstream_rq_5xx", 1),
        ("retry.upstream_rq_completed", 1),
        ("upstream_rq_200", 1),
        ("upstream_rq_503", 0),
        ("upstream_rq_completed", 1),
        ("upstream_rq_total", 2),
        ("upstream_rq_active", 0),
    ] {
        assert_eq!(stat(&proxy, name), value, "{name}");
    }
}

#[test]
fn tries_end_with_their_number_and_logs_say_so() {
    let origin = origin(&[BAD; 9]);
    let lines = logged(config(&[origin.address], json!({"retry_on": "5xx", "num_retries": 2})), 1, |proxy| {
        let response = proxy.get("/");
        assert_eq!((response.status, response.text()), (503, "busy"));
        assert_eq!(response.header("x-envoy-attempt-count"), "3");
        assert_eq!(stat(proxy, "upstream_rq_retry_limit_exceeded"), 1);
        assert_eq!(stat(proxy, "upstream_rq_retry_success"), 0);
    });
    assert_eq!(lines, ["URX 3 via_upstream"]);
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn without_a_policy_there_is_one_try() {
    let origin = origin(&[BAD]);
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let response = proxy.get("/");
    assert_eq!((response.status, response.header("x-envoy-attempt-count")), (503, ""));
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(origin.requests()[0].header("x-envoy-attempt-count"), "");
}

#[test]
fn bodies_are_sent_again_whole() {
    let origin = origin(&[BAD, "", OK, BAD]);
    let proxy = proxy(&origin, json!({"retry_on": "5xx", "num_retries": 2}));
    let mut client = proxy.client();
    let response = client.exchange("POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(response.status, 200);
    let chunked =
        "POST /b HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    origin.forget();
    assert_eq!(client.exchange(chunked).status, 200);
    let bodies: Vec<_> = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    assert_eq!(bodies, ["abcde", "abcde"]);
    assert_eq!(origin.malformed(), Vec::<String>::new());
}

#[test]
fn a_retry_takes_what_came_of_a_body_and_the_rest_follows() {
    let count = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |connection| {
        // The first try is answered before its body is there.
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            if connection.request_head().is_none() || connection.read_exact(5).is_none() {
                return;
            }
            connection.write(BAD.as_bytes());
            connection.read_to_end();
            return;
        }
        while connection.request().is_some() {
            connection.write(OK.as_bytes());
        }
    });
    let proxy = proxy(&origin, json!({"retry_on": "5xx"}));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nfirst");
    proxy.wait_stat("cluster.origin.upstream_rq_retry", 1);
    client.send("-half");
    assert_eq!(client.response("POST").unwrap().status, 200);
    assert_eq!(origin.requests().last().map(|request| request.body.clone()), Some(b"first-half".to_vec()));
}

#[test]
fn a_body_beyond_the_limit_is_sent_once() {
    let origin = origin(&[BAD; 3]);
    let limited = config(&[origin.address], json!({"retry_on": "5xx"}));
    let proxy = Proxy::start(&limited.overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 1024})));
    let body = "x".repeat(5000);
    let request = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let response = proxy.exchange(request);
    assert_eq!((response.status, response.text()), (503, "busy"));
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(origin.requests()[0].body.len(), 5000);
    assert_eq!(stat(&proxy, "retry_or_shadow_abandoned"), 1);
}

/// What comes back for a body of 500 bytes whose first try fails, and with which count of tries.
fn with_body(proxy: &Proxy, host: &str, path: &str) -> (u16, String) {
    let body = "x".repeat(500);
    let answer = proxy.exchange(format!("POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 500\r\n\r\n{body}"));
    (answer.status, answer.header("x-envoy-attempt-count").to_owned())
}

/// The older field of a route stood before the newer one of its virtual host.
#[test]
fn routes_and_their_hosts_say_how_much_of_a_body_is_kept() {
    let host = |name: &str, limit: &str, value: u64| {
        let route = |path: &str, fields: Value| {
            let mut route = json!({"match": {"prefix": path}, "route": {"cluster": "origin"}});
            config::overlay(&mut route, fields);
            route
        };
        json!({
            "name": name,
            "domains": [name],
            "include_attempt_count_in_response": true,
            "retry_policy": {"retry_on": "5xx", "retry_back_off": {"base_interval": "0.001s"}},
            limit: value,
            "routes": [
                route("/less", json!({"request_body_buffer_limit": 499})),
                route("/more", json!({"request_body_buffer_limit": 500})),
                route("/older", json!({"per_request_buffer_limit_bytes": 500})),
                route("/", json!({})),
            ],
        })
    };
    let hosts = json!([
        host("small.test", "request_body_buffer_limit", 499),
        host("large.test", "request_body_buffer_limit", 500),
        host("older-small.test", "per_request_buffer_limit_bytes", 499),
        host("older-large.test", "per_request_buffer_limit_bytes", 500),
    ]);
    let again = [
        ("small.test", "/", false),
        ("small.test", "/more", true),
        ("small.test", "/older", false),
        ("large.test", "/", true),
        ("large.test", "/less", false),
        ("older-small.test", "/", false),
        ("older-small.test", "/more", true),
        ("older-small.test", "/older", true),
        ("older-large.test", "/", true),
        ("older-large.test", "/less", false),
    ];
    for (host, path, is_tried_again) in again {
        let origin = origin(&[BAD]);
        // A limit may be more than the connection keeps.
        let config = Config::new()
            .http(json!({"route_config": {"name": "local_route", "virtual_hosts": hosts}}))
            .cluster("origin", &[origin.address])
            .overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 100}));
        let proxy = Proxy::start(&config);
        let want = if is_tried_again { (200, "2".to_owned()) } else { (503, "1".to_owned()) };
        assert_eq!(with_body(&proxy, host, path), want, "{host}{path}");
        assert_eq!(stat(&proxy, "retry_or_shadow_abandoned"), u64::from(!is_tried_again), "{host}{path}");
    }
}

/// Envoy reads on while it waits, and answers 507 when more came than it keeps.
#[test]
fn a_body_does_not_outgrow_its_limit_while_it_waits_for_another_try() {
    let tries = AtomicUsize::new(0);
    let origin = Origin::start(move |connection| {
        if tries.fetch_add(1, Ordering::SeqCst) > 0 {
            while connection.request().is_some() {
                connection.write(OK.as_bytes());
            }
        } else if connection.request_head().is_some() {
            connection.write(BAD.as_bytes());
            connection.read_to_end();
        }
    });
    let wait = if envoy() { "1000000s" } else { "0.001s" };
    let policy = json!({"retry_on": "5xx", "retry_back_off": {"base_interval": wait, "max_interval": wait}});
    let route = json!({"cluster": "origin", "retry_policy": policy});
    let routes = json!([{"match": {"prefix": "/"}, "route": route, "request_body_buffer_limit": 10}]);
    let proxy = Proxy::start(&Config::routes(routes).cluster("origin", &[origin.address]));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 20\r\n\r\nfirst");
    proxy.wait_stat("cluster.origin.retry.upstream_rq_503", 1);
    client.send("-and-the-others");
    let answer = client.response("POST").unwrap();
    if envoy() {
        assert_eq!((answer.status, answer.text()), (507, "exceeded request buffer limit while retrying upstream"));
    } else {
        assert_eq!((answer.status, answer.text()), (200, "ok"));
        assert_eq!(origin.requests().last().map(|request| request.body.len()), Some(20));
    }
    assert_eq!(stat(&proxy, "retry_or_shadow_abandoned"), 1);
}

#[test]
fn a_try_tells_whether_the_one_before_it_took_too_long() {
    let back_off = json!({"base_interval": "0.001s", "max_interval": "0.002s"});
    let policy = json!({"retry_on": "5xx", "num_retries": 2, "per_try_timeout": "0.3s", "retry_back_off": back_off});
    for (told, want) in [(true, ["", "false", "true"]), (false, [""; 3])] {
        let origin = origin(&[BAD, "-"]);
        let config = Config::new()
            .http(json!({"route_config": {"name": "local_route", "virtual_hosts": [{
                "name": "everything",
                "domains": ["*"],
                "include_is_timeout_retry_header": told,
                "retry_policy": policy,
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}],
            }]}}))
            .cluster("origin", &[origin.address]);
        assert_eq!(Proxy::start(&config).get("/").status, 200);
        let requests = origin.requests();
        let seen: Vec<_> = requests.iter().map(|request| request.header("x-envoy-is-timeout-retry")).collect();
        assert_eq!(seen, want);
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_passed_over() {
    let origin = origin(&[]);
    let policy = json!({
        "retry_on": "connect-failure",
        "num_retries": 1,
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [config::extension(
            "envoy.retry_host_predicates.previous_hosts",
            "retry.host.previous_hosts.v3.PreviousHostsPredicate",
            json!({}),
        )],
    });
    let proxy = Proxy::start(&config(&[net::refusing_address(), origin.address], policy));
    for _ in 0..6 {
        assert_eq!(proxy.get("/").status, 200);
    }
    assert!(stat(&proxy, "upstream_rq_retry") >= 2);
}

#[test]
fn when_no_try_reaches_a_host_the_answer_and_the_log_say_so() {
    let dead = config(&[net::refusing_address()], json!({"retry_on": "connect-failure", "num_retries": 1}));
    let lines = logged(dead, 1, |proxy| {
        let response = proxy.get("/");
        assert_eq!((response.status, response.header("x-envoy-attempt-count")), (503, "2"));
        let text = "upstream connect error or disconnect/reset before headers. retried and the latest reset reason: \
                    remote connection failure";
        assert!(response.text().starts_with(text), "{}", response.text());
    });
    assert!(
        lines[0].starts_with("URX,UF 2 upstream_reset_before_response_started{remote_connection_failure|"),
        "{lines:?}"
    );
}

#[test]
fn a_try_has_its_own_time() {
    let origin = origin(&["-"]);
    let proxy = proxy(&origin, json!({"retry_on": "gateway-error", "per_try_timeout": "0.5s"}));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(stat(&proxy, "upstream_rq_per_try_timeout"), 1);
    assert_eq!(stat(&proxy, "upstream_rq_timeout"), 0);
    let expected: Vec<_> =
        origin.requests().iter().map(|r| r.header("x-envoy-expected-rq-timeout-ms").to_owned()).collect();
    assert_eq!(expected, ["500", "500"]);
}

#[test]
fn a_last_try_that_takes_too_long_is_504() {
    let origin = origin(&["-", "-", "-"]);
    let policy = json!({"retry_on": "5xx", "per_try_timeout": "0.1s"});
    let lines = logged(config(&[origin.address], policy), 1, |proxy| {
        let response = proxy.get("/");
        assert_eq!((response.status, response.text()), (504, "upstream request timeout"));
    });
    assert_eq!(lines, ["URX,UT 2 upstream_per_try_timeout"]);
}

#[test]
fn a_limit_of_a_try_holds_without_retries() {
    let origin = origin(&["-"]);
    let lines = logged(config(&[origin.address], json!({"per_try_idle_timeout": "0.1s"})), 1, |proxy| {
        assert_eq!(proxy.get("/").status, 504);
        assert_eq!(stat(proxy, "upstream_rq_per_try_idle_timeout"), 1);
    });
    assert_eq!(lines, ["UT 1 upstream_per_try_idle_timeout"]);
}

#[test]
fn requests_say_themselves_how_they_are_tried() {
    let teapot = "HTTP/1.1 418 Teapot\r\ncontent-length: 0\r\n\r\n";
    let origin = origin(&[BAD, BAD, OK, teapot, OK, teapot]);
    let proxy = inside(&origin);
    let ask = |fields: &str| proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n")).status;
    assert_eq!(ask("x-envoy-retry-on: 5xx\r\nx-envoy-max-retries: 2\r\n"), 200);
    let own = "x-envoy-retry-on: retriable-status-codes\r\nx-envoy-retriable-status-codes: ";
    assert_eq!(ask(&format!("{own}404,418\r\n")), 200);
    assert_eq!(ask(&format!("{own}404\r\n")), 418);
}

#[test]
fn clients_from_outside_do_not_say_how_they_are_tried() {
    let origin = origin(&[BAD]);
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let request = "GET / HTTP/1.1\r\nhost: test\r\nx-envoy-retry-on: 5xx\r\n\r\n";
    assert_eq!(proxy.exchange(request).status, 503);
    assert_eq!(origin.requests()[0].header("x-envoy-retry-on"), "");
}

#[test]
fn a_request_limits_its_own_time() {
    let origin = origin(&["-", "-"]);
    let proxy = inside(&origin);
    let ask = |fields: &str| proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n"));
    assert_eq!(ask("x-envoy-upstream-rq-timeout-ms: 100\r\n").status, 504);
    let fields = "x-envoy-upstream-rq-per-try-timeout-ms: 500\r\nx-envoy-retry-on: reset\r\n";
    assert_eq!(ask(fields).status, 200);
    let requests = origin.requests();
    assert_eq!(requests[0].header("x-envoy-expected-rq-timeout-ms"), "100");
    for request in requests {
        for name in ["x-envoy-upstream-rq-timeout-ms", "x-envoy-retry-on", "x-envoy-upstream-rq-per-try-timeout-ms"] {
            assert_eq!(request.header(name), "", "{name} goes no further");
        }
    }
}

#[test]
fn conditions_on_headers_decide_about_requests_and_answers() {
    let again = "HTTP/1.1 200 OK\r\nx-again: yes\r\ncontent-length: 0\r\n\r\n";
    let origin = origin(&[again, OK, again]);
    let proxy = proxy(
        &origin,
        json!({
            "retry_on": "retriable-headers",
            "retriable_headers": [{"name": "x-again", "string_match": {"exact": "yes"}}],
            "retriable_request_headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
        }),
    );
    let response = proxy.get("/");
    assert_eq!((response.header("x-again"), response.header("x-envoy-attempt-count")), ("", "2"));
    let response = proxy.exchange("DELETE / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((response.header("x-again"), response.header("x-envoy-attempt-count")), ("yes", "1"));
}

#[test]
fn grpc_statuses_in_the_head_of_an_answer_are_tried_again() {
    let unavailable =
        "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 14\r\ncontent-length: 0\r\n\r\n";
    let origin = origin(&[unavailable]);
    let proxy = proxy(&origin, json!({"retry_on": "unavailable"}));
    let response = proxy.get("/");
    assert_eq!((response.header("grpc-status"), response.header("x-envoy-attempt-count")), ("", "2"));
}

#[test]
fn a_connection_that_breaks_is_tried_again_where_resets_are() {
    let origin = origin(&["", ""]);
    let proxy = proxy(&origin, json!({"retry_on": "reset"}));
    let post = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(proxy.exchange(post).header("x-envoy-attempt-count"), "2");
    assert_eq!(stat(&proxy, "upstream_rq_retry"), 1);
    let origin = self::origin(&["", ""]);
    let proxy = self::proxy(&origin, json!({"retry_on": "reset-before-request"}));
    assert_eq!(proxy.exchange(post).status, 503);
    assert_eq!(stat(&proxy, "upstream_rq_retry"), 0);
}

#[test]
fn an_answer_says_when_to_come_again() {
    let limited = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let origin = origin(&[limited]);
    let proxy = proxy(
        &origin,
        json!({
            "retry_on": "retriable-status-codes",
            "retriable_status_codes": [429],
            "rate_limited_retry_back_off": {"reset_headers": [{"name": "Retry-After", "format": "SECONDS"}]},
        }),
    );
    let started = Instant::now();
    assert_eq!(proxy.get("/").status, 200);
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(stat(&proxy, "upstream_rq_retry_backoff_ratelimited"), 1);
}

#[test]
fn a_retry_counts_when_its_wait_is_over() {
    let late = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 100\r\ncontent-length: 0\r\n\r\n";
    for (answer, counter) in [(BAD, "exponential"), (late, "ratelimited")] {
        let origin = origin(&[answer]);
        let mut policy = json!({
            "retry_on": "5xx",
            "rate_limited_retry_back_off": {"reset_headers": [{"name": "retry-after", "format": "SECONDS"}]},
        });
        // Nobody waits for the whole of this, or a noticeable part.
        policy["retry_back_off"] = json!({"base_interval": "1000000s", "max_interval": "1000000s"});
        let mut config = Config::new().http(json!({"route_config": {"name": "local_route", "virtual_hosts": [{
            "name": "everything",
            "domains": ["*"],
            "virtual_clusters": [{"name": "all", "headers": [{"name": ":path", "string_match": {"prefix": "/"}}]}],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin", "retry_policy": policy}}],
        }]}}));
        config = config.cluster("origin", &[origin.address]);
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        client.send(get("/"));
        proxy.wait_stat("cluster.origin.retry.upstream_rq_503", 1);
        let counts = || {
            let stats = proxy.stats();
            let waited = format!("cluster.origin.upstream_rq_retry_backoff_{counter}");
            [
                stats.value("cluster.origin.upstream_rq_retry"),
                stats.value(&waited),
                stats.value("vhost.everything.vcluster.all.upstream_rq_retry"),
            ]
        };
        assert_eq!(counts(), [0; 3], "{counter}: it waits");
        drop(client);
        proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
        assert_eq!(counts(), [0; 3], "{counter}: the client does not");
        assert_eq!(origin.requests().len(), 1);
    }
}

#[test]
fn the_breaker_for_retries_holds_them_back() {
    let origin = origin(&[BAD]);
    let breaker = json!({"circuit_breakers": {"thresholds": [{"max_retries": 0}]}});
    let config = config(&[], json!({"retry_on": "5xx"}));
    let config = config.overlay(json!({"static_resources": {"clusters": []}}));
    let config = config.cluster_with("origin", &[origin.address], breaker);
    let lines = logged(config, 1, |proxy| {
        assert_eq!(proxy.get("/").status, 503);
        assert_eq!(stat(proxy, "upstream_rq_retry_overflow"), 1);
    });
    assert_eq!(lines, ["UO 1 via_upstream"]);
}

#[test]
fn a_route_has_the_last_word_over_its_virtual_host() {
    let origin = origin(&[BAD, BAD]);
    let config = Config::new()
        .http(json!({"route_config": {"name": "local_route", "virtual_hosts": [{
            "name": "everything",
            "domains": ["*"],
            "retry_policy": {"retry_on": "5xx"},
            "routes": [
                {"match": {"prefix": "/once"}, "route": {"cluster": "origin", "retry_policy": {"num_retries": 0}}},
                {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ],
        }]}}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/once").status, 503);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn a_stream_that_was_refused_is_tried_again() {
    let origin = H2Origin::start(100);
    let options = config::upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    let config = config(&[], json!({"retry_on": "refused-stream"}));
    let config = config.overlay(json!({"static_resources": {"clusters": []}}));
    let proxy = Proxy::start(&config.cluster_with("origin", &[origin.address], options));
    let mut client = proxy.client();
    let post = "POST /refused-once HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello";
    let response = client.exchange(post);
    assert_eq!((response.status, response.header("x-envoy-attempt-count")), (200, "2"));
    assert!(response.text().contains("body=5"), "{}", response.text());
    let reset = client.exchange(get("/reset"));
    assert_eq!((reset.status, reset.header("x-envoy-attempt-count")), (503, "1"));
    let text = "upstream connect error or disconnect/reset before headers. reset reason: remote reset";
    assert_eq!(reset.text(), text);
}

/// The second try would be behind the first one's answer, and get it, or make the next client get it.
#[test]
fn a_connection_that_owes_an_answer_is_not_used_for_the_next_try() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            if request.target == "/slow" && connection.index == 0 {
                connection.read_to_end();
                return;
            }
            connection.write(OK.as_bytes());
        }
    });
    let proxy = proxy(&origin, json!({"retry_on": "5xx", "num_retries": 1, "per_try_timeout": "0.5s"}));
    assert_eq!(proxy.get("/").status, 200);
    let answer = proxy.get("/slow");
    assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (200, "2"));
    let first = String::from_utf8_lossy(&origin.bytes(0)).into_owned();
    assert_eq!(first.matches("GET ").count(), 2, "{first}");
    assert_eq!(origin.connection_count(), 2);
}

/// It was told only where there was a host to ask.
#[test]
fn a_client_is_told_the_count_of_tries_where_there_is_no_host() {
    let proxy = Proxy::start(&config(&[], json!({"retry_on": "5xx"})));
    let answer = proxy.exchange(get("/"));
    assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (503, "1"));
}

/// These answers are not the router's.
#[test]
fn answers_about_idle_streams_say_nothing_of_tries() {
    let origin = Origin::silent();
    let config = config(&[origin.address], json!({"retry_on": "5xx"}));
    let proxy = Proxy::start(&config.overlay_filter("http", json!({"stream_idle_timeout": "0.1s"})));
    let answer = proxy.exchange(get("/"));
    assert_eq!((answer.status, answer.text(), answer.header("x-envoy-attempt-count")), (504, "stream timeout", ""));
}

/// `retry_policy` of a cluster was refused.
#[test]
fn a_cluster_has_the_last_word_about_retries() {
    let origin = origin(&[BAD, BAD, OK, BAD, "-", OK]);
    let back_off = json!({"base_interval": "0.001s", "max_interval": "0.002s"});
    let own = json!({"retry_on": "5xx", "num_retries": 2, "retry_back_off": back_off});
    let of_route = json!({"retry_on": "connect-failure", "per_try_timeout": "0.3s"});
    let routes = json!([
        {"match": {"path": "/own"}, "route": {"cluster": "origin", "retry_policy": of_route}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let host = json!({"name": "all", "domains": ["*"], "include_attempt_count_in_response": true, "routes": routes});
    let options = config::upstream_http_options(json!({"retry_policy": own}));
    let config = Config::new().http(json!({"route_config": {"virtual_hosts": [host]}})).cluster_with(
        "origin",
        &[origin.address],
        options,
    );
    let proxy = Proxy::start(&config);
    let answer = proxy.exchange(get("/"));
    assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (200, "3"));
    // What the cluster leaves out about the time of a try, the route says.
    let answer = proxy.exchange(get("/own"));
    assert_eq!((answer.status, answer.header("x-envoy-attempt-count")), (200, "3"));
    assert_eq!(stat(&proxy, "upstream_rq_retry"), 4);
    assert_eq!(stat(&proxy, "upstream_rq_per_try_timeout"), 1);
}
