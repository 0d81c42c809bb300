//! Which requests of a virtual host count together: its virtual clusters, and routes with a prefix of their own.

use std::sync::Arc;

use postrider_http::RequestHead;
use postrider_model::{Route, VirtualHost};
use postrider_router::{HeaderTest, Judges};

/// Takes what no virtual cluster takes, where there are any.
const OTHER: &str = "other";

/// What the requests of one route count in.
pub struct GroupsPlan {
    /// Prefix of the route's own statistics.
    pub route: Option<Arc<str>>,
    clusters: Arc<[VirtualClusterPlan]>,
}

/// A virtual cluster with its conditions compiled.
pub struct VirtualClusterPlan {
    tests: Box<[HeaderTest]>,
    /// `None` for what nobody took.
    pub name: Option<Arc<str>>,
    /// Of its statistics.
    pub prefix: Arc<str>,
}

impl GroupsPlan {
    /// Of a route of `host`, whose virtual clusters are `clusters`; `None` when there is nothing to count in.
    pub(super) fn of_route(
        route: &Route,
        host: &VirtualHost,
        clusters: &Arc<[VirtualClusterPlan]>,
    ) -> Option<GroupsPlan> {
        let own = (!route.stat_prefix.is_empty()).then(|| format!("{}.route.{}", host.name, route.stat_prefix).into());
        (own.is_some() || !clusters.is_empty()).then(|| GroupsPlan { route: own, clusters: clusters.clone() })
    }

    /// The virtual cluster that takes the request.
    pub fn cluster_of(&self, head: &RequestHead) -> Option<&VirtualClusterPlan> {
        self.clusters.iter().find(|cluster| cluster.tests.iter().all(|test| test.holds(head)))
    }

    /// The prefixes of all statistics.
    pub fn prefixes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.clusters.iter().map(|cluster| &cluster.prefix).chain(&self.route)
    }
}

impl VirtualClusterPlan {
    /// Those of a virtual host, the one for the rest at the end.
    pub(super) fn compile(host: &VirtualHost, judges: Judges<'_>) -> Arc<[VirtualClusterPlan]> {
        let place = |name: &str| format!("{}.vcluster.{name}", host.name).into();
        let written = host.virtual_clusters.iter().map(|cluster| VirtualClusterPlan {
            tests: cluster.headers.iter().map(|test| HeaderTest::compile(test, judges)).collect(),
            name: Some(cluster.name.as_str().into()),
            prefix: place(&cluster.name),
        });
        let rest = VirtualClusterPlan { tests: Box::default(), name: None, prefix: place(OTHER) };
        let rest = (!host.virtual_clusters.is_empty()).then_some(rest);
        written.chain(rest).collect()
    }
}
