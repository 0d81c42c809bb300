//! What a snapshot compiles to, off the workers: route indexes, filter factories and the filter chain of every route.
//!
//! A [`Plan`] is immutable and shared by all workers. Parts whose model did not change are carried over from the plan
//! before, so that "the same `Arc`" means "nothing to do" to a worker.

mod certificates;
mod clusters;
mod errors;
mod files;
mod filters;
mod groups;
mod loggers;
mod routes;
mod services;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use postrider_filter_api::{GuardFactory, NetworkFactory, NewcomerFactory, Registry, WatchedFile, plugin};
use postrider_model::{
    AccessLog, ChainMatch, ConnectionHandler, FilterChain, FilterSlot, HttpConnection, Listener, NewcomerSlot,
    Snapshot, TcpProxy, UpgradeFilters, Value,
};
use postrider_tls::ServerTls;

use crate::chain_tree;
use crate::filter_chain::{self, Peer};
use crate::limit::Quota;

pub use certificates::{KnownCertificate, TlsContext, TlsPlace};
pub use clusters::{ClusterPlan, Transport};
pub use errors::PlanError;
pub use filters::{FilterChainPlan, FilterPlan};
pub use loggers::LoggerPlan;
pub use routes::{AttemptsPlan, RoutePlan, RoutesPlan};
pub use services::ServicePlan;
pub use upstream::UpstreamFilters;

use errors::{FILTER, TlsOrigins, report};
use files::{are_current, read, remember};
use routes::Tables;
use upstream::UpstreamSlots;

/// A snapshot, ready to run.
pub struct Plan {
    pub snapshot: Arc<Snapshot>,
    pub listeners: Vec<Arc<ListenerPlan>>,
    /// In the order of the snapshot's.
    pub clusters: Vec<Arc<ClusterPlan>>,
    /// The plugins that access logs are told to, each distinct one once.
    pub loggers: Vec<LoggerPlan>,
    /// What runs without any listener.
    pub services: Vec<ServicePlan>,
}

pub struct ListenerPlan {
    pub model: Arc<Listener>,
    /// Connections on each worker; lives as long as a listener of this name does.
    pub loads: Arc<[Load]>,
    pub chains: Vec<Arc<ChainPlan>>,
    pub default_chain: Option<Arc<ChainPlan>>,
    /// Those that look at new connections, in the order of the model's.
    pub filters: Vec<Arc<dyn NewcomerFactory>>,
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
    pub guards: Vec<WatchPlan>,
    pub tls: Option<Arc<ServerTls>>,
    /// What filters and certificates were read from.
    pub files: Vec<WatchedFile>,
    /// Workers that have it, be it for its last connections only. One that differs in its routes takes it over.
    pub in_use: Arc<AtomicUsize>,
}

/// A filter in front of the one that serves.
#[derive(Clone)]
pub enum WatchPlan {
    Guard(Arc<dyn GuardFactory>),
    /// It sees the bytes as well.
    Bytes(Arc<dyn NetworkFactory>),
}

impl WatchPlan {
    fn files(&self) -> &[WatchedFile] {
        match self {
            WatchPlan::Guard(guard) => guard.files(),
            WatchPlan::Bytes(filter) => filter.files(),
        }
    }

    fn is_current(&self) -> bool {
        match self {
            WatchPlan::Guard(_) => true,
            WatchPlan::Bytes(filter) => filter.is_current(),
        }
    }

    /// Whether it is the very same, not one like it.
    fn is(&self, other: &WatchPlan) -> bool {
        match (self, other) {
            (WatchPlan::Guard(ours), WatchPlan::Guard(theirs)) => Arc::ptr_eq(ours, theirs),
            (WatchPlan::Bytes(ours), WatchPlan::Bytes(theirs)) => Arc::ptr_eq(ours, theirs),
            (WatchPlan::Guard(_), WatchPlan::Bytes(_)) | (WatchPlan::Bytes(_), WatchPlan::Guard(_)) => false,
        }
    }

    fn plugin(&self) -> Option<&plugin::Facts> {
        match self {
            WatchPlan::Guard(_) => None,
            WatchPlan::Bytes(filter) => filter.plugin(),
        }
    }

