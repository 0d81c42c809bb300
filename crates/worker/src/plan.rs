//! What a snapshot compiles to, off the workers: route indexes, filter factories and the filter chain of every route.
//!
//! A [`Plan`] is immutable and shared by all workers. Parts whose model did not change are carried over from the plan
//! before, so that "the same `Arc`" means "nothing to do" to a worker.

mod certificates;
mod groups;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use postrider_filter_api::{
    Chooser, Factory, GuardFactory, Registry, RouteConfig, RouteFacts, RouteRateLimits, RouteTarget, ScopedConfigs,
    WatchedFile, plugin,
};
use postrider_http::{FieldLine, HeaderId};
use postrider_model::{
    AccessLog, Action, Attempts, Certificate, ChainMatch, CheckKind, Cluster, ConnectionHandler, FilterChain,
    FilterOverride, FilterSlot, HeaderMatch, HostRewrite, HttpConnection, Listener, Origin, PathRewrite, RequireTls,
    RouteTable, Snapshot, Target, TcpProxy, Validation, VirtualHost,
};
use postrider_router::{HeaderTest, Table};
use postrider_tls::{ClientTls, ServerTls, TlsError};
use postrider_upstream::outlier::Monitors;
use postrider_upstream::{Breakers, Endpoints, OpenConnections, dns};

use crate::limit::Quota;

pub use certificates::{KnownCertificate, TlsContext, TlsPlace};
pub use groups::{GroupsPlan, VirtualClusterPlan};

/// A snapshot, ready to run.
pub struct Plan {
    pub snapshot: Arc<Snapshot>,
    pub listeners: Vec<Arc<ListenerPlan>>,
    pub clusters: Vec<Arc<ClusterPlan>>,
}

pub struct ListenerPlan {
    pub model: Arc<Listener>,
    /// Connections on each worker; lives as long as a listener of this name does.
    pub loads: Arc<[Load]>,
    pub chains: Vec<Arc<ChainPlan>>,
    pub default_chain: Option<Arc<ChainPlan>>,
}

impl ListenerPlan {
    /// On all workers.
    pub(crate) fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.0.load(Relaxed)).sum()
    }
}

/// How many connections a worker holds, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Load(pub AtomicUsize);

/// A filter chain without its routes, which may change under it.
pub struct ChainPlan {
    pub model: Arc<FilterChain>,
    pub name: Arc<str>,
    pub handler: HandlerPlan,
    /// What all workers keep of each limit of the model.
    pub quotas: Vec<Quota>,
    /// In the order of the model's.
    pub guards: Vec<Arc<dyn GuardFactory>>,
    pub tls: Option<Arc<ServerTls>>,
    /// What filters and certificates were read from.
    pub files: Vec<WatchedFile>,
}

pub enum HandlerPlan {
    Http(Arc<HttpPlan>),
    Tcp(Arc<TcpProxy>),
    Echo,
    Say(Arc<[u8]>),
}

pub struct HttpPlan {
    pub model: Arc<HttpConnection>,
    pub routes: Arc<RoutesPlan>,
}

/// A compiled route table with the filters that each route sees.
pub struct RoutesPlan {
    pub table: Table,
    /// Distinct filter chains; the first is that of requests without a route.
    pub filter_chains: Vec<FilterChainPlan>,
    /// Per route: what is known about it, and what it sees.
    pub routes: Vec<RoutePlan>,
    /// Every filter of the chain, also those that are off on all routes.
    pub factories: Vec<Arc<dyn Factory>>,
    /// What the filters and their overrides were read from.
    pub files: Vec<WatchedFile>,
    /// Some virtual host wants TLS.
    pub requires_tls: bool,
}

pub struct RoutePlan {
    pub facts: RouteFacts,
    /// Index into [`RoutesPlan::filter_chains`].
    pub filters: u32,
    /// The same per weighted cluster, where those say something of their own.
    pub weighted_filters: Vec<u32>,
    /// Table, virtual host, route or a weighted cluster edit the headers of requests, and of responses; of requests
    /// also where something else is to be done before they leave: with `groups`.
    pub edits_requests: bool,
    pub edits_responses: bool,
    /// The route answers by itself.
    pub answers: bool,
    /// Names the cluster of each request.
    pub chooser: Option<Chooser>,
    /// What the upstream is told about the route's timeout.
    pub timeout: Option<FieldLine>,
    /// Retries, where the route or its virtual host says something about them.
    pub attempts: Option<Arc<AttemptsPlan>>,
    /// What its requests count in beside their cluster.
    pub groups: Option<GroupsPlan>,
    /// Something is to be remembered of requests while they are under way: for tries, copies or redirects.
    pub remembers: bool,
}

