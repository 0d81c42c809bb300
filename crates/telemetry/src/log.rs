//! The application log: what the process has to say to its operator, in Envoy's default line shape or by a pattern.
//!
//! `[2026-11-20 10:11:12.345][pid][level][component] message`, one line each. Not for requests: those have the access log.
//! Levels can be switched while running, all at once or for one component. A message that repeats is written a few
//! times a second and then counted, so that a fault on a busy path cannot fill the disk. What code that is not ours has to say
//! is its author's to read, however alike it is: of that a second has a budget.

mod pattern;

pub use pattern::LinePattern;

use crate::time::{self, TimePattern};
use pattern::Entry;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How often the same message of a component is written within [`REPEAT_WINDOW`]; the rest is counted.
pub const REPEATS_SHOWN: u32 = 5;
/// How long repeats are held together.
pub const REPEAT_WINDOW: Duration = Duration::from_secs(1);
/// Different messages whose repeats are watched at a time; the oldest gives way.
const REPEATS_WATCHED: usize = 64;

/// Most lines of one speaker's own within [`SPOKEN_WINDOW`], and most bytes of theirs: a script that logs with each request is
/// not to fill the disk.
pub const SPOKEN_LINES: u32 = 1_000;
pub const SPOKEN_BYTES: usize = 1 << 20;
/// How long a speaker's lines are counted together.
pub const SPOKEN_WINDOW: Duration = Duration::from_secs(1);

/// How much a line matters, in Envoy's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
    /// As a threshold only: nothing is written.
    Off,
}

/// Who speaks. Envoy's logger names where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Component {
    Admin,
    Config,
    Connection,
    Dns,
    File,
    Filter,
    Http,
    Main,
    Router,
    Runtime,
    Upstream,
    Worker,
}

impl Level {
    pub const ALL: [Self; 7] =
        [Self::Trace, Self::Debug, Self::Info, Self::Warning, Self::Error, Self::Critical, Self::Off];

    /// As Envoy writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Off => "off",
        }
    }
}

impl FromStr for Level {
    type Err = ();

    /// Envoy's names; it also takes `warn`.
    fn from_str(name: &str) -> Result<Self, ()> {
        if name == "warn" {
            return Ok(Self::Warning);
        }
        Self::ALL.into_iter().find(|level| level.name() == name).ok_or(())
    }
}

impl Component {
    pub const ALL: [Self; 12] = [
        Self::Admin,
        Self::Config,
        Self::Connection,
        Self::Dns,
        Self::File,
        Self::Filter,
        Self::Http,
        Self::Main,
        Self::Router,
        Self::Runtime,
        Self::Upstream,
        Self::Worker,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Config => "config",
            Self::Connection => "connection",
            Self::Dns => "dns",
            Self::File => "file",
            Self::Filter => "filter",
            Self::Http => "http",
            Self::Main => "main",
            Self::Router => "router",
            Self::Runtime => "runtime",
            Self::Upstream => "upstream",
            Self::Worker => "worker",
        }
    }
}

impl FromStr for Component {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|component| component.name() == name).ok_or(())
    }
}

static LEVELS: [AtomicU8; Component::ALL.len()] = [const { AtomicU8::new(Level::Info as u8) }; Component::ALL.len()];
/// Somebody's lines are counted.
static SPOKEN: AtomicBool = AtomicBool::new(false);
static LOG: LazyLock<Mutex<Log>> = LazyLock::new(|| Mutex::new(Log::new(Output::Stderr)));

/// Whether a line would be written: ask before building a costly one. One relaxed load.
#[inline]
pub fn enabled(component: Component, level: Level) -> bool {
    LEVELS.get(component as usize).is_some_and(|threshold| level as u8 >= threshold.load(Relaxed))
}

/// The threshold of one component.
pub fn level(component: Component) -> Level {
    let level = LEVELS.get(component as usize).map(|threshold| threshold.load(Relaxed));
    Level::ALL.into_iter().find(|known| Some(*known as u8) == level).unwrap_or(Level::Off)
}

/// Sets the threshold of all components.
pub fn set_level(level: Level) {
    LEVELS.iter().for_each(|threshold| threshold.store(level as u8, Relaxed));
}

/// Sets the threshold of one component.
pub fn set_component_level(component: Component, level: Level) {
    if let Some(threshold) = LEVELS.get(component as usize) {
        threshold.store(level as u8, Relaxed);
    }
}

/// Writes lines by this pattern from now on.
pub fn set_pattern(pattern: LinePattern) {
    lock().shape = Some(pattern);
}

