//! What the filter is configured by: `Compressor` and `CompressorPerRoute`.

use std::rc::Rc;

use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_model::{Reading, StringMatch, Value, string_match};

use crate::compression::{Compressor, read_compressor};

/// Compressed where nothing else is written.
const CONTENT_TYPES: [&str; 20] = [
    "text/html",
    "text/plain",
    "text/css",
    "application/javascript",
    "application/x-javascript",
    "text/javascript",
    "text/x-javascript",
    "text/ecmascript",
    "text/js",
    "text/jscript",
    "text/x-js",
    "application/ecmascript",
    "application/x-json",
    "application/xml",
    "application/json",
    "image/svg+xml",
    "text/xml",
    "application/xhtml+xml",
    "application/grpc-web",
    "application/grpc-web+proto",
];

/// Shorter bodies are not worth it where nothing else is written.
const MIN_CONTENT_LENGTH: u64 = 30;

#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) library: Compressor,
    /// `None`: requests pass as they are.
    pub(super) request: Option<Direction>,
    pub(super) response: Response,
    pub(super) choose_first: bool,
    pub(super) files: Vec<WatchedFile>,
}

/// What holds in each direction.
#[derive(Debug, Clone)]
pub(super) struct Direction {
    pub(super) enabled: bool,
    pub(super) min_content_length: u64,
    pub(super) content_types: ContentTypes,
}

#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) common: Direction,
    pub(super) disable_on_etag: bool,
    pub(super) weaken_etag: bool,
    pub(super) remove_accept_encoding: bool,
    pub(super) uncompressible: Vec<u16>,
    pub(super) status_header: bool,
    /// It has a message of its own, and so statistics of its own.
    pub(super) is_written: bool,
}

/// Which bodies are worth it.
#[derive(Debug, Clone)]
pub(super) enum ContentTypes {
    Names(Vec<String>),
    Matching(Vec<StringMatch>),
}

/// What a route says.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) enabled: Option<bool>,
    pub(super) remove_accept_encoding: Option<bool>,
    pub(super) library: Option<Compressor>,
}

impl ContentTypes {
    /// `kind` is without parameters.
    pub(super) fn allow(&self, kind: &[u8]) -> bool {
        match self {
            ContentTypes::Names(names) => names.iter().any(|name| kind.eq_ignore_ascii_case(name.as_bytes())),
            ContentTypes::Matching(conditions) => {
                std::str::from_utf8(kind).is_ok_and(|kind| conditions.iter().any(|condition| condition.matches(kind)))
            }
        }
    }
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    let mut files = Vec::new();
    let read = Reading::all(value, |at| {
        let library = read_compressor(at, &mut files);
        let request = at.map("request_direction_config", |at| {
            at.map("common_config", direction).unwrap_or_else(|| Direction::usual(Vec::new()))
        });
        let written = at.map("response_direction_config", response);
        let older = older_response(at);
        Some((library?, request, written.unwrap_or(older), at.flag("choose_first")))
    })?;
    let Some((library, request, response, choose_first)) = read else { return Err(Vec::new()) };
    Ok(Config { library, request, response, choose_first, files })
}

pub(super) fn read_route(value: &Value) -> Result<(Override, Vec<WatchedFile>), ConfigError> {
    let mut files = Vec::new();
    let read = Reading::all(value, |at| {
        let overrides = at.map("overrides", |at| {
            let response = at.map("response_direction_config", |at| at.bool("remove_accept_encoding_header"));
            let library = at.has("compressor_library").then(|| read_compressor(at, &mut files)).flatten();
            Override { enabled: response.map(|_| true), remove_accept_encoding: response.flatten(), library }
        });
        match (at.bool("disabled"), overrides) {
            (Some(true), None) => Override { enabled: Some(false), remove_accept_encoding: None, library: None },
            (None, Some(overrides)) => overrides,
            _ => {
                at.wrong("one of `disabled: true` and `overrides` is wanted");
                Override { enabled: None, remove_accept_encoding: None, library: None }
            }
        }
    })?;
    Ok((read, files))
}

impl Direction {
    fn usual(content_types: Vec<String>) -> Direction {
        let names = match content_types.is_empty() {
            true => CONTENT_TYPES.map(str::to_owned).to_vec(),
            false => content_types,
        };
        let content_types = ContentTypes::Names(names);
        Direction { enabled: true, min_content_length: MIN_CONTENT_LENGTH, content_types }
    }
}

fn direction(at: &mut Reading<'_>) -> Direction {
    let mut made = Direction::usual(at.texts("content_type"));
    let matchers: Vec<Option<StringMatch>> = at.each("content_type_matcher", string_match);
    if !matchers.is_empty() {
        made.content_types = ContentTypes::Matching(matchers.into_iter().flatten().collect());
    }
    made.enabled = enabled(at, "enabled");
    made.min_content_length = min_content_length(at, "min_content_length");
    made
}

/// Zero is nothing written, as in Envoy.
fn min_content_length(at: &mut Reading<'_>, key: &str) -> u64 {
    at.number(key).filter(|least| *least > 0).unwrap_or(MIN_CONTENT_LENGTH)
}

/// `RuntimeFeatureFlag`. What its key says stands in place of the default value already.
fn enabled(at: &mut Reading<'_>, key: &str) -> bool {
    let flag = at.map(key, |flag| {
        flag.text("runtime_key");
        flag.flag("default_value")
    });
    flag.unwrap_or(true)
}

fn response(at: &mut Reading<'_>) -> Response {
    let uncompressible = statuses(at, "uncompressible_response_codes");
    Response {
        common: at.map("common_config", direction).unwrap_or_else(|| Direction::usual(Vec::new())),
        disable_on_etag: at.flag("disable_on_etag_header"),
        weaken_etag: at.flag("weaken_etag_on_compress"),
        remove_accept_encoding: at.flag("remove_accept_encoding_header"),
        uncompressible,
        status_header: at.flag("status_header_enabled"),
        is_written: true,
    }
}

/// The older fields, which hold where `response_direction_config` is not written, and nowhere else.
fn older_response(at: &mut Reading<'_>) -> Response {
    let mut common = Direction::usual(at.texts("content_type"));
    common.min_content_length = min_content_length(at, "content_length");
    common.enabled = enabled(at, "runtime_enabled");
    Response {
        common,
        disable_on_etag: at.flag("disable_on_etag_header"),
        weaken_etag: false,
        remove_accept_encoding: at.flag("remove_accept_encoding_header"),
        uncompressible: Vec::new(),
        status_header: false,
        is_written: false,
    }
}

fn statuses(at: &mut Reading<'_>, key: &str) -> Vec<u16> {
    let Some(Value::List(items)) = at.value(key) else { return Vec::new() };
    let mut all = Vec::new();
    for item in items {
        let status = match item {
            Value::Integer(status) => u16::try_from(*status).ok().filter(|status| (200..600).contains(status)),
            _ => None,
        };
        match status {
            Some(status) if !all.contains(&status) => all.push(status),
            _ => at.error(key, format!("each is a status from 200 to 599, once; {item:?} is not")),
        }
    }
    all
}

/// What the chain's compressors are told about one.
pub(super) fn shared(content_types: &ContentTypes) -> Rc<ContentTypes> {
    Rc::new(content_types.clone())
}
