//! From the upstream's response head to the client's.

use postrider_filter_api::{LocalReply, Logged, VIA_UPSTREAM};
use postrider_http::{
    BodyFraming, Connection as Persistence, HeadLimits, HeaderId, Method, ResponseWrite, Version, note_written,
    write_response,
};
use postrider_telemetry::stats::sets;

use super::ending::End;
use super::exchange::Exchange;
use super::filters::Led;
use super::local::is_bodiless;
use super::passage::{Hook, Side};
use super::transfer::Transfer;
use super::{Connection, edits};
use crate::chain::Http;
use crate::io::Io;

impl Exchange {
    /// The upstream's final head is in `self.response`: edits it, and writes the client's head unless filters keep it or
    /// look at what follows it.
    ///
    /// # Errors
    /// A filter wants something else than this answer.
    pub(super) fn on_response_head(&mut self, connection: &mut Connection, http: &Http) -> Result<(), End> {
        let worker = &connection.worker;
        let now = worker.clock.now();
        self.info.response_began = Some(now);
        self.info.status = self.response.status();
        self.info.details = VIA_UPSTREAM.into();
        self.tunnel = self.response_facts.tunnel;
        self.count_upstream_status();
        if !http.model.router.suppress_x_headers {
            self.response.fields.remove(HeaderId::XEnvoyUpstreamServiceTime);
            // Until all of a request was sent, an upstream had no time to take.
            if let Some(received) = self.info.request_received {
                worker.with_service_time(now.millis_since(received), |line| {
                    let _ = self.response.fields.append_line_if_absent(line);
                });
            }
        }
        if self.attempts.is_some() {
            self.tell_client();
        }
        if self.chosen.is_some() {
            self.send_cookies();
        }
        self.return_request_id(http);
        self.edit_response_headers(connection);
        let from = self.response_facts.framing;
        if self.filters.as_ref().is_some_and(|filters| self.response_pass.open || filters.looks_at_responses())
            && !self.filter_response_head(connection, http)?
        {
            return Ok(());
        }
        let version = self.request.version();
        let to = match from {
            BodyFraming::Chunked | BodyFraming::UntilClose => streamed_for(version),
            other => other,
        };
        self.download = Transfer::new(from, to, self.keeps_trailers(http), || self.answer_limits());
        self.send_response_head(connection, http, to);
        Ok(())
    }

    /// Shows the head to the filters; `true` when they let it go on and nobody looks at what follows.
    ///
    /// # Errors
    /// As above.
    #[inline(never)]
    fn filter_response_head(&mut self, connection: &mut Connection, http: &Http) -> Result<bool, End> {
        let from = self.response_facts.framing;
        let bodiless = self.tunnel || self.request.method() == Method::Head || is_bodiless(self.info.status);
        let ended = !from.has_body();
        if self.response_pass.open {
            // Open already: it comes from filters of the upstream side, piece by piece.
            self.response_pass.begin(ended, bodiless);
            self.download = Transfer::filtered(from, self.keeps_trailers(http), || self.answer_limits());
            return Ok(false);
        }
        let led = self.lead(Side::Response, connection, ended, bodiless);
        if matches!(led, Led::Through) {
            self.keep_alive &= !self.info.drain_connection;
            self.note_filtered_status();
            return Ok(true);
        }
        self.response_pass.open = true;
        self.download = Transfer::filtered(from, self.keeps_trailers(http), || self.answer_limits());
        if let Led::Stopped(Some(answer)) = led
            && let Err(barred) = self.settle_led(Side::Response, ended, answer)
        {
            return Err(self.barred(Side::Response, http, barred));
        }
        Ok(false)
    }

    /// Filters may have changed what the upstream said.
    fn note_filtered_status(&mut self) {
        if self.info.status != self.response.status() {
            self.upstream_status = Some(self.info.status);
            self.info.status = self.response.status();
        }
    }

