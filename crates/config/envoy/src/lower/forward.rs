//! Sending a request to a cluster (`RouteAction`).

use std::sync::Arc;
use std::time::Duration;

use postrider_model::{
    Attempts, Forward, GrpcTimeout, HostRewrite, Labels, Lot, NextCluster, PathRewrite, PathTemplate, Priority,
    ProxyHeader, StreamLimit, Target, WeightedCluster,
};

use super::context::{ClusterUse, Lowering, timeout};
use super::http::{CONNECT, refuse_datagrams};
use super::tables::{HostRules, TableRules};
use super::{filters, hash_policy, headers, matchers, mirrors, plugins, proxy_header, rate_limits, retry, subsets};
use crate::reader::Reader;

/// `RouteAction.timeout` where it is absent.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(15);

/// The only policy that there is of requests in the early data of a connection.
const EARLY_DATA: &str = "envoy.extensions.early_data.v3.DefaultEarlyDataPolicy";

/// `host` is what the virtual host says about its routes, and `own` what the route itself brings along.
pub(super) fn forward(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &TableRules<'_>,
    host: &HostRules,
    own: OfRoute,
) -> Option<Forward> {
    let OfRoute { body_limit, template } = own;
    let hash_policies = hash_policy::of_requests(cx, at);
    let labels = subsets::wanted(cx, at);
    let choice = target(cx, at, rules, labels.as_ref());
    let path_rewrite = path_rewrite(cx, at, template.as_ref());
    let host_rewrite = host_rewrite(cx, at);
    let idle_timeout = at.duration("idle_timeout").map(|idle| (!idle.is_zero()).then_some(idle));
    let stream_limit = stream_limit(at);
    let grpc_timeout = grpc_timeout(at, stream_limit.is_some());
    let terminates = terminates(cx, at);
    if let Some(policy) = at.message("early_data_policy")
        && let Some(any) = policy.any("typed_config").filter(|any| any.type_name != EARLY_DATA)
    {
        policy.str("name");
        cx.refuse_extension(&policy, "typed_config", &any);
    }
    at.whole("early_data_policy");
    at.ignore("early_data_policy", "no request is sent in the early data of a connection");
    let forward = Forward {
        target: Target::Weighted(Vec::new()),
        lot: Lot::default(),
        next: NextCluster::Same,
        timeout: if stream_limit.is_some() { None } else { timeout(at, "timeout", Some(ROUTE_TIMEOUT)) },
        stream_limit,
        grpc_timeout,
        idle_timeout,
        flush_timeout: at.duration("flush_timeout").map(|flush| (!flush.is_zero()).then_some(flush)),
        path_rewrite,
        host_rewrite,
        append_x_forwarded_host: at.bool("append_x_forwarded_host"),
        cluster_not_found_status: match at.enum_name("cluster_not_found_response_code").as_str() {
            "NOT_FOUND" => 404,
            "INTERNAL_SERVER_ERROR" => 500,
            _ => 503,
        },
        priority: if at.enum_name("priority") == "HIGH" { Priority::High } else { Priority::Default },
        upgrades: upgrades(cx, at),
        terminates_connect: terminates.connect,
        terminates_post: terminates.post,
        tunnel_header: terminates.header,
        rate_limits: rate_limits::rate_limits(cx, at),
        include_host_rate_limits: at.bool_wrapper("include_vh_rate_limits").unwrap_or(false),
        attempts: None,
        labels,
        hash_policies,
        mirrors: mirrors::mirrors(cx, at, rules),
        redirects: mirrors::redirects(cx, at),
    };
    let mirrors = if forward.mirrors.is_empty() { host.mirrors.clone() } else { forward.mirrors.clone() };
    let of_host = host.body_limit;
    let host = &host.attempts;
    let attempts = Attempts {
        retry: retry::policy(cx, at).or_else(|| host.retry.clone()),
        body_limit: body_limit.below(of_host),
        ..host.clone()
    };
    let changes_cluster = attempts.retry.as_ref().is_some_and(|policy| policy.changes_cluster);
    let attempts = (!attempts.is_empty()).then(|| Arc::new(attempts));
    let Choice { target, lot, next } = choice?;
    let next = if changes_cluster { next } else { NextCluster::Same };
    Some(Forward { target, lot, next, attempts, mirrors, ..forward })
}

