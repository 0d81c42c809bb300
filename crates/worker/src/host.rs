//! What the worker does for filters: see [`postrider_filter_api::Host`].

use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::{Duration, SystemTime};

use postrider_filter_api::{
    Call, CallHandle, CallOpen, CallStream, ClusterHealth, ConnectionHandle, Dial, GrpcCall, GrpcOpen, GrpcStream,
    Host, Moment, Remote, Stream, UnknownCluster,
};
use postrider_http::{HeaderId, RequestHead, Scheme};
use postrider_model::{Address, Format, LogFormat, Node, NumberedOption, Redirect};
use postrider_router::{redirect_location, rewritten_by_redirect};
use postrider_upstream::Members;

use crate::call::{self, grpc};
use crate::chain::Routes;
use crate::cluster::Cluster;
use crate::dial;
use crate::format::{Absent, Context, OfUpstream};
use crate::http::OfStream;
use crate::io::Io;
use crate::worker::Worker;

/// A worker, as the filters of a stream see it.
pub(crate) struct Services<'w> {
    pub(crate) worker: &'w Rc<Worker>,
    pub(crate) routes: Option<&'w Routes>,
    /// The stream's.
    pub(crate) route: Option<u32>,
    /// Where it goes, once that is known.
    pub(crate) cluster: Option<&'w Cluster>,
    /// The client's connection; `None` for what no client asked for.
    pub(crate) client: Option<&'w Io>,
}

impl Host for Services<'_> {
    fn call(&self, call: Call) -> Result<CallHandle, UnknownCluster> {
        let cluster = self.worker.cluster(&call.cluster).ok_or(UnknownCluster)?;
        Ok(call::start(self.worker.clone(), cluster, call))
    }

    fn open(&self, open: CallOpen) -> Result<CallStream, UnknownCluster> {
        let cluster = self.worker.cluster(&open.cluster).ok_or(UnknownCluster)?;
        Ok(call::open(self.worker.clone(), cluster, open))
    }

    fn grpc(&self, call: GrpcCall) -> Result<CallHandle, UnknownCluster> {
        let cluster = self.worker.cluster(&call.cluster).ok_or(UnknownCluster)?;
        Ok(grpc::start(self.worker.clone(), cluster, call))
    }

    fn converse(&self, open: GrpcOpen) -> Result<GrpcStream, UnknownCluster> {
        let cluster = self.worker.cluster(&open.cluster).ok_or(UnknownCluster)?;
        Ok(grpc::converse(self.worker.clone(), cluster, open))
    }

    fn dial(&self, dial: Dial) -> Result<ConnectionHandle, UnknownCluster> {
        let cluster = self.worker.cluster(&dial.cluster).ok_or(UnknownCluster)?;
        Ok(dial::start(self.worker.clone(), cluster, dial))
    }

    fn after(&self, time: Duration, wake: Box<dyn FnOnce()>) -> CallHandle {
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(time).await;
            wake();
        });
        CallHandle::new(move || task.abort())
    }

    fn remote(&self) -> Remote {
        self.worker.remote()
    }

    fn has_cluster(&self, name: &str) -> bool {
        self.worker.cluster(name).is_some()
    }

    fn cluster_health(&self, name: &str) -> Option<ClusterHealth> {
        Some(health_of(self.worker.cluster(name)?.hosts.members()))
    }

    fn hosts_of_priority(&self, name: &str, priority: u32) -> Option<ClusterHealth> {
        self.worker.cluster(name)?.hosts.members_of(priority).map(health_of)
    }

    fn host_may_serve(&self, cluster: &str, address: SocketAddr) -> Option<bool> {
        let cluster = self.worker.cluster(cluster)?;
        let address = Address::Tcp(address);
        cluster.hosts.has(&address).then(|| cluster.hosts.at(&address).is_some())
    }

    fn proxies(&self) -> usize {
        self.worker.peers()
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
        let path = rewritten_by_redirect(redirect, route, stream.request);
        redirect_location(redirect, path.as_deref(), stream.request, scheme, &mut location);
        location
    }

    fn has_route(&self, stream: &Stream<'_>, head: &RequestHead) -> bool {
        let random = || self.worker.random.next();
        self.routes.is_some_and(|routes| routes.plan.table.find_in(head, &OfStream(stream.info), random).is_some())
    }

    fn set_client_option(&self, option: &NumberedOption) -> bool {
        self.client.is_some_and(|client| client.set_option(option))
    }

    fn format(&self, stream: &Stream<'_>, format: &Format, out: &mut Vec<u8>) {
        self.context(stream, &[]).write(format, Absent::Empty, out);
    }

    fn write(&self, stream: &Stream<'_>, format: &LogFormat, reply_body: &[u8], out: &mut Vec<u8>) {
        self.context(stream, reply_body).write_log(format, out);
    }
}

