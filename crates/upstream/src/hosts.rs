//! Which hosts of a cluster get traffic, and in what shares: by priority and health, and by locality where that counts.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use postrider_model::{Address, Balancing, Endpoint, EndpointHealth, HealthRules, SlowStart};

use crate::Random;
use crate::balance::{Candidate, Hosts, Picker};
use crate::cluster::{Choice, OnPanic};
use crate::deadlines::Deadlines;
use crate::hashing::{Place, TableSizes};
use crate::host::Host;
use crate::localities::{Weights, is_in, localities};
use crate::priorities::{self, Census, Tally};
use crate::subsets::{SubsetCounts, Subsets};
use crate::zones::{self, Drawn, Home, Population, Routing, ZoneCounts, Zoning};

#[derive(Debug)]
pub(crate) struct HostSet<C> {
    pub(crate) all: Vec<Rc<Host<C>>>,
    /// Those that get traffic, where that is one group of hosts: the usual case.
    usable: Group<C>,
    /// Otherwise, or when hosts are used that are not well.
    spread: Option<Box<Spread<C>>>,
    /// Of priorities and states that usually get no traffic: made when a request wants another priority.
    others: RefCell<Vec<Other<C>>>,
    /// Where the proxy stands; not asked where a hash decides.
    home: Option<Rc<Home>>,
    /// What it takes to route by zone, once that is known.
    zoning: Option<Rc<Zoning>>,
    /// Who of the first priority goes where, where zones count.
    routing: Option<Rc<Routing>>,
    /// Of which hosts these are a part, where weights of localities go by that.
    whole: Option<Rc<[Rc<Host<C>>]>>,
    panics: OnPanic,
}

#[derive(Debug)]
struct Other<C> {
    level: usize,
    standing: EndpointHealth,
    source: Rc<Source<C>>,
}

/// Hosts among which one is picked.
#[derive(Debug)]
struct Group<C> {
    hosts: Vec<Rc<Host<C>>>,
    picker: Picker,
    slow_start: Option<SlowStart>,
}

/// Groups with their shares of traffic.
#[derive(Debug)]
struct Spread<C> {
    slices: Vec<Slice<C>>,
    panics: OnPanic,
    /// Requests may want some of the hosts only.
    subsets: Option<Subsets<C>>,
    /// Who is next, where somebody wanted to know.
    next: RefCell<VecDeque<Rc<Host<C>>>>,
    /// So many of the hosts are healthy.
    healthy: usize,
}

#[derive(Debug)]
struct Slice<C> {
    level: usize,
    percent: u64,
    /// All hosts are used because too few are well.
    panic: bool,
    source: Source<C>,
}

#[derive(Debug)]
enum Source<C> {
    Group(Group<C>),
    /// A locality is drawn first.
    Localities {
        turns: RefCell<Deadlines>,
        weights: Vec<f64>,
        groups: Vec<Group<C>>,
    },
    /// The same by zone.
    Zones {
        routing: Rc<Routing>,
        groups: Vec<Group<C>>,
        /// For requests for which zones do not count.
        any: Group<C>,
    },
}

impl<C> HostSet<C> {
    pub(crate) fn new(balancing: &Balancing, home: &Rc<Home>, panics: OnPanic, random: &Random) -> HostSet<C> {
        HostSet {
            home: (!balancing.policy.is_hashing()).then(|| home.clone()),
            ..HostSet::within((None, panics), balancing, random)
        }
    }

    /// A part of a set of hosts.
    fn within((zoning, panics): (Option<Rc<Zoning>>, OnPanic), balancing: &Balancing, random: &Random) -> HostSet<C> {
        HostSet {
            home: None,
            all: Vec::new(),
            usable: Group::new(balancing, Vec::new(), &Weights { all: &[], whole: None }, random),
            spread: None,
            others: RefCell::default(),
            zoning,
            routing: None,
            whole: None,
            panics,
        }
    }

