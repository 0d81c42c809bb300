//! `run`: starts the workers, puts configurations in force, listens to the operator, and ends in order.
//!
//! One thread with a runtime of its own: it reads and checks configurations, resolves names, opens sockets and tells the
//! workers; nothing here is on the path of a request.

mod admin_log;
mod changes;
mod code;
mod discovery;
mod issuing;
mod manifests;
mod plugins;
mod reload;
mod scopes;
mod sinks;
mod state;
mod tap;
mod told;
mod values;
mod watch;

use std::borrow::Cow;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use postrider_admin::{Control, Drain, Server, ServerState};
use postrider_overload::Overload;
use postrider_telemetry::Registry;
use postrider_telemetry::access_log::LogWriter;
use postrider_telemetry::log::{LinePattern, set_pattern};
use postrider_telemetry::{error, info, warning};
use postrider_worker::Fleet;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::certificates;
use crate::exit::Exit;
use crate::flags::{DrainStrategy, Mode, RunOptions};
use reload::{Loader, Refused};
use state::{Order, State, Told};
use watch::FileWatch;

/// Milliseconds for which free memory waits for its next use. A burst of requests leaves nothing behind after them, and pages
/// that are in use all the time are not given back in between: 100 system calls among 10,000 requests on new connections.
const FREE_MEMORY: u16 = 10;

/// Orders of the admin that may wait; more of them would say the same.
const ORDERS: usize = 16;

/// How often a draining process looks whether its work is done.
const DRAIN_POLL: Duration = Duration::from_millis(50);

/// How often the configuration is read again in a row, before others have their turn.
const READS: usize = 10;

/// How often the log tells of certificates that end soon.
const CERTIFICATES_TOLD: Duration = Duration::from_secs(86_400);

/// What a line of the log looks like unless something else is written, as a pattern.
const USUAL_LINE: &str = "[%Y-%m-%d %T.%e][%P][%l][%n] %v";

/// Serves until told to stop.
pub fn run(options: RunOptions) -> ExitCode {
    // While there is one thread.
    #[cfg(feature = "golang")]
    {
        postrider_filter_golang::settle_checks();
        postrider_filter_golang::settle_processors(options.workers.get());
    }
    outcome(&options).into()
}

fn outcome(options: &RunOptions) -> Exit {
    postrider_telemetry::log::set_level(options.log.level);
    for (component, level) in &options.log.components.known {
        postrider_telemetry::log::set_component_level(*component, *level);
    }
    if let Some(format) = &options.log.format {
        set_pattern(LinePattern::parse(format, options.log.escaped));
    } else if options.log.escaped {
        set_pattern(LinePattern::parse(USUAL_LINE, true));
    }
    if let Some(path) = &options.log.path
        && let Err(error) = postrider_telemetry::log::open_file(path)
    {
        eprintln!("error: --log-path {}: {error}", path.display());
        return Exit::Failed;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return Exit::Failed;
        }
    };
    match runtime.block_on(serve(options)) {
        Ok(()) => Exit::Done,
        Err(Failure::Refused(refused)) => {
            eprint!("{}", refused.text());
            refused.exit()
        }
        Err(Failure::Io(what, error)) => {
            error!(Main, "{what}: {error}");
            Exit::Failed
        }
    }
}

enum Failure {
    Refused(Refused),
    Io(Cow<'static, str>, io::Error),
}

/// What the operator can do from outside.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
}

