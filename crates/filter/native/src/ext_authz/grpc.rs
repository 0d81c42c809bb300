//! `envoy.service.auth.v3.Authorization/Check`: what the service is told, and what its answer means.

use std::collections::BTreeMap;

use postrider_filter_api::Stream;
use postrider_grpc::auth::attribute_context::{HttpRequest, Peer, Request, TlsSession};
use postrider_grpc::auth::check_response::HttpResponse;
use postrider_grpc::auth::{AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse};
use postrider_grpc::core::{HeaderMap, HeaderValue, HeaderValueOption, Metadata, header_value_option};
use postrider_grpc::{Message, Struct, from_struct, to_struct};
use postrider_http::Version;
use postrider_model::{AppendAction, CertificatePart, Value};

use super::config::{BodySettings, Config};
use super::request::{PARTIAL_BODY, carried, joined};
use super::verdict::{Allowance, Decision, Denial, Header, Verdict};
use crate::wire::{messages, sanitized, to_address, to_timestamp};

/// The message that asks whether the request may go on.
pub(super) fn ask(
    config: &Config,
    context: &[(String, String)],
    body: Option<&BodySettings>,
    stream: &Stream<'_>,
) -> Vec<u8> {
    let info = &stream.info;
    let service = stream.request.fields.get_name(b"x-envoy-downstream-service-cluster");
    let session = info.tls.as_deref();
    let certificate = session.filter(|_| config.include_certificate);
    let certificate = certificate.map(|session| session.of_peer(CertificatePart::PemUrlEncoded));
    let source = Peer {
        // The connection's: what a header says of its client is the client's word.
        address: info.downstream_connection_remote.or(info.downstream_direct_remote).map(to_address),
        service: service.map(sanitized).unwrap_or_default(),
        principal: session.map(|session| principal(|part| session.of_peer(part))).unwrap_or_default(),
        certificate: certificate.and_then(|all| all.into_iter().next()).unwrap_or_default(),
        ..Peer::default()
    };
    let destination = Peer {
        address: info.downstream_local.map(to_address),
        principal: session.map(|session| principal(|part| session.of_us(part))).unwrap_or_default(),
        labels: labels(config, stream),
        ..Peer::default()
    };
    let server_name = || info.tls.as_ref().and_then(|session| session.server_name.clone()).unwrap_or_default();
    let attributes = AttributeContext {
        source: Some(source),
        destination: Some(destination),
        request: Some(Request { time: Some(to_timestamp(info.start)), http: Some(http(config, body, stream)) }),
        context_extensions: context.iter().cloned().collect(),
        metadata_context: Some(Metadata {
            filter_metadata: values(|name| info.metadata_of_either(name), &config.metadata_namespaces),
            typed_filter_metadata: messages(|name| info.typed_of_either(name), &config.typed_namespaces),
        }),
        route_metadata_context: Some(match stream.route {
            Some(route) => Metadata {
                filter_metadata: values(|name| route.metadata.namespace(name), &config.route_metadata_namespaces),
                typed_filter_metadata: messages(|name| route.metadata.typed(name), &config.route_typed_namespaces),
            },
            None => Metadata::default(),
        }),
        tls_session: config.include_tls_session.then(|| TlsSession { sni: server_name() }),
    };
    CheckRequest { attributes: Some(attributes) }.encode_to_vec()
}

/// Who a certificate speaks for: the first of its URIs, else of its DNS names, else its subject.
fn principal(values: impl Fn(CertificatePart) -> Vec<String>) -> String {
    let parts = [CertificatePart::UriNames, CertificatePart::DnsNames, CertificatePart::Subject];
    parts.into_iter().find_map(|part| values(part).into_iter().next()).unwrap_or_default()
}

fn labels(config: &Config, stream: &Stream<'_>) -> BTreeMap<String, String> {
    let Some(key) = &config.labels_key else { return BTreeMap::new() };
    let node = stream.host.node();
    let Value::Map(entries) = &node.metadata else { return BTreeMap::new() };
    match entries.iter().find(|(known, _)| known == key) {
        Some((_, Value::Map(labels))) => {
            let text = |value: &Value| if let Value::String(text) = value { text.clone() } else { String::new() };
            labels.iter().map(|(name, value)| (name.clone(), text(value))).collect()
        }
        _ => BTreeMap::new(),
    }
}

