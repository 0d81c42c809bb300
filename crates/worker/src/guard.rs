//! Connections that a chain's guards turn away.

use postrider_filter_api::{Admission, StreamInfo};
use postrider_model::Metadata;

use crate::chain::{Chain, Handler};
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
    for guard in &chain.guards {
        if let Admission::Close { after, details } = guard.on_connection(&mut info, server_name) {
            info.termination_details = details;
            if let Some(delay) = after {
                // Whoever comes again at once is not to have it at once.
                tokio::time::sleep(delay).await;
            }
            turn_away(worker, chain, arrival, info).await;
            return None;
        }
    }
    arrival.noted = noted(info);
    Some(arrival)
}

async fn turn_away(worker: &Rc<Worker>, chain: &Chain, mut arrival: Arrival, info: StreamInfo) {
    let record = arrival.record.take();
    plain::say(worker.clone(), b"", chain.buffer_limit, arrival).await;
    let info = match &chain.handler {
        Handler::Tcp(tcp) => tcp::turned_away(worker, tcp, info),
        Handler::Http(_) | Handler::Echo | Handler::Say(_) => info,
    };
    if let Some(record) = record {
        record.settle(info);
    }
}

fn noted(info: StreamInfo) -> Option<Box<Metadata>> {
    (!info.metadata.is_empty()).then(|| Box::new(info.metadata))
}
