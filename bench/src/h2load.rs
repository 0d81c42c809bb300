//! The load generator h2load: how it is called, and what its report and its log say.
//!
//! Its report has no percentiles; they are formed from the log, which has a line for each request.

use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};
use crate::stats::percentile;
use crate::tally::Tally;

/// One load over HTTP/2: in clear text with prior knowledge, or over TLS, as the scheme of the URL says.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    pub url: &'a str,
    pub connections: usize,
    /// Requests in flight on each connection.
    pub streams: usize,
    pub seconds: u64,
    pub headers: &'a [&'a str],
    /// A file that each request carries; without one they are GETs.
    pub data: Option<&'a Path>,
    /// Where a line for each request goes.
    pub log: &'a Path,
}

impl Load<'_> {
    pub fn command(&self, h2load: &Path) -> Command {
        let mut command = Command::new(h2load);
        command
            .arg("-t1")
            .arg(format!("-c{}", self.connections))
            .arg(format!("-m{}", self.streams))
            .arg(format!("-D{}", self.seconds))
            .arg(format!("--log-file={}", self.log.display()));
        for header in self.headers {
            command.arg("-H").arg(header);
        }
        if let Some(data) = self.data {
            command.arg("-d").arg(data);
        }
        command.arg(self.url);
        command
    }
}

/// What h2load measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub done: u64,
    pub seconds: f64,
    /// Requests that ended with an error, were reset or came too late; statuses outside 200-399.
    pub failed: u64,
    /// Bytes of all bodies.
    pub data: u64,
    /// Milliseconds of each request, sorted.
    latencies_ms: Vec<f64>,
}

impl Report {
    /// Refuses a load with failures, and one whose bodies have not the `body` bytes of the right answer: an error that a
    /// proxy reports in trailers has none.
    pub fn accepted(&self, body: usize) -> Result<Tally> {
        let short = self.data < self.done * body as u64;
        if self.done == 0 || self.failed * 1000 > self.done || short || self.latencies_ms.is_empty() {
            return Err(Error::FailedLoad {
                detail: format!(
                    "{} requests, {} failed, {} bytes of bodies where each has {body}",
                    self.done, self.failed, self.data
                ),
            });
        }
        Ok(Tally {
            requests: self.done,
            seconds: self.seconds,
            p50_ms: percentile(&self.latencies_ms, 0.5),
            p99_ms: percentile(&self.latencies_ms, 0.99),
        })
    }
}

/// Reads what h2load printed, and its log.
pub fn read(output: &str, log: &str) -> Result<Report> {
    parse(output, log).ok_or_else(|| Error::Unreadable { tool: "h2load", output: output.to_owned() })
}

fn parse(output: &str, log: &str) -> Option<Report> {
    let after = |prefix: &str| output.lines().find_map(|line| line.trim().strip_prefix(prefix).map(str::trim));
    // `COUNT LABEL, COUNT LABEL, ...`
    let count = |list: &str, label: &str| {
        list.split(',').find_map(|part| part.trim().strip_suffix(label)?.trim().parse::<u64>().ok())
    };
    let requests = after("requests:")?;
    let codes = after("status codes:")?;
    let failed = ["failed", "timeout"].into_iter().map(|label| count(requests, label)).sum::<Option<u64>>()?;
    let bad = ["4xx", "5xx"].into_iter().map(|label| count(codes, label)).sum::<Option<u64>>()?;
    // `traffic: 5.66MB (5932194) total, 3.55MB (3726401) headers (space savings 50.51%), 816.92KB (836528) data`
    let data = after("traffic:")?.strip_suffix(") data")?.rsplit_once('(')?.1.parse().ok()?;
    let mut latencies_ms: Vec<f64> =
        log.lines().filter_map(|line| Some(line.split('\t').nth(2)?.parse::<f64>().ok()? / 1e3)).collect();
    latencies_ms.sort_by(f64::total_cmp);
    Some(Report {
        done: count(requests, "done")?,
        seconds: after("finished in")?.split(',').next().and_then(seconds)?,
        failed: failed + bad,
        data,
        latencies_ms,
    })
}

/// h2load prints `1.00s`, `999.58ms`, `12us`.
fn seconds(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let value: f64 = text[..split].parse().ok()?;
    let factor = match &text[split..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Some(value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "starting benchmark...
Application protocol: h2c

finished in 2.00s, 38024.00 req/s, 5.66MB/s
requests: 76048 total, 76112 started, 76048 done, 76048 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 76049 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 5.66MB (5932194) total, 3.55MB (3726401) headers (space savings 50.51%), 816.92KB (836528) data
                     min         max         mean         sd        +/- sd
time for request:       54us     12.79ms       746us       766us    93.79%
";
    const LOG: &str = "1795324962473610\t200\t3000\n1795324962473610\t200\t1000\n1795324962473610\t200\t2000\n";

    #[test]
    fn report_and_log_are_read_in_full() {
        let report = parse(OUTPUT, LOG).unwrap();
        assert_eq!(
            report,
            Report { done: 76_048, seconds: 2.0, failed: 0, data: 836_528, latencies_ms: vec![1.0, 2.0, 3.0] }
        );
        let tally = report.accepted(11).unwrap();
        assert_eq!((tally.requests, tally.p50_ms, tally.requests_per_second()), (76_048, 2.0, 38_024.0));
    }

    #[test]
    fn failures_and_missing_bodies_refuse_the_load() {
        let failing = OUTPUT.replace("0 failed", "77 failed");
        assert!(parse(&failing, LOG).unwrap().accepted(11).is_err());
        let refused = OUTPUT.replace("76049 2xx, 0 3xx, 0 4xx", "0 2xx, 0 3xx, 76049 4xx");
        assert!(parse(&refused, LOG).unwrap().accepted(11).is_err());
        assert!(parse(OUTPUT, LOG).unwrap().accepted(12).is_err(), "836,528 bytes are not 12 for each request");
        assert!(parse(OUTPUT, "").unwrap().accepted(11).is_err(), "no log");
    }

    #[test]
    fn other_text_is_not_a_report() {
        assert_eq!(parse("unable to connect", LOG), None);
    }
}
