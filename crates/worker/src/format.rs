//! Formats evaluated for one stream: header values, log lines, reply bodies.

mod forwarded;
mod json;
mod noted;
mod tls;
mod upstream;
mod values;

pub(crate) use noted::write as write_value;
pub(crate) use upstream::OfUpstream;
pub(crate) use values::write_http_date;
use values::{
    address, append_short, decode, hostname, millis, number, text, text_without_spaces, uuid_of_connection, write_time,
};

use std::borrow::Cow;
use std::time::SystemTime;

use postrider_filter_api::cel::{self, Facts};
use postrider_filter_api::{Flags, Logged, Moment, RouteFacts, StreamInfo};
use postrider_http::grpc::{self, Code, Status};
use postrider_http::{Fields, HeaderId, RequestHead, ResponseHead};
use postrider_model::{
    AddressPart, Command, Format, GrpcStatusForm, LogFormat, MetadataOf, NameSource, PathOf, Piece, RequestField, Side,
    StateForm, StreamMoment, TimeUnit, Way, WireBytes, WirePart,
};
use postrider_upstream::Random;

use crate::trace::hex;

/// Appends an object of the filter state as `%FILTER_STATE(NAME:TYPED)%` has it.
pub(crate) fn typed_state(name: &str, info: &StreamInfo, out: &mut Vec<u8>) -> Option<()> {
    noted::state(name, &StateForm::Typed, info, out)
}

/// What commands may refer to. A connection without HTTP has empty heads.
pub(crate) struct Context<'a> {
    pub request: &'a RequestHead,
    pub response: &'a ResponseHead,
    pub trailers: &'a Fields,
    pub info: &'a StreamInfo,
    pub route: Option<&'a RouteFacts>,
    /// Which of the route's weighted clusters was drawn.
    pub weighted: Option<usize>,
    pub reply_body: &'a [u8],
    /// `false` for a connection that is carried without being read.
    pub http: bool,
    pub now: SystemTime,
    pub upstream: OfUpstream<'a>,
}

/// The kinds of entries that logs make here, by the names of Envoy's `AccessLogType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryMoment {
    NotSet,
    TcpConnectionStart,
    TcpUpstreamConnected,
    TcpPeriodic,
    TcpConnectionEnd,
    DownstreamStart,
    DownstreamPeriodic,
    DownstreamTunnelEstablished,
    DownstreamEnd,
    UpstreamPoolReady,
    UpstreamPeriodic,
    UpstreamEnd,
}

impl EntryMoment {
    pub(crate) fn name(self) -> &'static str {
        match self {
            EntryMoment::NotSet => "NotSet",
            EntryMoment::TcpConnectionStart => "TcpConnectionStart",
            EntryMoment::TcpUpstreamConnected => "TcpUpstreamConnected",
            EntryMoment::TcpPeriodic => "TcpPeriodic",
            EntryMoment::TcpConnectionEnd => "TcpConnectionEnd",
            EntryMoment::DownstreamStart => "DownstreamStart",
            EntryMoment::DownstreamPeriodic => "DownstreamPeriodic",
            EntryMoment::DownstreamTunnelEstablished => "DownstreamTunnelSuccessfullyEstablished",
            EntryMoment::DownstreamEnd => "DownstreamEnd",
            EntryMoment::UpstreamPoolReady => "UpstreamPoolReady",
            EntryMoment::UpstreamPeriodic => "UpstreamPeriodic",
            EntryMoment::UpstreamEnd => "UpstreamEnd",
        }
    }
}

/// What stands for a value that there is none of.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// `-`, in logs.
    Dash,
    /// Nothing, in headers.
    Empty,
}

