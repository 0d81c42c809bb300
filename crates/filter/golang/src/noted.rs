//! A stream's fields as they are at a moment at which it is logged while it goes on.
//!
//! They are apart from what Go's threads may have in hand of its messages meanwhile. What Go code read of them stays until
//! the next such moment, or the stream's end.

use crate::bells::Side;
use crate::mirror::{Each, Mirror};
use crate::request::{Ends, Part};

#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Of request and response.
    heads: [Option<Mirror>; 2],
    trailers: [Option<Mirror>; 2],
    /// The call in which they are shown is under way.
    pub(crate) shown: bool,
}

impl Noted {
    /// With what Go code is told of them. `response` is `None` where there is none.
    pub(crate) fn of(request: Each<'_>, response: Option<Each<'_>>, trailers: [Each<'_>; 2]) -> (Noted, Ends) {
        let copy = |each: Option<Each<'_>>| match each.map(Mirror::of) {
            Some((mirror, size)) if size.0 > 0 => (Some(mirror), size),
            _ => (None, (0, 0)),
        };
        let [request_trailers, response_trailers] = trailers.map(|each| copy(Some(each)));
        let (request, response) = (copy(Some(request)), copy(response));
        let ends = Ends {
            request_head: request.1,
            request_trailers: request_trailers.1,
            response_head: response.1,
            response_trailers: response_trailers.1,
        };
        let noted =
            Noted { heads: [request.0, response.0], trailers: [request_trailers.0, response_trailers.0], shown: true };
        (noted, ends)
    }

    pub(crate) fn fields(&mut self, side: Side, part: Part) -> Option<&mut Mirror> {
        let [request, response] = match part {
            Part::Headers => &mut self.heads,
            Part::Trailers => &mut self.trailers,
        };
        match side {
            Side::Request => request.as_mut(),
            Side::Response => response.as_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_shown() {
        let some = |call: &mut dyn FnMut(&[u8], &[u8])| call(b"a", b"12");
        let none = |_: &mut dyn FnMut(&[u8], &[u8])| {};
        let (mut noted, ends) = Noted::of(&some, None, [&none, &some]);
        assert_eq!((ends.request_head, ends.response_head), ((1, 3), (0, 0)));
        assert_eq!((ends.request_trailers, ends.response_trailers), ((0, 0), (1, 3)));
        assert_eq!(noted.fields(Side::Request, Part::Headers).unwrap().get(b"a").unwrap().len(), 2);
        assert!(noted.fields(Side::Response, Part::Headers).is_none());
        assert!(noted.fields(Side::Request, Part::Trailers).is_none());
    }
}
