//! What an access log service is told.
//!
//! Entries gather as bytes, each as it stands in its message, so that nothing is encoded twice when they are sent.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

pub use crate::generated::envoy::data::accesslog::v3::*;
pub use crate::generated::envoy::service::accesslog::v3::stream_access_logs_message::{
    HttpAccessLogEntries, Identifier, LogEntries, TcpAccessLogEntries,
};
pub use crate::generated::envoy::service::accesslog::v3::{StreamAccessLogsMessage, StreamAccessLogsResponse};

pub const STREAM_ACCESS_LOGS: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";

/// What the filter `grpc_stats` counted (`envoy.extensions.filters.http.grpc_stats.v3.FilterObject`).
#[derive(Clone, PartialEq, Message)]
pub struct MessageCounts {
    #[prost(uint64, tag = "1")]
    pub requests: u64,
    #[prost(uint64, tag = "2")]
    pub responses: u64,
}

/// Of `StreamAccessLogsMessage`.
pub const HTTP_LOGS: u32 = 2;
pub const TCP_LOGS: u32 = 3;

/// Of both kinds of entries.
const LOG_ENTRY: u32 = 1;

/// Appends an entry to those that gathered.
pub fn append(entry: &impl Message, entries: &mut Vec<u8>) {
    encode_key(LOG_ENTRY, WireType::LengthDelimited, entries);
    // There is always room in a vector.
    let _ = entry.encode_length_delimited(entries);
}

/// A message with the entries that gathered, which are [`HTTP_LOGS`] or [`TCP_LOGS`]. The first of a stream says whose
/// they are.
pub fn message(identifier: Option<Identifier>, kind: u32, entries: &[u8]) -> Vec<u8> {
    let mut out = StreamAccessLogsMessage { identifier, log_entries: None }.encode_to_vec();
    encode_key(kind, WireType::LengthDelimited, &mut out);
    encode_varint(entries.len() as u64, &mut out);
    out.extend_from_slice(entries);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gathered_is_a_message() {
        let entry = |cluster: &str| AccessLogCommon { upstream_cluster: cluster.into(), ..AccessLogCommon::default() };
        let http = ["a", "b"].map(|cluster| HttpAccessLogEntry {
            common_properties: Some(entry(cluster)),
            ..HttpAccessLogEntry::default()
        });
        let mut entries = Vec::new();
        http.iter().for_each(|entry| append(entry, &mut entries));
        let identifier = Identifier { node: None, log_name: "log".into() };
        let want = StreamAccessLogsMessage {
            identifier: Some(identifier.clone()),
            log_entries: Some(LogEntries::HttpLogs(HttpAccessLogEntries { log_entry: http.to_vec() })),
        };
        assert_eq!(message(Some(identifier), HTTP_LOGS, &entries), want.encode_to_vec());

        let tcp = TcpAccessLogEntry { common_properties: Some(entry("c")), connection_properties: None };
        entries.clear();
        append(&tcp, &mut entries);
        let want = LogEntries::TcpLogs(TcpAccessLogEntries { log_entry: vec![tcp] });
        let want = StreamAccessLogsMessage { identifier: None, log_entries: Some(want) };
        assert_eq!(message(None, TCP_LOGS, &entries), want.encode_to_vec());
    }
}
