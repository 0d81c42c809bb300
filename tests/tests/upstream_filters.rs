//! HTTP filters on the upstream side: of a cluster, and of the router.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_tests::envoy;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{extension, upstream_http_options};
use postrider_tests::kit::{Config, Origin, Proxy, Request, Response};
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

const MUTATION: &str = "envoy.filters.http.header_mutation";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-answer: origin\r\n\r\nok";
const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

fn codec() -> Value {
    extension("envoy.filters.http.upstream_codec", "filters.http.upstream_codec.v3.UpstreamCodec", json!({}))
}

/// Puts `x-sent` into requests and `x-answer` into answers.
fn marks(name: &str, mark: &str) -> Value {
    let append = |key: &str| json!([{"append": {"header": {"key": key, "value": mark}}}]);
    let mutations = json!({"request_mutations": append("x-sent"), "response_mutations": append("x-answer")});
    extension(name, "filters.http.header_mutation.v3.HeaderMutation", json!({ "mutations": mutations }))
}

fn lua(code: &str) -> Value {
    let code = json!({"default_source_code": {"inline_string": code}});
    extension("envoy.filters.http.lua", "filters.http.lua.v3.Lua", code)
}

fn buffer(limit: u32) -> Value {
    extension("envoy.filters.http.buffer", "filters.http.buffer.v3.Buffer", json!({"max_request_bytes": limit}))
}

fn compressor(fields: Value) -> Value {
    let library = extension("gzip", "compression.gzip.compressor.v3.Gzip", json!({}));
    let mut config = json!({ "compressor_library": library });
    postrider_tests::kit::config::overlay(&mut config, fields);
    extension("envoy.filters.http.compressor", "filters.http.compressor.v3.Compressor", config)
}

/// The origin's cluster has these filters.
fn at_cluster(filters: &[Value]) -> Plan {
    with_cluster(site::with([]), filters)
}

fn with_cluster(plan: Plan, filters: &[Value]) -> Plan {
    let filters: Vec<Value> = filters.iter().cloned().chain([codec()]).collect();
    plan.upstream(upstream_http_options(json!({ "http_filters": filters })))
}

/// The router has these filters.
fn at_router(filters: &[Value]) -> Plan {
    let filters: Vec<Value> = filters.iter().cloned().chain([codec()]).collect();
    let router = extension(
        "envoy.filters.http.router",
        "filters.http.router.v3.Router",
        json!({"upstream_http_filters": filters}),
    );
    site::with([]).manager(json!({ "http_filters": [router] }))
}

fn retrying(plan: Plan) -> Plan {
    let policy = json!({
        "retry_on": "5xx", "num_retries": 2,
        "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
    });
    plan.host(json!({ "retry_policy": policy }))
}

/// Answers the first requests with `answers`, one each, and all others with 200.
fn origin(answers: &[&str]) -> Origin {
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let count = Arc::new(AtomicUsize::new(0));
    Origin::start(move |connection| {
        while connection.request().is_some() {
            let answer = answers.get(count.fetch_add(1, Ordering::SeqCst)).map_or(OK, String::as_str);
            connection.write(answer.as_bytes());
        }
    })
}

fn answer(response: &Response) -> String {
    response.headers.values("x-answer").join(",")
}

fn sent(request: &Request) -> String {
    request.headers.values("x-sent").join(",")
}

/// The last `x-sent` that the origin saw.
fn last_sent(site: &Site) -> String {
    sent(&site.origin.requests().pop().unwrap())
}

#[test]
fn filters_of_a_cluster_see_requests_last_and_answers_first() {
    let down = marks("down", "down");
    let route = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"},
        "request_headers_to_add": [{"header": {"key": "x-sent", "value": "route"}}],
        "response_headers_to_add": [{"header": {"key": "x-answer", "value": "route"}}]}]);
    let plan = with_cluster(site::with([down]), &[marks("a", "a"), marks("b", "b")]).routes(route);
    let site = plan.log("%REQ(x-sent)% %RESP(x-answer)%").start_before(origin(&[]));
    assert_eq!(answer(&site.get("/", "")), "origin,b,a,route,down");
    assert_eq!(last_sent(&site), "down,route,a,b");
    assert_eq!(site.logged(1), "down origin");
}

#[test]
fn they_know_the_host() {
    let told = "%UPSTREAM_HOST% %UPSTREAM_CLUSTER% %UPSTREAM_REQUEST_ATTEMPT_COUNT%";
    let site = at_cluster(&[marks(MUTATION, told)]).start_before(origin(&[]));
    let expected = format!("{} origin 1", site.origin.address);
    assert_eq!(answer(&site.get("/", "")), format!("origin,{expected}"));
    assert_eq!(last_sent(&site), expected);
}

