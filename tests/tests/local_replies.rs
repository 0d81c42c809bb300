//! Answers that the proxy makes itself: `local_reply_config`, bodies by format, and what routes add to them.

use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::{Config, Origin, Proxy, net::refusing_address, wait_until};
use postrider_tests::{ask, site};
use serde_json::{Value, json};

fn add(key: &str, value: &str) -> Value {
    json!({"header": {"key": key, "value": value}})
}

fn status_is(op: &str, status: u16) -> Value {
    json!({"status_code_filter": {"comparison": {"op": op, "value": {"default_value": status, "runtime_key": "k"}}}})
}

fn header_is(name: &str, value: &str) -> Value {
    json!({"header_filter": {"header": {"name": name, "string_match": {"exact": value}}}})
}

fn start(mappers: Value, body_format: Option<Value>) -> (Proxy, Origin) {
    let origin = Origin::fixed("HTTP/1.1 418 Teapot\r\ncontent-length: 2\r\n\r\nok");
    let mut replies = json!({"mappers": mappers});
    if let Some(format) = body_format {
        replies["body_format"] = format;
    }
    let config = Config::new()
        .http(json!({
            "local_reply_config": replies,
            "route_config": {
                "response_headers_to_add": [add("x-r", "table")],
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"path": "/418"}, "direct_response": {"status": 418, "body": {"inline_string": "teapot"}},
                     "response_headers_to_add": [add("x-r", "route")]},
                    {"match": {"path": "/417"}, "direct_response": {"status": 417, "body": {"inline_string": "own"}}},
                    {"match": {"path": "/bare"}, "direct_response": {"status": 400}},
                    {"match": {"path": "/down"}, "route": {"cluster": "down"}},
                    {"match": {"path": "/up"}, "route": {"cluster": "up"}},
                ]}],
            },
        }))
        .cluster("down", &[refusing_address()])
        .cluster("up", &[origin.address]);
    (Proxy::start(&config), origin)
}

#[test]
fn the_first_mapper_that_holds_changes_status_body_and_headers() {
    let (proxy, _origin) = start(
        json!([
            {"filter": header_is("x-m", "a"), "status_code": 499, "body": {"inline_string": "body-a"},
             "headers_to_add": [{"header": {"key": "x-added", "value": "%RESPONSE_CODE%-%RESPONSE_CODE_DETAILS%"}}],
             "body_format_override": {"json_format": {"s": "%RESPONSE_CODE%", "b": "%LOCAL_REPLY_BODY%", "n": "%REQ(x-none)%"}}},
            {"filter": {"and_filter": {"filters": [status_is("GE", 400), {"response_flag_filter": {"flags": ["NR"]}}]}},
             "status_code": 410, "body_format_override": {"text_format": "<%RESPONSE_CODE%>", "content_type": "text/html"}},
            {"filter": {"or_filter": {"filters": [status_is("EQ", 1), status_is("EQ", 418)]}},
             "body": {"inline_string": "mapped"}, "headers_to_add": [add("x-r", "mapper")]},
        ]),
        Some(json!({"text_format": "[%LOCAL_REPLY_BODY%:%RESPONSE_CODE%]", "content_type": "text/x-all"})),
    );
    let reply = proxy.get("/418");
    assert_eq!((reply.status, reply.text()), (418, "[mapped:418]"));
    assert_eq!(reply.headers.values("x-r"), ["route", "table", "mapper"]);
    assert_eq!(reply.header("content-type"), "text/x-all");
    let reply = proxy.get("/nowhere");
    assert_eq!((reply.status, reply.text(), reply.header("content-type")), (410, "<410>", "text/html"));
    assert!(!reply.headers.contains("x-r"));
    let reply = ask(&proxy, "GET", "test", "/418", "x-m: a\r\n");
    assert_eq!((reply.status, reply.header("x-added")), (499, "418-direct_response"));
    assert_eq!(reply.text(), "{\"b\":\"body-a\",\"n\":null,\"s\":499}\n");
    assert_eq!(reply.header("content-type"), "application/json");
    // What no mapper wants gets the common format; what an upstream says is none of ours.
    assert_eq!(proxy.get("/417").text(), "[own:417]");
    assert_eq!(proxy.get("/up").text(), "ok");
    // A client may have its answer before it is counted.
    proxy.wait_stat("http.ingress_http.downstream_rq_4xx", 5);
}

