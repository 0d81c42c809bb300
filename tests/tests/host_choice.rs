//! Hosts that requests name, what clusters hash and drop, and labels that count or not.

use std::collections::BTreeMap;

use postrider_tests::kit::config::{self, extension};
use postrider_tests::kit::{Config, Origin, Proxy};
use postrider_tests::site;
use postrider_tests::{ask, envoy};
use serde_json::{Value, json};

/// Answers everything with its name.
fn named(name: &str) -> Origin {
    Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len()))
}

fn policy(kind: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.load_balancing_policies.{kind}"));
    json!({"policies": [{"typed_extension_config": {"name": "x", "typed_config": fields}}]})
}

fn round_robin() -> Value {
    policy("round_robin.v3.RoundRobin", json!({}))
}

fn endpoint(origin: &Origin, fields: Value) -> Value {
    let address = config::socket_address(&origin.address.ip().to_string(), origin.address.port());
    let mut endpoint = json!({"endpoint": {"address": address}});
    config::overlay(&mut endpoint, fields);
    endpoint
}

fn assignment(endpoints: Vec<Value>) -> Value {
    json!({"cluster_name": "origin", "endpoints": [{"lb_endpoints": endpoints}]})
}

#[test]
fn requests_name_their_hosts_one_for_each_try() {
    let origins = ["a", "b", "c"].map(named);
    let sick = Origin::fixed("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nsick");
    let own = policy(
        "override_host.v3.OverrideHost",
        json!({
            "override_host_sources": [{"metadata": {"key": "ns", "path": [{"key": "k"}]}}, {"header": "x-host"}],
            "selected_host_key": {"key": "chosen", "path": [{"key": "host"}]},
            "fallback_policy": round_robin(),
        }),
    );
    let mut endpoints: Vec<Value> = origins.iter().map(|origin| endpoint(origin, json!({}))).collect();
    endpoints[2]["health_status"] = json!("UNHEALTHY");
    endpoints.push(endpoint(&sick, json!({"health_status": "UNHEALTHY"})));
    let noted = extension(
        "envoy.filters.http.header_to_metadata",
        "filters.http.header_to_metadata.v3.Config",
        json!({"request_rules": [{"header": "x-noted", "on_header_present": {"metadata_namespace": "ns", "key": "k"}}]}),
    );
    let site = site::with([noted])
        .routes(json!([{
            "match": {"prefix": "/"},
            "route": {"cluster": "hosts", "retry_policy": {"retry_on": "5xx", "num_retries": 3}},
        }]))
        .cluster("hosts", &[], json!({"load_balancing_policy": own, "load_assignment": assignment(endpoints)}))
        .log("%DYNAMIC_METADATA(chosen:host)% %UPSTREAM_REQUEST_ATTEMPT_COUNT%")
        .start();
    let [a, b, c] = origins.each_ref().map(|origin| origin.address);
    let sick = sick.address;
    let mut line = 0;
    let mut goes_to = |fields: String| {
        line += 1;
        let answer = site.get("/", &fields).text().to_owned();
        (answer, site.logged(line))
    };
    let said = |name: &str, address: std::net::SocketAddr, tries: u32| (name.to_owned(), format!("{address} {tries}"));
    assert_eq!(goes_to(format!("x-host: {b}\r\n")), said("b", b, 1));
    assert_eq!(goes_to(format!("x-host: {c}\r\n")), said("c", c, 1), "whatever its health");
    assert_eq!(goes_to(format!("x-host: nonsense, 127.0.0.1:1,{b}\r\n")), said("b", b, 1));
    assert_eq!(goes_to(format!("x-noted: {a}\r\nx-host: {b}\r\n")), said("a", a, 1));
    assert_eq!(goes_to(format!("x-noted: 127.0.0.1:1\r\nx-host: {b}\r\n")), said("b", b, 1));
    assert_eq!(goes_to(format!("x-host: {sick},{c}\r\n")), said("c", c, 2), "the next try goes to the next one");
    let (answer, _) = goes_to(format!("x-host: {sick}\r\nx-host: {c}\r\n"));
    assert!(answer == "a" || answer == "b", "only the first line counts, then the policy: {answer}");
    let others: Vec<String> = (0..2).map(|_| goes_to(String::new()).0).collect();
    assert!(others.contains(&"a".to_owned()) && others.contains(&"b".to_owned()), "{others:?}");
}

