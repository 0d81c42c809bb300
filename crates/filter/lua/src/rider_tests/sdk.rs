//! Each function of the SDK, by what it gives for what.

use postrider_filter_api::testing::FakeStream;
use postrider_model::Value;

use super::{Trial, get, out, out_of, show, v1, v2};
use crate::testing::Outcome;

/// What expressions give on a request with a few headers, in both versions of the SDK.
fn table(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        for script in [v2(&[("request_header", &show(expression))]), v1(&[("request", &show(expression))])] {
            let mut trial = Trial::rider(&script);
            trial.restart(FakeStream::new(
                "GET",
                "/p?b=2&a=1&a=3&c&d=%20x=y",
                &[("one", "1"), ("two", "a"), ("two", "b"), ("empty", "")],
            ));
            trial.stream.info.downstream_local = Some("10.0.0.1:80".parse().unwrap());
            trial.stream.info.downstream_remote = Some("10.0.0.2:1234".parse().unwrap());
            let got = out_of(&mut trial).unwrap_or_default();
            match expected.strip_prefix("E:") {
                Some(text) => {
                    assert!(got.starts_with("E: ") && got.contains(text.trim()), "{expression}: {got}");
                    assert!(got.contains("test:"), "the plugin's line is named. {expression}: {got}");
                }
                None => assert_eq!(got, *expected, "{expression}"),
            }
        }
    }
}

#[test]
fn reads_of_headers() {
    table(&[
        ("req.get_header('one')", "1"),
        ("req.get_header('ONE')", "1"),
        ("req.get_header('two')", "a,b"),
        ("'<' .. req.get_header('empty') .. '>'", "<>"),
        ("req.get_header('none')", "nil"),
        ("req.get_header('')", "nil"),
        ("req.get_header(':method')", "GET"),
        ("req.get_header(':authority')", "x"),
        ("req.get_header('host')", "x"),
        ("req.get_header(1)", "E: header name must be a string"),
        ("req.get_header()", "E: header name must be a string"),
        ("resp.get_header('one')", "nil"),
        ("resp.get_headers()", "nil"),
        ("resp.get_header_map_size()", "0"),
        ("req.get_header_map_size()", "8"),
        ("req.get_headers().two", "b"),
        ("req.get_headers()[':path']", "/p?b=2&a=1&a=3&c&d=%20x=y"),
        ("req.get_header_size('two')", "2"),
        ("req.get_header_size('none')", "0"),
        ("req.get_header_size({})", "E: header name must be a string"),
        ("req.get_header_index('two', 0)", "a"),
        ("req.get_header_index('two', 1)", "b"),
        ("req.get_header_index('two', 2)", "nil"),
        ("req.get_header_index('two', -1)", "nil"),
        ("req.get_header_index('two')", "E: header index must be a number"),
    ]);
}

#[test]
fn edits_of_headers() {
    table(&[
        ("req.set_header('two', 'c'); req.get_header('two'), req.get_header_size('two')", "c|1"),
        ("req.set_header('X-New', 'v'); req.get_headers()['x-new']", "v"),
        ("req.set_header('x', '')", "E: must not be empty"),
        ("req.set_header('', 'x')", "E: must not be empty"),
        ("req.set_header('x', 1)", "E: header value must be a string"),
        ("req.set_header(1, 'x')", "E: header name must be a string"),
        ("req.set_header('x', nil)", "E: header value must be a string"),
        ("req.set_header('x', 'a\\r\\nb')", "E: no message could carry it"),
        ("req.set_header('x y', 'a')", "E: no message could carry it"),
        ("req.set_header('x', 'a\\0b')", "E: no message could carry it"),
        ("resp.set_header('x', 'y')", "E: there is no such message here"),
        ("resp.remove_header('x')", "E: there is no such message here"),
        ("req.remove_header('two'); req.get_header('two')", "nil"),
        ("req.clear_header('TWO'); req.get_header('two')", "nil"),
        ("req.remove_header('none')", "(empty)"),
        ("req.remove_header('')", "E: must not be empty"),
        ("req.remove_header(nil)", "E: header name must be a string"),
        ("req.set_header(':path', '/other'); req.get_header(':path')", "/other"),
        (
            "req.set_headers({ a = 'b', [':path'] = '/q' }); req.get_header('a'), req.get_header('one'), req.get_header(':path')",
            "b|nil|/q",
        ),
        ("req.set_headers({})", "E: must not be empty"),
        ("req.set_headers('x')", "E: headers must be a table"),
        ("req.set_headers({ a = 1 })", "E: header value must be a string"),
        ("req.set_headers({ 'a' })", "E: header name must be a string"),
        ("pcall(req.set_headers, { a = 'b', c = '\\n' }); req.get_header('one')", "1"),
    ]);
}

