//! Scripts that do harm, on purpose or not: each fails by itself, and the next stream is served.

use std::time::{Duration, Instant};

use crate::testing::{Outcome, Trial};
use crate::vm::{Argument, Vm};

/// What a script leaves in `r-out` of a request with the body `hello`.
fn out(body: &str) -> String {
    let mut trial = Trial::envoy(&format!("function envoy_on_request(h) {body} end"));
    assert_eq!(trial.request(&["hello"]), Outcome::Passed, "{body}");
    trial.request_header("r-out").unwrap_or_default()
}

#[test]
fn what_is_no_number_is_no_place_in_a_body() {
    for arguments in ["0/0, 1", "0, 0/0", "0/0, 0/0", "-(0/0), 2", "1/0, 1", "-1/0, 1", "0, 1/0", "2^53, 2^53"] {
        let got = out(&format!(
            "local ok, e = pcall(function() return h:body():getBytes({arguments}) end)
             h:headers():replace('r-out', tostring(ok) .. e)"
        ));
        assert!(got.starts_with("false") && got.contains("index/length must be >= 0"), "{arguments}: {got}");
    }
}

#[test]
fn an_object_that_a_script_forged_shows_nothing() {
    // What was read last is long: a stale answer would show it.
    let got = out("local b = h:body()
        h:headers():replace('x-long', ('x'):rep(5000))
        local parts = {}
        for _, side in ipairs { 99, -1, 2 } do
          h:headers():get('x-long')
          b[2] = side
          parts[#parts + 1] = tostring(b:length()) .. tostring((pcall(b.getBytes, b, 0, 3)))
        end
        h:headers():replace('r-out', table.concat(parts, ' '))");
    assert_eq!(got, "0false 0false 0false");
}

#[test]
fn finalisers_that_fail_or_call_the_proxy_harm_nobody() {
    let mut trial = Trial::envoy(
        "local function dying(h)
           local proxy = newproxy(true)
           getmetatable(proxy).__gc = function()
             local text = h:base64Escape('x')
             h:headers():add('x-late', text)
             error('in a finaliser')
           end
           return proxy
         end
         function envoy_on_request(h)
           kept = dying(h)
           for i = 1, 100 do dying(h) end
           h:headers():replace('r-out', 'done')
         end",
    );
    for _ in 0..20 {
        assert_eq!(trial.request(&[]), Outcome::Passed);
        assert_eq!(trial.request_header("r-out").as_deref(), Some("done"));
        trial.restart(postrider_filter_api::testing::FakeStream::new("GET", "/", &[]));
    }
}

#[test]
fn objects_of_the_filter_state_that_a_text_does_not_make_are_errors() {
    for (factory, text, expected) in [
        ("envoy.network.ip", "77", "failed to create an object 'o' from value '77'"),
        ("envoy.bool", "perhaps", "failed to create an object 'o' from value 'perhaps'"),
        ("envoy.upstream.dynamic_port", "80", "'envoy.upstream.dynamic_port' would have no effect"),
        ("envoy.network.ip", "192.0.2.1", "true nil 192.0.2.1"),
    ] {
        let got = out(&format!(
            "local state = h:streamInfo():filterState()
             local ok, why = pcall(state.set, state, 'o', '{factory}', '{text}')
             h:headers():replace('r-out', tostring(ok) .. ' ' .. tostring(why) .. ' ' .. tostring((state:get('o'))))"
        ));
        assert!(got.contains(expected), "{factory}: {got}");
        assert!(got.ends_with("nil") || text == "192.0.2.1", "{got}");
    }
}

#[test]
fn coroutines_within_coroutines_do_not_end_the_process() {
    for go_on in [
        "coroutine.wrap(f)()",
        "assert(coroutine.resume(coroutine.create(f)))",
        "coroutine.wrap(function() assert(pcall(f)) end)()",
        "coroutine.wrap(function() coroutine.yield() f() end)() coroutine.wrap(f)()",
    ] {
        let got = out(&format!(
            "local depth = 0
             local function f() depth = depth + 1 {go_on} end
             local ok, why = pcall(f)
             h:headers():replace('r-out', tostring(ok) .. ' ' .. depth .. ' ' .. tostring(why))"
        ));
        assert!(got.starts_with("false 19") && got.contains("C stack overflow"), "{go_on}: {got}");
    }
    // As many as one likes beside each other, or one by one.
    let got = out("local all, sum = {}, 0
         for i = 1, 1000 do all[i] = coroutine.wrap(function(a) while true do a = coroutine.yield(a + i) end end) end
         for round = 1, 3 do for i = 1, 1000 do sum = sum + all[i](round) end end
         h:headers():replace('r-out', tostring(sum))");
    assert_eq!(got, "1507500");
}

#[test]
fn a_coroutine_of_the_scripts_own_cannot_wait_for_the_proxy() {
    for wait in ["h:body()", "h:httpCall('origin', {[':method']='GET', [':path']='/', [':authority']='a'}, '', 1000)"] {
        let got = out(&format!(
            "local co = coroutine.create(function() return {wait} end)
             local ok, why = coroutine.resume(co)
             h:headers():replace('r-out', tostring(ok) .. ' ' .. tostring(why))"
        ));
        assert!(got.starts_with("false ") && got.contains("a coroutine of the script's own cannot"), "{wait}: {got}");
    }
    // Between them coroutines go back and forth as they like.
    let got = out("local co = coroutine.wrap(function() coroutine.yield(1) return 2 end)
                   h:headers():replace('r-out', co() .. ' ' .. co())");
    assert_eq!(got, "1 2");
}

#[test]
fn coroutines_fail_with_the_words_that_they_had() {
    let got = out("local co = coroutine.create(function() error({}) end)
         local parts = { type(select(2, coroutine.resume(co))), tostring(select(2, coroutine.resume(co))) }
         parts[3] = select(2, pcall(coroutine.wrap(function() error('x', 0) end)))
         parts[4] = type(select(2, pcall(coroutine.wrap(function() error({}) end))))
         parts[5] = tostring(select(2, pcall(coroutine.resume, 1)))
         parts[6] = tostring(select('#', coroutine.wrap(function() return nil, nil end)()))
         h:headers():replace('r-out', table.concat(parts, '|'))");
    assert_eq!(got, "table|cannot resume dead coroutine|x|table|bad argument #1 to '?' (coroutine expected)|2");
}

/// Searches for which C would take minutes, and in which nothing could stop it.
const ENDLESS: [&str; 6] = [
    "string.find(('a'):rep(8e6), ('a'):rep(4e6) .. 'b', 1, true)",
    "string.find(('a'):rep(8e6), ('a'):rep(4e6) .. 'b')",
    "string.match(('a'):rep(8e6), ('a'):rep(4e6) .. 'b')",
    "string.gsub(('a'):rep(8e6), ('a'):rep(4e6) .. 'b', '')",
    "string.find(('ab'):rep(2e4), '(.*)(.*)%1x')",
    "string.find(('a'):rep(60), ('a?'):rep(50) .. ('a'):rep(60) .. 'b')",
];

#[test]
fn a_search_without_end_is_stopped_like_a_loop() {
    for search in ENDLESS {
        // Without a circuit: the next stream shows what the machine is good for.
        let config = serde_json::json!({
            "default_source_code": { "inline_string": format!(
                "function envoy_on_request(h)
                   if h:headers():get('x-search') then {search} end h:headers():add('r-out', 'done')
                 end"
            ) },
            "postrider.rules": { "circuit": { "faults": 0 } },
        });
        let kind = "envoy.extensions.filters.http.lua.v3.Lua";
        let mut trial = Trial::new(kind, &config.to_string(), None).unwrap();
        trial.stream.request.fields.append_name(b"x-search", b"1").unwrap();
        let began = Instant::now();
        assert_eq!(trial.request(&[]), Outcome::Passed, "{search}");
        assert!(began.elapsed() < Duration::from_secs(20), "{search}: {:?}", began.elapsed());
        trial.restart(postrider_filter_api::testing::FakeStream::new("GET", "/", &[]));
        assert_eq!(trial.request(&[]), Outcome::Passed);
        assert_eq!(trial.request_header("r-out").as_deref(), Some("done"), "{search}");
    }
}

#[test]
fn a_search_in_pieces_finds_what_one_in_c_does() {
    let vm = Vm::new(256 << 20, Duration::from_secs(60)).unwrap();
    let kit = vm.run("=patterns", include_str!("../sdk/patterns.lua").as_bytes(), &[]).unwrap().unwrap();
    let compare = r"
        local kit = ...
        local c_find = kit.c.find
        local needle = ('a'):rep(1000) .. 'b' .. ('a'):rep(10)
        local text = ('a'):rep(3e5) .. 'b' .. ('a'):rep(1e5) .. 'b' .. ('a'):rep(10)
        local function same(text, needle, init, plain)
          local a, b = string.find(text, needle, init, plain)
          local c, d = c_find(text, needle, init, true)
          assert(a == c and b == d, tostring(init) .. ': ' .. tostring(a) .. ' instead of ' .. tostring(c))
        end
        for _, plain in ipairs { true, false } do
          for _, init in ipairs { 1, 2, 2.7, 299000, 299001, 299002, 300001, 399000, 400000, 1e6, -5, -1012, -1e6, 0 } do
            same(text, needle, init, plain)
            same(text, needle .. 'c', init, plain)
          end
          same(text, needle, nil, plain)
          same(text, needle, '299001', plain)
          same(text, text, 1, plain)
          same(text, text .. 'a', 1, plain)
        end
        assert(not pcall(string.find, text, needle, 'x', true))";
    vm.run("=compare", compare.as_bytes(), &[Argument::Kept(kit)]).unwrap();
}

/// Lists that C would sort for seconds, and nothing could stop it; what compares them does no less.
const LONG_SORTS: [&str; 3] = [
    "local t = {} for i = 1, 3e6 do t[i] = (i * 7919) % 3000017 end table.sort(t)",
    "local a = ('x'):rep(4e6) local b, t = a .. 'b', {} for i = 1, 3000 do t[i] = i % 3 == 0 and a or b end table.sort(t)",
    "local t = {} for i = 1, 3e6 do t[i] = i % 1000 end table.sort(t, rawequal)",
];

#[test]
fn a_long_sort_is_stopped_like_a_loop() {
    for sort in LONG_SORTS {
        let mut trial = Trial::envoy(&format!("function envoy_on_request(h) {sort} end"));
        let before = cpu_time();
        assert_eq!(trial.request(&[]), Outcome::Passed, "{sort}");
        let took = cpu_time() - before;
        assert_eq!(trial.stat("http.test.lua.errors"), Some(1), "{sort}");
        assert!(took < Duration::from_millis(1500), "{sort}: {took:?}");
    }
}

#[test]
fn a_sort_in_lua_gives_what_one_in_c_does() {
    let vm = Vm::new(256 << 20, Duration::from_secs(60)).unwrap();
    let compare = r"
        local c_sort = table.sort
        load(...)()
        assert(table.sort ~= c_sort)
        for n = 0, 200 do
          for _, values in ipairs { 2, 10, 1e6 } do
            local a, b, texts = {}, {}, {}
            for i = 1, n do a[i] = math.random(values) b[i] = a[i] texts[i] = 't' .. a[i] end
            table.sort(a) c_sort(b) table.sort(texts)
            for i = 1, n do assert(a[i] == b[i]) end
            for i = 2, n do assert(not (texts[i] < texts[i - 1])) end
          end
        end
        local up, down = {}, {}
        for i = 1, 5000 do up[i], down[i] = i, 5001 - i end
        table.sort(up) table.sort(down)
        for i = 1, 5000 do assert(up[i] == i and down[i] == i) end
        -- Values without an order, and one that changes.
        local odd = {}
        for i = 1, 100 do odd[i] = i % 3 == 0 and 0/0 or i end
        table.sort(odd)
        local lazy = setmetatable({}, { __lt = function() return true end })
        local all = {}
        for i = 1, 50 do all[i] = setmetatable({}, getmetatable(lazy)) end
        local ok, why = pcall(table.sort, all)
        assert(ok or why:find('invalid order function'), why)
        assert(not pcall(table.sort, { 1, 'a' }) and not pcall(table.sort) and not pcall(table.sort, {}, 1))
        table.sort(up, function(a, b) return a > b end)
        assert(up[1] == 5000)";
    vm.run("=compare", compare.as_bytes(), &[Argument::Text(include_bytes!("../sdk/sort.lua"))]).unwrap();
}

#[test]
fn a_schema_that_asks_for_endless_work_ends() {
    let level = |n: u32| {
        format!(
            "['l{n}'] = {{ anyOf = {{ {{ ['$ref'] = '#/definitions/l{0}' }}, {{ ['$ref'] = '#/definitions/l{0}' }} }} }}",
            n + 1
        )
    };
    let levels: Vec<String> = (0..40).map(level).collect();
    let script = format!(
        "local made, fault = pcall(require('jsonschema').generate_validator, {{
           properties = {{ n = {{ ['$ref'] = '#/definitions/l0' }} }},
           definitions = {{ {}, l40 = {{ type = 'string' }} }},
         }})
         local again = {{ properties = {{ a = {{ ['$ref'] = '#' }} }} }}
         local fits = require('jsonschema').generate_validator({{ allOf = {{ again, again }} }})
         local deep = 1
         for i = 1, 100 do deep = {{ a = deep }} end
         local h = {{ version = 'v2' }}
         function h.on_request_header()
           local ok, why = fits(deep)
           if made or not fault:find('schemas in it') then why = tostring(fault) end
           envoy.req.set_header('x-out', tostring(ok) .. ' ' .. tostring(why))
         end
         return h",
        levels.join(", ")
    );
    let config = serde_json::json!({
        "name": "p", "runtime": "rider", "code": { "inline_string": script }, "budget": { "cpu": "60s" },
    });
    let mut trial = Trial::new("postrider.filters.http.plugin.v1.Plugin", &config.to_string(), None).unwrap();
    trial.request(&[]);
    let got = trial.request_header("x-out").unwrap();
    assert!(got.starts_with("false") && got.contains("too much work"), "{got}");
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_compiled_endless_loop_is_stopped_within_ten_milliseconds_of_its_budget() {
    let config = serde_json::json!({
        "name": "loop", "runtime": "envoy-lua", "budget": { "cpu": "0.02s" }, "circuit": { "faults": 0 },
        "code": { "inline_string": "function envoy_on_request(h) local n = 0 while true do n = n + 1 end end" },
    });
    let mut trial = Trial::new("postrider.filters.http.plugin.v1.Plugin", &config.to_string(), None).unwrap();
    let mut took = Vec::new();
    // What is measured is this thread's own time; the one that watches it may have to wait for a core now and then.
    for _ in 0..50 {
        let before = cpu_time();
        assert_eq!(trial.request(&[]), Outcome::Passed);
        took.push(cpu_time() - before);
        if took.iter().filter(|took| **took < Duration::from_millis(30)).count() >= 5 {
            break;
        }
    }
    took.sort();
    assert!(took[0] >= Duration::from_millis(20), "it has all of its budget: {took:?}");
    assert!(took.get(4).is_some_and(|fifth| *fifth < Duration::from_millis(30)), "{took:?}");
}

#[test]
fn a_strict_script_outlives_collections_of_what_it_may_not_reach() {
    let config = serde_json::json!({
        "name": "p", "runtime": "rider", "circuit": { "faults": 0 }, "options": { "sandbox": "strict" },
        "code": { "inline_string": "local h = { version = 'v2' }
            function h.on_request_header()
              -- Texts of the size of a table, so that one stands wherever a table was freed.
              local texts = {}
              for i = 1, 20000 do texts[i] = ('%036d'):format(i) end
              for i = 1, 300 do envoy.req.get_header(texts[i]) end
            end
            return h" },
    });
    let mut trial = Trial::new("postrider.filters.http.plugin.v1.Plugin", &config.to_string(), None).unwrap();
    for _ in 0..10 {
        assert_eq!(trial.request(&[]), Outcome::Passed);
        trial.restart(postrider_filter_api::testing::FakeStream::new("GET", "/", &[]));
    }
}
