//! One look at what a proxy has counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Admin;

/// What `/stats` is asked for: a regular expression over names.
const FILTER: &str = concat!(
    r"^(listener\..*\.downstream_(rq_completed|rq_5xx|cx_active)",
    r"|cluster\..*\.(upstream_(rq_(completed|5xx|active|time)|cx_(active|connect_fail))|membership_(healthy|total))",
    r"|vhost\..*\.upstream_rq_(completed|5xx)|watched\.route\..*\.rq_(total|5xx))$",
);

/// What was counted at one moment.
pub struct Sample {
    pub at: Instant,
    pub listeners: BTreeMap<String, Counts>,
    pub clusters: BTreeMap<String, Counts>,
    /// As the proxy counts them while somebody watches, with virtual clusters; where it does not, those routes that have
    /// statistics of their own.
    pub routes: BTreeMap<String, Counts>,
    /// By filter and route, plugins first.
    pub filters: BTreeMap<(String, String), Calls>,
    /// By name.
    pub plugins: BTreeMap<String, Plugin>,
}

type Places = BTreeMap<String, Counts>;

/// Of a listener, a route or a cluster.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub requests: u64,
    pub errors: u64,
    /// Now.
    pub active: u64,
    pub connections: u64,
    pub connect_failures: u64,
    /// Of the cluster's hosts.
    pub healthy: u64,
    pub hosts: u64,
    /// Milliseconds since the proxy started, as the other.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

#[derive(Clone, Default)]
pub struct Plugin {
    pub version: String,
    /// Bytes over all workers.
    pub memory: u64,
    pub circuit: String,
}

/// Of a filter on a route.
#[derive(Clone, Copy, Default)]
pub struct Calls {
    pub calls: u64,
    pub errors: u64,
    pub local_replies: u64,
    pub bypassed: u64,
    pub allocations: u64,
    /// Bytes of a plugin's machine; 0 where nobody tells.
    pub allocated: u64,
    /// Nanoseconds.
    pub time: u64,
    /// Nanoseconds since the proxy started, as the other; only plugins know.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

impl Sample {
    /// # Errors
    /// The admin does not answer, or not so.
    pub fn take(admin: &Admin, interval: Duration) -> Result<Sample, String> {
        // Until the look after the next. Who may only read sees the other tables.
        let seconds = (interval * 3).as_secs().max(10);
        let _ = admin.order(&format!("/routes/watch?seconds={seconds}"));
        let stats = admin.json(&format!("/stats?format=json&filter={}", percent_encoded(FILTER)))?;
        let plugins = admin.json("/plugins?format=json")?;
        Ok(Sample::read(&stats, &plugins, Instant::now()))
    }

    pub fn read(stats: &Value, plugins: &Value, at: Instant) -> Sample {
        let mut sample = Sample {
            at,
            listeners: BTreeMap::new(),
            clusters: BTreeMap::new(),
            routes: BTreeMap::new(),
            filters: BTreeMap::new(),
            plugins: BTreeMap::new(),
        };
        let (mut watched, mut prefixed) = (BTreeMap::new(), BTreeMap::new());
        for stat in list(&stats["stats"]) {
            if let (Some(name), Some(value)) = (stat["name"].as_str(), stat["value"].as_u64()) {
                sample.take_in(name, value, (&mut watched, &mut prefixed));
            }
            sample.take_in_times(&stat["histograms"]);
        }
        sample.routes.extend(if watched.is_empty() { prefixed } else { watched });
        for plugin in list(&plugins["plugins"]) {
            let name = text(plugin, "name");
            for route in list(&plugin["routes"]) {
                let time = &route["time_ns"];
                let calls = Calls {
                    time: number(time, "sum"),
                    p50: time["p50"].as_f64(),
                    p99: time["p99"].as_f64(),
                    ..calls(route)
                };
                sample.filters.insert((name.clone(), text(route, "route")), calls);
            }
            let known = Plugin {
                version: text(plugin, "version"),
                memory: number(plugin, "memory_bytes"),
                circuit: text(plugin, "circuit"),
            };
            sample.plugins.insert(name, known);
        }
        for filter in list(&plugins["filters"]) {
            for route in list(&filter["routes"]) {
                let calls = Calls { time: number(route, "time_ns"), ..calls(route) };
                sample.filters.insert((text(filter, "name"), text(route, "route")), calls);
            }
        }
        sample
    }

