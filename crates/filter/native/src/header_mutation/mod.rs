//! Adds, overwrites and removes header and trailer fields of requests and responses, and parameters of the query.
//!
//! Configured as `envoy.extensions.filters.http.header_mutation.v3.HeaderMutation`; route tables, virtual hosts, routes
//! and weighted clusters add their own mutations by `HeaderMutationPerRoute`. The gateway's mutations come first.
//! Those of the scopes follow, the most specific first, so that a later, less specific one has the last word; with
//! `most_specific_header_mutations_wins` it is the other way round. Fields that frame or route the message are out of
//! reach: `host`, everything that begins with `:`, and the hop-by-hop fields, which the proxy writes itself.

mod config;
mod query;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, WatchedFile,
};
use postrider_http::{Fields, HeaderName};
use postrider_model::{AppendAction, Format, StringMatch, Value, ValueError};

use config::Mutations;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
const ROUTE_KIND: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute";

/// Reads a gateway-level configuration.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let (mutations, most_specific_wins) = config::read_gateway(value)?;
    Ok(Arc::new(HeaderMutation { mutations: Arc::new(mutations), most_specific_wins }))
}

struct HeaderMutation {
    mutations: Arc<Mutations>,
    most_specific_wins: bool,
}

/// The mutations of one scope.
struct RouteMutations(Arc<Mutations>);

impl Factory for HeaderMutation {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("header_mutation is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mutations = config::read_route(value)?;
        let files = mutations.files.clone();
        Ok(RouteConfig { files, ..RouteConfig::new(RouteMutations(Arc::new(mutations)), value) })
    }

    fn files(&self) -> &[WatchedFile] {
        &self.mutations.files
    }

    fn filter(&self, configs: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        let mut scopes = vec![Arc::clone(&self.mutations)];
        let specific_first = configs.specific_first::<RouteMutations>().map(|scope| Arc::clone(&scope.0));
        if self.most_specific_wins {
            scopes.extend(specific_first.rev());
        } else {
            scopes.extend(specific_first);
        }
        Rc::new(Mutator { scopes, scratch: RefCell::default() })
    }
}

/// One step of a list.
#[derive(Debug)]
enum Mutation {
    Remove(HeaderName),
    /// Removes every field whose lower-case name matches.
    RemoveMatching(StringMatch),
    Append(Append),
}

#[derive(Debug)]
struct Append {
    name: HeaderName,
    value: Format,
    action: AppendAction,
    /// Add the field even when its value turns out empty.
    keep_empty: bool,
}

/// The filter on one worker: the lists of all scopes in the order in which they apply.
struct Mutator {
    scopes: Vec<Arc<Mutations>>,
    /// Where values are put together.
    scratch: RefCell<Vec<u8>>,
}

/// Which fields a list is about.
#[derive(Clone, Copy)]
enum Target {
    Request,
    RequestTrailers,
    Response,
    ResponseTrailers,
}

impl Filter for Mutator {
    fn hooks(&self) -> Hooks {
        let any = |list: fn(&Mutations) -> &[Mutation]| self.scopes.iter().any(|scope| !list(scope).is_empty());
        Hooks {
            request_headers: any(|scope| &scope.request) || self.scopes.iter().any(|scope| !scope.query.is_empty()),
            request_trailers: any(|scope| &scope.request_trailers),
            response_headers: any(|scope| &scope.response),
            response_trailers: any(|scope| &scope.response_trailers),
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        for scope in &self.scopes {
            self.apply(&scope.request, stream, Target::Request);
            query::apply(&scope.query, stream, &mut self.scratch.borrow_mut());
        }
        Action::Continue
    }

    fn on_request_trailers(&self, _: &mut State, stream: &mut Stream<'_>) -> Action {
        self.scopes.iter().for_each(|scope| self.apply(&scope.request_trailers, stream, Target::RequestTrailers));
        Action::Continue
    }

    fn on_response_headers(&self, _: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        self.scopes.iter().for_each(|scope| self.apply(&scope.response, stream, Target::Response));
        Action::Continue
    }

    fn on_response_trailers(&self, _: &mut State, stream: &mut Stream<'_>) -> Action {
        self.scopes.iter().for_each(|scope| self.apply(&scope.response_trailers, stream, Target::ResponseTrailers));
        Action::Continue
    }
}

impl Mutator {
    fn apply(&self, list: &[Mutation], stream: &mut Stream<'_>, target: Target) {
        let mut scratch = self.scratch.borrow_mut();
        for mutation in list {
            if let Mutation::Append(append) = mutation {
                scratch.clear();
                stream.host.format(stream, &append.value, &mut scratch);
            }
            let fields = match target {
                Target::Request => &mut stream.request.fields,
                Target::RequestTrailers => &mut *stream.request_trailers,
                Target::Response => &mut stream.response.fields,
                Target::ResponseTrailers => &mut *stream.response_trailers,
            };
            match mutation {
                Mutation::Remove(name) => {
                    fields.remove_header(name);
                }
                Mutation::RemoveMatching(condition) => {
                    fields.retain(|field| {
                        crate::read::is_protected(field.name)
                            || !std::str::from_utf8(field.name).is_ok_and(|name| condition.matches(name))
                    });
                }
                Mutation::Append(append) => append.apply(&scratch, fields),
            }
        }
    }
}

impl Append {
    fn apply(&self, value: &[u8], fields: &mut Fields) {
        if value.is_empty() && !self.keep_empty {
            return;
        }
        let exists = || fields.find(&self.name).is_some();
        let done = match self.action {
            AppendAction::AppendIfExistsOrAdd => fields.append_header(&self.name, value),
            AppendAction::AddIfAbsent if exists() => return,
            AppendAction::AddIfAbsent => fields.append_header(&self.name, value),
            AppendAction::OverwriteIfExists if !exists() => return,
            AppendAction::OverwriteIfExists | AppendAction::OverwriteIfExistsOrAdd => {
                fields.set_header(&self.name, value)
            }
        };
        // A value is literal text checked at configuration, or part of a message that was checked when it came in;
        // the one way to fail is a head that cannot hold more fields, and then it stays as it is.
        debug_assert!(!matches!(done, Err(postrider_http::FieldError::Name)));
    }
}

#[cfg(test)]
mod tests;
