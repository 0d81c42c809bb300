//! Route tables and virtual hosts.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_model::{
    Attempts, Domain, FilterOverride, Mirror, RequireTls, Route, RouteTable, VirtualCluster, VirtualHost,
};

use super::context::{Lowering, origin};
use super::plugins::{self, Specifiers};
use super::{cors, filters, headers, match_tree, matchers, metadata, mirrors, rate_limits, retry, route};
use crate::reader::Reader;

/// Settings of a table that reach down to its routes.
pub(super) struct TableRules<'f> {
    /// Unknown clusters are errors.
    pub validate_clusters: bool,
    /// The longest body of a direct response, in bytes.
    pub max_body: usize,
    /// Names of the filters in the chain that uses the table.
    pub filters: &'f [&'f str],
    /// Those of them that judge pages of other sites.
    pub cors_filters: &'f [String],
    /// Plugins that routes may refer to.
    pub specifiers: Specifiers,
}

/// What a virtual host says about its routes, where they do not say it themselves.
pub(super) struct HostRules {
    pub attempts: Attempts,
    pub body_limit: retry::BodyLimit,
    pub mirrors: Vec<Mirror>,
    /// In the older form.
    pub cors: cors::OfHost,
}

/// `max_direct_response_body_size_bytes` where it is absent.
const MAX_DIRECT_BODY: u32 = 4096;

pub(super) fn table(cx: &mut Lowering<'_>, at: &Reader<'_>, filters: &[&str], cors_filters: &[String]) -> RouteTable {
    at.whole("metadata");
    at.ignore("metadata", "no supported part reads it");
    let max_body = at.u32_wrapper("max_direct_response_body_size_bytes").unwrap_or(MAX_DIRECT_BODY);
    let rules = TableRules {
        validate_clusters: at.bool_wrapper("validate_clusters").unwrap_or(true),
        max_body: max_body as usize,
        filters,
        cors_filters,
        specifiers: plugins::specifiers(cx, at),
    };
    if at.has("vhds") {
        cx.refuse(at, "vhds", "virtual hosts from a control plane (VHDS)");
    }
    let mirrors = mirrors::mirrors(cx, at, &rules);
    let filter_overrides = filters::overrides(cx, at, rules.filters);
    let of_table = OfTable { mirrors: &mirrors, filter_overrides: &filter_overrides };
    let hosts = at.list("virtual_hosts");
    let virtual_hosts = hosts.iter().map(|host| Arc::new(virtual_host(cx, host, &rules, &of_table))).collect();
    unique_domains(cx, &hosts);
    RouteTable {
        name: at.str("name").to_owned(),
        virtual_hosts,
        request_headers: headers::request_edits(cx, at),
        response_headers: headers::response_edits(cx, at),
        internal_only_headers: headers::names(cx, at, "internal_only_headers"),
        ignore_port_in_host: at.bool("ignore_port_in_host_matching"),
        host_header: at.has("vhost_header").then(|| headers::name(cx, at, "vhost_header")).flatten(),
        ignores_path_parameters: at.bool("ignore_path_parameters_in_path_matching"),
        most_specific_header_edits_win: at.bool("most_specific_header_mutations_wins"),
        filter_overrides,
        origin: origin(at),
    }
}

/// What a table says for its virtual hosts.
struct OfTable<'t> {
    mirrors: &'t [Mirror],
    filter_overrides: &'t [FilterOverride],
}

fn virtual_host(cx: &mut Lowering<'_>, at: &Reader<'_>, rules: &TableRules<'_>, of_table: &OfTable<'_>) -> VirtualHost {
    let own = mirrors::mirrors(cx, at, rules);
    let mirrors = if own.is_empty() { of_table.mirrors.to_vec() } else { own };
    let filter_overrides = filters::overrides(cx, at, rules.filters);
    let cors = cors::of_host(cx, at, rules, [of_table.filter_overrides, &filter_overrides]);
    let host = HostRules { attempts: retry::of_host(cx, at), body_limit: retry::BodyLimit::read(at), mirrors, cors };
    let written = at.list("routes");
    let mut routes: Vec<Arc<Route>> =
        written.iter().filter_map(|each| route::route(cx, each, rules, &host)).map(Arc::new).collect();
    let tree = at.message("matcher").and_then(|matcher| {
        if !written.is_empty() {
            cx.error(at, "matcher", "invalid-value", "a virtual host has either `routes` or a `matcher`");
        }
        match_tree::routes(cx, &matcher, rules, &host, &mut routes)
    });
    VirtualHost {
        name: at.str("name").to_owned(),
        domains: at.strings("domains").iter().map(|domain| self::domain(domain.value)).collect(),
        routes,
        tree: tree.map(Arc::new),
        request_headers: headers::request_edits(cx, at),
        response_headers: headers::response_edits(cx, at),
        filter_overrides,
        rate_limits: rate_limits::rate_limits(cx, at),
        require_tls: match at.enum_name("require_tls").as_str() {
            "EXTERNAL_ONLY" => RequireTls::ExternalOnly,
            "ALL" => RequireTls::All,
            _ => RequireTls::None,
        },
        virtual_clusters: at.list("virtual_clusters").iter().map(|each| virtual_cluster(cx, each)).collect(),
        metadata: Arc::new(metadata::metadata(cx, at)),
        origin: origin(at),
    }
}

fn virtual_cluster(cx: &mut Lowering<'_>, at: &Reader<'_>) -> VirtualCluster {
    let headers = at.list("headers");
    if headers.is_empty() {
        cx.missing(at, "the virtual cluster has no conditions", "`headers`");
    }
    VirtualCluster {
        name: at.str("name").to_owned(),
        headers: headers.iter().filter_map(|header| matchers::header(cx, header)).collect(),
    }
}

/// A `*` counts only at one end; anywhere else it is an ordinary character, as in Envoy.
fn domain(text: &str) -> Domain {
    let text = text.to_ascii_lowercase();
    if text == "*" {
        Domain::Any
    } else if let Some(suffix) = text.strip_prefix('*') {
        Domain::Suffix(suffix.to_owned())
    } else if let Some(prefix) = text.strip_suffix('*') {
        Domain::Prefix(prefix.to_owned())
    } else {
        Domain::Exact(text)
    }
}

fn unique_domains(cx: &mut Lowering<'_>, hosts: &[Reader<'_>]) {
    let mut first: HashMap<String, &str> = HashMap::new();
    for host in hosts {
        for domain in host.strings("domains") {
            let name = domain.value.to_ascii_lowercase();
            if let Some(other) = first.get(&name) {
                let text = format!("the domain `{name}` is taken by virtual host `{other}`");
                let path = format!("{}[{}]", host.path_of("domains"), domain.index);
                cx.push(postrider_config_core::Diagnostic::error("duplicate-domain", text).at(domain.span).path(path));
            } else {
                first.insert(name, host.str("name"));
            }
        }
    }
}
