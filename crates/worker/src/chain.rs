//! A filter chain as one worker runs it: its routes may change under its connections.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use postrider_filter_api::{Filter, Guard, Hooks, NetworkFilter, Place, RouteBlocks, StreamInfo, Surroundings};
use postrider_http::{EscapedSlashes, FieldLine, HeadLimits, HeaderId, PathOptions, RequestRules, Underscores};
use postrider_model::{AccessLog, Codec, Direction, HttpConnection, LogOutput, NameForm, TcpProxy};
use postrider_telemetry::stats::sets::{group, http, http_routes, listener_http, tcp, watched_route};
use postrider_telemetry::{Block, info};
use postrider_tls::ServerTls;

use crate::cluster::{Cluster, stat_name};
use crate::cost::Cost;
use crate::http::{LocalReplies, counts};
use crate::io::Connections;
use crate::limit::Limit;
use crate::listener::{Arrival, Counted, of_chain};
use crate::log::Logs;
use crate::plain;
use crate::plan::{ChainPlan, FilterChainPlan, FilterPlan, HandlerPlan, RoutesPlan, UpstreamFilters, WatchPlan};
use crate::trace::{HttpTracing, spawns};
use crate::worker::Worker;

pub(crate) struct Chain {
    /// Replaced with the routes: what it was made from may hold the code of plugins that nobody else needs any more.
    pub(crate) plan: RefCell<Arc<ChainPlan>>,
    /// Of the plan, and of all that take its place.
    in_use: Arc<AtomicUsize>,
    /// `None` when it has none.
    pub(crate) name: Option<Rc<str>>,
    pub(crate) handler: Handler,
    pub(crate) limits: Vec<Limit>,
    /// What sees a connection before it is served, in the order of the configuration.
    pub(crate) guards: Vec<Watch>,
    /// Bytes that one read from a client may bring.
    pub(crate) buffer_limit: usize,
    /// What new connections agree on; `None` for plain ones. Replaced when certificates change.
    pub(crate) tls: RefCell<Option<Arc<ServerTls>>>,
    /// Its connections end after the request that they are at.
    pub(crate) draining: Cell<bool>,
    /// For good: the configuration dropped this chain.
    dropped: Cell<bool>,
    pub(crate) connections: Rc<Connections>,
    /// What its streams may ask about.
    surroundings: Rc<dyn Surroundings>,
}

/// A filter in front of the one that serves.
pub(crate) enum Watch {
    Guard(Rc<dyn Guard>),
    /// It sees the bytes as well.
    Bytes(Rc<dyn NetworkFilter>),
}

pub(crate) enum Handler {
    Http(Http),
    Tcp(Tcp),
    Echo,
    Say(Arc<[u8]>),
    /// Filters of its bytes.
    Filters,
}