async fn serve(options: &RunOptions) -> Result<(), Failure> {
    let io = |what: &'static str| move |error| Failure::Io(what.into(), error);
    postrider_sys::keep_free_memory(FREE_MEMORY);
    if let Err(error) = postrider_sys::raise_file_limit() {
        warning!(Main, "the limit of open files stays as it is: {error}");
    }
    let mut signals = Signals::listen().map_err(io("signals cannot be received"))?;
    let registry = Registry::new();
    let logs = LogWriter::start(&registry, options.file_flush_interval).map_err(io("no thread for access logs"))?;
    let mut loader = Loader::new(options, registry.clone());
    // Code from elsewhere may be long in coming.
    let first = tokio::select! {
        first = loader.first() => first.map_err(Failure::Refused)?,
        _ = signals.terminate.recv() => return Ok(()),
        _ = signals.interrupt.recv() => return Ok(()),
    };
    if let Some(pattern) = &first.snapshot.log_pattern {
        if options.log.format.is_some() {
            let error = io::Error::other("--log-format says what a line looks like: write one of them");
            return Err(Failure::Io("application_log_config".into(), error));
        }
        set_pattern(LinePattern::parse(pattern, options.log.escaped));
    }
    let room = options.workers.get() <= postrider_sys::processor_count();
    let pin = options.pin || (first.snapshot.pins_workers && room);
    let fleet = Fleet::start(options.workers.get(), pin, options.drain_time, &registry)
        .map_err(io("no thread for a worker"))?;
    let fleet = Arc::new(fleet);
    let (orders, inbox) = mpsc::channel(ORDERS);
    let told = Told { command_line: options.command_line.clone(), stats_tags: options.stats_tags.clone() };
    let state = Arc::new(State::new(fleet.clone(), registry, loader.lookups(), told, orders));
    let admin = match &first.snapshot.admin {
        Some(admin) => {
            let log = admin_log::AdminLog::open(&admin.access_log, &logs);
            state.set_admin_log(log.map_err(io("the admin's access log cannot be opened"))?);
            state.allow(Some(admin));
            let server = Server::start(&admin.address, state.clone(), Vec::new());
            let refused = || format!("the admin interface cannot listen on {}", admin.address).into();
            Some(server.map_err(|error| Failure::Io(refused(), error))?)
        }
        None => None,
    };
    if let Some(admin) = &admin {
        info!(Admin, "admin address: {}", admin.address());
        if let Some(path) = &options.admin_address_path {
            std::fs::write(path, admin.address().to_string()).map_err(io("--admin-address-path"))?;
        }
    }
    state.enter(ServerState::Initializing);
    let mut overload = Overload::new(fleet.clone(), state.registry.clone());
    if options.mode != Mode::InitOnly {
        // Workers hear in order: the bounds are known before the first listener accepts.
        overload.follow(first.snapshot.overload.clone());
    }
    loader.apply(first, &state, &logs).await.map_err(Failure::Refused)?;
    loader.settle();
    state.enter(ServerState::Live);
    loader.count_start(state.started().elapsed().unwrap_or_default());
    for (name, addresses) in fleet.listeners() {
        for address in addresses {
            info!(Config, "listener {name}: {address}");
        }
    }
    info!(Main, "ready with {} worker(s)", fleet.workers());
    notify("READY=1");
    if options.mode != Mode::InitOnly {
        let (renewed, renewals) = mpsc::channel(1);
        let issuing = issuing::Issuing::new(renewed);
        let process =
            Process { options, state: &state, logs: &logs, loader, inbox, signals, issuing, renewals, overload };
        process.main_loop().await;
    }
    notify("STOPPING=1");
    state.enter(ServerState::Draining);
    state.sinks.stop();
    fleet.flush_logs().await;
    fleet.stop().await;
    postrider_filter_native::tap::finish();
    logs.shutdown();
    if let Some(admin) = admin {
        // Stopping waits for the admin's thread, which runs a runtime of its own.
        let _ = std::thread::spawn(move || admin.stop()).join();
    }
    Ok(())
}

/// The process while it serves.
struct Process<'a> {
    options: &'a RunOptions,
    state: &'a Arc<State>,
    logs: &'a LogWriter,
    loader: Loader<'a>,
    inbox: mpsc::Receiver<Order>,
    signals: Signals,
    issuing: issuing::Issuing,
    /// A certificate that we got ourselves was stored; answered when it is in use.
    renewals: mpsc::Receiver<oneshot::Sender<()>>,
    overload: Overload,
}

