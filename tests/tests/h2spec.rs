//! What `h2spec` finds: every rule of RFC 9113 and RFC 7541 that it knows, strictly, through the proxy to an origin.

use postrider_tests::go_tool;
use postrider_tests::kit::{Config, Origin, Proxy, process};
use serde_json::{Value, json};
use std::process::Command;

/// Its last line, and all that it said.
fn run(listener: Value) -> (String, String) {
    let origin = Origin::echo("h2spec");
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay_filter("http", listener));
    let address = proxy.address("http");
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let finished =
        process::run(Command::new(go_tool("h2spec")).args(["--strict", "-o", "5", "-h", &host, "-p", &port]));
    (finished.stdout.trim_end().lines().last().unwrap_or_default().to_owned(), finished.stdout)
}

#[test]
fn h2spec_finds_nothing_strictly() {
    let (verdict, said) = run(json!({"codec_type": "HTTP2"}));
    assert_eq!(verdict, "146 tests, 146 passed, 0 skipped, 0 failed", "{said}");
}
