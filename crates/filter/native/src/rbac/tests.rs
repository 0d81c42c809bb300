use std::rc::Rc;

use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{Certificates, TlsSession};
use postrider_model::CertificatePart;

use super::*;
use crate::testing::{list, object, request, request_headers, text};
use postrider_filter_api::{Admission, Visit};

fn exact(value: &str) -> Value {
    object([("exact", text(value))])
}

fn anybody() -> Value {
    object([("any", Value::Bool(true))])
}

fn path(value: &str) -> Value {
    object([("url_path", object([("path", exact(value))]))])
}

/// One policy `p`.
fn rules(action: &str, permission: Value, principal: Value) -> Value {
    let policy = object([("permissions", list([permission])), ("principals", list([principal]))]);
    object([("action", text(action)), ("policies", object([("p", policy)]))])
}

fn filter(config: &Value) -> Rc<dyn Filter> {
    build("rbac", config).ok().unwrap().filter(&ScopedConfigs::default(), &crate::testing::place())
}

/// Whether rules that allow the permission to the principal let the request pass.
fn allows(permission: Value, principal: Value, stream: &mut FakeStream) -> bool {
    let config = object([("rules", rules("ALLOW", permission, principal))]);
    !matches!(request_headers(stream, &*filter(&config)), Action::Respond(_))
}

fn errors(config: Value) -> Vec<String> {
    build("rbac", &config).err().unwrap().into_iter().map(|error| error.path).collect()
}

#[test]
fn each_permission_looks_at_its_part_of_the_request() {
    let holds = |permission: Value, want: bool| {
        let mut stream = request("/a/b?q=1", &[("x", "1"), ("x", "2")]);
        stream.info.downstream_local = Some("10.0.0.1:8080".parse().unwrap());
        let tls = TlsSession { server_name: Some("a.test".into()), ..TlsSession::default() };
        stream.info.tls = Some(Rc::new(tls));
        stream.info.metadata.set("n", "k", text("v"));
        assert_eq!(allows(permission.clone(), anybody(), &mut stream), want, "{permission:?}");
    };
    let header =
        |name: &str, value: &str| object([("header", object([("name", text(name)), ("string_match", exact(value))]))]);
    let one = |key: &str, value: Value| object([(key, value)]);
    let set = |items: Vec<Value>| object([("rules", Value::List(items))]);
    let network =
        |address: &str, bits: i64| object([("address_prefix", text(address)), ("prefix_len", Value::Integer(bits))]);
    let range = |start: i64, end: i64| object([("start", Value::Integer(start)), ("end", Value::Integer(end))]);
    let metadata = |value: &str| {
        let value = object([("string_match", exact(value))]);
        object([("filter", text("n")), ("path", list([object([("key", text("k"))])])), ("value", value)])
    };
    holds(anybody(), true);
    holds(path("/a/b"), true);
    holds(path("/a/b?q=1"), false);
    holds(header(":path", "/a/b?q=1"), true);
    holds(header("x", "2"), true);
    // Lines are looked at one by one, not joined.
    holds(header("x", "1,2"), false);
    holds(one("destination_port", Value::Integer(8080)), true);
    holds(one("destination_port_range", range(8080, 8081)), true);
    holds(one("destination_port_range", range(1, 8080)), false);
    holds(one("destination_ip", network("10.0.0.0", 8)), true);
    holds(one("destination_ip", network("11.0.0.0", 8)), false);
    holds(one("requested_server_name", exact("a.test")), true);
    holds(one("requested_server_name", exact("b.test")), false);
    holds(one("metadata", metadata("v")), true);
    holds(one("metadata", metadata("w")), false);
    holds(one("sourced_metadata", object([("metadata_matcher", metadata("v"))])), true);
    let of_route = object([("metadata_matcher", metadata("v")), ("metadata_source", text("ROUTE"))]);
    holds(one("sourced_metadata", of_route), false);
    holds(one("and_rules", set(vec![path("/a/b"), header("x", "1")])), true);
    holds(one("and_rules", set(vec![path("/a/b"), header("x", "3")])), false);
    holds(one("or_rules", set(vec![path("/x"), header("x", "1")])), true);
    holds(one("not_rule", path("/a/b")), false);
    let template = object([("@type", text(config::URI_TEMPLATE)), ("path_template", text("/a/*"))]);
    holds(one("uri_template", object([("name", text("t")), ("typed_config", template)])), true);
}

#[derive(Debug)]
struct Shown {
    verified: bool,
}

impl Certificates for Shown {
    fn values(&self, part: CertificatePart) -> Vec<String> {
        match part {
            CertificatePart::UriNames => vec!["spiffe://td/a".into()],
            CertificatePart::DnsNames => vec!["a.test".into()],
            CertificatePart::Subject => vec!["CN=a".into()],
            CertificatePart::OtherNames => vec!["ann".into(), "bob".into()],
            CertificatePart::OtherNameKinds => vec!["1.2.3".into(), "1.2.4".into()],
            _ => Vec::new(),
        }
    }

