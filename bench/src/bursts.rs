//! Bursts of full TLS handshakes: so many greetings at once, at a steady pace. A process of its own (`bursts`), which
//! the bench starts with the lowest priority, so that what the clients compute does not delay who measures latency
//! beside them.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection};

use crate::error::{Error, Result};
use crate::handshakes::{Handshake, is_wanted};
use crate::pause::pause;
use crate::peer::on_path;
use crate::tls::{believing_client, server_name};

/// Handshakes that begin at once.
pub const BURST: usize = 32;
/// Time from one burst to the next: 320 handshakes in a second.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// How long a proxy may take for a step of a handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the process prints before the number of its handshakes, after each burst.
const DONE: &str = "handshakes: ";

/// Handshakes in a second, if the proxy keeps up.
pub const RATE: f64 = BURST as f64 / INTERVAL.as_millis() as f64 * 1000.0;

/// The command that bursts onto the port, for so many seconds at most. The policy `idle` (sched(7)) lets everything else
/// on the CPU go first.
pub fn command(port: u16, seconds: u64) -> Result<Command> {
    let chrt = on_path("chrt").ok_or(Error::Missing { program: "chrt", hint: "it is part of util-linux" })?;
    let bench = std::env::current_exe().map_err(Error::io("finding the bench's own program"))?;
    let mut command = Command::new(chrt);
    command.args(["--idle", "0"]).arg(bench).args(["bursts", &port.to_string(), &seconds.to_string()]);
    Ok(command)
}

/// Handshakes so far, from what the process has printed.
pub fn read(output: &str) -> u64 {
    output.lines().rev().find_map(|line| line.strip_prefix(DONE)?.parse().ok()).unwrap_or(0)
}

/// The whole process.
pub fn run(port: u16, duration: Duration) -> Result<()> {
    let config = Arc::new(believing_client(Resumption::disabled())?);
    let begun = Instant::now();
    let mut due = begun;
    let mut done: u64 = 0;
    while begun.elapsed() < duration {
        // Connected and greeting beforehand, so that the proxy gets all greetings within a moment.
        let mut clients = Vec::with_capacity(BURST);
        for _ in 0..BURST {
            clients.push(Greeting::prepare(port, &config)?);
        }
        pause(due.saturating_duration_since(Instant::now()));
        for client in &mut clients {
            client.send().map_err(Error::io("sending a greeting"))?;
        }
        for client in clients {
            client.finish()?;
            done += 1;
        }
        println!("{DONE}{done}");
        io::stdout().flush().map_err(Error::io("reporting"))?;
        due = (due + INTERVAL).max(Instant::now());
    }
    Ok(())
}

/// A connection whose first message is ready.
struct Greeting {
    socket: TcpStream,
    session: ClientConnection,
    message: Vec<u8>,
}

impl Greeting {
    fn prepare(port: u16, config: &Arc<ClientConfig>) -> Result<Self> {
        let connect = || {
            let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        };
        let mut session = ClientConnection::new(config.clone(), server_name()?)
            .map_err(|error| Error::FailedLoad { detail: error.to_string() })?;
        let mut message = Vec::new();
        session.write_tls(&mut message).map_err(Error::io("making a greeting"))?;
        Ok(Self { socket: connect().map_err(Error::io("connecting to the proxy"))?, session, message })
    }

    fn send(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.message)
    }

    /// The rest of the handshake, which must be a full one, and goodbye.
    fn finish(mut self) -> Result<()> {
        while self.session.is_handshaking() {
            self.session.complete_io(&mut self.socket).map_err(Error::io("shaking hands"))?;
        }
        if !is_wanted(self.session.handshake_kind(), Handshake::Full) {
            let detail = format!("a handshake was not full but {:?}", self.session.handshake_kind());
            return Err(Error::FailedLoad { detail });
        }
        self.session.send_close_notify();
        self.session.complete_io(&mut self.socket).map(drop).map_err(Error::io("closing a connection"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Key;
    use crate::tls::test_support::server;

    #[test]
    fn a_burst_is_of_full_handshakes_although_there_are_tickets() {
        let (_certificate, port) = server("bursts", Key::Ecdsa, 2);
        run(port, INTERVAL).unwrap();
    }

    #[test]
    fn the_last_whole_line_counts() {
        assert_eq!(read("handshakes: 32\nhandshakes: 64\n"), 64);
        assert_eq!(read("handshakes: 32\nhandsh"), 32);
        assert_eq!(read(""), 0);
    }
}
