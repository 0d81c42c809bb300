//! Native modules as access loggers, as Envoy has them: the same shared object in both.

use std::path::Path;

use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{extension, file_access_log, upstream_http_options};
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::modules::{logger, script};
use postrider_tests::{postrider_only, site};
use serde_json::{Value, json};

const TYPE: &str = "access_loggers.dynamic_modules.v3.DynamicModuleAccessLog";

/// That logger, writing there.
fn lines(name: &str, path: &str) -> Value {
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": logger()}}}, "logger_name": name,
        "logger_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": path},
    });
    extension("envoy.access_loggers.dynamic_modules", TYPE, fields)
}

/// The line with that number, from 1.
fn line(path: &Path, number: usize) -> String {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until("the module's line", || read().lines().filter(|line| line.starts_with("moment")).count() >= number);
    read().lines().filter(|line| line.starts_with("moment")).nth(number - 1).unwrap().to_owned()
}

/// Its parts with those names.
fn parts(line: &str, names: &[&str]) -> String {
    let wanted = |part: &&str| names.contains(&part.split('=').next().unwrap_or_default());
    line.split(' ').filter(wanted).collect::<Vec<_>>().join(" ")
}

#[test]
fn requests_are_told_with_all_that_is_known_of_them() {
    let folder = TempDir::new();
    let path = folder.path().join("lines");
    let filter =
        json!({"dynamic_module_config": {"module": {"local": {"filename": script()}}}, "filter_name": "script"});
    let filter =
        extension("envoy.filters.http.dynamic_modules", "filters.http.dynamic_modules.v3.DynamicModuleFilter", filter);
    let routes = json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 204}},
        {"match": {"prefix": "/nowhere"}, "route": {"cluster": "nowhere"}},
        {"match": {"prefix": "/"}, "name": "named", "route": {"cluster": "origin"}},
    ]);
    let manager = json!({
        "access_log": [lines("lines", path.to_str().unwrap())],
        "route_config": {"validate_clusters": false},
    });
    let origin = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-end: 1\r\n\r\n");
        }
    });
    let trailers = json!({"http_protocol_options": {"enable_trailers": true}});
    let options = json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
    }}});
    let plan = site::with([filter]).routes(routes).manager(manager).manager(trailers).upstream(options);
    let site = plan.start_before(origin);
    let script = "qh note own text value; qh notenumber own number 10; qh notetruth own truth 1";
    let fields = format!("x-many: one\r\nx-many: two\r\nx-do: {script}\r\n");
    assert_eq!(site.get("/a?b", &fields).status, 200);
    assert_eq!(
        line(&path, 1).split(" wire=").next().unwrap(),
        "moment=6 code=200 flags=0 no_route=0 details=via_upstream protocol=HTTP/1.1 route=named cluster=origin \
         spoken=HTTP/1.1 tries=1 method=GET/1 many=one/2 status=200/1 trailer=1/1 unknown=none/0 listed=2 text=value \
         number=1/2.5 truth=1/1 absent=none client=127.0.0.1:port here=127.0.0.1:port host=127.0.0.1:port called= tls=none mtls=0 \
         names=0 attribute=via_upstream code=1/200 received=0 sent=2 began=1 over=1 asked=1 answered=1 same=11 counted=000 unknown=1"
    );
    assert_eq!(site.get("/direct", "").status, 204);
    let names =
        ["moment", "code", "details", "route", "cluster", "spoken", "tries", "host", "asked", "answered", "text"];
    assert_eq!(
        parts(&line(&path, 2), &names),
        "moment=6 code=204 details=direct_response route= cluster=none spoken=none tries=0 text=none \
         host=none:none code=1/204 asked=0 answered=0"
    );
    assert_eq!(site.get("/nowhere", "").status, 503);
    assert_eq!(parts(&line(&path, 3), &["details", "cluster"]), "details=cluster_not_found cluster=none");
    let stats = site.proxy.stats();
    assert_eq!((stats.value("dynamicmodulescustom.told"), stats.value("dynamicmodulescustom.level")), (6, 7));
}

