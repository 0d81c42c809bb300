//! A worker's way to one process: what its streams are told, and what comes back for them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use postrider_filter_api::{Ended, Remote};
use postrider_telemetry::log::{self, Component};
use postrider_telemetry::{error, warning};

use super::frames;
use super::keeper::{Child, LaneEnds};
use super::logged::Logged;
use super::posts;
use super::ring::{Direction, Reader, Segment, Writer};
use super::wire::{Put, Take};
use crate::bells::Side;
use crate::facts::Facts;
use crate::filter::Plugin;
use crate::heads;
use crate::mirror::Each;
use crate::pool;
use crate::questions::{Answer, Secrets};
use crate::request::{Asker, Post, Request};

pub(crate) struct Lane {
    writer: RefCell<Writer>,
    segment: Arc<Segment>,
    /// Streams that the process has, by their numbers.
    streams: RefCell<HashMap<u64, NonNull<Request>>>,
    logged: Logged,
    alive: Cell<bool>,
}

/// A process and how often it was started before: a lane leads to no other.
type Key = (u64, u64);

thread_local! {
    /// This worker's lanes.
    static LANES: RefCell<HashMap<Key, Rc<Lane>>> = RefCell::default();
    /// Plugins of this worker that run in processes, by those.
    static PLUGINS: RefCell<Vec<(u64, Weak<Plugin>)>> = const { RefCell::new(Vec::new()) };
}

/// The calling worker's lane to the process as it runs now; `None` while it does not.
pub(crate) fn here(child: &Child, worker: u32, remote: impl FnOnce() -> Remote) -> Option<Rc<Lane>> {
    let number = child.running()?;
    let key = (child.id, number);
    if let Some(lane) = LANES.with_borrow(|lanes| lanes.get(&key).cloned()) {
        return lane.alive.get().then_some(lane);
    }
    open(child, key, worker, remote())
}

#[cold]
#[inline(never)]
fn open(child: &Child, key: Key, worker: u32, remote: Remote) -> Option<Rc<Lane>> {
    let LaneEnds { segment, socket } = child.lane(key.1, worker)?;
    let index = worker as usize;
    let socket = Arc::new(socket);
    let reader = segment.reader(index, Direction::ToProxy, socket.clone());
    let lane = Rc::new(Lane {
        writer: RefCell::new(segment.writer(index, Direction::ToProcess, socket)),
        segment,
        streams: RefCell::default(),
        logged: Logged::default(),
        alive: Cell::new(true),
    });
    LANES.with_borrow_mut(|lanes| lanes.insert(key, lane.clone()));
    let named = std::thread::Builder::new().name(format!("go:{worker}"));
    if let Err(error) = named.spawn(move || read(reader, key, &remote)) {
        error!(Filter, "cannot start a thread that listens to a Go plugin's process: {error}");
        lose(key);
        return None;
    }
    Some(lane)
}

/// The plugin is told of its process's restarts. Called on its worker.
pub(crate) fn watch(child: &Child, plugin: &Rc<Plugin>, remote: &Remote) {
    PLUGINS.with_borrow_mut(|plugins| {
        plugins.retain(|(_, plugin)| plugin.strong_count() > 0);
        plugins.push((child.id, Rc::downgrade(plugin)));
    });
    child.watch(plugin.pool.worker, remote);
}

/// The process was started anew; one worker counts that.
pub(super) fn count_restart(child: u64) {
    PLUGINS.with_borrow(|plugins| {
        let of_child = plugins.iter().filter(|(of, _)| *of == child).filter_map(|(_, plugin)| plugin.upgrade());
        // Of a plugin whose configuration changed there may be two for a while.
        let by_name: HashMap<String, Rc<Plugin>> =
            of_child.map(|plugin| (plugin.recipe.facts.name.clone(), plugin)).collect();
        by_name.values().for_each(|plugin| plugin.account.restarted());
    });
}

/// The thread that listens for a worker. It hands over what came only when the worker is through with what came before:
/// then a busy worker is woken once for much.
fn read(mut reader: Reader, key: Key, remote: &Remote) {
    let mut bytes = Vec::new();
    loop {
        let ended = reader.wait().is_err();
        // Woken for nothing, the worker writes what found no room before.
        let mut first = true;
        loop {
            let count = reader.read(&mut bytes);
            let Some(whole) = count.ok().and_then(|_| frames::split(&mut bytes)) else {
                let _ = remote.post(move || lose(key));
                return;
            };
            if whole.is_empty() && !first {
                break;
            }
            first = false;
            let (done, again) = sync_channel(1);
            let posted = remote.post(move || {
                deliver(key, &whole);
                // There is room for one.
                let _ = done.try_send(());
            });
            if posted.is_err() || again.recv().is_err() {
                return;
            }
        }
        if ended {
            let _ = remote.post(move || lose(key));
            return;
        }
    }
}

