//! What filters that are no plugins cost, for `/plugins`.

use std::collections::BTreeMap;
use std::fmt::Write;

use postrider_telemetry::stats::ScopeValues;
use postrider_telemetry::stats::sets::filter as stat;
use serde_json::{Value, json};

/// By filter and route.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Costs(BTreeMap<String, BTreeMap<String, Cost>>);

#[derive(Debug, Default, PartialEq)]
struct Cost {
    calls: u64,
    local_replies: u64,
    time: u64,
    allocations: u64,
}

impl Costs {
    pub(super) fn read(scopes: &[ScopeValues]) -> Costs {
        let mut all = Costs::default();
        for scope in scopes.iter().filter(|scope| *scope.set == stat::SET) {
            // A filter's name is one part; what is left is the route's.
            let Some((filter, route)) = scope.prefix.split_once('.') else { continue };
            let cell = |name| {
                let at = scope.set.cells.iter().position(|stat| stat.name == name);
                at.map_or(0, |at| scope.cell(at))
            };
            let cost = Cost {
                calls: cell("calls"),
                local_replies: cell("local_replies"),
                time: cell("time_ns"),
                allocations: cell("allocations"),
            };
            all.0.entry(filter.to_owned()).or_default().insert(route.to_owned(), cost);
        }
        all
    }

    pub(super) fn json(&self) -> Value {
        let routes = |routes: &BTreeMap<String, Cost>| -> Vec<Value> {
            let object = |(route, cost): (&String, &Cost)| {
                json!({
                    "route": route,
                    "calls": cost.calls,
                    "local_replies": cost.local_replies,
                    "time_ns": cost.time,
                    "allocations": cost.allocations,
                })
            };
            routes.iter().map(object).collect()
        };
        self.0.iter().map(|(filter, by_route)| json!({ "name": filter, "routes": routes(by_route) })).collect()
    }

    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        for (filter, routes) in &self.0 {
            writeln!(out, "filter {filter}")?;
            for (route, cost) in routes {
                let each = |total: u64| total as f64 / cost.calls.max(1) as f64;
                writeln!(
                    out,
                    "  route {route}: calls {} local_replies {} mean {:.2}us, {:.1} allocations",
                    cost.calls,
                    cost.local_replies,
                    each(cost.time) / 1000.0,
                    each(cost.allocations)
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use postrider_telemetry::Registry;

    use super::*;

    #[test]
    fn a_filter_is_told_by_route() {
        let registry = Registry::new();
        let block = registry.worker(0).block(&stat::SET, "envoy_filters_http_cors.shop.0");
        block.add(stat::CALLS, 4);
        block.add(stat::TIME_NS, 6000);
        block.add(stat::ALLOCATIONS, 2);
        let costs = Costs::read(&registry.read(&[]));
        let mut text = String::new();
        costs.write(&mut text).unwrap();
        assert_eq!(
            text,
            "filter envoy_filters_http_cors\n  route shop.0: calls 4 local_replies 0 mean 1.50us, 0.5 allocations\n"
        );
        assert_eq!(costs.json()[0]["routes"][0]["time_ns"], 6000);
    }
}
