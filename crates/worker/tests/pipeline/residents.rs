//! Filters between streams: what they begin when they come into force, and how other threads reach them.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_filter_api::*;
use postrider_model::{FilterSlot, Value};
use postrider_testkit::{RawClient, wait_until};

use crate::scripted::{fine, head, site};

struct Resident;

impl Factory for Resident {
    fn route_config(&self, _: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        Ok(RouteConfig::new((), value))
    }

    fn filter(&self, _: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Elsewhere)
    }

    fn arrive(&self, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        let host = place.host.clone();
        let tick = Box::new(move || {
            let call = Call {
                cluster: "aside".into(),
                head: head("/arrived"),
                body: Vec::new(),
                timeout: None,
                trace: None,
                retries: None,
                done: Box::new(drop),
            };
            host.call(call).unwrap().detach();
        });
        Some(Rc::new(place.host.after(Duration::from_millis(1), tick)))
    }
}

/// Has another thread answer for each request.
struct Elsewhere;

thread_local! {
    static WAITING: RefCell<HashMap<u64, Resumer>> = RefCell::default();
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Filter for Elsewhere {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }

    fn on_request_headers(&self, _: &mut State, stream: &mut Stream<'_>, _: bool) -> Action {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        WAITING.with_borrow_mut(|waiting| waiting.insert(number, stream.resumer.clone()));
        let remote = stream.host.remote();
        let answer = move || {
            let resumer = WAITING.with_borrow_mut(|waiting| waiting.remove(&number));
            resumer.expect("the worker that waits").resume();
        };
        std::thread::spawn(move || remote.post(answer).unwrap());
        Action::Pause
    }

    fn on_request_resumed(&self, _: &mut State, stream: &mut Stream<'_>) -> Action {
        let _ = stream.request.fields.append_name(b"x-from", b"elsewhere");
        Action::Continue
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register("resident", |_, _| Ok(Arc::new(Resident)));
    registry
}

fn slot() -> FilterSlot {
    FilterSlot {
        name: "resident".into(),
        kind: "resident".into(),
        config: Value::Null,
        disabled: false,
        origin: Default::default(),
    }
}

#[test]
fn a_filter_calls_out_before_any_request() {
    let (origin, aside) = (fine(), fine());
    let mut site = site(origin.address, aside.address, &[]);
    site.http.filters.push(slot());
    let _running = site.run(&registry());
    wait_until("the call at arrival", || aside.requests().iter().any(|request| request.target == "/arrived"));
}

#[test]
fn another_thread_ends_a_pause() {
    let (origin, aside) = (fine(), fine());
    let mut site = site(origin.address, aside.address, &[]);
    site.http.filters.push(slot());
    let running = site.run(&registry());
    let mut client = RawClient::connect(running.address);
    for _ in 0..20 {
        assert_eq!(client.exchange(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    }
    assert!(origin.requests().iter().all(|request| request.header("x-from") == "elsewhere"));
}
