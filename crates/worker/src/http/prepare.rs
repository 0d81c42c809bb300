//! From a request head to a decision: identity, route, filters, and what the route wants done.

use std::borrow::Cow;
use std::rc::Rc;

use postrider_filter_api::{BufferLimit, ClusterLoad, Clusters, Flags, LocalReply, Place, StreamInfo};
use postrider_http::{Aside, HeaderId, Method, Reject, RequestHead, Scheme};
use postrider_model::{
    Action, DirectResponse, EarlyEdits, Forward, HeaderMutation, Lot, Metadata, Redirect, RedirectPath, RequireTls,
    ResponseBody, SchemeOfPort, StringMatch, Target, Value, WeightedCluster,
};
use postrider_router::{Surroundings, redirect_location, rewritten_by_redirect};
use postrider_telemetry::stats::sets::http as stat;

use super::Connection;
use super::client_certificate::{concerns, tell_certificate};
use super::exchange::{Exchange, Pooling};
use super::identity::{Ends, Identified, SCHEMELESS, identify, identify_usual};
use super::{attempts, edits};
use crate::chain::{self, Http, ROUTELESS, Routes};
use crate::cluster::Cluster;
use crate::format::Absent;
use crate::worker::Worker;

/// Where a request goes.
pub(super) struct Destination {
    pub(super) routes: Rc<Routes>,
    pub(super) route: u32,
    pub(super) cluster: Rc<Cluster>,
}

impl Exchange {
    /// Forwarding headers and the request id, as the connection manager is told to treat them; `false` when the request
    /// is refused for what it does not say.
    pub(super) fn identify(&mut self, connection: &mut Connection, http: &Http) -> bool {
        let tls = connection.tls.is_some();
        let ids = http.model.identity.generate_request_id;
        if http.identifies_as_usual && identify_usual(&mut self.request, tls, ids, &connection.worker.random) {
            self.internal = false;
            return true;
        }
        self.identify_thoroughly(connection, http)
    }

    #[inline(never)]
    fn identify_thoroughly(&mut self, connection: &mut Connection, http: &Http) -> bool {
        if let Some(early) = &http.model.identity.early {
            self.edit_early(connection, early);
        }
        let of_port = http.model.identity.scheme_of_port.as_ref().and_then(|ports| meant(ports, connection));
        let tls = of_port.unwrap_or(connection.tls.is_some());
        let peer = Ends { local: connection.local, remote: connection.remote, tls };
        let random = &connection.worker.random;
        let found = identify(&mut self.request, &http.model.identity, &peer, random, &mut self.scratch);
        match found {
            Ok(Identified { client, internal }) => {
                self.info.downstream_remote = client.or(self.info.downstream_remote);
                self.internal = internal;
            }
            Err(reject) => {
                self.refuse_unknown(connection, http, reject);
                return false;
            }
        }
        if concerns(&self.request, &http.model.identity) {
            tell_certificate(&mut self.request, &http.model.identity, &self.info, &mut self.scratch);
        }
        if http.model.identity.early.as_ref().is_some_and(|early| early.names_proxy) {
            self.name_proxy(connection);
        }
        true
    }

    /// The request does not say who its client is, or has no scheme.
    #[cold]
    fn refuse_unknown(&mut self, connection: &mut Connection, http: &Http, reject: Reject) {
        if reject == SCHEMELESS {
            http.stats.inc(stat::RQ_TOTAL);
            http.stats.inc(stat::NO_ROUTE);
            self.fail(Flags::NO_ROUTE_FOUND, "");
        } else {
            http.stats.inc(stat::DOWNSTREAM_RQ_REJECTED_VIA_IP_DETECTION);
        }
        let Reject { status, details } = reject;
        self.reply(connection, http, LocalReply { status, details: details.into(), ..LocalReply::default() });
    }

    /// What is done before anybody looks at the request.
    #[cold]
    #[inline(never)]
    fn edit_early(&mut self, connection: &Connection, early: &EarlyEdits) {
        let now = connection.worker.clock.wall(self.info.started);
        for edit in &early.headers {
            // Values are taken while the request can still be read as a whole.
            let values = match edit {
                HeaderMutation::Edits(edits) => edits::evaluate(edits, &self.format_context(&[], now)),
                HeaderMutation::RemoveMatching(_) => Vec::new(),
            };
            edits::mutate(edit, &mut self.request.fields, |_| values);
        }
    }

