//! What must hold beyond the path: headers, query parameters, gRPC, and the route's share of traffic.

use std::borrow::Cow;

use postrider_http::{Decimal, Fields, HeaderId, HeaderName, RequestHead, ResponseHead, Scheme};
use postrider_model::{
    CookieMatch, Expression, HeaderCondition, HeaderMatch, Input, Inputs, Metadata, MetadataMatch, QueryCondition,
    QueryMatch, RouteMatch, StateMatch, StreamMatch, Unavailable, Value,
};

use crate::pattern::{Judges, Pattern};

/// The conditions of a route that has any.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// Parts per million of the requests.
    fraction: Option<u32>,
    headers: Box<[HeaderTest]>,
    query: Box<[QueryTest]>,
    cookies: Box<[CookieTest]>,
    grpc: bool,
    stream: Option<Box<StreamMatch>>,
}

/// The first condition that did not hold. Numbers are places in the model's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmet {
    Fraction,
    Header(usize),
    Query(usize),
    Cookie(usize),
    Grpc,
    Metadata(usize),
    State(usize),
    Presented,
    Validated,
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
    pub(crate) fn compile(matches: &RouteMatch, judges: Judges<'_>) -> Option<Box<Conditions>> {
        let conditions = Conditions {
            fraction: matches.fraction,
            headers: matches.headers.iter().map(|matches| HeaderTest::compile(matches, judges)).collect(),
            query: matches.query.iter().map(|matches| QueryTest::compile(matches, judges)).collect(),
            cookies: matches.cookies.iter().map(|matches| CookieTest::compile(matches, judges)).collect(),
            grpc: matches.grpc,
            stream: matches.stream.clone(),
        };
        let none = conditions.fraction.is_none()
            && conditions.headers.is_empty()
            && conditions.query.is_empty()
            && conditions.cookies.is_empty()
            && conditions.stream.is_none()
            && !conditions.grpc;
        (!none).then(|| Box::new(conditions))
    }

    pub(crate) fn check(
        &self,
        head: &RequestHead,
        stream: &impl Surroundings,
        draw: &mut Draw<impl FnOnce() -> u64>,
    ) -> Result<(), Unmet> {
        if self.fraction.is_some_and(|fraction| draw.value() % MILLION >= u64::from(fraction)) {
            return Err(Unmet::Fraction);
        }
        if let Some(at) = self.headers.iter().position(|test| !test.holds(head)) {
            return Err(Unmet::Header(at));
        }
        if let Some(at) = self.query.iter().position(|test| !test.holds(head)) {
            return Err(Unmet::Query(at));
        }
        if let Some(at) = self.cookies.iter().position(|test| !test.holds(head)) {
            return Err(Unmet::Cookie(at));
        }
        if self.grpc && !is_grpc(head) {
            return Err(Unmet::Grpc);
        }
        match &self.stream {
            None => Ok(()),
            Some(wanted) => check_stream(wanted, stream),
        }
    }
}

/// What is known of a request beside its head.
pub trait Surroundings {
    /// What filters noted.
    fn metadata(&self) -> Option<&Metadata>;

    /// An object of the filter state.
    fn state(&self, name: &str) -> Option<&Value>;

    /// Whether the client's certificate is good; `None` when it showed none.
    fn certificate(&self) -> Option<bool>;
}

/// Nothing is known: no filter ran, and the client is anybody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Surroundings for Nothing {
    fn metadata(&self) -> Option<&Metadata> {
        None
    }

    fn state(&self, _: &str) -> Option<&Value> {
        None
    }

    fn certificate(&self) -> Option<bool> {
        None
    }
}

