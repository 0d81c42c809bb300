//! Calls to other clusters.

use postrider_tests::get;
use postrider_tests::kit::{Origin, RawClient};
use serde_json::json;

use crate::site::Want::{Body, Down, NotForwarded, Status, Up};
use crate::site::{Case, check, lua, site};

#[test]
fn calls_answer_as_in_envoy() {
    check(&[
        Case::get(
            "call",
            "function envoy_on_request(h)
               local headers, body = h:httpCall('other', {[':method'] = 'GET', [':path'] = '/x', [':authority'] = 'o'}, nil, 5000)
               h:respond({[':status'] = '200'}, headers[':status'] .. headers['x-origin'] .. body:match('^GET (%S+)')) end",
            &[Status(200), Body("200a/x")],
        ),
        Case::get(
            "call-with-body",
            "function envoy_on_request(h)
               local headers, body = h:httpCall('other',
                 {[':method'] = 'POST', [':path'] = '/x', [':authority'] = 'o', ['x-n'] = 1}, 'payload', 5000)
               h:respond({[':status'] = '200'}, body:match('payload$') .. body:match('x%-n: %d') .. body:match('content%-length: %d')) end",
            &[Status(200), Body("payloadx-n: 1content-length: 7")],
        ),
        Case::get(
            "call-with-an-empty-body",
            "function envoy_on_request(h)
               local out = ''
               for _, body in ipairs { '', false } do
                 local _, seen = h:httpCall('other', {[':method'] = 'GET', [':path'] = '/x', [':authority'] = 'o'}, body or nil, 5000)
                 out = out .. tostring(seen:match('content%-length: %d+'))
               end
               h:respond({[':status'] = '200'}, out) end",
            &[Body("content-length: 0nil")],
        ),
        Case::get(
            "call-in-the-response",
            "function envoy_on_response(h)
               local headers = h:httpCall('other', {[':method'] = 'GET', [':path'] = '/y', [':authority'] = 'o'}, nil, 5000)
               h:headers():add('x-out', headers[':status']) end",
            &[Status(200), Down("x-out", "200")],
        ),
        Case::get(
            "authz-refuses",
            "function envoy_on_request(h)
               local headers, body = h:httpCall('other', {[':method'] = 'GET', [':path'] = '/check', [':authority'] = 'o'}, nil, 5000)
               if not body:match('allow') then h:respond({[':status'] = '403'}, 'denied') end end",
            &[Status(403), Body("denied"), Down("content-type", "text/plain")],
        ),
        Case::get(
            "two-calls",
            "function envoy_on_request(h)
               local out = ''
               for i = 1, 2 do
                 local _, body = h:httpCall('other', {[':method'] = 'GET', [':path'] = '/' .. i, [':authority'] = 'o'}, nil, 5000)
                 out = out .. body:match('^GET (%S+)')
               end
               h:respond({[':status'] = '200'}, out) end",
            &[Body("/1/2")],
        ),
        Case::get(
            "no-such-cluster",
            "function envoy_on_request(h)
               local ok, text = pcall(h.httpCall, h, 'nope', {[':method'] = 'GET', [':path'] = '/', [':authority'] = 'o'}, nil, 5000)
               h:respond({[':status'] = '200'}, tostring(ok) .. tostring(text:match('http call cluster invalid') ~= nil)) end",
            &[Body("falsetrue"), NotForwarded],
        ),
        Case::get(
            "a-call-needs-its-pseudo-fields",
            "function envoy_on_request(h)
               local ok, text = pcall(h.httpCall, h, 'other', {[':method'] = 'GET'}, nil, 5000)
               h:respond({[':status'] = '200'}, tostring(ok) .. text:gsub('^.-: ', '')) end",
            &[Body("falsehttp call headers must include ':path', ':method', and ':authority'")],
        ),
        Case::get(
            "an-unknown-option",
            "function envoy_on_request(h)
               local ok, text = pcall(h.httpCall, h, 'other', {[':method'] = 'GET', [':path'] = '/', [':authority'] = 'o'}, nil, {odd = 1})
               h:respond({[':status'] = '200'}, tostring(text:match('\"odd\" is not valid key for httpCall%(%) options') ~= nil)) end",
            &[Body("true")],
        ),
        Case::get(
            "asynchronous",
            "function envoy_on_request(h)
               local n = select('#', h:httpCall('other', {[':method'] = 'GET', [':path'] = '/a', [':authority'] = 'o'}, nil, 5000, true))
               h:headers():add('x-out', n) end",
            &[Status(200)],
        ),
        Case::get(
            "headers-stay-open-over-a-call",
            "function envoy_on_request(h)
               h:httpCall('other', {[':method'] = 'GET', [':path'] = '/a', [':authority'] = 'o'}, nil, 5000)
               h:headers():add('x-out', 'after') end",
            // The call's own request reaches the same origin first.
            &[Status(200), Up("x-out", "")],
        ),
    ]);
}

/// Each had a read buffer of 200 KiB, and when more than a few waited, a new one that was filled with zeros first.
#[test]
fn responses_that_wait_for_a_script_hold_little_memory() {
    const CLIENTS: usize = 100;
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            if request.target == "/held" {
                connection.read_to_end();
                return;
            }
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: 4000\r\n\r\n{:4000}", "").as_bytes());
        }
    });
    let script = "function envoy_on_response(h)
        h:httpCall('other', {[':method'] = 'GET', [':path'] = '/held', [':authority'] = 'o'}, nil, 60000) end";
    let proxy = site(
        &[lua(json!({"default_source_code": {"inline_string": script}}))],
        json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]),
        &origin,
    );
    let before = proxy.resident_kib();
    let clients: Vec<RawClient> = (0..CLIENTS)
        .map(|_| {
            let mut client = RawClient::connect(proxy.address("http"));
            client.send(get("/"));
            client
        })
        .collect();
    origin.wait_requests(2 * CLIENTS);
    let each = proxy.resident_kib().saturating_sub(before) / CLIENTS as u64;
    drop(clients);
    assert!(each < 100, "{each} KiB for each response that waits");
}
