//! The worker's end: sends what sinks made, each message when the one before is through.

use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{Call, GrpcCall, GrpcStream};
use postrider_grpc::Message as _;
use postrider_grpc::metrics::{Identifier, STREAM_METRICS, StreamMetricsMessage};
use postrider_grpc::otlp::{EXPORT, ExportResponse};
use postrider_http::{HeaderId, HeaderName, RequestHead, Scheme};
use postrider_model::{GrpcTarget, OtlpTarget};
use postrider_telemetry::debug;
use tokio::sync::{Notify, oneshot};

use super::{Carrier, Way, line};
use crate::call;
use crate::call::target::{open_stream, service_and_head};
use crate::cluster::Cluster;
use crate::worker::Worker;

/// How long a worker that ends waits for the last flush to be taken.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);

/// How long a collector may take where nothing is said: as OpenTelemetry's exporters wait.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// How OpenTelemetry's exporters call themselves.
const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-postrider/", env!("CARGO_PKG_VERSION"));

/// Sends what comes until the sink is gone and all is sent.
pub(crate) async fn carry(worker: Rc<Worker>, mut carrier: Carrier) {
    let way = std::mem::replace(&mut carrier.way, Way::Statsd("".into()));
    match way {
        Way::Statsd(cluster) => line::run(&worker, &mut carrier, &cluster).await,
        Way::Metrics(service) => stream(&worker, &mut carrier, &service).await,
        Way::Plugin(slot) => {
            while let Some(messages) = carrier.inbox.recv().await {
                let lost = messages.iter().filter(|update| !worker.services.tell(&slot, update)).count();
                carrier.lose(lost);
            }
        }
        Way::Otlp(target) => {
            while let Some(messages) = carrier.inbox.recv().await {
                for message in messages {
                    if let Err(why) = export(&worker, &target, EXPORT, message).await {
                        debug!(Upstream, "statistics are not exported: {why}");
                        carrier.lose(1);
                    }
                }
            }
        }
    }
}

/// One call of a collector, over gRPC of this method: how much of the message it did not take.
pub(crate) async fn export(
    worker: &Rc<Worker>,
    target: &OtlpTarget,
    method: &str,
    message: Vec<u8>,
) -> Result<u64, String> {
    let name = match target {
        OtlpTarget::Grpc { service, .. } => &service.cluster,
        OtlpTarget::Http { cluster, .. } => cluster,
    };
    let cluster = worker.cluster(name).ok_or_else(|| format!("there is no cluster {name}"))?;
    let (done, outcome) = oneshot::channel();
    let call = match target {
        OtlpTarget::Grpc { service, timeout } => {
            let retries = service.retries.clone();
            let (service, head) = service_and_head(service, method);
            let call = GrpcCall {
                cluster: service.cluster,
                head,
                message,
                timeout: timeout_of(timeout.unwrap_or(EXPORT_TIMEOUT)),
                max_answer: service.max_answer,
                trace: None,
                retries,
                // Who asked may be gone, here and below.
                done: Box::new(move |answer| {
                    drop(done.send(answer.map(|answer| rejected(&answer)).map_err(|status| status.message)))
                }),
            };
            call::grpc::start(worker.clone(), cluster, call)
        }
        OtlpTarget::Http { authority, path, timeout, headers, .. } => {
            let call = Call {
                cluster: cluster.name.clone(),
                head: http_head(authority, path, headers, message.len()),
                body: message,
                timeout: timeout_of(*timeout),
                trace: None,
                retries: None,
                done: Box::new(move |answer| {
                    let outcome = match answer {
                        Ok(answer) if answer.head.status() == 200 => Ok(0),
                        Ok(answer) => Err(format!("status {}", answer.head.status())),
                        Err(failure) => Err(format!("{failure:?}")),
                    };
                    drop(done.send(outcome));
                }),
            };
            call::start(worker.clone(), cluster, call)
        }
    };
    let outcome = outcome.await;
    drop(call);
    outcome.unwrap_or_else(|_| Err("the call was given up".to_owned()))
}

fn timeout_of(written: Duration) -> Option<Duration> {
    (!written.is_zero()).then_some(written)
}

