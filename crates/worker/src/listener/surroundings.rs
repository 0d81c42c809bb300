//! What streams of a listener may ask about it, its proxy and the clusters.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use postrider_filter_api::{ClusterFacts, Surroundings};
use postrider_model::{Direction, Endpoint, Metadata, Node};

use crate::format::OfUpstream;
use crate::plan::ListenerPlan;
use crate::worker::Worker;

/// A listener with its worker, for as long as they are there; the plan may change under its connections.
pub(crate) struct Around {
    worker: Weak<Worker>,
    plan: RefCell<Arc<ListenerPlan>>,
}

impl Around {
    pub(crate) fn new(plan: &Arc<ListenerPlan>, worker: &Rc<Worker>) -> Around {
        Around { worker: Rc::downgrade(worker), plan: RefCell::new(plan.clone()) }
    }

    pub(crate) fn replace_plan(&self, plan: &Arc<ListenerPlan>) {
        *self.plan.borrow_mut() = plan.clone();
    }
}

impl Surroundings for Around {
    fn node(&self) -> Rc<Node> {
        self.worker.upgrade().map(|worker| worker.node.borrow().clone()).unwrap_or_default()
    }

    fn listener_name(&self) -> String {
        self.plan.borrow().model.name.clone()
    }

    fn direction(&self) -> Direction {
        self.plan.borrow().model.direction
    }

    fn listener_metadata(&self) -> Option<Arc<Metadata>> {
        self.plan.borrow().model.metadata.clone()
    }

    fn cluster(&self, name: &str) -> Option<ClusterFacts> {
        let cluster = self.worker.upgrade()?.cluster(name)?;
        Some(ClusterFacts { metadata: cluster.plan.model.metadata.clone(), endpoints: cluster.hosts.members().all })
    }

    fn endpoint(&self, cluster: &str, address: &str) -> Option<Arc<Endpoint>> {
        let cluster = self.worker.upgrade()?.cluster(cluster)?;
        OfUpstream { cluster: Some(&cluster), tried: &[], tried_on: &[] }.endpoint(address)
    }
}

/// What streams of a chain may ask of which the configuration says something, too.
pub(crate) fn of_chain(listener: Rc<dyn Surroundings>, metadata: Arc<Metadata>) -> Rc<dyn Surroundings> {
    Rc::new(OfChain { listener, metadata })
}

struct OfChain {
    listener: Rc<dyn Surroundings>,
    metadata: Arc<Metadata>,
}

impl Surroundings for OfChain {
    fn node(&self) -> Rc<Node> {
        self.listener.node()
    }

    fn listener_name(&self) -> String {
        self.listener.listener_name()
    }

    fn direction(&self) -> Direction {
        self.listener.direction()
    }

    fn listener_metadata(&self) -> Option<Arc<Metadata>> {
        self.listener.listener_metadata()
    }

    fn chain_metadata(&self) -> Option<Arc<Metadata>> {
        Some(self.metadata.clone())
    }

    fn cluster(&self, name: &str) -> Option<ClusterFacts> {
        self.listener.cluster(name)
    }

    fn endpoint(&self, cluster: &str, address: &str) -> Option<Arc<Endpoint>> {
        self.listener.endpoint(cluster, address)
    }
}
