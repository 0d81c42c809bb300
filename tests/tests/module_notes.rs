//! What native modules note of a stream and ask for beside its messages: the same shared object in both proxies.

use std::sync::{Mutex, mpsc};

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::modules::asks;
use postrider_tests::postrider_only;
use postrider_tests::site::{self, Plan, Site};
use postrider_tests::tls::{Authority, Client, secured};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.dynamic_modules";
const TYPE: &str = "filters.http.dynamic_modules.v3.DynamicModuleFilter";

fn filter() -> Value {
    let fields = json!({"dynamic_module_config": {"module": {"local": {"filename": asks()}}}, "filter_name": "asks"});
    extension(NAME, TYPE, fields)
}

fn asking() -> Plan {
    site::with([filter()])
}

/// What the origin got of the last request.
fn seen(site: &Site, name: &str) -> String {
    let requests = site.origin.requests();
    requests.last().unwrap().headers.values(name).join("|")
}

#[test]
fn structures_messages_and_flags_are_noted() {
    let line = "%CUSTOM_FLAGS% %RESPONSE_FLAGS% %DYNAMIC_METADATA(m)% %DYNAMIC_METADATA(empty)% %DYNAMIC_METADATA(t)%";
    let site = asking().log(line).start();
    assert_eq!(site.get("/", "").status, 200);
    // Before and after it was set, beside a plain value of that namespace.
    assert_eq!(seen(&site, "x-typed"), "0 1 type.googleapis.com/some.Thing xyz");
    // What the structure has takes the place of what was there, and the rest stays.
    let metadata = r#"{"a":1.5,"kept":"yes","l":["x",null],"s":{"b":true}}"#;
    assert_eq!(site.logged(1), format!(r#"SLOW,ODD - {metadata} {{}} {{"k":"v"}}"#));
}

#[test]
fn what_is_noted_when_a_stream_is_complete_is_in_its_record() {
    let line =
        "%CUSTOM_FLAGS% %DYNAMIC_METADATA(late:text)% %DYNAMIC_METADATA(late:number)% %FILTER_STATE(late.state:PLAIN)%";
    let site = asking().log(line).start();
    assert_eq!(site.get("/late", "").status, 200);
    assert_eq!(site.logged(1), "SLOW,ODD,LATE noted 2 kept");
    assert!(site.proxy.stderr().contains("asks: late noted kept"), "it reads what it noted");
}

#[test]
fn nothing_is_flagged_where_nobody_does() {
    let site = site::with([]).log("<%CUSTOM_FLAGS%>").start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(site.logged(1), "<>");
}

#[test]
fn filter_state_has_values_of_types_and_objects_of_modules() {
    let site =
        asking().log("%FILTER_STATE(value:PLAIN)% %FILTER_STATE(envoy.bool:PLAIN)% %FILTER_STATE(first)%").start();
    let mut client = site.proxy.client();
    let request = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    assert_eq!(client.exchange(request).status, 200);
    // A text and a truth are made and found; what is no truth leaves it; nothing makes `mine`. Bytes that are no text are found
    // as they are.
    assert_eq!(seen(&site, "x-state"), "111 two 11text 11true 01true 00 110");
    // Set, found, there, and not under other names. Of those that something else replaced, each was destroyed once.
    assert_eq!(seen(&site, "x-objects"), "1111 112 11 text");
    assert_eq!(seen(&site, "x-destroyed"), "0");
    assert_eq!(site.logged(1), "two true -");
    // With the stream, what it had is destroyed.
    assert_eq!(client.exchange(request).status, 200);
    assert_eq!(seen(&site, "x-destroyed"), "3");
}

#[test]
fn times_and_hosts_are_known_as_far_as_the_stream_has_come() {
    let site = asking().start();
    let answer = site.get("/at?all", "");
    // Its start, and no upstream yet.
    assert_eq!(seen(&site, "x-before"), "1 0 0 0");
    let host = site.origin.address;
    assert_eq!(answer.header("x-hosts"), format!("1 {host} 1 1"));
    // The request came, was sent and answered, in that order; without TLS, and not at its end.
    assert_eq!(answer.header("x-moments"), "11 000");
    wait_until("the end of the stream", || site.proxy.stderr().contains("asks: 1 none 11"));
    // Its messages can be read then.
    let stderr = site.proxy.stderr();
    assert!(stderr.contains(" body of GET /at?all 200"), "{stderr}");
}

#[test]
fn metadata_of_clusters_hosts_and_localities_is_found() {
    let of = |name: &str| {
        let message = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": name});
        let values = json!({"m": {"of": name, "list": [format!("{name}s")]}});
        json!({"filter_metadata": values, "typed_filter_metadata": {"x": message}})
    };
    let origin = Origin::echo("a");
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": origin.address.port()}});
    let host = json!({"endpoint": {"address": address}, "metadata": of("host")});
    let endpoints = json!([{"lb_endpoints": [host], "metadata": of("locality")}]);
    let upstream = json!({
        "metadata": of("cluster"), "load_assignment": {"cluster_name": "origin", "endpoints": endpoints},
    });
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}, "metadata": of("r")});
    let site = asking().routes(json!([route])).upstream(upstream).start_before(origin);
    let answer = site.get("/", "");
    assert_eq!(answer.status, 200);
    // The host is chosen after the request's head.
    assert_eq!(seen(&site, "x-around"), "cluster 2 clusters m, none 0 - -, none 0 - -");
    assert_eq!(answer.header("x-around"), "cluster 2 clusters m, host 2 hosts m, locality 2 localitys m");
    let typed = |name: &str| {
        let bytes = name.bytes().map(|byte| format!(" {byte:02x}")).collect::<String>();
        format!("10 StringValue 0a {:02x}{bytes}", name.len())
    };
    assert_eq!(seen(&site, "x-messages"), format!("{}, {}, 00 none, 00 none", typed("r"), typed("cluster")));
    let all = ["r", "cluster", "host", "locality"].map(typed).join(", ");
    assert_eq!(answer.header("x-messages"), all);
    // Where they say nothing.
    let site = asking().start();
    let answer = site.get("/", "");
    assert_eq!(answer.header("x-around"), "none 0 - -, none 0 - -, none 0 - -");
    assert_eq!(answer.header("x-messages"), "00 none, 00 none, 00 none, 00 none");
}

