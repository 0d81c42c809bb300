//! Hosts with the same labels as clusters of their own within a cluster, with Envoy's meaning (its subset load balancer).
//!
//! Made anew whenever hosts or their health change, like everything that picks hosts.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use postrider_model::{
    Balancing, HealthRules, LABELS, Labels, SelectorFallback, SubsetFallback, Subsets as Model, Value,
};

use crate::Random;
use crate::cluster::OnPanic;
use crate::host::Host;
use crate::hosts::HostSet;
use crate::zones::Zoning;

#[derive(Debug)]
pub(crate) struct Subsets<C> {
    model: Model,
    /// What holds within a subset.
    pub(crate) balancing: Balancing,
    /// By the text of the labels that their hosts share.
    sets: HashMap<String, HostSet<C>>,
    /// Where somebody may be sent to it.
    default: Option<HostSet<C>>,
    counts: Cell<SubsetCounts>,
}

/// How many subsets there are, and what happened since somebody asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubsetCounts {
    pub active: u64,
    /// Hosts that get nothing because another has the same labels.
    pub duplicates: u64,
    pub created: u64,
    pub removed: u64,
    /// Requests that found the subset that they asked for.
    pub selected: u64,
    pub fallback: u64,
    pub fallback_panic: u64,
}

/// Picks one of the hosts of a subset, or of all hosts of the cluster.
type Pick<'p, C> = &'p mut dyn FnMut(Option<&HostSet<C>>) -> Option<Rc<Host<C>>>;

impl<C> Subsets<C> {
    /// `before` is what the hosts were divided into until now.
    pub(crate) fn of(
        model: &Model,
        hosts: &[Rc<Host<C>>],
        shared: (Option<&Rc<Zoning>>, &OnPanic),
        (balancing, rules): (&Balancing, &HealthRules),
        random: &Random,
        before: Option<&Subsets<C>>,
    ) -> Subsets<C> {
        let by_locality = balancing.by_locality && model.by_locality;
        let balancing = Balancing { subsets: None, by_locality, ..balancing.clone() };
        let whole: Option<Rc<[_]>> = model.scales_localities.then(|| hosts.into());
        let make = |hosts| HostSet::part(hosts, whole.as_ref(), shared, (&balancing, rules), random);
        let (members, duplicates) = divide(model, hosts);
        let sets: HashMap<_, _> = members.into_iter().map(|(text, hosts)| (text, make(hosts))).collect();
        let default = model.use_default().then(|| {
            let has =
                |host: &&Rc<Host<C>>| model.default.are_had_by(host.endpoint.metadata.as_deref(), model.lists_are_any);
            make(hosts.iter().filter(has).cloned().collect())
        });
        let old = |text: &String| before.is_some_and(|before| before.sets.contains_key(text));
        let gone = before.into_iter().flat_map(|before| before.sets.keys()).filter(|text| !sets.contains_key(*text));
        let counted = before.map(|before| before.counts.get()).unwrap_or_default();
        let counts = SubsetCounts {
            active: sets.len() as u64,
            duplicates,
            created: counted.created + sets.keys().filter(|text| !old(text)).count() as u64,
            removed: counted.removed + gone.count() as u64,
            ..counted
        };
        Subsets { model: model.clone(), sets, default, counts: Cell::new(counts), balancing }
    }

    /// A host for a request that wants these labels.
    pub(crate) fn choose(&self, labels: Option<&Labels>, pick: Pick<'_, C>) -> Option<Rc<Host<C>>> {
        let listed = labels.filter(|_| self.model.tries_alternatives);
        let Some((labels, listed)) = listed.and_then(|labels| Some((labels, labels.get(Model::ALTERNATIVES)?))) else {
            return self.choose_exactly(labels, pick);
        };
        let wanted = labels.without(Model::ALTERNATIVES);
        let Value::List(alternatives) = listed else { return self.choose_exactly(Some(&wanted), pick) };
        if alternatives.is_empty() {
            return self.choose_exactly(Some(&wanted), pick);
        }
        alternatives.iter().find_map(|alternative| {
            let own = match alternative {
                Value::Map(entries) => Labels::new(entries.iter().cloned()),
                _ => Labels::default(),
            };
            self.choose_exactly(Some(&wanted.with(&own)), pick)
        })
    }

