//! What one worker knows: keys that it got from elsewhere, and tokens that it found good.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use postrider_filter_api::{Answer, Call, CallFailure, Host, Moment, Resumer};
use postrider_http::{HeaderId, RequestHead};
use postrider_telemetry::{Block, warning};

use super::background::{Background, Shared, pause};
use super::config::{CacheLimits, Config, Remote, Source};
use super::keys::Keys;
use super::stat;
use super::token::Token;
use crate::per_worker::{FilterNumber, PerFilter};

pub(super) struct Store {
    /// In the order of the providers.
    entries: Vec<Entry>,
    /// What the first worker got in the background, and what of it was seen here.
    shared: Arc<Shared>,
    seen: Cell<u64>,
    /// Who wants to hear of answers.
    background: RefCell<Weak<Background>>,
}

struct Entry {
    keys: RefCell<Option<Arc<Keys>>>,
    /// From when on the keys are too old, and when others are asked for in the background.
    old_from: Cell<Moment>,
    refresh_from: Cell<Moment>,
    is_asking: Cell<bool>,
    /// The log knows that they could not be got.
    is_told: Cell<bool>,
    /// Who is gone, or needs no keys any more, has dropped the slot.
    waiting: RefCell<Vec<(Weak<Answered>, Resumer)>>,
    tokens: Option<RefCell<Tokens>>,
}

/// Where a request that waits finds the keys, `Some(None)` when they could not be got.
pub(super) type Slot = Rc<Answered>;

type Answered = RefCell<Option<Option<Arc<Keys>>>>;

thread_local! {
    /// The stores of this worker.
    static STORES: RefCell<PerFilter<Store>> = const { RefCell::new(PerFilter::new()) };
}

impl Store {
    /// The store of the filter with that number.
    pub(super) fn of(filter: FilterNumber, config: &Config, shared: &Arc<Shared>) -> Rc<Store> {
        let entry = |cache: Option<CacheLimits>| Entry {
            keys: RefCell::default(),
            old_from: Cell::default(),
            refresh_from: Cell::default(),
            is_asking: Cell::default(),
            is_told: Cell::default(),
            waiting: RefCell::default(),
            tokens: cache.map(|limits| RefCell::new(Tokens::new(limits))),
        };
        let make = || Store {
            entries: config.providers.iter().map(|provider| entry(provider.cache)).collect(),
            shared: shared.clone(),
            seen: Cell::default(),
            background: RefCell::default(),
        };
        STORES.with_borrow_mut(|stores| stores.of(filter, make))
    }

    /// Keys from elsewhere that are good now.
    pub(super) fn keys(&self, provider: usize, remote: &Remote, now: Moment) -> Option<Arc<Keys>> {
        if remote.in_background.is_some() {
            self.catch_up();
        }
        let entry = self.entries.get(provider)?;
        let good = remote.in_background.is_some() || now < entry.old_from.get();
        entry.keys.borrow().clone().filter(|_| good)
    }

    /// Takes over what another worker got.
    fn catch_up(&self) {
        let version = self.shared.version();
        if self.seen.replace(version) == version {
            return;
        }
        for (entry, keys) in self.entries.iter().zip(self.shared.all()) {
            if keys.is_some() {
                entry.keys.replace(keys);
            }
        }
    }

    /// Who is told of every answer from now on.
    pub(super) fn tell(&self, background: Weak<Background>) {
        self.background.replace(background);
    }

    /// When the keys are to be asked for again; `None` where there are none yet.
    pub(super) fn refresh_from(&self, provider: usize) -> Option<Moment> {
        let entry = self.entries.get(provider)?;
        entry.keys.borrow().as_ref().map(|_| entry.refresh_from.get())
    }

    /// Whether all keys are here, so that no request has to wait for some.
    pub(super) fn is_complete(&self, config: &Config, now: Moment) -> bool {
        config.providers.iter().enumerate().all(|(index, provider)| match &provider.source {
            Source::Here(_) => true,
            Source::Remote(remote) => self.keys(index, remote, now).is_some(),
        })
    }

    /// Tells `slot` and wakes the request once the provider's keys are here, or cannot be got.
    pub(super) fn wait(
        self: &Rc<Self>,
        provider: usize,
        remote: &Remote,
        stats: &Rc<Block>,
        host: &dyn Host,
        (slot, resumer): (&Slot, Resumer),
    ) {
        let Some(entry) = self.entries.get(provider) else { return };
        entry.waiting.borrow_mut().push((Rc::downgrade(slot), resumer));
        self.ask(provider, remote, stats, host);
    }

