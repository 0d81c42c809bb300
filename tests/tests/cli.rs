//! The command line: exit codes, Envoy's flags, and the commands that read a
//! configuration without serving it.

use postrider_tests::kit::process::{self, Finished};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, config, proxy};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const R2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/r2-envoy-1.14.yaml");
const R3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/r3-envoy-1.7-tcp.yaml");

fn direct(body: &str) -> Config {
    Config::routes(
        json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}]),
    )
}

/// A valid file in a folder of its own.
fn good() -> (TempDir, String) {
    let directory = TempDir::new();
    let file = directory.write("good.yaml", direct("hi").to_yaml());
    let file = file.to_str().unwrap().to_string();
    (directory, file)
}

/// What a command printed on both streams.
fn printed(finished: &Finished) -> String {
    format!("{}{}", finished.stdout, finished.stderr)
}

#[track_caller]
fn expect(arguments: &[&str], code: i32) -> Finished {
    let finished = proxy::run(arguments);
    assert_eq!(finished.code, Some(code), "{arguments:?}: {finished:?}");
    finished
}

#[test]
fn a_port_of_the_admin_that_is_taken_is_an_error_and_no_panic() {
    if !postrider_only() {
        return;
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let directory = TempDir::new();
    let file = directory.write(
        "config.yaml",
        format!("admin: \"{address}\"\nlisten: \"127.0.0.1:0\"\nroutes: [{{ match: /, to: \"http://{address}\" }}]\n"),
    );
    let refused = expect(&["run", "-c", file.to_str().unwrap()], 1);
    let told = format!("the admin interface cannot listen on {address}: Address already in use");
    assert!(printed(&refused).contains(&told), "{refused:?}");
}

#[test]
fn exit_codes_tell_usage_from_configuration_from_run_time() {
    if !postrider_only() {
        return;
    }
    let (directory, good) = good();
    let broken = directory.write("broken.yaml", "static_resources: {listeners: [{nam: x}]}\n");
    let broken = broken.to_str().unwrap();
    expect(&["validate", &good], 0);
    expect(&["validate", broken], 3);
    expect(&["run", "-c", broken], 3);
    expect(&["-c", broken], 3);
    expect(&["validate", "/nonexistent/file.yaml"], 1);
    expect(&["validate"], 2);
    expect(&["frobnicate"], 2);
    expect(&["run", "--no-such-flag"], 2);
    expect(&["run", "--concurrency", "many", "-c", &good], 2);
    expect(&["validate", &good, "--output", "xml"], 2);
    expect(&["--version"], 0);
    expect(&["--help"], 0);
}

#[test]
fn a_port_in_use_is_a_failure_at_run_time() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::silent();
    let config = direct("x").overlay_listener(
        "http",
        json!({"enable_reuse_port": false, "address": {"socket_address": {"port_value": origin.address.port()}}}),
    );
    let directory = TempDir::new();
    let file = directory.write("taken.yaml", config.to_yaml());
    let finished = expect(&["run", "-c", file.to_str().unwrap()], 1);
    assert!(finished.stderr.contains(&origin.address.port().to_string()), "{finished:?}");
}

#[test]
fn bare_c_and_any_other_name_mean_run() {
    let (directory, good) = good();
    let finished = expect(&["-c", &good, "--mode", "validate"], 0);
    assert!(printed(&finished).contains("OK"), "{finished:?}");
    if !postrider_only() {
        return;
    }
    let other = directory.path().join("envoy");
    symlink(proxy::binary(), &other).unwrap();
    let finished = process::run(Command::new(&other).args(["-c", &good, "--mode", "validate"]));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    // Under another name there are no commands to be mistaken for.
    let finished = process::run(Command::new(&other).args(["validate", &good]));
    assert_eq!(finished.code, Some(2), "{finished:?}");
}

