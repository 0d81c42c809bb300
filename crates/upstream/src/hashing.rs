//! Choosing a host by a hash, with the results of Envoy's ring hash and Maglev: the same keys, weights and settings lead
//! every hash to the same host.

use postrider_model::{HashFunction, Maglev, RingHash};

use crate::hash::{Twister, murmur2, xxh64};

/// A host as a table sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// What it is known by.
    pub key: String,
    /// Of the whole, from 0 to 1.
    pub share: f64,
}

/// From a hash to the index of a host.
#[derive(Debug)]
pub(crate) struct Table {
    places: Places,
    /// Places of the host that has fewest, and of the one that has most.
    fewest: u32,
    most: u32,
}

#[derive(Debug)]
enum Places {
    /// Sorted by hash.
    Ring(Box<[(u64, u32)]>),
    Maglev(Box<[u32]>),
}

/// How large a table is that has hosts, and how much of it is whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSizes {
    pub all: u64,
    /// Places of the host that has fewest, and of the one that has most.
    pub fewest: u64,
    pub most: u64,
}

impl Table {
    fn new(places: Places, counts: impl Iterator<Item = u32> + Clone) -> Table {
        let (fewest, most) = (counts.clone().min().unwrap_or_default(), counts.max().unwrap_or_default());
        Table { places, fewest, most }
    }

    /// `None` when it has no hosts.
    pub(crate) fn sizes(&self) -> Option<TableSizes> {
        let all = match &self.places {
            Places::Ring(ring) => ring.len(),
            Places::Maglev(table) => table.len(),
        };
        let sizes = TableSizes { all: all as u64, fewest: self.fewest.into(), most: self.most.into() };
        (all > 0).then_some(sizes)
    }

    /// Places on the ring follow the running sum of shares, so that what rounding takes from one host goes to the next.
    pub(crate) fn ring(config: &RingHash, places: &[Place]) -> Table {
        let smallest = places.iter().map(|place| place.share).fold(1.0, f64::min);
        if places.is_empty() || smallest <= 0.0 {
            return Table::new(Places::Ring(Box::default()), std::iter::empty());
        }
        // The smallest host gets a whole number of places, unless that makes the ring too large.
        let scale = ((smallest * config.min_size as f64).ceil() / smallest).min(config.max_size as f64);
        let mut ring = Vec::with_capacity(scale.ceil() as usize);
        let mut counts = Vec::with_capacity(places.len());
        let (mut filled, mut wanted) = (0.0, 0.0);
        for (index, place) in (0u32..).zip(places) {
            wanted += scale * place.share;
            let mut number = 0u32;
            while filled < wanted {
                let key = format!("{}_{number}", place.key);
                let hash = match config.function {
                    HashFunction::XxHash => xxh64(key.as_bytes(), 0),
                    HashFunction::Murmur2 => murmur2(key.as_bytes()),
                };
                ring.push((hash, index));
                number += 1;
                filled += 1.0;
            }
            counts.push(number);
        }
        ring.sort_by_key(|(hash, _)| *hash);
        Table::new(Places::Ring(ring.into()), counts.into_iter())
    }

