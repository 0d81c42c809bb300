//! What is known about a stream, and what else Go code changes about it.

use std::ffi::{c_int, c_void};
use std::ptr;

use postrider_filter_api::UpstreamOverride;
use postrider_grpc::decode_value;

use super::{bytes, of_request, of_state, text, told};
use crate::abi::status;
use crate::bells::Side;
use crate::questions::{Answer, Question};
use crate::request::{self, Asker, Out, Post};
use crate::state;

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetUpstreamOverrideHost(
    state: *mut c_void,
    host: *const c_void,
    host_len: c_int,
    strict: bool,
) -> c_int {
    // SAFETY: Go code passes a state of its own, and a text with its length.
    unsafe {
        told(of_state(state).and_then(|(request, mut shared, side)| {
            if side == Side::Response {
                return Err(status::INVALID_PHASE);
            }
            let chosen = UpstreamOverride::read(&text(host, host_len), strict).ok_or(status::INVALID_ADDRESS)?;
            request.carry_out(&mut shared, Post::Host(chosen));
            Ok(status::OK)
        }))
    }
}

/// Libraries before E5 have no second argument. The route is looked up again before it is next used, which is all that
/// refreshing at once would add.
// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpClearRouteCache(request: *mut c_void, _refresh: bool) -> c_int {
    // SAFETY: Go code passes a stream of its own.
    told(unsafe { of_request(request) }.map(|(request, mut shared)| {
        request.carry_out(&mut shared, Post::ClearRoute);
        status::OK
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetStringValue(
    request: *mut c_void,
    id: c_int,
    value: *mut u64,
    value_len: *mut c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, and places for the answer.
    unsafe {
        told(of_request(request).and_then(|(_, mut shared)| {
            let shared = &mut *shared;
            shared.slot.clear();
            let (facts, slot) = shared.facts_and_slot();
            facts.text(id, slot).ok_or(status::NOT_FOUND)?;
            Out { start: value, len: value_len, status: ptr::null_mut() }.point_at(&shared.slot);
            Ok(status::OK)
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetIntegerValue(
    request: *mut c_void,
    id: c_int,
    value: *mut u64,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, and a place for the answer.
    unsafe {
        told(of_request(request).and_then(|(_, mut shared)| {
            *value = shared.facts().integer(id).ok_or(status::NOT_FOUND)?;
            Ok(status::OK)
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetDynamicMetadata(
    request: *mut c_void,
    namespace: *const c_void,
    namespace_len: c_int,
    value: *mut u64,
    value_len: *mut c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, a text with its length, and places that stay until it is answered.
    unsafe {
        let out = Out { start: value, len: value_len, status: ptr::null_mut() };
        ask(request, Question::Metadata(text(namespace, namespace_len)), out)
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetDynamicMetadata(
    request: *mut c_void,
    namespace: *const c_void,
    namespace_len: c_int,
    key: *const c_void,
    key_len: c_int,
    value: *const c_void,
    value_len: c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, and texts with their lengths.
    unsafe {
        told(of_request(request).map(|(request, mut shared)| {
            let (namespace, key) = (text(namespace, namespace_len), text(key, key_len));
            // The SDK made it: it can be read.
            let value = decode_value(bytes(value, value_len)).unwrap_or_default();
            request.carry_out(&mut shared, Post::Metadata { namespace, key, value });
            status::OK
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetStringFilterState(
    request: *mut c_void,
    key: *const c_void,
    key_len: c_int,
    value: *const c_void,
    value_len: c_int,
    kind: c_int,
    span: c_int,
    sharing: c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, and texts with their lengths.
    unsafe {
        told(of_request(request).map(|(request, mut shared)| {
            let (key, value) = (text(key, key_len), text(value, value_len));
            let rules = state::rules(kind, span, sharing);
            request.carry_out(&mut shared, Post::FilterState { key, value, rules });
            status::OK
        }))
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetStringFilterState(
    request: *mut c_void,
    key: *const c_void,
    key_len: c_int,
    value: *mut u64,
    value_len: *mut c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, a text with its length, and places that stay until it is answered.
    unsafe {
        let out = Out { start: value, len: value_len, status: ptr::null_mut() };
        ask(request, Question::FilterState(text(key, key_len)), out)
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetStringProperty(
    request: *mut c_void,
    path: *const c_void,
    path_len: c_int,
    value: *mut u64,
    value_len: *mut c_int,
    status: *mut c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, a text with its length, and places that stay until it is answered.
    unsafe {
        let out = Out { start: value, len: value_len, status };
        ask(request, Question::Property(text(path, path_len)), out)
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpGetStringSecret(
    request: *mut c_void,
    name: *const c_void,
    name_len: c_int,
    value: *mut u64,
    value_len: *mut c_int,
) -> c_int {
    // SAFETY: Go code passes a stream of its own, a text with its length, and places that stay until it is answered.
    unsafe {
        let out = Out { start: value, len: value_len, status: ptr::null_mut() };
        ask(request, Question::Secret(text(name, name_len)), out)
    }
}

/// Answers at once where the stream is at hand; otherwise its worker does when the stream next comes by, and wakes the
/// goroutine.
///
/// # Safety
/// `request` is a stream of Go code's, and the places stay until it is answered.
unsafe fn ask(request: *mut c_void, question: Question, out: Out) -> c_int {
    // SAFETY: as promised; the stream is only looked at on its worker.
    unsafe {
        told(of_request(request).map(|(request, mut shared)| {
            let shared = &mut *shared;
            if !request.pool.is_here() {
                request.post(shared, Post::Question(question, Asker::Goroutine(out)));
                return status::YIELD;
            }
            let answer = match request.pool.outlet() {
                None => shared.view.with_seen(|seen| question.answer(seen, &shared.secrets)),
                // The worker is in another process: it is waited for, as long as it looks at the stream.
                Some(outlet) if request.is_logging() => outlet.ask_of_log(shared.stream, &question),
                Some(outlet) if Side::BOTH.into_iter().any(|side| request.is_in_go(side)) => {
                    match outlet.ask(shared.stream, &question) {
                        Some(answer) => Some(answer),
                        None => return status::DESTROYED,
                    }
                }
                Some(_) => None,
            };
            // A call about one stream that asks about another may not wait for that: both are this thread's.
            out.fill(&question, answer.unwrap_or(Answer::Missing), &mut shared.slot)
        }))
    }
}

impl Out {
    /// Leaves an answer in `slot` and says where; what it answers is how it went.
    ///
    /// # Safety
    /// Whoever asked waits for it.
    pub(crate) unsafe fn fill(self, question: &Question, answer: Answer, slot: &mut Vec<u8>) -> c_int {
        // SAFETY: as promised.
        unsafe {
            let went = match answer {
                Answer::Found(found) => {
                    *slot = found;
                    self.point_at(slot);
                    status::OK
                }
                Answer::Missing => {
                    if let Question::Secret(_) = question {
                        *self.len = -1;
                    }
                    status::NOT_FOUND
                }
                Answer::NoText => status::SERIALIZATION,
            };
            if self.status.is_null() {
                // Only of properties is it told whether there were any.
                return status::OK;
            }
            *self.status = went;
            went
        }
    }

    /// # Safety
    /// The places are Go code's, and there.
    unsafe fn point_at(self, slot: &[u8]) {
        // SAFETY: as promised.
        unsafe {
            *self.start = slot.as_ptr() as u64;
            *self.len = c_int::try_from(slot.len()).unwrap_or(c_int::MAX);
        }
    }
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpSetDrainConnectionUponCompletion(request: *mut c_void) -> c_int {
    // SAFETY: Go code passes a stream of its own.
    told(unsafe { of_request(request) }.map(|(request, mut shared)| {
        request.carry_out(&mut shared, Post::DrainConnection);
        status::OK
    }))
}

// SAFETY: the name is the SDK's, and nothing else has it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn envoyGoFilterHttpFinalize(request: *mut c_void, _reason: c_int) {
    // SAFETY: Go's collector does this once, when nothing refers to the stream any more.
    unsafe { request::finalize(request) };
}
