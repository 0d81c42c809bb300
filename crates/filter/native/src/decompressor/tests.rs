//! The rows were observed on Envoy 1.40.

use super::*;
use crate::testing::{lines, object, request, text};

fn config(more: &[(&str, Value)]) -> Value {
    let url = "type.googleapis.com/envoy.extensions.compression.gzip.decompressor.v3.Gzip";
    let library = object([("name", text("gz")), ("typed_config", object([("@type", text(url))]))]);
    let mut all = vec![("decompressor_library".to_owned(), library)];
    all.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Value::Map(all)
}

fn filter(more: &[(&str, Value)]) -> Rc<dyn Filter> {
    build("unpack", &config(more)).ok().unwrap().filter(&ScopedConfigs::default(), &crate::testing::place())
}

#[test]
fn upstreams_are_told_what_they_may_send() {
    let all = filter(&[]);
    let never = filter(&[("request_direction_config", object([("advertise_accept_encoding", Value::Bool(false))]))]);
    for (accept, want) in [
        (None, "accept-encoding: gzip"),
        (Some("br"), "accept-encoding: br,gzip"),
        (Some("gzip;q=0.3, br"), "accept-encoding: br,gzip"),
        (Some("gzip"), "accept-encoding: gzip"),
        (Some("GZIP"), "accept-encoding: GZIP,gzip"),
    ] {
        let fields: Vec<(&str, &str)> = accept.map(|accept| ("accept-encoding", accept)).into_iter().collect();
        let mut stream = request("/", &fields);
        stream.with(|stream| all.on_request_headers(&mut State::default(), stream, true));
        assert_eq!(lines(&stream.request.fields), [want]);
        let mut stream = request("/", &fields);
        stream.with(|stream| never.on_request_headers(&mut State::default(), stream, true));
        assert_eq!(lines(&stream.request.fields).len(), fields.len());
    }
}

#[test]
fn only_the_outermost_coding_is_taken_off() {
    let usual = filter(&[]);
    let ignore = object([("common_config", object([("ignore_no_transform_header", Value::Bool(true))]))]);
    let ignore = filter(&[("response_direction_config", ignore)]);
    for (fields, want, ignored) in [
        (&[("content-encoding", "gzip")][..], Some(&[][..]), true),
        (&[("content-encoding", "GZIP"), ("content-length", "9")], Some(&[]), true),
        (&[("content-encoding", "gzip, br")], Some(&["content-encoding: br"]), true),
        (&[("content-encoding", "gzip"), ("content-encoding", "x")], Some(&["content-encoding: x"]), true),
        (&[("content-encoding", "br,gzip")], None, false),
        (&[("content-encoding", "gzip"), ("cache-control", "no-transform")], None, true),
        (&[], None, false),
    ] {
        let take = |filter: &dyn Filter| {
            let mut stream = request("/", &[]);
            for (name, value) in fields {
                stream.response.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
            }
            stream.response.set_status(200);
            let action = stream.with(|stream| filter.on_response_headers(&mut State::default(), stream, false));
            (matches!(action, Action::Take), lines(&stream.response.fields))
        };
        let (taken, left) = take(&*usual);
        assert_eq!(taken, want.is_some(), "{fields:?}");
        if let Some(want) = want {
            assert_eq!(left, want);
        }
        assert_eq!(take(&*ignore).0, ignored, "{fields:?}");
    }
}

#[test]
fn configurations_are_refused() {
    assert!(build("unpack", &object([])).is_err());
    assert!(build("unpack", &config(&[("what", text("x"))])).is_err());
    let off = object([("common_config", object([("enabled", object([("default_value", Value::Bool(false))]))]))]);
    assert!(build("unpack", &config(&[("request_direction_config", off)])).is_ok());
}
