//! What is known of a stream, as expressions and conditions see it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider_http::grpc::{Code, Status};
use postrider_http::{Fields, HeaderId, RequestHead, ResponseHead, Scheme};
use postrider_model::cel::Attribute;
use postrider_model::{
    CertificatePart, Direction, Expression, Input, Inputs, Locality, Metadata, MetadataMatch, Unavailable, Value,
};

use super::value::{Data, joined};
use super::{is_true, messages};
use crate::{ObjectKind, RouteFacts, RouteTarget, Stream, StreamInfo, TlsSession, field_of};

/// A stream as it is now.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// `None` for a connection, of which nothing was read.
    pub request: Option<&'a RequestHead>,
    /// `None` while there is no answer.
    pub response: Option<&'a ResponseHead>,
    /// Of the answer.
    pub trailers: Option<&'a Fields>,
    pub info: &'a StreamInfo,
    pub route: Option<&'a RouteFacts>,
    /// Which of the route's weighted clusters was drawn.
    pub weighted: Option<usize>,
    /// What the client asked for, also where TLS is passed on.
    pub server_name: Option<&'a str>,
}

/// The fields of a head as a map.
#[derive(Debug, Clone, Copy)]
pub(super) enum Headers<'a> {
    None,
    Request(&'a RequestHead),
    Response(&'a ResponseHead),
}

impl<'a> Headers<'a> {
    pub(super) fn line(&self, name: &str) -> Option<Data<'a>> {
        match self {
            Headers::None => None,
            Headers::Request(head) => request_header(head, name),
            Headers::Response(head) => match name {
                ":status" => Some(Data::Text(head.status().to_string().into())),
                name => joined(&head.fields, name),
            },
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Headers::None => 0,
            Headers::Request(head) => {
                let parts = [!head.authority().is_empty(), !head.path().is_empty(), true, true];
                head.fields.len() + parts.iter().filter(|there| **there).count()
            }
            Headers::Response(head) => head.fields.len() + 1,
        }
    }

    pub(super) fn is_same(&self, other: &Headers<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

fn request_header<'a>(head: &'a RequestHead, name: &str) -> Option<Data<'a>> {
    let part = match name {
        ":method" => head.method_bytes(),
        ":path" => head.path(),
        ":authority" | "host" | "Host" => head.authority(),
        ":scheme" => scheme(head),
        name => return joined(&head.fields, name),
    };
    (!part.is_empty()).then(|| Data::text(part))
}

fn scheme(head: &RequestHead) -> &[u8] {
    match head.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => head.fields.get(HeaderId::XForwardedProto).unwrap_or(Scheme::Http.as_str().as_bytes()),
    }
}

