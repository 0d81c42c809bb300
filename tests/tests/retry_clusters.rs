//! Another try of a request goes to another cluster, where its retry policy says so (`refresh_cluster_on_retry`). The same
//! expectations hold for Envoy.

use postrider_tests::kit::config::{extension, overlay, upstream_http_options};
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::{Value, json};

const GROUPS: &str = "router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier";
const MATCHER: &str = "router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier";
const CLUSTER: &str = "router.cluster_specifiers.matcher.v3.ClusterAction";

/// Origins that answer with their letter: `a`, `b` and `c` fail, and `d` does not.
struct Site {
    origins: Vec<(&'static str, Origin)>,
}

impl Site {
    fn new() -> Site {
        let origin = |letter: &'static str| {
            let status = if letter == "d" { "200 OK" } else { "503 Service Unavailable" };
            (letter, Origin::fixed(format!("HTTP/1.1 {status}\r\ncontent-length: 1\r\n\r\n{letter}")))
        };
        Site { origins: ["a", "b", "c", "d"].map(origin).into() }
    }

    /// A proxy whose only route does this with requests.
    fn proxy(&self, tries: u32, action: Value) -> Proxy {
        self.proxy_with(tries, action, |config| config)
    }

    fn proxy_with(&self, tries: u32, action: Value, change: impl Fn(Config) -> Config) -> Proxy {
        let policy = json!({
            "retry_on": "5xx",
            "num_retries": tries - 1,
            "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.001s"},
            "refresh_cluster_on_retry": true,
        });
        let mut whole = json!({"retry_policy": policy});
        overlay(&mut whole, action);
        let host = json!({
            "name": "all",
            "domains": ["*"],
            "include_request_attempt_count": true,
            "routes": [{"match": {"prefix": "/"}, "route": whole}],
        });
        let mut config = Config::new().http(json!({"route_config": {"virtual_hosts": [host]}}));
        for (letter, origin) in &self.origins {
            config = config.cluster(letter, &[origin.address]);
        }
        Proxy::start(&change(config))
    }

    /// The letters of the clusters that were asked, one for each try.
    fn asked(&self) -> String {
        let of = |(letter, origin): &(&str, Origin)| -> Vec<(u32, String)> {
            let count = |count: &str| count.parse().expect("a number");
            let requests = origin.requests();
            requests.iter().map(|one| (count(one.header("x-envoy-attempt-count")), (*letter).to_owned())).collect()
        };
        let mut all: Vec<(u32, String)> = self.origins.iter().flat_map(of).collect();
        self.origins.iter().for_each(|(_, origin)| origin.forget());
        all.sort();
        all.into_iter().map(|(_, letter)| letter).collect()
    }
}

fn groups(groups: &[&[(&str, u32)]]) -> Value {
    let group = |(number, clusters): (usize, &&[(&str, u32)])| {
        let clusters = clusters.iter().map(|(name, weight)| json!({"cluster_name": name, "weight": weight}));
        json!({"name": format!("g{number}"), "clusters": clusters.collect::<Value>()})
    };
    let all: Value = groups.iter().enumerate().map(group).collect();
    plugin(GROUPS, json!({"priority_groups": all, "header_name": "x-number"}))
}

fn plugin(kind: &str, config: Value) -> Value {
    json!({"inline_cluster_specifier_plugin": {"extension": extension("plugin", kind, config)}})
}

fn ask(proxy: &Proxy, number: u32) -> u16 {
    proxy.exchange(format!("GET / HTTP/1.1\r\nhost: x\r\nx-number: {number}\r\n\r\n")).status
}

#[test]
fn each_try_goes_to_the_next_group_and_the_last_one_stays() {
    let site = Site::new();
    let proxy = site.proxy(6, groups(&[&[("a", 1)], &[("b", 1)], &[("c", 1)], &[("d", 1)]]));
    assert_eq!((ask(&proxy, 0), site.asked().as_str()), (200, "abcd"));
    // A client may have its answer before all is counted.
    proxy.wait_stat("cluster.d.upstream_rq_retry_success", 1);
    proxy.wait_stat("cluster.d.upstream_rq_completed", 1);
    proxy.wait_stat("cluster.d.upstream_rq_active", 0);
    let stats = proxy.stats();
    // What was tried again counts where it goes to.
    let retries = |letter: &str| stats.value(&format!("cluster.{letter}.upstream_rq_retry"));
    assert_eq!(["a", "b", "c", "d"].map(retries), [0, 1, 1, 1]);
    assert_eq!(stats.value("cluster.a.upstream_rq_completed"), 0);
    let gauges = ["a", "b", "c", "d"].map(|letter| stats.value(&format!("cluster.{letter}.upstream_rq_active")));
    assert_eq!(gauges, [0; 4]);

    let proxy = site.proxy(4, groups(&[&[("a", 1)], &[("b", 1)]]));
    assert_eq!((ask(&proxy, 0), site.asked().as_str()), (503, "abbb"));
    proxy.wait_stat("cluster.b.upstream_rq_retry_limit_exceeded", 1);
}

