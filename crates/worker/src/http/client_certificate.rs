//! `x-forwarded-client-cert`: what upstreams are told of the certificate that a client showed.
//!
//! The form is Envoy's: elements with commas between them, each `By=…;Hash=…;Subject="…"`, or a JSON list of objects. A
//! value that would end its element or begin another is put into quotes, which Envoy does not do: otherwise whoever has a
//! certificate could add to what is said of it.

use postrider_filter_api::cel::Facts;
use postrider_filter_api::{Forwarded, StreamInfo, TlsSession};
use postrider_http::{Fields, HeaderId, RequestHead};
use postrider_model::{CertificatePart, ClientCertificate, ForwardedParts, IdentityPolicy};
use postrider_telemetry::json;

const NAME: HeaderId = HeaderId::XForwardedClientCert;

/// Treats the field as the configuration says for this request. `info` tells of the client and its connection; `scratch` is
/// overwritten.
#[cold]
#[inline(never)]
pub fn tell_certificate(head: &mut RequestHead, identity: &IdentityPolicy, info: &StreamInfo, scratch: &mut Vec<u8>) {
    let session = info.tls.as_deref();
    let chosen = identity.client_certificate_by_request.as_ref().and_then(|tree| {
        let server_name = session.and_then(|tls| tls.server_name.as_deref());
        tree.find(&Facts {
            request: Some(head),
            response: None,
            trailers: None,
            info,
            route: None,
            weighted: None,
            server_name,
        })
        .copied()
    });
    match chosen {
        // The next request may want other parts.
        Some(rule) => forward(&mut head.fields, &rule, session, Memory::None, scratch),
        None => forward(&mut head.fields, &identity.client_certificate, session, Memory::OfSession, scratch),
    }
}

/// Whether there is anything to do about it.
pub(super) fn concerns(head: &RequestHead, identity: &IdentityPolicy) -> bool {
    head.fields.has(NAME)
        || identity.client_certificate != ClientCertificate::Remove
        || identity.client_certificate_by_request.is_some()
}

/// Where what is said of a client stands until its next request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    None,
    OfSession,
}

/// Treats the field by a rule. `session` is that of the client's connection; `scratch` is overwritten.
fn forward(
    fields: &mut Fields,
    rule: &ClientCertificate,
    session: Option<&TlsSession>,
    memory: Memory,
    scratch: &mut Vec<u8>,
) {
    let shown = session.filter(|session| session.peer.is_some());
    let (session, parts, keep) = match (rule, shown) {
        (ClientCertificate::AlwaysForward, _) | (ClientCertificate::Forward, Some(_)) => return,
        (ClientCertificate::Append(parts), Some(session)) => (session, parts, true),
        (ClientCertificate::Replace(parts), Some(session)) => (session, parts, false),
        // Nobody who showed nothing is believed.
        (ClientCertificate::Remove, _) | (_, None) => {
            fields.remove(NAME);
            return;
        }
    };
    let made;
    let own = match memory {
        Memory::OfSession => session.forwarded.get_or_init(|| element(session, *parts)),
        Memory::None => {
            made = element(session, *parts);
            &made
        }
    };
    scratch.clear();
    if keep {
        for (index, value) in fields.get_all(NAME).enumerate() {
            if index > 0 {
                scratch.push(b',');
            }
            scratch.extend_from_slice(value);
        }
    }
    add(scratch, own, parts.json);
    // A certificate may hold what no field can. Then nothing is said: half of it would be a lie.
    if fields.set(NAME, scratch).is_err() {
        fields.remove(NAME);
    }
}

/// Adds an element to what is there already, in the form that has.
fn add(value: &mut Vec<u8>, own: &Forwarded, json: bool) {
    if value.is_empty() {
        match json {
            true => value.extend([b"[", own.json.as_slice(), b"]"].concat()),
            false => value.extend_from_slice(&own.text),
        }
    } else if value.first() == Some(&b'[') && value.last() == Some(&b']') {
        value.pop();
        if !value.trim_ascii_end().ends_with(b"[") {
            value.push(b',');
        }
        value.extend_from_slice(&own.json);
        value.push(b']');
    } else {
        value.push(b',');
        value.extend_from_slice(&own.text);
    }
}

