//! Rule: a dialect's words stay inside its dialect.
//!
//! What runs has its own words (`Listener`, `Route`, `Cluster`); what users write has each dialect's. A dialect's word in
//! the code of a common crate is the first sign that the one leaks into the other. Comments and tests may cite sources freely.

use crate::source;
use crate::workspace::Workspace;
use crate::{Checked, Finding};

/// The crates that serve every dialect and so may use no dialect's words.
const COMMON: &[&str] = &["model", "http", "h1", "router", "upstream", "worker", "filter-api", "filter-native", "sys"];

/// A dialect and its words, each as the parts of an identifier: `typed config` finds `typed_config`, `TypedConfig`
/// and `typed-config`.
const DIALECTS: &[(&str, &[&str])] = &[
    ("Envoy", &["envoy", "xds", "typed config", "typed struct", "type url", "hcm", "protobuf", "prost", "istio"]),
    ("APISIX", &["apisix", "etcd"]),
    ("Gateway API", &["kubernetes", "httproute", "http route rule"]),
];

/// Wire facts: names that peers, logs and dashboards see and that no dialect owns any more. Each is the beginning of
/// a word, in parts.
const ALLOWED: &[(&str, &str)] = &[
    ("x protobuf", "a content type on the wire"),
    ("upgrade protobuf to grpc", "the field of a filter, which is found by its full type name"),
    ("x envoy", "header names on the wire, which upstreams and clients read whatever the config was written in"),
    ("envoy grpc", "a field of filters' configurations, which every form writes by this name"),
    ("disable x envoy", "a field of a filter's configuration, which names such a header"),
    ("skip envoy headers", "as `envoy_grpc`, below which it stands"),
    ("allow envoy", "as `envoy_grpc`: a rule about headers that begin with `x-envoy`"),
    ("envoy ratelimited", "a condition for a retry, which requests name in a header"),
    ("invalid envoy request headers", "the long name of a response flag, which log readers match on"),
];

/// Beginnings of the full type names by which a filter is found, whatever form the document had. Only a whole name in a
/// string counts: package, version and type. Another form that learns of a filter names it so, too.
const TYPE_NAMES: &[(&str, &str)] = &[
    ("envoy.extensions.filters.http.", "the registry finds a filter by the full name of its configuration's type"),
    ("envoy.extensions.path.match.", "a filter finds a kind of path template so"),
    ("envoy.extensions.rbac.principals.", "a filter finds a kind of principal so"),
];

/// Places that read what a dialect's word stands for on the wire, where it is nobody's own.
const ON_THE_WIRE: &[(&str, &[&str], &str)] = &[
    (
        "crates/filter/native/src/compression/",
        &["envoy", "typed config"],
        "a library is found by the type of its configuration, which is put together from its name",
    ),
    ("crates/filter/native/src/compressor/", &["envoy", "typed config"], "as `compression`, in tests"),
    ("crates/filter/native/src/decompressor/", &["envoy", "typed config"], "as `compression`, in tests"),
    (
        "crates/filter/native/src/cluster_matcher/",
        &["envoy", "typed config"],
        "the types by which a route's tree and what it decides are found",
    ),
    (
        "crates/filter/native/src/formatters.rs",
        &["envoy", "typed config"],
        "extensions of formats are found by the types of their configurations",
    ),
    (
        "crates/filter/native/src/custom_response/",
        &["envoy", "typed config"],
        "what a tree looks at and what takes an answer's place are found by the types of their configurations",
    ),
    (
        "crates/filter/native/src/credential_injector/",
        &["envoy", "typed config"],
        "a kind of credential is found by the type of its configuration",
    ),
    (
        "crates/filter/native/src/set_filter_state/",
        &["envoy"],
        "names of objects in the filter state, and of what makes them",
    ),
    (
        "crates/filter/native/src/stateful_session/",
        &["typed config"],
        "the field below which a kind of session is configured",
    ),
    ("crates/filter/native/src/ext_proc/", &["xds"], "names of facts, which a processor is told under them"),
    (
        "crates/filter/native/src/grpc_json_transcoder/",
        &["prost", "protobuf"],
        "the messages of gRPC are protocol buffers, whatever the config was written in",
    ),
    (
        "crates/model/src/subsets.rs",
        &["envoy"],
        "the namespace under which filters note labels, whatever the config was written in",
    ),
    (
        "crates/worker/src/log/objects.rs",
        &["protobuf", "type url"],
        "what a service is told are messages with their types, whatever the config was written in",
    ),
    ("crates/worker/src/sinks/", &["envoy"], "a field of a message to a collector, which has that name"),
    ("crates/worker/src/http/local.rs", &["envoy"], "the body of an answer under overload, which clients know it by"),
    (
        "crates/filter/native/src/rbac/",
        &["typed config", "envoy"],
        "the field of a rule below which an extension's configuration stands, and the type of what a tree decides",
    ),
    (
        "crates/model/src/match_tree/",
        &["envoy", "typed config", "xds"],
        "what a tree looks at is found by the types of its inputs, whatever form the document had",
    ),
    (
        "crates/filter/api/src/objects.rs",
        &["envoy"],
        "names of objects in the filter state, and of what makes them, which filters and plugins share",
    ),
    ("crates/model/src/cel/", &["xds"], "names of attributes, which expressions ask for"),
    (
        "crates/filter/api/src/cel/",
        &["envoy", "protobuf", "xds"],
        "as in `model`; values are those of protocol buffers",
    ),
    ("crates/filter/native/src/json_to_metadata/", &["protobuf"], "the name of a kind of value in its configuration"),
    ("crates/filter/native/src/header_to_metadata/", &["protobuf"], "as in `json_to_metadata`"),
    (
        "crates/filter/native/src/request_match.rs",
        &["typed config"],
        "the field below which a kind of path template stands",
    ),
];

