//! TLS sessions and certificates in formats.

use std::time::SystemTime;

use postrider_filter_api::{StreamInfo, TlsSession};
use postrider_model::{CertificatePart, ShownBy, Side, TlsPart};

fn session(side: Side, info: &StreamInfo) -> Option<&TlsSession> {
    match side {
        Side::Downstream => info.tls.as_deref(),
        Side::Upstream => info.upstream_tls.as_deref(),
    }
}

/// What was agreed on.
pub(super) fn part(side: Side, part: TlsPart, info: &StreamInfo) -> Option<&str> {
    let Some(tls) = session(side, info) else { return passed_on(side, part, info) };
    match part {
        TlsPart::Version => Some(tls.version),
        TlsPart::Cipher => Some(tls.cipher),
        TlsPart::Group => tls.group,
        TlsPart::ServerName => tls.server_name.as_deref(),
        TlsPart::Ja3 => tls.ja3.as_deref(),
        TlsPart::Ja4 => tls.ja4.as_deref(),
    }
}

/// What was seen of TLS that nobody agreed on here.
#[cold]
fn passed_on(side: Side, part: TlsPart, info: &StreamInfo) -> Option<&str> {
    let hello = info.hello.as_ref().filter(|_| side == Side::Downstream)?;
    match part {
        TlsPart::ServerName => hello.server_name.as_deref(),
        TlsPart::Ja3 => hello.ja3.as_deref(),
        TlsPart::Ja4 => hello.ja4.as_deref(),
        TlsPart::Version | TlsPart::Cipher | TlsPart::Group => None,
    }
}

/// Appends what a certificate says, several values with commas between them.
#[cold]
pub(super) fn certificate(
    (side, by): (Side, ShownBy),
    part: CertificatePart,
    info: &StreamInfo,
    out: &mut Vec<u8>,
) -> Option<()> {
    let tls = session(side, info)?;
    let values = match by {
        ShownBy::Peer => tls.of_peer(part),
        ShownBy::Us => tls.of_us(part),
    };
    let (first, more) = values.split_first()?;
    out.extend_from_slice(first.as_bytes());
    for value in more {
        out.push(b',');
        out.extend_from_slice(value.as_bytes());
    }
    Some(())
}

/// From when to when the peer's certificate is good.
#[cold]
pub(super) fn validity(side: Side, info: &StreamInfo) -> Option<(SystemTime, SystemTime)> {
    session(side, info)?.peer.as_ref()?.validity()
}
