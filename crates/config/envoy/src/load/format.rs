//! Which of Envoy's formats a file is in: by its extension, else by its content.

use postrider_config_core::SourceFile;

/// A configuration format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
    /// Binary protobuf, `.pb`.
    Binary,
    /// Text protobuf, `.pb_text`.
    Text,
}

impl Format {
    /// Decides for a file. A name without a known extension (standard input, a name in a container image) is looked into.
    pub fn detect(file: &SourceFile) -> Format {
        match file.name().rsplit_once('.').map_or("", |(_, extension)| extension) {
            "yaml" | "yml" => Format::Yaml,
            "json" => Format::Json,
            "pb" => Format::Binary,
            "pb_text" | "textproto" | "txtpb" | "prototxt" => Format::Text,
            _ => Format::of_content(file),
        }
    }

    fn of_content(file: &SourceFile) -> Format {
        let text = file.text();
        if text.is_empty() && !file.bytes().is_empty() || text.contains('\0') {
            return Format::Binary;
        }
        // A comment starts with `#` in YAML and in text protobuf alike.
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        match lines.take(1).next() {
            Some(line) if line.starts_with(['{', '[']) => Format::Json,
            // `static_resources {` opens a message in text protobuf; YAML has a colon there.
            Some(line) if line.ends_with('{') && !line.contains(':') => Format::Text,
            _ => Format::Yaml,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_first_then_content() {
        for (name, text, expected) in [
            ("a.yaml", "{}", Format::Yaml),
            ("a.json", "", Format::Json),
            ("a.pb_text", "", Format::Text),
            ("-", "  {\"a\": 1}", Format::Json),
            ("-", "# x\nstatic_resources {\n}", Format::Text),
            ("-", "static_resources: {\n}", Format::Yaml),
            ("-", "", Format::Yaml),
        ] {
            assert_eq!(Format::detect(&SourceFile::new(name, text)), expected, "{name} {text}");
        }
        assert_eq!(Format::detect(&SourceFile::from_bytes("-", vec![0x12, 0xff])), Format::Binary);
    }
}
