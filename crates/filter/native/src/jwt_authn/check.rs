//! Whether a request has the tokens that it needs, and what good ones do to it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use postrider_filter_api::{Moment, Stream};
use postrider_model::Value;
use postrider_telemetry::Block;
use serde_json::Value as Json;

use super::config::{Config, DEFAULT_CLOCK_SKEW, Provider, Requirement, Source, bare_audience};
use super::extract::{Found, Places};
use super::keys::Keys;
use super::status::Status;
use super::store::Store;
use super::token::{Token, claim_text, object_value};
use super::{NAMESPACE, stat};

/// The check comes to no end without the keys of one of these providers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NeedsKeys(pub(super) Vec<usize>);

/// What was got for this request while it waited; `None` is a failure.
pub(super) type Answers = Vec<(usize, Option<Arc<Keys>>)>;

pub(super) struct Check<'c> {
    pub(super) config: &'c Config,
    pub(super) store: &'c Store,
    pub(super) stats: &'c Block,
    pub(super) answers: &'c Answers,
    pub(super) now: Moment,
}

/// Whose tokens are looked for, and how strictly.
#[derive(Clone, Copy)]
struct Strictness<'a> {
    provider: Option<usize>,
    audiences: &'a [String],
    allow_missing: bool,
    allow_failed: bool,
}

