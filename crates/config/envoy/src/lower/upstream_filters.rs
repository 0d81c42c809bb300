//! HTTP filters on the upstream side: those of a cluster, and those of the router for clusters without.

use postrider_config_core::Severity;
use postrider_model::FilterSlot;

use super::context::Lowering;
use super::filters;
use crate::known::VERSION;
use crate::reader::{AnyReader, Reader};

/// Ends each chain; requests leave through it.
const CODEC: &str = "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec";

/// The filters that Envoy takes here and that are here.
const KINDS: [&str; 8] = [
    "envoy.extensions.filters.http.buffer.v3.Buffer",
    "envoy.extensions.filters.http.compressor.v3.Compressor",
    "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
    "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
    "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
    "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.wasm.v3.Wasm",
];

/// Those that Envoy takes here, too.
const KINDS_OF_ENVOY: [&str; 8] = [
    "envoy.extensions.filters.http.admission_control.v3.AdmissionControl",
    "envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager",
    "envoy.extensions.filters.http.aws_lambda.v3.Config",
    "envoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigning",
    "envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimit",
    "envoy.extensions.filters.http.composite.v3.Composite",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
];

/// `HttpProtocolOptions.http_filters` of a cluster; `None` leaves the word to the router.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Vec<FilterSlot>> {
    let slots = chain(cx, at, "http_filters")?;
    cx.cluster_filters.extend(slots.iter().map(|slot| slot.name.clone()));
    Some(slots)
}

/// `Router.upstream_http_filters`.
pub(super) fn of_router(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<FilterSlot> {
    chain(cx, at, "upstream_http_filters").unwrap_or_default()
}

/// The filters before the codec; `None` where nothing is written.
fn chain(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Option<Vec<FilterSlot>> {
    let filters = at.list(field);
    if filters.is_empty() {
        return None;
    }
    let mut slots = Vec::new();
    let mut ends = false;
    for (index, filter) in filters.iter().enumerate() {
        let (name, disabled) = (filter.str("name"), filter.bool("disabled"));
        if filter.has("config_discovery") {
            cx.refuse(filter, "config_discovery", "filters from a control plane (ECDS)");
            continue;
        }
        let Some(any) = filter.any("typed_config") else {
            let text = format!("the filter `{name}` has no `typed_config`");
            cx.missing(filter, text, "a `typed_config` with its `@type`");
            continue;
        };
        if any.type_name == CODEC {
            filter.bool("is_optional");
            if disabled {
                cx.error(filter, "disabled", "codec-disabled", "the codec ends the chain and cannot be disabled");
            }
            ends = index + 1 == filters.len();
            continue;
        }
        if is_taken(cx, filter, &any) {
            slots.extend(filters::slot(cx, filter, &any, disabled));
        }
    }
    if !ends && !cx.is_broken(&at.path_of(field)) {
        let text = "a chain of filters on the upstream side ends with the codec, and only there";
        let diagnostic = at
            .diagnostic_at(field, Severity::Error, "missing-upstream-codec", text)
            .expected(format!("`envoy.filters.http.upstream_codec` as the last of `{field}`"))
            .help(format!(
                "add {{name: envoy.filters.http.upstream_codec, typed_config: {{\"@type\": type.googleapis.com/{CODEC}}}}}"
            ));
        cx.push(diagnostic);
    }
    Some(slots)
}

/// Whether the filter can stand here; if not, that is said.
fn is_taken(cx: &mut Lowering<'_>, filter: &Reader<'_>, any: &AnyReader<'_>) -> bool {
    // What nobody knows was refused by the loader.
    if KINDS.contains(&any.type_name) || any.reader.is_none() {
        return true;
    }
    filter.whole("typed_config");
    if filter.bool("is_optional") {
        cx.no_effect(filter, "typed_config", "the filter is optional, and does not work on the upstream side");
        return false;
    }
    let text = match KINDS_OF_ENVOY.contains(&any.type_name) {
        true => {
            format!("`{}` on the upstream side: known to Envoy, not supported by Postrider {VERSION}", any.type_name)
        }
        false => format!("`{}` is no filter for the upstream side, as in Envoy", any.type_name),
    };
    let diagnostic = filter
        .diagnostic_at("typed_config", Severity::Error, "unsupported-extension", text)
        .at(any.span.or_else(|| filter.span_of("typed_config")))
        .help("put it among the `http_filters` of the connection manager");
    cx.push(diagnostic);
    false
}