#[test]
fn a_cluster_counts_what_happened_and_the_client_hears_what_was_mapped() {
    let (proxy, _origin) =
        start(json!([{"filter": status_is("EQ", 503), "status_code": 429, "body": {"inline_string": "later"}}]), None);
    let reply = proxy.get("/down");
    assert_eq!((reply.status, reply.text(), reply.header("x-r")), (429, "later", "table"));
    assert_eq!(reply.header("content-type"), "text/plain");
    let stats = proxy.stats();
    assert_eq!(stats.value("cluster.down.upstream_rq_503"), 1);
    assert_eq!(stats.value("http.ingress_http.downstream_rq_4xx"), 1);
    assert_eq!(stats.value("http.ingress_http.downstream_rq_5xx"), 0);
}

#[test]
fn a_grpc_client_hears_the_status_that_was_mapped() {
    let (proxy, _origin) = start(
        json!([{"filter": {"response_flag_filter": {"flags": ["NR"]}}, "status_code": 503,
                "body_format_override": {"json_format": {"code": "%RESPONSE_CODE%"}}}]),
        None,
    );
    let reply = ask(&proxy, "POST", "test", "/nowhere", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!((reply.status, reply.header("grpc-status")), (200, "14"));
    assert_eq!(reply.header("grpc-message"), "{\"code\":503}");
}

#[test]
fn an_empty_body_has_no_content_type_unless_the_format_fills_it() {
    let (proxy, _origin) = start(json!([{"filter": status_is("EQ", 417), "body": {"inline_string": ""}}]), None);
    let reply = proxy.get("/417");
    assert_eq!((reply.status, reply.text()), (417, ""));
    assert!(!reply.headers.contains("content-type"));
    let (proxy, _origin) = start(json!([]), Some(json!({"text_format": "%RESPONSE_CODE%"})));
    let reply = proxy.get("/bare");
    assert_eq!((reply.text(), reply.header("content-type")), ("400", "text/plain"));
}

#[test]
fn what_described_a_body_that_an_answer_lacks_is_left_out() {
    // As a filter hands on what a service said with another body.
    let script = "function envoy_on_request(handle)
        local body = handle:headers():get('x-body')
        if body then
          handle:respond({[':status'] = '403', ['content-type'] = 'text/html', ['content-length'] = '7', ['x-a'] = '1'}, body)
        end
      end";
    let lua = json!({"default_source_code": {"inline_string": script}});
    let lua = extension("lua", "filters.http.lua.v3.Lua", lua);
    let direct = |path: &str, answer: Value| {
        json!({
            "match": {"path": path}, "direct_response": answer,
            "response_headers_to_add": [add("content-type", "text/css")],
        })
    };
    let config = Config::new().http(json!({
        "http_filters": [lua, router()],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            direct("/bare", json!({"status": 202})),
            direct("/full", json!({"status": 202, "body": {"inline_string": "css"}})),
        ]}]},
    }));
    let proxy = Proxy::start(&config);
    let answer = |path: &str, fields: &str| {
        let answer = ask(&proxy, "GET", "test", path, fields);
        let kind = answer.headers.value("content-type").map(str::to_owned);
        (answer.status, kind, answer.headers.values("content-length").join("|"), answer.text().to_owned())
    };
    let kind = |kind: &str| Some(kind.to_owned());
    assert_eq!(answer("/", "x-body: \r\n"), (403, None, "0".into(), String::new()));
    assert_eq!(answer("/", "x-body: abc\r\n"), (403, kind("text/html"), "3".into(), "abc".into()));
    assert_eq!(answer("/bare", ""), (202, None, "0".into(), String::new()));
    assert_eq!(answer("/full", ""), (202, kind("text/css"), "3".into(), "css".into()));
}

