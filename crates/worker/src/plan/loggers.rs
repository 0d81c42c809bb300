//! The plugins that access logs are told to.

use std::sync::Arc;

use postrider_filter_api::{LoggerFactory, Registry};
use postrider_model::{AccessLog, FilterSlot};

use super::errors::{FILTER, PlanError, report};
use super::files::are_current;

/// Such a plugin, for all logs that say the same of it.
pub struct LoggerPlan {
    pub slot: FilterSlot,
    pub factory: Arc<dyn LoggerFactory>,
}

/// Builds those of `logs`, unless they are among the `known` ones and nothing changed since.
pub(super) fn compile<'a>(
    logs: impl Iterator<Item = &'a AccessLog>,
    known: &[LoggerPlan],
    registry: &Registry,
    errors: &mut Vec<PlanError>,
) -> Vec<LoggerPlan> {
    let mut all: Vec<LoggerPlan> = Vec::new();
    for slot in logs.filter_map(AccessLog::plugin) {
        if all.iter().any(|plan| plan.slot == *slot) {
            continue;
        }
        let is_current =
            |plan: &&LoggerPlan| plan.slot == *slot && plan.factory.is_current() && are_current(plan.factory.files());
        if let Some(plan) = known.iter().find(is_current) {
            all.push(LoggerPlan { slot: slot.clone(), factory: plan.factory.clone() });
            continue;
        }
        let Some(build) = registry.find_logger(&slot.kind) else {
            let message = format!("{} is no access logger", slot.kind);
            errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
            continue;
        };
        match build(&slot.name, &slot.config) {
            Ok(factory) => all.push(LoggerPlan { slot: slot.clone(), factory }),
            Err(refused) => report(errors, &slot.origin.0, refused),
        }
    }
    all
}