impl<'a> Facts<'a> {
    /// Of a stream whose answer has a head.
    pub fn of_answer(stream: &'a Stream<'_>) -> Facts<'a> {
        Facts {
            request: Some(stream.request),
            response: Some(stream.response),
            trailers: None,
            info: stream.info,
            route: stream.route,
            weighted: stream.weighted,
            server_name: stream.info.requested_server_name(),
        }
    }

    pub(super) fn attribute(&self, attribute: Attribute) -> Option<Data<'a>> {
        use Attribute::*;
        let info = self.info;
        let path = || self.request.map(RequestHead::path).filter(|path| !path.is_empty());
        let line = |id| self.request.and_then(|head| head.fields.get(id)).map(Data::text);
        Some(match attribute {
            RequestPath => Data::text(path()?),
            RequestUrlPath => Data::text(path().and(self.request)?.path_only()),
            RequestQuery => Data::text(path().and(self.request)?.query().unwrap_or_default()),
            RequestHost => request_header(self.request?, ":authority")?,
            RequestScheme => request_header(self.request?, ":scheme")?,
            RequestMethod => request_header(self.request?, ":method")?,
            RequestHeaders => Data::Headers(self.request.map_or(Headers::None, Headers::Request)),
            RequestReferer => self.request.and_then(|head| joined(&head.fields, "referer"))?,
            RequestUserAgent => line(HeaderId::UserAgent)?,
            RequestId => line(HeaderId::XRequestId)?,
            RequestProtocol => Data::Text(self.request?.version().as_str().into()),
            RequestTime => Data::Time(nanos(info.start)),
            RequestDuration => duration(info.ended?.saturating_duration_since(info.started)),
            RequestSize => {
                let declared = self.request.and_then(|head| head.fields.get(HeaderId::ContentLength));
                let declared = declared.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                Data::Int(declared.unwrap_or_else(|| signed(info.bytes_received)))
            }
            RequestHeadSize => Data::Int(signed(self.request.map(|_| info.request_head_bytes)?)),
            RequestTotalSize => Data::Int(signed(info.request_head_bytes.saturating_add(info.bytes_received))),
            ResponseCode => Data::Int((info.status != 0).then(|| i64::from(info.status))?),
            ResponseCodeDetails => some_text(&info.details)?,
            ResponseFlags => Data::Int(i64::from(info.flags.bits())),
            ResponseGrpcStatus => Data::Int(self.grpc_status()?),
            ResponseHeaders => Data::Headers(self.response.map_or(Headers::None, Headers::Response)),
            ResponseTrailers => Data::Trailers(self.trailers),
            ResponseSize => Data::Int(signed(info.bytes_sent)),
            ResponseHeadSize => Data::Int(signed(self.request.map(|_| self.response_head_bytes())?)),
            ResponseTotalSize => Data::Int(signed(self.response_head_bytes().saturating_add(info.bytes_sent))),
            ResponseBackendLatency => duration(info.upstream_latency()?),
            SourceAddress => address(info.downstream_remote)?,
            SourcePort => port(info.downstream_remote)?,
            DestinationAddress => address(info.downstream_local)?,
            DestinationPort => port(info.downstream_local)?,
            ConnectionId => Data::Uint(info.connection_id),
            ConnectionMtls => Data::Bool(info.tls.as_ref().is_some_and(|tls| tls.peer.is_some())),
            ConnectionServerName => Data::Text(self.server_name.unwrap_or_default().into()),
            ConnectionTlsVersion => Data::Text(info.tls.as_ref()?.version.into()),
            ConnectionLocalSubject => of_us(info.tls.as_deref(), CertificatePart::Subject)?,
            ConnectionPeerSubject => of_peer(info.tls.as_deref(), CertificatePart::Subject)?,
            ConnectionLocalDns => of_us(info.tls.as_deref(), CertificatePart::DnsNames)?,
            ConnectionPeerDns => of_peer(info.tls.as_deref(), CertificatePart::DnsNames)?,
            ConnectionLocalUri => of_us(info.tls.as_deref(), CertificatePart::UriNames)?,
            ConnectionPeerUri => of_peer(info.tls.as_deref(), CertificatePart::UriNames)?,
            ConnectionPeerDigest => of_peer(info.tls.as_deref(), CertificatePart::Sha256)?,
            ConnectionPeerCertificate => of_peer(info.tls.as_deref(), CertificatePart::Pem)?,
            ConnectionFailure => some_text(info.downstream_failure.as_deref()?)?,
            ConnectionTermination => some_text(&info.termination_details)?,
            UpstreamAddress => Data::Text(info.upstream_remote.as_deref()?.into()),
            UpstreamPort => Data::Int(info.upstream_remote.as_deref()?.rsplit_once(':')?.1.parse().ok()?),
            UpstreamLocalAddress => address(info.upstream_local)?,
            UpstreamTlsVersion => Data::Text(info.upstream_tls.as_ref()?.version.into()),
            UpstreamLocalSubject => of_us(info.upstream_tls.as_deref(), CertificatePart::Subject)?,
            UpstreamPeerSubject => of_peer(info.upstream_tls.as_deref(), CertificatePart::Subject)?,
            UpstreamLocalDns => of_us(info.upstream_tls.as_deref(), CertificatePart::DnsNames)?,
            UpstreamPeerDns => of_peer(info.upstream_tls.as_deref(), CertificatePart::DnsNames)?,
            UpstreamLocalUri => of_us(info.upstream_tls.as_deref(), CertificatePart::UriNames)?,
            UpstreamPeerUri => of_peer(info.upstream_tls.as_deref(), CertificatePart::UriNames)?,
            UpstreamPeerDigest => of_peer(info.upstream_tls.as_deref(), CertificatePart::Sha256)?,
            UpstreamPeerCertificate => of_peer(info.upstream_tls.as_deref(), CertificatePart::Pem)?,
            UpstreamFailure => {
                let reached = info.upstream_remote.is_some() || info.upstream_failure.is_some();
                Data::Text(reached.then(|| info.upstream_failure.as_deref().unwrap_or_default())?.into())
            }
            // Of a request they are counted from the beginning, of a connection from the first on.
            UpstreamAttempts => {
                let is_counted = self.request.is_some() || info.upstream_attempts != 0;
                Data::Uint(is_counted.then(|| u64::from(info.upstream_attempts))?)
            }
            UpstreamWait => duration(info.upstream_wait?),
            Attribute::Metadata => Data::Metadata(&info.metadata),
            FilterState => Data::FilterState,
            UpstreamFilterState => self.shared_states()?,
            ClusterName => match self.cluster()? {
                Cow::Borrowed(name) => some_text(name)?,
                Cow::Owned(name) => Data::Text(name.into()),
            },
            RouteName => Data::Text(self.route?.name.as_deref().unwrap_or_default().into()),
            VirtualHostName => Data::Text((&*self.route?.virtual_host).into()),
            FilterChainName => Data::Text(info.filter_chain.as_deref().unwrap_or_default().into()),
            RouteMetadata => Data::Metadata(self.route.map_or(&NO_METADATA, |route| &*route.metadata)),
            VirtualHostMetadata => {
                Data::Metadata(self.route.map_or(&NO_METADATA, |route| &*route.virtual_host_metadata))
            }
            WholeMetadata => messages::metadata(&info.metadata),
            WholeRouteMetadata => messages::metadata(&self.route?.metadata),
            WholeVirtualHostMetadata => messages::metadata(&self.route?.virtual_host_metadata),
            WholeClusterMetadata
            | WholeUpstreamHostMetadata
            | WholeLocalityMetadata
            | WholeListenerMetadata
            | Node
            | UpstreamEndpoints
            | UpstreamRegion
            | UpstreamZone
            | UpstreamSubZone
            | ClusterMetadata
            | UpstreamHostMetadata
            | LocalityMetadata
            | ListenerMetadata
            | ListenerDirection
            | NodeId
            | NodeCluster
            | NodeMetadata
            | NodeRegion
            | NodeZone
            | NodeSubZone
            | UpstreamLocality
            | NodeLocality => self.around(attribute)?,
        })
    }

    /// Whether it is there to be read; `None` where the message that it is a field of is not there itself.
    pub(super) fn has(&self, attribute: Attribute) -> Option<bool> {
        use Attribute::*;
        let found = self.attribute(attribute);
        let of_message = matches!(
            attribute,
            ClusterMetadata | UpstreamHostMetadata | LocalityMetadata | ListenerMetadata | NodeLocality
        );
        if !of_message && !attribute.is_text_of_message() {
            return Some(found.is_some());
        }
        // An empty field is none.
        Some(match found? {
            Data::Text(text) => !text.is_empty(),
            Data::Map(entries) => !entries.is_empty(),
            Data::Message(_, text) => !text.is_empty(),
            _ => true,
        })
    }

    /// What only the surroundings know.
    #[cold]
    #[inline(never)]
    fn around(&self, attribute: Attribute) -> Option<Data<'a>> {
        use Attribute::*;
        let around = self.info.surroundings.as_deref()?;
        let text = |text: &str| Some(Data::Text(Cow::Owned(text.to_owned())));
        let place = || self.upstream_place();
        match attribute {
            Node => Some(messages::node(&around.node())),
            WholeClusterMetadata => self.message_around(ClusterMetadata),
            WholeUpstreamHostMetadata => self.message_around(UpstreamHostMetadata),
            WholeLocalityMetadata => self.message_around(LocalityMetadata),
            WholeListenerMetadata => self.message_around(ListenerMetadata),
            NodeId => text(&around.node().id),
            NodeCluster => text(&around.node().cluster),
            NodeMetadata => match &around.node().metadata {
                metadata @ Value::Map(_) => Some(Data::held(metadata)),
                _ => None,
            },
            NodeRegion => text(&around.node().region),
            NodeZone => text(&around.node().zone),
            NodeSubZone => text(&around.node().sub_zone),
            ListenerDirection => Some(Data::Int(match around.direction() {
                Direction::Unspecified => 0,
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            })),
            NodeLocality => {
                let node = around.node();
                Some(messages::locality([&node.region, &node.zone, &node.sub_zone]))
            }
            UpstreamLocality => {
                let place = place()?;
                Some(messages::locality([&place.region, &place.zone, &place.sub_zone]))
            }
            UpstreamRegion => text(&place()?.region),
            UpstreamZone => text(&place()?.zone),
            UpstreamSubZone => text(&place()?.sub_zone),
            UpstreamEndpoints => Some(Data::Uint(around.cluster(&self.cluster()?)?.endpoints as u64)),
            _ => Some(Data::map(self.metadata_around(attribute)?.iter())),
        }
    }

    /// Where the host is that the request went to, as far as the configuration says.
    pub fn upstream_place(&self) -> Option<Locality> {
        let info = self.info;
        let around = info.surroundings.as_deref()?;
        let host = around.endpoint(info.upstream_cluster.as_deref()?, info.upstream_remote.as_deref()?)?;
        Some(host.place.as_deref().cloned().unwrap_or_default())
    }

    /// The cluster that the request went to; before that the one that its route leads to, or that was drawn of several, if
    /// there is such a one.
    fn cluster(&self) -> Option<Cow<'a, str>> {
        if let Some(name) = self.info.upstream_cluster.as_deref() {
            return Some(Cow::Borrowed(name));
        }
        let name = match &self.route?.target {
            RouteTarget::Cluster(name) => Cow::Borrowed(&**name),
            RouteTarget::Header(name) => String::from_utf8_lossy(self.request?.fields.get_name(name.as_bytes())?),
            RouteTarget::Weighted(names) => Cow::Borrowed(&**names.get(self.weighted?)?),
            RouteTarget::Unknown => return None,
        };
        self.info.surroundings.as_deref()?.cluster(&name).map(|_| name)
    }

    /// How long the head of the answer is; where it was not sent yet, as if it were sent as it is.
    fn response_head_bytes(&self) -> u64 {
        let Some(head) = self.response.filter(|_| self.info.response_head_bytes == 0) else {
            return self.info.response_head_bytes;
        };
        const STATUS: usize = ":status".len() + 3;
        head.fields.iter().map(|line| line.name.len() + line.value.len()).sum::<usize>().saturating_add(STATUS) as u64
    }

    fn message_around(&self, attribute: Attribute) -> Option<Data<'a>> {
        Some(messages::metadata(&*self.metadata_around(attribute)?))
    }

    /// Metadata that the configuration gives to what is around; empty where it gives none.
    pub(super) fn metadata_around(&self, attribute: Attribute) -> Option<Arc<Metadata>> {
        let info = self.info;
        let around = info.surroundings.as_deref()?;
        let cluster = || info.upstream_cluster.as_deref();
        let found = match attribute {
            Attribute::ListenerMetadata => around.listener_metadata(),
            Attribute::ClusterMetadata => around.cluster(&self.cluster()?)?.metadata,
            Attribute::UpstreamHostMetadata => {
                around.endpoint(cluster()?, info.upstream_remote.as_deref()?)?.metadata.clone()
            }
            Attribute::LocalityMetadata => {
                let host = around.endpoint(cluster()?, info.upstream_remote.as_deref()?)?;
                host.place.as_ref().and_then(|place| place.metadata.clone())
            }
            _ => return None,
        };
        Some(found.unwrap_or_default())
    }

    /// An object of the filter state, as the bytes that it is written as.
    pub(super) fn state(&self, key: &str) -> Option<Data<'a>> {
        match self.info.filter_state.iter().find(|(known, _)| known == key).map(|(_, value)| value)? {
            Value::String(text) => Some(match fields(key, text) {
                Some(fields) => Data::Map(fields),
                None => Data::Bytes(Cow::Borrowed(text.as_bytes())),
            }),
            Value::Bool(on) => Some(Data::Bytes(on.to_string().into_bytes().into())),
            Value::Number(number) => Some(Data::Bytes(number.to_string().into_bytes().into())),
            other => Some(Data::of(other)),
        }
    }

    pub(super) fn states(&self) -> usize {
        self.info.filter_state.len()
    }

    /// Those that the connection to the upstream knows of; `None` while there is no connection.
    fn shared_states(&self) -> Option<Data<'a>> {
        let info = self.info;
        if info.upstream_connection_id == 0 {
            return None;
        }
        let names = info.upstream_objects.iter().flat_map(|objects| &objects.shared);
        let states = names.filter_map(|name| Some((Data::Text(Cow::Borrowed(name)), self.state(name)?)));
        Some(Data::Map(states.collect()))
    }

    fn grpc_status(&self) -> Option<i64> {
        let fields = self.response.map(|response| &response.fields);
        let said = self.trailers.and_then(Status::of).or_else(|| fields.and_then(Status::of));
        let status = self.info.status;
        match said.or_else(|| (status != 0).then(|| Status::Code(Code::from_http(status))))? {
            Status::Code(code) => Some(i64::from(code.number())),
            Status::Other(number) => Some(i64::from(number)),
            Status::Invalid => Some(-1),
        }
    }
}

