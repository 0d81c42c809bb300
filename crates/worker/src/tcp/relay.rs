//! One direction of a connection: bytes as they come, and then the end.

use std::task::{Context as TaskContext, Poll};

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

/// Moves one direction as far as it goes; answers whether anything moved and how many bytes were sent.
pub(super) fn relay(
    cx: &mut TaskContext<'_>,
    limit: usize,
    source: &mut Io,
    input: &mut Input,
    sink: &mut Io,
    ended: &mut Ended,
    buffers: &Buffers,
) -> Result<(bool, usize), Side> {
    let (mut moved, mut sent) = (false, 0);
    loop {
        if !input.is_empty() {
            match sink.poll_write(cx, input.bytes()) {
                Poll::Ready(Ok(count @ 1..)) => {
                    input.consume(count, buffers);
                    moved = true;
                    sent += count;
                    continue;
                }
                Poll::Ready(_) => return Err(Side::Sink),
                Poll::Pending => return Ok((moved, sent)),
            }
        }
        match *ended {
            Ended::Told => return Ok((moved, sent)),
            Ended::Received => match sink.poll_finish(cx) {
                // A peer that is gone already needs not be told.
                Poll::Ready(_) => {
                    *ended = Ended::Told;
                    return Ok((true, sent));
                }
                Poll::Pending => return Ok((moved, sent)),
            },
            Ended::Open => match input.poll_fill(cx, source, limit, buffers) {
                Poll::Ready(Ok(0)) => {
                    *ended = Ended::Received;
                    moved = true;
                }
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Ready(Err(_)) => return Err(Side::Source),
                Poll::Pending => return Ok((moved, sent)),
            },
        }
    }
}
