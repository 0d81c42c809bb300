//! A stream without a proxy around it: for trying a plugin out, and for the tests of filters.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use postrider_http::{Fields, RequestHead, ResponseHead};
use postrider_model::{Command, Format, JsonFormat, LogFormat, Node, NumberedOption, Piece, Redirect, RequestField};

use crate::{
    Answer, Body, Call, CallFailure, CallHandle, CallOpen, CallPipe, CallStream, ClusterHealth, ConnectionControl,
    ConnectionHandle, Dial, GrpcCall, GrpcOpen, GrpcPipe, GrpcStatus, GrpcStream, Host, Jobs, Moment, Remote, Resumer,
    RouteFacts, Stream, StreamInfo, UnknownCluster,
};

/// Everything that a [`Stream`] borrows.
pub struct FakeStream {
    pub request: RequestHead,
    pub response: ResponseHead,
    pub request_body: Body,
    pub response_body: Body,
    pub request_trailers: Fields,
    pub response_trailers: Fields,
    pub info: StreamInfo,
    pub route: Option<RouteFacts>,
    pub weighted: Option<usize>,
    pub resumer: Resumer,
    pub host: FakeHost,
}

/// A host that answers calls from a list.
pub struct FakeHost {
    /// Calls made and not answered yet.
    pub calls: RefCell<VecDeque<Call>>,
    /// Requests in pieces that were opened, each with its cluster's end of the pipe.
    pub streams: RefCell<Vec<(RequestHead, Rc<CallPipe>)>>,
    pub grpc_calls: RefCell<VecDeque<GrpcCall>>,
    /// Conversations that were opened, each with its service's end of the pipe.
    pub conversations: RefCell<Vec<(RequestHead, Rc<GrpcPipe>)>>,
    /// Connections that were asked for, each with the worker's end of its handle.
    pub dials: RefCell<Vec<(Dial, Rc<ConnectionControl>)>>,
    /// What is to be called when so much time has passed.
    pub timers: RefCell<Vec<Timer>>,
    /// The clusters that exist; any when empty.
    pub clusters: Vec<String>,
    /// What every cluster that exists has.
    pub health: ClusterHealth,
    /// Of the cluster that this one belongs to.
    pub proxies: usize,
    pub fails_health: bool,
    /// No route takes any request.
    pub routeless: bool,
    pub node: Rc<Node>,
    /// What other threads posted: run by [`FakeHost::run_posted`]. Hosts of one worker have one.
    pub remote: Rc<(Remote, Jobs)>,
    /// What time it is. It stands still unless somebody gives another.
    pub clock: fn() -> (Moment, SystemTime),
}

/// How long, and what to call then.
pub type Timer = (Duration, Box<dyn FnOnce()>);

impl Default for FakeHost {
    fn default() -> FakeHost {
        let clock = || (Moment::default(), SystemTime::UNIX_EPOCH);
        FakeHost {
            calls: RefCell::default(),
            streams: RefCell::default(),
            grpc_calls: RefCell::default(),
            conversations: RefCell::default(),
            dials: RefCell::default(),
            timers: RefCell::default(),
            clusters: Vec::new(),
            health: ClusterHealth::default(),
            proxies: 0,
            fails_health: false,
            routeless: false,
            node: Rc::default(),
            remote: Rc::new(Remote::new()),
            clock,
        }
    }
}

impl FakeStream {
    /// A request without a body, on a route that forwards.
    pub fn new(method: &str, path: &str, lines: &[(&str, &str)]) -> FakeStream {
        let mut request = RequestHead::new();
        // What a test writes here is well-formed, or the test shows that it is not.
        let _ = request.set_method(method.as_bytes());
        let _ = request.set_authority(b"x");
        let _ = request.set_path(path.as_bytes());
        for (name, value) in lines {
            let _ = request.fields.append_name(name.as_bytes(), value.as_bytes());
        }
        FakeStream {
            request,
            response: ResponseHead::new(),
            request_body: Body::default(),
            response_body: Body::default(),
            request_trailers: Fields::new(),
            response_trailers: Fields::new(),
            info: StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH),
            route: Some(RouteFacts { forwards: true, ..RouteFacts::default() }),
            weighted: None,
            resumer: Resumer::default(),
            host: FakeHost::default(),
        }
    }

    pub fn with<T>(&mut self, call: impl FnOnce(&mut Stream<'_>) -> T) -> T {
        call(&mut Stream {
            request: &mut self.request,
            response: &mut self.response,
            request_body: &mut self.request_body,
            response_body: &mut self.response_body,
            request_trailers: &mut self.request_trailers,
            response_trailers: &mut self.response_trailers,
            info: &mut self.info,
            route: self.route.as_ref(),
            weighted: self.weighted,
            resumer: &self.resumer,
            host: &self.host,
        })
    }
}

impl FakeHost {
    /// One that nobody looks at.
    pub fn unwatched() -> Rc<dyn Host> {
        Rc::new(FakeHost::default())
    }

    /// Answers the oldest call; `false` when there is none.
    pub fn answer(&self, outcome: Result<Answer, CallFailure>) -> bool {
        let Some(call) = self.calls.borrow_mut().pop_front() else { return false };
        (call.done)(outcome);
        true
    }

    /// Answers the oldest gRPC call; `false` when there is none.
    pub fn answer_grpc(&self, outcome: Result<Vec<u8>, GrpcStatus>) -> bool {
        let Some(call) = self.grpc_calls.borrow_mut().pop_front() else { return false };
        (call.done)(outcome);
        true
    }

