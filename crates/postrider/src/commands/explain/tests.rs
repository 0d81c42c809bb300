use postrider_worker::HandlerPlan;
use serde_json::Value;

use super::*;
use crate::config::{self, Checked};

/// The repository's gateway: virtual hosts, every kind of action, filters with overrides.
const GATEWAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.yaml");

fn gateway() -> Checked {
    config::check(&Input::argument(GATEWAY.as_ref()), None, 1).unwrap()
}

fn explain(checked: &Checked, url: &str, headers: &[&str]) -> (Value, String) {
    explain_noted(checked, url, headers, &[])
}

fn explain_noted(checked: &Checked, url: &str, headers: &[&str], noted: &[&str]) -> (Value, String) {
    let noted: Vec<_> = noted.iter().map(|text| super::noted(text).unwrap()).collect();
    let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
    let request = WireRequest::new("GET", url, &headers).unwrap();
    let plan = checked.plan.as_ref().unwrap();
    let listener = choose_listener(plan, None, &request).unwrap();
    let journey = Journey::follow(plan, listener, &request, "127.0.0.1:0".parse().unwrap(), &noted);
    let places = Places(&checked.outcome);
    (json::render(&journey, &places), text::render(&journey, &places, false))
}

#[test]
fn the_winner_comes_with_its_place_and_the_others_with_a_reason() {
    let checked = gateway();
    let (json, text) = explain(&checked, "http://shop.example/api//v2/x", &["x-tester: no"]);
    assert_eq!((&json["route"]["name"], &json["request"]["path"]), (&"api".into(), &"/api/v2/x".into()));
    assert_eq!(json["routes_tried"][1]["name"], "testers");
    assert!(json["routes_tried"][1]["why"].as_str().unwrap().contains("x-tester"), "{json:#}");
    let line =
        std::fs::read_to_string(GATEWAY).unwrap().lines().position(|line| line.contains("name: api")).unwrap() + 1;
    assert_eq!(json["route"]["place"]["line"], line);
    assert!(text.contains("- testers (prefix /): header x-tester") && text.contains("+ api (regex "), "{text}");
    assert_eq!(json["route"]["forward"]["clusters"][0]["weight"], 95);
    assert_eq!(json["route"]["forward"]["clusters"][1]["host"], "127.0.0.1:9001");
}

#[test]
fn what_filters_noted_chooses_the_route_and_the_cluster() {
    const FILE: &str = r#"
static_resources:
  listeners:
  - name: edge
    address: { socket_address: { address: 127.0.0.1, port_value: 80 } }
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - name: tiers
                match: { prefix: /, filter_state: [{ key: kind, string_match: { exact: tiered } }] }
                route:
                  inline_cluster_specifier_plugin:
                    extension:
                      name: by-tier
                      typed_config:
                        "@type": type.googleapis.com/envoy.extensions.router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier
                        cluster_matcher:
                          matcher_tree:
                            input:
                              name: tier
                              typed_config:
                                "@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.FilterStateInput
                                key: tier
                            exact_match_map:
                              map:
                                gold:
                                  action:
                                    name: fast
                                    typed_config:
                                      "@type": type.googleapis.com/envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction
                                      cluster: fast
              - { name: rest, match: { prefix: / }, direct_response: { status: 404 } }
          http_filters:
          - name: router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: fast
"#;
    let file = std::env::temp_dir().join(format!("postrider-explain-noted-{}.yaml", std::process::id()));
    std::fs::write(&file, FILE).unwrap();
    let checked = config::check(&Input::argument(&file), None, 1).unwrap();
    std::fs::remove_file(&file).unwrap();
    let asked = |noted: &[&str]| explain_noted(&checked, "http://x/", &[], noted).0;
    assert_eq!(asked(&[])["route"]["name"], "rest");
    let gold = asked(&["kind=tiered", "tier=gold"]);
    assert_eq!(
        (&gold["route"]["name"], &gold["route"]["forward"]["clusters"][0]["name"]),
        (&"tiers".into(), &"fast".into())
    );
    let tin = asked(&["kind=tiered", "tier=a=b"]);
    assert_eq!(tin["route"]["name"], "tiers");
    assert_eq!(tin["route"]["forward"]["clusters"].as_array().map_or(0, Vec::len), 0, "{tin:#}");
    assert!(super::noted("tier").is_err() && super::noted("=x").is_err());
}