/// Every flag of Envoy 1.40, with a value where it takes one.
const FLAGS: &[&[&str]] = &[
    &["--stats-tag", "zone:a"],
    &["--enable-core-dump"],
    &["--socket-mode", "600"],
    &["--socket-path", "@postrider_test"],
    &["--disable-extensions", "envoy.filters.http.lua"],
    &["--cpuset-threads"],
    &["--enable-mutex-tracing"],
    &["--disable-hot-restart"],
    &["--parent-shutdown-time-s", "9"],
    &["--drain-strategy", "immediate"],
    &["--drain-strategy", "gradual"],
    &["--drain-time-s", "5"],
    &["--file-flush-min-size-kb", "64"],
    &["--file-flush-interval-msec", "100"],
    &["--service-zone", "z"],
    &["--service-node", "n"],
    &["--service-cluster", "c"],
    &["--restart-epoch", "0"],
    &["--log-path", "/dev/null"],
    &["--enable-fine-grain-logging"],
    &["--log-format-escaped"],
    &["--log-format", "%v"],
    &["--component-log-level", "upstream:debug,config:trace"],
    &["-l", "warning"],
    &["--log-level", "warn"],
    &["--local-address-ip-version", "v4"],
    &["--admin-address-path", "/dev/null"],
    &["--log-stacktrace-single-entry"],
    &["--skip-deprecated-logs"],
    &["--ignore-unknown-dynamic-fields"],
    &["--reject-unknown-dynamic-fields"],
    &["--allow-unknown-static-fields"],
    &["--allow-unknown-fields"],
    &["--config-yaml", "{node: {id: x}}"],
    &["--concurrency", "2"],
    &["--base-id-path", "/dev/null"],
    &["--skip-hot-restart-parent-stats"],
    &["--skip-hot-restart-on-no-parent"],
    &["--use-dynamic-base-id"],
    &["--base-id", "77"],
];

#[test]
fn every_flag_of_envoy_is_accepted() {
    let (_directory, good) = good();
    for flag in FLAGS {
        let mut arguments = vec!["-c", &good, "--mode", "validate"];
        arguments.extend_from_slice(flag);
        let finished = proxy::run(&arguments);
        assert_eq!(finished.code, Some(0), "{flag:?}: {finished:?}");
    }
    expect(&["--hot-restart-version"], 0);
}

#[test]
fn the_list_of_flags_is_all_that_envoy_has() {
    let Some(envoy) = process::program("envoy") else {
        eprintln!("envoy is not on PATH: the list was taken from 1.40");
        return;
    };
    let help = process::run(Command::new(envoy).arg("--help"));
    for word in help.stdout.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
        let name: String = word[2..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        let known = FLAGS.iter().any(|flag| flag[0] == format!("--{name}"));
        let elsewhere = ["", "mode", "config-path", "version", "help", "hot-restart-version", "ignore"];
        assert!(known || elsewhere.contains(&name.as_str()) || name.starts_with("ignore"), "--{name} is not tried");
    }
}

#[test]
fn a_flag_without_effect_says_so_once() {
    if !postrider_only() {
        return;
    }
    let (_directory, good) = good();
    let finished = expect(&["-c", &good, "--mode", "validate", "--enable-mutex-tracing", "--base-id", "3"], 0);
    for flag in ["--enable-mutex-tracing", "--base-id"] {
        assert_eq!(finished.stderr.matches(flag).count(), 1, "{flag}: {finished:?}");
    }
}

#[test]
fn config_yaml_is_merged_over_the_file_and_may_stand_alone() {
    let (_directory, good) = good();
    let bad = "{static_resources: {clusters: [{name: \"\"}]}}";
    let finished = proxy::run(&["-c", &good, "--mode", "validate", "--config-yaml", bad]);
    assert_ne!(finished.code, Some(0), "{finished:?}");
    let alone = direct("alone").to_value().to_string();
    expect(&["--mode", "validate", "--config-yaml", &alone], 0);
}

