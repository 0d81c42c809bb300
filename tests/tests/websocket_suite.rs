//! The cases of the Autobahn test suite, an independent judge of WebSockets, through the proxy: framing, pings, reserved
//! bits, opcodes, fragments, UTF-8, closes, limits and large messages. The origin handles each frame in order, so
//! every case has one right result; alone it passes them all.

use postrider_tests::kit::config::upstream_http_options;
use postrider_tests::kit::process::Running;
use postrider_tests::kit::{Config, Proxy, TempDir, net, wait_until};
use postrider_tests::needed;
use postrider_tests::tls::{Authority, secured};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All but compression (12 and 13), which is a matter of the two ends alone.
const CASES: [&str; 9] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"];
const CASE_COUNT: u64 = 301;
/// Seconds: three times what a slow machine takes with a debug build.
const LIMIT: &str = "400";

/// Where `.ci/autobahn` put the suite; `None`, with the reason said, where it cannot be had.
fn suite() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = target.join("tools/autobahn");
    if let Ok(reason) = std::fs::read_to_string(folder.join("unavailable")) {
        eprintln!("skipped, the Autobahn test suite is not to be had: {reason}");
        return None;
    }
    let installed = folder.join("wstest").is_file();
    assert!(installed, "{} has no suite: `make test` or `.ci/autobahn` installs it", folder.display());
    Some(folder)
}

struct Echo {
    _process: Running,
    address: SocketAddr,
}

fn echo(suite: &Path) -> Echo {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, net::free_port()));
    let mut command = Command::new(needed("python3"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/websocket/echo.py")).arg(address.port().to_string());
    let process = Running::spawn(command.env("PYTHONPATH", suite.join("wsproto")).stdout(Stdio::null()));
    wait_until("the echo server accepts", || TcpStream::connect(address).is_ok());
    Echo { _process: process, address }
}

fn websockets(origin: SocketAddr, cluster: Value) -> Config {
    // The largest messages take longer than a request may by default.
    let route = json!({"cluster": "origin", "timeout": "0s"});
    Config::routes(json!([{"match": {"prefix": "/"}, "route": route}]))
        .cluster_with("origin", &[origin], cluster)
        .overlay_filter(
            "http",
            json!({
                "upgrade_configs": [{"upgrade_type": "websocket"}],
                "http2_protocol_options": {"allow_connect": true},
            }),
        )
}

/// Runs all cases against a URL; each has to be as good as it can be.
fn judge(suite: &Path, url: &str) {
    let folder = TempDir::new();
    let spec = json!({
        "outdir": folder.path(),
        "servers": [{"agent": "postrider", "url": url}],
        "cases": CASES,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    });
    let spec = folder.write("spec.json", spec.to_string());
    let mut command = Command::new(needed("timeout"));
    command.arg(LIMIT).arg(suite.join("wstest")).args(["-m", "fuzzingclient", "-s"]).arg(spec);
    let finished = command.current_dir(folder.path()).stdin(Stdio::null()).output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let report = std::fs::read_to_string(folder.path().join("index.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).unwrap();
    let cases = report["postrider"].as_object().expect("cases");
    assert_eq!(cases.len() as u64, CASE_COUNT);
    let bad: Vec<String> = cases.iter().filter(|(_, case)| !clean(case)).map(|(id, case)| explain(id, case)).collect();
    assert!(bad.is_empty(), "{} cases failed:\n{}", bad.len(), bad.join("\n"));
}

fn clean(case: &Value) -> bool {
    ["behavior", "behaviorClose"].iter().all(|part| matches!(case[*part].as_str(), Some("OK" | "INFORMATIONAL")))
}

fn explain(id: &str, case: &Value) -> String {
    format!("{id}: {}, close {}, {} ms", case["behavior"], case["behaviorClose"], case["duration"])
}

#[test]
fn autobahn_finds_no_fault_over_http_1() {
    let Some(suite) = suite() else { return };
    let echo = echo(&suite);
    let proxy = Proxy::start(&websockets(echo.address, json!({})));
    judge(&suite, &format!("ws://{}", proxy.address("http")));
    let stats = proxy.stats();
    assert!(stats.value("http.ingress_http.downstream_cx_upgrades_total") >= CASE_COUNT);
    assert_eq!(stats.value("http.ingress_http.downstream_cx_protocol_error"), 0);
    proxy.wait_stat("http.ingress_http.downstream_cx_upgrades_active", 0);
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
}

#[test]
fn autobahn_finds_no_fault_over_tls_and_an_extended_connect_of_http_2() {
    let Some(suite) = suite() else { return };
    let echo = echo(&suite);
    let far = Proxy::start(&websockets(echo.address, json!({})));
    let http2 = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {"allow_connect": true}}}),
    );
    let near = websockets(far.address("http"), http2);
    let identity = Authority::new("authority").issue(&["site.test"]);
    let near = Proxy::start(&secured(near, &identity, json!({})));
    judge(&suite, &format!("wss://{}", near.address("http")));
    assert!(far.stats().value("http.ingress_http.downstream_rq_http2_total") >= CASE_COUNT);
    assert!(near.stats().value("http.ingress_http.downstream_cx_upgrades_total") >= CASE_COUNT);
    for proxy in [near, far] {
        proxy.wait_stat("http.ingress_http.downstream_cx_upgrades_active", 0);
        proxy.wait_stat("cluster.origin.upstream_rq_active", 0);
    }
}
