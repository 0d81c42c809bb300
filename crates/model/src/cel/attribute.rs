//! What expressions may look at, by Envoy's names.

macro_rules! attributes {
    ($($name:ident = $text:literal;)*) => {
        /// Something that is known of a request, its answer or its connections; or not, or not yet.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Attribute { $(#[doc = $text] $name,)* }

        const KNOWN: &[(&str, Attribute)] = &[$(($text, Attribute::$name)),*];
    };
}

attributes! {
    RequestPath = "request.path";
    RequestUrlPath = "request.url_path";
    RequestHost = "request.host";
    RequestScheme = "request.scheme";
    RequestMethod = "request.method";
    RequestHeaders = "request.headers";
    RequestHeadSize = "request.headers_bytes";
    RequestReferer = "request.referer";
    RequestUserAgent = "request.useragent";
    RequestTime = "request.time";
    RequestId = "request.id";
    RequestProtocol = "request.protocol";
    RequestQuery = "request.query";
    RequestDuration = "request.duration";
    RequestSize = "request.size";
    RequestTotalSize = "request.total_size";
    ResponseCode = "response.code";
    ResponseCodeDetails = "response.code_details";
    ResponseFlags = "response.flags";
    ResponseGrpcStatus = "response.grpc_status";
    ResponseHeaders = "response.headers";
    ResponseHeadSize = "response.headers_bytes";
    ResponseTrailers = "response.trailers";
    ResponseSize = "response.size";
    ResponseTotalSize = "response.total_size";
    ResponseBackendLatency = "response.backend_latency";
    SourceAddress = "source.address";
    SourcePort = "source.port";
    DestinationAddress = "destination.address";
    DestinationPort = "destination.port";
    ConnectionId = "connection.id";
    ConnectionMtls = "connection.mtls";
    ConnectionServerName = "connection.requested_server_name";
    ConnectionTlsVersion = "connection.tls_version";
    ConnectionLocalSubject = "connection.subject_local_certificate";
    ConnectionPeerSubject = "connection.subject_peer_certificate";
    ConnectionLocalDns = "connection.dns_san_local_certificate";
    ConnectionPeerDns = "connection.dns_san_peer_certificate";
    ConnectionLocalUri = "connection.uri_san_local_certificate";
    ConnectionPeerUri = "connection.uri_san_peer_certificate";
    ConnectionPeerDigest = "connection.sha256_peer_certificate_digest";
    ConnectionPeerCertificate = "connection.peer_certificate";
    ConnectionFailure = "connection.transport_failure_reason";
    ConnectionTermination = "connection.termination_details";
    UpstreamAddress = "upstream.address";
    UpstreamPort = "upstream.port";
    UpstreamLocalAddress = "upstream.local_address";
    UpstreamTlsVersion = "upstream.tls_version";
    UpstreamLocalSubject = "upstream.subject_local_certificate";
    UpstreamPeerSubject = "upstream.subject_peer_certificate";
    UpstreamLocalDns = "upstream.dns_san_local_certificate";
    UpstreamPeerDns = "upstream.dns_san_peer_certificate";
    UpstreamLocalUri = "upstream.uri_san_local_certificate";
    UpstreamPeerUri = "upstream.uri_san_peer_certificate";
    UpstreamPeerDigest = "upstream.sha256_peer_certificate_digest";
    UpstreamPeerCertificate = "upstream.peer_certificate";
    UpstreamFailure = "upstream.transport_failure_reason";
    UpstreamAttempts = "upstream.request_attempt_count";
    UpstreamWait = "upstream.cx_pool_ready_duration";
    UpstreamEndpoints = "upstream.num_endpoints";
    UpstreamLocality = "upstream.locality";
    UpstreamRegion = "upstream.locality.region";
    UpstreamZone = "upstream.locality.zone";
    UpstreamSubZone = "upstream.locality.sub_zone";
    WholeMetadata = "metadata";
    Metadata = "metadata.filter_metadata";
    FilterState = "filter_state";
    UpstreamFilterState = "upstream_filter_state";
    ClusterName = "xds.cluster_name";
    RouteName = "xds.route_name";
    VirtualHostName = "xds.virtual_host_name";
    FilterChainName = "xds.filter_chain_name";
    WholeRouteMetadata = "xds.route_metadata";
    WholeVirtualHostMetadata = "xds.virtual_host_metadata";
    WholeClusterMetadata = "xds.cluster_metadata";
    WholeUpstreamHostMetadata = "xds.upstream_host_metadata";
    WholeLocalityMetadata = "xds.upstream_host_locality_metadata";
    WholeListenerMetadata = "xds.listener_metadata";
    Node = "xds.node";
    RouteMetadata = "xds.route_metadata.filter_metadata";
    VirtualHostMetadata = "xds.virtual_host_metadata.filter_metadata";
    ClusterMetadata = "xds.cluster_metadata.filter_metadata";
    UpstreamHostMetadata = "xds.upstream_host_metadata.filter_metadata";
    LocalityMetadata = "xds.upstream_host_locality_metadata.filter_metadata";
    ListenerMetadata = "xds.listener_metadata.filter_metadata";
    ListenerDirection = "xds.listener_direction";
    NodeLocality = "xds.node.locality";
    NodeId = "xds.node.id";
    NodeCluster = "xds.node.cluster";
    NodeMetadata = "xds.node.metadata";
    NodeRegion = "xds.node.locality.region";
    NodeZone = "xds.node.locality.zone";
    NodeSubZone = "xds.node.locality.sub_zone";
}

impl Attribute {
    /// The one of that full name.
    pub fn named(name: &str) -> Option<Attribute> {
        KNOWN.iter().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute)
    }

    /// Whether it is a message, which has attributes of its own.
    pub fn is_message(self) -> bool {
        use Attribute::*;
        let is_metadata = matches!(self, WholeMetadata | WholeRouteMetadata | WholeVirtualHostMetadata)
            || matches!(self, WholeClusterMetadata | WholeUpstreamHostMetadata | WholeLocalityMetadata)
            || matches!(self, WholeListenerMetadata);
        is_metadata || self.is_locality() || matches!(self, Node)
    }

    /// Whether it is a message whose fields are found by a dot only.
    pub(super) fn is_locality(self) -> bool {
        matches!(self, Attribute::UpstreamLocality | Attribute::NodeLocality)
    }

    /// Whether it is a text of a message, which has it only when it is not empty.
    pub fn is_text_of_message(self) -> bool {
        use Attribute::*;
        let of_upstream = matches!(self, UpstreamRegion | UpstreamZone | UpstreamSubZone);
        of_upstream || matches!(self, NodeId | NodeCluster | NodeRegion | NodeZone | NodeSubZone)
    }

    /// Whether names of attributes begin with these words.
    pub(super) fn is_prefix(words: &str) -> bool {
        KNOWN.iter().any(|(known, _)| known.strip_prefix(words).is_some_and(|rest| rest.starts_with('.')))
    }

    /// The last words of the names that begin so, for an error.
    pub(super) fn below(words: &str) -> String {
        let rest = |known: &'static str| known.strip_prefix(words)?.strip_prefix('.');
        let names: Vec<&str> = KNOWN.iter().filter_map(|(known, _)| rest(known)).collect();
        names.join(", ")
    }
}
