//! Redirects of upstreams that are followed here, and answers whose place a filter gives to others: the client gets the
//! answer of where they lead.
//!
//! ```text
//! answer ──> may it be followed? ──> End::Redirect ──> the request as the redirect wants it ──> route, filters, upstream
//! answer ──> a filter's detour ───────┘
//! head ──> a filter's wish to begin anew ┘
//! ```
//!
//! As in Envoy, the request that was redirected and the one that follows it count and are logged as two.

use std::any::Any;
use std::rc::Rc;

use postrider_filter_api::{Detour, LocalReply, MAX_ANEW, Moment};
use postrider_http::{BodyFraming, HeaderId, Method, RequestHead, ResponseFacts, ResponseHead, Scheme, absolute_uri};
use postrider_model::{Action, InternalRedirects};
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::{cluster as cluster_stat, http as stat};

use super::Connection;
use super::exchange::{Exchange, Pooling};
use super::filters::Barred;
use super::meters::Counts;
use super::passage::{Hook, Side};
use super::prepare::OfStream;
use super::upside::Upside;
use crate::buffers::Input;
use crate::chain::Http;

/// What is known of a request that was redirected.
#[derive(Default)]
pub(super) struct Redirected {
    /// How often it was.
    count: u32,
    /// How often a filter had it begin anew.
    anew: u32,
    /// Which route led to which.
    ways: Vec<(u32, u32)>,
    /// `None` while it is under way.
    next: Option<Next>,
    /// What a filter that sent it on a detour says of it.
    note: Option<Rc<dyn Any>>,
    before: Before,
}

/// What the client had sent and got by the time of the last redirect: to the one that follows it, all of that counts as its own,
/// and what of a body is read again counts once more.
#[derive(Default, Clone, Copy)]
struct Before {
    head: u64,
    body: u64,
    /// Bytes of the body that come again.
    again: u64,
    wire: Counts,
}

/// The request as the last redirect or detour wants it.
struct Next {
    head: Box<RequestHead>,
    is_detour: bool,
}

impl Exchange {
    /// The answer is not for the client.
    pub(super) fn is_redirected(&self) -> bool {
        self.redirected.as_ref().is_some_and(|redirected| redirected.next.is_some())
    }

    /// A filter wants another answer in the place of the one whose head it was shown. Where that cannot be, the answer
    /// goes on.
    ///
    /// # Errors
    /// All is ready for the other one.
    #[cold]
    pub(super) fn begin_detour(&mut self, side: Side, hook: Hook, detour: Box<Detour>) -> Result<(), Barred> {
        let is_answer = side == Side::Response && hook == Hook::Head && !self.answered;
        let twice = self.redirected.as_ref().is_some_and(|redirected| redirected.note.is_some());
        if !is_answer || twice || !self.upload.is_heard() {
            return Ok(());
        }
        let Detour { head, note } = *detour;
        let redirected = self.redirected.get_or_insert_default();
        redirected.next = Some(Next { head: Box::new(head), is_detour: true });
        redirected.note = Some(note);
        Err(Barred::Detour)
    }

    /// A filter wants the request to begin anew. All is ready for that, or there is a reply to one that cannot.
    #[cold]
    pub(super) fn begin_anew(&mut self, answer: Option<Box<ResponseHead>>) -> Barred {
        let is_between = self.upside().is_some_and(Upside::stands_in);
        let redirected = self.redirected.get_or_insert_default();
        redirected.anew += 1;
        let refused = if is_between || self.answered || !self.upload.is_heard() || self.facts.framing.has_body() {
            Some((500, "stream_not_recreated"))
        } else if redirected.anew > MAX_ANEW {
            Some((508, "stream_recreated_too_often"))
        } else {
            None
        };
        if let Some((status, details)) = refused {
            return Barred::Reply(Box::new(LocalReply { status, details: details.into(), ..LocalReply::default() }));
        }
        redirected.next = Some(Next { head: Box::new(self.request.clone()), is_detour: true });
        // What is there without an answer is of an earlier request.
        match answer {
            Some(answer) => self.response = *answer,
            None if self.info.status == 0 => self.response = ResponseHead::new(),
            None => {}
        }
        Barred::Detour
    }

