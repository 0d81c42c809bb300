//! Lets one user in, who is known by name and password.

use std::rc::Rc;

use postrider_test_modules::settings;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Settings {
    username: String,
    credentials: Vec<u8>,
}

#[derive(Default)]
struct Plugin {
    settings: Rc<Settings>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _: usize) -> bool {
        let Some([username, password]) = settings(self.get_plugin_configuration(), ["username", "password"]) else {
            return false;
        };
        let credentials = format!("{username}:{password}").into_bytes();
        self.settings = Rc::new(Settings { username, credentials });
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
        let field = self.get_http_request_header_bytes("authorization");
        let encoded = field.as_deref().and_then(|field| field.strip_prefix(b"Basic "));
        if encoded.and_then(decode).as_ref() != Some(&self.settings.credentials) {
            let challenge = vec![("www-authenticate", r#"Basic realm="postrider""#)];
            self.send_http_response(401, challenge, Some(b"unauthorized\n"));
            return Action::Pause;
        }
        self.set_http_request_header("x-auth-user", Some(&self.settings.username));
        Action::Continue
    }
}

/// What a text in base64 stands for; `None` when it is none.
fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    if encoded.len() % 4 != 0 {
        return None;
    }
    let pads = encoded.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bits = 0_u32;
    for (i, byte) in encoded[..encoded.len() - pads].iter().enumerate() {
        let sextet = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(sextet);
        if i % 4 != 0 {
            decoded.push((bits >> (6 - i % 4 * 2)) as u8);
        }
    }
    Some(decoded)
}
