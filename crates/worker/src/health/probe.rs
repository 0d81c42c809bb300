//! How a host is checked: over HTTP, gRPC or plain TCP, on a connection that is kept for the next check, or with a datagram.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use ::h2::client::SendRequest;
use bytes::Bytes;
use postrider_filter_api::{Moment, StreamInfo};
use postrider_http::{BodyFraming, Fields, HeaderId, RequestHead, ResponseHead, Scheme, Version, grpc as framing};
use postrider_model::{
    Address, CheckKind, Endpoint, EndpointCheck, GrpcCheck, HeaderEdits, HealthCheck, HttpCheck, UdpCheck,
    UpstreamProtocol,
};
use postrider_upstream::health::Outcome;
use tokio::net::UdpSocket;

use super::counts::Counts;
use super::exchange::{Answer, Question, ask, send};
use super::grpc;
use super::talk::{Talk, contains_in_order};
use crate::cluster::{self, Cluster};
use crate::format::{Context as Formats, OfUpstream};
use crate::h2;
use crate::http::{add_fields, evaluate_edits, remove_fields};
use crate::io::Io;
use crate::plan::{ClusterPlan, Transport};
use crate::proxy_protocol;
use crate::worker::Worker;

/// Bytes of an answer over TCP among which the expected ones are looked for.
const MAX_TCP_ANSWER: usize = 64 * 1024;

/// Everything that is needed to check one host again and again.
pub(super) struct Probe {
    plan: Arc<ClusterPlan>,
    /// Which of the cluster's checks this is.
    index: usize,
    address: Address,
    /// What else the configuration says of it: its name, for TLS, and what decides on its transport.
    endpoint: Arc<Endpoint>,
    kind: Kind,
    link: Option<Link>,
    /// Of the last answer over HTTP.
    status: u16,
}

enum Kind {
    Http { head: RequestHead, check: Box<HttpCheck> },
    Grpc { head: RequestHead, body: Vec<u8>, check: Box<GrpcCheck>, timeout: Duration },
    Tcp(Talk),
    Udp(UdpCheck),
}

/// A connection.
enum Link {
    Plain(Io),
    Http2 { send: SendRequest<Bytes>, _driver: Driver },
}