    /// These hosts and no others, of `whole` where that counts; what becomes of their zones, and their panics, count for the whole.
    pub(crate) fn part(
        hosts: Vec<Rc<Host<C>>>,
        whole: Option<&Rc<[Rc<Host<C>>]>>,
        (zoning, panics): (Option<&Rc<Zoning>>, &OnPanic),
        (balancing, rules): (&Balancing, &HealthRules),
        random: &Random,
    ) -> HostSet<C> {
        let mut set = HostSet::within((zoning.cloned(), panics.clone()), balancing, random);
        set.all = hosts;
        set.whole = whole.cloned();
        set.arrange(balancing, rules, random);
        set
    }

    #[inline]
    pub(crate) fn pick(&self, random: &Random, choice: Choice<'_>) -> Option<Rc<Host<C>>> {
        match &self.spread {
            None => self.usable.pick(random, choice),
            Some(spread) => spread.pick(random, choice),
        }
    }

    /// See [`Cluster::pick_named`](crate::Cluster::pick_named).
    #[cold]
    pub(crate) fn pick_named(
        &self,
        named: &mut dyn Iterator<Item = Address>,
        random: &Random,
        choice: Choice<'_>,
    ) -> Option<Rc<Host<C>>> {
        let mut find = |set: &HostSet<C>| {
            for address in &mut *named {
                if let Some(host) = set.all.iter().find(|host| host.endpoint.address == address) {
                    return Some(host.clone());
                }
            }
            None
        };
        match self.subsets() {
            None => find(self).or_else(|| self.pick(random, choice)),
            Some(subsets) => subsets.choose(choice.labels, &mut |set| match set {
                Some(set) => find(set).or_else(|| set.pick(random, choice)),
                None => find(self).or_else(|| self.pick_of_all(random, choice)),
            }),
        }
    }

    /// The same, whatever labels hosts have.
    fn pick_of_all(&self, random: &Random, choice: Choice<'_>) -> Option<Rc<Host<C>>> {
        match &self.spread {
            None => self.usable.pick(random, choice),
            Some(spread) => spread.draw(random, choice),
        }
    }

    /// See [`Cluster::look_ahead`](crate::Cluster::look_ahead).
    pub(crate) fn look_ahead(&self, random: &Random) -> Option<Rc<Host<C>>> {
        self.spread.as_ref()?.look_ahead(random)
    }

    pub(crate) fn take_subset_counts(&self) -> Option<SubsetCounts> {
        Some(self.subsets()?.take_counts())
    }

    pub(crate) fn take_zone_counts(&self) -> Option<ZoneCounts> {
        Some(self.zoning.as_ref()?.counts.take())
    }

    /// Of the last table that Envoy makes for these hosts, which is the one that it tells of: that of the last priority that has
    /// some, or of a subset. One that gets no traffic is made for it.
    pub(crate) fn table_sizes(
        &self,
        (balancing, rules): (&Balancing, &HealthRules),
        random: &Random,
    ) -> Option<TableSizes> {
        if !balancing.policy.is_hashing() {
            return None;
        }
        if let Some((subsets, last)) = self.subsets().and_then(|subsets| Some((subsets, subsets.last()?))) {
            return last.table_sizes((&subsets.balancing, rules), random);
        }
        let census = self.census(balancing, rules);
        let shares = priorities::spread(&census, rules.panic_threshold, balancing.overprovisioning);
        let slices = self.spread.iter().flat_map(|spread| &spread.slices);
        let of_level = |(level, share): (usize, &priorities::Share)| {
            if self.spread.is_none() && share.healthy + share.degraded > 0 {
                return self.usable.picker.table_sizes();
            }
            if let Some(slice) = slices.clone().find(|slice| slice.level == level) {
                return slice.source.table_sizes();
            }
            let standing = EndpointHealth::Healthy;
            let make = || self.source(level, (balancing, rules), (standing, share.panic), random);
            self.other(level, standing, make).table_sizes()
        };
        shares.iter().enumerate().rev().find_map(of_level)
    }

    fn subsets(&self) -> Option<&Subsets<C>> {
        self.spread.as_ref()?.subsets.as_ref()
    }

