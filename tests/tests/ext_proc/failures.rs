//! Conversations that fail, and what counts as a failure.

use postrider_grpc::Duration;
use postrider_grpc::process::{CommonResponse, ProcessingRequest, ProcessingResponse};
use postrider_tests::kit::net;
use postrider_tests::processor::{Processor, Say, changes, part, piece, plain, set, value, with};
use postrider_tests::{ask, envoy};
use serde_json::json;

use crate::{body_answer, duplex, echo, fields, large, site, site_with};

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
