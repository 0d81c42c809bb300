//! What a collector of OpenTelemetry is told of one stream, as a log record.

use std::rc::Rc;

use postrider_grpc::otlp::spans::LogRecord;
use postrider_grpc::otlp::{AnyValue, KeyValue, ListOfValues, MapOfValues, Plain, Resource};
use postrider_model::{Node, OtlpFormat, OtlpLog, Value};

use crate::format::{Absent, Context, typed_state};
use crate::otlp::{Exporter, Rules, Signal};
use crate::sinks::nanos;
use crate::trace::value_of;
use crate::worker::Worker;

/// So many bytes of records gather while calls are under way: a collector that is slow, or far away, is not to cost any. One
/// message, which collectors take up to 4 MiB.
const MAX_GATHERED_BYTES: usize = 1 << 20;

/// A logger, and what its worker has for the collector.
pub(super) struct RecordLog {
    model: OtlpLog,
    exporter: Rc<Exporter>,
}

impl RecordLog {
    pub(super) fn new(model: &OtlpLog, worker: &Rc<Worker>) -> RecordLog {
        let rules = Rules {
            to: model.to.clone(),
            signal: Signal::Logs(model.stat_prefix.clone()),
            resource: resource(model, &worker.node.borrow()),
            scope: None,
            enough: usize::MAX,
            enough_bytes: model.buffer_bytes,
            most: usize::MAX,
            most_bytes: MAX_GATHERED_BYTES.max(model.buffer_bytes),
            interval: model.flush_interval,
        };
        RecordLog { model: model.clone(), exporter: worker.exporters.of(rules, worker) }
    }

    #[inline(never)]
    pub(super) fn write(&self, context: &Context<'_>) {
        let mut attributes = pairs(&self.model.attributes, context);
        let objects = self.model.objects.iter();
        attributes.extend(objects.filter_map(|name| Some(KeyValue::text(name, &object(name, context)?))));
        let tags = self.model.tags.iter().filter_map(|tag| Some(KeyValue::text(&tag.name, value_of(tag, context)?)));
        attributes.extend(tags);
        let ids = context.info.trace().and_then(|trace| trace.ids);
        self.exporter.take(&LogRecord {
            time_unix_nano: nanos(context.info.start),
            body: self.model.body.as_ref().map(|body| evaluate(body, context)),
            attributes,
            trace_id: ids.map(|ids| ids.trace.to_vec()).unwrap_or_default(),
            span_id: ids.map(|ids| ids.span.to_vec()).unwrap_or_default(),
        });
    }
}

/// An object of the filter state in the JSON of its message; those that have none there are not told.
fn object(name: &str, context: &Context<'_>) -> Option<String> {
    let mut text = Vec::new();
    typed_state(name, context.info, &mut text)?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Who tells, in Envoy's order and words.
fn resource(model: &OtlpLog, node: &Node) -> Resource {
    let of_node = model.log_name.as_ref().map(|log_name| {
        [("log_name", log_name), ("zone_name", &node.zone), ("cluster_name", &node.cluster), ("node_name", &node.id)]
    });
    let of_node = of_node.into_iter().flatten().map(|(name, value)| KeyValue::text(name, value));
    Resource { attributes: of_node.chain(model.resource.iter().map(|(name, value)| pair(name, any(value)))).collect() }
}

fn evaluate(format: &OtlpFormat, context: &Context<'_>) -> AnyValue {
    let value = match format {
        OtlpFormat::Text(format) => {
            let mut text = Vec::new();
            context.write(format, Absent::Dash, &mut text);
            Plain::Text(String::from_utf8_lossy(&text).into_owned())
        }
        OtlpFormat::List(items) => {
            Plain::List(ListOfValues { values: items.iter().map(|item| evaluate(item, context)).collect() })
        }
        OtlpFormat::Map(items) => Plain::Map(MapOfValues { values: pairs(items, context) }),
    };
    AnyValue { value: Some(value) }
}

fn pairs(formats: &[(String, OtlpFormat)], context: &Context<'_>) -> Vec<KeyValue> {
    formats.iter().map(|(name, format)| pair(name, evaluate(format, context))).collect()
}

fn pair(name: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(value) }
}

fn any(value: &Value) -> AnyValue {
    let value = match value {
        Value::Null => None,
        Value::Bool(value) => Some(Plain::Bool(*value)),
        Value::Number(value) => Some(Plain::Double(*value)),
        Value::Integer(value) => Some(Plain::Integer(*value)),
        Value::String(value) => Some(Plain::Text(value.clone())),
        Value::List(items) => Some(Plain::List(ListOfValues { values: items.iter().map(any).collect() })),
        Value::Map(items) => {
            Some(Plain::Map(MapOfValues { values: items.iter().map(|(name, value)| pair(name, any(value))).collect() }))
        }
    };
    AnyValue { value }
}
