//! Answers that the proxy makes itself.

use std::borrow::Cow;

use postrider_filter_api::{Flags, LocalReply, Treatment};
use postrider_http::{
    BodyFraming, FieldLine, HeaderId, Method, Reject, ResponseWrite, Version, capitalize_names, reason, reason_phrase,
    write_response,
};
use postrider_model::{NameForm, ShedKind};
use postrider_telemetry::stats::sets::{http as stat, http1, http2};

use super::exchange::Exchange;
use super::{Connection, edits};
use crate::chain::Http;
use crate::io::Io;

/// What the log says of an answer that a route gives itself.
const OF_ROUTE: &str = "direct_response";

impl Exchange {
    /// The codec refused the request: nothing behind it on this connection can be trusted.
    pub(super) fn reply_refused(&mut self, connection: &mut Connection, http: &Http, reject: Reject) {
        let stats = &http.stats;
        // Well-formed heads that are refused for what they say are no fault of the protocol's, and get no text.
        let well_formed = is_well_formed(reject);
        if reject.status != 408 && !well_formed {
            self.fail(Flags::DOWNSTREAM_PROTOCOL_ERROR, "");
            if breaks_connection(reject, &connection.io) {
                stats.inc(stat::DOWNSTREAM_CX_PROTOCOL_ERROR);
            }
        }
        if reject == reason::PATH_NORMALIZATION {
            stats.inc(stat::DOWNSTREAM_RQ_FAILED_PATH_NORMALIZATION);
        }
        if reject == reason::UNDERSCORE {
            self.count_underscores(connection);
        }
        self.keep_alive = false;
        // Of what was not understood nobody knows what it was.
        self.grpc = Some(false);
        let body = match reject.details {
            "request_header_timeout" => "request header timeout",
            _ if well_formed => "",
            _ => reason_phrase(reject.status),
        };
        let reply = LocalReply {
            status: reject.status,
            body: Cow::Borrowed(body.as_bytes()),
            details: reject.details.into(),
            ..LocalReply::default()
        };
        self.find_filters_of_answer(connection, http);
        self.reply(connection, http, reply);
        // What follows a refused head is not read as requests.
        connection.input.release(&connection.worker.buffers);
        self.facts.framing = BodyFraming::UntilClose;
        self.upload = super::transfer::Transfer::raw(BodyFraming::UntilClose);
    }

    #[cold]
    fn count_underscores(&self, connection: &Connection) {
        let stats = &connection.worker.stats;
        match &connection.io {
            Io::Http2(_) => stats.block(&http2::SET, "").inc(http2::REQUESTS_REJECTED_WITH_UNDERSCORES_IN_HEADERS),
            _ => stats.block(&http1::SET, "").inc(http1::REQUESTS_REJECTED_WITH_UNDERSCORES_IN_HEADERS),
        }
    }

