//! Go code that speaks to the hosts of a cluster in place of HTTP (`envoy.extensions.upstreams.http.tcp.golang.v3alpha`).
//!
//! It runs on the worker's thread and answers at once. What it is shown of a request and its answer is there for the time of
//! the call, and for that thread alone: a goroutine that asks is told that this is not the time.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use postrider_filter_api::{BridgeFactory, BridgeFacts, BridgeSession, BridgeStep, ConfigError};
use postrider_filter_plugin::read::keep;
use postrider_http::{RequestHead, ResponseHead};
use postrider_model::{Value, ValueError};

use crate::abi::{HttpConfig, HttpRequest, Phase, ProcessState, status};
use crate::config::{any, required};
use crate::heads::{self, Edit};
use crate::mirror::Mirror;
use crate::object::{self, functions};
use crate::parsed::{self, address};
use crate::plugin_names;
use crate::trial::{self, Kind};

pub(crate) const KIND: &str = "envoy.extensions.upstreams.http.tcp.golang.v3alpha.Config";

/// Go code is shown one piece of bytes at a time, which it names by a number.
const BUFFER: u64 = 1;

functions! {
    /// The functions of a library that speaks to hosts.
    #[derive(Debug, Clone, Copy)]
    struct Entries {
        /// A number for the configuration, 0 when it is refused.
        new_config: unsafe extern "C" fn(*mut HttpConfig) -> u64 = c"envoyGoHttpTcpBridgeOnConfig",
        destroy_config: unsafe extern "C" fn(u64) = c"envoyGoHttpTcpBridgeDestroyPluginConfig",
        /// Whether nothing follows, fields and their bytes, the buffer and its length: a number of [`BridgeStep`].
        on_head: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64, u64, u64) -> u64
            = c"envoyGoHttpTcpBridgeOnEncodeHeader",
        on_data: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64) -> u64 = c"envoyGoHttpTcpBridgeOnEncodeData",
        on_received: unsafe extern "C" fn(*mut ProcessState, u64, u64, u64, u64, u64) -> u64
            = c"envoyGoHttpTcpBridgeOnUpstreamData",
        on_destroy: unsafe extern "C" fn(*mut HttpRequest) = c"envoyGoHttpTcpBridgeOnDestroy",
    }
}

/// A configuration that Go code has read.
#[derive(Debug)]
struct Plugin {
    entries: Entries,
    name: &'static str,
    id: u64,
}

struct Factory(Arc<Plugin>);

/// Reads `Config`, and has the library read its part.
pub(crate) fn build(value: &Value) -> Result<Arc<dyn BridgeFactory>, ConfigError> {
    let mut errors = Vec::new();
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let [_, path, plugin] =
        ["library_id", "library_path", "plugin_name"].map(|key| required(&mut fields, key, &mut errors));
    let any = keep(any::encode(fields.value("plugin_config"), "plugin_config"), &mut errors).unwrap_or_default();
    errors.extend(fields.finish().err().into_iter().flatten());
    if !errors.is_empty() {
        return Err(errors);
    }
    let refused = |path: &str, message: String| vec![ValueError { path: path.to_owned(), message }];
    let object = object::load(Path::new(&path)).map_err(|message| refused("library_path", message))?;
    let entries =
        Entries::of(object).map_err(|reason| refused("library_path", format!("{path} bridges nothing: {reason}")))?;
    if !object.mentions(&plugin) {
        // The SDK would pass on bodies as they are, and heads not at all.
        return Err(refused("plugin_name", plugin_names::unknown(&path, &plugin)));
    }
    trial::of(Kind::Hosts, object, &plugin, &any).map_err(|why| refused("plugin_config", why))?;
    let name = parsed::name(&plugin);
    let id = entries.read(name, &any);
    if id == 0 {
        return Err(refused("plugin_config", format!("the Go code of {path} refuses this configuration")));
    }
    Ok(Arc::new(Factory(Arc::new(Plugin { entries, name, id }))))
}

/// Whether the library at this path takes a configuration: for a process that does nothing else.
///
/// # Errors
/// It cannot be loaded, or bridges nothing.
pub(crate) fn accepts(path: &Path, plugin: &str, any: &[u8]) -> Result<bool, String> {
    Ok(Entries::of(object::load(path)?)?.read(plugin, any) != 0)
}

