//! `/stats`, `/stats/prometheus`, `/reset_counters`.

use super::process::{Memory, uptime};
use super::stats_page;
use crate::control::Control;
use crate::counts::ADMIN;
use crate::request::Request;
use crate::response::{Content, Reply};
use crate::status::ServerState;
use postrider_model::{StatsRules, TagRules};
use postrider_telemetry::KnownScope;
use postrider_telemetry::render::{
    self, DefaultTags, HistogramText, Kinds, PrometheusForm, Query, TagRule, TagValue, Tagger,
};
use postrider_telemetry::stats::ScopeValues;
use postrider_telemetry::stats::sets::{cluster, cluster_http1, listener, server};
use regex::Regex;
use std::collections::HashSet;

pub(super) const PARAMETERS: &[(&str, &str)] = &[
    ("usedonly", "Only include stats that have been written by system since restart"),
    ("filter", "Regular expression for filtering stats"),
    ("invert_filter", "Invert the filter regex"),
    ("format", "Format to use; One of (html, active-html, text, json, prometheus)"),
    ("type", "Stat types to include.; One of (All, Counters, Histograms, Gauges, TextReadouts)"),
    ("histogram_buckets", "Histogram bucket display mode; One of (cumulative, disjoint, detailed, summary)"),
];

pub(super) const PROMETHEUS_PARAMETERS: &[(&str, &str)] = &[
    ("usedonly", "Only include stats that have been written by system since restart"),
    ("filter", "Regular expression for filtering stats"),
    ("invert_filter", "Invert the filter regex"),
    ("histogram_buckets", "Histogram bucket display mode; One of (cumulative, summary)"),
];

const BUCKETS_USAGE: &str = "usage: /stats?histogram_buckets=(cumulative|disjoint|detailed|summary)\n";

const HIDDEN_USAGE: &str = "usage: /stats?hidden=(include|only|exclude)\n\n";

/// The media type of Prometheus' protocol buffers.
const PROTOBUF: &str = "application/vnd.google.protobuf";

pub(super) fn stats(control: &dyn Control, request: &Request) -> Reply {
    let format = request.parameter("format").unwrap_or("text");
    if format == "prometheus" {
        return prometheus(control, request);
    }
    let mut query = match query(control, request) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    if request.has("histogram_buckets") {
        query.interval = control.interval();
    }
    match format {
        "text" => Reply::chunks(Content::Text, render::text(statistics(control), query)),
        "json" => Reply::chunks(Content::Json, render::json(statistics(control), query)),
        "html" => stats_page::page(request, render::text(statistics(control), query)),
        "active-html" => stats_page::active(),
        _ => Reply::bad_request("usage: /stats?format=(html|active-html|json|prometheus|text)\n\n"),
    }
}

pub(super) fn prometheus(control: &dyn Control, request: &Request) -> Reply {
    let mut query = match query(control, request) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    query.summaries = request.parameter("histogram_buckets") == Some("summary");
    if query.summaries {
        query.interval = control.interval();
    }
    if matches!(query.histograms, HistogramText::Disjoint | HistogramText::Detailed) {
        return Reply::bad_request("unsupported prometheus histogram bucket mode");
    }
    // Checked, and without a meaning here, as in Envoy.
    query.kinds = Kinds::default();
    // Who asks for protocol buffers prefers them to text, or takes them if it says nothing of text.
    let text = request.wants("text/plain").unwrap_or(0.0);
    let (form, content) = match request.wants(PROTOBUF) {
        Some(wanted) if wanted > text => (PrometheusForm::Protobuf, Content::Metrics),
        _ => (PrometheusForm::Text, Content::Text),
    };
    let tagger = tagger(control.stats_rules().as_deref());
    Reply::chunks(content, render::prometheus(statistics(control), query, tagger, form))
}

pub(super) fn reset_counters(control: &dyn Control, _: &Request) -> Reply {
    control.statistics().reset_counters(&control.known_scopes());
    Reply::done()
}

/// The pattern of a `filter=`, or why it is none.
pub(super) fn matcher(pattern: &str) -> Result<Regex, Reply> {
    regex(pattern).map_err(|reason| Reply::bad_request(format!("Invalid re2 regex: {reason}")))
}

/// The pattern, or what is wrong with it.
pub(super) fn regex(pattern: &str) -> Result<Regex, String> {
    // What was no UTF-8 is that since it was decoded.
    if pattern.contains(char::REPLACEMENT_CHARACTER) {
        return Err("invalid UTF-8".into());
    }
    Regex::new(pattern).map_err(|error| {
        // The last line says what is wrong; those before show where.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("{reason}: {pattern}")
    })
}

