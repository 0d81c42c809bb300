use postrider_filter_api::testing::FakeStream;

use super::*;
use crate::testing::{lines, list, object, request, request_headers, text};

fn credential(key: &str, client: &str) -> Value {
    object([("key", text(key)), ("client", text(client))])
}

fn source(kind: &str, name: &str) -> Value {
    object([(kind, text(name))])
}

fn gateway() -> Value {
    object([
        ("credentials", list([credential("k1", "ann"), credential("k 2", "bob")])),
        ("key_sources", list([source("header", "X-Key"), source("query", "key"), source("cookie", "ck")])),
        ("forwarding", object([("header", text("x-client")), ("hide_credentials", Value::Bool(true))])),
    ])
}

fn filter(gateway: &Value, route: Option<Value>) -> Rc<dyn Filter> {
    let factory = build("keys", gateway).ok().unwrap();
    let route = route.map(|route| factory.route_config(ROUTE_KIND, &route).ok().unwrap());
    factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &crate::testing::place())
}

/// The details of the refusal; `None` when the request may go on.
fn refusal(filter: &dyn Filter, stream: &mut FakeStream) -> Option<(u16, String)> {
    match request_headers(stream, filter) {
        Action::Respond(reply) => Some((reply.status, reply.details.into_owned())),
        _ => None,
    }
}

#[test]
fn a_key_is_found_at_the_first_place_that_has_one() {
    let filter = filter(&gateway(), None);
    let missing = Some((401, "missing_api_key".to_owned()));
    let unknown = Some((401, "unknown_api_key".to_owned()));
    for (path, field, want) in [
        ("/", ("x-key", "k1"), None),
        ("/", ("x-key", "Bearer k1"), None),
        ("/", ("x-key", "bearer k1"), unknown.clone()),
        ("/?key=k%202", ("a", "b"), None),
        ("/?key=&key=k1", ("a", "b"), missing.clone()),
        ("/", ("cookie", "a=b; ck=k1"), None),
        ("/?key=k1", ("x-key", "no"), unknown),
        ("/?key=k1", ("x-key", ""), None),
        ("/", ("a", "b"), missing),
    ] {
        assert_eq!(refusal(&*filter, &mut request(path, &[field])), want, "{path} {field:?}");
    }
}

#[test]
fn the_upstream_learns_the_client_and_no_key() {
    let filter = filter(&gateway(), None);
    let fields = [("x-key", "k1"), ("x-client", "root"), ("cookie", "ck=z; a=b")];
    let mut stream = request("/?a=1&key=k1", &fields);
    assert_eq!(refusal(&*filter, &mut stream), None);
    assert_eq!(stream.request.path(), b"/?a=1");
    let mut left = lines(&stream.request.fields);
    left.sort();
    assert_eq!(left, ["cookie: a=b", "x-client: ann"]);
}

#[test]
fn a_route_says_who_may_take_it_and_what_is_forwarded() {
    let allowed = object([("allowed_clients", list([text("bob")]))]);
    let only_bob = filter(&gateway(), Some(allowed));
    let forbidden = Some((403, "client_not_allowed".to_owned()));
    assert_eq!(refusal(&*only_bob, &mut request("/", &[("x-key", "k1")])), forbidden);
    let mut stream = request("/", &[("x-key", "k 2")]);
    assert_eq!(refusal(&*only_bob, &mut stream), None);
    // What the gateway forwards does not hold where a route says something.
    assert_eq!(lines(&stream.request.fields), ["x-key: k 2"]);

    let own = object([
        ("credentials", list([credential("r", "eve")])),
        ("key_sources", list([source("header", "x-own")])),
        ("forwarding", object([("header", text("x-who"))])),
    ]);
    let own = filter(&gateway(), Some(own));
    let mut stream = request("/", &[("x-own", "r")]);
    assert_eq!(refusal(&*own, &mut stream), None);
    assert_eq!(lines(&stream.request.fields), ["x-own: r", "x-who: eve"]);
    assert!(refusal(&*own, &mut request("/", &[("x-own", "k1")])).is_some());
}

#[test]
fn without_sources_or_keys_nobody_passes() {
    let nothing = filter(&object([]), None);
    let answer = refusal(&*nothing, &mut request("/", &[("x-key", "k1")]));
    assert_eq!(answer, Some((401, "missing_key_sources".to_owned())));
    let sources = filter(&object([("key_sources", list([source("header", "x-key")]))]), None);
    let answer = refusal(&*sources, &mut request("/", &[("x-key", "k1")]));
    assert_eq!(answer, Some((401, "missing_credentials".to_owned())));
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let bad = object([
        ("credentials", list([credential("a", "b"), credential("a", "c"), credential("d", "e\n")])),
        ("key_sources", list([object([]), object([("header", text("a")), ("query", text("b"))])])),
        ("forwarding", object([("header", text("content-length"))])),
    ]);
    let errors = build("keys", &bad).err().unwrap();
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    let wanted =
        ["credentials[1].key", "credentials[2].client", "key_sources[0]", "key_sources[1]", "forwarding.header"];
    assert_eq!(paths, wanted);
    assert!(errors.iter().all(|error| !error.message.contains("\"a\"")));
}
