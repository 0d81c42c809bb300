//! A module's filter with its configuration, shared by the workers.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use postrider_filter_api::Hooks;
use postrider_filter_api::plugin::Facts;

use crate::abi::{Buffer, Own};
use crate::callbacks::{ConfigEvents, Live, forget};
use crate::definitions::Definitions;
use crate::entry::Entries;
use crate::library::Library;
use crate::reach::Reach;

/// A filter's configuration. Its address is the module's handle, so it never moves: it is made behind an [`Arc`].
pub(crate) struct Config {
    /// Without those that do nothing.
    pub(crate) entries: Entries,
    /// The hooks on messages that the module has, be it that they do nothing.
    has: Phases,
    pub(crate) facts: Arc<Facts>,
    pub(crate) given: Given,
    /// As the configuration has it.
    phases: Phases,
    /// As the module has it.
    wanted: OnceLock<Phases>,
    /// What the log says of an answer to a stream that the module could not make its part of.
    pub(crate) failure: &'static str,
    /// The module's own.
    own: AtomicPtr<std::ffi::c_void>,
    this: Weak<Config>,
    pub(crate) definitions: Definitions,
    pub(crate) reach: Arc<Reach>,
    last_call: AtomicU64,
    /// The module does something about a message in its hooks for that message, and nowhere else.
    pub(crate) stays_in_hooks: bool,
    /// Its requests in pieces.
    pub(crate) live: Live,
    /// Last: its code runs until everything else is gone.
    _library: Arc<Library>,
}

/// What a configuration of the proxy gives to a module's.
pub(crate) struct Given {
    /// What the names of its statistics begin with.
    pub(crate) namespace: String,
    pub(crate) secrets: Secrets,
}

/// Secrets by name, or why one cannot be had.
pub(crate) type Secrets = Vec<(String, Result<Vec<u8>, String>)>;

/// The hooks that are called although the module has others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    pub(crate) request_headers: bool,
    pub(crate) response_headers: bool,
    pub(crate) request_body: bool,
    pub(crate) response_body: bool,
    pub(crate) request_trailers: bool,
    pub(crate) response_trailers: bool,
}

impl Config {
    /// Has the module make its part.
    ///
    /// # Errors
    /// It has no filters, or refuses the configuration.
    pub(crate) fn new(
        library: Arc<Library>,
        facts: Facts,
        given: Given,
        phases: Phases,
        name: &str,
        config: &[u8],
        failure: &'static str,
    ) -> Result<Arc<Config>, String> {
        let entries = Entries::of(&library);
        let Some(make) = entries.config_new.filter(|_| entries.new.is_some() && entries.destroy.is_some()) else {
            return Err(format!("{} has no HTTP filters: it exports no function that makes them", library.source));
        };
        let made = Arc::new_cyclic(|this| Config {
            entries: Entries::busy(&library),
            has: Phases::of(&entries),
            facts: Arc::new(facts),
            given,
            phases,
            wanted: OnceLock::new(),
            failure,
            own: AtomicPtr::new(ptr::null_mut()),
            this: this.clone(),
            definitions: Definitions::default(),
            reach: Arc::default(),
            last_call: AtomicU64::new(0),
            stays_in_hooks: library.contents.stays_in_hooks,
            live: Live::default(),
            _library: library,
        });
        let handle = Arc::as_ptr(&made).cast_mut().cast();
        // SAFETY: the function of a loaded module, as the interface says; the bytes are there for the time of the call.
        let own = unsafe { make(handle, Buffer::of(name.as_bytes()), Buffer::of(config)) };
        made.definitions.close();
        made.own.store(own.cast_mut(), Ordering::Release);
        if own.is_null() {
            return Err(format!("{} refuses the configuration of its filter `{name}`", made._library.source));
        }
        if let Some(wanted) = made.entries.wanted {
            // SAFETY: as above, on what it made.
            let bits = unsafe { wanted(own) };
            // It was empty until now.
            let _ = made.wanted.set(Phases::of_bits(bits));
        }
        Ok(made)
    }

    /// See [`postrider_filter_api::Factory::uses_connection`].
    pub(crate) fn uses_connection(&self) -> bool {
        self._library.contents.uses_connection
    }

    /// The hooks on messages that are called.
    pub(crate) fn phases(&self) -> Phases {
        self.wanted.get().map_or(self.phases, |wanted| self.phases.and(*wanted))
    }

    pub(crate) fn own(&self) -> Own {
        self.own.load(Ordering::Acquire).cast_const()
    }

    pub(crate) fn weak(&self) -> Weak<Config> {
        self.this.clone()
    }

