//! Counts gRPC calls and their messages, by cluster and, where that is asked for, by method.
//!
//! Configured as `envoy.extensions.filters.http.grpc_stats.v3.FilterConfig`; there is nothing that a route could change.
//! It looks at frames as they pass and holds nothing.

mod config;

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, StreamInfo,
};
use postrider_http::grpc::{self, FrameCounter};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::grpc_counts::{self, Counts, Method, stat};
use config::Config;

pub(crate) const KIND: &str = "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig";

/// Under this name the counts of a stream are in its filter state.
const STATE_NAME: &str = "envoy.filters.http.grpc_stats";

pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(GrpcStats(Arc::new(config::read(value)?))))
}

struct GrpcStats(Arc<Config>);

impl Factory for GrpcStats {
    fn route_config(&self, kind: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = format!("grpc_stats has no overrides, so {kind} is none for it");
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Counter { config: self.0.clone(), counts: Counts::new(place.stats, "grpc") })
    }
}

/// The filter on one worker.
struct Counter {
    config: Arc<Config>,
    counts: Counts,
}

/// One call.
struct Call {
    /// What it is counted as; `None`: not at all.
    method: Option<Option<Method>>,
    block: Option<Rc<Block>>,
    requests: FrameCounter,
    responses: FrameCounter,
    /// The answer's body is one of messages.
    answers_grpc: bool,
    /// Messages of the request that passed before the cluster was known.
    waiting: u64,
}

impl Filter for Counter {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: true,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            complete: true,
            keeps_bodies: true,
            ..Hooks::default()
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        if !grpc::has_content_type(&stream.request.fields) {
            return Action::Done;
        }
        let method = self.config.methods.name(stream.request.path_only());
        let (requests, responses) = (FrameCounter::default(), FrameCounter::default());
        *state =
            State::Any(Box::new(Call { method, block: None, requests, responses, answers_grpc: false, waiting: 0 }));
        Action::Continue
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        let more = call.requests.feed(stream.request_body.bytes());
        if more > 0 {
            call.waiting += more;
            self.emit(call, stream);
            self.settle(call, grpc_counts::cluster(stream).as_deref());
        }
        Action::Continue
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        self.settle(call, grpc_counts::cluster(stream).as_deref());
        if let Some(block) = &call.block {
            grpc_counts::count_status(block, &stream.response.fields);
            if end {
                self.count_time(block, stream);
            }
        }
        call.answers_grpc = stream.response.status() == 200 && grpc::has_content_type(&stream.response.fields);
        Action::Continue
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        let Some(call) = call(state) else { return Action::Done };
        if !call.answers_grpc {
            return Action::Continue;
        }
        let more = call.responses.feed(stream.response_body.bytes());
        if more > 0 {
            self.emit(call, stream);
            if let Some(block) = &call.block {
                block.add(stat::RESPONSE_MESSAGES, more);
            }
        }
        Action::Continue
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        if let Some(Call { block: Some(block), .. }) = call(state) {
            grpc_counts::count_status(block, stream.response_trailers);
            self.count_time(block, stream);
        }
        Action::Continue
    }

    fn on_complete(&self, state: &mut State, info: &StreamInfo) {
        if let Some(call) = call(state).filter(|call| call.waiting > 0) {
            self.settle(call, info.upstream_cluster.as_deref());
        }
    }
}

impl Counter {
    /// Finds where the call is counted, once its cluster is known, and counts what waited for that.
    fn settle(&self, call: &mut Call, cluster: Option<&str>) {
        if let (None, Some(method), Some(cluster)) = (&call.block, &call.method, cluster) {
            call.block = Some(self.counts.of(cluster, method.as_ref()));
        }
        if let Some(block) = call.block.as_ref().filter(|_| call.waiting > 0) {
            block.add(stat::REQUEST_MESSAGES, std::mem::take(&mut call.waiting));
        }
    }

    /// How long the upstream took, from the last byte of the request to the last of the answer.
    fn count_time(&self, block: &Block, stream: &Stream<'_>) {
        if self.config.upstream_time
            && let Some(sent) = stream.info.request_sent
        {
            block.record(stat::UPSTREAM_TIME, stream.host.now().millis_since(sent));
        }
    }

    fn emit(&self, call: &Call, stream: &mut Stream<'_>) {
        if !self.config.emit_filter_state {
            return;
        }
        // Numbers of 64 bits are strings in the JSON of protocol buffers, which leaves zeros out.
        let count = |(name, counter): (&str, &FrameCounter)| {
            let messages = counter.messages();
            (messages > 0).then(|| (name.to_owned(), Value::String(messages.to_string())))
        };
        let counts = [("requestMessageCount", &call.requests), ("responseMessageCount", &call.responses)];
        let object = Value::Map(counts.into_iter().filter_map(count).collect());
        let all = &mut stream.info.filter_state;
        match all.iter_mut().find(|(name, _)| name == STATE_NAME) {
            Some((_, known)) => *known = object,
            None => all.push((STATE_NAME.to_owned(), object)),
        }
    }
}

fn call(state: &mut State) -> Option<&mut Call> {
    match state {
        State::Any(call) => call.downcast_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
