//! Virtual hosts and routes, as written; `router` compiles them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Attempts, Cidr, CookieMatch, FilterOverride, Format, HashPolicy, HeaderEdits, HeaderMatch, HeaderMutation, Labels,
    LogFormat, MatchTree, Metadata, MetadataMatch, Origin, ProxyHeader, QueryMatch, RateLimit, Regex, RouteTracing,
    StringMatch, Value,
};

/// One routing table. Swapping it never touches a connection.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RouteTable {
    pub name: String,
    /// Domains are unique over all of them.
    pub virtual_hosts: Vec<Arc<VirtualHost>>,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    /// Removed from requests that come from outside.
    pub internal_only_headers: Vec<String>,
    pub ignore_port_in_host: bool,
    /// The request header that is compared with domains, in place of the host.
    pub host_header: Option<String>,
    /// What follows a `;` in a segment of a path says nothing to routes.
    pub ignores_path_parameters: bool,
    /// Apply header edits from the table first and the route last, so that the route has the last word.
    pub most_specific_header_edits_win: bool,
    pub filter_overrides: Vec<FilterOverride>,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct VirtualHost {
    pub name: String,
    pub domains: Vec<Domain>,
    /// First match wins.
    pub routes: Vec<Arc<Route>>,
    /// Chooses which of the routes are looked at; without one, all of them.
    pub tree: Option<Arc<MatchTree<RouteRange>>>,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    pub filter_overrides: Vec<FilterOverride>,
    /// What of its requests counts together, where routes have no such rules of their own.
    pub rate_limits: Vec<RateLimit>,
    pub require_tls: RequireTls,
    /// Requests that count together; the first that takes one counts it. Where there are any, what none takes counts, too.
    pub virtual_clusters: Vec<VirtualCluster>,
    pub metadata: Arc<Metadata>,
    pub origin: Origin,
}

/// The requests of a virtual host for which all of some conditions hold.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualCluster {
    pub name: String,
    pub headers: Vec<HeaderMatch>,
}

/// Places in the routes of a virtual host: from `first` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRange {
    pub first: u32,
    pub end: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequireTls {
    #[default]
    None,
    ExternalOnly,
    All,
}

/// Compared with the lower-case authority. Exact beats the longest suffix, that beats the longest prefix, that beats any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Domain {
    Exact(String),
    /// `*.example.com` as `.example.com`; at least one character must stand before it.
    Suffix(String),
    /// `example.*` as `example.`; at least one character must follow.
    Prefix(String),
    Any,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// May be empty.
    pub name: String,
    pub matches: RouteMatch,
    pub action: Action,
    /// Its requests count together with those of other routes of the virtual host that say the same; may be empty.
    pub stat_prefix: String,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    pub filter_overrides: Vec<FilterOverride>,
    pub metadata: Arc<Metadata>,
    /// `None` where it says nothing of traces.
    pub tracing: Option<Box<RouteTracing>>,
    pub origin: Origin,
}

/// All parts must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteMatch {
    pub path: PathMatch,
    pub case_sensitive: bool,
    pub headers: Vec<HeaderMatch>,
    pub query: Vec<QueryMatch>,
    pub cookies: Vec<CookieMatch>,
    /// Only requests with a gRPC content type.
    pub grpc: bool,
    /// What is not in the request itself; `None` when nothing of that is asked for.
    pub stream: Option<Box<StreamMatch>>,
    /// The share of requests that may match, in parts per million; `None` is all.
    pub fraction: Option<u32>,
}

/// Conditions on the client's connection, and on what filters found out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamMatch {
    pub metadata: Vec<MetadataMatch>,
    pub state: Vec<StateMatch>,
    /// The client showed a certificate, or it did not.
    pub presented: Option<bool>,
    /// The client's certificate is good by the rules of the configuration, or it is not.
    pub validated: Option<bool>,
}

/// A condition on an object of the filter state: it must be there, as text.
#[derive(Debug, Clone, PartialEq)]
pub struct StateMatch {
    pub name: String,
    pub condition: StateCondition,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StateCondition {
    Text(StringMatch),
    /// It is an address in one of these networks, or, inverted, one in none of them.
    Address {
        networks: Vec<Cidr>,
        inverted: bool,
    },
}

impl StateCondition {
    pub fn matches(&self, text: &str) -> bool {
        match self {
            StateCondition::Text(condition) => condition.matches(text),
            StateCondition::Address { networks, inverted } => {
                let address = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|it| it.ip()));
                // What is no address matches in neither way.
                address.is_ok_and(|ip| networks.iter().any(|network| network.contains(ip)) != *inverted)
            }
        }
    }
}

