//! One question to the admin, on a connection of its own: HTTP/1.0, so that the answer is what comes until the end.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

/// An admin that does not answer for so long is none.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest answer: statistics of a hundred thousand names.
const MAX_ANSWER: u64 = 64 << 20;

pub struct Admin {
    /// `host:port`
    pub address: String,
}

impl Admin {
    /// From a flag: `host:port`, also as a URL.
    pub fn at(address: &str) -> Admin {
        Admin { address: address.trim_start_matches("http://").trim_end_matches('/').to_owned() }
    }

    /// The JSON behind a path.
    ///
    /// # Errors
    /// Nobody answers there, or not with that.
    pub fn json(&self, target: &str) -> Result<Value, String> {
        let body = self.ask("GET", target)?;
        serde_json::from_str(&body).map_err(|error| format!("http://{}{target} is no JSON: {error}", self.address))
    }

    /// Has something done.
    ///
    /// # Errors
    /// Nobody answers there, or it is not done.
    pub fn order(&self, target: &str) -> Result<(), String> {
        self.ask("POST", target).map(|_| ())
    }

    fn ask(&self, method: &str, target: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("no answer from the admin at {}: {error}", self.address);
        let mut addresses = self.address.to_socket_addrs().map_err(failed)?;
        let address = addresses.next().ok_or_else(|| format!("{} leads nowhere", self.address))?;
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
        stream
            .set_read_timeout(Some(TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
            .map_err(failed)?;
        let request = format!("{method} {target} HTTP/1.0\r\nhost: {}\r\nuser-agent: postrider\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).map_err(failed)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return Err(format!("http://{}{target} answers `{status}`: is this the admin?", self.address));
        }
        Ok(body.to_owned())
    }
}
