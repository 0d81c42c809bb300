//! What a plan carries over, and what it tells about its filters.

use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postrider_filter_api::*;
use postrider_model::{Cluster, FilterConfig, FilterOverride, FilterSlot, RetryBudget, Snapshot, Value};
use postrider_testkit::TempDir;
use postrider_worker::Plan;

use crate::common::Site;

static FOLDER: OnceLock<TempDir> = OnceLock::new();

/// Reads a file: the one that its configuration names.
struct Reader {
    files: Vec<WatchedFile>,
    facts: plugin::Facts,
}

struct Nothing;

impl Filter for Nothing {
    fn hooks(&self) -> Hooks {
        Hooks::default()
    }
}

fn read(name: &Value) -> Vec<WatchedFile> {
    let Value::String(name) = name else { return Vec::new() };
    let path = FOLDER.get_or_init(TempDir::new).path().join(name);
    vec![WatchedFile::new(&path, std::fs::read(&path).ok().as_deref())]
}

impl Factory for Reader {
    fn route_config(&self, _: &str, value: &Value) -> Result<RouteConfig, ConfigError> {
        Ok(RouteConfig { files: read(value), ..RouteConfig::new((), value) })
    }

    fn filter(&self, _: &ScopedConfigs, _: &Place<'_>) -> Rc<dyn Filter> {
        Rc::new(Nothing)
    }

    fn files(&self) -> &[WatchedFile] {
        &self.files
    }

    fn plugin(&self) -> Option<&plugin::Facts> {
        Some(&self.facts)
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register("reader", |name, value| {
        let facts = plugin::Facts {
            name: name.to_owned(),
            version: String::new(),
            runtime: "test",
            source: "inline".into(),
            digest: String::new(),
            policy: plugin::Policy { cpu: Duration::from_millis(1), ..plugin::Policy::default() },
            config: value.clone(),
            schema: None,
        };
        Ok(Arc::new(Reader { files: read(value), facts }))
    });
    registry
}

/// One filter that reads `gateway`, and on the only route `route`.
fn snapshot() -> Arc<Snapshot> {
    let mut site = Site::new("127.0.0.1:1".parse().unwrap());
    site.http.filters = vec![FilterSlot {
        name: "r".into(),
        kind: "reader".into(),
        config: Value::String("gateway".into()),
        disabled: false,
        origin: Default::default(),
    }];
    let host = Arc::make_mut(&mut Arc::make_mut(&mut site.http.routes).virtual_hosts[0]);
    Arc::make_mut(&mut host.routes[0]).filter_overrides = vec![FilterOverride {
        name: "r".into(),
        config: Some(FilterConfig { kind: "reader".into(), value: Value::String("route".into()) }),
        disabled: false,
        optional: false,
        origin: Default::default(),
    }];
    Arc::new(site.snapshot())
}

fn write(name: &str, content: &str) {
    std::fs::write(FOLDER.get_or_init(TempDir::new).path().join(name), content).unwrap();
}

#[test]
fn a_chain_is_compiled_anew_when_a_file_of_its_filters_changed() {
    write("gateway", "1");
    write("route", "1");
    let snapshot = snapshot();
    let compile = |previous: Option<&Plan>| {
        Plan::compile(snapshot.clone(), previous, &registry(), 1).unwrap_or_else(|errors| panic!("{errors:?}"))
    };
    let first = compile(None);
    let names: Vec<_> = first.files().map(|file| file.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, [Path::new("gateway"), Path::new("route")]);
    let mut previous = first;
    for (name, content, same) in
        [("gateway", "1", true), ("gateway", "2", false), ("route", "1", true), ("route", "2", false)]
    {
        write(name, content);
        let plan = compile(Some(&previous));
        assert_eq!(Arc::ptr_eq(&plan.listeners[0], &previous.listeners[0]), same, "{name} {content}");
        assert!(Arc::ptr_eq(&plan.clusters[0], &previous.clusters[0]));
        previous = plan;
    }
}

#[test]
fn a_plan_tells_its_plugins_and_what_each_route_sees() {
    let plan = Plan::compile(snapshot(), None, &registry(), 1).unwrap_or_else(|e| panic!("{e:?}"));
    let plugins: Vec<_> = plan.plugins().map(|(listener, chain, facts)| (listener, chain, &*facts.name)).collect();
    assert_eq!(plugins, [("front", "", "r")]);
    let routes = plan.listeners[0].chains[0].routes().unwrap();
    let seen = &routes.filter_chains[routes.routes[0].filters as usize].0[0];
    assert_eq!((&*seen.name, seen.slot), ("r", 0));
    assert_eq!(seen.configs.route.as_ref().unwrap().shown, Value::String("route".into()));
    assert!(routes.filter_chains[0].0[0].configs.route.is_none());
}

#[test]
fn a_cluster_goes_on_with_other_limits_and_with_nothing_else() {
    let first = Plan::compile(snapshot(), None, &registry(), 1).unwrap_or_else(|e| panic!("{e:?}"));
    let goes_on = |change: &dyn Fn(&mut Cluster)| {
        let mut snapshot = (*snapshot()).clone();
        change(Arc::make_mut(&mut snapshot.clusters[0]));
        let plan = Plan::compile(Arc::new(snapshot), Some(&first), &registry(), 1).unwrap_or_else(|e| panic!("{e:?}"));
        Arc::ptr_eq(&plan.clusters[0], &first.clusters[0])
    };
    assert!(goes_on(&|cluster| cluster.thresholds.max_requests = 7));
    assert!(goes_on(&|cluster| cluster.high_thresholds.max_retries = 7));
    assert!(goes_on(&|cluster| cluster.health.panic_threshold = 7.0));
    assert!(goes_on(&|cluster| cluster.balancing.maintained = 7));
    assert!(!goes_on(&|cluster| cluster.outliers = Some(Box::default())));
    assert!(!goes_on(&|cluster| cluster.buffer_limit = 7));
    assert!(!goes_on(&|cluster| cluster.thresholds.track_remaining = true));
    assert!(!goes_on(&|cluster| cluster.high_thresholds.max_connection_pools = Some(7)));
    let budget = Some(RetryBudget { percent: 20.0, at_least: 3, interval: None });
    assert!(!goes_on(&|cluster| cluster.thresholds.retry_budget = budget));
}
