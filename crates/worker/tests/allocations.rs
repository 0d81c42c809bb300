//! A forwarded HTTP/1.1 request allocates nothing once its connection has seen a few.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use postrider_sys::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Requests before the count begins: pools, heads and histograms have their size then.
const WARM_UP: usize = 200;

/// Requests of a burst, and bursts. Some have a worker's regular work between them, or a pause in which it gave buffers
/// back; on a busy machine many do, but not all.
const BURST: usize = 10;
const BURSTS: usize = 200;

#[test]
fn a_request_in_the_steady_state_allocates_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let mut answer = [b'x'; 4200];
        let head = b"HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: 4000\r\n\r\n";
        answer[..head.len()].copy_from_slice(head);
        // One read is one request: they are small and the client waits for each answer.
        while stream.read(&mut buffer).unwrap() > 0 {
            stream.write_all(&answer[..head.len() + 4000]).unwrap();
        }
    });
    let running = common::Site::new(origin).run(&Default::default());
    let mut client = TcpStream::connect(running.address).unwrap();
    let mut exchange = || {
        client.write_all(b"GET /some/path?q=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: test\r\n\r\n").unwrap();
        let mut buffer = [0; 8192];
        let mut received = 0;
        let mut expected = usize::MAX;
        while received < expected {
            received += client.read(&mut buffer[received..]).unwrap();
            if let Some(end) = buffer[..received].windows(4).position(|four| four == b"\r\n\r\n") {
                assert!(buffer.starts_with(b"HTTP/1.1 200 OK\r\n"));
                expected = end + 4 + 4000;
            }
        }
    };
    (0..WARM_UP).for_each(|_| exchange());
    let allocations: Vec<u64> = (0..BURSTS)
        .map(|_| {
            let before = ALLOCATOR.count();
            (0..BURST).for_each(|_| exchange());
            ALLOCATOR.count() - before
        })
        .collect();
    assert!(allocations.contains(&0), "allocations in bursts of {BURST} requests: {allocations:?}");
    drop(client);
    drop(running);
    serving.join().unwrap();
}
