use super::*;
use crate::testing::{lines, list, object, place, request, text};
use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Detour, LocalReply, VIA_UPSTREAM};
use postrider_http::{Method, Scheme};

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
    action(local::KIND, more)
}

fn action(kind: &str, more: Vec<(&str, Value)>) -> Value {
    let url = text(&format!("type.googleapis.com/{kind}"));
    let typed = std::iter::once(("@type", url)).chain(more).collect();
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
    assert!(!filter(&object([]), None).hooks().response_body);
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
    assert!(one(action("acme.Policy", vec![])).contains("acme.Policy: not supported"));
    assert!(one(object([])).contains("either a matcher or an action"));
    assert!(one(answers(vec![("status_code", Value::Integer(199))])).contains("a status from 200 to 599"));
    let length = object([("header", object([("key", text("Content-Length")), ("value", text("1"))]))]);
    assert!(one(answers(vec![("response_headers_to_add", list([length]))])).contains("the proxy writes this field"));
    let trailer = is("HttpResponseTrailerMatchInput", "x", "1");
    assert!(refused(tree([(trailer, says("x"))])).contains("HttpResponseTrailerMatchInput: not known yet"));
    assert!(refused(tree([(is("HttpRequestHeaderMatchInput", "", "1"), says("x"))])).contains("the name of a header"));
    let alone = object([("or_matcher", object([("predicate", list([status("401")]))]))]);
    assert!(refused(tree([(alone, says("x"))])).contains("at least two are required"));
    assert!(refused(tree([(object([]), says("x"))])).contains("one of single_predicate"));
    let keep = object([("keep_matching", Value::Bool(true)), ("matcher", tree([(status("401"), says("x"))]))]);
    assert!(one(keep).contains("the first match counts"));
    let elsewhere = object([("path_redirect", text("/a#b"))]);
    assert!(one(action(redirect::KIND, vec![("redirect_action", elsewhere)])).contains("a fragment"));
}

/// The request that fetches what takes the place of an answer with status 404.
fn detour(policy: Vec<(&str, Value)>, stream: &mut FakeStream) -> Option<Detour> {
    let filter = filter(&config(tree([(status("404"), action(redirect::KIND, policy))])), None);
    match stream.with(|stream| filter.on_response_headers(&mut State::default(), stream, false)) {
        Action::Detour(detour) => Some(*detour),
        Action::Done => None,
        other => panic!("{other:?}"),
    }
}

fn header(name: &str, value: &str) -> Value {
    object([("header", object([("key", text(name)), ("value", text(value))]))])
}

#[test]
fn an_answer_is_fetched_and_finished() {
    let policy = || {
        vec![
            ("uri", text("https://errors.test:8443/a?b#c")),
            ("status_code", Value::Integer(499)),
            ("request_headers_to_add", list([header("x-for", "%REQ(:path)%")])),
            ("response_headers_to_add", list([header("x-fetched", "%REQ(x-for)%")])),
        ]
    };
    let mut stream = answer_of(404, VIA_UPSTREAM);
    stream.request.set_method(b"POST").unwrap();
    stream.request.fields.append_name(b"content-length", b"3").unwrap();
    let found = detour(policy(), &mut stream).unwrap();
    let head = &found.head;
    assert_eq!(
        (head.method(), head.authority(), head.path()),
        (Method::Get, b"errors.test:8443".as_slice(), b"/a?b".as_slice())
    );
    assert_eq!(head.scheme(), Some(Scheme::Https));
    let kept: Vec<String> = lines(&head.fields).into_iter().filter(|line| !line.starts_with("host")).collect();
    assert_eq!(kept, ["x-q: 1", "x-q: 2", "x-for: /a?b"]);
    // The request that was answered stays what it was.
    assert_eq!((stream.request.method(), stream.request.path()), (Method::Post, b"/p".as_slice()));

    // Whatever the chosen route says, its answer is finished, and not replaced once more.
    for fetched in [200, 404] {
        let mut second = answer_of(fetched, VIA_UPSTREAM);
        second.request = head.clone();
        second.info.shared.push(found.note.clone());
        let filter = filter(&config(tree([(status("404"), says("never")), (status("200"), says("never"))])), None);
        assert!(reply(&*filter, &mut second).is_none());
        let added = second.response.fields.get_name(b"x-fetched");
        assert_eq!((second.response.status(), added), (499, Some(b"/a?b".as_slice())), "{fetched}");
    }
}

