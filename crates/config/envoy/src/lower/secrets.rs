//! Secrets by name: those of `static_resources.secrets` and those in files.

use std::collections::HashSet;

use postrider_config_core::{Diagnostic, nearest};
use postrider_model::Value;

use super::checks;
use super::context::Lowering;
use super::value;
use crate::coverage::{Coverage, UnsupportedPolicy};
use crate::known::VERSION;
use crate::load::{SECRET_CONFIG, SecretFiles, asks_for_generic};
use crate::message::{Message, Value as Wire};
use crate::reader::Reader;

/// Kinds of secrets (the members of `Secret.type`), as messages call them.
const KINDS: [(&str, &str); 4] = [
    ("tls_certificate", "certificate"),
    ("validation_context", "validation context"),
    ("session_ticket_keys", "set of session ticket keys"),
    ("generic_secret", "generic secret"),
];

/// Every secret that a name can mean.
pub(super) struct Secrets<'c> {
    fixed: Vec<Reader<'c>>,
    files: &'c SecretFiles,
    coverage: &'c Coverage,
    /// Paths of those that something asked for.
    used: HashSet<String>,
}

impl<'c> Secrets<'c> {
    pub fn new(root: &Reader<'c>, files: &'c SecretFiles, coverage: &'c Coverage) -> Secrets<'c> {
        let fixed = root.message("static_resources").map(|resources| resources.list("secrets")).unwrap_or_default();
        Secrets { fixed, files, coverage, used: HashSet::new() }
    }

    fn of_file(&self, path: &str) -> Vec<Reader<'c>> {
        let all = self.files.secrets_of(path).into_iter();
        all.map(|(path, message)| Reader::at(message, self.coverage, path)).collect()
    }
}

/// What an `SdsSecretConfig` asks for: the member `kind` of the secret of that name; `None` after an error.
pub(super) fn find<'c>(cx: &mut Lowering<'c>, config: &Reader<'_>, kind: &'static str) -> Option<Reader<'c>> {
    let name = config.str("name");
    let Some(source) = config.message("sds_config") else {
        let fixed = cx.secrets.fixed.clone();
        return named(cx, config, kind, &fixed, "`static_resources.secrets`");
    };
    source.ignore("initial_fetch_timeout", "a file is read at once");
    source.ignore("resource_api_version", "there is one version");
    let file = match source.oneof("config_source_specifier")? {
        "path" => source,
        "path_config_source" => {
            let file = source.message("path_config_source")?;
            file.ignore("watched_directory", "the file is watched anyway");
            file.ignore("poll_interval", "the file is watched");
            file
        }
        other => {
            refuse_source(cx, &source, other);
            return None;
        }
    };
    let path = file.str("path");
    if let Some(reason) = cx.secrets.files.unreadable(path) {
        let text = format!("cannot read `{path}`: {reason}");
        cx.error(&file, "path", "unreadable-data", text);
        return None;
    }
    let secrets = cx.secrets.of_file(path);
    if cx.is_broken_file(path) && !secrets.iter().any(|secret| secret.str("name") == name) {
        return None; // Its name may be what the loader could not read.
    }
    named(cx, config, kind, &secrets, &format!("`{path}`"))
}

fn refuse_source(cx: &mut Lowering<'_>, source: &Reader<'_>, field: &str) {
    let text =
        format!("secrets from a control plane (`{field}`): known to Envoy, not supported by Postrider {VERSION}");
    source.refuse(field, &text, &mut postrider_config_core::Diagnostics::new());
    let diagnostic = Diagnostic::error("unsupported-field", text)
        .at(source.key_span_of(field))
        .path(source.path_of(field))
        .help("name a file: `sds_config: { path_config_source: { path: … } }`")
        .help("or leave `sds_config` out, and put the secret into `static_resources.secrets`");
    cx.push(diagnostic);
}

fn named<'c>(
    cx: &mut Lowering<'c>,
    config: &Reader<'_>,
    kind: &'static str,
    secrets: &[Reader<'c>],
    place: &str,
) -> Option<Reader<'c>> {
    let name = config.str("name");
    let of_name: Vec<&Reader<'c>> = secrets.iter().filter(|secret| secret.str("name") == name).collect();
    if let Some(found) = of_name.iter().find(|secret| secret.oneof("type") == Some(kind)) {
        cx.secrets.used.insert(found.path().to_owned());
        return found.message(kind);
    }
    // What the loader could not read may be all that is missing.
    if of_name.iter().any(|secret| cx.is_broken(secret.path())) || cx.is_broken_list("static_resources.secrets") {
        return None;
    }
    let text = match of_name.first().and_then(|other| other.oneof("type")) {
        Some(other) => format!("the secret `{name}` in {place} is a {}, not a {}", word(other), word(kind)),
        None => format!("there is no {} `{name}` in {place}", word(kind)),
    };
    let fitting = secrets.iter().filter(|secret| secret.oneof("type") == Some(kind));
    let suggestion = nearest(name, fitting.map(|secret| secret.str("name"))).map(str::to_owned);
    let diagnostic = Diagnostic::error("unknown-secret", text).at(config.span_of("name")).path(config.path_of("name"));
    cx.push(diagnostic.suggest(suggestion));
    None
}

fn word(kind: &str) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("secret", |(_, word)| word)
}

/// What says which native module it is, wherever it stands.
const MODULE: &str = "envoy.extensions.dynamic_modules.v3.DynamicModuleConfig";

/// What may ask for a secret by a name that nobody knows before it asks.
const ASKS_LATER: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";

