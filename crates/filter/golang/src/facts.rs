//! What Go code may ask about a stream from any thread without waiting: copied whenever it is called.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_filter_api::{RouteFacts, StreamInfo, TlsSession};
use postrider_http::{RequestHead, Version};
use postrider_model::CertificatePart;

use crate::apart::{Put, Take};

/// Most connections whose certificates are remembered; then all are forgotten.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Facts {
    protocol: u64,
    status: u16,
    attempts: u32,
    downstream_local: Option<SocketAddr>,
    downstream_remote: Option<SocketAddr>,
    upstream_local: Option<SocketAddr>,
    upstream_remote: Text,
    details: Text,
    route: Text,
    chain: Text,
    cluster: Text,
    virtual_cluster: Text,
    tls: Option<Arc<Tls>>,
}

/// A text whose memory is used again.
#[derive(Debug, Default)]
struct Text {
    there: bool,
    text: String,
}

/// What a client's connection and its certificates say.
#[derive(Debug)]
struct Tls {
    integers: Vec<(i32, u64)>,
    texts: Vec<(i32, String)>,
}

impl Text {
    fn set(&mut self, text: Option<&str>) {
        self.there = text.is_some();
        self.text.clear();
        self.text.push_str(text.unwrap_or_default());
    }

    fn get(&self) -> Option<&str> {
        self.there.then_some(&*self.text)
    }
}

thread_local! {
    static CONNECTIONS: RefCell<HashMap<u64, Arc<Tls>>> = RefCell::default();
}

impl Facts {
    /// `cluster` is where the request goes as things are.
    pub(crate) fn take(
        &mut self,
        request: &RequestHead,
        info: &StreamInfo,
        route: Option<&RouteFacts>,
        cluster: Option<&str>,
    ) {
        self.protocol = match request.version() {
            Version::Http10 => 0,
            Version::Http11 => 1,
            Version::Http2 => 2,
        };
        self.status = info.status;
        self.attempts = info.upstream_attempts;
        self.downstream_local = info.downstream_local;
        self.downstream_remote = info.downstream_remote;
        self.upstream_local = info.upstream_local;
        self.upstream_remote.set(info.upstream_remote.as_deref());
        self.details.set(Some(&*info.details).filter(|details| !details.is_empty()));
        self.route.set(route.and_then(|route| route.name.as_deref()));
        self.chain.set(info.filter_chain.as_deref());
        self.cluster.set(info.upstream_cluster.as_deref().or(cluster));
        self.virtual_cluster.set(info.virtual_cluster.as_deref());
        if info.tls.is_some() || self.tls.is_some() {
            self.tls = info.tls.as_deref().map(|session| Tls::of(info.connection_id, session));
        }
    }

    pub(crate) fn put(&self, put: &mut Put) {
        put.number(self.protocol).number(self.status.into()).number(self.attempts.into());
        for address in [self.downstream_local, self.downstream_remote, self.upstream_local] {
            put.optional(address.map(|address| address.to_string()).as_ref().map(String::as_bytes));
        }
        for text in
            [&self.upstream_remote, &self.details, &self.route, &self.chain, &self.cluster, &self.virtual_cluster]
        {
            put.optional(text.get().map(str::as_bytes));
        }
        put.flag(self.tls.is_some());
        if let Some(tls) = &self.tls {
            put.number(tls.integers.len() as u64);
            for (id, value) in &tls.integers {
                put.number(*id as u64).number(*value);
            }
            put.number(tls.texts.len() as u64);
            for (id, text) in &tls.texts {
                put.number(*id as u64).bytes(text.as_bytes());
            }
        }
    }

    /// Becomes what was written; stays in part as it was where that is cut off.
    pub(crate) fn take_from(&mut self, from: &mut Take<'_>) -> Option<()> {
        self.protocol = from.number()?;
        self.status = u16::try_from(from.number()?).ok()?;
        self.attempts = u32::try_from(from.number()?).ok()?;
        for address in [&mut self.downstream_local, &mut self.downstream_remote, &mut self.upstream_local] {
            *address = from.optional()?.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        }
        let texts = [
            &mut self.upstream_remote,
            &mut self.details,
            &mut self.route,
            &mut self.chain,
            &mut self.cluster,
            &mut self.virtual_cluster,
        ];
        for text in texts {
            text.set(from.optional()?.and_then(|text| std::str::from_utf8(text).ok()));
        }
        self.tls = None;
        if from.flag()? {
            let id = |from: &mut Take<'_>| i32::try_from(from.number()?).ok();
            let integers = (0..from.number()?).map(|_| Some((id(from)?, from.number()?))).collect::<Option<_>>()?;
            let texts = (0..from.number()?).map(|_| Some((id(from)?, from.text()?))).collect::<Option<_>>()?;
            self.tls = Some(Arc::new(Tls { integers, texts }));
        }
        Some(())
    }

