//! A tunnel through an upstream that is a proxy: CONNECT and its answer (RFC 9110 section 9.3.6), or a POST in its place whose
//! body, and that of its answer, carry the bytes.

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use postrider_filter_api::StreamInfo;
use postrider_h1::{HeadScan, ResponseParse, parse_response};
use postrider_http::{
    Asked, BodyFraming, Connection, Fields, Method, RequestHead, RequestWrite, ResponseHead, ResponseRules, Scheme,
    Version, check_authority, split_port, write_request,
};
use postrider_model::{Tunneling, Value};
use postrider_telemetry::stats::sets::cluster as stat;

use crate::cluster::{Cluster, Upstream};
use crate::format::{Absent, Context, OfUpstream};
use crate::http::{add_fields, evaluate_edits, uuid};
use crate::io::Io;
use crate::worker::Worker;

/// The request for the tunnel of a connection; what `info` says of it may stand in host and headers. With an id where it is to have
/// one, which is noted.
///
/// # Errors
/// The host is no `host:port`.
pub(crate) fn request(tunneling: &Tunneling, info: &mut StreamInfo, worker: &Worker) -> Result<RequestHead, String> {
    let mut head = RequestHead::new();
    if let Some(wanted) = &tunneling.request_id {
        let id = uuid(&worker.random);
        let text = String::from_utf8_lossy(&id).into_owned();
        info.metadata.set_at(&wanted.noted_at, Value::String(text));
        // A name that was checked, and nothing else is there yet.
        let _ = head.fields.set_name(wanted.header.as_bytes(), &id);
    }
    let mut host = Vec::new();
    let mut edits = {
        let context = Context {
            request: &head,
            response: &ResponseHead::new(),
            trailers: &Fields::new(),
            info,
            route: None,
            weighted: None,
            reply_body: &[],
            http: false,
            now: worker.clock.wall_now(),
            upstream: OfUpstream::default(),
        };
        context.write(&tunneling.hostname, Absent::Dash, &mut host);
        evaluate_edits(&tunneling.headers, &context)
    };
    let text = || String::from_utf8_lossy(&host).into_owned();
    match &tunneling.post_path {
        None => {
            let named = check_authority(&host).is_ok() && split_port(&host).1.is_some_and(|port| !port.is_empty());
            if !named || head.set_method(b"CONNECT").is_err() || head.set_authority(&host).is_err() {
                return Err(format!("`{}` is no host and port to tunnel to", text()));
            }
        }
        Some(path) => {
            let begun = head.set_method(b"POST").and_then(|()| head.set_path(path.as_bytes()));
            if check_authority(&host).is_err() || begun.and_then(|()| head.set_authority(&host)).is_err() {
                return Err(format!("`{}` is no host to tunnel to", text()));
            }
        }
    }
    head.set_version(Version::Http11);
    add_fields(&tunneling.headers, &mut head.fields, &mut edits);
    Ok(head)
}

/// A tunnel is open.
pub(crate) struct Opened {
    pub(crate) answer: Box<ResponseHead>,
    /// The endpoint's bytes come in a body; `None` when the connection has become the endpoint's.
    pub(crate) body: Option<BodyFraming>,
}

/// Why there is no tunnel.
pub(crate) enum NoTunnel {
    /// The proxy does not agree.
    Answered(Box<ResponseHead>),
    /// It broke the connection, or is no proxy: why, as logs show it.
    Failed(String),
}

/// Opens the tunnel: when this is done, `upstream` carries the bytes of the endpoint behind the proxy.
///
/// # Errors
/// See [`NoTunnel`].
pub(crate) async fn open(
    head: &mut RequestHead,
    upstream: &mut Upstream,
    cluster: &Cluster,
    worker: &Rc<Worker>,
) -> Result<Opened, NoTunnel> {
    upstream.begin_request();
    let mut out = Vec::new();
    let framing = match head.method() {
        Method::Connect => BodyFraming::None,
        _ => BodyFraming::Chunked,
    };
    head.set_scheme(if upstream.tls().is_some() { Scheme::Https } else { Scheme::Http });
    if let Io::Http2(stream) = &mut upstream.io {
        stream.send_request(head, framing, false).map_err(|error| NoTunnel::Failed(error.to_string()))?;
    } else {
        let options = RequestWrite { framing, connection: Connection::Implicit, absolute: None, extra: &[] };
        write_request(head, &options, &mut out);
    }
    let asked = Asked { method: head.method(), upgrade: false };
    let rules = ResponseRules { limits: cluster.response_limits() };
    let mut asking = Asking { asked, out, sent: 0, rules, scan: HeadScan::new(), answer: Box::default() };
    std::future::poll_fn(|cx| asking.poll(upstream, worker, cx)).await
}

