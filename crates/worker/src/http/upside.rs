//! Filters on the upstream side: what each try passes between the router and its connection.
//!
//! ```text
//! client ──> filters ──> router ──kept──> upside ──> upstream      every try begins with new states, and with the
//! client <── filters <── router <──────── upside <── upstream      request as the router has it
//! ```
//!
//! Hooks are called by [`Exchange::advance`], which knows one chain: for the time of a call these filters stand in the
//! place of the others. All of it is for requests with [`Attempts`](super::attempts::Attempts), which those have that
//! may pass such filters; a chain is there for the others, be it an empty one.

mod answer;

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use postrider_filter_api::State;
use postrider_h1::{write_chunk, write_last_chunk};
use postrider_http::{BodyFraming, RequestHead};

use super::Connection;
use super::ending::End;
use super::exchange::Exchange;
use super::filters::Barred;
use super::passage::{Hook, Passage, Side, Standing};
use super::prepare::place;
use super::transfer::Transfer;
use crate::chain::{Filters, Http};
use crate::clock::Clock;

/// The filters of a request's tries, and where the try under way is with them.
pub(super) struct Upside {
    /// `None` while they stand in the place of the others.
    filters: Option<Rc<Filters>>,
    states: Vec<State>,
    request_pass: Passage,
    response_pass: Passage,
    /// The try that entered last, from 1.
    attempt: u32,
    request: Stage,
    response: Stage,
    /// The request as this try found it, for the next one.
    original: Option<Box<RequestHead>>,
    /// The request's other filters want its body, too.
    feeds: bool,
    /// Reads the body of the answer.
    download: Transfer,
}

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It did not come yet, or it goes by.
    Off,
    /// The head is with the filters.
    Head,
    /// The head has left; the body comes this way.
    Body,
}

impl Upside {
    /// The request comes this way.
    pub(super) fn takes_request(&self) -> bool {
        self.request != Stage::Off
    }

    /// The request's body comes this way, and its head has left.
    pub(super) fn takes_body(&self) -> bool {
        self.request == Stage::Body
    }

    /// These filters stand in the place of the others.
    pub(super) fn stands_in(&self) -> bool {
        self.filters.is_none()
    }

    pub(super) fn takes_answer(&self) -> bool {
        self.response != Stage::Off
    }

    /// How a body leaves that comes as `from`; `None` when nobody here looks at it.
    fn framing(&self, side: Side, from: BodyFraming, no_trailers: bool) -> Option<BodyFraming> {
        let filters = self.filters.as_ref()?;
        let pass = match side {
            Side::Request => &self.request_pass,
            Side::Response => &self.response_pass,
        };
        let wanted = |hook| pass.is_wanted(side, filters, hook);
        let looked_at = wanted(Hook::Body) || from.may_have_trailers() && wanted(Hook::Trailers);
        if !(pass.has_begun() || from.has_body() && looked_at) {
            return None;
        }
        Some(match (from, pass.whole(side, filters, no_trailers)) {
            (BodyFraming::Chunked, Some(_)) if !pass.is_changed() => from,
            (BodyFraming::None, Some(0)) => from,
            (from, Some(length)) => from.with_length(length),
            (BodyFraming::Length(_) | BodyFraming::Counted(_), None)
                if !pass.is_changeable(side, filters) && !pass.is_changed() =>
            {
                from
            }
            (BodyFraming::UntilClose, None) => from,
            (_, None) => BodyFraming::Chunked,
        })
    }

    fn head_is_through(&self, side: Side) -> bool {
        let pass = match side {
            Side::Request => &self.request_pass,
            Side::Response => &self.response_pass,
        };
        !pass.is_paused() && self.filters.as_ref().is_none_or(|filters| pass.head_is_through(filters))
    }
}

impl Exchange {
    pub(super) fn upside(&self) -> Option<&Upside> {
        self.attempts.as_ref()?.upside.as_deref()
    }

    fn upside_mut(&mut self) -> Option<&mut Upside> {
        self.attempts.as_mut()?.upside.as_deref_mut()
    }

    /// What tries of this request pass, if there is something.
    #[cold]
    pub(super) fn find_upside(&mut self, connection: &Connection, http: &Http) -> Option<Box<Upside>> {
        let (routes, route, cluster) = (self.routes.as_ref()?, self.route?, self.cluster.as_ref()?);
        let of_router = place(connection, http);
        let filters = routes.upstream_filters(cluster, (route, self.weighted), &of_router, &connection.worker)?;
        if self.filters.is_none() {
            self.filters = Some(Rc::default());
            let bodiless = self.asks_for_tunnel();
            self.request_pass.begin(self.upload.is_done(), bodiless);
        }
        Some(Box::new(Upside {
            filters: Some(filters),
            states: Vec::new(),
            request_pass: Passage::default(),
            response_pass: Passage::default(),
            attempt: 0,
            request: Stage::Off,
            response: Stage::Off,
            original: None,
            feeds: self.request_pass.open,
            download: Transfer::Done,
        }))
    }

