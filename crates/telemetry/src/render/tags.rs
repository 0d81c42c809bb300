//! Labels out of names: what Envoy's default tag extraction makes of a stat's name.
//!
//! The first part after `cluster`, `http`, `tcp` or `vhost` becomes a label and leaves the name; a listener's address as well,
//! then its worker or its connection manager. Only the first part: `cluster.a.b.x` is `envoy_cluster_b_x` with the cluster
//! `a`, as in Envoy.

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
}

impl Cut {
    /// The same, of a name that has so many bytes before this one.
    pub(crate) fn moved(mut self, by: usize) -> Cut {
        self.value = self.value.start + by..self.value.end + by;
        self.gone = self.gone.start + by..self.gone.end + by;
        self
    }
}

/// What becomes of a scope's name, which has a closing dot; Envoy puts the innermost tag first.
pub(crate) fn scope(name: &str) -> Vec<Cut> {
    let mut cuts = Vec::new();
    match name.split_once('.') {
        Some(("cluster", _)) => {
            let after = part(name, 8, "envoy.cluster_name", &mut cuts);
            certificate(name, after, &mut cuts);
            method_of_grpc(name, after, &mut cuts);
        }
        Some(("http", _)) => _ = part(name, 5, "envoy.http_conn_manager_prefix", &mut cuts),
        Some(("vhost", _)) => virtual_host(name, &mut cuts),
        Some(("tcp", _)) => _ = part(name, 4, "envoy.tcp_prefix", &mut cuts),
        Some(("listener", _)) => listener(name, &mut cuts),
        Some(("server" | "thread_local_cluster_manager", rest)) => _ = worker(name, name.len() - rest.len(), &mut cuts),
        _ => {}
    }
    cuts.reverse();
    cuts
}

/// What leaves a scope's name, which has a closing dot, for tags of its own.
pub(crate) fn tail(name: &str, own: &ScopeTags) -> Range<usize> {
    name.len().saturating_sub(own.tail + 1)..name.len()
}

/// What is a tag in a name within its scope, which begins with `root`: a status, or what was agreed on for TLS.
pub(crate) fn within(root: &str, stem: &str, code: Option<u16>) -> Option<Cut> {
    response_code(stem, code).or_else(|| agreed(root, stem))
}

/// The name of what was agreed on in `ssl.ciphers.TLS_AES_128_GCM_SHA256`. Envoy has two names for that of a cipher.
fn agreed(root: &str, stem: &str) -> Option<Cut> {
    let cipher = if root.starts_with("cluster") { "cipher_suite" } else { "envoy.ssl_cipher" };
    let kinds = [("ssl.ciphers", cipher), ("ssl.curves", "envoy.ssl_curve"), ("ssl.versions", "envoy.ssl_version")];
    kinds.into_iter().find_map(|(before, tag)| {
        stem.strip_prefix(before)?.strip_prefix('.')?;
        let start = before.len();
        Some(Cut { tag, value: start + 1..stem.len(), gone: start..stem.len() })
    })
}

/// The code in `upstream_rq_200` or the class in `downstream_rq_2xx`, of a name within its scope. `code` is what follows
/// `stem`, where that is not all of the name.
fn response_code(stem: &str, code: Option<u16>) -> Option<Cut> {
    if code.is_some() {
        let before = stem.strip_suffix('_')?.len();
        // Codes have three digits.
        return Some(Cut { tag: "envoy.response_code", value: before + 1..before + 4, gone: before..before + 4 });
    }
    let class = stem.rsplit_once("_rq_").and_then(|(_, class)| class.strip_suffix("xx"))?;
    let digit = stem.len() - 3..stem.len() - 2;
    (class.len() == 1 && class.bytes().all(|b| b.is_ascii_digit())).then(|| Cut {
        tag: "envoy.response_code_class",
        value: digit.clone(),
        gone: digit,
    })
}

