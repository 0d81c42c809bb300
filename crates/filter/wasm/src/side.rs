//! The two messages of a stream.

use postrider_filter_api::{Body, Stream};

use crate::contexts::{Half, Passing};
use crate::maps::{REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS, RESPONSE_TRAILERS};

/// A message of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

impl Side {
    pub(crate) fn half(self, stream: &mut Passing) -> &mut Half {
        match self {
            Side::Request => &mut stream.request,
            Side::Response => &mut stream.response,
        }
    }

    pub(crate) fn headers(self) -> u32 {
        match self {
            Side::Request => REQUEST_HEADERS,
            Side::Response => RESPONSE_HEADERS,
        }
    }

    pub(crate) fn trailers(self) -> u32 {
        match self {
            Side::Request => REQUEST_TRAILERS,
            Side::Response => RESPONSE_TRAILERS,
        }
    }
}

impl From<Side> for postrider_filter_trial::Side {
    fn from(side: Side) -> postrider_filter_trial::Side {
        match side {
            Side::Request => postrider_filter_trial::Side::Request,
            Side::Response => postrider_filter_trial::Side::Response,
        }
    }
}

/// What is held of its body.
pub(crate) fn held<'a>(side: Side, stream: &'a mut Stream<'_>) -> &'a mut Body {
    match side {
        Side::Request => stream.request_body,
        Side::Response => stream.response_body,
    }
}
