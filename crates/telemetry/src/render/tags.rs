//! Labels out of names: what Envoy's default tag extraction makes of a stat's name.
//!
//! The first part after `cluster`, `http`, `tcp` and others becomes a label and leaves the name; what stands further inside as
//! well. Only one part: `cluster.a.b.x` is `envoy_cluster_b_x` with the cluster `a`, as in Envoy. Rules are there for all of
//! Envoy's tags, those of filters that are not here among them: extensions name statistics as they like.

use crate::stats::ScopeTags;
use std::ops::Range;

/// A part of a name that is a tag's value, and goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// As Envoy names it, with dots.
    pub(crate) tag: &'static str,
    pub(crate) value: Range<usize>,
    /// What leaves the name: the value, and a dot or an underscore beside it.
    pub(crate) gone: Range<usize>,
    /// Looked for in names of one root only.
    pub(crate) rooted: bool,
}

/// What becomes of a full name, in Envoy's order: first the tags that are looked for in every name, then those of its root.
pub(crate) fn cuts(name: &str) -> Vec<Cut> {
    let parts: Vec<&str> = name.split('.').collect();
    let root = parts.first().copied().unwrap_or_default();
    let everywhere = EVERYWHERE.iter().filter_map(|rule| rule.cut(name, &parts));
    let rooted = below(root).iter().filter_map(|rule| rule.cut(name, &parts));
    everywhere.chain(rooted.map(|cut| Cut { rooted: true, ..cut })).collect()
}

/// What becomes of a scope's name, which has a closing dot, whatever is counted there.
pub(crate) fn scope(name: &str) -> Vec<Cut> {
    let mut cuts = cuts(&[name, "_"].concat());
    cuts.retain(|cut| cut.gone.end <= name.len());
    cuts
}

/// What leaves a scope's name, which has a closing dot, for tags of its own.
pub(crate) fn tail(name: &str, own: &ScopeTags) -> Range<usize> {
    name.len().saturating_sub(own.tail + 1)..name.len()
}

/// The status or its class at the end of a name.
pub(crate) fn status(name: &str) -> Option<Cut> {
    EVERYWHERE.iter().take(STATUSES).find_map(|rule| rule.cut(name, &[]))
}

