//! What the filter is configured by: `JwtAuthentication` and `PerRouteConfig`.

use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_http::HeaderName;
use postrider_model::{Reading, RetryOn, RetryPolicy, StringMatch, Value, call_retry_policy, string_match};

use super::extract::{Place, Places};
use super::keys::Keys;
use crate::read::{HttpUri, data_source, header, http_uri, own_header};
use crate::request_match::RequestMatch;

pub(super) const DEFAULT_CLOCK_SKEW: u64 = 60;
const DEFAULT_KEYS_DURATION: Duration = Duration::from_secs(600);
const DEFAULT_REFETCH_AFTER_FAILURE: Duration = Duration::from_secs(1);
const DEFAULT_CACHE_TOKENS: usize = 100;
const DEFAULT_CACHED_TOKEN_BYTES: usize = 4096;

/// How deep requirements may stand in requirements.
const MAX_DEPTH: usize = 32;

#[derive(Debug)]
pub(super) struct Config {
    pub(super) providers: Vec<Provider>,
    /// Where tokens of any provider may stand.
    pub(super) all_places: Places,
    /// What only this filter may say: taken from each request that comes.
    pub(super) own_headers: Vec<HeaderName>,
    pub(super) rules: Vec<(RequestMatch, Requirement)>,
    pub(super) by_state: Option<ByState>,
    pub(super) named: Vec<(String, Requirement)>,
    pub(super) bypass_cors_preflight: bool,
    pub(super) strip_failure_response: bool,
    pub(super) stat_prefix: String,
    pub(super) files: Vec<WatchedFile>,
}

/// Requirements by the value of an object in the filter state.
#[derive(Debug)]
pub(super) struct ByState {
    pub(super) name: String,
    pub(super) requirements: Vec<(String, Requirement)>,
}

#[derive(Debug, Clone)]
pub(super) enum Requirement {
    Nothing,
    Provider {
        index: usize,
        /// In place of the provider's own.
        audiences: Vec<String>,
    },
    Any {
        of: Vec<Requirement>,
        or_missing: bool,
        or_failed: bool,
    },
    All(Vec<Requirement>),
    /// Any provider's token, if there is one; a bad one is all right where `or_failed`.
    IfPresent {
        or_failed: bool,
    },
    /// The same, and a bad one is told of in this header.
    Marked(HeaderName),
}

/// Says of a request that its token is no good, where another header is not named.
const MARK: &str = "x-jwt-signature-verified";

