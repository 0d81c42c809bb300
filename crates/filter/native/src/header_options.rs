//! Headers that a configuration adds, with `%COMMANDS%` in their values.

use postrider_filter_api::Stream;
use postrider_http::Fields;
use postrider_model::{AppendAction, HeaderValue};

/// The values that `options` have for this stream, in order.
pub(crate) fn values(options: &[HeaderValue], stream: &Stream<'_>) -> Vec<Vec<u8>> {
    let value = |option: &HeaderValue| {
        let mut value = Vec::new();
        stream.host.format(stream, &option.value, &mut value);
        value
    };
    options.iter().map(value).collect()
}

/// Edits `fields` with the values that [`values`] gave.
pub(crate) fn apply(options: &[HeaderValue], values: &[Vec<u8>], fields: &mut Fields) {
    for (option, value) in options.iter().zip(values) {
        if value.is_empty() && !option.keep_empty {
            continue;
        }
        let (name, present) = (option.name.as_bytes(), fields.get_name(option.name.as_bytes()).is_some());
        // A value with control bytes, made from a request, is left out.
        let _ = match (option.action, present) {
            (AppendAction::AppendIfExistsOrAdd, _) | (AppendAction::AddIfAbsent, false) => {
                fields.append_name(name, value)
            }
            (AppendAction::OverwriteIfExistsOrAdd, _) | (AppendAction::OverwriteIfExists, true) => {
                fields.set_name(name, value)
            }
            (AppendAction::AddIfAbsent, true) | (AppendAction::OverwriteIfExists, false) => Ok(()),
        };
    }
}
