//! How filters of the listener look at a new connection, one after the other, before a filter chain is chosen.
//!
//! ```text
//!               stop, and wants bytes            stop
//! accepted ──> its turn ───> more bytes ──> shown ───> more bytes
//!                 │ done          │ said to go on │ done
//!                 └──> the next one's turn <──────┘
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use postrider_filter_api::{
    Host, Known, Newcomer as Seen, NewcomerControl, NewcomerFilter, NewcomerHandle, NewcomerSession, Passage,
    StreamInfo,
};

use postrider_model::{Inspection, InspectionPart, NewcomerSlot};
use postrider_telemetry::stats::sets::listener as stat;

use super::inspect::within;
use super::{Listener, Newcomer};
use crate::greeting::Greeting;
use crate::guard;
use crate::io::{Kind, Socket};
use crate::worker::Worker;

/// The most that one filter sees; a connection that needs more waits for its timeout.
const MOST: usize = 66 * 1024;

impl Listener {
    /// What the client says first, to filters as well; `None` when the connection is not to be served.
    #[cold]
    pub(super) async fn introduce(
        &self,
        worker: &Rc<Worker>,
        newcomer: &mut Newcomer,
        ahead: &mut Vec<u8>,
        rules: &Inspection,
    ) -> Option<Greeting> {
        let mut greeting = Greeting::default();
        if rules.proxy.is_some() && rules.includes(InspectionPart::Proxy, newcomer.port()) {
            let introduced = Inspection { tls: false, http: false, filters: Vec::new(), ..rules.clone() };
            self.inspect(worker, newcomer, ahead, &introduced).await?;
        }
        self.ask_filters(worker, newcomer, ahead, (rules, true), &mut greeting).await?;
        let wants = |part| rules.includes(part, newcomer.port());
        let (tls, http) = (rules.tls && wants(InspectionPart::Tls), rules.http && wants(InspectionPart::Http));
        if tls || http {
            let inspected = Inspection { proxy: None, tls, http, filters: Vec::new(), ..rules.clone() };
            let seen = self.inspect(worker, newcomer, ahead, &inspected).await?;
            greeting = Greeting {
                tls: greeting.tls || seen.tls,
                server_name: seen.server_name.or(greeting.server_name),
                protocols: if seen.protocols.is_empty() { greeting.protocols } else { seen.protocols },
                ja3: seen.ja3.or(greeting.ja3),
                ja4: seen.ja4.or(greeting.ja4),
            };
        }
        self.ask_filters(worker, newcomer, ahead, (rules, false), &mut greeting).await?;
        Some(greeting)
    }

