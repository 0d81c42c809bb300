//! Reads a client's TLS greeting before anybody answers it: the server name and the protocols choose a filter chain.
//!
//! The bytes are only looked at; rustls reads them again. So this is not the judge of what is good TLS, and a greeting
//! that is refused here is one whose server name nobody can trust. It never takes more than [`MAX_HELLO`] bytes, gives
//! the same answer wherever the bytes were cut, and does not panic.

/// Bytes of a greeting, records and all, that are waited for. Envoy's `max_client_hello_size`.
pub const MAX_HELLO: usize = 16 * 1024;

/// Why a greeting of more bytes is [`Inspection::Invalid`].
pub const TOO_LARGE: &str = "the ClientHello is too large";

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446, 5.1: a record that is not encrypted.
const MAX_RECORD: usize = 1 << 14;

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspection {
    /// A greeting so far; ask again when there are more bytes.
    NeedMore,
    /// The client speaks something else.
    NotTls,
    /// It begins as TLS and goes wrong, for this reason.
    Invalid(&'static str),
    Hello(Box<ClientHello>),
}

/// What a client says of itself (RFC 8446, 4.1.2; RFC 5246, 7.4.1.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHello {
    pub(crate) legacy_version: u16,
    pub(crate) cipher_suites: Vec<u16>,
    /// Types, in the order in which they came.
    pub(crate) extensions: Vec<u16>,
    pub(crate) groups: Vec<u16>,
    pub(crate) point_formats: Vec<u8>,
    pub(crate) signature_schemes: Vec<u16>,
    server_name: Option<String>,
    alpn: Vec<Vec<u8>>,
    versions: Vec<u16>,
    wire_bytes: usize,
}

impl ClientHello {
    /// The host that is asked for, in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The protocols that are offered, the client's favourite first.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        self.alpn.iter().map(Vec::as_slice)
    }

    /// The TLS versions that are offered, as on the wire: `0x0304` is TLS 1.3. The values of RFC 8701, which mean
    /// nothing, are among them.
    pub fn versions(&self) -> &[u16] {
        &self.versions
    }

    /// How many bytes the records have that it came in.
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }
}

/// `bytes` are all that came so far, from the first.
pub fn inspect(bytes: &[u8]) -> Inspection {
    match read(bytes) {
        Ok(hello) => Inspection::Hello(Box::new(hello)),
        Err(Stop::NeedMore) if bytes.len() >= MAX_HELLO => Inspection::Invalid(TOO_LARGE),
        Err(Stop::NeedMore) => Inspection::NeedMore,
        Err(Stop::NotTls) => Inspection::NotTls,
        Err(Stop::Invalid(why)) => Inspection::Invalid(why),
    }
}

enum Stop {
    NeedMore,
    NotTls,
    Invalid(&'static str),
}

fn read(bytes: &[u8]) -> Result<ClientHello, Stop> {
    let (message, wire_bytes) = handshake_message(bytes)?;
    let mut fields = Fields(&message);
    let hello = parse(&mut fields).ok_or(Stop::Invalid("the ClientHello is malformed"))??;
    Ok(ClientHello { wire_bytes, ..hello })
}

/// The body of the first handshake message, put together from its records, and how many bytes those have.
fn handshake_message(bytes: &[u8]) -> Result<(Vec<u8>, usize), Stop> {
    let bytes = bytes.get(..MAX_HELLO).unwrap_or(bytes);
    let mut rest = bytes;
    let mut message = Vec::new();
    let mut first = true;
    loop {
        let wrong = |why| if first { Stop::NotTls } else { Stop::Invalid(why) };
        // Each byte is judged as soon as it is there: who speaks something else may wait for an answer.
        match rest {
            [kind, ..] if *kind != HANDSHAKE_RECORD => return Err(wrong("another record interrupts the ClientHello")),
            [_, major, ..] if *major != 3 => return Err(wrong("a record of the ClientHello has no TLS version")),
            _ => {}
        }
        let Some(([_, _, _, high, low], after)) = rest.split_first_chunk::<5>() else { return Err(Stop::NeedMore) };
        let length_of_record = usize::from(u16::from_be_bytes([*high, *low]));
        if length_of_record == 0 || length_of_record > MAX_RECORD {
            return Err(Stop::Invalid("a record of the ClientHello has an impossible length"));
        }
        let content = after.get(..length_of_record).unwrap_or(after);
        message.extend_from_slice(content);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Stop::Invalid("the first message is no ClientHello"));
        }
        if let Some(([_, a, b, c], body)) = message.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap_or(usize::MAX);
            if length > MAX_HELLO {
                return Err(Stop::Invalid(TOO_LARGE));
            }
            if let Some(body) = body.get(..length) {
                let before = bytes.len() - after.len();
                return Ok((body.to_vec(), before + length_of_record));
            }
        }
        match after.get(length_of_record..) {
            Some(next) => rest = next,
            None => return Err(Stop::NeedMore),
        }
        first = false;
    }
}