    fn validity(&self) -> Option<(std::time::SystemTime, std::time::SystemTime)> {
        None
    }

    fn is_verified(&self) -> bool {
        self.verified
    }
}

#[test]
fn each_principal_looks_at_who_asks() {
    let holds = |principal: &Value, tls: Option<TlsSession>| {
        let mut stream = request("/", &[]);
        stream.info.downstream_direct_remote = Some("10.0.0.1:1".parse().unwrap());
        stream.info.downstream_connection_remote = Some("10.0.0.2:1".parse().unwrap());
        stream.info.downstream_remote = Some("10.0.0.3:1".parse().unwrap());
        stream.info.tls = tls.map(Rc::new);
        stream.info.filter_state.push(("peer_principal".into(), text("spiffe://td/a")));
        allows(anybody(), principal.clone(), &mut stream)
    };
    let single = |address: &str| object([("address_prefix", text(address)), ("prefix_len", Value::Integer(32))]);
    for (key, address) in [("direct_remote_ip", "10.0.0.1"), ("source_ip", "10.0.0.2"), ("remote_ip", "10.0.0.3")] {
        for other in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            assert_eq!(holds(&object([(key, single(other))]), None), other == address, "{key} {other}");
        }
    }
    let state = |value: &str| {
        object([("filter_state", object([("key", text("peer_principal")), ("string_match", exact(value))]))])
    };
    assert!(holds(&state("spiffe://td/a"), None) && !holds(&state("spiffe://td/b"), None));

    let plain = || None;
    let nobody = || Some(TlsSession::default());
    let shown = |verified| Some(TlsSession { peer: Some(Box::new(Shown { verified })), ..TlsSession::default() });
    let any = object([("authenticated", object([]))]);
    assert!(!holds(&any, plain()) && holds(&any, nobody()) && holds(&any, shown(false)));
    let named = |name: &str| object([("authenticated", object([("principal_name", exact(name))]))]);
    for name in ["spiffe://td/a", "a.test", "CN=a"] {
        assert!(holds(&named(name), shown(true)), "{name}");
        assert!(!holds(&named(name), nobody()) && !holds(&named(name), plain()));
    }
    assert!(!holds(&named("b.test"), shown(true)));
    let kind = config::MTLS;
    let mtls = |key: &str, value: Value| {
        let config = object([("@type", text(kind)), (key, value)]);
        object([("custom", object([("name", text("m")), ("typed_config", config)]))])
    };
    let san = mtls("san_matcher", object([("san_type", text("URI")), ("matcher", exact("spiffe://td/a"))]));
    assert!(holds(&san, shown(true)) && !holds(&san, shown(false)) && !holds(&san, nobody()));
    let other = |oid: &str| {
        let kind = [("san_type", text("OTHER_NAME")), ("oid", text(oid)), ("matcher", exact("ann"))];
        mtls("san_matcher", object(kind))
    };
    assert!(holds(&other("1.2.3"), shown(true)) && !holds(&other("1.2.4"), shown(true)));
    assert!(!holds(&other("1.2.3"), shown(false)));
    let good = mtls("any_validated_client_certificate", Value::Bool(true));
    assert!(holds(&good, shown(true)) && !holds(&good, shown(false)) && !holds(&good, plain()));
}

#[test]
fn the_first_policy_by_name_decides_and_is_named() {
    let policy = || object([("permissions", list([path("/no")])), ("principals", list([anybody()]))]);
    let all = object([("z one", policy()), ("a one", policy())]);
    let shadow = rules("ALLOW", path("/yes"), anybody());
    let config = object([
        ("rules", object([("action", text("DENY")), ("policies", all)])),
        ("shadow_rules", shadow),
        ("shadow_rules_stat_prefix", text("dry_")),
    ]);
    let filter = filter(&config);
    let mut stream = request("/no", &[]);
    let Action::Respond(reply) = request_headers(&mut stream, &*filter) else { panic!("it passed") };
    assert_eq!((reply.status, &*reply.body), (403, &b"RBAC: access denied"[..]));
    assert_eq!(reply.details, "rbac_access_denied_matched_policy[a_one]");
    let noted = |key: &str| stream.info.metadata.get(NAMESPACE, key).cloned();
    assert_eq!(noted("enforced_engine_result"), Some(text("denied")));
    assert_eq!(noted("enforced_effective_policy_id"), Some(text("a one")));
    assert_eq!(noted("dry_shadow_engine_result"), Some(text("denied")));
    assert_eq!(noted("dry_shadow_effective_policy_id"), None);
}

#[test]
fn no_rules_let_everything_pass_and_empty_ones_nothing() {
    let answer = |config: Value| request_headers(&mut request("/", &[]), &*filter(&config));
    assert!(matches!(answer(object([])), Action::Done));
    let Action::Respond(reply) = answer(object([("rules", object([]))])) else { panic!("it passed") };
    assert_eq!(reply.details, "rbac_access_denied_matched_policy[none]");
    assert!(matches!(answer(object([("rules", object([("action", text("DENY"))]))])), Action::Done));
}

