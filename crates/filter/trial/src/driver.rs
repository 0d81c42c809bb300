//! The pipeline's rules around one filter on one made-up stream.
//!
//! ```text
//!  head ── Continue ──> pieces one by one ── Done ──> the rest passes unseen
//!    │ └── Buffer ────> all pieces so far, with each further one
//!    ├──── Pause ─────> nothing, until `resume_side` asks what the paused hook's answer is now
//!    ├──── Take ──────> pieces one by one, and what goes on is what the filter's flow lets go on
//!    └──── Respond ───> an answer in the message's place
//! ```

use std::collections::VecDeque;
use std::rc::Rc;

use postrider_filter_api::fake::FakeStream;
use postrider_filter_api::{Action, Body, Closing, Filter, Flow, LocalReply, State};
use postrider_http::{Decimal, Fields, HeaderId};
use postrider_telemetry::Registry as Stats;

use crate::Side;
use crate::message::system_clock;

/// A filter with its state on one stream.
pub struct Driver {
    pub filter: Rc<dyn Filter>,
    pub state: State,
    pub stream: FakeStream,
    /// What the filter counts in.
    pub stats: Stats,
    /// What the filter answered, when it did.
    pub reply: Option<LocalReply>,
    /// The last piece of a body is not its end: [`Driver::show_trailers`] is to follow.
    pub trailers_follow: bool,
    passages: [Passage; 2],
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It went on.
    Passed,
    /// It waits for something, such as a call.
    Paused,
    /// It was answered: status and body.
    Answered(u16, String),
}

/// How far one message has come.
#[derive(Default)]
struct Passage {
    left: VecDeque<Event>,
    /// The body as it went on.
    passed: Vec<u8>,
    /// The filter wants nothing more of it.
    is_done: bool,
    /// What the body holds went on.
    is_gone: bool,
    /// Some of the body went on before its end was here.
    is_streamed: bool,
    /// What is left is not all that comes.
    is_endless: bool,
    /// The filter took it over.
    is_taken: bool,
}

impl Passage {
    fn is_at_end(&self) -> bool {
        self.left.is_empty() && !self.is_endless
    }
}

enum Event {
    Piece(Vec<u8>),
    /// The trailers, until the body has ended.
    Trailers(Box<Fields>),
}

impl Driver {
    pub fn around(filter: Rc<dyn Filter>, stats: Stats, mut stream: FakeStream) -> Driver {
        stream.host.clock = system_clock;
        Driver {
            filter,
            state: State::default(),
            stream,
            stats,
            reply: None,
            trailers_follow: false,
            passages: Default::default(),
        }
    }

    /// Shows a message to the filter: its head, which is the stream's, then the pieces of its body as the filter wants
    /// them, then the stream's trailers if it has some.
    pub fn show(&mut self, side: Side, pieces: Vec<Vec<u8>>) -> Outcome {
        let mut left: VecDeque<Event> = pieces.into_iter().map(Event::Piece).collect();
        if !self.trailers_follow {
            let trailers = std::mem::replace(self.trailers(side), Fields::new());
            left.extend((!trailers.is_empty()).then(|| Event::Trailers(Box::new(trailers))));
        }
        let is_endless = self.trailers_follow && !left.is_empty();
        *self.passage(side) = Passage { left, is_endless, ..Passage::default() };
        self.body(side).reset(0);
        let end = self.passage(side).is_at_end();
        let (filter, state, hooks) = (self.filter.clone(), &mut self.state, self.filter.hooks());
        let action = self.stream.with(|stream| match side {
            Side::Request if hooks.request_headers => filter.on_request_headers(state, stream, end),
            Side::Response if hooks.response_headers => filter.on_response_headers(state, stream, end),
            _ => Action::Continue,
        });
        self.go_on(side, action)
    }

    /// Ends a message with the stream's trailers.
    pub fn show_trailers(&mut self, side: Side) -> Outcome {
        self.passage(side).is_endless = false;
        let trailers = std::mem::replace(self.trailers(side), Fields::new());
        let action = self.show_next(side, Event::Trailers(Box::new(trailers)));
        self.go_on(side, action)
    }

    /// Goes on after a pause.
    pub fn resume_side(&mut self, side: Side) -> Outcome {
        if self.passage(side).is_taken {
            return self.flow(side);
        }
        let (filter, state) = (self.filter.clone(), &mut self.state);
        let action = self.stream.with(|stream| match side {
            Side::Request => filter.on_request_resumed(state, stream),
            Side::Response => filter.on_response_resumed(state, stream),
        });
        self.go_on(side, action)
    }

