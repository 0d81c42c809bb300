//! gRPC for upstreams that know only HTTP/1.1: they get a request with one message and answer with one.
//!
//! Configured as `envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig`, turned off for a route by
//! `FilterConfigPerRoute`. The upstream sees another content type and, with `withhold_grpc_frames`, no frames; its status
//! becomes the status of gRPC, in trailers. Without `response_size_header` an answer that needs a frame is held until
//! its length is known, up to the buffer limit.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::grpc::{self, Code, PREFIX_BYTES};
use postrider_http::{HeaderId, HeaderName, is_field_value};
use postrider_model::{Value, ValueError};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute";

pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let one = |error| vec![error];
    let mut fields = value.fields().map_err(one)?;
    let content_type = fields.string("content_type").map_err(one)?.unwrap_or_default();
    if content_type.is_empty() || !is_field_value(content_type.as_bytes()) {
        return Err(vec![fields.error("content_type", "a content type is wanted, such as application/x-protobuf")]);
    }
    let withhold = fields.bool("withhold_grpc_frames").map_err(one)?.unwrap_or_default();
    let size_header = match fields.string("response_size_header").map_err(one)?.filter(|name| !name.is_empty()) {
        None => None,
        Some(name) => Some(
            HeaderName::new(name.to_ascii_lowercase().as_bytes())
                .map_err(|_| vec![fields.error("response_size_header", format!("`{name}` is no header name"))])?,
        ),
    };
    if size_header.is_some() && !withhold {
        let text = "this has an effect only with withhold_grpc_frames";
        return Err(vec![fields.error("response_size_header", text)]);
    }
    let config = Config { content_type: content_type.as_bytes().to_vec(), withhold, size_header };
    fields.finish()?;
    Ok(Arc::new(ReverseBridge(Arc::new(config))))
}

struct Config {
    /// What the upstream is sent, and must answer with.
    content_type: Vec<u8>,
    /// The upstream knows no frames.
    withhold: bool,
    /// Here the upstream says how long its message is.
    size_header: Option<HeaderName>,
}

struct ReverseBridge(Arc<Config>);

/// What a scope says.
struct Disabled(bool);

impl Factory for ReverseBridge {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("grpc_http1_reverse_bridge is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut fields = value.fields().map_err(|error| vec![error])?;
        let disabled = fields.bool("disabled").map_err(|error| vec![error])?.unwrap_or_default();
        fields.finish()?;
        Ok(RouteConfig::new(Disabled(disabled), value))
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        let disabled = configs.most_specific::<Disabled>().is_some_and(|disabled| disabled.0);
        Rc::new(Bridge { config: self.0.clone(), disabled })
    }
}

/// The filter on one worker, as a route has it.
struct Bridge {
    config: Arc<Config>,
    disabled: bool,
}

/// One call.
struct Call {
    /// What the client said it sends.
    content_type: Vec<u8>,
    /// The request's frame is off.
    stripped: bool,
    /// In the trailers; none before the answer began.
    status: Option<Code>,
    /// What the upstream said its message takes, as far as it is still to come.
    size: Option<u32>,
    /// The frame of the answer is there.
    framed: bool,
}

