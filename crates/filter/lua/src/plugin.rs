//! A plugin on one worker: its machine, what it counts, and whether it is trusted at the moment.

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, SystemTime};

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{Host, Moment};
use postrider_filter_plugin::{Account, Allowance, Circuit, Metrics};
use postrider_filter_trial::observe::{self, Event};
use postrider_telemetry::log::{Component, Level};
use postrider_telemetry::{Block, WorkerStats};

use crate::abi::{Scratch, Turn};
use crate::file_log::FileLog;
use crate::last_error::LastError;
use crate::machine::Machine;
use crate::pool;
use crate::program::{Dialect, Program};
use crate::script::Script;
use crate::view::View;
use crate::vm::Fault;

postrider_telemetry::stat_set! {
    /// What Envoy's Lua filter counts; prefix: the connection manager's, `lua`, and the filter's own.
    pub(crate) mod stat = "http";
    counters { ERRORS = "errors", EXECUTIONS = "executions" }
}

postrider_telemetry::stat_set! {
    /// The machines of Envoy's dialect, under Envoy's name for them.
    pub(crate) mod machines = "lua";
    gauges { VM_COUNT = "lua_vm_count" }
}

/// Tracebacks are long, and the same error comes with every stream.
const EXPLAINED_EVERY: Duration = Duration::from_secs(1);

/// Bytes of one text of a script that the log tells: texts of megabytes would keep the worker writing.
const LONGEST_TEXT: usize = 16 << 10;

pub(crate) struct Plugin {
    pub(crate) facts: Arc<Facts>,
    pub(crate) program: Arc<Program>,
    pub(crate) reply_details: Cow<'static, str>,
    /// `None` while a configuration is tried out.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) worker: Option<OnWorker>,
    /// Tells plugins apart.
    pub(crate) number: i32,
    file_log: Option<FileLog>,
    machine: RefCell<Option<Rc<Machine>>>,
    /// The machine could not be made, which was told; it is tried again then.
    broken_until: Cell<Option<Moment>>,
    last_error: LastError,
    /// When an error was last told with where it came from.
    explained: Cell<Option<Moment>>,
}

/// What a plugin has where it serves.
pub(crate) struct OnWorker {
    pub(crate) account: Account,
    pub(crate) circuit: Circuit,
    /// Envoy's own counters, for its dialect.
    pub(crate) envoy: Option<Rc<Block>>,
    /// Where its dialect's machines are counted.
    pub(crate) machines: Option<Rc<Block>>,
}

impl Plugin {
    /// For one worker. `stat_prefix` is the connection manager's, `own_prefix` the filter's.
    pub(crate) fn new(
        facts: &Arc<Facts>,
        program: &Arc<Program>,
        (last_error, allowance): (&LastError, &Arc<Allowance>),
        stats: &WorkerStats,
        stat_prefix: &str,
        own_prefix: &str,
    ) -> Plugin {
        let envoy_prefix = match own_prefix {
            "" => format!("{stat_prefix}.lua"),
            own => format!("{stat_prefix}.lua.{own}"),
        };
        let (prefix, envoy, machines) = match program.dialect {
            Dialect::Envoy => {
                let (envoy, machines) = (stats.block(&stat::SET, &envoy_prefix), stats.block(&machines::SET, ""));
                (format!("http.{envoy_prefix}"), Some(envoy), Some(machines))
            }
            Dialect::Rider => (format!("rider.{}", facts.name.replace(':', "_")), None, None),
        };
        Plugin {
            metrics: Some(Metrics::new(stats, prefix, "lua").within(allowance)),
            worker: Some(OnWorker {
                account: Account::new(stats, &facts.name),
                circuit: Circuit::new(facts.policy.circuit),
                envoy,
                machines,
            }),
            last_error: last_error.clone(),
            ..Plugin::trial(facts, program)
        }
    }

    /// One that only shows whether its script loads.
    pub(crate) fn trial(facts: &Arc<Facts>, program: &Arc<Program>) -> Plugin {
        static LAST: AtomicI32 = AtomicI32::new(0);
        Plugin {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            facts: facts.clone(),
            reply_details: match program.dialect {
                Dialect::Envoy => Cow::Borrowed("lua_response"),
                Dialect::Rider => Cow::Owned(format!("rider_response_{}", token(&facts.name))),
            },
            file_log: program.log_file.as_deref().map(FileLog::open),
            program: program.clone(),
            metrics: None,
            worker: None,
            machine: RefCell::new(None),
            broken_until: Cell::new(None),
            last_error: LastError::default(),
            explained: Cell::new(None),
        }
    }

    /// The machine, made now if it is not there any more, or could not be made before. `None` when the script does not load here,
    /// which its configuration was checked for: memory may be short, or a file that it requires is gone.
    #[inline]
    pub(crate) fn machine(&self, host: &dyn Host) -> Option<Rc<Machine>> {
        self.made_machine().or_else(|| self.make_machine(host))
    }

    /// Has the machine made before a request needs it. A script that does not load here is told of, and requests do without it.
    pub(crate) fn warm(&self, host: &dyn Host) {
        self.machine(host);
    }

