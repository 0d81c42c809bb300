//! The way of one message through the filters: whose turn it is, and what waits where.
//!
//! ```text
//!            place 0        1        2        3 = through
//! head      ────────>──────────> (buffering)
//! body      ────────>  in hand ──────>              pieces never overtake the head
//! trailers                                          and trailers never the body
//! ```
//!
//! Places are counted in the order of passing: for a response, place 0 is the last filter of the chain. Nothing here
//! calls a filter: [`Passage::next`] says which hook is due, [`Passage::settle`] takes what it answered.

use std::task::{Poll, Waker};

use postrider_filter_api::{Action, Body, Flow, Hooks, Resumer};
use postrider_http::{Fields, content_length};

use super::taken::{Taken, Turn};
use crate::chain::Filters;

/// What a passage keeps of a large body's memory for the next message.
const KEPT_CAPACITY: usize = 32 * 1024;

/// Filters beyond this many are asked to the end although they are done.
pub(super) const MAX_DONE: usize = u64::BITS as usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Head,
    Body,
    Trailers,
}

/// What is to be done about a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask the filter with this index, and settle what it answers.
    Call {
        index: usize,
        hook: Hook,
        /// The hook answered with a pause, which is over.
        resumed: bool,
        /// Nothing of the message follows.
        end: bool,
    },
    /// Ask the filter with this index, which took the message over, what goes on, and settle that.
    Flow {
        index: usize,
    },
    Stand(Standing),
    /// More is held than may be.
    TooLarge,
}

/// Where a message has come to when no hook is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// A filter holds it until it is resumed.
    Paused,
    /// More of its body is wanted.
    Wants,
    /// What is in hand passed all filters.
    Piece,
    /// All of it passed.
    Finished,
}

#[derive(Debug, Default)]
pub(super) struct Passage {
    /// The bytes in hand, as filters see them.
    pub(super) held: Body,
    /// The bytes in hand while a hook is called that must not see them.
    aside: Body,
    is_aside: bool,
    pub(super) resumer: Resumer,
    /// How many filters the head passed.
    head: usize,
    /// The filter at the head's place keeps it while more of the body is read.
    buffering: bool,
    /// There is a piece in hand, be it empty; and it is the last with nothing behind it.
    piece: Option<bool>,
    /// How many filters it passed.
    body: usize,
    /// Trailers follow, and passed so many filters.
    trailers: Option<usize>,
    had_trailers: bool,
    paused: Option<Hook>,
    /// Filters that took the message over, in the order of passing.
    taken: Vec<Taken>,
    /// What filters hold back of the body, each in front of its place.
    kept: Vec<(usize, Body)>,
    /// What filters held back of a piece whose beginning is in hand, the one farthest along last.
    rests: Vec<Rest>,
    /// By index: those that want nothing more of this message.
    done: u64,
    /// Everything was read.
    ended: bool,
    /// No body can follow this head: whatever a filter puts in is dropped.
    bodiless: bool,
    /// Some of a body was in hand.
    begun: bool,
    changed: bool,
    /// Pieces of the body go this way: see [`super::transfer::Transfer::Filtered`].
    pub(super) open: bool,
    /// A message began.
    is_used: bool,
}

/// The end of a piece, and the place of the filter that is asked about it when the beginning was delivered.
#[derive(Debug)]
struct Rest {
    bytes: Body,
    end: bool,
    place: usize,
}

impl Side {
    #[inline]
    pub(super) fn index(self, place: usize, count: usize) -> usize {
        match self {
            Side::Request => place,
            Side::Response => count.saturating_sub(place + 1),
        }
    }
}

impl Passage {
    /// How much of the message is here, with filters or between them.
    #[cold]
    pub(super) fn holds(&self) -> usize {
        let kept = self.kept.iter().map(|(_, body)| body).chain(self.rests.iter().map(|rest| &rest.bytes));
        kept.chain([&self.held, &self.aside]).map(|body| body.bytes().len()).sum()
    }

    /// A message begins. `ended`: nothing follows its head. `bodiless`: nothing ever can.
    pub(super) fn begin(&mut self, ended: bool, bodiless: bool) {
        self.ended = ended;
        self.bodiless = bodiless;
        self.is_used = true;
    }

    /// A message begins whose head was shown to so many filters already; those in `done` want nothing more of it.
    pub(super) fn begin_at(&mut self, head: usize, done: u64, ended: bool, bodiless: bool) {
        self.begin(ended, bodiless);
        self.head = head;
        self.done = done;
    }