#[test]
fn a_redirect_says_where_to() {
    let (json, text) = explain(&gateway(), "http://other.example/a?b", &[]);
    assert_eq!(json["route"]["redirect"]["location"], "https://shop.example/a?b");
    assert!(text.contains("301 to https://shop.example/a?b"), "{text}");
}

#[test]
fn filters_are_on_or_off_as_the_compiled_plan_has_them() {
    let checked = gateway();
    let plan = checked.plan.as_ref().unwrap();
    let HandlerPlan::Http(http) = &plan.listeners[0].chains[0].handler else { panic!("the gateway speaks HTTP") };
    for (url, route, on) in [
        ("http://shop.example/admin/x", "operators", 2),
        ("http://shop.example/healthz", "health", 1),
        ("http://elsewhere/", "", 1),
    ] {
        let (json, _) = explain(&checked, url, &[]);
        assert_eq!(json["route"]["name"], route);
        let shown = json["filters"].as_array().unwrap().iter().filter(|filter| filter["on"] == true).count();
        let compiled =
            http.routes.routes.iter().find(|compiled| compiled.facts.name.as_deref().unwrap_or("") == route).unwrap();
        assert_eq!(shown, http.routes.filter_chains[compiled.filters as usize].0.len(), "{json:#}");
        assert_eq!(shown, on, "{url}");
    }
}

