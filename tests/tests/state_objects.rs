//! Objects of the filter state that change what the proxy does: with upstreams, with connections that it carries, and with
//! what it asks a rate limit service.

use postrider_tests::kit::config::{extension, http_filter, overlay, router, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient};
use postrider_tests::site::{self, Site};
use postrider_tests::tls::{Authority, upstream};
use postrider_tests::tls_origin::{Serving, TlsOrigin};
use postrider_tests::{ask, envoy, get};
use serde_json::{Value, json};

const SERVER_NAME: &str = "envoy.network.upstream_server_name";
const PROTOCOLS: &str = "envoy.network.application_protocols";
const ALT_NAMES: &str = "envoy.network.upstream_subject_alt_names";
const DESTINATION: &str = "envoy.network.transport_socket.original_dst_address";

/// An object of what the request's field of that name says, if it is there.
fn of_field(key: &str, field: &str, more: Value) -> Value {
    let format = json!({
        "text_format_source": {"inline_string": format!("%REQ({field})%")}, "omit_empty_values": true,
    });
    let mut object = json!({"object_key": key, "format_string": format, "skip_if_empty": true});
    overlay(&mut object, more);
    object
}

fn fixed(key: &str, text: &str) -> Value {
    json!({"object_key": key, "format_string": {"text_format_source": {"inline_string": text}}})
}

fn for_requests(objects: Value) -> Value {
    extension(
        "envoy.filters.http.set_filter_state",
        "filters.http.set_filter_state.v3.Config",
        json!({"on_request_headers": objects}),
    )
}

fn for_connections(objects: Value) -> Value {
    extension(
        "envoy.filters.network.set_filter_state",
        "filters.network.set_filter_state.v3.Config",
        json!({"on_new_connection": objects}),
    )
}

/// A site whose `/` leads to `origin` by TLS of this kind, and to an origin without TLS below `/plain`.
fn secured(origin: &TlsOrigin, context: Value, objects: Value) -> Site {
    site::with([for_requests(objects)])
        .routes(json!([
            {"match": {"prefix": "/plain"}, "route": {"cluster": "origin"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "secure"}},
        ]))
        .cluster("secure", &[origin.address], json!({"transport_socket": upstream(context)}))
        .log("%UPSTREAM_TRANSPORT_FAILURE_REASON%")
        .start()
}

fn trusting(authority: &Authority) -> Value {
    json!({"sni": "own.test", "common_tls_context": {
        "validation_context": {"trusted_ca": {"inline_string": authority.pem()}},
        "alpn_protocols": ["http/1.1"],
    }})
}

fn asked_for(origin: &TlsOrigin) -> Vec<String> {
    origin.hellos().into_iter().map(|hello| hello.server_name.unwrap_or_default()).collect()
}

#[test]
fn the_name_to_ask_for_is_an_object_and_connections_of_other_names_do_not_serve() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["any.test"])).start();
    let site = secured(&origin, trusting(&authority), json!([of_field(SERVER_NAME, "x-name", json!({}))]));
    let ask = |name: &str| assert_eq!(site.get("/", &format!("x-name: {name}\r\n")).status, 200);
    ask("a.test");
    ask("b.test");
    ask("a.test");
    assert_eq!(site.get("/", "").status, 200);
    ask("b.test");
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(asked_for(&origin), ["a.test", "b.test", "own.test"]);
    // Without TLS, too.
    for name in ["a", "b", "a", "b"] {
        assert_eq!(site.get("/plain", &format!("x-name: {name}\r\n")).status, 200);
    }
    assert_eq!(site.get("/plain", "").status, 200);
    assert_eq!(site.origin.connection_count(), 3);
}

#[test]
fn what_is_offered_by_alpn_is_an_object() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["any.test"])).offering(&["one", "two", "http/1.1"]).start();
    let site = secured(&origin, trusting(&authority), json!([of_field(PROTOCOLS, "x-offer", json!({}))]));
    for offer in ["two,http/1.1", "three,one", "two,http/1.1"] {
        assert_eq!(site.get("/", &format!("x-offer: {offer}\r\n")).status, 200, "{offer}");
    }
    assert_eq!(site.get("/", "").status, 200);
    let spoken: Vec<_> = origin.hellos().into_iter().map(|hello| hello.protocol).collect();
    assert_eq!(spoken, ["two", "one", "http/1.1"]);
}

