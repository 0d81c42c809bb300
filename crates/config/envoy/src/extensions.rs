//! What Envoy 1.40 has by name, and what of it exists here: extensions by type, commands of formats by name.
//!
//! What it is for: telling "known to Envoy, not supported" from "unknown", and what a build can do. Filters are not
//! listed: the binary's registry knows them. What it must never do: make something work; lowering does, and a test holds
//! this list against it. Who calls it: the formats' lowering and the `version` and `doctor` commands.

/// Types that lowering itself understands, beside the filters of the registry.
pub const SUPPORTED: &[&str] = &[
    "envoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelector",
    "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
    "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
    "envoy.extensions.access_loggers.stream.v3.StderrAccessLog",
    "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
    "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
    "envoy.extensions.clusters.dns.v3.DnsCluster",
    "envoy.extensions.formatter.cel.v3.Cel",
    "envoy.extensions.formatter.file_content.v3.FileContent",
    "envoy.extensions.formatter.generic_secret.v3.GenericSecret",
    "envoy.extensions.formatter.metadata.v3.Metadata",
    "envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
    "envoy.extensions.clusters.original_dst.v3.OriginalDstCluster",
    "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
    "envoy.extensions.filters.listener.original_src.v3.OriginalSrc",
    "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
    "envoy.extensions.filters.network.direct_response.v3.Config",
    "envoy.extensions.filters.network.echo.v3.Echo",
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
    "envoy.extensions.load_balancing_policies.maglev.v3.Maglev",
    "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
    "envoy.extensions.load_balancing_policies.random.v3.Random",
    "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash",
    "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
    "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
    "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
    "envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig",
    "envoy.extensions.network.dns_resolver.hickory.v3.HickoryDnsResolverConfig",
    "envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier",
    "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    "envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    "postrider.filters.network.shadow.v3.Shadow",
    "envoy.config.trace.v3.OpenTelemetryConfig",
    "envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig",
    "envoy.extensions.tracers.opentelemetry.samplers.v3.CELSamplerConfig",
    "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig",
    "envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig",
];

/// What is known about an extension, by the full name of its configuration's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Works here.
    Supported,
    /// Envoy, or one of its usual companions, has it.
    Known,
    Unknown,
}

/// The standing of a type. `filters` is what the binary's registry knows.
pub fn standing(type_name: &str, filters: &dyn crate::lower::FilterKinds) -> Standing {
    if SUPPORTED.contains(&type_name) || filters.known(type_name) {
        Standing::Supported
    } else if postrider_envoy_proto::known_type(type_name) {
        Standing::Known
    } else {
        Standing::Unknown
    }
}

/// An extension as Envoy lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub category: &'static str,
    pub name: &'static str,
    /// The full name of its configuration's type.
    pub type_name: &'static str,
}

/// What Envoy 1.40 lists of itself, a line for each type: category, name, type.
const LISTED: &str = include_str!("extensions-1.40.txt");

/// Of what Envoy lists, what works here, in the order of its categories.
pub fn offered(filters: &dyn crate::lower::FilterKinds) -> impl Iterator<Item = Listed> {
    listed().filter(|listed| standing(listed.type_name, filters) == Standing::Supported)
}

pub(crate) fn listed() -> impl Iterator<Item = Listed> {
    LISTED.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some(Listed { category: words.next()?, name: words.next()?, type_name: words.next()? })
    })
}

/// The command of Envoy that `text` starts with (`%NAME%`, `%NAME(…)%`), when our formats do not have it.
pub(crate) fn known_command(text: &str) -> Option<&'static str> {
    let name = text.strip_prefix('%')?;
    let end = name.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(name.len());
    let (name, argument) = name.split_at(end);
    let kind = argument.strip_prefix('(').and_then(|argument| argument.split([':', ')']).next()).unwrap_or_default();
    let is_meant = |known: &str| match known.strip_suffix(')').and_then(|known| known.split_once('(')) {
        Some((known, known_kind)) => known == name && known_kind == kind,
        None => known == name,
    };
    COMMANDS.iter().find(|known| is_meant(known)).copied()
}

/// Commands of Envoy 1.40, its formatter extensions included, that our formats do not have; `NAME(FIRST)` where they lack
/// only those whose argument begins so.
const COMMANDS: &[&str] = &["DOWNSTREAM_TLS_SESSION_ID", "UPSTREAM_TLS_SESSION_ID"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_listed_command_is_one_of_ours() {
        for name in COMMANDS {
            for text in [format!("%{name}%"), format!("%{name}(a)%"), format!("%{}:a)%", name.trim_end_matches(')'))] {
                assert!(postrider_model::Format::parse(&text).is_err(), "{text}");
            }
            assert_eq!(known_command(&format!("%{name}%")), Some(*name));
        }
    }

    #[test]
    fn every_supported_type_is_one_of_the_schema() {
        for name in SUPPORTED {
            assert!(postrider_envoy_proto::known_type(name), "{name}");
        }
    }

    #[test]
    fn a_type_is_supported_known_or_unknown() {
        let filters = |kind: &str| kind == "envoy.extensions.filters.http.basic_auth.v3.BasicAuth";
        let of = |name: &str| standing(name, &filters);
        assert_eq!(of("envoy.extensions.filters.http.router.v3.Router"), Standing::Supported);
        assert_eq!(of("envoy.extensions.filters.http.basic_auth.v3.BasicAuth"), Standing::Supported);
        assert_eq!(of("envoy.extensions.filters.http.lua.v3.Lua"), Standing::Known);
        assert_eq!(of("envoy.extensions.filters.http.golang.v3alpha.Config"), Standing::Known);
        assert_eq!(of("acme.Filter"), Standing::Unknown);
    }

    #[test]
    fn what_envoy_lists_is_offered_where_it_works() {
        assert!(
            listed().count() > 300
                && listed().all(|listed| standing(listed.type_name, &|_: &str| false) != Standing::Unknown)
        );
        let offered: Vec<Listed> = offered(&|kind: &str| kind.ends_with(".BasicAuth")).collect();
        let has = |category: &str, name: &str| offered.iter().any(|it| (it.category, it.name) == (category, name));
        assert!(has("envoy.filters.http", "envoy.filters.http.basic_auth"));
        assert!(has("envoy.filters.network", "envoy.filters.network.http_connection_manager"));
        assert!(!has("envoy.filters.network", "envoy.filters.network.mongo_proxy"));
    }

    #[test]
    fn a_command_of_envoy_is_not_called_unknown() {
        assert_eq!(known_command("%METADATA(LISTENER:a:b)%"), None, "ours has it");
        assert_eq!(known_command("%UPSTREAM_TLS_SESSION_ID%"), Some("UPSTREAM_TLS_SESSION_ID"));
        assert_eq!(known_command("%PROTOCL%"), None);
        assert_eq!(known_command("%RESPONSE_TX_DURATION%"), None, "ours has it");
    }
}
