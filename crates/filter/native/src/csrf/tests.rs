use super::*;
use crate::testing::{list, object, place, text};
use postrider_filter_api::testing::FakeStream;

fn share(percent: i64) -> Value {
    object([("default_value", object([("numerator", Value::Integer(percent))]))])
}

fn gate(enabled: i64, shadow: i64) -> Gate {
    let origins = list([object([("exact", text("friend.test"))]), object([("suffix", text(".mine.test"))])]);
    let config = object([
        ("filter_enabled", share(enabled)),
        ("shadow_enabled", share(shadow)),
        ("additional_origins", origins),
    ]);
    let policy = Arc::new(Reading::all(&config, Policy::read).ok().unwrap());
    Gate { policy, stats: place().stats.block(&stat::SET, "x") }
}

fn refused(gate: &Gate, method: &str, fields: &[(&str, &str)]) -> bool {
    // The fake's host is `x`.
    let mut stream = FakeStream::new(method, "/", fields);
    match stream.with(|stream| gate.on_request_headers(&mut State::default(), stream, true)) {
        Action::Respond(reply) => {
            assert_eq!((reply.status, &*reply.details), (403, "csrf_origin_mismatch"));
            true
        }
        _ => false,
    }
}

#[test]
fn a_change_must_come_from_the_same_host_or_a_friend() {
    let gate = gate(100, 0);
    for (fields, refusal, counter) in [
        (&[("origin", "http://x")][..], false, stat::VALID),
        (&[("origin", "https://x")], false, stat::VALID),
        (&[("origin", "x")], false, stat::VALID),
        (&[("referer", "http://x/page?q#f")], false, stat::VALID),
        (&[("origin", "http://friend.test")], false, stat::VALID),
        (&[("origin", "http://a.mine.test")], false, stat::VALID),
        (&[("origin", "http://evil.test")], true, stat::INVALID),
        (&[("origin", "http://x:8080")], true, stat::INVALID),
        (&[("origin", "http://x#f")], true, stat::INVALID),
        (&[("origin", "http://u@x/a#f")], false, stat::VALID),
        (&[("origin", "1://x")], true, stat::INVALID),
        (&[("origin", "http://evil#@x")], true, stat::INVALID),
        (&[("origin", "http://evil\\@x")], true, stat::INVALID),
        (&[("origin", "http://a@evil@x")], true, stat::INVALID),
        (&[("origin", "http://null")], true, stat::INVALID),
        (&[("referer", "null")], true, stat::INVALID),
        (&[("origin", "null"), ("referer", "http://x/")], true, stat::MISSING),
        (&[("origin", "http://x"), ("origin", "http://evil")], true, stat::INVALID),
        (&[("origin", "http://x.evil")], true, stat::INVALID),
        (&[("origin", "null")], true, stat::MISSING),
        (&[("origin", "http://evil.test"), ("referer", "http://x/")], true, stat::INVALID),
        (&[("origin", ""), ("referer", "http://x/")], false, stat::VALID),
        (&[], true, stat::MISSING),
    ] {
        let before = gate.stats.value(counter);
        assert_eq!(refused(&gate, "POST", fields), refusal, "{fields:?}");
        assert_eq!(gate.stats.value(counter), before + 1, "{fields:?}");
    }
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        assert!(!refused(&gate, method, &[]), "{method}");
    }
    for method in ["PUT", "DELETE", "PATCH"] {
        assert!(refused(&gate, method, &[]), "{method}");
    }
}

#[test]
fn a_shadowed_policy_only_counts() {
    let shadowed = gate(0, 100);
    assert!(!refused(&shadowed, "POST", &[]));
    assert_eq!(shadowed.stats.value(stat::MISSING), 1);
    assert_eq!(gate(0, 0).hooks(), Hooks::default());
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let errors = build("csrf", &object([("additional_origins", list([object([])])), ("odd", Value::Bool(true))]));
    let paths: Vec<String> = errors.err().unwrap().into_iter().map(|error| error.path).collect();
    assert_eq!(paths, ["filter_enabled", "additional_origins[0]", "odd"]);
}
