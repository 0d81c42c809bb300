//! Traces as text and bytes. Never done on a worker.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_grpc::core::{Address, HeaderMap, HeaderValue, address::Address as Place, socket_address::PortSpecifier};
use postrider_grpc::tap::body::BodyType;
use postrider_grpc::tap::fractional_percent::DenominatorType;
use postrider_grpc::tap::http_buffered_trace::Message as Half;
use postrider_grpc::tap::http_streamed_trace_segment::MessagePiece;
use postrider_grpc::tap::trace_wrapper::Trace;
use postrider_grpc::tap::{
    Body, Connection, FractionalPercent, HttpBufferedTrace, HttpStreamedTraceSegment, TraceWrapper,
};
use postrider_grpc::{Message, Timestamp};
use postrider_telemetry::json;

/// How a trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    JsonBytes,
    JsonText,
    Binary,
    /// Each with its length in front.
    Delimited,
    Text,
}

impl Format {
    /// By the name in configurations; the first is the default.
    pub(super) fn named(name: &str) -> Format {
        match name {
            "JSON_BODY_AS_STRING" => Format::JsonText,
            "PROTO_BINARY" => Format::Binary,
            "PROTO_BINARY_LENGTH_DELIMITED" => Format::Delimited,
            "PROTO_TEXT" => Format::Text,
            _ => Format::JsonBytes,
        }
    }

    /// Of a file's name.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Format::JsonBytes | Format::JsonText => "json",
            Format::Binary => "pb",
            Format::Delimited => "pb_length_delimited",
            Format::Text => "pb_text",
        }
    }

    pub(super) fn write(self, trace: &TraceWrapper) -> Vec<u8> {
        match self {
            Format::JsonBytes | Format::JsonText => {
                let mut out = Vec::new();
                of_trace(trace, self == Format::JsonText).json(0, &mut out);
                out.push(b'\n');
                out
            }
            Format::Binary => trace.encode_to_vec(),
            Format::Delimited => trace.encode_length_delimited_to_vec(),
            Format::Text => {
                let mut out = String::new();
                of_trace(trace, false).text(0, &mut out);
                out.into_bytes()
            }
        }
    }
}

