//! One stream, as a module sees it: what the proxy's functions find behind the pointer that a module holds.
//!
//! A module calls these functions from within its hooks, so everything here is shared and changes in place. The messages
//! are there while a hook runs and at no other time: a function that needs them answers that there are none.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{
    Answer, BufferLimit, CallFailure, CallHandle, CallStream, Closing, Ended, Heard, LocalReply, Stream, StreamInfo,
};
use postrider_http::ResponseHead;
use postrider_model::Metadata;

use crate::abi::{Buffer, Own, StreamRef};
use crate::callbacks::options::Kept;
use crate::callbacks::spans::Lent;
use crate::config::Config;
use crate::course::Course;
use crate::deliver;
use crate::on_worker::OnWorker;

/// Which message a hook is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

/// A stream's state in the proxy. Its address is the module's handle, so it never moves.
pub(crate) struct Instance {
    pub(crate) place: Rc<OnWorker>,
    /// The module's state for the stream; null when it could not make one.
    own: Cell<Own>,
    /// The messages, while a hook runs.
    stream: Cell<*mut Stream<'static>>,
    /// What is known of the stream, while a hook or the last call runs.
    info: Cell<*const StreamInfo>,
    /// What is left of the messages, while the last call runs.
    closing: Cell<*mut Closing<'static>>,
    pub(crate) request: Course,
    pub(crate) response: Course,
    /// An answer that the module gave and that was not taken up yet.
    pub(crate) reply: RefCell<Option<Box<LocalReply>>>,
    /// The module answered: it does not see the response.
    pub(crate) replied: Cell<bool>,
    /// An answer takes the place of one that came, or goes where answers are given whole: one in pieces waits for its end.
    pub(crate) answers_whole: Cell<bool>,
    /// The stream is to be cut off.
    pub(crate) cut_off: Cell<bool>,
    /// The module did one of these since the stream began: it answered, cut the stream off, or had the request begin anew.
    pub(crate) acted: Cell<bool>,
    /// The request may begin anew from the hook that runs.
    pub(crate) may_begin_anew: Cell<bool>,
    /// Texts that were made for the module, until its next hook.
    texts: RefCell<Vec<Box<[u8]>>>,
    /// What few streams have.
    pub(crate) rare: RefCell<Option<Box<Rare>>>,
}

/// What a stream has that makes calls or is reached from other threads.
#[derive(Default)]
pub(crate) struct Rare {
    pub(crate) link: Option<Rc<Link>>,
    pub(crate) calls: Vec<(u64, CallHandle)>,
    /// Those in pieces.
    pub(crate) opened: Vec<Opened>,
    pub(crate) last_call: u64,
    /// Metadata of the cluster, the host and its locality that the module was lent.
    metadata: [Option<Arc<Metadata>>; 3],
    /// Those of sockets that the module set.
    pub(crate) options: Vec<Kept>,
    /// What the module set of its own on the upstream side, where nobody else's is meant.
    pub(crate) buffer_limit: Option<u64>,
    /// The stream's span, as it was lent to the module.
    pub(crate) span: Option<Box<Lent>>,
    /// The answer that is being given in pieces.
    pub(crate) pieces: Option<Pieces>,
    /// The module wants the request to begin anew, and logs to say that it was answered so.
    pub(crate) anew: Option<Option<Box<ResponseHead>>>,
}

/// A call in pieces.
pub(crate) struct Opened {
    pub(crate) id: u64,
    pub(crate) stream: CallStream,
    /// The module was told the head of the answer.
    pub(crate) is_answered: bool,
}

/// What is there of an answer in pieces and did not go yet.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) ended: bool,
    /// The module was told that much waits.
    pub(crate) told: bool,
    /// It is to be cut off when what there is of it had its chance to leave.
    pub(crate) is_parting: bool,
    /// What logs say of one that was cut off by another answer.
    pub(crate) broken_off_as: Cow<'static, str>,
}

/// How others on this worker reach a stream: it outlives the stream.
pub(crate) struct Link {
    /// Null once the stream is over.
    instance: Cell<*const Instance>,
    pub(crate) inbox: RefCell<VecDeque<Event>>,
}

/// What a module is told outside the course of its messages.
pub(crate) enum Event {
    Scheduled(u64),
    Call {
        id: u64,
        outcome: Box<Result<Answer, CallFailure>>,
    },
    /// Something may have come of a call in pieces.
    Stirred {
        id: u64,
    },
    /// It came.
    Came {
        id: u64,
        heard: Heard,
        /// Behind a head of the answer.
        is_answered: bool,
    },
    Reset {
        id: u64,
    },
    /// Much of the module's answer waits to be sent, or no longer does.
    Congested(bool),
}

impl Link {
    fn next(&self) -> Option<Event> {
        self.inbox.borrow_mut().pop_front()
    }

    /// On the stream's worker: tells the module, now or as soon as its messages can be had.
    pub(crate) fn tell(&self, event: Event) {
        if self.instance.get().is_null() {
            return;
        }
        self.inbox.borrow_mut().push_back(event);
        self.deliver();
    }

