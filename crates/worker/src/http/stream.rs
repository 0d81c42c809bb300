//! Forwarding: a host and a connection, then both directions at once until the answer is complete.
//!
//! ```text
//! client ──input──> upload ──up──> upstream          each direction reads only when its outbox is empty:
//! client <──down── download <──input── upstream      that is the back-pressure
//! ```

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use postrider_filter_api::Flags;
use postrider_h1::{ResponseParse, parse_response};
use postrider_http::{
    Asked, BodyFraming, Connection as Persistence, HeaderId, ResponseRules, ResponseWrite, Version, list_members,
    reason, write_response,
};
use postrider_model::{Action, NameForm, Priority};
use postrider_telemetry::stats::sets::{self, cluster as stat};
use postrider_upstream::Permit;
use postrider_upstream::outlier::Outcome;

use super::Connection;
use super::ending::End;
use super::exchange::{Exchange, Pooling};
use super::names;
use crate::backlog::{Amounts, HTTP_READS};
use crate::chain::{Http, Routes};
use crate::cluster::{Cluster, NoConnection, Upstream};
use crate::h2;
use crate::io::Io;
use crate::worker::Worker;

/// A connection on its way.
type Connecting = Pin<Box<dyn Future<Output = Connected>>>;

/// How long it took, and what came of it.
type Connected = (Duration, Result<Box<Upstream>, NoConnection>);

impl Exchange {
    /// Sends the request, which is ready for its host, and its answer to the client.
    pub(super) async fn forward(&mut self, routes: Rc<Routes>, route: u32, connection: &mut Connection, http: &Http) {
        let Action::Forward(forward) = &routes.plan.table.route(route).action else { return };
        // What is kept in variables here makes every idle connection's task larger.
        loop {
            let upstream = match self.pooled(connection, forward.priority) {
                Some(pooled) => {
                    self.info.upstream_wait = Some(Duration::ZERO);
                    Ok(pooled)
                }
                None => {
                    let Some(connecting) = self.connecting(connection, forward.priority) else { return };
                    match self.while_connecting(connection, http, connecting).await {
                        Ok((waited, connected)) => {
                            self.info.upstream_wait = Some(waited);
                            connected
                        }
                        Err(end) => return self.conclude(connection, http, end),
                    }
                }
            };
            let begun = match upstream {
                Ok(upstream) => self.begin_upstream(upstream, connection, http, forward.priority),
                Err(failure) => Err(self.no_connection(failure, (connection, http))),
            };
            let ended = match begun {
                Ok(()) => std::future::poll_fn(|cx| self.poll_stream(connection, http, cx)).await,
                Err(end) => end,
            };
            match ended {
                End::Stale => {
                    if http.meters {
                        self.meter_upstream();
                    }
                    self.upstream = None;
                    self.up.reset();
                    self.pooling = Pooling::Fresh;
                }
                End::Again => {
                    // Boxed, as above.
                    let again = Box::pin(self.try_again(connection, http, forward));
                    match again.await {
                        Ok(()) => {}
                        Err(end) => return self.conclude(connection, http, end),
                    }
                }
                end => return self.conclude(connection, http, end),
            }
        }
    }

    /// Picks a host, and readies the request for it; false when there is none, which the client was told.
    #[inline(always)]
    pub(super) fn choose_host(
        &mut self,
        cluster: Rc<Cluster>,
        (routes, route): (&Routes, u32),
        connection: &mut Connection,
        http: &Http,
    ) -> bool {
        let Action::Forward(forward) = &routes.plan.table.route(route).action else { return false };
        // Answers to earlier requests that were not sent yet go before this one's.
        connection.out.move_to(&mut self.down);
        let random = &connection.worker.random;
        let picked = match (&self.info.upstream_override, forward.hash_policies.as_slice()) {
            (None, []) if !cluster.hosts.asks_requests() && self.info.upstream_objects.is_none() => {
                cluster.hosts.pick(random)
            }
            _ => self.choose_by_request(&cluster, forward, random),
        };
        self.info.upstream_attempts = 1;
        self.answer_counts = http.model.router.answer_counts;
        let picked = picked.or_else(|| self.destination(&cluster, connection));
        let cluster = self.cluster.insert(cluster);
        let Some(host) = picked else {
            let stats = cluster.stats(&connection.worker).clone();
            let end = match self.refusal() {
                Some(refusal) => self.not_taken(refusal, (&*connection, http), &stats),
                None => self.no_host(connection, &stats),
            };
            self.conclude(connection, http, end);
            return false;
        };
        self.edit_request(connection, http, forward, (routes, route), &host);
        self.host = Some(host);
        self.arm(connection, http, forward);
        true
    }

