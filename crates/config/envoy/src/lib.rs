//! Envoy's v3 configuration: from YAML, JSON, binary or text protobuf to messages with places, and on to the model.
mod coverage;
pub mod known;
pub mod lower;
pub mod message;
mod reader;
mod time;
pub mod write;

pub use coverage::{Coverage, Mark, Status, Support, UnsupportedPolicy};
pub use message::{Any, Entry, Field, Item, Message, Value};
pub use reader::{AnyReader, Element, Reader};
