//! Whatever scripts do in the hot path is compiled: no trace is given up once a script is warm.

use crate::testing::Trial;

/// An elliptic curve's.
const KEY: &str = "3059301306072a8648ce3d020106082a8648ce3d03010703420004786868123ea12513617c02accc05a302def12249b6\
    59b784f1d3b4cc45828e331845ca37d63bbb6886895fb3290f32e8f9659d35cfe72627bf5be72ea1dbfded";

/// Runs a hook as a stream's whole request many times over, and answers with why traces were given up, and how many were
/// made.
fn aborts(body: &str, waits: bool) -> (String, u32) {
    aborts_at("request", body, waits)
}

/// The same for a hook of either side.
fn aborts_at(side: &str, body: &str, waits: bool) -> (String, u32) {
    let script = format!(
        r#"
        local DER = ("{KEY}"):gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)
        local LEFT_LOOP, INNER_LOOP, UNROLLED, NOT_COMPILED = 8, 9, 10, 16
        local reasons, made, began_with_call = {{}}, 0, {{}}
        jit.attach(function(what, trace, func, pc, code, argument)
          if what == "start" then
            -- Of a side trace, `code` is its parent.
            if code then began_with_call[trace] = began_with_call[code] else began_with_call[trace] = pc == 0 end
          end
          if what == "stop" then made = made + 1 end
          -- Loops within loops are compiled from the inside out: that is no obstacle.
          if what == "abort" and code ~= LEFT_LOOP and code ~= INNER_LOOP
            and not (code == NOT_COMPILED and {waits})
            -- Nor is a recording that began in a function of ours, went on in its caller and came round the caller's loop,
            -- wherever in that loop it is given up.
            and not (code == UNROLLED and (began_with_call[trace] or debug.getinfo(func, "S").short_src == "lua")) then
            reasons[#reasons + 1] = code .. "/" .. tostring(argument) .. "@" .. debug.getinfo(func, "S").short_src
              .. ":" .. tostring(require("jit.util").funcinfo(func, pc).currentline)
          end
        end, "trace")
        local n = 0
        function envoy_on_{side}(handle)
          n = n + 1
          if n == 1000 then
            handle:headers():replace("r-aborts", table.concat(reasons, " "))
            handle:headers():replace("r-made", made)
            return
          end
          local headers = handle:headers()
          {body}
        end"#
    );
    let config = serde_json::json!({
        "default_source_code": { "inline_string": script }, "postrider.rules": { "sandbox": "full" },
    });
    let kind = "envoy.extensions.filters.http.lua.v3.Lua";
    let mut trial = Trial::new(kind, &config.to_string(), None).expect("the script loads");
    for _ in 0..1000 {
        trial.restart(postrider_filter_api::testing::FakeStream::new("GET", "/", &[("x-a", "1"), ("x-b", "2")]));
        match side {
            "request" => trial.request(&["body of it"]),
            _ => trial.response(&["body of it"]),
        };
    }
    let header = |name: &str| trial.request_header(name).or_else(|| trial.response_header(name));
    let made = header("r-made").expect("the script came to its end").parse().unwrap();
    (header("r-aborts").unwrap_or_default(), made)
}

#[test]
fn hot_calls_on_answers_are_compiled() {
    for (name, body) in [
        ("reason", "for i = 1, 20 do headers:setHttp1ReasonPhrase('Fine') end"),
        ("edits", "for i = 1, 20 do headers:replace('x-c', 'v') headers:remove('x-c') end"),
        ("request", "for i = 1, 20 do local v = handle:requestHeaders():get('x-a') end"),
    ] {
        let (aborts, made) = aborts_at("response", body, false);
        assert_eq!(aborts, "", "{name}");
        assert!(made > 0, "{name}: nothing was compiled");
    }
}

