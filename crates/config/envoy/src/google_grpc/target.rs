//! Names of targets, as Google's gRPC client reads them (gRPC's "Name Resolution").

use std::net::IpAddr;

use serde_json::{Value as Json, json};

/// The port of a target that says none.
const DEFAULT_PORT: u16 = 443;

/// Where calls go.
#[derive(Debug, PartialEq)]
pub(super) struct Target {
    pub addresses: Vec<Address>,
    /// `:authority` unless something else is said.
    pub authority: String,
}

#[derive(Debug, PartialEq)]
pub(super) enum Address {
    Name(String, u16),
    Ip(IpAddr, u16),
    /// A path, or `@` and the name of an abstract socket.
    Pipe(String),
}

impl Target {
    /// # Errors
    /// What is wrong with it.
    pub fn parse(uri: &str) -> Result<Target, String> {
        let (scheme, rest) = uri.split_once(':').unwrap_or(("", uri));
        match scheme {
            "unix" => Target::pipe(rest.strip_prefix("//").unwrap_or(rest).to_owned()),
            "unix-abstract" => Target::pipe(format!("@{rest}")),
            "ipv4" | "ipv6" => {
                let path = rest.trim_start_matches('/');
                let addresses: Result<Vec<Address>, String> =
                    path.split(',').map(|each| Address::ip(each, scheme)).collect();
                let authority = if path.contains(',') { "localhost" } else { path };
                Ok(Target { addresses: addresses?, authority: authority.to_owned() })
            }
            "dns" => match rest.strip_prefix("//") {
                None => Target::host_and_port(rest.trim_start_matches('/')),
                Some(rest) => match rest.split_once('/') {
                    Some(("", path)) => Target::host_and_port(path),
                    _ => Err(format!(
                        "`{uri}` names a server of DNS, which is not supported: `dns:///host:port` asks the system's"
                    )),
                },
            },
            "xds" | "google-c2p" | "vsock" => {
                Err(format!("`{uri}`: targets of `{scheme}` are not supported; `dns`, `ipv4`, `ipv6` and `unix` are"))
            }
            _ => Target::host_and_port(uri),
        }
    }

    /// In place of one that cannot be read, beside the error that says so.
    pub fn nowhere() -> Target {
        Target {
            addresses: vec![Address::Name("localhost".to_owned(), DEFAULT_PORT)],
            authority: "localhost".to_owned(),
        }
    }

    fn pipe(path: String) -> Result<Target, String> {
        if path.trim_start_matches('@').is_empty() {
            return Err("a Unix domain socket needs a path behind `unix:`".to_owned());
        }
        Ok(Target { addresses: vec![Address::Pipe(path)], authority: "localhost".to_owned() })
    }

    fn host_and_port(text: &str) -> Result<Target, String> {
        let (host, port) = split(text)?;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let address = match host.parse() {
            Ok(ip) => Address::Ip(ip, port),
            Err(_) if !host.is_empty() && host.bytes().all(is_host) => Address::Name(host.to_owned(), port),
            Err(_) => {
                return Err(format!(
                    "`{text}` is no target: `host:port`, `dns:///host:port`, `ipv4:…`, `ipv6:…` or `unix:…`"
                ));
            }
        };
        Ok(Target { addresses: vec![address], authority: text.to_owned() })
    }

    pub fn is_name(&self) -> bool {
        matches!(self.addresses.as_slice(), [Address::Name(..)])
    }

    pub fn is_local(&self) -> bool {
        matches!(self.addresses.as_slice(), [Address::Pipe(_)])
    }

    /// The authority without its port.
    pub fn host(&self) -> &str {
        split(&self.authority).map_or(self.authority.as_str(), |(host, _)| host)
    }
}

