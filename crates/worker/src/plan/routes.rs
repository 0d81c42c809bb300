//! A route table, compiled: what is known of each route, and what it sees.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_filter_api::plugin::Facts;
use postrider_filter_api::{
    Chooser, Factory, Registry, RouteFacts, RouteRateLimits, RouteTarget, Sources, WatchedFile,
};
use postrider_http::{FieldLine, HeaderId};
use postrider_model::{
    Action, Attempts, FilterOverride, FilterSlot, HeaderMatch, HostRewrite, PathRewrite, RequireTls, RetryPolicy,
    Route, RouteTable, Target, UpgradeFilters, VirtualHost,
};
use postrider_router::{HeaderTest, Table};

use super::errors::PlanError;
use super::files::{are_current, remember};
use super::filters::{FilterChainPlan, FilterPlan, FilterResolver, Scope};
use super::groups::{GroupsPlan, VirtualClusterPlan};
use super::upstream::{UpstreamChoice, UpstreamFilters, UpstreamResolver, UpstreamSlots};

/// A compiled route table with the filters that each route sees.
pub struct RoutesPlan {
    pub table: Table,
    /// Distinct filter chains; the first is that of requests without a route.
    pub filter_chains: Vec<FilterChainPlan>,
    /// Per route: what is known about it, and what it sees.
    pub routes: Vec<RoutePlan>,
    /// Upgrades whose requests see other filters, in lower case, and their chains where there is no route.
    pub upgrades: Vec<(String, u32)>,
    /// Every filter of the chain, also those that are off on all routes.
    pub factories: Vec<Arc<dyn Factory>>,
    /// Code that chooses clusters or judges texts.
    pub beside: Vec<Facts>,
    /// What the filters, their overrides and that code were read from.
    pub files: Vec<WatchedFile>,
    /// Some virtual host wants TLS.
    pub requires_tls: bool,
    /// What requests pass on their way to clusters.
    pub upstream: Vec<UpstreamFilters>,
}

pub struct RoutePlan {
    pub facts: RouteFacts,
    /// Index into [`RoutesPlan::filter_chains`].
    pub filters: u32,
    /// The same per weighted cluster, where those say something of their own.
    pub weighted_filters: Vec<u32>,
    /// The same for each of [`RoutesPlan::upgrades`].
    pub upgraded: Vec<SeenChains>,
    /// Which chains of [`RoutesPlan::upstream`] its requests pass, and the same per weighted cluster.
    pub upstream: UpstreamChoice,
    pub weighted_upstream: Vec<UpstreamChoice>,
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
    /// Something is to be remembered of requests while they are under way: for tries, copies, redirects, or filters on
    /// their way to a cluster.
    pub remembers: bool,
}

/// Indices into [`RoutesPlan::filter_chains`].
pub struct SeenChains {
    pub filters: u32,
    /// Per weighted cluster, where those say something of their own.
    pub weighted: Vec<u32>,
}

/// What is said about tries, with its conditions compiled.
pub struct AttemptsPlan {
    pub model: Arc<Attempts>,
    pub request_headers: Box<[HeaderTest]>,
    pub response_headers: Box<[HeaderTest]>,
}

impl AttemptsPlan {
    /// What a filter says about the tries of a request of its own: without conditions on headers.
    pub fn of_call(policy: &RetryPolicy) -> Arc<AttemptsPlan> {
        let model = Arc::new(Attempts { retry: Some(policy.clone()), ..Attempts::default() });
        Arc::new(AttemptsPlan { model, request_headers: Box::default(), response_headers: Box::default() })
    }

