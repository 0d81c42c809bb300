//! What machines of the same `vm_id` share over all workers: data by key, and queues. Modules ask for it by name; nothing
//! else does.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::status::{CAS_MISMATCH, EMPTY, INTERNAL_FAILURE, NOT_FOUND};

/// Most bytes of keys and values under one `vm_id`.
pub(crate) const MAX_SHARED_BYTES: usize = 64 << 20;

/// Most messages that wait in one queue.
pub(crate) const MAX_QUEUE_MESSAGES: usize = 10_000;

/// Most bytes that wait in one queue.
pub(crate) const MAX_QUEUE_BYTES: usize = 16 << 20;

/// Most queues under one `vm_id`.
const MAX_QUEUES: usize = 1000;

/// What is under one `vm_id`; gone with the last program that has it.
pub(crate) struct Space {
    vm_id: String,
    data: Mutex<Data>,
    queues: Mutex<Vec<Queue>>,
}

#[derive(Default)]
struct Data {
    entries: HashMap<Vec<u8>, (Vec<u8>, u32)>,
    bytes: usize,
    last_cas: u32,
}

struct Queue {
    token: u32,
    name: Vec<u8>,
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Tells whoever registered it last that something came.
    listener: Option<Listener>,
}

pub(crate) type Listener = Arc<dyn Fn(u32) + Send + Sync>;

static SPACES: Mutex<Vec<Weak<Space>>> = Mutex::new(Vec::new());

/// A panic with a lock held leaves whole values behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Space {
    pub(crate) fn of(vm_id: &str) -> Arc<Space> {
        let mut spaces = lock(&SPACES);
        spaces.retain(|space| space.strong_count() > 0);
        if let Some(space) = spaces.iter().filter_map(Weak::upgrade).find(|space| space.vm_id == vm_id) {
            return space;
        }
        let space = Arc::new(Space { vm_id: vm_id.to_owned(), data: Mutex::default(), queues: Mutex::default() });
        spaces.push(Arc::downgrade(&space));
        space
    }

    /// The value, and a number that changes with it.
    pub(crate) fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<u32, u32> {
        let data = lock(&self.data);
        let (value, cas) = data.entries.get(key).ok_or(NOT_FOUND)?;
        out.extend_from_slice(value);
        Ok(*cas)
    }

    /// `cas` must be the value's number, or 0.
    pub(crate) fn set(&self, key: &[u8], value: &[u8], cas: u32) -> Result<(), u32> {
        let mut data = lock(&self.data);
        let old = data.entries.get(key).map(|(value, cas)| (value.len(), *cas));
        if old.is_some_and(|(_, known)| cas != 0 && cas != known) {
            return Err(CAS_MISMATCH);
        }
        let gone = old.map_or(0, |(length, _)| length + key.len());
        let bytes = data.bytes - gone + key.len() + value.len();
        if bytes > MAX_SHARED_BYTES {
            return Err(INTERNAL_FAILURE);
        }
        data.bytes = bytes;
        data.last_cas = data.last_cas.checked_add(1).unwrap_or(1);
        let cas = data.last_cas;
        data.entries.insert(key.to_owned(), (value.to_owned(), cas));
        Ok(())
    }

    /// The queue's number; `listener` takes the place of whoever registered it before.
    pub(crate) fn register(&self, name: &[u8], listener: Option<Listener>) -> Result<u32, u32> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let mut queues = lock(&self.queues);
        if let Some(queue) = queues.iter_mut().find(|queue| queue.name == name) {
            queue.listener = listener.or(queue.listener.take());
            return Ok(queue.token);
        }
        if queues.len() >= MAX_QUEUES {
            return Err(INTERNAL_FAILURE);
        }
        let token = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        queues.push(Queue { token, name: name.to_owned(), messages: VecDeque::new(), bytes: 0, listener });
        Ok(token)
    }
}

/// The number of the queue of that name under a `vm_id`.
pub(crate) fn resolve(vm_id: &str, name: &[u8]) -> Option<u32> {
    let spaces: Vec<Arc<Space>> = lock(&SPACES).iter().filter_map(Weak::upgrade).collect();
    let space = spaces.iter().find(|space| space.vm_id == vm_id)?;
    lock(&space.queues).iter().find(|queue| queue.name == name).map(|queue| queue.token)
}

