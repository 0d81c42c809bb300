//! Copies of requests: they go to another cluster, and the request itself never waits for them.

use std::time::Duration;

use postrider_http::{BodyFraming, HeaderId, RequestHead, split_port};
use postrider_model::{Mirror, MirrorTarget};

use super::exchange::Exchange;
use super::{Connection, edits};
use crate::call::{self, Copied, CopyRecord, Feeder};
use crate::chain::Handler;

/// What a fraction is a fraction of.
const MILLION: u64 = 1_000_000;

/// Behind the host of a copy.
const SUFFIX: &[u8] = b"-shadow";

impl Exchange {
    /// Sends the copies of a request that is ready to be sent itself, and may take as long as it. What is answered takes its body.
    #[cold]
    pub(super) fn start_mirrors(
        &self,
        connection: &Connection,
        mirrors: &[Mirror],
        timeout: Option<Duration>,
    ) -> Vec<Feeder> {
        if self.asks_for_tunnel() {
            return Vec::new();
        }
        mirrors.iter().filter_map(|mirror| self.start_mirror(connection, timeout, mirror)).collect()
    }

    fn start_mirror(&self, connection: &Connection, timeout: Option<Duration>, mirror: &Mirror) -> Option<Feeder> {
        let worker = &connection.worker;
        if mirror.fraction.is_some_and(|parts| worker.random.next() % MILLION >= u64::from(parts)) {
            return None;
        }
        let cluster = match &mirror.target {
            MirrorTarget::Cluster(name) => worker.cluster(name)?,
            MirrorTarget::Header(name) => {
                let name = self.request.fields.get_name(name.as_bytes())?;
                worker.cluster(&String::from_utf8_lossy(name))?
            }
        };
        let mut head = self.request.clone();
        // Its answer is not waited for, and so its body is not either.
        head.fields.remove(HeaderId::Expect);
        let now = worker.clock.wall(self.info.started);
        for edit in &mirror.headers {
            edits::mutate(edit, &mut head.fields, |edits| edits::evaluate(edits, &self.format_context(&[], now)));
        }
        mark(&mut head, mirror, connection);
        // With room for one piece at least: a filter may let more pass at once than the connection reads.
        let (feeder, feed) = Feeder::new(connection.chain.buffer_limit.max(MIN_WAITING));
        if !self.request_framing.has_body() {
            feeder.end();
        }
        let logs_tries = matches!(&connection.chain.handler, Handler::Http(http) if http.logs_tries);
        let record = logs_tries.then(|| CopyRecord::new(&connection.chain, worker, &cluster));
        // Copies have no trailers.
        let framing = self.request_framing.length().map_or(self.request_framing, BodyFraming::Length);
        let copied = Copied { framing, feed, record };
        call::mirror(worker.clone(), cluster, head, copied, timeout);
        Some(feeder)
    }

    /// The request's body is all there.
    #[cold]
    pub(super) fn end_mirrors(&mut self) {
        if let Some(attempts) = &mut self.attempts {
            attempts.mirrors.iter().for_each(Feeder::end);
        }
    }
}

/// Bytes that may wait for a copy's upstream, however small the connection's buffers are.
const MIN_WAITING: usize = 64 * 1024;

/// Says of a copy that it is one, and that it comes from here.
fn mark(head: &mut RequestHead, mirror: &Mirror, connection: &Connection) {
    let host = match &mirror.host {
        Some(host) => host.as_bytes().to_vec(),
        None if mirror.marks_host => marked(head.authority()),
        None => head.authority().to_vec(),
    };
    // A host that is no authority any more stays as it was.
    let _ = head.set_authority(&host);
    let _ = head.fields.set(HeaderId::XEnvoyInternal, b"true");
    let Some(local) = connection.local.map(|local| local.ip().to_string()) else { return };
    let forwarded = match head.fields.get(HeaderId::XForwardedFor) {
        Some(before) => [before, b",", local.as_bytes()].concat(),
        None => local.into_bytes(),
    };
    let _ = head.fields.set(HeaderId::XForwardedFor, &forwarded);
}

/// `a:80` as `a-shadow:80`.
fn marked(authority: &[u8]) -> Vec<u8> {
    let (host, port) = split_port(authority);
    if host.starts_with(b"[") {
        // An address has no name to mark.
        return authority.to_vec();
    }
    let mut marked = [host, SUFFIX].concat();
    if let Some(port) = port {
        marked.push(b':');
        marked.extend_from_slice(port);
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_before_the_port() {
        assert_eq!(marked(b"a.test"), b"a.test-shadow");
        assert_eq!(marked(b"a.test:81"), b"a.test-shadow:81");
        assert_eq!(marked(b"[::1]:81"), b"[::1]:81");
    }
}
