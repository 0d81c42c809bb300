//! One message over another, as protobuf's MergeFrom: `--config-yaml` over `-c`.

use crate::message::{Field, Message, Value};

/// Scalars and `Any` of `over` replace, messages merge, lists are appended, map entries replace by key. Setting a
/// member of a oneof unsets the others.
pub fn merge(mut base: Message, over: Message) -> Message {
    for field in over.fields {
        if let Some(oneof) = field.descriptor.containing_oneof() {
            base.fields.retain(|own| {
                own.descriptor == field.descriptor || own.descriptor.containing_oneof().as_ref() != Some(&oneof)
            });
        }
        match base.fields.iter_mut().find(|own| own.descriptor == field.descriptor) {
            Some(own) => merge_field(own, field),
            None => base.fields.push(field),
        }
    }
    base
}

fn merge_field(own: &mut Field, over: Field) {
    match (&mut own.value, over.value) {
        (Value::Message(base), Value::Message(over)) => {
            let placeholder = Message::new(base.descriptor.clone(), None);
            **base = merge(std::mem::replace(&mut **base, placeholder), *over);
        }
        (Value::List(items), Value::List(more)) => items.extend(more),
        (Value::Map(entries), Value::Map(more)) => {
            for entry in more {
                entries.retain(|own| own.key != entry.key);
                entries.push(entry);
            }
        }
        (value, over_value) => {
            *value = over_value;
            own.key_span = over.key_span;
            own.value_span = over.value_span;
        }
    }
}
