//! The request to explain: from a method, a URL and header lines to the bytes that a client would send.

use std::fmt;

/// A request as it stands on the wire, and what its URL says about the listener.
#[derive(Debug, PartialEq, Eq)]
pub struct WireRequest {
    pub bytes: Vec<u8>,
    /// The port that a client would connect to.
    pub port: u16,
    /// The URL names the port; otherwise it is the scheme's.
    pub port_is_explicit: bool,
    /// The name that a TLS client asks for; `None` for plain HTTP.
    pub server_name: Option<String>,
}

/// Why there is no such request.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestError {
    NoScheme,
    NoHost,
    UserInfo,
    Port(String),
    HeaderLine(String),
    LineBreak,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::NoScheme => write!(f, "expected a URL such as http://shop.example/path"),
            RequestError::NoHost => write!(f, "the URL names no host"),
            RequestError::UserInfo => {
                write!(f, "a client does not send the user name of a URL: use -H 'authorization: …' instead")
            }
            RequestError::Port(port) => write!(f, "`{port}` is no port"),
            RequestError::HeaderLine(line) => write!(f, "`{line}` is no header: expected 'name: value'"),
            RequestError::LineBreak => write!(f, "a line break would make two lines of one"),
        }
    }
}

impl WireRequest {
    /// What a client sends for `METHOD URL` with these header lines. A `host` line replaces that of the URL, as in curl.
    /// Nothing is checked that the listener checks.
    ///
    /// # Errors
    /// The URL or a header line cannot be put on the wire.
    pub fn new(method: &str, url: &str, headers: &[String]) -> Result<WireRequest, RequestError> {
        if [method, url].into_iter().chain(headers.iter().map(String::as_str)).any(|text| text.contains(['\r', '\n'])) {
            return Err(RequestError::LineBreak);
        }
        let (default_port, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (80, rest),
            (_, Some(rest)) => (443, rest),
            _ => return Err(RequestError::NoScheme),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(RequestError::UserInfo);
        }
        let (host, port) = split_port(authority);
        if host.is_empty() {
            return Err(RequestError::NoHost);
        }
        let explicit =
            port.map(|port| port.parse::<u16>().map_err(|_| RequestError::Port(port.to_owned()))).transpose()?;
        let target = match path {
            _ if method == "CONNECT" => format!("{host}:{}", explicit.unwrap_or(default_port)),
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let mut lines = Vec::new();
        let mut host_line = None;
        for line in headers {
            let (name, value) = line.split_once(':').ok_or_else(|| RequestError::HeaderLine(line.clone()))?;
            if name.eq_ignore_ascii_case("host") {
                host_line = Some(format!("host: {}", value.trim()));
            } else {
                lines.push(format!("{name}: {}", value.trim()));
            }
        }
        // A client leaves out the scheme's own port.
        let shown = if explicit == Some(default_port) { host } else { authority };
        let host_line = host_line.unwrap_or_else(|| format!("host: {shown}"));
        lines.insert(0, host_line);
        let bytes = format!("{method} {target} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n")).into_bytes();
        // An address is no server name (RFC 6066 section 3): a client then asks for none.
        let named = host.parse::<std::net::IpAddr>().is_err() && !host.starts_with('[');
        let server_name = match default_port {
            443 => Some(if named { host.to_ascii_lowercase() } else { String::new() }),
            _ => None,
        };
        let port = explicit.unwrap_or(default_port);
        Ok(WireRequest { bytes, port, port_is_explicit: explicit.is_some(), server_name })
    }
}

/// `host:port`, where the host may be an IPv6 address in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(method: &str, url: &str, headers: &[&str]) -> Result<String, RequestError> {
        let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        WireRequest::new(method, url, &headers).map(|request| String::from_utf8(request.bytes).unwrap())
    }

    #[test]
    fn a_url_becomes_what_a_client_sends() {
        for (url, line, host) in [
            ("http://a.test", "GET / HTTP/1.1", "host: a.test"),
            ("http://a.test:80/x?y=1#z", "GET /x?y=1 HTTP/1.1", "host: a.test"),
            ("http://a.test:8080?y", "GET /?y HTTP/1.1", "host: a.test:8080"),
            ("https://[::1]:443/%2e/", "GET /%2e/ HTTP/1.1", "host: [::1]"),
            ("http://[::1]/", "GET / HTTP/1.1", "host: [::1]"),
        ] {
            assert_eq!(wire("GET", url, &[]), Ok(format!("{line}\r\n{host}\r\n\r\n")), "{url}");
        }
        assert_eq!(wire("CONNECT", "http://a.test/", &[]).unwrap().lines().next(), Some("CONNECT a.test:80 HTTP/1.1"));
    }

    #[test]
    fn header_lines_follow_and_a_host_line_replaces_the_urls() {
        let text = wire("PUT", "http://a.test/", &["X-A:1", "Host: b.test", "x-a: 2"]);
        assert_eq!(text.unwrap(), "PUT / HTTP/1.1\r\nhost: b.test\r\nX-A: 1\r\nx-a: 2\r\n\r\n");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_by_cause() {
        for (url, header, error) in [
            ("a.test/x", "a: b", RequestError::NoScheme),
            ("http:///x", "a: b", RequestError::NoHost),
            ("http://u@a.test/", "a: b", RequestError::UserInfo),
            ("http://a.test:x/", "a: b", RequestError::Port("x".into())),
            ("http://a.test/", "ab", RequestError::HeaderLine("ab".into())),
            ("http://a.test/", "a: b\r\nc: d", RequestError::LineBreak),
        ] {
            assert_eq!(wire("GET", url, &[header]), Err(error), "{url}");
        }
    }

    #[test]
    fn the_port_is_the_urls_or_the_schemes() {
        let port = |url| WireRequest::new("GET", url, &[]).map(|request| (request.port, request.port_is_explicit));
        assert_eq!(port("http://a/"), Ok((80, false)));
        assert_eq!(port("https://a/"), Ok((443, false)));
        assert_eq!(port("http://a:81/"), Ok((81, true)));
    }
}