/// How a tag is found in a name.
enum Rule {
    /// Its value is that part of a name whose parts are these.
    Parts(&'static str, &'static [Part]),
    /// Its value is no whole part, or several of them.
    Found(&'static str, fn(&str) -> Option<Place>),
}

/// Where a value is, and what leaves the name.
type Place = (Range<usize>, Range<usize>);

enum Part {
    Is(&'static str),
    One,
    /// Any number of parts.
    Any,
    /// At least one part, to the end.
    Rest,
    Value,
    /// A value that leaves with the dot before it.
    Led,
    /// A value that is not this.
    Not(&'static str),
    /// A value of letters, digits, underscores and hyphens.
    Word,
}

use Part::{Any, Is, Led, Not, One, Rest, Value, Word};
use Rule::{Found, Parts};

/// So many of [`EVERYWHERE`] are about statuses.
const STATUSES: usize = 2;

/// Tags that no root was given for.
const EVERYWHERE: &[Rule] = &[
    Found("envoy.response_code", response_code),
    Found("envoy.response_code_class", response_code_class),
    Parts("envoy.ssl_curve", &[Is("listener"), One, Any, Is("ssl"), Is("curves"), Word]),
    Parts("envoy.ssl_curve", &[Is("cluster"), One, Any, Is("ssl"), Is("curves"), Word]),
    Parts("envoy.ssl_sigalg", &[Is("listener"), One, Any, Is("ssl"), Is("sigalgs"), Word]),
    Parts("envoy.ssl_sigalg", &[Is("cluster"), One, Any, Is("ssl"), Is("sigalgs"), Word]),
    Found("envoy.ssl_version", tls_version),
    Found("envoy.worker_id", worker),
    Parts("envoy.tls_certificate", &[Is("listener"), One, Any, Is("ssl"), Is("certificate"), Value, Rest]),
    Parts("envoy.tls_certificate", &[Is("cluster"), One, Any, Is("ssl"), Is("certificate"), Value, Rest]),
    Parts("envoy.local_http_ratelimit_prefix", &[Value, Is("http_local_rate_limit"), Rest]),
    Parts("envoy.rbac_prefix", &[Value, Is("rbac"), Rest]),
];

/// Tags of names whose first part is that.
fn below(root: &str) -> &'static [Rule] {
    match root {
        "auth" => &[Parts("envoy.clientssl_prefix", &[One, Is("clientssl"), Value, Rest])],
        "cluster" => &[
            Parts("cipher_suite", &[One, One, Is("ssl"), Is("ciphers"), Word]),
            Parts("envoy.grpc_bridge_method", &[One, One, Is("grpc"), One, Value, Rest]),
            Parts("envoy.grpc_bridge_service", &[One, One, Is("grpc"), Value, Rest]),
            Parts("envoy.cluster_name", &[One, Value, Rest]),
            Parts("envoy.ext_authz_prefix", &[One, One, Is("ext_authz"), Value, Rest]),
        ],
        "connection_limit" => &[Parts("envoy.connection_limit_prefix", &[One, Value, Rest])],
        "dns_filter" => &[Parts("envoy.dns_filter_prefix", &[One, Value, Rest])],
        "grpc" => &[Parts("envoy.google_grpc_client_prefix", &[One, Value, Rest])],
        "http" => &[
            Found("envoy.dynamo_partition_id", dynamo_partition),
            Parts("envoy.dynamo_operation", &[One, One, Is("dynamodb"), Is("operation"), Led, Any]),
            Parts("envoy.dynamo_operation", &[One, One, Is("dynamodb"), Is("table"), One, Is("capacity"), Led, Any]),
            Parts("envoy.dynamo_table", &[One, One, Is("dynamodb"), Is("table"), Value, Rest]),
            Parts("envoy.dynamo_table", &[One, One, Is("dynamodb"), Is("error"), Value, Rest]),
            Found("envoy.rds_route_config", |name| route_config(name, "rds", "_-./")),
            Found("envoy.scoped_rds_config", |name| route_config(name, "scoped_rds", "_-.")),
            Parts("envoy.rbac_policy_name", &[One, One, Is("rbac"), Is("policy"), Value, One]),
            Parts("envoy.rbac_policy_name", &[One, One, Is("rbac"), One, Is("policy"), Value, One]),
            Parts("envoy.rbac_http_prefix", &[One, One, Is("rbac"), Not("policy"), Rest]),
            Parts("envoy.http_user_agent", &[One, One, Is("user_agent"), Value, Rest]),
            Parts("envoy.fault_downstream_cluster", &[One, One, Is("fault"), Value, Rest]),
            Parts("envoy.ext_authz_prefix", &[One, One, Is("ext_authz"), Value, Rest]),
            Parts("envoy.http_conn_manager_prefix", &[One, Value, Rest]),
        ],
        "listener" => &[
            Parts("envoy.ssl_cipher", &[One, One, Any, Is("ssl"), Is("ciphers"), Word]),
            Parts("envoy.http_conn_manager_prefix", &[One, One, Any, Is("http"), Value, Rest]),
            Found("envoy.listener_address", listener_address),
        ],
        "listener_local_ratelimit" => &[Parts("envoy.local_listener_ratelimit_prefix", &[One, Value, Rest])],
        "local_rate_limit" => &[Parts("envoy.local_network_ratelimit_prefix", &[One, Value, Rest])],
        "mongo" => &[
            Parts("envoy.mongo_callsite", &[One, One, Is("collection"), One, Is("callsite"), Value, Is("query"), Rest]),
            Parts("envoy.mongo_collection", &[One, One, Is("collection"), Value, Any, Is("query"), One]),
            Parts("envoy.mongo_cmd", &[One, One, Is("cmd"), Value, Rest]),
            Parts("envoy.mongo_prefix", &[One, Value, Rest]),
        ],
        "proxy_proto" => &[
            Parts("envoy.proxy_protocol_prefix", &[One, Not("versions"), Rest]),
            Found("envoy.proxy_protocol_version", proxy_protocol_version),
        ],
        "ratelimit" => &[Parts("envoy.ratelimit_prefix", &[One, Value, Rest])],
        "redis" => &[Parts("envoy.redis_prefix", &[One, Value, Rest])],
        "sds" => &[Parts("envoy.xds_resource_name", &[One, Value, Rest])],
        "tcp" => &[Parts("envoy.tcp_prefix", &[One, Value, Rest])],
        "thrift" => &[Parts("envoy.thrift_prefix", &[One, Value, Rest])],
        "udp" => &[Parts("envoy.udp_prefix", &[One, Value, Rest])],
        "vhost" => &[
            Parts("envoy.virtual_cluster", &[One, One, Is("vcluster"), Value, Rest]),
            Parts("envoy.virtual_host", &[One, Value, Rest]),
            Parts("envoy.route", &[One, One, Is("route"), Value, Rest]),
        ],
        _ => &[],
    }
}

impl Rule {
    /// Its cut in a name that has these parts.
    fn cut(&self, name: &str, parts: &[&str]) -> Option<Cut> {
        let (tag, (value, gone)) = match self {
            Found(tag, find) => (tag, find(name)?),
            Parts(tag, wanted) => {
                let mut at = 0;
                if !fit(parts, wanted, 0, &mut at) {
                    return None;
                }
                let start = parts.iter().take(at).map(|part| part.len() + 1).sum::<usize>();
                let value = start..start + parts.get(at)?.len();
                // With the dot behind it, or before it at the end of a name.
                let led = at + 1 == parts.len() || wanted.iter().any(|part| matches!(part, Led));
                let gone = if !led { start..value.end + 1 } else { start.saturating_sub(1)..value.end };
                (tag, (value, gone))
            }
        };
        Some(Cut { tag, value, gone, rooted: false })
    }
}

/// Whether the parts from that one on are as they are wanted; `value` becomes the place of the value.
fn fit(parts: &[&str], wanted: &[Part], at: usize, value: &mut usize) -> bool {
    let Some((first, further)) = wanted.split_first() else { return at == parts.len() };
    if matches!(first, Any) {
        return further.is_empty() || (at..parts.len()).any(|at| fit(parts, further, at, value));
    }
    let Some(part) = parts.get(at) else { return false };
    let fits = match first {
        Is(what) => part == what,
        Not(what) => !part.is_empty() && part != what,
        Word => !part.is_empty() && part.bytes().all(|b| is_word(b, "_-")),
        Rest => return true,
        One | Value | Led | Any => true,
    };
    if matches!(first, Value | Led | Not(_) | Word) {
        *value = at;
    }
    fits && fit(parts, further, at + 1, value)
}

fn is_word(byte: u8, others: &str) -> bool {
    byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte)
}

/// `…_rq_404`
fn response_code(name: &str) -> Option<Place> {
    let digits = name.len().checked_sub(3)?;
    let before = name.get(..digits)?.strip_suffix("_rq_")?.len() + "_rq".len();
    name[digits..].bytes().all(|b| b.is_ascii_digit()).then_some((digits..name.len(), before..name.len()))
}

/// `…_rq_4xx`
fn response_code_class(name: &str) -> Option<Place> {
    let class = name.strip_suffix("xx")?;
    let digit = class.len().checked_sub(1)?;
    let found = class.get(..digit)?.ends_with("_rq_") && class[digit..].bytes().all(|b| b.is_ascii_digit());
    found.then_some((digit..class.len(), digit..class.len()))
}

/// `listener.<address>.ssl.versions.TLSv1.3`, whose value has a dot of its own.
fn tls_version(name: &str) -> Option<Place> {
    let (before, version) = name.rsplit_once(".ssl.versions.")?;
    let (_, named) = before.split_once('.').filter(|(root, _)| ["listener", "cluster"].contains(root))?;
    let is_version = matches!(version.as_bytes(), [b'T', b'L', b'S', b'v', b'0'..=b'9', b'.', b'0'..=b'9']);
    let value = name.len() - version.len()..name.len();
    (is_version && !named.is_empty()).then(|| (value.clone(), value.start - 1..value.end))
}

/// The number of a thread: `worker_` stays where it is.
fn worker(name: &str) -> Option<Place> {
    let (root, rest) = name.split_once('.')?;
    let rest = match root {
        "listener" => rest.get(address_end(rest)..)?.strip_prefix('.')?,
        "server" | "listener_manager" | "thread_local_cluster_manager" => rest,
        _ => return None,
    };
    let (number, after) = rest.strip_prefix("worker_")?.split_once('.')?;
    let end = name.len() - after.len();
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| (end - 1 - number.len()..end - 1, end - 1 - number.len()..end))
}

