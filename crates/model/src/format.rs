//! Substitution formats: text with `%COMMANDS%`, as header values, log lines and reply bodies use them.
//!
//! Parsing happens when a configuration is read; whoever has a stream at hand evaluates the commands.

mod tls;

use std::fmt;

use crate::{CertificatePart, ShownBy, Side};

/// A parsed format. Compares by what it means.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Format {
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Text(String),
    Command {
        command: Command,
        /// `%REQ(X):9%` cuts the value after nine bytes.
        max_length: Option<usize>,
    },
}

/// What a command stands for. Header names are in lower case.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The first of the two request headers that is present.
    RequestHeader(String, Option<String>),
    ResponseHeader(String, Option<String>),
    ResponseTrailer(String, Option<String>),
    /// The first query parameter of that name, percent-decoded.
    QueryParameter(String),
    /// The whole query, as it was sent.
    QueryParameters,
    /// Request path without (`false`) or with its query.
    Path {
        query: bool,
        which: PathOf,
    },
    /// Between two moments; absent when one of them never came, or they came the other way round.
    Between {
        start: StreamMoment,
        end: StreamMoment,
        unit: TimeUnit,
    },
    /// Another one with each evaluation.
    UniqueId,
    StartTime(TimeFormat),
    EmitTime(TimeFormat),
    Protocol,
    UpstreamProtocol,
    ResponseCode,
    ResponseCodeDetails,
    /// What `grpc-status` says, or the answer's HTTP status stands for; absent for requests that are not gRPC.
    GrpcStatus(GrpcStatusForm),
    ConnectionTerminationDetails,
    /// When the log asked: at the end, or before.
    AccessLogType,
    ResponseFlags,
    ResponseFlagsLong,
    BytesReceived,
    BytesSent,
    RequestHeadersBytes,
    ResponseHeadersBytes,
    ResponseTrailersBytes,
    /// From the start to the end of the stream, in milliseconds; so the next four.
    Duration,
    /// To the last byte received from the client.
    RequestDuration,
    /// To the last byte sent to the upstream.
    RequestTxDuration,
    /// To the first byte received from the upstream.
    ResponseDuration,
    /// From the first byte received from the upstream to the last sent to the client.
    ResponseTxDuration,
    UpstreamHost,
    UpstreamCluster,
    UpstreamLocalAddress(AddressPart),
    UpstreamRemoteAddress(AddressPart),
    UpstreamRequestAttemptCount,
    UpstreamTransportFailureReason,
    UpstreamConnectionId,
    DownstreamLocalAddress(AddressPart),
    DownstreamRemoteAddress(AddressPart),
    DownstreamDirectRemoteAddress(AddressPart),
    DownstreamTransportFailureReason,
    Tls(Side, TlsPart),
    /// Several values with commas between them.
    Certificate(Side, ShownBy, CertificatePart),
    /// When the peer's certificate becomes good, and when that ends.
    PeerCertificateBegin(Side, TimeFormat),
    PeerCertificateEnd(Side, TimeFormat),
    RouteName,
    VirtualHostName,
    FilterChainName,
    /// No virtual cluster is configured anywhere: always absent.
    VirtualClusterName,
    Hostname,
    ConnectionId,
    StreamId,
    LocalReplyBody,
    /// The value that the variable had at start; empty when unset.
    Environment(String),
    /// `http`: what the client used to reach us, as far as we know.
    Scheme,
    /// A value from metadata: a string as it is, a number or a boolean printed, an object or a list as JSON. Absent when
    /// the namespace or a key on the way is, or when the value is null.
    Metadata {
        of: MetadataOf,
        namespace: String,
        /// Keys from the outside in; none means everything under the namespace.
        path: Vec<String>,
    },
    /// A named object that a filter made; absent when none has that name, or not that field.
    FilterState {
        name: String,
        form: StateForm,
    },
}

/// How a status of gRPC is written. A number that is no code is written as a number always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcStatusForm {
    /// `NotFound`
    Camel,
    /// `NOT_FOUND`
    Snake,
    /// `5`
    Number,
}

/// Whose metadata a command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataOf {
    /// What filters noted for this stream.
    Stream,
    /// The route that the request takes.
    Route,
    VirtualHost,
}

/// How a command shows an object of the filter state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateForm {
    /// A string as it is; anything else as JSON.
    Plain,
    /// Always as JSON: a string in quotes.
    Typed,
    /// One field of it: a string as it is, anything else as JSON.
    Field(String),
}

