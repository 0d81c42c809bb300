//! Heads and trailers as the `h2` crate takes them.

use std::io;

use bytes::Bytes;
use h2::ext::Protocol;
use http::header::{self, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SERVER, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use postrider_http::{BodyFraming, Decimal, FieldLine, FieldRef, Fields, HeaderId, RequestHead, ResponseHead, Scheme};

/// A final response. `server` replaces the head's own `server` fields; `framing` gives the length.
pub(super) fn response(
    head: &ResponseHead,
    framing: BodyFraming,
    keep_length: bool,
    server: Option<&FieldLine>,
) -> Response<()> {
    // A length that says what is true stays, too.
    let own_length = match framing {
        BodyFraming::None => keep_length,
        framing => says_length(&head.fields, framing),
    };
    let length_follows = !own_length && framing.length().is_some();
    let more = usize::from(server.is_some()) + usize::from(length_follows);
    let mut map = map_of(&head.fields, more, |id| match id {
        HeaderId::Server => server.is_none(),
        HeaderId::ContentLength => own_length,
        _ => true,
    });
    // RFC 8441 section 5: an upgrade succeeds with a 2xx, and without the handshake of HTTP/1.
    let status = if head.status() == 101 {
        map.remove(SEC_WEBSOCKET_ACCEPT);
        200
    } else {
        head.status()
    };
    if let Some(server) = server
        && let Ok(value) = HeaderValue::from_bytes(server.value())
    {
        map.insert(SERVER, value);
    }
    // What HTTP/1 needs to say where a bodyless answer ends, HTTP/2 says by itself.
    if let Some(length) = framing.length().filter(|_| !own_length) {
        map.insert(CONTENT_LENGTH, length.into());
    }
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = map;
    response
}

/// The only length among `fields` is that of `framing`.
fn says_length(fields: &Fields, framing: BodyFraming) -> bool {
    let Some(length) = framing.length() else { return false };
    let mut said = fields.get_all(HeaderId::ContentLength);
    said.next() == Some(Decimal::new(length).as_bytes()) && said.next().is_none()
}

/// A request; the authority takes the place of `host`. An `upgrade` becomes an extended CONNECT for it (RFC 8441).
///
/// # Errors
/// `InvalidInput` when path or authority have no form in HTTP/2.
pub(super) fn request(head: &RequestHead, framing: BodyFraming, upgrade: Option<&[u8]>) -> io::Result<Request<()>> {
    let mut map = map_of(&head.fields, 2, |id| !matches!(id, HeaderId::Host | HeaderId::ContentLength));
    if let Some(length) = framing.length() {
        map.insert(CONTENT_LENGTH, length.into());
    }
    // gRPC asks whether its trailers come through (RFC 9110 section 10.1.4): here they do.
    let is_grpc = head.fields.get(HeaderId::ContentType).is_some_and(|kind| kind.starts_with(b"application/grpc"));
    if is_grpc {
        map.insert(TE, HeaderValue::from_static("trailers"));
    }
    let scheme = head.scheme().map_or("http", Scheme::as_str);
    let path = if head.path().is_empty() { b"/" } else { head.path() };
    let uri = match (head.method(), upgrade) {
        // RFC 9113 section 8.5: it has neither scheme nor path.
        (postrider_http::Method::Connect, None) => Uri::builder().authority(head.authority()).build(),
        _ => Uri::builder().scheme(scheme).authority(head.authority()).path_and_query(path).build(),
    };
    let unfit = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut request = Request::new(());
    *request.uri_mut() = uri.map_err(|_| unfit())?;
    *request.method_mut() = match upgrade {
        Some(protocol) => {
            let protocol = std::str::from_utf8(protocol).map_err(|_| unfit())?;
            request.extensions_mut().insert(Protocol::from(protocol));
            Method::CONNECT
        }
        None => Method::from_bytes(head.method_bytes()).map_err(|_| unfit())?,
    };
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = map;
    Ok(request)
}

pub(super) fn trailers(fields: &Fields) -> HeaderMap {
    map_of(fields, 0, |id| id != HeaderId::ContentLength)
}

/// A map of those fields that `wanted` wants and that HTTP/2 knows (RFC 9113 section 8.2.2), with room for `more`: each size
/// of a map is twice the one before. All values share one allocation.
fn map_of(fields: &Fields, more: usize, wanted: impl Fn(HeaderId) -> bool) -> HeaderMap {
    let carried = || fields.iter().filter(|field| !is_of_connection(field.id) && wanted(field.id));
    let (count, bytes) = carried().fold((0, 0), |(count, bytes), field| (count + 1, bytes + field.value.len()));
    let mut map = HeaderMap::with_capacity(count + more);
    let mut values = Vec::with_capacity(bytes);
    carried().for_each(|field| values.extend_from_slice(field.value));
    let values = Bytes::from(values);
    let mut start = 0;
    for field in carried() {
        let end = start + field.value.len();
        let value = values.slice(start..end);
        start = end;
        // Both were checked when they were received or set.
        if let (Some(name), Ok(value)) = (name(&field), HeaderValue::from_maybe_shared(value)) {
            map.append(name, value);
        }
    }
    map
}

/// Looking a name up by its bytes costs more than all else here, so those that most heads have are known.
fn name(field: &FieldRef<'_>) -> Option<HeaderName> {
    Some(match field.id {
        HeaderId::Accept => header::ACCEPT,
        HeaderId::AcceptEncoding => header::ACCEPT_ENCODING,
        HeaderId::AcceptLanguage => header::ACCEPT_LANGUAGE,
        HeaderId::AcceptRanges => header::ACCEPT_RANGES,
        HeaderId::Age => header::AGE,
        HeaderId::Authorization => header::AUTHORIZATION,
        HeaderId::CacheControl => header::CACHE_CONTROL,
        HeaderId::ContentEncoding => header::CONTENT_ENCODING,
        HeaderId::ContentLength => header::CONTENT_LENGTH,
        HeaderId::ContentType => header::CONTENT_TYPE,
        HeaderId::Cookie => header::COOKIE,
        HeaderId::Date => header::DATE,
        HeaderId::Etag => header::ETAG,
        HeaderId::Expires => header::EXPIRES,
        HeaderId::LastModified => header::LAST_MODIFIED,
        HeaderId::Location => header::LOCATION,
        HeaderId::Server => header::SERVER,
        HeaderId::SetCookie => header::SET_COOKIE,
        HeaderId::UserAgent => header::USER_AGENT,
        HeaderId::Vary => header::VARY,
        _ => return HeaderName::from_bytes(field.name).ok(),
    })
}

fn is_of_connection(id: HeaderId) -> bool {
    matches!(
        id,
        HeaderId::Connection
            | HeaderId::KeepAlive
            | HeaderId::ProxyConnection
            | HeaderId::TransferEncoding
            | HeaderId::Upgrade
    )
}