/// What is said about tries, with its conditions compiled.
pub struct AttemptsPlan {
    pub model: Arc<Attempts>,
    pub request_headers: Box<[HeaderTest]>,
    pub response_headers: Box<[HeaderTest]>,
}

impl AttemptsPlan {
    fn compile(model: &Arc<Attempts>, registry: &Registry) -> Arc<AttemptsPlan> {
        // A judge whose configuration is wrong was refused with the document.
        let judges = |kind: &str, config: &_| registry.find_judge(kind)?(config).ok();
        let compile = |tests: &[HeaderMatch]| tests.iter().map(|test| HeaderTest::compile(test, &judges)).collect();
        let retry = model.retry.as_ref();
        Arc::new(AttemptsPlan {
            model: model.clone(),
            request_headers: compile(retry.map_or(&[], |retry| &retry.request_headers)),
            response_headers: compile(retry.map_or(&[], |retry| &retry.response_headers)),
        })
    }
}

impl RoutePlan {
    /// The route's own formats may say what it is called.
    pub fn tells_names(&self) -> bool {
        self.edits_requests || self.edits_responses || self.answers
    }
}

/// Filters in request order, each with the overrides that apply: what a route sees.
#[derive(Clone, Default)]
pub struct FilterChainPlan(pub Vec<FilterPlan>);

#[derive(Clone)]
pub struct FilterPlan {
    /// Its place among the filters of the connection manager, the same on every route.
    pub slot: u32,
    pub name: Arc<str>,
    pub factory: Arc<dyn Factory>,
    /// By scope, each as it was read and as it is shown.
    pub configs: ScopedConfigs,
}

pub struct ClusterPlan {
    pub model: Arc<Cluster>,
    pub name: Arc<str>,
    pub breakers: Arc<Breakers>,
    /// Known before any name was resolved.
    pub initial: Endpoints,
    pub tls: Option<Arc<ClientTls>>,
    /// Condition of the answers to each health check.
    pub check_services: Vec<Option<HeaderTest>>,
    /// Where bad answers of hosts are counted.
    pub monitors: Option<Arc<Monitors>>,
    /// Where connections to hosts with limits of their own are counted.
    pub open: Option<Arc<OpenConnections>>,
    /// Some worker connected to a host for a request: checks are less frequent before.
    pub traffic: AtomicBool,
    /// What certificates were read from.
    pub files: Vec<WatchedFile>,
}

/// Why a snapshot cannot run, and where in its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// The dialect's path to the value.
    pub path: String,
    /// What kind of trouble it is: `invalid-filter-config`, `invalid-tls`.
    pub code: &'static str,
    pub message: String,
}

const FILTER: &str = "invalid-filter-config";
const TLS: &str = "invalid-tls";

impl Plan {
    /// Compiles `snapshot`, reusing what did not change since `previous`.
    ///
    /// # Errors
    /// Every filter configuration that its filter refuses, and every certificate that is not good.
    pub fn compile(
        snapshot: Arc<Snapshot>,
        previous: Option<&Plan>,
        registry: &Registry,
        workers: usize,
    ) -> Result<Plan, Vec<PlanError>> {
        let mut errors = Vec::new();
        let mut listeners = Vec::new();
        for listener in &snapshot.listeners {
            let known = previous.and_then(|plan| plan.listeners.iter().find(|old| old.model.name == listener.name));
            match known {
                Some(known) if known.model == *listener && known.is_current() => listeners.push(known.clone()),
                known => match ListenerPlan::compile(listener, known.map(Arc::as_ref), registry, workers) {
                    Ok(plan) => listeners.push(Arc::new(plan)),
                    Err(more) => errors.extend(more),
                },
            }
        }
        let mut clusters = Vec::new();
        for cluster in &snapshot.clusters {
            let known = previous.and_then(|plan| plan.clusters.iter().find(|old| old.model == *cluster));
            match known {
                Some(known) if are_current(&known.files) => clusters.push(known.clone()),
                _ => match ClusterPlan::compile(cluster, registry, workers) {
                    Ok(plan) => clusters.push(Arc::new(plan)),
                    Err(more) => errors.extend(more),
                },
            }
        }
        if errors.is_empty() { Ok(Plan { snapshot, listeners, clusters }) } else { Err(errors) }
    }

