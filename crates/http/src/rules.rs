//! Admission of a parsed head: the rules that hold whatever codec read it.
//!
//! A codec calls [`admit_request`] or [`admit_response`] once, when the head is complete; after that the
//! head has one authority, one framing, a normalised path and no hop-by-hop field, and may be matched
//! and forwarded. Nothing here looks at a socket, a clock or a route.

use crate::header_id::IdSet;
use crate::hop::{self, ConnectionOptions};
use crate::host::scan_authority;
use crate::request::{Place, path_len};
use crate::{
    BodyFraming, Fields, HeaderId, Method, Normalized, PathOptions, Reject, RequestHead, ResponseHead, Scheme, Version,
    normalize_path, reason, request_framing, response_framing,
};

/// Default limit on the bytes of a head: Envoy's `max_request_headers_kb` of 60.
pub const DEFAULT_MAX_HEAD_BYTES: usize = 60 * 1024;

/// Default limit on the number of fields in a head: Envoy's `max_headers_count`.
pub const DEFAULT_MAX_FIELDS: usize = 100;

/// Limits on one head, start line included; trailers have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first byte of the start line to the end of the empty line.
    pub max_bytes: usize,
    /// Number of field lines.
    pub max_fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { max_bytes: DEFAULT_MAX_HEAD_BYTES, max_fields: DEFAULT_MAX_FIELDS }
    }
}

/// How requests are read. The default is the safe one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Limits on the head.
    pub limits: HeadLimits,
    /// How paths are read.
    pub path: PathOptions,
    /// What happens to header names with an underscore.
    pub underscores: Underscores,
    /// Take HTTP/1.0 requests (Envoy: `accept_http_10`); else 426.
    pub accept_http_10: bool,
    /// Authority of an HTTP/1.0 request without Host (Envoy: `default_host_for_http_10`). Must pass
    /// [`crate::check_authority`].
    pub default_host_for_http_10: Option<Box<[u8]>>,
    /// Take any token as method (Envoy: `allow_custom_methods`).
    pub allow_custom_methods: bool,
    /// Take Content-Length beside Transfer-Encoding and drop it (Envoy: `allow_chunked_length`).
    pub allow_chunked_length: bool,
    /// Answer 404 to targets in absolute form (Envoy: `allow_absolute_url: false`).
    pub refuse_absolute_targets: bool,
    /// Requests that are refused although they are well-formed are no reason to end their connection (Envoy:
    /// `stream_error_on_invalid_http_message`).
    pub spare_connections: bool,
    /// Pass a `Proxy` field on (it becomes `HTTP_PROXY` in CGI programs); default: dropped.
    pub keep_proxy_header: bool,
}

/// What happens to header names with an underscore (Envoy: `headers_with_underscores_action`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Underscores {
    /// Refuse the ones that differ from a framing, hop-by-hop, host or forwarding name only by `_`.
    #[default]
    RejectLookalikes,
    /// Pass all.
    Allow,
    /// Refuse any.
    Reject,
    /// Remove any.
    Drop,
}

/// How responses are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseRules {
    /// Limits on the head.
    pub limits: HeadLimits,
}

/// What admission found out about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// How the body ends: never [`BodyFraming::UntilClose`].
    pub framing: BodyFraming,
    /// The client lets the connection live on after this exchange (RFC 9112 9.3).
    pub persistent: bool,
    /// The client waits for 100 before it sends the body; the field itself is gone (RFC 9110 10.1.1).
    pub expects_continue: bool,
    /// An upgrade other than h2c is asked for; the `Upgrade` field is still there. When it is false the
    /// field is gone.
    pub upgrade: bool,
    /// The request is well-formed, but is to be answered in another way than by its route.
    pub aside: Aside,
    /// Fields that were left out for an underscore in their names ([`Underscores::Drop`]).
    pub dropped_names: u32,
}

/// How a well-formed request is answered where that is not for its route to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aside {
    /// Its route says it.
    #[default]
    None,
    /// The client is to be sent to [`RequestHead::path`] with 307 ([`crate::EscapedSlashes`]).
    RedirectToPath,
    /// 404, for a target in absolute form where none is taken ([`RequestRules::refuse_absolute_targets`]). The path is
    /// the whole target.
    AbsoluteTarget,
    /// 400, for want of a host. The connection goes on ([`RequestRules::spare_connections`]), and so below.
    MissingHost,
    /// 400, for a path that cannot be normalised safely.
    BadPath,
}

