//! The adapter: the filter contract's hooks on one side, a module's on the other.
//!
//! ```text
//! module answers          head                           piece of the body
//! Continue                goes on                        goes on, behind what was kept
//! StopIteration           taken: pieces are shown while  kept (or, without buffering, dropped); at the end of the body
//!                         the head waits                 the message pauses until the module frees it
//! StopAll…                pauses until freed             —
//! ```
//!
//! A hook that frees what waits and then stops is as one that went on: nothing would end the wait.

use std::rc::Rc;

use postrider_filter_api::{Action, Body, Closing, Filter, Flow, Hooks, LocalReply, State, Stream, StreamInfo};
use postrider_http::ResponseHead;

use crate::abi::{Buffer, body, head};
use crate::config::Phases;
use crate::deliver;
use crate::entry::OnReply;
use crate::instance::{Event, Instance, Side};
use crate::on_worker::OnWorker;

/// A module's filter as the pipeline sees it.
pub(crate) struct Hosted {
    place: Rc<OnWorker>,
    phases: Phases,
    hooks: Hooks,
}

impl Hosted {
    pub(crate) fn new(place: OnWorker) -> Hosted {
        let phases = place.config.phases();
        Hosted { hooks: phases.hooks(&place.config, place.is_upstream), phases, place: Rc::new(place) }
    }

    /// The stream's instance. `None` when there is none, or the module could not make its part of it.
    #[inline]
    fn known(state: &State) -> Option<&Instance> {
        let State::Any(boxed) = state else { return None };
        boxed.downcast_ref::<Instance>().filter(|instance| !instance.own().is_null())
    }

    /// The same, made when it is first asked for.
    #[inline]
    fn instance<'s>(&self, state: &'s mut State, stream: &mut Stream<'_>) -> Option<&'s Instance> {
        if !matches!(state, State::Any(_)) {
            *state = State::Any(Instance::new(&self.place, stream));
        }
        Hosted::known(state)
    }

    /// Makes the module's part of a stream; what is answered where there is none.
    #[inline]
    fn begin<'s>(&self, state: &'s mut State, stream: &mut Stream<'_>) -> Result<&'s Instance, Action> {
        if self.place.is_bypassed(stream) {
            // Nothing of it is called for this stream.
            *state = State::Any(Box::new(()));
            return Err(self.place.by_policy());
        }
        let made = Instance::new(&self.place, stream);
        if made.own().is_null() {
            *state = State::Any(made);
            return Err(self.without_instance(stream));
        }
        self.place.succeeded();
        *state = State::Any(made);
        Hosted::known(state).ok_or(Action::Done)
    }

    #[inline(always)]
    fn on_head(&self, side: Side, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let begun = match state {
            State::Any(_) => Hosted::known(state).ok_or(Action::Done),
            _ => self.begin(state, stream),
        };
        let instance = match begun {
            Ok(instance) => instance,
            Err(action) => return action,
        };
        if instance.replied.get() {
            return if side == Side::Response && instance.has_pieces() { Action::Take } else { Action::Done };
        }
        if side == Side::Response {
            instance.answers_whole.set(true);
        }
        let entries = &self.place.config.entries;
        if side == Side::Response
            && !self.place.is_upstream
            && stream.info.is_local_reply()
            && let Some(notify) = entries.local_reply
            && !tell_of_reply(instance, stream, notify)
        {
            return cut_off();
        }
        let hook = match side {
            Side::Request => entries.request_headers,
            Side::Response => entries.response_headers,
        };
        self.place.account.called(stream.route, None);
        let course = instance.course(side);
        course.bodiless.set(end);
        let Some(hook) = hook.filter(|_| self.wants_head(side)) else { return Action::Continue };
        instance.may_begin_anew.set(side == Side::Response || end);
        course.in_head.set(true);
        // SAFETY: the function of a loaded module, as the interface says.
        let answer = instance.enter(stream, |handle, own| unsafe { hook(handle, own, end) });
        course.in_head.set(false);
        let goes_on = course.freed.take() || matches!(answer, head::CONTINUE | head::CONTINUE_WITHOUT_END);
        if instance.acted.get()
            && let Some(action) = head_acted(instance, side, stream)
        {
            return action;
        }
        match answer {
            _ if goes_on => {
                let kept = !course.kept.borrow().is_empty();
                if end && kept {
                    // What the module appended becomes the body of a message that had none.
                    put_kept(instance, side, stream);
                }
                if self.looks_behind(side) || kept { Action::Continue } else { Action::Done }
            }
            head::STOP if !end => {
                course.stopped.set(true);
                course.freed.set(false);
                course.taken.set(true);
                Action::Take
            }
            _ => {
                course.at_head.set(true);
                stop(instance, side, stream)
            }
        }
    }