    /// Tells upstreams which proxy asks.
    #[cold]
    #[inline(never)]
    fn name_proxy(&mut self, connection: &Connection) {
        let node = connection.worker.node.borrow().clone();
        let fields = &mut self.request.fields;
        let _ = fields.set(HeaderId::XEnvoyDownstreamServiceCluster, node.cluster.as_bytes());
        if fields.get(HeaderId::UserAgent).is_none_or(<[u8]>::is_empty) {
            let _ = fields.set(HeaderId::UserAgent, node.cluster.as_bytes());
        }
        if !node.id.is_empty() {
            let _ = fields.set(HeaderId::XEnvoyDownstreamServiceNode, node.id.as_bytes());
        }
    }

    /// Finds the route and the filters that it sees.
    #[inline(always)]
    pub(super) fn find_route(&mut self, connection: &Connection, http: &Http) {
        let routes = http.routes();
        let mut chain = self.choose_route(&routes, connection, http);
        if !routes.plan.upgrades.is_empty() {
            chain = self.upgraded_chain(&routes, http).unwrap_or(chain);
        }
        if !self.internal {
            for name in &routes.plan.table.source().internal_only_headers {
                self.request.fields.remove_name(name.as_bytes());
            }
        }
        let place = place(connection, http);
        self.filters = routes.filters(chain, &place).filter(|filters| !filters.all.is_empty()).cloned();
        self.routes = Some(routes);
        if self.filters.is_some() {
            self.prepare_states();
            self.raise_request_limit(connection);
        }
    }

    /// A route may let filters hold more of a request than its connection does.
    #[inline]
    fn raise_request_limit(&mut self, connection: &Connection) {
        let attempts = self.route_plan().and_then(|plan| plan.attempts.as_ref());
        let Some(limit) = attempts.and_then(|attempts| attempts.model.body_limit) else { return };
        if limit > self.info.buffer_limit.bytes(true, connection.chain.buffer_limit) as u64 {
            self.info.buffer_limit = BufferLimit::Request(u32::try_from(limit).unwrap_or(u32::MAX));
        }
    }

    /// A request that the codec refused has no route, and no filter sees it. Its answer they do.
    #[cold]
    pub(super) fn find_filters_of_answer(&mut self, connection: &Connection, http: &Http) {
        let routes = http.routes();
        let filters = routes.filters(ROUTELESS, &place(connection, http));
        self.filters = filters.filter(|filters| filters.looks_at_responses()).cloned();
        if self.filters.is_some() {
            self.prepare_states();
        }
    }

    /// A filter changed what the route depends on. The chain keeps its filters, as the new route has them.
    #[cold]
    pub(super) fn find_route_again(&mut self, connection: &Connection, http: &Http) {
        self.info.route_is_stale = false;
        let (Some(routes), None) = (self.routes.clone(), &self.cluster) else { return };
        self.info.route_name = None;
        self.info.virtual_host = None;
        self.info.routeless_host = None;
        self.info.upstream_cluster = None;
        self.weighted = None;
        let mut chain = self.choose_route(&routes, connection, http);
        if !routes.plan.upgrades.is_empty() {
            chain = self.upgraded_chain(&routes, http).unwrap_or(chain);
        }
        let place = place(connection, http);
        if let (Some(filters), Some(there)) = (&self.filters, routes.filters(chain, &place)) {
            self.filters = Some(Rc::new(filters.on_route(there)));
        }
        self.raise_request_limit(connection);
        if self.trace.is_some() {
            self.trace_again(connection, http);
        }
    }

