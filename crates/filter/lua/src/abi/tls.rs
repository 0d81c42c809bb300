//! What scripts are told of the client's TLS session and of the certificates in it.

use std::ffi::{c_double, c_int};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_filter_api::TlsSession;
use postrider_model::CertificatePart::{
    ChainPemUrlEncoded, CommonNames, DnsNames, Extensions, Issuer, Organizations, PemUrlEncoded, Serial, Sha256,
    Subject, UriNames,
};
use postrider_model::{CertificatePart, ShownBy};

use super::text::put;
use super::turn::with_stream;
use super::{NONE, NOT_HERE, OK, Text};

/// Parts of certificates, by the numbers that scripts have for them.
const PARTS: [(ShownBy, CertificatePart); 14] = [
    (ShownBy::Peer, UriNames),
    (ShownBy::Us, UriNames),
    (ShownBy::Peer, DnsNames),
    (ShownBy::Us, DnsNames),
    (ShownBy::Peer, Extensions),
    (ShownBy::Us, Extensions),
    (ShownBy::Peer, Sha256),
    (ShownBy::Peer, Serial),
    (ShownBy::Peer, Issuer),
    (ShownBy::Peer, Subject),
    (ShownBy::Us, Subject),
    (ShownBy::Peer, PemUrlEncoded),
    (ShownBy::Peer, ChainPemUrlEncoded),
    (ShownBy::Peer, CommonNames),
];

/// The number of the organizations, which come behind the table.
const ORGANIZATIONS: usize = PARTS.len();

/// A value of a part of a certificate, counted from 0. There is none without TLS, without a certificate, and at the end.
pub(super) unsafe extern "C" fn part(what: c_int, index: c_int, out: *mut Text) -> c_int {
    with_stream(|stream, scratch, _| {
        let (Ok(what), Ok(index)) = (usize::try_from(what), usize::try_from(index)) else { return NOT_HERE };
        let (by, part) = match PARTS.get(what) {
            Some(known) => *known,
            None if what == ORGANIZATIONS => (ShownBy::Peer, Organizations),
            None => return NOT_HERE,
        };
        let Some(tls) = stream.info.tls.as_deref() else { return NONE };
        let values = match by {
            ShownBy::Peer => tls.of_peer(part),
            ShownBy::Us => tls.of_us(part),
        };
        let Some(value) = values.get(index) else { return NONE };
        scratch.bytes.clear();
        scratch.bytes.extend_from_slice(value.as_bytes());
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, &scratch.bytes) };
        OK
    })
}

/// What was agreed on: 0 version, 1 cipher suite, 2 its number, 3 the name that the client asked for.
pub(super) unsafe extern "C" fn agreed(what: c_int, out: *mut Text) -> c_int {
    with_stream(|stream, scratch, _| {
        let Some(tls) = stream.info.tls.as_deref() else { return NONE };
        scratch.bytes.clear();
        match what {
            0 => scratch.bytes.extend_from_slice(tls.version.as_bytes()),
            1 => scratch.bytes.extend_from_slice(tls.cipher.as_bytes()),
            2 => {
                // Writing to a vector cannot fail.
                let _ = write!(scratch.bytes, "0x{:04x}", tls.cipher_id);
            }
            3 => scratch.bytes.extend_from_slice(tls.server_name.as_deref().unwrap_or_default().as_bytes()),
            _ => return NOT_HERE,
        }
        // SAFETY: the SDK passes a place of its own.
        unsafe { put(out, &scratch.bytes) };
        OK
    })
}

/// Numbers and truths: 0 there is TLS, 1 the client showed a certificate, 2 it is good, 3 and 4 from when to when, in
/// seconds since the epoch; 0 for what is not so or not there.
pub(super) unsafe extern "C" fn number(what: c_int) -> c_double {
    let mut answer = 0.0;
    with_stream(|stream, _, _| {
        answer = stream.info.tls.as_deref().map_or(0.0, |tls| number_of(tls, what));
        OK
    });
    answer
}

fn number_of(tls: &TlsSession, what: c_int) -> f64 {
    let Some(peer) = tls.peer.as_ref() else { return f64::from(what == 0) };
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64().trunc());
    match what {
        0 | 1 => 1.0,
        2 => f64::from(peer.is_verified()),
        3 => peer.validity().map_or(0.0, |(from, _)| seconds(from)),
        4 => peer.validity().map_or(0.0, |(_, until)| seconds(until)),
        _ => 0.0,
    }
}
