//! What the worker does for filters beside carrying messages.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider_http::{Fields, RequestHead, ResponseHead};
use postrider_model::{Format, LogFormat, Metadata, Node, NumberedOption, RateLimit, Redirect, RetryPolicy};

use crate::{
    CallOpen, CallStream, CallTrace, ConnectionHandle, Dial, GrpcCall, GrpcOpen, GrpcStream, Moment, Remote, Stream,
};

/// The worker, as far as filters may use it.
pub trait Host {
    /// Sends a request to a cluster of the configuration. The outcome comes later, never from within this call.
    ///
    /// # Errors
    /// There is no such cluster.
    fn call(&self, call: Call) -> Result<CallHandle, UnknownCluster>;

    /// Opens a request whose body and answer travel in pieces. Its end is heard, never from within this call.
    ///
    /// # Errors
    /// There is no such cluster.
    fn open(&self, open: CallOpen) -> Result<CallStream, UnknownCluster>;

    /// The same as [`Host::call`] for a gRPC call with one message each way.
    ///
    /// # Errors
    /// There is no such cluster.
    fn grpc(&self, call: GrpcCall) -> Result<CallHandle, UnknownCluster>;

    /// Opens a conversation with a gRPC service. That it failed is heard like its end, never from within this call.
    ///
    /// # Errors
    /// There is no such cluster.
    fn converse(&self, open: GrpcOpen) -> Result<GrpcStream, UnknownCluster>;

    /// Opens a plain connection to a host of a cluster. What becomes of it is heard later, never from within this call; it
    /// lasts until one side ends it, whoever keeps the handle.
    ///
    /// # Errors
    /// There is no such cluster.
    fn dial(&self, dial: Dial) -> Result<ConnectionHandle, UnknownCluster>;

    /// Calls `wake` on this worker when so much time has passed, unless the handle was dropped before.
    fn after(&self, time: Duration, wake: Box<dyn FnOnce()>) -> CallHandle;

    /// A way back to this worker for other threads.
    fn remote(&self) -> Remote;

    /// Whether the configuration has a cluster of that name.
    fn has_cluster(&self, name: &str) -> bool;

    /// The hosts of a cluster; `None` when the configuration has no such cluster.
    fn cluster_health(&self, name: &str) -> Option<ClusterHealth>;

    /// Those of one priority; `None` where the cluster has none such.
    fn hosts_of_priority(&self, name: &str, priority: u32) -> Option<ClusterHealth>;

    /// Whether a host of a cluster may be used at the moment; `None` when the cluster has no such host.
    fn host_may_serve(&self, cluster: &str, address: SocketAddr) -> Option<bool>;

    /// How many proxies the cluster lists that this one belongs to; 0 where none is named.
    fn proxies(&self) -> usize;

    /// An operator wants this proxy to say of itself that it is not healthy.
    fn fails_health(&self) -> bool;

    /// Who this proxy says it is.
    fn node(&self) -> Rc<Node>;

    /// The clock as it is now.
    fn now(&self) -> Moment;

    fn wall(&self) -> SystemTime;

    /// Uniform over all numbers.
    fn random(&self) -> u64;

