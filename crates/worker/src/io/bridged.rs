//! A connection to a host that does not speak HTTP, with code between it and the one request that it serves.
//!
//! ```text
//! ask, poll_write, finish ──> session ──> out ──> inner
//! poll_read <── answer <───── session <───────── inner       the answer is HTTP/1, for whoever reads one
//! ```
//!
//! In each direction nothing new is taken while what the session made of the last is still here.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use postrider_filter_api::{BridgeFactory, BridgeFacts, BridgeSession, BridgeStep};
use postrider_h1::{write_chunk, write_last_chunk};
use postrider_http::{
    BodyFraming, Connection, Fields, HeaderId, RequestHead, ResponseHead, ResponseWrite, content_length, write_response,
};

use super::Io;

/// What one read from the host may bring.
const READ_BYTES: usize = 16 * 1024;

pub(crate) struct Bridged {
    inner: Io,
    bridge: Arc<dyn BridgeFactory>,
    /// From the request's head on.
    session: Option<Box<dyn BridgeSession>>,
    /// Bytes that may wait in one direction because the session wants more.
    limit: usize,
    /// Bytes of the request's body that are still to come, where that is known.
    promised: Option<u64>,
    /// All of the request came.
    request_over: bool,
    /// The session wants the request's body whole, and this is what came of it.
    holds: bool,
    held: Vec<u8>,
    /// For the host, and how much of it has gone.
    out: Vec<u8>,
    gone: usize,
    /// Nothing follows behind that; the host was told.
    closes: bool,
    closed: bool,
    head: ResponseHead,
    framing: Option<BodyFraming>,
    /// Of the host, and the session wants more of it.
    received: Vec<u8>,
    /// For whoever reads the answer, and how much of it was read.
    answer: Vec<u8>,
    told: usize,
    /// The answer is complete.
    answered: bool,
}

impl fmt::Debug for Bridged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridged").field("inner", &self.inner).field("answered", &self.answered).finish_non_exhaustive()
    }
}

impl Bridged {
    pub(crate) fn new(inner: Io, bridge: Arc<dyn BridgeFactory>, limit: usize) -> Bridged {
        Bridged {
            inner,
            bridge,
            session: None,
            limit,
            promised: None,
            request_over: false,
            holds: false,
            held: Vec::new(),
            out: Vec::new(),
            gone: 0,
            closes: false,
            closed: false,
            head: ResponseHead::new(),
            framing: None,
            received: Vec::new(),
            answer: Vec::new(),
            told: 0,
            answered: false,
        }
    }

    pub(crate) fn inner(&self) -> &Io {
        &self.inner
    }

    pub(crate) fn inner_mut(&mut self) -> &mut Io {
        &mut self.inner
    }

    /// The request, whose body of this framing is written as it is.
    pub(crate) fn ask(&mut self, head: &RequestHead, framing: BodyFraming, facts: &BridgeFacts<'_>) {
        let end = matches!(framing, BodyFraming::None | BodyFraming::Length(0));
        if let Some(length) = framing.length() {
            self.promised = Some(length);
        }
        self.request_over = end;
        let mut session = self.bridge.begin(facts);
        let mut data = Vec::new();
        let step = session.on_request_head(head, &mut data, end);
        // As in Envoy: a head that sends nothing ends nothing either.
        let closes = session.half_closes() && !data.is_empty();
        self.session = Some(session);
        match step {
            BridgeStep::Answer => self.tell(&data, true),
            BridgeStep::Continue | BridgeStep::Hold => {
                self.holds = step == BridgeStep::Hold;
                self.send(data, closes);
            }
        }
    }

    /// The request is complete.
    pub(crate) fn finish(&mut self) {
        if !self.request_over {
            self.request_over = true;
            self.take(&[], true);
        }
    }

    fn send(&mut self, mut data: Vec<u8>, closes: bool) {
        // Nothing follows an end, as in Envoy.
        if !self.closes {
            self.out.append(&mut data);
            self.closes = closes;
        }
    }