    /// The same of a call in pieces, of which something may have come.
    pub(crate) fn stir(&self, id: u64) {
        self.push_stirred(id);
        self.deliver();
    }

    fn push_stirred(&self, id: u64) {
        let mut inbox = self.inbox.borrow_mut();
        if !inbox.iter().any(|event| matches!(event, Event::Stirred { id: known } if *known == id)) {
            inbox.push_back(Event::Stirred { id });
        }
    }

    /// Has the module told what waits for it.
    pub(crate) fn deliver(&self) {
        // SAFETY: the instance empties the pointer before it goes, on this thread.
        let Some(instance) = (unsafe { self.instance.get().as_ref() }) else { return };
        if !instance.is_in_hook() && !instance.wake() {
            deliver::without_messages(instance);
        }
    }
}

impl Instance {
    /// Makes the module's state for a stream.
    pub(crate) fn new(place: &Rc<OnWorker>, stream: &mut Stream<'_>) -> Box<Instance> {
        let mut made = Box::<Instance>::new_uninit();
        // In place: it is large.
        made.write(Instance {
            place: place.clone(),
            own: Cell::new(ptr::null()),
            stream: Cell::new(ptr::null_mut()),
            info: Cell::new(ptr::null()),
            closing: Cell::new(ptr::null_mut()),
            request: Course::default(),
            response: Course::default(),
            reply: RefCell::new(None),
            replied: Cell::new(false),
            answers_whole: Cell::new(place.is_upstream),
            cut_off: Cell::new(false),
            acted: Cell::new(false),
            may_begin_anew: Cell::new(false),
            texts: RefCell::default(),
            rare: RefCell::default(),
        });
        // SAFETY: it was written just now.
        let instance = unsafe { made.assume_init() };
        let config = &place.config;
        if let Some(new) = config.entries.new {
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            let own = instance.enter(stream, |handle, _| unsafe { new(config.own(), handle) });
            instance.own.set(own);
        }
        instance
    }

    pub(crate) fn own(&self) -> Own {
        self.own.get()
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.place.config
    }

    pub(crate) fn course(&self, side: Side) -> &Course {
        match side {
            Side::Request => &self.request,
            Side::Response => &self.response,
        }
    }

    /// Calls into the module with the messages at hand.
    #[inline]
    pub(crate) fn enter<T>(&self, stream: &mut Stream<'_>, hook: impl FnOnce(StreamRef, Own) -> T) -> T {
        self.forget_texts();
        self.info.set(ptr::from_ref(&*stream.info));
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.stream.set(ptr::from_mut(stream).cast());
        let answer = hook(self.handle(), self.own.get());
        self.stream.set(ptr::null_mut());
        self.info.set(ptr::null());
        answer
    }

    /// Calls into the module where there are no messages.
    pub(crate) fn enter_without<T>(&self, info: Option<&StreamInfo>, hook: impl FnOnce(StreamRef, Own) -> T) -> T {
        self.forget_texts();
        self.info.set(info.map_or(ptr::null(), ptr::from_ref));
        let answer = hook(self.handle(), self.own.get());
        self.info.set(ptr::null());
        answer
    }

    /// The last call into the module, which may look at the messages and note something.
    pub(crate) fn enter_last(&self, closing: &mut Closing<'_>, hook: impl FnOnce(StreamRef, Own)) {
        self.forget_texts();
        self.info.set(ptr::from_ref(&*closing.info));
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.closing.set(ptr::from_mut(closing).cast());
        hook(self.handle(), self.own.get());
        self.closing.set(ptr::null_mut());
        self.info.set(ptr::null());
    }

