//! What a listener looks at before it chooses a filter chain (`listener_filters`).

use std::time::Duration;

use postrider_model::{ChainMatch, Inspection, TransportMatch};

use super::context::{Lowering, timeout};
use crate::reader::Reader;

/// `listener_filters_timeout` where it is absent.
const TIMEOUT: Duration = Duration::from_secs(15);

const TLS_INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
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
    // Envoy, too, adds the inspector where chains cannot be told apart without it.
    inspection.tls |= matches.any(needs_tls);
    if !inspection.tls && !inspection.http {
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
        _ => cx.refuse_extension(filter, "typed_config", &any),
    }
}
