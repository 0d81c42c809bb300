//! Hosts of a cluster by their labels, and what requests want of them (`LbSubsetConfig`, `metadata_match`).

use std::borrow::Cow;

use crate::{Metadata, Value};

/// The namespace of metadata in which hosts have labels and routes ask for them.
pub const LABELS: &str = "envoy.lb";

/// That in which hosts, or their localities, say which transport they want.
pub const TRANSPORT_LABELS: &str = "envoy.transport_socket_match";

/// Names with values. Equal ones are written in the same way, whatever the order in which they were said.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// Sorted by name, each once.
    entries: Vec<(String, Value)>,
    text: String,
}

impl PartialEq for Labels {
    fn eq(&self, other: &Labels) -> bool {
        self.text == other.text
    }
}

impl Labels {
    /// Of several values for one name the last counts.
    pub fn new(entries: impl IntoIterator<Item = (String, Value)>) -> Labels {
        let mut labels = Labels::default();
        for (name, value) in entries {
            match labels.entries.binary_search_by(|(known, _)| known.cmp(&name)) {
                Ok(at) => {
                    if let Some((_, old)) = labels.entries.get_mut(at) {
                        *old = value;
                    }
                }
                Err(at) => labels.entries.insert(at, (name, value)),
            }
        }
        for (name, value) in &labels.entries {
            Labels::write(&mut labels.text, name, value);
        }
        labels
    }

    /// What metadata says about labels; `None` when it says nothing, which is not the same as none.
    pub fn of(metadata: &Metadata) -> Option<Labels> {
        match metadata.namespace(LABELS)? {
            Value::Map(entries) => Some(Labels::new(entries.iter().cloned())),
            _ => None,
        }
    }

    /// These, and the ones of `other` in the place of those of the same name.
    pub fn with(&self, other: &Labels) -> Labels {
        Labels::new(self.entries.iter().chain(&other.entries).cloned())
    }

    /// Those with one of these names.
    pub fn only(&self, names: &[String]) -> Labels {
        Labels::new(self.entries.iter().filter(|(name, _)| names.contains(name)).cloned())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All but the one of this name.
    pub fn without(&self, name: &str) -> Labels {
        Labels::new(self.entries.iter().filter(|(known, _)| known != name).cloned())
    }

    /// The same for the same labels, and for no others.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// Adds a label to a text like [`Labels::as_text`]: in the order of the names, that is what it becomes.
    pub fn write(text: &mut String, name: &str, value: &Value) {
        // Lengths before texts, so that no text looks like two.
        text.push_str(&format!("{}:{name}=", name.len()));
        write_value(text, value);
    }

    /// A host with these labels has all of ours; with `lists_are_any`, one value of its lists is enough.
    pub fn are_had_by(&self, about: Option<&Metadata>, lists_are_any: bool) -> bool {
        self.iter().all(|(name, wanted)| match about.and_then(|about| about.get(LABELS, name)) {
            Some(Value::List(values)) if lists_are_any => values.iter().any(|value| is_same(value, wanted)),
            Some(value) => is_same(value, wanted),
            None => false,
        })
    }

    /// What is said under another namespace than that of labels has all of ours, each with the same value.
    pub fn are_had_under(&self, namespace: &str, about: Option<&Metadata>) -> bool {
        let said = |name| about.and_then(|about| about.get(namespace, name));
        self.iter().all(|(name, wanted)| said(name).is_some_and(|value| is_same(value, wanted)))
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    let text = |value| {
        let mut text = String::new();
        write_value(&mut text, value);
        text
    };
    text(one) == text(other)
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push('~'),
        Value::Bool(value) => text.push(if *value { '+' } else { '-' }),
        // 3 and 3.0 are one number, as they are in a protobuf struct.
        Value::Integer(number) => text.push_str(&format!("#{}", *number as f64)),
        Value::Number(number) => text.push_str(&format!("#{number}")),
        Value::String(string) => text.push_str(&format!("{}:{string}", string.len())),
        Value::List(items) => {
            text.push('[');
            items.iter().for_each(|item| write_value(text, item));
            text.push(']');
        }
        Value::Map(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            text.push('{');
            entries.iter().for_each(|(name, value)| Labels::write(text, name, value));
            text.push('}');
        }
    }
}

/// Hosts with the same labels are chosen among on their own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subsets {
    /// Which labels divide hosts.
    pub selectors: Vec<SubsetSelector>,
    /// For requests that ask for no labels, or for some that no host has.
    pub fallback: SubsetFallback,
    /// What the default subset has in common.
    pub default: Labels,
    /// A host with a list for a label is in the subset of each of its values.
    pub lists_are_any: bool,
    /// Weights of localities count among the hosts of a subset.
    pub by_locality: bool,
    /// In the proportion in which the hosts of a locality are in the subset.
    pub scales_localities: bool,
    /// When the fallback has no host either, any will do.
    pub panics_to_any: bool,
    /// Requests may list what else they would take: see [`Subsets::ALTERNATIVES`].
    pub tries_alternatives: bool,
    /// Requests may want more than a selector has names: of the selectors that they have all names of, the longest counts, and no
    /// other labels do.
    pub ignores_others: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SubsetSelector {
    /// Sorted, each once.
    pub names: Vec<String>,
    /// `None` is what the cluster says.
    pub fallback: Option<SelectorFallback>,
    /// Of several hosts with the same labels only the first gets traffic.
    pub single: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubsetFallback {
    #[default]
    Nobody,
    Any,
    Default,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SelectorFallback {
    To(SubsetFallback),
    /// Another subset, with these of the labels alone: fewer than before.
    Fewer(Vec<String>),
}

impl Subsets {
    /// Under this name requests list labels that are tried one after the other, each beside those that they want anyway.
    pub const ALTERNATIVES: &str = "fallback_list";

    /// Somebody may be sent to the default subset.
    pub fn use_default(&self) -> bool {
        let of_selector = Some(SelectorFallback::To(SubsetFallback::Default));
        self.fallback == SubsetFallback::Default || self.selectors.iter().any(|one| one.fallback == of_selector)
    }

    /// What of these labels counts.
    pub fn counted<'l>(&self, labels: &'l Labels) -> Cow<'l, Labels> {
        let all_are_wanted = |selector: &&SubsetSelector| selector.names.iter().all(|name| labels.get(name).is_some());
        // Of those of the same length the first.
        let longest = self.selectors.iter().rev().filter(all_are_wanted).max_by_key(|selector| selector.names.len());
        match longest.filter(|_| self.ignores_others) {
            Some(selector) => Cow::Owned(labels.only(&selector.names)),
            None => Cow::Borrowed(labels),
        }
    }

    /// What happens when no host has these labels. Of two selectors with the same names the last counts.
    pub fn fallback_of(&self, labels: &Labels) -> Option<&SelectorFallback> {
        let has_names = |selector: &&SubsetSelector| {
            selector.names.iter().map(String::as_str).eq(labels.iter().map(|(name, _)| name))
        };
        self.selectors.iter().rev().find(has_names)?.fallback.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    fn labels(entries: &[(&str, Value)]) -> Labels {
        Labels::new(entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())))
    }

