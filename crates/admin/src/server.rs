//! The socket, the thread and the connections.
//!
//! One thread with a runtime of its own serves all connections; a handler runs to its end there, and large answers are made
//! in chunks as the client reads them. Every limit is below.

use crate::control::Control;
use crate::counts::{Counts, Metered};
use crate::endpoints::{Endpoint, Endpoints};
use crate::request::{Request, parse_query};
use crate::response::{Order, Reply};
use crate::told::{Ends, Logged, Told};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use postrider_model::Address;
use postrider_telemetry::{error, warning};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

/// Connections served at a time; further ones wait to be accepted.
pub const MAX_CONNECTIONS: usize = 64;
/// Request line and headers together; more is answered with 431.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Header lines; more are answered with 431.
pub const MAX_HEADERS: usize = 64;
/// A request's body; more is answered with 413.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a client may take for a head, and stay idle between requests.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may last, so that clients which do not read cannot hold all of them for ever. `/tap` may take
/// longer: there is one at a time.
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);
/// How long [`Server::stop`] waits for answers that are being sent.
pub const STOP_GRACE: Duration = Duration::from_secs(1);
/// The admin's statistics are nobody's worker.
const NO_WORKER: u32 = u32::MAX;
/// Of a body that has parameters.
const FORM: &str = "application/x-www-form-urlencoded";
/// How long to wait after a failed accept, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The running admin interface. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: Address,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds `address` and starts the thread. `more` adds endpoints of the caller's beside Envoy's. Fails when the address
    /// cannot be bound or the system refuses a thread.
    pub fn start(address: &Address, control: Arc<dyn Control>, more: Vec<Endpoint>) -> io::Result<Self> {
        let (bound, address) = Bound::bind(address)?;
        if let Address::Tcp(bound) = &address
            && !bound.ip().is_loopback()
        {
            warning!(
                Admin,
                "the admin listens on {bound}, where other machines may reach it: it has no authentication"
            );
        }
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = mpsc::sync_channel(1);
        // The runtime is made and dropped there: no other runtime's thread may drop one, and the caller's may be such.
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            let started = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
                let listener = runtime.block_on(async { bound.listen() })?;
                Ok((runtime, listener))
            });
            match started {
                Ok((runtime, listener)) => {
                    let counts = Counts::new(&control.statistics().worker(NO_WORKER));
                    let endpoints = Endpoints::new(control, more);
                    let _ = tell.send(Ok(()));
                    tokio::task::LocalSet::new()
                        .block_on(&runtime, serve(listener, Rc::new(endpoints), counts, stopped));
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        // A thread that ends without a word has panicked, which it has told.
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the admin's thread ended")))?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Stops accepting, waits [`STOP_GRACE`] for answers under way, and ends the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            // An error means that the thread is gone already.
            let _ = self.stop.send(true);
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A socket that takes connections, before there is a runtime to accept them.
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Bound {
    /// The socket, and its address with the port that the system chose.
    fn bind(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(wanted) => {
                let listener = std::net::TcpListener::bind(wanted)?;
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                Ok((Self::Tcp(listener), Address::Tcp(bound)))
            }
            Address::Unix { path, mode } => {
                let listener = bind_unix(path)?;
                if let (Some(mode), None) = (mode, abstract_name(path)) {
                    std::fs::set_permissions(path, std::fs::Permissions::from_mode(*mode))?;
                }
                listener.set_nonblocking(true)?;
                Ok((Self::Unix(listener), address.clone()))
            }
        }
    }

    /// Within a runtime.
    fn listen(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Self::Unix(listener) => Listener::Unix(tokio::net::UnixListener::from_std(listener)?),
        })
    }
}

enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Box<dyn Socket>, Ends)> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                // A small answer should not wait for an acknowledgement; failing that, it is only slower.
                let _ = socket.set_nodelay(true);
                let ends = Ends { local: socket.local_addr().ok(), peer: Some(peer) };
                Ok((Box::new(socket), ends))
            }
            Self::Unix(listener) => Ok((Box::new(listener.accept().await?.0), Ends::default())),
        }
    }
}

trait Socket: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Socket for T {}

/// A socket file that a process left behind is in the way of the next one, as in Envoy; a file of another kind is not ours.
fn bind_unix(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    if let Some(name) = abstract_name(path) {
        return std::os::unix::net::UnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?);
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    std::os::unix::net::UnixListener::bind(path)
}

fn abstract_name(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_encoded_bytes().strip_prefix(b"@")
}

