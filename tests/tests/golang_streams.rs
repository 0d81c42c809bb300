//! What Go filters are told of streams and say about them: TLS, hosts, filter state, and moments at which streams are logged.

use postrider_tests::golang::{Site, filter, gateway, library, site};
use postrider_tests::kit::config::file_access_log;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::plugins::manifest;
use postrider_tests::tls::{Authority, Client, secured};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};

/// The test's plugin in the proxy, and in a process of its own.
fn both(fields: &Value) -> [(&'static str, Value); 2] {
    let apart = json!({
        "runtime": "go", "code": {"filename": library("sdk38")}, "config": fields, "on_error": "503",
        "options": {"plugin_name": "script", "isolation": "process"},
    });
    [("here", filter("sdk38", "script", fields)), ("apart", manifest("mine", apart))]
}

fn seen(origin: &Origin, name: &str) -> String {
    origin.requests().last().map_or_else(String::new, |request| request.headers.values(name).join("|"))
}

#[test]
fn facts_of_tls_are_told_with_the_clients_certificate() {
    if envoy() {
        return;
    }
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let context = json!({
        "require_client_certificate": true,
        "common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": clients.pem()}}},
    });
    let fields = json!({"decode_headers": [{"op": "tls", "to": "x-tls"}]});
    for (which, filter) in both(&fields) {
        let origin = Origin::echo("a");
        let gateway = gateway(&[filter], &origin, json!({}));
        let proxy = Proxy::start(&secured(gateway, &servers.issue(&["site.test"]), context.clone()));
        let shown = clients.issue(&["client.test", "other.test"]);
        let client = Client::showing(&servers, &shown);
        assert_eq!(client.get(proxy.address("http"), "site.test").unwrap().status, 200, "{which}");
        let facts = seen(&origin, "x-tls");
        for wanted in [
            "TLSv1.3 true true 4866,true TLS_AES_256_GCM_SHA384 ",
            // rustls has no session ids.
            " session=false ",
            " valid=true,true,true sha=64 serial=true ",
            " subject=CN=client.test ",
            " issuer=CN=clients ",
            " own=CN=site.test ",
            " uris=[],[] dns=[client.test other.test],[site.test] pem=true,true",
        ] {
            assert!(facts.contains(wanted), "{which}: {wanted}: {facts}");
        }
    }
}

#[test]
fn a_host_is_chosen_strictly_or_not() {
    if envoy() {
        return;
    }
    let [one, two] = [Origin::echo("one"), Origin::echo("two")];
    let gone = net::refusing_address();
    let status = |host: String, strict: bool| {
        let fields =
            json!({"decode_headers": [{"op": "override", "value": host, "strict": strict, "to": "x-refused"}]});
        both(&fields).map(|(which, filter)| {
            let mut config = gateway(&[filter], &one, json!({}));
            config = config.cluster("origin2", &[two.address]);
            let hosts = [one.address, two.address].map(|address| {
                json!({"endpoint": {"address": {"socket_address": {
                    "address": address.ip().to_string(), "port_value": address.port(),
                }}}})
            });
            let mut value = config.to_value().clone();
            let clusters = value["static_resources"]["clusters"].as_array_mut().unwrap();
            clusters[0]["load_assignment"]["endpoints"] = json!([{"lb_endpoints": hosts}]);
            let overlay = json!({"static_resources": {"clusters": clusters.clone()}});
            let proxy = Proxy::start(&config.overlay(overlay));
            [&one, &two].into_iter().for_each(|origin| origin.forget());
            let statuses = [0; 4].map(|_| proxy.exchange(get("/")).status);
            (which, statuses, [one.requests().len(), two.requests().len()])
        })
    };
    for (which, statuses, came) in
        status(two.address.to_string(), true).into_iter().chain(status(two.address.to_string(), false))
    {
        assert_eq!((statuses, came), ([200; 4], [0, 4]), "{which}");
    }
    // Without a port it is no host's, not even where one listens on that of HTTP.
    for (which, statuses, came) in
        status(gone.to_string(), true).into_iter().chain(status("127.0.0.1".to_owned(), true))
    {
        assert_eq!((statuses, came), ([503; 4], [0, 0]), "{which}");
    }
    for (which, statuses, came) in status(gone.to_string(), false) {
        assert_eq!((statuses, came[0] + came[1]), ([200; 4], 4), "{which}: any other host");
    }
}

