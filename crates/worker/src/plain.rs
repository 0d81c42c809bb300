//! Connections that the proxy answers itself without reading them: what came goes back, everybody is told the same, or
//! filters of the bytes answer.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::buffers::{Buffers, Input};
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
    std::future::poll_fn(|cx| poll_echo(&mut io, &mut ahead, limit, &worker.buffers, &mut echoed, cx)).await;
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
    std::future::poll_fn(|cx| poll_say(&mut io, said, &mut sent, cx)).await;
    let deadline = worker.timers.register();
    deadline.set(Some(worker.clock.now() + FAREWELL));
    let mut received = ahead.bytes().len() as u64;
    std::future::poll_fn(|cx| poll_ended(&mut io, &mut ahead, limit, (&worker.buffers, &deadline), &mut received, cx))
        .await;
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

/// Ready when the client ended its side, and has back what it sent.
fn poll_echo(
    io: &mut Io,
    ahead: &mut Input,
    limit: usize,
    buffers: &Buffers,
    echoed: &mut u64,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        if !ahead.is_empty() {
            match ready!(io.poll_write(cx, ahead.bytes())) {
                Ok(count @ 1..) => {
                    ahead.consume(count, buffers);
                    *echoed += count as u64;
                }
                _ => return Poll::Ready(()),
            }
            continue;
        }
        match ready!(ahead.poll_fill(cx, io, limit, buffers)) {
            Ok(1..) => {}
            // A peer that is gone already needs not be told.
            Ok(0) => return io.poll_finish(cx).map(drop),
            Err(_) => return Poll::Ready(()),
        }
    }
}

/// Ready when everything was said, or nobody listens.
fn poll_say(io: &mut Io, said: &[u8], sent: &mut usize, cx: &mut Context<'_>) -> Poll<()> {
    while let Some(rest) = said.get(*sent..).filter(|rest| !rest.is_empty()) {
        match ready!(io.poll_write(cx, rest)) {
            Ok(count @ 1..) => *sent += count,
            _ => return Poll::Ready(()),
        }
    }
    io.poll_finish(cx).map(drop)
}

/// Ready when the client closed, or had time enough to; what it says meanwhile is read and forgotten.
fn poll_ended(
    io: &mut Io,
    input: &mut Input,
    limit: usize,
    (buffers, deadline): (&Buffers, &Deadline),
    received: &mut u64,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        if deadline.is_past() {
            return Poll::Ready(());
        }
        input.release(buffers);
        match input.poll_fill(cx, io, limit, buffers) {
            Poll::Ready(Ok(count @ 1..)) => *received += count as u64,
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => {
                deadline.watch(cx.waker());
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use postrider_filter_api::Moment;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;
    use crate::timers::Timers;

    /// The proxy's end of a connection and the client's.
    fn connected() -> (Io, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Io::Plain(ours.into()), theirs)
    }

    #[tokio::test]
    async fn what_came_goes_back_until_the_client_ends() {
        let (mut io, mut client) = connected();
        let (buffers, mut ahead, mut echoed) = (Buffers::default(), Input::default(), 0);
        let block: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
        let talk = async {
            let (mut reading, mut writing) = client.split();
            let write = async {
                writing.write_all(&block).await.unwrap();
                writing.shutdown().await.unwrap();
            };
            let mut back = Vec::new();
            let (_, read) = tokio::join!(write, reading.read_to_end(&mut back));
            read.unwrap();
            back
        };
        let echo = poll_fn(|cx| poll_echo(&mut io, &mut ahead, 4096, &buffers, &mut echoed, cx));
        let ((), back) = tokio::join!(echo, talk);
        assert!(back == block);
        assert_eq!(echoed, 1_000_000);
    }

    #[tokio::test]
    async fn a_client_that_is_gone_gets_nothing_back() {
        let (mut io, mut client) = connected();
        let (buffers, mut ahead, mut echoed) = (Buffers::default(), Input::default(), 0);
        client.write_all(b"hello").await.unwrap();
        drop(client);
        poll_fn(|cx| poll_echo(&mut io, &mut ahead, 4096, &buffers, &mut echoed, cx)).await;
        assert_eq!(echoed, 0);
    }

    #[tokio::test]
    async fn everything_is_said_to_who_listens_and_then_the_end() {
        let (mut io, mut client) = connected();
        let (said, mut sent) = (vec![b'x'; 1_000_000], 0);
        let mut heard = Vec::new();
        let say = poll_fn(|cx| poll_say(&mut io, &said, &mut sent, cx));
        let ((), read) = tokio::join!(say, client.read_to_end(&mut heard));
        assert_eq!(read.unwrap(), said.len());
        assert_eq!(sent, said.len());
        let (mut io, client) = connected();
        drop(client);
        let mut sent = 0;
        poll_fn(|cx| poll_say(&mut io, &said, &mut sent, cx)).await;
        assert_eq!(sent, 0, "nobody listens");
    }

    #[tokio::test]
    async fn a_client_has_its_time_to_close_and_what_it_says_is_forgotten() {
        let zero = tokio::time::Instant::now();
        let now = move || Moment::from_nanos(zero.elapsed().as_nanos() as u64);
        let timers = Timers::new();
        let deadline = timers.register();
        let (buffers, mut input, mut received) = (Buffers::default(), Input::default(), 0);
        let (mut io, mut client) = connected();
        client.write_all(&[b'x'; 10_000]).await.unwrap();
        poll_fn(|cx| {
            let ended = poll_ended(&mut io, &mut input, 4096, (&buffers, &deadline), &mut received, cx);
            assert!(ended.is_pending());
            if received == 10_000 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        deadline.set(Some(now()));
        tokio::select! {
            () = poll_fn(|cx| poll_ended(&mut io, &mut input, 4096, (&buffers, &deadline), &mut received, cx)) => {}
            () = timers.clone().sweep_for_ever(now) => {}
        }
        assert!(deadline.is_past());
        deadline.set(None);
        drop(client);
        poll_fn(|cx| poll_ended(&mut io, &mut input, 4096, (&buffers, &deadline), &mut received, cx)).await;
        assert!(!deadline.is_past());
    }
}