/// Names of objects in the filter state and of namespaces in the metadata, which log formats ask for, and types of filters of
/// connections.
const STATE_NAMES: &[&str] = &[
    "envoy.common",
    "envoy.extensions.filters.network.rbac.v3.RBAC",
    "envoy.extensions.filters.network.set_filter_state.v3.Config",
    "envoy.extensions.filters.network.sni_cluster.v3.SniCluster",
    "envoy.filters.http.grpc_stats",
    "envoy.filters.http.header_to_metadata",
    "envoy.filters.http.json_to_metadata",
    "envoy.filters.http.jwt_authn",
    "envoy.filters.http.rbac",
    "envoy.filters.network.rbac",
    "envoy.network.proxy_protocol.tlv",
    "envoy.tcp_proxy.cluster",
    "envoy.tcp_proxy.propagate_response_headers",
    "envoy.tcp_proxy.propagate_response_trailers",
];

pub fn check(workspace: &Workspace) -> Checked {
    workspace.check_libraries(COMMON, find)
}

fn find(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source::shipped(text).iter().enumerate() {
        for word in source::words(&line.code).chain(source::words(&without_type_names(&line.strings))) {
            if let Some((dialect, found)) = foreign(word).filter(|(_, found)| !is_on_the_wire(place, found)) {
                findings.push(Finding::at(
                    format!("{place}:{}", index + 1),
                    format!("`{word}`: `{found}` is a word of {dialect}, and this crate serves every dialect"),
                ));
            }
        }
    }
    findings
}

fn is_on_the_wire(place: &str, word: &str) -> bool {
    ON_THE_WIRE.iter().any(|(prefix, words, _)| place.starts_with(prefix) && words.contains(&word))
}

/// `text` with every full name of [`TYPE_NAMES`] and [`STATE_NAMES`] blanked out.
fn without_type_names(text: &str) -> String {
    text.split(' ').map(|run| if is_type_name(run) { "" } else { run }).collect::<Vec<_>>().join(" ")
}

/// Whether `run` as a whole is one of [`STATE_NAMES`] or [`TYPE_NAMES`], the package, `vN` and the type, as in `….basic_auth.v3.BasicAuth`.
fn is_type_name(run: &str) -> bool {
    if STATE_NAMES.contains(&run) {
        return true;
    }
    let Some(rest) = TYPE_NAMES.iter().find_map(|(prefix, _)| run.strip_prefix(prefix)) else { return false };
    let [package, version, name] = rest.split('.').collect::<Vec<_>>()[..] else { return false };
    let lower = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    let number = version.strip_prefix('v').unwrap_or_default();
    !package.is_empty()
        && package.chars().all(lower)
        && !number.is_empty()
        && number.chars().all(|it| it.is_ascii_digit())
        && name.starts_with(|it: char| it.is_ascii_uppercase())
        && name.chars().all(|it| it.is_ascii_alphanumeric())
}

