//! Every refusal that this crate and the codecs know, by name.
//!
//! Where Envoy 1.40 refuses the same input, status and token are Envoy's (`http1.codec_error` stands
//! for most syntax errors there); where Envoy accepts it, the token is ours and names the rule.

use crate::Reject;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $status:literal $details:literal;)*) => {
        $($(#[$doc])* pub const $name: Reject = Reject::new($status, $details);)*
    };
}

reasons! {
    /// Syntax error in a start line or field line (RFC 9112 2.2: respond 400 and close).
    CODEC_ERROR = 400 "http1.codec_error";
    /// A line without a colon (RFC 9112 5).
    NO_COLON = 400 "http1.codec_error";
    /// White space between name and colon (RFC 9112 5.1).
    SPACE_BEFORE_COLON = 400 "http1.codec_error";
    /// A field line with an empty name (RFC 9110 5.1).
    EMPTY_NAME = 400 "http1.codec_error";
    /// A field name that is not a token (RFC 9110 5.1).
    INVALID_NAME = 400 "http1.codec_error";
    /// A method that is not a token, or not a known one while custom methods are off (RFC 9110 9.1).
    INVALID_METHOD = 400 "http1.codec_error";
    /// A request target that is none of the four forms (RFC 9112 3.2).
    INVALID_TARGET = 400 "http1.codec_error";
    /// A target of a form that its method does not allow (RFC 9112 3.2.3, 3.2.4), or without a host.
    INVALID_URL = 400 "http1.invalid_url";
    /// A target in absolute form where none is taken.
    ABSOLUTE_TARGET = 404 "absolute_path_rejected";
    /// An absolute-form target with a scheme other than `http` and `https`.
    INVALID_SCHEME = 400 "http1.invalid_scheme";
    /// NUL or another control byte (RFC 9110 5.5).
    INVALID_CHARACTERS = 400 "http1.invalid_characters";
    /// A CR without LF (RFC 9112 2.2).
    BARE_CR = 400 "http1.bare_cr";
    /// An LF without CR: taken for a line end by some, for data by others (RFC 9112 2.2 leaves it open).
    BARE_LF = 400 "http1.bare_lf";
    /// A folded line (RFC 9112 5.2).
    OBS_FOLD = 400 "http1.obs_fold";
    /// A version other than HTTP/1.1, or HTTP/1.0 where it is not accepted.
    LOW_VERSION = 426 "low_version";
    /// Head or trailers larger than the limit.
    HEAD_TOO_LARGE = 431 "http1.headers_too_large";
    /// More fields than the limit, in a head or in trailers.
    TOO_MANY_HEADERS = 431 "http1.too_many_headers";
    /// Content-Length together with Transfer-Encoding (RFC 9112 6.1, 6.3).
    LENGTH_AND_CHUNKED = 400 "http1.content_length_and_chunked_not_allowed";
    /// Transfer-Encoding in an HTTP/1.0 message (RFC 9112 6.1).
    CHUNKED_IN_HTTP_10 = 400 "http1.transfer_encoding_in_http_10";
    /// A transfer coding other than exactly `chunked` (RFC 9112 6.1).
    INVALID_TRANSFER_ENCODING = 501 "http1.invalid_transfer_encoding";
    /// Content-Length that is not 1*DIGIT, does not fit, or is repeated (RFC 9112 6.3).
    INVALID_CONTENT_LENGTH = 400 "http1.codec_error";
    /// CONNECT with a Content-Length above zero (RFC 9110 9.3.6).
    CONNECT_WITH_CONTENT_LENGTH = 400 "http1.body_disallowed";
    /// A 1xx or 204 response that declares a body (RFC 9110 6.4.1, RFC 9112 6.1).
    BODY_NOT_ALLOWED = 502 "http1.body_disallowed";
    /// No Host in HTTP/1.1 (RFC 9112 3.2).
    MISSING_HOST = 400 "missing_host_header";
    /// More than one Host line (RFC 9112 3.2).
    MULTIPLE_HOSTS = 400 "http1.multiple_hosts";
    /// Host or authority outside the grammar (RFC 9112 3.2).
    INVALID_AUTHORITY = 400 "http.invalid_authority";
    /// `user@` in an authority (RFC 9110 4.2.4).
    USERINFO = 400 "http.userinfo_in_authority";
    /// An expectation other than `100-continue` (RFC 9110 10.1.1).
    EXPECTATION_FAILED = 417 "http.expectation_failed";
    /// A header name with an underscore that passes for a framing, hop-by-hop or forwarding name.
    UNDERSCORE = 400 "http1.unexpected_underscore";
    /// `Connection` names a field that is not the sender's to remove.
    CONNECTION_HEADER = 400 "http1.connection_header_rejected";
    /// A path that cannot be normalised safely (RFC 3986 6.2.2).
    PATH_NORMALIZATION = 400 "path_normalization_failed";
    /// `#` in a request target (RFC 9112 3.2.1 allows none).
    FRAGMENT = 400 "path_normalization_failed";
    /// A status outside 100-599 (RFC 9110 15).
    INVALID_STATUS = 502 "http1.invalid_status";
    /// 101 where no upgrade was asked for (RFC 9110 15.2.2).
    UNEXPECTED_101 = 502 "http1.unexpected_switching_protocols";
    /// A chunk that breaks RFC 9112 7.1.
    INVALID_CHUNK = 400 "http1.codec_error";
    /// The peer closed in the middle of a body (RFC 9112 8).
    TRUNCATED_BODY = 400 "http1.truncated_body";
    /// A chunk size that overflows.
    CHUNK_SIZE_OVERFLOW = 400 "http1.codec_error";
    /// More bytes of chunk extensions than the limit (RFC 9112 7.1.1 asks for one).
    CHUNK_EXTENSIONS_TOO_LARGE = 400 "http1.chunk_extensions_too_large";
}
