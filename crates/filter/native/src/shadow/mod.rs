//! Another filter's decisions without their consequences: what it would refuse is counted, noted and let through.
//!
//! Configured as `postrider.filters.http.shadow.v3.Shadow` around any other filter's configuration; `ShadowPerRoute`
//! enforces it for some routes. The wrapped filter is asked as ever, through the filter contract; only an answer of its
//! own goes no further. Whatever else it does (waiting, asking services, editing what it lets through, its own counters
//! and metadata) it does.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{
    Action, ConfigError, Ended, Factory, Filter, Flow, Hooks, Place, Registry, RouteConfig, ScopedConfigs, State,
    Stream, StreamInfo, WatchedFile,
};
use postrider_model::{Reading, Value, ValueError};
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;

pub(crate) const KIND: &str = "postrider.filters.http.shadow.v3.Shadow";
const ROUTE_KIND: &str = "postrider.filters.http.shadow.v3.ShadowPerRoute";

/// Reads a gateway-level configuration, and that of the filter in it.
pub(crate) fn build(registry: &Registry, name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    let (inner, prefix) = Reading::all(value, |at| {
        let inner = shadowed(at);
        if inner.is_none() {
            at.error("filter", "the filter to put in the shadow is required, with its `@type`");
        }
        (inner, at.text("stat_prefix").unwrap_or(name).replace(':', "_"))
    })?;
    let (kind, config) = inner.unwrap_or_default();
    let built = registry.build(name, &kind, &config).unwrap_or_else(|| {
        Err(vec![ValueError {
            path: String::new(),
            message: format!("no filter takes a configuration of type {kind}"),
        }])
    });
    Ok(Arc::new(Shadow { name: name.to_owned(), prefix, inner: built.map_err(below)? }))
}

/// The type and the configuration that an `Any` holds.
fn shadowed(at: &mut Reading<'_>) -> Option<(String, Value)> {
    let Some(Value::Map(entries)) = at.value("filter") else { return None };
    let (urls, fields): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|(key, _)| key == "@type");
    match urls.into_iter().next()? {
        (_, Value::String(url)) => Some((url.rsplit('/').next()?.to_owned(), Value::Map(fields))),
        _ => None,
    }
}

/// The errors of the wrapped configuration, with their places in the whole.
fn below(errors: ConfigError) -> ConfigError {
    let path = |path: String| match path.as_str() {
        "" => "filter".to_owned(),
        _ => format!("filter.{path}"),
    };
    errors.into_iter().map(|error| ValueError { path: path(error.path), ..error }).collect()
}

struct Shadow {
    name: String,
    prefix: String,
    inner: Arc<dyn Factory>,
}

/// What a more specific scope says.
struct Override {
    enforced: bool,
    inner: Option<RouteConfig>,
}

impl Factory for Shadow {
    fn route_config(&self, kind: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        if kind != ROUTE_KIND {
            return self.inner.route_config(kind, value);
        }
        let (enforced, inner) = Reading::all(value, |at| (at.flag("enforced"), shadowed(at)))?;
        let inner = match inner {
            Some((kind, config)) => Some(self.inner.route_config(&kind, &config).map_err(below)?),
            None => None,
        };
        let files = inner.as_ref().map(|inner| inner.files.clone()).unwrap_or_default();
        Ok(RouteConfig { value: Arc::new(Override { enforced, inner }), files, shown: value.clone() })
    }

    fn filter(&self, configs: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let own = |config: &Option<RouteConfig>| match config.as_ref()?.value.downcast_ref::<Override>() {
            Some(own) => own.inner.clone(),
            None => config.clone(),
        };
        let below = ScopedConfigs {
            table: own(&configs.table),
            virtual_host: own(&configs.virtual_host),
            route: own(&configs.route),
            weighted_cluster: own(&configs.weighted_cluster),
        };
        let inner = self.inner.filter(&below, place);
        if configs.most_specific::<Override>().is_some_and(|own| own.enforced) {
            return inner;
        }
        Rc::new(Onlooker {
            inner,
            name: self.name.clone(),
            stats: place.stats.block(&stat::SET, &format!("{}.shadow.{}", place.stat_prefix, self.prefix)),
            buffer_limit: place.buffer_limit,
        })
    }

    fn arrive(&self, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        self.inner.arrive(place)
    }

    fn files(&self) -> &[WatchedFile] {
        self.inner.files()
    }

    fn is_current(&self) -> bool {
        self.inner.is_current()
    }

    fn plugin(&self) -> Option<&Facts> {
        self.inner.plugin()
    }
}

postrider_telemetry::stat_set! {
    /// What would have been refused; prefix: the connection manager's, `shadow`, and the filter's name.
    mod stat = "http";
    counters {
        WOULD_DENY = "would_deny",
        WOULD_DENY_2XX = "would_deny_2xx",
        WOULD_DENY_3XX = "would_deny_3xx",
        WOULD_DENY_4XX = "would_deny_4xx",
        WOULD_DENY_5XX = "would_deny_5xx",
    }
}