    /// The request of a try that has its connection meets the filters; `true` when they keep it for now.
    ///
    /// # Errors
    /// One of them answers.
    #[cold]
    pub(super) fn enter_upside(&mut self, connection: &Connection, http: &Http) -> Result<bool, End> {
        let (attempt, framing, heard) = (self.info.upstream_attempts, self.request_framing, self.upload.is_done());
        let bodiless = self.asks_for_tunnel();
        let trailers = !self.request_trailers.is_empty();
        let Some(attempts) = &mut self.attempts else { return Ok(false) };
        let Some(mut upside) = attempts.upside.take() else { return Ok(false) };
        let again = upside.attempt == attempt;
        if !again {
            upside.attempt = attempt;
            upside.original = attempts.may_retry().then(|| Box::new(self.request.clone()));
            upside.request = Stage::Head;
            let count = upside.filters.as_ref().map_or(0, |filters| filters.all.len());
            upside.states.resize_with(count, State::default);
            upside.request_pass.begin(!framing.has_body(), bodiless);
            if attempt > 1 && framing.has_body() {
                // What came until now comes once more.
                upside.request_pass.held.push(attempts.kept());
                upside.request_pass.feed(heard, heard && trailers);
            }
        }
        let goes_by = upside.request == Stage::Off;
        attempts.upside = Some(upside);
        if again && goes_by {
            // Another connection for the same try.
            return Ok(false);
        }
        match self.advance_upside(Side::Request, connection, http, None) {
            Ok(_) => Ok(!self.release_request()),
            Err(barred) => {
                // Nothing was said on this connection.
                if let (Some(cluster), Some(upstream)) = (&self.cluster, self.upstream.take()) {
                    cluster.put_back(upstream, connection.worker.clock.now());
                }
                Err(self.barred(Side::Request, http, barred))
            }
        }
    }

    /// Settles how the request goes on if its head is through; whether it is.
    fn release_request(&mut self) -> bool {
        let (from, heard) = (self.request_framing, self.upload.is_done());
        let Some(upside) = self.upside_mut() else { return true };
        if !upside.head_is_through(Side::Request) {
            self.request_pass.open = true;
            return false;
        }
        let framing = upside.framing(Side::Request, from, false);
        upside.request = if framing.is_some() { Stage::Body } else { Stage::Off };
        self.request_pass.open = framing.is_some() || upside.feeds && !heard;
        self.request_framing = framing.unwrap_or(from);
        true
    }

