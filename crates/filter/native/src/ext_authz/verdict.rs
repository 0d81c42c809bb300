//! What a service decided, whatever it speaks, and what that does to a request and its answer.

use postrider_filter_api::{LocalReply, Treatment};
use postrider_http::{Fields, HeaderName, RequestHead, is_field_value};
use postrider_model::{AppendAction, Value};

use crate::mutation_rules::{Change, MutationRules};

/// The outcome with what the service wants remembered about it.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) decision: Decision,
    /// A map; may be empty.
    pub(super) metadata: Vec<(String, Value)>,
}

#[derive(Debug)]
pub(super) enum Decision {
    Allowed(Box<Allowance>),
    Denied(Denial),
    /// There was no answer, or one that says that there is none; what it says may still be told to the client.
    Failed(Denial),
}

impl Default for Decision {
    fn default() -> Self {
        Decision::Failed(Denial::default())
    }
}

/// A header as the service writes it: nothing is checked yet.
pub(super) type Header = (String, Vec<u8>);

/// What is done to a request that goes on, and to its answer.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// In place of what was there.
    pub(super) set: Vec<Header>,
    /// Joined to what is there, if anything is.
    pub(super) append: Vec<Header>,
    /// Beside what is there.
    pub(super) add: Vec<Header>,
    pub(super) remove: Vec<String>,
    pub(super) query_set: Vec<(String, String)>,
    pub(super) query_remove: Vec<String>,
    /// In the order in which they are done: see [`Allowance::order_response`].
    pub(super) response: Vec<(AppendAction, Header)>,
    /// It names an action that there is not; its header is left out.
    pub(super) has_unknown_action: bool,
}

/// A header of a request that a service wants and that cannot be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsendable {
    Name(String),
    Value(String),
}

/// What a client is told that is turned away.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Denial {
    /// `None` is what the configuration says.
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<Header>,
    pub(super) body: Vec<u8>,
}

/// Something in a verdict cannot be a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

impl Allowance {
    /// # Errors
    /// A name or value that cannot be one.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let response = self.response.iter().map(|(_, header)| header);
        let headers = self.set.iter().chain(&self.append).chain(&self.add).chain(response);
        let queries = self.query_set.iter().all(|(key, value)| is_query_text(key) && is_query_text(value));
        let valid = headers.into_iter().all(is_valid) && queries && !self.has_unknown_action;
        valid.then_some(()).ok_or(Invalid)
    }

    /// Additions come before what replaces them, whatever the order in which the service wrote them, as in Envoy.
    pub(super) fn order_response(&mut self) {
        self.response.sort_by_key(|(action, _)| match action {
            AppendAction::AppendIfExistsOrAdd => 0,
            AppendAction::OverwriteIfExistsOrAdd => 1,
            AppendAction::AddIfAbsent => 2,
            AppendAction::OverwriteIfExists => 3,
        });
    }

    /// Leaves out what the rules do not allow.
    ///
    /// # Errors
    /// There is such a thing, and the rules call it an error.
    pub(super) fn restrict(&mut self, rules: &MutationRules) -> Result<(), Invalid> {
        let before = self.changes();
        for list in [&mut self.set, &mut self.append, &mut self.add] {
            list.retain(|(name, _)| rules.allows(Change::Set, &name.to_ascii_lowercase()));
        }
        self.remove.retain(|name| rules.allows(Change::Remove, &name.to_ascii_lowercase()));
        if rules.is_error && self.changes() < before { Err(Invalid) } else { Ok(()) }
    }

    /// How many headers of the request it touches.
    fn changes(&self) -> usize {
        self.set.len() + self.append.len() + self.add.len() + self.remove.len()
    }

    /// It does something to the request.
    pub(super) fn edits_request(&self) -> bool {
        self.changes() > 0 || self.asks_query()
    }

    /// Changes the request.
    ///
    /// # Errors
    /// A header that cannot be sent. The request must not go on without it: it would carry what its client said in the
    /// header's place.
    pub(super) fn apply(&self, request: &mut RequestHead) -> Result<(), Unsendable> {
        for header in &self.set {
            set(request, header)?;
        }
        for header in &self.append {
            // Without one to be joined to, it is nowhere.
            if request.fields.get_name(header.0.as_bytes()).is_some() {
                is_sendable(header)?;
            }
            append(&mut request.fields, &header.0, &header.1);
        }
        for header in self.add.iter().filter(|(name, _)| !is_framing(name)) {
            is_sendable(header)?;
            let _ = request.fields.append_name(header.0.as_bytes(), &header.1);
        }
        for name in self.remove.iter().filter(|name| !is_framing(name)) {
            request.fields.remove_name(name.as_bytes());
        }
        if self.asks_query() {
            let path = with_query(request.path(), &self.query_set, &self.query_remove);
            let _ = request.set_path(&path);
        }
        Ok(())
    }

    /// Whether the route is to be chosen again for what it changes: the query, or a header of these names, in lower case; of
    /// any, where there are none. What is only put beside other headers is no reason, as in Envoy.
    pub(super) fn touches(&self, names: &[String]) -> bool {
        let is_listed =
            |name: &String| names.is_empty() || names.iter().any(|listed| name.eq_ignore_ascii_case(listed));
        self.set.iter().chain(&self.append).any(|(name, _)| is_listed(name))
            || self.remove.iter().any(is_listed)
            || self.asks_query()
    }

    fn asks_query(&self) -> bool {
        !self.query_set.is_empty() || !self.query_remove.is_empty()
    }

    /// Changes the answer that the request brought.
    pub(super) fn apply_to_response(&self, fields: &mut Fields) {
        for (action, (name, value)) in &self.response {
            if is_framing(name) {
                continue;
            }
            let present = fields.get_name(name.as_bytes()).is_some();
            // A name or value that cannot be one is left out.
            let _ = match (action, present) {
                (AppendAction::AppendIfExistsOrAdd, _) | (AppendAction::AddIfAbsent, false) => {
                    fields.append_name(name.as_bytes(), value)
                }
                (AppendAction::OverwriteIfExistsOrAdd, _) | (AppendAction::OverwriteIfExists, true) => {
                    fields.set_name(name.as_bytes(), value)
                }
                (AppendAction::AddIfAbsent, true) | (AppendAction::OverwriteIfExists, false) => Ok(()),
            };
        }
    }
}

