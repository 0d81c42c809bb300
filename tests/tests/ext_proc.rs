//! A processor that looks at requests and answers and changes them, as in Envoy.

use postrider_grpc::core::{HeaderValue, HeaderValueOption, HttpStatus};
use postrider_grpc::process::body_mutation::Mutation;
use postrider_grpc::process::common_response::ResponseStatus;
use postrider_grpc::process::processing_mode::{BodySendMode, HeaderSendMode};
use postrider_grpc::process::processing_response::Response;
use postrider_grpc::process::{
    BodyMutation, CommonResponse, GrpcStatus, HeaderMutation, ImmediateResponse, ProcessingMode, ProcessingRequest,
    ProcessingResponse,
};
use postrider_grpc::{Any, Duration, Struct, value};
use postrider_tests::grpc::http2;
use postrider_tests::grpc_origin::{Answer, GrpcOrigin as GrpcService, frame};
use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::kit::config::{extension, file_access_log, router, upstream_http_options};
use postrider_tests::kit::message::Request;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::processor::{Processor, Say, becomes, body, changes, part, piece, plain, set, value, with};
use postrider_tests::{ask, envoy};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

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

/// Answers with the body and the trailers of the request; `x-seen` says what the head was like.
fn echo() -> Origin {
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

/// What was said to the processor before it failed is said again; once it has answered, nothing is.
#[test]
fn a_conversation_that_fails_at_once_begins_again_as_the_policy_says() {
    for (failures, want, begun) in [(2, 200, 3), (3, 500, 3)] {
        let talks = std::sync::atomic::AtomicUsize::new(0);
        let processor = Processor::talking(move || {
            let fails = talks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < failures;
            Box::new(move |request| match fails {
                true => vec![Say::End(14, "")],
                false => vec![Say::Answer(plain(request))],
            })
        });
        let policy =
            json!({"retry_on": "unavailable", "num_retries": 2, "retry_back_off": {"base_interval": "0.005s"}});
        let more = json!({"grpc_service": {"envoy_grpc": {"cluster_name": "processor"}, "retry_policy": policy}});
        let site = site(&processor, more);
        assert_eq!(ask(&site.proxy, "GET", "test", "/a", "").status, want);
        let calls = processor.calls();
        assert_eq!(calls.len(), begun);
        assert!(calls.iter().all(|call| call.parts().starts_with('H') && value(&call.requests[0], ":path") == "/a"));
        assert_eq!(site.proxy.stats().value("cluster.processor.upstream_rq_retry"), 2);
    }
    let processor = Processor::start(|request| match part(request) {
        'H' => vec![Say::Answer(plain(request))],
        _ => vec![Say::Reset],
    });
    let policy = json!({"retry_on": "reset", "num_retries": 2, "retry_back_off": {"base_interval": "0.005s"}});
    let more = json!({"grpc_service": {"envoy_grpc": {"cluster_name": "processor"}, "retry_policy": policy}});
    let site = site(&processor, more);
    assert_eq!(ask(&site.proxy, "GET", "test", "/a", "").status, 500);
    assert_eq!(processor.calls().len(), 1);
}

#[test]
fn headers_of_both_messages_are_shown_and_changed() {
    let processor = Processor::answering(|request| match part(request) {
        'H' => with(request, set(&[("x-added", "up"), (":path", "/other"), ("x-envoy-no", "1"), ("host", "no")])),
        _ => with(
            request,
            CommonResponse {
                header_mutation: Some(changes(&[("x-added", "down"), (":status", "201")], &["x-old"])),
                ..CommonResponse::default()
            },
        ),
    });
    let site = site(&processor, json!({}));
    let answer = ask(&site.proxy, "GET", "test", "/a?b", "x-two: 1\r\nx-two: 2\r\n");
    assert_eq!((answer.status, answer.header("x-added"), answer.headers.contains("x-old")), (201, "down", false));
    let arrived = site.arrived();
    assert_eq!((arrived.target.as_str(), arrived.headers.value("x-added")), ("/other", Some("up")));
    assert_eq!(arrived.headers.value("host"), Some("test"));
    assert!(!arrived.headers.contains("x-envoy-no"));
    let heard = processor.only();
    assert_eq!(
        (heard.path.as_str(), heard.parts().as_str()),
        ("/envoy.service.ext_proc.v3.ExternalProcessor/Process", "Hh")
    );
    let told = &heard.requests[0];
    let got = [":method", ":path", ":authority", ":scheme", "x-two"].map(|name| value(told, name));
    assert_eq!(got, ["GET", "/a?b", "test", "http", "1"]);
    assert_eq!(value(&heard.requests[1], ":status"), "200");
    assert!(told.protocol_config.is_some() && heard.requests[1].protocol_config.is_none());
    assert!(told.metadata_context.is_some() && !told.observability_mode);
    assert!(heard.ended || envoy(), "the proxy ends the conversation politely");
    let stats = ["streams_started", "stream_msgs_sent", "stream_msgs_received", "rejected_header_mutations"];
    assert_eq!(stats.map(|name| site.stat(name)), [1, 2, 2, 2]);
    site.proxy.wait_stat("http.ingress_http.ext_proc.streams_closed", 1);
}

#[test]
fn of_the_ways_to_append_only_append_counts() {
    #[allow(deprecated, reason = "in this service it is the field that counts")]
    fn option(key: &str, value: &str, append: Option<bool>, action: i32) -> HeaderValueOption {
        let header = HeaderValue { key: key.into(), raw_value: value.into(), ..HeaderValue::default() };
        HeaderValueOption { header: Some(header), append, append_action: action, ..HeaderValueOption::default() }
    }
    let processor = Processor::answering(|request| match part(request) {
        'H' => {
            let set_headers = vec![
                option("a", "nothing", None, 0),
                option("b", "append", Some(true), 0),
                option("c", "not", Some(false), 0),
                option("d", "absent", None, 1),
                option("e", "overwrite", None, 2),
                option("f", "exists", None, 3),
                option("n1", "new", None, 0),
                option("n2", "new", None, 1),
                option("n3", "new", None, 2),
                option("n4", "new", None, 3),
            ];
            let mutation = HeaderMutation { set_headers, remove_headers: Vec::new() };
            with(request, CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() })
        }
        _ => plain(request),
    });
    let site = site(&processor, json!({}));
    let fields = "a: 0\r\nb: 0\r\nc: 0\r\nd: 0\r\ne: 0\r\nf: 0\r\n";
    assert_eq!(ask(&site.proxy, "GET", "test", "/", fields).status, 200);
    let arrived = site.arrived();
    let got = ["a", "b", "c", "d", "e", "f", "n1", "n2", "n3", "n4"].map(|name| arrived.headers.values(name).join("|"));
    assert_eq!(got, ["nothing", "0|append", "not", "absent", "overwrite", "exists", "new", "new", "new", "new"]);
}