    /// Runs what was posted by now and says how much that was.
    pub fn run_posted(&self) -> usize {
        match self.remote.1.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(jobs) => jobs.into_iter().map(|job| job()).count(),
            Poll::Pending => 0,
        }
    }

    fn find(&self, cluster: &str) -> Result<(), UnknownCluster> {
        let known = self.clusters.is_empty() || self.clusters.iter().any(|known| known == cluster);
        known.then_some(()).ok_or(UnknownCluster)
    }
}

impl Host for FakeHost {
    fn call(&self, call: Call) -> Result<CallHandle, UnknownCluster> {
        self.find(&call.cluster)?;
        self.calls.borrow_mut().push_back(call);
        Ok(CallHandle::new(|| {}))
    }

    fn open(&self, open: CallOpen) -> Result<CallStream, UnknownCluster> {
        self.find(&open.cluster)?;
        let pipe = Rc::new(CallPipe::new(open.body, open.ended, open.wake));
        self.streams.borrow_mut().push((open.head, pipe.clone()));
        Ok(CallStream::new(pipe, CallHandle::new(|| {})))
    }

    fn grpc(&self, call: GrpcCall) -> Result<CallHandle, UnknownCluster> {
        self.find(&call.cluster)?;
        self.grpc_calls.borrow_mut().push_back(call);
        Ok(CallHandle::new(|| {}))
    }

    fn converse(&self, open: GrpcOpen) -> Result<GrpcStream, UnknownCluster> {
        self.find(&open.cluster)?;
        let pipe = Rc::new(GrpcPipe::new(open.wake));
        self.conversations.borrow_mut().push((open.head, pipe.clone()));
        Ok(GrpcStream::new(pipe, CallHandle::new(|| {})))
    }

    fn dial(&self, dial: Dial) -> Result<ConnectionHandle, UnknownCluster> {
        self.find(&dial.cluster)?;
        let control = Rc::default();
        let handle = ConnectionHandle::new(&control, 0);
        self.dials.borrow_mut().push((dial, control));
        Ok(handle)
    }

    fn after(&self, time: Duration, wake: Box<dyn FnOnce()>) -> CallHandle {
        self.timers.borrow_mut().push((time, wake));
        CallHandle::new(|| {})
    }

    fn remote(&self) -> Remote {
        self.remote.0.clone()
    }

    fn has_cluster(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    fn cluster_health(&self, name: &str) -> Option<ClusterHealth> {
        self.find(name).is_ok().then_some(self.health)
    }

    fn hosts_of_priority(&self, name: &str, priority: u32) -> Option<ClusterHealth> {
        self.cluster_health(name).filter(|_| priority == 0)
    }

    /// Every address is a host's where there are hosts, and all of them are as good as the cluster is.
    fn host_may_serve(&self, cluster: &str, _: SocketAddr) -> Option<bool> {
        self.cluster_health(cluster).filter(|health| health.all > 0).map(|health| health.available > 0)
    }

    fn proxies(&self) -> usize {
        self.proxies
    }

    fn fails_health(&self) -> bool {
        self.fails_health
    }

    fn node(&self) -> Rc<Node> {
        self.node.clone()
    }

    fn now(&self) -> Moment {
        (self.clock)().0
    }

    fn wall(&self) -> SystemTime {
        (self.clock)().1
    }

    fn random(&self) -> u64 {
        4
    }

    /// The request's own, or the host that is named instead.
    fn location(&self, stream: &Stream<'_>, redirect: &Redirect) -> Vec<u8> {
        let host = redirect.host.as_deref().map_or(stream.request.authority(), str::as_bytes);
        [b"http://", host, stream.request.path()].concat()
    }

    fn has_route(&self, _: &Stream<'_>, _: &RequestHead) -> bool {
        !self.routeless
    }

    fn set_client_option(&self, _: &NumberedOption) -> bool {
        false
    }

    /// Texts, the request's head and the status; every other command stands for nothing.
    fn format(&self, stream: &Stream<'_>, format: &Format, out: &mut Vec<u8>) {
        let header = |field: &RequestField| match field {
            RequestField::Method => Some(stream.request.method_bytes()),
            RequestField::Path => Some(stream.request.path()),
            RequestField::Authority => Some(stream.request.authority()),
            RequestField::Scheme => None,
            RequestField::Named(name) => stream.request.fields.get_name(name.as_bytes()),
        };
        for piece in &format.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Command { command: Command::RequestHeader(name, other), .. } => {
                    let value = header(name).or_else(|| header(other.as_ref()?));
                    out.extend_from_slice(value.unwrap_or_default());
                }
                Piece::Command { command: Command::ResponseCode, .. } => {
                    out.extend_from_slice(stream.info.status.to_string().as_bytes());
                }
                Piece::Command { .. } => {}
            }
        }
    }

    /// A text as [`Host::format`] writes it, with `-` for nothing at all; of JSON, the texts one behind the other.
    fn write(&self, stream: &Stream<'_>, format: &LogFormat, reply_body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match format {
            LogFormat::Text(format) => {
                for piece in &format.pieces {
                    match piece {
                        Piece::Command { command: Command::LocalReplyBody, .. } => out.extend_from_slice(reply_body),
                        piece => self.format(stream, &Format { pieces: vec![piece.clone()] }, out),
                    }
                }
                if out.len() == start && !format.pieces.is_empty() {
                    out.push(b'-');
                }
            }
            LogFormat::Json(JsonFormat::Object(entries)) => {
                for (_, value) in entries {
                    if let JsonFormat::Text(format) = value {
                        self.write(stream, &LogFormat::Text(format.clone()), reply_body, out);
                    }
                }
            }
            LogFormat::Json(_) => {}
            LogFormat::OmitEmpty(format) => {
                self.write(stream, format, reply_body, out);
                if out.get(start..) == Some(b"-") {
                    out.truncate(start);
                }
            }
        }
    }
}
