//! Connections as Go code knows them: by numbers, from any thread.
//!
//! ```text
//! any thread ── number ──> line ── job ──> place (on the connection's worker) ── handle ──> connection
//! ```
//!
//! A number is never used again: Go code may keep one for as long as it likes. It stands where the SDK has an address, and
//! is none: Go's collector looks at it and finds that it is not Go's.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use postrider_filter_api::{Connection, ConnectionHandle, Ending, Remote, TCP_CLUSTER};
use postrider_model::Value;
use postrider_telemetry::warning;

use crate::abi::{GoString, status};

/// Numbers begin above what Go takes for a broken pointer and below where its memory is.
const FIRST: u64 = 1 << 20;

/// A connection, for any thread.
pub(crate) struct Line {
    pub(super) number: u64,
    /// The way to the worker that it is on.
    worker: Remote,
    /// That worker's; known from the first call into Go on.
    thread: OnceLock<ThreadId>,
    local: String,
    remote: OnceLock<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// What goroutines want of the filter state.
    asked: Vec<Asked>,
    /// The last answer of that kind.
    answer: String,
}

/// What a goroutine wants of the filter state of a connection.
enum Asked {
    Set(String, String),
    Get(String, Place),
}

/// Where an answer goes: the goroutine waits until it is told that it is there.
struct Place(*mut GoString);

// SAFETY: the place is the waiting goroutine's, which does not look at it meanwhile.
unsafe impl Send for Place {}

/// What its worker knows of it.
pub(super) struct Local {
    handle: ConnectionHandle,
    /// For the time of a hook.
    connection: Cell<*mut Connection<'static>>,
}

/// All that Go code may still refer to.
static LINES: Mutex<Option<HashMap<u64, Arc<Line>>>> = Mutex::new(None);

thread_local! {
    /// Those of this worker that are open.
    static HERE: RefCell<HashMap<u64, Rc<Local>>> = RefCell::default();
}

fn lines<T>(look: impl FnOnce(&mut HashMap<u64, Arc<Line>>) -> T) -> T {
    // A panic with the lock held leaves a whole map behind.
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    look(lines.get_or_insert_default())
}

fn here(number: u64) -> Option<Rc<Local>> {
    HERE.with_borrow(|here| here.get(&number).cloned())
}

/// The connection of that number.
pub(crate) fn find(number: u64) -> Option<Arc<Line>> {
    lines(|lines| lines.get(&number).cloned())
}

/// Go code refers to it no more.
pub(crate) fn forget(number: u64) -> Option<Arc<Line>> {
    lines(|lines| lines.remove(&number))
}

impl Line {
    /// One between these addresses, which is on that worker.
    pub(super) fn new(worker: Remote, local: String) -> Arc<Line> {
        static LAST: AtomicU64 = AtomicU64::new(FIRST);
        let line = Arc::new(Line {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            worker,
            thread: OnceLock::new(),
            local,
            remote: OnceLock::new(),
            state: Mutex::default(),
        });
        lines(|lines| lines.insert(line.number, line.clone()));
        line
    }

    /// Go code may still refer to it.
    pub(super) fn is_known(&self) -> bool {
        lines(|lines| lines.contains_key(&self.number))
    }

    pub(super) fn set_remote(&self, remote: &str) {
        // It is set once.
        let _ = self.remote.set(remote.to_owned());
    }

    /// On its worker: what this connection is done to by.
    pub(super) fn attach(&self, handle: &ConnectionHandle) -> Rc<Local> {
        // It never changes its worker.
        let _ = self.thread.set(thread::current().id());
        let local = Rc::new(Local { handle: handle.clone(), connection: Cell::new(ptr::null_mut()) });
        HERE.with_borrow_mut(|here| here.insert(self.number, local.clone()));
        local
    }

