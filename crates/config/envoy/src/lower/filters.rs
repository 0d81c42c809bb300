//! HTTP filters: the chain of a connection manager, and what routes change about it.

use postrider_config_core::{Diagnostic, Severity, nearest};
use postrider_model::{
    AnswerCounts, FilterConfig, FilterOverride, FilterSlot, LogMoments, Origin, RouterOptions, Value,
};

use super::callees;
use super::context::{ClusterUse, Lowering};
use super::locate::locate;
use super::{access_log, plugin_rules, rider, secrets, upstream_filters};
use crate::reader::{AnyReader, Reader};

const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// A native module.
const MODULE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";

/// Shares its buckets with the other proxies of a cluster, if asked to.
const LOCAL_RATE_LIMIT: &str = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

/// Wraps an override to switch the filter or to make it optional.
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

/// The manifest of a plugin, which names the clusters that it may call.
const PLUGIN: &str = "postrider.filters.http.plugin.v1.Plugin";

/// The filters before the router, and the router's options. `field` is where they stand.
pub(super) fn chain(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> (Vec<FilterSlot>, RouterOptions) {
    let filters = at.list(field);
    let mut slots = Vec::new();
    let mut router = None;
    for (index, filter) in filters.iter().enumerate() {
        let disabled = filter.bool("disabled");
        if filter.has("config_discovery") {
            cx.refuse(filter, "config_discovery", "filters from a control plane (ECDS)");
            continue;
        }
        let Some(any) = filter.any("typed_config") else {
            let text = format!("the filter `{}` has no `typed_config`", filter.str("name"));
            cx.missing(filter, text, "a `typed_config` with its `@type`");
            continue;
        };
        if any.type_name == ROUTER {
            filter.str("name");
            if index + 1 != filters.len() {
                cx.error(filter, "name", "router-not-last", "the router ends the chain, so it must be the last filter");
            }
            if disabled {
                cx.error(filter, "disabled", "router-disabled", "the router cannot be disabled");
            }
            router = any.reader.as_ref().map(|config| options(cx, config));
            continue;
        }
        slots.extend(slot(cx, filter, &any, disabled));
    }
    let configs = filters.iter().filter_map(|filter| filter.any("typed_config")?.reader);
    rider::warn_of_twins(cx, configs);
    let router_seen = filters.iter().any(|filter| filter.any("typed_config").is_some_and(|a| a.type_name == ROUTER));
    let answered = filters.last().is_some_and(is_terminal);
    if !router_seen && !answered && !cx.is_broken(&at.path_of(field)) && !cx.is_broken_list(at.path()) {
        let text = "the filter chain has no router, so no request would be forwarded";
        let diagnostic = at
            .diagnostic_at(field, Severity::Error, "missing-router", text)
            .expected(format!("`envoy.filters.http.router` as the last of `{field}`"))
            .help(format!(
                "add {{name: envoy.filters.http.router, typed_config: {{\"@type\": type.googleapis.com/{ROUTER}}}}}"
            ));
        cx.push(diagnostic);
    }
    (slots, router.unwrap_or_default())
}

/// Whether a filter answers every request itself, so that no router needs to stand behind it.
fn is_terminal(filter: &Reader<'_>) -> bool {
    let any = filter.any("typed_config").filter(|any| any.type_name == MODULE);
    any.and_then(|any| any.reader).is_some_and(|config| config.bool("terminal_filter"))
}

fn options(cx: &mut Lowering<'_>, config: &Reader<'_>) -> RouterOptions {
    let spares_grpc = config.bool("suppress_grpc_request_failure_code_stats");
    let moments = config.message("upstream_log_options").map(|options| LogMoments {
        start: false,
        connected: options.bool("flush_upstream_log_on_upstream_stream"),
        every: options.duration("upstream_log_flush_interval"),
    });
    RouterOptions {
        suppress_x_headers: config.bool("suppress_envoy_headers"),
        answer_counts: match config.bool_wrapper("dynamic_stats") {
            Some(false) => AnswerCounts::Nothing,
            _ if spares_grpc => AnswerCounts::ByStatusButGrpc,
            _ => AnswerCounts::ByStatus,
        },
        strict_fields: config.strings("strict_check_headers").iter().map(|name| name.value.to_owned()).collect(),
        respects_expected_timeout: config.bool("respect_expected_rq_timeout"),
        upstream_filters: upstream_filters::of_router(cx, config),
        upstream_log: access_log::loggers(cx, config, "upstream_log"),
        upstream_log_moments: moments.unwrap_or_default(),
        spawns_span: config.bool("start_child_span"),
    }
}

pub(super) fn slot(
    cx: &mut Lowering<'_>,
    filter: &Reader<'_>,
    any: &AnyReader<'_>,
    disabled: bool,
) -> Option<FilterSlot> {
    if !cx.kinds.known(any.type_name) {
        if filter.bool("is_optional") {
            cx.no_effect(filter, "typed_config", "the filter is optional and not supported");
            filter.whole("typed_config");
        } else {
            cx.refuse_extension(filter, "typed_config", any);
        }
        return None;
    }
    filter.ignore("is_optional", "the filter is supported");
    filter.whole("typed_config");
    if let Some(manifest) = any.reader.as_ref().filter(|_| any.type_name == PLUGIN) {
        cx.cluster_uses.extend(manifest.strings("clusters").into_iter().map(|cluster| ClusterUse {
            name: cluster.value.to_owned(),
            span: cluster.span,
            path: format!("{}[{}]", manifest.path_of("clusters"), cluster.index),
            required: true,
        }));
    }
    let config = checked(cx, filter, any);
    if let Some(config) = &any.reader {
        callees::note(cx, config.as_message(), &filter.path_of("typed_config"));
        needs_local_cluster(cx, config);
    }
    Some(FilterSlot {
        name: filter.str("name").to_owned(),
        kind: any.type_name.to_owned(),
        config,
        disabled,
        origin: Origin(filter.path_of("typed_config")),
    })
}

/// An extension of the registry that is no filter of requests, with its configuration.
pub(super) fn whole_slot(cx: &mut Lowering<'_>, extension: &Reader<'_>, any: &AnyReader<'_>) -> FilterSlot {
    extension.whole("typed_config");
    FilterSlot {
        name: extension.str("name").to_owned(),
        kind: any.type_name.to_owned(),
        config: checked(cx, extension, any),
        disabled: false,
        origin: Origin(extension.path_of("typed_config")),
    }
}

/// The `typed_config` of an extension that is known to somebody as a value, once that somebody has looked at it.
pub(super) fn checked(cx: &mut Lowering<'_>, extension: &Reader<'_>, any: &AnyReader<'_>) -> Value {
    let mut config = any.reader.as_ref().map(|config| secrets::value(cx, config)).unwrap_or_default();
    if let Some(config) = &any.reader {
        rider::note_plugin(cx, config);
    }
    let ruled = cx.plugin_rules.add(extension.str("name"), any.type_name, &mut config);
    for error in cx.kinds.check(extension.str("name"), any.type_name, &config) {
        if let Some(diagnostic) = plugin_rules::diagnostic(cx, ruled.as_deref(), &error) {
            cx.push(diagnostic);
            continue;
        }
        let message = any.reader.as_ref().map(Reader::as_message);
        let span = message.and_then(|message| locate(message, &error.path)).or(any.span);
        let path = match error.path.as_str() {
            "" => extension.path_of("typed_config"),
            below => format!("{}.{below}", extension.path_of("typed_config")),
        };
        // What breaks a rule of the schema was told by that.
        if cx.is_refused(&path) {
            continue;
        }
        cx.push(Diagnostic::new(Severity::Error, "invalid-filter-config", error.message).at(span).path(path));
    }
    config
}

/// What the names of Protobuf's own messages begin with.
const PLAIN: &str = "google.protobuf.";

/// `typed_per_filter_config` of a table, virtual host, route or weighted cluster. `filters` are the chain's names.
pub(super) fn overrides(cx: &mut Lowering<'_>, at: &Reader<'_>, filters: &[&str]) -> Vec<FilterOverride> {
    const FIELD: &str = "typed_per_filter_config";
    let mut all = Vec::new();
    for (name, any) in at.any_map(FIELD) {
        let Some(config) = &any.reader else { continue };
        let built = if any.type_name == FILTER_CONFIG {
            switched(cx, name, config)
        } else {
            callees::note(cx, config.as_message(), config.path());
            needs_local_cluster(cx, config);
            Some((Some(override_config(cx, &any, config)), false, false))
        };
        let Some((override_config, disabled, optional)) = built else { continue };
        if let Some(FilterConfig { kind, .. }) = &override_config
            && kind.starts_with(PLAIN)
            && !optional
        {
            let text = format!("`{kind}` is the configuration of no filter");
            let diagnostic = Diagnostic::error("unknown-extension", text).at(any.span.or(at.span_of(FIELD)));
            cx.push(diagnostic.path(config.path()));
            continue;
        }
        if filters.contains(&name) {
            let wrapped = if any.type_name == FILTER_CONFIG { config.any("config") } else { None };
            let entries = wrapped.as_ref().map_or(Some(config), |wrapped| wrapped.reader.as_ref());
            if let Some(entries) = entries {
                rider::note_entries(cx, entries);
            }
        } else if !optional {
            let text = format!("no filter of the chain is named `{name}`, so this override has no effect");
            let diagnostic = Diagnostic::warning("unknown-filter", text)
                .at(any.span.or(at.span_of(FIELD)))
                .path(config.path())
                .suggest(nearest(name, filters.iter().copied()));
            cx.push(diagnostic);
        }
        all.push(FilterOverride {
            name: name.to_owned(),
            config: override_config,
            disabled,
            optional,
            origin: Origin(match any.type_name {
                FILTER_CONFIG => config.path_of("config"),
                _ => config.path().to_owned(),
            }),
        });
    }
    all
}

type Switched = (Option<FilterConfig>, bool, bool);

fn switched(cx: &mut Lowering<'_>, name: &str, wrapper: &Reader<'_>) -> Option<Switched> {
    let disabled = wrapper.bool("disabled");
    let optional = wrapper.bool("is_optional");
    let Some(any) = wrapper.any("config") else {
        if !disabled {
            cx.missing(wrapper, format!("the override of `{name}` changes nothing"), "`config` or `disabled: true`");
        }
        return Some((None, disabled, optional));
    };
    if any.type_name.is_empty() {
        // `config: {}` switches the filter on as it stands in the chain.
        return Some((None, disabled, optional));
    }
    let config = any.reader.as_ref()?;
    callees::note(cx, config.as_message(), config.path());
    needs_local_cluster(cx, config);
    Some((Some(override_config(cx, &any, config)), disabled, optional))
}

/// A limit that proxies share is only known where it is known who they are.
fn needs_local_cluster(cx: &mut Lowering<'_>, config: &Reader<'_>) {
    const FIELD: &str = "local_cluster_rate_limit";
    if config.type_name() == LOCAL_RATE_LIMIT && !cx.has_local_cluster && config.has(FIELD) {
        let text = "nothing says with whom the limit is shared";
        let diagnostic = config.diagnostic_at(FIELD, Severity::Error, "conflict", text).help(
            "name the cluster that lists the proxies as `local_cluster_name` in the bootstrap's `cluster_manager`",
        );
        cx.push(diagnostic);
    }
}

/// Of an override's type only the filter itself knows whether it fits; it is asked when the chain is built.
fn override_config(cx: &mut Lowering<'_>, any: &AnyReader<'_>, config: &Reader<'_>) -> FilterConfig {
    // Marks all of it as read: the filter's own reader refuses what it does not know.
    config.read_whole();
    FilterConfig { kind: any.type_name.to_owned(), value: secrets::value(cx, config) }
}
