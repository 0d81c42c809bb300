//! The head of a response: status, reason phrase, version and fields.
//!
//! Filled by a codec ([`ResponseHead::start`]) or by a local reply ([`ResponseHead::reply`]); emitted
//! by [`crate::write_response`]. Reused from response to response.

use std::ops::Range;

use crate::chars::is_field_value;
use crate::request::Place;
use crate::{FieldError, Fields, Version};

/// A response head.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The fields; hop-by-hop fields are gone after admission.
    pub fields: Fields,
    status: u16,
    reason_at: Place,
    version: Version,
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self { fields: Fields::new(), status: 200, reason_at: Place::default(), version: Version::Http11 }
    }
}

impl ResponseHead {
    /// An empty head with status 200; allocates with the first response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, keeps the capacity.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.status = 200;
        self.reason_at = Place::default();
        self.version = Version::Http11;
    }

    /// Clears and begins a local reply.
    pub fn reply(&mut self, status: u16) {
        self.clear();
        self.set_status(status);
    }

    /// The status, 100 to 599 after admission.
    #[inline]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Replaces the status; values outside 100-599 become 500, because nothing else may be emitted.
    pub fn set_status(&mut self, status: u16) {
        self.status = if (100..=599).contains(&status) { status } else { 500 };
        self.reason_at = Place::default();
    }

    /// The reason phrase as received: informative only, not forwarded (RFC 9112 4).
    pub fn received_reason(&self) -> &[u8] {
        self.fields.block_range(self.reason_at.span)
    }

    /// Replaces the reason phrase that is sent, until the status is replaced.
    ///
    /// # Errors
    /// [`FieldError::Value`] for control characters.
    pub fn set_reason(&mut self, reason: &[u8]) -> Result<(), FieldError> {
        if !is_field_value(reason) {
            return Err(FieldError::Value);
        }
        self.reason_at = Place::arena(self.fields.stash(reason));
        Ok(())
    }

    /// The reason phrase that [`ResponseHead::set_reason`] asked for.
    #[inline]
    pub(crate) fn own_reason(&self) -> Option<&[u8]> {
        self.reason_at.in_arena.then(|| self.fields.arena_range(self.reason_at.span))
    }

    /// The version of the status line.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// For codecs: the status line; `reason` is a range of the block that [`Fields::load`] took in. The
    /// status is checked by [`crate::admit_response`].
    #[inline]
    pub fn start(&mut self, status: u16, reason: Range<usize>, version: Version) {
        self.status = status;
        self.reason_at = Place::block(reason);
        self.version = version;
    }
}

/// The registered reason phrase of a status (RFC 9110 15), `""` when there is none.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "",
    }
}
