//! Traces: whether a request is part of one that is told, what its upstream hears of it, and its spans when they are over.
//!
//! ```text
//! route is known ──> decision ──> span begins ──> router: traceparent ──> … over ──> exporter
//!                                   └─ each try: span begins, traceparent ──> … over ──> exporter
//! ```
//!
//! Only requests to connection managers that trace come here; others pay one look whether there is a trace.

use std::rc::Rc;

use postrider_filter_api::{Logged, Moment, OpenSpan, SpanIds, Trace, TraceReason, cel};
use postrider_http::{Fields, HeaderId};
use postrider_model::{Expression, Format, RouteTracing};
use postrider_telemetry::stats::sets::http_tracing as stat;
use postrider_upstream::Random;

use super::Connection;
use super::exchange::Exchange;
use crate::chain::Http;
use crate::format::Absent;
use crate::trace::{Caller, HttpTracing, Outline, new_span, of_child, of_client, of_try, traceparent};
use crate::worker::Worker;

/// Where a request's id says why the request is traced: where a UUID has its version.
const REASON_PLACE: usize = 14;

/// As long as ids are that have such a place.
const UUID_LENGTH: usize = 36;

/// By so many parts requests are drawn.
const TICKETS: u64 = 10_000;

/// What is known of a request's trace while it runs.
pub(super) struct Traced {
    /// `None` where nobody is told of spans, or where the caller's word on the trace cannot be understood.
    span: Option<Part>,
    /// The client is to hear what the route calls its requests.
    tells_client: bool,
}

/// Our part of a trace.
struct Part {
    /// Filters may have a say in it.
    span: Rc<OpenSpan>,
    caller: Option<Caller>,
    /// The caller, or the sampler in its place, has nothing against telling it.
    allowed: bool,
    /// Of the try under way.
    attempt: Option<TrySpan>,
}

struct TrySpan {
    span: [u8; 8],
    begins: Moment,
    attempt: u32,
}

