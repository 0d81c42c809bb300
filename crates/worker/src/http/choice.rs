//! What of a request decides on its host, where its cluster chooses by a hash (`RouteAction.hash_policy`) or by labels
//! (`metadata_match`).
//!
//! Looked at once a request, and only for such clusters; other tries of the request have the same hash. A cookie that is
//! made for the client is told it with the answer.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use postrider_filter_api::StreamInfo;
use postrider_http::{HeaderId, RequestHead};
use postrider_model::{Forward, HashCookie, HashPolicy, HashSource, Labels, Metadata, Target, Value};
use postrider_router::query_value;
use postrider_upstream::hash::xxh64;
use postrider_upstream::{Choice, Random, Refusal};

use super::Connection;
use super::exchange::{Exchange, Pooling};
use crate::cluster::{Cluster, Host};
use crate::named::{self, Named};

/// What was found out about a request.
#[derive(Default)]
pub(super) struct Chosen {
    hash: Option<u64>,
    labels: Option<Arc<Labels>>,
    /// Hosts that it names, for this try and the next ones.
    named: Named,
    /// Why it gets no host, whichever there are.
    pub(super) refusal: Option<Refusal>,
    /// Lines of `set-cookie`.
    cookies: Vec<String>,
}

impl Exchange {
    /// A host of `cluster` for a request whose route says what decides.
    #[cold]
    #[inline(never)]
    pub(super) fn choose_by_request(
        &mut self,
        cluster: &Cluster,
        forward: &Forward,
        random: &Random,
    ) -> Option<Rc<Host>> {
        self.pool_again();
        let hosts = &cluster.hosts;
        let refusal = hosts.refusal(random);
        if refusal.is_some() {
            self.chosen = Some(Box::new(Chosen { refusal, ..Chosen::default() }));
            return None;
        }
        let policies = match hosts.request_hash_policies() {
            [] => forward.hash_policies.as_slice(),
            own => own,
        };
        let hashing = hosts.is_hashing() && !policies.is_empty();
        if hashing || hosts.asks_requests() {
            let chosen = if hashing { self.hash(policies) } else { Chosen::default() };
            let labels = hosts.has_subsets().then(|| self.labels(forward)).flatten();
            let named = Named::of(cluster, Some(&self.request), &self.info);
            self.chosen = Some(Box::new(Chosen { labels, named, ..chosen }));
        }
        self.pick(cluster, 0, random)
    }

    /// From which pools another connection may come.
    #[cold]
    pub(super) fn pool_again(&mut self) {
        let has_wishes = || self.info.upstream_objects.as_ref().is_some_and(|objects| !objects.wishes.is_empty());
        self.pooling = match self.terminates {
            true => Pooling::Fresh,
            false if has_wishes() => Pooling::Apart,
            false => Pooling::Shared,
        };
    }

    /// A host of a cluster that has none of its own.
    #[cold]
    pub(super) fn destination(&self, cluster: &Cluster, connection: &Connection) -> Option<Rc<Host>> {
        if self.refusal().is_some() {
            return None;
        }
        cluster.destination(Some(&self.request), connection.destination(), Some(&self.info), &connection.worker)
    }

    /// A host for another try, or for the first one; `attempt` counts those that were refused.
    #[cold]
    #[inline(never)]
    pub(super) fn pick(&mut self, cluster: &Cluster, attempt: u32, random: &Random) -> Option<Rc<Host>> {
        if let Some(wanted) = &self.info.upstream_override {
            return cluster.pick_wanted(wanted, choice(self.chosen.as_deref(), attempt), random);
        }
        let mut named = self.chosen.as_mut().map(|chosen| std::mem::take(&mut chosen.named)).unwrap_or_default();
        let host = named.pick(cluster, choice(self.chosen.as_deref(), attempt), random);
        if let Some(chosen) = &mut self.chosen {
            chosen.named = named;
        }
        let host = host?;
        named::note(&host, cluster, &mut self.info);
        Some(host)
    }

    /// What a host is to have: what the route says, or its weighted cluster, and what filters noted.
    fn labels(&self, forward: &Forward) -> Option<Arc<Labels>> {
        let said = match &forward.target {
            Target::Weighted(clusters) => clusters.get(self.weighted?)?.labels.as_ref(),
            _ => forward.labels.as_ref(),
        };
        with_noted(said, &self.info.metadata)
    }

    /// Gives the client the cookies that lead it to the same host again.
    #[cold]
    #[inline(never)]
    pub(super) fn send_cookies(&mut self) {
        let Some(chosen) = &self.chosen else { return };
        for cookie in &chosen.cookies {
            // What a configuration may say fits into a field.
            let _ = self.response.fields.append_name(b"set-cookie", cookie.as_bytes());
        }
    }

    fn hash(&self, policies: &[HashPolicy]) -> Chosen {
        let mut chosen = Chosen::default();
        chosen.hash = combine(policies, |source| self.hash_of(source, Some(&mut chosen.cookies)));
        chosen
    }

