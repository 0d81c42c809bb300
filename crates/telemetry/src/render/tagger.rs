//! The tags of a statistic: Envoy's own, and those that a configuration adds.

use super::tags::{self, Cut};
use crate::stats::{ScopeTags, StatSet};
use std::ops::Range;

/// Makes tags of names.
#[derive(Default)]
pub struct Tagger {
    pub defaults: DefaultTags,
    /// In order; of two with one name, and of one and a default, the first that finds something counts.
    pub rules: Vec<TagRule>,
}

/// Which of the tags that Envoy knows by itself are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DefaultTags {
    #[default]
    All,
    /// Those with these names.
    Only(Vec<String>),
}

/// A tag that a configuration adds.
pub struct TagRule {
    pub name: String,
    pub value: TagValue,
    /// Looks at names of one root only, as Envoy's default tags do: these come last.
    pub rooted: bool,
}

/// Where a tag's value comes from.
pub enum TagValue {
    Fixed(String),
    /// Where in a full name the value is, and what leaves the name.
    Found(Find),
}

/// The place of a tag's value in a name, and of what is cut out of the name.
pub type Find = Box<dyn Fn(&str) -> Option<(Range<usize>, Range<usize>)> + Send + Sync>;

/// A name without its tags, and those.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tagged {
    pub name: String,
    pub tags: Vec<(String, String)>,
}

/// Whether a configuration may add tags. As in Envoy, what is there before a configuration is read has the default ones alone.
fn takes_rules(full: &str) -> bool {
    !full.starts_with("filesystem.") && full != "server.hot_restart_generation"
}

/// The labels that an extension gave a statistic of its own: it has no others, as in Envoy.
pub(crate) fn given(full: &str, set: &StatSet) -> Option<Tagged> {
    let labels = set.given.labels;
    let owned = |(label, value): &(&str, &str)| ((*label).to_owned(), (*value).to_owned());
    let tagged = || Tagged { name: set.given.plain(full).to_owned(), tags: labels.iter().map(owned).collect() };
    (!labels.is_empty()).then(tagged)
}

impl Tagger {
    /// Whether all tags are Envoy's own, which a scope's name alone tells but for a status.
    pub(super) fn is_plain(&self) -> bool {
        self.defaults == DefaultTags::All && self.rules.is_empty()
    }

    /// The tags of `full`, which begins with the name of the scope, that may have some of its own.
    pub(crate) fn tag(&self, full: &str, (scope, own): (&str, Option<&ScopeTags>)) -> Tagged {
        let mut cuts = tags::cuts(full);
        if let DefaultTags::Only(names) = &self.defaults {
            cuts.retain(|cut| names.iter().any(|name| name == cut.tag));
        }
        let rules = if takes_rules(full) { self.rules.as_slice() } else { &[] };
        let (first, last): (Vec<Cut>, Vec<Cut>) = cuts.into_iter().partition(|cut| !cut.rooted);
        let mut tagging = Tagging { full, tags: Vec::new(), gone: Vec::new() };
        first.into_iter().for_each(|cut| tagging.cut(cut));
        rules.iter().filter(|rule| !rule.rooted).for_each(|rule| tagging.rule(rule));
        last.into_iter().for_each(|cut| tagging.cut(cut));
        if let Some(own) = own {
            tagging.own(own, scope, &self.defaults);
        }
        rules.iter().filter(|rule| rule.rooted).for_each(|rule| tagging.rule(rule));
        Tagged { name: tags::remove(full, tagging.gone), tags: tagging.tags }
    }
}

/// A name while tags are made of it. All of them see the whole name.
struct Tagging<'a> {
    full: &'a str,
    tags: Vec<(String, String)>,
    gone: Vec<Range<usize>>,
}

