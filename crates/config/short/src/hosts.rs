//! From routes with hosts to virtual hosts, and what holds for all requests of a host.
//!
//! In the short form routes are tried from top to bottom whatever their hosts. Envoy picks the virtual host first, so
//! each host that is named gets one, with every route that could take its requests in the order of the document.

use postrider_config_core::{Diagnostic, Diagnostics, Span};
use postrider_config_envoy::tree::{Node, NodeKind};

use crate::build::{list, map, pair, text};
use crate::fields::{self, Fields, join};
use crate::plugins::Plugins;

/// A route and the hosts it is for; none means any.
pub struct Hosted {
    /// Lower case, each with its place.
    pub hosts: Vec<(String, Span)>,
    pub route: Node,
}

/// An entry of `hosts`: what holds for all requests of a host.
pub struct Project {
    /// Lower case.
    host: String,
    span: Span,
    path: String,
    /// `typed_per_filter_config`.
    changes: Option<Node>,
}

/// The mapping behind `hosts`.
pub fn projects(node: &Node, plugins: &Plugins, diagnostics: &mut Diagnostics) -> Vec<Project> {
    let NodeKind::Map(pairs) = &node.kind else {
        fields::wrong(node, "hosts", "a mapping of hosts to `{ plugins: … }`", diagnostics);
        return Vec::new();
    };
    let mut all: Vec<Project> = Vec::new();
    for entry in pairs {
        let path = join("hosts", &entry.key);
        let host = entry.key.to_ascii_lowercase();
        if !is_host(&host) {
            let message = format!("`{}` is no host", entry.key);
            diagnostics.push(Diagnostic::error("invalid-value", message).at(entry.key_span).path(path).expected(HOST));
            continue;
        }
        if all.iter().any(|known| known.host == host) {
            let message = format!("`{host}` stands here already");
            diagnostics.push(Diagnostic::error("duplicate-name", message).at(entry.key_span).path(path));
            continue;
        }
        let fields = Fields::of(&entry.value, &path, diagnostics);
        let changed = fields.take("plugins");
        fields.finish(&["plugins"]);
        let changes = changed.and_then(|node| plugins.overrides(node, &join(&path, "plugins"), diagnostics));
        all.push(Project { host, span: entry.key_span, path, changes });
    }
    all
}

/// What a host looks like, for whoever wrote another thing.
pub const HOST: &str = "a host such as shop.example, *.example or example.*";

/// A name with at most one star, at one of its ends.
pub fn is_host(host: &str) -> bool {
    let stars = host.matches('*').count();
    let odd = host.is_empty() || host.contains(['/', ':', ' ']);
    !odd && (stars == 0 || (stars == 1 && (host.starts_with('*') || host.ends_with('*'))))
}

/// Domains that are served alike.
struct Group<'p> {
    /// Indices of their routes.
    routes: Vec<usize>,
    project: Option<&'p Project>,
    domains: Vec<(String, Span)>,
}

/// The virtual hosts, in the order in which hosts first appear; the one for any host comes last.
pub fn virtual_hosts(
    routes: Vec<Hosted>,
    projects: &[Project],
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Vec<Node> {
    let of_projects = projects.iter().map(|project| (&project.host, project.span));
    let mut domains: Vec<(String, Span)> = Vec::new();
    for (host, span) in
        routes.iter().flat_map(|route| &route.hosts).map(|(host, span)| (host, *span)).chain(of_projects)
    {
        if host != "*" && !domains.iter().any(|(known, _)| known == host) {
            domains.push((host.clone(), span));
        }
    }
    domains.push(("*".to_owned(), span));
    // Domains that see the same routes and plugins share a virtual host.
    let mut groups: Vec<Group<'_>> = Vec::new();
    for domain in domains {
        let takes =
            |route: &Hosted| route.hosts.is_empty() || route.hosts.iter().any(|(host, _)| covers(host, &domain.0));
        let own: Vec<usize> = (0..routes.len()).filter(|index| routes.get(*index).is_some_and(takes)).collect();
        let project = project_of(projects, &domain.0);
        if own.is_empty() {
            if let Some(project) = project.filter(|project| project.host == domain.0) {
                let message = format!("no route takes requests for `{}`", project.host);
                let diagnostic =
                    Diagnostic::error("invalid-value", message).at(project.span).path(project.path.clone());
                diagnostics.push(diagnostic.expected("a host that a route is for, or a route without hosts"));
            }
            continue;
        }
        // Entries are equal when they are the same one.
        let known = |group: &&mut Group<'_>| {
            group.routes == own && group.project.map(|one| &one.host) == project.map(|one| &one.host)
        };
        match groups.iter_mut().find(known) {
            Some(group) => group.domains.push(domain),
            None => groups.push(Group { routes: own, project, domains: vec![domain] }),
        }
    }
    let mut all = Vec::new();
    for Group { routes: indices, project, domains } in groups {
        let names = domains.iter().map(|(name, span)| text(*span, name.clone())).collect();
        let name = match domains.first() {
            Some((name, _)) if name != "*" => name.clone(),
            _ => "any".to_owned(),
        };
        let own = indices.iter().filter_map(|index| routes.get(*index)).map(|hosted| hosted.route.clone()).collect();
        let mut pairs =
            vec![pair("name", text(span, name)), pair("domains", list(span, names)), pair("routes", list(span, own))];
        let changes = project.and_then(|project| project.changes.clone());
        pairs.extend(changes.map(|changes| pair("typed_per_filter_config", changes)));
        all.push(map(span, pairs));
    }
    all
}

/// The entry that counts for a domain: the one that says most about it, as virtual hosts are chosen. A name comes before
/// `*suffix`, that before `prefix*`, and of each the longest.
fn project_of<'p>(projects: &'p [Project], domain: &str) -> Option<&'p Project> {
    let rank = |host: &str| match (host == domain, host.starts_with('*')) {
        (true, _) => (3, 0),
        (_, true) if host.len() > 1 => (2, host.len()),
        (_, false) => (1, host.len()),
        _ => (0, 0),
    };
    let covering = projects.iter().filter(|project| covers(&project.host, domain));
    covering.max_by_key(|project| rank(&project.host))
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
