//! Extensions by name, for files that give no type: the names of v2 and those of today.
//!
//! In v3 a name is free and the type decides. Where the type is missing, the name still tells what was meant.

/// An extension that is known by name.
#[derive(Debug, PartialEq, Eq)]
pub struct Extension {
    /// The name that Envoy gives it today.
    pub name: &'static str,
    /// Its names in the v2 API.
    pub old_names: &'static [&'static str],
    /// Full name of its configuration message.
    pub type_name: &'static str,
}

/// The extension of a name, old or new.
pub fn extension(name: &str) -> Option<&'static Extension> {
    EXTENSIONS.iter().find(|extension| extension.name == name || extension.old_names.contains(&name))
}

const fn entry(name: &'static str, old_names: &'static [&'static str], type_name: &'static str) -> Extension {
    Extension { name, old_names, type_name }
}

static EXTENSIONS: &[Extension] = &[
    // Network filters.
    entry(
        "envoy.filters.network.http_connection_manager",
        &["envoy.http_connection_manager"],
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    ),
    entry(
        "envoy.filters.network.tcp_proxy",
        &["envoy.tcp_proxy"],
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    ),
    entry("envoy.filters.network.echo", &["envoy.echo"], "envoy.extensions.filters.network.echo.v3.Echo"),
    entry(
        "envoy.filters.network.ext_authz",
        &["envoy.ext_authz"],
        "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz",
    ),
    entry(
        "envoy.filters.network.mongo_proxy",
        &["envoy.mongo_proxy"],
        "envoy.extensions.filters.network.mongo_proxy.v3.MongoProxy",
    ),
    entry(
        "envoy.filters.network.ratelimit",
        &["envoy.ratelimit"],
        "envoy.extensions.filters.network.ratelimit.v3.RateLimit",
    ),
    entry(
        "envoy.filters.network.redis_proxy",
        &["envoy.redis_proxy"],
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    ),
    entry("envoy.filters.network.rbac", &[], "envoy.extensions.filters.network.rbac.v3.RBAC"),
    entry("envoy.filters.network.direct_response", &[], "envoy.extensions.filters.network.direct_response.v3.Config"),
    entry(
        "envoy.filters.network.local_ratelimit",
        &[],
        "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit",
    ),
    entry("envoy.filters.network.sni_cluster", &[], "envoy.extensions.filters.network.sni_cluster.v3.SniCluster"),
    entry(
        "envoy.filters.network.thrift_proxy",
        &["envoy.thrift_proxy"],
        "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
    ),
    entry(
        "envoy.filters.network.zookeeper_proxy",
        &[],
        "envoy.extensions.filters.network.zookeeper_proxy.v3.ZooKeeperProxy",
    ),
    entry("envoy.filters.network.dubbo_proxy", &[], "envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy"),
    // Listener filters.
    entry(
        "envoy.filters.listener.original_dst",
        &["envoy.listener.original_dst"],
        "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
    ),
    entry(
        "envoy.filters.listener.original_src",
        &["envoy.listener.original_src"],
        "envoy.extensions.filters.listener.original_src.v3.OriginalSrc",
    ),
    entry(
        "envoy.filters.listener.proxy_protocol",
        &["envoy.listener.proxy_protocol"],
        "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    ),
    entry(
        "envoy.filters.listener.tls_inspector",
        &["envoy.listener.tls_inspector"],
        "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    ),
    entry(
        "envoy.filters.listener.http_inspector",
        &["envoy.listener.http_inspector"],
        "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
    ),
    // HTTP filters.
    entry("envoy.filters.http.router", &["envoy.router"], "envoy.extensions.filters.http.router.v3.Router"),
    entry("envoy.filters.http.buffer", &["envoy.buffer"], "envoy.extensions.filters.http.buffer.v3.Buffer"),
    entry("envoy.filters.http.cors", &["envoy.cors"], "envoy.extensions.filters.http.cors.v3.Cors"),
    entry("envoy.filters.http.csrf", &["envoy.csrf"], "envoy.extensions.filters.http.csrf.v3.CsrfPolicy"),
    entry("envoy.filters.http.fault", &["envoy.fault"], "envoy.extensions.filters.http.fault.v3.HTTPFault"),
    entry(
        "envoy.filters.http.grpc_http1_bridge",
        &["envoy.grpc_http1_bridge"],
        "envoy.extensions.filters.http.grpc_http1_bridge.v3.Config",
    ),
    entry(
        "envoy.filters.http.grpc_json_transcoder",
        &["envoy.grpc_json_transcoder"],
        "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
    ),
    entry("envoy.filters.http.grpc_web", &["envoy.grpc_web"], "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb"),
    entry("envoy.filters.http.grpc_stats", &[], "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig"),
    entry("envoy.filters.http.gzip", &["envoy.gzip"], "envoy.extensions.filters.http.gzip.v3.Gzip"),
    entry("envoy.filters.http.compressor", &[], "envoy.extensions.filters.http.compressor.v3.Compressor"),
    entry("envoy.filters.http.decompressor", &[], "envoy.extensions.filters.http.decompressor.v3.Decompressor"),
    entry(
        "envoy.filters.http.health_check",
        &["envoy.health_check"],
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    ),
    entry(
        "envoy.filters.http.ip_tagging",
        &["envoy.ip_tagging"],
        "envoy.extensions.filters.http.ip_tagging.v3.IPTagging",
    ),
    entry("envoy.filters.http.lua", &["envoy.lua"], "envoy.extensions.filters.http.lua.v3.Lua"),
    entry(
        "envoy.filters.http.ratelimit",
        &["envoy.rate_limit"],
        "envoy.extensions.filters.http.ratelimit.v3.RateLimit",
    ),
    entry("envoy.filters.http.ext_authz", &[], "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"),
    entry("envoy.filters.http.ext_proc", &[], "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor"),
    entry("envoy.filters.http.jwt_authn", &[], "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"),
    entry(
        "envoy.filters.http.credential_injector",
        &[],
        "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
    ),
    entry("envoy.filters.http.rbac", &[], "envoy.extensions.filters.http.rbac.v3.RBAC"),
    entry("envoy.filters.http.header_mutation", &[], "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"),
    entry("envoy.filters.http.header_to_metadata", &[], "envoy.extensions.filters.http.header_to_metadata.v3.Config"),
    entry("envoy.filters.http.local_ratelimit", &[], "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"),
    entry("envoy.filters.http.basic_auth", &[], "envoy.extensions.filters.http.basic_auth.v3.BasicAuth"),
    entry("envoy.filters.http.api_key_auth", &[], "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth"),
    entry("envoy.filters.http.oauth2", &[], "envoy.extensions.filters.http.oauth2.v3.OAuth2"),
    entry("envoy.filters.http.set_metadata", &[], "envoy.extensions.filters.http.set_metadata.v3.Config"),
    entry("envoy.filters.http.set_filter_state", &[], "envoy.extensions.filters.http.set_filter_state.v3.Config"),
    entry(
        "envoy.filters.http.stateful_session",
        &[],
        "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
    ),
    entry(
        "envoy.filters.http.dynamic_forward_proxy",
        &[],
        "envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig",
    ),
    entry("envoy.filters.http.original_src", &[], "envoy.extensions.filters.http.original_src.v3.OriginalSrc"),
    entry("envoy.filters.http.on_demand", &[], "envoy.extensions.filters.http.on_demand.v3.OnDemand"),
    entry("envoy.filters.http.wasm", &[], "envoy.extensions.filters.http.wasm.v3.Wasm"),
    entry("envoy.filters.http.golang", &[], "envoy.extensions.filters.http.golang.v3alpha.Config"),
    entry("envoy.filters.http.tap", &[], "envoy.extensions.filters.http.tap.v3.Tap"),
    entry("envoy.filters.http.aws_lambda", &[], "envoy.extensions.filters.http.aws_lambda.v3.Config"),
    entry(
        "envoy.filters.http.adaptive_concurrency",
        &[],
        "envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
    ),
    // Access loggers.
    entry(
        "envoy.access_loggers.file",
        &["envoy.file_access_log"],
        "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    ),
    entry(
        "envoy.access_loggers.http_grpc",
        &["envoy.http_grpc_access_log"],
        "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
    ),
    entry(
        "envoy.access_loggers.tcp_grpc",
        &["envoy.tcp_grpc_access_log"],
        "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    ),
    entry("envoy.access_loggers.stdout", &[], "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"),
    entry("envoy.access_loggers.stderr", &[], "envoy.extensions.access_loggers.stream.v3.StderrAccessLog"),
    // Stat sinks.
    entry("envoy.stat_sinks.dog_statsd", &["envoy.dog_statsd"], "envoy.config.metrics.v3.DogStatsdSink"),
    entry(
        "envoy.stat_sinks.metrics_service",
        &["envoy.metrics_service"],
        "envoy.config.metrics.v3.MetricsServiceConfig",
    ),
    entry(
        "envoy.stat_sinks.graphite_statsd",
        &["envoy.graphite_statsd"],
        "envoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSink",
    ),
    entry("envoy.stat_sinks.statsd", &["envoy.statsd"], "envoy.config.metrics.v3.StatsdSink"),
    entry("envoy.stat_sinks.hystrix", &[], "envoy.config.metrics.v3.HystrixSink"),
    // Tracers.
    entry("envoy.tracers.zipkin", &["envoy.zipkin"], "envoy.config.trace.v3.ZipkinConfig"),
    entry("envoy.tracers.lightstep", &["envoy.lightstep"], "envoy.config.trace.v3.LightstepConfig"),
    entry("envoy.tracers.dynamic_ot", &["envoy.dynamic.ot"], "envoy.config.trace.v3.DynamicOtConfig"),
    entry("envoy.tracers.datadog", &[], "envoy.config.trace.v3.DatadogConfig"),
    entry("envoy.tracers.xray", &[], "envoy.config.trace.v3.XRayConfig"),
    // Transport sockets.
    entry("envoy.transport_sockets.tls", &["tls"], "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
    entry(
        "envoy.transport_sockets.raw_buffer",
        &["raw_buffer"],
        "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    ),
    entry("envoy.transport_sockets.alts", &[], "envoy.extensions.transport_sockets.alts.v3.Alts"),
    // Retry plugins.
    entry(
        "envoy.retry_priorities.previous_priorities",
        &[],
        "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
    ),
    entry(
        "envoy.retry_host_predicates.previous_hosts",
        &[],
        "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    ),
    entry(
        "envoy.retry_host_predicates.omit_canary_hosts",
        &[],
        "envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate",
    ),
    // Resource monitors.
    entry(
        "envoy.resource_monitors.fixed_heap",
        &[],
        "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
    ),
    entry(
        "envoy.resource_monitors.injected_resource",
        &[],
        "envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_in_the_schema_and_every_name_is_unique() {
        let mut names = std::collections::HashSet::new();
        for extension in EXTENSIONS {
            assert!(postrider_envoy_proto::known_type(extension.type_name), "{}", extension.type_name);
            for name in std::iter::once(&extension.name).chain(extension.old_names) {
                assert!(names.insert(*name), "{name} stands twice");
            }
        }
    }
}
