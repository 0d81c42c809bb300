//! Replaces a text wherever it stands in the bodies of requests and responses.

use std::rc::Rc;

use postrider_test_modules::settings;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Settings {
    find: Vec<u8>,
    replace: Vec<u8>,
}

#[derive(Default)]
struct Plugin {
    settings: Rc<Settings>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let Some(read) = settings(self.get_plugin_configuration(), ["find", "replace"]) else { return false };
        let [find, replace] = read.map(String::into_bytes);
        self.settings = Rc::new(Settings { find, replace });
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

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, end: bool) -> Action {
        // The length will be another one.
        if !end {
            self.remove_http_request_header("content-length");
        }
        Action::Continue
    }

    fn on_http_request_body(&mut self, size: usize, end: bool) -> Action {
        // Held until it is whole; then `size` is all of it.
        if !end {
            return Action::Pause;
        }
        if let Some(body) = self.get_http_request_body(0, size) {
            self.set_http_request_body(0, size, &self.settings.rewrite(&body));
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, end: bool) -> Action {
        if !end {
            self.remove_http_response_header("content-length");
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end: bool) -> Action {
        if !end {
            return Action::Pause;
        }
        if let Some(body) = self.get_http_response_body(0, size) {
            self.set_http_response_body(0, size, &self.settings.rewrite(&body));
        }
        Action::Continue
    }
}

impl Settings {
    fn rewrite(&self, mut body: &[u8]) -> Vec<u8> {
        let mut rewritten = Vec::with_capacity(body.len());
        while let Some((first, rest)) = body.split_first() {
            body = match body.strip_prefix(&*self.find) {
                Some(rest) => {
                    rewritten.extend_from_slice(&self.replace);
                    rest
                }
                None => {
                    rewritten.push(*first);
                    rest
                }
            };
        }
        rewritten
    }
}
