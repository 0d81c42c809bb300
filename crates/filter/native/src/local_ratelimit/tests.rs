use super::limiter::{Plan, Rule, Rules};
use super::*;
use crate::testing::{lines, list, object, place, text};
use postrider_filter_api::Noted;
use postrider_filter_api::testing::FakeStream;
use std::time::{Duration, SystemTime};

fn bucket(max: i64, fill: &str) -> Value {
    object([("max_tokens", Value::Integer(max)), ("fill_interval", text(fill))])
}

fn share(percent: i64) -> Value {
    object([("default_value", object([("numerator", Value::Integer(percent))]))])
}

fn config(entries: Vec<(&str, Value)>) -> Value {
    let mut all = vec![
        ("stat_prefix".to_owned(), text("p")),
        ("filter_enabled".to_owned(), share(100)),
        ("filter_enforced".to_owned(), share(100)),
    ];
    for (key, value) in entries {
        all.retain(|(known, _)| known != key);
        all.push((key.to_owned(), value));
    }
    Value::Map(all)
}

fn gate(entries: Vec<(&str, Value)>) -> Rc<dyn Filter> {
    build("limit", &config(entries)).ok().unwrap().filter(&ScopedConfigs::default(), &place())
}

fn ask(gate: &dyn Filter, stream: &mut FakeStream) -> Option<LocalReply> {
    let mut state = State::default();
    let action = stream.with(|stream| gate.on_request_headers(&mut state, stream, true));
    stream.with(|stream| gate.on_response_headers(&mut state, stream, true));
    if let Action::Respond(reply) = action { Some(*reply) } else { None }
}

fn limited(gate: &dyn Filter) -> bool {
    ask(gate, &mut FakeStream::new("GET", "/", &[])).is_some()
}

#[test]
fn requests_are_refused_when_the_bucket_is_empty() {
    let gate = gate(vec![("token_bucket", bucket(2, "10s")), ("enable_retry_after_header", Value::Bool(true))]);
    assert!(!limited(&*gate) && !limited(&*gate));
    let mut stream = FakeStream::new("GET", "/", &[]);
    stream.host.clock = || (Moment::from_nanos(4_000_000_000), SystemTime::UNIX_EPOCH);
    let reply = ask(&*gate, &mut stream).unwrap();
    assert_eq!((reply.status, &*reply.body, &*reply.details), (429, &b"local_rate_limited"[..], "local_rate_limited"));
    assert_eq!(reply.headers, [("retry-after".into(), b"6"[..].into())]);
    assert!(stream.info.flags.contains(Flags::RATE_LIMITED));
    stream.host.clock = || (Moment::from_nanos(10_000_000_000), SystemTime::UNIX_EPOCH);
    assert!(ask(&*gate, &mut stream).is_none());
}

#[test]
fn workers_and_routes_without_an_override_share_the_buckets() {
    let factory = build("limit", &config(vec![("token_bucket", bucket(1, "10s"))])).ok().unwrap();
    let own = factory.route_config(KIND, &config(vec![("token_bucket", bucket(1, "10s"))])).ok().unwrap();
    let plain = ScopedConfigs::default();
    let overridden = ScopedConfigs { route: Some(own), ..ScopedConfigs::default() };
    let (first, second) = (factory.filter(&plain, &place()), factory.filter(&plain, &place()));
    assert!(!limited(&*first) && limited(&*second));
    assert!(!limited(&*factory.filter(&overridden, &place())));
    assert!(limited(&*factory.filter(&overridden, &place())));
}

#[test]
fn what_is_not_enforced_is_marked_and_a_share_of_nothing_is_not_counted() {
    let header = object([("header", object([("key", text("x-over")), ("value", text("1"))]))]);
    let lenient = gate(vec![
        ("token_bucket", bucket(1, "10s")),
        ("filter_enforced", share(0)),
        ("request_headers_to_add_when_not_enforced", list([header])),
    ]);
    let mut stream = FakeStream::new("GET", "/", &[]);
    assert!(ask(&*lenient, &mut stream).is_none());
    assert_eq!(lines(&stream.request.fields), [""; 0]);
    assert!(ask(&*lenient, &mut stream).is_none());
    assert_eq!(lines(&stream.request.fields), ["x-over: 1"]);
    assert!(!stream.info.flags.contains(Flags::RATE_LIMITED));
    assert_eq!(gate(vec![("filter_enabled", share(0))]).hooks(), Hooks::default());
    assert!(!limited(&*gate(vec![])), "without a bucket there is no limit");
}

#[test]
fn a_connection_may_have_its_own_buckets() {
    let own = Value::Bool(true);
    let gate = gate(vec![("token_bucket", bucket(1, "10s")), ("local_rate_limit_per_downstream_connection", own)]);
    let refused = |connection: &Rc<Noted>| {
        let mut stream = FakeStream::new("GET", "/", &[]);
        connection.begin(&mut stream.info);
        ask(&*gate, &mut stream).is_some()
    };
    let (first, second) = (Rc::<Noted>::default(), Rc::<Noted>::default());
    assert!(!refused(&first) && !refused(&second) && refused(&first) && refused(&second));
}

#[test]
fn the_buckets_of_closed_connections_stayed() {
    let value = config(vec![("token_bucket", bucket(1, "10s"))]);
    let scope = || Arc::new(Scope::new(config::read(&value, false).ok().unwrap()));
    let (kept, gone) = (scope(), scope());
    let own = OfConnection::default();
    let now = Moment::default();
    for scope in [&kept, &gone] {
        assert!(own.judge(scope, &[], now).allowed && !own.judge(scope, &[], now).allowed);
    }
    let weak = Arc::downgrade(gone.limiter());
    drop(gone);
    assert!(own.judge(&scope(), &[], now).allowed);
    assert!(weak.upgrade().is_none(), "what only a connection has goes when it meets another one");
    assert!(!own.judge(&kept, &[], now).allowed);
}