impl Aside {
    /// What the client is told; `None` where it is no refusal.
    pub fn refusal(self) -> Option<Reject> {
        match self {
            Self::None | Self::RedirectToPath => None,
            Self::AbsoluteTarget => Some(reason::ABSOLUTE_TARGET),
            Self::MissingHost => Some(reason::MISSING_HOST),
            Self::BadPath => Some(reason::PATH_NORMALIZATION),
        }
    }
}

/// What admission found out about a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseFacts {
    /// How the body ends.
    pub framing: BodyFraming,
    /// The upstream lets the connection live on (RFC 9112 9.3). False for [`BodyFraming::UntilClose`].
    pub persistent: bool,
    /// It says itself that it ends the connection.
    pub closes: bool,
    /// A 1xx other than 101: another head follows.
    pub interim: bool,
    /// A 101 that answers our upgrade, or a 2xx to CONNECT: what follows is a tunnel.
    pub tunnel: bool,
}

/// What was asked, as far as the answer's meaning depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Method that was sent upstream.
    pub method: Method,
    /// The request sent upstream carried `Connection: upgrade`.
    pub upgrade: bool,
}

/// Reads the meaning of a complete request head and makes it fit to match and forward.
///
/// # Errors
/// The status and token to answer with. The head then holds what was read so far, for the access log.
pub fn admit_request(head: &mut RequestHead, rules: &RequestRules) -> Result<RequestFacts, Reject> {
    if head.version == Version::Http10 && !rules.accept_http_10 {
        return Err(reason::LOW_VERSION);
    }
    if head.method == Method::Other && !rules.allow_custom_methods && !crate::method::is_registered(head.method_bytes())
    {
        return Err(reason::INVALID_METHOD);
    }
    // Most requests have none of these fields, and then there is nothing to decide or to take out.
    let has_special = head.fields.may_have(SPECIAL_IN_REQUESTS);
    let framing = if has_special { request_framing(head, rules.allow_chunked_length)? } else { BodyFraming::None };
    if framing == BodyFraming::Chunked {
        head.fields.remove(HeaderId::ContentLength);
    }
    let aside = match admit_target(head, rules) {
        Ok(aside) => aside,
        Err(reject) => aside_of(reject).filter(|_| rules.spare_connections).ok_or(reject)?,
    };
    let dropped_names = admit_names(&mut head.fields, rules)?;
    if !has_special {
        let persistent = is_persistent(head.version, ConnectionOptions::default());
        return Ok(RequestFacts { framing, persistent, aside, dropped_names, ..RequestFacts::default() });
    }
    let expects_continue = admit_expect(head)?;
    let connection = hop::strip_request(&mut head.fields, head.version)?;
    Ok(RequestFacts {
        framing,
        persistent: is_persistent(head.version, connection),
        expects_continue,
        upgrade: connection.upgrade,
        aside,
        dropped_names,
    })
}

#[inline]
fn admit_target(head: &mut RequestHead, rules: &RequestRules) -> Result<Aside, Reject> {
    if let aside @ Aside::AbsoluteTarget = admit_authority_and_path(head, rules)? {
        return Ok(aside);
    }
    let redirects = !head.path_is_plain && normalize(head, &rules.path)?;
    Ok(if redirects { Aside::RedirectToPath } else { Aside::None })
}

/// A refusal that says nothing against what follows the request on its connection.
#[cold]
fn aside_of(reject: Reject) -> Option<Aside> {
    match reject {
        reason::MISSING_HOST => Some(Aside::MissingHost),
        reason::PATH_NORMALIZATION => Some(Aside::BadPath),
        _ => None,
    }
}

/// Reads the meaning of a complete response head and makes it fit to forward.
///
/// # Errors
/// A [`Reject`] with status 502: the client must not see this answer.
pub fn admit_response(head: &mut ResponseHead, asked: Asked) -> Result<ResponseFacts, Reject> {
    let status = head.status();
    // RFC 9110 15: the first digit defines the class; others are handled as an invalid response.
    if !(100..=599).contains(&status) {
        return Err(reason::INVALID_STATUS);
    }
    if status == 101 && !asked.upgrade {
        return Err(reason::UNEXPECTED_101);
    }
    let framing = response_framing(head, asked.method)?;
    let connection = hop::strip_response(&mut head.fields, status == 101)?;
    // RFC 9110 7.8: a 101 names the protocol it switches to.
    if status == 101 && !head.fields.has(HeaderId::Upgrade) {
        return Err(reason::UNEXPECTED_101);
    }
    let connect_tunnel = asked.method == Method::Connect && (200..300).contains(&status);
    let closes = !is_persistent(head.version(), connection);
    Ok(ResponseFacts {
        framing,
        persistent: framing != BodyFraming::UntilClose && !closes,
        closes,
        interim: status < 200 && status != 101,
        tunnel: status == 101 || connect_tunnel,
    })
}