pub(crate) struct Http {
    pub(crate) model: Arc<HttpConnection>,
    pub(crate) rules: RequestRules,
    pub(crate) stats: Rc<Block>,
    pub(crate) listener_stats: Rc<Block>,
    /// The listener takes requests under any pressure.
    pub(crate) welcome: Cell<bool>,
    /// How routes are found, where that is measured.
    pub(crate) route_stats: Option<Rc<Block>>,
    pub(crate) logs: Logs,
    /// Those of the router, with a record of every try.
    pub(crate) try_logs: Logs,
    /// There are such logs, or spans of tries, so that what becomes of each try is to be known.
    pub(crate) logs_tries: bool,
    /// A filter or a log may want something of connections: see [`postrider_filter_api::Factory::uses_connection`].
    pub(crate) notes_connections: Cell<bool>,
    /// Somebody logs requests or the connections that they came on, or is told of their spans.
    pub(crate) notes_ends: Cell<bool>,
    /// Requests are logged before their end, too, or traced.
    pub(crate) notes_begins: bool,
    /// A log tells bytes on connections.
    pub(crate) meters: bool,
    /// Somebody is told how long routes are looked for.
    pub(crate) times_lookups: bool,
    /// That, or somebody watches which routes are found: see [`Worker::routes_watched_until`].
    pub(crate) notes_lookups: Cell<bool>,
    /// `None`: nothing is traced.
    pub(crate) tracing: Option<Box<HttpTracing>>,
    pub(crate) stat_prefix: String,
    pub(crate) server: Option<FieldLine>,
    /// Heads over HTTP/1 are looked at once more when they were read: their names go on as they came, or upgrades are
    /// ignored.
    pub(crate) notes_heads: bool,
    /// Forwarding headers are treated as by default, so that most requests need no more than a look at them.
    pub(crate) identifies_as_usual: bool,
    /// Connections end by their age, or with so many requests.
    pub(crate) bounds_connections: bool,
    /// A log tells fields that are known when the head is written.
    pub(crate) notes_answers: bool,
    /// Answers get more than what all answers get, or that is done.
    pub(crate) shapes_answers: bool,
    /// What becomes of answers of our own, where something does.
    pub(crate) local_replies: Option<Box<LocalReplies>>,
    /// Somebody may ask what any route is called: a log, a filter, the format of local replies.
    pub(crate) names_matter: bool,
    routes: RefCell<Rc<Routes>>,
}

pub(crate) struct Tcp {
    pub(crate) model: Arc<TcpProxy>,
    pub(crate) stats: Rc<Block>,
    pub(crate) logs: Logs,
}

/// The filter chain of requests without a route.
pub(crate) const ROUTELESS: u32 = 0;

/// Chains of filters, each made when it is first wanted.
type Made = Box<[OnceCell<Rc<Filters>>]>;

/// A route table with what this worker made of it so far.
pub(crate) struct Routes {
    pub(crate) plan: Arc<RoutesPlan>,
    chains: Made,
    names: Box<[OnceCell<Names>]>,
    clusters: Box<[Resolved]>,
    /// What requests count in beside their clusters, by prefix.
    groups: RefCell<HashMap<Arc<str>, Rc<Block>>>,
    /// What routes count while somebody watches.
    watched: OnceCell<RouteBlocks>,
    /// As [`RoutesPlan::upstream`], by chain.
    upstream: Box<[Made]>,
    /// What filters made when they came into force.
    _arrived: Box<[Rc<dyn Any>]>,
    /// What they made before.
    _ahead: Vec<Rc<dyn Any>>,
    /// See [`Routes::begin_counting`].
    counting: Vec<Rc<dyn Filter>>,
}

/// What logs call a route; a copy of this worker's own, so that counting its users shares no cache line.
pub(crate) struct Names {
    pub(crate) route: Option<Rc<str>>,
    pub(crate) virtual_host: Rc<str>,
}

/// The cluster that a route led to last, and when that was looked up.
#[derive(Default)]
struct Resolved {
    epoch: Cell<u64>,
    cluster: RefCell<Option<Rc<Cluster>>>,
}

/// The filters that a route sees, in request order.
#[derive(Default)]
pub(crate) struct Filters {
    pub(crate) all: Vec<Placed>,
    /// What any of them wants.
    pub(crate) hooks: Hooks,
}

/// A filter in its chain.
#[derive(Clone)]
pub(crate) struct Placed {
    /// Its place in the configuration: the same filter on another route has the same.
    pub(crate) slot: u32,
    pub(crate) filter: Rc<dyn Filter>,
    pub(crate) hooks: Hooks,
    /// `None` for a plugin: its host counts.
    pub(crate) cost: Option<Rc<Cost>>,
}