fn http(config: &Config, settings: Option<&BodySettings>, stream: &Stream<'_>) -> HttpRequest {
    let request = &stream.request;
    let all = carried(request, |name| config.shows(name, config.is_http));
    let text = |bytes: &[u8]| sanitized(bytes);
    let mut message = HttpRequest {
        id: stream.info.stream_id.to_string(),
        method: text(request.method_bytes()),
        path: text(request.path()),
        host: text(request.authority()),
        scheme: request.scheme().map(|scheme| scheme.as_str().to_owned()).unwrap_or_default(),
        size: i64::try_from(stream.info.bytes_received).unwrap_or(i64::MAX),
        protocol: match request.version() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        }
        .to_owned(),
        ..HttpRequest::default()
    };
    let mut raw: Vec<(String, Vec<u8>)> = all;
    if let Some(settings) = settings {
        let held = stream.request_body.bytes();
        let sent = held.get(..settings.max).unwrap_or(held);
        // Of a service over HTTP there is no other way, and a route's service gets what the filter's would.
        match settings.as_bytes || config.is_http {
            true => message.raw_body = sent.to_vec(),
            false => message.body = sanitized(sent),
        }
        let partial = sent.len() != held.len();
        raw.push((PARTIAL_BODY.to_owned(), partial.to_string().into_bytes()));
    }
    if config.encode_raw_headers {
        let headers = raw.into_iter().map(|(key, raw_value)| HeaderValue { key, raw_value, ..HeaderValue::default() });
        message.header_map = Some(HeaderMap { headers: headers.collect() });
    } else {
        let lines: BTreeMap<String, String> =
            joined(raw).into_iter().map(|(key, value)| (key, sanitized(&value))).collect();
        message.headers = lines;
    }
    message
}

fn values<'v>(noted: impl Fn(&str) -> Option<&'v Value>, namespaces: &[String]) -> BTreeMap<String, Struct> {
    namespaces.iter().filter_map(|name| Some((name.clone(), to_struct(noted(name)?)))).collect()
}

/// What an answer means. One that cannot be read is a failure.
pub(super) fn verdict(answer: &[u8]) -> Verdict {
    let Ok(answer) = CheckResponse::decode(answer) else { return Verdict::default() };
    let mut metadata = answer.dynamic_metadata;
    // An answer without a status says OK: that is the default of its code.
    let code = answer.status.map_or(0, |status| status.code);
    let decision = match answer.http_response {
        Some(HttpResponse::OkResponse(ok)) if code == 0 => {
            #[allow(deprecated, reason = "services still write it, and it has the last word")]
            let older = ok.dynamic_metadata.clone();
            metadata = older.or(metadata);
            Decision::Allowed(Box::new(allowance(ok)))
        }
        _ if code == 0 => Decision::Allowed(Box::default()),
        Some(HttpResponse::ErrorResponse(error)) => Decision::Failed(failure(error)),
        Some(HttpResponse::DeniedResponse(denied)) => Decision::Denied(denial(denied)),
        _ => Decision::Denied(Denial { status: Some(403), ..Denial::default() }),
    };
    let metadata = match metadata.as_ref().map(from_struct) {
        Some(Value::Map(entries)) => entries,
        _ => Vec::new(),
    };
    Verdict { decision, metadata }
}

fn allowance(ok: OkHttpResponse) -> Allowance {
    let mut allowance = Allowance {
        remove: ok.headers_to_remove,
        query_set: ok.query_parameters_to_set.into_iter().map(|pair| (pair.key, pair.value)).collect(),
        query_remove: ok.query_parameters_to_remove,
        ..Allowance::default()
    };
    for option in ok.headers {
        let list = if appends(&option) == Some(true) { &mut allowance.append } else { &mut allowance.set };
        list.extend(header(option));
    }
    for option in ok.response_headers_to_add {
        match action(&option) {
            Some(action) => allowance.response.extend(header(option).map(|header| (action, header))),
            None => allowance.has_unknown_action = true,
        }
    }
    allowance.order_response();
    allowance
}

fn action(option: &HeaderValueOption) -> Option<AppendAction> {
    use header_value_option::HeaderAppendAction as Action;
    Some(match (appends(option), Action::try_from(option.append_action).ok()) {
        (Some(true), _) | (None, Some(Action::AppendIfExistsOrAdd)) => AppendAction::AppendIfExistsOrAdd,
        (Some(false), _) | (None, Some(Action::OverwriteIfExistsOrAdd)) => AppendAction::OverwriteIfExistsOrAdd,
        (None, Some(Action::AddIfAbsent)) => AppendAction::AddIfAbsent,
        (None, Some(Action::OverwriteIfExists)) => AppendAction::OverwriteIfExists,
        (None, None) => return None,
    })
}

/// Headers that ask to be appended are none of a denial's, as in Envoy.
fn denial(mut denied: DeniedHttpResponse) -> Denial {
    denied.headers.retain(|option| appends(option) != Some(true));
    let denial = failure(denied);
    Denial { status: denial.status.or(Some(403)), ..denial }
}

/// They are a failure's, behind the others.
fn failure(error: DeniedHttpResponse) -> Denial {
    let (appended, set): (Vec<_>, Vec<_>) = error.headers.into_iter().partition(|option| appends(option) == Some(true));
    Denial {
        status: error.status.and_then(|status| u16::try_from(status.code).ok()).filter(|code| *code > 0),
        headers: set.into_iter().chain(appended).filter_map(header).collect(),
        body: error.body.into_bytes(),
    }
}

fn appends(option: &HeaderValueOption) -> Option<bool> {
    #[allow(deprecated, reason = "in this service it is the field that counts")]
    option.append
}

fn header(option: HeaderValueOption) -> Option<Header> {
    let header = option.header?;
    let value = if header.value.is_empty() { header.raw_value } else { header.value.into_bytes() };
    Some((header.key, value))
}
