//! Which zone a request goes to, where it is known in which one the proxy stands, with Envoy's meaning (its
//! `ZoneAwareLoadBalancerBase`).
//!
//! The proxies of one cluster, the *peers*, share the hosts of another one between them. Each keeps to the hosts of its own
//! zone as far as these are the zone's fair share; what is too much for them goes to zones with more hosts than peers.
//!
//! ```text
//!              peers   hosts
//! own zone      50 %    25 %   half of the requests stay
//! another       25 %    50 %   the others go there: it is the one with hosts to spare
//! a third       25 %    25 %
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use postrider_model::{Balancing, Endpoint, EndpointHealth, HealthRules, Locality, ZoneRules};

use crate::Random;
use crate::host::Host;

/// Shares are counted in hundredths of a percent.
const WHOLE: u64 = 10_000;

/// A place by its names. Hosts and proxies that say nothing of theirs stand in the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Zone {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
}

impl Zone {
    fn of(endpoint: &Endpoint) -> Zone {
        let [region, zone, sub_zone] = names(endpoint.place.as_deref()).map(str::to_owned);
        Zone { region, zone, sub_zone }
    }
}

/// Whether an endpoint stands there.
pub(crate) fn is_in(zone: &Zone, endpoint: &Endpoint) -> bool {
    names(endpoint.place.as_deref()) == [&*zone.region, &zone.zone, &zone.sub_zone]
}

fn names(place: Option<&Locality>) -> [&str; 3] {
    place.map_or([""; 3], |place| [&*place.region, &place.zone, &place.sub_zone])
}

/// Where hosts stand, and how they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Population {
    zones: BTreeMap<Zone, Count>,
    degraded: u64,
    /// Those that do not count, because nobody checked them yet.
    excluded: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    all: u64,
    healthy: u64,
    /// What the healthy ones weigh.
    weight: u64,
}

impl Population {
    pub(crate) fn of<'h, C: 'h>(hosts: impl Iterator<Item = &'h Rc<Host<C>>>, rules: &HealthRules) -> Population {
        let mut population = Population::default();
        for host in hosts {
            let count = population.zones.entry(Zone::of(&host.endpoint)).or_default();
            count.all += 1;
            match host.standing() {
                EndpointHealth::Healthy => {
                    count.healthy += 1;
                    count.weight += u64::from(host.endpoint.weight);
                }
                EndpointHealth::Degraded => population.degraded += 1,
                EndpointHealth::Unhealthy => {}
            }
            population.excluded += u64::from(host.is_excluded(rules.ignores_unchecked));
        }
        population
    }

    fn healthy(&self) -> u64 {
        self.zones.values().map(|count| count.healthy).sum()
    }

    /// So few of them are well that how they are spread means nothing.
    fn is_in_panic(&self, threshold: f64) -> bool {
        let all: u64 = self.zones.values().map(|count| count.all).sum();
        match all.saturating_sub(self.excluded) {
            0 => threshold > 0.0,
            counted => 100.0 * ((self.healthy() + self.degraded) as f64) / (counted as f64) < threshold,
        }
    }

    /// What share of its healthy hosts stand there.
    fn share(&self, zone: &Zone, by_weight: bool) -> u64 {
        let size = |count: &Count| if by_weight { count.weight } else { count.healthy };
        let total: u64 = self.zones.values().map(size).sum();
        let there = self.zones.get(zone).map_or(0, size);
        (WHOLE * there).checked_div(total).unwrap_or_default()
    }
}

/// Where the proxy stands among its peers, as the clusters of one worker know it.
#[derive(Debug, Default)]
pub struct Home(RefCell<Option<Known>>);

#[derive(Debug, PartialEq)]
struct Known {
    own: Zone,
    peers: Population,
}

impl Home {
    /// Where the proxy stands, and its peers; `None` where no cluster lists them. Answers whether that is news.
    pub fn learn(&self, found: Option<(Zone, Population)>) -> bool {
        let known = found.map(|(own, peers)| Known { own, peers });
        let before = self.0.replace(known);
        before != *self.0.borrow()
    }