    /// The process is short of something: whether this request is refused for that. Its connection may have to end.
    #[cold]
    pub(super) fn is_turned_away(&mut self, connection: &mut Connection, http: &Http) -> bool {
        let worker = connection.worker.clone();
        if connection.account.is_none() && worker.overload.strain().keeps_accounts {
            connection.account = Some(worker.overload.accounts.open(connection.deadline.caller()));
        }
        if http.welcome.get() {
            return false;
        }
        // One of HTTP/2 is told on its own.
        if !matches!(connection.io, Io::Http2(_)) && worker.overload.draws_end(&worker.random) {
            http.stats.inc(stat::DOWNSTREAM_CX_OVERLOAD_DISABLE_KEEPALIVE);
            http.stats.inc(stat::DOWNSTREAM_CX_DRAIN_CLOSE);
            self.keep_alive = false;
        }
        let sheds = |kind| worker.overload.sheds(kind, &worker.random, &worker.stats);
        if !matches!(connection.io, Io::Http2(_)) {
            if sheds(ShedKind::Http1) {
                http.stats.inc(stat::DOWNSTREAM_RQ_OVERLOAD_CLOSE);
                self.keep_alive = false;
                self.info.flags.insert(Flags::DOWNSTREAM_PROTOCOL_ERROR);
                let body = Cow::Borrowed(b"Internal Server Error".as_slice());
                let details = "overload".into();
                self.reply(connection, http, LocalReply { status: 500, body, details, ..LocalReply::default() });
                return true;
            }
            if sheds(ShedKind::GoAway) {
                self.keep_alive = false;
            }
        }
        if sheds(ShedKind::Filters) {
            http.stats.inc(stat::RQ_OVERLOAD_LOCAL_REPLY);
            let body = Cow::Borrowed(b"envoy overloaded".as_slice());
            let details = "overload".into();
            self.reply(connection, http, LocalReply { status: 503, body, details, ..LocalReply::default() });
            return true;
        }
        if !worker.overload.draws_request(&worker.random, &worker.stats) {
            return false;
        }
        http.stats.inc(stat::DOWNSTREAM_RQ_OVERLOAD_CLOSE);
        let mark = ("x-envoy-local-overloaded".into(), b"true".as_slice().into());
        let reply = LocalReply {
            status: 503,
            body: Cow::Borrowed(b"envoy overloaded"),
            headers: http.model.identity.marks_overload.then_some(mark).into_iter().collect(),
            details: "overload".into(),
            ..LocalReply::default()
        };
        self.reply(connection, http, reply);
        true
    }

    /// Prepares the answer to the client, whose route edits it. It is sent when the filters have seen it: see
    /// [`Exchange::run`].
    pub(super) fn reply(&mut self, connection: &mut Connection, http: &Http, reply: LocalReply) {
        if self.answered {
            return;
        }
        // Earlier answers and interim ones that wait still come first.
        self.down.move_to(&mut connection.out);
        let LocalReply { status, grpc_status, body, headers, treatment, details } = reply;
        let by_route = details == OF_ROUTE;
        // Who sends requests that get 400 is not understood: as Envoy has it, also where a route or filter says so. Behind a
        // request for a tunnel may stand what is meant for the tunnel, and must not be read as a request.
        let distrusted = status == 400 && !http.rules.spare_connections || self.asks_for_tunnel();
        if distrusted && !matches!(connection.io, Io::Http2(_)) {
            self.keep_alive = false;
        }
        if !details.is_empty() {
            self.info.details = details;
        }
        if self.info.status == 0 {
            self.info.status = status;
        }
        self.response.reply(status);
        self.reply_body.clear();
        self.reply_body.extend_from_slice(&body);
        let streams = std::mem::take(&mut self.info.streams_reply) && self.filters.is_some();
        let own = treatment == Treatment::Own;
        if !by_route && !own && !self.answers_by_route() {
            // The route edits the bare answer of a filter, as in Envoy: what the filter says has the last word. What
            // formats say of the status is that of the answer that came, where this one takes its place.
            self.edit_response_headers(connection);
            for (name, _) in headers.iter().filter(|_| treatment == Treatment::InPlace) {
                self.response.fields.remove_name(name.to_ascii_lowercase().as_bytes());
            }
        }
        // How long the body is, whoever had another one, is written behind the filters. Of one that is still to come the
        // filter says it.
        let counts = |name: &str| streams || !name.eq_ignore_ascii_case("content-length");
        for (name, value) in headers.iter().filter(|(name, _)| counts(name)) {
            // A value with control bytes, made from a request, is left out.
            let _ = self.response.fields.append_name(name.to_ascii_lowercase().as_bytes(), value);
        }
        if by_route {
            self.edit_response_headers(connection);
        }
        self.info.status = status;
        self.streaming = None;
        if streams {
            return self.begin_streaming(http);
        }
        match &http.local_replies {
            _ if own => {}
            Some(replies) => self.map_reply(connection, replies),
            None if self.reply_body.is_empty() => {
                // What describes a body that somebody else had, such as a service whose refusal a filter hands on.
                self.response.fields.remove(HeaderId::ContentType);
            }
            None if !self.response.fields.has(HeaderId::ContentType) => {
                let _ = self.response.fields.append(HeaderId::ContentType, b"text/plain");
            }
            None => {}
        }
        if !own && self.is_grpc() {
            self.reply_as_grpc(self.info.status, grpc_status);
        }
        self.return_request_id(http);
        if self.filters.is_some() {
            let bodiless = self.request.method() == Method::Head || is_bodiless(self.response.status());
            self.response_trailers.clear();
            self.info.reply_bytes = self.reply_body.len() as u64;
            self.response_pass.replace(&self.reply_body, bodiless);
            if self.response_pass.has_begun() {
                // It comes back when it passed the filters.
                self.reply_body.clear();
            }
        }
        self.replying = true;
    }

