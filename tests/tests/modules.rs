//! Native modules, as Envoy runs them: the same shared object in both.

use postrider_tests::h2_client::{H2Client, request};
use postrider_tests::kit::config::extension;
use postrider_tests::kit::{Origin, RawClient, Response, TempDir, net, wait_until};
use postrider_tests::modules::{built, filters, script};
use postrider_tests::plugins::{MANIFEST_ROUTE, config, everything, manifest};
use postrider_tests::site::{self, Plan, Site};
use postrider_tests::{postrider_only, refusal};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.dynamic_modules";
const TYPE: &str = "filters.http.dynamic_modules.v3.DynamicModuleFilter";

fn module() -> Value {
    json!({"module": {"local": {"filename": filters()}}})
}

fn text(value: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": value})
}

fn filter(name: &str, config: &str) -> Value {
    let fields = json!({"dynamic_module_config": module(), "filter_name": name, "filter_config": text(config)});
    extension(NAME, TYPE, fields)
}

fn with(name: &str, config: &str) -> Plan {
    site::with([filter(name, config)])
}

fn of_route(config: &str) -> Value {
    json!({
        "@type": format!("type.googleapis.com/envoy.extensions.{TYPE}PerRoute"),
        "dynamic_module_config": module(), "filter_name": "notes", "filter_config": text(config),
    })
}

/// What the origin got of the last request.
fn seen(site: &Site, name: &str) -> String {
    let requests = site.origin.requests();
    requests.last().unwrap().headers.values(name).join("|")
}

fn post(site: &Site, path: &str, body: &str) -> Response {
    let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
    site.proxy.exchange(head + body)
}

#[test]
fn a_module_that_does_nothing_changes_nothing() {
    let site = with("passthrough", "").start();
    let answer = post(&site, "/p?q", "hello");
    assert_eq!(answer.status, 200);
    let request = &site.origin.requests()[0];
    assert_eq!((request.target.as_str(), request.body.as_slice()), ("/p?q", &b"hello"[..]));
    assert_eq!(site.logged(1), "200 - via_upstream");
}

/// A filter of the module of which most functions do nothing.
fn idle(folder: &TempDir, more: &[&str]) -> Plan {
    let module = json!({"module": {"local": {"filename": built("idle", folder.path(), more)}}});
    site::with([extension(NAME, TYPE, json!({"dynamic_module_config": module, "filter_name": "idle"}))])
}