    /// The same for another choice than that of a host: no cookie is made.
    #[cold]
    #[inline(never)]
    pub(super) fn hash_alone(&self, policies: &[HashPolicy]) -> Option<u64> {
        combine(policies, |source| self.hash_of(source, None))
    }

    fn hash_of(&self, source: &HashSource, cookies: Option<&mut Vec<String>>) -> Option<u64> {
        match source {
            HashSource::Header { name, rewrite } => {
                let mut values = values(&self.request, name);
                if let Some((pattern, substitution)) = rewrite {
                    for value in &mut values {
                        let mut out = Vec::new();
                        pattern.substitute(substitution, value, &mut out);
                        *value = out.into();
                    }
                }
                values.sort();
                let first = values.first()?;
                Some(values.iter().skip(1).fold(xxh64(first, 0), |hash, value| xxh64(value, hash)))
            }
            HashSource::Cookie(cookie) => match cookie_value(&self.request, &cookie.name) {
                Some(value) if !value.is_empty() => Some(xxh64(value, 0)),
                _ => {
                    let cookies = cookies?;
                    let made = self.make_cookie(cookie, cookie.ttl?)?;
                    cookies.push(made.1);
                    Some(xxh64(made.0.as_bytes(), 0))
                }
            },
            HashSource::SourceIp => hash_of_address(self.info.downstream_remote),
            HashSource::QueryParameter(name) => Some(xxh64(query_value(&self.request, name.as_bytes())?, 0)),
            HashSource::FilterState(key) => hash_of_noted(key, &self.info),
        }
    }

    /// Its value and its line: the value is the same for the same connection.
    fn make_cookie(&self, cookie: &HashCookie, ttl: u64) -> Option<(String, String)> {
        let ends = format!("{}{}", self.info.downstream_remote?, self.info.downstream_local?);
        let value = format!("{:016x}", xxh64(ends.as_bytes(), 0));
        let mut line = format!("{}=\"{value}\"", cookie.name);
        if ttl > 0 {
            line.push_str(&format!("; Max-Age={ttl}"));
        }
        if !cookie.path.is_empty() {
            line.push_str(&format!("; Path={}", cookie.path));
        }
        for (name, value) in &cookie.attributes {
            line.push_str(&if value.is_empty() { format!("; {name}") } else { format!("; {name}={value}") });
        }
        line.push_str("; HttpOnly");
        Some((value, line))
    }
}

/// One hash of those that policies find.
pub(crate) fn combine(policies: &[HashPolicy], mut hash_of: impl FnMut(&HashSource) -> Option<u64>) -> Option<u64> {
    let mut hash: Option<u64> = None;
    for policy in policies {
        if let Some(one) = hash_of(&policy.source) {
            // Turned before each next one, so that equal ones do not cancel each other out.
            hash = Some(hash.map_or(0, |before| before.rotate_left(1)) ^ one);
        }
        if policy.terminal && hash.is_some() {
            break;
        }
    }
    hash
}

/// What was found out, for the try with this number.
pub(super) fn choice(chosen: Option<&Chosen>, attempt: u32) -> Choice<'_> {
    let labels = chosen.and_then(|chosen| chosen.labels.as_deref());
    Choice { hash: chosen.and_then(|chosen| chosen.hash), attempt, labels }
}

/// The labels that a configuration asks for, and those that filters noted in the place of those of the same name.
pub(crate) fn with_noted(said: Option<&Arc<Labels>>, noted: &Metadata) -> Option<Arc<Labels>> {
    match (said, Labels::of(noted)) {
        (said, None) => said.cloned(),
        (None, Some(noted)) => Some(Arc::new(noted)),
        (Some(said), Some(noted)) => Some(Arc::new(said.with(&noted))),
    }
}

/// The hash of a text in the filter state.
pub(crate) fn hash_of_noted(name: &str, info: &StreamInfo) -> Option<u64> {
    match info.filter_state.iter().find(|(known, _)| known == name).map(|(_, value)| value)? {
        Value::String(text) => Some(xxh64(text.as_bytes(), 0)),
        _ => None,
    }
}

/// The hash of an address without its port.
pub(crate) fn hash_of_address(address: Option<SocketAddr>) -> Option<u64> {
    Some(xxh64(address?.ip().to_string().as_bytes(), 0))
}

fn values<'h>(head: &'h RequestHead, name: &str) -> Vec<Cow<'h, [u8]>> {
    let one = match name {
        ":authority" => head.authority(),
        ":path" => head.path(),
        ":method" => head.method_bytes(),
        ":scheme" => head.scheme().map_or("", postrider_http::Scheme::as_str).as_bytes(),
        name => return head.fields.get_all_name(name.as_bytes()).map(Cow::Borrowed).collect(),
    };
    if one.is_empty() { Vec::new() } else { vec![one.into()] }
}