#[test]
fn what_lasts_as_long_as_the_connection_is_found_by_its_later_requests() {
    let site = asking().log("%FILTER_STATE(lasts:PLAIN)%").start();
    let mut client = site.proxy.client();
    let request = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    assert_eq!(client.exchange(request).status, 200);
    // Nothing that lives shorter takes its place, nor the other way round; an object that is refused is destroyed.
    assert_eq!(seen(&site, "x-lasting"), "none 0, 1111 long x, 101 1");
    assert_eq!(client.exchange(request).status, 200);
    assert_eq!(seen(&site, "x-lasting"), "long 1, 1111 long x, 101 1");
    assert_eq!(site.logged(2), "long");
    let gone = "asks: the connection took it along";
    assert!(!site.proxy.stderr().contains(gone));
    drop(client);
    wait_until("the end of the connection", || site.proxy.stderr().contains(gone));
    // Another connection has its own.
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(seen(&site, "x-lasting"), "none 0, 1111 long x, 101 1");
}

#[test]
fn the_moments_of_a_connection_are_before_those_of_its_requests() {
    let site = asking().start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(seen(&site, "x-connection"), "100 1");
    let (authority, origin) = (Authority::new("authority"), Origin::echo("a"));
    let config = Config::routes(json!([site::rest()]))
        .cluster("origin", &[origin.address])
        .overlay_filter("http", json!({"http_filters": [filter(), router()]}));
    let proxy = Proxy::start(&secured(config, &authority.issue(&["a.test"]), json!({})));
    let mut client = Client::trusting(&authority).connect(proxy.address("http"), "a.test");
    for _ in 0..2 {
        assert_eq!(client.exchange("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").status, 200);
        assert_eq!(origin.requests().last().unwrap().headers.values("x-connection"), ["111 1"]);
    }
}