    fn on_piece(&self, side: Side, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(instance) = self.instance(state, stream) else { return Action::Done };
        if instance.replied.get() {
            return Action::Done;
        }
        let entries = &self.place.config.entries;
        let hook = match side {
            Side::Request => entries.request_body,
            Side::Response => entries.response_body,
        };
        let limit = self.limit(side, instance, stream);
        let course = instance.course(side);
        // The last piece of a body may be one too many.
        if course.gathers.get() && course.kept.borrow().len() + held(side, stream).bytes().len() > limit {
            return Action::Respond(Box::new(too_large(side)));
        }
        course.freed.set(false);
        // Behind the last piece nothing else would end a wait: a module may free the message before it stops it.
        course.stopped.set(course.stopped.get() || end);
        let mut answer = match hook {
            Some(hook) => {
                course.shows.set(true);
                // SAFETY: the function of a loaded module, as the interface says.
                let answer = instance.enter(stream, |handle, own| unsafe { hook(handle, own, end) });
                course.shows.set(false);
                answer
            }
            None => body::CONTINUE,
        };
        if let Some(reply) = instance.take_reply(stream) {
            return Action::Respond(reply);
        }
        if self.is_too_late(side, instance) {
            return cut_off();
        }
        let held = held(side, stream);
        if course.freed.take() && answer != body::CONTINUE {
            if !matches!(answer, body::STOP_AND_BUFFER | body::STOP_AND_WATERMARK) {
                held.replace(&[]);
            }
            answer = body::CONTINUE;
        }
        let mut kept = course.kept.borrow_mut();
        course.gathers.set(answer == body::STOP_AND_BUFFER);
        match answer {
            body::CONTINUE if course.taken.get() => {
                course.stopped.set(false);
                course.head_free.set(true);
                let mut out = course.out.borrow_mut();
                out.append(&mut kept);
                out.extend_from_slice(held.bytes());
                course.ended.set(end);
                return Action::Continue;
            }
            body::CONTINUE => {
                course.stopped.set(false);
                if !kept.is_empty() {
                    kept.extend_from_slice(held.bytes());
                    held.replace(&kept);
                    kept.clear();
                }
                return Action::Continue;
            }
            body::STOP_AND_BUFFER | body::STOP_AND_WATERMARK => kept.extend_from_slice(held.bytes()),
            // What is not kept is the module's.
            _ => {}
        }
        let is_full = kept.len() > limit;
        if !held.bytes().is_empty() {
            held.replace(&[]);
        }
        drop(kept);
        if is_full && answer == body::STOP_AND_BUFFER {
            return Action::Respond(Box::new(too_large(side)));
        }
        course.stopped.set(true);
        if course.taken.get() {
            course.freed.set(false);
            course.ended.set(end);
            course.full.set(is_full);
            return Action::Continue;
        }
        if end || is_full {
            course.at_head.set(false);
            return stop(instance, side, stream);
        }
        Action::Buffer
    }

    fn on_trailers(&self, side: Side, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(instance) = self.instance(state, stream) else { return Action::Done };
        if instance.replied.get() {
            return Action::Done;
        }
        let entries = &self.place.config.entries;
        let hook = match side {
            Side::Request => entries.request_trailers,
            Side::Response => entries.response_trailers,
        };
        let course = instance.course(side);
        course.freed.set(false);
        // What is no status of the interface lets them go on, as in Envoy.
        let stops = hook.is_some_and(|hook| {
            // SAFETY: the function of a loaded module, as the interface says.
            instance.enter(stream, |handle, own| unsafe { hook(handle, own) }) == 1
        });
        if let Some(reply) = instance.take_reply(stream) {
            return Action::Respond(reply);
        }
        if self.is_too_late(side, instance) {
            return cut_off();
        }
        let stops = stops && !course.freed.take();
        if course.taken.get() {
            course.ended.set(true);
            course.stopped.set(stops);
            if !stops {
                course.head_free.set(true);
                course.out.borrow_mut().append(&mut course.kept.borrow_mut());
            }
            return Action::Continue;
        }
        if stops {
            course.at_head.set(false);
            return stop(instance, side, stream);
        }
        put_kept(instance, side, stream);
        Action::Continue
    }

