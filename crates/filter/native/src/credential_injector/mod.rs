//! Credentials of the proxy's own in requests: a secret, or a token that an authorization server gives for one.
//!
//! Configured as `envoy.extensions.filters.http.credential_injector.v3.CredentialInjector`, for the whole gateway. Answers,
//! statistics and what a token is asked for with are those of Envoy 1.40.
//!
//! ```text
//! head ──> has it one already? ──yes──> on
//!                │ the credential is here: it is written into its header
//!                └ it is on its way: the request pauses while one call gets it for all who wait
//! ```

mod config;
mod token;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    WatchedFile,
};
use postrider_http::HeaderName;
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::per_worker::FilterNumber;
use config::{Config, Credential};
use token::{Found, Tokens};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let (config, files) = config::read(value)?;
    Ok(Arc::new(CredentialInjector { number: FilterNumber::next(), config: Arc::new(config), files }))
}

struct CredentialInjector {
    number: FilterNumber,
    config: Arc<Config>,
    files: Vec<WatchedFile>,
}

impl Factory for CredentialInjector {
    fn route_config(&self, _: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = "credential_injector has no configuration of routes: they can only disable it".to_owned();
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let prefix = format!("{}.credential_injector", place.stat_prefix);
        let tokens = match &self.config.credential {
            Credential::Fixed { .. } => None,
            Credential::Token(_) => Some(Tokens::of(self.number, place, &prefix)),
        };
        Rc::new(Injector { config: self.config.clone(), tokens, stats: place.stats.block(&stat::SET, &prefix) })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

postrider_telemetry::stat_set! {
    /// Requests by what became of the credential; prefix: the connection manager's, then `credential_injector`.
    mod stat = "http";
    counters {
        ALREADY_EXISTS = "already_exists",
        FAILED = "failed",
        INJECTED = "injected",
    }
}

/// The filter on one worker.
struct Injector {
    config: Arc<Config>,
    /// `None` where the credential is written in the configuration.
    tokens: Option<Rc<Tokens>>,
    stats: Rc<Block>,
}

impl Filter for Injector {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        let header = self.config.header();
        if !self.config.overwrite && stream.request.fields.find(header).is_some() {
            self.stats.inc(stat::ALREADY_EXISTS);
            return Action::Done;
        }
        match &self.config.credential {
            Credential::Fixed { value, .. } => self.inject(stream, value.as_ref().map(|secret| &***secret)),
            Credential::Token(client) => match self.tokens.as_ref().map(|tokens| tokens.find(client, stream)) {
                Some(Found::Soon) => Action::Pause,
                Some(Found::Now(token)) => self.inject(stream, Some(&token)),
                Some(Found::Nowhere) | None => self.inject(stream, None),
            },
        }
    }

    /// The token came, or there is none.
    fn on_request_resumed(&self, _: &mut State, stream: &mut Stream<'_>) -> Action {
        let token = self.tokens.as_ref().and_then(|tokens| tokens.current());
        self.inject(stream, token.as_deref())
    }
}

impl Injector {
    fn inject(&self, stream: &mut Stream<'_>, credential: Option<&[u8]>) -> Action {
        let set = credential.map(|credential| stream.request.fields.set_header(self.config.header(), credential));
        if matches!(set, Some(Ok(()))) {
            self.stats.inc(stat::INJECTED);
            return Action::Done;
        }
        self.stats.inc(stat::FAILED);
        if self.config.allow_without {
            return Action::Done;
        }
        Action::Respond(Box::new(LocalReply {
            status: 401,
            body: Cow::Borrowed(b"Failed to inject credential."),
            details: Cow::Borrowed("failed_to_inject_credential"),
            ..LocalReply::default()
        }))
    }
}

impl Config {
    fn header(&self) -> &HeaderName {
        match &self.credential {
            Credential::Fixed { header, .. } => header,
            Credential::Token(client) => &client.header,
        }
    }
}

#[cfg(test)]
mod tests;
