use super::*;
use crate::{Reading, Value, ValueError};

fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn list<const N: usize>(items: [Value; N]) -> Value {
    Value::List(items.into_iter().collect())
}

fn typed(kind: &str, mut fields: Value) -> Value {
    if let Value::Map(entries) = &mut fields {
        entries.insert(0, ("@type".to_owned(), text(&format!("type.googleapis.com/{kind}"))));
    }
    object([("name", text("n")), ("typed_config", fields)])
}

fn header(name: &str) -> Value {
    typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", object([("header_name", text(name))]))
}

fn leaf(name: &str) -> Value {
    object([("action", typed("test.Leaf", object([("says", text(name))])))])
}

fn is(name: &str, value: &str) -> Value {
    let single = object([("input", header(name)), ("value_match", object([("exact", text(value))]))]);
    object([("single_predicate", single)])
}

fn when(predicate: Value, on_match: Value) -> Value {
    object([("predicate", predicate), ("on_match", on_match)])
}

fn listed<const N: usize>(items: [Value; N]) -> Value {
    object([("matcher_list", object([("matchers", list(items))]))])
}

fn with(mut tree: Value, key: &str, value: Value) -> Value {
    if let Value::Map(entries) = &mut tree {
        entries.push((key.to_owned(), value));
    }
    tree
}

fn below(tree: Value) -> Value {
    object([("matcher", tree)])
}

fn mapped(kind: &str, map: Value) -> Value {
    object([("matcher_tree", object([("input", header("x")), (kind, object([("map", map)]))]))])
}

fn custom(kind: &str, fields: Value) -> Value {
    object([("matcher_tree", object([("input", header("x")), ("custom_match", typed(kind, fields))]))])
}

fn read(tree: &Value, context: MatchContext) -> Result<MatchTree<String>, Vec<ValueError>> {
    Reading::all(tree, |at| {
        MatchTree::read(at, context, &mut |at, kind| {
            assert_eq!(kind, "test.Leaf");
            at.text("says").map(str::to_owned)
        })
    })
    .map(Option::unwrap)
}

struct Headers<'h>(&'h [(&'h str, &'h str)]);

impl Inputs for Headers<'_> {
    fn value<'v>(&'v self, input: &'v Input) -> Result<Option<Cow<'v, str>>, Unavailable> {
        let Input::RequestHeader(wanted) = input else { return Err(Unavailable) };
        Ok(self.0.iter().find(|(name, _)| name == wanted).map(|(_, value)| (*value).into()))
    }

    fn holds(&self, _: &Expression) -> bool {
        false
    }

    fn notes(&self, _: &MetadataMatch) -> bool {
        false
    }
}

fn says(tree: &Value, headers: &[(&str, &str)]) -> Option<String> {
    read(tree, MatchContext::Requests).unwrap().find(&Headers(headers)).cloned()
}

/// Each row was observed on Envoy 1.40.
#[test]
fn a_list_goes_on_behind_what_leads_nowhere() {
    let inner = listed([when(is("y", "1"), leaf("xy"))]);
    let tree =
        with(listed([when(is("x", "1"), below(inner)), when(is("x", "1"), leaf("x"))]), "on_no_match", leaf("none"));
    assert_eq!(says(&tree, &[("x", "1"), ("y", "1")]).as_deref(), Some("xy"));
    assert_eq!(says(&tree, &[("x", "1")]).as_deref(), Some("x"));
    assert_eq!(says(&tree, &[]).as_deref(), Some("none"));
    assert_eq!(says(&listed([when(is("x", "1"), leaf("x"))]), &[]), None);
    assert_eq!(says(&object([]), &[]), None);
}

/// So it is in Envoy: nobody gets in by the absence of a certificate.
#[test]
fn a_tree_says_nothing_where_nothing_can_be_said() {
    let names = typed("envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInput", object([]));
    let single = object([("input", names), ("value_match", object([("exact", text("a.test"))]))]);
    let not = object([("not_matcher", object([("single_predicate", single)]))]);
    let tree =
        with(listed([when(is("x", "1"), leaf("before")), when(not, leaf("stranger"))]), "on_no_match", leaf("none"));
    assert_eq!(says(&tree, &[("x", "1")]).as_deref(), Some("before"));
    assert_eq!(says(&tree, &[]), None);
}