#[test]
fn hot_calls_are_compiled() {
    for (name, body) in [
        ("get", "for i = 1, 20 do local x = headers:get('x-a') end"),
        ("edits", "for i = 1, 20 do headers:replace('x-c', 'v') headers:add('x-d', 'v') headers:remove('x-d') end"),
        ("values", "for i = 1, 20 do local n = headers:getNumValues('x-a') local v = headers:getAtIndex('x-a', 0) end"),
        ("pairs", "local n = 0 for i = 1, 20 do for k, v in pairs(headers) do n = n + #v end end"),
        ("info", "for i = 1, 20 do local i = handle:streamInfo() local p = i:protocol() .. i:routeName() end"),
        ("metadata", "for i = 1, 20 do local m = handle:metadata():get('k') end"),
        ("dynamic", "for i = 1, 20 do local d = handle:streamInfo():dynamicMetadata() d:set('n', 'k', 'v') end"),
        ("log", "for i = 1, 20 do handle:logTrace('quiet') headers:logDebug('quiet') end"),
        ("base64", "for i = 1, 20 do local t = handle:base64Decode(handle:base64Escape('text')) end"),
        ("body", "local b = handle:body() for i = 1, 20 do local t = b:getBytes(0, b:length()) end"),
        ("time", "for i = 1, 20 do local t = handle:timestamp() end"),
        ("number", "for i = 1, 20 do local n = tonumber('7') + tonumber('1f', 16) + tonumber('101', 2) end"),
        ("stats", "for i = 1, 20 do handle:stats():counter('c'):inc() end"),
        (
            "gauge",
            "for i = 1, 20 do local g = handle:stats():gauge('g') g:set(3) g:add(2) g:sub(1) local v = g:value() end",
        ),
        ("histogram", "for i = 1, 20 do handle:stats():histogram('t', 'ms'):recordValue(3) end"),
        ("text time", "for i = 1, 20 do local t = handle:timestampString(EnvoyTimestampResolution.MICROSECOND) end"),
        (
            "route",
            "for i = 1, 20 do local a, b = handle:route():metadata():get('k'), handle:virtualHost():metadata():get('k') end",
        ),
        ("context", "for i = 1, 20 do local c = handle:filterContext():get('k') end"),
        (
            "addresses",
            "local i = handle:streamInfo()
             for n = 1, 20 do
               local a = i:downstreamLocalAddress() .. i:downstreamDirectLocalAddress() .. i:downstreamRemoteAddress()
                 .. i:downstreamDirectRemoteAddress()
             end",
        ),
        (
            "names",
            "local i = handle:streamInfo() for n = 1, 20 do local a = i:virtualClusterName() .. i:requestedServerName() end",
        ),
        ("typed", "for i = 1, 20 do local t = handle:streamInfo():dynamicTypedMetadata('x') end"),
        (
            "tls",
            "for i = 1, 20 do local s = handle:streamInfo():downstreamSslConnection() local t = handle:connection():ssl() end",
        ),
        ("connection", "for i = 1, 20 do local d = handle:connectionStreamInfo():dynamicMetadata():get('x') end"),
        (
            "state",
            "for i = 1, 20 do local s = handle:streamInfo():filterState() s:set('a', 'envoy.string', 'b') local v = s:get('a') end",
        ),
        ("request", "for i = 1, 20 do local v = handle:requestHeaders():get(':path') end"),
        ("route cache", "for i = 1, 20 do handle:clearRouteCache() end"),
        ("host", "for i = 1, 20 do handle:setUpstreamOverrideHost('127.0.0.1:80') end"),
        ("drain", "for i = 1, 20 do handle:streamInfo():drainConnectionUponCompletion() end"),
        ("key", "for i = 1, 20 do local k = handle:importPublicKey('no key', 6):get() end"),
        (
            "signature",
            "local key = handle:importPublicKey(DER, #DER):get()
             for i = 1, 3 do local ok, why = handle:verifySignature('sha256', key, 'sig', 3, 'data', 4) end",
        ),
        ("route handle", "for i = 1, 20 do local r = handle:route() local m = r:metadata() end"),
        ("set body", "local b = handle:body() for i = 1, 20 do b:setBytes('a new one') end"),
    ] {
        // A wait itself is a call that no trace can hold.
        let (aborts, made) = aborts(body, name.ends_with("body"));
        assert_eq!(aborts, "", "{name}");
        assert!(made > 0, "{name}: nothing was compiled");
    }
}