    pub(crate) fn next_call(&self) -> u64 {
        self.last_call.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl ConfigEvents for Config {
    fn on_scheduled(&self, event: u64) {
        if let Some(scheduled) = self.entries.config_scheduled {
            let handle = ptr::from_ref(self).cast_mut().cast();
            // SAFETY: the function of a loaded module, on a configuration that it made, as the interface says.
            unsafe { scheduled(handle, self.own(), event) };
        }
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        forget(self);
        let own = self.own();
        if let Some(destroy) = self.entries.config_destroy.filter(|_| !own.is_null()) {
            // SAFETY: the function of a loaded module, once, on what it made.
            unsafe { destroy(own) };
        }
    }
}

impl Phases {
    pub(crate) const ALL: Phases = Phases {
        request_headers: true,
        response_headers: true,
        request_body: true,
        response_body: true,
        request_trailers: true,
        response_trailers: true,
    };

    /// The ones that there are functions for.
    fn of(entries: &Entries) -> Phases {
        Phases {
            request_headers: entries.request_headers.is_some(),
            response_headers: entries.response_headers.is_some(),
            request_body: entries.request_body.is_some(),
            response_body: entries.response_body.is_some(),
            request_trailers: entries.request_trailers.is_some(),
            response_trailers: entries.response_trailers.is_some(),
        }
    }

    /// The ones with these names; all when there are none.
    pub(crate) fn named(names: &[String]) -> Phases {
        let has = |phase: &str| names.is_empty() || names.iter().any(|name| name == phase);
        Phases {
            request_headers: has("request_headers"),
            response_headers: has("response_headers"),
            request_body: has("request_body"),
            response_body: has("response_body"),
            request_trailers: has("request_trailers"),
            response_trailers: has("response_trailers"),
        }
    }

    /// As a module says it: one bit each, the request's head, body and trailers first, then the response's.
    pub(crate) fn of_bits(bits: u32) -> Phases {
        let has = |at: u32| bits >> at & 1 == 1;
        Phases {
            request_headers: has(0),
            request_body: has(1),
            request_trailers: has(2),
            response_headers: has(3),
            response_body: has(4),
            response_trailers: has(5),
        }
    }

    fn and(self, other: Phases) -> Phases {
        Phases {
            request_headers: self.request_headers && other.request_headers,
            request_body: self.request_body && other.request_body,
            request_trailers: self.request_trailers && other.request_trailers,
            response_headers: self.response_headers && other.response_headers,
            response_body: self.response_body && other.response_body,
            response_trailers: self.response_trailers && other.response_trailers,
        }
    }

    /// The hooks of the pipeline that a module with these functions and services wants, when `self` are the ones that are called at
    /// all.
    pub(crate) fn hooks(self, config: &Config, is_upstream: bool) -> Hooks {
        let entries = &config.entries;
        let (has, busy) = (config.has.and(self), Phases::of(entries).and(self));
        // A hook for heads may have the message wait for what follows, and then those behind it have it go on, be it that they
        // do nothing else.
        let elsewhere = !config.stays_in_hooks;
        let request = busy.request_headers || busy.request_body || busy.request_trailers || elsewhere;
        let response = busy.response_headers || busy.response_body || busy.response_trailers || elsewhere;
        Hooks {
            // The module's state is made with the head.
            request_headers: true,
            request_body: request && has.request_body,
            request_trailers: request && has.request_trailers,
            // A module's own answer in pieces is taken over there, and it is told of others' answers.
            response_headers: response || !is_upstream && entries.local_reply.is_some(),
            response_body: response && has.response_body,
            response_trailers: response && has.response_trailers,
            complete: entries.stream_complete.is_some(),
            keeps_bodies: false,
            declares_length: true,
        }
    }
}

/// A route's configuration of the module's own.
pub(crate) struct RouteSettings {
    own: AtomicPtr<std::ffi::c_void>,
    destroy: Option<unsafe extern "C" fn(Own)>,
    /// Last: its code runs until everything else is gone.
    _library: Arc<Library>,
}

impl RouteSettings {
    /// Has the module make one.
    ///
    /// # Errors
    /// It knows none, or refuses this one.
    pub(crate) fn new(library: Arc<Library>, name: &str, config: &[u8]) -> Result<RouteSettings, String> {
        let entries = Entries::of(&library);
        let Some(make) = entries.route_config_new else {
            return Err(format!("{} takes no configuration of routes", library.source));
        };
        // SAFETY: the function of a loaded module, as the interface says; the bytes are there for the time of the call.
        let own = unsafe { make(Buffer::of(name.as_bytes()), Buffer::of(config)) };
        if own.is_null() {
            return Err(format!("{} refuses the route's configuration of its filter `{name}`", library.source));
        }
        let own = AtomicPtr::new(own.cast_mut());
        Ok(RouteSettings { own, destroy: entries.route_config_destroy, _library: library })
    }

    pub(crate) fn own(&self) -> Own {
        self.own.load(Ordering::Acquire).cast_const()
    }
}

impl Drop for RouteSettings {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the function of a loaded module, once, on what it made.
            unsafe { destroy(self.own()) };
        }
    }
}
