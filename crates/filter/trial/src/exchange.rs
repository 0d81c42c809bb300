//! One request and its answer through one plugin.

use std::time::{Duration, Instant};

use postrider_filter_api::fake::{FakeHost, FakeStream};
use postrider_filter_api::{Answer, Call, CallFailure, GrpcCall, GrpcStatus};
use postrider_http::ResponseHead;
use postrider_http::grpc::Code;
use postrider_model::Value;
use postrider_telemetry::log::Level;

use crate::observe::{Event, Watch};
use crate::report::{CallMade, Change, Fault, LogLine, Report, Step};
use crate::{Driver, Head, Loaded, Outcome, Request, Response, Side, mailbox};

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
        let used = vec![0; exchange.canned.len()];
        let (host, patience) = (&*self.host, self.patience);
        let mut run = Run { exchange, watch, host, patience, report: Report::default(), used };
        run.take(self.beginning.take());

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
    /// The worker's.
    host: &'r FakeHost,
    /// How long a message may wait for other threads.
    patience: Duration,
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
        let deadline = Instant::now() + self.patience;
        loop {
            self.collect();
            let answered = self.answer_calls(driver, side) | self.run_due();
            if outcome != Outcome::Paused {
                return outcome;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let answered = answered || mailbox::run_posted(&self.host.remote.1, left);
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
        // A machine that outlives streams calls through its worker.
        for host in [&driver.stream.host, self.host] {
            loop {
                let (call, grpc) = (host.calls.borrow_mut().pop_front(), host.grpc_calls.borrow_mut().pop_front());
                any |= call.is_some() || grpc.is_some();
                match (call, grpc) {
                    (None, None) => break,
                    (call, grpc) => {
                        if let Some(Call { cluster, head, body, timeout, done, .. }) = call {
                            let outcome = self.outcome(side, &cluster, Head::of_request(&head), body, timeout);
                            done(answer(outcome));
                        }
                        if let Some(GrpcCall { cluster, head, message, timeout, done, .. }) = grpc {
                            let outcome = self.outcome(side, &cluster, Head::of_request(&head), message, timeout);
                            done(grpc_answer(outcome));
                        }
                    }
                }
            }
        }
        any
    }

    /// Runs what is due on the worker: what other threads posted, and timers without a time; whether there was any.
    fn run_due(&self) -> bool {
        let mut any = self.host.run_posted() > 0;
        loop {
            let due = {
                let mut timers = self.host.timers.borrow_mut();
                let at = timers.iter().position(|(time, _)| time.is_zero());
                at.map(|at| timers.remove(at).1)
            };
            let Some(wake) = due else { return any };
            wake();
            any = true;
        }
    }

    /// How a call ends, which goes into the report.
    fn outcome(
        &mut self,
        side: Side,
        cluster: &str,
        head: Head,
        body: Vec<u8>,
        timeout: Option<Duration>,
    ) -> CannedOutcome {
        let canned = self.canned(cluster).cloned();
        let is_expected = canned.is_some();
        let outcome = canned.unwrap_or(CannedOutcome::Failure);
        let (cluster, shown) = (cluster.to_owned(), outcome.clone());
        self.report.calls.push(CallMade { side, is_expected, cluster, head, body, timeout, outcome: shown });
        outcome
    }

    /// What the next call to a cluster is answered with; `None` when nobody said.
    fn canned(&mut self, cluster: &str) -> Option<&CannedOutcome> {
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
        self.take(self.watch.take());
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
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

/// The body of an answer is the message of a service; another status than 200 is none.
fn grpc_answer(outcome: CannedOutcome) -> Result<Vec<u8>, GrpcStatus> {
    let failed = |code, why: &str| Err(GrpcStatus::new(code, why));
    match outcome {
        CannedOutcome::Answer { status: 200, body, .. } => Ok(body),
        CannedOutcome::Answer { status, .. } => failed(Code::Unknown, &format!("the service answered {status}")),
        CannedOutcome::Timeout => failed(Code::DeadlineExceeded, "no answer in time"),
        CannedOutcome::Failure => failed(Code::Unavailable, "no answer"),
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
