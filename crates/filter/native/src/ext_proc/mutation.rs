//! What a processor changes about headers, trailers and bodies.

use postrider_filter_api::{LocalReply, Treatment};
use postrider_grpc::process::body_mutation::Mutation;
use postrider_grpc::process::{BodyMutation, HeaderMutation, ImmediateResponse};
use postrider_http::{Fields, HeaderName, RequestHead, ResponseHead, Scheme, grpc, is_field_value};

use crate::mutation_rules::{Change, MutationRules};

/// No message changes more headers of one kind than this.
const MAX_CHANGES: usize = 100;

/// What is changed.
#[derive(Debug)]
pub(super) enum Target<'a> {
    Request(&'a mut RequestHead),
    Response(&'a mut ResponseHead),
    Trailers(&'a mut Fields),
}

/// Makes the changes that the rules allow. `rejected` hears of each that they do not. `replaces`: the message is replaced
/// whole, its method included.
///
/// # Errors
/// Why the message cannot go on, as a token.
pub(super) fn apply(
    mutation: &HeaderMutation,
    mut target: Target<'_>,
    rules: &MutationRules,
    replaces: bool,
    mut rejected: impl FnMut(),
) -> Result<(), &'static str> {
    if mutation.set_headers.len() > MAX_CHANGES || mutation.remove_headers.len() > MAX_CHANGES {
        rejected();
        return Err("header_mutation_operation_count_exceeds_limit");
    }
    for name in &mutation.remove_headers {
        let name = name.to_ascii_lowercase();
        if !is_name(&name) {
            rejected();
            return Err("header_mutation_remove_contains_invalid_character");
        }
        if rules.allows(Change::Remove, &name) {
            target.remove(&name);
            continue;
        }
        rejected();
        if rules.is_error {
            return Err("header_mutation_remove_headers_failed");
        }
    }
    for option in &mutation.set_headers {
        let Some(header) = &option.header else { continue };
        if !header.value.is_empty() && !header.raw_value.is_empty() {
            rejected();
            return Err("header_mutation_set_headers_failed");
        }
        // As in Envoy, this service's values are bytes; what stands in `value` does not count.
        let (name, value) = (header.key.to_ascii_lowercase(), header.raw_value.as_slice());
        if !is_name(&name) || !is_field_value(value) {
            rejected();
            return Err("header_mutation_set_contains_invalid_character");
        }
        // Nor does `append_action`.
        #[allow(deprecated, reason = "in this service it is the field that counts")]
        let appends = option.append.unwrap_or(false);
        let change = if appends && target.has(&name) { Change::Append } else { Change::Set };
        let allowed = rules.allows(change, &name) || replaces && name == ":method";
        if !allowed || !target.fits(&name, value) {
            rejected();
            if rules.is_error {
                return Err("header_mutation_set_headers_failed");
            }
            continue;
        }
        if !target.change(change, &name, value) {
            rejected();
            return Err("header_mutation_result_exceeds_limit");
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    HeaderName::new(name.strip_prefix(':').unwrap_or(name).as_bytes()).is_ok()
}

/// What the proxy itself says about a connection.
fn is_hop(name: &str) -> bool {
    ["connection", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "proxy-connection"].contains(&name)
}

impl Target<'_> {
    fn fields(&mut self) -> &mut Fields {
        match self {
            Target::Request(head) => &mut head.fields,
            Target::Response(head) => &mut head.fields,
            Target::Trailers(fields) => fields,
        }
    }

    fn has(&mut self, name: &str) -> bool {
        match (&*self, name) {
            (Target::Request(_), ":method" | ":path" | ":authority" | ":scheme" | "host") => true,
            (Target::Response(_), ":status") => true,
            _ => self.fields().get_name(name.as_bytes()).is_some(),
        }
    }

    /// Whether what is no plain field can have this value.
    fn fits(&self, name: &str, value: &[u8]) -> bool {
        match name {
            ":status" => status(value).is_some(),
            ":scheme" => scheme(value).is_some(),
            ":method" | ":path" => !value.is_empty(),
            _ => true,
        }
    }

    fn remove(&mut self, name: &str) {
        if !is_hop(name) {
            self.fields().remove_name(name.as_bytes());
        }
    }

    /// `false` when there is no room for it.
    fn change(&mut self, change: Change, name: &str, value: &[u8]) -> bool {
        // A value that cannot be what it should be changes nothing.
        match (&mut *self, name) {
            (Target::Request(head), ":method") => drop(head.set_method(value)),
            (Target::Request(head), ":path") => drop(head.set_path(value)),
            (Target::Request(head), ":authority" | "host") => drop(head.set_authority(value)),
            (Target::Request(head), ":scheme") => scheme(value).into_iter().for_each(|scheme| head.set_scheme(scheme)),
            (Target::Response(head), ":status") => status(value).into_iter().for_each(|status| head.set_status(status)),
            (_, name) if name.starts_with(':') || is_hop(name) => {}
            (_, name) => {
                let fields = self.fields();
                return match change {
                    Change::Append => fields.append_name(name.as_bytes(), value).is_ok(),
                    Change::Set | Change::Remove => fields.set_name(name.as_bytes(), value).is_ok(),
                };
            }
        }
        true
    }
}

fn status(value: &[u8]) -> Option<u16> {
    let status = std::str::from_utf8(value).ok()?.parse().ok()?;
    (200..600).contains(&status).then_some(status)
}

fn scheme(value: &[u8]) -> Option<Scheme> {
    [Scheme::Http, Scheme::Https].into_iter().find(|scheme| scheme.as_str().as_bytes() == value)
}

/// The body in place of `body`; `None` when it stays.
pub(super) fn body(mutation: &BodyMutation) -> Option<&[u8]> {
    match &mutation.mutation {
        Some(Mutation::Body(body)) => Some(body),
        Some(Mutation::ClearBody(true)) => Some(b""),
        Some(Mutation::ClearBody(false) | Mutation::StreamedResponse(_)) | None => None,
    }
}

/// The client's answer as a processor wants it.
pub(super) fn immediate(said: ImmediateResponse, rules: &MutationRules, rejected: impl FnMut()) -> LocalReply {
    let status = said.status.and_then(|status| u16::try_from(status.code).ok());
    let mut fields = Fields::new();
    if let Some(mutation) = &said.headers {
        // What went wrong ends the changes, not the answer.
        let _ = apply(mutation, Target::Trailers(&mut fields), rules, false, rejected);
    }
    let line = |field: postrider_http::FieldRef<'_>| {
        (String::from_utf8_lossy(field.name).into_owned().into(), field.value.to_vec().into())
    };
    // The length is that of the body.
    let headers = fields.iter().filter(|field| field.name != b"content-length").map(line).collect();
    LocalReply {
        status: status.filter(|status| (200..600).contains(status)).unwrap_or(200),
        grpc_status: said.grpc_status.and_then(|status| grpc::Code::from_number(status.status)),
        body: said.body.into(),
        headers,
        treatment: Treatment::InPlace,
        details: token(&said.details).into(),
    }
}

/// A token for logs.
pub(super) fn token(details: &str) -> String {
    details.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_grpc::core::{HeaderValue, HeaderValueOption};

    #[allow(deprecated, reason = "in this service it is the field that counts")]
    fn option(key: &str, value: &str, append: Option<bool>) -> HeaderValueOption {
        let header = HeaderValue { key: key.into(), raw_value: value.into(), ..HeaderValue::default() };
        HeaderValueOption { header: Some(header), append, ..HeaderValueOption::default() }
    }

    fn changed(set: Vec<HeaderValueOption>, remove: &[&str]) -> (Vec<String>, usize, Result<(), &'static str>) {
        let mut fields = Fields::new();
        fields.append_name(b"a", b"1").unwrap();
        fields.append_name(b"b", b"2").unwrap();
        let mut count = 0;
        let mutation =
            HeaderMutation { set_headers: set, remove_headers: remove.iter().map(|name| (*name).to_owned()).collect() };
        let rules = MutationRules::default();
        let done = apply(&mutation, Target::Trailers(&mut fields), &rules, false, || count += 1);
        (crate::testing::lines(&fields), count, done)
    }

    #[test]
    fn headers_are_overwritten_unless_they_are_to_be_appended() {
        assert_eq!(changed(vec![option("A", "x", None)], &[]).0, ["a: x", "b: 2"]);
        assert_eq!(changed(vec![option("a", "x", Some(true))], &[]).0, ["a: 1", "b: 2", "a: x"]);
        assert_eq!(changed(vec![option("c", "x", None)], &[]).0, ["a: 1", "b: 2", "c: x"]);
        assert_eq!(changed(vec![option("a", "x", None)], &["A", "b"]).0, ["a: x"], "removed first, then set");
    }

    #[test]
    fn what_rules_forbid_and_what_cannot_be_is_counted() {
        let (lines, count, done) = changed(vec![option("x-envoy-a", "1", None)], &["host"]);
        assert_eq!((lines.len(), count, done), (2, 2, Ok(())));
        let (lines, count, done) = changed(vec![option("a b", "1", None), option("c", "1", None)], &[]);
        assert_eq!((lines.len(), count, done), (2, 1, Err("header_mutation_set_contains_invalid_character")));
        let both = HeaderValue { key: "a".into(), value: "1".into(), raw_value: b"2".into() };
        let both = HeaderValueOption { header: Some(both), ..HeaderValueOption::default() };
        assert_eq!(changed(vec![both], &[]).2, Err("header_mutation_set_headers_failed"));
        let many = vec![option("a", "1", None); 101];
        assert_eq!(changed(many, &[]).2, Err("header_mutation_operation_count_exceeds_limit"));
    }

    #[test]
    fn the_parts_of_a_request_change_like_its_headers() {
        let mut head = RequestHead::new();
        head.set_method(b"GET").unwrap();
        head.set_authority(b"a").unwrap();
        head.set_path(b"/").unwrap();
        let set = |key: &str, value: &str| option(key, value, None);
        let mutation = HeaderMutation {
            set_headers: vec![set(":path", "/b"), set(":method", "POST"), set("transfer-encoding", "x")],
            remove_headers: Vec::new(),
        };
        let rules = MutationRules::default();
        apply(&mutation, Target::Request(&mut head), &rules, false, || {}).unwrap();
        assert_eq!((head.path(), head.method_bytes()), (&b"/b"[..], &b"GET"[..]), "methods are out of reach");
        assert!(head.fields.get_name(b"transfer-encoding").is_none());
        apply(&mutation, Target::Request(&mut head), &rules, true, || {}).unwrap();
        assert_eq!(head.method_bytes(), b"POST", "but for a message that is replaced");
    }

    #[test]
    fn details_are_one_token() {
        assert_eq!(token("a b\tc"), "a_b_c");
    }
}