impl Exchange {
    /// The route is known: decides, and begins the span.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_trace(&mut self, connection: &Connection, http: &Http) {
        let Some(tracing) = &http.tracing else { return };
        let worker = &connection.worker;
        let reason = self.decide_trace(tracing, http, &worker.random);
        tracing.stats.inc(match reason {
            TraceReason::None => stat::NOT_TRACEABLE,
            TraceReason::Sampled => stat::RANDOM_SAMPLING,
            TraceReason::Forced => stat::SERVICE_FORCED,
            TraceReason::Client => stat::CLIENT_ENABLED,
        });
        let span = self.begin_part(tracing, reason, worker);
        self.info.set_trace(Trace { reason, ids: span.as_ref().map(|part| part.span.ids) });
        if let Some(part) = &span {
            self.info.set_span(part.span.clone());
        }
        self.trace = Some(Box::new(Traced { span, tells_client: false }));
        self.name_trace(tracing, connection, true);
    }

    /// A filter had the route looked up again, which may want something else. What was counted stays counted.
    #[cold]
    pub(super) fn trace_again(&mut self, connection: &Connection, http: &Http) {
        let Some(tracing) = &http.tracing else { return };
        let reason = self.decide_trace(tracing, http, &connection.worker.random);
        if let Some(part) = self.trace.as_mut().and_then(|traced| traced.span.as_mut()) {
            let is_told = part.allowed && reason != TraceReason::None;
            if !part.span.is_settled.get() {
                part.span.is_told.set(is_told);
            }
        }
        if let Some(known) = self.info.trace() {
            self.info.set_trace(Trace { reason, ..known });
        }
        self.name_trace(tracing, connection, false);
    }

    fn route_tracing(&self) -> Option<&RouteTracing> {
        self.routes.as_ref()?.plan.table.route(self.route?).tracing.as_deref()
    }

    /// Why the request is traced, if it is; its id says so from here on.
    fn decide_trace(&mut self, tracing: &HttpTracing, http: &Http, random: &Random) -> TraceReason {
        if !tracing.model.draws_by_id {
            return TraceReason::Sampled;
        }
        let Some(ticket) = ticket(&self.request.fields) else { return TraceReason::None };
        let own = self.route_tracing().and_then(|route| route.sampling);
        let sampling = own.unwrap_or(tracing.model.sampling);
        let fields = &mut self.request.fields;
        let packs = http.model.identity.packs_trace_reason;
        let mut reason = reason_of(fields);
        if reason == TraceReason::None {
            reason = if fields.get_name(b"x-client-trace-id").is_some() && sampling.client.takes(random.next()) {
                TraceReason::Client
            } else if fields.has(HeaderId::XEnvoyForceTrace) {
                TraceReason::Forced
            } else if sampling.random.takes(ticket) {
                TraceReason::Sampled
            } else {
                return TraceReason::None;
            };
            pack(fields, reason, packs);
        }
        if !sampling.overall.takes(ticket) {
            reason = TraceReason::None;
            pack(fields, reason, packs);
        }
        reason
    }

    fn begin_part(&self, tracing: &HttpTracing, reason: TraceReason, worker: &Worker) -> Option<Part> {
        let (tracer, exporter) = (tracing.model.tracer.as_ref()?, tracing.exporter.clone()?);
        let random = &worker.random;
        let caller = match Caller::read(&self.request.fields) {
            None => None,
            Some(Ok(caller)) => Some(caller),
            Some(Err(())) => return None,
        };
        let trace = match &caller {
            Some(caller) => caller.ids.trace,
            None => new_trace(random),
        };
        let by_caller = caller.as_ref().map(|caller| caller.sampled);
        let allowed = match &tracer.sampler {
            Some(sampler) => sampler.takes(&trace, by_caller, &|expression| self.holds(expression, worker)),
            None => by_caller.unwrap_or(true),
        };
        let is_told = allowed && reason != TraceReason::None;
        let ids = SpanIds { trace, span: new_span(random) };
        let state = caller.as_ref().map_or("", |caller| &caller.state);
        let tell = move |child: &OpenSpan, ends| exporter.take(&of_child(child, ends));
        let span = OpenSpan::new(ids, state.into(), self.info.start, is_told, Rc::new(tell));
        Some(Part { span: Rc::new(span), caller, allowed, attempt: None })
    }

    fn holds(&self, expression: &Expression, worker: &Worker) -> bool {
        let now = worker.clock.wall(self.info.started);
        cel::is_true(expression, &self.format_context(&[], now).facts())
    }

    /// What the request is called: by a format, or else by its route or the other side. One that `is_new` and that nobody calls
    /// anything has a name all the same; another keeps the one that it has.
    fn name_trace(&mut self, tracing: &HttpTracing, connection: &Connection, is_new: bool) {
        let model = &tracing.model;
        let of_route = self.route_tracing();
        let format = of_route.and_then(|route| route.operation.as_ref()).or(model.operation.as_ref());
        if let Some(format) = format {
            let name = self.formatted(format, connection);
            return self.call_trace(name);
        }
        let decorator = of_route.and_then(|route| route.decorator.clone());
        let name = match &decorator {
            Some(decorator) if !decorator.operation.is_empty() => decorator.operation.clone(),
            _ if !is_new => self.trace_name(),
            _ if model.outbound => format!("egress {}", String::from_utf8_lossy(self.request.authority())),
            _ => "ingress".to_owned(),
        };
        self.call_trace(name);
        let told = decorator.filter(|decorator| decorator.propagates && !decorator.operation.is_empty());
        let fields = &mut self.request.fields;
        if model.outbound {
            if let Some(decorator) = told {
                let _ = fields.set(HeaderId::XEnvoyDecoratorOperation, decorator.operation.as_bytes());
            }
            return;
        }
        let by_client = fields.get(HeaderId::XEnvoyDecoratorOperation).map(<[u8]>::to_vec);
        fields.remove(HeaderId::XEnvoyDecoratorOperation);
        let by_client = by_client.filter(|name| !name.is_empty());
        if let Some(traced) = &mut self.trace {
            // Who says himself what it is called need not be told.
            traced.tells_client = told.is_some() && by_client.is_none();
        }
        if let Some(name) = by_client {
            self.call_trace(String::from_utf8_lossy(&name).into_owned());
        }
    }

    fn trace_name(&self) -> String {
        let part = self.trace.as_ref().and_then(|traced| traced.span.as_ref());
        part.map(|part| part.span.name.borrow().clone()).unwrap_or_default()
    }

    fn call_trace(&mut self, name: String) {
        if let Some(part) = self.trace.as_mut().and_then(|traced| traced.span.as_mut()) {
            part.span.name.replace(name);
        }
    }

    fn formatted(&self, format: &Format, connection: &Connection) -> String {
        let mut name = Vec::new();
        let now = connection.worker.clock.wall(self.info.started);
        self.format_context(&[], now).write(format, Absent::Empty, &mut name);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Tells the upstream of our part, or of that of the try under way.
    #[cold]
    pub(super) fn propagate_trace(&mut self, http: &Http) {
        let Some(tracing) = http.tracing.as_ref().filter(|tracing| tracing.model.propagates) else { return };
        let Some(part) = self.trace.as_ref().and_then(|traced| traced.span.as_ref()) else { return };
        let attempt = part.attempt.as_ref().filter(|_| tracing.spawns);
        let span = attempt.map_or(part.span.ids.span, |attempt| attempt.span);
        let ids = SpanIds { span, ..part.span.ids };
        let fields = &mut self.request.fields;
        // What we write, and what was received, can be said.
        let _ = fields.set(HeaderId::Traceparent, &traceparent(&ids, part.span.is_told.get()));
        match part.caller.as_ref().map_or("", |caller| &caller.state) {
            // What came without a trace belongs to none.
            "" => {
                fields.remove(HeaderId::Tracestate);
            }
            state => {
                let _ = fields.set(HeaderId::Tracestate, state.as_bytes());
            }
        }
    }

    /// A try begins.
    #[cold]
    pub(super) fn begin_try_span(&mut self, worker: &Worker, http: &Http) {
        let spawns = http.tracing.as_ref().is_some_and(|tracing| tracing.spawns);
        let attempt = self.info.upstream_attempts;
        let Some(part) = self.trace.as_mut().and_then(|traced| traced.span.as_mut()).filter(|_| spawns) else { return };
        part.attempt = Some(TrySpan { span: new_span(&worker.random), begins: worker.clock.now(), attempt });
        self.propagate_trace(http);
    }

    /// A try is over, however; what is known of it is still there.
    #[cold]
    pub(super) fn end_try_span(&mut self, connection: &Connection, http: &Http) {
        let Some(tracing) = &http.tracing else { return };
        let Some(part) = self.trace.as_mut().and_then(|traced| traced.span.as_mut()) else { return };
        let (Some(attempt), true) = (part.attempt.take(), part.span.is_told.get()) else { return };
        let Some(part) = self.trace.as_ref().and_then(|traced| traced.span.as_ref()) else { return };
        let clock = &connection.worker.clock;
        let route = self.route_tracing();
        let format = route.and_then(|route| route.upstream_operation.as_ref());
        let format = format.or(tracing.model.upstream_operation.as_ref());
        let given_up = !self.response_done || !self.try_is_answered();
        let span = self.with_try(Logged::TryEnd, connection, |context| {
            let name = match format {
                Some(format) => {
                    let mut name = Vec::new();
                    context.write(format, Absent::Empty, &mut name);
                    String::from_utf8_lossy(&name).into_owned()
                }
                None => format!("router {} egress", self.cluster.as_ref().map_or("", |cluster| cluster.shown_name())),
            };
            let outline = Outline {
                name,
                ids: SpanIds { span: attempt.span, ..part.span.ids },
                parent: Some(part.span.ids.span),
                parent_is_remote: false,
                state: part.caller.as_ref().map_or("", |caller| &caller.state),
                begins: clock.wall(attempt.begins),
                ends: clock.wall_now(),
            };
            of_try(outline, (&tracing.model, route), context, (attempt.attempt, given_up), clock)
        });
        if let (Some(span), Some(exporter)) = (span, &tracing.exporter) {
            exporter.take(&span);
        }
    }

    /// What an answer says of how its request is called, before it is edited.
    #[cold]
    pub(super) fn decorate_answer(&mut self, http: &Http) {
        let (Some(tracing), Some(traced)) = (&http.tracing, &self.trace) else { return };
        if !tracing.model.outbound {
            let decorator = self.route_tracing().and_then(|route| route.decorator.as_ref());
            if let Some(decorator) = decorator.filter(|_| traced.tells_client) {
                let operation = decorator.operation.clone();
                let _ = self.response.fields.set(HeaderId::XEnvoyDecoratorOperation, operation.as_bytes());
            }
            return;
        }
        let name = self.response.fields.get(HeaderId::XEnvoyDecoratorOperation).map(<[u8]>::to_vec);
        if let Some(name) = name {
            self.response.fields.remove(HeaderId::XEnvoyDecoratorOperation);
            let is_named = name.is_empty() || tracing.model.operation.is_some();
            let by_route = self.route_tracing().is_some_and(|route| route.operation.is_some());
            if !is_named && !by_route {
                self.call_trace(String::from_utf8_lossy(&name).into_owned());
            }
        }
    }

    /// The request is over: its span is told, if it is to be.
    #[cold]
    #[inline(never)]
    pub(super) fn end_trace(&mut self, connection: &Connection, http: &Http) {
        let traced = self.trace.take();
        if let Some(tracing) = http.tracing.as_ref().filter(|_| self.info.is_health_check) {
            tracing.stats.inc(stat::HEALTH_CHECK);
        }
        let part = traced.and_then(|traced| traced.span).filter(|part| part.span.is_told.get());
        let (Some(tracing), Some(Part { span, caller, .. })) = (&http.tracing, part) else { return };
        let Some(exporter) = &tracing.exporter else { return };
        let worker = &connection.worker;
        let clock = &worker.clock;
        let ends = clock.wall(self.info.ended.unwrap_or(self.info.started));
        let outline = Outline {
            name: span.name.take(),
            ids: span.ids,
            parent: caller.as_ref().map(|caller| caller.ids.span),
            parent_is_remote: caller.is_some(),
            state: caller.as_ref().map_or("", |caller| &caller.state),
            begins: self.info.start,
            ends,
        };
        let node = worker.node.borrow().clone();
        let rules = (&*tracing.model, self.route_tracing());
        let context = self.format_context(&self.reply_body, ends);
        exporter.take(&of_client((outline, &span), rules, &context, &node, clock));
    }
}

