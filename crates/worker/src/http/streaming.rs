//! Answers of filters whose bodies come in pieces: the head leaves when it passed the filters, each piece as it comes.

use postrider_filter_api::Flags;
use postrider_http::{BodyFraming, Method, Version, content_length};

use super::Connection;
use super::ending::End;
use super::exchange::Exchange;
use super::local::is_bodiless;
use super::passage::{Side, Standing};
use super::respond::streamed_for;
use super::transfer::Transfer;
use crate::chain::Http;

impl Exchange {
    /// The head of such an answer is prepared.
    #[cold]
    pub(super) fn begin_streaming(&mut self, http: &Http) {
        self.return_request_id(http);
        self.response_trailers.clear();
        let bodiless = self.is_bodiless_answer();
        self.response_pass.replace(&[], bodiless);
        self.response_pass.begin(false, bodiless);
        self.streaming = Some(None);
        self.replying = true;
    }

    /// Sends what passed the filters. Whether all of the answer did; `None` when it goes on at once.
    #[cold]
    pub(super) fn stream_on(&mut self, connection: &mut Connection, http: &Http, standing: Standing) -> Option<bool> {
        let ended = match standing {
            Standing::Paused => false,
            // Only the last piece is empty.
            Standing::Piece => self.response_pass.held.bytes().is_empty(),
            Standing::Wants | Standing::Finished => true,
        };
        self.send_streamed_head(connection, http, ended);
        match standing {
            Standing::Paused => Some(false),
            Standing::Piece => {
                if self.is_bodiless_answer() {
                    // Behind such a head, its client would take the bytes for the next answer (RFC 9112 section 6.3).
                    self.response_pass.delivered();
                    return None;
                }
                let piece = self.response_pass.held.bytes();
                let count = piece.len() as u64;
                match &mut self.streaming {
                    Some(Some(left)) if *left < count => return Some(self.break_off(connection, http)),
                    Some(Some(left)) => *left -= count,
                    _ => {}
                }
                self.info.bytes_sent += count;
                self.download.write(piece, &mut connection.out);
                self.response_pass.delivered();
                None
            }
            // Nobody reads more of it: there is nothing that it could be read from.
            Standing::Wants | Standing::Finished => {
                if matches!(self.streaming, Some(Some(1..))) {
                    return Some(self.break_off(connection, http));
                }
                if self.answered {
                    self.download.finish(&mut self.response_trailers, &mut connection.out);
                    self.response_done = true;
                }
                Some(true)
            }
        }
    }

    fn is_bodiless_answer(&self) -> bool {
        self.request.method() == Method::Head || is_bodiless(self.response.status())
    }

    /// The filter gave more or less than it said: the client must not take that for a whole answer.
    fn break_off(&mut self, connection: &mut Connection, http: &Http) -> bool {
        self.fail(Flags::LOCAL_RESET, "streamed_length_differs");
        self.conclude(connection, http, End::Broken);
        true
    }

    /// `ended`: the head is all there is of the answer, but for trailers.
    fn send_streamed_head(&mut self, connection: &mut Connection, http: &Http, ended: bool) {
        if self.answered || !self.head_is_through(Side::Response) {
            return;
        }
        self.info.status = self.response.status();
        self.swallow_body(connection);
        let version = self.request.version();
        let said = content_length(&self.response.fields).ok().flatten();
        let to = match (self.is_bodiless_answer(), said) {
            (true, _) => BodyFraming::None,
            (false, Some(length)) => BodyFraming::Length(length),
            (false, None) if ended && version != Version::Http2 && self.response_trailers.is_empty() => {
                BodyFraming::Length(0)
            }
            (false, None) => streamed_for(version),
        };
        if let BodyFraming::Length(length) = to {
            self.streaming = Some(Some(length));
        }
        if to == BodyFraming::UntilClose && version != Version::Http2 {
            self.keep_alive = false;
        }
        let heard = self.upload.is_heard();
        self.decide_keep_alive(connection, http, heard);
        self.download = Transfer::filtered(BodyFraming::UntilClose, self.keeps_trailers(http), || self.answer_limits());
        self.download.leave_as(to);
        self.write_head(connection, http, to);
        self.down.move_to(&mut connection.out);
        self.answered = true;
        self.info.response_send_began = Some(connection.worker.clock.now());
    }
}