#[cold]
fn check_stream(wanted: &StreamMatch, stream: &impl Surroundings) -> Result<(), Unmet> {
    let nothing = Metadata::default();
    let metadata = stream.metadata().unwrap_or(&nothing);
    if let Some(at) = wanted.metadata.iter().position(|test| !test.matches(metadata)) {
        return Err(Unmet::Metadata(at));
    }
    let meets = |test: &StateMatch| match stream.state(&test.name) {
        Some(Value::String(text)) => test.condition.matches(text),
        _ => false,
    };
    if let Some(at) = wanted.state.iter().position(|test| !meets(test)) {
        return Err(Unmet::State(at));
    }
    let certificate = stream.certificate();
    if wanted.presented.is_some_and(|presented| presented != certificate.is_some()) {
        return Err(Unmet::Presented);
    }
    if wanted.validated.is_some_and(|validated| validated != certificate.unwrap_or(false)) {
        return Err(Unmet::Validated);
    }
    Ok(())
}

/// A request with a path and the content type of gRPC.
fn is_grpc(head: &RequestHead) -> bool {
    !head.path().is_empty() && postrider_http::grpc::has_content_type(&head.fields)
}

/// What a tree of conditions finds where a route is chosen.
pub(crate) struct OfRequest<'r, S> {
    pub(crate) head: &'r RequestHead,
    pub(crate) stream: &'r S,
}

impl<S: Surroundings> Inputs for OfRequest<'_, S> {
    fn value<'v>(&'v self, input: &'v Input) -> Result<Option<Cow<'v, str>>, Unavailable> {
        let name = match input {
            Input::RequestHeader(name) => name,
            Input::FilterState(name) => {
                let Some(Value::String(text)) = self.stream.state(name) else { return Ok(None) };
                return Ok(Some(Cow::Borrowed(text)));
            }
            Input::Fixed(value) => return Ok(value.as_deref().map(Cow::Borrowed)),
            _ => return Err(Unavailable),
        };
        let mut all: Option<String> = None;
        any_line(&Part::named(name), self.head, |line| {
            let line = String::from_utf8_lossy(line);
            match &mut all {
                Some(all) => {
                    all.push(',');
                    all.push_str(&line);
                }
                None => all = Some(line.into_owned()),
            }
            false
        });
        Ok(all.map(Cow::Owned))
    }

    /// There are none where a route is chosen.
    fn holds(&self, _: &Expression) -> bool {
        false
    }

    fn notes(&self, _: &MetadataMatch) -> bool {
        false
    }
}

/// A condition on a header, compiled.
#[derive(Debug)]
pub struct HeaderTest {
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
    /// Of answers only.
    Status,
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
    pub fn compile(matches: &HeaderMatch, judges: Judges<'_>) -> HeaderTest {
        let wanted = match &matches.condition {
            HeaderCondition::Present(present) => Wanted::Present(*present),
            HeaderCondition::Value(condition) => Wanted::Value(Pattern::compile(condition, judges)),
            HeaderCondition::Range { start, end } => Wanted::Range { start: *start, end: *end },
        };
        HeaderTest {
            part: Part::named(&matches.name),
            wanted,
            invert: matches.invert,
            missing_as_empty: matches.treat_missing_as_empty,
        }
    }

    /// Whether it holds for a request.
    pub fn holds(&self, head: &RequestHead) -> bool {
        self.verdict(any_line(&self.part, head, |line| self.meets(line)))
    }

    /// Whether it holds for an answer, whose status is `:status`.
    pub fn holds_for_answer(&self, head: &ResponseHead) -> bool {
        self.verdict(match &self.part {
            Part::Status => Some(self.meets(Decimal::new(u64::from(head.status())).as_bytes())),
            Part::Field(name) => any_field(name, &head.fields, |line| self.meets(line)),
            Part::Method | Part::Path | Part::Authority | Part::Scheme | Part::Nowhere => None,
        })
    }

    /// `met`: whether any of the lines meets the condition; `None` when there is no line.
    fn verdict(&self, met: Option<bool>) -> bool {
        if let Wanted::Present(present) = self.wanted {
            let there = self.missing_as_empty || met.is_some();
            return (there == present) != self.invert;
        }
        let empty = || self.missing_as_empty.then(|| self.meets(b""));
        // Inversion turns round a comparison, and with an absent field there is none.
        met.or_else(empty).is_some_and(|met| met != self.invert)
    }