/// Bytes with lengths in front of them, as all of TLS is. `None` when they end too early.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn short(&mut self) -> Option<Fields<'a>> {
        let length = usize::from(self.u8()?);
        self.take(length).map(Fields)
    }

    fn long(&mut self) -> Option<Fields<'a>> {
        let length = usize::from(self.u16()?);
        self.take(length).map(Fields)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left, as numbers of two bytes.
    fn numbers(mut self) -> Option<Vec<u16>> {
        let mut all = Vec::with_capacity(self.0.len() / 2);
        while !self.is_empty() {
            all.push(self.u16()?);
        }
        Some(all)
    }

    /// `self`, if nothing follows in `outer`.
    fn alone(self, outer: &Fields<'_>) -> Option<Fields<'a>> {
        outer.is_empty().then_some(self)
    }
}

/// `None` when a length does not fit; otherwise the greeting, or why it is refused.
fn parse(fields: &mut Fields<'_>) -> Option<Result<ClientHello, Stop>> {
    let mut hello = ClientHello { legacy_version: fields.u16()?, ..ClientHello::default() };
    fields.take(32)?;
    if fields.short()?.0.len() > 32 {
        return None;
    }
    hello.cipher_suites = fields.long()?.numbers().filter(|it| !it.is_empty())?;
    if fields.short()?.is_empty() {
        return None;
    }
    // RFC 5246, 7.4.1.2: a greeting may end before its extensions.
    let mut extensions = if fields.is_empty() { Fields(&[]) } else { fields.long()? };
    if !fields.is_empty() {
        return None;
    }
    while !extensions.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.long()?;
        hello.extensions.push(kind);
        if let Err(stop) = hello.extension(kind, content)? {
            return Some(Err(stop));
        }
    }
    let mut kinds = hello.extensions.clone();
    kinds.sort_unstable();
    if kinds.windows(2).any(|pair| pair.first() == pair.last()) {
        return Some(Err(Stop::Invalid("the ClientHello has an extension twice")));
    }
    if hello.versions.is_empty() {
        hello.versions.push(hello.legacy_version);
    }
    Some(Ok(hello))
}

pub(crate) mod extension {
    pub(crate) const SERVER_NAME: u16 = 0;
    pub(crate) const SUPPORTED_GROUPS: u16 = 10;
    pub(crate) const POINT_FORMATS: u16 = 11;
    pub(crate) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(crate) const ALPN: u16 = 16;
    pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
}

impl ClientHello {
    fn extension(&mut self, kind: u16, mut content: Fields<'_>) -> Option<Result<(), Stop>> {
        match kind {
            extension::SERVER_NAME => {
                let mut names = content.long()?.alone(&content)?;
                // One name of the one kind there is (RFC 6066, 3).
                let kind = names.u8()?;
                let name = names.long()?.alone(&names)?;
                match server_name(name.0) {
                    Some(name) if kind == 0 => self.server_name = Some(name),
                    _ => return Some(Err(Stop::Invalid("the server name is not a host name"))),
                }
            }
            extension::SUPPORTED_GROUPS => self.groups = content.long()?.alone(&content)?.numbers()?,
            extension::POINT_FORMATS => self.point_formats = content.short()?.alone(&content)?.0.to_vec(),
            extension::SIGNATURE_ALGORITHMS => {
                self.signature_schemes = content.long()?.alone(&content)?.numbers()?;
            }
            extension::ALPN => {
                let mut list = content.long()?.alone(&content)?;
                while !list.is_empty() {
                    self.alpn.push(list.short()?.0.to_vec());
                }
                if self.alpn.is_empty() || self.alpn.iter().any(Vec::is_empty) {
                    return None;
                }
            }
            extension::SUPPORTED_VERSIONS => self.versions = content.short()?.alone(&content)?.numbers()?,
            _ => {}
        }
        Some(Ok(()))
    }
}

/// RFC 6066, 3: ASCII without a trailing dot. What could mean something else to whoever reads it later is refused.
fn server_name(bytes: &[u8]) -> Option<String> {
    let possible = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    let fits = !bytes.is_empty() && bytes.len() <= 255 && bytes.iter().all(possible);
    let text = std::str::from_utf8(bytes).ok()?;
    fits.then(|| text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()).filter(|it| !it.is_empty())
}