    fn build(slot: &FilterSlot, registry: &Registry, errors: &mut Vec<PlanError>) -> Option<WatchPlan> {
        let built = if let Some(build) = registry.find_guard(&slot.kind) {
            build(&slot.config).map(WatchPlan::Guard)
        } else if let Some(build) = registry.find_network(&slot.kind) {
            build(&slot.name, &slot.config).map(WatchPlan::Bytes)
        } else {
            let message = format!("{} is no filter of connections", slot.kind);
            errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
            return None;
        };
        built.map_err(|refused| report(errors, &slot.origin.0, refused)).ok()
    }
}

pub enum HandlerPlan {
    Http(Arc<HttpPlan>),
    Tcp(Arc<TcpProxy>),
    Echo,
    Say(Arc<[u8]>),
    Filters,
}

pub struct HttpPlan {
    pub model: Arc<HttpConnection>,
    pub routes: Arc<RoutesPlan>,
}

/// What the compilation of listeners knows beside them.
struct Surroundings<'r> {
    registry: &'r Registry,
    /// The clusters that have filters.
    filtered: Vec<Arc<ClusterPlan>>,
    /// Those are the ones of the plan before.
    stay: bool,
}

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
        let mut clusters: Vec<Arc<ClusterPlan>> = Vec::new();
        for cluster in &snapshot.clusters {
            let of_name = previous.and_then(|plan| plan.clusters.iter().find(|old| old.model.name == cluster.name));
            let known = of_name.filter(|old| old.model == *cluster || cluster.continues(&old.model));
            match known {
                Some(known) if known.is_current() => clusters.push(known.clone()),
                _ => match ClusterPlan::compile(cluster, registry, workers) {
                    Ok(plan) => clusters.push(Arc::new(plan)),
                    Err(more) => errors.extend(more),
                },
            }
        }
        // Routes say something of the filters of clusters, so they are compiled for these and no others.
        let filtered = || clusters.iter().filter(|cluster| cluster.filters.is_some());
        let before = || previous.iter().flat_map(|plan| &plan.clusters).filter(|cluster| cluster.filters.is_some());
        let stay = filtered().count() == before().count() && filtered().zip(before()).all(|(a, b)| Arc::ptr_eq(a, b));
        let surroundings = Surroundings { registry, filtered: filtered().cloned().collect(), stay };
        let mut listeners = Vec::new();
        for listener in &snapshot.listeners {
            let known = previous.and_then(|plan| plan.listeners.iter().find(|old| old.model.name == listener.name));
            match known {
                Some(known) if stay && known.model == *listener && known.is_current() => listeners.push(known.clone()),
                known => match ListenerPlan::compile(listener, known.map(Arc::as_ref), &surroundings, workers) {
                    Ok(plan) => listeners.push(Arc::new(plan)),
                    Err(more) => errors.extend(more),
                },
            }
        }
        let logs = listeners.iter().flat_map(|listener| listener.access_logs());
        let loggers = loggers::compile(logs, previous.map_or(&[][..], |plan| &plan.loggers), registry, &mut errors);
        let known = previous.map_or(&[][..], |plan| &plan.services);
        let sinks = snapshot.stats_sinks.iter().flat_map(|sinks| sinks.plugins());
        let services = services::compile(snapshot.services.iter().chain(sinks), known, registry, &mut errors);
        if errors.is_empty() { Ok(Plan { snapshot, listeners, clusters, loggers, services }) } else { Err(errors) }
    }

    pub fn listener(&self, name: &str) -> Option<&Arc<ListenerPlan>> {
        self.listeners.iter().find(|listener| listener.model.name == name)
    }

    /// Every file that a filter's configuration or a certificate was read from.
    pub fn files(&self) -> impl Iterator<Item = &WatchedFile> {
        let of_chains = self.listeners.iter().flat_map(|listener| listener.each_chain()).flat_map(|chain| &chain.files);
        let of_loggers = self.loggers.iter().flat_map(|logger| logger.factory.files());
        let of_services = self.services.iter().flat_map(|service| service.factory.files());
        let of_newcomers =
            self.listeners.iter().flat_map(|listener| &listener.filters).flat_map(|filter| filter.files());
        of_chains
            .chain(of_newcomers)
            .chain(self.clusters.iter().flat_map(|cluster| &cluster.files))
            .chain(of_loggers)
            .chain(of_services)
    }

    /// Every plugin, with the names of its listener and its chain.
    pub fn plugins(&self) -> impl Iterator<Item = (&str, &str, &plugin::Facts)> {
        self.listeners.iter().flat_map(|listener| {
            listener.each_chain().flat_map(|chain| {
                let factories = chain.routes().map_or(&[][..], |routes| &routes.factories);
                let beside = chain.routes().map_or(&[][..], |routes| &routes.beside);
                let of_requests = factories.iter().filter_map(|factory| factory.plugin()).chain(beside);
                let of_bytes = chain.guards.iter().filter_map(WatchPlan::plugin);
                let plugins = of_bytes.chain(of_requests);
                plugins.map(|facts| (listener.model.name.as_str(), &*chain.name, facts))
            })
        })
    }

    /// Every plugin that stands in no chain: services, filters of listeners, and those that access logs are told to.
    pub fn plugins_beside_chains(&self) -> impl Iterator<Item = &plugin::Facts> {
        let of_loggers = self.loggers.iter().filter_map(|logger| logger.factory.plugin());
        let of_newcomers = self.listeners.iter().flat_map(|listener| &listener.filters);
        let of_loggers = of_loggers.chain(of_newcomers.filter_map(|filter| filter.plugin()));
        self.services.iter().filter_map(|service| service.factory.plugin()).chain(of_loggers)
    }

    /// Every access log that some part of the plan writes.
    pub fn access_logs(&self) -> impl Iterator<Item = &AccessLog> {
        self.listeners.iter().flat_map(|listener| listener.access_logs())
    }
}