impl Requirement {
    /// The headers that tell of bad tokens.
    fn add_marks(&self, to: &mut Vec<HeaderName>) {
        match self {
            Requirement::Marked(name) => to.push(name.clone()),
            Requirement::Any { of, .. } | Requirement::All(of) => of.iter().for_each(|one| one.add_marks(to)),
            Requirement::Nothing | Requirement::Provider { .. } | Requirement::IfPresent { .. } => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Provider {
    pub(super) issuer: String,
    pub(super) audiences: Vec<String>,
    pub(super) subjects: Option<StringMatch>,
    pub(super) require_expiration: bool,
    pub(super) max_lifetime: Option<Duration>,
    pub(super) clock_skew: u64,
    pub(super) source: Source,
    pub(super) forward: bool,
    pub(super) places: Places,
    pub(super) payload_header: Option<HeaderName>,
    pub(super) pad_payload: bool,
    /// Keys in the metadata; empty where nothing is noted.
    pub(super) payload_key: String,
    pub(super) header_key: String,
    pub(super) failure_key: String,
    pub(super) space_delimited: Vec<String>,
    pub(super) claims: Vec<(HeaderName, Vec<String>)>,
    pub(super) clear_route_cache: bool,
    pub(super) cache: Option<CacheLimits>,
}

impl Provider {
    /// Headers that tell the upstream of its tokens: nobody else sets them.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.payload_header.iter().chain(self.claims.iter().map(|(name, _)| name))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLimits {
    pub(super) tokens: usize,
    pub(super) token_bytes: usize,
}

/// Where keys come from.
#[derive(Debug)]
pub(super) enum Source {
    Here(Arc<Keys>),
    Remote(Box<Remote>),
}

#[derive(Debug)]
pub(super) struct Remote {
    pub(super) uri: HttpUri,
    pub(super) retries: Option<Arc<RetryPolicy>>,
    /// How long keys are good.
    pub(super) duration: Duration,
    /// They are asked for before they are needed, and stay good until there are new ones; after a failure, that is tried
    /// again so much later.
    pub(super) in_background: Option<Duration>,
}

/// What a route says.
#[derive(Debug)]
pub(super) enum Override {
    Disabled,
    Named(String),
}

pub(super) fn read_route(value: &Value) -> Result<Override, ConfigError> {
    Reading::all(value, |at| match (at.flag("disabled"), at.text("requirement_name")) {
        (true, None) => Override::Disabled,
        (false, Some(name)) => Override::Named(name.to_owned()),
        _ => {
            at.wrong("either disabled: true or requirement_name is wanted");
            Override::Disabled
        }
    })
}

pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    Reading::all(value, |at| {
        let mut files = Vec::new();
        let providers = at.map("providers", |all| {
            let names = all.keys();
            names.filter_map(|name| all.map(name, |at| provider(at, &mut files)).flatten()).collect()
        });
        // What a broken provider is called counts, so that nobody who asks for it is wrong as well.
        let names: Vec<&str> = match value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key == "providers").map_or(Vec::new(), keys_of),
            _ => Vec::new(),
        };
        let providers: Vec<Provider> = providers.unwrap_or_default();
        let named = at.map("requirement_map", |all| requirements(all, &names)).unwrap_or_default();
        let rules = at.each("rules", |rule| self::rule(rule, &names, &named));
        let rules: Vec<(RequestMatch, Requirement)> = rules.into_iter().flatten().collect();
        let by_state = at.map("filter_state_rules", |at| {
            let name = at.text("name").unwrap_or_default().to_owned();
            if name.is_empty() {
                at.error("name", "the name of a filter state object is required");
            }
            let requirements = at.map("requires", |all| self::requirements(all, &names)).unwrap_or_default();
            ByState { name, requirements }
        });
        let mut all_places = Places::default();
        providers.iter().for_each(|provider| all_places.add_all(&provider.places));
        let mut own_headers: Vec<HeaderName> = providers.iter().flat_map(Provider::own_headers).cloned().collect();
        let of_state = by_state.iter().flat_map(|by_state| &by_state.requirements);
        let asked = named.iter().chain(of_state).map(|(_, requirement)| requirement);
        for requirement in rules.iter().map(|(_, requirement)| requirement).chain(asked) {
            requirement.add_marks(&mut own_headers);
        }
        Config {
            all_places,
            own_headers,
            providers,
            rules,
            by_state,
            named,
            bypass_cors_preflight: at.flag("bypass_cors_preflight"),
            strip_failure_response: at.flag("strip_failure_response"),
            stat_prefix: at.text("stat_prefix").unwrap_or_default().to_owned(),
            files,
        }
    })
}

fn keys_of((_, value): &(String, Value)) -> Vec<&str> {
    match value {
        Value::Map(entries) => entries.iter().map(|(key, _)| key.as_str()).collect(),
        _ => Vec::new(),
    }
}

fn provider(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Provider> {
    let issuer = at.text("issuer").unwrap_or_default().to_owned();
    let subjects = at.map("subjects", string_match);
    let here = data_source(at, "local_jwks", files).and_then(|text| match Keys::parse(&text) {
        Ok(keys) => Some(Source::Here(Arc::new(keys))),
        Err(message) => {
            at.error("local_jwks", message);
            None
        }
    });
    let remote = at.map("remote_jwks", remote).map(|remote| remote.map(|remote| Source::Remote(Box::new(remote))));
    if at.has("local_jwks") == at.has("remote_jwks") {
        at.wrong("either remote_jwks or local_jwks is required");
    }
    let places = places(at, &issuer);
    let skew = at.number("clock_skew_seconds").unwrap_or(0);
    let cache = at.map("jwt_cache_config", |at| {
        let number = |at: &mut Reading<'_>, key: &str, default: usize| match at.number(key).unwrap_or(0) {
            0 => default,
            number => usize::try_from(number).unwrap_or(default),
        };
        CacheLimits {
            tokens: number(at, "jwt_cache_size", DEFAULT_CACHE_TOKENS),
            token_bytes: number(at, "jwt_max_token_size", DEFAULT_CACHED_TOKEN_BYTES),
        }
    });
    let normalize = at.map("normalize_payload_in_metadata", |at| at.texts("space_delimited_claims"));
    let text = |at: &mut Reading<'_>, key: &str| at.text(key).unwrap_or_default().to_owned();
    Some(Provider {
        audiences: at.texts("audiences").iter().map(|audience| bare_audience(audience).to_owned()).collect(),
        subjects: match subjects {
            Some(rule) => Some(rule?),
            None => None,
        },
        require_expiration: at.flag("require_expiration"),
        max_lifetime: at.duration("max_lifetime"),
        clock_skew: if skew == 0 { DEFAULT_CLOCK_SKEW } else { skew },
        forward: at.flag("forward"),
        places,
        payload_header: own_header(at, "forward_payload_header"),
        pad_payload: at.flag("pad_forward_payload_header"),
        payload_key: text(at, "payload_in_metadata"),
        header_key: text(at, "header_in_metadata"),
        failure_key: text(at, "failed_status_in_metadata"),
        space_delimited: normalize.unwrap_or_default(),
        claims: at.each("claim_to_headers", claim).into_iter().flatten().collect(),
        clear_route_cache: at.flag("clear_route_cache"),
        cache,
        issuer,
        source: here.or(remote.flatten())?,
    })
}

