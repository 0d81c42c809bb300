//! The admin interface: Envoy's endpoints, on a thread of their own.
//!
//! It reads what others publish through [`Control`] and hands their orders on; it reaches into no worker and shares no
//! runtime with one, so a slow scrape costs no request anything. Paths, bodies and content types are Envoy's, because
//! tools parse them. There is no authentication: it binds where the configuration says, which should be loopback, and
//! refuses orders that a browser sends on behalf of another site.
//!
//! The binary implements [`Control`], calls [`Server::start`] and, at the end, [`Server::stop`].

mod control;
mod counts;
mod endpoints;
mod history;
mod pretty;
mod request;
mod response;
mod server;
mod status;
mod told;

pub use control::{Control, Drain, NO_ADMIN_LAYER, PluginRefused, Served};
pub use endpoints::{Endpoint, Handler, MAX_BATCH_BYTES, Tap, TapBatch, Trace, certificates_json, statistics, tagger};
pub use history::{Change, ChangeKind, HISTORY_ENTRIES, History, HistoryEntry, Outcome};
pub use request::Request;
pub use response::Reply;
pub use server::{
    CONNECTION_LIFETIME, HEAD_TIMEOUT, MAX_BODY_BYTES, MAX_CONNECTIONS, MAX_HEAD_BYTES, MAX_HEADERS, STOP_GRACE, Server,
};
pub use status::{
    CertificateStatus, CircuitStatus, ClusterStatus, EndpointStatus, HealthFlag, ListenerStatus, OutlierStatus,
    PluginPlace, PluginStatus, RateComparison, RouteConfigStatus, RuntimeStatus, Seen, ServerState, TlsContextStatus,
    TlsPlace,
};