#[test]
fn a_cluster_drops_its_share_of_requests() {
    let origin = named("a");
    let dropping = |share: serde_json::Value| {
        let mut hosts = assignment(vec![endpoint(&origin, json!({}))]);
        hosts["policy"] = json!({"drop_overloads": [{"category": "all", "drop_percentage": share}]});
        json!({"load_assignment": hosts})
    };
    let route = |path: &str, cluster: &str| json!({"match": {"prefix": path}, "route": {"cluster": cluster}});
    let site = site::with([])
        .routes(json!([route("/none", "none"), route("/few", "few"), route("/", "origin")]))
        .cluster("none", &[], dropping(json!({"numerator": 100})))
        .cluster("few", &[], dropping(json!({"numerator": 999_999, "denominator": "MILLION"})))
        .start();
    let refused = site.get("/none", "");
    assert_eq!((refused.status, refused.text()), (503, "unconditional drop overload"));
    assert_eq!(refused.header("x-envoy-unconditional-drop-overload"), "true");
    assert_eq!(site.logged(1), "503 UDO unconditional_drop_overload");
    let refused = site.get("/few", "");
    assert_eq!((refused.status, refused.text()), (503, "drop overload"));
    assert_eq!(refused.header("x-envoy-drop-overload"), "true");
    assert_eq!(site.logged(2), "503 DO drop_overload");
    assert_eq!(site.stat("cluster.none.upstream_rq_503"), 1);
    assert_eq!(site.stat("cluster.none.upstream_rq_completed"), 1);
    assert_eq!(site.stat("cluster.none.upstream_cx_none_healthy"), 0);
    assert_eq!(site.get("/", "").status, 200);
}

#[test]
fn a_cluster_drops_what_filters_ask_and_what_is_mirrored_too() {
    let origin = named("a");
    let mut hosts = assignment(vec![endpoint(&origin, json!({}))]);
    hosts["policy"] = json!({"drop_overloads": [{"category": "all", "drop_percentage": {"numerator": 100}}]});
    let none = json!({"load_assignment": hosts});
    let script = r#"
        function envoy_on_request(h)
          local headers, body = h:httpCall("none", {[":method"]="GET", [":path"]="/", [":authority"]="a"}, nil, 5000)
          local drop = headers["x-envoy-unconditional-drop-overload"]
          h:respond({[":status"] = headers[":status"], ["x-drop"] = drop}, body)
        end"#;
    let lua = extension(
        "envoy.filters.http.lua",
        "filters.http.lua.v3.Lua",
        json!({"default_source_code": {"inline_string": script}}),
    );
    let calling = site::with([lua]).cluster("none", &[], none.clone()).start();
    let answer = calling.get("/", "");
    assert_eq!((answer.status, answer.text()), (503, "unconditional drop overload"));
    assert_eq!(answer.header("x-drop"), "true");
    let authz =
        |service: Value| extension("envoy.filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", service);
    let over_http = authz(json!({"http_service": {
        "server_uri": {"uri": "http://none", "cluster": "none", "timeout": "5s"},
    }}));
    let over_grpc = authz(json!({"grpc_service": {"envoy_grpc": {"cluster_name": "none"}, "timeout": "5s"}}));
    let mut of_h2 = none.clone();
    config::overlay(&mut of_h2, postrider_tests::grpc::http2());
    let asking = [(over_http, none.clone()), (over_grpc, of_h2)].map(|(filter, none)| {
        let site = site::with([filter]).cluster("none", &[], none).start();
        assert_eq!(site.get("/", "").status, 403);
        assert_eq!(site.logged(1), "403 UAEX ext_authz_error");
        site
    });
    let mirrored = json!([{"match": {"prefix": "/"}, "route": {
        "cluster": "origin", "request_mirror_policies": [{"cluster": "none"}],
    }}]);
    let mirroring = site::with([]).routes(mirrored).cluster("none", &[], none).start();
    assert_eq!(mirroring.get("/", "").status, 200);
    let [http, grpc] = asking;
    for site in [calling, http, grpc, mirroring] {
        site.proxy.wait_stat("cluster.none.upstream_rq_503", 1);
        assert_eq!(site.stat("cluster.none.upstream_rq_completed"), 1);
        assert_eq!(site.stat("cluster.none.internal.upstream_rq_503"), 1);
        assert_eq!(site.stat("cluster.none.upstream_rq_total"), 0);
        assert_eq!(site.stat("cluster.none.upstream_cx_total"), 0);
    }
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn a_drop_told_of_itself_in_spite_of_suppress_envoy_headers() {
    let origin = named("a");
    let mut hosts = assignment(vec![endpoint(&origin, json!({}))]);
    hosts["policy"] = json!({"drop_overloads": [{"category": "all", "drop_percentage": {"numerator": 100}}]});
    let route = json!([{"match": {"prefix": "/"}, "route": {"cluster": "none"}}]);
    let quiet = extension(
        "envoy.filters.http.router",
        "filters.http.router.v3.Router",
        json!({"suppress_envoy_headers": true}),
    );
    let site = site::with([])
        .routes(route)
        .manager(json!({"http_filters": [quiet]}))
        .cluster("none", &[], json!({"load_assignment": hosts}))
        .start();
    let refused = site.get("/", "");
    assert_eq!((refused.status, refused.text()), (503, "unconditional drop overload"));
    assert_eq!(refused.header("x-envoy-unconditional-drop-overload"), "");
}

#[test]
fn the_runtime_limits_what_is_dropped() {
    let origin = named("a");
    let mut dropping = assignment(vec![endpoint(&origin, json!({}))]);
    dropping["policy"] = json!({"drop_overloads": [{"category": "all", "drop_percentage": {"numerator": 100}}]});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster_with("origin", &[], json!({"load_assignment": dropping}))
        .overlay(json!({"layered_runtime": {"layers": [
            {"name": "s", "static_layer": {"load_balancing_policy": {"drop_overload_limit": 0}}},
        ]}}));
    let proxy = Proxy::start(&config);
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 200);
}