#[test]
fn a_body_that_comes_behind_its_head_began_then() {
    let (goes_on, waits) = mpsc::sync_channel(1);
    let waits = Mutex::new(waits);
    let origin = Origin::start(move |connection| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
        while let Some(request) = connection.request() {
            if request.target == "/late" {
                connection.write(head.as_bytes());
                waits.lock().unwrap().recv().unwrap();
                connection.write(b"ok");
            } else {
                connection.write(format!("{head}ok").as_bytes());
            }
        }
    });
    let site = asking().start_before(origin);
    let mut client = site.proxy.client();
    client.send("GET /late HTTP/1.1\r\nhost: test\r\n\r\n");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.read_exact(1).unwrap());
    }
    goes_on.send(()).unwrap();
    assert_eq!(client.read_exact(2).unwrap(), b"ok");
    wait_until("the end of the stream", || site.proxy.stderr().contains(", later body"));
    // Envoy looks at its clock again.
    if postrider_only() {
        assert_eq!(site.get("/", "").status, 200);
        wait_until("the end of the stream", || site.proxy.stderr().contains(", same body"));
    }
}

#[test]
fn the_answer_of_a_stream_to_a_cluster_has_its_trailers() {
    let there =
        Origin::fixed("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-after: yes\r\n\r\n");
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
    });
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let cluster = json!({"typed_extension_protocol_options": {name: options}});
    let config = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "there"});
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": asks()}}}, "filter_name": "fetch", "filter_config": config,
    });
    let site = site::with([extension(NAME, TYPE, fields)]).cluster("there", &[there.address], cluster).start();
    let answer = site.get("/", "");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), "head 200 0; body hello 0; trailer x-after 1; is yes 1");
}

#[test]
fn secrets_are_found_by_their_names() {
    let folder = TempDir::new();
    let file = folder.path().join("secret");
    std::fs::write(&file, "from a file").unwrap();
    let secrets = json!([
        {"name": "token", "generic_secret": {"secret": {"inline_string": "hush"}}},
        {"name": "of_file", "generic_secret": {"secret": {"filename": file}}},
    ]);
    let site = asking().whole(json!({"static_resources": {"secrets": secrets}})).start();
    assert_eq!(site.get("/", "").status, 200);
    // Read where it was asked for; the same one twice; not one that is not there, of another source, or of another number.
    assert_eq!(seen(&site, "x-secrets"), "1 hush hush from a file none none none");
    let log = site.proxy.stderr();
    assert!(log.contains("secret `absent`") || log.contains("secret 'absent'"), "{log}");
    wait_until("the end of the stream", || site.proxy.stderr().contains("asks: 1 hush 11"));
}

#[test]
fn runtime_values_are_known_while_a_configuration_is_made() {
    let layers = json!([
        {"name": "first", "static_layer": {"module": {"on": true, "count": 1, "words": "text", "below": -2}}},
        {"name": "second", "static_layer": {"module.count": 3, "module": {"share": 0.25, "digits": "42"}}},
    ]);
    let site = asking().whole(json!({"layered_runtime": {"layers": layers}})).start();
    assert_eq!(site.get("/", "").status, 200);
    let known =
        "on=11,77,7.5 count=11,3,3 share=01,0,0.25 below=11,77,-2 words=01,77,7.5 digits=11,42,42 absent=01,77,7.5";
    assert_eq!(seen(&site, "x-runtime"), known);
    // On workers there are none.
    let names = ["on", "count", "share", "below", "words", "digits", "absent"];
    assert_eq!(seen(&site, "x-runtime-here"), names.map(|name| format!("{name}=01,77,7.5")).join(" "));
}
