//! Traces of requests and their answers, for people who look into traffic: written to files, or sent to whoever asks the
//! admin for them.
//!
//! Configured as `envoy.extensions.filters.http.tap.v3.Tap`, or as `postrider.filters.http.tap.v3.Tap` around it, which
//! says which failures are wanted and what is secret. Traces are those of Envoy 1.40, but that values of secrets are masked.
//!
//! ```text
//!            worker                                         elsewhere
//! headers ─┐
//! body ────┼─> recording ──matches──> trace ──bounded──> file per trace (files), or the admin's client (live)
//! trailers ┘      └─ cannot match any more: dropped      made text and bytes there (format)
//! ```
//!
//! It changes nothing and holds nothing back. A filter that waits for somebody to ask costs a request one look at a number.

mod config;
mod files;
mod format;
mod live;
mod mask;
mod outlet;
mod predicate;
mod recording;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{
    Action, ConfigError, Factory, Filter, Hooks, Place, RouteConfig, ScopedConfigs, State, Stream, StreamInfo,
};
use postrider_http::{Fields, RequestHead};
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;

use crate::{request_parts, shown};
use config::{Config, Held, Source};
use live::Slot;
use predicate::{Part, Side};
use recording::{Recording, Shown};

pub use config::Batch;
pub use files::finish;
pub use live::{Attached, attach};
pub use outlet::{Deliver, MAX_WAITING_BYTES, Traced};

pub(crate) const KIND: &str = "envoy.extensions.filters.http.tap.v3.Tap";
pub(crate) const OWN_KIND: &str = "postrider.filters.http.tap.v3.Tap";

/// The state of a stream that is not tapped.
const PASSES: State = State::Number(0);

/// Reads a configuration as it is known elsewhere.
pub(crate) fn build(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Tapping::new(config::read(value)?)))
}

/// Reads one with our own fields.
pub(crate) fn build_own(_name: &str, value: &Value) -> Result<Arc<dyn Factory>, ConfigError> {
    Ok(Arc::new(Tapping::new(config::read_own(value)?)))
}

struct Tapping {
    config: Arc<Config>,
    /// Where the filter looks for a tap that somebody asks for.
    slot: Option<Arc<Slot>>,
}

impl Tapping {
    fn new(config: Config) -> Tapping {
        let slot = match &config.source {
            Source::Asked(id) => Some(live::slot(id)),
            Source::Fixed(_) => None,
        };
        Tapping { config: Arc::new(config), slot }
    }
}

impl Factory for Tapping {
    fn route_config(&self, _: &str, _: &Value) -> Result<RouteConfig, ConfigError> {
        let message = "tap has no configuration of a route's own".to_owned();
        Err(vec![ValueError { path: String::new(), message }])
    }

    fn filter(&self, _: &ScopedConfigs, place: &Place<'_>) -> Rc<dyn Filter> {
        let found = match (&self.slot, &self.config.source) {
            (None, Source::Fixed(tap)) => Some(Rc::new(Held(tap.clone()))),
            _ => None,
        };
        Rc::new(Tapper {
            config: self.config.clone(),
            slot: self.slot.clone(),
            found: RefCell::new((0, found)),
            stats: place.stats.block(&stat::SET, &format!("{}.tap", place.stat_prefix)),
        })
    }
}

postrider_telemetry::stat_set! {
    /// Tapped requests, those that chance left out, and traces that found no room; prefix: the connection manager's, then `tap`.
    mod stat = "http";
    counters { RQ_SAMPLED_OUT = "rq_sampled_out", RQ_TAPPED = "rq_tapped" }
    lazy_counters { TRACES_LOST = "traces_lost" }
}

/// The filter on one worker.
struct Tapper {
    config: Arc<Config>,
    slot: Option<Arc<Slot>>,
    /// The tap that was last found in the slot, and its number there.
    found: RefCell<(u64, Option<Rc<Held>>)>,
    stats: Rc<Block>,
}