    /// The head passed the filters: decides how the body travels and writes the client's head.
    pub(super) fn send_filtered_head(&mut self, connection: &mut Connection, http: &Http) {
        self.note_filtered_status();
        let Some(filters) = &self.filters else { return };
        let (from, pass) = (self.response_facts.framing, &mut self.response_pass);
        let wanted = |hook| pass.is_wanted(Side::Response, filters, hook);
        let body_wanted = wanted(Hook::Body);
        let looked_at = body_wanted || from.may_have_trailers() && wanted(Hook::Trailers);
        let version = self.request.version();
        let streamed = streamed_for(version);
        let looked_at = looked_at || self.attempts.as_ref().is_some_and(|attempts| attempts.answer_is_fed());
        let unseen = !(pass.has_begun() || from.has_body() && looked_at);
        let gone = self.response_trailers.is_empty();
        let to = match (from, pass.whole(Side::Response, filters, gone)) {
            (BodyFraming::Chunked | BodyFraming::UntilClose, _) if unseen => streamed,
            (from, _) if unseen => from,
            (BodyFraming::Chunked, Some(_))
                if !pass.is_changed() && !pass.had_trailers() && version == Version::Http11 =>
            {
                from
            }
            (from, Some(length)) => from.with_length(length),
            (BodyFraming::Length(came) | BodyFraming::Counted(came), None) => {
                let length = pass.declared_length(Side::Response, filters, came, &self.response.fields);
                length.map_or(streamed, |length| from.with_length(length))
            }
            (_, None) => streamed,
        };
        if unseen {
            pass.open = false;
            self.download = Transfer::new(from, to, self.keeps_trailers(http), || self.answer_limits());
        } else {
            self.download.leave_as(to);
        }
        self.send_response_head(connection, http, to);
    }

    fn send_response_head(&mut self, connection: &mut Connection, http: &Http, to: BodyFraming) {
        let raw = self.tunnel;
        if raw {
            self.download = Transfer::raw(BodyFraming::UntilClose);
            if !http.model.router.suppress_x_headers {
                // A request that opens a tunnel is never complete.
                self.response.fields.remove(HeaderId::XEnvoyUpstreamServiceTime);
            }
        }
        if to == BodyFraming::UntilClose && self.request.version() != Version::Http2 {
            self.keep_alive = false;
        }
        // Whether the rest of the request will come is known when it has: until then the connection is meant to stay.
        self.decide_keep_alive(connection, http, true);
        if raw || !self.upload.is_heard() {
            http.stats.inc(sets::http::DOWNSTREAM_RQ_RESPONSE_BEFORE_RQ_COMPLETE);
        }
        let to = if to == BodyFraming::None && self.lacks_length() { BodyFraming::Length(0) } else { to };
        self.write_head(connection, http, if raw { BodyFraming::None } else { to });
        self.answered = true;
        self.info.response_send_began = Some(connection.worker.clock.recent());
        self.response_done = false;
        if self.download.is_done() && !raw {
            self.answer_is_whole();
        }
        if raw {
            // From here on the request side carries whatever comes.
            self.upload = Transfer::raw(BodyFraming::UntilClose);
            self.request_pass.open = false;
            http.stats.inc(sets::http::DOWNSTREAM_CX_UPGRADES_TOTAL);
            http.stats.gauge_inc(sets::http::DOWNSTREAM_CX_UPGRADES_ACTIVE);
            if http.model.log_moments.connected {
                self.record(Logged::Connected, connection, http);
            }
        }
    }