impl ListenerPlan {
    fn compile(
        model: &Arc<Listener>,
        previous: Option<&ListenerPlan>,
        surroundings: &Surroundings<'_>,
        workers: usize,
    ) -> Result<ListenerPlan, Vec<PlanError>> {
        let mut errors = Vec::new();
        let mut compile = |chain: &Arc<FilterChain>| {
            let old = previous.filter(|_| surroundings.stay);
            let known = old.and_then(|old| old.each_chain().find(|old| old.model == *chain && old.is_current()));
            let known = known.cloned();
            let compiled = || -> Result<Arc<ChainPlan>, Vec<PlanError>> {
                let mut chain = ChainPlan::compile(chain, surroundings)?;
                let like = previous.and_then(|old| old.each_chain().find(|old| old.model_but_routes_is(&chain)));
                if let Some(old) = like {
                    if old.guards.iter().all(|guard| guard.is_current() && are_current(guard.files())) {
                        chain.guards.clone_from(&old.guards);
                    }
                    if old.same_but_routes(&chain) {
                        chain.in_use = old.in_use.clone();
                    }
                    chain.keep_filters(old);
                }
                Ok(Arc::new(chain))
            };
            known.or_else(|| compiled().map_err(|e| errors.extend(e)).ok())
        };
        let chains: Vec<_> = model.filter_chains.iter().filter_map(&mut compile).collect();
        let default_chain = model.default_filter_chain.as_ref().and_then(&mut compile);
        let filters = newcomers(model, previous, surroundings.registry, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let loads = previous.map(|old| old.loads.clone());
        let loads = loads.unwrap_or_else(|| (0..workers.max(1)).map(|_| Load::default()).collect());
        Ok(ListenerPlan { model: model.clone(), loads, chains, default_chain, filters })
    }

    /// Nothing that it was made from changed since.
    fn is_current(&self) -> bool {
        self.each_chain().all(|chain| chain.is_current())
            && self.filters.iter().all(|filter| filter.is_current() && are_current(filter.files()))
    }

    /// A new connection's filter chain is known without a word from the client, speaks no TLS and has no limit.
    pub fn is_immediate(&self) -> bool {
        let inspection = &self.model.inspection;
        inspection.is_nothing()
            && self.filters.is_empty()
            && self.each_chain().all(|chain| chain.tls.is_none() && chain.quotas.is_empty() && chain.guards.is_empty())
    }

    /// The chain that takes a connection, by its place; the default one stands behind all others. `state` is what was noted of
    /// the connection in the filter state.
    pub fn chain_for(&self, peer: &Peer<'_>, state: &[(String, Value)]) -> Option<usize> {
        let default = || self.default_chain.as_ref().map(|_| self.chains.len());
        match &self.model.chain_tree {
            None => filter_chain::choose(self.each_match(), peer).or_else(default),
            Some(tree) => match tree.find(&chain_tree::Newcomer { peer, state }) {
                Some(found) => *found,
                None => default(),
            },
        }
    }

    /// What each chain but the default one takes.
    fn each_match(&self) -> impl Iterator<Item = &ChainMatch> + Clone {
        self.chains.iter().map(|chain| &chain.model.matches)
    }

    fn access_logs(&self) -> impl Iterator<Item = &AccessLog> {
        self.each_chain().flat_map(|chain| chain.access_logs()).chain(&self.model.access_log)
    }

    pub fn each_chain(&self) -> impl Iterator<Item = &Arc<ChainPlan>> {
        self.chains.iter().chain(&self.default_chain)
    }
}

/// The filters of a listener that look at new connections: the known ones, where they would be the same.
fn newcomers(
    model: &Listener,
    previous: Option<&ListenerPlan>,
    registry: &Registry,
    errors: &mut Vec<PlanError>,
) -> Vec<Arc<dyn NewcomerFactory>> {
    let slots = &model.inspection.filters;
    let known = previous.filter(|old| old.model.inspection.filters == *slots);
    let is_current = |filter: &Arc<dyn NewcomerFactory>| filter.is_current() && are_current(filter.files());
    if let Some(known) = known.filter(|old| old.filters.iter().all(is_current)) {
        return known.filters.clone();
    }
    let mut filters = Vec::new();
    for NewcomerSlot { slot, .. } in slots {
        let Some(build) = registry.find_newcomer(&slot.kind) else {
            let message = format!("{} is no filter of listeners", slot.kind);
            errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
            continue;
        };
        match build(&slot.name, &slot.config) {
            Ok(built) => filters.push(built),
            Err(refused) => report(errors, &slot.origin.0, refused),
        }
    }
    filters
}

impl ChainPlan {
    /// Nothing that it was made from changed since.
    fn is_current(&self) -> bool {
        let mut factories = self.routes().into_iter().flat_map(RoutesPlan::every_factory);
        are_current(&self.files)
            && factories.all(|factory| factory.is_current())
            && self.guards.iter().all(WatchPlan::is_current)
    }