    /// Another message takes this one's place, with all of its body. Filters that saw the old head do not see it.
    pub(super) fn replace(&mut self, body: &[u8], bodiless: bool) {
        if self.paused == Some(Hook::Head) || self.buffering || self.is_head_taken() {
            self.head += 1;
        }
        self.paused = None;
        self.buffering = false;
        self.taken.clear();
        self.kept.clear();
        self.rests.clear();
        self.trailers = None;
        self.had_trailers = false;
        self.open = false;
        self.begin(true, bodiless);
        self.held.clear();
        self.piece = None;
        self.begun = false;
        if !body.is_empty() && !bodiless {
            self.held.push(body);
            self.put(true, self.head);
        }
    }

    /// What was just read is in `held`.
    pub(super) fn feed(&mut self, ended: bool, trailers: bool) {
        if ended {
            self.ended = true;
            self.had_trailers = trailers;
            self.trailers = trailers.then_some(0);
        }
        let end = ended && !trailers;
        if end || !self.held.bytes().is_empty() {
            self.put(end, 0);
        }
    }

    /// The hook that was just called, with nothing behind it, put trailers behind the body.
    pub(super) fn add_trailers(&mut self, hook: Hook) {
        let place = match hook {
            Hook::Head => self.head,
            Hook::Body => self.body,
            Hook::Trailers => return,
        };
        // Of a head without a body there is nothing that trailers could follow.
        if self.ended && !self.had_trailers && self.piece == Some(true) {
            self.piece = Some(false);
            self.had_trailers = true;
            self.trailers = Some(place + 1);
        }
    }

    fn put(&mut self, end: bool, place: usize) {
        self.begun = true;
        self.piece = Some(end);
        self.body = place;
    }

    /// What passed all filters was sent on.
    pub(super) fn delivered(&mut self) {
        self.held.clear();
        self.piece = None;
    }

    /// The hook that is due. `waker` is woken when a pause ends; without one, no pause is looked at.
    pub(super) fn next(&mut self, side: Side, filters: &Filters, limit: usize, waker: Option<&Waker>) -> Next {
        let count = filters.all.len();
        loop {
            if self.piece.is_none()
                && let Some(rest) = self.rests.pop()
            {
                let index = side.index(rest.place, count);
                self.held = rest.bytes;
                self.put(rest.end, rest.place);
                return Next::Call { index, hook: Hook::Body, resumed: true, end: false };
            }
            if let Some(hook) = self.paused {
                if waker.is_none_or(|waker| self.resumer.poll(waker) == Poll::Pending) {
                    return Next::Stand(Standing::Paused);
                }
                self.paused = None;
                let place = self.place(hook);
                return Next::Call { index: side.index(place, count), hook, resumed: true, end: false };
            }
            let hook = if self.head < count && !self.buffering && !self.is_head_taken() {
                Hook::Head
            } else if self.piece.is_some() {
                if self.body >= count {
                    return Next::Stand(Standing::Piece);
                }
                Hook::Body
            } else if let Some(place) = self.trailers {
                if place >= count {
                    self.trailers = None;
                    continue;
                }
                Hook::Trailers
            } else if !self.taken.is_empty() {
                return self.next_of_taken(side, count, waker);
            } else {
                return Next::Stand(if self.ended { Standing::Finished } else { Standing::Wants });
            };
            let index = side.index(self.place(hook), count);
            if hook == Hook::Body && !self.join(limit) {
                return Next::TooLarge;
            }
            if hook == Hook::Trailers {
                self.take_kept();
            }
            if self.wants(side, filters, index, hook) {
                let end = match hook {
                    Hook::Head => self.is_empty(),
                    Hook::Body => self.piece == Some(true),
                    Hook::Trailers => true,
                };
                return Next::Call { index, hook, resumed: false, end };
            }
            // A filter may keep the head without looking at each piece.
            let keeps = hook == Hook::Body && self.buffering && self.body == self.head;
            if !self.settle(index, hook, if keeps { &Action::Buffer } else { &Action::Continue }, limit) {
                return Next::TooLarge;
            }
        }
    }

    /// The first `count` bytes of the piece go on; `false` when that is all or nothing of it.
    fn divide(&mut self, count: usize) -> bool {
        if count == 0 || count >= self.held.bytes().len() {
            return false;
        }
        let Some(end) = self.piece.replace(false) else { return false };
        self.changed |= self.held.is_changed();
        let bytes = self.held.split_off(count);
        self.rests.push(Rest { bytes, end, place: self.body });
        self.release(self.body);
        self.body += 1;
        true
    }

