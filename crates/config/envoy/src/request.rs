//! One message that comes by itself, such as the body of a request to the admin, as the value that filters read.

use postrider_config_core::{Diagnostic, Diagnostics, Severity, SourceFile, Sources};
use postrider_model::{Value, ValueError};

use crate::load::{LoadOptions, load_message};
use crate::lower::{locate, value};

/// Reads `file` as a message of that type of the schema, and lets `take` make something of it.
///
/// # Errors
/// All that is wrong, by the schema or as `take` says: one line each, with its place in the file.
pub fn take_message<T>(
    file: &SourceFile,
    type_name: &str,
    options: &LoadOptions,
    take: impl FnOnce(&Value) -> Result<T, Vec<ValueError>>,
) -> Result<T, Vec<String>> {
    let loaded = load_message(file, type_name, options);
    let (Some(message), false) = (&loaded.bootstrap, loaded.diagnostics.has_errors()) else {
        return Err(lines(&loaded.diagnostics, &loaded.sources));
    };
    take(&value::value(message)).map_err(|errors| {
        let mut diagnostics = Diagnostics::new();
        for ValueError { path, message: text } in errors {
            // What is wrong with nothing in particular has no place.
            let span = if path.is_empty() { None } else { locate(message, &path) };
            diagnostics.push(Diagnostic::new(Severity::Error, "invalid-request", text).at(span).path(path));
        }
        lines(&diagnostics, &loaded.sources)
    })
}

fn lines(diagnostics: &Diagnostics, sources: &Sources) -> Vec<String> {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    let line = |error: &Diagnostic| {
        let place = error.span.and_then(|span| sources.location(span));
        let place = place.map(|(_, at)| format!("{}:{}: ", at.line, at.column)).unwrap_or_default();
        let path = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
        format!("{place}{path}{}", error.message)
    };
    errors.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, Vec<String>> {
        let file = SourceFile::new("request", text);
        take_message(&file, "envoy.admin.v3.TapRequest", &LoadOptions::default(), |value| match value.fields() {
            Ok(_) if text.contains("bad") => {
                Err(vec![ValueError { path: "config_id".to_owned(), message: "is bad".to_owned() }])
            }
            _ => Ok(value.clone()),
        })
    }

    #[test]
    fn errors_have_places_and_what_is_right_is_taken() {
        let sinks = "output_config: {sinks: [{streaming_admin: {}}]}";
        let tap = format!("tap_config: {{match: {{any_match: true}}, {sinks}}}");
        let good = read(&format!("config_id: a\n{tap}")).unwrap();
        assert!(matches!(good, Value::Map(entries) if entries[0] == ("config_id".into(), Value::String("a".into()))));
        assert_eq!(read(&format!("config_id: bad\n{tap}")).unwrap_err(), ["1:12: config_id: is bad"]);
        let errors = read(&format!("config_id: a\nextra: 1\n{tap}")).unwrap_err();
        assert!(errors.len() == 1 && errors[0].starts_with("2:1: extra: "), "{errors:?}");
        assert!(!read("[").unwrap_err().is_empty());
    }
}
