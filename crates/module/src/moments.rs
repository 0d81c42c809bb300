//! When the parts of a stream came and went.

use std::time::{Duration, SystemTime};

use crate::abi;
use crate::stream::Stream;

/// A moment of a stream. Others that Envoy knows may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum Moment {
    /// The client's connection was there, perhaps for an earlier request. So the next two.
    ClientConnected = 1,
    /// The client and the proxy began to agree on TLS.
    ClientHandshakeBegan = 2,
    /// They agreed.
    ClientSecured = 3,
    /// The request's head was complete.
    HeadReceived = 4,
    /// The last byte of the request was received.
    RequestReceived = 5,
    /// A connection to the upstream was begun, perhaps for an earlier request. So the next two.
    ConnectBegan = 6,
    /// It was there.
    Connected = 7,
    /// TLS was agreed on.
    Secured = 8,
    /// The first byte of the request was sent to the upstream.
    RequestSendBegan = 9,
    /// The last one was.
    RequestSent = 10,
    /// The first byte of the response was received.
    ResponseBegan = 11,
    /// The first byte of its body was. Where no filter looks at bodies, Postrider knows it of those that came with their heads.
    ResponseBodyBegan = 12,
    /// The last one was. Postrider knows it when the stream is over.
    ResponseReceived = 13,
    /// The first byte of the response was sent to the client.
    ResponseSendBegan = 14,
    /// The last one was.
    ResponseSent = 15,
    /// The stream was over.
    Complete = 17,
}

/// The moments of a stream as far as it has come.
#[derive(Debug, Clone, Copy)]
pub struct Moments(abi::Moments);

impl Moments {
    /// When the stream began.
    pub fn start(&self) -> SystemTime {
        let since_1970 = self.0.times.first().and_then(|start| u64::try_from(*start).ok());
        SystemTime::UNIX_EPOCH + Duration::from_nanos(since_1970.unwrap_or(0))
    }

    /// Nanoseconds from then to the moment, negative for what was before; `None` for what is not known or did not happen.
    pub fn nanoseconds(&self, moment: Moment) -> Option<i64> {
        let known = self.0.known.get(moment as usize).is_some_and(|known| *known != 0);
        self.0.times.get(moment as usize).copied().filter(|_| known)
    }
}

impl Stream<'_> {
    /// When its parts came and went so far. Envoy has it from 1.40 on.
    pub fn moments(&self) -> Moments {
        let mut moments = abi::Moments::default();
        // SAFETY: the handle is that of a stream in a hook; there is room for all of them.
        unsafe { abi::get_timing_info(self.handle(), &raw mut moments) };
        Moments(moments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_no_time() {
        let mut raw = abi::Moments::default();
        (raw.times[0], raw.known[0]) = (1_500_000_000, 1);
        (raw.times[7], raw.known[7]) = (-600, 1);
        raw.times[10] = 5;
        let moments = Moments(raw);
        assert_eq!(moments.start(), SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        assert_eq!(moments.nanoseconds(Moment::Connected), Some(-600));
        assert_eq!(moments.nanoseconds(Moment::RequestSent), None);
        assert_eq!(size_of::<abi::Moments>(), 0xb0);
    }
}