impl Check<'_> {
    /// # Errors
    /// Keys are missing; then the request may have been changed already.
    pub(super) fn requirement(&self, of: &Requirement, stream: &mut Stream<'_>) -> Result<Status, NeedsKeys> {
        match of {
            Requirement::Nothing => Ok(Status::Ok),
            Requirement::Provider { index, audiences } => {
                let Some(provider) = self.config.providers.get(*index) else { return Ok(Status::UnknownIssuer) };
                let own = Strictness { provider: Some(*index), audiences, allow_missing: false, allow_failed: false };
                self.tokens(&provider.places, own, stream)
            }
            Requirement::IfPresent { or_failed } => {
                let any = Strictness { provider: None, audiences: &[], allow_missing: true, allow_failed: *or_failed };
                self.tokens(&self.config.all_places, any, stream)
            }
            Requirement::Marked(mark) => {
                let any = Strictness { provider: None, audiences: &[], allow_missing: true, allow_failed: true };
                let status = self.last_of_tokens(&self.config.all_places, any, stream)?;
                if !matches!(status, Status::Ok | Status::Missing) {
                    // Of a checked name.
                    let _ = stream.request.fields.set_header(mark, b"false");
                }
                Ok(Status::Ok)
            }
            // While one waits for keys the others are looked at: they may decide without them, and whose keys are needed
            // as well is asked at the same time.
            Requirement::All(all) => {
                let mut needed = Vec::new();
                for one in all {
                    match self.requirement(one, stream) {
                        Ok(Status::Ok) => {}
                        Ok(status) => return Ok(status),
                        Err(NeedsKeys(more)) => needed.extend(more),
                    }
                }
                if needed.is_empty() { Ok(Status::Ok) } else { Err(NeedsKeys(needed)) }
            }
            Requirement::Any { of, or_missing, or_failed } => {
                let mut outcome = Status::Missing;
                let mut needed = Vec::new();
                for one in of {
                    let status = match self.requirement(one, stream) {
                        Ok(Status::Ok) => return Ok(Status::Ok),
                        Ok(status) => status,
                        Err(NeedsKeys(more)) => {
                            needed.extend(more);
                            continue;
                        }
                    };
                    // What is wrong with a token says more than that there is none of this provider's.
                    let says_little = matches!(status, Status::Missing | Status::UnknownIssuer);
                    if !says_little || outcome == Status::Missing {
                        outcome = status;
                    }
                }
                if !needed.is_empty() {
                    return Err(NeedsKeys(needed));
                }
                let is_fine = *or_failed || *or_missing && outcome == Status::Missing;
                Ok(if is_fine { Status::Ok } else { outcome })
            }
        }
    }

    fn tokens(&self, places: &Places, how: Strictness<'_>, stream: &mut Stream<'_>) -> Result<Status, NeedsKeys> {
        let last = self.last_of_tokens(places, how, stream)?;
        let is_fine = how.allow_failed || how.allow_missing && last == Status::Missing;
        Ok(if is_fine { Status::Ok } else { last })
    }

    /// What became of the token that was looked at last.
    fn last_of_tokens(
        &self,
        places: &Places,
        how: Strictness<'_>,
        stream: &mut Stream<'_>,
    ) -> Result<Status, NeedsKeys> {
        self.forget(how.provider, stream);
        let mut found = places.find(stream.request);
        let mut last = Status::Missing;
        if found.is_empty() {
            self.note_failure(last, None, stream);
        }
        // All tokens must be good: else the upstream might look at another one than we did.
        // The one that a token was of is that of the next one, too, until that one names its issuer, as in Envoy.
        let mut provider = how.provider;
        while let Some(token) = found.pop() {
            last = match self.token(&token, how, &mut provider, stream) {
                Ok(()) => Status::Ok,
                Err(Stop::Status(status)) => status,
                Err(Stop::NeedsKeys(needed)) => return Err(needed),
            };
            if last != Status::Ok {
                self.note_failure(last, provider, stream);
                if !how.allow_missing && !how.allow_failed {
                    break;
                }
            }
        }
        Ok(last)
    }

    /// As in Envoy, whoever looks for tokens begins with headers that nobody has set: those of the provider, or of all.
    fn forget(&self, provider: Option<usize>, stream: &mut Stream<'_>) {
        let whose =
            self.config.providers.iter().enumerate().filter(|(index, _)| provider.is_none_or(|own| own == *index));
        for name in whose.flat_map(|(_, provider)| provider.own_headers()) {
            stream.request.fields.remove_header(name);
        }
    }

    fn token(
        &self,
        found: &Found<'_>,
        how: Strictness<'_>,
        whose: &mut Option<usize>,
        stream: &mut Stream<'_>,
    ) -> Result<(), Stop> {
        let wall = stream.host.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = wall.as_secs();
        let known = how.provider.and_then(|index| self.known(index, &found.token, now));
        let is_known = known.is_some();
        let token = match known {
            Some(token) => token,
            None => Rc::new(Token::parse(&found.token).map_err(Stop::Status)?),
        };
        if !found.may_be_of(&token.iss) {
            return Err(Stop::Status(Status::UnknownIssuer));
        }
        *whose = how.provider.or_else(|| self.by_issuer(&token.iss));
        let known_provider = whose.and_then(|index| Some((index, self.config.providers.get(index)?)));
        let (index, provider) = known_provider.ok_or(Stop::Status(Status::UnknownIssuer))?;
        token.check_time(now, provider.clock_skew).map_err(Stop::Status)?;
        check_claims(&token, provider, how.audiences, wall).map_err(Stop::Status)?;
        if !is_known {
            self.verify(&token, index, provider)?;
            if how.provider.is_some() {
                self.store.remember(index, &found.token, &token);
            }
        }
        apply(&token, provider, found, stream);
        Ok(())
    }

    /// A token that was found good before and has not expired, by the usual skew; its time is checked once more.
    fn known(&self, provider: usize, text: &str, now: u64) -> Option<Rc<Token>> {
        let is_alive = |token: &Rc<Token>| token.check_time(now, DEFAULT_CLOCK_SKEW) != Err(Status::Expired);
        let known = self.store.known(provider, text).filter(is_alive);
        // A check that begins again was counted.
        if self.answers.is_empty() {
            self.stats.inc(if known.is_some() { stat::JWT_CACHE_HIT } else { stat::JWT_CACHE_MISS });
        }
        known
    }

    /// The first provider with that issuer, or else the first for any.
    fn by_issuer(&self, issuer: &str) -> Option<usize> {
        let position = |wanted: &str| self.config.providers.iter().position(|provider| provider.issuer == wanted);
        position(issuer).or_else(|| position(""))
    }

    fn verify(&self, token: &Token, index: usize, provider: &Provider) -> Result<(), Stop> {
        let status = match &provider.source {
            Source::Here(keys) => keys.verify(token),
            Source::Remote(remote) => match self.answers.iter().find(|(answered, _)| *answered == index) {
                Some((_, Some(keys))) => keys.verify(token),
                Some((_, None)) => Status::Fetch,
                None => match self.store.keys(index, remote, self.now) {
                    Some(keys) => keys.verify(token),
                    None => return Err(Stop::NeedsKeys(NeedsKeys(vec![index]))),
                },
            },
        };
        if status == Status::Ok { Ok(()) } else { Err(Stop::Status(status)) }
    }

    /// Where nobody knows whose token it should be, the only provider decides.
    fn note_failure(&self, status: Status, provider: Option<usize>, stream: &mut Stream<'_>) {
        let single = (self.config.providers.len() == 1).then_some(0);
        // A token that is missing was never anybody's.
        let provider = provider.or(single).and_then(|index| self.config.providers.get(index));
        let Some(provider) = provider.filter(|provider| !provider.failure_key.is_empty()) else { return };
        let entries = vec![
            ("code".to_owned(), Value::Number(status.code())),
            ("message".to_owned(), Value::String(status.text().to_owned())),
        ];
        stream.info.metadata.set(NAMESPACE, &provider.failure_key, Value::Map(entries));
    }
}

