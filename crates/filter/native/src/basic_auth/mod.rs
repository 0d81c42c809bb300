//! HTTP basic authentication (RFC 7617) against a list of users.
//!
//! Configured as `envoy.extensions.filters.http.basic_auth.v3.BasicAuth`; a virtual host, route or weighted cluster
//! may bring its own users by `BasicAuthPerRoute`, and the most specific list counts alone. Answers are byte for byte
//! those of Envoy 1.40. The filter never tells by its timing whether a user exists or how much of a password was
//! right, and after a client's first request costs one look into a small cache ([`cache`]).

mod cache;
mod users;

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    WatchedFile,
};
use postrider_http::{HeaderId, HeaderName, RequestHead, is_field_value};
use postrider_model::{Reading, Value, ValueError};
use postrider_telemetry::Block;

use crate::read::header;
use crate::request_parts::{quotable_uri, quoted};
use cache::Verified;
use users::Users;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.basic_auth.v3.BasicAuth";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.basic_auth.v3.BasicAuthPerRoute";

/// Where a verified user's name is noted, under the filter's own name.
const USER_KEY: &str = "username";

/// Reads a gateway-level configuration.
pub(crate) fn build(name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let mut files = Vec::new();
    let (users, realm, rules) = Reading::all(value, |at| {
        let users = Users::read(at, &mut files);
        let rules = Rules {
            forward: header(at, "forward_username_header"),
            credentials: header(at, "authentication_header").unwrap_or(HeaderId::Authorization.into()),
            allow_missing: at.flag("allow_missing"),
            notes: at.flag("emit_dynamic_metadata").then(|| name.into()),
        };
        (Arc::new(users), realm(at), rules)
    })?;
    Ok(Arc::new(BasicAuth { users, realm, rules, files }))
}

struct BasicAuth {
    users: Arc<Users>,
    /// Asked for by name instead of by the request's URI; quoted.
    realm: Option<Arc<[u8]>>,
    rules: Rules,
    files: Vec<WatchedFile>,
}

/// What holds in every scope.
#[derive(Clone)]
struct Rules {
    /// Tells the upstream who it was.
    forward: Option<HeaderName>,
    /// Where the client's credentials stand.
    credentials: HeaderName,
    /// Who says nothing, or something of another scheme, may go on.
    allow_missing: bool,
    /// The namespace that a verified user's name is noted in.
    notes: Option<Arc<str>>,
}

/// What a more specific scope brings.
struct RouteUsers {
    users: Arc<Users>,
    /// The filter's where there is none.
    realm: Option<Arc<[u8]>>,
}

impl Factory for BasicAuth {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("basic_auth is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut files = Vec::new();
        let own = Reading::all(value, |at| {
            let users = Arc::new(Users::read(at, &mut files));
            RouteUsers { users, realm: realm(at) }
        })?;
        Ok(RouteConfig { files, ..RouteConfig::new(own, value) })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let route = configs.most_specific::<RouteUsers>();
        Rc::new(Gate {
            users: Arc::clone(route.map_or(&self.users, |route| &route.users)),
            realm: route.and_then(|route| route.realm.clone()).or_else(|| self.realm.clone()),
            rules: self.rules.clone(),
            verified: RefCell::new(Verified::new()),
            stats: place.stats.block(&stat::SET, &format!("{}.basic_auth", place.stat_prefix)),
        })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

/// The filter on one worker.
struct Gate {
    users: Arc<Users>,
    realm: Option<Arc<[u8]>>,
    rules: Rules,
    verified: RefCell<Verified>,
    stats: Rc<Block>,
}

postrider_telemetry::stat_set! {
    /// Requests by outcome; prefix: the connection manager's, then `basic_auth`.
    mod stat = "http";
    counters { ALLOWED = "allowed", DENIED = "denied" }
}

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denial {
    NoCredential,
    Scheme,
    Format,
    Credential,
}

/// Decodes what clients send, without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// As in Envoy, up to two `=` may stand at the end, however many belong there.
fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let bare = encoded.strip_suffix(b"=").unwrap_or(encoded);
    BASE64.decode(bare.strip_suffix(b"=").unwrap_or(bare)).ok()
}

impl Filter for Gate {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let action = match self.authenticate(stream.request) {
            Ok(user) => self.admit(user, stream),
            // Neither let in nor turned away: who comes after this filter is to judge, so nothing is counted.
            Err(Denial::NoCredential | Denial::Scheme) if self.rules.allow_missing => return Action::Continue,
            Err(denial) => self.deny(denial, stream.request),
        };
        match action {
            Action::Respond(_) => self.stats.inc(stat::DENIED),
            _ => self.stats.inc(stat::ALLOWED),
        }
        action
    }
}

