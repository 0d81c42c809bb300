//! What filters make before their routes come into force.

use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use postrider_filter_api::*;
use postrider_model::{FilterConfig, FilterOverride, FilterSlot, Value};
use postrider_testkit::RawClient;

use crate::common::Site;
use crate::scripted::fine;

/// What happened, in its order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

thread_local! {
    /// For whom registries of this test build.
    static DIARY: Diary = Diary::default();
}

struct Dear {
    name: String,
    diary: Diary,
}

/// What takes long to make.
struct Machine {
    name: String,
    diary: Diary,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.diary.note(format!("{} is gone", self.name));
    }
}

struct Plain;

impl Filter for Plain {
    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::default() }
    }
}

impl Factory for Dear {
    fn route_config(&self, _: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        Ok(RouteConfig::new((), value))
    }

    fn filter(&self, _: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        self.diary.note(format!("{} is a filter", self.name));
        Rc::new(Plain)
    }

    fn warm(&self, _: &ScopedConfigs, place: &Place<'_>) -> Option<Rc<dyn Any>> {
        let (name, diary) = (self.name.clone(), self.diary.clone());
        diary.note(format!("{name} is made"));
        let meanwhile = diary.clone();
        let _ = place.host.remote().post(move || meanwhile.note("something else".into()));
        Some(Rc::new(Machine { name, diary }))
    }

    fn arrive(&self, _: &Place<'_>) -> Option<Rc<dyn Any>> {
        self.diary.note(format!("{} is in force", self.name));
        None
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register("dear", |_, config| {
        let Value::String(name) = config else { return Err(Vec::new()) };
        Ok(Arc::new(Dear { name: name.clone(), diary: DIARY.with(Diary::clone) }))
    });
    registry
}

fn site(origin: &postrider_testkit::Origin, names: &[&str]) -> Site {
    let mut site = Site::new(origin.address);
    let slot = |(place, name): (usize, &&str)| FilterSlot {
        name: format!("dear-{place}"),
        kind: "dear".into(),
        config: Value::String((*name).to_owned()),
        disabled: false,
        origin: Default::default(),
    };
    site.http.filters = names.iter().enumerate().map(slot).collect();
    site
}

#[test]
fn nothing_was_made_before_the_first_request_which_waited_for_all_of_it() {
    let (origin, diary) = (fine(), DIARY.with(Diary::clone));
    let running = site(&origin, &["a", "b"]).run(&registry());
    let made = ["a is made", "something else", "b is made", "something else", "a is in force", "b is in force"];
    assert_eq!(diary.take(), [&made[..], &["a is a filter", "b is a filter"]].concat());
    let mut client = RawClient::connect(running.address);
    assert_eq!(client.exchange(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    running.update(site(&origin, &["a", "c"]), &registry());
    let seen = diary.take();
    let at = |what: &str| seen.iter().position(|seen| seen == what).unwrap_or_else(|| panic!("{what}: {seen:?}"));
    assert!(at("a is made") < at("something else") && at("something else") < at("c is made"), "{seen:?}");
    assert!(at("c is made") < at("c is in force"), "{seen:?}");
    assert!(at("c is in force") < at("a is gone") && at("c is in force") < at("b is gone"), "{seen:?}");
    assert!(!seen.contains(&"c is gone".to_owned()), "{seen:?}");
    running.update(site(&origin, &["a", "c"]), &registry());
    assert_eq!(diary.take(), [""; 0], "nothing changed");
    drop(running);
    let mut gone = diary.take();
    gone.sort_unstable();
    assert_eq!(gone, ["a is gone", "c is gone"]);
}

#[test]
fn routes_that_nobody_asks_for_do_not_fill_the_memory() {
    let (origin, diary) = (fine(), DIARY.with(Diary::clone));
    let mut site = site(&origin, &["a"]);
    let host = Arc::make_mut(&mut Arc::make_mut(&mut site.http.routes).virtual_hosts[0]);
    let route = host.routes[0].clone();
    let route = |number| {
        let mut route = (*route).clone();
        route.filter_overrides = vec![FilterOverride {
            name: "dear-0".into(),
            config: Some(FilterConfig { kind: "dear".into(), value: Value::String(format!("{number}")) }),
            disabled: false,
            optional: false,
            origin: Default::default(),
        }];
        Arc::new(route)
    };
    host.routes = (0..300).map(route).collect();
    let _running = site.run(&registry());
    let made = diary.take().iter().filter(|what| what.ends_with("is made")).count();
    assert_eq!(made, 256);
}
