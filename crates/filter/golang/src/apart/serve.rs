//! The process of a library, from its start to its end.

use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use postrider_telemetry::log::{self, Level};

use super::configs::Configs;
use super::control::{self, News, Said, Wish};
use super::outlet::{self, Outlet};
use super::ring::{Direction, Segment};
use super::stage::Stage;
use crate::library::{self, Library};
use crate::metrics::Metrics;
use crate::parsed;
use crate::pool::Pool;
use crate::trial;

/// The name of the command that is such a process, for the proxy alone to use.
pub const COMMAND: &str = "go-process";

/// The way to the proxy beside streams.
struct Home {
    control: Mutex<UnixStream>,
    segment: Arc<Segment>,
}

static HOME: OnceLock<Home> = OnceLock::new();

/// Serves a library until the proxy goes away, or has it read one configuration (see [`trial`]). `arguments`: the library's path, then the numbers of descriptors: the memory
/// that is shared, the control socket, and a socket for each worker.
///
/// # Errors
/// It was not the proxy that started it.
pub fn serve_library(arguments: &[OsString]) -> Result<(), String> {
    if let Some((first, others)) = arguments.split_first()
        && first == trial::ARGUMENT
    {
        return trial::run(others);
    }
    let (path, fds) = arguments.split_first().ok_or("there is no library")?;
    let mut fds = fds.iter().map(descriptor).collect::<Result<Vec<_>, _>>()?.into_iter();
    let (Some(memory), Some(control)) = (fds.next(), fds.next()) else {
        return Err("this command is the proxy's own, for plugins with `isolation: process`".to_owned());
    };
    let sockets: Vec<UnixStream> = fds.map(UnixStream::from).collect();
    let failed = |error: std::io::Error| error.to_string();
    let segment = Arc::new(Segment::open(&memory, sockets.len()).map_err(failed)?);
    let control = UnixStream::from(control);
    let reader = control.try_clone().map_err(failed)?;
    let home = Home { control: Mutex::new(control), segment: segment.clone() };
    if HOME.set(home).is_err() {
        return Err("it runs already".to_owned());
    }
    // The proxy says what these are to do, by going away.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // What is said here goes to the proxy's log, which has levels of its own.
    log::set_level(Level::Warning);
    let library = match library::load(Path::new(path)) {
        Ok(library) => library,
        Err(why) => {
            say(&News::Failed(why));
            return Ok(());
        }
    };
    let configs: Arc<Configs> = Arc::default();
    let workers = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
    for (index, socket) in (0..workers).zip(sockets) {
        let socket = Arc::new(socket);
        let reader = segment.reader(index as usize, Direction::ToProcess, socket.clone());
        let writer = segment.writer(index as usize, Direction::ToProxy, socket);
        let (configs, segment) = (configs.clone(), segment.clone());
        let thread = std::thread::Builder::new().name(format!("worker:{index}"));
        let served = thread.spawn(move || {
            outlet::listen(reader);
            let pool = Pool::of_process(index, Outlet::new(writer));
            Stage::new(pool, library, configs, segment).run();
        });
        served.map_err(failed)?;
    }
    say(&News::Ready);
    while let Ok(message) = control::read(&reader) {
        match Wish::read(&message) {
            Some(wish) => grant(wish, library, &configs, workers),
            None => break,
        }
    }
    leave()
}

/// A descriptor that the proxy left open for this process, and for none that this one starts.
fn descriptor(argument: &OsString) -> Result<OwnedFd, String> {
    let number: Option<RawFd> = argument.to_str().and_then(|text| text.parse().ok());
    let number = number.filter(|number| *number > 2).ok_or("a descriptor is a number")?;
    // SAFETY: a call without pointers; it fails where the descriptor is not open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(format!("descriptor {number} is not open"));
    }
    // SAFETY: it is open, and nobody else's: the proxy named it to this process alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn grant(wish: Wish<'_>, library: &'static Library, configs: &Configs, workers: u32) {
    match wish {
        Wish::Parse { key, plugin, any, of_route } => {
            let plugin = parsed::name(&plugin);
            let id = match of_route {
                true => parsed::parse_route(library, plugin, any, workers),
                false => parsed::parse_filter(library, plugin, any, &Arc::new(Metrics::elsewhere(key)), workers),
            };
            configs.put(key, (id != 0).then_some((plugin, id)));
            say(&News::Parsed { key, accepted: id != 0 });
        }
        Wish::Merge { key, plugin, parent, child } => {
            let id = match (configs.find(parent), configs.find(child)) {
                (Some((_, parent)), Some((_, child))) => parsed::merge(library, parsed::name(&plugin), parent, child),
                _ => 0,
            };
            configs.put(key, (id != 0).then_some((parsed::name(&plugin), id)));
            say(&News::Parsed { key, accepted: id != 0 });
        }
        Wish::Forget { key } => {
            if let Some((_, id)) = configs.forget(key) {
                // SAFETY: the number is of this library, and nobody begins with it any more.
                unsafe { (library.entries.destroy_config)(id, 0) };
            }
        }
    }
}

/// Tells the proxy; nothing in the proxy itself.
pub(super) fn say(news: &impl Said) {
    if let Some(home) = HOME.get() {
        // A panic with the lock held ends the process.
        let control = home.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control::write(&*control, news).is_err() {
            leave();
        }
    }
}

/// What a plugin logs in its process goes to the proxy's log.
pub(crate) fn forward_log(level: u32, message: &str) {
    if log_level().is_some_and(|least| level >= least) {
        say(&News::Log { level, message: message.to_owned() });
    }
}

/// From which level on the proxy logs; `None` in the proxy itself.
pub(crate) fn log_level() -> Option<u32> {
    HOME.get().map(|home| home.segment.level().load(Ordering::Relaxed))
}

/// Statistics of a configuration of that number, in its process.
pub(crate) mod statistics {
    use super::{News, say};
    use crate::metrics::Sort;

    pub(crate) fn define(key: u64, id: u32, sort: Sort, name: &str) {
        say(&News::Define { key, id, sort, name: name.to_owned() });
    }

    pub(crate) fn increment(key: u64, id: u32, offset: i64) {
        say(&News::Increment { key, id, offset });
    }

    pub(crate) fn record(key: u64, id: u32, value: u64) {
        say(&News::Record { key, id, value });
    }
}

/// The proxy is gone. Go's threads go on meanwhile: nothing is torn down under them.
pub(super) fn leave() -> ! {
    // SAFETY: ends the process, whatever its threads do.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_proxy_starts_it() {
        let of =
            |arguments: &[&str]| serve_library(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).unwrap_err();
        assert_eq!(of(&[]), "there is no library");
        assert!(of(&["x.so"]).contains("isolation: process"));
        assert_eq!(of(&["x.so", "1", "2"]), "a descriptor is a number");
        assert_eq!(of(&["x.so", "1000000"]), "descriptor 1000000 is not open");
        assert!(log_level().is_none(), "this is no such process");
    }
}