    /// Asks the filters before the greeting is looked at, or those behind that.
    async fn ask_filters(
        &self,
        worker: &Rc<Worker>,
        newcomer: &mut Newcomer,
        ahead: &mut Vec<u8>,
        (rules, first): (&Inspection, bool),
        greeting: &mut Greeting,
    ) -> Option<()> {
        let filters: Vec<_> = {
            let all = self.filters.borrow();
            let port = newcomer.port();
            let is_exempt = |slot: &NewcomerSlot| slot.except.as_ref().is_some_and(|except| except.holds(port));
            all.iter()
                .zip(&rules.filters)
                .filter(|(_, slot)| slot.is_first == first && !is_exempt(slot))
                .map(|(filter, _)| filter.clone())
                .collect()
        };
        if filters.is_empty() {
            return Some(());
        }
        let began = newcomer.counted.accepted;
        let mut info = StreamInfo::new(began, worker.clock.wall(began));
        (info.downstream_local, info.downstream_direct_remote) = (newcomer.local, newcomer.direct_remote);
        (info.downstream_connection_remote, info.downstream_remote) = (newcomer.remote, newcomer.remote);
        if let Some(noted) = &newcomer.noted {
            info.metadata.clone_from(&noted.metadata);
            info.filter_state.clone_from(&noted.state);
        }
        let mut known = known(greeting);
        let mut redirected = newcomer.redirected;
        self.stats.gauge_inc(stat::DOWNSTREAM_PRE_CX_ACTIVE);
        let mut introduction = Introduction {
            filters: &filters,
            ahead,
            info: &mut info,
            known: &mut known,
            redirected: &mut redirected,
            hands_over: &mut newcomer.hands_over,
            direct_local: newcomer.socket.local(),
            host: worker.host.clone(),
            control: Rc::default(),
            sessions: Vec::new(),
            at: 0,
            shown: 0,
        };
        let socket = &mut newcomer.socket;
        let ended = within(worker, rules.timeout, |cx| introduction.poll(cx, socket)).await;
        drop(introduction);
        self.stats.gauge_dec(stat::DOWNSTREAM_PRE_CX_ACTIVE);
        newcomer.learn(info, redirected);
        *greeting = Greeting {
            tls: known.transport == TLS,
            server_name: known.server_name,
            protocols: known.protocols,
            ja3: known.ja3,
            ja4: known.ja4,
        };
        match ended {
            Some(Ok(())) => Some(()),
            Some(Err(Ended::Closed)) => None,
            Some(Err(Ended::Io(error))) => {
                self.stats.inc(match error.kind() {
                    io::ErrorKind::UnexpectedEof => stat::DOWNSTREAM_LISTENER_FILTER_REMOTE_CLOSE,
                    _ => stat::DOWNSTREAM_LISTENER_FILTER_ERROR,
                });
                None
            }
            None => {
                self.stats.inc(stat::DOWNSTREAM_PRE_CX_TIMEOUT);
                rules.continue_on_timeout.then_some(())
            }
        }
    }
}

/// What a connection is called that speaks TLS.
const TLS: &str = "tls";

fn known(greeting: &Greeting) -> Known {
    Known {
        transport: if greeting.tls { TLS.to_owned() } else { String::new() },
        server_name: greeting.server_name.clone(),
        protocols: greeting.protocols.clone(),
        ja3: greeting.ja3.clone(),
        ja4: greeting.ja4.clone(),
    }
}

impl Newcomer {
    /// Takes over what filters said of it.
    fn learn(&mut self, mut info: StreamInfo, redirected: bool) {
        self.remote = info.downstream_connection_remote;
        let direct_local = std::mem::replace(&mut self.local, info.downstream_local);
        self.redirected = redirected;
        let details = std::mem::take(&mut info.termination_details);
        let failure = info.downstream_failure.take();
        self.noted = guard::noted(info, self.noted.take());
        if self.local != direct_local {
            let noted = Rc::make_mut(self.noted.get_or_insert_default());
            noted.direct_local = noted.direct_local.or(direct_local);
        }
        let Some(record) = &self.record else { return };
        record.note(|info| {
            (info.downstream_remote, info.downstream_local) = (self.remote, self.local);
            info.termination_details = details;
            info.downstream_failure = failure;
            info.connection.clone_from(&self.noted);
        });
        if let Some(noted) = &self.noted {
            record.keep(noted);
        }
    }
}

/// The filters' part of one connection.
struct Introduction<'a> {
    filters: &'a [Rc<dyn NewcomerFilter>],
    ahead: &'a mut Vec<u8>,
    info: &'a mut StreamInfo,
    known: &'a mut Known,
    redirected: &'a mut bool,
    hands_over: &'a mut bool,
    direct_local: Option<SocketAddr>,
    host: Rc<dyn Host>,
    control: Rc<NewcomerControl>,
    sessions: Vec<Box<dyn NewcomerSession>>,
    /// Whose turn it is.
    at: usize,
    /// How much of `ahead` that one saw.
    shown: usize,
}

/// Why a connection is not served.
#[derive(Debug)]
enum Ended {
    /// A filter ended it.
    Closed,
    Io(io::Error),
}