#[test]
fn a_buffered_body_is_replaced_in_both_directions() {
    let processor = Processor::answering(|request| match part(request) {
        'H' | 'h' => with(
            request,
            CommonResponse { header_mutation: Some(changes(&[], &["content-length"])), ..CommonResponse::default() },
        ),
        'B' => {
            let mut common = becomes([b"up:".as_slice(), &body(request).body].concat());
            common.header_mutation = Some(changes(&[("x-late", "yes")], &[]));
            with(request, common)
        }
        _ => with(request, becomes([b"down:".as_slice(), &body(request).body].concat())),
    });
    let modes = json!({"request_body_mode": "BUFFERED", "response_body_mode": "BUFFERED"});
    let site = site(&processor, json!({"processing_mode": modes}));
    let sent = large(200_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    let arrived = site.arrived();
    assert!(arrived.body == [b"up:".as_slice(), &sent].concat(), "{}", arrived.body.len());
    assert_eq!(arrived.headers.value("x-late"), Some("yes"), "headers wait for the body");
    assert!(answer.body == [b"down:up:".as_slice(), &sent].concat(), "{}", answer.body.len());
    let heard = processor.only();
    assert_eq!((heard.parts().as_str(), heard.requests.len()), ("HBhb", 4));
    assert!(body(&heard.requests[1]).end_of_stream && body(&heard.requests[3]).end_of_stream);
}

#[test]
fn a_length_that_is_not_that_of_the_new_body_is_refused() {
    let processor = Processor::answering(|request| match part(request) {
        'B' => with(request, becomes("longer than before")),
        _ => plain(request),
    });
    let site = site(&processor, json!({"processing_mode": {"request_body_mode": "BUFFERED"}}));
    let answer = site.post(b"short");
    assert_eq!((answer.status, answer.body.len()), (500, 0));
    assert_eq!(site.logged(), "500 - mismatch_between_content_length_and_the_length_of_the_mutated_body -");
    assert!(site.origin.requests().is_empty());
}

#[test]
fn a_buffered_body_beyond_the_limit_is_refused() {
    let processor = Processor::answering(plain);
    let modes = json!({"request_body_mode": "BUFFERED"});
    let folder = TempDir::new();
    let config = Config::new()
        .http(json!({
            "http_filters": [extension(NAME, KIND, fields(json!({"processing_mode": modes}))), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .overlay_listener("http", json!({"per_connection_buffer_limit_bytes": 20_000}))
        .cluster_with("processor", &[processor.address], http2())
        .cluster("origin", &[echo().address]);
    let proxy = Proxy::start(&config);
    drop(folder);
    let mut client = RawClient::connect(proxy.address("http"));
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 60000\r\n\r\n");
    let _ = client.try_send(&large(60_000));
    assert_eq!(client.response("POST").unwrap().status, 413);
}

#[test]
fn streamed_bodies_of_megabytes_pass_piece_by_piece() {
    let processor = Processor::answering(plain);
    let modes = json!({"request_body_mode": "STREAMED", "response_body_mode": "STREAMED"});
    let site = site(&processor, json!({"processing_mode": modes}));
    let sent = large(5_000_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert!(answer.body == sent, "{}", answer.body.len());
    assert!(site.arrived().body == sent);
    assert!(!site.arrived().headers.contains("content-length"), "the length is not known before the end");
    let heard = processor.only();
    assert_eq!(heard.parts(), "HBhb");
    assert!(heard.body('B') == sent && heard.body('b') == sent);
    let last = heard.requests.iter().rfind(|request| part(request) == 'B').unwrap();
    assert!(body(last).end_of_stream);
    assert_eq!(value(&heard.requests[0], "content-length"), "5000000");
}

#[test]
fn bodies_travel_without_their_heads() {
    for mode in ["STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"] {
        let processor = Processor::answering(move |request| match part(request) {
            'B' | 'b' if mode == "FULL_DUPLEX_STREAMED" => {
                with(request, piece(body(request).body.clone(), body(request).end_of_stream))
            }
            _ => plain(request),
        });
        let modes = json!({
            "request_header_mode": "SKIP", "response_header_mode": "SKIP",
            "request_body_mode": mode, "response_body_mode": mode,
            "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
        });
        let site = site(&processor, json!({"processing_mode": modes}));
        let sent = large(150_000);
        let answer = site.post(&sent);
        assert_eq!(answer.status, 200, "{mode}");
        assert!(answer.body == sent, "{mode}");
        let heard = processor.only();
        assert_eq!(heard.parts(), "Bb", "{mode}");
        assert!(heard.body('B') == sent && heard.body('b') == sent, "{mode}");
        assert!(heard.requests[0].protocol_config.is_some());
    }
}

#[test]
fn streamed_pieces_are_changed_and_cleared() {
    let processor = Processor::answering(|request| match part(request) {
        'B' if body(request).body.is_empty() => with(request, becomes("!")),
        'B' => with(request, becomes(body(request).body.to_ascii_uppercase())),
        'b' if body(request).body.is_empty() => plain(request),
        'b' => with(
            request,
            CommonResponse {
                body_mutation: Some(BodyMutation { mutation: Some(Mutation::ClearBody(true)) }),
                ..CommonResponse::default()
            },
        ),
        _ => plain(request),
    });
    let modes = json!({"request_body_mode": "STREAMED", "response_body_mode": "STREAMED"});
    let site = site(&processor, json!({"processing_mode": modes}));
    let answer = site.post(b"quiet");
    assert_eq!((answer.status, answer.text()), (200, ""));
    let arrived = String::from_utf8(site.arrived().body).unwrap();
    assert!(arrived.starts_with("QUIET"), "{arrived}");
}

#[test]
fn trailers_are_shown_and_changed() {
    for mode in ["NONE", "BUFFERED", "STREAMED", "BUFFERED_PARTIAL"] {
        let processor = Processor::answering(|request| match part(request) {
            'T' => with(request, set(&[("x-trailer", "up"), ("x-more", "1")])),
            't' => with(request, set(&[("x-trailer", "down")])),
            _ => plain(request),
        });
        let modes = json!({
            "request_body_mode": mode, "response_body_mode": mode,
            "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
        });
        let site = site(&processor, json!({"processing_mode": modes}));
        let answer = site.post_with_trailer("body");
        assert_eq!((answer.status, answer.text()), (200, "body"), "{mode}");
        assert_eq!(site.arrived().trailers.value("x-trailer"), Some("up"), "{mode}");
        assert_eq!(answer.trailers.value("x-trailer"), Some("down"), "{mode}");
        assert_eq!(answer.trailers.value("x-more"), Some("1"), "{mode}");
        let heard = processor.only();
        assert_eq!(heard.parts(), if mode == "NONE" { "HTht" } else { "HBThbt" }, "{mode}");
        let tells = heard.requests.iter().find(|request| part(request) == 'T').unwrap();
        assert_eq!(value(tells, "x-trailer"), "t");
    }
}

#[test]
fn as_much_of_a_body_as_may_be_held_is_shown() {
    let processor = Processor::answering(|request| match part(request) {
        'B' | 'b' => {
            let mut common = becomes([b"<", body(request).body.as_slice(), b">"].concat());
            common.header_mutation = Some(changes(&[("x-late", "yes")], &[]));
            with(request, common)
        }
        _ => plain(request),
    });
    let modes = json!({"request_body_mode": "BUFFERED_PARTIAL", "response_body_mode": "BUFFERED_PARTIAL"});
    let site = site(&processor, json!({"processing_mode": modes}));
    let answer = site.post(b"small");
    assert_eq!((answer.status, answer.text(), answer.header("x-late")), (200, "<<small>>", "yes"));
    assert_eq!(site.arrived().headers.value("x-late"), Some("yes"));
    let heard = processor.only();
    assert!(body(&heard.requests[1]).end_of_stream);

    let sent = large(3_000_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body.len(), sent.len() + 4);
    let heard = processor.calls().remove(1);
    let shown: Vec<_> = heard.requests.iter().filter(|request| part(request) == 'B').collect();
    assert_eq!(shown.len(), 1);
    assert!(!body(shown[0]).end_of_stream);
    let length = body(shown[0]).body.len();
    assert!((200_000..sent.len()).contains(&length), "{length}");
    assert!(sent.starts_with(&body(shown[0]).body));
    let mut want = b"<".to_vec();
    want.extend_from_slice(&sent[..length]);
    want.push(b'>');
    want.extend_from_slice(&sent[length..]);
    assert!(site.origin.requests()[1].body == want);
}

/// Pieces of the processor's own size, late, from what it has heard.
fn reframing() -> Processor {
    Processor::talking(|| {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        Box::new(move |request| {
            let held = match part(request) {
                'H' | 'h' => return vec![Say::Answer(plain(request))],
                'T' | 't' => {
                    let held = if part(request) == 'T' { &mut up } else { &mut down };
                    let kind = if part(request) == 'T' { 'B' } else { 'b' };
                    let mut said = vec![Say::Answer(body_answer(kind, piece(std::mem::take(held), false)))];
                    said.push(Say::Answer(with(request, set(&[("x-trailer", "mine")]))));
                    return said;
                }
                'B' => &mut up,
                _ => &mut down,
            };
            held.extend_from_slice(&body(request).body);
            let mut said = Vec::new();
            while held.len() >= 70_000 {
                let rest = held.split_off(70_000);
                said.push(Say::Answer(with(request, piece(std::mem::replace(held, rest), false))));
            }
            if body(request).end_of_stream {
                said.push(Say::Answer(with(request, piece(std::mem::take(held), true))));
            }
            said
        })
    })
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

#[test]
fn bodies_of_megabytes_in_pieces_of_the_processors_own() {
    let processor = reframing();
    let site = site(&processor, duplex());
    let sent = large(5_000_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert!(answer.body == sent, "{}", answer.body.len());
    assert!(site.arrived().body == sent);
    let heard = processor.only();
    assert!(heard.body('B') == sent && heard.body('b') == sent);
}

#[test]
fn a_processor_may_wait_for_everything_before_it_lets_the_head_go() {
    let processor = Processor::talking(|| {
        let mut first = None;
        let mut held = Vec::new();
        Box::new(move |request| match part(request) {
            'H' => {
                first = Some(request.clone());
                Vec::new()
            }
            'B' => {
                held.extend_from_slice(&body(request).body);
                if !body(request).end_of_stream {
                    return Vec::new();
                }
                let length = held.len().to_string();
                let head = with(&first.take().unwrap(), set(&[("x-length", &length)]));
                let middle = held.split_off(held.len() / 2);
                let half = std::mem::take(&mut held);
                vec![
                    Say::Answer(head),
                    Say::Answer(with(request, piece(half, false))),
                    Say::Answer(with(request, piece(middle, false))),
                    Say::Answer(with(request, piece("", true))),
                ]
            }
            'b' => vec![Say::Answer(with(request, piece(body(request).body.clone(), body(request).end_of_stream)))],
            _ => vec![Say::Answer(plain(request))],
        })
    });
    let site = site(&processor, duplex());
    let sent = large(600_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert!(answer.body == sent);
    assert_eq!(site.arrived().headers.value("x-length"), Some("600000"));
}

#[test]
fn trailers_follow_what_the_processor_makes_of_the_body() {
    let processor = reframing();
    let site = site(&processor, duplex());
    let answer = site.post_with_trailer("some body");
    assert_eq!((answer.status, answer.text()), (200, "some body"));
    assert_eq!(site.arrived().trailers.value("x-trailer"), Some("mine"));
    assert_eq!(answer.trailers.value("x-trailer"), Some("mine"));
    assert_eq!(processor.only().parts(), "HBThbt");
}

#[test]
fn calls_of_grpc_keep_their_messages_and_their_status() {
    for mode in ["STREAMED", "FULL_DUPLEX_STREAMED"] {
        let processor = Processor::answering(move |request| match part(request) {
            'B' | 'b' if mode == "FULL_DUPLEX_STREAMED" => {
                with(request, piece(body(request).body.clone(), body(request).end_of_stream))
            }
            't' => with(request, set(&[("x-more", "yes")])),
            _ => plain(request),
        });
        let origin = GrpcService::start(|call| Answer::messages(call.messages.clone()).status(5, "not there"));
        let modes = json!({
            "request_body_mode": mode, "response_body_mode": mode,
            "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
        });
        let config = Config::new()
            .http(json!({
                "codec_type": "HTTP2",
                "http_filters": [extension(NAME, KIND, fields(json!({"processing_mode": modes}))), router()],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
                ]}]},
            }))
            .cluster_with("processor", &[processor.address], http2())
            .cluster_with("origin", &[origin.address], http2());
        let proxy = Proxy::start(&config);
        let mut client = H2Client::connect(proxy.address("http"));
        let messages = [large(700_000), Vec::new(), b"last".to_vec()];
        let sent: Vec<u8> = messages.iter().flat_map(|message| frame(message)).collect();
        let head = request("POST", "/p.S/M").header("content-type", "application/grpc").header("te", "trailers");
        let answer = client.exchange(head.body(()).unwrap(), &sent);
        assert_eq!(answer.status, 200, "{mode}");
        assert!(answer.body == sent, "{mode}: {}", answer.body.len());
        let trailer = |name: &str| answer.trailers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((trailer("grpc-status"), trailer("x-more")), (Some("5".into()), Some("yes".into())), "{mode}");
        assert!(origin.last().messages == messages, "{mode}");
        let heard = processor.only();
        assert_eq!(heard.parts(), "HBhbt", "{mode}");
        assert_eq!(value(heard.requests.last().unwrap(), "grpc-status"), "5", "{mode}");
    }
}

#[test]
fn a_length_stays_where_only_trailers_are_asked_for() {
    let processor = Processor::answering(plain);
    let modes = json!({"request_trailer_mode": "SEND", "response_trailer_mode": "SEND"});
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
    let site = site_with(processor.address, origin, fields(json!({"processing_mode": modes})), &[], json!({}));
    let answer = site.post(b"body");
    assert_eq!((answer.text(), answer.header("content-length")), ("done", "4"));
    assert_eq!(site.arrived().headers.value("content-length"), Some("4"));
}

#[test]
fn a_message_is_replaced_whole() {
    let processor = Processor::answering(|request| match part(request) {
        'H' => {
            let mut common = continue_and_replace(becomes("another body"));
            common.header_mutation = Some(changes(&[(":method", "PUT"), ("content-type", "text/x")], &[]));
            with(request, common)
        }
        'h' => with(request, continue_and_replace(becomes("another answer"))),
        _ => plain(request),
    });
    let modes = json!({"request_body_mode": "STREAMED", "response_body_mode": "BUFFERED"});
    let site = site(&processor, json!({"processing_mode": modes}));
    let answer = site.post(&large(200_000));
    assert_eq!((answer.status, answer.text()), (200, "another answer"));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").text(), "another answer");
    for arrived in site.origin.requests() {
        assert_eq!((arrived.method.as_str(), String::from_utf8_lossy(&arrived.body)), ("PUT", "another body".into()));
    }
    assert_eq!(processor.only().parts(), "Hh", "nothing more of a replaced message is shown");
}

fn immediate(status: i32) -> ProcessingResponse {
    let said = ImmediateResponse {
        status: Some(HttpStatus { code: status }),
        headers: Some(changes(&[("x-why", "because")], &[])),
        body: b"not today".to_vec(),
        grpc_status: None,
        details: "said so itself".into(),
    };
    ProcessingResponse { response: Some(Response::ImmediateResponse(said)), ..ProcessingResponse::default() }
}

#[test]
fn the_processor_answers_itself_in_each_phase() {
    for phase in ['H', 'B', 'T', 'h', 'b', 't'] {
        let processor =
            Processor::answering(move |request| if part(request) == phase { immediate(418) } else { plain(request) });
        let modes = json!({
            "request_body_mode": "BUFFERED", "response_body_mode": "BUFFERED",
            "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
        });
        let site = site(&processor, json!({"processing_mode": modes}));
        let answer = site.post_with_trailer("body");
        assert_eq!((answer.status, answer.text(), answer.header("x-why")), (418, "not today", "because"), "{phase}");
        assert_eq!(site.logged(), "418 - said_so_itself -", "{phase}");
        assert_eq!(site.origin.requests().len(), usize::from(phase.is_lowercase()), "{phase}");
        assert_eq!(site.stat("immediate_responses_sent"), 1, "{phase}");
        assert!(processor.only().parts().ends_with(phase), "{phase}");
    }
}

#[test]
fn an_answer_that_has_begun_is_cut_off() {
    let processor = Processor::answering(|request| if part(request) == 'b' { immediate(418) } else { plain(request) });
    let site = site(&processor, json!({"processing_mode": {"response_body_mode": "STREAMED"}}));
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody");
    let head = client.response_head("POST").unwrap();
    if envoy() && head.status == 418 {
        // There, what comes together with the head is held until the head is answered.
        return;
    }
    assert_eq!(head.status, 200);
    let rest = client.read_to_end().unwrap_or_default();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
}

#[test]
fn an_answer_that_is_not_to_be_is_a_failure() {
    let processor = Processor::answering(|_| immediate(418));
    let site = site(&processor, json!({"disable_immediate_response": true}));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 500);
    assert_eq!(site.logged(), "500 - unhandled_immediate_response_due_to_config_disabled_it -");
    assert_eq!(site.stat("spurious_msgs_received"), 1);
}

#[test]
fn grpc_clients_are_told_in_grpc() {
    let processor = Processor::answering(|_| {
        let said = ImmediateResponse {
            status: Some(HttpStatus { code: 403 }),
            grpc_status: Some(GrpcStatus { status: 7 }),
            ..ImmediateResponse::default()
        };
        ProcessingResponse { response: Some(Response::ImmediateResponse(said)), ..ProcessingResponse::default() }
    });
    let site = site(&processor, json!({}));
    let answer = ask(&site.proxy, "POST", "test", "/p.S/M", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!((answer.status, answer.header("grpc-status")), (200, "7"));
}

#[test]
fn an_answer_that_is_late_is_a_failure_unless_that_is_allowed() {
    for allowed in [false, true] {
        let processor = Processor::start(|_| Vec::new());
        let site = site(&processor, json!({"message_timeout": "0.05s", "failure_mode_allow": allowed}));
        let answer = ask(&site.proxy, "GET", "test", "/", "");
        assert_eq!(answer.status, if allowed { 200 } else { 504 });
        let details =
            if allowed { "200 - via_upstream -" } else { "504 - ext_proc_error_per-message_timeout_exceeded -" };
        assert_eq!(site.logged(), details);
        let stats = ["message_timeouts", "failure_mode_allowed", "streams_closed", "streams_failed"];
        assert_eq!(stats.map(|name| site.stat(name)), [1, u64::from(allowed), 1, 0]);
        let heard = processor.only();
        assert_eq!(heard.parts(), "H");
    }
}

#[test]
fn a_processor_may_ask_for_more_time() {
    let processor = Processor::talking(|| {
        let mut asked = false;
        Box::new(move |request| {
            if std::mem::replace(&mut asked, true) {
                return vec![Say::Answer(plain(request))];
            }
            // Nothing but the second wish fits.
            let wish = |seconds, nanos| {
                let time = Some(Duration { seconds, nanos });
                Say::Answer(ProcessingResponse { override_message_timeout: time, ..ProcessingResponse::default() })
            };
            vec![wish(60, 0), wish(0, 300_000_000), wish(0, 200_000_000)]
        })
    });
    let site = site(&processor, json!({"message_timeout": "1s", "max_message_timeout": "2s"}));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 504);
    let stats = ["override_message_timeout_received", "override_message_timeout_ignored"];
    assert_eq!(stats.map(|name| site.stat(name)), [1, 2]);
}

#[test]
fn a_conversation_that_fails_is_a_failure_unless_that_is_allowed() {
    for allowed in [false, true] {
        let processor = Processor::start(|_| vec![Say::End(13, "went wrong")]);
        let site = site(&processor, json!({"failure_mode_allow": allowed}));
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, if allowed { 200 } else { 500 });
        let details = if allowed {
            "200 - via_upstream -"
        } else {
            "500 - ext_proc_error_gRPC_error_13{went_wrong{via_upstream}} -"
        };
        assert_eq!(site.logged(), details);
        let stats = ["streams_failed", "failure_mode_allowed", "streams_closed", "streams_started"];
        assert_eq!(stats.map(|name| site.stat(name)), [1, u64::from(allowed), u64::from(allowed), 1]);
    }
}

#[test]
fn a_processor_that_is_away_is_a_failure() {
    let nobody = net::refusing_address();
    let site = site_with(nobody, echo(), fields(json!({"status_on_error": {"code": "BadGateway"}})), &[], json!({}));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 502);
    let logged = site.logged();
    assert!(logged.starts_with("502 - ext_proc_error_gRPC_error_14{"), "{logged}");
}

#[test]
fn a_processor_that_ends_well_has_no_further_part() {
    let processor = Processor::start(|request| match part(request) {
        'H' => vec![Say::Answer(with(request, set(&[("x-added", "up")]))), Say::End(0, "")],
        _ => vec![Say::Reset],
    });
    let modes = json!({"request_body_mode": "STREAMED", "response_body_mode": "STREAMED"});
    let site = site(&processor, json!({"processing_mode": modes}));
    let sent = large(400_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert!(answer.body == sent);
    assert_eq!(site.arrived().headers.value("x-added"), Some("up"));
    assert_eq!(["streams_closed", "streams_failed"].map(|name| site.stat(name)), [1, 0]);
}

#[test]
fn what_nobody_asked_for_is_a_failure_unless_that_is_allowed() {
    for allowed in [false, true] {
        let processor = Processor::answering(|request| match part(request) {
            'H' => body_answer('B', CommonResponse::default()),
            _ => plain(request),
        });
        let site = site(&processor, json!({"failure_mode_allow": allowed}));
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, if allowed { 200 } else { 500 });
        assert_eq!(site.logged(), if allowed { "200 - via_upstream -" } else { "500 - spurious_message -" });
        let stats = ["spurious_msgs_received", "stream_msgs_received", "failure_mode_allowed", "streams_closed"];
        assert_eq!(stats.map(|name| site.stat(name)), [1, 0, u64::from(allowed), 1]);
    }
}

#[test]
fn the_kind_of_answer_must_be_that_of_the_mode() {
    let processor = Processor::answering(|request| match part(request) {
        'B' => with(request, piece("x", true)),
        _ => plain(request),
    });
    let streamed = site(&processor, json!({"processing_mode": {"request_body_mode": "STREAMED"}}));
    let answer = streamed.post(&large(2_000_000));
    // There, a body that is all here with the headers is sent whole, and this answer to it says nothing.
    if !envoy() {
        assert_eq!((answer.status, streamed.stat("spurious_msgs_received")), (500, 1));
    }
    let processor = Processor::answering(plain);
    let full = site(&processor, duplex());
    let _ = full.post(b"body");
    assert_eq!(full.stat("spurious_msgs_received"), 1);
}

#[test]
fn rules_say_which_headers_may_change_and_whether_more_is_an_error() {
    let change = |request: &ProcessingRequest| match part(request) {
        'H' => with(request, set(&[("x-no", "1"), ("x-yes", "1"), (":method", "POST"), ("x-envoy-a", "1")])),
        _ => plain(request),
    };
    let processor = Processor::answering(change);
    let rules = json!({"allow_all_routing": true, "allow_envoy": true, "disallow_expression": {"regex": "x-no"}});
    let open = site(&processor, json!({"mutation_rules": rules}));
    assert_eq!(ask(&open.proxy, "GET", "test", "/", "").status, 200);
    let arrived = open.arrived();
    let got = ["x-no", "x-yes", "x-envoy-a"].map(|name| arrived.headers.contains(name));
    assert_eq!((arrived.method.as_str(), got), ("POST", [false, true, true]));
    let strict = site(
        &processor,
        json!({"mutation_rules": {"disallow_expression": {"regex": "x-no"}, "disallow_is_error": true}}),
    );
    assert_eq!(ask(&strict.proxy, "GET", "test", "/", "").status, 500);
    assert_eq!(strict.logged(), "500 - header_mutation_set_headers_failed -");
    assert_eq!(strict.stat("rejected_header_mutations"), 1);
}

#[test]
fn what_cannot_be_a_header_is_an_error() {
    for (set, remove, details) in [
        (&[("a b", "1")][..], &[][..], "header_mutation_set_contains_invalid_character"),
        (&[("a", "1\r\nb: 2")][..], &[][..], "header_mutation_set_contains_invalid_character"),
        (&[][..], &["a b"][..], "header_mutation_remove_contains_invalid_character"),
    ] {
        let processor = Processor::answering(move |request| match part(request) {
            'H' => with(
                request,
                CommonResponse { header_mutation: Some(changes(set, remove)), ..CommonResponse::default() },
            ),
            _ => plain(request),
        });
        let site = site(&processor, json!({}));
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 500, "{set:?}");
        assert_eq!(site.logged(), format!("500 - {details} -"), "{set:?} {remove:?}");
    }
}

#[test]
fn the_route_is_chosen_again_when_the_processor_or_the_configuration_says_so() {
    for (more, clear, want) in [
        (json!({}), true, 299),
        (json!({}), false, 200),
        (json!({"route_cache_action": "CLEAR"}), false, 299),
        (json!({"route_cache_action": "RETAIN"}), true, 200),
        (json!({"disable_clear_route_cache": true}), true, 200),
    ] {
        let processor = Processor::answering(move |request| match part(request) {
            'H' => with(request, CommonResponse { clear_route_cache: clear, ..set(&[(":path", "/moved")]) }),
            _ => plain(request),
        });
        let site = site(&processor, more.clone());
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, want, "{more} {clear}");
        let disabled = u64::from(want == 200 && clear);
        assert_eq!(site.stat("clear_route_cache_disabled"), disabled, "{more}");
    }
}

