//! A TLS connection of the load, and one HTTP/1.1 exchange on it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::Answer;
use crate::error::{Error, Result};
use crate::tls::server_name;

/// The longest that opening a connection, or an exchange on it, may take.
const PATIENCE: Duration = Duration::from_secs(10);
const READ_BUFFER: usize = 16 * 1024;

/// A connection whose handshake is done.
pub struct TlsClient {
    stream: TlsStream<TcpStream>,
}

impl TlsClient {
    pub async fn open(port: u16, config: Arc<ClientConfig>) -> Result<Self> {
        let name = server_name()?;
        let opening = async {
            let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            socket.set_nodelay(true)?;
            TlsConnector::from(config).connect(name, socket).await
        };
        let stream = in_time(opening).await.map_err(Error::io("opening a TLS connection"))?;
        Ok(Self { stream })
    }

    /// Whether the session was resumed.
    pub fn handshake_kind(&self) -> Option<HandshakeKind> {
        self.stream.get_ref().1.handshake_kind()
    }

    /// Sends a request and reads its answer, which must be a 200 with a content-length.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        in_time(self.stream.write_all(request)).await.map_err(Error::io("sending a request"))?;
        let mut answer = Answer::default();
        let mut buffer = [0; READ_BUFFER];
        loop {
            let received = in_time(self.stream.read(&mut buffer)).await.map_err(Error::io("reading an answer"))?;
            if received == 0 {
                return Err(Error::FailedLoad { detail: "the proxy closed a connection before its answer".to_owned() });
            }
            if answer.take(&buffer[..received])? {
                return Ok(());
            }
        }
    }

    /// Says goodbye and closes. The answer is there already, so whether the proxy still listens does not matter.
    pub async fn close(mut self) {
        let _ = in_time(self.stream.shutdown()).await;
    }
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
