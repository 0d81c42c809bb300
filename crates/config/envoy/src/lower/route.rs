//! Routes: what they match and what they do.

use std::sync::Arc;

use postrider_model::{
    Action, BodyFormat, DirectResponse, PathMatch, PathTemplate, Redirect, RedirectPath, RedirectScheme, ResponseBody,
    Route, RouteMatch, StreamMatch,
};

use super::context::{Lowering, origin};
use super::forward::OfRoute;
use super::tables::{HostRules, TableRules};
use super::{cors, data, filters, forward, headers, matchers, metadata, retry, tracing};
use crate::reader::Reader;

/// `host` is what the virtual host says about its routes.
pub(super) fn route(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &TableRules<'_>, host: &HostRules) -> Option<Route> {
    let tracing = tracing::of_route(cx, at);
    let request_headers = headers::request_edits(cx, at);
    let response_headers = headers::response_edits(cx, at);
    let mut filter_overrides = filters::overrides(cx, at, rules.filters);
    let metadata = Arc::new(metadata::with_messages(at));
    let matches = at.message("match").and_then(|place| matches(cx, &place));
    let mut action = action(cx, at, rules, host);
    cors::of_route(cx, at, rules, &host.cors, action.as_mut(), &mut filter_overrides);
    let name = at.str("name").to_owned();
    Some(Route {
        name,
        matches: matches?,
        action: action?,
        stat_prefix: at.str("stat_prefix").to_owned(),
        request_headers,
        response_headers,
        filter_overrides,
        metadata,
        tracing,
        origin: origin(at),
    })
}

fn action(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &TableRules<'_>, host: &HostRules) -> Option<Action> {
    let body_limit = retry::BodyLimit::read(at);
    match at.oneof("action") {
        Some("route") => {
            // Errors in it were reported with the match.
            let template = at
                .message("match")
                .and_then(|place| place.message("path_match_policy")?.any("typed_config")?.reader)
                .and_then(|config| PathTemplate::new(config.str("path_template")).ok());
            let own = OfRoute { body_limit, template };
            let forward = forward::forward(cx, &at.message("route")?, rules, host, own)?;
            Some(Action::Forward(Box::new(forward)))
        }
        Some("redirect") => Some(Action::Redirect(Box::new(redirect(cx, &at.message("redirect")?)?))),
        Some("direct_response") => Some(Action::Respond(respond(cx, &at.message("direct_response")?, rules))),
        // Filters are to answer: what comes to the end of their chain finds no cluster.
        Some(other @ ("filter_action" | "non_forwarding_action")) => {
            at.whole(other);
            Some(Action::Forward(Box::new(forward::nowhere())))
        }
        Some(other) => {
            cx.refuse(at, other, &format!("the action `{other}`"));
            None
        }
        None => {
            cx.missing(at, "the route has no action", "`route`, `redirect` or `direct_response`");
            None
        }
    }
}

