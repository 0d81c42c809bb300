//! Facts about a request that a processor may ask for by name.

use std::net::SocketAddr;
use std::sync::LazyLock;

use postrider_filter_api::Stream;
use postrider_grpc::process::NAMESPACE;
use postrider_grpc::{Struct, value::Kind, value_of};
use postrider_http::HeaderId;
use postrider_model::{CertificatePart, Format};

/// A fact by its name.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) name: &'static str,
    /// `None` where there is nothing to tell.
    value: fn(&Stream<'_>) -> Option<Kind>,
}

/// `None` when there is no such attribute.
pub(super) fn find(name: &str) -> Option<&'static Attribute> {
    ALL.iter().find(|attribute| attribute.name == name)
}

/// What a processor is told; `None` when it asked for nothing.
pub(super) fn told(wanted: &[&'static Attribute], stream: &Stream<'_>) -> Option<(String, Struct)> {
    if wanted.is_empty() {
        return None;
    }
    let fields = wanted.iter().filter_map(|one| Some((one.name.to_owned(), value_of((one.value)(stream)?))));
    Some((NAMESPACE.to_owned(), Struct { fields: fields.collect() }))
}

const fn attribute(name: &'static str, value: fn(&Stream<'_>) -> Option<Kind>) -> Attribute {
    Attribute { name, value }
}

static ALL: &[Attribute] = &[
    attribute("request.path", |s| text(s.request.path())),
    attribute("request.url_path", |s| text(s.request.path().split(|byte| *byte == b'?').next()?)),
    attribute("request.query", |s| Some(string(s.request.query().unwrap_or_default()))),
    attribute("request.host", |s| text(s.request.authority())),
    attribute("request.scheme", |s| text(s.request.scheme()?.as_str().as_bytes())),
    attribute("request.method", |s| text(s.request.method_bytes())),
    attribute("request.referer", |s| text(s.request.fields.get_name(b"referer")?)),
    attribute("request.useragent", |s| text(s.request.fields.get_name(b"user-agent")?)),
    attribute("request.id", |s| text(s.request.fields.get(HeaderId::XRequestId)?)),
    attribute("request.protocol", |s| text(s.request.version().as_str().as_bytes())),
    attribute("request.size", |s| {
        let said = s.request.fields.get(HeaderId::ContentLength).and_then(|value| std::str::from_utf8(value).ok());
        Some(number(said.and_then(|value| value.parse().ok()).unwrap_or(s.info.bytes_received)))
    }),
    attribute("request.time", |s| {
        static FORMAT: LazyLock<Format> =
            LazyLock::new(|| Format::parse("%START_TIME(%Y-%m-%dT%H:%M:%S.%6f+00:00)%").unwrap_or_default());
        let mut out = Vec::new();
        s.host.format(s, &FORMAT, &mut out);
        text(&out)
    }),
    attribute("response.code", |s| (s.info.status > 0).then(|| number(u64::from(s.response.status())))),
    attribute("response.code_details", |s| text(s.info.details.as_bytes())),
    attribute("response.size", |s| {
        let said = s.response.fields.get(HeaderId::ContentLength).and_then(|value| std::str::from_utf8(value).ok());
        Some(number(said.and_then(|value| value.parse().ok()).unwrap_or(s.info.bytes_sent)))
    }),
    attribute("source.address", |s| address(s.info.downstream_remote)),
    attribute("source.port", |s| port(s.info.downstream_remote)),
    attribute("destination.address", |s| address(s.info.downstream_local)),
    attribute("destination.port", |s| port(s.info.downstream_local)),
    attribute("connection.id", |s| Some(number(s.info.connection_id))),
    attribute("connection.mtls", |s| {
        Some(Kind::BoolValue(s.info.tls.as_deref().is_some_and(|session| session.peer.is_some())))
    }),
    attribute("connection.requested_server_name", |s| {
        Some(string(
            s.info.tls.as_deref().and_then(|session| session.server_name.as_deref()).unwrap_or_default().as_bytes(),
        ))
    }),
    attribute("connection.tls_version", |s| text(s.info.tls.as_deref()?.version.as_bytes())),
    attribute("connection.subject_peer_certificate", |s| of_peer(s, CertificatePart::Subject)),
    attribute("connection.dns_san_peer_certificate", |s| of_peer(s, CertificatePart::DnsNames)),
    attribute("connection.uri_san_peer_certificate", |s| of_peer(s, CertificatePart::UriNames)),
    attribute("upstream.address", |s| text(s.info.upstream_remote.as_deref()?.as_bytes())),
    attribute("upstream.port", |s| {
        let (_, port) = s.info.upstream_remote.as_deref()?.rsplit_once(':')?;
        Some(number(port.parse().ok()?))
    }),
    attribute("upstream.request_attempt_count", |s| Some(number(u64::from(s.info.upstream_attempts)))),
    attribute("xds.cluster_name", |s| text(s.cluster()?.as_bytes())),
    attribute("xds.route_name", |s| Some(string(s.route?.name.as_deref().unwrap_or_default().as_bytes()))),
    attribute("xds.virtual_host_name", |s| text(s.route?.virtual_host.as_bytes())),
    attribute("xds.filter_chain_name", |s| Some(string(s.info.filter_chain.as_deref().unwrap_or_default().as_bytes()))),
];

fn text(bytes: &[u8]) -> Option<Kind> {
    (!bytes.is_empty()).then(|| string(bytes))
}

fn string(bytes: &[u8]) -> Kind {
    Kind::StringValue(String::from_utf8_lossy(bytes).into_owned())
}

fn number(number: u64) -> Kind {
    Kind::NumberValue(number as f64)
}

fn address(address: Option<SocketAddr>) -> Option<Kind> {
    Some(Kind::StringValue(address?.to_string()))
}

fn port(address: Option<SocketAddr>) -> Option<Kind> {
    Some(number(u64::from(address?.port())))
}

fn of_peer(stream: &Stream<'_>, part: CertificatePart) -> Option<Kind> {
    Some(Kind::StringValue(stream.info.tls.as_deref()?.of_peer(part).into_iter().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn what_there_is_nothing_to_tell_about_is_left_out() {
        let wanted: Vec<_> =
            ["request.path", "request.url_path", "request.referer"].map(|name| find(name).unwrap()).into();
        let (namespace, told) = request("/a?b", &[]).with(|stream| told(&wanted, stream)).unwrap();
        let names: Vec<&str> = told.fields.keys().map(String::as_str).collect();
        assert_eq!(
            (namespace.as_str(), names),
            ("envoy.filters.http.ext_proc", vec!["request.path", "request.url_path"])
        );
        assert!(find("request.headers['x']").is_none());
    }
}
