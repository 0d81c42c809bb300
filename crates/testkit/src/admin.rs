//! Reads the admin interface: statistics as text, JSON documents.

use crate::DEADLINE;
use crate::client::RawClient;
use crate::message::Response;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};

/// `GET path` on the admin interface.
pub fn get(admin: SocketAddr, path: &str) -> Response {
    request(admin, "GET", path)
}

/// Whether the proxy says that it is live. One that is ending, or whose admin interface is not up yet, does not.
pub fn is_ready(admin: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&admin, DEADLINE) else { return false };
    let mut client = RawClient::from_stream(stream);
    client.send("GET /ready HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    client.response("GET").is_ok_and(|answer| answer.status == 200)
}

/// `POST path`, for the endpoints that change something.
pub fn post(admin: SocketAddr, path: &str) -> Response {
    request(admin, "POST", path)
}

/// `GET path`, parsed as JSON; panics when it is not.
pub fn json(admin: SocketAddr, path: &str) -> Value {
    let response = get(admin, path);
    serde_json::from_slice(&response.body)
        .unwrap_or_else(|error| panic!("{path} is not JSON ({error}): {}", response.text()))
}

fn request(admin: SocketAddr, method: &str, path: &str) -> Response {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    RawClient::once(admin, &request).unwrap_or_else(|error| panic!("admin {path}: {error:?}"))
}

/// Counters, gauges and histograms of one `/stats` page. A name that is not
/// there reads as 0, since statistics may be made on first use.
#[derive(Clone, Debug, Default)]
pub struct Stats(pub BTreeMap<String, String>);

impl Stats {
    pub fn fetch(admin: SocketAddr) -> Self {
        Self::parse(get(admin, "/stats").text())
    }

    /// Reads lines `name: value`.
    pub fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        Self(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    /// A counter or gauge.
    pub fn value(&self, name: &str) -> u64 {
        self.0.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// The sum of the counters whose names begin and end so.
    pub fn sum(&self, prefix: &str, suffix: &str) -> u64 {
        let named = self.0.iter().filter(|(name, _)| name.starts_with(prefix) && name.ends_with(suffix));
        named.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_lines_become_numbers() {
        let stats = Stats::parse("cluster.a.upstream_rq_total: 7\nhttp.x.time: P0(nan,1)\n");
        assert_eq!(stats.value("cluster.a.upstream_rq_total"), 7);
        assert_eq!(stats.value("absent"), 0);
    }
}
