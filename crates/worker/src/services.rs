//! What runs on one worker without any listener.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Place, ServiceFactory};

use crate::plan::ServicePlan;

/// Those of the plan in force.
#[derive(Default)]
pub(crate) struct Services(RefCell<Vec<Service>>);

struct Service {
    factory: Arc<dyn ServiceFactory>,
    /// What lives of it here.
    _running: Option<Rc<dyn Any>>,
}

impl Services {
    /// Begins those that are new, before those end that are gone: they may have much in common.
    pub(crate) fn apply(&self, plans: &[ServicePlan], place: &Place<'_>) {
        let mut old = self.0.take();
        let take = |plan: &ServicePlan| match old.iter().position(|known| Arc::ptr_eq(&known.factory, &plan.factory)) {
            Some(known) => old.swap_remove(known),
            None => Service { factory: plan.factory.clone(), _running: plan.factory.begin(place) },
        };
        let all = plans.iter().map(take).collect();
        drop(self.0.replace(all));
        drop(old);
    }

    /// All of them end.
    pub(crate) fn end(&self) {
        drop(self.0.take());
    }
}
