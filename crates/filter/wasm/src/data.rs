//! What host functions work on: everything of one virtual machine that is not its memory.

use std::marker::PhantomData;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use postrider_filter_api::{Connection, Ended, Host, RouteFacts, Stream, StreamInfo};
use postrider_filter_plugin::Metrics;
use postrider_http::{Fields, RequestHead, ResponseHead};
use wasmtime::{Memory, ResourceLimiter, TypedFunc};

use crate::contexts::{Contexts, Root};
use crate::held::Charge;
use crate::program::Program;
use crate::properties::Paths;
use crate::vm::Vm;

pub(crate) struct Data {
    pub(crate) program: Arc<Program>,
    pub(crate) memory: Option<Memory>,
    pub(crate) malloc: Option<TypedFunc<u32, u32>>,
    pub(crate) contexts: Contexts,
    /// The context that the module was entered for.
    pub(crate) current: u32,
    /// The one that it named instead; 0 for none.
    pub(crate) effective: u32,
    pub(crate) present: Present,
    /// Room for what is handed to the module.
    pub(crate) scratch: Vec<u8>,
    /// What a call of the module's brought, while the module is told about it.
    pub(crate) received: Received,
    /// What `proxy_get_status` says.
    pub(crate) status: (u32, Vec<u8>),
    /// `None` while a configuration is tried out.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) limiter: Limiter,
    /// CPU time of the thread when the call under way was first looked at.
    pub(crate) watched_from: Option<u64>,
    /// CPU time that a call may take, in nanoseconds.
    pub(crate) budget: u64,
    /// `None` while a configuration is tried out.
    pub(crate) host: Option<Rc<dyn Host>>,
    pub(crate) vm: Weak<Vm>,
    pub(crate) last_http_call: u32,
    pub(crate) last_grpc_call: u32,
    pub(crate) paths: Paths,
}

/// An answer to a call, in parts.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) head: Option<ResponseHead>,
    pub(crate) body: Vec<u8>,
    /// Behind that body.
    pub(crate) trailers: Fields,
    /// A message of a gRPC call or conversation.
    pub(crate) message: Vec<u8>,
    /// What a service says in front of its messages, and behind them.
    pub(crate) initial: Option<ResponseHead>,
    pub(crate) trailing: Fields,
    pub(crate) statistics: Option<Vec<u8>>,
}

/// The memory that a machine may have.
#[derive(Default)]
pub(crate) struct Limiter {
    pub(crate) most: usize,
    /// What it has.
    pub(crate) bytes: usize,
    /// It wanted more than it may have.
    pub(crate) refused: bool,
    /// What streams hold for the module.
    elsewhere: Arc<AtomicUsize>,
}

/// Most entries of a table: indirect calls of large modules have some ten thousand.
const MAX_TABLE: usize = 1_000_000;

impl Limiter {
    pub(crate) fn new(most: usize) -> Limiter {
        Limiter { most, ..Limiter::default() }
    }

    /// Counts so many bytes that lie elsewhere; `None` when it may not have them.
    pub(crate) fn charge(&self, bytes: usize) -> Option<Charge> {
        self.takes(self.bytes.saturating_add(bytes)).then(|| Charge::new(&self.elsewhere, bytes))
    }

    /// The same where so many of what is counted already make way.
    pub(crate) fn exchange(&self, before: usize, bytes: usize) -> Option<Charge> {
        let all = self.bytes.saturating_add(bytes).saturating_sub(before);
        self.takes(all).then(|| Charge::new(&self.elsewhere, bytes))
    }

    /// Whether that is where it counts what lies elsewhere.
    pub(crate) fn counts(&self, elsewhere: &Arc<AtomicUsize>) -> bool {
        Arc::ptr_eq(&self.elsewhere, elsewhere)
    }

    /// Whether the machine may have so many bytes beside those that lie elsewhere.
    fn takes(&self, bytes: usize) -> bool {
        bytes.saturating_add(self.elsewhere.load(Relaxed)) <= self.most
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let fits = self.takes(desired);
        if fits {
            self.bytes = desired;
        }
        self.refused |= !fits;
        Ok(fits)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= MAX_TABLE)
    }
}

