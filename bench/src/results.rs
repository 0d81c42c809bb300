//! Everything that a run has measured, and the search in it.

use crate::gate::CallCount;
use crate::idle::IdleSubject;
use crate::load::Subject;
use crate::peer::Peer;
use crate::scenario::{LoadPlan, Scenario};
use crate::stall::StallSubject;

pub struct Results {
    pub circumstances: Vec<(String, String)>,
    pub scenarios: Vec<Measured>,
}

/// A scenario with its outcome.
pub struct Measured {
    pub scenario: Scenario,
    pub outcome: Outcome,
}

pub enum Outcome {
    Load(LoadPlan, Vec<Subject>),
    Idle(Vec<IdleSubject>),
    Stall(Vec<StallSubject>),
    Instructions(Vec<(Peer, f64)>),
    /// Instructions per request that statistics take, and all of them.
    Statistics(Vec<(Peer, [f64; 2])>),
    Syscalls(Vec<(Peer, f64, Vec<CallCount>)>),
    Failed(String),
}

impl Results {
    /// The subject of a load scenario; `variant` counts from 0.
    pub fn load(&self, scenario: &str, peer: Peer, variant: usize) -> Option<&Subject> {
        let Outcome::Load(plan, subjects) = self.outcome(scenario)? else { return None };
        let label = plan.variants.get(variant)?.label;
        subjects.iter().find(|subject| subject.peer == peer && subject.variant.label == label)
    }

    /// The same by the label of the variant.
    pub fn variant(&self, scenario: &str, peer: Peer, label: &str) -> Option<&Subject> {
        let Outcome::Load(_, subjects) = self.outcome(scenario)? else { return None };
        subjects.iter().find(|subject| subject.peer == peer && subject.variant.label == label)
    }

    pub fn idle(&self, scenario: &str, peer: Peer) -> Option<&IdleSubject> {
        let Outcome::Idle(subjects) = self.outcome(scenario)? else { return None };
        subjects.iter().find(|subject| subject.peer == peer)
    }

    /// The subject of a stall scenario with the variant of that label.
    pub fn stall(&self, scenario: &str, peer: Peer, label: &str) -> Option<&StallSubject> {
        let Outcome::Stall(subjects) = self.outcome(scenario)? else { return None };
        subjects.iter().find(|subject| subject.peer == peer && subject.variant.label == label)
    }

    pub fn instructions(&self, peer: Peer) -> Option<f64> {
        let Outcome::Instructions(counts) = self.outcome("instructions")? else { return None };
        counts.iter().find(|(other, _)| *other == peer).map(|&(_, count)| count)
    }

    /// The part of a request's instructions that statistics take.
    pub fn statistics(&self, peer: Peer) -> Option<f64> {
        let Outcome::Statistics(counts) = self.outcome("statistics")? else { return None };
        counts.iter().find(|(other, _)| *other == peer).map(|&(_, [statistics, all])| statistics / all)
    }

    pub fn syscalls(&self, peer: Peer) -> Option<f64> {
        let Outcome::Syscalls(counts) = self.outcome("syscalls")? else { return None };
        counts.iter().find(|(other, ..)| *other == peer).map(|&(_, count, _)| count)
    }

    fn outcome(&self, scenario: &str) -> Option<&Outcome> {
        self.scenarios.iter().find(|measured| measured.scenario.name == scenario).map(|measured| &measured.outcome)
    }
}
