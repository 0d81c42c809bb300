//! Answers that are fetched from elsewhere and put in the place of others, as Envoy's filter custom_response does.

use postrider_tests::envoy;
use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::kit::Origin;
use postrider_tests::kit::config::extension;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.custom_response";
const TYPE: &str = "filters.http.custom_response.v3.CustomResponse";

fn status(value: &str) -> Value {
    let typed = json!({"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput"});
    let input = json!({"name": "status", "typed_config": typed});
    json!({"single_predicate": {"input": input, "value_match": {"exact": value}}})
}

fn fetch(mut policy: Value) -> Value {
    let kind = "envoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicy";
    policy["@type"] = json!(format!("type.googleapis.com/{kind}"));
    json!({"action": {"name": "action", "typed_config": policy}})
}

fn tree(matchers: Vec<(&str, Value)>) -> Value {
    let matcher = |(code, leaf): (&str, Value)| json!({"predicate": status(code), "on_match": leaf});
    let matchers: Vec<Value> = matchers.into_iter().map(matcher).collect();
    json!({"custom_response_matcher": {"matcher_list": {"matchers": matchers}}})
}

fn header(key: &str, value: &str) -> Value {
    json!({"header": {"key": key, "value": value}})
}

/// Answers with the status that the path ends with, and says what it was asked for.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let path = request.target.split('?').next().unwrap_or_default();
            let status = path.rsplit('/').next().unwrap_or_default();
            let body = format!("{} {}{}", request.method, request.headers.value("host").unwrap_or("-"), request.target);
            let length = body.len();
            connection.write(
                format!("HTTP/1.1 {status} X\r\nx-origin: {status}\r\ncontent-length: {length}\r\n\r\n").as_bytes(),
            );
            if request.method != "HEAD" {
                connection.write(body.as_bytes());
            }
        }
    })
}

fn plan(matchers: Vec<(&str, Value)>) -> Plan {
    site::with([extension(NAME, TYPE, tree(matchers))])
}

fn stat(site: &Site, name: &str) -> u64 {
    site.stat(&format!("http.ingress_http.{name}"))
}

#[test]
fn another_answer_is_fetched_and_takes_the_place() {
    let site = plan(vec![
        (
            "404",
            fetch(json!({
                "uri": "https://errors.test:8443/page/200?a=b#c",
                "status_code": 499,
                "request_headers_to_add": [header("x-why", "%REQ(:path)%"), header("x-code", "%RESPONSE_CODE%")],
                "response_headers_to_add": [header("x-put", "%REQ(x-why)%")],
            })),
        ),
        ("410", fetch(json!({"uri": "http://errors.test/page/203"}))),
    ])
    .log("%REQ(:method)% %REQ(:authority)%%REQ(:path)% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS%")
    .start_before(origin());
    let answer = site.get("/a/404", "x-own: 1\r\n");
    assert_eq!((answer.status, answer.text()), (499, "GET errors.test:8443/page/200?a=b"));
    assert_eq!((answer.header("x-origin"), answer.header("x-put")), ("200", "/page/200?a=b"));
    let seen = site.origin.requests().remove(1);
    assert_eq!((seen.header("x-why"), seen.header("x-own")), ("/page/200?a=b", "1"));
    assert_eq!(seen.header("x-code"), "404");
    assert!(!seen.headers.contains("x-envoy-original-url"));
    // In Envoy, the request that is replaced is the one that fetches already.
    let replaced = if envoy() { "errors.test:8443/page/200?a=b" } else { "test/a/404" };
    assert_eq!(site.logged(1), format!("GET {replaced} 404 internal_redirect"));
    assert_eq!(site.logged(2), "GET errors.test:8443/page/200?a=b 499 via_upstream");
    // Without a status of the policy's, that of the answer stays.
    let kept = site.get("/a/410", "");
    assert_eq!((kept.status, kept.header("x-origin")), (410, "203"));
    assert_eq!(stat(&site, "downstream_rq_total"), 4);
    assert_eq!(site.stat("cluster.origin.upstream_rq_404"), 1);
    assert_eq!(site.stat("cluster.origin.upstream_rq_410"), 1);
    assert_eq!(stat(&site, "downstream_rq_4xx"), 2);
    assert!(site.origin.malformed().is_empty());
}

#[test]
fn what_is_fetched_takes_the_place_whatever_its_own_status_is() {
    let policy = json!({
        "uri": "http://errors.test/404", "status_code": 299, "response_headers_to_add": [header("x-put", "1")],
    });
    let site = plan(vec![("404", fetch(policy))]).start_before(origin());
    let answer = site.get("/404", "");
    assert_eq!((answer.status, answer.text()), (299, "GET errors.test/404"));
    assert_eq!(answer.header("x-put"), "1");
    // It is not fetched once more.
    assert_eq!(site.origin.requests().len(), 2);
}

#[test]
fn a_body_does_not_come_along() {
    let site = plan(vec![("404", fetch(json!({"uri": "http://errors.test/200"})))]).start_before(origin());
    for framing in ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        let mut client = site.proxy.client();
        let answer = client.exchange(format!("POST /404 HTTP/1.1\r\nhost: test\r\n{framing}"));
        assert_eq!((answer.status, answer.text()), (404, "GET errors.test/200"), "{framing}");
        // The connection is good for another one.
        assert_eq!(client.exchange("GET /200 HTTP/1.1\r\nhost: test\r\n\r\n").text(), "GET test/200");
    }
    let fetched = site.origin.requests().remove(1);
    assert!(!fetched.headers.contains("content-length") && !fetched.headers.contains("transfer-encoding"));
    assert!(site.origin.malformed().is_empty());
}

