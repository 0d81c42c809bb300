//! When the parts of a stream came and went, in the two forms that the interface has.

use std::time::{SystemTime, UNIX_EPOCH};

use postrider_filter_api::{Moment, StreamInfo};

/// A time that is not known.
pub(super) const UNKNOWN: i64 = -1;

/// Nanoseconds since the stream began, -1 for what is not known.
#[repr(C)]
pub(super) struct Times {
    /// Since 1970.
    start: i64,
    complete: i64,
    first_sent_upstream: i64,
    last_sent_upstream: i64,
    first_received_upstream: i64,
    last_received_upstream: i64,
    first_sent_downstream: i64,
    last_sent_downstream: i64,
}

/// More of them, each with whether it is known: what was before the stream is negative.
#[repr(C)]
pub(super) struct Moments {
    times: [i64; 19],
    known: [bool; 24],
}

/// Places in [`Moments`], but for what Envoy knows of QUIC only.
mod place {
    pub(super) const START: usize = 0;
    /// The client's connection was accepted.
    pub(super) const ACCEPTED: usize = 1;
    /// The client and we began to agree on TLS.
    pub(super) const HANDSHAKE_BEGAN: usize = 2;
    /// The client and we agreed on TLS.
    pub(super) const AGREED: usize = 3;
    pub(super) const HEAD_RECEIVED: usize = 4;
    pub(super) const REQUEST_RECEIVED: usize = 5;
    pub(super) const CONNECT_BEGAN: usize = 6;
    pub(super) const CONNECTED: usize = 7;
    pub(super) const SECURED: usize = 8;
    pub(super) const REQUEST_SEND_BEGAN: usize = 9;
    pub(super) const REQUEST_SENT: usize = 10;
    pub(super) const RESPONSE_BEGAN: usize = 11;
    pub(super) const RESPONSE_BODY_BEGAN: usize = 12;
    pub(super) const RESPONSE_RECEIVED: usize = 13;
    pub(super) const RESPONSE_SEND_BEGAN: usize = 14;
    pub(super) const RESPONSE_SENT: usize = 15;
    pub(super) const COMPLETE: usize = 17;
}

pub(super) fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What the times are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// A request and its client, neither a connection that is carried nor a try.
    pub(crate) of_client: bool,
    /// All that there will be of it is there.
    pub(crate) is_over: bool,
}

impl View {
    /// A request, as far as it has come.
    pub(super) const REQUEST: View = View { of_client: true, is_over: true };
}

pub(super) fn times(info: Option<&StreamInfo>, view: View) -> Times {
    let since = |moment: fn(&StreamInfo) -> Option<Moment>| {
        let took = info.and_then(|info| Some(moment(info)?.saturating_duration_since(info.started)));
        took.map_or(UNKNOWN, |took| i64::try_from(took.as_nanos()).unwrap_or(i64::MAX))
    };
    Times {
        start: info.map_or(UNKNOWN, |info| nanoseconds(info.start)),
        complete: if view.is_over { since(|info| info.ended) } else { UNKNOWN },
        first_sent_upstream: since(|info| info.request_send_began),
        last_sent_upstream: since(|info| info.request_sent),
        first_received_upstream: since(|info| info.response_began),
        last_received_upstream: since(|info| info.response_received),
        first_sent_downstream: since(|info| info.response_send_began),
        last_sent_downstream: if view.of_client && view.is_over { since(|info| info.ended) } else { UNKNOWN },
    }
}

