//! Bodies: whole, in chunks, replaced, of either direction.

use postrider_tests::kit::config::{router, upstream_http_options};
use postrider_tests::kit::{Config, Origin, Proxy, Request, Response};
use serde_json::json;

use crate::site::Want::{Body, Down, NoDown, NoUp, Status, Up, UpBody};
use crate::site::{Case, check, lua, site};

#[test]
fn bodies_are_read_and_replaced_as_in_envoy() {
    check(&[
        Case::post(
            "whole-body",
            "hello",
            "function envoy_on_request(h) local b = h:body()
               h:headers():add('x-out', b:length() .. b:getBytes(1, 3)) end",
            &[Up("x-out", "5ell"), UpBody("hello"), Up("content-length", "5")],
        ),
        Case::get(
            "no-body",
            "function envoy_on_request(h) h:headers():add('x-out', tostring(select('#', h:body()))) end",
            &[Up("x-out", "0"), NoUp("content-length"), NoUp("transfer-encoding")],
        ),
        Case::post(
            "replaced-longer",
            "hello",
            "function envoy_on_request(h) local n = h:body():setBytes('a longer body') h:headers():add('x-out', n) end",
            &[Up("x-out", "13"), UpBody("a longer body"), Up("content-length", "13")],
        ),
        Case::post(
            "replaced-empty",
            "hello",
            "function envoy_on_request(h) h:body():setBytes('') end",
            &[Status(200), UpBody("")],
        ),
        Case::post(
            "out-of-range",
            "hello",
            "function envoy_on_request(h) local ok = pcall(function() h:body():getBytes(3, 3) end)
               h:headers():add('x-out', tostring(ok)) end",
            &[Up("x-out", "false")],
        ),
        Case::post(
            "the-body-again",
            "hello",
            "function envoy_on_request(h) h:body() h:headers():add('x-out', h:body():length()) end",
            &[Up("x-out", "5")],
        ),
        Case::post(
            "chunks",
            "hello",
            "function envoy_on_request(h) local n = 0
               for c in h:bodyChunks() do n = n + c:length() end
               h:streamInfo():dynamicMetadata():set('ns', 'n', n) end
             function envoy_on_response(h)
               h:headers():add('x-out', tostring(h:streamInfo():dynamicMetadata():get('ns').n)) end",
            &[Down("x-out", "5"), UpBody("hello")],
        ),
        Case::post(
            "heads-are-gone-behind-chunks",
            "hello",
            "function envoy_on_request(h)
               for c in h:bodyChunks() do end
               local ok, text = pcall(function() h:headers():add('x-late', '1') end)
               h:streamInfo():dynamicMetadata():set('ns', 'text', text:match('header map can no longer be modified')) end
             function envoy_on_response(h)
               h:headers():add('x-out', h:streamInfo():dynamicMetadata():get('ns').text) end",
            &[Down("x-out", "header map can no longer be modified"), NoUp("x-late")],
        ),
        Case::post(
            "a-wait-for-trailers-kept-no-length",
            "hello",
            "function envoy_on_request(h) local t = h:trailers() end
             function envoy_on_response(h) local t = h:trailers() end",
            &[
                Up("content-length", "5"),
                NoUp("transfer-encoding"),
                UpBody("hello"),
                NoDown("transfer-encoding"),
            ],
        ),
        Case::get(
            "response-body-replaced",
            "function envoy_on_response(h) h:body():setBytes('an error page') end",
            &[Body("an error page"), Down("content-length", "13")],
        ),
        Case::get(
            "response-body-read",
            "function envoy_on_response(h) local b = h:body() h:headers():add('x-out', b:getBytes(0, 3)) end",
            &[Down("x-out", "GET")],
        ),
        Case::post(
            "objects-end-with-a-wait",
            "hello",
            "function envoy_on_request(h)
               local old = h:headers()
               h:body()
               local ok, text = pcall(function() old:add('x-old', '1') end)
               h:headers():add('x-out', text:match('object used outside of proper scope')) end",
            &[Up("x-out", "object used outside of proper scope"), NoUp("x-old")],
        ),
        Case::post(
            "respond-behind-the-body",
            "secret",
            "function envoy_on_request(h) local b = h:body()
               if b:getBytes(0, b:length()) == 'secret' then h:respond({[':status'] = '403'}, 'no secrets') end end",
            &[Status(403), Body("no secrets")],
        ),
        Case::get(
            "no-trailers",
            "function envoy_on_request(h) h:body() h:headers():add('x-out', tostring(select('#', h:trailers()))) end",
            &[Up("x-out", "0")],
        ),
    ]);
}

/// What becomes of a request whose body and trailers come in one piece, as those of its answer do, in a proxy with this script.
fn with_trailers(script: &str) -> (Response, Request) {
    let origin = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 2\r\nx-gone: 1\r\n\r\n",
            );
        }
    });
    let trailers = json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}});
    let config = Config::new()
        .http(json!({
            "http_filters": [lua(json!({"default_source_code": {"inline_string": script}})), router()],
            "http_protocol_options": {"enable_trailers": true},
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .cluster_with("origin", &[origin.address], upstream_http_options(trailers));
    let proxy = Proxy::start(&config);
    let request = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 5\r\nx-gone: 1\r\n\r\n";
    let response = proxy.exchange(request);
    assert_eq!((response.status, response.text()), (200, "ok"));
    let seen = origin.requests().remove(0);
    assert_eq!(seen.body, b"hello");
    (response, seen)
}

#[test]
fn trailers_are_read_and_edited_as_in_envoy() {
    let (response, seen) = with_trailers(
        "local function edit(h)
           local t = h:trailers()
           t:add('x-added', t:get('x-sum') .. '!')
           t:remove('x-gone')
           t:replace('x-count', t:getNumValues('x-sum'))
         end
         envoy_on_request, envoy_on_response = edit, edit",
    );
    for (trailers, sum) in [(&seen.trailers, "5"), (&response.trailers, "2")] {
        let value = |name: &str| trailers.values(name).join("|");
        let edited = [value("x-sum"), value("x-added"), value("x-count"), value("x-gone")];
        assert_eq!(edited, [sum.to_owned(), format!("{sum}!"), "1".to_owned(), String::new()], "{trailers:?}");
    }
}

#[test]
fn the_last_piece_of_a_body_is_seen_although_its_trailers_have_come() {
    let (response, seen) = with_trailers(
        "local function count(h)
           local n = 0
           for chunk in h:bodyChunks() do n = n + chunk:length() end
           h:trailers():add('x-length', n)
         end
         envoy_on_request, envoy_on_response = count, count",
    );
    let lengths = [&seen.trailers, &response.trailers].map(|trailers| trailers.values("x-length").join("|"));
    assert_eq!(lengths, ["5", "2"]);
}

#[test]
fn a_chunked_body_without_a_byte_is_a_body() {
    let origin = Origin::echo("a");
    let script = "function envoy_on_request(h)
        local body = h:body()
        h:headers():add('x-out', body and 'of ' .. body:length() or 'none')
      end";
    let filter = lua(json!({"default_source_code": {"inline_string": script}}));
    let proxy = site(&[filter], json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]), &origin);
    for (framing, expected) in
        [("transfer-encoding: chunked\r\n\r\n0\r\n", "of 0"), ("content-length: 0\r\n", "none"), ("", "none")]
    {
        origin.forget();
        assert_eq!(proxy.exchange(format!("POST / HTTP/1.1\r\nhost: test\r\n{framing}\r\n")).status, 200);
        assert_eq!(origin.requests()[0].headers.values("x-out"), [expected], "{framing:?}");
    }
}
