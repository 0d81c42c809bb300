//! The ways of heads through a chain: past filters that let them go at once, and from one that does not.

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Response};
use serde_json::{Value, json};

/// Notes that it saw each head.
const NOTING: &str = "
function envoy_on_request(h) h:headers():add('x-down', 'NAME') end
function envoy_on_response(h) h:headers():add('x-up', 'NAME') end";

/// The same, and does with each message what the request's `x-rq` and `x-rs` say.
const OBEYING: &str = "
local function obey(h, order)
  if order == 'call' then
    h:httpCall('origin', { [':method'] = 'GET', [':path'] = '/called', [':authority'] = 'call' }, nil, 5000)
  elseif order == 'body' then
    local body = h:body()
    h:headers():replace('x-length', body and tostring(body:length()) or 'none')
  elseif order == 'change' then
    h:body(true):setBytes('changed')
  elseif order == 'chunks' then
    for chunk in h:bodyChunks() do chunk:length() end
  elseif order == 'answer' then
    h:respond({ [':status'] = '403' }, 'no')
  end
end
function envoy_on_request(h)
  h:headers():add('x-down', 'NAME')
  h:streamInfo():dynamicMetadata():set('order', 'rs', h:headers():get('x-rs') or 'none')
  obey(h, h:headers():get('x-rq'))
end
function envoy_on_response(h)
  h:headers():add('x-up', 'NAME')
  local noted = h:streamInfo():dynamicMetadata():get('order')
  obey(h, noted and noted.rs)
end";

fn lua(name: &str, script: &str) -> Value {
    let script = script.replace("NAME", name);
    let mut filter = extension(
        "envoy.filters.http.lua",
        "filters.http.lua.v3.Lua",
        json!({"default_source_code": {"inline_string": script}}),
    );
    filter["name"] = json!(name);
    filter
}

/// Answers with the body that it got, and with what it saw beside it.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let body = if request.body.is_empty() { b"plain".to_vec() } else { request.body.clone() };
            let seen = [request.headers.values("x-down").concat(), request.header("x-length").to_owned()].join("|");
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-seen: {seen}\r\n\r\n", body.len());
            connection.write(head.as_bytes());
            connection.write(&body);
        }
    })
}

fn site(origin: &Origin) -> Proxy {
    let filters = json!([lua("a", NOTING), lua("b", OBEYING), lua("c", NOTING), router()]);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let config = Config::new()
        .http(json!({
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster("origin", &[origin.address]);
    Proxy::start(&config)
}

fn ask(client: &mut RawClient, body: &str, orders: &str) -> Response {
    client.exchange(match body {
        "" => format!("GET /a HTTP/1.1\r\nhost: test\r\n{orders}\r\n"),
        "chunked" => format!(
            "POST /a HTTP/1.1\r\nhost: test\r\n{orders}transfer-encoding: chunked\r\n\r\n5\r\nchunk\r\n2\r\ned\r\n0\r\n\r\n"
        ),
        body => format!("POST /a HTTP/1.1\r\nhost: test\r\n{orders}content-length: {}\r\n\r\n{body}", body.len()),
    })
}

#[test]
fn a_head_goes_on_behind_the_filter_that_stopped_it_and_the_next_message_is_none_the_wiser() {
    const ORDERS: [&str; 5] = ["none", "call", "body", "change", "chunks"];
    let origin = origin();
    let proxy = site(&origin);
    let mut client = proxy.client();
    for body in ["", "hello", "chunked"] {
        for (rq, rs) in ORDERS.iter().flat_map(|rq| ORDERS.iter().map(move |rs| (*rq, *rs))) {
            let case = format!("{body:?} {rq} {rs}");
            for orders in [format!("x-rq: {rq}\r\nx-rs: {rs}\r\n"), String::new()] {
                let is_plain = orders.is_empty();
                let response = ask(&mut client, body, &orders);
                assert_eq!(response.status, 200, "{case}: {response:?}");
                assert_eq!(response.headers.values("x-up"), ["c", "b", "a"], "{case}");
                let sent = if !is_plain && rq == "change" { "changed" } else { body };
                let saw = match (is_plain, rq, body) {
                    (false, "body", "") => "none".to_owned(),
                    (false, "body", body) => body.len().to_string(),
                    _ => String::new(),
                };
                assert_eq!(response.header("x-seen"), format!("abc|{saw}"), "{case}");
                let answered = match (is_plain, rs) {
                    (false, "change") => "changed",
                    _ if sent.is_empty() => "plain",
                    _ => sent,
                };
                assert_eq!(response.text(), answered, "{case}");
                let before = if sent.is_empty() { "plain" } else { sent };
                let length = if !is_plain && rs == "body" { before.len().to_string() } else { String::new() };
                assert_eq!(response.header("x-length"), length, "{case}");
            }
        }
    }
}

#[test]
fn an_answer_in_the_midst_of_the_chain_goes_through_all_of_it() {
    let origin = origin();
    let proxy = site(&origin);
    for body in ["", "hello", "chunked"] {
        let refused = ask(&mut proxy.client(), body, "x-rq: answer\r\n");
        assert_eq!((refused.status, refused.text()), (403, "no"), "{body}");
        let marks = refused.headers.values("x-up").to_vec();
        assert!(marks.contains(&"a") && marks.len() >= 2, "{marks:?}");
        let passed = ask(&mut proxy.client(), body, "");
        assert_eq!((passed.status, passed.headers.values("x-up")), (200, vec!["c", "b", "a"]), "{body}");
    }
    assert!(origin.requests().iter().all(|request| request.header("x-rq") != "answer"));
}
