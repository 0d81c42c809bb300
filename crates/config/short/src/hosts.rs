//! From routes with hosts to virtual hosts.
//!
//! In the short form routes are tried from top to bottom whatever their hosts. Envoy picks the virtual host first, so
//! each host that is named gets one, with every route that could take its requests in the order of the document.

use postrider_config_core::Span;
use postrider_config_envoy::tree::Node;

use crate::build::{list, map, pair, text};

/// A route and the hosts it is for; none means any.
pub struct Hosted {
    /// Lower case, each with its place.
    pub hosts: Vec<(String, Span)>,
    pub route: Node,
}

/// Indices of routes, and the domains that see exactly these.
type Group = (Vec<usize>, Vec<(String, Span)>);

/// The virtual hosts, in the order in which hosts first appear; the one for any host comes last.
pub fn virtual_hosts(routes: Vec<Hosted>, span: Span) -> Vec<Node> {
    let mut domains: Vec<(String, Span)> = Vec::new();
    for (host, span) in routes.iter().flat_map(|route| &route.hosts) {
        if host != "*" && !domains.iter().any(|(known, _)| known == host) {
            domains.push((host.clone(), *span));
        }
    }
    domains.push(("*".to_owned(), span));
    // Domains that see the same routes share a virtual host.
    let mut groups: Vec<Group> = Vec::new();
    for domain in domains {
        let takes =
            |route: &Hosted| route.hosts.is_empty() || route.hosts.iter().any(|(host, _)| covers(host, &domain.0));
        let own: Vec<usize> = (0..routes.len()).filter(|index| routes.get(*index).is_some_and(takes)).collect();
        if own.is_empty() {
            continue;
        }
        match groups.iter_mut().find(|(routes, _)| *routes == own) {
            Some((_, domains)) => domains.push(domain),
            None => groups.push((own, vec![domain])),
        }
    }
    let mut all = Vec::new();
    for (indices, domains) in groups {
        let names = domains.iter().map(|(name, span)| text(*span, name.clone())).collect();
        let name = match domains.first() {
            Some((name, _)) if name != "*" => name.clone(),
            _ => "any".to_owned(),
        };
        let own = indices.iter().filter_map(|index| routes.get(*index)).map(|hosted| hosted.route.clone()).collect();
        all.push(map(
            span,
            vec![pair("name", text(span, name)), pair("domains", list(span, names)), pair("routes", list(span, own))],
        ));
    }
    all
}

/// Whether every request for `domain` (exact, `*suffix` or `prefix*`) is one for `host`.
fn covers(host: &str, domain: &str) -> bool {
    if host == "*" || host == domain {
        return true;
    }
    if let Some(suffix) = host.strip_prefix('*') {
        return !domain.ends_with('*') && domain.len() > suffix.len() && domain.ends_with(suffix);
    }
    if let Some(prefix) = host.strip_suffix('*') {
        return !domain.starts_with('*') && domain.len() > prefix.len() && domain.starts_with(prefix);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_wider_pattern_covers_a_narrower_host() {
        assert!(covers("*.example.com", "a.example.com"));
        assert!(covers("*.example.com", "*.b.example.com"));
        assert!(covers("example.*", "example.org"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(!covers("*.b.example.com", "*.example.com"));
        assert!(!covers("a.example.com", "*.example.com"));
    }
}
