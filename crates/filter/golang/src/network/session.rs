//! A client's connection, as Go code sees it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{ClosedBy, Connection, NetworkSession, Passage};

use super::Watching;
use super::entries::Event;
use super::line::{Line, Local};

pub(super) struct Session {
    place: Rc<Watching>,
    line: Arc<Line>,
    local: Rc<Local>,
    /// Go code was told of it.
    told: bool,
}

impl Session {
    pub(super) fn new(place: &Rc<Watching>, connection: &mut Connection<'_>) -> Session {
        let text = |address: Option<SocketAddr>| address.map(|address| address.to_string()).unwrap_or_default();
        let line = Line::new(connection.host.remote(), text(connection.info.downstream_local));
        line.set_remote(&text(connection.info.downstream_direct_remote));
        let local = line.attach(connection.handle);
        Session { place: place.clone(), line, local, told: false }
    }

    fn passage(&self, is_held: bool) -> Passage {
        self.place.account.called(None, None);
        if is_held { Passage::Stop } else { Passage::Continue }
    }
}

impl NetworkSession for Session {
    fn on_connection(&mut self, connection: &mut Connection<'_>) -> Passage {
        let config = &self.place.config;
        self.told = true;
        let is_held = self.local.during(connection, || {
            let is_held = config.library.begin(&self.line, &config.facts.name, config.id);
            config.library.tell(&self.line, Event::Connected);
            is_held
        });
        self.passage(is_held)
    }

    fn on_received(&mut self, connection: &mut Connection<'_>, data: &mut Vec<u8>, end: bool) -> Passage {
        let library = self.place.config.library;
        let is_held = self.local.during(connection, || library.received(&self.line, data, end));
        // As in Envoy: Go code has it now.
        data.clear();
        self.passage(is_held)
    }

    fn on_sent(&mut self, connection: &mut Connection<'_>, data: &mut Vec<u8>, end: bool) -> Passage {
        if !self.told {
            return Passage::Continue;
        }
        let library = self.place.config.library;
        let is_held = self.local.during(connection, || library.sent(&self.line, data, end));
        self.passage(is_held)
    }

    fn on_asked(&mut self, connection: &mut Connection<'_>, _: &mut Vec<u8>, _: &mut Vec<u8>) {
        let library = self.place.config.library;
        self.line.attend(connection, || library.answered(&self.line));
    }

    fn on_closed(&mut self, connection: &mut Connection<'_>, by: ClosedBy) {
        let library = self.place.config.library;
        if self.told {
            self.line.attend(connection, || library.answered(&self.line));
        }
        self.line.detach(|| library.answered(&self.line));
        if !std::mem::take(&mut self.told) {
            // Go code has never heard of it.
            super::line::forget(self.line.number);
            return;
        }
        let event = match by {
            ClosedBy::Client => Event::RemoteClose,
            ClosedBy::Proxy => Event::LocalClose,
        };
        self.local.during(connection, || library.tell(&self.line, event));
    }
}
