//! Go code that names the cluster of a request (`envoy.extensions.router.cluster_specifier.golang.v3alpha`). No filter: a
//! route asks it.
//!
//! It runs on the worker's thread and answers at once. What it is shown of the request is there for the time of the call,
//! and for that thread alone: a goroutine that asks finds nothing.

use std::cell::Cell;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use postrider_filter_api::{Chooser, ConfigError};
use postrider_filter_plugin::read::keep;
use postrider_http::RequestHead;
use postrider_model::{Value, ValueError};
use postrider_telemetry::error;

use crate::config::{any, required};
use crate::heads;
use crate::object::{self, Object, functions};
use crate::parsed::address;
use crate::trial::{self, Kind};

pub(crate) const KIND: &str = "envoy.extensions.router.cluster_specifier.golang.v3alpha.Config";

/// The room for a name at first, as in Envoy. Go code that needs more says how much, and is asked again.
const ROOM: usize = 256;

/// Longest name, as in Envoy.
const MAX_NAME: usize = 8192;

functions! {
    /// The functions of a library that chooses clusters.
    #[derive(Debug, Clone, Copy)]
    struct Entries {
        /// Configuration and its length: a number for it, 0 when it is refused.
        new_plugin: unsafe extern "C" fn(u64, u64) -> u64 = c"envoyGoClusterSpecifierNewPlugin",
        /// Who asks, the request, the configuration's number, room for the name and its size: the name's length, 0 when there
        /// is none, less when the code panicked.
        specify: unsafe extern "C" fn(u64, u64, u64, u64, u64) -> i64 = c"envoyGoOnClusterSpecify",
        destroy_plugin: unsafe extern "C" fn(u64) = c"envoyGoClusterSpecifierDestroyPlugin",
    }
}

/// A configuration that Go code has read.
struct Plugin {
    object: &'static Object,
    entries: Entries,
    id: u64,
    default_cluster: String,
}

/// Reads `Config`, and has the library read its part.
pub(crate) fn build(value: &Value) -> Result<Chooser, ConfigError> {
    let mut errors = Vec::new();
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let [_, path, default_cluster] =
        ["library_id", "library_path", "default_cluster"].map(|key| required(&mut fields, key, &mut errors));
    let config = keep(any::encode(fields.value("config"), "config"), &mut errors).unwrap_or_default();
    errors.extend(fields.finish().err().into_iter().flatten());
    if !errors.is_empty() {
        return Err(errors);
    }
    let refused = |path: &str, message: String| vec![ValueError { path: path.to_owned(), message }];
    let object = object::load(Path::new(&path)).map_err(|message| refused("library_path", message))?;
    let entries = Entries::of(object)
        .map_err(|reason| refused("library_path", format!("{path} chooses no clusters: {reason}")))?;
    trial::of(Kind::Clusters, object, "", &config).map_err(|why| refused("config", why))?;
    let id = entries.read(&config);
    if id == 0 {
        return Err(refused("config", format!("the Go code of {path} refuses this configuration")));
    }
    let plugin = Plugin { object, entries, id, default_cluster };
    Ok(Arc::new(move |request, _| Some(plugin.cluster(request))))
}

/// Whether the library at this path takes a configuration: for a process that does nothing else.
///
/// # Errors
/// It cannot be loaded, or chooses no clusters.
pub(crate) fn accepts(path: &Path, config: &[u8]) -> Result<bool, String> {
    Ok(Entries::of(object::load(path)?)?.read(config) != 0)
}

impl Entries {
    /// Has Go code read a configuration: a number for it, 0 when it is refused.
    fn read(&self, config: &[u8]) -> u64 {
        // SAFETY: the bytes outlive the call, in which Go code copies them.
        unsafe { (self.new_plugin)(address(config), config.len() as u64) }
    }
}