    pub(super) fn write_head(&mut self, connection: &mut Connection, http: &Http, framing: BodyFraming) {
        if http.shapes_answers
            && let Some(via) = &http.model.identity.via
        {
            edits::append_via(&mut self.response.fields, via);
        }
        connection.worker.date(&mut self.response.fields);
        if http.shapes_answers
            && !self.info.flags.is_empty()
            && let Some(config) = &http.model.identity.proxy_status
        {
            self.tell_proxy_status(connection, config);
        }
        if matches!(connection.io, Io::Http2(_)) {
            return self.write_head_in_frames(connection, http, framing);
        }
        let upgraded = self.tunnel && self.response.status() == 101;
        let options = ResponseWrite {
            framing,
            framing_as_received: framing == self.response_facts.framing,
            connection: if upgraded { Persistence::Upgrade } else { self.connection_header() },
            server: self.server_header(http),
            keep_length: self.keeps_length(framing),
            extra: &[],
        };
        let start = self.down.bytes.len();
        write_response(&self.response, &options, &mut self.down.bytes);
        if self.names.is_some() || http.shapes_answers {
            self.form_response_names(start, http);
            if http.notes_answers {
                self.note_written(&options);
            }
        }
        self.info.response_head_bytes = (self.down.bytes.len() - start) as u64;
        if self.info.meters.is_some() {
            let out = std::mem::take(&mut self.down.bytes);
            self.meter_answer_head(out.get(start..).unwrap_or_default());
            self.down.bytes = out;
        }
    }

    #[inline(never)]
    fn write_head_in_frames(&mut self, connection: &mut Connection, http: &Http, framing: BodyFraming) {
        let (keep_length, ended) = (self.keeps_length(framing), self.download.is_done());
        if let Io::Http2(stream) = &mut connection.io {
            // Who cannot be told has gone, which the next write finds out, too.
            let server = self.server_header(http);
            let sent = stream.send_head(&self.response, framing, keep_length, server, ended);
            self.info.response_head_bytes = sent.unwrap_or_default();
            if http.notes_answers {
                self.note_written(&ResponseWrite { framing, keep_length, server, ..ResponseWrite::default() });
            }
        }
    }

    /// What was written in place of the head's own fields is kept for a log that tells it.
    #[cold]
    #[inline(never)]
    pub(super) fn note_written(&mut self, options: &ResponseWrite<'_>) {
        note_written(&mut self.response, options);
    }

    /// An answer that came without a body, as of its status, and that a filter gave another status: by the new one, its client
    /// would wait for a body (RFC 9112 6.3).
    #[cold]
    fn lacks_length(&self) -> bool {
        let bodiless = self.tunnel || self.request.method() == Method::Head || is_bodiless(self.response.status());
        !bodiless && !self.response.fields.has(HeaderId::ContentLength)
    }

    /// The length that a body would have had is of interest in answers to HEAD and in 304.
    fn keeps_length(&self, framing: BodyFraming) -> bool {
        framing == BodyFraming::None && !self.tunnel && self.response.status() != 204
    }

    /// The client may have trailers, and gets those of its answer.
    pub(super) fn keeps_trailers(&self, http: &Http) -> bool {
        http.model.http1.enable_trailers || self.request.version() == Version::Http2
    }

    /// How large the trailers of the answer may be: as large as its head.
    pub(super) fn answer_limits(&self) -> HeadLimits {
        self.cluster.as_ref().map_or_else(HeadLimits::default, |cluster| cluster.response_limits())
    }

    /// A local reply of plain text with the reset's reason, as Envoy words it.
    #[cold]
    pub(super) fn upstream_reset(&self, status: u16, reason: &str) -> End {
        self.count_unanswered(status);
        let retried = if self.info.upstream_attempts > 1 { "retried and the latest " } else { "" };
        let text =
            format!("upstream connect error or disconnect/reset before headers. {retried}reset reason: {reason}");
        End::Reply(Box::new(LocalReply { status, body: text.into_bytes().into(), ..LocalReply::default() }))
    }

    fn count_upstream_status(&mut self) {
        let status = self.response.status();
        if let Some(host) = &self.host {
            if status >= 500 {
                return self.count_failure(host, status);
            }
            if self.request.method() == Method::Post && self.is_grpc() {
                // What becomes of a call is known at its end.
                self.counts_grpc = true;
                return;
            }
            host.totals.successes.set(host.totals.successes.get() + 1);
        }
    }
}

/// How a body of unknown length goes to a client.
pub(super) fn streamed_for(version: Version) -> BodyFraming {
    match version {
        Version::Http11 => BodyFraming::Chunked,
        // HTTP/2 says itself where the body ends.
        Version::Http10 | Version::Http2 => BodyFraming::UntilClose,
    }
}