    fn choose_exactly(&self, labels: Option<&Labels>, pick: Pick<'_, C>) -> Option<Rc<Host<C>>> {
        if let Some(labels) = labels {
            let labels = &*self.model.counted(labels);
            if let Some(set) = self.sets.get(labels.as_text()) {
                self.count(|counts| counts.selected += 1);
                return pick(Some(set));
            }
            match self.model.fallback_of(labels) {
                // Always fewer than before, so this ends.
                Some(SelectorFallback::Fewer(names)) => return self.choose_exactly(Some(&labels.only(names)), pick),
                Some(SelectorFallback::To(fallback)) => return self.fall_back(*fallback, pick),
                None => {}
            }
        }
        let fallback = self.model.fallback;
        if let Some(host) = self.fall_back(fallback, pick) {
            self.count(|counts| counts.fallback += 1);
            return Some(host);
        }
        if fallback == SubsetFallback::Nobody || !self.model.panics_to_any {
            return None;
        }
        let host = pick(None)?;
        self.count(|counts| counts.fallback_panic += 1);
        Some(host)
    }

    fn fall_back(&self, fallback: SubsetFallback, pick: Pick<'_, C>) -> Option<Rc<Host<C>>> {
        match fallback {
            SubsetFallback::Nobody => None,
            SubsetFallback::Any => pick(None),
            SubsetFallback::Default => pick(Some(self.default.as_ref()?)),
        }
    }

    /// The one whose labels come last.
    pub(crate) fn last(&self) -> Option<&HostSet<C>> {
        self.sets.iter().max_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, set)| set)
    }

    fn count(&self, what: impl FnOnce(&mut SubsetCounts)) {
        let mut counts = self.counts.get();
        what(&mut counts);
        self.counts.set(counts);
    }

    pub(crate) fn take_counts(&self) -> SubsetCounts {
        let counts = self.counts.get();
        let SubsetCounts { active, duplicates, .. } = counts;
        self.counts.set(SubsetCounts { active, duplicates, ..SubsetCounts::default() });
        counts
    }
}

/// The hosts of each subset, by its labels.
type Divided<C> = BTreeMap<String, Vec<Rc<Host<C>>>>;

/// Hosts by what their labels look like, for each selector, and how many were left out.
fn divide<C>(model: &Model, hosts: &[Rc<Host<C>>]) -> (Divided<C>, u64) {
    let mut members: BTreeMap<String, Vec<Rc<Host<C>>>> = BTreeMap::new();
    let mut duplicates = 0;
    for host in hosts {
        for selector in model.selectors.iter().filter(|selector| !selector.names.is_empty()) {
            for text in texts(host, &selector.names, model.lists_are_any) {
                let members = members.entry(text).or_default();
                if selector.single && !members.is_empty() {
                    duplicates += 1;
                } else if !members.last().is_some_and(|last| Rc::ptr_eq(last, host)) {
                    members.push(host.clone());
                }
            }
        }
    }
    (members, duplicates)
}

