//! The filter contract: one for every runtime, native or plugin.
//!
//! A filter is a [`Factory`], built once per configuration away from the workers, which may refuse it, and a
//! [`Filter`], made by the factory once per worker and per distinct configuration that a route can see. One `Filter`
//! serves all streams of its worker; what belongs to a single stream lives in that stream's [`State`]. So a
//! synchronous hook costs a call: no allocation, no boxing.
//!
//! ```text
//!            request                                        response
//! client ──> on_request_headers, _body…, _trailers ──> … ──> on_response_headers, _body…, _trailers ──> client
//!            filters in order                               filters in reverse order       then on_complete
//! ```
//!
//! Filters never see sockets, other streams or configuration documents; plugin hosts are adapters from their own ABI
//! to this contract and use nothing else of ours.

#![forbid(unsafe_code)]

mod body;
mod bridge;
mod bucket;
mod buffer_limit;
mod call_stream;
pub mod cel;
mod config;
mod dial;
pub mod fake;
mod grpc;
mod guard;
mod here;
mod host;
mod info;
mod lasting;
mod logger;
mod meters;
mod moment;
mod network;
mod newcomer;
mod objects;
mod outcome;
pub mod plugin;
mod remote;
mod route_blocks;
mod sampling;
mod service;
mod sources;
mod state;
mod state_bytes;
mod surroundings;
mod tls;
mod trace;
mod withheld;

pub use body::Body;
pub use bridge::{BridgeFactory, BridgeFacts, BridgeSession, BridgeStep, BuildBridge};
pub use bucket::Bucket;
pub use buffer_limit::BufferLimit;
pub use call_stream::{CallOpen, CallPipe, CallStream, Heard, Outgoing};
pub use config::{
    Build, BuildChooser, BuildGuard, BuildJudge, BuildWrapper, Chooser, ClusterLoad, Clusters, ConfigError, Factory,
    Judge, Place, Registry, RouteConfig, ScopedConfigs, WatchedFile, fingerprint,
};
pub use dial::{Dial, DialFailure, DialUser};
pub use grpc::{GrpcCall, GrpcOpen, GrpcPipe, GrpcService, GrpcStatus, GrpcStream};
pub use guard::{Admission, Guard, GuardFactory, TCP_CLUSTER, Visit};
pub use here::{count_here, counts_here};
pub use host::{
    Answer, Call, CallFailure, CallHandle, ClusterHealth, Host, RouteFacts, RouteRateLimits, RouteTarget,
    UnknownCluster,
};
pub use info::{CloseType, Closed, ConnectTimes, Flags, Logged, Noted, StreamInfo, UpstreamOverride, VIA_UPSTREAM};
pub use lasting::{Lasting, LifeSpan, StateRules};
pub use logger::{AccessLogger, BuildLogger, LoggerFactory};
pub use meters::{Meter, Metered, Meters};
pub use moment::Moment;
pub use network::{
    BuildNetwork, ClosedBy, Connection, ConnectionControl, ConnectionHandle, Ending, MAX_NETWORK_FILTERS,
    NetworkFactory, NetworkFilter, NetworkSession, Passage, Reading, Wish,
};
pub use newcomer::{
    BuildNewcomer, Known, MAX_NEWCOMER_FILTERS, Newcomer, NewcomerControl, NewcomerFactory, NewcomerFilter,
    NewcomerHandle, NewcomerSession,
};
pub use objects::{
    ConnectionWishes, FACTORIES, HITS, ObjectKind, TCP_IDLE_TIMEOUT, TCP_NO_TUNNEL, UpstreamObjects, WantedSource,
    field_of,
};
pub use outcome::{Action, Detour, Flow, LocalReply, MAX_ANEW, Resumer, Treatment};
pub use remote::{Gone, Job, Jobs, Remote};
pub use route_blocks::{RouteBlocks, stat_part};
pub use sampling::Sampling;
pub use service::{BuildService, Service, ServiceFactory};
pub use sources::{Collecting, Sources};
pub use state::State;
pub use state_bytes::StateBytes;
pub use surroundings::{ClusterFacts, Surroundings};
pub use tls::{Certificates, Forwarded, Hello, TlsSession};
pub use trace::{CallTrace, OpenSpan, SpanIds, Trace, TraceReason};
pub use withheld::Withheld;

/// The name by which the tests of filters know it.
pub use fake as testing;

use std::borrow::Cow;
use std::time::Duration;

use postrider_http::{Fields, RequestHead, ResponseHead};

/// Which hooks a filter wants; the others are never called. The `…_resumed` ones follow a pause without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    pub request_headers: bool,
    pub request_body: bool,
    pub request_trailers: bool,
    pub response_headers: bool,
    pub response_body: bool,
    pub response_trailers: bool,
    pub complete: bool,
    /// The body hooks look at bodies or delay them, and never change them: their framing may be settled beforehand.
    pub keeps_bodies: bool,
    /// The body hooks may change bodies, and whoever changes a length has taken `content-length` away, or set it anew,
    /// when the head goes on: a message is sent with the length that its head declares then, and one that turns out longer
    /// or shorter is cut off.
    pub declares_length: bool,
}

/// One filter with one configuration, on one worker. `end` is true when nothing of the message follows: no body behind
/// the head, no further piece and no trailers behind a piece.
pub trait Filter {
    /// Asked once, when the filter is made.
    fn hooks(&self) -> Hooks;

    fn on_request_headers(&self, _: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        Action::Continue
    }

    /// Called with each piece of the body as it comes, which is then what [`Stream::request_body`] holds; with an empty
    /// one when the end comes by itself. A local reply is possible until response headers were sent.
    fn on_request_body(&self, _: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        Action::Continue
    }

