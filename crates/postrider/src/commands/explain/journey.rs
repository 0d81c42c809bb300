//! What happens to the request, found out by the code that serves traffic; the two renderers show it.
//!
//! Every decision here is a call: the codec reads the bytes with the listener's rules, the worker's own functions choose
//! the filter chain and treat the head, the compiled table finds the route. Only the collecting is done here.

use std::net::SocketAddr;
use std::time::SystemTime;

use postrider_filter_api::{Moment, StreamInfo};
use postrider_h1::{HeadScan, RequestParse, parse_request};
use postrider_http::{Aside, Reject, RequestHead};
use postrider_model::{
    Action, Forward, Listener, Metadata, Redirect, Route, Target, Value, VirtualHost, WeightedCluster,
};
use postrider_router::{
    Explanation, Outcome, Surroundings, redirect_location, rewrite_host, rewrite_path, rewritten_by_redirect,
};
use postrider_upstream::{Cluster as Hosts, Random};
use postrider_worker::{
    ChainPlan, Ends, Greeting, HandlerPlan, HttpPlan, ListenerPlan, Peer, Plan, identify, request_rules,
    tell_certificate,
};

use super::filters::{SeenFilter, seen_filters};
use super::request::WireRequest;

/// The way of one request, as far as it goes.
pub struct Journey<'p> {
    pub listener: &'p Listener,
    /// `None` when no chain takes the connection: it is closed.
    pub chain: Option<&'p ChainPlan>,
    pub reading: Option<Reading>,
    pub http: Option<&'p HttpPlan>,
    pub routing: Option<Routing<'p>>,
}

/// What the codec made of the bytes.
pub enum Reading {
    Refused(Reject),
    /// The filter chain carries bytes: nothing is read.
    Bytes,
    Read(Read),
}

pub struct Read {
    pub method: String,
    pub authority: String,
    /// As the client sent it.
    pub target: String,
    /// As it is matched and forwarded.
    pub path: String,
    /// The client is sent to the path with 307, whatever the route says.
    pub redirected_to_path: bool,
}

pub struct Routing<'p> {
    pub explanation: Explanation,
    /// The routes that were tried, in order, and what came of it.
    pub tried: Vec<(&'p Route, Outcome)>,
    pub virtual_host: Option<&'p VirtualHost>,
    pub winner: Option<Winner<'p>>,
    /// In request order; those of a request without a route when there is no winner.
    pub filters: Vec<SeenFilter<'p>>,
}

pub struct Winner<'p> {
    pub route: &'p Route,
    pub end: End<'p>,
}

/// Where the route leads.
pub enum End<'p> {
    Forward { forward: &'p Forward, path: String, host: String, destinations: Vec<Destination<'p>> },
    Redirect { redirect: &'p Redirect, location: String },
    Respond { status: u16 },
}

/// A cluster that the request may go to.
pub struct Destination<'p> {
    pub name: String,
    /// Its weight and the sum of all; `None` when it is the only one.
    pub share: Option<(u32, u64)>,
    /// `None` when there is no such cluster.
    pub cluster: Option<&'p postrider_model::Cluster>,
    /// What the balancer would pick first; `None` for a cluster whose names are not resolved here, or without hosts.
    pub host: Option<String>,
}

impl<'p> Journey<'p> {
    /// Follows `request` from `listener` on; `client` is where it comes from, and `noted` the filter state when its route is
    /// chosen.
    pub fn follow(
        plan: &'p Plan,
        listener: &'p ListenerPlan,
        request: &WireRequest,
        client: SocketAddr,
        noted: &[(String, Value)],
    ) -> Journey<'p> {
        let greeting = Greeting {
            tls: request.server_name.is_some(),
            server_name: request.server_name.clone().filter(|name| !name.is_empty()),
            ..Greeting::default()
        };
        let peer = Peer {
            local: local_address(&listener.model, request.port),
            remote: Some(client),
            direct_remote: Some(client),
            greeting: &greeting,
        };
        let chain = listener
            .chain_for(&peer, &[])
            .and_then(|index| listener.chains.get(index).or(listener.default_chain.as_ref()))
            .map(AsRef::as_ref);
        let mut journey = Journey { listener: &listener.model, chain, reading: None, http: None, routing: None };
        let Some(chain) = chain else { return journey };
        let HandlerPlan::Http(http) = &chain.handler else {
            journey.reading = Some(Reading::Bytes);
            return journey;
        };
        journey.http = Some(http);
        let mut head = RequestHead::new();
        let rules = request_rules(&http.model);
        match parse_request(&request.bytes, &rules, &mut HeadScan::default(), &mut head) {
            RequestParse::Complete { facts, .. } => {
                if let Some(reject) = facts.aside.refusal() {
                    journey.reading = Some(Reading::Refused(reject));
                    return journey;
                }
                let target = lossy(head.target());
                let tls = chain.tls.is_some();
                let ends = Ends { local: peer.local, remote: peer.remote, tls };
                let (identity, mut scratch) = (&http.model.identity, Vec::new());
                let known = identify(&mut head, identity, &ends, &Random::default(), &mut scratch);
                if let Err(reject) = known {
                    journey.reading = Some(Reading::Refused(reject));
                    return journey;
                }
                let info = StreamInfo {
                    downstream_local: peer.local,
                    downstream_remote: peer.remote,
                    downstream_direct_remote: peer.remote,
                    downstream_connection_remote: peer.remote,
                    ..StreamInfo::new(Moment::default(), SystemTime::now())
                };
                tell_certificate(&mut head, identity, &info, &mut scratch);
                journey.reading = Some(Reading::Read(Read {
                    method: lossy(head.method_bytes()),
                    authority: lossy(head.authority()),
                    target,
                    path: lossy(head.path()),
                    redirected_to_path: facts.aside == Aside::RedirectToPath,
                }));
                journey.routing = Some(route(plan, http, &Asked { head: &head, noted }));
            }
            RequestParse::Reject(reject) => journey.reading = Some(Reading::Refused(reject)),
            // The bytes end with an empty line, so a head is complete or refused.
            RequestParse::Partial => {}
        }
        journey
    }
}