    /// Asks for keys, unless somebody here does already.
    pub(super) fn ask(self: &Rc<Self>, provider: usize, remote: &Remote, stats: &Rc<Block>, host: &dyn Host) {
        let Some(entry) = self.entries.get(provider) else { return };
        if entry.is_asking.replace(true) {
            return;
        }
        let now = host.now();
        let question = Question {
            from: source(remote),
            old_from: now + remote.duration,
            refresh_from: now + pause(remote.duration),
            in_background: remote.in_background.is_some(),
        };
        let (store, stats) = (self.clone(), stats.clone());
        let heard = stats.clone();
        let call = Call {
            cluster: remote.uri.cluster.as_str().into(),
            head: request(remote),
            body: Vec::new(),
            timeout: remote.uri.timeout,
            trace: None,
            retries: remote.retries.clone(),
            done: Box::new(move |outcome| store.hear(provider, keys_in(outcome), &question, &heard)),
        };
        match host.call(call) {
            Ok(handle) => handle.detach(),
            Err(_) => {
                let question = Question {
                    from: source(remote),
                    old_from: now,
                    refresh_from: now,
                    in_background: remote.in_background.is_some(),
                };
                let why = format!("there is no cluster \"{}\"", remote.uri.cluster);
                self.hear(provider, Err(why), &question, &stats);
            }
        }
    }

    fn hear(&self, provider: usize, keys: Result<Arc<Keys>, String>, question: &Question, stats: &Block) {
        let Some(entry) = self.entries.get(provider) else { return };
        entry.is_asking.set(false);
        // Each request may ask again: the log says it once, until there are keys.
        let is_told = entry.is_told.replace(keys.is_err());
        if let Err(why) = &keys
            && !is_told
        {
            warning!(Filter, "jwt_authn: no keys from {}: {why}", question.from);
        }
        let keys = keys.ok();
        if let Some(keys) = &keys {
            stats.inc(stat::JWKS_FETCH_SUCCESS);
            *entry.keys.borrow_mut() = Some(keys.clone());
            entry.old_from.set(question.old_from);
            entry.refresh_from.set(question.refresh_from);
            if question.in_background {
                self.shared.publish(provider, keys);
            }
        } else {
            // What was there before stays.
            stats.inc(stat::JWKS_FETCH_FAILED);
        }
        let background = self.background.borrow().upgrade();
        if let Some(background) = background {
            background.heard(provider, keys.is_some());
        }
        for (slot, resumer) in entry.waiting.take() {
            if let Some(slot) = slot.upgrade() {
                *slot.borrow_mut() = Some(keys.clone());
                resumer.resume();
            }
        }
    }

    /// A token that was found good before, whatever its time.
    pub(super) fn known(&self, provider: usize, token: &str) -> Option<Rc<Token>> {
        self.entries.get(provider)?.tokens.as_ref()?.borrow().known.get(token).cloned()
    }

    pub(super) fn remember(&self, provider: usize, text: &str, token: &Rc<Token>) {
        if let Some(tokens) = self.entries.get(provider).and_then(|entry| entry.tokens.as_ref()) {
            tokens.borrow_mut().insert(text, token.clone());
        }
    }
}

/// From where keys were asked for, and when the answer counts.
struct Question {
    from: String,
    old_from: Moment,
    refresh_from: Moment,
    in_background: bool,
}

/// As the log names it: without the query, which may hold a secret.
fn source(remote: &Remote) -> String {
    let path = remote.uri.path.split('?').next().unwrap_or_default();
    format!("{}{path}", remote.uri.authority)
}

/// # Errors
/// Why there are none, for the log.
fn keys_in(outcome: Result<Answer, CallFailure>) -> Result<Arc<Keys>, String> {
    let answer = outcome.map_err(|failure| match failure {
        CallFailure::Timeout => "there was no answer in time".to_owned(),
        CallFailure::Upstream => "there was no answer, or one of more than 1 MiB".to_owned(),
        CallFailure::Malformed => "the answer is no HTTP".to_owned(),
    })?;
    match answer.head.status() {
        200 => Ok(Arc::new(Keys::parse(&answer.body)?)),
        status => Err(format!("the answer was {status}")),
    }
}

fn request(remote: &Remote) -> RequestHead {
    let mut head = RequestHead::new();
    // What cannot be a request leads to no keys.
    let _ = head.set_method(b"GET");
    let _ = head.set_path(remote.uri.path.as_bytes());
    remote.uri.scheme.into_iter().for_each(|scheme| head.set_scheme(scheme));
    let _ = head.set_authority(remote.uri.authority.as_bytes());
    // By this name others ask for keys, and some servers answer nobody without one.
    let _ = head.fields.append(HeaderId::UserAgent, b"Go-browser");
    head
}

/// Tokens that were found good, as long as there is room: the oldest goes first.
struct Tokens {
    limits: CacheLimits,
    known: HashMap<Rc<str>, Rc<Token>>,
    order: VecDeque<Rc<str>>,
}

impl Tokens {
    fn new(limits: CacheLimits) -> Tokens {
        Tokens { limits, known: HashMap::new(), order: VecDeque::new() }
    }

    fn insert(&mut self, text: &str, token: Rc<Token>) {
        if text.len() > self.limits.token_bytes {
            return;
        }
        let text: Rc<str> = text.into();
        if self.known.insert(text.clone(), token).is_none() {
            self.order.push_back(text);
        }
        while self.order.len() > self.limits.tokens {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }
}