    #[test]
    fn labels_are_the_same_whatever_their_order_and_however_numbers_are_kept() {
        let one = labels(&[("b", text("x")), ("a", Value::Integer(3))]);
        assert_eq!(one, labels(&[("a", Value::Number(3.0)), ("b", text("x"))]));
        assert_ne!(one, labels(&[("a", text("3")), ("b", text("x"))]));
        assert_ne!(labels(&[("a", text("1:x"))]), labels(&[("a", text("x"))]));
        let maps = |order: [&str; 2]| {
            let map = order.map(|name| (name.to_owned(), Value::Bool(name == "x")));
            labels(&[("m", Value::Map(map.to_vec()))])
        };
        assert_eq!(maps(["x", "y"]), maps(["y", "x"]));
        assert_ne!(labels(&[("a", text("1")), ("b", text("2"))]), labels(&[("a", text("1b")), ("", text("2"))]));
    }

    #[test]
    fn the_more_special_labels_take_the_place_of_the_others() {
        let route = labels(&[("a", text("1")), ("b", text("2"))]);
        let both = route.with(&labels(&[("b", text("3")), ("c", text("4"))]));
        assert_eq!(both, labels(&[("a", text("1")), ("b", text("3")), ("c", text("4"))]));
        assert_eq!(both.only(&["b".into(), "z".into()]), labels(&[("b", text("3"))]));
    }

    #[test]
    fn a_host_has_labels_or_not() {
        let mut host = Metadata::default();
        host.set(LABELS, "v", text("1"));
        host.set(LABELS, "l", Value::List(vec![text("p"), text("q")]));
        let v = labels(&[("v", text("1"))]);
        assert!(v.are_had_by(Some(&host), false) && !v.are_had_by(None, false));
        let q = labels(&[("l", text("q"))]);
        assert!(q.are_had_by(Some(&host), true) && !q.are_had_by(Some(&host), false));
        assert!(Labels::default().are_had_by(None, false));
        assert_eq!(Labels::of(&Metadata::default()), None);
        host.set("other", "v", Value::Number(1.0));
        let one = labels(&[("v", Value::Integer(1))]);
        assert!(one.are_had_under("other", Some(&host)) && !one.are_had_under(LABELS, Some(&host)));
        assert!(!one.are_had_under("other", None) && Labels::default().are_had_under("other", None));
        assert!(!q.are_had_under(LABELS, Some(&host)), "a list is one value there");
    }

    #[test]
    fn what_no_selector_knows_does_not_count_where_that_is_allowed() {
        let names = |names: &[&str]| SubsetSelector {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..SubsetSelector::default()
        };
        let selectors = vec![names(&["a"]), names(&["a", "b"]), names(&["c", "d"])];
        let subsets = Subsets { selectors, ignores_others: true, ..Subsets::default() };
        let all = labels(&[("a", text("1")), ("b", text("2")), ("c", text("3")), ("d", text("4")), ("e", text("5"))]);
        assert_eq!(*subsets.counted(&all), labels(&[("a", text("1")), ("b", text("2"))]), "the first of the longest");
        let some = labels(&[("a", text("1")), ("e", text("5"))]);
        assert_eq!(*subsets.counted(&some), labels(&[("a", text("1"))]));
        let none = labels(&[("e", text("5"))]);
        assert_eq!(*subsets.counted(&none), none);
        assert_eq!(*Subsets { ignores_others: false, ..subsets }.counted(&some), some);
    }

    #[test]
    fn the_fallback_is_that_of_the_selector_with_exactly_these_names() {
        let selector = |names: &[&str], fallback| SubsetSelector {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            fallback,
            single: false,
        };
        let any = SelectorFallback::To(SubsetFallback::Any);
        let subsets = Subsets {
            selectors: vec![selector(&["a", "b"], Some(any.clone())), selector(&["a"], None)],
            ..Subsets::default()
        };
        let asked = |names: &[&str]| {
            let wanted = Labels::new(names.iter().map(|name| ((*name).to_owned(), Value::Null)));
            subsets.fallback_of(&wanted).cloned()
        };
        assert_eq!((asked(&["b", "a"]), asked(&["a"]), asked(&["b"]), asked(&[])), (Some(any), None, None, None));
        assert!(!subsets.use_default());
    }
}