    /// Works out who gets traffic.
    pub(crate) fn arrange(&mut self, balancing: &Balancing, rules: &HealthRules, random: &Random) {
        let before = self.spread.take();
        self.others.take();
        if let (Some(home), None) = (self.home.as_ref().filter(|home| home.is_known()), &self.zoning) {
            self.zoning = Some(Rc::new(Zoning { home: home.clone(), counts: Rc::default() }));
        }
        let routing =
            self.zoning.as_ref().and_then(|zoning| zoning.routing(balancing, rules, || self.population(rules)));
        self.routing = routing.map(Rc::new);
        let census = self.census(balancing, rules);
        let shares = priorities::spread(&census, rules.panic_threshold, balancing.overprovisioning);
        let mut slices = Vec::new();
        // A hash falls into the same slice as in Envoy: the healthy ones of all priorities come first.
        for standing in [EndpointHealth::Healthy, EndpointHealth::Degraded] {
            for (level, share) in shares.iter().enumerate() {
                let percent = if standing == EndpointHealth::Healthy { share.healthy } else { share.degraded };
                if percent > 0 {
                    let source = self.source(level, (balancing, rules), (standing, share.panic), random);
                    slices.push(Slice { level, percent, panic: share.panic, source });
                }
            }
        }
        let subsets = balancing.subsets.as_deref().map(|model| {
            let before = before.and_then(|before| before.subsets);
            let shared = (self.zoning.as_ref(), &self.panics);
            Subsets::of(model, &self.all, shared, (balancing, rules), random, before.as_ref())
        });
        let alone = matches!(slices.as_slice(), [Slice { panic: false, source: Source::Group(_), .. }]);
        let alone = alone && subsets.is_none() && !balancing.looks_ahead;
        match slices.pop() {
            Some(Slice { source: Source::Group(group), .. }) if alone => self.usable = group,
            last => {
                slices.extend(last);
                self.usable = Group::new(balancing, Vec::new(), &Weights { all: &[], whole: None }, random);
                let healthy = self.all.iter().filter(|host| host.standing() == EndpointHealth::Healthy).count();
                let (panics, next) = (self.panics.clone(), RefCell::default());
                self.spread = Some(Box::new(Spread { slices, panics, subsets, next, healthy }));
            }
        }
    }

    /// A host of another priority than those in `without`; when the others cannot take anything, none is left out any more.
    #[cold]
    pub(crate) fn pick_without(
        &self,
        without: &mut Vec<u32>,
        (balancing, rules): (&Balancing, &HealthRules),
        random: &Random,
        choice: Choice<'_>,
    ) -> Option<Rc<Host<C>>> {
        let Some(subsets) = self.subsets() else {
            return self.pick_of_all_without(without, (balancing, rules), random, choice);
        };
        subsets.choose(choice.labels, &mut |set| match set {
            Some(set) => set.pick_of_all_without(without, (&subsets.balancing, rules), random, choice),
            None => self.pick_of_all_without(without, (balancing, rules), random, choice),
        })
    }

    /// The same, whatever labels hosts have.
    fn pick_of_all_without(
        &self,
        without: &mut Vec<u32>,
        (balancing, rules): (&Balancing, &HealthRules),
        random: &Random,
        choice: Choice<'_>,
    ) -> Option<Rc<Host<C>>> {
        let census = self.census(balancing, rules);
        let Some(shares) = priorities::spread_without(&census, balancing.overprovisioning, without) else {
            without.clear();
            return self.pick_of_all(random, choice);
        };
        let usual = priorities::spread(&census, rules.panic_threshold, balancing.overprovisioning);
        let choice = Choice { hash: choice.hash.or_else(|| Some(random.next())), ..choice };
        let mut ticket = choice.hash.unwrap_or_default() % 100;
        for standing in [EndpointHealth::Healthy, EndpointHealth::Degraded] {
            for (level, (share, usual)) in shares.iter().zip(&usual).enumerate() {
                let percent = if standing == EndpointHealth::Healthy { share.healthy } else { share.degraded };
                if ticket < percent {
                    let source = self.other(level, standing, || {
                        self.source(level, (balancing, rules), (standing, usual.panic), random)
                    });
                    return source.pick(random, choice);
                }
                ticket -= percent;
            }
        }
        None
    }

    fn other(&self, level: usize, standing: EndpointHealth, make: impl FnOnce() -> Source<C>) -> Rc<Source<C>> {
        let mut others = self.others.borrow_mut();
        if let Some(known) = others.iter().find(|other| (other.level, other.standing) == (level, standing)) {
            return known.source.clone();
        }
        let source = Rc::new(make());
        others.push(Other { level, standing, source: source.clone() });
        source
    }