    pub fn listener(&self, name: &str) -> Option<&Arc<ListenerPlan>> {
        self.listeners.iter().find(|listener| listener.model.name == name)
    }

    /// Every file that a filter's configuration or a certificate was read from.
    pub fn files(&self) -> impl Iterator<Item = &WatchedFile> {
        let of_chains = self.listeners.iter().flat_map(|listener| listener.each_chain()).flat_map(|chain| &chain.files);
        of_chains.chain(self.clusters.iter().flat_map(|cluster| &cluster.files))
    }

    /// Every plugin, with the names of its listener and its chain.
    pub fn plugins(&self) -> impl Iterator<Item = (&str, &str, &plugin::Facts)> {
        self.listeners.iter().flat_map(|listener| {
            listener.each_chain().flat_map(|chain| {
                let factories = chain.routes().map_or(&[][..], |routes| &routes.factories);
                let plugins = factories.iter().filter_map(|factory| factory.plugin());
                plugins.map(|facts| (listener.model.name.as_str(), &*chain.name, facts))
            })
        })
    }

    /// Every access log that some part of the plan writes.
    pub fn access_logs(&self) -> impl Iterator<Item = &AccessLog> {
        self.listeners.iter().flat_map(|listener| {
            listener.each_chain().flat_map(|chain| chain.access_log()).chain(&listener.model.access_log)
        })
    }
}

impl ListenerPlan {
    fn compile(
        model: &Arc<Listener>,
        previous: Option<&ListenerPlan>,
        registry: &Registry,
        workers: usize,
    ) -> Result<ListenerPlan, Vec<PlanError>> {
        let mut errors = Vec::new();
        let mut compile = |chain: &Arc<FilterChain>| {
            let known =
                previous.and_then(|old| old.each_chain().find(|old| old.model == *chain && are_current(&old.files)));
            let known = known.cloned();
            known.or_else(|| ChainPlan::compile(chain, registry).map(Arc::new).map_err(|e| errors.extend(e)).ok())
        };
        let chains: Vec<_> = model.filter_chains.iter().filter_map(&mut compile).collect();
        let default_chain = model.default_filter_chain.as_ref().and_then(&mut compile);
        if !errors.is_empty() {
            return Err(errors);
        }
        let loads = previous.map(|old| old.loads.clone());
        let loads = loads.unwrap_or_else(|| (0..workers.max(1)).map(|_| Load::default()).collect());
        Ok(ListenerPlan { model: model.clone(), loads, chains, default_chain })
    }

    /// No file that it was made from changed since.
    fn is_current(&self) -> bool {
        self.each_chain().all(|chain| are_current(&chain.files))
    }

    /// A new connection's filter chain is known without a word from the client, speaks no TLS and has no limit.
    pub fn is_immediate(&self) -> bool {
        let inspection = &self.model.inspection;
        inspection.proxy.is_none()
            && !inspection.original_destination
            && !inspection.tls
            && !inspection.http
            && self.each_chain().all(|chain| chain.tls.is_none() && chain.quotas.is_empty() && chain.guards.is_empty())
    }

    /// What each chain but the default one takes.
    pub fn each_match(&self) -> impl Iterator<Item = &ChainMatch> + Clone {
        self.chains.iter().map(|chain| &chain.model.matches)
    }

    pub fn each_chain(&self) -> impl Iterator<Item = &Arc<ChainPlan>> {
        self.chains.iter().chain(&self.default_chain)
    }
}

