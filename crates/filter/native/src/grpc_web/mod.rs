//! gRPC-Web: browsers speak gRPC although they see no trailers.
//!
//! Configured as `envoy.extensions.filters.http.grpc_web.v3.GrpcWeb`, which has no fields; there is nothing that a route
//! could change. A request's content type becomes that of gRPC; of the answer, the trailers become a last frame of the
//! body (`PROTOCOL-WEB.md` of gRPC). In the text form, both bodies are base64. Nothing is held but parts of a group of
//! base64, and an answer that is no gRPC, of which the beginning becomes the message.

mod base64;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::grpc::{self, Code, Prefix};
use postrider_http::{HeaderId, ResponseHead};
use postrider_model::{Value, ValueError};

use self::base64::{Decoder, Encoder};
use crate::grpc_counts::{self, Counts, Method};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb";

const BINARY: &[u8] = b"application/grpc-web";
const BINARY_PROTO: &[u8] = b"application/grpc-web+proto";
const TEXT: &[u8] = b"application/grpc-web-text";
const TEXT_PROTO: &[u8] = b"application/grpc-web-text+proto";

/// Of an answer that is no gRPC, so many bytes become the message; the rest is dropped.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    value.fields().map_err(|error| vec![error])?.finish()?;
    Ok(Arc::new(GrpcWeb))
}

struct GrpcWeb;

impl Factory for GrpcWeb {
    fn route_config(&self, kind: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = format!("grpc_web has no overrides, so {kind} is none for it");
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Translator { counts: Counts::new(place.stats, "grpc-web") })
    }
}

/// The filter on one worker.
struct Translator {
    counts: Counts,
}

/// One call.
#[derive(Default)]
struct Call {
    /// What it is counted as; `None`: not at all.
    method: Option<Method>,
    /// The request is text.
    decoder: Option<Decoder>,
    /// The client wants text.
    encoder: Option<Encoder>,
    /// The answer is no gRPC: its body becomes the message.
    explains: bool,
}

impl Filter for Translator {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: true,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        let fields = &mut stream.request.fields;
        let kind = fields.get(HeaderId::ContentType).unwrap_or_default();
        let is_text = is_text(kind);
        if !is_text && kind != BINARY && kind != BINARY_PROTO {
            return Action::Done;
        }
        let wants_text = fields.get(HeaderId::Accept).is_some_and(self::is_text);
        // These values are fine; a head that holds no more fields stays as it is.
        let _ = fields.set(HeaderId::ContentType, grpc::CONTENT_TYPE);
        let _ = fields.set_name(b"grpc-accept-encoding", b"identity");
        let _ = fields.set(HeaderId::Te, b"trailers");
        *state = State::Any(Box::new(Call {
            method: Method::of_path(stream.request.path_only()),
            decoder: is_text.then(Decoder::default),
            encoder: wants_text.then(Encoder::default),
            explains: false,
        }));
        // A body of gRPC is a stream, also where its length is known.
        Action::Continue
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(decoder) = call(state).and_then(|call| call.decoder.as_mut()) else { return Action::Done };
        let mut plain = Vec::with_capacity(stream.request_body.bytes().len());
        if !decoder.decode(stream.request_body.bytes(), &mut plain) {
            return refuse("grpc_base_64_decode_failed");
        }
        if end && !decoder.is_complete() {
            return refuse("grpc_base_64_decode_failed_bad_size");
        }
        stream.request_body.replace(&plain);
        Action::Continue
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        self.count(call, stream, |stream| &stream.response.fields);
        let kind = stream.response.fields.get(HeaderId::ContentType).unwrap_or_default();
        call.explains = !end && !grpc::is_content_type(kind) && kind != BINARY && kind != BINARY_PROTO;
        if call.explains {
            return Action::Buffer;
        }
        set_content_type(call, stream.response);
        Action::Continue
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        if call.explains {
            if end {
                explain(call, stream);
                return Action::Continue;
            }
            if let Some(beginning) = stream.response_body.bytes().get(..MAX_MESSAGE_BYTES).map(<[u8]>::to_vec) {
                stream.response_body.replace(&beginning);
            }
            return Action::Buffer;
        }
        let Some(encoder) = &mut call.encoder else { return Action::Continue };
        let mut text = Vec::with_capacity(stream.response_body.bytes().len().div_ceil(3) * 4 + 8);
        encoder.encode(stream.response_body.bytes(), &mut text);
        stream.response_body.replace(&text);
        Action::Continue
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        self.count(call, stream, |stream| stream.response_trailers);
        if call.explains {
            explain(call, stream);
        } else {
            let mut lines = Vec::new();
            for field in stream.response_trailers.iter() {
                lines.extend_from_slice(field.name);
                lines.push(b':');
                lines.extend_from_slice(field.value);
                lines.extend_from_slice(b"\r\n");
            }
            let length = u32::try_from(lines.len()).unwrap_or(u32::MAX);
            let mut frame = Prefix { flags: grpc::FLAG_TRAILERS, length }.to_bytes().to_vec();
            frame.extend_from_slice(&lines);
            let mut body = stream.response_body.bytes().to_vec();
            match &mut call.encoder {
                Some(encoder) => encoder.encode(&frame, &mut body),
                None => body.extend_from_slice(&frame),
            }
            stream.response_body.replace(&body);
        }
        stream.response_trailers.clear();
        Action::Continue
    }
}

impl Translator {
    fn count<'s>(
        &self,
        call: &Call,
        stream: &'s Stream<'_>,
        of: impl Fn(&'s Stream<'_>) -> &'s postrider_http::Fields,
    ) {
        if let (Some(method), Some(cluster)) = (&call.method, grpc_counts::cluster(stream)) {
            grpc_counts::count_status(&self.counts.of(&cluster, Some(method)), of(stream));
        }
    }
}

/// Makes of an answer that is no gRPC one whose status and text a client finds where it looks for them. The HTTP status
/// stays.
fn explain(call: &Call, stream: &mut Stream<'_>) {
    let mut message = Vec::new();
    let text = stream.response_body.bytes();
    grpc::encode_message(text.get(..MAX_MESSAGE_BYTES).unwrap_or(text), &mut message);
    let code = Code::from_http(stream.response.status());
    let fields = &mut stream.response.fields;
    let _ = fields.set(HeaderId::GrpcStatus, code.number().to_string().as_bytes());
    let _ = fields.set(HeaderId::GrpcMessage, &message);
    stream.response_body.replace(b"");
    set_content_type(call, stream.response);
}

fn set_content_type(call: &Call, response: &mut ResponseHead) {
    let kind = if call.encoder.is_some() { TEXT_PROTO } else { BINARY_PROTO };
    let _ = response.fields.set(HeaderId::ContentType, kind);
}

fn is_text(kind: &[u8]) -> bool {
    kind == TEXT || kind == TEXT_PROTO
}

fn refuse(details: &'static str) -> Action {
    let body = b"Bad gRPC-web request, invalid base64 data.".as_slice().into();
    Action::Respond(Box::new(LocalReply { status: 400, body, details: details.into(), ..LocalReply::default() }))
}

fn call(state: &mut State) -> Option<&mut Call> {
    match state {
        State::Any(call) => call.downcast_mut(),
        _ => None,
    }
}
