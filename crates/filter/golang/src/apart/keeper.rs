//! A library's process: started with the first configuration that needs it, again whenever it ends by itself, and ended
//! with the last.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use postrider_filter_api::Remote;
use postrider_telemetry::log::{self, Component, Level};
use postrider_telemetry::{error, info, warning};

use super::control::{self, News, Wish};
use super::lane;
use super::ring::Segment;
use super::serve::COMMAND;
use super::watch::{Limits, Watch, hang_up};
use crate::LOG_SPEAKER;
use crate::metrics::{Metrics, Sort};
use crate::object::{self, FileIdentity};

/// How long a process may take to load its library, and to parse a configuration.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that lived so long is started again at once when it ends.
const STEADY: Duration = Duration::from_secs(10);

/// How much memory Go's collector tries to get by with, in bytes.
const GO_MEMORY: &str = "GOMEMLIMIT";

/// How long the second start in a row waits; each further one waits twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// A library in a process, for as long as a configuration needs it.
#[derive(Debug)]
pub(crate) struct Child {
    /// Distinct for each library that ever was.
    pub(crate) id: u64,
    pub(crate) digest: String,
    keeper: Arc<Keeper>,
}

/// What the thread that looks after a process shares with others.
#[derive(Debug)]
struct Keeper {
    id: u64,
    path: PathBuf,
    file: FileIdentity,
    workers: u32,
    limits: Limits,
    /// Which start the process is that runs now; 0 while none does.
    running: AtomicU64,
    state: Mutex<State>,
    /// Whose turn it is to speak to the process: words of several threads must not be mixed.
    turn: Mutex<()>,
    /// Told when nobody needs it any more, and when somebody waits for a verdict of it.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closing: bool,
    started: u64,
    process: Option<Process>,
    configs: BTreeMap<u64, Spec>,
    /// Who waits for a configuration's verdict.
    waiting: HashMap<u64, SyncSender<bool>>,
    /// Workers that have plugins of the library.
    watchers: BTreeMap<u32, Remote>,
}

/// A configuration, as every process of the library is told it.
#[derive(Debug, Clone)]
struct Spec {
    plugin: &'static str,
    made: Made,
}

#[derive(Debug, Clone)]
enum Made {
    Parsed {
        any: Arc<[u8]>,
        /// Of a filter's own.
        metrics: Option<Arc<Metrics>>,
    },
    /// From two others.
    Merged { parent: u64, child: u64 },
}

#[derive(Debug)]
struct Process {
    control: Arc<UnixStream>,
    segment: Arc<Segment>,
    lanes: Vec<Option<UnixStream>>,
}

/// The proxy's end of a lane.
pub(super) struct LaneEnds {
    pub(super) segment: Arc<Segment>,
    pub(super) socket: UnixStream,
}

static CHILDREN: Mutex<Vec<Weak<Child>>> = Mutex::new(Vec::new());