#[test]
fn a_head_that_a_module_stopped_goes_on_with_a_body_whose_hook_does_nothing() {
    let folder = TempDir::new();
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nx-stop: 1\r\ncontent-length: 5\r\n\r\nworld");
    let site = idle(&folder, &["-DRESPONSES"]).start_before(origin);
    let mut client = site.proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\nx-stop: 1\r\ncontent-length: 5\r\n\r\n");
    client.send("hello");
    let answer = client.response("POST").unwrap();
    assert_eq!((answer.status, answer.text()), (200, "world"));
    assert_eq!(site.origin.requests()[0].body, b"hello");
    client.send("POST / HTTP/1.1\r\nhost: test\r\nx-stop: 1\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.response("POST").unwrap().text(), "world");
    assert_eq!(site.origin.requests()[1].body, b"hello");
}

#[test]
fn functions_that_do_nothing_are_not_called() {
    if !postrider_only() {
        return;
    }
    for (more, calls) in [(&["-DRESPONSES"][..], 4), (&[], 2)] {
        let folder = TempDir::new();
        let site = idle(&folder, more).start();
        for body in ["", "hello"] {
            let answer = post(&site, "/", body);
            assert_eq!(answer.status, 200);
        }
        assert_eq!(site.proxy.stats().sum("plugin.", ".calls"), calls, "{more:?}");
    }
}

#[test]
fn a_module_answers_itself() {
    let site = with("basic_auth", "dXNlcjpwYXNz").start();
    let refused = site.get("/", "");
    assert_eq!((refused.status, refused.text()), (401, "who are you?"));
    assert_eq!(refused.header("www-authenticate"), "Basic realm=\"module\"");
    assert_eq!(refused.header("content-type"), "text/plain");
    assert_eq!(site.logged(1), "401 - no_credentials");
    assert_eq!(site.origin.requests().len(), 0);
    assert_eq!(site.get("/", "authorization: Basic dXNlcjpwYXNz\r\n").status, 200);
    assert_eq!(seen(&site, "x-user"), "known");
}

#[test]
fn fields_and_facts_of_both_messages() {
    let site = with("headers", "").start_before(Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let answer = site.get("/first?a=1", "x-many: one\r\nx-many: two\r\nX-Gone: 1\r\nuser-agent: tests\r\n");
    assert_eq!(site.origin.requests()[0].target, "/changed?by=module");
    for (name, value) in [
        ("x-count", "2:two"),
        ("x-many", "one|two|last"),
        ("x-gone", ""),
        ("x-method", "GET"),
        ("x-host", "test"),
        ("x-protocol", "HTTP/1.1"),
        ("x-query", "by=module"),
        ("x-agent", "tests"),
        ("x-tls", "none"),
        ("x-cluster", "origin"),
        ("x-route", ""),
    ] {
        assert_eq!(seen(&site, name), value, "{name}");
    }
    assert_eq!((answer.status, answer.text()), (201, "ok"));
    assert_eq!(answer.header("x-pseudo"), ":authority:method:path:scheme");
    assert_eq!(answer.header("x-code"), "200");
    assert_eq!(answer.header("x-details"), "via_upstream");
}

#[test]
fn bodies_are_rewritten_as_a_whole() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let body = [b"<".as_slice(), &request.body, b">"].concat();
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
            connection.write(&body);
        }
    });
    let site = with("body", "").start_before(origin);
    let mut client = site.proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    client.send("6\r\n world\r\n0\r\n\r\n");
    let answer = client.response("POST").unwrap();
    assert_eq!(site.origin.requests()[0].body, b"HELLO WORLD");
    assert_eq!((answer.status, answer.text()), (200, "<HELLO WORLD>"));
    let answer = client.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(answer.text(), "<ABC>");
    assert_eq!(client.exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n").text(), "<>");
}

#[test]
fn bodies_are_rewritten_as_they_come() {
    let site = with("stream", "").start_before(Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let body = request.body;
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
            connection.write(&body);
        }
    }));
    let body = "a small letter ".repeat(20_000);
    let answer = post(&site, "/", &body);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), body.to_uppercase());
}

#[test]
fn a_body_that_is_too_large_to_keep_is_refused() {
    let site = with("body", "").start();
    let body = "x".repeat(2 << 20);
    let answer = post(&site, "/", &body);
    assert_eq!((answer.status, answer.text()), (413, "PAYLOAD TOO LARGE"));
    assert_eq!(site.logged(1), "413 - request_payload_too_large");
}

#[test]
fn a_call_decides_about_the_request() {
    let check = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = if request.target == "/yes" { "200 OK" } else { "401 No" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nby").as_bytes());
        }
    });
    let site = with("callout", "check").cluster("check", &[check.address], json!({})).start();
    assert_eq!(site.get("/yes", "").status, 200);
    assert_eq!(seen(&site, "x-checked"), "by");
    assert_eq!(post(&site, "/yes", "body").status, 200);
    assert_eq!(site.origin.requests()[1].body, b"body");
    let refused = site.get("/no", "");
    assert_eq!((refused.status, refused.text()), (403, "no"));
    assert_eq!(site.logged(3), "403 - not_allowed");
    assert_eq!(check.requests()[0].headers.value("host"), Some("check"));
    drop(check);
}

#[test]
fn a_call_to_a_cluster_that_is_not_there_cannot_be_made() {
    let site = with("callout", "nowhere").start();
    let answer = site.get("/", "");
    assert_eq!((answer.status, answer.text()), (500, "no call: 2"));
}

#[test]
fn a_configuration_counts_by_itself() {
    let site = with("tasks", "").start();
    let answer = site.get("/", "");
    assert_eq!(answer.header("x-addresses"), format!("1 {} 1", site.origin.address));
    let counted = |name: &str| site.proxy.stats().value(&format!("dynamicmodulescustom.{name}"));
    wait_until("the task", || counted("level") == 23);
    // The configuration may have been made more than once, as for a look at it before.
    assert_eq!(counted("seen.kind.task") % 5, 0);
    assert!((5..1000).contains(&counted("seen.kind.task")));
    // Of each task, what came of a call to a cluster that is not there.
    wait_until("the refused calls", || counted("seen.kind.nowhere") == counted("seen.kind.task") / 5 * 2);
}

