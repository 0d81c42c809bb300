//! Bodies that the processor cuts up as it likes, and whole messages of its own.

use postrider_tests::ask;
use postrider_tests::grpc::http2;
use postrider_tests::grpc_origin::{Answer, GrpcOrigin as GrpcService, frame};
use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::processor::{Processor, Say, becomes, body, changes, part, piece, plain, set, value, with};
use serde_json::json;

use crate::{KIND, NAME, body_answer, continue_and_replace, duplex, fields, large, site, site_with};

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
