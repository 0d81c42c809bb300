//! What collectors of OpenTelemetry are told of requests: entries gather, and leave together by one call each time.
//!
//! ```text
//! request ── entry ──> gathered ── when many or old enough ──> call ──> collector
//!                         │ full, as too many calls are under way
//!                         └──> dropped and counted
//! ```
//!
//! Nobody waits for anything here but the task that a worker ends with. Who asks: traces, and access logs.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use postrider_grpc::Message;
use postrider_grpc::otlp::spans::{EXPORT_LOGS, EXPORT_TRACES, Scope, append, request};
use postrider_grpc::otlp::{KeyValue, Resource};
use postrider_model::{OtlpTarget, Tracer};
use postrider_telemetry::stats::sets::{open_telemetry_access_log as log_stat, tracing_opentelemetry as span_stat};
use postrider_telemetry::{Block, debug};
use tokio::sync::Notify;

use crate::sinks::{FAREWELL, export};
use crate::worker::Worker;

/// Calls under way at most. What comes meanwhile gathers, so that a collector that is slow gets fewer and larger ones.
const MAX_CALLS: usize = 4;

/// What calls itself the maker of spans.
const SCOPE: &str = "postrider";

/// Whom to tell what, and how much of it gathers. Whoever says the same shares an exporter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    pub(crate) to: OtlpTarget,
    pub(crate) signal: Signal,
    pub(crate) resource: Resource,
    pub(crate) scope: Option<Scope>,
    /// So many entries or bytes of them are sent at once.
    pub(crate) enough: usize,
    pub(crate) enough_bytes: usize,
    /// With so many entries or bytes of them no further one is taken.
    pub(crate) most: usize,
    pub(crate) most_bytes: usize,
    /// How long an entry waits for others at most.
    pub(crate) interval: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal {
    Spans,
    /// Counted under this name.
    Logs(String),
}

impl Rules {
    pub(crate) fn of_tracer(tracer: &Tracer) -> Rules {
        let attributes = tracer.resource.iter().map(|(name, value)| KeyValue::text(name, value)).collect();
        let scope = || Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        Rules {
            to: tracer.to.clone(),
            signal: Signal::Spans,
            resource: Resource { attributes },
            scope: tracer.tells_scope.then(scope),
            enough: tracer.flush_spans,
            enough_bytes: usize::MAX,
            most: tracer.max_spans,
            most_bytes: usize::MAX,
            interval: tracer.flush_interval,
        }
    }
}

/// What one worker has for a collector.
pub(crate) struct Exporter {
    rules: Rules,
    worker: Weak<Worker>,
    stats: Rc<Block>,
    gathered: RefCell<Gathered>,
    calls: Cell<usize>,
    /// A call is over.
    heard: Notify,
}

#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    count: usize,
}

impl Exporter {
    fn start(rules: Rules, worker: &Rc<Worker>) -> Rc<Exporter> {
        let stats = match &rules.signal {
            Signal::Spans => worker.stats.block(&span_stat::SET, ""),
            Signal::Logs(prefix) => worker.stats.block(&log_stat::SET, prefix),
        };
        let exporter = Rc::new(Exporter {
            rules,
            worker: Rc::downgrade(worker),
            stats,
            gathered: RefCell::default(),
            calls: Cell::new(0),
            heard: Notify::new(),
        });
        tokio::task::spawn_local(exporter.clone().keep());
        exporter
    }

