//! Go plugins in processes of their own: what they do is the same, and what ends them does not end the proxy.

use postrider_tests::golang::{Site, gateway, library, site};
use postrider_tests::kit::message::Request;
use postrider_tests::kit::{Origin, Proxy, RawClient, Response, TempDir, wait_until};
use postrider_tests::plugins::manifest;
use postrider_tests::{ask, echo, envoy, get};
use serde_json::{Value, json};

/// The test's plugin in a process of its own, whose code is built with this SDK.
fn apart(sdk: &str, config: &Value, more: Value) -> Value {
    let mut fields = json!({
        "runtime": "go",
        "code": {"filename": library(sdk)},
        "options": {"plugin_name": "script", "isolation": "process"},
        "on_error": "503",
        "config": config,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    manifest("mine", fields)
}

fn script(config: &Value) -> Site {
    site(&[apart("sdk38", config, json!({}))], echo(), json!({}))
}

/// At once, and on goroutines; with both SDKs.
fn everywhere(config: &Value, check: impl Fn(&str, &Site)) {
    if envoy() {
        return;
    }
    let mut later = config.clone();
    later["async"] =
        json!(["decode_headers", "decode_data", "decode_trailers", "encode_headers", "encode_data", "encode_trailers"]);
    for (which, sdk, config) in
        [("sdk38", "sdk38", config), ("sdk38 later", "sdk38", &later), ("sdk33", "sdk33", config)]
    {
        check(which, &site(&[apart(sdk, config, json!({}))], echo(), json!({})));
    }
}

fn post(site: &Site, body: &[u8]) -> Response {
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len()));
    client.send(body);
    client.response("POST").unwrap()
}

fn post_with_trailer(site: &Site, body: &str) -> Response {
    let chunks = format!("{:x}\r\n{body}\r\n0\r\nx-trailer: t\r\n\r\n", body.len());
    let head = "POST /up HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-trailer\r\n\r\n";
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send(format!("{head}{chunks}"));
    client.response("POST").unwrap()
}

fn arrived(site: &Site) -> Request {
    site.origin.wait_requests(1);
    site.origin.requests().remove(0)
}

#[test]
fn both_messages_are_read_and_changed_from_another_process() {
    let config = json!({
        "decode_headers": [
            {"op": "get", "key": "x-two", "to": "x-got"},
            {"op": "set", "key": "x-up", "value": "1"},
            {"op": "del", "key": "x-gone"},
            {"op": "del", "key": "content-length"},
            {"op": "set", "key": ":path", "value": "/changed"},
        ],
        "decode_data": [{"op": "upper"}, {"op": "append", "value": "!"}],
        "decode_trailers": [{"op": "set", "key": "x-more", "value": "m"}],
        "encode_headers": [{"op": "get", "key": "x-old", "to": "x-seen"}, {"op": "get", "key": ":status", "to": "x-status"}],
        "encode_data": [{"op": "prepend", "value": ">"}],
    });
    everywhere(&config, |which, site| {
        let answer = ask(&site.proxy, "GET", "test", "/", "x-two: a\r\nx-gone: g\r\n");
        assert_eq!(answer.status, 200, "{which}");
        assert_eq!((answer.header("x-seen"), answer.header("x-status")), ("old,true", "200,true"), "{which}");
        let up = arrived(site);
        let value = |name: &str| up.headers.values(name).join("&");
        assert_eq!(
            (value("x-got").as_str(), value("x-up").as_str(), value("x-gone").as_str()),
            ("a,true", "1", ""),
            "{which}"
        );
        assert_eq!(up.target, "/changed", "{which}");
        let answer = post(site, b"hello");
        assert_eq!(answer.text(), ">HELLO!", "{which}");
        let answer = post_with_trailer(site, "hello");
        assert!(answer.text().starts_with(">HELLO!"), "{which}: {}", answer.text());
        assert_eq!(
            (answer.trailers.value("x-trailer"), answer.trailers.value("x-more")),
            (Some("t"), Some("m")),
            "{which}"
        );
    });
}