#[test]
fn a_certificate_must_have_one_of_the_names_that_an_object_says() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["*.one.test", "two.test", "127.0.0.1"])).start();
    let objects = json!([of_field(ALT_NAMES, "x-names", json!({}))]);
    let site = secured(&origin, trusting(&authority), objects.clone());
    let ask = |names: &str| site.get("/", &format!("x-names: {names}\r\n")).status;
    // A connection that was made before, for which nobody asked for a name.
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(["a.one.test", "other.test,TWO.test", "127.0.0.1"].map(ask), [200, 200, 200]);
    assert_eq!(["other.test", "one.test", "a.b.one.test"].map(ask), [503, 503, 503]);
    assert_eq!(site.stat("cluster.secure.ssl.fail_verify_san"), 3);
    assert!(site.logged(5).to_lowercase().contains("tls"), "{}", site.logged(5));

    // What the cluster wants is wanted besides.
    let mut context = trusting(&authority);
    let wanted = json!([{"san_type": "DNS", "matcher": {"exact": "two.test"}}]);
    context["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"] = wanted;
    let site = secured(&origin, context.clone(), objects.clone());
    assert_eq!(site.get("/", "x-names: a.one.test\r\n").status, 200);
    assert_eq!(site.get("/", "x-names: no.test\r\n").status, 503);
    let other = json!([{"san_type": "DNS", "matcher": {"exact": "three.test"}}]);
    context["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"] = other;
    let site = secured(&origin, context, objects);
    assert_eq!(site.get("/", "x-names: two.test\r\n").status, 503);
}

#[test]
fn names_of_a_certificate_are_looked_at_where_nobody_is_trusted() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["two.test"])).start();
    let site = secured(&origin, json!({}), json!([of_field(ALT_NAMES, "x-names", json!({}))]));
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(site.get("/", "x-names: two.test\r\n").status, 200);
    // Envoy looks at no certificate then.
    assert_eq!(site.get("/", "x-names: three.test\r\n").status, if envoy() { 200 } else { 503 });
}

#[test]
fn objects_of_the_connection_act_for_its_requests() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["any.test"])).start();
    let hcm = json!({
        "http_filters": [for_requests(json!([of_field(SERVER_NAME, "x-name", json!({}))])), router()],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "secure"}},
        ]}]},
    });
    let filters = [for_connections(json!([fixed(SERVER_NAME, "of.connection.test")])), http_filter(hcm)];
    let config = Config::new().listener("http", json!({"filter_chains": [{"filters": filters}]})).cluster_with(
        "secure",
        &[origin.address],
        json!({"transport_socket": upstream(trusting(&authority))}),
    );
    let proxy = Proxy::start(&config);
    for fields in ["", "x-name: own.request.test\r\n", ""] {
        assert_eq!(ask(&proxy, "GET", "test", "/", fields).status, 200);
    }
    // What a connection has, its requests do not replace.
    assert_eq!(asked_for(&origin), ["of.connection.test"]);
}

#[test]
fn shared_texts_that_can_be_hashed_part_connections() {
    let hashable = json!({"factory_key": "envoy.hashable_string", "shared_with_upstream": "ONCE"});
    let plain = json!({"factory_key": "envoy.string", "shared_with_upstream": "TRANSITIVE"});
    let alone = json!({"factory_key": "envoy.hashable_string"});
    let objects = json!([of_field("h", "x-h", hashable), of_field("s", "x-s", plain), of_field("n", "x-n", alone)]);
    let shown = ["h", "s", "n"].map(|key| format!("%UPSTREAM_FILTER_STATE({key}:PLAIN)%")).join(" ");
    let site = site::with([for_requests(objects)]).log(&shown).start();
    let ask = |fields: &str| assert_eq!(site.get("/", fields).status, 200);
    ask("");
    for value in ["1", "2"] {
        ask(&format!("x-s: {value}\r\nx-n: {value}\r\n"));
    }
    assert_eq!(site.origin.connection_count(), 1);
    for value in ["1", "2", "1", "2"] {
        ask(&format!("x-h: {value}\r\n"));
    }
    assert_eq!(site.origin.connection_count(), 3);
    ask("x-h: 3\r\nx-s: 3\r\nx-n: 3\r\n");
    assert_eq!([1, 4, 5, 8].map(|line| site.logged(line)), ["- - -", "1 - -", "2 - -", "3 3 -"]);
}

#[test]
fn where_a_request_goes_that_knows_no_other_place_is_an_object() {
    let (one, two) = (Origin::echo("one"), Origin::echo("two"));
    let cluster = json!({"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "load_assignment": null});
    let site = site::with([for_requests(json!([of_field(DESTINATION, "x-to", json!({}))]))])
        .routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "meant"}}]))
        .cluster("meant", &[], cluster)
        .log(&format!(
            "%FILTER_STATE({DESTINATION}:PLAIN)% %FILTER_STATE({DESTINATION}:FIELD:ip)% \
             %FILTER_STATE({DESTINATION}:FIELD:port)% %FILTER_STATE({DESTINATION}:TYPED)%"
        ))
        .start();
    for (origin, name) in [(&one, "one"), (&two, "two"), (&one, "one")] {
        let answer = site.get("/", &format!("x-to: {}\r\n", origin.address));
        assert_eq!((answer.status, answer.header("x-origin")), (200, name));
    }
    assert_eq!(site.get("/", "x-to: nowhere\r\n").status, 503);
    assert_eq!(site.logged(1), format!("{} 127.0.0.1 {} -", one.address, one.address.port()));
    assert_eq!(site.logged(4), "- - - -");
}

