//! The floor of the bench: a byte relay on epoll. Each downstream connection gets one upstream connection of its own,
//! and bytes go across as they come. It parses nothing, so no proxy that must understand what it forwards can cost less
//! with the same system calls.
//!
//! It must never grow a feature: what it does per message is one receive and one send, sockets are registered once
//! (edge-triggered, both directions), and an idle connection owns no buffer. Started by the bench as
//! `postrider-bench-relay LISTEN UPSTREAM [BUFFER_BYTES]`.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, connect, listen, recv, send,
    shutdown, socket_with, sockopt,
};

/// Bytes taken by one receive when the command line does not say. A 500 KB body costs about 125 us with 512 KiB, 140 with
/// 256, 150 with 128, 175 with 64 and 185 with 16 (and 1 MiB no less): fewer, larger messages. Small messages touch only
/// the front of the buffer and do not notice.
const DEFAULT_BUFFER: usize = 512 * 1024;
/// Connections that the kernel may hold before they are accepted.
const BACKLOG: i32 = 4096;
/// Events taken by one wait: enough for every connection of the largest load scenario.
const EVENT_BATCH: usize = 512;
/// The listener's token; connection tokens are `pair * 2 + side`.
const LISTENER: u64 = u64::MAX;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let listen_on = arguments.next().and_then(|text| text.parse::<SocketAddr>().ok());
    let upstream = arguments.next().and_then(|text| text.parse::<SocketAddr>().ok());
    let buffer = arguments.next().map_or(Some(DEFAULT_BUFFER), |text| text.parse().ok());
    let (Some(listen_on), Some(upstream), Some(buffer)) = (listen_on, upstream, buffer) else {
        eprintln!("usage: postrider-bench-relay LISTEN_ADDRESS UPSTREAM_ADDRESS [BUFFER_BYTES]");
        return ExitCode::from(2);
    };
    let served = Relay::open(listen_on, upstream, buffer).and_then(|mut relay| {
        println!("listening on {}", relay.listener.local_addr()?);
        relay.serve()
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One end of a pair.
struct Side {
    socket: OwnedFd,
    /// Bytes that this side's peer could not take yet.
    unsent: Vec<u8>,
    /// Whether a connect is done; a downstream side always is.
    connected: bool,
    /// Data may wait in the kernel although its edge was already seen.
    readable: bool,
    /// The end of the stream was announced: read on until it is reached.
    closing: bool,
    /// The end of the stream was read.
    ended: bool,
}

/// Downstream at 0, upstream at 1.
type Pair = [Side; 2];

enum Flow {
    Open,
    Close,
}

struct Relay {
    epoll: OwnedFd,
    listener: TcpListener,
    upstream: SocketAddr,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

impl Relay {
    fn open(listen_on: SocketAddr, upstream: SocketAddr, buffer: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen_on)?;
        listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self { epoll, listener, upstream, pairs: Vec::new(), free: Vec::new(), buffer: vec![0; buffer.max(1)] })
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(EVENT_BATCH);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let token = { event.data }.u64();
                if token == LISTENER {
                    self.accept_all();
                } else {
                    self.on_event((token / 2) as usize, (token % 2) as usize, event.flags);
                }
            }
        }
    }

    fn accept_all(&mut self) {
        // An accept that fails (no descriptor left, connection gone) leaves the rest to the next event.
        while let Ok(downstream) = accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            if let Err(error) = self.pair_up(downstream) {
                eprintln!("relay: connection refused: {error}");
            }
        }
    }

    fn pair_up(&mut self, downstream: OwnedFd) -> rustix::io::Result<()> {
        let family = if self.upstream.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let upstream = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        sockopt::set_tcp_nodelay(&downstream, true)?;
        sockopt::set_tcp_nodelay(&upstream, true)?;
        let connected = match connect(&upstream, &self.upstream) {
            Ok(()) => true,
            Err(Errno::INPROGRESS) => false,
            Err(error) => return Err(error),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let token = index as u64 * 2;
        let registered = epoll::add(&self.epoll, &downstream, EventData::new_u64(token), flags)
            .and_then(|()| epoll::add(&self.epoll, &upstream, EventData::new_u64(token + 1), flags));
        if let Err(error) = registered {
            self.free.push(index);
            return Err(error);
        }
        let side = |socket, connected| Side {
            socket,
            unsent: Vec::new(),
            connected,
            readable: false,
            closing: false,
            ended: false,
        };
        self.pairs[index] = Some([side(downstream, true), side(upstream, connected)]);
        Ok(())
    }

    fn on_event(&mut self, index: usize, side: usize, flags: EventFlags) {
        // The slot may have been emptied, or given to a new pair, by an earlier event of the same batch: an event that
        // comes too late costs the new owner one receive that finds nothing.
        let Some(pair) = self.pairs.get_mut(index).and_then(Option::as_mut) else { return };
        let flow = Self::advance(pair, side, flags, &mut self.buffer);
        if matches!(flow, Flow::Close) {
            self.pairs[index] = None;
            self.free.push(index);
        }
    }

    fn advance(pair: &mut Pair, side: usize, flags: EventFlags, buffer: &mut [u8]) -> Flow {
        if flags.contains(EventFlags::ERR) {
            return Flow::Close;
        }
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP) {
            pair[side].closing = true;
        }
        if flags.contains(EventFlags::OUT) {
            pair[side].connected = true;
            let other = 1 - side;
            if !pair[side].unsent.is_empty() && matches!(flush(&mut pair[side]), Flow::Close) {
                return Flow::Close;
            }
            if pair[side].unsent.is_empty()
                && pair[other].readable
                && matches!(forward(pair, other, buffer), Flow::Close)
            {
                return Flow::Close;
            }
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP) {
            pair[side].readable = true;
            return forward(pair, side, buffer);
        }
        Flow::Open
    }
}

/// Moves what `from` has to its peer until the socket is drained or the peer takes no more.
fn forward(pair: &mut Pair, from: usize, buffer: &mut [u8]) -> Flow {
    let [downstream, upstream] = pair;
    let (source, target) = if from == 0 { (downstream, upstream) } else { (upstream, downstream) };
    while source.readable && !source.ended && target.connected && target.unsent.is_empty() {
        let received = match recv(&source.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => {
                source.ended = true;
                let _ = shutdown(&target.socket, Shutdown::Write);
                return if target.ended { Flow::Close } else { Flow::Open };
            }
            Ok((received, _)) => received,
            Err(Errno::AGAIN) => {
                source.readable = false;
                return Flow::Open;
            }
            Err(_) => return Flow::Close,
        };
        // A short read has emptied the socket: the next edge tells of more. Only an announced end must still be read.
        source.readable = received == buffer.len() || source.closing;
        let sent = match send(&target.socket, &buffer[..received], SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(_) => return Flow::Close,
        };
        target.unsent.extend_from_slice(&buffer[sent..received]);
    }
    Flow::Open
}

/// Sends what had to wait; the memory goes back when all is out.
fn flush(side: &mut Side) -> Flow {
    while !side.unsent.is_empty() {
        match send(&side.socket, &side.unsent, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                side.unsent.drain(..sent);
            }
            Err(Errno::AGAIN) => return Flow::Open,
            Err(_) => return Flow::Close,
        }
    }
    side.unsent = Vec::new();
    Flow::Open
}