/// The fields of an object that has some.
fn fields<'a>(name: &str, text: &str) -> Option<Rc<[(Data<'a>, Data<'a>)]>> {
    // Most objects have none, and no name that is known.
    ObjectKind::of_known(name)?;
    let text = Value::String(text.to_owned());
    let fields = ["ip", "port"].into_iter().filter_map(|field| {
        let value = match field_of(name, &text, field)? {
            Value::Number(number) => Data::Int(number as i64),
            other => Data::held(&other),
        };
        Some((Data::Text(Cow::Borrowed(field)), value))
    });
    let fields: Rc<[_]> = fields.collect();
    (!fields.is_empty()).then_some(fields)
}

static NO_METADATA: Metadata = Metadata::NONE;

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn duration<'a>(time: Duration) -> Data<'a> {
    Data::Duration(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX))
}

pub(super) fn nanos(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
    }
}

fn some_text(text: &str) -> Option<Data<'_>> {
    (!text.is_empty()).then_some(Data::Text(Cow::Borrowed(text)))
}

fn address<'a>(address: Option<SocketAddr>) -> Option<Data<'a>> {
    Some(Data::Text(address?.to_string().into()))
}

fn port<'a>(address: Option<SocketAddr>) -> Option<Data<'a>> {
    Some(Data::Int(i64::from(address?.port())))
}