    /// The machine, if there is one already.
    #[inline]
    pub(crate) fn made_machine(&self) -> Option<Rc<Machine>> {
        self.machine.borrow().clone()
    }

    /// The same, lent. Given back before anything replaces it, which is when a call came back with its memory used up.
    #[inline]
    pub(crate) fn known_machine(&self) -> Ref<'_, Option<Rc<Machine>>> {
        self.machine.borrow()
    }

    #[cold]
    fn make_machine(&self, host: &dyn Host) -> Option<Rc<Machine>> {
        let broken = self.broken_until.get();
        if broken.is_some_and(|until| host.now() < until) {
            return None;
        }
        match pool::shared(self) {
            Ok(machine) => {
                self.broken_until.set(None);
                *self.machine.borrow_mut() = Some(machine.clone());
                Some(machine)
            }
            Err(fault) => {
                self.broken_until.set(Some(host.now() + self.facts.policy.circuit.retry));
                if broken.is_none() {
                    self.log(Level::Error, &format!("the script does not load: {fault}"));
                }
                None
            }
        }
    }

    /// Loads the script into a machine of its own.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn load(&self) -> Result<Machine, Fault> {
        self.load_with(&mut Scratch::default())
    }

    /// The same, and `scratch` says afterwards what was left by the way.
    ///
    /// # Errors
    /// As for [`Plugin::load`].
    pub(crate) fn load_with(&self, scratch: &mut Scratch) -> Result<Machine, Fault> {
        let view = View::default();
        let mut script = Script::default();
        let mut turn = Turn { stream: None, script: &mut script, plugin: self, view: &view, scratch };
        let policy = &self.facts.policy;
        Machine::load(&self.program, policy.memory, policy.cpu, &mut turn)
    }

    /// The machine ran out of memory: streams that it serves end with it, new ones get a fresh one, if they have not
    /// already.
    pub(crate) fn replace_machine(&self, exhausted: &Rc<Machine>) {
        pool::retire(exhausted);
        self.machine.borrow_mut().take_if(|machine| Rc::ptr_eq(machine, exhausted));
    }

    /// Whether the error of now is told with where it came from: the first, and then one in so long.
    pub(crate) fn explains(&self, now: Moment) -> bool {
        let last = self.explained.get();
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= EXPLAINED_EVERY);
        if due {
            self.explained.set(Some(now));
        }
        due
    }

    /// Tells the way that led to an error, and keeps both for the admin.
    pub(crate) fn explain(&self, error: &str, traceback: &str, at: SystemTime) {
        self.last_error.note(at, format!("{error}\n{traceback}").trim_end());
        // One line, as all of the log.
        let calls: Vec<&str> = traceback.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()).collect();
        if !calls.is_empty() {
            self.log(Level::Error, &format!("stack traceback: {}", calls.join(" < ")));
        }
    }

    /// Whether it is to be passed by for now.
    #[inline]
    pub(crate) fn is_bypassed(&self, host: &dyn Host) -> bool {
        let worker = self.worker.as_ref();
        worker.is_some_and(|worker| !worker.circuit.is_closed() && worker.circuit.is_open(host.now()))
    }

    /// What there is to say about it.
    pub(crate) fn log(&self, level: Level, text: &str) {
        self.log_by(text, level, |line| postrider_telemetry::log::write(Component::Filter, level, line));
    }

    /// What its script says.
    pub(crate) fn log_own(&self, level: Level, text: &str) {
        let name = &self.facts.name;
        self.log_by(text, level, |line| postrider_telemetry::log::write_of(name, Component::Filter, level, line));
    }

    fn log_by(&self, text: &str, level: Level, write: impl FnOnce(std::fmt::Arguments<'_>)) {
        if observe::is_on() {
            observe::note(Event::Log { level, text: text.to_owned() });
            return;
        }
        let text = told(text);
        match self.program.dialect {
            Dialect::Envoy => write(format_args!("script log: {text}")),
            Dialect::Rider => write(format_args!("{}: {text}", self.facts.name)),
        }
    }

    pub(crate) fn file_log(&self, bytes: &[u8]) {
        if let Some(log) = &self.file_log {
            log.append(bytes);
        }
    }
}

pub(crate) fn log_enabled(level: Level) -> bool {
    observe::is_on() || postrider_telemetry::log::enabled(Component::Filter, level)
}

/// What the log tells of a text.
fn told(text: &str) -> Cow<'_, str> {
    let (beginning, rest) = text.split_at(text.floor_char_boundary(LONGEST_TEXT));
    match rest.len() {
        0 => Cow::Borrowed(beginning),
        left => Cow::Owned(format!("{beginning}… and {left} bytes")),
    }
}

/// The name as one word.
fn token(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_megabytes_is_told_by_its_beginning() {
        assert_eq!(told("short"), "short");
        let text = "ü".repeat(3 << 20);
        let told = told(&text);
        assert!(told.len() < LONGEST_TEXT + 30 && told.starts_with("üü"), "{}", told.len());
        assert!(told.ends_with(&format!("ü… and {} bytes", text.len() - LONGEST_TEXT)));
    }
}
