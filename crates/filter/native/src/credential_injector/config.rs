//! What the filter is configured by, and the credentials in it: `Generic` and `OAuth2`.

use std::time::Duration;

use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_http::{HeaderId, HeaderName, is_field_value};
use postrider_model::{Reading, Value};

use crate::read::{self, HttpUri, http_uri};

const GENERIC: &str = "envoy.extensions.http.injected_credentials.generic.v3.Generic";
const OAUTH2: &str = "envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2";

const DEFAULT_RETRY_INTERVAL: Duration = Duration::from_secs(2);
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Config {
    pub(super) credential: Credential,
    /// A credential that is there already does not stay.
    pub(super) overwrite: bool,
    /// A request that no credential can be given goes on all the same.
    pub(super) allow_without: bool,
}

#[derive(Debug)]
pub(super) enum Credential {
    Fixed {
        header: HeaderName,
        /// `None`: the secret is empty.
        value: Option<Box<Secret>>,
    },
    Token(Box<Client>),
}

/// What asks for tokens.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) header: HeaderName,
    pub(super) endpoint: HttpUri,
    /// What it is asked; `None`: there is no secret to ask with.
    pub(super) question: Option<Box<Secret>>,
    /// After a failure, it is asked again so much later.
    pub(super) retry_after: Duration,
}

/// Bytes that are shown to nobody.
pub(super) struct Secret(Vec<u8>);

impl std::ops::Deref for Secret {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

pub(super) fn read(value: &Value) -> Result<(Config, Vec<WatchedFile>), ConfigError> {
    let mut files = Vec::new();
    let config = Reading::all(value, |at| {
        let credential = at.map("credential", |at| credential(at, &mut files));
        if credential.is_none() {
            at.error("credential", "what is put into requests is required");
        }
        let config = Config {
            credential: credential.flatten()?,
            overwrite: at.flag("overwrite"),
            allow_without: at.flag("allow_request_without_credential"),
        };
        Some(config)
    })?;
    // Whoever makes none has said why.
    config.map(|config| (config, files)).ok_or_else(Vec::new)
}

/// `TypedExtensionConfig`.
fn credential(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Credential> {
    at.text("name");
    let made = at.map("typed_config", |at| {
        let url = at.text("@type").unwrap_or_default();
        match url.rsplit('/').next().unwrap_or_default() {
            GENERIC => generic(at, files),
            OAUTH2 => oauth2(at, files).map(|client| Credential::Token(Box::new(client))),
            kind => {
                at.error("@type", format!("{kind}: not supported by Postrider here; {GENERIC} and {OAUTH2} are"));
                at.skip();
                None
            }
        }
    });
    if made.is_none() {
        at.error("typed_config", "a credential is required");
    }
    made.flatten()
}

fn generic(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Credential> {
    let header = match at.has("header") {
        true => read::own_header(at, "header")?,
        false => HeaderId::Authorization.into(),
    };
    let prefix = at.text("header_value_prefix").unwrap_or_default().as_bytes();
    let secret = secret(at, "credential", files)?;
    let value = (!secret.is_empty()).then(|| [prefix, &secret].concat());
    if value.as_ref().is_some_and(|value| !is_field_value(value)) {
        at.error("credential", "a header value cannot hold control characters, which this secret or its prefix has");
    }
    Some(Credential::Fixed { header, value: value.map(|value| Box::new(Secret(value))) })
}

fn oauth2(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Client> {
    let endpoint = at.map("token_endpoint", http_uri);
    if endpoint.is_none() {
        at.error("token_endpoint", "where tokens are asked for is required");
    }
    let scopes = at.texts("scopes").join(" ");
    let more = at.each("endpoint_params", |at| {
        let name = at.text("name").unwrap_or_default().to_owned();
        if name.is_empty() {
            at.error("name", "the name of a parameter is required");
        }
        (name, at.text("value").unwrap_or_default().to_owned())
    });
    let retry_after = at.duration("token_fetch_retry_interval").unwrap_or(DEFAULT_RETRY_INTERVAL);
    if retry_after < MIN_RETRY_INTERVAL {
        at.error("token_fetch_retry_interval", "one second at least is wanted");
    }
    let question = at.map("client_credentials", |at| question(at, &scopes, &more, files));
    if question.is_none() {
        at.error("client_credentials", "who asks is required: the one flow that there is");
    }
    Some(Client { header: HeaderId::Authorization.into(), endpoint: endpoint?, question: question??, retry_after })
}

/// The body of the request of RFC 6749 section 4.4.2. `Some(None)` where there is no secret to ask with.
fn question(
    at: &mut Reading<'_>,
    scopes: &str,
    more: &[(String, String)],
    files: &mut Vec<WatchedFile>,
) -> Option<Option<Box<Secret>>> {
    let id = at.text("client_id").unwrap_or_default();
    if id.is_empty() {
        at.error("client_id", "the client's name is required");
    }
    // The other two kinds are sent alike by Envoy: what it calls BASIC_AUTH is in the body, too.
    let by_certificate = at.text("auth_type") == Some("TLS_CLIENT_AUTH");
    let secret = if at.has("client_secret") { secret(at, "client_secret", files)? } else { Vec::new() };
    let mut form = vec![("grant_type", b"client_credentials".as_slice()), ("client_id", id.as_bytes())];
    if !by_certificate {
        form.push(("client_secret", &secret));
    }
    if !scopes.is_empty() {
        form.push(("scope", scopes.as_bytes()));
    }
    form.extend(more.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let asks = by_certificate || !secret.is_empty();
    Some(asks.then(|| Box::new(Secret(encoded(&form)))))
}

/// As `application/x-www-form-urlencoded`.
fn encoded(form: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let put = |bytes: &[u8], out: &mut Vec<u8>| {
        for &byte in bytes {
            match byte {
                b'-' | b'.' | b'_' | b'~' => out.push(byte),
                _ if byte.is_ascii_alphanumeric() => out.push(byte),
                _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            }
        }
    };
    for (name, value) in form {
        if !out.is_empty() {
            out.push(b'&');
        }
        put(name.as_bytes(), &mut out);
        out.push(b'=');
        put(value, &mut out);
    }
    out
}

/// `SdsSecretConfig`: what it names was put into it by whoever knows names. `None` after an error.
fn secret(at: &mut Reading<'_>, key: &str, files: &mut Vec<WatchedFile>) -> Option<Vec<u8>> {
    let read = at.map(key, |at| {
        at.text("name");
        at.value("sds_config");
        let secret = at.map("generic_secret", |at| {
            at.refuse("secrets", "secrets of several parts");
            match at.has("secret") {
                true => read::data_source(at, "secret", files),
                false => Some(Vec::new()),
            }
        });
        secret.flatten()
    });
    if read.is_none() {
        at.error(key, "the name of a secret is required");
    }
    let mut secret = read.flatten()?;
    // Files end with a line break, which no header can hold.
    let end = secret.trim_ascii_end().len();
    secret.truncate(end);
    Some(secret)
}
