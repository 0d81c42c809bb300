//! Tracing: which requests leave a trace, what their spans say, and who is told of them.

use std::sync::Arc;
use std::time::Duration;

use crate::{Expression, Format, MetadataOf, OtlpTarget};

/// What a connection manager does about traces.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// Who is told of spans. Without one requests are only marked, and counted.
    pub tracer: Option<Arc<Tracer>>,
    pub sampling: Sampling,
    /// Spans tell when their parts happened, too.
    pub verbose: bool,
    /// Longer paths are cut in spans.
    pub max_path: usize,
    pub tags: Vec<CustomTag>,
    /// Each try has a span of its own.
    pub spawns_upstream_span: bool,
    /// What spans are called, in place of what decorators say.
    pub operation: Option<Format>,
    pub upstream_operation: Option<Format>,
    /// Upstreams are told of the trace.
    pub propagates: bool,
    /// Requests leave here for others: decorators are for those, not for clients.
    pub outbound: bool,
    /// Requests are drawn by their ids; otherwise all count as drawn.
    pub draws_by_id: bool,
}

/// What a route says about the traces of its requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RouteTracing {
    pub decorator: Option<Decorator>,
    /// In place of the connection manager's.
    pub sampling: Option<Sampling>,
    /// They go before the connection manager's of the same name.
    pub tags: Vec<CustomTag>,
    pub operation: Option<Format>,
    pub upstream_operation: Option<Format>,
}

/// What a route's requests are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decorator {
    pub operation: String,
    /// The other side is told (`x-envoy-decorator-operation`).
    pub propagates: bool,
}

/// Shares of requests that are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampling {
    /// Of those whose client wants it (`x-client-trace-id`).
    pub client: Share,
    /// Of those that nobody wants to be.
    pub random: Share,
    /// Of all for which there is a reason.
    pub overall: Share,
}

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub parts: u32,
    pub of: u32,
}

impl Share {
    /// Whether a uniform number is within.
    pub fn takes(self, ticket: u64) -> bool {
        ticket.checked_rem(u64::from(self.of)).is_some_and(|ticket| ticket < u64::from(self.parts))
    }
}

impl Default for Share {
    /// All.
    fn default() -> Self {
        Share { parts: 100, of: 100 }
    }
}

/// What is added to each span.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomTag {
    pub name: String,
    pub value: TagSource,
    pub kind: TagKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TagSource {
    Literal(String),
    /// Of the request's head; an empty default is none.
    Header {
        name: String,
        default: String,
    },
    Metadata {
        of: MetadataOf,
        namespace: String,
        path: Vec<String>,
        default: String,
    },
    Format(Format),
}

/// As what a tag's value is told, where it can be read as that; otherwise it is a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TagKind {
    #[default]
    Text,
    Integer,
    Double,
    Bool,
}

/// A collector that is told of spans, what it is told of the proxy, and what waits for it at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracer {
    pub to: OtlpTarget,
    /// Names and values of who tells.
    pub resource: Vec<(String, String)>,
    /// Spans name the program that made them.
    pub tells_scope: bool,
    /// Decides in place of the caller, among the requests that the connection manager would trace.
    pub sampler: Option<Sampler>,
    /// Spans that wait at most; more are dropped.
    pub max_spans: usize,
    /// So many spans are sent at once,
    pub flush_spans: usize,
    /// or those that there are after this time.
    pub flush_interval: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Sampler {
    AlwaysOn,
    /// By the trace's identifier, so that others decide the same.
    Ratio(Share),
    /// As the caller did; without a caller's word as the sampler within.
    Parent(Box<Sampler>),
    /// Those for which it is true, whatever their callers decided.
    Expression(Box<Expression>),
}

impl Sampler {
    /// Whether a trace is told; `parent` is what the caller decided, and `holds` says what is true of the request.
    pub fn takes(&self, trace: &[u8; 16], parent: Option<bool>, holds: &dyn Fn(&Expression) -> bool) -> bool {
        match (self, parent) {
            (Sampler::AlwaysOn, _) => true,
            (Sampler::Parent(_), Some(sampled)) => sampled,
            (Sampler::Parent(within), None) => within.takes(trace, None, holds),
            (Sampler::Expression(expression), _) => holds(expression),
            // As Envoy 1.40 reads an identifier.
            (Sampler::Ratio(share), _) => {
                let [a, b, c, d, e, f, g, h, ..] = *trace;
                share.takes(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No expression is true.
    fn none(_: &Expression) -> bool {
        false
    }

    /// What Envoy 1.40 decided for half of all.
    #[test]
    fn a_ratio_takes_the_traces_that_envoy_takes() {
        let half = Sampler::Ratio(Share { parts: 50, of: 100 });
        let trace = |first: u64| {
            let mut trace = [0xff; 16];
            trace[..8].copy_from_slice(&first.to_be_bytes());
            trace
        };
        for (first, taken) in [
            (0x01, true),
            (0x31, false),
            (0x40, true),
            (0x63, false),
            (0x64, true),
            (0x7fff_ffff_ffff_ffff, false),
            (0xffff_ffff_ffff_ffff, true),
            (0x3100_0000_0000_0000, true),
            (0x6300_0000_0000_0000, false),
        ] {
            assert_eq!(half.takes(&trace(first), None, &none), taken, "{first:x}");
            assert_eq!(half.takes(&trace(first), Some(true), &none), taken, "a caller has no say: {first:x}");
        }
    }

    #[test]
    fn a_caller_decides_where_it_is_asked() {
        let parent = Sampler::Parent(Box::new(Sampler::Ratio(Share { parts: 0, of: 100 })));
        assert!(parent.takes(&[1; 16], Some(true), &none));
        assert!(!parent.takes(&[1; 16], Some(false), &none) && !parent.takes(&[1; 16], None, &none));
        assert!(Sampler::AlwaysOn.takes(&[1; 16], Some(false), &none));
    }

    #[test]
    fn an_expression_decides_whatever_the_caller_did() {
        let expression = Expression::parse("request.path == '/a'", Default::default()).unwrap();
        let sampler = Sampler::Expression(Box::new(expression));
        assert!(sampler.takes(&[1; 16], Some(false), &|_| true));
        assert!(!sampler.takes(&[1; 16], Some(true), &none));
        let parent = Sampler::Parent(Box::new(sampler));
        assert!(!parent.takes(&[1; 16], Some(false), &|_| true), "the caller is asked first");
    }

    #[test]
    fn shares_of_nothing_take_nothing() {
        assert!(!Share { parts: 1, of: 0 }.takes(0));
        assert!(Share::default().takes(99) && !Share { parts: 1, of: 10_000 }.takes(1));
    }
}
