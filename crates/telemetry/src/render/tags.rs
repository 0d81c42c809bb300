//! Labels out of names: what Envoy's default tag extraction makes of a stat's name.
//!
//! The first part after `cluster`, `http`, `tcp` or `vhost` becomes a label and leaves the name; a listener's address as well,
//! then its worker or its connection manager. Only the first part: `cluster.a.b.x` is `envoy_cluster_b_x` with the cluster
//! `a`, as in Envoy.

/// A scope's name without its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tagged {
    /// Parts joined by dots, with a closing one: `listener.http.`.
    pub(super) rest: String,
    /// `name="value"` pairs joined by commas, escaped; Envoy puts the innermost first.
    pub(super) labels: String,
}

/// Extracts the labels of a scope, whose name has a closing dot.
pub(super) fn extract(scope: &str) -> Tagged {
    let mut labels = Vec::new();
    let rest = match scope.split_once('.') {
        Some(("cluster", rest)) => {
            let named = first_part("", "envoy_cluster_name", rest, &mut labels);
            let named = certificate(named, &mut labels);
            format!("cluster.{}", method_of_grpc(named, &mut labels))
        }
        Some(("http", rest)) => first_part("http.", "envoy_http_conn_manager_prefix", rest, &mut labels),
        Some(("vhost", rest)) => virtual_host(rest, &mut labels),
        Some(("tcp", rest)) => first_part("tcp.", "envoy_tcp_prefix", rest, &mut labels),
        Some(("listener", rest)) => listener(rest, &mut labels),
        _ => scope.to_string(),
    };
    labels.reverse();
    Tagged { rest, labels: labels.join(",") }
}

/// The label for the code in `upstream_rq_200` or the class in `downstream_rq_2xx`, and the name without it.
pub(super) fn response_code(name: &str, code: Option<u16>) -> (String, Option<String>) {
    if let (Some(stem), Some(code)) = (name.strip_suffix('_'), code) {
        return (stem.to_string(), Some(format!("envoy_response_code=\"{code}\"")));
    }
    let class = name.rsplit_once("_rq_").and_then(|(_, class)| class.strip_suffix("xx"));
    match class {
        Some(class) if class.len() == 1 && class.bytes().all(|b| b.is_ascii_digit()) => {
            let stem = &name[..name.len() - 3];
            (format!("{stem}xx"), Some(format!("envoy_response_code_class=\"{class}\"")))
        }
        _ => (name.to_string(), None),
    }
}

fn first_part(root: &str, label: &str, rest: &str, labels: &mut Vec<String>) -> String {
    match rest.split_once('.') {
        Some((value, rest)) => {
            labels.push(pair(label, value));
            format!("{root}{rest}")
        }
        None => format!("{root}{rest}"),
    }
}

/// Requests that a virtual host counts together.
fn virtual_host(rest: &str, labels: &mut Vec<String>) -> String {
    let mut of_host = Vec::new();
    let named = first_part("", "envoy_virtual_host", rest, &mut of_host);
    let (rest, host_first) = match named.split_once('.') {
        Some(("vcluster", rest)) => (first_part("vcluster.", "envoy_virtual_cluster", rest, labels), false),
        Some(("route", rest)) => (first_part("route.", "envoy_route", rest, labels), true),
        _ => (named, false),
    };
    // Envoy's order is another one for each.
    let place = if host_first { labels.len() } else { 0 };
    labels.splice(place..place, of_host);
    format!("vhost.{rest}")
}

/// Takes the name of a certificate out of what follows a listener or a cluster.
fn certificate(rest: String, labels: &mut Vec<String>) -> String {
    const BEFORE: &str = "ssl.certificate.";
    match rest.strip_prefix(BEFORE) {
        Some(named) => first_part(BEFORE, "envoy_tls_certificate", named, labels),
        None => rest,
    }
}

/// `grpc.<service>.<method>.`: each is one part, whatever the filter meant (Envoy's `$` stands for a part).
fn method_of_grpc(rest: String, labels: &mut Vec<String>) -> String {
    const BEFORE: &str = "grpc.";
    let Some((service, rest)) = rest.strip_prefix(BEFORE).and_then(|named| named.split_once('.')) else { return rest };
    labels.push(pair("envoy_grpc_bridge_service", service));
    first_part(BEFORE, "envoy_grpc_bridge_method", rest, labels)
}

fn listener(rest: &str, labels: &mut Vec<String>) -> String {
    let end = address_end(rest);
    let (address, mut rest) = (&rest[..end], rest.get(end + 1..).unwrap_or(""));
    // Envoy leaves its own admin listener untagged.
    let mut name = String::from("listener.");
    if address == "admin" {
        name.push_str("admin.");
    } else {
        labels.push(pair("envoy_listener_address", address));
        if let Some((worker, after)) = rest.strip_prefix("worker_").and_then(|rest| rest.split_once('.'))
            && worker.bytes().all(|b| b.is_ascii_digit())
        {
            labels.push(pair("envoy_worker_id", worker));
            name.push_str("worker.");
            rest = after;
        }
    }
    match rest.strip_prefix("http.") {
        Some(of_manager) => name + &first_part("http.", "envoy_http_conn_manager_prefix", of_manager, labels),
        None => name + &certificate(rest.to_owned(), labels),
    }
}

/// Where the address ends: an IPv4 address has dots of its own, other names end at the first.
fn address_end(rest: &str) -> usize {
    let run = rest.bytes().take_while(|b| matches!(b, b'0'..=b'9' | b'.' | b'_')).count();
    let numeric = rest[..run].rfind('.').unwrap_or(0);
    if numeric > 0 { numeric } else { rest.find('.').unwrap_or(rest.len()) }
}

fn pair(label: &str, value: &str) -> String {
    let mut out = format!("{label}=\"");
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
                "listener.worker.",
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
            ("cluster_manager.", "cluster_manager.", ""),
        ];
        for (scope, rest, labels) in cases {
            assert_eq!(extract(scope), Tagged { rest: rest.into(), labels: labels.into() }, "{scope}");
        }
    }

    #[test]
    fn codes_and_classes_become_labels() {
        let (name, label) = response_code("upstream_rq_", Some(404));
        assert_eq!((name.as_str(), label.as_deref()), ("upstream_rq", Some("envoy_response_code=\"404\"")));
        let (name, label) = response_code("external.upstream_rq_5xx", None);
        assert_eq!(name, "external.upstream_rq_xx");
        assert_eq!(label.as_deref(), Some("envoy_response_code_class=\"5\""));
        assert_eq!(response_code("upstream_rq_tx_reset", None), ("upstream_rq_tx_reset".into(), None));
    }
}