/// The texts of the labels with these names that a host has: none if it lacks one, several if it has a list.
fn texts<C>(host: &Host<C>, names: &[String], lists_are_any: bool) -> Vec<String> {
    let mut texts = vec![String::new()];
    for name in names {
        let value = host.endpoint.metadata.as_deref().and_then(|about| about.get(LABELS, name));
        let values = match value {
            None => &[],
            Some(Value::List(values)) if lists_are_any => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let longer = |text: &String, value| {
            let mut text = text.clone();
            Labels::write(&mut text, name, value);
            text
        };
        texts = texts.iter().flat_map(|text| values.iter().map(move |value| longer(text, value))).collect();
    }
    texts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_model::{Address, Endpoint, Metadata, SubsetSelector};

    use super::*;
    use crate::{Choice, Cluster, Endpoints, testing};

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    fn labels(entries: &[(&str, &str)]) -> Labels {
        Labels::new(entries.iter().map(|(name, value)| ((*name).to_owned(), text(value))))
    }

    fn endpoint(port: u16, labels: &[(&str, Value)]) -> Arc<Endpoint> {
        let mut metadata = Metadata::default();
        labels.iter().for_each(|(name, value)| metadata.set(LABELS, name, value.clone()));
        Arc::new(Endpoint { metadata: Some(Arc::new(metadata)), ..testing::endpoint(port) })
    }

    fn hosts() -> Vec<Arc<Endpoint>> {
        vec![
            endpoint(1, &[("v", text("1")), ("s", text("x"))]),
            endpoint(2, &[("v", text("1")), ("s", text("y"))]),
            endpoint(3, &[("v", text("2")), ("s", text("x"))]),
            endpoint(4, &[("v", text("2")), ("l", Value::List(vec![text("p"), text("q")]))]),
        ]
    }

    fn selector(names: &[&str], fallback: Option<SelectorFallback>) -> SubsetSelector {
        SubsetSelector { names: names.iter().map(|name| (*name).to_owned()).collect(), fallback, single: false }
    }

    fn cluster(model: Model) -> Cluster<()> {
        let balancing = Balancing { subsets: Some(Box::new(model)), ..Balancing::default() };
        Cluster::new(balancing, HealthRules::default(), &Endpoints(hosts()), &Random::new(1))
    }

    /// The ports that requests for these labels reach.
    fn reached(cluster: &Cluster<()>, labels: Option<&Labels>) -> Vec<u16> {
        let random = Random::new(3);
        let choice = Choice { labels, ..Choice::default() };
        let mut ports: Vec<u16> = (0..12)
            .filter_map(|_| match cluster.pick_for(choice, &random)?.endpoint.address {
                Address::Tcp(address) => Some(address.port()),
                Address::Unix { .. } => None,
            })
            .collect();
        ports.sort();
        ports.dedup();
        ports
    }

    #[test]
    fn labels_lead_to_the_hosts_that_have_them() {
        let fewer = SelectorFallback::Fewer(vec!["v".into()]);
        let cluster = cluster(Model {
            selectors: vec![
                selector(&["v"], None),
                selector(&["s", "v"], Some(fewer)),
                selector(&["l"], Some(SelectorFallback::To(SubsetFallback::Any))),
            ],
            lists_are_any: true,
            ..Model::default()
        });
        let ask = |entries: &[(&str, &str)]| reached(&cluster, Some(&labels(entries)));
        assert_eq!(ask(&[("v", "1")]), [1, 2]);
        assert_eq!(ask(&[("v", "1"), ("s", "y")]), [2]);
        assert_eq!(ask(&[("v", "2"), ("s", "y")]), [3, 4], "with fewer labels");
        assert_eq!(ask(&[("l", "q")]), [4]);
        assert_eq!(ask(&[("l", "z")]), [1, 2, 3, 4]);
        assert_eq!(ask(&[("v", "3")]), [0u16; 0]);
        assert_eq!(ask(&[("s", "x")]), [0u16; 0], "no selector has this name alone");
        assert_eq!(reached(&cluster, None), [0u16; 0]);
        let counts = cluster.take_subset_counts().unwrap();
        // v is 1 or 2; three pairs; p and q.
        assert_eq!((counts.active, counts.created, counts.selected, counts.fallback), (7, 7, 48, 0));
        assert_eq!(cluster.take_subset_counts().unwrap().selected, 0);
    }

    #[test]
    fn without_a_subset_the_fallback_serves_or_anybody() {
        let of = |fallback, version: &str| Model {
            selectors: vec![selector(&["v"], None)],
            fallback,
            default: labels(&[("v", version)]),
            panics_to_any: true,
            ..Model::default()
        };
        let wanted = labels(&[("v", "9")]);
        let default = cluster(of(SubsetFallback::Default, "2"));
        assert_eq!(reached(&default, Some(&wanted)), [3, 4]);
        assert_eq!(reached(&default, None), [3, 4]);
        assert_eq!(default.take_subset_counts().unwrap().fallback, 24);
        let nobody = cluster(of(SubsetFallback::Default, "8"));
        assert_eq!(reached(&nobody, None), [1, 2, 3, 4]);
        assert_eq!(nobody.take_subset_counts().unwrap().fallback_panic, 12);
        assert_eq!(reached(&cluster(of(SubsetFallback::Any, "8")), Some(&wanted)), [1, 2, 3, 4]);
        assert_eq!(reached(&cluster(of(SubsetFallback::Nobody, "2")), Some(&wanted)), [0u16; 0]);
    }

    #[test]
    fn hosts_are_named_within_the_subset_that_is_wanted() {
        let cluster = cluster(Model {
            selectors: vec![selector(&["v"], None)],
            fallback: SubsetFallback::Any,
            ..Model::default()
        });
        let random = Random::new(3);
        let port = |labels: Option<&Labels>, named: &[u16]| {
            let choice = Choice { labels, ..Choice::default() };
            let mut named = named.iter().map(|port| Address::Tcp(([127, 0, 0, 1], *port).into()));
            let host = cluster.pick_named(&mut named, choice, &random)?;
            match host.endpoint.address {
                Address::Tcp(address) => Some(address.port()),
                Address::Unix { .. } => None,
            }
        };
        let two = labels(&[("v", "2")]);
        assert_eq!(port(Some(&two), &[1, 9, 4, 3]), Some(4));
        assert!([Some(3), Some(4)].contains(&port(Some(&two), &[1])), "that one has other labels");
        assert_eq!(port(None, &[1]), Some(1));
        assert_eq!(cluster.take_subset_counts().unwrap().selected, 2);
    }

    #[test]
    fn only_one_host_of_a_subset_may_be_wanted() {
        let single = SubsetSelector { single: true, ..selector(&["s"], None) };
        let cluster = cluster(Model { selectors: vec![single], ..Model::default() });
        assert_eq!(reached(&cluster, Some(&labels(&[("s", "x")]))), [1]);
        assert_eq!(cluster.take_subset_counts().unwrap().duplicates, 1);
    }

    #[test]
    fn subsets_come_and_go_with_their_hosts() {
        let cluster = cluster(Model { selectors: vec![selector(&["v"], None)], ..Model::default() });
        let random = Random::new(1);
        let mut hosts = hosts();
        hosts.truncate(2);
        cluster.update(&Endpoints(hosts), &random);
        assert_eq!(reached(&cluster, Some(&labels(&[("v", "2")]))), [0u16; 0]);
        let counts = cluster.take_subset_counts().unwrap();
        assert_eq!((counts.active, counts.created, counts.removed), (1, 2, 1));
    }

    #[test]
    fn a_subset_of_sick_hosts_is_asked_all_the_same() {
        let model = Model { selectors: vec![selector(&["v"], None)], ..Model::default() };
        let balancing = Balancing { subsets: Some(Box::new(model)), ..Balancing::default() };
        let random = Random::new(1);
        let (panics, surroundings) = crate::testing::counting_panics();
        let endpoints = Endpoints(hosts());
        let cluster = Cluster::among(surroundings, balancing, HealthRules::default(), &endpoints, &random);
        for endpoint in hosts().iter().skip(2) {
            cluster.set_judged(endpoint, (true, false), &random);
        }
        assert_eq!(reached(&cluster, Some(&labels(&[("v", "2")]))), [3, 4]);
        assert_eq!(panics.get(), 12);
    }
}