    fn source(
        &self,
        level: usize,
        (balancing, rules): (&Balancing, &HealthRules),
        used: (EndpointHealth, bool),
        random: &Random,
    ) -> Source<C> {
        // Zones count for the first priority only.
        let routing = self.routing.as_ref().filter(|_| level == 0);
        let all: Vec<_> = self.of(level).cloned().collect();
        let weights = Weights { all: &all, whole: self.whole.as_deref() };
        Source::new(balancing, rules, &weights, used, (routing, random))
    }

    fn population(&self, rules: &HealthRules) -> Population {
        Population::of(self.of(0), rules)
    }

    /// The hosts of a priority.
    fn of(&self, level: usize) -> impl Iterator<Item = &Rc<Host<C>>> {
        self.all.iter().filter(move |host| host.endpoint.priority as usize == level)
    }

    fn census(&self, balancing: &Balancing, rules: &HealthRules) -> Vec<Census> {
        let levels = self.all.iter().map(|host| host.endpoint.priority as usize + 1).max().unwrap_or(1);
        let of_level = |level| {
            let tally = |size: &dyn Fn(&Host<C>) -> u64| {
                let mut tally = Tally::default();
                for host in self.of(level) {
                    tally.all += size(host);
                    match host.standing() {
                        EndpointHealth::Healthy => tally.healthy += size(host),
                        EndpointHealth::Degraded => tally.degraded += size(host),
                        EndpointHealth::Unhealthy => {}
                    }
                    if host.is_excluded(rules.ignores_unchecked) {
                        tally.excluded += size(host);
                    }
                }
                tally
            };
            let hosts = tally(&|_| 1);
            let ability = match balancing.ability_by_weight {
                true => tally(&|host| u64::from(host.endpoint.weight)),
                false => hosts,
            };
            Census { hosts, ability }
        };
        (0..levels).map(of_level).collect()
    }
}

impl<C> Source<C> {
    /// Of the hosts of a priority those that stand so are used; in a panic all of them.
    fn new(
        balancing: &Balancing,
        rules: &HealthRules,
        weights: &Weights<'_, C>,
        (standing, panic): (EndpointHealth, bool),
        (routing, random): (Option<&Rc<Routing>>, &Random),
    ) -> Source<C> {
        if panic && balancing.fails_on_panic {
            return Source::Group(Group::new(balancing, Vec::new(), weights, random));
        }
        let all = weights.all;
        let hashing = balancing.policy.is_hashing();
        // Tables know healthy hosts, as in Envoy, and others only where there are none.
        let standing = match all.iter().any(|host| host.standing() == EndpointHealth::Healthy) {
            true if hashing => EndpointHealth::Healthy,
            _ => standing,
        };
        let is_used = |host: &Rc<Host<C>>| panic || host.standing() == standing;
        if balancing.by_locality && !panic && !hashing {
            let by_weight = Source::by_weight((balancing, rules), weights, is_used, random);
            if let Some(source) = by_weight {
                return source;
            }
        }
        let used: Vec<_> = all.iter().filter(|host| is_used(host)).cloned().collect();
        let group = |hosts| Group::new(balancing, hosts, weights, random);
        match routing.filter(|_| !panic) {
            None => Source::Group(group(used)),
            Some(routing) => {
                let of_zone = |zone| used.iter().filter(|host| zones::is_in(zone, &host.endpoint)).cloned().collect();
                let groups = routing.zones.iter().map(|zone| group(of_zone(zone))).collect();
                Source::Zones { routing: routing.clone(), groups, any: group(used) }
            }
        }
    }