    /// Sends what is old enough, until this task is the last that knows of the collector and has nothing for it.
    async fn keep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(self.rules.interval).await;
            if self.rules.signal == Signal::Spans {
                self.stats.inc(span_stat::TIMER_FLUSHED);
            }
            self.flush();
            // A call under way knows of it, too.
            if Rc::strong_count(&self) == 1 && self.gathered.borrow().count == 0 {
                return;
            }
        }
    }

    /// Takes an entry, if there is room.
    pub(crate) fn take(self: &Rc<Self>, entry: &impl Message) {
        if self.is_full() {
            self.drop_entries(1);
            return;
        }
        {
            let mut gathered = self.gathered.borrow_mut();
            append(entry, &mut gathered.bytes);
            gathered.count += 1;
        }
        self.flush_if_enough();
    }

    fn is_full(&self) -> bool {
        let gathered = self.gathered.borrow();
        gathered.count >= self.rules.most || gathered.count > 0 && gathered.bytes.len() >= self.rules.most_bytes
    }

    fn flush_if_enough(self: &Rc<Self>) {
        let is_enough = {
            let gathered = self.gathered.borrow();
            gathered.count >= self.rules.enough || gathered.bytes.len() >= self.rules.enough_bytes
        };
        if is_enough {
            self.flush();
        }
    }

    /// Sends what gathered, if a call more may be under way.
    fn flush(self: &Rc<Self>) {
        if self.calls.get() >= MAX_CALLS || self.gathered.borrow().count == 0 {
            return;
        }
        let Some(worker) = self.worker.upgrade() else { return };
        let Gathered { bytes, count } = self.gathered.take();
        let message = request(&self.rules.resource, self.rules.scope.as_ref(), &bytes);
        self.calls.set(self.calls.get() + 1);
        let exporter = self.clone();
        tokio::task::spawn_local(async move {
            let method = match exporter.rules.signal {
                Signal::Spans => EXPORT_TRACES,
                Signal::Logs(_) => EXPORT_LOGS,
            };
            match export(&worker, &exporter.rules.to, method, message).await {
                Ok(rejected) => {
                    let rejected = count.min(usize::try_from(rejected).unwrap_or(usize::MAX));
                    exporter.count_taken(count - rejected);
                    exporter.drop_entries(rejected);
                }
                Err(why) => {
                    debug!(Upstream, "{count} entries for OpenTelemetry were lost: {why}");
                    exporter.drop_entries(count);
                }
            }
            exporter.calls.set(exporter.calls.get().saturating_sub(1));
            exporter.flush_if_enough();
            exporter.heard.notify_waiters();
        });
    }

    fn count_taken(&self, count: usize) {
        let counter = match self.rules.signal {
            Signal::Spans => span_stat::SPANS_SENT,
            Signal::Logs(_) => log_stat::LOGS_WRITTEN,
        };
        self.stats.add(counter, count as u64);
    }

    fn drop_entries(&self, count: usize) {
        let counter = match self.rules.signal {
            Signal::Spans => span_stat::SPANS_DROPPED,
            Signal::Logs(_) => log_stat::LOGS_DROPPED,
        };
        self.stats.add(counter, count as u64);
    }

    /// Sends what there is, and waits until that is over.
    async fn finish(self: Rc<Self>) {
        loop {
            let heard = self.heard.notified();
            self.flush();
            if self.calls.get() == 0 {
                return;
            }
            heard.await;
        }
    }
}

/// Those of one worker, each as long as somebody tells it something.
#[derive(Default)]
pub(crate) struct Exporters(RefCell<Vec<Weak<Exporter>>>);

impl Exporters {
    pub(crate) fn of(&self, rules: Rules, worker: &Rc<Worker>) -> Rc<Exporter> {
        let mut known = self.0.borrow_mut();
        known.retain(|exporter| exporter.strong_count() > 0);
        if let Some(exporter) = known.iter().filter_map(Weak::upgrade).find(|exporter| exporter.rules == rules) {
            return exporter;
        }
        let exporter = Exporter::start(rules, worker);
        known.push(Rc::downgrade(&exporter));
        exporter
    }

    /// Tells collectors the last of it, all at once, if that goes in time.
    pub(crate) async fn finish(&self) {
        let known = self.0.take();
        let ends: Vec<_> = known
            .iter()
            .filter_map(Weak::upgrade)
            .map(|exporter| tokio::task::spawn_local(exporter.finish()))
            .collect();
        let finish = async {
            for end in ends {
                // One that panicked has nothing more to say.
                let _ = end.await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, finish).await;
    }
}
