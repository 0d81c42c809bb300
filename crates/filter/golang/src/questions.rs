//! What Go code asks about a stream that only its worker can answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use postrider_filter_api::{Ended, RouteFacts, Stream, StreamInfo, cel};
use postrider_grpc::{Message, to_struct};
use postrider_http::{Fields, RequestHead, ResponseHead};
use postrider_model::cel::Allowed;
use postrider_model::{Expression, Value};

/// Most property paths that a worker keeps read; then all are forgotten.
const MAX_PATHS: usize = 1024;

/// Longest path of a property.
const MAX_PATH: usize = 1024;

#[derive(Debug, Clone)]
pub(crate) enum Question {
    /// A namespace of the dynamic metadata.
    Metadata(String),
    FilterState(String),
    /// A dotted path.
    Property(String),
    Secret(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Found(Vec<u8>),
    Missing,
    /// There is something, which is no text.
    NoText,
}

/// A stream as it is now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a RequestHead,
    pub(crate) response: &'a ResponseHead,
    pub(crate) trailers: &'a Fields,
    pub(crate) info: &'a StreamInfo,
    pub(crate) route: Option<&'a RouteFacts>,
    pub(crate) weighted: Option<usize>,
}

impl<'a> Seen<'a> {
    pub(crate) fn of(stream: &'a Stream<'_>) -> Seen<'a> {
        Seen {
            request: stream.request,
            response: stream.response,
            trailers: stream.response_trailers,
            info: stream.info,
            route: stream.route,
            weighted: stream.weighted,
        }
    }

    pub(crate) fn of_ended(ended: &'a Ended<'_>) -> Seen<'a> {
        Seen {
            request: ended.request,
            response: ended.response,
            trailers: ended.response_trailers,
            info: ended.info,
            route: ended.route,
            weighted: ended.weighted,
        }
    }
}

/// Secrets by name.
pub(crate) type Secrets = Arc<Vec<(String, Vec<u8>)>>;

impl Question {
    pub(crate) fn answer(&self, seen: &Seen<'_>, secrets: &Secrets) -> Answer {
        match self {
            Question::Metadata(namespace) => match seen.info.metadata.namespace(namespace) {
                Some(value) => Answer::Found(to_struct(value).encode_to_vec()),
                None => Answer::Missing,
            },
            Question::FilterState(key) => {
                let found = seen.info.filter_state.iter().find(|(known, _)| known == key);
                match found.map(|(_, value)| value) {
                    Some(Value::String(text)) => Answer::Found(text.as_bytes().to_vec()),
                    _ => Answer::Missing,
                }
            }
            Question::Property(path) => property(path, seen),
            Question::Secret(name) => match secrets.iter().find(|(known, _)| known == name) {
                Some((_, secret)) => Answer::Found(secret.clone()),
                None => Answer::Missing,
            },
        }
    }
}

fn property(path: &str, seen: &Seen<'_>) -> Answer {
    let Some(expression) = expression(path) else { return Answer::Missing };
    let facts = cel::Facts {
        request: Some(seen.request),
        response: (seen.info.status != 0).then_some(seen.response),
        trailers: (!seen.trailers.is_empty()).then_some(seen.trailers),
        info: seen.info,
        route: seen.route,
        weighted: seen.weighted,
        server_name: seen.info.tls.as_ref().and_then(|tls| tls.server_name.as_deref()),
    };
    match cel::text_of(&expression, &facts) {
        None => Answer::Missing,
        // How whole maps and lists are shown: they have no text.
        Some(text) if matches!(text.as_str(), "CelMap value" | "CelList value") => Answer::NoText,
        Some(text) => Answer::Found(text.into_bytes()),
    }
}

/// A path as an expression; `None` when nothing can be there.
fn expression(path: &str) -> Option<Arc<Expression>> {
    thread_local! {
        static KNOWN: RefCell<HashMap<String, Option<Arc<Expression>>>> = RefCell::default();
    }
    if path.len() > MAX_PATH {
        return None;
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known.get(path) {
            return known.clone();
        }
        if known.len() >= MAX_PATHS {
            known.clear();
        }
        let read = Expression::parse(&as_expression(path), Allowed::default()).ok().map(Arc::new);
        known.insert(path.to_owned(), read.clone());
        read
    })
}

/// The first two parts name an attribute, the others what is looked up in it: `request.headers["x-a"]`.
fn as_expression(path: &str) -> String {
    let mut text = String::with_capacity(path.len() + 16);
    for (index, part) in path.split('.').enumerate() {
        match index {
            0 => text.push_str(part),
            1 if is_name(part) => {
                text.push('.');
                text.push_str(part);
            }
            _ if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.push('[');
                text.push_str(part);
                text.push(']');
            }
            _ => {
                text.push_str("[\"");
                text.push_str(&part.replace('\\', "\\\\").replace('"', "\\\""));
                text.push_str("\"]");
            }
        }
    }
    text
}

fn is_name(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use postrider_filter_api::testing::FakeStream;

    use super::*;

    #[test]
    fn a_dotted_path_is_an_attribute_and_what_is_in_it() {
        assert_eq!(as_expression("request.headers.x-a"), "request.headers[\"x-a\"]");
        assert_eq!(as_expression("metadata.a\"b"), "metadata[\"a\\\"b\"]");
        let mut stream = FakeStream::new("GET", "/a?b=c", &[("x-a", "1")]);
        stream.info.metadata.set("ns", "k", Value::List(vec![Value::String("v".into())]));
        stream.info.set_state("s", Value::String("t".into()));
        let secrets = Secrets::default();
        stream.with(|stream| {
            let seen = Seen::of(stream);
            let of = |path: &str| Question::Property(path.to_owned()).answer(&seen, &secrets);
            let found = |text: &str| Answer::Found(text.as_bytes().to_vec());
            assert_eq!(of("request.headers.x-a"), found("1"));
            assert_eq!(of("request.query"), found("b=c"));
            assert_eq!(of("metadata.filter_metadata.ns.k.0"), found("v"));
            assert_eq!(of("request.headers"), Answer::NoText);
            for missing in ["request.headers.x-b", "nothing", "request.", "response.code", "a.b.c\\", ""] {
                assert_eq!(of(missing), Answer::Missing, "{missing}");
            }
            assert_eq!(Question::FilterState("s".into()).answer(&seen, &secrets), found("t"));
            assert_eq!(Question::Secret("s".into()).answer(&seen, &secrets), Answer::Missing);
            assert_eq!(Question::Metadata("other".into()).answer(&seen, &secrets), Answer::Missing);
        });
    }
}
