//! Names that are shown because Envoy's dashboards ask for them, and that nothing here can ever change.
//!
//! A zero here is true: what it would count cannot happen. A test looks through the source for whoever writes each
//! statistic; one that nobody writes has to stand here, with the reason.

/// Set, constant, and why it is always zero.
pub const UNCHANGING: &[(&str, &str, &str)] = &[
    ("http", "RQ_REDIRECT", "Envoy 1.40 does not count it either: a redirect is a direct response"),
    ("http_inspector", "READ_ERROR", "a connection that breaks off is counted by its listener, as in Envoy 1.40"),
    ("http1", "RESPONSE_FLOOD", "answers that wait hold up the reading of further requests, so they cannot pile up"),
    ("tcp", "DOWNSTREAM_CX_OVERLOAD_CLOSE", "its load shed point is refused by name"),
    ("cluster", "UPDATE_EMPTY", "a word of EDS: DNS counts an empty answer as a success or a failure"),
    ("cluster", "UPSTREAM_RQ_RX_RESET_NO_ERROR", "Envoy 1.40 counts resets of HTTP/2 without an error as any other"),
    ("cluster", "VERSION", "of what a control plane sent; clusters are static"),
    ("cluster", "WARMING_STATE", "a configuration comes into force when its clusters are warm, not before"),
    ("cluster_manager", "WARMING_CLUSTERS", "a configuration comes into force when its clusters are warm, not before"),
    ("listener_manager", "TOTAL_LISTENERS_WARMING", "a listener is there when its sockets are"),
    ("runtime", "DEPRECATED_FEATURE_SEEN_SINCE_PROCESS_START", "as `DEPRECATED_FEATURE_USE`"),
    ("runtime", "DEPRECATED_FEATURE_USE", "fields that Envoy calls deprecated are taken or refused like others"),
    ("server", "DYNAMIC_UNKNOWN_FIELDS", "there is no configuration but the static one"),
    ("server", "HOT_RESTART_EPOCH", "one process does not take over from another this way"),
    ("server", "WIP_PROTOS", "fields that Envoy calls work in progress are taken or refused like others"),
];