    /// Matches the request; answers the number of the filter chain that it sees.
    #[inline]
    fn choose_route(&mut self, routes: &Routes, connection: &Connection, http: &Http) -> u32 {
        let worker = &connection.worker;
        let begun = http.notes_lookups.get().then(|| worker.clock.exact());
        let [share, _] = &mut self.chances;
        let random = || *share.get_or_insert_with(|| worker.random.next());
        let found = routes.plan.table.find_in(&self.request, &OfStream(&self.info), random);
        self.info.route_lookups += 1;
        self.route = found.as_ref().map(|found| found.route);
        if let Some(begun) = begun {
            self.note_lookup(begun, routes, connection, http);
        }
        let plan = self.route.and_then(|route| routes.plan.routes.get(route as usize));
        let mut chain = ROUTELESS;
        if let (Some(plan), Some(route)) = (plan, self.route) {
            if let Some(names) = routes.names(route).filter(|_| http.names_matter || plan.tells_names()) {
                self.info.route_name.clone_from(&names.route);
                self.info.virtual_host = Some(names.virtual_host.clone());
            }
            chain = plan.filters;
            if let Action::Forward(forward) = &routes.plan.table.route(route).action {
                match &forward.target {
                    Target::Cluster(_) => {}
                    Target::Weighted(clusters) => {
                        let ticket = match &forward.lot {
                            Lot::Random => None,
                            Lot::Header(name) => ticket(&self.request, name),
                            Lot::Hash => self.hash_alone(&forward.hash_policies),
                        };
                        let [_, lot] = &mut self.chances;
                        self.ticket = ticket.unwrap_or_else(|| *lot.get_or_insert_with(|| worker.random.next()));
                        self.weighted = draw(clusters, self.ticket);
                        let own = self.weighted.and_then(|index| plan.weighted_filters.get(index));
                        chain = own.copied().unwrap_or(chain);
                        if self.names_cluster(forward) {
                            self.settle_cluster(connection, routes, route, forward);
                        }
                    }
                    Target::Header(_) | Target::Plugin(_) => self.settle_cluster(connection, routes, route, forward),
                }
            }
        } else {
            self.note_routeless_host(routes);
        }
        chain
    }

    /// Logs may ask for its metadata.
    #[cold]
    fn note_routeless_host(&mut self, routes: &Routes) {
        let table = &routes.plan.table;
        let host = table.find_virtual_host(&self.request).map(|host| table.virtual_host(host));
        self.info.routeless_host = host.map(|host| host.metadata.clone());
    }

    /// The chain of a request for an upgrade that has filters of its own and is allowed.
    #[cold]
    fn upgraded_chain(&self, routes: &Routes, http: &Http) -> Option<u32> {
        let token = self.tunnel_token()?;
        let of = |(name, _): &(String, u32)| name.as_bytes().eq_ignore_ascii_case(token);
        let index = routes.plan.upgrades.iter().position(of)?;
        let forward = match self.route.map(|route| &routes.plan.table.route(route).action) {
            Some(Action::Forward(forward)) => Some(forward),
            Some(Action::Redirect(_) | Action::Respond(_)) | None => None,
        };
        let allowed = forward.map_or_else(|| is_on(http, token), |forward| is_allowed(token, http, forward));
        if !allowed {
            return None;
        }
        let Some(plan) = self.route.and_then(|route| routes.plan.routes.get(route as usize)) else {
            return routes.plan.upgrades.get(index).map(|(_, unrouted)| *unrouted);
        };
        let seen = plan.upgraded.get(index)?;
        let own = self.weighted.and_then(|index| seen.weighted.get(index));
        Some(own.copied().unwrap_or(seen.filters))
    }

    /// The router: answers here, or says where to send the request.
    pub(super) fn route_request(&mut self, connection: &mut Connection, http: &Http) -> Option<Destination> {
        let routes = self.routes.clone()?;
        http.stats.inc(stat::RQ_TOTAL);
        if let Some(location) = self.tls_required(&routes) {
            http.stats.inc(stat::RQ_DIRECT_RESPONSE);
            self.redirect_to(connection, http, 301, location, "direct_response");
            return None;
        }
        let Some(route_id) = self.route else {
            http.stats.inc(stat::NO_ROUTE);
            self.fail(Flags::NO_ROUTE_FOUND, "");
            self.reply(
                connection,
                http,
                LocalReply { status: 404, details: "route_not_found".into(), ..LocalReply::default() },
            );
            return None;
        };
        let route = routes.plan.table.route(route_id);
        match &route.action {
            Action::Respond(response) => {
                http.stats.inc(stat::RQ_DIRECT_RESPONSE);
                self.respond_directly(connection, http, response);
                None
            }
            Action::Redirect(redirect) => {
                // Envoy counts a route's redirect as a direct response; `rq_redirect` is for internal ones.
                http.stats.inc(stat::RQ_DIRECT_RESPONSE);
                let mut location = Vec::new();
                let scheme = self.request.scheme().map_or("http", Scheme::as_str);
                let by_format = self.redirect_by_format(redirect);
                let redirect = by_format.as_deref().unwrap_or(redirect);
                let path = rewritten_by_redirect(redirect, Some(route), &self.request);
                redirect_location(redirect, path.as_deref(), &self.request, scheme, &mut location);
                if let Some(path) = path {
                    self.replace_path(http, &path);
                }
                self.redirect_with(connection, http, redirect, location);
                None
            }
            Action::Forward(forward) => self.choose_cluster(connection, http, routes.clone(), route_id, forward),
        }
    }

