//! The compiled table, its explanation and a plain reading of the document agree on thousands of random tables.

use std::sync::Arc;

use postrider_http::RequestHead;
use postrider_model::{
    Action, DirectResponse, Domain, HeaderCondition, HeaderMatch, PathMatch, QueryCondition, QueryMatch, Regex,
    ResponseBody, Route, RouteMatch, RouteTable, StringKind, StringMatch, VirtualHost,
};
use postrider_router::{Found, Outcome, Table};

/// Tables per run; each is asked several times.
const TABLES: usize = 1_500;
const REQUESTS_PER_TABLE: usize = 12;

#[test]
fn find_explain_and_a_plain_reading_agree() {
    let (mut asked, mut matched) = (0, 0);
    let regexes: Vec<Regex> = REGEXES.iter().map(|pattern| Regex::new(pattern).unwrap()).collect();
    for seed in 0..TABLES {
        let mut random = Random(seed as u64 * 7919 + 1);
        let source = Arc::new(random_table(&mut random, &regexes));
        let table = Table::compile(&source);
        for _ in 0..REQUESTS_PER_TABLE {
            let head = random_head(&mut random);
            let draw = random.next();
            let want = plain_reading(&source, &head, draw);
            let found = table.find(&head, || draw);
            assert_eq!(found, want, "table {seed}: {} {}", text(head.authority()), text(head.path()));
            let explanation = table.explain(&head, &postrider_router::Nothing, draw);
            assert_eq!(explanation.winner, found);
            assert_eq!(explanation.virtual_host, table.find_virtual_host(&head));
            let told = explanation.tried.iter().find(|tried| tried.outcome == Outcome::Matched);
            assert_eq!(told.map(|tried| tried.route), found.map(|found| found.route));
            assert!(
                explanation.tried.iter().all(|tried| match &tried.outcome {
                    Outcome::Failed(words) => !words.is_empty(),
                    Outcome::Matched => true,
                }),
                "{explanation:?}"
            );
            asked += 1;
            matched += usize::from(found.is_some());
        }
    }
    // A generator that always or never matches would prove nothing.
    assert!((asked / 5..asked * 19 / 20).contains(&matched), "{matched} of {asked} requests matched");
}

fn plain_reading(table: &RouteTable, head: &RequestHead, draw: u64) -> Option<Found> {
    let host = plain_host(table, &text(head.authority()).to_ascii_lowercase())?;
    let before: usize = table.virtual_hosts[..host].iter().map(|host| host.routes.len()).sum();
    let at = table.virtual_hosts[host].routes.iter().position(|route| plain_match(&route.matches, head, draw))?;
    Some(Found { virtual_host: host as u32, route: (before + at) as u32 })
}

fn plain_host(table: &RouteTable, authority: &str) -> Option<usize> {
    let domains = || table.virtual_hosts.iter().enumerate().flat_map(|(id, h)| h.domains.iter().map(move |d| (id, d)));
    if domains().all(|(_, domain)| *domain == Domain::Any) {
        return domains().next().map(|(id, _)| id);
    }
    if authority.is_empty() {
        return None;
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if table.ignore_port_in_host && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    domains()
        .filter_map(|(id, domain)| {
            let rank = match domain {
                Domain::Exact(want) => (host == want.to_ascii_lowercase()).then_some((3, 0)),
                Domain::Suffix(want) => {
                    (host.len() > want.len() && host.ends_with(want.as_str())).then_some((2, want.len()))
                }
                Domain::Prefix(want) => {
                    (host.len() > want.len() && host.starts_with(want.as_str())).then_some((1, want.len()))
                }
                Domain::Any => Some((0, 0)),
            };
            rank.map(|rank| (rank, id))
        })
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, id)| id)
}

fn plain_match(matches: &RouteMatch, head: &RequestHead, draw: u64) -> bool {
    let path = text(head.path_only());
    let lower = path.to_ascii_lowercase();
    let is_connect = head.method_bytes() == b"CONNECT";
    let fold = |want: &str| if matches.case_sensitive { want.to_owned() } else { want.to_ascii_lowercase() };
    let seen = if matches.case_sensitive { &path } else { &lower };
    let path_holds = match &matches.path {
        PathMatch::Connect => is_connect,
        _ if path.is_empty() => false,
        PathMatch::Prefix(want) => seen.starts_with(&fold(want)),
        PathMatch::Exact(want) => *seen == fold(want),
        PathMatch::SeparatedPrefix(want) => *seen == fold(want) || seen.starts_with(&(fold(want) + "/")),
        PathMatch::Regex(regex) => regex.matches_whole(&path),
    };
    path_holds
        && matches.headers.iter().all(|test| {
            let lines = lines(head, &test.name);
            test.matches(&lines.iter().map(String::as_str).collect::<Vec<_>>())
        })
        && matches.query.iter().all(|test| test.matches(parameter(head, &test.name).as_deref()))
        && (!matches.grpc || !path.is_empty() && is_grpc(head))
        && matches.fraction.is_none_or(|fraction| draw % 1_000_000 < u64::from(fraction))
}

fn is_grpc(head: &RequestHead) -> bool {
    lines(head, "content-type")
        .first()
        .is_some_and(|kind| kind == "application/grpc" || kind.starts_with("application/grpc+"))
}

fn lines(head: &RequestHead, name: &str) -> Vec<String> {
    let one = |value: &[u8]| Vec::from_iter(Some(text(value)).filter(|value| !value.is_empty()));
    match name {
        ":method" => one(head.method_bytes()),
        ":path" => one(head.path()),
        ":authority" => one(head.authority()),
        name => head.fields.get_all_name(name.as_bytes()).map(text).collect(),
    }
}

