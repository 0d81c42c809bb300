//! From pressures to what the workers are to do.

use std::collections::HashMap;

use postrider_model::{OverloadKind, OverloadRules, PressureTrigger};
use postrider_worker::{Shed, Strain};

/// By the monitor's name; one that was never measured is not there.
pub(crate) type Pressures = HashMap<String, f64>;

/// The strongest of all triggers.
pub(crate) fn strength(triggers: &[PressureTrigger], pressures: &Pressures) -> f64 {
    let strengths = triggers.iter().filter_map(|trigger| {
        let pressure = pressures.get(&trigger.resource)?;
        Some(trigger.at.strength(*pressure))
    });
    strengths.fold(0.0, f64::max)
}

pub(crate) fn strain(rules: &OverloadRules, pressures: &Pressures) -> Strain {
    let mut strain = Strain { bound: rules.max_connections.clone(), ..Strain::default() };
    for action in &rules.actions {
        let strength = strength(&action.triggers, pressures);
        match &action.kind {
            OverloadKind::RefuseRequests => strain.refused_requests = strength,
            OverloadKind::EndConnections => strain.ended_connections = strength,
            OverloadKind::PauseAccepting => strain.paused = strength >= 1.0,
            OverloadKind::RefuseConnections => strain.refused_connections = strength,
            // The thread that measures does it.
            OverloadKind::ReleaseMemory { .. } => {}
            // Again and again while it holds: the thread says so each time.
            OverloadKind::ResetStreams { .. } => strain.keeps_accounts = true,
            OverloadKind::ShortenTimers(timers) => {
                strain.haste = strength;
                strain.timers.clone_from(timers);
            }
        }
    }
    for point in &rules.points {
        let shed = Shed { point: point.name.clone(), share: strength(&point.triggers, pressures) };
        strain.shed.push((point.kind, shed));
    }
    strain
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_model::{LoadShedPoint, OverloadAction, Ramp, ShedKind};
    use std::time::Duration;

    fn trigger(resource: &str, at: Ramp) -> PressureTrigger {
        PressureTrigger { resource: resource.into(), at }
    }

    #[test]
    fn the_strongest_trigger_counts_and_an_unmeasured_one_does_not() {
        let triggers = [trigger("a", Ramp::Step(0.9)), trigger("b", Ramp::Linear { from: 0.0, to: 1.0 })];
        let of = |pressures: &[(&str, f64)]| {
            strength(&triggers, &pressures.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect())
        };
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[("a", 0.5), ("b", 0.25)]), 0.25);
        assert_eq!(of(&[("a", 0.95), ("b", 0.25)]), 1.0);
    }

    #[test]
    fn each_action_strains_its_own_part() {
        let action = |kind, at| OverloadAction { name: String::new(), kind, triggers: vec![trigger("a", at)] };
        let half = Ramp::Linear { from: 0.0, to: 1.0 };
        let rules = OverloadRules {
            interval: Duration::from_secs(1),
            monitors: Vec::new(),
            actions: vec![
                action(OverloadKind::RefuseRequests, half),
                action(OverloadKind::PauseAccepting, half),
                action(OverloadKind::EndConnections, Ramp::Step(0.5)),
            ],
            points: vec![LoadShedPoint {
                name: String::new(),
                kind: ShedKind::Accept,
                triggers: vec![trigger("a", half)],
            }],
            max_connections: None,
        };
        let now = strain(&rules, &[("a".to_owned(), 0.5)].into());
        let wanted = Strain {
            refused_requests: 0.5,
            ended_connections: 1.0,
            shed: vec![(ShedKind::Accept, Shed { point: String::new(), share: 0.5 })],
            ..Strain::default()
        };
        assert_eq!(now, wanted);
        assert!(strain(&rules, &[("a".to_owned(), 1.0)].into()).paused);
    }
}
