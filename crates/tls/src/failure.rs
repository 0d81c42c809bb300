//! What logs say of a handshake that failed: what Envoy's say, whose TLS library is BoringSSL, where that has a name for it.
//!
//! ```text
//! TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: …:TLS_error_end
//!            number    where from                    name                      what is wrong with the certificate
//! ```

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// What BoringSSL's numbers of its own errors begin with, and those of errors of the system.
const SSL: u32 = 16 << 24;
const SYSTEM: u32 = 2 << 24;

/// Alerts of the other side have numbers from here on.
const ALERTS: u32 = 1000;

/// The names of a certificate are none of those that are wanted.
#[derive(Debug)]
pub struct NotValidForName {
    /// Those that are wanted, where they are listed.
    pub(crate) wanted: Vec<String>,
    /// Those that it has.
    pub(crate) names: Vec<String>,
}

impl NotValidForName {
    /// The handshake failed because of it.
    pub fn is_why(error: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error else { return false };
        inner.is::<NotValidForName>()
    }
}

impl std::fmt::Display for NotValidForName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.names.join(", ");
        match self.wanted.as_slice() {
            [] => write!(f, "SAN matcher, certificate SANs are [{names}]"),
            wanted => {
                let wanted = wanted.join(", ");
                write!(f, "verify SAN list, expected SANs: [{wanted}], certificate SANs: [{names}]")
            }
        }
    }
}

impl std::error::Error for NotValidForName {}

impl From<NotValidForName> for Error {
    fn from(error: NotValidForName) -> Error {
        CertificateError::Other(OtherError(std::sync::Arc::new(error))).into()
    }
}

/// Why a handshake with a server failed. `answered`: it had answered the greeting.
pub fn handshake_failure(error: &Error, answered: bool) -> String {
    let Some((number, name)) = reason(error) else { return format!("TLS error: {error}") };
    let entry = |number: u32, name: &str| format!("|{}:SSL routines:OPENSSL_internal:{name}", SSL + number);
    let mut text = format!("TLS_error:{}", entry(number, name));
    match error {
        Error::InvalidCertificate(why) => {
            text.push_str(":verify cert failed: ");
            text.push_str(&certificate(why));
        }
        Error::AlertReceived(AlertDescription::HandshakeFailure) if !answered => {
            text.push_str(&entry(154, "HANDSHAKE_FAILURE_ON_CLIENT_HELLO"));
        }
        _ => {}
    }
    text.push_str(":TLS_error_end");
    text
}

/// The same of an error of the system, in whose `words` that has this number.
pub fn system_failure(number: u32, words: &str) -> String {
    format!("TLS_error:|{}:system library:OPENSSL_internal:{words}:TLS_error_end", SYSTEM + number)
}

/// BoringSSL's number and name for it.
fn reason(error: &Error) -> Option<(u32, &'static str)> {
    Some(match error {
        Error::InvalidCertificate(_) => (125, "CERTIFICATE_VERIFY_FAILED"),
        Error::AlertReceived(alert) => (ALERTS + u32::from(u8::from(*alert)), alert_name(*alert)),
        // It looks at the version before it looks at what a record carries.
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            (247, "WRONG_VERSION_NUMBER")
        }
        Error::InvalidMessage(InvalidMessage::MessageTooLarge) | Error::PeerSentOversizedRecord => {
            (146, "ENCRYPTED_LENGTH_TOO_LONG")
        }
        Error::InvalidMessage(_) => (137, "DECODE_ERROR"),
        Error::InappropriateHandshakeMessage { .. } => (223, "UNEXPECTED_MESSAGE"),
        Error::InappropriateMessage { .. } => (225, "UNEXPECTED_RECORD"),
        _ => return None,
    })
}