#[test]
fn another_thread_lets_a_request_go_on() {
    let site = with("scheduler", "").start();
    for _ in 0..20 {
        assert_eq!(site.get("/", "").status, 200);
        assert_eq!(seen(&site, "x-scheduled"), "yes");
    }
    assert_eq!(post(&site, "/", "body").status, 200);
    assert_eq!(site.origin.requests()[20].body, b"body");
}

#[test]
fn an_answer_comes_in_pieces() {
    let site = with("pieces", "").start();
    for request in
        ["GET / HTTP/1.1\r\nhost: test\r\n\r\n", "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi"]
    {
        let answer = site.proxy.exchange(request);
        assert_eq!((answer.status, answer.text()), (202, "one two three"));
        assert_eq!(answer.header("x-from"), "pieces");
    }
    assert_eq!(site.origin.requests().len(), 0);
}

#[test]
fn notes_and_statistics() {
    let metadata = json!({"filter_metadata": {"module": {"of": "the route"}}});
    let routes = json!([
        {
            "match": {"prefix": "/own"}, "route": {"cluster": "origin"}, "metadata": metadata,
            "typed_per_filter_config": {NAME: of_route("for this route")},
        },
        site::rest(),
    ]);
    let line = "%DYNAMIC_METADATA(module:text)% %DYNAMIC_METADATA(module:number)% %DYNAMIC_METADATA(module:truth)% \
                %FILTER_STATE(module.state:PLAIN)%";
    let site = with("notes", "").routes(routes).log(line).start();
    assert_eq!(site.get("/own", "").status, 200);
    assert_eq!(seen(&site, "x-metadata"), "noted 2.5 1 0");
    assert_eq!(seen(&site, "x-of-route"), "the route");
    assert_eq!(seen(&site, "x-state"), "kept");
    // That state, no other; the least level is written, the one below it not.
    assert_eq!(seen(&site, "x-asked"), "1 0 1 0");
    let log = site.proxy.stderr();
    assert!(log.contains("a module wrote this") && log.contains("and this"), "{log}");
    assert!(log.contains("filters.c:7"), "{log}");
    assert_eq!(seen(&site, "x-route-config"), "for this route");
    assert_eq!(seen(&site, "x-metrics"), "1 1");
    assert_eq!(site.logged(1), "noted 2.5 true kept");
    assert_eq!(site.get("/other", "").status, 200);
    assert_eq!(seen(&site, "x-route-config"), "none");
    assert_eq!(seen(&site, "x-of-route"), "none");
    let stats = site.proxy.stats();
    assert_eq!(stats.value("dynamicmodulescustom.seen.kind.request"), 6);
    assert_eq!(stats.value("dynamicmodulescustom.level"), 6);
    // Prometheus has them with the labels that the module gave them.
    let read = site.proxy.admin_get("/stats/prometheus");
    let mut lines = read.text().lines();
    assert!(lines.any(|line| line == r#"envoy_dynamicmodulescustom_seen{kind="request"} 6"#), "{}", read.text());
    assert!(lines.any(|line| line == "envoy_dynamicmodulescustom_level{} 6"), "{}", read.text());
}

#[test]
fn a_stream_is_cut_off() {
    let site = with("reset", "").start();
    let mut client = site.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(client.read_to_end().unwrap_or_default(), b"");
    assert_eq!(site.origin.requests().len(), 0);
}

#[test]
fn a_module_that_cannot_make_its_part_of_a_stream() {
    let site = with("failing", "").start();
    for _ in 0..3 {
        assert_eq!(site.get("/", "").status, 500);
    }
    assert_eq!(site.logged(3), "500 - dynamic_module_filter_init_failed");
}

fn native(file: &std::path::Path, more: Value) -> Value {
    let mut fields = json!({
        "runtime": "native", "code": {"filename": file}, "config": {"of": "gateway"}, "options": {"filter_name": "notes"},
    });
    postrider_tests::kit::config::overlay(&mut fields, more);
    manifest("noted", fields)
}

#[test]
fn a_manifest_has_configurations_at_every_scope() {
    if !postrider_only() {
        return;
    }
    let of = |config: Value| json!({"noted": {"@type": MANIFEST_ROUTE, "config": config}});
    let routes = json!([
        {"match": {"prefix": "/route"}, "route": {"cluster": "origin"}, "typed_per_filter_config": of(json!({"of": "route"}))},
        {
            "match": {"prefix": "/off"}, "route": {"cluster": "origin"},
            "typed_per_filter_config": {"noted": {"@type": MANIFEST_ROUTE, "disabled": true}},
        },
        {
            "match": {"prefix": "/weighted"},
            "route": {"weighted_clusters": {"clusters": [{
                "name": "origin", "weight": 1, "typed_per_filter_config": of(json!({"of": "weighted"})),
            }]}},
        },
        site::rest(),
    ]);
    let host = json!({"typed_per_filter_config": of(json!({"of": "host"}))});
    let site = site::with([native(filters(), json!({}))]).routes(routes.clone()).host(host).start();
    for (path, config) in [
        ("/route", r#"{"of":"route"}"#),
        ("/weighted", r#"{"of":"weighted"}"#),
        ("/other", r#"{"of":"host"}"#),
        ("/off", ""),
    ] {
        assert_eq!(site.get(path, "").status, 200);
        assert_eq!(seen(&site, "x-config"), config, "{path}");
    }
    let plain = site::with([native(filters(), json!({}))]).routes(routes).start();
    assert_eq!(plain.get("/other", "").status, 200);
    assert_eq!(seen(&plain, "x-config"), r#"{"of":"gateway"}"#);
    let plugins = plain.proxy.admin_json("/plugins?format=json").to_string();
    assert!(plugins.contains("native"), "{plugins}");
}

#[test]
fn a_manifest_configures_a_module_with_a_text() {
    if !postrider_only() {
        return;
    }
    let given = |more: Value| {
        let site = site::with([native(filters(), more)]).start();
        assert_eq!(site.get("/", "").status, 200);
        let shown = site.proxy.admin_json("/plugins?format=json&config=1")["plugins"][0]["config"].clone();
        (seen(&site, "x-config"), shown)
    };
    let schema = json!({"type": "string", "pattern": "^mode"});
    assert_eq!(
        given(json!({"config": "mode=\"a\" ", "config_schema": schema})),
        ("mode=\"a\"".to_owned(), json!("mode=\"a\" "))
    );
    assert_eq!(given(json!({"config": ""})), (String::new(), json!("")));
}

#[test]
fn a_route_configures_a_plugin_that_is_a_module_with_a_text() {
    if !postrider_only() {
        return;
    }
    let of = |config: Value| {
        json!([
            {"match": {"prefix": "/own"}, "route": {"cluster": "origin"},
             "typed_per_filter_config": {"noted": {"@type": MANIFEST_ROUTE, "config": config}}},
            site::rest(),
        ])
    };
    let site = site::with([native(filters(), json!({}))]).routes(of(json!("of the route"))).start();
    for (path, config) in [("/own", "of the route"), ("/", r#"{"of":"gateway"}"#)] {
        assert_eq!(site.get(path, "").status, 200);
        assert_eq!(seen(&site, "x-config"), config, "{path}");
    }
    let schema = native(filters(), json!({"config_schema": {"type": "object"}}));
    let refused = refusal(&config(&[schema], of(json!("of the route")), &site.origin));
    assert!(refused.contains("expected an object, found \"of the route\""), "{refused}");
}

#[test]
fn a_module_whose_file_changes_is_loaded_anew() {
    if !postrider_only() {
        return;
    }
    let folder = TempDir::new();
    let (first, second) = (folder.path().join("1"), folder.path().join("2"));
    std::fs::create_dir(&first).unwrap();
    std::fs::create_dir(&second).unwrap();
    let object = built("filters", &first, &[]);
    let other = built("filters", &second, &["-DMARK=\"second\""]);
    let site = site::with([native(&object, json!({}))]).start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(seen(&site, "x-mark"), "first");
    std::fs::rename(other, &object).unwrap();
    wait_until("the new code serves", || {
        site.get("/", "");
        seen(&site, "x-mark") == "second"
    });
}

#[test]
fn a_plugin_that_keeps_failing_is_passed_by() {
    if !postrider_only() {
        return;
    }
    let fields = json!({"options": {"filter_name": "failing"}, "circuit": {"faults": 2, "retry": "60s"}});
    let site = site::with([native(filters(), fields)]).start();
    for _ in 0..4 {
        assert_eq!(site.get("/", "").status, 200, "the policy is to go on");
    }
    assert_eq!(site.stat("plugin.noted.circuit_open"), 1);
}

/// Envoy asks the module for each stream.
#[test]
fn a_filter_of_envoys_type_that_keeps_failing_is_asked_for_each_stream() {
    let site = with("failing", "").start();
    for _ in 0..12 {
        assert_eq!(site.get("/", "").status, 500);
    }
    if !postrider_only() {
        return;
    }
    assert_eq!(site.proxy.stats().sum("plugin.", ".errors"), 12, "none was passed by");
    let text = site.proxy.admin_get("/plugins").text().to_owned();
    assert!(text.contains("on error 500; no budget; no circuit"), "{text}");
    assert!(!text.contains("code  from"), "{text}");
    let plugin = site.proxy.admin_json("/plugins?format=json")["plugins"][0].clone();
    assert_eq!(plugin["digest"].as_str().map(str::len), Some(16), "{plugin}");
    assert_eq!((&plugin["circuit"], &plugin["policy"]["cpu_ms"]), (&json!("none"), &Value::Null), "{plugin}");
    let manifest = site::with([native(filters(), json!({}))]).start();
    let text = manifest.proxy.admin_get("/plugins").text().to_owned();
    assert!(text.contains("on error continue; no budget; circuit opens at 10 faults in 10 s for 5 s"), "{text}");
}

/// Does what requests say in `x-do`; the log has what came of it.
fn scripted() -> Plan {
    let module = json!({"module": {"local": {"filename": script()}}});
    let filter = extension(NAME, TYPE, json!({"dynamic_module_config": module, "filter_name": "script"}));
    site::with([filter]).log("%RESPONSE_CODE% %DYNAMIC_METADATA(module:trace)%")
}

#[test]
fn a_limit_that_a_module_sets_is_that_of_what_is_held_of_both_messages() {
    let long =
        |length: usize| Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{:length$}", ""));
    let limited = || scripted().listener(json!({"per_connection_buffer_limit_bytes": 1000}));
    let site = limited().start();
    let ask = |script: &str, length: usize| {
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\nx-do: {script}\r\ncontent-length: {length}\r\n\r\n");
        site.proxy.exchange(format!("{head}{:length$}", "")).status
    };
    assert_eq!(ask("qh setlimit 10", 100), 200, "what is not held has no limit");
    assert_eq!(ask("qh setlimit 10; qb answer 1; qe answer 1", 100), 413);
    assert_eq!(ask("qh setlimit 0; qb answer 1; qe answer 0", 5000), 200, "none");
    assert_eq!(ask("qh setlimit 1099511627776; qh limit", 1), 200);
    assert!(site.logged(4).contains("limit:1099511627776"), "{}", site.logged(4));
    let small = limited().start_before(long(100));
    let script = "ah answer 1; ab answer 1; ae answer 1";
    assert_eq!(small.get("/", &format!("x-do: qh setlimit 10; {script}\r\n")).status, 500);
    assert_eq!(small.get("/", &format!("x-do: ah setlimit 10; {script}\r\n")).status, 500);
    assert_eq!(small.get("/", "x-do: ah setlimit 10\r\n").status, 200);
    let large = limited().start_before(long(5000));
    for limit in [0, 6000] {
        let script = format!("ah setlimit {limit}; ah answer 1; ab answer 1; ae answer 0");
        assert_eq!(large.get("/", &format!("x-do: {script}\r\n")).body.len(), 5000, "{limit}");
    }
}

/// A body that came in one piece with its end waited for ever.
#[test]
fn a_body_that_is_freed_at_its_last_piece_goes_on() {
    let site = scripted().start();
    for script in
        ["qb answer 1; qb resume q", "qh answer 1; qb answer 1; qb resume q", "qb answer 1; qe answer 1; qe resume q"]
    {
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\nx-do: {script}\r\ncontent-length: 7\r\n\r\n");
        assert_eq!(site.proxy.exchange(head + "abcdefg").status, 200, "{script}");
        assert_eq!(site.origin.requests().last().unwrap().body, b"abcdefg", "{script}");
    }
}

#[test]
fn a_body_that_a_module_kept_is_there_while_it_holds_the_end_of_the_message() {
    let origin = || Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nabcdefg");
    let service = origin();
    let site = scripted().cluster("service", &[service.address], json!({})).start_before(origin());
    let mut asked = 0;
    for (script, request, answer, said) in [
        (
            "qe events 1; event1 body 1; event1 length 1; event1 resume q",
            "abcdefg",
            "abcdefg",
            "body:abcdefg length:7 resume",
        ),
        (
            "qe events 1; event1 drain 1 2; event1 append 1 hi; event1 body 1; event1 resume q",
            "cdefghi",
            "abcdefg",
            "body:cdefghi",
        ),
        (
            "qe call service /x ~ 5000; call body 1; call body 0; call resume q",
            "abcdefg",
            "abcdefg",
            "body:abcdefg body/none",
        ),
        (
            "ae call service /x ~ 5000; call body 3; call drain 3 2; call append 3 hi; call resume a",
            "abcdefg",
            "cdefghi",
            "call:0",
        ),
    ] {
        let held =
            if script.starts_with('q') { "qb answer 1; qe answer 1" } else { "ah answer 1; ab answer 1; ae answer 1" };
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\nx-do: {held}; {script}\r\ncontent-length: 7\r\n\r\n");
        let got = site.proxy.exchange(head + "abcdefg");
        asked += 1;
        assert_eq!((got.status, got.text()), (200, answer), "{script}");
        let arrived = site.origin.requests().last().unwrap().body.clone();
        assert_eq!(String::from_utf8_lossy(&arrived), request, "{script}");
        let logged = site.logged(asked);
        assert!(logged.contains(said), "{script}: {logged}");
    }
}

/// Trailers both ways, whose hook answers what is no status.
#[test]
fn a_message_whose_trailers_hook_answers_an_unknown_status_goes_on() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-end: 1\r\n\r\n");
    let trailers = json!({"http_protocol_options": {"enable_trailers": true}});
    let options = json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
    }}});
    let site = scripted().manager(trailers).upstream(options).start_before(origin);
    for what in ["qt answer 2", "at answer 2", "qt answer 9", "at answer 9"] {
        let mut client = RawClient::connect(site.proxy.address("http"));
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\nx-do: {what}\r\ntransfer-encoding: chunked\r\n");
        let answer = client.exchange(format!("{head}\r\n2\r\nhi\r\n0\r\nx-behind: 1\r\n\r\n").as_bytes());
        assert_eq!((answer.status, answer.text()), (200, "ok"), "{what}");
    }
}

#[test]
fn an_answer_in_pieces_ends_over_http2_with_all_that_belongs_to_it() {
    let site = scripted().start();
    let mut client = H2Client::connect(site.proxy.address("http"));
    let mut ask = |what: &str| client.exchange(request("GET", "/").header("x-do", what).body(()).unwrap(), b"");
    let answer = ask("qh head 0 :status=202; qh data 0 one; qh trailers x-t=1; qh answer 3");
    assert_eq!((answer.status, answer.text()), (202, "one"));
    assert_eq!(answer.trailers.get("x-t").unwrap(), "1");
    let answer = ask("qh head 0 :status=202; qh data 0 one; qh data 1 two; qh answer 3");
    assert_eq!((answer.status, answer.text(), answer.trailers.len()), (202, "onetwo", 0));
    let answer = ask("qh head 0 :status=202; qh trailers x-t=1; qh answer 3");
    assert_eq!((answer.status, answer.text()), (202, ""));
    assert_eq!(answer.trailers.get("x-t").unwrap(), "1");
}

#[test]
fn a_module_is_told_of_its_own_answers() {
    let line =
        "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(module:status)% %DYNAMIC_METADATA(module:local)%";
    let site = scripted().log(line).start();
    let mut asked = 0;
    for (script, logged) in [
        ("qh respond 418 teapot body; qh answer 1", "418 teapot 418 teapot"),
        ("qh respond 418 short+and++stout body; qh answer 1", "418 short_and__stout 418 short and  stout"),
        ("qh respond 418 ~ body; qh answer 1", "418 dynamic_module 418 dynamic_module"),
        ("ah respond 502 late body; ah answer 1", "502 late 502 late"),
    ] {
        site.get("/", &format!("x-do: {script}\r\n"));
        asked += 1;
        assert_eq!(site.logged(asked), logged);
    }
}

#[test]
fn a_module_answers_grpc_with_status_0() {
    let site = scripted().start();
    let mut client = H2Client::connect(site.proxy.address("http"));
    let head = request("POST", "/p.S/M").header("content-type", "application/grpc");
    let head = head.header("x-do", "qh respond 403 no body; qh answer 1").body(()).unwrap();
    let answer = client.exchange(head, b"");
    let status = answer.trailers.get("grpc-status").or(answer.headers.get("grpc-status")).unwrap();
    assert_eq!((answer.status, status.to_str().unwrap()), (200, "0"));
}

#[test]
fn a_field_that_is_set_to_nothing_is_gone() {
    let site = scripted().start();
    site.get(
        "/",
        "x-a: 1\r\nx-b: 1\r\nx-do: qh set 0 x-a ~; qh set 0 x-new ~; qh add 0 x-b ~; qh get 0 x-a; qh get 0 x-b\r\n",
    );
    let logged = site.logged(1);
    assert!(logged.contains("set:1 set:1 add:0 get/none:0 get:1:1 ah"), "{logged}");
    assert!(site.origin.requests()[0].headers.value("x-a").is_none());
    assert_eq!(seen(&site, "x-b"), "1");
}

#[test]
fn a_call_that_fails_finds_what_a_client_would() {
    // It takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = silent.local_addr().unwrap();
    let gone = net::refusing_address();
    let site = scripted()
        .cluster("slow", &[slow], json!({}))
        .cluster("gone", &[gone], json!({}))
        .cluster("empty", &[], json!({}))
        .start();
    for (line, (call, said)) in [
        ("slow /x ~ 100", "call:0 answer call(0,1) answered504:upstream request timeout resume"),
        (
            "gone /x ~ 5000",
            "call:0 answer call(0,1) answered503:upstream connect error or disconnect/reset before headers",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let script = format!("qh call {call}; qh answer 3; call resume q");
        assert_eq!(site.get("/", &format!("x-do: {script}\r\n")).status, 200);
        let logged = site.logged(line + 1);
        assert!(logged.contains(said), "{logged}");
    }
    site.get("/", "x-do: qh call empty /x ~ 5000\r\n");
    assert!(site.logged(3).contains("call:4"), "{}", site.logged(3));
}

#[test]
fn a_message_that_is_let_go_on_before_its_hook_stops_it_does_not_wait() {
    let site = scripted().start();
    for answer in [1, 3] {
        assert_eq!(site.get("/", &format!("x-do: qh resume q; qh answer {answer}\r\n")).status, 200, "{answer}");
    }
    // In Envoy nothing ends the wait of what comes behind heads, and it ends itself when the rest of a body is there at once.
    if !postrider_only() {
        return;
    }
    for stops in ["qh resume q; qh answer 1", "qh resume q; qh answer 3", "qb answer 1; qe resume q; qe answer 1"] {
        let mut client = site.proxy.client();
        let script = format!("POST / HTTP/1.1\r\nhost: test\r\nx-do: {stops}\r\ntransfer-encoding: chunked\r\n\r\n");
        client.send(script + "3\r\none\r\n");
        site.proxy.wait_stat("http.ingress_http.downstream_rq_active", 1);
        client.send("3\r\ntwo\r\n0\r\n\r\n");
        assert_eq!(client.response("POST").unwrap().status, 200, "{stops}");
        assert_eq!(site.origin.requests().pop().unwrap().body, b"onetwo", "{stops}");
    }
    for stops in ["ah resume a; ah answer 1", "ah resume a; ah answer 3", "ah answer 1; ab resume a; ab answer 1"] {
        assert_eq!(site.get("/", &format!("x-do: {stops}\r\n")).status, 200, "{stops}");
    }
}

#[test]
fn an_answer_has_the_status_that_it_is_given_and_not_that_of_its_fields() {
    let site = scripted().start();
    let answer = site.get("/", "x-do: qh respond 403 no body :status=402 x-a=1; qh answer 1\r\n");
    assert_eq!((answer.status, answer.text(), answer.header("x-a")), (403, "body", "1"));
}

#[test]
fn the_cluster_is_known_with_the_route() {
    let site = scripted().start();
    site.get("/", "x-do: qh text 57; qh text 61; qh text 63; ah text 57\r\n");
    let logged = site.logged(1);
    assert!(logged.contains("text:origin text: text:all ah") && logged.contains("text:origin ab"), "{logged}");
}

/// A module of a few lines: the body of its hook for request headers, and what stands in front of it.
fn small(folder: &TempDir, before: &str, body: &str) -> std::path::PathBuf {
    let source = format!(
        r#"
        #include <stdbool.h>
        #include <stddef.h>
        #include <stdint.h>
        typedef struct {{ const char *start; size_t length; }} bytes;
        {before}
        const char *envoy_dynamic_module_on_program_init(void) {{ return "v0.1.0"; }}
        const void *envoy_dynamic_module_on_http_filter_config_new(void *config, bytes name, bytes text) {{
            (void)config; (void)name; (void)text;
            return "config";
        }}
        void envoy_dynamic_module_on_http_filter_config_destroy(const void *config) {{ (void)config; }}
        const void *envoy_dynamic_module_on_http_filter_new(const void *config, void *filter) {{
            (void)config; (void)filter;
            return "filter";
        }}
        void envoy_dynamic_module_on_http_filter_destroy(const void *filter) {{ (void)filter; }}
        int envoy_dynamic_module_on_http_filter_request_headers(void *stream, const void *filter, bool end) {{
            (void)stream; (void)filter; (void)end;
            {body}
            return 0;
        }}
        "#
    );
    let (source, object) = (folder.write("small.c", source), folder.path().join("libsmall.so"));
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-Wno-implicit-function-declaration", "-o"])
        .args([&object, &source])
        .status();
    assert!(built.unwrap().success());
    object
}

fn of(object: &std::path::Path) -> Value {
    let module = json!({"module": {"local": {"filename": object}}});
    extension(NAME, TYPE, json!({"dynamic_module_config": module, "filter_name": "small"}))
}

#[test]
fn functions_that_a_module_wants_and_nobody_has_are_named() {
    if !postrider_only() {
        return;
    }
    let folder = TempDir::new();
    // All of them at once, and not what the module does without.
    let names: Vec<String> = (0..12).map(|at| format!("envoy_dynamic_module_callback_summon_{at}")).collect();
    let declared = |of: &str| names.iter().map(|name| format!("{of}{name}(void);\n")).collect::<String>();
    let calls = names.iter().map(|name| format!("{name}();\n")).collect::<String>();
    let weak = "__attribute__((weak)) void envoy_dynamic_module_callback_perhaps(void);";
    let before = format!("{}{weak}", declared("void "));
    let body = format!("if (envoy_dynamic_module_callback_perhaps) envoy_dynamic_module_callback_perhaps();\n{calls}");
    let mut site = with("passthrough", "").start();
    let refused =
        site.proxy.reload(config(&[of(&small(&folder, &before, &body))], everything(), &site.origin).to_yaml());
    let text = refused.to_string();
    assert!(text.contains("needs functions that this proxy does not have"), "{text}");
    for name in &names {
        assert!(text.contains(name.as_str()), "{name}: {text}");
    }
    assert!(!text.contains("_perhaps"), "{text}");
    assert_eq!(site.get("/", "").status, 200);
}

#[test]
fn a_function_of_other_extensions_does_nothing_and_is_named_in_the_log() {
    if !postrider_only() {
        return;
    }
    let folder = TempDir::new();
    let before = "
        bytes envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_size(void *filter);
        bool envoy_dynamic_module_callback_udp_listener_filter_send_datagram(void *filter);";
    let body = "
        bytes none = envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_size(stream);
        if (none.start || none.length || envoy_dynamic_module_callback_udp_listener_filter_send_datagram(stream)) return 1;";
    let site = site::with([of(&small(&folder, before, body))]).start();
    for _ in 0..3 {
        assert_eq!(site.get("/", "").status, 200);
    }
    let said = site.proxy.stderr();
    let line = "a module called envoy_dynamic_module_callback_udp_listener_filter_send_datagram, which does nothing";
    assert_eq!(said.matches(line).count(), 1, "{said}");
}