impl Child {
    /// The process of the library at this path with these limits, started if there is none yet. Another file under the same
    /// path is another library.
    ///
    /// # Errors
    /// Why it cannot be loaded, or cannot be what this host runs.
    pub(crate) fn of(path: &Path, workers: u32, limits: Limits) -> Result<Arc<Child>, String> {
        let shown = path.display();
        let path = std::path::absolute(path).map_err(|error| format!("cannot find {shown}: {error}"))?;
        let file = FileIdentity::of(&path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        // A panic with the lock held leaves a whole list behind.
        let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|child| child.strong_count() > 0);
        let is_same = |keeper: &Keeper| keeper.path == path && keeper.file == file && keeper.limits == limits;
        if let Some(known) = children.iter().filter_map(Weak::upgrade).find(|child| is_same(&child.keeper)) {
            return Ok(known);
        }
        let examined = object::examine(&path)?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let keeper = Arc::new(Keeper {
            id,
            path,
            file,
            workers,
            limits,
            running: AtomicU64::new(0),
            state: Mutex::default(),
            turn: Mutex::default(),
            news: Condvar::new(),
        });
        let child = Arc::new(Child { id, digest: examined.digest, keeper: keeper.clone() });
        let (said, heard) = sync_channel(1);
        let thread = std::thread::Builder::new().name("go-keeper".to_owned());
        thread.spawn(move || keep(&keeper, &said)).map_err(|error| format!("cannot start a thread: {error}"))?;
        match heard.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(why),
            Err(_) => return Err(format!("the process for {shown} does not say that it is ready")),
        }
        children.push(Arc::downgrade(&child));
        Ok(child)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.keeper.path
    }

    /// Which start the process is that runs; `None` while none does.
    #[inline]
    pub(super) fn running(&self) -> Option<u64> {
        Some(self.keeper.running.load(Ordering::Acquire)).filter(|number| *number != 0)
    }

    /// A worker's lane to that process, which it takes once.
    pub(super) fn lane(&self, number: u64, worker: u32) -> Option<LaneEnds> {
        let mut state = self.keeper.lock();
        if state.started != number {
            return None;
        }
        let process = state.process.as_mut()?;
        let socket = process.lanes.get_mut(worker as usize)?.take()?;
        Some(LaneEnds { segment: process.segment.clone(), socket })
    }

    pub(super) fn watch(&self, worker: u32, remote: &Remote) {
        self.keeper.lock().watchers.insert(worker, remote.clone());
    }

    /// Has Go code parse a configuration. Never on a worker.
    ///
    /// # Errors
    /// `None`: Go code refuses it, and has logged why. Otherwise what went wrong.
    pub(crate) fn parse(
        &self,
        plugin: &'static str,
        any: &[u8],
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<u64, Option<String>> {
        let spec = Spec { plugin, made: Made::Parsed { any: any.into(), metrics: metrics.cloned() } };
        let (told, verdict) = sync_channel(1);
        let key = self.add(&spec, Some(told));
        let verdict = verdict.recv_timeout(PATIENCE);
        match verdict {
            Ok(true) => return Ok(key),
            Ok(false) | Err(RecvTimeoutError::Disconnected) => {}
            // Nothing else would end it.
            Err(RecvTimeoutError::Timeout) => {
                if let Some(process) = &self.keeper.lock().process {
                    hang_up(&process.control);
                }
            }
        }
        self.forget(key);
        match verdict {
            Ok(_) => Err(None),
            Err(_) => Err(Some("its process ended, or said nothing, while it read this configuration".to_owned())),
        }
    }

    /// Has Go code merge one configuration into another. Nobody waits for that: whoever begins a stream with the number
    /// finds it merged, or refused.
    pub(crate) fn merge(&self, plugin: &'static str, parent: u64, child: u64) -> u64 {
        self.add(&Spec { plugin, made: Made::Merged { parent, child } }, None)
    }

    fn add(&self, spec: &Spec, told: Option<SyncSender<bool>>) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let (key, control) = {
            let mut state = self.keeper.lock();
            // With the lock held: who starts a process takes it that numbers come in their order.
            let key = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            state.configs.insert(key, spec.clone());
            if let Some(told) = told {
                state.waiting.insert(key, told);
            }
            (key, state.process.as_ref().map(|process| process.control.clone()))
        };
        // Whoever starts a process tells it of all configurations.
        match control {
            Some(control) => self.keeper.say(&control, &spec.wish(key)),
            None => self.keeper.news.notify_all(),
        }
        key
    }

    /// Nobody needs a configuration any more.
    pub(crate) fn forget(&self, key: u64) {
        let control = {
            let mut state = self.keeper.lock();
            state.configs.remove(&key);
            state.waiting.remove(&key);
            state.process.as_ref().map(|process| process.control.clone())
        };
        if let Some(control) = control {
            self.keeper.say(&control, &Wish::Forget { key });
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut state = self.keeper.lock();
        state.closing = true;
        if let Some(process) = &state.process {
            hang_up(&process.control);
        }
        drop(state);
        self.keeper.news.notify_all();
    }
}

impl Spec {
    fn wish(&self, key: u64) -> Wish<'_> {
        let plugin = self.plugin.to_owned();
        match &self.made {
            Made::Parsed { any, metrics } => Wish::Parse { key, plugin, any, of_route: metrics.is_none() },
            Made::Merged { parent, child } => Wish::Merge { key, plugin, parent: *parent, child: *child },
        }
    }
}

impl Keeper {
    /// A panic with the lock held leaves whole lists behind.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, control: &UnixStream, wish: &Wish<'_>) {
        // A panic with the lock held leaves nothing behind.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // That it is gone is found out by its keeper; what it was told of is, too.
        let _ = control::write(control, wish);
    }

    /// Waits, or less when nobody needs the process any more, which it answers, or somebody waits for a verdict: the configuration
    /// may be the one that ends what keeps going wrong.
    fn rests(&self, time: Duration) -> bool {
        let state = self.lock();
        let waited = self.news.wait_timeout_while(state, time, |state| !state.closing && state.waiting.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }
}