    fn on_resumed(&self, side: Side, state: &mut State, stream: &mut Stream<'_>) -> Action {
        let Some(instance) = self.instance(state, stream) else { return Action::Done };
        let course = instance.course(side);
        let is_whole = side == Side::Response || course.bodiless.get();
        instance.may_begin_anew.set(course.at_head.get() && is_whole);
        deliver::with_messages(instance, stream);
        if let Some(reply) = instance.take_reply(stream) {
            return Action::Respond(reply);
        }
        if let Some(answer) = instance.begins_anew() {
            return Action::Anew(answer);
        }
        if !course.freed.take() {
            course.wait(stream.resumer);
            return Action::Pause;
        }
        course.stopped.set(false);
        course.goes();
        if !course.at_head.get() || course.bodiless.get() {
            put_kept(instance, side, stream);
        }
        Action::Continue
    }

    fn on_flow(&self, side: Side, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let Some(instance) = self.instance(state, stream) else { return Flow::Release };
        deliver::with_messages(instance, stream);
        if side == Side::Response && instance.replied.get() && !instance.answers_whole.get() {
            return give_piece(instance, stream);
        }
        if let Some(reply) = instance.take_reply(stream) {
            return Flow::Respond(reply);
        }
        let course = instance.course(side);
        if course.freed.take() {
            course.stopped.set(false);
            course.full.set(false);
            course.head_free.set(true);
            course.out.borrow_mut().append(&mut course.kept.borrow_mut());
        }
        let mut out = course.out.borrow_mut();
        if course.ended.get() && !course.stopped.get() {
            course.goes();
            if !out.is_empty() {
                held(side, stream).replace(&out);
                out.clear();
            }
            return Flow::Release;
        }
        if course.head_free.get() {
            if !out.is_empty() {
                course.head_gone.set(true);
                held(side, stream).replace(&out);
                out.clear();
                return Flow::Piece;
            }
            if !course.head_gone.replace(true) {
                return Flow::Head;
            }
        }
        course.wait(stream.resumer);
        // The module may have taken of what was kept, from an event of its own.
        if course.full.get() && course.kept.borrow().len() <= self.limit(side, instance, stream) {
            course.full.set(false);
        }
        if course.ended.get() || course.full.get() || instance.sends_much() { Flow::Wait } else { Flow::Want }
    }

    /// The module begins an answer in pieces behind the head of one that came, whose rest must not pass for its.
    fn is_too_late(&self, side: Side, instance: &Instance) -> bool {
        side == Side::Response && !self.place.is_upstream && instance.waits_for_reply()
    }

    /// How much of a body may be kept.
    fn limit(&self, side: Side, instance: &Instance, stream: &Stream<'_>) -> usize {
        let own = if self.place.is_upstream { instance.own_limit() } else { stream.info.buffer_limit };
        own.bytes(side == Side::Request, self.place.buffer_limit)
    }

    /// Runs a hook on the answer. Between the router and a host nobody has looked at it yet, so that the module finds its head by
    /// what the head itself says.
    #[inline]
    fn on_answer<T>(&self, stream: &mut Stream<'_>, hook: impl FnOnce(&mut Stream<'_>) -> T) -> T {
        if !self.place.is_upstream || stream.info.status != 0 {
            return hook(stream);
        }
        stream.info.status = stream.response.status();
        let answer = hook(stream);
        stream.info.status = 0;
        answer
    }

    /// Whether the module may do something about what follows a head that went on.
    #[inline]
    fn looks_behind(&self, side: Side) -> bool {
        let entries = &self.place.config.entries;
        let has = match side {
            Side::Request => entries.request_body.is_some() || entries.request_trailers.is_some(),
            Side::Response => entries.response_body.is_some() || entries.response_trailers.is_some(),
        };
        has || !self.place.config.stays_in_hooks
    }

    #[inline]
    fn wants_head(&self, side: Side) -> bool {
        match side {
            Side::Request => self.phases.request_headers,
            Side::Response => self.phases.response_headers,
        }
    }

    /// The module could not make its part of a stream.
    #[cold]
    fn without_instance(&self, stream: &Stream<'_>) -> Action {
        self.place.failed(stream)
    }
}

