//! An answer that the proxy makes itself: `LocalResponsePolicy`.

use std::borrow::Cow;

use postrider_filter_api::{Action, LocalReply, Stream, WatchedFile};
use postrider_http::ResponseHead;
use postrider_model::{AppendAction, HeaderValue, LogFormat, Reading};

use super::config;
use crate::{formats, read};

pub(super) const KIND: &str = "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy";

#[derive(Debug)]
pub(super) struct LocalPolicy {
    /// Without one, the status that was there.
    status: Option<u16>,
    body: Option<Vec<u8>>,
    format: Option<LogFormat>,
    headers: Vec<HeaderValue>,
    details: Details,
    /// The body that was there is put into the format.
    pub(super) wants_body: bool,
}

/// What `%RESPONSE_CODE_DETAILS%` says afterwards.
#[derive(Debug, PartialEq, Eq)]
enum Details {
    None,
    Kept,
    Own(String),
}

impl LocalPolicy {
    pub(super) fn read(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> LocalPolicy {
        let status = config::status(at);
        let body = if at.has("body") { read::data_source(at, "body", files) } else { None };
        // Its content type has no meaning in Envoy: the answer's is text/plain, unless a header says another.
        let format = formats::body(at, "body_format", files).map(|body| body.format);
        let kept = at.flag("preserve_response_code_details");
        let details = match (at.text("response_code_details"), kept) {
            (Some(details), _) => Details::Own(details.replace(|c: char| c.is_ascii_whitespace(), "_")),
            (None, true) => Details::Kept,
            (None, false) => Details::None,
        };
        LocalPolicy {
            status,
            wants_body: format.is_some() && body.is_none(),
            body,
            format,
            headers: config::headers(at, "response_headers_to_add"),
            details,
        }
    }

    /// `known`: the body of the answer that is replaced, if it counts.
    pub(super) fn answer(&self, stream: &mut Stream<'_>, known: &[u8]) -> Action {
        let status = self.status.unwrap_or_else(|| stream.response.status());
        let own = self.body.as_deref();
        let body = match &self.format {
            Some(format) => {
                let mut body = Vec::new();
                stream.host.write(stream, format, own.unwrap_or(known), &mut body);
                body
            }
            None => own.unwrap_or_default().to_vec(),
        };
        let headers = self.headers(stream);
        let details = match &self.details {
            Details::None => {
                stream.info.details = Cow::Borrowed("");
                Cow::Borrowed("")
            }
            Details::Kept => Cow::Borrowed(""),
            Details::Own(details) => Cow::Owned(details.clone()),
        };
        Action::Respond(Box::new(LocalReply { status, body: body.into(), headers, details, ..LocalReply::default() }))
    }

    /// What is added to the answer. Its own headers, such as its content type, come later: nothing exists yet that could
    /// be overwritten, and no format sees headers of an answer.
    fn headers(&self, stream: &mut Stream<'_>) -> Vec<Field> {
        let replaced = std::mem::replace(stream.response, ResponseHead::new());
        let (mut set, mut added): (Vec<Field>, Vec<Field>) = (Vec::new(), Vec::new());
        for header in &self.headers {
            let mut value = Vec::new();
            stream.host.format(stream, &header.value, &mut value);
            if value.is_empty() && !header.keep_empty {
                continue;
            }
            let field = (Cow::Owned(header.name.clone()), Cow::Owned(value));
            match header.action {
                AppendAction::OverwriteIfExistsOrAdd => {
                    set.retain(|(name, _)| *name != field.0);
                    set.push(field);
                }
                AppendAction::AppendIfExistsOrAdd | AppendAction::AddIfAbsent => added.push(field),
                AppendAction::OverwriteIfExists => {}
            }
        }
        *stream.response = replaced;
        set.extend(added);
        set
    }
}

/// A header's name and value, as a local reply has them.
type Field = (Cow<'static, str>, Cow<'static, [u8]>);
