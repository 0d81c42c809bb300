//! The differences that are on purpose, or known. Each stands in `docs/envoy-differences.md`, which says why.

use crate::scene::Scene;
use crate::seen::Difference;

/// Where the two differ.
#[derive(Debug)]
pub struct Allowed {
    /// Words of its row on that page.
    pub row: &'static str,
    /// The scenes that show it; any when there is none.
    pub scenes: &'static [&'static str],
    /// What is in the requests that show it; any when there is none. [`COUNTERS`] stands for what a scene counts.
    pub requests: &'static [&'static str],
    /// What is in the lines that differ; any when there is none.
    pub lines: &'static [&'static str],
}

/// What stands for a request in front of what a whole scene counted.
pub const COUNTERS: &str = "<counters>";

const fn allowed(
    row: &'static str,
    scenes: &'static [&'static str],
    requests: &'static [&'static str],
    lines: &'static [&'static str],
) -> Allowed {
    Allowed { row, scenes, requests, lines }
}

/// All of them.
pub static ALL: &[Allowed] = &[
    // What is refused, and how.
    allowed("two `Host` lines", &["malformed"], &["host: one"], &[]),
    allowed("`Host: user@a`", &["absolute"], &["user@"], &[]),
    allowed("`Expect` other than `100-continue`", &["fields"], &["expect:"], &[]),
    allowed("an empty `Host`", &["malformed"], &["host:\\r\\n"], &[]),
    allowed("more than one space in a request line", &["malformed"], &["GET  /", "HTTP/1.1 \\r\\n"], &[]),
    allowed("`M-SEARCH`", &["methods"], &["M-SEARCH"], &[]),
    allowed("`QUERY` without `content-type`", &["methods"], &["QUERY"], &[]),
    allowed(
        "what the log tells of a refused request",
        &[],
        &[],
        &["log method: ", "log authority: ", "log scheme: ", "log protocol: "],
    ),
    allowed(
        "what the log tells of a refused request",
        &["malformed", "no-underscores", "absolute", "targets", "reject-slashes", "paths", "queries"],
        &["te st", "te/st", "x_under", "other:abc", "[::1/", "#", "/a%2", "/a%5", "/%2F"],
        &["log path", "log original_path", "log details", "log query"],
    ),
    allowed(
        "`%UPSTREAM_REMOTE_ADDRESS%` of a request whose body is malformed",
        &["malformed"],
        &["chunked\\r\\n\\r\\n"],
        &["log upstream"],
    ),
    allowed(
        "`upstream_rq_cancelled` of a request whose body is malformed",
        &["malformed"],
        &[COUNTERS],
        &["upstream_rq_cancelled", "cluster.a.upstream_rq_total"],
    ),
    allowed("the body of an answer of the proxy's own", &[], &[], &["log own_body"]),
    // Messages.
    allowed("`content-length: 005`", &["bodies"], &["005"], &["content-length"]),
    allowed("answers to HTTP/1.0", &["old-versions"], &[], &["answer: HTTP/1."]),
    allowed(
        "the answer to `HEAD`",
        &[],
        &["HEAD "],
        &["answer field transfer-encoding", "answer field content-length: 0"],
    ),
    allowed(
        "fields that `Connection` of an answer names",
        &[],
        &["answer: fields", "answer=fields"],
        &["answer field x-hop"],
    ),
    allowed(
        "`Expect: 100-continue` with the body behind it",
        &["expectations"],
        &["expect:", "Expect:"],
        &["interim", "answer field connection: close", "log received"],
    ),
    allowed(
        "an answer that comes before the request is complete",
        &[],
        &["with a body", "upgrade", "CONNECT", "POST ", "PUT "],
        &["answer field connection: close", "log received"],
    ),
    allowed(
        "trailers, with `enable_trailers`",
        &["trailers-kept"],
        &[],
        &["trailer field", "log trailer", "log received"],
    ),
    allowed(
        "several lines of one field",
        &[],
        &[
            "origin: http://table.test\\r\\norigin",
            "accept: b",
            "via: 1.0 b",
            "x-request-id: b",
            "location",
            "accept-encoding: zstd\\r\\naccept",
            "cert: By=a\\r\\nx",
        ],
        &["origin", "accept", "via", "x-request-id", "location", "x-forwarded-client-cert"],
    ),
    allowed("reason phrases", &[], &[], &["answer: HTTP/1.1 418", "answer: HTTP/1.1 599"]),
    // Upstreams.
    allowed(
        "the details of an answer of `basic_auth` or `rbac`",
        &["policies-"],
        &["HTTP/1.1"],
        &["ntial_for_basic_auth", "scheme_for_basic_auth", "ess_denied_matched_policy["],
    ),
    allowed(
        "`ext_authz` over HTTP: a refusal with all fields",
        &["policies-"],
        &["x-make: 403", "x-answer: 4", "x-answer: 5"],
        &["answer field x-envoy-upstream-service-time"],
    ),
    allowed("why an upstream's answer is refused", &[], &["x-answer: ", "answer=garbage"], &["log failure"]),
    allowed("a kept upstream connection that ends instead of an answer", &[], &["hangup", "reset"], &[]),
    // Counters.
    allowed(
        "counters of refused requests",
        &[],
        &[COUNTERS],
        &[
            "downstream_rq_rx_reset",
            "downstream_rq_response_before_rq_complete",
            "downstream_rq_failed_path_normalization",
        ],
    ),
    allowed("interim answers in counters", &[], &[COUNTERS], &["_rq_1", "_rq_completed"]),
    allowed(
        "a request for an upgrade that an upstream refuses",
        &["upgrades", "fields"],
        &["upgrade"],
        &["x-envoy-upstream-service-time"],
    ),
    allowed("a status 400 for trailers", &["trailers-kept"], &[COUNTERS], &["_rq_4"]),
    allowed(
        "a host from `host_rewrite_header`",
        &["host-rewrites"],
        &["/path/123"],
        &["field host", "log authority", "field x-envoy-original-host"],
    ),
    allowed(
        "`%DYNAMIC_METADATA()%` of a namespace that is not there",
        &["commands"],
        &[],
        &["field x-p-16", "field x-q-16"],
    ),
    allowed("`%RESPONSE_CODE%` in `response_headers_to_add`", &["commands"], &[], &["field x-q-0"]),
    allowed("an absolute target without path", &["hosts", "absolute"], &["http://example.com?x"], &[]),
    allowed(
        "the target `*`",
        &["paths"],
        &["OPTIONS *", COUNTERS],
        &["log details", "log flags", "rq_total", "no_route", "non_relative_path"],
    ),
    allowed("the record of the start of a request", &["started", "log-moments"], &[], &["log cluster"]),
    // Logs.
    allowed("`%REQUEST_HEADERS_BYTES%`", COMMANDS, &[], &["log REQUEST_HEADERS_BYTES", "log RESPONSE_HEADERS_BYTES"]),
    allowed("`%UPSTREAM_HOSTS_ATTEMPTED%`", COMMANDS, &["/again", "/down"], &["ATTEMPTED"]),
    allowed(
        "`%UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED%` after retries",
        COMMANDS,
        &["/again"],
        &["log UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED"],
    ),
    allowed(
        "`%UPSTREAM_WIRE_BYTES_RECEIVED%` of an answer that is refused",
        COMMANDS,
        &["answer=garbage"],
        &["log UPSTREAM_WIRE_BYTES_RECEIVED"],
    ),
    allowed("`metadata_filter` of an access log", &["log-notes"], &["x-m: "], &["log "]),
    // Filters.
    allowed(
        "`custom_response`: the log line of a request whose answer is fetched",
        &["custom-response-fetched"],
        &["x-answer: "],
        &["log cluster", "log original_path", "log path", "log query"],
    ),
    allowed(
        "`bandwidth_limit`: an answer that breaks off",
        &["bandwidth"],
        &["truncated", COUNTERS],
        &["log sent: ", "response_allowed_total_size", "response_pending"],
    ),
    allowed(
        "`bandwidth_limit`: trailers of an answer that has a length",
        &["bandwidth-trailers"],
        &["answer=404"],
        &["answer field transfer-encoding", "answer field content-length", "answer trailer field"],
    ),
    allowed(
        "`bandwidth_limit` with `enable_response_trailers`",
        &["bandwidth-trailers"],
        &["content-length: 600"],
        &["a got #0 field content-length", "a got #0 field transfer-encoding"],
    ),
    allowed(
        "`bandwidth_limit`: trailers about a request in chunks",
        &["bandwidth-trailers"],
        &["POST "],
        &["bandwidth-request-"],
    ),
    allowed(
        "`bandwidth_limit`: gauges",
        &["bandwidth", "bandwidth-trailers", "paced"],
        &[COUNTERS],
        &["_incoming_size", "_allowed_size"],
    ),
    allowed("`tracing.health_check`", &[], &[COUNTERS], &["tracing.health_check"]),
    allowed("a text such as `0x10`", &["header-to-metadata"], &["0x10"], &["log noted"]),
    allowed("`cors` of a route that answers itself", &["cors-scopes"], &["/own", "/away"], &[]),
    allowed("`cors` of a route that answers itself", &["cors-scopes"], &[COUNTERS], &["cors.origin_invalid"]),
    allowed(
        "`decompressor`: the names of the trailers",
        &["decompressor-requests"],
        &[],
        &["trailer field x-envoy-decompressor"],
    ),
    allowed("`basic_auth`: several lines of credentials", &["basic-auth-scopes"], &["==\\r\\nx-credentials"], &[]),
    allowed(
        "`rq_reset_after_downstream_response_started`",
        &[
            "cut",
            "tls-answers",
            "answers",
            "log-statuses",
            "log-calls",
            "log-commands",
            "tls-log-commands",
            "bandwidth",
        ],
        &[COUNTERS],
        &["rq_reset_after_downstream_response_started"],
    ),
    allowed(
        "`:scheme` of a request over HTTP/2",
        &["h2-redirects"],
        &["x-forwarded-proto"],
        &["answer field location"],
    ),
    allowed("methods that Envoy's parser of HTTP/1 does not know, over HTTP/2", &["h2-methods"], &["FROBNICATE"], &[]),
    allowed("what is refused in a head of HTTP/2", &["h2-no-underscores"], &["x_under", "x-many"], &[]),
    allowed("`jwt_authn`: a claim that cannot stand in a header", &["jwt-effects"], &["JmcmFjdGlvbiI6MC41"], &[]),
    allowed("`%UPSTREAM_CLUSTER%` in a filter's format", &["mutations-commands"], &[], &["a got #0 field x-c-7"]),
    allowed("`content-length` of an answer of the proxy's own", &["header-to-metadata"], &["/own"], &["log noted"]),
    allowed(
        "`compressor`, `decompressor`: a body that is whole",
        &["compressor-accepted", "compressor-scopes"],
        &["/own"],
        &["answer field transfer-encoding", "answer field content-length"],
    ),
    allowed("`content_length_too_small` with", &["compressor-statuses"], &[COUNTERS], &["content_length_too_small"]),
    allowed("`%FILTER_STATE(envoy.filters.http.grpc_stats", &["grpc-stats"], &[], &["log state"]),
    allowed(
        "`grpc_http1_reverse_bridge`: the length of a message",
        &["grpc-reverse-bridge"],
        &["POST /p.S/M"],
        &["content-length", "transfer-encoding"],
    ),
    allowed(
        "`grpc_http1_reverse_bridge`: `grpc-message`",
        &["grpc-reverse-bridge"],
        &["text/plain"],
        &["grpc-message"],
    ),
    allowed(
        "`grpc_http1_reverse_bridge`: what the proxy answers itself",
        &["grpc-reverse-bridge"],
        &["content-length: 2\\r"],
        &["grpc-message", "log details"],
    ),
    allowed(
        "`grpc_http1_bridge`: the length of an answer",
        &["grpc-bridge"],
        &["x-protobuf"],
        &["answer field transfer-encoding", "answer field content-length"],
    ),
    allowed("`grpc_http1_bridge`: an empty request", &["grpc-bridge"], &["content-length: 0"], &[]),
    allowed("what the proxy adds to its own calls", ASKING, &[], &["authz got"]),
    allowed("`ext_authz`: `response_headers`", &["ext-authz-shadow"], &["answer="], &["log decision"]),
    allowed(
        "the length of a body that a plugin held whole",
        &["native-bodies", "native-answer-bodies", "native-upstream-bodies"],
        &["remove 0 content-length", "remove 2 content-length"],
        &["field content-length", "field transfer-encoding"],
    ),
    allowed(
        "native modules on the upstream side: a body that their hooks see",
        &["native-upstream-bodies"],
        &["POST"],
        &["answer field content-length", "answer field transfer-encoding"],
    ),
    allowed(
        "native modules: what they note in the hook or event that answers, but for hooks for requests of the client",
        &["native-upstream-replies"],
        &["respond"],
        &["trace"],
    ),
    allowed(
        "filters on the upstream side: connection",
        &["native-upstream-replies"],
        &["respond"],
        &["log upstream", "log upstream_protocol"],
    ),
    allowed(
        "filters on the upstream side: one of them answers",
        &["native-upstream-replies"],
        &[COUNTERS],
        &["upstream_rq_cancelled", "upstream_rq_total"],
    ),
    allowed(
        "native modules: an answer in pieces: the log",
        &["native-pieces"],
        &[],
        &["log details", "log trace", "trace "],
    ),
    allowed(
        "what the proxy adds to its own calls",
        CALLS,
        &[],
        &["authz got #0 field x-envoy-", "authz got #0 field x-forwarded-for"],
    ),
    allowed(
        "the order in which plugins see pseudo-fields",
        &["native-streams", "wasm-streams"],
        &["pairs"],
        &["trace qh pairs"],
    ),
    allowed("`wasm`: a stream that a module closes", &["wasm-pauses"], &["close"], &["log cluster", "log flags"]),
    allowed(
        "`wasm`: a stream that a module closes",
        &["wasm-pauses"],
        &[COUNTERS],
        &["rq_reset_after_downstream_response_started"],
    ),
    allowed(
        "the log of a request whose redirect the proxy followed",
        &["internal-redirects"],
        &["redirect"],
        &["log cluster", "log path", "log original_path"],
    ),
];