impl Unsendable {
    /// What a client gets in the place of an answer to such a request.
    pub(super) fn reply(self) -> LocalReply {
        let body = match self {
            Unsendable::Name(name) => format!("invalid header name: {}", name.escape_default()),
            Unsendable::Value(name) => format!("invalid header value for: {name}"),
        };
        LocalReply {
            status: 503,
            details: format!("filter_removed_required_request_headers{{{}}}", body.replace(' ', "_")).into(),
            body: body.into_bytes().into(),
            ..LocalReply::default()
        }
    }
}

impl Denial {
    /// # Errors
    /// A name or value that cannot be one.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        self.headers.iter().all(is_valid).then_some(()).ok_or(Invalid)
    }

    /// What the client is told where the configuration says `status`.
    pub(super) fn status_or(&self, status: u16) -> u16 {
        self.status.filter(|status| (200..600).contains(status)).unwrap_or(status)
    }

    pub(super) fn reply(mut self, status: u16, most: usize, details: &'static str) -> LocalReply {
        self.body.truncate(most);
        let status = self.status_or(status);
        let headers = self.headers.into_iter().filter(|(name, _)| !is_framing(name));
        LocalReply {
            status,
            body: self.body.into(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).collect(),
            treatment: Treatment::InPlace,
            details: details.into(),
            grpc_status: None,
        }
    }
}

fn is_valid((name, value): &Header) -> bool {
    let pseudo = name.strip_prefix(':').unwrap_or(name);
    HeaderName::new(pseudo.as_bytes()).is_ok() && is_field_value(value)
}

/// # Errors
/// It cannot.
fn is_sendable(header: &Header) -> Result<(), Unsendable> {
    let (name, value) = header;
    match is_framing(name) || is_valid(header) {
        true => Ok(()),
        false if is_field_value(value) => Err(Unsendable::Name(name.clone())),
        false => Err(Unsendable::Value(name.clone())),
    }
}

/// What stands for itself in a query: anything else would have to be encoded, or make two parameters of one.
fn is_query_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte))
}

