//! Compiled routing tables: from a request head to the virtual host and the route that serve it, and why.
//!
//! [`Table::compile`] runs on a control thread, once for each routing table that changed; workers share the result
//! and call [`Table::find`] once per request. The meaning is that of the document: the best domain picks the virtual
//! host, and the first of its routes whose conditions all hold wins. The cost is not: an index yields only the routes
//! whose path can match, in the order of the document, so ten thousand routes cost what one costs.
//!
//! [`Table::explain`] asks the same functions and keeps the reasons. [`rewrite_path`], [`rewrite_host`] and
//! [`redirect_location`] are what a chosen route does to path and authority.
//!
//! This crate does no I/O, never changes a request, and finding a route allocates nothing.

#![forbid(unsafe_code)]

mod conditions;
mod explain;
mod hosts;
mod paths;
mod pattern;
mod redirect;
mod rewrite;
mod table;
mod text_map;
mod trie;

pub use conditions::{HeaderTest, Nothing, Surroundings, query_value};
pub use explain::{Explanation, Outcome, Tried, TriedHost};
pub use pattern::{Judge, Judges};
pub use redirect::{redirect_location, rewritten_by_redirect};
pub use rewrite::{replace_path, rewrite_host, rewrite_path};
pub use table::{Found, Table};