impl Entries {
    /// Has Go code read a configuration: a number for it, 0 when it is refused.
    fn read(&self, plugin: &str, any: &[u8]) -> u64 {
        let mut config = HttpConfig {
            plugin_name: address(plugin.as_bytes()),
            plugin_name_len: plugin.len() as u64,
            config: address(any),
            config_len: any.len() as u64,
            is_route_config: 0,
            concurrency: 0,
        };
        // SAFETY: name and bytes outlive the call, in which Go code copies them.
        unsafe { (self.new_config)(&raw mut config) }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: the number is of this library, and nobody uses it any more.
        unsafe { (self.entries.destroy_config)(self.id) };
    }
}

impl BridgeFactory for Factory {
    fn begin(&self, facts: &BridgeFacts<'_>) -> Box<dyn BridgeSession> {
        Box::new(Session::new(&self.0, facts))
    }
}

/// A request, as Go code knows it.
#[repr(C)]
struct Frame {
    request: HttpRequest,
    /// Of the answer and of the request: the SDK names directions as the host sees them.
    states: [ProcessState; 2],
}

/// A request with the connection to its host.
struct Session {
    plugin: Arc<Plugin>,
    /// Where it stays while Go code knows it.
    frame: *mut Frame,
    /// Go code has something to forget.
    entered: bool,
    tls: bool,
    /// Go code gave the answer a status.
    has_status: bool,
    told: RefCell<Told>,
}

/// What Go code is told, and says, in a call.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Which of the two messages it has in hand.
    has: Option<Message>,
    /// Of the request or of the answer.
    fields: Mirror,
    pub(crate) data: Vec<u8>,
    edits: Vec<Edit>,
    /// The answer's head has gone.
    head_is_gone: bool,
    pub(crate) table: String,
    pub(crate) cluster: String,
    pub(crate) half_closes: bool,
}

/// By the place of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Answer = 0,
    Request = 1,
}

impl Told {
    /// The fields of the message in hand.
    pub(crate) fn readable(&self) -> Result<&Mirror, c_int> {
        match self.has {
            Some(Message::Answer) if self.head_is_gone => Err(status::INVALID_PHASE),
            _ => Ok(&self.fields),
        }
    }

    /// A change to the answer's head.
    pub(crate) fn edit(&mut self, edit: Edit) -> Result<c_int, c_int> {
        if self.head_is_gone || self.has != Some(Message::Answer) {
            return Err(status::INVALID_PHASE);
        }
        self.edits.push(edit);
        Ok(status::OK)
    }
}

thread_local! {
    /// The session that this thread is in Go with.
    static CURRENT: Cell<*const Session> = const { Cell::new(ptr::null()) };
}

/// Looks at what one of Go code's states stands for.
///
/// # Errors
/// The call is over, or is another thread's.
pub(crate) fn in_call(
    state: *mut c_void,
    look: impl FnOnce(&mut Told) -> Result<c_int, c_int>,
) -> Result<c_int, c_int> {
    current(|session, told| {
        let is_meant = told.has.is_some_and(|message| ptr::eq(session.state(message), state.cast()));
        if is_meant { look(told) } else { Err(status::NOT_IN_GO) }
    })
}

/// The same of the request itself.
pub(crate) fn of_request(
    request: *mut c_void,
    look: impl FnOnce(&mut Told) -> Result<c_int, c_int>,
) -> Result<c_int, c_int> {
    current(|session, told| if ptr::eq(session.frame.cast(), request) { look(told) } else { Err(status::NOT_IN_GO) })
}

fn current(look: impl FnOnce(&Session, &mut Told) -> Result<c_int, c_int>) -> Result<c_int, c_int> {
    // SAFETY: it is not null for the time of a call into Go only, in which the session stays where it is and nobody changes it.
    let session = unsafe { CURRENT.get().as_ref() }.ok_or(status::NOT_IN_GO)?;
    let mut told = session.told.try_borrow_mut().map_err(|_| status::NOT_IN_GO)?;
    look(session, &mut told)
}

