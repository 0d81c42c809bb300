//! The token that one worker has, and how it gets another in time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use postrider_filter_api::{Answer, Call, CallFailure, Host, Moment, Place, Resumer, Stream};
use postrider_http::{HeaderId, RequestHead, is_field_value};
use postrider_telemetry::Block;
use postrider_telemetry::stats::Counter;
use serde_json::Value as Json;

use super::config::Client;
use crate::per_worker::{FilterNumber, PerFilter};

pub(super) struct Tokens {
    current: RefCell<Option<Rc<[u8]>>>,
    /// From when on it is too old; so the next, and when it may be asked for again.
    old_from: Cell<Moment>,
    refresh_from: Cell<Moment>,
    again_from: Cell<Option<Moment>>,
    is_asking: Cell<bool>,
    waiting: RefCell<Vec<Resumer>>,
    stats: Rc<Block>,
}

pub(super) enum Found {
    /// With what stands before it in a header.
    Now(Rc<[u8]>),
    /// The stream is resumed when it came, or cannot be got.
    Soon,
    Nowhere,
}

postrider_telemetry::stat_set! {
    /// Questions for tokens by outcome; prefix: the filter's, then `oauth2`.
    mod stat = "http";
    counters {
        TOKEN_FETCHED = "token_fetched",
        TOKEN_FETCH_FAILED_ON_BAD_RESPONSE_CODE = "token_fetch_failed_on_bad_response_code",
        TOKEN_FETCH_FAILED_ON_BAD_TOKEN = "token_fetch_failed_on_bad_token",
        TOKEN_FETCH_FAILED_ON_CLIENT_SECRET = "token_fetch_failed_on_client_secret",
        TOKEN_FETCH_FAILED_ON_CLUSTER_NOT_FOUND = "token_fetch_failed_on_cluster_not_found",
        TOKEN_REQUESTED = "token_requested",
    }
}

thread_local! {
    /// Of this worker.
    static TOKENS: RefCell<PerFilter<Tokens>> = const { RefCell::new(PerFilter::new()) };
}

impl Tokens {
    /// Those of the filter with that number.
    pub(super) fn of(filter: FilterNumber, place: &Place<'_>, prefix: &str) -> Rc<Tokens> {
        TOKENS.with_borrow_mut(|all| {
            all.of(filter, || Tokens {
                current: RefCell::default(),
                old_from: Cell::default(),
                refresh_from: Cell::default(),
                again_from: Cell::default(),
                is_asking: Cell::default(),
                waiting: RefCell::default(),
                stats: place.stats.block(&stat::SET, &format!("{prefix}.oauth2")),
            })
        })
    }

    /// What is here, whatever its age.
    pub(super) fn current(&self) -> Option<Rc<[u8]>> {
        self.current.borrow().clone()
    }

    /// A good token; asks for another one in time.
    pub(super) fn find(self: &Rc<Self>, client: &Client, stream: &Stream<'_>) -> Found {
        let now = stream.host.now();
        let current = self.current();
        let wants = current.is_none() || now >= self.refresh_from.get();
        if wants && !self.is_asking.get() && self.again_from.get().is_none_or(|again| now >= again) {
            self.ask(client, stream.host, now);
        }
        match current {
            Some(token) if now < self.old_from.get() || !self.is_asking.get() => Found::Now(token),
            None if !self.is_asking.get() => Found::Nowhere,
            _ => {
                self.waiting.borrow_mut().push(stream.resumer.clone());
                Found::Soon
            }
        }
    }

    #[cold]
    fn ask(self: &Rc<Self>, client: &Client, host: &dyn Host, now: Moment) {
        self.again_from.set(Some(now + client.retry_after));
        let Some(question) = &client.question else {
            return self.stats.inc(stat::TOKEN_FETCH_FAILED_ON_CLIENT_SECRET);
        };
        let tokens = self.clone();
        let call = Call {
            cluster: client.endpoint.cluster.as_str().into(),
            head: request(client),
            body: question.to_vec(),
            timeout: client.endpoint.timeout,
            trace: None,
            retries: None,
            done: Box::new(move |outcome| tokens.hear(outcome, now)),
        };
        match host.call(call) {
            Ok(handle) => {
                self.stats.inc(stat::TOKEN_REQUESTED);
                self.is_asking.set(true);
                handle.detach();
            }
            Err(_) => self.stats.inc(stat::TOKEN_FETCH_FAILED_ON_CLUSTER_NOT_FOUND),
        }
    }

    /// `asked`: when the question was.
    fn hear(&self, outcome: Result<Answer, CallFailure>, asked: Moment) {
        self.is_asking.set(false);
        match issued(outcome) {
            Ok((token, lifetime)) => {
                self.stats.inc(stat::TOKEN_FETCHED);
                *self.current.borrow_mut() = Some(token);
                self.old_from.set(asked + lifetime);
                self.refresh_from.set(asked + lifetime / 2);
                self.again_from.set(None);
            }
            // What was there before stays.
            Err(failure) => self.stats.inc(failure),
        }
        for resumer in self.waiting.take() {
            resumer.resume();
        }
    }
}

/// What stands in a header, and how long it is good.
fn issued(outcome: Result<Answer, CallFailure>) -> Result<(Rc<[u8]>, Duration), Counter> {
    // Without an answer, Envoy counts the one that it gives itself.
    let answer = outcome.ok().filter(|answer| answer.head.status() == 200);
    let answer = answer.ok_or(stat::TOKEN_FETCH_FAILED_ON_BAD_RESPONSE_CODE)?;
    said(&answer.body).ok_or(stat::TOKEN_FETCH_FAILED_ON_BAD_TOKEN)
}

/// RFC 6749 section 5.1.
fn said(body: &[u8]) -> Option<(Rc<[u8]>, Duration)> {
    let issued: Json = serde_json::from_slice(body).ok()?;
    let token = issued.get("access_token")?.as_str().filter(|token| !token.is_empty())?;
    let value = format!("Bearer {token}").into_bytes();
    let seconds = match issued.get("expires_in")? {
        Json::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    is_field_value(&value).then(|| (value.into(), Duration::from_secs(seconds)))
}

fn request(client: &Client) -> RequestHead {
    let mut head = RequestHead::new();
    // What cannot be a request leads to no token.
    let _ = head.set_method(b"POST");
    let _ = head.set_path(client.endpoint.path.as_bytes());
    client.endpoint.scheme.into_iter().for_each(|scheme| head.set_scheme(scheme));
    let _ = head.set_authority(client.endpoint.authority.as_bytes());
    let _ = head.fields.append(HeaderId::ContentType, b"application/x-www-form-urlencoded");
    // By this name others ask for tokens, and some servers answer nobody without one.
    let _ = head.fields.append(HeaderId::UserAgent, b"Go-browser");
    let _ = head.fields.append_name(b"accept", b"application/json");
    head
}
