//! A service as configurations name it: `envoy.config.core.v3.GrpcService`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use postrider_http::{HeaderId, HeaderName, RequestHead, Scheme, grpc};
use postrider_model::{Fields, Format, Reading, RetryPolicy, ValueError, call_retry_policy};

use crate::{ConfigError, Stream};

/// The longest answer taken unless `max_receive_message_length` says otherwise: filters hold it in memory.
const MAX_ANSWER: usize = 4 << 20;

/// Where calls go and what they carry besides their messages.
#[derive(Debug, Clone, PartialEq)]
pub struct GrpcService {
    pub cluster: Arc<str>,
    /// Where none is written, the cluster's name, with `_` for what cannot stand in an authority.
    pub authority: String,
    /// `None` where nothing is said; zero is written for "no limit".
    pub timeout: Option<Duration>,
    pub metadata: Vec<(HeaderName, Format)>,
    pub max_answer: usize,
    /// `None`: a call is tried once.
    pub retries: Option<Arc<RetryPolicy>>,
}

impl GrpcService {
    /// # Errors
    /// All that is wrong with it; what is not supported is named.
    pub fn read(mut fields: Fields<'_>) -> Result<GrpcService, ConfigError> {
        let mut errors = Vec::new();
        if fields.value("google_grpc").is_some() {
            let message = "a client of its own (`google_grpc`) is not supported; `envoy_grpc` calls through a cluster";
            errors.push(fields.error("google_grpc", message));
        }
        let retries = retries(&mut fields, &mut errors);
        let timeout = fields.duration("timeout").map_err(|error| errors.push(error)).ok().flatten();
        let metadata = metadata(&mut fields, &mut errors);
        let (mut cluster, mut authority, mut max_answer) = ("", "", None);
        match fields.map("envoy_grpc") {
            Ok(Some(mut grpc)) => {
                cluster = grpc.string("cluster_name").map_err(|error| errors.push(error)).ok().flatten().unwrap_or("");
                authority = grpc.string("authority").map_err(|error| errors.push(error)).ok().flatten().unwrap_or("");
                let length = grpc.integer("max_receive_message_length").map_err(|error| errors.push(error));
                max_answer = length.ok().flatten().and_then(|length| usize::try_from(length).ok());
                // What it turns off is not sent here in the first place.
                let _ = grpc.bool("skip_envoy_headers").map_err(|error| errors.push(error));
                // For streams of a control plane alone.
                grpc.value("retry_policy");
                if cluster.is_empty() {
                    errors.push(grpc.error("cluster_name", "the name of a cluster is required"));
                }
                errors.extend(grpc.finish().err().into_iter().flatten());
            }
            Ok(None) if errors.is_empty() => {
                errors
                    .push(fields.error("envoy_grpc", "`envoy_grpc` with the `cluster_name` of a cluster is required"));
            }
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
        let authority = match authority {
            "" => authority_of(cluster),
            written => written.to_owned(),
        };
        if !cluster.is_empty() && RequestHead::new().set_authority(authority.as_bytes()).is_err() {
            errors.push(fields.error("envoy_grpc", format!("\"{authority}\" cannot be an authority; set `authority`")));
        }
        let service = GrpcService {
            cluster: cluster.into(),
            authority,
            timeout,
            metadata,
            max_answer: max_answer.filter(|most| *most > 0).unwrap_or(MAX_ANSWER),
            retries,
        };
        errors.extend(fields.finish().err().into_iter().flatten());
        if errors.is_empty() { Ok(service) } else { Err(errors) }
    }

    /// One of which nothing but the cluster is said.
    pub fn of(cluster: Arc<str>) -> GrpcService {
        let authority = authority_of(&cluster);
        GrpcService { cluster, authority, ..GrpcService::none() }
    }

    /// In place of one that could not be read, beside the errors that say why.
    pub fn none() -> GrpcService {
        GrpcService {
            cluster: "".into(),
            authority: String::new(),
            timeout: None,
            metadata: Vec::new(),
            max_answer: MAX_ANSWER,
            retries: None,
        }
    }

    /// The time limit of a call: what was written, or `default`. A written zero is no limit.
    pub fn timeout_or(&self, default: Option<Duration>) -> Option<Duration> {
        match self.timeout {
            None => default,
            Some(limit) if limit.is_zero() => None,
            Some(limit) => Some(limit),
        }
    }

    /// The head of a call of `method` (`/package.Service/Method`), on behalf of a stream.
    pub fn head(&self, method: &str, timeout: Option<Duration>, stream: &Stream<'_>) -> RequestHead {
        let mut head = self.bare_head(method, timeout);
        let mut value = Vec::new();
        for (name, format) in &self.metadata {
            value.clear();
            stream.host.format(stream, format, &mut value);
            add(&mut head, name, &value);
        }
        head
    }

    /// The same on behalf of nobody: values that depend on a stream are left out.
    pub fn head_of_none(&self, method: &str, timeout: Option<Duration>) -> RequestHead {
        let mut head = self.bare_head(method, timeout);
        for (name, format) in &self.metadata {
            if let Some(text) = format.as_literal() {
                add(&mut head, name, text.as_bytes());
            }
        }
        head
    }

    fn bare_head(&self, method: &str, timeout: Option<Duration>) -> RequestHead {
        let mut head = RequestHead::new();
        // The parts were checked when they were read, or are ours.
        let _ = head.set_method(b"POST");
        let _ = head.set_path(method.as_bytes());
        let _ = head.set_authority(self.authority.as_bytes());
        head.set_scheme(Scheme::Http);
        let _ = head.fields.append(HeaderId::Te, b"trailers");
        if let Some(limit) = timeout {
            let mut text = Vec::new();
            grpc::write_timeout(limit, &mut text);
            let _ = head.fields.append(HeaderId::GrpcTimeout, &text);
        }
        let _ = head.fields.append(HeaderId::ContentType, grpc::CONTENT_TYPE);
        head
    }
}

/// What comes out empty is not sent, and bytes go as gRPC wants them.
fn add(head: &mut RequestHead, name: &HeaderName, value: &[u8]) {
    if value.is_empty() {
        return;
    }
    // A value with control bytes, made from a request, is left out.
    let _ = match name.as_bytes().ends_with(b"-bin") {
        true => head.fields.append_header(name, BASE64.encode(value).as_bytes()),
        false => head.fields.append_header(name, value),
    };
}

fn authority_of(cluster: &str) -> String {
    cluster.replace(|c: char| !(c.is_ascii_alphanumeric() || "-._~:".contains(c)), "_")
}

fn retries(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<Arc<RetryPolicy>> {
    const KEY: &str = "retry_policy";
    let read = Reading::all(fields.value(KEY)?, call_retry_policy);
    let within = |error: ValueError| ValueError { path: fields.path_of(&format!("{KEY}.{}", error.path)), ..error };
    read.map(Arc::new).map_err(|found| errors.extend(found.into_iter().map(within))).ok()
}

fn metadata(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Vec<(HeaderName, Format)> {
    let items = fields.maps("initial_metadata").map_err(|error| errors.push(error)).unwrap_or_default();
    let mut all = Vec::new();
    for mut item in items {
        let key = item.string("key").map_err(|error| errors.push(error)).ok().flatten().unwrap_or_default();
        let name = HeaderName::new(key.as_bytes());
        if name.is_err() {
            errors.push(item.error("key", format!("\"{key}\" is no header name")));
        }
        let text = item.string("value").map_err(|error| errors.push(error)).ok().flatten().unwrap_or_default();
        let format = Format::parse(text).map_err(|error| errors.push(item.error("value", error.to_string())));
        errors.extend(item.finish().err().into_iter().flatten());
        all.extend(name.ok().zip(format.ok()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeStream;
    use postrider_model::Value;

    fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Map(entries.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    fn read(value: &Value) -> Result<GrpcService, ConfigError> {
        GrpcService::read(value.fields().unwrap())
    }

    #[test]
    fn a_head_has_what_grpc_wants_and_the_metadata_of_the_stream() {
        let item = |key: &str, value: &str| map([("key", text(key)), ("value", text(value))]);
        let metadata = Value::List(vec![
            item("X-Path", "<%REQ(:path)%>"),
            item("x-none", "%REQ(x-none)%"),
            item("x-some-bin", "ab\u{e9}"),
        ]);
        let service = read(&map([
            ("envoy_grpc", map([("cluster_name", text("authz"))])),
            ("timeout", text("0.25s")),
            ("initial_metadata", metadata),
        ]))
        .unwrap();
        let timeout = service.timeout_or(None);
        let head = FakeStream::new("GET", "/a", &[]).with(|stream| service.head("/p.S/M", timeout, stream));
        assert_eq!((head.method_bytes(), head.path(), head.authority()), (&b"POST"[..], &b"/p.S/M"[..], &b"authz"[..]));
        let get = |name: &str| head.fields.get_name(name.as_bytes()).map(String::from_utf8_lossy);
        assert_eq!(get("grpc-timeout").as_deref(), Some("250m"));
        assert_eq!(get("content-type").as_deref(), Some("application/grpc"));
        assert_eq!(get("x-path").as_deref(), Some("</a>"));
        assert_eq!((get("x-none"), get("x-some-bin").as_deref()), (None, Some("YWLDqQ==")));
        assert!(service.head_of_none("/p.S/M", None).fields.get_name(b"x-path").is_none());
    }

    #[test]
    fn a_service_says_how_often_it_is_called() {
        let once = map([("envoy_grpc", map([("cluster_name", text("a")), ("retry_policy", map([]))]))]);
        assert!(read(&once).unwrap().retries.is_none());
        let policy = map([("retry_on", text("unavailable")), ("num_retries", Value::Integer(2))]);
        let again = map([("envoy_grpc", map([("cluster_name", text("a"))])), ("retry_policy", policy)]);
        assert_eq!(read(&again).unwrap().retries.unwrap().retries, 2);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let refused = |value: Value| read(&value).unwrap_err().into_iter().map(|error| error.path).collect::<Vec<_>>();
        assert_eq!(refused(map([("google_grpc", map([]))])), ["google_grpc"]);
        assert_eq!(refused(map([])), ["envoy_grpc"]);
        let grpc = || map([("cluster_name", text("a"))]);
        let policy = map([("retry_on", text("never"))]);
        assert_eq!(refused(map([("envoy_grpc", grpc()), ("retry_policy", policy)])), ["retry_policy.retry_on"]);
        let key = Value::List(vec![map([("key", text("a b"))])]);
        let refused = refused(map([("envoy_grpc", grpc()), ("initial_metadata", key)]));
        assert_eq!(refused, ["initial_metadata[0].key"]);
    }
}
