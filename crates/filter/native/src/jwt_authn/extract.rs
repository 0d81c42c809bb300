//! Where tokens stand in requests.

use postrider_filter_api::Stream;
use postrider_http::RequestHead;

use crate::request_parts::{cookie, parameter, without_parameters};

/// Places to look at, in the order in which tokens are found.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<(Place, Issuers)>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In this order: first headers, then parameters, then cookies, each by name.
    /// The name in lower case.
    Header {
        name: String,
        prefix: String,
    },
    Parameter(String),
    Cookie(String),
}

/// Whose tokens may stand at a place; `None` is anybody's.
pub(super) type Issuers = Option<Vec<String>>;

/// What was found.
#[derive(Debug, PartialEq)]
pub(super) struct Found<'p> {
    pub(super) token: String,
    place: &'p Place,
    issuers: &'p Issuers,
}

impl Places {
    /// The issuers of a place that is there already are added to it.
    pub(super) fn add(&mut self, place: Place, issuer: &str) {
        let issuer = (!issuer.is_empty()).then(|| vec![issuer.to_owned()]);
        match self.0.binary_search_by(|(known, _)| known.cmp(&place)) {
            Ok(at) => {
                if let Some((_, issuers)) = self.0.get_mut(at) {
                    *issuers = issuers.take().zip(issuer).map(|(known, new)| [known, new].concat());
                }
            }
            Err(at) => self.0.insert(at, (place, issuer)),
        }
    }

    /// The places of others beside these.
    pub(super) fn add_all(&mut self, others: &Places) {
        for (place, issuers) in &others.0 {
            match issuers {
                Some(issuers) => issuers.iter().for_each(|issuer| self.add(place.clone(), issuer)),
                None => self.add(place.clone(), ""),
            }
        }
    }

    pub(super) fn find(&self, request: &RequestHead) -> Vec<Found<'_>> {
        let mut all = Vec::new();
        for (place, issuers) in &self.0 {
            let mut found = |token: String| all.push(Found { token, place, issuers });
            match place {
                Place::Header { name, prefix } => {
                    for line in lines(request, name) {
                        if let Some(token) = behind(&String::from_utf8_lossy(&line), prefix) {
                            found(token.to_owned());
                        }
                    }
                }
                Place::Parameter(name) => parameter(request, name).into_iter().for_each(found),
                Place::Cookie(name) => cookie(request, name).into_iter().for_each(found),
            }
        }
        all
    }
}

impl Found<'_> {
    pub(super) fn may_be_of(&self, issuer: &str) -> bool {
        self.issuers.as_ref().is_none_or(|issuers| issuers.iter().any(|known| known == issuer))
    }

    /// Takes the token out of the request; one in a cookie stays.
    pub(super) fn remove(&self, stream: &mut Stream<'_>) {
        match self.place {
            Place::Header { name, .. } => {
                stream.request.fields.remove_name(name.as_bytes());
            }
            Place::Parameter(name) => {
                let path = without_parameters(stream.request.path(), &[name]);
                // A part of what was a path is one.
                let _ = stream.request.set_path(&path);
            }
            Place::Cookie(_) => {}
        }
    }
}

/// The lines of a header. Those of `authorization` count as one, as there can only be one (RFC 9110 section 5.3).
fn lines(request: &RequestHead, name: &str) -> Vec<Vec<u8>> {
    let all: Vec<Vec<u8>> = request.fields.get_all_name(name.as_bytes()).map(<[u8]>::to_vec).collect();
    if name == "authorization" && all.len() > 1 { vec![all.join(&b","[..])] } else { all }
}

/// What follows the prefix, from the first character that a token may have.
fn behind<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    if prefix.is_empty() {
        return Some(text);
    }
    let rest = text.get(text.find(prefix)? + prefix.len()..)?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    Some(rest.find(is_token).and_then(|at| rest.get(at..)).unwrap_or(text))
}
