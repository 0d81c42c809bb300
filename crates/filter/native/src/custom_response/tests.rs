use super::*;
use crate::testing::{list, object, place, request, text};
use postrider_filter_api::testing::FakeStream;

const LOCAL: &str =
    "type.googleapis.com/envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy";

fn map(entries: Vec<(&str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn input(kind: &str, header: &str) -> (&'static str, Value) {
    let mut typed = vec![("@type", text(&format!("type.googleapis.com/envoy.type.matcher.v3.{kind}")))];
    if !header.is_empty() {
        typed.push(("header_name", text(header)));
    }
    ("input", object([("name", text("i")), ("typed_config", map(typed))]))
}

fn is(kind: &str, header: &str, value: &str) -> Value {
    object([("single_predicate", object([input(kind, header), ("value_match", object([("exact", text(value))]))]))])
}

fn status(value: &str) -> Value {
    is("HttpResponseStatusCodeMatchInput", "", value)
}

/// An action that answers so.
fn answers(more: Vec<(&str, Value)>) -> Value {
    let mut typed = vec![("@type", text(LOCAL))];
    typed.extend(more);
    object([("action", object([("name", text("a")), ("typed_config", map(typed))]))])
}

fn says(body: &str) -> Value {
    answers(vec![("body", object([("inline_string", text(body))]))])
}

fn tree<const N: usize>(matchers: [(Value, Value); N]) -> Value {
    let matchers = matchers.map(|(predicate, leaf)| object([("predicate", predicate), ("on_match", leaf)]));
    object([("matcher_list", object([("matchers", list(matchers))]))])
}

fn config(tree: Value) -> Value {
    object([("custom_response_matcher", tree)])
}

fn filter(config: &Value, route: Option<&Value>) -> Rc<dyn Filter> {
    let factory = build("x", config).unwrap_or_else(|errors| panic!("{errors:?}"));
    let route = route.map(|value| factory.route_config(KIND, value).unwrap_or_else(|errors| panic!("{errors:?}")));
    factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place())
}

fn answer_of(status: u16, details: &'static str) -> FakeStream {
    let mut stream = request("/p", &[("x-q", "1"), ("x-q", "2")]);
    stream.response.reply(status);
    stream.response.fields.append_name(b"x-r", b"r").unwrap();
    stream.info.status = status;
    stream.info.details = details.into();
    stream
}

/// What takes the place of an answer with that status from an upstream.
fn replaced(filter: &dyn Filter, status: u16) -> Option<LocalReply> {
    reply(filter, &mut answer_of(status, VIA_UPSTREAM))
}

fn reply(filter: &dyn Filter, stream: &mut FakeStream) -> Option<LocalReply> {
    match stream.with(|stream| filter.on_response_headers(&mut State::default(), stream, false)) {
        Action::Respond(reply) => Some(*reply),
        Action::Done => None,
        other => panic!("{other:?}"),
    }
}

fn body(reply: Option<LocalReply>) -> String {
    reply.map_or("-".to_owned(), |reply| String::from_utf8(reply.body.into_owned()).unwrap())
}

fn refused(tree: Value) -> String {
    let errors = build("x", &config(tree)).err().expect("refused");
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_first_matcher_that_leads_somewhere_decides() {
    let class = |value: &str| is("HttpResponseStatusCodeClassMatchInput", "", value);
    let both = object([("predicate", list([status("404"), status("410")]))]);
    let not = object([("not_matcher", is("HttpRequestHeaderMatchInput", "X-Q", "1,2"))]);
    let has = is("HttpResponseHeaderMatchInput", "x-r", "r");
    let nested = object([("matcher", tree([(status("502"), says("nested"))]))]);
    let filter = filter(
        &config(tree([
            (status("401"), says("401")),
            (object([("or_matcher", both)]), says("or")),
            (not, says("never")),
            (object([("and_matcher", object([("predicate", list([class("5xx"), has]))]))]), nested),
            (is("HttpResponseLocalReplyMatchInput", "", "true"), says("local")),
            (class("5xx"), says("later")),
        ])),
        None,
    );
    let of = |status| body(replaced(&*filter, status));
    assert_eq!([401, 404, 410, 502, 503, 200].map(of), ["401", "or", "or", "nested", "later", "-"]);
    assert_eq!(body(reply(&*filter, &mut answer_of(200, "route_not_found"))), "local");
}

#[test]
fn maps_choose_by_the_value_or_its_longest_prefix() {
    let by = |kind: &str, entries: Vec<(&str, Value)>| {
        let map = object([("map", map(entries))]);
        let mut tree = vec![("matcher_tree", object([input("HttpResponseStatusCodeMatchInput", ""), (kind, map)]))];
        tree.push(("on_no_match", says("none")));
        config(self::map(tree))
    };
    let exact = filter(&by("exact_match_map", vec![("401", says("401")), ("4", says("never"))]), None);
    assert_eq!([401, 404].map(|status| body(replaced(&*exact, status))), ["401", "none"]);
    let prefix = filter(&by("prefix_match_map", vec![("4", says("4")), ("40", says("40"))]), None);
    assert_eq!([401, 414, 500].map(|status| body(replaced(&*prefix, status))), ["40", "4", "none"]);
}

#[test]
fn the_most_specific_scope_in_which_something_matches_decides() {
    let gateway = config(tree([(status("401"), says("gateway")), (status("402"), says("gateway"))]));
    let route = config(tree([(status("401"), says("route"))]));
    let filter_of = |route| filter(&gateway, Some(route));
    let of = |route, status| body(replaced(&*filter_of(route), status));
    assert_eq!(
        (of(&route, 401), of(&route, 402), of(&object([]), 401)),
        ("route".into(), "gateway".into(), "gateway".into())
    );
    assert!(!filter(&object([]), None).hooks().response_headers);
}

#[test]
fn an_answer_has_status_body_headers_and_details_of_its_own() {
    let header = |name: &str, value: &str, action: &str| {
        object([("header", object([("key", text(name)), ("value", text(value))])), ("append_action", text(action))])
    };
    let format = object([("text_format", text("<%LOCAL_REPLY_BODY%> %REQ(:path)%"))]);
    let headers = list([
        header("a", "1", "APPEND_IF_EXISTS_OR_ADD"),
        header("a", "%REQ(:path)%", "ADD_IF_ABSENT"),
        header("a", "3", "OVERWRITE_IF_EXISTS"),
        header("content-type", "x/y", "OVERWRITE_IF_EXISTS_OR_ADD"),
        header("empty", "%REQ(none)%", "APPEND_IF_EXISTS_OR_ADD"),
    ]);
    let full = answers(vec![
        ("status_code", Value::Integer(499)),
        ("body", object([("inline_string", text("b"))])),
        ("body_format", format.clone()),
        ("response_headers_to_add", headers),
        ("response_code_details", text("my own")),
    ]);
    let kept = answers(vec![("preserve_response_code_details", Value::Bool(true)), ("body_format", format)]);
    let filter =
        filter(&config(tree([(status("401"), full), (status("402"), kept), (status("403"), answers(vec![]))])), None);
    let got = replaced(&*filter, 401).unwrap();
    assert_eq!((got.status, &*got.body, &*got.details), (499, b"<b> /p".as_slice(), "my_own"));
    let lines: Vec<_> = got.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(lines, [("content-type", b"x/y".as_slice()), ("a", b"1"), ("a", b"/p")]);
    // Of an upstream's answer the body is not known, of one of our own it is waited for.
    let mut upstreams = answer_of(402, VIA_UPSTREAM);
    assert_eq!(body(reply(&*filter, &mut upstreams)), "<> /p");
    assert_eq!(upstreams.info.details, VIA_UPSTREAM);
    let mut own = answer_of(402, "direct_response");
    let state = &mut State::default();
    assert!(matches!(own.with(|stream| filter.on_response_headers(state, stream, false)), Action::Buffer));
    own.response_body.push(b"own");
    let Action::Respond(got) = own.with(|stream| filter.on_response_body(state, stream, true)) else { panic!() };
    assert_eq!(body(Some(*got)), "<own> /p");
    // Without anything there is an empty answer, and no word of why.
    let mut bare = answer_of(403, VIA_UPSTREAM);
    let got = reply(&*filter, &mut bare).unwrap();
    assert_eq!((got.status, &*got.body, &*bare.info.details), (403, b"".as_slice(), ""));
    assert_eq!(bare.response.fields.get_name(b"x-r"), Some(b"r".as_slice()));
}

#[test]
fn trees_and_policies_that_are_not_known_are_refused() {
    let one = |leaf: Value| refused(tree([(status("401"), leaf)]));
    let redirect = "type.googleapis.com/envoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicy";
    let typed = object([("@type", text(redirect)), ("uri", text("http://a/"))]);
    assert!(one(object([("action", object([("typed_config", typed)]))])).contains("RedirectPolicy: not supported"));
    assert!(one(object([])).contains("exactly one of action and matcher"));
    assert!(one(answers(vec![("status_code", Value::Integer(199))])).contains("a status from 200 to 599"));
    let length = object([("header", object([("key", text("Content-Length")), ("value", text("1"))]))]);
    assert!(one(answers(vec![("response_headers_to_add", list([length]))])).contains("the proxy writes this field"));
    let query = is("HttpRequestQueryParamMatchInput", "x", "1");
    assert!(refused(tree([(query, says("x"))])).contains("HttpRequestQueryParamMatchInput: nothing that Postrider"));
    assert!(refused(tree([(is("HttpRequestHeaderMatchInput", "", "1"), says("x"))])).contains("the name of a header"));
    let alone = object([("or_matcher", object([("predicate", list([status("401")]))]))]);
    assert!(refused(tree([(alone, says("x"))])).contains("at least two are required"));
    assert!(refused(tree([(object([]), says("x"))])).contains("exactly one of single_predicate"));
    assert!(refused(tree([])).contains("at least one is required"));
    let keep = object([("keep_matching", Value::Bool(true)), ("matcher", tree([(status("401"), says("x"))]))]);
    assert!(one(keep).contains("going on after a match"));
}
