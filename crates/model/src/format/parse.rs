//! Reads one command: its name, its argument, and how much of its value is wanted.

use super::names::{distance, names};
use super::{
    AddressPart, Command, Contents, FormatError, GrpcStatusForm, MetadataOf, NameSource, PathOf, Piece, StateForm,
    StreamMoment, TimeFormat, TimeUnit, TlsPart,
};
use super::{coalesce, tls, wire};
use crate::cel::Allowed;
use crate::{Expression, Side};

/// How local time is written where nothing is said.
const LOCAL_TIME: &str = "%Y-%m-%dT%H:%M:%S.%3f%z";

/// The parts of one `%NAME(argument):length%`.
pub(super) struct Spec<'t> {
    pub(super) name: &'t str,
    pub(super) argument: Option<&'t str>,
    pub(super) max_length: Option<&'t str>,
}

/// Splits what follows a `%` into the command and the text after its closing `%`. An argument may itself hold `%`.
pub(super) fn split_command(text: &str) -> Option<(Spec<'_>, &str)> {
    let name_end = text.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
    let (name, mut rest) = text.split_at(name_end);
    let mut argument = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let end = argument_end(inner)?;
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

/// An argument may hold brackets: it ends where the command does, or its length begins.
fn argument_end(text: &str) -> Option<usize> {
    let ends = |rest: &str| {
        let rest = rest.strip_prefix(':').map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.starts_with('%')
    };
    let mut brackets = text.match_indices(')').map(|(at, _)| at);
    let first = brackets.clone().next();
    brackets.find(|at| text.get(at + 1..).is_some_and(ends)).or(first)
}

impl Spec<'_> {
    pub(super) fn parse(&self, offset: usize, contents: &mut dyn Contents) -> Result<Piece, FormatError> {
        let error = |message: String| FormatError { offset, message, suggestion: None };
        let max_length = match self.max_length {
            None => None,
            Some(digits) => Some(digits.parse().map_err(|_| error(format!("`{digits}` is no length")))?),
        };
        let command = match (self.argument, takes_argument(self.name)) {
            (Some(text), Argument::None) if !text.is_empty() => {
                return Err(error(format!("%{}% takes no argument", self.name)));
            }
            (None | Some(""), Argument::Required) => {
                return Err(error(format!("%{}% needs an argument in brackets", self.name)));
            }
            (argument, _) => match self.name {
                "FILE_CONTENT" | "SECRET" => {
                    let text = contents.find(self.name, argument.unwrap_or_default()).map_err(error)?;
                    return Ok(of_content(text, max_length));
                }
                "COALESCE" => Command::First(coalesce::read(argument.unwrap_or_default()).map_err(error)?),
                "CEL" | "TYPED_CEL" => {
                    // What makes texts is off where nobody switched it on, as in Envoy.
                    let expression = Expression::parse(argument.unwrap_or_default(), Allowed::default());
                    let expression = Box::new(expression.map_err(|wrong| error(wrong.message))?);
                    Command::Expression { expression, typed: self.name == "TYPED_CEL" }
                }
                "DYNAMIC_METADATA"
                | "METADATA"
                | "FILTER_STATE"
                | "UPSTREAM_FILTER_STATE"
                | "CLUSTER_METADATA"
                | "UPSTREAM_METADATA" => noted(self.name, argument.unwrap_or_default()).map_err(error)?,
                "REQ" | "REQUEST_HEADER" | "STREAM_INFO_REQ" | "REQ_WITHOUT_QUERY" | "RESP" | "RESPONSE_HEADER"
                | "TRAILER" | "RESPONSE_TRAILER" => {
                    check_header_names(argument.unwrap_or_default()).map_err(error)?;
                    self.command(argument).ok_or_else(|| self.unknown(offset))?
                }
                "PATH" => path(argument.unwrap_or_default()).map_err(error)?,
                "COMMON_DURATION" => between(argument.unwrap_or_default()).map_err(error)?,
                "REQUESTED_SERVER_NAME" if argument.is_some_and(|text| !text.is_empty()) => {
                    server_name(argument.unwrap_or_default()).map_err(error)?
                }
                "XFCC_VALUE" => forwarded_certificate(argument.unwrap_or_default()).map_err(error)?,
                "QUERY_PARAMS" if !matches!(argument, None | Some("" | "ORIG" | "DECODED")) => {
                    return Err(error("%QUERY_PARAMS% takes ORIG or DECODED".to_owned()));
                }
                name if name.ends_with("_WITHOUT_PORT") && argument.is_some_and(|text| !text.is_empty()) => {
                    // What is no number is as good as none, and more bits than an address has are all of them, as in Envoy.
                    let bits = argument.and_then(|text| text.parse::<u32>().ok());
                    let bits = bits.map(|bits| u8::try_from(bits).unwrap_or(u8::MAX));
                    let whole = self.command(None);
                    let part = whole.and_then(|whole| bits.map_or(Some(whole.clone()), |bits| whole.of_network(bits)));
                    part.ok_or_else(|| self.unknown(offset))?
                }
                _ => self.command(argument).ok_or_else(|| self.unknown(offset))?,
            },
        };
        if let Some(TimeFormat::Pattern(pattern) | TimeFormat::Local(pattern)) = command.time() {
            check_time_pattern(pattern).map_err(error)?;
        }
        Ok(Piece::Command { command, max_length })
    }

    fn command(&self, argument: Option<&str>) -> Option<Command> {
        use AddressPart::{EndpointId, Port, Whole, WithoutPort};
        let time = || match argument {
            None | Some("") => TimeFormat::Iso8601Millis,
            Some(pattern) => TimeFormat::Pattern(pattern.to_owned()),
        };
        let local_time = || match argument {
            None | Some("") => TimeFormat::Local(LOCAL_TIME.to_owned()),
            Some(pattern) => TimeFormat::Local(pattern.to_owned()),
        };
        let names = || {
            let text = argument.unwrap_or_default().to_ascii_lowercase();
            match text.split_once('?') {
                Some((main, other)) => (main.to_owned(), Some(other.to_owned())),
                None => (text, None),
            }
        };
        Some(match self.name {
            "REQ" | "REQUEST_HEADER" | "STREAM_INFO_REQ" => {
                let (main, other) = names();
                Command::RequestHeader(main.into(), other.map(Into::into))
            }
            "REQ_WITHOUT_QUERY" => {
                let (main, other) = names();
                Command::RequestHeaderWithoutQuery(main.into(), other.map(Into::into))
            }
            "RESP" | "RESPONSE_HEADER" => {
                let (main, other) = names();
                Command::ResponseHeader(main, other)
            }
            "TRAILER" | "RESPONSE_TRAILER" => {
                let (main, other) = names();
                Command::ResponseTrailer(main, other)
            }
            "QUERY_PARAMS" => Command::QueryParameters { decoded: argument == Some("DECODED") },
            "UNIQUE_ID" => Command::UniqueId,
            "RESPONSE_TRAILERS_BYTES" => Command::ResponseTrailersBytes,
            "QUERY_PARAM" => Command::QueryParameter(argument.unwrap_or_default().to_owned()),
            "START_TIME" => Command::StartTime(time()),
            "EMIT_TIME" => Command::EmitTime(time()),
            "START_TIME_LOCAL" => Command::StartTime(local_time()),
            "EMIT_TIME_LOCAL" => Command::EmitTime(local_time()),
            "PROTOCOL" => Command::Protocol,
            "UPSTREAM_PROTOCOL" => Command::UpstreamProtocol,
            "RESPONSE_CODE" => Command::ResponseCode,
            "RESPONSE_CODE_DETAILS" => Command::ResponseCodeDetails { spaces: argument == Some("ALLOW_WHITESPACES") },
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
            "CUSTOM_FLAGS" => Command::CustomFlags,
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
            "UPSTREAM_HOST_NAME" => Command::UpstreamHostName { port: true },
            "UPSTREAM_HOST_NAME_WITHOUT_PORT" => Command::UpstreamHostName { port: false },
            "UPSTREAM_HOSTS_ATTEMPTED" => Command::UpstreamHostsTried { names: false, port: true },
            "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT" => Command::UpstreamHostsTried { names: false, port: false },
            "UPSTREAM_HOST_NAMES_ATTEMPTED" => Command::UpstreamHostsTried { names: true, port: true },
            "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT" => Command::UpstreamHostsTried { names: true, port: false },
            "UPSTREAM_CONNECTION_IDS_ATTEMPTED" => Command::UpstreamConnectionIds,
            "BYTES_RETRANSMITTED" | "PACKETS_RETRANSMITTED" | "DOWNSTREAM_CX_RTT" => Command::Zero,
            "TRACE_ID" => Command::TraceId,
            "SPAN_ID" => Command::SpanId,
            "ROUNDTRIP_DURATION" => Command::Nothing,
            "UPSTREAM_CLUSTER" => Command::UpstreamCluster { raw: false },
            "UPSTREAM_CLUSTER_RAW" => Command::UpstreamCluster { raw: true },
            "UPSTREAM_LOCAL_ADDRESS" => Command::UpstreamLocalAddress(Whole),
            "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT" => Command::UpstreamLocalAddress(WithoutPort),
            "UPSTREAM_LOCAL_PORT" => Command::UpstreamLocalAddress(Port),
            "UPSTREAM_REMOTE_ADDRESS" => Command::UpstreamRemoteAddress(Whole),
            "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Command::UpstreamRemoteAddress(WithoutPort),
            "UPSTREAM_REMOTE_PORT" => Command::UpstreamRemoteAddress(Port),
            "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID" => Command::UpstreamRemoteAddress(EndpointId),
            "UPSTREAM_REQUEST_ATTEMPT_COUNT" => Command::UpstreamRequestAttemptCount,
            "UPSTREAM_TRANSPORT_FAILURE_REASON" => Command::UpstreamTransportFailureReason,
            "UPSTREAM_CONNECTION_ID" => Command::UpstreamConnectionId,
            "UPSTREAM_CONNECTION_POOL_READY_DURATION" => Command::UpstreamWait,
            "DOWNSTREAM_LOCAL_ADDRESS" => Command::DownstreamLocalAddress(Whole),
            "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT" => Command::DownstreamLocalAddress(WithoutPort),
            "DOWNSTREAM_LOCAL_PORT" => Command::DownstreamLocalAddress(Port),
            "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID" => Command::DownstreamLocalAddress(EndpointId),
            "DOWNSTREAM_DIRECT_LOCAL_ADDRESS" => Command::DownstreamDirectLocalAddress(Whole),
            "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT" => Command::DownstreamDirectLocalAddress(WithoutPort),
            "DOWNSTREAM_DIRECT_LOCAL_PORT" => Command::DownstreamDirectLocalAddress(Port),
            "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID" => Command::DownstreamDirectLocalAddress(EndpointId),
            "DOWNSTREAM_REMOTE_ADDRESS" => Command::DownstreamRemoteAddress(Whole),
            "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Command::DownstreamRemoteAddress(WithoutPort),
            "DOWNSTREAM_REMOTE_PORT" => Command::DownstreamRemoteAddress(Port),
            "DOWNSTREAM_DIRECT_REMOTE_ADDRESS" => Command::DownstreamDirectRemoteAddress(Whole),
            "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT" => Command::DownstreamDirectRemoteAddress(WithoutPort),
            "DOWNSTREAM_DIRECT_REMOTE_PORT" => Command::DownstreamDirectRemoteAddress(Port),
            "DOWNSTREAM_TRANSPORT_FAILURE_REASON" => Command::DownstreamTransportFailureReason,
            "DOWNSTREAM_HANDSHAKE_DURATION" => Command::DownstreamHandshake,
            "DOWNSTREAM_DETECTED_CLOSE_TYPE" => Command::DetectedClose(Side::Downstream),
            "DOWNSTREAM_LOCAL_CLOSE_REASON" => Command::LocalCloseReason(Side::Downstream),
            "UPSTREAM_DETECTED_CLOSE_TYPE" => Command::DetectedClose(Side::Upstream),
            "UPSTREAM_LOCAL_CLOSE_REASON" => Command::LocalCloseReason(Side::Upstream),
            "LISTENER_NAME" => Command::ListenerName,
            "ROUTE_RESOLUTION_COUNT" => Command::RouteLookups,
            "ROUTE_RESOLUTION_TIME_US" => Command::RouteLookupTime,
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
            name => return wire::command(name).or_else(|| tls::command(name, time)),
        })
    }

    fn unknown(&self, offset: usize) -> FormatError {
        if self.name == "PER_REQUEST_STATE" {
            let message = "%PER_REQUEST_STATE% is known in the values of headers alone; \
                           elsewhere write %FILTER_STATE(NAME:PLAIN)%";
            return FormatError { offset, message: message.to_owned(), suggestion: None };
        }
        let suggestion = names()
            .map(|name| (distance(self.name, name), name))
            .min()
            .filter(|(far, name)| *far <= 2 || *far * 4 <= name.len())
            .map(|(_, name)| name);
        FormatError { offset, message: format!("%{}% is no command known here", self.name), suggestion }
    }
}