    /// Takes a hook's answer; `false` when more is held than may be.
    pub(super) fn settle(&mut self, index: usize, hook: Hook, action: &Action, limit: usize) -> bool {
        match action {
            Action::Part(count) if hook == Hook::Body && self.divide(*count) => return true,
            Action::Part(count) if hook == Hook::Body && *count > 0 => {}
            Action::Pause | Action::Part(_) => {
                self.paused = Some(hook);
                return true;
            }
            Action::Respond(_) => {
                // The filter saw this head: it does not see the one that takes its place.
                self.head += usize::from(hook == Hook::Head);
                return true;
            }
            Action::Take if hook == Hook::Head && !self.is_empty() => {
                self.taken.push(Taken::new(self.head));
                return true;
            }
            _ if !self.taken.is_empty() && self.take(hook) => return true,
            Action::Done if index < MAX_DONE => self.done |= 1 << index,
            _ => {}
        }
        let keep = matches!(action, Action::Buffer);
        match hook {
            Hook::Head if keep && !self.is_empty() => self.buffering = true,
            Hook::Head => self.head += 1,
            Hook::Body if keep && self.piece == Some(false) => {
                self.changed |= self.held.is_changed();
                if self.held.bytes().len() > limit {
                    return false;
                }
                self.kept.push((self.body, std::mem::take(&mut self.held)));
                self.piece = None;
            }
            Hook::Body => {
                self.changed |= self.held.is_changed();
                self.release(self.body);
                self.body += 1;
            }
            Hook::Trailers => {
                let place = self.trailers.unwrap_or_default();
                self.changed |= self.held.is_changed();
                self.release(place);
                self.trailers = Some(place + 1);
                if !self.held.bytes().is_empty() {
                    self.put(false, place + 1);
                }
            }
        }
        true
    }

    /// A head that waited at `place` for its body goes on.
    fn release(&mut self, place: usize) {
        if self.buffering && self.head == place {
            self.buffering = false;
            self.head += 1;
            if self.piece == Some(true) && self.held.bytes().is_empty() {
                // Nothing is left of the body: whoever sees the head next is told so.
                self.piece = None;
            }
        }
    }

    /// Puts what is kept at the piece's place in front of the piece; `false` when that is too much.
    fn join(&mut self, limit: usize) -> bool {
        let place = self.body;
        let Some(at) = self.kept.iter().position(|(kept, _)| *kept == place) else { return true };
        let (_, mut kept) = self.kept.swap_remove(at);
        kept.push(self.held.bytes());
        self.changed |= self.held.is_changed();
        self.held = kept;
        self.held.bytes().len() <= limit
    }

    /// A filter to which trailers come sees what it holds back.
    fn take_kept(&mut self) {
        if let Some(at) = self.kept.iter().position(|(kept, _)| Some(*kept) == self.trailers) {
            self.held = self.kept.swap_remove(at).1;
        }
    }

    /// Hides the bytes in hand from a hook that is about the head, unless its filter put them there.
    pub(super) fn hide(&mut self) {
        self.is_aside = !self.held.is_untouched() && !self.is_filled();
        if self.is_aside {
            std::mem::swap(&mut self.held, &mut self.aside);
        }
    }

    /// The hook was called. What it put in becomes the body of a message that had none.
    pub(super) fn unhide(&mut self) {
        if self.is_filled() {
            return;
        }
        let fills = self.ended && !self.begun && !self.bodiless && !self.had_trailers;
        if fills && !self.held.bytes().is_empty() {
            self.changed = true;
            self.put(true, self.head + 1);
            return;
        }
        if !self.held.is_untouched() {
            self.held.reset(KEPT_CAPACITY);
        }
        if self.is_aside {
            std::mem::swap(&mut self.held, &mut self.aside);
        }
    }

    /// The filter at the head's place gave a body to a message that had none: no other piece is in front of the head.
    fn is_filled(&self) -> bool {
        self.piece.is_some() && self.body > self.head
    }

    /// Nothing follows the head.
    fn is_empty(&self) -> bool {
        self.ended && self.piece.is_none() && self.trailers.is_none() && self.taken.is_empty()
    }

    fn place(&self, hook: Hook) -> usize {
        match hook {
            Hook::Head => self.head,
            Hook::Body => self.body,
            Hook::Trailers => self.trailers.unwrap_or_default(),
        }
    }

