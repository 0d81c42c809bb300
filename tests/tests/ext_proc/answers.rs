//! Answers of the processor itself.

use postrider_grpc::core::HttpStatus;
use postrider_grpc::process::processing_response::Response;
use postrider_grpc::process::{CommonResponse, GrpcStatus, ImmediateResponse, ProcessingResponse};
use postrider_tests::kit::RawClient;
use postrider_tests::processor::{Processor, becomes, body, changes, part, plain, with};
use postrider_tests::{ask, envoy};
use serde_json::json;

use crate::site;

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
