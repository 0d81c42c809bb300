//! Flag values that need a parser of their own, and why a value is refused.

use std::str::FromStr;

use postrider_telemetry::log::{Component, Level};

/// `--component-log-level`: the components that exist here with their levels, and the names of those that do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComponentLevels {
    /// As it was given.
    pub text: String,
    pub known: Vec<(Component, Level)>,
    /// Loggers of Envoy that have no counterpart, or misspelt names.
    pub unknown: Vec<String>,
}

/// # Errors
/// No name of a level.
pub fn parse_level(text: &str) -> Result<Level, String> {
    Level::from_str(text).map_err(|()| "expected trace, debug, info, warning, warn, error, critical or off".to_owned())
}

/// # Errors
/// An item without a colon, or with an unknown level.
pub fn parse_component_levels(text: &str) -> Result<ComponentLevels, String> {
    let mut levels = ComponentLevels { text: text.to_owned(), ..ComponentLevels::default() };
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, level) = item.split_once(':').ok_or_else(|| format!("`{item}` is not `component:level`"))?;
        let level = parse_level(level).map_err(|expected| format!("`{item}`: {expected}"))?;
        match Component::from_str(name) {
            Ok(component) => levels.known.push((component, level)),
            Err(()) => levels.unknown.push(name.to_owned()),
        }
    }
    Ok(levels)
}

/// # Errors
/// No file mode in octal.
pub fn parse_socket_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "expected a file mode in octal, such as 600".to_owned())
}

/// # Errors
/// Not `name:value` in the characters that Envoy allows.
pub fn parse_stats_tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected `name:value`")?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err("the name of a tag has letters and digits only".to_owned());
    }
    if value.is_empty() || value.contains('.') {
        return Err("the value of a tag is not empty and has no dot".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_levels_keep_what_is_known_and_name_the_rest() {
        let levels = parse_component_levels("upstream:debug,misc:warn").unwrap();
        assert_eq!(levels.known, [(Component::Upstream, Level::Debug)]);
        assert_eq!(levels.unknown, ["misc"]);
        assert!(parse_component_levels("upstream").is_err());
        assert!(parse_component_levels("upstream:loud").unwrap_err().contains("critical"));
    }

    #[test]
    fn a_socket_mode_is_octal() {
        assert_eq!(parse_socket_mode("600"), Ok(0o600));
        assert!(parse_socket_mode("800").is_err());
        assert!(parse_socket_mode("1777").is_err());
    }

    #[test]
    fn a_stats_tag_has_a_plain_name_and_a_value_without_dots() {
        assert_eq!(parse_stats_tag("zone:a-1:b"), Ok(("zone".to_owned(), "a-1:b".to_owned())));
        for wrong in ["zone", "zo-ne:a", ":a", "zone:", "zone:a.b"] {
            assert!(parse_stats_tag(wrong).is_err(), "{wrong}");
        }
    }
}