/// Envoy leaves its own admin listener untagged.
fn listener_address(name: &str) -> Option<Place> {
    let rest = name.strip_prefix("listener.")?;
    let (start, length) = (name.len() - rest.len(), address_end(rest));
    let address = rest.get(..length).filter(|address| !address.is_empty() && *address != "admin")?;
    let end = start + address.len();
    (end < name.len()).then_some((start..end, start..end + 1))
}

/// Where the address ends: an IPv4 address has dots of its own, other names end at the first.
fn address_end(rest: &str) -> usize {
    let first = rest.find('.').unwrap_or(rest.len());
    let port = rest.split('.').nth(3).and_then(|last| last.split_once('_')).map_or("", |(_, port)| port);
    let end = rest.match_indices('.').nth(3).map_or(rest.len(), |(at, _)| at);
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let address = rest.get(..end.saturating_sub(port.len() + 1)).filter(|_| is_port);
    if address.is_some_and(|address| address.parse::<std::net::Ipv4Addr>().is_ok()) { end } else { first }
}

/// `http.<stat_prefix>.rds.<name>.<statistic>`: names have dots of their own.
fn route_config(name: &str, kind: &str, others: &str) -> Option<Place> {
    let (_, rest) = name.strip_prefix("http.")?.split_once('.')?;
    let (config, statistic) = rest.strip_prefix(kind)?.strip_prefix('.')?.rsplit_once('.')?;
    let is_config = !config.is_empty() && config.bytes().all(|b| is_word(b, others));
    let end = name.len() - statistic.len();
    let is_statistic = !statistic.is_empty() && statistic.bytes().all(|b| is_word(b, "_"));
    (is_config && is_statistic).then(|| (end - 1 - config.len()..end - 1, end - 1 - config.len()..end))
}