/// Compared with the path without its query, normalised as the connection says.
#[derive(Debug, Clone, PartialEq)]
pub enum PathMatch {
    Prefix(String),
    Exact(String),
    /// The whole path must match.
    Regex(Regex),
    /// `/a` matches `/a` and `/a/b` and not `/ab`.
    SeparatedPrefix(String),
    /// `CONNECT` requests only.
    Connect,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Forward(Box<Forward>),
    Redirect(Box<Redirect>),
    Respond(DirectResponse),
}

/// The number that is drawn for a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Lot {
    #[default]
    Random,
    /// That of a request header, where it has one.
    Header(String),
    /// The hash that also decides on the host, where there is anything to hash.
    Hash,
}

/// Send the request to a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    pub target: Target,
    /// What says which of the weighted clusters it is.
    pub lot: Lot,
    /// Where other tries of a request go.
    pub next: NextCluster,
    /// From the end of the request to the end of the response. `None` is no limit.
    pub timeout: Option<Duration>,
    /// Limits of the whole stream, which take the place of `timeout`.
    pub stream_limit: Option<StreamLimit>,
    /// For gRPC requests, what takes the place of `timeout`.
    pub grpc_timeout: Option<GrpcTimeout>,
    /// Overrides the connection's stream-idle timeout: `Some(None)` turns it off.
    pub idle_timeout: Option<Option<Duration>>,
    /// Overrides how long a client may leave its answer lying: `Some(None)` turns that off.
    pub flush_timeout: Option<Option<Duration>>,
    pub path_rewrite: PathRewrite,
    pub host_rewrite: HostRewrite,
    pub append_x_forwarded_host: bool,
    /// The answer when the named cluster does not exist.
    pub cluster_not_found_status: u16,
    pub priority: Priority,
    /// Overrides the connection's upgrades: token in lower case and whether it is allowed.
    pub upgrades: Vec<(String, bool)>,
    /// A CONNECT ends here: its tunnel goes to an endpoint as plain bytes.
    pub terminates_connect: bool,
    /// So does a POST.
    pub terminates_post: bool,
    /// The first bytes of such a tunnel, which say whose it is.
    pub tunnel_header: Option<Box<ProxyHeader>>,
    /// What of its requests counts together.
    pub rate_limits: Vec<RateLimit>,
    /// The virtual host's rules hold beside these.
    pub include_host_rate_limits: bool,
    /// Retries and all that belongs to them; `None` when the route and its virtual host say nothing.
    pub attempts: Option<Arc<Attempts>>,
    /// The labels that a host is to have, where the cluster knows hosts by them.
    pub labels: Option<Arc<Labels>>,
    /// What decides on the host, where the cluster chooses by a hash.
    pub hash_policies: Vec<HashPolicy>,
    /// Where copies of requests go; the route's own, or those of its virtual host or table.
    pub mirrors: Vec<Mirror>,
    /// Redirects of upstreams that are followed here.
    pub redirects: Option<Arc<InternalRedirects>>,
}

/// A copy of requests goes to another cluster, and nobody waits for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Mirror {
    pub target: MirrorTarget,
    /// The share of requests that are copied, in parts per million; `None` is all.
    pub fraction: Option<u32>,
    /// In place of the request's host.
    pub host: Option<String>,
    /// The copy's host ends in `-shadow`, so that its logs tell them apart.
    pub marks_host: bool,
    /// One after the other.
    pub headers: Vec<HeaderMutation>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MirrorTarget {
    Cluster(String),
    /// The cluster that a request header names; without it there is no copy.
    Header(String),
}

