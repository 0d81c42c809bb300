//! Source text, spans and diagnostics shared by every configuration dialect.
//!
//! What it is for: a dialect (Envoy YAML, the short form, …) reads a [`SourceFile`], gives every value a [`Span`], and
//! reports what is wrong as [`Diagnostic`]s in one [`Diagnostics`] collection. The command line renders that collection
//! as text for people ([`render::text`]) or as JSON for machines ([`render::json`]).
//!
//! What it must never do: know a dialect's words, read a file, or stop at the first error.
//!
//! Who calls it: the dialect crates and the binary.

mod diagnostic;
mod nearest;
pub mod render;
mod source;

pub use diagnostic::{Diagnostic, Diagnostics, Fix, Severity};
pub use nearest::{edit_distance, nearest};
pub use source::{FileId, Position, SourceFile, Sources, Span};