    /// As in "Maglev: A Fast and Reliable Software Network Load Balancer", listing 1, with weights: a host takes a place
    /// in as many rounds as its share is of the largest one.
    pub(crate) fn maglev(config: &Maglev, places: &[Place]) -> Table {
        struct Entry {
            index: u32,
            offset: u64,
            skip: u64,
            next: u64,
            share: f64,
            target: f64,
            places: u32,
        }
        const FREE: u32 = u32::MAX;
        let size = config.table_size.max(2);
        let largest = places.iter().map(|place| place.share).fold(0.0, f64::max);
        if places.is_empty() || largest <= 0.0 {
            return Table::new(Places::Maglev(Box::default()), std::iter::empty());
        }
        if places.len() == 1 {
            // One place of one host is as good as all of them, and is told of as that, as in Envoy.
            return Table::new(Places::Maglev([0].into()), std::iter::once(1));
        }
        let mut sorted: Vec<(u32, &Place)> = (0u32..).zip(places).collect();
        sorted.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
        let entry = |(index, place): (u32, &Place)| Entry {
            index,
            offset: xxh64(place.key.as_bytes(), 0) % size,
            skip: xxh64(place.key.as_bytes(), 1) % (size - 1) + 1,
            next: 0,
            share: place.share,
            target: 0.0,
            places: 0,
        };
        let mut entries: Vec<Entry> = sorted.into_iter().map(entry).collect();
        let mut table = vec![FREE; usize::try_from(size).unwrap_or_default()];
        let (mut filled, mut round) = (0, 0.0);
        while filled < table.len() {
            round += 1.0;
            for entry in &mut entries {
                if filled == table.len() || round * entry.share < entry.target {
                    continue;
                }
                entry.target += largest;
                // The size is a prime, so every place is met before one is met twice.
                for _ in 0..size {
                    let at = (entry.offset.wrapping_add(entry.skip.wrapping_mul(entry.next)) % size) as usize;
                    entry.next += 1;
                    if let Some(slot) = table.get_mut(at).filter(|slot| **slot == FREE) {
                        *slot = entry.index;
                        entry.places += 1;
                        filled += 1;
                        break;
                    }
                }
            }
        }
        Table::new(Places::Maglev(table.into()), entries.iter().map(|entry| entry.places))
    }

    /// `attempt` is how often the host of this hash was refused: then another place is looked at.
    pub(crate) fn find(&self, hash: u64, attempt: u32) -> Option<usize> {
        let index = match &self.places {
            Places::Ring(ring) => {
                let first = ring.partition_point(|(place, _)| *place < hash);
                let at = if first >= ring.len() { 0 } else { first };
                ring.get((at + attempt as usize).checked_rem(ring.len())?)?.1
            }
            Places::Maglev(table) => {
                let hash = if attempt > 0 { hash ^ (u64::MAX - u64::from(attempt) + 1) } else { hash };
                *table.get((hash % (table.len() as u64).max(1)) as usize)?
            }
        };
        Some(index as usize)
    }
}

/// A table whose hosts take only so much more than their share ("Consistent Hashing with Bounded Loads").
#[derive(Debug)]
pub(crate) struct Bounded {
    /// Percent of the mean.
    pub(crate) factor: u32,
    pub(crate) shares: Box<[f64]>,
}

impl Bounded {
    /// `found`, or who takes its place when it is overloaded. `load` tells a host's active requests.
    #[cold]
    pub(crate) fn relieve(&self, found: usize, hash: u64, load: impl Fn(usize) -> u32) -> Option<usize> {
        let all = (0..self.shares.len()).fold(0u64, |sum, index| sum + u64::from(load(index)));
        let slots = ((all + 1) * u64::from(self.factor)).div_ceil(100) as f64;
        let overload = |index: usize| {
            let share = self.shares.get(index).copied().unwrap_or_default();
            f64::from(load(index)) / (slots * share).ceil().max(1.0)
        };
        let mut best = (overload(found), found);
        if best.0 <= 1.0 {
            return Some(found);
        }
        // The order is random, but the same for the same hash.
        let mut order: Vec<usize> = (0..self.shares.len()).collect();
        let mut random = Twister::new(hash as u32);
        let mut left = u32::try_from(order.len()).ok()?;
        for index in 0..order.len() {
            order.swap(index, index + random.below(left) as usize);
            left -= 1;
            let Some(other) = order.get(index).copied().filter(|other| *other != found) else { continue };
            let factor = overload(other);
            if factor <= 1.0 {
                return Some(other);
            }
            if factor < best.0 {
                best = (factor, other);
            }
        }
        Some(best.1)
    }
}
