//! Objects of the filter state as the messages that an access log service is told.

use std::collections::BTreeMap;

use postrider_filter_api::{ObjectKind, StreamInfo};
use postrider_grpc::log::MessageCounts;
use postrider_grpc::{Any, Message, to_struct};
use postrider_model::Value;

/// Where `grpc_stats` leaves what it counted.
const GRPC_STATS: &str = "envoy.filters.http.grpc_stats";
const GRPC_STATS_OBJECT: &str = "envoy.extensions.filters.http.grpc_stats.v3.FilterObject";

/// Those of these names that are there and have a message in Envoy, too.
pub(super) fn told(names: &[String], info: &StreamInfo) -> BTreeMap<String, Any> {
    let find = |name: &String| info.filter_state.iter().find(|(known, _)| known == name);
    let told = |name: &String| Some((name.clone(), message(name, &find(name)?.1)?));
    names.iter().filter_map(told).collect()
}

fn message(name: &str, value: &Value) -> Option<Any> {
    use ObjectKind::{Bool, HashableText, Milliseconds, Number, Switch, Text};
    let wrapped = |kind: &str, bytes: Vec<u8>| Some(any(&format!("google.protobuf.{kind}"), bytes));
    match (ObjectKind::of(name), value) {
        (None | Some(Text | HashableText), Value::String(text)) => wrapped("StringValue", text.encode_to_vec()),
        (None | Some(Bool | Switch), Value::Bool(value)) => wrapped("BoolValue", value.encode_to_vec()),
        (Some(Number), value) => wrapped("UInt32Value", u32::try_from(whole(value)?).ok()?.encode_to_vec()),
        (Some(Milliseconds), value) => wrapped("UInt64Value", whole(value)?.encode_to_vec()),
        (None, Value::Map(fields)) if name == GRPC_STATS => {
            let count =
                |field: &str| fields.iter().find(|(known, _)| known == field).and_then(|(_, count)| whole(count));
            let counts = MessageCounts {
                requests: count("request_message_count").unwrap_or_default(),
                responses: count("response_message_count").unwrap_or_default(),
            };
            Some(any(GRPC_STATS_OBJECT, counts.encode_to_vec()))
        }
        (None, Value::Map(_)) => wrapped("Struct", to_struct(value).encode_to_vec()),
        // There is no message for the others.
        _ => None,
    }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        // A cast of a float saturates.
        Value::Number(number) => (number.fract() == 0.0 && *number >= 0.0).then_some(*number as u64),
        _ => None,
    }
}

fn any(kind: &str, value: Vec<u8>) -> Any {
    Any { type_url: format!("type.googleapis.com/{kind}"), value }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use postrider_filter_api::{Moment, TCP_IDLE_TIMEOUT};

    use super::*;

    #[test]
    fn objects_are_messages_of_their_own_types() {
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        let counted = [("requestMessageCount", 0), ("request_message_count", 1), ("response_message_count", 2)];
        let counted = counted.map(|(name, count)| (name.to_owned(), Value::Integer(count)));
        for (name, value) in [
            ("text", Value::String("a".into())),
            ("yes", Value::Bool(true)),
            ("map", Value::Map(Vec::new())),
            (TCP_IDLE_TIMEOUT, Value::Number(7.0)),
            (GRPC_STATS, Value::Map(counted.to_vec())),
            ("envoy.network.upstream_server_name", Value::String("a.test".into())),
        ] {
            info.filter_state.push((name.to_owned(), value));
        }
        let names: Vec<String> = info.filter_state.iter().map(|(name, _)| name.clone()).collect();
        let told = told(&names, &info);
        let shown: Vec<_> =
            told.iter().map(|(name, it)| (name.as_str(), it.type_url.rsplit('.').next(), &*it.value)).collect();
        let want: [(&str, Option<&str>, &[u8]); 5] = [
            (GRPC_STATS, Some("FilterObject"), &[8, 1, 16, 2]),
            (TCP_IDLE_TIMEOUT, Some("UInt64Value"), &[8, 7]),
            ("map", Some("Struct"), &[]),
            ("text", Some("StringValue"), &[10, 1, b'a']),
            ("yes", Some("BoolValue"), &[8, 1]),
        ];
        assert_eq!(shown, want);
    }
}
