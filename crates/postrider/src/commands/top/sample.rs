//! Two looks at the counts, and the rates between them.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::Admin;

/// What was counted at one moment.
pub struct Sample {
    at: Instant,
    /// Requests by listener.
    listeners: BTreeMap<String, u64>,
    /// By name.
    plugins: BTreeMap<String, PluginSample>,
}

#[derive(Default)]
struct PluginSample {
    version: String,
    memory: u64,
    circuit: String,
    routes: BTreeMap<String, RouteSample>,
}

#[derive(Clone, Copy, Default)]
struct RouteSample {
    calls: u64,
    errors: u64,
    bypassed: u64,
    /// Nanoseconds, as the other two.
    sum: u64,
    p50: f64,
    p99: f64,
}

/// What happens per second.
#[derive(Debug, Default, PartialEq)]
pub struct Rates {
    pub seconds: f64,
    /// Requests, by listener.
    pub listeners: Vec<(String, f64)>,
    pub plugins: Vec<PluginRates>,
}

#[derive(Debug, Default, PartialEq)]
pub struct PluginRates {
    pub name: String,
    pub version: String,
    /// Bytes over all workers.
    pub memory: u64,
    pub circuit: String,
    pub routes: Vec<RouteRates>,
}

#[derive(Debug, Default, PartialEq)]
pub struct RouteRates {
    pub route: String,
    pub calls: f64,
    pub errors: f64,
    pub bypassed: f64,
    /// Microseconds, since the proxy started.
    pub p50: f64,
    pub p99: f64,
    /// Time in calls over the time that passed: 1 is one core.
    pub cpu: f64,
}

impl Sample {
    /// # Errors
    /// The admin does not answer, or not so.
    pub fn take(admin: &Admin) -> Result<Sample, String> {
        let stats = admin.json("/stats?format=json&filter=downstream_rq_completed")?;
        let plugins = admin.json("/plugins?format=json")?;
        Ok(Sample::read(&stats, &plugins, Instant::now()))
    }

