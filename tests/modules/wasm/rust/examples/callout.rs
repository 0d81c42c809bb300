//! Asks a service about each request: what it answers with 200 goes on, everything else is denied.

use std::rc::Rc;
use std::time::Duration;

use postrider_test_modules::settings;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

/// For the service's answer.
const TIMEOUT: Duration = Duration::from_secs(5);

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Settings {
    cluster: String,
    path: String,
}

#[derive(Default)]
struct Plugin {
    settings: Rc<Settings>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let Some([cluster, path]) = settings(self.get_plugin_configuration(), ["cluster", "path"]) else {
            return false;
        };
        self.settings = Rc::new(Settings { cluster, path });
        true
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { settings: self.settings.clone() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    settings: Rc<Settings>,
}

impl Stream {
    fn deny(&self, status: u32, text: &str) {
        self.send_http_response(status, Vec::new(), Some(text.as_bytes()));
    }
}

impl Context for Stream {
    fn on_http_call_response(&mut self, _: u32, _: usize, body_size: usize, _: usize) {
        let status = self.get_http_call_response_header(":status").unwrap_or_else(|| "no answer".to_owned());
        if status != "200" {
            return self.deny(403, &format!("denied by {status}\n"));
        }
        let body = self.get_http_call_response_body(0, body_size).filter(|body| !body.is_empty());
        if let Some(body) = body {
            self.set_http_request_header_bytes("x-callout", Some(&body));
        }
        self.resume_http_request();
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let original = self.get_http_request_header(":path").unwrap_or_default();
        let Settings { cluster, path } = &*self.settings;
        let question =
            vec![(":method", "GET"), (":path", path), (":authority", cluster), ("x-original-path", &original)];
        if self.dispatch_http_call(cluster, question, None, Vec::new(), TIMEOUT).is_err() {
            self.deny(500, "no call\n");
        }
        Action::Pause
    }
}
