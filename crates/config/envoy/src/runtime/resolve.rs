//! Puts values of the runtime into the messages that name a key.

use prost_reflect::{Kind, MessageDescriptor};

use super::known;
use super::{Runtime, Share};
use crate::message::{Field, Item, Message, Value};

const RATE_LIMIT: &str = "envoy.config.route.v3.RateLimit";

/// All of `message`, from the inside out.
pub(super) fn resolve(message: &mut Message, runtime: &Runtime) {
    for field in &mut message.fields {
        value(&mut field.value, runtime);
    }
    match message.type_name() {
        "envoy.config.core.v3.RuntimeFractionalPercent" => {
            if let Some(share) = named(message, runtime).and_then(super::Entry::share) {
                set_share(message, "default_value", share);
            }
        }
        "envoy.config.core.v3.RuntimeFeatureFlag" => {
            if let Some(truth) = named(message, runtime).and_then(super::Entry::truth) {
                set_wrapped(message, "default_value", Value::Bool(truth));
            }
        }
        "envoy.config.core.v3.RuntimeUInt32" => {
            let number = named(message, runtime).and_then(super::Entry::integer);
            // Envoy keeps to the default as well where the number does not fit.
            if let Some(number) = number.filter(|number| u32::try_from(*number).is_ok()) {
                set(message, "default_value", Value::U64(number));
            }
        }
        "envoy.config.core.v3.RuntimeUInt64" => {
            if let Some(number) = named(message, runtime).and_then(super::Entry::integer) {
                set(message, "default_value", Value::U64(number));
            }
        }
        "envoy.config.core.v3.RuntimeDouble" => {
            if let Some(number) = named(message, runtime).and_then(super::Entry::number) {
                set(message, "default_value", Value::F64(number));
            }
        }
        "envoy.config.core.v3.RuntimePercent" => {
            let number = named(message, runtime).and_then(super::Entry::number);
            if let Some(number) = number.filter(|number| (0.0..=100.0).contains(number)) {
                set_percent(message, "default_value", number);
            }
        }
        "envoy.config.accesslog.v3.RuntimeFilter" => {
            // Not a share of its own: so many of the parts that are written.
            if let Some(number) = named(message, runtime).and_then(super::Entry::integer)
                && let Some(share) = child(message, "percent_sampled")
            {
                set(share, "numerator", Value::U64(number.min(1_000_000)));
            }
        }
        "envoy.config.route.v3.WeightedCluster" => weights(message, runtime),
        _ => known::resolve(message, runtime),
    }
}

fn value(at: &mut Value, runtime: &Runtime) {
    match at {
        Value::Message(message) => resolve(message, runtime),
        Value::Any(any) => any.message.iter_mut().for_each(|message| resolve(message, runtime)),
        Value::List(items) => {
            items.retain(|item| !is_switched_off(item, runtime));
            items.iter_mut().for_each(|item| value(&mut item.value, runtime));
        }
        Value::Map(entries) => entries.iter_mut().for_each(|entry| value(&mut entry.value, runtime)),
        _ => {}
    }
}

fn named<'r>(message: &Message, runtime: &'r Runtime) -> Option<&'r super::Entry> {
    runtime.find(message.str("runtime_key"))
}

/// `<prefix>.<cluster>` is the weight of a cluster.
fn weights(message: &mut Message, runtime: &Runtime) {
    let prefix = message.str("runtime_key_prefix").to_owned();
    let Some(Value::List(clusters)) = message.field_mut("clusters").map(|field| &mut field.value) else { return };
    if prefix.is_empty() {
        return;
    }
    for item in clusters {
        let Value::Message(cluster) = &mut item.value else { continue };
        let key = format!("{prefix}.{}", cluster.str("name"));
        if let Some(weight) = runtime.integer(&key) {
            set_wrapped(cluster, "weight", Value::U64(weight.min(u64::from(u32::MAX))));
        }
    }
}

/// `ratelimit.<disable_key>.http_filter_enabled` at zero takes a rule away. What lies between none and all of the requests
/// is not drawn per request.
fn is_switched_off(item: &Item, runtime: &Runtime) -> bool {
    let Value::Message(rule) = &item.value else { return false };
    let key = rule.str_if(RATE_LIMIT, "disable_key");
    !key.is_empty() && runtime.integer(&format!("ratelimit.{key}.http_filter_enabled")) == Some(0)
}

impl Message {
    /// The text of a field of a message of one type; `""` for others.
    fn str_if(&self, type_name: &str, name: &str) -> &str {
        if self.type_name() == type_name { self.str(name) } else { "" }
    }
}

/// Sets a field; where it stands is where the message does.
pub(super) fn set(message: &mut Message, name: &str, value: Value) {
    if let Some(field) = message.field_mut(name) {
        field.value = value;
        return;
    }
    let Some(descriptor) = message.descriptor.get_field_by_name(name) else {
        debug_assert!(false, "{} has no field {name}", message.type_name());
        return;
    };
    let span = message.span;
    message.fields.push(Field { descriptor, value, key_span: span, value_span: span });
}

/// The message in a field, which is made where there is none.
pub(crate) fn child<'m>(message: &'m mut Message, name: &str) -> Option<&'m mut Message> {
    if message.message(name).is_none() {
        let made = Message::new(kind_of(message, name)?, message.span);
        set(message, name, Value::Message(Box::new(made)));
    }
    match &mut message.field_mut(name)?.value {
        Value::Message(message) => Some(message),
        _ => None,
    }
}

/// The list in a field, which is made where there is none.
pub(crate) fn list<'m>(message: &'m mut Message, name: &str) -> Option<&'m mut Vec<Item>> {
    if message.field(name).is_none() {
        set(message, name, Value::List(Vec::new()));
    }
    match &mut message.field_mut(name)?.value {
        Value::List(items) => Some(items),
        _ => None,
    }
}

/// The type of a field's message.
pub(super) fn kind_of(message: &Message, name: &str) -> Option<MessageDescriptor> {
    match message.descriptor.get_field_by_name(name)?.kind() {
        Kind::Message(kind) => Some(kind),
        _ => None,
    }
}

pub(super) fn set_wrapped(message: &mut Message, name: &str, value: Value) {
    if let Some(wrapper) = child(message, name) {
        set(wrapper, "value", value);
    }
}

pub(super) fn set_percent(message: &mut Message, name: &str, percent: f64) {
    if let Some(inner) = child(message, name) {
        set(inner, "value", Value::F64(percent));
    }
}

pub(super) fn set_share(message: &mut Message, name: &str, share: Share) {
    if let Some(inner) = child(message, name) {
        set(inner, "numerator", Value::U64(u64::from(share.numerator)));
        set(inner, "denominator", Value::Enum(share.denominator));
    }
}

/// In milliseconds.
pub(super) fn set_duration(message: &mut Message, name: &str, millis: u64) {
    if let Some(inner) = child(message, name) {
        set(inner, "seconds", Value::I64(i64::try_from(millis / 1_000).unwrap_or(i64::MAX)));
        set(inner, "nanos", Value::I64((millis % 1_000) as i64 * 1_000_000));
    }
}
