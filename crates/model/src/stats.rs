//! Which statistics are told.

use crate::StringMatch;

/// A rule over full names (`cluster.web.upstream_rq_total`). What it leaves out is counted all the same, where counting
/// costs nothing, and shown nowhere.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsMatch {
    /// None at all.
    Nothing,
    /// Those that one of these matches.
    Only(Vec<StringMatch>),
    /// All but those that one of these matches.
    AllBut(Vec<StringMatch>),
}

impl StatsMatch {
    pub fn shows(&self, name: &str) -> bool {
        match self {
            StatsMatch::Nothing => false,
            StatsMatch::Only(rules) => rules.iter().any(|rule| rule.matches(name)),
            StatsMatch::AllBut(rules) => !rules.iter().any(|rule| rule.matches(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StringKind;

    #[test]
    fn a_list_takes_in_or_leaves_out() {
        let rules = || {
            let rule = |kind| StringMatch { kind, ignore_case: false };
            vec![rule(StringKind::Prefix("cluster.a.".into())), rule(StringKind::Suffix("_total".into()))]
        };
        let names = ["cluster.a.x", "http.b.rq_total", "http.b.rq"];
        assert_eq!(names.map(|name| StatsMatch::Only(rules()).shows(name)), [true, true, false]);
        assert_eq!(names.map(|name| StatsMatch::AllBut(rules()).shows(name)), [false, false, true]);
        assert_eq!(names.map(|name| StatsMatch::Nothing.shows(name)), [false; 3]);
    }
}
