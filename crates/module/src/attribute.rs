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
    /// Text: address and port of the upstream host.
    UpstreamAddress = 41,
    /// Number.
    UpstreamPort = 42,
    /// Text.
    ClusterName = 57,
    /// Text.
    RouteName = 61,
    /// Text.
    VirtualHostName = 63,
}