/// Scenes of filters that ask a service.
const ASKING: &[&str] = &[
    "ext-authz",
    "ext-authz-body",
    "ext-authz-shadow",
    "ext-authz-clearing",
    "ext-authz-not-clearing",
    "ext-authz-limits",
    "ext-authz-retries",
    "policies-",
];

/// Scenes with all commands in their logs.
const COMMANDS: &[&str] = &["log-commands", "tls-log-commands"];

/// Scenes of calls of plugins.
const CALLS: &[&str] =
    &["wasm-calls", "wasm-answer-calls", "wasm-streams", "native-calls", "native-streams", "native-upstream"];

impl Allowed {
    fn is_about(&self, scene: &str, request: &str) -> bool {
        // Over another protocol it is the same scene.
        let same = scene.strip_prefix(crate::streams::PREFIX).unwrap_or(scene);
        // Those by chance have a number behind it.
        let is_drawn = |known: &&str| known.ends_with('-') && same.starts_with(*known);
        (self.scenes.is_empty()
            || self.scenes.contains(&scene)
            || self.scenes.contains(&same)
            || self.scenes.iter().any(is_drawn))
            && (self.requests.is_empty() && request != COUNTERS
                || self.requests.iter().any(|part| request.contains(part)))
    }

    fn takes(&self, line: &str) -> bool {
        self.lines.is_empty() || self.lines.iter().any(|part| line.contains(part))
    }

    /// A request that is treated otherwise as a whole counts otherwise too, and is alone in what is not compared then.
    fn is_whole(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Whether a request may be treated otherwise as a whole.
pub fn may_be_whole(scene: &Scene, request: &str) -> bool {
    ALL.iter().any(|known| known.is_whole() && known.is_about(&scene.name, request))
}

/// Takes what is known out of `difference`; answers whether the request was treated otherwise as a whole.
pub fn forgive(scene: &Scene, request: &str, difference: &mut Difference) -> bool {
    let mut whole = false;
    for known in ALL.iter().filter(|known| known.is_about(&scene.name, request)) {
        whole |= known.is_whole() && !difference.is_empty();
        difference.envoy.retain(|line| !known.takes(line));
        difference.postrider.retain(|line| !known.takes(line));
    }
    whole
}

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/envoy-differences.md"));

#[test]
fn every_allowed_difference_is_on_the_page() {
    let missing: Vec<&str> = ALL.iter().map(|known| known.row).filter(|row| !PAGE.contains(row)).collect();
    assert!(missing.is_empty(), "docs/envoy-differences.md does not say: {missing:#?}");
}
