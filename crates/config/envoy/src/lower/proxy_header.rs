//! How connections to upstreams say where they come from (`ProxyProtocolConfig`).

use postrider_model::{ProxyHeader, ProxyVersion, Tlv};

use super::context::Lowering;
use crate::reader::Reader;

/// The most that one header holds besides addresses of IPv6 (the PROXY protocol, section 2.2).
const MOST_TLV_BYTES: usize = u16::MAX as usize - 36;

/// `ProxyProtocolConfig`; what is absent is version 1, as in Envoy.
pub(super) fn header(cx: &mut Lowering<'_>, at: &Reader<'_>) -> ProxyHeader {
    let version = if at.enum_name("version") == "V2" { ProxyVersion::V2 } else { ProxyVersion::V1 };
    if at.has("pass_through_tlvs") {
        cx.refuse(at, "pass_through_tlvs", "TLVs of a client's PROXY header for upstreams");
    }
    let tlvs: Vec<Tlv> = at.list("added_tlvs").iter().filter_map(|place| tlv(cx, place)).collect();
    let bytes: usize = tlvs.iter().map(|tlv| tlv.value.len() + 3).sum();
    if bytes > MOST_TLV_BYTES {
        let text = format!("the TLVs have {bytes} bytes, and a header has room for {MOST_TLV_BYTES}");
        cx.error(at, "added_tlvs", "too-long", text);
    }
    if version == ProxyVersion::V1 {
        at.ignore("added_tlvs", "a header of version 1 has no TLVs");
    }
    ProxyHeader { version, tlvs }
}

fn tlv(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Tlv> {
    let kind = u8::try_from(at.u32("type")).ok()?;
    if at.has("format_string") {
        cx.refuse(at, "format_string", "a TLV that differs from connection to connection");
        return None;
    }
    Some(Tlv { kind, value: at.bytes("value").to_vec() })
}