/// A trace as a tree, for both kinds of text.
enum Node {
    Map(Vec<(&'static str, Node)>),
    List(Vec<Node>),
    Text(String),
    Bytes(Vec<u8>),
    Flag(bool),
    Small(u32),
    Large(u64),
    Word(&'static str),
    Time(Timestamp),
}

fn of_trace(trace: &TraceWrapper, bodies_as_text: bool) -> Node {
    let mut map = Vec::new();
    match &trace.trace {
        Some(Trace::HttpBufferedTrace(whole)) => map.push(("http_buffered_trace", of_whole(whole, bodies_as_text))),
        Some(Trace::HttpStreamedTraceSegment(segment)) => {
            map.push(("http_streamed_trace_segment", of_segment(segment, bodies_as_text)));
        }
        // Of connections, which nobody makes here.
        Some(Trace::SocketBufferedTrace(_) | Trace::SocketStreamedTraceSegment(_)) | None => {}
    }
    map.extend(trace.configured_sample_rate.as_ref().map(|rate| ("configured_sample_rate", of_rate(rate))));
    Node::Map(map)
}

fn of_whole(whole: &HttpBufferedTrace, as_text: bool) -> Node {
    let halves = [("request", &whole.request), ("response", &whole.response)];
    let halves = halves.into_iter().filter_map(|(key, half)| Some((key, of_half(half.as_ref()?, as_text))));
    let connections =
        [("downstream_connection", &whole.downstream_connection), ("upstream_connection", &whole.upstream_connection)];
    let connections = connections.into_iter().filter_map(|(key, it)| Some((key, of_connection(it.as_ref()?))));
    Node::Map(halves.chain(connections).collect())
}

fn of_half(half: &Half, as_text: bool) -> Node {
    let mut map = vec![("headers", of_fields(&half.headers))];
    map.extend(half.body.as_ref().map(|body| ("body", of_body(body, as_text))));
    map.push(("trailers", of_fields(&half.trailers)));
    map.extend(half.headers_received_time.map(|time| ("headers_received_time", Node::Time(time))));
    Node::Map(map)
}

fn of_segment(segment: &HttpStreamedTraceSegment, as_text: bool) -> Node {
    let headers = |map: &HeaderMap| Node::Map(vec![("headers", of_fields(&map.headers))]);
    let mut map = vec![("trace_id", Node::Large(segment.trace_id))];
    map.extend(segment.message_piece.as_ref().map(|piece| match piece {
        MessagePiece::RequestHeaders(map) => ("request_headers", headers(map)),
        MessagePiece::RequestBodyChunk(body) => ("request_body_chunk", of_body(body, as_text)),
        MessagePiece::RequestTrailers(map) => ("request_trailers", headers(map)),
        MessagePiece::ResponseHeaders(map) => ("response_headers", headers(map)),
        MessagePiece::ResponseBodyChunk(body) => ("response_body_chunk", of_body(body, as_text)),
        MessagePiece::ResponseTrailers(map) => ("response_trailers", headers(map)),
    }));
    Node::Map(map)
}

fn of_fields(fields: &[HeaderValue]) -> Node {
    let field = |field: &HeaderValue| {
        Node::Map(vec![
            ("key", Node::Text(field.key.clone())),
            ("value", Node::Text(field.value.clone())),
            ("raw_value", Node::Bytes(field.raw_value.clone())),
        ])
    };
    Node::List(fields.iter().map(field).collect())
}

fn of_body(body: &Body, as_text: bool) -> Node {
    let mut map = Vec::new();
    map.extend(body.body_type.as_ref().map(|kind| match kind {
        BodyType::AsBytes(bytes) if as_text => ("as_string", Node::Text(String::from_utf8_lossy(bytes).into_owned())),
        BodyType::AsBytes(bytes) => ("as_bytes", Node::Bytes(bytes.clone())),
        BodyType::AsString(text) => ("as_string", Node::Text(text.clone())),
    }));
    map.push(("truncated", Node::Flag(body.truncated)));
    Node::Map(map)
}

fn of_connection(connection: &Connection) -> Node {
    let places = [("local_address", &connection.local_address), ("remote_address", &connection.remote_address)];
    Node::Map(places.into_iter().filter_map(|(key, place)| Some((key, of_address(place.as_ref()?)))).collect())
}

fn of_address(address: &Address) -> Node {
    let Some(Place::SocketAddress(socket)) = &address.address else { return Node::Map(Vec::new()) };
    let mut map = vec![("protocol", Node::Word("TCP")), ("address", Node::Text(socket.address.clone()))];
    if let Some(PortSpecifier::PortValue(port)) = &socket.port_specifier {
        map.push(("port_value", Node::Small(*port)));
    }
    map.push(("resolver_name", Node::Text(String::new())));
    map.push(("ipv4_compat", Node::Flag(false)));
    map.push(("network_namespace_filepath", Node::Text(String::new())));
    Node::Map(vec![("socket_address", Node::Map(map))])
}

fn of_rate(rate: &FractionalPercent) -> Node {
    let denominator = match rate.denominator() {
        DenominatorType::Hundred => "HUNDRED",
        DenominatorType::TenThousand => "TEN_THOUSAND",
        DenominatorType::Million => "MILLION",
    };
    Node::Map(vec![("numerator", Node::Small(rate.numerator)), ("denominator", Node::Word(denominator))])
}

impl Node {
    /// One blank per level; numbers of 64 bits are texts.
    fn json(&self, depth: usize, out: &mut Vec<u8>) {
        match self {
            Node::Map(entries) => {
                let all = entries.iter().map(|(key, node)| (Some(*key), node));
                lines(b'{', all, b'}', depth, out);
            }
            Node::List(items) => lines(b'[', items.iter().map(|node| (None, node)), b']', depth, out),
            Node::Text(text) => json::write_string(text.as_bytes(), out),
            Node::Bytes(bytes) => json::write_string(STANDARD.encode(bytes).as_bytes(), out),
            Node::Flag(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
            Node::Small(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Node::Large(number) => json::write_string(number.to_string().as_bytes(), out),
            Node::Word(word) => json::write_string(word.as_bytes(), out),
            Node::Time(time) => json::write_string(time.to_string().as_bytes(), out),
        }
    }

    /// What is as if it were not there is left out.
    fn text(&self, depth: usize, out: &mut String) {
        let Node::Map(entries) = self else { return };
        for (key, node) in entries {
            match node {
                Node::List(items) => items.iter().for_each(|item| item.entry(key, depth, out)),
                node => node.entry(key, depth, out),
            }
        }
    }

    fn entry(&self, key: &str, depth: usize, out: &mut String) {
        let begin = |out: &mut String| {
            out.extend(std::iter::repeat_n("  ", depth));
            out.push_str(key);
        };
        let mut say = |value: &dyn std::fmt::Display| {
            begin(out);
            // Writing into a string does not fail.
            let _ = writeln!(out, ": {value}");
        };
        match self {
            Node::Map(_) | Node::List(_) => {
                begin(out);
                out.push_str(" {\n");
                self.text(depth + 1, out);
                out.extend(std::iter::repeat_n("  ", depth));
                out.push_str("}\n");
            }
            Node::Text(text) if text.is_empty() => {}
            Node::Text(text) => say(&quoted(text.as_bytes())),
            // Which of a choice it is, an empty one tells as well.
            Node::Bytes(bytes) if bytes.is_empty() && !key.starts_with("as_") => {}
            Node::Bytes(bytes) => say(&quoted(bytes)),
            Node::Flag(false) | Node::Small(0) | Node::Large(0) | Node::Word("TCP" | "HUNDRED") => {}
            Node::Flag(true) => say(&"true"),
            Node::Small(number) => say(number),
            Node::Large(number) => say(number),
            Node::Word(word) => say(word),
            Node::Time(time) => {
                let parts = vec![
                    ("seconds", Node::Large(u64::try_from(time.seconds).unwrap_or_default())),
                    ("nanos", Node::Small(u32::try_from(time.nanos).unwrap_or_default())),
                ];
                Node::Map(parts).entry(key, depth, out);
            }
        }
    }
}

fn lines<'n>(
    open: u8,
    nodes: impl Iterator<Item = (Option<&'static str>, &'n Node)>,
    close: u8,
    depth: usize,
    out: &mut Vec<u8>,
) {
    out.push(open);
    let mut any = false;
    for (key, node) in nodes {
        out.extend_from_slice(if any { b",\n" } else { b"\n" });
        any = true;
        out.extend(std::iter::repeat_n(b' ', depth + 1));
        if let Some(key) = key {
            json::write_string(key.as_bytes(), out);
            out.extend_from_slice(b": ");
        }
        node.json(depth + 1, out);
    }
    if any {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth));
    }
    out.push(close);
}

/// As the text form of messages quotes strings.
fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                // Writing into a string does not fail.
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}
