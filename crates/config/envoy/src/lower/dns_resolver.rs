//! Who resolves names: `typed_dns_resolver_config`, and the older fields that it replaces.
//!
//! As in Envoy, the first of these counts, and what stands beside it does not: the extension, `dns_resolution_config` with
//! resolvers, and, in a cluster, `dns_resolvers`. A cluster without any of them is resolved as the bootstrap says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider_model::{Address, DnsClient, DnsResolver};

use super::address::{self, Place};
use super::context::Lowering;
use crate::reader::Reader;

const TYPED: &str = "typed_dns_resolver_config";
const CARES: &str = "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig";
const GETADDRINFO: &str = "envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig";
const HICKORY: &str = "envoy.extensions.network.dns_resolver.hickory.v3.HickoryDnsResolverConfig";

/// Where a server of DNS listens unless its port is written.
const PORT: u16 = 53;

/// `query_timeout` and `query_tries` of Hickory where they are absent.
const HICKORY_TIMEOUT: Duration = Duration::from_secs(5);
const HICKORY_TRIES: u32 = 3;

/// What the bootstrap says for all clusters that say nothing.
pub(super) fn of_bootstrap(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Arc<DnsResolver> {
    if let Some(typed) = typed(cx, root) {
        for field in ["dns_resolution_config", "use_tcp_for_dns_lookups"] {
            replaced(root, field);
        }
        return Arc::new(typed);
    }
    if let Some(older) = resolution(cx, root) {
        root.ignore("use_tcp_for_dns_lookups", "`dns_resolution_config` says it");
        return Arc::new(older);
    }
    let tcp_only = root.bool("use_tcp_for_dns_lookups");
    Arc::new(DnsResolver::Client(DnsClient { tcp_only, ..DnsClient::default() }))
}

/// What a cluster of type `STRICT_DNS` or `LOGICAL_DNS` says.
pub(super) fn of_cluster(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Arc<DnsResolver> {
    const OLD: [&str; 3] = ["dns_resolution_config", "dns_resolvers", "use_tcp_for_dns_lookups"];
    if let Some(typed) = typed(cx, at) {
        OLD.iter().for_each(|field| replaced(at, field));
        return Arc::new(typed);
    }
    if let Some(older) = resolution(cx, at) {
        OLD[1..].iter().for_each(|field| replaced(at, field));
        return Arc::new(older);
    }
    let servers = servers(cx, at, "dns_resolvers");
    if servers.is_empty() {
        at.ignore("use_tcp_for_dns_lookups", "as in Envoy, it is about `dns_resolvers` of the cluster");
        return cx.resolver.clone();
    }
    let tcp_only = at.bool("use_tcp_for_dns_lookups");
    Arc::new(DnsResolver::Client(DnsClient { servers, tcp_only, ..DnsClient::default() }))
}

/// What the configuration of a cluster of the type `DnsCluster` says: fields of the cluster itself do not count.
pub(super) fn of_custom(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Arc<DnsResolver> {
    typed(cx, config).map_or_else(|| cx.resolver.clone(), Arc::new)
}

/// Marks what a cluster says about a resolver that it does not use.
pub(super) fn unused(at: &Reader<'_>) {
    for field in ["dns_resolvers", "dns_resolution_config", TYPED, "use_tcp_for_dns_lookups"] {
        at.whole(field);
        at.ignore(field, "the cluster resolves no names by it");
    }
}

fn replaced(at: &Reader<'_>, field: &str) {
    at.whole(field);
    at.ignore(field, "another field says who resolves names");
}

fn typed(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<DnsResolver> {
    let extension = at.message(TYPED)?;
    extension.str("name");
    let Some(any) = extension.any("typed_config") else {
        cx.missing(&extension, "the resolver has no `typed_config`", "a `typed_config` with its `@type`");
        return None;
    };
    let config = any.reader.as_ref()?;
    match any.type_name {
        CARES => Some(DnsResolver::Client(cares(cx, config))),
        GETADDRINFO => {
            config.ignore("num_resolver_threads", "each call has a thread of its own while it lasts");
            Some(DnsResolver::System { retries: config.u32_wrapper("num_retries").unwrap_or(0) })
        }
        HICKORY => Some(DnsResolver::Client(hickory(cx, config))),
        _ => {
            cx.refuse_extension(&extension, "typed_config", &any);
            None
        }
    }
}

fn cares(cx: &mut Lowering<'_>, at: &Reader<'_>) -> DnsClient {
    for field in ["udp_max_queries", "max_udp_channel_duration", "reinit_channel_on_timeout"] {
        at.whole(field);
        at.ignore(field, "each query over UDP has a socket of its own");
    }
    let defaults = DnsClient::default();
    let (tcp_only, searches) = options(at);
    DnsClient {
        servers: servers(cx, at, "resolvers"),
        servers_are_fallback: at.bool("use_resolvers_as_fallback"),
        tcp_only,
        searches,
        routable_only: at.bool("filter_unroutable_families"),
        timeout: at.u64_wrapper("query_timeout_seconds").map_or(defaults.timeout, Duration::from_secs),
        tries: at.u32_wrapper("query_tries").unwrap_or(defaults.tries),
        rotates: at.bool("rotate_nameservers"),
        datagram_bytes: at.u32_wrapper("edns0_max_payload_size").and_then(|bytes| u16::try_from(bytes).ok()),
        keeps_answers: at
            .u32_wrapper("qcache_max_ttl")
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into())),
    }
}

fn hickory(cx: &mut Lowering<'_>, at: &Reader<'_>) -> DnsClient {
    for (field, what) in
        [("dns_over_tls", "DNS over TLS"), ("dns_over_https", "DNS over HTTPS"), ("enable_dnssec", "DNSSEC")]
    {
        if at.has(field) {
            cx.refuse(at, field, what);
        }
    }
    at.ignore("num_resolver_threads", "names are resolved on the thread that reads configurations");
    let servers = servers(cx, at, "resolvers");
    let of_system = at.bool_wrapper("use_system_config");
    if of_system == Some(false) && servers.is_empty() {
        let text = "without the system's servers some `resolvers` are needed";
        cx.error(at, "use_system_config", "conflict", text);
    }
    // Like c-ares, a client that keeps nothing asks at each refresh.
    at.ignore("cache_size", "each refresh asks again");
    DnsClient {
        servers,
        searches: of_system.unwrap_or(true),
        timeout: at.duration("query_timeout").unwrap_or(HICKORY_TIMEOUT),
        tries: at.u32_wrapper("query_tries").unwrap_or(HICKORY_TRIES),
        ..DnsClient::default()
    }
}

/// `dns_resolution_config`, where it names anybody.
fn resolution(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<DnsResolver> {
    let config = at.message("dns_resolution_config")?;
    let servers = servers(cx, &config, "resolvers");
    let (tcp_only, searches) = options(&config);
    Some(DnsResolver::Client(DnsClient { servers, tcp_only, searches, ..DnsClient::default() }))
}

/// Of `dns_resolver_options`: whether TCP is used always, and whether search domains are.
fn options(at: &Reader<'_>) -> (bool, bool) {
    at.message("dns_resolver_options").map_or((false, true), |options| {
        (options.bool("use_tcp_for_dns_lookups"), !options.bool("no_default_search_domain"))
    })
}

fn servers(cx: &mut Lowering<'_>, at: &Reader<'_>, field: &str) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for server in at.list(field) {
        // What is written of UDP and TCP does not count: the options say it.
        if let Some(socket) = server.message("socket_address") {
            socket.ignore("protocol", "the resolver's options say how it is asked");
        }
        match address::unresolved(cx, &server) {
            Some(Place::Literal(Address::Tcp(mut socket))) => {
                if socket.port() == 0 {
                    socket.set_port(PORT);
                }
                all.push(socket);
            }
            Some(Place::Literal(Address::Unix { path, .. })) => {
                let text = format!("`{}` is a path, and servers of DNS have IP addresses", path.display());
                cx.error(&server, "pipe", "invalid-address", text);
            }
            Some(Place::Name { host, .. }) => {
                let text = format!("`{host}` is no IP address, and nobody could resolve it");
                cx.error(&server, "socket_address", "invalid-address", text);
            }
            None => {}
        }
    }
    all
}
