//! From configuration to filters.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_http::{HeadLimits, RequestHead};
use postrider_model::{Value, ValueError};
use postrider_telemetry::WorkerStats;

use crate::plugin::Sight;
use crate::{
    BuildBridge, BuildLogger, BuildNetwork, BuildNewcomer, BuildService, Filter, GuardFactory, Host, Withheld,
};

/// Why a filter refuses its configuration: one or more errors, each with its place below the filter's own value.
pub type ConfigError = Vec<ValueError>;

/// What an override at some scope parsed to; the factory that made it knows the type.
#[derive(Clone)]
pub struct RouteConfig {
    pub value: Arc<dyn Any + Send + Sync>,
    /// Files that it was read from.
    pub files: Vec<WatchedFile>,
    /// As `explain` and the admin show it.
    pub shown: Value,
}

impl RouteConfig {
    /// One that was read from no file.
    pub fn new(value: impl Any + Send + Sync, shown: &Value) -> RouteConfig {
        RouteConfig { value: Arc::new(value), files: Vec::new(), shown: shown.clone() }
    }
}

/// A file that a configuration was made from, as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedFile {
    pub path: PathBuf,
    digest: Option<u64>,
}

thread_local! {
    /// Files that were read while somebody wants to know of them.
    static READ: RefCell<Option<Vec<WatchedFile>>> = const { RefCell::new(None) };
}

impl WatchedFile {
    /// `content` is what was read; `None` when the file could not be read.
    pub fn new(path: &Path, content: Option<&[u8]>) -> WatchedFile {
        let file = WatchedFile { path: path.to_owned(), digest: content.map(digest) };
        if content.is_some() {
            file.note();
        }
        file
    }

    /// A file as it says now. It may be large: a piece of it is in memory at a time.
    pub fn of(path: &Path, content: io::Result<impl Read>) -> WatchedFile {
        let file = WatchedFile { path: path.to_owned(), digest: content.and_then(digest_of).ok() };
        if file.digest.is_some() {
            file.note();
        }
        file
    }

    /// There is no such file, and something waits for it.
    pub fn note_absent(path: &Path) {
        WatchedFile { path: path.to_owned(), digest: None }.note();
    }

    fn note(&self) {
        READ.with_borrow_mut(|read| {
            if let Some(read) = read.as_mut().filter(|read| read.iter().all(|known| known.path != self.path)) {
                read.push(self.clone());
            }
        });
    }

    /// Does something on this thread, and tells of the files that were read meanwhile, each as it was the first time: what
    /// is refused leaves nothing behind that could be asked for its files.
    pub fn read_by<T>(work: impl FnOnce() -> T) -> (T, Vec<WatchedFile>) {
        let before = READ.replace(Some(Vec::new()));
        let done = work();
        (done, READ.replace(before).unwrap_or_default())
    }

    /// Whether a file that says `content` now still says what it said; `None` when it cannot be read.
    pub fn is_current(&self, content: Option<&[u8]>) -> bool {
        content.map(digest) == self.digest
    }

    /// The same of what the file says now, likewise piece by piece.
    pub fn stands(&self, content: io::Result<impl Read>) -> bool {
        content.and_then(digest_of).ok() == self.digest
    }

    /// Whether the file says something else now. One that cannot be read does not.
    pub fn says_otherwise(&self, content: io::Result<impl Read>) -> bool {
        content.and_then(digest_of).is_ok_and(|now| Some(now) != self.digest)
    }
}

/// How much of a file is in memory while it is compared: whole words.
const PIECE: usize = 64 << 10;

/// What [`digest`] says of the file's content.
fn digest_of(mut content: impl Read) -> io::Result<u64> {
    let (mut hash, mut length, mut piece) = (0, 0, Vec::with_capacity(PIECE));
    loop {
        piece.clear();
        content.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        length += piece.len();
        if piece.len() < PIECE {
            return Ok(finish(hash, &piece, length));
        }
        hash = fold(hash, piece.as_chunks().0);
    }
}

fn digest(content: &[u8]) -> u64 {
    fingerprint(0, content)
}

/// A number that tells contents apart, and orders of contents where one's is the `seed` of the next. It is quick, since
/// modules of megabytes are told apart by it, and no help against somebody who looks for two contents with one number.
pub fn fingerprint(seed: u64, content: &[u8]) -> u64 {
    finish(seed, content, content.len())
}

fn fold(seed: u64, words: &[[u8; 8]]) -> u64 {
    words.iter().fold(seed, |hash, word| step(hash, u64::from_le_bytes(*word)))
}

