//! The top of a bootstrap: who we are, the admin interface, static resources.

use std::sync::Arc;

use postrider_model::{AccessLog, AccessLogSink, Admin, LogFormat, LogOutput, Node, Snapshot, Value};

use super::context::{ClusterUse, Lowering};
use super::extensions::Extensions;
use super::{
    access_log, address, bind, checks, cluster, dns_resolver, extensions, listener, matchers, overload, runtime,
    statistics, stats_sinks, tracing, value,
};
use crate::reader::Reader;

pub(super) fn bootstrap(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Snapshot {
    let node = root.message("node").map(|node| identity(&node)).unwrap_or_default();
    let admin = root.message("admin").and_then(|admin| interface(cx, &admin));
    runtime::layers(cx, root);
    without_meaning_here(cx, root);
    let Extensions { acme, services } = extensions::extensions(cx, root);
    let ejections = ejection_log(cx, root);
    let overload = overload::rules(cx, root).map(Arc::new);
    let mut stats = root.message("stats_config").and_then(|config| statistics::rules(cx, &config));
    if let interval @ Some(_) = root.duration("stats_flush_interval") {
        stats.get_or_insert_default().interval = interval;
    }
    let stats = stats.map(Arc::new);
    let stats_sinks = stats_sinks::sinks(cx, root).map(Arc::new);
    let log_pattern = log_pattern(cx, root);
    let local_cluster = local_cluster(cx, root);
    cx.resolver = dns_resolver::of_bootstrap(cx, root);
    let manager = root.message("cluster_manager");
    cx.bind = manager.and_then(|at| at.message("upstream_bind_config")).map(|at| bind::binding(cx, &at));
    eviction(cx, root);
    cx.tracer = tracing::of_bootstrap(cx, root);
    let version = root.u64_wrapper("stats_server_version_override");
    let pins_workers = root.bool("enable_worker_cpu_affinity");
    let mut snapshot = Snapshot {
        node,
        admin,
        services,
        acme,
        overload,
        stats,
        stats_sinks,
        log_pattern,
        local_cluster,
        version,
        pins_workers,
        ..Snapshot::default()
    };
    if let Some(resources) = root.message("static_resources") {
        let clusters = resources.list("clusters");
        checks::unique_names(cx, &clusters, "cluster");
        let read = |each| cluster::cluster(cx, each, ejections.as_ref());
        snapshot.clusters = clusters.iter().filter_map(read).map(Arc::new).collect();
        let local = snapshot.local_cluster.as_deref();
        for cluster in clusters.iter().filter(|cluster| Some(cluster.str("name")) == local) {
            checks::one_priority(cx, cluster);
        }
        let listeners = resources.list("listeners");
        checks::unique_names(cx, &listeners, "listener");
        snapshot.listeners = listeners.iter().filter_map(|each| listener::listener(cx, each)).map(Arc::new).collect();
        checks::unique_addresses(cx, &snapshot.listeners, &resources);
        checks::known_clusters(cx, &clusters);
        checks::grpc_clusters(cx, &snapshot.clusters);
    } else if !root.has("dynamic_resources") {
        checks::known_clusters(cx, &[]);
    }
    snapshot
}

/// Where hosts are logged that are left out because of their answers.
fn ejection_log(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Option<AccessLogSink> {
    let at = root.message("cluster_manager")?.message("outlier_detection")?;
    if at.has("event_service") {
        cx.refuse(&at, "event_service", "events of outlier detection over gRPC");
    }
    let path = at.str("event_log_path");
    (!path.is_empty()).then(|| AccessLogSink::File(path.into()))
}

/// `application_log_config`: a pattern, or the JSON of one.
fn log_pattern(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Option<String> {
    let format = root.message("application_log_config")?.message("log_format")?;
    if let Some(fields) = format.message("json_format") {
        let text = serde_json::to_string(&json_of(&value::value(fields.as_message()))).unwrap_or_default();
        if text.contains("%v") || text.contains("%_") {
            let why = "a message is no JSON as it stands: write `%j`, which escapes it, in place of `%v` and `%_`";
            cx.error(&format, "json_format", "invalid-format", why);
        }
        return Some(text);
    }
    Some(format.str("text_format").to_owned())
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(number) => (*number).into(),
        Value::Number(number) => (*number).into(),
        Value::String(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), json_of(value))).collect(),
    }
}

