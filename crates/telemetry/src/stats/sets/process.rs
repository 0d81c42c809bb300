//! TCP proxies, the process and its logs: Envoy's `tcp.`, `server.` and `filesystem.` names, and ours.

crate::stat_set! {
    /// A TCP proxy; prefix: its `stat_prefix`.
    pub mod tcp = "tcp";
    counters {
        DOWNSTREAM_CX_DRAIN_CLOSE = "downstream_cx_drain_close",
        DOWNSTREAM_CX_NO_ROUTE = "downstream_cx_no_route",
        DOWNSTREAM_CX_RX_BYTES_TOTAL = "downstream_cx_rx_bytes_total",
        DOWNSTREAM_CX_TOTAL = "downstream_cx_total",
        DOWNSTREAM_CX_TX_BYTES_TOTAL = "downstream_cx_tx_bytes_total",
        DOWNSTREAM_FLOW_CONTROL_PAUSED_READING_TOTAL = "downstream_flow_control_paused_reading_total",
        DOWNSTREAM_FLOW_CONTROL_RESUMED_READING_TOTAL = "downstream_flow_control_resumed_reading_total",
        EARLY_DATA_RECEIVED_COUNT_TOTAL = "early_data_received_count_total",
        IDLE_TIMEOUT = "idle_timeout",
        MAX_DOWNSTREAM_CONNECTION_DURATION = "max_downstream_connection_duration",
        UPSTREAM_FLUSH_TOTAL = "upstream_flush_total",
    }
    gauges {
        DOWNSTREAM_CX_RX_BYTES_BUFFERED = "downstream_cx_rx_bytes_buffered",
        DOWNSTREAM_CX_TX_BYTES_BUFFERED = "downstream_cx_tx_bytes_buffered",
        UPSTREAM_FLUSH_ACTIVE = "upstream_flush_active",
    }
    unchanging = super::super::unchanging::TCP;
}

crate::stat_set! {
    /// The process; no prefix, computed when read or counted by the control plane.
    pub mod server = "server";
    counters {
        STATIC_UNKNOWN_FIELDS = "static_unknown_fields",
    }
    gauges {
        CONCURRENCY = "concurrency",
        DAYS_UNTIL_FIRST_CERT_EXPIRING = "days_until_first_cert_expiring",
        HOT_RESTART_GENERATION = "hot_restart_generation",
        LIVE = "live",
        MEMORY_ALLOCATED = "memory_allocated",
        MEMORY_HEAP_SIZE = "memory_heap_size",
        MEMORY_PHYSICAL_SIZE = "memory_physical_size",
        SECONDS_UNTIL_FIRST_OCSP_RESPONSE_EXPIRING = "seconds_until_first_ocsp_response_expiring",
        STATE = "state",
        TOTAL_CONNECTIONS = "total_connections",
        UPTIME = "uptime",
        VERSION = "version",
    }
    histograms {
        INITIALIZATION_TIME_MS = "initialization_time_ms" Milliseconds,
    }
    unchanging = super::super::unchanging::SERVER;
}

crate::stat_set! {
    /// Whether a thread still answers; prefix: `main_thread` or `workers`, and the same of each thread of `server`.
    pub mod watchdog = "";
    unchanging = super::super::unchanging::WATCHDOG;
}

crate::stat_set! {
    /// What a thread has of the clusters; prefix: the thread, `main_thread` or `worker_<number>`. Computed when read.
    pub mod clusters_of_thread = "thread_local_cluster_manager";
    gauges {
        CLUSTERS_INFLATED = "clusters_inflated",
    }
}

crate::stat_set! {
    /// The overload manager itself; no prefix.
    pub mod overload = "overload";
    histograms {
        REFRESH_INTERVAL_DELAY = "refresh_interval_delay" Milliseconds,
    }
}

crate::stat_set! {
    /// The runtime; no prefix, counted by the control plane. No feature that Envoy calls deprecated is counted.
    pub mod runtime = "runtime";
    counters {
        LOAD_ERROR = "load_error",
        LOAD_SUCCESS = "load_success",
        OVERRIDE_DIR_EXISTS = "override_dir_exists",
        OVERRIDE_DIR_NOT_EXISTS = "override_dir_not_exists",
    }
    gauges {
        ADMIN_OVERRIDES_ACTIVE = "admin_overrides_active",
        NUM_KEYS = "num_keys",
        NUM_LAYERS = "num_layers",
    }
    unchanging = super::super::unchanging::RUNTIME;
}

