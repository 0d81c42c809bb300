//! A connection for which no filter chain was chosen yet.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Noted, WantedSource};
use postrider_model::OriginalSource;

use super::{Arrival, Counted};
use crate::buffers::Input;
use crate::io::{Io, Socket};
use crate::plan::ListenerPlan;
use crate::record::Record;

/// A connection for which no filter chain was chosen yet.
pub(super) struct Newcomer {
    pub(super) plan: Arc<ListenerPlan>,
    pub(super) socket: Socket,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// The peer itself.
    pub(super) direct_remote: Option<SocketAddr>,
    pub(super) counted: Counted,
    pub(super) record: Option<Rc<Record>>,
    pub(super) redirected: bool,
    /// Received already; for another listener.
    pub(super) ahead: Vec<u8>,
    /// Another listener had it.
    pub(super) handed: bool,
    /// A filter wants it served where it was meant to go.
    pub(super) hands_over: bool,
    /// What the PROXY protocol said besides addresses.
    pub(super) noted: Option<Rc<Noted>>,
}

impl Newcomer {
    /// For one that is not to be served: nothing was agreed on.
    pub(super) fn refused(self, id: u64) -> Arrival {
        let Newcomer { local, remote, direct_remote, socket, counted, record, redirected, noted, .. } = self;
        Arrival {
            io: Io::Plain(socket),
            ahead: Input::default(),
            local,
            redirected,
            remote,
            direct_remote,
            tls: None,
            hello: None,
            id,
            counted: Some(counted),
            record,
            noted,
        }
    }

    /// The one that it was meant for.
    pub(super) fn port(&self) -> Option<u16> {
        Some(self.local?.port())
    }

    /// Connections to upstreams come from where this one does.
    #[cold]
    pub(super) fn go_on_as_client(&mut self, source: OriginalSource) {
        let Some(mut address) = self.remote else { return };
        if !source.port {
            address.set_port(0);
        }
        let noted = Rc::make_mut(self.noted.get_or_insert_default());
        let objects = noted.objects.get_or_insert_default();
        objects.wishes.source = Some(WantedSource { address, mark: source.mark });
    }

    /// It was meant to go elsewhere.
    pub(super) fn redirect(&mut self, destination: SocketAddr) {
        if self.local != Some(destination) {
            self.redirected = true;
            let noted = Rc::make_mut(self.noted.get_or_insert_default());
            noted.direct_local = noted.direct_local.or(self.local);
        }
        self.local = Some(destination);
        if let Some(record) = &self.record {
            record.note(|info| {
                info.downstream_local = Some(destination);
                info.connection.clone_from(&self.noted);
            });
        }
    }
}