#[test]
fn query_parameters() {
    let names = |max: &str| {
        format!(
            "(function() local names = {{}} for name in pairs(req.get_query_parameters({max})) do names[#names + 1] = name end \
             table.sort(names) return table.concat(names, ',') end)()"
        )
    };
    table(&[
        ("req.get_query_parameters().a", "1"),
        ("'<' .. req.get_query_parameters().c .. '>'", "<>"),
        ("req.get_query_parameters().d", "%20x=y"),
        (&names(""), "a,b,c,d"),
        (&names("2"), "a,b"),
        (&names("100"), "a,b,c,d"),
        ("req.get_query_parameters(0)", "E: max_args must be >= 1"),
        ("req.get_query_parameters(101)", "E: max_args must be <= 100"),
        ("req.get_query_parameters('1')", "E: max_args must be a number"),
        ("req.get_query_parameters(0/0)", "E: max_args must be >= 1"),
    ]);
    assert_eq!(out(&show("next(req.get_query_parameters())")).as_deref(), Some("nil"));
}

#[test]
fn facts_of_the_stream() {
    table(&[
        ("envoy.streaminfo.upstream_cluster()", "nil"),
        ("envoy.streaminfo.upstream_host()", "nil"),
        ("envoy.streaminfo.downstream_local_address()", "10.0.0.1:80"),
        ("envoy.streaminfo.downstream_remote_address()", "10.0.0.2:1234"),
        ("envoy.streaminfo.start_time()", "0"),
        ("type(envoy.nowms()), envoy.nowms() > 1.6e12, envoy.nowms() % 1", "number|true|0"),
        ("envoy.streaminfo.current_time_milliseconds() >= envoy.nowms() - 1000", "true"),
        ("req.clear_route_cache()", "(empty)"),
    ]);
    let mut trial = Trial::rider(&v2(&[(
        "request_header",
        &show("envoy.streaminfo.upstream_host(), envoy.streaminfo.upstream_cluster()"),
    )]));
    trial.stream.info.upstream_remote = Some("10.1.1.1:80".into());
    trial.stream.info.upstream_cluster = Some("blue".into());
    assert_eq!(out_of(&mut trial).as_deref(), Some("10.1.1.1:80|blue"));
    let mut trial = Trial::rider(&v2(&[("request_header", "req.clear_route_cache()")]));
    trial.request(&[]);
    assert!(trial.stream.info.route_is_stale);
    let mut trial = Trial::rider(&v2(&[("request_header", "req.set_header('x-edit', '1')")]));
    trial.request(&[]);
    assert!(!trial.stream.info.route_is_stale, "an edit alone does not clear the route cache");
}

#[test]
fn logs_take_texts() {
    let mut cases = Vec::new();
    for name in ["logTrace", "logDebug", "logInfo", "logWarn", "logErr"] {
        cases.push((format!("envoy.{name}('x')"), "(empty)"));
        cases.push((format!("envoy.{name}(nil)"), "(empty)"));
        cases.push((format!("envoy.{name}(1)"), "E: msg must be a string"));
    }
    cases.push(("envoy.filelog('x')".to_owned(), "(empty)"));
    cases.push(("envoy.filelog(nil)".to_owned(), "E: msg must be a string"));
    let cases: Vec<_> = cases.iter().map(|(expression, expected)| (expression.as_str(), *expected)).collect();
    table(&cases);
}