/// What is shown of a TLS session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsPart {
    Version,
    Cipher,
    Group,
    /// What the client asked for.
    ServerName,
    /// Fingerprints of the client's greeting.
    Ja3,
    Ja4,
}

/// Which of a request's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathOf {
    /// As the client sent it, if it was rewritten; absent otherwise.
    Original,
    /// As it is now.
    Current,
    /// As the client sent it.
    OriginalOrCurrent,
}

/// What happens to a stream, by Envoy's names of the moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMoment {
    /// `DS_RX_BEG`: it began.
    Began,
    /// `DS_RX_END`: the last byte of the request was received.
    RequestReceived,
    /// `US_TX_END`: the last byte of the request was sent on.
    RequestSent,
    /// `US_RX_BEG`: the first byte of the answer came.
    ResponseBegan,
    /// `DS_TX_END`: it is over.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPart {
    Whole,
    WithoutPort,
    /// The network of so many bits: `10.1.0.0/16`.
    Network(u8),
    Port,
}

/// How a point in time is written.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeFormat {
    /// `2026-11-20T10:11:12.345Z`
    Iso8601Millis,
    /// `strftime` conversions, with `%s` for seconds and `%1f` … `%9f` for fractions, in UTC.
    Pattern(String),
}

/// Why a text is no format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Byte offset into the text.
    pub offset: usize,
    pub message: String,
    /// The command that was probably meant.
    pub suggestion: Option<&'static str>,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match self.suggestion {
            Some(name) => write!(f, "; did you mean %{name}%?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FormatError {}

impl Command {
    /// The same address as the network of so many bits that it is in.
    fn of_network(self, bits: u8) -> Option<Command> {
        let part = AddressPart::Network(bits);
        Some(match self {
            Command::UpstreamLocalAddress(_) => Command::UpstreamLocalAddress(part),
            Command::UpstreamRemoteAddress(_) => Command::UpstreamRemoteAddress(part),
            Command::DownstreamLocalAddress(_) => Command::DownstreamLocalAddress(part),
            Command::DownstreamRemoteAddress(_) => Command::DownstreamRemoteAddress(part),
            Command::DownstreamDirectRemoteAddress(_) => Command::DownstreamDirectRemoteAddress(part),
            _ => return None,
        })
    }

    /// How a point in time is written, for a command that is one.
    fn time(&self) -> Option<&TimeFormat> {
        match self {
            Command::StartTime(format)
            | Command::EmitTime(format)
            | Command::PeerCertificateBegin(_, format)
            | Command::PeerCertificateEnd(_, format) => Some(format),
            _ => None,
        }
    }
}

impl Format {
    /// A format without commands.
    pub fn literal(text: &str) -> Format {
        let pieces = if text.is_empty() { Vec::new() } else { vec![Piece::Text(text.to_owned())] };
        Format { pieces }
    }

    /// The text, if there is no command in it.
    pub fn as_literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Reads `text`; `%%` is a percent sign.
    ///
    /// # Errors
    /// The first command that is unknown or malformed, and where.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('%') {
            plain.push_str(&rest[..start]);
            let offset = text.len() - rest.len() + start;
            let after = &rest[start + 1..];
            if let Some(tail) = after.strip_prefix('%') {
                plain.push('%');
                rest = tail;
                continue;
            }
            let (spec, tail) = split_command(after).ok_or_else(|| FormatError {
                offset,
                message: "a command must end with `%`; write `%%` for a percent sign".into(),
                suggestion: None,
            })?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(spec.parse(offset)?);
            rest = tail;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Format { pieces })
    }
}

/// The parts of one `%NAME(argument):length%`.
struct Spec<'t> {
    name: &'t str,
    argument: Option<&'t str>,
    max_length: Option<&'t str>,
}

/// Splits what follows a `%` into the command and the text after its closing `%`. An argument may itself hold `%`.
fn split_command(text: &str) -> Option<(Spec<'_>, &str)> {
    let name_end = text.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
    let (name, mut rest) = text.split_at(name_end);
    let mut argument = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let end = inner.find(')')?;
        argument = Some(&inner[..end]);
        rest = &inner[end + 1..];
    }
    let mut max_length = None;
    if let Some(inner) = rest.strip_prefix(':') {
        let end = inner.find('%')?;
        max_length = Some(&inner[..end]);
        rest = &inner[end..];
    }
    Some((Spec { name, argument, max_length }, rest.strip_prefix('%')?))
}

