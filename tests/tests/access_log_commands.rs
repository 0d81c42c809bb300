//! What commands of access logs give, in text and as typed JSON. The same expectations hold for Envoy.

use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};

/// The JSON line about one request to `/p?a=1&b=%20x&a=2`, rewritten to `/new…`.
fn line(fields: Value) -> Value {
    line_of("/p?a=1&b=%20x&a=2", fields)
}

/// That of a request to any path; there is a route for those that begin with `/p`.
fn line_of(target: &str, fields: Value) -> Value {
    line_as(target, json!({"json_format": fields}))
}

/// The same by any format that is JSON.
fn line_as(target: &str, format: Value) -> Value {
    let directory = TempDir::new();
    let path = directory.path().join("log");
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let metadata = json!({"filter_metadata": {"ns": {"text": "t", "number": 5, "deep": {"yes": true}}}});
    let route = json!({"match": {"prefix": "/p"}, "route": {"cluster": "origin", "prefix_rewrite": "/new"}, "metadata": metadata});
    let host = json!({"name": "h", "domains": ["*"], "routes": [route], "metadata": {"filter_metadata": {"ns": {"of": "host"}}}});
    let config = Config::new()
        .http(json!({"route_config": {"virtual_hosts": [host]}}))
        .cluster_with("origin", &[origin.address], json!({"alt_stat_name": "watched"}))
        .overlay_filter("http", json!({"access_log": [config::file_access_log(&path, json!({"log_format": format}))]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&["--file-flush-interval-msec", "20"]));
    RawClient::once(
        proxy.address("http"),
        format!("GET {target} HTTP/1.1\r\nhost: test\r\nx-request-id: 0a0b0c0d-0000-4000-8000-000000000000\r\n\r\n"),
    )
    .unwrap();
    let mut text = String::new();
    wait_until("a line", || {
        text = std::fs::read_to_string(&path).unwrap_or_default();
        text.ends_with('\n')
    });
    serde_json::from_str(&text).unwrap()
}

#[test]
fn values_have_their_types() {
    let fields = [
        ("QUERY_PARAM(b)", json!(" x")),
        ("QUERY_PARAM(c)", Value::Null),
        ("QUERY_PARAMS", json!("a=1&b=%20x&a=2")),
        ("PATH(NQ)", json!("/p")),
        ("PATH(NQ:ORIG)", json!("/p")),
        ("PATH(NQ:PATH)", json!("/new")),
        ("STREAM_ID", json!("0a0b0c0d-0000-4000-8000-000000000000")),
        ("RESPONSE_TRAILERS_BYTES", json!(0)),
        ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(9)", json!("127.0.0.0/9")),
        ("ENVIRONMENT(NO_SUCH_VARIABLE)", json!("-")),
        ("METADATA(ROUTE:ns:text)", json!("t")),
        ("METADATA(ROUTE:ns:number)", json!(5)),
        ("METADATA(ROUTE:ns:deep)", json!({"yes": true})),
        ("METADATA(ROUTE:ns:none)", Value::Null),
        ("METADATA(VIRTUAL_HOST:ns:of)", json!("host")),
        ("RESP(:status)", json!("200")),
        ("RESP(x-none?:status):1", json!("2")),
        ("UPSTREAM_CLUSTER", json!("watched")),
        ("UPSTREAM_CLUSTER_RAW", json!("origin")),
        ("DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID", json!("")),
        ("DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID", json!("")),
        ("UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID", json!("")),
        // Texts alone are cut.
        ("METADATA(ROUTE:ns:text):0", json!("")),
        ("METADATA(VIRTUAL_HOST:ns:of):2", json!("ho")),
        ("METADATA(ROUTE:ns:number):0", json!(5)),
        ("METADATA(ROUTE:ns:deep):2", json!({"yes": true})),
        ("COALESCE({\"operators\":[{\"command\":\"METADATA\",\"param\":\"ROUTE:ns:deep\"}]})", json!({"yes": true})),
        ("COALESCE({\"operators\":[{\"command\":\"REQ\",\"param\":\"host\",\"max_length\":2}],\"x\":1})", json!("te")),
    ];
    let format = fields.iter().map(|(command, _)| ((*command).to_owned(), json!(format!("%{command}%"))));
    let line = line(Value::Object(format.collect()));
    for (command, expected) in &fields {
        assert_eq!(line[*command], *expected, "{command}");
    }
}

#[test]
fn arguments_that_envoy_takes_are_taken() {
    let fields = [
        ("RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)", json!("via_upstream")),
        ("RESPONSE_CODE_DETAILS(x)", json!("via_upstream")),
        ("REQUESTED_SERVER_NAME(SNI_ONLY)", Value::Null),
        ("REQUESTED_SERVER_NAME(SNI_FIRST)", json!("test")),
        ("REQUESTED_SERVER_NAME(HOST_FIRST:HOST)", json!("test")),
        ("COMMON_DURATION(DS_RX_BEG:foo)", Value::Null),
        ("STREAM_INFO_REQ(:method)", json!("GET")),
        ("XFCC_VALUE(uri)", Value::Null),
        ("METADATA(ROUTE)", Value::Null),
        ("METADATA(ROUTE:ns:)", Value::Null),
        ("METADATA(ROUTE:ns::x)", Value::Null),
        ("FILTER_STATE(a:FIELD:b:c)", Value::Null),
        ("RESPONSE_CODE()", json!(200)),
        ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(200)", json!("127.0.0.1/32")),
        ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(MASK_PREFIX_LEN=24)", json!("127.0.0.1")),
        ("TYPED_CEL(response.code > 1)", json!(true)),
        ("TYPED_CEL(response.code)", json!(200)),
        ("TYPED_CEL(request.path):3", json!("/ne")),
        ("TYPED_CEL([1, 'a', b'xy', null])", json!([1, "a", "eHk=", null])),
        ("TYPED_CEL(duration('1.5s'))", json!("1.500s")),
        ("START_TIME(%L %q 100%)", json!("%L %q 100%")),
        ("START_TIME(%Ez|%#Z|%Ot)", json!("+00:00|utc|\t")),
    ];
    let format = fields.iter().map(|(command, _)| ((*command).to_owned(), json!(format!("%{command}%"))));
    let line = line(Value::Object(
        format.chain([("took".to_owned(), json!("%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG)%"))]).collect(),
    ));
    for (command, expected) in &fields {
        assert_eq!(line[*command], *expected, "{command}");
    }
    assert!(line["took"].as_u64().is_some_and(|millis| millis < 60_000), "{line}");
}

#[test]
fn what_is_empty_leaves_texts_lists_and_objects_where_that_is_asked_for() {
    let format = json!({"omit_empty_values": true, "json_format": {
        "mixed": "a%REQ(none)%b", "none": "%REQ(none)%%REQ(none2)%", "list": ["a", 1, "%REQ(x)%", null, {"x": "%REQ(x)%"}, []],
        "object": {"inner": {"x": "%REQ(x)%"}}, "empty": {}, "gone": ["%REQ(x)%"], "null": null,
    }});
    let expected = json!({"mixed": "ab", "none": "", "list": ["a", 1, []], "gone": []});
    assert_eq!(line_as("/p", format), expected);
}

#[test]
fn what_a_virtual_host_without_a_route_says_is_told() {
    let fields = json!({
        "status": "%RESP(:status)%", "of": "%METADATA(VIRTUAL_HOST:ns:of)%", "route": "%METADATA(ROUTE:ns:text)%",
        "cluster": "%UPSTREAM_CLUSTER%", "endpoint": "%UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID%",
    });
    let expected = json!({"status": "404", "of": "host", "route": null, "cluster": null, "endpoint": null});
    assert_eq!(line_of("/elsewhere", fields), expected);
}

#[test]
fn the_time_that_lookups_of_a_route_took_is_told_where_it_is_asked_for() {
    for fields in ["%ROUTE_RESOLUTION_TIME_US%", "%COALESCE({\"operators\": [\"ROUTE_RESOLUTION_TIME_US\"]})%"] {
        let time = &line(json!({"time": [fields]}))["time"][0];
        assert!(time.as_u64().is_some_and(|time| time < 1_000_000), "{fields}: {time}");
    }
}

#[test]
fn moments_are_in_order_and_unique_ids_differ() {
    let line = line(json!({
        "received": "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ns)%",
        "answered": "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:ns)%",
        "ended": "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:ns)%",
        "microseconds": "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
        "one": "%UNIQUE_ID%",
        "two": "%UNIQUE_ID%",
    }));
    let number = |name: &str| line[name].as_u64().unwrap();
    assert!(number("received") <= number("answered") && number("answered") <= number("ended"), "{line}");
    assert_eq!(number("microseconds"), number("ended") / 1000);
    let unique = |name: &str| line[name].as_str().unwrap().to_owned();
    assert_eq!(unique("one").len(), 36);
    assert_ne!(unique("one"), unique("two"));
}
