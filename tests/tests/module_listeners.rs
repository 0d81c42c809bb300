//! Native modules as filters of listeners, as Envoy has them: the same shared object in both.

use postrider_tests::get;
use postrider_tests::kit::config::{extension, file_access_log, overlay, router};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::modules::{asks, in_rust, listeners, script};
use postrider_tests::tls::tls_inspector;
use postrider_tests::{postrider_only, refusal};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const TYPE: &str = "filters.listener.dynamic_modules.v3.DynamicModuleListenerFilter";

/// A filter of that module's.
fn of(module: &Path, name: &str, config: &str) -> Value {
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": module}}}, "filter_name": name,
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": config},
    });
    extension("envoy.filters.listener.dynamic_modules", TYPE, fields)
}

fn module(name: &str, config: &str) -> Value {
    of(listeners(), name, config)
}

fn http_inspector() -> Value {
    extension("envoy.filters.listener.http_inspector", "filters.listener.http_inspector.v3.HttpInspector", json!({}))
}

/// A listener with these filters in front of chains that answer with their names.
struct Line {
    proxy: Proxy,
    log: PathBuf,
    _folder: TempDir,
    _there: Origin,
}

const LOG: &str = "%DYNAMIC_METADATA(module:told)%|%FILTER_CHAIN_NAME%|%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%|\
                   %DOWNSTREAM_LOCAL_ADDRESS%|%CONNECTION_TERMINATION_DETAILS%|%DOWNSTREAM_TRANSPORT_FAILURE_REASON%|\
                   %FILTER_STATE(module.state:PLAIN)%|%DYNAMIC_METADATA(module:number)%|%DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT%|\
                   %FILTER_STATE(envoy.string:PLAIN)%";

/// A chain that takes what `matches` says.
fn chain(name: &str, matches: Value) -> Value {
    let said = extension(
        "envoy.filters.network.direct_response",
        "filters.network.direct_response.v3.Config",
        json!({"response": {"inline_string": name}}),
    );
    json!({"name": name, "filter_chain_match": matches, "filters": [said]})
}

impl Line {
    fn with(filters: &[Value], more: Value) -> Line {
        let (folder, there) = (TempDir::new(), Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfact"));
        let log = folder.path().join("access.log");
        let format = json!({"log_format": {"text_format_source": {"inline_string": format!("{LOG}\n")}}});
        let mut fields = json!({
            "listener_filters": filters,
            "access_log": [file_access_log(&log, format)],
            "filter_chains": [
                chain("named", json!({"server_names": ["one.test"]})),
                chain("spoken", json!({"application_protocols": ["mine"]})),
                chain("far", json!({"source_prefix_ranges": [{"address_prefix": "192.0.2.0", "prefix_len": 24}]})),
                chain("there", json!({"prefix_ranges": [{"address_prefix": "198.51.100.7", "prefix_len": 32}]})),
            ],
            "default_filter_chain": chain("other", json!({})),
        });
        fields["default_filter_chain"].as_object_mut().unwrap().remove("filter_chain_match");
        overlay(&mut fields, more);
        let config = Config::new().listener("tcp", fields).cluster("there", &[there.address]);
        Line { proxy: Proxy::start(&config), log, _folder: folder, _there: there }
    }

    fn scripted() -> Line {
        Line::with(&[module("script", "")], json!({}))
    }

    fn client(&self) -> RawClient {
        RawClient::connect(self.proxy.address("tcp"))
    }

    /// What a client hears that says this.
    fn heard(&self, said: &str) -> String {
        let mut client = self.client();
        client.send(said);
        String::from_utf8_lossy(&client.read_to_end().unwrap_or_default()).into_owned()
    }

    /// The parts of the log's line with that number, from 1.
    fn logged(&self, line: usize) -> Vec<String> {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= line);
        read().lines().nth(line - 1).unwrap_or_default().split('|').map(str::to_owned).collect()
    }

    /// What the module told of the only connection.
    fn told(&self, commands: &str) -> String {
        assert_eq!(self.heard(&format!("!{commands}\n")), "other");
        self.logged(1).remove(0)
    }

    fn counted(&self, name: &str) -> u64 {
        self.proxy.stats().sum("listener.", &format!(".dynamicmodulescustom.{name}"))
    }
}

