//! Calls every function of the host once that the SDK has safe words for, and tells what came of each: `x-tour` of the answer
//! names them in their order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use postrider_test_modules::settings;
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel, MetricType};

/// For the services' answers.
const TIMEOUT: Duration = Duration::from_secs(5);

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

/// What the root context and its streams know.
#[derive(Default)]
struct Shared {
    service: String,
    grpc: String,
    queue: u32,
    counter: u32,
    gauge: u32,
    histogram: u32,
    ticked: Cell<&'static str>,
    queued: RefCell<String>,
}

#[derive(Default)]
struct Plugin {
    shared: Rc<Shared>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let Some([service, grpc]) = settings(self.get_plugin_configuration(), ["service", "grpc"]) else {
            return false;
        };
        let metric = |kind, name| hostcalls::define_metric(kind, name).unwrap_or_default();
        self.shared = Rc::new(Shared {
            service,
            grpc,
            queue: self.register_shared_queue("tour"),
            counter: metric(MetricType::Counter, "tour_counter"),
            gauge: metric(MetricType::Gauge, "tour_gauge"),
            histogram: metric(MetricType::Histogram, "tour_histogram"),
            ..Shared::default()
        });
        self.set_tick_period(Duration::from_millis(10));
        true
    }

    fn on_tick(&mut self) {
        self.shared.ticked.set("ticked");
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let message = self.dequeue_shared_queue(queue).ok().flatten();
        *self.shared.queued.borrow_mut() = text(message);
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { shared: self.shared.clone(), context, ..Stream::default() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

#[derive(Default)]
struct Stream {
    shared: Rc<Shared>,
    context: u32,
    found: Vec<String>,
    talk: u32,
}

fn text(bytes: Option<Vec<u8>>) -> String {
    bytes.map_or_else(|| "error".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn ok<T, E>(result: Result<T, E>) -> String {
    if result.is_ok() { "ok" } else { "error" }.to_owned()
}

impl Stream {
    fn tell(&mut self, function: &str, result: impl ToString) {
        self.found.push(format!("{function}={}", result.to_string()));
    }

    fn values(&mut self) {
        let known = hostcalls::get_log_level().is_ok();
        self.tell("get_log_level", known);
        let logged = hostcalls::log(LogLevel::Info, "a tour");
        self.tell("log", ok(logged));
        let now = self.get_current_time().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.tell("get_current_time_nanoseconds", now > Duration::from_secs(1_000_000_000));
        let name = text(self.get_property(vec!["plugin_name"]));
        self.tell("get_property", name);
        let set = hostcalls::set_property(vec!["toured"], Some(b"yes"));
        self.tell("set_property", ok(set));
        let called = self.call_foreign_function("clear_route_cache", Some(b"x"));
        self.tell("call_foreign_function", ok(called));
        let Shared { counter, gauge, histogram, .. } = *self.shared;
        let value = || hostcalls::get_metric(counter).unwrap_or_default();
        let before = value();
        let counted = hostcalls::increment_metric(counter, 3).and(hostcalls::increment_metric(gauge, 5));
        let recorded = counted.and(hostcalls::record_metric(histogram, 7)).is_ok();
        let more = if recorded { value() - before } else { 0 };
        self.tell("get_metric", more);
    }

    fn fields(&mut self) {
        let value = self.get_http_request_header("x-a").unwrap_or_default();
        self.tell("get_header_map_value", value);
        self.set_http_request_header("x-a", Some("2"));
        self.add_http_request_header("x-added", "1");
        self.remove_http_request_header("x-b");
        let pairs = self.get_http_request_headers();
        let ours = pairs.iter().filter(|(name, _)| name.starts_with("x-a") || name == "x-b");
        let names: Vec<String> = ours.map(|(name, value)| format!("{name}:{value}")).collect();
        self.tell("get_header_map_pairs", names.join("+"));
    }

    fn shared(&mut self) {
        let (_, cas) = self.get_shared_data("tour");
        let set = self.set_shared_data("tour", Some(b"kept"), cas);
        self.tell("set_shared_data", ok(set));
        let kept = text(self.get_shared_data("tour").0);
        self.tell("get_shared_data", kept);
        let vm = text(self.get_property(vec!["plugin_vm_id"]));
        let queue = self.resolve_shared_queue(&vm, "tour");
        self.tell("resolve_shared_queue", queue == Some(self.shared.queue));
        let put = self.enqueue_shared_queue(self.shared.queue, Some(b"message"));
        self.tell("enqueue_shared_queue", ok(put));
    }
}

impl Context for Stream {
    fn on_http_call_response(&mut self, _: u32, _: usize, _: usize, _: usize) {
        let body = text(self.get_http_call_response_body(0, 100));
        self.tell("get_buffer_bytes", body);
        let shared = self.shared.clone();
        let call = self.dispatch_grpc_call(&shared.grpc, "echo", "Say", Vec::new(), Some(b"hello"), TIMEOUT);
        self.tell("grpc_call", u32::from(call.is_err()));
    }

    fn on_grpc_call_response(&mut self, _: u32, _: u32, size: usize) {
        let message = text(self.get_grpc_call_response_body(0, size));
        self.tell("on_grpc_receive", message);
        let shared = self.shared.clone();
        let opened = self.open_grpc_stream(&shared.grpc, "echo", "Talk", Vec::new());
        self.talk = opened.as_ref().copied().unwrap_or_default();
        self.tell("grpc_stream", u32::from(opened.is_err()));
        self.send_grpc_stream_message(self.talk, Some(b"again"), false);
        self.tell("grpc_send", 0);
    }

    fn on_grpc_stream_message(&mut self, _: u32, size: usize) {
        let message = text(self.get_grpc_stream_message(0, size));
        self.tell("on_grpc_receive", message);
        let shared = self.shared.clone();
        let other = self.open_grpc_stream(&shared.grpc, "echo", "Talk", Vec::new()).unwrap_or_default();
        self.cancel_grpc_stream(other);
        self.tell("grpc_cancel", 0);
        self.close_grpc_stream(self.talk);
        self.tell("grpc_close", 0);
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        if token != self.talk {
            return;
        }
        let (code, _) = self.get_grpc_status();
        self.tell("get_status", format!("0 {}", code == status));
        let effective = hostcalls::set_effective_context(self.context);
        self.tell("set_effective_context", ok(effective));
        let resumed = hostcalls::resume_http_request();
        self.tell("continue_stream", ok(resumed));
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        match self.get_http_request_header(":path").as_deref() {
            Some("/answer") => self.send_http_response(418, vec![("x-answered", "yes")], Some(b"teapot")),
            Some("/close") => self.reset_http_request(),
            _ => {
                self.values();
                self.fields();
                self.shared();
                let shared = self.shared.clone();
                let question = vec![(":method", "GET"), (":path", "/asked"), (":authority", &shared.service)];
                let asked = self.dispatch_http_call(&shared.service, question, Some(b"body"), Vec::new(), TIMEOUT);
                self.tell("http_call", ok(asked));
            }
        }
        Action::Pause
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        self.set_http_response_header("content-length", None);
        let shared = self.shared.clone();
        self.tell("set_tick_period_milliseconds", shared.ticked.get());
        self.tell("dequeue_shared_queue", shared.queued.borrow());
        let pairs = self.get_http_response_headers();
        let mut all: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        all.push(("x-set", "3"));
        self.set_http_response_headers(all);
        self.tell("set_header_map_pairs", "ok");
        self.set_http_response_header("x-tour", Some(&self.found.join(" ")));
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end: bool) -> Action {
        if !end {
            return Action::Pause;
        }
        self.set_http_response_body(0, size, b"toured");
        Action::Continue
    }
}
