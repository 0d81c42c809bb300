//! Requests to the authority: HTTP/1.1 over TLS, a connection for each. There are a dozen in two months.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Limited;
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use postrider_tls::rustls::pki_types::pem::PemObject;
use postrider_tls::rustls::pki_types::{CertificateDer, ServerName};
use postrider_tls::rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For one request, from the first packet to the last.
const PATIENCE: Duration = Duration::from_secs(30);

/// Largest answer that is read: a chain has some kilobytes.
const MAX_ANSWER: usize = 1 << 20;

const HTTPS_PORT: u16 = 443;

#[derive(Clone)]
pub(crate) struct Client(TlsConnector);

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Client {
    /// One that trusts the roots of a file, or the system's.
    ///
    /// # Errors
    /// There are no roots.
    pub(crate) fn new(roots: Option<&Path>) -> io::Result<Client> {
        let mut store = RootCertStore::empty();
        let certificates = match roots {
            Some(path) => {
                let pem = std::fs::read(path)?;
                CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?
            }
            None => rustls_native_certs::load_native_certs().certs,
        };
        store.add_parsable_certificates(certificates);
        if store.is_empty() {
            return Err(io::Error::other("there is no root certificate to trust the authority by"));
        }
        let config = ClientConfig::builder().with_root_certificates(store).with_no_client_auth();
        Ok(Client(TlsConnector::from(Arc::new(config))))
    }

    async fn exchange(self, mut request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Cause> {
        let uri = request.uri().clone();
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
        let host = host.ok_or_else(|| format!("`{uri}` is no https URL"))?;
        let port = uri.port_u16().unwrap_or(HTTPS_PORT);
        // An IPv6 address stands in brackets there, and nowhere else.
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream =
            TcpStream::connect((bare.as_str(), port)).await.map_err(|error| format!("{host}:{port}: {error}"))?;
        let stream = self.0.connect(ServerName::try_from(bare)?, stream).await;
        let stream = stream.map_err(|error| format!("TLS with {host}:{port}: {error}"))?;
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // What goes wrong on it, the exchange hears.
            let _ = connection.await;
        });
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority)?);
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        *request.uri_mut() = target.parse::<Uri>()?;
        let response = send.send_request(request).await?;
        Ok(BytesResponse::from(response.map(|body| Limited::new(body, MAX_ANSWER))))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let exchange = self.clone().exchange(request);
        Box::pin(async move {
            let outcome = tokio::time::timeout(PATIENCE, exchange).await;
            outcome.unwrap_or_else(|_| Err("the authority does not answer in time".into())).map_err(Error::Other)
        })
    }
}
