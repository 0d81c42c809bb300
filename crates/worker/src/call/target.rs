//! Calls of the proxy itself: logs and statistics that go to a service.

use std::rc::Rc;

use postrider_filter_api::{GrpcOpen, GrpcService, GrpcStream};
use postrider_http::{HeaderName, RequestHead};
use postrider_model::GrpcTarget;
use tokio::sync::Notify;

use super::grpc;
use crate::cluster::Cluster;
use crate::worker::Worker;

/// The service as the calls of filters know it, and the head of a call of `method`.
pub(crate) fn service_and_head(target: &GrpcTarget, method: &str) -> (GrpcService, RequestHead) {
    let mut service = GrpcService::of(target.cluster.clone());
    service.authority = target.authority.clone().unwrap_or(service.authority);
    service.max_answer = target.max_answer.unwrap_or(service.max_answer);
    let mut head = service.head_of_none(method, None);
    for (name, value) in &target.metadata {
        // Both were checked when they were read.
        let _ = HeaderName::new(name.as_bytes()).map(|name| head.fields.append_header(&name, value.as_bytes()));
    }
    (service, head)
}

/// A stream of `method` to the service at `cluster`, which stays open; `heard` is told when something came or it ended.
pub(crate) fn open_stream(
    worker: Rc<Worker>,
    cluster: Rc<Cluster>,
    target: &GrpcTarget,
    method: &str,
    heard: &Rc<Notify>,
) -> GrpcStream {
    let (service, head) = service_and_head(target, method);
    let heard = heard.clone();
    let open = GrpcOpen {
        cluster: service.cluster,
        head,
        timeout: None,
        max_answer: service.max_answer,
        trace: None,
        retries: target.retries.clone(),
        wake: Box::new(move || heard.notify_one()),
    };
    grpc::converse(worker, cluster, open)
}