/// Drops from trailers what must not stand there: framing, routing, hop-by-hop, authentication and
/// response-control fields (RFC 9110 6.5.1), look-alikes of them, and `Proxy`.
pub fn admit_trailers(trailers: &mut Fields) {
    trailers.retain(|field| !hop::is_forbidden_trailer(field));
}

fn is_persistent(version: Version, connection: ConnectionOptions) -> bool {
    // RFC 9112 9.3: close wins; HTTP/1.1 persists; HTTP/1.0 only when it says so.
    !connection.close && (version == Version::Http11 || connection.keep_alive)
}

/// The fields that framing, expectation and hop-by-hop rules are about.
const SPECIAL_IN_REQUESTS: IdSet = HeaderId::ContentLength.noted_bit()
    | HeaderId::TransferEncoding.noted_bit()
    | HeaderId::Expect.noted_bit()
    | HeaderId::Connection.noted_bit()
    | HeaderId::KeepAlive.noted_bit()
    | HeaderId::ProxyConnection.noted_bit()
    | HeaderId::Upgrade.noted_bit()
    | HeaderId::Te.noted_bit()
    | HeaderId::Http2Settings.noted_bit();

/// RFC 9112 3.2 and 3.3: one authority and one path out of target and Host.
fn admit_authority_and_path(head: &mut RequestHead, rules: &RequestRules) -> Result<Aside, Reject> {
    if head.fields.is_repeated(HeaderId::Host) {
        return Err(reason::MULTIPLE_HOSTS);
    }
    if head.path_is_plain && head.method != Method::Connect {
        head.path_at = head.target_at;
        return admit_host(head, rules).map(|()| Aside::None);
    }
    let target = head.at(head.target_at);
    // RFC 9112 3.2.1: no form of the target has a fragment.
    match memchr::memchr(b'#', target) {
        None => {}
        Some(0) => return Err(reason::INVALID_TARGET),
        Some(_) => return Err(reason::FRAGMENT),
    }
    if !target.is_ascii() {
        return Err(reason::INVALID_TARGET);
    }
    if head.method == Method::Connect {
        return admit_connect(head).map(|()| Aside::None);
    }
    match target.first() {
        Some(b'/') => {
            head.path_at = head.target_at;
        }
        Some(b'*') if target.len() == 1 => {
            // RFC 9112 3.2.4: asterisk-form is for a server-wide OPTIONS only.
            if head.method != Method::Options {
                return Err(reason::INVALID_URL);
            }
            head.path_at = head.target_at;
        }
        _ if rules.refuse_absolute_targets && memchr::memmem::find(target, b"://").is_some() => {
            head.path_at = head.target_at;
            head.path_len = path_len(head.at(head.path_at));
            return admit_host(head, rules).map(|()| Aside::AbsoluteTarget);
        }
        _ => return admit_absolute(head).map(|()| Aside::None),
    }
    head.path_len = path_len(head.at(head.path_at));
    admit_host(head, rules).map(|()| Aside::None)
}

/// The authority of a request whose target has none.
#[inline]
fn admit_host(head: &mut RequestHead, rules: &RequestRules) -> Result<(), Reject> {
    let has_capitals = match head.fields.get(HeaderId::Host) {
        Some(host) => scan_authority(host)?,
        None => match &rules.default_host_for_http_10 {
            Some(host) if head.version == Version::Http10 => {
                let has_capitals = scan_authority(host)?;
                head.fields.append(HeaderId::Host, host).map_err(|_| reason::INVALID_AUTHORITY)?;
                has_capitals
            }
            // RFC 9112 3.2: 400 for HTTP/1.1; HTTP/1.0 has no authority to route by either.
            _ => return Err(reason::MISSING_HOST),
        },
    };
    head.remember_lower_host(has_capitals);
    Ok(())
}