#[test]
fn nothing_is_fetched_for_an_answer_of_a_filter_in_front() {
    let fetch = action(redirect::KIND, vec![("uri", text("http://a/"))]);
    let filter = filter(&config(tree([(status("404"), fetch)])), None);
    let asked = |state: &mut State, details: &'static str| {
        let mut stream = answer_of(404, details);
        matches!(stream.with(|stream| filter.on_response_headers(state, stream, false)), Action::Detour(_))
    };
    let mut seen = State::default();
    request("/p", &[]).with(|stream| filter.on_request_headers(&mut seen, stream, true));
    assert!(filter.hooks().request_headers);
    assert!(asked(&mut seen, "fault_filter_abort"), "a filter behind answered");
    assert!(!asked(&mut State::default(), "fault_filter_abort"));
    assert!(asked(&mut State::default(), VIA_UPSTREAM), "the configuration of another route has seen the request");
}

#[test]
fn a_policy_without_a_status_keeps_that_of_the_answer_that_is_replaced() {
    let found = detour(vec![("uri", text("http://a/"))], &mut answer_of(404, VIA_UPSTREAM)).unwrap();
    let mut second = answer_of(200, VIA_UPSTREAM);
    second.info.shared.push(found.note);
    assert!(reply(&*filter(&object([]), None), &mut second).is_none());
    assert_eq!(second.response.status(), 404);
}

#[test]
fn what_cannot_be_fetched_leaves_the_answer() {
    let elsewhere = |host: &str| vec![("redirect_action", object([("host_redirect", text(host))]))];
    let mut stream = answer_of(404, VIA_UPSTREAM);
    assert_eq!(detour(elsewhere("other"), &mut stream).unwrap().head.authority(), b"other");
    assert!(detour(elsewhere("no host"), &mut stream).is_none());
    stream.host.routeless = true;
    assert!(detour(elsewhere("other"), &mut stream).is_none());
    let made = object([("path_rewrite", text("/made%REQ(:path)%"))]);
    let detoured = detour(vec![("redirect_action", made)], &mut answer_of(404, VIA_UPSTREAM)).unwrap();
    assert!(detoured.head.path().starts_with(b"/"), "{:?}", detoured.head.path());
    // Who asks for a head alone can take no more.
    let mut head = answer_of(404, VIA_UPSTREAM);
    head.request.set_method(b"HEAD").unwrap();
    assert_eq!(detour(elsewhere("other"), &mut head).unwrap().head.method(), Method::Head);
}

#[test]
fn policies_that_fetch_are_refused_where_they_say_too_much_or_too_little() {
    let one = |policy: Vec<(&str, Value)>| refused(tree([(status("401"), action(redirect::KIND, policy))]));
    let both = vec![("uri", text("http://a/")), ("redirect_action", object([]))];
    assert!(one(both).contains("exactly one of uri and redirect_action"));
    assert!(one(vec![]).contains("exactly one of uri and redirect_action"));
    assert!(one(vec![("uri", text("/a"))]).contains("no absolute URI"));
    let parts = |key: &str, value: Value| one(vec![("redirect_action", object([(key, value)]))]);
    assert!(parts("path_rewrite", text("%NONSENSE%")).contains("path_rewrite"));
    assert!(parts("prefix_rewrite", text("/")).contains("prefix_rewrite: another path"));
    assert!(parts("response_code", text("FOUND")).contains("status_code of the policy"));
    assert!(parts("port_redirect", Value::Integer(65536)).contains("a port from 1 to 65535"));
    let extension = ("modify_request_headers_action", object([("name", text("x"))]));
    assert!(one(vec![("uri", text("http://a/")), extension]).contains("by an extension"));
}
