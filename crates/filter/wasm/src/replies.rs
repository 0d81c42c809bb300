//! The answers that the host gives in a module's place.

use postrider_filter_api::{LocalReply, StreamInfo};

use crate::side::Side;

/// What an answer is called that a failure makes.
const FAILED: &str = "wasm_fail_stream";

/// What a module that closes a stream leaves.
const CLOSED: &str = "wasm_close_stream";

/// What a module answers with. One that calls it nothing is logged so, as in Envoy, whatever was known before.
pub(crate) fn of_module(reply: Box<LocalReply>, info: &mut StreamInfo) -> Box<LocalReply> {
    if reply.details.is_empty() {
        info.details = "".into();
        info.blank_details = true;
    }
    reply
}

/// What a stream gets whose machine failed.
pub(crate) fn failure(status: u16) -> Box<LocalReply> {
    Box::new(LocalReply { status, details: FAILED.into(), ..LocalReply::default() })
}

pub(crate) fn closed() -> Box<LocalReply> {
    // No answer: the stream is cut off.
    Box::new(LocalReply { status: 0, details: CLOSED.into(), ..LocalReply::default() })
}

/// What a stream gets of which a module gathers more than may be held.
pub(crate) fn too_large(side: Side) -> Box<LocalReply> {
    let (status, body, details) = match side {
        Side::Request => (413, &b"Payload Too Large"[..], "request_payload_too_large"),
        Side::Response => (500, &b"Internal Server Error"[..], "response_payload_too_large"),
    };
    Box::new(LocalReply { status, body: body.into(), details: details.into(), ..LocalReply::default() })
}