/// The name of the cluster that lists this proxy among others of its kind.
fn local_cluster(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Option<String> {
    const FIELD: &str = "local_cluster_name";
    let at = root.message("cluster_manager")?;
    let name = Some(at.str(FIELD)).filter(|name| !name.is_empty())?.to_owned();
    cx.has_local_cluster = true;
    let (span, path) = (at.span_of(FIELD), at.path_of(FIELD));
    cx.cluster_uses.push(ClusterUse { name: name.clone(), span, path, required: true });
    Some(name)
}

/// What a scope has to allow before any of its statistics goes. Those that do in Envoy belong to the access logger that
/// counts, which does not exist here.
fn eviction(cx: &mut Lowering<'_>, root: &Reader<'_>) {
    const FIELD: &str = "stats_eviction_interval";
    let Some(interval) = root.duration(FIELD) else { return };
    root.ignore(FIELD, "as in Envoy, only what the access logger `envoy.access_loggers.stats` counts would ever go");
    let flush = root.duration("stats_flush_interval").unwrap_or(stats_sinks::INTERVAL);
    if interval.as_nanos() % flush.as_nanos().max(1) != 0 {
        cx.error(root, FIELD, "conflict", "the interval is no multiple of `stats_flush_interval`");
    }
}

fn identity(node: &Reader<'_>) -> Node {
    for (field, why) in [
        ("dynamic_parameters", "only control planes read them"),
        ("client_features", "only control planes read them"),
        ("extensions", "only control planes read them"),
        ("user_agent_name", "only control planes read it"),
        ("user_agent_version", "only control planes read it"),
        ("user_agent_build_version", "only control planes read it"),
    ] {
        node.ignore(field, why);
    }
    node.whole("metadata");
    let metadata = node.as_message().message("metadata").map(value::value).unwrap_or_default();
    let locality = node.message("locality");
    let part = |name: &str| locality.as_ref().map_or("", |locality| locality.str(name)).to_owned();
    Node {
        id: node.str("id").to_owned(),
        cluster: node.str("cluster").to_owned(),
        region: part("region"),
        zone: part("zone"),
        sub_zone: part("sub_zone"),
        metadata,
    }
}

fn interface(cx: &mut Lowering<'_>, admin: &Reader<'_>) -> Option<Admin> {
    admin.ignore("profile_path", "profiles are not written to files");
    admin.ignore("ignore_global_conn_limit", "the admin interface never counts against connection limits");
    let mut access_log = access_log::line_loggers(cx, admin, "access_log", "the admin interface");
    let path = admin.str("access_log_path");
    if !path.is_empty() {
        let format = LogFormat::Text(access_log::default_format());
        let output = LogOutput::Lines { sink: AccessLogSink::File(path.into()), format };
        access_log.push(AccessLog { output, condition: None });
    }
    let allow_paths = admin.list("allow_paths").iter().filter_map(|path| matchers::string(cx, path)).collect();
    // Without an address Envoy opens no admin interface.
    let address = address::bound(cx, &admin.message("address")?)?;
    Some(Admin { address, allow_paths, access_log })
}

/// Fields that change nothing about traffic here, each with its reason; what is not named here is refused.
fn without_meaning_here(cx: &mut Lowering<'_>, root: &Reader<'_>) {
    if root.has("dynamic_resources") {
        cx.refuse(root, "dynamic_resources", "`dynamic_resources` (xDS)");
    }
    if let Some(options) = root.message("deferred_stat_options") {
        options.ignore("enable_deferred_creation_stats", "statistics are always created on first use");
    }
    if let Some(manager) = root.message("cluster_manager") {
        manager.ignore("enable_deferred_cluster_creation", "a cluster without traffic costs next to nothing");
    }
    if root.has("watchdog") && root.has("watchdogs") {
        cx.error(root, "watchdog", "conflict", "`watchdogs` takes the place of `watchdog`: write one of them");
    }
    root.ignore("enable_dispatcher_stats", "there is no dispatcher");
    root.ignore("default_regex_engine", "there is one engine, and it runs in linear time");
    for field in ["watchdogs", "watchdog", "memory_allocator_manager", "flags_path"] {
        cx.no_effect(root, field, "Postrider has no such part");
    }
    for field in ["inline_headers", "grpc_async_client_manager_config", "node_context_params"] {
        root.ignore(field, "an optimisation or a control plane's setting");
    }
}
