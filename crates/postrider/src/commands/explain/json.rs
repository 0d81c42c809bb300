//! A journey for machines. Absent facts are left out; durations are seconds, `null` is no limit; each `place` is
//! `{path, file, line, column}`.

use std::time::Duration;

use postrider_filter_api::plugin::Sight;
use postrider_model::{Discovery, EndpointHealth};
use postrider_router::Outcome;
use serde_json::{Value, json};

use super::filters::{SeenFilter, to_json};
use super::journey::{Destination, End, Journey, Reading, Routing, Winner};
use super::words;
use crate::config::Places;

pub fn render(journey: &Journey<'_>, places: &Places<'_>) -> Value {
    let mut out = json!({
        "listener": { "name": journey.listener.name, "place": place(places, &journey.listener.origin.0) },
    });
    out["filter_chain"] = match journey.chain {
        Some(chain) => json!({
            "name": &*chain.name,
            "place": place(places, &chain.model.origin.0),
            "behind": words::gates(&chain.model)
                .map(|(name, path)| json!({ "name": name, "place": path.map(|path| place(places, path)) }))
                .collect::<Value>(),
        }),
        None => Value::Null,
    };
    match &journey.reading {
        Some(Reading::Refused(reject)) => {
            out["refused"] = json!({ "status": reject.status, "details": reject.details });
        }
        Some(Reading::Bytes) => out["tcp"] = tcp(journey),
        Some(Reading::Read(read)) => {
            out["request"] = json!({
                "method": read.method,
                "authority": read.authority,
                "target": read.target,
                "path": read.path,
                "redirected_to_path": read.redirected_to_path,
            });
        }
        None => {}
    }
    if let Some(routing) = &journey.routing {
        add_routing(&mut out, routing, journey, places);
    }
    out
}

fn add_routing(out: &mut Value, routing: &Routing<'_>, journey: &Journey<'_>, places: &Places<'_>) {
    if let Some(http) = journey.http {
        let table = &http.model.routes;
        out["route_table"] = json!({ "name": table.name, "place": place(places, &table.origin.0) });
    }
    let tried: Vec<Value> =
        routing.explanation.tried_hosts.iter().map(|host| json!([host.domain, host.found])).collect();
    out["host"] = json!(routing.explanation.host);
    out["domains_tried"] = json!(tried);
    out["virtual_host"] = match routing.virtual_host {
        Some(host) => json!({ "name": host.name, "place": place(places, &host.origin.0) }),
        None => Value::Null,
    };
    out["routes_tried"] = routing
        .tried
        .iter()
        .map(|(route, outcome)| {
            let mut tried = json!({
                "name": route.name,
                "match": words::path_match(route),
                "matched": *outcome == Outcome::Matched,
            });
            if let Outcome::Failed(why) = outcome {
                tried["why"] = json!(why);
            }
            tried["place"] = place(places, &route.origin.0);
            tried
        })
        .collect();
    out["filters"] = routing.filters.iter().map(|filter| seen_filter(filter, places)).collect();
    out["route"] = routing.winner.as_ref().map_or(Value::Null, |winner| route(winner, journey, places));
}

fn seen_filter(filter: &SeenFilter<'_>, places: &Places<'_>) -> Value {
    let configs: Vec<Value> = filter
        .configs
        .iter()
        .map(|config| {
            let mut out = json!({ "scope": config.scope.name(), "disabled": config.disabled });
            if let Some(value) = config.value {
                out["type"] = json!(config.kind);
                out["config"] = to_json(value);
            }
            out["place"] = place(places, config.origin);
            out
        })
        .collect();
    let mut out = json!({ "name": filter.slot.name, "type": filter.slot.kind, "on": filter.on, "configs": configs });
    if let Some(plugin) = filter.plugin {
        out["plugin"] = json!(plugin);
        let sights = filter.sights.iter().map(|seen| {
            let mut out = json!({ "runs": seen.sight != Sight::Off, "sees": null });
            if let Sight::Config(config) = &seen.sight {
                out["sees"] = to_json(config);
                out["scope"] = json!(seen.scope);
            }
            if let Some(cluster) = seen.cluster {
                out["weighted_cluster"] = json!(cluster);
            }
            out
        });
        out["sights"] = sights.collect();
    }
    out
}

fn route(winner: &Winner<'_>, journey: &Journey<'_>, places: &Places<'_>) -> Value {
    let mut out = json!({ "name": winner.route.name, "place": place(places, &winner.route.origin.0) });
    match &winner.end {
        End::Respond { status } => out["respond"] = json!({ "status": status }),
        End::Redirect { redirect, location } => {
            out["redirect"] = json!({ "status": redirect.status, "location": location });
        }
        End::Forward { forward, path, host, destinations } => {
            out["forward"] = json!({
                "path": path,
                "host": host,
                "clusters": destinations.iter().map(|one| destination(one, places)).collect::<Vec<_>>(),
            });
            if destinations.iter().any(|one| one.cluster.is_none()) {
                out["forward"]["cluster_not_found_status"] = json!(forward.cluster_not_found_status);
            }
        }
    }
    out["timeouts"] =
        words::timeouts(winner, journey).into_iter().map(|(name, limit)| (name, seconds(limit))).collect();
    out
}

fn destination(destination: &Destination<'_>, places: &Places<'_>) -> Value {
    let mut out = json!({ "name": destination.name });
    if let Some((weight, sum)) = destination.share {
        out["weight"] = json!(weight);
        out["weights_total"] = json!(sum);
    }
    let Some(cluster) = destination.cluster else {
        out["exists"] = json!(false);
        return out;
    };
    out["discovery"] = json!(words::discovery(&cluster.discovery));
    out["policy"] = json!(words::policy(&cluster.balancing.policy));
    out["connect_timeout"] = json!(cluster.connect_timeout.as_secs_f64());
    match &cluster.discovery {
        Discovery::Static(endpoints) => {
            let endpoint = |endpoint: &postrider_model::Endpoint| {
                json!({
                    "address": endpoint.address.to_string(),
                    "weight": endpoint.weight,
                    "priority": endpoint.priority,
                    "healthy": endpoint.health != EndpointHealth::Unhealthy,
                })
            };
            out["endpoints"] = endpoints.iter().map(endpoint).collect();
        }
        Discovery::Original(_) => {}
        Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => {
            out["names"] = dns.names.iter().map(|name| json!({ "host": name.host, "port": name.port })).collect();
        }
    }
    out["host"] = json!(destination.host);
    out["place"] = place(places, &cluster.origin.0);
    out
}

fn tcp(journey: &Journey<'_>) -> Value {
    words::tcp_clusters(journey).map(|(name, weight)| json!({ "name": name, "weight": weight })).collect()
}

fn seconds(limit: Option<Duration>) -> Value {
    limit.map_or(Value::Null, |limit| json!(limit.as_secs_f64()))
}

fn place(places: &Places<'_>, path: &str) -> Value {
    match places.find(path) {
        Some(place) => json!({ "path": path, "file": place.file, "line": place.line, "column": place.column }),
        None => json!({ "path": path }),
    }
}