/// The name without what is cut out of it.
pub(crate) fn without(name: &str, cuts: &[Cut]) -> String {
    remove(name, cuts.iter().map(|cut| cut.gone.clone()).collect())
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

/// Takes the part that starts there; where the next one does.
fn part(name: &str, start: usize, tag: &'static str, cuts: &mut Vec<Cut>) -> usize {
    match name.get(start..).and_then(|rest| rest.find('.')) {
        Some(length) => {
            cuts.push(Cut { tag, value: start..start + length, gone: start..start + length + 1 });
            start + length + 1
        }
        None => start,
    }
}

/// Requests that a virtual host counts together.
fn virtual_host(name: &str, cuts: &mut Vec<Cut>) {
    let after = part(name, "vhost.".len(), "envoy.virtual_host", cuts);
    if after == "vhost.".len() {
        return;
    }
    if name[after..].starts_with("vcluster.") {
        part(name, after + "vcluster.".len(), "envoy.virtual_cluster", cuts);
    } else if name[after..].starts_with("route.") {
        part(name, after + "route.".len(), "envoy.route", cuts);
        // Envoy's order is another one for each.
        cuts.reverse();
    }
}

/// Takes the number of a worker, where one starts there; where what is behind it does.
fn worker(name: &str, start: usize, cuts: &mut Vec<Cut>) -> usize {
    match name[start..].strip_prefix("worker_").and_then(|rest| rest.split_once('.')) {
        Some((number, _)) if number.bytes().all(|b| b.is_ascii_digit()) => {
            part(name, start + "worker_".len(), "envoy.worker_id", cuts)
        }
        _ => start,
    }
}

/// Takes the name of a certificate out of what follows a listener or a cluster.
fn certificate(name: &str, start: usize, cuts: &mut Vec<Cut>) {
    const BEFORE: &str = "ssl.certificate.";
    if name[start..].starts_with(BEFORE) {
        part(name, start + BEFORE.len(), "envoy.tls_certificate", cuts);
    }
}

/// `grpc.<service>.<method>.`: each is one part, whatever the filter meant (Envoy's `$` stands for a part).
fn method_of_grpc(name: &str, start: usize, cuts: &mut Vec<Cut>) {
    const BEFORE: &str = "grpc.";
    if name[start..].starts_with(BEFORE) && name[start + BEFORE.len()..].contains('.') {
        let method = part(name, start + BEFORE.len(), "envoy.grpc_bridge_service", cuts);
        part(name, method, "envoy.grpc_bridge_method", cuts);
    }
}

fn listener(name: &str, cuts: &mut Vec<Cut>) {
    let start = "listener.".len();
    let end = start + address_end(&name[start..]);
    let mut after = (end + 1).min(name.len());
    // Envoy leaves its own admin listener untagged.
    if &name[start..end] != "admin" {
        cuts.push(Cut { tag: "envoy.listener_address", value: start..end, gone: start..after });
        after = worker(name, after, cuts);
    }
    if name[after..].starts_with("http.") {
        part(name, after + "http.".len(), "envoy.http_conn_manager_prefix", cuts);
    } else {
        certificate(name, after, cuts);
    }
}

/// Where the address ends: an IPv4 address has dots of its own, other names end at the first.
fn address_end(rest: &str) -> usize {
    let run = rest.bytes().take_while(|b| matches!(b, b'0'..=b'9' | b'.' | b'_')).count();
    let numeric = rest[..run].rfind('.').unwrap_or(0);
    if numeric > 0 { numeric } else { rest.find('.').unwrap_or(rest.len()) }
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
        (without(name, cuts), labels(cuts.iter().map(|cut| (cut.tag, &name[cut.value.clone()]))))
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

    #[test]
    fn codes_and_classes_become_labels() {
        let of = |stem: &str, code: Option<u16>| {
            let name = format!("{stem}{}", code.map(|code| code.to_string()).unwrap_or_default());
            both(&name, response_code(stem, code).as_slice())
        };
        let cases = [
            (("upstream_rq_", Some(404)), ("upstream_rq", "envoy_response_code=\"404\"")),
            (("external.upstream_rq_5xx", None), ("external.upstream_rq_xx", "envoy_response_code_class=\"5\"")),
            (("upstream_rq_tx_reset", None), ("upstream_rq_tx_reset", "")),
        ];
        for ((stem, code), (rest, labels)) in cases {
            assert_eq!(of(stem, code), (rest.into(), labels.into()));
        }
    }

    #[test]
    fn what_was_agreed_on_for_tls_becomes_a_label() {
        let cases = [
            (("cluster", "ssl.ciphers.X-Y"), ("ssl.ciphers", "cipher_suite=\"X-Y\"")),
            (("listener", "ssl.ciphers.X-Y"), ("ssl.ciphers", "envoy_ssl_cipher=\"X-Y\"")),
            (("listener", "ssl.curves.P-256"), ("ssl.curves", "envoy_ssl_curve=\"P-256\"")),
            (("listener", "ssl.versions.TLSv1.3"), ("ssl.versions", "envoy_ssl_version=\"TLSv1.3\"")),
            (("listener", "ssl.handshake"), ("ssl.handshake", "")),
        ];
        for ((root, stem), (rest, labels)) in cases {
            assert_eq!(both(stem, within(root, stem, None).as_slice()), (rest.into(), labels.into()), "{root} {stem}");
        }
    }

    #[test]
    fn parts_that_overlap_go_once() {
        assert_eq!(remove("abcdefg", vec![3..5, 1..4, 2..3]), "afg");
    }
}
