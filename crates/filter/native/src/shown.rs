//! What of a request's head a service of the user's own is shown.

use postrider_http::{HeaderId, RequestHead};

/// The headers with these names, in lower case; method, path, authority and scheme under the names that HTTP/2 gives
/// them.
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
    all
}
