//! Puts configurations in force: the first one, and each that replaces it. A bad one changes nothing.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider_admin::{HistoryEntry, NO_ADMIN_LAYER, Outcome};
use postrider_config_envoy::{Dump, Runtime};
use postrider_filter_api::WatchedFile;
use postrider_filter_plugin::library;
use postrider_model::{Listener, Snapshot};
use postrider_telemetry::access_log::LogWriter;
use postrider_telemetry::stats::sets::{self, scope_of_address};
use postrider_telemetry::{Block, Registry, error, info, warning};
use postrider_worker::{ApplyError, Plan};
use tokio::sync::Notify;

use super::code::Deliveries;
use super::discovery::{Followers, LookupsByCluster};
use super::state::{Current, State};
use super::values::{Change, Values};
use super::{changes, plugins, scopes};
use crate::config::{self, Checked, Manifests, ReadError};
use crate::exit::Exit;
use crate::flags::RunOptions;

/// What the diagnostics call a field that nobody knows: a warning, where such fields are allowed.
const UNKNOWN_FIELD: &str = "unknown-field";

/// Reads, checks and applies configurations.
pub struct Loader<'a> {
    pub(super) options: &'a RunOptions,
    registry: Registry,
    /// Clusters and listeners as configurations come and go.
    counts: [Rc<Block>; 3],
    values: Values,
    /// What the admin brought and is in force.
    pub(super) manifests: Manifests,
    followers: Followers,
    pub(super) code: Deliveries,
    /// What was read last is not in force as yet, for want of code.
    pub(super) waits: bool,
    /// Its code is not looked for any more, because other code was wanted meanwhile.
    pub(super) displaced: bool,
    /// Told when plugins can be built better than they were.
    better: Arc<Notify>,
    pub(super) plan: Option<Arc<Plan>>,
    /// What was read last, good or bad.
    text: Option<Vec<u8>>,
    /// The files of the plan in force, as they were when the configuration was read last.
    files: Vec<WatchedFile>,
    /// What filters were made from when it was read last, be it that they were refused.
    read: Vec<WatchedFile>,
    /// What of that only a configuration names that was not put in force.
    tried: Vec<WatchedFile>,
    /// What of all that was told to be gone.
    gone: BTreeSet<PathBuf>,
}

/// A configuration that can run.
pub struct Candidate {
    pub snapshot: Arc<Snapshot>,
    pub(super) plan: Arc<Plan>,
    dump: Dump,
    /// Files of secrets, which are part of the document.
    secrets: Vec<WatchedFile>,
    runtime: Arc<Runtime>,
    manifests: Manifests,
}

/// Why a configuration was not put in force.
pub enum Refused {
    Unreadable(ReadError),
    Invalid {
        /// All findings, as `validate` prints them.
        text: String,
        /// Each error on a line.
        errors: Vec<String>,
    },
    NotApplied(String),
}

impl Refused {
    /// For the terminal.
    pub fn text(&self) -> String {
        match self {
            Refused::Unreadable(error) => format!("error: {error}\n"),
            Refused::Invalid { text, .. } => text.clone(),
            Refused::NotApplied(reason) => format!("error: {reason}\n"),
        }
    }

    pub fn exit(&self) -> Exit {
        match self {
            Refused::Unreadable(_) | Refused::NotApplied(_) => Exit::Failed,
            Refused::Invalid { .. } => Exit::InvalidConfig,
        }
    }

    pub(super) fn errors(self) -> Vec<String> {
        match self {
            Refused::Unreadable(error) => vec![error.to_string()],
            Refused::Invalid { errors, .. } => errors,
            Refused::NotApplied(reason) => vec![reason],
        }
    }
}

