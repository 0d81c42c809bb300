//! What configurations hold that plain values do not know: header names, statuses, data from files.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::WatchedFile;
use postrider_grpc::core::StatusCode;
use postrider_http::{HeaderName, Scheme, is_field_value};
use postrider_model::{AppendAction, Format, HeaderValue, Packed, Piece, Reading, Value, in_newer_forms};

/// A field name.
pub(crate) fn header(at: &mut Reading<'_>, key: &str) -> Option<HeaderName> {
    let text = at.text(key)?;
    match HeaderName::new(text.as_bytes()) {
        Ok(name) => Some(name),
        Err(_) => {
            at.error(key, format!("\"{text}\" is no header name"));
            None
        }
    }
}

/// A field name that a filter may write.
pub(crate) fn own_header(at: &mut Reading<'_>, key: &str) -> Option<HeaderName> {
    let name = header(at, key)?;
    if is_protected(name.as_bytes()) {
        at.error(key, "the proxy writes this field itself");
    }
    Some(name)
}

/// Fields that the proxy writes itself, from what it decided about the message.
pub(crate) fn is_protected(name: &[u8]) -> bool {
    const OWN: [&[u8]; 10] = [
        b"host",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"upgrade",
        b"te",
        b"trailer",
        b"keep-alive",
        b"proxy-connection",
        b"http2-settings",
    ];
    name.first() == Some(&b':') || OWN.contains(&name)
}

/// What a field can hold.
pub(crate) fn field_value(at: &mut Reading<'_>, key: &str) -> Option<String> {
    let text = at.text(key)?;
    if !is_field_value(text.as_bytes()) {
        at.error(key, "a header value cannot hold control characters");
        return None;
    }
    Some(text.to_owned())
}

/// `HttpStatus`.
pub(crate) fn status(at: &mut Reading<'_>, key: &str) -> Option<u16> {
    at.map(key, |status| {
        let name = status.text("code")?;
        let code = StatusCode::from_str_name(name).and_then(|code| u16::try_from(code as i32).ok());
        if code.is_none() {
            status.error("code", format!("\"{name}\" is no status"));
        }
        code
    })
    .flatten()
}

/// `HeaderValueOption`.
pub(crate) fn header_option(at: &mut Reading<'_>) -> Option<HeaderValue> {
    const ACTIONS: [(&str, AppendAction); 4] = [
        ("APPEND_IF_EXISTS_OR_ADD", AppendAction::AppendIfExistsOrAdd),
        ("ADD_IF_ABSENT", AppendAction::AddIfAbsent),
        ("OVERWRITE_IF_EXISTS_OR_ADD", AppendAction::OverwriteIfExistsOrAdd),
        ("OVERWRITE_IF_EXISTS", AppendAction::OverwriteIfExists),
    ];
    let field = at.map("header", |field| {
        let name = own_header(field, "key");
        if name.is_none() && !field.has("key") {
            field.error("key", "a header name is required");
        }
        field.refuse("raw_value", "a value in bytes");
        let format = Format::parse(&in_newer_forms(field.text("value").unwrap_or_default()));
        let format = format.map_err(|error| field.error("value", error.to_string())).ok()?;
        let fits = |piece: &Piece| !matches!(piece, Piece::Text(text) if !is_field_value(text.as_bytes()));
        if !format.pieces.iter().all(fits) {
            field.error("value", "a header value cannot hold control characters");
        }
        Some((String::from_utf8_lossy(name?.as_bytes()).into_owned(), format))
    });
    if field.is_none() {
        at.error("header", "the header is required");
    }
    let written = at.text("append_action");
    let action = ACTIONS.iter().find(|(name, _)| Some(*name) == written).map(|(_, action)| *action);
    let action = match at.bool("append") {
        Some(false) => AppendAction::OverwriteIfExistsOrAdd,
        Some(true) | None => action.unwrap_or_default(),
    };
    let keep_empty = at.flag("keep_empty_value");
    let (name, value) = field.flatten()?;
    Some(HeaderValue { name, value, action, keep_empty })
}