    /// Makes a connection, for a request that got none from a pool. Boxed: rare, and large.
    #[cold]
    fn connecting(&self, connection: &Connection, priority: Priority) -> Option<Connecting> {
        let (cluster, host) = (self.cluster.clone()?, self.host.clone()?);
        let objects = self.info.upstream_objects.as_deref();
        let party = cluster.party_with(&host, Some(&self.request), || connection.caller(), objects);
        let protocol = (!self.terminates).then(|| cluster.protocol_for(self.request.version()));
        let worker = connection.worker.clone();
        let pooled = protocol.filter(|_| self.pooling == Pooling::Apart);
        let found = pooled.and_then(|protocol| cluster.checkout(&host, worker.clock.now(), protocol, party.as_deref()));
        Some(Box::pin(async move {
            if let Some(found) = found {
                return (Duration::ZERO, Ok(found));
            }
            let asked = worker.clock.now();
            let connected = cluster.connect(&worker, &host, priority, protocol, party.as_deref()).await;
            (worker.clock.now().saturating_duration_since(asked), connected)
        }))
    }

    /// A pooled connection, unless the request needs one of its own.
    #[inline]
    fn pooled(&self, connection: &Connection, priority: Priority) -> Option<Box<Upstream>> {
        let host = self.host.as_ref().filter(|_| self.pooling == Pooling::Shared)?;
        let cluster = self.cluster.as_ref()?;
        let protocol = cluster.protocol_for(self.request.version());
        let party = cluster.party(host, Some(&self.request), || connection.caller());
        let found = cluster.checkout(host, connection.worker.clock.now(), protocol, party.as_deref());
        if cluster.preconnects && found.is_some() && party.is_none() {
            cluster.preconnect(&connection.worker, host, priority, protocol);
        }
        found
    }

    /// Begins the request on a connection.
    ///
    /// # Errors
    /// It cannot be begun.
    fn begin_upstream(
        &mut self,
        upstream: Box<Upstream>,
        connection: &Connection,
        http: &Http,
        priority: Priority,
    ) -> Result<(), End> {
        if self.permit.is_none()
            && let (Some(cluster), Some(host)) = (&self.cluster, &self.host)
        {
            let worker = &connection.worker;
            let stats = cluster.stats(worker);
            // Counted from here: until now the request was a waiting one, which has a breaker of its own.
            let Some(permit) = Permit::request(&cluster.breakers, priority, worker.id) else {
                stats.inc(stat::UPSTREAM_RQ_ACTIVE_OVERFLOW);
                self.info.upstream_remote = Some(upstream.name.clone());
                cluster.put_back(upstream, worker.clock.now());
                return Err(self.overflow(http));
            };
            self.permit = Some(permit);
            if cluster.breakers.counts_beginnings(priority) {
                let now = worker.clock.now().since_start();
                cluster.breakers.count_beginning(priority, worker.id, now);
            }
            host.active.set(host.active.get() + 1);
            host.totals.requests.set(host.totals.requests.get() + 1);
            stats.inc(stat::UPSTREAM_RQ_TOTAL);
            stats.gauge_inc(stat::UPSTREAM_RQ_ACTIVE);
            if let Some(groups) = &self.groups {
                groups.count(sets::group::UPSTREAM_RQ_TOTAL);
            }
            if host.monitor.is_some() {
                crate::outlier::report(cluster, host, Outcome::Connected, worker);
            }
        }
        upstream.begin_request();
        self.info.upstream_connect = upstream.times();
        self.info.upstream_local = upstream.local();
        self.info.upstream_remote = Some(upstream.name.clone());
        self.info.upstream_connection_id = upstream.id;
        self.info.upstream_protocol = upstream.protocol();
        if let Some(tls) = upstream.tls() {
            self.info.upstream_tls = Some(tls.clone());
        }
        self.upstream = Some(upstream);
        if http.meters {
            self.begin_upstream_meter();
        }
        if self.attempts.is_some() && self.begin_attempt(connection, http)? {
            return Ok(());
        }
        self.info.request_send_began = Some(connection.worker.clock.recent());
        self.write_request_head()
    }

