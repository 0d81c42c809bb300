//! Native modules as filters of connections, as Envoy has them: the same shared object in both.

use std::path::Path;

use postrider_tests::kit::config::{extension, file_access_log, http_filter, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, Transport, wait_until};
use postrider_tests::modules::{connections, script};
use postrider_tests::tls::{Authority, Client, secured, tls_inspector};
use postrider_tests::{get, postrider_only, refusal};
use serde_json::{Value, json};

const TYPE: &str = "filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter";

/// A filter of that module's.
fn of(module: &Path, name: &str, config: &str, terminal: bool) -> Value {
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": module}}}, "filter_name": name,
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": config},
        "terminal_filter": terminal,
    });
    extension("envoy.filters.network.dynamic_modules", TYPE, fields)
}

fn module(name: &str) -> Value {
    of(connections(), name, "", false)
}

/// A listener with these filters.
struct Line {
    proxy: Proxy,
    origin: Origin,
}

impl Line {
    fn of(filters: &[Value]) -> Line {
        Line::limited(filters, 100_000)
    }

    fn limited(filters: &[Value], limit: u32) -> Line {
        let origin = Origin::tcp_echo("");
        let fields = json!({"filter_chains": [{"filters": filters}], "per_connection_buffer_limit_bytes": limit});
        let config = Config::new().listener("tcp", fields).cluster("origin", &[origin.address]);
        Line { proxy: Proxy::start(&config), origin }
    }

    /// In front of a TCP proxy.
    fn carried(filters: &[Value]) -> Line {
        let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
        Line::of(&[filters, &[tcp]].concat())
    }

    /// With the script alone.
    fn served() -> Line {
        Line::served_with("")
    }

    fn served_with(config: &str) -> Line {
        Line::of(&[of(connections(), "script", config, true)])
    }

    fn client(&self) -> RawClient {
        RawClient::connect(self.proxy.address("tcp"))
    }

    fn counted(&self, name: &str) -> u64 {
        self.proxy.stats().value(&format!("dynamicmodulescustom.{name}"))
    }
}

/// What the client hears up to the end of the line.
fn line<S: Transport>(client: &mut RawClient<S>) -> String {
    let mut line = String::new();
    loop {
        match client.read_exact(1).unwrap()[0] {
            b'\n' => return line,
            byte => line.push(char::from(byte)),
        }
    }
}

fn ask<S: Transport>(client: &mut RawClient<S>, command: &str) -> String {
    client.send(format!("!{command}\n"));
    line(client)
}

#[test]
fn the_admin_says_that_a_connection_without_its_filter_ends() {
    if !postrider_only() {
        return;
    }
    let site = Line::carried(&[module("loud")]);
    let text = site.proxy.admin_get("/plugins").text().to_owned();
    assert!(text.contains("on error end the connection; no budget; no circuit"), "{text}");
}

#[test]
fn bytes_are_seen_and_changed_both_ways() {
    let site = Line::carried(&[module("loud")]);
    let mut client = site.client();
    client.send("hello");
    assert_eq!(client.read_exact(7).unwrap(), b"[HELLO]");
    assert_eq!(site.origin.bytes(0), b"HELLO");
    client.half_close();
    assert!(client.closed());
    wait_until("the end", || site.counted("by_proxy") == 1);
    assert_eq!((site.counted("by_client"), site.counted("connected")), (0, 1));
}

#[test]
fn a_filter_holds_any_number_of_bytes_where_the_listener_has_no_limit() {
    const LENGTH: usize = 300_000;
    let site = Line::limited(&[of(connections(), "script", "", true)], 0);
    let mut client = site.client();
    assert_eq!(ask(&mut client, &format!("length {}", "x".repeat(LENGTH))), LENGTH.to_string());
}

#[test]
fn bytes_that_were_read_before_the_filters_began_are_counted() {
    let (origin, folder) = (Origin::tcp_echo(""), TempDir::new());
    let log = folder.path().join("log");
    let format = json!({"log_format": {"text_format_source": {"inline_string": "%BYTES_RECEIVED% %BYTES_SENT%\n"}}});
    let tcp =
        tcp_filter(json!({"stat_prefix": "t", "cluster": "origin", "access_log": [file_access_log(&log, format)]}));
    // The inspector reads the client's first words.
    let fields = json!({"listener_filters": [tls_inspector()], "filter_chains": [{"filters": [module("loud"), tcp]}]});
    let config = Config::new().listener("tcp", fields).cluster("origin", &[origin.address]);
    let site = Line { proxy: Proxy::start(&config), origin };
    let mut client = site.client();
    client.send("hello");
    assert_eq!(client.read_exact(7).unwrap(), b"[HELLO]");
    client.half_close();
    assert!(client.closed());
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("a line of the log", || logged().ends_with('\n'));
    assert_eq!(logged(), "5 7\n");
}

