use super::*;
use crate::testing::{lines, list, object, place, request, text};
use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Answer, CallFailure, Moment};
use postrider_http::{Fields, ResponseHead};
use std::time::SystemTime;

const GENERIC: &str = "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic";
const OAUTH2: &str = "type.googleapis.com/envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2";

fn with(mut value: Value, key: &str, more: Value) -> Value {
    if let Value::Map(entries) = &mut value {
        entries.retain(|(known, _)| known != key);
        entries.push((key.to_owned(), more));
    }
    value
}

/// As the configuration's reader supplies it.
fn secret(content: &str) -> Value {
    let secret = object([("secret", object([("inline_string", text(content))]))]);
    object([("name", text("s")), ("sds_config", object([])), ("generic_secret", secret)])
}

fn config(credential: Value) -> Value {
    object([("credential", object([("name", text("c")), ("typed_config", credential)]))])
}

fn generic(content: &str) -> Value {
    object([("@type", text(GENERIC)), ("credential", secret(content))])
}

fn oauth2() -> Value {
    let uri =
        object([("uri", text("https://auth.test/token?v=1")), ("cluster", text("auth")), ("timeout", text("3s"))]);
    let credentials = object([("client_id", text("i:d")), ("client_secret", secret("s&t\n"))]);
    object([("@type", text(OAUTH2)), ("token_endpoint", uri), ("client_credentials", credentials)])
}

fn filter(config: &Value) -> Rc<dyn Filter> {
    let factory = build("x", config).unwrap_or_else(|errors| panic!("{errors:?}"));
    factory.filter(&ScopedConfigs::default(), &place())
}

/// What the upstream gets, or what the client is told.
fn outcome(action: Action, stream: &FakeStream) -> String {
    match action {
        Action::Done => lines(&stream.request.fields).join(" "),
        Action::Pause => "waits".to_owned(),
        Action::Respond(reply) => {
            format!("{} {} {}", reply.status, String::from_utf8_lossy(&reply.body), reply.details)
        }
        other => panic!("{other:?}"),
    }
}

fn ask(filter: &dyn Filter, stream: &mut FakeStream) -> String {
    let action = stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, true));
    outcome(action, stream)
}

fn resumed(filter: &dyn Filter, stream: &mut FakeStream) -> String {
    let action = stream.with(|stream| filter.on_request_resumed(&mut State::default(), stream));
    outcome(action, stream)
}

fn refused(credential: Value) -> String {
    let errors = build("x", &config(credential)).err().expect("refused");
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; ")
}

const FAILED: &str = "401 Failed to inject credential. failed_to_inject_credential";

#[test]
fn a_secret_is_put_into_its_header() {
    let plain = filter(&config(generic("Bearer t\n")));
    assert_eq!(ask(&*plain, &mut request("/", &[])), "authorization: Bearer t");
    let there = &mut request("/", &[("authorization", "own")]);
    assert_eq!(ask(&*plain, there), "authorization: own");
    let over = filter(&with(config(generic("t")), "overwrite", Value::Bool(true)));
    let twice = &mut request("/", &[("authorization", "own"), ("authorization", "other")]);
    assert_eq!(ask(&*over, twice), "authorization: t");
    let named = with(with(generic("t"), "header", text("X-Key")), "header_value_prefix", text("k "));
    assert_eq!(ask(&*filter(&config(named)), &mut request("/", &[])), "x-key: k t");
}

#[test]
fn without_a_credential_a_request_goes_on_only_where_that_is_allowed() {
    assert_eq!(ask(&*filter(&config(generic(""))), &mut request("/", &[])), FAILED);
    let allowed = with(config(generic("")), "allow_request_without_credential", Value::Bool(true));
    assert_eq!(ask(&*filter(&allowed), &mut request("/", &[])), "");
}

/// The answer of an authorization server.
fn issue(stream: &FakeStream, status: u16, body: &str) {
    let mut head = ResponseHead::new();
    head.reply(status);
    assert!(stream.host.answer(Ok(Answer { head, body: body.into(), trailers: Fields::new() })));
}

fn at_second(stream: &mut FakeStream, clock: fn() -> (Moment, SystemTime)) {
    stream.host.clock = clock;
}

