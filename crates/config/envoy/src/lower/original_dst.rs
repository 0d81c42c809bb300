//! Clusters whose hosts are wherever connections were meant to go (`ORIGINAL_DST`).

use std::time::Duration;

use postrider_model::{Discovery, MetadataKey, OriginalDestination};

use super::context::Lowering;
use super::{dns, headers, matchers};
use crate::reader::Reader;

/// `cleanup_interval` where it is absent.
const FORGET_AFTER: Duration = Duration::from_secs(5);

/// The header of `use_http_header` where none is named.
const HEADER: &str = "x-envoy-original-dst-host";

/// `type: ORIGINAL_DST`.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, cluster: &Reader<'_>) -> Discovery {
    match cluster.message("original_dst_lb_config") {
        Some(config) => build(cx, cluster, &config),
        None => discovery(cx, cluster, Named::default()),
    }
}

/// With the settings of `OriginalDstLbConfig`, or of the extension, which has the same.
pub(super) fn build(cx: &mut Lowering<'_>, cluster: &Reader<'_>, config: &Reader<'_>) -> Discovery {
    let header = if config.bool("use_http_header") {
        match config.str("http_header_name") {
            "" => Some(HEADER.to_owned()),
            // Requests keep the host as the field, whatever the version of HTTP.
            name if name.eq_ignore_ascii_case(":authority") => Some("host".to_owned()),
            _ => headers::name(cx, config, "http_header_name"),
        }
    } else {
        if config.has("http_header_name") {
            cx.error(config, "http_header_name", "conflict", "no header is asked without `use_http_header: true`");
        }
        config.str("http_header_name");
        None
    };
    let noted_at = config.message("metadata_key").map(|key| matchers::metadata_key(&key));
    let port = config.u32_wrapper("upstream_port_override").and_then(|port| u16::try_from(port).ok());
    discovery(cx, cluster, Named { header, noted_at, port })
}

/// What says of destinations besides connections.
#[derive(Default)]
struct Named {
    header: Option<String>,
    noted_at: Option<MetadataKey>,
    port: Option<u16>,
}

fn discovery(cx: &mut Lowering<'_>, cluster: &Reader<'_>, named: Named) -> Discovery {
    dns::unused(cluster);
    if cluster.has("load_assignment") {
        cluster.whole("load_assignment");
        cx.error(
            cluster,
            "load_assignment",
            "conflict",
            "a cluster of original destinations has no endpoints of its own",
        );
    }
    if cluster.enum_name("lb_policy") != "CLUSTER_PROVIDED" {
        let text = "a cluster of original destinations chooses no host: it needs `lb_policy: CLUSTER_PROVIDED`";
        cx.error(cluster, "lb_policy", "conflict", text);
    }
    if cluster.has("health_checks") {
        cx.refuse(cluster, "health_checks", "health checks of hosts that nobody lists");
    }
    let forget_after = cluster.duration("cleanup_interval").unwrap_or(FORGET_AFTER);
    let Named { header, noted_at, port } = named;
    Discovery::Original(OriginalDestination { header, noted_at, port, forget_after })
}
