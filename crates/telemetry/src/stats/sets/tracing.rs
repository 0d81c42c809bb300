//! Tracing, and what else OpenTelemetry is told.

crate::stat_set! {
    /// Why requests are traced, or not; prefix: the `stat_prefix` of their connection manager, then `tracing`.
    pub mod http_tracing = "http";
    counters {
        CLIENT_ENABLED = "client_enabled",
        HEALTH_CHECK = "health_check",
        NOT_TRACEABLE = "not_traceable",
        RANDOM_SAMPLING = "random_sampling",
        SERVICE_FORCED = "service_forced",
    }
}

crate::stat_set! {
    /// Spans for collectors; no prefix.
    pub mod tracing_opentelemetry = "tracing.opentelemetry";
    counters {
        SPANS_DROPPED = "spans_dropped",
        SPANS_SENT = "spans_sent",
        TIMER_FLUSHED = "timer_flushed",
    }
}

crate::stat_set! {
    /// Log records for collectors; prefix: that of the logger, if it has one.
    pub mod open_telemetry_access_log = "access_logs.open_telemetry_access_log";
    counters {
        LOGS_DROPPED = "logs_dropped",
        LOGS_WRITTEN = "logs_written",
    }
}
