//! What gRPC clients are told in their own terms: local replies as a status of gRPC, and how long a call may take.
//!
//! Everything here is for requests with gRPC's content type, or for routes that limit such requests; no other request
//! pays for it.

use std::time::Duration;

use postrider_http::grpc::{self, Code, Status};
use postrider_http::{HeaderId, Method};
use postrider_model::{Forward, GrpcTimeout, StreamLimit};

use super::exchange::Exchange;
use crate::chain::Http;
use crate::cluster::Host;

impl Exchange {
    /// Looks once what the client speaks, before filters and header edits may change it.
    pub(super) fn note_grpc(&mut self) {
        self.grpc = Some(is_grpc(self));
    }

    pub(super) fn is_grpc(&self) -> bool {
        self.grpc.unwrap_or_else(|| is_grpc(self))
    }

    /// Makes of the prepared local reply what a gRPC client reads: trailers and nothing else, with status 200. Whoever
    /// counts answers of the cluster goes on counting `status`, and filters that ask for the status hear it until the reply is sent.
    #[cold]
    #[inline(never)]
    pub(super) fn reply_as_grpc(&mut self, status: u16, grpc_status: Option<Code>) {
        if self.host.is_some() {
            self.upstream_status.get_or_insert(status);
        }
        self.response.set_status(200);
        let is_json = self.response.fields.get(HeaderId::ContentType) == Some(b"application/json");
        let fields = &mut self.response.fields;
        // The values are of a grammar that fields take; a head that holds no more fields stays without them.
        let _ = fields.set(HeaderId::ContentType, grpc::CONTENT_TYPE);
        if !fields.has(HeaderId::GrpcStatus) {
            let code = grpc_status.unwrap_or(Code::from_http(status)).number();
            let _ = fields.set(HeaderId::GrpcStatus, code.to_string().as_bytes());
        }
        let body = match self.reply_body.strip_suffix(b"\n") {
            Some(line) if is_json => line,
            _ => &self.reply_body,
        };
        if !body.is_empty() && self.request.method() != Method::Head {
            let mut message = Vec::with_capacity(body.len());
            grpc::encode_message(body, &mut message);
            let _ = fields.set(HeaderId::GrpcMessage, &message);
        }
        fields.remove(HeaderId::ContentLength);
        self.reply_body.clear();
    }

    /// An answer to a gRPC request is over: whether it went well, its last fields say.
    #[cold]
    #[inline(never)]
    pub(super) fn count_grpc(&mut self, host: &Host) {
        self.counts_grpc = false;
        let said = Status::of(&self.response_trailers).or_else(|| Status::of(&self.response.fields));
        let is_good = self.response_done && said.is_some_and(|status| status.to_http() < 500);
        let total = if is_good { &host.totals.successes } else { &host.totals.errors };
        total.set(total.get() + 1);
    }

    /// A route that limits streams or calls: its limits take the place of others.
    #[cold]
    #[inline(never)]
    pub(super) fn limit_stream(&mut self, http: &Http, forward: &Forward) {
        self.max_duration = self.max_duration(http, forward);
        if self.is_grpc() {
            self.take_grpc_timeout(forward);
        }
    }

    /// How long the stream may last, counted from its beginning.
    pub(super) fn max_duration(&self, http: &Http, forward: &Forward) -> Option<Duration> {
        let of_connection = http.model.timeouts.max_stream_duration;
        match &forward.stream_limit {
            None => of_connection,
            Some(limit) => self.max_duration_on_route(limit, of_connection),
        }
    }

    fn max_duration_on_route(&self, limit: &StreamLimit, of_connection: Option<Duration>) -> Option<Duration> {
        let asked = self.request.fields.get(HeaderId::GrpcTimeout).and_then(grpc::parse_timeout);
        match (asked, limit.grpc_timeout_max) {
            (Some(asked), Some(max)) => {
                Some(max.map_or(asked, |max| asked.min(max)).saturating_sub(limit.grpc_timeout_offset))
            }
            _ => limit.duration.unwrap_or(of_connection),
        }
    }

    /// `max_grpc_timeout`: the call's own timeout takes the place of the route's, up to a limit.
    fn take_grpc_timeout(&mut self, forward: &Forward) {
        let Some(GrpcTimeout { max, offset }) = forward.grpc_timeout else { return };
        let asked = self.request.fields.get(HeaderId::GrpcTimeout).and_then(grpc::parse_timeout);
        // Nothing is left out of a call that asks for less than the offset: zero would mean no limit.
        let asked = asked.filter(|asked| !asked.is_zero());
        let asked = asked.map(|asked| if offset < asked { asked.saturating_sub(offset) } else { asked });
        self.route_timeout = match (asked, max) {
            (Some(asked), Some(max)) => Some(asked.min(max)),
            (asked, max) => asked.or(max),
        };
    }

    /// The upstream of a call hears how long it may take.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_grpc_timeout(&mut self, http: &Http, forward: &Forward) {
        if !self.is_grpc() {
            return;
        }
        let timeout = if forward.stream_limit.is_some() {
            self.max_duration
        } else {
            let per_try = self.attempts.as_ref().and_then(|attempts| attempts.per_try);
            per_try.into_iter().chain(self.route_timeout).min()
        };
        let fields = &mut self.request.fields;
        if forward.stream_limit.is_none() && !http.model.router.suppress_x_headers {
            fields.remove(HeaderId::XEnvoyExpectedRqTimeoutMs);
            if let Some(timeout) = timeout {
                let millis = timeout.as_millis().to_string();
                let _ = fields.set(HeaderId::XEnvoyExpectedRqTimeoutMs, millis.as_bytes());
            }
        }
        if let Some(timeout) = timeout {
            let mut value = Vec::new();
            grpc::write_timeout(timeout, &mut value);
            let _ = fields.set(HeaderId::GrpcTimeout, &value);
        }
    }
}

fn is_grpc(exchange: &Exchange) -> bool {
    grpc::has_content_type(&exchange.request.fields)
}
