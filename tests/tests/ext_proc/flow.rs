//! Slow clients and slow processors.

use postrider_tests::envoy;
use postrider_tests::kit::{Origin, RawClient, wait_until};
use postrider_tests::processor::{Processor, Say, body, part, piece, plain, with};
use serde_json::json;
use std::sync::Arc;

use crate::{fields, large, site, site_with};

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
