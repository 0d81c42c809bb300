//! The network filters of a chain: those that look at a connection first, and the last one, which serves it.

use std::sync::Arc;
use std::time::Duration;

use postrider_config_core::{Diagnostics, Severity};
use postrider_model::{ChainLimit, ConnectionHandler, ConnectionLimit, ConnectionRate, FilterSlot};

use super::context::Lowering;
use super::{data, filters, http, tcp};
use crate::reader::{AnyReader, Reader};

const HTTP: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const ECHO: &str = "envoy.extensions.filters.network.echo.v3.Echo";
const RESPONSE: &str = "envoy.extensions.filters.network.direct_response.v3.Config";
const MODULE: &str = "envoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter";
const GOLANG: &str = "envoy.extensions.filters.network.golang.v3alpha.Config";
/// Filters of the registry that look at a connection before it is served, or at its bytes.
const GUARDS: [&str; 6] = [
    MODULE,
    GOLANG,
    RBAC,
    "envoy.extensions.filters.network.set_filter_state.v3.Config",
    "envoy.extensions.filters.network.sni_cluster.v3.SniCluster",
    "envoy.extensions.filters.network.wasm.v3.Wasm",
];
const LIMIT: &str = "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit";

const RBAC: &str = "envoy.extensions.filters.network.rbac.v3.RBAC";

const RATE: &str = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";

/// Around either of them.
const SHADOW: &str = "postrider.filters.network.shadow.v3.Shadow";

/// A bucket that fills more often is refused, as Envoy does.
const MIN_FILL_INTERVAL: Duration = Duration::from_millis(50);