/// RFC 9112 3.2.2: the target's authority replaces any Host.
fn admit_absolute(head: &mut RequestHead) -> Result<(), Reject> {
    let target = head.at(head.target_at);
    let Some(colon) = memchr::memmem::find(target, b"://") else {
        return Err(reason::INVALID_TARGET);
    };
    let scheme = match target.get(..colon) {
        Some(name) if name.eq_ignore_ascii_case(b"http") => Scheme::Http,
        Some(name) if name.eq_ignore_ascii_case(b"https") => Scheme::Https,
        _ => return Err(reason::INVALID_SCHEME),
    };
    let rest = target.get(colon + 3..).unwrap_or_default();
    let authority_len = memchr::memchr3(b'/', b'?', b'\\', rest).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(authority_len).unwrap_or((rest, b""));
    if authority.is_empty() {
        return Err(reason::INVALID_URL);
    }
    let has_capitals = scan_authority(authority)?;
    let authority = authority.to_vec();
    let start = head.target_at.span.start as usize + colon + 3 + authority_len;
    let path_at = match path.first() {
        Some(b'/') => Place::block(start..start + path.len()),
        // RFC 9112 3.2.4: an OPTIONS without a path means the server as a whole.
        None if head.method == Method::Options => Place::arena(head.fields.stash(b"*")),
        None => Place::arena(head.fields.stash(b"/")),
        Some(b'?') => {
            let rooted = [b"/", path].concat();
            Place::arena(head.fields.stash(&rooted))
        }
        Some(_) => return Err(reason::INVALID_URL),
    };
    head.path_at = path_at;
    head.path_len = path_len(head.at(path_at));
    head.scheme = Some(scheme);
    head.fields.set(HeaderId::Host, &authority).map_err(|_| reason::INVALID_AUTHORITY)?;
    head.remember_lower_host(has_capitals);
    Ok(())
}

/// RFC 9110 9.3.6, RFC 9112 3.2.3: the target of CONNECT is `host:port`.
fn admit_connect(head: &mut RequestHead) -> Result<(), Reject> {
    let target = head.at(head.target_at).to_vec();
    let has_capitals = scan_authority(&target)
        .map_err(|reject| if reject == reason::USERINFO { reject } else { reason::INVALID_URL })?;
    if crate::split_port(&target).1.is_none_or(<[u8]>::is_empty) {
        return Err(reason::INVALID_URL);
    }
    head.fields.set(HeaderId::Host, &target).map_err(|_| reason::INVALID_AUTHORITY)?;
    head.remember_lower_host(has_capitals);
    Ok(())
}

/// Normalises the path in place of the received one; true when a redirect is due.
fn normalize(head: &mut RequestHead, options: &PathOptions) -> Result<bool, Reject> {
    let received = head.path_at;
    let (path, arena) = head.fields.path_and_arena(received.span, received.in_arena);
    if path.first() != Some(&b'/') {
        return Ok(false);
    }
    let start = arena.len();
    let how = match path {
        std::borrow::Cow::Borrowed(path) => normalize_path(path, options, arena)?,
        std::borrow::Cow::Owned(path) => normalize_path(&path, options, arena)?,
    };
    if how == Normalized::Unchanged {
        return Ok(false);
    }
    let end = arena.len();
    head.path_at = Place::arena(crate::fields::Span { start: start as u32, end: end as u32 });
    head.path_len = path_len(head.at(head.path_at));
    Ok(how == Normalized::Redirect)
}

/// Underscore policy and `Proxy`; answers how many fields were left out for the former.
fn admit_names(fields: &mut Fields, rules: &RequestRules) -> Result<u32, Reject> {
    if !rules.keep_proxy_header {
        fields.remove(HeaderId::Proxy);
    }
    match rules.underscores {
        Underscores::Allow => {}
        Underscores::Drop => {
            let mut dropped = 0;
            fields.retain(|field| {
                let stays = !field.name.contains(&b'_');
                dropped += u32::from(!stays);
                stays
            });
            return Ok(dropped);
        }
        Underscores::Reject => {
            if fields.odd_names().any(|name| name.contains(&b'_')) {
                return Err(reason::UNDERSCORE);
            }
        }
        Underscores::RejectLookalikes => {
            if fields.odd_names().any(hop::is_lookalike) {
                return Err(reason::UNDERSCORE);
            }
        }
    }
    Ok(0)
}

/// RFC 9110 10.1.1: `100-continue` is ours to answer; anything else is refused. HTTP/1.0 clients cannot
/// expect anything.
fn admit_expect(head: &mut RequestHead) -> Result<bool, Reject> {
    if !head.fields.has(HeaderId::Expect) {
        return Ok(false);
    }
    let all_continue = head.fields.get_all(HeaderId::Expect).all(|value| value.eq_ignore_ascii_case(b"100-continue"));
    if !all_continue && head.version == Version::Http11 {
        return Err(reason::EXPECTATION_FAILED);
    }
    head.fields.remove(HeaderId::Expect);
    Ok(head.version == Version::Http11)
}
