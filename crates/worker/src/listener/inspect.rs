//! What a client says first, before a filter chain is chosen, and what is counted of it.

use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use postrider_model::{Inspection, InspectionPart, ProxyProtocol};
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::{
    http_inspector, listener as stat, proxy_protocol as proxy_stat, proxy_protocol_errors, tls_inspector,
};

use super::{Listener, Newcomer};
use crate::cluster::stat_name;
use crate::greeting::{Greeting, Inspector, OfHttp, OfTls, Proxied, Refused};
use crate::proxy_protocol::Version;
use crate::worker::Worker;

impl Listener {
    /// What the client says first; `None` when the connection is not to be served.
    pub(super) async fn greet(
        &self,
        worker: &Rc<Worker>,
        newcomer: &mut Newcomer,
        ahead: &mut Vec<u8>,
    ) -> Option<Greeting> {
        let plan = newcomer.plan.clone();
        let rules = &plan.model.inspection;
        if rules.original_destination
            && rules.includes(InspectionPart::OriginalDestination, newcomer.port())
            && let Some(destination) = newcomer.socket.original_destination()
        {
            newcomer.redirect(destination);
        }
        let greeting = match plan.filters.is_empty() && rules.exceptions.is_empty() {
            true => self.inspect(worker, newcomer, ahead, rules).await?,
            // Boxed: few listeners have filters of their own.
            false => Box::pin(self.introduce(worker, newcomer, ahead, rules)).await?,
        };
        if let Some(source) = rules.original_source
            && rules.includes(InspectionPart::OriginalSource, newcomer.port())
        {
            newcomer.go_on_as_client(source);
        }
        Some(greeting)
    }

    /// What the client says first, as far as `rules` ask for it; `None` when the connection is not to be served.
    pub(super) async fn inspect(
        &self,
        worker: &Worker,
        newcomer: &mut Newcomer,
        ahead: &mut Vec<u8>,
        rules: &Inspection,
    ) -> Option<Greeting> {
        if rules.proxy.is_none() && !rules.tls && !rules.http {
            return Some(Greeting::default());
        }
        self.stats.gauge_inc(stat::DOWNSTREAM_PRE_CX_ACTIVE);
        let mut inspector = Inspector { rules, ahead, proxied: None, noted: None, tls: None, tls_bytes: 0, http: None };
        let socket = &mut newcomer.socket;
        let seen = within(worker, rules.timeout, |cx| inspector.poll(cx, socket)).await;
        self.stats.gauge_dec(stat::DOWNSTREAM_PRE_CX_ACTIVE);
        let (said, expected) = (inspector.proxied, rules.proxy.as_ref());
        count_found(worker, &inspector);
        let noted = inspector.noted.take();
        if let Some(mut noted) = noted {
            let direct_local = newcomer.noted.as_ref().and_then(|before| before.direct_local);
            Rc::make_mut(&mut noted).direct_local = direct_local;
            newcomer.noted = Some(noted);
        }
        if let (Some(rules), Some(said)) = (expected, said) {
            let counts = self.proxy_stats(worker, rules);
            match said {
                Proxied::Said(Version::V1, _) => counts.inc(proxy_stat::V1_FOUND),
                Proxied::Said(Version::V2, _) => counts.inc(proxy_stat::V2_FOUND),
                Proxied::Nothing => counts.inc(proxy_stat::NOT_FOUND_ALLOWED),
            }
        }
        let greeting = match seen {
            Some(Ok(greeting)) => greeting,
            Some(Err(refused)) => {
                if let (Refused::NotTls, Some(record)) = (&refused, &newcomer.record) {
                    record.note(|info| info.downstream_failure = Some("TLS_error: no greeting in TLS".into()));
                }
                self.count_refused(worker, expected, &refused);
                return None;
            }
            None => {
                self.stats.inc(stat::DOWNSTREAM_PRE_CX_TIMEOUT);
                // Who must say where he comes from does not get in by waiting.
                if !rules.continue_on_timeout || (expected.is_some() && said.is_none()) {
                    return None;
                }
                Greeting::default()
            }
        };
        if let Some(Proxied::Said(_, Some((source, destination)))) = said {
            newcomer.remote = Some(source);
            newcomer.redirect(destination);
            if let Some(record) = &newcomer.record {
                record.note(|info| (info.downstream_remote, info.downstream_local) = (newcomer.remote, newcomer.local));
            }
        }
        if let (Some(noted), Some(record)) = (&newcomer.noted, &newcomer.record) {
            record.keep(noted);
        }
        Some(greeting)
    }

