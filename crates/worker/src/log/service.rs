//! Access logs that go to a service: entries gather, and leave by one stream of gRPC that stays open.
//!
//! ```text
//! request ── entry ──> gathered ── when large or old enough ──> stream ──> service
//!                         │ full, and the stream takes no more
//!                         └──> dropped and counted
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::GrpcStream;
use postrider_grpc::log::{self, Identifier};
use postrider_model::{EntryKind, LogService};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::grpc_access_log as stat;
use tokio::sync::Notify;

use super::entry;
use crate::call::target::open_stream;
use crate::cluster::Cluster;
use crate::worker::Worker;

/// How long a service may take for the last entries, when nobody will log any more.
const FAREWELL: Duration = Duration::from_secs(1);

/// A service, and what one worker has for it.
pub(crate) struct ServiceLog {
    model: Arc<LogService>,
    worker: Weak<Worker>,
    stats: Rc<Block>,
    gathered: RefCell<Gathered>,
    stream: RefCell<Option<Open>>,
    /// No stream broke since the last interval began: a service that is away is not called with every entry.
    may_open: Cell<bool>,
    /// Something came on the stream, or it ended.
    heard: Rc<Notify>,
}

#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    count: u64,
}

/// The stream, with how many entries each of the last messages on it had.
struct Open {
    stream: GrpcStream,
    cluster: Rc<Cluster>,
    messages: VecDeque<u64>,
    /// The service was told whose entries these are.
    identified: bool,
}

impl ServiceLog {
    pub(crate) fn start(model: &Arc<LogService>, worker: &Rc<Worker>) -> Rc<ServiceLog> {
        let log = Rc::new(ServiceLog {
            model: model.clone(),
            worker: Rc::downgrade(worker),
            stats: worker.stats.block(&stat::SET, ""),
            gathered: RefCell::default(),
            stream: RefCell::default(),
            may_open: Cell::new(true),
            heard: Rc::default(),
        });
        tokio::task::spawn_local(log.clone().keep());
        log
    }

    pub(crate) fn is_of(&self, model: &LogService) -> bool {
        *self.model == *model
    }

    /// Sends what is old enough, until this task is the last that knows of the service.
    async fn keep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(self.model.flush_interval).await;
            self.follow_cluster();
            self.may_open.set(true);
            self.flush();
            if self.is_forgotten() {
                self.finish().await;
                // A new configuration may have come upon it meanwhile.
                if self.is_forgotten() {
                    return;
                }
            }
        }
    }

    fn is_forgotten(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }

    /// Takes an entry, if there is room. Nobody waits for anything here.
    #[inline(never)]
    pub(super) fn write(&self, entry: impl FnOnce(&mut Vec<u8>)) {
        if self.is_full() {
            self.flush();
            if self.is_full() {
                self.stats.inc(stat::LOGS_DROPPED);
                return;
            }
        }
        self.stats.inc(stat::LOGS_WRITTEN);
        {
            let mut gathered = self.gathered.borrow_mut();
            gathered.count += 1;
            entry(&mut gathered.bytes);
        }
        if self.is_full() {
            self.flush();
        }
    }

    fn is_full(&self) -> bool {
        let gathered = self.gathered.borrow();
        gathered.count > 0 && gathered.bytes.len() >= self.model.buffer_bytes
    }

    /// Hands what gathered to the stream, if that takes it.
    fn flush(&self) {
        let mut gathered = self.gathered.borrow_mut();
        let mut stream = self.stream.borrow_mut();
        self.look_after(&mut stream);
        if gathered.count == 0 {
            return;
        }
        if stream.is_none() && self.may_open.get() {
            *stream = self.open();
        }
        let Some(open) = stream.as_mut().filter(|open| open.stream.has_room()) else { return };
        let identifier = if open.identified { None } else { self.identifier() };
        let kind = match self.model.kind {
            EntryKind::Http => log::HTTP_LOGS,
            EntryKind::Tcp => log::TCP_LOGS,
        };
        if open.stream.send(log::message(identifier, kind, &gathered.bytes)) {
            open.identified = true;
            open.messages.push_back(gathered.count);
            gathered.bytes.clear();
            gathered.count = 0;
        }
    }

    /// Reads what the service said, which means nothing, and forgets a stream that ended.
    fn look_after(&self, stream: &mut Option<Open>) {
        let Some(open) = stream else { return };
        open.settle();
        if open.stream.status().is_some() {
            // What waited in front of the stream when it ended was never sent.
            self.stats.add(stat::LOGS_DROPPED, open.messages.iter().sum());
            self.may_open.set(false);
            *stream = None;
        }
    }

    fn open(&self) -> Option<Open> {
        let worker = self.worker.upgrade()?;
        let cluster = worker.cluster(&self.model.target.cluster)?;
        let stream = open_stream(worker, cluster.clone(), &self.model.target, log::STREAM_ACCESS_LOGS, &self.heard);
        Some(Open { stream, cluster, messages: VecDeque::new(), identified: false })
    }

    fn identifier(&self) -> Option<Identifier> {
        let worker = self.worker.upgrade()?;
        let node = entry::who(&worker.node.borrow());
        Some(Identifier { node: Some(node), log_name: self.model.log_name.clone() })
    }

    /// A cluster that was configured anew may have other hosts: the stream to those of the old one ends.
    fn follow_cluster(&self) {
        let Some(worker) = self.worker.upgrade() else { return };
        let now = worker.cluster(&self.model.target.cluster);
        let is_old = |open: &Open| now.as_ref().is_none_or(|now| !Rc::ptr_eq(now, &open.cluster));
        let old = self.stream.borrow_mut().take_if(|open| is_old(open));
        if let Some(old) = old {
            tokio::task::spawn_local(old.farewell(self.heard.clone(), self.stats.clone()));
        }
    }

    /// Sends what there is, ends the stream, and waits until the service has heard it all, or long enough.
    pub(crate) async fn finish(&self) {
        self.may_open.set(true);
        self.flush();
        let open = self.stream.borrow_mut().take();
        if let Some(open) = open {
            open.farewell(self.heard.clone(), self.stats.clone()).await;
        }
        let left = std::mem::take(&mut *self.gathered.borrow_mut());
        self.stats.add(stat::LOGS_DROPPED, left.count);
    }
}

impl Open {
    /// Forgets the messages that are on their way, and what the service answered.
    fn settle(&mut self) {
        while self.stream.receive().is_some() {}
        let unsent = self.stream.unsent();
        while self.messages.len() > unsent {
            self.messages.pop_front();
        }
    }

    async fn farewell(mut self, heard: Rc<Notify>, stats: Rc<Block>) {
        self.stream.finish();
        let ended = async {
            loop {
                self.settle();
                if self.stream.status().is_some() {
                    return;
                }
                heard.notified().await;
            }
        };
        // A service that does not end the stream has had its time.
        let _ = tokio::time::timeout(FAREWELL, ended).await;
        self.settle();
        stats.add(stat::LOGS_DROPPED, self.messages.iter().sum());
    }
}
