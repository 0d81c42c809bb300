//! Where a request comes from, and what it is called: original IP detection and request id extensions.

use postrider_model::{ClientDetection, SchemeOfPort, TrustedProxies};

use super::chain_match;
use super::context::Lowering;
use crate::reader::Reader;

const FORWARDED: &str = "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig";
const HEADER: &str = "envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig";
const UUID: &str = "envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig";

/// `original_ip_detection_extensions`.
pub(super) fn detection(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<ClientDetection> {
    const FIELD: &str = "original_ip_detection_extensions";
    let extensions = at.list(FIELD);
    if !extensions.is_empty() {
        for other in ["use_remote_address", "xff_num_trusted_hops"] {
            let is_set = match other {
                "use_remote_address" => at.bool_wrapper(other) == Some(true),
                _ => at.u32(other) > 0,
            };
            if is_set {
                cx.error(at, FIELD, "conflict", format!("`{FIELD}` and `{other}` exclude each other"));
            }
        }
    }
    extensions.iter().filter_map(|extension| one(cx, extension)).collect()
}

fn one(cx: &mut Lowering<'_>, extension: &Reader<'_>) -> Option<ClientDetection> {
    extension.str("name");
    let any = extension.any("typed_config")?;
    match (any.type_name, &any.reader) {
        (FORWARDED, Some(config)) => Some(forwarded(cx, config)),
        (HEADER, Some(config)) => Some(header(config)),
        _ => {
            cx.refuse_extension(extension, "typed_config", &any);
            None
        }
    }
}

fn forwarded(cx: &mut Lowering<'_>, at: &Reader<'_>) -> ClientDetection {
    let hops = at.u32("xff_num_trusted_hops");
    let trusted = match at.message("xff_trusted_cidrs") {
        None => TrustedProxies::Hops(hops),
        Some(networks) => {
            if hops > 0 {
                let text = "`xff_num_trusted_hops` and `xff_trusted_cidrs` exclude each other";
                cx.error(at, "xff_trusted_cidrs", "conflict", text);
            }
            TrustedProxies::Networks(chain_match::ranges(cx, &networks, "cidrs"))
        }
    };
    ClientDetection::Forwarded { trusted, appends: at.bool_wrapper("skip_xff_append") == Some(false) }
}

fn header(at: &Reader<'_>) -> ClientDetection {
    let may_be_inside = at.bool("allow_extension_to_set_address_as_trusted");
    // What is no error is no refusal: Envoy answers 403 then.
    let otherwise = at.message("reject_with_status").map(|status| {
        u16::try_from(status.enum_number("code")).ok().filter(|code| (400..600).contains(code)).unwrap_or(403)
    });
    ClientDetection::Header { name: at.str("header_name").to_ascii_lowercase(), may_be_inside, otherwise }
}

/// `forward_proto_config`.
pub(super) fn scheme_of_port(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<SchemeOfPort> {
    let config = at.message("forward_proto_config")?;
    let mut ports = |field: &str| -> Vec<u16> {
        let mut read = Vec::new();
        for port in config.u64s(field) {
            match u16::try_from(port.value) {
                Ok(port) => read.push(port),
                Err(_) => cx.error(&config, field, "invalid-port", format!("{} is no port", port.value)),
            }
        }
        read
    };
    Some(SchemeOfPort { https: ports("https_destination_ports"), http: ports("http_destination_ports") })
}

/// `request_id_extension`: whether ids say why a request is traced.
pub(super) fn packs_trace_reason(cx: &mut Lowering<'_>, at: &Reader<'_>) -> bool {
    let Some(extension) = at.message("request_id_extension") else { return true };
    let Some(any) = extension.any("typed_config") else { return true };
    let (UUID, Some(config)) = (any.type_name, &any.reader) else {
        cx.refuse_extension(&extension, "typed_config", &any);
        return true;
    };
    config.bool_wrapper("use_request_id_for_trace_sampling");
    config.bool_wrapper("pack_trace_reason").unwrap_or(true)
}

/// The same extension: whether ids say which requests are drawn for traces.
pub(super) fn draws_traces_by_id(at: &Reader<'_>) -> bool {
    let extension = at.message("request_id_extension").and_then(|extension| extension.any("typed_config"));
    let config = extension.filter(|any| any.type_name == UUID).and_then(|any| any.reader);
    config.and_then(|config| config.bool_wrapper("use_request_id_for_trace_sampling")).unwrap_or(true)
}
