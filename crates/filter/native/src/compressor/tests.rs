//! The rows were observed on Envoy 1.40.

use postrider_filter_api::testing::FakeStream;

use super::*;
use crate::testing::{lines, list, object, request, text};

fn library(kind: &str, message: &str) -> Value {
    let url = format!("type.googleapis.com/envoy.extensions.compression.{kind}.compressor.v3.{message}");
    object([("name", text(kind)), ("typed_config", object([("@type", text(&url))]))])
}

fn offers(all: &[(&'static str, bool, &[&str])]) -> Vec<Offer> {
    let one = |(encoding, choose_first, names): &(&'static str, bool, &[&str])| Offer {
        encoding,
        choose_first: *choose_first,
        content_types: Rc::new(ContentTypes::Names(names.iter().map(|name| (*name).to_owned()).collect())),
    };
    all.iter().map(one).collect()
}

#[test]
fn the_clients_wishes_choose() {
    use Reason::{Identity, Named, NotValid, Wildcard};
    let only = offers(&[("gzip", false, &["text/html"])]);
    for (accept, encoding, reason) in [
        ("gzip", Some("gzip"), Named),
        ("", None, NotValid),
        ("gzip;q=0", None, NotValid),
        ("*", Some("gzip"), Wildcard),
        ("gzip;q=0,*", None, NotValid),
        ("identity", None, Identity),
        ("deflate", None, NotValid),
        ("GZIP", None, NotValid),
        ("gzip;q=x", None, NotValid),
        ("br, gzip", Some("gzip"), Named),
        ("gzip;q=0.5, identity", None, Identity),
        ("gzip;q=0.5,identity;q=0.5", Some("gzip"), Named),
        ("*;q=0", None, NotValid),
        ("gzip ; q=0.3", Some("gzip"), Named),
    ] {
        assert_eq!(choose(accept.as_bytes(), Some(b"text/html"), &only), Decision { encoding, reason }, "{accept}");
    }
    let three = offers(&[
        ("gzip", false, &["text/html", "application/json"]),
        ("br", true, &["text/html"]),
        ("zstd", false, &["text/html", "application/json"]),
    ]);
    for (accept, html, json) in [
        ("gzip,br", Some("br"), Some("gzip")),
        ("gzip, br;q=0.9", Some("gzip"), Some("gzip")),
        ("zstd,gzip", Some("zstd"), Some("zstd")),
        ("*", Some("gzip"), Some("gzip")),
        ("identity,br", Some("br"), None),
        ("br", Some("br"), None),
        ("gzip;q=0.5, zstd;q=0.5", Some("gzip"), Some("gzip")),
    ] {
        assert_eq!(choose(accept.as_bytes(), Some(b"text/html"), &three).encoding, html, "{accept}");
        assert_eq!(choose(accept.as_bytes(), Some(b"application/json"), &three).encoding, json, "{accept}");
    }
}

fn filter(more: &[(&str, Value)], route: Option<Value>) -> Rc<dyn Filter> {
    let mut all = vec![("compressor_library".to_owned(), library("gzip", "Gzip"))];
    all.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let factory = build("pack", &Value::Map(all)).ok().unwrap();
    let route = route.map(|route| factory.route_config(ROUTE_KIND, &route).ok().unwrap());
    factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &crate::testing::place())
}

/// Whether an answer with these fields is compressed, and what its fields are then.
fn answer(filter: &dyn Filter, status: u16, fields: &[(&str, &str)]) -> (bool, Vec<String>) {
    let mut stream = request("/", &[("accept-encoding", "gzip")]);
    let mut state = State::default();
    stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    stream.response.set_status(status);
    for (name, value) in fields {
        stream.response.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
    }
    let action = stream.with(|stream| filter.on_response_headers(&mut state, stream, false));
    (matches!(action, Action::Take), lines(&stream.response.fields))
}

#[test]
fn what_is_worth_it_is_compressed() {
    let plain = filter(&[], None);
    const PACKED: [&str; 2] = ["content-encoding: gzip", "vary: Accept-Encoding"];
    for (fields, want) in [
        (&[][..], Some(&PACKED[..])),
        (&[("content-length", "30")], Some(&PACKED)),
        (&[("content-length", "29")], None),
        (&[("content-type", "application/grpc-web-text")], None),
        (&[("content-type", "image/png")], None),
        (&[("content-type", "")], None),
        (&[("content-encoding", "br")], None),
        (&[("cache-control", "public,No-Transform")], None),
        (&[("etag", "\"a\"")], Some(&PACKED)),
        (&[("etag", "")], Some(&PACKED)),
        (&[("etag", "W/\"a\"")], Some(&["etag: W/\"a\"", PACKED[0], PACKED[1]])),
        (&[("vary", "origin")], Some(&["vary: origin, Accept-Encoding", PACKED[0]])),
        (&[("vary", "Accept-Encoding")], Some(&["vary: Accept-Encoding", PACKED[0]])),
    ] {
        let (packed, mut left) = answer(&*plain, 200, fields);
        assert_eq!(packed, want.is_some(), "{fields:?}");
        let mut want = want.map(|want| want.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        if let Some(want) = &mut want {
            left.sort();
            want.sort();
            assert_eq!(left, *want);
        }
    }
    let html = [("content-type", "TEXT/html; charset=x")];
    assert!(answer(&*plain, 206, &html).0 && answer(&*plain, 404, &html).0);
    for kind in ["application/grpc-web", "application/grpc-web+proto"] {
        assert!(answer(&*plain, 200, &[("content-type", kind)]).0, "{kind}");
    }
}

#[test]
fn a_least_length_of_zero_is_the_usual_one() {
    let zero = Value::Integer(0);
    let newer = object([("common_config", object([("min_content_length", zero.clone())]))]);
    for filter in [filter(&[("response_direction_config", newer)], None), filter(&[("content_length", zero)], None)] {
        for (length, packed) in [("0", false), ("29", false), ("30", true)] {
            let (is_packed, left) = answer(&*filter, 200, &[("content-length", length)]);
            assert_eq!((is_packed, left.contains(&"vary: Accept-Encoding".to_owned())), (packed, packed), "{length}");
        }
    }
}

#[test]
fn answers_say_why_they_stay_as_they_are() {
    let told = object([
        ("status_header_enabled", Value::Bool(true)),
        ("disable_on_etag_header", Value::Bool(true)),
        ("uncompressible_response_codes", list([Value::Integer(206), Value::Integer(404)])),
    ]);
    let told = filter(&[("response_direction_config", told)], None);
    for (status, fields, want) in [
        (200, &[("content-length", "100")][..], Some("gzip;Compressed;OriginalLength=100")),
        (200, &[], Some("gzip;Compressed;OriginalLength=")),
        (404, &[("content-length", "5"), ("etag", "x")], Some("gzip;ContentLengthTooSmall")),
        (404, &[("content-type", "image/png"), ("etag", "x")], Some("gzip;ContentTypeNotAllowed")),
        (404, &[("etag", "x")], Some("gzip;EtagNotAllowed")),
        (404, &[], Some("gzip;StatusCodeNotAllowed")),
        (200, &[("content-encoding", "br"), ("content-length", "10")], None),
    ] {
        let (_, left) = answer(&*told, status, fields);
        let told = left.iter().find_map(|line| line.strip_prefix("x-envoy-compression-status: "));
        assert_eq!(told, want, "{fields:?}");
    }
}

#[test]
fn a_strong_tag_may_be_weakened() {
    let weaken =
        object([("weaken_etag_on_compress", Value::Bool(true)), ("disable_on_etag_header", Value::Bool(true))]);
    let weaken = filter(&[("response_direction_config", weaken)], None);
    for (tag, want) in
        [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\""), ("w/\"a\"", "w/\"a\""), ("ab", "W/ab"), ("", "W/")]
    {
        let (packed, left) = answer(&*weaken, 200, &[("etag", tag)]);
        assert!(packed && left.contains(&format!("etag: {want}")), "{left:?}");
    }
}

#[test]
fn routes_say_otherwise() {
    let off = object([("disabled", Value::Bool(true))]);
    assert!(!answer(&*filter(&[], Some(off)), 200, &[]).0);
    let other = object([("overrides", object([("compressor_library", library("brotli", "Brotli"))]))]);
    assert!(!answer(&*filter(&[], Some(other)), 200, &[]).0);
    let never = object([("common_config", object([("enabled", object([("default_value", Value::Bool(false))]))]))]);
    let never = [("response_direction_config", never)];
    assert!(!answer(&*filter(&never, None), 200, &[]).0);
    let on = object([("overrides", object([("response_direction_config", object([]))]))]);
    assert!(answer(&*filter(&never, Some(on)), 200, &[]).0);
}

#[test]
fn configurations_are_refused_with_all_that_is_wrong() {
    let codes = list([Value::Integer(100), Value::Integer(206), Value::Integer(206)]);
    let bad = object([
        ("compressor_library", library("lz4", "Lz4")),
        ("response_direction_config", object([("uncompressible_response_codes", codes), ("what", text("x"))])),
    ]);
    let errors = build("pack", &bad).err().unwrap();
    assert_eq!(errors.len(), 4, "{errors:?}");
    let factory = build("pack", &object([("compressor_library", library("gzip", "Gzip"))])).ok().unwrap();
    assert!(factory.route_config(ROUTE_KIND, &object([])).is_err());
    assert!(factory.route_config(KIND, &object([])).is_err());
}

#[test]
fn a_request_is_compressed_where_that_is_configured() {
    let filter = filter(&[("request_direction_config", object([]))], None);
    let take = |fields: &[(&str, &str)]| {
        let mut stream: FakeStream = request("/", fields);
        let action = stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, false));
        (matches!(action, Action::Take), lines(&stream.request.fields))
    };
    assert_eq!(take(&[("content-length", "50")]), (true, vec!["content-encoding: gzip".to_owned()]));
    assert!(!take(&[("content-length", "29")]).0);
    assert!(!take(&[("content-type", "image/png")]).0);
    assert!(!take(&[("content-encoding", "br")]).0);
}
