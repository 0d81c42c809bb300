//! Answers in the place of others, chosen by status and headers.
//!
//! Configured as `envoy.extensions.filters.http.custom_response.v3.CustomResponse`, for the whole gateway and for route
//! tables, virtual hosts, routes and weighted clusters: the most specific one in which something matches decides. Answers
//! of upstreams and of the proxy itself are treated alike.

mod config;
mod tree;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, LocalReply, Place, RouteConfig, ScopedConfigs, State, Stream,
    WatchedFile,
};
use postrider_http::ResponseHead;
use postrider_model::{AppendAction, Reading, Value, ValueError};

use config::{Details, Policy};
use tree::Tree;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.custom_response.v3.CustomResponse";

/// What `%RESPONSE_CODE_DETAILS%` says of answers that came from an upstream.
const VIA_UPSTREAM: &str = "via_upstream";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let (tree, files) = read(value)?;
    Ok(Arc::new(CustomResponse { tree: Arc::new(tree), files }))
}

fn read(value: &Value) -> Result<(Option<Tree>, Vec<WatchedFile>), ConfigError> {
    let mut files = Vec::new();
    let tree = Reading::all(value, |at| {
        at.map("custom_response_matcher", |at| Tree::read(at, &mut |at| Policy::read(at, &mut files)))
    })?;
    Ok((tree, files))
}

struct CustomResponse {
    tree: Arc<Option<Tree>>,
    files: Vec<WatchedFile>,
}

/// The answers of one scope.
struct Scope(Arc<Option<Tree>>);

impl Factory for CustomResponse {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("custom_response is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let (tree, files) = read(value)?;
        Ok(RouteConfig { files, ..RouteConfig::new(Scope(Arc::new(tree)), value) })
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        let scopes = configs.specific_first::<Scope>().map(|scope| &scope.0);
        Rc::new(Replacer(scopes.chain([&self.tree]).filter(|tree| tree.is_some()).cloned().collect()))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

/// The filter on one worker, as one route sees it: the most specific scope first.
struct Replacer(Vec<Arc<Option<Tree>>>);

impl Filter for Replacer {
    fn hooks(&self) -> Hooks {
        let any = !self.0.is_empty();
        Hooks { response_headers: any, response_body: any, keeps_bodies: true, ..Hooks::default() }
    }

    fn on_response_headers(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(policy) = self.policy(stream) else { return Action::Done };
        // The body of an answer of our own may be wanted in the one that takes its place.
        if !end && policy.wants_body && is_local(stream) {
            return Action::Buffer;
        }
        answer(policy, stream, b"")
    }

    fn on_response_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if !end {
            return Action::Buffer;
        }
        let Some(policy) = self.policy(stream) else { return Action::Continue };
        let body = stream.response_body.bytes().to_vec();
        answer(policy, stream, &body)
    }
}

impl Replacer {
    fn policy(&self, stream: &Stream<'_>) -> Option<&Policy> {
        self.0.iter().find_map(|tree| tree.as_ref().as_ref()?.find(stream))
    }
}

fn is_local(stream: &Stream<'_>) -> bool {
    stream.info.details != VIA_UPSTREAM
}

/// `known`: the body of the answer that is replaced, if it counts.
fn answer(policy: &Policy, stream: &mut Stream<'_>, known: &[u8]) -> Action {
    let status = policy.status.unwrap_or_else(|| stream.response.status());
    let own = policy.body.as_deref();
    let body = match &policy.format {
        Some(format) => {
            let mut body = Vec::new();
            stream.host.write(stream, format, own.unwrap_or(known), &mut body);
            body
        }
        None => own.unwrap_or_default().to_vec(),
    };
    let headers = headers(policy, stream);
    let details = match &policy.details {
        Details::None => {
            stream.info.details = Cow::Borrowed("");
            Cow::Borrowed("")
        }
        Details::Kept => Cow::Borrowed(""),
        Details::Own(details) => Cow::Owned(details.clone()),
    };
    Action::Respond(Box::new(LocalReply { status, body: body.into(), headers, details, ..LocalReply::default() }))
}

/// A header's name and value, as a local reply has them.
type Field = (Cow<'static, str>, Cow<'static, [u8]>);

/// What is added to the answer. Its own headers, such as its content type, come later: nothing exists yet that could be
/// overwritten, and no format sees headers of an answer.
fn headers(policy: &Policy, stream: &mut Stream<'_>) -> Vec<Field> {
    let replaced = std::mem::replace(stream.response, ResponseHead::new());
    let (mut set, mut added): (Vec<Field>, Vec<Field>) = (Vec::new(), Vec::new());
    for header in &policy.headers {
        let mut value = Vec::new();
        stream.host.format(stream, &header.value, &mut value);
        if value.is_empty() && !header.keep_empty {
            continue;
        }
        let field = (Cow::Owned(header.name.clone()), Cow::Owned(value));
        match header.action {
            AppendAction::OverwriteIfExistsOrAdd => {
                set.retain(|(name, _)| *name != field.0);
                set.push(field);
            }
            AppendAction::AppendIfExistsOrAdd | AppendAction::AddIfAbsent => added.push(field),
            AppendAction::OverwriteIfExists => {}
        }
    }
    *stream.response = replaced;
    set.extend(added);
    set
}

#[cfg(test)]
mod tests;