    /// The same where only the peers can have changed.
    pub fn meet(&self, peers: Population) -> bool {
        let own = self.0.borrow().as_ref().map(|known| known.own.clone());
        own.is_some_and(|own| self.learn(Some((own, peers))))
    }

    pub fn is_known(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// How often what was done, since somebody asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneCounts {
    /// Requests that stayed because all do.
    pub all_directly: u64,
    /// Requests that stayed though not all can.
    pub sampled: u64,
    pub cross_zone: u64,
    /// Of those, which found no zone with hosts to spare.
    pub no_capacity_left: u64,
    /// The peers are not what they should be.
    pub local_cluster_not_ok: u64,
    pub cluster_too_small: u64,
    /// It was worked out anew who goes where.
    pub recalculated: u64,
}

/// What a cluster needs to route by zone.
#[derive(Debug)]
pub(crate) struct Zoning {
    pub(crate) home: Rc<Home>,
    pub(crate) counts: Rc<RefCell<ZoneCounts>>,
}

/// Who goes where, until hosts or peers change.
#[derive(Debug)]
pub(crate) struct Routing {
    /// The zones with hosts; the proxy's own is the first, if it has any.
    pub(crate) zones: Vec<Zone>,
    way: Way,
    /// Percent of requests for which zones count.
    percent: u32,
    /// Too few of the peers are well.
    peers_panic: bool,
    fails_on_panic: bool,
    counts: Rc<RefCell<ZoneCounts>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// Everything stays.
    Direct,
    Residual {
        /// The share that does.
        stays: u64,
        /// What each zone, together with those before it, has to spare.
        spare: Vec<u64>,
    },
}

/// Where one request goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// Zones do not count for it.
    Anywhere,
    Nowhere,
    /// The index of a zone.
    Zone(usize),
}

impl Zoning {
    /// Works out who goes where; `None` when zones do not count. `hosts` are those of the first priority.
    pub(crate) fn routing(
        &self,
        balancing: &Balancing,
        health: &HealthRules,
        hosts: impl FnOnce() -> Population,
    ) -> Option<Routing> {
        let home = self.home.0.borrow();
        let Known { own, peers } = home.as_ref()?;
        let (rules, hosts) = (&balancing.zones, hosts());
        let mut counts = self.counts.borrow_mut();
        counts.recalculated += 1;
        if hosts.zones.len() < 2 || peers.zones.len() < 2 && rules.stays_with.is_none() {
            return None;
        }
        if !peers.zones.contains_key(own) {
            counts.local_cluster_not_ok += 1;
            return None;
        }
        if hosts.healthy() < rules.least_hosts {
            counts.cluster_too_small += 1;
            return None;
        }
        let others = hosts.zones.keys().filter(|zone| *zone != own);
        let first = hosts.zones.get_key_value(own).map(|(own, _)| own);
        let zones: Vec<Zone> = first.into_iter().chain(others).cloned().collect();
        Some(Routing {
            way: way(rules, own, (peers, &hosts), &zones),
            zones,
            percent: rules.percent,
            peers_panic: peers.is_in_panic(health.panic_threshold),
            fails_on_panic: balancing.fails_on_panic,
            counts: self.counts.clone(),
        })
    }
}

fn way(rules: &ZoneRules, own: &Zone, (peers, hosts): (&Population, &Population), zones: &[Zone]) -> Way {
    let shares = |zone: &Zone| match hosts.zones.get(zone) {
        Some(count) if count.healthy > 0 => (peers.share(zone, rules.by_weight), hosts.share(zone, rules.by_weight)),
        _ => (0, 0),
    };
    let mut stays = 0;
    if let Some(count) = hosts.zones.get(own) {
        let (of_peers, of_hosts) = shares(own);
        let suffices = of_hosts > 0 && of_hosts >= of_peers;
        if suffices || rules.stays_with.is_some_and(|least| count.healthy >= u64::from(least)) {
            return Way::Direct;
        }
        stays = (of_hosts * WHOLE).checked_div(of_peers).unwrap_or_default();
    }
    let mut sum = 0;
    let spare = zones.iter().map(|zone| {
        let (of_peers, of_hosts) = shares(zone);
        if zone != own {
            sum += of_hosts.saturating_sub(of_peers);
        }
        sum
    });
    Way::Residual { stays, spare: spare.collect() }
}