    /// Answers a request that is not for its route, before anybody looks at it.
    #[cold]
    #[inline(never)]
    pub(super) fn step_aside(&mut self, connection: &mut Connection, http: &Http) {
        let Some(Reject { status, details }) = self.facts.aside.refusal() else {
            return self.redirect_to_path(connection, http);
        };
        match self.facts.aside {
            Aside::AbsoluteTarget => http.stats.inc(stat::DOWNSTREAM_RQ_NON_RELATIVE_PATH),
            Aside::BadPath => http.stats.inc(stat::DOWNSTREAM_RQ_FAILED_PATH_NORMALIZATION),
            Aside::None | Aside::RedirectToPath | Aside::MissingHost => {}
        }
        self.reply(connection, http, LocalReply { status, details: details.into(), ..LocalReply::default() });
    }

    /// Sends the client to the path that it meant.
    fn redirect_to_path(&mut self, connection: &mut Connection, http: &Http) {
        let location = self.request.path().to_vec();
        http.stats.inc(stat::DOWNSTREAM_RQ_REDIRECTED_WITH_NORMALIZED_PATH);
        self.redirect_to(connection, http, 307, location, "path_normalization_failed");
    }

    /// Where to send a client that must use TLS and does not.
    fn tls_required(&self, routes: &Routes) -> Option<Vec<u8>> {
        if !routes.plan.requires_tls {
            return None;
        }
        let table = &routes.plan.table;
        let host = match self.route {
            Some(route) => table.virtual_host_of(route)?,
            None => table.find_virtual_host(&self.request)?,
        };
        let required = match table.virtual_host(host).require_tls {
            RequireTls::None => false,
            RequireTls::ExternalOnly => !self.internal,
            RequireTls::All => true,
        };
        if !required || self.request.scheme() == Some(Scheme::Https) {
            return None;
        }
        Some([b"https://", self.request.authority(), self.request.path()].concat())
    }

    fn choose_cluster(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        routes: Rc<Routes>,
        route: u32,
        forward: &Forward,
    ) -> Option<Destination> {
        if self.asks_for_tunnel() {
            // A filter may have found another route.
            if self.refuses_tunnel(connection, http) {
                return None;
            }
            self.agree_to_terminate(forward);
        }
        if forward.terminates_post && self.request.method() == Method::Post {
            self.terminates = true;
            self.pooling = Pooling::Fresh;
        }
        let cluster = match &forward.target {
            Target::Cluster(name) => routes.cluster(route, name, &connection.worker),
            _ if self.names_cluster(forward) => self.settled_cluster(&connection.worker),
            _ => self.find_cluster(connection, &routes, route, forward),
        };
        let Some(cluster) = cluster else {
            http.stats.inc(stat::NO_CLUSTER);
            self.fail(Flags::NO_CLUSTER_FOUND, "");
            let status = forward.cluster_not_found_status;
            self.reply(
                connection,
                http,
                LocalReply { status, details: "cluster_not_found".into(), ..LocalReply::default() },
            );
            return None;
        };
        self.info.upstream_cluster = Some(cluster.name.clone());
        if !http.model.router.strict_fields.is_empty() && self.is_malformed(connection, http) {
            return None;
        }
        Some(Destination { routes, route, cluster })
    }

    /// Refuses a request for what it says of tries and timeouts.
    #[cold]
    fn is_malformed(&mut self, connection: &mut Connection, http: &Http) -> bool {
        let strict = &http.model.router.strict_fields;
        let Some((name, value)) = strict.iter().find_map(|name| {
            let value = self.request.fields.get_name(name.as_bytes())?;
            (!attempts::is_well_formed(name, value)).then_some((name, value))
        }) else {
            return false;
        };
        let body = [b"invalid header '", name.as_bytes(), b"' with value '", value, b"'"].concat();
        let details = format!("request_headers_failed_strict_check{{{name}}}");
        self.fail(Flags::INVALID_ENVOY_REQUEST_HEADERS, "");
        self.reply(
            connection,
            http,
            LocalReply { status: 400, body: body.into(), details: details.into(), ..LocalReply::default() },
        );
        true
    }

