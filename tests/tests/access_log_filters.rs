//! Which requests an access log tells of, and when: conditions, records at the start and while a request goes on. The same
//! expectations hold for Envoy.

use postrider_tests::kit::config::{self, Config, extension};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, net, wait_until};
use serde_json::{Value, json};
use std::path::Path;

const FAST: &[&str] = &["--file-flush-interval-msec", "20"];

const SET_METADATA: &str = "function envoy_on_request(handle)
  local value = handle:headers():get('x-m')
  if value then handle:streamInfo():dynamicMetadata():set('ns', 'k', value) end
end";

/// One logger per condition, each with lines `name moment path`, in one file.
fn loggers(path: &Path, conditions: &[(&str, Value)]) -> Value {
    let logger = |(name, condition): &(&str, Value)| {
        let format = format!("{name} %ACCESS_LOG_TYPE% %REQ(:PATH)%\n");
        let mut log =
            config::file_access_log(path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
        config::overlay(&mut log, json!({"filter": condition}));
        log
    };
    Value::Array(conditions.iter().map(logger).collect())
}

fn proxy(path: &Path, conditions: &[(&str, Value)], more: Value) -> Proxy {
    let health = extension(
        "check",
        "filters.http.health_check.v3.HealthCheck",
        json!({"pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/check"}}]}),
    );
    let lua =
        extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string": SET_METADATA}}));
    let config = Config::routes(json!([
        {"match": {"path": "/d"}, "direct_response": {"status": 200}},
        {"match": {"path": "/dead"}, "route": {"cluster": "dead"}},
    ]))
    .cluster("dead", &[net::refusing_address()])
    .overlay_filter("http", json!({"access_log": loggers(path, conditions)}))
    .overlay_filter("http", json!({"http_filters": [health, lua, config::router()]}))
    .overlay_filter("http", more);
    Proxy::start_with(&config, Launch::default().with_arguments(FAST))
}

/// What each logger wrote, sorted, after these requests (path and header lines) and one to `/last`, which all log.
fn logged(conditions: &[(&str, Value)], more: Value, requests: &[(&str, &str)]) -> Vec<String> {
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let mut all = conditions.to_vec();
    all.push(("last", json!({"header_filter": {"header": {"name": "x-last", "present_match": true}}})));
    let proxy = proxy(&path, &all, more);
    for (target, headers) in requests.iter().chain([&("/last", "x-last: 1\r\n")]) {
        let request = format!("GET {target} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        RawClient::once(proxy.address("http"), &request).unwrap();
    }
    let mut lines: Vec<String> = Vec::new();
    wait_until("the last request's line", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.iter().any(|line| line == "last DownstreamEnd /last")
    });
    lines.retain(|line| !line.ends_with("/last"));
    lines.sort();
    lines
}

fn status(op: &str, value: u32) -> Value {
    json!({"status_code_filter": {"comparison": {"op": op, "value": {"default_value": value, "runtime_key": "k"}}}})
}

fn duration(op: &str, value: u32) -> Value {
    json!({"duration_filter": {"comparison": {"op": op, "value": {"default_value": value, "runtime_key": "k"}}}})
}

#[test]
fn each_condition_picks_its_requests() {
    let header = |name: &str| json!({"header_filter": {"header": {"name": name, "present_match": true}}});
    let wanted = json!({"filter": "ns", "path": [{"key": "k"}], "value": {"string_match": {"exact": "v"}}});
    let lines = logged(
        &[
            ("at_least", status("GE", 503)),
            ("equal", status("EQ", 404)),
            ("never", duration("GE", 1_000_000)),
            ("short", json!({"and_filter": {"filters": [duration("LE", 1_000_000), header("x-m")]}})),
            ("no_check", json!({"and_filter": {"filters": [{"not_health_check_filter": {}}, status("EQ", 200)]}})),
            ("traced", json!({"traceable_filter": {}})),
            ("flag", json!({"response_flag_filter": {"flags": ["UF"]}})),
            ("either", json!({"or_filter": {"filters": [header("x-a"), status("EQ", 404)]}})),
            ("noted", json!({"metadata_filter": {"matcher": wanted, "match_if_key_not_found": false}})),
            (
                "not_other",
                json!({"and_filter": {"filters": [{"metadata_filter": {"matcher": wanted}}, header("x-m")]}}),
            ),
            (
                "end",
                json!({"and_filter": {"filters": [{"log_type_filter": {"types": ["DownstreamEnd"]}}, header("x-a")]}}),
            ),
            ("not_end", json!({"log_type_filter": {"types": ["DownstreamEnd"], "exclude": true}})),
        ],
        json!({}),
        &[("/d", "x-a: 1\r\n"), ("/check", ""), ("/dead", "x-m: v\r\n"), ("/none", "x-m: w\r\n")],
    );
    assert_eq!(
        lines,
        [
            "at_least DownstreamEnd /dead",
            "either DownstreamEnd /d",
            "either DownstreamEnd /none",
            "end DownstreamEnd /d",
            "equal DownstreamEnd /none",
            "flag DownstreamEnd /dead",
            "no_check DownstreamEnd /d",
            "not_other DownstreamEnd /dead",
            "noted DownstreamEnd /dead",
            "short DownstreamEnd /dead",
            "short DownstreamEnd /none",
        ]
    );
}

