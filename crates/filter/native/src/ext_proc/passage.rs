//! A message on its way through the filter: what is sent of it, and what goes on.

use postrider_filter_api::{Action, Body, CallTrace, Flow, GrpcOpen, Stream};
use postrider_grpc::process::PROCESS;
use postrider_http::grpc::Code;
use postrider_http::{Fields, HeaderId, Method, Version};

use super::Processor;
use super::answers::Reply;
use super::config::drops_length;
use super::messages::Part;
use super::modes::{BodyMode, Side};
use super::session::{Course, Piece, Session, Waits};
use super::stat;

pub(super) fn held<'a>(side: Side, stream: &'a mut Stream<'_>) -> &'a mut Body {
    match side {
        Side::Request => stream.request_body,
        Side::Response => stream.response_body,
    }
}

pub(super) fn trailers<'a>(side: Side, stream: &'a mut Stream<'_>) -> &'a mut Fields {
    match side {
        Side::Request => stream.request_trailers,
        Side::Response => stream.response_trailers,
    }
}

impl Processor {
    pub(super) fn head(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Reply> {
        if session.complete {
            return Ok(Action::Done);
        }
        if self.config.observes {
            return self.observe_head(session, side, stream, end);
        }
        let modes = session.course(side).modes;
        let tunnel = match side {
            Side::Request => stream.request.fields.has(HeaderId::Upgrade),
            Side::Response => stream.response.status() == 101,
        };
        let tunnel = tunnel || stream.request.method() == Method::Connect;
        // Bytes of a tunnel are no body.
        session.course(side).bodiless = end || tunnel;
        let action = if modes.sends_headers() {
            self.say(session, side, stream, &Part::Headers { end }, Waits::Headers)?;
            match session.complete {
                true => Action::Done,
                false => self.await_headers(session, side, stream),
            }
        } else {
            session.course(side).head_free = true;
            self.after_head(session, side, stream)
        };
        if !session.complete && drops_length(modes.body, modes.sends_headers()) {
            match side {
                Side::Request => stream.request.fields.remove(HeaderId::ContentLength),
                Side::Response => stream.response.fields.remove(HeaderId::ContentLength),
            };
        }
        if side == Side::Response && session.response.modes.is_nothing() {
            self.say_goodbye(session);
        }
        Ok(action)
    }

    /// Bodies do not wait for the answer to the headers where the processor may want to see them first.
    fn await_headers(&self, session: &mut Session, side: Side, stream: &Stream<'_>) -> Action {
        let early = self.config.sends_early;
        let course = session.course(side);
        let overtakes = course.modes.body == BodyMode::Duplex || early && course.modes.body == BodyMode::Streamed;
        if overtakes && !course.bodiless {
            course.taken = true;
            return Action::Take;
        }
        session.link.bells.hang(side, stream.resumer);
        Action::Pause
    }

    /// The processor has had its say about the head.
    fn after_head(&self, session: &mut Session, side: Side, stream: &Stream<'_>) -> Action {
        let course = session.course(side);
        // Nothing follows a body whose length HTTP/1.1 tells beforehand.
        let closed = match side {
            Side::Request => {
                stream.request.version() != Version::Http2 && stream.request.fields.has(HeaderId::ContentLength)
            }
            Side::Response => {
                stream.info.upstream_protocol != "HTTP/2" && stream.response.fields.has(HeaderId::ContentLength)
            }
        };
        if course.bodiless || course.modes.body == BodyMode::None && closed {
            return Action::Done;
        }
        match course.modes.body {
            BodyMode::None if !course.modes.sends_trailers() => Action::Done,
            BodyMode::None => Action::Continue,
            BodyMode::Buffered => Action::Buffer,
            BodyMode::Streamed | BodyMode::Partial | BodyMode::Duplex => {
                course.taken = true;
                Action::Take
            }
        }
    }

    pub(super) fn body(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Reply> {
        if self.config.observes {
            return self.observe_body(session, side, stream, end);
        }
        let complete = session.complete;
        let course = session.course(side);
        course.body_came = true;
        if course.taken {
            course.ended |= end;
            self.take(session, side, stream, end)?;
            return Ok(Action::Continue);
        }
        if complete {
            return Ok(Action::Done);
        }
        match (course.modes.body, end) {
            (BodyMode::Buffered, true) => self.ask_buffered(session, side, stream, true),
            (BodyMode::Buffered, false) => Ok(Action::Buffer),
            _ => Ok(Action::Continue),
        }
    }

    /// All of the body is here.
    fn ask_buffered(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Reply> {
        let bytes = held(side, stream).bytes().to_vec();
        self.say(session, side, stream, &Part::Body { bytes: &bytes, end }, Waits::Buffered)?;
        if session.complete {
            return Ok(Action::Done);
        }
        session.link.bells.hang(side, stream.resumer);
        Ok(Action::Pause)
    }

    /// A piece of a body that was taken over.
    fn take(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>, end: bool) -> Result<(), Reply> {
        let complete = session.complete;
        let course = session.course(side);
        if course.finished {
            return Ok(());
        }
        let bytes = held(side, stream).bytes().to_vec();
        if complete || course.modes.body == BodyMode::None || course.partly_done {
            if !bytes.is_empty() {
                course.out.push_back(bytes);
            }
            return Ok(());
        }
        match course.modes.body {
            BodyMode::Partial => {
                course.gathered.extend_from_slice(&bytes);
                if end || course.gathered.len() >= self.limit {
                    return self.ask_gathered(session, side, stream, end);
                }
                Ok(())
            }
            mode => {
                let waits = if course.waits == Waits::Headers { Waits::Headers } else { Waits::Streamed };
                self.say(session, side, stream, &Part::Body { bytes: &bytes, end }, waits)?;
                let course = session.course(side);
                if mode == BodyMode::Streamed {
                    course.unanswered_bytes += bytes.len();
                    course.unanswered.push_back(Piece { bytes, end });
                    if session.complete {
                        session.course(side).salvage();
                    }
                }
                Ok(())
            }
        }
    }

    fn ask_gathered(&self, session: &mut Session, side: Side, stream: &Stream<'_>, end: bool) -> Result<(), Reply> {
        let bytes = std::mem::take(&mut session.course(side).gathered);
        let said = self.say(session, side, stream, &Part::Body { bytes: &bytes, end }, Waits::Partial);
        session.course(side).gathered = bytes;
        said
    }

    pub(super) fn trailers_came(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
    ) -> Result<Action, Reply> {
        if self.config.observes {
            return self.observe_trailers(session, side, stream);
        }
        let complete = session.complete;
        let course = session.course(side);
        course.trailers_came = true;
        if course.taken {
            course.ended = true;
            if course.finished {
                trailers(side, stream).clear();
            } else if !complete {
                self.tend_trailers(session, side, stream)?;
            }
            return Ok(Action::Continue);
        }
        if complete {
            return Ok(Action::Done);
        }
        if course.modes.body == BodyMode::Buffered && !held(side, stream).bytes().is_empty() {
            return self.ask_buffered(session, side, stream, false);
        }
        self.ask_trailers(session, side, stream)
    }

    fn ask_trailers(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>) -> Result<Action, Reply> {
        let course = session.course(side);
        if !course.modes.sends_trailers() || course.trailers_sent {
            return Ok(Action::Continue);
        }
        course.trailers_sent = true;
        self.say(session, side, stream, &Part::Trailers, Waits::Trailers)?;
        if session.complete {
            return Ok(Action::Done);
        }
        session.link.bells.hang(side, stream.resumer);
        Ok(Action::Pause)
    }

    /// Sends the trailers of a message that was taken over when their turn has come.
    fn tend_trailers(&self, session: &mut Session, side: Side, stream: &Stream<'_>) -> Result<(), Reply> {
        let course = session.course(side);
        if !course.trailers_came || course.trailers_sent || !course.modes.sends_trailers() {
            return Ok(());
        }
        let duplex = course.modes.body == BodyMode::Duplex;
        if course.modes.body == BodyMode::Partial && !course.partly_done && course.waits == Waits::No {
            // The end of the body came without a piece of its own.
            if !course.gathered.is_empty() {
                return self.ask_gathered(session, side, stream, false);
            }
        }
        if course.waits == Waits::No || duplex {
            course.trailers_sent = true;
            let waits = if course.waits == Waits::No { Waits::Trailers } else { course.waits };
            self.say(session, side, stream, &Part::Trailers, waits)?;
        }
        Ok(())
    }

    /// A pause is over, or it may be.
    pub(super) fn resumed(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>) -> Result<Action, Reply> {
        if self.config.observes {
            let end = session.course(side).ended;
            return self.observe_body(session, side, stream, end);
        }
        self.hear(session, side, stream)?;
        if session.complete {
            // The last answer may have been one that still counts.
            return Ok(self.after_replacement(session, side, stream).unwrap_or(Action::Done));
        }
        let course = session.course(side);
        if course.waits == Waits::Headers {
            return Ok(self.await_headers(session, side, stream));
        }
        if course.waits != Waits::No {
            session.link.bells.hang(side, stream.resumer);
            return Ok(Action::Pause);
        }
        if let Some(action) = self.after_replacement(session, side, stream) {
            return Ok(action);
        }
        let course = session.course(side);
        if course.trailers_came {
            return self.ask_trailers(session, side, stream);
        }
        if course.body_came {
            return Ok(Action::Done);
        }
        Ok(self.after_head(session, side, stream))
    }

    /// The message goes on with a body of the processor's.
    fn after_replacement(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>) -> Option<Action> {
        let course = session.course(side);
        let body = course.replacement.take()?;
        if course.bodiless {
            held(side, stream).replace(&body);
            return Some(Action::Done);
        }
        course.taken = true;
        course.finished = true;
        course.head_free = true;
        if !body.is_empty() {
            course.out.push_back(body);
        }
        Some(Action::Take)
    }

    /// What goes on of a message that was taken over.
    pub(super) fn flow(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>) -> Result<Flow, Reply> {
        session.link.flush();
        if session.course(side).out.is_empty() {
            self.hear(session, side, stream)?;
        }
        if !session.complete {
            self.tend_trailers(session, side, stream)?;
        }
        let complete = session.complete;
        let course = session.course(side);
        if let Some(body) = course.replacement.take() {
            course.finished = true;
            course.head_free = true;
            course.out.clear();
            course.out.extend(Some(body).filter(|body| !body.is_empty()));
        }
        if complete && !course.finished {
            course.salvage();
        }
        course.head_free |= course.finished || course.is_over();
        if course.head_free && !course.head_gone {
            course.head_gone = true;
            return Ok(Flow::Head);
        }
        if course.head_gone {
            if let Some(piece) = course.out.pop_front() {
                held(side, stream).replace(&piece);
                return Ok(Flow::Piece);
            }
            if course.finished {
                trailers(side, stream).clear();
                return Ok(Flow::Finish);
            }
            if complete || course.is_over() {
                return Ok(Flow::Release);
            }
        }
        let wants = session.link.has_room() && self.wants(session.course(side));
        session.link.bells.hang(side, stream.resumer);
        Ok(if wants { Flow::Want } else { Flow::Wait })
    }

    /// More of the body can be taken.
    fn wants(&self, course: &Course) -> bool {
        if course.ended {
            return false;
        }
        match course.modes.body {
            BodyMode::Streamed => course.unanswered_bytes < self.limit,
            BodyMode::Partial => course.waits == Waits::No,
            BodyMode::None | BodyMode::Buffered | BodyMode::Duplex => true,
        }
    }

    /// Sends a part of a message; the answer is waited for as the modes say.
    pub(super) fn say(
        &self,
        session: &mut Session,
        side: Side,
        stream: &Stream<'_>,
        part: &Part<'_>,
        waits: Waits,
    ) -> Result<(), Reply> {
        if session.link.stream.is_none() && !self.open(session, stream)? {
            return Ok(());
        }
        let message = self.message(session, side, stream, part);
        session.link.send(message);
        self.stats.inc(stat::STREAM_MSGS_SENT);
        if self.config.observes {
            return Ok(());
        }
        let course = session.course(side);
        course.wait(waits);
        // Who decides for itself when to answer is not late.
        if course.modes.body != BodyMode::Duplex {
            let due = stream.host.now() + self.config.timeout;
            course.deadline = Some(due);
            session.link.bells.ring_at(due, stream.host);
        }
        Ok(())
    }

    /// Begins the conversation; `false` when it cannot be, and that is no matter.
    fn open(&self, session: &mut Session, stream: &Stream<'_>) -> Result<bool, Reply> {
        let service = &self.set.service;
        let timeout = service.timeout_or(None);
        let bells = session.link.bells.clone();
        let has_span = self.set.has_span;
        let open = GrpcOpen {
            cluster: service.cluster.clone(),
            head: service.head(PROCESS, timeout, stream),
            timeout,
            max_answer: service.max_answer,
            trace: stream.info.span().map(|parent| CallTrace { parent, is_told: None, has_span }),
            retries: service.retries.clone(),
            wake: Box::new(move || bells.ring_both()),
        };
        match stream.host.converse(open) {
            Ok(opened) => {
                self.stats.inc(stat::STREAMS_STARTED);
                session.link.stream = Some(opened);
                Ok(true)
            }
            Err(_) => {
                let code = u32::from(Code::Unavailable.number());
                self.broke(session, code, "the cluster is unknown")?;
                Ok(false)
            }
        }
    }
}

/// What a processor only watches.
impl Processor {
    fn observe_head(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Reply> {
        self.hear(session, side, stream)?;
        if session.complete {
            return Ok(Action::Done);
        }
        if session.course(side).modes.sends_headers() {
            self.say(session, side, stream, &Part::Headers { end }, Waits::No)?;
        }
        let modes = session.course(side).modes;
        let more = modes.body == BodyMode::Streamed || modes.sends_trailers();
        Ok(if more && !end && !session.complete { Action::Continue } else { Action::Done })
    }

    fn observe_body(
        &self,
        session: &mut Session,
        side: Side,
        stream: &mut Stream<'_>,
        end: bool,
    ) -> Result<Action, Reply> {
        self.hear(session, side, stream)?;
        if session.complete {
            return Ok(Action::Done);
        }
        session.link.flush();
        let course = session.course(side);
        course.ended = end;
        if course.modes.body != BodyMode::Streamed {
            return Ok(Action::Continue);
        }
        if !session.link.has_room() {
            session.link.bells.hang(side, stream.resumer);
            return Ok(Action::Pause);
        }
        let bytes = held(side, stream).bytes().to_vec();
        self.say(session, side, stream, &Part::Body { bytes: &bytes, end }, Waits::No)?;
        Ok(Action::Continue)
    }

    fn observe_trailers(&self, session: &mut Session, side: Side, stream: &mut Stream<'_>) -> Result<Action, Reply> {
        self.hear(session, side, stream)?;
        if !session.complete && session.course(side).modes.sends_trailers() {
            self.say(session, side, stream, &Part::Trailers, Waits::No)?;
        }
        Ok(Action::Continue)
    }
}

impl Course {
    /// The processor has had its say about all that came, and that was all.
    fn is_over(&self) -> bool {
        if self.waits != Waits::No || self.goes_on_with_trailers() {
            return false;
        }
        match self.modes.body {
            BodyMode::Streamed => self.ended && self.unanswered.is_empty(),
            BodyMode::Partial if !self.partly_done => self.ended && self.gathered.is_empty(),
            // What is left of the body goes on as it comes; the trailers behind it may not.
            BodyMode::Partial | BodyMode::None | BodyMode::Buffered => self.ended || !self.modes.sends_trailers(),
            BodyMode::Duplex => self.ended && (self.trailers_done || self.duplex_over()),
        }
    }

    /// Nothing goes to the processor behind the head.
    pub(super) fn is_head_only(&self) -> bool {
        self.bodiless || self.modes.body == BodyMode::None && !self.modes.sends_trailers()
    }

    /// Trailers follow the body to which an answer came.
    pub(super) fn goes_on_with_trailers(&self) -> bool {
        self.trailers_came && self.modes.sends_trailers() && !self.trailers_done
    }

    /// The processor said that its body has ended.
    fn duplex_over(&self) -> bool {
        self.partly_done
    }
}