/// The end of contents that are so long.
fn finish(seed: u64, end: &[u8], length: usize) -> u64 {
    let (words, rest) = end.as_chunks();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    step(step(fold(seed, words), u64::from_le_bytes(last)), length as u64)
}

/// It can be undone, so one other word gives another number for certain.
fn step(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// A filter with its gateway-level configuration. Lives as long as the snapshot; shared by the workers.
pub trait Factory: Send + Sync {
    /// Parses an override of type `kind` from a route table, virtual host, route or weighted cluster.
    ///
    /// # Errors
    /// What is wrong with it, or that this filter takes no such override.
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError>;

    /// Makes the filter that a route with these overrides sees. The merge rule is the filter's own. Called once per
    /// worker and distinct combination, on the worker: it must be quick.
    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter>;

    /// The same between the router and a host, where an answer of the filter's own must be whole.
    fn upstream_filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        self.filter(configs, place)
    }

    /// The same in the shadow, where whoever asks for it keeps answers and edits from the traffic. What only holds traffic up
    /// is for the filter to leave out: it tells `withheld` of it.
    fn shadow_filter(&self, configs: &ScopedConfigs, place: &Place<'_>, _withheld: &Rc<Withheld>) -> Rc<dyn Filter> {
        self.filter(configs, place)
    }

    /// Called once on each worker when a configuration with this filter comes into force there, before any request: the time
    /// to make what ticks or is dear to make. What it answers is kept as long as that configuration serves new streams.
    fn arrive(&self, _: &Place<'_>) -> Option<Rc<dyn Any>> {
        None
    }

    /// Called on each worker before a configuration comes into force there, while the one before serves on, for every distinct
    /// outcome of overrides that its routes see: the time to make what else the first request would wait for, and all others of
    /// its worker with it, as a virtual machine with its script. One call should make one such thing: the worker serves between
    /// two calls. What cannot be made is no error here: requests meet it as they would have. What is answered is kept as long
    /// as that configuration serves new streams; the same thing for other overrides is answered by the same pointer, and so is
    /// one that is there already. The worker does not ask for any number of things: the filter must be able to do without.
    fn warm(&self, _: &ScopedConfigs, _: &Place<'_>) -> Option<Rc<dyn Any>> {
        None
    }

    /// Files that the gateway-level configuration was read from: when one changes, the filter is built anew.
    fn files(&self) -> &[WatchedFile] {
        &[]
    }

    /// Whether building it now would give the same, as far as that depends on more than its configuration and its files.
    fn is_current(&self) -> bool {
        true
    }

    /// What it knows of requests so far, where that is worth keeping: a configuration that says the same of it goes on with this one.
    fn memory(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }

    /// Goes on with the `memory` of the filter in whose place it comes, as far as both say the same of it. Called before anybody asks
    /// it anything.
    fn inherit(&self, _memory: &(dyn Any + Send + Sync)) {}

    /// The same for an override that this filter parsed, and the one in whose place it comes.
    fn inherit_override(&self, _config: &RouteConfig, _before: &RouteConfig) {}

    /// It may leave something in the filter state for later requests of the same connection, or ask when that began.
    fn uses_connection(&self) -> bool {
        false
    }

    /// What the admin tells about it, when it is a plugin.
    fn plugin(&self) -> Option<&crate::plugin::Facts> {
        None
    }

    /// What the admin tells about a plugin beside its facts, as it is at the moment.
    fn standing(&self) -> crate::plugin::Standing {
        crate::plugin::Standing::default()
    }

    /// What of these overrides counts, for `explain` and the admin. `None` of a filter that is no plugin, or whose own code
    /// merges them.
    fn sight(&self, _: &ScopedConfigs) -> Option<Sight> {
        None
    }

    /// What the admin tells about a plugin's state for the time being.
    fn note(&self) -> Option<&'static str> {
        None
    }
}

/// Where a filter runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The worker's counters: a filter that counts takes a block of its own set.
    pub stats: &'a WorkerStats,
    /// The prefix in statistics of whoever has the filter: a connection manager, or a cluster (with a root of its own).
    pub stat_prefix: &'a str,
    /// The worker's number, from 0.
    pub worker: u32,
    /// Bytes of a message that may be held at once here; 0 when there is no limit.
    pub buffer_limit: usize,
    /// What the head of a client's request may have here, where that is bounded.
    pub head_limits: Option<HeadLimits>,
    /// The worker outside of any stream. It may outlive the worker, and then finds nothing any more.
    pub host: &'a Rc<dyn Host>,
}