    /// Whether the request says by itself where it goes, or code is asked about it.
    #[inline(always)]
    fn names_cluster(&self, forward: &Forward) -> bool {
        match &forward.target {
            Target::Cluster(_) => false,
            Target::Weighted(clusters) => {
                self.weighted.and_then(|index| clusters.get(index)).is_some_and(|drawn| drawn.header.is_some())
            }
            Target::Header(_) | Target::Plugin(_) => true,
        }
    }

    /// As in Envoy, that is settled with the route: what filters change about the request counts when they have the route
    /// looked up again.
    #[cold]
    #[inline(never)]
    fn settle_cluster(&mut self, connection: &Connection, routes: &Routes, route: u32, forward: &Forward) {
        let found = self.find_cluster(connection, routes, route, forward);
        self.info.upstream_cluster = found.map(|cluster| cluster.name.clone());
    }

    /// What came of it.
    #[cold]
    #[inline(never)]
    fn settled_cluster(&self, worker: &Worker) -> Option<Rc<Cluster>> {
        worker.cluster(self.info.upstream_cluster.as_deref()?)
    }

    /// The cluster that the request's route leads to, as the request is now.
    #[inline(always)]
    pub(super) fn find_cluster(
        &self,
        connection: &Connection,
        routes: &Routes,
        route: u32,
        forward: &Forward,
    ) -> Option<Rc<Cluster>> {
        let worker = &connection.worker;
        match &forward.target {
            Target::Cluster(name) => routes.cluster(route, name, worker),
            Target::Weighted(clusters) => {
                let drawn = self.weighted.and_then(|index| clusters.get(index));
                drawn.and_then(|drawn| self.cluster_of(drawn, worker))
            }
            Target::Header(name) => named_by(&self.request, name, worker),
            Target::Plugin(_) => {
                let chooser = routes.plan.routes.get(route as usize).and_then(|plan| plan.chooser.as_ref());
                chooser.and_then(|choose| worker.cluster(&choose(&self.request, &Known { worker, info: &self.info })?))
            }
        }
    }

    /// The cluster that was drawn.
    #[inline(always)]
    pub(super) fn cluster_of(&self, drawn: &WeightedCluster, worker: &Worker) -> Option<Rc<Cluster>> {
        match &drawn.header {
            None => worker.cluster(&drawn.cluster),
            Some(header) => named_by(&self.request, header, worker),
        }
    }

    /// The log tells the cluster of a request, also where something answered before it was asked.
    #[cold]
    #[inline(never)]
    pub(super) fn name_cluster(&mut self, connection: &Connection) {
        let (Some(routes), Some(route), None) = (&self.routes, self.route, &self.info.upstream_cluster) else { return };
        let Action::Forward(forward) = &routes.plan.table.route(route).action else { return };
        // Where the request says it, it is settled.
        if !self.names_cluster(forward) {
            let found = self.find_cluster(connection, routes, route, forward);
            self.info.upstream_cluster = found.map(|cluster| cluster.name.clone());
        }
    }

    /// Whether it is CONNECT or asks for an upgrade.
    #[inline]
    pub(super) fn asks_for_tunnel(&self) -> bool {
        self.facts.upgrade || self.request.method() == Method::Connect
    }

    /// What the tunnel is to speak; `connect` for CONNECT.
    fn tunnel_token(&self) -> Option<&[u8]> {
        match self.request.method() {
            Method::Connect => Some(b"connect"),
            _ if self.facts.upgrade => self.request.fields.get(HeaderId::Upgrade),
            _ => None,
        }
    }

