//! How traffic is spread over the priorities of a cluster by the health of their hosts, as Envoy does it
//! (`LoadBalancerBase::recalculatePerPriorityState` and what belongs to it).
//!
//! A priority takes as much traffic as its healthy hosts may, with 40 % to spare: with 72 % of them healthy it still
//! takes all. What it cannot take goes to the next one; then come degraded hosts; and when too few hosts are left
//! anywhere, all hosts are used whatever their health.

/// One priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Census {
    pub hosts: Tally,
    /// By what it is known how much it can take: the hosts, or what they weigh.
    pub ability: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub all: u64,
    pub healthy: u64,
    pub degraded: u64,
    /// Not checked yet, where such hosts do not count.
    pub excluded: u64,
}

/// What one priority gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Share {
    /// Percent of all traffic that goes to its healthy hosts, and to its degraded ones.
    pub healthy: u64,
    pub degraded: u64,
    /// Its traffic goes to all of its hosts.
    pub panic: bool,
}

/// The shares of all priorities; together they are 100. `overprovisioning` is the percentage of traffic that a percent of
/// healthy hosts may take.
pub(crate) fn spread(priorities: &[Census], panic_threshold: f64, overprovisioning: u32) -> Vec<Share> {
    let (mut shares, total) = distribute(priorities, overprovisioning, &[]);
    if panic_threshold <= 0.0 && total == 0 {
        // Nobody is left, and nobody who is not well may be asked.
        if let Some(share) = shares.first_mut() {
            share.healthy = 100;
        }
        return shares;
    }
    for (share, census) in shares.iter_mut().zip(priorities) {
        let usable = match census.hosts.counted() {
            0 => 0.0,
            counted => 100.0 * (census.hosts.healthy + census.hosts.degraded) as f64 / counted as f64,
        };
        share.panic = total < 100 && usable < panic_threshold;
    }
    if !shares.is_empty() && shares.iter().all(|share| share.panic) {
        by_size(priorities, &mut shares);
    }
    shares
}

/// The shares of all priorities but those in `without`, however few hosts are left; `None` when the others can take nothing.
pub(crate) fn spread_without(priorities: &[Census], overprovisioning: u32, without: &[u32]) -> Option<Vec<Share>> {
    let (shares, total) = distribute(priorities, overprovisioning, without);
    (total > 0).then_some(shares)
}

/// Shares by what priorities can take, and how much that is in all, at most 100.
fn distribute(priorities: &[Census], overprovisioning: u32, without: &[u32]) -> (Vec<Share>, u64) {
    let mut shares = vec![Share::default(); priorities.len()];
    let able = |part: fn(&Tally) -> u64| -> Vec<u64> {
        let of = |(level, Census { ability, .. }): (u32, &Census)| match ability.counted() {
            0 => 0,
            _ if without.contains(&level) => 0,
            counted => (u64::from(overprovisioning) * part(ability) / counted).min(100),
        };
        (0..).zip(priorities).map(of).collect()
    };
    let (healthy, degraded) = (able(|tally| tally.healthy), able(|tally| tally.degraded));
    let total = healthy.iter().chain(&degraded).sum::<u64>().min(100);
    if total > 0 {
        let mut left = 100;
        let mut give = |able: u64| {
            let given = (able * 100 / total).min(left);
            left -= given;
            given
        };
        shares.iter_mut().zip(&healthy).for_each(|(share, able)| share.healthy = give(*able));
        shares.iter_mut().zip(&degraded).for_each(|(share, able)| share.degraded = give(*able));
        // What rounding left.
        let first = |able: &[u64]| able.iter().position(|able| *able > 0);
        if let Some(share) = first(&healthy).and_then(|at| shares.get_mut(at)) {
            share.healthy += left;
        } else if let Some(share) = first(&degraded).and_then(|at| shares.get_mut(at)) {
            share.degraded += left;
        }
    }
    (shares, total)
}

impl Tally {
    /// Of hosts that count.
    fn counted(&self) -> u64 {
        self.all - self.excluded.min(self.all)
    }
}