    /// What a cluster says about all requests that go there.
    pub(super) fn of_cluster(policy: &RetryPolicy, registry: &Registry) -> Arc<AttemptsPlan> {
        AttemptsPlan::compile(&Arc::new(Attempts { retry: Some(policy.clone()), ..Attempts::default() }), registry)
    }

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

impl RoutesPlan {
    /// Compiles the table and resolves the filters of each route.
    ///
    /// # Errors
    /// Every filter or override whose configuration is refused.
    pub(super) fn compile(
        table: &Arc<RouteTable>,
        (slots, upgrades): (&[FilterSlot], &[UpgradeFilters]),
        upstream: UpstreamSlots<'_>,
        registry: &Registry,
    ) -> Result<RoutesPlan, Vec<PlanError>> {
        let beside = Sources::collect();
        let all = match upgrades {
            [] => Cow::Borrowed(slots),
            _ => slots.iter().chain(upgrades.iter().flat_map(|upgrade| &upgrade.filters)).cloned().collect(),
        };
        let lengths = [slots.len()].into_iter().chain(upgrades.iter().map(|upgrade| upgrade.filters.len()));
        let mut resolver = FilterResolver::new(&all, registry).in_chains(lengths);
        let mut upstream = UpstreamResolver::new(upstream, registry);
        let base = resolver.scope(&Scope::default(), &table.filter_overrides, |scoped, config| {
            scoped.table = Some(config);
        });
        let upstream_base = upstream.base(&table.filter_overrides);
        // What the table says is for its routes alone.
        let bare = resolver.scope(&Scope::default(), &[], |_, _| {});
        let unrouted = resolver.intern(&bare);
        debug_assert_eq!(unrouted, 0, "requests without a route use the first chain");
        // The chain of requests itself is the first group.
        let of_upgrades = 1..=upgrades.len();
        let unrouted = of_upgrades.clone().map(|group| resolver.intern_in(&bare, group));
        let upgrades = upgrades.iter().map(|upgrade| upgrade.token.clone()).zip(unrouted).collect();
        let mut routes = Vec::new();
        for virtual_host in &table.virtual_hosts {
            let host_scope = resolver.scope(&base, &virtual_host.filter_overrides, |scoped, config| {
                scoped.virtual_host = Some(config);
            });
            let upstream_host = upstream.scope(&upstream_base, &virtual_host.filter_overrides, |scoped, config| {
                scoped.virtual_host = Some(config);
            });
            let host_name: Arc<str> = virtual_host.name.as_str().into();
            let virtual_clusters =
                VirtualClusterPlan::compile(virtual_host, &|kind, config| registry.find_judge(kind)?(config).ok());
            for route in &virtual_host.routes {
                let scope = resolver.scope(&host_scope, &route.filter_overrides, |scoped, config| {
                    scoped.route = Some(config);
                });
                let upstream_scope = upstream.scope(&upstream_host, &route.filter_overrides, |scoped, config| {
                    scoped.route = Some(config);
                });
                let seen = |group| SeenChains { filters: resolver.intern_in(&scope, group), weighted: Vec::new() };
                let mut upgraded: Vec<SeenChains> = of_upgrades.clone().map(seen).collect();
                let (mut weighted_filters, mut weighted_upstream) = (Vec::new(), Vec::new());
                if let Action::Forward(forward) = &route.action
                    && let Target::Weighted(clusters) = &forward.target
                    && clusters.iter().any(|cluster| !cluster.filter_overrides.is_empty())
                {
                    for cluster in clusters {
                        let scope = resolver.scope(&scope, &cluster.filter_overrides, |scoped, config| {
                            scoped.weighted_cluster = Some(config);
                        });
                        weighted_filters.push(resolver.intern(&scope));
                        for (group, seen) in of_upgrades.clone().zip(&mut upgraded) {
                            seen.weighted.push(resolver.intern_in(&scope, group));
                        }
                        let scope = upstream.scope(&upstream_scope, &cluster.filter_overrides, |scoped, config| {
                            scoped.weighted_cluster = Some(config);
                        });
                        weighted_upstream.push(upstream.intern(&scope));
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
                            forward.attempts.is_some()
                                || !forward.mirrors.is_empty()
                                || forward.redirects.is_some()
                                || upstream.may_take(&forward.target)
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
                    upgraded,
                    upstream: upstream.intern(&upstream_scope),
                    weighted_upstream,
                });
            }
        }
        let upstream = upstream.finish(&mut resolver.files, &mut resolver.errors);
        if resolver.errors.is_empty() {
            // A judge whose configuration is wrong was refused with the document.
            let compiled = Table::compile_with(table, &|kind, config| registry.find_judge(kind)?(config).ok());
            let Sources { files, plugins } = beside.finish();
            remember(&mut resolver.files, &files);
            let requires_tls = table.virtual_hosts.iter().any(|host| host.require_tls != RequireTls::None);
            Ok(RoutesPlan {
                table: compiled,
                beside: plugins,
                filter_chains: resolver.chains,
                routes,
                upgrades,
                factories: resolver.factories.into_iter().flatten().collect(),
                files: resolver.files,
                requires_tls,
                upstream,
            })
        } else {
            Err(resolver.errors)
        }
    }
}

impl RoutesPlan {
    /// Filters which have something to lose stay those of the plan `before` where nothing about them changed, and so do their
    /// overrides where no route did. Where something did, they go on with what those knew. `slots` are those of this plan and of the
    /// one before, in their order.
    pub(super) fn keep_filters(
        &mut self,
        before: &RoutesPlan,
        (slots, slots_before): (&[FilterSlot], &[FilterSlot]),
        tables: Tables,
    ) {
        let alike = |a: &FilterSlot, b: &FilterSlot| a.name == b.name && a.kind == b.kind;
        let same_chain = slots.len() == slots_before.len()
            && slots.iter().zip(slots_before).all(|(a, b)| alike(a, b) && a.disabled == b.disabled)
            && self.filter_chains.len() == before.filter_chains.len();
        let tables = if same_chain { tables } else { Tables::Others };
        for (index, slot) in slots.iter().enumerate() {
            let find = |is: &dyn Fn(&FilterSlot) -> bool| {
                // Several may be the same: each has its own before it.
                let earlier = slots.iter().take(index).filter(|other| is(other)).count();
                let (place, _) = slots_before.iter().enumerate().filter(|(_, old)| is(old)).nth(earlier)?;
                Some((place, before.factories.get(place)?))
            };
            let same = find(&|old| alike(old, slot) && old.config == slot.config)
                .filter(|(_, old)| old.memory().is_some() && old.is_current() && are_current(old.files()));
            let Some((place, old)) = same.or_else(|| find(&|old| alike(old, slot))) else { continue };
            let (Some(memory), Some(factory)) = (old.memory(), self.factories.get_mut(index)) else { continue };
            match same {
                Some(_) => factory.clone_from(old),
                None => factory.inherit(memory),
            }
            let of_slot = |filter: &FilterPlan, slot: usize| filter.slot as usize == slot;
            for (chain, chain_before) in self.filter_chains.iter_mut().zip(padded(&before.filter_chains)) {
                let known = chain_before.and_then(|chain| chain.0.iter().find(|known| of_slot(known, place)));
                for filter in chain.0.iter_mut().filter(|filter| of_slot(filter, index)) {
                    filter.factory.clone_from(factory);
                    match (tables, known) {
                        (Tables::Same, Some(known)) if same.is_some() => filter.configs.clone_from(&known.configs),
                        (Tables::Same | Tables::Alike, Some(known)) => {
                            let pairs = filter.configs.each_level().zip(known.configs.each_level());
                            for (config, before) in pairs.filter_map(|(config, before)| config.zip(before)) {
                                factory.inherit_override(config, before);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Those of the connection manager, and of its router.
    pub(crate) fn every_factory(&self) -> impl Iterator<Item = &Arc<dyn Factory>> {
        self.factories.iter().chain(self.upstream.iter().flat_map(|filters| &filters.factories))
    }

    /// Those that requests see, and those that they pass on their way to clusters.
    pub fn every_chain(&self) -> impl Iterator<Item = &FilterChainPlan> {
        self.filter_chains.iter().chain(self.upstream.iter().flat_map(|filters| &filters.chains))
    }
}

/// How a table of routes relates to the one in whose place it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    Same,
    /// Other values stand in it, in the same places.
    Alike,
    Others,
}

impl Tables {
    pub(super) fn of(table: &RouteTable, before: &RouteTable) -> Tables {
        if table == before {
            return Tables::Same;
        }
        let same_overrides = |own: &[FilterOverride], before: &[FilterOverride]| {
            let alike = |(a, b): (&FilterOverride, &FilterOverride)| a.name == b.name && a.disabled == b.disabled;
            own.len() == before.len() && own.iter().zip(before).all(alike)
        };
        let same_routes = |own: &[Arc<Route>], before: &[Arc<Route>]| {
            let alike = |(a, b): (&Arc<Route>, &Arc<Route>)| {
                a.name == b.name
                    && a.matches.path == b.matches.path
                    && same_overrides(&a.filter_overrides, &b.filter_overrides)
            };
            own.len() == before.len() && own.iter().zip(before).all(alike)
        };
        let alike = |(a, b): (&Arc<VirtualHost>, &Arc<VirtualHost>)| {
            a.name == b.name
                && a.domains == b.domains
                && same_overrides(&a.filter_overrides, &b.filter_overrides)
                && same_routes(&a.routes, &b.routes)
        };
        let (hosts, hosts_before) = (&table.virtual_hosts, &before.virtual_hosts);
        let is_alike = same_overrides(&table.filter_overrides, &before.filter_overrides)
            && hosts.len() == hosts_before.len()
            && hosts.iter().zip(hosts_before).all(alike);
        if is_alike { Tables::Alike } else { Tables::Others }
    }
}

/// All, and nothing behind them.
fn padded<T>(all: &[T]) -> impl Iterator<Item = Option<&T>> {
    all.iter().map(Some).chain(std::iter::repeat(None))
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