impl Filter for Tapper {
    fn hooks(&self) -> Hooks {
        Hooks {
            request_headers: true,
            request_body: true,
            request_trailers: true,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            complete: true,
            keeps_bodies: true,
            declares_length: false,
        }
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        *state = self.begin(stream);
        act(state, |it| {
            let request = &*stream.request;
            let time = self.config.record_times.then(|| stream.host.wall());
            let lines = |name: &str| request_parts::header(request, name);
            it.see_fields(Side::Request, Part::Headers, self.shown(request), lines, time)
        })
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        act(state, |it| it.see_body(Side::Request, stream.request_body.bytes()))
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        act(state, |it| self.see_trailers(it, Side::Request, stream.request_trailers))
    }

    fn on_response_headers(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        if matches!(state, State::Empty) {
            // An answer from before the request came here.
            *state = self.begin(stream);
        }
        act(state, |it| {
            let response = &*stream.response;
            let status = response.status().to_string();
            let mut shown = vec![(":status".to_owned(), status.clone())];
            shown.extend(self.config.mask.all(&response.fields));
            let lines = |name: &str| match name {
                ":status" => vec![status.as_bytes()],
                name => response.fields.get_all_name(name.as_bytes()).collect(),
            };
            let time = self.config.record_times.then(|| stream.host.wall());
            let goes_on = it.see_fields(Side::Response, Part::Headers, shown, lines, time);
            if goes_on && it.is_whole() {
                it.see_final_request(self.shown(stream.request));
            }
            goes_on
        })
    }

    fn on_response_body(&self, state: &mut State, stream: &mut Stream<'_>, _end: bool) -> Action {
        act(state, |it| it.see_body(Side::Response, stream.response_body.bytes()))
    }

    fn on_response_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Action {
        act(state, |it| self.see_trailers(it, Side::Response, stream.response_trailers))
    }

    fn on_complete(&self, state: &mut State, info: &StreamInfo) {
        if let Some(recording) = recording(state) {
            if recording.end(&self.config, info) {
                self.stats.inc(stat::RQ_TAPPED);
            }
            self.stats.add(stat::TRACES_LOST, recording.lost);
        }
    }
}

fn recording(state: &mut State) -> Option<&mut Recording> {
    match state {
        State::Any(recording) => recording.downcast_mut(),
        _ => None,
    }
}

/// Shows something to a stream's recording; it ends when the recording can be nothing any more.
#[inline]
fn act(state: &mut State, see: impl FnOnce(&mut Recording) -> bool) -> Action {
    let Some(recording) = recording(state) else { return Action::Done };
    if see(recording) {
        return Action::Continue;
    }
    *state = PASSES;
    Action::Done
}

impl Tapper {
    #[inline]
    fn begin(&self, stream: &Stream<'_>) -> State {
        match self.slot.as_ref().map(|slot| slot.current()) {
            Some(0) => PASSES,
            number => self.record(number.unwrap_or(0), stream),
        }
    }

    /// A stream of which something may be wanted. `number` is the tap's.
    #[inline(never)]
    fn record(&self, number: u64, stream: &Stream<'_>) -> State {
        let Some(tap) = self.tap(number) else { return PASSES };
        let share = tap.sampling.map(|sampling| sampling.parts_per_million);
        if !crate::share::drawn(share, stream) {
            self.stats.inc(stat::RQ_SAMPLED_OUT);
            return PASSES;
        }
        State::Any(Box::new(Recording::new(tap, stream.host.random())))
    }

    fn tap(&self, number: u64) -> Option<Rc<Held>> {
        let mut found = self.found.borrow_mut();
        if let Some(slot) = self.slot.as_ref().filter(|_| found.0 != number) {
            *found = (number, slot.tap().map(|tap| Rc::new(Held(tap))));
        }
        found.1.clone()
    }

    /// The request's headers as a trace shows them.
    fn shown(&self, request: &RequestHead) -> Shown {
        let all = shown::of_request(request, |_| true).into_iter();
        let masked = all.map(|(name, value)| {
            let value = self.config.mask.shown(&name, &value);
            (name, value)
        });
        masked.collect()
    }

    fn see_trailers(&self, recording: &mut Recording, side: Side, trailers: &Fields) -> bool {
        let shown = self.config.mask.all(trailers);
        let lines = |name: &str| trailers.get_all_name(name.as_bytes()).collect();
        recording.see_fields(side, Part::Trailers, shown, lines, None)
    }
}

#[cfg(test)]
mod tests;
