//! What was agreed on for TLS: each name that it may have is a statistic of its own, shown once it was counted.

use crate::stats::{Block, Counter};

/// What a handshake agreed on, by the names that OpenSSL has for it. What has no name here has no counter.
#[derive(Debug, Clone, Copy)]
pub struct Agreed<'a> {
    pub version: Option<&'a str>,
    pub cipher: Option<&'a str>,
    pub curve: Option<&'a str>,
}

/// Counts a handshake with a client.
pub fn count_listener_agreed(block: &Block, agreed: Agreed<'_>) {
    use of_listeners::*;
    count(block, agreed, [&VERSIONS, &CIPHERS, &CURVES]);
}

/// Counts a handshake with an upstream.
pub fn count_cluster_agreed(block: &Block, agreed: Agreed<'_>) {
    use of_clusters::*;
    count(block, agreed, [&VERSIONS, &CIPHERS, &CURVES]);
}

type Named = (&'static str, Counter);

/// The tables of a set whose constants are in scope.
macro_rules! tables {
    () => {
        pub(super) const CIPHERS: [Named; 9] = [
            ("ECDHE-ECDSA-AES128-GCM-SHA256", CIPHER_ECDHE_ECDSA_AES128_GCM_SHA256),
            ("ECDHE-ECDSA-AES256-GCM-SHA384", CIPHER_ECDHE_ECDSA_AES256_GCM_SHA384),
            ("ECDHE-ECDSA-CHACHA20-POLY1305", CIPHER_ECDHE_ECDSA_CHACHA20_POLY1305),
            ("ECDHE-RSA-AES128-GCM-SHA256", CIPHER_ECDHE_RSA_AES128_GCM_SHA256),
            ("ECDHE-RSA-AES256-GCM-SHA384", CIPHER_ECDHE_RSA_AES256_GCM_SHA384),
            ("ECDHE-RSA-CHACHA20-POLY1305", CIPHER_ECDHE_RSA_CHACHA20_POLY1305),
            ("TLS_AES_128_GCM_SHA256", CIPHER_TLS_AES_128_GCM_SHA256),
            ("TLS_AES_256_GCM_SHA384", CIPHER_TLS_AES_256_GCM_SHA384),
            ("TLS_CHACHA20_POLY1305_SHA256", CIPHER_TLS_CHACHA20_POLY1305_SHA256),
        ];
        pub(super) const CURVES: [Named; 8] = [
            ("MLKEM1024", CURVE_MLKEM1024),
            ("MLKEM768", CURVE_MLKEM768),
            ("P-256", CURVE_P_256),
            ("P-384", CURVE_P_384),
            ("P-521", CURVE_P_521),
            ("SecP256r1MLKEM768", CURVE_SECP256R1MLKEM768),
            ("X25519", CURVE_X25519),
            ("X25519MLKEM768", CURVE_X25519MLKEM768),
        ];
        pub(super) const VERSIONS: [Named; 2] = [("TLSv1.2", VERSION_TLS1_2), ("TLSv1.3", VERSION_TLS1_3)];
    };
}

mod of_clusters {
    use super::super::cluster_ssl::*;
    use super::Named;

    tables!();
}

mod of_listeners {
    use super::super::listener_ssl::*;
    use super::Named;

    tables!();
}

fn count(block: &Block, agreed: Agreed<'_>, tables: [&[Named]; 3]) {
    for (what, table) in [agreed.version, agreed.cipher, agreed.curve].into_iter().zip(tables) {
        let named = what.and_then(|what| table.iter().find(|(name, _)| *name == what));
        if let Some((_, counter)) = named {
            block.inc(*counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{cluster_ssl, listener_ssl};
    use super::*;
    use crate::stats::Registry;

    #[test]
    fn what_was_agreed_on_is_counted_by_its_name() {
        let registry = Registry::new();
        let worker = registry.worker(0);
        let agreed = |curve| Agreed { version: Some("TLSv1.3"), cipher: Some("TLS_AES_256_GCM_SHA384"), curve };
        count_listener_agreed(&worker.block(&listener_ssl::SET, "l"), agreed(Some("X25519")));
        count_cluster_agreed(&worker.block(&cluster_ssl::SET, "c"), agreed(None));
        let query = crate::render::Query { used_only: true, ..Default::default() };
        let text = String::from_utf8(crate::render::text(registry.read(&[]), query).flatten().collect()).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "cluster.c.ssl.ciphers.TLS_AES_256_GCM_SHA384: 1",
                "cluster.c.ssl.versions.TLSv1.3: 1",
                "listener.l.ssl.ciphers.TLS_AES_256_GCM_SHA384: 1",
                "listener.l.ssl.curves.X25519: 1",
                "listener.l.ssl.versions.TLSv1.3: 1",
            ]
        );
    }
}
