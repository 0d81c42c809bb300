//! The filters that each route sees, every distinct chain of them once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use postrider_filter_api::{Chooser, Factory, Registry, RouteConfig, ScopedConfigs, WatchedFile};
use postrider_model::{Action, ClusterSpecifier, FilterOverride, FilterSlot, Target};

use super::errors::{FILTER, PlanError, report};
use super::files::remember;

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

/// What the slots of a chain look like from some scope: per slot whether it is off, and its overrides.
#[derive(Clone, Default)]
pub(super) struct Scope(Vec<(bool, ScopedConfigs)>);

/// Resolves filters scope by scope, and keeps each distinct outcome once.
pub(super) struct FilterResolver<'a> {
    slots: &'a [FilterSlot],
    /// Which of them stand in one chain.
    groups: Vec<Range<usize>>,
    pub(super) factories: Vec<Option<Arc<dyn Factory>>>,
    pub(super) chains: Vec<FilterChainPlan>,
    /// By what a chain is made of: slot and addresses of its override configurations.
    known: HashMap<Vec<[usize; 5]>, u32>,
    /// The code that chooses clusters: one for all routes that refer to it.
    choosers: Vec<(Arc<ClusterSpecifier>, Option<Chooser>)>,
    pub(super) files: Vec<WatchedFile>,
    pub(super) errors: Vec<PlanError>,
}

/// Builds the filters of `slots`; those whose configuration is refused are missing.
pub(super) fn build(
    slots: &[FilterSlot],
    registry: &Registry,
    files: &mut Vec<WatchedFile>,
    errors: &mut Vec<PlanError>,
) -> Vec<Option<Arc<dyn Factory>>> {
    let factories = slots.iter().map(|slot| {
        let Some(built) = registry.build(&slot.name, &slot.kind, &slot.config) else {
            let message = format!("no filter takes a configuration of type {}", slot.kind);
            errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
            return None;
        };
        let factory = built.map_err(|refused| report(errors, &slot.origin.0, refused)).ok()?;
        remember(files, factory.files());
        Some(factory)
    });
    factories.collect()
}

impl<'a> FilterResolver<'a> {
    pub(super) fn new(slots: &'a [FilterSlot], registry: &Registry) -> Self {
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        let factories = build(slots, registry, &mut files, &mut errors);
        FilterResolver { files, errors, ..FilterResolver::with(slots, factories) }
    }

    /// With filters that were built already.
    pub(super) fn with(slots: &'a [FilterSlot], factories: Vec<Option<Arc<dyn Factory>>>) -> Self {
        let (files, errors) = (Vec::new(), Vec::new());
        let (chains, choosers) = (Vec::new(), Vec::new());
        let groups = std::iter::once(0..slots.len()).collect();
        FilterResolver { slots, groups, factories, chains, known: HashMap::new(), choosers, files, errors }
    }

    /// The slots are those of several chains, one behind the other: so many in each.
    pub(super) fn in_chains(self, lengths: impl IntoIterator<Item = usize>) -> Self {
        let mut start = 0;
        let group = |length| {
            let group = start..start + length;
            start = group.end;
            group
        };
        FilterResolver { groups: lengths.into_iter().map(group).collect(), ..self }
    }

    /// The scope below `outer` with `overrides` applied; `put` says at which level.
    pub(super) fn scope(
        &mut self,
        outer: &Scope,
        overrides: &[FilterOverride],
        put: impl Fn(&mut ScopedConfigs, RouteConfig),
    ) -> Scope {
        let mut scope = outer.clone();
        if scope.0.is_empty() {
            scope.0 = self.slots.iter().map(|slot| (slot.disabled, ScopedConfigs::default())).collect();
        }
        for (change, group) in overrides.iter().flat_map(|change| self.groups.iter().map(move |group| (change, group)))
        {
            // One that names no filter of the chain has no effect, as in Envoy; whoever read the document warned. Several
            // may have one name and type: each is told, and takes what is its own.
            let named = |slot: &&FilterSlot| slot.name == change.name;
            let in_group = || self.slots.iter().skip(group.start).take(group.len());
            let kind = in_group().find(named).map(|slot| &slot.kind);
            let slots = in_group().zip(self.factories.iter().skip(group.start));
            for ((_, factory), (disabled, configs)) in slots
                .zip(scope.0.iter_mut().skip(group.start))
                .filter(|((slot, _), _)| named(slot) && Some(&slot.kind) == kind)
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
                        let mut found = Vec::new();
                        report(&mut found, &change.origin.0, refused);
                        // Another chain may have said the same.
                        self.errors
                            .extend(found.into_iter().filter(|error| !self.errors.contains(error)).collect::<Vec<_>>());
                        // The others would say the same.
                        break;
                    }
                }
            }
        }
        scope
    }

    /// The code that chooses a route's clusters.
    pub(super) fn chooser(&mut self, registry: &Registry, action: &Action) -> Option<Chooser> {
        let Action::Forward(forward) = action else { return None };
        let Target::Plugin(specifier) = &forward.target else { return None };
        if let Some((_, chooser)) = self.choosers.iter().find(|(known, _)| Arc::ptr_eq(known, specifier)) {
            return chooser.clone();
        }
        let built = registry.find_chooser(&specifier.kind)?(&specifier.config);
        let chooser = built.map_err(|refused| report(&mut self.errors, &specifier.origin.0, refused)).ok();
        self.choosers.push((specifier.clone(), chooser.clone()));
        chooser
    }

    /// The number of the chain that this scope sees.
    pub(super) fn intern(&mut self, scope: &Scope) -> u32 {
        self.intern_in(scope, 0)
    }

    /// The same in one of several chains.
    pub(super) fn intern_in(&mut self, scope: &Scope, group: usize) -> u32 {
        let group = self.groups.get(group).cloned().unwrap_or_default();
        let in_group = || scope.0.iter().enumerate().skip(group.start).take(group.len());
        let active = || in_group().filter(|(_, (disabled, _))| !disabled);
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
