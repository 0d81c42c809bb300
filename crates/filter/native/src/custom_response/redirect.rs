//! An answer that is fetched by a request through the routes: `RedirectPolicy`.
//!
//! ```text
//! answer ──> policy ──> Action::Detour, with a note ──> route, filters, upstream ──> answer, which the note finishes
//! ```

use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::{Action, Detour, Stream};
use postrider_http::{HeaderId, Method, RequestHead, ResponseHead, absolute_uri};
use postrider_model::{Format, HeaderValue, Reading, Redirect, RedirectPath, RedirectScheme};
use postrider_telemetry::stats::Counter;

use super::{config, stat};
use crate::header_options;

pub(super) const KIND: &str = "envoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicy";

#[derive(Debug)]
pub(super) struct RedirectPolicy {
    to: To,
    /// Without one, the status of the answer that is replaced.
    status: Option<u16>,
    request_headers: Vec<HeaderValue>,
    response_headers: Vec<HeaderValue>,
}

/// Where the answer is.
#[derive(Debug)]
enum To {
    Uri(String),
    /// What differs from the request's own URI.
    Parts(Box<Redirect>),
}

/// What is noted of a request that fetches an answer.
struct Fetching {
    policy: Arc<RedirectPolicy>,
    /// Of the answer that is replaced.
    status: u16,
}

impl RedirectPolicy {
    pub(super) fn read(at: &mut Reading<'_>) -> Option<RedirectPolicy> {
        at.refuse("modify_request_headers_action", "changing the request by an extension");
        let uri = at.text("uri").map(|uri| {
            if absolute_uri(uri.as_bytes()).is_none() {
                at.error("uri", format!("\"{uri}\" is no absolute URI, such as http://errors.test/404.html"));
            }
            To::Uri(uri.to_owned())
        });
        let parts = at.map("redirect_action", redirect).map(|redirect| To::Parts(Box::new(redirect)));
        let status = config::status(at);
        let request_headers = config::headers(at, "request_headers_to_add");
        let response_headers = config::headers(at, "response_headers_to_add");
        if uri.is_some() == parts.is_some() {
            at.wrong("exactly one of uri and redirect_action is wanted");
        }
        Some(RedirectPolicy { to: uri.or(parts)?, status, request_headers, response_headers })
    }

    /// The request that fetches what takes the place of the answer whose head is here.
    ///
    /// # Errors
    /// The answer stays: which counter says why.
    pub(super) fn detour(self: &Arc<Self>, stream: &mut Stream<'_>) -> Result<Action, Counter> {
        let head = self.head(stream).ok_or(stat::CUSTOM_RESPONSE_INVALID_URI)?;
        if !stream.host.has_route(stream, &head) {
            return Err(stat::CUSTOM_RESPONSE_REDIRECT_NO_ROUTE);
        }
        let note = Rc::new(Fetching { policy: self.clone(), status: stream.response.status() });
        Ok(Action::Detour(Box::new(Detour { head, note })))
    }

    /// `None` when what is named is no place.
    fn head(&self, stream: &mut Stream<'_>) -> Option<RequestHead> {
        let uri = match &self.to {
            To::Uri(uri) => uri.as_bytes().to_vec(),
            To::Parts(redirect) => match &redirect.path {
                RedirectPath::Format(format) => {
                    let mut path = Vec::new();
                    stream.host.format(stream, format, &mut path);
                    let path = RedirectPath::Replace(String::from_utf8_lossy(&path).into_owned());
                    stream.host.location(stream, &Redirect { path, ..(**redirect).clone() })
                }
                _ => stream.host.location(stream, redirect),
            },
        };
        let (scheme, authority, path) = absolute_uri(&uri)?;
        let mut head = stream.request.clone();
        head.set_authority(authority).ok()?;
        head.set_path(&path).ok()?;
        head.set_scheme(scheme);
        // Who asked for a head alone can take no more.
        if head.method() != Method::Head {
            head.set_method(b"GET").ok()?;
        }
        head.fields.remove(HeaderId::ContentLength);
        // Formats see the request that they are added to, and nothing of the answer but its status.
        let original = std::mem::replace(stream.request, head);
        let answer = std::mem::replace(stream.response, ResponseHead::new());
        let values = header_options::values(&self.request_headers, stream);
        *stream.response = answer;
        let mut head = std::mem::replace(stream.request, original);
        header_options::apply(&self.request_headers, &values, &mut head.fields);
        Some(head)
    }

    /// Makes what was fetched the answer, also where that went wrong: so does Envoy, whatever is said of it.
    fn finish(&self, stream: &mut Stream<'_>, replaced: u16) {
        let values = header_options::values(&self.response_headers, stream);
        header_options::apply(&self.response_headers, &values, &mut stream.response.fields);
        stream.response.set_status(self.status.unwrap_or(replaced));
    }
}

/// Whether the answer was fetched; if so, it is finished.
pub(super) fn finish(stream: &mut Stream<'_>) -> bool {
    let note = stream.info.shared.iter().find_map(|note| note.clone().downcast::<Fetching>().ok());
    if let Some(fetching) = &note {
        fetching.policy.finish(stream, fetching.status);
    }
    note.is_some()
}

/// `RedirectAction`.
fn redirect(at: &mut Reading<'_>) -> Redirect {
    // Nothing of the path was matched for this answer; Envoy refuses them as well.
    for key in ["prefix_rewrite", "regex_rewrite"] {
        at.refuse(key, "another path by what was matched");
    }
    if at.has("response_code") {
        at.error("response_code", "nobody is sent anywhere: status_code of the policy is the status of the answer");
    }
    let named = at.text("scheme_redirect").map(|scheme| RedirectScheme::Named(scheme.to_owned()));
    let secure = at.flag("https_redirect").then_some(RedirectScheme::Https);
    let port = at.number("port_redirect").filter(|port| *port != 0);
    if port.is_some_and(|port| u16::try_from(port).is_err()) {
        at.error("port_redirect", "a port from 1 to 65535 is wanted");
    }
    if at.text("path_redirect").is_some_and(|path| path.contains('#')) {
        at.error("path_redirect", "a fragment (`#…`) stays with clients: it is no part of the address that is asked");
    }
    let path = at.text("path_redirect").map(|path| RedirectPath::Replace(path.to_owned()));
    let made = at.text("path_rewrite").filter(|text| !text.is_empty()).and_then(|text| match Format::parse(text) {
        Ok(format) => Some(RedirectPath::Format(format)),
        Err(error) => {
            at.error("path_rewrite", error.to_string());
            None
        }
    });
    if path.is_some() && made.is_some() {
        at.error("path_rewrite", "path_redirect and path_rewrite exclude each other");
    }
    let path = path.or(made);
    Redirect {
        status: 0,
        scheme: named.or(secure),
        host: at.text("host_redirect").map(str::to_owned),
        port: port.and_then(|port| u16::try_from(port).ok()),
        path: path.unwrap_or_default(),
        strip_query: at.flag("strip_query"),
    }
}
