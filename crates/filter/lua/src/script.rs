//! One plugin's part in one stream: its coroutines, what they wait for, and what they were told.

use std::cell::Cell;
use std::rc::Rc;

use postrider_filter_api::{Answer, CallFailure, CallHandle, LocalReply};
use postrider_filter_plugin::Era;

use crate::abi::{Held, Side};
use crate::machine::Machine;
use crate::view::View;
use crate::vm::Coroutine;

/// Where the outcome of a call is put for the script to find.
pub(crate) type Inbox = Rc<Cell<Option<Result<Answer, CallFailure>>>>;

#[derive(Default)]
pub(crate) struct Script {
    /// Tells streams apart in the machine; 0 before the first entry.
    pub(crate) stream: i32,
    /// The response has a head.
    pub(crate) has_response: bool,
    /// The plugin failed on this stream, and its rules say that it is not asked again.
    pub(crate) failed: bool,
    /// It wanted to send a value that no field can have.
    pub(crate) unsendable: bool,
    /// The machine keeps something for this stream that it is to forget at the end.
    pub(crate) is_kept: bool,
    /// What it had the stream hold in heads and metadata.
    pub(crate) held: Held,
    /// The request's view, when the route was looked up again since.
    pub(crate) view: Option<Rc<View>>,
    sides: [Half; 2],
    /// Boxed: most scripts have none, and each entry makes and drops one of these.
    kept: Option<Box<[Kept; 2]>>,
    /// The side whose turn it is.
    current: usize,
}

/// The script's part in one message.
#[derive(Default)]
pub(crate) struct Half {
    pub(crate) wait: Wait,
    /// When it began to wait, by the plugin's circuit.
    pub(crate) since: Era,
    /// The coroutine runs the body's function, not the head's.
    pub(crate) in_body_hook: bool,
    pub(crate) progress: Progress,
    /// Hooks on the head were skipped: the head is not there for the others.
    pub(crate) headless: bool,
}

/// What a script that waits, calls or answers has in one message.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) running: Option<Running>,
    pub(crate) reply: Option<Box<LocalReply>>,
    pub(crate) call: Option<CallHandle>,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) answer: Option<Result<Answer, CallFailure>>,
}

/// A coroutine that waits, and the machine that it belongs to.
pub(crate) struct Running {
    pub(crate) machine: Rc<Machine>,
    pub(crate) coroutine: Coroutine,
}

/// What a script's side waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Wait {
    /// Nothing more of this message.
    #[default]
    Nothing,
    /// All of the body, held.
    Body,
    /// The next piece of the body.
    Chunk,
    Trailers,
    Call,
    /// All of the body, for a hook of its own.
    BodyHook,
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The head has gone on.
    pub(crate) released: bool,
    /// Nothing follows the head.
    pub(crate) bodyless: bool,
    /// All of the body is held.
    pub(crate) complete: bool,
    /// No further piece will come.
    pub(crate) ended: bool,
    /// The body has begun to pass without being held as a whole.
    pub(crate) streamed: bool,
}

impl Script {
    /// Whether anything must be remembered until the next hook.
    #[inline]
    pub(crate) fn must_be_kept(&self) -> bool {
        self.failed
            || self.is_kept
            || self.held.is_counted()
            || self.view.is_some()
            || self.sides.iter().any(|half| half.wait != Wait::Nothing || half.headless)
    }

    pub(crate) fn half(&self, side: Side) -> &Half {
        let [request, response] = &self.sides;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    pub(crate) fn half_mut(&mut self, side: Side) -> &mut Half {
        let [request, response] = &mut self.sides;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    /// Makes it this side's turn.
    #[inline]
    pub(crate) fn turn_to(&mut self, side: Side) {
        self.current = side as usize;
        self.has_response |= side == Side::Response;
    }

    /// What is kept on one side.
    pub(crate) fn kept_mut(&mut self, side: Side) -> &mut Kept {
        let [request, response] = &mut **self.kept.get_or_insert_default();
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }

    /// What is kept on the side whose turn it is.
    pub(crate) fn kept_here(&mut self) -> &mut Kept {
        self.kept_mut(if self.current == 0 { Side::Request } else { Side::Response })
    }

    /// The answer to the last call of the side whose turn it is.
    pub(crate) fn answer(&self) -> Option<&Result<Answer, CallFailure>> {
        self.kept.as_ref()?.get(self.current)?.answer.as_ref()
    }

    /// Whether a side's head has gone on.
    pub(crate) fn is_released(&self, side: Side) -> bool {
        self.half(side).progress.released
    }

    /// The stream is over: the machine of `view`, or of the view that was seen first, keeps nothing for it any more.
    pub(crate) fn forget(&mut self, view: &View) {
        let seen = self.view.clone();
        let view = seen.as_deref().unwrap_or(view);
        if std::mem::take(&mut self.is_kept)
            && let Some(machine) = view.plugin.as_ref().and_then(|plugin| plugin.made_machine())
        {
            machine.forget(self.stream);
        }
    }

    /// Gives up whatever waits.
    pub(crate) fn abandon(&mut self) {
        for half in &mut self.sides {
            half.wait = Wait::Nothing;
        }
        for kept in self.kept.iter_mut().flat_map(|kept| kept.iter_mut()) {
            kept.give_up();
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // The filter of the route that was found last may be switched off: then nobody told it that the stream is over.
        if self.is_kept
            && let Some(view) = self.view.clone()
        {
            self.forget(&view);
        }
    }
}

impl Kept {
    /// Gives up what waits here.
    fn give_up(&mut self) {
        self.call = None;
        if let Some(Running { machine, coroutine }) = self.running.take() {
            machine.vm.discard(coroutine);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.give_up();
    }
}
