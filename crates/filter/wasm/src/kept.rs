//! A stream that waits, for modules that look at it from elsewhere: the stream itself is in nobody's hand then.
//!
//! It is copied where the module stops it. What is changed of it meanwhile is changed in the copy, which is what the module sees
//! of it, and noted (`edits`) for the stream itself, which takes it over when it goes on.

use postrider_filter_api::{RouteFacts, Stream, StreamInfo};
use postrider_http::{Fields, RequestHead, ResponseHead};

use crate::data::Parts;
use crate::edits::Edit;
use crate::maps::{REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS, RESPONSE_TRAILERS, Target};

pub(crate) struct Kept {
    request: RequestHead,
    response: ResponseHead,
    request_trailers: Fields,
    response_trailers: Fields,
    pub(crate) info: StreamInfo,
    route: Option<RouteFacts>,
    weighted: Option<usize>,
}

impl Kept {
    pub(crate) fn of(stream: &Stream<'_>) -> Kept {
        Kept {
            request: stream.request.clone(),
            response: stream.response.clone(),
            request_trailers: stream.request_trailers.clone(),
            response_trailers: stream.response_trailers.clone(),
            info: stream.info.clone(),
            route: stream.route.cloned(),
            weighted: stream.weighted,
        }
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts {
            request: Some(&self.request),
            response: Some(&self.response).filter(|_| self.info.status != 0),
            request_trailers: &self.request_trailers,
            response_trailers: &self.response_trailers,
            info: &self.info,
            route: self.route.as_ref(),
            weighted: self.weighted,
            server_name: None,
        }
    }

    /// `false` for what no stream can carry.
    pub(crate) fn change(&mut self, edit: &Edit) -> bool {
        let target = match edit.map() {
            Some(REQUEST_HEADERS) => Target::Request(&mut self.request),
            Some(REQUEST_TRAILERS) => Target::Trailers(&mut self.request_trailers),
            Some(RESPONSE_HEADERS) => Target::Response(&mut self.response),
            Some(RESPONSE_TRAILERS) => Target::Trailers(&mut self.response_trailers),
            Some(_) => return false,
            None => return edit.note(&mut self.info),
        };
        edit.change(target)
    }
}
