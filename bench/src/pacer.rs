//! Small requests at a steady pace on one kept connection, and how long each took.
//!
//! A closed loop would send no requests while the proxy is busy elsewhere, and so would hide what it is to find out. Here a
//! request that is due while the one before it is unanswered counts from when it was due.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::Answer;
use crate::error::{Error, Result};
use crate::pause::pause;
use crate::stats::percentile;

/// Time from one request to the next.
pub const PACE: Duration = Duration::from_millis(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Milliseconds from when a request was due to the end of its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    fn of(mut each: Vec<f64>) -> Self {
        each.sort_by(f64::total_cmp);
        Self { p50_ms: percentile(&each, 0.5), p99_ms: percentile(&each, 0.99), max_ms: percentile(&each, 1.0) }
    }
}

/// A connection that has carried a request already.
pub struct Pacer {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Pacer {
    pub fn connect(port: u16, path: &str) -> Result<Self> {
        let open = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let mut pacer = Self {
            stream: open().map_err(Error::io("connecting to the proxy"))?,
            request: format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").into_bytes(),
            buffer: vec![0; 16 * 1024],
        };
        pacer.exchange()?;
        Ok(pacer)
    }

    /// Sends requests for so long. One that was due and could not be sent counts with the time for which it has waited.
    pub fn run(&mut self, duration: Duration) -> Result<Latency> {
        let begun = Instant::now();
        let end = begun + duration;
        let mut due = begun;
        let mut answered = begun;
        let mut each = Vec::new();
        while due < end && answered < end {
            let waited_for = answered > due;
            pause(due.saturating_duration_since(Instant::now()));
            // That this thread wakes late is no fault of the proxy.
            let counted_from = if waited_for { due } else { Instant::now() };
            self.exchange()?;
            answered = Instant::now();
            each.push(milliseconds(answered - counted_from));
            due += PACE;
        }
        while due < end {
            each.push(milliseconds(answered - due));
            due += PACE;
        }
        Ok(Latency::of(each))
    }

    fn exchange(&mut self) -> Result<()> {
        self.stream.write_all(&self.request).map_err(Error::io("sending a request"))?;
        let mut answer = Answer::default();
        loop {
            let received = self.stream.read(&mut self.buffer).map_err(Error::io("reading an answer"))?;
            if received == 0 {
                return Err(Error::FailedLoad {
                    detail: "the proxy closed a connection that it should keep".to_owned(),
                });
            }
            if answer.take(&self.buffer[..received])? {
                return Ok(());
            }
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Answers each request, and keeps the one with this number waiting.
    fn serve_with_stall(stalled: usize, stall: Duration) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut request = [0; 1024];
            for number in 0.. {
                if !stream.read(&mut request).is_ok_and(|received| received > 0) {
                    return;
                }
                if number == stalled {
                    pause(stall);
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        });
        port
    }

    #[test]
    fn requests_that_were_due_during_a_stall_count_from_when_they_were_due() {
        let port = serve_with_stall(20, Duration::from_millis(60));
        let latency = Pacer::connect(port, "/").unwrap().run(Duration::from_millis(100)).unwrap();
        // Sixty of a hundred were due while the one waited: thirty of them for more than half of its time.
        assert!(latency.max_ms >= 60.0, "{latency:?}");
        assert!(latency.p50_ms >= 5.0, "{latency:?}");
    }

    #[test]
    fn requests_that_were_never_sent_count_too() {
        let port = serve_with_stall(20, Duration::from_millis(300));
        let latency = Pacer::connect(port, "/").unwrap().run(Duration::from_millis(100)).unwrap();
        // Eighty of a hundred were due in vain.
        assert!(latency.p50_ms >= 200.0, "{latency:?}");
    }
}
