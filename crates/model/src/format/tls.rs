//! The commands about TLS sessions and the certificates that were shown in them, by Envoy's names.

use super::{Command, TimeFormat, TlsPart};
use crate::CertificatePart::{
    ChainSerials, ChainSha1, ChainSha256, DnsNames, EmailNames, IpNames, Issuer, IssuerSerial, IssuerSha256,
    OtherNames, PemUrlEncoded, Serial, Sha1, Sha256, Subject, UriNames,
};
use crate::ShownBy::{Peer, Us};
use crate::Side::{Downstream, Upstream};
use crate::{CertificatePart, ShownBy, Side};

const SESSION: &[(&str, Side, TlsPart)] = &[
    ("REQUESTED_SERVER_NAME", Downstream, TlsPart::ServerName),
    ("DOWNSTREAM_TLS_VERSION", Downstream, TlsPart::Version),
    ("DOWNSTREAM_TLS_CIPHER", Downstream, TlsPart::Cipher),
    ("DOWNSTREAM_TLS_GROUP", Downstream, TlsPart::Group),
    ("TLS_JA3_FINGERPRINT", Downstream, TlsPart::Ja3),
    ("TLS_JA4_FINGERPRINT", Downstream, TlsPart::Ja4),
    ("UPSTREAM_SERVER_NAME", Upstream, TlsPart::ServerName),
    ("UPSTREAM_TLS_VERSION", Upstream, TlsPart::Version),
    ("UPSTREAM_TLS_CIPHER", Upstream, TlsPart::Cipher),
    ("UPSTREAM_TLS_GROUP", Upstream, TlsPart::Group),
];

const CERTIFICATES: &[(&str, Side, ShownBy, CertificatePart)] = &[
    ("DOWNSTREAM_PEER_SUBJECT", Downstream, Peer, Subject),
    ("DOWNSTREAM_PEER_ISSUER", Downstream, Peer, Issuer),
    ("DOWNSTREAM_PEER_SERIAL", Downstream, Peer, Serial),
    ("DOWNSTREAM_PEER_FINGERPRINT_1", Downstream, Peer, Sha1),
    ("DOWNSTREAM_PEER_FINGERPRINT_256", Downstream, Peer, Sha256),
    ("DOWNSTREAM_PEER_CERT", Downstream, Peer, PemUrlEncoded),
    ("DOWNSTREAM_PEER_DNS_SAN", Downstream, Peer, DnsNames),
    ("DOWNSTREAM_PEER_URI_SAN", Downstream, Peer, UriNames),
    ("DOWNSTREAM_PEER_EMAIL_SAN", Downstream, Peer, EmailNames),
    ("DOWNSTREAM_PEER_IP_SAN", Downstream, Peer, IpNames),
    ("DOWNSTREAM_PEER_OTHERNAME_SAN", Downstream, Peer, OtherNames),
    ("DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1", Downstream, Peer, ChainSha1),
    ("DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256", Downstream, Peer, ChainSha256),
    ("DOWNSTREAM_PEER_CHAIN_SERIALS", Downstream, Peer, ChainSerials),
    ("DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256", Downstream, Peer, IssuerSha256),
    ("DOWNSTREAM_PEER_ISSUER_SERIAL", Downstream, Peer, IssuerSerial),
    ("DOWNSTREAM_LOCAL_SUBJECT", Downstream, Us, Subject),
    ("DOWNSTREAM_LOCAL_DNS_SAN", Downstream, Us, DnsNames),
    ("DOWNSTREAM_LOCAL_URI_SAN", Downstream, Us, UriNames),
    ("DOWNSTREAM_LOCAL_EMAIL_SAN", Downstream, Us, EmailNames),
    ("DOWNSTREAM_LOCAL_IP_SAN", Downstream, Us, IpNames),
    ("DOWNSTREAM_LOCAL_OTHERNAME_SAN", Downstream, Us, OtherNames),
    ("UPSTREAM_PEER_SUBJECT", Upstream, Peer, Subject),
    ("UPSTREAM_PEER_ISSUER", Upstream, Peer, Issuer),
    ("UPSTREAM_PEER_CERT", Upstream, Peer, PemUrlEncoded),
    ("UPSTREAM_PEER_DNS_SAN", Upstream, Peer, DnsNames),
    ("UPSTREAM_PEER_URI_SAN", Upstream, Peer, UriNames),
    ("UPSTREAM_PEER_IP_SAN", Upstream, Peer, IpNames),
    ("UPSTREAM_LOCAL_DNS_SAN", Upstream, Us, DnsNames),
    ("UPSTREAM_LOCAL_URI_SAN", Upstream, Us, UriNames),
    ("UPSTREAM_LOCAL_IP_SAN", Upstream, Us, IpNames),
];

/// Makes a command of how its time is written.
type TimeCommand = fn(TimeFormat) -> Command;

/// These may say how the time is written, as `START_TIME` may.
const TIMES: &[(&str, TimeCommand)] = &[
    ("DOWNSTREAM_PEER_CERT_V_START", |format| Command::PeerCertificateBegin(Downstream, format)),
    ("DOWNSTREAM_PEER_CERT_V_END", |format| Command::PeerCertificateEnd(Downstream, format)),
    ("UPSTREAM_PEER_CERT_V_START", |format| Command::PeerCertificateBegin(Upstream, format)),
    ("UPSTREAM_PEER_CERT_V_END", |format| Command::PeerCertificateEnd(Upstream, format)),
];

/// `None` for a name that is none of these.
pub(super) fn command(name: &str, time: impl FnOnce() -> TimeFormat) -> Option<Command> {
    if let Some((_, side, part)) = SESSION.iter().find(|(known, ..)| *known == name) {
        return Some(Command::Tls(*side, *part));
    }
    if let Some((_, side, by, part)) = CERTIFICATES.iter().find(|(known, ..)| *known == name) {
        return Some(Command::Certificate(*side, *by, *part));
    }
    TIMES.iter().find(|(known, _)| *known == name).map(|(_, command)| command(time()))
}

pub(super) fn is_time(name: &str) -> bool {
    TIMES.iter().any(|(known, _)| *known == name)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let sessions = SESSION.iter().map(|(name, ..)| *name);
    sessions.chain(CERTIFICATES.iter().map(|(name, ..)| *name)).chain(TIMES.iter().map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use crate::{CertificatePart, Command, Format, Piece, ShownBy, Side, TimeFormat};

    #[test]
    fn names_say_whose_and_what() {
        let command = |text: &str| match Format::parse(text).unwrap().pieces.remove(0) {
            Piece::Command { command, .. } => command,
            Piece::Text(text) => panic!("{text}"),
        };
        let part = CertificatePart::UriNames;
        assert_eq!(command("%UPSTREAM_LOCAL_URI_SAN%"), Command::Certificate(Side::Upstream, ShownBy::Us, part));
        let pattern = TimeFormat::Pattern("%Y/%m".to_owned());
        let begin = Command::PeerCertificateBegin(Side::Downstream, pattern);
        assert_eq!(command("%DOWNSTREAM_PEER_CERT_V_START(%Y/%m)%"), begin);
        assert!(Format::parse("%DOWNSTREAM_PEER_CERT_V_END(%n)%").unwrap_err().message.contains("%n"));
        assert!(Format::parse("%DOWNSTREAM_PEER_SUBJECT(x)%").is_err());
    }
}
