//! Code from elsewhere for the plugins of a configuration: fetched by tasks of the control thread, while everything goes
//! on; what failed is tried again.
//!
//! ```text
//!  read ── all here ──────────────────────────────> put in force
//!    └── some wanted ──> fetch ──> read again ──┬──> put in force
//!                          ^                    └──> refused, or left out at the start
//!                          └── after a pause ───────────┘
//! ```

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_fetch::{Cache, Endpoint, Fetched, Fetcher, Way};
use postrider_filter_plugin::{Place, Remote, library};
use postrider_model::{Address, Discovery, DnsName, Locality, Metadata, UpstreamProtocol};
use postrider_telemetry::stats::sets::{remote_code as stat, remote_modules as of_modules};
use postrider_telemetry::{Block, Counter, WorkerStats, info, warning};
use postrider_worker::Plan;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// After code could not be fetched, it is tried again when so much time has passed…
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// … and then ever less often, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The code that is fetched.
pub struct Deliveries {
    fetcher: Arc<Fetcher>,
    counts: Rc<Block>,
    /// What modules of WebAssembly have of it; `None` while there was none.
    modules: Option<Rc<Block>>,
    stats: WorkerStats,
    /// What is under way; it ends with what came of each.
    task: Option<JoinHandle<Vec<Delivery>>>,
    /// A configuration waits for what is under way, whatever comes of it.
    awaited: bool,
    /// What failed, and when it is tried again.
    again: Option<(Instant, Vec<Order>)>,
    pause: Duration,
}

/// Code with the way to it.
#[derive(Clone)]
struct Order {
    remote: Remote,
    way: Result<Way, String>,
}