enum Stop {
    Status(Status),
    NeedsKeys(NeedsKeys),
}

fn check_claims(token: &Token, provider: &Provider, audiences: &[String], now: Duration) -> Result<(), Status> {
    let audiences = if audiences.is_empty() { &provider.audiences } else { audiences };
    let is_meant = |audience: &String| audiences.iter().any(|known| known == bare_audience(audience));
    if !audiences.is_empty() && !token.audiences.iter().any(is_meant) {
        return Err(Status::Audience);
    }
    if provider.subjects.as_ref().is_some_and(|rule| !rule.matches(&token.sub)) {
        return Err(Status::Verification);
    }
    if let Some(longest) = provider.max_lifetime {
        // With the fraction of the second: a token that is used when it was issued is as good as it was meant.
        let left = Duration::from_secs(token.exp).checked_sub(now);
        if token.exp == 0 || left.is_some_and(|left| left >= longest) {
            return Err(Status::Verification);
        }
    } else if provider.require_expiration && token.exp == 0 {
        return Err(Status::Verification);
    }
    Ok(())
}

/// What a good token does: headers for the upstream, notes in the metadata.
fn apply(token: &Token, provider: &Provider, found: &Found<'_>, stream: &mut Stream<'_>) {
    let fields = &mut stream.request.fields;
    if let Some(name) = &provider.payload_header {
        let mut payload = token.payload_text.clone();
        while provider.pad_payload && !payload.len().is_multiple_of(4) {
            payload.push('=');
        }
        // Base64 can stand in any header; so below, what cannot is left out.
        let _ = fields.append_header(name, payload.as_bytes());
    }
    let mut told = false;
    for (name, path) in &provider.claims {
        let text = token.claim(path).and_then(claim_text);
        told |= text.is_some_and(|text| fields.append_header(name, text.as_bytes()).is_ok());
    }
    if !provider.forward {
        found.remove(stream);
    }
    let metadata = &mut stream.info.metadata;
    if !provider.header_key.is_empty() {
        metadata.set(NAMESPACE, &provider.header_key, object_value(&token.header));
    }
    if !provider.payload_key.is_empty() {
        metadata.set(NAMESPACE, &provider.payload_key, payload(token, provider));
    }
    if provider.clear_route_cache && (told || !provider.payload_key.is_empty()) {
        stream.info.route_is_stale = true;
    }
}

fn payload(token: &Token, provider: &Provider) -> Value {
    let mut payload = object_value(&token.payload);
    if let Value::Map(entries) = &mut payload {
        for (name, value) in entries {
            if provider.space_delimited.contains(name)
                && let Some(Json::String(text)) = token.payload.get(name)
            {
                let words = text.split(' ').filter(|word| !word.is_empty());
                let words: Vec<Value> = words.map(|word| Value::String(word.to_owned())).collect();
                // A text without a word stays one.
                if !words.is_empty() {
                    *value = Value::List(words);
                }
            }
        }
    }
    payload
}