/// Nobody knows better: each priority gets traffic by the number of its hosts.
fn by_size(priorities: &[Census], shares: &mut [Share]) {
    let total: u64 = priorities.iter().map(|census| census.hosts.all).sum();
    let mut left = 100;
    for (share, census) in shares.iter_mut().zip(priorities) {
        share.healthy = (100 * census.hosts.all).checked_div(total).unwrap_or_default();
        share.degraded = 0;
        left -= share.healthy;
    }
    let first = priorities.iter().position(|census| census.hosts.all > 0).unwrap_or_default();
    if let Some(share) = shares.get_mut(first) {
        share.healthy += left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(all: u64, healthy: u64, degraded: u64) -> Census {
        of_hosts(Tally { all, healthy, degraded, excluded: 0 })
    }

    fn of_hosts(hosts: Tally) -> Census {
        Census { hosts, ability: hosts }
    }

    fn shares(priorities: &[Census]) -> Vec<(u64, u64, bool)> {
        spread(priorities, 50.0, 140).iter().map(|share| (share.healthy, share.degraded, share.panic)).collect()
    }

    #[test]
    fn a_priority_takes_all_until_more_than_a_quarter_is_gone() {
        assert_eq!(shares(&[census(4, 3, 0), census(4, 4, 0)]), [(100, 0, false), (0, 0, false)]);
        assert_eq!(shares(&[census(4, 2, 0), census(4, 4, 0)]), [(70, 0, false), (30, 0, false)]);
        assert_eq!(shares(&[census(4, 0, 0), census(4, 4, 0)]), [(0, 0, false), (100, 0, false)]);
    }

    #[test]
    fn degraded_hosts_come_when_healthy_ones_do_not_suffice() {
        assert_eq!(shares(&[census(4, 1, 3)]), [(35, 65, false)]);
        assert_eq!(shares(&[census(2, 0, 2)]), [(0, 100, false)]);
    }

    #[test]
    fn too_few_hosts_everywhere_are_a_panic() {
        assert_eq!(shares(&[census(3, 1, 0)]), [(100, 0, true)]);
        assert_eq!(shares(&[census(3, 0, 0), census(1, 0, 0)]), [(75, 0, true), (25, 0, true)]);
        let calm = |threshold| spread(&[census(4, 1, 0)], threshold, 140).first().copied();
        assert_eq!(calm(10.0), Some(Share { healthy: 100, degraded: 0, panic: false }));
        assert_eq!(spread(&[census(1, 0, 0)], 0.0, 140), [Share { healthy: 100, degraded: 0, panic: false }]);
    }

    #[test]
    fn priorities_that_are_left_out_leave_their_share_to_the_others() {
        let all = [census(2, 2, 0), census(2, 1, 0), census(2, 0, 2)];
        let without = |without: &[u32]| {
            let shares = spread_without(&all, 140, without)?;
            Some(shares.iter().map(|share| (share.healthy, share.degraded)).collect::<Vec<_>>())
        };
        assert_eq!(without(&[]), Some(vec![(100, 0), (0, 0), (0, 0)]));
        assert_eq!(without(&[0]), Some(vec![(0, 0), (70, 0), (0, 30)]));
        assert_eq!(without(&[0, 1]), Some(vec![(0, 0), (0, 0), (0, 100)]));
        assert_eq!(without(&[0, 1, 2]), None);
    }

    #[test]
    fn unchecked_hosts_need_not_count() {
        let tally = Tally { all: 10, healthy: 1, degraded: 0, excluded: 9 };
        assert_eq!(shares(&[of_hosts(tally)]), [(100, 0, false)]);
    }

    #[test]
    fn weights_may_say_how_much_a_priority_can_take() {
        let hosts = Tally { all: 2, healthy: 1, degraded: 0, excluded: 0 };
        let weights = |healthy| Tally { all: 10, healthy, ..Tally::default() };
        let second = census(2, 2, 0);
        assert_eq!(shares(&[Census { hosts, ability: weights(9) }, second]), [(100, 0, false), (0, 0, false)]);
        assert_eq!(shares(&[Census { hosts, ability: weights(1) }, second]), [(14, 0, false), (86, 0, false)]);
        // Whether that is a panic is said by the hosts.
        assert_eq!(shares(&[Census { hosts, ability: weights(1) }]), [(100, 0, false)]);
    }

    #[test]
    fn shares_are_a_whole_however_the_numbers_fall() {
        for a in 0..6 {
            for b in 0..6 {
                for c in 0..6 {
                    let shares = spread(
                        &[census(5, a.min(5), 5 - a.min(5)), census(7, b, 0), census(3, c.min(3), 0)],
                        50.0,
                        140,
                    );
                    assert_eq!(shares.iter().map(|share| share.healthy + share.degraded).sum::<u64>(), 100);
                }
            }
        }
    }
}