impl ChainPlan {
    fn compile(model: &Arc<FilterChain>, registry: &Registry) -> Result<ChainPlan, Vec<PlanError>> {
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let tls = model.tls.as_ref().and_then(|tls| {
            let built = ServerTls::build(tls, &mut |path| read(path, &mut files));
            let (certificates, validation) = (tls.certificates.as_slice(), tls.common.validation.as_ref());
            let origins = TlsOrigins { context: &tls.origin, certificates, validation };
            built.map(Arc::new).map_err(|refused| origins.report(&mut errors, refused)).ok()
        });
        let handler = match &model.handler {
            ConnectionHandler::Http(http) => RoutesPlan::compile(&http.routes, &http.filters, registry)
                .map(|routes| HandlerPlan::Http(Arc::new(HttpPlan { model: http.clone(), routes: Arc::new(routes) })))
                .map_err(|more| errors.extend(more))
                .ok(),
            ConnectionHandler::Tcp(tcp) => Some(HandlerPlan::Tcp(tcp.clone())),
            ConnectionHandler::Echo => Some(HandlerPlan::Echo),
            ConnectionHandler::Say(said) => Some(HandlerPlan::Say(said.clone())),
        };
        let mut guards = Vec::new();
        for slot in &model.guards {
            let Some(build) = registry.find_guard(&slot.kind) else {
                let message = format!("{} is no filter of connections", slot.kind);
                errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
                continue;
            };
            let built = build(&slot.config).map_err(|refused| report(&mut errors, &slot.origin.0, refused)).ok();
            if let Some(guard) = built {
                remember(&mut files, guard.files());
                guards.push(guard);
            }
        }
        let Some(handler) = handler.filter(|_| errors.is_empty()) else { return Err(errors) };
        if let HandlerPlan::Http(http) = &handler {
            remember(&mut files, &http.routes.files);
        }
        let quotas = model.limits.iter().map(Quota::of).collect();
        Ok(ChainPlan { model: model.clone(), name: model.name.as_str().into(), handler, quotas, guards, tls, files })
    }

    /// `None` for a chain that speaks no HTTP.
    pub fn routes(&self) -> Option<&RoutesPlan> {
        match &self.handler {
            HandlerPlan::Http(http) => Some(&http.routes),
            HandlerPlan::Tcp(_) | HandlerPlan::Echo | HandlerPlan::Say(_) => None,
        }
    }

    pub fn access_log(&self) -> &[AccessLog] {
        match &self.handler {
            HandlerPlan::Http(http) => &http.model.access_log,
            HandlerPlan::Tcp(tcp) => &tcp.access_log,
            HandlerPlan::Echo | HandlerPlan::Say(_) => &[],
        }
    }

    /// Connections of `other` may go on under this plan: at most the routes differ.
    pub fn same_but_routes(&self, other: &ChainPlan) -> bool {
        let (HandlerPlan::Http(ours), HandlerPlan::Http(theirs)) = (&self.handler, &other.handler) else {
            return self.model == other.model;
        };
        let without_routes = |http: &HttpConnection| HttpConnection { routes: Arc::default(), ..http.clone() };
        self.model.name == other.model.name
            && self.model.matches == other.model.matches
            && self.model.tls == other.model.tls
            && self.model.limits == other.model.limits
            && self.model.guards == other.model.guards
            && without_routes(&ours.model) == without_routes(&theirs.model)
    }
}

