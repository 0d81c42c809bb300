//! Names that are shown because Envoy's dashboards ask for them, and that nothing here can ever change.
//!
//! Each has its reason: what it would count cannot happen, or the feature is not there. Lists belong to sets (`unchanging =
//! …`), whose other names are stored; these cost no memory and no time but when they are read.

use crate::stats::set::{Kind, Stat, Unchanging};

const ANSWERS: &str = "Envoy's codec counts them of requests alone, whichever side it is on";
const CALL: &str = "a call goes to its cluster, without routes";
const DOG: &str = "there is no watchdog: nobody looks whether a thread still answers";
const EARLY: &str = "no request is sent before a TLS handshake is over";
const ECDS: &str = "filters are in the file, not with a control plane";
const EDS: &str = "a word of EDS, which is not there";
const ENVOY: &str = "what Envoy's own code says of itself";
const H3: &str = "HTTP/3 is not there";
const MERGE: &str = "changes of hosts are taken over at once, never gathered";
const METADATA: &str = "METADATA frames are not there";
const SDS: &str = "certificates come from files, and are there when a configuration comes into force";
const SERVERS: &str = "a server shows a certificate, or there is no TLS with it";
const STAPLES: &str = "a server shows staples; with upstreams the proxy is a client, in Envoy as well";
const WARM: &str = "a configuration comes into force when its clusters are warm, not before";

const fn counter(name: &'static str, reason: &'static str) -> Unchanging {
    Unchanging { stat: Stat { name, kind: Kind::Counter }, reason }
}

const fn gauge(name: &'static str, reason: &'static str) -> Unchanging {
    Unchanging { stat: Stat { name, kind: Kind::Gauge }, reason }
}

pub(super) const HTTP: &[Unchanging] = &[
    gauge("downstream_cx_http3_active", H3),
    counter("downstream_cx_http3_total", H3),
    counter("downstream_rq_http3_total", H3),
    counter("rq_redirect", "Envoy 1.40 does not count it either: a redirect is a direct response"),
];

pub(super) const HTTP_CALLS: &[Unchanging] = &[
    counter("no_cluster", CALL),
    counter("no_route", CALL),
    counter("passthrough_internal_redirect_bad_location", CALL),
    counter("passthrough_internal_redirect_no_route", CALL),
    counter("passthrough_internal_redirect_predicate", CALL),
    counter("passthrough_internal_redirect_too_many_redirects", CALL),
    counter("passthrough_internal_redirect_unsafe_scheme", CALL),
    counter("rq_direct_response", CALL),
    counter("rq_overload_local_reply", CALL),
    counter("rq_redirect", CALL),
    counter("rq_reset_after_downstream_response_started", CALL),
];

pub(super) const HTTP_INSPECTOR: &[Unchanging] =
    &[counter("read_error", "a connection that breaks off is counted by its listener, as in Envoy 1.40")];

pub(super) const HTTP1: &[Unchanging] = &[
    counter("metadata_not_supported_error", METADATA),
    counter("response_flood", "answers that wait hold up the reading of further requests, so they cannot pile up"),
];

pub(super) const CLUSTER_HTTP1: &[Unchanging] = &[
    counter("http1.dropped_headers_with_underscores", ANSWERS),
    counter("http1.metadata_not_supported_error", METADATA),
    counter("http1.requests_rejected_with_underscores_in_headers", ANSWERS),
    counter("http1.response_flood", ANSWERS),
];

pub(super) const TCP: &[Unchanging] = &[
    counter("downstream_cx_overload_close", "its load shed point is refused by name"),
    counter("route_delayed_total", "clusters are not discovered on demand"),
];

pub(super) const CLUSTER: &[Unchanging] = &[
    counter("assignment_stale", EDS),
    counter("assignment_timeout_received", EDS),
    counter("assignment_use_cached", EDS),
    counter("update_empty", "a word of EDS: DNS counts an empty answer as a success or a failure"),
    counter("upstream_cx_connect_with_0_rtt", EARLY),
    counter("upstream_cx_http3_total", H3),
    counter("upstream_http3_broken", H3),
    gauge("upstream_queue_overloaded", "requests that wait are bounded by circuit breakers; there is no other queue"),
    counter("upstream_rq_0rtt", EARLY),
    counter("upstream_rq_rx_reset_no_error", "Envoy 1.40 counts resets of HTTP/2 without an error as any other"),
    gauge("version", "of what a control plane sent; clusters are static"),
    gauge("warming_state", WARM),
];

pub(super) const CLUSTER_MANAGER: &[Unchanging] = &[
    counter("cluster_updated_via_merge", MERGE),
    counter("update_merge_cancelled", MERGE),
    counter("update_out_of_merge_window", MERGE),
    gauge("warming_clusters", WARM),
];

pub(super) const LISTENER_DISCOVERY: &[Unchanging] =
    &[counter("extension_config_missing", ECDS), counter("network_extension_config_missing", ECDS)];

pub(super) const LISTENER_MANAGER: &[Unchanging] =
    &[gauge("total_listeners_warming", "a listener is there when its sockets are")];

pub(super) const SSL: &[Unchanging] = &[
    counter("server_ssl_socket_factory.downstream_context_secrets_not_ready", SDS),
    counter("server_ssl_socket_factory.ssl_context_update_by_sds", SDS),
    counter("server_ssl_socket_factory.upstream_context_secrets_not_ready", SDS),
];

pub(super) const SSL_OF_CLUSTER: &[Unchanging] = &[
    counter("client_ssl_socket_factory.downstream_context_secrets_not_ready", SDS),
    counter("client_ssl_socket_factory.ssl_context_update_by_sds", SDS),
    counter("client_ssl_socket_factory.upstream_context_secrets_not_ready", SDS),
    counter("ssl.fail_verify_no_cert", SERVERS),
    counter("ssl.no_certificate", SERVERS),
    counter("ssl.ocsp_staple_failed", STAPLES),
    counter("ssl.ocsp_staple_omitted", STAPLES),
    counter("ssl.ocsp_staple_requests", STAPLES),
    counter("ssl.ocsp_staple_responses", STAPLES),
];

pub(super) const RUNTIME: &[Unchanging] = &[
    gauge("deprecated_feature_seen_since_process_start", "as `deprecated_feature_use`"),
    counter("deprecated_feature_use", "fields that Envoy calls deprecated are taken or refused like others"),
];

pub(super) const SERVER: &[Unchanging] = &[
    gauge("compilation_settings.fips_mode", "no build of it has been validated"),
    counter("debug_assertion_failures", "an assertion that fails ends the thread, in builds that have them"),
    counter("dropped_stat_flushes", "a flush begins when the one before has been made"),
    counter("dynamic_unknown_fields", "there is no configuration but the static one"),
    counter("envoy_bug_failures", ENVOY),
    counter("envoy_notifications", ENVOY),
    gauge("hot_restart_epoch", "one process does not take over from another this way"),
    gauge("parent_connections", "one process does not take over from another this way"),
    gauge("stats_recent_lookups", "statistics are found by number, never by name, while requests are served"),
    counter("wip_protos", "fields that Envoy calls work in progress are taken or refused like others"),
];

pub(super) const WATCHDOG: &[Unchanging] = &[counter("watchdog_mega_miss", DOG), counter("watchdog_miss", DOG)];