    /// Whether the request's route is one that answers itself. Its edits are for that answer, and not for those of filters.
    fn answers_by_route(&self) -> bool {
        let (Some(routes), Some(route)) = (&self.routes, self.route) else { return false };
        !matches!(routes.plan.table.route(route).action, postrider_model::Action::Forward(_))
    }

    /// Sends the prepared answer; it goes behind what waits to be sent already.
    pub(super) fn send_reply(&mut self, connection: &mut Connection, http: &Http) {
        if !std::mem::take(&mut self.replying) {
            return;
        }
        if self.streaming.is_some() && self.answered {
            return;
        }
        self.info.status = self.response.status();
        if let Some(config) = &http.model.identity.proxy_status {
            self.tell_proxy_status(connection, config);
        }
        self.swallow_body(connection);
        let heard_all = self.upload.is_heard();
        self.decide_keep_alive(connection, http, heard_all);
        if !heard_all && !self.refused.is_some_and(is_well_formed) {
            http.stats.inc(stat::DOWNSTREAM_RQ_RESPONSE_BEFORE_RQ_COMPLETE);
        }
        self.write_reply(connection, http);
        self.answered = true;
        self.info.response_send_began = Some(connection.worker.clock.now());
        self.response_done = true;
    }

    /// Reads the rest of the request's body if it is here already, so that the connection can go on.
    pub(super) fn swallow_body(&mut self, connection: &mut Connection) {
        let buffers = &connection.worker.buffers;
        while !self.upload.is_heard() && !connection.input.is_empty() {
            let before = connection.input.bytes().len();
            let step = self.upload.swallow(&mut connection.input, &mut self.up, &mut self.request_trailers, buffers);
            match step {
                Ok(count) => self.info.bytes_received += count,
                Err(_) => return,
            }
            if connection.input.bytes().len() == before {
                return;
            }
        }
    }

    pub(super) fn decide_keep_alive(&mut self, connection: &mut Connection, http: &Http, heard_all: bool) {
        let exhausted = http.bounds_connections && connection.is_used_up(http);
        let draining = connection.is_draining();
        if draining && self.keep_alive {
            http.stats.inc(stat::DOWNSTREAM_CX_DRAIN_CLOSE);
        }
        self.keep_alive =
            self.keep_alive && self.facts.persistent && heard_all && !exhausted && !draining && !connection.half_closed;
    }

    pub(super) fn connection_header(&self) -> postrider_http::Connection {
        use postrider_http::Connection;
        match (self.keep_alive, self.request.version()) {
            (true, Version::Http11 | Version::Http2) => Connection::Implicit,
            (true, Version::Http10) => Connection::KeepAlive,
            (false, _) => Connection::Close,
        }
    }

