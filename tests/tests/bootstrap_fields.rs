//! Fields of the bootstrap about the process. The same expectations hold for Envoy.

use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, wait_until};
use serde_json::{Value, json};

fn start(fields: Value) -> Proxy {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let config = Config::proxy_to(origin.address).overlay(fields);
    Proxy::start(&config)
}

#[test]
fn the_version_in_statistics_is_the_one_that_was_given() {
    let proxy = start(json!({"stats_server_version_override": 4711}));
    assert_eq!(proxy.stats().value("server.version"), 4711);
}

/// The CPUs that each thread of the process may run on.
fn allowed(proxy: &Proxy) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap();
    let list = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
    };
    tasks.filter_map(|task| list(task.unwrap().path())).collect()
}

#[test]
fn workers_stay_on_a_cpu_of_their_own_if_told_to() {
    let pinned = |proxy: &Proxy| allowed(proxy).iter().filter(|list| list.bytes().all(|b| b.is_ascii_digit())).count();
    let free = start(json!({}));
    if pinned(&free) > 0 {
        eprintln!("there is one CPU only: nothing can be seen");
        return;
    }
    let held = start(json!({"enable_worker_cpu_affinity": true}));
    // Of Envoy, one more thread stays with its worker.
    assert!(pinned(&held) >= 1, "{:?}", allowed(&held));
}

/// Waits for a line of the log, of which there are many at level debug.
fn await_line(proxy: &Proxy, wanted: impl Fn(&str) -> bool) {
    assert_eq!(proxy.admin_post("/logging?level=debug").status, 200);
    wait_until("a line of that form", || {
        assert_eq!(proxy.get("/").status, 200);
        proxy.stderr().lines().any(&wanted)
    });
}

#[test]
fn the_log_has_the_form_that_the_bootstrap_says() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let format = json!({"level": "%l", "letter": "%L", "component": "%n", "message": "%j"});
    let fields = json!({"application_log_config": {"log_format": {"json_format": format}}});
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay(fields));
    await_line(&proxy, |line| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        let is_level = [("info", "I"), ("debug", "D")]
            .contains(&(line["level"].as_str().unwrap_or_default(), line["letter"].as_str().unwrap_or_default()));
        is_level && line["component"].is_string() && line["message"].is_string()
    });
}

#[test]
fn the_log_has_the_form_that_the_command_line_says() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let launch = Launch::default().with_arguments(&["--log-format", "%L|%-9l|%n|%v", "--log-format-escaped"]);
    let proxy = Proxy::start_with(&Config::proxy_to(origin.address), launch);
    await_line(&proxy, |line| line.starts_with("I|info     |") || line.starts_with("D|debug    |"));
}