/// `(line, code)` of each finding of `validate --output json`.
fn findings(file: &str) -> (Option<i32>, Vec<(u64, String, Value)>) {
    let finished = proxy::run(&["validate", file, "--output", "json"]);
    let text = if finished.stdout.trim().is_empty() { &finished.stderr } else { &finished.stdout };
    let report: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {finished:?}"));
    let found: Vec<(u64, String, Value)> = report["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["severity"] == "error")
        .map(|d| (d["line"].as_u64().unwrap_or(0), d["code"].as_str().unwrap_or("").to_string(), d.clone()))
        .collect();
    assert_eq!(report["errors"], found.len());
    (finished.code, found)
}

#[test]
fn all_five_faults_of_the_published_file_are_shown_in_one_run() {
    if !postrider_only() {
        return;
    }
    let (code, found) = findings(R2);
    assert_eq!(code, Some(3));
    let mut lines: Vec<u64> = found.iter().map(|(line, ..)| *line).collect();
    lines.sort_unstable();
    // `config` of the connection manager, the stray comma, `config` of the
    // router, `hosts`, and the indentation of the second threshold.
    assert_eq!(lines, [10, 11, 23, 31, 40], "{found:#?}");
    let comma = &found.iter().find(|(line, ..)| *line == 11).unwrap().2;
    assert_eq!(comma["fix"]["replacement"], "false", "{comma}");
    let text = expect(&["validate", R2], 3);
    for place in [
        "r2-envoy-1.14.yaml:10:",
        "r2-envoy-1.14.yaml:11:",
        "r2-envoy-1.14.yaml:23:",
        "r2-envoy-1.14.yaml:31:",
        "r2-envoy-1.14.yaml:40:",
    ] {
        assert!(printed(&text).contains(place), "{place} is not in\n{}", printed(&text));
    }
    assert!(printed(&text).contains("migrate"), "{}", printed(&text));
}

#[test]
fn every_error_comes_with_place_path_and_suggestion() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let text = direct("x").cluster("up", &[([127, 0, 0, 1], 9).into()]).to_yaml();
    let text = text.replace("connect_timeout:", "conect_timeout:").replace("\"prefix\": ", "prefix: ");
    let text = text.replace("stat_prefix: \"ingress_http\"", "stat_prefix: \"\"");
    let text = text.replace("\"STATIC\"", "\"STATTIC\"");
    let file = directory.write("three.yaml", &text);
    let (code, found) = findings(file.to_str().unwrap());
    assert_eq!(code, Some(3));
    assert_eq!(found.len(), 3, "{found:#?}");
    let line_of = |needle: &str| text.lines().position(|line| line.contains(needle)).unwrap() as u64 + 1;
    let at = |needle: &str| {
        let line = line_of(needle);
        &found.iter().find(|(at, ..)| *at == line).unwrap_or_else(|| panic!("none at {line}: {found:#?}")).2
    };
    let field = at("conect_timeout");
    assert_eq!(field["suggestion"], "connect_timeout");
    assert!(field["path"].as_str().unwrap().starts_with("static_resources.clusters[0]"), "{field}");
    assert_eq!(at("STATTIC")["suggestion"], "STATIC");
    assert!(at("stat_prefix")["path"].as_str().unwrap().ends_with("stat_prefix"));
}

#[test]
fn a_known_extension_without_support_is_named_as_such() {
    if !postrider_only() {
        return;
    }
    let unsupported =
        config::extension("size", "filters.http.file_system_buffer.v3.FileSystemBufferFilterConfig", json!({}));
    let directory = TempDir::new();
    let config = direct("x").overlay_filter("http", json!({"http_filters": [unsupported, config::router()]}));
    let file = directory.write("buffer.yaml", config.to_yaml());
    let finished = expect(&["validate", file.to_str().unwrap()], 3);
    let text = printed(&finished);
    assert!(text.contains("known") && text.contains("not supported by Postrider"), "{finished:?}");
    assert!(!printed(&finished).contains("unknown"), "{finished:?}");
}