#[test]
fn what_is_stopped_comes_again_with_what_follows() {
    let site = Line::carried(&[module("eights"), module("loud")]);
    let mut client = site.client();
    client.send("one");
    site.origin.wait_connections(1);
    client.send("two34");
    assert_eq!(client.read_exact(10).unwrap(), b"[ONETWO34]");
}

#[test]
fn a_module_serves_connections_by_itself() {
    let site = Line::served();
    let mut client = site.client();
    assert_eq!(ask(&mut client, "say hello"), "hello");
    assert_eq!(
        ask(&mut client, "facts"),
        "remote=here direct=here own=here same=1 tls=0 name=none subject=none uris=0 dns=0 upstream=none/0 \
         cluster=none host=0 state=0 reads=1 half=0 limit=100000 full=0 held=0 worker=0 address=1 number=1 mutual=0/0 \
         secure=00"
    );
    assert_eq!(ask(&mut client, "note"), "value two 2.5 1 1 kept kept 0 0 1 true");
    assert_eq!(ask(&mut client, "reading"), "3112");
    // What it does not take stays with it.
    client.send("!later\nfive!");
    assert_eq!(line(&mut client), "event 7 held 5");
    drop(client);
    wait_until("the end", || site.counted("by_client") == 1);
}

#[test]
fn a_module_knows_the_client_by_its_certificate() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let validation = json!({"trusted_ca": {"inline_string": clients.pem()}});
    let context = json!({
        "require_client_certificate": true, "common_tls_context": {"validation_context": validation},
    });
    let filters = [of(connections(), "script", "", true)];
    let fields = json!({"listener_filters": [tls_inspector()], "filter_chains": [{"filters": filters}]});
    let config = Config::new().listener("http", fields);
    let proxy = Proxy::start(&secured(config, &servers.issue(&["site.test"]), context));
    let showing = clients.issue(&["client.test", "other.test"]);
    let mut client = Client::showing(&servers, &showing).connect(proxy.address("http"), "site.test");
    let facts = ask(&mut client, "facts");
    for wanted in [" tls=1 name=site.test subject=CN=", " uris=0 dns=2 ", " mutual=1/1 secure=00"] {
        assert!(facts.contains(wanted), "{facts}");
    }
    assert_eq!(proxy.stats().value("dynamicmodulescustom.connected"), 1);
}

#[test]
fn bytes_of_a_module_s_own_go_both_ways() {
    // The last filter sees first what goes to the client.
    let site = Line::carried(&[module("loud"), module("script"), module("loud")]);
    let mut client = site.client();
    client.send("!say a\n");
    assert_eq!(client.read_exact(6).unwrap(), b"[[A\n]]");
    client.send("!back a\n");
    assert_eq!(client.read_exact(4).unwrap(), b"[A\n]");
    client.send("!forth a\n");
    assert_eq!(client.read_exact(6).unwrap(), b"[[A\n]]");
    assert_eq!(site.origin.bytes(0), b"A\n");
}

#[test]
fn nothing_follows_the_end_that_a_module_tells_the_upstream() {
    let site = Line::carried(&[module("script")]);
    let mut client = site.client();
    // What came with the command stands behind the end, and what comes later does as well.
    client.send("!last one\ntwo\n");
    assert_eq!(client.read_exact(4).unwrap(), b"one\n");
    let _ = client.try_send(b"three\n");
    assert!(client.closed());
    assert_eq!(site.origin.bytes(0), b"one\n");
}

#[test]
fn a_filter_that_holds_a_connection_back_chooses_its_cluster() {
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "nowhere"}));
    let site = Line::of(&[of(connections(), "script", "wait", false), tcp]);
    let mut client = site.client();
    client.send("through");
    assert_eq!(client.read_exact(7).unwrap(), b"through");
    let facts = ask(&mut client, "facts");
    assert!(facts.contains("upstream=here/1 cluster=origin host=0"), "{facts}");
}

#[test]
fn the_name_of_an_upstreams_host_is_known() {
    let origin = Origin::tcp_echo("");
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": origin.address.port()}});
    let endpoint = json!({"endpoint": {"address": address, "hostname": "host.test"}});
    let assignment = json!({"cluster_name": "origin", "endpoints": [{"lb_endpoints": [endpoint]}]});
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
    let filters = [of(connections(), "script", "wait", false), tcp];
    let config = Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]})).cluster_with(
        "origin",
        &[origin.address],
        json!({"load_assignment": assignment}),
    );
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("through");
    assert_eq!(client.read_exact(7).unwrap(), b"through");
    let facts = ask(&mut client, "facts");
    assert!(facts.contains("upstream=here/1 cluster=origin host=host.test "), "{facts}");
}