/// What is said of one client, in both forms. In Envoy's order.
fn element(session: &TlsSession, parts: ForwardedParts) -> Forwarded {
    let mut element = Element::default();
    let uris = session.of_us(CertificatePart::UriNames);
    element.each("By", &uris);
    element.list("by", &uris);
    let hash = session.of_peer(CertificatePart::Sha256);
    element.each("Hash", &hash);
    element.single("hash", &hash);
    if parts.certificate {
        element.quoted("Cert", &session.of_peer(CertificatePart::PemUrlEncoded));
        element.single("cert", &session.of_peer(CertificatePart::Pem));
    }
    if parts.chain {
        element.quoted("Chain", &session.of_peer(CertificatePart::ChainPemUrlEncoded));
        element.list("chain", &session.of_peer(CertificatePart::ChainPem));
    }
    if parts.subject {
        let subject = session.of_peer(CertificatePart::Subject);
        // Also an empty one is said.
        element.quoted("Subject", if subject.is_empty() { &NOTHING } else { &subject });
        element.single("subject", &subject);
    }
    if parts.uri {
        let uris = session.of_peer(CertificatePart::UriNames);
        element.each("URI", if uris.is_empty() { &NOTHING } else { &uris });
        element.list("uri", &uris);
    }
    if parts.dns {
        let names = session.of_peer(CertificatePart::DnsNames);
        element.each("DNS", &names);
        element.list("dns", &names);
    }
    if parts.issuer {
        let issuer = session.of_peer(CertificatePart::Issuer);
        element.quoted("Issuer", &issuer);
        element.single("issuer", &issuer);
    }
    element.finish()
}

static NOTHING: [String; 1] = [String::new()];

#[derive(Default)]
struct Element(Forwarded);

