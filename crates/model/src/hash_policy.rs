//! What of a request decides on its host, where hosts are chosen by a hash.

use crate::Regex;

/// One of several; their hashes are combined in order.
#[derive(Debug, Clone, PartialEq)]
pub struct HashPolicy {
    pub source: HashSource,
    /// With a hash at hand, those behind it are not looked at.
    pub terminal: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum HashSource {
    Header {
        /// In lower case.
        name: String,
        /// What is hashed instead: the value with every match replaced.
        rewrite: Option<(Regex, String)>,
    },
    Cookie(HashCookie),
    /// The client's address.
    SourceIp,
    /// The first of this name.
    QueryParameter(String),
    /// A text that a filter noted under this name.
    FilterState(String),
}

/// A cookie that the proxy may make itself.
#[derive(Debug, Clone, PartialEq)]
pub struct HashCookie {
    pub name: String,
    /// Seconds; 0 is a cookie of the session. Without, none is made.
    pub ttl: Option<u64>,
    /// May be empty.
    pub path: String,
    /// Names and values; a value may be empty.
    pub attributes: Vec<(String, String)>,
}
