//! REST and JSON outside, gRPC inside: requests that a `google.api.http` rule maps to a method become calls of it, and
//! the answers become JSON.
//!
//! Configured as `envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder`, at the filter and on virtual
//! hosts and routes, where the most specific one counts alone. Requests that no rule maps, and those that are gRPC
//! already, pass as if the filter were not there.
//!
//! ```text
//! GET /v1/shelves/3?x=1 ──matcher──> rule ──bindings──┐
//! {"theme": "…"} ───────────parse────────────────────>message──> POST /pkg.Service/Method, frames
//! {"id": "3"} <───────────print──────────────────── message <── frames, grpc-status
//! ```
//!
//! What is held of a body is bounded; descriptors are read on control threads and shared by the workers.

mod bindings;
mod config;
mod elements;
mod matcher;
mod parse;
mod print;
mod request;
mod response;
mod schema;
mod template;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    WatchedFile,
};
use postrider_http::grpc::{self, Code, Status};
use postrider_http::{Fields, HeaderId, Method, Version};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;
use prost_reflect::{DynamicMessage, Value as Proto};

use bindings::Bindings;
use config::Config;
use request::{Request, Settings};
use response::{Part, Response};
use schema::{Rule, Schema};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder";

const JSON: &[u8] = b"application/json";
const EVENTS: &[u8] = b"text/event-stream";
const ORIGINAL_METHOD: &[u8] = b"x-envoy-original-method";
const STATUS_DETAILS: &[u8] = b"grpc-status-details-bin";

const REQUEST_TOO_LARGE: &str =
    "Request rejected because the transcoder's internal buffer size exceeds the configured limit.";
const RESPONSE_TOO_LARGE: &str =
    "Response not transcoded because the transcoder's internal buffer size exceeds the configured limit.";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Transcoder(Arc::new(config::read(value)?))))
}

struct Transcoder(Arc<Config>);

impl Factory for Transcoder {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("grpc_json_transcoder is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let config = Arc::new(config::read(value)?);
        Ok(RouteConfig { files: config.files.clone(), ..RouteConfig::new(config, value) })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let config = configs.most_specific::<Arc<Config>>().unwrap_or(&self.0);
        let limit = match place.buffer_limit {
            0 => usize::MAX,
            limit => limit,
        };
        Rc::new(Gate {
            max_request: config.max_request.unwrap_or(limit),
            max_response: config.max_response.unwrap_or(limit),
            config: Arc::clone(config),
            stats: place.stats.block(&stat::SET, &format!("{}.grpc_json_transcoder", place.stat_prefix)),
        })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.0.files
    }
}

/// The filter on one worker.
struct Gate {
    config: Arc<Config>,
    max_request: usize,
    max_response: usize,
    stats: Rc<Block>,
}

postrider_telemetry::stat_set! {
    /// Transcoded requests by outcome; prefix: the connection manager's, then `grpc_json_transcoder`.
    mod stat = "http";
    counters {
        TRANSCODED = "transcoded",
        REQUEST_FAILED = "request_failed",
        RESPONSE_FAILED = "response_failed",
    }
}

/// What is remembered of a stream that is transcoded.
struct Exchange {
    rule: Arc<Rule>,
    request: Request,
    response: Response,
    /// The client has the head.
    head_is_gone: bool,
}

/// Why a message is not transcoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    status: u16,
    text: String,
    reason: &'static str,
}

impl Failure {
    fn request(text: String) -> Failure {
        Failure { status: 400, text, reason: "INVALID_ARGUMENT" }
    }

    fn request_too_large() -> Failure {
        Failure { status: 413, text: REQUEST_TOO_LARGE.to_owned(), reason: "request_buffer_size_limit_reached" }
    }

    fn response(text: String) -> Failure {
        Failure { status: 502, text, reason: "INTERNAL" }
    }

    fn response_too_large() -> Failure {
        Failure { status: 500, text: RESPONSE_TOO_LARGE.to_owned(), reason: "response_buffer_size_limit_reached" }
    }

