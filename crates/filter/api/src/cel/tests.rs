use std::rc::Rc;
use std::sync::Arc;

use postrider_http::{Fields, HeaderId, ResponseHead};
use postrider_model::cel::Allowed;
use postrider_model::{Address, Direction, Endpoint, EndpointHealth, Expression, Locality, Metadata, Node, Value};

use super::{Facts, is_true};
use crate::testing::FakeStream;
use crate::{ClusterFacts, Flags, Moment, ObjectKind, RouteFacts, RouteTarget, Surroundings};

fn stream() -> FakeStream {
    let lines = [("x-a", "1"), ("x-m", "p"), ("x-m", "q"), ("user-agent", "ua"), ("content-length", "3")];
    let mut stream = FakeStream::new("POST", "/a/b?x=1&y=2", &lines);
    stream.info.metadata.set("ns", "s", Value::String("text".into()));
    stream.info.metadata.set("ns", "n", Value::Integer(3));
    stream.info.metadata.set("ns", "l", Value::List(vec![Value::String("a".into()), Value::String("b".into())]));
    stream.info.metadata.set("ns", "m", Value::Map(vec![("x".into(), Value::String("y".into()))]));
    stream.info.filter_state.push(("key".into(), Value::String("kept".into())));
    stream.info.downstream_remote = Some(([10, 1, 2, 3], 4000).into());
    stream.info.status = 200;
    stream.info.flags.insert(Flags::UPSTREAM_OVERFLOW);
    stream
}

const ALL: Allowed = Allowed { conversion: true, concatenation: true, functions: true };

/// True, false, or neither.
fn verdict(text: &str, allowed: Allowed) -> Option<bool> {
    let stream = stream();
    let mut response = ResponseHead::new();
    response.fields.set(HeaderId::ContentType, b"text/plain").unwrap();
    let trailers = Fields::new();
    let facts = Facts {
        request: Some(&stream.request),
        response: Some(&response),
        trailers: Some(&trailers),
        info: &stream.info,
        route: None,
        weighted: None,
        server_name: None,
    };
    let parse = |text: &str| Expression::parse(text, allowed).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    match (is_true(&parse(text), &facts), is_true(&parse(&format!("!({text})")), &facts)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
        (true, true) => panic!("{text} is true, and so is its opposite"),
    }
}

