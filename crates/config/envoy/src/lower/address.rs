//! Addresses, keep-alive and socket options (`envoy.config.core.v3.Address` and its neighbours).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use postrider_model::{Address, IpVersion, NumberedOption, OptionMoment, TcpKeepalive};

use super::context::Lowering;
use crate::reader::Reader;

/// Where an address message points, before anybody asks whether it can be bound or must be resolved.
pub(super) enum Place {
    Literal(Address),
    Name { host: String, port: u16 },
}

/// An address to listen on or to connect to without resolving a name.
pub(super) fn bound(cx: &mut Lowering<'_>, address: &Reader<'_>) -> Option<Address> {
    match place(cx, address)? {
        Place::Literal(address) => Some(address),
        Place::Name { host, .. } => {
            if let Some(socket) = address.message("socket_address") {
                cx.error(&socket, "address", "invalid-address", format!("`{host}` is no IP address"));
            }
            None
        }
    }
}

/// Any address of a stream; `None` after an error.
pub(super) fn place(cx: &mut Lowering<'_>, address: &Reader<'_>) -> Option<Place> {
    if let Some(socket) = address.message("socket_address")
        && socket.enum_name("protocol") == "UDP"
    {
        socket.read_whole();
        cx.refuse_value(&socket, "protocol", "UDP");
        return None;
    }
    unresolved(cx, address)
}

/// The same whatever the protocol.
pub(super) fn unresolved(cx: &mut Lowering<'_>, address: &Reader<'_>) -> Option<Place> {
    if address.has("envoy_internal_address") {
        cx.refuse(address, "envoy_internal_address", "internal listeners and their addresses");
        return None;
    }
    if let Some(pipe) = address.message("pipe") {
        let mode = pipe.u32("mode");
        let mode = (mode != 0).then_some(mode);
        if mode.is_some() && pipe.str("path").starts_with('@') {
            cx.error(&pipe, "mode", "conflict", "a socket in the abstract namespace has no file and so no mode");
        }
        return Some(Place::Literal(Address::Unix { path: pipe.str("path").into(), mode }));
    }
    let Some(socket) = address.message("socket_address") else {
        cx.missing(address, "the address is empty", "`socket_address` or `pipe`");
        return None;
    };
    let text = socket.str("address");
    let port = socket.u32("port_value");
    if socket.has("named_port") {
        cx.refuse(&socket, "named_port", "a port by name");
        return None;
    }
    let port = u16::try_from(port).ok()?;
    match text.parse::<IpAddr>() {
        Ok(ip) => {
            if ip.is_ipv4() {
                socket.ignore("ipv4_compat", "it is about IPv6 addresses only");
            }
            Some(Place::Literal(Address::Tcp(SocketAddr::new(ip, port))))
        }
        Err(_) => Some(Place::Name { host: text.to_owned(), port }),
    }
}

/// `envoy.config.core.v3.TcpKeepalive`: an empty message turns probes on with the system's values, a 0 anywhere turns
/// them off.
pub(super) fn keepalive(at: &Reader<'_>) -> Option<TcpKeepalive> {
    let [probes, time, interval] =
        ["keepalive_probes", "keepalive_time", "keepalive_interval"].map(|field| at.u32_wrapper(field));
    let seconds = |n: u32| Duration::from_secs(n.into());
    let is_on = [probes, time, interval].iter().all(|value| *value != Some(0));
    is_on.then(|| TcpKeepalive { probes, time: time.map(seconds), interval: interval.map(seconds) })
}

/// Numeric socket options: those that have a name in the model, which `keepalive` gets if it is there, and the others.
///
/// The numbers are Linux's: SOL_SOCKET 1 (SO_REUSEADDR 2, SO_KEEPALIVE 9, SO_REUSEPORT 15) and IPPROTO_TCP 6
/// (TCP_NODELAY 1, TCP_KEEPIDLE 4, TCP_KEEPINTVL 5, TCP_KEEPCNT 6).
pub(super) fn socket_options(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    mut keepalive: Option<&mut Option<TcpKeepalive>>,
) -> Vec<NumberedOption> {
    let mut others = Vec::new();
    for option in at.list("socket_options") {
        option.ignore("description", "free text");
        let (level, name, value) = (option.i64("level"), option.i64("name"), option.i64("int_value"));
        option.whole("type");
        // No socket of ours is for datagrams.
        if option.message("type").is_some_and(|kind| kind.has("datagram")) {
            for field in ["type", "level", "name", "int_value", "buf_value", "state", "ip_version"] {
                option.ignore(field, "it is for datagram sockets");
            }
            continue;
        }
        let ip_version = ip_version(&option);
        let when = match option.enum_name("state").as_str() {
            "STATE_BOUND" => OptionMoment::AfterBind,
            "STATE_LISTENING" => OptionMoment::WhenListening,
            _ => OptionMoment::BeforeBind,
        };
        if option.oneof("value") == Some("buf_value") {
            others.extend(numbered(cx, &option, option.bytes("buf_value").to_vec(), when, ip_version));
            continue;
        }
        // What has a name in the model is for sockets of either version.
        let number = u32::try_from(value).ok().filter(|_| ip_version.is_none());
        match (level, name, number, &mut keepalive) {
            (1, 2 | 15, Some(1), _) | (6, 1, Some(1), _) => {
                option.ignore("int_value", "always set");
            }
            (1, 9, Some(1), Some(keepalive)) => {
                keepalive.get_or_insert_default();
            }
            (6, 4, Some(seconds), Some(keepalive)) => {
                keepalive.get_or_insert_default().time = Some(Duration::from_secs(seconds.into()));
            }
            (6, 5, Some(seconds), Some(keepalive)) => {
                keepalive.get_or_insert_default().interval = Some(Duration::from_secs(seconds.into()));
            }
            (6, 6, Some(probes), Some(keepalive)) => keepalive.get_or_insert_default().probes = Some(probes),
            _ => match i32::try_from(value) {
                Ok(value) => others.extend(numbered(cx, &option, value.to_ne_bytes().to_vec(), when, ip_version)),
                Err(_) => cx.error(&option, "int_value", "invalid-value", format!("{value} does not fit an int")),
            },
        }
    }
    others
}

fn ip_version(option: &Reader<'_>) -> Option<IpVersion> {
    match option.enum_name("ip_version").as_str() {
        "SOCKET_IP_VERSION_IPV4" => Some(IpVersion::V4),
        "SOCKET_IP_VERSION_IPV6" => Some(IpVersion::V6),
        _ => None,
    }
}

fn numbered(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    value: Vec<u8>,
    when: OptionMoment,
    ip_version: Option<IpVersion>,
) -> Option<NumberedOption> {
    let number = |cx: &mut Lowering<'_>, field: &str| {
        let number = i32::try_from(at.i64(field));
        if number.is_err() {
            cx.error(at, field, "invalid-value", format!("{} does not fit an int", at.i64(field)));
        }
        number.ok()
    };
    let (level, name) = (number(cx, "level"), number(cx, "name"));
    Some(NumberedOption { level: level?, name: name?, value, when, ip_version })
}