    /// Some of the request's body.
    fn take(&mut self, bytes: &[u8], end: bool) {
        let Some(session) = self.session.as_mut().filter(|_| !self.answered) else { return };
        let mut data = std::mem::take(&mut self.held);
        if data.len() + bytes.len() > self.limit && self.holds {
            return self.refuse();
        }
        data.extend_from_slice(bytes);
        if self.holds && !end {
            self.held = data;
            return;
        }
        match session.on_request_body(&mut data, end) {
            BridgeStep::Continue => {
                let closes = session.half_closes();
                self.holds = false;
                self.send(data, closes);
            }
            BridgeStep::Hold if !end => (self.holds, self.held) = (true, data),
            BridgeStep::Hold | BridgeStep::Answer => self.tell(&data, true),
        }
    }

    /// More of the request's body waits than may.
    fn refuse(&mut self) {
        if self.framing.is_none() {
            self.head.reply(413);
        }
        self.tell(b"Payload Too Large", true);
    }

    /// Some of the answer.
    fn tell(&mut self, data: &[u8], end: bool) {
        let framing = *self.framing.get_or_insert_with(|| {
            let framing = match self.head.status() {
                204 | 304 => BodyFraming::None,
                _ => match content_length(&self.head.fields) {
                    Ok(Some(length)) => BodyFraming::Length(length),
                    Ok(None) | Err(_) => BodyFraming::Chunked,
                },
            };
            if framing == BodyFraming::Chunked {
                self.head.fields.remove(HeaderId::ContentLength);
            }
            // The connection serves nobody else.
            let options = ResponseWrite { framing, connection: Connection::Close, ..ResponseWrite::default() };
            write_response(&self.head, &options, &mut self.answer);
            framing
        });
        match framing {
            BodyFraming::None => {}
            BodyFraming::Length(_) | BodyFraming::Counted(_) | BodyFraming::UntilClose => {
                self.answer.extend_from_slice(data)
            }
            BodyFraming::Chunked => {
                if !data.is_empty() {
                    write_chunk(data, &mut self.answer);
                }
                if end {
                    write_last_chunk(&Fields::new(), &mut self.answer);
                }
            }
        }
        self.answered |= end;
    }