    /// Puts an answer of the proxy's own where the response belongs; its body.
    pub fn take_reply(&mut self, reply: &LocalReply) -> Vec<u8> {
        let head = &mut self.stream.response;
        head.clear();
        head.reply(reply.status);
        for (name, value) in &reply.headers {
            // One that no message can carry is left out.
            let _ = head.fields.append_name(name.as_bytes(), value);
        }
        let _ = head.fields.set(HeaderId::ContentLength, Decimal::new(reply.body.len() as u64).as_bytes());
        if !reply.body.is_empty() && !head.fields.has(HeaderId::ContentType) {
            let _ = head.fields.append(HeaderId::ContentType, b"text/plain");
        }
        reply.body.to_vec()
    }

    /// The body as it went on.
    pub fn passed(&self, side: Side) -> &[u8] {
        let [request, response] = &self.passages;
        match side {
            Side::Request => &request.passed,
            Side::Response => &response.passed,
        }
    }

    /// The stream is over, as the filter is told.
    pub fn finish(&mut self) {
        if self.filter.hooks().complete {
            let FakeStream { request, response, request_trailers, response_trailers, info, route, weighted, .. } =
                &mut self.stream;
            let (route, weighted) = (route.as_ref(), *weighted);
            let closing =
                &mut Closing { request, response, request_trailers, response_trailers, info, route, weighted };
            self.filter.on_closing(&mut self.state, closing);
            self.filter.on_ended(&mut self.state, &closing.as_ended());
        }
        self.state = State::default();
    }

    fn go_on(&mut self, side: Side, mut action: Action) -> Outcome {
        loop {
            match action {
                Action::Take if !self.passage(side).is_at_end() => {
                    self.passage(side).is_taken = true;
                    return self.flow(side);
                }
                // No plugin asks for another answer, or for another beginning.
                Action::Continue | Action::Take | Action::Detour(_) | Action::Anew(_) => self.pass_held(side),
                Action::Done => {
                    self.pass_held(side);
                    self.passage(side).is_done = true;
                }
                Action::Buffer => {}
                Action::Pause | Action::Part(_) => return Outcome::Paused,
                Action::Respond(reply) => return self.answered(*reply),
            }
            let Some(event) = self.passage(side).left.pop_front() else {
                self.pass_held(side);
                self.settle_length(side);
                return Outcome::Passed;
            };
            action = self.show_next(side, event);
        }
    }

    /// Asks what goes on of a message that the filter took over, and shows it more as it wants more.
    fn flow(&mut self, side: Side) -> Outcome {
        loop {
            self.body(side).clear();
            let (filter, state) = (self.filter.clone(), &mut self.state);
            let flow = self.stream.with(|stream| match side {
                Side::Request => filter.on_request_flow(state, stream),
                Side::Response => filter.on_response_flow(state, stream),
            });
            match flow {
                Flow::Want => {
                    // It wants more than there is.
                    let Some(event) = self.passage(side).left.pop_front() else { return Outcome::Paused };
                    if let Action::Respond(reply) = self.show_next(side, event) {
                        return self.answered(*reply);
                    }
                }
                Flow::Wait => return Outcome::Paused,
                Flow::Head => {}
                Flow::Piece | Flow::Release | Flow::Finish => {
                    let piece = self.body(side).bytes().to_vec();
                    let passage = self.passage(side);
                    passage.passed.extend_from_slice(&piece);
                    passage.is_streamed |= matches!(flow, Flow::Piece);
                    passage.is_taken = matches!(flow, Flow::Piece);
                    passage.is_done = !passage.is_taken;
                    passage.is_gone = passage.is_done;
                    match flow {
                        Flow::Release => return self.go_on(side, Action::Done),
                        Flow::Finish => {
                            passage.left.clear();
                            return Outcome::Passed;
                        }
                        _ => {}
                    }
                }
                Flow::Respond(reply) => return self.answered(*reply),
            }
        }
    }

    fn answered(&mut self, reply: LocalReply) -> Outcome {
        let outcome = Outcome::Answered(reply.status, String::from_utf8_lossy(&reply.body).into_owned());
        self.reply = Some(reply);
        outcome
    }