impl Spec<'_> {
    fn parse(&self, offset: usize) -> Result<Piece, FormatError> {
        let error = |message: String| FormatError { offset, message, suggestion: None };
        let max_length = match self.max_length {
            None => None,
            Some(digits) => Some(digits.parse().map_err(|_| error(format!("`{digits}` is no length")))?),
        };
        let command = match (self.argument, takes_argument(self.name)) {
            (Some(_), Argument::None) => return Err(error(format!("%{}% takes no argument", self.name))),
            (None | Some(""), Argument::Required) => {
                return Err(error(format!("%{}% needs an argument in brackets", self.name)));
            }
            (argument, _) => match self.name {
                "DYNAMIC_METADATA" | "METADATA" | "FILTER_STATE" => {
                    noted(self.name, argument.unwrap_or_default()).map_err(error)?
                }
                "PATH" => path(argument.unwrap_or_default()).map_err(error)?,
                "COMMON_DURATION" => between(argument.unwrap_or_default()).map_err(error)?,
                "QUERY_PARAMS" if !matches!(argument, None | Some("" | "ORIG" | "DECODED")) => {
                    return Err(error("%QUERY_PARAMS% takes ORIG or DECODED".to_owned()));
                }
                name if name.ends_with("_WITHOUT_PORT") && argument.is_some_and(|text| !text.is_empty()) => {
                    let text = argument.unwrap_or_default();
                    let bits = text.parse().ok().filter(|bits| *bits <= 128);
                    let bits = bits.ok_or_else(|| error(format!("`{text}` is no number of bits of an address")))?;
                    self.command(None).and_then(|whole| whole.of_network(bits)).ok_or_else(|| self.unknown(offset))?
                }
                _ => self.command(argument).ok_or_else(|| self.unknown(offset))?,
            },
        };
        if let Some(TimeFormat::Pattern(pattern)) = command.time() {
            check_time_pattern(pattern).map_err(error)?;
        }
        Ok(Piece::Command { command, max_length })
    }

    fn command(&self, argument: Option<&str>) -> Option<Command> {
        use AddressPart::{Port, Whole, WithoutPort};
        let time = || match argument {
            None | Some("") => TimeFormat::Iso8601Millis,
            Some(pattern) => TimeFormat::Pattern(pattern.to_owned()),
        };
        let names = || {
            let text = argument.unwrap_or_default().to_ascii_lowercase();
            match text.split_once('?') {
                Some((main, other)) => (main.to_owned(), Some(other.to_owned())),
                None => (text, None),
            }
        };
        Some(match self.name {
            "REQ" | "REQUEST_HEADER" => {
                let (main, other) = names();
                Command::RequestHeader(main, other)
            }
            "RESP" | "RESPONSE_HEADER" => {
                let (main, other) = names();
                Command::ResponseHeader(main, other)
            }
            "TRAILER" | "RESPONSE_TRAILER" => {
                let (main, other) = names();
                Command::ResponseTrailer(main, other)
            }
            "QUERY_PARAMS" => Command::QueryParameters,
            "UNIQUE_ID" => Command::UniqueId,
            "RESPONSE_TRAILERS_BYTES" => Command::ResponseTrailersBytes,
            "QUERY_PARAM" => Command::QueryParameter(argument.unwrap_or_default().to_owned()),
            "START_TIME" => Command::StartTime(time()),
            "EMIT_TIME" => Command::EmitTime(time()),
            "PROTOCOL" => Command::Protocol,
            "UPSTREAM_PROTOCOL" => Command::UpstreamProtocol,
            "RESPONSE_CODE" => Command::ResponseCode,
            "RESPONSE_CODE_DETAILS" => Command::ResponseCodeDetails,
            "CONNECTION_TERMINATION_DETAILS" => Command::ConnectionTerminationDetails,
            "ACCESS_LOG_TYPE" => Command::AccessLogType,
            "GRPC_STATUS" => Command::GrpcStatus(match argument {
                None | Some("" | "CAMEL_STRING") => GrpcStatusForm::Camel,
                Some("SNAKE_STRING") => GrpcStatusForm::Snake,
                Some("NUMBER") => GrpcStatusForm::Number,
                Some(_) => return None,
            }),
            "GRPC_STATUS_NUMBER" => Command::GrpcStatus(GrpcStatusForm::Number),
            "RESPONSE_FLAGS" => Command::ResponseFlags,
            "RESPONSE_FLAGS_LONG" => Command::ResponseFlagsLong,
            "BYTES_RECEIVED" => Command::BytesReceived,
            "BYTES_SENT" => Command::BytesSent,
            "REQUEST_HEADERS_BYTES" => Command::RequestHeadersBytes,
            "RESPONSE_HEADERS_BYTES" => Command::ResponseHeadersBytes,
            "DURATION" => Command::Duration,
            "REQUEST_DURATION" => Command::RequestDuration,
            "REQUEST_TX_DURATION" => Command::RequestTxDuration,
            "RESPONSE_DURATION" => Command::ResponseDuration,
            "RESPONSE_TX_DURATION" => Command::ResponseTxDuration,
            "UPSTREAM_HOST" => Command::UpstreamHost,
            "UPSTREAM_CLUSTER" | "UPSTREAM_CLUSTER_RAW" => Command::UpstreamCluster,
            "UPSTREAM_LOCAL_ADDRESS" => Command::UpstreamLocalAddress(Whole),
            "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT" => Command::UpstreamLocalAddress(WithoutPort),
            "UPSTREAM_LOCAL_PORT" => Command::UpstreamLocalAddress(Port),
            "UPSTREAM_REMOTE_ADDRESS" => Command::UpstreamRemoteAddress(Whole),
            "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Command::UpstreamRemoteAddress(WithoutPort),
            "UPSTREAM_REMOTE_PORT" => Command::UpstreamRemoteAddress(Port),
            "UPSTREAM_REQUEST_ATTEMPT_COUNT" => Command::UpstreamRequestAttemptCount,
            "UPSTREAM_TRANSPORT_FAILURE_REASON" => Command::UpstreamTransportFailureReason,
            "UPSTREAM_CONNECTION_ID" => Command::UpstreamConnectionId,
            "DOWNSTREAM_LOCAL_ADDRESS" => Command::DownstreamLocalAddress(Whole),
            "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT" => Command::DownstreamLocalAddress(WithoutPort),
            "DOWNSTREAM_LOCAL_PORT" => Command::DownstreamLocalAddress(Port),
            "DOWNSTREAM_REMOTE_ADDRESS" => Command::DownstreamRemoteAddress(Whole),
            "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Command::DownstreamRemoteAddress(WithoutPort),
            "DOWNSTREAM_REMOTE_PORT" => Command::DownstreamRemoteAddress(Port),
            "DOWNSTREAM_DIRECT_REMOTE_ADDRESS" => Command::DownstreamDirectRemoteAddress(Whole),
            "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT" => Command::DownstreamDirectRemoteAddress(WithoutPort),
            "DOWNSTREAM_DIRECT_REMOTE_PORT" => Command::DownstreamDirectRemoteAddress(Port),
            "DOWNSTREAM_TRANSPORT_FAILURE_REASON" => Command::DownstreamTransportFailureReason,
            "ROUTE_NAME" => Command::RouteName,
            "VIRTUAL_HOST_NAME" => Command::VirtualHostName,
            "FILTER_CHAIN_NAME" => Command::FilterChainName,
            "VIRTUAL_CLUSTER_NAME" => Command::VirtualClusterName,
            "HOSTNAME" => Command::Hostname,
            "CONNECTION_ID" => Command::ConnectionId,
            "STREAM_ID" => Command::StreamId,
            "LOCAL_REPLY_BODY" => Command::LocalReplyBody,
            "ENVIRONMENT" => Command::Environment(argument.unwrap_or_default().to_owned()),
            "SCHEME" => Command::Scheme,
            name => return tls::command(name, time),
        })
    }

    fn unknown(&self, offset: usize) -> FormatError {
        if let Some((_, why)) = ELSEWHERE.iter().find(|(name, _)| *name == self.name) {
            return FormatError {
                offset,
                message: format!("%{}% is not supported: {why}", self.name),
                suggestion: None,
            };
        }
        let suggestion = names()
            .map(|name| (distance(self.name, name), name))
            .min()
            .filter(|(far, name)| *far <= 2 || *far * 4 <= name.len())
            .map(|(_, name)| name);
        FormatError { offset, message: format!("%{}% is no command known here", self.name), suggestion }
    }
}

