use super::*;
use crate::testing::{lines, list, object, place, text};
use postrider_filter_api::ClusterHealth;
use postrider_filter_api::testing::FakeStream;
use std::time::SystemTime;

fn config(pass_through: bool, more: Vec<(&str, Value)>) -> Value {
    let path = object([("name", text(":path")), ("string_match", object([("exact", text("/check"))]))]);
    let mut all =
        vec![("pass_through_mode".to_owned(), Value::Bool(pass_through)), ("headers".to_owned(), list([path]))];
    all.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(all)
}

fn checker(value: &Value) -> Rc<dyn Filter> {
    build("check", value).ok().unwrap().filter(&ScopedConfigs::default(), &place())
}

/// The status and the details that a check is answered with here.
fn answer(filter: &dyn Filter, stream: &mut FakeStream) -> Option<(u16, String)> {
    let action = stream.with(|stream| filter.on_request_headers(&mut State::default(), stream, true));
    let Action::Respond(reply) = action else { return None };
    assert_eq!(reply.status == 503, stream.info.flags.contains(Flags::FAILED_LOCAL_HEALTH_CHECK));
    Some((reply.status, reply.details.into_owned()))
}

#[test]
fn checks_are_answered_and_other_requests_are_not() {
    let filter = checker(&config(false, vec![]));
    let ask = |path: &str, fails: bool| {
        let mut stream = FakeStream::new("GET", path, &[]);
        stream.host.fails_health = fails;
        answer(&*filter, &mut stream)
    };
    assert_eq!(ask("/check", false), Some((200, "health_check_ok".into())));
    assert_eq!(ask("/check", true), Some((503, "health_check_failed".into())));
    assert_eq!(ask("/other", true), None);
}

#[test]
fn the_hosts_of_clusters_decide() {
    let percent = |value: f64| object([("c", object([("value", Value::Number(value))]))]);
    for (wanted, all, available, want) in [
        (50.0, 2, 1, "health_check_ok_cluster_healthy"),
        (50.9, 2, 1, "health_check_ok_cluster_healthy"),
        (51.0, 2, 1, "health_check_failed_cluster_unhealthy"),
        (1.0, 0, 0, "health_check_failed_cluster_empty"),
        (0.0, 0, 0, "health_check_ok_cluster_healthy"),
    ] {
        let filter = checker(&config(false, vec![("cluster_min_healthy_percentages", percent(wanted))]));
        let mut stream = FakeStream::new("GET", "/check", &[]);
        stream.host.health = ClusterHealth { all, available, degraded: 0 };
        assert_eq!(answer(&*filter, &mut stream).unwrap().1, want, "{wanted} of {all}");
        stream.host.clusters = vec!["other".into()];
        assert_eq!(answer(&*filter, &mut stream).unwrap().1, "health_check_failed_no_cluster_found");
    }
}

#[test]
fn what_the_service_said_is_remembered_for_a_while() {
    let filter = checker(&config(true, vec![("cache_time", text("10s"))]));
    let mut state = State::default();
    let mut stream = FakeStream::new("GET", "/check", &[]);
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    assert!(matches!(action, Action::Done));
    stream.response.set_status(500);
    stream.with(|stream| filter.on_response_headers(&mut state, stream, true));
    assert_eq!(lines(&stream.response.fields), ["x-envoy-upstream-healthchecked-cluster: "]);
    let mut later = FakeStream::new("GET", "/check", &[]);
    later.host.clock = || (Moment::from_nanos(9_000_000_000), SystemTime::UNIX_EPOCH);
    let action = later.with(|stream| filter.on_request_headers(&mut State::default(), stream, true));
    let Action::Respond(reply) = action else { panic!("it was forgotten") };
    assert_eq!((reply.status, &*reply.details), (500, "health_check_cached"));
    later.host.clock = || (Moment::from_nanos(10_000_000_000), SystemTime::UNIX_EPOCH);
    assert_eq!(answer(&*filter, &mut later), None);
}

#[test]
fn what_is_answered_here_is_counted_by_its_outcome() {
    let config = config(false, vec![]);
    let config = Arc::new(Reading::all(&config, Config::read).ok().unwrap());
    let checker = Checker { config, stats: place().stats.block(&stat::SET, "x") };
    for (path, fails) in [("/check", false), ("/check", true), ("/other", false)] {
        let mut stream = FakeStream::new("GET", path, &[]);
        stream.host.fails_health = fails;
        answer(&checker, &mut stream);
    }
    let counts = [stat::REQUEST_TOTAL, stat::OK, stat::FAILED, stat::CACHED_RESPONSE];
    assert_eq!(counts.map(|counter| checker.stats.value(counter)), [2, 1, 1, 0]);
}

#[test]
fn a_failing_proxy_says_so_in_every_answer() {
    let filter = checker(&config(true, vec![]));
    let mut stream = FakeStream::new("GET", "/other", &[]);
    stream.host.fails_health = true;
    stream.with(|stream| filter.on_response_headers(&mut State::default(), stream, true));
    assert_eq!(lines(&stream.response.fields), ["x-envoy-immediate-health-check-fail: true"]);
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let paths = |value: &Value| {
        let errors = build("check", value).err().unwrap_or_default();
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&object([("odd", Value::Bool(true))])), ["pass_through_mode", "odd"]);
    assert_eq!(paths(&config(false, vec![("cache_time", text("1s"))])), ["cache_time"]);
    assert!(paths(&config(false, vec![("cache_time", text("0.0001s"))])).is_empty());
    let clusters = object([("c", object([("value", Value::Integer(101))]))]);
    assert_eq!(paths(&config(false, vec![("cluster_min_healthy_percentages", clusters.clone())])).len(), 1);
    assert_eq!(paths(&config(true, vec![("cluster_min_healthy_percentages", clusters)])).len(), 1);
    let factory = build("check", &config(false, vec![])).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
}

#[test]
fn shares_of_clusters_count_for_nothing_where_the_service_behind_answers() {
    let shares = object([("c", object([("value", Value::Integer(100))]))]);
    let filter = checker(&config(true, vec![("cluster_min_healthy_percentages", shares)]));
    let mut stream = FakeStream::new("GET", "/check", &[]);
    stream.host.health = ClusterHealth { all: 2, available: 0, degraded: 0 };
    assert_eq!(answer(&*filter, &mut stream), None);
}