/// What came for streams of this worker.
fn deliver(key: Key, whole: &[u8]) {
    let Some(lane) = LANES.with_borrow(|lanes| lanes.get(&key).cloned()) else { return };
    let mut all = Take(whole);
    let mut touched: Vec<u64> = Vec::new();
    while let Some((stream, frame)) = frames::next(&mut all) {
        let Some(post) = posts::read(frame) else {
            warning!(Filter, "a Go plugin's process says what nobody understands: it is ended");
            return lose(key);
        };
        let request = lane.streams.borrow().get(&stream).copied();
        match (request, &post) {
            (_, Post::Question(question, Asker::Log(number))) => {
                lane.answer(stream, *number, &lane.logged.answer(stream, question));
            }
            (_, Post::Logged) => lane.logged.done(stream),
            (Some(request), _) => {
                // SAFETY: the object is the stream's until it leaves the lane, on this thread.
                unsafe { request.as_ref() }.lock().posts.push_back(post);
                if touched.last() != Some(&stream) {
                    touched.push(stream);
                }
            }
            // The stream is over here: whoever asks about it waits for an answer all the same.
            (None, Post::Question(_, Asker::Process(question))) => lane.answer(stream, *question, &Answer::Missing),
            (None, _) => {}
        }
    }
    lane.send(|writer| writer.flush().is_ok());
    lane.wake();
    touched.into_iter().for_each(pool::ring);
}

/// The process is gone, and what it had of streams.
fn lose(key: Key) {
    let Some(lane) = LANES.with_borrow_mut(|lanes| lanes.remove(&key)) else { return };
    lane.cut();
    lane.logged.clear();
    let streams = std::mem::take(&mut *lane.streams.borrow_mut());
    for (stream, request) in streams {
        // SAFETY: as above.
        unsafe { request.as_ref() }.lock().posts.push_back(Post::Lost);
        pool::ring(stream);
    }
}

impl Lane {
    /// A stream begins; `request` stays until it [leaves](Lane::leave).
    pub(crate) fn begin(&self, stream: u64, config: u64, request: NonNull<Request>) {
        self.streams.borrow_mut().insert(stream, request);
        self.tell(stream, |put| frames::put_begin(put, config));
    }

    /// Whether the process still has it; `false` when it is gone.
    pub(crate) fn has(&self, stream: u64) -> bool {
        self.alive.get() && self.streams.borrow().contains_key(&stream)
    }

    pub(crate) fn head(&self, stream: u64, side: Side, end: bool, facts: &Facts, fields: Each<'_>) {
        self.tell(stream, |put| frames::put_head(put, side, end, &written(facts), fields));
        self.wake();
    }

    pub(crate) fn data(&self, stream: u64, side: Side, end: bool, buffer: u64, held: &[u64], bytes: &[u8]) {
        self.tell(stream, |put| frames::put_data(put, side, end, buffer, held, bytes));
        self.wake();
    }

    pub(crate) fn trailers(&self, stream: u64, side: Side, held: &[u64], fields: Each<'_>) {
        self.tell(stream, |put| frames::put_trailers(put, side, held, fields));
        self.wake();
    }

    pub(crate) fn answer(&self, stream: u64, question: u64, answer: &Answer) {
        self.tell(stream, |put| frames::put_answer(put, question, answer));
        self.wake();
    }

    pub(crate) fn log(&self, stream: u64, moment: u64, facts: &Facts, ended: &Ended<'_>, secrets: &Secrets) {
        let tls = ended.info.tls.is_some();
        let request: Each<'_> = &|call| heads::each_of_request(ended.request, tls, call);
        let response: Each<'_> = &|call| heads::each_of_response(ended.response, call);
        let response = (ended.info.status != 0).then_some(response);
        let trailers: [Each<'_>; 2] = [&|call| heads::each_of(ended.request_trailers, call), &|call| {
            heads::each_of(ended.response_trailers, call)
        }];
        self.logged.keep(stream, ended, secrets);
        self.tell(stream, |put| frames::put_log(put, moment, &written(facts), request, response, trailers));
        self.wake();
    }

    /// The stream is over.
    pub(crate) fn leave(&self, stream: u64, early: bool) {
        if self.streams.borrow_mut().remove(&stream).is_some() {
            self.tell(stream, |put| frames::put_destroy(put, early));
            self.wake();
        }
    }

    fn tell(&self, stream: u64, write: impl FnOnce(&mut Put)) {
        let mut put = frames::begin(stream);
        write(&mut put);
        let frame = frames::end(put);
        self.send(|writer| writer.send(&frame).is_ok());
    }

    fn send(&self, write: impl FnOnce(&mut Writer) -> bool) {
        if self.alive.get() && !write(&mut self.writer.borrow_mut()) {
            // Its reader finds out, and tells the streams.
            self.cut();
        }
    }

    fn wake(&self) {
        self.segment.level().store(log::level(Component::Filter) as u32, Ordering::Relaxed);
        self.writer.borrow().wake();
    }

    /// The process hears that nobody listens to it any more, and ends.
    fn cut(&self) {
        self.alive.set(false);
        // It may be gone already.
        let _ = UnixStream::shutdown(self.writer.borrow().socket(), std::net::Shutdown::Both);
    }
}

fn written(facts: &Facts) -> Vec<u8> {
    let mut put = Put::default();
    facts.put(&mut put);
    put.0
}
