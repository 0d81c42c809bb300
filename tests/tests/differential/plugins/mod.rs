//! Plugins that are compiled: the same module in both, which does what each request says (`tests/modules/wasm/c/script.h`), and
//! writes down what every function of the host answered. The access log shows that.

mod native;
mod wasm;

use crate::scene::{Scene, to_a};
use serde_json::{Value, json};

pub use native::scenes as native;
pub use wasm::scenes as wasm;

/// Behind this filter: everything goes to the origin `a`, below `/trailers` with the trailers of requests and answers; other
/// routes have a name or metadata, or are answered by the proxy.
fn scene(name: &str, filter: Value, trace: &str) -> Scene {
    let metadata = json!({"filter_metadata": {"module": {"text": "of the route", "number": 2.5, "truth": true}}});
    let routes = json!([
        to_a("/trailers", json!({"route": {"cluster": "trailers"}})),
        to_a("/named", json!({"name": "named", "metadata": metadata})),
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 200, "body": {"inline_string": "direct"}}},
        to_a("/nowhere", json!({"route": {"cluster": "down"}})),
    ]);
    Scene::filtered(name, vec![filter], routes)
        .with(json!({"generate_request_id": false, "http_protocol_options": {"enable_trailers": true}}))
        .logging(json!({ "trace": trace }))
}

impl Scene {
    /// A GET of `path` for each of the scripts.
    fn does(self, path: &str, fields: &str, scripts: &[&str]) -> Self {
        scripts.iter().fold(self, |scene, script| scene.get_with(path, &format!("x-do: {script}\r\n{fields}")))
    }

    /// The same with a body.
    fn sends(self, path: &str, fields: &str, body: &str, scripts: &[&str]) -> Self {
        scripts.iter().fold(self, |scene, script| scene.post(path, &format!("x-do: {script}\r\n{fields}"), body))
    }

    /// The same in chunks, with trailers behind them.
    fn sends_chunks(self, path: &str, scripts: &[&str]) -> Self {
        let body = "3\r\nabc\r\n4\r\ndefg\r\n0\r\nx-last: 1\r\nx-also: two\r\n\r\n";
        scripts.iter().fold(self, |scene, script| {
            let head =
                format!("POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\nx-do: {script}\r\n\r\n");
            scene.raw(head + body)
        })
    }
}
