//! gRPC as others speak it: the interoperability suite of gRPC through the proxy, and grpcurl.

use postrider_tests::go_tool;
use postrider_tests::kit::config::upstream_http_options;
use postrider_tests::kit::process::{self, Finished, Running};
use postrider_tests::kit::{Config, Proxy, TempDir, net, wait_until};
use postrider_tests::tls::{Authority, secured};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// Every case that needs no credentials of a cloud.
const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// The server of the suite.
struct Server {
    address: SocketAddr,
    _process: Running,
}

impl Server {
    fn start() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], net::free_port()));
        let mut command = Command::new(go_tool("server"));
        command.arg(format!("--port={}", address.port())).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Running::spawn(&mut command);
        wait_until("the interoperability server listens", || TcpStream::connect(address).is_ok());
        Self { address, _process: process }
    }
}

fn config(server: &Server) -> Config {
    let http2 = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    Config::routes(json!([
        {"match": {"path": "/own.Service/Call"}, "direct_response": {"status": 403, "body": {"inline_string": "not ü"}}},
        {"match": {"prefix": "/empty.Service"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "grpc", "timeout": "0s"}},
    ]))
    .cluster_with("grpc", &[server.address], http2)
    .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
}

/// Runs all cases at once and tells those that failed.
fn failures(address: SocketAddr, arguments: &[String]) -> Vec<String> {
    let run = |case: &&str| {
        let mut command = Command::new(go_tool("client"));
        command.args([format!("--server_port={}", address.port()), format!("--test_case={case}")]);
        command.args(["--server_host=127.0.0.1"]).args(arguments);
        (case.to_string(), std::thread::spawn(move || process::run(&mut command)))
    };
    let all: Vec<_> = CASES.iter().map(run).collect();
    let ended = all.into_iter().map(|(case, thread)| (case, thread.join().expect("a case")));
    ended.filter(|(_, it)| it.code != Some(0)).map(|(case, it)| format!("{case}: {}", it.stderr)).collect()
}

#[test]
fn the_interoperability_suite_passes_in_the_clear() {
    let server = Server::start();
    let proxy = Proxy::start(&config(&server));
    assert_eq!(failures(proxy.address("http"), &[]), Vec::<String>::new());
    let stats = proxy.stats();
    assert!(stats.value("cluster.grpc.upstream_rq_total") >= CASES.len() as u64 - 1);
}

#[test]
fn the_interoperability_suite_passes_over_tls() {
    let (server, authority, directory) = (Server::start(), Authority::new("ca"), TempDir::new());
    let identity = authority.issue(&["grpc.test"]);
    let alpn = json!({"common_tls_context": {"alpn_protocols": ["h2"]}});
    let proxy = Proxy::start(&secured(config(&server), &identity, alpn));
    let ca = directory.write("ca.pem", authority.pem());
    let arguments = ["--use_tls", "--use_test_ca", "--server_host_override=grpc.test"].map(str::to_owned);
    let arguments = [&arguments[..], &[format!("--ca_file={}", ca.display())]].concat();
    assert_eq!(failures(proxy.address("http"), &arguments), Vec::<String>::new());
}

fn grpcurl(proxy: &Proxy, method: &str, data: &Value, arguments: &[&str]) -> Finished {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("grpc");
    let mut command = Command::new(go_tool("grpcurl"));
    command.args(["-plaintext", "-max-time", "10", "-import-path"]).arg(schema).args(["-proto", "testing.proto"]);
    command.args(arguments).args(["-d", &data.to_string(), &proxy.address("http").to_string(), method]);
    process::run(&mut command)
}

#[test]
fn grpcurl_calls_and_hears_why_not() {
    let server = Server::start();
    let proxy = Proxy::start(&config(&server));
    let answer = grpcurl(&proxy, "grpc.testing.TestService/UnaryCall", &json!({"responseSize": 5}), &[]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let said: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(said, json!({"payload": {"body": "AAAAAAA="}}));
    let status = json!({"responseStatus": {"code": 5, "message": "no \u{fc}"}});
    let answer = grpcurl(&proxy, "grpc.testing.TestService/UnaryCall", &status, &[]);
    assert_ne!(answer.code, Some(0));
    assert!(answer.stderr.contains("Code: NotFound") && answer.stderr.contains("no \u{fc}"), "{answer:?}");
}

/// Two services that only the proxy answers for.
const OWN: &str = "syntax = \"proto3\"; message None {}\n";

#[test]
fn grpcurl_hears_what_the_proxy_says_itself() {
    let server = Server::start();
    let proxy = Proxy::start(&config(&server));
    let directory = TempDir::new();
    for (package, code, message) in
        [("own", "PermissionDenied", "not ü"), ("empty", "Unavailable", "no healthy upstream")]
    {
        let service = "service Service { rpc Call(None) returns (None); }\n";
        directory.write(&format!("{package}.proto"), format!("{OWN}package {package};\n{service}"));
        let mut command = Command::new(go_tool("grpcurl"));
        command.args(["-plaintext", "-max-time", "10", "-import-path"]).arg(directory.path());
        command.args(["-proto", &format!("{package}.proto"), &proxy.address("http").to_string()]);
        let answer = process::run(command.arg(format!("{package}.Service/Call")));
        let said = |part: &str| answer.stderr.contains(part);
        assert!(said(&format!("Code: {code}")) && said(&format!("Message: {message}")), "{answer:?}");
    }
}
