//! The request's side of a transcoded stream: JSON or plain bytes in, frames of gRPC out.

use postrider_http::grpc;
use prost_reflect::prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value as Proto};
use serde_json::{Map, Value as Json};

use super::bindings::Bindings;
use super::elements::{Elements, Malformed};
use super::parse::Reading;
use super::schema::Rule;
use super::{Failure, REQUEST_TOO_LARGE};

/// The type of what `capture_unknown_query_parameters` adds to a body.
const UNKNOWN_PARAMETERS: &str = "envoy.extensions.filters.http.grpc_json_transcoder.v3.UnknownQueryParams";

/// Settings of the request's side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) reading: Reading,
    /// What the body says must not differ from what the target says.
    pub(super) strict: bool,
    /// Bytes of the body that are held at once.
    pub(super) limit: usize,
}

/// What came of a request's body and was not made a message yet.
#[derive(Debug)]
pub(super) struct Request {
    bindings: Bindings,
    content_type: Vec<u8>,
    held: Vec<u8>,
    elements: Elements,
    /// Some message was made: what the target says is only in the first.
    begun: bool,
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Failure {
        match error {
            Malformed::TooLong => Failure::request_too_large(),
            error => Failure::request(error.text().to_owned()),
        }
    }
}

impl Request {
    pub(super) fn new(bindings: Bindings, content_type: &[u8]) -> Request {
        Request {
            bindings,
            content_type: content_type.to_vec(),
            held: Vec::new(),
            elements: Elements::default(),
            begun: false,
        }
    }

    /// The next piece of the body; frames that are complete with it go to `out`.
    ///
    /// # Errors
    /// The body is not what the method takes.
    pub(super) fn feed(
        &mut self,
        rule: &Rule,
        piece: &[u8],
        settings: Settings,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if !rule.method.client_streaming {
            if piece.len() > settings.limit.saturating_sub(self.held.len()) {
                return Err(Failure::request_too_large());
            }
            self.held.extend_from_slice(piece);
            return Ok(());
        }
        if rule.body_is_raw {
            return if piece.is_empty() { Ok(()) } else { self.raw(rule, piece, settings, out) };
        }
        let mut elements = std::mem::take(&mut self.elements);
        let fed = elements.feed(piece, settings.limit, |element| self.json(rule, element, settings, out));
        self.elements = elements;
        fed
    }

    /// The body has ended.
    ///
    /// # Errors
    /// The body is not what the method takes.
    pub(super) fn finish(&mut self, rule: &Rule, settings: Settings, out: &mut Vec<u8>) -> Result<(), Failure> {
        match (rule.method.client_streaming, rule.body_is_raw) {
            (true, true) if self.begun => Ok(()),
            (_, true) => {
                let held = std::mem::take(&mut self.held);
                self.raw(rule, &held, settings, out)
            }
            (true, false) => Ok(self.elements.finish()?),
            (false, false) => {
                let held = std::mem::take(&mut self.held);
                self.json(rule, &held, settings, out)
            }
        }
    }

    fn json(&mut self, rule: &Rule, text: &[u8], settings: Settings, out: &mut Vec<u8>) -> Result<(), Failure> {
        let body = match text {
            [] if rule.body.last().is_none_or(is_single_message) => Json::Object(Map::new()),
            [] => Json::Null,
            text => serde_json::from_slice(text).map_err(|error| Failure::request(error.to_string()))?,
        };
        // Written as a whole message, with nothing but the body's field.
        let body = rule
            .body
            .iter()
            .rev()
            .fold(body, |inner, field| Json::Object(Map::from_iter([(field.json_name().to_owned(), inner)])));
        let message = settings.reading.message(&rule.method.input, &body);
        let message = message.map_err(|error| Failure::request(error.to_string()))?;
        self.emit(message, &body, settings, out)
    }

    fn raw(&mut self, rule: &Rule, data: &[u8], settings: Settings, out: &mut Vec<u8>) -> Result<(), Failure> {
        let kind = rule.body.last().map_or_else(|| Some(rule.method.input.clone()), message_of);
        let kind = kind.ok_or_else(|| Failure::request("the body has no place in the message".to_owned()))?;
        let mut body = DynamicMessage::new(kind);
        let content_type = std::mem::take(&mut self.content_type);
        let unknown = std::mem::take(&mut self.bindings.unknown);
        put(&mut body, "content_type", Proto::String(String::from_utf8_lossy(&content_type).into_owned()));
        put(&mut body, "data", Proto::Bytes(data.to_vec().into()));
        if !unknown.is_empty() {
            let extensions = extensions(&body, &unknown);
            put(&mut body, "extensions", extensions);
        }
        let mut message = body;
        for (depth, field) in rule.body.iter().enumerate().rev() {
            let above = depth.checked_sub(1).and_then(|above| rule.body.get(above));
            let Some(kind) = above.map_or_else(|| Some(rule.method.input.clone()), message_of) else { continue };
            let mut outer = DynamicMessage::new(kind);
            // `HttpBody` was found at the end of this very path.
            let _ = outer.try_set_field(field, Proto::Message(message));
            message = outer;
        }
        self.emit(message, &Json::Null, settings, out)
    }

    fn emit(
        &mut self,
        mut message: DynamicMessage,
        body: &Json,
        settings: Settings,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if !self.begun && !self.bindings.is_empty() {
            let applied = self.bindings.apply(&mut message, body, settings.reading, settings.strict);
            applied.map_err(Failure::request)?;
        }
        self.begun = true;
        let length =
            u32::try_from(message.encoded_len()).map_err(|_| Failure::request(REQUEST_TOO_LARGE.to_owned()))?;
        grpc::write_prefix(length, out);
        // A `Vec` takes any amount.
        let _ = message.encode(out);
        Ok(())
    }
}

fn is_single_message(field: &FieldDescriptor) -> bool {
    !field.is_list() && !field.is_map() && matches!(field.kind(), Kind::Message(_))
}

fn message_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    field.kind().as_message().cloned()
}

/// Somebody's own `google.api.HttpBody` may lack a field.
fn put(message: &mut DynamicMessage, name: &str, value: Proto) {
    let _ = message.try_set_field_by_name(name, value);
}

/// One `Any` with the parameters: `map<string, Values> key = 1`, where `Values` is `repeated string values = 1`.
fn extensions(body: &DynamicMessage, unknown: &std::collections::BTreeMap<String, Vec<String>>) -> Proto {
    let mut packed = Vec::new();
    for (name, values) in unknown {
        let mut inner = Vec::new();
        values.iter().for_each(|value| delimited(1, value.as_bytes(), &mut inner));
        let mut entry = Vec::new();
        delimited(1, name.as_bytes(), &mut entry);
        delimited(2, &inner, &mut entry);
        delimited(1, &entry, &mut packed);
    }
    let field = prost_reflect::ReflectMessage::descriptor(body).get_field_by_name("extensions");
    let Some(kind) = field.as_ref().and_then(message_of) else { return Proto::List(Vec::new()) };
    let mut any = DynamicMessage::new(kind);
    let _ = any.try_set_field_by_number(1, Proto::String(format!("type.googleapis.com/{UNKNOWN_PARAMETERS}")));
    let _ = any.try_set_field_by_number(2, Proto::Bytes(packed.into()));
    Proto::List(vec![Proto::Message(any)])
}

/// A length-delimited field.
fn delimited(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