/// Accepts until told to stop, then lets answers under way finish.
async fn serve(listener: Listener, endpoints: Rc<Endpoints>, counts: Rc<Counts>, mut stopped: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = stopped.changed() => break,
        };
        match accepted {
            Ok((socket, ends)) => {
                let feeds = Rc::<Cell<bool>>::default();
                let connection =
                    connection(socket, ends, (endpoints.clone(), counts.clone()), stopped.clone(), feeds.clone());
                tokio::task::spawn_local(async move {
                    let _slot = slot;
                    tokio::pin!(connection);
                    // What is left at the end of its time is cut off.
                    let in_time = tokio::time::timeout(CONNECTION_LIFETIME, connection.as_mut()).await;
                    if in_time.is_err() && feeds.get() {
                        connection.await;
                    }
                });
            }
            Err(failure) => {
                error!(Admin, "cannot accept a connection: {failure}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = slots.acquire_many(MAX_CONNECTIONS as u32);
    let _ = tokio::time::timeout(STOP_GRACE, all).await;
}

async fn connection(
    socket: Box<dyn Socket>,
    ends: Ends,
    (endpoints, counts): (Rc<Endpoints>, Rc<Counts>),
    mut stopped: watch::Receiver<bool>,
    feeds: Rc<Cell<bool>>,
) {
    let counted = counts.accepted();
    let socket = Metered { socket, counts: counts.clone() };
    let orders: Rc<RefCell<Vec<Order>>> = Rc::default();
    let of_answers = feeds.clone();
    let of_service = orders.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (endpoints, orders, feeds) = (endpoints.clone(), of_service.clone(), of_answers.clone());
        let counts = counts.clone();
        async move {
            let (mut told, reply) = answer(request, ends, endpoints, &counts).await;
            feeds.set(reply.is_feed());
            let (response, order) = reply.into_parts();
            orders.borrow_mut().extend(order);
            told.answered(&response);
            Ok::<Response<Logged>, Infallible>(response.map(|body| Logged { body, told }))
        }
    });
    let mut protocol = http1::Builder::new();
    protocol.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let serving = protocol.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(serving);
    // An error is the client's doing: it went away, or sent no HTTP.
    tokio::select! {
        _ = serving.as_mut() => counted.left(),
        _ = stopped.changed() => {
            // An answer without an end is cut off.
            if !feeds.get() {
                serving.as_mut().graceful_shutdown();
                let _ = serving.await;
            }
        }
    }
    // The answers were flushed: now what they announced may happen.
    let orders = orders.take();
    orders.into_iter().for_each(|order| order());
}

/// Whether it asks for a path, by a known method, and says which host is meant as RFC 9112, section 3.2, wants it: HTTP/1.1 in
/// one line, HTTP/1.0 in one at most. hyper has looked at the rest.
fn is_well_formed(head: &Parts) -> bool {
    const METHODS: [Method; 8] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
        Method::TRACE,
    ];
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let has_host = match (hosts.next(), hosts.next()) {
        (None, _) => head.version == Version::HTTP_10,
        (Some(host), None) => is_host(host.as_bytes()),
        (Some(_), Some(_)) => false,
    };
    has_host && METHODS.contains(&head.method) && !head.uri.path().is_empty()
}

/// Empty, or a host with or without a port (RFC 9110, section 7.2).
fn is_host(value: &[u8]) -> bool {
    value.is_empty() || !value.contains(&b'@') && Authority::try_from(value).is_ok()
}

/// Whether the body has parameters; what stands behind the type says nothing else (RFC 9110, section 8.3.1).
fn is_form(fields: &HeaderMap) -> bool {
    let kind = fields.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.and_then(|kind| kind.split(';').next()).is_some_and(|kind| kind.trim().eq_ignore_ascii_case(FORM))
}

async fn answer(
    request: hyper::Request<Incoming>,
    ends: Ends,
    endpoints: Rc<Endpoints>,
    counts: &Counts,
) -> (Told, Reply) {
    let begun = Instant::now();
    counts.begun();
    let (head, body) = request.into_parts();
    let from_a_page = head.headers.contains_key(header::ORIGIN);
    let accept = head.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let allowed = endpoints.control().allows(target);
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let mut received = 0;
    let reply = match body {
        _ if !is_well_formed(&head) => Reply::bad_request("Bad Request"),
        _ if !allowed => Reply::refusal(StatusCode::FORBIDDEN, format!("request to path {target} not allowed")),
        Ok(body) => {
            let body = body.to_bytes().to_vec();
            received = body.len() as u64;
            let mut query = parse_query(head.uri.query().unwrap_or(""));
            // As in Envoy, a form counts where the path says nothing.
            if query.is_empty() && is_form(&head.headers) {
                query = parse_query(&String::from_utf8_lossy(&body));
            }
            endpoints.answer(
                &Request {
                    method: head.method.as_str().to_string(),
                    path: head.uri.path().to_string(),
                    query,
                    accept,
                    body,
                    peer: ends.peer,
                },
                from_a_page,
            )
        }
        Err(_) => Reply::refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have {MAX_BODY_BYTES} bytes\n")),
    };
    counts.answered(reply.status(), begun.elapsed());
    (Told::new(endpoints, head, received, ends, begun), reply)
}
