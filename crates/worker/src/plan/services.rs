//! What runs on workers without any listener.

use std::sync::Arc;

use postrider_filter_api::{Registry, ServiceFactory};
use postrider_model::FilterSlot;

use super::errors::{FILTER, PlanError, report};
use super::files::are_current;

pub struct ServicePlan {
    pub slot: FilterSlot,
    pub factory: Arc<dyn ServiceFactory>,
}

/// Builds those of `slots`, unless they are among the `known` ones and nothing changed since.
pub(super) fn compile<'s>(
    slots: impl IntoIterator<Item = &'s FilterSlot>,
    known: &[ServicePlan],
    registry: &Registry,
    errors: &mut Vec<PlanError>,
) -> Vec<ServicePlan> {
    let mut all: Vec<ServicePlan> = Vec::new();
    for slot in slots {
        let is_current =
            |plan: &&ServicePlan| plan.slot == *slot && plan.factory.is_current() && are_current(plan.factory.files());
        // Several that say the same are several all the same.
        let before = all.iter().filter(|plan| plan.slot == *slot).count();
        if let Some(plan) = known.iter().filter(is_current).nth(before) {
            all.push(ServicePlan { slot: slot.clone(), factory: plan.factory.clone() });
            continue;
        }
        let Some(build) = registry.find_service(&slot.kind) else {
            let message = format!("{} is nothing that runs without a listener", slot.kind);
            errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
            continue;
        };
        match build(&slot.name, &slot.config) {
            Ok(factory) => all.push(ServicePlan { slot: slot.clone(), factory }),
            Err(refused) => report(errors, &slot.origin.0, refused),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use postrider_filter_api::{Place, Service};
    use postrider_model::Value;

    use super::*;

    struct Quiet;

    impl ServiceFactory for Quiet {
        fn begin(&self, _: &Place<'_>) -> Option<Rc<dyn Service>> {
            None
        }
    }

    fn slot(name: &str, kind: &str) -> FilterSlot {
        let (name, kind) = (name.to_owned(), kind.to_owned());
        FilterSlot { name, kind, config: Value::Null, disabled: false, origin: Default::default() }
    }

    #[test]
    fn what_stays_is_not_built_again_and_equal_ones_are_two() {
        let mut registry = Registry::default();
        registry.register_service("quiet", |_, _| Ok(Arc::new(Quiet)));
        let mut errors = Vec::new();
        let mut compile = |names: &[&str], known: &[ServicePlan]| {
            let slots: Vec<_> = names.iter().map(|name| slot(name, "quiet")).collect();
            compile(&slots, known, &registry, &mut errors)
        };
        let first = compile(&["a", "b", "a"], &[]);
        assert!(!Arc::ptr_eq(&first[0].factory, &first[2].factory));
        let second = compile(&["c", "a", "a", "b"], &first);
        for (now, before) in [(1, 0), (2, 2), (3, 1)] {
            assert!(Arc::ptr_eq(&second[now].factory, &first[before].factory), "{now}");
        }
        assert!(first.iter().all(|plan| !Arc::ptr_eq(&plan.factory, &second[0].factory)));
        assert!(errors.is_empty());
        super::compile(&[slot("a", "other")], &[], &registry, &mut errors);
        assert_eq!(errors.len(), 1, "nobody runs it");
    }
}
