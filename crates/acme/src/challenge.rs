//! HTTP-01 (RFC 8555 section 8.3): what an authority must find at `/.well-known/acme-challenge/TOKEN`, served on a Unix
//! socket that a route of the proxy leads to.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

const PREFIX: &str = "/.well-known/acme-challenge/";

/// Anybody can ask for a token; so many at once are listened to.
const MAX_CONNECTIONS: usize = 64;

/// For a request's head, and between two of a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers to the challenges of orders under way, by token.
#[derive(Debug, Clone, Default)]
pub(crate) struct Challenges(Arc<Mutex<HashMap<String, String>>>);

/// An answer; dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Offer {
    challenges: Challenges,
    token: String,
}

impl Challenges {
    pub(crate) fn offer(&self, token: &str, answer: &str) -> Offer {
        self.lock().insert(token.to_owned(), answer.to_owned());
        Offer { challenges: self.clone(), token: token.to_owned() }
    }

    fn find(&self, token: &str) -> Option<String> {
        self.lock().get(token).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.challenges.lock().remove(&self.token);
    }
}

/// The socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// # Errors
    /// The system's; `AddrInUse` when another process answers there: two must not order the same certificates.
    pub(crate) async fn bind(path: &Path) -> io::Result<Socket> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Socket { listener, path: path.to_owned() })
    }

    /// Answers for ever.
    pub(crate) async fn serve(&self, challenges: &Challenges) -> Infallible {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of descriptors, most likely: they come back.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let challenges = challenges.clone();
            tokio::spawn(async move {
                let _place = place;
                let answer = service_fn(move |request| {
                    let response = answer(&request, &challenges);
                    async move { Ok::<_, Infallible>(response) }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(16 * 1024);
                // A peer that leaves is no matter.
                let _ = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // One that stays is replaced by the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(request: &Request<Incoming>, challenges: &Challenges) -> Response<Full<Bytes>> {
    let token = request.uri().path().strip_prefix(PREFIX).filter(|_| request.method() == Method::GET);
    let found = token.and_then(|token| challenges.find(token));
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let mut response = Response::new(Full::from(found.unwrap_or_default()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(path: &Path, target: &str) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn tokens_are_answered_while_they_are_offered() {
        let settings = crate::store::tests::settings("challenge");
        std::fs::create_dir_all(&settings.state).unwrap();
        let path = settings.challenge_socket();
        std::fs::write(&path, "left by a crash").unwrap();
        let socket = Socket::bind(&path).await.unwrap();
        let challenges = Challenges::default();
        let offer = challenges.offer("token", "token.thumb");
        let exchange = async {
            let found = ask(&path, "/.well-known/acme-challenge/token").await;
            assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("\r\n\r\ntoken.thumb"), "{found}");
            for other in ["/.well-known/acme-challenge/other", "/token", "/.well-known/acme-challenge/"] {
                assert!(ask(&path, other).await.starts_with("HTTP/1.1 404"), "{other}");
            }
            drop(offer);
            assert!(ask(&path, "/.well-known/acme-challenge/token").await.starts_with("HTTP/1.1 404"));
            let second = Socket::bind(&path).await;
            assert_eq!(second.map(|_| ()).map_err(|error| error.kind()), Err(io::ErrorKind::AddrInUse));
        };
        tokio::select! {
            () = exchange => {}
            never = socket.serve(&challenges) => match never {},
        }
        drop(socket);
        assert!(!path.exists());
        std::fs::remove_dir_all(&settings.state).unwrap();
    }
}