fn matches(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<RouteMatch> {
    let path = match at.oneof("path_specifier") {
        Some("prefix") => Some(PathMatch::Prefix(at.str("prefix").to_owned())),
        Some("path") => Some(PathMatch::Exact(at.str("path").to_owned())),
        Some("safe_regex") => cx.regex(&at.message("safe_regex")?).map(PathMatch::Regex),
        Some("path_separated_prefix") => Some(PathMatch::SeparatedPrefix(at.str("path_separated_prefix").to_owned())),
        Some("connect_matcher") => {
            at.message("connect_matcher");
            Some(PathMatch::Connect)
        }
        Some("path_match_policy") => template(cx, at).map(|template| PathMatch::Regex(template.regex)),
        Some(other) => {
            cx.refuse(at, other, "this condition on a path");
            None
        }
        None => {
            cx.missing(at, "the match has no path", "`prefix`, `path`, `safe_regex` or `path_separated_prefix`");
            None
        }
    };
    let headers = at.list("headers");
    let query = at.list("query_parameters");
    let cookies = at.list("cookies");
    let stream = stream_match(cx, at);
    let fraction = at.message("runtime_fraction").and_then(|fraction| {
        fraction.str("runtime_key");
        matchers::parts_per_million(&fraction.message("default_value")?)
    });
    Some(RouteMatch {
        case_sensitive: at.bool_wrapper("case_sensitive").unwrap_or(true),
        headers: headers.iter().filter_map(|header| matchers::header(cx, header)).collect(),
        query: query.iter().filter_map(|parameter| matchers::query(cx, parameter)).collect(),
        cookies: cookies.iter().filter_map(|cookie| matchers::cookie(cx, cookie)).collect(),
        grpc: at.message("grpc").is_some(),
        stream: (stream != StreamMatch::default()).then(|| Box::new(stream)),
        fraction: fraction.filter(|parts| *parts < matchers::MILLION),
        path: path?,
    })
}

/// What a route wants to know beside the request.
fn stream_match(cx: &mut Lowering<'_>, at: &Reader<'_>) -> StreamMatch {
    let tls = at.message("tls_context");
    let metadata = at.list("dynamic_metadata");
    let state = at.list("filter_state");
    StreamMatch {
        metadata: metadata.iter().filter_map(|matcher| matchers::metadata(cx, matcher)).collect(),
        state: state.iter().filter_map(|matcher| matchers::state(cx, matcher)).collect(),
        presented: tls.as_ref().and_then(|tls| tls.bool_wrapper("presented")),
        validated: tls.as_ref().and_then(|tls| tls.bool_wrapper("validated")),
    }
}

/// The template of a match whose path is one.
pub(super) fn template(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<PathTemplate> {
    let extension = at.message("path_match_policy")?;
    extension.str("name");
    let any = extension.any("typed_config")?;
    let (TEMPLATE, Some(config)) = (any.type_name, &any.reader) else {
        cx.refuse_extension(&extension, "typed_config", &any);
        return None;
    };
    let text = config.str("path_template");
    PathTemplate::new(text).map_err(|problem| cx.error(config, "path_template", "invalid-template", problem)).ok()
}

const TEMPLATE: &str = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";

fn redirect(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Redirect> {
    let host = at.str("host_redirect");
    let port = at.u32("port_redirect");
    let strip_query = at.bool("strip_query");
    let status = match at.enum_name("response_code").as_str() {
        "FOUND" => 302,
        "SEE_OTHER" => 303,
        "TEMPORARY_REDIRECT" => 307,
        "PERMANENT_REDIRECT" => 308,
        _ => 301,
    };
    let scheme = match at.oneof("scheme_rewrite_specifier") {
        Some("https_redirect") if at.bool("https_redirect") => Some(RedirectScheme::Https),
        Some("scheme_redirect") => Some(RedirectScheme::Named(at.str("scheme_redirect").to_owned())),
        _ => None,
    };
    let path = match at.oneof("path_rewrite_specifier") {
        Some("path_redirect") => RedirectPath::Replace(at.str("path_redirect").to_owned()),
        Some("prefix_rewrite") => RedirectPath::Prefix(at.str("prefix_rewrite").to_owned()),
        Some("regex_rewrite") => {
            let (pattern, substitution) = matchers::substitution(cx, &at.message("regex_rewrite")?)?;
            RedirectPath::Regex { pattern, substitution }
        }
        Some(_) => RedirectPath::Format(cx.format(at, "path_rewrite", at.str("path_rewrite"))),
        None => RedirectPath::Keep,
    };
    let Ok(number) = u16::try_from(port) else {
        cx.error(at, "port_redirect", "invalid-port", format!("{port} is no port"));
        return None;
    };
    Some(Redirect {
        status,
        scheme,
        host: (!host.is_empty()).then(|| host.to_owned()),
        port: (number != 0).then_some(number),
        path,
        strip_query,
    })
}

fn respond(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &TableRules<'_>) -> DirectResponse {
    let fixed = at.message("body").and_then(|body| data::source_bytes(cx, &body)).unwrap_or_default();
    if fixed.len() > rules.max_body {
        let text = format!("the body has {} bytes; at most {} are allowed", fixed.len(), rules.max_body);
        let diagnostic = at
            .diagnostic_at("body", postrider_config_core::Severity::Error, "body-too-large", text)
            .help("raise max_direct_response_body_size_bytes of the route configuration");
        cx.push(diagnostic);
    }
    let (body, content_type) = match at.message("body_format") {
        Some(format) => {
            let BodyFormat { format, content_type } = data::body_format(cx, &format);
            (ResponseBody::Format { fixed, format: Box::new(format) }, Some(content_type))
        }
        None => (ResponseBody::Fixed(fixed), None),
    };
    DirectResponse { status: u16::try_from(at.u32("status")).unwrap_or(200), body, content_type }
}