/// The overrides that apply to a route, from the least specific to the most.
#[derive(Clone, Default)]
pub struct ScopedConfigs {
    pub table: Option<RouteConfig>,
    pub virtual_host: Option<RouteConfig>,
    pub route: Option<RouteConfig>,
    pub weighted_cluster: Option<RouteConfig>,
}

impl ScopedConfigs {
    /// The most specific one of type `T`.
    pub fn most_specific<T: 'static>(&self) -> Option<&T> {
        self.specific_first().next()
    }

    /// All that there are.
    pub fn each(&self) -> impl Iterator<Item = &RouteConfig> {
        self.each_level().flatten()
    }

    /// Of each scope, the widest first.
    pub fn each_level(&self) -> impl Iterator<Item = Option<&RouteConfig>> {
        [&self.table, &self.virtual_host, &self.route, &self.weighted_cluster].into_iter().map(Option::as_ref)
    }

    /// The one that hides the others where only one counts, with the name of its scope.
    pub fn narrowest(&self) -> Option<(&'static str, &RouteConfig)> {
        let scopes = [
            ("weighted cluster", &self.weighted_cluster),
            ("route", &self.route),
            ("virtual host", &self.virtual_host),
            ("route table", &self.table),
        ];
        scopes.into_iter().find_map(|(scope, config)| Some((scope, config.as_ref()?)))
    }

    /// All of type `T`, the most specific first.
    pub fn specific_first<T: 'static>(&self) -> impl DoubleEndedIterator<Item = &T> {
        [&self.weighted_cluster, &self.route, &self.virtual_host, &self.table]
            .into_iter()
            .filter_map(|config| config.as_ref()?.value.downcast_ref())
    }
}