/// An audience without the scheme and the last slash of a URL: with and without them it is the same.
pub(super) fn bare_audience(audience: &str) -> &str {
    let bare = audience.strip_prefix("http://").or_else(|| audience.strip_prefix("https://")).unwrap_or(audience);
    bare.strip_suffix('/').unwrap_or(bare)
}

fn places(at: &mut Reading<'_>, issuer: &str) -> Places {
    let mut all = Places::default();
    let headers = at.each("from_headers", |at| {
        let name = header(at, "name");
        if name.is_none() && !at.has("name") {
            at.error("name", "the name of a header is required");
        }
        let name = String::from_utf8_lossy(name?.as_bytes()).to_ascii_lowercase();
        Some(Place::Header { name, prefix: at.text("value_prefix").unwrap_or_default().to_owned() })
    });
    let mut found: Vec<Option<Place>> = headers;
    found.extend(at.texts("from_params").into_iter().map(|name| Some(Place::Parameter(name))));
    found.extend(at.texts("from_cookies").into_iter().map(|name| Some(Place::Cookie(name))));
    if found.is_empty() {
        let bearer = Place::Header { name: "authorization".to_owned(), prefix: "Bearer ".to_owned() };
        found = vec![Some(bearer), Some(Place::Parameter("access_token".to_owned()))];
    }
    found.into_iter().flatten().for_each(|place| all.add(place, issuer));
    all
}

fn claim(at: &mut Reading<'_>) -> Option<(HeaderName, Vec<String>)> {
    let name = own_header(at, "header_name");
    if name.is_none() && !at.has("header_name") {
        at.error("header_name", "the name of a header is required");
    }
    let dotted = at.text("claim_name").map(|path| path.split('.').map(str::to_owned).collect());
    let path = at.each("claim_path", |segment| {
        let key = segment.text("key").unwrap_or_default().to_owned();
        if key.is_empty() {
            segment.error("key", "the name of a claim is required");
        }
        key
    });
    let path = match (dotted, path.is_empty()) {
        (Some(dotted), true) => dotted,
        (None, false) => path,
        _ => {
            at.wrong("either claim_name or claim_path is required");
            return None;
        }
    };
    Some((name?, path))
}

fn remote(at: &mut Reading<'_>) -> Option<Remote> {
    let retries = at.map("retry_policy", call_retry_policy).map(for_keys);
    let uri = at.map("http_uri", http_uri);
    if uri.is_none() {
        at.error("http_uri", "where the keys are is required");
    }
    if uri.as_ref().is_some_and(|uri| !uri.authority.is_empty() && !uri.is_absolute) {
        at.error("http_uri.uri", "a URI with its scheme is wanted, as in `https://keys.example.com/all.json`");
    }
    let in_background = at.map("async_fetch", |at| {
        // Listeners do not wait for keys: requests do.
        at.bool("fast_listener");
        at.duration("failed_refetch_duration").unwrap_or(DEFAULT_REFETCH_AFTER_FAILURE)
    });
    let duration = at.duration("cache_duration").unwrap_or(DEFAULT_KEYS_DURATION);
    Some(Remote { uri: uri?, retries, duration, in_background })
}