/// Sends lines to a file from now on (appended, made if missing) instead of stderr.
pub fn open_file(path: &Path) -> io::Result<()> {
    let file = append(path)?;
    lock().output = Output::File { path: path.to_path_buf(), file };
    Ok(())
}

/// Opens the file again after it was moved away; on failure the old one stays in use.
pub fn reopen() -> io::Result<()> {
    let mut log = lock();
    if let Output::File { path, file } = &mut log.output {
        *file = append(path)?;
    }
    Ok(())
}

/// Writes one line if its level is at least the component's. Line breaks in the message are written as `\n`: a line is an
/// entry, and what a peer sent may not forge one.
pub fn write(component: Component, level: Level, message: fmt::Arguments<'_>) {
    if level == Level::Off || !enabled(component, level) {
        return;
    }
    lock().write(component, level, message, SystemTime::now(), Instant::now());
}

/// The same for a line that code of others wrote: `speaker` is its plugin. Each is written, also one like the last, as long as
/// there are not too many.
pub fn write_of(speaker: &str, component: Component, level: Level, message: fmt::Arguments<'_>) {
    if level == Level::Off || !enabled(component, level) {
        return;
    }
    SPOKEN.store(true, Relaxed);
    lock().speak(speaker, component, level, message, (SystemTime::now(), Instant::now()));
}

/// Tells how many lines of speakers were left out in windows that are over. For whoever comes by about once a second.
pub fn tell_left_out() {
    if SPOKEN.load(Relaxed) {
        let mut log = lock();
        log.tell_left_out(SystemTime::now(), Instant::now());
        SPOKEN.store(!log.speakers.is_empty(), Relaxed);
    }
}

/// `debug!(Upstream, "cluster {name}: …")`: a line at debug level.
#[macro_export]
macro_rules! debug {
    ($component:ident, $($message:tt)+) => { $crate::line!($component, Debug, $($message)+) };
}

/// A line at info level.
#[macro_export]
macro_rules! info {
    ($component:ident, $($message:tt)+) => { $crate::line!($component, Info, $($message)+) };
}

/// A line at warning level.
#[macro_export]
macro_rules! warning {
    ($component:ident, $($message:tt)+) => { $crate::line!($component, Warning, $($message)+) };
}

/// A line at error level.
#[macro_export]
macro_rules! error {
    ($component:ident, $($message:tt)+) => { $crate::line!($component, Error, $($message)+) };
}

/// A line at any level, by the name of the variant.
#[macro_export]
macro_rules! line {
    ($component:ident, $level:ident, $($message:tt)+) => {{
        let (component, level) = ($crate::log::Component::$component, $crate::log::Level::$level);
        if $crate::log::enabled(component, level) {
            $crate::log::write(component, level, format_args!($($message)+));
        }
    }};
}

/// A write that panicked left at most a partial line behind.
fn lock() -> std::sync::MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

enum Output {
    Stderr,
    File {
        path: PathBuf,
        file: File,
    },
    #[cfg(test)]
    Memory(Vec<u8>),
}

struct Log {
    output: Output,
    pattern: TimePattern,
    /// `None` for the usual line.
    shape: Option<LinePattern>,
    line: Vec<u8>,
    message: String,
    repeats: Vec<Repeat>,
    speakers: Vec<Speaker>,
}

/// Whose lines are counted, since when.
struct Speaker {
    name: String,
    component: Component,
    since: Instant,
    lines: u32,
    bytes: usize,
    left_out: u64,
    /// The most important one of those.
    level: Level,
}

struct Repeat {
    message: u64,
    since: Instant,
    seen: u32,
}

/// What to do with a message.
#[derive(Debug, PartialEq)]
enum Verdict {
    Write,
    /// Write it, and say how many like it were left out.
    WriteAfter(u32),
    Skip,
}

impl Log {
    fn new(output: Output) -> Self {
        let pattern = TimePattern::parse("%Y-%m-%d %T.%3f");
        let (line, message) = (Vec::new(), String::new());
        Self { output, pattern, shape: None, line, message, repeats: Vec::new(), speakers: Vec::new() }
    }

    fn write(
        &mut self,
        component: Component,
        level: Level,
        message: fmt::Arguments<'_>,
        now: SystemTime,
        instant: Instant,
    ) {
        self.message.clear();
        if self.message.write_fmt(message).is_err() {
            return;
        }
        let left_out = match self.judge(component, instant) {
            Verdict::Skip => return,
            Verdict::Write => 0,
            Verdict::WriteAfter(n) => n,
        };
        if left_out > 0 {
            // Writing to a String cannot fail, nor to a Vec.
            let _ = write!(self.message, " ({left_out} more like it were left out)");
        }
        self.put(component, level, now);
    }

