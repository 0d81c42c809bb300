//! Targets of Google's gRPC client (`google_grpc`), which are clusters here.

use postrider_grpc::Message;
use postrider_grpc::auth::CheckResponse;
use postrider_grpc::core::Status;
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::proxy;
use postrider_tests::kit::{Config, GrpcOrigin, Proxy, TempDir};
use postrider_tests::tls::{Authority, secured};
use postrider_tests::{ask, postrider_only};
use serde_json::{Value, json};

const KIND: &str = "filters.http.ext_authz.v3.ExtAuthz";

/// A service that lets everything pass.
fn service() -> GrpcOrigin {
    let answer = CheckResponse { status: Some(Status::default()), ..CheckResponse::default() };
    GrpcOrigin::fixed(answer.encode_to_vec())
}

/// A proxy that asks `services`, one after the other.
fn asking(services: &[Value]) -> Config {
    let filter = |(index, service): (usize, &Value)| {
        let fields = json!({"transport_api_version": "V3", "grpc_service": service});
        extension(&format!("authz.{index}"), KIND, fields)
    };
    let mut filters: Vec<Value> = services.iter().enumerate().map(filter).collect();
    filters.push(router());
    let route = json!({"match": {"prefix": "/"}, "direct_response": {"status": 200}});
    Config::new().http(json!({
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }))
}

#[test]
fn a_target_is_called_by_its_name_and_with_its_metadata() {
    let service = service();
    let port = service.address.port();
    let of = |target: String| {
        json!({
            "google_grpc": {"target_uri": target, "stat_prefix": "authz"},
            "timeout": "10s", "initial_metadata": [{"key": "x-m", "value": "50%%"}],
        })
    };
    let targets = [format!("localhost:{port}"), format!("ipv4:127.0.0.1:{port}"), format!("dns:///127.0.0.1:{port}")];
    let proxy = Proxy::start(&asking(&targets.clone().map(of)));
    assert_eq!(ask(&proxy, "GET", "test", "/a", "").status, 200);
    let calls = service.calls();
    let authorities: Vec<&str> = calls.iter().map(|call| call.authority.as_str()).collect();
    let named = |target: &String| target.trim_start_matches("ipv4:").trim_start_matches("dns:///").to_owned();
    assert_eq!(authorities, targets.each_ref().map(named));
    assert!(calls.iter().all(|call| call.headers.value("x-m") == Some("50%")), "{calls:?}");
}

#[test]
fn equal_targets_share_a_cluster_that_is_seen_like_others() {
    if !postrider_only() {
        return;
    }
    let (one, other) = (service(), service());
    let of = |service: &GrpcOrigin| {
        let target = service.address.to_string();
        json!({"google_grpc": {"target_uri": target, "stat_prefix": "authz"}, "timeout": "10s"})
    };
    let proxy = Proxy::start(&asking(&[of(&one), of(&one), of(&other)]));
    assert_eq!(ask(&proxy, "GET", "test", "/a", "").status, 200);
    assert_eq!((one.calls().len(), one.connections(), other.calls().len()), (2, 1, 1));
    let stats = proxy.stats();
    let requests = |cluster: &str| stats.value(&format!("cluster.{cluster}.upstream_rq_total"));
    assert_eq!((requests("google_grpc.authz"), requests("google_grpc.authz.2")), (2, 1));
    let clusters = proxy.admin_get("/clusters").text().to_owned();
    assert!(clusters.contains(&format!("google_grpc.authz::{}::health_flags::healthy", one.address)), "{clusters}");
    let dump = proxy.admin_get("/config_dump").text().to_owned();
    assert!(dump.contains("\"target_uri\""), "what was written is shown: {dump}");
}

/// A proxy that takes TLS for `service`.
fn terminating(service: &GrpcOrigin, authority: &Authority, names: &[&str]) -> Proxy {
    let config = Config::new()
        .http(json!({
            "codec_type": "HTTP2", "http_filters": [router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "service"}},
            ]}]},
        }))
        .cluster_with("service", &[service.address], http2());
    let alpn = json!({"common_tls_context": {"alpn_protocols": ["h2"]}});
    Proxy::start(&secured(config, &authority.issue(names), alpn))
}

#[test]
fn a_target_behind_tls_must_show_a_certificate_for_its_name_and_gets_the_token() {
    let (authority, service) = (Authority::new("a"), service());
    let right = terminating(&service, &authority, &["localhost"]);
    let wrong = terminating(&service, &authority, &["other.test"]);
    let of = |proxy: &Proxy, more: Value| {
        let ssl = json!({"root_certs": {"inline_string": authority.pem()}});
        let mut google = json!({
            "target_uri": format!("localhost:{}", proxy.address("http").port()), "stat_prefix": "authz",
            "channel_credentials": {"ssl_credentials": ssl},
        });
        for (key, value) in more.as_object().unwrap() {
            google[key] = value.clone();
        }
        json!({"google_grpc": google, "timeout": "10s"})
    };
    let status = |service: Value| ask(&Proxy::start(&asking(&[service])), "GET", "test", "/a", "").status;

    assert_eq!(status(of(&right, json!({"call_credentials": [{"access_token": "100%"}]}))), 200);
    assert_eq!(service.calls()[0].headers.value("authorization"), Some("Bearer 100%"));
    assert_eq!(status(of(&wrong, json!({}))), 403);
    let named = json!({"args": {"grpc.ssl_target_name_override": {"string_value": "other.test"}}});
    assert_eq!(status(of(&wrong, json!({"channel_args": named}))), 200);
    assert_eq!(service.calls()[1].authority, "other.test");
    assert_eq!(service.calls().len(), 2);
}

#[test]
fn what_is_not_supported_of_it_is_told_all_at_once() {
    if !postrider_only() {
        return;
    }
    let google = json!({
        "target_uri": "xds:///authz", "stat_prefix": "authz", "credentials_factory_name": "own", "config": {"a": 1},
        "channel_credentials": {"google_default": {}},
        "call_credentials": [{"access_token": "t"}, {"google_compute_engine": {}}],
        "channel_args": {"args": {"grpc.enable_retries": {"int_value": 1}}},
    });
    let folder = TempDir::new();
    let file = folder.write("config.yaml", asking(&[json!({"google_grpc": google})]).to_yaml());
    let finished = proxy::run(&["validate", file.to_str().unwrap()]);
    assert_eq!(finished.code, Some(3), "{}", finished.stdout);
    let text = format!("{}{}", finished.stdout, finished.stderr);
    for wanted in [
        "targets of `xds` are not supported",
        "`credentials_factory_name`: known to Envoy",
        "`config`: known to Envoy",
        "`google_default`: known to Envoy",
        "a token is sent over TLS alone",
        "`google_compute_engine`: known to Envoy",
        "`grpc.enable_retries`",
        "grpc_service.google_grpc.target_uri",
        "7 errors",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}
