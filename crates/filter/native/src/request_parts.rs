//! Parts of a request's head that several filters look at: headers by any name, parameters of the query, cookies.

use std::borrow::Cow;

use postrider_http::RequestHead;

/// The values of a header's lines; of the parts of the head that HTTP/2 calls headers as well.
pub(crate) fn header<'r>(request: &'r RequestHead, name: &str) -> Vec<&'r [u8]> {
    match name {
        ":method" => vec![request.method_bytes()],
        ":path" => vec![request.path()],
        ":authority" => vec![request.authority()],
        ":scheme" => request.scheme().map(|scheme| scheme.as_str().as_bytes()).into_iter().collect(),
        name => request.fields.get_all_name(name.as_bytes()).collect(),
    }
}

/// The first value of a query parameter, decoded; one without `=` has an empty value.
pub(crate) fn parameter(request: &RequestHead, name: &str) -> Option<String> {
    let query = request.query()?;
    let mut pairs = query.split(|byte| *byte == b'&').map(key_and_value);
    let (_, value) = pairs.find(|(key, _)| decoded(key) == name.as_bytes())?;
    Some(String::from_utf8_lossy(&decoded(value)).into_owned())
}

/// Percent-encoded bytes as what they stand for.
fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    Cow::Owned(out)
}

fn key_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=');
    let split = at.and_then(|at| Some((pair.get(..at)?, pair.get(at + 1..)?)));
    split.unwrap_or((pair, b""))
}
