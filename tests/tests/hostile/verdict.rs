//! What must become of a hostile message, and how a case states it.

use postrider_tests::kit::Request;

/// One message of the corpus.
pub struct Case {
    pub name: String,
    pub raw: Vec<u8>,
    pub verdict: Verdict,
    /// What Envoy does with it, where Postrider is stricter.
    pub envoy: Option<Verdict>,
    /// The client half-closes after the bytes, since they have no end.
    pub closing: bool,
}

/// What must become of a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Answered with one of these by the proxy; nothing reaches an origin.
    Reject(Vec<u16>),
    /// Exactly this reaches the origin: a request line without version, the
    /// field lines but for the proxy's own additions, an empty line, the body.
    Forward(String),
    /// Either is a safe reading.
    Either(Vec<u16>, String),
    /// A difference that docs/envoy-differences.md lists: Envoy passes it on,
    /// or guesses. Only the canary stays forbidden.
    Open,
}

impl Case {
    /// Records that Envoy does otherwise.
    pub fn envoy(mut self, verdict: Verdict) -> Self {
        self.envoy = Some(verdict);
        self
    }

    pub fn closing(mut self) -> Self {
        self.closing = true;
        self
    }
}

pub fn case(name: &str, raw: impl AsRef<str>, verdict: Verdict) -> Case {
    raw_case(name, raw.as_ref().as_bytes(), verdict)
}

pub fn raw_case(name: &str, raw: &[u8], verdict: Verdict) -> Case {
    Case { name: name.into(), raw: raw.into(), verdict, envoy: None, closing: false }
}

pub fn reject(status: u16) -> Verdict {
    Verdict::Reject(vec![status])
}

pub fn reject_any(statuses: &[u16]) -> Verdict {
    Verdict::Reject(statuses.into())
}

pub fn forward(request: &str) -> Verdict {
    Verdict::Forward(request.into())
}

pub fn reject_or(status: u16, request: &str) -> Verdict {
    Verdict::Either(vec![status], request.into())
}

pub fn open() -> Verdict {
    Verdict::Open
}

/// Fields that a proxy adds to what it forwards.
const ADDED: [&str; 3] = ["x-forwarded-proto", "x-request-id", "x-envoy-expected-rq-timeout-ms"];

/// A forwarded request in the notation of [`Verdict::Forward`], its own
/// framing normalised: field order and spelling of names do not matter.
pub fn describe(request: &Request) -> String {
    let mut fields: Vec<String> = request
        .headers
        .0
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), latin1(value)))
        .filter(|(name, _)| !ADDED.contains(&name.as_str()))
        .map(|(name, value)| match (name.as_str(), value.parse::<u64>()) {
            ("content-length", Ok(length)) => format!("{name}: {length}\n"),
            _ => format!("{name}: {value}\n"),
        })
        .collect();
    fields.sort();
    let body = latin1(&request.body);
    format!("{} {}\n{}\n{body}", request.method, request.target, fields.concat())
}

/// The same notation with its fields sorted, for comparison.
pub fn sorted(expected: &str) -> String {
    let (head, body) = expected.split_once("\n\n").expect("an empty line");
    let mut lines = head.split('\n');
    let start = lines.next().expect("a request line");
    let mut fields: Vec<String> = lines.map(|line| format!("{line}\n")).collect();
    fields.sort();
    format!("{start}\n{}\n{body}", fields.concat())
}

/// UTF-8 where it is, else byte by byte.
fn latin1(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_string(),
        Err(_) => bytes.iter().map(|b| char::from(*b)).collect(),
    }
}