    /// On its worker: it is over. Goroutines that wait for an answer are told so by `answered`.
    pub(super) fn detach(&self, answered: impl Fn()) {
        HERE.with_borrow_mut(|here| here.remove(&self.number));
        let asked = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.asked)
        };
        asked.iter().filter(|asked| matches!(asked, Asked::Get(..))).for_each(|_| answered());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs behind the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_here(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// Has its worker do something to it, unless it is over by then.
    fn post(&self, job: impl FnOnce(&ConnectionHandle) + Send + 'static) {
        let number = self.number;
        // Without a worker there is no connection.
        let _ = self.worker.post(move || {
            if let Some(local) = here(number) {
                job(&local.handle);
            }
        });
    }

    pub(crate) fn send(&self, data: Vec<u8>, end: bool) {
        self.post(move |handle| handle.send(data, end));
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.post(move |handle| handle.end(ending));
    }

    /// The peer may end its side and still hear ours. At once on its worker: the end may be there already.
    pub(crate) fn half_close(&self, enabled: bool) {
        match here(self.number).filter(|_| self.is_here()) {
            Some(local) => local.handle.control().half_closes.set(enabled),
            None => self.post(move |handle| handle.control().half_closes.set(enabled)),
        }
    }

    pub(crate) fn local(&self) -> &str {
        &self.local
    }

    /// Empty before there is a connection.
    pub(crate) fn remote(&self) -> &str {
        self.remote.get().map_or("", String::as_str)
    }

    /// Notes a text for others: at once within a hook of the connection, else when its worker comes to it.
    pub(crate) fn set_state(&self, name: &str, value: &str) -> i32 {
        if let Some(local) = here(self.number).filter(|local| local.is_in_hook()) {
            return local
                .with_connection(|connection| set_state(connection, name, value))
                .map_or(status::OK, |()| status::OK);
        }
        self.ask(Asked::Set(name.to_owned(), value.to_owned()), status::OK)
    }

    /// The text that was noted, in `out`, which is left alone where there is none: at once within a hook of the connection,
    /// else when its worker comes to it.
    ///
    /// # Safety
    /// `out` is Go code's, and stays so until it is told that the answer is there.
    pub(crate) unsafe fn state_of(&self, name: &str, out: *mut GoString) -> i32 {
        if !self.is_here() {
            return self.ask(Asked::Get(name.to_owned(), Place(out)), status::YIELD);
        }
        // A hook of another connection cannot wait for this one's.
        let Some(local) = here(self.number) else { return status::DESTROYED };
        let found = local.with_connection(|connection| state_of(connection, name));
        // SAFETY: as promised.
        unsafe { self.put(found.flatten(), out) };
        status::OK
    }

    fn ask(&self, asked: Asked, answer: i32) -> i32 {
        let mut state = self.state();
        if state.closed {
            return status::DESTROYED;
        }
        state.asked.push(asked);
        drop(state);
        self.post(ConnectionHandle::ask);
        answer
    }

    /// Does what was asked for; each answer is told by `answered`.
    pub(super) fn attend(&self, connection: &mut Connection<'_>, answered: impl Fn()) {
        let asked = std::mem::take(&mut self.state().asked);
        for asked in asked {
            match asked {
                Asked::Set(name, value) => set_state(connection, &name, &value),
                Asked::Get(name, Place(out)) => {
                    // SAFETY: the goroutine waits.
                    unsafe { self.put(state_of(connection, &name), out) };
                    answered();
                }
            }
        }
    }

    /// # Safety
    /// `out` is Go code's.
    unsafe fn put(&self, found: Option<String>, out: *mut GoString) {
        let Some(found) = found else { return };
        let mut state = self.state();
        state.answer = found;
        // SAFETY: as promised. Go code copies the text before it asks again.
        unsafe { *out = GoString::of(&state.answer) };
    }
}

impl Local {
    /// Calls into Go with the connection at hand.
    pub(super) fn during<T>(&self, connection: &mut Connection<'_>, call: impl FnOnce() -> T) -> T {
        // The lifetime is put off: nobody reads the pointer when this function has ended.
        self.connection.set(ptr::from_mut(connection).cast());
        let answer = call();
        self.connection.set(ptr::null_mut());
        answer
    }

    fn is_in_hook(&self) -> bool {
        !self.connection.get().is_null()
    }