    /// What was before the request under way: what a filter noted that sent it on a detour, and bytes that count for it, too.
    #[cold]
    pub(super) fn recall_before(&mut self, connection: &Connection, http: &Http) {
        let Some(redirected) = &self.redirected else { return };
        let Before { body, again, wire, .. } = redirected.before;
        self.info.shared.extend(redirected.note.clone());
        self.info.bytes_received += body;
        if http.meters {
            self.continue_meters(connection, wire, again);
        }
    }

    /// How many of the bytes that count for this request the client did not send for it.
    pub(super) fn repeated_bytes(&self) -> u64 {
        let before = self.redirected.as_ref().map(|redirected| redirected.before);
        before.map_or(0, |Before { head, body, again, .. }| head + body + again)
    }

    /// Whether the answer whose head came is followed; if so, all is ready for that.
    #[cold]
    pub(super) fn redirects_after_head(&mut self, facts: ResponseFacts, connection: &Connection, http: &Http) -> bool {
        let (Some(routes), Some(route), Some(cluster)) = (self.routes.clone(), self.route, self.cluster.clone()) else {
            return false;
        };
        let Action::Forward(forward) = &routes.plan.table.route(route).action else { return false };
        let Some(policy) = forward.redirects.as_deref() else { return false };
        if !policy.statuses.contains(&self.response.status()) || facts.tunnel {
            return false;
        }
        // One whose body is still coming, or was too large to keep, cannot be sent once more.
        let whole = self.upload.is_heard() && self.attempts.as_ref().is_some_and(|attempts| attempts.may_redirect);
        let stats = cluster.stats(&connection.worker);
        let next = if whole { self.follow(policy, route, connection) } else { Err(None) };
        match next {
            Ok((head, target)) => {
                stats.inc(cluster_stat::UPSTREAM_INTERNAL_REDIRECT_SUCCEEDED_TOTAL);
                let redirected = self.redirected.get_or_insert_default();
                redirected.count += 1;
                redirected.ways.push((route, target));
                redirected.next = Some(Next { head, is_detour: false });
                self.response_facts = facts;
                self.drain_answer(&connection.worker);
                true
            }
            Err(why) => {
                if let Some(why) = why {
                    http.stats.inc(why);
                }
                stats.inc(cluster_stat::UPSTREAM_INTERNAL_REDIRECT_FAILED_TOTAL);
                false
            }
        }
    }

