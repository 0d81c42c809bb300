//! How connections to upstreams say where they come from (`ProxyProtocolConfig`), and what of TLVs is passed on.

use postrider_model::{AddedTlvs, ProxyHeader, ProxyVersion, Tlv, TlvChoice, TlvEntry, TlvMerge, TlvValue};

use super::context::Lowering;
use super::data;
use crate::reader::Reader;

/// The most that one header holds besides addresses of IPv6 (the PROXY protocol, section 2.2).
const MOST_TLV_BYTES: usize = u16::MAX as usize - 36;

/// `ProxyProtocolConfig`; what is absent is version 1, as in Envoy.
pub(super) fn header(cx: &mut Lowering<'_>, at: &Reader<'_>) -> ProxyHeader {
    let version = if at.enum_name("version") == "V2" { ProxyVersion::V2 } else { ProxyVersion::V1 };
    let tlvs: Vec<Tlv> = at.list("added_tlvs").iter().filter_map(|place| tlv(cx, place)).collect();
    let bytes: usize = tlvs.iter().map(|tlv| tlv.value.len() + 3).sum();
    if bytes > MOST_TLV_BYTES {
        let text = format!("the TLVs have {bytes} bytes, and a header has room for {MOST_TLV_BYTES}");
        cx.error(at, "added_tlvs", "too-long", text);
    }
    if version == ProxyVersion::V1 {
        at.ignore("added_tlvs", "a header of version 1 has no TLVs");
        at.ignore("pass_through_tlvs", "a header of version 1 has no TLVs");
        return ProxyHeader { version, tlvs, passed: TlvChoice::None };
    }
    ProxyHeader { version, tlvs, passed: choice(at) }
}

/// `ProxyProtocolPassThroughTLVs` in the field `pass_through_tlvs`.
pub(super) fn choice(at: &Reader<'_>) -> TlvChoice {
    let Some(choice) = at.message("pass_through_tlvs") else { return TlvChoice::None };
    if choice.enum_name("match_type") == "INCLUDE_ALL" {
        choice.ignore("tlv_type", "all types are included");
        return TlvChoice::All;
    }
    let kinds = choice.u64s("tlv_type");
    TlvChoice::Kinds(kinds.iter().filter_map(|kind| u8::try_from(kind.value).ok()).collect())
}

/// `TcpProxy.proxy_protocol_tlvs` and how they are merged with those of the client's header.
pub(super) fn of_connection(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Box<AddedTlvs>> {
    let merge = match at.enum_name("proxy_protocol_tlv_merge_policy").as_str() {
        "OVERWRITE_BY_TYPE_IF_EXISTS_OR_ADD" => TlvMerge::Replace,
        "APPEND_IF_EXISTS_OR_ADD" => TlvMerge::Append,
        _ => TlvMerge::OnlyAlone,
    };
    let mut entries: Vec<TlvEntry> =
        at.list("proxy_protocol_tlvs").iter().filter_map(|place| entry(cx, place)).collect();
    // Fixed ones go first, as in Envoy.
    entries.sort_by_key(|entry| matches!(entry.value, TlvValue::Format(_)));
    (!entries.is_empty()).then(|| Box::new(AddedTlvs { entries, merge }))
}

fn entry(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<TlvEntry> {
    let kind = u8::try_from(at.u32("type")).ok()?;
    let value = match at.message("format_string") {
        None if at.bytes("value").is_empty() => {
            cx.missing(at, "a TLV of a connection has no value", "`value` or `format_string`");
            return None;
        }
        None => TlvValue::Fixed(at.bytes("value").to_vec()),
        Some(format) => {
            if at.has("value") {
                let text = "a TLV has either a `value` or a `format_string`";
                cx.error(at, "format_string", "conflict", text);
            }
            TlvValue::Format(data::log_format(cx, &format))
        }
    };
    Some(TlvEntry { kind, value })
}

fn tlv(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Tlv> {
    let kind = u8::try_from(at.u32("type")).ok()?;
    if at.has("format_string") {
        cx.refuse(at, "format_string", "a TLV of what is known of the connection to the upstream (`proxy_protocol_tlvs` of a TCP proxy has formats)");
        return None;
    }
    Some(Tlv { kind, value: at.bytes("value").to_vec() })
}
