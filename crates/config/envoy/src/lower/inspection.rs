//! What a listener looks at before it chooses a filter chain (`listener_filters`).

use std::time::Duration;

use postrider_model::{
    ChainMatch, Inspection, InspectionPart, NewcomerSlot, OriginalSource, PortMatch, ProxyProtocol, TlvNote,
    TransportMatch,
};

use super::context::{Lowering, timeout};
use super::{filters, proxy_header};
use crate::reader::Reader;

/// `listener_filters_timeout` where it is absent.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Where the values of TLVs are noted, unless a rule says otherwise.
const TLV_NAMESPACE: &str = "envoy.filters.listener.proxy_protocol";

const TLS_INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
const ORIGINAL_DST: &str = "envoy.extensions.filters.listener.original_dst.v3.OriginalDst";
const ORIGINAL_SRC: &str = "envoy.extensions.filters.listener.original_src.v3.OriginalSrc";
const PROXY_PROTOCOL: &str = "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";
const HTTP_INSPECTOR: &str = "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector";
const MODULE: &str = "envoy.extensions.filters.listener.dynamic_modules.v3.DynamicModuleListenerFilter";

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
    // A module may be what tells them apart.
    inspection.tls |= inspection.filters.is_empty() && matches.any(needs_tls);
    if inspection.proxy.is_none() && !inspection.tls && !inspection.http && inspection.filters.is_empty() {
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
        TransportMatch::Raw | TransportMatch::Quic => false,
    }
}

fn filter(cx: &mut Lowering<'_>, filter: &Reader<'_>, inspection: &mut Inspection) {
    filter.str("name");
    if filter.has("config_discovery") {
        cx.refuse(filter, "config_discovery", "filters from a control plane (ECDS)");
        return;
    }
    let except = filter.message(DISABLED).and_then(|condition| ports(cx, &condition));
    let Some(any) = filter.any("typed_config") else {
        cx.missing(filter, "the listener filter has no `typed_config`", "a `typed_config` with its `@type`");
        return;
    };
    let Some(config) = &any.reader else { return };
    if [TLS_INSPECTOR, HTTP_INSPECTOR].contains(&any.type_name)
        && inspection.filters.iter().any(|filter| !filter.is_first)
    {
        let text = "a native module stands between two inspectors: it has its place before or behind both";
        cx.error(filter, "typed_config", "conflict", text);
    }
    match any.type_name {
        MODULE if cx.kinds.known(MODULE) => {
            let is_first = !inspection.tls && !inspection.http;
            inspection.filters.push(NewcomerSlot { slot: filters::whole_slot(cx, filter, &any), is_first, except });
            return;
        }
        TLS_INSPECTOR => {
            config.ignore("initial_read_buffer_size", "the buffer is as large as the client's greeting");
            config.approximate("max_client_hello_size", "the limit is 16 KiB");
            inspection.tls_only |= config.bool("close_connection_on_client_hello_parsing_errors");
            inspection.tls = true;
            inspection.ja3 = config.bool_wrapper("enable_ja3_fingerprinting").unwrap_or(false);
            inspection.ja4 = config.bool_wrapper("enable_ja4_fingerprinting").unwrap_or(false);
        }
        HTTP_INSPECTOR => inspection.http = true,
        ORIGINAL_DST => inspection.original_destination = true,
        ORIGINAL_SRC => {
            let mark = Some(config.u32("mark")).filter(|mark| *mark != 0);
            inspection.original_source = Some(OriginalSource { port: config.bool("bind_port"), mark });
        }
        PROXY_PROTOCOL => {
            if inspection.tls || inspection.http || inspection.proxy.is_some() || !inspection.filters.is_empty() {
                let text = "a connection begins with the PROXY protocol, so this filter comes first, and once";
                cx.error(filter, "typed_config", "conflict", text);
            }
            inspection.proxy = proxy_protocol(cx, config);
        }
        _ => {
            cx.refuse_extension(filter, "typed_config", &any);
            return;
        }
    }
    let part = match any.type_name {
        TLS_INSPECTOR => InspectionPart::Tls,
        HTTP_INSPECTOR => InspectionPart::Http,
        ORIGINAL_DST => InspectionPart::OriginalDestination,
        ORIGINAL_SRC => InspectionPart::OriginalSource,
        _ => InspectionPart::Proxy,
    };
    if let Some(except) = except {
        inspection.exceptions.push((part, except));
    }
}

const DISABLED: &str = "filter_disabled";

/// `ListenerFilterChainMatchPredicate`.
fn ports(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<PortMatch> {
    let list = |cx: &mut Lowering<'_>, field| -> Option<Vec<PortMatch>> {
        let rules = at.message(field)?.list("rules");
        rules.iter().map(|rule| ports(cx, rule)).collect()
    };
    match at.oneof("rule") {
        Some("any_match") => {
            at.bool("any_match");
            Some(PortMatch::Any)
        }
        Some("destination_port_range") => {
            let range = at.message("destination_port_range")?;
            Some(PortMatch::Range(range.i32("start"), range.i32("end")))
        }
        Some("and_match") => list(cx, "and_match").map(PortMatch::All),
        Some("or_match") => list(cx, "or_match").map(PortMatch::One),
        Some("not_match") => Some(PortMatch::Not(Box::new(ports(cx, &at.message("not_match")?)?))),
        _ => {
            cx.missing(at, "the condition is empty", "`destination_port_range: {start: …, end: …}`");
            None
        }
    }
}

fn proxy_protocol(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<ProxyProtocol> {
    let disallowed = config.enum_numbers("disallowed_versions");
    let allowed = |version: i32| disallowed.iter().all(|element| element.value != version);
    // Numbers of `ProxyProtocolConfig.Version`.
    let (v1, v2) = (allowed(0), allowed(1));
    if !v1 && !v2 {
        let text = "both versions are disallowed: every connection would be refused, or none read";
        cx.error(config, "disallowed_versions", "conflict", text);
    }
    let optional = config.bool("allow_requests_without_proxy_protocol");
    let noted_in_state = config.enum_name("tlv_location") == "FILTER_STATE";
    let mut noted: Vec<TlvNote> = Vec::new();
    for note in config.list("rules").iter().map(tlv_note) {
        // The last rule for a type is the one, as in Envoy.
        noted.retain(|other| other.kind != note.kind);
        noted.push(note);
    }
    let kept = proxy_header::choice(config);
    Some(ProxyProtocol {
        v1,
        v2,
        optional,
        stat_prefix: config.str("stat_prefix").to_owned(),
        noted,
        noted_in_state,
        kept,
    })
}

fn tlv_note(rule: &Reader<'_>) -> TlvNote {
    // The document's own rules leave no larger number.
    let kind = u8::try_from(rule.u32("tlv_type")).unwrap_or(u8::MAX);
    let pair = rule.message("on_tlv_present");
    let text = |field: &str| pair.as_ref().map(|pair| pair.str(field)).unwrap_or_default();
    let namespace = Some(text("metadata_namespace")).filter(|name| !name.is_empty());
    TlvNote {
        kind,
        namespace: namespace.unwrap_or(TLV_NAMESPACE).to_owned(),
        key: text("key").to_owned(),
        base64: pair.as_ref().is_some_and(|pair| pair.enum_name("value_string_encoding") == "BASE64"),
    }
}