#[test]
fn a_token_is_asked_for_once_by_all_who_wait() {
    let filter = filter(&config(with(oauth2(), "scopes", list([text("a b"), text("c")]))));
    let (mut first, mut second) = (request("/", &[]), request("/", &[]));
    assert_eq!(ask(&*filter, &mut first), "waits");
    assert_eq!(ask(&*filter, &mut second), "waits");
    assert!(second.host.calls.borrow().is_empty());
    {
        let calls = first.host.calls.borrow();
        let call = &calls[0];
        assert_eq!(
            (&*call.cluster, call.head.method_bytes(), call.head.path()),
            ("auth", &b"POST"[..], &b"/token?v=1"[..])
        );
        let wanted =
            ["content-type: application/x-www-form-urlencoded", "user-agent: Go-browser", "accept: application/json"];
        let got = lines(&call.head.fields);
        assert!(wanted.iter().all(|line| got.iter().any(|known| known == line)), "{got:?}");
        assert_eq!(call.head.authority(), b"auth.test");
        let body = "grant_type=client_credentials&client_id=i%3Ad&client_secret=s%26t&scope=a%20b%20c";
        assert_eq!(String::from_utf8_lossy(&call.body), body);
        assert_eq!(call.timeout.map(|timeout| timeout.as_secs()), Some(3));
    }
    issue(&first, 200, r#"{"access_token": "t1", "token_type": "Bearer", "expires_in": 100}"#);
    assert_eq!(resumed(&*filter, &mut first), "authorization: Bearer t1");
    assert_eq!(resumed(&*filter, &mut second), "authorization: Bearer t1");
    // It stays good, and nobody asks again.
    let mut third = request("/", &[]);
    assert_eq!(ask(&*filter, &mut third), "authorization: Bearer t1");
    assert!(third.host.calls.borrow().is_empty());
}

#[test]
fn another_token_is_asked_for_at_half_of_its_time() {
    let filter = filter(&config(oauth2()));
    let mut first = request("/", &[]);
    assert_eq!(ask(&*filter, &mut first), "waits");
    issue(&first, 200, r#"{"access_token": "old", "expires_in": "100"}"#);
    // Meanwhile the one that is here is used.
    let mut half = request("/", &[]);
    at_second(&mut half, || (Moment::from_nanos(50_000_000_000), SystemTime::UNIX_EPOCH));
    assert_eq!(ask(&*filter, &mut half), "authorization: Bearer old");
    issue(&half, 200, r#"{"access_token": "new", "expires_in": 10}"#);
    let mut then = request("/", &[]);
    at_second(&mut then, || (Moment::from_nanos(51_000_000_000), SystemTime::UNIX_EPOCH));
    assert_eq!(ask(&*filter, &mut then), "authorization: Bearer new");
    assert!(then.host.calls.borrow().is_empty());
    // Once it is too old, a request waits for the next, and takes what is here when there is none.
    let mut late = request("/", &[]);
    at_second(&mut late, || (Moment::from_nanos(61_000_000_000), SystemTime::UNIX_EPOCH));
    assert_eq!(ask(&*filter, &mut late), "waits");
    assert!(late.host.answer(Err(CallFailure::Timeout)));
    assert_eq!(resumed(&*filter, &mut late), "authorization: Bearer new");
}

#[test]
fn what_is_no_token_is_asked_for_again_after_a_while() {
    for (status, body) in [
        (500, r#"{"access_token": "t", "expires_in": 1}"#),
        (200, r#"{"access_token": "t"}"#),
        (200, r#"{"access_token": "", "expires_in": 1}"#),
        (200, r#"{"access_token": "a\nb", "expires_in": 1}"#),
        (200, "no JSON"),
    ] {
        let filter = filter(&config(oauth2()));
        let mut first = request("/", &[]);
        assert_eq!(ask(&*filter, &mut first), "waits");
        issue(&first, status, body);
        assert_eq!(resumed(&*filter, &mut first), FAILED, "{body}");
        let mut soon = request("/", &[]);
        at_second(&mut soon, || (Moment::from_nanos(1_999_000_000), SystemTime::UNIX_EPOCH));
        assert_eq!(ask(&*filter, &mut soon), FAILED);
        let mut later = request("/", &[]);
        at_second(&mut later, || (Moment::from_nanos(2_000_000_000), SystemTime::UNIX_EPOCH));
        assert_eq!(ask(&*filter, &mut later), "waits");
    }
}

#[test]
fn a_client_says_who_it_is_by_a_secret_or_a_certificate() {
    let body = |kind: &str| {
        let credentials =
            object([("client_id", text("i:d")), ("client_secret", secret("s&t")), ("auth_type", text(kind))]);
        let parameter = object([("name", text("a b")), ("value", text("ü"))]);
        let client = with(oauth2(), "client_credentials", credentials);
        let filter = filter(&config(with(client, "endpoint_params", list([parameter]))));
        let mut stream = request("/", &[]);
        assert_eq!(ask(&*filter, &mut stream), "waits");
        let calls = stream.host.calls.borrow();
        String::from_utf8(calls[0].body.clone()).unwrap()
    };
    let more = "&a%20b=%C3%BC";
    let grant = "grant_type=client_credentials";
    for kind in ["BASIC_AUTH", "URL_ENCODED_BODY"] {
        assert_eq!(body(kind), format!("{grant}&client_id=i%3Ad&client_secret=s%26t{more}"));
    }
    assert_eq!(body("TLS_CLIENT_AUTH"), format!("{grant}&client_id=i%3Ad{more}"));
}

#[test]
fn nobody_asks_without_a_secret_or_a_cluster() {
    let credentials = object([("client_id", text("id")), ("client_secret", secret(""))]);
    let silent = filter(&config(with(oauth2(), "client_credentials", credentials)));
    assert_eq!(ask(&*silent, &mut request("/", &[])), FAILED);
    let mut elsewhere = request("/", &[]);
    elsewhere.host.clusters = vec!["other".to_owned()];
    assert_eq!(ask(&*filter(&config(oauth2())), &mut elsewhere), FAILED);
}

#[test]
fn what_is_no_credential_is_refused() {
    assert!(build("x", &object([])).err().expect("refused")[0].message.contains("is required"));
    assert!(refused(object([("@type", text("x/acme.Own"))])).contains("acme.Own: not supported"));
    assert!(refused(object([("@type", text(GENERIC))])).contains("the name of a secret is required"));
    assert!(refused(generic("a\nb")).contains("control characters"));
    assert!(refused(with(generic("a"), "header", text("host"))).contains("the proxy writes this field"));
    let missing = |key: &str| match oauth2() {
        Value::Map(entries) => refused(Value::Map(entries.into_iter().filter(|(known, _)| known != key).collect())),
        other => panic!("{other:?}"),
    };
    assert!(missing("token_endpoint").contains("where tokens are asked for"));
    assert!(missing("client_credentials").contains("who asks is required"));
    let often = with(oauth2(), "token_fetch_retry_interval", text("0.5s"));
    assert!(refused(often).contains("one second at least"));
}

#[test]
fn secrets_are_not_shown() {
    let (config, _) = config::read(&config(generic("hidden"))).unwrap();
    assert!(!format!("{config:?}").contains("hidden"));
}
