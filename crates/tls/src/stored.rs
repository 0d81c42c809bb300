//! What a file of certificates says, for whoever keeps such files.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::CertificateFacts;

/// The facts of the first certificate in a PEM, whatever else stands there; `None` when there is none.
pub fn first_certificate(pem: &[u8]) -> Option<CertificateFacts> {
    let der = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    CertificateFacts::of(&der, "<inline>")
}