/// The address that the client connected to: the listener's with this port, or its first.
fn local_address(listener: &Listener, port: u16) -> Option<SocketAddr> {
    let mut all = listener.addresses.iter().filter_map(|address| match address {
        postrider_model::Address::Tcp(address) => Some(*address),
        postrider_model::Address::Unix { .. } => None,
    });
    all.clone().find(|address| address.port() == port).or_else(|| all.next())
}

/// What routes and trees look at.
struct Asked<'r> {
    head: &'r RequestHead,
    noted: &'r [(String, Value)],
}

impl Surroundings for Asked<'_> {
    fn metadata(&self) -> Option<&Metadata> {
        None
    }

    fn state(&self, name: &str) -> Option<&Value> {
        self.noted.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn certificate(&self) -> Option<bool> {
        None
    }
}

fn route<'p>(plan: &'p Plan, http: &'p HttpPlan, asked: &Asked<'_>) -> Routing<'p> {
    let table = &http.routes.table;
    // 0 is inside every share of traffic.
    let explanation = table.explain(asked.head, asked, 0);
    let virtual_host = explanation.virtual_host.map(|id| table.virtual_host(id));
    let found = explanation.winner.as_ref().map(|found| (found.route, table.route(found.route)));
    let winner = found.map(|(_, route)| route);
    Routing {
        tried: explanation.tried.iter().map(|tried| (table.route(tried.route), tried.outcome.clone())).collect(),
        filters: seen_filters(&http.model, &http.routes, virtual_host, found),
        winner: winner.map(|route| Winner { route, end: end(plan, route, asked) }),
        virtual_host,
        explanation,
    }
}

fn end<'p>(plan: &'p Plan, route: &'p Route, asked: &Asked<'_>) -> End<'p> {
    let head = asked.head;
    match &route.action {
        Action::Respond(response) => End::Respond { status: response.status },
        Action::Redirect(redirect) => {
            let mut location = Vec::new();
            let scheme = head.scheme().map_or("http", postrider_http::Scheme::as_str);
            let path = rewritten_by_redirect(redirect, Some(route), head);
            redirect_location(redirect, path.as_deref(), head, scheme, &mut location);
            End::Redirect { redirect, location: lossy(&location) }
        }
        Action::Forward(forward) => {
            let destinations = destinations(plan, forward, asked);
            let mut out = Vec::new();
            let path =
                if rewrite_path(forward, route, head.path(), &mut out) { lossy(&out) } else { lossy(head.path()) };
            let endpoint = destinations.first().and_then(|first| first.host.as_deref());
            let host = if rewrite_host(&forward.host_rewrite, head, endpoint, &mut out) {
                lossy(&out)
            } else {
                lossy(head.authority())
            };
            End::Forward { forward, path, host, destinations }
        }
    }
}

fn destinations<'p>(plan: &'p Plan, forward: &Forward, asked: &Asked<'_>) -> Vec<Destination<'p>> {
    let head = asked.head;
    match &forward.target {
        Target::Cluster(name) => vec![destination(plan, name, None)],
        Target::Weighted(clusters) => {
            let sum = clusters.iter().map(|cluster| u64::from(cluster.weight)).sum();
            let named = |cluster: &WeightedCluster| match &cluster.header {
                None => cluster.cluster.clone(),
                Some(header) => head.fields.get_name(header.as_bytes()).map(lossy).unwrap_or_default(),
            };
            let each = |cluster| destination(plan, &named(cluster), Some((cluster.weight, sum)));
            clusters.iter().map(each).collect()
        }
        Target::Header(name) => {
            let value = head.fields.get_name(name.as_bytes());
            value.map(|value| destination(plan, &lossy(value), None)).into_iter().collect()
        }
        Target::Plugin(specifier) => {
            let chooser = crate::config::filters().find_chooser(&specifier.kind);
            let chosen = chooser.and_then(|build| build(&specifier.config).ok()?(head, &Idle(plan, asked)));
            chosen.map(|name| destination(plan, &name, None)).into_iter().collect()
        }
    }
}

/// The configuration's clusters, without any traffic.
struct Idle<'p>(&'p Plan, &'p Asked<'p>);

impl postrider_filter_api::Clusters for Idle<'_> {
    fn load(&self, name: &str) -> Option<postrider_filter_api::ClusterLoad> {
        let known = self.0.clusters.iter().any(|cluster| &*cluster.name == name);
        known.then(postrider_filter_api::ClusterLoad::default)
    }

    fn state(&self, name: &str) -> Option<&Value> {
        self.1.state(name)
    }
}

fn destination<'p>(plan: &'p Plan, name: &str, share: Option<(u32, u64)>) -> Destination<'p> {
    let cluster = plan.clusters.iter().find(|cluster| &*cluster.name == name);
    let host = cluster.and_then(|cluster| {
        let random = Random::default();
        // As if every host passed its checks.
        let rules = postrider_model::HealthRules { checks: Vec::new(), ..cluster.model.health.clone() };
        let hosts = Hosts::<()>::new(cluster.model.balancing.clone(), rules, &cluster.initial, &random);
        hosts.pick(&random).map(|host| host.endpoint.address.to_string())
    });
    Destination { name: name.to_owned(), share, cluster: cluster.map(|cluster| &*cluster.model), host }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