#[test]
fn rules_that_only_log_turn_nobody_away() {
    let filter = filter(&object([("rules", rules("LOG", path("/a"), anybody()))]));
    for (path, hint) in [("/a", true), ("/b", false)] {
        let mut stream = request(path, &[]);
        assert!(matches!(request_headers(&mut stream, &*filter), Action::Done));
        assert_eq!(stream.info.metadata.get(COMMON, "access_log_hint"), Some(&Value::Bool(hint)));
    }
}

#[test]
fn a_route_brings_rules_of_its_own_or_none() {
    let factory = build("rbac", &object([("rules", object([]))])).ok().unwrap();
    let passes = |config: Value| {
        let scope = factory.route_config(ROUTE_KIND, &config).ok();
        let configs = ScopedConfigs { route: scope, ..ScopedConfigs::default() };
        let filter = factory.filter(&configs, &crate::testing::place());
        !filter.hooks().request_headers || matches!(request_headers(&mut request("/", &[]), &*filter), Action::Done)
    };
    assert!(passes(object([])));
    assert!(passes(object([("rbac", object([("rules", rules("ALLOW", anybody(), anybody()))]))])));
    assert!(!passes(object([("rbac", object([("rules", rules("DENY", anybody(), anybody()))]))])));
    assert!(factory.route_config(KIND, &object([])).is_err());
}

#[test]
fn rules_of_a_route_without_a_prefix_note_under_the_filters() {
    let prefixes = |enforced: &str, shadow: &str, own: [(&str, Value); 2]| {
        let named = [("rules_stat_prefix", text(enforced)), ("shadow_rules_stat_prefix", text(shadow))];
        let entries = own.into_iter().chain(named).map(|(key, value)| (key.to_owned(), value));
        Value::Map(entries.collect())
    };
    let some =
        || [("rules", rules("ALLOW", anybody(), anybody())), ("shadow_rules", rules("DENY", anybody(), anybody()))];
    let factory = build("rbac", &prefixes("main_", "dry_", some())).ok().unwrap();
    for (own, enforced, shadow) in [
        (prefixes("", "", some()), "main_enforced_engine_result", "dry_shadow_engine_result"),
        (prefixes("own_", "test_", some()), "own_enforced_engine_result", "test_shadow_engine_result"),
    ] {
        let scope = factory.route_config(ROUTE_KIND, &object([("rbac", own)])).ok();
        let configs = ScopedConfigs { route: scope, ..ScopedConfigs::default() };
        let mut stream = request("/", &[]);
        request_headers(&mut stream, &*factory.filter(&configs, &crate::testing::place()));
        assert_eq!(stream.info.metadata.get(NAMESPACE, enforced), Some(&text("allowed")));
        assert_eq!(stream.info.metadata.get(NAMESPACE, shadow), Some(&text("denied")));
    }
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let bad = object([
        ("matcher", object([])),
        ("rules", rules("DENY", object([]), object([("any", Value::Bool(true)), ("authenticated", object([]))]))),
        ("shadow_rules", rules("DENY", object([("destination_port_range", object([]))]), object([("odd", text("x"))]))),
    ]);
    let found = errors(bad);
    let wanted = [
        "rules.policies.p.permissions[0]",
        "rules.policies.p.principals[0]",
        "matcher",
        "shadow_rules.policies.p.permissions[0].destination_port_range",
        "shadow_rules.policies.p.principals[0]",
        "shadow_rules.policies.p.principals[0].odd",
    ];
    assert_eq!(found, wanted);
    let mut deep = anybody();
    for _ in 0..100 {
        deep = object([("not_rule", deep)]);
    }
    assert_eq!(errors(object([("rules", rules("DENY", deep, anybody()))])).len(), 1);
}

#[test]
fn rules_about_connections_know_no_requests() {
    let config = |rules: Value| object([("stat_prefix", text("door")), ("rules", rules)]);
    let not = |rule: Value| object([("not_rule", rule)]);
    let refused = build_connections(&config(rules("DENY", not(path("/a")), anybody()))).err().unwrap();
    assert_eq!(refused[0].path, "rules.policies.p.permissions[0].not_rule.url_path");
    assert_eq!(build_connections(&object([])).err().unwrap()[0].path, "stat_prefix");

    let named = object([("requested_server_name", exact("a.test"))]);
    let factory = build_connections(&config(rules("ALLOW", named, anybody()))).ok().unwrap();
    let guard = factory.guard(&crate::testing::place());
    let mut info = request("/", &[]).info;
    for (server_name, closes) in [(Some("a.test"), false), (Some("b.test"), true), (None, true)] {
        let visit = &mut Visit { info: &mut info, server_name, write: &|_, _, _| {} };
        let admission = guard.on_connection(visit);
        assert_eq!(matches!(admission, Admission::Close { after: None, .. }), closes, "{server_name:?}");
    }
    assert!(info.metadata.is_empty());
}
