//! What was agreed on for TLS: each name that it may have is a statistic of its own, shown once it was counted.

use crate::stats::Block;

/// What a handshake agreed on, by the names that OpenSSL has for it. What has no name here has no counter.
#[derive(Debug, Clone, Copy)]
pub struct Agreed<'a> {
    pub version: Option<&'a str>,
    pub cipher: Option<&'a str>,
    pub curve: Option<&'a str>,
}

/// Counts a handshake in a block of [`listener_ssl`](super::listener_ssl) or [`cluster_ssl`](super::cluster_ssl).
pub fn count_agreed(block: &Block, agreed: Agreed<'_>) {
    let named = [("ssl.versions.", agreed.version), ("ssl.ciphers.", agreed.cipher), ("ssl.curves.", agreed.curve)];
    for (folder, name) in named {
        if let Some(counter) = name.and_then(|name| block.counter_named(folder, name)) {
            block.inc(counter);
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
        count_agreed(&worker.block(&listener_ssl::SET, "l"), agreed(Some("X25519")));
        count_agreed(&worker.block(&cluster_ssl::SET, "c"), agreed(Some("brainpool")));
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