    /// Sends what waits for the host.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.out.get(self.gone..).filter(|rest| !rest.is_empty()) {
            match ready!(self.inner.poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                count => self.gone += count,
            }
        }
        self.out.clear();
        self.gone = 0;
        if self.closes && !self.closed {
            ready!(self.inner.poll_finish(cx))?;
            self.closed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// The same for whoever waits for an answer: a host that takes no more may have answered before it closed.
    fn poll_flush_or_drop(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(_)) = self.poll_flush(cx) {
            self.out.clear();
            self.gone = 0;
            (self.closes, self.closed) = (true, true);
        }
    }

    /// See [`Io::poll_write`]: all of it is taken, or nothing.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[&[u8]]) -> Poll<io::Result<usize>> {
        if self.session.is_none() {
            // Nobody asked anything yet: it is no HTTP that goes here.
            return Poll::Ready(Err(ErrorKind::Unsupported.into()));
        }
        ready!(self.poll_flush(cx))?;
        let mut count = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            count += slice.len();
            if let Some(promised) = &mut self.promised {
                *promised = promised.saturating_sub(slice.len() as u64);
            }
            let end = self.promised == Some(0) && !self.request_over;
            self.request_over |= end;
            self.take(slice, end);
        }
        // The rest of it goes when the host takes more; who reads asks for that, and finds out about one that is gone.
        self.poll_flush_or_drop(cx);
        Poll::Ready(Ok(count))
    }

    /// See [`Io::poll_readable`].
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.answered || self.told < self.answer.len() {
            return Poll::Ready(Ok(()));
        }
        // Nothing comes before what was asked has left.
        self.poll_flush_or_drop(cx);
        self.inner.poll_readable(cx)
    }

    /// See [`Io::poll_read`].
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            self.poll_flush_or_drop(cx);
            let rest = self.answer.get(self.told..).unwrap_or_default();
            let count = rest.len().min(room.len());
            if let (Some(room), Some(rest)) = (room.get_mut(..count), rest.get(..count))
                && count > 0
            {
                room.copy_from_slice(rest);
                self.told += count;
                if self.told == self.answer.len() {
                    self.answer.clear();
                    self.told = 0;
                }
                return Poll::Ready(Ok(count));
            }
            if self.answered || room.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let Some(session) = &mut self.session else {
                // A host that speaks first is heard when somebody asked it something.
                return Poll::Pending;
            };
            let before = self.received.len();
            self.received.resize(before + READ_BYTES, 0);
            let read = self.inner.poll_read(cx, self.received.get_mut(before..).unwrap_or_default());
            self.received.truncate(before + if let Poll::Ready(Ok(count)) = read { count } else { 0 });
            let end = ready!(read)? == 0;
            if self.received.len() > self.limit.max(READ_BYTES) {
                return Poll::Ready(Err(io::Error::other("more of the answer waits than may")));
            }
            match session.on_received(&mut self.head, &mut self.received, end) {
                BridgeStep::Hold if !end => {}
                BridgeStep::Hold => return Poll::Ready(Err(ErrorKind::UnexpectedEof.into())),
                step => {
                    let data = std::mem::take(&mut self.received);
                    self.tell(&data, end || step == BridgeStep::Answer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    type Calls = Rc<RefCell<Vec<String>>>;

    /// Upper-case to the host, lower-case to the client; says what it was called with.
    struct Session {
        calls: Calls,
        steps: Vec<BridgeStep>,
        /// All of the request came.
        over: bool,
    }

    impl Session {
        fn called(&mut self, what: &str, data: &[u8], end: bool) -> BridgeStep {
            self.calls.borrow_mut().push(format!("{what} {:?} {end}", String::from_utf8_lossy(data)));
            self.over |= end && what == "body";
            if self.steps.is_empty() { BridgeStep::Continue } else { self.steps.remove(0) }
        }
    }

    impl BridgeSession for Session {
        fn on_request_head(&mut self, head: &RequestHead, data: &mut Vec<u8>, end: bool) -> BridgeStep {
            data.extend_from_slice(head.path());
            self.called("head", head.path(), end)
        }

        fn on_request_body(&mut self, data: &mut Vec<u8>, end: bool) -> BridgeStep {
            let step = self.called("body", data, end);
            data.make_ascii_uppercase();
            step
        }

        fn on_received(&mut self, head: &mut ResponseHead, data: &mut Vec<u8>, end: bool) -> BridgeStep {
            let step = self.called("received", data, end);
            head.set_status(203);
            if step != BridgeStep::Hold {
                data.make_ascii_lowercase();
            }
            step
        }

        fn half_closes(&self) -> bool {
            self.over
        }
    }

    struct Factory(Vec<BridgeStep>);

    thread_local! {
        static CALLS: Calls = Calls::default();
    }

    impl BridgeFactory for Factory {
        fn begin(&self, _: &BridgeFacts<'_>) -> Box<dyn BridgeSession> {
            let calls = CALLS.with(Rc::clone);
            calls.borrow_mut().clear();
            Box::new(Session { calls, steps: self.0.clone(), over: false })
        }
    }

    fn called() -> Vec<String> {
        CALLS.with(|calls| calls.borrow().clone())
    }

    fn bridged(steps: &[BridgeStep], limit: usize) -> (Bridged, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Bridged::new(Io::Plain(ours.into()), Arc::new(Factory(steps.to_vec())), limit), theirs)
    }

    fn ask(bridged: &mut Bridged, framing: BodyFraming) {
        let mut head = RequestHead::new();
        head.set_path(b"/p").unwrap();
        bridged.ask(&head, framing, &BridgeFacts { table: "", cluster: "c", tls: false });
    }

    async fn write(bridged: &mut Bridged, bytes: &[u8]) {
        assert_eq!(std::future::poll_fn(|cx| bridged.poll_write(cx, &[bytes])).await.unwrap(), bytes.len());
    }

    async fn read(bridged: &mut Bridged) -> Result<String, ErrorKind> {
        let mut all = Vec::new();
        loop {
            let mut room = [0; 7];
            match std::future::poll_fn(|cx| bridged.poll_read(cx, &mut room)).await {
                Ok(0) => return Ok(String::from_utf8(all).unwrap()),
                Ok(count) => all.extend_from_slice(&room[..count]),
                Err(error) => return Err(error.kind()),
            }
        }
    }

    #[tokio::test]
    async fn each_piece_goes_through_the_session_in_both_directions() {
        let (mut bridged, mut host) = bridged(&[], 100);
        ask(&mut bridged, BodyFraming::Length(4));
        write(&mut bridged, b"ab").await;
        write(&mut bridged, b"cd").await;
        bridged.finish();
        let mut got = String::new();
        host.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "/pABCD", "its end is told");
        host.write_all(b"YES").await.unwrap();
        drop(host);
        let answer = read(&mut bridged).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 203 "), "{answer}");
        assert!(
            answer.contains("connection: close\r\n") && answer.ends_with("\r\n\r\n3\r\nyes\r\n0\r\n\r\n"),
            "{answer}"
        );
        let calls = called();
        assert_eq!(calls[..3], [r#"head "/p" false"#, r#"body "ab" false"#, r#"body "cd" true"#]);
        assert_eq!(calls[3..], [r#"received "YES" false"#, r#"received "" true"#]);
    }

    #[tokio::test]
    async fn a_body_that_is_held_comes_whole_and_an_answer_with_what_came_before() {
        let hold = BridgeStep::Hold;
        let (mut bridged, mut host) = bridged(&[hold, BridgeStep::Continue, hold, BridgeStep::Answer], 10);
        ask(&mut bridged, BodyFraming::UntilClose);
        write(&mut bridged, b"ab").await;
        write(&mut bridged, b"cd").await;
        bridged.finish();
        let mut got = [0; 6];
        std::future::poll_fn(|cx| bridged.poll_flush(cx)).await.unwrap();
        host.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"/pABCD");
        host.write_all(b"ONE").await.unwrap();
        let mut room = [0; 64];
        std::future::poll_fn(|cx| {
            assert!(bridged.poll_read(cx, &mut room).is_pending());
            if called().len() == 3 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        host.write_all(b"TWO").await.unwrap();
        assert!(read(&mut bridged).await.unwrap().ends_with("\r\n\r\n6\r\nonetwo\r\n0\r\n\r\n"));
        let calls = called();
        assert_eq!(calls[1..], [r#"body "abcd" true"#, r#"received "ONE" false"#, r#"received "ONETWO" false"#]);
    }

    #[tokio::test]
    async fn what_is_held_has_a_limit() {
        let (mut bridged, _host) = bridged(&[BridgeStep::Hold], 3);
        ask(&mut bridged, BodyFraming::UntilClose);
        write(&mut bridged, b"ab").await;
        write(&mut bridged, b"cd").await;
        write(&mut bridged, b"ignored").await;
        let answer = read(&mut bridged).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("Payload Too Large"), "{answer}");
        assert_eq!(called().len(), 1);
    }

    #[tokio::test]
    async fn the_session_may_answer_by_itself_and_an_end_without_an_answer_is_an_error() {
        let (mut first, host) = bridged(&[BridgeStep::Answer], 10);
        ask(&mut first, BodyFraming::None);
        assert!(read(&mut first).await.unwrap().ends_with("2\r\n/p\r\n0\r\n\r\n"), "200 by default");
        drop(host);
        let (mut second, host) = bridged(&[BridgeStep::Continue, BridgeStep::Hold], 10);
        assert!(std::future::poll_fn(|cx| second.poll_write(cx, &[b"x"])).await.is_err(), "nothing was asked");
        ask(&mut second, BodyFraming::None);
        drop(host);
        assert_eq!(read(&mut second).await, Err(ErrorKind::UnexpectedEof));
    }
}
