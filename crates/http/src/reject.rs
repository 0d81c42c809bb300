//! Why a message was refused: the status to answer and the `response_code_details` token to log.

/// A refusal. `status` is what the client is told (for a response head: what the client is told instead
/// of the upstream's answer), `details` the token for `%RESPONSE_CODE_DETAILS%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reject {
    /// HTTP status code to answer.
    pub status: u16,
    /// Token that names the cause.
    pub details: &'static str,
}

impl Reject {
    /// A refusal with `status` and `details`.
    pub const fn new(status: u16, details: &'static str) -> Self {
        Self { status, details }
    }

    /// The same cause met in an upstream's message: the client gets 502.
    pub const fn upstream(self) -> Self {
        Self { status: 502, details: self.details }
    }
}

impl std::fmt::Display for Reject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, self.details)
    }
}

impl std::error::Error for Reject {}

/// Why a field was not taken into [`crate::Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldError {
    /// The name is not a token (RFC 9110 5.6.2).
    Name,
    /// The value holds a control byte (RFC 9110 5.5).
    Value,
    /// The head would hold more fields, or more bytes, than its index can address.
    TooLarge,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Name => "header name is not a token (RFC 9110 section 5.6.2)",
            Self::Value => "header value contains a control character (RFC 9110 section 5.5)",
            Self::TooLarge => "too many or too large headers",
        })
    }
}

impl std::error::Error for FieldError {}
