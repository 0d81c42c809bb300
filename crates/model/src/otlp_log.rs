//! Access logs that go to a collector of OpenTelemetry, record by record.

use std::time::Duration;

use crate::{CustomTag, Format, OtlpTarget, TagSource, Value};

/// What one logger tells a collector of OpenTelemetry.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpLog {
    pub to: OtlpTarget,
    /// Stands before what is counted; may be empty.
    pub stat_prefix: String,
    /// With the proxy's node, of what is told of who tells; `None` tells neither.
    pub log_name: Option<String>,
    pub resource: Vec<(String, Value)>,
    pub body: Option<OtlpFormat>,
    pub attributes: Vec<(String, OtlpFormat)>,
    /// Objects of the filter state that are told behind them, each as JSON.
    pub objects: Vec<String>,
    /// Told behind those, as texts.
    pub tags: Vec<CustomTag>,
    /// How long a record waits for others at most.
    pub flush_interval: Duration,
    /// So many bytes of records are sent at once. While they cannot be, no further record is taken.
    pub buffer_bytes: usize,
}

/// A value of a log record.
#[derive(Debug, Clone, PartialEq)]
pub enum OtlpFormat {
    Text(Format),
    List(Vec<OtlpFormat>),
    Map(Vec<(String, OtlpFormat)>),
}

impl OtlpLog {
    /// Every format in it.
    pub(crate) fn formats(&self) -> Vec<&Format> {
        fn gather<'f>(value: &'f OtlpFormat, all: &mut Vec<&'f Format>) {
            match value {
                OtlpFormat::Text(format) => all.push(format),
                OtlpFormat::List(items) => items.iter().for_each(|item| gather(item, all)),
                OtlpFormat::Map(items) => items.iter().for_each(|(_, item)| gather(item, all)),
            }
        }
        let mut all = Vec::new();
        self.body
            .iter()
            .chain(self.attributes.iter().map(|(_, value)| value))
            .for_each(|value| gather(value, &mut all));
        let of_tags = self.tags.iter().filter_map(|tag| match &tag.value {
            TagSource::Format(format) => Some(format),
            TagSource::Literal(_) | TagSource::Header { .. } | TagSource::Metadata { .. } => None,
        });
        all.extend(of_tags);
        all
    }
}