/// A number that all proxies on a request's way draw the same; `None` for a request whose id gives none.
fn ticket(fields: &Fields) -> Option<u64> {
    let digits = fields.get(HeaderId::XRequestId)?.get(..8)?;
    let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some(number % TICKETS)
}

/// What a request's id says.
fn reason_of(fields: &Fields) -> TraceReason {
    let id = fields.get(HeaderId::XRequestId).filter(|id| id.len() == UUID_LENGTH);
    match id.and_then(|id| id.get(REASON_PLACE)) {
        Some(b'9') => TraceReason::Sampled,
        Some(b'a') => TraceReason::Forced,
        Some(b'b') => TraceReason::Client,
        _ => TraceReason::None,
    }
}

/// Has a request's id say it, where ids do.
fn pack(fields: &mut Fields, reason: TraceReason, packs: bool) {
    let id = fields.get(HeaderId::XRequestId).filter(|id| packs && id.len() == UUID_LENGTH);
    let Some(mut id) = id.map(<[u8]>::to_vec) else { return };
    if let Some(place) = id.get_mut(REASON_PLACE) {
        *place = match reason {
            TraceReason::None => b'4',
            TraceReason::Sampled => b'9',
            TraceReason::Forced => b'a',
            TraceReason::Client => b'b',
        };
    }
    let _ = fields.set(HeaderId::XRequestId, &id);
}

