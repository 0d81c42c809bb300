//! Access by rules, as Envoy decides it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use postrider_tests::kit::config::{extension, file_access_log, router, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, downstream, secured, tls_inspector};
use postrider_tests::{ask, get};
use serde_json::{Value, json};

const KIND: &str = "filters.http.rbac.v3.RBAC";
const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute";

struct Site {
    proxy: Proxy,
    origin: Origin,
    log: PathBuf,
    _folder: TempDir,
}

fn config(fields: Value, routes: Value, log: &std::path::Path, origin: &Origin) -> Config {
    let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.rbac)% %DYNAMIC_METADATA(envoy.common)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let mut all = routes.as_array().unwrap().clone();
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}}));
    Config::new()
        .http(json!({
            "access_log": [file_access_log(log, format)],
            "http_filters": [extension("envoy.filters.http.rbac", KIND, fields), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": all}]},
        }))
        .cluster("origin", &[origin.address])
}

fn site(fields: Value, routes: Value) -> Site {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&config(fields, routes, &log, &origin));
    Site { proxy, origin, log, _folder: folder }
}

impl Site {
    fn status(&self, path: &str, fields: &str) -> u16 {
        ask(&self.proxy, "GET", "test", path, fields).status
    }

    /// The last line of the access log, once there are so many.
    fn logged(&self, lines: usize) -> String {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= lines);
        read().lines().nth(lines - 1).unwrap().to_owned()
    }
}

fn policy(permission: Value, principal: Value) -> Value {
    json!({"permissions": [permission], "principals": [principal]})
}

fn path(path: &str) -> Value {
    json!({"url_path": {"path": {"exact": path}}})
}

fn anybody() -> Value {
    json!({"any": true})
}