/// # Errors
/// What is wrong with the argument of `PATH`.
fn path(argument: &str) -> Result<Command, String> {
    let (part, of) = argument.split_once(':').unwrap_or((argument, ""));
    let query = match part {
        "" | "WQ" => true,
        "NQ" => false,
        other => return Err(format!("%PATH% takes WQ or NQ, not `{other}`")),
    };
    let which = match of {
        "" | "ORIG_OR_PATH" => PathOf::OriginalOrCurrent,
        "ORIG" => PathOf::Original,
        "PATH" => PathOf::Current,
        other => return Err(format!("%PATH% takes ORIG, PATH or ORIG_OR_PATH, not `{other}`")),
    };
    Ok(Command::Path { query, which })
}

/// # Errors
/// What is wrong with the argument of `COMMON_DURATION`.
fn between(argument: &str) -> Result<Command, String> {
    let parts: Vec<&str> = argument.split(':').collect();
    let [start, end, unit] = parts.as_slice() else {
        return Err(format!("`{argument}`: expected START:END:UNIT, such as DS_RX_BEG:DS_TX_END:us"));
    };
    let moment = |name: &str| match name {
        "DS_RX_BEG" => Ok(StreamMoment::Began),
        "DS_RX_END" => Ok(StreamMoment::RequestReceived),
        "US_TX_END" => Ok(StreamMoment::RequestSent),
        "US_RX_BEG" => Ok(StreamMoment::ResponseBegan),
        "DS_TX_END" => Ok(StreamMoment::Ended),
        "US_CX_BEG" | "US_CX_END" | "US_HS_END" | "US_TX_BEG" | "US_RX_END" | "DS_TX_BEG" => Err(format!(
            "the moment {name} is not supported: expected DS_RX_BEG, DS_RX_END, US_TX_END, US_RX_BEG or DS_TX_END"
        )),
        other => {
            Err(format!("`{other}` is no moment: expected DS_RX_BEG, DS_RX_END, US_TX_END, US_RX_BEG or DS_TX_END"))
        }
    };
    let unit = match *unit {
        "ms" => TimeUnit::Milliseconds,
        "us" => TimeUnit::Microseconds,
        "ns" => TimeUnit::Nanoseconds,
        other => return Err(format!("`{other}` is no unit of time: expected ms, us or ns")),
    };
    Ok(Command::Between { start: moment(start)?, end: moment(end)?, unit })
}