#[test]
fn a_cluster_says_itself_what_it_hashes() {
    let origins = ["a", "b", "c", "d"].map(named);
    let ring = policy(
        "ring_hash.v3.RingHash",
        json!({"consistent_hashing_lb_config": {"hash_policy": [
            {"header": {"header_name": "x-user"}, "terminal": true},
            {"cookie": {"name": "place", "ttl": "10s"}},
        ]}}),
    );
    let endpoints = origins.iter().map(|origin| endpoint(origin, json!({}))).collect();
    let routes = json!([{"match": {"prefix": "/"}, "route": {
        "cluster": "origin", "hash_policy": [{"header": {"header_name": "x-other"}}],
    }}]);
    let config = Config::routes(routes).cluster_with(
        "origin",
        &[],
        json!({"load_balancing_policy": ring, "load_assignment": assignment(endpoints)}),
    );
    let proxy = Proxy::start(&config);
    let host = |fields: &str| ask(&proxy, "GET", "test", "/", fields).text().to_owned();
    let mut seen = BTreeMap::new();
    for user in 0..16 {
        let first = host(&format!("x-user: {user}\r\n"));
        for other in 0..4 {
            assert_eq!(host(&format!("x-user: {user}\r\nx-other: {other}\r\n")), first, "the route has no say");
        }
        *seen.entry(first).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "{seen:?}");
    let guest = ask(&proxy, "GET", "test", "/", "");
    let cookie = guest.header("set-cookie").split(';').next().unwrap_or_default().replace('"', "");
    assert!(cookie.starts_with("place="), "{guest:?}");
    assert_eq!(host(&format!("cookie: {cookie}\r\n")), guest.text());
}

#[test]
fn http_options_of_a_cluster_say_what_its_requests_are_hashed_by() {
    let origins = ["a", "b", "c", "d"].map(named);
    let endpoints = origins.iter().map(|origin| endpoint(origin, json!({}))).collect();
    let routes = json!([{"match": {"prefix": "/"}, "route": {
        "cluster": "origin", "hash_policy": [{"header": {"header_name": "x-other"}}],
    }}]);
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {}},
        "hash_policy": [{"header": {"header_name": "x-user"}}],
    });
    let config = Config::routes(routes).cluster_with(
        "origin",
        &[],
        json!({
            "lb_policy": "MAGLEV",
            "load_assignment": assignment(endpoints),
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        }),
    );
    let proxy = Proxy::start(&config);
    let host = |fields: &str| ask(&proxy, "GET", "test", "/", fields).text().to_owned();
    let mut seen = BTreeMap::new();
    for user in 0..16 {
        let first = host(&format!("x-user: {user}\r\n"));
        for other in 0..4 {
            assert_eq!(host(&format!("x-user: {user}\r\nx-other: {other}\r\n")), first, "the route has no say");
        }
        *seen.entry(first).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "{seen:?}");
}

fn with_label(origin: &Origin, version: &str) -> Value {
    endpoint(origin, json!({"metadata": {"filter_metadata": {"envoy.lb": {"version": version}}}}))
}