/// What moves the frames of a connection, which ends with it.
struct Driver(tokio::task::AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Probe {
    pub(super) fn new(
        plan: &Arc<ClusterPlan>,
        (index, check): (usize, &HealthCheck),
        endpoint: &Arc<Endpoint>,
    ) -> Probe {
        let own = endpoint.check.as_deref();
        let host = |configured: &str| {
            let own = own.map(|own| own.hostname.as_str()).filter(|name| !name.is_empty());
            own.or(Some(configured).filter(|name| !name.is_empty())).unwrap_or(&plan.name).to_owned()
        };
        let begun = |host: &str, http2: bool| {
            let mut head = RequestHead::new();
            if http2 {
                head.set_version(Version::Http2);
            }
            let secure = transport(plan, check, endpoint).tls.is_some();
            head.set_scheme(if secure { Scheme::Https } else { Scheme::Http });
            // What cannot be written into a head was refused with the configuration.
            let _ = head.set_authority(host.as_bytes());
            let _ = head.fields.set(HeaderId::UserAgent, check.user_agent.as_bytes());
            head
        };
        let kind = match &check.kind {
            CheckKind::Http(http) => {
                Kind::Http { head: http_head(http, begun(&host(&http.host), http.http2)), check: http.clone() }
            }
            CheckKind::Grpc(grpc) => Kind::Grpc {
                head: grpc_head(begun(&host(&grpc.authority), true)),
                body: grpc::body(&grpc.service),
                check: grpc.clone().into(),
                timeout: check.timeout,
            },
            CheckKind::Tcp(tcp) => Kind::Tcp(Talk::of_bytes(tcp)),
            CheckKind::Redis(redis) => Kind::Tcp(Talk::of_redis(redis)),
            CheckKind::Thrift(thrift) => Kind::Tcp(Talk::of_thrift(thrift)),
            CheckKind::Udp(udp) => Kind::Udp(udp.clone()),
        };
        Probe {
            plan: plan.clone(),
            index,
            address: address(endpoint, own),
            endpoint: endpoint.clone(),
            kind,
            link: None,
            status: 0,
        }
    }

    /// The status of the last check's answer; 0 when there was none.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// The next check begins with a new connection.
    pub(super) fn close(&mut self) {
        self.link = None;
    }

    /// Checks once.
    pub(super) async fn run(&mut self, cluster: &Cluster, worker: &Worker, counts: &Counts) -> Outcome {
        self.status = 0;
        let checked = match &self.kind {
            Kind::Tcp(talk) => {
                let talk = talk.clone();
                self.check_tcp(&talk, cluster, worker, counts).await
            }
            Kind::Udp(check) => check_udp(check, &self.address).await,
            Kind::Http { .. } | Kind::Grpc { .. } => self.check_http(cluster, worker, counts).await,
        };
        checked.unwrap_or_else(|_| {
            self.close();
            Outcome::Unreachable
        })
    }

    async fn check_http(&mut self, cluster: &Cluster, worker: &Worker, counts: &Counts) -> io::Result<Outcome> {
        let http2 = match &self.kind {
            Kind::Http { check, .. } => check.http2,
            Kind::Grpc { .. } | Kind::Tcp(_) | Kind::Udp(_) => true,
        };
        let mut link = match self.link.take() {
            Some(link) => match usable(link).await {
                Some(link) => link,
                None => self.connect(cluster, worker, http2).await?,
            },
            None => self.connect(cluster, worker, http2).await?,
        };
        let limits = cluster.response_limits();
        let head = &self.head(cluster, worker.clock.wall(worker.clock.exact()));
        let question = match &self.kind {
            Kind::Http { check, .. } => {
                let keep = match check.look_at {
                    _ if check.receive.is_empty() => 0,
                    0 => usize::MAX,
                    most => usize::try_from(most).unwrap_or(usize::MAX),
                };
                let framing = match check.body.len() {
                    0 => BodyFraming::None,
                    length => BodyFraming::Length(length as u64),
                };
                Question { head, body: &check.body, framing, keep, goes_on: |_| true }
            }
            // Without a length: messages are how gRPC tells where a body ends.
            Kind::Grpc { body, .. } => {
                Question { head, body, framing: BodyFraming::Chunked, keep: usize::MAX, goes_on: grpc::goes_on }
            }
            Kind::Tcp(_) | Kind::Udp(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let answer = match &mut link {
            Link::Plain(io) => ask(io, &question, limits, &worker.buffers).await?,
            Link::Http2 { send, .. } => {
                let mut io = Io::Http2(Box::new(h2::Stream::to_upstream(send.clone(), None)));
                ask(&mut io, &question, limits, &worker.buffers).await?
            }
        };
        let goes_on = answer.persistent || matches!(link, Link::Http2 { .. });
        self.link = goes_on.then_some(link);
        Ok(match &self.kind {
            Kind::Http { check, .. } => {
                self.status = answer.head.status();
                self.judge_http(check, &answer, counts)
            }
            Kind::Grpc { .. } | Kind::Tcp(_) | Kind::Udp(_) => grpc::judge(&answer),
        })
    }

    /// What the next check asks, over HTTP.
    fn head(&self, cluster: &Cluster, now: SystemTime) -> RequestHead {
        let (head, edits) = match &self.kind {
            Kind::Http { head, check } => (head, &check.headers),
            Kind::Grpc { head, check, .. } => (head, &check.metadata),
            Kind::Tcp(_) | Kind::Udp(_) => return RequestHead::new(),
        };
        let mut head = head.clone();
        edit(edits, &mut head, &self.endpoint, cluster, now);
        if let Kind::Grpc { timeout, .. } = &self.kind {
            let mut value = Vec::new();
            framing::write_timeout(*timeout, &mut value);
            let _ = head.fields.set(HeaderId::GrpcTimeout, &value);
        }
        head
    }

    fn judge_http(&self, check: &HttpCheck, answer: &Answer, counts: &Counts) -> Outcome {
        let status = answer.head.status();
        let excluded = answer.head.fields.get_name(b"x-envoy-immediate-health-check-fail").is_some();
        if !contains_in_order(&answer.body, &check.receive) {
            return Outcome::Refused { retriable: false, excluded };
        }
        if !check.expected.iter().any(|range| range.contains(status)) {
            let retriable = check.retriable.iter().any(|range| range.contains(status));
            return Outcome::Refused { retriable, excluded };
        }
        if let Some(Some(test)) = self.plan.check_services.get(self.index) {
            counts.verified();
            if !test.holds_for_answer(&answer.head) {
                return Outcome::REFUSED;
            }
        }
        Outcome::Healthy { degraded: answer.head.fields.get_name(b"x-envoy-degraded").is_some() }
    }

    async fn check_tcp(
        &mut self,
        talk: &Talk,
        cluster: &Cluster,
        worker: &Worker,
        counts: &Counts,
    ) -> io::Result<Outcome> {
        let kept = match self.link.take() {
            Some(Link::Plain(mut io)) => is_quiet(&mut io).then_some(io),
            Some(Link::Http2 { .. }) | None => None,
        };
        let mut io = match kept {
            Some(io) => io,
            None => self.open_tcp(talk, cluster, worker).await?,
        };
        if talk.expected.is_nothing() {
            // That there is a connection is all that was asked.
            return Ok(Outcome::Healthy { degraded: false });
        }
        send(&mut io, &talk.send).await?;
        let mut received = Vec::new();
        let mut room = [0; 4096];
        let is_healthy = loop {
            if let Some(verdict) = talk.expected.judge(&received) {
                break verdict;
            }
            let count = poll_fn(|cx| io.poll_read(cx, &mut room)).await?;
            if count == 0 || received.len() > MAX_TCP_ANSWER {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            received.extend_from_slice(room.get(..count).unwrap_or_default());
        };
        self.link = Some(Link::Plain(io));
        if is_healthy {
            return Ok(Outcome::Healthy { degraded: false });
        }
        if talk.expected.is_absence() {
            counts.exists();
        }
        Ok(Outcome::REFUSED)
    }

    async fn open_tcp(&self, talk: &Talk, cluster: &Cluster, worker: &Worker) -> io::Result<Io> {
        let mut io = self.open(cluster, worker, None).await?;
        if let Some(header) = &talk.proxy_header {
            let remote = match &self.address {
                Address::Tcp(remote) => Some(*remote),
                Address::Unix { .. } => None,
            };
            let bytes = proxy_protocol::write(header, None, &[], io.local().zip(remote)).bytes;
            send(&mut io, &bytes).await?;
        }
        Ok(io)
    }

    async fn connect(&self, cluster: &Cluster, worker: &Worker, http2: bool) -> io::Result<Link> {
        let protocol = if http2 { UpstreamProtocol::Http2 } else { UpstreamProtocol::Http1 };
        let io = self.open(cluster, worker, Some(protocol)).await?;
        if !http2 {
            return Ok(Link::Plain(io));
        }
        let (send, driver) = h2::begin(io, &self.plan.model.upstream).await.map_err(io::Error::other)?;
        let driver = Driver(tokio::task::spawn_local(driver).abort_handle());
        Ok(Link::Http2 { send, _driver: driver })
    }

    async fn open(&self, cluster: &Cluster, worker: &Worker, protocol: Option<UpstreamProtocol>) -> io::Result<Io> {
        let check = self.plan.model.health.checks.get(self.index);
        let own = check.map(|check| check.alpn.as_slice()).unwrap_or_default();
        let own: Vec<&[u8]> = own.iter().map(String::as_bytes).collect();
        let alpn = if own.is_empty() { cluster::alpn(protocol) } else { Some(own.as_slice()) };
        let transport = match check {
            Some(check) => {
                if let Some(said) = check.transport_by.as_deref() {
                    cluster.count_transport(&self.endpoint, Some(said), worker);
                }
                transport(&self.plan, check, &self.endpoint)
            }
            None => self.plan.transport_for(&self.endpoint),
        };
        let place = (&self.address, self.endpoint.hostname.as_str());
        Ok(cluster.open(worker, transport, place, alpn, None).await?.io)
    }
}

/// A socket for each check, which hears nobody but the host. What is not the answer that is expected is passed over.
async fn check_udp(check: &UdpCheck, address: &Address) -> io::Result<Outcome> {
    let Address::Tcp(address) = address else { return Err(io::ErrorKind::Unsupported.into()) };
    let any = match address {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    socket.send(&check.send).await?;
    // One byte more than is wanted: a longer datagram is another one.
    let mut room = vec![0; check.receive.len() + 1];
    loop {
        let count = socket.recv(&mut room).await?;
        if room.get(..count) == Some(check.receive.as_slice()) {
            return Ok(Outcome::Healthy { degraded: false });
        }
    }
}

/// The connection if it can carry another request: the peer may have ended it since, or wants no more of them.
async fn usable(link: Link) -> Option<Link> {
    let mut link = link;
    let good = match &mut link {
        Link::Plain(io) => is_quiet(io),
        Link::Http2 { send, .. } => match send.clone().ready().await {
            Ok(ready) => {
                *send = ready;
                true
            }
            Err(_) => false,
        },
    };
    good.then_some(link)
}

/// Nothing came, not even the end.
fn is_quiet(io: &mut Io) -> bool {
    io.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// How the host is reached by this check.
fn transport<'p>(plan: &'p ClusterPlan, check: &HealthCheck, endpoint: &Endpoint) -> &'p Transport {
    match check.transport_by.as_deref() {
        Some(said) => plan.transport_by(endpoint, Some(said)),
        None => plan.transport_for(endpoint),
    }
}

/// Where the host is asked: an address of its own has a port of its own, and `port` stands above both.
fn address(endpoint: &Endpoint, own: Option<&EndpointCheck>) -> Address {
    let address = own.and_then(|own| own.address.as_ref()).unwrap_or(&endpoint.address);
    match (address, own.and_then(|own| own.port)) {
        (Address::Tcp(address), Some(port)) => Address::Tcp(SocketAddr::new(address.ip(), port)),
        (address, _) => address.clone(),
    }
}

fn http_head(check: &HttpCheck, mut head: RequestHead) -> RequestHead {
    let _ = head.set_method(check.method.as_bytes());
    let _ = head.set_path(check.path.as_bytes());
    head
}

fn grpc_head(mut head: RequestHead) -> RequestHead {
    let _ = head.set_method(b"POST");
    let _ = head.set_path(b"/grpc.health.v1.Health/Check");
    let _ = head.fields.set(HeaderId::ContentType, framing::CONTENT_TYPE);
    let _ = head.fields.set(HeaderId::Te, b"trailers");
    head
}

/// Formats have no stream to tell of, but the host that is asked. As in Envoy, a check has both ends of a client's connection at an
/// address that nobody has, and no request; what else formats ask for is absent.
fn edit(edits: &HeaderEdits, head: &mut RequestHead, endpoint: &Endpoint, cluster: &Cluster, now: SystemTime) {
    let mut info = StreamInfo::new(Moment::default(), now);
    info.upstream_remote = Some(endpoint.address.to_string().into());
    let nobody = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    (info.downstream_local, info.downstream_remote, info.downstream_direct_remote) = (nobody, nobody, nobody);
    let mut request = RequestHead::new();
    request.set_version(head.version());
    let mut values = evaluate_edits(
        edits,
        &Formats {
            request: &request,
            response: &ResponseHead::new(),
            trailers: &Fields::new(),
            info: &info,
            route: None,
            weighted: None,
            reply_body: &[],
            http: true,
            now,
            upstream: OfUpstream { cluster: Some(cluster), ..OfUpstream::default() },
        },
    );
    remove_fields(edits, &mut head.fields);
    add_fields(edits, &mut head.fields, &mut values);
}
