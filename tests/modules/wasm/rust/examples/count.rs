//! Counts the bytes of bodies as they pass, and tells the request's on the answer.

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

proxy_wasm::main! {{
    proxy_wasm::set_http_context(|_, _| Box::new(Stream::default()));
}}

#[derive(Default)]
struct Stream {
    bytes: usize,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_body(&mut self, size: usize, _: bool) -> Action {
        self.bytes += size;
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        self.set_http_response_header("x-request-bytes", Some(&self.bytes.to_string()));
        Action::Continue
    }

    fn on_http_response_body(&mut self, _: usize, _: bool) -> Action {
        Action::Continue
    }
}