    /// By the SDK's numbers; `None` where there is nothing to tell.
    pub(crate) fn integer(&self, id: i32) -> Option<u64> {
        match id {
            3 => Some(self.protocol),
            4 => (self.status != 0).then_some(self.status.into()),
            6 => (self.attempts != 0).then_some(self.attempts.into()),
            100 => Some(u64::from(self.tls.is_some())),
            _ => self.tls.as_ref()?.integers.iter().find(|(known, _)| *known == id).map(|(_, value)| *value),
        }
    }

    /// The same of texts, appended to `out`.
    pub(crate) fn text(&self, id: i32, out: &mut Vec<u8>) -> Option<()> {
        let address = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        let made = match id {
            7 => Some(address(self.downstream_local).unwrap_or_default()),
            8 => Some(address(self.downstream_remote).unwrap_or_default()),
            9 => Some(address(self.upstream_local)?),
            _ => None,
        };
        let text = match id {
            1 => &*self.route.text,
            2 => &*self.chain.text,
            5 => self.details.get()?,
            7..=9 => made.as_deref()?,
            10 => self.upstream_remote.get()?,
            11 => self.cluster.get()?,
            12 => self.virtual_cluster.get()?,
            _ => self.tls.as_ref()?.texts.iter().find(|(known, _)| *known == id).map(|(_, text)| &**text)?,
        };
        out.extend_from_slice(text.as_bytes());
        Some(())
    }
}

impl Tls {
    /// Certificates are taken apart once per connection.
    fn of(connection: u64, session: &TlsSession) -> Arc<Tls> {
        CONNECTIONS.with_borrow_mut(|connections| {
            if let Some(known) = connections.get(&connection) {
                return known.clone();
            }
            if connections.len() >= MAX_REMEMBERED {
                connections.clear();
            }
            let made = Arc::new(Tls::new(session));
            connections.insert(connection, made.clone());
            made
        })
    }

    fn new(session: &TlsSession) -> Tls {
        let mut integers = vec![
            (101, u64::from(session.peer.is_some())),
            (102, u64::from(session.peer.as_ref().is_some_and(|peer| peer.is_verified()))),
            (103, u64::from(session.cipher_id)),
        ];
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if let Some((from, to)) = session.peer.as_ref().and_then(|peer| peer.validity()) {
            integers.extend([(104, seconds(from)), (105, seconds(to))]);
        }
        use CertificatePart::*;
        let first = |values: Vec<String>| values.into_iter().next().unwrap_or_default();
        let peer = |part| first(session.of_peer(part));
        let texts = vec![
            (106, peer(Sha256)),
            (107, peer(Serial)),
            (108, peer(Subject)),
            (109, peer(Issuer)),
            (110, first(session.of_us(Subject))),
            (111, session.version.to_owned()),
            (112, session.cipher.to_owned()),
            (114, peer(PemUrlEncoded)),
            (115, peer(ChainPemUrlEncoded)),
            (116, session.of_peer(UriNames).join("\0")),
            (117, session.of_us(UriNames).join("\0")),
            (118, session.of_peer(DnsNames).join("\0")),
            (119, session.of_us(DnsNames).join("\0")),
        ];
        Tls { integers, texts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_taken_as_they_were_put() {
        let mut facts = Facts { protocol: 2, status: 404, attempts: 3, ..Facts::default() };
        facts.downstream_remote = Some("127.0.0.1:7".parse().unwrap());
        facts.details.set(Some("via_upstream"));
        facts.tls = Some(Arc::new(Tls { integers: vec![(101, 1)], texts: vec![(111, "TLSv1.3".into())] }));
        let mut put = Put::default();
        facts.put(&mut put);
        let mut taken = Facts::default();
        assert_eq!(taken.take_from(&mut Take(&put.0)), Some(()));
        assert_eq!(format!("{taken:?}"), format!("{facts:?}"));
        for cut in 0..put.0.len() {
            assert_eq!(Facts::default().take_from(&mut Take(&put.0[..cut])), None, "{cut}");
        }
    }
}
