use super::*;
use crate::testing::{list, object, place, request, request_headers, text};

fn entry(namespace: &str, value: Value, overwrites: bool) -> Value {
    object([("metadata_namespace", text(namespace)), ("value", value), ("allow_overwrite", Value::Bool(overwrites))])
}

fn noter(config: &Value) -> Noter {
    let entries = Arc::new(Reading::all(config, read).ok().unwrap());
    let stats = place().stats.block(&stat::SET, "x");
    Noter { lists: vec![List { entries, stats, denied: stat::OVERWRITE_DENIED }] }
}

fn denied(noter: &Noter) -> u64 {
    noter.lists[0].stats.value(stat::OVERWRITE_DENIED)
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
    assert_eq!(denied(&noter), 1);
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
    assert_eq!(denied(&noter), 1);
    let packed = stream.info.metadata.typed("n").unwrap();
    assert_eq!((&*packed.kind, &*packed.bytes), ("x/y", &[3][..]));
    assert!(stream.info.metadata.namespace("n").is_none());
    let broken = object([("metadata", list([entry("?", false)]))]);
    assert!(build("x", &broken).is_err());
}

#[test]
fn an_entry_with_nothing_to_note_makes_no_namespace() {
    let bare = object([("metadata_namespace", text("n"))]);
    let noter = noter(&object([("metadata", list([bare, entry("n", object([("k", Value::Integer(1))]), false)]))]));
    let mut stream = request("/", &[]);
    request_headers(&mut stream, &noter);
    assert_eq!(stream.info.metadata.get("n", "k"), Some(&Value::Integer(1)));
    assert_eq!(denied(&noter), 0);
}

#[test]
fn the_most_specific_scope_notes_behind_the_gateway() {
    let noted = |who: &str, overwrites: bool| {
        let own = entry(who, object([("a", Value::Integer(1))]), false);
        object([("metadata", list([own, entry("n", object([("a", text(who))]), overwrites)]))])
    };
    let gateway = object([("metadata", list([entry("n", object([("a", text("gw")), ("k", text("k"))]), false)]))]);
    let factory = build("x", &gateway).ok().unwrap();
    assert!(factory.route_config("other", &gateway).is_err());
    assert!(factory.route_config(KIND, &object([("odd", text("x"))])).is_err());
    let registry = postrider_telemetry::Registry::new();
    let worker = registry.worker(0);
    let here = Place { stats: &worker, ..place() };
    let denied = worker.block(&scope_stat::SET, "");
    for (overwrites, want) in [(true, "route"), (false, "gw")] {
        let configs = ScopedConfigs {
            virtual_host: factory.route_config(KIND, &noted("host", true)).ok(),
            route: factory.route_config(KIND, &noted("route", overwrites)).ok(),
            ..ScopedConfigs::default()
        };
        let mut stream = request("/", &[]);
        request_headers(&mut stream, &*factory.filter(&configs, &here));
        let metadata = &stream.info.metadata;
        assert_eq!((metadata.get("n", "a"), metadata.get("n", "k")), (Some(&text(want)), Some(&text("k"))));
        assert!(metadata.namespace("route").is_some() && metadata.namespace("host").is_none());
    }
    assert_eq!(denied.value(scope_stat::OVERWRITE_DENIED), 1);
}