#[test]
fn filter_state_is_shared_with_upstreams_where_that_is_wanted() {
    if envoy() {
        return;
    }
    let set = |key: &str, sharing: u32| json!({"op": "state_set", "key": key, "value": "v", "sharing": sharing});
    let fields = json!({"decode_headers": [set("own", 0), set("shared", 1), set("once", 2)]});
    for (which, filter) in both(&fields) {
        let (origin, folder) = (Origin::echo("a"), TempDir::new());
        let log = folder.path().join("log");
        let all = ["own", "shared", "once"];
        let line = all.map(|key| format!("%FILTER_STATE({key}:PLAIN)% %UPSTREAM_FILTER_STATE({key}:PLAIN)%")).join(" ");
        let format = json!({"log_format": {"text_format_source": {"inline_string": format!("{line}\n")}}});
        let http = json!({"access_log": [file_access_log(&log, format)]});
        let site = Site { proxy: Proxy::start(&gateway(&[filter], &origin, http)), origin };
        assert_eq!(site.proxy.get("/").status, 200);
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("the log", || !read().is_empty());
        assert_eq!(read().trim(), "v - v v v v", "{which}");
    }
}

#[test]
fn streams_are_logged_at_their_start_and_meanwhile() {
    if envoy() {
        return;
    }
    let options = json!({"flush_access_log_on_new_request": true, "access_log_flush_interval": "0.03s"});
    let http = json!({"access_log_options": options});
    let holds = |fields: &Value| {
        let folder = TempDir::new();
        let path = folder.path().join("go");
        let mut fields = fields.clone();
        fields["decode_headers"] = json!([{"op": "set", "key": "x-up", "value": "1"}, {"op": "hold", "value": path}]);
        fields["async"] = json!(["decode_headers"]);
        (folder, path, fields)
    };
    for (sdk, started, meanwhile) in [
        ("sdk31", "script: start", "script: meanwhile"),
        ("sdk32", "script: start /logged", "script: meanwhile /logged, false answered, true"),
        ("sdk38", "script: start /logged", "script: meanwhile /logged, false answered, true"),
    ] {
        let (_folder, path, fields) = holds(&json!({"log": []}));
        let apart = json!({
            "runtime": "go", "code": {"filename": library(sdk)}, "config": fields, "on_error": "503",
            "options": {"plugin_name": "script", "isolation": "process"},
        });
        for (which, filter) in [("here", filter(sdk, "script", &fields)), ("apart", manifest("mine", apart))] {
            let _ = std::fs::remove_file(&path);
            let site = site(&[filter], Origin::echo("a"), http.clone());
            let mut client = RawClient::connect(site.proxy.address("http"));
            client.send(get("/logged").replace("\r\n\r\n", "\r\nx-a: 1\r\nx-b: 2\r\n\r\n"));
            let count = |line: &str| site.proxy.stderr().matches(line).count();
            wait_until("records while it goes on", || count(meanwhile) >= 2);
            std::fs::write(&path, "").unwrap();
            let answer = client.response("GET").unwrap();
            assert_eq!((answer.status, seen(&site.origin, "x-up").as_str()), (200, "1"), "{sdk} {which}");
            wait_until("the end", || count("script: log") == 1);
            assert_eq!(count(started), 1, "{sdk} {which}: {}", site.proxy.stderr());
            let text = site.proxy.stderr();
            assert!(text.find(started) < text.find(meanwhile), "{sdk} {which}: {text}");
        }
    }
}

