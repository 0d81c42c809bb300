//! Decompresses requests and answers, so that what is behind sees them plain.
//!
//! Configured as `envoy.extensions.filters.http.decompressor.v3.Decompressor`; there is nothing that a route could
//! change. A body that cannot be decompressed, that ends in the middle, or that grows beyond the allowed ratio ends the
//! message: nobody is told that half of a body is all of it. How much goes through at once is bounded, and so are the
//! windows.

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Flow, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
};
use postrider_http::{Fields, HeaderId, HeaderName, Method, list_members, trim_ows};
use postrider_model::{Reading, Value, ValueError};
use postrider_telemetry::Block;

use crate::compression::{Broken, Decompressor, Passing, forbids_transforming, joined, read_decompressor};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.decompressor.v3.Decompressor";

const ACCEPT: &[u8] = b"accept-encoding";
const ENCODING: &[u8] = b"content-encoding";

/// Reads the configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let read = Reading::all(value, |at| {
        let library = read_decompressor(at);
        let mut advertises = None;
        let request = at.map("request_direction_config", |at| {
            advertises = at.bool("advertise_accept_encoding");
            at.map("common_config", direction).unwrap_or_default()
        });
        let response = at.map("response_direction_config", |at| at.map("common_config", direction).unwrap_or_default());
        let name = library.as_ref().map(|library| library.name.clone()).unwrap_or_default();
        let mut trailer = |what: &str| {
            let name = HeaderName::new(format!("x-envoy-decompressor-{name}-{what}-bytes").as_bytes());
            name.map_err(|_| at.error("decompressor_library", "its name becomes part of a header's, and cannot")).ok()
        };
        let trailers = (trailer("compressed"), trailer("uncompressed"));
        Some(Config {
            library: library?,
            request: request.unwrap_or_default(),
            response: response.unwrap_or_default(),
            advertises: advertises.unwrap_or(true),
            compressed_bytes: trailers.0?,
            uncompressed_bytes: trailers.1?,
        })
    })?;
    Ok(Arc::new(Decompressing(Arc::new(read.ok_or_else(Vec::new)?))))
}

fn direction(at: &mut Reading<'_>) -> Direction {
    let enabled = at.map("enabled", |flag| {
        flag.text("runtime_key");
        flag.flag("default_value")
    });
    Direction { enabled: enabled.unwrap_or(true), ignore_no_transform: at.flag("ignore_no_transform_header") }
}

#[derive(Debug)]
struct Config {
    library: Decompressor,
    request: Direction,
    response: Direction,
    /// Upstreams are told that they may compress.
    advertises: bool,
    /// Trailers that say how large the body was before and behind the filter.
    compressed_bytes: HeaderName,
    uncompressed_bytes: HeaderName,
}

#[derive(Debug)]
struct Direction {
    enabled: bool,
    ignore_no_transform: bool,
}

impl Default for Direction {
    fn default() -> Direction {
        Direction { enabled: true, ignore_no_transform: false }
    }
}

struct Decompressing(Arc<Config>);

impl Factory for Decompressing {
    fn route_config(&self, kind: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = format!("decompressor has no overrides, so {kind} is none for it");
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let library = &self.0.library;
        let root = format!("{}.decompressor.{}.{}", place.stat_prefix, library.name, library.stat_name());
        let errors = format!("{root}.decompressor_library");
        Rc::new(Unpacker {
            requests: place.stats.block(&direction::SET, &format!("{root}.request")),
            answers: place.stats.block(&direction::SET, &format!("{root}.response")),
            errors: match library.encoding() {
                "gzip" => Errors::Gzip(place.stats.block(&zlib::SET, &errors)),
                "br" => Errors::Brotli(place.stats.block(&brotli::SET, &errors)),
                _ => Errors::Zstd(place.stats.block(&zstd::SET, &errors)),
            },
            config: Arc::clone(&self.0),
        })
    }
}

postrider_telemetry::stat_set! {
    /// Messages and bytes of one direction; prefix: the connection manager's, then `decompressor`, the library's name, its
    /// kind and the direction.
    mod direction = "http";
    counters {
        DECOMPRESSED = "decompressed", NOT_DECOMPRESSED = "not_decompressed",
        UNCOMPRESSED_BYTES = "total_uncompressed_bytes", COMPRESSED_BYTES = "total_compressed_bytes",
    }
}