    /// Whether one line meets the condition.
    fn meets(&self, line: &[u8]) -> bool {
        match &self.wanted {
            Wanted::Present(present) => *present,
            Wanted::Value(pattern) => pattern.matches(line),
            Wanted::Range { start, end } => {
                let number = std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok());
                number.is_some_and(|number| (*start..*end).contains(&number))
            }
        }
    }
}

impl Part {
    fn named(name: &str) -> Part {
        match name {
            ":method" => Part::Method,
            ":path" => Part::Path,
            ":authority" | "host" => Part::Authority,
            ":scheme" => Part::Scheme,
            ":status" => Part::Status,
            name => HeaderName::new(name.as_bytes()).map_or(Part::Nowhere, Part::Field),
        }
    }
}

/// The lines of the header called `name`, for words about it.
pub(crate) fn shown_value(name: &str, head: &RequestHead) -> Option<String> {
    let mut shown: Option<String> = None;
    any_line(&Part::named(name), head, |line| {
        let text = String::from_utf8_lossy(line);
        match &mut shown {
            Some(shown) => *shown = format!("{shown}\" and \"{text}"),
            None => shown = Some(text.into_owned()),
        }
        false
    });
    shown
}

/// Whether `test` holds for any of the lines, each looked at by itself; `None` when there is no line.
fn any_line(part: &Part, head: &RequestHead, mut test: impl FnMut(&[u8]) -> bool) -> Option<bool> {
    let mut single = |value: &[u8]| (!value.is_empty()).then(|| test(value));
    match part {
        Part::Method => single(head.method_bytes()),
        Part::Path => single(head.path()),
        Part::Authority => single(head.authority()),
        Part::Scheme => single(scheme_of(head)),
        Part::Nowhere | Part::Status => None,
        Part::Field(name) => any_field(name, &head.fields, test),
    }
}

fn any_field(name: &HeaderName, fields: &Fields, mut test: impl FnMut(&[u8]) -> bool) -> Option<bool> {
    let mut lines = fields.find_all(name);
    let first = test(lines.next()?);
    Some(first || lines.any(test))
}

/// The scheme of the target, else what the proxy established about the client's connection.
fn scheme_of(head: &RequestHead) -> &[u8] {
    match head.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => head.fields.get(HeaderId::XForwardedProto).unwrap_or(Scheme::Http.as_str().as_bytes()),
    }
}

#[derive(Debug)]
struct CookieTest {
    name: Box<[u8]>,
    wanted: Pattern,
    invert: bool,
}

impl CookieTest {
    fn compile(matches: &CookieMatch, judges: Judges<'_>) -> CookieTest {
        CookieTest {
            name: matches.name.as_bytes().into(),
            wanted: Pattern::compile(&matches.condition, judges),
            invert: matches.invert,
        }
    }

    fn holds(&self, head: &RequestHead) -> bool {
        cookie(head, &self.name).is_some_and(|value| self.wanted.matches(value)) != self.invert
    }
}

/// The value of the first cookie called `name`, without quotes around it.
pub(crate) fn cookie<'h>(head: &'h RequestHead, name: &[u8]) -> Option<&'h [u8]> {
    let pairs = head.fields.get_all(HeaderId::Cookie).flat_map(|line| line.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="));
    let value = values.next()?;
    Some(value.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(value))
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
    fn compile(matches: &QueryMatch, judges: Judges<'_>) -> QueryTest {
        let wanted = match &matches.condition {
            QueryCondition::Present(present) => QueryWanted::Present(*present),
            QueryCondition::Value(condition) => QueryWanted::Value(Pattern::compile(condition, judges)),
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
pub fn query_value<'h>(head: &'h RequestHead, name: &[u8]) -> Option<&'h [u8]> {
    head.query()?.split(|byte| *byte == b'&').find_map(|parameter| match parameter.strip_prefix(name)? {
        [] => Some(&[][..]),
        [b'=', value @ ..] => Some(value),
        _ => None,
    })
}