impl Chain {
    pub(crate) fn new(
        plan: &Arc<ChainPlan>,
        listener: &str,
        buffer_limit: u32,
        surroundings: Rc<dyn Surroundings>,
        worker: &Rc<Worker>,
    ) -> Rc<Chain> {
        let handler = match &plan.handler {
            HandlerPlan::Http(http) => {
                Handler::Http(Http::new(&http.model, &http.routes, listener, buffer_limit as usize, worker))
            }
            HandlerPlan::Tcp(tcp) => Handler::Tcp(Tcp {
                model: tcp.clone(),
                stats: worker.stats.block(&tcp::SET, &stat_name(&tcp.stat_prefix)),
                logs: Logs::new(&tcp.access_log, worker),
            }),
            HandlerPlan::Echo => Handler::Echo,
            HandlerPlan::Say(said) => Handler::Say(said.clone()),
            HandlerPlan::Filters => Handler::Filters,
        };
        let surroundings = match plan.model.metadata.clone() {
            Some(metadata) => of_chain(surroundings, metadata),
            None => surroundings,
        };
        let limits = plan.model.limits.iter().zip(&plan.quotas);
        let limits = limits.filter_map(|(limit, quota)| Limit::new(limit, quota, worker)).collect();
        let buffer_limit = buffer_limit as usize;
        let place = worker.place(listener, buffer_limit);
        let guards = plan.guards.iter().map(|plan| match plan {
            WatchPlan::Guard(guard) => Watch::Guard(guard.guard(&place)),
            WatchPlan::Bytes(filter) => Watch::Bytes(filter.network_filter(&place)),
        });
        let guards = guards.collect();
        let name = (!plan.name.is_empty()).then(|| (*plan.name).into());
        let tls = RefCell::new(plan.tls.clone());
        plan.in_use.fetch_add(1, Relaxed);
        Rc::new(Chain {
            plan: RefCell::new(plan.clone()),
            in_use: plan.in_use.clone(),
            name,
            handler,
            limits,
            guards,
            buffer_limit,
            tls,
            draining: Cell::new(false),
            dropped: Cell::new(false),
            connections: Rc::default(),
            surroundings,
        })
    }

    /// Lets a stream ask about its listener. Most streams were told before: on one connection, each follows another.
    #[inline]
    pub(crate) fn surround(&self, info: &mut StreamInfo) {
        let known = info.surroundings.as_ref();
        if !known.is_some_and(|known| std::ptr::addr_eq(Rc::as_ptr(known), Rc::as_ptr(&self.surroundings))) {
            info.surroundings = Some(self.surroundings.clone());
        }
    }

    /// Starts the task of a connection.
    pub(crate) fn start(self: Rc<Self>, worker: Rc<Worker>, mut arrival: Arrival) {
        self.note_connection(&mut arrival);
        match &self.handler {
            Handler::Http(manager) if !manager.begins_with_http2(&arrival) => {
                counts::begin_connection(&manager.stats, arrival.tls.is_some());
                tokio::task::spawn_local(crate::http::serve(worker, self.clone(), arrival, 0));
            }
            Handler::Http(_) | Handler::Tcp(_) | Handler::Echo | Handler::Say(_) | Handler::Filters => {
                tokio::task::spawn_local(self.serve(worker, arrival));
            }
        }
    }

    /// Serves a connection to its end.
    pub(crate) async fn serve(self: Rc<Self>, worker: Rc<Worker>, mut arrival: Arrival) {
        self.note_connection(&mut arrival);
        if let Handler::Http(manager) = &self.handler {
            counts::begin_connection(&manager.stats, arrival.tls.is_some());
        }
        match &self.handler {
            Handler::Http(http) if http.begins_with_http2(&arrival) => {
                // Boxed, as below: it is larger than what most connections need.
                Box::pin(crate::h2::serve(worker, self.clone(), arrival)).await;
            }
            Handler::Http(_) => crate::http::serve(worker, self.clone(), arrival, 0).await,
            Handler::Tcp(_) => crate::tcp::serve(worker, self.clone(), arrival).await,
            Handler::Echo => plain::echo(worker, self.buffer_limit, arrival).await,
            Handler::Say(said) => plain::say(worker, said, self.buffer_limit, arrival).await,
            Handler::Filters => plain::hold(worker, arrival).await,
        }
    }

