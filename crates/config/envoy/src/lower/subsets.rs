//! Hosts by their labels: `lb_subset_config`, the policy `subset` that says the same, and `metadata_match`.

use std::sync::Arc;

use postrider_model::{Labels, Metadata, SelectorFallback, SubsetFallback, SubsetSelector, Subsets, Value};

use super::context::Lowering;
use super::{metadata, value};
use crate::reader::Reader;

/// `lb_subset_config` of a cluster. As in Envoy, nothing of it counts without a selector.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, cluster: &Reader<'_>) -> Option<Box<Subsets>> {
    let at = cluster.message("lb_subset_config")?;
    let common = cluster.message("common_lb_config");
    if at.bool("locality_weight_aware") && !common.is_some_and(|common| common.has("locality_weighted_lb_config")) {
        let text = "weights of localities count with `common_lb_config: { locality_weighted_lb_config: {} }` alone";
        cx.error(&at, "locality_weight_aware", "conflict", text);
    }
    if at.has("subset_selectors") {
        return Some(subsets(cx, &at));
    }
    cluster.whole("lb_subset_config");
    cx.no_effect(cluster, "lb_subset_config", "without `subset_selectors` there are no subsets");
    None
}

/// The fields that `lb_subset_config` and the policy have in common.
pub(super) fn subsets(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Box<Subsets> {
    let default = match at.as_message().message("default_subset").map(value::value) {
        Some(Value::Map(entries)) => Labels::new(entries),
        _ => Labels::default(),
    };
    at.whole("default_subset");
    let by_locality = at.bool("locality_weight_aware");
    if !by_locality {
        at.ignore("scale_locality_weight", "without `locality_weight_aware` localities have no weights");
    }
    Box::new(Subsets {
        selectors: at.list("subset_selectors").iter().map(|selector| self::selector(cx, selector)).collect(),
        fallback: match at.enum_name("fallback_policy").as_str() {
            "ANY_ENDPOINT" => SubsetFallback::Any,
            "DEFAULT_SUBSET" => SubsetFallback::Default,
            _ => SubsetFallback::Nobody,
        },
        default,
        lists_are_any: at.bool("list_as_any"),
        by_locality,
        scales_localities: by_locality && at.bool("scale_locality_weight"),
        panics_to_any: at.bool("panic_mode_any"),
        tries_alternatives: at.enum_name("metadata_fallback_policy") == "FALLBACK_LIST",
        ignores_others: false,
    })
}

fn selector(cx: &mut Lowering<'_>, at: &Reader<'_>) -> SubsetSelector {
    let names = names(at, "keys");
    if names.is_empty() {
        cx.warn(at, "keys", "no-effect", "a selector without `keys` selects nothing");
    }
    SubsetSelector { fallback: selector_fallback(cx, at, &names), names, single: at.bool("single_host_per_subset") }
}

fn selector_fallback(cx: &mut Lowering<'_>, at: &Reader<'_>, keys: &[String]) -> Option<SelectorFallback> {
    const FIELD: &str = "fallback_keys_subset";
    let policy = at.enum_name("fallback_policy");
    let fewer = names(at, FIELD);
    let problem = match policy.as_str() {
        "KEYS_SUBSET" if fewer.is_empty() => Some("`KEYS_SUBSET` needs the keys that are left"),
        "KEYS_SUBSET" if fewer.len() == keys.len() => Some("these are all keys, so that nothing else would be found"),
        "KEYS_SUBSET" if fewer.iter().any(|name| !keys.contains(name)) => {
            Some("only `keys` of the selector can be left")
        }
        "KEYS_SUBSET" => None,
        _ if !fewer.is_empty() => Some("only `fallback_policy: KEYS_SUBSET` has this"),
        _ => None,
    };
    if let Some(problem) = problem {
        let field = if fewer.is_empty() { "fallback_policy" } else { FIELD };
        cx.error(at, field, "conflict", problem);
        return None;
    }
    match policy.as_str() {
        "NO_FALLBACK" => Some(SelectorFallback::To(SubsetFallback::Nobody)),
        "ANY_ENDPOINT" => Some(SelectorFallback::To(SubsetFallback::Any)),
        "DEFAULT_SUBSET" => Some(SelectorFallback::To(SubsetFallback::Default)),
        "KEYS_SUBSET" => Some(SelectorFallback::Fewer(fewer)),
        _ => None,
    }
}

fn names(at: &Reader<'_>, field: &str) -> Vec<String> {
    let mut names: Vec<String> = at.strings(field).iter().map(|name| name.value.to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

/// `metadata_match`: the labels that a host is to have.
pub(super) fn wanted(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Arc<Labels>> {
    const FIELD: &str = "metadata_match";
    let metadata: Metadata = metadata::named(cx, at, FIELD);
    let labels = Labels::of(&metadata).map(Arc::new);
    if labels.is_none() && at.has(FIELD) {
        cx.warn(at, FIELD, "no-effect", "nothing under `envoy.lb`, so hosts are not chosen by it");
    }
    labels
}

/// What a weighted cluster wants, with what is said for all of them.
pub(super) fn wanted_with(cx: &mut Lowering<'_>, at: &Reader<'_>, all: Option<&Arc<Labels>>) -> Option<Arc<Labels>> {
    match (all, wanted(cx, at)) {
        (all, None) => all.cloned(),
        (None, own) => own,
        (Some(all), Some(own)) => Some(Arc::new(all.with(&own))),
    }
}
