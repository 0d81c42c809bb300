//! The endpoints of all clusters as `/config_dump?include_eds` shows them: Envoy's `admin.v3.EndpointsConfigDump`.

use super::listeners::address;
use crate::status::{ClusterStatus, EndpointStatus, HealthFlag};
use serde_json::{Map, Value, json};

/// The section. None of them comes from a control plane.
pub(super) fn section(clusters: &[ClusterStatus]) -> Value {
    let each = clusters.iter().map(|cluster| json!({ "endpoint_config": assignment(cluster) }));
    json!({
        "@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump",
        "static_endpoint_configs": each.collect::<Vec<_>>(),
    })
}

fn assignment(cluster: &ClusterStatus) -> Value {
    let mut out = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster.name,
    });
    let mut groups: Vec<(Group<'_>, Vec<Value>)> = Vec::new();
    for host in &cluster.endpoints {
        let group = Group::of(host);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, hosts)) => hosts.push(endpoint(host)),
            None => groups.push((group, vec![endpoint(host)])),
        }
    }
    groups.sort_by_key(|(group, _)| group.priority);
    if !groups.is_empty() {
        out["endpoints"] = groups.into_iter().map(|(group, hosts)| group.show(hosts)).collect();
    }
    out["policy"] = json!({ "overprovisioning_factor": cluster.overprovisioning });
    out
}

/// What hosts of one entry have in common.
#[derive(PartialEq)]
struct Group<'a> {
    priority: u32,
    place: [(&'static str, &'a str); 3],
}

impl<'a> Group<'a> {
    fn of(host: &'a EndpointStatus) -> Group<'a> {
        let place = [("region", &*host.region), ("zone", &*host.zone), ("sub_zone", &*host.sub_zone)];
        Group { priority: host.priority, place }
    }

    fn show(&self, hosts: Vec<Value>) -> Value {
        let place = self.place.iter().filter(|(_, value)| !value.is_empty());
        let place: Map<String, Value> = place.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let mut out = json!({ "locality": place, "lb_endpoints": hosts, "load_balancing_weight": 0 });
        if self.priority != 0 {
            out["priority"] = json!(self.priority);
        }
        out
    }
}

fn endpoint(host: &EndpointStatus) -> Value {
    let mut endpoint = json!({ "address": address(&host.address), "health_check_config": {} });
    if !host.hostname.is_empty() {
        endpoint["hostname"] = json!(host.hostname);
    }
    if !host.additional_addresses.is_empty() {
        let others = host.additional_addresses.iter().map(|other| json!({ "address": address(other) }));
        endpoint["additional_addresses"] = others.collect();
    }
    if let Some(port) = host.check_port {
        endpoint["health_check_config"]["port_value"] = json!(port);
    }
    if !host.check_hostname.is_empty() {
        endpoint["health_check_config"]["hostname"] = json!(host.check_hostname);
    }
    let mut out = json!({ "endpoint": endpoint, "health_status": health(&host.health) });
    // What has a message of its own type is in the section of clusters alone.
    let mut maps = host.metadata.iter().flat_map(|metadata| metadata.iter()).peekable();
    if maps.peek().is_some() {
        let maps: Map<String, Value> = maps.map(|(name, map)| (name.to_owned(), json_of(map))).collect();
        out["metadata"] = json!({ "filter_metadata": maps });
    }
    out["load_balancing_weight"] = json!(host.weight);
    out
}

fn json_of(value: &postrider_model::Value) -> Value {
    use postrider_model::Value as Known;
    // Up to here every whole number is one of 64 bits, too.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    match value {
        Known::Null => Value::Null,
        Known::Bool(value) => json!(value),
        // As protobuf's JSON writes it: without `.0`.
        Known::Number(value) if value.fract() == 0.0 && value.abs() < WHOLE => json!(*value as i64),
        Known::Number(value) => json!(value),
        Known::Integer(value) => json!(value),
        Known::String(value) => json!(value),
        Known::List(items) => items.iter().map(json_of).collect(),
        Known::Map(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), json_of(value))).collect())
        }
    }
}

fn health(flags: &[HealthFlag]) -> &'static str {
    let fails = |flag: &HealthFlag| {
        matches!(
            flag,
            HealthFlag::FailedActiveCheck
                | HealthFlag::FailedOutlierCheck
                | HealthFlag::FailedByConfiguration
                | HealthFlag::DrainingByConfiguration
        )
    };
    let is_degraded = |flag: &HealthFlag| {
        matches!(
            flag,
            HealthFlag::DegradedActiveCheck | HealthFlag::DegradedByConfiguration | HealthFlag::DegradedByItself
        )
    };
    match () {
        () if flags.iter().any(fails) => "UNHEALTHY",
        () if flags.iter().any(is_degraded) => "DEGRADED",
        () => "HEALTHY",
    }
}
