//! Code from elsewhere that is here: what configurations ask for, and what was fetched for them.
//!
//! Whoever checks a configuration begins anew ([`Library::check`]), lets everything be built, and then sees what was asked
//! for and is not here ([`Library::wanted`]). He fetches it, puts it down ([`Library::put`]) and checks again. Nothing here
//! fetches or waits: plugins that are built before their code is here are not run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::remote::{Place, Remote};

/// The library of this process.
pub fn library() -> &'static Library {
    static LIBRARY: Library = Library::new();
    &LIBRARY
}

/// See the module.
#[derive(Debug)]
pub struct Library(Mutex<Option<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    /// Grows with each configuration that is read because somebody changed or asked something.
    round: u64,
    /// What could not be fetched is left out instead of refused.
    lenient: bool,
    /// What came last counts of code that could not be looked for again.
    keeps_last: bool,
    entries: HashMap<Remote, Entry>,
    asked: Vec<Remote>,
    /// What the configuration in force goes without.
    left_out: Vec<Remote>,
    /// Roots of statistics that count fetches of some code beside those of all code.
    counted: HashMap<Remote, &'static str>,
}

#[derive(Debug)]
struct Entry {
    round: u64,
    outcome: Result<Arc<[u8]>, String>,
    /// What came last, be it that something failed since.
    last: Option<Arc<[u8]>>,
}

/// What the library says about some code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Here(Arc<[u8]>),
    /// A plugin without it is built, and stands in its place as one that fails.
    Missing(String),
    /// The configuration is refused.
    Failed(String),
}

impl Library {
    pub const fn new() -> Library {
        Library(Mutex::new(None))
    }

    /// A configuration is about to be read because something changed: what failed before is tried again, and images that
    /// may have moved are looked for.
    pub fn begin_round(&self) {
        self.shelf(|shelf| shelf.round += 1);
    }

    /// A configuration is about to be checked: forgets who asked for what before.
    pub fn check(&self) {
        self.shelf(|shelf| shelf.asked.clear());
    }

    /// Whether a configuration goes on with what is here: with what came last of code that could not be looked for again, and
    /// without what never came. So at the start of the process, where there is nothing else to go on with, and where the
    /// configuration in force changes in something that has nothing to do with its code.
    pub fn be_lenient(&self, lenient: bool) {
        self.shelf(|shelf| shelf.lenient = lenient);
    }

    /// Whether a configuration goes on with what came last of code that could not be looked for again, while code that never
    /// came is refused as always. So where one plugin changes: the images of others may move, but that is not what was asked for.
    pub fn keep_last(&self, keeps: bool) {
        self.shelf(|shelf| shelf.keeps_last = keeps);
    }

    /// Asks for code.
    pub fn find(&self, remote: &Remote) -> Found {
        self.shelf(|shelf| {
            if !shelf.asked.contains(remote) {
                shelf.asked.push(remote.clone());
            }
            let last = || shelf.entries.get(remote)?.last.clone().filter(|_| shelf.lenient || shelf.keeps_last);
            match shelf.current(remote) {
                Some(Ok(bytes)) => Found::Here(bytes),
                Some(Err(reason)) => match last() {
                    Some(bytes) => Found::Here(bytes),
                    None if shelf.lenient || shelf.left_out.contains(remote) => Found::Missing(reason),
                    None => Found::Failed(reason),
                },
                None => last().map_or_else(|| Found::Missing("it was not fetched yet".to_owned()), Found::Here),
            }
        })
    }

    /// Statistics below `root`, too, count what becomes of this code.
    pub fn count_below(&self, remote: &Remote, root: &'static str) {
        self.shelf(|shelf| {
            if !shelf.counted.contains_key(remote) {
                shelf.counted.insert(remote.clone(), root);
            }
        });
    }

    /// See [`Library::count_below`].
    pub fn counted_below(&self, remote: &Remote) -> Option<&'static str> {
        self.shelf(|shelf| shelf.counted.get(remote).copied())
    }

    /// How many pieces of code below `root` are here.
    pub fn kept_below(&self, root: &str) -> usize {
        self.shelf(|shelf| shelf.counted.iter().filter(|(remote, known)| **known == root && shelf.has(remote)).count())
    }

    /// What was asked for since the check began and was not tried in this round.
    pub fn wanted(&self) -> Vec<Remote> {
        self.shelf(|shelf| shelf.asked.iter().filter(|remote| shelf.current(remote).is_none()).cloned().collect())
    }

    /// What was asked for since the check began and could not be fetched.
    pub fn failed(&self) -> Vec<Remote> {
        let failed = |shelf: &Shelf, remote: &Remote| shelf.current(remote).is_some_and(|outcome| outcome.is_err());
        self.shelf(|shelf| shelf.asked.iter().filter(|remote| failed(shelf, remote)).cloned().collect())
    }

    /// What the configuration in force goes without.
    pub fn left_out(&self) -> Vec<Remote> {
        self.shelf(|shelf| shelf.left_out.iter().filter(|remote| !shelf.has(remote)).cloned().collect())
    }

    /// What came of fetching it.
    pub fn put(&self, remote: Remote, outcome: Result<Vec<u8>, String>) {
        self.shelf(|shelf| {
            let outcome: Result<Arc<[u8]>, String> = outcome.map(Arc::from);
            let before = shelf.entries.remove(&remote).and_then(|entry| entry.last);
            let last = outcome.as_ref().ok().cloned().or(before);
            shelf.entries.insert(remote, Entry { round: shelf.round, outcome, last });
        });
    }

    /// What was checked is in force: forgets what it did not ask for. What it goes without keeps no later configuration from
    /// being put in force, which would lack no more. How many pieces of code are in use.
    pub fn settle(&self) -> usize {
        self.shelf(|shelf| {
            let asked = std::mem::take(&mut shelf.asked);
            shelf.entries.retain(|remote, _| asked.contains(remote));
            shelf.counted.retain(|remote, _| asked.contains(remote));
            shelf.left_out = asked.iter().filter(|remote| !shelf.has(remote)).cloned().collect();
            shelf.asked = asked;
            shelf.entries.values().filter(|entry| entry.last.is_some()).count()
        })
    }

    fn shelf<T>(&self, work: impl FnOnce(&mut Shelf) -> T) -> T {
        let mut guard: MutexGuard<'_, Option<Shelf>> = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(guard.get_or_insert_default())
    }
}

