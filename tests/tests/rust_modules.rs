//! Native modules in Rust, by the crate `postrider-module`: its examples, in Postrider and in Envoy.

use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, tcp_filter};
use postrider_tests::kit::proxy::{Launch, run};
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, RawClient, Response, TempDir, wait_until};
use postrider_tests::modules::{cargo, in_rust};
use postrider_tests::site::{self, Plan, Site};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.dynamic_modules";
const TYPE: &str = "filters.http.dynamic_modules.v3.DynamicModuleFilter";

fn fields(module: &str, name: &str, config: &str) -> Value {
    json!({
        "dynamic_module_config": {"module": {"local": {"filename": in_rust(module)}}}, "filter_name": name,
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": config},
    })
}

fn with(module: &str, name: &str, config: &str) -> Plan {
    site::with([extension(NAME, TYPE, fields(module, name, config))])
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

/// An origin that answers with what it got.
fn mirror() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", request.body.len());
            connection.write(&[head.as_bytes(), &request.body].concat());
        }
    })
}

#[test]
fn a_filter_that_wants_no_bodies_leaves_them_alone() {
    let site = with("passthrough", "", "").start_before(mirror());
    let answer = post(&site, "/p?q", "hello");
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!(answer.header("content-length"), "5");
    assert_eq!(seen(&site, "content-length"), "5");
    assert_eq!(site.logged(1), "200 - via_upstream");
}

#[test]
fn basic_authentication() {
    let site = with("basic_auth", "", "dXNlcjpwYXNz").start();
    let refused = site.get("/", "");
    assert_eq!((refused.status, refused.text()), (401, "who are you?"));
    assert_eq!(refused.header("www-authenticate"), "Basic realm=\"module\"");
    assert_eq!(site.logged(1), "401 - no_credentials");
    assert_eq!(site.get("/", "authorization: Basic dXNlcjpwYXNy\r\n").status, 401);
    assert_eq!(site.origin.requests().len(), 0);
    assert_eq!(site.get("/", "authorization: Basic dXNlcjpwYXNz\r\n").status, 200);
    assert_eq!(seen(&site, "x-user"), "known");
}

#[test]
fn heads_and_bodies_are_rewritten() {
    let site = with("rewrite", "", "").start_before(mirror());
    let answer = post(&site, "/", "hello");
    assert_eq!((answer.status, answer.text()), (200, "HELLO"));
    assert_eq!(answer.header("x-rewritten"), "response");
    assert_eq!(site.origin.requests()[0].body, b"HELLO");
    assert_eq!(seen(&site, "x-rewritten"), "request");
    let mut client = site.proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\nx-secret: 1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    client.send("6\r\n world\r\n0\r\n\r\n");
    assert_eq!(client.response("POST").unwrap().text(), "HELLO WORLD");
    assert_eq!(site.origin.requests()[1].body, b"HELLO WORLD");
    assert_eq!(seen(&site, "x-secret"), "");
    assert_eq!(site.get("/", "").status, 200);
}

#[test]
fn a_call_decides_about_the_request() {
    let check = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = if request.target == "/yes" { "200 OK" } else { "401 No" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nby").as_bytes());
        }
    });
    let site = with("callout", "", "check").cluster("check", &[check.address], json!({})).start();
    assert_eq!(post(&site, "/yes", "body").status, 200);
    assert_eq!(seen(&site, "x-checked"), "by");
    assert_eq!(site.origin.requests()[0].body, b"body");
    let refused = site.get("/no", "");
    assert_eq!((refused.status, refused.text()), (403, "no"));
    assert_eq!(site.logged(2), "403 - not_allowed");
    drop(site);
    let nowhere = with("callout", "", "nowhere").start();
    let answer = nowhere.get("/", "");
    assert_eq!((answer.status, answer.text()), (500, "there is no such cluster"));
}

