//! What must hold beyond the path: headers, query parameters, gRPC, and the route's share of traffic.

use postrider_http::{HeaderId, HeaderName, RequestHead, Scheme};
use postrider_model::{HeaderCondition, HeaderMatch, QueryCondition, QueryMatch, RouteMatch};

use crate::pattern::Pattern;

/// The conditions of a route that has any.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// Parts per million of the requests.
    fraction: Option<u32>,
    headers: Box<[HeaderTest]>,
    query: Box<[QueryTest]>,
    grpc: bool,
}

/// The first condition that did not hold. Numbers are places in the model's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmet {
    Fraction,
    Header(usize),
    Query(usize),
    Grpc,
}

/// One random number for a request, drawn when the first route asks for it.
pub(crate) struct Draw<F> {
    source: Option<F>,
    value: u64,
}

impl<F: FnOnce() -> u64> Draw<F> {
    pub(crate) fn new(source: F) -> Draw<F> {
        Draw { source: Some(source), value: 0 }
    }

    fn value(&mut self) -> u64 {
        if let Some(source) = self.source.take() {
            self.value = source();
        }
        self.value
    }
}

/// What a fraction is a fraction of.
const MILLION: u64 = 1_000_000;

impl Conditions {
    /// `None` when the path is all that counts.
    pub(crate) fn compile(matches: &RouteMatch) -> Option<Box<Conditions>> {
        let conditions = Conditions {
            fraction: matches.fraction,
            headers: matches.headers.iter().map(HeaderTest::compile).collect(),
            query: matches.query.iter().map(QueryTest::compile).collect(),
            grpc: matches.grpc,
        };
        let none = conditions.fraction.is_none()
            && conditions.headers.is_empty()
            && conditions.query.is_empty()
            && !conditions.grpc;
        (!none).then(|| Box::new(conditions))
    }

    pub(crate) fn check(&self, head: &RequestHead, draw: &mut Draw<impl FnOnce() -> u64>) -> Result<(), Unmet> {
        if self.fraction.is_some_and(|fraction| draw.value() % MILLION >= u64::from(fraction)) {
            return Err(Unmet::Fraction);
        }
        if let Some(at) = self.headers.iter().position(|test| !test.holds(head)) {
            return Err(Unmet::Header(at));
        }
        if let Some(at) = self.query.iter().position(|test| !test.holds(head)) {
            return Err(Unmet::Query(at));
        }
        if self.grpc && !is_grpc(head) {
            return Err(Unmet::Grpc);
        }
        Ok(())
    }
}

/// A request with a path and the content type `application/grpc` or `application/grpc+…`, nothing else.
fn is_grpc(head: &RequestHead) -> bool {
    let rest = head.fields.get(HeaderId::ContentType).and_then(|value| value.strip_prefix(b"application/grpc"));
    !head.path().is_empty() && matches!(rest, Some([] | [b'+', ..]))
}

#[derive(Debug)]
struct HeaderTest {
    part: Part,
    wanted: Wanted,
    invert: bool,
    missing_as_empty: bool,
}

/// Where a value is found.
#[derive(Debug, Clone)]
enum Part {
    Method,
    Path,
    Authority,
    Scheme,
    Field(HeaderName),
    /// A name that no request can carry.
    Nowhere,
}

#[derive(Debug)]
enum Wanted {
    Present(bool),
    Value(Pattern),
    Range { start: i64, end: i64 },
}

impl HeaderTest {
    fn compile(matches: &HeaderMatch) -> HeaderTest {
        let wanted = match &matches.condition {
            HeaderCondition::Present(present) => Wanted::Present(*present),
            HeaderCondition::Value(condition) => Wanted::Value(Pattern::compile(condition)),
            HeaderCondition::Range { start, end } => Wanted::Range { start: *start, end: *end },
        };
        HeaderTest {
            part: Part::named(&matches.name),
            wanted,
            invert: matches.invert,
            missing_as_empty: matches.treat_missing_as_empty,
        }
    }

    fn holds(&self, head: &RequestHead) -> bool {
        with_value(&self.part, head, |value| {
            let value = if self.missing_as_empty { value.or(Some(b"")) } else { value };
            match (&self.wanted, value) {
                (Wanted::Present(present), value) => (value.is_some() == *present) != self.invert,
                // Inversion turns round a comparison, and with an absent field there is none.
                (_, None) => false,
                (Wanted::Value(pattern), Some(value)) => pattern.matches(value) != self.invert,
                (Wanted::Range { start, end }, Some(value)) => {
                    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
                    number.is_some_and(|number| (*start..*end).contains(&number)) != self.invert
                }
            }
        })
    }
}