#[test]
fn the_proxys_own_answers_lead_elsewhere_too() {
    let site = plan(vec![
        ("402", fetch(json!({"uri": "http://errors.test/200", "status_code": 402}))),
        ("503", fetch(json!({"uri": "http://errors.test/direct"}))),
    ])
    .cluster("down", &[refusing_address()], json!({}))
    .routes(json!([
        {"match": {"prefix": "/402"}, "direct_response": {"status": 402, "body": {"inline_string": "direct"}}},
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 201, "body": {"inline_string": "sorry"}}},
        {"match": {"prefix": "/down"}, "route": {"cluster": "down"}},
        site::rest(),
    ]))
    .start_before(origin());
    let direct = site.get("/402", "");
    assert_eq!((direct.status, direct.text()), (402, "GET errors.test/200"));
    let down = site.get("/down", "");
    assert_eq!((down.status, down.text()), (503, "sorry"));
    assert_eq!(stat(&site, "downstream_rq_total"), 4);
    assert_eq!(site.stat("cluster.down.upstream_rq_503"), 1);
}

#[test]
fn an_answer_of_a_filter_in_front_stays() {
    let matchers = vec![("419", fetch(json!({"uri": "http://errors.test/200"})))];
    let abort = json!({"abort": {"http_status": 419, "percentage": {"numerator": 100}}});
    let site = site::with([
        extension("envoy.filters.http.fault", "filters.http.fault.v3.HTTPFault", abort),
        extension(NAME, TYPE, tree(matchers)),
    ])
    .start_before(origin());
    assert_eq!(site.get("/", "").status, 419);
    assert_eq!(site.logged(1), "419 FI fault_filter_abort");
    assert_eq!(stat(&site, "downstream_rq_total"), 1);
}

#[test]
fn parts_of_the_uri_may_stay_those_of_the_request() {
    let to = |action: Value| fetch(json!({"redirect_action": action}));
    let site = plan(vec![
        ("404", to(json!({"host_redirect": "other", "path_redirect": "/x/200"}))),
        ("410", to(json!({"https_redirect": true, "port_redirect": 1234, "path_redirect": "/200?own"}))),
        ("411", to(json!({"path_redirect": "/200", "strip_query": true}))),
    ])
    .start_before(origin());
    assert_eq!(site.get("/404?q", "").text(), "GET other/x/200?q");
    assert_eq!(site.get("/410?q", "").text(), "GET test:1234/200?own");
    assert_eq!(site.get("/411?q", "").text(), "GET test/200");
}

#[test]
fn without_a_route_the_answer_stays() {
    let site = plan(vec![("404", fetch(json!({"uri": "http://nowhere.test/", "status_code": 200})))])
        .host(json!({"domains": ["test"]}))
        .start_before(origin());
    let answer = site.get("/404", "");
    assert_eq!((answer.status, answer.text()), (404, "GET test/404"));
    assert_eq!(stat(&site, "custom_response_redirect_no_route"), 1);
    assert_eq!(stat(&site, "custom_response_invalid_uri"), 0);
}

/// A route's policy fetches from a route that has none of its own.
#[test]
fn the_filter_of_the_route_that_answers_finishes_it() {
    let own = |mut config: Value| {
        config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
        config
    };
    let policy = json!({"uri": "http://test/plain/200", "status_code": 418});
    let site = site::with([extension(NAME, TYPE, json!({}))])
        .routes(json!([site::route("/own", NAME, own(tree(vec![("404", fetch(policy))]))), site::rest(),]))
        .start_before(origin());
    assert_eq!(site.get("/own/404", "").status, 418);
    assert_eq!(site.get("/plain/404", "").status, 404);
}

#[test]
fn a_request_for_a_head_gets_a_head() {
    let site = plan(vec![("404", fetch(json!({"uri": "http://errors.test/200"})))]).start_before(origin());
    let answer = site.ask("HEAD", "/404", "");
    assert_eq!((answer.status, answer.body.len()), (404, 0));
    // Envoy asks for all of it.
    let method = if envoy() { "GET" } else { "HEAD" };
    assert_eq!(site.origin.requests()[1].method, method);
    assert_eq!(site.get("/200", "").text(), "GET test/200");
}

#[test]
fn streams_of_http2_are_led_elsewhere_too() {
    let site = plan(vec![("404", fetch(json!({"uri": "http://errors.test/200"})))]).start_before(origin());
    let mut client = H2Client::connect(site.proxy.address("http"));
    let answer = client.exchange(request("POST", "/404").body(()).unwrap(), b"hello");
    assert_eq!((answer.status, answer.text()), (404, "GET errors.test/200"));
    assert!(client.get("/200").text().ends_with("/200"));
}

#[test]
fn a_request_that_is_not_all_here_keeps_its_answer() {
    let site = plan(vec![("404", fetch(json!({"uri": "http://errors.test/200"})))])
        .routes(json!([
            {"match": {"prefix": "/direct"}, "direct_response": {"status": 404, "body": {"inline_string": "direct"}}},
            site::rest(),
        ]))
        .start_before(origin());
    let mut client = site.proxy.client();
    client.send("POST /direct HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhe");
    let answer = client.response("POST").unwrap();
    assert_eq!((answer.status, answer.text()), (404, "direct"));
    assert_eq!(site.origin.requests().len(), 0);
}
