//! Limits that the proxy keeps by itself, as Envoy keeps them.

use postrider_tests::dns::DnsServer;
use postrider_tests::kit::config::{extension, router, socket_address};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, Response, wait_until};
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

const NAME: &str = "envoy.filters.http.local_ratelimit";
const TYPE: &str = "filters.http.local_ratelimit.v3.LocalRateLimit";

/// A bucket that does not fill while a test runs.
fn bucket(max: u32) -> Value {
    json!({"max_tokens": max, "tokens_per_fill": 1, "fill_interval": "3600s"})
}

fn share(numerator: u32) -> Value {
    json!({"default_value": {"numerator": numerator}})
}

fn fields(more: Value) -> Value {
    let mut fields = json!({"stat_prefix": "edge", "filter_enabled": share(100), "filter_enforced": share(100)});
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

fn limit(more: Value) -> Plan {
    site::with([extension(NAME, TYPE, fields(more))])
}

fn of_route(more: Value) -> Value {
    let mut fields = fields(more);
    fields["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{TYPE}"));
    fields
}

fn stat(site: &Site, name: &str) -> u64 {
    site.stat(&format!("edge.http_local_rate_limit.{name}"))
}

fn quota(answer: &Response) -> [&str; 3] {
    ["limit", "remaining", "reset"].map(|what| answer.header(&format!("x-ratelimit-{what}")))
}

