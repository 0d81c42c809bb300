//! A request as the endpoints see it: path, decoded query, body.

use std::net::SocketAddr;

/// One request to the admin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    pub method: String,
    /// As received, without the query.
    pub path: String,
    /// Decoded, in order; a parameter without `=` has an empty value. Of a form in the body where the path has none.
    pub query: Vec<(String, String)>,
    /// The media types that the client takes, as it says it; empty if it does not.
    pub accept: String,
    /// At most [`crate::MAX_BODY_BYTES`].
    pub body: Vec<u8>,
    /// `None` on a Unix domain socket.
    pub peer: Option<SocketAddr>,
}

impl Request {
    /// The first parameter of that name. An empty value counts as absent, as in Envoy.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// How much the client wants a media type, written in lower case, from 0 to 1 (RFC 9110, section 12.5.1); `None` when it
    /// does not name it.
    pub(crate) fn wants(&self, media_type: &str) -> Option<f32> {
        let named = self.accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_meant = parts.next()?.eq_ignore_ascii_case(media_type);
            let weight = parts.filter_map(|part| part.strip_prefix("q=")).find_map(|q| q.parse().ok());
            is_meant.then(|| weight.unwrap_or(1.0))
        });
        named.reduce(f32::max)
    }

    /// Whether the parameter is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.query.iter().any(|(key, _)| key == name)
    }
}

/// Decodes a segment of a path, where `+` is itself.
pub(crate) fn decode_segment(text: &str) -> String {
    decode(&text.replace('+', "%2B"))
}

/// Splits and decodes a query: `%41` and `+`, as forms encode them. A broken escape stays as it is.
pub(crate) fn parse_query(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    pairs.map(|(key, value)| (decode(key), decode(value))).collect()
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        // `from_str_radix` would take a sign.
        let value = hex.filter(|hex| !hex.starts_with('+')).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = match (byte, value) {
            (b'%', Some(value)) => {
                out.push(value);
                &tail[2..]
            }
            (b'+', _) => {
                out.push(b' ');
                tail
            }
            _ => {
                out.push(byte);
                tail
            }
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_what_it_wants() {
        let accept = "application/x;proto=a.B;q=0.6, text/plain;version=0.0.4;q=0.5,Text/HTML,*/*;q=0.2".to_owned();
        let request = Request { accept, ..Request::default() };
        let wants = ["application/x", "text/plain", "text/html", "text/x"].map(|kind| request.wants(kind));
        assert_eq!(wants, [Some(0.6), Some(0.5), Some(1.0), None]);
    }

    #[test]
    fn queries_are_decoded() {
        let query = parse_query("filter=%5Ea%7Cb%24&usedonly&x=1=2&&y=a+b&bad=%zz%4&s=%+1");
        let pairs: Vec<_> = query.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [("filter", "^a|b$"), ("usedonly", ""), ("x", "1=2"), ("y", "a b"), ("bad", "%zz%4"), ("s", "% 1")]
        );
        let request = Request { query, ..Request::default() };
        assert!(request.has("usedonly") && request.parameter("usedonly").is_none());
        assert_eq!(request.parameter("x"), Some("1=2"));
    }
}
