//! Which of a chain's compressors a client gets.

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;

use postrider_http::trim_ows;

use super::config::ContentTypes;

/// A stream's compressors, in the order of the chain, and what was decided between them: the first that is asked decides
/// for all.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) compressors: RefCell<Vec<Offer>>,
    pub(super) decision: Cell<Option<Decision>>,
}

/// What one compressor offers.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) encoding: &'static str,
    pub(super) choose_first: bool,
    pub(super) content_types: Rc<ContentTypes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decision {
    /// `None`: no compression.
    pub(super) encoding: Option<&'static str>,
    pub(super) reason: Reason,
}

/// Why, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Named,
    Wildcard,
    Identity,
    NotValid,
}

/// Chooses by what the client accepts. Names of codings are compared as they are, as Envoy does.
pub(super) fn choose(accept: &[u8], content_type: Option<&[u8]>, offers: &[Offer]) -> Decision {
    let identity = |reason| Decision { encoding: None, reason };
    // A compressor that does not want this content type is none; of two with one coding, the first counts.
    let mut allowed: Vec<&Offer> = Vec::new();
    for offer in offers {
        let suits = content_type.is_none_or(|kind| offer.content_types.allow(kind));
        if suits && !allowed.iter().any(|other| other.encoding == offer.encoding) {
            allowed.push(offer);
        }
    }
    let wishes: Vec<(&[u8], f32)> = accept.split(|byte| *byte == b',').filter_map(wish).collect();
    // What the client refuses by name is not for its wildcard either.
    allowed.retain(|offer| !wishes.iter().any(|(name, q)| *name == offer.encoding.as_bytes() && *q == 0.0));
    if wishes.is_empty() || allowed.is_empty() {
        return identity(Reason::NotValid);
    }
    let mut choice: (&[u8], f32) = (b"identity", 0.0);
    for (name, q) in wishes {
        let offer = allowed.iter().find(|offer| offer.encoding.as_bytes() == name);
        let is_known = offer.is_some() || name == b"identity" || name == b"*";
        if is_known && (q > choice.1 || q == choice.1 && offer.is_some_and(|offer| offer.choose_first)) {
            choice = (name, q);
        }
    }
    match choice {
        (_, 0.0) => identity(Reason::NotValid),
        (b"identity", _) => identity(Reason::Identity),
        (b"*", _) => Decision { encoding: allowed.first().map(|offer| offer.encoding), reason: Reason::Wildcard },
        (name, _) => {
            let offer = allowed.iter().find(|offer| offer.encoding.as_bytes() == name);
            Decision { encoding: offer.map(|offer| offer.encoding), reason: Reason::Named }
        }
    }
}

/// One coding and how much it is wanted; `None` when nothing is there, or no number where one should be.
fn wish(member: &[u8]) -> Option<(&[u8], f32)> {
    if member.is_empty() {
        return None;
    }
    let Some(at) = member.iter().position(|byte| *byte == b';') else { return Some((trim_ows(member), 1.0)) };
    let (name, parameter) = (trim_ows(member.get(..at)?), member.get(at + 1..)?);
    let Some(at) = parameter.iter().position(|byte| *byte == b'=') else { return Some((name, 1.0)) };
    if !trim_ows(parameter.get(..at)?).eq_ignore_ascii_case(b"q") {
        return Some((name, 1.0));
    }
    let q = std::str::from_utf8(trim_ows(parameter.get(at + 1..)?)).ok()?.parse::<f32>().ok()?;
    q.is_finite().then_some((name, q))
}
