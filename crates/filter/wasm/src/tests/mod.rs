//! The host around modules of a few lines.

mod calls;
mod config;
mod hostile;
mod streams;
mod values;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::fake::{FakeHost, FakeStream};
use postrider_filter_api::{
    Action, ConfigError, Ended, Factory, Filter, Host, Place, Registry, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_model::Value;
use postrider_telemetry::Registry as Stats;

/// What every module here has: imports, an allocator that never frees, and a function that notes a digit for tests.
const PRELUDE: &str = r#"
(import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_log_level" (func $log_level (param i32) (result i32)))
(import "env" "proxy_get_current_time_nanoseconds" (func $time (param i32) (result i32)))
(import "env" "proxy_set_tick_period_milliseconds" (func $tick_period (param i32) (result i32)))
(import "env" "proxy_get_property" (func $get_property (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_set_property" (func $set_property (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_get_status" (func $get_status (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_header_map_pairs" (func $get_pairs (param i32 i32 i32) (result i32)))
(import "env" "proxy_set_header_map_pairs" (func $set_pairs (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_header_map_size" (func $map_size (param i32 i32) (result i32)))
(import "env" "proxy_get_header_map_value" (func $get (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_remove_header_map_value" (func $remove (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_buffer_status" (func $buffer_status (param i32 i32 i32) (result i32)))
(import "env" "proxy_get_buffer_bytes" (func $get_buffer (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_set_buffer_bytes" (func $set_buffer (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_send_local_response" (func $respond (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_close_stream" (func $close (param i32) (result i32)))
(import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
(import "env" "proxy_done" (func $done (result i32)))
(import "env" "proxy_http_call" (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_grpc_call"
    (func $grpc_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_grpc_stream" (func $grpc_stream (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_grpc_send" (func $grpc_send (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_grpc_cancel" (func $grpc_cancel (param i32) (result i32)))
(import "env" "proxy_grpc_close" (func $grpc_close (param i32) (result i32)))
(import "env" "proxy_get_shared_data" (func $get_shared (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_set_shared_data" (func $set_shared (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_register_shared_queue" (func $register_queue (param i32 i32 i32) (result i32)))
(import "env" "proxy_resolve_shared_queue" (func $resolve_queue (param i32 i32 i32 i32 i32) (result i32)))
(import "env" "proxy_enqueue_shared_queue" (func $enqueue (param i32 i32 i32) (result i32)))
(import "env" "proxy_dequeue_shared_queue" (func $dequeue (param i32 i32 i32) (result i32)))
(import "env" "proxy_define_metric" (func $define_metric (param i32 i32 i32 i32) (result i32)))
(import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
(import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
(import "env" "proxy_get_metric" (func $get_metric (param i32 i32) (result i32)))
(import "env" "proxy_call_foreign_function" (func $foreign (param i32 i32 i32 i32 i32 i32) (result i32)))
;; A module that cannot let streams go on is treated otherwise: this one is imported by those that need it.
(;continue;)
(memory (export "memory") 4)
(global $heap (mut i32) (i32.const 131072))
(func (export "proxy_abi_version_0_2_1"))
(func $malloc (export "malloc") (param i32) (result i32)
    (global.get $heap)
    (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 0) (i32.const 15)) (i32.const -8)))))
;; Notes a number from 0 to 9 of this stream under a name.
(func $note (param i32 i32 i32)
    (i32.store8 (i32.const 0) (i32.add (local.get 2) (i32.const 48)))
    (drop (call $set_property (local.get 0) (local.get 1) (i32.const 0) (i32.const 1))))
;; The text whose place and length stand at 16 and 20.
(func $place (result i32) (i32.load (i32.const 16)))
(func $length (result i32) (i32.load (i32.const 20)))
"#;

/// Imports the function that lets streams go on.
const CONTINUES: &str = r#"(import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))"#;

/// A module with these functions. `$"text"` stands for the place and length of a text.
fn module(functions: &str) -> Vec<u8> {
    module_with("", functions)
}

/// The same with more imports.
fn module_with(imports: &str, functions: &str) -> Vec<u8> {
    let mut data = String::new();
    let mut place = 1024;
    let mut text = String::new();
    let mut parts = functions.split("$\"");
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (literal, rest) = part.split_once('"').expect("a text ends");
        let length = literal.len() - literal.matches('\\').count() * 2;
        data.push_str(&format!("(data (i32.const {place}) \"{literal}\")\n"));
        text.push_str(&format!("(i32.const {place}) (i32.const {length}){rest}"));
        place += length + 1;
    }
    let continues = if functions.contains("$continue") { CONTINUES } else { "" };
    let whole =
        format!("(module {}\n{text}\n{data})", PRELUDE.replace("(;continue;)", &format!("{continues}{imports}")));
    wat::parse_str(&whole).unwrap_or_else(|error| panic!("{error}"))
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.map(|(key, value)| (key.to_owned(), value)).into())
}

fn code(module: &[u8]) -> Value {
    use base64::Engine;
    map([("inline_bytes", text(&base64::engine::general_purpose::STANDARD.encode(module)))])
}

/// Envoy's configuration of a module.
fn envoy(module: &[u8], vm_id: &str, more: &[(&str, Value)]) -> Value {
    let vm = map([("vm_id", text(vm_id)), ("code", map([("local", code(module))]))]);
    let mut config =
        vec![("name".to_owned(), text("plugin")), ("root_id".to_owned(), text("root")), ("vm_config".to_owned(), vm)];
    config.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    map([("config", Value::Map(config))])
}

const ENVOY: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

fn build(kind: &str, config: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry.build("filter", kind, config).expect("the kind is known")
}

/// A filter on a worker, and a stream for it.
struct Trial {
    factory: Arc<dyn Factory>,
    filter: Rc<dyn Filter>,
    state: State,
    stream: FakeStream,
    host: Rc<FakeHost>,
    stats: Stats,
}

impl Trial {
    fn new(module: &[u8]) -> Trial {
        Trial::with("", module, &[])
    }

    fn with(vm_id: &str, module: &[u8], more: &[(&str, Value)]) -> Trial {
        Trial::of(build(ENVOY, &envoy(module, vm_id, more)).unwrap_or_else(|errors| panic!("{errors:?}")), None)
    }

    fn of(factory: Arc<dyn Factory>, route: Option<RouteConfig>) -> Trial {
        let (stats, host) = (Stats::new(), Rc::new(FakeHost::default()));
        let worker = stats.worker(0);
        let outside: Rc<dyn Host> = host.clone();
        let place = Place {
            stats: &worker,
            stat_prefix: "test",
            worker: 0,
            buffer_limit: 100,
            head_limits: None,
            host: &outside,
        };
        let filter = factory.filter(&ScopedConfigs { route, ..ScopedConfigs::default() }, &place);
        Trial { factory, filter, state: State::default(), stream: stream(), host, stats }
    }

    fn hook<T>(&mut self, hook: impl FnOnce(&dyn Filter, &mut State, &mut Stream<'_>) -> T) -> T {
        let Trial { filter, state, stream, .. } = self;
        stream.with(|stream| hook(&**filter, state, stream))
    }

    fn head(&mut self, end: bool) -> Action {
        self.hook(|filter, state, stream| filter.on_request_headers(state, stream, end))
    }

    /// A piece of the request's body behind what is held.
    fn piece(&mut self, piece: &str, end: bool) -> Action {
        self.stream.request_body.push(piece.as_bytes());
        let action = self.hook(|filter, state, stream| filter.on_request_body(state, stream, end));
        if !matches!(action, Action::Buffer | Action::Pause) {
            self.stream.request_body.clear();
        }
        action
    }

    fn resumed(&mut self) -> Action {
        self.hook(|filter, state, stream| filter.on_request_resumed(state, stream))
    }

    fn response(&mut self, end: bool) -> Action {
        self.stream.info.status = self.stream.response.status();
        self.hook(|filter, state, stream| filter.on_response_headers(state, stream, end))
    }

    fn end(&mut self) {
        let Trial { filter, state, stream, .. } = self;
        filter.on_ended(
            state,
            &Ended {
                request: &stream.request,
                response: &stream.response,
                request_trailers: &stream.request_trailers,
                response_trailers: &stream.response_trailers,
                info: &stream.info,
                route: stream.route.as_ref(),
                weighted: stream.weighted,
            },
        );
    }

    /// Ends this stream and begins another.
    fn restart(&mut self) {
        self.end();
        self.stream = stream();
    }

    /// What the module noted.
    fn noted(&self, name: &str) -> Option<String> {
        let name = format!("wasm.{name}");
        let found = self.stream.info.filter_state.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| match value {
            Value::String(text) => text.clone(),
            other => format!("{other:?}"),
        })
    }

    fn header(&self, name: &str) -> Option<String> {
        self.stream.request.fields.get_name(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn counter(&self, scope: &str, cell: usize) -> u64 {
        let scopes = self.stats.read(&[]);
        scopes.iter().filter(|known| known.set.scope_name(&known.prefix) == scope).map(|known| known.cell(cell)).sum()
    }
}

fn stream() -> FakeStream {
    FakeStream::new("GET", "/path?query", &[("x-one", "1"), ("x-two", "2")])
}

fn status(action: Action) -> u16 {
    match action {
        Action::Respond(reply) => reply.status,
        other => panic!("no answer: {other:?}"),
    }
}