#[test]
fn shares_and_durations_decide_like_any_other_condition() {
    let share =
        |numerator: u32| json!({"runtime_filter": {"runtime_key": "k", "percent_sampled": {"numerator": numerator}}});
    let longer = |millis: u32| json!({"duration_filter": {"comparison": {"op": "GE", "value": {"default_value": millis, "runtime_key": "k"}}}});
    let (proxy, _origin) = start(
        json!([
            {"filter": share(0), "body": {"inline_string": "none"}},
            {"filter": longer(3_600_000), "body": {"inline_string": "slow"}},
            {"filter": {"metadata_filter": {"matcher": {"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}}, "match_if_key_not_found": false}},
             "body": {"inline_string": "noted"}},
            {"filter": {"and_filter": {"filters": [share(100), longer(0)]}}, "body": {"inline_string": "all"}},
        ]),
        None,
    );
    assert_eq!(proxy.get("/417").text(), "all");
}

#[test]
fn direct_responses_have_bodies_by_format() {
    let proxy = Proxy::start(&Config::routes(json!([
        {"match": {"path": "/json"}, "direct_response": {"status": 415, "body": {"inline_string": "in"},
         "body_format": {"json_format": {"a": "%LOCAL_REPLY_BODY%", "c": "%RESPONSE_CODE%", "p": "%REQ(:path)%", "nil": "%REQ(nn)%"}}}},
        {"match": {"path": "/text"}, "direct_response": {"status": 415, "body": {"inline_string": "in"},
         "body_format": {"text_format": "t %LOCAL_REPLY_BODY% %REQ(nn)%.", "content_type": "a/b", "omit_empty_values": true}}},
    ])));
    let reply = proxy.get("/json");
    assert_eq!(reply.text(), "{\"a\":\"in\",\"c\":0,\"nil\":null,\"p\":\"/json\"}\n");
    assert_eq!(reply.header("content-type"), "application/json");
    let reply = proxy.get("/text");
    assert_eq!((reply.text(), reply.header("content-type")), ("t in .", "a/b"));
}

#[test]
fn access_logs_take_the_same_conditions() {
    let directory = postrider_tests::kit::TempDir::new();
    let path = directory.path().join("log");
    let mut log =
        file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": "%RESPONSE_CODE%\n"}}}));
    log["filter"] = json!({"or_filter": {"filters": [status_is("GE", 500), header_is("x-log", "1"),
        {"not_health_check_filter": {}}]}});
    log["filter"] = json!({"and_filter": {"filters": [
        {"or_filter": {"filters": [status_is("GE", 500), header_is("x-log", "1")]}}, {"not_health_check_filter": {}}]}});
    let proxy = Proxy::start(
        &Config::routes(json!([
            {"match": {"path": "/500"}, "direct_response": {"status": 500}},
            {"match": {"path": "/200"}, "direct_response": {"status": 200}},
        ]))
        .overlay_filter("http", json!({"access_log": [log]})),
    );
    proxy.get("/200");
    proxy.get("/500");
    ask(&proxy, "GET", "test", "/200", "x-log: 1\r\n");
    wait_until("two lines", || std::fs::read_to_string(&path).is_ok_and(|text| text == "500\n200\n"));
}

#[test]
fn a_filter_hears_the_status_that_a_reply_to_grpc_had_before_it_became_200() {
    let edit = json!({"append": {"header": {"key": "x-status", "value": "%RESPONSE_CODE%"}}});
    let filter = extension(
        "envoy.filters.http.header_mutation",
        "filters.http.header_mutation.v3.HeaderMutation",
        json!({"mutations": {"response_mutations": [edit]}}),
    );
    let site = site::with([filter])
        .routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 404}}]))
        .log("%RESPONSE_CODE%")
        .start();
    let answer = site.ask("POST", "/", "content-type: application/grpc\r\n");
    assert_eq!((answer.status, answer.header("grpc-status"), answer.header("x-status")), (200, "12", "404"));
    assert_eq!(site.logged(1), "200");
}
