//! End-to-end suites: they start the binary and look at it from outside only.
//!
//! Each file under `tests/` is one subject. Run against Postrider by default;
//! `POSTRIDER_BIN=envoy cargo test -p postrider-tests` runs them against Envoy,
//! which shows that they describe it rightly. Where Postrider is stricter on
//! purpose a test says so with [`envoy`], and so names the difference.

pub use postrider_testkit as kit;

pub mod attack;
pub mod chance;
pub mod dns;
pub mod golang;
pub mod grpc;
pub mod grpc_origin;
pub mod h2_client;
pub mod h2_frames;
pub mod h2_origin;
pub mod htnn;
pub mod load;
pub mod modules;
pub mod pebble;
pub mod plugins;
pub mod probes;
pub mod processor;
pub mod pyvoy;
pub mod redis;
pub mod registry;
pub mod runtimes;
pub mod site;
pub mod tls;
pub mod tls_origin;
pub mod wasm;

use postrider_testkit::{Config, Flavour, Origin, Proxy, Response, TempDir, proxy};
use serde_json::{Value, json};

/// Whether the proxy under test is Envoy, not Postrider.
pub fn envoy() -> bool {
    proxy::flavour() == Flavour::Envoy
}

/// A GET on a kept connection.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")
}

/// One request with a host and extra field lines, each ended by CRLF.
pub fn ask(proxy: &Proxy, method: &str, host: &str, path: &str, fields: &str) -> Response {
    proxy.exchange(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"))
}

/// Answers with the body and the trailers of the request.
pub fn echo() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let mut answer = b"HTTP/1.1 200 OK\r\nx-old: old\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
            for chunk in request.body.chunks(50_000) {
                answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                answer.extend_from_slice(chunk);
                answer.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"0\r\n");
            for (name, value) in &request.trailers.0 {
                answer.extend_from_slice(format!("{name}: ").as_bytes());
                answer.extend_from_slice(value);
                answer.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"\r\n");
            connection.write(&answer);
        }
    })
}

/// A route that answers with its own name, so that no origin is needed. A
/// matcher without a path takes every path.
pub fn named_route(name: &str, mut matcher: Value) -> Value {
    let paths = ["prefix", "path", "safe_regex", "path_separated_prefix"];
    if paths.iter().all(|key| matcher.get(key).is_none()) {
        matcher["prefix"] = json!("/");
    }
    json!({"match": matcher, "direct_response": {"status": 200, "body": {"inline_string": name}}})
}

/// Whether to go on with a test about something that Envoy does not have. Says
/// so on standard error when not.
pub fn postrider_only() -> bool {
    if envoy() {
        eprintln!("not a matter of Envoy: there is nothing to compare");
    }
    !envoy()
}

/// What `validate` says of a configuration that it refuses.
pub fn refusal(config: &Config) -> String {
    let folder = TempDir::new();
    let file = folder.write("config.yaml", config.to_yaml());
    let done = proxy::run(&["validate", file.to_str().expect("a path in UTF-8")]);
    assert_eq!(done.code, Some(3), "{}{}", done.stdout, done.stderr);
    format!("{}{}", done.stdout, done.stderr)
}

/// The path of a program that a test needs; panics when it is not installed.
pub fn needed(program: &str) -> std::path::PathBuf {
    kit::process::program(program).unwrap_or_else(|| panic!("{program} is not installed: `make test` installs it"))
}

/// The path of a Go program that `tests/grpc` describes; panics when it was not built.
pub fn go_tool(program: &str) -> std::path::PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(std::path::PathBuf::from);
    let target = target.unwrap_or_else(|| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let path = target.join("tools/grpc").join(program);
    assert!(path.exists(), "{} is not built: `make test` builds it, with Go 1.24 or later", path.display());
    path
}