/// Each row was observed on Envoy 1.40, with a request like this one.
#[test]
fn expressions_mean_what_they_mean_in_envoy() {
    for text in [
        "request.path == '/a/b?x=1&y=2'",
        "request.url_path == '/a/b'",
        "request.query == 'x=1&y=2'",
        "request.method == 'POST'",
        "request.headers['x-a'] == '1'",
        "request.headers['X-A'] == '1'",
        "request.headers['x-m'] == 'p,q'",
        "'x-a' in request.headers",
        "has(request.headers.referer) == false",
        "request.headers[':path'] == '/a/b?x=1&y=2'",
        "request.useragent == 'ua'",
        "request.protocol == 'HTTP/1.1'",
        "request.size == 3",
        "request['path'] == '/a/b?x=1&y=2'",
        "response.code == 200",
        "response.code in [200, 201]",
        "response.flags == 128",
        "response.grpc_status == 2",
        "has(response.trailers)",
        "response.headers['content-type'].startsWith('text/')",
        "source.address == '10.1.2.3:4000'",
        "source.port == 4000",
        "!connection.mtls",
        "connection.requested_server_name == ''",
        "!has(connection.tls_version)",
        "metadata.filter_metadata['ns']['s'] == 'text'",
        "metadata.filter_metadata.ns.n == 3",
        "metadata.filter_metadata.ns.n == 3.0",
        "metadata.filter_metadata.ns.l[1] == 'b'",
        "'b' in metadata.filter_metadata.ns.l",
        "metadata.filter_metadata.ns.m.x == 'y'",
        "!has(metadata.filter_metadata.ns.nope)",
        "!('nope' in metadata.filter_metadata)",
        "metadata.filter_metadata.size() == 1",
        "filter_state['key'] == b'kept'",
        "'key' in filter_state",
        "xds.filter_chain_name == ''",
        "request.path.matches('a/b')",
        "matches(request.path, 'b')",
        "size(request.path) == 12",
        "'é'.size() == 1",
        "1 == 1.0 && 1 == 1u && 1u < 2 && 1 < 2.5",
        "1 + 1 == 2 && 1u + 1u == 2u && 5 / 2 == 2 && 5 % 2 == 1 && -5 / 2 == -2",
        "int('5') == 5 && int(5.7) == 5 && uint(5) == 5u && double('1.5') == 1.5 && bool('true') && bytes('a') == b'a'",
        "type(1) == int && type('a') == string && dyn(1) == 1",
        "1 in {1: 2} && 1.0 in [1] && {'a': 1}.a == 1 && has({'a': 1}.a) && [1, 2][0] == 1",
        "true || response.code_details == ''",
        "response.code_details == '' || true",
        "duration('1h') == duration('3600s')",
        "duration('1h30m').getHours() == 1 && duration('90m').getMinutes() == 90",
        "timestamp('2020-01-02T03:04:05Z').getHours() == 3",
        "timestamp('2020-01-02T03:04:05Z').getDayOfWeek() == 4",
        "timestamp('2020-01-02T03:04:05Z').getDate() == 2 && timestamp('2020-01-02T03:04:05Z').getDayOfMonth() == 1",
        "timestamp('2020-01-02T03:04:05Z').getDayOfYear() == 1 && timestamp('2020-01-02T03:04:05Z').getMonth() == 0",
        "timestamp('2020-01-02T03:04:05Z').getHours('+01:00') == 4",
        "timestamp('2020-01-02T03:04:05Z') + duration('1h') == timestamp('2020-01-02T04:04:05Z')",
        "timestamp('2020-01-02T04:04:05Z') - timestamp('2020-01-02T03:04:05Z') == duration('1h')",
        "timestamp(5) == timestamp('1970-01-01T00:00:05Z') && int(timestamp('1970-01-01T00:00:05Z')) == 5",
        "'b' > 'a' && b'b' > b'a' && true > false && [1, 2] == [1, 2] && {'a': 1} == {'a': 1} && -1 == 0 - 1",
        "true ? true : false",
        "request.headers == request.headers",
    ] {
        assert_eq!(verdict(text, Allowed::default()), Some(true), "{text}");
    }
    for text in
        ["'1' == 1", "null == 1", "true == 1", "filter_state['key'] == 'kept'", "false && response.code_details == ''"]
    {
        assert_eq!(verdict(text, Allowed::default()), Some(false), "{text}");
    }
    for text in [
        "request.headers['none'] == '1'",
        "request.headers['none'] == null",
        "response.trailers['a'] == 'b'",
        "metadata.filter_metadata.ns.nope == 'y'",
        "filter_state['nope'] == 'x'",
        "connection.termination_details == ''",
        "'1' < 1",
        "1 + 1u == 2",
        "1 / 0 == 1",
        "9223372036854775807 + 1 == 0",
        "[1, 2][5] == 1",
        "true && response.code_details == ''",
        "'a' + 'b' == 'ab'",
        "[1] + [2] == [1, 2]",
        "1",
        "'x'",
        "-'a' == 1",
    ] {
        assert_eq!(verdict(text, Allowed::default()), None, "{text}");
    }
}

/// So was each of these, with all settings of `cel_config` on.
#[test]
fn texts_are_made_where_they_may_be() {
    for text in [
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab'",
        "string(1) == '1' && string(1.5) == '1.5' && string(true) == 'true' && string(b'a') == 'a'",
        "string(duration('90s')) == '90s' && string(timestamp(5)) == '1970-01-01T00:00:05Z'",
        "'ABC'.lowerAscii() == 'abc' && 'abc'.upperAscii() == 'ABC'",
        "'a,b'.split(',')[0] == 'a' && 'a,b,c'.split(',', 2)[1] == 'b,c'",
        "'aXbX'.replace('X', 'y') == 'ayby' && 'aXbX'.replace('X', 'y', 1) == 'aybX'",
        "'abc'.substring(1) == 'bc' && ' a '.trim() == 'a' && ['a', 'b'].join('-') == 'a-b' && 'abc'.indexOf('b') == 1",
    ] {
        assert_eq!(verdict(text, ALL), Some(true), "{text}");
    }
    assert_eq!(verdict("[1] + [2] == [1, 2]", ALL), None);
}

#[test]
fn no_expression_makes_more_than_a_bounded_text() {
    // Sixteen times as long with each step: 16 MB, were it made.
    let step = ".replace('a', 'aaaaaaaaaaaaaaaa')";
    assert_eq!(verdict(&format!("'a'{}.size() == 4096", step.repeat(3)), ALL), Some(true));
    assert_eq!(verdict(&format!("'a'{}.size() > 0", step.repeat(6)), ALL), None);
    assert_eq!(verdict("timestamp('9999-12-31T23:59:59Z') + duration('1h') > timestamp(0)", ALL), None);
}

