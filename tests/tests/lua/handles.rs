//! Handles and objects: heads, metadata, facts about the stream, encodings.

use crate::site::Want::{Body, Down, NoDown, NoUp, NotForwarded, Status, Up};
use crate::site::{Case, check};

#[test]
fn headers_are_read_and_edited_as_in_envoy() {
    check(&[
        Case::with(
            "get-joins",
            "x-a: 1\r\nx-a: 2\r\n",
            "function envoy_on_request(h) h:headers():add('x-out', h:headers():get('X-A')) end",
            &[Up("x-out", "1,2")],
        ),
        Case::get(
            "get-missing",
            "function envoy_on_request(h) h:headers():add('x-out', tostring(select('#', h:headers():get('nope')))) end",
            &[Up("x-out", "0")],
        ),
        Case::with(
            "get-at-index",
            "x-a: 1\r\nx-a: 2\r\n",
            "function envoy_on_request(h) local hs = h:headers()
               hs:add('x-out', hs:getAtIndex('x-a', 1) .. tostring((hs:getAtIndex('x-a', 2))) .. hs:getNumValues('x-a'))
             end",
            &[Up("x-out", "2nil2")],
        ),
        Case::get(
            "pseudo",
            "function envoy_on_request(h) local hs = h:headers()
               hs:add('x-out', hs:get(':method') .. hs:get(':path') .. hs:get(':authority') .. hs:get(':scheme'))
             end",
            &[Up("x-out", "GET/pseudotesthttp")],
        ),
        Case::with(
            "replace-and-remove",
            "x-a: 1\r\nx-a: 2\r\nx-b: 1\r\n",
            "function envoy_on_request(h) h:headers():replace('x-a', 'new') h:headers():remove('x-b')
               h:headers():replace('x-c', 'fresh') h:headers():remove('never-there') end",
            &[Up("x-a", "new"), NoUp("x-b"), Up("x-c", "fresh")],
        ),
        Case::get(
            "numbers-are-values",
            "function envoy_on_request(h) h:headers():add('x-out', 42) end",
            &[Up("x-out", "42")],
        ),
        Case::with(
            "pairs-lists-in-order",
            "x-one: 1\r\nx-two: 2\r\n",
            "function envoy_on_request(h) local names = ''
               for k, v in pairs(h:headers()) do if k:sub(1, 2) == 'x-' and #k == 5 then names = names .. k .. '=' .. v .. ';' end end
               h:headers():add('x-out', names) end",
            &[Up("x-out", "x-one=1;x-two=2;")],
        ),
        Case::get(
            "no-edits-while-iterating",
            "function envoy_on_request(h)
               local ok, text = pcall(function() for k, v in pairs(h:headers()) do h:headers():add('x', 'y') end end)
               h:respond({[':status'] = '200'}, tostring(text:match('header map cannot be modified while iterating')))
             end",
            &[Body("header map cannot be modified while iterating")],
        ),
        Case::get(
            "response-headers",
            "function envoy_on_response(h) local hs = h:headers()
               hs:add('x-out', hs:get(':status') .. hs:get('x-origin')) hs:remove('x-origin') end",
            &[Down("x-out", "200a"), NoDown("x-origin")],
        ),
        Case::get(
            "response-status",
            "function envoy_on_response(h) h:headers():replace(':status', '418') end",
            &[Status(418)],
        ),
        Case::get(
            "an-error-keeps-earlier-edits",
            "function envoy_on_request(h) h:headers():add('x-out', '1') error('no') end
             function envoy_on_response(h) h:headers():add('x-after', '1') end",
            &[Status(200), Up("x-out", "1"), Down("x-after", "1")],
        ),
        Case::get(
            "a-bare-yield-is-an-error",
            "function envoy_on_request(h) coroutine.yield() h:headers():add('x-out', '1') end",
            &[Status(200), NoUp("x-out")],
        ),
    ]);
}

#[test]
fn respond_answers_and_checks_as_envoy_does() {
    check(&[
        Case::get(
            "respond",
            "function envoy_on_request(h) h:respond({[':status'] = '403', ['x-why'] = 'no'}, 'nope') end",
            &[Status(403), Body("nope"), Down("x-why", "no"), Down("content-type", "text/plain"), NotForwarded],
        ),
        Case::get(
            "respond-number-status",
            "function envoy_on_request(h) h:respond({[':status'] = 404}) end",
            &[Status(404), Body(""), NoDown("content-type"), NotForwarded],
        ),
        Case::get(
            "respond-bad-status",
            "function envoy_on_request(h) local ok, text = pcall(h.respond, h, {[':status'] = '199'}, 'x')
               h:headers():add('x-out', (text:gsub('^.-: ', ''))) end",
            &[Status(200), Up("x-out", ":status must be between 200-599")],
        ),
        Case::get(
            "respond-without-status",
            "function envoy_on_request(h) local ok, text = pcall(h.respond, h, {['x'] = 'y'}, 'x')
               h:headers():add('x-out', (text:gsub('^.-: ', ''))) end",
            &[Status(200), Up("x-out", ":status must be between 200-599")],
        ),
        Case::get(
            "respond-list-of-values",
            "function envoy_on_request(h) h:respond({[':status'] = '200', ['x-a'] = {'1', '2'}}, 'b') end",
            &[Status(200), Down("x-a", "1|2")],
        ),
        Case::get(
            "own-answers-pass-the-response-function",
            "function envoy_on_request(h) h:respond({[':status'] = '200'}, 'b') end
             function envoy_on_response(h) h:headers():add('x-seen', h:headers():get(':status')) end",
            &[Status(200), Down("x-seen", "200")],
        ),
        Case::get(
            "no-answer-on-the-response-path",
            "function envoy_on_response(h) local ok, text = pcall(h.respond, h, {[':status'] = '200'}, 'x')
               h:headers():add('x-out', (text:gsub('^.-: ', ''))) end",
            &[Status(200), Down("x-out", "respond not currently supported in the response path")],
        ),
        Case::get(
            "nothing-runs-behind-an-answer",
            "function envoy_on_request(h) h:respond({[':status'] = '200'}, 'first') h:respond({[':status'] = '500'}, 'second') end",
            &[Status(200), Body("first")],
        ),
    ]);
}

