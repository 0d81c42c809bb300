//! What one worker knows: keys that it got from elsewhere, and tokens that it found good.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use postrider_filter_api::{Answer, Call, CallFailure, Host, Moment, Resumer};
use postrider_http::{HeaderId, RequestHead};
use postrider_telemetry::Block;

use super::config::{CacheLimits, Config, Remote, Source};
use super::keys::Keys;
use super::stat;
use super::token::Token;
use crate::per_worker::{FilterNumber, PerFilter};

/// Keys refreshed in the background are asked for so much before their time.
const AHEAD_SECONDS: u64 = 5;

/// In the order of the providers.
pub(super) struct Store(Vec<Entry>);

struct Entry {
    keys: RefCell<Option<Rc<Keys>>>,
    /// From when on the keys are too old; so the next, where they are refreshed in the background.
    old_from: Cell<Moment>,
    refresh_from: Cell<Moment>,
    is_asking: Cell<bool>,
    waiting: RefCell<Vec<(Slot, Resumer)>>,
    tokens: Option<RefCell<Tokens>>,
}

/// Where a request that waits finds the keys, `Some(None)` when they could not be got.
pub(super) type Slot = Rc<RefCell<Option<Option<Rc<Keys>>>>>;

thread_local! {
    /// The stores of this worker.
    static STORES: RefCell<PerFilter<Store>> = const { RefCell::new(PerFilter::new()) };
}

impl Store {
    /// The store of the filter with that number.
    pub(super) fn of(filter: FilterNumber, config: &Config) -> Rc<Store> {
        let entry = |cache: Option<CacheLimits>| Entry {
            keys: RefCell::default(),
            old_from: Cell::default(),
            refresh_from: Cell::default(),
            is_asking: Cell::default(),
            waiting: RefCell::default(),
            tokens: cache.map(|limits| RefCell::new(Tokens::new(limits))),
        };
        let make = || Store(config.providers.iter().map(|provider| entry(provider.cache)).collect());
        STORES.with_borrow_mut(|stores| stores.of(filter, make))
    }

    /// Keys from elsewhere that are good now.
    pub(super) fn keys(&self, provider: usize, remote: &Remote, now: Moment) -> Option<Rc<Keys>> {
        let entry = self.0.get(provider)?;
        let good = remote.in_background.is_some() || now < entry.old_from.get();
        entry.keys.borrow().clone().filter(|_| good)
    }

    /// Whether all keys are here, so that no request has to wait for some.
    pub(super) fn is_complete(&self, config: &Config, now: Moment) -> bool {
        config.providers.iter().enumerate().all(|(index, provider)| match &provider.source {
            Source::Here(_) => true,
            Source::Remote(remote) => self.keys(index, remote, now).is_some(),
        })
    }

    /// Asks for new keys where those in use grow old, and goes on with them until there are some.
    pub(super) fn refresh(self: &Rc<Self>, config: &Config, stats: &Rc<Block>, host: &dyn Host) {
        let now = host.now();
        for (index, (entry, provider)) in self.0.iter().zip(&config.providers).enumerate() {
            if let Source::Remote(remote) = &provider.source
                && remote.in_background.is_some()
                && entry.keys.borrow().is_some()
                && now >= entry.refresh_from.get()
            {
                self.ask(index, remote, stats, host);
            }
        }
    }

    /// Tells `slot` and wakes the request once the provider's keys are here, or cannot be got.
    pub(super) fn wait(
        self: &Rc<Self>,
        provider: usize,
        remote: &Remote,
        stats: &Rc<Block>,
        host: &dyn Host,
        (slot, resumer): (Slot, Resumer),
    ) {
        let Some(entry) = self.0.get(provider) else { return };
        entry.waiting.borrow_mut().push((slot, resumer));
        self.ask(provider, remote, stats, host);
    }

    fn ask(self: &Rc<Self>, provider: usize, remote: &Remote, stats: &Rc<Block>, host: &dyn Host) {
        let Some(entry) = self.0.get(provider) else { return };
        if entry.is_asking.replace(true) {
            return;
        }
        let now = host.now();
        let again = remote.in_background.unwrap_or_default();
        let early = remote.duration.checked_sub(std::time::Duration::from_secs(AHEAD_SECONDS));
        let times = Times {
            old_from: now + remote.duration,
            refresh_from: now + early.filter(|early| !early.is_zero()).unwrap_or(remote.duration),
            after_failure: now + again,
        };
        let (store, stats) = (self.clone(), stats.clone());
        let heard = stats.clone();
        let call = Call {
            cluster: remote.uri.cluster.as_str().into(),
            head: request(remote),
            body: Vec::new(),
            timeout: remote.uri.timeout,
            done: Box::new(move |outcome| store.hear(provider, outcome, &times, &heard)),
        };
        match host.call(call) {
            Ok(handle) => handle.detach(),
            Err(_) => {
                let times = Times { after_failure: now + again, old_from: now, refresh_from: now };
                self.hear(provider, Err(CallFailure::Upstream), &times, &stats);
            }
        }
    }

    fn hear(&self, provider: usize, outcome: Result<Answer, CallFailure>, times: &Times, stats: &Block) {
        let Some(entry) = self.0.get(provider) else { return };
        entry.is_asking.set(false);
        let answer = outcome.ok().filter(|answer| answer.head.status() == 200);
        let keys = answer.and_then(|answer| Keys::parse(&answer.body).ok()).map(Rc::new);
        if let Some(keys) = &keys {
            stats.inc(stat::JWKS_FETCH_SUCCESS);
            *entry.keys.borrow_mut() = Some(keys.clone());
            entry.old_from.set(times.old_from);
            entry.refresh_from.set(times.refresh_from);
        } else {
            // What was there before stays.
            stats.inc(stat::JWKS_FETCH_FAILED);
            entry.refresh_from.set(times.after_failure);
        }
        for (slot, resumer) in entry.waiting.take() {
            *slot.borrow_mut() = Some(keys.clone());
            resumer.resume();
        }
    }

    /// A token that was found good before, whatever its time.
    pub(super) fn known(&self, provider: usize, token: &str) -> Option<Rc<Token>> {
        self.0.get(provider)?.tokens.as_ref()?.borrow().known.get(token).cloned()
    }

    pub(super) fn remember(&self, provider: usize, text: &str, token: &Rc<Token>) {
        if let Some(tokens) = self.0.get(provider).and_then(|entry| entry.tokens.as_ref()) {
            tokens.borrow_mut().insert(text, token.clone());
        }
    }
}

/// When answers to a question count.
struct Times {
    old_from: Moment,
    refresh_from: Moment,
    after_failure: Moment,
}

fn request(remote: &Remote) -> RequestHead {
    let mut head = RequestHead::new();
    // What cannot be a request leads to no keys.
    let _ = head.set_method(b"GET");
    let _ = head.set_path(remote.uri.path.as_bytes());
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
