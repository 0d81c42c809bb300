//! Connections that were meant for another listener: a packet filter redirected them here, and where they were meant to go
//! another one is configured, bound or not (Envoy's `use_original_dst`).

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use postrider_model::Address;

use super::{Listener, Newcomer};
use crate::record::Record;
use crate::worker::Worker;

impl Listener {
    /// The listener that a connection was meant for, if that is another one. A connection is handed over once.
    #[cold]
    pub(super) fn meant(self: &Rc<Self>, worker: &Worker, newcomer: &Newcomer) -> Option<Rc<Listener>> {
        let destination = newcomer.local.filter(|_| newcomer.redirected && !newcomer.handed)?;
        worker.listener_at(destination).filter(|other| !Rc::ptr_eq(other, self))
    }

    /// Serves a connection that another listener accepted, with what was received of it.
    #[cold]
    pub(super) fn take_over(self: Rc<Self>, worker: Rc<Worker>, newcomer: Newcomer, ahead: Vec<u8>) {
        let plan = self.plan.borrow().clone();
        if let Some(load) = plan.loads.get(worker.id as usize) {
            load.0.fetch_add(1, Relaxed);
        }
        let Newcomer { socket, local, remote, direct_remote, redirected, noted, .. } = newcomer;
        let accepted = worker.clock.now();
        let counted = self.count(&worker, plan.clone(), accepted);
        let logs = self.logs.borrow();
        let record = logs.as_ref().map(|logs| Record::begin(logs, &worker, accepted, local, remote));
        drop(logs);
        if let (Some(noted), Some(record)) = (&noted, &record) {
            record.keep(noted);
        }
        let newcomer = Newcomer {
            plan,
            socket,
            local,
            remote,
            direct_remote,
            counted,
            record,
            redirected,
            ahead,
            handed: true,
            hands_over: false,
            noted,
        };
        tokio::task::spawn_local(self.receive(worker, newcomer));
    }

    /// How well it is the one for connections to `destination`: the address itself, or any address with that port.
    pub(crate) fn serves(&self, destination: SocketAddr) -> Option<Fit> {
        let plan = self.plan.borrow();
        let places = plan.model.addresses.iter().zip(&plan.model.sockets);
        let fits = places.filter_map(|(address, options)| match address {
            Address::Tcp(own) if *own == destination => Some(Fit::Exact),
            Address::Tcp(own) if own.ip().is_unspecified() && own.port() == destination.port() => {
                (options.ipv4_compat || own.is_ipv4() == destination.is_ipv4()).then_some(Fit::AnyAddress)
            }
            Address::Tcp(_) | Address::Unix { .. } => None,
        });
        fits.min()
    }
}

/// Better ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    Exact,
    AnyAddress,
}