impl<'a> Loader<'a> {
    pub fn new(options: &'a RunOptions, registry: Registry) -> Loader<'a> {
        let stats = registry.worker(CONTROL);
        let counts = [
            stats.block(&sets::cluster_manager::SET, ""),
            stats.block(&sets::listener_manager::SET, ""),
            stats.block(&sets::server::SET, ""),
        ];
        let code = Deliveries::new(&stats);
        let (followers, files) = (Followers::default(), Vec::new());
        let better = Arc::default();
        let values = Values::new(&stats);
        Loader {
            options,
            registry,
            counts,
            values,
            manifests: Manifests::new(),
            followers,
            code,
            waits: false,
            displaced: false,
            better,
            plan: None,
            text: None,
            files,
            read: Vec::new(),
            tried: Vec::new(),
            gone: BTreeSet::new(),
        }
    }

    /// What was looked up for clusters.
    pub fn lookups(&self) -> LookupsByCluster {
        self.followers.lookups.clone()
    }

    /// The configuration file, or one that its filters were made from, differs from what was read last. One that cannot
    /// be read does not count: it is being replaced.
    pub fn is_outdated(&self) -> bool {
        let read = self.options.input.path().and_then(|path| std::fs::read(path).ok());
        read.is_some_and(|text| self.text.as_ref() != Some(&text))
            || self.files.iter().chain(&self.tried).any(|file| file.says_otherwise(File::open(&file.path)))
            || !self.values.is_current()
    }

    /// Tells once of each file that is gone since the configuration in force was made from it: nothing else shows that
    /// before the configuration is read again, which may be the next start of the process.
    pub fn tell_of_gone_files(&mut self) {
        let is_gone = |path: &Path| path.try_exists().is_ok_and(|there| !there);
        let was_there = |file: &&WatchedFile| !file.is_current(None);
        let paths = self.options.input.path().into_iter();
        let paths = paths.chain(self.files.iter().filter(was_there).map(|file| file.path.as_path()));
        let gone: BTreeSet<PathBuf> = paths.filter(|path| is_gone(path)).map(Path::to_owned).collect();
        for path in gone.difference(&self.gone) {
            let path = path.display();
            warning!(Config, "{path} is gone: what was read from it stays in force until the next start");
        }
        self.gone = gone;
    }

    /// Every file that the configuration in force was made from, itself first, and what the one that was read last was to be
    /// made from.
    pub fn files(&self) -> Vec<PathBuf> {
        let own = self.options.input.path().map(Path::to_owned);
        let files = self.files.iter().chain(&self.tried).map(|file| file.path.clone());
        own.into_iter().chain(files).chain(self.values.watched()).collect()
    }

    /// Reads the first configuration, and fetches the code that its plugins have elsewhere. A plugin whose code cannot be
    /// had is left out: it does what its failure policy says, and its code is tried again.
    pub async fn first(&mut self) -> Result<Candidate, Refused> {
        #[cfg(feature = "wasm")]
        if !self.options.optimize_wasm_first && self.options.input.lasts() {
            let better = self.better.clone();
            postrider_filter_wasm::hurry(move || better.notify_one());
        }
        library().begin_round();
        let candidate = self.read()?;
        let wanted = library().wanted();
        if wanted.is_empty() {
            return Ok(candidate);
        }
        self.code.begin(wanted, &candidate.plan);
        self.code.arrive().await;
        library().be_lenient(true);
        let candidate = self.read();
        library().be_lenient(false);
        candidate
    }

    /// Waits until code came, or could not be had, that a configuration waits for, or until there is better code for what
    /// it has. Whoever gives up waiting misses nothing by it.
    pub async fn code_came(&mut self) {
        loop {
            tokio::select! {
                came = self.code.changed() => {
                    self.code.retain(self.waits);
                    if came {
                        return;
                    }
                }
                // What somebody changed is not read before he wants that; then the better code is used, too.
                () = self.better.notified() => if !self.is_outdated() { return },
            }
        }
    }

    /// Something serves: nobody waits for what is built from now on.
    pub fn settle(&self) {
        #[cfg(feature = "wasm")]
        postrider_filter_wasm::settle();
    }

    /// Reads and checks the configuration as it is now.
    fn read(&mut self) -> Result<Candidate, Refused> {
        self.text = self.options.input.path().and_then(|path| std::fs::read(path).ok());
        self.check(&self.options.input.with_overrides(self.values.overrides()).with_manifests(&self.manifests))
    }

    /// Reads and checks the configuration in force with other manifests of plugins.
    pub(super) fn check_with(&mut self, current: &Current, manifests: &Manifests) -> Result<Candidate, Refused> {
        let input = self.options.input.held(current.dump.source().clone()).with_manifests(manifests);
        self.check(&input.with_overrides(self.values.overrides()))
    }

    /// Nothing came of what was read last.
    pub(super) fn keep(&mut self, current: &Current, source: String, errors: Vec<String>, state: &State) {
        self.values.saw(&current.runtime);
        state.history.push(HistoryEntry { time: SystemTime::now(), source, outcome: Outcome::Refused { errors } });
    }

    /// Reads and checks a configuration.
    fn check(&mut self, input: &config::Input) -> Result<Candidate, Refused> {
        let workers = self.options.workers.get();
        let check = || config::check(input, self.plan.as_deref(), workers);
        let (checked, read) = WatchedFile::read_by(check);
        self.read = read;
        let checked = checked.map_err(Refused::Unreadable)?;
        let found = checked.findings(std::io::stderr().is_terminal());
        let errors = checked.error_lines();
        let Checked { outcome, plan } = checked;
        if self.plan.is_none() {
            let unknown = outcome.diagnostics.iter().filter(|found| found.code == UNKNOWN_FIELD);
            self.counts[2].add(sets::server::STATIC_UNKNOWN_FIELDS, unknown.count() as u64);
        }
        let dump = outcome.dump();
        let watched = |path: &PathBuf| WatchedFile::new(path, std::fs::read(path).ok().as_deref());
        let secrets = outcome.files().iter().map(watched).collect();
        let runtime = outcome.runtime.clone();
        self.values.saw(&runtime);
        // The tree that was read is large and not needed any more.
        drop(outcome);
        postrider_sys::release_free_memory();
        let Some(plan) = plan else { return Err(Refused::Invalid { text: found, errors }) };
        if !found.is_empty() {
            // Warnings: the operator reads them where the errors would stand.
            eprint!("{found}");
        }
        let (snapshot, manifests) = (plan.snapshot.clone(), input.manifests().clone());
        Ok(Candidate { snapshot, plan: Arc::new(plan), dump, secrets, runtime, manifests })
    }

    /// Puts a configuration in force on all workers.
    pub async fn apply(&mut self, candidate: Candidate, state: &Arc<State>, logs: &LogWriter) -> Result<(), Refused> {
        let Candidate { snapshot, plan, dump, secrets, runtime, manifests } = candidate;
        let endpoints = self.followers.prepare(&snapshot.clusters, &state.fleet).await;
        let applied = state.fleet.apply(plan.clone(), endpoints, logs).await;
        applied.map_err(|error| {
            if let ApplyError::Bind { .. } = error {
                self.counts[1].inc(sets::listener_manager::LISTENER_CREATE_FAILURE);
            }
            Refused::NotApplied(error.to_string())
        })?;
        self.followers.retain(&snapshot.clusters);
        let old = state.current();
        let mut changes = changes::between(old.as_ref().map(|current| &*current.snapshot), &snapshot);
        self.count(old.as_ref().map(|old| &*old.snapshot), &snapshot, &changes);
        changes.extend(plugins::changes(self.plan.as_deref(), &plan));
        self.forget_gone_scopes(&plan);
        self.files = plan.files().cloned().chain(secrets).collect();
        self.tried.clear();
        self.forget_what_came_back();
        self.code.settle(self.waits);
        let now = SystemTime::now();
        self.values.count(&runtime);
        self.manifests.clone_from(&manifests);
        state.set_current(Current { snapshot, dump, runtime, manifests, since: now });
        self.plan = Some(plan);
        let source = self.options.input.name();
        state.history.push(HistoryEntry { time: now, source, outcome: Outcome::Accepted { changes } });
        // Serving needs little of what reading did.
        postrider_sys::release_free_memory();
        postrider_sys::release_program_pages();
        Ok(())
    }

    /// Reads the configuration again; what is refused leaves everything as it was, is logged and remembered. One whose
    /// plugins have code elsewhere waits until that is here. `anew` unless it was read before and its code came or failed.
    pub async fn reload(&mut self, anew: bool, state: &Arc<State>, logs: &LogWriter) {
        if anew {
            library().begin_round();
        }
        let before = self.files_now();
        let outcome = match self.read() {
            Ok(candidate) => {
                let wanted = library().wanted();
                self.waits = !wanted.is_empty();
                if self.waits {
                    self.code.begin(wanted, &candidate.plan);
                    self.look_for_changes(before);
                    return;
                }
                self.apply(candidate, state, logs).await
            }
            Err(refused) => {
                self.waits = !library().failed().is_empty();
                Err(refused)
            }
        };
        match outcome {
            Ok(()) => {
                let history = state.history.entries();
                let changes = match history.first().map(|entry| &entry.outcome) {
                    Some(Outcome::Accepted { changes }) => changes.len(),
                    _ => 0,
                };
                info!(Config, "configuration reloaded: {changes} part(s) changed");
            }
            Err(refused) => {
                self.look_for_changes(before);
                let errors = refused.errors();
                for refused in &errors {
                    error!(Config, "configuration refused, the last good one keeps serving: {refused}");
                }
                let (time, source) = (SystemTime::now(), self.options.input.name());
                state.history.push(HistoryEntry { time, source, outcome: Outcome::Refused { errors } });
            }
        }
    }

    /// Puts other values of the runtime in force: the configuration stays as it was read, and is given its meaning again.
    /// All of them hold afterwards, or none.
    pub async fn modify(&mut self, changes: Vec<Change>, state: &Arc<State>, logs: &LogWriter) -> Result<(), String> {
        let Some(current) = state.current() else { return Err("there is no configuration yet".to_owned()) };
        if !current.runtime.has_admin_layer() {
            return Err(NO_ADMIN_LAYER.to_owned());
        }
        let overrides = self.values.changed(changes)?;
        let input = self.options.input.held(current.dump.source().clone()).with_manifests(&self.manifests);
        let input = input.with_overrides(&overrides);
        // What a plugin in force has from elsewhere is here, and what was left out stays so.
        library().be_lenient(true);
        let candidate = self.check(&input);
        library().be_lenient(false);
        let outcome = match candidate {
            Ok(candidate) => self.apply(candidate, state, logs).await,
            Err(refused) => Err(refused),
        };
        match outcome {
            Ok(()) => {
                self.values.take(overrides);
                info!(Runtime, "values were changed: {} differ from the other layers", self.values.overrides().len());
                Ok(())
            }
            Err(refused) => {
                self.values.saw(&current.runtime);
                let errors = refused.errors();
                let reason = format!("the values are not in force: {}\n", errors.join("; "));
                let (time, source) = (SystemTime::now(), self.options.input.name());
                state.history.push(HistoryEntry { time, source, outcome: Outcome::Refused { errors } });
                Err(reason)
            }
        }
    }

    /// What was not put in force now is not tried again until a file is another than it was then: `before` it was read, since
    /// somebody may write while that goes on, or as it was read.
    fn look_for_changes(&mut self, before: Vec<WatchedFile>) {
        let mut read = std::mem::take(&mut self.read);
        self.files = before;
        for file in &mut self.files {
            if let Some(at) = read.iter().position(|read| read.path == file.path) {
                *file = read.swap_remove(at);
            }
        }
        self.tried = read;
        self.forget_what_came_back();
    }

    /// What was there when it was read is told again when it goes, however soon that is.
    fn forget_what_came_back(&mut self) {
        let files = &self.files;
        self.gone.retain(|path| !files.iter().any(|file| file.path == *path && !file.is_current(None)));
    }

    /// The files of the plan in force as they are now.
    fn files_now(&self) -> Vec<WatchedFile> {
        self.files.iter().map(|file| WatchedFile::of(&file.path, File::open(&file.path))).collect()
    }

    fn count(&self, old: Option<&Snapshot>, snapshot: &Snapshot, changes: &[postrider_admin::Change]) {
        use postrider_admin::ChangeKind::{Added, Changed, Removed};
        let [clusters, listeners, server] = &self.counts;
        server.gauge_set(sets::server::CONCURRENCY, self.options.workers.get() as u64);
        let version = snapshot.version.filter(|version| *version > 0);
        server.gauge_set(sets::server::VERSION, version.unwrap_or_else(crate::version::number));
        for change in changes {
            match (change.what.starts_with("cluster "), change.kind) {
                (true, Added) => clusters.inc(sets::cluster_manager::CLUSTER_ADDED),
                (true, Changed) => clusters.inc(sets::cluster_manager::CLUSTER_MODIFIED),
                (true, Removed) => clusters.inc(sets::cluster_manager::CLUSTER_REMOVED),
                (false, Added) => {
                    listeners.inc(sets::listener_manager::LISTENER_ADDED);
                    listeners.add(sets::listener_manager::LISTENER_CREATE_SUCCESS, self.options.workers.get() as u64);
                }
                (false, Changed) => listeners.inc(sets::listener_manager::LISTENER_MODIFIED),
                (false, Removed) => listeners.inc(sets::listener_manager::LISTENER_REMOVED),
            }
        }
        clusters.gauge_set(sets::cluster_manager::ACTIVE_CLUSTERS, snapshot.clusters.len() as u64);
        listeners.gauge_set(sets::listener_manager::TOTAL_LISTENERS_ACTIVE, snapshot.listeners.len() as u64);
        listeners.gauge_set(sets::listener_manager::WORKERS_STARTED, 1);
        let known = |new: &&Arc<Listener>| {
            let old = old.and_then(|old| old.listeners.iter().find(|old| old.name == new.name));
            old.is_some_and(|old| old != *new && old.addresses == new.addresses)
        };
        let in_place = snapshot.listeners.iter().filter(known).count();
        listeners.add(sets::listener_manager::LISTENER_IN_PLACE_UPDATED, in_place as u64);
    }

    /// The process serves, so long after it began.
    pub fn count_start(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.counts[2].record(sets::server::INITIALIZATION_TIME_MS, millis);
    }

    /// Listeners stop although they are in the configuration, each on every worker.
    pub fn count_stopped(&self, listeners: usize) {
        let count = listeners * self.options.workers.get();
        self.counts[1].add(sets::listener_manager::LISTENER_STOPPED, count as u64);
    }

    /// Clusters, listeners and plugins that are gone take their statistics with them.
    fn forget_gone_scopes(&self, plan: &Plan) {
        let snapshot = &*plan.snapshot;
        let clusters: HashSet<String> =
            snapshot.clusters.iter().map(|cluster| scopes::cluster_prefix(cluster)).collect();
        let (http, plugins, filters) =
            (stat_prefixes(snapshot), plugins::scope_names(plan), plugins::filter_names(plan));
        let groups = scopes::groups(plan);
        // All at once: each pass decides anew about every scope.
        self.registry.retain(|set, prefix| {
            if [&sets::cluster::SET, &sets::cluster_health::SET, &sets::cluster_canary::SET].contains(&set) {
                clusters.contains(prefix)
            } else if *set == sets::cluster_zone_pair::SET {
                prefix.split_once(".zone.").is_some_and(|(cluster, _)| clusters.contains(cluster))
            } else if *set == sets::cluster_health_named::SET {
                prefix.split_once(".health_check.name.").is_some_and(|(cluster, _)| clusters.contains(cluster))
            } else if *set == sets::cluster_alternative::SET {
                let is_of = |cluster: &String| prefix.strip_prefix(cluster).is_some_and(|rest| rest.starts_with('.'));
                clusters.iter().any(is_of)
            } else if *set == sets::http::SET || *set == sets::tcp::SET {
                http.contains(prefix)
            } else if *set == sets::group::SET {
                groups.contains(prefix)
            } else {
                !plugins::is_gone(set, prefix, &plugins, &filters)
            }
        });
    }
}

/// The number under which the control plane counts; workers begin at 0.
const CONTROL: u32 = u32::MAX;

fn stat_prefixes(snapshot: &Snapshot) -> HashSet<String> {
    use postrider_model::ConnectionHandler::{Echo, Filters, Http, Say, Tcp};
    let chains = snapshot.listeners.iter().flat_map(|l| l.filter_chains.iter().chain(&l.default_filter_chain));
    let prefix = |chain: &Arc<postrider_model::FilterChain>| match &chain.handler {
        Http(http) => Some(scope_of_address(&http.stat_prefix)),
        Tcp(tcp) => Some(scope_of_address(&tcp.stat_prefix)),
        Echo | Say(_) | Filters => None,
    };
    chains.filter_map(prefix).collect()
}