#[test]
fn the_log_file_gets_what_is_logged_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("postrider-rider-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("plugin.log");
    let _ = std::fs::remove_file(&file);
    let config = serde_json::json!({ "plugin": {
        "name": "test", "log_file": { "path": file.display().to_string() },
        "code": { "local": { "inline_string": v2(&[("request_header", "envoy.filelog('a') envoy.filelog('b\\n')")]) } },
    }});
    let mut trial = Trial::new(super::RIDER, &config.to_string(), None).unwrap();
    let wait_for = |wanted: &str| {
        let began = std::time::Instant::now();
        while std::fs::read_to_string(&file).unwrap_or_default() != wanted {
            assert!(began.elapsed().as_secs() < 20, "the writer's thread got nothing");
            std::thread::yield_now();
        }
    };
    trial.request(&[]);
    wait_for("ab\n");
    // Renamed and opened again, as by logrotate.
    std::fs::rename(&file, folder.join("old.log")).unwrap();
    crate::reopen_logs();
    trial.again();
    trial.request(&[]);
    wait_for("ab\n");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn metadata_gives_texts_and_whole_numbers() {
    let cases = [
        ("req.get_metadata('text', 'ns')", "t"),
        ("req.get_metadata('number', 'ns')", "-3"),
        ("req.get_metadata('integer', 'ns')", "7"),
        ("type(req.get_metadata('number', 'ns'))", "string"),
        ("req.get_metadata('bool', 'ns')", "nil"),
        ("req.get_metadata('list', 'ns')", "nil"),
        ("req.get_metadata('none', 'ns')", "nil"),
        ("req.get_metadata('', 'ns')", "nil"),
        ("req.get_metadata('own', '')", "nil"),
        ("req.get_metadata('small', 'ns')", "0"),
        ("req.get_metadata('text', 'other')", "nil"),
        ("pcall(req.get_metadata, 'text')", "false"),
        ("pcall(req.get_metadata, 'text', 1)", "false"),
        ("pcall(req.get_metadata, 1, 'ns')", "false"),
        ("req.get_dynamic_metadata('text', 'ns')", "nil"),
        ("req.set_dynamic_metadata('k', 'v', 'ns'); req.get_dynamic_metadata('k', 'ns')", "v"),
        ("pcall(req.set_dynamic_metadata, 'k', 1, 'ns')", "false"),
        ("pcall(req.set_dynamic_metadata, 'k', 'v')", "false"),
    ];
    for (expression, expected) in cases {
        let mut trial = Trial::rider(&v2(&[("request_header", &show(expression))]));
        let mut metadata = postrider_model::Metadata::default();
        let values = [
            ("text", Value::String("t".to_owned())),
            ("number", Value::Number(-3.9)),
            ("small", Value::Number(-0.5)),
            ("integer", Value::Integer(7)),
            ("bool", Value::Bool(true)),
            ("list", Value::List(vec![Value::Integer(1)])),
        ];
        for (key, value) in values {
            metadata.set("ns", key, value);
        }
        // An empty name of a filter is no name for the plugin's own.
        metadata.set("test", "own", Value::String("x".to_owned()));
        trial.stream.route.as_mut().unwrap().metadata = metadata.into();
        let got = out_of(&mut trial).unwrap();
        assert_eq!(got.split('|').next().unwrap(), expected, "{expression}: {got}");
    }
    let mut trial = Trial::rider(&v2(&[("request_header", "req.set_dynamic_metadata('k', 'v', 'ns')")]));
    trial.stream.info.metadata.set("ns", "old", Value::Integer(1));
    trial.request(&[]);
    let metadata = &trial.stream.info.metadata;
    assert_eq!(metadata.get("ns", "k"), Some(&Value::String("v".to_owned())));
    assert_eq!(metadata.get("ns", "old"), Some(&Value::Integer(1)), "the namespace keeps what it has");
}

#[test]
fn metrics_count_by_their_kind() {
    table(&[
        (
            "envoy.define_metric(3, 'x') < 0, envoy.define_metric(-1, 'x') < 0, envoy.define_metric('a', 'x') < 0",
            "true|true|true",
        ),
        (
            "envoy.define_metric(0, '') < 0, envoy.define_metric(0, 'a b') < 0, envoy.define_metric(0) < 0",
            "true|true|true",
        ),
        ("envoy.define_metric(0, 'same') == envoy.define_metric(0, 'same')", "true"),
        (
            "envoy.define_metric(0, 'one') > 0, envoy.define_metric(1, 'one') < 0, envoy.define_metric(2, 'one') < 0",
            "true|true|true",
        ),
        ("envoy.increment_metric(99, 1)", "E: there is no such metric"),
        ("envoy.record_metric(99, 1)", "E: there is no such metric"),
        ("envoy.increment_metric(nil, 1)", "E: there is no such metric"),
        ("envoy.get_metric(99)", "-1"),
        ("envoy.get_metric('x')", "-1"),
        (
            "(function() local id = envoy.define_metric(0, 'counted') envoy.increment_metric(id, 2) envoy.record_metric(id, 3) \
              return id > 0, envoy.get_metric(id), pcall(envoy.increment_metric, id, -1) end)()",
            "true|5|false|there is no such metric, or it cannot be incremented by that",
        ),
        (
            "(function() local id = envoy.define_metric(1, 'level') envoy.increment_metric(id, 7) envoy.increment_metric(id, -2) \
              local first = envoy.get_metric(id) envoy.record_metric(id, 3) return first, envoy.get_metric(id) end)()",
            "5|3",
        ),
        (
            "(function() local id = envoy.define_metric(2, 'sizes') envoy.record_metric(id, 7) \
              return envoy.get_metric(id), (pcall(envoy.increment_metric, id, 1)) end)()",
            "-1|false",
        ),
    ]);
}

#[test]
fn a_plugin_that_names_statistics_without_end_is_refused_more() {
    let body = "for i = 1, 1000 do assert(envoy.define_metric(0, 'n' .. i) > 0, i) end; envoy.define_metric(0, 'more') < 0, \
                envoy.define_metric(0, 'n7') > 0";
    assert_eq!(out(&show(body)).as_deref(), Some("true|true"));
}

#[test]
fn a_plugin_may_define_metrics_at_its_top_level() {
    let script = "require('rider.v2')
        local id = envoy.define_metric(0, 'loads')
        assert(id > 0)
        envoy.increment_metric(id, 1)
        local h = { version = 'v2' }
        function h.on_request_header() envoy.req.set_header('x-out', tostring(envoy.get_metric(id))) end
        return h";
    assert_eq!(out_of(&mut Trial::rider(script)).as_deref(), Some("1"));
}

#[test]
fn the_second_sdk_hands_out_bodies_as_texts() {
    let mut trial = Trial::rider(&v2(&[
        ("request_header", "envoy.stream.shared.early = tostring(req.get_body())"),
        (
            "request_body",
            "req.set_header('x-out', envoy.stream.shared.early .. '|' .. tostring(req.get_body()) .. '|' .. tostring(resp.get_body()))",
        ),
    ]));
    assert_eq!(trial.request(&["ab", "cd"]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("nil|abcd|nil"));
    trial.again();
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("nil|nil|nil"), "no body: the hook runs all the same");
}

#[test]
fn bodies_can_be_replaced_in_either_version() {
    let mut trial = Trial::rider(&v2(&[(
        "request_body",
        "local n = req.set_body('<' .. req.get_body() .. '>') req.set_header('x-out', n .. req.get_body())",
    )]));
    assert_eq!(trial.request(&["ab", "c"]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("5<abc>"));
    assert_eq!(trial.request_header("content-length").as_deref(), Some("5"));
    assert_eq!(trial.stream.request_body.bytes(), b"<abc>");

    let mut trial = Trial::rider(&v1(&[(
        "response",
        "local b = resp.get_body() local n = b:setBytes(b:getBytes(1, 2)) resp.set_header('x-out', tostring(n) .. b:length())",
    )]));
    trial.stream.response.set_status(200);
    assert_eq!(trial.response(&["abc", "d"]), Outcome::Passed);
    assert_eq!(trial.response_header("x-out").as_deref(), Some("22"));
    assert_eq!(trial.response_header("content-length").as_deref(), Some("2"));
    assert_eq!(trial.stream.response_body.bytes(), b"bc");
}

#[test]
fn a_body_that_a_hook_on_the_head_sets_is_not_lost() {
    let first = v1(&[("request", "req.set_header('x-out', tostring(req.set_body('new body')))")]);
    let second = v2(&[
        ("request_header", "req.set_header('x-out', tostring(req.set_body('new body')))"),
        ("request_body", "req.set_header('x-seen', tostring(req.get_body()))"),
    ]);
    for script in [&first, &second] {
        for pieces in [&["old ", "body, longer"][..], &[]] {
            let mut trial = Trial::rider(script);
            assert_eq!(trial.request(pieces), Outcome::Passed);
            assert_eq!(trial.request_header("x-out").as_deref(), Some("8"));
            assert_eq!(trial.request_header("content-length").as_deref(), Some("8"));
            assert_eq!(trial.stream.request_body.bytes(), b"new body");
        }
    }
    // The published test of it reads what it set, also where there was no body.
    for pieces in [&["old"][..], &[]] {
        let read = "req.set_body('new') local b = req.get_body() req.set_header('x-out', b:getBytes(0, b:length()))";
        let mut trial = Trial::rider(&v1(&[("request", read)]));
        assert_eq!(trial.request(pieces), Outcome::Passed);
        assert_eq!(trial.request_header("x-out").as_deref(), Some("new"));
    }
    let mut trial = Trial::rider(&second);
    trial.request(&["old"]);
    assert_eq!(trial.request_header("x-seen").as_deref(), Some("new body"), "the hook on the body sees the new one");
    let mut trial = Trial::rider(&v1(&[("response", "resp.set_header('x-out', tostring(resp.set_body('new')))")]));
    trial.stream.response.set_status(200);
    assert_eq!(trial.response(&["old", " one"]), Outcome::Passed);
    assert_eq!(trial.stream.response_body.bytes(), b"new");
}

#[test]
fn the_first_sdks_body_is_an_object() {
    let cases = [
        ("b:length()", "5"),
        ("b:getBytes(0, 5)", "hello"),
        ("b:getBytes(1, 3)", "ell"),
        ("b:getBytes(5, 0) == ''", "true"),
        ("pcall(b.getBytes, b, 0, 6)", "false"),
        ("pcall(b.getBytes, b, -1, 2)", "false"),
        ("pcall(b.getBytes, b, 'x', 2)", "false"),
        ("pcall(b.setBytes, b, 1)", "false"),
        ("req.get_body():getBytes(0, 5)", "hello"),
        ("b:setBytes('bye'); req.get_body():getBytes(0, 3), req.get_header('content-length')", "bye|3"),
        ("pcall(resp.get_body)", "false"),
    ];
    for (expression, expected) in cases {
        let mut trial = Trial::rider(&v1(&[("request", &format!("local b = req.get_body() {}", show(expression)))]));
        assert_eq!(trial.request(&["he", "llo"]), Outcome::Passed);
        let got = trial.request_header("x-out").unwrap();
        assert!(got.starts_with(expected), "{expression}: {got}");
    }
    let mut trial = Trial::rider(&v1(&[("request", "req.set_header('x-out', tostring(req.get_body()))")]));
    assert_eq!(out_of(&mut trial).as_deref(), Some("nil"), "there is no body");
}

#[test]
fn a_large_body_is_not_kept_beyond_its_stream() {
    let mut trial = Trial::rider(&v2(&[("request_body", "req.set_header('x-out', tostring(#req.get_body()))")]));
    let piece = "x".repeat(100_000);
    assert_eq!(trial.request(&[&piece]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("100000"));
    trial.restart(get(&[]));
    assert_eq!(trial.request(&["ab"]), Outcome::Passed);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("2"));
}

#[test]
fn metrics_are_exported_under_the_plugins_name() {
    let mut trial = Trial::rider(&v2(&[(
        "request_header",
        "envoy.increment_metric(envoy.define_metric(0, 'hits'), 2) envoy.record_metric(envoy.define_metric(1, 'level'), 7)",
    )]));
    trial.request(&[]);
    let scopes = trial.stats.read(&[]);
    let mut found: Vec<(String, u64)> = scopes
        .iter()
        .filter(|scope| scope.set.root == "rider")
        .flat_map(|scope| {
            let name = scope.set.scope_name(&scope.prefix);
            scope.set.cells.iter().zip(&scope.cells).map(move |(stat, value)| (format!("{name}{}", stat.name), *value))
        })
        .collect();
    found.sort();
    assert_eq!(found, [("rider.test.hits".to_owned(), 2), ("rider.test.level".to_owned(), 7)]);
}
