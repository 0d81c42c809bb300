//! The rows were observed on Envoy 1.40.

use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::testing::FakeStream;

use super::*;
use crate::request_parts::MAX_REALM_PATH;
use crate::testing::{lines, object, request, request_headers, text};

fn users(list: &str) -> Value {
    object([("inline_string", text(list))])
}

/// The password is `test1`.
const USER: &str = "u1:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw=";

fn factory(entries: &[(&str, &str)]) -> Arc<dyn Factory> {
    let mut config = vec![("users".to_owned(), users(USER))];
    config.extend(entries.iter().map(|(key, value)| ((*key).to_owned(), text(value))));
    build("auth", &Value::Map(config)).ok().unwrap()
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

/// The details of the refusal; `None` when the request may go on.
fn refusal(filter: &dyn Filter, stream: &mut FakeStream) -> Option<String> {
    match request_headers(stream, filter) {
        Action::Continue => None,
        Action::Respond(reply) => {
            assert_eq!(reply.status, 401);
            Some(reply.details.into_owned())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn credentials_are_judged_by_scheme_form_and_user() {
    let filter = factory(&[]).filter(&ScopedConfigs::default(), &crate::testing::place());
    let right = basic("u1:test1");
    let unpadded = right.trim_end_matches('=').to_owned();
    let rows: &[(&[&str], Option<&str>)] = &[
        (&[&right], None),
        (&[&unpadded], None),
        (&[], Some("no_credential_for_basic_auth")),
        (&["Bearer x"], Some("invalid_scheme_for_basic_auth")),
        (&["Basic"], Some("invalid_scheme_for_basic_auth")),
        (&[&right.replace("Basic", "basic")], Some("invalid_scheme_for_basic_auth")),
        (&["Basic !!!"], Some("invalid_format_for_basic_auth")),
        // Up to two at the end, however many belong there.
        (&[&format!("{}==", right.trim_end_matches('='))], None),
        (&[&format!("{}=", right.trim_end_matches('='))], None),
        (&[&format!("{}===", right.trim_end_matches('='))], Some("invalid_format_for_basic_auth")),
        (&[&basic("u1")], Some("invalid_format_for_basic_auth")),
        (&[&right.replace(' ', "   ")], Some("invalid_format_for_basic_auth")),
        (&[&format!("{right}x")], Some("invalid_format_for_basic_auth")),
        (&[&right, &basic("u1:bad")], Some("invalid_format_for_basic_auth")),
        (&[&basic("u1:bad"), &right], Some("invalid_format_for_basic_auth")),
        (&[&basic("u1:bad")], Some("invalid_credential_for_basic_auth")),
        (&[&basic("nobody:test1")], Some("invalid_credential_for_basic_auth")),
        (&[&basic("u1:test1:")], Some("invalid_credential_for_basic_auth")),
        (&[&basic("u1:")], Some("invalid_credential_for_basic_auth")),
        (&[&basic(":test1")], Some("invalid_credential_for_basic_auth")),
    ];
    // Twice: the second round meets a warm cache.
    for (values, want) in rows.iter().chain(rows) {
        let fields: Vec<(&str, &str)> = values.iter().map(|value| ("authorization", *value)).collect();
        assert_eq!(refusal(&*filter, &mut request("/", &fields)).as_deref(), *want, "{values:?}");
    }
}

#[test]
fn the_challenge_names_the_uri_and_quotes_it() {
    let filter = factory(&[]).filter(&ScopedConfigs::default(), &crate::testing::place());
    let challenge_for = |path: &str, fields: &[(&str, &str)]| {
        let Action::Respond(reply) = request_headers(&mut request(path, fields), &*filter) else { panic!("admitted") };
        assert_eq!(&*reply.body, b"User authentication failed. Missing username and password.");
        let (name, value) = &reply.headers[0];
        assert_eq!((&**name, reply.headers.len()), ("www-authenticate", 1));
        String::from_utf8(value.to_vec()).unwrap()
    };
    assert_eq!(challenge_for("/p?q=1", &[]), r#"Basic realm="http://x/p?q=1""#);
    assert_eq!(challenge_for(r#"/a"b\c"#, &[]), r#"Basic realm="http://x/a\"b\\c""#);
    assert_eq!(challenge_for("/a", &[("x-forwarded-proto", "https")]), r#"Basic realm="https://x/a""#);
    assert_eq!(challenge_for("/a", &[("x-envoy-original-path", "/zz")]), r#"Basic realm="http://x/zz""#);
    let long = challenge_for(&format!("/{}", "a".repeat(3000)), &[]);
    assert_eq!(long.len(), r#"Basic realm="http://x""#.len() + MAX_REALM_PATH);
}

#[test]
fn the_upstream_learns_the_name_and_no_forged_one() {
    let filter =
        factory(&[("forward_username_header", "X-User")]).filter(&ScopedConfigs::default(), &crate::testing::place());
    let right = basic("u1:test1");
    let mut stream = request("/", &[("authorization", &right), ("x-user", "root"), ("x-user", "admin")]);
    assert_eq!(refusal(&*filter, &mut stream), None);
    assert_eq!(lines(&stream.request.fields), [format!("authorization: {right}"), "x-user: u1".into()]);
}

#[test]
fn credentials_may_stand_in_another_header() {
    let filter =
        factory(&[("authentication_header", "x-auth")]).filter(&ScopedConfigs::default(), &crate::testing::place());
    let right = basic("u1:test1");
    assert_eq!(refusal(&*filter, &mut request("/", &[("x-auth", &right)])), None);
    assert!(refusal(&*filter, &mut request("/", &[("authorization", &right)])).is_some());
}

#[test]
fn the_most_specific_users_count_alone() {
    let factory = factory(&[]);
    let route = |list: &str| factory.route_config(ROUTE_KIND, &object([("users", users(list))])).ok();
    let configs = ScopedConfigs {
        virtual_host: route("u2:{SHA}EJ9LPFDXsN9ynSmbxvjp75Bmlx8="),
        route: route("u3:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw="),
        ..ScopedConfigs::default()
    };
    let filter = factory.filter(&configs, &crate::testing::place());
    for (credentials, admitted) in [("u1:test1", false), ("u2:test2", false), ("u3:test1", true)] {
        let value = basic(credentials);
        let outcome = refusal(&*filter, &mut request("/", &[("authorization", &value)]));
        assert_eq!(outcome.is_none(), admitted, "{credentials}");
    }
}

#[test]
fn a_realm_may_have_a_name_in_each_scope() {
    let config = |realm: &str| object([("users", users(USER)), ("realm", text(realm))]);
    let factory = build("auth", &config(r#"a"b\c"#)).ok().unwrap();
    let challenge = |route: Option<Value>| {
        let route = route.map(|config| factory.route_config(ROUTE_KIND, &config).ok().unwrap());
        let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &crate::testing::place());
        let Action::Respond(reply) = request_headers(&mut request("/", &[]), &*filter) else { panic!("admitted") };
        String::from_utf8(reply.headers[0].1.to_vec()).unwrap()
    };
    assert_eq!(challenge(None), r#"Basic realm="a\"b\\c""#);
    assert_eq!(challenge(Some(config("own"))), r#"Basic realm="own""#);
    assert_eq!(challenge(Some(config(""))), r#"Basic realm="a\"b\\c""#);
}

#[test]
fn who_says_nothing_may_pass_unnamed() {
    let config = object([
        ("users", users(USER)),
        ("forward_username_header", text("x-user")),
        ("allow_missing", Value::Bool(true)),
        ("emit_dynamic_metadata", Value::Bool(true)),
    ]);
    let filter = build("auth", &config).ok().unwrap().filter(&ScopedConfigs::default(), &crate::testing::place());
    let user = |credentials: Option<&str>| {
        let fields: Vec<_> = credentials.map(|value| ("authorization", value)).into_iter().collect();
        let mut stream = request("/", &fields);
        let noted = match refusal(&*filter, &mut stream) {
            None => stream.info.metadata.namespace("auth").cloned(),
            Some(details) => return Err(details),
        };
        Ok(noted)
    };
    for missing in [None, Some("Bearer x"), Some("basic x"), Some("Basic"), Some("")] {
        assert_eq!(user(missing), Ok(None), "{missing:?}");
    }
    assert_eq!(user(Some(&basic("u1:test1"))), Ok(Some(object([("username", text("u1"))]))));
    assert_eq!(user(Some("Basic !!")), Err("invalid_format_for_basic_auth".to_owned()));
    assert_eq!(user(Some(&basic("u1:bad"))), Err("invalid_credential_for_basic_auth".to_owned()));
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let bad = object([
        ("users", users("u1:plain\nu2")),
        ("forward_username_header", text("a b")),
        ("realm", text("a\u{7}")),
        ("allow_missing", text("yes")),
        ("odd", Value::Bool(true)),
    ]);
    let errors = build("auth", &bad).err().unwrap();
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["users", "users", "forward_username_header", "allow_missing", "realm", "odd"]);
    assert_eq!(build("auth", &object([])).err().unwrap()[0].path, "users");
    assert!(factory(&[]).route_config(KIND, &object([])).is_err());
    assert!(factory(&[]).route_config(ROUTE_KIND, &object([])).is_err());
}
