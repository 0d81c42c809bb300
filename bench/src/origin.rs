//! The bench's own upstream: answers every HTTP/1.1 request with the same bytes.
//!
//! The load scenarios use nginx instead; this one exists for what nginx cannot do, that is to hold all answers until so
//! many requests are in flight at once that a proxy must have opened a connection for each. It runs as a thread (gates)
//! or as a process of its own (idle connections, where the descriptors of one process would not do).

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

/// Connections that the kernel may hold before they are accepted.
const BACKLOG: i32 = 4096;
/// Bytes taken by one read: many requests of the bench.
const READ_BUFFER: usize = 16 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// What to serve.
pub struct Origin {
    listener: TcpListener,
    answer: Vec<u8>,
    /// The first request (a probe) is answered at once. Then no answer goes out before so many requests are waiting for
    /// one; afterwards each goes at once. 0: none waits.
    hold: usize,
}

struct Connection {
    stream: TcpStream,
    /// How far into `HEAD_END` the bytes seen so far reach: a head may come in pieces.
    matched: usize,
}

impl Origin {
    /// Listens on a free loopback port; the body has `body` bytes.
    pub fn open(body: usize, hold: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let mut answer =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {body}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + body, b'x');
        Ok(Self { listener, answer, hold })
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves until the process ends. Answers are small enough to go out in one write; a client that does not read its
    /// answer is disconnected.
    pub fn serve(self) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &self.listener, EventData::new_u64(u64::MAX), EventFlags::IN)?;
        let mut connections: Vec<Option<Connection>> = Vec::new();
        let mut held: Option<Vec<usize>> = None;
        let mut probed = self.hold == 0;
        let mut events = Vec::with_capacity(1024);
        let mut buffer = vec![0; READ_BUFFER];
        loop {
            match epoll::wait(&epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let token = { event.data }.u64();
                if token == u64::MAX {
                    while let Ok((stream, _)) = self.listener.accept() {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        epoll::add(&epoll, &stream, EventData::new_u64(connections.len() as u64), EventFlags::IN)?;
                        connections.push(Some(Connection { stream, matched: 0 }));
                    }
                    continue;
                }
                let index = token as usize;
                let Some(slot) = connections.get_mut(index) else { continue };
                let Some(connection) = slot else { continue };
                let Some(requests) = connection.requests(&mut buffer) else {
                    *slot = None;
                    continue;
                };
                match &mut held {
                    Some(waiting) => waiting.extend(std::iter::repeat_n(index, requests)),
                    None if !connection.answer(&self.answer, requests) => *slot = None,
                    None if requests > 0 && !probed => {
                        probed = true;
                        held = Some(Vec::with_capacity(self.hold));
                    }
                    None => {}
                }
            }
            if let Some(waiting) = held.take_if(|waiting| waiting.len() >= self.hold) {
                for index in waiting {
                    if let Some(connection) = &mut connections[index]
                        && !connection.answer(&self.answer, 1)
                    {
                        connections[index] = None;
                    }
                }
            }
        }
    }
}

impl Connection {
    /// How many heads ended in what can be read now; `None` when the connection is done.
    fn requests(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let received = match self.stream.read(buffer) {
            Ok(0) => return None,
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(0),
            Err(_) => return None,
        };
        Some(heads_ended(&mut self.matched, &buffer[..received]))
    }

    fn answer(&mut self, answer: &[u8], times: usize) -> bool {
        (0..times).all(|_| self.stream.write(answer).is_ok_and(|written| written == answer.len()))
    }
}

fn heads_ended(matched: &mut usize, bytes: &[u8]) -> usize {
    let mut ended = 0;
    for &byte in bytes {
        *matched = match byte {
            _ if byte == HEAD_END[*matched] => *matched + 1,
            b'\r' => 1,
            _ => 0,
        };
        if *matched == HEAD_END.len() {
            ended += 1;
            *matched = 0;
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_however_the_bytes_are_cut() {
        let bytes = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /\r\r\n\r\n";
        for cut in 0..=bytes.len() {
            let mut matched = 0;
            let (front, back) = bytes.split_at(cut);
            assert_eq!(heads_ended(&mut matched, front) + heads_ended(&mut matched, back), 2, "cut at {cut}");
        }
    }
}