#[test]
fn go_code_that_goes_on_while_its_stream_is_logged_is_not_forgotten() {
    if envoy() {
        return;
    }
    let http = json!({"access_log_options": {"access_log_flush_interval": "0.03s"}});
    for sdk in ["sdk31", "sdk38"] {
        let folder = TempDir::new();
        let path = folder.path().join("go");
        let fields = json!({
            "decode_headers": [{"op": "hold", "value": path}, {"op": "set", "key": "x-up", "value": "1"}],
            "async": ["decode_headers"], "log": [], "meanwhile": [{"op": "release", "value": path}],
        });
        let site = site(&[filter(sdk, "script", &fields)], Origin::echo("a"), http.clone());
        assert_eq!((site.proxy.get("/").status, seen(&site.origin, "x-up").as_str()), (200, "1"), "{sdk}");
    }
}

/// A log of one line for each request, and where it is.
fn noted(folder: &TempDir) -> (std::path::PathBuf, Value) {
    let log = folder.path().join("log");
    let line = "%PATH% %DYNAMIC_METADATA(go:note)% %FILTER_STATE(go.state:PLAIN)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    (log.clone(), json!({"access_log": [file_access_log(&log, format)]}))
}

#[test]
fn what_is_noted_when_a_stream_is_complete_is_in_its_record() {
    if envoy() {
        return;
    }
    for sdk in ["sdk32", "sdk33", "sdk38"] {
        let folder = TempDir::new();
        let (log, http) = noted(&folder);
        let fields = json!({"complete": [
            {"op": "metadata_set", "ns": "go", "key": "note", "value": "late"},
            {"op": "state_set", "key": "go.state", "value": "later"},
            {"op": "metadata_get", "ns": "go", "key": "note", "to": "read"},
            {"op": "state_get", "key": "go.state", "to": "read"},
        ]});
        let site = site(&[filter(sdk, "script", &fields)], Origin::echo("a"), http);
        assert_eq!(site.proxy.get("/one").status, 200);
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("the record", || !read().is_empty());
        assert_eq!(read(), "/one late later\n", "{sdk}");
        let said = site.proxy.stderr();
        assert!(said.contains("script: read=late") && said.contains("script: read=later"), "{sdk}: {said}");
    }
}

#[test]
fn all_filters_hear_of_the_end_and_log_it_before_any_is_destroyed() {
    if envoy() {
        return;
    }
    let fields = |name: &str| {
        let says = |what: &str| json!([{"op": "log", "value": format!("script: {what} {name}")}]);
        json!({"complete": says("complete"), "log": says("logged"), "destroy": []})
    };
    let chain = [filter("sdk38", "script", &fields("one")), filter("sdk33", "script", &fields("two"))];
    let site = site(&chain, Origin::echo("a"), json!({}));
    assert_eq!(site.proxy.get("/").status, 200);
    let told = || {
        let text = site.proxy.stderr();
        let told = text.lines().filter_map(|line| line.split_once("script: ").map(|(_, told)| told.to_owned()));
        told.filter(|told| !told.starts_with("log /")).collect::<Vec<_>>()
    };
    wait_until("both ends", || told().len() == 6);
    let wanted = ["complete one", "complete two", "logged one", "logged two", "destroyed 0", "destroyed 0"];
    assert_eq!(told(), wanted);
}

#[test]
fn what_a_goroutine_notes_when_its_message_has_gone_on_is_in_the_record() {
    if envoy() {
        return;
    }
    for sdk in ["sdk31", "sdk38"] {
        let folder = TempDir::new();
        let (log, http) = noted(&folder);
        let [go, gone] = ["go", "gone"].map(|name| folder.path().join(name));
        let fields = json!({"decode_headers": [{"op": "background", "do": [
            {"op": "hold", "value": go},
            {"op": "metadata_set", "ns": "go", "key": "note", "value": "behind"},
            {"op": "state_set", "key": "go.state", "value": "both"},
            {"op": "write", "value": gone},
        ]}]});
        let site = site(&[filter(sdk, "script", &fields)], Origin::silent(), http);
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send(get("/left"));
        site.origin.wait_connections(1);
        std::fs::write(&go, "").unwrap();
        wait_until("the goroutine", || gone.exists());
        client.reset();
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("the record", || !read().is_empty());
        assert_eq!(read(), "/left behind both\n", "{sdk}");
    }
}