/// A worker as filters see it outside of streams: without routes. Filters are part of the worker, so this does not keep it.
pub(crate) struct Detached(pub(crate) Weak<Worker>);

impl Detached {
    fn with<T>(&self, ask: impl FnOnce(&Services<'_>) -> T) -> Option<T> {
        let worker = self.0.upgrade()?;
        Some(ask(&Services { worker: &worker, routes: None, route: None, cluster: None, client: None }))
    }
}

impl Host for Detached {
    fn call(&self, call: Call) -> Result<CallHandle, UnknownCluster> {
        self.with(|services| services.call(call)).unwrap_or(Err(UnknownCluster))
    }

    fn open(&self, open: CallOpen) -> Result<CallStream, UnknownCluster> {
        self.with(|services| services.open(open)).unwrap_or(Err(UnknownCluster))
    }

    fn grpc(&self, call: GrpcCall) -> Result<CallHandle, UnknownCluster> {
        self.with(|services| services.grpc(call)).unwrap_or(Err(UnknownCluster))
    }

    fn converse(&self, open: GrpcOpen) -> Result<GrpcStream, UnknownCluster> {
        self.with(|services| services.converse(open)).unwrap_or(Err(UnknownCluster))
    }

    fn dial(&self, dial: Dial) -> Result<ConnectionHandle, UnknownCluster> {
        self.with(|services| services.dial(dial)).unwrap_or(Err(UnknownCluster))
    }

    fn after(&self, time: Duration, wake: Box<dyn FnOnce()>) -> CallHandle {
        self.with(|services| services.after(time, wake)).unwrap_or_else(|| CallHandle::new(|| {}))
    }

    fn remote(&self) -> Remote {
        // Of a worker that is gone nothing is heard again: its end of this one is dropped at once.
        self.with(|services| services.remote()).unwrap_or_else(|| Remote::new().0)
    }

    fn has_cluster(&self, name: &str) -> bool {
        self.with(|services| services.has_cluster(name)).unwrap_or_default()
    }

    fn cluster_health(&self, name: &str) -> Option<ClusterHealth> {
        self.with(|services| services.cluster_health(name)).flatten()
    }

    fn hosts_of_priority(&self, name: &str, priority: u32) -> Option<ClusterHealth> {
        self.with(|services| services.hosts_of_priority(name, priority)).flatten()
    }

    fn host_may_serve(&self, cluster: &str, address: SocketAddr) -> Option<bool> {
        self.with(|services| services.host_may_serve(cluster, address)).flatten()
    }

    fn proxies(&self) -> usize {
        self.with(|services| services.proxies()).unwrap_or_default()
    }

    fn fails_health(&self) -> bool {
        self.with(|services| services.fails_health()).unwrap_or_default()
    }

    fn node(&self) -> Rc<Node> {
        self.with(|services| services.node()).unwrap_or_default()
    }

    fn now(&self) -> Moment {
        self.with(|services| services.now()).unwrap_or_default()
    }

    fn wall(&self) -> SystemTime {
        self.with(|services| services.wall()).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn random(&self) -> u64 {
        self.with(|services| services.random()).unwrap_or_default()
    }

    fn location(&self, stream: &Stream<'_>, redirect: &Redirect) -> Vec<u8> {
        self.with(|services| services.location(stream, redirect)).unwrap_or_default()
    }

    fn has_route(&self, stream: &Stream<'_>, head: &RequestHead) -> bool {
        self.with(|services| services.has_route(stream, head)).unwrap_or_default()
    }

    fn set_client_option(&self, _: &NumberedOption) -> bool {
        false
    }

    fn format(&self, stream: &Stream<'_>, format: &Format, out: &mut Vec<u8>) {
        self.with(|services| services.format(stream, format, out));
    }

    fn write(&self, stream: &Stream<'_>, format: &LogFormat, reply_body: &[u8], out: &mut Vec<u8>) {
        self.with(|services| services.write(stream, format, reply_body, out));
    }
}

impl Services<'_> {
    fn context<'c>(&'c self, stream: &'c Stream<'_>, reply_body: &'c [u8]) -> Context<'c> {
        Context {
            request: stream.request,
            response: stream.response,
            trailers: stream.response_trailers,
            info: stream.info,
            route: stream.route,
            weighted: stream.weighted,
            reply_body,
            http: true,
            now: self.wall(),
            upstream: OfUpstream { cluster: self.cluster, tried: &[], tried_on: &[] },
        }
    }
}

fn health_of(members: Members) -> ClusterHealth {
    ClusterHealth { all: members.all, available: members.healthy + members.degraded, degraded: members.degraded }
}
