//! Why a snapshot cannot run, and where in its document that stands.

use postrider_model::{Certificate, Origin, Validation, ValueError};
use postrider_tls::TlsError;

/// Why a snapshot cannot run, and where in its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// The dialect's path to the value.
    pub path: String,
    /// What kind of trouble it is: `invalid-filter-config`, `invalid-tls`.
    pub code: &'static str,
    pub message: String,
}

pub(super) const FILTER: &str = "invalid-filter-config";
const TLS: &str = "invalid-tls";

pub(super) fn report(errors: &mut Vec<PlanError>, origin: &str, refused: Vec<ValueError>) {
    errors.extend(refused.into_iter().map(|error| PlanError {
        path: if error.path.is_empty() { origin.to_owned() } else { format!("{origin}.{}", error.path) },
        code: FILTER,
        message: error.message,
    }));
}

/// Where in the document the parts of a TLS context stand: certificates and validation may come from elsewhere.
pub(super) struct TlsOrigins<'m> {
    pub(super) context: &'m Origin,
    pub(super) certificates: &'m [Certificate],
    pub(super) validation: Option<&'m Validation>,
}

impl TlsOrigins<'_> {
    pub(super) fn report(&self, errors: &mut Vec<PlanError>, refused: Vec<TlsError>) {
        errors.extend(refused.into_iter().map(|TlsError { path, message }| PlanError {
            path: self.find(&path).0.clone(),
            code: TLS,
            message,
        }));
    }

    /// `path` is in the model's words: `certificates[0].key`.
    fn find(&self, path: &str) -> &Origin {
        let mut certificates = self.certificates.iter().enumerate();
        let certificate = certificates.find(|(index, _)| {
            path.starts_with(&format!("certificates[{index}]")) || path.split('.').next() == Some("certificate")
        });
        match (certificate, self.validation) {
            (Some((_, certificate)), _) => &certificate.origin,
            (None, Some(validation)) if path.starts_with("common.validation") => &validation.origin,
            (None, _) => self.context,
        }
    }
}
