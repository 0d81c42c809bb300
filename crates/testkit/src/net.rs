//! Small things every test needs: free ports, a peer that never answers,
//! waiting for a condition, gates between threads, temporary folders.

use crate::DEADLINE;
use socket2::{Domain, SockRef, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Polls `condition` until it holds. Panics with `what` after [`DEADLINE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        pause();
    }
}

/// The step of a polling loop over another process, which has no way to wake
/// us. Not for waiting until something "should have happened by now".
#[allow(clippy::disallowed_methods)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// A loopback port that nothing listens on now, below the range that the
/// kernel hands to outgoing connections, so that no parallel test gets it by
/// accident. For addresses that must be known before the listener exists, or
/// must refuse connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 18_000 + (std::process::id().wrapping_mul(97).wrapping_add(step)) % 14_000;
        let port = u16::try_from(port).expect("a port number");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A loopback address that refuses connections.
pub fn refusing_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

/// A listening address whose accept queue is full: connecting to it hangs.
pub struct Blackhole {
    pub address: SocketAddr,
    _listener: Socket,
    _fillers: Vec<TcpStream>,
}

impl Blackhole {
    pub fn start() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
        let any: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        listener.bind(&any.into()).expect("bind");
        listener.listen(0).expect("listen");
        let address = listener.local_addr().expect("address").as_socket().expect("an IP address");
        let mut fillers = Vec::new();
        // Fill until the kernel drops the SYN.
        while let Ok(filler) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            fillers.push(filler);
        }
        Self { address, _listener: listener, _fillers: fillers }
    }
}

/// Closes a socket with RST instead of FIN.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    drop(stream);
}

/// Connects with a receive buffer of about `bytes`, so that an unread answer
/// soon stops the sender.
pub fn connect_with_small_buffer(address: SocketAddr, bytes: usize) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("socket");
    socket.set_recv_buffer_size(bytes).expect("SO_RCVBUF");
    socket.connect_timeout(&address.into(), DEADLINE).expect("connect");
    socket.into()
}

/// Connects from a given loopback source address, e.g. 127.0.0.7.
pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    connect_from_port(SocketAddr::from((source, 0)), address)
}

/// Connects from a given source address and port.
pub fn connect_from_port(source: SocketAddr, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    socket.bind(&source.into()).expect("bind source");
    socket.connect_timeout(&address.into(), DEADLINE).expect("connect");
    socket.into()
}

/// A latch that one thread opens and others wait for.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until the gate is open; panics after [`DEADLINE`].
    pub fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        let (open, _) = self.0.1.wait_timeout_while(open, DEADLINE, |open| !*open).unwrap();
        assert!(*open, "a gate stayed closed");
    }

    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }
}

/// A folder removed on drop, except when the test failed: then it is kept and
/// its path is printed.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("postrider-test-{}-{step}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("temporary folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file by rename, so that a reader never sees half of it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        let draft = self.0.join(format!(".{name}.draft"));
        std::fs::write(&draft, text).expect("write");
        std::fs::rename(&draft, &path).expect("rename");
        path
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for inspection: {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blackhole_never_accepts() {
        let hole = Blackhole::start();
        let error = TcpStream::connect_timeout(&hole.address, Duration::from_millis(50));
        assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_refusing_address_refuses() {
        let error = TcpStream::connect(refusing_address()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