    fn wants(&self, side: Side, filters: &Filters, index: usize, hook: Hook) -> bool {
        let is_done = index < MAX_DONE && self.done & (1 << index) != 0;
        !is_done && filters.all.get(index).is_some_and(|placed| wanted(placed.hooks, side, hook))
    }

    /// Some filter wants this hook and is not done.
    pub(super) fn is_wanted(&self, side: Side, filters: &Filters, hook: Hook) -> bool {
        wanted(filters.hooks, side, hook) && (0..filters.all.len()).any(|at| self.wants(side, filters, at, hook))
    }

    /// Some filter may yet change the body.
    pub(super) fn is_changeable(&self, side: Side, filters: &Filters) -> bool {
        let changes = |at: usize| filters.all.get(at).is_some_and(|placed| !placed.hooks.keeps_bodies);
        (0..filters.all.len()).any(|at| changes(at) && self.wants(side, filters, at, Hook::Body))
    }

    /// The length that a body has when it leaves before all of it is here, where it came with `came`: what the head says
    /// of it by now. `None`: it is not known.
    pub(super) fn declared_length(&self, side: Side, filters: &Filters, came: u64, fields: &Fields) -> Option<u64> {
        if !filters.hooks.declares_length {
            return (!self.changed && !self.is_changeable(side, filters)).then_some(came);
        }
        let is_silent = |hooks: Hooks| !hooks.keeps_bodies && !hooks.declares_length;
        let silent = (0..filters.all.len()).any(|at| {
            let hooks = filters.all.get(at).map(|placed| placed.hooks).unwrap_or_default();
            // One that is done may be who changed it.
            is_silent(hooks)
                && (self.wants(side, filters, at, Hook::Body) || self.changed && is_wanted_behind(hooks, side))
        });
        if silent { None } else { content_length(fields).ok().flatten() }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Nothing is read of the message until a filter says so.
    pub(super) fn is_waiting(&self) -> bool {
        self.paused.is_some() || self.taken.iter().any(|taken| taken.turn == Turn::Waits || taken.came.is_some())
    }

    /// No filter has the message: the next one is due.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_waiting() && !self.buffering
    }

    pub(super) fn head_is_through(&self, filters: &Filters) -> bool {
        self.head >= filters.all.len()
    }

    /// Some of a body was in hand, or the trailers behind an empty one: it cannot leave as it came without passing
    /// through here.
    pub(super) fn has_begun(&self) -> bool {
        self.begun || self.had_trailers
    }

    /// Some followed the body, whether or not they still do.
    pub(super) fn had_trailers(&self) -> bool {
        self.had_trailers
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// The length of the body when all of it passed, none of it left, and no trailers follow it: there were none, or
    /// they are `gone` and nobody else looks for them.
    pub(super) fn whole(&self, side: Side, filters: &Filters, gone: bool) -> Option<u64> {
        let count = filters.all.len();
        let awaited = |place| self.wants(side, filters, side.index(place, count), Hook::Trailers);
        let ends_here = !self.had_trailers || gone && !(self.trailers.unwrap_or(count)..count).any(awaited);
        // The last piece before trailers is not marked as the end.
        let passed = self.piece.is_none_or(|end| (end || self.had_trailers) && self.body >= count);
        let whole =
            self.ended && passed && self.kept.is_empty() && self.rests.is_empty() && self.taken.is_empty() && ends_here;
        whole.then_some(self.held.bytes().len() as u64)
    }

    /// Ready for the next message. Whoever still holds the resumer can resume nothing any more.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.resumer.renew();
        // Hooks see the bodies of both sides.
        if self.is_used || !self.held.is_untouched() {
            self.forget();
        }
    }

    #[inline(never)]
    fn forget(&mut self) {
        self.held.reset(KEPT_CAPACITY);
        self.aside.reset(KEPT_CAPACITY);
        self.head = 0;
        self.buffering = false;
        self.piece = None;
        self.body = 0;
        self.trailers = None;
        self.had_trailers = false;
        self.paused = None;
        self.taken.clear();
        self.kept.clear();
        self.rests.clear();
        self.done = 0;
        self.ended = false;
        self.bodiless = false;
        self.begun = false;
        self.changed = false;
        self.open = false;
        self.is_used = false;
    }
}

/// Filters that took the message over.
impl Passage {
    /// What asks for the flow of the filter with this index; `None` when it did not take the message over.
    pub(super) fn resumer_of_taken(&self, side: Side, index: usize, count: usize) -> Option<Resumer> {
        self.taken.iter().find(|taken| side.index(taken.place, count) == index).map(|taken| taken.resumer.clone())
    }