#[test]
fn one_number_draws_in_all_groups() {
    let site = Site::new();
    let all: &[&[(&str, u32)]] = &[&[("a", 1), ("b", 1)], &[("a", 1), ("b", 1), ("c", 1)], &[("b", 1), ("c", 1)]];
    let proxy = site.proxy(4, groups(all));
    let asked: Vec<String> = (0..6)
        .map(|number| {
            ask(&proxy, number);
            site.asked()
        })
        .collect();
    assert_eq!(asked, ["aabb", "bbcc", "acbb", "bacc", "abbb", "bccc"]);
}

#[test]
fn weighted_clusters_that_were_not_tried_come_first() {
    let site = Site::new();
    let clusters: Value = ["a", "b", "c"]
        .iter()
        .map(|name| {
            json!({
                "name": name,
                "weight": 1,
                "request_headers_to_add": [{"header": {"key": "x-weighted", "value": name}}],
                "response_headers_to_add": [{"header": {"key": "x-answered", "value": name}}],
            })
        })
        .collect();
    let proxy = site.proxy(6, json!({"weighted_clusters": {"clusters": clusters, "header_name": "x-number"}}));
    for (number, wanted) in ["abcabc", "bcabca", "cabcab", "acbacb", "bacbac", "cbacba"].iter().enumerate() {
        let response = proxy.exchange(format!("GET / HTTP/1.1\r\nhost: x\r\nx-number: {number}\r\n\r\n"));
        let requests: Vec<String> = site
            .origins
            .iter()
            .flat_map(|(_, origin)| origin.requests())
            .map(|one| one.header("x-weighted").to_owned())
            .collect();
        assert_eq!((response.status, site.asked().as_str()), (503, *wanted), "{number}");
        // The request was edited once; the answer is of the last one.
        assert!(requests.iter().all(|edited| wanted.starts_with(edited.as_str())), "{requests:?}");
        assert!(wanted.ends_with(response.header("x-answered")), "{wanted}: {}", response.header("x-answered"));
    }
}

#[test]
fn a_tree_of_conditions_is_asked_again() {
    let site = Site::new();
    let cluster = |name: &str| json!({"action": extension(name, CLUSTER, json!({"cluster": name}))});
    let input = json!({
        "name": "input",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
            "header_name": "x-envoy-attempt-count",
        },
    });
    let tree = |second: &str| {
        let map = json!({"1": cluster(second), "2": cluster("d")});
        plugin(
            MATCHER,
            json!({"cluster_matcher": {
                "matcher_tree": {"input": input, "exact_match_map": {"map": map}},
                "on_no_match": cluster("a"),
            }}),
        )
    };
    let proxy = site.proxy(4, tree("b"));
    assert_eq!((ask(&proxy, 0), site.asked().as_str()), (200, "abd"));
    // A cluster that is not there.
    let proxy = site.proxy(4, tree("nowhere"));
    let response = proxy.get("/");
    assert_eq!((response.status, response.text(), site.asked().as_str()), (503, "no healthy upstream", "a"));
}

#[test]
fn other_routes_keep_their_cluster() {
    let site = Site::new();
    let proxy = site.proxy(3, json!({"cluster": "a"}));
    assert_eq!((ask(&proxy, 0), site.asked().as_str()), (503, "aaa"));
    let proxy = site.proxy(3, groups(&[&[("a", 1), ("b", 1)]]));
    assert_eq!((ask(&proxy, 1), site.asked().as_str()), (503, "bbb"));
    let mut action = groups(&[&[("a", 1)], &[("d", 1)]]);
    action["retry_policy"] = json!({"refresh_cluster_on_retry": false});
    let proxy = site.proxy(3, action);
    assert_eq!((ask(&proxy, 0), site.asked().as_str()), (503, "aaa"));
}

#[test]
fn the_next_cluster_has_its_own_connections_filters_and_bodies() {
    let site = Site::new();
    let edit = json!({"mutations": {"request_mutations": [
        {"append": {"header": {"key": "x-upstream-filter", "value": "seen"}}},
    ]}});
    let filters = json!([
        extension("edit", "filters.http.header_mutation.v3.HeaderMutation", edit),
        extension("codec", "filters.http.upstream_codec.v3.UpstreamCodec", json!({})),
    ]);
    let echo = Origin::echo("echo");
    let proxy = site.proxy_with(4, groups(&[&[("down", 1)], &[("a", 1)], &[("edited", 1)]]), |config| {
        let options = upstream_http_options(json!({"http_filters": filters}));
        config.cluster("down", &[refusing_address()]).cluster_with("edited", &[echo.address], options)
    });
    let response = proxy.exchange("POST / HTTP/1.1\r\nhost: x\r\nx-number: 0\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(response.status, 200, "{}", response.text());
    let requests = echo.requests();
    assert_eq!((requests.len(), &requests[0].body[..]), (1, &b"hello"[..]));
    assert_eq!(requests[0].header("x-upstream-filter"), "seen");
    assert_eq!(site.asked(), "a");
    let again = proxy.exchange("GET / HTTP/1.1\r\nhost: x\r\nx-number: 0\r\n\r\n");
    assert_eq!(again.status, 200);
    assert_eq!(echo.requests().len(), 2);
}