/// The commands over what was noted for a stream, a route or a virtual host.
///
/// # Errors
/// What is wrong with the argument.
fn noted(name: &str, argument: &str) -> Result<Command, String> {
    let mut parts = argument.split(':').map(str::to_owned);
    let first = parts.next().unwrap_or_default();
    if name == "FILTER_STATE" {
        let form = match (parts.next().as_deref(), parts.next(), parts.next()) {
            (None | Some("TYPED"), None, _) => StateForm::Typed,
            (Some("PLAIN"), None, _) => StateForm::Plain,
            (Some("FIELD"), Some(field), None) if !field.is_empty() => StateForm::Field(field),
            _ => return Err(format!("`{argument}`: expected NAME, NAME:PLAIN, NAME:TYPED or NAME:FIELD:FIELD_NAME")),
        };
        return match first.is_empty() {
            true => Err(format!("`{argument}` names no object of the filter state")),
            false => Ok(Command::FilterState { name: first, form }),
        };
    }
    let (of, namespace) = match (name, first.as_str()) {
        ("DYNAMIC_METADATA", _) => (MetadataOf::Stream, first),
        (_, "DYNAMIC") => (MetadataOf::Stream, parts.next().unwrap_or_default()),
        (_, "ROUTE") => (MetadataOf::Route, parts.next().unwrap_or_default()),
        (_, "VIRTUAL_HOST") => (MetadataOf::VirtualHost, parts.next().unwrap_or_default()),
        _ => return Err(format!("`{first}` has no metadata here: expected DYNAMIC, ROUTE or VIRTUAL_HOST")),
    };
    let path: Vec<String> = parts.collect();
    if namespace.is_empty() || path.iter().any(String::is_empty) {
        return Err(format!("`{argument}`: expected a namespace and its keys, joined by colons"));
    }
    Ok(Command::Metadata { of, namespace, path })
}

enum Argument {
    None,
    Optional,
    Required,
}

