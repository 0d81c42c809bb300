//! Which headers a service of the user's own may change: `HeaderMutationRules`.

use postrider_model::{Reading, Regex, regex};

/// The rules. Headers that the proxy's own routing and bookkeeping use are out of reach unless the rules say otherwise.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MutationRules {
    allow_routing: bool,
    allow_own: bool,
    disallow_system: bool,
    disallow_all: bool,
    allow: Option<Regex>,
    disallow: Option<Regex>,
    /// A change that is not allowed ends the request instead of being left out.
    pub(crate) is_error: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Set,
    /// Beside what is there.
    Append,
    Remove,
}

impl MutationRules {
    pub(crate) fn read(at: &mut Reading<'_>) -> MutationRules {
        MutationRules {
            allow_routing: at.flag("allow_all_routing"),
            allow_own: at.flag("allow_envoy"),
            disallow_system: at.flag("disallow_system"),
            disallow_all: at.flag("disallow_all"),
            allow: at.map("allow_expression", regex).flatten(),
            disallow: at.map("disallow_expression", regex).flatten(),
            is_error: at.flag("disallow_is_error"),
        }
    }

    /// `name` is in lower case.
    pub(crate) fn allows(&self, change: Change, name: &str) -> bool {
        const ROUTING: [&str; 4] = ["host", ":authority", ":scheme", ":method"];
        let is_system = name.starts_with(':');
        let matches = |rule: &Option<Regex>| rule.as_ref().is_some_and(|rule| rule.matches_whole(name));
        if change != Change::Set && (is_system || name == "host") {
            return false;
        }
        if matches(&self.disallow) {
            return false;
        }
        if matches(&self.allow) {
            return true;
        }
        let forbidden = self.disallow_all
            || self.disallow_system && is_system
            || !self.allow_routing && ROUTING.contains(&name)
            || !self.allow_own && name.starts_with("x-envoy");
        !forbidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, text};
    use postrider_model::Value;

    #[test]
    fn rules_have_an_order() {
        let read = |value: Value| Reading::all(&value, MutationRules::read).unwrap();
        let allows = |rules: &MutationRules, name: &str| rules.allows(Change::Set, name);
        let plain = read(object([]));
        assert!(allows(&plain, "x") && allows(&plain, ":path"));
        for name in ["host", ":authority", ":method", ":scheme", "x-envoy-a"] {
            assert!(!allows(&plain, name), "{name}");
        }
        assert!(!plain.allows(Change::Append, ":path") && plain.allows(Change::Append, "x"));
        assert!(!plain.allows(Change::Remove, ":path") && plain.allows(Change::Remove, "x"));
        let open = read(object([("allow_all_routing", Value::Bool(true)), ("allow_envoy", Value::Bool(true))]));
        assert!(allows(&open, "host") && allows(&open, "x-envoy-a") && !open.allows(Change::Remove, "host"));
        let expression = |pattern: &str| object([("regex", text(pattern))]);
        let closed = read(object([
            ("disallow_all", Value::Bool(true)),
            ("allow_expression", expression("x-.*")),
            ("disallow_expression", expression("x-no")),
        ]));
        assert!(allows(&closed, "x-yes") && !allows(&closed, "x-no") && !allows(&closed, "y"));
        assert!(!allows(&read(object([("disallow_system", Value::Bool(true))])), ":path"));
    }
}