/// Real Envoy's verdict on a text, when it is installed.
fn envoy_accepts(text: &str) {
    let Some(envoy) = process::program("envoy") else {
        eprintln!("envoy is not on PATH: its verdict is not asked");
        return;
    };
    let directory = TempDir::new();
    let file = directory.write("config.yaml", text);
    let finished = process::run(
        Command::new(envoy).args(["--mode", "validate", "--disable-hot-restart", "-l", "warning", "-c"]).arg(&file),
    );
    assert_eq!(finished.code, Some(0), "{}\n{text}", finished.stderr);
}

#[test]
fn migrate_turns_the_published_v2_files_into_what_envoy_accepts() {
    if !postrider_only() {
        return;
    }
    for file in [R2, R3] {
        let migrated = expect(&["migrate", file], 0);
        envoy_accepts(&migrated.stdout);
        let directory = TempDir::new();
        let v3 = directory.write("v3.yaml", &migrated.stdout);
        expect(&["validate", v3.to_str().unwrap()], 0);
        assert!(!migrated.stderr.trim().is_empty(), "each change is told");
        // A file that needs nothing comes out meaning the same.
        let again = expect(&["migrate", v3.to_str().unwrap()], 0);
        envoy_accepts(&again.stdout);
    }
}

#[test]
fn the_migrated_file_starts_and_serves() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let migrated = expect(&["migrate", R2], 0).stdout;
    let text = migrated
        .replace("port_value: 10000", "port_value: 0")
        .replace("0.0.0.0", "127.0.0.1")
        .replace("port_value: 1980", &format!("port_value: {}", origin.address.port()));
    let text = format!("{text}\nadmin:\n  address:\n    socket_address: {{address: 127.0.0.1, port_value: 0}}\n");
    let directory = TempDir::new();
    let file = directory.write("config.yaml", text);
    let proxy = Proxy::start_file(directory, file, proxy::Launch::default());
    let mut client = postrider_tests::kit::RawClient::connect(proxy.address("listener_0"));
    assert_eq!(client.exchange(get("/hello")).header("x-origin"), "a");
    assert_eq!(client.exchange(get("/other")).status, 404);
}

#[test]
fn the_short_form_converts_to_what_envoy_accepts_and_serves_the_same() {
    if !postrider_only() {
        return;
    }
    let (api, rest) = (Origin::echo("api"), Origin::echo("rest"));
    let short = format!(
        "listen: \"127.0.0.1:0\"\nadmin: \"127.0.0.1:0\"\nroutes:\n\
         - {{ match: /api, to: \"http://{}\" }}\n\
         - {{ match: /old, redirect: /new }}\n\
         - {{ match: /, to: \"http://{}\" }}\n",
        api.address, rest.address
    );
    let directory = TempDir::new();
    let file = directory.write("short.yaml", &short);
    expect(&["validate", file.to_str().unwrap()], 0);
    let long = expect(&["convert", file.to_str().unwrap(), "--to", "envoy"], 0).stdout;
    envoy_accepts(&long);
    let other = TempDir::new();
    let long = other.write("long.yaml", &long);
    for (directory, file) in [(directory, file), (other, long)] {
        let proxy = Proxy::start_file(directory, file, proxy::Launch::default());
        let listeners = proxy.admin_json("/listeners?format=json");
        let name = listeners["listener_statuses"][0]["name"].as_str().unwrap().to_string();
        let mut client = postrider_tests::kit::RawClient::connect(proxy.address(&name));
        assert_eq!(client.exchange(get("/api/x")).header("x-origin"), "api");
        assert_eq!(client.exchange(get("/x")).header("x-origin"), "rest");
        assert_eq!(client.exchange(get("/old")).status, 301);
    }
}

