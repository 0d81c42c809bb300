//! What a processor answers, and what becomes of a stream whose processor fails.

use std::time::Duration;

use postrider_filter_api::{GrpcStatus, LocalReply, Stream};
use postrider_grpc::Message;
use postrider_grpc::process::body_mutation::Mutation;
use postrider_grpc::process::common_response::ResponseStatus;
use postrider_grpc::process::processing_response::Response;
use postrider_grpc::process::{CommonResponse, HeaderMutation, ProcessingResponse, TrailersResponse};
use postrider_grpc::{from_any, from_struct};
use postrider_http::grpc::Code;
use postrider_http::{Fields, HeaderId};
use postrider_model::Value;

use super::config::RouteCache;
use super::modes::{BodyMode, Side};
use super::mutation::{self, Target, token};
use super::passage::{held, trailers};
use super::session::{Session, Waits};
use super::{GOODBYE, Processor, stat};

/// The client's answer in place of the message.
pub(super) type Reply = Box<LocalReply>;

/// Answers for the other side that may wait for its turn.
const MAX_ANSWERS: usize = 16;

/// What is wrong with an answer.
enum Fault {
    /// Nobody asked for it.
    Spurious(&'static str),
    /// It cannot be done.
    Wrong(&'static str),
}

const SPURIOUS: Fault = Fault::Spurious("spurious message");

impl Processor {
    /// Does what the processor has said until now. More is heard when what goes on of it has gone.
    ///
    /// # Errors
    /// The client is answered in place of this message.
    pub(super) fn hear(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>) -> Result<(), Reply> {
        while !session.complete {
            let waiting = &mut session.course(side).answers;
            let was_full = waiting.len() >= MAX_ANSWERS;
            let response = match waiting.pop_front() {
                Some(response) => response,
                None => match self.receive(session, side, stream)? {
                    Some(response) => response,
                    None => break,
                },
            };
            if was_full {
                session.link.bells.ring(side.other());
            }
            self.handle(session, side, stream, response)?;
            if !session.course(side).out.is_empty() {
                break;
            }
        }
        if session.complete {
            return Ok(());
        }
        match session.course(side).deadline {
            Some(due) if stream.host.now() >= due => self.late(session),
            Some(due) => {
                session.link.bells.ring_at(due, stream.host);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The next answer for this side. One for the other is kept for its turn.
    fn receive(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
    ) -> Result<Option<ProcessingResponse>, Reply> {
        while !session.complete {
            if session.course(side.other()).answers.len() >= MAX_ANSWERS {
                break;
            }
            let Some(link) = &session.link.stream else { break };
            let Some(bytes) = link.receive() else {
                if let Some(status) = link.status() {
                    self.ended(session, &status)?;
                }
                break;
            };
            if self.config.observes {
                continue;
            }
            let Ok(response) = ProcessingResponse::decode(bytes.as_slice()) else {
                self.broke(session, u32::from(Code::Internal.number()), "")?;
                break;
            };
            if let Some(time) = &response.override_message_timeout {
                self.extend(session, time, stream);
                continue;
            }
            let overridden = self.override_modes(session, &response);
            let of = match &response.response {
                Some(Response::RequestHeaders(_) | Response::RequestBody(_) | Response::RequestTrailers(_)) => {
                    Side::Request
                }
                Some(Response::ResponseHeaders(_) | Response::ResponseBody(_) | Response::ResponseTrailers(_)) => {
                    Side::Response
                }
                Some(Response::ImmediateResponse(_)) => {
                    self.immediate(session, stream, response)?;
                    break;
                }
                None if overridden => {
                    self.stats.inc(stat::STREAM_MSGS_RECEIVED);
                    session.link.bells.ring(side.other());
                    continue;
                }
                Some(Response::StreamedImmediateResponse(_)) | None => {
                    self.spurious(session, "unhandled message")?;
                    break;
                }
            };
            if of == side {
                return Ok(Some(response));
            }
            if session.course(of).waits == Waits::No {
                self.spurious(session, "spurious message")?;
                break;
            }
            session.course(of).answers.push_back(response);
            session.link.bells.ring(of);
        }
        Ok(None)
    }

    fn handle(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        response: ProcessingResponse,
    ) -> Result<(), Reply> {
        self.note(stream, &response);
        let to_headers = matches!(&response.response, Some(Response::RequestHeaders(_) | Response::ResponseHeaders(_)));
        let last = self.is_last(session, &response);
        let done = match response.response {
            Some(Response::RequestHeaders(answer) | Response::ResponseHeaders(answer)) => {
                self.headers(session, side, stream, answer.response.unwrap_or_default())
            }
            Some(Response::RequestBody(answer) | Response::ResponseBody(answer)) => {
                self.body_answered(session, side, stream, answer.response.unwrap_or_default())
            }
            Some(Response::RequestTrailers(answer) | Response::ResponseTrailers(answer)) => {
                self.trailers_answered(session, side, stream, &answer)
            }
            _ => Err(SPURIOUS),
        };
        match done {
            Ok(()) => self.stats.inc(stat::STREAM_MSGS_RECEIVED),
            Err(Fault::Spurious(what)) => return self.spurious(session, what),
            Err(Fault::Wrong(what)) => {
                self.stats.inc(stat::STREAM_MSGS_RECEIVED);
                self.give_up(session);
                return Err(self.refusal(self.config.status_on_error, what));
            }
        }
        let over = side == Side::Response || session.response.modes.is_nothing();
        let last = last || to_headers && over && session.course(side).is_head_only();
        if last && !session.course(side).goes_on_with_trailers() {
            self.say_goodbye(session);
        }
        Ok(())
    }

    fn headers(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        answer: CommonResponse,
    ) -> Result<(), Fault> {
        if session.course(side).waits != Waits::Headers {
            return Err(SPURIOUS);
        }
        let replaces = answer.status() == ResponseStatus::ContinueAndReplace;
        self.change_head(side, stream, answer.header_mutation.as_ref(), replaces)?;
        self.clear_route(side, stream, &answer);
        let course = session.course(side);
        if replaces {
            course.answered(Waits::No);
            if let Some(change) = &answer.body_mutation {
                match side {
                    Side::Request => stream.request.fields.remove(HeaderId::ContentLength),
                    Side::Response => stream.response.fields.remove(HeaderId::ContentLength),
                };
                course.replacement = Some(mutation::body(change).unwrap_or_default().to_vec());
            } else {
                course.salvage();
            }
            course.modes.body = BodyMode::None;
            course.modes.trailers = super::modes::HeadMode::Skip;
            course.head_free = true;
            return Ok(());
        }
        let streamed = match course.modes.body {
            BodyMode::Streamed => !course.unanswered.is_empty(),
            BodyMode::Duplex => course.body_came,
            BodyMode::None | BodyMode::Buffered | BodyMode::Partial => false,
        };
        let duplex = course.modes.body == BodyMode::Duplex;
        course.answered(match (streamed, duplex && course.trailers_sent) {
            (true, _) => Waits::Streamed,
            (false, true) => Waits::Trailers,
            (false, false) => Waits::No,
        });
        // Answers to the body may change the head as long as all of it is held.
        course.head_free = course.modes.body != BodyMode::Partial;
        Ok(())
    }

    fn body_answered(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        answer: CommonResponse,
    ) -> Result<(), Fault> {
        let early = self.config.sends_early;
        let course = session.course(side);
        let head_is_here = course.modes.sends_headers() && !course.head_gone;
        let change = answer.body_mutation.as_ref();
        match course.waits {
            Waits::Buffered => {
                if head_is_here {
                    self.change_head(side, stream, answer.header_mutation.as_ref(), false)?;
                }
                if let Some(change) = change {
                    let new = match &change.mutation {
                        Some(Mutation::Body(body)) => body.len(),
                        _ => 0,
                    };
                    if head_is_here && declared(side, stream).is_some_and(|declared| declared != new) {
                        let what = "mismatch between content length and the length of the mutated body";
                        return Err(Fault::Wrong(what));
                    }
                    if let Some(body) = mutation::body(change) {
                        held(side, stream).replace(body);
                    }
                }
                course.answered(Waits::No);
            }
            Waits::Streamed => {
                let streamed = match change.map(|change| &change.mutation) {
                    Some(Some(Mutation::StreamedResponse(streamed))) => Some(streamed),
                    _ => None,
                };
                match (streamed, course.modes.body) {
                    (Some(piece), BodyMode::Duplex) => {
                        if !piece.body.is_empty() {
                            course.out.push_back(piece.body.clone());
                        }
                        match (piece.end_of_stream, course.trailers_came, course.ended) {
                            (false, ..) => course.answered(Waits::Streamed),
                            (true, true, _) => course.answered(Waits::Trailers),
                            (true, false, true) => {
                                course.partly_done = true;
                                course.answered(Waits::No);
                            }
                            (true, false, false) => {
                                course.finished = true;
                                course.answered(Waits::No);
                            }
                        }
                    }
                    (Some(_), _) => {
                        return Err(Fault::Spurious(
                            "spurious message: streamed_response is received while body_mode_ is not FULL_DUPLEX_STREAMED",
                        ));
                    }
                    (None, BodyMode::Duplex) => {
                        return Err(Fault::Spurious(
                            "spurious message: Normal body mutation response is received while body_mode_ is \
                             FULL_DUPLEX_STREAMED",
                        ));
                    }
                    (None, _) => {
                        if early && head_is_here {
                            self.change_head(side, stream, answer.header_mutation.as_ref(), false)?;
                        }
                        let Some(piece) = course.unanswered.pop_front() else { return Err(SPURIOUS) };
                        course.unanswered_bytes = course.unanswered_bytes.saturating_sub(piece.bytes.len());
                        let bytes = match change.and_then(mutation::body) {
                            Some(body) => body.to_vec(),
                            None => piece.bytes,
                        };
                        if !bytes.is_empty() {
                            course.out.push_back(bytes);
                        }
                        let more = !course.unanswered.is_empty();
                        course.answered(if more { Waits::Streamed } else { Waits::No });
                    }
                }
            }
            Waits::Partial => {
                if head_is_here {
                    self.change_head(side, stream, answer.header_mutation.as_ref(), false)?;
                }
                let gathered = std::mem::take(&mut course.gathered);
                let bytes = match change.and_then(mutation::body) {
                    Some(body) => body.to_vec(),
                    None => gathered,
                };
                if !bytes.is_empty() {
                    course.out.push_back(bytes);
                }
                course.partly_done = true;
                course.head_free = true;
                course.answered(Waits::No);
            }
            Waits::No | Waits::Headers | Waits::Trailers => return Err(SPURIOUS),
        }
        self.clear_route(side, stream, &answer);
        Ok(())
    }

    fn trailers_answered(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        answer: &TrailersResponse,
    ) -> Result<(), Fault> {
        let course = session.course(side);
        let duplex = course.modes.body == BodyMode::Duplex && course.trailers_sent && course.waits == Waits::Streamed;
        if course.waits != Waits::Trailers && !duplex {
            return Err(SPURIOUS);
        }
        if let Some(change) = &answer.header_mutation {
            let target = Target::Trailers(trailers(side, stream));
            self.change(change, target, false)?;
        }
        course.trailers_done = true;
        course.head_free = true;
        course.answered(Waits::No);
        Ok(())
    }

    fn change_head(
        &self,
        side: Side,
        stream: &mut Stream<'_>,
        change: Option<&HeaderMutation>,
        replaces: bool,
    ) -> Result<(), Fault> {
        let Some(change) = change else { return Ok(()) };
        let target = match side {
            Side::Request => Target::Request(&mut *stream.request),
            Side::Response => Target::Response(&mut *stream.response),
        };
        self.change(change, target, replaces)
    }

    fn change(&self, change: &HeaderMutation, target: Target<'_>, replaces: bool) -> Result<(), Fault> {
        let rejected = || self.stats.inc(stat::REJECTED_HEADER_MUTATIONS);
        mutation::apply(change, target, &self.config.rules, replaces, rejected).map_err(Fault::Wrong)
    }

    fn clear_route(&self, side: Side, stream: &mut Stream<'_>, answer: &CommonResponse) {
        if side == Side::Response {
            return;
        }
        match (self.config.route_cache, answer.header_mutation.is_some()) {
            (_, false) if answer.clear_route_cache => self.stats.inc(stat::CLEAR_ROUTE_CACHE_IGNORED),
            (_, false) => {}
            (RouteCache::Clear, true) => stream.info.route_is_stale = true,
            (RouteCache::Default, true) => stream.info.route_is_stale |= answer.clear_route_cache,
            (RouteCache::Retain, true) if answer.clear_route_cache => self.stats.inc(stat::CLEAR_ROUTE_CACHE_DISABLED),
            (RouteCache::Retain, true) => {}
        }
    }

    /// Remembers what the processor may leave for others.
    fn note(&self, stream: &mut Stream<'_>, response: &ProcessingResponse) {
        for (namespace, message) in &response.typed_dynamic_metadata {
            if self.set.receiving.messages.contains(namespace) {
                stream.info.metadata.set_typed(namespace, from_any(message));
            }
        }
        let Some(said) = &response.dynamic_metadata else { return };
        let Value::Map(namespaces) = from_struct(said) else { return };
        for (namespace, value) in namespaces.into_iter().filter(|(name, _)| self.set.receiving.values.contains(name)) {
            let Value::Map(entries) = value else { continue };
            for (key, value) in entries {
                stream.info.metadata.set(&namespace, &key, value);
            }
        }
    }

    /// Takes another set of modes where that is allowed; answers whether it was an answer of its own.
    fn override_modes(&self, session: &mut Session, response: &ProcessingResponse) -> bool {
        let Some(wanted) = &response.mode_override else { return false };
        let base = &self.config.modes;
        let duplex = base.request.body == BodyMode::Duplex || base.response.body == BodyMode::Duplex;
        let asked = session.request.waits == Waits::Headers || session.response.waits == Waits::Headers;
        if !self.config.allow_mode_override || self.config.sends_early || duplex || !asked {
            return false;
        }
        let Some(modes) = base.overridden(wanted) else { return false };
        let allowed = &self.config.allowed_overrides;
        if !allowed.is_empty() && !allowed.iter().any(|one| modes.matches(one)) {
            return false;
        }
        if response.response.is_none() {
            // Before its answer to the headers, a processor may ask for nothing but the whole body at once.
            let becomes = (session.request.modes.body, modes.request.body);
            let same = becomes.0 == becomes.1;
            let duplex = matches!(becomes, (BodyMode::None | BodyMode::Streamed, BodyMode::Duplex))
                && modes.request.sends_trailers();
            if session.request.waits != Waits::Headers || !same && !duplex {
                return false;
            }
        }
        session.set_modes(&modes);
        true
    }

    fn extend(&self, session: &mut Session, time: &postrider_grpc::Duration, stream: &Stream<'_>) {
        let seconds = u64::try_from(time.seconds).ok();
        let time = seconds.zip(u32::try_from(time.nanos).ok()).map(|(secs, nanos)| Duration::new(secs, nanos));
        let fits = |time: &Duration| *time >= Duration::from_millis(1) && *time <= self.config.max_timeout;
        let mut extended = false;
        if let Some(time) = time.filter(fits) {
            for side in [Side::Request, Side::Response] {
                let course = session.course(side);
                if course.deadline.is_some() && !course.extended {
                    let due = stream.host.now() + time;
                    course.deadline = Some(due);
                    course.extended = true;
                    extended = true;
                    session.link.bells.ring_at(due, stream.host);
                }
            }
        }
        self.stats.inc(match extended {
            true => stat::OVERRIDE_MESSAGE_TIMEOUT_RECEIVED,
            false => stat::OVERRIDE_MESSAGE_TIMEOUT_IGNORED,
        });
    }

    fn immediate(
        &self,
        session: &mut Session,
        stream: &mut Stream<'_>,
        response: ProcessingResponse,
    ) -> Result<(), Reply> {
        if self.config.disable_immediate_response {
            return self.spurious(session, "unhandled immediate response due to config disabled it");
        }
        self.note(stream, &response);
        let Some(Response::ImmediateResponse(said)) = response.response else { return Ok(()) };
        self.stats.inc(stat::STREAM_MSGS_RECEIVED);
        self.stats.inc(stat::IMMEDIATE_RESPONSES_SENT);
        self.say_goodbye(session);
        let rejected = || self.stats.inc(stat::REJECTED_HEADER_MUTATIONS);
        Err(Box::new(mutation::immediate(said, &self.config.rules, rejected)))
    }

    /// Nothing is left to be said once this answer is heard.
    fn is_last(&self, session: &Session, response: &ProcessingResponse) -> bool {
        let over = session.response.modes.is_nothing();
        let streams_end = |course: &super::session::Course| {
            course.modes.body == BodyMode::Streamed && course.unanswered.front().is_some_and(|piece| piece.end)
        };
        match &response.response {
            Some(Response::RequestBody(_)) => streams_end(&session.request) && over,
            Some(Response::RequestTrailers(_)) => over,
            Some(Response::ResponseBody(_)) => streams_end(&session.response),
            Some(Response::ResponseTrailers(_)) => true,
            _ => false,
        }
    }
}

/// How the processor's part in a stream ends.
impl Processor {
    /// The conversation ended by itself.
    fn ended(&self, session: &mut Session, status: &GrpcStatus) -> Result<(), Reply> {
        if !status.is_ok() {
            // Who answered, as Envoy tells it.
            let message = match (status.is_heard, status.message.as_str()) {
                (true, "") => "via_upstream".to_owned(),
                (true, said) => format!("{said}{{via_upstream}}"),
                (false, ours) => ours.to_owned(),
            };
            return self.broke(session, status.code, &message);
        }
        session.link.abandon();
        self.stats.inc(stat::STREAMS_CLOSED);
        self.complete(session);
        Ok(())
    }

    /// The conversation failed.
    pub(super) fn broke(&self, session: &mut Session, code: u32, message: &str) -> Result<(), Reply> {
        self.stats.inc(stat::STREAMS_FAILED);
        session.link.abandon();
        let allowed = self.fails_open(session);
        self.complete(session);
        if allowed {
            self.stats.inc(stat::STREAMS_CLOSED);
            self.stats.inc(stat::FAILURE_MODE_ALLOWED);
            return Ok(());
        }
        Err(self.refusal(self.config.status_on_error, &format!("ext_proc_error_gRPC_error_{code}{{{message}}}")))
    }

    #[cold]
    fn late(&self, session: &mut Session) -> Result<(), Reply> {
        self.stats.inc(stat::MESSAGE_TIMEOUTS);
        let allowed = self.fails_open(session);
        self.give_up(session);
        if allowed {
            self.stats.inc(stat::FAILURE_MODE_ALLOWED);
            return Ok(());
        }
        Err(self.refusal(504, "ext_proc_error_per-message_timeout_exceeded"))
    }

    #[cold]
    fn spurious(&self, session: &mut Session, what: &str) -> Result<(), Reply> {
        self.stats.inc(stat::SPURIOUS_MSGS_RECEIVED);
        let allowed = self.fails_open(session);
        self.give_up(session);
        if allowed {
            self.stats.inc(stat::FAILURE_MODE_ALLOWED);
            return Ok(());
        }
        Err(self.refusal(self.config.status_on_error, what))
    }

    /// Whether messages go on without the processor. Not when it already has some that only it can give back.
    fn fails_open(&self, session: &Session) -> bool {
        let holds = |course: &super::session::Course| course.modes.body == BodyMode::Duplex && course.body_came;
        self.set.failure_mode_allow && !holds(&session.request) && !holds(&session.response)
    }

    #[allow(clippy::unused_self, reason = "an answer of the filter's")]
    fn refusal(&self, status: u16, details: &str) -> Reply {
        Box::new(LocalReply { status, details: token(details).into(), ..LocalReply::default() })
    }

    /// Ends the conversation at once.
    fn give_up(&self, session: &mut Session) {
        if session.link.abandon() {
            self.stats.inc(stat::STREAMS_CLOSED);
        }
        self.complete(session);
    }

    /// Ends the conversation once everything is said.
    pub(super) fn say_goodbye(&self, session: &mut Session) {
        let patience = if self.config.observes { self.config.deferred_close } else { GOODBYE };
        if session.link.leave(patience) {
            self.stats.inc(stat::STREAMS_CLOSED);
        }
        self.complete(session);
    }

    #[allow(clippy::unused_self, reason = "beside the other ends")]
    fn complete(&self, session: &mut Session) {
        session.complete = true;
        session.link.bells.silence();
        session.link.bells.ring_both();
    }
}

/// The length that the head declares.
fn declared(side: Side, stream: &Stream<'_>) -> Option<usize> {
    let fields: &Fields = match side {
        Side::Request => &stream.request.fields,
        Side::Response => &stream.response.fields,
    };
    std::str::from_utf8(fields.get(HeaderId::ContentLength)?).ok()?.parse().ok()
}
