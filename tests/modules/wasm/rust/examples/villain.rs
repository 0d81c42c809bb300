//! Does what its configuration says that plugins must not do; else it marks the request.

use std::hint::black_box;

use postrider_test_modules::settings;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Plugin {
    what: String,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let Some([what]) = settings(self.get_plugin_configuration(), ["do"]) else { return false };
        self.what = what;
        true
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { what: self.what.clone() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    what: String,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        match self.what.as_str() {
            "error" => panic!("on purpose"),
            "loop" => loop {
                black_box(());
            },
            "hoard" => {
                let mut hoard = Vec::new();
                loop {
                    hoard.push(black_box(vec![b'x'; 1 << 20]));
                }
            }
            _ => self.set_http_request_header("x-done", Some("yes")),
        }
        Action::Continue
    }
}
