//! What filters know about the stream, and decide about it.

use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{Action, UpstreamOverride};
use postrider_model::{FilterConfig, FilterOverride, Format, HttpConnection, Metadata, PathMatch, Value};
use postrider_testkit::{Origin, RawClient, Response};

use crate::scripted::*;

fn get(client: &mut RawClient, path: &str) -> Response {
    client.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"))
}

/// A route for `/other` in front of the only one, which runs `there` in the place of `slot`.
fn other_route(http: &mut HttpConnection, slot: &Script, there: &Script) {
    let mut other = route(http).clone();
    other.name = "other".into();
    other.matches.path = PathMatch::Prefix("/other".into());
    let mut metadata = Metadata::default();
    metadata.set("ns", "key", Value::Integer(1));
    other.metadata = Arc::new(metadata);
    let config = FilterConfig { kind: "script".into(), value: Value::String(there.name.clone()) };
    other.filter_overrides = vec![FilterOverride {
        name: slot.name.clone(),
        config: Some(config),
        disabled: false,
        optional: false,
        origin: Default::default(),
    }];
    let host = Arc::make_mut(&mut Arc::make_mut(&mut http.routes).virtual_hosts[0]);
    host.routes.insert(0, Arc::new(other));
}

#[test]
fn a_route_that_went_stale_is_found_again_with_its_filters() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let mover = Script::new(&[RequestHead], |_, _, stream, _| {
        assert_eq!(stream.route.unwrap().name.as_deref(), Some("all"));
        stream.request.set_path(b"/other").unwrap();
        stream.info.route_is_stale = true;
        Action::Continue
    });
    let here = Script::new(&[RequestHead], |_, _, _, _| respond(500, "not here"));
    let there = Script::new(&[RequestHead, ResponseHead], |at, _, stream, _| {
        let facts = stream.route.unwrap();
        assert_eq!((facts.index, facts.name.as_deref(), &*facts.virtual_host), (0, Some("other"), "any"));
        assert_eq!(facts.metadata.get("ns", "key"), Some(&Value::Integer(1)));
        assert!(facts.forwards);
        if at == ResponseHead {
            stream.response.fields.append_name(b"x-there", b"yes").unwrap();
        }
        Action::Continue
    });
    let mut site = site(origin.address, aside.address, &[&mover, &here]);
    other_route(&mut site.http, &here, &there);
    let running = site.run(&registry());
    let mut client = RawClient::connect(running.address);
    for _ in 0..2 {
        let response = get(&mut client, "/");
        assert_eq!((response.status, response.header("x-there")), (200, "yes"));
        assert!(response.text().starts_with("GET /other"));
    }
    assert!(here.calls().is_empty());
}

#[test]
fn a_filter_may_choose_the_host() {
    let (one, two, aside) = (Origin::echo("one"), Origin::echo("two"), fine());
    let (to_two, nowhere) = (two.address, aside.address);
    let script = Script::new(&[RequestHead], move |_, _, stream, _| {
        let (address, strict) = match stream.request.path() {
            b"/two" => (to_two, true),
            b"/strict" => (nowhere, true),
            _ => (nowhere, false),
        };
        stream.info.upstream_override = Some(UpstreamOverride::new(address, strict));
        Action::Continue
    });
    let mut site = site(one.address, aside.address, &[&script]);
    let more = crate::common::cluster("origin", two.address);
    if let (postrider_model::Discovery::Static(all), postrider_model::Discovery::Static(more)) =
        (&mut site.clusters[0].discovery, more.discovery)
    {
        all.extend(more);
    }
    let running = site.run(&registry());
    let mut client = RawClient::connect(running.address);
    for _ in 0..3 {
        assert_eq!(get(&mut client, "/two").header("x-origin"), "two");
    }
    let refused = get(&mut client, "/strict");
    assert_eq!((refused.status, refused.text()), (503, "no healthy upstream"));
    assert_eq!(get(&mut client, "/any").status, 200);
}

#[test]
fn a_filter_may_have_the_connection_closed() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let script = Script::new(&[RequestHead], |_, _, stream, _| {
        stream.info.drain_connection = stream.request.path() == b"/last";
        Action::Continue
    });
    let running = run(origin.address, aside.address, &[&script]);
    let mut client = RawClient::connect(running.address);
    assert!(!get(&mut client, "/").headers.contains("connection"));
    assert_eq!(get(&mut client, "/last").header("connection"), "close");
    assert!(client.closed());
}

#[test]
fn the_host_formats_values_and_tells_the_time() {
    let (origin, aside) = (Origin::echo("o"), fine());
    let format = Format::parse("%REQ(:path)% %ROUTE_NAME%%REQ(x-none)% %START_TIME(%Y)%").unwrap();
    let script = Script::new(&[ResponseHead], move |_, _, stream, _| {
        let mut value = Vec::new();
        stream.host.format(stream, &format, &mut value);
        stream.response.fields.append_name(b"x-value", &value).unwrap();
        assert!(stream.host.now().saturating_duration_since(stream.info.started) < Duration::from_secs(60));
        assert!(stream.host.wall() >= stream.info.start);
        assert_ne!(stream.host.random(), stream.host.random());
        Action::Continue
    });
    let running = run(origin.address, aside.address, &[&script]);
    let response = get(&mut RawClient::connect(running.address), "/p");
    let value = response.header("x-value");
    assert!(value.starts_with("/p all 20") && value.len() == "/p all 2026".len(), "{value}");
}