impl RoutesPlan {
    /// Compiles the table and resolves the filters of each route.
    ///
    /// # Errors
    /// Every filter or override whose configuration is refused.
    pub fn compile(
        table: &Arc<RouteTable>,
        slots: &[FilterSlot],
        registry: &Registry,
    ) -> Result<RoutesPlan, Vec<PlanError>> {
        let mut resolver = FilterResolver::new(slots, registry);
        let base = resolver.scope(&Scope::default(), &table.filter_overrides, |scoped, config| {
            scoped.table = Some(config);
        });
        let unrouted = resolver.intern(&base);
        debug_assert_eq!(unrouted, 0, "requests without a route use the first chain");
        let mut routes = Vec::new();
        for virtual_host in &table.virtual_hosts {
            let host_scope = resolver.scope(&base, &virtual_host.filter_overrides, |scoped, config| {
                scoped.virtual_host = Some(config);
            });
            let host_name: Arc<str> = virtual_host.name.as_str().into();
            let virtual_clusters =
                VirtualClusterPlan::compile(virtual_host, &|kind, config| registry.find_judge(kind)?(config).ok());
            for route in &virtual_host.routes {
                let scope = resolver.scope(&host_scope, &route.filter_overrides, |scoped, config| {
                    scoped.route = Some(config);
                });
                let mut weighted_filters = Vec::new();
                if let Action::Forward(forward) = &route.action
                    && let Target::Weighted(clusters) = &forward.target
                    && clusters.iter().any(|cluster| !cluster.filter_overrides.is_empty())
                {
                    for cluster in clusters {
                        let scope = resolver.scope(&scope, &cluster.filter_overrides, |scoped, config| {
                            scoped.weighted_cluster = Some(config);
                        });
                        weighted_filters.push(resolver.intern(&scope));
                    }
                }
                let clusters = match &route.action {
                    Action::Forward(forward) => match &forward.target {
                        Target::Weighted(clusters) => clusters.as_slice(),
                        Target::Cluster(_) | Target::Header(_) | Target::Plugin(_) => &[],
                    },
                    Action::Redirect(_) | Action::Respond(_) => &[],
                };
                let requests = [&table.request_headers, &virtual_host.request_headers, &route.request_headers];
                let responses = [&table.response_headers, &virtual_host.response_headers, &route.response_headers];
                let chooser = resolver.chooser(registry, &route.action);
                let groups = GroupsPlan::of_route(route, virtual_host, &virtual_clusters);
                routes.push(RoutePlan {
                    chooser,
                    edits_requests: formats_rewrites(&route.action)
                        || groups.is_some()
                        || requests.iter().any(|edits| !edits.is_empty())
                        || clusters.iter().any(|cluster| !cluster.request_headers.is_empty()),
                    edits_responses: responses.iter().any(|edits| !edits.is_empty())
                        || clusters.iter().any(|cluster| !cluster.response_headers.is_empty()),
                    answers: !matches!(route.action, Action::Forward(_)),
                    timeout: timeout_line(&route.action),
                    groups,
                    remembers: match &route.action {
                        Action::Forward(forward) => {
                            forward.attempts.is_some() || !forward.mirrors.is_empty() || forward.redirects.is_some()
                        }
                        Action::Redirect(_) | Action::Respond(_) => false,
                    },
                    attempts: match &route.action {
                        Action::Forward(forward) => forward.attempts.as_ref(),
                        Action::Redirect(_) | Action::Respond(_) => None,
                    }
                    .map(|attempts| AttemptsPlan::compile(attempts, registry)),
                    facts: RouteFacts {
                        index: u32::try_from(routes.len()).unwrap_or_default(),
                        name: (!route.name.is_empty()).then(|| route.name.as_str().into()),
                        virtual_host: host_name.clone(),
                        metadata: route.metadata.clone(),
                        virtual_host_metadata: virtual_host.metadata.clone(),
                        forwards: matches!(route.action, Action::Forward(_)),
                        target: target(&route.action),
                        rate_limits: rate_limits(virtual_host, &route.action),
                    },
                    filters: resolver.intern(&scope),
                    weighted_filters,
                });
            }
        }
        if resolver.errors.is_empty() {
            let requires_tls = table.virtual_hosts.iter().any(|host| host.require_tls != RequireTls::None);
            Ok(RoutesPlan {
                // A judge whose configuration is wrong was refused with the document.
                table: Table::compile_with(table, &|kind, config| registry.find_judge(kind)?(config).ok()),
                filter_chains: resolver.chains,
                routes,
                factories: resolver.factories.into_iter().flatten().collect(),
                files: resolver.files,
                requires_tls,
            })
        } else {
            Err(resolver.errors)
        }
    }
}

/// A format says what path or host become.
fn formats_rewrites(action: &Action) -> bool {
    let Action::Forward(forward) = action else { return false };
    matches!(forward.path_rewrite, PathRewrite::Format(_)) || matches!(forward.host_rewrite, HostRewrite::Format(_))
}

fn rate_limits(virtual_host: &VirtualHost, action: &Action) -> RouteRateLimits {
    let Action::Forward(forward) = action else { return RouteRateLimits::default() };
    RouteRateLimits {
        route: forward.rate_limits.clone(),
        virtual_host: virtual_host.rate_limits.clone(),
        include_virtual_host: forward.include_host_rate_limits,
    }
}

fn target(action: &Action) -> RouteTarget {
    let Action::Forward(forward) = action else { return RouteTarget::Unknown };
    match &forward.target {
        Target::Cluster(name) => RouteTarget::Cluster(name.as_str().into()),
        Target::Weighted(clusters) => {
            RouteTarget::Weighted(clusters.iter().map(|cluster| cluster.cluster.as_str().into()).collect())
        }
        Target::Header(name) => RouteTarget::Header(name.as_str().into()),
        Target::Plugin(_) => RouteTarget::Unknown,
    }
}

