//! What runs on one worker without any listener.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Place, Service, ServiceFactory};
use postrider_model::FilterSlot;

use crate::plan::ServicePlan;

/// Those of the plan in force.
#[derive(Default)]
pub(crate) struct Services(RefCell<Vec<Known>>);

struct Known {
    slot: FilterSlot,
    factory: Arc<dyn ServiceFactory>,
    /// What lives of it here.
    running: Option<Rc<dyn Service>>,
}

impl Services {
    /// Begins those that are new, before those end that are gone: they may have much in common.
    pub(crate) fn apply(&self, plans: &[ServicePlan], place: &Place<'_>) {
        let mut old = self.0.take();
        let take = |plan: &ServicePlan| match old.iter().position(|known| Arc::ptr_eq(&known.factory, &plan.factory)) {
            Some(known) => old.swap_remove(known),
            None => {
                Known { slot: plan.slot.clone(), factory: plan.factory.clone(), running: plan.factory.begin(place) }
            }
        };
        let all = plans.iter().map(take).collect();
        drop(self.0.replace(all));
        drop(old);
    }

    /// Tells a sink of statistics what changed; `false` if it does not run here.
    pub(crate) fn tell(&self, sink: &FilterSlot, update: &[u8]) -> bool {
        // It may end what runs here: not with the list in hand.
        let known = self.0.borrow().iter().find(|known| known.slot == *sink).and_then(|known| known.running.clone());
        known.map(|running| running.on_statistics(update)).is_some()
    }

    /// All of them end.
    pub(crate) fn end(&self) {
        drop(self.0.take());
    }
}
