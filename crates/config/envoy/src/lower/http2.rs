//! HTTP/2 with clients and upstreams (`Http2ProtocolOptions`).

use postrider_config_core::Severity;
use postrider_model::{Codec, Http2Keepalive, Http2Options};

use super::context::Lowering;
use crate::reader::Reader;

/// `KeepaliveSettings.interval_jitter` where it is absent.
const KEEPALIVE_JITTER_PERCENT: f64 = 15.0;

/// Whether a malformed message ends its stream alone, and the older field for it.
const SPARES_CONNECTIONS: &str = "override_stream_error_on_invalid_http_message";
const SPARED_CONNECTIONS: &str = "stream_error_on_invalid_http_messaging";

/// For a connection manager whose clients speak `codec`.
pub(super) fn of_clients(cx: &mut Lowering<'_>, at: &Reader<'_>, codec: Codec) -> Http2Options {
    let options = common(cx, at);
    let limits = ["max_concurrent_streams", "initial_stream_window_size", "initial_connection_window_size"];
    let written = at.message("http2_protocol_options");
    let all_written = written.as_ref().is_some_and(|written| limits.iter().all(|limit| written.has(limit)));
    if codec != Codec::Http1 && !all_written {
        cx.differs(
            at,
            "http2-limits",
            "a client has 100 streams at once, and may send 64 KiB ahead on each and 1 MiB in all",
            "http2_protocol_options: { max_concurrent_streams: 1024, initial_stream_window_size: 16777216, \
             initial_connection_window_size: 25165824 }",
        );
    }
    if let Some(written) = written {
        for field in [SPARES_CONNECTIONS, SPARED_CONNECTIONS] {
            if !written.bool_wrapper(field).unwrap_or_else(|| written.bool(field)) {
                written.approximate(field, "a malformed request ends only its stream");
            }
        }
    }
    options
}

/// Of a cluster; `at` holds `http2_protocol_options`.
pub(super) fn of_upstreams(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Http2Options {
    let options = common(cx, at);
    let Some(written) = at.message("http2_protocol_options") else { return options };
    written.whole(SPARED_CONNECTIONS);
    written.ignore(SPARED_CONNECTIONS, "`override_stream_error_on_invalid_http_message` is read in its place");
    Http2Options { spares_connections: written.bool_wrapper(SPARES_CONNECTIONS).unwrap_or(false), ..options }
}

/// `at` holds `http2_protocol_options`.
fn common(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Http2Options {
    let default = Http2Options::default();
    let written = at.message("http2_protocol_options");
    let number = |field: &str| written.as_ref().and_then(|options| options.u32_wrapper(field));
    let options = Http2Options {
        max_concurrent_streams: number("max_concurrent_streams").unwrap_or(default.max_concurrent_streams),
        initial_stream_window: number("initial_stream_window_size").unwrap_or(default.initial_stream_window),
        initial_connection_window: number("initial_connection_window_size")
            .unwrap_or(default.initial_connection_window),
        header_table_size: number("hpack_table_size").unwrap_or(default.header_table_size),
        allow_connect: written.as_ref().is_some_and(|options| options.bool("allow_connect")),
        spares_connections: false,
        keepalive: written.as_ref().and_then(|options| keepalive(&options.message("connection_keepalive")?)),
    };
    let Some(written) = &written else { return options };
    for (field, what) in [
        ("allow_metadata", "METADATA frames"),
        ("use_oghttp2_codec", "the choice of a codec"),
        ("disallow_obs_text", "refusing bytes above 127 in fields"),
    ] {
        // Off is what happens.
        let on = written.bool_wrapper(field).unwrap_or_else(|| written.bool(field));
        if on {
            cx.refuse_value(written, field, what);
        }
    }
    for (field, what) in
        [("custom_settings_parameters", "SETTINGS of one's own"), ("max_metadata_size", "METADATA frames")]
    {
        if written.has(field) {
            cx.refuse(written, field, what);
        }
    }
    for field in [
        "max_outbound_frames",
        "max_outbound_control_frames",
        "max_consecutive_inbound_frames_with_empty_payload",
        "max_inbound_priority_frames_per_stream",
        "max_inbound_window_update_frames_per_data_frame_sent",
        "max_header_field_size_kb",
        "stream_reset_burst",
        "stream_reset_rate",
        "enable_huffman_encoding",
    ] {
        written.approximate(field, "the codec has bounds of its own, which cannot be set");
    }
    options
}

/// Refuses a field that may be longer than the head it is part of. `at` holds `http2_protocol_options`, and `limit` is the
/// name of what says `most` kibibytes for a head.
pub(super) fn field_within_head(cx: &mut Lowering<'_>, at: &Reader<'_>, limit: &str, most: u32) {
    const FIELD: &str = "max_header_field_size_kb";
    let Some(options) = at.message("http2_protocol_options") else { return };
    if let Some(kib) = options.u32_wrapper(FIELD).filter(|kib| *kib > most) {
        let text = format!("one field may have {kib} KiB, but a head with all of its fields only {most}");
        let diagnostic = options.diagnostic_at(FIELD, Severity::Error, "conflict", text);
        cx.push(diagnostic.expected(format!("at most {most}; or write `{limit}: {kib}`")));
    }
}

fn keepalive(at: &Reader<'_>) -> Option<Http2Keepalive> {
    let interval = at.duration("interval").filter(|interval| !interval.is_zero());
    let idle_interval = at.duration("connection_idle_interval").filter(|interval| !interval.is_zero());
    let jitter = at.message("interval_jitter").map(|percent| percent.f64("value"));
    let timeout = at.duration("timeout")?;
    (interval.is_some() || idle_interval.is_some()).then(|| Http2Keepalive {
        interval,
        timeout,
        jitter_percent: jitter.unwrap_or(KEEPALIVE_JITTER_PERCENT),
        idle_interval,
    })
}
