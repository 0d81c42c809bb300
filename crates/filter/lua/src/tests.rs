//! The host itself: entries, waits, budgets, faults. What the dialects mean is tested beside them.

mod config;
mod envoy;
mod hostile;
mod jit;
mod rules;
mod wild;

use std::time::{Duration, Instant};

use crate::testing::{Outcome, Trial};

#[test]
fn a_script_reads_and_edits_the_head() {
    let mut trial = Trial::envoy(
        "function envoy_on_request(h) h:headers():replace('x-out', (h:headers():get(':path')) .. '!') end",
    );
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("/!"));
}

#[test]
fn a_function_without_a_statement_is_counted_and_not_run() {
    for (parameters, body, runs) in [
        ("h", "", false),
        ("", "--[[ nothing ]]", false),
        ("...", "return", false),
        ("h", "do end", false),
        ("h", "return h", true),
        ("h", "local x", true),
        ("h", "return 1", true),
        ("h", "h()", true),
        ("h", "x = 1", true),
        ("h", "while true do break end", true),
        ("...", "return ...", true),
    ] {
        let mut trial = Trial::envoy(&format!("function envoy_on_request({parameters}) {body} end"));
        assert_eq!((trial.request(&["body"]), trial.response(&[])), (Outcome::Passed, Outcome::Passed), "{body}");
        assert_eq!(trial.stat("http.test.lua.executions"), Some(1), "{body}");
        // The first calls are all timed, if they take any.
        assert_eq!(trial.calls_and_timed(), (1, u64::from(runs)), "{body}");
    }
    let mut trial = Trial::envoy("envoy_on_request, envoy_on_response = print, function() end");
    trial.request(&[]);
    trial.response(&[]);
    assert_eq!(trial.calls_and_timed(), (2, 1), "one is C's");
}

