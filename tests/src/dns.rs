//! A server of DNS on loopback, over UDP and TCP on one port, that remembers what it was asked.
//!
//! It knows addresses of names and nothing else: a name without any of the kind that is asked for exists (NODATA), one
//! that was never named does not (NXDOMAIN).

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use postrider_testkit::DEADLINE;

/// Types of records (RFC 1035 section 3.2.2, RFC 3596 section 2.1).
const A: u16 = 1;
const AAAA: u16 = 28;
const NXDOMAIN: u8 = 3;

/// Seconds that answers hold, unless [`DnsServer::holding`] says otherwise.
const TTL: u32 = 600;
/// The server cannot say.
const SERVFAIL: u8 = 2;

pub struct DnsServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    addresses: HashMap<String, Vec<IpAddr>>,
    queries: Vec<Query>,
    /// Hears, and says nothing.
    silent: bool,
    /// Says nothing to these names.
    ignored: Vec<String>,
    /// Says that it cannot say.
    failing: bool,
    /// Seconds that answers hold.
    ttl: Option<u32>,
    over: bool,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub name: String,
    /// Addresses of IPv6 are wanted.
    pub v6: bool,
    pub tcp: bool,
}

impl DnsServer {
    pub fn start() -> DnsServer {
        // A port that is free for both.
        let (listener, socket) = loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
            let address = listener.local_addr().expect("address");
            if let Ok(socket) = UdpSocket::bind(address) {
                break (listener, socket);
            }
        };
        let address = listener.local_addr().expect("address");
        let state = Arc::<Mutex<State>>::default();
        let (of_datagrams, of_streams) = (state.clone(), state.clone());
        thread::spawn(move || datagrams(&socket, &of_datagrams));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_streams.lock().unwrap().over {
                    return;
                }
                let state = of_streams.clone();
                let stream = stream.expect("accept");
                thread::spawn(move || conversation(stream, &state));
            }
        });
        DnsServer { address, state }
    }

    /// One that hears and never answers.
    pub fn silent() -> DnsServer {
        let server = DnsServer::start();
        server.state.lock().unwrap().silent = true;
        server
    }

    /// From now on, whoever asks for `name` hears nothing.
    pub fn ignore(&self, name: &str) {
        self.state.lock().unwrap().ignored.push(name.to_owned());
    }

    /// From now on, it can say nothing, or what it knows.
    pub fn fail(&self, failing: bool) {
        self.state.lock().unwrap().failing = failing;
    }

    /// From now on, answers hold for so many seconds.
    pub fn holding(&self, seconds: u32) {
        self.state.lock().unwrap().ttl = Some(seconds);
    }

    /// From now on, `name` has these addresses.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        self.state.lock().unwrap().addresses.insert(name.to_owned(), addresses);
    }

    /// From now on, nobody is called `name`.
    pub fn forget(&self, name: &str) {
        self.state.lock().unwrap().addresses.remove(name);
    }

    pub fn queries(&self) -> Vec<Query> {
        self.state.lock().unwrap().queries.clone()
    }
}

impl Drop for DnsServer {
    /// Both threads are woken to see that it is over.
    fn drop(&mut self) {
        self.state.lock().unwrap().over = true;
        let _ = TcpStream::connect(self.address);
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[], self.address);
        }
    }
}

fn datagrams(socket: &UdpSocket, state: &Mutex<State>) {
    let mut room = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut room) {
        if state.lock().unwrap().over {
            return;
        }
        if let Some(answer) = answer(&room[..length], false, state) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// Over TCP, two bytes of length stand before each message (RFC 1035 section 4.2.2).
fn conversation(mut stream: TcpStream, state: &Mutex<State>) {
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        if stream.read_exact(&mut message).is_err() {
            return;
        }
        let Some(answer) = answer(&message, true, state) else { continue };
        let length = u16::try_from(answer.len()).expect("a short answer").to_be_bytes();
        if stream.write_all(&[&length, answer.as_slice()].concat()).is_err() {
            return;
        }
    }
}

/// The answer to a message with one question; `None` where nothing is to be said.
fn answer(message: &[u8], tcp: bool, state: &Mutex<State>) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        name.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    let question = message.get(12..at + 4)?;
    let name = name.join(".");
    let mut state = state.lock().unwrap();
    state.queries.push(Query { name: name.clone(), v6: kind == AAAA, tcp });
    if state.silent || state.ignored.contains(&name) {
        return None;
    }
    let known = state.addresses.get(&name).filter(|_| !state.failing);
    let ttl = state.ttl.unwrap_or(TTL);
    let records: Vec<Vec<u8>> = known.into_iter().flatten().filter_map(|address| record(*address, kind, ttl)).collect();
    let code = match known {
        _ if state.failing => SERVFAIL,
        None => NXDOMAIN,
        Some(_) => 0,
    };
    let count = u16::try_from(records.len()).expect("few records").to_be_bytes();
    // The query's number, an answer by who knows about recursion, one question.
    let head = [&message[..2], &[0x85, 0x80 | code], &[0, 1], &count, &[0; 4]].concat();
    Some([head, question.to_vec(), records.concat()].concat())
}

/// A record about the question's name, if it is of the kind that is asked for.
fn record(address: IpAddr, kind: u16, ttl: u32) -> Option<Vec<u8>> {
    let bytes = match (address, kind) {
        (IpAddr::V4(address), A) => address.octets().to_vec(),
        (IpAddr::V6(address), AAAA) => address.octets().to_vec(),
        _ => return None,
    };
    let length = u16::try_from(bytes.len()).expect("an address").to_be_bytes();
    Some([&[0xc0, 12], &kind.to_be_bytes()[..], &[0, 1], &ttl.to_be_bytes(), &length, &bytes].concat())
}
