//! Streams to try a filter on, and configurations written as one writes them.

use postrider_filter_api::testing::{FakeHost, FakeStream};
use postrider_filter_api::{Action, Filter, State};
use postrider_http::Fields;
use postrider_model::Value;

/// A `GET` with these fields.
pub(crate) fn request(path: &str, lines: &[(&str, &str)]) -> FakeStream {
    FakeStream::new("GET", path, lines)
}

pub(crate) fn request_headers(stream: &mut FakeStream, filter: &dyn Filter) -> Action {
    stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, true))
}

pub(crate) fn response_headers(stream: &mut FakeStream, filter: &dyn Filter) -> Action {
    stream.with(|stream| filter.on_response_headers(&mut State::default(), stream, true))
}

/// `name: value` lines without those of the fake request itself.
pub(crate) fn lines(fields: &Fields) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    fields.iter().map(|f| format!("{}: {}", text(f.name), text(f.value))).filter(|line| line != "host: x").collect()
}

pub(crate) fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

pub(crate) fn list<const N: usize>(items: [Value; N]) -> Value {
    Value::List(items.into_iter().collect())
}

pub(crate) fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A place with counters that nobody reads.
pub fn place() -> postrider_filter_api::Place<'static> {
    let host = Box::leak(Box::new(FakeHost::unwatched()));
    let stats = Box::leak(Box::new(postrider_telemetry::Registry::new().worker(0)));
    postrider_filter_api::Place {
        stats,
        stat_prefix: "test",
        worker: 0,
        buffer_limit: 1 << 20,
        head_limits: None,
        host,
    }
}
