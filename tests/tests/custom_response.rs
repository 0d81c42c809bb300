//! The filter that puts answers in the place of others, as Envoy's does.

use postrider_tests::kit::config::extension;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Origin, Response};
use postrider_tests::{envoy, site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.custom_response";
const TYPE: &str = "filters.http.custom_response.v3.CustomResponse";

fn is(kind: &str, value: &str, more: Value) -> Value {
    let mut typed = json!({"@type": format!("type.googleapis.com/envoy.type.matcher.v3.{kind}")});
    for (key, value) in more.as_object().unwrap() {
        typed[key] = value.clone();
    }
    json!({"single_predicate": {"input": {"name": "input", "typed_config": typed}, "value_match": {"exact": value}}})
}

fn status(value: &str) -> Value {
    is("HttpResponseStatusCodeMatchInput", value, json!({}))
}

fn class(value: &str) -> Value {
    is("HttpResponseStatusCodeClassMatchInput", value, json!({}))
}

fn answer(mut policy: Value) -> Value {
    let kind = "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy";
    policy["@type"] = json!(format!("type.googleapis.com/{kind}"));
    json!({"action": {"name": "action", "typed_config": policy}})
}

fn says(body: &str) -> Value {
    answer(json!({"body": {"inline_string": body}}))
}

fn tree(matchers: Vec<(Value, Value)>) -> Value {
    let matcher = |(predicate, leaf): (Value, Value)| json!({"predicate": predicate, "on_match": leaf});
    let matchers: Vec<Value> = matchers.into_iter().map(matcher).collect();
    json!({"custom_response_matcher": {"matcher_list": {"matchers": matchers}}})
}

fn own(mut config: Value) -> Value {
    config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
    config
}

fn header(key: &str, value: &str) -> Value {
    json!({"header": {"key": key, "value": value}})
}

/// Answers with the status that the path ends with.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = request.target.rsplit('/').next().unwrap_or_default();
            let fields = "x-origin: O\r\nx-multi: a\r\nx-multi: b\r\ncontent-type: origin/type\r\ncontent-length: 6";
            connection.write(format!("HTTP/1.1 {status} X\r\n{fields}\r\n\r\n").as_bytes());
            if request.method != "HEAD" {
                connection.write(b"origin");
            }
        }
    })
}

fn shown(response: &Response) -> (u16, &str) {
    (response.status, response.text())
}

#[test]
fn answers_take_the_place_of_others_by_status_and_headers() {
    let format = json!({"json_format": {"status": "%RESPONSE_CODE%", "message": "%LOCAL_REPLY_BODY%"}});
    let none_of = |predicate: Value| json!({"not_matcher": predicate});
    let any = |predicates: Value| json!({"or_matcher": {"predicate": predicates}});
    let all = |predicates: Value| json!({"and_matcher": {"predicate": predicates}});
    let site = site::with([extension(
        NAME,
        TYPE,
        tree(vec![
            (
                status("401"),
                answer(json!({
                    "status_code": 499, "body": {"inline_string": "not allowed"}, "body_format": format,
                    "response_headers_to_add": [header("foo", "bar"), header("x-path", "%REQ(:path)%")],
                    "response_code_details": "my own",
                })),
            ),
            (
                status("402"),
                answer(json!({
                    "body_format": {"text_format_source": {
                        "inline_string": "was %RESPONSE_CODE% %RESP(x-origin)% [%LOCAL_REPLY_BODY%]",
                    }},
                    "preserve_response_code_details": true,
                })),
            ),
            (
                all(json!([
                    any(json!([status("404"), status("410")])),
                    none_of(is("HttpRequestHeaderMatchInput", "plain", json!({"header_name": "accept"}))),
                ])),
                says("gone"),
            ),
            (
                all(json!([
                    class("2xx"),
                    is("HttpResponseHeaderMatchInput", "a,b", json!({"header_name": "x-multi"}))
                ])),
                answer(json!({"status_code": 203, "response_headers_to_add": [header("content-type", "x/y")]})),
            ),
        ]),
    )])
    .host(json!({"response_headers_to_add": [header("x-host", "%RESPONSE_CODE%")]}))
    .start_before(origin());
    let denied = site.get("/401", "");
    assert_eq!(shown(&denied), (499, "{\"message\":\"not allowed\",\"status\":401}\n"));
    assert_eq!((denied.header("content-type"), denied.header("foo")), ("text/plain", "bar"));
    assert_eq!((denied.header("x-path"), denied.header("x-host")), ("/401", "401"));
    assert!(!denied.headers.contains("x-origin") && !denied.headers.contains("x-envoy-upstream-service-time"));
    assert_eq!(shown(&site.get("/402", "")), (402, "was 402 O []"));
    assert_eq!(shown(&site.get("/404", "accept: plain\r\n")), (404, "origin"));
    let logged = ["499 - my_own", "402 - via_upstream", "404 - via_upstream"];
    assert_eq!([1, 2, 3].map(|line| site.logged(line)), logged);
    // From here on the details are cleared, where Envoy writes bytes of something else.
    assert_eq!(shown(&site.get("/404", "")), (404, "gone"));
    assert!(envoy() || site.logged(4) == "404 - -");
    assert_eq!(shown(&site.get("/410", "")), (410, "gone"));
    assert_eq!(shown(&site.get("/500", "")), (500, "origin"));
    let empty = site.get("/200", "");
    assert_eq!((shown(&empty), empty.header("content-length")), ((203, ""), "0"));
    let head = site.ask("HEAD", "/404", "");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (404, "4", 0));
    // What the upstream answered counts as such.
    assert_eq!(site.stat("cluster.origin.upstream_rq_401"), 1);
    // It is not asked for more on a connection whose answer nobody read to the end.
    assert!(site.origin.malformed().is_empty());
}