    fn compile(model: &Arc<FilterChain>, surroundings: &Surroundings<'_>) -> Result<ChainPlan, Vec<PlanError>> {
        let registry = surroundings.registry;
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let tls = model.tls.as_ref().and_then(|tls| {
            let built = ServerTls::build(tls, &mut |path| read(path, &mut files));
            let (certificates, validation) = (tls.certificates.as_slice(), tls.common.validation.as_ref());
            let origins = TlsOrigins { context: &tls.origin, certificates, validation };
            built.map(Arc::new).map_err(|refused| origins.report(&mut errors, refused)).ok()
        });
        let handler = match &model.handler {
            ConnectionHandler::Http(http) => {
                let upstream =
                    UpstreamSlots { router: &http.router.upstream_filters, clusters: &surroundings.filtered };
                RoutesPlan::compile(&http.routes, (&http.filters, &http.upgrade_filters), upstream, registry)
                    .map(|routes| {
                        HandlerPlan::Http(Arc::new(HttpPlan { model: http.clone(), routes: Arc::new(routes) }))
                    })
                    .map_err(|more| errors.extend(more))
                    .ok()
            }
            ConnectionHandler::Tcp(tcp) => Some(HandlerPlan::Tcp(tcp.clone())),
            ConnectionHandler::Echo => Some(HandlerPlan::Echo),
            ConnectionHandler::Say(said) => Some(HandlerPlan::Say(said.clone())),
            ConnectionHandler::Filters => Some(HandlerPlan::Filters),
        };
        let mut guards = Vec::new();
        for slot in &model.guards {
            if let Some(guard) = WatchPlan::build(slot, registry, &mut errors) {
                remember(&mut files, guard.files());
                guards.push(guard);
            }
        }
        let Some(handler) = handler.filter(|_| errors.is_empty()) else { return Err(errors) };
        if let HandlerPlan::Http(http) = &handler {
            remember(&mut files, &http.routes.files);
        }
        let quotas = model.limits.iter().map(Quota::of).collect();
        let (name, in_use) = (model.name.as_str().into(), Arc::default());
        Ok(ChainPlan { model: model.clone(), name, handler, quotas, guards, tls, files, in_use })
    }