#[test]
fn those_of_the_cluster_stand_in_the_place_of_the_routers() {
    let site = at_router(&[marks("r", "router")]).start_before(origin(&[]));
    assert_eq!((answer(&site.get("/", "")), last_sent(&site)), ("origin,router".into(), "router".into()));
    let site = with_cluster(at_router(&[marks("r", "router")]), &[marks("c", "cluster")]).start_before(origin(&[]));
    assert_eq!((answer(&site.get("/", "")), last_sent(&site)), ("origin,cluster".into(), "cluster".into()));
    let site = with_cluster(at_router(&[marks("r", "router")]), &[]).start_before(origin(&[]));
    assert_eq!((answer(&site.get("/", "")), last_sent(&site)), ("origin".into(), String::new()));
}

#[test]
fn every_try_passes_them() {
    let told = "%UPSTREAM_REQUEST_ATTEMPT_COUNT%";
    let site = retrying(at_cluster(&[marks(MUTATION, told)])).start_before(origin(&[BUSY, BUSY]));
    let response = site.ask("POST", "/", "content-length: 4\r\n\r\nbody");
    assert_eq!((response.status, answer(&response).as_str()), (200, "origin,3"));
    let requests = site.origin.requests();
    let seen: Vec<_> = requests.iter().map(sent).collect();
    // In Envoy, what they do to requests piles up.
    let expected = if envoy() { ["1", "1,2", "1,2,3"] } else { ["1", "2", "3"] };
    assert_eq!(seen, expected);
    assert!(requests.iter().all(|request| request.body == b"body"), "{requests:?}");
}

#[test]
fn an_answer_is_judged_as_they_leave_it() {
    let code = r#"function envoy_on_response(h)
        if h:headers():get("x-answer") == "origin" then h:headers():replace(":status", "503") end
    end"#;
    let site = retrying(at_cluster(&[lua(code)])).start_before(origin(&[]));
    let response = site.get("/", "");
    assert_eq!((response.status, site.origin.requests().len()), (503, 3));
    assert_eq!(site.stat("cluster.origin.upstream_rq_retry"), 2);
    assert_eq!(site.stat("cluster.origin.upstream_rq_503"), 1);
    assert_eq!(site.logged(1), "503 URX via_upstream");
}

#[test]
fn a_reply_of_theirs_is_for_the_client() {
    let code = r#"function envoy_on_request(h)
        if h:headers():get("x-refuse") then h:respond({[":status"] = "503"}, "refused") end
    end"#;
    let plan = with_cluster(site::with([marks("down", "down")]), &[marks("up", "up"), lua(code)]);
    let site = retrying(plan).start_before(origin(&[]));
    for _ in 0..2 {
        let response = site.get("/", "x-refuse: 1\r\n");
        assert_eq!((response.status, response.text()), (503, "refused"));
        assert_eq!(answer(&response), "down", "filters of the upstream side see no answer");
    }
    assert_eq!(site.logged(2), "503 - lua_response");
    assert!(site.origin.requests().is_empty());
    assert_eq!(site.stat("cluster.origin.upstream_rq_retry"), 0);
    assert_eq!(site.stat("cluster.origin.upstream_rq_5xx"), 0);
    assert_eq!(site.stat("cluster.origin.lua.executions"), 2);
    // What they did not refuse goes on.
    assert_eq!(answer(&site.get("/", "")), "origin,up,down");
}