/// `proxy_proto.[<stat_prefix>.]versions.v<number>.<statistic>`: all that stands before the statistic goes.
fn proxy_protocol_version(name: &str) -> Option<Place> {
    let rest = name.strip_prefix("proxy_proto.")?;
    let after = match rest.strip_prefix("versions.") {
        Some(after) => after,
        None => rest.split_once('.')?.1.strip_prefix("versions.")?,
    };
    let (version, statistic) = after.strip_prefix('v')?.split_once('.')?;
    let end = name.len() - statistic.len();
    let fits = version.len() == 1 && version.bytes().all(|b| b.is_ascii_digit()) && !statistic.contains('.');
    fits.then(|| (end - 2..end - 1, name.len() - rest.len()..end))
}

/// `http.<stat_prefix>.dynamodb.table.<table>.capacity.<operation>.__partition_id=<end of the id>`
fn dynamo_partition(name: &str) -> Option<Place> {
    let (before, id) = name.rsplit_once(".__partition_id=")?;
    let wanted = &[Is("http"), One, Is("dynamodb"), Is("table"), One, Is("capacity"), One];
    let is_id = id.len() == 7 && id.bytes().all(|b| is_word(b, "_"));
    let parts: Vec<&str> = before.split('.').collect();
    (is_id && fit(&parts, wanted, 0, &mut 0)).then(|| (name.len() - id.len()..name.len(), before.len()..name.len()))
}