#[test]
fn only_hosts_of_the_subset_can_be_named_where_that_is_within_it() {
    let origins = ["a", "b", "c"].map(named);
    let by_header = policy(
        "override_host.v3.OverrideHost",
        json!({"override_host_sources": [{"header": "x-host"}], "fallback_policy": round_robin()}),
    );
    let subsets = policy(
        "subset.v3.Subset",
        json!({
            "fallback_policy": "NO_FALLBACK",
            "subset_selectors": [{"keys": ["version"]}],
            "subset_lb_policy": by_header,
        }),
    );
    let [a, b, c] = &origins;
    let endpoints = vec![with_label(a, "1"), with_label(b, "2"), with_label(c, "2")];
    let wanted = json!({"filter_metadata": {"envoy.lb": {"version": "2"}}});
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "metadata_match": wanted}}]);
    let config = Config::routes(routes).cluster_with(
        "origin",
        &[],
        json!({"load_balancing_policy": subsets, "load_assignment": assignment(endpoints)}),
    );
    let proxy = Proxy::start(&config);
    let answers = |fields: &str| {
        let mut all: Vec<String> = (0..4).map(|_| ask(&proxy, "GET", "test", "/", fields).text().to_owned()).collect();
        all.sort();
        all.dedup();
        all.concat()
    };
    // Envoy's subsets know no hosts by their addresses.
    let found = |name: &'static str| if envoy() { "bc" } else { name };
    assert_eq!(answers(&format!("x-host: {}\r\n", c.address)), found("c"));
    assert_eq!(answers(&format!("x-host: {},{}\r\n", a.address, b.address)), found("b"));
    assert_eq!(answers(&format!("x-host: {}\r\n", a.address)), "bc", "that one is in another subset");
}

#[test]
fn labels_that_no_selector_knows_are_passed_over_where_that_is_allowed() {
    let origins = ["a", "b"].map(named);
    for (allowed, status) in [(true, 200), (false, 503)] {
        let subsets = policy(
            "subset.v3.Subset",
            json!({
                "fallback_policy": "NO_FALLBACK",
                "subset_selectors": [{"keys": ["version"]}],
                "allow_redundant_keys": allowed,
                "subset_lb_policy": round_robin(),
            }),
        );
        let endpoints = vec![with_label(&origins[0], "1"), with_label(&origins[1], "2")];
        let wanted = json!({"filter_metadata": {"envoy.lb": {"version": "2", "stage": "prod"}}});
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "metadata_match": wanted}}]);
        let config = Config::routes(routes).cluster_with(
            "origin",
            &[],
            json!({"load_balancing_policy": subsets, "load_assignment": assignment(endpoints)}),
        );
        let answer = ask(&Proxy::start(&config), "GET", "test", "/", "");
        assert_eq!(answer.status, status);
        assert!(status != 200 || answer.text() == "b");
    }
}

#[test]
fn localities_weigh_what_their_share_of_a_subset_is() {
    // As real Envoy shares them out: 3 of 3 hosts against 5 of 2, of which one is left.
    let origins = ["a", "b"].map(named);
    let others: Vec<Origin> = (0..3).map(|_| named("x")).collect();
    let labels = json!({"filter_metadata": {"envoy.lb": {"version": "1"}}});
    let config = |scaled: bool| {
        let near = vec![with_label(&origins[0], "1"), with_label(&others[0], "2"), with_label(&others[1], "2")];
        let far = vec![with_label(&origins[1], "1"), with_label(&others[2], "2")];
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "metadata_match": labels}}]);
        Config::routes(routes).cluster_with(
            "origin",
            &[],
            json!({
                "common_lb_config": {"locality_weighted_lb_config": {}},
                "lb_subset_config": {
                    "subset_selectors": [{"keys": ["version"]}],
                    "locality_weight_aware": true,
                    "scale_locality_weight": scaled,
                },
                "load_assignment": {"cluster_name": "origin", "endpoints": [
                    {"locality": {"zone": "near"}, "load_balancing_weight": 3, "lb_endpoints": near},
                    {"locality": {"zone": "far"}, "load_balancing_weight": 5, "lb_endpoints": far},
                ]},
            }),
        )
    };
    for (scaled, near) in [(true, 16), (false, 24)] {
        let proxy = Proxy::start(&config(scaled));
        let mut client = proxy.client();
        let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        let count = (0..64).filter(|_| client.exchange(request).text() == "a").count();
        assert!(count.abs_diff(near) <= 1, "{count} of 64 went near, scaled: {scaled}");
    }
}
