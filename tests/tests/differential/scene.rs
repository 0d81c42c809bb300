//! What is compared: a listener with routes of its own, and the requests that it gets.

use postrider_tests::kit::config;
use serde_json::{Value, json};

/// One listener and what is sent to it.
#[derive(Clone, Debug)]
pub struct Scene {
    pub name: String,
    /// Laid over the connection manager that all scenes have in common.
    pub manager: Value,
    /// The bytes of each, on a connection of its own.
    pub requests: Vec<Vec<u8>>,
    /// What the access log says beside what it says of all scenes.
    pub log: Value,
    /// Further loggers: a name, which stands in their lines, and the condition.
    pub loggers: Vec<(String, Value)>,
    pub over: Over,
    /// Requests have copies, which may be under way when the answer is there.
    pub copies: bool,
}

/// How the requests get to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Plain,
    /// TLS, with a certificate of the client.
    Tls,
    /// The same requests as streams of HTTP/2.
    Http2,
}

impl Scene {
    pub fn new(name: &str, manager: Value) -> Self {
        Self {
            name: name.to_owned(),
            manager,
            requests: Vec::new(),
            log: json!({}),
            loggers: Vec::new(),
            over: Over::Plain,
            copies: false,
        }
    }

    /// Routes for every host.
    pub fn routes(name: &str, routes: Value) -> Self {
        Self::new(
            name,
            json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}}),
        )
    }

    /// Everything goes to the origin `a`.
    pub fn forward(name: &str) -> Self {
        Self::routes(name, json!([{"match": {"prefix": "/"}, "route": {"cluster": "a"}}]))
    }

    /// Behind these filters: everything goes to the origin `a`, but for what `routes` take.
    pub fn filtered(name: &str, filters: Vec<Value>, routes: Value) -> Self {
        let mut all = routes.as_array().cloned().unwrap_or_default();
        all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "a"}}));
        let chain: Vec<Value> = filters.into_iter().chain([config::router()]).collect();
        Self::routes(name, Value::Array(all)).with(json!({"http_filters": chain}))
    }

    /// The same with a whole route table.
    pub fn with_table(name: &str, filters: Vec<Value>, table: Value) -> Self {
        let chain: Vec<Value> = filters.into_iter().chain([config::router()]).collect();
        Self::new(name, json!({"route_config": table, "http_filters": chain}))
    }

    /// Has the access log say more: commands by the names of their fields.
    pub fn logging(mut self, fields: Value) -> Self {
        config::overlay(&mut self.log, fields);
        self
    }

    /// Has another logger tell of requests that fulfil a condition (`envoy.config.accesslog.v3.AccessLogFilter`).
    pub fn telling(mut self, name: &str, condition: Value) -> Self {
        self.loggers.push((name.to_owned(), condition));
        self
    }

    /// Waits for the copies of each request.
    pub fn copied(mut self) -> Self {
        self.copies = true;
        self
    }

    pub fn over(mut self, over: Over) -> Self {
        self.over = over;
        self
    }

    /// Lays more over the connection manager.
    pub fn with(mut self, fields: Value) -> Self {
        config::overlay(&mut self.manager, fields);
        self
    }

    pub fn raw(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.requests.push(bytes.as_ref().to_vec());
        self
    }

    /// A request of `host` with field lines, each ended by CRLF.
    pub fn ask(self, method: &str, host: &str, path: &str, fields: &str) -> Self {
        self.raw(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"))
    }

    pub fn get(self, path: &str) -> Self {
        self.ask("GET", "test", path, "")
    }

    pub fn gets(self, paths: &[&str]) -> Self {
        paths.iter().fold(self, |scene, path| scene.get(path))
    }

    pub fn get_with(self, path: &str, fields: &str) -> Self {
        self.ask("GET", "test", path, fields)
    }

    /// A GET of `path` for each of the field lines.
    pub fn each(self, path: &str, fields: &[&str]) -> Self {
        fields.iter().fold(self, |scene, lines| scene.get_with(path, lines))
    }

    /// `/` of each host.
    pub fn hosts(self, hosts: &[&str]) -> Self {
        hosts.iter().fold(self, |scene, host| scene.ask("GET", host, "/", ""))
    }

    pub fn post(self, path: &str, fields: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
        self.raw([head.as_bytes(), body].concat())
    }

    /// The answers that origins make as they are told: see [`crate::made`].
    pub fn makes(self, path: &str, fields: &str, orders: &[&str]) -> Self {
        orders.iter().fold(self, |scene, order| scene.get_with(path, &format!("x-make: {order}\r\n{fields}")))
    }

    /// The answers that origins have a name for: see [`crate::origins`].
    pub fn answers(self, path: &str, names: &[&str]) -> Self {
        self.answers_with(path, "", names)
    }

    /// The same to requests with these fields, too.
    pub fn answers_with(self, path: &str, fields: &str, names: &[&str]) -> Self {
        names.iter().fold(self, |scene, name| scene.get_with(path, &format!("x-answer: {name}\r\n{fields}")))
    }
}

/// A route to the origin `a` that is laid over with `fields`.
pub fn to_a(prefix: &str, fields: Value) -> Value {
    let mut route = json!({"match": {"prefix": prefix}, "route": {"cluster": "a"}});
    config::overlay(&mut route, fields);
    route
}

/// A route that answers with its own name. A matcher without a path takes every path.
pub fn says(name: &str, matcher: Value) -> Value {
    let mut route = postrider_tests::named_route(name, matcher);
    route["name"] = json!(name);
    route
}

/// A request as a report shows it.
pub fn shown(request: &[u8]) -> String {
    String::from_utf8_lossy(request).chars().take(600).collect::<String>().escape_debug().to_string()
}