const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";

/// The keys of the runtime by which faults are changed, of all requests and by downstream cluster.
fn faults(cx: &Lowering<'_>, message: &Message) -> Option<(String, Value)> {
    if message.type_name() != FAULT {
        return None;
    }
    let named = |key: &str| {
        let mut names = message.fields.iter().filter(|field| field.descriptor.name().ends_with("_runtime"));
        names.any(|field| matches!(&field.value, Wire::String(name) if name == key))
    };
    let values = cx.runtime.plain(|key| key.starts_with("fault.http.") || named(key));
    (!values.is_empty()).then(|| ("runtime".to_owned(), Value::Map(values)))
}

/// The configuration of an extension as a plain value. Beside the name of each generic secret that it asks for stands the
/// secret, as `generic_secret`. Native modules get what they may ask for: the runtime's keys as `runtime`, and filters the
/// generic secrets as `generic_secrets`; faults get the keys that change them.
pub(super) fn value(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Value {
    let mut plain = value::value(config.as_message());
    supply(cx, config, config.as_message(), config.path(), false, &mut plain);
    plain
}

fn supply<'m>(
    cx: &mut Lowering<'_>,
    config: &Reader<'m>,
    message: &'m Message,
    path: &str,
    asks: bool,
    plain: &mut Value,
) {
    let Value::Map(entries) = plain else { return };
    if asks && message.type_name() == SECRET_CONFIG {
        let found = find(cx, &config.below(message, path.to_owned()), "generic_secret");
        let secret = found.map(|secret| {
            secret.read_whole();
            value::value(secret.as_message())
        });
        // Without one there was an error, and an empty secret is no second one.
        entries.push(("generic_secret".to_owned(), secret.unwrap_or(Value::Map(Vec::new()))));
        return;
    }
    match message.type_name() {
        MODULE => {
            let all = cx.runtime.plain(|_| true);
            if !all.is_empty() {
                entries.push(("runtime".to_owned(), Value::Map(all)));
            }
        }
        FAULT => entries.extend(faults(cx, message)),
        ASKS_LATER => {
            let secrets = generic(cx);
            if !secrets.is_empty() {
                entries.push(("generic_secrets".to_owned(), Value::List(secrets)));
            }
        }
        _ => {}
    }
    let asks = asks || asks_for_generic(message.type_name());
    for field in &message.fields {
        let name = field.descriptor.name();
        if let Wire::Map(all) = &field.value {
            let Some((_, Value::Map(below))) = entries.iter_mut().find(|(key, _)| key == name) else { continue };
            for entry in all {
                let below = below.iter_mut().find(|(key, _)| *key == entry.key);
                if let (Wire::Message(inner), Some((_, below))) = (&entry.value, below) {
                    supply(cx, config, inner, &format!("{path}.{name}[{:?}]", entry.key), asks, below);
                }
            }
            continue;
        }
        if let Wire::List(items) = &field.value {
            let Some((_, Value::List(below))) = entries.iter_mut().find(|(key, _)| key == name) else { continue };
            for (index, (item, below)) in items.iter().zip(below).enumerate() {
                if let Wire::Message(inner) = &item.value {
                    supply(cx, config, inner, &format!("{path}.{name}[{index}]"), asks, below);
                }
            }
            continue;
        }
        let inner = match &field.value {
            Wire::Message(inner) => Some(&**inner),
            Wire::Any(any) => any.message.as_ref(),
            _ => None,
        };
        let Some(inner) = inner else { continue };
        if let Some((_, below)) = entries.iter_mut().find(|(key, _)| key == name) {
            supply(cx, config, inner, &format!("{path}.{name}"), asks, below);
        }
    }
}

/// Every generic secret that has a name of its own in the configuration, with that name.
fn generic(cx: &mut Lowering<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    for secret in cx.secrets.fixed.clone() {
        let Some(found) = secret.message("generic_secret").filter(|_| secret.oneof("type") == Some("generic_secret"))
        else {
            continue;
        };
        cx.secrets.used.insert(secret.path().to_owned());
        found.read_whole();
        let name = ("name".to_owned(), Value::String(secret.str("name").to_owned()));
        let secret = ("generic_secret".to_owned(), value::value(found.as_message()));
        all.push(Value::Map(vec![name, secret]));
    }
    all
}

/// What must hold of all secrets, and what of them nobody read. Last, when it is known which of them are used.
pub(super) fn finish(cx: &mut Lowering<'_>, policy: UnsupportedPolicy) {
    for (kind, word) in KINDS {
        let of_kind: Vec<Reader<'_>> =
            cx.secrets.fixed.iter().filter(|secret| secret.oneof("type") == Some(kind)).cloned().collect();
        checks::unique_names(cx, &of_kind, word);
    }
    for secret in cx.secrets.fixed.clone() {
        unless_used(cx, &secret);
    }
    let in_files = cx.secrets.files.secrets().into_iter();
    for secret in in_files.map(|(path, message)| Reader::at(message, cx.secrets.coverage, path)).collect::<Vec<_>>() {
        unless_used(cx, &secret);
        secret.finish(&mut cx.diagnostics, policy);
    }
}

fn unless_used(cx: &mut Lowering<'_>, secret: &Reader<'_>) {
    let name = secret.str("name");
    if !cx.secrets.used.contains(secret.path())
        && let Some(kind) = secret.oneof("type")
    {
        secret.ignore(kind, &format!("nothing asks for the secret `{name}`"));
    }
}
