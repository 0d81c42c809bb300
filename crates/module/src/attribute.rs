//! What is known of a stream, by Envoy's numbers for attributes.

/// A fact about a stream. What it is said as stands behind each: read a text by
/// [`Stream::attribute`](crate::Stream::attribute), a number by [`Stream::number`](crate::Stream::number), a truth by
/// [`Stream::truth`](crate::Stream::truth).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum Attribute {
    /// Text: path and query.
    RequestPath = 0,
    /// Text: the path without the query.
    RequestUrlPath = 1,
    /// Text.
    RequestHost = 2,
    /// Text.
    RequestScheme = 3,
    /// Text.
    RequestMethod = 4,
    /// Text.
    RequestReferer = 6,
    /// Text.
    RequestUserAgent = 7,
    /// Text: `x-request-id`.
    RequestId = 9,
    /// Text: `HTTP/1.1`.
    RequestProtocol = 10,
    /// Text.
    RequestQuery = 11,
    /// Number: bytes of the body.
    RequestSize = 13,
    /// Number: bytes with the head.
    RequestTotalSize = 14,
    /// Number.
    ResponseCode = 15,
    /// Text.
    ResponseCodeDetails = 16,
    /// Number: one bit per flag.
    ResponseFlags = 17,
    /// Number: bytes of the body.
    ResponseSize = 21,
    /// Number: bytes with the head.
    ResponseTotalSize = 22,
    /// Text: the client's address and port.
    SourceAddress = 24,
    /// Number.
    SourcePort = 25,
    /// Text: the address and port that the client reached.
    DestinationAddress = 26,
    /// Number.
    DestinationPort = 27,
    /// Number.
    ConnectionId = 28,
    /// Truth: the client showed a certificate.
    ConnectionMtls = 29,
    /// Text: the name that the client asked for in TLS.
    RequestedServerName = 30,
    /// Text: `TLSv1.3`.
    TlsVersion = 31,
    /// Text: of the certificate that the proxy showed.
    SubjectLocalCertificate = 32,
    /// Text: of the client's certificate.
    SubjectPeerCertificate = 33,
    /// Text: the first name in the proxy's certificate.
    DnsSanLocalCertificate = 34,
    /// Text: the first name in the client's certificate.
    DnsSanPeerCertificate = 35,
    /// Text: the first URI in the proxy's certificate.
    UriSanLocalCertificate = 36,
    /// Text: the first URI in the client's certificate.
    UriSanPeerCertificate = 37,
    /// Text: of the client's certificate.
    Sha256PeerCertificateDigest = 38,
    /// Text: why the client's connection failed as a transport.
    TransportFailureReason = 39,
    /// Text: why the client's connection ended.
    TerminationDetails = 40,
    /// Text: address and port of the upstream host.
    UpstreamAddress = 41,
    /// Number.
    UpstreamPort = 42,
    /// Text: `TLSv1.3`, of the connection to the upstream.
    UpstreamTlsVersion = 43,
    /// Text: of the certificate that the proxy showed to the upstream.
    UpstreamSubjectLocalCertificate = 44,
    /// Text: of the upstream's certificate.
    UpstreamSubjectPeerCertificate = 45,
    /// Text: the first name in the certificate that the proxy showed to the upstream.
    UpstreamDnsSanLocalCertificate = 46,
    /// Text: the first name in the upstream's certificate.
    UpstreamDnsSanPeerCertificate = 47,
    /// Text: the first URI in the certificate that the proxy showed to the upstream.
    UpstreamUriSanLocalCertificate = 48,
    /// Text: the first URI in the upstream's certificate.
    UpstreamUriSanPeerCertificate = 49,
    /// Text: of the upstream's certificate.
    UpstreamSha256PeerCertificateDigest = 50,
    /// Text: address and port of our end of the connection to the upstream.
    UpstreamLocalAddress = 51,
    /// Text: why the connection to the upstream failed as a transport.
    UpstreamTransportFailureReason = 52,
    /// Number: how often the request was tried.
    UpstreamRequestAttemptCount = 53,
    /// Text.
    ClusterName = 57,
    /// Text.
    RouteName = 61,
    /// Text.
    VirtualHostName = 63,
    /// Text: of the filter chain that serves the connection.
    FilterChainName = 66,
    /// Truth: the request is a health check.
    HealthCheck = 67,
}
