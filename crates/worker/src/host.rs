//! What the worker does for filters: see [`postrider_filter_api::Host`].

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::{
    Call, CallHandle, ClusterHealth, GrpcCall, GrpcOpen, GrpcStream, Host, Moment, Stream, UnknownCluster,
};
use postrider_http::{HeaderId, RequestHead, Scheme};
use postrider_model::{Format, LogFormat, Node, Redirect};
use postrider_router::redirect_location;

use crate::call::{self, grpc};
use crate::chain::Routes;
use crate::format::{Absent, Context, OfUpstream};
use crate::http::OfStream;
use crate::worker::Worker;

/// A worker, as the filters of a stream see it.
pub(crate) struct Services<'w> {
    pub(crate) worker: &'w Rc<Worker>,
    pub(crate) routes: Option<&'w Routes>,
    /// The stream's.
    pub(crate) route: Option<u32>,
}

impl Host for Services<'_> {
    fn call(&self, call: Call) -> Result<CallHandle, UnknownCluster> {
        let cluster = self.worker.cluster(&call.cluster).ok_or(UnknownCluster)?;
        Ok(call::start(self.worker.clone(), cluster, call))
    }

    fn grpc(&self, call: GrpcCall) -> Result<CallHandle, UnknownCluster> {
        let cluster = self.worker.cluster(&call.cluster).ok_or(UnknownCluster)?;
        Ok(grpc::start(self.worker.clone(), cluster, call))
    }

    fn converse(&self, open: GrpcOpen) -> Result<GrpcStream, UnknownCluster> {
        let cluster = self.worker.cluster(&open.cluster).ok_or(UnknownCluster)?;
        Ok(grpc::converse(self.worker.clone(), cluster, open))
    }

    fn after(&self, time: Duration, wake: Box<dyn FnOnce()>) -> CallHandle {
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(time).await;
            wake();
        });
        CallHandle::new(move || task.abort())
    }

    fn has_cluster(&self, name: &str) -> bool {
        self.worker.cluster(name).is_some()
    }

    fn cluster_health(&self, name: &str) -> Option<ClusterHealth> {
        let members = self.worker.cluster(name)?.hosts.members();
        Some(ClusterHealth { all: members.all, available: members.healthy + members.degraded })
    }

    fn fails_health(&self) -> bool {
        self.worker.fails_health.get()
    }

    fn node(&self) -> Rc<Node> {
        self.worker.node.borrow().clone()
    }

    fn now(&self) -> Moment {
        self.worker.clock.exact()
    }

    fn wall(&self) -> SystemTime {
        self.worker.clock.wall(self.worker.clock.now())
    }

    fn random(&self) -> u64 {
        self.worker.random.next()
    }

    fn location(&self, stream: &Stream<'_>, redirect: &Redirect) -> Vec<u8> {
        let route = self.routes.zip(self.route).map(|(routes, route)| routes.plan.table.route(route));
        let forwarded = stream.request.fields.get(HeaderId::XForwardedProto);
        let forwarded = forwarded.and_then(|scheme| std::str::from_utf8(scheme).ok());
        let scheme = forwarded.unwrap_or_else(|| stream.request.scheme().map_or("http", Scheme::as_str));
        let mut location = Vec::new();
        redirect_location(redirect, route, stream.request, scheme, &mut location);
        location
    }

    fn has_route(&self, stream: &Stream<'_>, head: &RequestHead) -> bool {
        let random = || self.worker.random.next();
        self.routes.is_some_and(|routes| routes.plan.table.find_in(head, &OfStream(stream.info), random).is_some())
    }

    fn format(&self, stream: &Stream<'_>, format: &Format, out: &mut Vec<u8>) {
        self.context(stream, &[]).write(format, Absent::Empty, out);
    }

    fn write(&self, stream: &Stream<'_>, format: &LogFormat, reply_body: &[u8], out: &mut Vec<u8>) {
        self.context(stream, reply_body).write_log(format, out);
    }
}

impl Services<'_> {
    fn context<'c>(&self, stream: &'c Stream<'_>, reply_body: &'c [u8]) -> Context<'c> {
        Context {
            request: stream.request,
            response: stream.response,
            trailers: stream.response_trailers,
            info: stream.info,
            route: stream.route,
            reply_body,
            http: true,
            now: self.wall(),
            upstream: OfUpstream::default(),
        }
    }
}