impl Introduction<'_> {
    /// Ready when every filter is done.
    fn poll(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<Result<(), Ended>> {
        self.control.watch(cx.waker());
        loop {
            while let Some(place) = self.control.take_asked() {
                self.with(socket, place, |session, seen| session.on_asked(seen));
            }
            if self.control.is_closed() {
                return Poll::Ready(Err(Ended::Closed));
            }
            if self.at == self.sessions.len() {
                match self.begin(socket) {
                    Some(true) => continue,
                    Some(false) => return Poll::Ready(Ok(())),
                    None => return Poll::Ready(Err(Ended::Closed)),
                }
            }
            match self.control.take_continued() {
                Some(true) => {
                    self.next();
                    continue;
                }
                Some(false) => return Poll::Ready(Err(Ended::Closed)),
                None => {}
            }
            let wanted = self.with(socket, self.at, |session, seen| session.wants(seen)).unwrap_or(0).min(MOST);
            if self.ahead.len().min(wanted) > self.shown {
                self.show(socket, wanted);
                continue;
            }
            if wanted <= self.ahead.len() {
                // It has what it wants, and is not done: somebody says so later.
                return Poll::Pending;
            }
            if let Err(error) = ready!(self.read(cx, socket, wanted)) {
                self.with(socket, self.at, |session, seen| session.on_closed(seen));
                return Poll::Ready(Err(Ended::Io(error)));
            }
        }
    }

    /// Begins the next filter's turn: whether there was one, `None` when it ends the connection.
    fn begin(&mut self, socket: &Socket) -> Option<bool> {
        let Some(filter) = self.filters.get(self.at) else { return Some(false) };
        self.control.take_continued();
        let place = self.at;
        let session = self.seen(socket, place, |seen| filter.begin(seen))?;
        self.sessions.push(session);
        let done = self.with(socket, place, |session, seen| session.on_accept(seen));
        if done == Some(Passage::Continue) && !self.control.is_closed() {
            self.next();
        }
        Some(true)
    }

    fn next(&mut self) {
        self.at += 1;
        self.shown = 0;
        self.control.take_continued();
    }

    /// Shows the filter what came.
    fn show(&mut self, socket: &Socket, wanted: usize) {
        let rest = self.ahead.split_off(self.ahead.len().min(wanted));
        let mut data = std::mem::take(self.ahead);
        let done = self.with(socket, self.at, |session, seen| session.on_data(seen, &mut data));
        self.shown = data.len();
        data.extend_from_slice(&rest);
        *self.ahead = data;
        if done == Some(Passage::Continue) && !self.control.is_closed() {
            self.next();
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, socket: &mut Socket, wanted: usize) -> Poll<io::Result<()>> {
        let before = self.ahead.len();
        self.ahead.resize(wanted, 0);
        let polled = socket.poll_read(cx, self.ahead.get_mut(before..).unwrap_or_default());
        let count = match &polled {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        self.ahead.truncate(before + count);
        match ready!(polled)? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn with<T>(
        &mut self,
        socket: &Socket,
        place: usize,
        act: impl FnOnce(&mut dyn NewcomerSession, &mut Seen<'_>) -> T,
    ) -> Option<T> {
        let mut sessions = std::mem::take(&mut self.sessions);
        let done = sessions.get_mut(place).map(|session| self.seen(socket, place, |seen| act(&mut **session, seen)));
        self.sessions = sessions;
        done
    }

    fn seen<T>(&mut self, socket: &Socket, place: usize, act: impl FnOnce(&mut Seen<'_>) -> T) -> T {
        let handle = NewcomerHandle::new(&self.control, place);
        act(&mut Seen {
            info: self.info,
            known: self.known,
            redirected: self.redirected,
            direct_local: self.direct_local,
            hands_over: self.hands_over,
            socket: descriptor(socket),
            original: &|| socket.original_destination(),
            handle: &handle,
            host: &*self.host,
        })
    }
}

fn descriptor(socket: &Socket) -> RawFd {
    match &socket.kind {
        Kind::Tcp(stream) => stream.as_raw_fd(),
        Kind::Unix(stream) => stream.as_raw_fd(),
    }
}