#[test]
fn large_bodies_pass_through_another_process() {
    let passes = json!({});
    everywhere(&passes, |which, site| {
        let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31) as u8).collect();
        assert!(post(site, &body).body == body, "{which}");
    });
    let gathers = json!({"status": {"decode_headers": "stop_and_buffer", "decode_data": "stop_and_buffer"}, "decode_data": [{"op": "upper"}]});
    everywhere(&gathers, |which, site| {
        assert_eq!(post(site, &[b'x'; 200_000]).text(), "X".repeat(200_000), "{which}");
    });
}

#[test]
fn answers_and_panics_come_from_another_process() {
    for phase in ["decode_headers", "decode_data", "decode_trailers", "encode_headers"] {
        let reply =
            json!({phase: [{"op": "reply", "code": 418, "body": "tea", "key": "x-a", "value": "1", "details": "pot"}]});
        everywhere(&reply, |which, site| {
            let answer = post_with_trailer(site, "hello");
            assert_eq!((answer.status, answer.text()), (418, "tea"), "{which} {phase}");
        });
        everywhere(&json!({phase: [{"op": "panic", "value": "told to"}]}), |which, site| {
            assert_eq!(post_with_trailer(site, "hello").status, 503, "{which} {phase}");
            site.proxy.wait_stat("plugin.mine.all.errors", 1);
            assert!(site.proxy.stderr().contains("told to"), "{which} {phase}");
        });
    }
}

#[test]
fn what_is_known_of_a_stream_is_known_in_another_process() {
    let config = json!({
        "decode_headers": [
            {"op": "metadata_set", "ns": "n", "key": "k", "value": {"a": [1, "b", true]}},
            {"op": "metadata_get", "ns": "n", "key": "k", "to": "x-note"},
            {"op": "metadata_get", "ns": "none", "key": "k", "to": "x-none"},
            {"op": "state_set", "key": "s", "value": "t"},
            {"op": "state_get", "key": "s", "to": "x-state"},
            {"op": "property", "key": "request.headers.x-a", "to": "x-a-again"},
            {"op": "property", "key": "request.nothing", "to": "x-nothing"},
            {"op": "info", "key": "route", "to": "x-route"},
            {"op": "info", "key": "local", "to": "x-local"},
            {"op": "info", "key": "code", "to": "x-code"},
        ],
        "encode_headers": [{"op": "info", "key": "details", "to": "x-details"}],
        "log": [],
        "destroy": true,
    });
    everywhere(&config, |which, site| {
        let answer = ask(&site.proxy, "GET", "test", "/p", "x-a: 1\r\n");
        assert_eq!((answer.status, answer.header("x-details")), (200, "via_upstream,true"), "{which}");
        let up = arrived(site);
        let value = |name: &str| up.headers.values(name).join("&");
        assert_eq!((value("x-note").as_str(), value("x-none").as_str()), ("map[a:[1 b true]]", "<nil>"), "{which}");
        assert_eq!((value("x-state").as_str(), value("x-a-again").as_str()), ("t", "1"), "{which}");
        assert!(value("x-nothing").starts_with("error: value not found"), "{which}: {}", value("x-nothing"));
        assert_eq!((value("x-route").as_str(), value("x-code").as_str()), ("all", "0,false"), "{which}");
        assert_eq!(value("x-local"), site.proxy.address("http").to_string(), "{which}");
        wait_until("the log", || site.proxy.stderr().contains("script: destroyed 0"));
        assert!(site.proxy.stderr().contains("script: log /p 200"), "{which}: {}", site.proxy.stderr());
    });
}

#[test]
fn statistics_of_another_process_are_counted_here() {
    let config = json!({
        "metrics": "of.mine",
        "decode_headers": [{"op": "count", "by": 2}, {"op": "gauge", "by": 7}, {"op": "gauge_add", "by": -3}, {"op": "counted", "to": "x-counted"}],
    });
    everywhere(&config, |which, site| {
        for _ in 0..2 {
            assert_eq!(site.proxy.get("/").status, 200, "{which}");
        }
        site.proxy.wait_stat("of.mine.counter", 4);
        site.proxy.wait_stat("of.mine.gauge", 4);
        let seen: Vec<_> = site.origin.requests().iter().map(|it| it.headers.values("x-counted").join("")).collect();
        assert_eq!(seen, ["2", "4"], "{which}");
    });
}

