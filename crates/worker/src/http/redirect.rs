//! Redirects of upstreams that are followed here: the client gets the answer of where they lead.
//!
//! ```text
//! answer ──> may it be followed? ──> End::Redirect ──> the request as the redirect wants it ──> route, filters, upstream
//! ```
//!
//! As in Envoy, the request that was redirected and the one that follows it count and are logged as two.

use postrider_http::{BodyFraming, HeaderId, Method, RequestHead, ResponseFacts, Scheme};
use postrider_model::{Action, InternalRedirects};
use postrider_telemetry::stats::Counter;
use postrider_telemetry::stats::sets::{cluster as cluster_stat, http as stat};

use super::Connection;
use super::exchange::Exchange;
use super::prepare::OfStream;
use crate::buffers::Input;
use crate::chain::Http;

/// What is known of a request that was redirected.
#[derive(Default)]
pub(super) struct Redirected {
    /// How often it was.
    count: u32,
    /// Which route led to which.
    ways: Vec<(u32, u32)>,
    /// The request as the last redirect wants it; `None` while it is under way.
    next: Option<Box<RequestHead>>,
}

impl Exchange {
    /// Whether the answer whose head came is followed; if so, all is ready for that.
    #[cold]
    pub(super) fn redirects_after_head(&mut self, facts: ResponseFacts, connection: &Connection, http: &Http) -> bool {
        let (Some(routes), Some(route), Some(cluster)) = (self.routes.clone(), self.route, self.cluster.clone()) else {
            return false;
        };
        let Action::Forward(forward) = &routes.plan.table.route(route).action else { return false };
        let Some(policy) = forward.redirects.as_deref() else { return false };
        if !policy.statuses.contains(&self.response.status()) || facts.tunnel {
            return false;
        }
        // One whose body is still coming, or was too large to keep, cannot be sent once more.
        let whole = self.upload.is_heard() && self.attempts.as_ref().is_some_and(|attempts| attempts.may_redirect);
        let stats = cluster.stats(&connection.worker);
        let next = if whole { self.follow(policy, route, connection) } else { Err(None) };
        match next {
            Ok((head, target)) => {
                stats.inc(cluster_stat::UPSTREAM_INTERNAL_REDIRECT_SUCCEEDED_TOTAL);
                let redirected = self.redirected.get_or_insert_default();
                redirected.count += 1;
                redirected.ways.push((route, target));
                redirected.next = Some(head);
                self.response_facts = facts;
                self.drain_answer(&connection.worker);
                true
            }
            Err(why) => {
                if let Some(why) = why {
                    http.stats.inc(why);
                }
                stats.inc(cluster_stat::UPSTREAM_INTERNAL_REDIRECT_FAILED_TOTAL);
                false
            }
        }
    }

