//! An upstream over TLS: it notes what each connection asked for, and answers every GET with the same bytes.

use crate::kit::DEADLINE;
use crate::tls::{Authority, Identity};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What the proxy said when it connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    pub server_name: Option<String>,
    pub version: String,
    pub protocol: String,
    /// It showed a certificate.
    pub certified: bool,
}

/// A running origin; accepts no more once it is dropped.
pub struct TlsOrigin {
    pub address: SocketAddr,
    hellos: Arc<Mutex<Vec<Hello>>>,
    received: Arc<Mutex<Vec<u8>>>,
    stopping: Arc<AtomicBool>,
}

/// How it serves.
pub struct Serving {
    config: ServerConfig,
    answer: Vec<u8>,
    /// Ends each connection behind the answer.
    once: bool,
    /// Says so before it ends a connection.
    polite: bool,
}

impl Serving {
    pub fn new(identity: &Identity) -> Self {
        Self::speaking(identity, rustls::DEFAULT_VERSIONS)
    }

    pub fn speaking(identity: &Identity, versions: &[&'static SupportedProtocolVersion]) -> Self {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(versions).expect("versions").with_no_client_auth();
        Self::with(builder.with_single_cert(vec![identity.der.clone()], identity.key()).expect("an identity"))
    }

    /// Wants a certificate that `clients` signed.
    pub fn requiring(identity: &Identity, clients: &Authority) -> Self {
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots(), Arc::clone(&provider));
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(rustls::DEFAULT_VERSIONS).expect("versions");
        let builder = builder.with_client_cert_verifier(verifier.build().expect("a verifier"));
        Self::with(builder.with_single_cert(vec![identity.der.clone()], identity.key()).expect("an identity"))
    }

    fn with(config: ServerConfig) -> Self {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
        Self { config, answer, once: false, polite: true }
    }

    pub fn offering(mut self, protocols: &[&str]) -> Self {
        self.config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        self
    }

    /// Sends this and ends the connection, with or without saying so.
    pub fn answering_once(mut self, answer: &str, polite: bool) -> Self {
        self.answer = answer.as_bytes().to_vec();
        self.once = true;
        self.polite = polite;
        self
    }

    pub fn start(self) -> TlsOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let hellos = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::new(Mutex::new(Vec::new()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (kept, stops) = (Arc::clone(&received), Arc::clone(&stopping));
        let origin = TlsOrigin { address, hellos: Arc::clone(&hellos), received: kept, stopping: stops };
        let Self { config, answer, once, polite } = self;
        let (config, answer) = (Arc::new(config), Arc::new(answer));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
                let (hellos, received, answer) = (Arc::clone(&hellos), Arc::clone(&received), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, session, (&hellos, &received), &answer, (once, polite)));
            }
        });
        origin
    }
}

fn serve(
    mut stream: TcpStream,
    mut session: ServerConnection,
    (hellos, all): (&Mutex<Vec<Hello>>, &Mutex<Vec<u8>>),
    answer: &[u8],
    (once, polite): (bool, bool),
) {
    stream.set_read_timeout(Some(DEADLINE)).expect("SO_RCVTIMEO");
    while session.is_handshaking() {
        if session.complete_io(&mut stream).is_err() {
            return;
        }
    }
    hellos.lock().unwrap().push(Hello {
        server_name: session.server_name().map(str::to_owned),
        version: session.protocol_version().map(|version| format!("{version:?}")).unwrap_or_default(),
        protocol: String::from_utf8_lossy(session.alpn_protocol().unwrap_or_default()).into_owned(),
        certified: session.peer_certificates().is_some(),
    });
    let mut tls = StreamOwned::new(session, stream);
    let mut received = Vec::new();
    let mut room = [0; 4096];
    while let Ok(count @ 1..) = tls.read(&mut room) {
        received.extend_from_slice(&room[..count]);
        all.lock().unwrap().extend_from_slice(&room[..count]);
        if !received.ends_with(b"\r\n\r\n") {
            continue;
        }
        received.clear();
        if tls.write_all(answer).and_then(|()| tls.flush()).is_err() || once {
            break;
        }
    }
    if polite {
        tls.conn.send_close_notify();
        let _ = tls.flush();
    }
}

impl TlsOrigin {
    /// All bytes of all connections.
    pub fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }

    /// What each connection asked for, in the order in which they agreed.
    pub fn hellos(&self) -> Vec<Hello> {
        self.hellos.lock().unwrap().clone()
    }
}

impl Drop for TlsOrigin {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}
