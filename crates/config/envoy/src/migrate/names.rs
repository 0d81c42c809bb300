//! Old names of extensions, their names since v3, and the types of their configurations.

/// `(v2 name, v3 name, v3 type)`; an empty type means that Envoy has dropped the extension.
///
/// The names are those that Envoy accepted as deprecated spellings until 1.22, and the v3 names themselves where files
/// of that time leave out the type.
pub const EXTENSIONS: &[(&str, &str, &str)] = &[
    // Network filters.
    (
        "envoy.http_connection_manager",
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    ),
    ("envoy.tcp_proxy", "envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"),
    (
        "envoy.redis_proxy",
        "envoy.filters.network.redis_proxy",
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    ),
    (
        "envoy.mongo_proxy",
        "envoy.filters.network.mongo_proxy",
        "envoy.extensions.filters.network.mongo_proxy.v3.MongoProxy",
    ),
    ("envoy.ratelimit", "envoy.filters.network.ratelimit", "envoy.extensions.filters.network.ratelimit.v3.RateLimit"),
    ("envoy.echo", "envoy.filters.network.echo", "envoy.extensions.filters.network.echo.v3.Echo"),
    ("envoy.client_ssl_auth", "envoy.filters.network.client_ssl_auth", ""),
    ("", "envoy.filters.network.ext_authz", "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz"),
    ("", "envoy.filters.network.rbac", "envoy.extensions.filters.network.rbac.v3.RBAC"),
    ("", "envoy.filters.network.sni_cluster", "envoy.extensions.filters.network.sni_cluster.v3.SniCluster"),
    ("", "envoy.filters.network.thrift_proxy", "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy"),
    ("", "envoy.filters.network.dubbo_proxy", "envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy"),
    ("", "envoy.filters.network.zookeeper_proxy", "envoy.extensions.filters.network.zookeeper_proxy.v3.ZooKeeperProxy"),
    ("", "envoy.filters.network.local_ratelimit", "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit"),
    // HTTP filters.
    ("envoy.router", "envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router"),
    ("envoy.lua", "envoy.filters.http.lua", "envoy.extensions.filters.http.lua.v3.Lua"),
    ("envoy.cors", "envoy.filters.http.cors", "envoy.extensions.filters.http.cors.v3.Cors"),
    ("envoy.csrf", "envoy.filters.http.csrf", "envoy.extensions.filters.http.csrf.v3.CsrfPolicy"),
    ("envoy.buffer", "envoy.filters.http.buffer", "envoy.extensions.filters.http.buffer.v3.Buffer"),
    ("envoy.fault", "envoy.filters.http.fault", "envoy.extensions.filters.http.fault.v3.HTTPFault"),
    ("envoy.gzip", "envoy.filters.http.compressor", "envoy.extensions.filters.http.compressor.v3.Compressor"),
    (
        "envoy.filters.http.gzip",
        "envoy.filters.http.compressor",
        "envoy.extensions.filters.http.compressor.v3.Compressor",
    ),
    ("envoy.ext_authz", "envoy.filters.http.ext_authz", "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"),
    ("envoy.rate_limit", "envoy.filters.http.ratelimit", "envoy.extensions.filters.http.ratelimit.v3.RateLimit"),
    (
        "envoy.health_check",
        "envoy.filters.http.health_check",
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    ),
    ("envoy.ip_tagging", "envoy.filters.http.ip_tagging", "envoy.extensions.filters.http.ip_tagging.v3.IPTagging"),
    ("envoy.grpc_web", "envoy.filters.http.grpc_web", "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb"),
    (
        "envoy.grpc_http1_bridge",
        "envoy.filters.http.grpc_http1_bridge",
        "envoy.extensions.filters.http.grpc_http1_bridge.v3.Config",
    ),
    (
        "envoy.grpc_json_transcoder",
        "envoy.filters.http.grpc_json_transcoder",
        "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
    ),
    ("envoy.http_dynamo_filter", "envoy.filters.http.dynamo", ""),
    ("envoy.squash", "envoy.filters.http.squash", ""),
    ("", "envoy.filters.http.jwt_authn", "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"),
    ("", "envoy.filters.http.rbac", "envoy.extensions.filters.http.rbac.v3.RBAC"),
    ("", "envoy.filters.http.tap", "envoy.extensions.filters.http.tap.v3.Tap"),
    ("", "envoy.filters.http.header_to_metadata", "envoy.extensions.filters.http.header_to_metadata.v3.Config"),
    (
        "",
        "envoy.filters.http.grpc_http1_reverse_bridge",
        "envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig",
    ),
    ("", "envoy.filters.http.original_src", "envoy.extensions.filters.http.original_src.v3.OriginalSrc"),
    (
        "",
        "envoy.filters.http.adaptive_concurrency",
        "envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
    ),
    (
        "",
        "envoy.filters.http.dynamic_forward_proxy",
        "envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig",
    ),
    ("", "envoy.filters.http.on_demand", "envoy.extensions.filters.http.on_demand.v3.OnDemand"),
    ("", "envoy.filters.http.grpc_stats", "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig"),
    // Listener filters.
    (
        "envoy.listener.tls_inspector",
        "envoy.filters.listener.tls_inspector",
        "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    ),
    (
        "envoy.listener.http_inspector",
        "envoy.filters.listener.http_inspector",
        "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
    ),
    (
        "envoy.listener.proxy_protocol",
        "envoy.filters.listener.proxy_protocol",
        "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    ),
    (
        "envoy.listener.original_dst",
        "envoy.filters.listener.original_dst",
        "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
    ),
    (
        "envoy.listener.original_src",
        "envoy.filters.listener.original_src",
        "envoy.extensions.filters.listener.original_src.v3.OriginalSrc",
    ),
    // Access loggers.
    ("envoy.file_access_log", "envoy.access_loggers.file", "envoy.extensions.access_loggers.file.v3.FileAccessLog"),
    (
        "envoy.http_grpc_access_log",
        "envoy.access_loggers.http_grpc",
        "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
    ),
    (
        "envoy.tcp_grpc_access_log",
        "envoy.access_loggers.tcp_grpc",
        "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    ),
    // Statistics sinks.
    ("envoy.statsd", "envoy.stat_sinks.statsd", "envoy.config.metrics.v3.StatsdSink"),
    ("envoy.dog_statsd", "envoy.stat_sinks.dog_statsd", "envoy.config.metrics.v3.DogStatsdSink"),
    ("envoy.metrics_service", "envoy.stat_sinks.metrics_service", "envoy.config.metrics.v3.MetricsServiceConfig"),
    ("envoy.stat_sinks.hystrix", "envoy.stat_sinks.hystrix", "envoy.config.metrics.v3.HystrixSink"),
    // Tracers.
    ("envoy.zipkin", "envoy.tracers.zipkin", "envoy.config.trace.v3.ZipkinConfig"),
    ("envoy.lightstep", "envoy.tracers.lightstep", ""),
    ("envoy.dynamic.ot", "envoy.tracers.dynamic_ot", ""),
    ("", "envoy.tracers.opencensus", ""),
    ("", "envoy.tracers.datadog", "envoy.config.trace.v3.DatadogConfig"),
    ("", "envoy.tracers.xray", "envoy.config.trace.v3.XRayConfig"),
    // Transport sockets. Their types depend on the side and are chosen by the rule for transport sockets.
    ("raw_buffer", "envoy.transport_sockets.raw_buffer", "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"),
    ("alts", "envoy.transport_sockets.alts", "envoy.extensions.transport_sockets.alts.v3.Alts"),
    // Retries.
    (
        "envoy.retry_host_predicates.previous_hosts",
        "envoy.retry_host_predicates.previous_hosts",
        "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    ),
    (
        "envoy.retry_host_predicates.omit_canary_hosts",
        "envoy.retry_host_predicates.omit_canary_hosts",
        "envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate",
    ),
    (
        "envoy.retry_priorities.previous_priorities",
        "envoy.retry_priorities.previous_priorities",
        "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
    ),
    // Resource monitors, health checkers, clusters.
    (
        "envoy.resource_monitors.fixed_heap",
        "envoy.resource_monitors.fixed_heap",
        "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
    ),
    (
        "envoy.resource_monitors.injected_resource",
        "envoy.resource_monitors.injected_resource",
        "envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig",
    ),
    ("envoy.health_checkers.redis", "envoy.health_checkers.redis", "envoy.extensions.health_checkers.redis.v3.Redis"),
    (
        "envoy.clusters.dynamic_forward_proxy",
        "envoy.clusters.dynamic_forward_proxy",
        "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig",
    ),
    ("envoy.clusters.aggregate", "envoy.clusters.aggregate", "envoy.extensions.clusters.aggregate.v3.ClusterConfig"),
    ("envoy.clusters.redis", "envoy.clusters.redis", "envoy.extensions.clusters.redis.v3.RedisClusterConfig"),
];

/// What a filter's override by route is called, where it is another type than the filter's own. By v3 name.
pub const OVERRIDES: &[(&str, &str)] = &[
    ("envoy.filters.http.buffer", "envoy.extensions.filters.http.buffer.v3.BufferPerRoute"),
    ("envoy.filters.http.lua", "envoy.extensions.filters.http.lua.v3.LuaPerRoute"),
    ("envoy.filters.http.ext_authz", "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"),
    ("envoy.filters.http.rbac", "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"),
    ("envoy.filters.http.jwt_authn", "envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig"),
    (
        "envoy.filters.http.grpc_http1_reverse_bridge",
        "envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute",
    ),
    (
        "envoy.filters.http.dynamic_forward_proxy",
        "envoy.extensions.filters.http.dynamic_forward_proxy.v3.PerRouteConfig",
    ),
];

/// The v3 name and type of an extension, by either name. `network` prefers a network filter: two old names stood for one
/// of each.
pub fn extension(name: &str, network: bool) -> Option<(&'static str, &'static str)> {
    if network && name == "envoy.ext_authz" {
        return extension("envoy.filters.network.ext_authz", false);
    }
    EXTENSIONS.iter().find(|(old, new, _)| *old == name || *new == name).map(|(_, new, kind)| (*new, *kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_one_of_the_schema_and_every_name_stands_once() {
        let kinds = EXTENSIONS.iter().map(|(_, _, kind)| *kind).chain(OVERRIDES.iter().map(|(_, kind)| *kind));
        for kind in kinds.filter(|kind| !kind.is_empty()) {
            assert!(postrider_envoy_proto::known_type(kind), "{kind}");
        }
        let mut olds: Vec<&str> = EXTENSIONS.iter().map(|(old, ..)| *old).filter(|old| !old.is_empty()).collect();
        olds.sort_unstable();
        assert!(olds.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn one_old_name_stood_for_two_filters() {
        assert_eq!(extension("envoy.ext_authz", true).unwrap().0, "envoy.filters.network.ext_authz");
        assert_eq!(extension("envoy.ext_authz", false).unwrap().0, "envoy.filters.http.ext_authz");
        assert_eq!(extension("envoy.no_such", true), None);
    }
}