    fn with_connection<T>(&self, look: impl FnOnce(&mut Connection<'static>) -> T) -> Option<T> {
        // SAFETY: set for the time of a hook, which does not use its borrow meanwhile; `look` calls nothing of Go's.
        unsafe { self.connection.get().as_mut() }.map(look)
    }
}

fn set_state(connection: &mut Connection<'_>, name: &str, value: &str) {
    if name == TCP_CLUSTER {
        // In Envoy it is no text either, and this would do nothing.
        warning!(Filter, "a Go plugin sets the filter state `{name}` to a text: that chooses no cluster");
        return;
    }
    connection.info.set_state(name, Value::String(value.to_owned()));
}

fn state_of(connection: &mut Connection<'_>, name: &str) -> Option<String> {
    let (_, value) = connection.info.filter_state.iter().find(|(known, _)| known == name)?;
    match value {
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use postrider_filter_api::fake::FakeHost;
    use postrider_filter_api::{ConnectionControl, Host, Moment, StreamInfo};

    use super::*;

    struct Site {
        host: FakeHost,
        control: Rc<ConnectionControl>,
        info: StreamInfo,
        line: Arc<Line>,
        local: Rc<Local>,
    }

    impl Site {
        fn new() -> Site {
            let (host, control) = (FakeHost::default(), Rc::default());
            let line = Line::new(host.remote(), "here".to_owned());
            let local = line.attach(&ConnectionHandle::new(&control, 0));
            Site { host, control, info: StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH), line, local }
        }

        fn with<T>(&mut self, look: impl FnOnce(&Line, &Local, &mut Connection<'_>) -> T) -> T {
            let handle = ConnectionHandle::new(&self.control, 0);
            let Site { host, info, line, local, .. } = self;
            look(line, local, &mut Connection { info, server_name: None, handle: &handle, host })
        }
    }

    /// A place for a text, and what `ask` answers and leaves in it.
    fn asked(ask: impl FnOnce(*mut GoString) -> i32) -> (i32, String) {
        let mut out = GoString::of("");
        let status = ask(&raw mut out);
        // SAFETY: what it refers to is still there.
        (status, String::from_utf8_lossy(unsafe { out.bytes() }).into_owned())
    }

    #[test]
    fn within_a_hook_filter_state_is_at_hand() {
        let mut site = Site::new();
        site.with(|line, local, connection| {
            let said = local.during(connection, || {
                assert_eq!(line.set_state("a", "1"), status::OK);
                // SAFETY: the place is there for the time of the call.
                let of = |name: &str| asked(|out| unsafe { line.state_of(name, out) });
                [of("a"), of("b")]
            });
            assert_eq!(said, [(status::OK, "1".to_owned()), (status::OK, String::new())]);
        });
        let (name, value) = &site.info.filter_state[0];
        assert_eq!((name.as_str(), value), ("a", &Value::String("1".to_owned())));
    }

    #[test]
    fn a_goroutine_hears_when_the_worker_comes_to_it_or_the_connection_is_over() {
        let mut site = Site::new();
        let mut out = GoString::of("");
        let place = Place(&raw mut out);
        let line = &site.line;
        let told = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let Place(out) = { place };
                // SAFETY: the place outlives the connection.
                (line.set_state("a", "1"), unsafe { line.state_of("a", out) })
            });
            thread.join().unwrap()
        });
        assert_eq!(told, (status::OK, status::YIELD));
        assert_eq!((site.host.run_posted(), site.control.take_asked()), (2, Some(0)));
        let answered = Cell::new(0);
        let count = || answered.set(answered.get() + 1);
        site.with(|line, _, connection| line.attend(connection, count));
        // SAFETY: the line has it.
        assert_eq!((answered.get(), unsafe { out.bytes() }), (1, &b"1"[..]));
        let place = Place(&raw mut out);
        let line = &site.line;
        let ask = move || {
            let Place(out) = { place };
            // SAFETY: as above.
            [unsafe { line.state_of("a", out) }, line.set_state("a", "2")]
        };
        let asked = std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
        assert_eq!(asked, [status::YIELD, status::OK]);
        site.line.detach(count);
        assert_eq!(answered.get(), 2, "nobody waits for ever");
        let line = &site.line;
        assert_eq!(
            std::thread::scope(|scope| scope.spawn(|| line.set_state("a", "3")).join().unwrap()),
            status::DESTROYED
        );
    }

    #[test]
    fn what_is_wanted_of_a_connection_reaches_it_until_it_is_over() {
        let site = Site::new();
        site.line.send(b"x".to_vec(), false);
        site.line.end(Ending::Flushed);
        assert!(!site.control.has_wishes(), "not within the call");
        site.host.run_posted();
        assert_eq!(site.control.take_wishes().len(), 2);
        site.line.half_close(true);
        assert!(site.control.half_closes.get(), "at once on its worker");
        site.line.detach(|| {});
        site.line.send(b"y".to_vec(), false);
        site.host.run_posted();
        assert!(!site.control.has_wishes());
        let number = site.line.number;
        assert!(find(number).is_some() && forget(number).is_some());
        assert!(find(number).is_none() && !site.line.is_known());
    }
}