/// Numbers are the process's: whoever knows one may use the queue.
fn with_queue<T>(token: u32, act: impl FnOnce(&mut Queue) -> T) -> Option<T> {
    let spaces: Vec<Arc<Space>> = lock(&SPACES).iter().filter_map(Weak::upgrade).collect();
    for space in spaces {
        if let Some(queue) = lock(&space.queues).iter_mut().find(|queue| queue.token == token) {
            return Some(act(queue));
        }
    }
    None
}

pub(crate) fn enqueue(token: u32, message: &[u8]) -> Result<(), u32> {
    let put = with_queue(token, |queue| {
        if queue.messages.len() >= MAX_QUEUE_MESSAGES || queue.bytes + message.len() > MAX_QUEUE_BYTES {
            return Err(INTERNAL_FAILURE);
        }
        queue.bytes += message.len();
        queue.messages.push_back(message.to_owned());
        Ok(queue.listener.clone())
    });
    // Without the lock: the listener may post to the worker that waits for it.
    if let Some(listener) = put.unwrap_or(Err(NOT_FOUND))? {
        listener(token);
    }
    Ok(())
}

pub(crate) fn dequeue(token: u32) -> Result<Vec<u8>, u32> {
    let taken = with_queue(token, |queue| {
        let message = queue.messages.pop_front().ok_or(EMPTY)?;
        queue.bytes -= message.len();
        Ok(message)
    });
    taken.unwrap_or(Err(NOT_FOUND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_compared_and_set() {
        let space = Space::of("data");
        let mut out = Vec::new();
        assert_eq!(space.get(b"k", &mut out), Err(NOT_FOUND));
        space.set(b"k", b"one", 0).unwrap();
        let first = Space::of("data").get(b"k", &mut out).unwrap();
        assert_eq!(out, b"one", "it is the same space");
        assert_eq!(space.set(b"k", b"two", first + 1), Err(CAS_MISMATCH));
        space.set(b"k", b"two", first).unwrap();
        assert!(space.get(b"k", &mut out).unwrap() > first);
        space.set(b"k", b"three", 0).unwrap();
        assert_eq!(Space::of("other").get(b"k", &mut out), Err(NOT_FOUND));
        drop(space);
        assert_eq!(Space::of("data").get(b"k", &mut out), Err(NOT_FOUND), "gone with its last user");
    }

    #[test]
    fn data_has_a_bound_that_counts_what_is_replaced() {
        let space = Space::of("bound");
        let large = vec![0; MAX_SHARED_BYTES / 2];
        space.set(b"a", &large, 0).unwrap();
        space.set(b"a", &large, 0).unwrap();
        assert_eq!(space.set(b"b", &large, 0), Err(INTERNAL_FAILURE));
        space.set(b"a", b"", 0).unwrap();
        space.set(b"b", &large, 0).unwrap();
    }

    #[test]
    fn queues_are_found_by_name_and_tell_their_listener() {
        let space = Space::of("queues");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        let token = space.register(b"q", None).unwrap();
        assert_eq!(space.register(b"q", Some(Arc::new(move |token| hears.lock().unwrap().push(token)))), Ok(token));
        assert_eq!(resolve("queues", b"q"), Some(token));
        assert_eq!((resolve("queues", b"r"), resolve("nobody", b"q")), (None, None));
        assert_eq!(dequeue(token), Err(EMPTY));
        enqueue(token, b"1").unwrap();
        enqueue(token, b"2").unwrap();
        assert_eq!(*heard.lock().unwrap(), [token, token]);
        assert_eq!((dequeue(token).unwrap(), dequeue(token).unwrap()), (b"1".to_vec(), b"2".to_vec()));
        assert_eq!((dequeue(0), enqueue(0, b"")), (Err(NOT_FOUND), Err(NOT_FOUND)));
        for _ in 0..MAX_QUEUE_MESSAGES {
            enqueue(token, b"x").unwrap();
        }
        assert_eq!(enqueue(token, b"x"), Err(INTERNAL_FAILURE));
    }
}