#[test]
fn bytes_on_connections_own_answers_and_traces_are_told() {
    let folder = TempDir::new();
    let (path, log) = (folder.path().join("lines"), folder.path().join("log"));
    let wire = ["DOWNSTREAM_WIRE_BYTES_RECEIVED", "DOWNSTREAM_WIRE_BYTES_SENT", "UPSTREAM_WIRE_BYTES_RECEIVED"];
    let wire =
        [&wire[..], &["UPSTREAM_WIRE_BYTES_SENT"]].concat().iter().map(|name| format!("%{name}%")).collect::<Vec<_>>();
    let format = json!({"log_format": {"text_format_source": {"inline_string": format!("{}\n", wire.join("/"))}}});
    let routes = json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 202, "body": {"inline_string": "direct"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let manager = json!({
        "access_log": [lines("lines", path.to_str().unwrap()), file_access_log(&log, format)],
        "tracing": {"random_sampling": {"value": 0}},
        "generate_request_id": true,
    });
    let site = site::with([]).routes(routes).manager(manager).start();
    // A body in one piece; the answer comes with one.
    let post = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello";
    let forced = "x-client-trace-id: 1\r\n";
    let told = |number: usize| {
        let all = std::fs::read_to_string(&log).unwrap_or_default();
        let wire = all.lines().nth(number - 1).map(str::to_owned);
        parts(&line(&path, number), &["wire", "reply", "state", "trace", "span", "sampled"])
            .replace(&format!("wire={} ", wire.as_deref().unwrap_or_default()), "as logged ")
    };
    let logged = |number: usize| {
        let count = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        wait_until("the log", || count() >= number);
        told(number)
    };
    assert_eq!(site.proxy.exchange(post).status, 200);
    assert_eq!(logged(1), "as logged reply=none state=none trace=none span=none sampled=0");
    assert!(!line(&path, 1).contains(" wire=0/"), "{}", line(&path, 1));
    assert_eq!(site.get("/direct", forced).status, 202);
    assert_eq!(logged(2), "as logged reply=none state=none trace=none span=none sampled=1");
}

#[test]
fn connections_are_told_without_messages() {
    let folder = TempDir::new();
    let path = folder.path().join("lines");
    let fields = json!({"stat_prefix": "t", "cluster": "c", "access_log": [lines("lines", path.to_str().unwrap())]});
    let origin = Origin::tcp_echo("");
    let config = Config::new().tcp("tcp", fields).cluster("c", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("hello");
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    drop(client);
    let names = [
        "moment", "protocol", "route", "cluster", "method", "status", "client", "host", "received", "sent", "listed",
        "wire",
    ];
    assert_eq!(
        parts(&line(&path, 1), &names),
        "moment=3 protocol=none route=none cluster=c method=none/0 status=none/0 listed=0 client=127.0.0.1:port host=127.0.0.1:port \
         received=5 sent=5 wire=5/5/5/5"
    );
}

#[test]
fn a_connection_and_its_requests_say_what_is_spoken_and_who_they_are() {
    let folder = TempDir::new();
    let path = |name: &str| folder.path().join(name);
    let told = |name: &str| lines("lines", path(name).to_str().unwrap());
    let router = json!({"upstream_log": [told("try")]});
    let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", router);
    let origin = H2Origin::start(100);
    let http2 = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    let (echo, tcp_path) = (Origin::tcp_echo(""), path("tcp"));
    let tcp =
        json!({"stat_prefix": "t", "cluster": "echo", "access_log": [lines("lines", tcp_path.to_str().unwrap())]});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", json!({"access_log": [told("request")], "http_filters": [router]}))
        .overlay_listener("http", json!({"access_log": [told("listener")]}))
        .tcp("tcp", tcp)
        .cluster_with("origin", &[origin.address], http2)
        .cluster("echo", &[echo.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let names = ["moment", "protocol", "spoken", "tries", "id", "source", "site", "to", "known"];
    let said = |name: &str| parts(&line(&path(name), 1), &names);
    assert_eq!(
        said("request"),
        "moment=6 protocol=HTTP/1.1 spoken=HTTP/2 tries=1 id=none source=port site=1 to=origin known=111111"
    );
    assert_eq!(
        said("try"),
        "moment=9 protocol=HTTP/2 spoken=HTTP/2 tries=0 id=none source=port site=0 to=origin known=111111"
    );
    assert_eq!(
        said("listener"),
        "moment=0 protocol=HTTP/1.1 spoken=none tries=0 id=none source=port site=0 to=none known=111111"
    );
    assert_eq!(parts(&line(&path("listener"), 1), &["wire"]), "wire=0/0/0/0");
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("hello");
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    drop(client);
    assert_eq!(
        said("tcp"),
        "moment=3 protocol=none spoken=none tries=1 id=uuid source=port site=0 to=echo known=001101"
    );
}

#[test]
fn what_goes_on_has_no_end_yet() {
    let folder = TempDir::new();
    let (path, tcp_path) = (folder.path().join("request"), folder.path().join("connection"));
    let (origin, echo) = (Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), Origin::tcp_echo(""));
    let manager = json!({
        "access_log": [lines("lines", path.to_str().unwrap())],
        "access_log_options": {"flush_access_log_on_new_request": true},
    });
    let tcp = json!({
        "stat_prefix": "t", "cluster": "echo", "access_log": [lines("lines", tcp_path.to_str().unwrap())],
        "access_log_options": {"flush_access_log_on_start": true, "flush_access_log_on_connected": true},
    });
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", manager)
        .tcp("tcp", tcp)
        .cluster("origin", &[origin.address])
        .cluster("echo", &[echo.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let names = ["moment", "over", "last"];
    assert_eq!(parts(&line(&path, 1), &names), "moment=4 over=0 last=0");
    assert_eq!(parts(&line(&path, 2), &["moment", "over"]), "moment=6 over=1");
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("hello");
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    drop(client);
    let told = [1, 2, 3].map(|number| parts(&line(&tcp_path, number), &["moment", "over"]));
    assert_eq!(told, ["moment=0 over=0", "moment=1 over=0", "moment=3 over=1"]);
}

#[test]
fn the_end_of_a_connection_that_was_meant_to_go_elsewhere_is_told() {
    let folder = TempDir::new();
    let path = folder.path().join("lines");
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let inspector = extension(
        "envoy.filters.listener.proxy_protocol",
        "filters.listener.proxy_protocol.v3.ProxyProtocol",
        json!({}),
    );
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", json!({"access_log": [lines("lines", path.to_str().unwrap())]}))
        .overlay_listener("http", json!({"listener_filters": [inspector]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.send("PROXY TCP4 192.0.2.1 198.51.100.7 11 22\r\n");
    assert_eq!(client.exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n").status, 200);
    assert_eq!(
        parts(&line(&path, 1), &["client", "here", "direct"]),
        "client=192.0.2.1:port here=198.51.100.7:port direct=127.0.0.1:port"
    );
}

#[test]
fn what_an_upstream_that_was_not_reached_speaks_is_not_told() {
    let folder = TempDir::new();
    let path = folder.path().join("lines");
    let nobody = refusing_address();
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", json!({"access_log": [lines("lines", path.to_str().unwrap())]}))
        .cluster("origin", &[nobody]);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 503);
    assert_eq!(
        parts(&line(&path, 1), &["cluster", "spoken", "host"]),
        "cluster=origin spoken=none host=127.0.0.1:port"
    );
}

/// The records of a slow logger of one of these moments, each from when until when in microseconds.
fn spans(path: &Path, moment: &str) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let spans = whole.lines().filter_map(|line| line.strip_prefix(moment)?.strip_prefix(' ')?.split_once(' '));
    spans.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap())).collect()
}

#[test]
fn a_record_that_takes_longer_than_the_interval_does_not_follow_upon_itself() {
    if !postrider_only() {
        return;
    }
    const INTERVAL: u64 = 50_000;
    const ENOUGH: usize = 4;
    let folder = TempDir::new();
    let path = |name: &str| folder.path().join(name);
    let slow = |name: &str| lines("slow", path(name).to_str().unwrap());
    let pause_until = |path: &Path, moment: &str| {
        wait_until("records while it goes on", || spans(path, moment).len() >= ENOUGH);
    };
    let check = |path: &Path, moment: &str| {
        let spans = spans(path, moment);
        for pair in spans.windows(2) {
            // The next one is due an interval after this one was written.
            assert!(pair[1].0 - pair[0].1 >= INTERVAL - 1000, "{moment} {spans:?}");
        }
    };
    let (of_request, of_try) = (path("request"), path("try"));
    let (seen_request, seen_try) = (of_request.clone(), of_try.clone());
    let origin = Origin::start(move |connection| {
        while connection.request().is_some() {
            pause_until(&seen_request, "5");
            pause_until(&seen_try, "8");
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let router =
        json!({"upstream_log": [slow("try")], "upstream_log_options": {"upstream_log_flush_interval": "0.05s"}});
    let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", router);
    let manager = json!({
        "access_log": [slow("request")],
        "access_log_options": {"access_log_flush_interval": "0.05s"},
        "http_filters": [router],
    });
    let tcp_origin = Origin::tcp_echo("");
    let tcp = json!({
        "stat_prefix": "t", "cluster": "tcp", "access_log": [slow("connection")],
        "access_log_options": {"access_log_flush_interval": "0.05s"},
    });
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", manager)
        .tcp("tcp", tcp)
        .cluster("origin", &[origin.address])
        .cluster("tcp", &[tcp_origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    check(&of_request, "5");
    check(&of_try, "8");
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("hello");
    pause_until(&path("connection"), "2");
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    check(&path("connection"), "2");
}

#[test]
fn the_name_of_an_upstreams_host_is_told() {
    let folder = TempDir::new();
    let path = folder.path().join("lines");
    let origin = Origin::echo("a");
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": origin.address.port()}});
    let endpoint = json!({"endpoint": {"address": address, "hostname": "host.test"}});
    let assignment = json!({"cluster_name": "origin", "endpoints": [{"lb_endpoints": [endpoint]}]});
    let plan = site::with([]).manager(json!({"access_log": [lines("lines", path.to_str().unwrap())]}));
    let site = plan.upstream(json!({"load_assignment": assignment})).start_before(origin);
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(parts(&line(&path, 1), &["called"]), "called=host.test");
}

#[test]
fn a_logger_that_refuses_its_configuration_makes_all_of_it_invalid() {
    if !postrider_only() {
        return;
    }
    for (name, text) in [("lines", ""), ("others", "/x")] {
        let fields = json!({"stat_prefix": "t", "cluster": "c", "access_log": [lines(name, text)]});
        let said = validated(fields);
        assert!(said.contains(&format!("refuses the configuration of its logger `{name}`")), "{said}");
    }
    let mut other = lines("lines", "/x");
    other["typed_config"]["dynamic_module_config"]["module"]["local"]["filename"] = json!(script());
    let said = validated(json!({"stat_prefix": "t", "cluster": "c", "access_log": [other]}));
    assert!(said.contains("has no access loggers"), "{said}");
}

/// What `validate` says of a TCP proxy with these fields.
fn validated(fields: Value) -> String {
    postrider_tests::refusal(&Config::new().tcp("tcp", fields).cluster("c", &[]))
}