#[test]
fn a_processor_chooses_other_modes_where_that_is_allowed() {
    let wish = ProcessingMode {
        request_body_mode: BodySendMode::Buffered.into(),
        response_header_mode: HeaderSendMode::Skip.into(),
        ..ProcessingMode::default()
    };
    let buffered = json!({"request_body_mode": "BUFFERED", "response_header_mode": "SKIP"});
    for (more, parts) in [
        (json!({}), "Hh"),
        (json!({"allow_mode_override": true}), "HB"),
        (json!({"allow_mode_override": true, "allowed_override_modes": [buffered]}), "HB"),
        (json!({"allow_mode_override": true, "allowed_override_modes": [{"request_body_mode": "STREAMED"}]}), "Hh"),
    ] {
        let processor = Processor::answering(move |request| {
            let mode_override = (part(request) == 'H').then_some(wish);
            ProcessingResponse { mode_override, ..plain(request) }
        });
        let site = site(&processor, more.clone());
        assert_eq!(site.post(b"body").text(), "body");
        assert_eq!(processor.only().parts(), parts, "{more}");
    }
}

#[test]
fn routes_say_otherwise() {
    let processor = Processor::answering(plain);
    let other = Processor::answering(|request| match part(request) {
        'H' => with(request, set(&[("x-other", "1")])),
        _ => plain(request),
    });
    let per_route = |path: &str, says: Value| {
        let mut config = json!({"@type": PER_ROUTE});
        for (key, value) in says.as_object().unwrap() {
            config[key] = value.clone();
        }
        json!({
            "match": {"path": path},
            "route": {"cluster": "origin"},
            "typed_per_filter_config": {NAME: config},
        })
    };
    let metadata = json!([{"key": "x-meta", "value": "route"}]);
    let routes = [
        per_route("/off", json!({"disabled": true})),
        per_route("/modes", json!({"overrides": {"processing_mode": {"response_header_mode": "SKIP"}}})),
        per_route("/meta", json!({"overrides": {"grpc_initial_metadata": metadata}})),
        per_route(
            "/other",
            json!({"overrides": {
                "grpc_service": {"envoy_grpc": {"cluster_name": "other"}}, "failure_mode_allow": true,
            }}),
        ),
    ];
    let origin = echo();
    let config = Config::new()
        .http(json!({
            "http_filters": [extension(NAME, KIND, fields(json!({}))), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster_with("processor", &[processor.address], http2())
        .cluster_with("other", &[other.address], http2())
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(ask(&proxy, "GET", "test", "/off", "").status, 200);
    assert!(processor.calls().is_empty());
    assert_eq!(ask(&proxy, "GET", "test", "/modes", "").status, 200);
    assert_eq!(processor.only().parts(), "H");
    assert_eq!(ask(&proxy, "GET", "test", "/meta", "").status, 200);
    assert_eq!(processor.calls()[1].metadata.value("x-meta"), Some("route"));
    assert_eq!(ask(&proxy, "GET", "test", "/other", "").status, 200);
    assert_eq!(origin.requests()[3].headers.value("x-other"), Some("1"));
}

#[test]
fn a_processor_that_only_watches_holds_nothing_up() {
    let processor = Processor::start(|_| Vec::new());
    let modes = json!({
        "request_body_mode": "STREAMED", "response_body_mode": "STREAMED",
        "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
    });
    let more = json!({"observability_mode": true, "processing_mode": modes, "message_timeout": "0.01s"});
    let site = site(&processor, more);
    let sent = large(1_000_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert!(answer.body == sent);
    wait_until("all of the answer's body", || {
        let calls = processor.calls();
        calls.first().is_some_and(|heard| heard.body('b').len() == sent.len())
    });
    let heard = processor.calls().remove(0);
    assert!(heard.requests.iter().all(|request| request.observability_mode && request.protocol_config.is_none()));
    assert!(heard.body('B') == sent && heard.body('b') == sent);
    assert_eq!(site.stat("stream_msgs_received"), 0);
}

#[test]
fn attributes_and_metadata_are_told_and_left() {
    let processor = Processor::answering(|request| {
        let text = value::Kind::StringValue("processor".into());
        let inner = Struct { fields: [("by".to_owned(), postrider_grpc::value_of(text))].into() };
        let noted = |name: &str| (name.to_owned(), postrider_grpc::value_of(value::Kind::StructValue(inner.clone())));
        let said = Struct { fields: [noted("seen"), noted("other")].into() };
        let message = Any { type_url: "x.test/own.Type".into(), value: vec![8, 1] };
        let typed = ["typed", "other"].map(|name| (name.to_owned(), message.clone()));
        ProcessingResponse { dynamic_metadata: Some(said), typed_dynamic_metadata: typed.into(), ..plain(request) }
    });
    let site = site(
        &processor,
        json!({
            "request_attributes": ["request.path", "request.method", "request.size", "source.address", "xds.route_name"],
            "response_attributes": ["response.code"],
            "metadata_options": {
                "receiving_namespaces": {"untyped": ["seen"], "typed": ["typed"]},
                "forwarding_namespaces": {"untyped": ["seen"], "typed": ["typed", "other"]},
            },
        }),
    );
    assert_eq!(ask(&site.proxy, "GET", "test", "/a", "").status, 200);
    assert_eq!(site.logged(), "200 - via_upstream processor");
    let heard = processor.only();
    let told = |index: usize| {
        let fields = &heard.requests[index].attributes[NAME].fields;
        fields.iter().map(|(name, value)| (name.clone(), value.kind.clone().unwrap())).collect::<Vec<_>>()
    };
    let text = |text: &str| value::Kind::StringValue(text.into());
    let request = told(0);
    assert_eq!(request[0], ("request.method".to_owned(), text("GET")));
    assert_eq!(request[1], ("request.path".to_owned(), text("/a")));
    assert_eq!(request[2], ("request.size".to_owned(), value::Kind::NumberValue(0.0)));
    assert_eq!(told(1), [("response.code".to_owned(), value::Kind::NumberValue(200.0))]);
    let known =
        |index: usize| heard.requests[index].metadata_context.as_ref().unwrap().filter_metadata.contains_key("seen");
    assert!(!known(0) && known(1));
    let messages = |index: usize| heard.requests[index].metadata_context.clone().unwrap().typed_filter_metadata;
    assert!(messages(0).is_empty());
    let told: Vec<_> = messages(1).into_iter().map(|(name, it)| (name, it.type_url, it.value)).collect();
    assert_eq!(told, [("typed".to_owned(), "x.test/own.Type".to_owned(), vec![8, 1])]);
}

#[test]
fn rules_say_which_headers_are_shown() {
    let processor = Processor::answering(plain);
    let rules = json!({
        "allowed_headers": {"patterns": [{"prefix": ":"}, {"prefix": "x-"}]},
        "disallowed_headers": {"patterns": [{"exact": "x-secret"}]},
    });
    let site = site(&processor, json!({"forward_rules": rules}));
    let fields = "x-public: 1\r\nx-secret: 1\r\nother: 1\r\n";
    assert_eq!(ask(&site.proxy, "GET", "test", "/", fields).status, 200);
    let heard = processor.only();
    let got = [":path", "x-public", "x-secret", "other"].map(|name| value(&heard.requests[0], name));
    assert_eq!(got, ["/", "1", "", ""]);
    assert_eq!(site.arrived().headers.value("x-secret"), Some("1"));
}

#[test]
fn a_body_need_not_wait_for_the_answer_to_the_headers() {
    let processor = Processor::talking(|| {
        let mut first = None;
        Box::new(move |request| match part(request) {
            'H' => {
                first = Some(request.clone());
                Vec::new()
            }
            'B' => {
                let mut said: Vec<Say> =
                    first.take().map(|head| Say::Answer(with(&head, set(&[("x-a", "1")])))).into_iter().collect();
                said.push(Say::Answer(plain(request)));
                said
            }
            _ => vec![Say::Answer(plain(request))],
        })
    });
    let more = json!({
        "processing_mode": {"request_body_mode": "STREAMED"}, "send_body_without_waiting_for_header_response": true,
    });
    let site = site(&processor, more);
    let sent = large(500_000);
    assert!(site.post(&sent).body == sent);
    assert_eq!(site.arrived().headers.value("x-a"), Some("1"));
    assert!(
        processor.only().requests[0].protocol_config.as_ref().unwrap().send_body_without_waiting_for_header_response
    );
}

#[test]
fn answers_of_the_proxys_own_are_shown_too() {
    let processor = Processor::answering(|request| match part(request) {
        'b' => with(request, becomes([b"<", body(request).body.as_slice(), b">"].concat())),
        'h' => with(
            request,
            CommonResponse { header_mutation: Some(changes(&[], &["content-length"])), ..CommonResponse::default() },
        ),
        _ => plain(request),
    });
    for mode in ["BUFFERED", "STREAMED", "BUFFERED_PARTIAL"] {
        let site = site(&processor, json!({"processing_mode": {"response_body_mode": mode}}));
        let answer = ask(&site.proxy, "GET", "test", "/moved", "");
        assert_eq!(answer.status, 299, "{mode}");
        assert!(answer.text().starts_with("<moved>"), "{mode}: {}", answer.text());
    }
}

#[test]
fn a_slow_client_slows_the_processor_and_the_origin_down() {
    let processor = Processor::answering(|request| match part(request) {
        'b' => with(request, piece(body(request).body.clone(), body(request).end_of_stream)),
        _ => plain(request),
    });
    let length: usize = 48 << 20;
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes());
            let piece = large(1 << 20);
            for _ in 0..length >> 20 {
                if !connection.write(&piece) {
                    return;
                }
            }
        }
    });
    let modes = json!({"response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND"});
    let site = site_with(processor.address, origin, fields(json!({"processing_mode": modes})), &[], json!({}));
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let head = client.response_head("GET").unwrap();
    // Nothing is read: what the processor has heard comes to rest long before the end.
    let (mut last, mut still) = (0, 0);
    wait_until("nothing to move any more", || {
        let now = processor.messages();
        still = if now == last && now > 2 { still + 1 } else { 0 };
        last = now;
        still > 20
    });
    let heard = processor.calls()[0].body('b').len();
    assert!(heard < 40 << 20, "{heard}");
    let mut count = 0;
    client.body(&head, &mut |bytes| count += bytes.len()).unwrap();
    assert_eq!(count, length);
}

#[test]
fn a_slow_processor_slows_the_client_down() {
    if envoy() {
        // What Envoy holds meanwhile is a matter of its watermarks.
        return;
    }
    for mode in ["STREAMED", "FULL_DUPLEX_STREAMED"] {
        let patience = Arc::new(tokio::sync::Semaphore::new(1));
        let echoes = mode != "STREAMED";
        let processor = Processor::serving(
            move || {
                Box::new(move |request| {
                    let answer = match part(request) {
                        'B' if echoes => with(request, piece(body(request).body.clone(), body(request).end_of_stream)),
                        _ => plain(request),
                    };
                    vec![Say::Answer(answer)]
                })
            },
            patience.clone(),
        );
        let modes = json!({
            "request_body_mode": mode, "request_trailer_mode": "SEND", "response_header_mode": "SKIP",
        });
        let site = site(&processor, json!({"processing_mode": modes}));
        let sent = large(24 << 20);
        let address = site.proxy.address("http");
        let before = site.proxy.resident_kib();
        let sending = std::thread::spawn({
            let sent = sent.clone();
            move || {
                let mut client = RawClient::connect(address);
                client.send(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", sent.len()));
                client.send(&sent);
                client.response("POST").unwrap()
            }
        });
        processor.wait_messages(1);
        // The client's bytes go no further than the proxy's buffers.
        let count = || site.proxy.stats().value("http.ingress_http.downstream_cx_rx_bytes_total");
        let mut last = 0;
        wait_until("nothing to move any more", || {
            let now = count();
            let still = now == last && now > 0;
            last = now;
            still
        });
        assert!(last < 12 << 20, "{mode}: {last}");
        assert!(site.proxy.resident_kib() < before + (16 << 10), "{mode}");
        patience.add_permits(1 << 20);
        let answer = sending.join().unwrap();
        assert_eq!(answer.status, 200, "{mode}");
        assert!(answer.body == sent, "{mode}");
    }
}