#[test]
fn answers_of_the_proxy_itself_are_replaced_too() {
    let local = is("HttpResponseLocalReplyMatchInput", "true", json!({}));
    let format = |text: &str| json!({"body_format": {"text_format_source": {"inline_string": text}}});
    let mut kept = format("<%LOCAL_REPLY_BODY%> %RESPONSE_CODE_DETAILS%");
    kept["preserve_response_code_details"] = json!(true);
    let site = site::with([extension(
        NAME,
        TYPE,
        tree(vec![(status("403"), answer(json!({"status_code": 200}))), (local, answer(kept))]),
    )])
    .host(json!({"domains": ["test"]}))
    .cluster("down", &[refusing_address()], json!({}))
    .routes(json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 402, "body": {"inline_string": "direct"}}},
        {"match": {"prefix": "/403"}, "direct_response": {"status": 403, "body": {"inline_string": "direct"}}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        site::rest(),
    ]))
    .start_before(origin());
    assert_eq!(shown(&site.get("/direct", "")), (402, "<direct> direct_response"));
    assert_eq!(shown(&postrider_tests::ask(&site.proxy, "GET", "other", "/", "")), (404, "<> route_not_found"));
    let down = site.get("/down", "");
    assert_eq!(down.status, 503);
    assert!(down.text().starts_with("<upstream connect error"), "{}", down.text());
    assert_eq!(shown(&site.get("/500", "")), (500, "origin"));
    assert_eq!([1, 2].map(|line| site.logged(line)), ["402 - direct_response", "404 NR route_not_found"]);
    assert_eq!(shown(&site.get("/403", "")), (200, ""));
}

#[test]
fn the_most_specific_scope_that_matches_decides() {
    let by_map = json!({"custom_response_matcher": {"matcher_tree": {
        "input": status("")["single_predicate"]["input"],
        "exact_match_map": {"map": {
            "401": says("route"),
            "402": {"matcher": tree(vec![(is("HttpRequestHeaderMatchInput", "1", json!({"header_name": "x-n"})),
                says("nested"))])["custom_response_matcher"]},
        }},
    }}});
    let mut otherwise = tree(vec![(status("599"), says("never"))]);
    otherwise["custom_response_matcher"]["on_no_match"] = says("otherwise");
    let site = site::with([extension(
        NAME,
        TYPE,
        tree(vec![
            (status("401"), says("gateway")),
            (status("402"), says("gateway")),
            (status("403"), says("gateway")),
        ]),
    )])
    .host(json!({"typed_per_filter_config": {
        NAME: own(tree(vec![(status("403"), says("host"))])),
    }}))
    .routes(json!([
        site::route("/map", NAME, own(by_map)),
        site::route("/otherwise", NAME, own(otherwise)),
        site::route("/empty", NAME, own(json!({}))),
        site::rest(),
    ]))
    .start_before(origin());
    let table = [
        ("/map/401", "", "route"),
        ("/map/402", "", "gateway"),
        ("/map/402", "x-n: 1\r\n", "nested"),
        ("/map/403", "", "host"),
        ("/map/404", "", "origin"),
        ("/otherwise/200", "", "otherwise"),
        ("/empty/403", "", "host"),
        ("/401", "", "gateway"),
        ("/403", "", "host"),
    ];
    for (path, fields, want) in table {
        assert_eq!(site.get(path, fields).text(), want, "{path} {fields}");
    }
}

#[test]
fn a_grpc_client_hears_the_status_that_the_answer_stands_for() {
    let site = site::with([extension(
        NAME,
        TYPE,
        tree(vec![(
            status("401"),
            answer(json!({
                "status_code": 403, "body": {"inline_string": "no"},
            })),
        )]),
    )])
    .start_before(origin());
    let answer = site.ask("POST", "/401", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!((answer.status, answer.header("grpc-status"), answer.header("grpc-message")), (200, "7", "no"));
}
