//! The relay is the floor of every ratio: a relay that loses or reorders bytes would make a floor of nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

/// More than all socket buffers on the way, so that each side has to wait for the other.
const LARGE: usize = 48 * 1024 * 1024;

struct Relay {
    child: Child,
    address: SocketAddr,
}

impl Relay {
    fn start(upstream: SocketAddr, buffer: usize) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_postrider-bench-relay"))
            .args(["127.0.0.1:0", &upstream.to_string(), &buffer.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, address }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Echoes each connection until its end, then closes its own direction.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = vec![0; 100_000];
                while let Ok(received @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..received]).is_err() {
                        return;
                    }
                }
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 % 251) as u8).collect()
}

fn echo_through(relay: &Relay, data: &[u8]) {
    let mut reader = TcpStream::connect(relay.address).unwrap();
    let mut writer = reader.try_clone().unwrap();
    let sent = data.to_vec();
    let writing = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut echoed = Vec::new();
    reader.read_to_end(&mut echoed).unwrap();
    writing.join().unwrap();
    assert!(echoed == data, "{} bytes came back of {}, or others", echoed.len(), data.len());
}

#[test]
fn every_byte_arrives_in_order_and_the_half_close_is_passed_on() {
    let relay = Relay::start(echo_server(), 64 * 1024);
    for length in [0, 1, 65_535, 65_536, 65_537, LARGE] {
        echo_through(&relay, &pattern(length));
    }
}

#[test]
fn a_buffer_smaller_than_a_message_loses_nothing() {
    let relay = Relay::start(echo_server(), 7);
    echo_through(&relay, &pattern(100_000));
}

#[test]
fn connections_do_not_mix() {
    let relay = Relay::start(echo_server(), 4096);
    thread::scope(|scope| {
        for number in 1..=16 {
            let relay = &relay;
            scope.spawn(move || echo_through(relay, &pattern(number * 50_000)));
        }
    });
}

#[test]
fn the_end_of_one_connection_leaves_the_others_alone() {
    let relay = Relay::start(echo_server(), 4096);
    let mut kept = TcpStream::connect(relay.address).unwrap();
    let mut byte = [0];
    for _ in 0..50 {
        echo_through(&relay, b"short");
        kept.write_all(b"k").unwrap();
        kept.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"k");
    }
}
