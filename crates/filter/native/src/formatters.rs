//! Formatters (`formatters`): what adds commands to the formats beside it.
//!
//! The commands of most are there in any case. Files and secrets become texts when the configuration is read; the files are
//! watched, so that it is read again when they change.

use std::path::Path;

use postrider_filter_api::WatchedFile;
use postrider_model::{Contents, NoContents, Reading, file_of_content};

use crate::read;

/// Those whose commands formats always have.
const EVERYWHERE: [&str; 3] = [
    "envoy.extensions.formatter.cel.v3.Cel",
    "envoy.extensions.formatter.metadata.v3.Metadata",
    "envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery",
];

const FILES: &str = "envoy.extensions.formatter.file_content.v3.FileContent";
const SECRETS: &str = "envoy.extensions.formatter.generic_secret.v3.GenericSecret";

/// What the formats beside a list of formatters may stand for.
#[derive(Debug, Default)]
pub(crate) struct Formatters {
    reads_files: bool,
    /// By the names that formats use.
    secrets: Vec<(String, Option<String>)>,
    /// Files that were read.
    pub(crate) files: Vec<WatchedFile>,
}

impl Formatters {
    /// The list in `at`.
    pub(crate) fn read(at: &mut Reading<'_>) -> Formatters {
        let mut all = Formatters::default();
        at.each("formatters", |at| {
            at.text("name");
            at.map("typed_config", |at| {
                let kind = at.text("@type").unwrap_or_default().rsplit('/').next().unwrap_or_default();
                match kind {
                    FILES => all.reads_files = true,
                    SECRETS => all.read_secrets(at),
                    kind if EVERYWHERE.contains(&kind) => {}
                    kind => {
                        at.error("@type", format!("{kind} is not supported"));
                        at.skip();
                    }
                }
            });
        });
        all
    }

    fn read_secrets(&mut self, at: &mut Reading<'_>) {
        at.map("secret_configs", |at| {
            for name in at.keys() {
                let secret = at.map(name, |at| {
                    at.text("name");
                    at.value("sds_config");
                    // Put in its place by whoever knows secrets by name.
                    let found = at.map("generic_secret", |at| {
                        at.value("secrets");
                        read::data_source(at, "secret", &mut self.files)
                    });
                    found.flatten().unwrap_or_default()
                });
                match String::from_utf8(secret.unwrap_or_default()) {
                    Ok(text) => self.secrets.push((name.to_owned(), Some(text).filter(|text| !text.is_empty()))),
                    Err(_) => at.error(name, "the secret is not UTF-8 text"),
                }
            }
        });
    }
}

impl Contents for Formatters {
    fn find(&mut self, name: &str, argument: &str) -> Result<Option<String>, String> {
        match name {
            "SECRET" if !self.secrets.is_empty() => {
                let found = self.secrets.iter().find(|(known, _)| known == argument);
                let text = found.map(|(_, text)| text.clone());
                text.ok_or_else(|| format!("no formatter beside this format has a secret `{argument}`"))
            }
            "FILE_CONTENT" if self.reads_files => {
                let (path, _) = file_of_content(argument)?;
                let content = read::file(Path::new(path));
                self.files.push(WatchedFile::new(Path::new(path), content.as_deref().ok()));
                let bytes = content.map_err(|error| format!("cannot read {path}: {error}"))?;
                String::from_utf8(bytes).map(Some).map_err(|_| format!("{path} is not UTF-8 text"))
            }
            _ => NoContents.find(name, argument),
        }
    }
}
