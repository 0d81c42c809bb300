//! From the authority of a request to its virtual host.

use postrider_http::split_port;
use postrider_model::{Domain, RouteTable};

use crate::text_map::{Case, TextMap};

/// The domains of all virtual hosts. Exact beats the longest suffix, that beats the longest prefix, that beats any.
#[derive(Debug)]
pub(crate) struct Hosts {
    exact: TextMap,
    suffixes: Wildcards,
    prefixes: Wildcards,
    any: Option<u32>,
    ignore_port: bool,
}

/// One domain that the lookup met: how it is written, and whether it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'h> {
    Exact(&'h [u8], bool),
    Suffix(&'h [u8], bool),
    Prefix(&'h [u8], bool),
    Any(bool),
}

impl Hosts {
    pub(crate) fn compile(table: &RouteTable) -> Hosts {
        let (mut exact, mut suffixes, mut prefixes, mut any) = (Vec::new(), Vec::new(), Vec::new(), None);
        for (host, id) in table.virtual_hosts.iter().zip(0..) {
            for domain in &host.domains {
                match domain {
                    Domain::Exact(text) => exact.push((text.as_bytes(), id)),
                    Domain::Suffix(text) => suffixes.push((text.as_bytes(), id)),
                    Domain::Prefix(text) => prefixes.push((text.as_bytes(), id)),
                    Domain::Any => any = any.or(Some(id)),
                }
            }
        }
        Hosts {
            exact: TextMap::build(&exact, Case::Ignored),
            suffixes: Wildcards::build(&suffixes),
            prefixes: Wildcards::build(&prefixes),
            any,
            ignore_port: table.ignore_port_in_host,
        }
    }

    /// The virtual host of `authority`, in any case. A request without authority has none, unless every host is
    /// served alike.
    #[inline]
    pub(crate) fn find(&self, authority: &[u8]) -> Option<u32> {
        self.find_watched(authority, |_| {})
    }

    /// The virtual host for everybody, where no other is named.
    pub(crate) fn only_any(&self) -> Option<u32> {
        self.any.filter(|_| self.names_none())
    }

    /// The virtual host for everybody.
    pub(crate) fn any(&self) -> Option<u32> {
        self.any
    }

    #[inline]
    fn names_none(&self) -> bool {
        self.exact.is_empty() && self.suffixes.is_empty() && self.prefixes.is_empty()
    }

    /// [`Hosts::find`], telling `watch` each domain that was asked, in order.
    #[inline]
    pub(crate) fn find_watched<'h>(&self, authority: &'h [u8], mut watch: impl FnMut(Step<'h>)) -> Option<u32> {
        if self.names_none() {
            watch(Step::Any(self.any.is_some()));
            return self.any;
        }
        if authority.is_empty() {
            return None;
        }
        let host = self.matched_part(authority);
        let exact = self.exact.find(host, Case::Ignored);
        watch(Step::Exact(host, exact.is_some()));
        if exact.is_some() {
            return exact;
        }
        // A wildcard stands for at least one byte.
        for &len in &self.suffixes.lengths {
            let Some((_, end)) =
                host.len().checked_sub(len).filter(|at| *at > 0).and_then(|at| host.split_at_checked(at))
            else {
                continue;
            };
            let found = self.suffixes.texts.find(end, Case::Ignored);
            watch(Step::Suffix(end, found.is_some()));
            if found.is_some() {
                return found;
            }
        }
        for &len in &self.prefixes.lengths {
            let Some((begin, [_, ..])) = host.split_at_checked(len) else { continue };
            let found = self.prefixes.texts.find(begin, Case::Ignored);
            watch(Step::Prefix(begin, found.is_some()));
            if found.is_some() {
                return found;
            }
        }
        watch(Step::Any(self.any.is_some()));
        self.any
    }

    /// What of `authority` is compared with the domains.
    pub(crate) fn matched_part<'h>(&self, authority: &'h [u8]) -> &'h [u8] {
        if self.ignore_port { split_port(authority).0 } else { authority }
    }
}