/// The first value of a part of a certificate.
fn of_peer<'a>(tls: Option<&TlsSession>, part: CertificatePart) -> Option<Data<'a>> {
    tls?.of_peer(part).into_iter().next().filter(|text| !text.is_empty()).map(|text| Data::Text(text.into()))
}

fn of_us<'a>(tls: Option<&TlsSession>, part: CertificatePart) -> Option<Data<'a>> {
    tls?.of_us(part).into_iter().next().filter(|text| !text.is_empty()).map(|text| Data::Text(text.into()))
}

impl Inputs for Facts<'_> {
    fn value<'v>(&'v self, input: &'v Input) -> Result<Option<Cow<'v, str>>, Unavailable> {
        match input {
            Input::Certificate(_) if self.info.tls.is_none() => Err(Unavailable),
            _ => Ok(self.known(input)),
        }
    }

    fn holds(&self, expression: &Expression) -> bool {
        is_true(expression, self)
    }

    fn notes(&self, condition: &MetadataMatch) -> bool {
        condition.matches(&self.info.metadata)
    }
}

impl Facts<'_> {
    fn known<'v>(&'v self, input: &'v Input) -> Option<Cow<'v, str>> {
        let info = self.info;
        let ip = |address: Option<SocketAddr>| Some(Cow::Owned(address?.ip().to_string()));
        let port = |address: Option<SocketAddr>| Some(Cow::Owned(address?.port().to_string()));
        let source = if self.request.is_some() { info.downstream_remote } else { info.downstream_connection_remote };
        match input {
            Input::RequestHeader(name) => match request_header(self.request?, name)? {
                Data::Text(text) => Some(text),
                _ => None,
            },
            Input::QueryParameter(name) => parameter(self.request?, name),
            Input::ResponseHeader(name) => match joined(&self.response?.fields, name)? {
                Data::Text(text) => Some(text),
                _ => None,
            },
            Input::ResponseStatus => Some(Cow::Owned(self.response?.status().to_string())),
            Input::ResponseStatusClass => status_class(self.response?.status()).map(Cow::Borrowed),
            Input::LocalReply => Some(Cow::Borrowed(if info.is_local_reply() { "true" } else { "false" })),
            Input::DestinationIp => ip(info.downstream_local),
            Input::DestinationPort => port(info.downstream_local),
            Input::SourceIp => ip(source),
            Input::SourcePort => port(source),
            Input::DirectSourceIp => ip(info.downstream_direct_remote),
            Input::SourceType => {
                let (local, remote) = (info.downstream_local?, source?);
                let is_local = remote.ip().is_loopback() || remote.ip() == local.ip();
                is_local.then_some(Cow::Borrowed("local"))
            }
            Input::ServerName => self.server_name.filter(|name| !name.is_empty()).map(Cow::Borrowed),
            Input::TransportProtocol => Some(Cow::Borrowed(if info.tls.is_some() { "tls" } else { "raw_buffer" })),
            Input::ApplicationProtocol => info.tls.as_ref()?.protocol.as_deref().map(Cow::Borrowed),
            Input::Certificate(part) => {
                let names = info.tls.as_ref()?.of_peer(*part);
                (!names.is_empty()).then(|| Cow::Owned(names.join(",")))
            }
            Input::FilterState(key) => {
                match info.filter_state.iter().find(|(known, _)| known == key).map(|(_, value)| value)? {
                    Value::String(text) => Some(Cow::Borrowed(text)),
                    _ => None,
                }
            }
            Input::Fixed(text) => text.as_deref().map(Cow::Borrowed),
            // These are not values to compare: see the other functions.
            Input::Metadata { .. } | Input::Attributes => None,
        }
    }
}

fn status_class(status: u16) -> Option<&'static str> {
    Some(match status {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500..600 => "5xx",
        _ => return None,
    })
}

/// The first parameter of that name, as it was sent.
fn parameter<'h>(head: &'h RequestHead, name: &str) -> Option<Cow<'h, str>> {
    head.query()?.split(|byte| *byte == b'&').find_map(|parameter| match parameter.strip_prefix(name.as_bytes())? {
        [] => Some(Cow::Borrowed("")),
        [b'=', value @ ..] => Some(String::from_utf8_lossy(value)),
        _ => None,
    })
}
