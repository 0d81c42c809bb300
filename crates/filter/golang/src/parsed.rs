//! Configurations that Go code parsed: each is a number there, and goes when nobody needs it any more.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::abi::HttpConfig;
use crate::apart::Child;
use crate::library::Library;
use crate::metrics::Metrics;

/// Where a library runs.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// In this process.
    Here(&'static Library),
    /// In one of its own.
    Apart(Arc<Child>),
}

/// One parsed or merged configuration.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) home: Home,
    /// Stays for good: Go code may read it when the configuration is gone.
    pub(crate) plugin: &'static str,
    pub(crate) id: u64,
    /// What it was merged from, which it may still use.
    _from: Vec<Arc<Parsed>>,
}

/// What Go code keeps of a filter's own configuration until it finalizes it.
#[repr(C)]
pub(crate) struct ConfigSlot {
    config: HttpConfig,
    pub(crate) metrics: Arc<Metrics>,
}

/// Why there is no parsed configuration: Go code refuses it, and has logged why, or what else it is.
pub(crate) type Refused = Option<String>;

impl Parsed {
    /// Has Go code parse a filter's own configuration, a serialised `Any`.
    pub(crate) fn of_filter(
        home: &Home,
        plugin: &'static str,
        any: &[u8],
        metrics: &Arc<Metrics>,
        workers: u32,
    ) -> Result<Arc<Parsed>, Refused> {
        let id = match home {
            Home::Here(library) => accepted(parse_filter(library, plugin, any, metrics, workers))?,
            Home::Apart(child) => child.parse(plugin, any, Some(metrics))?,
        };
        Ok(Parsed::with(home, plugin, id, Vec::new()))
    }

    /// The same for a route's.
    pub(crate) fn of_route(
        home: &Home,
        plugin: &'static str,
        any: &[u8],
        workers: u32,
    ) -> Result<Arc<Parsed>, Refused> {
        let id = match home {
            Home::Here(library) => accepted(parse_route(library, plugin, any, workers))?,
            Home::Apart(child) => child.parse(plugin, any, None)?,
        };
        Ok(Parsed::with(home, plugin, id, Vec::new()))
    }

    fn with(home: &Home, plugin: &'static str, id: u64, from: Vec<Arc<Parsed>>) -> Arc<Parsed> {
        Arc::new(Parsed { home: home.clone(), plugin, id, _from: from })
    }
}

/// Numbers of configurations begin with 1.
fn accepted(id: u64) -> Result<u64, Refused> {
    if id == 0 { Err(None) } else { Ok(id) }
}

/// The number that a library in this process gives a filter's own configuration; 0 when it refuses, which it logs.
pub(crate) fn parse_filter(
    library: &Library,
    plugin: &'static str,
    any: &[u8],
    metrics: &Arc<Metrics>,
    workers: u32,
) -> u64 {
    let slot = ConfigSlot { config: config(plugin, any, 0, workers), metrics: metrics.clone() };
    // Go code gives it back by `finalize`.
    let slot = Box::into_raw(Box::new(slot));
    // SAFETY: the texts outlive the call, in which Go code copies them; the structure lives until it is finalized.
    unsafe { (library.entries.new_config)(slot.cast()) }
}

/// The same of a route's.
pub(crate) fn parse_route(library: &Library, plugin: &'static str, any: &[u8], workers: u32) -> u64 {
    let mut config = config(plugin, any, 1, workers);
    // SAFETY: as above; of a route's configuration Go code keeps nothing of ours.
    unsafe { (library.entries.new_config)(&raw mut config) }
}

/// The number that a library in this process gives what came of merging one configuration into another.
pub(crate) fn merge(library: &Library, plugin: &'static str, parent: u64, child: u64) -> u64 {
    // SAFETY: the name outlives the call, and both numbers are of this library and in use.
    unsafe { (library.entries.merge_config)(plugin.as_ptr().cast(), plugin.len() as u64, parent, child) }
}

/// The name of a plugin, for good.
pub(crate) fn name(plugin: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    // A panic with the lock held leaves a whole list behind.
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == plugin) {
        return known;
    }
    let name: &'static str = plugin.to_owned().leak();
    names.push(name);
    name
}

fn config(plugin: &str, any: &[u8], is_route_config: c_int, workers: u32) -> HttpConfig {
    HttpConfig {
        plugin_name: address(plugin.as_bytes()),
        plugin_name_len: plugin.len() as u64,
        config: address(any),
        config_len: any.len() as u64,
        is_route_config,
        concurrency: workers,
    }
}

/// Where bytes are that Go code is shown. Of none it is 0: Go ends the process when it meets an address as low as those
/// that Rust has for them.
pub(crate) fn address(bytes: &[u8]) -> u64 {
    if bytes.is_empty() { 0 } else { bytes.as_ptr() as u64 }
}

/// Go code has forgotten a filter's own configuration.
///
/// # Safety
/// `slot` is one of [`Parsed::of_filter`], and finalized once.
pub(crate) unsafe fn finalize(slot: *mut c_void) {
    if !slot.is_null() {
        // SAFETY: as promised.
        drop(unsafe { Box::from_raw(slot.cast::<ConfigSlot>()) });
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        match &self.home {
            // SAFETY: the number is of this library, and nobody uses it any more.
            Home::Here(library) => unsafe { (library.entries.destroy_config)(self.id, 0) },
            Home::Apart(child) => child.forget(self.id),
        }
    }
}

/// What a route says for a plugin, with what came of merging it.
#[derive(Debug)]
pub(crate) struct RouteParsed {
    pub(crate) own: Arc<Parsed>,
    /// One per configuration that it was merged into: merging is done once for all workers.
    merged: Mutex<Vec<(u64, Weak<Parsed>)>>,
}

impl RouteParsed {
    pub(crate) fn new(own: Arc<Parsed>) -> RouteParsed {
        RouteParsed { own, merged: Mutex::default() }
    }

    /// This on top of `parent`.
    pub(crate) fn on_top_of(&self, parent: &Arc<Parsed>) -> Arc<Parsed> {
        // A panic with the lock held leaves a whole list behind.
        let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = merged.iter().find(|(id, _)| *id == parent.id).and_then(|(_, merged)| merged.upgrade()) {
            return known;
        }
        merged.retain(|(_, merged)| merged.strong_count() > 0);
        let plugin = self.own.plugin;
        let id = match &self.own.home {
            Home::Here(library) => merge(library, plugin, parent.id, self.own.id),
            Home::Apart(child) => child.merge(plugin, parent.id, self.own.id),
        };
        match id {
            1.. => {
                let made = Parsed::with(&self.own.home, plugin, id, vec![parent.clone(), self.own.clone()]);
                merged.push((parent.id, Arc::downgrade(&made)));
                made
            }
            // Numbers only grow: there is always one.
            0 => self.own.clone(),
        }
    }
}