    /// Where filters may leave something for later requests of a connection, or ask when it began, it has room for that.
    fn note_connection(&self, arrival: &mut Arrival) {
        if let Handler::Http(http) = &self.handler
            && http.notes_connections.get()
        {
            let began = arrival.counted.as_ref().map(Counted::accepted);
            Rc::make_mut(arrival.noted.get_or_insert_default()).began = began;
        }
    }

    /// Its listener takes what comes to the workload.
    pub(crate) fn is_inbound(&self) -> bool {
        self.surroundings.direction() == Direction::Inbound
    }

    /// Connections end after the request that they are at.
    pub(crate) fn drain(&self) {
        self.dropped.set(true);
        self.draining.set(true);
    }

    /// The configuration has it no more. What is left of its connections when the time for draining is over ends then, as
    /// in Envoy: nobody is served for ever by rules that were taken back.
    pub(crate) fn drop_out(&self, worker: &Worker) {
        self.drain();
        let (connections, time, name) = (Rc::downgrade(&self.connections), worker.drain_time, self.name.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(time).await;
            let ended = connections.upgrade().map_or(0, |connections| connections.end());
            if ended > 0 {
                let name = name.as_deref().unwrap_or_default();
                info!(Connection, "ended what was left of a dropped filter chain \"{name}\": {ended} connections");
            }
        });
    }

    /// Connections are to go while the proxy is not healthy.
    pub(crate) fn fail_health(&self, fails: bool) {
        self.draining.set(fails || self.dropped.get());
    }

    /// Whether its listener takes requests under any pressure.
    pub(crate) fn welcome(&self, always: bool) {
        if let Handler::Http(http) = &self.handler {
            http.welcome.set(always);
        }
    }

    /// Somebody watches which routes are found.
    pub(crate) fn watch_routes(&self) {
        if let Handler::Http(http) = &self.handler {
            http.notes_lookups.set(true);
        }
    }

    /// Its listener logs connections.
    pub(crate) fn is_recorded(&self) {
        if let Handler::Http(http) = &self.handler {
            http.notes_ends.set(true);
        }
    }

    /// Goes on with the routes and certificates of `plan`, which differs in nothing else.
    pub(crate) fn replace_routes(&self, plan: &Arc<ChainPlan>, worker: &Rc<Worker>) {
        self.plan.borrow_mut().clone_from(plan);
        self.tls.borrow_mut().clone_from(&plan.tls);
        if let (Handler::Http(http), HandlerPlan::Http(new)) = (&self.handler, &plan.handler)
            && !Arc::ptr_eq(&http.routes.borrow().plan, &new.routes)
        {
            let place = place(worker, &http.model, &http.stat_prefix, self.buffer_limit);
            let routes = Routes::new(new.routes.clone(), worker, &place);
            *http.routes.borrow_mut() = Rc::new(routes);
            // Other code of a plugin may begin to ask.
            if new.routes.every_factory().any(|factory| factory.uses_connection()) {
                http.notes_connections.set(true);
            }
        }
    }
}

/// Where the filters of a connection manager run.
pub(crate) fn place<'p>(
    worker: &'p Worker,
    model: &HttpConnection,
    stat_prefix: &'p str,
    buffer_limit: usize,
) -> Place<'p> {
    Place { head_limits: Some(head_limits(model)), ..worker.place(stat_prefix, buffer_limit) }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.in_use.fetch_sub(1, Relaxed);
    }
}

