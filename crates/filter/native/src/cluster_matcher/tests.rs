use super::*;
use crate::testing::{list, object, text};
use postrider_filter_api::ClusterLoad;

struct Nobody;

impl Clusters for Nobody {
    fn load(&self, _: &str) -> Option<ClusterLoad> {
        None
    }

    fn state(&self, _: &str) -> Option<&Value> {
        None
    }
}

/// Filters noted this under `tier`.
struct Noted(Value);

impl Clusters for Noted {
    fn load(&self, _: &str) -> Option<ClusterLoad> {
        None
    }

    fn state(&self, name: &str) -> Option<&Value> {
        (name == "tier").then_some(&self.0)
    }
}

fn action(kind: &str, cluster: &str) -> Value {
    let typed = object([("@type", text(&format!("type.googleapis.com/{kind}"))), ("cluster", text(cluster))]);
    object([("action", object([("name", text("a")), ("typed_config", typed)]))])
}

fn input(header: &str) -> Value {
    let kind = text("type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput");
    object([("name", text("i")), ("typed_config", object([("@type", kind), ("header_name", text(header))]))])
}

fn when(header: &str, value: &str, cluster: &str) -> Value {
    let is = object([("input", input(header)), ("value_match", object([("exact", text(value))]))]);
    object([("predicate", object([("single_predicate", is)])), ("on_match", action(ACTION, cluster))])
}

fn tree(entries: Vec<(&str, Value)>) -> Value {
    let tree = Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    object([("cluster_matcher", tree)])
}

fn head(lines: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::new();
    head.set_path(b"/p").unwrap();
    for (name, value) in lines {
        head.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head
}

#[test]
fn headers_name_the_cluster() {
    let matchers = list([when("env", "a", "blue"), when("env", "a,b", "both"), when(":path", "/p", "by-path")]);
    let choose = build(&tree(vec![("matcher_list", object([("matchers", matchers)]))])).unwrap();
    let chosen = |lines: &[(&str, &str)]| choose(&head(lines), &Nobody);
    assert_eq!(chosen(&[("env", "a")]).as_deref(), Some("blue"));
    assert_eq!(chosen(&[("env", "a"), ("env", "b")]).as_deref(), Some("both"));
    assert_eq!(chosen(&[("env", "c")]).as_deref(), Some("by-path"));
}

#[test]
fn where_nothing_holds_the_rest_counts_or_there_is_none() {
    let matchers = || object([("matchers", list([when("env", "a", "blue")]))]);
    let choose = build(&tree(vec![("matcher_list", matchers()), ("on_no_match", action(ACTION, "rest"))])).unwrap();
    assert_eq!(choose(&head(&[]), &Nobody).as_deref(), Some("rest"));
    assert_eq!(build(&tree(vec![("matcher_list", matchers())])).unwrap()(&head(&[]), &Nobody), None);
}

#[test]
fn filter_state_names_the_cluster() {
    let kind = text("type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.FilterStateInput");
    let input = object([("name", text("i")), ("typed_config", object([("@type", kind), ("key", text("tier"))]))]);
    let map = object([("gold", action(ACTION, "fast"))]);
    let entries = object([("input", input), ("exact_match_map", object([("map", map)]))]);
    let choose = build(&tree(vec![("matcher_tree", entries), ("on_no_match", action(ACTION, "slow"))])).unwrap();
    assert_eq!(choose(&head(&[]), &Noted(text("gold"))).as_deref(), Some("fast"));
    assert_eq!(choose(&head(&[]), &Noted(text("tin"))).as_deref(), Some("slow"));
    assert_eq!(choose(&head(&[]), &Noted(Value::Bool(true))).as_deref(), Some("slow"));
    assert_eq!(choose(&head(&[]), &Nobody).as_deref(), Some("slow"));
}

#[test]
fn the_environment_names_the_cluster() {
    let variable = |name: &str| {
        let kind = text("type.googleapis.com/envoy.extensions.matching.common_inputs.environment_variable.v3.Config");
        object([("name", text("i")), ("typed_config", object([("@type", kind), ("name", text(name))]))])
    };
    let chosen = |name: &str| {
        let is = object([("input", variable(name)), ("value_match", object([("prefix", text("/"))]))]);
        let here = object([("predicate", object([("single_predicate", is)])), ("on_match", action(ACTION, "here"))]);
        let matchers = object([("matchers", list([here]))]);
        build(&tree(vec![("matcher_list", matchers)])).unwrap()(&head(&[]), &Nobody)
    };
    assert_eq!(chosen("CARGO_MANIFEST_DIR").as_deref(), Some("here"));
    assert_eq!(chosen("NO_SUCH_VARIABLE"), None);
}

#[test]
fn what_names_no_cluster_is_refused() {
    let errors = |value: &Value| build(value).err().unwrap();
    assert_eq!(errors(&object([])).len(), 1);
    let other = tree(vec![("on_no_match", action("envoy.config.rbac.v3.Action", "x"))]);
    assert!(errors(&other).iter().any(|error| error.message.contains("a cluster is wanted here")));
    assert_eq!(errors(&tree(vec![("on_no_match", action(ACTION, ""))])).len(), 1);
}
