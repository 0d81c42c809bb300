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
    json!({ "endpoint": endpoint, "health_status": health(&host.health), "load_balancing_weight": host.weight })
}

fn health(flags: &[HealthFlag]) -> &'static str {
    let fails = |flag: &HealthFlag| {
        matches!(
            flag,
            HealthFlag::FailedActiveCheck | HealthFlag::FailedOutlierCheck | HealthFlag::FailedByConfiguration
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