fn alert_name(alert: AlertDescription) -> &'static str {
    use AlertDescription as Alert;
    match alert {
        Alert::CloseNotify => "SSLV3_ALERT_CLOSE_NOTIFY",
        Alert::UnexpectedMessage => "SSLV3_ALERT_UNEXPECTED_MESSAGE",
        Alert::BadRecordMac => "SSLV3_ALERT_BAD_RECORD_MAC",
        Alert::DecryptionFailed => "TLSV1_ALERT_DECRYPTION_FAILED",
        Alert::RecordOverflow => "TLSV1_ALERT_RECORD_OVERFLOW",
        Alert::DecompressionFailure => "SSLV3_ALERT_DECOMPRESSION_FAILURE",
        Alert::HandshakeFailure => "SSLV3_ALERT_HANDSHAKE_FAILURE",
        Alert::NoCertificate => "SSLV3_ALERT_NO_CERTIFICATE",
        Alert::BadCertificate => "SSLV3_ALERT_BAD_CERTIFICATE",
        Alert::UnsupportedCertificate => "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        Alert::CertificateRevoked => "SSLV3_ALERT_CERTIFICATE_REVOKED",
        Alert::CertificateExpired => "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        Alert::CertificateUnknown => "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        Alert::IllegalParameter => "SSLV3_ALERT_ILLEGAL_PARAMETER",
        Alert::UnknownCA => "TLSV1_ALERT_UNKNOWN_CA",
        Alert::AccessDenied => "TLSV1_ALERT_ACCESS_DENIED",
        Alert::DecodeError => "TLSV1_ALERT_DECODE_ERROR",
        Alert::DecryptError => "TLSV1_ALERT_DECRYPT_ERROR",
        Alert::ExportRestriction => "TLSV1_ALERT_EXPORT_RESTRICTION",
        Alert::ProtocolVersion => "TLSV1_ALERT_PROTOCOL_VERSION",
        Alert::InsufficientSecurity => "TLSV1_ALERT_INSUFFICIENT_SECURITY",
        Alert::InternalError => "TLSV1_ALERT_INTERNAL_ERROR",
        Alert::InappropriateFallback => "TLSV1_ALERT_INAPPROPRIATE_FALLBACK",
        Alert::UserCanceled => "TLSV1_ALERT_USER_CANCELLED",
        Alert::NoRenegotiation => "TLSV1_ALERT_NO_RENEGOTIATION",
        Alert::UnsupportedExtension => "TLSV1_ALERT_UNSUPPORTED_EXTENSION",
        Alert::CertificateUnobtainable => "TLSV1_ALERT_CERTIFICATE_UNOBTAINABLE",
        Alert::UnrecognisedName => "TLSV1_ALERT_UNRECOGNIZED_NAME",
        Alert::BadCertificateStatusResponse => "TLSV1_ALERT_BAD_CERTIFICATE_STATUS_RESPONSE",
        Alert::BadCertificateHashValue => "TLSV1_ALERT_BAD_CERTIFICATE_HASH_VALUE",
        Alert::UnknownPSKIdentity => "TLSV1_ALERT_UNKNOWN_PSK_IDENTITY",
        Alert::CertificateRequired => "TLSV1_ALERT_CERTIFICATE_REQUIRED",
        Alert::NoApplicationProtocol => "TLSV1_ALERT_NO_APPLICATION_PROTOCOL",
        Alert::EncryptedClientHelloRequired => "TLSV1_ALERT_ECH_REQUIRED",
        _ => "unknown error",
    }
}

/// What is wrong with the certificate of the server. Which certificate of the path it is, rustls does not tell: it is said to be the
/// server's own.
fn certificate(error: &CertificateError) -> String {
    let of_path = match error {
        CertificateError::ApplicationVerificationFailure => return "cert hash and spki".to_owned(),
        CertificateError::Other(OtherError(inner)) => return inner.to_string(),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "unable to get local issuer certificate",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "certificate is not yet valid",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "unsupported certificate purpose"
        }
        CertificateError::Revoked => return of_lists("certificate revoked"),
        CertificateError::UnknownRevocationStatus => return of_lists("unable to get certificate CRL"),
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            return of_lists("CRL has expired");
        }
        other => return other.to_string(),
    };
    on_path(of_path)
}

fn of_lists(why: &str) -> String {
    on_path(&format!("certificate revocation check against provided CRLs failed: {why}"))
}

fn on_path(why: &str) -> String {
    format!("X509_verify_cert: certificate verification error at depth 0: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_names_and_numbers_that_envoy_logs() {
        let begun = |error: Error| handshake_failure(&error, false);
        assert_eq!(
            begun(Error::AlertReceived(AlertDescription::UnknownCA)),
            "TLS_error:|268436504:SSL routines:OPENSSL_internal:TLSV1_ALERT_UNKNOWN_CA:TLS_error_end"
        );
        assert_eq!(
            begun(Error::AlertReceived(99.into())),
            "TLS_error:|268436555:SSL routines:OPENSSL_internal:unknown error:TLS_error_end"
        );
        let refused = Error::AlertReceived(AlertDescription::HandshakeFailure);
        let alert = "TLS_error:|268436496:SSL routines:OPENSSL_internal:SSLV3_ALERT_HANDSHAKE_FAILURE";
        let at_once = "|268435610:SSL routines:OPENSSL_internal:HANDSHAKE_FAILURE_ON_CLIENT_HELLO";
        assert_eq!(handshake_failure(&refused, true), format!("{alert}:TLS_error_end"));
        assert_eq!(handshake_failure(&refused, false), format!("{alert}{at_once}:TLS_error_end"));
        assert_eq!(
            begun(CertificateError::Revoked.into()),
            "TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: \
             X509_verify_cert: certificate verification error at depth 0: certificate revocation check against \
             provided CRLs failed: certificate revoked:TLS_error_end"
        );
        let names = vec!["a.test".to_owned(), "10.0.0.1".to_owned()];
        let error = Error::from(NotValidForName { wanted: Vec::new(), names });
        assert!(NotValidForName::is_why(&error));
        assert_eq!(
            begun(error),
            "TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: SAN \
             matcher, certificate SANs are [a.test, 10.0.0.1]:TLS_error_end"
        );
        assert_eq!(
            system_failure(104, "Connection reset by peer"),
            "TLS_error:|33554536:system library:OPENSSL_internal:Connection reset by peer:TLS_error_end"
        );
    }
}
