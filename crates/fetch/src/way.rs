//! How a server is reached: its addresses, and TLS if it speaks that.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hyper::Uri;
use postrider_filter_plugin::without_user;
use postrider_tls::rustls::pki_types::ServerName;
use postrider_tls::rustls::{ClientConfig, RootCertStore};
use postrider_tls::{ClientTls, Target};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Where a server is, and how it is spoken to. HTTP/1.1 in any case.
#[derive(Debug, Clone)]
pub struct Way {
    /// Tried in their order.
    pub endpoints: Vec<Endpoint>,
    tls: Option<Tls>,
}

#[derive(Debug, Clone)]
pub enum Endpoint {
    /// With its host name, where it has one.
    Address(SocketAddr, Option<String>),
    Unix(PathBuf),
    Name(String, u16),
}

#[derive(Debug, Clone)]
enum Tls {
    /// As a cluster has it.
    Cluster(Arc<ClientTls>),
    /// By the system's roots.
    System,
}

/// Bytes both ways.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

impl Way {
    /// That of a cluster.
    pub fn of_cluster(endpoints: Vec<Endpoint>, tls: Option<Arc<ClientTls>>) -> Way {
        Way { endpoints, tls: tls.map(Tls::Cluster) }
    }

    /// That which a URL says.
    ///
    /// # Errors
    /// It has no host, or another scheme than `http` and `https`.
    pub(crate) fn of_url(url: &str) -> Result<Way, String> {
        // Errors do not show who asks.
        let (url, _) = without_user(url);
        let uri: Uri = url.parse().map_err(|error| format!("`{url}` is no URL: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => Some(Tls::System),
            Some("http") => None,
            _ => return Err(format!("`{url}` is neither http nor https")),
        };
        let host = bare(uri.host().unwrap_or_default());
        if host.is_empty() {
            return Err(format!("`{url}` names no host"));
        }
        let port = uri.port_u16().unwrap_or(if tls.is_some() { HTTPS_PORT } else { HTTP_PORT });
        Ok(Way { endpoints: vec![Endpoint::Name(host.to_owned(), port)], tls })
    }

    /// Whether nobody on the way can read along.
    pub(crate) fn is_private(&self) -> bool {
        self.tls.is_some()
    }

    /// A connection for a request to `host`.
    ///
    /// # Errors
    /// Why the last endpoint cannot be reached.
    pub(crate) async fn connect(&self, host: &str) -> Result<Box<dyn Connection>, String> {
        let mut failed = "there is no endpoint".to_owned();
        for endpoint in &self.endpoints {
            match self.connect_to(endpoint, host).await {
                Ok(connection) => return Ok(connection),
                Err(reason) => failed = reason,
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, endpoint: &Endpoint, host: &str) -> Result<Box<dyn Connection>, String> {
        let (name, known) = match endpoint {
            Endpoint::Address(address, known) => (address.to_string(), known.as_deref()),
            Endpoint::Unix(path) => (path.display().to_string(), None),
            Endpoint::Name(known, port) => (format!("{known}:{port}"), Some(known.as_str())),
        };
        let failed = |error: io::Error| format!("{name}: {error}");
        let stream: Box<dyn Connection> = match endpoint {
            Endpoint::Address(address, _) => Box::new(TcpStream::connect(address).await.map_err(failed)?),
            Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(failed)?),
            Endpoint::Name(host, port) => Box::new(TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?),
        };
        let (config, server) = match &self.tls {
            None => return Ok(stream),
            Some(Tls::Cluster(tls)) => {
                let target = Target { endpoint_host: known, request_host: Some(host), ..Target::default() };
                (tls.config().clone(), tls.server_name(&target).map_or_else(|| server_name(host), Ok)?)
            }
            Some(Tls::System) => (system()?, server_name(host)?),
        };
        let stream = TlsConnector::from(config).connect(server, stream).await;
        let stream = stream.map_err(|error| format!("TLS with {name}: {error}"))?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            return Err(format!("{name} speaks HTTP/2; code is fetched by HTTP/1.1"));
        }
        Ok(Box::new(stream))
    }
}

/// A host without a port or brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(bare(host).to_owned()).map_err(|_| format!("`{host}` is no name for TLS"))
}

/// Trusts whom the system trusts (`SSL_CERT_FILE` names others); read once.
fn system() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Option<Arc<ClientConfig>>> = OnceLock::new();
    let made = CONFIG.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = || ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
        (!roots.is_empty()).then(|| Arc::new(config()))
    });
    made.clone().ok_or_else(|| "the system has no root certificate to trust a server by".to_owned())
}
