//! The compiled table: what it is made of, and finding a route in it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use postrider_http::{HeaderName, Method, RequestHead};
use postrider_model::{
    Action, DirectResponse, MatchTree, PathMatch, ResponseBody, Route, RouteMatch, RouteRange, RouteTable, VirtualHost,
};

use crate::conditions::{Conditions, Draw, Nothing, OfRequest, Surroundings, Unmet};
use crate::hosts::Hosts;
use crate::paths::{self, PathIndex};
use crate::pattern::{Judges, Whole};

/// A routing table ready to be asked. Shared by all workers, never changed.
#[derive(Debug)]
pub struct Table {
    source: Arc<RouteTable>,
    pub(crate) hosts: Hosts,
    /// What is compared with domains, where that is not the host.
    host_header: Option<Box<HeaderName>>,
    ignores_path_parameters: bool,
    /// One virtual host is everybody's, and no header decides: the usual small table.
    for_everybody: Option<u32>,
    virtual_hosts: Box<[HostRoutes]>,
    routes: Box<[Entry]>,
}

/// Where a request goes. Both numbers are places in dense arrays, so whoever compiles more about a route can keep it in
/// an array of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Found {
    /// Place of the virtual host in the document.
    pub virtual_host: u32,
    /// Place of the route among the routes of all virtual hosts, in the order of the document.
    pub route: u32,
}

/// Up to this many routes are asked one by one: less work than the index, and nothing to keep in memory.
const WALKED_ROUTES: u32 = 8;

/// The routes of one virtual host: `first..end` of all.
#[derive(Debug)]
struct HostRoutes {
    first: u32,
    end: u32,
    index: Option<Box<PathIndex>>,
    /// Says which of them are looked at.
    tree: Option<Arc<MatchTree<RouteRange>>>,
}

impl HostRoutes {
    /// Those that are looked at for a request.
    #[cold]
    #[inline(never)]
    fn chosen(&self, head: &RequestHead, stream: &impl Surroundings) -> Option<Range<u32>> {
        let Some(tree) = &self.tree else { return Some(self.first..self.end) };
        let RouteRange { first, end } = tree.find(&OfRequest { head, stream })?;
        Some(self.first + first..self.first + end)
    }
}

/// One route and what was compiled from it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) route: Arc<Route>,
    whole: Option<Box<Whole>>,
    conditions: Option<Box<Conditions>>,
    virtual_host: u32,
}

impl Entry {
    fn compile(route: &Arc<Route>, virtual_host: u32, judges: Judges<'_>) -> Entry {
        let whole = match &route.matches.path {
            PathMatch::Regex(regex) => Some(Box::new(Whole::compile(regex))),
            _ => None,
        };
        Entry { route: Arc::clone(route), whole, conditions: Conditions::compile(&route.matches, judges), virtual_host }
    }

    #[inline]
    pub(crate) fn path_holds(&self, path: &[u8], connect: bool) -> bool {
        paths::holds(&self.route, self.whole.as_deref(), path, connect)
    }

    /// Everything but the path.
    #[inline]
    pub(crate) fn check(
        &self,
        head: &RequestHead,
        stream: &impl Surroundings,
        draw: &mut Draw<impl FnOnce() -> u64>,
    ) -> Result<(), Unmet> {
        match &self.conditions {
            None => Ok(()),
            Some(conditions) => conditions.check(head, stream, draw),
        }
    }
}

impl Table {
    /// Compiles a table. Takes time in proportion to its size (each regular expression is compiled once more), so it
    /// is no work for a worker.
    pub fn compile(source: &Arc<RouteTable>) -> Table {
        Table::compile_with(source, &|_, _| None)
    }

    /// The same with the code behind [`postrider_model::StringKind::Custom`].
    pub fn compile_with(source: &Arc<RouteTable>, judges: Judges<'_>) -> Table {
        let mut routes = Vec::new();
        let mut virtual_hosts = Vec::with_capacity(source.virtual_hosts.len());
        for (host, id) in source.virtual_hosts.iter().zip(0..) {
            let first = routes.len() as u32;
            routes.extend(host.routes.iter().map(|route| Entry::compile(route, id, judges)));
            let end = routes.len() as u32;
            let index = (end - first > WALKED_ROUTES && host.tree.is_none())
                .then(|| Box::new(PathIndex::build(host.routes.iter().map(|route| &**route).zip(first..))));
            virtual_hosts.push(HostRoutes { first, end, index, tree: host.tree.clone() });
        }
        let hosts = Hosts::compile(source);
        Table {
            for_everybody: hosts.only_any().filter(|_| source.host_header.is_none()),
            hosts,
            // A name that was checked with the configuration.
            host_header: source
                .host_header
                .as_ref()
                .and_then(|name| HeaderName::new(name.as_bytes()).ok())
                .map(Box::new),
            ignores_path_parameters: source.ignores_path_parameters,
            virtual_hosts: virtual_hosts.into_boxed_slice(),
            routes: routes.into_boxed_slice(),
            source: Arc::clone(source),
        }
    }

