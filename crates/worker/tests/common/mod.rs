//! A fleet in this process, configured in code, in front of an origin of the test's own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider_model::*;
use postrider_telemetry::access_log::LogWriter;
use postrider_worker::{Fleet, Plan};

/// A running fleet with one listener.
pub struct Running {
    pub address: SocketAddr,
    fleet: Fleet,
    runtime: tokio::runtime::Runtime,
    logs: Option<LogWriter>,
}

/// What a fleet of one worker serves; everything in it may be changed before it runs.
pub struct Site {
    pub http: HttpConnection,
    pub clusters: Vec<Cluster>,
    pub buffer_limit: u32,
}

impl Site {
    /// Everything goes to the cluster `origin`.
    pub fn new(origin: SocketAddr) -> Site {
        Site { http: http(), clusters: vec![cluster("origin", origin)], buffer_limit: 200 << 10 }
    }

    pub fn snapshot(self) -> Snapshot {
        Snapshot {
            listeners: vec![Arc::new(listener(self.http, self.buffer_limit))],
            clusters: self.clusters.into_iter().map(Arc::new).collect(),
            ..Snapshot::default()
        }
    }

    pub fn run(self, filters: &postrider_filter_api::Registry) -> Running {
        let registry = postrider_telemetry::Registry::new();
        let fleet = Fleet::start(1, false, Duration::from_secs(600), &registry).unwrap();
        let logs = LogWriter::start(&registry, Duration::from_secs(1)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let mut running = Running { address, fleet, runtime, logs: Some(logs) };
        running.update(self, filters);
        running.address = match running.fleet.listeners().remove(0).1.remove(0) {
            Address::Tcp(address) => address,
            Address::Unix { path, .. } => panic!("bound to {}", path.display()),
        };
        running
    }
}

impl Running {
    /// Goes on as `site` has it. What is the same stays.
    pub fn update(&self, site: Site, filters: &postrider_filter_api::Registry) {
        let before = self.fleet.plan();
        let plan = Plan::compile(Arc::new(site.snapshot()), before.as_deref(), filters, 1);
        let plan = plan.unwrap_or_else(|errors| panic!("{errors:?}"));
        let logs = self.logs.as_ref().unwrap();
        self.runtime.block_on(self.fleet.apply(Arc::new(plan), HashMap::new(), logs)).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runtime.block_on(self.fleet.stop());
        if let Some(logs) = self.logs.take() {
            logs.shutdown();
        }
    }
}

fn listener(http: HttpConnection, buffer_limit: u32) -> Listener {
    let chain = FilterChain {
        limits: Vec::new(),
        guards: Vec::new(),
        name: String::new(),
        matches: ChainMatch::default(),
        tls: None,
        handler: ConnectionHandler::Http(Arc::new(http)),
        metadata: None,
        origin: Origin::default(),
    };
    Listener {
        name: "front".into(),
        addresses: vec![Address::Tcp("127.0.0.1:0".parse().unwrap())],
        stat_prefix: None,
        told: None,
        filter_chains: vec![Arc::new(chain)],
        default_filter_chain: None,
        chain_tree: None,
        buffer_limit,
        full_buffer_timeout: None,
        backlog: 128,
        one_queue: false,
        accepts_at_once: None,
        balance: ConnectionBalance::Kernel,
        connection_limit: None,
        bypasses_overload: false,
        bypasses_bound: false,
        binds: true,
        hands_over: false,
        drains_unhealthy: true,
        inspection: Inspection::default(),
        sockets: vec![SocketOptions::default()],
        direction: Direction::Unspecified,
        metadata: None,
        access_log: Vec::new(),
        origin: Origin::default(),
    }
}

fn http() -> HttpConnection {
    HttpConnection {
        stat_prefix: "front".into(),
        routes: Arc::new(routes()),
        filters: Vec::new(),
        upgrade_filters: Vec::new(),
        access_log: Vec::new(),
        log_moments: LogMoments::default(),
        timeouts: HttpTimeouts {
            stream_idle: Some(Duration::from_secs(300)),
            connection_idle: Some(Duration::from_secs(3600)),
            request_headers: Some(Duration::from_secs(10)),
            delayed_close: Duration::from_secs(1),
            drain: Duration::from_secs(5),
            ..HttpTimeouts::default()
        },
        limits: HttpLimits { max_headers: 100, max_head_bytes: 60 << 10, max_requests_per_connection: None },
        path: PathPolicy { normalize: true, merge_slashes: true, escaped_slashes: EscapedSlashes::Keep, strict: true },
        codec: Codec::Auto,
        http2: Http2Options::default(),
        http1: Http1Options {
            accept_http_10: true,
            default_host_for_http_10: None,
            enable_trailers: false,
            underscores: Underscores::RejectLookalikes,
            names: Default::default(),
            ..Http1Options::default()
        },
        identity: IdentityPolicy {
            server_name: "postrider".into(),
            server_header: ServerHeader::Overwrite,
            use_remote_address: false,
            xff_num_trusted_hops: 0,
            internal: None,
            skip_xff_append: false,
            scheme_of_port: None,
            hides_ends: false,
            detection: Vec::new(),
            generate_request_id: true,
            preserve_external_request_id: false,
            packs_trace_reason: true,
            always_set_request_id_in_response: false,
            marks_overload: false,
            via: None,
            strip_any_host_port: false,
            strip_matching_host_port: false,
            strip_trailing_host_dot: false,
            proxy_100_continue: false,
            append_x_forwarded_port: false,
            scheme: Default::default(),
            client_certificate: ClientCertificate::default(),
            client_certificate_by_request: None,
            local_replies: None,
            proxy_status: None,
            early: None,
        },
        upgrades: Vec::new(),
        router: RouterOptions::default(),
        measures_routes: false,
        tracing: None,
        origin: Origin::default(),
    }
}

fn routes() -> RouteTable {
    let matches = RouteMatch {
        path: PathMatch::Prefix("/".into()),
        case_sensitive: true,
        headers: Vec::new(),
        query: Vec::new(),
        cookies: Vec::new(),
        grpc: false,
        stream: None,
        fraction: None,
    };
    let forward = Forward {
        lot: Default::default(),
        next: Default::default(),
        target: Target::Cluster("origin".into()),
        timeout: Some(Duration::from_secs(15)),
        idle_timeout: None,
        flush_timeout: None,
        path_rewrite: PathRewrite::None,
        host_rewrite: HostRewrite::None,
        append_x_forwarded_host: false,
        stream_limit: None,
        grpc_timeout: None,
        cluster_not_found_status: 503,
        priority: Priority::Default,
        upgrades: Vec::new(),
        terminates_connect: false,
        terminates_post: false,
        tunnel_header: None,
        rate_limits: Vec::new(),
        include_host_rate_limits: false,
        attempts: None,
        labels: None,
        hash_policies: Vec::new(),
        mirrors: Vec::new(),
        redirects: None,
    };
    let route = Route {
        name: "all".into(),
        matches,
        action: Action::Forward(Box::new(forward)),
        stat_prefix: String::new(),
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        filter_overrides: Vec::new(),
        metadata: Arc::default(),
        tracing: None,
        origin: Origin::default(),
    };
    let host = VirtualHost {
        name: "any".into(),
        domains: vec![Domain::Any],
        routes: vec![Arc::new(route)],
        ..VirtualHost::default()
    };
    RouteTable { name: "routes".into(), virtual_hosts: vec![Arc::new(host)], ..RouteTable::default() }
}

pub fn cluster(name: &str, origin: SocketAddr) -> Cluster {
    let endpoint = Endpoint {
        address: Address::Tcp(origin),
        additional: Vec::new(),
        hostname: String::new(),
        weight: 1,
        priority: 0,
        health: EndpointHealth::Healthy,
        leaving: None,
        check: None,
        place: None,
        hash_key: None,
        metadata: None,
    };
    Cluster {
        name: name.into(),
        metadata: None,
        stat_name: None,
        told: None,
        discovery: Discovery::Static(vec![endpoint]),
        connect_timeout: Duration::from_secs(5),
        balancing: Balancing::default(),
        health: HealthRules::default(),
        outliers: None,
        thresholds: Thresholds::default(),
        high_thresholds: Thresholds::default(),
        preconnect: None,
        measures: Default::default(),
        buffer_limit: 200 << 10,
        full_buffer_timeout: None,
        upstream: UpstreamOptions {
            idle_timeout: Some(Duration::from_secs(3600)),
            max_requests_per_connection: None,
            pool_per_client: false,
            max_connection_duration: None,
            max_stream_duration: None,
            max_response_headers: 100,
            max_response_head_bytes: 60 << 10,
            enable_trailers: false,
            names: Default::default(),
            absolute_targets: false,
            protocol: UpstreamProtocol::Http1,
            http2: Http2Options::default(),
            keepalive: None,
            sources: Vec::new(),
            socket_options: Vec::new(),
            auto_host_sni: false,
            address_order: postrider_model::AddressOrder { first: None, run: 1 },
            retry: None,
            mirrors: Vec::new(),
            filters: None,
            bridge: None,
            errors: None,
        },
        tls: None,
        proxy_header: None,
        transports: Vec::new(),
        origin: Origin::default(),
    }
}
