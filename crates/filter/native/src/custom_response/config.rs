//! Reading what takes the place of an answer.

use postrider_filter_api::WatchedFile;
use postrider_model::{HeaderValue, LogFormat, Reading};

use crate::{formats, read};

const LOCAL: &str = "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy";

/// An answer that the proxy makes itself.
#[derive(Debug)]
pub(super) struct Policy {
    /// Without one, the status that was there.
    pub(super) status: Option<u16>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) format: Option<LogFormat>,
    pub(super) headers: Vec<HeaderValue>,
    pub(super) details: Details,
    /// The body that was there is put into the format.
    pub(super) wants_body: bool,
}

/// What `%RESPONSE_CODE_DETAILS%` says afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Details {
    None,
    Kept,
    Own(String),
}

impl Policy {
    /// The `typed_config` of an action.
    pub(super) fn read(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Policy> {
        let url = at.text("@type").unwrap_or_default();
        let kind = url.rsplit('/').next().unwrap_or_default();
        if kind != LOCAL {
            at.error("@type", format!("{kind}: not supported by Postrider here; {LOCAL} is"));
            at.skip();
            return None;
        }
        let status = at.number("status_code");
        if status.is_some_and(|status| !(200..600).contains(&status)) {
            at.error("status_code", "a status from 200 to 599 is wanted");
        }
        let body = if at.has("body") { read::data_source(at, "body", files) } else { None };
        // Its content type has no meaning in Envoy: the answer's is text/plain, unless a header says another.
        let format = formats::body(at, "body_format", files).map(|body| body.format);
        let kept = at.flag("preserve_response_code_details");
        let details = match (at.text("response_code_details"), kept) {
            (Some(details), _) => Details::Own(details.replace(|c: char| c.is_ascii_whitespace(), "_")),
            (None, true) => Details::Kept,
            (None, false) => Details::None,
        };
        Some(Policy {
            status: status.and_then(|status| u16::try_from(status).ok()),
            wants_body: format.is_some() && body.is_none(),
            body,
            format,
            headers: at.each("response_headers_to_add", header).into_iter().flatten().collect(),
            details,
        })
    }
}

fn header(at: &mut Reading<'_>) -> Option<HeaderValue> {
    let header = read::header_option(at)?;
    if read::is_protected(header.name.as_bytes()) {
        at.error("header", format!("{}: the proxy writes this field itself", header.name));
    }
    Some(header)
}
