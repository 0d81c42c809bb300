//! One request and its answer through one plugin.

use std::time::Duration;

use postrider_filter_api::fake::FakeStream;
use postrider_filter_api::{Answer, CallFailure};
use postrider_http::ResponseHead;
use postrider_model::Value;
use postrider_telemetry::log::Level;

use crate::observe::{Event, Watch};
use crate::report::{CallMade, Change, Fault, LogLine, Report, Step};
use crate::{Driver, Head, Loaded, Outcome, Request, Response, Side};

/// Calls that one stream may make: a plugin that calls in a loop has an end.
const MAX_CALLS: usize = 1000;

/// What a plugin is shown, and what its calls are answered with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exchange {
    pub request: Request,
    /// What the upstream answers, unless the plugin answers itself.
    pub response: Response,
    pub route_config: Option<Value>,
    /// In order; the last one for a cluster answers all further calls to it.
    pub canned: Vec<Canned>,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canned {
    pub cluster: String,
    pub outcome: CannedOutcome,
}

/// How a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannedOutcome {
    Answer {
        status: u16,
        headers: Vec<(String, Vec<u8>)>,
        body: Vec<u8>,
    },
    Timeout,
    /// No host, no connection.
    Failure,
}

impl Loaded {
    /// Runs a stream from its beginning to its end.
    ///
    /// # Errors
    /// The exchange is none: a method, field or configuration that cannot be.
    pub fn run(&self, exchange: &Exchange) -> Result<Report, Vec<String>> {
        self.run_watched(exchange, &Watch::start())
    }

    /// The same with eyes that stay open afterwards.
    ///
    /// # Errors
    /// As [`Loaded::run`].
    pub fn run_watched(&self, exchange: &Exchange, watch: &Watch) -> Result<Report, Vec<String>> {
        let one = |message| vec![message];
        let stream = exchange.request.stream().map_err(one)?;
        // What a response cannot be is told before anything runs.
        exchange.response.fill(&mut FakeStream::new("GET", "/", &[])).map_err(one)?;
        let mut driver = self.driver(exchange.route_config.as_ref(), stream)?;
        let mut run = Run { exchange, watch, report: Report::default(), used: vec![0; exchange.canned.len()] };

        let before = Head::of_request(&driver.stream.request);
        let outcome = driver.show(Side::Request, exchange.request.body.clone());
        let outcome = run.go_on(&mut driver, Side::Request, outcome);
        let body_before = exchange.request.body.concat();
        run.report.request = Change {
            before,
            after: Head::of_request(&driver.stream.request),
            body_after: match outcome {
                Outcome::Passed => driver.passed(Side::Request).to_vec(),
                // It went nowhere.
                Outcome::Paused | Outcome::Answered(..) => body_before.clone(),
            },
            body_before,
            trailers: Head::of_fields(&driver.stream.request_trailers),
        };
        let body = match outcome {
            Outcome::Passed => {
                driver.stream.info.upstream_cluster = Some("upstream".into());
                driver.stream.info.upstream_remote = Some("127.0.0.1:80".into());
                // It was filled once already.
                let _ = exchange.response.fill(&mut driver.stream);
                Some(exchange.response.body.clone())
            }
            Outcome::Answered(..) => driver.reply.take().map(|reply| {
                run.report.answered = Some(Side::Request);
                run.report.details = reply.details.to_string();
                let body = driver.take_reply(&reply);
                if body.is_empty() { Vec::new() } else { vec![body] }
            }),
            Outcome::Paused => None,
        };
        if let Some(body) = body {
            run.respond(&mut driver, body);
        }
        let info = &driver.stream.info;
        run.report.metadata = info.metadata.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        run.report.clears_route_cache = info.route_is_stale;
        run.report.upstream_override = info.upstream_override.as_ref().map(|chosen| chosen.address.to_string());
        run.report.drains_connection = info.drain_connection;
        driver.finish();
        run.collect();
        Ok(run.report)
    }
}

struct Run<'r> {
    exchange: &'r Exchange,
    watch: &'r Watch,
    report: Report,
    /// How often each canned answer was given.
    used: Vec<usize>,
}