impl Element {
    /// `Key=value` for each of them.
    fn each(&mut self, key: &str, values: &[String]) {
        for value in values {
            self.key(key);
            match value.contains([',', ';', '"']) {
                true => self.text(&format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))),
                false => self.text(value),
            }
        }
    }

    /// `Key="value"`, of text that has no quotes of its own or has them escaped.
    fn quoted(&mut self, key: &str, values: &[String]) {
        for value in values {
            self.key(key);
            self.text("\"");
            self.text(value);
            self.text("\"");
        }
    }

    fn key(&mut self, key: &str) {
        if !self.0.text.is_empty() {
            self.text(";");
        }
        self.text(key);
        self.text("=");
    }

    fn text(&mut self, text: &str) {
        self.0.text.extend_from_slice(text.as_bytes());
    }

    fn single(&mut self, key: &str, values: &[String]) {
        if let Some(value) = values.first() {
            self.json_key(key);
            json::write_string(value.as_bytes(), &mut self.0.json);
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        if values.is_empty() {
            return;
        }
        self.json_key(key);
        self.0.json.push(b'[');
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.0.json.push(b',');
            }
            json::write_string(value.as_bytes(), &mut self.0.json);
        }
        self.0.json.push(b']');
    }

    fn json_key(&mut self, key: &str) {
        self.0.json.push(if self.0.json.is_empty() { b'{' } else { b',' });
        json::write_string(key.as_bytes(), &mut self.0.json);
        self.0.json.push(b':');
    }

    fn finish(mut self) -> Forwarded {
        if self.0.json.is_empty() {
            self.0.json.push(b'{');
        }
        self.0.json.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use postrider_filter_api::Certificates;

    use super::*;

    /// Shows the same for each part.
    #[derive(Debug)]
    struct Shows(Vec<String>);

    impl Certificates for Shows {
        fn values(&self, _: CertificatePart) -> Vec<String> {
            self.0.clone()
        }

        fn validity(&self) -> Option<(SystemTime, SystemTime)> {
            None
        }

        fn is_verified(&self) -> bool {
            true
        }
    }

    fn session(values: &[&str]) -> TlsSession {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        TlsSession { peer: Some(Box::new(Shows(values))), ..TlsSession::default() }
    }

    fn forwarded(sent: &[&str], rule: ClientCertificate, session: Option<&TlsSession>) -> Option<String> {
        let mut fields = Fields::new();
        for value in sent {
            fields.append(NAME, value.as_bytes()).unwrap();
        }
        forward(&mut fields, &rule, session, Memory::OfSession, &mut Vec::new());
        assert!(fields.get_all(NAME).count() <= 1 || rule == ClientCertificate::AlwaysForward);
        fields.get(NAME).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn who_showed_nothing_is_not_believed() {
        let parts = ForwardedParts::default();
        let (nobody, shown) = (TlsSession::default(), session(&["a"]));
        let rules = [
            ClientCertificate::Remove,
            ClientCertificate::Forward,
            ClientCertificate::Append(parts),
            ClientCertificate::Replace(parts),
        ];
        for rule in rules {
            assert_eq!(forwarded(&["Hash=b", "Hash=c"], rule, None), None, "{rule:?}");
            assert_eq!(forwarded(&["Hash=b"], rule, Some(&nobody)), None, "{rule:?}");
        }
        assert_eq!(forwarded(&["Hash=b", "Hash=c"], rules[0], Some(&shown)), None);
        assert_eq!(forwarded(&["Hash=b"], rules[1], Some(&shown)).as_deref(), Some("Hash=b"));
        assert_eq!(forwarded(&["Hash=b", "x"], rules[2], Some(&shown)).as_deref(), Some("Hash=b,x,Hash=a"));
        assert_eq!(forwarded(&["Hash=b", "x"], rules[3], Some(&shown)).as_deref(), Some("Hash=a"));
        assert_eq!(forwarded(&[], rules[2], Some(&shown)).as_deref(), Some("Hash=a"));
        let always = ClientCertificate::AlwaysForward;
        assert_eq!(forwarded(&["Hash=b", "Hash=c"], always, None).as_deref(), Some("Hash=b"));
    }

    #[test]
    fn an_element_keeps_the_form_of_what_is_there() {
        for json in [false, true] {
            let rule = ClientCertificate::Append(ForwardedParts { json, ..ForwardedParts::default() });
            let after = |sent: &str| forwarded(&[sent], rule, Some(&session(&["a"]))).unwrap();
            assert_eq!(after("Hash=b"), "Hash=b,Hash=a");
            assert_eq!(after("[{\"hash\":\"b\"}]"), "[{\"hash\":\"b\"},{\"hash\":\"a\"}]");
            assert_eq!(after("[]"), "[{\"hash\":\"a\"}]");
            assert_eq!(after("[{"), "[{,Hash=a");
        }
        let rule = ClientCertificate::Replace(ForwardedParts { json: true, ..ForwardedParts::default() });
        let replaced = forwarded(&["Hash=b"], rule, Some(&session(&["a"])));
        assert_eq!(replaced.as_deref(), Some("[{\"hash\":\"a\"}]"));
    }

    #[test]
    fn a_certificate_cannot_add_to_what_is_said_of_it() {
        let parts = ForwardedParts { uri: true, dns: true, ..ForwardedParts::default() };
        let value = |name: &str| forwarded(&[], ClientCertificate::Replace(parts), Some(&session(&[name])));
        assert_eq!(value("a?b=c").as_deref(), Some("Hash=a?b=c;URI=a?b=c;DNS=a?b=c"));
        let hostile = value("a,By=b;\"c\\").unwrap();
        assert!(hostile.ends_with("URI=\"a,By=b;\\\"c\\\\\";DNS=\"a,By=b;\\\"c\\\\\""), "{hostile}");
        assert_eq!(value("a\r\nx: y"), None);
    }
}
