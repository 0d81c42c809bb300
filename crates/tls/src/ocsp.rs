//! OCSP responses (RFC 6960) that are stapled to our certificates: what period one is good for, and what a policy makes
//! of that. The responder's signature is for the client to check.

use std::time::SystemTime;

use postrider_model::OcspPolicy;

use crate::der::{self, Reader};
use crate::time;
use crate::x509::oid;

/// When a response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OcspValidity {
    pub this_update: SystemTime,
    /// A response without one is never good: nobody says until when.
    pub next_update: Option<SystemTime>,
}

impl OcspValidity {
    pub fn is_good(&self, now: SystemTime) -> bool {
        self.this_update <= now && self.next_update.is_some_and(|end| now < end)
    }
}

/// What is done with a certificate at a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staple {
    With,
    Without,
    /// The certificate must not be shown now.
    Refuse,
}

/// `must` is the certificate's own extension (RFC 7633), which is as strict as the strictest policy.
pub(crate) fn decide(policy: OcspPolicy, must: bool, response: Option<OcspValidity>, now: SystemTime) -> Staple {
    let policy = if must { OcspPolicy::Must } else { policy };
    match (policy, response) {
        (_, Some(response)) if response.is_good(now) => Staple::With,
        (OcspPolicy::Must, _) | (OcspPolicy::Strict, Some(_)) => Staple::Refuse,
        (OcspPolicy::Strict, None) | (OcspPolicy::Lenient, _) => Staple::Without,
    }
}

/// Reads a DER OCSPResponse about one certificate.
///
/// # Errors
/// A sentence: it is not such a response, the responder failed, or it is about another certificate or several.
pub(crate) fn read(response: &[u8], serial: &[u8]) -> Result<OcspValidity, String> {
    const NOT_ONE: &str = "this is not an OCSP response in DER";
    let mut outer = Reader::new(response).inside(der::SEQUENCE).ok_or(NOT_ONE)?;
    let status = outer.expect(der::ENUMERATED).ok_or(NOT_ONE)?;
    if status != [0] {
        return Err("the OCSP responder reports an error instead of a status".to_owned());
    }
    let basic = outer.expect(der::context(0)).and_then(basic_response).ok_or(NOT_ONE)?;
    let mut responses = single_responses(basic).ok_or(NOT_ONE)?;
    let (found, validity) = responses.inside(der::SEQUENCE).and_then(single).ok_or(NOT_ONE)?;
    if !responses.is_empty() {
        return Err("the OCSP response is about more than one certificate".to_owned());
    }
    if found != serial {
        return Err("the OCSP response is about another certificate: the serial numbers differ".to_owned());
    }
    Ok(validity)
}

/// ResponseBytes: the only type there is, and its DER.
fn basic_response(content: &[u8]) -> Option<&[u8]> {
    let mut bytes = Reader::new(content).inside(der::SEQUENCE)?;
    (bytes.expect(der::OID)? == oid::OCSP_BASIC).then(|| bytes.expect(der::OCTET_STRING))?
}

/// The list inside ResponseData, behind version, responder and time.
fn single_responses(basic: &[u8]) -> Option<Reader<'_>> {
    let mut data = Reader::new(basic).inside(der::SEQUENCE)?.inside(der::SEQUENCE)?;
    data.optional(der::context(0));
    data.element()?;
    data.expect(der::GENERALIZED_TIME)?;
    data.inside(der::SEQUENCE)
}

/// The serial number that a SingleResponse is about, and when it is good.
fn single(mut response: Reader<'_>) -> Option<(&[u8], OcspValidity)> {
    let mut id = response.inside(der::SEQUENCE)?;
    id.expect(der::SEQUENCE)?;
    id.expect(der::OCTET_STRING)?;
    id.expect(der::OCTET_STRING)?;
    let serial = der::unsigned(id.expect(der::INTEGER)?);
    response.element()?;
    let this_update = time::read(response.element()?)?;
    let next_update = match response.optional(der::context(0)) {
        Some(explicit) => Some(time::read(Reader::new(explicit).element()?)?),
        None => None,
    };
    Some((serial, OcspValidity { this_update, next_update }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn policies() {
        let response = Some(OcspValidity { this_update: at(100), next_update: Some(at(200)) });
        let endless = Some(OcspValidity { this_update: at(100), next_update: None });
        use OcspPolicy::{Lenient, Must, Strict};
        use Staple::{Refuse, With, Without};
        for (policy, must, response, now, want) in [
            (Lenient, false, response, 150, With),
            (Lenient, false, response, 200, Without),
            (Lenient, false, response, 99, Without),
            (Lenient, false, endless, 150, Without),
            (Lenient, false, None, 150, Without),
            (Lenient, true, response, 150, With),
            (Lenient, true, response, 250, Refuse),
            (Strict, false, response, 150, With),
            (Strict, false, response, 250, Refuse),
            (Strict, false, None, 150, Without),
            (Must, false, response, 150, With),
            (Must, false, response, 250, Refuse),
            (Must, false, None, 150, Refuse),
        ] {
            assert_eq!(decide(policy, must, response, at(now)), want, "{policy:?} {must} {response:?} {now}");
        }
    }
}
