//! What the filter is configured by: `ApiKeyAuth` and `ApiKeyAuthPerRoute`.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use postrider_filter_api::ConfigError;
use postrider_http::{HeaderName, is_field_value};
use postrider_model::{Reading, Value};

use crate::read::{header, own_header};

#[derive(Debug, Clone)]
pub(super) struct Config {
    /// `None` where none are written; so the next.
    pub(super) keys: Option<Arc<Keys>>,
    pub(super) sources: Option<Arc<[Source]>>,
    pub(super) forwarding: Forwarding,
}

/// What a route says.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) config: Config,
    pub(super) clients: Vec<String>,
}

/// Where a key may stand.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Header(HeaderName),
    Query(String),
    Cookie(String),
}

/// What the upstream learns.
#[derive(Debug, Clone, Default)]
pub(super) struct Forwarding {
    /// Says who the client is.
    pub(super) header: Option<HeaderName>,
    /// Keys are taken out.
    pub(super) hide: bool,
}

/// Clients by the digests of their keys.
pub(super) struct Keys(HashMap<[u8; SHA256_OUTPUT_LEN], String>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Keys {
    /// How long it takes tells something about digests only, which tells nothing about keys.
    pub(super) fn client(&self, key: &[u8]) -> Option<&str> {
        self.0.get(&hash(key)?).map(String::as_str)
    }
}

fn hash(key: &[u8]) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    digest(&SHA256, key).as_ref().try_into().ok()
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, config)
}

pub(super) fn read_route(value: &Value) -> Result<Override, ConfigError> {
    Reading::all(value, |at| Override { config: config(at), clients: at.texts("allowed_clients") })
}

fn config(at: &mut Reading<'_>) -> Config {
    let mut clients = HashMap::new();
    at.each("credentials", |credential| {
        let (key, client) = (credential.text("key").unwrap_or_default(), credential.text("client").unwrap_or_default());
        if key.is_empty() {
            credential.error("key", "a key is required");
        }
        if client.is_empty() || !is_field_value(client.as_bytes()) {
            credential.error("client", "the client's name is required, without control characters");
        }
        if let Some(digest) = hash(key.as_bytes())
            && clients.insert(digest, client.to_owned()).is_some()
        {
            // Which one it is stays untold: messages go into logs.
            credential.error("key", "this key is there twice");
        }
    });
    let sources: Vec<Option<Source>> = at.each("key_sources", source);
    let forwarding =
        at.map("forwarding", |at| Forwarding { header: own_header(at, "header"), hide: at.flag("hide_credentials") });
    Config {
        keys: (!clients.is_empty()).then(|| Arc::new(Keys(clients))),
        sources: (!sources.is_empty()).then(|| sources.into_iter().flatten().collect()),
        forwarding: forwarding.unwrap_or_default(),
    }
}

fn source(at: &mut Reading<'_>) -> Option<Source> {
    let named = ["header", "query", "cookie"].into_iter().filter(|key| at.has(key)).collect::<Vec<_>>();
    match named[..] {
        ["header"] => header(at, "header").map(Source::Header),
        ["query"] => at.text("query").map(|name| Source::Query(name.to_owned())),
        ["cookie"] => at.text("cookie").map(|name| Source::Cookie(name.to_owned())),
        _ => {
            at.wrong("one of header, query and cookie is wanted");
            None
        }
    }
}