impl Http {
    fn new(
        model: &Arc<HttpConnection>,
        routes: &Arc<RoutesPlan>,
        listener: &str,
        buffer_limit: usize,
        worker: &Rc<Worker>,
    ) -> Http {
        let prefix = stat_name(&model.stat_prefix);
        let meters = model.access_log.iter().chain(&model.router.upstream_log).any(AccessLog::tells_wire_bytes);
        if meters {
            worker.meters.set(true);
        }
        let may_ask = |log: &AccessLog| matches!(log.output, LogOutput::Plugin(_));
        let notes_connections = routes.every_factory().any(|factory| factory.uses_connection())
            || model.access_log.iter().chain(&model.router.upstream_log).any(may_ask);
        let routes = Routes::new(routes.clone(), worker, &place(worker, model, &prefix, buffer_limit));
        let times_lookups = model.measures_routes || model.access_log.iter().any(AccessLog::tells_lookup_time);
        let notes_answers = model.access_log.iter().any(AccessLog::tells_written_fields);
        // Filters may hear of them where nothing else is written.
        let has_moments = model.log_moments.start || model.log_moments.every.is_some();
        Http {
            rules: rules(model),
            stats: worker.stats.block(&http::SET, &prefix),
            welcome: Cell::new(false),
            listener_stats: worker.stats.block(&listener_http::SET, &format!("{listener}.http.{prefix}")),
            route_stats: model.measures_routes.then(|| worker.stats.block(&http_routes::SET, &prefix)),
            logs: Logs::new(&model.access_log, worker),
            try_logs: Logs::new(&model.router.upstream_log, worker),
            logs_tries: !model.router.upstream_log.is_empty() || spawns(model),
            tracing: HttpTracing::new(model, &prefix, worker),
            notes_connections: Cell::new(notes_connections),
            routes: RefCell::new(Rc::new(routes)),
            stat_prefix: prefix,
            server: FieldLine::new(HeaderId::Server, model.identity.server_name.as_bytes()).ok(),
            notes_ends: Cell::new(!model.access_log.is_empty() || model.tracing.is_some() || has_moments),
            notes_begins: model.tracing.is_some() || has_moments,
            meters,
            times_lookups,
            notes_lookups: Cell::new(times_lookups),
            names_matter: !model.access_log.is_empty()
                || model.tracing.is_some()
                || !model.router.upstream_log.is_empty()
                || !model.filters.is_empty()
                || !model.upgrade_filters.is_empty()
                || model.identity.local_replies.is_some(),
            identifies_as_usual: crate::http::is_usual(&model.identity),
            bounds_connections: model.limits.max_requests_per_connection.is_some()
                || model.timeouts.max_connection_duration.is_some(),
            notes_answers,
            shapes_answers: notes_answers
                || model.identity.via.is_some()
                || model.identity.proxy_status.is_some()
                || model.http1.names == NameForm::ProperCase,
            notes_heads: matches!(model.http1.names, NameForm::AsReceived { .. })
                || !model.http1.ignored_upgrades.is_empty(),
            local_replies: model.identity.local_replies.as_deref().map(LocalReplies::compile),
            model: model.clone(),
        }
    }

    /// The connection speaks HTTP/2 for certain.
    fn begins_with_http2(&self, arrival: &Arrival) -> bool {
        match self.model.codec {
            Codec::Http1 => false,
            Codec::Http2 => true,
            Codec::Auto => arrival.tls.as_ref().is_some_and(|tls| tls.protocol.as_deref() == Some("h2")),
        }
    }

    /// The routes in force; a request keeps them to its end.
    pub(crate) fn routes(&self) -> Rc<Routes> {
        self.routes.borrow().clone()
    }
}

impl Routes {
    fn new(plan: Arc<RoutesPlan>, worker: &Worker, place: &Place<'_>) -> Routes {
        let of_router = plan.upstream.iter().flat_map(|filters| &filters.factories);
        let arrived = plan.factories.iter().chain(of_router).filter_map(|factory| factory.arrive(place)).collect();
        let cells = |filters: &UpstreamFilters| filters.chains.iter().map(|_| OnceCell::new()).collect();
        let mut routes = Routes {
            _arrived: arrived,
            _ahead: worker.ahead.take(&plan),
            counting: Vec::new(),
            chains: plan.filter_chains.iter().map(|_| OnceCell::new()).collect(),
            names: plan.routes.iter().map(|_| OnceCell::new()).collect(),
            clusters: (0..plan.routes.len()).map(|_| Resolved::default()).collect(),
            groups: RefCell::default(),
            watched: OnceCell::new(),
            upstream: plan.upstream.iter().map(cells).collect(),
            plan,
        };
        routes.begin_counting(place);
        routes
    }