/// For routes that forward nothing: no cluster has the empty name.
pub(super) fn nowhere() -> Forward {
    Forward {
        target: Target::Cluster(String::new()),
        lot: Lot::default(),
        next: NextCluster::Same,
        timeout: Some(ROUTE_TIMEOUT),
        stream_limit: None,
        grpc_timeout: None,
        idle_timeout: None,
        flush_timeout: None,
        path_rewrite: PathRewrite::None,
        host_rewrite: HostRewrite::None,
        append_x_forwarded_host: false,
        cluster_not_found_status: 503,
        priority: Priority::Default,
        upgrades: Vec::new(),
        terminates_connect: false,
        terminates_post: false,
        tunnel_header: None,
        rate_limits: Vec::new(),
        include_host_rate_limits: false,
        attempts: None,
        labels: None,
        hash_policies: Vec::new(),
        mirrors: Vec::new(),
        redirects: None,
    }
}

/// Which cluster takes requests of a route, and those that are tried again.
pub(super) struct Choice {
    pub target: Target,
    pub lot: Lot,
    pub next: NextCluster,
}

/// What the route itself brings along.
pub(super) struct OfRoute {
    /// The most of a body that is kept.
    pub body_limit: retry::BodyLimit,
    /// The template that its path matches.
    pub template: Option<PathTemplate>,
}

/// `max_stream_duration`: where it is written, Envoy's router has no timeout of its own.
fn stream_limit(at: &Reader<'_>) -> Option<StreamLimit> {
    let limit = at.message("max_stream_duration")?;
    at.ignore("timeout", "`max_stream_duration` takes its place");
    let optional = |field| limit.duration(field).map(|value| (!value.is_zero()).then_some(value));
    let grpc_timeout_max = optional("grpc_timeout_header_max");
    if grpc_timeout_max.is_none() {
        limit.ignore("grpc_timeout_header_offset", "without `grpc_timeout_header_max` no `grpc-timeout` counts");
    }
    Some(StreamLimit {
        duration: optional("max_stream_duration"),
        grpc_timeout_max,
        grpc_timeout_offset: limit.duration("grpc_timeout_header_offset").unwrap_or_default(),
    })
}

/// `max_grpc_timeout` and its offset, which newer fields have replaced.
fn grpc_timeout(at: &Reader<'_>, replaced: bool) -> Option<GrpcTimeout> {
    if replaced {
        at.ignore("max_grpc_timeout", "`max_stream_duration` takes its place");
        at.ignore("grpc_timeout_offset", "`max_stream_duration` takes its place");
        return None;
    }
    let Some(max) = at.duration("max_grpc_timeout") else {
        at.ignore("grpc_timeout_offset", "without `max_grpc_timeout` no `grpc-timeout` counts");
        return None;
    };
    let offset = at.duration("grpc_timeout_offset").unwrap_or_default();
    Some(GrpcTimeout { max: (!max.is_zero()).then_some(max), offset })
}

/// `labels` is what the route wants of hosts.
fn target(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &TableRules<'_>,
    labels: Option<&Arc<Labels>>,
) -> Option<Choice> {
    let plain = |target| Choice { target, lot: Lot::Random, next: NextCluster::Same };
    match at.oneof("cluster_specifier") {
        Some("cluster") => {
            let name = at.str("cluster");
            uses(cx, at, "cluster", name, rules);
            Some(plain(Target::Cluster(name.to_owned())))
        }
        Some("cluster_header") => Some(plain(Target::Header(matchers::lookup_name(at.str("cluster_header"))))),
        Some("weighted_clusters") => {
            let lot = lot(cx, at);
            let target = weighted(cx, &at.message("weighted_clusters")?, rules, labels)?;
            Some(Choice { target, lot, next: NextCluster::Untried })
        }
        Some("cluster_specifier_plugin") => {
            plugins::named(cx, at, &rules.specifiers).map(|specifier| specifier.choice(labels))
        }
        Some("inline_cluster_specifier_plugin") => {
            let specifier = plugins::specifier(cx, &at.message("inline_cluster_specifier_plugin")?);
            specifier.map(|specifier| specifier.choice(labels))
        }
        Some(other) => {
            cx.refuse(at, other, "this way to choose a cluster");
            None
        }
        None => {
            cx.missing(at, "the route has no cluster", "`cluster`, `cluster_header` or `weighted_clusters`");
            None
        }
    }
}