impl Gate {
    /// The number of the user whose valid credentials the request carries.
    fn authenticate(&self, request: &RequestHead) -> Result<u32, Denial> {
        let Some(value) = request.fields.find(&self.rules.credentials) else { return Err(Denial::NoCredential) };
        // The scheme's name is compared as Envoy does, with its case.
        let Some(encoded) = value.strip_prefix(b"Basic ") else { return Err(Denial::Scheme) };
        // Several lines count as one joined by a comma, which is no base64.
        if request.fields.find_all(&self.rules.credentials).nth(1).is_some() {
            return Err(Denial::Format);
        }
        if let Some(user) = self.verified.borrow().find(value) {
            return Ok(user);
        }
        let decoded = decoded(encoded).ok_or(Denial::Format)?;
        let colon = decoded.iter().position(|byte| *byte == b':').ok_or(Denial::Format)?;
        let (name, password) = decoded.split_at_checked(colon).ok_or(Denial::Format)?;
        let user = self.users.verify(name, password.get(1..).unwrap_or_default()).ok_or(Denial::Credential)?;
        self.verified.borrow_mut().insert(value, user);
        Ok(user)
    }

    fn admit(&self, user: u32, stream: &mut Stream<'_>) -> Action {
        let name = self.users.name(user);
        // What a client wrote there itself is overwritten. A name which no field can hold must not pass unnamed.
        if let Some(header) = &self.rules.forward
            && stream.request.fields.set_header(header, name).is_err()
        {
            return self.deny(Denial::Credential, stream.request);
        }
        if let Some(namespace) = &self.rules.notes {
            let name = String::from_utf8_lossy(name).into_owned();
            stream.info.metadata.set(namespace, USER_KEY, Value::String(name));
        }
        Action::Continue
    }

    #[cold]
    fn deny(&self, denial: Denial, request: &RequestHead) -> Action {
        let realm = self.realm.as_deref().map_or_else(|| Cow::Owned(quotable_uri(request)), Cow::Borrowed);
        refusal(denial, &realm)
    }
}

fn refusal(denial: Denial, realm: &[u8]) -> Action {
    let (body, details) = match denial {
        Denial::NoCredential => {
            ("User authentication failed. Missing username and password.", "no_credential_for_basic_auth")
        }
        Denial::Scheme => {
            ("User authentication failed. Expected 'Basic' authentication scheme.", "invalid_scheme_for_basic_auth")
        }
        Denial::Format => {
            ("User authentication failed. Invalid basic credential format.", "invalid_format_for_basic_auth")
        }
        Denial::Credential => {
            ("User authentication failed. Invalid username/password combination.", "invalid_credential_for_basic_auth")
        }
    };
    Action::Respond(Box::new(LocalReply {
        status: 401,
        body: Cow::Borrowed(body.as_bytes()),
        headers: vec![(Cow::Borrowed("www-authenticate"), Cow::Owned([b"Basic realm=\"", realm, b"\""].concat()))],
        details: Cow::Borrowed(details),
        ..LocalReply::default()
    }))
}

/// The realm that clients are told, in quotes' own form; an empty one means none.
fn realm(at: &mut Reading<'_>) -> Option<Arc<[u8]>> {
    let text = at.text("realm")?;
    if !is_field_value(text.as_bytes()) || text.contains('\t') {
        at.error("realm", "a realm holds no control characters");
        return None;
    }
    Some(quoted(text.bytes()).into())
}

#[cfg(test)]
mod tests;
