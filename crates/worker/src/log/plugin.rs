//! Access logs that are told to plugins: those of one worker.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{AccessLogger, Ended, LoggerFactory, Place};
use postrider_http::Fields;
use postrider_model::FilterSlot;

use crate::format::Context;
use crate::plan::LoggerPlan;

/// One plugin, for all logs that say the same of it.
pub(crate) struct PluginLog {
    slot: FilterSlot,
    /// Replaced when its code changed under logs that stay.
    made: RefCell<(Arc<dyn LoggerFactory>, Rc<dyn AccessLogger>)>,
}

impl PluginLog {
    #[cold]
    #[inline(never)]
    pub(super) fn write(&self, context: &Context<'_>) {
        // The logger may be replaced while it is told: not one that is in hand.
        let logger = self.made.borrow().1.clone();
        let record = Ended {
            request: context.request,
            response: context.response,
            request_trailers: &Fields::new(),
            response_trailers: context.trailers,
            info: context.info,
            route: context.route,
            weighted: context.weighted,
        };
        logger.log(&record, context.http, context.stream_id().as_deref());
    }
}

/// Those of the plan in force.
#[derive(Default)]
pub(crate) struct PluginLogs(RefCell<Vec<Rc<PluginLog>>>);

impl PluginLogs {
    /// `None` for one that the plan does not have.
    pub(crate) fn of(&self, slot: &FilterSlot) -> Option<Rc<PluginLog>> {
        self.0.borrow().iter().find(|log| log.slot == *slot).cloned()
    }

    /// Takes over those of a new plan.
    pub(crate) fn apply(&self, plans: &[LoggerPlan], place: &Place<'_>) {
        let take = |plan: &LoggerPlan| {
            let made = || (plan.factory.clone(), plan.factory.logger(place));
            let Some(known) = self.of(&plan.slot) else {
                return Rc::new(PluginLog { slot: plan.slot.clone(), made: RefCell::new(made()) });
            };
            let is_same = Arc::ptr_eq(&known.made.borrow().0, &plan.factory);
            if !is_same {
                let made = made();
                drop(known.made.replace(made));
            }
            known
        };
        let all = plans.iter().map(take).collect();
        drop(self.0.replace(all));
    }
}