    /// Localities by their weight; `None` when none has any.
    fn by_weight(
        (balancing, rules): (&Balancing, &HealthRules),
        of: &Weights<'_, C>,
        is_used: impl Fn(&Rc<Host<C>>) -> bool,
        random: &Random,
    ) -> Option<Source<C>> {
        let all = of.all;
        let (mut weights, mut groups) = (Vec::new(), Vec::new());
        for locality in localities(all) {
            let members = || all.iter().filter(|host| is_in(host, locality));
            let counted = members().filter(|host| !host.is_excluded(rules.ignores_unchecked)).count();
            let used: Vec<_> = members().filter(|host| is_used(host)).cloned().collect();
            if counted > 0 {
                // What a locality cannot take goes to the others.
                let ratio = used.len() as f64 / counted as f64 * f64::from(balancing.overprovisioning) / 100.0;
                let weight = f64::from(of.of(locality)) * ratio.min(1.0);
                if weight > 0.0 {
                    weights.push(weight);
                    groups.push(Group::new(balancing, used, of, random));
                }
            }
        }
        if groups.is_empty() {
            return None;
        }
        let now = |index: usize| weights.get(index).copied().unwrap_or_default();
        let turns = Deadlines::new(weights.iter().copied(), random.below(weights.len()), now);
        Some(Source::Localities { turns: RefCell::new(turns), weights, groups })
    }

    fn pick(&self, random: &Random, choice: Choice<'_>) -> Option<Rc<Host<C>>> {
        self.draw(random)?.pick(random, choice)
    }

    fn table_sizes(&self) -> Option<TableSizes> {
        match self {
            Source::Group(group) => group.picker.table_sizes(),
            // No hash decides about these.
            Source::Localities { .. } | Source::Zones { .. } => None,
        }
    }

    /// The group whose turn it is.
    fn draw(&self, random: &Random) -> Option<&Group<C>> {
        match self {
            Source::Group(group) => Some(group),
            Source::Localities { turns, weights, groups } => {
                let drawn = turns.borrow_mut().next(|index| weights.get(index).copied().unwrap_or_default());
                groups.get(drawn?)
            }
            Source::Zones { routing, groups, any } => match routing.draw(random) {
                Drawn::Anywhere => Some(any),
                Drawn::Nowhere => None,
                Drawn::Zone(index) => groups.get(index),
            },
        }
    }
}

impl<C> Group<C> {
    fn new(balancing: &Balancing, hosts: Vec<Rc<Host<C>>>, weights: &Weights<'_, C>, random: &Random) -> Group<C> {
        let policy = &balancing.policy;
        let hosts: Vec<_> = match balancing.by_locality && policy.is_hashing() {
            true => hosts.into_iter().filter(|host| weights.of(host.endpoint.place.as_deref()) > 0).collect(),
            false => hosts,
        };
        let by_name = match policy {
            postrider_model::LoadBalancing::RingHash(ring) => ring.keys.hostnames,
            postrider_model::LoadBalancing::Maglev(maglev) => maglev.keys.hostnames,
            _ => false,
        };
        let all = sum(hosts.iter());
        let localities = if balancing.by_locality { weights.total() } else { 0 };
        let place = |host: &Rc<Host<C>>| {
            let own = host.endpoint.place.as_deref();
            let (among, of_locality) = match balancing.by_locality {
                true => {
                    let peers = hosts.iter().filter(|peer| is_in(peer, own));
                    (sum(peers), f64::from(weights.of(own)) / localities as f64)
                }
                false => (all, 1.0),
            };
            let share = f64::from(host.endpoint.weight) * of_locality / among as f64;
            Place { key: key(&host.endpoint, by_name), share }
        };
        let candidates: Vec<Candidate> = hosts
            .iter()
            .map(|host| Candidate { weight: host.endpoint.weight, place: policy.is_hashing().then(|| place(host)) })
            .collect();
        let slow_start = policy.slow_start().copied();
        let view = View { hosts: &hosts, slow_start: slow_start.as_ref() };
        let picker = Picker::new(policy, &candidates, random, &view);
        Group { picker, hosts, slow_start }
    }

    #[inline]
    fn pick(&self, random: &Random, choice: Choice<'_>) -> Option<Rc<Host<C>>> {
        let view = View { hosts: &self.hosts, slow_start: self.slow_start.as_ref() };
        self.hosts.get(self.picker.pick(random, choice.hash, choice.attempt, &view)?).cloned()
    }
}

/// By what a host is known where hosts are chosen by a hash.
fn key(endpoint: &Endpoint, by_name: bool) -> String {
    match &endpoint.hash_key {
        Some(key) => key.clone(),
        None if by_name && !endpoint.hostname.is_empty() => endpoint.hostname.clone(),
        None => endpoint.address.to_string(),
    }
}