    fn show_next(&mut self, side: Side, event: Event) -> Action {
        let passage = self.passage(side);
        let end = passage.is_at_end();
        let is_done = passage.is_done;
        if !is_done && std::mem::take(&mut passage.is_gone) {
            self.body(side).clear();
        }
        let is_piece = matches!(event, Event::Piece(_));
        match event {
            Event::Piece(piece) if is_done => self.passage(side).passed.extend_from_slice(&piece),
            Event::Piece(piece) => self.body(side).push(&piece),
            Event::Trailers(trailers) => *self.trailers(side) = *trailers,
        }
        if is_done {
            return Action::Done;
        }
        let (filter, state, hooks) = (self.filter.clone(), &mut self.state, self.filter.hooks());
        self.stream.with(|stream| match (side, is_piece) {
            (Side::Request, true) if hooks.request_body => filter.on_request_body(state, stream, end),
            (Side::Request, false) if hooks.request_trailers => filter.on_request_trailers(state, stream),
            (Side::Response, true) if hooks.response_body => filter.on_response_body(state, stream, end),
            (Side::Response, false) if hooks.response_trailers => filter.on_response_trailers(state, stream),
            _ => Action::Continue,
        })
    }

    /// What is held goes on. It stays to be looked at until the next piece comes.
    fn pass_held(&mut self, side: Side) {
        if self.passage(side).is_gone {
            return;
        }
        let held = self.body(side).bytes().to_vec();
        let passage = self.passage(side);
        passage.is_gone = true;
        passage.is_streamed |= !held.is_empty() && !passage.is_at_end();
        passage.passed.extend_from_slice(&held);
    }

    /// A body that was replaced is sent with its new length, or without one when its head had gone before.
    fn settle_length(&mut self, side: Side) {
        // Who declares lengths did so when the head went on.
        if !self.body(side).is_changed() || self.filter.hooks().declares_length {
            return;
        }
        let passage = self.passage(side);
        let (streamed, length) = (passage.is_streamed, passage.passed.len() as u64);
        let fields = match side {
            Side::Request => &mut self.stream.request.fields,
            Side::Response => &mut self.stream.response.fields,
        };
        if streamed {
            fields.remove(HeaderId::ContentLength);
        } else {
            // Digits are a valid value.
            let _ = fields.set(HeaderId::ContentLength, Decimal::new(length).as_bytes());
        }
    }

    fn passage(&mut self, side: Side) -> &mut Passage {
        let [request, response] = &mut self.passages;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    fn trailers(&mut self, side: Side) -> &mut Fields {
        match side {
            Side::Request => &mut self.stream.request_trailers,
            Side::Response => &mut self.stream.response_trailers,
        }
    }

    fn body(&mut self, side: Side) -> &mut Body {
        match side {
            Side::Request => &mut self.stream.request_body,
            Side::Response => &mut self.stream.response_body,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use postrider_filter_api::{Hooks, Stream};

    use super::*;

    /// Takes requests over: keeps two pieces to itself, then waits, and lets go on something of its own and the rest.
    #[derive(Default)]
    struct Takes {
        seen: Cell<usize>,
        head_gone: Cell<bool>,
    }

    impl Filter for Takes {
        fn hooks(&self) -> Hooks {
            Hooks { request_headers: true, request_body: true, request_trailers: true, ..Hooks::default() }
        }

        fn on_request_headers(&self, _: &mut State, _: &mut Stream<'_>, _: bool) -> Action {
            Action::Take
        }

        fn on_request_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
            assert_eq!(end, stream.request_body.bytes() == b"three");
            self.seen.set(self.seen.get() + 1);
            Action::Continue
        }

        fn on_request_flow(&self, _: &mut State, stream: &mut Stream<'_>) -> Flow {
            assert!(stream.request_body.bytes().is_empty());
            match self.seen.get() {
                0 => Flow::Want,
                _ if !self.head_gone.replace(true) => Flow::Head,
                1 => Flow::Want,
                2 => Flow::Wait,
                _ => {
                    stream.request_body.put(b"own ".to_vec());
                    Flow::Release
                }
            }
        }
    }

    #[test]
    fn what_goes_on_of_a_message_that_was_taken_over_is_what_its_flow_says() {
        let filter = Rc::new(Takes::default());
        let pieces = || [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()].to_vec();
        let mut driver = Driver::around(filter.clone(), Stats::new(), FakeStream::new("POST", "/", &[]));
        assert_eq!(driver.show(Side::Request, pieces()), Outcome::Paused);
        assert_eq!((filter.seen.get(), driver.passed(Side::Request)), (2, &b""[..]));
        // Somebody resumes it: it lets its own go on, and the rest passes unseen.
        filter.seen.set(3);
        assert_eq!(driver.resume_side(Side::Request), Outcome::Passed);
        assert_eq!((filter.seen.get(), driver.passed(Side::Request)), (3, &b"own three"[..]));
    }

    #[test]
    fn a_head_with_nothing_behind_it_cannot_be_taken_over() {
        let filter = Rc::new(Takes::default());
        let mut driver = Driver::around(filter, Stats::new(), FakeStream::new("GET", "/", &[]));
        assert_eq!(driver.show(Side::Request, Vec::new()), Outcome::Passed);
    }
}
