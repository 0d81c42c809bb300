//! The one strict reading of HTTP: heads, fields, body framing, path and host rules, and heads on the wire.
//!
//! Every codec parses bytes into a [`RequestHead`] or [`ResponseHead`] and calls [`admit_request`] or
//! [`admit_response`] once. What comes out has exactly one authority, one [`BodyFraming`] and one path,
//! which router, filters and upstream all see and which is what gets forwarded. Whatever two
//! implementations could read differently is a [`Reject`], never a guess.
//!
//! This crate does no I/O, knows no clock and no other crate of the workspace, never panics on input, and
//! allocates nothing per message once its buffers have grown.
//!
//! | module | what |
//! |---|---|
//! | `header_id` | [`HeaderId`], [`HeaderName`]: well-known names as numbers |
//! | `fields` | [`Fields`]: received block, index, edits |
//! | `request`, `response` | [`RequestHead`], [`ResponseHead`] |
//! | `rules` | [`admit_request`], [`admit_response`], [`admit_trailers`], the settings |
//! | `framing` | [`BodyFraming`] and how it is decided |
//! | `path`, `host`, `uri` | [`normalize_path`], [`check_authority`], [`absolute_uri`] |
//! | `hop` | hop-by-hop fields |
//! | [`grpc`] | what gRPC puts on top of HTTP |
//! | `write` | [`write_request`], [`write_response`], [`write_trailers`] |
//! | [`reason`] | every refusal by name |

mod chars;
mod fields;
mod framing;
pub mod grpc;
mod header_id;
mod hop;
mod host;
mod method;
mod names;
mod path;
pub mod reason;
mod reject;
mod request;
mod response;
mod rules;
mod uri;
mod write;

pub use chars::{is_field_value, is_token, list_members, trim_ows, with_lower_case};
pub use fields::{FieldLine, FieldRef, Fields, MAX_INDEXED_FIELDS, MAX_NAME_BYTES, UsualHead};
pub use framing::{BodyFraming, content_length, request_framing, response_framing};
pub use header_id::{HeaderId, HeaderName};
pub use host::{check_authority, split_port};
pub use method::{Method, Scheme, Version};
pub use names::{ReceivedNames, capitalize_names, restore_names};
pub use path::{EscapedSlashes, Normalized, PathOptions, normalize_path};
pub use reject::{FieldError, Reject};
pub use request::RequestHead;
pub use response::{ResponseHead, reason_phrase};
pub use rules::{
    Aside, Asked, DEFAULT_MAX_FIELDS, DEFAULT_MAX_HEAD_BYTES, HeadLimits, RequestFacts, RequestRules, ResponseFacts,
    ResponseRules, Underscores, admit_request, admit_response, admit_trailers,
};
pub use uri::absolute_uri;
pub use write::{
    Connection, Decimal, RequestWrite, ResponseWrite, note_written, write_request, write_response, write_trailers,
};
