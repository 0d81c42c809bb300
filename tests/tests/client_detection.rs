//! Where requests come from by the extensions that find it out, and what becomes of ids from outside.

use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::site::{self, Site};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;

const CLIENT: &str = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %RESPONSE_CODE% %RESPONSE_CODE_DETAILS%";

fn extension(kind: &str, mut config: Value) -> Value {
    config["@type"] = format!("type.googleapis.com/envoy.extensions.http.original_ip_detection.{kind}").into();
    json!({"name": "any", "typed_config": config})
}

fn header(config: Value) -> Value {
    extension("custom_header.v3.CustomHeaderConfig", config)
}

fn forwarded(config: Value) -> Value {
    extension("xff.v3.XffConfig", config)
}

fn found_by(extensions: Value) -> Site {
    site::with([]).log(CLIENT).manager(json!({"original_ip_detection_extensions": extensions})).start()
}

/// What the log calls the client of requests with these fields.
fn clients<const N: usize>(site: &Site, fields: [&str; N]) -> [String; N] {
    let mut line = 0;
    fields.map(|fields| {
        site.get("/", fields);
        line += 1;
        site.logged(line).split(' ').next().unwrap_or_default().to_owned()
    })
}

#[test]
fn a_header_of_its_own_names_the_client() {
    let site = found_by(json!([header(json!({"header_name": "X-Real-IP"})), forwarded(json!({}))]));
    let found = clients(
        &site,
        [
            "x-real-ip: 1.2.3.4\r\n",
            "x-real-ip: 1.2.3.4\r\nx-forwarded-for: 9.9.9.9\r\n",
            "x-real-ip: no\r\nx-forwarded-for: 9.9.9.9\r\n",
            "x-real-ip: ::1\r\n",
            "",
        ],
    );
    assert_eq!(found, ["1.2.3.4", "1.2.3.4", "9.9.9.9", "::1", "127.0.0.1"]);
    assert!(!site.origin.requests()[0].headers.contains("x-forwarded-for"), "nothing is added");
}

#[test]
fn who_does_not_name_its_client_is_refused_where_that_is_asked() {
    for (code, status) in [("Unauthorized", 401), ("OK", 403)] {
        let site = found_by(json!([header(json!({"header_name": "x-ip", "reject_with_status": {"code": code}}))]));
        let refused = site.get("/", "x-ip: 1.2.3.4:80\r\n");
        assert_eq!((refused.status, refused.text()), (status, ""));
        assert_eq!(site.logged(1), format!("127.0.0.1 {status} rejecting_because_detection_failed"));
        assert_eq!(site.get("/", "x-ip: 1.2.3.4\r\n").status, 200);
        assert_eq!(site.stat("http.ingress_http.downstream_rq_rejected_via_ip_detection"), 1);
    }
}

#[test]
fn trusted_networks_and_hops_lead_to_the_client() {
    let networks =
        json!([{"address_prefix": "127.0.0.0", "prefix_len": 8}, {"address_prefix": "10.0.0.0", "prefix_len": 8}]);
    let site = found_by(json!([forwarded(json!({"xff_trusted_cidrs": {"cidrs": networks}}))]));
    let found = clients(
        &site,
        [
            "x-forwarded-for: 8.8.8.8, 9.9.9.9,10.0.0.1\r\n",
            "x-forwarded-for: 10.1.1.1,10.2.2.2\r\n",
            "x-forwarded-for: 8.8.8.8,bad,10.0.0.1\r\n",
            "x-forwarded-for: bad,8.8.8.8\r\n",
        ],
    );
    assert_eq!(found, ["9.9.9.9", "10.1.1.1", "127.0.0.1", "8.8.8.8"]);
    let site = found_by(json!([forwarded(json!({"xff_num_trusted_hops": 1, "skip_xff_append": false}))]));
    assert_eq!(clients(&site, ["x-forwarded-for: 8.8.8.8, 9.9.9.9,10.0.0.1\r\n"]), ["9.9.9.9"]);
    let told = site.origin.requests()[0].header("x-forwarded-for").to_owned();
    assert!(told.starts_with("8.8.8.8, 9.9.9.9,10.0.0.1,"), "the peer is added: {told}");
}

