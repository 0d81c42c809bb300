//! What of a client's request a service is shown, whatever it speaks.

use postrider_http::RequestHead;

use crate::shown;

/// Tells the service whether it sees all of the body. One that a client sent is not passed on.
pub(super) const PARTIAL_BODY: &str = "x-envoy-auth-partial-body";

/// The headers with these names, in lower case.
pub(super) fn carried(request: &RequestHead, wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    shown::of_request(request, |name| name != PARTIAL_BODY && wanted(name))
}

/// Lines of one name as one, with commas.
pub(super) fn joined(lines: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in lines {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, joined)) => {
                joined.push(b',');
                joined.extend_from_slice(&value);
            }
            None => all.push((name, value)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_name_are_joined() {
        let line = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        let all = joined(vec![line("a", b"1"), line("b", b"2"), line("a", b"3")]);
        assert_eq!(all, [line("a", b"1,3"), line("b", b"2")]);
    }
}