impl Process<'_> {
    async fn main_loop(mut self) {
        let mut watch = match self.options.watch.then(|| FileWatch::new(self.loader.files())) {
            Some(Ok(watch)) => Some(watch),
            Some(Err(error)) => {
                warning!(Config, "the configuration file is not watched: {error}; SIGHUP still reloads it");
                None
            }
            None => None,
        };
        // What changed since it was read, and before anybody watched it.
        self.reload(false, &mut watch).await;
        self.follow_settings();
        let mut draining: Option<Drain> = None;
        let mut draining_until: Option<Instant> = None;
        let mut day = tokio::time::interval(CERTIFICATES_TOLD);
        loop {
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            let drained = async {
                match draining_until {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.signals.terminate.recv() => return self.finish().await,
                _ = self.signals.interrupt.recv() => return self.finish().await,
                _ = self.signals.hang_up.recv() => self.reload(true, &mut watch).await,
                _ = self.signals.reopen.recv() => self.reopen_logs(),
                () = changed => self.reload(false, &mut watch).await,
                () = self.loader.code_came() => {
                    self.read_again(false, &mut watch).await;
                    self.follow_settings();
                }
                _ = day.tick() => self.tell_of_certificates(),
                // The file may stand where none was, which nobody watches.
                Some(done) = self.renewals.recv() => {
                    self.reload(true, &mut watch).await;
                    // Whoever is gone waits no more.
                    let _ = done.send(());
                }
                () = drained => {
                    draining_until = None;
                    self.stop_listeners(draining.unwrap_or_default()).await;
                }
                order = self.inbox.recv() => match order {
                    None | Some(Order::Quit) => return,
                    Some(Order::ReopenLogs) => self.reopen_logs(),
                    Some(Order::ModifyRuntime(changes, done)) => {
                        let modified = self.modify_runtime(changes, &mut watch).await;
                        // The admin may have given up.
                        let _ = done.try_send(modified);
                    }
                    Some(Order::WatchRoutes(time)) => self.state.fleet.watch_routes(time).await,
                    Some(Order::ChangePlugin(plugin, manifest, done)) => {
                        let change = self.loader.change_plugin(plugin, manifest, self.state, self.logs);
                        // Code from elsewhere may be long in coming; whoever wants the process to end does not wait for it.
                        let changed = tokio::select! {
                            changed = change => changed,
                            _ = self.signals.terminate.recv() => return self.finish().await,
                            _ = self.signals.interrupt.recv() => return self.finish().await,
                        };
                        if changed.is_ok() {
                            self.follow_files(&mut watch);
                            self.follow_settings();
                        }
                        let _ = done.try_send(changed);
                        if std::mem::take(&mut self.loader.displaced) {
                            self.read_again(true, &mut watch).await;
                            self.follow_settings();
                        }
                    }
                    // It is under way, of these listeners at least.
                    Some(Order::Drain(drain))
                        if drain.is_gradual()
                            && draining.is_some_and(|known| !known.inbound_only || drain.inbound_only) => {}
                    Some(Order::Drain(drain)) if drain.is_gradual() => {
                        draining = Some(drain);
                        let over = match self.options.drain_strategy {
                            DrainStrategy::Gradual => self.options.drain_time,
                            DrainStrategy::Immediate => Duration::ZERO,
                        };
                        match drain.inbound_only {
                            true => self.state.fleet.drain_inbound(over).await,
                            false => self.state.fleet.drain(false, over).await,
                        }
                        draining_until = (!drain.skip_exit).then(|| Instant::now() + self.options.drain_time);
                    }
                    Some(Order::Drain(drain)) => self.stop_listeners(drain).await,
                },
            }
        }
    }

    /// Reads the configuration again; `asked` also when it and its files say the same.
    async fn reload(&mut self, mut asked: bool, watch: &mut Option<FileWatch>) {
        for _ in 0..READS {
            // Again when a file changed before the watch of it began. One that changes all the time is noticed later, too.
            if !(watch.is_some() && self.loader.is_outdated() || asked) {
                break;
            }
            asked = false;
            self.read_again(true, watch).await;
        }
        self.loader.tell_of_gone_files();
        self.follow_settings();
    }

    /// See [`Loader::modify`].
    async fn modify_runtime(
        &mut self,
        changes: Vec<values::Change>,
        watch: &mut Option<FileWatch>,
    ) -> Result<(), String> {
        self.loader.modify(changes, self.state, self.logs).await?;
        self.follow_files(watch);
        self.follow_settings();
        Ok(())
    }

    fn follow_files(&self, watch: &mut Option<FileWatch>) {
        if let Some(watch) = watch
            && let Err(error) = watch.watch(self.loader.files())
        {
            warning!(Config, "not every file of the configuration is watched: {error}; SIGHUP still reloads");
        }
    }

    /// See [`Loader::reload`].
    async fn read_again(&mut self, anew: bool, watch: &mut Option<FileWatch>) {
        notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", postrider_sys::monotonic_nanos() / 1_000));
        self.loader.reload(anew, self.state, self.logs).await;
        self.follow_files(watch);
        notify("READY=1");
    }

    /// Gets the certificates that the configuration in force wants, and no others; the same for what is measured.
    fn follow_settings(&mut self) {
        let current = self.state.current().map(|current| current.snapshot);
        let sinks = current.as_ref().and_then(|snapshot| snapshot.stats_sinks.clone());
        self.state.sinks.follow(sinks, self.state);
        self.overload.follow(current.as_ref().and_then(|snapshot| snapshot.overload.clone()));
        self.issuing.follow(current.and_then(|snapshot| snapshot.acme.clone()));
    }

    /// At the start, and then once a day: some end while nobody changes the configuration.
    fn tell_of_certificates(&self) {
        let Some(plan) = self.state.fleet.plan() else { return };
        for (_, message) in certificates::ending(&plan, SystemTime::now()) {
            warning!(Config, "{message}");
        }
    }

    async fn stop_listeners(&self, drain: Drain) {
        let Some(current) = self.state.current() else { return };
        let listeners = current.snapshot.listeners.iter();
        let names: Vec<String> = listeners
            .filter(|listener| !drain.inbound_only || listener.direction == postrider_model::Direction::Inbound)
            .map(|listener| listener.name.clone())
            .collect();
        self.loader.count_stopped(names.len());
        self.state.fleet.stop_listeners(&names).await;
    }

    fn reopen_logs(&self) {
        self.logs.reopen();
        postrider_filter_lua::reopen_logs();
        if let Err(error) = postrider_telemetry::log::reopen() {
            error!(Main, "the log file cannot be opened again: {error}");
        }
    }

    /// No new connections; requests under way end; then the process does. A second signal ends it at once.
    async fn finish(mut self) {
        info!(Main, "draining for up to {} s; a second signal ends at once", self.options.drain_time.as_secs());
        notify("STOPPING=1");
        self.state.enter(ServerState::Draining);
        self.state.fleet.drain(true, Duration::ZERO).await;
        let until = Instant::now() + self.options.drain_time;
        loop {
            let reports = self.state.fleet.inspect().await;
            if reports.iter().all(|report| report.busy == 0 && report.connections == 0) {
                return;
            }
            if Instant::now() >= until {
                let left: usize = reports.iter().map(|report| report.busy).sum();
                warning!(Main, "the drain time is over with {left} request(s) under way");
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(DRAIN_POLL) => {}
                _ = self.signals.terminate.recv() => return,
                _ = self.signals.interrupt.recv() => return,
                order = self.inbox.recv() => if matches!(order, None | Some(Order::Quit)) {
                    return;
                },
            }
        }
    }
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }
}

/// Tells systemd, if it started us.
fn notify(state: &str) {
    if let Err(error) = postrider_sys::notify_service_manager(state) {
        warning!(Main, "systemd cannot be notified: {error}");
    }
}
