//! Which site's page a browser says that it asks for.

use std::borrow::Cow;

use postrider_http::{Fields, HeaderId};

/// The value of `origin`. A request that says it more than once has all of them in one, as Envoy reads them: no filter may
/// decide by the first and the service behind it by the last.
pub(crate) fn origin(fields: &Fields) -> Option<Cow<'_, [u8]>> {
    let mut all = fields.get_all(HeaderId::Origin);
    let first = all.next()?;
    let mut whole = Cow::Borrowed(first);
    for other in all {
        let whole = whole.to_mut();
        whole.push(b',');
        whole.extend_from_slice(other);
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_said_of_an_origin_counts_as_one() {
        let mut fields = Fields::default();
        assert_eq!(origin(&fields), None);
        fields.append(HeaderId::Origin, b"http://a").unwrap();
        assert_eq!(origin(&fields).as_deref(), Some(&b"http://a"[..]));
        fields.append(HeaderId::Origin, b"http://b").unwrap();
        assert_eq!(origin(&fields).as_deref(), Some(&b"http://a,http://b"[..]));
    }
}