/// The same.
pub(super) fn moments(info: Option<&StreamInfo>, view: View) -> Moments {
    let mut moments = Moments { times: [UNKNOWN; 19], known: [false; 24] };
    let Some(info) = info else { return moments };
    let mut set = |place: usize, time: i64| {
        if let (Some(to), Some(known)) = (moments.times.get_mut(place), moments.known.get_mut(place)) {
            (*to, *known) = (time, true);
        }
    };
    set(place::START, nanoseconds(info.start));
    // While it goes on, a record of it says when it was made.
    let ended = info.ended.filter(|_| view.is_over);
    let http = view.of_client;
    // Until the stream is over, what came last of the answer need not be its end.
    let received = info.response_received.filter(|_| ended.is_some());
    for (place, moment) in [
        (place::ACCEPTED, info.connection.as_ref().and_then(|noted| noted.began).filter(|_| http)),
        (place::HANDSHAKE_BEGAN, info.tls.as_ref().and_then(|session| session.began)),
        (place::AGREED, info.tls.as_ref().and_then(|session| session.agreed)),
        // A request begins here when its head is complete, and its answer ends when it does.
        (place::HEAD_RECEIVED, Some(info.started).filter(|_| http)),
        (place::RESPONSE_SENT, ended.filter(|_| http)),
        (place::REQUEST_RECEIVED, info.request_received),
        (place::CONNECT_BEGAN, info.upstream_connect.began),
        (place::CONNECTED, info.upstream_connect.connected),
        (place::SECURED, info.upstream_connect.secured),
        (place::REQUEST_SEND_BEGAN, info.request_send_began),
        (place::REQUEST_SENT, info.request_sent),
        (place::RESPONSE_BEGAN, info.response_began),
        (place::RESPONSE_BODY_BEGAN, info.response_body_began.or_else(|| ended.and_then(|_| came_at_once(info)))),
        (place::RESPONSE_RECEIVED, received),
        (place::RESPONSE_SEND_BEGAN, info.response_send_began),
        (place::COMPLETE, ended),
    ] {
        if let Some(moment) = moment {
            set(place, between(info.started, moment));
        }
    }
    moments
}

/// When the body of an answer began that came with its head: nothing came later.
fn came_at_once(info: &StreamInfo) -> Option<Moment> {
    let began = info.response_began.filter(|_| info.bytes_sent > 0 && info.ended.is_some())?;
    (info.response_received == Some(began)).then_some(began)
}

/// Nanoseconds from one to the other, negative where the other is earlier.
fn between(start: Moment, moment: Moment) -> i64 {
    let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    nanos(moment.saturating_duration_since(start)) - nanos(start.saturating_duration_since(moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_there_before_has_negative_times() {
        let mut info = StreamInfo::new(Moment::from_nanos(1_000), SystemTime::UNIX_EPOCH);
        info.upstream_connect.connected = Some(Moment::from_nanos(400));
        info.request_sent = Some(Moment::from_nanos(1_700));
        info.response_received = Some(Moment::from_nanos(1_800));
        let open = moments(Some(&info), View::REQUEST);
        assert_eq!((open.times[place::CONNECTED], open.known[place::CONNECTED]), (-600, true));
        assert_eq!(open.times[place::REQUEST_SENT], 700);
        assert_eq!((open.times[place::RESPONSE_RECEIVED], open.known[place::RESPONSE_RECEIVED]), (UNKNOWN, false));
        info.ended = Some(Moment::from_nanos(2_000));
        let over = moments(Some(&info), View::REQUEST);
        assert_eq!((over.times[place::RESPONSE_RECEIVED], over.times[place::COMPLETE]), (800, 1_000));
        assert_eq!(over.times[place::HEAD_RECEIVED], 0);
        assert_eq!((over.times[place::RESPONSE_SENT], open.known[place::RESPONSE_SENT]), (1_000, false));
        assert!(!moments(Some(&info), View { of_client: false, ..View::REQUEST }).known[place::RESPONSE_SENT]);
        let going_on = View { is_over: false, ..View::REQUEST };
        let record = moments(Some(&info), going_on);
        assert!(
            !record.known[place::COMPLETE] && !record.known[place::RESPONSE_SENT] && record.known[place::CONNECTED]
        );
        let record = times(Some(&info), going_on);
        assert_eq!((record.complete, record.last_sent_downstream), (UNKNOWN, UNKNOWN));
        assert_eq!(size_of::<Moments>(), 0xb0);
    }
}
