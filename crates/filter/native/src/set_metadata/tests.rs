use super::*;
use crate::testing::{list, object, place, request, request_headers, text};

fn entry(namespace: &str, value: Value, overwrites: bool) -> Value {
    object([("metadata_namespace", text(namespace)), ("value", value), ("allow_overwrite", Value::Bool(overwrites))])
}

fn noter(config: &Value) -> Noter {
    let entries = Arc::new(Reading::all(config, read).ok().unwrap());
    Noter { entries, stats: place().stats.block(&stat::SET, "x") }
}

#[test]
fn a_namespace_is_noted_kept_or_merged() {
    let first = object([("a", text("1")), ("l", list([text("x")])), ("m", object([("k", text("old"))]))]);
    let second = object([("a", text("2")), ("l", list([text("y")])), ("m", object([("n", text("new"))]))]);
    let noter = noter(&object([(
        "metadata",
        list([
            entry("n", first, false),
            entry("n", object([("a", text("denied"))]), false),
            entry("n", second, true),
            entry("o", object([]), false),
        ]),
    )]));
    let mut stream = request("/", &[]);
    assert!(matches!(request_headers(&mut stream, &noter), Action::Done));
    let metadata = &stream.info.metadata;
    assert_eq!(metadata.get("n", "a"), Some(&text("2")));
    assert_eq!(metadata.get("n", "l"), Some(&list([text("x"), text("y")])));
    assert_eq!(metadata.get("n", "m"), Some(&object([("k", text("old")), ("n", text("new"))])));
    assert!(metadata.namespace("o").is_some());
    assert_eq!(noter.stats.value(stat::OVERWRITE_DENIED), 1);
}

#[test]
fn the_old_form_overwrites() {
    let config = object([("metadata_namespace", text("n")), ("value", object([("a", Value::Integer(1))]))]);
    let noter = noter(&config);
    let mut stream = request("/", &[]);
    stream.info.metadata.set("n", "a", text("there"));
    request_headers(&mut stream, &noter);
    assert_eq!(stream.info.metadata.get("n", "a"), Some(&Value::Integer(1)));
}

#[test]
fn a_message_is_handed_on_as_it_is() {
    let message = |bytes: &str| object([("@type", text("x/y")), ("@bytes", text(bytes))]);
    let entry = |bytes: &str, overwrites: bool| {
        let more = [("typed_value", message(bytes)), ("allow_overwrite", Value::Bool(overwrites))];
        let [value, overwrites] = more;
        object([("metadata_namespace", text("n")), value, overwrites])
    };
    let entries = list([entry("AQ==", false), entry("Ag==", false), entry("Aw==", true)]);
    let noter = noter(&object([("metadata", entries)]));
    let mut stream = request("/", &[]);
    request_headers(&mut stream, &noter);
    assert_eq!(noter.stats.value(stat::OVERWRITE_DENIED), 1);
    let packed = stream.info.metadata.typed("n").unwrap();
    assert_eq!((&*packed.kind, &*packed.bytes), ("x/y", &[3][..]));
    assert!(stream.info.metadata.namespace("n").is_none());
    let broken = object([("metadata", list([entry("?", false)]))]);
    assert!(build("x", &broken).is_err());
}
