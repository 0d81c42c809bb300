//! Pebble, the certificate authority that Let's Encrypt tests ACME clients with, and a name server that sends it here.

use crate::kit::net::free_port;
use crate::kit::process::{self, Running};
use crate::kit::{TempDir, wait_until};
use crate::tls::{Authority, Client, Identity};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where an authority will be: known before it runs, because the proxy's configuration names it.
pub struct Place {
    /// Signs the directory's own certificate.
    authority: Authority,
    identity: Identity,
    port: u16,
    management: u16,
    folder: TempDir,
}

/// An authority that runs.
pub struct Pebble {
    _process: Running,
    _names: NameServer,
    management: SocketAddr,
    client: Client,
    output: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let authority = Authority::new("directory");
        let identity = authority.issue(&["localhost"]);
        let place = Place { identity, authority, port: free_port(), management: free_port(), folder: TempDir::new() };
        place.folder.write("roots.pem", place.authority.pem());
        place
    }

    pub fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// The roots by which the directory is trusted.
    pub fn roots(&self) -> PathBuf {
        self.folder.path().join("roots.pem")
    }

    /// Starts the authority: every name is at 127.0.0.1, where it asks for challenges at `http`, and its certificates
    /// live for so long.
    pub fn start(&self, http: u16, life: Duration) -> Pebble {
        self.start_asking(http, free_port(), life)
    }

    /// The same with a port for challenges over TLS.
    pub fn start_asking(&self, http: u16, tls: u16, life: Duration) -> Pebble {
        let certificate = self.folder.write("tls.crt", self.identity.chain_pem());
        let key = self.folder.write("tls.key", self.identity.key_pem());
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management),
            "certificate": certificate, "privateKey": key,
            "httpPort": http, "tlsPort": tls,
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "the only one", "validityPeriod": life.as_secs()}},
        }});
        let config = self.folder.write("pebble.json", config.to_string());
        let names = NameServer::start();
        let output = self.folder.path().join("pebble.log");
        let log = File::create(&output).expect("a log");
        let process = Running::spawn(
            Command::new(binary())
                .arg("-config")
                .arg(&config)
                .arg("-dnsserver")
                .arg(names.address.to_string())
                .env("PEBBLE_VA_NOSLEEP", "1")
                .env("PEBBLE_VA_ALWAYS_VALID", "0")
                .env("PEBBLE_AUTHZREUSE", "0")
                .stdout(log.try_clone().expect("a log"))
                .stderr(log),
        );
        let pebble = Pebble {
            _process: process,
            _names: names,
            management: SocketAddr::from(([127, 0, 0, 1], self.management)),
            client: Client::trusting(&self.authority),
            output,
        };
        let ready = |port| self.client().try_connect(SocketAddr::from(([127, 0, 0, 1], port)), "localhost").is_ok();
        wait_until("Pebble to be there", || ready(self.management) && ready(self.port));
        pebble
    }

    fn client(&self) -> Client {
        Client::trusting(&self.authority)
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Pebble {
    /// A client that trusts what it signs.
    pub fn trusted(&self) -> Client {
        let mut management = self.client.connect(self.management, "localhost");
        let roots = management.exchange("GET /roots/0 HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(roots.status, 200);
        Client::trusting_pem(roots.text())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

fn binary() -> PathBuf {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/bin/pebble"));
    let named = std::env::var_os("PEBBLE").map(PathBuf::from);
    let found = named.or_else(|| own.is_file().then_some(own)).or_else(|| process::program("pebble"));
    found.expect("pebble is not installed: `make test` builds it")
}

/// Answers that every name is at 127.0.0.1, over TCP, which is what Pebble asks with.
struct NameServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    fn start() -> NameServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                // Who leaves early asks again.
                let _ = stream.and_then(converse);
            }
        });
        NameServer { address, stop, thread: Some(thread) }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Messages of RFC 1035 section 4.2.2, until the other side ends.
fn converse(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        let answer = answer(&query).ok_or(io::ErrorKind::InvalidData)?;
        let length = u16::try_from(answer.len()).expect("a short answer").to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat())?;
    }
}

/// The answer to a query of RFC 1035 with one question: an address for `A`, nothing for anything else.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|byte| *byte == 0)?;
    let question = query.get(12..12 + name + 5)?;
    let is_a = question.ends_with(&[0, 1, 0, 1]);
    let mut answer = query.get(..2)?.to_vec();
    answer.extend_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    if is_a {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}