impl Address {
    fn ip(text: &str, scheme: &str) -> Result<Address, String> {
        let (host, port) = split(text)?;
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_ipv4() == (scheme == "ipv4") => Ok(Address::Ip(ip, port)),
            _ => Err(format!("`{text}` is no address of `{scheme}`")),
        }
    }

    /// `envoy.config.core.v3.Address`.
    pub fn to_json(&self) -> Json {
        let (host, port) = match self {
            Address::Pipe(path) => return json!({"pipe": {"path": path}}),
            Address::Name(host, port) => (host.clone(), port),
            Address::Ip(ip, port) => (ip.to_string(), port),
        };
        json!({"socket_address": {"address": host, "port_value": port}})
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port` or `v6`.
fn split(text: &str) -> Result<(&str, u16), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, behind)) => {
            let port = behind.strip_prefix(':').ok_or_else(|| format!("`{behind}` in `{text}` is no port"))?;
            (host, Some(port))
        }
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    match port {
        None => Ok((host, DEFAULT_PORT)),
        Some(port) => match port.parse() {
            Ok(number) if number > 0 => Ok((host, number)),
            _ => Err(format!("`{port}` in `{text}` is no port")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str, port: u16) -> Address {
        Address::Name(host.to_owned(), port)
    }

    #[test]
    fn each_form_of_a_target_is_read() {
        let ip = |text: &str, port| Address::Ip(text.parse().unwrap(), port);
        for (uri, address, authority, host) in [
            ("authz:9191", name("authz", 9191), "authz:9191", "authz"),
            ("dns:authz:9191", name("authz", 9191), "authz:9191", "authz"),
            ("dns:///authz.example.com", name("authz.example.com", 443), "authz.example.com", "authz.example.com"),
            ("127.0.0.1:9191", ip("127.0.0.1", 9191), "127.0.0.1:9191", "127.0.0.1"),
            ("ipv4:127.0.0.1:9191", ip("127.0.0.1", 9191), "127.0.0.1:9191", "127.0.0.1"),
            ("ipv6:[::1]:9191", ip("::1", 9191), "[::1]:9191", "::1"),
            ("[::1]:9191", ip("::1", 9191), "[::1]:9191", "::1"),
            ("unix:run/authz", Address::Pipe("run/authz".to_owned()), "localhost", "localhost"),
            ("unix:///run/authz", Address::Pipe("/run/authz".to_owned()), "localhost", "localhost"),
            ("unix-abstract:authz", Address::Pipe("@authz".to_owned()), "localhost", "localhost"),
        ] {
            let target = Target::parse(uri).unwrap_or_else(|error| panic!("{uri}: {error}"));
            assert_eq!((target.host(), target.is_local()), (host, uri.starts_with("unix")), "{uri}");
            assert_eq!(target, Target { addresses: vec![address], authority: authority.to_owned() }, "{uri}");
        }
        let several = Target::parse("ipv4:127.0.0.1:1,127.0.0.2").unwrap();
        assert_eq!((several.addresses.len(), several.authority.as_str()), (2, "localhost"));
        assert_eq!(several.addresses[1], ip("127.0.0.2", 443));
    }

    #[test]
    fn what_is_no_target_is_told() {
        for (uri, wanted) in [
            ("", "is no target"),
            ("a b:1", "is no target"),
            ("http://authz:9191/", "`http://authz:9191/` is no target"),
            ("authz:https", "`https` in `authz:https` is no port"),
            ("authz:0", "`0` in `authz:0` is no port"),
            ("authz:70000", "is no port"),
            ("[::1]9191", "`9191` in"),
            ("ipv4:::1", "no address of `ipv4`"),
            ("ipv6:127.0.0.1:1", "no address of `ipv6`"),
            ("dns://8.8.8.8/authz", "names a server of DNS"),
            ("xds:///authz", "targets of `xds` are not supported"),
            ("unix:", "needs a path"),
        ] {
            let error = Target::parse(uri).unwrap_err();
            assert!(error.contains(wanted), "{uri}: {error}");
        }
    }
}