impl Filter for Bridge {
    fn hooks(&self) -> Hooks {
        let on = !self.disabled;
        Hooks {
            request_headers: on,
            request_body: on && self.config.withhold,
            response_headers: on,
            response_body: on,
            response_trailers: on,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let fields = &mut stream.request.fields;
        if end || !grpc::has_content_type(fields) {
            return Action::Done;
        }
        let content_type = fields.get(HeaderId::ContentType).unwrap_or_default().to_vec();
        *state = State::Any(Box::new(Call { content_type, stripped: false, status: None, size: None, framed: false }));
        // The value is fit for a field; a head that holds no more stays as it is.
        let _ = fields.set(HeaderId::ContentType, &self.config.content_type);
        let _ = fields.set(HeaderId::Accept, &self.config.content_type);
        stream.info.route_is_stale = true;
        Action::Continue
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(call) = call(state).filter(|call| !call.stripped) else { return Action::Continue };
        let Some(message) = stream.request_body.bytes().get(PREFIX_BYTES..).map(<[u8]>::to_vec) else {
            return match end {
                false => Action::Buffer,
                true => refuse(Code::Unknown, "invalid request body", "grpc_bridge_data_too_small"),
            };
        };
        stream.request_body.replace(&message);
        call.stripped = true;
        Action::Continue
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        let status = stream.response.status();
        let fields = &mut stream.response.fields;
        let kind = fields.get(HeaderId::ContentType).unwrap_or_default();
        if end && fields.has(HeaderId::GrpcStatus) && grpc::is_content_type(kind) {
            // The proxy's own answer, in gRPC already.
            return Action::Done;
        }
        if kind != self.config.content_type {
            let kind = String::from_utf8_lossy(kind);
            let text = format!(
                "reverse bridge: upstream responded with unsupported content-type {kind}, status code {status}"
            );
            return refuse(Code::Unknown, text, "grpc_bridge_content_type_wrong");
        }
        if let Some(name) = &self.config.size_header {
            let size = fields.find(name).and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
            let Some(size) = size else {
                let text = "reverse bridge: upstream did not set content length";
                return refuse(Code::Internal, text, "grpc_bridge_content_length_missing");
            };
            call.size = Some(size);
        }
        let code = if status == 200 { Code::Ok } else { Code::from_http(status) };
        call.status = Some(code);
        let _ = fields.set(HeaderId::ContentType, &call.content_type);
        stream.response.set_status(200);
        if end {
            return self.finish(call, stream, true);
        }
        if self.config.withhold && call.size.is_none() { Action::Buffer } else { Action::Continue }
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(call) = call(state).filter(|call| call.status.is_some()) else { return Action::Done };
        if end {
            return self.finish(call, stream, false);
        }
        match call.size {
            None if self.config.withhold => Action::Buffer,
            None => Action::Continue,
            Some(size) => stream_framed(call, stream, size),
        }
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        match call(state).filter(|call| call.status.is_some()) {
            Some(call) => self.finish(call, stream, false),
            None => Action::Continue,
        }
    }
}

impl Bridge {
    /// All of the answer is here: its frame, if it has none, and its status. `is_head`: nothing follows its head.
    fn finish(&self, call: &mut Call, stream: &mut Stream<'_>, is_head: bool) -> Action {
        if let Some(size) = call.size {
            let action = stream_framed(call, stream, size);
            if !matches!(action, Action::Continue) || call.size != Some(0) {
                return wrong_size();
            }
        } else if self.config.withhold {
            // What is held is bounded by the buffer limit, which is a number of 32 bits.
            let length = u32::try_from(stream.response_body.bytes().len()).unwrap_or(u32::MAX);
            add_prefix(length, stream);
        }
        let code = call.status.unwrap_or(Code::Unknown).number().to_string();
        // Trailers need a body to follow; without one the head is all that there is.
        let fields = match is_head && stream.response_body.bytes().is_empty() {
            true => &mut stream.response.fields,
            false => &mut *stream.response_trailers,
        };
        let _ = fields.set(HeaderId::GrpcStatus, code.as_bytes());
        Action::Continue
    }
}

/// A piece of a message whose length was announced.
fn stream_framed(call: &mut Call, stream: &mut Stream<'_>, size: u32) -> Action {
    let length = stream.response_body.bytes().len();
    let Some(left) = u32::try_from(length).ok().and_then(|length| size.checked_sub(length)) else {
        return wrong_size();
    };
    call.size = Some(left);
    if !std::mem::replace(&mut call.framed, true) {
        add_prefix(size, stream);
    }
    Action::Continue
}

fn add_prefix(length: u32, stream: &mut Stream<'_>) {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + stream.response_body.bytes().len());
    grpc::write_prefix(length, &mut framed);
    framed.extend_from_slice(stream.response_body.bytes());
    stream.response_body.replace(&framed);
}

fn wrong_size() -> Action {
    let text = "reverse bridge: upstream set incorrect content length";
    refuse(Code::Internal, text, "grpc_bridge_content_length_wrong")
}

fn refuse(code: Code, text: impl Into<String>, details: &'static str) -> Action {
    Action::Respond(Box::new(LocalReply {
        status: 200,
        grpc_status: Some(code),
        body: text.into().into_bytes().into(),
        details: details.into(),
        ..LocalReply::default()
    }))
}

fn call(state: &mut State) -> Option<&mut Call> {
    match state {
        State::Any(call) => call.downcast_mut(),
        _ => None,
    }
}
