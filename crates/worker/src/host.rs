//! What the worker does for filters: see [`postrider_filter_api::Host`].

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use postrider_filter_api::{
    Call, CallHandle, ClusterHealth, GrpcCall, GrpcOpen, GrpcStream, Host, Moment, Stream, UnknownCluster,
};
use postrider_model::{Format, LogFormat, Node};

use crate::call::{self, grpc};
use crate::format::{Absent, Context};
use crate::worker::Worker;

/// A worker, as filters see it.
pub(crate) struct Services<'w>(pub(crate) &'w Rc<Worker>);

impl Host for Services<'_> {
    fn call(&self, call: Call) -> Result<CallHandle, UnknownCluster> {
        let cluster = self.0.cluster(&call.cluster).ok_or(UnknownCluster)?;
        Ok(call::start(self.0.clone(), cluster, call))
    }

    fn grpc(&self, call: GrpcCall) -> Result<CallHandle, UnknownCluster> {
        let cluster = self.0.cluster(&call.cluster).ok_or(UnknownCluster)?;
        Ok(grpc::start(self.0.clone(), cluster, call))
    }

    fn converse(&self, open: GrpcOpen) -> Result<GrpcStream, UnknownCluster> {
        let cluster = self.0.cluster(&open.cluster).ok_or(UnknownCluster)?;
        Ok(grpc::converse(self.0.clone(), cluster, open))
    }

    fn after(&self, time: Duration, wake: Box<dyn FnOnce()>) -> CallHandle {
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(time).await;
            wake();
        });
        CallHandle::new(move || task.abort())
    }

    fn has_cluster(&self, name: &str) -> bool {
        self.0.cluster(name).is_some()
    }

    fn cluster_health(&self, name: &str) -> Option<ClusterHealth> {
        let members = self.0.cluster(name)?.hosts.members();
        Some(ClusterHealth { all: members.all, available: members.healthy + members.degraded })
    }

    fn fails_health(&self) -> bool {
        self.0.fails_health.get()
    }

    fn node(&self) -> Rc<Node> {
        self.0.node.borrow().clone()
    }

    fn now(&self) -> Moment {
        self.0.clock.exact()
    }

    fn wall(&self) -> SystemTime {
        self.0.clock.wall(self.0.clock.now())
    }

    fn random(&self) -> u64 {
        self.0.random.next()
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
        }
    }
}