/// A process that ends by itself: the request that did it is answered by the policy, later ones by a new process.
fn survives(op: &Value, on_error: &str, status: u16) {
    if envoy() {
        return;
    }
    let route = |path: &str, config: Value| json!({"match": {"prefix": path}, "route": {"cluster": "origin"}, "typed_per_filter_config": config});
    let fatal = json!({"mine": {
        "@type": postrider_tests::plugins::MANIFEST_ROUTE,
        "config": {"decode_headers": [op]},
    }});
    let http = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
        route("/fatal", fatal),
        {"name": "plain", "match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]}]}});
    let works = json!({"encode_headers": [{"op": "set", "key": "x-go", "value": "here"}]});
    let site = site(&[apart("sdk38", &works, json!({"on_error": on_error}))], echo(), http);
    assert_eq!(site.proxy.get("/").header("x-go"), "here");
    let before = site.proxy.children();
    assert_eq!(before.len(), 1, "one process");
    for times in 1..=2 {
        assert_eq!(site.proxy.get("/fatal").status, status, "{op}");
        site.proxy.wait_stat("plugin.mine.restarts", times);
        let answer = site.proxy.get("/");
        assert_eq!((answer.status, answer.header("x-go")), (200, "here"), "{op}");
    }
    let after = site.proxy.children();
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    let plugins = site.proxy.admin_get("/plugins").text().to_owned();
    assert!(plugins.contains("its process was started again 2 times"), "{plugins}");
}

#[test]
fn a_fatal_error_of_go_ends_its_process_and_not_the_proxy() {
    survives(&json!({"op": "fatal"}), "503", 503);
    survives(&json!({"op": "fatal"}), "continue", 200);
}

#[test]
fn a_plugin_that_exits_ends_its_process_and_not_the_proxy() {
    survives(&json!({"op": "exit", "code": 7}), "502", 502);
}

#[test]
fn a_process_that_is_stuck_is_ended_and_its_requests_answered_by_the_policy() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    let never = folder.path().join("never");
    let stuck = json!({"decode_headers": [{"op": "hold", "value": never}]});
    let budget = json!({"budget": {"cpu": "1s"}});
    for (on_error, status) in [("503", 503), ("continue", 200)] {
        let mut more = budget.clone();
        more["on_error"] = json!(on_error);
        let site = site(&[apart("sdk38", &stuck, more)], echo(), json!({}));
        let mut clients: Vec<RawClient> = (0..3).map(|_| RawClient::connect(site.proxy.address("http"))).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        }
        for mut client in clients {
            assert_eq!(client.response("GET").unwrap().status, status, "{on_error}");
        }
        site.proxy.wait_stat("plugin.mine.restarts", 1);
        let said = site.proxy.stderr();
        assert!(said.contains("ended: a call into it took longer than 1s"), "{said}");
    }
    // One that the system stopped takes nothing, either.
    let site = site(&[apart("sdk38", &json!({}), budget)], echo(), json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let [process] = site.proxy.children()[..] else { panic!("one process") };
    postrider_tests::kit::process::stop(process);
    assert_eq!(site.proxy.get("/").status, 503);
    wait_until("another process", || site.proxy.get("/").status == 200);
}

#[test]
fn goroutines_may_take_longer_than_a_call_may() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    let gate = folder.path().join("gate");
    let config = json!({"async": ["decode_headers"], "decode_headers": [{"op": "hold", "value": gate}]});
    let site = site(&[apart("sdk38", &config, json!({"budget": {"cpu": "1s"}}))], echo(), json!({}));
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    site.proxy.wait_stat("plugin.mine.all.calls", 1);
    let began = std::time::Instant::now();
    wait_until("more than a call may take", || began.elapsed().as_millis() > 2000);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(client.response("GET").unwrap().status, 200);
    assert_eq!(site.proxy.stats().value("plugin.mine.restarts"), 0);
}

