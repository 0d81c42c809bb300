//! What was agreed on a connection, by the names that OpenSSL gives it: logs and headers have always shown those.

use rustls::{CipherSuite, CommonState, NamedGroup, ProtocolVersion};

/// All of it is there after the handshake; before, what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionFacts<'a> {
    /// `TLSv1.3`
    pub version: Option<&'static str>,
    /// `TLS_AES_128_GCM_SHA256`, `ECDHE-RSA-AES128-GCM-SHA256`
    pub cipher: Option<&'static str>,
    /// `X25519MLKEM768`, `P-256`; none where a session was resumed without a key exchange.
    pub group: Option<&'static str>,
    pub alpn: Option<&'a [u8]>,
    pub resumed: bool,
}

impl ConnectionFacts<'_> {
    /// A client's or a server's connection of rustls dereferences to its state.
    pub fn of(connection: &CommonState) -> ConnectionFacts<'_> {
        ConnectionFacts {
            version: connection.protocol_version().map(version_name),
            cipher: connection.negotiated_cipher_suite().map(|it| cipher_name(it.suite())),
            group: connection.negotiated_key_exchange_group().map(|it| group_name(it.name())),
            alpn: connection.alpn_protocol(),
            resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        }
    }
}

/// As `SSL_get_version` names it.
pub fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        _ => "unknown",
    }
}

/// As `SSL_CIPHER_get_name` names it: TLS 1.3 by its IANA name, TLS 1.2 by OpenSSL's own.
pub fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => "unknown",
    }
}

/// As `SSL_get_group_name` names it.
pub fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        NamedGroup::secp256r1MLKEM768 => "SecP256r1MLKEM768",
        NamedGroup::X25519 => "X25519",
        NamedGroup::secp256r1 => "P-256",
        NamedGroup::secp384r1 => "P-384",
        NamedGroup::secp521r1 => "P-521",
        NamedGroup::MLKEM768 => "MLKEM768",
        NamedGroup::MLKEM1024 => "MLKEM1024",
        _ => "unknown",
    }
}