#[test]
fn a_request_too_many_is_refused() {
    let site = limit(json!({
        "token_bucket": bucket(2),
        "response_headers_to_add": [{"header": {"key": "x-limited", "value": "%REQ(:path)%"}}],
    }))
    .start();
    assert_eq!(site.get("/", "").status, 200);
    assert_eq!(site.get("/", "").status, 200);
    let refused = site.get("/p", "");
    assert_eq!((refused.status, refused.text()), (429, "local_rate_limited"));
    assert_eq!(refused.header("x-limited"), "/p");
    assert!(!refused.headers.contains("retry-after") && !refused.headers.contains("x-ratelimit-limit"));
    assert!(!refused.headers.contains("x-envoy-ratelimited"));
    assert_eq!(site.logged(3), "429 RL local_rate_limited");
    let call = site.ask("POST", "/", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!((call.header("grpc-status"), call.header("grpc-message")), ("14", "local_rate_limited"));
    assert_eq!(site.origin.requests().len(), 2);
    let counts = ["enabled", "enforced", "ok", "rate_limited"].map(|name| stat(&site, name));
    assert_eq!(counts, [4, 2, 2, 2]);
}

#[test]
fn how_a_refusal_looks_is_configured() {
    let site = limit(json!({
        "token_bucket": {"max_tokens": 1, "fill_interval": "100s"}, "status": {"code": "ServiceUnavailable"},
        "rate_limited_as_resource_exhausted": true, "enable_retry_after_header": true,
    }))
    .routes(json!([
        site::route(
            "/later",
            NAME,
            of_route(json!({
                "token_bucket": {"max_tokens": 1, "fill_interval": "100s"}, "enable_retry_after_header": true,
                "status": {"code": "OK"},
            }))
        ),
        site::route(
            "/own",
            NAME,
            of_route(json!({
                "token_bucket": {"max_tokens": 1, "fill_interval": "100s"}, "enable_retry_after_header": true,
                "response_headers_to_add": [{"header": {"key": "retry-after", "value": "7"}}],
            }))
        ),
        site::rest(),
    ]))
    .start();
    for path in ["/", "/later", "/own"] {
        assert_eq!(site.get(path, "").status, 200, "{path}");
    }
    let refused = site.get("/", "");
    assert_eq!((refused.status, refused.header("retry-after")), (503, ""));
    let call = site.ask("POST", "/", "content-type: application/grpc\r\ncontent-length: 0\r\n");
    assert_eq!(call.header("grpc-status"), "8");
    let later = site.get("/later", "");
    assert_eq!(later.status, 429, "an answer below 400 would not refuse");
    assert!(["99", "100"].contains(&later.header("retry-after")), "{later:?}");
    assert_eq!(site.get("/own", "").headers.values("retry-after"), ["7"]);
}

#[test]
fn answers_tell_about_the_limit() {
    let site = limit(json!({
        "token_bucket": {"max_tokens": 3, "fill_interval": "100s"}, "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    }))
    .start();
    let answers: Vec<Response> = (0..4).map(|_| site.get("/", "")).collect();
    let seen: Vec<_> = answers.iter().map(|answer| (answer.status, quota(answer))).collect();
    for (index, (status, [limit, remaining, reset])) in seen.iter().enumerate() {
        let left = 2_usize.saturating_sub(index);
        let want = (if index < 3 { 200 } else { 429 }, "3", left.to_string());
        assert_eq!((*status, *limit, (*remaining).to_owned()), want, "{seen:?}");
        // The seconds until there is a token again.
        let reset: u64 = reset.parse().unwrap();
        assert!(if left > 0 { reset == 0 } else { (97..=100).contains(&reset) }, "{seen:?}");
    }
}

#[test]
fn nothing_is_done_without_a_share_and_marked_without_enforcement() {
    let header = json!([{"header": {"key": "x-over", "value": "1"}}]);
    let site = limit(json!({"token_bucket": bucket(1), "filter_enabled": share(0)}))
        .routes(json!([
            site::route(
                "/marked",
                NAME,
                of_route(json!({
                    "stat_prefix": "marked", "token_bucket": bucket(1), "filter_enforced": share(0),
                    "request_headers_to_add_when_not_enforced": header,
                }))
            ),
            site::rest(),
        ]))
        .start();
    for _ in 0..2 {
        assert_eq!(site.get("/", "").status, 200);
        assert_eq!(site.get("/marked", "").status, 200);
    }
    assert_eq!(stat(&site, "enabled"), 0);
    let counts = ["enabled", "enforced", "ok", "rate_limited"];
    let counts = counts.map(|name| site.stat(&format!("marked.http_local_rate_limit.{name}")));
    assert_eq!(counts, [2, 0, 1, 1]);
    let marks: Vec<bool> = site.origin.requests().iter().map(|request| request.headers.contains("x-over")).collect();
    assert_eq!(marks, [false, false, false, true]);
    assert_eq!(site.logged(4), "200 - via_upstream");
}

fn rule(entries: &[(&str, &str)], max: u32) -> Value {
    let entries: Vec<Value> = entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    json!({"entries": entries, "token_bucket": bucket(max)})
}

/// `rate_limits` that make one descriptor of a header, with its name as the key.
fn by_header(names: &[&str]) -> Value {
    let action = |name: &&str| json!({"request_headers": {"header_name": name, "descriptor_key": name}});
    json!([{"actions": names.iter().map(action).collect::<Vec<_>>()}])
}

fn statuses(site: &Site, path: &str, fields: &[&str]) -> Vec<u16> {
    fields.iter().map(|fields| site.get(path, fields).status).collect()
}

#[test]
fn descriptors_have_their_own_buckets() {
    let host = json!({"rate_limits": by_header(&["x-plan"])});
    let more = json!({
        "token_bucket": bucket(3), "always_consume_default_token_bucket": false,
        "descriptors": [rule(&[("x-plan", "free")], 1), rule(&[("x-plan", "paid")], 2)],
    });
    let site = limit(more.clone()).host(host.clone()).start();
    let (free, paid) = ("x-plan: free\r\n", "x-plan: paid\r\n");
    assert_eq!(statuses(&site, "/", &[free, free, paid, paid, paid]), [200, 429, 200, 200, 429]);
    assert_eq!(statuses(&site, "/", &["", "x-plan: other\r\n", "", ""]), [200, 200, 200, 429]);
    let mut always = more;
    always["always_consume_default_token_bucket"] = json!(true);
    let site = limit(always).host(host).start();
    assert_eq!(statuses(&site, "/", &[free, paid, paid, ""]), [200, 200, 200, 429]);
}

#[test]
fn a_wildcard_gives_each_value_a_bucket_up_to_a_number() {
    let site = limit(json!({
        "token_bucket": bucket(1000), "max_dynamic_descriptors": 2,
        "descriptors": [rule(&[("x-user", "")], 1)], "rate_limits": by_header(&["x-user"]),
    }))
    .start();
    let user = |name: &str| site.get("/", &format!("x-user: {name}\r\n")).status;
    let seen: Vec<u16> = ["a", "a", "b", "b", "a", "c", "a", "b"].map(user).to_vec();
    // Of three users two are remembered: `b` was asked for longest ago when `c` came.
    assert_eq!(seen, [200, 429, 200, 429, 429, 200, 429, 200]);
}

#[test]
fn rules_come_from_the_filter_the_route_or_the_virtual_host() {
    let limits = |names: &[&str]| json!({"match": {"prefix": "/own"}, "route": {"cluster": "origin", "rate_limits": by_header(names)}});
    let host = json!({"rate_limits": by_header(&["x-h"]), "routes": [limits(&["x-r"]), site::rest()]});
    let descriptors = json!([rule(&[("x-h", "1")], 1), rule(&[("x-r", "1")], 1)]);
    for (option, want) in [
        // What `x-h: 1` twice, then `x-r: 1` twice are answered with, on the route with rules of its own.
        ("OVERRIDE", [200, 200, 200, 429]),
        ("INCLUDE", [200, 429, 200, 429]),
        ("IGNORE", [200, 200, 200, 429]),
    ] {
        let more = json!({"token_bucket": bucket(1000), "descriptors": descriptors, "vh_rate_limits": option});
        let site = limit(more).host(host.clone()).start();
        let (h, r) = ("x-h: 1\r\n", "x-r: 1\r\n");
        assert_eq!(statuses(&site, "/own", &[h, h, r, r]), want, "{option}");
        let of_host = if option == "IGNORE" {
            [200, 200]
        } else if option == "INCLUDE" {
            [429, 429]
        } else {
            [200, 429]
        };
        assert_eq!(statuses(&site, "/", &[h, h]), of_host, "{option}");
    }
    let own = json!({"token_bucket": bucket(1000), "descriptors": descriptors, "rate_limits": by_header(&["x-r"])});
    let site = limit(own).host(host).start();
    assert_eq!(statuses(&site, "/", &["x-h: 1\r\n", "x-h: 1\r\n", "x-r: 1\r\n", "x-r: 1\r\n"]), [200, 200, 200, 429]);
}

#[test]
fn rules_of_routes_with_a_disable_key_do_not_count() {
    let mut keyed = by_header(&["x-h"]);
    keyed[0]["disable_key"] = json!("limits");
    let routes =
        json!([{"match": {"prefix": "/own"}, "route": {"cluster": "origin", "rate_limits": keyed}}, site::rest()]);
    let more = json!({"token_bucket": bucket(1000), "descriptors": [rule(&[("x-h", "1")], 1)]});
    let site = limit(more).host(json!({"rate_limits": keyed, "routes": routes})).start();
    for path in ["/own", "/"] {
        assert_eq!(statuses(&site, path, &["x-h: 1\r\n", "x-h: 1\r\n"]), [200, 200], "{path}");
    }
}

#[test]
fn a_rule_says_whether_answers_tell_of_its_limit() {
    let told = |option: &str| {
        let mut rules = by_header(&["x-h"]);
        rules[0]["x_ratelimit_option"] = json!(option);
        rules
    };
    let limits = |headers: &str, more: Value| {
        let mut fields = json!({
            "token_bucket": bucket(1000), "descriptors": [rule(&[("x-h", "1")], 5)],
            "enable_x_ratelimit_headers": headers,
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        limit(fields)
    };
    for (headers, option, with_rule, without) in [
        ("DRAFT_VERSION_03", "OFF", "", "1000"),
        ("OFF", "DRAFT_VERSION_03", "5", ""),
        ("DRAFT_VERSION_03", "UNSPECIFIED", "5", "1000"),
        ("OFF", "UNSPECIFIED", "", ""),
    ] {
        let of_filter = limits(headers, json!({"rate_limits": told(option)})).start();
        let of_host = limits(headers, json!({})).host(json!({"rate_limits": told(option)})).start();
        for site in [of_filter, of_host] {
            for (fields, want) in [("x-h: 1\r\n", with_rule), ("", without)] {
                assert_eq!(quota(&site.get("/", fields))[0], want, "{headers} {option} {fields}");
            }
        }
    }
}

#[test]
fn a_request_weighs_what_its_rule_says() {
    let mut weighed = by_header(&["x-h"]);
    weighed[0]["hits_addend"] = json!({"format": "%REQ(x-cost)%"});
    let more = json!({
        "token_bucket": bucket(1000), "descriptors": [rule(&[("x-h", "1")], 12)], "rate_limits": weighed,
    });
    let site = limit(more).start();
    let costs = |cost: &str| site.get("/", &format!("x-h: 1\r\nx-cost: {cost}\r\n")).status;
    assert_eq!(["1e1", "3.0", "2.9", "1"].map(costs), [200, 429, 200, 429]);
    assert_eq!(costs("many"), 200, "no number, no descriptor");
}

#[test]
fn a_weight_on_a_route_has_no_effect() {
    let mut weighed = by_header(&["x-h"]);
    weighed[0]["hits_addend"] = json!({"number": 5});
    let more = json!({"token_bucket": bucket(1000), "descriptors": [rule(&[("x-h", "1")], 2)]});
    let site = limit(more).host(json!({"rate_limits": weighed})).start();
    assert_eq!(statuses(&site, "/", &["x-h: 1\r\n"; 3]), [200, 200, 429]);
}

#[test]
fn only_rules_of_the_filters_stage_count() {
    let mut rules = by_header(&["x-h"]);
    rules[0]["stage"] = json!(1);
    for (stage, second) in [(0, 200), (1, 429)] {
        let more = json!({"token_bucket": bucket(1000), "descriptors": [rule(&[("x-h", "1")], 1)], "stage": stage});
        let site = limit(more).host(json!({"rate_limits": rules})).start();
        assert_eq!(statuses(&site, "/", &["x-h: 1\r\n", "x-h: 1\r\n"]), [200, second]);
    }
}

#[test]
fn a_rule_in_the_shadow_only_counts() {
    let mut shadowed = rule(&[("x-h", "1")], 1);
    shadowed["shadow_mode"] = json!(true);
    let more = json!({
        "token_bucket": bucket(5), "descriptors": [shadowed], "rate_limits": by_header(&["x-h"]),
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    });
    let site = limit(more).start();
    let h = "x-h: 1\r\n";
    assert_eq!(statuses(&site, "/", &[h, h]), [200, 200]);
    let counts = ["enabled", "enforced", "ok", "rate_limited", "shadow_mode"].map(|name| stat(&site, name));
    assert_eq!(counts, [2, 0, 1, 1, 1]);
    assert_eq!(quota(&site.get("/", h))[..2], ["1", "0"]);
    assert_eq!(quota(&site.get("/", ""))[..2], ["5", "1"], "each of them drew from the default bucket");
    assert_eq!(statuses(&site, "/", &[h, h]), [200, 429], "which still refuses");
}

#[test]
fn a_connection_may_have_its_own_limit() {
    let site = limit(json!({"token_bucket": bucket(1), "local_rate_limit_per_downstream_connection": true})).start();
    let request = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    let (mut first, mut second) = (site.proxy.client(), site.proxy.client());
    assert_eq!(first.exchange(request).status, 200);
    assert_eq!(second.exchange(request).status, 200);
    assert_eq!(first.exchange(request).status, 429);
    assert_eq!(second.exchange(request).status, 429);
}

#[test]
fn workers_share_a_limit() {
    let launch = Launch { concurrency: 4, ..Launch::default() };
    let site = limit(json!({"token_bucket": bucket(5)})).start_with(Origin::echo("a"), launch);
    let statuses: Vec<u16> = (0..40).map(|_| site.get("/", "").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5);
}

#[test]
fn a_key_of_another_filter_filled_the_buckets() {
    let share = json!({"default_value": {"numerator": 0}, "runtime_key": "csrf.on"});
    let other =
        extension("envoy.filters.http.csrf", "filters.http.csrf.v3.CsrfPolicy", json!({"filter_enabled": share}));
    let own = extension(NAME, TYPE, fields(json!({"token_bucket": bucket(1)})));
    let site = site::with([other, own])
        .routes(json!([site::route("/own", NAME, of_route(json!({"token_bucket": bucket(2)}))), site::rest()]))
        .whole(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}))
        .start();
    assert_eq!(statuses(&site, "/", &["", ""]), [200, 429]);
    assert_eq!(statuses(&site, "/own", &["", "", ""]), [200, 200, 429]);
    assert_eq!(site.proxy.admin_post("/runtime_modify?csrf.on=100").status, 200);
    wait_until("the key is in force", || site.ask("POST", "/", "content-length: 0\r\n").status == 403);
    assert_eq!(statuses(&site, "/", &[""]), [429]);
    assert_eq!(statuses(&site, "/own", &[""]), [429], "nor are those of a route filled");
}

/// So did one of its own, and one of a route beside its override.
#[test]
fn a_key_of_the_limit_itself_filled_the_buckets() {
    let keyed = |key: &str, numerator: u32| json!({"default_value": {"numerator": numerator}, "runtime_key": key});
    let own = fields(json!({"token_bucket": bucket(1), "filter_enforced": keyed("limit.enforced", 0)}));
    let limited = |prefix: &str, enforced: Value| {
        let own = json!({"token_bucket": bucket(1), "stat_prefix": prefix, "filter_enforced": enforced});
        site::route(&format!("/{prefix}"), NAME, of_route(own))
    };
    let mut sometimes = limited("sometimes", share(100));
    sometimes["match"]["runtime_fraction"] = keyed("sometimes.on", 100);
    let site = site::with([extension(NAME, TYPE, own)])
        .routes(json!([limited("own", keyed("own.enforced", 0)), sometimes, site::rest()]))
        .whole(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}))
        .start();
    assert_eq!(statuses(&site, "/", &["", ""]), [200, 200], "the limit is not enforced");
    assert_eq!(statuses(&site, "/own", &["", ""]), [200, 200]);
    assert_eq!(statuses(&site, "/sometimes", &["", ""]), [200, 429]);
    let becomes = |change: &str, path: &str, status: u16| {
        assert_eq!(site.proxy.admin_post(&format!("/runtime_modify?{change}")).status, 200);
        wait_until("the key is in force", || site.get(path, "").status == status);
    };
    becomes("own.enforced=100", "/own", 429);
    becomes("sometimes.on=0", "/sometimes", 200);
    becomes("sometimes.on=100", "/sometimes", 429);
    becomes("limit.enforced=100", "/", 429);
    for prefix in ["edge", "own", "sometimes"] {
        let passed = site.stat(&format!("{prefix}.http_local_rate_limit.ok"));
        assert_eq!(passed, 1, "the bucket of `{prefix}` has not been filled again");
    }
}

#[test]
fn a_bucket_fills_again() {
    let site = limit(json!({"token_bucket": {"max_tokens": 1, "fill_interval": "0.05s"}})).start();
    assert_eq!(site.get("/", "").status, 200);
    postrider_tests::kit::wait_until("the bucket to fill", || site.get("/", "").status == 200);
}

/// A bucket of five that does not fill, shared by the proxies that `cluster` lists.
fn shared(cluster: Value) -> Proxy {
    let limit = fields(json!({
        "token_bucket": bucket(5), "local_cluster_rate_limit": {}, "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    }));
    let config = Config::new()
        .http(json!({
            "http_filters": [extension(NAME, TYPE, limit), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
            ]}]},
        }))
        .overlay(json!({
            "cluster_manager": {"local_cluster_name": "proxies"}, "static_resources": {"clusters": [cluster]},
        }));
    Proxy::start(&config)
}

fn proxies(kind: &str, hosts: &[&str]) -> Value {
    let endpoint = |host: &&str| json!({"endpoint": {"address": socket_address(host, 1)}});
    let endpoints: Vec<Value> = hosts.iter().map(endpoint).collect();
    json!({
        "name": "proxies", "type": kind,
        "load_assignment": {"cluster_name": "proxies", "endpoints": [{"lb_endpoints": endpoints}]},
    })
}

#[test]
fn proxies_of_a_cluster_have_even_shares_of_a_limit() {
    let proxy = shared(proxies("STATIC", &["127.0.0.1", "127.0.0.2"]));
    let answers = [(); 3].map(|()| proxy.get("/"));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 429]);
    assert_eq!(answers.each_ref().map(|answer| quota(answer)[1]), ["3", "1", "1"]);
}

#[test]
fn a_share_follows_the_number_of_proxies() {
    let server = DnsServer::start();
    server.set("proxies.test", &["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let mut cluster = proxies("STRICT_DNS", &["proxies.test"]);
    let at = server.address;
    cluster["dns_resolvers"] = json!([socket_address(&at.ip().to_string(), at.port())]);
    cluster["dns_lookup_family"] = json!("V4_ONLY");
    cluster["dns_refresh_rate"] = json!("0.03s");
    let proxy = shared(cluster);
    let members = |number: u64| {
        wait_until("the proxies are known", || proxy.stats().value("cluster.proxies.membership_total") == number);
    };
    members(3);
    assert_eq!([(); 2].map(|()| proxy.get("/").status), [200, 429], "five are not enough for two of three each");
    server.set("proxies.test", &["127.0.0.1"]);
    members(1);
    assert_eq!([(); 3].map(|()| proxy.get("/").status), [200, 200, 429], "two are left");
}