/// A message that is handed on, as whoever read the configuration left it.
pub(crate) fn packed(at: &mut Reading<'_>, key: &str) -> Option<Packed> {
    at.map(key, |at| {
        let kind = at.text("@type").unwrap_or_default().into();
        let bytes = STANDARD.decode(at.text("@bytes").unwrap_or_default());
        let bytes = bytes.map_err(|error| at.error("@bytes", error.to_string())).ok()?;
        Some(Packed { kind, bytes: bytes.into() })
    })
    .flatten()
}

/// Whom to ask, and for how long.
#[derive(Debug)]
pub(crate) struct HttpUri {
    pub(crate) cluster: String,
    /// `None` where none is written, or an unknown one.
    pub(crate) scheme: Option<Scheme>,
    pub(crate) authority: String,
    pub(crate) path: String,
    pub(crate) timeout: Option<Duration>,
    /// It was written with a scheme, a host and no port that is none.
    pub(crate) is_absolute: bool,
}

/// `HttpUri`.
pub(crate) fn http_uri(at: &mut Reading<'_>) -> HttpUri {
    let cluster = at.text("cluster").unwrap_or_default().to_owned();
    if cluster.is_empty() {
        at.error("cluster", "the name of a cluster is required");
    }
    let text = at.text("uri").unwrap_or_default();
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    // What stands behind a `#` is never sent (RFC 9110 section 7.1).
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, authority) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !user.is_empty() {
        at.error("uri", "a user and password in it are not sent");
    }
    if authority.is_empty() {
        at.error("uri", format!("\"{text}\" names no host"));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        at.error("uri", "its path has characters that are to be written in percent-encoding");
    }
    HttpUri {
        cluster,
        is_absolute: text.contains("://") && is_authority(authority),
        scheme: [Scheme::Http, Scheme::Https].into_iter().find(|known| scheme.eq_ignore_ascii_case(known.as_str())),
        authority: authority.to_owned(),
        path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        timeout: at.duration("timeout").filter(|timeout| !timeout.is_zero()),
    }
}

/// Whether a text may be a host with or without a port (RFC 3986 section 3.2).
fn is_authority(text: &str) -> bool {
    let after_host = text.rsplit_once(']').map_or(text, |(_, rest)| rest);
    let port = after_host.rsplit_once(':').map_or("0", |(_, port)| port);
    text.bytes().all(|byte| byte.is_ascii_graphic()) && port.parse::<u16>().is_ok()
}

/// Largest file read as data: not whatever a path happens to lead to.
const MAX_DATA_BYTES: u64 = 8 << 20;

/// `DataSource`. A file that is read is added to `files`.
pub(crate) fn data_source(at: &mut Reading<'_>, key: &str, files: &mut Vec<WatchedFile>) -> Option<Vec<u8>> {
    at.map(key, |at| data_source_of(at, files)).flatten()
}

/// The same where its place is read already.
pub(crate) fn data_source_of(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Vec<u8>> {
    const PLACES: [&str; 4] = ["inline_string", "inline_bytes", "filename", "environment_variable"];
    // Every file is watched, whatever changes it.
    at.map("watched_directory", |at| at.text("path").map(str::len));
    // An empty text is one, too.
    let named = PLACES.iter().filter_map(|place| match at.value(place)? {
        Value::String(text) => Some((*place, text.as_str())),
        _ => None,
    });
    let named: Vec<(&str, &str)> = named.collect();
    let [(place, value)] = named[..] else {
        at.wrong(format!("exactly one of {} is wanted", PLACES.join(", ")));
        return None;
    };
    let data = match place {
        "inline_bytes" => STANDARD.decode(value).map_err(|error| error.to_string()),
        "filename" => {
            let content = file(Path::new(value));
            files.push(WatchedFile::new(Path::new(value), content.as_deref().ok()));
            content.map_err(|error| format!("cannot read {value}: {error}"))
        }
        "environment_variable" => {
            std::env::var(value).map(String::into_bytes).map_err(|error| format!("{value}: {error}"))
        }
        _ => Ok(value.as_bytes().to_vec()),
    };
    data.map_err(|message| at.error(place, message)).ok()
}

/// A file that a configuration names.
///
/// # Errors
/// The system's reason, or that it is too large.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_DATA_BYTES {
        return Err(format!("it has {size} bytes; at most {MAX_DATA_BYTES} are read"));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}