impl Part {
    fn named(name: &str) -> Part {
        match name {
            ":method" => Part::Method,
            ":path" => Part::Path,
            ":authority" | "host" => Part::Authority,
            ":scheme" => Part::Scheme,
            name => HeaderName::new(name.as_bytes()).map_or(Part::Nowhere, Part::Field),
        }
    }
}

/// The value of the header called `name` as a condition sees it, for words about it.
pub(crate) fn shown_value(name: &str, head: &RequestHead) -> Option<String> {
    with_value(&Part::named(name), head, |value| value.map(|value| String::from_utf8_lossy(value).into_owned()))
}

/// Calls `then` with the value, several lines of one name joined by commas.
fn with_value<T>(part: &Part, head: &RequestHead, then: impl FnOnce(Option<&[u8]>) -> T) -> T {
    let present = |value: &'_ [u8]| -> bool { !value.is_empty() };
    match part {
        Part::Method => then(Some(head.method_bytes())),
        Part::Path => then(Some(head.path()).filter(|path| present(path))),
        Part::Authority => then(Some(head.authority()).filter(|authority| present(authority))),
        Part::Scheme => then(Some(scheme_of(head))),
        Part::Nowhere => then(None),
        Part::Field(name) => {
            // Most fields are absent or there once.
            let Some(first) = head.fields.find(name) else { return then(None) };
            let mut lines = head.fields.find_all(name).skip(1).peekable();
            if lines.peek().is_none() {
                return then(Some(first));
            }
            let mut joined = Joined::default();
            joined.push(first);
            for line in lines {
                joined.push(b",");
                joined.push(line);
            }
            then(Some(joined.bytes()))
        }
    }
}

/// The scheme of the target, else what the proxy established about the client's connection.
fn scheme_of(head: &RequestHead) -> &[u8] {
    match head.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => head.fields.get(HeaderId::XForwardedProto).unwrap_or(Scheme::Http.as_str().as_bytes()),
    }
}

/// Lines put together on the stack; longer ones move to the heap.
struct Joined {
    near: [u8; Joined::NEAR],
    len: usize,
    far: Vec<u8>,
}

impl Joined {
    /// Long enough for what people match on: lists of addresses, tokens, languages.
    const NEAR: usize = 512;

    fn push(&mut self, bytes: &[u8]) {
        if self.far.is_empty()
            && let Some(room) = self.near.get_mut(self.len..self.len + bytes.len())
        {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
            return;
        }
        if self.far.is_empty() {
            self.far.extend_from_slice(self.near.get(..self.len).unwrap_or_default());
        }
        self.far.extend_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        if self.far.is_empty() { self.near.get(..self.len).unwrap_or_default() } else { &self.far }
    }
}

impl Default for Joined {
    fn default() -> Self {
        Joined { near: [0; Joined::NEAR], len: 0, far: Vec::new() }
    }
}

#[derive(Debug)]
struct QueryTest {
    name: Box<[u8]>,
    wanted: QueryWanted,
}

#[derive(Debug)]
enum QueryWanted {
    Present(bool),
    Value(Pattern),
}

impl QueryTest {
    fn compile(matches: &QueryMatch) -> QueryTest {
        let wanted = match &matches.condition {
            QueryCondition::Present(present) => QueryWanted::Present(*present),
            QueryCondition::Value(condition) => QueryWanted::Value(Pattern::compile(condition)),
        };
        QueryTest { name: matches.name.as_bytes().into(), wanted }
    }

    fn holds(&self, head: &RequestHead) -> bool {
        let value = query_value(head, &self.name);
        match &self.wanted {
            QueryWanted::Present(present) => value.is_some() == *present,
            QueryWanted::Value(pattern) => value.is_some_and(|value| pattern.matches(value)),
        }
    }
}

/// The first parameter called `name`, as it was sent: neither name nor value is decoded.
pub(crate) fn query_value<'h>(head: &'h RequestHead, name: &[u8]) -> Option<&'h [u8]> {
    head.query()?.split(|byte| *byte == b'&').find_map(|parameter| match parameter.strip_prefix(name)? {
        [] => Some(&[][..]),
        [b'=', value @ ..] => Some(value),
        _ => None,
    })
}
