//! `stats_tags`: tags of one's own. The same expectations hold for Envoy.

use postrider_tests::kit::config::{Config, extension, http_filter, router, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, wait_until};
use postrider_tests::tls::{Authority, Client, downstream};
use postrider_tests::{ask, postrider_only};
use rustls::version::TLS12;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The lines of `/stats/prometheus` under these settings, after one request.
fn lines(settings: Value) -> Vec<String> {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let proxy = Proxy::start(&Config::proxy_to(origin.address).overlay(json!({"stats_config": settings})));
    assert_eq!(proxy.get("/").status, 200);
    wait_until("the request's counts", || proxy.admin_get("/stats").text().contains("upstream_rq_200: 1"));
    proxy.admin_get("/stats/prometheus").text().lines().map(str::to_owned).collect()
}

fn line(lines: &[String], start: &str) -> String {
    let found = lines.iter().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start} in {lines:#?}")).clone()
}

#[test]
fn tags_are_added_to_those_that_there_are() {
    let lines = lines(json!({"stats_tags": [
        {"tag_name": "fleet", "fixed_value": "blue\"x"},
        {"tag_name": "my.code-x", "regex": "_rq(_(\\d+))$"},
        {"tag_name": "envoy.cluster_name", "regex": "^cluster\\.((never)\\.)"},
        {"tag_name": "way", "regex": "^http\\..*\\.(downstream_)cx_total$"},
        {"tag_name": "none", "regex": "no such (thing)"},
        {"tag_name": "empty", "regex": "^server\\.(never)?live$"},
    ]}));
    let status = line(&lines, "envoy_cluster_upstream_rq{");
    let want =
        r#"envoy_cluster_upstream_rq{envoy_response_code="200",fleet="blue\"x",my_code_x="200",envoy_cluster_name=""#;
    assert!(status.starts_with(want), "{status}");
    let want =
        r#"envoy_http_cx_total{fleet="blue\"x",envoy_http_conn_manager_prefix="ingress_http",way="downstream_"} "#;
    line(&lines, want);
    assert_eq!(line(&lines, "envoy_server_live"), r#"envoy_server_live{fleet="blue\"x",empty=""} 1"#);
    let histogram = line(&lines, "envoy_cluster_upstream_cx_connect_ms_bucket");
    assert!(histogram.contains(r#"{fleet="blue\"x",envoy_cluster_name=""#), "{histogram}");
    assert!(lines.iter().any(|line| line == "# TYPE envoy_http_cx_total counter"));
}

#[test]
fn the_default_tags_can_be_left_out_and_asked_for_by_name() {
    let lines = lines(json!({"use_all_default_tags": false, "stats_tags": [{"tag_name": "envoy.response_code"}]}));
    line(&lines, "envoy_http_ingress_http_downstream_cx_total{} ");
    let status = lines.iter().find(|line| line.contains("_upstream_rq{envoy_response_code=")).expect("a status");
    assert!(status.starts_with("envoy_cluster_") && !status.contains("envoy_cluster_name"), "{status}");
    assert!(lines.iter().any(|line| line.starts_with("envoy_http_ingress_http_downstream_rq_2xx{} ")), "{lines:#?}");
}

#[test]
fn tags_of_the_command_line_come_before_those_of_the_configuration() {
    let settings = json!({"stats_tags": [
        {"tag_name": "zone", "fixed_value": "other"},
        {"tag_name": "fleet", "fixed_value": "blue"},
    ]});
    let config = Config::routes(json!([])).overlay(json!({"stats_config": settings}));
    let tags = ["--stats-tag", "zone:a b:c", "--stats-tag", "rack:7", "--stats-tag", "rack:8"];
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(&tags));
    let page = proxy.admin_get("/stats/prometheus").text().to_owned();
    let lines: Vec<_> = page.lines().map(str::to_owned).collect();
    assert_eq!(line(&lines, "envoy_server_live"), r#"envoy_server_live{zone="a b:c",rack="7",fleet="blue"} 1"#);
    let of_http = line(&lines, "envoy_http_downstream_cx_total{");
    assert!(of_http.starts_with(r#"envoy_http_downstream_cx_total{zone="a b:c",rack="7",fleet="blue","#), "{of_http}");
    assert!(proxy.admin_get("/stats").text().contains("\nserver.live: 1\n"), "names have no part in it");
}

/// Names of one tag each, and a part of the metrics that have it.
const TAGGED: [(&str, &str); 22] = [
    ("envoy_cluster_name", "_ext_authz_"),
    ("envoy_connection_limit_prefix", "_connection_limit_"),
    ("envoy_ext_authz_prefix", "_ext_authz_"),
    ("envoy_fault_downstream_cluster", "_fault_"),
    ("envoy_grpc_bridge_method", "_grpc_"),
    ("envoy_grpc_bridge_service", "_grpc_"),
    ("envoy_http_conn_manager_prefix", "_http_rbac_"),
    ("envoy_listener_address", "_listener_ssl_"),
    ("envoy_local_http_ratelimit_prefix", "_http_local_rate_limit_"),
    ("envoy_local_network_ratelimit_prefix", "_local_rate_limit_"),
    ("envoy_proxy_protocol_prefix", "_proxy_proto_"),
    ("envoy_proxy_protocol_version", "_proxy_proto_"),
    ("envoy_rbac_http_prefix", "_rbac_"),
    ("envoy_rbac_policy_name", "_rbac_policy_"),
    ("envoy_rbac_prefix", "_rbac_"),
    ("envoy_route", "_vhost_route_"),
    ("envoy_ssl_cipher", "_ssl_ciphers"),
    ("envoy_ssl_curve", "_ssl_curves"),
    ("envoy_ssl_version", "_ssl_versions"),
    ("envoy_tls_certificate", "_ssl_certificate_"),
    ("envoy_virtual_cluster", "_vhost_vcluster_"),
    ("envoy_virtual_host", "_vhost_"),
];

/// Of everything that has tags of its own one.
fn everything(origin: &Origin, authority: &Authority) -> Config {
    let http = |name: &str, kind: &str, fields: Value| extension(name, &format!("filters.http.{kind}"), fields);
    let network = |name: &str, kind: &str, fields: Value| extension(name, &format!("filters.network.{kind}"), fields);
    let all = json!({"policies": {"pola": {"permissions": [{"any": true}], "principals": [{"any": true}]}}});
    let bucket = json!({"max_tokens": 1000, "tokens_per_fill": 1000, "fill_interval": "1s"});
    let whole = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    let limit = |prefix: &str| {
        let fields = json!({
            "stat_prefix": prefix, "token_bucket": bucket, "filter_enabled": whole, "filter_enforced": whole,
        });
        http(prefix, "local_ratelimit.v3.LocalRateLimit", fields)
    };
    let rbac = |name: &str, more: Value| {
        let mut fields = json!({"rules": all, "track_per_rule_stats": true});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        http(name, "rbac.v3.RBAC", fields)
    };
    let service = json!({"server_uri": {"uri": "http://authz", "cluster": "authz", "timeout": "5s"}});
    let authz = |prefix: Option<&str>| {
        let fields = json!({"stat_prefix": prefix, "http_service": service, "transport_api_version": "V3"});
        http("envoy.filters.http.ext_authz", "ext_authz.v3.ExtAuthz", fields)
    };
    let manager = json!({
        "stat_prefix": "main",
        "http_filters": [
            limit("plain"), limit("my.lim"), limit("a:b"),
            rbac("rules", json!({"rules_stat_prefix": "rp"})),
            rbac("shadow", json!({"shadow_rules": all, "shadow_rules_stat_prefix": "sp"})),
            authz(Some("eap")), authz(None),
            http("fault", "fault.v3.HTTPFault", json!({
                "delay": {"fixed_delay": "0.001s", "percentage": {"numerator": 100, "denominator": "HUNDRED"}},
            })),
            http("counts", "grpc_stats.v3.FilterConfig", json!({"stats_for_all_methods": true})),
            router(),
        ],
        "route_config": {"name": "r", "virtual_hosts": [{
            "name": "web", "domains": ["*"],
            "virtual_clusters": [{"name": "users", "headers": [{"name": ":path", "string_match": {"prefix": "/"}}]}],
            "routes": [{"match": {"prefix": "/"}, "stat_prefix": "shop", "route": {"cluster": "origin"}}],
        }]},
    });
    let tls = json!({
        "cipher_suites": ["ECDHE-ECDSA-AES128-GCM-SHA256"],
        "ecdh_curves": ["P-256"],
        "tls_maximum_protocol_version": "TLSv1_2",
    });
    let identity = [authority.issue(&["test"]).inline()];
    let secured = downstream(&identity, json!({"common_tls_context": {"tls_params": tls}}));
    let proxied = |fields: Value| {
        extension("envoy.filters.listener.proxy_protocol", "filters.listener.proxy_protocol.v3.ProxyProtocol", fields)
    };
    let chain = json!([
        network("nrp", "rbac.v3.RBAC", json!({"stat_prefix": "nrp", "rules": all})),
        network("nlp", "local_ratelimit.v3.LocalRateLimit", json!({"stat_prefix": "nlp", "token_bucket": bucket})),
        network("clp", "connection_limit.v3.ConnectionLimit", json!({"stat_prefix": "c:p", "max_connections": 100})),
        tcp_filter(json!({"stat_prefix": "raw", "cluster": "origin"})),
    ]);
    Config::new()
        .listener(
            "http",
            json!({"stat_prefix": "front", "filter_chains": [{"filters": [http_filter(manager.clone())]}]}),
        )
        .listener(
            "tls",
            json!({"stat_prefix": "locked", "filter_chains": [{
                "filters": [http_filter(manager)], "transport_socket": secured,
            }]}),
        )
        .listener(
            "tcp",
            json!({
                "stat_prefix": "below",
                "listener_filters": [proxied(json!({"stat_prefix": "ppp"}))],
                "filter_chains": [{"filters": chain}],
            }),
        )
        .listener(
            "other",
            json!({
                "stat_prefix": "side",
                "listener_filters": [proxied(json!({}))],
                "filter_chains": [{"filters": [tcp_filter(json!({"stat_prefix": "raw", "cluster": "origin"}))]}],
            }),
        )
        .cluster("origin", &[origin.address])
        .cluster("authz", &[origin.address])
}

/// After one request of each kind, under these settings.
fn exercised(launch: Launch, settings: &Value) -> (Proxy, Origin) {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ngrpc-status: 0\r\ncontent-length: 0\r\n\r\n");
    let authority = Authority::new("root");
    let config = everything(&origin, &authority).overlay(json!({"stats_config": settings}));
    let proxy = Proxy::start_with(&config, launch);
    let fields = "x-envoy-downstream-service-cluster: dcl\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n";
    ask(&proxy, "POST", "test", "/shop.Cart/Add", fields);
    let answer = Client::speaking(&authority, &[&TLS12]).get(proxy.address("tls"), "test").expect("an answer");
    assert_eq!(answer.status, 200);
    for listener in ["tcp", "other"] {
        let mut client = RawClient::connect(proxy.address(listener));
        client.send("PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222\r\nGET / HTTP/1.1\r\nhost: test\r\n\r\n");
        assert_eq!(client.response("GET").expect("an answer").status, 200);
    }
    (proxy, origin)
}

/// Metrics with their labels, those of what differs for other reasons left out.
fn series(proxy: &Proxy) -> BTreeSet<String> {
    let answer = proxy.admin_get("/stats/prometheus");
    let text = answer.text();
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    let own = |name: &&str| {
        let about = ["rate_limit", "connection_limit", "_fault_", "_rbac_", "_ext_authz_", "_proxy_proto_", "_grpc_"];
        let more = ["_vhost_", "_ssl_", "_tcp_", "worker", "downstream_rq_xx"];
        let others = ["sigalgs", "_bucket{", "watchdog", "_sum{", "_count{", "envoy_filter_", "_ocsp_"];
        // What only Envoy's `ext_authz` counts.
        let of_authz = ["_collision{", "_omitted_response_headers{", "_request_header_limits_reached{"];
        about.iter().chain(&more).any(|part| name.contains(part))
            && !others.iter().chain(&of_authz).any(|part| name.contains(part))
    };
    lines.map(|(name, _)| name).filter(own).map(str::to_owned).collect()
}

/// Starts both under these settings; what they show must become the same.
fn same_series(settings: &Value) -> BTreeSet<String> {
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    let [theirs, ours] = [envoy, Launch::default()].map(|launch| exercised(launch, settings));
    let mut said = String::new();
    let mut found = BTreeSet::new();
    wait_until("the same metrics and labels", || {
        let (theirs, ours) = (series(&theirs.0), series(&ours.0));
        let missing: Vec<_> = theirs.difference(&ours).collect();
        let invented: Vec<_> = ours.difference(&theirs).collect();
        let differs = format!("in Envoy only {missing:#?}, in Postrider only {invented:#?}");
        if differs != said {
            eprintln!("{differs}");
            said = differs;
        }
        found.clone_from(&ours);
        missing.is_empty() && invented.is_empty()
    });
    found
}

#[test]
fn every_tag_of_a_filter_is_a_label_as_in_envoy() {
    if !postrider_only() {
        return;
    }
    let found = same_series(&json!({}));
    for (tag, part) in TAGGED {
        let tagged = |line: &&String| line.contains(&format!("{tag}=\"")) && line.contains(part);
        assert!(found.iter().any(|line| tagged(&line)), "{tag} of {part} in {found:#?}");
    }
}

#[test]
fn a_tag_of_a_filter_can_be_asked_for_by_its_name_alone() {
    if !postrider_only() {
        return;
    }
    let names = ["envoy.rbac_policy_name", "envoy.local_http_ratelimit_prefix", "envoy.proxy_protocol_version"];
    let tags: Vec<Value> = names.iter().map(|name| json!({"tag_name": name})).collect();
    let found = same_series(&json!({"use_all_default_tags": false, "stats_tags": tags}));
    let label = "envoy_http_main_rbac_rp_policy_allowed{envoy_rbac_policy_name=\"pola\"}";
    assert!(found.contains(label), "{found:#?}");
}