#[test]
fn facts_notes_statistics_and_routes() {
    let metadata = json!({"filter_metadata": {"module": {"of": "the route"}}});
    let mut of_route = fields("everything", "notes", "for this route");
    of_route["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}PerRoute"));
    let routes = json!([
        {
            "match": {"prefix": "/own"}, "route": {"cluster": "origin"}, "metadata": metadata,
            "typed_per_filter_config": {NAME: of_route},
        },
        site::rest(),
    ]);
    let line = "%DYNAMIC_METADATA(module:text)% %FILTER_STATE(module.state:PLAIN)% %CUSTOM_FLAGS%";
    let given = json!({
        "static_resources": {"secrets": [{"name": "token", "generic_secret": {"secret": {"inline_string": "hush"}}}]},
        "layered_runtime": {"layers": [{"name": "s", "static_layer": {"module": {"on": true, "count": 3}}}]},
    });
    let site = with("everything", "notes", "").routes(routes).log(line).whole(given).start();
    let answer = site.get("/own?a", "x-many: 1\r\nx-many: 2\r\n");
    assert_eq!((answer.status, answer.header("x-code")), (200, "200"));
    assert_eq!(answer.header("x-in-order"), "true");
    for (name, value) in [
        ("x-metadata", "Some(2.5) Some(true) None"),
        ("x-text", "noted"),
        ("x-struct", "Some(1.5)"),
        ("x-message", "some.Any xyz"),
        ("x-made", "[true, false] true"),
        ("x-moments", "true None"),
        ("x-secret", "hush"),
        ("x-runtime", "true 3 7.5 true"),
        ("x-of-route", "the route"),
        ("x-state", "kept"),
        ("x-route-config", "for this route"),
        ("x-path", "/own"),
        ("x-values", "2"),
        ("x-refused", "Err(Unknown)"),
    ] {
        assert_eq!(seen(&site, name), value, "{name}");
    }
    assert_eq!(site.logged(1), "noted kept NOTED");
    assert_eq!(site.get("/other", "").status, 200);
    assert_eq!(seen(&site, "x-route-config"), "none");
    let stats = site.proxy.stats();
    assert_eq!(stats.value("dynamicmodulescustom.seen.kind.request"), 6);
    assert_eq!(stats.value("dynamicmodulescustom.level"), 6);
}

#[test]
fn a_request_begins_anew_until_it_was_everywhere() {
    let site = with("everything", "anew", "").log("%REQ(:path)% %RESPONSE_CODE_DETAILS%").start();
    assert_eq!(site.get("/first", "x-way: /second /third end\r\n").status, 200);
    assert_eq!(site.origin.requests().iter().map(|request| request.target.clone()).collect::<Vec<_>>(), ["/third"]);
    let lines = [1, 2, 3].map(|number| site.logged(number));
    assert_eq!(lines, ["/second internal_redirect", "/third internal_redirect", "/third via_upstream"]);
}

#[test]
fn spans_are_there_where_somebody_is_told() {
    let site = with("everything", "spans", "").start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(site.origin.requests()[0].header("x-span"), "none");
    let collector = GrpcOrigin::fixed(Vec::new());
    let tracer = json!({
        "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
        "grpc_service": {"envoy_grpc": {"cluster_name": "collector"}},
    });
    let provider = json!({"name": "envoy.tracers.opentelemetry", "typed_config": tracer});
    let site = with("everything", "spans", "")
        .manager(json!({"tracing": {"provider": provider}, "generate_request_id": true}))
        .cluster("collector", &[collector.address], http2())
        .start();
    assert_eq!(site.get("/", "").status, 200);
    let request = &site.origin.requests()[0];
    let known: Vec<&str> = request.header("traceparent").split('-').skip(1).take(2).collect();
    assert_eq!(request.header("x-span"), known.join(" "));
}

#[test]
fn another_thread_lets_a_request_go_on() {
    let site = with("everything", "thread", "").start();
    for _ in 0..20 {
        assert_eq!(post(&site, "/", "body").status, 200);
        assert_eq!(seen(&site, "x-scheduled"), "yes");
    }
    assert_eq!(site.origin.requests()[19].body, b"body");
}