    #[cold]
    fn count_refused(&self, worker: &Worker, proxy: Option<&ProxyProtocol>, refused: &Refused) {
        // Envoy, too, does not take it for a failure of a filter when that turns a client away.
        if let Refused::Io(error) = refused {
            self.stats.inc(match error.kind() {
                ErrorKind::UnexpectedEof => stat::DOWNSTREAM_LISTENER_FILTER_REMOTE_CLOSE,
                _ => stat::DOWNSTREAM_LISTENER_FILTER_ERROR,
            });
        }
        let Some(rules) = proxy else { return };
        let counts = self.proxy_stats(worker, rules);
        match refused {
            Refused::Io(_) | Refused::NotTls => return,
            Refused::Disallowed(Version::V1) => {
                counts.inc(proxy_stat::V1_FOUND);
                return counts.inc(proxy_stat::V1_DISALLOWED);
            }
            Refused::Disallowed(Version::V2) => {
                counts.inc(proxy_stat::V2_FOUND);
                return counts.inc(proxy_stat::V2_DISALLOWED);
            }
            Refused::NotProxied => counts.inc(proxy_stat::NOT_FOUND_DISALLOWED),
            Refused::Malformed(Version::V1) => counts.inc(proxy_stat::V1_ERROR),
            Refused::Malformed(Version::V2) => counts.inc(proxy_stat::V2_ERROR),
        }
        worker.stats.block(&proxy_protocol_errors::SET, "").inc(proxy_protocol_errors::DOWNSTREAM_CX_PROXY_PROTO_ERROR);
    }

    fn proxy_stats(&self, worker: &Worker, rules: &ProxyProtocol) -> Rc<Block> {
        worker.stats.block(&proxy_stat::SET, &stat_name(&rules.stat_prefix))
    }
}

/// Counts what the inspectors found.
fn count_found(worker: &Worker, inspector: &Inspector<'_>) {
    if let Some(found) = inspector.tls {
        use tls_inspector::*;
        let stats = worker.stats.block(&SET, "");
        match found {
            OfTls::Found { server_name, protocols } => {
                stats.inc(TLS_FOUND);
                stats.inc(if server_name { SNI_FOUND } else { SNI_NOT_FOUND });
                stats.inc(if protocols { ALPN_FOUND } else { ALPN_NOT_FOUND });
            }
            OfTls::NotFound => stats.inc(TLS_NOT_FOUND),
            OfTls::TooLarge => stats.inc(CLIENT_HELLO_TOO_LARGE),
        }
        stats.record(BYTES_PROCESSED, inspector.tls_bytes as u64);
    }
    if let Some(found) = inspector.http {
        use http_inspector::*;
        worker.stats.block(&SET, "").inc(match found {
            OfHttp::Http10 => HTTP10_FOUND,
            OfHttp::Http11 => HTTP11_FOUND,
            OfHttp::Http2 => HTTP2_FOUND,
            OfHttp::None => HTTP_NOT_FOUND,
        });
    }
}

/// What `poll` comes to, or `None` after `limit`.
pub(super) async fn within<T>(
    worker: &Worker,
    limit: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let deadline = worker.timers.register();
    deadline.set(limit.map(|limit| worker.clock.now() + limit));
    std::future::poll_fn(|cx| match poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending if deadline.is_past() => Poll::Ready(None),
        Poll::Pending => {
            deadline.watch(cx.waker());
            Poll::Pending
        }
    })
    .await
}