/// `name` in `field` must be the name of a cluster.
pub(super) fn uses(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str, name: &str, rules: &TableRules<'_>) {
    if rules.validate_clusters {
        cx.cluster_uses.push(ClusterUse {
            name: name.to_owned(),
            span: at.span_of(field),
            path: at.path_of(field),
            required: true,
        });
    }
}

fn weighted(
    cx: &mut Lowering<'_>,
    at: &Reader<'_>,
    rules: &TableRules<'_>,
    labels: Option<&Arc<Labels>>,
) -> Option<Target> {
    at.str("runtime_key_prefix");
    at.ignore("total_weight", "the total is the sum of the weights");
    let entries = at.list("clusters");
    let mut all = Vec::new();
    let mut sum = 0u64;
    for entry in &entries {
        let name = entry.str("name");
        let header = entry.str("cluster_header");
        let host = entry.str("host_rewrite_literal");
        let weight = entry.u32_wrapper("weight");
        let cluster = WeightedCluster {
            cluster: name.to_owned(),
            header: (!header.is_empty()).then(|| matchers::lookup_name(header)),
            weight: weight.unwrap_or(0),
            request_headers: headers::request_edits(cx, entry),
            response_headers: headers::response_edits(cx, entry),
            host_rewrite: (!host.is_empty()).then(|| host.to_owned()),
            labels: subsets::wanted_with(cx, entry, labels),
            filter_overrides: filters::overrides(cx, entry, rules.filters),
        };
        match (name.is_empty(), header.is_empty()) {
            (true, true) => {
                cx.missing(entry, "the weighted cluster has no name", "`name`, the name of a cluster");
                continue;
            }
            (false, false) => {
                cx.error(entry, "cluster_header", "conflict", "`name` and `cluster_header` exclude each other");
                continue;
            }
            (false, true) => uses(cx, entry, "name", name, rules),
            (true, false) => {}
        }
        let Some(weight) = weight else {
            let name = if name.is_empty() { header } else { name };
            cx.missing(entry, format!("cluster `{name}` has no `weight`"), "`weight`, a whole number");
            continue;
        };
        sum += u64::from(weight);
        all.push(cluster);
    }
    if all.len() != entries.len() {
        return None;
    }
    if sum == 0 || sum > u64::from(u32::MAX) {
        let text = format!("the weights add up to {sum}");
        let diagnostic = at
            .diagnostic_at("clusters", postrider_config_core::Severity::Error, "invalid-weight", text)
            .expected("a sum from 1 to 4294967295");
        cx.push(diagnostic);
        return None;
    }
    Some(Target::Weighted(all))
}

