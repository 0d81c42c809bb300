//! What a processor is sent.

use postrider_filter_api::Stream;
use postrider_grpc::Message;
use postrider_grpc::core::{HeaderMap, HeaderValue, Metadata};
use postrider_grpc::process::processing_request::Request;
use postrider_grpc::process::{HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest, ProtocolConfiguration};
use postrider_grpc::to_struct;
use postrider_http::Fields;

use super::Processor;
use super::attributes;
use super::modes::Side;
use super::session::Session;
use crate::shown;
use crate::wire::messages;

/// A part of a message.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// Nothing follows them.
    Headers {
        end: bool,
    },
    Body {
        bytes: &'a [u8],
        end: bool,
    },
    Trailers,
}

impl Processor {
    pub(super) fn message(&self, session: &mut Session, side: Side, stream: &Stream<'_>, part: &Part<'_>) -> Vec<u8> {
        let (config, set) = (&self.config, &self.set);
        let wanted = match side {
            Side::Request => &set.request_attributes,
            Side::Response => &set.response_attributes,
        };
        let sent = std::mem::replace(&mut session.course(side).attributes_sent, true);
        let attributes = if sent { None } else { attributes::told(wanted, stream) };
        let noted = |name: &String| Some((name.clone(), to_struct(stream.info.metadata_of_either(name)?)));
        let metadata = Metadata {
            filter_metadata: set.forwarding.values.iter().filter_map(noted).collect(),
            typed_filter_metadata: messages(|name| stream.info.typed_of_either(name), &set.forwarding.messages),
        };
        let first = !std::mem::replace(&mut session.introduced, true) && !config.observes;
        let protocol_config = first.then(|| ProtocolConfiguration {
            request_body_mode: session.request.modes.body.to_proto().into(),
            response_body_mode: session.response.modes.body.to_proto().into(),
            send_body_without_waiting_for_header_response: config.sends_early,
        });
        let request = match (side, part) {
            (_, Part::Headers { end }) => {
                let headers = HttpHeaders {
                    headers: Some(self.head_of(side, stream)),
                    end_of_stream: *end,
                    ..HttpHeaders::default()
                };
                match side {
                    Side::Request => Request::RequestHeaders(headers),
                    Side::Response => Request::ResponseHeaders(headers),
                }
            }
            (_, Part::Body { bytes, end }) => {
                let body = HttpBody { body: bytes.to_vec(), end_of_stream: *end, ..HttpBody::default() };
                match side {
                    Side::Request => Request::RequestBody(body),
                    Side::Response => Request::ResponseBody(body),
                }
            }
            (Side::Request, Part::Trailers) => Request::RequestTrailers(self.trailers_of(stream.request_trailers)),
            (Side::Response, Part::Trailers) => Request::ResponseTrailers(self.trailers_of(stream.response_trailers)),
        };
        ProcessingRequest {
            metadata_context: Some(metadata),
            attributes: attributes.into_iter().collect(),
            observability_mode: config.observes,
            protocol_config,
            request: Some(request),
            ..ProcessingRequest::default()
        }
        .encode_to_vec()
    }

    fn head_of(&self, side: Side, stream: &Stream<'_>) -> HeaderMap {
        match side {
            Side::Request => header_map(shown::of_request(stream.request, |name| self.is_shown(name))),
            Side::Response => {
                let status = (":status".to_owned(), stream.response.status().to_string().into_bytes());
                let status = Some(status).filter(|(name, _)| self.is_shown(name));
                header_map(status.into_iter().chain(self.lines(&stream.response.fields)))
            }
        }
    }

    fn trailers_of(&self, fields: &Fields) -> HttpTrailers {
        HttpTrailers { trailers: Some(header_map(self.lines(fields))) }
    }

    fn lines<'a>(&'a self, fields: &'a Fields) -> impl Iterator<Item = (String, Vec<u8>)> + 'a {
        let line = |field: postrider_http::FieldRef<'_>| {
            (String::from_utf8_lossy(field.name).into_owned(), field.value.to_vec())
        };
        fields.iter().map(line).filter(|(name, _)| self.is_shown(name))
    }

    fn is_shown(&self, name: &str) -> bool {
        let (allowed, disallowed) = (&self.config.allowed_headers, &self.config.disallowed_headers);
        !disallowed.iter().any(|rule| rule.matches(name))
            && (allowed.is_empty() || allowed.iter().any(|rule| rule.matches(name)))
    }
}

fn header_map(lines: impl IntoIterator<Item = (String, Vec<u8>)>) -> HeaderMap {
    let header = |(key, raw_value): (String, Vec<u8>)| HeaderValue {
        key: key.to_ascii_lowercase(),
        raw_value,
        ..HeaderValue::default()
    };
    HeaderMap { headers: lines.into_iter().map(header).collect() }
}