fn takes_argument(name: &str) -> Argument {
    match name {
        "REQ" | "REQUEST_HEADER" | "RESP" | "RESPONSE_HEADER" | "TRAILER" | "RESPONSE_TRAILER" | "ENVIRONMENT" => {
            Argument::Required
        }
        "QUERY_PARAM" | "DYNAMIC_METADATA" | "METADATA" | "FILTER_STATE" => Argument::Required,
        "COMMON_DURATION" => Argument::Required,
        "START_TIME" | "EMIT_TIME" | "PATH" | "QUERY_PARAMS" | "GRPC_STATUS" => Argument::Optional,
        name if name.ends_with("_WITHOUT_PORT") => Argument::Optional,
        name if tls::is_time(name) => Argument::Optional,
        // An unknown name is reported as such, whatever argument it has.
        name if !names().any(|known| known == name) => Argument::Optional,
        _ => Argument::None,
    }
}

/// # Errors
/// Names the conversion that is not one of those that [`TimeFormat::Pattern`] may use.
fn check_time_pattern(pattern: &str) -> Result<(), String> {
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            continue;
        }
        let conversion = match letters.next() {
            Some(digit @ '1'..='9') => match letters.next() {
                Some('f') => continue,
                other => format!("%{digit}{}", other.unwrap_or_default()),
            },
            Some(letter) if "YmdHMSyeTDFaAbBjsfZz%pIlkRnthcuwCgGVUW".contains(letter) => continue,
            other => format!("%{}", other.unwrap_or_default()),
        };
        return Err(format!("`{conversion}` is no time conversion"));
    }
    Ok(())
}

/// Every command name, for suggestions.
fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().chain(tls::names())
}

/// Commands of Envoy that are not among ours, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("BYTES_RETRANSMITTED", NO_QUIC),
    ("CEL", "there is no CEL"),
    ("CLUSTER_METADATA", "clusters have no metadata here"),
    ("COALESCE", "write one command, or `%REQ(A?B)%` for the first of two headers"),
    ("CUSTOM_FLAGS", "no filter sets flags of its own"),
    ("DOWNSTREAM_CX_RTT", NO_QUIC),
    ("DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", NO_METER),
    ("DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", NO_METER),
    ("DOWNSTREAM_HANDSHAKE_DURATION", "the handshake is not timed"),
    ("DOWNSTREAM_HEADER_BYTES_RECEIVED", NO_METER),
    ("DOWNSTREAM_HEADER_BYTES_SENT", NO_METER),
    ("DOWNSTREAM_WIRE_BYTES_RECEIVED", NO_METER),
    ("DOWNSTREAM_WIRE_BYTES_SENT", NO_METER),
    ("EMIT_TIME_LOCAL", "times are in UTC; write %EMIT_TIME%"),
    ("FILE_CONTENT", "no file is read for a line"),
    ("ROUNDTRIP_DURATION", NO_QUIC),
    ("SECRET", "a secret is never shown"),
    ("SPAN_ID", NO_TRACING),
    ("START_TIME_LOCAL", "times are in UTC; write %START_TIME%"),
    ("TRACE_ID", NO_TRACING),
    ("UPSTREAM_CONNECTION_IDS_ATTEMPTED", NO_ATTEMPTS),
    ("UPSTREAM_CONNECTION_POOL_READY_DURATION", "the wait for a connection is not timed"),
    ("UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", NO_METER),
    ("UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", NO_METER),
    ("UPSTREAM_FILTER_STATE", "there are no filters on the upstream side"),
    ("UPSTREAM_HEADER_BYTES_RECEIVED", NO_METER),
    ("UPSTREAM_HEADER_BYTES_SENT", NO_METER),
    ("UPSTREAM_HOSTS_ATTEMPTED", NO_ATTEMPTS),
    ("UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT", NO_ATTEMPTS),
    ("UPSTREAM_HOST_NAMES_ATTEMPTED", NO_ATTEMPTS),
    ("UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT", NO_ATTEMPTS),
    ("UPSTREAM_HOST_NAME", "names of hosts are not kept; write %UPSTREAM_HOST%"),
    ("UPSTREAM_HOST_NAME_WITHOUT_PORT", "names of hosts are not kept; write %UPSTREAM_HOST%"),
    ("UPSTREAM_METADATA", "hosts have no metadata here"),
    ("UPSTREAM_WIRE_BYTES_RECEIVED", NO_METER),
    ("UPSTREAM_WIRE_BYTES_SENT", NO_METER),
];