#[test]
fn predicates_are_combined() {
    let both = object([("and_matcher", object([("predicate", list([is("x", "1"), is("y", "1")]))]))]);
    let either = object([("or_matcher", object([("predicate", list([is("x", "1"), is("y", "1")]))]))]);
    let not = object([("not_matcher", is("x", "1"))]);
    let holds = |predicate: &Value, headers: &[(&str, &str)]| {
        says(&listed([when(predicate.clone(), leaf("yes"))]), headers).is_some()
    };
    assert!(holds(&both, &[("x", "1"), ("y", "1")]) && !holds(&both, &[("x", "1")]));
    assert!(holds(&either, &[("y", "1")]) && !holds(&either, &[]));
    // What is missing is like nothing, and so its opposite holds.
    assert!(holds(&not, &[]) && holds(&not, &[("x", "2")]) && !holds(&not, &[("x", "1")]));
}

/// Each row was observed on Envoy 1.40.
#[test]
fn maps_find_by_the_whole_value_or_its_longest_prefix() {
    let inner = listed([when(is("y", "1"), leaf("ab"))]);
    let map = object([("a", leaf("a")), ("ab", below(inner)), ("", leaf("empty"))]);
    let prefix = with(mapped("prefix_match_map", map.clone()), "on_no_match", leaf("none"));
    for (headers, want) in [
        (&[("x", "abc"), ("y", "1")][..], "ab"),
        (&[("x", "abc")], "a"),
        (&[("x", "ac")], "a"),
        (&[("x", "b")], "empty"),
        (&[], "none"),
    ] {
        assert_eq!(says(&prefix, headers).as_deref(), Some(want), "{headers:?}");
    }
    let exact = with(mapped("exact_match_map", map), "on_no_match", leaf("none"));
    for (value, want) in [("a", "a"), ("ab", "none"), ("abc", "none"), ("", "empty"), ("A", "none")] {
        assert_eq!(says(&exact, &[("x", value)]).as_deref(), Some(want), "{value}");
    }
}

/// Each row was observed on Envoy 1.40.
#[test]
fn the_narrowest_network_and_the_longest_domain_count() {
    let range =
        |prefix: &str, length: i64| object([("address_prefix", text(prefix)), ("prefix_len", Value::Integer(length))]);
    let network = |ranges: Value, on_match: Value| object([("ranges", ranges), ("on_match", on_match)]);
    let narrow = listed([when(is("y", "1"), leaf("32"))]);
    let ranges = |exclusive: bool| {
        let one =
            with(network(list([range("10.0.0.1", 32)]), below(narrow.clone())), "exclusive", Value::Bool(exclusive));
        let all =
            list([network(list([range("10.0.0.0", 8)]), leaf("8")), one, network(list([range("::", 0)]), leaf("v6"))]);
        with(custom("xds.type.matcher.v3.IPMatcher", object([("range_matchers", all)])), "on_no_match", leaf("none"))
    };
    assert_eq!(says(&ranges(false), &[("x", "10.0.0.1"), ("y", "1")]).as_deref(), Some("32"));
    assert_eq!(says(&ranges(false), &[("x", "10.0.0.1")]).as_deref(), Some("8"));
    assert_eq!(says(&ranges(true), &[("x", "10.0.0.1")]).as_deref(), Some("none"));
    assert_eq!(says(&ranges(true), &[("x", "10.0.0.2")]).as_deref(), Some("8"));
    assert_eq!(says(&ranges(true), &[("x", "::ffff:10.0.0.2")]).as_deref(), Some("v6"));
    assert_eq!(says(&ranges(true), &[("x", "no address")]).as_deref(), Some("none"));

    let of = |name: &str, on_match: Value| object([("domains", list([text(name)])), ("on_match", on_match)]);
    let names = list([
        of("a.test", leaf("exact")),
        of("*.test", leaf("star")),
        of("*.b.test", below(listed([when(is("y", "1"), leaf("b"))]))),
        of("*", leaf("any")),
    ]);
    let domains = with(
        custom("xds.type.matcher.v3.ServerNameMatcher", object([("domain_matchers", names)])),
        "on_no_match",
        leaf("none"),
    );
    for (name, want) in [
        ("a.test", "exact"),
        ("c.test", "star"),
        ("c.b.test", "star"),
        ("A.test", "star"),
        ("test", "any"),
        ("q", "any"),
    ] {
        assert_eq!(says(&domains, &[("x", name)]).as_deref(), Some(want), "{name}");
    }
    assert_eq!(says(&domains, &[("x", "c.b.test"), ("y", "1")]).as_deref(), Some("b"));
    assert_eq!(says(&domains, &[]).as_deref(), Some("none"));
}