    /// The answer to the client. `early`: the head itself could not be transcoded.
    fn reply(self, early: bool) -> Action {
        let prefix = if early { "early_grpc_json_transcode_failure" } else { "grpc_json_transcode_failure" };
        Action::Respond(Box::new(LocalReply {
            status: self.status,
            body: Cow::Owned(self.text.into_bytes()),
            headers: Vec::new(),
            details: Cow::Owned(format!("{prefix}{{{}}}", self.reason)),
            grpc_status: None,
            ..LocalReply::default()
        }))
    }
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Its head is all of it, trailers included.
    Head,
    Trailers,
    /// Without any trailers.
    Body,
}

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        let on = self.config.schema.is_some();
        Hooks {
            request_headers: on,
            request_body: on,
            request_trailers: on,
            response_headers: on,
            response_body: on,
            response_trailers: on,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(schema) = &self.config.schema else { return Action::Done };
        let request = &stream.request;
        // Whether an answer has a body depends on the client's own method, so HEAD cannot become another one.
        if request.method() == Method::Head || grpc::has_content_type(&request.fields) {
            return Action::Done;
        }
        let mut exchange = match self.begin(schema, stream) {
            Ok(Some(exchange)) => exchange,
            Ok(None) => return Action::Done,
            Err(failure) => {
                self.stats.inc(stat::REQUEST_FAILED);
                return failure.reply(true);
            }
        };
        let mut frames = Vec::new();
        if end && let Err(failure) = exchange.request.finish(&exchange.rule, self.settings(), &mut frames) {
            self.stats.inc(stat::REQUEST_FAILED);
            return failure.reply(true);
        }
        if self.address(&exchange.rule, stream).is_err() {
            self.stats.inc(stat::REQUEST_FAILED);
            return Failure::request("Bad request".to_owned()).reply(true);
        }
        self.stats.inc(stat::TRANSCODED);
        if end {
            stream.request_body.replace(&frames);
        }
        // A body that is one message is checked before the upstream hears of it.
        let hold = !end && !exchange.rule.method.client_streaming;
        *state = State::Any(Box::new(exchange));
        if hold { Action::Buffer } else { Action::Continue }
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(exchange) = exchange(state) else { return Action::Done };
        let mut frames = Vec::new();
        let Exchange { rule, request, .. } = exchange;
        let fed = request.feed(rule, stream.request_body.bytes(), self.settings(), &mut frames);
        let fed = fed.and_then(|()| if end { request.finish(rule, self.settings(), &mut frames) } else { Ok(()) });
        if let Err(failure) = fed {
            self.stats.inc(stat::REQUEST_FAILED);
            return failure.reply(false);
        }
        stream.request_body.replace(&frames);
        if end || rule.method.client_streaming { Action::Continue } else { Action::Buffer }
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(Exchange { rule, request, .. }) = exchange(state) else { return Action::Done };
        let mut frames = Vec::new();
        if let Err(failure) = request.finish(rule, self.settings(), &mut frames) {
            self.stats.inc(stat::REQUEST_FAILED);
            return failure.reply(false);
        }
        stream.request_body.replace(&frames);
        Action::Continue
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(known) = exchange(state) else { return Action::Done };
        let fields = &stream.response.fields;
        let is_grpc = match end {
            true => fields.has(HeaderId::GrpcStatus),
            false => stream.response.status() == 200 && grpc::has_content_type(fields),
        };
        if !is_grpc {
            // An answer of the proxy's own, or an upstream that speaks something else.
            *state = State::Empty;
            return Action::Done;
        }
        let streaming = known.rule.method.server_streaming;
        if !end || streaming {
            let kind = if streaming && self.config.print.server_sent_events { EVENTS } else { JSON };
            // The value is a constant.
            let _ = stream.response.fields.set(HeaderId::ContentType, kind);
        }
        if stream.request.version() != Version::Http2 {
            stream.response.fields.remove(HeaderId::Trailer);
        }
        if end {
            return self.end(known, stream, Ending::Head);
        }
        if streaming && !known.rule.response_is_raw {
            known.head_is_gone = true;
            return Action::Continue;
        }
        Action::Buffer
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(known) = exchange(state) else { return Action::Done };
        let fed = known.response.feed(&known.rule, stream.response_body.bytes(), &self.config.print, self.max_response);
        let part = match fed {
            Ok(part) => part,
            Err(failure) => return self.fail(failure),
        };
        if let Err(failure) = put(known, stream, &part) {
            return self.fail(failure);
        }
        if end {
            return self.end(known, stream, Ending::Body);
        }
        if known.head_is_gone { Action::Continue } else { Action::Buffer }
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(known) = exchange(state) else { return Action::Done };
        self.end(known, stream, Ending::Trailers)
    }
}

