//! Answers of the script's own, and calls to other clusters.

use std::ffi::{c_char, c_double, c_int};
use std::time::Duration;

use postrider_filter_api::{Call, CallFailure, CallTrace, LocalReply};
use postrider_http::{HeaderId, RequestHead};

use super::text::take;
use super::turn::with;
use super::{INVALID, LIMIT, NO_CLUSTER, NOT_HERE, OK};

/// The largest body of an answer or a call that a script may give: what a script holds is bounded by its machine.
const MAX_BODY: usize = 64 << 20;

/// What a call takes beside its head and its body, about.
const CALL: usize = 1024;

/// A call that a script is putting together.
#[derive(Default)]
pub(crate) struct CallRequest {
    pub(crate) head: RequestHead,
    cluster: Vec<u8>,
}

/// Begins an answer; its fields are added to map 5.
pub(super) unsafe extern "C" fn respond_begin(status: c_int) -> c_int {
    with(|turn| {
        let Ok(status @ 200..=599) = u16::try_from(status) else { return INVALID };
        turn.scratch.reply =
            Some(Box::new(LocalReply { status, details: turn.plugin.reply_details.clone(), ..LocalReply::default() }));
        OK
    })
}

/// Gives the answer its body; the script then yields and does not come back.
pub(super) unsafe extern "C" fn respond_end(body: *const c_char, length: usize) -> c_int {
    with(|turn| {
        if length > MAX_BODY {
            return LIMIT;
        }
        let Some(reply) = turn.scratch.reply.take() else { return NOT_HERE };
        // SAFETY: the SDK passes a Lua string with its length, or null.
        let body = unsafe { take(body, length) };
        turn.script.kept_here().reply = Some(Box::new(LocalReply { body: body.to_vec().into(), ..*reply }));
        OK
    })
}

/// Begins a call; its fields, pseudo ones included, are added to map 6.
pub(super) unsafe extern "C" fn begin(cluster: *const c_char, length: usize) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let cluster = unsafe { take(cluster, length) };
        if let Some(allowed) = &turn.plugin.facts.policy.clusters
            && !allowed.iter().any(|name| name.as_bytes() == cluster)
        {
            return NO_CLUSTER;
        }
        turn.scratch.call.head.clear();
        // Without these three nothing can be sent: absent until the script names them.
        turn.scratch.call.cluster.clear();
        turn.scratch.call.cluster.extend_from_slice(cluster);
        OK
    })
}

/// Sends the call. With `asynchronous` nobody hears the outcome; otherwise the script yields and is resumed with it.
/// `timeout` in milliseconds; 0 is none. Of its span, `told` says whether it is told: 1 and 0, or -1 for as its request's is.
pub(super) unsafe extern "C" fn send(
    text: *const c_char,
    length: usize,
    timeout: c_double,
    asynchronous: c_int,
    told: c_int,
) -> c_int {
    with(|turn| {
        let Some(stream) = &mut turn.stream else { return NOT_HERE };
        if length > MAX_BODY {
            return LIMIT;
        }
        // SAFETY: the SDK passes a Lua string with its length, or null.
        let body = unsafe { take(text, length) };
        let request = std::mem::take(&mut turn.scratch.call);
        let mut head = request.head;
        if head.path().is_empty() || head.authority().is_empty() || head.method_bytes().is_empty() {
            return INVALID;
        }
        if !text.is_null() {
            // Digits are a valid value.
            let _ = head.fields.set(HeaderId::ContentLength, postrider_http::Decimal::new(length as u64).as_bytes());
        }
        let Ok(timeout) = Duration::try_from_secs_f64(timeout / 1000.0) else { return INVALID };
        // Whoever waits for nothing may make calls faster than they are sent.
        let bytes = body.len() + head.fields.byte_len() + CALL;
        let lent = match &*turn.plugin.known_machine() {
            Some(machine) => match machine.vm.lend(bytes) {
                Some(lent) => Some(lent),
                None => return LIMIT,
            },
            None => None,
        };
        let waiting = asynchronous == 0;
        let inbox = turn.script.kept_here().inbox.get_or_insert_default().clone();
        let resumer = stream.resumer.clone();
        let call = Call {
            cluster: String::from_utf8_lossy(&request.cluster).into(),
            head,
            body: body.to_vec(),
            timeout: Some(timeout).filter(|timeout| !timeout.is_zero()),
            trace: stream.info.span().map(|parent| CallTrace {
                parent,
                is_told: (told >= 0).then_some(told == 1),
                has_span: true,
            }),
            retries: None,
            done: Box::new(move |outcome| {
                drop(lent);
                if waiting {
                    inbox.set(Some(outcome));
                    resumer.resume();
                }
            }),
        };
        match stream.host.call(call) {
            Err(_) => NO_CLUSTER,
            Ok(handle) if waiting => {
                turn.script.kept_here().call = Some(handle);
                OK
            }
            Ok(handle) => {
                handle.detach();
                OK
            }
        }
    })
}

/// How the last call ended: 0 with an answer (map 4, body 2), 1 without one, 2 too late, 3 with what is no HTTP.
pub(super) unsafe extern "C" fn outcome() -> c_int {
    with(|turn| match turn.script.answer() {
        Some(Ok(_)) => 0,
        Some(Err(CallFailure::Upstream)) => 1,
        Some(Err(CallFailure::Timeout)) => 2,
        Some(Err(CallFailure::Malformed)) => 3,
        None => NOT_HERE,
    })
}