impl Tagging<'_> {
    fn cut(&mut self, cut: Cut) {
        self.found(cut.tag, cut.value, cut.gone);
    }

    /// Those that the scope brings.
    fn own(&mut self, own: &ScopeTags, scope: &str, wanted: &DefaultTags) {
        let is_wanted = |tag: &str| match wanted {
            DefaultTags::All => true,
            DefaultTags::Only(names) => names.iter().any(|name| name == tag),
        };
        for (tag, value) in own.tags.iter().filter(|(tag, _)| is_wanted(tag)) {
            if !self.has(tag) {
                self.tags.push(((*tag).to_owned(), value.clone()));
            }
        }
        self.gone.push(tags::tail(scope, own));
    }

    fn rule(&mut self, rule: &TagRule) {
        match &rule.value {
            TagValue::Fixed(value) if !self.has(&rule.name) => self.tags.push((rule.name.clone(), value.clone())),
            TagValue::Fixed(_) => {}
            TagValue::Found(find) => {
                if let Some((value, gone)) = find(self.full) {
                    self.found(&rule.name, value, gone);
                }
            }
        }
    }

    fn found(&mut self, name: &str, value: Range<usize>, gone: Range<usize>) {
        if !self.has(name) {
            self.tags.push((name.to_owned(), self.full.get(value).unwrap_or_default().to_owned()));
            self.gone.push(gone);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.tags.iter().any(|(known, _)| known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, value: TagValue, rooted: bool) -> TagRule {
        TagRule { name: name.into(), value, rooted }
    }

    fn text(tagged: &Tagged) -> String {
        let tags: Vec<String> = tagged.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {}", tagged.name, tags.join(","))
    }

    #[test]
    fn default_tags_are_those_of_scope_and_status() {
        let tagged = Tagger::default().tag("cluster.a.upstream_rq_404", ("cluster.a.", None));
        assert_eq!(text(&tagged), "cluster.upstream_rq envoy.response_code=404,envoy.cluster_name=a");
        let tagged = Tagger::default().tag("http.a.x.rq_2xx", ("http.a.x.", None));
        assert_eq!(text(&tagged), "http.x.rq_2xx envoy.http_conn_manager_prefix=a");
    }

    /// Seen on a real Envoy 1.40.
    #[test]
    fn a_scope_may_bring_tags_that_its_name_does_not_tell() {
        let tags = vec![("envoy.endpoint_address", "127.0.0.1:80".to_owned())];
        let own = ScopeTags { tail: "127.0.0.1_80".len(), tags };
        let full = "cluster.a.endpoint.127.0.0.1_80.rq_total";
        let scope = full.strip_suffix("rq_total").unwrap();
        let tagged = Tagger::default().tag(full, (scope, Some(&own)));
        assert_eq!(text(&tagged), "cluster.endpoint.rq_total envoy.cluster_name=a,envoy.endpoint_address=127.0.0.1:80");
    }

    /// Seen on a real Envoy 1.40.
    #[test]
    fn what_is_counted_before_a_configuration_is_read_gets_no_tags_of_it() {
        let rules = vec![rule("fleet", TagValue::Fixed("blue".into()), false)];
        let tagger = Tagger { defaults: DefaultTags::All, rules };
        for (name, scope, tags) in [
            ("filesystem.write_completed", "filesystem.", ""),
            ("server.hot_restart_generation", "server.", ""),
            ("server.live", "server.", "fleet=blue"),
        ] {
            assert_eq!(text(&tagger.tag(name, (scope, None))), format!("{name} {tags}"));
        }
    }

    /// The order was seen on a real Envoy 1.40.
    #[test]
    fn rules_come_between_the_defaults_and_the_first_of_a_name_counts() {
        let find = |what: &'static str| -> TagValue {
            TagValue::Found(Box::new(move |name| {
                let start = name.find(what)?;
                Some((start..start + what.len(), start..start + what.len()))
            }))
        };
        let rules = vec![
            rule("fleet", TagValue::Fixed("blue".into()), false),
            rule("code", find("_404"), false),
            rule("envoy.cluster_name", find("upstream"), true),
            rule("way", find("upstream_"), true),
            rule("none", find("nothing"), false),
        ];
        let mut tagger = Tagger { defaults: DefaultTags::All, rules };
        let tag = |tagger: &Tagger| text(&tagger.tag("cluster.a.upstream_rq_404", ("cluster.a.", None)));
        assert_eq!(
            tag(&tagger),
            "cluster.rq envoy.response_code=404,fleet=blue,code=_404,envoy.cluster_name=a,way=upstream_"
        );
        tagger.defaults = DefaultTags::Only(vec!["envoy.response_code".into()]);
        tagger.rules.truncate(1);
        assert_eq!(tag(&tagger), "cluster.a.upstream_rq envoy.response_code=404,fleet=blue");
    }
}