impl Gate {
    fn settings(&self) -> Settings {
        Settings { reading: self.config.reading, strict: self.config.reject_collisions, limit: self.max_request }
    }

    /// Finds the rule for a request and what its target says; `None` when it is none of ours.
    fn begin(&self, schema: &Schema, stream: &Stream<'_>) -> Result<Option<Exchange>, Failure> {
        let request = &stream.request;
        let Some(found) = schema.matcher.find(request.method_bytes(), request.path_only()) else {
            if !self.config.reject_unknown_method {
                return Ok(None);
            }
            let path = String::from_utf8_lossy(request.path());
            let text = format!("Could not resolve {path} to a method.");
            return Err(Failure { status: 404, text, reason: "NOT_FOUND" });
        };
        let Some(rule) = schema.rules.get(found.rule) else { return Ok(None) };
        let query = request.query().unwrap_or_default();
        let bindings = match Bindings::read(rule, &found.segments, query, &self.config.parameters) {
            Ok(bindings) => bindings,
            Err(text) if self.config.reject_unknown_parameters => return Err(Failure::request(text)),
            Err(_) => return Ok(None),
        };
        let content_type = request.fields.get(HeaderId::ContentType).unwrap_or_default();
        Ok(Some(Exchange {
            rule: Arc::clone(rule),
            request: Request::new(bindings, content_type),
            response: Response::default(),
            head_is_gone: false,
        }))
    }

    /// Makes the head that of a call.
    fn address(&self, rule: &Rule, stream: &mut Stream<'_>) -> Result<(), postrider_http::FieldError> {
        let request = &mut *stream.request;
        let (path, method) = (request.path().to_vec(), request.method_bytes().to_vec());
        request.fields.remove(HeaderId::ContentLength);
        request.fields.set(HeaderId::ContentType, grpc::CONTENT_TYPE)?;
        request.fields.set(HeaderId::XEnvoyOriginalPath, &path)?;
        request.fields.set_name(ORIGINAL_METHOD, &method)?;
        request.fields.set(HeaderId::Te, b"trailers")?;
        request.set_path(rule.method.path.as_bytes())?;
        request.set_method(b"POST")?;
        if !self.config.keep_route {
            stream.info.route_is_stale = true;
        }
        Ok(())
    }

    fn fail(&self, failure: Failure) -> Action {
        self.stats.inc(stat::RESPONSE_FAILED);
        failure.reply(false)
    }