    /// What filters count is shown before the first request. Plugins are left out: they are dear to make.
    fn begin_counting(&mut self, place: &Place<'_>) {
        let Some(plan) = self.plan.filter_chains.get(ROUTELESS as usize) else { return };
        let native = |plan: &&FilterPlan| plan.factory.plugin().is_none();
        if plan.0.iter().all(|plan| native(&plan)) {
            self.filters(ROUTELESS, place);
        } else {
            let natives = plan.0.iter().filter(native);
            self.counting = natives.map(|plan| plan.factory.filter(&plan.configs, place)).collect();
        }
    }

    pub(crate) fn filters(&self, chain: u32, place: &Place<'_>) -> Option<&Rc<Filters>> {
        let plan = self.plan.filter_chains.get(chain as usize)?;
        Some(
            self.chains
                .get(chain as usize)?
                .get_or_init(|| make(plan, |plan| plan.factory.filter(&plan.configs, place), place)),
        )
    }

    /// What requests of this route pass on their way to `cluster`; `of_router` is where filters of the router run.
    #[cold]
    pub(crate) fn upstream_filters(
        &self,
        cluster: &Cluster,
        (route, weighted): (u32, Option<usize>),
        of_router: &Place<'_>,
        worker: &Worker,
    ) -> Option<Rc<Filters>> {
        let of = |name: Option<&str>| self.plan.upstream.iter().position(|filters| filters.cluster.as_deref() == name);
        let at = of(Some(&cluster.name)).or_else(|| of(None))?;
        let filters = self.plan.upstream.get(at)?;
        let route = self.plan.routes.get(route as usize)?;
        let own = weighted.and_then(|index| route.weighted_upstream.get(index));
        let chain = own.unwrap_or(&route.upstream).chain(at) as usize;
        let plan = filters.chains.get(chain).filter(|plan| !plan.0.is_empty())?;
        let made = self.upstream.get(at)?.get(chain)?.get_or_init(|| match filters.cluster {
            Some(_) => {
                make_upstream(plan, &worker.place(&cluster.filter_prefix(), cluster.plan.model.buffer_limit as usize))
            }
            None => make_upstream(plan, of_router),
        });
        Some(made.clone())
    }

    pub(crate) fn names(&self, route: u32) -> Option<&Names> {
        let plan = self.plan.routes.get(route as usize)?;
        Some(self.names.get(route as usize)?.get_or_init(|| Names {
            route: plan.facts.name.as_deref().map(Rc::from),
            virtual_host: (*plan.facts.virtual_host).into(),
        }))
    }

    /// What the group with this prefix counts.
    pub(crate) fn group(&self, prefix: &Arc<str>, worker: &Worker) -> Rc<Block> {
        let mut groups = self.groups.borrow_mut();
        let block = || worker.stats.block(&group::SET, prefix);
        groups.entry(prefix.clone()).or_insert_with(block).clone()
    }

    /// What a route counts while somebody watches; `None` is what found none.
    #[cold]
    pub(crate) fn watched(&self, route: Option<u32>, worker: &Worker) -> Rc<Block> {
        let plan = route.and_then(|route| self.plan.routes.get(route as usize));
        let make = || RouteBlocks::new(&worker.stats, &watched_route::SET, "route".to_owned());
        self.watched.get_or_init(make).of(plan.map(|plan| &plan.facts))
    }

    /// The cluster that `route` names; looked up again only when the clusters changed since.
    #[inline(always)]
    pub(crate) fn cluster(&self, route: u32, name: &str, worker: &Worker) -> Option<Rc<Cluster>> {
        let resolved = self.clusters.get(route as usize)?;
        if resolved.epoch.replace(worker.cluster_epoch.get()) != worker.cluster_epoch.get() {
            *resolved.cluster.borrow_mut() = worker.cluster(name);
        }
        resolved.cluster.borrow().clone()
    }
}

