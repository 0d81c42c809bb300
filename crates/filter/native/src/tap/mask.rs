//! Secrets in traces: their values are not shown unless the configuration says so.

use std::borrow::Cow;

use postrider_http::Fields;

use crate::wire::sanitized;

/// Stands in the place of a secret.
pub(super) const MASKED: &str = "[masked]";

/// A name with one of these in it is that of a secret. `_` counts as `-`.
const SECRET_PARTS: [&str; 10] =
    ["authorization", "cookie", "token", "secret", "password", "passwd", "api-key", "apikey", "credential", "session"];

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

    /// The URL without the values of secret parameters.
    fn url(&self, text: String) -> String {
        let Some((before, query)) = text.split_once('?') else { return text };
        let shown = |pair: &str| match pair.split_once('=') {
            Some((key, _)) if self.hides(&key.to_ascii_lowercase(), &SECRET_PARAMETERS) => format!("{key}={MASKED}"),
            _ => pair.to_owned(),
        };
        let pairs: Vec<String> = query.split('&').map(shown).collect();
        format!("{before}?{}", pairs.join("&"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_by_their_names() {
        let mask = Mask::default();
        for name in
            ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x_api_key", "x-auth-token"]
        {
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
        assert_eq!(mask.shown("x-text", b"/a?token=x"), "/a?token=x");
    }
}