#[test]
fn a_stream_that_never_came_to_a_plugin_is_logged_by_it() {
    if envoy() {
        return;
    }
    for sdk in ["sdk31", "sdk32", "sdk38"] {
        let folder = TempDir::new();
        let (go, there) = (folder.path().join("go"), folder.path().join("there"));
        let holds = json!({
            "decode_headers": [{"op": "write", "value": there}, {"op": "hold", "value": go}], "async": ["decode_headers"],
        });
        let logs = json!({"decode_headers": [{"op": "log", "value": "came"}], "log": [], "destroy": []});
        let apart = json!({
            "runtime": "go", "code": {"filename": library(sdk)}, "config": logs, "on_error": "503",
            "options": {"plugin_name": "script", "isolation": "process"},
        });
        let first = filter("sdk33", "script", &holds);
        for (which, second) in [("here", filter(sdk, "script", &logs)), ("apart", manifest("mine", apart))] {
            let _ = std::fs::remove_file(&there);
            let site = site(&[first.clone(), second], Origin::echo("a"), json!({}));
            let mut client = RawClient::connect(site.proxy.address("http"));
            client.send(get("/left"));
            wait_until("the first to hold it", || there.exists());
            client.reset();
            wait_until("its end", || site.proxy.stderr().contains("script: destroyed 0"));
            let said = site.proxy.stderr();
            let logged = if sdk == "sdk31" { "script: log" } else { "script: log /left none" };
            assert_eq!((said.matches(logged).count(), said.contains("came")), (1, false), "{sdk} {which}: {said}");
        }
        std::fs::write(&go, "").unwrap();
    }
}

#[test]
fn libraries_of_envoys_configurations_may_have_a_process_and_merge_there() {
    if envoy() {
        return;
    }
    use postrider_tests::golang::per_route;
    let set = |key: &str, value: &str| json!([{"op": "set", "key": key, "value": value}]);
    let base = json!({"decode_headers": set("x-up", "base"), "encode_headers": set("x-base", "base")});
    let of_host = json!({"decode_headers": set("x-up", "host")});
    let of_route = json!({"decode_headers": set("x-up", "route")});
    let http = json!({"route_config": {"virtual_hosts": [{
        "name": "all", "domains": ["*"], "typed_per_filter_config": per_route("script", &of_host),
        "routes": [
            {"match": {"prefix": "/route"}, "route": {"cluster": "origin"},
             "typed_per_filter_config": per_route("script", &of_route)},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ],
    }]}});
    let origin = Origin::echo("a");
    let variable = |ids: &str| ("POSTRIDER_GO_ISOLATION".to_owned(), ids.to_owned());
    for (ids, is_apart) in [("sdk38", true), ("*", true), ("sdk3, other", false)] {
        let gateway = gateway(&[filter("sdk38", "script", &base)], &origin, http.clone());
        let launch = Launch { environment: vec![variable(ids)], concurrency: 2, ..Launch::default() };
        let proxy = Proxy::start_with(&gateway, launch);
        let answers = || {
            ["/route", "/plain"].map(|path| {
                origin.forget();
                let mut client = RawClient::connect(proxy.address("http"));
                client.send(format!("POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"));
                let answer = client.response("POST").unwrap();
                (answer.status, answer.headers.values("x-base").join(""), seen(&origin, "x-up"))
            })
        };
        let wanted = ["route", "host"].map(|up| (200, "base".to_owned(), up.to_owned()));
        for _ in 0..8 {
            assert_eq!(answers(), wanted, "{ids}");
        }
        assert_eq!(proxy.stderr().contains(" runs in process "), is_apart, "{ids}: {}", proxy.stderr());
        if is_apart {
            let process = children(&proxy);
            postrider_tests::kit::process::signal(process, "KILL");
            wait_until("another process", || children(&proxy) != process && children(&proxy) != 0);
            wait_until("its configurations", || answers() == wanted);
        }
    }
}

/// The one process that a proxy started; 0 while there is none.
fn children(proxy: &Proxy) -> u32 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).ok();
    let all: Vec<String> = threads.filter_map(|thread| of_thread(thread.ok()?)).collect();
    all.iter().flat_map(|some| some.split_whitespace()).filter_map(|pid| pid.parse().ok()).next().unwrap_or(0)
}
