//! The bench's own client: a closed loop with a fixed number of requests over connections that it keeps.
//!
//! wrk measures time, this one counts: the gates need exactly so many requests, and the idle scenarios need the
//! connections to stay when the requests are done.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The longest silence between two answers; a proxy under valgrind is slow.
const SILENCE: Duration = Duration::from_secs(60);
const READ_BUFFER: usize = 64 * 1024;

/// Kept connections to one proxy.
pub struct Client {
    target: SocketAddr,
    request: Vec<u8>,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    answer: Answer,
}

impl Client {
    /// Every request is a GET of `path` with these lines in its head.
    pub fn new(port: u16, path: &str, headers: &[&str]) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::io("creating an epoll instance")(errno.into()))?;
        let lines: String = headers.iter().flat_map(|line| [line, "\r\n"]).collect();
        Ok(Self {
            target: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            request: format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{lines}\r\n").into_bytes(),
            epoll,
            connections: Vec::new(),
            buffer: vec![0; READ_BUFFER],
        })
    }

    /// Opens `count` more connections.
    pub fn connect(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let connection = self.open().map_err(Error::io("connecting to the proxy"))?;
            self.connections.push(connection);
        }
        Ok(())
    }

    /// Sends one request on each connection from number `first` on, without waiting for answers.
    pub fn ask(&mut self, first: usize) -> Result<()> {
        for connection in self.connections.iter_mut().skip(first) {
            connection.stream.write_all(&self.request).map_err(Error::io("sending a request"))?;
        }
        Ok(())
    }

    /// Reads `outstanding` answers. While `more` requests are left, a connection whose answer is complete sends the
    /// next one at once.
    pub fn collect(&mut self, mut outstanding: usize, mut more: usize) -> Result<()> {
        let mut events = Vec::with_capacity(1024);
        let mut last_answer = Instant::now();
        let pause = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        while outstanding > 0 {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("waiting for answers")(errno.into())),
            }
            for event in events.drain(..) {
                let Some(connection) = self.connections.get_mut({ event.data }.u64() as usize) else { continue };
                let received = match connection.stream.read(&mut self.buffer) {
                    Ok(0) => return Err(broken("the proxy closed a connection that it should keep")),
                    Ok(received) => received,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(Error::io("reading an answer")(error)),
                };
                if !connection.answer.take(&self.buffer[..received])? {
                    continue;
                }
                last_answer = Instant::now();
                outstanding -= 1;
                if more > 0 {
                    connection.stream.write_all(&self.request).map_err(Error::io("sending a request"))?;
                    more -= 1;
                    outstanding += 1;
                }
            }
            if last_answer.elapsed() > SILENCE {
                return Err(broken(&format!("{outstanding} answers are missing for {} s", SILENCE.as_secs())));
            }
        }
        Ok(())
    }

    /// Exactly `requests` requests over the open connections, in a closed loop.
    pub fn run(&mut self, requests: usize) -> Result<()> {
        let first = self.connections.len().saturating_sub(requests);
        self.ask(first)?;
        let asked = self.connections.len() - first;
        self.collect(asked, requests - asked)
    }

    fn open(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.target)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&self.epoll, &stream, EventData::new_u64(self.connections.len() as u64), EventFlags::IN)?;
        Ok(Connection { stream, answer: Answer::default() })
    }
}

/// How far the answer on a connection was read.
pub enum Answer {
    /// The head's bytes so far.
    Head(Vec<u8>),
    /// Bytes of the body that are still to come.
    Body(usize),
}

impl Default for Answer {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

impl Answer {
    /// Takes bytes of at most one answer; true when it is complete. An answer that is not a 200 with a content-length is
    /// an error.
    pub fn take(&mut self, bytes: &[u8]) -> Result<bool> {
        let missing = match self {
            Self::Body(missing) => missing.checked_sub(bytes.len()),
            Self::Head(head) => {
                head.extend_from_slice(bytes);
                let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(false) };
                let body = head.len() - end - 4;
                content_length(&head[..end])?.checked_sub(body)
            }
        };
        match missing {
            Some(0) => {
                *self = Self::default();
                Ok(true)
            }
            Some(missing) => {
                *self = Self::Body(missing);
                Ok(false)
            }
            None => Err(broken("an answer is longer than its content-length")),
        }
    }
}

fn content_length(head: &[u8]) -> Result<usize> {
    let text = String::from_utf8_lossy(head);
    let status = text.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(broken(&format!("an answer began with `{status}`")));
    }
    header_length(&text).ok_or_else(|| broken("an answer had no content-length"))
}

fn broken(detail: &str) -> Error {
    Error::FailedLoad { detail: detail.to_owned() }
}

/// The content-length in a head.
pub fn header_length(head: &str) -> Option<usize> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Origin;

    #[test]
    fn an_answer_is_complete_at_its_last_byte_however_it_is_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 0..bytes.len() {
            let mut answer = Answer::default();
            assert!(!answer.take(&bytes[..cut]).unwrap(), "complete after {cut} bytes");
            assert!(answer.take(&bytes[cut..]).unwrap(), "incomplete when cut at {cut}");
        }
    }

    #[test]
    fn a_surplus_byte_and_another_status_are_failures() {
        let surplus = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab";
        assert!(Answer::default().take(surplus).is_err());
        let refused = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert!(Answer::default().take(refused).is_err());
    }

    #[test]
    fn every_request_is_answered_once_and_the_connections_stay() {
        let origin = Origin::open(4000, 0).unwrap();
        let port = origin.port().unwrap();
        std::thread::spawn(move || origin.serve());
        let mut client = Client::new(port, "/", &[]).unwrap();
        client.connect(8).unwrap();
        client.run(100).unwrap();
        client.run(3).unwrap();
        assert_eq!(client.connections.len(), 8);
    }

    #[test]
    fn a_holding_origin_answers_when_all_requests_are_there() {
        let origin = Origin::open(1, 5).unwrap();
        let port = origin.port().unwrap();
        std::thread::spawn(move || origin.serve());
        let mut client = Client::new(port, "/", &[]).unwrap();
        client.connect(1).unwrap();
        client.run(1).unwrap();
        client.connect(3).unwrap();
        client.ask(0).unwrap();
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut events = Vec::with_capacity(4);
        epoll::wait(&client.epoll, spare_capacity(&mut events), Some(&wait)).unwrap();
        assert!(events.is_empty(), "an answer came before the fifth request");
        client.connect(1).unwrap();
        client.ask(4).unwrap();
        client.collect(5, 0).unwrap();
    }
}