/// The filter on one worker, as one route sees it.
struct Onlooker {
    inner: Rc<dyn Filter>,
    name: String,
    stats: Rc<Block>,
    /// What the connection lets filters hold.
    buffer_limit: usize,
}

/// One stream's.
#[derive(Default)]
struct Progress {
    inner: State,
    /// The filter gave its answer: it is asked nothing more.
    denied: bool,
    /// The most bytes that it holds of the request.
    limit: Option<u32>,
}

impl Filter for Onlooker {
    fn hooks(&self) -> Hooks {
        Hooks { complete: true, ..self.inner.hooks() }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_request_headers(state, stream, end))
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let held = stream.request_body.bytes().len();
        if let Some(progress) = progress(state)
            && progress.limit.is_some_and(|limit| held > limit as usize)
            && !progress.denied
        {
            return self.deny(progress, stream, 413, "request_payload_too_large");
        }
        self.ask(state, stream, |inner, state, stream| inner.on_request_body(state, stream, end))
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_request_trailers(state, stream))
    }

    fn on_request_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_request_resumed(state, stream))
    }

    fn on_request_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let Some(progress) = progress(state).filter(|progress| !progress.denied) else { return Flow::Release };
        let flow = self.inner.on_request_flow(&mut progress.inner, stream);
        self.let_flow(progress, stream, flow)
    }

    fn on_response_flow(&self, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let Some(progress) = progress(state).filter(|progress| !progress.denied) else { return Flow::Release };
        let flow = self.inner.on_response_flow(&mut progress.inner, stream);
        self.let_flow(progress, stream, flow)
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_response_headers(state, stream, end))
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_response_body(state, stream, end))
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_response_trailers(state, stream))
    }

    fn on_response_resumed(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        self.ask(state, stream, |inner, state, stream| inner.on_response_resumed(state, stream))
    }

    fn on_complete(&self, state: &mut State, info: &StreamInfo) {
        if let Some(progress) = progress(state)
            && self.inner.hooks().complete
        {
            self.inner.on_complete(&mut progress.inner, info);
        }
    }

    fn on_ended(&self, state: &mut State, ended: &Ended<'_>) {
        if let Some(progress) = progress(state)
            && self.inner.hooks().complete
        {
            self.inner.on_ended(&mut progress.inner, ended);
        }
    }
}

fn progress(state: &mut State) -> Option<&mut Progress> {
    match state {
        State::Any(progress) => progress.downcast_mut(),
        _ => None,
    }
}

impl Onlooker {
    /// Asks the filter, and keeps an answer of its own from the client.
    fn ask(
        &self,
        state: &mut State,
        stream: &mut Stream<'_>,
        hook: impl FnOnce(&dyn Filter, &mut State, &mut Stream<'_>) -> Action,
    ) -> Action {
        let Some(progress) = state.get_or_insert_with(Progress::default) else { return Action::Done };
        if progress.denied {
            return Action::Done;
        }
        let (flags, limit) = (stream.info.flags, stream.info.request_buffer_limit.take());
        let action = hook(&*self.inner, &mut progress.inner, stream);
        if let Some(own) = stream.info.request_buffer_limit {
            // More than the filter would hold must not be refused by the pipeline in its name.
            progress.limit = Some(own);
            let slack = u32::try_from(self.buffer_limit).unwrap_or(u32::MAX);
            stream.info.request_buffer_limit = Some(own.saturating_add(slack));
        } else {
            stream.info.request_buffer_limit = limit;
        }
        let (status, details) = match action {
            Action::Respond(reply) => (reply.status, reply.details),
            // An answer from elsewhere is one of its own.
            Action::Detour(_) | Action::Anew(_) => (stream.response.status(), "internal_redirect".into()),
            action => return action,
        };
        // A request that was not refused has no flag of one that was.
        stream.info.flags = flags;
        self.deny(progress, stream, status, &details)
    }

    /// What a filter that took a message over lets go on; in place of an answer, the rest of the message.
    fn let_flow(&self, progress: &mut Progress, stream: &mut Stream<'_>, flow: Flow) -> Flow {
        let Flow::Respond(reply) = flow else { return flow };
        self.deny(progress, stream, reply.status, &reply.details);
        Flow::Release
    }

    fn deny(&self, progress: &mut Progress, stream: &mut Stream<'_>, status: u16, details: &str) -> Action {
        progress.denied = true;
        self.stats.inc(stat::WOULD_DENY);
        if let Some(class) = class(status) {
            self.stats.inc(class);
        }
        let metadata = &mut stream.info.metadata;
        metadata.set(&self.name, "shadow_status", Value::Integer(status.into()));
        metadata.set(&self.name, "shadow_details", Value::String(details.to_owned()));
        Action::Done
    }
}

fn class(status: u16) -> Option<Counter> {
    match status / 100 {
        2 => Some(stat::WOULD_DENY_2XX),
        3 => Some(stat::WOULD_DENY_3XX),
        4 => Some(stat::WOULD_DENY_4XX),
        5 => Some(stat::WOULD_DENY_5XX),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
