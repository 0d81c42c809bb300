//! What a chain's guards say of its connections, how filters of bytes begin with them, and those that are turned away.

use postrider_filter_api::{Admission, Noted, StateBytes, StreamInfo, Visit};
use postrider_http::{Fields, RequestHead, ResponseHead};
use postrider_model::LogFormat;

use crate::chain::{Chain, Handler, Watch};
use crate::format::{Context, OfUpstream};
use crate::io::{Filtered, Io, Service};
use crate::limit::Excess;
use crate::listener::Arrival;
use crate::worker::Worker;
use crate::{plain, tcp};
use std::rc::Rc;

/// Asks the guards of `chain`; `None` when the connection was turned away, and otherwise the connection with what they
/// noted of it.
pub(crate) async fn admit(
    worker: &Rc<Worker>,
    chain: &Chain,
    mut arrival: Arrival,
    server_name: Option<&str>,
) -> Option<Arrival> {
    let mut info = tcp::info_of(worker, chain, &arrival);
    if let Some(noted) = &arrival.noted {
        info.metadata.clone_from(&noted.metadata);
        info.filter_state.clone_from(&noted.state);
        info.upstream_objects.clone_from(&noted.objects);
    }
    let write = |info: &StreamInfo, format: &LogFormat, out: &mut Vec<u8>| {
        let now = worker.clock.wall(worker.clock.now());
        let (request, response, trailers) = (&RequestHead::new(), &ResponseHead::new(), &Fields::new());
        let upstream = OfUpstream::default();
        let context = Context {
            request,
            response,
            trailers,
            info,
            route: None,
            weighted: None,
            upstream,
            reply_body: &[],
            http: false,
            now,
        };
        context.write_log(format, out);
    };
    for watch in &chain.guards {
        let Watch::Guard(guard) = watch else { continue };
        let visit = &mut Visit { info: &mut info, server_name, write: &write };
        if let Admission::Close { after, details } = guard.on_connection(visit) {
            info.termination_details = details;
            if let Some(delay) = after {
                // Whoever comes again at once is not to have it at once.
                tokio::time::sleep(delay).await;
            }
            turn_away(worker, chain, arrival, info).await;
            return None;
        }
    }
    // Bytes are looked at once nobody turns the connection away.
    if chain.guards.iter().any(|watch| matches!(watch, Watch::Bytes(_))) {
        let (taken, begun) = begin(worker, chain, arrival, &mut info, server_name).await;
        arrival = taken;
        if !begun {
            turn_away(worker, chain, arrival, info).await;
            return None;
        }
    }
    arrival.noted = noted(info, arrival.noted);
    if let (Some(noted), Some(record)) = (&arrival.noted, &arrival.record) {
        record.keep(noted);
    }
    Some(arrival)
}

/// Lets the filters of bytes begin with the connection; `false` when one of them ended it.
async fn begin(
    worker: &Rc<Worker>,
    chain: &Chain,
    arrival: Arrival,
    info: &mut StreamInfo,
    server_name: Option<&str>,
) -> (Arrival, bool) {
    let mut own = tcp::info_of(worker, chain, &arrival);
    own.metadata = std::mem::take(&mut info.metadata);
    own.filter_state = std::mem::take(&mut info.filter_state);
    own.upstream_objects = info.upstream_objects.take();
    let Arrival { io, mut ahead, .. } = arrival;
    let service = Service {
        limit: chain.buffer_limit,
        // A client of HTTP that ends its side is gone.
        half_closes: !matches!(chain.handler, Handler::Http(_) | Handler::Filters),
        ends_here: matches!(chain.handler, Handler::Filters),
        reads_late: matches!(&chain.handler, Handler::Tcp(tcp) if tcp.model.awaits_data.is_none()),
    };
    let mut filtered = Filtered::new(io, ahead.bytes(), own, server_name, worker.host.clone(), service);
    ahead.release(&worker.buffers);
    for watch in &chain.guards {
        if let Watch::Bytes(filter) = watch {
            filtered.add(&**filter);
        }
    }
    let begun = std::future::poll_fn(|cx| filtered.poll_begin(cx)).await.is_ok();
    filtered.tell(info);
    (Arrival { io: Io::Filtered(Box::new(filtered)), ahead, ..arrival }, begun)
}

/// A connection beyond a limit of `chain` ends; where it would have gone to a TCP proxy, that counts and logs it, too.
#[cold]
pub(crate) fn refuse(worker: &Rc<Worker>, chain: &Chain, arrival: &Arrival, excess: Excess) {
    let mut info = tcp::info_of(worker, chain, arrival);
    excess.tell(&mut info);
    if let Handler::Tcp(tcp) = &chain.handler {
        info = tcp::turned_away(worker, tcp, info);
    }
    if let Some(record) = &arrival.record {
        record.note(|told| {
            excess.tell(told);
            told.connection_id = info.connection_id;
        });
    }
}

async fn turn_away(worker: &Rc<Worker>, chain: &Chain, mut arrival: Arrival, info: StreamInfo) {
    let record = arrival.record.take();
    if arrival.io.was_ended() {
        // In the way that the filter said.
        drop(arrival);
    } else {
        plain::say(worker.clone(), b"", chain.buffer_limit, arrival).await;
    }
    let info = match &chain.handler {
        Handler::Tcp(tcp) => tcp::turned_away(worker, tcp, info),
        Handler::Http(_) | Handler::Echo | Handler::Say(_) | Handler::Filters => info,
    };
    if let Some(record) = record {
        record.settle(info);
    }
}

/// What was noted of a connection, with what was before.
pub(crate) fn noted(info: StreamInfo, before: Option<Rc<Noted>>) -> Option<Rc<Noted>> {
    let bytes = info.found::<StateBytes>();
    let StreamInfo { metadata, filter_state: state, upstream_objects: objects, .. } = info;
    if before.is_none() && metadata.is_empty() && state.is_empty() {
        return None;
    }
    let mut noted = before.unwrap_or_default();
    let whole = Rc::make_mut(&mut noted);
    (whole.metadata, whole.state, whole.objects) = (metadata, state, objects);
    if let Some(bytes) = bytes {
        whole.lasting.left::<StateBytes>().extend(&bytes);
    }
    Some(noted)
}