/// The value of the first cookie of this name, without its quotes (RFC 6265 section 4.2.1).
fn cookie_value<'h>(head: &'h RequestHead, name: &str) -> Option<&'h [u8]> {
    let cookies = head.fields.get_all(HeaderId::Cookie).flat_map(|line| line.split(|byte| *byte == b';'));
    let mut found = cookies.filter_map(|cookie| {
        let cookie = cookie.trim_ascii_start();
        let equals = cookie.iter().position(|byte| *byte == b'=')?;
        let (key, value) = cookie.split_at_checked(equals)?;
        (key == name.as_bytes()).then_some(value.get(1..)?)
    });
    let value = found.next()?;
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_filter_api::Moment;
    use postrider_model::Regex;

    fn exchange(lines: &[(&str, &str)]) -> Exchange {
        let mut exchange = Exchange::new(Moment::default());
        exchange.info.downstream_remote = Some(([10, 0, 0, 1], 999).into());
        exchange.info.downstream_local = Some(([10, 0, 0, 2], 80).into());
        exchange.request.set_path(b"/a?x=1&y=2").unwrap();
        for (name, value) in lines {
            exchange.request.fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
        }
        exchange
    }

    fn header(name: &str) -> HashSource {
        HashSource::Header { name: name.into(), rewrite: None }
    }

    fn hash(exchange: &Exchange, sources: &[(HashSource, bool)]) -> Option<u64> {
        let policy =
            |(source, terminal): &(HashSource, bool)| HashPolicy { source: source.clone(), terminal: *terminal };
        exchange.hash(&sources.iter().map(policy).collect::<Vec<_>>()).hash
    }

    #[test]
    fn each_source_is_hashed_and_several_are_combined_in_order() {
        let exchange = exchange(&[("x-a", "foo"), ("x-b", "bar"), ("cookie", "q=1; c=\"foo\"")]);
        let (foo, bar) = (xxh64(b"foo", 0), xxh64(b"bar", 0));
        assert_eq!(hash(&exchange, &[(header("x-a"), false)]), Some(foo));
        assert_eq!(hash(&exchange, &[(header("x-none"), false)]), None);
        let both = [(header("x-a"), false), (header("x-b"), false)];
        assert_eq!(hash(&exchange, &both), Some(foo.rotate_left(1) ^ bar));
        assert_eq!(hash(&exchange, &[(header("x-a"), true), (header("x-b"), false)]), Some(foo));
        assert_eq!(hash(&exchange, &[(header("x-none"), true), (header("x-b"), false)]), Some(bar));
        let cookie = HashCookie { name: "c".into(), ttl: None, path: String::new(), attributes: Vec::new() };
        assert_eq!(hash(&exchange, &[(HashSource::Cookie(cookie), false)]), Some(foo));
        assert_eq!(hash(&exchange, &[(HashSource::SourceIp, false)]), Some(xxh64(b"10.0.0.1", 0)));
        assert_eq!(hash(&exchange, &[(HashSource::QueryParameter("y".into()), false)]), Some(xxh64(b"2", 0)));
    }

    #[test]
    fn the_order_of_a_headers_lines_does_not_matter_and_they_may_be_rewritten() {
        let (one, other) = (exchange(&[("x", "b"), ("x", "a")]), exchange(&[("x", "a"), ("x", "b")]));
        let of_x = [(header("x"), false)];
        assert_eq!(hash(&one, &of_x), hash(&other, &of_x));
        assert_eq!(hash(&one, &of_x), Some(xxh64(b"b", xxh64(b"a", 0))));
        let rewrite = Some((Regex::new("^(.).*").unwrap(), r"\1!".to_owned()));
        let source = HashSource::Header { name: "x".into(), rewrite };
        assert_eq!(hash(&exchange(&[("x", "abc")]), &[(source, false)]), Some(xxh64(b"a!", 0)));
    }

    #[test]
    fn what_filters_note_takes_the_place_of_what_the_route_wants() {
        let labels = |version: &str| Labels::new([("v".to_owned(), Value::String(version.into()))]);
        let mut noted = Metadata::default();
        let said = Some(Arc::new(labels("1")));
        assert_eq!(with_noted(said.as_ref(), &noted), said);
        assert_eq!(with_noted(None, &noted), None);
        noted.set(postrider_model::LABELS, "v", Value::String("2".into()));
        assert_eq!(with_noted(said.as_ref(), &noted), Some(Arc::new(labels("2"))));
        assert_eq!(with_noted(None, &noted), Some(Arc::new(labels("2"))));
    }

    #[test]
    fn a_missing_cookie_is_made() {
        let cookie = HashCookie {
            name: "c".into(),
            ttl: Some(60),
            path: "/p".into(),
            attributes: vec![("SameSite".into(), "Strict".into()), ("Secure".into(), String::new())],
        };
        let exchange = exchange(&[]);
        let policy = HashPolicy { source: HashSource::Cookie(cookie), terminal: false };
        let chosen = exchange.hash(std::slice::from_ref(&policy));
        let value = format!("{:016x}", xxh64(b"10.0.0.1:99910.0.0.2:80", 0));
        assert_eq!(chosen.cookies, [format!("c=\"{value}\"; Max-Age=60; Path=/p; SameSite=Strict; Secure; HttpOnly")]);
        assert_eq!(chosen.hash, Some(xxh64(value.as_bytes(), 0)));
    }
}
