//! Which build this is.

use serde_json::{Value, json};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_has_envoys_five_parts() {
        let build = build();
        let parts: Vec<&str> = build.split('/').collect();
        assert_eq!((parts.len(), parts[0].len(), parts[1]), (5, 40, "1.40.0"));
    }
}
