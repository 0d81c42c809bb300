//! What commands stand for.

use super::{Piece, WireBytes};
use crate::{CertificatePart, Expression, ShownBy, Side};

/// What a command stands for. Header names are in lower case.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// The first of the two request headers that is present.
    RequestHeader(RequestField, Option<RequestField>),
    /// The same up to a question mark.
    RequestHeaderWithoutQuery(RequestField, Option<RequestField>),
    ResponseHeader(String, Option<String>),
    ResponseTrailer(String, Option<String>),
    /// The first query parameter of that name, percent-decoded.
    QueryParameter(String),
    /// The whole query, as it was sent or percent-decoded.
    QueryParameters {
        decoded: bool,
    },
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
    /// With spaces as they are, or underscores in their place.
    ResponseCodeDetails {
        spaces: bool,
    },
    /// What `grpc-status` says, or the answer's HTTP status stands for; absent for requests that are not gRPC.
    GrpcStatus(GrpcStatusForm),
    ConnectionTerminationDetails,
    /// When the log asked: at the end, or before.
    AccessLogType,
    ResponseFlags,
    ResponseFlagsLong,
    /// What filters that are no part of the proxy flagged.
    CustomFlags,
    BytesReceived,
    BytesSent,
    Wire(WireBytes),
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
    /// What the host is called; its address where it has no name.
    UpstreamHostName {
        port: bool,
    },
    /// Of all hosts that the request was sent to.
    UpstreamHostsTried {
        names: bool,
        port: bool,
    },
    /// By the name that it has in statistics, or by its own.
    UpstreamCluster {
        raw: bool,
    },
    UpstreamLocalAddress(AddressPart),
    UpstreamRemoteAddress(AddressPart),
    UpstreamRequestAttemptCount,
    UpstreamTransportFailureReason,
    UpstreamConnectionId,
    /// Of all connections that the request was tried on.
    UpstreamConnectionIds,
    /// Milliseconds that the request waited for a connection.
    UpstreamWait,
    DownstreamLocalAddress(AddressPart),
    /// Of the socket itself, wherever the connection was meant to go.
    DownstreamDirectLocalAddress(AddressPart),
    DownstreamRemoteAddress(AddressPart),
    DownstreamDirectRemoteAddress(AddressPart),
    DownstreamTransportFailureReason,
    /// Milliseconds from the start to the end of the TLS handshake, which of a request came before.
    DownstreamHandshake,
    /// How a connection ended: `Normal`, `LocalReset` or `RemoteReset`.
    DetectedClose(Side),
    /// Why we ended a connection.
    LocalCloseReason(Side),
    Tls(Side, TlsPart),
    /// Several values with commas between them.
    Certificate(Side, ShownBy, CertificatePart),
    /// When the peer's certificate becomes good, and when that ends.
    PeerCertificateBegin(Side, TimeFormat),
    PeerCertificateEnd(Side, TimeFormat),
    RouteName,
    /// How often the route was looked up.
    RouteLookups,
    /// Microseconds that took.
    RouteLookupTime,
    VirtualHostName,
    FilterChainName,
    ListenerName,
    VirtualClusterName,
    /// Of the trace that the request is part of, and of our part; absent without tracing.
    TraceId,
    SpanId,
    /// What there is only over HTTP/3.
    Nothing,
    /// What HTTP/3 alone counts.
    Zero,
    /// The first of these commands that has a value.
    First(Vec<Piece>),
    /// The value of an expression, as text; where it is `typed` JSON has it as what it is.
    Expression {
        expression: Box<Expression>,
        typed: bool,
    },
    /// What the client asked for, by the name in its greeting or that in its request.
    RequestedName {
        source: NameSource,
        /// Of the request's names.
        which: PathOf,
    },
    /// The value of this key in the first element of `x-forwarded-client-cert` that has it. In lower case.
    ForwardedCertificate(String),
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
    /// The same of one that is shared with the connection to the upstream; absent while there is none.
    SharedState {
        name: String,
        form: StateForm,
    },
}

/// What is called a header of a request. Names are compared when the format is read, not for every line that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestField {
    /// `:method`
    Method,
    /// `:path`
    Path,
    /// `:authority`, and `host`.
    Authority,
    /// `:scheme`
    Scheme,
    /// Any other, in lower case.
    Named(String),
}

impl From<String> for RequestField {
    /// `name` is in lower case.
    fn from(name: String) -> RequestField {
        match name.as_str() {
            ":method" => RequestField::Method,
            ":path" => RequestField::Path,
            ":authority" | "host" => RequestField::Authority,
            ":scheme" => RequestField::Scheme,
            _ => RequestField::Named(name),
        }
    }
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
    /// The cluster that the request goes to.
    Cluster,
    /// The host that it was sent to last.
    Host,
    /// The listener that the client came to.
    Listener,
    /// The filter chain that serves the client.
    FilterChain,
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

/// Where the name is looked for that a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameSource {
    /// In the greeting of TLS alone.
    Greeting,
    GreetingOrHost,
    HostOrGreeting,
}

/// Which of a request's paths, or of its names of hosts.
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
    /// `US_CX_BEG`: the connection to the upstream was begun.
    ConnectBegan,
    /// `US_CX_END`: it was there.
    Connected,
    /// `US_HS_END`: TLS was agreed on over it.
    Secured,
    /// `US_TX_BEG`: the first byte of the request was sent on.
    RequestSendBegan,
    /// `US_TX_END`: the last byte of the request was sent on.
    RequestSent,
    /// `US_RX_BEG`: the first byte of the answer came.
    ResponseBegan,
    /// `US_RX_BODY_BEG`: the first byte of the answer's body came.
    ResponseBodyBegan,
    /// `US_RX_END`: the last byte of the answer came.
    ResponseReceived,
    /// `DS_TX_BEG`: the first byte of the answer was sent to the client.
    ResponseSendBegan,
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
    /// Of an address within the process; other addresses have an empty one.
    EndpointId,
}

/// How a point in time is written.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeFormat {
    /// `2026-11-20T10:11:12.345Z`
    Iso8601Millis,
    /// `strftime` conversions, with `%s` for seconds and `%1f` … `%9f` for fractions, in UTC.
    Pattern(String),
    /// The same in local time.
    Local(String),
}

impl Command {
    /// The same address as the network of so many bits that it is in.
    pub(super) fn of_network(self, bits: u8) -> Option<Command> {
        let part = AddressPart::Network(bits);
        Some(match self {
            Command::UpstreamLocalAddress(_) => Command::UpstreamLocalAddress(part),
            Command::UpstreamRemoteAddress(_) => Command::UpstreamRemoteAddress(part),
            Command::DownstreamLocalAddress(_) => Command::DownstreamLocalAddress(part),
            Command::DownstreamDirectLocalAddress(_) => Command::DownstreamDirectLocalAddress(part),
            Command::DownstreamRemoteAddress(_) => Command::DownstreamRemoteAddress(part),
            Command::DownstreamDirectRemoteAddress(_) => Command::DownstreamDirectRemoteAddress(part),
            _ => return None,
        })
    }

    /// How a point in time is written, for a command that is one.
    pub(super) fn time(&self) -> Option<&TimeFormat> {
        match self {
            Command::StartTime(format)
            | Command::EmitTime(format)
            | Command::PeerCertificateBegin(_, format)
            | Command::PeerCertificateEnd(_, format) => Some(format),
            _ => None,
        }
    }
}
