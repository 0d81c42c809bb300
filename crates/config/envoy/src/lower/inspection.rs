//! What a listener looks at before it chooses a filter chain (`listener_filters`).

use std::time::Duration;

use postrider_model::{ChainMatch, Inspection, ProxyProtocol, TransportMatch};

use super::context::{Lowering, timeout};
use crate::reader::Reader;

/// `listener_filters_timeout` where it is absent.
const TIMEOUT: Duration = Duration::from_secs(15);

const TLS_INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
const ORIGINAL_DST: &str = "envoy.extensions.filters.listener.original_dst.v3.OriginalDst";
const PROXY_PROTOCOL: &str = "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";
const HTTP_INSPECTOR: &str = "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector";

pub(super) fn inspection<'l>(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    mut matches: impl Iterator<Item = &'l ChainMatch>,
) -> Inspection {
    let mut inspection = Inspection::default();
    for filter in at.list("listener_filters") {
        self::filter(cx, &filter, &mut inspection);
    }
    // Envoy, too, asks for the destination where that decides who serves a connection, and adds the inspector where chains cannot be told apart without it.
    inspection.original_destination |= at.bool_wrapper("use_original_dst") == Some(true);
    inspection.tls |= matches.any(needs_tls);
    if inspection.proxy.is_none() && !inspection.tls && !inspection.http {
        at.ignore("listener_filters_timeout", "nothing is looked at before a chain is chosen");
        at.ignore("continue_on_listener_filters_timeout", "nothing is looked at before a chain is chosen");
        return inspection;
    }
    inspection.timeout = timeout(at, "listener_filters_timeout", Some(TIMEOUT));
    inspection.continue_on_timeout = at.bool("continue_on_listener_filters_timeout");
    inspection
}

fn needs_tls(chain: &ChainMatch) -> bool {
    match chain.transport {
        TransportMatch::Tls => true,
        TransportMatch::Any => !chain.server_names.is_empty() || !chain.application_protocols.is_empty(),
        TransportMatch::Raw => false,
    }
}

fn filter(cx: &mut Lowering<'_>, filter: &Reader<'_>, inspection: &mut Inspection) {
    filter.str("name");
    if filter.has("config_discovery") {
        cx.refuse(filter, "config_discovery", "filters from a control plane (ECDS)");
        return;
    }
    if filter.has("filter_disabled") {
        cx.refuse(filter, "filter_disabled", "listener filters for a part of the connections");
    }
    let Some(any) = filter.any("typed_config") else {
        cx.missing(filter, "the listener filter has no `typed_config`", "a `typed_config` with its `@type`");
        return;
    };
    let Some(config) = &any.reader else { return };
    match any.type_name {
        TLS_INSPECTOR => {
            config.ignore("initial_read_buffer_size", "the buffer is as large as the client's greeting");
            config.approximate("max_client_hello_size", "the limit is 16 KiB");
            if config.bool("close_connection_on_client_hello_parsing_errors") {
                let what = "closing connections whose greeting is not TLS";
                cx.refuse_value(config, "close_connection_on_client_hello_parsing_errors", what);
            }
            inspection.tls = true;
            inspection.ja3 = config.bool_wrapper("enable_ja3_fingerprinting").unwrap_or(false);
            inspection.ja4 = config.bool_wrapper("enable_ja4_fingerprinting").unwrap_or(false);
        }
        HTTP_INSPECTOR => inspection.http = true,
        ORIGINAL_DST => inspection.original_destination = true,
        PROXY_PROTOCOL => {
            if inspection.tls || inspection.http || inspection.proxy.is_some() {
                let text = "a connection begins with the PROXY protocol, so this filter comes first, and once";
                cx.error(filter, "typed_config", "conflict", text);
            }
            inspection.proxy = proxy_protocol(cx, config);
        }
        _ => cx.refuse_extension(filter, "typed_config", &any),
    }
}

fn proxy_protocol(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<ProxyProtocol> {
    for (field, what) in [("rules", "keeping TLVs of the PROXY protocol"), ("pass_through_tlvs", "handing TLVs on")] {
        if config.has(field) {
            cx.refuse(config, field, what);
        }
    }
    config.ignore("tlv_location", "TLVs are read over");
    let disallowed = config.enum_numbers("disallowed_versions");
    let allowed = |version: i32| disallowed.iter().all(|element| element.value != version);
    // Numbers of `ProxyProtocolConfig.Version`.
    let (v1, v2) = (allowed(0), allowed(1));
    if !v1 && !v2 {
        let text = "both versions are disallowed: every connection would be refused, or none read";
        cx.error(config, "disallowed_versions", "conflict", text);
    }
    let optional = config.bool("allow_requests_without_proxy_protocol");
    Some(ProxyProtocol { v1, v2, optional, stat_prefix: config.str("stat_prefix").to_owned() })
}
