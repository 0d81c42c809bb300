//! Tags of a span: one value for each name, in the order in which they came.

use std::borrow::Cow;

use postrider_filter_api::OpenSpan;
use postrider_grpc::otlp::{AnyValue, KeyValue, Plain};
use postrider_model::{CustomTag, TagKind, TagSource};

use crate::format::{Absent, Context};

#[derive(Default)]
pub(super) struct Tags(pub(super) Vec<KeyValue>);

impl Tags {
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.set_value(name, Plain::Text(value.into()));
    }

    pub(super) fn set_bytes(&mut self, name: &str, value: &[u8]) {
        self.set(name, String::from_utf8_lossy(value));
    }

    fn set_value(&mut self, name: &str, value: Plain) {
        let value = Some(AnyValue { value: Some(value) });
        match self.0.iter_mut().find(|known| known.key == name) {
            Some(known) => known.value = value,
            None => self.0.push(KeyValue { key: name.to_owned(), value }),
        }
    }

    /// Those of filters.
    pub(super) fn add_said(&mut self, span: &OpenSpan) {
        for (name, value) in span.tags.take() {
            self.set(&name, value);
        }
    }

    /// Those of the configuration; the first of a name counts.
    pub(super) fn add_custom<'t>(
        &mut self,
        of_route: &'t [CustomTag],
        of_manager: &'t [CustomTag],
        context: &Context<'_>,
    ) {
        let hidden = |tag: &CustomTag| of_route.iter().any(|other| other.name == tag.name);
        for tag in of_route.iter().chain(of_manager.iter().filter(|tag| !hidden(tag))) {
            if let Some(value) = value_of(tag, context) {
                self.set_value(&tag.name, typed(tag.kind, value));
            }
        }
    }
}

/// The value as a text; `None` when there is none.
pub(crate) fn value_of(tag: &CustomTag, context: &Context<'_>) -> Option<String> {
    let value: Cow<'_, str> = match &tag.value {
        TagSource::Literal(value) => value.as_str().into(),
        TagSource::Header { name, default } => match context.request.fields.get_name(name.as_bytes()) {
            Some(value) => String::from_utf8_lossy(value),
            None => default.as_str().into(),
        },
        TagSource::Metadata { of, namespace, path, default } => {
            let mut value = Vec::new();
            match context.metadata(*of, namespace, path, &mut value) {
                Some(()) => String::from_utf8_lossy(&value).into_owned().into(),
                None => default.as_str().into(),
            }
        }
        TagSource::Format(format) => {
            let mut value = Vec::new();
            context.write(format, Absent::Empty, &mut value);
            String::from_utf8_lossy(&value).into_owned().into()
        }
    };
    (!value.is_empty()).then(|| value.into_owned())
}

fn typed(kind: TagKind, value: String) -> Plain {
    let read = match kind {
        TagKind::Text => None,
        TagKind::Integer => value.parse().ok().map(Plain::Integer),
        TagKind::Double => value.parse().ok().map(Plain::Double),
        TagKind::Bool => match value.as_str() {
            "true" => Some(Plain::Bool(true)),
            "false" => Some(Plain::Bool(false)),
            _ => None,
        },
    };
    read.unwrap_or(Plain::Text(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_as_its_kind_stays_a_text() {
        assert_eq!(typed(TagKind::Integer, "200".into()), Plain::Integer(200));
        assert_eq!(typed(TagKind::Double, "1.5".into()), Plain::Double(1.5));
        assert_eq!(typed(TagKind::Double, "x1.5".into()), Plain::Text("x1.5".into()));
        assert_eq!(typed(TagKind::Bool, "true".into()), Plain::Bool(true));
        assert_eq!(typed(TagKind::Bool, "yes".into()), Plain::Text("yes".into()));
        assert_eq!(typed(TagKind::Text, "1".into()), Plain::Text("1".into()));
    }

    #[test]
    fn the_last_value_of_a_name_counts_in_the_first_place() {
        let mut tags = Tags::default();
        tags.set("a", "1");
        tags.set("b", "2");
        tags.set("a", "3");
        assert_eq!(tags.0, [KeyValue::text("a", "3"), KeyValue::text("b", "2")]);
    }
}