/// What chooses one of the weighted clusters.
fn lot(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Lot {
    let Some(weighted) = at.message("weighted_clusters") else { return Lot::Random };
    match weighted.oneof("random_value_specifier") {
        Some("header_name") if !weighted.str("header_name").is_empty() => {
            headers::name(cx, &weighted, "header_name").map_or(Lot::Random, Lot::Header)
        }
        Some("use_hash_policy") if weighted.bool_wrapper("use_hash_policy") == Some(true) => {
            if !at.has("hash_policy") {
                let text = "the route has no `hash_policy`, so that chance decides";
                cx.warn(&weighted, "use_hash_policy", "no-effect", text);
            }
            Lot::Hash
        }
        _ => Lot::Random,
    }
}

const TEMPLATE: &str = "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig";

fn path_rewrite(cx: &mut Lowering<'_>, at: &Reader<'_>, template: Option<&PathTemplate>) -> PathRewrite {
    const WAYS: [&str; 4] = ["prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite"];
    let written: Vec<&str> = WAYS.into_iter().filter(|way| at.has(way)).collect();
    if let [first, second, ..] = written[..] {
        let text = format!("`{first}` and `{second}` exclude each other");
        cx.error(at, second, "conflict", text);
    }
    let prefix = at.str("prefix_rewrite");
    if !prefix.is_empty() && template.is_some() {
        let text = "the route's match is a template, which has no prefix: write `path_rewrite_policy`";
        cx.error(at, "prefix_rewrite", "conflict", text);
    }
    let format = at.str("path_rewrite");
    if !format.is_empty() {
        return PathRewrite::Format(cx.format(at, "path_rewrite", format));
    }
    if let Some(extension) = at.message("path_rewrite_policy") {
        return template_rewrite(cx, &extension, template);
    }
    let Some(regex) = at.message("regex_rewrite") else {
        return if prefix.is_empty() { PathRewrite::None } else { PathRewrite::Prefix(prefix.to_owned()) };
    };
    match matchers::substitution(cx, &regex) {
        Some((pattern, substitution)) => PathRewrite::Regex { pattern, substitution },
        None => PathRewrite::None,
    }
}

/// A path made by another template, of what the match's template found.
fn template_rewrite(cx: &mut Lowering<'_>, at: &Reader<'_>, template: Option<&PathTemplate>) -> PathRewrite {
    at.str("name");
    let Some(any) = at.any("typed_config") else { return PathRewrite::None };
    let (TEMPLATE, Some(config)) = (any.type_name, &any.reader) else {
        cx.refuse_extension(at, "typed_config", &any);
        return PathRewrite::None;
    };
    const FIELD: &str = "path_template_rewrite";
    let text = config.str(FIELD);
    let Some(template) = template else {
        let problem = "the route's match is no template; write `path_match_policy` there";
        cx.error(config, FIELD, "invalid-template", problem);
        return PathRewrite::None;
    };
    match template.substitution(text) {
        Ok(substitution) => PathRewrite::Regex { pattern: template.regex.clone(), substitution },
        Err(problem) => {
            cx.error(config, FIELD, "invalid-template", problem);
            PathRewrite::None
        }
    }
}

fn host_rewrite(cx: &mut Lowering<'_>, at: &Reader<'_>) -> HostRewrite {
    match at.oneof("host_rewrite_specifier") {
        Some("host_rewrite_literal") => HostRewrite::Literal(at.str("host_rewrite_literal").to_owned()),
        Some("auto_host_rewrite") if at.bool_wrapper("auto_host_rewrite") == Some(true) => HostRewrite::Auto,
        Some("host_rewrite_header") => HostRewrite::Header(matchers::lookup_name(at.str("host_rewrite_header"))),
        Some("host_rewrite_path_regex") => {
            let rewrite = at.message("host_rewrite_path_regex");
            match rewrite.and_then(|rewrite| matchers::substitution(cx, &rewrite)) {
                Some((pattern, substitution)) => HostRewrite::PathRegex { pattern, substitution },
                None => HostRewrite::None,
            }
        }
        Some("host_rewrite") => HostRewrite::Format(cx.format(at, "host_rewrite", at.str("host_rewrite"))),
        _ => HostRewrite::None,
    }
}

fn upgrades(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<(String, bool)> {
    let mut all: Vec<(String, bool)> = Vec::new();
    for upgrade in at.list("upgrade_configs") {
        let token = upgrade.str("upgrade_type").to_ascii_lowercase();
        refuse_datagrams(cx, &upgrade, &token);
        if all.iter().any(|(known, _)| *known == token) {
            cx.error(&upgrade, "upgrade_type", "duplicate-name", format!("the upgrade `{token}` is listed twice"));
            continue;
        }
        all.push((token, upgrade.bool_wrapper("enabled").unwrap_or(true)));
    }
    all
}

/// What of a route's tunnels ends here.
#[derive(Default)]
struct Terminates {
    /// A CONNECT that the route allows is answered here, its tunnel being an endpoint's plain connection.
    connect: bool,
    /// So is a POST.
    post: bool,
    /// What the endpoint hears first.
    header: Option<Box<ProxyHeader>>,
}

fn terminates(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Terminates {
    let mut terminates = Terminates::default();
    for upgrade in at.list("upgrade_configs") {
        let Some(config) = upgrade.message("connect_config") else { continue };
        if !upgrade.str("upgrade_type").eq_ignore_ascii_case(CONNECT) {
            config.read_whole();
            let message = "only the upgrade `CONNECT` has a `connect_config`";
            cx.error(&upgrade, "connect_config", "conflict", message);
            continue;
        }
        let enabled = upgrade.bool_wrapper("enabled").unwrap_or(true);
        let header = config.message("proxy_protocol_config");
        terminates = Terminates {
            connect: enabled,
            post: config.bool("allow_post") && enabled,
            header: header.map(|at| Box::new(proxy_header::header(cx, &at))),
        };
    }
    terminates
}