/// Which redirects are followed instead of being passed on, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct InternalRedirects {
    /// Statuses that redirect.
    pub statuses: Vec<u16>,
    /// Followed one after the other at most.
    pub max: u32,
    /// Also to `https` from `http`, and back.
    pub across_schemes: bool,
    /// Never from `http` to `https`.
    pub safe_schemes: bool,
    /// A route does not lead twice to the same one.
    pub new_routes: bool,
    /// Names of the routes that may be led to; all of the lists must have it.
    pub allowed_routes: Vec<Vec<String>>,
    /// Fields of the redirect that go into the next request, in lower case.
    pub copied_headers: Vec<String>,
}

/// How long streams of a route may last, from the first byte of the request on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamLimit {
    /// In place of the connection's limit; `Some(None)` turns it off.
    pub duration: Option<Option<Duration>>,
    /// A request's `grpc-timeout` takes the place of `duration`, up to this; `Some(None)` takes it as it is.
    pub grpc_timeout_max: Option<Option<Duration>>,
    /// Taken off what `grpc-timeout` says, so that the proxy gives up before its client does.
    pub grpc_timeout_offset: Duration,
}

/// How long an upstream may take for a gRPC request: what its `grpc-timeout` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrpcTimeout {
    /// At most; `None` is no limit.
    pub max: Option<Duration>,
    /// Taken off what `grpc-timeout` says, when something is left then.
    pub offset: Duration,
}

impl Forward {
    /// A gRPC request's own timeout may count here, and its upstream is told one.
    #[inline]
    pub fn limits_grpc(&self) -> bool {
        self.stream_limit.is_some() || self.grpc_timeout.is_some()
    }
}

/// Which cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Cluster(String),
    Weighted(Vec<WeightedCluster>),
    /// The cluster named by a request header.
    Header(String),
    /// A plugin names the cluster of each request.
    Plugin(Arc<ClusterSpecifier>),
}

/// The cluster of a request that is tried again.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum NextCluster {
    /// That of the first try.
    #[default]
    Same,
    /// One of the weighted clusters that was not tried; when all of them were, they begin anew.
    Untried,
    /// One of the first of these groups for the second try, of the next one for the third; the last one stays.
    Groups(Vec<Vec<WeightedCluster>>),
    /// The plugin is asked once more.
    Asked,
}

/// A plugin that chooses clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSpecifier {
    /// Full name of the configuration's type; whoever runs such plugins finds it by that.
    pub kind: String,
    pub config: Value,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq)]
pub struct WeightedCluster {
    /// Empty where a header names it.
    pub cluster: String,
    /// The request header that names the cluster.
    pub header: Option<String>,
    pub weight: u32,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    pub host_rewrite: Option<String>,
    /// The labels that a host is to have, those of the route among them.
    pub labels: Option<Arc<Labels>>,
    pub filter_overrides: Vec<FilterOverride>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum PathRewrite {
    #[default]
    None,
    /// Replaces what the route's prefix or path matched.
    Prefix(String),
    /// Replaces every match in the path; `\1` in the substitution is the first group.
    Regex { pattern: Regex, substitution: String },
    /// In place of the path without its query, unless nothing comes out.
    Format(Format),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum HostRewrite {
    #[default]
    None,
    Literal(String),
    /// The chosen endpoint's host name.
    Auto,
    /// The value of this request header, if it is present.
    Header(String),
    /// Made from the path.
    PathRegex {
        pattern: Regex,
        substitution: String,
    },
    /// What comes out, unless that is nothing.
    Format(Format),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Priority {
    #[default]
    Default,
    High,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    pub status: u16,
    pub scheme: Option<RedirectScheme>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub path: RedirectPath,
    pub strip_query: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RedirectScheme {
    Https,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum RedirectPath {
    #[default]
    Keep,
    /// The whole path; a `?` in it replaces the query too.
    Replace(String),
    /// In place of the matched prefix.
    Prefix(String),
    Regex {
        pattern: Regex,
        substitution: String,
    },
    /// As [`RedirectPath::Replace`] with what comes out, unless that is nothing.
    Format(Format),
}

#[derive(Debug, Clone, PartialEq)]
pub struct DirectResponse {
    pub status: u16,
    pub body: ResponseBody,
    /// `None` sends `text/plain` when there is a body.
    pub content_type: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ResponseBody {
    Fixed(Vec<u8>),
    /// `%LOCAL_REPLY_BODY%` is `fixed`.
    Format {
        fixed: Vec<u8>,
        format: Box<LogFormat>,
    },
}
