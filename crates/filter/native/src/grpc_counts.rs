//! Counts of gRPC calls by cluster and method, under Envoy's names: `cluster.<cluster>.grpc.<service>.<method>.success`.
//!
//! For the filters that count calls. A block is found again without allocation; methods come from clients, so there is
//! a bound on how many are counted on their own.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use postrider_filter_api::Stream;
use postrider_http::grpc::{Code, Status};
use postrider_http::{Fields, HeaderId};
use postrider_telemetry::{Block, WorkerStats};

/// Names that one filter counts on one worker. Calls of further methods count for their cluster as a whole: a client
/// that invents methods must not fill the memory.
pub(crate) const MAX_NAMES: usize = 4096;

postrider_telemetry::stat_set! {
    /// Calls; prefix: the cluster, then `grpc`, then service and method where they are counted on their own.
    pub(crate) mod stat = "cluster";
    lazy_counters {
        STATUS_0 = "0",
        STATUS_1 = "1",
        STATUS_2 = "2",
        STATUS_3 = "3",
        STATUS_4 = "4",
        STATUS_5 = "5",
        STATUS_6 = "6",
        STATUS_7 = "7",
        STATUS_8 = "8",
        STATUS_9 = "9",
        STATUS_10 = "10",
        STATUS_11 = "11",
        STATUS_12 = "12",
        STATUS_13 = "13",
        STATUS_14 = "14",
        STATUS_15 = "15",
        STATUS_16 = "16",
        FAILURE = "failure",
        REQUEST_MESSAGES = "request_message_count",
        RESPONSE_MESSAGES = "response_message_count",
        SUCCESS = "success",
        TOTAL = "total",
    }
    lazy_histograms { UPSTREAM_TIME = "upstream_rq_time" Milliseconds }
}

/// The blocks of one filter on one worker.
pub(crate) struct Counts {
    stats: WorkerStats,
    /// `grpc` or `grpc-web`.
    protocol: &'static str,
    found: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    blocks: HashMap<String, Rc<Block>>,
    /// Where a name is put together.
    name: String,
}

/// What a call is counted as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) service: String,
    pub(crate) name: String,
}

impl Method {
    /// Reads `/package.Service/Method`, as Envoy does: two parts between slashes.
    pub(crate) fn of_path(path: &[u8]) -> Option<Method> {
        let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let (service, name) = (parts.next()?, parts.next()?);
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        parts.next().is_none().then(|| Method { service: text(service), name: text(name) })
    }
}

impl Counts {
    pub(crate) fn new(stats: &WorkerStats, protocol: &'static str) -> Counts {
        Counts { stats: stats.clone(), protocol, found: RefCell::default() }
    }

    /// Where calls of `method` to `cluster` are counted; without a method, all of the cluster's.
    pub(crate) fn of(&self, cluster: &str, method: Option<&Method>) -> Rc<Block> {
        let found = &mut *self.found.borrow_mut();
        let method = method.filter(|method| {
            put_name(&mut found.name, cluster, self.protocol, Some(method));
            found.blocks.len() < MAX_NAMES || found.blocks.contains_key(&found.name)
        });
        put_name(&mut found.name, cluster, self.protocol, method);
        if let Some(block) = found.blocks.get(&found.name) {
            return block.clone();
        }
        let block = self.stats.block(&stat::SET, &found.name);
        found.blocks.insert(found.name.clone(), block.clone());
        block
    }
}

fn put_name(name: &mut String, cluster: &str, protocol: &str, method: Option<&Method>) {
    name.clear();
    for part in cluster.chars() {
        name.push(if part == ':' { '_' } else { part });
    }
    // Writing to a string cannot fail.
    let _ = match method {
        Some(method) => write!(name, ".{protocol}.{}.{}", method.service, method.name),
        None => write!(name, ".{protocol}"),
    };
}

/// Counts the end of a call, if these fields tell it. A number that is no code has no counter of its own.
pub(crate) fn count_status(block: &Block, fields: &Fields) {
    let Some(status) = fields.get(HeaderId::GrpcStatus).and_then(Status::parse) else { return };
    if let Status::Code(code) = status {
        block.inc(of_code(code));
    }
    block.inc(if status == Status::Code(Code::Ok) { stat::SUCCESS } else { stat::FAILURE });
    block.inc(stat::TOTAL);
}

/// The cluster of this stream, as far as it is known: the one that was chosen, or that its route leads to.
pub(crate) fn cluster<'s>(stream: &'s Stream<'_>) -> Option<Cow<'s, str>> {
    stream.info.upstream_cluster.as_deref().map(Cow::Borrowed).or_else(|| stream.cluster())
}

fn of_code(code: Code) -> postrider_telemetry::stats::Counter {
    match code {
        Code::Ok => stat::STATUS_0,
        Code::Cancelled => stat::STATUS_1,
        Code::Unknown => stat::STATUS_2,
        Code::InvalidArgument => stat::STATUS_3,
        Code::DeadlineExceeded => stat::STATUS_4,
        Code::NotFound => stat::STATUS_5,
        Code::AlreadyExists => stat::STATUS_6,
        Code::PermissionDenied => stat::STATUS_7,
        Code::ResourceExhausted => stat::STATUS_8,
        Code::FailedPrecondition => stat::STATUS_9,
        Code::Aborted => stat::STATUS_10,
        Code::OutOfRange => stat::STATUS_11,
        Code::Unimplemented => stat::STATUS_12,
        Code::Internal => stat::STATUS_13,
        Code::Unavailable => stat::STATUS_14,
        Code::DataLoss => stat::STATUS_15,
        Code::Unauthenticated => stat::STATUS_16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_two_parts() {
        let method = |path: &str| Method::of_path(path.as_bytes()).map(|m| (m.service, m.name));
        assert_eq!(method("/a.b.C/D"), Some(("a.b.C".to_owned(), "D".to_owned())));
        assert_eq!(method("//a//b/"), Some(("a".to_owned(), "b".to_owned())));
        for path in ["", "/", "/a", "/a/b/c"] {
            assert_eq!(method(path), None, "{path}");
        }
    }

    #[test]
    fn methods_beyond_the_bound_count_for_their_cluster() {
        let registry = postrider_telemetry::Registry::new();
        let counts = Counts::new(&registry.worker(0), "grpc");
        let method = |at: usize| Method { service: "s".to_owned(), name: at.to_string() };
        for at in 0..MAX_NAMES + 10 {
            counts.of("c:1", Some(&method(at))).inc(stat::TOTAL);
        }
        assert_eq!(counts.of("c:1", Some(&method(0))).prefix(), "c_1.grpc.s.0");
        let rest = counts.of("c:1", Some(&method(MAX_NAMES + 1)));
        assert_eq!((rest.prefix(), rest.value(stat::TOTAL)), ("c_1.grpc", 10));
    }

    #[test]
    fn a_status_counts_once_as_what_it_is() {
        let registry = postrider_telemetry::Registry::new();
        let block = Counts::new(&registry.worker(0), "grpc").of("c", None);
        for value in ["0", "14", "77", "x"] {
            let mut fields = Fields::new();
            fields.set(HeaderId::GrpcStatus, value.as_bytes()).unwrap();
            count_status(&block, &fields);
        }
        count_status(&block, &Fields::new());
        let counts = [stat::STATUS_0, stat::STATUS_14, stat::STATUS_2, stat::SUCCESS, stat::FAILURE, stat::TOTAL];
        assert_eq!(counts.map(|counter| block.value(counter)), [1, 1, 0, 1, 3, 4]);
    }
}
