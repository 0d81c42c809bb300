//! `/plugins`: which plugins there are, what they may do, and what they and other filters cost. Ours; Envoy has no such
//! page.

use super::certificates::timestamp;
use super::filter_costs::Costs;
use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use crate::status::{PluginStatus, Seen};
use postrider_telemetry::stats::ScopeValues;
use postrider_telemetry::stats::sets::scope_of_address;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

pub(super) const PARAMETERS: &[(&str, &str)] = &[
    ("format", "File format to use; One of (text, json)"),
    ("config", "Also show the JSON schema, and in text the configurations"),
];

/// The root of the statistics that the hosts of plugins count (`plugin.<plugin>.<route>.calls`).
const ROOT: &str = "plugin";

/// The counters of a route, as the hosts name them.
const COUNTERS: [&str; 7] = ["calls", "errors", "cpu_kills", "memory_kills", "bypassed", "refused", "circuit_opened"];

/// Bytes that the calls of a route took of the plugin's machine.
const ALLOCATED: &str = "allocated_bytes";

/// The histogram of a route: nanoseconds of each call.
const TIME: &str = "time_ns";

pub(super) fn plugins(control: &dyn Control, request: &Request) -> Reply {
    let plugins = control.plugins();
    let mut counted = control.statistics().read(&[]);
    let costs = Costs::read(&counted);
    counted.retain(|scope| scope.set.root == ROOT);
    let usages = usages(&plugins, &counted);
    let asked = request.parameter("config").is_some_and(|value| value != "0");
    let both = plugins.iter().zip(&usages);
    match request.parameter("format") {
        Some("json") => {
            let objects: Vec<Value> = both.map(|(plugin, usage)| object(plugin, usage, asked)).collect();
            Reply::json(&json!({ "plugins": objects, "filters": costs.json() }))
        }
        None | Some("text") => {
            let mut out = String::new();
            for (plugin, usage) in both {
                // Writing to a String cannot fail.
                let _ = write_plugin(plugin, usage, asked, &mut out);
            }
            let _ = costs.write(&mut out);
            Reply::text(out)
        }
        Some(_) => Reply::bad_request("usage: /plugins?format=(json|text)\n"),
    }
}

/// One plugin as an object; `None` when there is none of that name.
pub(super) fn one(control: &dyn Control, name: &str) -> Option<Value> {
    let plugins = control.plugins();
    let mut counted = control.statistics().read(&[]);
    counted.retain(|scope| scope.set.root == ROOT);
    let usages = usages(&plugins, &counted);
    let (plugin, usage) = plugins.iter().zip(&usages).find(|(plugin, _)| plugin.name == name)?;
    Some(object(plugin, usage, true))
}

/// What was counted of one plugin.
#[derive(Default)]
struct Usage {
    memory: u64,
    /// How often its process was started anew.
    restarts: u64,
    circuit_open: bool,
    /// Workers on which its machine failed and is not made again yet.
    dead_workers: u64,
    routes: Vec<RouteUsage>,
}

struct RouteUsage {
    route: String,
    /// In the order of [`COUNTERS`].
    counts: [u64; 7],
    /// `None` where no runtime tells.
    allocated: Option<u64>,
    /// `None` before the first call.
    time: Option<Time>,
}

/// Nanoseconds.
struct Time {
    count: u64,
    sum: u64,
    p50: f64,
    p99: f64,
}

/// What was counted, by plugin in their order.
fn usages(plugins: &[PluginStatus], counted: &[ScopeValues]) -> Vec<Usage> {
    let prefixes: Vec<String> = plugins.iter().map(|plugin| scope_of_address(&plugin.name)).collect();
    let mut usages: Vec<Usage> = plugins.iter().map(|_| Usage::default()).collect();
    for scope in counted {
        let is_whole = cell(scope, "memory_bytes").is_some();
        // `a.b` may be the route `b` of `a` or a plugin's name: the longest name has it.
        let behind = |prefix: &str| match scope.prefix.strip_prefix(prefix) {
            Some("") if is_whole => Some(""),
            Some(rest) if !is_whole => rest.strip_prefix('.'),
            _ => None,
        };
        let longest = prefixes.iter().filter(|prefix| behind(prefix).is_some()).max_by_key(|prefix| prefix.len());
        let Some(owner) = longest else { continue };
        for (prefix, usage) in prefixes.iter().zip(&mut usages) {
            let Some(route) = behind(prefix).filter(|_| prefix == owner) else { continue };
            if is_whole {
                usage.memory = cell(scope, "memory_bytes").unwrap_or(0);
                usage.restarts = cell(scope, "restarts").unwrap_or(0);
                usage.dead_workers = cell(scope, "dead_workers").unwrap_or(0);
                usage.circuit_open = cell(scope, "circuit_open").unwrap_or(0) != 0;
                continue;
            }
            let time = scope.set.histograms.iter().position(|histogram| histogram.name == TIME);
            let time = time.and_then(|at| scope.histogram(at)).map(|recorded| Time {
                count: recorded.count(),
                // Hosts measure a part of the calls; all of them took in proportion.
                sum: in_proportion(recorded.sum(), cell(scope, "calls").unwrap_or(0), recorded.count()),
                p50: recorded.quantile(0.5),
                p99: recorded.quantile(0.99),
            });
            let counts = COUNTERS.map(|name| cell(scope, name).unwrap_or(0));
            let allocated = cell(scope, ALLOCATED).filter(|bytes| *bytes > 0);
            usage.routes.push(RouteUsage { route: route.to_owned(), counts, allocated, time });
        }
    }
    usages
}

