//! gRPC for clients of HTTP/1.1: they learn the status of a call from the head of the answer.
//!
//! Configured as `envoy.extensions.filters.http.grpc_http1_bridge.v3.Config`; there is nothing that a route could change.
//! An answer is held until its trailers are there, up to the buffer limit. With `upgrade_protobuf_to_grpc` also requests
//! that are bare protocol buffers become calls.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::grpc::{self, Code, PREFIX_BYTES, Status};
use postrider_http::{HeaderId, Version};
use postrider_model::{Value, ValueError};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.grpc_http1_bridge.v3.Config";

const BARE_MESSAGE: &[u8] = b"application/x-protobuf";

/// What a call's state says.
const BRIDGED: u64 = 1;
/// Its message has no frame on the client's side.
const FRAMED: u64 = 2;

pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let one = |error| vec![error];
    let mut fields = value.fields().map_err(one)?;
    let upgrade = fields.bool("upgrade_protobuf_to_grpc").map_err(one)?.unwrap_or_default();
    let ignore_query = fields.bool("ignore_query_parameters").map_err(one)?.unwrap_or_default();
    fields.finish()?;
    Ok(Arc::new(Bridge { upgrade, ignore_query }))
}

/// The filter, the same on every worker.
#[derive(Clone)]
struct Bridge {
    upgrade: bool,
    ignore_query: bool,
}

impl Factory for Bridge {
    fn route_config(&self, kind: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = format!("grpc_http1_bridge has no overrides, so {kind} is none for it");
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(self.clone())
    }
}

impl Filter for Bridge {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: self.upgrade,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if stream.request.version() == Version::Http2 {
            return Action::Done;
        }
        let kind = stream.request.fields.get(HeaderId::ContentType).unwrap_or_default();
        let frames = self.upgrade && kind == BARE_MESSAGE;
        if !frames && !grpc::is_content_type(kind) {
            return Action::Done;
        }
        *state = State::Number(if frames { BRIDGED | FRAMED } else { BRIDGED });
        if self.ignore_query {
            let path = stream.request.path_only().to_vec();
            // A part of a path that was accepted is one.
            let _ = stream.request.set_path(&path);
        }
        if !frames {
            return Action::Done;
        }
        let _ = stream.request.fields.set(HeaderId::ContentType, grpc::CONTENT_TYPE);
        if end {
            // A message of no bytes is a message.
            add_prefix(stream);
        }
        Action::Continue
    }

    fn on_request_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if !end {
            return Action::Buffer;
        }
        add_prefix(stream);
        Action::Continue
    }

    fn on_response_headers(&self, state: &mut State, _: &mut Stream<'_>, end: bool) -> Action {
        match state {
            State::Number(_) if !end => Action::Buffer,
            _ => Action::Done,
        }
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if !end {
            return Action::Buffer;
        }
        remove_prefix(state, stream);
        Action::Continue
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let trailers = &mut *stream.response_trailers;
        let fields = &mut stream.response.fields;
        // Values that came as fields are fit for fields; a head that holds no more stays as it is.
        if let Some(status) = trailers.get(HeaderId::GrpcStatus) {
            let _ = fields.set(HeaderId::GrpcStatus, status);
            if Status::parse(status) != Some(Status::Code(Code::Ok)) {
                stream.response.set_status(503);
            }
        }
        if let Some(message) = trailers.get(HeaderId::GrpcMessage) {
            let _ = stream.response.fields.set(HeaderId::GrpcMessage, message);
        }
        // The client would not see them: now the length of the body is known.
        trailers.clear();
        remove_prefix(state, stream);
        Action::Continue
    }
}

fn add_prefix(stream: &mut Stream<'_>) {
    let message = stream.request_body.bytes();
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    // What is held is bounded by the buffer limit, which is a number of 32 bits.
    grpc::write_prefix(u32::try_from(message.len()).unwrap_or(u32::MAX), &mut framed);
    framed.extend_from_slice(message);
    stream.request_body.replace(&framed);
}

fn remove_prefix(state: &State, stream: &mut Stream<'_>) {
    if matches!(state, State::Number(call) if call & FRAMED != 0) && !stream.response_body.bytes().is_empty() {
        let message = stream.response_body.bytes().get(PREFIX_BYTES..).unwrap_or_default().to_vec();
        stream.response_body.replace(&message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, place, request};

    fn bridge(fields: &[(&str, Value)]) -> Rc<dyn Filter> {
        let value = Value::Map(fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect());
        build("x", &value).ok().unwrap().filter(&ScopedConfigs::default(), &place())
    }

    #[test]
    fn only_what_is_asked_for_becomes_a_call() {
        let upgrade = bridge(&[("upgrade_protobuf_to_grpc", Value::Bool(true))]);
        let plain = bridge(&[]);
        for (filter, kind, wanted, body) in [
            (&plain, "application/x-protobuf", "application/x-protobuf", &b""[..]),
            (&upgrade, "application/x-protobuf", "application/grpc", &[0, 0, 0, 0, 0]),
            (&upgrade, "application/grpc+proto", "application/grpc+proto", b""),
            (&upgrade, "text/plain", "text/plain", b""),
        ] {
            let mut stream = request("/a.S/M?q", &[("content-type", kind)]);
            stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, true));
            assert_eq!(stream.request.fields.get(HeaderId::ContentType), Some(wanted.as_bytes()), "{kind}");
            assert_eq!(stream.request_body.bytes(), body, "{kind}");
            assert_eq!(stream.request.path(), b"/a.S/M?q");
        }
    }

    #[test]
    fn unknown_fields_and_overrides_are_refused() {
        assert!(build("x", &object([("odd", Value::Bool(true))])).is_err());
        assert!(build("x", &object([])).ok().unwrap().route_config(KIND, &object([])).is_err());
    }
}