    /// Where a client would be sent that is redirected so instead of being answered: an absolute URI.
    fn location(&self, stream: &Stream<'_>, redirect: &Redirect) -> Vec<u8>;

    /// Whether a route of the stream's table takes a request like this.
    fn has_route(&self, stream: &Stream<'_>, head: &RequestHead) -> bool;

    /// Sets an option of the socket of the stream's client; `false` where the system does not take it, or where the socket is
    /// not the stream's alone (HTTP/2).
    fn set_client_option(&self, option: &NumberedOption) -> bool;

    /// Appends the format's value for this stream; a command without a value stands for nothing.
    fn format(&self, stream: &Stream<'_>, format: &Format, out: &mut Vec<u8>);

    /// Appends what a log would write, `-` for a command without a value; `reply_body` is what `%LOCAL_REPLY_BODY%` stands
    /// for.
    fn write(&self, stream: &Stream<'_>, format: &LogFormat, reply_body: &[u8], out: &mut Vec<u8>);
}

impl fmt::Debug for dyn Host + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

/// A request of a filter's own.
pub struct Call {
    pub cluster: Rc<str>,
    /// With method, path and authority.
    pub head: RequestHead,
    pub body: Vec<u8>,
    /// From now to the end of the answer; `None` is no limit.
    pub timeout: Option<Duration>,
    /// It has a span of its own, and its cluster is told of the trace.
    pub trace: Option<CallTrace>,
    /// How often it is tried anew, and when, within the timeout; `None` is never.
    pub retries: Option<Arc<RetryPolicy>>,
    /// Hears the outcome once, on this worker, unless the handle was dropped before.
    pub done: Box<dyn FnOnce(Result<Answer, CallFailure>)>,
}

/// What a cluster answered.
#[derive(Debug)]
pub struct Answer {
    pub head: ResponseHead,
    pub body: Vec<u8>,
    /// Behind the body.
    pub trailers: Fields,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    Timeout,
    /// No host, no connection, an answer that breaks off or is too long.
    Upstream,
    /// What was said in the place of an answer is no HTTP.
    Malformed,
}

impl CallFailure {
    /// The status of the answer that filters are shown in the place of the one that is missing, as a client would see it.
    pub fn status(self) -> u16 {
        match self {
            CallFailure::Timeout => 504,
            CallFailure::Upstream => 503,
            CallFailure::Malformed => 502,
        }
    }

    /// The same answer's body.
    pub fn text(self) -> &'static str {
        match self {
            CallFailure::Timeout => "upstream request timeout",
            CallFailure::Upstream => "upstream connect error or disconnect/reset before headers",
            CallFailure::Malformed => {
                "upstream connect error or disconnect/reset before headers. reset reason: protocol error"
            }
        }
    }
}

/// How many hosts a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterHealth {
    pub all: usize,
    /// Those that get requests: healthy or degraded.
    pub available: usize,
    /// Among those.
    pub degraded: usize,
}

/// The configuration has no cluster of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownCluster;

/// A call under way. Dropping it abandons the call.
pub struct CallHandle(Option<Box<dyn FnOnce()>>);

impl CallHandle {
    /// For the worker: `abandon` runs when the handle is dropped.
    pub fn new(abandon: impl FnOnce() + 'static) -> CallHandle {
        CallHandle(Some(Box::new(abandon)))
    }

    /// Lets the call run to its end although nobody keeps the handle.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if let Some(abandon) = self.0.take() {
            abandon();
        }
    }
}

impl fmt::Debug for CallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallHandle")
    }
}

/// What is known about the route that a request takes.
#[derive(Debug, Clone, Default)]
pub struct RouteFacts {
    /// Its place in its table: distinct for each route.
    pub index: u32,
    pub name: Option<Arc<str>>,
    pub virtual_host: Arc<str>,
    pub metadata: Arc<Metadata>,
    pub virtual_host_metadata: Arc<Metadata>,
    /// It leads to a cluster: neither a redirect nor an answer of its own.
    pub forwards: bool,
    pub target: RouteTarget,
    /// What counts together where requests are counted elsewhere.
    pub rate_limits: RouteRateLimits,
}

/// The rules that a route and its virtual host have.
#[derive(Debug, Clone, Default)]
pub struct RouteRateLimits {
    pub route: Vec<RateLimit>,
    pub virtual_host: Vec<RateLimit>,
    /// Those of the virtual host hold beside the route's, whatever a filter says.
    pub include_virtual_host: bool,
}

/// The cluster that a route leads to, as far as the route alone says.
#[derive(Debug, Clone, Default)]
pub enum RouteTarget {
    /// None, or one that is chosen when the request is sent.
    #[default]
    Unknown,
    Cluster(Arc<str>),
    /// The one that was drawn for the request: see [`Stream::cluster`].
    Weighted(Vec<Arc<str>>),
    /// Named by this request header.
    Header(Arc<str>),
}
