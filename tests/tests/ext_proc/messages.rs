//! Heads, bodies and trailers that are shown and changed.

use postrider_grpc::core::{HeaderValue, HeaderValueOption};
use postrider_grpc::process::body_mutation::Mutation;
use postrider_grpc::process::{BodyMutation, CommonResponse, HeaderMutation};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Proxy, RawClient, TempDir};
use postrider_tests::processor::{Processor, becomes, body, changes, part, piece, plain, set, value, with};
use postrider_tests::{ask, envoy};
use serde_json::json;

use crate::{KIND, NAME, echo, fields, large, site};

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