crate::stat_set! {
    /// Code that plugins of any kind have from elsewhere; no prefix, counted by the control plane. The names behind the root
    /// are those that Envoy has for modules of WebAssembly.
    pub mod remote_code = "code";
    counters {
        REMOTE_LOAD_CACHE_HITS = "remote_load_cache_hits",
        REMOTE_LOAD_CACHE_MISSES = "remote_load_cache_misses",
        REMOTE_LOAD_FETCH_FAILURES = "remote_load_fetch_failures",
        REMOTE_LOAD_FETCH_SUCCESSES = "remote_load_fetch_successes",
    }
    gauges { REMOTE_LOAD_CACHE_ENTRIES = "remote_load_cache_entries" }
}

crate::stat_set! {
    /// The same of modules of WebAssembly alone, where Envoy counts them; no prefix, counted by the control plane.
    pub mod remote_modules = "wasm";
    counters {
        REMOTE_LOAD_CACHE_HITS = "remote_load_cache_hits",
        REMOTE_LOAD_CACHE_MISSES = "remote_load_cache_misses",
        REMOTE_LOAD_FETCH_FAILURES = "remote_load_fetch_failures",
        REMOTE_LOAD_FETCH_SUCCESSES = "remote_load_fetch_successes",
    }
    gauges { REMOTE_LOAD_CACHE_ENTRIES = "remote_load_cache_entries" }
}

crate::stat_set! {
    /// Statistics that are sent; no prefix, counted by the thread that sends them.
    pub mod stats_sinks = "stats_sinks";
    counters {
        DROPPED = "dropped",
        FLUSHES = "flushes",
    }
}

crate::stat_set! {
    /// Statsd over TCP; no prefix.
    pub mod statsd = "statsd";
    counters {
        CX_OVERFLOW = "cx_overflow",
    }
}

crate::stat_set! {
    /// Access log files; no prefix, counted by the log writer.
    pub mod filesystem = "filesystem";
    counters {
        FLUSHED_BY_TIMER = "flushed_by_timer",
        REOPEN_FAILED = "reopen_failed",
        WRITE_BUFFERED = "write_buffered",
        WRITE_COMPLETED = "write_completed",
        WRITE_FAILED = "write_failed",
    }
    gauges {
        WRITE_TOTAL_BUFFERED = "write_total_buffered",
    }
}

crate::stat_set! {
    /// Access log lines that Postrider could not keep up with (no counterpart in Envoy); no prefix.
    pub mod access_log = "access_log";
    counters {
        LINES_DROPPED = "lines_dropped",
    }
}

crate::stat_set! {
    /// Entries for access log services; no prefix.
    pub mod grpc_access_log = "access_logs.grpc_access_log";
    counters {
        LOGS_WRITTEN = "logs_written",
        LOGS_DROPPED = "logs_dropped",
    }
}

crate::stat_set! {
    /// What a filter that is no plugin costs on a route (no counterpart in Envoy); prefix: the filter's name, then the
    /// route's.
    pub mod filter = "filter";
    counters {
        CALLS = "calls",
        LOCAL_REPLIES = "local_replies",
        TIME_NS = "time_ns",
        ALLOCATIONS = "allocations",
    }
}

crate::stat_set! {
    /// Requests of a route while somebody watches routes (no counterpart in Envoy); prefix: `route`, then the route's name.
    pub mod watched_route = "watched";
    counters {
        RQ_5XX = "rq_5xx",
        RQ_TOTAL = "rq_total",
    }
}

crate::stat_set! {
    /// An action of the overload manager; prefix: its name.
    pub mod overload_action = "overload";
    gauges {
        ACTIVE = "active",
        SCALE_PERCENT = "scale_percent",
    }
}

crate::stat_set! {
    /// The action that gives memory back; prefix: its name.
    pub mod overload_shrink = "overload";
    counters {
        SHRINK_COUNT = "shrink_count",
    }
}

crate::stat_set! {
    /// The action that resets streams; prefix: its name, without what its other statistics begin with.
    pub mod overload_reset = "";
    counters {
        COUNT = "count",
    }
}

crate::stat_set! {
    /// A resource of the overload manager; prefix: its monitor's name.
    pub mod overload_resource = "overload";
    counters {
        FAILED_UPDATES = "failed_updates",
    }
    gauges {
        PRESSURE = "pressure",
    }
}

crate::stat_set! {
    /// A point where load is shed; prefix: its name.
    pub mod load_shed = "overload";
    counters {
        SHED_LOAD_COUNT = "shed_load_count",
    }
    gauges {
        SCALE_PERCENT = "scale_percent",
    }
}