    /// Answers a request for a tunnel that neither its route nor the connection manager allows. Without a route, that is
    /// the answer.
    #[cold]
    #[inline(never)]
    pub(super) fn refuses_tunnel(&mut self, connection: &mut Connection, http: &Http) -> bool {
        let (Some(routes), Some(route)) = (&self.routes, self.route) else { return false };
        let token = self.tunnel_token().unwrap_or_default();
        let allowed = match &routes.plan.table.route(route).action {
            Action::Forward(forward) => is_allowed(token, http, forward),
            Action::Redirect(_) | Action::Respond(_) => is_on(http, token),
        };
        if allowed {
            return false;
        }
        http.stats.inc(stat::DOWNSTREAM_RQ_WS_ON_NON_WS_ROUTE);
        self.name_cluster(connection);
        let reply = LocalReply { status: 403, details: "upgrade_failed".into(), ..LocalReply::default() };
        self.reply(connection, http, reply);
        true
    }

    /// Takes out upgrades that are to be ignored; whether one is left.
    #[cold]
    pub(super) fn keeps_upgrade(&mut self, ignored: &[StringMatch]) -> bool {
        let fields = &mut self.request.fields;
        let mut left: Vec<&[u8]> = Vec::new();
        for token in fields.get_all(HeaderId::Upgrade).flat_map(|list| list.split(|byte| *byte == b',')) {
            let token = token.trim_ascii();
            if !std::str::from_utf8(token).is_ok_and(|token| ignored.iter().any(|matcher| matcher.matches(token))) {
                left.push(token);
            }
        }
        let left = left.join(b", ".as_slice());
        // Of valid values, a valid one is left.
        let kept = !left.is_empty() && fields.set(HeaderId::Upgrade, &left).is_ok();
        if !kept {
            fields.remove(HeaderId::Upgrade);
        }
        kept
    }

    /// A CONNECT may end here.
    #[cold]
    fn agree_to_terminate(&mut self, forward: &Forward) {
        if forward.terminates_connect && self.request.method() == Method::Connect {
            self.terminates = true;
            self.facts.upgrade = true;
            // A pooled connection has carried HTTP.
            self.pooling = Pooling::Fresh;
        }
    }

    fn respond_directly(&mut self, connection: &mut Connection, http: &Http, response: &DirectResponse) {
        let body = match &response.body {
            ResponseBody::Fixed(body) => body.clone(),
            ResponseBody::Format { fixed, format } => {
                let mut body = Vec::new();
                self.format_context(fixed, self.info.start).write_log(format, &mut body);
                body
            }
        };
        let mut headers: Vec<(Cow<'static, str>, Cow<'static, [u8]>)> = Vec::new();
        if let Some(kind) = &response.content_type {
            headers.push(("content-type".into(), kind.clone().into_bytes().into()));
        }
        // Envoy names the place of a 201 and of redirects (DirectResponseEntry::newUri).
        if response.status == 201 || (300..400).contains(&response.status) {
            let scheme = self.request.scheme().map_or("http", Scheme::as_str);
            let mut location = format!("{scheme}://").into_bytes();
            location.extend_from_slice(self.request.authority());
            location.extend_from_slice(self.request.path());
            headers.push(("location".into(), location.into()));
        }
        let reply = LocalReply {
            status: response.status,
            body: body.into(),
            headers,
            details: "direct_response".into(),
            ..LocalReply::default()
        };
        self.reply(connection, http, reply);
    }

    /// The redirect with what comes out of the format of its path; `None` when it has none.
    fn redirect_by_format(&self, redirect: &Redirect) -> Option<Box<Redirect>> {
        let RedirectPath::Format(format) = &redirect.path else { return None };
        let mut path = Vec::new();
        self.format_context(&[], self.info.start).write(format, Absent::Empty, &mut path);
        // Of a header's value only text can stand in a `Location`.
        let path = RedirectPath::Replace(String::from_utf8_lossy(&path).into_owned());
        Some(Box::new(Redirect { path, ..redirect.clone() }))
    }

    fn redirect_with(&mut self, connection: &mut Connection, http: &Http, redirect: &Redirect, location: Vec<u8>) {
        let headers = vec![("location".into(), location.into())];
        let reply =
            LocalReply { status: redirect.status, headers, details: "direct_response".into(), ..LocalReply::default() };
        self.reply(connection, http, reply);
    }

    fn redirect_to(
        &mut self,
        connection: &mut Connection,
        http: &Http,
        status: u16,
        location: Vec<u8>,
        details: &'static str,
    ) {
        let headers = vec![("location".into(), location.into())];
        // It is not the route that answers: nothing of it applies.
        self.route = None;
        self.info.route_name = None;
        self.reply(connection, http, LocalReply { status, headers, details: details.into(), ..LocalReply::default() });
    }
}