    /// The route that serves `head`. `random` is called at most once, when a route takes only a share of the requests;
    /// it gives a uniform number.
    #[inline]
    pub fn find(&self, head: &RequestHead, random: impl FnOnce() -> u64) -> Option<Found> {
        self.find_in(head, &Nothing, random)
    }

    /// The same for a request of which more is known than its head.
    #[inline(always)]
    pub fn find_in(
        &self,
        head: &RequestHead,
        stream: &impl Surroundings,
        random: impl FnOnce() -> u64,
    ) -> Option<Found> {
        self.find_route(self.find_virtual_host(head)?, head, stream, random)
    }

    /// The first half of [`Table::find`], for those who must act on the virtual host before there is a route.
    #[inline(always)]
    pub fn find_virtual_host(&self, head: &RequestHead) -> Option<u32> {
        self.for_everybody.or_else(|| self.find_host(head))
    }

    #[inline(never)]
    fn find_host(&self, head: &RequestHead) -> Option<u32> {
        match &self.host_header {
            None => self.hosts.find(head.authority()),
            Some(name) => self.host_by_header(name, head),
        }
    }

    /// One that names no host is like one without authority; one that names an empty host is anybody's.
    #[cold]
    fn host_by_header(&self, name: &HeaderName, head: &RequestHead) -> Option<u32> {
        match head.fields.find(name) {
            None => self.hosts.find(b""),
            Some(b"") => self.hosts.any(),
            Some(host) => self.hosts.find(host),
        }
    }

    /// What of a request is compared with domains.
    pub(crate) fn host_of<'h>(&self, head: &'h RequestHead) -> &'h [u8] {
        match &self.host_header {
            None => head.authority(),
            Some(name) => head.fields.find(name).unwrap_or_default(),
        }
    }

    /// What of a request is compared with paths.
    #[inline]
    pub(crate) fn path_of<'h>(&self, head: &'h RequestHead) -> Cow<'h, [u8]> {
        match self.ignores_path_parameters {
            false => Cow::Borrowed(head.path_only()),
            true => without_parameters(head.path_only()),
        }
    }

    /// The second half of [`Table::find`].
    #[inline]
    pub fn find_route(
        &self,
        virtual_host: u32,
        head: &RequestHead,
        stream: &impl Surroundings,
        random: impl FnOnce() -> u64,
    ) -> Option<Found> {
        let host = self.virtual_hosts.get(virtual_host as usize)?;
        let (path, connect) = (self.path_of(head), is_connect(head));
        let path = &*path;
        let mut draw = Draw::new(random);
        let Some(index) = &host.index else {
            let range = if host.tree.is_none() { host.first..host.end } else { host.chosen(head, stream)? };
            let routes = self.routes.get(range.start as usize..range.end as usize)?;
            return routes
                .iter()
                .zip(range.start..)
                .find(|(entry, _)| entry.path_holds(path, connect) && entry.check(head, stream, &mut draw).is_ok())
                .map(|(_, route)| Found { virtual_host, route });
        };
        let candidates = index.candidates(path, connect);
        let mut from = host.first;
        while let Some(route) = candidates.next(from) {
            let entry = self.routes.get(route as usize)?;
            // The index answers for every path but that of a regular expression.
            if entry.whole.as_ref().is_none_or(|whole| whole.matches(path))
                && entry.check(head, stream, &mut draw).is_ok()
            {
                return Some(Found { virtual_host, route });
            }
            from = route + 1;
        }
        None
    }

    /// The table this one was compiled from.
    pub fn source(&self) -> &Arc<RouteTable> {
        &self.source
    }

    /// A virtual host by [`Found::virtual_host`]; an empty one for a number that this table never gave.
    #[inline]
    pub fn virtual_host(&self, id: u32) -> &VirtualHost {
        static NO_HOST: LazyLock<VirtualHost> = LazyLock::new(VirtualHost::default);
        match self.source.virtual_hosts.get(id as usize) {
            Some(host) => host,
            None => &NO_HOST,
        }
    }

    /// A route by [`Found::route`]; one that answers 404 for a number that this table never gave.
    #[inline]
    pub fn route(&self, id: u32) -> &Route {
        static NO_ROUTE: LazyLock<Route> = LazyLock::new(no_route);
        match self.routes.get(id as usize) {
            Some(entry) => &entry.route,
            None => &NO_ROUTE,
        }
    }

    /// The virtual host that a route belongs to.
    pub fn virtual_host_of(&self, route: u32) -> Option<u32> {
        self.routes.get(route as usize).map(|entry| entry.virtual_host)
    }

    /// How many routes there are in all virtual hosts: one more than the largest [`Found::route`].
    pub fn route_count(&self) -> usize {
        self.routes.len()
    }

    /// How many virtual hosts there are: one more than the largest [`Found::virtual_host`].
    pub fn virtual_host_count(&self) -> usize {
        self.virtual_hosts.len()
    }

    /// The routes of a virtual host that are looked at for `head`, with their numbers.
    pub(crate) fn entries_of(&self, virtual_host: u32, head: &RequestHead) -> impl Iterator<Item = (&Entry, u32)> {
        let range =
            self.virtual_hosts.get(virtual_host as usize).and_then(|host| host.chosen(head, &Nothing)).unwrap_or(0..0);
        let entries = self.routes.get(range.start as usize..range.end as usize).unwrap_or_default();
        entries.iter().zip(range)
    }

    /// How many routes the index offers for `head`, were none of their other conditions to hold.
    #[cfg(test)]
    fn candidate_count(&self, virtual_host: u32, head: &RequestHead) -> usize {
        let host = &self.virtual_hosts[virtual_host as usize];
        let candidates = host.index.as_ref().unwrap().candidates(head.path_only(), is_connect(head));
        std::iter::successors(candidates.next(0), |last| candidates.next(last + 1)).count()
    }
}

