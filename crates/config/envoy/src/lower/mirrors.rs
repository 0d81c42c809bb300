//! Copies of requests (`RequestMirrorPolicy`), and redirects that are followed here (`InternalRedirectPolicy`).

use std::sync::Arc;

use postrider_model::{HeaderEdits, HeaderMutation, InternalRedirects, Mirror, MirrorTarget, StringKind};

use super::context::Lowering;
use super::tables::TableRules;
use super::{forward, headers, matchers};
use crate::reader::Reader;

/// Redirects are followed once where `max_internal_redirects` is absent.
const FOLLOWED: u32 = 1;

const COPIED: &str = "response_headers_to_copy";

const PREVIOUS_ROUTES: &str = "envoy.extensions.internal_redirect.previous_routes.v3.PreviousRoutesConfig";
const ALLOWED_ROUTES: &str = "envoy.extensions.internal_redirect.allow_listed_routes.v3.AllowListedRoutesConfig";
const SAFE_SCHEMES: &str = "envoy.extensions.internal_redirect.safe_cross_scheme.v3.SafeCrossSchemeConfig";

/// The field `request_mirror_policies` of a table, a virtual host or a route.
pub(super) fn mirrors(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &TableRules<'_>) -> Vec<Mirror> {
    at.list("request_mirror_policies").iter().filter_map(|policy| mirror(cx, policy, Some(rules))).collect()
}

/// The same of a cluster, which may name one that is not there yet.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<Mirror> {
    at.list("request_mirror_policies").iter().filter_map(|policy| mirror(cx, policy, None)).collect()
}

fn mirror(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: Option<&TableRules<'_>>) -> Option<Mirror> {
    at.ignore("trace_sampled", "a copy carries the trace of its request as that carries it");
    let fraction = at.message("runtime_fraction").and_then(|fraction| {
        fraction.str("runtime_key");
        matchers::parts_per_million(&fraction.message("default_value")?)
    });
    let (cluster, header) = (at.str("cluster"), at.str("cluster_header"));
    let host = at.str("host_rewrite_literal");
    let mutations = at.list("request_headers_mutations");
    let mirror = Mirror {
        target: MirrorTarget::Cluster(cluster.to_owned()),
        fraction: fraction.filter(|parts| *parts < matchers::MILLION),
        host: (!host.is_empty()).then(|| host.to_owned()),
        marks_host: !at.bool("disable_shadow_host_suffix_append") && host.is_empty(),
        headers: mutations.iter().filter_map(|mutation| edit(cx, mutation)).collect(),
    };
    match (cluster.is_empty(), header.is_empty()) {
        (false, true) => {
            if let Some(rules) = rules {
                forward::uses(cx, at, "cluster", cluster, rules);
            }
            Some(mirror)
        }
        (true, false) => Some(Mirror { target: MirrorTarget::Header(matchers::lookup_name(header)), ..mirror }),
        (true, true) => {
            cx.missing(at, "the mirror has no cluster", "`cluster` or `cluster_header`");
            None
        }
        (false, false) => {
            cx.error(at, "cluster_header", "conflict", "`cluster` and `cluster_header` exclude each other");
            None
        }
    }
}

/// `envoy.config.common.mutation_rules.v3.HeaderMutation`.
pub(super) fn edit(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HeaderMutation> {
    match at.oneof("action") {
        Some("append") => {
            let add = headers::addition(cx, &at.message("append")?)?;
            Some(HeaderMutation::Edits(HeaderEdits { add: vec![add], remove: Vec::new() }))
        }
        Some("remove") => {
            let remove = headers::edited_name(cx, at, "remove")?;
            Some(HeaderMutation::Edits(HeaderEdits { add: Vec::new(), remove: vec![remove] }))
        }
        Some("remove_on_match") => {
            let matcher = at.message("remove_on_match")?.message("key_matcher")?;
            let condition = matchers::string(cx, &matcher)?;
            if matches!(condition.kind, StringKind::Custom { .. }) {
                cx.refuse_value(&matcher, "custom", "a plugin's condition on the names of headers");
                return None;
            }
            Some(HeaderMutation::RemoveMatching(condition))
        }
        Some(other) => {
            cx.refuse(at, other, "this mutation of headers");
            None
        }
        None => {
            cx.missing(at, "the mutation changes nothing", "`append`, `remove` or `remove_on_match`");
            None
        }
    }
}

/// The field `internal_redirect_policy` of a route action, or what it has replaced.
pub(super) fn redirects(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Arc<InternalRedirects>> {
    let older = at.enum_name("internal_redirect_action") == "HANDLE_INTERNAL_REDIRECT";
    let older_max = at.u32_wrapper("max_internal_redirects").unwrap_or(FOLLOWED);
    let mut redirects = InternalRedirects {
        statuses: vec![302],
        max: older_max,
        across_schemes: false,
        safe_schemes: false,
        new_routes: false,
        allowed_routes: Vec::new(),
        copied_headers: Vec::new(),
    };
    let Some(at) = at.message("internal_redirect_policy") else { return older.then(|| Arc::new(redirects)) };
    redirects.max = at.u32_wrapper("max_internal_redirects").unwrap_or(FOLLOWED);
    redirects.across_schemes = at.bool("allow_cross_scheme_redirect");
    redirects.copied_headers = headers::names(cx, &at, COPIED);
    for host in at.strings(COPIED).iter().filter(|name| name.value.eq_ignore_ascii_case("host")) {
        let text = "`host` routes the request and is not copied into it";
        cx.element_error(&at, COPIED, host, "invalid-header-name", text);
    }
    let codes = at.u64s("redirect_response_codes");
    if !codes.is_empty() {
        // Envoy passes over all others.
        let known = codes.iter().filter(|code| matches!(code.value, 301 | 302 | 303 | 307 | 308));
        redirects.statuses = known.filter_map(|code| u16::try_from(code.value).ok()).collect();
    }
    for predicate in at.list("predicates") {
        predicate.str("name");
        let Some(any) = predicate.any("typed_config") else {
            cx.missing(&predicate, "the predicate has no `typed_config`", "a `typed_config` with its `@type`");
            continue;
        };
        match (any.type_name, &any.reader) {
            (PREVIOUS_ROUTES, _) => redirects.new_routes = true,
            (SAFE_SCHEMES, _) => redirects.safe_schemes = true,
            (ALLOWED_ROUTES, Some(config)) => {
                let names = config.strings("allowed_route_names");
                redirects.allowed_routes.push(names.iter().map(|name| name.value.to_owned()).collect());
            }
            _ => cx.refuse_extension(&predicate, "typed_config", &any),
        }
    }
    Some(Arc::new(redirects))
}