#[test]
fn a_process_that_hoards_memory_is_ended_and_started_again() {
    if envoy() {
        return;
    }
    let route = |path: &str, config: Value| json!({"match": {"prefix": path}, "route": {"cluster": "origin"}, "typed_per_filter_config": config});
    let hoards = json!({"mine": {
        "@type": postrider_tests::plugins::MANIFEST_ROUTE,
        "config": {"decode_headers": [{"op": "hoard", "bytes": 64 << 20}]},
    }});
    let http = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
        route("/hoard", hoards),
        {"name": "plain", "match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]}]}});
    let budget = json!({"budget": {"memory_bytes": 256 << 20}});
    let site = site(&[apart("sdk38", &json!({}), budget)], echo(), http);
    assert_eq!(site.proxy.get("/hoard").status, 200, "some may be had");
    wait_until("its end", || {
        // An answer that has begun when the process ends is broken off.
        let _ = RawClient::once(site.proxy.address("http"), get("/hoard"));
        site.proxy.stats().value("plugin.mine.restarts") > 0
    });
    assert!(site.proxy.stderr().contains("bytes of memory, of 268435456 that it may have"), "{}", site.proxy.stderr());
    wait_until("another process", || site.proxy.get("/").status == 200);
}

#[test]
fn a_large_body_passes_through_another_process_in_bounded_memory() {
    if envoy() {
        return;
    }
    let drain = Origin::start(|connection| {
        while let Some(request) = connection.request_head() {
            let mut count = 0;
            if !connection.body(&request, &mut |piece| count += piece.len()) {
                return;
            }
            let text = count.to_string();
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes());
        }
    });
    let fields = json!({"async": ["decode_data"], "decode_data": [{"op": "upper"}]});
    let site = site(&[apart("sdk38", &fields, json!({}))], drain, json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let [process] = site.proxy.children()[..] else { panic!("one process") };
    let used = || site.proxy.resident_kib() + postrider_tests::kit::process::resident_kib(process);
    let before = used();
    let mut client = RawClient::connect(site.proxy.address("http"));
    let size = 64 << 20;
    client.send(format!("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: {size}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        client.send(&piece);
    }
    assert_eq!(client.response("POST").unwrap().text(), size.to_string());
    let grown = used().saturating_sub(before);
    assert!(grown < 48 << 10, "{grown} KiB more");
}

#[test]
fn streams_in_flight_are_answered_when_their_process_ends() {
    if envoy() {
        return;
    }
    let folder = TempDir::new();
    let never = folder.path().join("never");
    let config = json!({
        "async": ["decode_headers"],
        "decode_headers": [{"op": "hold", "value": never}],
        "destroy": true,
    });
    for (on_error, status) in [("503", 503), ("continue", 200)] {
        let site = site(&[apart("sdk38", &config, json!({"on_error": on_error}))], echo(), json!({}));
        let mut clients: Vec<RawClient> = (0..5).map(|_| RawClient::connect(site.proxy.address("http"))).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        }
        site.proxy.wait_stat("plugin.mine.all.calls", 5);
        let [process] = site.proxy.children()[..] else { panic!("one process") };
        postrider_tests::kit::process::signal(process, "KILL");
        for mut client in clients {
            assert_eq!(client.response("GET").unwrap().status, status, "{on_error}");
        }
        site.proxy.wait_stat("plugin.mine.all.errors", 5);
    }
}

#[test]
fn a_client_that_leaves_ends_its_stream_in_another_process() {
    if envoy() {
        return;
    }
    let config = json!({"destroy": true, "status": {"decode_headers": "stop_and_buffer"}});
    let site = script(&config);
    let mut client = RawClient::connect(site.proxy.address("http"));
    client.send("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\nhel");
    site.proxy.wait_stat("http.ingress_http.downstream_rq_active", 1);
    site.proxy.wait_stat("plugin.mine.all.calls", 1);
    client.reset();
    wait_until("the end", || site.proxy.stderr().contains("script: destroyed"));
    assert_eq!(site.proxy.get("/").status, 200);
}

#[test]
fn a_process_goes_with_its_last_configuration() {
    if envoy() {
        return;
    }
    let config = |value: &str| json!({"encode_headers": [{"op": "set", "key": "x-version", "value": value}]});
    let origin = echo();
    let of = |config: &Value| gateway(&[apart("sdk38", config, json!({}))], &origin, json!({})).to_yaml();
    let mut proxy = Proxy::start(&gateway(&[apart("sdk38", &config("one"), json!({}))], &origin, json!({})));
    assert_eq!(proxy.get("/").header("x-version"), "one");
    let process = proxy.children();
    assert_eq!(proxy.reload(of(&config("two")))["outcome"], "accepted");
    assert_eq!(proxy.get("/").header("x-version"), "two");
    assert_eq!(proxy.children(), process, "the same process serves both");
    let refused = proxy.reload(of(&json!({"refuse": 1})));
    assert!(refused.to_string().contains("the Go plugin `script` refuses this configuration"), "{refused}");
    assert_eq!(proxy.get("/").header("x-version"), "two");
    // The refused file may be judged twice, so that the next verdict is not always about this one.
    proxy.reload(gateway(&[], &origin, json!({})).to_yaml());
    wait_until("the process's end", || proxy.children().is_empty());
    assert_eq!(proxy.get("/").status, 200);
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
}

#[test]
fn a_library_that_is_replaced_in_its_place_runs_in_a_process_of_its_own() {
    if envoy() {
        return;
    }
    let (origin, folder) = (echo(), TempDir::new());
    let path = folder.path().join("mine.so");
    std::fs::copy(library("sdk33"), &path).unwrap();
    let works = json!({"encode_headers": [{"op": "set", "key": "x-go", "value": "here"}]});
    let of = |config: &Value| {
        let plugin = apart("sdk33", config, json!({"code": {"filename": path}}));
        gateway(&[plugin], &origin, json!({}))
    };
    let proxy = Proxy::start(&of(&works));
    assert_eq!(proxy.get("/").header("x-go"), "here");
    let before = proxy.children();
    let next = folder.path().join("next.so");
    std::fs::copy(library("sdk38"), &next).unwrap();
    std::fs::rename(&next, &path).unwrap();
    wait_until("the process of the new file", || proxy.children().iter().any(|child| !before.contains(child)));
    assert_eq!(proxy.get("/").header("x-go"), "here");
    wait_until("the end of the process of the old file", || {
        let now = proxy.children();
        now.len() == 1 && now != before
    });
}

#[test]
fn checking_a_configuration_starts_no_process_that_is_started_again() {
    if envoy() {
        return;
    }
    let mut site = script(&json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    site.proxy.signal("TERM");
    assert!(site.proxy.wait_exit().success());
    assert_eq!(site.proxy.stderr().matches(" runs in process ").count(), 1, "{}", site.proxy.stderr());
}

/// Where Go's scheduler has as many processors as there are workers, its own thread interrupts these all the time.
#[test]
fn workers_share_no_processor_with_goroutines() {
    if envoy() {
        return;
    }
    let site = script(&json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let [process] = site.proxy.children()[..] else { panic!("one process") };
    let environment = std::fs::read_to_string(format!("/proc/{process}/environ")).unwrap();
    let said = environment.split('\0').find_map(|each| each.strip_prefix("GOMAXPROCS="));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(said.is_some_and(|said| said.parse::<usize>().unwrap() > cpus), "{said:?} for {cpus} CPUs");
}

#[test]
fn a_process_goes_with_the_proxy() {
    if envoy() {
        return;
    }
    let mut site = script(&json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let [process] = site.proxy.children()[..] else { panic!("one process") };
    site.proxy.signal("KILL");
    site.proxy.wait_exit();
    let stat = format!("/proc/{process}/stat");
    let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    wait_until("the process's end", gone);
}