/// Suffixes or prefixes, asked by length so that the longest is met first. Names are short, so lengths are few.
#[derive(Debug)]
struct Wildcards {
    texts: TextMap,
    /// Longest first.
    lengths: Box<[usize]>,
}

impl Wildcards {
    fn build(entries: &[(&[u8], u32)]) -> Wildcards {
        let mut lengths: Vec<usize> = entries.iter().map(|(text, _)| text.len()).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        Wildcards { texts: TextMap::build(entries, Case::Ignored), lengths: lengths.into_boxed_slice() }
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_model::VirtualHost;

    use super::*;

    fn domain(text: &str) -> Domain {
        match (text.strip_prefix('*'), text.strip_suffix('*')) {
            (Some(""), _) => Domain::Any,
            (Some(suffix), _) => Domain::Suffix(suffix.into()),
            (_, Some(prefix)) => Domain::Prefix(prefix.into()),
            _ => Domain::Exact(text.into()),
        }
    }

    fn hosts(domains: &[&str], ignore_port_in_host: bool) -> Hosts {
        let virtual_hosts = domains
            .iter()
            .map(|text| Arc::new(VirtualHost { domains: vec![domain(text)], ..VirtualHost::default() }))
            .collect();
        Hosts::compile(&RouteTable { virtual_hosts, ignore_port_in_host, ..RouteTable::default() })
    }

    /// Each row was observed on the proxy whose meaning this is.
    #[test]
    fn the_best_domain_wins() {
        let domains = [
            "exact.test",
            "exact.test:8080",
            "*.test",
            "*.b.test",
            "*-x.test",
            "pre.*",
            "pre.a.*",
            "*.com:81",
            "MiXed.test",
            "[::1]",
        ];
        let hosts = hosts(&domains, false);
        for (authority, want) in [
            ("exact.test", Some("exact.test")),
            ("EXACT.test", Some("exact.test")),
            ("exact.test:80", None),
            ("exact.test:8080", Some("exact.test:8080")),
            ("a.test", Some("*.test")),
            (".test", None),
            ("test", None),
            ("z.b.test", Some("*.b.test")),
            ("b.test", Some("*.test")),
            ("q-x.test", Some("*-x.test")),
            ("-x.test", Some("*.test")),
            ("pre.z", Some("pre.*")),
            ("pre.", None),
            ("pre.a.q", Some("pre.a.*")),
            ("pre.a.", Some("pre.*")),
            ("x.com:81", Some("*.com:81")),
            ("x.com", None),
            ("mixed.test", Some("MiXed.test")),
            ("[::1]", Some("[::1]")),
            ("[::1]:80", None),
            ("pre.a.test", Some("*.test")),
            ("a.test:90", None),
            ("exact.test.", None),
            ("", None),
        ] {
            let found = hosts.find(authority.as_bytes()).map(|id| domains[id as usize]);
            assert_eq!(found, want, "{authority}");
        }
    }

    #[test]
    fn the_port_is_left_out_on_request() {
        let hosts = hosts(&["exact.test", "exact.test:8080", "[::1]", "*"], true);
        for (authority, want) in
            [("exact.test:80", 0), ("exact.test:8080", 0), ("EXACT.test:9", 0), ("[::1]:9", 2), ("[::1]", 2), ("x", 3)]
        {
            assert_eq!(hosts.find(authority.as_bytes()), Some(want), "{authority}");
        }
    }

    #[test]
    fn a_request_without_authority_is_served_only_where_all_hosts_are_alike() {
        assert_eq!(hosts(&["*"], false).find(b""), Some(0));
        assert_eq!(hosts(&["*", "a"], false).find(b""), None);
        assert_eq!(hosts(&[], false).find(b"a"), None);
    }
}