    /// See [`RoutesPlan::keep_filters`].
    fn keep_filters(&mut self, before: &ChainPlan) {
        let (HandlerPlan::Http(ours), HandlerPlan::Http(theirs)) = (&mut self.handler, &before.handler) else { return };
        let slots = |model: &'_ HttpConnection| -> Vec<FilterSlot> {
            let of_upgrades = model.upgrade_filters.iter().flat_map(|upgrade| &upgrade.filters);
            model.filters.iter().chain(of_upgrades).cloned().collect()
        };
        let Some(ours) = Arc::get_mut(ours) else { return };
        let Some(routes) = Arc::get_mut(&mut ours.routes) else { return };
        let slots = (&*slots(&ours.model), &*slots(&theirs.model));
        let tables = Tables::of(&ours.model.routes, &theirs.model.routes);
        routes.keep_filters(&theirs.routes, slots, tables);
    }

    /// `None` for a chain that speaks no HTTP.
    pub fn routes(&self) -> Option<&RoutesPlan> {
        match &self.handler {
            HandlerPlan::Http(http) => Some(&http.routes),
            HandlerPlan::Tcp(_) | HandlerPlan::Echo | HandlerPlan::Say(_) | HandlerPlan::Filters => None,
        }
    }

    /// Those of its connections and requests, and of their tries.
    pub fn access_logs(&self) -> impl Iterator<Item = &AccessLog> {
        let (own, of_tries): (&[AccessLog], &[AccessLog]) = match &self.handler {
            HandlerPlan::Http(http) => (&http.model.access_log, &http.model.router.upstream_log),
            HandlerPlan::Tcp(tcp) => (&tcp.access_log, &[]),
            HandlerPlan::Echo | HandlerPlan::Say(_) | HandlerPlan::Filters => (&[], &[]),
        };
        own.iter().chain(of_tries)
    }

    /// Connections of `other` may go on under this plan: at most the routes and what HTTP filters are told differ.
    pub fn same_but_routes(&self, other: &ChainPlan) -> bool {
        // The code of a filter may have changed while its configuration says the same.
        self.model_but_routes_is(other)
            && self.guards.len() == other.guards.len()
            && self.guards.iter().zip(&other.guards).all(|(ours, theirs)| ours.is(theirs))
    }

    fn model_but_routes_is(&self, other: &ChainPlan) -> bool {
        let (HandlerPlan::Http(ours), HandlerPlan::Http(theirs)) = (&self.handler, &other.handler) else {
            return self.model == other.model;
        };
        // Streams take their filters from the routes' plan when they begin, so connections go on with other configurations.
        let of_any_config = |slots: &[FilterSlot]| -> Vec<FilterSlot> {
            slots.iter().map(|slot| FilterSlot { config: Value::default(), ..slot.clone() }).collect()
        };
        let without_routes = |http: &HttpConnection| HttpConnection {
            routes: Arc::default(),
            filters: of_any_config(&http.filters),
            upgrade_filters: http
                .upgrade_filters
                .iter()
                .map(|upgrade| UpgradeFilters { filters: of_any_config(&upgrade.filters), ..upgrade.clone() })
                .collect(),
            ..http.clone()
        };
        self.model.name == other.model.name
            && self.model.matches == other.model.matches
            && self.model.tls == other.model.tls
            && self.model.limits == other.model.limits
            && self.model.guards == other.model.guards
            && without_routes(&ours.model) == without_routes(&theirs.model)
    }
}