impl Data {
    /// The context that a host function is about.
    pub(crate) fn target(&self) -> u32 {
        match self.effective {
            0 => self.current,
            // One that is gone is not the target any more.
            id => self.contexts.get(id).map_or(self.current, |context| context.id),
        }
    }

    /// The root context behind the target, with its number.
    pub(crate) fn root(&mut self) -> Option<(u32, &mut Root)> {
        let id = self.contexts.root_id(self.target());
        Some((id, self.contexts.root(id)?))
    }

    /// Lets `act` use the worker: `None` while a configuration is tried out.
    pub(crate) fn with_host<T>(&mut self, act: impl FnOnce(&dyn Host) -> T) -> Option<T> {
        match &self.host {
            Some(host) => Some(act(&**host)),
            None => self.present.any_stream(|stream| act(stream.host)),
        }
    }
}

/// A connection with what is held of one of its directions.
pub(crate) struct Link<'a, 'c> {
    pub(crate) connection: &'a mut Connection<'c>,
    pub(crate) data: Option<(Flow, &'a mut Vec<u8>)>,
}

impl Link<'_, '_> {
    /// What a call about this connection is about.
    pub(crate) fn at(&mut self) -> At<'_, 'static> {
        At::Link(Lent(ptr::from_mut(self).cast(), PhantomData))
    }
}

/// A [`Link`] that is lent: what is inside hides its lifetimes until `Present` hands it to closures that know nothing of them.
pub(crate) struct Lent<'a>(*mut Link<'static, 'static>, PhantomData<&'a mut ()>);

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// From the client.
    Down,
    /// From whoever serves it.
    Up,
}

/// The stream that the module was entered for, as long as it runs.
pub(crate) struct Present {
    stream: *mut Stream<'static>,
    ended: *const Ended<'static>,
    link: *mut Link<'static, 'static>,
    /// The messages are a request's.
    http: bool,
    id: u32,
}