fn sum<'h, C: 'h>(hosts: impl Iterator<Item = &'h Rc<Host<C>>>) -> u64 {
    hosts.map(|host| u64::from(host.endpoint.weight)).sum()
}

impl<C> Spread<C> {
    #[cold]
    fn pick(&self, random: &Random, choice: Choice<'_>) -> Option<Rc<Host<C>>> {
        let Some(subsets) = &self.subsets else { return self.draw(random, choice) };
        subsets.choose(choice.labels, &mut |set| match set {
            Some(set) => set.pick(random, choice),
            None => self.draw(random, choice),
        })
    }

    fn draw(&self, random: &Random, choice: Choice<'_>) -> Option<Rc<Host<C>>> {
        if let Some(host) = self.next.borrow_mut().pop_front() {
            return Some(host);
        }
        let choice = Choice { hash: choice.hash.or_else(|| Some(random.next())), ..choice };
        let slice = self.slice(choice.hash.unwrap_or_default())?;
        if slice.panic {
            self.panics.count();
        }
        slice.source.pick(random, choice)
    }

    /// The slice that a random number falls into.
    fn slice(&self, number: u64) -> Option<&Slice<C>> {
        let mut ticket = number % 100;
        self.slices.iter().find(|slice| {
            let hit = ticket < slice.percent;
            ticket = ticket.saturating_sub(slice.percent);
            hit
        })
    }

    #[cold]
    fn look_ahead(&self, random: &Random) -> Option<Rc<Host<C>>> {
        let mut next = self.next.borrow_mut();
        if self.subsets.is_some() || next.len() >= self.healthy {
            return None;
        }
        let group = self.slice(random.next())?.source.draw(random)?;
        let host = group.picker.knows_next().then(|| group.pick(random, Choice::default()))??;
        next.push_back(host.clone());
        Some(host)
    }
}

/// What a picker may know about hosts.
struct View<'h, C> {
    hosts: &'h [Rc<Host<C>>],
    slow_start: Option<&'h SlowStart>,
}