const NO_ATTEMPTS: &str =
    "tries before the last are not kept; write %UPSTREAM_HOST% and %UPSTREAM_REQUEST_ATTEMPT_COUNT%";
const NO_METER: &str = "bytes on the wire are not counted; write %BYTES_RECEIVED%, %BYTES_SENT%, %REQUEST_HEADERS_BYTES% and \
     %RESPONSE_HEADERS_BYTES%";
const NO_QUIC: &str = "only HTTP/3 measures it";
const NO_TRACING: &str = "there is no tracing";

const NAMES: &[&str] = &[
    "COMMON_DURATION",
    "QUERY_PARAMS",
    "RESPONSE_TRAILERS_BYTES",
    "UNIQUE_ID",
    "REQ",
    "REQUEST_HEADER",
    "RESP",
    "RESPONSE_HEADER",
    "TRAILER",
    "RESPONSE_TRAILER",
    "PATH",
    "QUERY_PARAM",
    "START_TIME",
    "EMIT_TIME",
    "PROTOCOL",
    "UPSTREAM_PROTOCOL",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "GRPC_STATUS",
    "GRPC_STATUS_NUMBER",
    "CONNECTION_TERMINATION_DETAILS",
    "ACCESS_LOG_TYPE",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "BYTES_RECEIVED",
    "BYTES_SENT",
    "REQUEST_HEADERS_BYTES",
    "RESPONSE_HEADERS_BYTES",
    "DURATION",
    "REQUEST_DURATION",
    "REQUEST_TX_DURATION",
    "RESPONSE_DURATION",
    "RESPONSE_TX_DURATION",
    "UPSTREAM_HOST",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_CONNECTION_ID",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "ROUTE_NAME",
    "VIRTUAL_HOST_NAME",
    "FILTER_CHAIN_NAME",
    "VIRTUAL_CLUSTER_NAME",
    "HOSTNAME",
    "CONNECTION_ID",
    "STREAM_ID",
    "LOCAL_REPLY_BODY",
    "ENVIRONMENT",
    "SCHEME",
    "DYNAMIC_METADATA",
    "METADATA",
    "FILTER_STATE",
];

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_commands_alternate() {
        let format = Format::parse("a %REQ(X-Id?:path):9%%PROTOCOL% 100%%\n").unwrap();
        assert_eq!(
            format.pieces,
            [
                Piece::Text("a ".into()),
                Piece::Command {
                    command: Command::RequestHeader("x-id".into(), Some(":path".into())),
                    max_length: Some(9)
                },
                Piece::Command { command: Command::Protocol, max_length: None },
                Piece::Text(" 100%\n".into()),
            ]
        );
    }

    #[test]
    fn a_time_pattern_may_hold_percent_signs() {
        let format = Format::parse("%START_TIME(%Y/%m/%dT%H:%M:%S%z %s.%3f)%").unwrap();
        assert_eq!(format.pieces.len(), 1);
        assert!(Format::parse("%START_TIME(%Q)%").unwrap_err().message.contains("%Q"));
    }

    #[test]
    fn every_name_is_a_command() {
        for name in names() {
            let text = match takes_argument(name) {
                Argument::Required if name == "METADATA" => "%METADATA(ROUTE:x)%".to_owned(),
                Argument::Required if name == "COMMON_DURATION" => {
                    "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%".to_owned()
                }
                Argument::Required => format!("%{name}(x)%"),
                _ => format!("%{name}%"),
            };
            assert!(Format::parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_broken_format_says_where_and_what_was_meant() {
        let error = Format::parse("ok %PROTOCL%").unwrap_err();
        assert_eq!((error.offset, error.suggestion), (3, Some("PROTOCOL")));
        for bad in ["%", "100% sure", "%REQ%", "%REQ()%", "%PROTOCOL(x)%", "%REQ(a):x%", "%REQ(a", "%a%"] {
            assert!(Format::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_paths_and_networks_are_read_or_refused_by_name() {
        let command = |text: &str| match Format::parse(text).unwrap().pieces.remove(0) {
            Piece::Command { command, .. } => command,
            Piece::Text(text) => panic!("{text}"),
        };
        let between = |start, end, unit| Command::Between { start, end, unit };
        for (text, wanted) in [
            ("%PATH%", Command::Path { query: true, which: PathOf::OriginalOrCurrent }),
            ("%PATH(NQ)%", Command::Path { query: false, which: PathOf::OriginalOrCurrent }),
            ("%PATH(NQ:ORIG)%", Command::Path { query: false, which: PathOf::Original }),
            ("%PATH(WQ:PATH)%", Command::Path { query: true, which: PathOf::Current }),
            (
                "%COMMON_DURATION(DS_RX_END:US_RX_BEG:ns)%",
                between(StreamMoment::RequestReceived, StreamMoment::ResponseBegan, TimeUnit::Nanoseconds),
            ),
            (
                "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(16)%",
                Command::DownstreamRemoteAddress(AddressPart::Network(16)),
            ),
            ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT()%", Command::DownstreamRemoteAddress(AddressPart::WithoutPort)),
            ("%QUERY_PARAMS(DECODED)%", Command::QueryParameters),
        ] {
            assert_eq!(command(text), wanted, "{text}");
        }
        for (text, said) in [
            ("%PATH(XQ)%", "`XQ`"),
            ("%PATH(WQ:x)%", "`x`"),
            ("%COMMON_DURATION(DS_RX_BEG:DS_TX_END)%", "START:END:UNIT"),
            ("%COMMON_DURATION(DS_RX_BEG:US_CX_END:us)%", "US_CX_END is not supported"),
            ("%COMMON_DURATION(DS_RX_BEG:X:us)%", "`X`"),
            ("%COMMON_DURATION(DS_RX_BEG:DS_TX_END:s)%", "`s`"),
            ("%UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT(129)%", "`129`"),
            ("%QUERY_PARAMS(X)%", "ORIG or DECODED"),
            ("%TRACE_ID%", "no tracing"),
            ("%DOWNSTREAM_WIRE_BYTES_SENT%", "on the wire"),
        ] {
            let error = Format::parse(text).unwrap_err();
            assert!(error.message.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_was_noted_is_named_from_the_outside_in() {
        let command = |text: &str| match Format::parse(text).unwrap().pieces.remove(0) {
            Piece::Command { command, max_length } => (command, max_length),
            Piece::Text(text) => panic!("{text}"),
        };
        let metadata = |of, namespace: &str, path: &[&str]| Command::Metadata {
            of,
            namespace: namespace.into(),
            path: path.iter().map(|key| (*key).to_owned()).collect(),
        };
        for (text, wanted) in [
            ("%DYNAMIC_METADATA(a.b)%", metadata(MetadataOf::Stream, "a.b", &[])),
            ("%DYNAMIC_METADATA(a.b:k:sub)%", metadata(MetadataOf::Stream, "a.b", &["k", "sub"])),
            ("%METADATA(DYNAMIC:a:k)%", metadata(MetadataOf::Stream, "a", &["k"])),
            ("%METADATA(ROUTE:a:k)%", metadata(MetadataOf::Route, "a", &["k"])),
            ("%METADATA(VIRTUAL_HOST:a)%", metadata(MetadataOf::VirtualHost, "a", &[])),
        ] {
            assert_eq!(command(text), (wanted, None), "{text}");
        }
        assert_eq!(command("%DYNAMIC_METADATA(a:k):7%").1, Some(7));
        let state = |form| Command::FilterState { name: "x.y".into(), form };
        for (text, wanted) in [
            ("%FILTER_STATE(x.y)%", state(StateForm::Typed)),
            ("%FILTER_STATE(x.y:TYPED)%", state(StateForm::Typed)),
            ("%FILTER_STATE(x.y:PLAIN):7%", state(StateForm::Plain)),
            ("%FILTER_STATE(x.y:FIELD:f)%", state(StateForm::Field("f".into()))),
        ] {
            assert_eq!(command(text).0, wanted, "{text}");
        }
        for bad in [
            "%DYNAMIC_METADATA%",
            "%DYNAMIC_METADATA()%",
            "%DYNAMIC_METADATA(a:)%",
            "%METADATA(ROUTE)%",
            "%METADATA(a:b)%",
            "%FILTER_STATE(:PLAIN)%",
            "%FILTER_STATE(x:OTHER)%",
            "%FILTER_STATE(x:FIELD)%",
            "%FILTER_STATE(x:PLAIN:y)%",
        ] {
            assert!(Format::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_literal_round_trips() {
        assert_eq!(Format::parse("plain").unwrap().as_literal(), Some("plain"));
        assert_eq!(Format::literal("").as_literal(), Some(""));
        assert_eq!(Format::parse("%PROTOCOL%").unwrap().as_literal(), None);
    }
}