/// What a call is about.
pub(crate) enum At<'a, 's> {
    Nowhere,
    Stream(&'a mut Stream<'s>),
    Ended(&'a Ended<'s>),
    /// A record of an access log; `false` for one about a connection.
    Record(&'a Ended<'s>, bool),
    Link(Lent<'a>),
}

impl At<'_, '_> {
    pub(crate) fn again(&mut self) -> At<'_, '_> {
        // The lifetimes inside stay what they are: only the borrow is a shorter one.
        match self {
            At::Nowhere => At::Nowhere,
            At::Stream(stream) => {
                let stream: *mut Stream<'_> = *stream;
                // SAFETY: a reborrow for as long as `self` is borrowed; the shorter lifetime inside is hidden again by
                // `Present`, which hands streams out to closures that know nothing about it.
                At::Stream(unsafe { &mut *stream.cast() })
            }
            At::Ended(ended) => At::Ended(ended),
            At::Record(ended, http) => At::Record(ended, *http),
            // For as long as `self` is borrowed, so that there is one to use it at a time.
            At::Link(Lent(link, _)) => At::Link(Lent(*link, PhantomData)),
        }
    }
}

impl Default for Present {
    fn default() -> Present {
        Present { stream: ptr::null_mut(), ended: ptr::null(), link: ptr::null_mut(), http: true, id: 0 }
    }
}

impl Present {
    /// What the context `id` is about from now on, until [`Present::clear`], which must come before `at` ends.
    pub(crate) fn set(&mut self, id: u32, at: At<'_, '_>) {
        *self = Present { id, ..Present::default() };
        match at {
            At::Nowhere => {}
            At::Stream(stream) => self.stream = ptr::from_mut(stream).cast(),
            At::Ended(ended) => self.ended = ptr::from_ref(ended).cast(),
            At::Record(ended, http) => {
                self.ended = ptr::from_ref(ended).cast();
                self.http = http;
            }
            At::Link(Lent(link, _)) => self.link = link,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Present::default();
    }

    /// Lets `act` work on the stream of that context; `None` when it is not at hand.
    pub(crate) fn stream<T>(&mut self, id: u32, act: impl FnOnce(&mut Stream<'_>) -> T) -> Option<T> {
        if id == self.id { self.any_stream(act) } else { None }
    }

    fn any_stream<T>(&mut self, act: impl FnOnce(&mut Stream<'_>) -> T) -> Option<T> {
        // SAFETY: `Vm::enter` sets the pointer from an exclusive reference that it holds for as long as the pointer is
        // set, on this thread, and uses the stream for nothing else meanwhile. This borrows the one `Present`, so no
        // second reference comes of it, and `act`, which knows nothing about the lifetime, can leave nothing in it.
        unsafe { self.stream.as_mut() }.map(act)
    }

    /// Lets `act` work on the connection of that context; `None` when it is not at hand.
    pub(crate) fn link<T>(&mut self, id: u32, act: impl FnOnce(&mut Link<'_, '_>) -> T) -> Option<T> {
        if id != self.id {
            return None;
        }
        // SAFETY: as in `any_stream`.
        unsafe { self.link.as_mut() }.map(act)
    }

    /// What is known of the stream or connection of that context.
    pub(crate) fn info<T>(&mut self, id: u32, act: impl FnOnce(&mut StreamInfo) -> T) -> Option<T> {
        if id == self.id && !self.link.is_null() {
            return self.link(id, |link| act(link.connection.info));
        }
        self.stream(id, |stream| act(stream.info))
    }

    /// The parts of the stream of that context: at hand, over, or waiting.
    pub(crate) fn parts<T>(&mut self, contexts: &mut Contexts, id: u32, act: impl FnOnce(Parts<'_>) -> T) -> Option<T> {
        if !self.has(id) {
            return Some(act(contexts.stream(id)?.kept.as_ref()?.parts()));
        }
        // SAFETY: as in `any_stream`.
        if let Some(ended) = unsafe { self.ended.as_ref() } {
            return Some(act(Parts {
                request: Some(ended.request).filter(|_| self.http),
                response: Some(ended.response).filter(|_| ended.info.status != 0),
                request_trailers: ended.request_trailers,
                response_trailers: ended.response_trailers,
                info: ended.info,
                route: ended.route,
                weighted: ended.weighted,
                server_name: None,
            }));
        }
        // SAFETY: as in `any_stream`.
        if let Some(link) = unsafe { self.link.as_mut() } {
            let none = no_fields();
            return Some(act(Parts {
                request: None,
                response: None,
                request_trailers: none,
                response_trailers: none,
                info: link.connection.info,
                route: None,
                weighted: None,
                server_name: link.connection.server_name,
            }));
        }
        self.any_stream(|stream| {
            act(Parts {
                request: Some(stream.request),
                response: Some(&*stream.response).filter(|_| stream.info.status != 0),
                request_trailers: stream.request_trailers,
                response_trailers: stream.response_trailers,
                info: stream.info,
                route: stream.route,
                weighted: stream.weighted,
                server_name: None,
            })
        })
    }

    /// Something of that context is at hand.
    pub(crate) fn has(&self, id: u32) -> bool {
        id == self.id && !(self.stream.is_null() && self.ended.is_null() && self.link.is_null())
    }

    pub(crate) fn is_ended(&self, id: u32) -> bool {
        id == self.id && !self.ended.is_null()
    }
}

/// A stream to look at.
pub(crate) struct Parts<'a> {
    /// `None` of a connection.
    pub(crate) request: Option<&'a RequestHead>,
    pub(crate) response: Option<&'a ResponseHead>,
    pub(crate) request_trailers: &'a Fields,
    pub(crate) response_trailers: &'a Fields,
    pub(crate) info: &'a StreamInfo,
    pub(crate) route: Option<&'a RouteFacts>,
    pub(crate) weighted: Option<usize>,
    /// What the client of a connection asked for.
    pub(crate) server_name: Option<&'a str>,
}

/// For what has none.
pub(crate) fn no_fields() -> &'static Fields {
    static NONE: OnceLock<Fields> = OnceLock::new();
    NONE.get_or_init(Fields::new)
}