#[test]
fn what_is_not_known_is_refused_where_it_stands() {
    let input = |input: Value| {
        let single = object([("input", input), ("value_match", object([("exact", text("1"))]))]);
        listed([when(object([("single_predicate", single)]), leaf("x"))])
    };
    let of = |kind: &str| input(typed(kind, object([("header_name", text("x"))])));
    let answer = || typed("envoy.type.matcher.v3.HttpResponseHeaderMatchInput", object([("header_name", text("x"))]));
    let error = |tree: Value, context| read(&tree, context).unwrap_err().remove(0);
    let odd = error(of("acme.Input"), MatchContext::Requests);
    assert_eq!(odd.path, "matcher_list.matchers[0].predicate.single_predicate.input.typed_config.@type");
    assert!(odd.message.contains("acme.Input"), "{}", odd.message);
    let later = error(of("envoy.type.matcher.v3.HttpResponseHeaderMatchInput"), MatchContext::Requests);
    assert!(later.message.contains("not known yet"), "{}", later.message);
    assert!(read(&input(answer()), MatchContext::Answers).is_ok());
    let trailer = error(of("envoy.type.matcher.v3.HttpResponseTrailerMatchInput"), MatchContext::Answers);
    assert!(trailer.message.contains("not known yet"), "{}", trailer.message);
    let network = || typed("envoy.extensions.matching.common_inputs.network.v3.SourceIPInput", object([]));
    assert!(read(&input(network()), MatchContext::Requests).is_ok());
    assert!(error(input(network()), MatchContext::Routes).message.contains("request headers, filter"));
    let of_request = of("envoy.type.matcher.v3.HttpRequestHeaderMatchInput");
    assert!(error(of_request, MatchContext::Connections).message.contains("connections only"));
    let kept = listed([when(is("x", "1"), with(leaf("x"), "keep_matching", Value::Bool(true)))]);
    assert_eq!(error(kept, MatchContext::Requests).path, "matcher_list.matchers[0].on_match.keep_matching");
    let one = object([("and_matcher", object([("predicate", list([is("x", "1")]))]))]);
    assert!(error(listed([when(one, leaf("x"))]), MatchContext::Requests).message.contains("at least two"));
    let mut deep = listed([when(is("x", "1"), leaf("x"))]);
    for _ in 0..100 {
        deep = listed([when(is("x", "1"), below(deep))]);
    }
    assert!(error(deep, MatchContext::Requests).message.contains("64 deep"));
}

#[test]
fn an_expression_wants_the_attributes() {
    let cel = |input: Value| {
        let expression = object([("expr_match", object([("cel_expr_string", text("request.path == '/a'"))]))]);
        let single = object([("input", input), ("custom_match", typed("xds.type.matcher.v3.CelMatcher", expression))]);
        listed([when(object([("single_predicate", single)]), leaf("x"))])
    };
    let attributes = typed("xds.type.matcher.v3.HttpAttributesCelMatchInput", object([]));
    assert!(read(&cel(attributes), MatchContext::Requests).is_ok());
    assert!(read(&cel(header("x")), MatchContext::Requests).is_err());
}

#[test]
fn shares_of_values_are_those_of_envoy() {
    // As real Envoy 1.40 chose by the addresses 1.1.1.1 to 1.1.1.12.
    let address = |last: u32| format!("1.1.1.{last}");
    let holds = |part, whole| {
        let share = HashRange { seed: 3, whole, part };
        (1..=12).map(|last| if share.holds(&address(last)) { 'x' } else { '.' }).collect::<String>()
    };
    assert_eq!(holds((5, 10), 10), "xx..x.xx.x..");
    assert_eq!(holds((0, 100), 100), "xxxxxxxxxxxx");
    assert_eq!(holds((0, 0), 100), "............");
    let half: Vec<char> = holds((0, 50), 100).chars().collect();
    for (at, expected) in [(2, 'x'), (3, 'x'), (5, '.'), (8, 'x'), (10, 'x'), (11, 'x')] {
        assert_eq!(half[at], expected, "{half:?}");
    }
}