/// Whether requests on this route may become a tunnel of this kind.
fn is_allowed(token: &[u8], http: &Http, forward: &Forward) -> bool {
    let said = forward.upgrades.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(token));
    said.map_or_else(|| is_on(http, token), |(_, allowed)| *allowed)
}

/// The same where no route says anything of it.
fn is_on(http: &Http, token: &[u8]) -> bool {
    http.model.upgrades.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(token))
}

/// Whether the port that the connection was meant for is one of HTTPS; `None` where nobody knows.
#[cold]
fn meant(ports: &SchemeOfPort, connection: &Connection) -> Option<bool> {
    let port = connection.destination()?.port();
    let stands_for = |ports: &[u16]| ports.contains(&port);
    if stands_for(&ports.https) { Some(true) } else { stands_for(&ports.http).then_some(false) }
}

/// What routes may ask of a stream beside its request.
pub(crate) struct OfStream<'i>(pub(crate) &'i StreamInfo);

impl Surroundings for OfStream<'_> {
    fn metadata(&self) -> Option<&Metadata> {
        Some(&self.0.metadata)
    }

    fn state(&self, name: &str) -> Option<&Value> {
        noted(self.0, name)
    }

    fn certificate(&self) -> Option<bool> {
        self.0.tls.as_ref()?.peer.as_ref().map(|peer| peer.is_verified())
    }
}

/// An object of the filter state.
fn noted<'i>(info: &'i StreamInfo, name: &str) -> Option<&'i Value> {
    info.filter_state.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The cluster that a request header names.
fn named_by(request: &RequestHead, header: &str, worker: &Worker) -> Option<Rc<Cluster>> {
    let name = request.fields.get_name(header.as_bytes())?;
    worker.cluster(&String::from_utf8_lossy(name))
}

/// The number in a request header that has just one line.
fn ticket(request: &RequestHead, header: &str) -> Option<u64> {
    let mut lines = request.fields.get_all_name(header.as_bytes());
    let line = lines.next().filter(|_| lines.next().is_none())?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// How busy this worker's clusters are, and what is known of the stream.
struct Known<'w> {
    worker: &'w Worker,
    info: &'w StreamInfo,
}

impl Clusters for Known<'_> {
    fn load(&self, name: &str) -> Option<ClusterLoad> {
        let cluster = self.worker.cluster(name)?;
        let mut load = ClusterLoad { pending: cluster.pending(self.worker), ..ClusterLoad::default() };
        cluster.hosts.each_host(|host| {
            load.connections += u64::from(host.connections.get());
            load.requests += u64::from(host.active.get());
        });
        Some(load)
    }

    fn state(&self, name: &str) -> Option<&Value> {
        noted(self.info, name)
    }
}

/// Where the filters of a connection run.
#[inline]
pub(super) fn place<'a>(connection: &'a Connection, http: &'a Http) -> Place<'a> {
    chain::place(&connection.worker, &http.model, &http.stat_prefix, connection.chain.buffer_limit)
}

/// The index of a weighted cluster, by a uniform number.
pub(super) fn draw(clusters: &[WeightedCluster], random: u64) -> Option<usize> {
    let total: u64 = clusters.iter().map(|cluster| u64::from(cluster.weight)).sum();
    let mut ticket = random.checked_rem(total)?;
    clusters.iter().position(|cluster| {
        let weight = u64::from(cluster.weight);
        let hit = ticket < weight;
        ticket = ticket.saturating_sub(weight);
        hit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(weight: u32) -> WeightedCluster {
        WeightedCluster {
            cluster: String::new(),
            header: None,
            weight,
            request_headers: Default::default(),
            response_headers: Default::default(),
            host_rewrite: None,
            labels: None,
            filter_overrides: Vec::new(),
        }
    }

    #[test]
    fn weights_share_out_the_tickets_exactly() {
        let clusters = [cluster(1), cluster(0), cluster(3)];
        let drawn: Vec<_> = (0..8).map(|ticket| draw(&clusters, ticket)).collect();
        assert_eq!(drawn, [Some(0), Some(2), Some(2), Some(2), Some(0), Some(2), Some(2), Some(2)]);
        assert_eq!(draw(&[], 3), None);
    }
}