#[test]
fn another_thread_is_waited_for_without_a_proxy() {
    if !postrider_only() {
        return;
    }
    let module = in_rust("everything");
    let tried = run(&["plugin", "run", module.to_str().unwrap(), "--rules", r#"{"filter_name": "thread"}"#]);
    assert_eq!(tried.code, Some(0), "{}{}", tried.stdout, tried.stderr);
    assert!(tried.stdout.contains("  + x-scheduled: yes\n"), "{}", tried.stdout);
}

#[test]
fn an_answer_comes_in_pieces_from_another_thread() {
    let site = with("everything", "pieces", "").start();
    let answer = site.get("/", "");
    assert_eq!((answer.status, answer.text(), answer.header("x-from")), (202, "one two three", "pieces"));
    assert_eq!(site.origin.requests().len(), 0);
}

#[test]
fn the_answer_of_a_call_is_handed_on_in_pieces() {
    let there = mirror();
    let site = with("everything", "fetch", "there").cluster("there", &[there.address], json!({})).start();
    let answer = post(&site, "/", "hello");
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!(site.get("/", "").text(), "");
    assert_eq!(there.requests()[0].body, b"hello");
    assert_eq!(site.origin.requests().len(), 0);
}

#[test]
fn the_trailers_of_a_call_s_answer_come_behind_its_body() {
    let there =
        Origin::fixed("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-after: that\r\n\r\n");
    let kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let options = json!({
        "@type": format!("type.googleapis.com/{kind}"),
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
    });
    let cluster = json!({"typed_extension_protocol_options": {kind: options}});
    let site = with("everything", "fetch", "there").cluster("there", &[there.address], cluster).start();
    assert_eq!(site.get("/", "").text(), "hello and that");
}

#[test]
fn a_configuration_makes_a_call_of_its_own() {
    let there = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfact");
    let site = with("everything", "background", "there").cluster("there", &[there.address], json!({})).start();
    wait_until("the configuration learned it", || {
        site.get("/", "");
        seen(&site, "x-learned") == "fact"
    });
    assert_eq!(there.requests()[0].target, "/fact");
}

#[test]
fn a_configuration_makes_a_call_in_pieces() {
    let there = Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-after: that\r\n\r\n",
            );
        }
    });
    let site = with("everything", "stream", "there").cluster("there", &[there.address], json!({})).start();
    wait_until("the configuration learned it", || {
        site.get("/", "");
        // Two requests, in the order in which they end.
        let (one, other) = ("200 hello", "Err(Reset)");
        let learned = seen(&site, "x-learned");
        learned.contains(one) && learned.contains(other) && learned.contains("Ok(())")
    });
    let whole: Vec<_> = there.requests().into_iter().filter(|request| !request.body.is_empty()).collect();
    assert_eq!((whole.len(), whole[0].body.as_slice()), (1, &b"one two"[..]));
}

#[test]
fn a_panic_ends_its_stream_and_nothing_else() {
    for hook in ["request_headers", "response_headers"] {
        let site = with("everything", "panic", hook).start();
        for _ in 0..2 {
            assert_eq!(site.get("/", "").status, 500, "{hook}");
        }
        assert_eq!(site.logged(2), "500 - module_panicked", "{hook}");
    }
    let site = with("everything", "panic", "request_body").start();
    assert_eq!(post(&site, "/", "hello").status, 500);
    assert_eq!(site.get("/", "").status, 200);
    let site = with("everything", "panic", "begin").start();
    assert_eq!(site.get("/", "").status, 500);
    assert_eq!(site.logged(1), "500 - dynamic_module_filter_init_failed");
    let site = with("everything", "panic", "complete").start();
    assert_eq!((site.get("/", "").status, site.get("/", "").status), (200, 200));
}

#[test]
fn a_panic_behind_the_answer_s_head_cuts_it_off() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let site = with("everything", "panic", "response_body").start_before(Origin::fixed(answer));
    let mut client = site.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let read = client.read_to_end().unwrap_or_default();
    assert!(!String::from_utf8_lossy(&read).contains("hello"), "{read:?}");
}

#[test]
fn a_plugin_from_nothing_is_built_tested_and_served() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let folder = directory.path().join("greeter");
    // The crate of this tree in the place of the one that was published.
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/module");
    let dir = directory.path().to_str().unwrap();
    let new = ["plugin", "new", "greeter", "--runtime", "native", "--dir", dir, "--sdk", sdk];
    let made = run(&new);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_eq!(run(&new).code, Some(1), "nothing is overwritten");
    let elsewhere = run(&["plugin", "new", "other", "--runtime", "native", "--dir", dir, "--sdk", dir]);
    assert_eq!((elsewhere.code, directory.path().join("other").exists()), (Some(2), false));
    cargo(&folder, &["test"]);
    let object = cargo(&folder, &["build"]).join("debug/libplugin.so");

    let tests = folder.join("plugin_test.lua");
    let text = std::fs::read_to_string(&tests).unwrap();
    std::fs::write(&tests, text.replace("target/release/libplugin.so", object.to_str().unwrap())).unwrap();
    let tested = run(&["plugin", "test", folder.to_str().unwrap()]);
    assert_eq!(tested.code, Some(0), "{}", tested.stdout);
    assert!(tested.stdout.contains("2 passed, 0 failed"), "{}", tested.stdout);

    let origin = Origin::echo("a");
    let text = std::fs::read_to_string(folder.join("proxy.yaml")).unwrap();
    let text = text
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:9901", "127.0.0.1:0")
        .replace("127.0.0.1:9000", &origin.address.to_string())
        .replace("target/release/libplugin.so", object.to_str().unwrap());
    let config = directory.write("served.yaml", text);
    let proxy = Proxy::start_file(directory, config, Launch::default());
    let listeners = proxy.admin_json("/listeners?format=json");
    let name = listeners["listener_statuses"][0]["name"].as_str().unwrap().to_owned();
    let ask = |request: &str| RawClient::connect(proxy.address(&name)).exchange(request);
    let response = ask(&get("/hello"));
    assert_eq!((response.status, response.header("x-plugin")), (200, "greeter"));
    assert_eq!(origin.requests()[0].header("x-greeting"), r#"{"greeting":"hello"}"#);
    let refused = ask("GET / HTTP/1.1\r\nhost: test\r\nx-refuse: 1\r\n\r\n");
    assert_eq!((refused.status, refused.text()), (403, "refused by greeter\n"));
    assert_eq!(ask(&get("/quiet")).header("x-plugin"), "");
}