#[test]
fn a_share_is_that_of_the_request_id() {
    let share = |numerator: u32, denominator: &str| {
        let percent = json!({"numerator": numerator, "denominator": denominator});
        json!({"runtime_filter": {"runtime_key": "k", "percent_sampled": percent}})
    };
    let id = |first: &str| format!("x-request-id: {first}-0000-4000-8000-000000000000\r\n");
    let lines = logged(
        &[
            ("percent", share(20, "HUNDRED")),
            ("fine", share(2000, "TEN_THOUSAND")),
            ("all", share(100, "HUNDRED")),
            ("unset", json!({"runtime_filter": {"runtime_key": "k"}})),
        ],
        json!({}),
        // 19, 31, 1999 and 65,535.
        &[
            ("/d?19", &id("00000013")),
            ("/d?31", &id("0000001f")),
            ("/d?1999", &id("000007cf")),
            ("/d?65535", &id("0000ffff")),
        ],
    );
    assert_eq!(
        lines,
        [
            "all DownstreamEnd /d?19",
            "all DownstreamEnd /d?1999",
            "all DownstreamEnd /d?31",
            "all DownstreamEnd /d?65535",
            "fine DownstreamEnd /d?19",
            "fine DownstreamEnd /d?1999",
            "fine DownstreamEnd /d?31",
            "percent DownstreamEnd /d?19",
        ]
    );
}

#[test]
fn a_request_is_told_of_when_it_begins() {
    let newer = json!({"access_log_options": {"flush_access_log_on_new_request": true}});
    for options in [newer, json!({"flush_access_log_on_new_request": true})] {
        let lines = logged(
            &[("all", status("GE", 0)), ("none_yet", status("EQ", 0))],
            options,
            &[("/d", ""), ("/check", ""), ("/none", "")],
        );
        assert_eq!(
            lines,
            [
                "all DownstreamEnd /check",
                "all DownstreamEnd /d",
                "all DownstreamEnd /none",
                "all DownstreamStart /check",
                "all DownstreamStart /d",
                "all DownstreamStart /none",
                "none_yet DownstreamStart /check",
                "none_yet DownstreamStart /d",
                "none_yet DownstreamStart /none",
            ]
        );
    }
}

/// The origin answers when the log has told three times that the request goes on.
#[test]
fn a_request_that_goes_on_is_told_of_again_and_again() {
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let log = path.clone();
    let periodic = |text: &str| text.lines().filter(|line| line.starts_with("DownstreamPeriodic /slow 0")).count();
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            wait_until("three records", || periodic(&std::fs::read_to_string(&log).unwrap_or_default()) >= 3);
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let format = "%ACCESS_LOG_TYPE% %REQ(:PATH)% %RESPONSE_CODE%\n";
    let log = config::file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
    let config = Config::proxy_to(origin.address).overlay_filter(
        "http",
        json!({"access_log": [log], "access_log_options": {"access_log_flush_interval": "0.03s"}}),
    );
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(FAST));
    let answer = RawClient::once(proxy.address("http"), "GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    assert_eq!(answer.status, 200);
    let mut text = String::new();
    wait_until("the last record", || {
        text = std::fs::read_to_string(&path).unwrap_or_default();
        text.contains("DownstreamEnd")
    });
    assert!(periodic(&text) >= 3, "{text}");
    assert!(text.ends_with("DownstreamEnd /slow 200\n"), "{text}");
}