impl Session {
    fn new(plugin: &Arc<Plugin>, facts: &BridgeFacts<'_>) -> Session {
        let frame = Box::into_raw(Box::new(Frame {
            request: HttpRequest {
                plugin_name: plugin.name.as_ptr().cast(),
                plugin_name_len: plugin.name.len() as u64,
                config_id: plugin.id,
                worker_id: 0,
                is_processing_log: AtomicI32::new(0),
            },
            states: [0, 1].map(|is_encoding| ProcessState {
                request: ptr::null_mut(),
                is_encoding,
                state: AtomicI32::new(Phase::WaitingHeader as i32),
            }),
        }));
        // SAFETY: it was just made, and nobody else knows it.
        unsafe {
            let request = &raw mut (*frame).request;
            (*frame).states.iter_mut().for_each(|state| state.request = request);
        }
        let told = Told { table: facts.table.to_owned(), cluster: facts.cluster.to_owned(), ..Told::default() };
        let plugin = plugin.clone();
        Session { plugin, frame, entered: false, tls: facts.tls, has_status: false, told: RefCell::new(told) }
    }

    fn state(&self, message: Message) -> *mut ProcessState {
        // SAFETY: the frame is there as long as the session, and has a state for each.
        unsafe { (&raw mut (*self.frame).states).cast::<ProcessState>().add(message as usize) }
    }

    /// Calls into Go, which finds this session meanwhile.
    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        CURRENT.set(self);
        let said = call();
        CURRENT.set(ptr::null());
        said
    }

    /// Has Go code look at some of a message.
    fn show(
        &mut self,
        (message, phase): (Message, Phase),
        data: &mut Vec<u8>,
        call: impl FnOnce(*mut ProcessState, u64) -> u64,
    ) -> BridgeStep {
        self.entered = true;
        let told = self.told.get_mut();
        told.has = Some(message);
        told.data = std::mem::take(data);
        let len = told.data.len() as u64;
        let state = self.state(message);
        // SAFETY: the frame is there as long as the session.
        let at = |phase: Phase| unsafe { (*state).state.store(phase as i32, Ordering::Relaxed) };
        at(phase);
        let said = self.during(|| call(state, len));
        at(Phase::WaitingData);
        let told = self.told.get_mut();
        told.has = None;
        *data = std::mem::take(&mut told.data);
        match said {
            0 => BridgeStep::Continue,
            1 => BridgeStep::Hold,
            _ => BridgeStep::Answer,
        }
    }

    /// The answer's head is on its way, with what Go code changed about it.
    fn settle(&mut self, head: &mut ResponseHead) {
        for edit in self.told.get_mut().edits.drain(..) {
            self.has_status |= edit.name() == b":status";
            heads::edit_response(head, &edit);
        }
    }
}

impl BridgeSession for Session {
    fn on_request_head(&mut self, head: &RequestHead, data: &mut Vec<u8>, end: bool) -> BridgeStep {
        let tls = self.tls;
        let (fields, (count, bytes)) = Mirror::of(&|call| heads::each_of_request(head, tls, call));
        self.told.get_mut().fields = fields;
        let on_head = self.plugin.entries.on_head;
        // SAFETY: the state is this session's, and what Go code is told of its fields and bytes is so during the call.
        self.show((Message::Request, Phase::ProcessingHeader), data, |state, len| unsafe {
            on_head(state, u64::from(end), count as u64, bytes as u64, BUFFER, len)
        })
    }

    fn on_request_body(&mut self, data: &mut Vec<u8>, end: bool) -> BridgeStep {
        let on_data = self.plugin.entries.on_data;
        // SAFETY: as above.
        self.show((Message::Request, Phase::ProcessingData), data, |state, len| unsafe {
            on_data(state, u64::from(end), BUFFER, len)
        })
    }

    fn on_received(&mut self, head: &mut ResponseHead, data: &mut Vec<u8>, end: bool) -> BridgeStep {
        let has_status = self.has_status;
        let (fields, (count, bytes)) = Mirror::of(&|call| match has_status {
            true => heads::each_of_response(head, call),
            false => heads::each_of(&head.fields, call),
        });
        self.told.get_mut().fields = fields;
        let on_received = self.plugin.entries.on_received;
        // SAFETY: as above.
        let step = self.show((Message::Answer, Phase::ProcessingData), data, |state, len| unsafe {
            on_received(state, u64::from(end), count as u64, bytes as u64, BUFFER, len)
        });
        self.settle(head);
        self.told.get_mut().head_is_gone |= step != BridgeStep::Hold;
        step
    }