#[test]
fn a_filter_chain_is_chosen_by_what_a_module_says() {
    let line = Line::scripted();
    assert_eq!(line.heard("!server one.test\n"), "named");
    assert_eq!(line.heard("!server ONE.test\n"), "named");
    assert_eq!(line.heard("!protocols other mine\n"), "spoken");
    assert_eq!(line.heard("!from 192.0.2.9 77\n"), "far");
    assert_eq!(line.heard("!for 198.51.100.7 80\n"), "there");
    assert_eq!(line.heard("!server none.test\n"), "other");
    assert_eq!(line.heard("hello\n"), "other");
    // Several workers serve the connections, so their lines come in any order.
    let lines: Vec<Vec<String>> = (1..=7).map(|number| line.logged(number)).collect();
    let of_chain = |name: &str| lines.iter().find(|line| line[1] == name).unwrap();
    assert_eq!((of_chain("far")[0].as_str(), of_chain("far")[2].as_str()), ("1", "192.0.2.9"));
    assert_eq!((of_chain("there")[3].as_str(), of_chain("there")[8].as_str()), ("198.51.100.7:80", "127.0.0.1"));
}

#[test]
fn a_greeting_is_taken_wherever_it_is_cut() {
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
        .overlay_listener("http", json!({"listener_filters": [module("script", "")]}));
    let proxy = Proxy::start(&config);
    for cut in [0, 1, 5, 20] {
        let all = format!("!server one.test\n{}", get("/"));
        let mut client = proxy.client();
        client.send(&all[..cut]);
        client.send(&all[cut..]);
        assert_eq!(client.response("GET").unwrap().status, 200, "cut at {cut}");
    }
    assert_eq!(proxy.get("/").status, 200, "it begins otherwise");
}

#[test]
fn what_a_module_notes_reaches_logs_and_requests() {
    let line = Line::scripted();
    assert_eq!(line.told("notes"), "1,2,-,1,kept,-,1,typed,1,true,0,1");
    let logged = line.logged(1);
    assert_eq!((logged[6].as_str(), logged[7].as_str(), logged[9].as_str()), ("kept", "2.5", "typed"));
    let fields = json!({"listener_filters": [module("script", "")]});
    let add = json!([{"header": {"key": "x-state", "value": "%FILTER_STATE(module.state:PLAIN)%"}}]);
    let config = Config::routes(json!([{
        "match": {"prefix": "/"}, "direct_response": {"status": 200}, "response_headers_to_add": add,
    }]))
    .overlay_listener("http", fields);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    assert_eq!(client.exchange(format!("!notes\n{}", get("/"))).header("x-state"), "kept");
}

