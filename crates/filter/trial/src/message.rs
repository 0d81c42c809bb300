//! Messages as people write them, and heads as they are compared.

use std::time::SystemTime;

use postrider_filter_api::Moment;
use postrider_filter_api::fake::FakeStream;
use postrider_http::{Decimal, Fields, HeaderId, RequestHead, ResponseHead};

/// Fields with their values, in order; pseudo fields (`:path`, `:status`) first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head(pub Vec<(String, Vec<u8>)>);

/// A request to show to a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// `:authority` may be among them.
    pub headers: Vec<(String, Vec<u8>)>,
    /// In the pieces in which it arrives.
    pub body: Vec<Vec<u8>>,
    pub trailers: Vec<(String, Vec<u8>)>,
}

/// What the upstream answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    /// In the pieces in which it arrives.
    pub body: Vec<Vec<u8>>,
    pub trailers: Vec<(String, Vec<u8>)>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            trailers: Vec::new(),
        }
    }
}

impl Default for Response {
    fn default() -> Response {
        Response { status: 200, headers: Vec::new(), body: Vec::new(), trailers: Vec::new() }
    }
}

impl Head {
    /// All values of a field.
    pub fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    /// The names, each once.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &self.0 {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    pub(crate) fn of_request(head: &RequestHead) -> Head {
        let pseudo = [
            (":method", head.method_bytes()),
            (":path", head.path()),
            (":authority", head.authority()),
            (":scheme", head.scheme().map_or(&b""[..], |scheme| scheme.as_str().as_bytes())),
        ];
        Head::of(&pseudo, &head.fields)
    }

    pub(crate) fn of_response(head: &ResponseHead) -> Head {
        Head::of(&[(":status", head.status().to_string().as_bytes())], &head.fields)
    }

    pub(crate) fn of_fields(fields: &Fields) -> Head {
        Head::of(&[], fields)
    }

    fn of(pseudo: &[(&str, &[u8])], fields: &Fields) -> Head {
        let pseudo = pseudo.iter().filter(|(_, value)| !value.is_empty());
        let mut lines: Vec<(String, Vec<u8>)> =
            pseudo.map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        for field in fields.iter() {
            lines.push((String::from_utf8_lossy(field.name).into_owned(), field.value.to_vec()));
        }
        Head(lines)
    }
}

impl Request {
    /// A stream with this request.
    ///
    /// # Errors
    /// The part of it that no request can have.
    pub(crate) fn stream(&self) -> Result<FakeStream, String> {
        let mut stream = FakeStream::new("GET", "/", &[]);
        let head = &mut stream.request;
        head.set_method(self.method.as_bytes()).map_err(|_| format!("`{}` is no method", self.method))?;
        head.set_path(self.path.as_bytes()).map_err(|_| format!("`{}` is no path", self.path))?;
        // The authority of a name that leads nowhere (RFC 2606), unless the request says one.
        let _ = head.set_authority(b"plugin.test");
        for (name, value) in &self.headers {
            let shown = String::from_utf8_lossy(value);
            match name.to_ascii_lowercase().as_str() {
                ":authority" | "host" => head.set_authority(value).map_err(|_| format!("`{shown}` is no authority"))?,
                _ => append(&mut head.fields, name, value)?,
            }
        }
        declare_length(&mut head.fields, &self.body, !self.trailers.is_empty());
        for (name, value) in &self.trailers {
            append(&mut stream.request_trailers, name, value)?;
        }
        Ok(stream)
    }
}

impl Response {
    /// Puts it into the stream.
    ///
    /// # Errors
    /// The part of it that no response can have.
    pub(crate) fn fill(&self, stream: &mut FakeStream) -> Result<(), String> {
        let head = &mut stream.response;
        head.clear();
        head.reply(self.status);
        for (name, value) in &self.headers {
            append(&mut head.fields, name, value)?;
        }
        declare_length(&mut head.fields, &self.body, !self.trailers.is_empty());
        for (name, value) in &self.trailers {
            append(&mut stream.response_trailers, name, value)?;
        }
        Ok(())
    }
}

/// The time of the machine that this runs on.
pub(crate) fn system_clock() -> (Moment, SystemTime) {
    let wall = SystemTime::now();
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or_default()), wall)
}

fn append(fields: &mut Fields, name: &str, value: &[u8]) -> Result<(), String> {
    let shown = || format!("`{name}: {}` is no field that a message can carry", String::from_utf8_lossy(value));
    fields.append_name(name.as_bytes(), value).map_err(|_| shown())
}

/// A whole body has a length unless somebody says otherwise; one with trailers is chunked.
fn declare_length(fields: &mut Fields, body: &[Vec<u8>], chunked: bool) {
    if body.is_empty() || chunked || fields.has(HeaderId::ContentLength) || fields.has(HeaderId::TransferEncoding) {
        return;
    }
    let length: usize = body.iter().map(Vec::len).sum();
    // Digits are a valid value.
    let _ = fields.set(HeaderId::ContentLength, Decimal::new(length as u64).as_bytes());
}