    /// What is left of the messages; `None` but in the last call.
    pub(crate) fn ended(&self) -> Option<Ended<'_>> {
        // SAFETY: set for the time of that call only, in which what it points to is there; nothing keeps the answer beyond one
        // function.
        unsafe { self.closing.get().as_ref() }.map(Closing::as_ended)
    }

    fn handle(&self) -> StreamRef {
        ptr::from_ref(self).cast_mut().cast()
    }

    fn is_in_hook(&self) -> bool {
        !self.stream.get().is_null()
    }

    #[inline]
    fn forget_texts(&self) {
        let mut texts = self.texts.borrow_mut();
        if !texts.is_empty() {
            texts.clear();
        }
    }

    /// A text for the module that lies nowhere else.
    pub(crate) fn lend(&self, text: impl Into<Vec<u8>>) -> Buffer {
        let text = text.into().into_boxed_slice();
        let lent = Buffer::of(&text);
        self.texts.borrow_mut().push(text);
        lent
    }

    /// Keeps metadata that is lent to the module: of one place, until there is another one.
    pub(crate) fn keep_metadata(&self, place: usize, found: Arc<Metadata>) -> Option<*const Metadata> {
        let mut rare = self.rare.borrow_mut();
        let kept = rare.get_or_insert_default().metadata.get_mut(place)?;
        Some(Arc::as_ptr(kept.insert(found)))
    }

    /// What is known of the stream; `None` where nothing can be.
    pub(crate) fn info(&self) -> Option<&StreamInfo> {
        // SAFETY: set for the time of a hook only, in which the borrow behind it is this instance's to use; nothing keeps
        // the answer beyond one function.
        unsafe { self.info.get().as_ref() }
    }

    /// The messages; `None` outside hooks.
    ///
    /// # Safety
    /// The answer of an earlier call is no longer used.
    #[allow(clippy::mut_from_ref, reason = "the stream is not part of the instance: it is lent for the time of a hook")]
    pub(crate) unsafe fn stream(&self) -> Option<&mut Stream<'static>> {
        // SAFETY: set for the time of a hook only, which holds the one borrow of the stream and does not use it meanwhile.
        unsafe { self.stream.get().as_mut() }
    }

    /// What is known of the stream, to note more; `None` outside hooks and the last call.
    ///
    /// # Safety
    /// As for [`Instance::stream`].
    #[allow(clippy::mut_from_ref, reason = "as above")]
    pub(crate) unsafe fn notes(&self) -> Option<&mut StreamInfo> {
        // SAFETY: as promised; the last call holds the one borrow of what it is lent, too.
        unsafe {
            match self.stream() {
                Some(stream) => Some(&mut *stream.info),
                None => self.closing.get().as_mut().map(|closing| &mut *closing.info),
            }
        }
    }

    /// What a filter last said of how much may be held.
    pub(crate) fn buffer_limit(&self) -> BufferLimit {
        match self.place.is_upstream {
            true => self.own_limit(),
            false => self.info().map(|info| info.buffer_limit).unwrap_or_default(),
        }
    }

    /// The same of one on the upstream side.
    pub(crate) fn own_limit(&self) -> BufferLimit {
        let own = self.rare.borrow().as_ref().and_then(|rare| rare.buffer_limit);
        own.map_or(BufferLimit::OfConnection, BufferLimit::Both)
    }

    /// How others reach this stream.
    pub(crate) fn link(&self) -> Rc<Link> {
        let mut rare = self.rare.borrow_mut();
        let rare = rare.get_or_insert_default();
        let link = rare.link.get_or_insert_with(|| {
            Rc::new(Link { instance: Cell::new(ptr::from_ref(self)), inbox: RefCell::default() })
        });
        link.clone()
    }

    /// The next thing that the module is to be told.
    pub(crate) fn next_event(&self) -> Option<Event> {
        let link = self.rare.borrow().as_ref()?.link.clone()?;
        loop {
            let event = link.next()?;
            let Event::Stirred { id } = event else { return Some(event) };
            if let Some((heard, is_answered)) = self.hear(id) {
                // There may be more of it.
                link.inbox.borrow_mut().push_front(Event::Stirred { id });
                return Some(Event::Came { id, heard, is_answered });
            }
        }
    }

    /// The next of a call in pieces, and whether a head came before. While much of the module's own answer waits for the
    /// client, everything does: what it makes of one that comes faster would have to be kept.
    fn hear(&self, id: u64) -> Option<(Heard, bool)> {
        let mut rare = self.rare.borrow_mut();
        let rare = rare.as_mut()?;
        if rare.pieces.as_ref().is_some_and(|pieces| pieces.told && !pieces.ended) {
            return None;
        }
        let at = rare.opened.iter().position(|opened| opened.id == id)?;
        let opened = rare.opened.get_mut(at)?;
        let heard = opened.stream.receive()?;
        let was_answered = opened.is_answered;
        opened.is_answered |= matches!(heard, Heard::Head(..));
        if matches!(heard, Heard::Ended(_)) {
            drop(rare.opened.swap_remove(at));
        }
        Some((heard, was_answered))
    }

    /// The client has room again for the module's own answer: what waited for that is heard now.
    #[cold]
    pub(crate) fn relieved(&self) {
        let rare = self.rare.borrow();
        let Some(rare) = rare.as_ref() else { return };
        let Some(link) = &rare.link else { return };
        for opened in &rare.opened {
            link.push_stirred(opened.id);
        }
    }

    /// Much of what the module sends to clusters waits there.
    pub(crate) fn sends_much(&self) -> bool {
        let rare = self.rare.borrow();
        rare.as_ref().is_some_and(|rare| rare.opened.iter().any(|opened| opened.stream.sends_much()))
    }

    /// The module gives an answer in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        self.rare.borrow().as_ref().is_some_and(|rare| rare.pieces.is_some())
    }

    /// Tells the module what waits for it, and wakes its messages, when what runs now on this worker has come to rest.
    pub(crate) fn wake_later(&self) {
        let link = self.link();
        self.place.host.after(Duration::ZERO, Box::new(move || link.deliver())).detach();
    }

    /// Wakes a message that waits for the module; `false` when none does.
    pub(crate) fn wake(&self) -> bool {
        self.request.wake() || self.response.wake()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(rare) = self.rare.get_mut()
            && let Some(link) = &rare.link
        {
            link.instance.set(ptr::null());
            link.inbox.borrow_mut().clear();
        }
        let own = self.own.get();
        if let Some(destroy) = self.place.config.entries.destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made for this stream.
            unsafe { destroy(own) };
        }
    }
}