impl Routing {
    pub(crate) fn draw(&self, random: &Random) -> Drawn {
        let below = |bound: u64| random.below(usize::try_from(bound).unwrap_or(usize::MAX)) as u64;
        if self.percent < 100 && below(100) >= u64::from(self.percent) {
            return Drawn::Anywhere;
        }
        let mut counts = self.counts.borrow_mut();
        if self.peers_panic {
            counts.local_cluster_not_ok += 1;
            return if self.fails_on_panic { Drawn::Nowhere } else { Drawn::Anywhere };
        }
        let (stays, spare) = match &self.way {
            Way::Direct => {
                counts.all_directly += 1;
                return Drawn::Zone(0);
            }
            Way::Residual { stays, spare } => (*stays, spare),
        };
        if below(WHOLE) < stays {
            counts.sampled += 1;
            return Drawn::Zone(0);
        }
        counts.cross_zone += 1;
        match spare.last() {
            Some(all) if *all > 0 => {
                let ticket = below(*all);
                Drawn::Zone(spare.iter().position(|sum| ticket < *sum).unwrap_or_default())
            }
            _ => {
                counts.no_capacity_left += 1;
                Drawn::Zone(random.below(spare.len()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone { zone: name.to_owned(), ..Zone::default() }
    }

    /// Healthy ones by zone, of weight 1.
    fn population(counts: &[(&str, u64)]) -> Population {
        let count = |healthy| Count { all: healthy, healthy, weight: healthy };
        let zones = counts.iter().map(|(name, healthy)| (zone(name), count(*healthy))).collect();
        Population { zones, ..Population::default() }
    }

    fn rules(change: impl FnOnce(&mut ZoneRules)) -> ZoneRules {
        let mut rules = ZoneRules { least_hosts: 1, ..ZoneRules::default() };
        change(&mut rules);
        rules
    }

    fn usual_rules() -> ZoneRules {
        rules(|_| {})
    }

    fn zoning(own: &str, peers: Population) -> Zoning {
        let home = Home::default();
        assert!(home.learn(Some((zone(own), peers))));
        Zoning { home: Rc::new(home), counts: Rc::default() }
    }

    fn routing(zoning: &Zoning, zones: ZoneRules, hosts: &Population) -> Option<Routing> {
        let balancing = Balancing { zones, ..Balancing::default() };
        zoning.routing(&balancing, &HealthRules::default(), || hosts.clone())
    }

    #[test]
    fn what_is_too_much_for_the_own_zone_goes_where_hosts_are_to_spare() {
        let zoning = zoning("a", population(&[("a", 2), ("b", 2), ("c", 1)]));
        let found = routing(&zoning, usual_rules(), &population(&[("b", 4), ("a", 2), ("c", 2)])).unwrap();
        assert_eq!(found.zones, [zone("a"), zone("b"), zone("c")]);
        assert_eq!(found.way, Way::Residual { stays: 6250, spare: vec![0, 1000, 1500] });
        let random = Random::new(3);
        let mut met = [0u32; 3];
        for _ in 0..8000 {
            let Drawn::Zone(index) = found.draw(&random) else { panic!("zones count for all") };
            met[index] += 1;
        }
        // 62.5 %, and of the rest two thirds and one.
        for (met, expected) in met.into_iter().zip([5000, 2000, 1000]) {
            assert!(met.abs_diff(expected) < 150, "{met} of {expected}");
        }
        let counts = *zoning.counts.borrow();
        assert_eq!(counts.sampled + counts.cross_zone, 8000);
        assert_eq!((counts.recalculated, counts.all_directly, counts.no_capacity_left), (1, 0, 0));
    }

    #[test]
    fn everything_stays_where_there_are_hosts_enough() {
        let zoning = zoning("a", population(&[("a", 1), ("b", 1)]));
        let found = routing(&zoning, usual_rules(), &population(&[("a", 3), ("b", 3)])).unwrap();
        assert_eq!((found.draw(&Random::new(1)), zoning.counts.borrow().all_directly), (Drawn::Zone(0), 1));
        let few = population(&[("a", 1), ("b", 3)]);
        assert_ne!(routing(&zoning, usual_rules(), &few).unwrap().way, Way::Direct);
        let forced = |least| rules(|rules| rules.stays_with = Some(least));
        assert_eq!(routing(&zoning, forced(1), &few).unwrap().way, Way::Direct);
        assert_ne!(routing(&zoning, forced(2), &few).unwrap().way, Way::Direct);
    }

    #[test]
    fn zones_count_only_where_there_are_several_and_peers_in_the_own_one() {
        let two = population(&[("a", 1), ("b", 1)]);
        let lost = zoning("z", two.clone());
        assert!(routing(&lost, usual_rules(), &two).is_none());
        assert_eq!(lost.counts.borrow().local_cluster_not_ok, 1);
        let together = zoning("a", population(&[("a", 2)]));
        assert!(routing(&together, usual_rules(), &two).is_none());
        assert!(routing(&together, rules(|rules| rules.stays_with = Some(1)), &two).is_some());
        let usual = zoning("a", two.clone());
        assert!(routing(&usual, usual_rules(), &population(&[("b", 9)])).is_none());
        assert!(routing(&usual, rules(|rules| rules.least_hosts = 3), &two).is_none());
        assert_eq!(usual.counts.borrow().cluster_too_small, 1);
        let nowhere = Zoning { home: Rc::default(), counts: Rc::default() };
        assert!(routing(&nowhere, usual_rules(), &two).is_none());
    }

    #[test]
    fn without_a_host_in_the_own_zone_everything_goes_elsewhere() {
        let zoning = zoning("a", population(&[("a", 2), ("b", 1), ("c", 1)]));
        let found = routing(&zoning, usual_rules(), &population(&[("b", 1), ("c", 3)])).unwrap();
        assert_eq!(found.zones, [zone("b"), zone("c")]);
        assert_eq!(found.way, Way::Residual { stays: 0, spare: vec![0, 5000] });
    }

    #[test]
    fn peers_that_are_not_well_say_nothing() {
        let mut peers = population(&[("a", 1), ("b", 1)]);
        peers.zones.get_mut(&zone("b")).unwrap().all = 9;
        let zoning = zoning("a", peers);
        let hosts = population(&[("a", 1), ("b", 1)]);
        let found = routing(&zoning, usual_rules(), &hosts).unwrap();
        assert_eq!((found.draw(&Random::new(1)), zoning.counts.borrow().local_cluster_not_ok), (Drawn::Anywhere, 1));
        let balancing = Balancing { zones: usual_rules(), fails_on_panic: true, ..Balancing::default() };
        let strict = zoning.routing(&balancing, &HealthRules::default(), || hosts.clone()).unwrap();
        assert_eq!(strict.draw(&Random::new(1)), Drawn::Nowhere);
    }

    #[test]
    fn news_is_told_from_what_was_known() {
        let home = Home::default();
        assert!(!home.meet(population(&[("a", 1)])) && !home.is_known());
        assert!(home.learn(Some((zone("a"), population(&[("a", 1)])))));
        assert!(!home.meet(population(&[("a", 1)])) && home.meet(population(&[("a", 2)])));
        assert!(home.learn(None) && !home.learn(None));
    }
}
