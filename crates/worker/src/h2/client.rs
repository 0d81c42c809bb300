//! Connections to upstreams that speak HTTP/2, and who may begin a stream on them.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use postrider_filter_api::Moment;
use postrider_model::UpstreamOptions;
use postrider_telemetry::stats::sets::cluster as stat;

use super::keepalive::Keepalive;
use super::meter::{ConnectionMeter, Taps};
use super::stream::Stream;
use super::wire::Wire;
use super::{FRAME_BYTES, SEND_BUFFER};
use crate::cluster::{Account, Cluster, Host, NoConnection};
use crate::io::Io;
use crate::party::Party;

/// Requests that wait for one connection that is being made; more open another.
const EXPECTED_STREAMS: usize = 100;

/// Stands for a number of streams that the upstream did not say yet, and that none says.
const UNSAID_STREAMS: usize = 0x7fff_fffd;

/// A connection that carries many requests at once.
pub(crate) struct Client {
    pub(crate) id: u64,
    /// For whom it was made, where that decides who may use it.
    pub(crate) party: Option<Rc<Party>>,
    pub(crate) account: Rc<Account>,
    send: SendRequest<Bytes>,
    most: usize,
    /// The peer wants no more streams, or is gone.
    closed: Cell<bool>,
    idle_since: Cell<Moment>,
    /// Since when nothing was asked, for a PING that goes with the next stream.
    ping_after: Option<Duration>,
    ask_peer: Rc<Cell<bool>>,
    max_requests: Option<u32>,
    /// Where a log told what streams take when it was made.
    meter: Option<ConnectionMeter>,
}

/// The connections of one cluster, by host.
#[derive(Default)]
pub(crate) struct Pool {
    open: RefCell<Vec<(Rc<Host>, Rc<Client>)>>,
    /// Connections that are being made.
    expected: RefCell<Vec<Rc<Awaited>>>,
}

/// A connection that is being made.
pub(crate) struct Awaited {
    host: Rc<Host>,
    party: Option<Party>,
    /// Requests that it will carry at once.
    streams: usize,
    /// Of those, whoever makes it needs so many.
    taken: usize,
    /// Requests that wait for it.
    waiting: Cell<usize>,
    wakers: RefCell<Vec<Waker>>,
    outcome: RefCell<Outcome>,
}

/// What became of a connection.
#[derive(Debug, Clone)]
enum Outcome {
    Open,
    Failed(NoConnection),
    /// It is made, or nobody makes it any more.
    Over,
}

impl Awaited {
    fn is_for(&self, host: &Rc<Host>, party: Option<&Party>) -> bool {
        Rc::ptr_eq(&self.host, host) && self.party.as_ref() == party
    }

    /// Ready when it is over with the connection; the error is everybody's who waits for it.
    pub(crate) fn poll_over(&self, waker: &Waker) -> Poll<Result<(), NoConnection>> {
        match &*self.outcome.borrow() {
            Outcome::Open => {
                let mut wakers = self.wakers.borrow_mut();
                if !wakers.iter().any(|known| known.will_wake(waker)) {
                    wakers.push(waker.clone());
                }
                Poll::Pending
            }
            Outcome::Failed(failure) => Poll::Ready(Err(failure.clone())),
            Outcome::Over => Poll::Ready(Ok(())),
        }
    }
}

/// A connection is being made while this lives. However that ends, whoever waits for it hears of it.
pub(crate) struct Expected {
    cluster: Rc<Cluster>,
    awaited: Rc<Awaited>,
}

impl Expected {
    /// There will be no connection.
    pub(crate) fn fail(&self, failure: &NoConnection) {
        self.awaited.outcome.replace(Outcome::Failed(failure.clone()));
    }
}