impl Filter for Hosted {
    fn hooks(&self) -> Hooks {
        self.hooks
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on_head(Side::Request, state, stream, end)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on_piece(Side::Request, state, stream, end)
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on_trailers(Side::Request, state, stream)
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on_resumed(Side::Request, state, stream)
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.on_flow(Side::Request, state, stream)
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on_answer(stream, |stream| self.on_head(Side::Response, state, stream, end))
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.on_answer(stream, |stream| self.on_piece(Side::Response, state, stream, end))
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on_answer(stream, |stream| self.on_trailers(Side::Response, state, stream))
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.on_answer(stream, |stream| self.on_resumed(Side::Response, state, stream))
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        self.on_answer(stream, |stream| self.on_flow(Side::Response, state, stream))
    }

    fn on_closing(&self, state: &mut State, closing: &mut Closing<'_>) {
        let State::Any(boxed) = state else { return };
        let Some(instance) = boxed.downcast_ref::<Instance>() else { return };
        if let Some(complete) = self.place.config.entries.stream_complete.filter(|_| !instance.own().is_null()) {
            // SAFETY: the function of a loaded module, as the interface says.
            instance.enter_last(closing, |handle, own| unsafe { complete(handle, own) });
        }
    }

    fn on_complete(&self, state: &mut State, _: &StreamInfo) {
        // The module's own state goes with it.
        *state = State::Empty;
    }
}

/// Tells the module of an answer that others gave; `false` when it cuts the stream off.
#[cold]
#[inline(never)]
fn tell_of_reply(instance: &Instance, stream: &mut Stream<'_>, notify: OnReply) -> bool {
    let details = stream.info.details.clone();
    let status = u32::from(stream.response.status());
    // SAFETY: the function of a loaded module, as the interface says.
    let answer = instance
        .enter(stream, |handle, own| unsafe { notify(handle, own, status, Buffer::of(details.as_bytes()), false) });
    answer == 0
}

/// What comes of a head whose hook did more than answer; `None` when its answer says.
#[cold]
#[inline(never)]
fn head_acted(instance: &Instance, side: Side, stream: &mut Stream<'_>) -> Option<Action> {
    if let Some(reply) = instance.take_reply(stream) {
        return Some(Action::Respond(reply));
    }
    if let Some(answer) = instance.begins_anew() {
        return Some(Action::Anew(answer));
    }
    instance.waits_for_reply().then(|| {
        instance.course(side).at_head.set(true);
        stop(instance, side, stream)
    })
}

impl Instance {
    /// The module had the request begin anew: what logs are to say of this one.
    fn begins_anew(&self) -> Option<Option<Box<ResponseHead>>> {
        self.may_begin_anew.set(false);
        self.rare.borrow_mut().as_mut()?.anew.take()
    }

    /// What the module answered, if it did.
    #[inline]
    pub(crate) fn take_reply(&self, stream: &mut Stream<'_>) -> Option<Box<LocalReply>> {
        if !self.acted.get() || self.waits_for_reply() {
            return None;
        }
        let reply = match self.reply.borrow_mut().take() {
            None if !self.cut_off.get() => return None,
            // An answer in pieces that began is cut off behind what there is of it; where answers are given whole, it is none.
            Some(reply) if !self.cut_off.get() || self.has_pieces() && !self.answers_whole.get() => reply,
            _ => Box::default(),
        };
        Some(self.give_reply(reply, stream))
    }

    /// The module gives an answer in pieces, of which not all is here, in a place where answers are given whole.
    #[inline]
    fn waits_for_reply(&self) -> bool {
        self.answers_whole.get() && self.replied.get() && !self.cut_off.get() && self.gathers_reply()
    }

    #[cold]
    fn gathers_reply(&self) -> bool {
        let rare = self.rare.borrow();
        rare.as_ref().and_then(|rare| rare.pieces.as_ref()).is_some_and(|pieces| !pieces.ended)
    }

    #[cold]
    #[inline(never)]
    fn give_reply(&self, mut reply: Box<LocalReply>, stream: &mut Stream<'_>) -> Box<LocalReply> {
        let in_pieces = self.has_pieces() && !self.answers_whole.get();
        if let Some(pieces) = self.rare.borrow_mut().as_mut().filter(|_| !in_pieces).and_then(|rare| rare.pieces.take())
        {
            reply.body = pieces.body.into();
        }
        // As in Envoy, an answer in pieces is no local reply.
        let mut reply = if in_pieces { reply } else { self.told_of(reply, stream) };
        if let Some(word) = as_word(&reply.details) {
            reply.details = word.into();
        }
        stream.info.streams_reply = in_pieces;
        self.request.goes();
        self.response.goes();
        reply
    }