    fn read(stats: &Value, plugins: &Value, at: Instant) -> Sample {
        let mut listeners: BTreeMap<String, u64> = BTreeMap::new();
        for stat in list(&stats["stats"]) {
            let name = stat["name"].as_str().and_then(|name| name.strip_prefix("listener."));
            let name = name.and_then(|name| name.split_once(".http.")).map(|(listener, _)| listener);
            if let (Some(name), Some(value)) = (name, stat["value"].as_u64()) {
                *listeners.entry(name.to_owned()).or_default() += value;
            }
        }
        let mut all = BTreeMap::new();
        for plugin in list(&plugins["plugins"]) {
            let text = |key: &str| plugin[key].as_str().unwrap_or_default().to_owned();
            let routes = list(&plugin["routes"]).map(|route| {
                let (count, time) = (|key: &str| route[key].as_u64().unwrap_or(0), &route["time_ns"]);
                let sample = RouteSample {
                    calls: count("calls"),
                    errors: count("errors"),
                    bypassed: count("bypassed"),
                    sum: time["sum"].as_u64().unwrap_or(0),
                    p50: time["p50"].as_f64().unwrap_or(0.0),
                    p99: time["p99"].as_f64().unwrap_or(0.0),
                };
                (route["route"].as_str().unwrap_or_default().to_owned(), sample)
            });
            let sample = PluginSample {
                version: text("version"),
                memory: plugin["memory_bytes"].as_u64().unwrap_or(0),
                circuit: text("circuit"),
                routes: routes.collect(),
            };
            all.insert(text("name"), sample);
        }
        Sample { at, listeners, plugins: all }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Rates {
    /// Counts that went back were reset in between, and count as none.
    pub fn between(before: &Sample, now: &Sample) -> Rates {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-9);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let listener = |(name, count): (&String, &u64)| {
            (name.clone(), rate(*count, before.listeners.get(name).copied().unwrap_or(0)))
        };
        let plugin = |(name, now): (&String, &PluginSample)| {
            let known = before.plugins.get(name);
            let route = |(route, now): (&String, &RouteSample)| {
                let before = known.and_then(|known| known.routes.get(route)).copied().unwrap_or_default();
                RouteRates {
                    route: route.clone(),
                    calls: rate(now.calls, before.calls),
                    errors: rate(now.errors, before.errors),
                    bypassed: rate(now.bypassed, before.bypassed),
                    p50: now.p50 / 1000.0,
                    p99: now.p99 / 1000.0,
                    cpu: rate(now.sum, before.sum) / 1e9,
                }
            };
            PluginRates {
                name: name.clone(),
                version: now.version.clone(),
                memory: now.memory,
                circuit: now.circuit.clone(),
                routes: now.routes.iter().map(route).collect(),
            }
        };
        Rates {
            seconds,
            listeners: now.listeners.iter().map(listener).collect(),
            plugins: now.plugins.iter().map(plugin).collect(),
        }
    }

    pub fn json(&self) -> Value {
        let listeners = self.listeners.iter().map(|(name, rate)| json!({"name": name, "requests_per_second": rate}));
        let plugins = self.plugins.iter().map(|plugin| {
            let routes = plugin.routes.iter().map(|route| {
                json!({
                    "route": route.route,
                    "calls_per_second": route.calls,
                    "errors_per_second": route.errors,
                    "bypassed_per_second": route.bypassed,
                    "p50_us": route.p50,
                    "p99_us": route.p99,
                    "cpu_share": route.cpu,
                })
            });
            json!({
                "name": plugin.name,
                "version": plugin.version,
                "memory_bytes": plugin.memory,
                "circuit": plugin.circuit,
                "routes": routes.collect::<Vec<_>>(),
            })
        });
        json!({
            "seconds": self.seconds,
            "requests_per_second": self.listeners.iter().map(|(_, rate)| rate).sum::<f64>(),
            "listeners": listeners.collect::<Vec<_>>(),
            "plugins": plugins.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(at: Instant, requests: u64, calls: u64, sum: u64) -> Sample {
        let stats = json!({"stats": [
            {"name": "listener.0.0.0.0_80.http.web.downstream_rq_completed", "value": requests},
            {"name": "listener.0.0.0.0_80.http.api.downstream_rq_completed", "value": 2 * requests},
            {"name": "http.web.downstream_rq_completed", "value": 7},
            {"histograms": {}},
        ]});
        let plugins = json!({"plugins": [{
            "name": "mark", "version": "1", "memory_bytes": 2048, "circuit": "closed",
            "routes": [{"route": "r", "calls": calls, "errors": 1, "time_ns": {"sum": sum, "p50": 1500.0, "p99": 2500.0}}],
        }]});
        Sample::read(&stats, &plugins, at)
    }

    #[test]
    fn rates_are_what_grew_over_the_time_between() {
        let start = Instant::now();
        let rates =
            Rates::between(&sample(start, 10, 100, 0), &sample(start + Duration::from_secs(2), 30, 300, 1_000_000_000));
        assert_eq!(rates.listeners, [("0.0.0.0_80".to_owned(), 30.0)]);
        let route = &rates.plugins[0].routes[0];
        assert_eq!((route.calls, route.errors, route.cpu), (100.0, 0.0, 0.5));
        assert_eq!((route.p50, route.p99), (1.5, 2.5));
        assert_eq!(rates.json()["requests_per_second"], 30.0);
    }

    #[test]
    fn counts_that_were_reset_are_no_rate() {
        let start = Instant::now();
        let rates = Rates::between(&sample(start, 10, 100, 9), &sample(start + Duration::from_secs(1), 1, 0, 0));
        assert_eq!((rates.listeners[0].1, rates.plugins[0].routes[0].calls), (0.0, 0.0));
    }
}