#[test]
fn routes_override_them_by_name() {
    let kind = "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute";
    let append = json!([{"append": {"header": {"key": "x-sent", "value": "route"}}}]);
    let config = json!({"@type": kind, "mutations": {"request_mutations": append}});
    let off = json!({"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true});
    let routes = json!([site::route("/own", "up", config.clone()), site::route("/off", "up", off), site::rest()]);
    let site = at_cluster(&[marks("up", "up")]).routes(routes.clone()).start_before(origin(&[]));
    let seen = ["/own", "/off", "/"].map(|path| (answer(&site.get(path, "")), last_sent(&site)));
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(seen, [pair("origin,up", "up,route"), pair("origin", ""), pair("origin,up", "up")]);
    // One that is off unless a route turns it on.
    let mut filter = marks("up", "up");
    filter["disabled"] = json!(true);
    let site = at_router(&[filter]).routes(routes).start_before(origin(&[]));
    let seen = ["/own", "/off", "/"].map(|path| (answer(&site.get(path, "")), last_sent(&site)));
    assert_eq!(seen, [pair("origin,up", "up,route"), pair("origin", ""), pair("origin", "")]);
}

#[test]
fn they_count_below_their_cluster() {
    let credential = json!({
        "@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic",
        "credential": {"name": "s"},
    });
    let injector = extension(
        "envoy.filters.http.credential_injector",
        "filters.http.credential_injector.v3.CredentialInjector",
        json!({"credential": {"name": "c", "typed_config": credential}}),
    );
    let secrets = json!([{"name": "s", "generic_secret": {"secret": {"inline_string": "Basic YTpi"}}}]);
    let site =
        at_cluster(&[injector]).whole(json!({"static_resources": {"secrets": secrets}})).start_before(origin(&[]));
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(site.origin.requests()[0].header("authorization"), "Basic YTpi");
    assert_eq!(site.stat("cluster.origin.credential_injector.injected"), 1);
}

#[test]
fn a_body_is_held_for_each_try() {
    let site = retrying(at_cluster(&[buffer(50)])).start_before(origin(&[BUSY]));
    let chunked = "transfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n3\r\nefg\r\n0\r\n";
    assert_eq!(site.ask("POST", "/", chunked).status, 200);
    let seen: Vec<_> =
        site.origin.requests().into_iter().map(|r| (r.header("content-length").to_owned(), r.body)).collect();
    assert_eq!(seen, vec![("7".to_owned(), b"abcdefg".to_vec()); 2]);
    let response =
        site.proxy.exchange(format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{}", "b".repeat(100)));
    assert_eq!((response.status, site.origin.requests().len()), (413, 2));
    assert_eq!(site.logged(2), "413 - request_payload_too_large");
}

#[test]
fn bodies_are_rewritten_both_ways() {
    let code = r#"
    local function wrap(h) h:body():setBytes("<" .. h:body():getBytes(0, h:body():length()) .. ">") end
    function envoy_on_request(h) if h:body() then wrap(h) end end
    function envoy_on_response(h) if h:body() then wrap(h) end end"#;
    let site = retrying(at_cluster(&[lua(code)])).start_before(origin(&[BUSY]));
    let response = site.proxy.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody");
    assert_eq!((response.status, response.text()), (200, "<ok>"));
    let seen: Vec<_> = site.origin.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(seen, [b"<body>".to_vec(), b"<body>".to_vec()]);
    assert_eq!(site.get("/", "").text(), "<ok>", "on the same connections");
}

#[test]
fn a_filter_may_take_its_time() {
    let call = r#"local _, token = h:httpCall("auth", {[":method"] = "GET", [":path"] = "/", [":authority"] = "a"}, "", 5000)"#;
    let code = format!(
        r#"function envoy_on_request(h) {call} h:headers():add("x-sent", token) end
        function envoy_on_response(h) {call} h:headers():add("x-answer", token) end"#
    );
    let auth = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nkey");
    let plan = retrying(at_cluster(&[marks(MUTATION, "mark"), lua(&code)])).cluster("auth", &[auth.address], json!({}));
    let site = plan.start_before(origin(&[BUSY]));
    let response = site.proxy.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody");
    assert_eq!((response.status, answer(&response).as_str()), (200, "origin,key,mark"));
    let requests = site.origin.requests();
    let seen: Vec<_> = requests.iter().map(|request| (sent(request), request.body.clone())).collect();
    let body = b"body".to_vec();
    let again = if envoy() { "mark,key,mark,key" } else { "mark,key" };
    assert_eq!(seen, [("mark,key".to_owned(), body.clone()), (again.to_owned(), body)]);
    assert_eq!((answer(&site.get("/", "")).as_str(), auth.requests().len()), ("origin,key,mark", 6));
}

#[test]
fn upstreams_of_http_2_wait_for_them() {
    let code = r#"function envoy_on_request(h)
        h:httpCall("auth", {[":method"] = "GET", [":path"] = "/", [":authority"] = "a"}, "", 5000)
    end
    function envoy_on_response(h) h:body():setBytes("<" .. h:body():getBytes(0, h:body():length()) .. ">") end"#;
    let (origin, auth) = (H2Origin::start(100), Origin::fixed(OK));
    let options = upstream_http_options(json!({
        "explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}},
        "http_filters": [lua(code), codec()],
    }));
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let config = Config::routes(routes).cluster_with("origin", &[origin.address], options);
    let proxy = Proxy::start(&config.cluster("auth", &[auth.address]));
    let sized = "POST /b HTTP/1.1\r\nhost: site.test\r\ncontent-length: 5\r\n\r\nhello";
    assert_eq!(proxy.exchange(sized).text(), "<POST /b site.test te=- body=5 x-sum=->");
    assert_eq!(auth.requests().len(), 1);
}

#[test]
fn large_bodies_stream_through() {
    let body = "x".repeat(1 << 20);
    let code = r#"function envoy_on_request(h) for _ in h:bodyChunks() do end end
        function envoy_on_response(h) for _ in h:bodyChunks() do end end"#;
    for filters in [vec![marks(MUTATION, "mark")], vec![lua(code)], vec![lua(code), marks(MUTATION, "mark")]] {
        let large = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let site = at_cluster(&filters).start_before(Origin::fixed(large));
        for _ in 0..2 {
            let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
            let response = site.proxy.exchange(head + &body);
            assert_eq!((response.status, response.text() == body), (200, true));
        }
        let requests = site.origin.requests();
        assert!(requests.len() == 2 && requests.iter().all(|request| request.body == body.as_bytes()));
    }
}

#[test]
fn answers_are_compressed_on_their_way_in() {
    let text = "a".repeat(4000);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4000\r\n\r\n{text}");
    let site = at_cluster(&[compressor(json!({}))]).start_before(Origin::fixed(answer));
    let response = site.get("/", "accept-encoding: gzip\r\n");
    assert_eq!(response.header("content-encoding"), "gzip");
    assert!(response.body.len() < 200, "{}", response.body.len());
    assert_eq!(site.get("/", "").text(), text);
    assert_eq!(site.stat("cluster.origin.compressor.gzip.gzip.compressed"), 1);
}