    fn half_closes(&self) -> bool {
        self.told.borrow().half_closes
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.entered {
            // SAFETY: Go code knows the request, and is told once.
            self.during(|| unsafe { (self.plugin.entries.on_destroy)(self.frame.cast()) });
        }
        // SAFETY: it was made so, and Go code has forgotten it.
        drop(unsafe { Box::from_raw(self.frame) });
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
            ("plugin_config".into(), Value::Map(vec![("@type".into(), text("x/a.B"))])),
            ("other".into(), text("x")),
        ]);
        let errors = build(&value).err().unwrap();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["library_id", "library_path", "plugin_name", "plugin_config", "other"]);
    }

    /// Go code in Rust: what it is called with, and what it does.
    mod code {
        use super::super::*;

        pub(super) unsafe extern "C" fn config(_: *mut HttpConfig) -> u64 {
            1
        }

        pub(super) unsafe extern "C" fn forget(_: u64) {}

        pub(super) unsafe extern "C" fn head(
            state: *mut ProcessState,
            _: u64,
            count: u64,
            _: u64,
            _: u64,
            _: u64,
        ) -> u64 {
            let mut strings = Vec::new();
            let readable = in_call(state.cast(), |told| told.readable().map(|_| 0));
            assert_eq!(readable, Ok(0));
            let edited = in_call(state.cast(), |told| told.edit(Edit::Remove(b"a".to_vec())));
            assert_eq!(edited, Err(status::INVALID_PHASE), "there is no answer");
            let other = std::thread::scope(|scope| {
                let state = state as usize;
                scope.spawn(move || in_call(state as *mut c_void, |_| Ok(0))).join().unwrap()
            });
            assert_eq!(other, Err(status::NOT_IN_GO), "another thread");
            strings.extend_from_slice(format!("{count} fields").as_bytes());
            let _ = in_call(state.cast(), |told| {
                told.data = strings.clone();
                Ok(0)
            });
            0
        }

        pub(super) unsafe extern "C" fn data(_: *mut ProcessState, _: u64, _: u64, _: u64) -> u64 {
            1
        }

        pub(super) unsafe extern "C" fn received(
            state: *mut ProcessState,
            _: u64,
            count: u64,
            _: u64,
            _: u64,
            _: u64,
        ) -> u64 {
            let set = |name: &[u8], value: &[u8]| {
                in_call(state.cast(), |told| told.edit(Edit::Set(name.to_vec(), value.to_vec())))
            };
            if count > 1 {
                assert_eq!(set(b"x-a", b"3"), Ok(0));
                return 2;
            }
            let first = count == 0;
            assert_eq!((set(b":status", b"404"), set(b"x-a", b"1")), (Ok(0), Ok(0)));
            u64::from(first)
        }

        pub(super) unsafe extern "C" fn destroy(request: *mut HttpRequest) {
            assert_eq!(of_request(request.cast(), |told| Ok(told.cluster.len() as c_int)), Ok(1));
        }
    }

    #[test]
    fn go_code_finds_what_it_has_in_hand_and_nothing_else() {
        let entries = Entries {
            new_config: code::config,
            destroy_config: code::forget,
            on_head: code::head,
            on_data: code::data,
            on_received: code::received,
            on_destroy: code::destroy,
        };
        let factory = Factory(Arc::new(Plugin { entries, name: "p", id: 1 }));
        let mut session = factory.begin(&BridgeFacts { table: "t", cluster: "c", tls: false });
        let request = postrider_filter_api::testing::FakeStream::new("GET", "/a", &[("x-a", "1")]).request;
        let mut data = Vec::new();
        assert_eq!(session.on_request_head(&request, &mut data, false), BridgeStep::Continue);
        assert!(String::from_utf8(data).unwrap().ends_with(" fields"));
        let mut data = b"body".to_vec();
        assert_eq!(session.on_request_body(&mut data, false), BridgeStep::Hold);
        assert_eq!(data, b"body");
        let mut head = ResponseHead::new();
        assert_eq!(session.on_received(&mut head, &mut data, false), BridgeStep::Hold);
        assert_eq!((head.status(), head.fields.get_name(b"x-a")), (404, Some(&b"1"[..])));
        assert_eq!(session.on_received(&mut head, &mut data, true), BridgeStep::Answer);
        assert_eq!(head.fields.get_name(b"x-a"), Some(&b"3"[..]));
        assert!(!session.half_closes());
        drop(session);
        assert_eq!(in_call(ptr::null_mut(), |_| Ok(0)), Err(status::NOT_IN_GO));
    }
}