    fn write_reply(&mut self, connection: &mut Connection, http: &Http) {
        if let Some(via) = &http.model.identity.via {
            edits::append_via(&mut self.response.fields, via);
        }
        connection.worker.date(&mut self.response.fields);
        let bodiless = is_bodiless(self.response.status());
        let framing = match bodiless {
            true => BodyFraming::None,
            false => BodyFraming::Length(self.reply_body.len() as u64),
        };
        let options = ResponseWrite {
            framing,
            framing_as_received: false,
            connection: self.connection_header(),
            server: self.server_header(http),
            keep_length: false,
            extra: &[],
        };
        let has_body = !bodiless && self.request.method() != Method::Head;
        let out = &mut connection.out.bytes;
        if let Io::Http2(stream) = &mut connection.io {
            let ended = !has_body || self.reply_body.is_empty();
            // The frame says that nothing follows.
            let framing = if self.reply_body.is_empty() { BodyFraming::None } else { framing };
            // Who cannot be told has gone, which the next write finds out, too.
            let sent = stream.send_head(&self.response, framing, false, options.server, ended);
            self.info.response_head_bytes = sent.unwrap_or_default();
        } else {
            let start = out.len();
            write_response(&self.response, &options, out);
            if http.model.http1.names == NameForm::ProperCase
                && let Some(head) = out.get_mut(start..)
            {
                capitalize_names(head);
            }
            self.info.response_head_bytes = (out.len() - start) as u64;
            if self.info.meters.is_some() {
                self.meter_answer_head(out.get(start..).unwrap_or_default());
            }
        }
        if has_body {
            connection.out.bytes.extend_from_slice(&self.reply_body);
            self.info.bytes_sent += self.reply_body.len() as u64;
        }
        if http.notes_answers {
            // As in Envoy, that there is no body is said on the wire alone.
            let framing = if self.reply_body.is_empty() { BodyFraming::None } else { framing };
            let by_frames = matches!(connection.io, Io::Http2(_));
            let persistence = if by_frames { postrider_http::Connection::Implicit } else { options.connection };
            self.note_written(&ResponseWrite { framing, connection: persistence, ..options });
        }
    }

    pub(super) fn server_header<'h>(&self, http: &'h Http) -> Option<&'h FieldLine> {
        use postrider_model::ServerHeader;
        match http.model.identity.server_header {
            ServerHeader::Overwrite => http.server.as_ref(),
            ServerHeader::AppendIfAbsent if !self.response.fields.has(HeaderId::Server) => http.server.as_ref(),
            ServerHeader::AppendIfAbsent | ServerHeader::PassThrough => None,
        }
    }

    /// The id that the request went under, for clients that want to quote it.
    pub(super) fn return_request_id(&mut self, http: &Http) {
        if self.trace.is_some() {
            self.decorate_answer(http);
        }
        let wanted = http.model.identity.always_set_request_id_in_response
            || self.internal && self.request.fields.has(HeaderId::XEnvoyForceTrace);
        if wanted && let Some(id) = self.request.fields.get(HeaderId::XRequestId) {
            let _ = self.response.fields.set(HeaderId::XRequestId, id);
        }
    }

    /// What weighted cluster, route, virtual host and table say about the response's headers.
    pub(super) fn edit_response_headers(&mut self, connection: &Connection) {
        let (Some(routes), Some(route)) = (self.routes.clone(), self.route) else { return };
        if !routes.plan.routes.get(route as usize).is_some_and(|plan| plan.edits_responses) {
            return;
        }
        let levels = edits::response_levels(&routes.plan.table, route, self.weighted);
        if levels.iter().all(|level| level.is_empty()) {
            return;
        }
        let now = connection.worker.clock.wall(self.info.started);
        for level in levels {
            edits::remove(level, &mut self.response.fields);
            let mut values = edits::evaluate(level, &self.format_context(&[], now));
            edits::add(level, &mut self.response.fields, &mut values);
        }
    }
}

/// A head of this request could be read, and is refused for what it says.
pub(super) fn is_well_formed(reject: Reject) -> bool {
    matches!(reject.details, "missing_host_header" | "path_normalization_failed")
}

/// What follows such a head on its connection cannot be understood either. Over HTTP/2 it is a stream's own matter that a head is
/// too large, has a name that is not wanted, or says what nobody can serve.
fn breaks_connection(reject: Reject, io: &Io) -> bool {
    let of_stream = reject.status == 431 || reject == reason::UNDERSCORE || !reject.details.starts_with("http1.");
    !(of_stream && matches!(io, Io::Http2(_)))
}

/// Responses with this status never have a body (RFC 9110 section 6.4.1).
pub(super) fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
