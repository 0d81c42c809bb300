//! Answers that a filter gives itself.

use crate::abi::Header;

/// An answer in the place of the upstream's.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) details: String,
}

impl Reply {
    /// With a status from 200 to 599.
    pub fn new(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    /// With one more field.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Reply {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With a body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Reply {
        self.body = body.into();
        self
    }

    /// With the reason that access logs tell as `%RESPONSE_CODE_DETAILS%`. Log readers want one word.
    pub fn details(mut self, details: impl Into<String>) -> Reply {
        self.details = details.into();
        self
    }

    pub(crate) fn fields(&self) -> Vec<Header> {
        fields(&self.headers)
    }
}

/// Fields as the proxy takes them, for as long as `from` is there.
pub(crate) fn fields(from: &[(String, Vec<u8>)]) -> Vec<Header> {
    from.iter().map(|(name, value)| Header::of(name.as_bytes(), value)).collect()
}