    /// The request as the answer's redirect wants it, and the route that takes it.
    ///
    /// # Errors
    /// The answer goes to the client: which counter says why.
    fn follow(
        &self,
        policy: &InternalRedirects,
        route: u32,
        connection: &Connection,
    ) -> Result<(Box<RequestHead>, u32), Option<Counter>> {
        let Some(routes) = &self.routes else { return Err(None) };
        let location = self.response.fields.get(HeaderId::Location).ok_or(None)?;
        let (scheme, authority, path) =
            absolute_uri(location).ok_or(stat::PASSTHROUGH_INTERNAL_REDIRECT_BAD_LOCATION)?;
        let secure = connection.tls.is_some();
        let from = self.request.scheme().unwrap_or(if secure { Scheme::Https } else { Scheme::Http });
        if scheme != from && !policy.across_schemes {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_UNSAFE_SCHEME));
        }
        let before = self.redirected.as_deref();
        if before.map_or(0, |before| before.count) >= policy.max {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_TOO_MANY_REDIRECTS));
        }
        let mut head = Box::new(self.request.clone());
        for name in &policy.copied_headers {
            head.fields.remove_name(name.as_bytes());
            for value in self.response.fields.get_all_name(name.as_bytes()) {
                let _ = head.fields.append_name(name.as_bytes(), value);
            }
        }
        let original = [from.as_str().as_bytes(), b"://", self.request.authority(), self.request.path()].concat();
        let written = head.set_authority(authority).and_then(|()| head.set_path(&path));
        if written.is_err() {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_BAD_LOCATION));
        }
        head.set_scheme(scheme);
        if self.response.status() == 303 && !matches!(self.request.method(), Method::Get | Method::Head) {
            let _ = head.set_method(b"GET");
            head.fields.remove(HeaderId::ContentLength);
            head.fields.remove(HeaderId::ContentType);
        }
        let found = routes.plan.table.find_in(&head, &OfStream(&self.info), || connection.worker.random.next());
        let target = found.ok_or(stat::PASSTHROUGH_INTERNAL_REDIRECT_NO_ROUTE)?.route;
        let name = &routes.plan.table.route(target).name;
        let refused = policy.safe_schemes && scheme == Scheme::Https && !secure
            || policy.new_routes && before.is_some_and(|before| before.ways.contains(&(route, target)))
            || policy.allowed_routes.iter().any(|allowed| !allowed.contains(name));
        if refused {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_PREDICATE));
        }
        let _ = head.fields.set_name(b"x-envoy-original-url", &original);
        Ok((head, target))
    }

    /// Ends the request that was redirected and takes the one that follows it; `false` when the last answer was for the
    /// client.
    #[cold]
    #[inline(never)]
    pub(super) fn take_redirected(&mut self, connection: &mut Connection, http: &Http) -> bool {
        let next = self.redirected.as_mut().and_then(|redirected| redirected.next.take());
        let Some(Next { head, is_detour }) = next else { return false };
        let worker = connection.worker.clone();
        let now = worker.clock.now();
        self.info.ended = Some(now);
        self.info.status = self.response.status();
        self.info.details = "internal_redirect".into();
        self.end_record(connection, http);
        if is_detour {
            self.put_aside(connection, now);
        } else if let Some(host) = self.host.take() {
            host.totals.successes.set(host.totals.successes.get() + 1);
            self.time(&host, true, now);
            if self.permit.take().is_some()
                && let Some(cluster) = &self.cluster
            {
                host.active.set(host.active.get().saturating_sub(1));
                cluster.stats(&worker).gauge_dec(cluster_stat::UPSTREAM_RQ_ACTIVE);
            }
        }
        self.complete_filters(&worker.clock);
        if http.meters {
            self.meter_client(connection);
        }
        if http.notes_ends.get() {
            self.note_end(connection, http);
        }
        let wire = self.client_meter(connection);
        self.info.release();
        http.stats.gauge_dec(stat::DOWNSTREAM_RQ_ACTIVE);
        self.replying = false;
        self.reply_body.clear();
        match self.cluster.take() {
            Some(cluster) => self.give_back(&cluster, now),
            None => self.forget_answer(),
        }
        self.info.forget_upstream_times();
        // The body is as if it had just arrived.
        let body = self.attempts.take().map(|attempts| attempts.kept().to_vec()).unwrap_or_default();
        let keeps_body = !is_detour && head.method() == self.request.method() && self.facts.framing.has_body();
        self.facts.framing = match keeps_body {
            true => BodyFraming::Length(body.len() as u64),
            false => BodyFraming::None,
        };
        if let Some(redirected) = &mut self.redirected {
            let again = if keeps_body { body.len() as u64 } else { 0 };
            let (head, body) = (self.info.request_head_bytes, self.info.bytes_received);
            redirected.before = Before { head, body, again, wire };
        }
        if keeps_body && !body.is_empty() {
            let rest = connection.input.bytes().to_vec();
            connection.input.release(&worker.buffers);
            connection.input = Input::holding([body, rest].concat());
        }
        self.request = *head;
        self.facts.expects_continue = false;
        self.request_trailers.clear();
        self.weighted = None;
        self.upstream_status = None;
        self.leave_groups();
        self.chosen = None;
        self.pooling = Pooling::Shared;
        self.request_framing = BodyFraming::None;
        true
    }

    /// An answer that a filter gave its place away counts as one. Its connection can go on if all of it is here.
    fn put_aside(&mut self, connection: &Connection, now: Moment) {
        match self.response_pass.has_begun() {
            true => self.response_facts.persistent = false,
            false => self.drain_answer(&connection.worker),
        }
        // It is given back later.
        let upstream = self.upstream.take();
        self.release_upstream(connection, now);
        self.upstream = upstream;
    }
}