/// A text that is known when the format is read.
fn of_content(text: Option<String>, max_length: Option<usize>) -> Piece {
    let Some(mut text) = text else { return Piece::Command { command: Command::Nothing, max_length } };
    if let Some(length) = max_length.filter(|length| *length < text.len()) {
        text.truncate(text.floor_char_boundary(length));
    }
    Piece::Text(text)
}

/// # Errors
/// What is wrong with the names of a field and of the one that may stand in for it, `NAME?OTHER`.
fn check_header_names(argument: &str) -> Result<(), String> {
    let (main, other) = argument.split_once('?').unwrap_or((argument, ""));
    if other.contains('?') {
        return Err(format!("`{argument}` names more than one other field"));
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    // One of the two may be empty, and is then never there.
    let is_name = |name: &str| name != ":" && name.strip_prefix(':').unwrap_or(name).bytes().all(is_letter);
    match [main, other].into_iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!("`{name}` is no header name")),
        None => Ok(()),
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

const MOMENTS: [(&str, StreamMoment); 12] = [
    ("DS_RX_BEG", StreamMoment::Began),
    ("DS_RX_END", StreamMoment::RequestReceived),
    ("US_CX_BEG", StreamMoment::ConnectBegan),
    ("US_CX_END", StreamMoment::Connected),
    ("US_HS_END", StreamMoment::Secured),
    ("US_TX_BEG", StreamMoment::RequestSendBegan),
    ("US_TX_END", StreamMoment::RequestSent),
    ("US_RX_BEG", StreamMoment::ResponseBegan),
    ("US_RX_BODY_BEG", StreamMoment::ResponseBodyBegan),
    ("US_RX_END", StreamMoment::ResponseReceived),
    ("DS_TX_BEG", StreamMoment::ResponseSendBegan),
    ("DS_TX_END", StreamMoment::Ended),
];

/// # Errors
/// What is wrong with the argument of `COMMON_DURATION`.
fn between(argument: &str) -> Result<Command, String> {
    let parts: Vec<&str> = argument.split(':').collect();
    let (start, end, unit) = match parts.as_slice() {
        [start, end] => (start, end, "ms"),
        [start, end, unit] => (start, end, *unit),
        _ => return Err(format!("`{argument}`: expected START:END:UNIT, such as DS_RX_BEG:DS_TX_END:us")),
    };
    let moment = |name: &str| MOMENTS.iter().find(|(known, _)| *known == name).map(|(_, moment)| *moment);
    let unit = match unit {
        "ms" => TimeUnit::Milliseconds,
        "us" => TimeUnit::Microseconds,
        "ns" => TimeUnit::Nanoseconds,
        other => return Err(format!("`{other}` is no unit of time: expected ms, us or ns")),
    };
    Ok(match (moment(start), moment(end)) {
        (Some(start), Some(end)) => Command::Between { start, end, unit },
        // Another name is that of a moment that some filter notes, in Envoy: here none does.
        _ => Command::Nothing,
    })
}

/// # Errors
/// What is wrong with the argument of `REQUESTED_SERVER_NAME`.
fn server_name(argument: &str) -> Result<Command, String> {
    let mut parts = argument.split(':');
    let source = match parts.next().unwrap_or_default() {
        "" | "SNI_ONLY" => NameSource::Greeting,
        "SNI_FIRST" => NameSource::GreetingOrHost,
        "HOST_FIRST" => NameSource::HostOrGreeting,
        other => return Err(format!("%REQUESTED_SERVER_NAME% takes SNI_ONLY, SNI_FIRST or HOST_FIRST, not `{other}`")),
    };
    let which = match parts.next().unwrap_or_default() {
        "" | "ORIG_OR_HOST" => PathOf::OriginalOrCurrent,
        "ORIG" => PathOf::Original,
        "HOST" => PathOf::Current,
        other => return Err(format!("%REQUESTED_SERVER_NAME% takes ORIG, HOST or ORIG_OR_HOST, not `{other}`")),
    };
    Ok(match source {
        NameSource::Greeting => Command::Tls(Side::Downstream, TlsPart::ServerName),
        source => Command::RequestedName { source, which },
    })
}

/// # Errors
/// What is wrong with the argument of `XFCC_VALUE`.
fn forwarded_certificate(argument: &str) -> Result<Command, String> {
    const KEYS: [&str; 7] = ["by", "hash", "cert", "chain", "subject", "uri", "dns"];
    let key = argument.to_ascii_lowercase();
    match KEYS.contains(&key.as_str()) {
        true => Ok(Command::ForwardedCertificate(key)),
        false => Err(format!("%XFCC_VALUE% takes one of {}, not `{argument}`", KEYS.join(", "))),
    }
}

/// The commands over what was noted for a stream, a route or a virtual host.
///
/// # Errors
/// What is wrong with the argument.
fn noted(name: &str, argument: &str) -> Result<Command, String> {
    let mut parts = argument.split(':').map(str::to_owned);
    let first = parts.next().unwrap_or_default();
    if let "FILTER_STATE" | "UPSTREAM_FILTER_STATE" = name {
        // What stands behind these counts for nothing, as in Envoy.
        let form = match (parts.next().as_deref(), parts.next().filter(|field| !field.is_empty())) {
            (None | Some("" | "TYPED"), None) => StateForm::Typed,
            (Some("PLAIN"), None) => StateForm::Plain,
            (Some("FIELD"), Some(field)) => StateForm::Field(field),
            _ => return Err(format!("`{argument}`: expected NAME, NAME:PLAIN, NAME:TYPED or NAME:FIELD:FIELD_NAME")),
        };
        if first.is_empty() {
            return Err(format!("`{argument}` names no object of the filter state"));
        }
        return Ok(match name {
            "FILTER_STATE" => Command::FilterState { name: first, form },
            _ => Command::SharedState { name: first, form },
        });
    }
    let (of, namespace) = match (name, first.as_str()) {
        ("DYNAMIC_METADATA", _) => (MetadataOf::Stream, first),
        ("CLUSTER_METADATA", _) => (MetadataOf::Cluster, first),
        ("UPSTREAM_METADATA", _) => (MetadataOf::Host, first),
        (_, "CLUSTER") => (MetadataOf::Cluster, parts.next().unwrap_or_default()),
        (_, "UPSTREAM_HOST") => (MetadataOf::Host, parts.next().unwrap_or_default()),
        (_, "DYNAMIC") => (MetadataOf::Stream, parts.next().unwrap_or_default()),
        (_, "ROUTE") => (MetadataOf::Route, parts.next().unwrap_or_default()),
        (_, "LISTENER") => (MetadataOf::Listener, parts.next().unwrap_or_default()),
        (_, "LISTENER_FILTER_CHAIN") => (MetadataOf::FilterChain, parts.next().unwrap_or_default()),
        (_, "VIRTUAL_HOST") => (MetadataOf::VirtualHost, parts.next().unwrap_or_default()),
        _ => {
            let known = "DYNAMIC, ROUTE, VIRTUAL_HOST, CLUSTER, UPSTREAM_HOST, LISTENER or LISTENER_FILTER_CHAIN";
            return Err(format!("`{first}` has no metadata here: expected {known}"));
        }
    };
    // Names that are empty are taken: nothing has them as a rule.
    Ok(Command::Metadata { of, namespace, path: parts.collect() })
}

pub(super) enum Argument {
    None,
    Optional,
    Required,
}

pub(super) fn takes_argument(name: &str) -> Argument {
    match name {
        "REQ" | "REQUEST_HEADER" | "STREAM_INFO_REQ" | "RESP" | "RESPONSE_HEADER" | "TRAILER" | "RESPONSE_TRAILER" => {
            Argument::Required
        }
        "QUERY_PARAM" | "DYNAMIC_METADATA" | "METADATA" | "FILTER_STATE" | "UPSTREAM_FILTER_STATE" => {
            Argument::Required
        }
        "CLUSTER_METADATA" | "UPSTREAM_METADATA" | "CEL" | "TYPED_CEL" | "COALESCE" => Argument::Required,
        "REQ_WITHOUT_QUERY" | "XFCC_VALUE" | "ENVIRONMENT" | "FILE_CONTENT" | "SECRET" => Argument::Required,
        "UPSTREAM_HOST_NAME_WITHOUT_PORT" => Argument::None,
        name if name.ends_with("ATTEMPTED_WITHOUT_PORT") => Argument::None,
        "COMMON_DURATION" => Argument::Required,
        "START_TIME"
        | "EMIT_TIME"
        | "START_TIME_LOCAL"
        | "EMIT_TIME_LOCAL"
        | "PATH"
        | "QUERY_PARAMS"
        | "GRPC_STATUS"
        | "RESPONSE_CODE_DETAILS"
        | "REQUESTED_SERVER_NAME" => Argument::Optional,
        name if name.ends_with("_WITHOUT_PORT") => Argument::Optional,
        name if tls::is_time(name) => Argument::Optional,
        // An unknown name is reported as such, whatever argument it has.
        name if !names().any(|known| known == name) => Argument::Optional,
        _ => Argument::None,
    }
}

/// # Errors
/// It makes line breaks: what it writes may become the value of a header.
fn check_time_pattern(pattern: &str) -> Result<(), String> {
    let mut rest = pattern;
    while let Some((_, conversion)) = rest.split_once('%') {
        let letter = conversion.trim_start_matches(|c: char| c.is_ascii_digit() || "-_^#EO".contains(c));
        if letter.starts_with('n') {
            return Err("`%n` is a line break, which no time has".to_owned());
        }
        rest = letter.strip_prefix('%').unwrap_or(letter);
    }
    Ok(())
}
