//! The load of handshakes: a bounded number of TLS connections at a time, one request on each, then a new one.
//!
//! wrk cannot resume sessions and no tool says how each handshake went; here every one is asked, and a load whose
//! handshakes were of the wrong kind is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::stats::percentile;
use crate::tally::Tally;
use crate::tls::believing_client;
use crate::tls_client::TlsClient;

/// What kind every handshake has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    Full,
    /// By a ticket of the connection before (RFC 8446 section 2.2), the key exchange included.
    Resumed,
}

/// Tickets that a slot keeps: the smallest store that there is.
const TICKETS: usize = 8;

/// Clients that stay the same between warm-up and measurement, so that the tickets of the one serve the other.
pub struct Clients {
    port: u16,
    request: Arc<[u8]>,
    wanted: Handshake,
    /// One for each connection at a time, with the tickets of its own past connections only.
    slots: Vec<Arc<ClientConfig>>,
}

impl Clients {
    pub fn new(port: u16, path: &str, connections: usize, wanted: Handshake) -> Result<Self> {
        let slot = |_| {
            Ok(Arc::new(believing_client(match wanted {
                Handshake::Full => Resumption::disabled(),
                Handshake::Resumed => Resumption::in_memory_sessions(TICKETS),
            })?))
        };
        Ok(Self {
            port,
            request: format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").into_bytes().into(),
            wanted,
            slots: (0..connections).map(slot).collect::<Result<_>>()?,
        })
    }

    /// Loads the proxy for so long, in the calling thread. A connection that has begun is finished.
    pub fn run(&self, duration: Duration) -> Result<Report> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("building the clients' runtime"))?;
        runtime.block_on(async {
            let begun = Instant::now();
            let mut running = JoinSet::new();
            for config in &self.slots {
                running.spawn(slot(self.port, config.clone(), self.request.clone(), self.wanted, begun + duration));
            }
            let mut report = Report::default();
            while let Some(done) = running.join_next().await {
                report.add(done.map_err(|error| Error::FailedLoad { detail: error.to_string() })?);
            }
            report.seconds = begun.elapsed().as_secs_f64();
            Ok(report)
        })
    }
}

/// One connection after the other.
async fn slot(port: u16, config: Arc<ClientConfig>, request: Arc<[u8]>, wanted: Handshake, end: Instant) -> Report {
    let mut report = Report::default();
    while Instant::now() < end {
        let begun = Instant::now();
        let exchanged = async {
            let mut client = TlsClient::open(port, config.clone()).await?;
            client.exchange(&request).await?;
            Ok::<_, Error>(client)
        };
        match exchanged.await {
            Ok(client) => {
                report.latencies_ms.push(begun.elapsed().as_secs_f64() * 1e3);
                report.other_kind += u64::from(!is_wanted(client.handshake_kind(), wanted));
                client.close().await;
            }
            Err(error) => {
                report.failures += 1;
                report.last_failure = Some(error.to_string());
            }
        }
    }
    report
}

pub fn is_wanted(kind: Option<HandshakeKind>, wanted: Handshake) -> bool {
    match wanted {
        Handshake::Full => kind == Some(HandshakeKind::Full),
        Handshake::Resumed => kind == Some(HandshakeKind::Resumed),
    }
}

/// What the clients saw.
#[derive(Debug, Default)]
pub struct Report {
    /// From the first packet of a connection to the end of its answer.
    latencies_ms: Vec<f64>,
    /// Of those, connections whose handshake was of another kind.
    other_kind: u64,
    failures: u64,
    last_failure: Option<String>,
    seconds: f64,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.latencies_ms.extend(other.latencies_ms);
        self.other_kind += other.other_kind;
        self.failures += other.failures;
        self.last_failure = other.last_failure.or(self.last_failure.take());
    }

    /// Refuses a load in which connections failed, or had to do with another kind of handshake.
    pub fn accepted(mut self) -> Result<Tally> {
        let requests = self.latencies_ms.len() as u64;
        if requests == 0 || (self.failures + self.other_kind) * 1000 > requests {
            return Err(Error::FailedLoad {
                detail: format!(
                    "{requests} handshakes, {} of another kind, {} failures, the last: {}",
                    self.other_kind,
                    self.failures,
                    self.last_failure.as_deref().unwrap_or("-")
                ),
            });
        }
        self.latencies_ms.sort_by(f64::total_cmp);
        Ok(Tally {
            requests,
            seconds: self.seconds,
            p50_ms: percentile(&self.latencies_ms, 0.5),
            p99_ms: percentile(&self.latencies_ms, 0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Key;
    use crate::tls::test_support::server;

    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn full_handshakes_stay_full_although_the_server_offers_tickets() {
        let (_certificate, port) = server("full", Key::Rsa, 2);
        let clients = Clients::new(port, "/", 2, Handshake::Full).unwrap();
        let tally = clients.run(SHORT).unwrap().accepted().unwrap();
        assert!(tally.requests > 2 && tally.p50_ms > 0.0, "{tally:?}");
    }

    #[test]
    fn each_connection_but_the_first_of_a_slot_is_resumed() {
        let (_certificate, port) = server("resumed", Key::Ecdsa, 2);
        let clients = Clients::new(port, "/", 2, Handshake::Resumed).unwrap();
        let first = clients.run(SHORT).unwrap();
        assert_eq!((first.other_kind, first.failures), (2, 0), "{:?}", first.last_failure);
        let second = clients.run(SHORT).unwrap();
        assert_eq!(second.other_kind, 0);
        assert!(second.accepted().is_ok());
    }

    #[test]
    fn a_server_without_tickets_gives_no_figure_for_resumption() {
        let (_certificate, port) = server("ticketless", Key::Ecdsa, 0);
        let clients = Clients::new(port, "/", 1, Handshake::Resumed).unwrap();
        let report = clients.run(SHORT).unwrap();
        assert_eq!(report.other_kind, report.latencies_ms.len() as u64);
        assert!(matches!(report.accepted(), Err(Error::FailedLoad { .. })));
    }
}