#[test]
fn answers_tell_about_the_limit() {
    let gate = gate(vec![("token_bucket", bucket(3, "10s")), ("enable_x_ratelimit_headers", text("DRAFT_VERSION_03"))]);
    let mut stream = FakeStream::new("GET", "/", &[]);
    assert!(ask(&*gate, &mut stream).is_none());
    let want = ["x-ratelimit-limit: 3", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 0"];
    assert_eq!(lines(&stream.response.fields), want);
}

fn plan(max: u32, seconds: u64) -> Plan {
    Plan { max, per_fill: 1, interval: Duration::from_secs(seconds) }
}

fn rule(entries: &[(&str, &str)], plan: Plan) -> Rule {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Rule { entries: entries.iter().map(pair).collect(), plan, shadow: false }
}

fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    Descriptor { entries: rule(entries, plan(1, 1)).entries, ..Descriptor::default() }
}

#[test]
fn a_rule_covers_the_same_entries_and_an_open_value_has_a_bucket_for_each() {
    let rules = Rules {
        default: None,
        rules: vec![
            rule(&[("path", "/a")], plan(1, 60)),
            rule(&[("user", ""), ("path", "/a")], plan(1, 60)),
            rule(&[("user", "vip"), ("path", "/a")], plan(2, 60)),
        ],
        always_default: true,
        max_dynamic: 2,
    };
    let limiter = Limiter::new(&rules);
    let allowed =
        |entries: &[(&str, &str)]| limiter.judge(&rules, &[descriptor(entries)], 1, Moment::default()).allowed;
    assert!(allowed(&[("path", "/a")]) && !allowed(&[("path", "/a")]));
    assert!(allowed(&[("path", "/b")]) && allowed(&[("path", "/b")]));
    let user = |name| allowed(&[("user", name), ("path", "/a")]);
    assert!(user("vip") && user("vip") && !user("vip"), "the exact rule goes before the open one");
    assert!(user("a") && !user("a") && user("b") && !user("b"));
    assert!(!user("a"), "now b was asked for longest ago");
    assert!(user("c"), "b makes room");
    assert!(!user("a") && user("b"), "and is full when it comes back");
}

#[test]
fn the_slowest_bucket_is_asked_first_and_the_default_one_last() {
    let mut rules = Rules {
        default: Some(plan(3, 60)),
        rules: vec![rule(&[("a", "1")], plan(9, 1)), rule(&[("b", "1")], plan(1, 60))],
        always_default: false,
        max_dynamic: 1,
    };
    let both = [descriptor(&[("a", "1")]), descriptor(&[("b", "1")])];
    let limiter = Limiter::new(&rules);
    let tokens = |bucket: &Bucket| bucket.tokens(Moment::default());
    let first = limiter.judge(&rules, &both, 1, Moment::default());
    assert!(first.allowed && first.bucket.as_ref().is_some_and(|bucket| bucket.max() == 1.0));
    let second = limiter.judge(&rules, &both, 1, Moment::default());
    assert!(!second.allowed && second.bucket.as_ref().is_some_and(|bucket| bucket.max() == 1.0));
    let quick = limiter.judge(&rules, &both[..1], 1, Moment::default());
    assert_eq!(quick.bucket.as_deref().map(tokens), Some(7.0), "what was refused cost the quick one nothing");
    let other = |rules: &Rules| limiter.judge(rules, &[descriptor(&[("c", "1")])], 1, Moment::default());
    assert_eq!(other(&rules).bucket.as_deref().map(tokens), Some(2.0), "the others drew nothing of the default");
    rules.always_default = true;
    assert!(limiter.judge(&rules, &both[..1], 1, Moment::default()).allowed);
    assert_eq!(other(&rules).bucket.as_deref().map(tokens), Some(0.0));
    assert!(!limiter.judge(&rules, &both[..1], 1, Moment::default()).allowed);
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let paths = |value: &Value| {
        let errors = build("limit", value).err().unwrap_or_default();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&object([])), ["stat_prefix"]);
    assert_eq!(paths(&config(vec![("token_bucket", bucket(1, "0.01s"))])), ["token_bucket.fill_interval"]);
    let twice = object([("entries", list([object([("key", text("k"))])])), ("token_bucket", bucket(1, "1s"))]);
    assert_eq!(paths(&config(vec![("descriptors", list([twice.clone(), twice]))])), ["descriptors"]);
    assert_eq!(
        paths(&config(vec![
            ("local_rate_limit_per_downstream_connection", Value::Bool(true)),
            ("local_cluster_rate_limit", object([])),
            ("descriptors", list([object([])])),
        ])),
        ["local_cluster_rate_limit", "descriptors[0].entries", "descriptors[0].token_bucket"]
    );
    for (key, name) in [
        ("request_headers_to_add_when_not_enforced", "host"),
        ("request_headers_to_add_when_not_enforced", ":path"),
        ("request_headers_to_add_when_not_enforced", "content-length"),
        ("response_headers_to_add", "transfer-encoding"),
    ] {
        let header = object([("header", object([("key", text(name)), ("value", text("1"))]))]);
        assert_eq!(paths(&config(vec![(key, list([header]))])), [format!("{key}[0].header.key")], "{name}");
    }
    let factory = build("limit", &config(vec![])).ok().unwrap();
    assert_eq!(factory.route_config(KIND, &config(vec![])).err().unwrap()[0].path, "token_bucket");
    assert!(factory.route_config("other", &config(vec![])).is_err());
}