/// The thread that looks after a process. `first` hears how the first start went.
fn keep(keeper: &Keeper, first: &SyncSender<Result<(), String>>) {
    let mut delay = Duration::ZERO;
    let mut is_first = true;
    loop {
        let began = Instant::now();
        let ended = match run(keeper, is_first.then_some(first)) {
            Ok(ended) => ended,
            Err(why) if is_first => {
                // Nobody waits for it who is gone.
                let _ = first.try_send(Err(why));
                return;
            }
            Err(why) => why,
        };
        is_first = false;
        if began.elapsed() >= STEADY {
            delay = Duration::ZERO;
        }
        let shown = keeper.path.display();
        if keeper.lock().closing {
            return;
        }
        warning!(Filter, "the process of the Go library {shown} ended: {ended}; it starts again in {delay:.1?}");
        if keeper.rests(delay) {
            return;
        }
        delay = (delay * 2).clamp(FIRST_DELAY, LONGEST_DELAY);
    }
}

/// One process from its start to its end; how that was.
fn run(keeper: &Keeper, first: Option<&SyncSender<Result<(), String>>>) -> Result<String, String> {
    let began = Instant::now();
    let shown = keeper.path.display();
    let lanes = keeper.workers as usize;
    let failed = |error: io::Error| format!("cannot start a process for {shown}: {error}");
    let (segment, memory) = Segment::create(lanes).map_err(failed)?;
    segment.level().store(log::level(Component::Filter) as u32, Ordering::Relaxed);
    let (control, their_control) = UnixStream::pair().map_err(failed)?;
    let pairs: Vec<_> = (0..lanes).map(|_| UnixStream::pair()).collect::<Result<_, _>>().map_err(failed)?;
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let mut fds = vec![memory, their_control.into()];
    fds.extend(theirs.into_iter().map(OwnedFd::from));
    let mut child = spawn(&keeper.path, &fds, keeper.limits).map_err(failed)?;
    let process = child.id();
    drop(fds);
    // Whoever says nothing for so long is ended.
    let ended = control.set_read_timeout(Some(PATIENCE)).map_err(failed).and_then(|()| {
        let mut statistics = Statistics::default();
        let mut told = Told::default();
        let mut state = loop {
            begin(keeper, &control, &mut told, &mut statistics)?;
            let state = keeper.lock();
            // One may have come since; from here on, whoever has one tells the process.
            if state.configs.range(told.upto + 1..).next().is_none() {
                break state;
            }
        };
        control.set_read_timeout(None).map_err(failed)?;
        let control = Arc::new(control);
        state.started += 1;
        let segment = Arc::new(segment);
        let mut watch = Watch::new(keeper.limits, process, lanes);
        let lanes = ours.into_iter().map(Some).collect();
        state.process = Some(Process { control: control.clone(), segment: segment.clone(), lanes });
        if state.closing {
            // It hears that nobody needs it any more.
            hang_up(&control);
        }
        let number = state.started;
        drop(state);
        keeper.running.store(number, Ordering::Release);
        match first {
            // Nobody waits for it who is gone.
            Some(first) => drop(first.try_send(Ok(()))),
            None => tell_watchers(keeper),
        }
        info!(
            Filter,
            "the Go library {shown} runs in process {}, started in {:.1?}{}",
            process,
            began.elapsed(),
            if number > 1 { format!(" for the {number}. time") } else { String::new() }
        );
        loop {
            if let Err(why) = watch.wait(&control, &segment) {
                return Ok(Some(why));
            }
            let Ok(message) = control::read(&*control) else { return Ok(None) };
            match News::read(&message) {
                Some(news) => hear(keeper, &mut statistics, news),
                None => return Ok(None),
            }
        }
    });
    keeper.running.store(0, Ordering::Release);
    {
        let mut state = keeper.lock();
        state.process = None;
        // Whoever waits for a verdict waits no longer.
        state.waiting.clear();
    }
    // One that only closed its end goes on otherwise.
    let _ = child.kill();
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    ended.map(|why| why.unwrap_or(status))
}

fn spawn(path: &Path, fds: &[OwnedFd], limits: Limits) -> io::Result<std::process::Child> {
    let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("postrider").arg(COMMAND).arg(path).args(numbers.iter().map(ToString::to_string));
    command.stdin(Stdio::null());
    if let Some(memory) = limits.memory.filter(|_| std::env::var_os(GO_MEMORY).is_none()) {
        // Go collects more before it takes so much that it would be ended; a tenth is for what is not Go's.
        command.env(GO_MEMORY, (memory / 10 * 9).to_string());
    }
    // SAFETY: between fork and exec, only a call of the system that may be made there, on numbers.
    unsafe {
        command.pre_exec(move || {
            // They are closed in every other process that is started.
            for fd in &numbers {
                libc::fcntl(*fd, libc::F_SETFD, 0);
            }
            Ok(())
        });
    }
    command.spawn()
}

