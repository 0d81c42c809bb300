//! Answers in the place of others, chosen by status and headers.
//!
//! Configured as `envoy.extensions.filters.http.custom_response.v3.CustomResponse`, for the whole gateway and for route
//! tables, virtual hosts, routes and weighted clusters: the most specific one in which something matches decides. Answers
//! of upstreams and of the proxy itself are treated alike; but nothing is fetched in the place of one by a filter in
//! front, whose word a second request would ask for again.

mod config;
mod local;
mod redirect;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::cel::Facts;
use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, WatchedFile,
};
use postrider_model::{MatchContext, MatchTree, Reading, Value, ValueError};
use postrider_telemetry::Block;

use config::Policy;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.custom_response.v3.CustomResponse";

type Tree = Arc<Option<MatchTree<Policy>>>;

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let (tree, files) = read(value)?;
    Ok(Arc::new(CustomResponse { tree, files }))
}

fn read(value: &Value) -> Result<(Tree, Vec<WatchedFile>), ConfigError> {
    let mut files = Vec::new();
    let tree = Reading::all(value, |at| {
        at.map("custom_response_matcher", |at| {
            MatchTree::read(at, MatchContext::Answers, &mut |at, kind| Policy::read(at, kind, &mut files))
        })
    })?;
    Ok((Arc::new(tree.flatten()), files))
}

struct CustomResponse {
    tree: Tree,
    files: Vec<WatchedFile>,
}

/// The answers of one scope.
struct Scope(Tree);

impl Factory for CustomResponse {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != KIND {
            let message = format!("custom_response is overridden by {KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let (tree, files) = read(value)?;
        Ok(RouteConfig { files, ..RouteConfig::new(Scope(tree), value) })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let scopes = configs.specific_first::<Scope>().map(|scope| &scope.0);
        let trees: Vec<Tree> = scopes.chain([&self.tree]).filter(|tree| tree.is_some()).cloned().collect();
        Rc::new(Replacer::new(trees, place))
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }
}

postrider_telemetry::stat_set! {
    /// Answers that could not be fetched; prefix: the connection manager's.
    mod stat = "http";
    counters {
        CUSTOM_RESPONSE_INVALID_URI = "custom_response_invalid_uri",
        CUSTOM_RESPONSE_REDIRECT_NO_ROUTE = "custom_response_redirect_no_route",
    }
}

/// The stream's state: the request came by here.
const SEEN: u64 = 1;

/// The filter on one worker, as one route sees it.
struct Replacer {
    /// The most specific scope first.
    trees: Vec<Tree>,
    /// `None` where no answer is fetched.
    stats: Option<Rc<Block>>,
}

impl Filter for Replacer {
    fn hooks(&self) -> Hooks {
        // Also where nothing is chosen: the route may become another, and what was fetched for one comes by.
        let any = !self.trees.is_empty();
        Hooks {
            request_headers: true,
            response_headers: true,
            response_body: any,
            keeps_bodies: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, _: &mut Stream<'_>, _end: bool) -> Action {
        *state = State::Number(SEEN);
        Action::Done
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        if redirect::finish(stream) {
            return Action::Done;
        }
        match self.policy(stream) {
            // The body of an answer of our own may be wanted in the one that takes its place.
            Some(Policy::Local(policy)) if !end && policy.wants_body && stream.info.is_local_reply() => Action::Buffer,
            Some(Policy::Local(policy)) => policy.answer(stream, b""),
            Some(Policy::Redirect(_)) if stream.info.is_local_reply() && !matches!(state, State::Number(SEEN)) => {
                Action::Done
            }
            Some(Policy::Redirect(policy)) => policy.detour(stream).unwrap_or_else(|why| {
                self.stats.iter().for_each(|stats| stats.inc(why));
                Action::Done
            }),
            None => Action::Done,
        }
    }

    fn on_response_body(&self, _: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        match self.policy(stream) {
            Some(Policy::Local(_)) if !end => Action::Buffer,
            Some(Policy::Local(policy)) => {
                let body = stream.response_body.bytes().to_vec();
                policy.answer(stream, &body)
            }
            // Nothing could be fetched, or nothing matches any more.
            Some(Policy::Redirect(_)) | None => Action::Done,
        }
    }
}

impl Replacer {
    fn new(trees: Vec<Tree>, place: &Place<'_>) -> Replacer {
        let mut actions = trees.iter().filter_map(|tree| tree.as_ref().as_ref()).flat_map(MatchTree::actions);
        let fetches = actions.any(|policy| matches!(policy, Policy::Redirect(_)));
        let stats = fetches.then(|| place.stats.block(&stat::SET, place.stat_prefix));
        Replacer { trees, stats }
    }

    fn policy(&self, stream: &Stream<'_>) -> Option<&Policy> {
        let facts = Facts::of_answer(stream);
        self.trees.iter().find_map(|tree| tree.as_ref().as_ref()?.find(&facts))
    }
}

#[cfg(test)]
mod tests;
