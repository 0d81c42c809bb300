//! Localities of hosts, and what they weigh.

use std::rc::Rc;

use postrider_model::Locality;

use crate::host::Host;

/// What the localities of one priority weigh.
pub(crate) struct Weights<'h, C> {
    /// Its hosts, in whatever state.
    pub(crate) all: &'h [Rc<Host<C>>],
    /// Where they are a part of other hosts, and a locality weighs as much as its share of those says.
    pub(crate) whole: Option<&'h [Rc<Host<C>>]>,
}

impl<C> Weights<'_, C> {
    pub(crate) fn of(&self, locality: Option<&Locality>) -> u32 {
        let weight = weight_of(locality);
        let (Some(whole), Some(first)) = (self.whole, self.all.first()) else { return weight };
        let peers = |host: &&Rc<Host<C>>| is_in(host, locality) && host.endpoint.priority == first.endpoint.priority;
        let (here, there) = (self.all.iter().filter(peers).count(), whole.iter().filter(peers).count());
        // As in Envoy, what is less than a half weighs nothing.
        let scaled = here as f64 / there.max(1) as f64 * f64::from(weight);
        scaled.round() as u32
    }

    /// All of them together.
    pub(crate) fn total(&self) -> u64 {
        localities(self.all).into_iter().map(|locality| u64::from(self.of(locality))).sum()
    }
}

/// Each locality once, in the order in which they come.
pub(crate) fn localities<C>(hosts: &[Rc<Host<C>>]) -> Vec<Option<&Locality>> {
    let mut all: Vec<Option<&Locality>> = Vec::new();
    for host in hosts {
        let locality = host.endpoint.place.as_deref();
        if !all.iter().any(|known| is_same(*known, locality)) {
            all.push(locality);
        }
    }
    all
}

pub(crate) fn is_in<C>(host: &Host<C>, locality: Option<&Locality>) -> bool {
    is_same(host.endpoint.place.as_deref(), locality)
}

fn is_same(one: Option<&Locality>, other: Option<&Locality>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            std::ptr::eq(one, other)
                || (&one.region, &one.zone, &one.sub_zone) == (&other.region, &other.zone, &other.sub_zone)
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn weight_of(locality: Option<&Locality>) -> u32 {
    locality.map_or(0, |locality| locality.weight)
}