#[test]
fn what_serves_a_connection_that_is_held_back_begins_when_something_passes() {
    let echo = extension("envoy.filters.network.echo", "filters.network.echo.v3.Echo", json!({}));
    let site = Line::of(&[of(connections(), "script", "pass", false), echo]);
    let mut client = site.client();
    assert_eq!(ask(&mut client, "say first"), "first");
    client.send("through");
    assert_eq!(client.read_exact(7).unwrap(), b"through");
}

#[test]
fn a_module_hears_of_threads_and_calls() {
    let origin = Origin::fixed("HTTP/1.1 201 Made\r\ncontent-length: 3\r\n\r\nyes");
    let config = Config::new()
        .listener("tcp", json!({"filter_chains": [{"filters": [of(connections(), "script", "", true)]}]}))
        .cluster("origin", &[origin.address])
        .cluster("empty", &[]);
    let site = Line { proxy: Proxy::start(&config), origin };
    let mut client = site.client();
    assert_eq!(ask(&mut client, "later"), "event 7 held 0");
    assert_eq!(ask(&mut client, "call origin /x"), "call 0");
    assert_eq!(line(&mut client), "done 0 201 yes");
    assert_eq!(site.origin.requests()[0].target, "/x");
    for (command, answer) in [("origin none", "call 1"), ("nowhere /x", "call 2"), ("empty /x", "call 4")] {
        assert_eq!(ask(&mut client, &format!("call {command}")), answer);
    }
    assert_eq!(ask(&mut client, "hosts origin"), "1 1 1 0 0");
    assert_eq!(ask(&mut client, "hosts nowhere"), "0 9 9 9 0");
    assert_eq!(ask(&mut client, "deaf"), "event 7 held 0");
    assert_eq!(ask(&mut client, "gauge"), "1");
    assert_eq!((site.counted("level"), site.counted("lines")), (7, 9));
    client.send("!background\n");
    wait_until("the configuration's event", || site.counted("heard") == 3);
    wait_until("its gauge", || site.counted("level") == 11);
}

#[test]
fn a_module_ends_connections() {
    for kind in ["0", "1", "2"] {
        let site = Line::served();
        let mut client = site.client();
        client.send(format!("!close {kind}\n"));
        assert_eq!(client.read_to_end().unwrap(), b"bye\n", "{kind}");
        wait_until("the end", || site.counted("by_proxy") == 1);
    }
    let site = Line::served();
    let mut client = site.client();
    client.send("!close 4\n");
    assert!(client.read_exact(5).is_err());
    wait_until("the end", || site.counted("by_proxy") == 1);
}

/// The script in front of what else is there, or alone, where connections end by way of their filters.
fn kept(behind: &[Value]) -> Line {
    let alone = behind.is_empty();
    let filters = [&[of(connections(), "script", "", alone)], behind].concat();
    let origin = Origin::tcp_echo("");
    let key = "envoy.reloadable_features.connection_close_through_filter_manager";
    let config = Config::new()
        .listener("tcp", json!({"filter_chains": [{"filters": filters}]}))
        .cluster("origin", &[origin.address])
        .overlay(json!({"layered_runtime": {"layers": [{"name": "fixed", "static_layer": {key: true}}]}}));
    Line { proxy: Proxy::start(&config), origin }
}

#[test]
fn a_module_keeps_a_connection_from_ending() {
    let site = kept(&[]);
    for (kind, heard) in [("0", "bye\nstayed\n"), ("1", "bye\n"), ("2", "bye\nstayed\n"), ("3", "")] {
        let mut client = site.client();
        client.send(format!("!stay {kind}\n"));
        assert_eq!(String::from_utf8_lossy(&client.read_to_end().unwrap()), heard, "{kind}");
    }
    wait_until("the ends", || site.counted("by_proxy") == 4);
}

#[test]
fn a_module_keeps_a_connection_that_both_sides_ended() {
    let site = kept(&[tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}))]);
    let mut client = site.client();
    assert_eq!(ask(&mut client, "keep"), "kept");
    client.half_close();
    assert!(client.closed());
    assert_eq!(ask(&mut site.client(), "release"), "0 ended");
    wait_until("the ends of both", || site.counted("by_proxy") + site.counted("by_client") == 2);
}

#[test]
fn nothing_is_kept_where_connections_end_by_themselves() {
    let site = Line::served();
    let mut client = site.client();
    client.send("!stay 0\n");
    assert_eq!(client.read_to_end().unwrap(), b"bye\n");
}

#[test]
fn a_module_ends_its_side_and_still_hears() {
    let site = Line::served();
    let mut client = site.client();
    client.send("!half\n!finish\n");
    assert_eq!(client.read_to_end().unwrap(), b"last\n");
    client.send("!background\n");
    wait_until("what came behind the end", || site.counted("heard") == 3);
    client.half_close();
    wait_until("the end", || site.counted("by_client") == 1);
}