impl Default for Library {
    fn default() -> Library {
        Library::new()
    }
}

impl Shelf {
    /// Whether some of it came.
    fn has(&self, remote: &Remote) -> bool {
        self.entries.get(remote).is_some_and(|entry| entry.last.is_some())
    }

    /// What came of it, unless that does not count any more.
    fn current(&self, remote: &Remote) -> Option<Result<Arc<[u8]>, String>> {
        let entry = self.entries.get(remote)?;
        let moves = matches!(&remote.place, Place::Image(image) if image.always);
        let counts = entry.round == self.round || entry.outcome.is_ok() && !moves;
        counts.then(|| entry.outcome.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::from_json_text;

    fn remote(url: &str) -> Remote {
        let text = format!(r#"{{"url": "{url}"}}"#);
        Remote::read(from_json_text(&text).unwrap().fields().unwrap()).unwrap()
    }

    fn here(text: &str) -> Found {
        Found::Here(Arc::from(text.as_bytes()))
    }

    #[test]
    fn what_is_asked_for_is_wanted_until_it_was_tried() {
        let (library, code) = (Library::new(), remote("oci://a/b:1"));
        library.check();
        assert_eq!(library.find(&code), Found::Missing("it was not fetched yet".into()));
        library.find(&code);
        assert_eq!(library.wanted(), std::slice::from_ref(&code));
        library.put(code.clone(), Err("no".into()));
        assert_eq!((library.wanted(), library.failed()), (vec![], vec![code.clone()]));
        assert_eq!(library.find(&code), Found::Failed("no".into()));
        library.be_lenient(true);
        assert_eq!(library.find(&code), Found::Missing("no".into()));
        library.be_lenient(false);
        library.begin_round();
        assert_eq!(library.wanted(), std::slice::from_ref(&code), "a new round tries again");
        library.put(code.clone(), Ok(b"x".to_vec()));
        library.begin_round();
        assert_eq!((library.find(&code), library.wanted()), (here("x"), vec![]));
    }

    #[test]
    fn what_serves_stays_while_it_cannot_be_looked_for_again() {
        let (library, code) = (Library::new(), remote("oci://a/b:latest"));
        library.check();
        library.put(code.clone(), Ok(b"1".to_vec()));
        library.find(&code);
        library.settle();
        library.begin_round();
        library.be_lenient(true);
        assert_eq!(library.find(&code), here("1"), "while it is on its way");
        library.put(code.clone(), Err("no".into()));
        assert_eq!(library.find(&code), here("1"), "it did not come");
        library.be_lenient(false);
        assert_eq!(library.find(&code), Found::Failed("no".into()));
        library.keep_last(true);
        assert_eq!(library.find(&code), here("1"));
        let never = remote("oci://a/b:2");
        library.put(never.clone(), Err("no".into()));
        assert_eq!(library.find(&never), Found::Failed("no".into()));
        library.keep_last(false);
        library.put(code.clone(), Ok(b"2".to_vec()));
        assert_eq!(library.find(&code), here("2"));
    }

    #[test]
    fn what_the_configuration_in_force_goes_without_keeps_none_from_being_put_in_force() {
        let (library, missing, other) = (Library::new(), remote("oci://a/a:1"), remote("oci://a/b:1"));
        for code in [&missing, &other] {
            library.put(code.clone(), Err("no".into()));
        }
        library.check();
        library.be_lenient(true);
        library.find(&missing);
        library.be_lenient(false);
        library.settle();
        assert_eq!(library.find(&missing), Found::Missing("no".into()));
        library.put(other.clone(), Err("no".into()));
        assert_eq!(library.find(&other), Found::Failed("no".into()), "it is not among it");
        library.put(missing.clone(), Ok(b"1".to_vec()));
        assert_eq!(library.find(&missing), here("1"));
        library.settle();
        library.put(missing.clone(), Err("no".into()));
        assert_eq!(library.find(&missing), Found::Failed("no".into()), "it is in force now");
    }

    #[test]
    fn an_image_that_moves_is_looked_for_in_each_round() {
        let (library, moving, standing) = (Library::new(), remote("oci://a/b:latest"), remote("oci://a/b:1"));
        library.check();
        for code in [&moving, &standing] {
            library.put(code.clone(), Ok(b"1".to_vec()));
            assert_eq!(library.find(code), here("1"));
        }
        library.begin_round();
        assert_eq!(library.wanted(), [moving]);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (library, a, b) = (Library::new(), remote("oci://a/a:1"), remote("oci://a/b:1"));
        for code in [&a, &b] {
            library.put(code.clone(), Ok(b"1".to_vec()));
        }
        for code in [&a, &b] {
            library.count_below(code, "some");
        }
        assert_eq!((library.kept_below("some"), library.kept_below("other")), (2, 0));
        library.check();
        library.find(&a);
        assert_eq!(library.settle(), 1);
        assert_eq!((library.kept_below("some"), library.counted_below(&a)), (1, Some("some")));
        library.check();
        library.find(&b);
        assert_eq!((library.counted_below(&b), library.wanted()), (None, vec![b]));
    }
}
