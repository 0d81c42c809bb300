//! Another try of a request goes to another cluster, where the route's retry policy asks for that
//! (`refresh_cluster_on_retry`).
//!
//! A request keeps the number that its first cluster was drawn by, so which ones follow is settled from the beginning.

use std::rc::Rc;

use postrider_model::{Forward, NextCluster, Target, WeightedCluster};

use super::exchange::Exchange;
use super::prepare::draw;
use super::{Connection, Http};
use crate::cluster::{Cluster, Host};

/// Where the next try goes.
pub(super) enum Next {
    Same,
    Other(Rc<Cluster>),
    /// What was chosen is not there.
    Nowhere,
}

impl Exchange {
    /// Chooses the cluster of the try whose number is known.
    #[cold]
    pub(super) fn next_cluster(&mut self, connection: &Connection, forward: &Forward) -> Next {
        let worker = &connection.worker;
        let found = match &forward.next {
            NextCluster::Same => return Next::Same,
            NextCluster::Untried => {
                let Target::Weighted(clusters) = &forward.target else { return Next::Same };
                self.weighted = self.untried(clusters);
                let drawn = self.weighted.and_then(|index| clusters.get(index));
                drawn.and_then(|drawn| self.cluster_of(drawn, worker))
            }
            NextCluster::Groups(groups) => {
                let group = groups.get(self.info.upstream_attempts.saturating_sub(2) as usize).or(groups.last());
                let drawn = group.and_then(|group| group.get(draw(group, self.ticket)?));
                drawn.and_then(|drawn| worker.cluster(&drawn.cluster))
            }
            NextCluster::Asked => {
                let (Some(routes), Some(route)) = (self.routes.clone(), self.route) else { return Next::Same };
                self.find_cluster(connection, &routes, route, forward)
            }
        };
        match (found, &self.cluster) {
            (None, _) => Next::Nowhere,
            (Some(found), Some(current)) if Rc::ptr_eq(&found, current) => Next::Same,
            (Some(found), _) => Next::Other(found),
        }
    }

    /// The request belongs to this cluster from here on; answers one of its hosts.
    #[cold]
    pub(super) fn enter_cluster(
        &mut self,
        cluster: &Rc<Cluster>,
        connection: &Connection,
        http: &Http,
        forward: &Forward,
    ) -> Option<Rc<Host>> {
        self.cluster = Some(cluster.clone());
        self.info.upstream_cluster = Some(cluster.name.clone());
        self.chosen = None;
        let upside = self.find_upside(connection, http);
        if let Some(attempts) = &mut self.attempts {
            attempts.meet(cluster, &connection.worker);
            attempts.upside = upside;
        }
        self.choose_by_request(cluster, forward, &connection.worker.random)
    }

    /// The index of a weighted cluster that was not tried. When all were, they begin anew.
    fn untried(&mut self, clusters: &[WeightedCluster]) -> Option<usize> {
        let attempts = self.attempts.as_mut()?;
        let tried = &mut attempts.tried_clusters;
        if tried.is_empty() {
            tried.extend(self.weighted);
        }
        let drawn = draw_another(clusters, tried, self.ticket).or_else(|| {
            tried.clear();
            draw(clusters, self.ticket)
        });
        tried.extend(drawn);
        drawn
    }
}

/// The same as [`draw`] among those that are not `tried`.
fn draw_another(clusters: &[WeightedCluster], tried: &[usize], random: u64) -> Option<usize> {
    let others = || clusters.iter().enumerate().filter(|(index, _)| !tried.contains(index));
    let total: u64 = others().map(|(_, cluster)| u64::from(cluster.weight)).sum();
    let mut ticket = random.checked_rem(total)?;
    let hit = others().find(|(_, cluster)| {
        let weight = u64::from(cluster.weight);
        let hit = ticket < weight;
        ticket = ticket.saturating_sub(weight);
        hit
    });
    hit.map(|(index, _)| index)
}
