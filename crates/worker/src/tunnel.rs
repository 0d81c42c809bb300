//! A tunnel through an upstream that is a proxy: CONNECT and its answer (RFC 9110 section 9.3.6).

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use postrider_filter_api::StreamInfo;
use postrider_h1::{HeadScan, ResponseParse, parse_response};
use postrider_http::{
    Asked, BodyFraming, Fields, Method, RequestHead, RequestWrite, ResponseHead, ResponseRules, Version,
    check_authority, split_port, write_request,
};
use postrider_model::Tunneling;
use postrider_telemetry::stats::sets::cluster as stat;

use crate::cluster::{Cluster, Upstream};
use crate::format::{Absent, Context};
use crate::http::{apply_edits, evaluate_edits};
use crate::io::Io;
use crate::worker::Worker;

/// The request for the tunnel of a connection; what `info` says of it may stand in host and headers.
///
/// # Errors
/// The host is no `host:port`.
pub(crate) fn request(tunneling: &Tunneling, info: &StreamInfo, worker: &Worker) -> Result<RequestHead, String> {
    let mut head = RequestHead::new();
    let mut host = Vec::new();
    let mut edits = {
        let context = Context {
            request: &head,
            response: &ResponseHead::new(),
            trailers: &Fields::new(),
            info,
            route: None,
            reply_body: &[],
            http: false,
            now: worker.clock.wall_now(),
        };
        context.write(&tunneling.hostname, Absent::Empty, &mut host);
        evaluate_edits(&tunneling.headers, &context)
    };
    let named = check_authority(&host).is_ok() && split_port(&host).1.is_some_and(|port| !port.is_empty());
    if !named || head.set_method(b"CONNECT").is_err() || head.set_authority(&host).is_err() {
        return Err(format!("`{}` is no host and port to tunnel to", String::from_utf8_lossy(&host)));
    }
    head.set_version(Version::Http11);
    apply_edits(&tunneling.headers, &mut head.fields, &mut edits);
    Ok(head)
}

/// Opens the tunnel: when this is done, `upstream` carries the bytes of the endpoint behind the proxy.
///
/// # Errors
/// The proxy does not agree, or is no proxy: why, as logs show it.
pub(crate) async fn open(
    head: &RequestHead,
    upstream: &mut Upstream,
    cluster: &Cluster,
    worker: &Rc<Worker>,
) -> Result<(), String> {
    upstream.begin_request();
    let mut out = Vec::new();
    if let Io::Http2(stream) = &mut upstream.io {
        stream.send_request(head, BodyFraming::None, false).map_err(|error| error.to_string())?;
    } else {
        write_request(head, &RequestWrite::default(), &mut out);
    }
    let limits = cluster.response_limits();
    let mut asking =
        Asking { out, sent: 0, rules: ResponseRules { limits }, scan: HeadScan::new(), answer: ResponseHead::new() };
    std::future::poll_fn(|cx| asking.poll(upstream, worker, cx)).await
}

struct Asking {
    out: Vec<u8>,
    sent: usize,
    rules: ResponseRules,
    scan: HeadScan,
    answer: ResponseHead,
}

impl Asking {
    fn poll(&mut self, upstream: &mut Upstream, worker: &Worker, cx: &mut TaskContext<'_>) -> Poll<Result<(), String>> {
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
                    return Poll::Ready(Err("the tunnel's proxy closed the connection".to_owned()));
                }
            }
        }
    }

    /// What the answer says; `None` while it is not complete.
    fn read(&mut self, upstream: &mut Upstream, worker: &Worker) -> Option<Result<(), String>> {
        let asked = Asked { method: Method::Connect, upgrade: false };
        loop {
            match parse_response(upstream.input.bytes(), asked, &self.rules, &mut self.scan, &mut self.answer) {
                ResponseParse::Partial => return None,
                ResponseParse::Complete { consumed, facts } => {
                    upstream.input.consume(consumed, &worker.buffers);
                    if facts.interim {
                        continue;
                    }
                    return Some(match facts.tunnel {
                        true => Ok(()),
                        false => Err(format!("the tunnel's proxy answered {}", self.answer.status())),
                    });
                }
                ResponseParse::Reject(reject) => {
                    upstream.stats().inc(stat::UPSTREAM_CX_PROTOCOL_ERROR);
                    return Some(Err(format!("the tunnel's proxy answered no HTTP: {}", reject.details)));
                }
            }
        }
    }
}
