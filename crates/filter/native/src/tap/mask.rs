//! Secrets in traces: their values are not shown unless the configuration says so.

use std::borrow::Cow;

use postrider_http::Fields;

use crate::wire::sanitized;

/// Stands in the place of a secret.
pub(super) const MASKED: &str = "[masked]";

/// A name with one of these in it is that of a secret. `_` counts as `-`.
const SECRET_PARTS: [&str; 11] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "passwd",
    "api-key",
    "apikey",
    "credential",
    "session",
    "jwt",
];

/// Parameters of signed URLs, and of others that lead to what they are about.
const SECRET_PARAMETERS: [&str; 4] = ["sig", "signature", "x-amz-signature", "x-goog-signature"];

/// Headers that hold URLs.
const URLS: [&str; 5] = [":path", "x-envoy-original-path", "referer", "location", "content-location"];

/// Reveals all.
const EVERYTHING: &str = "*";

/// Which names are those of secrets. All in lower case.
#[derive(Debug, Default)]
pub(super) struct Mask {
    pub(super) masked: Vec<String>,
    pub(super) revealed: Vec<String>,
}

impl Mask {
    /// The value of a header or trailer as a trace shows it.
    pub(super) fn shown(&self, name: &str, value: &[u8]) -> String {
        if self.hides(name, &[]) {
            return MASKED.to_owned();
        }
        let text = sanitized(value);
        if URLS.contains(&name) { self.url(text) } else { text }
    }

    fn hides(&self, name: &str, more: &[&str]) -> bool {
        if self.masked.iter().any(|masked| masked == name) {
            return true;
        }
        if self.revealed.iter().any(|revealed| revealed == name || revealed == EVERYTHING) {
            return false;
        }
        let plain = if name.contains('_') { Cow::Owned(name.replace('_', "-")) } else { Cow::Borrowed(name) };
        SECRET_PARTS.iter().any(|part| plain.contains(part)) || more.contains(&&*plain)
    }

    /// The URL without the values of secret parameters. They stand behind `#`, too, where tokens are handed over to scripts.
    /// What else a secret value holds is part of it up to the next `&`.
    fn url(&self, text: String) -> String {
        let Some(start) = text.find(['?', '#']) else { return text };
        let (before, rest) = text.split_at(start);
        let mut shown = before.to_owned();
        let mut hiding = false;
        for part in rest.split_inclusive(['?', '#', '&', ';']) {
            if !hiding {
                match part.split_once('=') {
                    Some((key, _)) if self.hides(&plain(key), &SECRET_PARAMETERS) => {
                        shown.push_str(key);
                        shown.push('=');
                        shown.push_str(MASKED);
                        hiding = true;
                    }
                    _ => shown.push_str(part),
                }
            }
            if hiding && part.ends_with('&') {
                shown.push('&');
                hiding = false;
            }
        }
        shown
    }

    /// All of these, in order.
    pub(super) fn all(&self, fields: &Fields) -> Vec<(String, String)> {
        let shown = fields.iter().map(|field| {
            let name = String::from_utf8_lossy(field.name).into_owned();
            let value = self.shown(&name, field.value);
            (name, value)
        });
        shown.collect()
    }
}

/// The name of a parameter in lower case, without escapes.
fn plain(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escaped = behind.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_by_their_names() {
        let mask = Mask::default();
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "set-cookie",
            "x-api-key",
            "x_api_key",
            "x-auth-token",
            "x-goog-iap-jwt-assertion",
        ] {
            assert_eq!(mask.shown(name, b"s"), MASKED, "{name}");
        }
        for name in ["accept", "content-type", "x-request-id", "www-authenticate", "sec-websocket-key", "sig"] {
            assert_eq!(mask.shown(name, b"s"), "s", "{name}");
        }
        let own = Mask { masked: vec!["x-mine".into()], revealed: vec!["cookie".into()] };
        assert_eq!((own.shown("x-mine", b"s"), own.shown("cookie", b"s")), (MASKED.to_owned(), "s".to_owned()));
        assert_eq!(own.shown("set-cookie", b"s"), MASKED);
        let open = Mask { masked: vec!["x-mine".into()], revealed: vec!["*".into()] };
        assert_eq!(
            (open.shown("authorization", b"s"), open.shown("x-mine", b"s")),
            ("s".to_owned(), MASKED.to_owned())
        );
    }

    #[test]
    fn secret_parameters_of_urls_are_masked() {
        let mask = Mask::default();
        let shown = |text: &'static str| mask.shown(":path", text.as_bytes());
        assert_eq!(shown("/a?b=1&Access_Token=x&c&sig=y#f"), "/a?b=1&Access_Token=[masked]&c&sig=[masked]");
        assert_eq!(shown("/token=1?b"), "/token=1?b");
        assert_eq!(shown("/a?x;token=y;z?#&b=1"), "/a?x;token=[masked]&b=1");
        assert_eq!(shown("/a?%74oken=y&access%5ftoken=z&%=1&%4"), "/a?%74oken=[masked]&access%5ftoken=[masked]&%=1&%4");
        assert_eq!(shown("/a?&&==&b?"), "/a?&&==&b?");
        assert_eq!(mask.shown("x-text", b"/a?token=x"), "/a?token=x");
    }

    #[test]
    fn tokens_that_are_handed_over_behind_the_hash_of_a_location_are_masked() {
        let mask = Mask::default();
        let shown = |text: &'static str| mask.shown("location", text.as_bytes());
        assert_eq!(
            shown("https://a.test/cb#access_token=x&state=1&id_token=y"),
            "https://a.test/cb#access_token=[masked]&state=1&id_token=[masked]"
        );
        assert_eq!(shown("/cb?state=1#token=x"), "/cb?state=1#token=[masked]");
        assert_eq!(shown("/a#part"), "/a#part");
    }
}