impl Context<'_> {
    /// The same for expressions.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            request: self.http.then_some(self.request),
            response: self.http.then_some(self.response),
            trailers: self.http.then_some(self.trailers),
            info: self.info,
            route: self.route,
            weighted: self.weighted,
            server_name: self.info.requested_server_name(),
        }
    }

    /// Appends a value of somebody's metadata; `None` when there is none.
    pub(crate) fn metadata(&self, of: MetadataOf, namespace: &str, path: &[String], out: &mut Vec<u8>) -> Option<()> {
        noted::metadata(of, namespace, path, self, out)
    }

    pub(crate) fn write(&self, format: &Format, absent: Absent, out: &mut Vec<u8>) {
        for piece in &format.pieces {
            match piece {
                Piece::Text(text) => append_short(text.as_bytes(), out),
                Piece::Command { command, max_length } => {
                    let start = out.len();
                    if self.command(command, out).is_none() {
                        out.truncate(start);
                        if let Absent::Dash = absent {
                            out.push(b'-');
                        }
                    } else if let Some(max_length) = max_length {
                        out.truncate(out.len().min(start + max_length));
                    }
                }
            }
        }
    }

    /// A log line as its format says.
    pub(crate) fn write_log(&self, format: &LogFormat, out: &mut Vec<u8>) {
        self.write_log_as(format, Absent::Dash, out);
    }

    fn write_log_as(&self, format: &LogFormat, absent: Absent, out: &mut Vec<u8>) {
        match format {
            LogFormat::Text(format) => self.write(format, absent, out),
            LogFormat::Json(format) => {
                self.json(format, absent, out);
                out.push(b'\n');
            }
            LogFormat::OmitEmpty(format) => self.write_log_as(format, Absent::Empty, out),
        }
    }

    /// Appends the command's value; `None` when there is none (what was appended then does not count).
    fn command(&self, command: &Command, out: &mut Vec<u8>) -> Option<()> {
        let info = self.info;
        match command {
            Command::RequestHeader(field, other) => {
                let value = self.request_field(field).or_else(|| self.request_field(other.as_ref()?));
                out.extend_from_slice(value?);
            }
            Command::RequestHeaderWithoutQuery(field, other) => {
                let value = self.request_field(field).or_else(|| self.request_field(other.as_ref()?))?;
                out.extend_from_slice(value.split(|byte| *byte == b'?').next().unwrap_or_default());
            }
            Command::ResponseHeader(name, other) => {
                self.response_header(name, out).or_else(|| self.response_header(other.as_deref()?, out))?;
            }
            Command::ResponseTrailer(name, other) => {
                let trailer = |name: &str| self.trailers.get_name(name.as_bytes());
                out.extend_from_slice(trailer(name).or_else(|| trailer(other.as_deref()?))?);
            }
            Command::Path { query, which } => {
                let original = self.request.fields.get_name(b"x-envoy-original-path");
                let path = match which {
                    PathOf::Original => original?,
                    PathOf::Current => self.request.path(),
                    PathOf::OriginalOrCurrent => original.unwrap_or(self.request.path()),
                };
                let end = if *query { path.len() } else { path.iter().position(|b| *b == b'?').unwrap_or(path.len()) };
                out.extend_from_slice(path.get(..end).filter(|path| !path.is_empty())?);
            }
            Command::QueryParameter(name) => {
                decode(postrider_router::query_value(self.request, name.as_bytes())?, |_| true, out);
            }
            Command::QueryParameters { decoded } => {
                let query = self.request.query().filter(|query| !query.is_empty())?;
                if *decoded {
                    decode(query, |byte| byte.is_ascii_graphic(), out);
                } else {
                    out.extend_from_slice(query);
                }
            }
            Command::Between { start, end, unit } => {
                let (start, end) = (self.moment(*start)?, self.moment(*end)?);
                let duration = (end >= start).then(|| end.saturating_duration_since(start))?;
                let units = match unit {
                    TimeUnit::Milliseconds => duration.as_millis(),
                    TimeUnit::Microseconds => duration.as_micros(),
                    TimeUnit::Nanoseconds => duration.as_nanos(),
                };
                number(u64::try_from(units).unwrap_or(u64::MAX), out);
            }
            Command::UniqueId => {
                thread_local!(static RANDOM: Random = Random::default());
                out.extend_from_slice(&RANDOM.with(crate::http::uuid));
            }
            Command::ResponseTrailersBytes => {
                number(self.trailers.iter().map(|line| (line.name.len() + line.value.len()) as u64).sum(), out);
            }
            Command::StartTime(format) => write_time(format, info.start, out),
            Command::EmitTime(format) => write_time(format, self.now, out),
            Command::Protocol => {
                if !self.http {
                    let Logged::OfListener(protocol) = info.logged else { return None };
                    return text(protocol, out);
                }
                if info.logged.is_try() {
                    return text(info.upstream_protocol, out);
                }
                out.extend_from_slice(self.request.version().as_str().as_bytes());
            }
            Command::UpstreamProtocol => {
                info.upstream_remote.as_ref().filter(|_| self.http && info.upstream_connection_id != 0)?;
                text(info.upstream_protocol, out)?;
            }
            Command::ResponseCode => number(u64::from(info.status), out),
            Command::ResponseCodeDetails { .. } if info.blank_details && info.details.is_empty() => {}
            Command::ResponseCodeDetails { spaces: true } => text(&info.details, out)?,
            Command::ResponseCodeDetails { spaces: false } => text_without_spaces(&info.details, out)?,
            Command::GrpcStatus(form) => self.grpc_status(*form, out)?,
            Command::ConnectionTerminationDetails => text(&info.termination_details, out)?,
            Command::ResponseFlags => self.flags(|(short, _)| short, out),
            Command::ResponseFlagsLong => self.flags(|(_, long)| long, out),
            // As in Envoy, none are an empty text.
            Command::CustomFlags => {
                info.custom_flags(|flags| out.extend_from_slice(flags.as_bytes()));
            }
            Command::BytesReceived => number(info.bytes_received, out),
            Command::BytesSent => number(info.bytes_sent, out),
            Command::Wire(wanted) => number(self.wire_bytes(*wanted)?, out),
            Command::RequestHeadersBytes => number(info.request_head_bytes, out),
            Command::ResponseHeadersBytes => number(info.response_head_bytes, out),
            Command::Duration => millis(Some(info.started), info.ended, out)?,
            Command::RequestDuration => millis(Some(info.started), info.request_received, out)?,
            Command::RequestTxDuration => millis(Some(info.started), info.request_sent, out)?,
            Command::ResponseDuration => millis(Some(info.started), info.response_began, out)?,
            // A try ends where its client's part begins.
            Command::ResponseTxDuration if info.logged.is_try() => return None,
            Command::ResponseTxDuration => millis(info.response_began, self.sent_whole(), out)?,
            Command::UpstreamHost => text(info.upstream_remote.as_deref()?, out)?,
            Command::UpstreamHostName { port } => self.upstream.name(info.upstream_remote.as_deref()?, *port, out),
            // A try is of one host, and only of one that it could connect to.
            Command::UpstreamHostsTried { .. } if info.logged.is_try() && info.upstream_connection_id == 0 => {
                return None;
            }
            Command::UpstreamHostsTried { names, port } => {
                self.upstream.all(info.upstream_remote.as_deref()?, *names, *port, out);
            }
            Command::TraceId => hex(&info.trace()?.ids?.trace, out),
            Command::SpanId => hex(&info.trace()?.ids?.span, out),
            Command::Nothing => return None,
            Command::Zero => number(0, out),
            Command::First(pieces) => {
                self.first(pieces, out)?;
            }
            // A text that is empty is one.
            Command::Expression { expression, .. } => {
                out.extend_from_slice(cel::text_of(expression, &self.facts())?.as_bytes());
            }
            Command::RequestedName { source, which } => {
                let greeting = || info.requested_server_name().filter(|name| !name.is_empty()).map(str::as_bytes);
                let name = match source {
                    NameSource::Greeting => greeting(),
                    NameSource::GreetingOrHost => greeting().or_else(|| self.host(*which)),
                    NameSource::HostOrGreeting => self.host(*which).or_else(greeting),
                };
                out.extend_from_slice(name?);
            }
            Command::ForwardedCertificate(key) => {
                let field = self.request.fields.get_name(b"x-forwarded-client-cert")?;
                forwarded::value(field, key, out)?;
            }
            Command::UpstreamCluster { raw } => {
                let name = info.upstream_cluster.as_deref()?;
                let shown = self.upstream.cluster.filter(|_| !raw).map_or(name, |cluster| cluster.shown_name());
                text(shown, out)?;
            }
            Command::UpstreamLocalAddress(part) => address(info.upstream_local, *part, out)?,
            Command::UpstreamRemoteAddress(part) => {
                // A host that could not be connected to was no end of a connection.
                let remote = info.upstream_remote.as_deref().filter(|_| info.upstream_connection_id != 0)?;
                match remote.parse() {
                    Ok(remote) => address(Some(remote), *part, out)?,
                    Err(_) if *part == AddressPart::EndpointId => {}
                    Err(_) => text(remote, out)?,
                }
            }
            Command::UpstreamRequestAttemptCount => number(u64::from(info.upstream_attempts), out),
            Command::UpstreamTransportFailureReason => text_without_spaces(info.upstream_failure.as_deref()?, out)?,
            Command::UpstreamWait => {
                number(u64::try_from(info.upstream_wait?.as_millis()).unwrap_or(u64::MAX), out);
            }
            Command::UpstreamConnectionIds => self.upstream.connections(info.upstream_connection_id, out)?,
            Command::UpstreamConnectionId => number(info.upstream_connection_id, out),
            Command::DownstreamLocalAddress(part) => address(info.downstream_local, *part, out)?,
            Command::DownstreamDirectLocalAddress(part) => address(info.downstream_direct_local(), *part, out)?,
            Command::DownstreamRemoteAddress(part) => address(info.downstream_remote, *part, out)?,
            Command::DownstreamDirectRemoteAddress(part) => address(info.downstream_direct_remote, *part, out)?,
            Command::DetectedClose(Side::Downstream) => text(info.closed.downstream.name(), out)?,
            Command::DetectedClose(Side::Upstream) => {
                // What was not connected to is told of as well, but for a try, which is of one connection.
                let asked = match info.logged {
                    Logged::OfListener(_) => false,
                    logged if logged.is_try() => false,
                    _ => {
                        let overflowed = info.flags.contains(Flags::UPSTREAM_OVERFLOW) && info.upstream_attempts > 0;
                        !self.http || info.upstream_remote.is_some() || overflowed
                    }
                };
                let known = asked || info.upstream_connection_id != 0;
                known.then_some(())?;
                text(info.closed.upstream.name(), out)?;
            }
            Command::LocalCloseReason(Side::Downstream) => text(&info.closed.downstream_reason, out)?,
            Command::LocalCloseReason(Side::Upstream) => text(&info.closed.upstream_reason, out)?,
            Command::Tls(side, part) => text(tls::part(*side, *part, info)?, out)?,
            Command::Certificate(side, by, part) => tls::certificate((*side, *by), *part, info, out)?,
            Command::PeerCertificateBegin(side, format) => write_time(format, tls::validity(*side, info)?.0, out),
            Command::PeerCertificateEnd(side, format) => write_time(format, tls::validity(*side, info)?.1, out),
            Command::DownstreamTransportFailureReason => text_without_spaces(info.downstream_failure.as_deref()?, out)?,
            Command::RouteLookups => number(u64::from(info.route_lookups), out),
            Command::RouteLookupTime => {
                number(u64::try_from(info.route_lookup_time?.as_micros()).unwrap_or(u64::MAX), out);
            }
            Command::RouteName => text(info.route_name.as_deref()?, out)?,
            Command::VirtualHostName => text(info.virtual_host.as_deref()?, out)?,
            Command::DownstreamHandshake => self.handshake(out)?,
            Command::ListenerName => text(&info.surroundings.as_ref()?.listener_name(), out)?,
            Command::FilterChainName => text(info.filter_chain.as_deref()?, out)?,
            Command::VirtualClusterName => text(info.virtual_cluster.as_deref()?, out)?,
            Command::Hostname => text(hostname(), out)?,
            Command::ConnectionId => number(info.connection_id, out),
            Command::AccessLogType => text(self.kind().name(), out)?,
            Command::StreamId => out.extend_from_slice(&self.stream_id()?),
            Command::LocalReplyBody => out.extend_from_slice(self.reply_body),
            // As in Envoy a dash stands for it everywhere, in JSON too.
            Command::Environment(name) => text(&std::env::var(name).unwrap_or_else(|_| "-".to_owned()), out)?,
            Command::Metadata { of, namespace, path } => {
                noted::metadata(*of, namespace, path, self, out)?;
            }
            Command::FilterState { name, form } => noted::state(name, form, info, out)?,
            Command::SharedState { name, form } => noted::shared_state(name, form, info, out)?,
            Command::Scheme => {
                let scheme = self.request.scheme().map_or("http", |scheme| scheme.as_str());
                out.extend_from_slice(scheme.as_bytes());
            }
        }
        Some(())
    }

    /// Appends the first value that is there; answers whose it is.
    fn first<'p>(&self, pieces: &'p [Piece], out: &mut Vec<u8>) -> Option<&'p Piece> {
        let start = out.len();
        let found = pieces.iter().find(|piece| {
            out.truncate(start);
            matches!(piece, Piece::Command { command, .. } if self.command(command, out).is_some())
        })?;
        if let Piece::Command { max_length: Some(max_length), .. } = found {
            out.truncate(out.len().min(start + max_length));
        }
        Some(found)
    }

    /// A connection that is carried without being read has no heads. What is not counted is absent.
    pub(crate) fn wire_bytes(&self, wanted: WireBytes) -> Option<u64> {
        let info = self.info;
        if !self.http {
            // Of one that carries requests they are those of the requests, as in Envoy.
            let is_read = matches!(info.logged, Logged::OfListener(protocol) if !protocol.is_empty());
            let reached = wanted.side == Side::Downstream || info.upstream_connection_id != 0;
            let counts = !is_read && reached && wanted.part == WirePart::All;
            return Some(match (wanted.side, wanted.way) {
                _ if !counts => 0,
                (Side::Downstream, Way::Received) | (Side::Upstream, Way::Sent) => info.bytes_received,
                (Side::Downstream, Way::Sent) | (Side::Upstream, Way::Received) => info.bytes_sent,
            });
        }
        let meters = info.meters.as_ref()?;
        let meter = match wanted.side {
            Side::Downstream => meters.downstream,
            Side::Upstream => meters.upstream,
        };
        let bytes = match wanted.way {
            Way::Received => meter.received,
            Way::Sent => meter.sent,
        };
        Some(match wanted.part {
            WirePart::All => bytes.wire,
            WirePart::Head => bytes.head,
            WirePart::PlainHead => bytes.plain_head,
        })
    }

    /// Negative for a request, whose connection had its handshake before; so in Envoy.
    fn handshake(&self, out: &mut Vec<u8>) -> Option<()> {
        let agreed = self.info.tls.as_ref()?.agreed?;
        let began = self.info.started;
        let apart = agreed.saturating_duration_since(began) + began.saturating_duration_since(agreed);
        let millis = u64::try_from(apart.as_millis()).unwrap_or(u64::MAX);
        if agreed < began && millis > 0 {
            out.push(b'-');
        }
        number(millis, out);
        Some(())
    }

    /// When the answer had been sent; `None` when it broke off.
    fn sent_whole(&self) -> Option<Moment> {
        let broke_off = self.http && self.info.response_began.is_some() && self.info.response_received.is_none();
        self.info.ended.filter(|_| !broke_off)
    }

    fn moment(&self, which: StreamMoment) -> Option<Moment> {
        match which {
            StreamMoment::Began => Some(self.info.started),
            StreamMoment::RequestReceived => self.info.request_received,
            StreamMoment::ConnectBegan => self.info.upstream_connect.began,
            StreamMoment::Connected => self.info.upstream_connect.connected,
            StreamMoment::Secured => self.info.upstream_connect.secured,
            StreamMoment::RequestSendBegan => self.info.request_send_began,
            StreamMoment::RequestSent => self.info.request_sent,
            StreamMoment::ResponseBegan => self.info.response_began,
            StreamMoment::ResponseBodyBegan => self.info.response_body_began.or_else(|| {
                // It came with the head, if nothing came later.
                let info = self.info;
                let began = info.response_began.filter(|_| info.bytes_sent > 0 && info.ended.is_some())?;
                (info.response_received == Some(began)).then_some(began)
            }),
            StreamMoment::ResponseReceived => self.info.response_received,
            StreamMoment::ResponseSendBegan => self.info.response_send_began,
            // A connection without requests has no answer that could end.
            StreamMoment::Ended => self.sent_whole().filter(|_| self.http && !self.info.logged.is_try()),
        }
    }

    /// What tells this from all others: of a request its `x-request-id`, of a connection an identifier of its own, which is
    /// the same in every record of it.
    pub(crate) fn stream_id(&self) -> Option<Cow<'_, [u8]>> {
        let info = self.info;
        // Only one that goes on to an upstream as it is has an identifier; a connection of HTTP has many.
        let is_of_many = matches!(info.logged, Logged::OfListener(_)) && info.upstream_cluster.is_none();
        if info.logged.is_try() || is_of_many || info.turned_away {
            return None;
        }
        match self.request.fields.get(HeaderId::XRequestId) {
            Some(id) => Some(Cow::Borrowed(id)),
            None if self.http => None,
            None => Some(Cow::Owned(uuid_of_connection(info.connection_id).to_vec())),
        }
    }

    /// What kind of entry a log makes of this.
    pub(crate) fn kind(&self) -> EntryMoment {
        match (self.info.logged, self.http) {
            (Logged::OfListener(_), _) => EntryMoment::NotSet,
            (Logged::End, true) => EntryMoment::DownstreamEnd,
            (Logged::End, false) => EntryMoment::TcpConnectionEnd,
            (Logged::Start, true) => EntryMoment::DownstreamStart,
            (Logged::Start, false) => EntryMoment::TcpConnectionStart,
            (Logged::Periodic, true) => EntryMoment::DownstreamPeriodic,
            (Logged::Periodic, false) => EntryMoment::TcpPeriodic,
            (Logged::Connected, true) => EntryMoment::DownstreamTunnelEstablished,
            (Logged::Connected, false) => EntryMoment::TcpUpstreamConnected,
            (Logged::TryReady, _) => EntryMoment::UpstreamPoolReady,
            (Logged::TryPeriodic, _) => EntryMoment::UpstreamPeriodic,
            (Logged::TryEnd, _) => EntryMoment::UpstreamEnd,
        }
    }

    /// What the trailers say, else the head, else what the HTTP status stands for.
    pub(crate) fn answered_grpc(&self) -> Option<Status> {
        let said = Status::of(self.trailers).or_else(|| Status::of(&self.response.fields));
        said.or_else(|| (self.info.status != 0).then(|| Status::Code(Code::from_http(self.info.status))))
    }

    fn grpc_status(&self, form: GrpcStatusForm, out: &mut Vec<u8>) -> Option<()> {
        if !grpc::has_content_type(&self.request.fields) {
            return None;
        }
        match (self.answered_grpc()?, form) {
            (Status::Code(code), GrpcStatusForm::Camel) => text(code.camel(), out)?,
            (Status::Code(code), GrpcStatusForm::Snake) => text(code.snake(), out)?,
            (Status::Code(code), GrpcStatusForm::Number) => number(u64::from(code.number()), out),
            (Status::Other(other), _) => number(u64::from(other), out),
            (Status::Invalid, _) => out.extend_from_slice(b"-1"),
        }
        Some(())
    }

    fn request_field(&self, field: &RequestField) -> Option<&[u8]> {
        let value = match field {
            RequestField::Method | RequestField::Scheme if !self.http => return None,
            RequestField::Method => self.request.method_bytes(),
            RequestField::Path => self.request.path(),
            RequestField::Authority => self.request.authority(),
            RequestField::Scheme => self.request.scheme().map_or("http", |scheme| scheme.as_str()).as_bytes(),
            RequestField::Named(name) => return self.request.fields.get_name(name.as_bytes()),
        };
        Some(value).filter(|value| !value.is_empty())
    }

    /// A name of the request's host; none where it is empty.
    fn host(&self, which: PathOf) -> Option<&[u8]> {
        let original = self.request.fields.get_name(b"x-envoy-original-host");
        let name = match which {
            PathOf::Original => original?,
            PathOf::Current => self.request.authority(),
            PathOf::OriginalOrCurrent => original.unwrap_or(self.request.authority()),
        };
        Some(name).filter(|name| self.http && !name.is_empty())
    }

    fn response_header(&self, name: &str, out: &mut Vec<u8>) -> Option<()> {
        if name == ":status" {
            return (self.http && self.info.status > 0).then(|| number(u64::from(self.info.status), out));
        }
        out.extend_from_slice(self.response.fields.get_name(name.as_bytes())?);
        Some(())
    }

    /// A dash says that there are none, also where other absent values are left out.
    fn flags(&self, pick: impl Fn((&'static str, &'static str)) -> &'static str, out: &mut Vec<u8>) {
        if self.info.flags.is_empty() {
            out.push(b'-');
            return;
        }
        for (index, name) in self.info.flags.names(self.http).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(pick(name).as_bytes());
        }
    }
}
