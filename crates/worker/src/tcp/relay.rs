//! One direction of a connection: bytes as they come, and then the end.

use std::io::{self, ErrorKind};
use std::task::{Context as TaskContext, Poll, ready};

use crate::buffers::{Buffers, Input};
use crate::io::Io;

/// How far the end of a direction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Open,
    /// The sender closed; what it sent is still on its way.
    Received,
    /// The receiver was told.
    Told,
}

/// Which side of a direction broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Sink,
}

pub(super) struct Direction<'d> {
    pub(super) source: &'d mut Io,
    /// Received and not sent yet.
    pub(super) input: &'d mut Input,
    pub(super) sink: &'d mut Io,
    pub(super) ended: &'d mut Ended,
    /// How much may be received ahead.
    pub(super) limit: usize,
    pub(super) buffers: &'d Buffers,
}

/// What the bytes of a direction are on its connections.
pub(super) trait Carriage {
    /// Sends some of what was received, and answers how many bytes of the sender that was; 0 when nothing is left.
    fn poll_send(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>>;

    /// Receives more; `false` at the end.
    fn poll_receive(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<io::Result<bool>> {
        let count = ready!(way.input.poll_fill(cx, way.source, way.limit, way.buffers))?;
        Poll::Ready(Ok(count > 0))
    }

    /// Tells the receiver that nothing more comes.
    fn poll_end(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<()> {
        // A peer that is gone already needs not be told.
        way.sink.poll_finish(cx).map(drop)
    }
}

/// They are what they are.
pub(super) struct Plain;

impl Carriage for Plain {
    fn poll_send(&mut self, way: &mut Direction<'_>, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
        if way.input.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let count = ready!(poll_write(way.sink, way.input.bytes(), cx))?;
        way.input.consume(count, way.buffers);
        Poll::Ready(Ok(count))
    }
}

/// Sends some of `bytes`: never nothing.
pub(super) fn poll_write(sink: &mut Io, bytes: &[u8], cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
    match ready!(sink.poll_write(cx, bytes))? {
        0 => Poll::Ready(Err(ErrorKind::WriteZero.into())),
        count => Poll::Ready(Ok(count)),
    }
}

impl Direction<'_> {
    /// Moves as far as it goes; answers whether anything moved and how many bytes were sent.
    pub(super) fn relay(
        mut self,
        carriage: &mut impl Carriage,
        cx: &mut TaskContext<'_>,
    ) -> Result<(bool, usize), Side> {
        let (mut moved, mut sent) = (false, 0);
        loop {
            match carriage.poll_send(&mut self, cx) {
                Poll::Ready(Ok(0)) => {}
                Poll::Ready(Ok(count)) => {
                    moved = true;
                    sent += count;
                    continue;
                }
                Poll::Ready(Err(_)) => return Err(Side::Sink),
                Poll::Pending => return Ok((moved, sent)),
            }
            let next = match *self.ended {
                Ended::Told => return Ok((moved, sent)),
                Ended::Received => carriage.poll_end(&mut self, cx).map(|()| Ended::Told),
                Ended::Open => match carriage.poll_receive(&mut self, cx) {
                    Poll::Ready(Ok(true)) => Poll::Ready(Ended::Open),
                    Poll::Ready(Ok(false)) => Poll::Ready(Ended::Received),
                    Poll::Ready(Err(_)) => return Err(Side::Source),
                    Poll::Pending => Poll::Pending,
                },
            };
            let Poll::Ready(next) = next else { return Ok((moved, sent)) };
            *self.ended = next;
            moved = true;
        }
    }
}