/// `sum` over `counted` things for all `calls`.
fn in_proportion(sum: u64, calls: u64, counted: u64) -> u64 {
    let all = u128::from(sum) * u128::from(calls.max(counted)) / u128::from(counted.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// A counter or gauge by its name; `None` when the set has none of that name.
fn cell(scope: &ScopeValues, name: &str) -> Option<u64> {
    Some(scope.cell(scope.set.cells.iter().position(|stat| stat.name == name)?))
}

fn object(plugin: &PluginStatus, usage: &Usage, asked: bool) -> Value {
    let places = plugin.places.iter().map(|place| json!({ "listener": place.listener, "chain": place.chain }));
    let routes = usage.routes.iter().map(|route| {
        let mut out = Map::new();
        out.insert("route".into(), json!(route.route));
        for (name, count) in COUNTERS.iter().zip(route.counts) {
            out.insert((*name).into(), json!(count));
        }
        out.insert(ALLOCATED.into(), json!(route.allocated));
        let time = route.time.as_ref();
        let time = time.map(|t| json!({ "count": t.count, "sum": t.sum, "p50": t.p50, "p99": t.p99 }));
        out.insert(TIME.into(), json!(time));
        Value::Object(out)
    });
    let configs = plugin.route_configs.iter().map(|of_route| {
        let mut out = json!({ "route": of_route.route, "scope": of_route.scope, "config": of_route.config });
        if of_route.seen != Seen::Merged {
            out["runs"] = json!(of_route.seen != Seen::Off);
            out["sees"] = match &of_route.seen {
                Seen::Config(config) => config.clone(),
                Seen::Merged | Seen::Off | Seen::Nothing => Value::Null,
            };
        }
        out
    });
    let mut out = json!({
        "name": plugin.name,
        "version": plugin.version,
        "runtime": plugin.runtime,
        "places": places.collect::<Vec<_>>(),
        "service": plugin.is_service,
        "by_admin": plugin.is_by_admin,
        "source": plugin.source,
        "digest": plugin.digest,
        "note": plugin.note,
        "scripts": plugin.scripts.iter().map(script).collect::<Vec<_>>(),
        "last_error": plugin.last_error.as_ref().map(|(at, text)| json!({ "at": timestamp(*at), "text": text })),
        "policy": {
            "on_error": plugin.on_error,
            "cpu_ms": (plugin.cpu != Duration::MAX).then(|| millis(plugin.cpu)),
            "memory_bytes": (plugin.memory != usize::MAX).then_some(plugin.memory),
            "circuit": {
                "faults": plugin.circuit.faults,
                "cpu_kills": plugin.circuit.cpu_kills,
                "window_ms": millis(plugin.circuit.window),
                "retry_ms": millis(plugin.circuit.retry),
                "kills_only": plugin.circuit.kills_only,
            },
            "clusters": plugin.clusters,
        },
        "memory_bytes": usage.memory,
        "restarts": usage.restarts,
        "circuit": circuit(plugin, usage),
        "dead_workers": usage.dead_workers,
        "routes": routes.collect::<Vec<_>>(),
        "config": plugin.config,
        "route_configs": configs.collect::<Vec<_>>(),
    });
    if asked {
        out["config_schema"] = json!(plugin.schema);
    }
    out
}

fn script((name, source, digest): &(String, String, String)) -> Value {
    json!({ "name": name, "source": source, "digest": digest })
}

fn write_plugin(plugin: &PluginStatus, usage: &Usage, asked: bool, out: &mut String) -> std::fmt::Result {
    write!(out, "{}", plugin.name)?;
    if !plugin.version.is_empty() {
        write!(out, " {}", plugin.version)?;
    }
    write!(out, " ({}): circuit {}, {} KiB", plugin.runtime, circuit(plugin, usage), usage.memory.div_ceil(1024))?;
    match usage.dead_workers {
        0 => {}
        1 => out.push_str(", failed on 1 worker"),
        many => write!(out, ", failed on {many} workers")?,
    }
    match usage.restarts {
        0 => out.push('\n'),
        1 => writeln!(out, ", its process was started again once")?,
        times => writeln!(out, ", its process was started again {times} times")?,
    }
    for place in &plugin.places {
        match place.chain.as_str() {
            "" => writeln!(out, "  in listener {}", place.listener)?,
            chain => writeln!(out, "  in listener {}, filter chain {chain}", place.listener)?,
        }
    }
    if plugin.is_service {
        writeln!(out, "  without a listener")?;
    }
    if plugin.is_by_admin {
        writeln!(out, "  by PUT /plugins/{}, not by the file", plugin.name)?;
    }
    match plugin.digest.as_str() {
        "" => writeln!(out, "  code from {}", plugin.source)?,
        digest => writeln!(out, "  code {digest} from {}", plugin.source)?,
    }
    for (name, source, digest) in &plugin.scripts {
        writeln!(out, "  script {name}: code {digest} from {source}")?;
    }
    if let Some(note) = &plugin.note {
        writeln!(out, "  {note}")?;
    }
    if let Some((at, text)) = &plugin.last_error {
        writeln!(out, "  last error at {}: {}", timestamp(*at), text.replace('\n', "\n    "))?;
    }
    let policy = &plugin.circuit;
    let (window, retry) = (seconds(policy.window), seconds(policy.retry));
    let faults = if policy.kills_only { "calls that were stopped" } else { "faults" };
    let causes = match (policy.faults, policy.cpu_kills) {
        (0, 0) => None,
        (many, 0) => Some(format!("{many} {faults}")),
        (0, kills) => Some(format!("{kills} CPU kills")),
        (many, kills) => Some(format!("{many} {faults} or {kills} CPU kills")),
    };
    let circuit = causes
        .map_or_else(|| "no circuit".to_owned(), |causes| format!("circuit opens at {causes} in {window} for {retry}"));
    let budget = match plugin.cpu {
        Duration::MAX => "no budget".to_owned(),
        cpu => format!("a call has {} ms, a worker {} MiB", millis(cpu), plugin.memory >> 20),
    };
    writeln!(out, "  on error {}; {budget}; {circuit}", plugin.on_error)?;
    if let Some(clusters) = &plugin.clusters {
        let clusters = if clusters.is_empty() { "no cluster".to_owned() } else { clusters.join(", ") };
        writeln!(out, "  may call {clusters}")?;
    }
    for route in &usage.routes {
        write!(out, "  route {}:", route.route)?;
        for (name, count) in COUNTERS.iter().zip(route.counts) {
            write!(out, " {name} {count}")?;
        }
        if let Some(time) = &route.time {
            write!(out, " p50 {:.1}us p99 {:.1}us", time.p50 / 1000.0, time.p99 / 1000.0)?;
        }
        let [calls, ..] = route.counts;
        if let Some(each) = route.allocated.and_then(|bytes| bytes.checked_div(calls)) {
            write!(out, " {each} B a call")?;
        }
        out.push('\n');
    }
    if asked {
        writeln!(out, "  config {}", plugin.config)?;
        for of_route in &plugin.route_configs {
            write!(out, "  config of {}, by its {}: ", of_route.route, of_route.scope)?;
            match &of_route.seen {
                Seen::Merged => writeln!(out, "{}", of_route.config)?,
                Seen::Off => writeln!(out, "does not run here")?,
                Seen::Nothing => writeln!(out, "sees nothing")?,
                Seen::Config(config) => writeln!(out, "sees {config}")?,
            }
        }
        if let Some(schema) = &plugin.schema {
            writeln!(out, "  schema {schema}")?;
        }
    }
    Ok(())
}

fn circuit(plugin: &PluginStatus, usage: &Usage) -> &'static str {
    match (plugin.circuit.faults, plugin.circuit.cpu_kills) {
        (0, 0) => "none",
        _ if usage.circuit_open => "open",
        _ => "closed",
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
