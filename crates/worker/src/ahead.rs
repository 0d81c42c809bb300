//! What filters make for routes before these come into force, so that no request waits for it: see
//! [`Factory::warm`](postrider_filter_api::Factory::warm).
//!
//! ```text
//! Fleet::apply ─ MakeAhead ─> each worker: makes one thing, serves requests by the plan in force, makes the next, …
//!       │ <────── done ─────────┘
//!       └───────── Apply ───> each worker: the new routes take over what was made for them
//! ```

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::iter;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{filter_prefix, stat_name};
use crate::plan::{FilterChainPlan, HandlerPlan, HttpPlan, ListenerPlan, Plan, RoutesPlan};
use crate::worker::Worker;

/// Things that are made ahead for one table of routes on one worker. Each may hold memory for good, and a table may have
/// thousands of routes which nobody asks for: what is beyond is made when a request needs it.
const MOST: usize = 256;

/// Work at a stretch after which the worker serves for as long: a request takes several turns of a worker, so with one turn
/// between two things it would wait for several of them.
const STRETCH: Duration = Duration::from_millis(1);

/// The worker serves no longer than that between two things, however long the first took.
const LONGEST_REST: Duration = Duration::from_millis(10);

/// Routes that are about to come into force, and where their filters will run.
#[derive(Clone)]
pub(crate) struct NewRoutes {
    routes: Arc<RoutesPlan>,
    /// Of the filters that requests see, and of each of [`RoutesPlan::upstream`].
    seats: Vec<Seat>,
}

/// What a [`Place`](postrider_filter_api::Place) has beside the worker's.
#[derive(Clone)]
struct Seat {
    stat_prefix: String,
    buffer_limit: usize,
}

impl NewRoutes {
    /// Those with filters of listeners that are not in force by `running` as they are.
    pub(crate) fn of(plan: &Plan, running: Option<&Plan>) -> Vec<NewRoutes> {
        let goes_on = |listener: &&Arc<ListenerPlan>| {
            running.is_some_and(|running| running.listeners.iter().any(|old| Arc::ptr_eq(old, listener)))
        };
        let new = plan.listeners.iter().filter(|listener| !goes_on(listener)).flat_map(managers);
        let has_filters = |http: &HttpPlan| http.routes.every_chain().any(|chain| !chain.0.is_empty());
        new.filter(|(_, http)| has_filters(http)).map(|(listener, http)| NewRoutes::new(plan, listener, http)).collect()
    }

    fn new(plan: &Plan, listener: &ListenerPlan, http: &HttpPlan) -> NewRoutes {
        let own = Seat {
            stat_prefix: stat_name(&http.model.stat_prefix),
            buffer_limit: listener.model.buffer_limit as usize,
        };
        let of_upstream = http.routes.upstream.iter().map(|filters| {
            let cluster = filters.cluster.as_ref().and_then(|name| plan.clusters.iter().find(|it| it.name == *name));
            cluster.map_or_else(
                || own.clone(),
                |cluster| Seat {
                    stat_prefix: filter_prefix(cluster),
                    buffer_limit: cluster.model.buffer_limit as usize,
                },
            )
        });
        NewRoutes { routes: http.routes.clone(), seats: iter::once(own.clone()).chain(of_upstream).collect() }
    }

    fn chains(&self) -> impl Iterator<Item = (&Seat, &FilterChainPlan)> {
        let of_requests = iter::once(&self.routes.filter_chains);
        let all = of_requests.chain(self.routes.upstream.iter().map(|filters| &filters.chains));
        self.seats.iter().zip(all).flat_map(|(seat, chains)| chains.iter().map(move |chain| (seat, chain)))
    }
}

/// Every connection manager of a listener.
fn managers(listener: &Arc<ListenerPlan>) -> impl Iterator<Item = (&ListenerPlan, &HttpPlan)> {
    listener.each_chain().filter_map(move |chain| match &chain.handler {
        HandlerPlan::Http(http) => Some((&**listener, &**http)),
        HandlerPlan::Tcp(_) | HandlerPlan::Echo | HandlerPlan::Say(_) | HandlerPlan::Filters => None,
    })
}

/// What was made on this worker for routes that are not in force yet.
#[derive(Default)]
pub(crate) struct Ahead(RefCell<Vec<Made>>);

/// Routes, and what is kept for them.
type Made = (Arc<RoutesPlan>, Vec<Rc<dyn Any>>);

impl Ahead {
    /// Has the filters of these routes make what they can, in the order of their chains.
    pub(crate) async fn make(&self, new: Vec<NewRoutes>, worker: &Worker) {
        // Who does not serve yet has nobody who waits.
        let serves = worker.serves();
        for new in new {
            let made = make(&new, worker, serves).await;
            self.0.borrow_mut().push((new.routes, made));
        }
    }

    /// What was made for these routes, which come into force.
    pub(crate) fn take(&self, routes: &Arc<RoutesPlan>) -> Vec<Rc<dyn Any>> {
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(|(of, _)| Arc::ptr_eq(of, routes));
        at.map(|at| all.swap_remove(at).1).unwrap_or_default()
    }

    /// All routes have what is theirs.
    pub(crate) fn clear(&self) {
        drop(self.0.take());
    }
}

async fn make(new: &NewRoutes, worker: &Worker, serves: bool) -> Vec<Rc<dyn Any>> {
    // By address: most routes see the same.
    let mut made: HashMap<*const (), Rc<dyn Any>> = HashMap::new();
    let mut began = worker.clock.exact();
    for (seat, chain) in new.chains() {
        for filter in &chain.0 {
            if made.len() >= MOST {
                return made.into_values().collect();
            }
            let place = worker.place(&seat.stat_prefix, seat.buffer_limit);
            let thing = filter.factory.warm(&filter.configs, &place);
            let is_new = thing.is_some_and(|thing| made.insert(Rc::as_ptr(&thing).cast(), thing).is_none());
            let took = worker.clock.exact().saturating_duration_since(began);
            if serves && took >= STRETCH {
                tokio::time::sleep(took.min(LONGEST_REST)).await;
            } else if is_new {
                tokio::task::yield_now().await;
            }
            if is_new || took >= STRETCH {
                began = worker.clock.exact();
            }
        }
    }
    made.into_values().collect()
}