postrider_telemetry::stat_set! {
    /// What was wrong with gzip; prefix: as above with `decompressor_library` as the direction.
    mod zlib = "http";
    counters {
        ERRNO = "zlib_errno", STREAM = "zlib_stream_error", DATA = "zlib_data_error", MEMORY = "zlib_mem_error",
        BUFFER = "zlib_buf_error", VERSION = "zlib_version_error",
    }
}

postrider_telemetry::stat_set! {
    /// What was wrong with brotli.
    mod brotli = "http";
    counters {
        ERROR = "brotli_error", OVERFLOW = "brotli_output_overflow", REDUNDANT = "brotli_redundant_input",
    }
}

postrider_telemetry::stat_set! {
    /// What was wrong with zstd.
    mod zstd = "http";
    counters {
        GENERIC = "zstd_generic_error", DICTIONARY = "zstd_dictionary_error", CHECKSUM = "zstd_checksum_wrong_error",
        MEMORY = "zstd_memory_error",
    }
}

enum Errors {
    Gzip(Rc<Block>),
    Brotli(Rc<Block>),
    Zstd(Rc<Block>),
}

impl Errors {
    fn count(&self, broken: Broken) {
        match self {
            Errors::Gzip(stats) => stats.inc(match broken {
                Broken::Memory => zlib::MEMORY,
                Broken::Cut => zlib::BUFFER,
                _ => zlib::DATA,
            }),
            Errors::Brotli(stats) => stats.inc(match broken {
                Broken::Ratio => brotli::OVERFLOW,
                _ => brotli::ERROR,
            }),
            Errors::Zstd(stats) => stats.inc(match broken {
                Broken::Dictionary => zstd::DICTIONARY,
                Broken::Checksum => zstd::CHECKSUM,
                Broken::Memory => zstd::MEMORY,
                _ => zstd::GENERIC,
            }),
        }
    }
}

/// The filter on one worker.
struct Unpacker {
    config: Arc<Config>,
    requests: Rc<Block>,
    answers: Rc<Block>,
    errors: Errors,
}

/// One stream.
#[derive(Default)]
struct Exchange {
    request: Option<Passing>,
    response: Option<Passing>,
}

impl Filter for Unpacker {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: true,
            request_trailers: true,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if self.config.response.enabled && self.config.advertises {
            self.advertise(&mut stream.request.fields);
        }
        let is_tunnel = stream.request.method() == Method::Connect || stream.request.fields.has(HeaderId::Upgrade);
        if end || is_tunnel {
            return Action::Done;
        }
        let passing = self.unpack(&self.config.request, &self.requests, &mut stream.request.fields);
        begin(state, passing, |exchange| &mut exchange.request)
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        push(exchange(state).and_then(|it| it.request.as_mut()), stream.request_body.bytes(), end)
    }

    fn on_request_trailers(&self, state: &mut State, _: &mut Stream<'_>) -> Action {
        push(exchange(state).and_then(|it| it.request.as_mut()), b"", true)
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let passing = exchange(state).and_then(|it| it.request.as_mut());
        let mut out = Vec::new();
        let flow = self.go(passing, &self.requests, stream.request_trailers, &mut out);
        stream.request_body.replace(&out);
        flow.unwrap_or_else(|broken| {
            let status = if broken == Broken::Ratio { 413 } else { 400 };
            refuse(status, "request_decompression_failed")
        })
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if end || stream.response.status() == 101 {
            return Action::Done;
        }
        let passing = self.unpack(&self.config.response, &self.answers, &mut stream.response.fields);
        begin(state, passing, |exchange| &mut exchange.response)
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        push(exchange(state).and_then(|it| it.response.as_mut()), stream.response_body.bytes(), end)
    }

    fn on_response_trailers(&self, state: &mut State, _: &mut Stream<'_>) -> Action {
        push(exchange(state).and_then(|it| it.response.as_mut()), b"", true)
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let passing = exchange(state).and_then(|it| it.response.as_mut());
        let mut out = Vec::new();
        let flow = self.go(passing, &self.answers, stream.response_trailers, &mut out);
        stream.response_body.replace(&out);
        flow.unwrap_or_else(|_| refuse(502, "response_decompression_failed"))
    }
}

