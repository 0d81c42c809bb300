//! To whom statistics are sent (`envoy.config.metrics.v3.StatsSink`), and when.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use postrider_model::{Address, MetricsSink, StatsSink, StatsSinks, StatsdTags};

use super::context::{ClusterUse, Lowering};
use super::{filters, grpc_target, otlp_sink};
use crate::reader::Reader;

const STATSD: &str = "envoy.config.metrics.v3.StatsdSink";
const DOG_STATSD: &str = "envoy.config.metrics.v3.DogStatsdSink";
const GRAPHITE: &str = "envoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSink";
const METRICS: &str = "envoy.config.metrics.v3.MetricsServiceConfig";
const WASM: &str = "envoy.extensions.stat_sinks.wasm.v3.Wasm";
const OPEN_TELEMETRY: &str = "envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig";

/// What is sent between flushes unless something else is written.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// What a name begins with unless something else is written.
const PREFIX: &str = "envoy";

pub(super) fn sinks(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Option<StatsSinks> {
    let list = root.list("stats_sinks");
    let interval = root.duration("stats_flush_interval");
    let on_admin = root.bool("stats_flush_on_admin");
    if on_admin && interval.is_some() {
        let text = "statistics are flushed at an interval or when the admin is asked, not both";
        cx.error(root, "stats_flush_on_admin", "conflict", text);
    }
    if list.is_empty() {
        root.ignore("stats_flush_on_admin", "statistics are flushed to sinks only, and there is none");
        return None;
    }
    let sinks = list.iter().filter_map(|sink| one(cx, sink)).collect();
    Some(StatsSinks { sinks, interval: (!on_admin).then(|| interval.unwrap_or(INTERVAL)) })
}

fn one(cx: &mut Lowering<'_>, sink: &Reader<'_>) -> Option<StatsSink> {
    sink.str("name");
    let Some(any) = sink.any("typed_config") else {
        cx.missing(sink, "the sink has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    let config = any.reader.as_ref()?;
    match any.type_name {
        STATSD => statsd(cx, config, StatsdTags::InName),
        DOG_STATSD => statsd(cx, config, StatsdTags::BehindValue),
        GRAPHITE => statsd(cx, config, StatsdTags::BehindName),
        METRICS => metrics(cx, config).map(StatsSink::Metrics),
        WASM if cx.kinds.known(WASM) => Some(StatsSink::Plugin(filters::whole_slot(cx, sink, &any))),
        OPEN_TELEMETRY => otlp_sink::sink(cx, config).map(StatsSink::OpenTelemetry),
        _ => {
            cx.refuse_extension(sink, "typed_config", &any);
            None
        }
    }
}

fn statsd(cx: &mut Lowering<'_>, config: &Reader<'_>, tags: StatsdTags) -> Option<StatsSink> {
    if config.bool("scale_histogram_units_to_milliseconds") {
        cx.refuse_value(
            config,
            "scale_histogram_units_to_milliseconds",
            "values of histograms in other units than theirs",
        );
    }
    let prefix = Some(config.str("prefix")).filter(|prefix| !prefix.is_empty()).unwrap_or(PREFIX).to_owned();
    let mut datagram_bytes = 0;
    if tags != StatsdTags::InName {
        let most = config.u64_wrapper("max_bytes_per_datagram").unwrap_or(0);
        datagram_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    } else if config.has("tcp_cluster_name") {
        let name = config.str("tcp_cluster_name");
        cx.cluster_uses.push(ClusterUse {
            name: name.to_owned(),
            span: config.span_of("tcp_cluster_name"),
            path: config.path_of("tcp_cluster_name"),
            required: true,
        });
        return Some(StatsSink::StatsdTcp { cluster: name.into(), prefix });
    }
    // All kinds must say whom to tell, which was asked for when the file was read.
    let address = datagrams(cx, &config.message("address")?)?;
    Some(StatsSink::Statsd { address, prefix, tags, datagram_bytes })
}

fn metrics(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<MetricsSink> {
    grpc_target::version(cx, config);
    let mode = config.enum_name("histogram_emit_mode");
    let batch = usize::try_from(config.u32("batch_size")).unwrap_or(usize::MAX);
    let counters_as_deltas = config.bool_wrapper("report_counters_as_deltas").unwrap_or(false);
    let tags_as_labels = config.bool("emit_tags_as_labels");
    let grpc = config.message("grpc_service")?;
    cx.no_effect(&grpc, "timeout", "the stream to a metrics service stays open, as in Envoy");
    Some(MetricsSink {
        service: grpc_target::target(cx, &grpc)?,
        counters_as_deltas,
        tags_as_labels,
        summaries: mode != "HISTOGRAM",
        histograms: mode != "SUMMARY",
        batch: (batch > 0).then_some(batch),
    })
}

/// Where datagrams go. What the address says of its protocol does not matter, as in Envoy.
fn datagrams(cx: &mut Lowering<'_>, address: &Reader<'_>) -> Option<Address> {
    if address.has("envoy_internal_address") {
        cx.refuse(address, "envoy_internal_address", "internal listeners and their addresses");
        return None;
    }
    if let Some(pipe) = address.message("pipe") {
        pipe.ignore("mode", "it is about listening");
        return Some(Address::Unix { path: pipe.str("path").into(), mode: None });
    }
    let Some(socket) = address.message("socket_address") else {
        cx.missing(address, "the address is empty", "`socket_address`");
        return None;
    };
    socket.ignore("protocol", "statsd goes over UDP");
    socket.ignore("ipv4_compat", "it is about listening");
    if socket.has("named_port") {
        cx.refuse(&socket, "named_port", "a port by name");
        return None;
    }
    let port = u16::try_from(socket.u32("port_value")).ok()?;
    let text = socket.str("address");
    let Ok(ip) = text.parse::<IpAddr>() else {
        cx.error(&socket, "address", "invalid-address", format!("`{text}` is no IP address"));
        return None;
    };
    Some(Address::Tcp(SocketAddr::new(ip, port)))
}
