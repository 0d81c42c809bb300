//! Envoy's v3 configuration: from YAML, JSON, binary or text protobuf to messages with places, and on to the model.
//!
//! # Three stages
//!
//! 1. [`load_bootstrap`] reads a file into a [`Message`] and reports what is wrong by the schema alone: syntax, unknown
//!    fields, wrong types, v2 leftovers, broken validation rules. It never stops at the first error.
//! 2. Lowering reads that message through a [`Reader`] and builds the model. The reader remembers what was read in a
//!    [`Coverage`]; [`Reader::finish`] then refuses each set field that nobody read, so none is silently ignored.
//!    [`load()`] is both stages in one call, and what the binary uses: its [`Outcome`] holds the snapshot, every finding,
//!    and the report of `doctor`.
//! 3. [`write`](mod@write) turns messages back into JSON or YAML: `config_dump`, `convert`, `migrate`.
//!
//! # Reading a message
//!
//! ```
//! use postrider_config_core::{Severity, SourceFile};
//! use postrider_config_envoy::{Coverage, LoadOptions, Reader, UnsupportedPolicy, load_bootstrap};
//!
//! let file = SourceFile::new("envoy.yaml", "static_resources: {clusters: [{name: a, connect_timeout: 0.25s}]}");
//! let mut loaded = load_bootstrap(&file, &LoadOptions::default());
//! let bootstrap = loaded.bootstrap.expect("there is something to read");
//! let coverage = Coverage::new();
//! let root = Reader::root(&bootstrap, &coverage);
//! for cluster in root.message("static_resources").iter().flat_map(|resources| resources.list("clusters")) {
//!     assert_eq!(cluster.str("name"), "a");
//!     assert_eq!(cluster.path(), "static_resources.clusters[0]");
//!     // `connect_timeout` is not read, so it is reported below.
//! }
//! root.finish(&mut loaded.diagnostics, UnsupportedPolicy::Refuse);
//! let text = postrider_config_core::render::text(&loaded.diagnostics, &loaded.sources, false);
//! assert!(text.contains("envoy.yaml:1:41: error[unsupported-field]"));
//! ```
//!
//! Values are read by field name in snake case, whatever the file used. Unset and `null` are the same. Extensions are
//! found by [`AnyReader::type_name`], never by their free `name`; an `Any` whose type has no factory is reported with
//! [`known::unsupported_extension`].
//!
//! # What it must never do
//!
//! Keep descriptors alive: every [`Message`] holds the descriptor pool it was made from (megabytes), so the bootstrap is
//! dropped once it is lowered. [`unpack()`] alone keeps those of the few types that scripts look at.

mod coverage;
pub mod disabled;
pub mod doctor;
mod dump;
pub mod extensions;
mod form;
mod google_grpc;
pub mod known;
pub mod load;
pub mod lower;
pub mod message;
pub mod migrate;
mod outcome;
mod pgv;
mod reader;
mod request;
mod runtime;
mod time;
pub mod tree;
mod unpack;
mod wire;
pub mod write;

pub use coverage::{Coverage, Mark, Status, Support, UnsupportedPolicy};
pub use dump::Dump;
pub use form::{Form, PluginFile, PluginNode};
pub use load::{Format, LoadOptions, Loaded, load_bootstrap, load_message};
pub use message::{Any, Entry, Field, Item, Message, Value};
pub use outcome::{Outcome, load};
pub use reader::{AnyReader, Element, Reader};
pub use request::take_message;
pub use runtime::{Runtime, RuntimeOptions};
pub use unpack::unpack;
