//! Which statistics are told, and how (`envoy.config.metrics.v3.StatsConfig`).

use std::collections::BTreeMap;

use postrider_model::{
    BucketRule, Regex, StatsMatch, StatsRules, StringKind, StringMatch, TagRule, TagRules, TagValue,
};

use super::context::Lowering;
use super::{matchers, metadata};
use crate::reader::Reader;

const MATCHER: &str = "envoy.config.metrics.v3.StatsMatcher";

/// The tags that are made without a rule, and may be asked for by their names.
const DEFAULT_TAGS: [&str; 47] = [
    "cipher_suite",
    "envoy.clientssl_prefix",
    "envoy.cluster_name",
    "envoy.connection_limit_prefix",
    "envoy.dns_filter_prefix",
    "envoy.dynamo_operation",
    "envoy.dynamo_partition_id",
    "envoy.dynamo_table",
    "envoy.ext_authz_prefix",
    "envoy.fault_downstream_cluster",
    "envoy.google_grpc_client_prefix",
    "envoy.grpc_bridge_method",
    "envoy.grpc_bridge_service",
    "envoy.http_conn_manager_prefix",
    "envoy.http_user_agent",
    "envoy.listener_address",
    "envoy.local_http_ratelimit_prefix",
    "envoy.local_listener_ratelimit_prefix",
    "envoy.local_network_ratelimit_prefix",
    "envoy.mongo_callsite",
    "envoy.mongo_cmd",
    "envoy.mongo_collection",
    "envoy.mongo_prefix",
    "envoy.proxy_protocol_prefix",
    "envoy.proxy_protocol_version",
    "envoy.ratelimit_prefix",
    "envoy.rbac_http_prefix",
    "envoy.rbac_policy_name",
    "envoy.rbac_prefix",
    "envoy.rds_route_config",
    "envoy.redis_prefix",
    "envoy.response_code",
    "envoy.response_code_class",
    "envoy.route",
    "envoy.scoped_rds_config",
    "envoy.ssl_cipher",
    "envoy.ssl_curve",
    "envoy.ssl_sigalg",
    "envoy.ssl_version",
    "envoy.tcp_prefix",
    "envoy.thrift_prefix",
    "envoy.tls_certificate",
    "envoy.udp_prefix",
    "envoy.virtual_cluster",
    "envoy.virtual_host",
    "envoy.worker_id",
    "envoy.xds_resource_name",
];

/// What a `StatsConfig` says; `None` when nothing differs from what is usual.
pub(super) fn rules(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<StatsRules> {
    if config.bool_wrapper("allow_default_tag_overrides") == Some(true) {
        cx.refuse_value(config, "allow_default_tag_overrides", "tags that take the place of default ones");
    }
    let buckets = config.list("histogram_bucket_settings");
    let rules = StatsRules {
        told: told(cx, config).filter(|told| *told != StatsMatch::AllBut(Vec::new())),
        // Every one is read, so that all of their errors are told.
        tags: tags(cx, config),
        buckets: buckets.iter().filter_map(|rule| buckets_of(cx, rule)).collect(),
        interval: None,
        told_of: BTreeMap::new(),
    };
    (rules != StatsRules::default()).then_some(rules)
}

/// Which of its statistics a cluster or listener wants told: by its field, or else by its metadata.
pub(super) fn own(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<StatsMatch> {
    if at.has("stats_matcher") {
        return told(cx, at);
    }
    let noted = metadata::message(at, metadata::STATS_MATCHER).filter(|any| any.type_name == MATCHER)?;
    matcher(cx, &noted.reader?)
}

fn told(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<StatsMatch> {
    matcher(cx, &config.message("stats_matcher")?)
}

fn matcher(cx: &mut Lowering<'_>, matcher: &Reader<'_>) -> Option<StatsMatch> {
    let mut rules = |field: &str| {
        let list = matcher.message(field)?;
        let rules: Vec<_> = list.list("patterns").iter().map(|rule| name(cx, rule)).collect();
        rules.into_iter().collect::<Option<Vec<_>>>()
    };
    match matcher.oneof("stats_matcher")? {
        "inclusion_list" => rules("inclusion_list").map(StatsMatch::Only),
        "exclusion_list" => rules("exclusion_list").map(StatsMatch::AllBut),
        _ if matcher.bool("reject_all") => Some(StatsMatch::Nothing),
        _ => Some(StatsMatch::AllBut(Vec::new())),
    }
}

fn tags(cx: &mut Lowering<'_>, config: &Reader<'_>) -> TagRules {
    let all = config.bool_wrapper("use_all_default_tags") != Some(false);
    let mut tags = TagRules { defaults: (!all).then(Vec::new), rules: Vec::new() };
    for tag in config.list("stats_tags") {
        let name = tag.str("tag_name");
        if name.is_empty() {
            cx.missing(&tag, "the tag has no name", "a `tag_name`");
            tag.read_whole();
            continue;
        }
        let value = match tag.oneof("tag_value") {
            Some("fixed_value") => Some(TagValue::Fixed(tag.str("fixed_value").to_owned())),
            Some("regex") if !tag.str("regex").is_empty() => pattern(cx, &tag),
            _ if DEFAULT_TAGS.contains(&name) => {
                tags.defaults.iter_mut().for_each(|names| names.push(name.to_owned()));
                None
            }
            _ => {
                let text = format!("`{name}` is none of the tags that are known by their name");
                cx.missing(&tag, &text, "`regex` or `fixed_value`");
                None
            }
        };
        tags.rules.extend(value.map(|value| TagRule { name: name.to_owned(), value }));
    }
    tags
}

fn pattern(cx: &mut Lowering<'_>, tag: &Reader<'_>) -> Option<TagValue> {
    // What is found is cut out of names.
    match Regex::of_characters(tag.str("regex")) {
        Ok(regex) if regex.captures_len() < 2 => {
            let text = "nothing would ever be found: the value and what leaves the name are groups of the expression";
            cx.warn(tag, "regex", "no-group", text);
            Some(TagValue::Regex(regex))
        }
        Ok(regex) => Some(TagValue::Regex(regex)),
        Err(error) => {
            let reason = error.lines().last().unwrap_or("").trim().trim_start_matches("error: ");
            cx.error(tag, "regex", "invalid-regex", format!("this is no regular expression: {reason}"));
            None
        }
    }
}

fn buckets_of(cx: &mut Lowering<'_>, rule: &Reader<'_>) -> Option<BucketRule> {
    rule.ignore("bins", "memory for values is taken as they come");
    let mut bounds: Vec<f64> = rule.f64s("buckets").iter().map(|bound| bound.value).collect();
    bounds.sort_by(f64::total_cmp);
    let of = name(cx, &rule.message("match")?)?;
    // Without buckets it is about memory alone, and the next rule is asked, as in Envoy.
    (!bounds.is_empty()).then(|| BucketRule { of, bounds: bounds.into() })
}

/// A condition on a name. Whoever tells statistics runs no plugins.
fn name(cx: &mut Lowering<'_>, rule: &Reader<'_>) -> Option<StringMatch> {
    let matcher = matchers::name_of_statistic(cx, rule)?;
    if matches!(matcher.kind, StringKind::Custom { .. }) {
        cx.refuse_value(rule, "custom", "a plugin's condition on the name of a statistic");
        return None;
    }
    Some(matcher)
}