/// What of this binary runs by configuration, by the full name of its configuration's type: filters, code that judges
/// texts, code that chooses clusters, code that turns connections away or looks at their bytes, access loggers, services, and code
/// that speaks to hosts in place of HTTP.
#[derive(Default)]
pub struct Registry {
    entries: Vec<(&'static str, Build)>,
    wrappers: Vec<(&'static str, BuildWrapper)>,
    judges: Vec<(&'static str, BuildJudge)>,
    choosers: Vec<(&'static str, BuildChooser)>,
    guards: Vec<(&'static str, BuildGuard)>,
    network: Vec<(&'static str, BuildNetwork)>,
    newcomers: Vec<(&'static str, BuildNewcomer)>,
    loggers: Vec<(&'static str, BuildLogger)>,
    services: Vec<(&'static str, BuildService)>,
    bridges: Vec<(&'static str, BuildBridge)>,
    runtimes: Vec<(&'static str, Build)>,
    /// Filters that were built to check their configurations and not taken yet, the oldest first.
    checked: Mutex<VecDeque<Checked>>,
}

/// A filter with what it was built from.
struct Checked {
    name: String,
    kind: String,
    config: Value,
    factory: Arc<dyn Factory>,
}

/// Whether a text matches.
pub type Judge = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The name of the cluster for a request; `None` when there is none for it.
pub type Chooser = Arc<dyn Fn(&RequestHead, &dyn Clusters) -> Option<String> + Send + Sync>;

/// The clusters and the stream, as far as whoever chooses one for it may look at them.
pub trait Clusters {
    /// `None` when there is no such cluster.
    fn load(&self, name: &str) -> Option<ClusterLoad>;

    /// An object of the stream's filter state.
    fn state(&self, name: &str) -> Option<&Value>;
}

/// How busy a cluster is, as far as this worker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterLoad {
    pub connections: u64,
    pub requests: u64,
    /// Those that wait for a connection.
    pub pending: u64,
}

pub type BuildJudge = fn(&Value) -> Result<Judge, ConfigError>;

pub type BuildChooser = fn(&Value) -> Result<Chooser, ConfigError>;

pub type BuildGuard = fn(&Value) -> Result<Arc<dyn GuardFactory>, ConfigError>;

/// Builds a factory from a filter's name in its chain and its gateway-level configuration.
pub type Build = fn(&str, &Value) -> Result<Arc<dyn Factory>, ConfigError>;

/// The same for a filter around another one, which it finds in the registry.
pub type BuildWrapper = fn(&Registry, &str, &Value) -> Result<Arc<dyn Factory>, ConfigError>;

impl Registry {
    pub fn register(&mut self, kind: &'static str, build: Build) {
        self.entries.push((kind, build));
    }

    pub fn register_wrapper(&mut self, kind: &'static str, build: BuildWrapper) {
        self.wrappers.push((kind, build));
    }

    pub fn register_judge(&mut self, kind: &'static str, build: BuildJudge) {
        self.judges.push((kind, build));
    }

    pub fn register_chooser(&mut self, kind: &'static str, build: BuildChooser) {
        self.choosers.push((kind, build));
    }

    pub fn register_guard(&mut self, kind: &'static str, build: BuildGuard) {
        self.guards.push((kind, build));
    }

    pub fn register_network(&mut self, kind: &'static str, build: BuildNetwork) {
        self.network.push((kind, build));
    }

    pub fn register_newcomer(&mut self, kind: &'static str, build: BuildNewcomer) {
        self.newcomers.push((kind, build));
    }

    pub fn register_logger(&mut self, kind: &'static str, build: BuildLogger) {
        self.loggers.push((kind, build));
    }

    pub fn register_service(&mut self, kind: &'static str, build: BuildService) {
        self.services.push((kind, build));
    }

    pub fn register_bridge(&mut self, kind: &'static str, build: BuildBridge) {
        self.bridges.push((kind, build));
    }

    /// A runtime of plugins, by the name that manifests give it.
    pub fn register_runtime(&mut self, name: &'static str, build: Build) {
        self.runtimes.push((name, build));
    }

    pub fn find_runtime(&self, name: &str) -> Option<Build> {
        self.runtimes.iter().find(|(known, _)| *known == name).map(|(_, build)| *build)
    }

    /// The names of the runtimes.
    pub fn runtimes(&self) -> impl Iterator<Item = &'static str> {
        self.runtimes.iter().map(|(name, _)| *name)
    }

    /// Whether anything of that type is there.
    pub fn knows(&self, kind: &str) -> bool {
        self.is_filter(kind)
            || self.find_judge(kind).is_some()
            || self.find_chooser(kind).is_some()
            || self.find_guard(kind).is_some()
            || self.find_network(kind).is_some()
            || self.find_newcomer(kind).is_some()
            || self.find_logger(kind).is_some()
            || self.find_service(kind).is_some()
            || self.find_bridge(kind).is_some()
    }

    /// All that is wrong with a configuration of that type. A filter whose configuration is good is kept for whoever builds
    /// it from this registry next: some are slow to build.
    pub fn check(&self, name: &str, kind: &str, config: &Value) -> ConfigError {
        let filter = self.build_anew(name, kind, config).map(|built| match built {
            Ok(factory) => {
                let (name, kind, config) = (name.to_owned(), kind.to_owned(), config.clone());
                self.checked().push_back(Checked { name, kind, config, factory });
                None
            }
            Err(errors) => Some(errors),
        });
        let judge = || self.find_judge(kind).map(|build| build(config).err());
        let chooser = || self.find_chooser(kind).map(|build| build(config).err());
        let guard = || self.find_guard(kind).map(|build| build(config).err());
        let network = || self.find_network(kind).map(|build| build(name, config).err());
        let newcomer = || self.find_newcomer(kind).map(|build| build(name, config).err());
        let logger = || self.find_logger(kind).map(|build| build(name, config).err());
        let service = || self.find_service(kind).map(|build| build(name, config).err());
        let bridge = || self.find_bridge(kind).map(|build| build(config).err());
        let found =
            filter.or_else(judge).or_else(chooser).or_else(guard).or_else(network).or_else(newcomer).or_else(logger);
        found.or_else(service).or_else(bridge).flatten().unwrap_or_default()
    }

    pub fn find_judge(&self, kind: &str) -> Option<BuildJudge> {
        self.judges.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_chooser(&self, kind: &str) -> Option<BuildChooser> {
        self.choosers.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_guard(&self, kind: &str) -> Option<BuildGuard> {
        self.guards.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_newcomer(&self, kind: &str) -> Option<BuildNewcomer> {
        self.newcomers.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_network(&self, kind: &str) -> Option<BuildNetwork> {
        self.network.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_logger(&self, kind: &str) -> Option<BuildLogger> {
        self.loggers.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_bridge(&self, kind: &str) -> Option<BuildBridge> {
        self.bridges.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    pub fn find_service(&self, kind: &str) -> Option<BuildService> {
        self.services.iter().find(|(name, _)| *name == kind).map(|(_, build)| *build)
    }

    /// The filter called `name` with a configuration of that type, as [`Registry::check`] built it if it did; `None` when
    /// no filter has it.
    pub fn build(&self, name: &str, kind: &str, config: &Value) -> Option<Result<Arc<dyn Factory>, ConfigError>> {
        let mut checked = self.checked();
        // They are built in the order in which they were checked: it is one of the first.
        let known = checked.iter().position(|it| it.name == name && it.kind == kind && it.config == *config);
        if let Some(known) = known.and_then(|index| checked.remove(index)) {
            return Some(Ok(known.factory));
        }
        drop(checked);
        self.build_anew(name, kind, config)
    }

    fn build_anew(&self, name: &str, kind: &str, config: &Value) -> Option<Result<Arc<dyn Factory>, ConfigError>> {
        if let Some((_, build)) = self.entries.iter().find(|(known, _)| *known == kind) {
            return Some(build(name, config));
        }
        let (_, build) = self.wrappers.iter().find(|(known, _)| *known == kind)?;
        Some(build(self, name, config))
    }

    /// The types of filters.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let wrappers = self.wrappers.iter().map(|(kind, _)| *kind);
        self.entries.iter().map(|(kind, _)| *kind).chain(wrappers)
    }

    /// A panic with the lock held leaves a whole list behind.
    fn checked(&self) -> MutexGuard<'_, VecDeque<Checked>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_filter(&self, kind: &str) -> bool {
        self.kinds().any(|known| known == kind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::fs::File;

    use super::*;

    #[test]
    fn contents_that_differ_in_anything_have_other_fingerprints() {
        let contents: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"abcdefgh", b"abcdefgi", b"abcdefgh\0", b"habcdefg", &[0; 64]];
        let all: Vec<u64> = contents.iter().map(|content| fingerprint(0, content)).collect();
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        let chained = |first, second| fingerprint(fingerprint(0, first), second);
        assert_ne!(chained(b"ab", b"c"), chained(b"a", b"bc"));
        assert_ne!(chained(b"a", b"b"), chained(b"b", b"a"));
    }

    #[test]
    fn a_file_that_is_compared_in_pieces_is_the_one_that_was_read_whole() {
        let path = std::env::temp_dir().join(format!("postrider-watched-file-{}", std::process::id()));
        for length in [0, 1, 8, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 13] {
            let mut content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            let whole = WatchedFile::new(&path, Some(&content));
            assert_eq!(whole, WatchedFile::of(&path, File::open(&path)), "{length}");
            assert!(whole.stands(File::open(&path)) && !whole.says_otherwise(File::open(&path)), "{length}");
            content.push(0);
            std::fs::write(&path, &content).unwrap();
            assert!(!whole.stands(File::open(&path)) && whole.says_otherwise(File::open(&path)), "{length} and one");
        }
        std::fs::remove_file(&path).unwrap();
        let gone = WatchedFile::of(&path, File::open(&path));
        assert!(
            gone.stands(File::open(&path)) && !gone.says_otherwise(File::open(&path)),
            "it was not there before either"
        );
        assert!(!WatchedFile::new(&path, Some(b"")).stands(File::open(&path)));
    }

    #[test]
    fn a_filter_that_was_checked_is_not_built_again() {
        static BUILT: AtomicUsize = AtomicUsize::new(0);
        struct Plain;
        impl Factory for Plain {
            fn route_config(&self, _: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
                Err(Vec::new())
            }
            fn filter(&self, _: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
                unreachable!("nothing is served here")
            }
        }
        let mut registry = Registry::default();
        registry.register("kind", |_, config| {
            BUILT.fetch_add(1, Ordering::Relaxed);
            match config {
                Value::Null => Err(vec![ValueError { path: String::new(), message: "no".to_owned() }]),
                _ => Ok(Arc::new(Plain)),
            }
        });
        let (one, two) = (Value::Bool(true), Value::Bool(false));
        assert!(registry.check("a", "kind", &one).is_empty() && registry.check("b", "kind", &one).is_empty());
        assert_eq!(registry.check("a", "kind", &Value::Null).len(), 1);
        let built = || BUILT.load(Ordering::Relaxed);
        let build = |name, value| registry.build(name, "kind", value).unwrap().is_ok();
        assert_eq!(built(), 3);
        assert!(build("a", &one) && build("b", &one));
        assert_eq!(built(), 3, "both were kept");
        assert!(build("a", &one) && build("a", &two) && !build("a", &Value::Null));
        assert_eq!(built(), 6, "nothing was kept for these");
    }
}
