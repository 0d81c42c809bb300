//! Formatters (`formatters`): what adds commands to the formats beside it.
//!
//! The commands of most are there in any case. Those that stand for a file or a secret are what this file is about: they
//! become texts when the configuration is read, and it is read again when the file changes.

use std::path::PathBuf;

use postrider_model::Contents;

use super::context::Lowering;
use super::{data, secrets};
use crate::reader::Reader;

/// Those whose commands formats always have.
const EVERYWHERE: [&str; 3] = [
    "envoy.extensions.formatter.cel.v3.Cel",
    "envoy.extensions.formatter.metadata.v3.Metadata",
    "envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery",
];

const FILES: &str = "envoy.extensions.formatter.file_content.v3.FileContent";
pub(super) const SECRETS: &str = "envoy.extensions.formatter.generic_secret.v3.GenericSecret";

/// What the formats that are being read may stand for.
#[derive(Default)]
pub(super) struct Formatters {
    reads_files: bool,
    /// By the names that formats use. `None` for one without a text, or in error already.
    secrets: Vec<(String, Option<String>)>,
    /// Files that were read.
    files: Vec<PathBuf>,
}

/// Reads what `at` has with the formatters that it lists.
pub(super) fn with<T>(cx: &mut Lowering<'_>, at: &Reader<'_>, read: impl FnOnce(&mut Lowering<'_>) -> T) -> T {
    let listed = listed(cx, at);
    let outer = std::mem::replace(&mut cx.formatters, listed);
    let done = read(cx);
    let inner = std::mem::replace(&mut cx.formatters, outer);
    cx.files.extend(inner.files);
    done
}

fn listed(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Formatters {
    let mut all = Formatters::default();
    for formatter in at.list("formatters") {
        formatter.str("name");
        let Some(any) = formatter.any("typed_config") else { continue };
        match (any.type_name, &any.reader) {
            (FILES, _) => all.reads_files = true,
            (SECRETS, Some(config)) => {
                for (name, config) in config.message_map("secret_configs") {
                    let text =
                        secrets::find(cx, &config, "generic_secret").and_then(|secret| text(cx, &config, &secret));
                    all.secrets.push((name.to_owned(), text.filter(|text| !text.is_empty())));
                }
            }
            (kind, _) if EVERYWHERE.contains(&kind) => {}
            _ => cx.refuse_extension(&formatter, "typed_config", &any),
        }
    }
    all
}

/// What a secret holds; `None` where it is no single text, and after an error.
fn text(cx: &mut Lowering<'_>, config: &Reader<'_>, secret: &Reader<'_>) -> Option<String> {
    secret.whole("secrets");
    let bytes = data::watched(cx, &secret.message("secret")?)?;
    let text = String::from_utf8(bytes);
    if text.is_err() {
        cx.error(config, "name", "unreadable-data", "the secret is not UTF-8 text");
    }
    text.ok()
}

impl Contents for Formatters {
    fn find(&mut self, name: &str, argument: &str) -> Result<Option<String>, String> {
        match name {
            "SECRET" if !self.secrets.is_empty() => {
                let Some((_, text)) = self.secrets.iter().find(|(known, _)| known == argument) else {
                    return Err(format!("no formatter beside this format has a secret `{argument}`"));
                };
                Ok(text.clone())
            }
            "FILE_CONTENT" if self.reads_files => {
                let (path, _) = postrider_model::file_of_content(argument)?;
                self.files.push(path.into());
                let bytes = data::read(path).map_err(|reason| format!("cannot read `{path}`: {reason}"))?;
                String::from_utf8(bytes).map(Some).map_err(|_| format!("`{path}` is not UTF-8 text"))
            }
            _ => postrider_model::NoContents.find(name, argument),
        }
    }
}