fn parameter(head: &RequestHead, name: &str) -> Option<String> {
    let query = text(head.query()?);
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| *key == name)
        .map(|(_, v)| v.to_owned())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const REGEXES: &[&str] = &["/a|/ab", "/a/.*", ".*", "/[ab]+", "(?i)/AB", "/a?b/.*", "^/b$", "/ab/(a|b)+"];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Short paths over a small alphabet, so that many are prefixes of others and differ only by case.
    fn path(&mut self) -> String {
        let mut path = "/".to_owned();
        for _ in 0..self.below(6) {
            path.push_str(self.pick(&["a", "b", "/", "A", "B", "ab"]));
        }
        path
    }
}

fn random_table(random: &mut Random, regexes: &[Regex]) -> RouteTable {
    let mut left = vec![
        Domain::Any,
        Domain::Exact("a.test".into()),
        Domain::Exact("A.b.test:8080".into()),
        Domain::Suffix(".test".into()),
        Domain::Suffix(".b.test".into()),
        Domain::Suffix("-b.test".into()),
        Domain::Prefix("a.".into()),
        Domain::Prefix("a.b.".into()),
    ];
    let virtual_hosts = (0..1 + random.below(4))
        .map(|_| {
            let domains = (0..1 + random.below(2)).map(|_| left.remove(random.below(left.len()))).collect();
            // Both below and above the length from which a table is indexed.
            let longest = if random.one_in(3) { 40 } else { 10 };
            let routes = (0..random.below(longest)).map(|_| Arc::new(random_route(random, regexes))).collect();
            Arc::new(VirtualHost { domains, routes, ..VirtualHost::default() })
        })
        .collect();
    RouteTable { virtual_hosts, ignore_port_in_host: random.one_in(3), ..RouteTable::default() }
}

fn random_route(random: &mut Random, regexes: &[Regex]) -> Route {
    let path = match random.below(9) {
        0 | 1 => PathMatch::Prefix(random.path()),
        2..=4 => PathMatch::Exact(random.path()),
        5 | 6 => PathMatch::SeparatedPrefix(random.path()),
        7 => PathMatch::Regex(regexes[random.below(regexes.len())].clone()),
        _ => match random.below(5) {
            0 => PathMatch::Connect,
            1 => PathMatch::Prefix(String::new()),
            _ => PathMatch::Prefix("/".into()),
        },
    };
    let headers = (0..random.below(3)).map(|_| random_header(random)).collect();
    let query = if random.one_in(4) { vec![random_query(random)] } else { Vec::new() };
    Route {
        name: String::new(),
        matches: RouteMatch {
            path,
            case_sensitive: !random.one_in(3),
            headers,
            query,
            cookies: Vec::new(),
            stream: None,
            grpc: random.one_in(12),
            fraction: random.one_in(6).then(|| random.below(1_000_001) as u32),
        },
        action: Action::Respond(DirectResponse {
            status: 200,
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

fn random_string(random: &mut Random) -> StringMatch {
    let value = random.pick(&["1", "1,2", "2", "a", "A", "", "11", "GET", "/a"]).to_owned();
    let kind = match random.below(5) {
        0 => StringKind::Exact(value),
        1 => StringKind::Prefix(value),
        2 => StringKind::Suffix(value),
        3 => StringKind::Contains(value),
        _ => StringKind::Regex(Regex::new(random.pick(&["1|12", "[0-9,]+", "a*", "(?i)get"])).unwrap()),
    };
    StringMatch { kind, ignore_case: random.one_in(2) }
}

fn random_header(random: &mut Random) -> HeaderMatch {
    let condition = match random.below(4) {
        0 => HeaderCondition::Present(random.one_in(2)),
        1 => HeaderCondition::Range { start: random.below(3) as i64 - 1, end: random.below(20) as i64 },
        _ => HeaderCondition::Value(random_string(random)),
    };
    HeaderMatch {
        name: random.pick(&["x", "y", "cookie", "accept", ":method", ":path", ":authority"]).to_owned(),
        condition,
        invert: random.one_in(2),
        treat_missing_as_empty: random.one_in(4),
    }
}

fn random_query(random: &mut Random) -> QueryMatch {
    let condition = match random.below(2) {
        0 => QueryCondition::Present(random.one_in(2)),
        _ => QueryCondition::Value(random_string(random)),
    };
    QueryMatch { name: random.pick(&["q", "p", ""]).to_owned(), condition }
}

fn random_head(random: &mut Random) -> RequestHead {
    let mut head = RequestHead::new();
    let connect = random.one_in(20);
    head.set_method(if connect { b"CONNECT" } else { random.pick(&["GET", "get", "PUT"]).as_bytes() }).unwrap();
    let authorities =
        ["a.test", "A.TEST", "a.b.test:8080", "a.b.test", "x-b.test", "c", "a.q", "a.test:1", "a.b.x", "", "b.test"];
    let authority = random.pick(&authorities);
    if !authority.is_empty() {
        head.set_authority(authority.as_bytes()).unwrap();
    }
    if !connect {
        let query = ["", "", "?", "?q=1", "?q", "?q=1&q=2", "?&p=a", "?p=1,2&q=A", "?=1", "?q=a?p=1"];
        let path = if random.one_in(30) { "*".to_owned() } else { random.path() + random.pick(&query) };
        head.set_path(path.as_bytes()).unwrap();
    }
    for _ in 0..random.below(4) {
        let name = random.pick(&["x", "x", "y", "cookie", "accept"]);
        let value = random.pick(&["1", "2", "a", "A", "", "1,2", "11"]);
        head.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
    }
    if random.one_in(4) {
        let kind = random.pick(&["application/grpc", "application/grpc+proto", "application/grpc-web"]);
        head.fields.append_name(b"content-type", kind.as_bytes()).unwrap();
    }
    head
}