#[test]
fn who_matches_a_policy_of_denial_is_turned_away() {
    let site = site(
        json!({
            "rules": {"action": "DENY", "policies": {
                "no admin": policy(path("/admin"), anybody()),
                "no x": policy(json!({"header": {"name": "x", "string_match": {"exact": "1"}}}), anybody()),
            }},
            "track_per_rule_stats": true,
        }),
        json!([]),
    );
    let denied = ask(&site.proxy, "GET", "test", "/admin?a=b", "");
    assert_eq!((denied.status, denied.text()), (403, "RBAC: access denied"));
    let details = "403 - rbac_access_denied_matched_policy[no_admin] ";
    let noted = r#"{"enforced_effective_policy_id":"no admin","enforced_engine_result":"denied"} -"#;
    assert_eq!(site.logged(1), format!("{details}{noted}"));
    assert_eq!(site.status("/admin/", ""), 200);
    assert_eq!(site.logged(2), r#"200 - via_upstream {"enforced_engine_result":"allowed"} -"#);
    // Each line of a header is looked at by itself.
    assert_eq!(site.status("/", "x: 2\r\nx: 1\r\n"), 403);
    assert_eq!(site.status("/", "x: 1,2\r\n"), 200);
    assert_eq!(site.origin.requests().len(), 2);
    let stats = site.proxy.stats();
    assert_eq!(stats.value("http.ingress_http.rbac.denied"), 2);
    assert_eq!(stats.value("http.ingress_http.rbac.allowed"), 2);
    assert_eq!(stats.value("http.ingress_http.rbac.policy.no admin.denied"), 1);
    assert_eq!(stats.value("http.ingress_http.rbac.policy.no x.denied"), 1);
}

#[test]
fn shadow_rules_tell_and_turn_nobody_away() {
    let site = site(
        json!({
            "shadow_rules": {"action": "ALLOW", "policies": {"p1": policy(path("/a"), anybody())}},
            "shadow_rules_stat_prefix": "dry_run_",
        }),
        json!([]),
    );
    assert_eq!((site.status("/a", ""), site.status("/b", "")), (200, 200));
    let allowed = r#"{"dry_run_shadow_effective_policy_id":"p1","dry_run_shadow_engine_result":"allowed"}"#;
    assert_eq!(site.logged(1), format!("200 - via_upstream {allowed} -"));
    assert_eq!(site.logged(2), r#"200 - via_upstream {"dry_run_shadow_engine_result":"denied"} -"#);
    let stats = site.proxy.stats();
    assert_eq!(stats.value("http.ingress_http.rbac.dry_run_.shadow_allowed"), 1);
    assert_eq!(stats.value("http.ingress_http.rbac.dry_run_.shadow_denied"), 1);
}

#[test]
fn rules_that_log_leave_a_hint() {
    let rules = json!({"rules": {"action": "LOG", "policies": {"a": policy(path("/a"), anybody())}}});
    let site = site(rules, json!([]));
    assert_eq!((site.status("/a", ""), site.status("/b", "")), (200, 200));
    assert!(site.logged(1).ends_with(r#"{"access_log_hint":true}"#), "{}", site.logged(1));
    assert!(site.logged(2).ends_with(r#"{"access_log_hint":false}"#), "{}", site.logged(2));
}

/// A CONNECT names a host, and no path that a rule could allow.
#[test]
fn a_connect_has_no_path_for_rules() {
    let any = json!({"path": {"safe_regex": {"regex": ".*"}}});
    for (permission, passes) in [
        (json!({"url_path": any}), false),
        (json!({"header": {"name": ":path", "present_match": true}}), false),
        (json!({"not_rule": {"url_path": any}}), true),
    ] {
        let folder = TempDir::new();
        let origin = Origin::echo("a");
        let policies = json!({"p": policy(permission.clone(), anybody())});
        let routes = json!([{"match": {"connect_matcher": {}}, "route": {"cluster": "origin"}}]);
        let rules = json!({"rules": {"action": "ALLOW", "policies": policies}});
        let config = config(rules, routes, &folder.path().join("log"), &origin)
            .overlay_filter("http", json!({"upgrade_configs": [{"upgrade_type": "CONNECT"}]}));
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        client.send("CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n");
        let status = client.response("CONNECT").unwrap().status;
        assert_eq!(status == 403, !passes, "{permission}: {status}");
    }
}

#[test]
fn a_route_has_rules_of_its_own_or_none() {
    let of_route = |prefix: &str, config: Value| {
        json!({
            "match": {"prefix": prefix},
            "route": {"cluster": "origin"},
            "typed_per_filter_config": {"envoy.filters.http.rbac": config},
        })
    };
    let own = json!({"rules": {"action": "DENY", "policies": {"own": policy(path("/own/x"), anybody())}}});
    let routes = json!([
        of_route("/open", json!({"@type": PER_ROUTE})),
        of_route("/own", json!({"@type": PER_ROUTE, "rbac": own})),
    ]);
    // Empty rules let nobody pass.
    let site = site(json!({"rules": {}}), routes);
    assert_eq!([site.status("/open", ""), site.status("/own", ""), site.status("/own/x", "")], [200, 200, 403]);
    assert_eq!(site.status("/", ""), 403);
    assert_eq!(
        site.logged(4),
        r#"403 - rbac_access_denied_matched_policy[none] {"enforced_engine_result":"denied"} -"#
    );
}

#[test]
fn addresses_are_those_of_the_peer_and_of_the_client() {
    let network = |address: &str| json!({"address_prefix": address, "prefix_len": 32});
    let site = site(
        json!({"rules": {"action": "DENY", "policies": {
            "client": policy(path("/client"), json!({"remote_ip": network("192.0.2.7")})),
            "peer": policy(path("/peer"), json!({"direct_remote_ip": network("127.0.0.1")})),
            "here": policy(json!({"and_rules": {"rules": [path("/here"), {"destination_ip": network("127.0.0.1")}]}}), anybody()),
        }}}),
        json!([]),
    );
    let forwarded = "x-forwarded-for: 192.0.2.7\r\n";
    assert_eq!([site.status("/client", ""), site.status("/peer", ""), site.status("/here", "")], [200, 403, 403]);
    assert_eq!(site.status("/client", forwarded), 403);
}

#[test]
fn a_client_is_known_by_its_certificate_and_the_name_that_it_asks_for() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let mtls = "type.googleapis.com/envoy.extensions.rbac.principals.mtls_authenticated.v3.Config";
    let san = json!({"san_type": "DNS", "matcher": {"exact": "ann.test"}});
    let folder = TempDir::new();
    let origin = Origin::echo("a");
    let fields = json!({"rules": {"policies": {
        "named": policy(path("/named"), json!({"authenticated": {"principal_name": {"exact": "ann.test"}}})),
        "tls": policy(path("/tls"), json!({"authenticated": {}})),
        "mtls": policy(path("/mtls"), json!({"custom": {"name": "m", "typed_config": {"@type": mtls, "san_matcher": san}}})),
        "sni": policy(json!({"and_rules": {"rules": [path("/sni"), {"requested_server_name": {"suffix": ".test"}}]}}), anybody()),
    }}});
    let context = json!({"common_tls_context": {
        "validation_context": {"trusted_ca": {"inline_string": clients.pem()}},
    }});
    let identity = servers.issue(&["site.test"]);
    let config = config(fields, json!([]), &folder.path().join("access.log"), &origin)
        .overlay_listener("http", json!({"listener_filters": [tls_inspector()]}));
    let proxy = Proxy::start(&secured(config, &identity, context));
    let statuses = |client: &Client| {
        ["/named", "/tls", "/mtls", "/sni"].map(|path| {
            // Not resumed: Envoy does not take a certificate of an earlier connection for verified.
            let mut client = client.fresh().connect(proxy.address("http"), "site.test");
            client.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).status
        })
    };
    let showing = |name: &str| Client::showing(&servers, &clients.issue(&[name]));
    assert_eq!(statuses(&showing("ann.test")), [200; 4]);
    assert_eq!(statuses(&showing("bob.test")), [403, 200, 403, 200]);
    assert_eq!(statuses(&Client::trusting(&servers)), [403, 200, 403, 200]);
}

#[test]
fn what_istio_generates_loads_and_decides() {
    let key = |key: &str| json!({"key": key});
    let claim = |name: &str, value: Value| {
        json!({"metadata": {
            "filter": "envoy.filters.http.jwt_authn",
            "path": [key("payload"), key(name)],
            "value": value,
        }})
    };
    let rule = json!({
        "permissions": [{"and_rules": {"rules": [
            {"or_rules": {"rules": [
                {"header": {"name": ":method", "string_match": {"exact": "GET"}}},
                {"header": {"name": ":method", "string_match": {"exact": "HEAD"}}},
            ]}},
            {"or_rules": {"rules": [
                {"url_path": {"path": {"prefix": "/info"}}},
                {"uri_template": {"name": "uri-template", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig",
                    "path_template": "/v1/*/items/**",
                }}},
            ]}},
            {"or_rules": {"rules": [{"destination_port_range": {"start": 1, "end": 65536}}]}},
            {"not_rule": {"or_rules": {"rules": [path("/info/secret")]}}},
        ]}}],
        "principals": [{"and_ids": {"ids": [
            {"or_ids": {"ids": [
                {"filter_state": {
                    "key": "io.istio.peer_principal",
                    "string_match": {"safe_regex": {"regex": ".*/ns/foo/.*"}},
                }},
                {"direct_remote_ip": {"address_prefix": "127.0.0.0", "prefix_len": 8}},
            ]}},
            {"not_id": {"or_ids": {"ids": [
                claim("groups", json!({"list_match": {"one_of": {"string_match": {"exact": "banned"}}}})),
                claim("iss", json!({"or_match": {"value_matchers": [
                    {"string_match": {"exact": "nobody"}},
                    {"list_match": {"one_of": {"string_match": {"prefix": "no"}}}},
                ]}})),
            ]}}},
        ]}}],
    });
    let rules = json!({"action": "ALLOW", "policies": {"ns[foo]-policy[httpbin]-rule[0]": rule}});
    let shadow = json!({"rules": rules, "shadow_rules": rules, "shadow_rules_stat_prefix": "istio_dry_run_allow_"});
    let site = site(shadow, json!([]));
    for (path, status) in
        [("/info", 200), ("/info/secret", 403), ("/v1/a/items/b/c", 200), ("/v1/items/b", 403), ("/other", 403)]
    {
        assert_eq!(site.status(path, ""), status, "{path}");
    }
    assert_eq!(ask(&site.proxy, "POST", "test", "/info", "content-length: 0\r\n").status, 403);
    let id = r#""istio_dry_run_allow_shadow_effective_policy_id":"ns[foo]-policy[httpbin]-rule[0]""#;
    assert!(site.logged(1).contains(id), "{}", site.logged(1));
}

/// A chain of these rules about connections and then a TCP proxy, which logs.
fn carried(fields: Value, origin: &Origin, log: &std::path::Path) -> Config {
    let line = "%CONNECTION_TERMINATION_DETAILS% %DYNAMIC_METADATA(envoy.filters.network.rbac)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let tcp = tcp_filter(json!({"cluster": "origin", "access_log": [file_access_log(log, format)]}));
    let mut config = json!({"stat_prefix": "door"});
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    let rbac = extension("envoy.filters.network.rbac", "filters.network.rbac.v3.RBAC", config);
    Config::new()
        .listener("tcp", json!({"filter_chains": [{"filters": [rbac, tcp]}]}))
        .cluster("origin", &[origin.address])
}

fn here() -> Value {
    json!({"direct_remote_ip": {"address_prefix": "127.0.0.0", "prefix_len": 8}})
}

#[test]
fn a_connection_is_turned_away_before_it_is_served() {
    let folder = TempDir::new();
    let log = folder.path().join("tcp.log");
    let origin = Origin::echo("a");
    let fields = json!({
        "rules": {"action": "DENY", "policies": {"not here": policy(anybody(), here())}},
        "shadow_rules": {"policies": {"all": policy(anybody(), anybody())}},
        "shadow_rules_stat_prefix": "dry_",
    });
    let proxy = Proxy::start(&carried(fields, &origin, &log));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send(get("/"));
    assert_eq!(client.read_to_end().unwrap(), b"");
    drop(client);
    assert_eq!(origin.requests().len(), 0);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let noted = r#"{"dry_shadow_effective_policy_id":"all","dry_shadow_engine_result":"allowed"}"#;
    let line = format!("rbac_access_denied_matched_policy[not_here] {noted}");
    wait_until("the access log", || read().lines().any(|logged| logged == line));
    let stats = proxy.stats();
    assert!(stats.value("door.rbac.denied") >= 1 && stats.value("door.rbac.allowed") == 0);
    assert!(stats.value("door.rbac.dry_.shadow_allowed") >= 1);
}

#[test]
fn a_connection_that_may_pass_is_served() {
    let folder = TempDir::new();
    let origin = Origin::echo("a");
    let fields = json!({"rules": {"policies": {"here": policy(anybody(), here())}}, "enforcement_type": "CONTINUOUS"});
    let proxy = Proxy::start(&carried(fields, &origin, &folder.path().join("tcp.log")));
    let mut client = RawClient::connect(proxy.address("tcp"));
    assert_eq!(client.exchange(get("/")).status, 200);
    assert!(proxy.stats().value("door.rbac.allowed") >= 1);
}

#[test]
fn somebody_who_is_turned_away_waits_first() {
    let folder = TempDir::new();
    let origin = Origin::echo("a");
    let delay = Duration::from_millis(300);
    let fields = json!({"rules": {}, "delay_deny": "0.3s"});
    let proxy = Proxy::start(&carried(fields, &origin, &folder.path().join("tcp.log")));
    let begun = Instant::now();
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send(get("/"));
    assert_eq!(client.read_to_end().unwrap(), b"");
    assert!(begun.elapsed() >= delay);
}

#[test]
fn connections_are_known_by_certificate_and_name() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let folder = TempDir::new();
    let origin = Origin::echo("a");
    let named = json!({"requested_server_name": {"exact": "site.test"}});
    let ann = json!({"authenticated": {"principal_name": {"exact": "ann.test"}}});
    let fields = json!({"rules": {"policies": {"ann": policy(named, ann)}}});
    let context = json!({"common_tls_context": {
        "validation_context": {"trusted_ca": {"inline_string": clients.pem()}},
    }});
    let identity = servers.issue(&["site.test", "other.test"]);
    let tls = downstream(&[identity.inline()], context);
    let config = carried(fields, &origin, &folder.path().join("tcp.log"))
        .overlay_chain("tcp", json!({"transport_socket": tls}))
        .overlay_listener("tcp", json!({"listener_filters": [tls_inspector()]}));
    let proxy = Proxy::start(&config);
    let answer = |client: &Client, name: &str| {
        let mut client = client.connect(proxy.address("tcp"), name);
        client.send(get("/"));
        client.response("GET").is_ok_and(|response| response.status == 200)
    };
    let showing = |name: &str| Client::showing(&servers, &clients.issue(&[name]));
    assert!(answer(&showing("ann.test"), "site.test"));
    assert!(!answer(&showing("ann.test"), "other.test"));
    assert!(!answer(&showing("bob.test"), "site.test"));
    assert!(!answer(&Client::trusting(&servers), "site.test"));
}