    /// Called when trailers follow the body, behind its last piece.
    fn on_request_trailers(&self, _: &mut State, _: &mut Stream<'_>) -> Action {
        Action::Continue
    }

    /// A pause of the request is over; what it answers counts as the paused hook's answer.
    fn on_request_resumed(&self, _: &mut State, _: &mut Stream<'_>) -> Action {
        Action::Continue
    }

    /// Asked while this filter has taken the request over (see [`Action::Take`]), whenever nothing is under way behind it.
    fn on_request_flow(&self, _: &mut State, _: &mut Stream<'_>) -> Flow {
        Flow::Release
    }

    /// Also called for local replies, those of other filters included.
    fn on_response_headers(&self, _: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        Action::Continue
    }

    fn on_response_body(&self, _: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        Action::Continue
    }

    fn on_response_trailers(&self, _: &mut State, _: &mut Stream<'_>) -> Action {
        Action::Continue
    }

    /// A pause of the response is over; what it answers counts as the paused hook's answer.
    fn on_response_resumed(&self, _: &mut State, _: &mut Stream<'_>) -> Action {
        Action::Continue
    }

    /// Asked while this filter has taken the response over, whenever nothing is under way behind it.
    fn on_response_flow(&self, _: &mut State, _: &mut Stream<'_>) -> Flow {
        Flow::Release
    }

    /// The stream is logged while it goes on: when its route was found, or because so much time has passed;
    /// `ended.info.logged` says which. Asked of filters that want to hear of the end, where the configuration wants such
    /// records.
    fn on_moment(&self, _: &mut State, _: &Ended<'_>) {}

    /// The stream is over, and its record is not made yet: what is noted in `closing.info` is in it. Asked of all filters
    /// that want to hear of the end before any of them hears that it is over.
    fn on_closing(&self, _: &mut State, _closing: &mut Closing<'_>) {}

    /// The stream is over, however it ended; last call for its state.
    fn on_complete(&self, _: &mut State, _: &StreamInfo) {}

    /// The same, for filters that look at the messages once more.
    fn on_ended(&self, state: &mut State, ended: &Ended<'_>) {
        self.on_complete(state, ended.info);
    }
}

/// What is left of a stream that is over, or what there is as yet of one that is logged meanwhile.
#[derive(Debug)]
pub struct Ended<'a> {
    pub request: &'a RequestHead,
    /// Empty when there was no response.
    pub response: &'a ResponseHead,
    pub request_trailers: &'a Fields,
    pub response_trailers: &'a Fields,
    pub info: &'a StreamInfo,
    /// `None` when no route matched.
    pub route: Option<&'a RouteFacts>,
    /// Which of the route's weighted clusters was drawn.
    pub weighted: Option<usize>,
}

/// What is left of a stream that is over and was not logged yet.
#[derive(Debug)]
pub struct Closing<'a> {
    pub request: &'a RequestHead,
    /// Empty when there was no response.
    pub response: &'a ResponseHead,
    pub request_trailers: &'a Fields,
    pub response_trailers: &'a Fields,
    pub info: &'a mut StreamInfo,
    /// `None` when no route matched.
    pub route: Option<&'a RouteFacts>,
    /// Which of the route's weighted clusters was drawn.
    pub weighted: Option<usize>,
}

impl Closing<'_> {
    /// The same to look at.
    pub fn as_ended(&self) -> Ended<'_> {
        Ended {
            request: self.request,
            response: self.response,
            request_trailers: self.request_trailers,
            response_trailers: self.response_trailers,
            info: self.info,
            route: self.route,
            weighted: self.weighted,
        }
    }
}

/// What a hook may look at and change.
#[derive(Debug)]
pub struct Stream<'a> {
    pub request: &'a mut RequestHead,
    /// Empty until the response has a head.
    pub response: &'a mut ResponseHead,
    /// What is held of the bodies in front of this filter: empty outside body hooks and their pauses.
    pub request_body: &'a mut Body,
    pub response_body: &'a mut Body,
    /// Empty until the body has ended with some.
    pub request_trailers: &'a mut Fields,
    pub response_trailers: &'a mut Fields,
    pub info: &'a mut StreamInfo,
    /// `None` when no route matched.
    pub route: Option<&'a RouteFacts>,
    /// Which of the route's weighted clusters was drawn.
    pub weighted: Option<usize>,
    /// Give a clone of it to whatever will end a [`Action::Pause`]. In hooks of a filter that took the message over, it
    /// asks for the next `on_…_flow`.
    pub resumer: &'a Resumer,
    pub host: &'a dyn Host,
}

impl Stream<'_> {
    /// Ends a pause when so much time has passed, unless the handle was dropped before.
    pub fn resume_after(&self, time: Duration) -> CallHandle {
        let resumer = self.resumer.clone();
        self.host.after(time, Box::new(move || resumer.resume()))
    }

    /// The name of the cluster that the request goes to as things are; `None` where that is not known yet.
    pub fn cluster(&self) -> Option<Cow<'_, str>> {
        let settled = || self.info.upstream_cluster.as_deref().map(Cow::Borrowed);
        match &self.route?.target {
            RouteTarget::Unknown => settled(),
            RouteTarget::Cluster(name) => Some(Cow::Borrowed(name)),
            RouteTarget::Weighted(names) => Some(Cow::Borrowed(names.get(self.weighted?)?)),
            RouteTarget::Header(name) => {
                settled().or_else(|| Some(String::from_utf8_lossy(self.request.fields.get_name(name.as_bytes())?)))
            }
        }
    }
}