/// A site whose routes answer with their own name.
fn explained() -> Config {
    let route = |name: &str, matcher: Value| json!({"name": name, "match": matcher, "direct_response": {"status": 200, "body": {"inline_string": name}}});
    Config::new().http(json!({"route_config": {"virtual_hosts": [
        {"name": "shop", "domains": ["shop.test", "*.shop.test"], "routes": [
            route("tester", json!({"prefix": "/api", "headers": [{"name": "x-tester", "string_match": {"exact": "yes"}}]})),
            route("exact", json!({"path": "/api/v1"})),
            route("api", json!({"path_separated_prefix": "/api"})),
            route("number", json!({"safe_regex": {"regex": "/item/[0-9]+"}})),
            route("query", json!({"prefix": "/q", "query_parameters": [{"name": "k", "present_match": true}]})),
        ]},
        {"name": "rest", "domains": ["*"], "routes": [route("rest", json!({"prefix": "/"}))]},
    ]}}))
}

#[test]
fn explain_names_the_winner_and_why_the_others_lost() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let file = directory.write("site.yaml", explained().to_yaml());
    let file = file.to_str().unwrap();
    let finished = expect(&["explain", file, "GET", "http://a.shop.test/api/v1/x", "-H", "x-tester: no"], 0);
    for word in ["shop", "*.shop.test", "tester", "x-tester", "exact", "api"] {
        assert!(finished.stdout.contains(word), "{word} is not in\n{}", finished.stdout);
    }
    let finished = expect(&["explain", file, "GET", "http://shop.test/none"], 0);
    assert!(finished.stdout.contains("404"), "{}", finished.stdout);
    expect(&["explain", file, "GET"], 2);
}

#[test]
fn explain_agrees_with_traffic() {
    if !postrider_only() {
        return;
    }
    let proxy = Proxy::start(&explained());
    let file = proxy.config_path().to_str().unwrap();
    let mut client = proxy.client();
    for host in ["shop.test", "a.shop.test", "SHOP.test", "shop.test:81", "other"] {
        for path in
            ["/api", "/api/v1", "/api/v1?x", "/apix", "/item/7", "/item/x", "/q?k", "/q", "/x/../api", "//api", "/"]
        {
            for tester in ["yes", "no"] {
                let response =
                    client.exchange(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nx-tester: {tester}\r\n\r\n"));
                let served = if response.status == 404 { Value::Null } else { json!(response.text()) };
                let url = format!("http://{host}{path}");
                let header = format!("x-tester: {tester}");
                let finished = expect(&["explain", file, "GET", &url, "-H", &header, "--output", "json"], 0);
                let report: Value = serde_json::from_str(&finished.stdout).unwrap();
                assert_eq!(report["route"]["name"], served, "{url} {header}: {report:#}");
            }
        }
    }
}

#[test]
fn doctor_lists_support_per_field_and_the_share() {
    if !postrider_only() {
        return;
    }
    let (_directory, good) = good();
    let finished = expect(&["doctor", &good], 0);
    assert!(finished.stdout.contains("supported") && finished.stdout.contains('%'), "{finished:?}");
    let finished = expect(&["doctor", &good, "--output", "json"], 0);
    serde_json::from_str::<Value>(&finished.stdout).unwrap();
}

#[test]
fn version_and_completion_print_something_of_use() {
    if !postrider_only() {
        return;
    }
    let version = expect(&["version"], 0).stdout;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for shell in ["bash", "zsh", "fish"] {
        let script = expect(&["completion", shell], 0).stdout;
        assert!(script.contains("validate") && script.contains("postrider"), "{shell}");
    }
}

#[test]
fn the_examples_of_the_repository_are_valid() {
    if !postrider_only() {
        return;
    }
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"));
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yaml") {
            expect(&["validate", path.to_str().unwrap()], 0);
            count += 1;
        }
    }
    assert!(count >= 4, "{count} examples");
}
