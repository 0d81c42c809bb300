//! A proxy with filters in front of one origin, and the log that tells what became of each request.

use crate::ask;
use postrider_testkit::config::{file_access_log, overlay, router};
use postrider_testkit::proxy::Launch;
use postrider_testkit::{Config, Origin, Proxy, Response, TempDir, wait_until};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What the log says where nothing else is asked for.
pub const OUTCOME: &str = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%";

pub struct Site {
    pub proxy: Proxy,
    pub origin: Origin,
    log: PathBuf,
    _folder: TempDir,
}

/// A site in the making.
pub struct Plan {
    filters: Vec<Value>,
    host: Value,
    line: String,
    manager: Value,
    clusters: Vec<(String, Vec<std::net::SocketAddr>, Value)>,
    upstream: Value,
    listener: Value,
    whole: Value,
}

/// With these filters before the router; every path leads to the origin.
pub fn with(filters: impl IntoIterator<Item = Value>) -> Plan {
    Plan {
        filters: filters.into_iter().collect(),
        host: json!({
            "name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}],
        }),
        line: OUTCOME.to_owned(),
        manager: json!({}),
        clusters: Vec::new(),
        upstream: json!({}),
        listener: json!({}),
        whole: json!({}),
    }
}

/// A route of a path's prefix to the origin with one filter's override.
pub fn route(prefix: &str, filter: &str, config: Value) -> Value {
    json!({
        "match": {"prefix": prefix}, "route": {"cluster": "origin"}, "typed_per_filter_config": {filter: config},
    })
}

/// A route to the origin for everything.
pub fn rest() -> Value {
    json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}})
}

impl Plan {
    /// Lays `fields` over the virtual host.
    pub fn host(mut self, fields: Value) -> Plan {
        overlay(&mut self.host, fields);
        self
    }

    pub fn routes(self, routes: Value) -> Plan {
        self.host(json!({"routes": routes}))
    }

    /// What each request's line of the log says.
    pub fn log(mut self, line: &str) -> Plan {
        line.clone_into(&mut self.line);
        self
    }

    /// Lays `fields` over the connection manager.
    pub fn manager(mut self, fields: Value) -> Plan {
        overlay(&mut self.manager, fields);
        self
    }

    pub fn cluster(mut self, name: &str, endpoints: &[std::net::SocketAddr], fields: Value) -> Plan {
        self.clusters.push((name.to_owned(), endpoints.to_vec(), fields));
        self
    }

    /// Lays `fields` over the origin's cluster.
    pub fn upstream(mut self, fields: Value) -> Plan {
        overlay(&mut self.upstream, fields);
        self
    }

    /// Lays `fields` over the listener.
    pub fn listener(mut self, fields: Value) -> Plan {
        overlay(&mut self.listener, fields);
        self
    }

    /// Lays `fields` over the whole configuration.
    pub fn whole(mut self, fields: Value) -> Plan {
        overlay(&mut self.whole, fields);
        self
    }

    /// In front of an origin that answers with what it got.
    pub fn start(self) -> Site {
        self.start_before(Origin::echo("a"))
    }

    pub fn start_before(self, origin: Origin) -> Site {
        self.start_with(origin, Launch::default())
    }

    pub fn start_with(self, origin: Origin, launch: Launch) -> Site {
        let folder = TempDir::new();
        let log = folder.path().join("access.log");
        let format = json!({"log_format": {"text_format_source": {"inline_string": format!("{}\n", self.line)}}});
        let mut filters = self.filters;
        filters.push(router());
        let mut manager = json!({
            "access_log": [file_access_log(&log, format)],
            "http_filters": filters,
            "route_config": {"virtual_hosts": [self.host]},
        });
        overlay(&mut manager, self.manager);
        let mut config = Config::new().http(manager).cluster_with("origin", &[origin.address], self.upstream);
        for (name, endpoints, fields) in self.clusters {
            config = config.cluster_with(&name, &endpoints, fields);
        }
        let config = config.overlay_listener("http", self.listener).overlay(self.whole);
        Site { proxy: Proxy::start_with(&config, launch), origin, log, _folder: folder }
    }
}

impl Site {
    pub fn ask(&self, method: &str, path: &str, fields: &str) -> Response {
        ask(&self.proxy, method, "test", path, fields)
    }

    pub fn get(&self, path: &str, fields: &str) -> Response {
        self.ask("GET", path, fields)
    }

    /// The log's line with that number, from 1, once it is there.
    pub fn logged(&self, line: usize) -> String {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= line);
        read().lines().nth(line - 1).unwrap_or_default().to_owned()
    }

    pub fn stat(&self, name: &str) -> u64 {
        self.proxy.stats().value(name)
    }
}