    /// `watched` and `prefixed` are routes, by who counts them.
    fn take_in(&mut self, name: &str, value: u64, (watched, prefixed): (&mut Places, &mut Places)) {
        let Some((place, stat)) = name.rsplit_once('.') else { return };
        let Some((root, place)) = place.split_once('.') else { return };
        let counts = match root {
            // What its connection managers count, added up.
            "listener" => {
                let listener = place.split_once(".http.").map_or(place, |(listener, _)| listener);
                if listener.contains(".worker_") || listener == "admin" {
                    return;
                }
                self.listeners.entry(listener.to_owned()).or_default()
            }
            // By origin, it is told twice.
            "cluster" if place.ends_with(".external") || place.ends_with(".internal") => return,
            "cluster" => self.clusters.entry(place.to_owned()).or_default(),
            "vhost" => match place.split_once(".vcluster.") {
                Some((host, cluster)) => self.routes.entry(format!("{host} {cluster}")).or_default(),
                None => prefixed.entry(place.replace(".route.", " ")).or_default(),
            },
            "watched" => watched.entry(place.trim_start_matches("route.").to_owned()).or_default(),
            _ => return,
        };
        match stat {
            "downstream_rq_completed" | "upstream_rq_completed" | "rq_total" => counts.requests += value,
            "downstream_rq_5xx" | "upstream_rq_5xx" | "rq_5xx" => counts.errors += value,
            "downstream_cx_active" | "upstream_cx_active" => counts.connections += value,
            "upstream_rq_active" => counts.active += value,
            "upstream_cx_connect_fail" => counts.connect_failures += value,
            "membership_healthy" => counts.healthy = value,
            "membership_total" => counts.hosts = value,
            _ => {}
        }
    }

    fn take_in_times(&mut self, histograms: &Value) {
        let at =
            |wanted: f64| list(&histograms["supported_quantiles"]).position(|known| known.as_f64() == Some(wanted));
        let (median, high) = (at(50.0), at(99.0));
        for histogram in list(&histograms["computed_quantiles"]) {
            let name = histogram["name"].as_str().and_then(|name| name.strip_prefix("cluster."));
            let Some(cluster) = name.and_then(|name| name.strip_suffix(".upstream_rq_time")) else { continue };
            let quantile = |at: Option<usize>| histogram["values"].get(at?)?["cumulative"].as_f64();
            if let Some(counts) = self.clusters.get_mut(cluster) {
                (counts.p50, counts.p99) = (quantile(median), quantile(high));
            }
        }
    }
}

fn calls(route: &Value) -> Calls {
    let count = |key: &str| number(route, key);
    Calls {
        calls: count("calls"),
        errors: count("errors"),
        local_replies: count("local_replies"),
        bypassed: count("bypassed"),
        allocations: count("allocations"),
        allocated: count("allocated_bytes"),
        ..Calls::default()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// For a query: everything but letters, digits and a few marks.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_of_statistics_becomes_listeners_clusters_and_routes() {
        let stats = json!({"stats": [
            {"name": "listener.0.0.0.0_80.http.web.downstream_rq_completed", "value": 5},
            {"name": "listener.0.0.0.0_80.http.api.downstream_rq_completed", "value": 10},
            {"name": "listener.0.0.0.0_80.downstream_cx_active", "value": 3},
            {"name": "listener.0.0.0.0_80.worker_0.downstream_cx_active", "value": 3},
            {"name": "listener.admin.http.admin.downstream_rq_completed", "value": 3},
            {"name": "cluster.a.b.upstream_rq_completed", "value": 7},
            {"name": "cluster.a.b.external.upstream_rq_completed", "value": 7},
            {"name": "cluster.a.b.membership_healthy", "value": 1},
            {"name": "vhost.shop.route.cart.upstream_rq_completed", "value": 2},
            {"histograms": {
                "supported_quantiles": [0, 25, 50, 99],
                "computed_quantiles": [{"name": "cluster.a.b.upstream_rq_time", "values": [
                    {"cumulative": 0}, {"cumulative": 1}, {"cumulative": 2}, {"cumulative": 9}]}],
            }},
        ]});
        let sample = Sample::read(&stats, &json!({}), Instant::now());
        let names = |all: &BTreeMap<String, Counts>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&sample.listeners), ["0.0.0.0_80"]);
        let listener = &sample.listeners["0.0.0.0_80"];
        assert_eq!((listener.requests, listener.connections), (15, 3));
        assert_eq!(names(&sample.clusters), ["a.b"]);
        let cluster = &sample.clusters["a.b"];
        assert_eq!((cluster.requests, cluster.healthy, cluster.p50, cluster.p99), (7, 1, Some(2.0), Some(9.0)));
        assert_eq!(names(&sample.routes), ["shop cart"]);
    }

    #[test]
    fn routes_are_those_that_the_proxy_counts_for_us_and_virtual_clusters() {
        let stats = json!({"stats": [
            {"name": "vhost.shop.route.cart.upstream_rq_completed", "value": 2},
            {"name": "vhost.shop.vcluster.other.upstream_rq_completed", "value": 3},
            {"name": "watched.route.cart.rq_total", "value": 4},
            {"name": "watched.route.shop.1.rq_total", "value": 5},
            {"name": "watched.route.shop.1.rq_5xx", "value": 1},
        ]});
        let sample = Sample::read(&stats, &json!({}), Instant::now());
        let routes: Vec<_> = sample.routes.iter().map(|(name, it)| (name.as_str(), it.requests, it.errors)).collect();
        assert_eq!(routes, [("cart", 4, 0), ("shop other", 3, 0), ("shop.1", 5, 1)]);
    }

    #[test]
    fn an_expression_fits_a_query() {
        assert_eq!(percent_encoded(r"^a\.b|c$"), "%5Ea%5C.b%7Cc%24");
    }
}