#[test]
fn metadata_and_facts_are_envoys() {
    check(&[
        Case::get(
            "route-metadata",
            "function envoy_on_request(h) local m = h:metadata()
               h:headers():add('x-out', m:get('text') .. m:get('number') .. tostring(m:get('yes')) .. m:get('list')[2]
                 .. m:get('map').k .. tostring((m:get('none'))))
             end",
            &[Up("x-out", "t1.5truetwovnil")],
        ),
        Case::get(
            "route-metadata-pairs",
            "function envoy_on_request(h) local names = {}
               for k in pairs(h:metadata()) do names[#names + 1] = k end
               table.sort(names)
               h:headers():add('x-out', table.concat(names, ',')) end",
            &[Up("x-out", "list,map,number,text,yes")],
        ),
        Case::get(
            "host-metadata",
            "function envoy_on_request(h)
               h:headers():add('x-out', h:virtualHost():metadata():get('of') .. h:route():metadata():get('text')) end",
            &[Up("x-out", "hostt")],
        ),
        Case::get(
            "dynamic-metadata-is-carried-to-the-response",
            "function envoy_on_request(h) local d = h:streamInfo():dynamicMetadata()
               d:set('ns', 'a', 'one') d:set('ns', 'b', 2) d:set('ns', 'c', {x = {1, 2}}) d:set('ns', 'd', true) end
             function envoy_on_response(h) local ns = h:streamInfo():dynamicMetadata():get('ns')
               h:headers():add('x-out', ns.a .. ns.b .. ns.c.x[2] .. tostring(ns.d)) end",
            &[Down("x-out", "one22true")],
        ),
        Case::get(
            "dynamic-metadata-of-nobody",
            "function envoy_on_request(h)
               h:headers():add('x-out', tostring((h:streamInfo():dynamicMetadata():get('none')))) end",
            &[Up("x-out", "nil")],
        ),
        Case::get(
            "stream-info",
            "function envoy_on_request(h) local i = h:streamInfo()
               h:headers():add('x-out', i:protocol() .. i:routeName() .. i:requestedServerName() .. '.'
                 .. i:downstreamDirectRemoteAddress():match('^[%d.]+') .. i:downstreamLocalAddress():match('^[%d.]+')) end",
            &[Up("x-out", "HTTP/1.1stream-info.127.0.0.1127.0.0.1")],
        ),
        Case::get(
            "no-tls",
            "function envoy_on_request(h) h:headers():add('x-out', tostring(h:streamInfo():downstreamSslConnection())
               .. tostring(h:connection():ssl())) end",
            &[Up("x-out", "nilnil")],
        ),
        Case::get(
            "filter-context-is-an-object",
            "function envoy_on_request(h) h:headers():add('x-out', type((h:filterContext():get('x')))) end",
            &[Up("x-out", "nil")],
        ),
        Case::get(
            "base64",
            "function envoy_on_request(h)
               h:headers():add('x-out', h:base64Escape('foo:bar') .. h:base64Decode('Zm9vOmJhcg==') .. tostring(h:base64Decode('!'))) end",
            &[Up("x-out", "Zm9vOmJhcg==foo:barnil")],
        ),
        Case::get(
            "timestamps",
            "function envoy_on_request(h) local a, b = h:timestamp(), h:timestampString(EnvoyTimestampResolution.MICROSECOND)
               h:headers():add('x-out', tostring(a > 1.7e12) .. tostring(#b)) end",
            &[Up("x-out", "true16")],
        ),
        Case::get(
            "request-headers-on-the-response",
            "function envoy_on_response(h) h:headers():add('x-out', h:requestHeaders():get(':path')) end",
            &[Down("x-out", "/request-headers-on-the-response")],
        ),
        Case::get(
            "globals-of-lua",
            "local loaded = type(getfenv) .. type(setfenv) .. type(unpack) .. type(loadstring) .. type(table.pack)
             function envoy_on_request(h) h:headers():add('x-out', loaded .. type(os.getenv('PATH'))) end",
            &[Up("x-out", "functionfunctionfunctionfunctionfunctionstring")],
        ),
        Case::get(
            "jwt-payload",
            "function envoy_on_request(h)
               local token = 'e30.eyJzdWIiOiJhbGljZSJ9.sig'
               local payload = token:match('%.(.-)%.')
               payload = payload .. ('='):rep((4 - #payload % 4) % 4)
               h:headers():add('x-sub', h:base64Decode(payload):match('\"sub\":\"(.-)\"')) end",
            &[Up("x-sub", "alice")],
        ),
    ]);
}