/// Each row was observed on Envoy 1.40.
#[test]
fn what_is_around_a_stream_is_asked_of_its_surroundings() {
    let mut stream = stream();
    stream.info.surroundings = Some(Rc::new(Around));
    let truth = |stream: &FakeStream, text: &str| {
        let expression = Expression::parse(text, ALL).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let facts = Facts {
            request: None,
            response: None,
            trailers: None,
            info: &stream.info,
            route: None,
            weighted: None,
            server_name: None,
        };
        is_true(&expression, &facts)
    };
    for text in [
        "xds.node.id == 'n' && xds.node.cluster == '' && xds.node.locality.region == 'r'",
        "has(xds.node.id) && !has(xds.node.cluster) && !has(xds.node.locality.zone)",
        "xds.node.metadata.deep.k[1] == 'two'",
        "!has(xds.node.metadata.none)",
        "xds.listener_direction == 2",
        "!has(xds.listener_metadata.filter_metadata.a)",
        "!has(upstream.num_endpoints)",
        "has(xds.node.locality) && xds.node.locality == xds.node.locality",
        "!has(upstream.locality)",
    ] {
        assert!(truth(&stream, text), "{text}");
    }
    for text in [
        "has(xds.cluster_metadata.filter_metadata)",
        "has(upstream.locality.zone)",
        "has(xds.upstream_host_locality_metadata.filter_metadata)",
    ] {
        assert!(!truth(&stream, text) && !truth(&stream, &format!("!{text}")), "{text}");
    }
    stream.info.upstream_cluster = Some("c".into());
    stream.info.upstream_remote = Some("127.0.0.1:1".into());
    for text in [
        "upstream.num_endpoints == 3u",
        "xds.cluster_metadata.filter_metadata.a.b == 'c'",
        "xds.cluster_metadata.filter_metadata == {'a': {'b': 'c'}}",
        "upstream.locality.region == 'r' && upstream.locality.sub_zone == ''",
        "has(upstream.locality.region) && !has(upstream.locality.sub_zone)",
        "size(xds.upstream_host_metadata.filter_metadata) == 0",
        "has(upstream.locality) && upstream.locality == xds.node.locality",
        "xds.upstream_host_locality_metadata.filter_metadata.of.place == 'r'",
        "!has(xds.upstream_host_locality_metadata.filter_metadata.none)",
    ] {
        assert!(truth(&stream, text), "{text}");
    }
    // Fields of a message are selected, and nothing else.
    for text in ["upstream.locality['region'] == 'r'", "size(upstream.locality) == 2", "'region' in upstream.locality"]
    {
        assert!(!truth(&stream, text) && !truth(&stream, &format!("!({text})")), "{text}");
    }
    for text in [
        "xds.node == xds.node && xds.node != xds.cluster_metadata",
        "has(xds.node) && has(xds.cluster_metadata) && !has(xds.route_metadata)",
        "xds.cluster_metadata != metadata && xds.upstream_host_metadata != metadata",
        "[xds.node][0] == xds.node",
        "metadata['filter_metadata'] == metadata.filter_metadata",
    ] {
        assert!(truth(&stream, text), "{text}");
    }
    let whole = Expression::parse("xds == 1", ALL).unwrap_err();
    assert!(whole.message.contains("no value by itself"), "{whole:?}");
}