    fn speak(
        &mut self,
        name: &str,
        component: Component,
        level: Level,
        message: fmt::Arguments<'_>,
        (now, instant): (SystemTime, Instant),
    ) {
        self.tell_left_out(now, instant);
        self.message.clear();
        if self.message.write_fmt(message).is_err() {
            return;
        }
        let bytes = self.message.len();
        let known = self.speakers.iter_mut().find(|known| known.component == component && known.name == name);
        if let Some(speaker) = known {
            if speaker.lines >= SPOKEN_LINES || speaker.bytes + bytes > SPOKEN_BYTES {
                speaker.left_out += 1;
                speaker.level = speaker.level.max(level);
                return;
            }
            speaker.lines += 1;
            speaker.bytes += bytes;
        } else {
            let name = name.to_owned();
            let level = Level::Trace;
            self.speakers.push(Speaker { name, component, since: instant, lines: 1, bytes, left_out: 0, level });
        }
        self.put(component, level, now);
    }

    fn tell_left_out(&mut self, now: SystemTime, instant: Instant) {
        let is_over = |speaker: &mut Speaker| instant.duration_since(speaker.since) >= SPOKEN_WINDOW;
        let over: Vec<Speaker> = self.speakers.extract_if(.., is_over).collect();
        for Speaker { name, component, left_out, level, .. } in over.into_iter().filter(|over| over.left_out > 0) {
            self.message.clear();
            let _ = write!(
                self.message,
                "{name}: {left_out} more lines were left out: a plugin's are written up to {SPOKEN_LINES} a second, and {SPOKEN_BYTES} bytes"
            );
            self.put(component, level, now);
        }
    }

    /// Writes the message as one line.
    fn put(&mut self, component: Component, level: Level, now: SystemTime) {
        self.line.clear();
        if let Some(shape) = &self.shape {
            shape.write(&Entry { component, level, message: &self.message, at: now }, &mut self.line);
        } else {
            self.line.push(b'[');
            time::write(&self.pattern, now, &mut self.line);
            let _ = write!(self.line, "][{}][{}][{}] ", std::process::id(), level.name(), component.name());
            pattern::write_on_one_line(&self.message, &mut self.line);
        }
        self.line.push(b'\n');
        // Nobody is left to be told when this fails.
        let _ = match &mut self.output {
            Output::Stderr => io::stderr().write_all(&self.line),
            Output::File { file, .. } => file.write_all(&self.line),
            #[cfg(test)]
            Output::Memory(memory) => memory.write_all(&self.line),
        };
    }