/// A TCP proxy to an origin that answers with what it got, behind a password, with a log by the module `lines`.
fn behind_a_password(log: &std::path::Path) -> (Proxy, Origin) {
    let text = |text: &str| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": text});
    let of = |name: &str| json!({"module": {"local": {"filename": in_rust(name)}}});
    let knock = extension(
        "envoy.filters.network.dynamic_modules",
        "filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter",
        json!({"dynamic_module_config": of("knock"), "filter_name": "knock", "filter_config": text("open")}),
    );
    let lines = extension(
        "envoy.access_loggers.dynamic_modules",
        "access_loggers.dynamic_modules.v3.DynamicModuleAccessLog",
        json!({"dynamic_module_config": of("lines"), "logger_name": "lines", "logger_config": text(log.to_str().unwrap())}),
    );
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin", "access_log": [lines]}));
    let origin = Origin::tcp_echo("");
    let config = Config::new()
        .listener("tcp", json!({"filter_chains": [{"filters": [knock, tcp]}]}))
        .cluster("origin", &[origin.address]);
    (Proxy::start(&config), origin)
}

fn lines_of(path: &std::path::Path, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until("the module's lines", || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

#[test]
fn a_connection_passes_with_a_password() {
    let folder = TempDir::new();
    let log = folder.path().join("lines");
    let (proxy, origin) = behind_a_password(&log);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("open\nfirst");
    assert_eq!(client.read_exact(13).unwrap(), b"welcome\nfirst");
    client.send("second");
    assert_eq!(client.read_exact(6).unwrap(), b"second");
    assert_eq!(origin.bytes(0), b"firstsecond");
    client.half_close();
    assert!(client.closed());
    assert_eq!(lines_of(&log, 1), ["3 0 - - - origin 16 19 known true"]);
    let stats = proxy.stats();
    let counted = |name: &str| stats.value(&format!("dynamicmodulescustom.{name}"));
    assert_eq!([counted("passed"), counted("refused"), counted("sent"), counted("written")], [1, 0, 19, 1]);
    wait_until("the end", || proxy.stats().value("dynamicmodulescustom.ended") == 1);
}

#[test]
fn a_wrong_password_and_a_panic_end_a_connection() {
    let folder = TempDir::new();
    let (proxy, origin) = behind_a_password(&folder.path().join("lines"));
    for (said, heard) in [("open?\n", &b"no\n"[..]), ("panic\n", b"")] {
        let mut client = RawClient::connect(proxy.address("tcp"));
        client.send(said);
        assert_eq!(client.read_to_end().unwrap(), heard);
    }
    assert!(origin.bytes(0).is_empty());
    let stats = proxy.stats();
    assert_eq!(stats.value("dynamicmodulescustom.refused"), 1);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("open\n");
    assert_eq!(client.read_exact(8).unwrap(), b"welcome\n", "others go on");
}

#[test]
fn a_logger_is_told_of_requests_until_it_panics() {
    let folder = TempDir::new();
    let log = folder.path().join("lines");
    let lines = extension(
        "envoy.access_loggers.dynamic_modules",
        "access_loggers.dynamic_modules.v3.DynamicModuleAccessLog",
        json!({
            "dynamic_module_config": {"module": {"local": {"filename": in_rust("lines")}}}, "logger_name": "lines",
            "logger_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": log.to_str().unwrap()},
        }),
    );
    let site = site::with([]).manager(json!({"access_log": [lines]})).start();
    assert_eq!(site.get("/", "user-agent: tests\r\n").status, 200);
    let line = lines_of(&log, 1).remove(0);
    assert!(line.starts_with("6 200 GET tests via_upstream origin 0 "), "{line}");
    assert!(line.ends_with(" - true"), "{line}");
    assert_eq!(site.get("/", "user-agent: panic\r\n").status, 200);
    assert_eq!(site.get("/", "user-agent: after\r\n").status, 200);
    drop(site);
    assert_eq!(lines_of(&log, 1).len(), 1, "it is not told of anything again");
}