/// Envoy asks again for its own reasons, whatever is written.
fn for_keys(written: RetryPolicy) -> Arc<RetryPolicy> {
    let (on, _) = RetryOn::parse("5xx,gateway-error,connect-failure,reset");
    Arc::new(RetryPolicy { on, ..written })
}

fn requirements(all: &mut Reading<'_>, providers: &[&str]) -> Vec<(String, Requirement)> {
    let names = all.keys();
    let read = |name: &str| Some((name.to_owned(), all.map(name, |at| requirement(at, providers, 0))?));
    names.filter_map(read).collect()
}

fn rule(
    at: &mut Reading<'_>,
    providers: &[&str],
    named: &[(String, Requirement)],
) -> Option<(RequestMatch, Requirement)> {
    let rule = at.map("match", RequestMatch::read);
    if rule.is_none() {
        at.error("match", "which requests it is about is required");
    }
    let own = at.map("requires", |at| requirement(at, providers, 0));
    let by_name = at.text("requirement_name").map(|name| match named.iter().find(|(known, _)| known == name) {
        Some((_, requirement)) => requirement.clone(),
        None => {
            let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
            at.error("requirement_name", format!("\"{name}\" is none of requirement_map: [{}]", names.join(", ")));
            Requirement::Nothing
        }
    });
    if own.is_some() && by_name.is_some() {
        at.wrong("requires and requirement_name exclude each other");
    }
    Some((rule.flatten()?, own.or(by_name).unwrap_or(Requirement::Nothing)))
}

fn requirement(at: &mut Reading<'_>, providers: &[&str], depth: usize) -> Requirement {
    if depth == MAX_DEPTH {
        at.wrong(format!("requirements may stand {MAX_DEPTH} deep in each other"));
        at.skip();
        return Requirement::Nothing;
    }
    let mut found = Vec::new();
    found.extend(at.map("extract_only_without_validation", |at| {
        let usual = || HeaderName::new(MARK.as_bytes()).ok();
        let written = at.text("verification_status_header").is_some_and(|name| !name.is_empty());
        let name = if written { own_header(at, "verification_status_header") } else { usual() };
        name.map_or(Requirement::Nothing, Requirement::Marked)
    }));
    if at.has("provider_name") {
        found.extend(by_name(at, providers).map(|index| Requirement::Provider { index, audiences: Vec::new() }));
    }
    found.extend(at.map("provider_and_audiences", |at| {
        let audiences = at.texts("audiences").iter().map(|audience| bare_audience(audience).to_owned()).collect();
        by_name(at, providers).map_or(Requirement::Nothing, |index| Requirement::Provider { index, audiences })
    }));
    let each = |at: &mut Reading<'_>| {
        let all = at.each("requirements", |at| requirement(at, providers, depth + 1));
        if all.len() < 2 {
            at.error("requirements", "at least two are required");
        }
        all
    };
    found.extend(at.map("requires_all", each).map(Requirement::All));
    found.extend(at.map("requires_any", each).map(|all| {
        let has = |wanted: bool| {
            all.iter().any(|one| matches!(one, Requirement::IfPresent { or_failed } if *or_failed == wanted))
        };
        let (or_failed, or_missing) = (has(true), has(false));
        let of: Vec<Requirement> =
            all.iter().filter(|one| !matches!(one, Requirement::IfPresent { .. })).cloned().collect();
        if of.is_empty() {
            Requirement::IfPresent { or_failed }
        } else {
            Requirement::Any { of, or_missing, or_failed }
        }
    }));
    found.extend(at.map("allow_missing", |_| Requirement::IfPresent { or_failed: false }));
    found.extend(at.map("allow_missing_or_failed", |_| Requirement::IfPresent { or_failed: true }));
    if found.len() > 1 {
        at.wrong("one kind of requirement is wanted");
    }
    found.pop().unwrap_or(Requirement::Nothing)
}

/// The place of the provider that is named.
fn by_name(at: &mut Reading<'_>, providers: &[&str]) -> Option<usize> {
    let name = at.text("provider_name").unwrap_or_default();
    let found = providers.iter().position(|known| *known == name);
    if found.is_none() {
        at.error("provider_name", format!("there is no provider \"{name}\"; there are [{}]", providers.join(", ")));
    }
    found
}
