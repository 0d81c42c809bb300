//! What is done when the process runs short of something (`OverloadManager`), and what is done where nobody said.

use std::collections::HashSet;
use std::time::Duration;

use postrider_model::{
    ConnectionBound, Least, LoadShedPoint, OverloadAction, OverloadKind, OverloadRules, PressureTrigger, Ramp,
    Resource, ResourceMonitor, ScaledTimer, ShedKind, TimerScale,
};

use super::context::Lowering;
use super::runtime;
use crate::reader::Reader;

const INTERVAL: Duration = Duration::from_secs(1);

/// How often memory is given back while it is short.
const RELEASE_INTERVAL: Duration = Duration::from_secs(10);

const MONITORS: &str = "envoy.extensions.resource_monitors.";
const TIMERS: &str = "envoy.config.overload.v3.ScaleTimersOverloadActionConfig";
const SHRINK: &str = "envoy.config.overload.v3.ShrinkHeapConfig";

const OWN_MEMORY: &str = "postrider.resource_monitors.memory";
const DESCRIPTORS: &str = "postrider.resource_monitors.descriptors";

/// The field `overload_manager` of a bootstrap.
pub(super) fn rules(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Option<OverloadRules> {
    let Some(at) = root.message("overload_manager") else {
        cx.differs(
            root,
            "overload",
            "short of memory or descriptors, connections and requests are turned away before the process dies",
            "overload_manager: {resource_monitors: [{name: envoy.resource_monitors.fixed_heap, typed_config: {\"@type\": \
             type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig, \
             max_heap_size_bytes: 1099511627776}}]}",
        );
        return Some(OverloadRules { max_connections: runtime::connections(cx), ..defaults() });
    };
    let tracked = at.message("buffer_factory_config");
    let least_power = tracked.map(|config| config.u32("minimum_account_to_track_power_of_two"));
    let mut rules = OverloadRules {
        interval: at.duration("refresh_interval").unwrap_or(INTERVAL).max(Duration::from_millis(1)),
        monitors: Vec::new(),
        actions: Vec::new(),
        points: Vec::new(),
        max_connections: None,
    };
    let mut names = HashSet::new();
    for each in at.list("resource_monitors") {
        if !names.insert(each.str("name").to_owned()) {
            cx.error(&each, "name", "duplicate-name", format!("`{}` is there already", each.str("name")));
        }
        monitor(cx, &each, &mut rules);
    }
    rules.max_connections = rules.max_connections.or_else(|| runtime::connections(cx));
    let mut names = HashSet::new();
    for each in at.list("actions") {
        if !names.insert(each.str("name").to_owned()) {
            cx.error(&each, "name", "duplicate-name", format!("`{}` is there already", each.str("name")));
        }
        let action = action(cx, &each, &rules, least_power);
        rules.actions.extend(action);
    }
    for each in at.list("loadshed_points") {
        let point = point(cx, &each, &rules);
        rules.points.extend(point);
    }
    Some(rules)
}

/// Without a word of the user: what keeps the process alive. Nothing happens before something is nearly used up.
fn defaults() -> OverloadRules {
    let monitor = |name: &str, resource| ResourceMonitor { name: name.to_owned(), resource };
    let action = |name: &str, kind, resource: &str, at| OverloadAction {
        name: format!("envoy.overload_actions.{name}"),
        kind,
        triggers: vec![PressureTrigger { resource: resource.to_owned(), at }],
    };
    let release = OverloadKind::ReleaseMemory { interval: RELEASE_INTERVAL };
    OverloadRules {
        interval: INTERVAL,
        monitors: vec![monitor(OWN_MEMORY, Resource::OwnMemory), monitor(DESCRIPTORS, Resource::Descriptors)],
        actions: vec![
            action("shrink_heap", release, OWN_MEMORY, Ramp::Step(0.9)),
            action("disable_http_keepalive", OverloadKind::EndConnections, OWN_MEMORY, Ramp::Step(0.93)),
            action("stop_accepting_connections", OverloadKind::PauseAccepting, DESCRIPTORS, Ramp::Step(0.95)),
            action(
                "stop_accepting_requests",
                OverloadKind::RefuseRequests,
                OWN_MEMORY,
                Ramp::Linear { from: 0.95, to: 0.99 },
            ),
        ],
        points: Vec::new(),
        max_connections: None,
    }
}

fn monitor(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &mut OverloadRules) {
    let Some(any) = at.any("typed_config") else {
        return cx.missing(at, "the monitor has no `typed_config`", "a `typed_config` with its `@type`");
    };
    let name = at.str("name").to_owned();
    let kind = any.type_name.strip_prefix(MONITORS).unwrap_or_default();
    let Some(config) = any.reader.as_ref().filter(|_| is_known(kind)) else {
        return cx.refuse_extension(at, "typed_config", &any);
    };
    let resource = match kind {
        "fixed_heap.v3.FixedHeapConfig" => {
            let of_runtime = config.message("max_heap_size_bytes_runtime").map(|size| {
                size.str("runtime_key");
                size.u64("default_value")
            });
            let most = of_runtime.unwrap_or_else(|| config.u64("max_heap_size_bytes"));
            if most == 0 {
                cx.missing(config, "the heap has no size", "`max_heap_size_bytes` above 0");
            }
            Resource::Heap { most }
        }
        "cgroup_memory.v3.CgroupMemoryConfig" => {
            Resource::ControlGroup { most: Some(config.u64("max_memory_bytes")).filter(|most| *most > 0) }
        }
        "cpu_utilization.v3.CpuUtilizationConfig" => {
            Resource::Processor { of_control_group: config.enum_number("mode") == 1 }
        }
        "injected_resource.v3.InjectedResourceConfig" => Resource::File(config.str("filename").into()),
        _ => {
            let most = u64::try_from(config.i64("max_active_downstream_connections")).unwrap_or_default();
            rules.max_connections = Some(ConnectionBound { name, most });
            return;
        }
    };
    rules.monitors.push(ResourceMonitor { name, resource });
}

fn is_known(kind: &str) -> bool {
    matches!(
        kind,
        "fixed_heap.v3.FixedHeapConfig"
            | "cgroup_memory.v3.CgroupMemoryConfig"
            | "cpu_utilization.v3.CpuUtilizationConfig"
            | "injected_resource.v3.InjectedResourceConfig"
            | "downstream_connections.v3.DownstreamConnectionsConfig"
    )
}

fn action(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &OverloadRules,
    least_power: Option<u32>,
) -> Option<OverloadAction> {
    let name = at.str("name");
    let triggers = triggers(cx, at, rules);
    let short = name.strip_prefix("envoy.overload_actions.").unwrap_or_default();
    let takes_config = matches!(short, "shrink_heap" | "reduce_timeouts");
    if at.has("typed_config") && !takes_config {
        cx.error(at, "typed_config", "conflict", format!("`{name}` takes no `typed_config`"));
    }
    let kind = match short {
        "stop_accepting_requests" => OverloadKind::RefuseRequests,
        "disable_http_keepalive" => OverloadKind::EndConnections,
        "stop_accepting_connections" => OverloadKind::PauseAccepting,
        "reject_incoming_connections" => OverloadKind::RefuseConnections,
        "shrink_heap" => OverloadKind::ReleaseMemory { interval: release_interval(cx, at) },
        "reduce_timeouts" => OverloadKind::ShortenTimers(timers(cx, at)?),
        "reset_high_memory_stream" => {
            let Some(least_power) = least_power else {
                if !cx.is_broken("overload_manager.buffer_factory_config") {
                    let text = "without `buffer_factory_config` nobody knows which streams hold much memory";
                    cx.error(at, "name", "missing-field", text);
                }
                return None;
            };
            OverloadKind::ResetStreams { least_power }
        }
        "close_idle_http_connections" => {
            cx.refuse_value(at, "name", &format!("the overload action `{name}`"));
            return None;
        }
        _ => {
            cx.error(at, "name", "unknown-name", format!("`{name}` is no overload action"));
            return None;
        }
    };
    Some(OverloadAction { name: name.to_owned(), kind, triggers })
}

fn release_interval(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Duration {
    let Some(any) = at.any("typed_config") else { return RELEASE_INTERVAL };
    let Some(config) = any.reader.as_ref().filter(|_| any.type_name == SHRINK) else {
        cx.refuse_extension(at, "typed_config", &any);
        return RELEASE_INTERVAL;
    };
    if config.has("max_unfreed_memory_bytes") {
        cx.refuse(config, "max_unfreed_memory_bytes", "keeping some of the free memory");
    }
    config.duration("timer_interval").unwrap_or(RELEASE_INTERVAL)
}

fn timers(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Vec<TimerScale>> {
    let Some(any) = at.any("typed_config") else {
        cx.missing(
            at,
            "the action does not say which timers",
            format!("a `typed_config` of the type {TIMERS}").as_str(),
        );
        return None;
    };
    let Some(config) = any.reader.as_ref().filter(|_| any.type_name == TIMERS) else {
        cx.refuse_extension(at, "typed_config", &any);
        return None;
    };
    let mut all: Vec<TimerScale> = Vec::new();
    for each in config.list("timer_scale_factors") {
        let name = each.enum_name("timer");
        let timer = match name.as_str() {
            "HTTP_DOWNSTREAM_CONNECTION_IDLE" => ScaledTimer::ConnectionIdle,
            "HTTP_DOWNSTREAM_CONNECTION_MAX" => ScaledTimer::ConnectionAge,
            "HTTP_DOWNSTREAM_STREAM_IDLE" => ScaledTimer::StreamIdle,
            "TRANSPORT_SOCKET_CONNECT" => ScaledTimer::Handshake,
            "HTTP_DOWNSTREAM_STREAM_FLUSH" => ScaledTimer::StreamFlush,
            _ => {
                cx.refuse_value(&each, "timer", &format!("shortening the timer `{name}`"));
                continue;
            }
        };
        let least = match each.message("min_scale") {
            Some(percent) => Least::Share(percent.f64("value") / 100.0),
            None => Least::Time(each.duration("min_timeout").unwrap_or_default()),
        };
        if all.iter().any(|known| known.timer == timer) {
            cx.error(&each, "timer", "duplicate-name", format!("`{name}` is there already"));
        }
        all.push(TimerScale { timer, least });
    }
    Some(all)
}

fn point(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &OverloadRules) -> Option<LoadShedPoint> {
    let name = at.str("name");
    let triggers = triggers(cx, at, rules);
    let kind = match name.strip_prefix("envoy.load_shed_points.").unwrap_or_default() {
        "tcp_listener_accept" => ShedKind::Accept,
        "hcm_ondata_creating_codec" => ShedKind::Codec,
        "http1_server_abort_dispatch" => ShedKind::Http1,
        "http2_server_go_away_on_dispatch" => ShedKind::GoAway,
        "http_connection_manager_decode_headers" => ShedKind::Head,
        "http_downstream_filter_check" => ShedKind::Filters,
        "connection_pool_new_connection" => ShedKind::Upstream,
        "http2_server_go_away_and_close_on_dispatch"
        | "http3_server_go_away_on_dispatch"
        | "http3_server_go_away_and_close_on_dispatch"
        | "tcp_proxy_on_data"
        | "tcp_proxy_upstream_connect" => {
            cx.refuse_value(at, "name", &format!("the load shed point `{name}`"));
            return None;
        }
        _ => {
            cx.error(at, "name", "unknown-name", format!("`{name}` is no load shed point"));
            return None;
        }
    };
    if rules.points.iter().any(|known| known.kind == kind) {
        cx.error(at, "name", "duplicate-name", format!("`{name}` is there already"));
    }
    Some(LoadShedPoint { name: name.to_owned(), kind, triggers })
}

fn triggers(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &OverloadRules) -> Vec<PressureTrigger> {
    let mut all: Vec<PressureTrigger> = Vec::new();
    for each in at.list("triggers") {
        let resource = each.str("name").to_owned();
        if rules.max_connections.as_ref().is_some_and(|bound| bound.name == resource) {
            let text = format!("`{resource}` is kept to when a connection comes; no trigger hears of it");
            cx.error(&each, "name", "unsupported-value", text);
        } else if !rules.monitors.iter().any(|monitor| monitor.name == resource) && !cx.is_broken("overload_manager") {
            cx.error(&each, "name", "unknown-name", format!("there is no resource monitor called `{resource}`"));
        }
        if all.iter().any(|known| known.resource == resource) {
            cx.error(&each, "name", "duplicate-name", format!("`{resource}` triggers this already"));
        }
        let Some(trigger) = ramp(cx, &each) else { continue };
        all.push(PressureTrigger { resource, at: trigger });
    }
    all
}

fn ramp(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Ramp> {
    if let Some(step) = at.message("threshold") {
        return Some(Ramp::Step(step.f64("value")));
    }
    let scaled = at.message("scaled")?;
    let (from, to) = (scaled.f64("scaling_threshold"), scaled.f64("saturation_threshold"));
    if from >= to {
        let text = "the scaling threshold is not below the saturation threshold";
        cx.error(&scaled, "scaling_threshold", "conflict", text);
        return None;
    }
    Some(Ramp::Linear { from, to })
}
