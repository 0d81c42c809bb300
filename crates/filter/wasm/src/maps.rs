//! Headers and trailers as modules see them: pairs, with the parts of the first line among them.

use postrider_http::{FieldError, Fields, HeaderId, RequestHead, ResponseHead, Scheme};

/// The types of maps.
pub(crate) const REQUEST_HEADERS: u32 = 0;
pub(crate) const REQUEST_TRAILERS: u32 = 1;
pub(crate) const RESPONSE_HEADERS: u32 = 2;
pub(crate) const RESPONSE_TRAILERS: u32 = 3;
pub(crate) const GRPC_INITIAL: u32 = 4;
pub(crate) const GRPC_TRAILING: u32 = 5;
pub(crate) const CALL_HEADERS: u32 = 6;
pub(crate) const CALL_TRAILERS: u32 = 7;

/// A map to look at.
#[derive(Clone, Copy)]
pub(crate) enum View<'a> {
    Nothing,
    Request(&'a RequestHead),
    Response(&'a ResponseHead),
    Trailers(&'a Fields),
}

impl View<'_> {
    /// Every pair, first the parts of the first line.
    pub(crate) fn each(&self, mut pair: impl FnMut(&[u8], &[u8])) {
        let fields = match self {
            View::Nothing => return,
            View::Request(head) => {
                for (name, value) in [
                    (":authority", head.authority()),
                    (":path", head.path()),
                    (":method", head.method_bytes()),
                    (":scheme", scheme(head)),
                ] {
                    if !value.is_empty() {
                        pair(name.as_bytes(), value);
                    }
                }
                head.fields
                    .iter()
                    .filter(|field| field.id != HeaderId::Host)
                    .for_each(|field| pair(field.name, field.value));
                return;
            }
            View::Response(head) => {
                pair(b":status", digits(head.status(), &mut [0; 5]));
                &head.fields
            }
            View::Trailers(fields) => fields,
        };
        fields.iter().for_each(|field| pair(field.name, field.value));
    }

    /// How many pairs, and the bytes of their names and values.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0);
        self.each(|name, value| {
            count += 1;
            bytes += name.len() + value.len();
        });
        (count, bytes)
    }

    pub(crate) fn count(&self) -> u32 {
        let parts = match self {
            View::Nothing => return 0,
            View::Request(head) => {
                let host = usize::from(head.fields.has(HeaderId::Host));
                let named =
                    [head.authority(), head.path(), scheme(head)].iter().filter(|part| !part.is_empty()).count();
                head.fields.len() + 1 + named - host
            }
            View::Response(head) => head.fields.len() + 1,
            View::Trailers(fields) => fields.len(),
        };
        u32::try_from(parts).unwrap_or(u32::MAX)
    }

    /// Appends the first value of that name; `false` when there is none.
    pub(crate) fn find(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        let mut short = [0; 64];
        let lower;
        let name = match short.get_mut(..name.len()) {
            Some(copy) => {
                copy.copy_from_slice(name);
                copy.make_ascii_lowercase();
                &*copy
            }
            None => {
                lower = name.to_ascii_lowercase();
                &lower[..]
            }
        };
        let mut status = [0; 5];
        let value = match (self, name) {
            (View::Nothing, _) => None,
            (View::Request(head), b":path") => Some(head.path()),
            (View::Request(head), b":method") => Some(head.method_bytes()),
            (View::Request(head), b":authority" | b"host") => Some(head.authority()),
            (View::Request(head), b":scheme") => Some(scheme(head)),
            (View::Response(head), b":status") => Some(digits(head.status(), &mut status)),
            (View::Request(head), name) => head.fields.get_name(name),
            (View::Response(head), name) => head.fields.get_name(name),
            (View::Trailers(fields), name) => fields.get_name(name),
        };
        // The parts of the first line are there when they are not empty.
        match value.filter(|value| !value.is_empty() || name.first() != Some(&b':')) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        }
    }
}

fn scheme(head: &RequestHead) -> &[u8] {
    match head.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => head.fields.get(HeaderId::XForwardedProto).unwrap_or(Scheme::Http.as_str().as_bytes()),
    }
}