    /// The request as the answer's redirect wants it, and the route that takes it.
    ///
    /// # Errors
    /// The answer goes to the client: which counter says why.
    fn follow(
        &self,
        policy: &InternalRedirects,
        route: u32,
        connection: &Connection,
    ) -> Result<(Box<RequestHead>, u32), Option<Counter>> {
        let Some(routes) = &self.routes else { return Err(None) };
        let location = self.response.fields.get(HeaderId::Location).ok_or(None)?;
        let (scheme, authority, path) = parts(location).ok_or(stat::PASSTHROUGH_INTERNAL_REDIRECT_BAD_LOCATION)?;
        let secure = connection.tls.is_some();
        let from = self.request.scheme().unwrap_or(if secure { Scheme::Https } else { Scheme::Http });
        if scheme != from && !policy.across_schemes {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_UNSAFE_SCHEME));
        }
        let before = self.redirected.as_deref();
        if before.map_or(0, |before| before.count) >= policy.max {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_TOO_MANY_REDIRECTS));
        }
        let mut head = Box::new(self.request.clone());
        for name in &policy.copied_headers {
            head.fields.remove_name(name.as_bytes());
            for value in self.response.fields.get_all_name(name.as_bytes()) {
                let _ = head.fields.append_name(name.as_bytes(), value);
            }
        }
        let original = [from.as_str().as_bytes(), b"://", self.request.authority(), self.request.path()].concat();
        let written = head.set_authority(authority).and_then(|()| head.set_path(&path));
        if written.is_err() {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_BAD_LOCATION));
        }
        head.set_scheme(scheme);
        if self.response.status() == 303 && !matches!(self.request.method(), Method::Get | Method::Head) {
            let _ = head.set_method(b"GET");
            head.fields.remove(HeaderId::ContentLength);
            head.fields.remove(HeaderId::ContentType);
        }
        let found = routes.plan.table.find_in(&head, &OfStream(&self.info), || connection.worker.random.next());
        let target = found.ok_or(stat::PASSTHROUGH_INTERNAL_REDIRECT_NO_ROUTE)?.route;
        let name = &routes.plan.table.route(target).name;
        let refused = policy.safe_schemes && scheme == Scheme::Https && !secure
            || policy.new_routes && before.is_some_and(|before| before.ways.contains(&(route, target)))
            || policy.allowed_routes.iter().any(|allowed| !allowed.contains(name));
        if refused {
            return Err(Some(stat::PASSTHROUGH_INTERNAL_REDIRECT_PREDICATE));
        }
        let _ = head.fields.set_name(b"x-envoy-original-url", &original);
        Ok((head, target))
    }

    /// Ends the request that was redirected and takes the one that follows it; `false` when the last answer was for the
    /// client.
    #[cold]
    #[inline(never)]
    pub(super) fn take_redirected(&mut self, connection: &mut Connection, http: &Http) -> bool {
        let Some(head) = self.redirected.as_mut().and_then(|redirected| redirected.next.take()) else { return false };
        let worker = connection.worker.clone();
        let now = worker.clock.now();
        self.info.ended = Some(now);
        self.info.status = self.response.status();
        self.info.details = "internal_redirect".into();
        if let Some(host) = self.host.take() {
            host.totals.successes.set(host.totals.successes.get() + 1);
            self.time(&host, true, now);
            if self.permit.take().is_some()
                && let Some(cluster) = &self.cluster
            {
                host.active.set(host.active.get().saturating_sub(1));
                cluster.stats(&worker).gauge_dec(cluster_stat::UPSTREAM_RQ_ACTIVE);
            }
        }
        self.complete_filters(&worker.clock);
        if http.notes_ends.get() {
            self.note_end(connection, http);
        }
        http.stats.gauge_dec(stat::DOWNSTREAM_RQ_ACTIVE);
        if let Some(cluster) = self.cluster.take() {
            self.give_back(&cluster, now);
        }
        // The body is as if it had just arrived.
        let body = self.attempts.take().map(|attempts| attempts.kept().to_vec()).unwrap_or_default();
        let keeps_body = head.method() == self.request.method() && self.facts.framing.has_body();
        self.facts.framing = match keeps_body {
            true => BodyFraming::Length(body.len() as u64),
            false => BodyFraming::None,
        };
        if keeps_body && !body.is_empty() {
            let rest = connection.input.bytes().to_vec();
            connection.input.release(&worker.buffers);
            connection.input = Input::holding([body, rest].concat());
        }
        self.request = *head;
        self.facts.expects_continue = false;
        self.request_trailers.clear();
        self.weighted = None;
        self.upstream_status = None;
        self.leave_groups();
        self.chosen = None;
        self.fresh_only = false;
        self.request_framing = BodyFraming::None;
        true
    }
}

/// Scheme, authority and path with its query, of an absolute URI. What follows a `#` is for the client only.
fn parts(location: &[u8]) -> Option<(Scheme, &[u8], Vec<u8>)> {
    let (scheme, rest) = if let Some(rest) = strip_no_case(location, b"http://") {
        (Scheme::Http, rest)
    } else {
        (Scheme::Https, strip_no_case(location, b"https://")?)
    };
    let rest = rest.split(|byte| *byte == b'#').next()?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    if authority.is_empty() || postrider_http::check_authority(authority).is_err() {
        return None;
    }
    let mut whole = Vec::with_capacity(path.len() + 1);
    if path.first() != Some(&b'/') {
        whole.push(b'/');
    }
    whole.extend_from_slice(path);
    Some((scheme, authority, whole))
}

fn strip_no_case<'t>(text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
    let (begin, rest) = text.split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_locations_lead_somewhere() {
        let seen = |text: &str| {
            parts(text.as_bytes()).map(|(scheme, authority, path)| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                (scheme == Scheme::Https, text(authority), text(&path))
            })
        };
        assert_eq!(seen("http://a/b?c#d"), Some((false, "a".into(), "/b?c".into())));
        assert_eq!(seen("HTTPS://a:1"), Some((true, "a:1".into(), "/".into())));
        assert_eq!(seen("http://a?c"), Some((false, "a".into(), "/?c".into())));
        for bad in ["/b", "../b", "http://", "ftp://a/", "http:///x", "http://u@a/", ""] {
            assert_eq!(seen(bad), None, "{bad}");
        }
    }
}
