//! What a check of tokens can come to, in Envoy's words and numbers.

/// Why a request was turned away, or that it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Missing,
    NotYetValid,
    Expired,
    BadFormat,
    HeaderBase64,
    HeaderJson,
    HeaderAlg,
    AlgUnsupported,
    HeaderKid,
    PayloadBase64,
    PayloadJson,
    Iss,
    Sub,
    Iat,
    IatRange,
    Nbf,
    NbfRange,
    Exp,
    ExpRange,
    Jti,
    Aud,
    SignatureBase64,
    Ed25519Length,
    UnknownIssuer,
    Audience,
    Verification,
    NoKey,
    Fetch,
}

impl Status {
    /// As it stands in the metadata of a request that failed.
    pub(super) fn code(self) -> f64 {
        f64::from(self.told().0)
    }

    /// What the client is told.
    pub(super) fn text(self) -> &'static str {
        self.told().1
    }

    fn told(self) -> (u8, &'static str) {
        match self {
            Status::Ok => (0, "OK"),
            Status::Missing => (1, "Jwt is missing"),
            Status::NotYetValid => (2, "Jwt not yet valid"),
            Status::Expired => (3, "Jwt is expired"),
            Status::BadFormat => (4, "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"),
            Status::HeaderBase64 => (5, "Jwt header is an invalid Base64url encoded"),
            Status::HeaderJson => (6, "Jwt header is an invalid JSON"),
            Status::HeaderAlg => (7, "Jwt header [alg] field is required and must be a string"),
            Status::AlgUnsupported => (8, "Jwt header [alg] is not supported"),
            Status::HeaderKid => (9, "Jwt header [kid] field is not a string"),
            Status::PayloadBase64 => (10, "Jwt payload is an invalid Base64url encoded"),
            Status::PayloadJson => (11, "Jwt payload is an invalid JSON"),
            Status::Iss => (12, "Jwt payload [iss] field is not a string"),
            Status::Sub => (13, "Jwt payload [sub] field is not a string"),
            Status::Iat => (14, "Jwt payload [iat] field is not an integer"),
            Status::IatRange => (15, "Jwt payload [iat] field is not a positive 64 bit integer"),
            Status::Nbf => (16, "Jwt payload [nbf] field is not an integer"),
            Status::NbfRange => (17, "Jwt payload [nbf] field is not a positive 64 bit integer"),
            Status::Exp => (18, "Jwt payload [exp] field is not an integer"),
            Status::ExpRange => (19, "Jwt payload [exp] field is not a positive 64 bit integer"),
            Status::Jti => (20, "Jwt payload [jti] field is not a string"),
            Status::Aud => (21, "Jwt payload [aud] field is not a string or string list"),
            Status::SignatureBase64 => (22, "Jwt signature is an invalid Base64url encoded"),
            Status::Ed25519Length => (23, "Jwt ED25519 signature is wrong length"),
            Status::UnknownIssuer => (24, "Jwt issuer is not configured"),
            Status::Audience => (25, "Audiences in Jwt are not allowed"),
            Status::Verification => (26, "Jwt verification fails"),
            Status::NoKey => (32, "Jwks doesn't have key to match kid or alg from Jwt"),
            Status::Fetch => (40, "Jwks remote fetch is failed"),
        }
    }
}