const RIDER: &str = r#"
static_resources:
  listeners:
  - name: web
    address: { socket_address: { address: 127.0.0.1, port_value: 8080 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
              typed_per_filter_config:
                proxy.filters.http.rider:
                  "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.RouteFilterConfig
                  plugins: [{ name: g1, config: { v: 1 } }, { name: g2, config: { v: 2 } }]
                m: { "@type": type.googleapis.com/postrider.filters.http.plugin.v1.PluginPerRoute, config: { a: host } }
              routes:
              - match: { prefix: /a }
                route: { weighted_clusters: { clusters: [
                  { name: c, weight: 1 }, { name: d, weight: 1, typed_per_filter_config: {
                    m: { "@type": type.googleapis.com/postrider.filters.http.plugin.v1.PluginPerRoute, disabled: true } } }] } }
                typed_per_filter_config:
                  proxy.filters.http.rider:
                    "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.RouteFilterConfig
                    plugins: [{ name: g1, config: { r: 1 } }]
                  m: { "@type": type.googleapis.com/postrider.filters.http.plugin.v1.PluginPerRoute, config: { a: own } }
              - match: { prefix: /off }
                direct_response: { status: 200 }
                typed_per_filter_config:
                  m: { "@type": type.googleapis.com/postrider.filters.http.plugin.v1.PluginPerRoute, disabled: true }
              - match: { prefix: / }
                direct_response: { status: 200 }
          http_filters:
          - name: proxy.filters.http.rider
            typed_config:
              "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
              plugin: { name: g1, code: { local: { inline_string: "return {}" } } }
          - name: proxy.filters.http.rider
            typed_config:
              "@type": type.googleapis.com/proxy.filters.http.rider.v3alpha1.FilterConfig
              plugin: { name: g2, code: { local: { inline_string: "return {}" } } }
          - name: m
            typed_config:
              "@type": type.googleapis.com/postrider.filters.http.plugin.v1.Plugin
              name: m
              runtime: rider
              code: { inline_string: "return {}" }
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters: [{ name: c, type: STATIC }, { name: d, type: STATIC }]
"#;

#[test]
fn a_plugin_is_explained_with_what_counts_for_it() {
    let input = Input::flags(None, Some(RIDER.to_owned()), false, config::Service::default()).unwrap();
    let checked = config::check(&input, None, 1).unwrap();
    let (json, text) = explain(&checked, "http://a:8080/a", &[]);
    let filter = |json: &Value, index: usize| json["filters"][index].clone();
    let [g1, g2, m] = [0, 1, 2].map(|index| filter(&json, index));
    assert_eq!((&g1["plugin"], &g1["sights"][0]["sees"]), (&"g1".into(), &serde_json::json!({ "r": 1 })), "{json:#}");
    assert_eq!(g1["sights"][0]["scope"], "route");
    // The route's list hides that of the virtual host, though it does not name this plugin.
    assert_eq!((&g2["plugin"], &g2["sights"][0]["sees"]), (&"g2".into(), &Value::Null), "{json:#}");
    assert_eq!((&g2["on"], &g2["sights"][0]["runs"]), (&true.into(), &true.into()));
    assert_eq!(m["sights"][0]["sees"]["a"], "own");
    let of_d = m["sights"].as_array().unwrap().iter().find(|seen| seen["weighted_cluster"] == "d").unwrap();
    assert_eq!(of_d["runs"], false);
    for line in [
        "proxy.filters.http.rider, plugin g1\n",
        "  sees: {\"r\":1}, of the route\n",
        "proxy.filters.http.rider, plugin g2\n",
        "  sees: nothing but the chain's configuration\n",
        "  sees: {\"a\":\"own\"}, of the route\n",
        "  does not run here with cluster d\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let (json, text) = explain(&checked, "http://a:8080/off", &[]);
    assert_eq!((&filter(&json, 2)["on"], &filter(&json, 1)["sights"][0]["sees"]["v"]), (&false.into(), &2.into()));
    assert!(text.contains("m (off)\n") && text.contains("  does not run here\n"), "{text}");
    let (json, _) = explain(&checked, "http://a:8080/", &[]);
    assert_eq!((&filter(&json, 2)["on"], &filter(&json, 2)["sights"][0]["sees"]["a"]), (&true.into(), &"host".into()));
}

#[test]
fn a_request_that_the_listener_refuses_says_with_what() {
    let (json, text) = explain(&gateway(), "http://shop.example/", &["host: a b"]);
    assert_eq!(json["refused"]["status"], 400);
    assert!(json.get("route").is_none() && text.contains("refused"), "{text}");
}

#[test]
fn what_a_connection_has_to_pass_first_is_told() {
    let folder = std::env::temp_dir().join(format!("postrider-explain-gates-{}", std::process::id()));
    std::fs::write(
        &folder,
        r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: 8080 } }
    filter_chains:
    - filters:
      - name: some
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit
          stat_prefix: few
          max_connections: 10
      - name: who
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC
          stat_prefix: who
          rules: { policies: { all: { permissions: [{ any: true }], principals: [{ any: true }] } } }
      - name: web
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          http_filters:
          - name: router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            virtual_hosts: [{ name: all, domains: ["*"], routes: [{ match: { prefix: / }, direct_response: { status: 200 } }] }]
"#,
    )
    .unwrap();
    let checked = config::check(&Input::argument(&folder), None, 1).unwrap();
    std::fs::remove_file(&folder).unwrap();
    let (json, text) = explain(&checked, "http://127.0.0.1:8080/", &[]);
    let behind = &json["filter_chain"]["behind"];
    assert_eq!(behind[0]["name"], "at most 10 connections (connection_limit.few)", "{json:#}");
    assert_eq!((&behind[1]["name"], &behind[1]["place"]["line"]), (&"who".into(), &14.into()), "{json:#}");
    assert!(text.contains("behind        who"), "{text}");
}

#[test]
fn a_client_address_may_lack_the_port() {
    assert_eq!(client_address("::1"), Ok("[::1]:0".parse().unwrap()));
    assert_eq!(client_address("10.0.0.1:7"), Ok("10.0.0.1:7".parse().unwrap()));
    assert!(client_address("localhost").is_err());
}