/// A parameter as the service writes it, but for what would end the query or the request line.
fn parameter(name: &str, value: &str) -> Vec<u8> {
    let mut pair = Vec::with_capacity(name.len() + value.len() + 1);
    for byte in format!("{name}={value}").bytes() {
        match byte.is_ascii_graphic() && byte != b'#' {
            true => pair.push(byte),
            false => pair.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    pair
}

/// What the proxy itself decides about a message.
fn is_framing(name: &str) -> bool {
    const OWN: [&str; 9] = [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "upgrade",
        "te",
        "trailer",
        "keep-alive",
        "proxy-connection",
    ];
    name.starts_with(':') || OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// # Errors
/// It cannot be sent.
fn set(request: &mut RequestHead, header: &Header) -> Result<(), Unsendable> {
    is_sendable(header)?;
    let (name, value) = header;
    match &**name {
        ":method" => request.set_method(value),
        ":path" => request.set_path(value),
        ":authority" => request.set_authority(value),
        name if name.eq_ignore_ascii_case("host") => request.set_authority(value),
        name if is_framing(name) => Ok(()),
        name => request.fields.set_name(name.as_bytes(), value),
    }
    .map_err(|_| Unsendable::Value(name.clone()))
}

/// Joins it to what is there, as one line.
fn append(fields: &mut Fields, name: &str, value: &[u8]) {
    if is_framing(name) {
        return;
    }
    let Some(mut joined) = fields.get_name(name.as_bytes()).map(<[u8]>::to_vec) else { return };
    joined.push(b',');
    joined.extend_from_slice(value);
    let others: Vec<Vec<u8>> = fields.get_all_name(name.as_bytes()).skip(1).map(<[u8]>::to_vec).collect();
    let _ = fields.set_name(name.as_bytes(), &joined);
    for other in others {
        let _ = fields.append_name(name.as_bytes(), &other);
    }
}

/// The path with these parameters of its query replaced or gone; of several of one name the last counts. Parameters that stay
/// keep their place; new ones come last.
fn with_query(path: &[u8], set: &[(String, String)], remove: &[String]) -> Vec<u8> {
    let (bare, query) = match path.iter().position(|byte| *byte == b'?') {
        Some(at) => path.split_at(at),
        None => (path, &b""[..]),
    };
    let mut pairs: Vec<Vec<u8>> = Vec::new();
    let names: Vec<&str> = set.iter().map(|(name, _)| name.as_str()).collect();
    let is_last = |at: &usize| !names.iter().skip(at + 1).any(|later| Some(later) == names.get(*at));
    let set: Vec<&(String, String)> =
        set.iter().enumerate().filter(|(at, _)| is_last(at)).map(|(_, pair)| pair).collect();
    let mut placed = vec![false; set.len()];
    for pair in query.get(1..).unwrap_or_default().split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let key = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        if remove.iter().any(|gone| gone.as_bytes() == key) {
            continue;
        }
        match set.iter().zip(&mut placed).find(|((name, _), _)| name.as_bytes() == key) {
            Some(((name, value), placed)) => {
                if !std::mem::replace(placed, true) {
                    pairs.push(parameter(name, value));
                }
            }
            None => pairs.push(pair.to_vec()),
        }
    }
    let new = set.iter().zip(placed).filter(|((name, _), placed)| !placed && !remove.contains(name));
    pairs.extend(new.map(|((name, value), _)| parameter(name, value)));
    let mut out = bare.to_vec();
    if !pairs.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&pairs.join(&b'&'));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn parameters_are_replaced_in_place_added_last_and_removed() {
        let text = |path: &str, set: &[(&str, &str)], remove: &[&str]| {
            let remove: Vec<String> = remove.iter().map(|key| (*key).to_owned()).collect();
            String::from_utf8(with_query(path.as_bytes(), &pairs(set), &remove)).unwrap()
        };
        assert_eq!(text("/p?a=1&b=2&a=3", &[("a", "x")], &[]), "/p?a=x&b=2");
        assert_eq!(text("/p?a=1&b", &[("c", "y")], &["a"]), "/p?b&c=y");
        assert_eq!(text("/p?a=1", &[], &["a"]), "/p");
        assert_eq!(text("/p", &[("a", "1")], &[]), "/p?a=1");
        assert_eq!(text("/p?a=1&b=2", &[("a", "8"), ("a", "9")], &[]), "/p?a=9&b=2");
        assert_eq!(text("/p", &[("a", "8"), ("a", "9")], &[]), "/p?a=9");
        assert_eq!(text("/p?s=1&b=2", &[("a", "x y#\u{e9}")], &["s"]), "/p?b=2&a=x%20y%23%C3%A9");
    }

    #[test]
    fn what_the_route_may_depend_on_is_told() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let header = Allowance { set: vec![("X-New".into(), b"r".to_vec())], ..Allowance::default() };
        assert!(header.touches(&[]) && header.touches(&list(&["x-new"])) && !header.touches(&list(&["x-other"])));
        let query = Allowance { query_set: pairs(&[("a", "b")]), ..Allowance::default() };
        assert!(query.touches(&list(&["x-new"])));
        let added = Allowance { add: vec![("x-new".into(), b"r".to_vec())], ..Allowance::default() };
        assert!(!added.touches(&[]) && !added.touches(&list(&["x-new"])) && !Allowance::default().touches(&[]));
        let removed = Allowance { remove: vec!["x-old".into()], ..Allowance::default() };
        assert!(removed.touches(&list(&["x-old"])));
    }

    #[test]
    fn what_frames_a_message_is_out_of_reach() {
        let mut request = RequestHead::new();
        request.set_method(b"GET").unwrap();
        request.set_authority(b"a").unwrap();
        request.set_path(b"/").unwrap();
        request.fields.append_name(b"content-length", b"3").unwrap();
        let header = |name: &str| (name.to_owned(), b"9".to_vec());
        let allowance = Allowance {
            set: vec![header("content-length"), header("Transfer-Encoding"), header("x")],
            remove: vec!["host".into(), ":path".into(), "Content-Length".into()],
            ..Allowance::default()
        };
        assert_eq!(allowance.apply(&mut request), Ok(()));
        let lines: Vec<_> =
            request.fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
        assert_eq!(lines, ["host", "content-length", "x"]);
        assert_eq!(request.fields.get_name(b"content-length"), Some(&b"3"[..]));
    }

    #[test]
    fn a_verdict_that_cannot_be_sent_is_found_out() {
        let header = |name: &str, value: &[u8]| vec![(name.to_owned(), value.to_vec())];
        let valid = |set| Allowance { set, ..Allowance::default() }.validate().is_ok();
        assert!(valid(header("x", b"1")) && valid(header(":path", b"/")));
        assert!(!valid(header("x y", b"1")) && !valid(header("x", b"a\r\nb")) && !valid(header("", b"")));
        for text in ["b c", "x&y", "a=b", "%20", "a+b", "a/b", "~"] {
            let query = Allowance { query_set: pairs(&[("a", text)]), ..Allowance::default() };
            assert_eq!(query.validate(), Err(Invalid), "{text}");
        }
        let query = Allowance { query_set: pairs(&[("a", "b-c.d_e*9")]), ..Allowance::default() };
        assert_eq!(query.validate(), Ok(()));
        assert_eq!(Allowance { has_unknown_action: true, ..Allowance::default() }.validate(), Err(Invalid));
        assert!(Denial { headers: header("x", b"\0"), ..Denial::default() }.validate().is_err());
    }

    #[test]
    fn a_request_does_not_go_on_without_a_header_that_the_service_wants() {
        let mut request = RequestHead::new();
        request.fields.append_name(b"x-o", b"the client's").unwrap();
        let header = |name: &str, value: &[u8]| vec![(name.to_owned(), value.to_vec())];
        let bad = || header("x-o", b"a\nb");
        let value = Err(Unsendable::Value("x-o".into()));
        assert_eq!(Allowance { set: bad(), ..Allowance::default() }.apply(&mut request), value);
        assert_eq!(Allowance { append: bad(), ..Allowance::default() }.apply(&mut request), value);
        assert_eq!(Allowance { add: bad(), ..Allowance::default() }.apply(&mut request), value);
        let name = Allowance { set: header("x y\u{1}", b"1"), ..Allowance::default() }.apply(&mut request);
        let reply = name.unwrap_err().reply();
        assert_eq!((reply.status, &*reply.body), (503, &b"invalid header name: x y\\u{1}"[..]));
        assert_eq!(reply.details, "filter_removed_required_request_headers{invalid_header_name:_x_y\\u{1}}");
        // Nothing is there that it could be joined to.
        let absent = Allowance { append: header("x-p", b"a\nb"), ..Allowance::default() };
        assert_eq!(absent.apply(&mut request), Ok(()));
        assert_eq!(request.fields.get_name(b"x-o"), Some(&b"the client's"[..]));
    }
}
