//! A processor that looks at requests and answers and changes them, as in Envoy.

mod answers;
mod duplex;
mod failures;
mod flow;
mod messages;
mod modes;

use postrider_grpc::process::common_response::ResponseStatus;
use postrider_grpc::process::processing_response::Response;
use postrider_grpc::process::{CommonResponse, ProcessingResponse};
use postrider_tests::echo;
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, file_access_log, router, upstream_http_options};
use postrider_tests::kit::message::Request;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::processor::Processor;
use serde_json::{Value, json};
use std::net::SocketAddr;

const NAME: &str = "envoy.filters.http.ext_proc";
const KIND: &str = "filters.http.ext_proc.v3.ExternalProcessor";
const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute";

/// A proxy with the filter, which talks to the cluster `processor`.
struct Site {
    proxy: Proxy,
    origin: Origin,
    log: std::path::PathBuf,
    _folder: TempDir,
}

/// The filter with these fields beside its service.
fn fields(more: Value) -> Value {
    let mut fields = json!({"grpc_service": {"envoy_grpc": {"cluster_name": "processor"}}, "message_timeout": "20s"});
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

fn site_with(processor: SocketAddr, origin: Origin, filter: Value, routes: &[Value], listener: Value) -> Site {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(seen:by)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let mut all = routes.to_vec();
    all.push(
        json!({"match": {"path": "/moved"}, "direct_response": {"status": 299, "body": {"inline_string": "moved"}}}),
    );
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}));
    let trailers = json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}});
    let mut http = json!({
        "access_log": [file_access_log(&log, format)],
        "http_protocol_options": {"enable_trailers": true},
        "http_filters": [extension(NAME, KIND, filter), router()],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["test"], "routes": all}]},
    });
    for (key, value) in listener.as_object().unwrap() {
        http[key] = value.clone();
    }
    let config = Config::new().http(http).cluster_with("processor", &[processor], http2()).cluster_with(
        "origin",
        &[origin.address],
        upstream_http_options(trailers),
    );
    Site { proxy: Proxy::start(&config), origin, log, _folder: folder }
}

fn site(processor: &Processor, more: Value) -> Site {
    site_with(processor.address, echo(), fields(more), &[], json!({}))
}

impl Site {
    /// What the log says of the first request.
    fn logged(&self) -> String {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= 1);
        read().lines().next().unwrap().to_owned()
    }

    fn stat(&self, name: &str) -> u64 {
        self.proxy.stats().value(&format!("http.ingress_http.ext_proc.{name}"))
    }

    /// What the origin got.
    fn arrived(&self) -> Request {
        self.origin.wait_requests(1);
        self.origin.requests().remove(0)
    }

    fn post(&self, body: &[u8]) -> postrider_tests::kit::Response {
        let mut client = RawClient::connect(self.proxy.address("http"));
        client.send(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len()));
        client.send(body);
        client.response("POST").unwrap()
    }

    /// In chunks, with a trailer.
    fn post_with_trailer(&self, body: &str) -> postrider_tests::kit::Response {
        let chunks = format!("{:x}\r\n{body}\r\n0\r\nx-trailer: t\r\n\r\n", body.len());
        let head = "POST /up HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-trailer\r\n\r\n";
        let mut client = RawClient::connect(self.proxy.address("http"));
        client.send(format!("{head}{chunks}"));
        client.response("POST").unwrap()
    }
}

/// Bytes that differ everywhere.
fn large(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn continue_and_replace(common: CommonResponse) -> CommonResponse {
    CommonResponse { status: ResponseStatus::ContinueAndReplace.into(), ..common }
}

fn body_answer(kind: char, common: CommonResponse) -> ProcessingResponse {
    let answer = postrider_grpc::process::BodyResponse { response: Some(common) };
    let response = if kind == 'B' { Response::RequestBody(answer) } else { Response::ResponseBody(answer) };
    ProcessingResponse { response: Some(response), ..ProcessingResponse::default() }
}

fn duplex() -> Value {
    json!({"processing_mode": {
        "request_body_mode": "FULL_DUPLEX_STREAMED", "response_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
    }})
}