/// Before the request goes there, as observed on Envoy 1.40.
#[test]
fn the_cluster_of_the_route_is_known_while_the_request_passes() {
    let mut stream = stream();
    stream.info.surroundings = Some(Rc::new(Around));
    let truth = |stream: &FakeStream, target: RouteTarget, text: &str| {
        let weighted = stream.weighted;
        let expression = Expression::parse(text, ALL).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let route = RouteFacts { target, ..FakeStream::new("GET", "/", &[]).route.expect("a route") };
        let request = Some(&stream.request);
        let facts = Facts {
            request,
            response: None,
            trailers: None,
            info: &stream.info,
            route: Some(&route),
            weighted,
            server_name: None,
        };
        is_true(&expression, &facts)
    };
    let to_c = || RouteTarget::Cluster("c".into());
    let by_header = |name: &str| RouteTarget::Header(name.into());
    for text in [
        "xds.cluster_name == 'c'",
        "upstream.num_endpoints == 3u",
        "upstream.request_attempt_count == 0u",
        "xds.cluster_metadata.filter_metadata.a.b == 'c'",
        "has(xds.cluster_metadata)",
    ] {
        assert!(truth(&stream, to_c(), text), "{text}");
    }
    stream.request.fields.append_name(b"x-to", b"c").unwrap();
    assert!(truth(&stream, by_header("x-to"), "xds.cluster_name == 'c'"));
    let drawn = || RouteTarget::Weighted(vec!["other".into(), "c".into()]);
    assert!(truth(&stream, drawn(), "!has(xds.cluster_name)"));
    stream.weighted = Some(1);
    assert!(truth(&stream, drawn(), "xds.cluster_name == 'c' && has(xds.cluster_metadata)"));
    // Nor one that there is not.
    for target in [by_header("x-a"), by_header("x-none"), RouteTarget::Cluster("none".into()), RouteTarget::Unknown] {
        assert!(truth(&stream, target, "!has(xds.cluster_name) && upstream.request_attempt_count == 0u"));
    }
    stream.info.upstream_cluster = Some("other".into());
    assert!(truth(&stream, to_c(), "xds.cluster_name == 'other'"));
}

#[test]
fn sizes_of_heads_and_the_states_of_connections_to_upstreams_are_known() {
    let mut fake = stream();
    fake.info.request_head_bytes = 77;
    fake.response.fields.append_name(b"x-ab", b"cd").unwrap();
    fake.info.make_state("shared", ObjectKind::Text, b"s", true);
    let truth = |fake: &mut FakeStream, text: &str| {
        let expression = Expression::parse(text, ALL).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        fake.with(|stream| is_true(&expression, &Facts::of_answer(stream)))
    };
    assert!(truth(&mut fake, "request.headers_bytes == 77"));
    let shared = "upstream_filter_state.shared == b's' && !('key' in upstream_filter_state)";
    assert!(!truth(&mut fake, shared), "there is no connection");
    assert!(truth(&mut fake, "response.headers_bytes == 16 && response.total_size == 16"), "`:status`, `x-ab`");
    fake.info.response_head_bytes = 90;
    fake.info.upstream_connection_id = 1;
    assert!(truth(&mut fake, "response.headers_bytes == 90"));
    assert!(truth(&mut fake, shared));
}

/// It was told in whole milliseconds, so that what is quicker took no time.
#[test]
fn a_request_of_less_than_a_millisecond_took_some_time() {
    let mut fake = stream();
    fake.info.started = Moment::from_nanos(1_000);
    fake.info.ended = Some(Moment::from_nanos(901_000));
    let expression = Expression::parse("request.duration == duration('900us')", ALL).unwrap();
    assert!(fake.with(|stream| is_true(&expression, &Facts::of_answer(stream))));
}

struct Around;

impl Surroundings for Around {
    fn node(&self) -> Rc<Node> {
        let list = Value::List(vec![Value::Integer(1), Value::String("two".into())]);
        let deep = Value::Map(vec![("k".into(), list)]);
        let metadata = Value::Map(vec![("deep".into(), deep)]);
        Rc::new(Node { id: "n".into(), region: "r".into(), metadata, ..Node::default() })
    }

    fn listener_name(&self) -> String {
        "main".to_owned()
    }

    fn direction(&self) -> Direction {
        Direction::Outbound
    }

    fn listener_metadata(&self) -> Option<Arc<Metadata>> {
        None
    }

    fn cluster(&self, name: &str) -> Option<ClusterFacts> {
        let mut metadata = Metadata::default();
        metadata.set("a", "b", Value::String("c".into()));
        (name == "c").then(|| ClusterFacts { metadata: Some(Arc::new(metadata)), endpoints: 3 })
    }

    fn endpoint(&self, _: &str, address: &str) -> Option<Arc<Endpoint>> {
        let mut metadata = Metadata::default();
        metadata.set("of", "place", Value::String("r".into()));
        let place = Locality { region: "r".into(), metadata: Some(Arc::new(metadata)), ..Locality::default() };
        Some(Arc::new(Endpoint {
            address: Address::Tcp(address.parse().unwrap()),
            additional: Vec::new(),
            hostname: String::new(),
            weight: 1,
            priority: 0,
            health: EndpointHealth::Healthy,
            leaving: None,
            check: None,
            place: Some(Arc::new(place)),
            hash_key: None,
            metadata: None,
        }))
    }
}
