//! A script on a stream without a proxy around it: the tool's driver, in the words of tests.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use postrider_filter_api::fake::{FakeHost, FakeStream};
use postrider_filter_api::{Answer, Call, CallFailure, ConfigError, Filter, Place, Registry, ScopedConfigs};
use postrider_model::Value;
use postrider_telemetry::Registry as Stats;
use postrider_telemetry::stats::Distribution;

pub(crate) use postrider_filter_trial::Outcome;
use postrider_filter_trial::{Driver, Side};

/// The driver with more words.
pub(crate) struct Trial(pub(crate) Driver);

impl Deref for Trial {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.0
    }
}

impl DerefMut for Trial {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.0
    }
}

impl Trial {
    pub(crate) fn around(filter: Rc<dyn Filter>, stats: Stats, stream: FakeStream) -> Trial {
        Trial(Driver::around(filter, stats, stream))
    }

    /// A filter with `config` (JSON) of type `kind`, and an override of `route_kind` on its route.
    pub(crate) fn new(kind: &str, config: &str, route: Option<(&str, &str)>) -> Result<Trial, ConfigError> {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let factory = registry.build("lua", kind, &json(config)).expect("the kind is known")?;
        let mut configs = ScopedConfigs::default();
        if let Some((kind, value)) = route {
            configs.route = Some(factory.route_config(kind, &json(value))?);
        }
        let stats = Stats::new();
        let worker = stats.worker(0);
        let filter = factory.filter(
            &configs,
            &Place {
                stats: &worker,
                stat_prefix: "test",
                worker: 0,
                buffer_limit: 1 << 20,
                head_limits: None,
                host: &FakeHost::unwatched(),
            },
        );
        Ok(Trial::around(filter, stats, FakeStream::new("GET", "/", &[])))
    }

    /// Envoy's filter with this script.
    pub(crate) fn envoy(script: &str) -> Trial {
        let config = serde_json::json!({ "default_source_code": { "inline_string": script } });
        Trial::new("envoy.extensions.filters.http.lua.v3.Lua", &config.to_string(), None).expect("the script loads")
    }

    /// Begins another stream.
    pub(crate) fn restart(&mut self, mut stream: FakeStream) -> FakeStream {
        stream.host.clock = self.stream.host.clock;
        self.finish();
        std::mem::replace(&mut self.stream, stream)
    }

    /// Shows the request to the filter: its head, then the pieces of its body, held or not as the filter wants.
    pub(crate) fn request(&mut self, pieces: &[&str]) -> Outcome {
        self.show(Side::Request, owned(pieces))
    }

    /// Shows the stream's trailers to the filter.
    #[allow(dead_code, reason = "for the dialects' tests")]
    pub(crate) fn request_trailers(&mut self) -> Outcome {
        self.show_trailers(Side::Request)
    }

    /// The same with a response of status 200 that has the fields of `self.stream.response`.
    #[allow(dead_code, reason = "for the dialects' tests")]
    pub(crate) fn response(&mut self, pieces: &[&str]) -> Outcome {
        self.show(Side::Response, owned(pieces))
    }

    /// Goes on after the answer to a call was given to `self.stream.host`.
    #[allow(dead_code, reason = "for the dialects' tests")]
    pub(crate) fn resume(&mut self, is_request: bool) -> Outcome {
        self.resume_side(if is_request { Side::Request } else { Side::Response })
    }

    /// Answers calls for as long as the script waits for them.
    #[allow(dead_code, reason = "for the dialects' tests")]
    pub(crate) fn calls(
        &mut self,
        mut outcome: Outcome,
        is_request: bool,
        answer: impl Fn(&Call) -> Result<Answer, CallFailure>,
    ) -> Outcome {
        while outcome == Outcome::Paused {
            loop {
                let Some(answer) = self.stream.host.calls.borrow().front().map(&answer) else { break };
                self.stream.host.answer(answer);
            }
            outcome = self.resume(is_request);
        }
        outcome
    }

    /// A counter or gauge, by its name in full.
    #[allow(dead_code, reason = "for the dialects' tests")]
    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        let scopes = self.stats.read(&[]);
        scopes.iter().find_map(|scope| {
            let prefix = scope.set.scope_name(&scope.prefix);
            let rest = name.strip_prefix(&*prefix)?;
            let index = scope.set.cells.iter().position(|cell| cell.name == rest)?;
            scope.cells.get(index).copied()
        })
    }

    /// How many calls of hooks were counted, and timed, on whatever route.
    pub(crate) fn calls_and_timed(&self) -> (u64, u64) {
        let scopes = self.stats.read(&[]);
        let of_routes = scopes.iter().filter(|scope| scope.set.root == "plugin" && !scope.set.histograms.is_empty());
        of_routes.fold((0, 0), |(calls, timed), scope| {
            let recorded: u64 = scope.histograms.iter().map(Distribution::count).sum();
            (calls + scope.cells.first().copied().unwrap_or(0), timed + recorded)
        })
    }

    pub(crate) fn request_header(&self, name: &str) -> Option<String> {
        self.stream.request.fields.get_name(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[allow(dead_code, reason = "for the dialects' tests")]
    pub(crate) fn response_header(&self, name: &str) -> Option<String> {
        self.stream.response.fields.get_name(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

fn owned(pieces: &[&str]) -> Vec<Vec<u8>> {
    pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect()
}

pub(crate) fn json(text: &str) -> Value {
    postrider_filter_plugin::json::from_json_text(text).expect("the test's JSON is valid")
}
