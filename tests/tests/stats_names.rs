//! The names of statistics, beside Envoy's: dashboards are written for them. What differs is in the table "Names of
//! statistics" of `docs/envoy-differences.md`, each with its reason, and nothing else may.

use postrider_tests::h2_client::H2Client;
use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::{Config, upstream_http_options};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, net, wait_until};
use postrider_tests::postrider_only;
use postrider_tests::tls::{Authority, Client, Identity, downstream, tls_inspector, upstream};
use postrider_tests::tls_origin::{Serving, TlsOrigin};
use rustls::version::TLS12;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const DIFFERENCES: &str = include_str!("../../docs/envoy-differences.md");

type Names = BTreeSet<String>;

/// Names that only one of both has, by a pattern in which `*` stands for anything.
struct Difference {
    pattern: &'static str,
    side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Envoy,
    Postrider,
}

#[test]
fn both_proxies_show_the_same_names() {
    if !postrider_only() {
        return;
    }
    let [envoy, postrider] = pair();
    let known = listed();
    for kind in ["All", "Counters", "Gauges", "Histograms"] {
        let path = format!("/stats?type={kind}");
        same(&path, &known, |proxy| names(proxy, &path), [&envoy, &postrider], matches);
    }
    let metrics = |proxy: &Proxy| -> Names {
        let answer = proxy.admin_get("/stats/prometheus");
        answer.text().lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.to_owned())).collect()
    };
    same("/stats/prometheus", &known, metrics, [&envoy, &postrider], |pattern, line| {
        let name = line.split(' ').next().unwrap_or_default();
        matches(&metric(pattern), name)
    });
    let (theirs, ours) = (names(&envoy, "/stats"), names(&postrider, "/stats"));
    for Difference { pattern, side } in known {
        let (has, lacks) = if side == Side::Envoy { (&theirs, &ours) } else { (&ours, &theirs) };
        assert!(has.difference(lacks).any(|name| matches(pattern, name)), "{pattern} is no difference any more");
    }
}

#[test]
fn patterns_match_whole_names() {
    assert!(matches("a.*.c", "a.b.b.c") && matches("*", "x") && matches("a*", "a") && matches("a", "a"));
    assert!(!matches("a.*.c", "a.c") && !matches("a", "ab") && !matches("*b", "ba") && !matches("ab*b", "ab"));
    assert_eq!(metric("cluster.*.ssl.sigalgs.*"), "envoy_cluster_ssl_sigalgs*");
    assert_eq!(metric("http.admin.no_route"), "envoy_http_no_route");
    assert_eq!(metric("dns.cares.*"), "envoy_dns_cares*");
}

/// Both on one configuration, after the same requests.
fn pair() -> [Proxy; 2] {
    let authority = Authority::new("ca");
    let identity = authority.issue_rsa(&["test"]);
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    let envoy = Launch { concurrency: 2, ..envoy };
    [envoy, launch].map(|launch| {
        let origins = Origins::start(&identity);
        let proxy = Proxy::start_with(&origins.config(&identity), launch);
        for path in ["/", "/h2", "/tls"] {
            assert_eq!(proxy.get(path).status, 200, "{path}");
        }
        assert_eq!(H2Client::connect(proxy.address("http")).get("/").status, 200);
        let client = Client::speaking(&authority, &[&TLS12]);
        assert_eq!(client.get(proxy.address("secured"), "test").expect("an answer").status, 200);
        proxy
    })
}

struct Origins {
    plain: Origin,
    h2: H2Origin,
    secured: TlsOrigin,
    down: SocketAddr,
}

impl Origins {
    fn start(identity: &Identity) -> Self {
        Self {
            plain: Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
            h2: H2Origin::start(10),
            secured: Serving::speaking(identity, &[&TLS12]).start(),
            down: net::refusing_address(),
        }
    }