#[test]
fn objects_are_shown_as_what_they_are() {
    let keys = [
        (SERVER_NAME, "Up.test"),
        (PROTOCOLS, "h2,http/1.1"),
        (ALT_NAMES, "a.test,B.test"),
        ("envoy.ratelimit.hits_addend", "7"),
        ("envoy.network.ip", "::1"),
        ("envoy.tcp_proxy.disable_tunneling", "true"),
        ("envoy.tcp_proxy.per_connection_idle_timeout_ms", "1500"),
        ("envoy.filters.listener.original_dst.local_ip", "[::1]:81"),
        ("envoy.tcp_proxy.cluster", "c"),
    ];
    let objects: Vec<_> = keys.iter().map(|(key, text)| fixed(key, text)).collect();
    let form = |form: &str| keys.map(|(key, _)| format!("%FILTER_STATE({key}:{form})%")).join(" ");
    let cel = [SERVER_NAME, "envoy.ratelimit.hits_addend", "envoy.tcp_proxy.disable_tunneling"]
        .map(|key| format!("%CEL(filter_state['{key}'])%"))
        .join(" ");
    let site = site::with([for_requests(json!(objects))])
        .log(&format!(
            "{} | {} | {cel} %CEL(filter_state['envoy.filters.listener.original_dst.local_ip'].port)%",
            form("PLAIN"),
            form("TYPED")
        ))
        .start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(
        site.logged(1),
        "Up.test - a.test,B.test 7 [::1]:0 true 1500 [::1]:81 c | - - - 7 - true \"1500\" - - | Up.test 7 true 81"
    );
}

#[test]
fn a_connection_that_is_carried_asks_for_the_name_of_its_object() {
    let authority = Authority::new("authority");
    let origin = Serving::new(&authority.issue(&["any.test"])).start();
    let objects = json!([fixed(SERVER_NAME, "carried.test"), fixed(ALT_NAMES, "any.test"), fixed(PROTOCOLS, "mine")]);
    let filters = [for_connections(objects), tcp_filter(json!({"stat_prefix": "x", "cluster": "secure"}))];
    let config = Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]})).cluster_with(
        "secure",
        &[origin.address],
        json!({"transport_socket": upstream(trusting(&authority))}),
    );
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    assert_eq!(client.exchange(get("/")).status, 200);
    assert_eq!(asked_for(&origin), ["carried.test"]);
}

#[test]
fn how_long_a_connection_may_be_idle_is_an_object() {
    let origin = Origin::tcp_echo("hello");
    let idle = |text: &str| {
        let objects = json!([fixed("envoy.tcp_proxy.per_connection_idle_timeout_ms", text)]);
        let carried = json!({"stat_prefix": "x", "cluster": "origin", "idle_timeout": "0.5s"});
        let config = Config::new()
            .listener("tcp", json!({"filter_chains": [{"filters": [for_connections(objects), tcp_filter(carried)]}]}))
            .cluster("origin", &[origin.address]);
        Proxy::start(&config)
    };
    let proxy = idle("1000");
    let begun = std::time::Instant::now();
    let mut client = RawClient::connect(proxy.address("tcp"));
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    assert!(client.closed());
    assert!(begun.elapsed() >= std::time::Duration::from_millis(990));
    proxy.wait_stat("tcp.x.idle_timeout", 1);
    // What is no number is none.
    let proxy = idle("soon");
    let mut client = RawClient::connect(proxy.address("tcp"));
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    assert!(client.closed());
}

#[test]
fn a_connection_may_go_without_the_tunnel() {
    let origin = Origin::tcp_echo("straight");
    for (text, straight) in [("true", true), ("false", false)] {
        let objects = json!([fixed("envoy.tcp_proxy.disable_tunneling", text)]);
        let carried = json!({
            "stat_prefix": "x", "cluster": "origin", "tunneling_config": {"hostname": "far.test:443"},
        });
        let config = Config::new()
            .listener("tcp", json!({"filter_chains": [{"filters": [for_connections(objects), tcp_filter(carried)]}]}))
            .cluster("origin", &[origin.address]);
        let proxy = Proxy::start(&config);
        let mut client = RawClient::connect(proxy.address("tcp"));
        if straight {
            assert_eq!(client.read_exact(8).unwrap(), b"straight");
        } else {
            // It is no proxy.
            assert!(client.closed());
        }
    }
}
