//! Clusters in groups, of which a request asks the first one: `PriorityGroupClusterSpecifier`.
//!
//! Within a group weights decide, as among weighted clusters. The next group is for a retry that chooses its cluster anew
//! (`refresh_cluster_on_retry`).

use postrider_config_core::Severity;
use postrider_model::{HeaderEdits, Lot, WeightedCluster};

use super::context::{ClusterUse, Lowering};
use super::headers;
use crate::reader::Reader;

pub(super) const KIND: &str =
    "envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier";

/// The groups, and what chooses within them; `None` after an error.
pub(super) fn read(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<(Vec<Vec<WeightedCluster>>, Lot)> {
    if !at.str("override_metadata_namespace").is_empty() {
        cx.refuse(at, "override_metadata_namespace", "other groups from a request's metadata");
    }
    let mut groups = Vec::new();
    for group in at.list("priority_groups") {
        group.str("name");
        groups.push(clusters_of(cx, &group));
    }
    let lot = match at.oneof("random_value_specifier") {
        Some("header_name") => headers::name(cx, at, "header_name").map_or(Lot::Random, Lot::Header),
        Some("use_hash_policy") if at.bool_wrapper("use_hash_policy") == Some(true) => Lot::Hash,
        _ => Lot::Random,
    };
    Some((groups.into_iter().collect::<Option<_>>()?, lot))
}

/// `None` after an error.
fn clusters_of(cx: &mut Lowering<'_>, group: &Reader<'_>) -> Option<Vec<WeightedCluster>> {
    let entries = group.list("clusters");
    let mut all = Vec::new();
    for entry in &entries {
        let name = entry.str("cluster_name");
        // As in Envoy, whatever `validate_clusters` says.
        cx.cluster_uses.push(ClusterUse {
            name: name.to_owned(),
            span: entry.span_of("cluster_name"),
            path: entry.path_of("cluster_name"),
            required: true,
        });
        all.push(WeightedCluster {
            cluster: name.to_owned(),
            weight: entry.u32_wrapper("weight").unwrap_or(0),
            header: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            host_rewrite: None,
            labels: None,
            filter_overrides: Vec::new(),
        });
    }
    let sum: u64 = all.iter().map(|cluster| u64::from(cluster.weight)).sum();
    if sum == 0 || sum > u64::from(u32::MAX) {
        let text = format!("the weights add up to {sum}");
        let diagnostic = group.diagnostic_at("clusters", Severity::Error, "invalid-weight", text);
        cx.push(diagnostic.expected("a sum from 1 to 4294967295"));
        return None;
    }
    Some(all)
}