struct Delivery {
    order: Order,
    outcome: Result<Fetched, String>,
    /// Tries that failed.
    failures: u64,
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Deliveries {
    pub fn new(stats: &WorkerStats) -> Deliveries {
        Deliveries {
            fetcher: Arc::new(Fetcher::new(Cache::of_user())),
            counts: stats.block(&stat::SET, ""),
            modules: None,
            stats: stats.clone(),
            task: None,
            awaited: false,
            again: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Nothing that was asked for before matters any more.
    pub fn forget(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        (self.again, self.awaited) = (None, false);
    }

    /// Fetches what `plan` is built without.
    pub fn begin(&mut self, wanted: Vec<Remote>, plan: &Plan) {
        self.forget();
        self.pause = FIRST_PAUSE;
        for remote in &wanted {
            info!(Config, "fetching code from {}", remote.name());
        }
        for remote in &wanted {
            self.count(remote, stat::REMOTE_LOAD_CACHE_MISSES, of_modules::REMOTE_LOAD_CACHE_MISSES, 1);
        }
        let orders = wanted.into_iter().map(|remote| Order { way: way(&remote, plan), remote });
        self.start(orders.collect());
        self.awaited = true;
    }

    /// Waits until what was begun is here or failed, and puts it down. Whether the configuration is to be read again: it
    /// waits for this, or something came that it lacks.
    pub async fn arrive(&mut self) -> bool {
        let Some(task) = &mut self.task else { return false };
        let delivered = task.await.unwrap_or_default();
        self.task = None;
        let mut counts = std::mem::take(&mut self.awaited);
        let mut failed = Vec::new();
        for Delivery { order, outcome, failures } in delivered {
            let of_module = of_modules::REMOTE_LOAD_FETCH_FAILURES;
            self.count(&order.remote, stat::REMOTE_LOAD_FETCH_FAILURES, of_module, failures);
            let name = order.remote.name();
            let outcome = match outcome {
                Ok(Fetched { bytes, cached }) => {
                    let (counter, of_module, whence) = match cached {
                        true => {
                            (stat::REMOTE_LOAD_CACHE_HITS, of_modules::REMOTE_LOAD_CACHE_HITS, "found in the cache")
                        }
                        false => {
                            (stat::REMOTE_LOAD_FETCH_SUCCESSES, of_modules::REMOTE_LOAD_FETCH_SUCCESSES, "fetched")
                        }
                    };
                    self.count(&order.remote, counter, of_module, 1);
                    info!(Config, "code from {name}: {} bytes, {whence}", bytes.len());
                    counts = true;
                    Ok(bytes)
                }
                Err(reason) => {
                    warning!(Config, "code from {name} cannot be fetched: {reason}");
                    failed.push(order.clone());
                    Err(reason)
                }
            };
            library().put(order.remote, outcome);
        }
        self.again = (!failed.is_empty()).then(|| (Instant::now() + self.pause, failed));
        self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        counts
    }

    /// The same for the main loop, for ever: also tries again what failed. Whoever gives up waiting misses nothing by it.
    pub async fn changed(&mut self) -> bool {
        if self.task.is_some() {
            return self.arrive().await;
        }
        let Some((at, _)) = &self.again else { return pending().await };
        tokio::time::sleep_until(*at).await;
        let orders = self.again.take().map(|(_, orders)| orders).unwrap_or_default();
        self.start(orders);
        self.arrive().await
    }

    /// A configuration is in force: what it does not name is forgotten. For `waits` see [`Deliveries::retain`].
    pub fn settle(&mut self, waits: bool) {
        let kept = library().settle();
        self.counts.gauge_set(stat::REMOTE_LOAD_CACHE_ENTRIES, kept as u64);
        if let Some(modules) = &self.modules {
            modules.gauge_set(of_modules::REMOTE_LOAD_CACHE_ENTRIES, library().kept_below(of_modules::SET.root) as u64);
        }
        self.retain(waits);
    }

    /// What the configuration in force goes without is tried again, and all that failed where another configuration `waits`
    /// for it; nothing else.
    pub fn retain(&mut self, waits: bool) {
        if waits {
            return;
        }
        let left_out = library().left_out();
        if let Some((_, orders)) = &mut self.again {
            orders.retain(|order| left_out.contains(&order.remote));
        }
        self.again.take_if(|(_, orders)| orders.is_empty());
    }

    /// Counts something of this code, and among modules of WebAssembly if it is one.
    fn count(&mut self, remote: &Remote, counter: Counter, of_module: Counter, times: u64) {
        self.counts.add(counter, times);
        if library().counted_below(remote) == Some(of_modules::SET.root) {
            let modules = self.modules.get_or_insert_with(|| self.stats.block(&of_modules::SET, ""));
            modules.add(of_module, times);
        }
    }

    fn start(&mut self, orders: Vec<Order>) {
        let mut all = JoinSet::new();
        for order in orders {
            let fetcher = self.fetcher.clone();
            all.spawn(async move {
                let failures = AtomicU64::new(0);
                let count = |_: &str| {
                    failures.fetch_add(1, Ordering::Relaxed);
                };
                let way = order.way.as_ref().map_err(String::as_str);
                let outcome = fetcher.fetch(&order.remote, way, count).await;
                Delivery { order, outcome, failures: failures.into_inner() }
            });
        }
        self.task = Some(tokio::spawn(all.join_all()));
    }
}

/// How the cluster that the code names is reached.
fn way(remote: &Remote, plan: &Plan) -> Result<Way, String> {
    let Place::Cluster { cluster: name, .. } = &remote.place else { return Err(String::new()) };
    let cluster = plan.clusters.iter().find(|cluster| *cluster.name == **name);
    let cluster = cluster.ok_or_else(|| format!("there is no cluster `{name}`"))?;
    if !matches!(cluster.model.upstream.protocol, UpstreamProtocol::Http1 | UpstreamProtocol::Auto) {
        return Err(format!("the cluster `{name}` speaks HTTP/2; code is fetched by HTTP/1.1"));
    }
    let transport = |about: &Option<Arc<Metadata>>, place: &Option<Arc<Locality>>| {
        cluster.model.transport_for(about.as_deref(), place.as_deref())
    };
    let (endpoints, transports): (Vec<Endpoint>, Vec<Option<usize>>) = match &cluster.model.discovery {
        Discovery::Static(endpoints) => {
            let endpoint = |endpoint: &postrider_model::Endpoint| match &endpoint.address {
                Address::Tcp(address) => {
                    let host = (!endpoint.hostname.is_empty()).then(|| endpoint.hostname.clone());
                    Endpoint::Address(*address, host)
                }
                Address::Unix { path, .. } => Endpoint::Unix(path.clone()),
            };
            endpoints.iter().map(|each| (endpoint(each), transport(&each.metadata, &each.place))).unzip()
        }
        Discovery::StrictDns(names) | Discovery::LogicalDns(names) => {
            let endpoint = |name: &DnsName| Endpoint::Name(name.host.clone(), name.port);
            names.names.iter().map(|name| (endpoint(name), transport(&name.metadata, &name.place))).unzip()
        }
        Discovery::Original(_) => return Err(format!("the cluster `{name}` has no endpoints of its own")),
    };
    let first = transports.first().copied().flatten();
    if transports.iter().any(|other| *other != first) {
        return Err(format!("the hosts of the cluster `{name}` have different transports; code is fetched by one"));
    }
    Ok(Way::of_cluster(endpoints, cluster.transport_at(first).tls.clone()))
}
