//! Filters of requests and connections, and access loggers, in Rust for [Postrider], as native modules: shared objects with the binary interface that Envoy calls
//! dynamic modules, versions 0.1 and 0.2. What is built with this crate runs in Postrider and in Envoy 1.38 to 1.40.
//!
//! A module has one type that implements [`HttpFilter`]: a value of it is one configuration of the filter, its
//! [`State`](HttpFilter::State) is what one stream has. [`entry!`] exports the functions that the proxy looks for. So for
//! [`NetworkFilter`], which sees the bytes of connections, and [`AccessLogger`]; a module may have all three.
//!
//! ```no_run
//! use postrider_module::{Head, HttpFilter, Refusal, Setup, Stream};
//!
//! struct Greeter {
//!     greeting: Vec<u8>,
//! }
//!
//! impl HttpFilter for Greeter {
//!     type State = ();
//!
//!     fn new(setup: &mut Setup<'_>) -> Result<Greeter, Refusal> {
//!         Ok(Greeter { greeting: setup.config().to_vec() })
//!     }
//!
//!     fn begin(&self) -> Option<()> {
//!         Some(())
//!     }
//!
//!     fn on_request_headers(&self, _: &mut (), stream: &mut Stream<'_>, _: bool) -> Head {
//!         stream.request_headers_mut().set("x-greeting", &self.greeting);
//!         Head::Continue
//!     }
//! }
//!
//! postrider_module::entry!(Greeter);
//! ```
//!
//! # What holds
//!
//! - Everything of one stream runs on one thread. Nothing else of that thread's runs meanwhile: what waits, makes every
//!   stream of its worker wait. [`Scheduler`] brings the end of work on another thread back to the stream.
//! - What a [`Stream`] lends is there until the stream is changed; the compiler sees to it.
//! - Answers, and letting a message go on, take effect when the hook returns. So no hook is called while another one of the
//!   same stream runs.
//! - A panic in a hook is caught: the log says where it was, the request is answered with 500, or cut off when its answer is
//!   already on its way, and the stream's state is not used again. In [`HttpFilter::new`] it refuses the configuration; in
//!   [`HttpFilter::begin`] the proxy does what its failure policy says. That needs `panic = "unwind"`, which is Cargo's default.
//!
//! # Tests
//!
//! The proxy brings the functions behind a [`Stream`], so code that uses one runs in a proxy only. Keep what is worth testing
//! by itself in functions without it; `entry!` leaves itself out of test builds.
//!
//! # What is stable
//!
//! The crate follows semantic versioning, and until 1.0 a change that breaks a module raises the minor version. A module that
//! was built once keeps running in every version of the proxy that knows the interface it was built for.
//!
//! [Postrider]: https://github.com/postrider/postrider

#[doc(hidden)]
pub mod abi;
mod attribute;
mod background;
mod body;
mod calls;
mod connection;
mod entry;
mod filter;
mod given;
mod guard;
mod headers;
#[doc(hidden)]
pub mod hooks;
mod http;
#[doc(hidden)]
pub mod listener_hooks;
#[doc(hidden)]
pub mod logger;
mod metadata;
mod metrics;
mod moments;
mod network;
#[doc(hidden)]
pub mod network_hooks;
mod newcomer;
mod process;
mod reply;
mod schedule;
mod setup;
mod span;
mod stream;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod tests;

pub use attribute::Attribute;
pub use background::Background;
pub use body::{Body, BodyMut};
pub use calls::{Answer, Call, CallId, CallRefused, Failure};
pub use connection::{Connection, Held};
pub use filter::{Head, Hooks, HttpFilter, Piece, RouteConfig, Trailers};
pub use given::{Secret, runtime_number, runtime_truth, runtime_whole};
pub use headers::{Headers, HeadersMut};
pub use logger::{AccessLogger, Fields, Record};
pub use metrics::{Counter, Gauge, Histogram, MetricError};
pub use moments::{Moment, Moments};
pub use network::{ConnectionEvent, Ending, NetworkFilter, Passage};
pub use newcomer::{ListenerFilter, Newcomer};
pub use process::{Level, concurrency, log, log_enabled};
pub use reply::Reply;
pub use schedule::{BackgroundScheduler, ConnectionScheduler, NewcomerScheduler, Scheduler};
pub use setup::{ListenerSetup, LoggerSetup, NetworkSetup, Refusal, Setup};
pub use span::{ChildSpan, Span};
pub use stream::{MetadataSource, Socket, Stream};