/// The `filters` of a chain.
pub(super) fn filters(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Filters {
    let (mut limits, mut guards, mut handler) = (Vec::new(), Vec::new(), None);
    let filters = at.list("filters");
    if filters.is_empty() && !cx.is_broken(at.path()) {
        let text = "the chain has no filter: its connections are closed at once";
        let diagnostic = at.diagnostic(Severity::Warning, "no-filters", text);
        cx.push(diagnostic.expected("a filter: `http_connection_manager` or `tcp_proxy`"));
        handler = Some(ConnectionHandler::Say(Arc::default()));
    }
    for (index, filter) in filters.iter().enumerate() {
        filter.str("name");
        if filter.has("config_discovery") {
            cx.refuse(filter, "config_discovery", "filters from a control plane (ECDS)");
            continue;
        }
        let Some(any) = filter.any("typed_config") else {
            cx.missing(filter, "the filter has no `typed_config`", "a `typed_config` with its `@type`");
            continue;
        };
        let Some(config) = &any.reader else { continue };
        let last = index + 1 == filters.len();
        let is_guard = GUARDS.contains(&any.type_name) && cx.kinds.known(any.type_name);
        if [LIMIT, RATE, SHADOW].contains(&any.type_name) || is_guard {
            // It answers by itself.
            let serves = match any.type_name {
                MODULE => config.bool("terminal_filter"),
                GOLANG => config.bool("is_terminal_filter"),
                _ => false,
            };
            if is_guard {
                guards.push(filters::whole_slot(cx, filter, &any));
            } else if any.type_name == SHADOW {
                limits.extend(shadowed(cx, filter.str("name"), config));
            } else {
                limits.extend(of_kind(cx, any.type_name, config));
            }
            if serves {
                handler = Some(ConnectionHandler::Filters);
                not_last(cx, filter, last);
            } else if last {
                let text = "this filter serves no connection: behind it stands one that does, such as `tcp_proxy`";
                cx.error(filter, "name", "not-terminal", text);
            }
            continue;
        }
        let Ok(built) = last_filter(cx, &any, config) else {
            cx.refuse_extension(filter, "typed_config", &any);
            continue;
        };
        not_last(cx, filter, last);
        handler = built;
    }
    (limits, guards, handler)
}

/// A filter that serves the connection may only be the last one.
fn not_last(cx: &mut Lowering<'_>, filter: &Reader<'_>, last: bool) {
    if !last {
        let text = "this filter ends the chain, so it must be the last one";
        cx.error(filter, "name", "terminal-not-last", text);
    }
}

/// Limits, filters that look at a connection first, and the one that serves it.
type Filters = (Vec<ChainLimit>, Vec<FilterSlot>, Option<ConnectionHandler>);

/// A filter of the registry that looks at a connection before it is served.
/// `Err` for a filter that is not supported, `Ok(None)` for one whose configuration is wrong.
fn last_filter(
    cx: &mut Lowering<'_>,
    any: &AnyReader<'_>,
    config: &Reader<'_>,
) -> Result<Option<ConnectionHandler>, ()> {
    Ok(match any.type_name {
        HTTP => http::connection(cx, config).map(|http| ConnectionHandler::Http(Arc::new(http))),
        TCP => tcp::proxy(cx, config).map(|tcp| ConnectionHandler::Tcp(Arc::new(tcp))),
        ECHO => Some(ConnectionHandler::Echo),
        RESPONSE => {
            let said = config.message("response").and_then(|source| data::source_bytes(cx, &source));
            Some(ConnectionHandler::Say(said.unwrap_or_default().into()))
        }
        _ => return Err(()),
    })
}

fn of_kind(cx: &mut Lowering<'_>, kind: &str, config: &Reader<'_>) -> Option<ChainLimit> {
    match kind {
        LIMIT => limit(cx, config).map(ChainLimit::Held),
        _ => rate(cx, config).map(ChainLimit::Rate),
    }
}

/// A limit that closes nothing, under the name that its filter has in the chain.
fn shadowed(cx: &mut Lowering<'_>, name: &str, at: &Reader<'_>) -> Option<ChainLimit> {
    let Some(inner) = at.any("filter") else {
        cx.missing(
            at,
            "nothing stands in the shadow",
            "a `filter` with its `@type`: a connection_limit or local_ratelimit",
        );
        return None;
    };
    let config = inner.reader.as_ref()?;
    if ![LIMIT, RATE].contains(&inner.type_name) {
        not_in_shadow(cx, at, &inner);
        return None;
    }
    let mut limit = of_kind(cx, inner.type_name, config)?;
    let shadow = match &mut limit {
        ChainLimit::Held(limit) => &mut limit.shadow,
        ChainLimit::Rate(rate) => &mut rate.shadow,
    };
    *shadow = Some(name.to_owned());
    Some(limit)
}

fn not_in_shadow(cx: &mut Lowering<'_>, at: &Reader<'_>, inner: &AnyReader<'_>) {
    let text = format!("`{}` cannot stand in the shadow of connections", inner.type_name);
    // Marks the field as refused without a second finding about it.
    at.refuse("filter", &text, &mut Diagnostics::new());
    let refusal = at.diagnostic_at("filter", Severity::Error, "unsupported-value", text);
    let refusal = refusal.at(inner.span.or_else(|| at.span_of("filter")));
    let refusal = refusal.expected("a connection_limit or local_ratelimit");
    cx.push(match inner.type_name {
        RBAC => refusal.help("`shadow_rules` and `shadow_matcher` of the filter itself turn nobody away"),
        _ => refusal,
    });
}

fn limit(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<ConnectionLimit> {
    let most = at.u64_wrapper("max_connections");
    if most.is_none() {
        cx.missing(at, "the filter has no limit", "`max_connections` of at least 1");
    }
    // One that is off counts connections.
    let enabled = is_enabled(at);
    Some(ConnectionLimit {
        stat_prefix: at.str("stat_prefix").to_owned(),
        most: most.map(|most| if enabled { most } else { u64::MAX })?,
        delay: at.duration("delay").filter(|delay| !delay.is_zero()),
        shadow: None,
    })
}

fn rate(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<ConnectionRate> {
    let enabled = is_enabled(at);
    let stat_prefix = at.str("stat_prefix").to_owned();
    let share_key = at.str("share_key").to_owned();
    let Some(bucket) = at.message("token_bucket") else {
        cx.missing(at, "the filter has no limit", "a `token_bucket`");
        return None;
    };
    let fill_interval = bucket.duration("fill_interval").unwrap_or_default();
    let (max_tokens, tokens_per_fill) = (bucket.u32("max_tokens"), bucket.u32_wrapper("tokens_per_fill").unwrap_or(1));
    if fill_interval < MIN_FILL_INTERVAL {
        let text = "the bucket fills more often than every 0.05s";
        cx.error(&bucket, "fill_interval", "invalid-value", text);
        return None;
    }
    let shadow = None;
    Some(ConnectionRate { stat_prefix, max_tokens, tokens_per_fill, fill_interval, share_key, shadow, enabled })
}

/// `runtime_enabled`.
fn is_enabled(at: &Reader<'_>) -> bool {
    at.message("runtime_enabled").is_none_or(|flag| {
        flag.str("runtime_key");
        flag.bool_wrapper("default_value").unwrap_or(true)
    })
}
