//! Heads as Go code sees them: fields with the parts of the first line among them, under names that begin with a colon.

use postrider_http::{Fields, HeaderId, RequestHead, ResponseHead, Scheme};

/// A change that Go code makes.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Set(Vec<u8>, Vec<u8>),
    Add(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

impl Edit {
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Edit::Set(name, _) | Edit::Add(name, _) | Edit::Remove(name) => name,
        }
    }
}

pub(crate) fn each_of_request(head: &RequestHead, tls: bool, call: &mut dyn FnMut(&[u8], &[u8])) {
    let parts = [(&b":authority"[..], head.authority()), (b":path", head.path()), (b":method", head.method_bytes())];
    for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
        call(name, value);
    }
    call(b":scheme", scheme(head, tls));
    // The authority is told already.
    head.fields.iter().filter(|field| field.id != HeaderId::Host).for_each(|field| call(field.name, field.value));
}

pub(crate) fn each_of_response(head: &ResponseHead, call: &mut dyn FnMut(&[u8], &[u8])) {
    let status = head.status();
    let digits = [100, 10, 1].map(|unit| b'0' + u8::try_from(status / unit % 10).unwrap_or_default());
    call(b":status", &digits);
    each_of(&head.fields, call);
}

pub(crate) fn each_of(fields: &Fields, call: &mut dyn FnMut(&[u8], &[u8])) {
    fields.iter().for_each(|field| call(field.name, field.value));
}

fn scheme(head: &RequestHead, tls: bool) -> &[u8] {
    match head.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => head.fields.get(HeaderId::XForwardedProto).unwrap_or(if tls { b"https" } else { b"http" }),
    }
}

/// What cannot stand in a head is left out.
pub(crate) fn edit_request(head: &mut RequestHead, edit: &Edit) {
    let (Edit::Set(name, value) | Edit::Add(name, value)) = edit else {
        if !edit.name().starts_with(b":") {
            head.fields.remove_name(edit.name());
        }
        return;
    };
    let _ = match name.as_slice() {
        b":path" => head.set_path(value),
        b":method" => head.set_method(value),
        b":authority" | b"host" => head.set_authority(value),
        b":scheme" => {
            match value.as_slice() {
                b"http" => head.set_scheme(Scheme::Http),
                b"https" => head.set_scheme(Scheme::Https),
                _ => {}
            }
            Ok(())
        }
        _ => return edit_fields(&mut head.fields, edit),
    };
}

pub(crate) fn edit_response(head: &mut ResponseHead, edit: &Edit) {
    match edit {
        Edit::Set(name, value) | Edit::Add(name, value) if name == b":status" => {
            let status = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            if let Some(status) = status.filter(|status| (200..=599).contains(status)) {
                head.set_status(status);
            }
        }
        _ => edit_fields(&mut head.fields, edit),
    }
}

pub(crate) fn edit_fields(fields: &mut Fields, edit: &Edit) {
    if edit.name().starts_with(b":") {
        return;
    }
    let _ = match edit {
        Edit::Set(name, value) => fields.set_name(name, value),
        Edit::Add(name, value) => fields.append_name(name, value),
        Edit::Remove(name) => {
            fields.remove_name(name);
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(name: &str, value: &str) -> Edit {
        Edit::Set(name.into(), value.into())
    }

    #[test]
    fn the_first_line_is_read_and_edited_as_fields() {
        let mut head = RequestHead::new();
        head.set_method(b"GET").unwrap();
        head.set_authority(b"a").unwrap();
        head.set_path(b"/x").unwrap();
        head.fields.append_name(b"A", b"1").unwrap();
        let told = |head: &RequestHead| {
            let mut told = Vec::new();
            each_of_request(head, false, &mut |name, value| told.push([name, b"=", value].concat()));
            String::from_utf8(told.join(&b' ')).unwrap()
        };
        assert_eq!(told(&head), ":authority=a :path=/x :method=GET :scheme=http a=1");
        for (name, value) in [(":path", "/y"), ("host", "b"), (":method", "POST"), (":scheme", "https"), ("a", "2")] {
            edit_request(&mut head, &edit(name, value));
        }
        edit_request(&mut head, &Edit::Add(b"b".into(), b"3".into()));
        edit_request(&mut head, &Edit::Remove(b":path".into()));
        edit_request(&mut head, &edit("bad name", "x"));
        assert_eq!(told(&head), ":authority=b :path=/y :method=POST :scheme=https a=2 b=3");
        edit_request(&mut head, &Edit::Remove(b"a".into()));
        assert_eq!(told(&head), ":authority=b :path=/y :method=POST :scheme=https b=3");
    }

    #[test]
    fn a_status_is_three_digits() {
        let mut head = ResponseHead::new();
        head.reply(204);
        edit_response(&mut head, &edit(":status", "404"));
        edit_response(&mut head, &edit(":status", "99"));
        let mut told = Vec::new();
        each_of_response(&head, &mut |name, value| told.push([name, b"=", value].concat()));
        assert_eq!(told, [b":status=404".to_vec()]);
    }
}
