//! Which build this is.

use serde_json::{Map, Value, json};

/// Ours.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Envoy whose configuration, flags and admin this build follows.
pub const ENVOY_VERSION: &str = "1.40.0";

/// The revision that was built: given to the compiler as `POSTRIDER_COMMIT`.
const COMMIT: Option<&str> = option_env!("POSTRIDER_COMMIT");

/// Stands for a revision that nobody told.
const UNKNOWN_COMMIT: &str = "0000000000000000000000000000000000000000";

/// `revision/envoy's version/state/kind of build/who`: the shape of Envoy's `version` in `--version` and
/// `/server_info`, which scripts cut at the slashes.
pub fn build() -> String {
    let commit = COMMIT.unwrap_or(UNKNOWN_COMMIT);
    let state = if COMMIT.is_some() { "Clean" } else { "Distribution" };
    let kind = if cfg!(debug_assertions) { "DEBUG" } else { "RELEASE" };
    format!("{commit}/{ENVOY_VERSION}/{state}/{kind}/Postrider-{VERSION}")
}

/// `server.version`: the first six digits of the revision, as in Envoy. 0 where nobody told it.
pub fn number() -> u64 {
    number_of(COMMIT.unwrap_or(UNKNOWN_COMMIT))
}

fn number_of(commit: &str) -> u64 {
    let digits = commit.get(..6).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

/// For people: `postrider version`.
pub fn text() -> String {
    format!(
        "postrider {VERSION}\nfollows Envoy {ENVOY_VERSION}\nrevision {}\n{} on {}\n",
        COMMIT.unwrap_or("unknown"),
        std::env::consts::ARCH,
        std::env::consts::OS,
    )
}

/// For machines: `postrider version --output json`.
pub fn json() -> Value {
    json!({
        "name": "postrider",
        "version": VERSION,
        "envoy_version": ENVOY_VERSION,
        "revision": COMMIT,
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "arch": std::env::consts::ARCH,
        "os": std::env::consts::OS,
    })
}

/// The fields of Envoy's `Node` that say what runs: the version is that of the Envoy whose configuration is meant, since
/// tools judge by it what they may ask for. `defaults` has fields, too, that say nothing.
pub fn of_node(defaults: bool) -> Map<String, Value> {
    let mut numbers = Map::new();
    let parts = ["major_number", "minor_number", "patch"].into_iter().zip(ENVOY_VERSION.split('.'));
    for (part, number) in parts {
        let number = number.parse::<u32>().unwrap_or_default();
        if defaults || number != 0 {
            numbers.insert(part.into(), json!(number));
        }
    }
    let build = json!({
        "version": numbers,
        "metadata": {
            "revision.sha": COMMIT.unwrap_or(UNKNOWN_COMMIT),
            "revision.status": if COMMIT.is_some() { "Clean" } else { "Distribution" },
            "build.type": if cfg!(debug_assertions) { "DEBUG" } else { "RELEASE" },
            "ssl.version": "rustls",
            "postrider.version": VERSION,
        },
    });
    let mut extensions: Vec<Value> = Vec::new();
    for offered in crate::config::offered() {
        let is_same = |known: &&mut Value| known["name"] == offered.name && known["category"] == offered.category;
        if let Some(types) = extensions.last_mut().filter(is_same).and_then(|known| known["type_urls"].as_array_mut()) {
            types.push(json!(offered.type_name));
            continue;
        }
        let mut extension = json!({"name": offered.name, "category": offered.category});
        if defaults {
            extension["type_descriptor"] = json!("");
            extension["disabled"] = json!(false);
        }
        extension["type_urls"] = json!([offered.type_name]);
        extensions.push(extension);
    }
    let fields = [
        ("user_agent_name", json!("postrider")),
        ("user_agent_build_version", build),
        ("extensions", json!(extensions)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_has_envoys_five_parts() {
        let build = build();
        let parts: Vec<&str> = build.split('/').collect();
        assert_eq!((parts.len(), parts[0].len(), parts[1]), (5, 40, "1.40.0"));
    }

    /// Seen on Envoy 1.40.0, which is of that revision.
    #[test]
    fn the_number_of_a_build_is_its_revisions() {
        assert_eq!(number_of("9e5580933739775e8bce696a57a2e1bc99368f23"), 10_376_576);
        assert_eq!((number_of(UNKNOWN_COMMIT), number_of("none")), (0, 0));
    }
}
