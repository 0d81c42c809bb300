//! Connections that wait for a request, and requests that wait for a connection.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Poll, Waker};

use postrider_filter_api::Moment;
use postrider_model::UpstreamProtocol;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::Waiter;

use super::upstream::{Account, Upstream};
use super::{Cluster, Host, Hosts, NoConnection};
use crate::buffers::Input;
use crate::h2::Client;
use crate::io::Io;
use crate::party::Party;

impl Cluster {
    /// A pooled connection that is still good, and nothing else: no system call.
    pub(crate) fn checkout(
        &self,
        host: &Rc<Host>,
        now: Moment,
        protocol: UpstreamProtocol,
        party: Option<&Party>,
    ) -> Option<Box<Upstream>> {
        if protocol != UpstreamProtocol::Http1 {
            if let Some(client) = self.streams.find(host, party) {
                return Some(self.stream_of(host, &client));
            }
            if protocol == UpstreamProtocol::Http2 {
                return None;
            }
        }
        if let Some(party) = party {
            return self.checkout_for(host, now, party);
        }
        while let Some(mut upstream) = host.take_idle() {
            if upstream.party.is_some() {
                return self.checkout_for_all(host, now, upstream);
            }
            if upstream.is_usable(&self.plan, now) {
                return Some(upstream);
            }
        }
        None
    }

    /// The same where the last one, which is out of the pool already, serves some only.
    #[cold]
    #[inline(never)]
    fn checkout_for_all(&self, host: &Rc<Host>, now: Moment, last: Box<Upstream>) -> Option<Box<Upstream>> {
        drop(host.put_idle(last));
        while let Some(mut upstream) = host.take_idle_that(|upstream| upstream.party.is_none()) {
            if upstream.is_usable(&self.plan, now) {
                return Some(upstream);
            }
        }
        None
    }

    /// The same where connections serve only those for whom they were made.
    #[cold]
    fn checkout_for(&self, host: &Rc<Host>, now: Moment, party: &Party) -> Option<Box<Upstream>> {
        while let Some(mut upstream) = host.take_idle_that(|upstream| upstream.party.as_deref() == Some(party)) {
            if upstream.is_usable(&self.plan, now) {
                return Some(upstream);
            }
        }
        None
    }

    /// Puts a connection whose last exchange ended cleanly back for the next request, or closes it.
    pub(crate) fn put_back(&self, upstream: Box<Upstream>, now: Moment) {
        upstream.idle_since.set(now);
        let limit = self.plan.model.upstream.max_requests_per_connection;
        if upstream.is_stream() {
            // The connection stays where it is.
            drop(upstream);
            return self.hosts.call_next();
        }
        upstream.account.busy.set(0);
        if limit.is_some_and(|limit| upstream.account.served.get() >= limit) {
            upstream.account.stats.inc(stat::UPSTREAM_CX_MAX_REQUESTS);
            drop(upstream);
        } else {
            let host = upstream.host.clone();
            // A host that is gone gives the connection back, to be closed here.
            drop(host.put_idle(upstream));
        }
        self.hosts.call_next();
    }

    /// A connection ended instead of coming back: whoever waits may open one.
    pub(crate) fn gone(&self) {
        if self.hosts.has_waiters() {
            self.hosts.call_next();
        }
    }

    /// Closes pooled connections that are too old or whose peer closed.
    pub(crate) fn sweep(&self, now: Moment) {
        self.hosts.each_host(|host| {
            drop(host.sweep_idle(|upstream| !upstream.is_usable(&self.plan, now)));
        });
        if let Some(destinations) = &self.destinations {
            destinations.each_host(|host| {
                drop(host.sweep_idle(|upstream| !upstream.is_usable(&self.plan, now)));
            });
            destinations.sweep(now);
        }
        self.streams.sweep(&self.plan.model.upstream, now);
    }

    pub(super) fn upstream(
        &self,
        io: Io,
        host: &Rc<Host>,
        id: u64,
        account: Rc<Account>,
        party: Option<Rc<Party>>,
    ) -> Upstream {
        Upstream {
            io,
            input: Input::default(),
            host: host.clone(),
            id,
            name: account.name.clone(),
            buffer_limit: self.plan.model.buffer_limit as usize,
            idle_since: Cell::new(account.worker.clock.now()),
            party,
            is_broken: Cell::new(false),
            account,
        }
    }

    /// A stream of a connection for one request.
    pub(super) fn stream_of(&self, host: &Rc<Host>, client: &Client) -> Box<Upstream> {
        // Taken from here on, so that nobody else counts on it.
        client.account.busy.set(client.account.busy.get() + 1);
        let io = Io::Http2(Box::new(client.stream()));
        Box::new(self.upstream(io, host, client.id, client.account.clone(), client.party.clone()))
    }

    /// Waits until a connection of this cluster came free or ended.
    pub(super) async fn turn(&self) {
        let _ = self.turn_or(|_| Poll::Pending).await;
    }

    /// The same, or until `over` is.
    pub(super) async fn turn_or(
        &self,
        over: impl Fn(&Waker) -> Poll<Result<(), NoConnection>>,
    ) -> Result<(), NoConnection> {
        let mut place = Place { hosts: &self.hosts, waiter: self.hosts.wait(), used: false };
        std::future::poll_fn(|cx| {
            // A turn that is not needed goes to the next.
            let over = over(cx.waker());
            if over.is_pending() && place.waiter.is_called(cx.waker()) {
                place.used = true;
                return Poll::Ready(Ok(()));
            }
            over
        })
        .await
    }
}

/// A place in the queue; a turn that was given and not used goes to the next.
struct Place<'a> {
    hosts: &'a Hosts,
    waiter: Rc<Waiter>,
    used: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.hosts.leave(&self.waiter);
        }
    }
}