    /// Waits for a connection, but not longer than the request's deadlines and the client's patience.
    pub(super) async fn while_connecting<T>(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        mut connecting: Pin<Box<impl Future<Output = T> + ?Sized>>,
    ) -> Result<T, End> {
        std::future::poll_fn(|cx| {
            connection.deadline.watch(cx.waker());
            while !self.down.is_empty() {
                match self.down.poll_flush_own(cx, &mut connection.io) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Gone)),
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
                return Poll::Ready(Ok(connected));
            }
            if let Some(end) = self.overdue(connection, http) {
                return Poll::Ready(Err(end));
            }
            match self.watches_client && self.poll_client_gone(connection, http, cx) {
                true => Poll::Ready(Err(End::Gone)),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Moves both directions as far as they go.
    fn poll_stream(&mut self, connection: &mut Connection, http: &Http, cx: &mut TaskContext<'_>) -> Poll<End> {
        // Each direction moves until it waits for its own peers. One pass is enough, but for the answer that opens a
        // tunnel: what the client sends has another meaning behind it.
        loop {
            let tunnel = self.tunnel;
            let moved_up = match self.move_request(connection, http, cx) {
                Ok(moved) => moved,
                Err(end) => return Poll::Ready(end),
            };
            let moved_down = match self.move_response(connection, http, cx) {
                Ok(moved) => moved,
                Err(end) => return Poll::Ready(end),
            };
            if self.response_done && self.down.is_empty() {
                return Poll::Ready(End::Complete);
            }
            if moved_up || moved_down {
                self.last_activity = connection.worker.clock.now();
            }
            if self.tunnel == tunnel {
                break;
            }
        }
        if let Some(end) = self.overdue(connection, http) {
            return Poll::Ready(end);
        }
        let stands = !self.up.is_empty() || !self.down.is_empty() || !connection.input.is_empty();
        if stands || self.backlog.is_told() || connection.waiting.is_told() {
            self.tell_backlog(connection, http);
            if self.waits_for_client() {
                // There is another limit for that.
                self.rearm(connection, http);
            }
        }
        let waits = self.watches_client && !self.tunnel && (self.upload.is_done() || self.request_pass.is_waiting());
        match waits && self.poll_client_gone(connection, http, cx) {
            true => Poll::Ready(End::Gone),
            false => {
                connection.deadline.watch(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Tells what waits now that nothing moves.
    #[cold]
    fn tell_backlog(&mut self, connection: &mut Connection, http: &Http) {
        let (up, down) = (self.up.waiting(), self.down.waiting());
        // What is on its way already counts there.
        let left = connection.input.bytes().len().saturating_sub(self.up.passing() as usize);
        connection.tell_waiting(http, left, down);
        let Some(upstream) = &self.upstream else { return };
        let received = upstream.input.bytes().len().saturating_sub(self.down.passing() as usize);
        self.backlog.tell(upstream.counted(), &http.stats, HTTP_READS, Amounts { up, down, received });
    }

    /// Client to upstream. Answers whether anything moved.
    pub(super) fn move_request(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, End> {
        if self.request_pass.open {
            return self.move_filtered_request(connection, http, cx);
        }
        let mut moved = false;
        loop {
            // What is here of the body leaves together with what waits already.
            if !connection.input.is_empty() && self.up.has_room() && !self.upload.is_done() && !self.upload_broken {
                self.take_request_body(connection)?;
                moved = true;
                continue;
            }
            if !self.up.is_empty() {
                match self.poll_flush_up(connection, cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(true) => {
                        moved = true;
                        continue;
                    }
                    Poll::Ready(false) => {}
                }
            }
            if self.upload.is_done() {
                return Ok(self.request_ended(connection, http, cx) || moved);
            }
            if self.upload_broken {
                return Ok(moved);
            }
            if connection.half_closed {
                self.client_ended()?;
                moved = true;
                continue;
            }
            self.answer_expectation(connection, http);
            match connection.poll_receive(cx, http) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Ready(Err(_)) => return Err(End::Gone),
            }
        }
    }

    /// Sends once to the upstream; `false` when it takes no more.
    #[inline]
    pub(super) fn poll_flush_up(&mut self, connection: &mut Connection, cx: &mut TaskContext<'_>) -> Poll<bool> {
        let Some(upstream) = &mut self.upstream else { return Poll::Pending };
        let sent = self.up.poll_flush(cx, &mut upstream.io, &mut connection.input, &connection.worker.buffers);
        sent.map(|sent| match sent {
            Ok(count) => {
                self.count_sent(count);
                true
            }
            Err(_) => {
                // It may have answered before it closed: reading will tell.
                self.up.discard(&mut connection.input, &connection.worker.buffers);
                self.upload_broken = true;
                // A tunnel's upstream may have said its last word before: then there is nothing to read, and this
                // direction is over as well.
                self.finished[0] = self.tunnel;
                false
            }
        })
    }

    /// The client's whole request is on its way. In a tunnel the end is passed on; otherwise only the client's
    /// leaving is of interest. Answers whether anything moved.
    fn request_ended(&mut self, connection: &mut Connection, http: &Http, cx: &mut TaskContext<'_>) -> bool {
        if self.info.request_sent.is_none() {
            let now = connection.worker.clock.recent();
            self.info.request_sent = Some(now);
            if self.attempts.is_some() {
                self.end_mirrors();
            }
            if let Some(upstream) = &mut self.upstream
                && upstream.io.takes_plain_bodies()
                && !self.tunnel
            {
                match &mut upstream.io {
                    Io::Http2(stream) => stream.finish(&self.request_trailers),
                    Io::Bridged(bridged) => bridged.finish(),
                    Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) => {}
                }
            }
            if self.info.request_received.is_none() {
                self.info.request_received = Some(now);
                self.request_complete(connection, http);
            }
        }
        if self.tunnel || self.terminates && !self.facts.upgrade {
            let [finished, _] = &mut self.finished;
            if !*finished
                && let Some(upstream) = &mut self.upstream
                && upstream.io.poll_finish(cx).is_ready()
            {
                *finished = true;
                self.client_left_tunnel(connection);
                return true;
            }
            return false;
        }
        false
    }

    /// The client has nothing more to say in a tunnel. Over HTTP/1 it says so by closing its side of the connection.
    #[cold]
    fn client_left_tunnel(&mut self, connection: &Connection) {
        if self.tunnel && self.finished == [true, false] && !matches!(connection.io, Io::Http2(_)) {
            self.fail(Flags::DOWNSTREAM_CONNECTION_TERMINATION, "downstream_remote_disconnect");
        }
    }

    /// The upstream has nothing more to say in a tunnel: an end of its connection, unless the bytes never were HTTP's or its
    /// streams end by themselves.
    #[cold]
    fn upstream_left_tunnel(&mut self) {
        let is_connection = self.upstream.as_ref().is_some_and(|upstream| !upstream.io.takes_plain_bodies());
        if self.finished == [false, true] && !self.terminates && is_connection {
            self.record_flags(Flags::UPSTREAM_CONNECTION_TERMINATION);
            self.fail(
                Flags::UPSTREAM_CONNECTION_TERMINATION,
                "upstream_reset_after_response_started{connection_termination}",
            );
        }
    }

    /// Upstream to client. Answers whether anything moved.
    pub(super) fn move_response(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, End> {
        if self.response_pass.open {
            return self.move_filtered_response(connection, http, cx);
        }
        let mut moved = false;
        let mut need_more = false;
        loop {
            // What is here leaves together with what waits already: head and body in one call.
            let Some(upstream) = &mut self.upstream else { return Ok(moved) };
            if !need_more && !upstream.input.is_empty() && self.down.has_room() {
                if !self.answered {
                    need_more = !self.read_response_head(connection, http)?;
                    if self.response_pass.open {
                        return self.move_filtered_response(connection, http, cx);
                    }
                    continue;
                }
                if !self.download.is_done() {
                    self.take_response_body(&connection.worker.buffers)?;
                    moved = true;
                    continue;
                }
            }
            if !self.down.is_empty() {
                match self.down.poll_flush(cx, &mut connection.io, &mut upstream.input, &connection.worker.buffers) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Ok(count)) => {
                        http.stats.add(sets::http::DOWNSTREAM_CX_TX_BYTES_TOTAL, count as u64);
                        moved = true;
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Err(End::Gone),
                }
            }
            if self.response_done {
                return Ok(moved);
            }
            if self.answered && self.download.is_done() {
                return Ok(self.response_ended(connection, cx) || moved);
            }
            let limit = connection.chain.buffer_limit.min(upstream.buffer_limit);
            match upstream.input.poll_fill(cx, &mut upstream.io, limit, &connection.worker.buffers) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(0)) => {
                    self.upstream_ended(connection)?;
                    moved = true;
                }
                Poll::Ready(Ok(count)) => {
                    moved = true;
                    need_more = false;
                    self.count_received(&connection.worker, count);
                }
                Poll::Ready(Err(error)) => return Err(self.upstream_broke(Some(&error))),
            }
        }
    }

    /// Reads a head; `false` when it is not complete.
    fn read_response_head(&mut self, connection: &mut Connection, http: &Http) -> Result<bool, End> {
        let (Some(upstream), Some(cluster)) = (&mut self.upstream, &self.cluster) else { return Ok(false) };
        let limits = cluster.response_limits();
        let asked = Asked { method: self.request.method(), upgrade: self.facts.upgrade };
        let rules = ResponseRules { limits };
        let input = &mut upstream.input;
        match parse_response(input.bytes(), asked, &rules, &mut self.response_scan, &mut self.response) {
            ResponseParse::Partial => Ok(false),
            ResponseParse::Complete { consumed, mut facts } => {
                facts.framing = upstream.io.framed(facts.framing);
                if matches!(cluster.names, NameForm::AsReceived { .. }) && !matches!(upstream.io, Io::Http2(_)) {
                    let head = input.bytes().get(..consumed).unwrap_or_default();
                    names::keep_response(&mut self.names, &mut self.response, head, cluster.names);
                }
                if let Some(meters) = &mut self.info.meters
                    && !matches!(upstream.io, Io::Http2(_))
                {
                    Exchange::meter_upstream_head(meters, input.bytes().get(..consumed).unwrap_or_default());
                }
                input.consume(consumed, &connection.worker.buffers);
                if facts.interim {
                    self.interim(connection, http);
                    return Ok(true);
                }
                if facts.tunnel && self.response.status() == 101 && !self.is_asked_upgrade() {
                    return Err(self.refuse_response(connection, reason::UNEXPECTED_101));
                }
                if self.is_watched() {
                    self.report_answer(&connection.worker);
                }
                if cluster.is_checked && self.response.fields.has(HeaderId::XEnvoyImmediateHealthCheckFail) {
                    self.report_resignation(&connection.worker);
                }
                if self.attempts.is_some() {
                    if self.filters_keep_answer(facts, connection, http)? {
                        return Ok(true);
                    }
                    if self.again_after_head(facts, &connection.worker) {
                        return Err(End::Again);
                    }
                    if self.redirects_after_head(facts, connection, http) {
                        return Err(End::Redirect);
                    }
                }
                self.response_facts = facts;
                self.on_response_head(connection, http)?;
                Ok(true)
            }
            ResponseParse::Reject(reject) => Err(self.refuse_response(connection, reject)),
        }
    }

    /// Whether the 101 switches to the protocol that the client asked for (RFC 9110 section 7.8).
    fn is_asked_upgrade(&self) -> bool {
        let asked = self.request.fields.get(HeaderId::Upgrade).unwrap_or_default();
        let answered = self.response.fields.get(HeaderId::Upgrade).unwrap_or_default();
        let agreed = list_members(asked).any(|token| token.eq_ignore_ascii_case(answered));
        agreed && (self.request.version() != Version::Http2 || self.is_proven())
    }

    /// Whether the upstream understood a WebSocket's key: over HTTP/2 the client cannot look itself.
    fn is_proven(&self) -> bool {
        let (asked, answered) = (&self.request.fields, &self.response.fields);
        match asked.get_name(b"sec-websocket-key") {
            None => true,
            Some(key) => answered.get_name(b"sec-websocket-accept") == Some(h2::websocket::accept(key).as_bytes()),
        }
    }

    /// A 1xx head: the first one that says something concerns the client, where such heads are passed on.
    fn interim(&mut self, connection: &mut Connection, http: &Http) {
        let tells = matches!(self.response.status(), 100 | 102 | 103) && self.request.version() != Version::Http10;
        if tells && http.model.identity.proxy_100_continue && !self.continue_sent {
            self.pass_interim(connection);
        }
    }

    #[cold]
    fn pass_interim(&mut self, connection: &mut Connection) {
        self.continue_sent = true;
        if let Io::Http2(stream) = &mut connection.io {
            return stream.send_interim(&self.response);
        }
        let options = ResponseWrite {
            framing: BodyFraming::None,
            framing_as_received: false,
            connection: Persistence::Implicit,
            server: None,
            keep_length: false,
            extra: &[],
        };
        write_response(&self.response, &options, &mut self.down.bytes);
    }

    #[cold]
    fn send_continue(&mut self, connection: &mut Connection) {
        self.continue_sent = true;
        match &mut connection.io {
            Io::Http2(stream) => stream.send_continue(),
            Io::Plain(_) | Io::Tls(_) | Io::Filtered(_) | Io::Bridged(_) => self.down.bytes.extend_from_slice(CONTINUE),
        }
    }

    /// Tells a client that waits for it to send its body.
    pub(super) fn answer_expectation(&mut self, connection: &mut Connection, http: &Http) {
        if self.facts.expects_continue
            && !self.continue_sent
            && !self.answered
            && !http.model.identity.proxy_100_continue
        {
            self.send_continue(connection);
        }
    }

    /// The client closed its side before its request was complete.
    pub(super) fn client_ended(&mut self) -> Result<(), End> {
        if self.tunnel {
            self.upload = super::transfer::Transfer::Done;
            return Ok(());
        }
        match self.upload.end_of_input(&mut self.up, &mut self.request_trailers) {
            Ok(()) => Ok(()),
            Err(_) => Err(End::Gone),
        }
    }

    /// The upstream closed its side.
    pub(super) fn upstream_ended(&mut self, connection: &Connection) -> Result<(), End> {
        if let Some(upstream) = &self.upstream {
            upstream.peer_ended();
        }
        if !self.answered && !self.response_pass.open {
            return Err(self.head_missing(connection));
        }
        match self.download.end_of_input(&mut self.down, &mut self.response_trailers) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.malformed_response()),
        }
    }

    /// The body is all in the outbox. In a tunnel the client learns that nothing more comes.
    fn response_ended(&mut self, connection: &mut Connection, cx: &mut TaskContext<'_>) -> bool {
        if !self.tunnel {
            self.answer_is_whole();
            return true;
        }
        let [_, finished] = &mut self.finished;
        let mut moved = false;
        if !*finished && connection.io.poll_finish(cx).is_ready() {
            *finished = true;
            self.upstream_left_tunnel();
            moved = true;
        }
        // A tunnel is over when both ends have said so.
        if self.finished == [true, true] {
            self.answer_is_whole();
            return true;
        }
        moved
    }

    /// All of the answer came, and is in the outbox or sent.
    pub(super) fn answer_is_whole(&mut self) {
        self.response_done = true;
        // What is read at once began, as far as anybody looked, when its head was seen.
        self.info.response_received = self.info.response_began.map(|began| began.max(self.last_received));
    }

    pub(super) fn count_sent(&self, count: usize) {
        if let Some(upstream) = &self.upstream {
            upstream.stats().add(stat::UPSTREAM_CX_TX_BYTES_TOTAL, count as u64);
        }
    }

    pub(super) fn count_received(&mut self, worker: &Worker, count: usize) {
        self.last_received = worker.clock.now();
        if let Some(upstream) = &self.upstream {
            upstream.stats().add(stat::UPSTREAM_CX_RX_BYTES_TOTAL, count as u64);
        }
    }

    /// Looks at a client that has nothing more to say. What it sends now is its next request; its end of stream is
    /// half a close, and it still gets its answer if its request is complete. Otherwise only a broken connection counts as gone.
    pub(super) fn poll_client_gone(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> bool {
        // Of a body that a filter does not let in, some is read ahead: what comes behind it may be the client's end.
        let ahead = if self.upload.is_heard() { 0 } else { READ_AHEAD };
        loop {
            let full = connection.input.bytes().len() > ahead;
            if connection.half_closed || full {
                return connection.io.poll_reset(&mut self.resets, cx).is_ready();
            }
            if connection.io.poll_readable(cx).is_pending() {
                return false;
            }
            match connection.poll_receive(cx, http) {
                Poll::Ready(Err(_)) => return true,
                // Its request will never be complete.
                Poll::Ready(Ok(0)) if connection.input.is_empty() && !self.upload.is_heard() => return true,
                // Only who waits for more hears of a reset.
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return false,
            }
        }
    }
}

/// What is read of a held request's body only to see whether its client is still there.
const READ_AHEAD: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