    /// Client to upstream, where filters of the upstream side take part. Answers whether anything moved.
    pub(super) fn move_request_through_upside(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        cx: &mut TaskContext<'_>,
    ) -> Result<bool, End> {
        let mut moved = false;
        loop {
            let mut wants = false;
            if self.up.has_room() && !self.upload_broken {
                let standing = match self.advance_upside(Side::Request, connection, http, Some(cx.waker())) {
                    Ok(standing) => standing,
                    Err(barred) => return Err(self.barred(Side::Request, http, barred)),
                };
                if self.upside().is_some_and(|upside| upside.request == Stage::Head) && self.release_request() {
                    self.info.request_send_began = Some(connection.worker.clock.now());
                    self.write_request_head()?;
                    if !self.upside().is_some_and(Upside::takes_request) {
                        self.move_request(connection, http, cx)?;
                        return Ok(true);
                    }
                    moved = true;
                }
                let is_through = self.upside().is_some_and(Upside::takes_body);
                match standing {
                    Standing::Paused => {}
                    Standing::Piece if is_through => {
                        self.send_piece();
                        moved = true;
                        continue;
                    }
                    Standing::Finished if is_through => {
                        self.finish_request(http);
                        self.move_request(connection, http, cx)?;
                        return Ok(true);
                    }
                    Standing::Piece | Standing::Finished => {}
                    Standing::Wants => match self.feed_request(connection, http, cx)? {
                        Fed::Some => {
                            moved = true;
                            continue;
                        }
                        Fed::Nothing => {}
                        Fed::Wants => wants = true,
                    },
                }
            }
            if !self.up.is_empty() {
                match self.poll_flush_up(connection, cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(true) => {
                        moved = true;
                        continue;
                    }
                    Poll::Ready(false) => {}
                }
            }
            if !wants || self.upload_broken {
                return Ok(moved);
            }
            if connection.half_closed {
                return Err(End::Gone);
            }
            self.answer_expectation(connection, http);
            match connection.poll_receive(cx, http) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Ready(Err(_)) => return Err(End::Gone),
            }
        }
    }

    /// Puts what passed the other filters in front of these.
    fn feed_request(&mut self, connection: &mut Connection, http: &Http, cx: &mut TaskContext<'_>) -> Result<Fed, End> {
        match self.advance(Side::Request, connection, http, Some(cx.waker())) {
            Err(barred) => Err(self.barred(Side::Request, http, barred)),
            Ok(Standing::Paused) => Ok(Fed::Nothing),
            Ok(Standing::Piece) => {
                self.keep_filtered_piece(&connection.worker);
                let Exchange { attempts, request_pass, .. } = self;
                if let Some(upside) = attempts.as_mut().and_then(|attempts| attempts.upside.as_mut()) {
                    upside.request_pass.held.push(request_pass.held.bytes());
                    upside.request_pass.feed(false, false);
                }
                self.request_pass.delivered();
                Ok(Fed::Some)
            }
            Ok(Standing::Finished) => {
                self.upload = Transfer::Done;
                let trailers = !self.request_trailers.is_empty();
                if let Some(upside) = self.upside_mut() {
                    upside.request_pass.feed(true, trailers);
                }
                Ok(Fed::Some)
            }
            Ok(Standing::Wants) if !connection.input.is_empty() => {
                self.read_request_body(connection, http)?;
                Ok(Fed::Some)
            }
            Ok(Standing::Wants) => Ok(Fed::Wants),
        }
    }

    /// A piece has passed all filters.
    fn send_piece(&mut self) {
        let Exchange { attempts, up, request_framing, .. } = self;
        let Some(attempts) = attempts.as_mut() else { return };
        let Some(upside) = attempts.upside.as_mut() else { return };
        let piece = upside.request_pass.held.bytes();
        if let Some(record) = &mut attempts.record {
            record.add_sent(piece.len());
        }
        match request_framing {
            BodyFraming::Chunked => write_chunk(piece, &mut up.bytes),
            _ => up.bytes.extend_from_slice(piece),
        }
        upside.request_pass.delivered();
    }

    /// All of the request has passed the filters.
    fn finish_request(&mut self, http: &Http) {
        if self.request_framing == BodyFraming::Chunked {
            if !http.model.http1.enable_trailers {
                self.request_trailers.clear();
            }
            write_last_chunk(&self.request_trailers, &mut self.up.bytes);
        }
        self.upload = Transfer::Done;
        self.request_pass.open = false;
        if let Some(upside) = self.upside_mut() {
            upside.request = Stage::Off;
        }
    }

    /// A try is over, however: last call for the states that it had.
    #[cold]
    pub(super) fn end_upside(&mut self, clock: &Clock) {
        let Some(mut upside) = self.attempts.as_mut().and_then(|attempts| attempts.upside.take()) else { return };
        if upside.attempt > 0 {
            let filters = upside.filters.clone();
            let released = self.released;
            self.swap_with(&mut upside);
            self.complete_filters(clock);
            self.swap_with(&mut upside);
            self.released = released;
            upside.filters = filters;
            self.request_pass.open = false;
            self.response_pass.open = false;
        }
        (upside.request, upside.response) = (Stage::Off, Stage::Off);
        if let Some(attempts) = &mut self.attempts {
            attempts.upside = Some(upside);
        }
    }

    /// There is another try: it begins with the request that the last one began with.
    #[cold]
    pub(super) fn restore_request(&mut self) {
        if let Some(original) = self.upside_mut().and_then(|upside| upside.original.take()) {
            self.request = *original;
        }
    }

    /// [`Exchange::advance`] for these filters.
    fn advance_upside(
        &mut self,
        side: Side,
        connection: &Connection,
        http: &Http,
        waker: Option<&Waker>,
    ) -> Result<Standing, Barred> {
        let Some(mut upside) = self.attempts.as_mut().and_then(|attempts| attempts.upside.take()) else {
            return Ok(Standing::Finished);
        };
        self.swap_with(&mut upside);
        let advanced = self.advance(side, connection, http, waker);
        self.swap_with(&mut upside);
        // The route was followed already.
        self.info.route_is_stale = false;
        if let Some(attempts) = &mut self.attempts {
            attempts.upside = Some(upside);
        }
        advanced
    }

    /// Puts these filters in the place of the others, or back.
    fn swap_with(&mut self, upside: &mut Upside) {
        std::mem::swap(&mut self.filters, &mut upside.filters);
        std::mem::swap(&mut self.states, &mut upside.states);
        std::mem::swap(&mut self.request_pass, &mut upside.request_pass);
        std::mem::swap(&mut self.response_pass, &mut upside.response_pass);
    }
}

/// What came in front of filters.
enum Fed {
    Some,
    /// Nothing, for now.
    Nothing,
    /// Nothing, as more is to be read.
    Wants,
}