/// The dialect that this word belongs to, if any.
fn foreign(word: &str) -> Option<(&'static str, &'static str)> {
    let parts = parts(word);
    let begins = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split(' ').collect();
        parts.len() >= pattern.len() && parts.iter().zip(&pattern).all(|(a, b)| a == b)
    };
    if ALLOWED.iter().any(|(pattern, _)| begins(pattern)) {
        return None;
    }
    DIALECTS.iter().find_map(|(dialect, words)| {
        let found = words.iter().find(|pattern| {
            let pattern: Vec<&str> = pattern.split(' ').collect();
            parts.windows(pattern.len()).any(|window| window.iter().zip(&pattern).all(|(a, b)| a == b))
        })?;
        Some((*dialect, *found))
    })
}

/// `XEnvoyPeer`, `x_envoy_peer`, `X_ENVOY_PEER` and `x-envoy-peer` are all `x envoy peer`.
fn parts(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for run in word.split(['_', '-']).filter(|run| !run.is_empty()) {
        if run.chars().all(|it| !it.is_lowercase()) {
            parts.push(run.to_lowercase());
            continue;
        }
        let mut part = String::new();
        for it in run.chars() {
            if it.is_uppercase() && !part.is_empty() {
                parts.push(std::mem::take(&mut part));
            }
            part.extend(it.to_lowercase());
        }
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_in_every_case_are_found() {
        for word in
            ["EnvoyRoute", "from_envoy", "TYPED_CONFIG", "TypedConfig", "per-xds-thing", "postrider_config_envoy"]
        {
            assert_eq!(foreign(word).map(|it| it.0), Some("Envoy"), "{word}");
        }
        assert_eq!(foreign("ApisixRoute").map(|it| it.0), Some("APISIX"));
    }

    #[test]
    fn ordinary_words_are_not_found() {
        for word in ["convoy", "config_type", "typed", "sketched", "Route", "prosthetic"] {
            assert_eq!(foreign(word), None, "{word}");
        }
    }

    #[test]
    fn wire_facts_are_allowed() {
        for word in [
            "InvalidEnvoyRequestHeaders",
            "INVALID_ENVOY_REQUEST_HEADERS",
            "x-envoy-overloaded",
            "XEnvoyUpstreamServiceTime",
            "X_ENVOY_ATTEMPT_COUNT",
        ] {
            assert_eq!(foreign(word), None, "{word}");
        }
    }

    #[test]
    fn a_full_type_name_is_allowed_as_a_whole_string_only() {
        let allowed = "const KIND: &str = \"envoy.extensions.filters.http.basic_auth.v3.BasicAuthPerRoute\";\n";
        assert_eq!(find("crates/filter/native/src/lib.rs", allowed), []);
        for planted in [
            "const NAME: &str = \"envoy.filters.http.basic_auth\";",
            "const KIND: &str = \"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\";",
            "const PACKAGE: &str = \"envoy.extensions.filters.http.basic_auth.v3\";",
            "const KIND: &str = \"envoy.extensions.filters.http.basic_auth.v3.\";",
            "const KIND: &str = \"envoy.extensions.filters.http.basic_auth.v3.BasicAuth/envoy\";",
            "const KIND: &str = \"type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth\";",
            "use envoy::extensions::filters::http::basic_auth::v3::BasicAuth;",
        ] {
            assert!(!find("crates/filter/native/src/lib.rs", planted).is_empty(), "{planted}");
        }
    }

    #[test]
    fn a_planted_word_fails_in_code_and_string_but_not_in_a_comment() {
        let planted = "// as Envoy does\nlet a = envoy_route();\nlet b = \"typed_config\";\n/// [Envoy]\n#[cfg(test)]\nmod tests { fn as_envoy() {} }\n";
        let found: Vec<String> = find("crates/router/src/lib.rs", planted).iter().map(|it| it.place.clone()).collect();
        assert_eq!(found, ["crates/router/src/lib.rs:2", "crates/router/src/lib.rs:3"]);
    }
}