/// A collector may take a part.
fn rejected(answer: &[u8]) -> u64 {
    let Ok(ExportResponse { partial_success: Some(partial) }) = ExportResponse::decode(answer) else { return 0 };
    debug!(
        Upstream,
        "a collector rejected {} of what it was told: {}", partial.rejected_data_points, partial.error_message
    );
    u64::try_from(partial.rejected_data_points).unwrap_or(0)
}

fn http_head(authority: &str, path: &str, headers: &[(String, String)], length: usize) -> RequestHead {
    let mut head = RequestHead::new();
    // All parts were checked when they were read, or are ours.
    let _ = head.set_method(b"POST");
    let _ = head.set_path(path.as_bytes());
    let _ = head.set_authority(authority.as_bytes());
    head.set_scheme(Scheme::Http);
    let _ = head.fields.append(HeaderId::ContentType, b"application/x-protobuf");
    let _ = head.fields.append(HeaderId::UserAgent, USER_AGENT.as_bytes());
    let _ = head.fields.append(HeaderId::ContentLength, length.to_string().as_bytes());
    for (name, value) in headers {
        let _ = HeaderName::new(name.as_bytes()).map(|name| head.fields.set_header(&name, value.as_bytes()));
    }
    head
}

/// A stream to a metrics service, and the cluster that it goes to.
struct Open {
    stream: GrpcStream,
    cluster: Rc<Cluster>,
}

/// One stream for all messages, opened again with the next flush when it broke.
async fn stream(worker: &Rc<Worker>, carrier: &mut Carrier, target: &GrpcTarget) {
    let heard = Rc::new(Notify::new());
    let mut open: Option<Open> = None;
    while let Some(messages) = carrier.inbox.recv().await {
        let now = worker.cluster(&target.cluster);
        // A cluster that was configured anew may have other hosts: the stream to those of the old one ends.
        let is_old = |open: &mut Open| now.as_ref().is_none_or(|now| !Rc::ptr_eq(now, &open.cluster));
        if let Some(old) = open.take_if(is_old) {
            carrier.lose(farewell(old.stream, &heard).await);
        }
        if let Some(broken) = open.take_if(|open| has_ended(&open.stream)) {
            carrier.lose(broken.stream.unsent());
        }
        let mut messages = messages.into_iter();
        while let Some(message) = messages.next() {
            let Some(cluster) = &now else {
                carrier.lose(1 + messages.len());
                break;
            };
            let fresh = open.is_none();
            let stream = &open.get_or_insert_with(|| begin(worker, cluster, target, &heard)).stream;
            let message = if fresh { introduced(worker, message) } else { message };
            while !stream.has_room() && !has_ended(stream) {
                heard.notified().await;
            }
            if !stream.send(message) {
                carrier.lose(1 + messages.len());
                break;
            }
        }
    }
    if let Some(Open { stream, .. }) = open {
        carrier.lose(farewell(stream, &heard).await);
    }
}

fn begin(worker: &Rc<Worker>, cluster: &Rc<Cluster>, target: &GrpcTarget, heard: &Rc<Notify>) -> Open {
    let stream = open_stream(worker.clone(), cluster.clone(), target, STREAM_METRICS, heard);
    Open { stream, cluster: cluster.clone() }
}

/// The first message of a stream says who tells: one field before the others.
fn introduced(worker: &Worker, message: Vec<u8>) -> Vec<u8> {
    let identifier = Identifier { node: Some(crate::log::who(&worker.node.borrow())) };
    let mut out = StreamMetricsMessage { identifier: Some(identifier), envoy_metrics: Vec::new() }.encode_to_vec();
    out.extend_from_slice(&message);
    out
}

/// What the service says means nothing; that it ended does.
fn has_ended(stream: &GrpcStream) -> bool {
    while stream.receive().is_some() {}
    stream.status().is_some()
}

/// Ends a stream and waits until the service has heard it all, or long enough. How many messages it did not hear.
async fn farewell(stream: GrpcStream, heard: &Notify) -> usize {
    stream.finish();
    let ended = async {
        while !has_ended(&stream) {
            heard.notified().await;
        }
    };
    // A service that does not end the stream has had its time.
    let _ = tokio::time::timeout(FAREWELL, ended).await;
    stream.unsent()
}