fn timeout_line(action: &Action) -> Option<FieldLine> {
    let Action::Forward(forward) = action else { return None };
    let timeout = forward.timeout.filter(|timeout| !timeout.is_zero())?;
    FieldLine::new(HeaderId::XEnvoyExpectedRqTimeoutMs, timeout.as_millis().to_string().as_bytes()).ok()
}

/// What the slots of a chain look like from some scope: per slot whether it is off, and its overrides.
#[derive(Clone, Default)]
struct Scope(Vec<(bool, ScopedConfigs)>);

/// Resolves filters scope by scope, and keeps each distinct outcome once.
struct FilterResolver<'a> {
    slots: &'a [FilterSlot],
    factories: Vec<Option<Arc<dyn Factory>>>,
    chains: Vec<FilterChainPlan>,
    /// By what a chain is made of: slot and addresses of its override configurations.
    known: HashMap<Vec<[usize; 5]>, u32>,
    files: Vec<WatchedFile>,
    errors: Vec<PlanError>,
}

impl<'a> FilterResolver<'a> {
    fn new(slots: &'a [FilterSlot], registry: &Registry) -> Self {
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let factories = slots
            .iter()
            .map(|slot| {
                let Some(built) = registry.build(&slot.name, &slot.kind, &slot.config) else {
                    let message = format!("no filter takes a configuration of type {}", slot.kind);
                    errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
                    return None;
                };
                let factory = built.map_err(|refused| report(&mut errors, &slot.origin.0, refused)).ok()?;
                remember(&mut files, factory.files());
                Some(factory)
            })
            .collect();
        FilterResolver { slots, factories, chains: Vec::new(), known: HashMap::new(), files, errors }
    }

    /// The scope below `outer` with `overrides` applied; `put` says at which level.
    fn scope(
        &mut self,
        outer: &Scope,
        overrides: &[FilterOverride],
        put: impl Fn(&mut ScopedConfigs, RouteConfig),
    ) -> Scope {
        let mut scope = outer.clone();
        if scope.0.is_empty() {
            scope.0 = self.slots.iter().map(|slot| (slot.disabled, ScopedConfigs::default())).collect();
        }
        for change in overrides {
            // One that names no filter of the chain has no effect, as in Envoy; whoever read the document warned. Several
            // may have one name and type: each is told, and takes what is its own.
            let named = |slot: &&FilterSlot| slot.name == change.name;
            let kind = self.slots.iter().find(named).map(|slot| &slot.kind);
            let slots = self.slots.iter().zip(&self.factories).zip(&mut scope.0);
            for ((_, factory), (disabled, configs)) in
                slots.filter(|((slot, _), _)| named(slot) && Some(&slot.kind) == kind)
            {
                let Some(factory) = factory else { continue };
                *disabled = change.disabled;
                let Some(config) = &change.config else { continue };
                match factory.route_config(&config.kind, &config.value) {
                    Ok(config) => {
                        remember(&mut self.files, &config.files);
                        put(configs, config);
                    }
                    Err(refused) => {
                        report(&mut self.errors, &change.origin.0, refused);
                        // The others would say the same.
                        break;
                    }
                }
            }
        }
        scope
    }

    /// The code that chooses a route's clusters.
    fn chooser(&mut self, registry: &Registry, action: &Action) -> Option<Chooser> {
        let Action::Forward(forward) = action else { return None };
        let Target::Plugin(specifier) = &forward.target else { return None };
        let built = registry.find_chooser(&specifier.kind)?(&specifier.config);
        built.map_err(|refused| report(&mut self.errors, &specifier.origin.0, refused)).ok()
    }

    /// The number of the chain that this scope sees.
    fn intern(&mut self, scope: &Scope) -> u32 {
        let active = || scope.0.iter().enumerate().filter(|(_, (disabled, _))| !disabled);
        let address = |config: &Option<RouteConfig>| {
            config.as_ref().map_or(0, |config| Arc::as_ptr(&config.value).cast::<()>() as usize)
        };
        let key = active()
            .map(|(slot, (_, c))| {
                [slot, address(&c.table), address(&c.virtual_host), address(&c.route), address(&c.weighted_cluster)]
            })
            .collect();
        let chains = &mut self.chains;
        *self.known.entry(key).or_insert_with(|| {
            let filters = active().filter_map(|(slot, (_, configs))| {
                Some(FilterPlan {
                    slot: u32::try_from(slot).ok()?,
                    name: self.slots.get(slot)?.name.as_str().into(),
                    factory: self.factories.get(slot)?.as_ref()?.clone(),
                    configs: configs.clone(),
                })
            });
            chains.push(FilterChainPlan(filters.collect()));
            u32::try_from(chains.len() - 1).unwrap_or_default()
        })
    }
}

