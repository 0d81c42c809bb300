//! From which addresses connections to clusters are made (`envoy.config.core.v3.BindConfig`).

use std::net::IpAddr;

use postrider_config_core::Severity;
use postrider_model::{NumberedOption, OptionMoment, SourceAddress, TcpKeepalive};

use super::address;
use super::context::Lowering;
use crate::reader::Reader;

const SELECTOR: &str = "envoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelector";

/// Linux's `IPPROTO_IP` and `IP_FREEBIND`, which holds for IPv6 as well.
const FREEBIND: (i32, i32) = (0, 15);

/// What a `BindConfig` says.
#[derive(Clone)]
pub(super) struct Binding {
    pub sources: Vec<SourceAddress>,
    pub options: Vec<NumberedOption>,
    pub keepalive: Option<TcpKeepalive>,
}

pub(super) fn binding(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Binding {
    let mut keepalive = None;
    let mut options = address::socket_options(cx, at, Some(&mut keepalive));
    never_listening(cx, at, &options);
    if let Some(freely) = at.bool_wrapper("freebind") {
        let (level, name) = FREEBIND;
        let value = i32::from(freely).to_ne_bytes().to_vec();
        options.push(NumberedOption { level, name, value, when: OptionMoment::BeforeBind, ip_version: None });
    }
    let mut binding = Binding { sources: Vec::new(), options, keepalive };
    if let Some(selector) = at.message("local_address_selector") {
        selector.str("name");
        match selector.any("typed_config") {
            Some(any) if any.type_name == SELECTOR => {}
            Some(any) => cx.refuse_extension(&selector, "typed_config", &any),
            None => cx.missing(&selector, "the selector has no `typed_config`", "a `typed_config` with its `@type`"),
        }
    }
    let source = at.message("source_address");
    if let Some(source) = &source {
        binding.sources.extend(ip(cx, source).map(|ip| SourceAddress { ip, port: port(source), options: None }));
    }
    others(cx, at, source.is_some(), &mut binding);
    binding
}

/// Beside the first address there may be one of the other family.
fn others(cx: &mut Lowering<'_>, at: &Reader<'_>, has_first: bool, binding: &mut Binding) {
    const EXTRA: &str = "extra_source_addresses";
    const ADDITIONAL: &str = "additional_source_addresses";
    let (extra, additional) = (at.list(EXTRA), at.list(ADDITIONAL));
    let field = if extra.is_empty() { ADDITIONAL } else { EXTRA };
    let conflict = |cx: &mut Lowering<'_>, text: &str| {
        cx.push(at.diagnostic_at(field, Severity::Error, "conflict", text));
    };
    match (extra.len() + additional.len(), has_first) {
        (0, _) => return,
        (_, false) => conflict(cx, "there is no first address: `source_address` says it"),
        (1, true) => {}
        (_, true) if !extra.is_empty() && !additional.is_empty() => {
            conflict(cx, "further addresses stand in one of the two fields, not in both");
        }
        (_, true) => conflict(cx, "at most one further address is wanted, of the other family"),
    }
    for extra in &extra {
        // Its options take the place of those of all, even where it has none.
        let options = extra.message("socket_options").map(|own| {
            let options = address::socket_options(cx, &own, None);
            never_listening(cx, &own, &options);
            options
        });
        let Some(address) = extra.message("address") else { continue };
        binding.sources.extend(ip(cx, &address).map(|ip| SourceAddress { ip, port: port(&address), options }));
    }
    for address in &additional {
        binding.sources.extend(ip(cx, address).map(|ip| SourceAddress { ip, port: port(address), options: None }));
    }
    if let [one, other] = binding.sources.as_slice()
        && one.ip.is_ipv4() == other.ip.is_ipv4()
    {
        conflict(cx, "both addresses are of one family, so the second would never be used");
    }
}

fn never_listening(cx: &mut Lowering<'_>, at: &Reader<'_>, options: &[NumberedOption]) {
    if options.iter().any(|option| option.when == OptionMoment::WhenListening) {
        let text = "a socket that connects never listens: `STATE_LISTENING` never comes";
        cx.error(at, "socket_options", "conflict", text);
    }
}

/// The schema lets no other through.
fn port(at: &Reader<'_>) -> u16 {
    u16::try_from(at.u32("port_value")).unwrap_or_default()
}

fn ip(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<IpAddr> {
    at.ignore("ipv4_compat", "it is about listeners");
    let text = at.str("address");
    let ip = text.parse::<IpAddr>();
    if ip.is_err() {
        cx.error(at, "address", "invalid-address", format!("`{text}` is no IP address"));
    }
    ip.ok()
}