/// Keeps an answer's head in the filter state, where logs find it.
pub(crate) fn keep_head(answer: &ResponseHead, info: &mut StreamInfo) {
    let status = line(b":status", answer.status().to_string().as_bytes());
    let lines = std::iter::once(status).chain(answer.fields.iter().map(|field| line(field.name, field.value)));
    keep("envoy.tcp_proxy.propagate_response_headers", lines.collect(), info);
}

/// The same of its trailers, if there are any.
pub(crate) fn keep_trailers(trailers: &Fields, info: &mut StreamInfo) {
    if !trailers.is_empty() {
        let lines = trailers.iter().map(|field| line(field.name, field.value));
        keep("envoy.tcp_proxy.propagate_response_trailers", lines.collect(), info);
    }
}

/// A line of Envoy's `HeaderMap`.
fn line(name: &[u8], value: &[u8]) -> Value {
    let text = |bytes: &[u8]| Value::String(String::from_utf8_lossy(bytes).into_owned());
    Value::Map(vec![("key".to_owned(), text(name)), ("value".to_owned(), text(value))])
}

fn keep(name: &str, lines: Vec<Value>, info: &mut StreamInfo) {
    info.filter_state.retain(|(known, _)| known != name);
    info.filter_state.push((name.to_owned(), Value::Map(vec![("headers".to_owned(), Value::List(lines))])));
}

struct Asking {
    asked: Asked,
    out: Vec<u8>,
    sent: usize,
    rules: ResponseRules,
    scan: HeadScan,
    answer: Box<ResponseHead>,
}

impl Asking {
    fn poll(
        &mut self,
        upstream: &mut Upstream,
        worker: &Worker,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<Opened, NoTunnel>> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match upstream.io.poll_write(cx, rest) {
                Poll::Ready(Ok(count @ 1..)) => self.sent += count,
                // It may have answered before it closed: reading will tell.
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        loop {
            if let Some(outcome) = self.read(upstream, worker) {
                return Poll::Ready(outcome);
            }
            let filled = upstream.input.poll_fill(cx, &mut upstream.io, upstream.buffer_limit, &worker.buffers);
            match ready!(filled) {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    upstream.peer_ended();
                    return Poll::Ready(Err(NoTunnel::Failed("the tunnel's proxy closed the connection".to_owned())));
                }
            }
        }
    }

    /// What the answer says; `None` while it is not complete.
    fn read(&mut self, upstream: &mut Upstream, worker: &Worker) -> Option<Result<Opened, NoTunnel>> {
        loop {
            match parse_response(upstream.input.bytes(), self.asked, &self.rules, &mut self.scan, &mut self.answer) {
                ResponseParse::Partial => return None,
                ResponseParse::Complete { consumed, facts } => {
                    upstream.input.consume(consumed, &worker.buffers);
                    if facts.interim {
                        continue;
                    }
                    let answer = std::mem::take(&mut self.answer);
                    // An answer to a POST that has no body carries nothing.
                    let carries = (200..300).contains(&answer.status()) && facts.framing.has_body();
                    return Some(match (facts.tunnel, carries) {
                        (true, _) => Ok(Opened { answer, body: None }),
                        (false, true) if self.asked.method == Method::Post => {
                            Ok(Opened { answer, body: Some(facts.framing) })
                        }
                        (false, _) => Err(NoTunnel::Answered(answer)),
                    });
                }
                ResponseParse::Reject(reject) => {
                    upstream.stats().inc(stat::UPSTREAM_CX_PROTOCOL_ERROR);
                    let cause = format!("the tunnel's proxy answered no HTTP: {}", reject.details);
                    return Some(Err(NoTunnel::Failed(cause)));
                }
            }
        }
    }
}
