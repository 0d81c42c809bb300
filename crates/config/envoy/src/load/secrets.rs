//! Files of secrets: what an `sds_config` with a path names.
//!
//! They are read beside the bootstrap and before it is lowered, so that lowering finds every message in memory and
//! findings in them have places like all others. The keys and certificates that they name are not read here.

use std::io::Read;

use postrider_config_core::{Diagnostics, SourceFile, Sources};

use super::LoadOptions;
use crate::form::OwnForms;
use crate::message::{Message, Value};
use crate::tree;

const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
pub(crate) const SECRET_CONFIG: &str = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig";

/// May stand around a secret, with a name and a version of its own.
const RESOURCE: &str = "envoy.service.discovery.v3.Resource";

/// What asks for keys, certificates and rules about them.
const TLS_CONTEXTS: [&str; 2] = [
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
];

/// What asks for generic secrets, in the configurations of extensions.
const CREDENTIALS: [&str; 4] = [
    "envoy.extensions.formatter.generic_secret.v3.GenericSecret",
    "envoy.extensions.filters.http.golang.v3alpha.Config",
    "envoy.extensions.http.injected_credentials.generic.v3.Generic",
    "envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2",
];

/// Whether messages of this type ask for generic secrets.
pub(crate) fn asks_for_generic(type_name: &str) -> bool {
    CREDENTIALS.contains(&type_name)
}

/// The files of secrets that a bootstrap names.
#[derive(Debug, Default)]
pub struct SecretFiles {
    files: Vec<SecretFile>,
}

#[derive(Debug)]
struct SecretFile {
    path: String,
    /// `Err` is the system's reason.
    content: Result<Option<Message>, String>,
}

impl SecretFiles {
    /// As the configuration writes them.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.path.as_str())
    }

    /// Why a file could not be read.
    pub(crate) fn unreadable(&self, path: &str) -> Option<&str> {
        self.find(path)?.content.as_ref().err().map(String::as_str)
    }

    /// The secrets of one file, each with its path.
    pub(crate) fn secrets_of(&self, path: &str) -> Vec<(String, &Message)> {
        self.find(path).map(SecretFile::secrets).unwrap_or_default()
    }

    /// The secrets of all files, each with its path.
    pub(crate) fn secrets(&self) -> Vec<(String, &Message)> {
        self.files.iter().flat_map(SecretFile::secrets).collect()
    }

    /// The file that a path of a diagnostic leads into, and the rest of the path.
    pub(crate) fn enter<'p>(&self, path: &'p str) -> Option<(&Message, &'p str)> {
        self.files.iter().find_map(|file| {
            let rest = path.strip_prefix(&below(&file.path))?;
            Some((file.content.as_ref().ok()?.as_ref()?, rest))
        })
    }

    fn find(&self, path: &str) -> Option<&SecretFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SecretFile {
    fn secrets(&self) -> Vec<(String, &Message)> {
        let Ok(Some(response)) = &self.content else { return Vec::new() };
        let Some(Value::List(items)) = response.value("resources") else { return Vec::new() };
        let all = items.iter().enumerate().filter_map(|(index, item)| {
            let path = format!("{}resources[{index}]", below(&self.path));
            let message = in_any(&item.value)?;
            match message.type_name() {
                SECRET => Some((path, message)),
                RESOURCE => {
                    let inner = in_any(message.value("resource")?).filter(|inner| inner.type_name() == SECRET)?;
                    Some((format!("{path}.resource"), inner))
                }
                _ => None,
            }
        });
        all.collect()
    }
}

/// What the path of a diagnostic in a file begins with.
pub(crate) fn below(file: &str) -> String {
    format!("{file}: ")
}

fn in_any(value: &Value) -> Option<&Message> {
    match value {
        Value::Any(any) => any.message.as_ref(),
        _ => None,
    }
}

/// Loads each file of secrets that a TLS context or a filter of `bootstrap` names, once.
pub fn load_secrets(
    bootstrap: &Message,
    options: &LoadOptions,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> SecretFiles {
    let mut paths = Vec::new();
    collect(bootstrap, false, &mut paths);
    let options =
        LoadOptions { allow_unknown_static_fields: options.allow_unknown_static_fields, ..LoadOptions::default() };
    let mut files = Vec::new();
    for path in paths {
        let content = read(&path).map(|bytes| {
            let file = SourceFile::from_bytes(path.clone(), bytes);
            let id = sources.add(file.clone());
            let (message, found) = super::load_into(sources, (id, &file), RESPONSE, &options, &mut OwnForms::default());
            for mut finding in found.iter().cloned() {
                finding.path = format!("{}{}", below(&path), finding.path);
                diagnostics.push(finding);
            }
            message
        });
        files.push(SecretFile { path, content });
    }
    SecretFiles { files }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    // One byte more than is allowed: the loader refuses it by name.
    file.take(tree::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Paths of files of secrets in a message and below, each once, in the order of the document.
fn collect(message: &Message, asks: bool, paths: &mut Vec<String>) {
    let name = message.type_name();
    let asks = asks || TLS_CONTEXTS.contains(&name) || asks_for_generic(name);
    if asks && name == SECRET_CONFIG {
        if let Some(source) = message.message("sds_config") {
            let path = match source.message("path_config_source") {
                Some(file) => file.str("path"),
                None => source.str("path"),
            };
            if !path.is_empty() && !paths.iter().any(|known| known == path) {
                paths.push(path.to_owned());
            }
        }
        return;
    }
    for field in &message.fields {
        below_value(&field.value, asks, paths);
    }
}

fn below_value(value: &Value, asks: bool, paths: &mut Vec<String>) {
    match value {
        Value::Message(message) => collect(message, asks, paths),
        Value::Any(any) => any.message.iter().for_each(|message| collect(message, asks, paths)),
        Value::List(items) => items.iter().for_each(|item| below_value(&item.value, asks, paths)),
        Value::Map(entries) => entries.iter().for_each(|entry| below_value(&entry.value, asks, paths)),
        _ => {}
    }
}