/// Several filters may read one file.
fn remember(files: &mut Vec<WatchedFile>, more: &[WatchedFile]) {
    for file in more {
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
}

fn report(errors: &mut Vec<PlanError>, origin: &str, refused: Vec<postrider_model::ValueError>) {
    errors.extend(refused.into_iter().map(|error| PlanError {
        path: if error.path.is_empty() { origin.to_owned() } else { format!("{origin}.{}", error.path) },
        code: FILTER,
        message: error.message,
    }));
}

/// Where in the document the parts of a TLS context stand: certificates and validation may come from elsewhere.
struct TlsOrigins<'m> {
    context: &'m Origin,
    certificates: &'m [Certificate],
    validation: Option<&'m Validation>,
}

impl TlsOrigins<'_> {
    fn report(&self, errors: &mut Vec<PlanError>, refused: Vec<TlsError>) {
        errors.extend(refused.into_iter().map(|TlsError { path, message }| PlanError {
            path: self.find(&path).0.clone(),
            code: TLS,
            message,
        }));
    }

    /// `path` is in the model's words: `certificates[0].key`.
    fn find(&self, path: &str) -> &Origin {
        let mut certificates = self.certificates.iter().enumerate();
        let certificate = certificates.find(|(index, _)| {
            path.starts_with(&format!("certificates[{index}]")) || path.split('.').next() == Some("certificate")
        });
        match (certificate, self.validation) {
            (Some((_, certificate)), _) => &certificate.origin,
            (None, Some(validation)) if path.starts_with("common.validation") => &validation.origin,
            (None, _) => self.context,
        }
    }
}

/// Reads a file and remembers what was read. Plans are made on control threads, which may.
fn read(path: &Path, files: &mut Vec<WatchedFile>) -> std::io::Result<Vec<u8>> {
    let content = std::fs::read(path);
    remember(files, &[WatchedFile::new(path, content.as_deref().ok())]);
    content
}

/// No file changed since it was read.
fn are_current(files: &[WatchedFile]) -> bool {
    files.iter().all(|file| file.is_current(std::fs::read(&file.path).ok().as_deref()))
}

impl ClusterPlan {
    /// # Errors
    /// What is wrong with its certificates.
    fn compile(model: &Arc<Cluster>, registry: &Registry, workers: usize) -> Result<ClusterPlan, Vec<PlanError>> {
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let tls = model.tls.as_ref().and_then(|tls| {
            let built = ClientTls::build(tls, &mut |path| read(path, &mut files));
            let (certificates, validation) = (tls.certificate.as_slice(), tls.common.validation.as_ref());
            let origins = TlsOrigins { context: &tls.origin, certificates, validation };
            built.map(Arc::new).map_err(|refused| origins.report(&mut errors, refused)).ok()
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let service = |check: &postrider_model::HealthCheck| match &check.kind {
            CheckKind::Http(http) => http.service.clone(),
            CheckKind::Grpc(_) | CheckKind::Tcp(_) | CheckKind::Redis(_) => None,
        };
        // A judge whose configuration is wrong was refused with the document.
        let judges = |kind: &str, config: &_| registry.find_judge(kind)?(config).ok();
        Ok(ClusterPlan {
            model: model.clone(),
            name: model.name.as_str().into(),
            breakers: Arc::new(Breakers::new(&model.thresholds, &model.high_thresholds, workers)),
            initial: dns::initial(&model.discovery),
            tls,
            check_services: (model.health.checks.iter().map(service))
                .map(|service| service.map(|service| HeaderTest::compile(&service, &judges)))
                .collect(),
            monitors: model.outliers.as_deref().map(|rules| Arc::new(Monitors::new(rules.clone()))),
            open: [&model.thresholds, &model.high_thresholds]
                .iter()
                .any(|thresholds| thresholds.max_connections_per_host.is_some())
                .then(Arc::default),
            traffic: AtomicBool::new(false),
            files,
        })
    }
}
