//! Every flag of Envoy 1.40 is taken unchanged.

use std::process::{Command, Stdio};

/// Each flag with a value where it takes one, as `envoy --help` of 1.40 lists them.
const FLAGS: &[&[&str]] = &[
    &["--stats-tag", "zone:a", "--stats-tag", "rack:b"],
    &["--enable-core-dump"],
    &["--socket-mode", "600"],
    &["--socket-path", "@name"],
    &["--disable-extensions", "envoy.filters.http.lua,envoy.filters.http.wasm"],
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
    &["--component-log-level", "upstream:debug,misc:error"],
    &["-l", "warning"],
    &["--log-level", "warn"],
    &["--local-address-ip-version", "v6"],
    &["--admin-address-path", "/dev/null"],
    &["--log-stacktrace-single-entry"],
    &["--skip-deprecated-logs"],
    &["--ignore-unknown-dynamic-fields"],
    &["--reject-unknown-dynamic-fields"],
    &["--allow-unknown-static-fields"],
    &["--allow-unknown-fields"],
    &["--mode", "validate"],
    &["--concurrency", "2"],
    &["--base-id-path", "/dev/null"],
    &["--skip-hot-restart-parent-stats"],
    &["--skip-hot-restart-on-no-parent"],
    &["--use-dynamic-base-id"],
    &["--base-id", "77"],
    &["--ignore_rest", "--whatever"],
    &["--", "whatever"],
];

/// What an agent in a mesh passes.
const AGENT: &[&str] = &[
    "--drain-time-s",
    "45",
    "--drain-strategy",
    "immediate",
    "--local-address-ip-version",
    "v4",
    "--file-flush-interval-msec",
    "1000",
    "--disable-hot-restart",
    "--allow-unknown-static-fields",
    "-l",
    "warning",
    "--component-log-level",
    "upstream:error,config:error",
    "--skip-deprecated-logs",
    "--concurrency",
    "2",
];

/// What a run with these flags says on standard error; it must succeed.
#[track_caller]
fn said(flags: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["--config-yaml", "{}", "--mode", "validate"]).stdin(Stdio::null());
    // A flag may stand once only.
    if flags.first() == Some(&"--mode") {
        command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["--config-yaml", "{}"]);
    }
    let output = command.args(flags).output().unwrap();
    assert!(output.status.success(), "{flags:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn each_is_accepted() {
    for flags in FLAGS {
        said(flags);
    }
}

#[test]
fn an_agents_flags_cause_no_remarks() {
    assert_eq!(said(AGENT), "");
}

#[test]
fn one_without_effect_is_named_once() {
    let stderr = said(&["--base-id", "3", "--socket-mode", "600", "--stats-tag", "c:d"]);
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.contains("--base-id has no effect") && stderr.contains("--socket-mode has no effect"), "{stderr}");
}

#[test]
fn extensions_that_are_disabled_are_refused() {
    let config = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: 1 } }
    filter_chains:
    - filters:
      - name: free
        typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo }
"#;
    let run = |disabled: &str| {
        let arguments = ["--config-yaml", config, "--mode", "validate", "--disable-extensions", disabled];
        Command::new(env!("CARGO_BIN_EXE_postrider")).args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    let output = run("envoy.filters.network/envoy.filters.network.echo,envoy.filters.network/none,echo");
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("`envoy.filters.network/envoy.filters.network.echo` is disabled by"), "{text}");
    assert!(text.contains("nothing is disabled by `envoy.filters.network/none`"), "{text}");
    assert!(text.contains("nothing is disabled by `echo`"), "{text}");
    assert!(run("envoy.filters.network/envoy.filters.network.tcp_proxy").status.success());
}

#[test]
fn an_installed_envoy_has_no_flag_beyond_the_list() {
    let Ok(help) = Command::new("envoy").arg("--help").output() else {
        eprintln!("envoy is not installed: the list was taken from 1.40");
        return;
    };
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let answered_elsewhere = ["--config-path", "--config-yaml", "--hot-restart-version", "--version", "--help"];
    for line in help.lines().filter_map(|line| line.strip_prefix("   -")) {
        for word in line.split([' ', ',']).filter(|word| word.starts_with("--") || word.starts_with('-')) {
            let flag = format!("-{}", word.trim_start_matches('-'));
            let listed =
                FLAGS.iter().any(|flags| flags.iter().any(|known| known.trim_start_matches('-') == &flag[1..]));
            let elsewhere = answered_elsewhere.iter().any(|known| known.trim_start_matches('-') == &flag[1..]);
            assert!(listed || elsewhere || flag.len() == 2, "{word} is not in the list");
        }
    }
}
