//! The head of a request: method, target, authority, normalised path, version and fields.
//!
//! Filled by a codec ([`RequestHead::start`]) and by the rules ([`crate::admit_request`]); read by
//! router and filters; emitted by [`crate::write_request`]. Reused from request to request.

use std::ops::Range;

use crate::fields::Span;
use crate::{FieldError, Fields, HeaderId, Method, Scheme, Version, chars};

/// A request head. The authority is the one `Host` field: [`RequestHead::authority`] reads it and
/// [`RequestHead::set_authority`] writes it.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The fields. `Host` is among them once; hop-by-hop fields are gone after admission.
    pub fields: Fields,
    pub(crate) method: Method,
    pub(crate) method_at: Place,
    pub(crate) target_at: Place,
    pub(crate) path_at: Place,
    /// Length of the path without query; equals the whole length when there is none.
    pub(crate) path_len: u32,
    /// The received target is a path, and a query perhaps, that no rule on targets or paths has anything to say about.
    pub(crate) path_is_plain: bool,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) version: Version,
    /// The authority in lower case, when it was received with capitals.
    pub(crate) host_lower: Option<Span>,
}

/// Where a piece of the head lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub span: Span,
    pub in_arena: bool,
}

impl Place {
    pub(crate) fn block(range: Range<usize>) -> Self {
        Self { span: Span { start: range.start as u32, end: range.end as u32 }, in_arena: false }
    }

    pub(crate) fn arena(span: Span) -> Self {
        Self { span, in_arena: true }
    }
}

impl RequestHead {
    /// An empty head; allocates with the first request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, keeps the capacity.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.reset_line();
    }

    /// The method's meaning.
    #[inline]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method's bytes as received.
    #[inline]
    pub fn method_bytes(&self) -> &[u8] {
        self.at(self.method_at)
    }

    /// The request target exactly as received. Never to be matched or forwarded.
    #[inline]
    pub fn target(&self) -> &[u8] {
        self.at(self.target_at)
    }

    /// Path and query as matched and forwarded: normalised, begins with `/`, or is `*`; empty for CONNECT.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.at(self.path_at)
    }

    /// [`RequestHead::path`] without the query.
    #[inline]
    pub fn path_only(&self) -> &[u8] {
        self.path().get(..self.path_len as usize).unwrap_or_default()
    }

    /// The query without its `?`; `None` when there is no `?`.
    #[inline]
    pub fn query(&self) -> Option<&[u8]> {
        self.path().get(self.path_len as usize + 1..)
    }

    /// The authority as it is forwarded; empty for an HTTP/1.0 request that has none.
    #[inline]
    pub fn authority(&self) -> &[u8] {
        self.fields.get(HeaderId::Host).unwrap_or_default()
    }

    /// The authority in lower case, for matching.
    #[inline]
    pub fn host_lower(&self) -> &[u8] {
        let authority = self.authority();
        match self.host_lower {
            None => authority,
            Some(span) => {
                let lower = self.fields.arena_range(span);
                // A filter may have set `Host` behind our back; a stale copy must not be matched.
                if lower.eq_ignore_ascii_case(authority) { lower } else { authority }
            }
        }
    }

    /// The scheme that an absolute-form target named; `None` for the other forms.
    #[inline]
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// The version of the request line.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Replaces the method.
    ///
    /// # Errors
    /// [`FieldError::Name`] when it is no token.
    pub fn set_method(&mut self, method: &[u8]) -> Result<(), FieldError> {
        if !chars::is_token(method) {
            return Err(FieldError::Name);
        }
        self.method = Method::from_bytes(method);
        self.method_at = Place::arena(self.fields.stash(method));
        Ok(())
    }

    /// Replaces path and query, which must begin with `/` or be `*`. Not normalised again.
    ///
    /// # Errors
    /// [`FieldError::Value`] for anything else, and for blanks, controls and `#`, which no request line
    /// can carry.
    pub fn set_path(&mut self, path: &[u8]) -> Result<(), FieldError> {
        let shaped = path.first() == Some(&b'/') || path == b"*";
        if !shaped || path.iter().any(|&b| b <= b' ' || b == 0x7f || b == b'#') {
            return Err(FieldError::Value);
        }
        self.path_at = Place::arena(self.fields.stash(path));
        self.path_len = path_len(path);
        Ok(())
    }

    /// Replaces the authority (the `Host` field).
    ///
    /// # Errors
    /// [`FieldError::Value`] when it is outside the grammar of [`crate::check_authority`].
    pub fn set_authority(&mut self, authority: &[u8]) -> Result<(), FieldError> {
        let has_capitals = crate::host::scan_authority(authority).map_err(|_| FieldError::Value)?;
        self.fields.set(HeaderId::Host, authority)?;
        self.remember_lower_host(has_capitals);
        Ok(())
    }

    /// Sets the version, for a codec that reads heads of another one in the form of HTTP/1.1.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Sets the scheme, for forwarding to TLS or by a filter.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        self.scheme = Some(scheme);
    }

    /// For codecs: the request line, as ranges of the block that [`Fields::load`] took in. Path and
    /// authority stay empty until [`crate::admit_request`].
    #[inline]
    pub fn start(&mut self, method: Range<usize>, target: Range<usize>, version: Version) {
        self.reset_line();
        self.method_at = Place::block(method);
        self.target_at = Place::block(target);
        self.method = Method::from_bytes(self.at(self.method_at));
        self.version = version;
        if let Some(path_len) = crate::path::plain_path_len(self.at(self.target_at)) {
            self.path_is_plain = true;
            self.path_len = path_len as u32;
        }
    }

    /// Whether the target that [`RequestHead::start`] took is a path, and a query perhaps, of nothing but bytes that
    /// no rule refuses or changes; in particular it holds no blank. False is always possible.
    #[inline]
    pub fn has_plain_target(&self) -> bool {
        self.path_is_plain
    }

    /// The received request line and its CR LF as a range of the block, when emitting it as received equals
    /// emitting it afresh.
    #[inline]
    pub(crate) fn canonical_line(&self) -> Option<Range<usize>> {
        const END: &[u8] = b" HTTP/1.1\r\n";
        let (method, path) = (self.method_at, self.path_at);
        let untouched = !method.in_arena
            && path == self.target_at
            && !path.in_arena
            && path.span.start == method.span.end + 1
            && path.span.end > path.span.start;
        if !untouched {
            return None;
        }
        let end = path.span.end as usize;
        let is_end = self.fields.block().get(end..)?.starts_with(END);
        is_end.then(|| method.span.start as usize..end + END.len())
    }

    #[inline]
    pub(crate) fn at(&self, place: Place) -> &[u8] {
        if place.in_arena { self.fields.arena_range(place.span) } else { self.fields.block_range(place.span) }
    }

    /// Keeps a copy of the authority in lower case when it has capitals.
    pub(crate) fn remember_lower_host(&mut self, has_capitals: bool) {
        self.host_lower = None;
        if has_capitals {
            let lower = self.authority().to_ascii_lowercase();
            self.host_lower = Some(self.fields.stash(&lower));
        }
    }

    fn reset_line(&mut self) {
        self.method = Method::Get;
        self.method_at = Place::default();
        self.target_at = Place::default();
        self.path_at = Place::default();
        self.path_len = 0;
        self.path_is_plain = false;
        self.scheme = None;
        self.version = Version::Http11;
        self.host_lower = None;
    }
}

/// Length of the path before its query.
#[inline]
pub(crate) fn path_len(path: &[u8]) -> u32 {
    memchr::memchr(b'?', path).unwrap_or(path.len()) as u32
}