/// What both pages take, looked at in Envoy's order.
fn query(control: &dyn Control, request: &Request) -> Result<Query, Reply> {
    let mut query = Query { used_only: request.has("usedonly"), ..Query::default() };
    match request.parameter("filter").filter(|pattern| !pattern.is_empty()) {
        Some(pattern) => {
            let (pattern, invert) = (matcher(pattern)?, request.has("invert_filter"));
            query.filter = Some(Box::new(move |name| pattern.is_match(name) != invert));
        }
        None if request.has("invert_filter") => {
            return Err(Reply::bad_request("invert_filter can only be used if filter is also provided"));
        }
        None => {}
    }
    query.histograms = match request.parameter("histogram_buckets") {
        None | Some("summary" | "none") => HistogramText::Summary,
        Some("cumulative") => HistogramText::Cumulative,
        Some("disjoint") => HistogramText::Disjoint,
        Some("detailed") => HistogramText::Detailed,
        Some(_) => return Err(Reply::bad_request(BUCKETS_USAGE)),
    };
    if let Some(name) = request.parameter("type") {
        query.kinds = Kinds::named(name).ok_or_else(|| Reply::bad_request("invalid &type= param"))?;
    }
    match request.parameter("hidden") {
        None | Some("" | "include" | "exclude") => {}
        // None is.
        Some("only") => query.filter = Some(Box::new(|_| false)),
        Some(_) => return Err(Reply::bad_request(HIDDEN_USAGE)),
    }
    control.asked_for_statistics();
    if let Some(rules) = control.stats_rules() {
        if !rules.buckets.is_empty() {
            let rules = rules.clone();
            query.bounds = Some(Box::new(move |name| rules.bounds(name)));
        }
        if rules.hides() {
            let asked = query.filter.take();
            let shown = move |name: &str| rules.shows(name) && asked.as_ref().is_none_or(|asked| asked(name));
            query.filter = Some(Box::new(shown));
        }
    }
    Ok(query)
}

/// What makes the tags that `rules` want.
pub fn tagger(rules: Option<&StatsRules>) -> Tagger {
    let Some(TagRules { defaults, rules }) = rules.map(|rules| &rules.tags) else { return Tagger::default() };
    let rules = rules.iter().map(|rule| TagRule {
        name: rule.name.clone(),
        rooted: matches!(&rule.value, postrider_model::TagValue::Regex(regex) if is_rooted(regex.as_str())),
        value: match &rule.value {
            postrider_model::TagValue::Fixed(value) => TagValue::Fixed(value.clone()),
            postrider_model::TagValue::Regex(regex) => {
                let regex = regex.clone();
                TagValue::Found(Box::new(move |name| {
                    let found = regex.captures(name.as_bytes())?;
                    // One that took no part is an empty value, and leaves nothing of the name.
                    let gone = match regex.captures_len() {
                        ..=1 => return None,
                        _ => found.get(1).map_or(0..0, |gone| gone.range()),
                    };
                    let value = match regex.captures_len() {
                        ..=2 => gone.clone(),
                        _ => found.get(2).map_or(0..0, |value| value.range()),
                    };
                    Some((value, gone))
                }))
            }
        },
    });
    let defaults = defaults.clone().map_or(DefaultTags::All, DefaultTags::Only);
    Tagger { defaults, rules: rules.collect() }
}

/// Whether a pattern begins with a whole first part of a name, as `^cluster\.`.
fn is_rooted(pattern: &str) -> bool {
    let Some(rest) = pattern.strip_prefix('^') else { return false };
    let after = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    after.len() < rest.len() && after.starts_with("\\.")
}

/// Everything, with the gauges of the process that are computed when asked.
pub fn statistics(control: &dyn Control) -> Vec<ScopeValues> {
    let mut known = control.known_scopes();
    let mut process = KnownScope::new(&server::SET, "");
    let state = control.state();
    process.computed.push((server::UPTIME, uptime(control)));
    process.computed.push((server::STATE, state.number()));
    process.computed.push((server::LIVE, u64::from(state == ServerState::Live)));
    if let Some(memory) = Memory::now() {
        process.computed.push((server::MEMORY_ALLOCATED, memory.anonymous));
        process.computed.push((server::MEMORY_PHYSICAL_SIZE, memory.resident));
    }
    known.push(process);
    let mut values = control.statistics().read(&known);
    count_connections(&mut values);
    add_codecs(&mut values);
    values
}

/// What a codec of HTTP/1 tells of a cluster is there, as in Envoy, from the cluster's first connection on.
fn add_codecs(values: &mut Vec<ScopeValues>) {
    let of_codecs = values.iter().filter(|scope| *scope.set == cluster_http1::SET);
    let known: HashSet<&str> = of_codecs.map(|scope| scope.prefix.as_str()).collect();
    let of_clusters = values.iter().filter(|scope| *scope.set == cluster::SET);
    let used = of_clusters.filter(|scope| scope.counter(cluster::UPSTREAM_CX_HTTP1_TOTAL) > 0);
    let new = used.filter(|scope| !known.contains(scope.prefix.as_str()));
    let codecs: Vec<ScopeValues> = new.map(|scope| ScopeValues::zeros(&cluster_http1::SET, &scope.prefix)).collect();
    values.extend(codecs);
}

/// Connections that listeners have together, without those of the admin.
fn count_connections(values: &mut [ScopeValues]) {
    let of_listeners = values.iter().filter(|scope| *scope.set == listener::SET && scope.prefix != ADMIN);
    let total = of_listeners.map(|scope| scope.gauge(listener::DOWNSTREAM_CX_ACTIVE)).fold(0, u64::wrapping_add);
    if let Some(process) = values.iter_mut().find(|scope| *scope.set == server::SET) {
        process.set_gauge(server::TOTAL_CONNECTIONS, total);
    }
}