impl Plugin {
    /// The cluster for this request: what Go code says, or the default.
    fn cluster(&self, request: &RequestHead) -> String {
        let asked = Asked { request, object: self.object };
        let mut small = [0; ROOM];
        let mut large = Vec::new();
        let mut len = self.ask(&asked, &mut small);
        // Each round asks for more than the one before.
        while len > ROOM.max(large.len()) && len <= MAX_NAME {
            large.resize(len, 0);
            len = self.ask(&asked, &mut large);
        }
        let room = if large.is_empty() { &small[..] } else { &large };
        match room.get(..len) {
            Some([]) => self.default_cluster.clone(),
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => {
                let path = self.object.path.display();
                error!(Filter, "{path}: the name of a cluster has {len} bytes: at most {MAX_NAME} are taken");
                self.default_cluster.clone()
            }
        }
    }

    /// The length of the name, which is in `room` if it fits; 0 for none.
    fn ask(&self, asked: &Asked<'_>, room: &mut [u8]) -> usize {
        let start = room.as_mut_ptr() as u64;
        let len = room.len() as u64;
        // SAFETY: the number is of this library, and the room is as large as it is told.
        let said = asked.during(|asked| unsafe { (self.entries.specify)(asked, asked, self.id, start, len) });
        usize::try_from(said).unwrap_or_default()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: the number is of this library, and nobody uses it any more.
        unsafe { (self.entries.destroy_plugin)(self.id) };
    }
}

/// What Go code is asked about.
pub(crate) struct Asked<'r> {
    request: &'r RequestHead,
    object: &'static Object,
}

thread_local! {
    static CURRENT: Cell<*const Asked<'static>> = const { Cell::new(ptr::null()) };
}

impl Asked<'_> {
    /// Calls into Go, with a number for what it is asked.
    fn during<T>(&self, call: impl FnOnce(u64) -> T) -> T {
        let this = ptr::from_ref(self).cast::<Asked<'static>>();
        CURRENT.set(this);
        let answer = call(this as u64);
        CURRENT.set(ptr::null());
        answer
    }

    /// What that number stands for; `None` when the call is over, or is another thread's.
    pub(crate) fn of<T>(number: u64, look: impl FnOnce(&Asked<'_>) -> T) -> Option<T> {
        let current = CURRENT.get();
        if current as u64 != number {
            return None;
        }
        // SAFETY: it is not null for the time of a call only, in which what it points to stays.
        unsafe { current.as_ref() }.map(look)
    }

    /// The request's fields, with the parts of its first line among them.
    pub(crate) fn each(&self, call: &mut dyn FnMut(&[u8], &[u8])) {
        heads::each_of_request(self.request, false, call);
    }

    /// Go code says what went wrong.
    pub(crate) fn log(&self, message: &str) {
        error!(Filter, "{}: {message}", self.object.path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_told_at_once() {
        let text = |text: &str| Value::String(text.to_owned());
        let value = Value::Map(vec![
            ("library_path".into(), text("")),
            ("config".into(), Value::Map(vec![("@type".into(), text("x/a.B"))])),
            ("other".into(), text("x")),
        ]);
        let errors = build(&value).err().unwrap();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["library_id", "library_path", "default_cluster", "config", "other"]);
    }

    #[test]
    fn what_is_asked_is_known_during_the_call_and_on_its_thread_alone() {
        let request = postrider_filter_api::testing::FakeStream::new("GET", "/a", &[("x-a", "1")]).request;
        let object = Object::fake();
        let asked = Asked { request: &request, object };
        let count = |number: u64| {
            Asked::of(number, |asked| {
                let mut count = 0;
                asked.each(&mut |_, _| count += 1);
                count
            })
        };
        let number = asked.during(|number| {
            assert!(count(number).is_some_and(|count| count >= 4));
            assert_eq!(count(number + 8), None);
            let elsewhere = std::thread::scope(|scope| scope.spawn(|| count(number)).join().unwrap());
            assert_eq!(elsewhere, None);
            number
        });
        assert_eq!(count(number), None);
        assert_eq!(count(0), None);
    }
}
