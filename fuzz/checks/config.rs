//! Any bytes as a configuration file: it is read or refused without a panic, whatever form it is taken for, and every
//! finding has its place inside the file.

use postrider_config_core::SourceFile;
use postrider_config_envoy::{Format, LoadOptions, load_bootstrap};

/// The first byte chooses the form, the rest is the file.
pub fn config(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let format = match choice % 4 {
        0 => Format::Yaml,
        1 => Format::Json,
        2 => Format::Text,
        _ => Format::Binary,
    };
    let file = SourceFile::from_bytes("fuzz", text.to_vec());
    let options = LoadOptions { format: Some(format), ..LoadOptions::default() };
    let loaded = load_bootstrap(&file, &options);
    for diagnostic in loaded.diagnostics.iter() {
        if let Some(span) = diagnostic.span {
            assert!(loaded.sources.location(span).is_some(), "{diagnostic:?}");
        }
    }
}