    /// Of everything that brings names with it one, and one plain cluster.
    fn config(&self, identity: &Identity) -> Config {
        let agreed = json!({
            "cipher_suites": ["ECDHE-RSA-AES128-GCM-SHA256"],
            "ecdh_curves": ["X25519"],
            "tls_maximum_protocol_version": "TLSv1_2",
        });
        let params = json!({"common_tls_context": {"tls_params": agreed}});
        let manager = json!({"route_config": {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"match": {"prefix": "/h2"}, "route": {"cluster": "h2"}},
            {"match": {"prefix": "/tls"}, "route": {"cluster": "secured"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "plain"}},
        ]}]}});
        let plain = self.plain.address;
        let dns = json!({"type": "STRICT_DNS", "dns_lookup_family": "V4_ONLY", "load_assignment": assignment("dns")});
        Config::new()
            .http(manager.clone())
            .http_named("secured", manager)
            .tcp("tcp", json!({"cluster": "plain"}))
            .overlay_listener("http", json!({"stat_prefix": "front"}))
            .overlay_listener("secured", json!({"stat_prefix": "secured", "listener_filters": [tls_inspector()]}))
            .overlay_chain("secured", json!({"transport_socket": downstream(&[identity.inline()], params.clone())}))
            .overlay_listener("tcp", json!({"stat_prefix": "tcp"}))
            .cluster("plain", &[plain])
            .cluster_with("checked", &[plain], json!({"health_checks": [check()]}))
            .cluster_with("outliers", &[self.down], json!({"outlier_detection": {}}))
            .cluster_with("subsets", &[self.down], json!({"lb_subset_config": {"subset_selectors": [{"keys": ["a"]}]}}))
            .cluster_with("ring", &[self.down], json!({"lb_policy": "RING_HASH"}))
            .cluster_with("maglev", &[self.down], json!({"lb_policy": "MAGLEV"}))
            .cluster_with("secured", &[self.secured.address], json!({"transport_socket": upstream(params)}))
            .cluster_with(
                "h2",
                &[self.h2.address],
                upstream_http_options(json!({
                    "explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}},
                })),
            )
            .cluster_with("dns", &[], dns)
    }
}

fn check() -> Value {
    json!({
        "timeout": "5s",
        "interval": "600s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/"},
    })
}

/// A name, which a file of the system knows.
fn assignment(cluster: &str) -> Value {
    let endpoint = json!({"endpoint": {"address": {"socket_address": {"address": "localhost", "port_value": 9}}}});
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": [endpoint]}]})
}

fn names(proxy: &Proxy, path: &str) -> Names {
    let answer = proxy.admin_get(path);
    answer.text().lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

/// Asks until nothing differs but what is listed.
fn same(
    what: &str,
    known: &[Difference],
    ask: impl Fn(&Proxy) -> Names,
    [envoy, postrider]: [&Proxy; 2],
    is_meant: impl Fn(&str, &str) -> bool,
) {
    let is_known = |name: &str, side: Side| known.iter().any(|it| it.side == side && is_meant(it.pattern, name));
    let mut said = String::new();
    wait_until(what, || {
        let (theirs, ours) = (ask(envoy), ask(postrider));
        assert!(!theirs.is_empty() && !ours.is_empty(), "{what}");
        let missing: Vec<_> = theirs.difference(&ours).filter(|name| !is_known(name, Side::Envoy)).collect();
        let invented: Vec<_> = ours.difference(&theirs).filter(|name| !is_known(name, Side::Postrider)).collect();
        let differs = format!("{what}: in Envoy only {missing:#?}, in Postrider only {invented:#?}");
        if differs != said {
            eprintln!("{differs}");
            said = differs;
        }
        missing.is_empty() && invented.is_empty()
    });
}

/// The rows of the table: patterns in code, who has the names, why.
fn listed() -> Vec<Difference> {
    let table = DIFFERENCES.split("### Names of statistics").nth(1).expect("the table");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let mut all = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let [patterns, side, why] = row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("three columns: {row}");
        };
        assert!(!why.is_empty(), "no reason: {row}");
        let side = match side {
            "Envoy" => Side::Envoy,
            "Postrider" => Side::Postrider,
            _ => panic!("whose? {row}"),
        };
        let code = patterns.split('`').skip(1).step_by(2);
        all.extend(code.map(|pattern| Difference { pattern, side }));
    }
    assert!(!all.is_empty());
    all
}

/// The pattern of a metric for Prometheus: what follows `cluster`, `http` or `listener` is a label there, and so may the
/// end of a name be.
fn metric(pattern: &str) -> String {
    let mut parts: Vec<&str> = pattern.split('.').collect();
    if ["cluster", "http", "listener"].contains(&parts[0]) {
        parts.remove(1);
    }
    let open = parts.last() == Some(&"*");
    parts.truncate(parts.len() - usize::from(open));
    format!("envoy_{}{}", parts.join("_"), if open { "*" } else { "" })
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}
