//! Renames the header fields that begin in some way, of requests and of responses.

use std::rc::Rc;

use postrider_test_modules::settings;
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel, MapType, Status};

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Settings {
    from: String,
    to: String,
}

#[derive(Default)]
struct Plugin {
    settings: Rc<Settings>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let Some([from, to]) = settings(self.get_plugin_configuration(), ["from", "to"]) else { return false };
        self.settings = Rc::new(Settings { from, to });
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
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        self.rename(MapType::HttpRequestHeaders)
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        self.rename(MapType::HttpResponseHeaders)
    }
}

impl Stream {
    fn rename(&self, map: MapType) -> Action {
        if let Err(status) = self.try_rename(map) {
            postrider_test_modules::log(LogLevel::Error, &format!("{status:?}"));
        }
        Action::Continue
    }

    fn try_rename(&self, map: MapType) -> Result<(), Status> {
        for (key, value) in hostcalls::get_map_bytes(map)? {
            let Some(rest) = key.strip_prefix(&*self.settings.from) else { continue };
            hostcalls::set_map_value(map, &key, None)?;
            hostcalls::add_map_value_bytes(map, &format!("{}{rest}", self.settings.to), &value)?;
        }
        Ok(())
    }
}
