//! The filters that requests pass on their way to a cluster, as each route has them.
//!
//! They are the cluster's, or the router's where the cluster says nothing. Routes override both by name, as they do with the
//! filters of the connection manager.

use std::sync::Arc;

use postrider_filter_api::{Factory, Registry, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_model::{FilterOverride, FilterSlot, Target};

use super::ClusterPlan;
use super::errors::PlanError;
use super::files::remember;
use super::filters::{FilterChainPlan, FilterResolver, Scope};

/// The filters of a cluster, or of the router.
pub struct UpstreamFilters {
    /// `None` for those of the router, which are for every cluster that says nothing.
    pub cluster: Option<Arc<str>>,
    /// Distinct ones. The first is that of routes which say nothing.
    pub chains: Vec<FilterChainPlan>,
    /// Those of the router; a cluster has its own.
    pub factories: Vec<Arc<dyn Factory>>,
}

/// Which chain of each [`UpstreamFilters`] a route passes; `None` is the first of all.
#[derive(Clone, Default)]
pub struct UpstreamChoice(Option<Box<[u32]>>);

impl UpstreamChoice {
    /// Of the filters with this index.
    pub fn chain(&self, filters: usize) -> u32 {
        self.0.as_ref().and_then(|chains| chains.get(filters)).copied().unwrap_or_default()
    }
}

/// What there is of such filters.
#[derive(Clone, Copy)]
pub(super) struct UpstreamSlots<'a> {
    pub(super) router: &'a [FilterSlot],
    /// The clusters that say something of filters.
    pub(super) clusters: &'a [Arc<ClusterPlan>],
}

/// Resolves all of them scope by scope.
pub(super) struct UpstreamResolver<'a>(Vec<(Option<Arc<str>>, FilterResolver<'a>)>);

impl<'a> UpstreamResolver<'a> {
    pub(super) fn new(slots: UpstreamSlots<'a>, registry: &Registry) -> UpstreamResolver<'a> {
        let has_router = !slots.router.is_empty();
        let of_clusters = slots.clusters.iter().filter_map(|cluster| {
            let own = cluster.model.upstream.filters.as_deref()?;
            // One without filters matters where there are others to keep away.
            let factories = cluster.filters.iter().flatten().cloned().map(Some).collect();
            (has_router || !own.is_empty()).then(|| (Some(cluster.name.clone()), FilterResolver::with(own, factories)))
        });
        let of_router = has_router.then(|| (None, FilterResolver::new(slots.router, registry)));
        UpstreamResolver(of_clusters.chain(of_router).collect())
    }

    /// The scope of the table.
    pub(super) fn base(&mut self, overrides: &[FilterOverride]) -> Vec<Scope> {
        let none = vec![Scope::default(); self.0.len()];
        let base = self.scope(&none, overrides, |scoped, config| scoped.table = Some(config));
        self.intern(&base);
        base
    }

    /// See [`FilterResolver::scope`].
    pub(super) fn scope(
        &mut self,
        outer: &[Scope],
        overrides: &[FilterOverride],
        put: impl Fn(&mut ScopedConfigs, RouteConfig) + Copy,
    ) -> Vec<Scope> {
        self.0.iter_mut().zip(outer).map(|((_, resolver), outer)| resolver.scope(outer, overrides, put)).collect()
    }

    pub(super) fn intern(&mut self, scopes: &[Scope]) -> UpstreamChoice {
        let chains: Box<[u32]> = self.0.iter_mut().zip(scopes).map(|((_, one), scope)| one.intern(scope)).collect();
        UpstreamChoice(chains.iter().any(|chain| *chain != 0).then_some(chains))
    }

    /// Some requests that go there may pass filters.
    pub(super) fn may_take(&self, target: &Target) -> bool {
        let filtered = |name: &str| self.0.iter().any(|(cluster, _)| cluster.as_deref().is_none_or(|one| one == name));
        match target {
            Target::Cluster(name) => filtered(name),
            Target::Weighted(clusters) => clusters.iter().any(|one| one.header.is_some() || filtered(&one.cluster)),
            Target::Header(_) | Target::Plugin(_) => !self.0.is_empty(),
        }
    }

    /// What came out. Of what is wrong, nothing is told twice.
    pub(super) fn finish(self, files: &mut Vec<WatchedFile>, errors: &mut Vec<PlanError>) -> Vec<UpstreamFilters> {
        let finish = |(cluster, resolver): (Option<Arc<str>>, FilterResolver<'_>)| {
            remember(files, &resolver.files);
            for error in resolver.errors {
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
            let factories = resolver.factories.into_iter().flatten().filter(|_| cluster.is_none()).collect();
            UpstreamFilters { cluster, chains: resolver.chains, factories }
        };
        self.0.into_iter().map(finish).collect()
    }
}