impl Client {
    /// Begins on a connection that was just made.
    ///
    /// # Errors
    /// The peer broke it at once.
    pub(crate) async fn begin(
        io: Io,
        options: &UpstreamOptions,
        account: Rc<Account>,
        id: u64,
        cluster: &Rc<Cluster>,
        party: Option<Rc<Party>>,
    ) -> Result<Rc<Client>, h2::Error> {
        let meter = account.worker.meters.get().then(ConnectionMeter::default);
        let wire = Wire::new(io, Vec::new(), None, meter.clone().map(Taps::of_client));
        let mut builder = builder(options);
        if options.http2.allow_connect {
            builder.initial_max_send_streams(UNSAID_STREAMS);
        }
        let (send, mut connection) = builder.handshake::<_, Bytes>(wire.clone()).await?;
        if options.http2.allow_connect {
            hear_settings(&send, &mut connection, &wire).await?;
        }
        let mut keepalive = Keepalive::new(connection.ping_pong(), &options.http2.keepalive, &account.worker);
        let ping_after = options.http2.keepalive.as_ref().and_then(|keepalive| keepalive.idle_interval);
        let ask_peer = Rc::new(Cell::new(false));
        let (asked, worker) = (ask_peer.clone(), account.worker.clone());
        let most = options.http2.max_concurrent_streams as usize;
        let idle_since = Cell::new(account.worker.clock.now());
        let max_requests = options.max_requests_per_connection;
        let closed = Cell::new(false);
        let client = Rc::new(Client {
            id,
            party,
            account,
            send,
            most,
            closed,
            idle_since,
            ping_after,
            ask_peer,
            max_requests,
            meter,
        });
        let (of_task, cluster) = (Rc::downgrade(&client), Rc::downgrade(cluster));
        let account = Rc::downgrade(&client.account);
        tokio::task::spawn_local(async move {
            let outcome = std::future::poll_fn(|cx| {
                if account.upgrade().is_some_and(|account| account.soundness.poll_lost(cx).is_ready()) {
                    return Poll::Ready(None);
                }
                let polled = Pin::new(&mut connection).poll(cx);
                if let Some(keepalive) = &mut keepalive {
                    if asked.take() {
                        keepalive.ask_now();
                    }
                    if keepalive.poll_dead(cx).is_ready() {
                        if let Some(cluster) = cluster.upgrade() {
                            cluster.count_dead_peer(&worker);
                        }
                        return Poll::Ready(None);
                    }
                }
                match wire.poll_send(cx) {
                    Poll::Ready(Err(_)) => Poll::Ready(None),
                    _ => polled.map(Some),
                }
            })
            .await;
            if let Some(client) = of_task.upgrade() {
                client.count_end(outcome.as_ref(), wire.is_ended());
            }
            ended(&of_task, &cluster);
        });
        Ok(client)
    }

    /// It is over although it is still in use. Without an outcome nobody could be reached any more.
    fn count_end(&self, outcome: Option<&Result<(), h2::Error>>, closed: bool) {
        if outcome.is_some_and(|outcome| outcome.as_ref().is_err_and(h2::Error::is_library)) {
            self.account.lose();
        }
        self.account.note_end();
        // In order, and not for want of a peer: only after its GOAWAY.
        let goodbye = match outcome {
            Some(Ok(())) => !closed,
            Some(Err(error)) => error.is_go_away() && error.is_remote(),
            None => false,
        };
        if goodbye {
            self.account.stats.inc(stat::UPSTREAM_CX_CLOSE_NOTIFY);
        } else if closed {
            self.account.peer_ended();
        }
    }

    fn is_over(&self) -> bool {
        self.closed.get() || self.account.soundness.is_lost()
    }

    /// Streams that may begin now.
    pub(crate) fn room(&self) -> usize {
        let used_up = self.max_requests.is_some_and(|most| self.account.served() >= most);
        if self.is_over() || used_up {
            return 0;
        }
        let most = self.most.min(self.send.current_max_send_streams());
        most.saturating_sub(self.account.busy.get())
    }

    /// A stream for one request.
    pub(crate) fn stream(&self) -> Stream {
        if let Some(limit) = self.ping_after {
            let now = self.account.worker.clock.now();
            if self.account.busy.get() <= 1 && now.saturating_duration_since(self.idle_since.get()) >= limit {
                self.ask_peer.set(true);
            }
            self.idle_since.set(now);
        }
        Stream::to_upstream(self.send.clone(), self.meter.clone())
    }
}

/// Waits until the upstream said what it takes: nobody may be asked for an extended CONNECT before (RFC 8441 section 3).
async fn hear_settings(
    send: &SendRequest<Bytes>,
    connection: &mut h2::client::Connection<Wire, Bytes>,
    wire: &Wire,
) -> Result<(), h2::Error> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
            return Poll::Ready(ended.and(Err(Reason::CONNECT_ERROR.into())));
        }
        if let Poll::Ready(Err(_)) = wire.poll_send(cx) {
            return Poll::Ready(Err(Reason::CONNECT_ERROR.into()));
        }
        match send.current_max_send_streams() {
            UNSAID_STREAMS => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    })
    .await
}

/// Begins on a connection that carries one request at a time: answers the way to send requests, and what moves frames until the end.
///
/// # Errors
/// The peer broke it at once.
pub(crate) async fn begin(
    io: Io,
    options: &UpstreamOptions,
) -> Result<(SendRequest<Bytes>, impl Future<Output = ()> + use<>), h2::Error> {
    let wire = Wire::new(io, Vec::new(), None, None);
    let (send, mut connection) = builder(options).handshake::<_, Bytes>(wire.clone()).await?;
    let driver = std::future::poll_fn(move |cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        match wire.poll_send(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => polled.map(drop),
        }
    });
    Ok((send, driver))
}