/// What a process was told of.
#[derive(Default)]
struct Told {
    /// Its library is loaded.
    ready: bool,
    /// Configurations with numbers up to this.
    upto: u64,
}

/// Until the process has loaded its library and every configuration that there is.
fn begin(keeper: &Keeper, control: &UnixStream, told: &mut Told, statistics: &mut Statistics) -> Result<(), String> {
    let shown = keeper.path.display();
    let gone = |error: io::Error| format!("its process ended or said nothing: {error}");
    loop {
        // Numbers of configurations only grow.
        let next = keeper.lock().configs.range(told.upto + 1..).next().map(|(key, spec)| (*key, spec.clone()));
        if told.ready {
            match &next {
                None => return Ok(()),
                Some((key, spec)) => control::write(control, &spec.wish(*key)).map_err(gone)?,
            }
        }
        loop {
            let message = control::read(control).map_err(gone)?;
            match News::read(&message).ok_or("its process says what nobody understands")? {
                News::Ready => {
                    told.ready = true;
                    break;
                }
                News::Failed(why) => return Err(why),
                News::Parsed { key, accepted } => {
                    told.upto = key;
                    let waits = keeper.lock().waiting.remove(&key);
                    match waits {
                        Some(waits) => drop(waits.try_send(accepted)),
                        None if !accepted => {
                            error!(Filter, "the Go library {shown} refuses a configuration that it took before");
                        }
                        None => {}
                    }
                    break;
                }
                other => hear(keeper, statistics, other),
            }
        }
    }
}

/// Numbers of statistics in a process, and here.
#[derive(Default)]
struct Statistics(HashMap<(u64, u32), (Arc<Metrics>, u32)>);

fn hear(keeper: &Keeper, statistics: &mut Statistics, news: News) {
    match news {
        News::Ready | News::Failed(_) => {}
        News::Parsed { key, accepted } => {
            let waits = keeper.lock().waiting.remove(&key);
            if let Some(waits) = waits {
                // It may have waited long enough.
                let _ = waits.try_send(accepted);
            }
        }
        News::Log { level, message } => {
            let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warning, Level::Error, Level::Critical];
            if let Some(level) = levels.get(level as usize) {
                log::write_of(LOG_SPEAKER, Component::Filter, *level, format_args!("{message}"));
            }
        }
        News::Define { key, id, sort, name } => {
            let metrics = match keeper.lock().configs.get(&key) {
                Some(Spec { made: Made::Parsed { metrics, .. }, .. }) => metrics.clone(),
                Some(_) | None => None,
            };
            if let Some(metrics) = metrics
                && let Some(ours) = metrics.define(sort, &name)
            {
                if sort == Sort::Gauge {
                    // What the process before this one counted is gone with it.
                    metrics.record(ours, 0);
                }
                statistics.0.insert((key, id), (metrics, ours));
            }
        }
        News::Increment { key, id, offset } => {
            if let Some((metrics, ours)) = statistics.0.get(&(key, id)) {
                metrics.increment(*ours, offset);
            }
        }
        News::Record { key, id, value } => {
            if let Some((metrics, ours)) = statistics.0.get(&(key, id)) {
                metrics.record(*ours, value);
            }
        }
    }
}

/// One worker counts the restart.
fn tell_watchers(keeper: &Keeper) {
    let id = keeper.id;
    let mut state = keeper.lock();
    while let Some(watcher) = state.watchers.first_entry() {
        if watcher.get().post(move || lane::count_restart(id)).is_ok() {
            return;
        }
        watcher.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_keeps_ending_is_started_for_a_new_configuration_without_delay() {
        let file = FileIdentity::of(&std::env::current_exe().unwrap()).unwrap();
        let keeper = Arc::new(Keeper {
            id: 0,
            path: PathBuf::new(),
            file,
            workers: 1,
            limits: Limits::default(),
            running: AtomicU64::new(0),
            state: Mutex::default(),
            turn: Mutex::default(),
            news: Condvar::new(),
        });
        let child = Child { id: 0, digest: String::new(), keeper: keeper.clone() };
        let rests = |keeper: Arc<Keeper>| std::thread::spawn(move || keeper.rests(Duration::MAX));
        let resting = rests(keeper.clone());
        let (told, _verdict) = sync_channel(1);
        let spec = Spec { plugin: "p", made: Made::Merged { parent: 1, child: 2 } };
        child.add(&spec, Some(told));
        assert!(!resting.join().unwrap(), "it is still needed");
        keeper.lock().waiting.clear();
        let resting = rests(keeper);
        drop(child);
        assert!(resting.join().unwrap());
    }
}