#[inline]
pub(crate) fn is_connect(head: &RequestHead) -> bool {
    head.method() == Method::Connect
}

/// The path without what follows a `;` in its segments.
#[cold]
fn without_parameters(path: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b';', path).is_none() {
        return Cow::Borrowed(path);
    }
    let segments = path.split(|byte| *byte == b'/');
    let bare = segments.map(|segment| segment.split(|byte| *byte == b';').next().unwrap_or_default());
    Cow::Owned(bare.collect::<Vec<_>>().join(&b'/'))
}

fn no_route() -> Route {
    Route {
        name: String::new(),
        matches: RouteMatch {
            path: PathMatch::Prefix(String::new()),
            case_sensitive: true,
            headers: Vec::new(),
            query: Vec::new(),
            cookies: Vec::new(),
            grpc: false,
            stream: None,
            fraction: None,
        },
        action: Action::Respond(DirectResponse {
            status: 404,
            body: ResponseBody::Fixed(Vec::new()),
            content_type: None,
        }),
        stat_prefix: String::new(),
        request_headers: Default::default(),
        response_headers: Default::default(),
        filter_overrides: Vec::new(),
        metadata: Default::default(),
        tracing: None,
        origin: Default::default(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use postrider_http::FieldError;
    use postrider_model::{Domain, Forward, HostRewrite, PathRewrite, Priority, Regex, Target};

    use super::*;

    pub(crate) fn route(path: PathMatch) -> Route {
        let mut route = no_route();
        route.matches.path = path;
        route
    }

    pub(crate) fn forward() -> Forward {
        Forward {
            target: Target::Cluster("c".into()),
            lot: Default::default(),
            next: Default::default(),
            timeout: None,
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
        }
    }

    pub(crate) fn head(method: &str, authority: &str, path: &str, lines: &[(&str, &str)]) -> RequestHead {
        let build = || -> Result<RequestHead, FieldError> {
            let mut head = RequestHead::new();
            head.set_method(method.as_bytes())?;
            if !authority.is_empty() {
                head.set_authority(authority.as_bytes())?;
            }
            if !path.is_empty() {
                head.set_path(path.as_bytes())?;
            }
            for (name, value) in lines {
                head.fields.append_name(name.as_bytes(), value.as_bytes())?;
            }
            Ok(head)
        };
        build().unwrap()
    }

    pub(crate) fn table(routes: Vec<Route>) -> Table {
        let host = VirtualHost {
            domains: vec![Domain::Any],
            routes: routes.into_iter().map(Arc::new).collect(),
            ..VirtualHost::default()
        };
        Table::compile(&Arc::new(RouteTable { virtual_hosts: vec![Arc::new(host)], ..RouteTable::default() }))
    }

    #[test]
    fn what_follows_a_semicolon_says_nothing_where_that_is_asked() {
        let stripped = |path: &str| String::from_utf8(without_parameters(path.as_bytes()).into_owned()).unwrap();
        for (path, bare) in [("/a;x=1", "/a"), ("/b;v/c;w", "/b/c"), ("/;x/", "//"), ("/a", "/a"), ("/a;b;c/d", "/a/d")]
        {
            assert_eq!(stripped(path), bare);
        }
        let table = |ignores_path_parameters| {
            let mut routes = padded(vec![route(PathMatch::Exact("/a".into()))]);
            routes.truncate(1 + usize::from(ignores_path_parameters));
            let mut source = (**self::table(routes).source()).clone();
            source.ignores_path_parameters = ignores_path_parameters;
            Table::compile(&Arc::new(source))
        };
        assert_eq!((found(&table(true), "/a;x?y;z"), found(&table(false), "/a;x?y;z")), (Some(0), None));
    }

    #[test]
    fn a_header_may_name_the_virtual_host() {
        let host = |domain: Domain| {
            let routes = vec![Arc::new(route(PathMatch::Prefix("/".into())))];
            Arc::new(VirtualHost { domains: vec![domain], routes, ..VirtualHost::default() })
        };
        let virtual_hosts = vec![host(Domain::Exact("one".into())), host(Domain::Any)];
        let host_header = Some("x-host".to_owned());
        let table = Table::compile(&Arc::new(RouteTable { virtual_hosts, host_header, ..RouteTable::default() }));
        let host = |lines: &[(&str, &str)]| table.find_virtual_host(&head("GET", "one", "/", lines));
        assert_eq!(host(&[("x-host", "ONE")]), Some(0));
        assert_eq!(host(&[("x-host", "two")]), Some(1));
        assert_eq!(host(&[("x-host", "")]), Some(1));
        assert_eq!(host(&[]), None);
    }

    fn found(table: &Table, path: &str) -> Option<u32> {
        table.find(&head("GET", "h", path, &[]), || 0).map(|found| found.route)
    }

    /// Routes before the last that match nothing, so that the list is long enough for the index.
    fn padded(mut routes: Vec<Route>) -> Vec<Route> {
        routes.extend((0..WALKED_ROUTES).map(|_| route(PathMatch::Exact("/padding".into()))));
        routes
    }

    /// Each row was observed on the proxy whose meaning this is.
    #[test]
    fn path_conditions_hold_as_documented_in_short_and_long_tables() {
        let no_case = |path| {
            let mut route = route(path);
            route.matches.case_sensitive = false;
            route
        };
        let routes = vec![
            route(PathMatch::Exact("/e".into())),
            no_case(PathMatch::Exact("/CI".into())),
            no_case(PathMatch::Prefix("/PreCI".into())),
            route(PathMatch::SeparatedPrefix("/sep".into())),
            no_case(PathMatch::SeparatedPrefix("/SepCI".into())),
            route(PathMatch::Regex(Regex::new("/r/a|/r/ab").unwrap())),
            no_case(PathMatch::Regex(Regex::new("/rci/a").unwrap())),
            route(PathMatch::Prefix("/qp?x".into())),
        ];
        let (short, long) = (table(routes.clone()), table(padded(routes)));
        for (path, want) in [
            ("/e", Some(0)),
            ("/e?x", Some(0)),
            ("/e/", None),
            ("/E", None),
            ("/ci", Some(1)),
            ("/CI?x", Some(1)),
            ("/precIxx", Some(2)),
            ("/pre", None),
            ("/sep", Some(3)),
            ("/sep/", Some(3)),
            ("/sepa", None),
            ("/sep/a", Some(3)),
            ("/SEPCI", Some(4)),
            ("/sepci/x", Some(4)),
            ("/sepcix", None),
            ("/r/a", Some(5)),
            ("/r/ab", Some(5)),
            ("/r/abc", None),
            ("/RCI/A", None),
            ("/rci/a", Some(6)),
            ("/qp?x", None),
            ("/qp", None),
            ("*", None),
        ] {
            assert_eq!(found(&short, path), want, "{path} in the short table");
            assert_eq!(found(&long, path), want, "{path} in the long table");
        }
    }

    #[test]
    fn the_first_route_wins_whatever_its_kind() {
        let routes = vec![
            route(PathMatch::Regex(Regex::new("/a/[0-9]+").unwrap())),
            route(PathMatch::Prefix("/a/1".into())),
            route(PathMatch::Exact("/a/x".into())),
            route(PathMatch::Prefix("/a".into())),
            route(PathMatch::Exact("/a/y".into())),
            route(PathMatch::Prefix("/".into())),
        ];
        for table in [table(routes.clone()), table(padded(routes))] {
            for (path, want) in [("/a/1", 0), ("/a/1x", 1), ("/a/x", 2), ("/a/y", 3), ("/ab", 3), ("/b", 5)] {
                assert_eq!(found(&table, path), Some(want), "{path}");
            }
        }
    }

    #[test]
    fn connect_requests_reach_only_routes_for_them() {
        let routes = vec![route(PathMatch::Prefix(String::new())), route(PathMatch::Connect)];
        for table in [table(routes.clone()), table(padded(routes))] {
            let connect = head("CONNECT", "h:443", "", &[]);
            assert_eq!(table.find(&connect, || 0), Some(Found { virtual_host: 0, route: 1 }));
            assert_eq!(found(&table, "*"), Some(0));
        }
    }

    #[test]
    fn ten_thousand_routes_offer_no_more_candidates_than_one() {
        let mut routes: Vec<Route> = (0..10_000)
            .map(|i| match i % 4 {
                0 => route(PathMatch::Prefix(format!("/p{i}/"))),
                1 => route(PathMatch::Exact(format!("/e{i}"))),
                2 => route(PathMatch::SeparatedPrefix(format!("/s{i}"))),
                _ => route(PathMatch::Regex(Regex::new(&format!("/r{i}/[a-z]")).unwrap())),
            })
            .collect();
        routes.push(route(PathMatch::Prefix("/".into())));
        let table = table(routes);
        for (path, want) in [("/p9996/x", 9996), ("/e9997", 9997), ("/s9998/x", 9998), ("/r9999/x", 9999)] {
            assert_eq!(found(&table, path), Some(want), "{path}");
            let candidates = table.candidate_count(0, &head("GET", "h", path, &[]));
            assert!(candidates <= 2, "{candidates} candidates for {path}");
        }
        assert_eq!(found(&table, "/other"), Some(10_000));
        assert_eq!(table.candidate_count(0, &head("GET", "h", "/other", &[])), 1);
    }

    #[test]
    fn routes_are_numbered_over_all_virtual_hosts() {
        let host = |name: &str, routes: u32| {
            let routes = (0..routes).map(|i| Arc::new(route(PathMatch::Exact(format!("/{i}"))))).collect();
            Arc::new(VirtualHost {
                name: name.into(),
                domains: vec![Domain::Exact(name.into())],
                routes,
                ..VirtualHost::default()
            })
        };
        let source =
            RouteTable { virtual_hosts: vec![host("a", 3), host("b", 20), host("c", 2)], ..RouteTable::default() };
        let table = Table::compile(&Arc::new(source));
        assert_eq!((table.route_count(), table.virtual_host_count()), (25, 3));
        for (authority, path, want) in [("a", "/2", (0, 2)), ("b", "/19", (1, 22)), ("c", "/1", (2, 24))] {
            let got = table.find(&head("GET", authority, path, &[]), || 0).unwrap();
            assert_eq!((got.virtual_host, got.route), want);
            assert_eq!(table.virtual_host(got.virtual_host).name, authority);
            assert_eq!(table.route(got.route).matches.path, PathMatch::Exact(path.into()));
            assert_eq!(table.virtual_host_of(got.route), Some(got.virtual_host));
        }
        assert_eq!(table.find(&head("GET", "a", "/3", &[]), || 0), None);
        assert_eq!(table.virtual_host(9).name, "");
        assert!(matches!(&table.route(99).action, Action::Respond(answer) if answer.status == 404));
    }
}
