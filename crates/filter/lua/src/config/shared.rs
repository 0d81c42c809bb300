//! What the filters have in common: plugins by factory and worker, and small readers.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_filter_api::plugin::{DEFAULT_MEMORY, Facts};
use postrider_filter_api::{ConfigError, Hooks, Place, WatchedFile};
use postrider_filter_plugin::Allowance;
use postrider_filter_plugin::read::keep;
use postrider_filter_trial::observe;
use postrider_model::{Fields, Value, ValueError};
use postrider_telemetry::log::Level;

use crate::abi::Scratch;
use crate::last_error::LastError;
use crate::machine::{Hook, Machine};
use crate::plugin::Plugin;
use crate::program::Program;
use crate::vm::Fault;

/// A script with what is known about it; each worker makes its plugin of it once.
pub(super) struct Recipe {
    /// Distinct for each configuration that was read.
    id: u64,
    pub(super) facts: Arc<Facts>,
    pub(super) program: Arc<Program>,
    pub(super) stat_prefix: String,
    /// The hooks that the script has functions for.
    pub(super) hooks: Hooks,
    notice: Option<String>,
    last_error: LastError,
    /// What it may name in statistics, on all workers.
    allowance: Arc<Allowance>,
}

thread_local! {
    /// Plugins of this worker by their recipe and the connection manager that they serve.
    static PLUGINS: RefCell<HashMap<(u64, String), Weak<Plugin>>> = RefCell::default();
}

impl Recipe {
    /// Tries the script out.
    ///
    /// # Errors
    /// Why it does not load.
    pub(super) fn new(
        facts: Facts,
        program: Program,
        stat_prefix: &str,
        last_error: &LastError,
    ) -> Result<Recipe, Fault> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let (facts, mut program) = (Arc::new(facts), Arc::new(program));
        let mut scratch = Scratch::default();
        let plugin = Plugin::trial(&facts, &program);
        let machine = plugin.load_with(&mut scratch)?;
        let hooks = hooks(&machine);
        let notice = machine.notice.clone();
        // Told once, not by each worker. Who tries plugins out hears of what is made for a worker.
        if let Some(notice) = notice.as_ref().filter(|_| !observe::is_on()) {
            plugin.log(Level::Warning, notice);
        }
        drop((machine, plugin));
        let watched = |path: &PathBuf| WatchedFile::new(path, std::fs::read(path).ok().as_deref());
        Arc::make_mut(&mut program).required = scratch.required.iter().map(watched).collect();
        Ok(Recipe {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            hooks,
            notice,
            facts,
            program,
            stat_prefix: stat_prefix.to_owned(),
            last_error: last_error.clone(),
            allowance: Arc::default(),
        })
    }

    /// This worker's plugin.
    pub(super) fn plugin(&self, place: &Place<'_>) -> Rc<Plugin> {
        let key = (self.id, place.stat_prefix.to_owned());
        if let Some(known) = PLUGINS.with_borrow(|plugins| plugins.get(&key).and_then(Weak::upgrade)) {
            return known;
        }
        let (facts, program) = (&self.facts, &self.program);
        let shared = (&self.last_error, &self.allowance);
        let plugin = Plugin::new(facts, program, shared, place.stats, place.stat_prefix, &self.stat_prefix);
        let plugin = Rc::new(plugin);
        PLUGINS.with_borrow_mut(|plugins| {
            plugins.retain(|_, plugin| plugin.strong_count() > 0);
            plugins.insert(key, Rc::downgrade(&plugin));
        });
        if observe::is_on() {
            self.show(&plugin, place);
        }
        plugin
    }

    /// Lets those who try the plugin out hear what nobody else does from a worker.
    fn show(&self, plugin: &Plugin, place: &Place<'_>) {
        if let Some(notice) = &self.notice {
            plugin.log(Level::Warning, notice);
        }
        if !has_some(self.hooks) {
            // No request would have its machine made, and so nobody would see what loading says.
            plugin.warm(&**place.host);
        }
    }

    /// The same with its machine, if some of `hooks` would enter it.
    pub(super) fn warm(&self, hooks: Hooks, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        if !has_some(hooks) {
            return None;
        }
        let plugin = self.plugin(place);
        plugin.warm(&**place.host);
        Some(plugin)
    }
}

/// A function on a head may wait for the body and the trailers behind it.
fn hooks(machine: &Machine) -> Hooks {
    let request = machine.hook(Hook::RequestHeaders).is_some() || machine.hook(Hook::RequestBody).is_some();
    let response = machine.hook(Hook::ResponseHeaders).is_some() || machine.hook(Hook::ResponseBody).is_some();
    Hooks {
        request_headers: request,
        request_body: request,
        request_trailers: request,
        response_headers: response,
        response_body: response,
        response_trailers: response,
        complete: true,
        declares_length: true,
        ..Hooks::default()
    }
}

/// Whether some message has the machine entered.
fn has_some(hooks: Hooks) -> bool {
    hooks.request_headers || hooks.response_headers
}

/// Where a configuration has what a plugin may be refused for.
pub(super) struct Places<'a> {
    pub(super) code: &'a str,
    pub(super) config: &'a str,
    pub(super) memory: &'a str,
}

/// That a plugin does not load with so much memory, at its code or at what is to blame for it.
pub(super) fn does_not_load(fault: &Fault, memory: usize, places: Places<'_>) -> ValueError {
    let (path, message) = match fault {
        Fault::Config(said) => (places.config, format!("the plugin refuses it: {said}")),
        // Nobody wrote the usual budget.
        Fault::Memory if memory == DEFAULT_MEMORY => (places.code, too_little_memory("the plugin", memory)),
        Fault::Memory => (places.memory, too_little_memory("the plugin", memory)),
        fault => (places.code, format!("the plugin does not load: {fault}")),
    };
    ValueError { path: path.to_owned(), message }
}

/// What a machine without a script takes, about.
const MACHINE_KIB: usize = 330;

pub(super) fn too_little_memory(what: &str, memory: usize) -> String {
    format!(
        "{what} does not load within {memory} bytes of memory, of which a machine takes about {MACHINE_KIB} KiB by itself"
    )
}

/// A number that tells route configurations apart.
pub(super) fn next_config_id() -> f64 {
    static LAST: AtomicU64 = AtomicU64::new(1);
    LAST.fetch_add(1, Ordering::Relaxed) as f64
}

/// A list of texts joined by `;`, each closed by one, as Lua's paths are.
pub(super) fn paths(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> String {
    let mut joined = String::new();
    for (path, item) in keep(fields.list(key), errors).unwrap_or_default() {
        match item {
            Value::String(text) if !text.is_empty() => {
                joined.push_str(text.trim_end_matches(';'));
                joined.push(';');
            }
            _ => errors.push(ValueError { path, message: "expected a text that is not empty".to_owned() }),
        }
    }
    joined
}
