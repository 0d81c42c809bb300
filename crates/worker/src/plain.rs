//! Connections that the proxy answers itself without reading them: what came goes back, everybody is told the same, or
//! filters of the bytes answer.

use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use crate::buffers::Input;
use crate::io::Io;
use crate::listener::Arrival;
use crate::timers::Deadline;
use crate::worker::Worker;

/// How long a client has to close after it was told everything: a reset must not overtake it.
const FAREWELL: Duration = Duration::from_secs(1);

/// Sends back what comes, until the client ends its side.
pub(crate) async fn echo(worker: Rc<Worker>, limit: usize, arrival: Arrival) {
    let Arrival { mut io, mut ahead, counted, record, .. } = arrival;
    let mut echoed = 0;
    std::future::poll_fn(|cx| {
        loop {
            if !ahead.is_empty() {
                match ready!(io.poll_write(cx, ahead.bytes())) {
                    Ok(count @ 1..) => {
                        ahead.consume(count, &worker.buffers);
                        echoed += count as u64;
                    }
                    _ => return Poll::Ready(()),
                }
                continue;
            }
            match ready!(ahead.poll_fill(cx, &mut io, limit, &worker.buffers)) {
                Ok(1..) => {}
                // A peer that is gone already needs not be told.
                Ok(0) => return io.poll_finish(cx).map(drop),
                Err(_) => return Poll::Ready(()),
            }
        }
    })
    .await;
    ahead.release(&worker.buffers);
    if let Some(record) = record {
        record.note(|info| (info.bytes_received, info.bytes_sent) = (echoed, echoed));
    }
    drop(counted);
}

/// Sends `said` and ends the connection.
pub(crate) async fn say(worker: Rc<Worker>, said: &[u8], limit: usize, arrival: Arrival) {
    let Arrival { mut io, mut ahead, counted, record, .. } = arrival;
    let mut sent = 0;
    std::future::poll_fn(|cx| {
        while let Some(rest) = said.get(sent..).filter(|rest| !rest.is_empty()) {
            match ready!(io.poll_write(cx, rest)) {
                Ok(count @ 1..) => sent += count,
                _ => return Poll::Ready(()),
            }
        }
        io.poll_finish(cx).map(drop)
    })
    .await;
    let deadline = worker.timers.register();
    deadline.set(Some(worker.clock.now() + FAREWELL));
    let mut received = ahead.bytes().len() as u64;
    std::future::poll_fn(|cx| poll_ended(&mut io, &mut ahead, limit, (&worker, &deadline), &mut received, cx)).await;
    ahead.release(&worker.buffers);
    if let Some(record) = record {
        record.note(|info| {
            (info.bytes_received, info.bytes_sent) = (received, sent as u64);
            info.details = "direct_response".into();
        });
    }
    drop(counted);
}

/// Keeps a connection that its filters serve, until they or the client end it.
pub(crate) async fn hold(worker: Rc<Worker>, arrival: Arrival) {
    let Arrival { io, mut ahead, counted, record, .. } = arrival;
    ahead.release(&worker.buffers);
    // A chain without such filters has nothing to keep it for.
    let Io::Filtered(mut filtered) = io else { return };
    // However it ended, it is over.
    let _ = std::future::poll_fn(|cx| filtered.poll_over(cx)).await;
    filtered.close();
    if let Some(record) = record {
        record.note(|info| {
            (info.bytes_received, info.bytes_sent) = (filtered.info.bytes_received, filtered.info.bytes_sent);
            filtered.tell(info);
        });
    }
    drop(counted);
}

/// Ready when the client closed, or had time enough to; what it says meanwhile is read and forgotten.
fn poll_ended(
    io: &mut Io,
    input: &mut Input,
    limit: usize,
    (worker, deadline): (&Worker, &Deadline),
    received: &mut u64,
    cx: &mut std::task::Context<'_>,
) -> Poll<()> {
    loop {
        if deadline.is_past() {
            return Poll::Ready(());
        }
        input.release(&worker.buffers);
        match input.poll_fill(cx, io, limit, &worker.buffers) {
            Poll::Ready(Ok(count @ 1..)) => *received += count as u64,
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => {
                deadline.watch(cx.waker());
                return Poll::Pending;
            }
        }
    }
}