    /// Tells the module of an answer that is given in its own name; what is answered then.
    fn told_of(&self, reply: Box<LocalReply>, stream: &mut Stream<'_>) -> Box<LocalReply> {
        let Some(notify) = self.config().entries.local_reply.filter(|_| reply.status != 0) else { return reply };
        let (status, details) = (u32::from(reply.status), Buffer::of(reply.details.as_bytes()));
        // SAFETY: the function of a loaded module, as the interface says; the details outlive the call.
        let answer = self.enter(stream, |handle, own| unsafe { notify(handle, own, status, details, false) });
        if answer != 0 || self.cut_off.get() { Box::default() } else { reply }
    }
}

/// Details as logs have them, where they are not so already.
pub(crate) fn as_word(details: &str) -> Option<String> {
    let is_space = |letter: char| letter.is_ascii_whitespace() || letter == '\x0b';
    details.contains(is_space).then(|| details.replace(is_space, "_"))
}

/// The message waits for the module.
fn stop(instance: &Instance, side: Side, stream: &Stream<'_>) -> Action {
    let course = instance.course(side);
    course.stopped.set(true);
    course.freed.set(false);
    course.wait(stream.resumer);
    Action::Pause
}

/// What was kept goes on in front of what is in hand.
fn put_kept(instance: &Instance, side: Side, stream: &mut Stream<'_>) {
    let mut kept = instance.course(side).kept.borrow_mut();
    if kept.is_empty() {
        return;
    }
    let held = held(side, stream);
    kept.extend_from_slice(held.bytes());
    held.replace(&kept);
    kept.clear();
}

/// What goes on of an answer that the module gives in pieces.
#[cold]
fn give_piece(instance: &Instance, stream: &mut Stream<'_>) -> Flow {
    instance.response.wait(stream.resumer);
    let mut rare = instance.rare.borrow_mut();
    let Some(pieces) = rare.as_mut().and_then(|rare| rare.pieces.as_mut()) else { return Flow::Release };
    let relieved = std::mem::take(&mut pieces.told);
    let mut parts = false;
    if !pieces.body.is_empty() {
        stream.response_body.replace(&pieces.body);
        pieces.body.clear();
    }
    let flow = if pieces.ended && !instance.cut_off.get() {
        for (name, value) in pieces.trailers.drain(..) {
            // One that is not well-formed is left out.
            let _ = stream.response_trailers.append_name(&name, &value);
        }
        instance.response.goes();
        Flow::Finish
    } else if !stream.response_body.bytes().is_empty() {
        Flow::Piece
    } else if !instance.response.head_gone.replace(true) {
        Flow::Head
    } else if instance.cut_off.get() {
        // What came before leaves first.
        parts = !std::mem::replace(&mut pieces.is_parting, true);
        let details = pieces.broken_off_as.clone();
        if parts {
            Flow::Wait
        } else {
            Flow::Respond(Box::new(LocalReply { status: 0, details, ..LocalReply::default() }))
        }
    } else {
        Flow::Wait
    };
    drop(rare);
    if parts {
        instance.wake_later();
    }
    if relieved {
        if instance.config().entries.below_watermark.is_some() {
            instance.link().inbox.borrow_mut().push_back(Event::Congested(false));
        }
        instance.relieved();
        deliver::with_messages(instance, stream);
    }
    flow
}

fn cut_off() -> Action {
    Action::Respond(Box::default())
}

fn too_large(side: Side) -> LocalReply {
    let (status, body, details) = match side {
        Side::Request => (413, "Payload Too Large", "request_payload_too_large"),
        Side::Response => (500, "Internal Server Error", "response_payload_too_large"),
    };
    LocalReply { status, body: body.as_bytes().into(), details: details.into(), ..LocalReply::default() }
}

pub(crate) fn held<'b>(side: Side, stream: &'b mut Stream<'_>) -> &'b mut Body {
    match side {
        Side::Request => stream.request_body,
        Side::Response => stream.response_body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_one_word() {
        assert_eq!(as_word("a b\t\r\nc\x0bd\x0c").as_deref(), Some("a_b___c_d_"));
        assert_eq!((as_word("plain"), as_word("")), (None, None));
    }
}