#[test]
fn an_id_from_outside_says_nothing_of_tracing_unless_that_is_wanted() {
    for (packs, kept) in [(Value::Null, '4'), (json!(true), '4'), (json!(false), '9')] {
        let mut manager =
            json!({"use_remote_address": true, "generate_request_id": true, "preserve_external_request_id": true});
        if !packs.is_null() {
            manager["request_id_extension"] = json!({"typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig",
                "pack_trace_reason": packs,
            }});
        }
        let origin = Origin::echo("a");
        let header = "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";
        let config = Config::proxy_to(origin.address).overlay_filter("http", manager).overlay_listener(
            "http",
            json!({"listener_filters": [{"name": "proxy", "typed_config": {"@type": header}}]}),
        );
        let proxy = Proxy::start(&config);
        for id in ["7f1a6f1e-3c3b-9b3c-8f4e-0a6c1e2d3f4a", "other"] {
            let request = format!("GET / HTTP/1.1\r\nhost: test\r\nx-request-id: {id}\r\n\r\n");
            assert_eq!(proxy.exchange(format!("PROXY TCP4 8.8.8.8 127.0.0.1 1000 80\r\n{request}")).status, 200);
        }
        let seen = origin.requests();
        let ids: Vec<&str> = seen.iter().map(|seen| seen.header("x-request-id")).collect();
        assert_eq!(ids, [format!("7f1a6f1e-3c3b-{kept}b3c-8f4e-0a6c1e2d3f4a").as_str(), "other"]);
    }
}

#[test]
fn a_client_at_the_edge_could_say_to_which_port_it_came() {
    for (edge, hops, kept) in [(true, 0, false), (true, 1, true), (false, 0, true)] {
        let manager =
            json!({"append_x_forwarded_port": true, "use_remote_address": edge, "xff_num_trusted_hops": hops});
        let site = site::with([]).manager(manager).start();
        let own = site.proxy.address("http").port().to_string();
        for (fields, wanted) in [("x-forwarded-port: 99\r\n", if kept { "99" } else { &own }), ("", &own)] {
            site.origin.forget();
            assert_eq!(site.get("/", fields).status, 200);
            assert_eq!(site.origin.requests()[0].header("x-forwarded-port"), wanted, "{edge} {hops} {fields}");
        }
    }
}

#[test]
fn a_forwarded_scheme_in_capitals_was_taken_for_http() {
    let site = site::with([])
        .routes(json!([
            {"match": {"prefix": "/r"}, "redirect": {"path_redirect": "/there"}},
            site::rest(),
        ]))
        .log("%REQ(:SCHEME)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%")
        .start();
    let mut line = 0;
    for (told, scheme) in
        [("HTTPS", "https"), ("hTTpS", "https"), ("https", "https"), ("HTTP", "http"), ("foo", "http")]
    {
        let fields = format!("x-forwarded-proto: {told}\r\n");
        assert_eq!(site.get("/r", &fields).header("location"), format!("{scheme}://test/there"));
        site.origin.forget();
        assert_eq!(site.get("/", &fields).status, 200);
        assert_eq!(site.origin.requests()[0].header("x-forwarded-proto"), told, "it is passed on as it came");
        line += 2;
        assert_eq!(site.logged(line), format!("{scheme} 200 - via_upstream"));
    }
    for path in ["/", "/r"] {
        assert_eq!(site.get(path, "x-forwarded-proto:\r\n").status, 404);
        line += 1;
        assert_eq!(site.logged(line), "http 404 NR route_not_found");
    }
    assert_eq!(site.stat("http.ingress_http.no_route"), 2);
}

#[test]
fn who_comes_through_a_socket_of_the_system_may_be_inside() {
    let origin = Origin::echo("a");
    for (unix_sockets, edge) in [(true, true), (false, true), (true, false), (false, false)] {
        let folder = TempDir::new();
        let path = folder.path().join("socket");
        let config = Config::proxy_to(origin.address)
            .overlay_filter(
                "http",
                json!({"use_remote_address": edge, "internal_address_config": {
                    "unix_sockets": unix_sockets, "cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}],
                }}),
            )
            .overlay_listener("http", json!({"address": {"socket_address": null, "pipe": {"path": path}}}));
        let _proxy = Proxy::start(&config);
        wait_until("the socket", || path.exists());
        let mut client = RawClient::over(UnixStream::connect(&path).expect("connect"));
        origin.forget();
        assert_eq!(client.exchange("GET / HTTP/1.1\r\nhost: test\r\nx-envoy-max-retries: 7\r\n\r\n").status, 200);
        let request = &origin.requests()[0];
        // Inside, it is the field that says where a client is, and there is none.
        let told = if unix_sockets && edge { "true" } else { "" };
        assert_eq!(request.header("x-envoy-internal"), told, "{unix_sockets} {edge}");
    }
}