/// The text without these parts of it, which may overlap.
pub(crate) fn remove(text: &str, mut parts: Vec<Range<usize>>) -> String {
    parts.sort_by_key(|part| part.start);
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for part in parts {
        out.push_str(text.get(from..part.start).unwrap_or_default());
        from = from.max(part.end);
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

/// `name="value"` pairs joined by commas, escaped, for Prometheus.
pub(crate) fn labels<'a>(tags: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = tags.map(|(tag, value)| pair(tag, value)).collect();
    pairs.join(",")
}

/// Prometheus allows letters, digits and underscores in a label's name.
pub(crate) fn label_name(tag: &str) -> String {
    tag.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

pub(crate) fn pair(tag: &str, value: &str) -> String {
    let mut out = label_name(tag);
    out.push_str("=\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(name: &str, cuts: &[Cut]) -> (String, String) {
        (
            remove(name, cuts.iter().map(|cut| cut.gone.clone()).collect()),
            labels(cuts.iter().map(|cut| (cut.tag, &name[cut.value.clone()]))),
        )
    }

    /// Each seen on a real Envoy 1.40.
    #[test]
    fn labels_are_envoys() {
        let cases = [
            ("cluster.adm.", "cluster.", r#"envoy_cluster_name="adm""#),
            ("cluster.a.b_c.d.", "cluster.b_c.d.", r#"envoy_cluster_name="a""#),
            (r#"cluster.we"ird\x y|z-é."#, "cluster.", r#"envoy_cluster_name="we\"ird\\x y|z-é""#),
            (
                "cluster.origin.grpc.echo_E.Call.",
                "cluster.grpc.",
                r#"envoy_grpc_bridge_method="Call",envoy_grpc_bridge_service="echo_E",envoy_cluster_name="origin""#,
            ),
            (
                "cluster.origin.grpc.echo.E.Call.",
                "cluster.grpc.Call.",
                r#"envoy_grpc_bridge_method="E",envoy_grpc_bridge_service="echo",envoy_cluster_name="origin""#,
            ),
            ("cluster.origin.grpc.", "cluster.grpc.", r#"envoy_cluster_name="origin""#),
            ("http.x.y.", "http.y.", r#"envoy_http_conn_manager_prefix="x""#),
            (
                "vhost.web.vcluster.users.",
                "vhost.vcluster.",
                r#"envoy_virtual_cluster="users",envoy_virtual_host="web""#,
            ),
            ("vhost.web.route.shop.", "vhost.route.", r#"envoy_virtual_host="web",envoy_route="shop""#),
            ("vhost.a.b.route.shop.", "vhost.b.route.shop.", r#"envoy_virtual_host="a""#),
            ("tcp.p.q.", "tcp.q.", r#"envoy_tcp_prefix="p""#),
            ("listener.127.0.0.1_18731.", "listener.", r#"envoy_listener_address="127.0.0.1_18731""#),
            ("listener.[__1]_18741.", "listener.", r#"envoy_listener_address="[__1]_18741""#),
            ("listener.my.listener.", "listener.listener.", r#"envoy_listener_address="my""#),
            ("listener.my.listener.worker_0.", "listener.listener.worker_0.", r#"envoy_listener_address="my""#),
            ("listener.admin.", "listener.admin.", ""),
            ("listener.admin.http.admin.", "listener.admin.http.", r#"envoy_http_conn_manager_prefix="admin""#),
            (
                "listener.[__1]_18741.worker_0.",
                "listener.worker_",
                r#"envoy_worker_id="0",envoy_listener_address="[__1]_18741""#,
            ),
            (
                "listener.127.0.0.1_80.http.x.y.",
                "listener.http.y.",
                r#"envoy_http_conn_manager_prefix="x",envoy_listener_address="127.0.0.1_80""#,
            ),
            (
                "listener.127.0.0.1_80.ssl.certificate.my_ca.",
                "listener.ssl.certificate.",
                r#"envoy_tls_certificate="my_ca",envoy_listener_address="127.0.0.1_80""#,
            ),
            (
                "listener.127.0.0.1_80.ssl.certificate.a b.x.",
                "listener.ssl.certificate.x.",
                r#"envoy_tls_certificate="a b",envoy_listener_address="127.0.0.1_80""#,
            ),
            (
                "cluster.b.ssl.certificate.c.",
                "cluster.ssl.certificate.",
                r#"envoy_tls_certificate="c",envoy_cluster_name="b""#,
            ),
            ("server.", "server.", ""),
            ("server.worker_1.", "server.worker_", r#"envoy_worker_id="1""#),
            ("server.main_thread.", "server.main_thread.", ""),
            (
                "thread_local_cluster_manager.worker_0.",
                "thread_local_cluster_manager.worker_",
                r#"envoy_worker_id="0""#,
            ),
            ("cluster_manager.", "cluster_manager.", ""),
        ];
        for (scope, rest, labels) in cases {
            assert_eq!(both(scope, &super::scope(scope)), (rest.into(), labels.into()), "{scope}");
        }
    }

    /// At least one name for each tag. The end-to-end test compares those of its filters with Envoy 1.40; the others follow from Envoy's list.
    #[test]
    fn every_tag_of_envoys_is_found() {
        let cases = [
            ("cluster.a.upstream_rq_404", "cluster.upstream_rq", r#"envoy_response_code="404",envoy_cluster_name="a""#),
            (
                "cluster.a.external.upstream_rq_5xx",
                "cluster.external.upstream_rq_xx",
                r#"envoy_response_code_class="5",envoy_cluster_name="a""#,
            ),
            ("cluster.a.upstream_rq_tx_reset", "cluster.upstream_rq_tx_reset", r#"envoy_cluster_name="a""#),
            (
                "http.h.dynamodb.table.t.capacity.GetItem.__partition_id=abcdefg",
                "http.dynamodb.table.capacity",
                r#"envoy_dynamo_partition_id="abcdefg",envoy_dynamo_operation="GetItem",envoy_dynamo_table="t",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "http.h.dynamodb.operation.GetItem.upstream_rq_total",
                "http.dynamodb.operation.upstream_rq_total",
                r#"envoy_dynamo_operation="GetItem",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "http.h.dynamodb.error.t.x",
                "http.dynamodb.error.x",
                r#"envoy_dynamo_table="t",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "mongo.m.collection.c.callsite.s.query.total",
                "mongo.collection.callsite.query.total",
                r#"envoy_mongo_callsite="s",envoy_mongo_collection="c",envoy_mongo_prefix="m""#,
            ),
            (
                "mongo.m.collection.c.query.total",
                "mongo.collection.query.total",
                r#"envoy_mongo_collection="c",envoy_mongo_prefix="m""#,
            ),
            ("mongo.m.cmd.x.total", "mongo.cmd.total", r#"envoy_mongo_cmd="x",envoy_mongo_prefix="m""#),
            (
                "cluster.c.grpc.svc.Call.total",
                "cluster.grpc.total",
                r#"envoy_grpc_bridge_method="Call",envoy_grpc_bridge_service="svc",envoy_cluster_name="c""#,
            ),
            (
                "http.h.user_agent.ios.downstream_cx_total",
                "http.user_agent.downstream_cx_total",
                r#"envoy_http_user_agent="ios",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "vhost.v.vcluster.users.upstream_rq_total",
                "vhost.vcluster.upstream_rq_total",
                r#"envoy_virtual_cluster="users",envoy_virtual_host="v""#,
            ),
            (
                "vhost.v.route.shop.upstream_rq_total",
                "vhost.route.upstream_rq_total",
                r#"envoy_virtual_host="v",envoy_route="shop""#,
            ),
            (
                "http.h.fault.dcl.delays_injected",
                "http.fault.delays_injected",
                r#"envoy_fault_downstream_cluster="dcl",envoy_http_conn_manager_prefix="h""#,
            ),
            ("http.h.fault.delays_injected", "http.fault.delays_injected", r#"envoy_http_conn_manager_prefix="h""#),
            (
                "listener.127.0.0.1_80.ssl.ciphers.X-Y",
                "listener.ssl.ciphers",
                r#"envoy_ssl_cipher="X-Y",envoy_listener_address="127.0.0.1_80""#,
            ),
            ("cluster.c.ssl.ciphers.X-Y", "cluster.ssl.ciphers", r#"cipher_suite="X-Y",envoy_cluster_name="c""#),
            (
                "listener.[__1]_80.ssl.curves.P-256",
                "listener.ssl.curves",
                r#"envoy_ssl_curve="P-256",envoy_listener_address="[__1]_80""#,
            ),
            (
                "cluster.c.ssl.sigalgs.rsa_pss_rsae_sha256",
                "cluster.ssl.sigalgs",
                r#"envoy_ssl_sigalg="rsa_pss_rsae_sha256",envoy_cluster_name="c""#,
            ),
            (
                "listener.l.ssl.versions.TLSv1.3",
                "listener.ssl.versions",
                r#"envoy_ssl_version="TLSv1.3",envoy_listener_address="l""#,
            ),
            ("listener.l.ssl.handshake", "listener.ssl.handshake", r#"envoy_listener_address="l""#),
            ("tcp.t.downstream_cx_total", "tcp.downstream_cx_total", r#"envoy_tcp_prefix="t""#),
            ("udp.u.downstream_sess_total", "udp.downstream_sess_total", r#"envoy_udp_prefix="u""#),
            ("auth.clientssl.p.auth_no_ssl", "auth.clientssl.auth_no_ssl", r#"envoy_clientssl_prefix="p""#),
            ("ratelimit.r.total", "ratelimit.total", r#"envoy_ratelimit_prefix="r""#),
            (
                "cluster.c.ext_authz.e.ok",
                "cluster.ext_authz.ok",
                r#"envoy_cluster_name="c",envoy_ext_authz_prefix="e""#,
            ),
            ("cluster.c.ext_authz.ok", "cluster.ext_authz.ok", r#"envoy_cluster_name="c""#),
            (
                "http.h.ext_authz.e.ok",
                "http.ext_authz.ok",
                r#"envoy_ext_authz_prefix="e",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "listener.10.0.0.1_80.http.h.downstream_rq_completed",
                "listener.http.downstream_rq_completed",
                r#"envoy_http_conn_manager_prefix="h",envoy_listener_address="10.0.0.1_80""#,
            ),
            (
                "listener_manager.worker_3.dispatcher.loop_duration_us",
                "listener_manager.worker_dispatcher.loop_duration_us",
                r#"envoy_worker_id="3""#,
            ),
            (
                "http.h.rds.my/routes.v1.update_success",
                "http.rds.update_success",
                r#"envoy_rds_route_config="my/routes.v1",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "http.h.scoped_rds.scopes.v1.update_success",
                "http.scoped_rds.update_success",
                r#"envoy_scoped_rds_config="scopes.v1",envoy_http_conn_manager_prefix="h""#,
            ),
            ("thrift.t.request", "thrift.request", r#"envoy_thrift_prefix="t""#),
            ("redis.r.downstream_cx_total", "redis.downstream_cx_total", r#"envoy_redis_prefix="r""#),
            (
                "plain.http_local_rate_limit.enabled",
                "http_local_rate_limit.enabled",
                r#"envoy_local_http_ratelimit_prefix="plain""#,
            ),
            ("my.lim.http_local_rate_limit.enabled", "my.lim.http_local_rate_limit.enabled", ""),
            (
                "local_rate_limit.nlp.rate_limited",
                "local_rate_limit.rate_limited",
                r#"envoy_local_network_ratelimit_prefix="nlp""#,
            ),
            (
                "listener_local_ratelimit.l.rate_limited",
                "listener_local_ratelimit.rate_limited",
                r#"envoy_local_listener_ratelimit_prefix="l""#,
            ),
            (
                "dns_filter.d.local_a_record_answers",
                "dns_filter.local_a_record_answers",
                r#"envoy_dns_filter_prefix="d""#,
            ),
            (
                "connection_limit.clp.active_connections",
                "connection_limit.active_connections",
                r#"envoy_connection_limit_prefix="clp""#,
            ),
            (
                "http.h.rbac.rp.policy.pola.allowed",
                "http.rbac.policy.allowed",
                r#"envoy_rbac_policy_name="pola",envoy_rbac_http_prefix="rp",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "http.h.rbac.policy.pola.shadow_denied",
                "http.rbac.policy.shadow_denied",
                r#"envoy_rbac_policy_name="pola",envoy_http_conn_manager_prefix="h""#,
            ),
            (
                "http.h.rbac.rp.allowed",
                "http.rbac.allowed",
                r#"envoy_rbac_http_prefix="rp",envoy_http_conn_manager_prefix="h""#,
            ),
            ("http.h.rbac.allowed", "http.rbac.allowed", r#"envoy_http_conn_manager_prefix="h""#),
            ("nrp.rbac.allowed", "rbac.allowed", r#"envoy_rbac_prefix="nrp""#),
            (
                "proxy_proto.ppp.versions.v1.found",
                "proxy_proto.found",
                r#"envoy_proxy_protocol_prefix="ppp",envoy_proxy_protocol_version="1""#,
            ),
            ("proxy_proto.versions.v2.error", "proxy_proto.error", r#"envoy_proxy_protocol_version="2""#),
            (
                "proxy_proto.ppp.not_found_allowed",
                "proxy_proto.not_found_allowed",
                r#"envoy_proxy_protocol_prefix="ppp""#,
            ),
            ("proxy_proto.not_found_allowed", "proxy_proto.not_found_allowed", ""),
            ("grpc.g.streams_total", "grpc.streams_total", r#"envoy_google_grpc_client_prefix="g""#),
            (
                "cluster.c.ssl.certificate.ca.expiration_unix_time_seconds",
                "cluster.ssl.certificate.expiration_unix_time_seconds",
                r#"envoy_tls_certificate="ca",envoy_cluster_name="c""#,
            ),
            ("sds.secret.update_success", "sds.update_success", r#"envoy_xds_resource_name="secret""#),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for (name, rest, labels) in cases {
            let cuts = cuts(name);
            assert_eq!(both(name, &cuts), (rest.into(), labels.into()), "{name}");
            seen.extend(cuts.iter().map(|cut| cut.tag));
        }
        let roots = cases.iter().filter_map(|(name, _, _)| name.split_once('.')).flat_map(|(root, _)| below(root));
        let all = EVERYWHERE.iter().chain(roots).map(|rule| match rule {
            Parts(tag, _) | Found(tag, _) => *tag,
        });
        assert_eq!(seen, all.collect());
        assert_eq!(seen.len(), 47);
    }

    #[test]
    fn parts_that_overlap_go_once() {
        assert_eq!(remove("abcdefg", vec![3..5, 1..4, 2..3]), "afg");
    }
}