/// Makes the filters of a chain between the router and its hosts.
fn make_upstream(plan: &FilterChainPlan, place: &Place<'_>) -> Rc<Filters> {
    make(plan, |plan| plan.factory.upstream_filter(&plan.configs, place), place)
}

/// Makes the filters of a chain, each by `filter`.
fn make(plan: &FilterChainPlan, filter: impl Fn(&FilterPlan) -> Rc<dyn Filter>, place: &Place<'_>) -> Rc<Filters> {
    let placed = plan.0.iter().map(|plan| {
        let filter = filter(plan);
        let cost = plan.factory.plugin().is_none().then(|| Rc::new(Cost::new(place.stats, &plan.name)));
        Placed { slot: plan.slot, hooks: filter.hooks(), filter, cost }
    });
    Rc::new(Filters::new(placed.collect()))
}

impl Filters {
    pub(crate) fn new(all: Vec<Placed>) -> Filters {
        let hooks = all.iter().fold(Hooks::default(), |hooks, placed| merge(hooks, placed.hooks));
        Filters { all, hooks }
    }

    pub(crate) fn looks_at_responses(&self) -> bool {
        self.hooks.response_headers || self.hooks.response_body || self.hooks.response_trailers
    }

    /// These filters as another route has them: each in its place, whether or not the other route has it at all.
    pub(crate) fn on_route(&self, other: &Filters) -> Filters {
        let seen = |placed: &Placed| other.all.iter().find(|other| other.slot == placed.slot).unwrap_or(placed).clone();
        Filters::new(self.all.iter().map(seen).collect())
    }
}

fn merge(a: Hooks, b: Hooks) -> Hooks {
    Hooks {
        request_headers: a.request_headers || b.request_headers,
        request_body: a.request_body || b.request_body,
        request_trailers: a.request_trailers || b.request_trailers,
        response_headers: a.response_headers || b.response_headers,
        response_body: a.response_body || b.response_body,
        response_trailers: a.response_trailers || b.response_trailers,
        complete: a.complete || b.complete,
        keeps_bodies: a.keeps_bodies && b.keeps_bodies,
        declares_length: a.declares_length || b.declares_length,
    }
}

fn head_limits(model: &HttpConnection) -> HeadLimits {
    HeadLimits { max_bytes: model.limits.max_head_bytes as usize, max_fields: model.limits.max_headers as usize }
}

/// How the codec reads requests here.
pub fn rules(model: &HttpConnection) -> RequestRules {
    use postrider_model::{EscapedSlashes as Slashes, Underscores as Names};
    RequestRules {
        limits: head_limits(model),
        path: PathOptions {
            normalize: model.path.normalize,
            merge_slashes: model.path.merge_slashes,
            strict: model.path.strict,
            escaped_slashes: match model.path.escaped_slashes {
                Slashes::Keep => EscapedSlashes::Keep,
                Slashes::Reject => EscapedSlashes::Reject,
                Slashes::UnescapeAndRedirect => EscapedSlashes::UnescapeRedirect,
                Slashes::UnescapeAndForward => EscapedSlashes::UnescapeForward,
            },
        },
        underscores: match model.http1.underscores {
            Names::RejectLookalikes => Underscores::RejectLookalikes,
            Names::Allow => Underscores::Allow,
            Names::RejectAny => Underscores::Reject,
            Names::DropAny => Underscores::Drop,
        },
        accept_http_10: model.http1.accept_http_10,
        default_host_for_http_10: model.http1.default_host_for_http_10.as_ref().map(|host| host.as_bytes().into()),
        allow_custom_methods: model.http1.allow_custom_methods,
        allow_chunked_length: false,
        refuse_absolute_targets: model.http1.refuses_absolute_targets,
        spare_connections: model.http1.spares_connections,
        keep_proxy_header: false,
    }
}
