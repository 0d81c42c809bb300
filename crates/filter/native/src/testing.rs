//! A stream without a proxy around it, and configurations written as one writes them.

use std::time::SystemTime;

use postrider_filter_api::{Action, Filter, Resumer, State, Stream, StreamInfo};
use postrider_http::{Fields, RequestHead, ResponseHead};
use postrider_model::Value;

pub(crate) struct FakeStream {
    pub(crate) request: RequestHead,
    pub(crate) response: ResponseHead,
    pub(crate) info: StreamInfo,
    resumer: Resumer,
}

impl FakeStream {
    pub(crate) fn new(path: &str, lines: &[(&str, &str)]) -> FakeStream {
        let mut request = RequestHead::new();
        request.set_method(b"GET").unwrap();
        request.set_authority(b"x").unwrap();
        request.set_path(path.as_bytes()).unwrap();
        for (name, value) in lines {
            request.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
        }
        FakeStream {
            request,
            response: ResponseHead::new(),
            info: StreamInfo::new(postrider_filter_api::Moment::default(), SystemTime::UNIX_EPOCH),
            resumer: Resumer::default(),
        }
    }

    pub(crate) fn with<T>(&mut self, call: impl FnOnce(&mut Stream<'_>) -> T) -> T {
        let FakeStream { request, response, info, resumer } = self;
        call(&mut Stream { request, response, info, resumer })
    }

    pub(crate) fn request_headers(&mut self, filter: &dyn Filter) -> Action {
        self.with(|stream| filter.on_request_headers(&mut State::default(), stream, true))
    }

    pub(crate) fn response_headers(&mut self, filter: &dyn Filter) -> Action {
        self.with(|stream| filter.on_response_headers(&mut State::default(), stream, true))
    }
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
    let stats = Box::leak(Box::new(postrider_telemetry::Registry::new().worker(0)));
    postrider_filter_api::Place { stats, stat_prefix: "test" }
}
