//! Makes a failing random scene small: what can be left out while the two still differ is left out.

use crate::pair::Pair;
use crate::scene::Scene;
use serde_json::Value;

/// How many rounds; each is one start of both proxies.
const ROUNDS: usize = 25;

/// How many smaller configurations a round tries, each as a listener of its own.
const WIDTH: usize = 60;

/// The smallest scene found that shows a difference for request `index` of `scene`.
pub fn smallest(scene: &Scene, index: usize) -> Scene {
    let mut best = Scene { requests: vec![scene.requests[index].clone()], ..scene.clone() };
    for _ in 0..ROUNDS {
        let smaller: Vec<Scene> = without_a_part(&best.manager)
            .into_iter()
            .take(WIDTH)
            .enumerate()
            .map(|(number, manager)| Scene { name: format!("{}-{number}", scene.name), manager, ..best.clone() })
            .collect();
        if smaller.is_empty() {
            break;
        }
        // A part that was needed leaves a configuration that neither takes.
        let Ok(mut pair) = std::panic::catch_unwind(|| Pair::start(&smaller)) else { break };
        let differs = smaller.iter().find(|scene| !pair.play(scene).is_empty());
        let Some(found) = differs else { break };
        best = Scene { name: scene.name.clone(), ..found.clone() };
    }
    best
}

/// The value without one of its virtual hosts, routes, edits or optional fields, the largest parts first.
fn without_a_part(manager: &Value) -> Vec<Value> {
    let mut paths = Vec::new();
    collect(manager, &mut Vec::new(), &mut paths);
    paths.sort_by_key(Vec::len);
    let cut = |path: &Vec<String>| {
        let mut smaller = manager.clone();
        let (last, parents) = path.split_last()?;
        let parent = parents.iter().try_fold(&mut smaller, |at, key| match at {
            Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
            other => other.get_mut(key.as_str()),
        })?;
        match parent {
            Value::Array(items) if items.len() > 1 => drop(items.remove(last.parse().ok()?)),
            Value::Object(map) => drop(map.remove(last.as_str())?),
            _ => return None,
        }
        Some(smaller)
    };
    paths.iter().filter_map(cut).collect()
}

/// What may be left out: members of lists, and the fields that are not asked for.
const OPTIONAL: &[&str] = &[
    "request_headers_to_add",
    "response_headers_to_add",
    "request_headers_to_remove",
    "response_headers_to_remove",
    "headers",
    "query_parameters",
    "case_sensitive",
    "invert_match",
    "treat_missing_header_as_empty",
    "ignore_case",
    "prefix_rewrite",
    "regex_rewrite",
    "host_rewrite_literal",
    "timeout",
    "normalize_path",
    "merge_slashes",
    "most_specific_header_mutations_wins",
    "keep_empty_value",
    "include_request_attempt_count",
    "typed_per_filter_config",
    "rules",
    "shadow_rules",
    "shadow_rules_stat_prefix",
    "track_per_rule_stats",
    "disabled",
    "forwarding",
    "forward_username_header",
    "request_mutations",
    "response_mutations",
    "request_rules",
    "response_rules",
    "remove",
    "on_header_missing",
    "ip_tag_header",
    "rate_limits",
    "descriptors",
    "enable_x_ratelimit_headers",
    "status_code",
];

fn collect(value: &Value, at: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let mut visit = |key: String, child: &Value, removable: bool| {
        at.push(key);
        if removable {
            paths.push(at.clone());
        }
        collect(child, at, paths);
        at.pop();
    };
    match value {
        Value::Array(items) => {
            let is_router = |child: &Value| child["name"] == "envoy.filters.http.router";
            items.iter().enumerate().for_each(|(index, child)| visit(index.to_string(), child, !is_router(child)))
        }
        Value::Object(map) => {
            let optional = |key: &str| OPTIONAL.contains(&key) || key.starts_with("envoy.filters.");
            map.iter().for_each(|(key, child)| visit(key.clone(), child, optional(key)))
        }
        _ => {}
    }
}
