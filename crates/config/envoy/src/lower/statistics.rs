//! Which statistics are told, and how (`envoy.config.metrics.v3.StatsConfig`).

use postrider_model::{BucketRule, StatsMatch, StatsRules, StringKind, StringMatch};

use super::context::Lowering;
use super::matchers;
use crate::reader::Reader;

/// What a `StatsConfig` says; `None` when nothing differs from what is usual.
pub(super) fn rules(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<StatsRules> {
    if config.bool_wrapper("use_all_default_tags") == Some(false) {
        cx.refuse_value(config, "use_all_default_tags", "statistics without the default tags");
    }
    if config.has("stats_tags") {
        cx.refuse(config, "stats_tags", "tags of your own in the names of statistics");
    }
    let buckets = config.list("histogram_bucket_settings");
    let rules = StatsRules {
        told: told(cx, config),
        // Every one is read, so that all of their errors are told.
        buckets: buckets.iter().filter_map(|rule| buckets_of(cx, rule)).collect(),
    };
    (rules != StatsRules::default()).then_some(rules)
}

fn told(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Option<StatsMatch> {
    let matcher = config.message("stats_matcher")?;
    let mut rules = |field: &str| {
        let list = matcher.message(field)?;
        let rules: Vec<_> = list.list("patterns").iter().map(|rule| name(cx, rule)).collect();
        rules.into_iter().collect::<Option<Vec<_>>>()
    };
    match matcher.oneof("stats_matcher")? {
        "inclusion_list" => rules("inclusion_list").map(StatsMatch::Only),
        "exclusion_list" => rules("exclusion_list").map(StatsMatch::AllBut),
        _ => matcher.bool("reject_all").then_some(StatsMatch::Nothing),
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
    let matcher = matchers::string(cx, rule)?;
    if matches!(matcher.kind, StringKind::Custom { .. }) {
        cx.refuse_value(rule, "custom", "a plugin's condition on the name of a statistic");
        return None;
    }
    Some(matcher)
}