    /// Messages that differ only in digits (ports, counts) are the same message.
    fn judge(&mut self, component: Component, now: Instant) -> Verdict {
        let mut hasher = DefaultHasher::new();
        (component as u8).hash(&mut hasher);
        self.message.bytes().filter(|b| !b.is_ascii_digit()).for_each(|b| b.hash(&mut hasher));
        let message = hasher.finish();
        if let Some(repeat) = self.repeats.iter_mut().find(|repeat| repeat.message == message) {
            repeat.seen += 1;
            if now.duration_since(repeat.since) < REPEAT_WINDOW {
                return if repeat.seen <= REPEATS_SHOWN { Verdict::Write } else { Verdict::Skip };
            }
            let left_out = (repeat.seen - 1).saturating_sub(REPEATS_SHOWN);
            *repeat = Repeat { message, since: now, seen: 1 };
            return if left_out == 0 { Verdict::Write } else { Verdict::WriteAfter(left_out) };
        }
        if self.repeats.len() == REPEATS_WATCHED {
            let oldest = self.repeats.iter().enumerate().min_by_key(|(_, repeat)| repeat.since).map(|(at, _)| at);
            oldest.map(|at| self.repeats.swap_remove(at));
        }
        self.repeats.push(Repeat { message, since: now, seen: 1 });
        Verdict::Write
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn text(log: &Log) -> String {
        match &log.output {
            Output::Memory(memory) => String::from_utf8(memory.clone()).unwrap(),
            _ => String::new(),
        }
    }

    #[test]
    fn a_line_has_envoys_shape_and_stays_one_line() {
        let mut log = Log::new(Output::Memory(Vec::new()));
        let now = UNIX_EPOCH + Duration::from_millis(1_795_169_472_345);
        log.write(Component::Upstream, Level::Warning, format_args!("bad\r\n[x] answer"), now, Instant::now());
        let pid = std::process::id();
        assert_eq!(text(&log), format!("[2026-11-20 10:11:12.345][{pid}][warning][upstream] bad\\r\\n[x] answer\n"));
    }

    #[test]
    fn a_line_may_have_another_shape() {
        let mut log = Log::new(Output::Memory(Vec::new()));
        log.shape = Some(LinePattern::parse(r#"{"level":"%l","message":"%j"}"#, false));
        log.write(Component::Main, Level::Error, format_args!("say \"hi\""), UNIX_EPOCH, Instant::now());
        assert_eq!(text(&log), "{\"level\":\"error\",\"message\":\"say \\\"hi\\\"\"}\n");
    }

    #[test]
    fn repeats_are_counted_instead_of_written() {
        let mut log = Log::new(Output::Memory(Vec::new()));
        let start = Instant::now();
        let mut say = |n: u64, at: Duration| {
            log.write(Component::Http, Level::Error, format_args!("port {n} failed"), UNIX_EPOCH, start + at);
        };
        (0..100).for_each(|n| say(n, Duration::ZERO));
        say(7, REPEAT_WINDOW);
        say(8, REPEAT_WINDOW);
        let lines = text(&log);
        assert_eq!(lines.lines().count(), REPEATS_SHOWN as usize + 2);
        assert!(lines.contains("port 7 failed (95 more like it were left out)"), "{lines}");
    }

    #[test]
    fn lines_of_a_script_are_all_written_though_they_are_alike() {
        let mut log = Log::new(Output::Memory(Vec::new()));
        let start = Instant::now();
        for n in 0..100 {
            log.speak("p", Component::Filter, Level::Info, format_args!("step {n}"), (UNIX_EPOCH, start));
        }
        assert_eq!(text(&log).lines().count(), 100);
    }

    #[test]
    fn a_script_that_floods_the_log_is_cut_off_and_told_so_when_the_window_ends() {
        let mut log = Log::new(Output::Memory(Vec::new()));
        let start = Instant::now();
        let mut say = |who: &str, what: &str, at| {
            log.speak(who, Component::Filter, Level::Info, format_args!("{what}"), (UNIX_EPOCH, start + at));
        };
        (0..SPOKEN_LINES + 7).for_each(|_| say("loud", "a", Duration::ZERO));
        say("quiet", "b", Duration::ZERO);
        let long = "x".repeat(SPOKEN_BYTES / 4 + 1);
        (0..5).for_each(|_| say("long", &long, Duration::ZERO));
        assert_eq!(text(&log).lines().count(), SPOKEN_LINES as usize + 1 + 3);
        log.tell_left_out(UNIX_EPOCH, start + SPOKEN_WINDOW / 2);
        assert!(!text(&log).contains("left out"));
        log.tell_left_out(UNIX_EPOCH, start + SPOKEN_WINDOW);
        let told = text(&log);
        let told: Vec<&str> = told.lines().filter(|line| line.contains("more lines were left out")).collect();
        assert!(told.len() == 2 && told[0].contains("[info][filter] loud: 7 more lines"), "{told:?}");
        assert!(told[1].contains("long: 2 more lines"), "{told:?}");
        assert!(log.speakers.is_empty());
    }

    #[test]
    fn many_different_messages_are_not_held_back() {
        let mut log = Log::new(Output::Memory(Vec::new()));
        for n in 0..10 * REPEATS_WATCHED {
            let name = "x".repeat(n);
            log.write(Component::Main, Level::Info, format_args!("{name}"), UNIX_EPOCH, Instant::now());
        }
        assert_eq!(text(&log).lines().count(), 10 * REPEATS_WATCHED);
        assert_eq!(log.repeats.len(), REPEATS_WATCHED);
    }

    #[test]
    fn levels_are_per_component() {
        assert!(enabled(Component::Dns, Level::Info) && !enabled(Component::Dns, Level::Debug));
        set_component_level(Component::Dns, Level::Trace);
        assert!(enabled(Component::Dns, Level::Trace) && !enabled(Component::Router, Level::Debug));
        assert_eq!(level(Component::Dns), Level::Trace);
        set_component_level(Component::Dns, Level::Info);
        assert_eq!("warn".parse(), Ok(Level::Warning));
        assert_eq!("nope".parse::<Level>(), Err(()));
        for component in Component::ALL {
            assert_eq!(component.name().parse(), Ok(component));
        }
    }
}
