//! Follows the names of DNS clusters and tells the workers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_model::{Cluster, Discovery, DnsDiscovery, DnsResolver};
use postrider_upstream::Endpoints;
use postrider_upstream::dns::{self, Lookups};
use postrider_upstream::resolver::{Families, Resolver};
use postrider_worker::Fleet;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A new cluster takes traffic without endpoints when its names were not answered by then.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// What was looked up for each cluster, by its name, since the process began.
#[derive(Clone, Default)]
pub struct LookupsByCluster(Arc<Mutex<HashMap<String, Arc<Lookups>>>>);

impl LookupsByCluster {
    pub fn of(&self, cluster: &str) -> Option<Arc<Lookups>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned()
    }

    fn begin(&self, cluster: &str) -> Arc<Lookups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(cluster.to_owned()).or_default().clone()
    }

    fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|cluster, _| is_known(cluster));
    }
}

/// The clusters that are followed, each by a task.
#[derive(Default)]
pub struct Followers {
    pub lookups: LookupsByCluster,
    /// One for each way in which names are resolved.
    resolvers: HashMap<Arc<DnsResolver>, Resolver>,
    tasks: HashMap<String, (Arc<Cluster>, Follower)>,
}

struct Follower {
    task: JoinHandle<()>,
    latest: watch::Receiver<Option<Endpoints>>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followers {
    /// Follows the clusters of a configuration that is about to be put in force, and answers the endpoints that are known
    /// of those which are new or changed. Waits for their first answers, but not for ever.
    pub async fn prepare(&mut self, clusters: &[Arc<Cluster>], fleet: &Arc<Fleet>) -> HashMap<Arc<str>, Endpoints> {
        let mut endpoints = HashMap::new();
        let mut fresh = Vec::new();
        for (cluster, names) in clusters.iter().filter_map(|cluster| Some((cluster, names(cluster)?))) {
            if self.tasks.get(&cluster.name).is_some_and(|(known, _)| known.discovery == cluster.discovery) {
                if let Some((known, follower)) = self.tasks.get_mut(&cluster.name) {
                    *known = cluster.clone();
                    if let Some(latest) = follower.latest.borrow().clone() {
                        endpoints.insert(cluster.name.as_str().into(), latest);
                    }
                }
                continue;
            }
            let Some(resolver) = self.resolver(&names.resolver) else { continue };
            let follower = follow(cluster, resolver, self.lookups.begin(&cluster.name), fleet.clone());
            if names.wait_for_first {
                fresh.push((cluster.name.clone(), follower.latest.clone()));
            }
            self.tasks.insert(cluster.name.clone(), (cluster.clone(), follower));
        }
        let deadline = tokio::time::Instant::now() + FIRST_ANSWER;
        for (name, mut latest) in fresh {
            match tokio::time::timeout_at(deadline, latest.wait_for(Option::is_some)).await {
                Ok(Ok(found)) => {
                    endpoints.extend(found.clone().map(|found| (name.as_str().into(), found)));
                }
                _ => postrider_telemetry::warning!(Dns, "cluster {name}: no answer yet, it starts without endpoints"),
            }
        }
        endpoints
    }

    /// Stops following clusters that are not in force.
    pub fn retain(&mut self, clusters: &[Arc<Cluster>]) {
        self.tasks.retain(|name, _| clusters.iter().any(|cluster| cluster.name == *name));
        self.lookups.retain(|name| clusters.iter().any(|cluster| cluster.name == name));
        let in_use = |model: &Arc<DnsResolver>| {
            clusters.iter().filter_map(|cluster| names(cluster)).any(|names| names.resolver == *model)
        };
        self.resolvers.retain(|model, _| in_use(model));
    }

    fn resolver(&mut self, model: &Arc<DnsResolver>) -> Option<Resolver> {
        if let Some(resolver) = self.resolvers.get(model) {
            return Some(resolver.clone());
        }
        match Resolver::new(model, families) {
            Ok(resolver) => {
                self.resolvers.insert(model.clone(), resolver.clone());
                Some(resolver)
            }
            Err(error) => {
                postrider_telemetry::error!(Dns, "the system's resolver cannot be set up: {error}");
                None
            }
        }
    }
}

/// What a cluster resolves, if anything.
fn names(cluster: &Cluster) -> Option<&DnsDiscovery> {
    match &cluster.discovery {
        Discovery::Static(_) | Discovery::Original(_) => None,
        Discovery::StrictDns(names) | Discovery::LogicalDns(names) => Some(names),
    }
}

/// What can be reached; all where the system does not tell.
fn families() -> Families {
    match postrider_sys::interface_addresses() {
        Ok(addresses) => {
            let has = |v6: bool| addresses.iter().any(|ip| !ip.is_loopback() && ip.is_ipv6() == v6);
            Families { v4: has(false), v6: has(true) }
        }
        Err(_) => Families { v4: true, v6: true },
    }
}

fn follow(cluster: &Arc<Cluster>, resolver: Resolver, lookups: Arc<Lookups>, fleet: Arc<Fleet>) -> Follower {
    let (sender, latest) = watch::channel(None);
    let cluster = cluster.clone();
    let task = tokio::spawn(async move {
        let name: Arc<str> = cluster.name.as_str().into();
        let (updates, mut pending) = watch::channel(None::<Endpoints>);
        let publish = |endpoints: Option<Endpoints>, failure: Option<String>| {
            if let Some(failure) = failure {
                postrider_telemetry::warning!(Dns, "cluster {name}: {failure}");
            }
            if endpoints.is_some() {
                // The receivers live as long as this task.
                let _ = updates.send(endpoints);
            }
        };
        let tell = async {
            while pending.changed().await.is_ok() {
                let endpoints = pending.borrow_and_update().clone();
                if let Some(endpoints) = endpoints {
                    let _ = sender.send(Some(endpoints.clone()));
                    fleet.update_endpoints(&name, &endpoints).await;
                }
            }
        };
        tokio::join!(dns::follow(&resolver, &cluster.discovery, &lookups, publish), tell);
    });
    Follower { task, latest }
}