impl<C> Hosts for View<'_, C> {
    fn load(&self, index: usize) -> u32 {
        self.hosts.get(index).map_or(0, |host| host.active.get())
    }

    fn latency(&self, index: usize) -> f64 {
        self.hosts.get(index).map_or(0.0, |host| host.latency())
    }

    fn warmth(&self, index: usize) -> f64 {
        let Some(slow_start) = self.slow_start else { return 1.0 };
        let since = self.hosts.get(index).and_then(|host| host.since.get());
        since.map_or(1.0, |since| slow_start.share(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use postrider_model::{LoadBalancing, Locality, ZoneRules};

    use super::*;
    use crate::{Cluster, Endpoints, Surroundings, Zone, testing};

    fn endpoint(port: u16, health: EndpointHealth, place: Option<(&str, u32)>) -> Arc<Endpoint> {
        let locality = |(zone, weight): (&str, u32)| Locality { zone: zone.to_owned(), weight, ..Locality::default() };
        let place = place.map(|place| Arc::new(locality(place)));
        Arc::new(Endpoint { health, place, ..testing::endpoint(port) })
    }

    fn picks(balancing: Balancing, endpoints: Vec<Arc<Endpoint>>, count: usize) -> Vec<usize> {
        let random = Random::new(5);
        let all = endpoints.clone();
        let cluster = Cluster::<()>::new(balancing, HealthRules::default(), &Endpoints(endpoints), &random);
        let mut counts = vec![0; all.len()];
        for _ in 0..count {
            let host = cluster.pick(&random).unwrap();
            counts[all.iter().position(|endpoint| *endpoint == host.endpoint).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn a_new_host_gets_its_share_little_by_little() {
        let window = Duration::from_secs(1000);
        let slow_start = Some(SlowStart { window, aggression: 1.0, least: 0.1 });
        let balancing = Balancing { policy: LoadBalancing::RoundRobin { slow_start }, ..Balancing::default() };
        let endpoints =
            Endpoints(vec![endpoint(1, EndpointHealth::Healthy, None), endpoint(2, EndpointHealth::Healthy, None)]);
        let random = Random::new(1);
        let cluster = Cluster::<()>::new(balancing, HealthRules::default(), &endpoints, &random);
        if let Some(old) = Instant::now().checked_sub(window) {
            cluster.all()[0].since.set(Some(old));
        }
        let new = (0..1100).filter(|_| Rc::ptr_eq(&cluster.pick(&random).unwrap(), &cluster.all()[1])).count();
        assert!((90..=110).contains(&new), "{new}");
    }

    #[test]
    fn localities_share_by_weight_and_by_what_they_can_take() {
        let (well, sick) = (EndpointHealth::Healthy, EndpointHealth::Unhealthy);
        let endpoints = vec![
            endpoint(1, well, Some(("a", 1))),
            endpoint(2, well, Some(("b", 2))),
            endpoint(3, well, Some(("c", 10))),
            endpoint(4, sick, Some(("c", 10))),
        ];
        let by_locality = Balancing { by_locality: true, ..Balancing::default() };
        assert_eq!(picks(by_locality, endpoints.clone(), 100), [10, 20, 70, 0]);
        let flat = picks(Balancing::default(), endpoints, 99);
        assert_eq!(flat, [33, 33, 33, 0]);
    }

    #[test]
    fn requests_keep_to_the_zone_of_the_proxy() {
        let (well, sick) = (EndpointHealth::Healthy, EndpointHealth::Unhealthy);
        let random = Random::new(5);
        let hosts = |zones: &[(&str, EndpointHealth)]| {
            let host =
                |(port, (zone, health)): (u16, &(&str, EndpointHealth))| endpoint(port, *health, Some((zone, 0)));
            Endpoints((1..).zip(zones).map(host).collect())
        };
        let surroundings = Surroundings::default();
        let home = surroundings.home.clone();
        let among = |zones: &[(&str, EndpointHealth)]| {
            let rules = ZoneRules { least_hosts: 2, ..ZoneRules::default() };
            let balancing = Balancing { zones: rules, ..Balancing::default() };
            let health = HealthRules { panic_threshold: 0.0, ..HealthRules::default() };
            Cluster::<()>::among(surroundings.clone(), balancing, health, &hosts(zones), &random)
        };
        let cluster = among(&[("a", well), ("b", well), ("b", sick), ("b", well), ("b", well)]);
        let share = |cluster: &Cluster<()>| {
            let hosts = (0..1000).filter_map(|_| cluster.pick(&random));
            hosts.filter(|host| host.endpoint.place.as_ref().unwrap().zone == "a").count()
        };
        assert_eq!((share(&cluster), cluster.take_zone_counts()), (250, None));
        let own = Zone { zone: "a".to_owned(), ..Zone::default() };
        let peers = among(&[("a", well), ("b", well)]).population();
        assert!(home.learn(Some((own, peers))));
        cluster.rearrange(&random);
        // A quarter of the hosts for half of the traffic: the own zone keeps half of its own.
        let stayed = share(&cluster);
        assert!((450..=550).contains(&stayed), "{stayed}");
        let counts = cluster.take_zone_counts().unwrap();
        assert_eq!((counts.sampled as usize, counts.cross_zone as usize), (stayed, 1000 - stayed));
        let small = among(&[("a", well), ("b", sick)]);
        assert_eq!((share(&small), small.take_zone_counts().unwrap().cluster_too_small), (1000, 1));
    }

    #[test]
    fn an_ejected_host_gets_nothing_until_it_is_back() {
        let random = Random::new(5);
        let all: Vec<_> = (1..=4).map(|port| endpoint(port, EndpointHealth::Healthy, None)).collect();
        let rules = HealthRules::default();
        let cluster = Cluster::<()>::new(Balancing::default(), rules, &Endpoints(all.clone()), &random);
        let met = || {
            let hosts = (0..20).filter_map(|_| cluster.pick(&random));
            hosts.filter(|host| *host.endpoint == *all[0]).count()
        };
        cluster.set_judged(&all[0], (true, false), &random);
        assert_eq!((met(), cluster.members().healthy), (0, 3));
        cluster.set_judged(&all[0], (false, false), &random);
        assert_eq!(met(), 5);
    }
}