    /// The answer is over: the last of its body, and what its status means to a client of HTTP.
    fn end(&self, known: &mut Exchange, stream: &mut Stream<'_>, ending: Ending) -> Action {
        let fields = match ending {
            Ending::Head => &stream.response.fields,
            Ending::Trailers | Ending::Body => &*stream.response_trailers,
        };
        let status = Status::of(fields);
        let message = fields.get(HeaderId::GrpcMessage).map(<[u8]>::to_vec);
        if self.config.convert_status
            && !known.response.has_body
            && let Some(status) = status.filter(|status| !matches!(status, Status::Code(Code::Ok) | Status::Invalid))
            && let Some(json) = self.status_json(fields, status, message.as_deref())
        {
            stream.response_body.replace(&json);
            if !known.head_is_gone {
                let head = &mut *stream.response;
                head.set_status(status.to_http());
                head.fields.remove(HeaderId::GrpcStatus);
                head.fields.remove(HeaderId::GrpcMessage);
                head.fields.remove_name(STATUS_DETAILS);
                // The value is a constant.
                let _ = head.fields.set(HeaderId::ContentType, JSON);
            }
            return Action::Continue;
        }
        let rest = known.response.finish(&known.rule, &self.config.print, self.max_response);
        if ending != Ending::Head || known.rule.method.server_streaming {
            match rest.and_then(|part| put_behind(known, stream, &part)) {
                Ok(()) => {}
                Err(failure) => return self.fail(failure),
            }
        }
        if known.head_is_gone || known.rule.method.server_streaming && ending != Ending::Head {
            return Action::Continue;
        }
        let head = &mut *stream.response;
        match status {
            None | Some(Status::Invalid) => head.set_status(503),
            Some(status) => {
                head.set_status(status.to_http());
                if ending == Ending::Trailers {
                    let number = match status {
                        Status::Code(code) => u32::from(code.number()),
                        Status::Other(number) => number,
                        Status::Invalid => return Action::Continue,
                    };
                    let _ = head.fields.set(HeaderId::GrpcStatus, number.to_string().as_bytes());
                    if let Some(message) = message {
                        // What was a field value already is one here.
                        let _ = head.fields.set(HeaderId::GrpcMessage, &message);
                    }
                }
            }
        }
        Action::Continue
    }

    /// `google.rpc.Status` of an answer; `None` when its details are of types that the descriptors lack.
    fn status_json(&self, fields: &Fields, status: Status, message: Option<&[u8]>) -> Option<Vec<u8>> {
        const INDIFFERENT: GeneralPurposeConfig =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, INDIFFERENT);
        let kind = &self.config.schema.as_ref()?.status;
        let details = fields.get_name(STATUS_DETAILS).and_then(|text| BASE64.decode(text).ok());
        let details = details.and_then(|bytes| DynamicMessage::decode(kind.clone(), bytes.as_slice()).ok());
        let value = details.unwrap_or_else(|| {
            let mut own = DynamicMessage::new(kind.clone());
            let number = match status {
                Status::Code(code) => i32::from(code.number()),
                Status::Other(number) => i32::try_from(number).unwrap_or(i32::MAX),
                Status::Invalid => 0,
            };
            let mut text = Vec::new();
            grpc::decode_message(message.unwrap_or_default(), &mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            let _ = own.try_set_field_by_number(1, Proto::I32(number));
            let _ = own.try_set_field_by_number(2, Proto::String(text));
            own
        });
        if print::is_too_deep(&value) {
            return None;
        }
        let mut json = Vec::new();
        self.config.print.write(&value, None, self.max_response, false, &mut json).ok().map(|()| json)
    }
}

/// The stream's memory, if it is transcoded.
fn exchange(state: &mut State) -> Option<&mut Exchange> {
    match state {
        State::Any(value) => value.downcast_mut(),
        _ => None,
    }
}

/// Puts a part of the answer in place of what was held.
fn put(known: &mut Exchange, stream: &mut Stream<'_>, part: &Part) -> Result<(), Failure> {
    typed(known, stream, part)?;
    stream.response_body.replace(&part.body);
    Ok(())
}

/// Puts the last part behind what is there.
fn put_behind(known: &mut Exchange, stream: &mut Stream<'_>, part: &Part) -> Result<(), Failure> {
    typed(known, stream, part)?;
    let mut body = stream.response_body.bytes().to_vec();
    body.extend_from_slice(&part.body);
    stream.response_body.replace(&body);
    Ok(())
}

fn typed(known: &mut Exchange, stream: &mut Stream<'_>, part: &Part) -> Result<(), Failure> {
    let Some(kind) = &part.content_type else { return Ok(()) };
    let fields = &mut stream.response.fields;
    if kind.is_empty() {
        fields.remove(HeaderId::ContentType);
    } else if fields.set(HeaderId::ContentType, kind.as_bytes()).is_err() {
        return Err(Failure::response("the upstream's content type is none".to_owned()));
    }
    // The first part of a stream is here: it needs no more waiting.
    known.head_is_gone |= known.rule.method.server_streaming;
    Ok(())
}

#[cfg(test)]
mod tests;