    /// The head waits in front of a filter that took the message over.
    fn is_head_taken(&self) -> bool {
        self.taken.last().is_some_and(|taken| taken.place == self.head)
    }

    /// What was just shown goes to the filter that it was shown to; `false` when that did not take the message over.
    fn take(&mut self, hook: Hook) -> bool {
        let place = self.place(hook);
        let Some(taken) = self.taken.iter_mut().find(|taken| taken.place == place) else { return false };
        match hook {
            Hook::Head => return false,
            Hook::Body => {
                if self.piece.take() == Some(true) {
                    taken.came = Some(Hook::Body);
                }
                self.held.clear();
            }
            Hook::Trailers => {
                taken.came = Some(Hook::Trailers);
                self.trailers = None;
            }
        }
        taken.ask();
        self.changed = true;
        true
    }

    /// Nothing is in hand: the filter nearest to the way out is asked first, and those in front of it when it wants more.
    #[cold]
    fn next_of_taken(&mut self, side: Side, count: usize, waker: Option<&Waker>) -> Next {
        let Some(waker) = waker else { return Next::Stand(Standing::Paused) };
        self.held.clear();
        for taken in self.taken.iter_mut().rev() {
            match taken.poll(waker) {
                Turn::Asked => return Next::Flow { index: side.index(taken.place, count) },
                Turn::Waits => return Next::Stand(Standing::Paused),
                Turn::Wants if taken.came.is_some() => return Next::Stand(Standing::Paused),
                Turn::Wants | Turn::Finished => {}
            }
        }
        Next::Stand(match (self.ended, self.taken.iter().all(|taken| taken.turn == Turn::Finished)) {
            (true, true) => Standing::Finished,
            (true, false) => Standing::Paused,
            (false, _) => Standing::Wants,
        })
    }

    /// Takes what the filter with this index lets go on.
    /// `trailers`: there are some.
    pub(super) fn settle_flow(&mut self, side: Side, index: usize, count: usize, flow: &Flow, trailers: bool) {
        let Some(at) = self.taken.iter().position(|taken| side.index(taken.place, count) == index) else { return };
        let Some(taken) = self.taken.get_mut(at) else { return };
        let (place, came) = (taken.place, taken.came);
        match flow {
            Flow::Want => return taken.turn = Turn::Wants,
            Flow::Wait => return taken.turn = Turn::Waits,
            Flow::Head | Flow::Piece => {}
            Flow::Finish => taken.turn = Turn::Finished,
            Flow::Release => {
                self.taken.remove(at);
                if index < MAX_DONE {
                    self.done |= 1 << index;
                }
            }
            Flow::Respond(_) => self.taken.clear(),
        }
        let held_head = self.head == place;
        if held_head {
            self.head += 1;
        }
        let empty = self.held.bytes().is_empty();
        self.changed |= !empty;
        match flow {
            Flow::Piece if !empty => self.put(false, place + 1),
            Flow::Release => {
                // The filter may have made some where none came.
                let end = came == Some(Hook::Body) && !trailers;
                if came.is_some() && !end {
                    self.trailers = Some(place + 1);
                    self.had_trailers = true;
                }
                // Whoever sees the head next is told when nothing is behind it.
                if !empty || end && !held_head {
                    self.put(end, place + 1);
                }
                self.begun |= came == Some(Hook::Body);
            }
            Flow::Finish => {
                self.had_trailers = false;
                self.put(true, place + 1);
            }
            _ => {}
        }
    }
}

/// Whether a filter looks at more of a message than its head.
#[inline]
pub(super) fn is_wanted_behind(hooks: Hooks, side: Side) -> bool {
    wanted(hooks, side, Hook::Body) || wanted(hooks, side, Hook::Trailers)
}

#[inline]
pub(super) fn wanted(hooks: Hooks, side: Side, hook: Hook) -> bool {
    match (side, hook) {
        (Side::Request, Hook::Head) => hooks.request_headers,
        (Side::Request, Hook::Body) => hooks.request_body,
        (Side::Request, Hook::Trailers) => hooks.request_trailers,
        (Side::Response, Hook::Head) => hooks.response_headers,
        (Side::Response, Hook::Body) => hooks.response_body,
        (Side::Response, Hook::Trailers) => hooks.response_trailers,
    }
}

#[cfg(test)]
mod tests;
