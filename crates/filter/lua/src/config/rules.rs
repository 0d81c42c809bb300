//! Rules of scripts that Envoy's own types configure. Those types have no room for any, so they stand in the metadata of
//! the node, and whoever reads the document puts them beside the other fields, as [`KEY`].

use postrider_filter_api::ConfigError;
use postrider_filter_api::plugin::{CircuitRule, DEFAULT_CIRCUIT, Policy};
use postrider_filter_plugin::policy;
use postrider_filter_plugin::read::keep;
use postrider_model::{Fields, Value};

use crate::program::{Dialect, Sandbox, Sdk};

/// As `crates/config/envoy` puts them there.
pub(super) const KEY: &str = "postrider.rules";

/// The circuit of what Envoy's own types configure: their scripts fail open for the stream that they fail on, so a client
/// that can make one fail must not switch it off for others.
pub(crate) const TYPED_CIRCUIT: CircuitRule = CircuitRule { kills_only: true, ..DEFAULT_CIRCUIT };

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) policy: Policy,
    pub(super) sandbox: Sandbox,
    pub(super) sdk: Sdk,
}

/// The rules among the fields of a type of Envoy's; the usual ones where there are none.
pub(super) fn take(fields: &mut Fields<'_>, dialect: Dialect, errors: &mut ConfigError) -> Rules {
    let Some(mut rules) = keep(fields.map(KEY), errors).flatten() else {
        let policy = Policy { circuit: TYPED_CIRCUIT, ..Policy::default() };
        return Rules { policy, sandbox: Sandbox::default(), sdk: Sdk::default() };
    };
    let policy = policy(&mut rules, TYPED_CIRCUIT, errors);
    if dialect == Dialect::Envoy {
        refuse_riders(&mut rules, &["sdk", "copy_route_config"], "a script of Envoy's Lua filter", errors);
    }
    let (sandbox, sdk) = sandbox_and_sdk(&mut rules, errors);
    errors.extend(rules.finish().err().into_iter().flatten());
    Rules { policy, sandbox, sdk }
}

/// An error for each of these options, which only Rider plugins have.
pub(super) fn refuse_riders(options: &mut Fields<'_>, keys: &[&str], who: &str, errors: &mut ConfigError) {
    for key in keys {
        if options.value(key).is_some_and(|value| *value != Value::Null) {
            let message = format!("`{key}` is an option of the runtime `rider`; {who} has none of that name");
            errors.push(options.error(key, message));
        }
    }
}

/// What a script may use, and which files define its functions.
pub(super) fn sandbox_and_sdk(options: &mut Fields<'_>, errors: &mut ConfigError) -> (Sandbox, Sdk) {
    let sandbox = match keep(options.string("sandbox"), errors).flatten() {
        None => Sandbox::default(),
        Some(name) => Sandbox::parse(name).unwrap_or_else(|| {
            errors.push(options.error("sandbox", format!("expected full, standard or strict, found `{name}`")));
            Sandbox::default()
        }),
    };
    let sdk = match keep(options.string("sdk"), errors).flatten() {
        None | Some("builtin") => Sdk::BuiltIn,
        Some("filesystem") => Sdk::Filesystem,
        Some(name) => {
            errors.push(options.error("sdk", format!("expected builtin or filesystem, found `{name}`")));
            Sdk::BuiltIn
        }
    };
    if sdk == Sdk::Filesystem && sandbox == Sandbox::Strict {
        errors.push(options.error("sdk", "SDK files need ffi and debug, which the sandbox level `strict` has not"));
    }
    let sdk = match (keep(options.bool("copy_route_config"), errors).flatten(), sdk) {
        (Some(true), Sdk::BuiltIn) => Sdk::BuiltInCopying,
        (Some(true), _) => {
            errors.push(options.error("copy_route_config", "SDK files hand out what they like: `sdk` is `filesystem`"));
            sdk
        }
        _ => sdk,
    };
    (sandbox, sdk)
}