impl Run<'_> {
    fn respond(&mut self, driver: &mut Driver, body: Vec<Vec<u8>>) {
        driver.stream.info.status = driver.stream.response.status();
        let (before, body_before) = (Head::of_response(&driver.stream.response), body.concat());
        let outcome = driver.show(Side::Response, body);
        let outcome = self.go_on(driver, Side::Response, outcome);
        let mut body_after = driver.passed(Side::Response).to_vec();
        if let (Outcome::Answered(..), Some(reply)) = (outcome, driver.reply.take()) {
            self.report.answered = Some(Side::Response);
            self.report.details = reply.details.to_string();
            body_after = driver.take_reply(&reply);
        }
        self.report.response = Some(Change {
            before,
            after: Head::of_response(&driver.stream.response),
            body_before,
            body_after,
            trailers: Head::of_fields(&driver.stream.response_trailers),
        });
    }

    /// Answers calls until the message has gone on.
    fn go_on(&mut self, driver: &mut Driver, side: Side, mut outcome: Outcome) -> Outcome {
        loop {
            self.collect();
            let answered = self.answer_calls(driver, side);
            if outcome != Outcome::Paused {
                return outcome;
            }
            if !answered || self.report.calls.len() >= MAX_CALLS {
                self.report.stuck = Some(side);
                return outcome;
            }
            outcome = driver.resume_side(side);
        }
    }

    /// Answers every call that was made; whether there was one.
    fn answer_calls(&mut self, driver: &Driver, side: Side) -> bool {
        let mut any = false;
        loop {
            let about =
                driver.stream.host.calls.borrow().front().map(|call| {
                    (call.cluster.to_string(), Head::of_request(&call.head), call.body.clone(), call.timeout)
                });
            let Some((cluster, head, body, timeout)) = about else { return any };
            let canned = self.outcome(&cluster).cloned();
            let is_expected = canned.is_some();
            let shown = canned.unwrap_or(CannedOutcome::Failure);
            self.report.calls.push(CallMade {
                side,
                is_expected,
                cluster,
                head,
                body,
                timeout,
                outcome: shown.clone(),
            });
            driver.stream.host.answer(answer(shown));
            any = true;
        }
    }

    /// What the next call to a cluster is answered with; `None` when nobody said.
    fn outcome(&mut self, cluster: &str) -> Option<&CannedOutcome> {
        let of_cluster = || self.exchange.canned.iter().enumerate().filter(|(_, canned)| canned.cluster == cluster);
        let fresh = of_cluster().find(|(at, _)| self.used.get(*at) == Some(&0));
        let (at, canned) = fresh.or_else(|| of_cluster().next_back())?;
        if let Some(used) = self.used.get_mut(at) {
            *used += 1;
        }
        Some(&canned.outcome)
    }

    /// Puts what was seen since into the report.
    fn collect(&mut self) {
        for event in self.watch.take() {
            match event {
                // A fault is told once, with where it came from.
                Event::Log { level: Level::Error, text }
                    if self.report.faults.last().is_some_and(|fault| fault.text == text) => {}
                Event::Log { level, text } => self.report.logs.push(LogLine { level, text }),
                Event::Ran { side, in_body_hook, took, memory } => {
                    self.report.memory = memory;
                    self.report.steps.push(Step { side, in_body_hook, took });
                }
                Event::Fault { text, traceback } => self.report.faults.push(Fault { text, traceback }),
            }
        }
    }
}

fn answer(outcome: CannedOutcome) -> Result<Answer, CallFailure> {
    match outcome {
        CannedOutcome::Answer { status, headers, body } => {
            let mut head = ResponseHead::new();
            head.reply(status);
            for (name, value) in headers {
                // One that no message can carry would not have arrived.
                let _ = head.fields.append_name(name.as_bytes(), &value);
            }
            Ok(Answer { head, body, trailers: Default::default() })
        }
        CannedOutcome::Timeout => Err(CallFailure::Timeout),
        CannedOutcome::Failure => Err(CallFailure::Upstream),
    }
}

impl CannedOutcome {
    /// An answer with a body and no fields of its own.
    pub fn plain(status: u16, body: &[u8]) -> CannedOutcome {
        CannedOutcome::Answer { status, headers: Vec::new(), body: body.to_vec() }
    }
}

/// For tests and readers of reports: the time of all steps.
impl Report {
    pub fn took(&self) -> Duration {
        self.steps.iter().map(|step| step.took).sum()
    }
}