#[test]
fn requests_find_the_bytes_that_their_connection_noted() {
    let origin = Origin::echo("a");
    let asks = json!({"dynamic_module_config": {"module": {"local": {"filename": asks()}}}, "filter_name": "asks"});
    let asks =
        extension("envoy.filters.http.dynamic_modules", "filters.http.dynamic_modules.v3.DynamicModuleFilter", asks);
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", json!({"http_filters": [asks, router()]}))
        .overlay_listener("http", json!({"listener_filters": [module("script", "")]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    for _ in 0..2 {
        let before = if origin.requests().is_empty() { "!notes\n" } else { "" };
        assert_eq!(client.exchange(format!("{before}{}", get("/"))).status, 200);
        // Set, found, and found of the connection.
        let state = origin.requests().last().unwrap().header("x-state").to_owned();
        assert!(state.ends_with(" 111"), "{state}");
    }
}

#[test]
fn a_module_knows_the_connection() {
    let told = Line::scripted().told("addresses");
    assert_eq!(told, "127.0.0.1,127.0.0.1,127.0.0.1,127.0.0.1,1,0");
    let told = Line::scripted().told("from 2001:db8::1 7;for 203.0.113.1 8;from 1.2.3 4;addresses");
    assert_eq!(told, "1,1,0,2001:db8::1,127.0.0.1,203.0.113.1,127.0.0.1,1,1");
    assert_eq!(Line::scripted().told("sockets"), "1,1,1,77,1,1,4,0");
    let told = Line::scripted().told("server none.test;protocols a b;ja3 three;ja4 four;known");
    assert_eq!(told, "none.test,-,a,b,three,four,0,0");
    assert_eq!(Line::scripted().told("facts"), "1,0,1,1024,1,1");
}

#[test]
fn a_module_ends_connections() {
    let line = Line::scripted();
    assert_eq!(line.heard("!say bye;fail because;close enough\n"), "bye");
    let logged = line.logged(1);
    assert_eq!(logged[1..6], ["-", "127.0.0.1", &logged[3], "enough", "because"].map(str::to_owned));
    let line = Line::with(&[module("wait", "none")], json!({}));
    assert_eq!(line.heard("hello\n"), "");
    let line = Line::with(&[module("wait", "end")], json!({}));
    assert_eq!(line.heard("hello\n"), "");
}

#[test]
fn threads_and_calls_let_connections_go_on() {
    let line = Line::with(&[module("wait", "go")], json!({}));
    for _ in 0..20 {
        assert_eq!(line.heard("hello\n"), "other");
    }
    assert_eq!(Line::scripted().told("thread"), "scheduled");
    assert_eq!(Line::scripted().told("call there"), "answered,fact");
    assert_eq!(Line::scripted().told("call absent"), "2");
}

#[test]
fn several_filters_have_their_turns() {
    let line = Line::with(&[module("wait", "go"), module("script", ""), module("tells", "")], json!({}));
    assert_eq!(line.heard("!server one.test;protocols x\n"), "named");
    assert_eq!(line.logged(1)[0], "one.test,-,x,-,-,0,0");
    // One before the inspector knows nothing, and one behind it what that found.
    let line = Line::with(&[tls_inspector(), module("tells", "")], json!({}));
    assert_eq!(line.heard("hello\n"), "other");
    assert_eq!(line.logged(1)[0], "-,-,-,-,0,0");
    let line = Line::with(&[module("script", ""), tls_inspector()], json!({}));
    assert_eq!(line.heard("!server one.test\nhello\n"), "named");
}

#[test]
fn who_says_nothing_is_waited_for_as_long_as_may_be() {
    let more = json!({"listener_filters_timeout": "0.2s"});
    let line = Line::with(&[module("wait", "never")], more.clone());
    assert!(line.client().closed());
    assert_eq!(line.proxy.stats().sum("listener.", "downstream_pre_cx_timeout"), 1);
    let mut more = more;
    more["continue_on_listener_filters_timeout"] = json!(true);
    assert_eq!(Line::with(&[module("wait", "never")], more).heard("hello\n"), "other");
}

#[test]
fn a_client_that_leaves_is_told() {
    let line = Line::scripted();
    let mut client = line.client();
    client.send("!half a line");
    drop(client);
    wait_until("the module heard of it", || line.counted("left") == 1);
}

#[test]
fn a_module_counts() {
    let line = Line::scripted();
    assert_eq!(line.told("stats"), "1");
    assert_eq!((line.counted("lines"), line.counted("level")), (3, 3));
    wait_until("the configuration's event", || line.counted("scheduled") == 7);
}

#[test]
fn what_makes_no_sense_is_refused() {
    if !postrider_only() {
        return;
    }
    let refused = |filters: Value| {
        let fields = json!({"listener_filters": filters, "filter_chains": [chain("only", json!({}))]});
        refusal(&Config::new().listener("tcp", fields))
    };
    let text = refused(json!([of(script(), "script", "")]));
    assert!(
        text.contains("has no listener filters: it lacks envoy_dynamic_module_on_listener_filter_config_new"),
        "{text}"
    );
    let text = refused(json!([tls_inspector(), module("tells", ""), http_inspector()]));
    assert!(text.contains("a native module stands between two inspectors"), "{text}");
    let text = refused(json!([module("script", "refused")]));
    assert!(text.contains("refuses the configuration of its filter `script`"), "{text}");
}

#[test]
fn a_filter_in_rust_has_no_unsafe_code() {
    let example = in_rust("greeting");
    let line = Line::with(&[of(&example, "greeting", "")], json!({}));
    assert_eq!(line.heard("for one.test\n"), "named");
    assert_eq!(line.heard("else\n"), "other");
    assert_eq!(line.logged(1)[0], "one.test");
    assert_eq!(line.counted("named"), 1);
    // A panic ends its connection and nothing else.
    assert_eq!(line.heard("for panic\n"), "");
    assert_eq!(line.heard("for none.test\n"), "other");
    let mut client = line.client();
    client.send("for half");
    drop(client);
    wait_until("the module heard of it", || line.counted("left") == 1);
    let line = Line::with(&[of(&example, "greeting", "there")], json!({}));
    assert_eq!(line.heard("for one.test\n"), "named");
}