impl Unpacker {
    /// Adds the coding to those that the request accepts, as the last and without a weight, as Envoy does.
    fn advertise(&self, fields: &mut Fields) {
        let own = self.config.library.encoding();
        let mut all: Vec<u8> = Vec::new();
        for member in joined(fields, ACCEPT).iter().flat_map(|value| list_members(value)) {
            let name = trim_ows(member.split(|byte| *byte == b';').next().unwrap_or_default());
            if name != own.as_bytes() {
                all.extend_from_slice(member);
                all.push(b',');
            }
        }
        all.extend_from_slice(own.as_bytes());
        let _ = fields.set_name(ACCEPT, &all);
    }

    /// Takes the coding off a message's head when it is this filter's and may be.
    fn unpack(&self, direction: &Direction, stats: &Block, fields: &mut Fields) -> Option<Passing> {
        let codings = joined(fields, ENCODING);
        let outer = codings.as_deref().map(|all| trim_ows(all.split(|byte| *byte == b',').next().unwrap_or_default()));
        let is_own = outer.is_some_and(|outer| outer.eq_ignore_ascii_case(self.config.library.encoding().as_bytes()));
        let may = direction.enabled && (direction.ignore_no_transform || !forbids_transforming(fields));
        let coder = if is_own && may { self.config.library.coder() } else { None };
        let Some(coder) = coder else {
            stats.inc(direction::NOT_DECOMPRESSED);
            return None;
        };
        stats.inc(direction::DECOMPRESSED);
        fields.remove(HeaderId::ContentLength);
        let codings = codings.unwrap_or_default();
        let rest = codings.iter().position(|byte| *byte == b',').and_then(|at| codings.get(at + 1..));
        match rest.map(trim_ows) {
            // A part of what was a field's value is one.
            Some(rest) => drop(fields.set_name(ENCODING, rest)),
            None => drop(fields.remove_name(ENCODING)),
        }
        Some(Passing::new(coder, Some(self.config.library.max_ratio)))
    }

    fn go(
        &self,
        passing: Option<&mut Passing>,
        stats: &Block,
        trailers: &mut Fields,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Broken> {
        let Some(passing) = passing else { return Ok(Flow::Release) };
        let progress = passing.go(out).inspect_err(|broken| self.errors.count(*broken))?;
        stats.add(direction::COMPRESSED_BYTES, progress.consumed);
        stats.add(direction::UNCOMPRESSED_BYTES, progress.produced);
        if matches!(progress.flow, Flow::Release) {
            let (compressed, uncompressed) = passing.totals();
            // Trailers that hold no more stay as they are.
            let _ = trailers.append_header(&self.config.compressed_bytes, compressed.to_string().as_bytes());
            let _ = trailers.append_header(&self.config.uncompressed_bytes, uncompressed.to_string().as_bytes());
        }
        Ok(progress.flow)
    }
}

fn begin(
    state: &mut State,
    passing: Option<Passing>,
    place: impl FnOnce(&mut Exchange) -> &mut Option<Passing>,
) -> Action {
    if passing.is_none() {
        return Action::Done;
    }
    match state.get_or_insert_with(Exchange::default) {
        Some(exchange) => {
            *place(exchange) = passing;
            Action::Take
        }
        None => Action::Done,
    }
}

fn push(passing: Option<&mut Passing>, piece: &[u8], end: bool) -> Action {
    match passing {
        Some(passing) => {
            passing.push(piece, end);
            Action::Continue
        }
        None => Action::Done,
    }
}

#[cold]
fn refuse(status: u16, details: &'static str) -> Flow {
    let body = b"The body cannot be decompressed.".as_slice().into();
    Flow::Respond(Box::new(LocalReply { status, body, details: details.into(), ..LocalReply::default() }))
}

fn exchange(state: &mut State) -> Option<&mut Exchange> {
    match state {
        State::Any(exchange) => exchange.downcast_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