#[test]
fn a_script_waits_for_the_whole_body() {
    let mut trial = Trial::envoy(
        "function envoy_on_request(h) local b = h:body() h:headers():replace('x-out', b:getBytes(0, b:length())) end",
    );
    assert_eq!(trial.request(&["ab", "c", "de"]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("abcde"));
}

#[test]
fn an_error_lets_the_stream_go_on() {
    let mut trial = Trial::envoy("function envoy_on_request(h) h:headers():replace('x', '1') error('no') end");
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x").as_deref(), Some("1"));
}

#[test]
fn a_compiled_endless_loop_is_stopped_soon_after_its_budget() {
    let mut trial = Trial::envoy("function envoy_on_request(h) local n = 0 while true do n = n + 1 end end");
    let began = Instant::now();
    assert_eq!(trial.request(&[]), Outcome::Passed);
    // The bound is generous: what it is about is that the loop ends at all.
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(trial.request(&[]), Outcome::Passed);
}

#[test]
fn a_loop_that_catches_its_end_is_stopped_all_the_same() {
    let mut trial =
        Trial::envoy("function envoy_on_request(h) while true do pcall(function() while true do end end) end end");
    assert_eq!(trial.request(&[]), Outcome::Passed);
}

#[test]
fn a_script_that_hoards_memory_fails_and_the_next_stream_is_served() {
    let mut trial = Trial::envoy(
        "local n = 0
         function envoy_on_request(h)
           if h:headers():get('x-hoard') then local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end end
           n = n + 1
           h:headers():replace('x-n', tostring(n))
         end",
    );
    trial.stream.request.fields.append_name(b"x-hoard", b"1").unwrap();
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x-n"), None);
    trial.restart(postrider_filter_api::testing::FakeStream::new("GET", "/", &[]));
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x-n").as_deref(), Some("1"), "a fresh machine");
}

#[test]
fn a_script_that_does_not_load_is_refused_with_its_line() {
    let config = r#"{"default_source_code": {"inline_string": "local x = \nfunction ("}}"#;
    let errors = Trial::new("envoy.extensions.filters.http.lua.v3.Lua", config, None).err().unwrap();
    assert_eq!(errors[0].path, "default_source_code");
    assert!(errors[0].message.contains("lua:2:"), "{}", errors[0].message);
}

#[test]
fn the_matcher_in_lua_agrees_with_the_one_in_c() {
    let vm = crate::vm::Vm::new(64 << 20, Duration::from_secs(60)).unwrap();
    let kit = vm.run("=patterns", include_str!("sdk/patterns.lua").as_bytes(), &[]).unwrap().unwrap();
    let compare = include_str!("sdk/patterns_test.lua").as_bytes();
    vm.run("=compare", compare, &[crate::vm::Argument::Kept(kit)]).unwrap();
}

#[test]
fn a_number_in_any_base_is_what_the_function_in_c_reads() {
    let script = r#"
        local in_c
        for i = 1, 10 do
          local name, value = debug.getupvalue(tonumber, i)
          if name == "tonumber" then in_c = value end
        end
        local function outcome(act, ...)
          local answer = { pcall(act, ...) }
          return tostring(answer[1]) .. type(answer[2]) .. tostring(answer[2])
        end
        local values = {
          "0", "1", "00101101", "102", "7f", "7F", "zz", "Zz", "0x1f", "0X1F", "-11", "+11", " 11 ", "1 1", "", " ", "1\0", "1\0x",
          "9007199254740991", "9007199254740992", "9007199254740993", "18446744073709551615", "18446744073709551616",
          "fffffffffffff", "1fffffffffffff", "20000000000000", "20000000000001", ("1"):rep(53), ("1"):rep(54), ("9"):rep(400),
          "1e5", "1.5", "nan", "inf", "\128", 11, 1.5, -1, true, {}, print, 2 ^ 60,
        }
        local bases = { 2, 3, 8, 10, 16, 36, 2.5, 10.9, 35.9, 1, 0, -2, 37, "16", "x", 0 / 0, 1 / 0, true, {} }
        function envoy_on_request(handle)
          local checked = 0
          for i = 1, #values do
            local value = values[i]
            for j = 1, #bases do
              local one, other = outcome(tonumber, value, bases[j]), outcome(in_c, value, bases[j])
              if one ~= other then error(tostring(value) .. "," .. tostring(bases[j]) .. ": " .. one .. " ~= " .. other) end
              checked = checked + 1
            end
            if outcome(tonumber, value) ~= outcome(in_c, value) then error("without a base: " .. tostring(value)) end
          end
          if outcome(tonumber) ~= outcome(in_c) or outcome(tonumber, nil, 2) ~= outcome(in_c, nil, 2) then error("nothing") end
          handle:headers():replace("x-checked", checked)
          local _, place = pcall(function() return (tonumber("1", 99)) end)
          handle:headers():replace("x-place", place)
        end"#;
    let mut trial = Trial::envoy(script);
    // Often enough for compiled code.
    for _ in 0..100 {
        trial.restart(postrider_filter_api::testing::FakeStream::new("GET", "/", &[]));
        assert_eq!(trial.request(&[]), Outcome::Passed);
        assert_eq!(trial.request_header("x-checked").as_deref(), Some("798"));
    }
    let place = trial.request_header("x-place").unwrap();
    assert!(place.contains("bad argument #2 to 'tonumber' (base out of range)"), "{place}");
}

#[test]
fn a_pattern_of_exponential_cost_is_stopped_like_a_loop() {
    let mut trial = Trial::envoy(
        "function envoy_on_request(h) string.find(('a'):rep(60), ('a?'):rep(50) .. ('a'):rep(60) .. 'b') end",
    );
    assert_eq!(trial.request(&[]), Outcome::Passed);
}

/// Not a test: prints what entries and calls cost, beside what the map alone costs.
/// `cargo test --release -p postrider-filter-lua -- --ignored costs --nocapture`
#[test]
#[ignore = "a measurement"]
fn costs() {
    const OPS: u32 = 100;
    /// Of this thread, in nanoseconds: others may be busy.
    fn cpu_time() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
    /// Nanoseconds for each round: the best of ten runs.
    fn best(rounds: u32, mut round: impl FnMut()) -> f64 {
        let mut best = f64::MAX;
        for _ in 0..10 {
            let began = cpu_time();
            for _ in 0..rounds {
                round();
            }
            best = best.min((cpu_time() - began) / f64::from(rounds));
        }
        best
    }
    fn fill(fields: &mut postrider_http::Fields) {
        for i in 0..20 {
            fields.append_name(format!("test{i}").as_bytes(), b"value").unwrap();
        }
    }
    let measure = |rounds: u32, body: &str| {
        let mut trial = Trial::envoy(&format!("function envoy_on_request(h) {body} end"));
        fill(&mut trial.stream.request.fields);
        for _ in 0..2000.min(rounds) {
            trial.request(&[]);
        }
        best(rounds, || {
            trial.request(&[]);
        })
    };
    let clock = {
        use postrider_filter_api::Host;
        let stream = postrider_filter_api::testing::FakeStream::new("GET", "/", &[]);
        best(100_000, || {
            std::hint::black_box(stream.host.now());
        })
    };
    let entry = measure(100_000, "");
    println!("one reading of the clock: {clock:.1} ns; an entry reads it twice");
    println!("entry: {entry:.1} ns; without the clock {:.1} ns", entry - 2.0 * clock);
    for body in ["local hs = h:headers()", "local x = h:headers():get('test1')", "h:logDebug('quiet')"] {
        println!("entry and {body}: {:.1} ns", measure(100_000, body));
    }
    let per_op = |body: &str| {
        let whole = measure(2000, &format!("local hs = h:headers() for i = 1, {OPS} do {body} end"));
        (whole - entry) / f64::from(OPS)
    };
    let mut fields = postrider_http::Fields::new();
    fill(&mut fields);
    let mut native = |mut act: Box<dyn FnMut(&mut postrider_http::Fields)>| {
        let mut left = 0;
        best(100_000, || {
            left += 1;
            if left % 256 == 0 {
                fields.clear();
                fill(&mut fields);
            }
            act(std::hint::black_box(&mut fields));
        })
    };
    let get = native(Box::new(|fields| {
        let mut values = fields.get_all_name(std::hint::black_box(b"test1"));
        std::hint::black_box((values.next(), values.next()));
    }));
    let count = native(Box::new(|fields| {
        std::hint::black_box(fields.get_all_name(std::hint::black_box(b"test1")).count());
    }));
    let set = native(Box::new(|fields| {
        let _ = fields.set_name(std::hint::black_box(b"test1"), b"other");
    }));
    for (name, body, map) in [
        ("get", "local x = hs:get('test1')", get),
        ("get, another name each time", "local x = hs:get('test' .. i % 20)", get),
        ("replace", "hs:replace('test1', 'other')", set),
        ("getNumValues", "local n = hs:getNumValues('test1')", count),
        ("streamInfo():protocol()", "local p = h:streamInfo():protocol()", 0.0),
        ("metadata():get()", "local p = h:metadata():get('k')", 0.0),
        ("dynamicMetadata():set()", "h:streamInfo():dynamicMetadata():set('n', 'k', 'v')", 0.0),
        ("logDebug, not enabled", "h:logDebug('quiet')", 0.0),
    ] {
        let cost = per_op(body);
        println!("{name}: {cost:.1} ns; the map alone {map:.1} ns, over it {:.1} ns", cost - map);
    }
}
