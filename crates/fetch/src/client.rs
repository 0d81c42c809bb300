//! Requests: HTTP/1.1, a connection for each. There are a few with a new configuration.

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderMap, HeaderName, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use postrider_filter_plugin::without_user;

use crate::credentials;
use crate::way::Way;

/// Largest code, as it comes and unpacked: modules have some megabytes.
pub const MAX_CODE_BYTES: usize = 64 << 20;

/// Most redirects that are followed from one question.
pub const MAX_REDIRECTS: usize = 5;

/// Largest head of an answer.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Question<'q> {
    pub url: String,
    /// Types of content that are taken.
    pub accept: Option<&'q str>,
    /// Told to the host of the URL, and to nobody that it leads to.
    pub authorization: Option<String>,
    /// Largest content.
    pub limit: usize,
    /// Redirects from TLS to none are followed.
    pub insecure: bool,
}

pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// The content of a file.
///
/// # Errors
/// It cannot be had, or the answer is another one than 200.
pub(crate) async fn file(url: &str, way: &Way) -> Result<Vec<u8>, String> {
    let question = Question { url: url.to_owned(), limit: MAX_CODE_BYTES, ..Question::default() };
    let answer = ask(question, way).await?;
    if answer.status != StatusCode::OK {
        return Err(format!("the answer is {}", answer.status.as_u16()));
    }
    Ok(answer.body)
}

/// Asks, and follows redirects: the first way is `way`, each further one is that of the URL that the last answer names.
pub(crate) async fn ask(mut question: Question<'_>, way: &Way) -> Result<Answer, String> {
    let mut way = way.clone();
    for _ in 0..=MAX_REDIRECTS {
        let (url, own) = credentials::of_url(&question.url);
        question.url = url;
        question.authorization = question.authorization.or(own);
        let uri: Uri = question.url.parse().map_err(|error| format!("`{}` is no URL: {error}", question.url))?;
        let response = exchange(&question, &uri, &way).await?;
        let target = response.headers().get(LOCATION).filter(|_| is_redirect(response.status()));
        let Some(target) = target else { return read(response, question.limit).await };
        let target = target.to_str().map_err(|_| "a redirect leads to no URL".to_owned())?;
        let url = resolve(&uri, target)?;
        let next = Way::of_url(&url)?;
        let (shown, _) = without_user(&url);
        if way.is_private() && !next.is_private() && !question.insecure {
            return Err(format!("a redirect leads from TLS to `{shown}`"));
        }
        if shown.parse::<Uri>().ok().and_then(|next| next.authority().cloned()) != uri.authority().cloned() {
            question.authorization = None;
        }
        (question.url, way) = (url, next);
    }
    Err(format!("more than {MAX_REDIRECTS} redirects"))
}

async fn exchange(question: &Question<'_>, uri: &Uri, way: &Way) -> Result<Response<Incoming>, String> {
    let authority = uri.authority().ok_or_else(|| format!("`{uri}` names no host"))?;
    let connection = way.connect(authority.host()).await?;
    let broken = |error: hyper::Error| format!("{authority}: {error}");
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut send, connection) = builder.handshake(TokioIo::new(connection)).await.map_err(broken)?;
    tokio::spawn(async move {
        // What goes wrong on it, the exchange hears.
        let _ = connection.await;
    });
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::get(target).header(HOST, authority.as_str()).header(USER_AGENT, "postrider");
    let more: [(HeaderName, Option<&str>); 2] =
        [(ACCEPT, question.accept), (AUTHORIZATION, question.authorization.as_deref())];
    for (name, value) in more {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    send.send_request(request).await.map_err(broken)
}

async fn read(response: Response<Incoming>, limit: usize) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => format!("the answer breaks off: {error}"),
        Err(_) => format!("the answer is larger than {limit} bytes"),
    })?;
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes().to_vec() })
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where `target` leads from `base`: another URL, or a path on the same host.
fn resolve(base: &Uri, target: &str) -> Result<String, String> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return Ok(target.to_owned());
    }
    let (Some(scheme), Some(authority)) = (base.scheme_str(), base.authority()) else {
        return Err(format!("a redirect leads to `{target}`"));
    };
    if let Some(authority) = target.strip_prefix("//") {
        return Ok(format!("{scheme}://{authority}"));
    }
    if target.starts_with('/') {
        return Ok(format!("{scheme}://{authority}{target}"));
    }
    let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    Ok(format!("{scheme}://{authority}{folder}/{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_urls_and_paths() {
        let base: Uri = "https://a.io:1/b/c?d".parse().unwrap();
        for (target, url) in [
            ("http://e/f", "http://e/f"),
            ("//e/f", "https://e/f"),
            ("/f?g", "https://a.io:1/f?g"),
            ("f", "https://a.io:1/b/f"),
        ] {
            assert_eq!(resolve(&base, target).unwrap(), url);
        }
    }
}
