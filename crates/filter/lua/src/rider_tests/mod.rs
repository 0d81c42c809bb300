//! Rider plugins on streams without a proxy around them.

mod blake;
mod calls;
mod circuit;
mod config;
mod costs;
mod examples;
mod filesystem;
mod jit;
mod modules;
mod sandbox;
mod sdk;
mod streams;

use postrider_filter_api::ConfigError;
use postrider_filter_api::testing::FakeStream;
use serde_json::json;

use crate::testing::{Outcome, Trial};

const RIDER: &str = "proxy.filters.http.rider.v3alpha1.FilterConfig";
const RIDER_ROUTE: &str = "proxy.filters.http.rider.v3alpha1.RouteFilterConfig";
const MANIFEST: &str = "postrider.filters.http.plugin.v1.Plugin";

/// A plugin of the second version with these hooks: `header`, `body`, `response_header`, `response_body`.
fn v2(hooks: &[(&str, &str)]) -> String {
    let mut script =
        String::from("require('rider.v2')\nlocal req, resp = envoy.req, envoy.resp\nlocal h = { version = 'v2' }\n");
    for (name, body) in hooks {
        script.push_str(&format!("function h.on_{name}() {body} end\n"));
    }
    script + "return h\n"
}

/// A plugin of the first version with one or both of `request` and `response`.
fn v1(hooks: &[(&str, &str)]) -> String {
    v2(hooks).replace("require('rider.v2')", "require('rider')").replace("{ version = 'v2' }", "{}")
}

impl Trial {
    /// A Rider plugin that the route names, with this base configuration and, for the route, that entry.
    fn rider_with(script: &str, base: serde_json::Value, route: serde_json::Value) -> Result<Trial, ConfigError> {
        let config = json!({ "plugin": {
            "name": "test", "config": base, "code": { "local": { "inline_string": script } },
        }});
        let route = json!({ "plugins": [route] }).to_string();
        Trial::new(RIDER, &config.to_string(), Some((RIDER_ROUTE, &route)))
    }

    /// A Rider plugin that the route names.
    fn rider(script: &str) -> Trial {
        match Trial::rider_with(script, json!({}), json!({ "name": "test", "config": {} })) {
            Ok(trial) => trial,
            Err(errors) => panic!("{errors:?}"),
        }
    }

    /// A plugin with the SDK's own sandbox level and options.
    fn manifest(script: &str, options: serde_json::Value) -> Result<Trial, ConfigError> {
        let config = json!({
            "name": "test", "runtime": "rider", "code": { "inline_string": script }, "options": options,
        });
        Trial::new(MANIFEST, &config.to_string(), None)
    }

    fn response_trailers(&mut self) -> Outcome {
        let (filter, state) = (self.filter.clone(), &mut self.0.state);
        let action = self.0.stream.with(|stream| filter.on_response_trailers(state, stream));
        self.outcome(action)
    }

    /// Shows pieces of a body that does not end with them.
    fn request_so_far(&mut self, pieces: &[&str]) {
        let (filter, state) = (self.filter.clone(), &mut self.0.state);
        self.0.stream.with(|stream| filter.on_request_headers(state, stream, false));
        for piece in pieces {
            self.stream.request_body.push(piece.as_bytes());
            let (filter, state) = (self.filter.clone(), &mut self.0.state);
            self.0.stream.with(|stream| filter.on_request_body(state, stream, false));
        }
    }

    fn response_so_far(&mut self, pieces: &[&str]) {
        let (filter, state) = (self.filter.clone(), &mut self.0.state);
        self.0.stream.with(|stream| filter.on_response_headers(state, stream, false));
        for piece in pieces {
            self.stream.response_body.push(piece.as_bytes());
            let (filter, state) = (self.filter.clone(), &mut self.0.state);
            self.0.stream.with(|stream| filter.on_response_body(state, stream, false));
        }
    }

    fn outcome(&self, action: postrider_filter_api::Action) -> Outcome {
        use postrider_filter_api::Action;
        match action {
            Action::Continue | Action::Done | Action::Buffer | Action::Take | Action::Detour(_) | Action::Anew(_) => {
                Outcome::Passed
            }
            Action::Pause | Action::Part(_) => Outcome::Paused,
            Action::Respond(reply) => {
                Outcome::Answered(reply.status, String::from_utf8_lossy(&reply.body).into_owned())
            }
        }
    }

    /// The next stream: a GET.
    fn again(&mut self) {
        self.restart(get(&[]));
    }
}

fn get(lines: &[(&str, &str)]) -> FakeStream {
    FakeStream::new("GET", "/", lines)
}

/// Runs `body` in a header hook of the second version and answers with what it left in `x-out`.
fn out(body: &str) -> Option<String> {
    out_of(&mut Trial::rider(&v2(&[("request_header", body)])))
}

fn out_of(trial: &mut Trial) -> Option<String> {
    assert_eq!(trial.request(&[]), Outcome::Passed);
    trial.request_header("x-out")
}

/// Lua that puts what an expression gives, or the error it raises, into `x-out`. Statements may stand before it, each
/// closed by a semicolon.
fn show(expression: &str) -> String {
    let (statements, expression) = expression.rsplit_once("; ").unwrap_or(("", expression));
    format!(
        "local function shown(ok, ...)
           local parts = {{}}
           for i = 1, select('#', ...) do parts[i] = tostring((select(i, ...))) end
           return (ok and '' or 'E: ') .. table.concat(parts, '|')
         end
         local text = shown(pcall(function() {statements} local all = table.pack({expression}) return unpack(all, 1, all.n) end))
         envoy.req.set_header('x-out', text == '' and '(empty)' or (text:gsub('%c', ' ')))"
    )
}