fn digits(number: u16, out: &mut [u8; 5]) -> &[u8] {
    let mut rest = number;
    let mut start = out.len();
    while start > 0 {
        start -= 1;
        if let Some(digit) = out.get_mut(start) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.get(start..).unwrap_or_default()
}

/// A map to change.
pub(crate) enum Target<'a> {
    Request(&'a mut RequestHead),
    Response(&'a mut ResponseHead),
    Trailers(&'a mut Fields),
}

impl Target<'_> {
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        if self.set_part(name, value)? {
            return Ok(());
        }
        self.fields().append_name(&name.to_ascii_lowercase(), value)
    }

    pub(crate) fn replace(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        if self.set_part(name, value)? {
            return Ok(());
        }
        self.fields().set_name(&name.to_ascii_lowercase(), value)
    }

    /// The parts of the first line stay: without them there is no message.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        if name.first() != Some(&b':') {
            self.fields().remove_name(&name.to_ascii_lowercase());
        }
    }

    /// All of it, in the place of what is there.
    pub(crate) fn replace_all(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), FieldError> {
        let is_request = matches!(self, Target::Request(_));
        self.fields().retain(|field| is_request && field.id == HeaderId::Host);
        pairs.iter().try_for_each(|(name, value)| self.add(name, value))
    }

    fn fields(&mut self) -> &mut Fields {
        match self {
            Target::Request(head) => &mut head.fields,
            Target::Response(head) => &mut head.fields,
            Target::Trailers(fields) => fields,
        }
    }

    /// Whether the name is one of the first line's parts.
    fn set_part(&mut self, name: &[u8], value: &[u8]) -> Result<bool, FieldError> {
        match (self, &*name.to_ascii_lowercase()) {
            (Target::Request(head), b":path") => head.set_path(value)?,
            (Target::Request(head), b":method") => head.set_method(value)?,
            (Target::Request(head), b":authority" | b"host") => head.set_authority(value)?,
            (Target::Request(head), b":scheme") => match value {
                b"http" => head.set_scheme(Scheme::Http),
                b"https" => head.set_scheme(Scheme::Https),
                _ => return Err(FieldError::Value),
            },
            (Target::Response(head), b":status") => {
                let status = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let status = status.filter(|status| (200..=599).contains(status));
                head.set_status(status.ok_or(FieldError::Value)?);
            }
            (_, name) if name.first() == Some(&b':') => return Err(FieldError::Name),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RequestHead {
        let mut head = RequestHead::new();
        head.set_method(b"GET").unwrap();
        head.set_path(b"/p?q").unwrap();
        head.set_authority(b"host").unwrap();
        head.fields.append_name(b"x-a", b"1").unwrap();
        head.fields.append_name(b"x-a", b"2").unwrap();
        head
    }

    fn all(view: View<'_>) -> Vec<String> {
        let mut pairs = Vec::new();
        view.each(|name, value| {
            pairs.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        });
        assert_eq!(view.count() as usize, pairs.len());
        pairs
    }

    fn found(view: View<'_>, name: &str) -> Option<String> {
        let mut out = Vec::new();
        view.find(name.as_bytes(), &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_request_has_the_parts_of_its_line_among_its_pairs() {
        let head = request();
        let view = View::Request(&head);
        assert_eq!(all(view), [":authority=host", ":path=/p?q", ":method=GET", ":scheme=http", "x-a=1", "x-a=2"]);
        assert_eq!(view.size(), (6, "hosthost:path/p?q:methodGET:schemehttpx-a1x-a2".len() + ":authority".len() - 4));
        assert_eq!(found(view, ":Path").as_deref(), Some("/p?q"));
        assert_eq!(found(view, "Host").as_deref(), Some("host"));
        assert_eq!(found(view, "X-A").as_deref(), Some("1"));
        assert_eq!(found(view, "x-b"), None);
        assert_eq!(found(view, &"n".repeat(100)), None);
    }

    #[test]
    fn edits_keep_a_head_what_it_is() {
        let mut head = request();
        let mut target = Target::Request(&mut head);
        target.replace(b":path", b"/new").unwrap();
        target.replace(b":authority", b"other").unwrap();
        target.add(b"X-B", b"3").unwrap();
        target.replace(b"x-a", b"only").unwrap();
        assert!(target.replace(b":path", b"no slash").is_err());
        assert!(
            target.add(b"a b", b"").is_err() && target.add(b"a", b"\r\n").is_err() && target.add(b":x", b"").is_err()
        );
        target.remove(b":method");
        target.remove(b"x-b");
        assert_eq!(
            all(View::Request(&head)),
            [":authority=other", ":path=/new", ":method=GET", ":scheme=http", "x-a=only"]
        );
        let pairs: [(&[u8], &[u8]); 2] = [(b":path", b"/z"), (b"x-z", b"1")];
        Target::Request(&mut head).replace_all(&pairs).unwrap();
        assert_eq!(all(View::Request(&head)), [":authority=other", ":path=/z", ":method=GET", ":scheme=http", "x-z=1"]);
    }

    #[test]
    fn a_response_has_its_status() {
        let mut head = ResponseHead::new();
        head.set_status(404);
        let mut target = Target::Response(&mut head);
        target.add(b"a", b"1").unwrap();
        target.replace(b":status", b"201").unwrap();
        assert!(target.replace(b":status", b"99").is_err() && target.replace(b":status", b"x").is_err());
        assert_eq!(all(View::Response(&head)), [":status=201", "a=1"]);
        assert_eq!(found(View::Response(&head), ":status").as_deref(), Some("201"));
    }
}