fn builder(options: &UpstreamOptions) -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(options.http2.initial_stream_window)
        .initial_connection_window_size(options.http2.initial_connection_window)
        .header_table_size(options.http2.header_table_size)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(options.max_response_head_bytes)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

fn ended(client: &Weak<Client>, cluster: &Weak<Cluster>) {
    if let Some(client) = client.upgrade() {
        client.closed.set(true);
    }
    if let Some(cluster) = cluster.upgrade() {
        cluster.gone();
    }
}

impl Pool {
    /// A connection to `host` with room for a stream, made for `party` where that matters.
    pub(crate) fn find(&self, host: &Rc<Host>, party: Option<&Party>) -> Option<Rc<Client>> {
        let mut open = self.open.borrow_mut();
        open.retain(|(_, client)| !client.is_over());
        let fits = |client: &Client| client.party.as_deref() == party && client.room() > 0;
        open.iter().find(|(of, client)| Rc::ptr_eq(of, host) && fits(client)).map(|(_, client)| client.clone())
    }

    pub(crate) fn add(&self, host: &Rc<Host>, client: Rc<Client>) {
        self.open.borrow_mut().push((host.clone(), client));
    }

    /// A connection that is being made and that a request had better wait for; it is counted then.
    pub(crate) fn expected(&self, host: &Rc<Host>, party: Option<&Party>) -> Option<Rc<Awaited>> {
        let expected = self.expected.borrow();
        let has_room =
            |awaited: &Awaited| awaited.waiting.get() + awaited.taken < awaited.streams.min(EXPECTED_STREAMS);
        let awaited = expected.iter().find(|awaited| awaited.is_for(host, party) && has_room(awaited))?;
        awaited.waiting.set(awaited.waiting.get() + 1);
        Some(awaited.clone())
    }

    /// How many more requests the connections to `host`, or to all, have room for than there are connections, used room
    /// included.
    pub(crate) fn more_room(&self, host: Option<&Rc<Host>>) -> f64 {
        let is_meant = |of: &Rc<Host>| host.is_none_or(|host| Rc::ptr_eq(of, host));
        let more = |streams: usize| streams as f64 - 1.0;
        let (open, expected) = (self.open.borrow(), self.expected.borrow());
        let open = open.iter().filter(|(of, _)| is_meant(of));
        let expected = expected.iter().filter(|awaited| is_meant(&awaited.host));
        open.map(|(_, client)| more(client.room() + client.account.busy.get())).sum::<f64>()
            + expected.map(|awaited| more(awaited.streams)).sum::<f64>()
    }

    /// A connection to `host` is being made, with room for so many requests of which some are taken.
    pub(crate) fn expect(
        &self,
        cluster: &Rc<Cluster>,
        host: &Rc<Host>,
        party: Option<&Party>,
        (streams, taken): (usize, usize),
    ) -> Expected {
        let awaited = Rc::new(Awaited {
            host: host.clone(),
            party: party.cloned(),
            streams,
            taken,
            waiting: Cell::new(0),
            wakers: RefCell::default(),
            outcome: RefCell::new(Outcome::Open),
        });
        self.expected.borrow_mut().push(awaited.clone());
        Expected { cluster: cluster.clone(), awaited }
    }

    /// Lets go of connections that are idle or old.
    pub(crate) fn sweep(&self, options: &UpstreamOptions, now: Moment) {
        let mut gone = Vec::new();
        self.open.borrow_mut().retain(|(host, client)| {
            if client.account.busy.get() > 0 {
                client.idle_since.set(now);
            }
            let idle = now.saturating_duration_since(client.idle_since.get());
            let timed_out = options.idle_timeout.is_some_and(|limit| idle >= limit);
            let too_old = options.max_connection_duration.is_some_and(|limit| client.account.age(now) >= limit);
            if timed_out {
                client.account.stats.inc(stat::UPSTREAM_CX_IDLE_TIMEOUT);
            } else if too_old {
                client.account.stats.inc(stat::UPSTREAM_CX_MAX_DURATION_REACHED);
            }
            let stays = !(timed_out || too_old || client.is_over());
            if !stays {
                // Dropped when the list is not borrowed: the last handle of a connection ends it.
                gone.push((host.clone(), client.clone()));
            }
            stays
        });
    }

    /// Lets go of all; streams that there are go on.
    pub(crate) fn clear(&self) {
        drop(self.open.take());
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.cluster.streams.expected.borrow_mut().retain(|awaited| !Rc::ptr_eq(awaited, &self.awaited));
        let mut outcome = self.awaited.outcome.borrow_mut();
        if matches!(*outcome, Outcome::Open) {
            *outcome = Outcome::Over;
        }
        drop(outcome);
        self.awaited.wakers.take().into_iter().for_each(Waker::wake);
        self.cluster.gone();
    }
}