#[test]
fn what_the_client_does_not_take_is_told() {
    let site = Line::served();
    let mut client = site.client();
    client.send("!flood 20000000\n");
    wait_until("much to wait", || site.counted("above") == 1);
    assert_eq!(site.counted("below"), 0);
    client.read_exact(20_000_000).unwrap();
    wait_until("less to wait", || site.counted("below") == 1);
    assert_eq!(ask(&mut client, "say on"), "on");
}

#[test]
fn logs_know_what_a_module_noted_and_why_it_ended_a_connection() {
    let folder = TempDir::new();
    let path = folder.path().join("log");
    let format = "%DYNAMIC_METADATA(own:text)% %FILTER_STATE(own.state:PLAIN)% %CONNECTION_TERMINATION_DETAILS% \
                  %DYNAMIC_METADATA(own:end)%\n";
    let log = file_access_log(&path, json!({"log_format": {"text_format_source": {"inline_string": format}}}));
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin", "access_log": [log]}));
    let site = Line::of(&[module("script"), tcp]);
    let mut client = site.client();
    ask(&mut client, "note");
    client.send("!because enough said\n");
    assert!(client.closed());
    wait_until("the log", || std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "value kept enough said proxy\n");
}

#[test]
fn logs_know_that_a_module_closed_a_connection() {
    for (command, reason) in [("because enough said", "enough_said"), ("close 0", "dynamic_module_close")] {
        let folder = TempDir::new();
        let (path, of_listener) = (folder.path().join("log"), folder.path().join("listener"));
        let log = |path: &Path| {
            let format = "%DOWNSTREAM_LOCAL_CLOSE_REASON%\n";
            file_access_log(path, json!({"log_format": {"text_format_source": {"inline_string": format}}}))
        };
        let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin", "access_log": [log(&path)]}));
        let origin = Origin::tcp_echo("");
        let chains = json!([{"filters": [module("script"), tcp]}]);
        let fields = json!({"filter_chains": chains, "access_log": [log(&of_listener)]});
        let config = Config::new().listener("tcp", fields).cluster("origin", &[origin.address]);
        let proxy = Proxy::start(&config);
        let mut client = RawClient::connect(proxy.address("tcp"));
        client.send(format!("!{command}\n"));
        client.read_to_end().unwrap();
        for path in [&path, &of_listener] {
            wait_until("the log", || std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')));
            assert_eq!(std::fs::read_to_string(path).unwrap().trim_end(), reason);
        }
    }
}

#[test]
fn a_module_stands_in_front_of_requests() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let manager = http_filter(json!({"stat_prefix": "h", "route_config": {"virtual_hosts": [
        {"name": "all", "domains": ["*"], "routes": routes},
    ]}}));
    let config = Config::new()
        .listener("tcp", json!({"filter_chains": [{"filters": [module("script"), manager]}]}))
        .cluster("origin", &[origin.address]);
    let site = Line { proxy: Proxy::start(&config), origin };
    let mut client = site.client();
    assert_eq!(ask(&mut client, "say before"), "before");
    for _ in 0..2 {
        let answer = client.exchange(get("/x"));
        assert_eq!((answer.status, answer.text()), (200, "ok"));
        assert_eq!(ask(&mut client, "later"), "event 7 held 0");
    }
    assert_eq!(site.origin.requests().len(), 2);
}

#[test]
fn a_connection_that_the_module_makes_nothing_for_ends() {
    let site = Line::carried(&[of(connections(), "script", "none", false)]);
    let mut client = site.client();
    assert!(client.closed());
    assert_eq!(site.origin.connection_count(), 0);
}

#[test]
fn a_connection_that_a_module_resets_as_it_begins_is_reset() {
    let site = Line::served_with("reset");
    assert!(RawClient::is_reset(site.proxy.address("tcp")));
    wait_until("the end", || site.counted("by_proxy") == 1);
    assert_eq!(site.counted("connected"), 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    if !postrider_only() {
        return;
    }
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
    for (filters, wanted) in [
        (vec![module("script")], "this filter serves no connection"),
        (vec![of(connections(), "script", "", true), tcp.clone()], "this filter ends the chain"),
        (vec![module("nothing"), tcp.clone()], "refuses the configuration of its filter `nothing`"),
        (
            vec![of(script(), "script", "", false), tcp],
            "has no network filters: it lacks envoy_dynamic_module_on_network_filter_config_new, ",
        ),
    ] {
        let config = Config::new()
            .listener("tcp", json!({"filter_chains": [{"filters": filters}]}))
            .cluster("origin", &["127.0.0.1:9".parse().unwrap()]);
        let said = refusal(&config);
        assert!(said.contains(wanted), "{said}");
    }
}