/// Not all zeros, which would be no identifier.
fn new_trace(random: &Random) -> [u8; 16] {
    let mut trace = [0; 16];
    let (high, low) = trace.split_at_mut(8);
    high.copy_from_slice(&random.next().to_be_bytes());
    low.copy_from_slice(&new_span(random));
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Fields {
        let mut fields = Fields::new();
        fields.set(HeaderId::XRequestId, text.as_bytes()).unwrap();
        fields
    }

    #[test]
    fn an_id_says_why_its_request_is_traced() {
        let mut fields = id("12345678-1234-4234-8234-123456789012");
        assert_eq!((ticket(&fields), reason_of(&fields)), (Some(0x1234_5678 % 10_000), TraceReason::None));
        for reason in [TraceReason::Sampled, TraceReason::Forced, TraceReason::Client, TraceReason::None] {
            pack(&mut fields, reason, true);
            assert_eq!(reason_of(&fields), reason);
        }
        pack(&mut fields, TraceReason::Sampled, false);
        assert_eq!(reason_of(&fields), TraceReason::None, "such ids say nothing");
    }

    #[test]
    fn an_id_of_another_kind_is_left_alone() {
        let mut fields = id("0000000f-and-more");
        pack(&mut fields, TraceReason::Sampled, true);
        assert_eq!(fields.get(HeaderId::XRequestId), Some(b"0000000f-and-more".as_slice()));
        assert_eq!((ticket(&fields), reason_of(&fields)), (Some(15), TraceReason::None));
        assert_eq!(ticket(&id("foo")), None);
        assert_eq!(ticket(&id("not-hexadecimal")), None);
        assert_eq!(ticket(&Fields::new()), None);
    }
}
