//! What of a request's head a service of the user's own is shown.

use postrider_http::{HeaderId, RequestHead};

/// How a request for an upgrade says that it is one.
const UPGRADE: &[u8] = b"Upgrade";

/// The headers with these names, in lower case; method, path, authority and scheme under the names that HTTP/2 gives
/// them. A request for an upgrade has its `connection`, which is not among the fields that are kept of it.
pub(crate) fn of_request(request: &RequestHead, wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let scheme = request.scheme().map_or("", |scheme| scheme.as_str());
    let parts = [
        (":authority", request.authority()),
        (":path", request.path()),
        (":method", request.method_bytes()),
        (":scheme", scheme.as_bytes()),
    ];
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in parts {
        if !value.is_empty() && wanted(name) {
            all.push((name.to_owned(), value.to_vec()));
        }
    }
    for field in request.fields.iter().filter(|field| field.id != HeaderId::Host) {
        let name = String::from_utf8_lossy(field.name);
        if wanted(&name) {
            all.push((name.into_owned(), field.value.to_vec()));
        }
    }
    if request.fields.has(HeaderId::Upgrade) && wanted("connection") {
        all.push(("connection".to_owned(), UPGRADE.to_vec()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_an_upgrade_was_shown_without_its_connection_header() {
        let mut request = RequestHead::new();
        request.fields.append_name(b"x-a", b"1").unwrap();
        let shown = |request: &RequestHead| {
            let all = of_request(request, |name| !name.starts_with(':')).into_iter();
            all.map(|(name, value)| format!("{name}: {}", String::from_utf8(value).unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(shown(&request), ["x-a: 1"]);
        request.fields.append_name(b"upgrade", b"websocket").unwrap();
        assert_eq!(shown(&request), ["x-a: 1", "upgrade: websocket", "connection: Upgrade"]);
        assert!(of_request(&request, |name| name == "x-a").iter().all(|(name, _)| name == "x-a"));
    }
}
