//! Shouts what a client sends and counts it, as a filter of connections; counts records, as an access logger.

use proxy_wasm::hostcalls::{define_metric, increment_metric};
use proxy_wasm::traits::{Context, RootContext, StreamContext};
use proxy_wasm::types::{Action, ContextType, MetricType, PeerType};

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Clone, Copy, Default)]
struct Plugin {
    bytes: u32,
    ends: u32,
    records: u32,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let define = |name: &str| define_metric(MetricType::Counter, name);
        let (Ok(bytes), Ok(ends), Ok(records)) = (define("lines.bytes"), define("lines.ends"), define("lines.records")) else {
            return false;
        };
        *self = Plugin { bytes, ends, records };
        true
    }

    fn on_log(&mut self) {
        let _ = increment_metric(self.records, 1);
    }

    fn create_stream_context(&self, _: u32) -> Option<Box<dyn StreamContext>> {
        Some(Box::new(Line(*self)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::StreamContext)
    }
}

struct Line(Plugin);

impl Context for Line {}

impl StreamContext for Line {
    fn on_downstream_data(&mut self, size: usize, _: bool) -> Action {
        if let Some(mut data) = self.get_downstream_data(0, size).filter(|data| !data.is_empty()) {
            data.make_ascii_uppercase();
            self.set_downstream_data(0, data.len(), &data);
            let _ = increment_metric(self.0.bytes, data.len() as i64);
        }
        Action::Continue
    }

    fn on_downstream_close(&mut self, _: PeerType) {
        let _ = increment_metric(self.0.ends, 1);
    }
}
