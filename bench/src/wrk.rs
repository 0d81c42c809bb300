//! The load generator wrk: how it is called, and what its report says.

use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};
use crate::tally::Tally;

/// One load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    pub url: &'a str,
    pub connections: usize,
    pub seconds: u64,
    pub headers: &'a [&'a str],
    /// A script that makes wrk send something else than a GET.
    pub script: Option<&'a Path>,
}

/// A script for POST requests with so many bytes.
pub fn post_script(bytes: usize) -> String {
    format!("wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", {bytes})\n")
}

impl Load<'_> {
    /// wrk with one thread; `--latency` makes it print percentiles.
    pub fn command(&self, wrk: &Path) -> Command {
        let mut command = Command::new(wrk);
        command.arg("-t1").arg(format!("-c{}", self.connections)).arg(format!("-d{}s", self.seconds)).arg("--latency");
        for header in self.headers {
            command.arg("-H").arg(header);
        }
        if let Some(script) = self.script {
            command.arg("-s").arg(script);
        }
        command.arg(self.url);
        command
    }
}

/// What wrk measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Completed within the time.
    pub requests: u64,
    pub seconds: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Answers outside 200-399.
    pub bad_status: u64,
    /// Connections that could not be made, reads and writes that failed, answers that came too late.
    pub socket_errors: [u64; 4],
}

impl Report {
    /// Refuses a report of a load that did not go well: its figures would flatter a proxy that fails fast.
    pub fn accepted(&self) -> Result<Tally> {
        let failed = self.bad_status + self.socket_errors.iter().sum::<u64>();
        if self.requests == 0 || failed * 1000 > self.requests {
            let [connect, read, write, timeout] = self.socket_errors;
            return Err(Error::FailedLoad {
                detail: format!(
                    "{} requests, {} bad statuses, errors: connect {connect}, read {read}, write {write}, timeout {timeout}",
                    self.requests, self.bad_status
                ),
            });
        }
        Ok(Tally { requests: self.requests, seconds: self.seconds, p50_ms: self.p50_ms, p99_ms: self.p99_ms })
    }
}

/// Reads what wrk printed.
pub fn read(output: &str) -> Result<Report> {
    parse(output).ok_or_else(|| Error::Unreadable { tool: "wrk", output: output.to_owned() })
}

fn parse(output: &str) -> Option<Report> {
    let lines = || output.lines().map(str::trim);
    let after = |prefix: &str| lines().find_map(|line| line.strip_prefix(prefix).map(str::trim));
    let (requests, seconds) = lines().find_map(|line| {
        let (requests, rest) = line.split_once(" requests in ")?;
        Some((requests.parse().ok()?, duration_ms(rest.split(',').next()?)? / 1e3))
    })?;
    let socket_errors = match after("Socket errors:") {
        None => [0; 4],
        Some(text) => {
            let mut counts = text.split(',').map(|part| part.split_whitespace().last()?.parse().ok());
            [counts.next()??, counts.next()??, counts.next()??, counts.next()??]
        }
    };
    Some(Report {
        requests,
        seconds,
        p50_ms: duration_ms(after("50%")?)?,
        p99_ms: duration_ms(after("99%")?)?,
        bad_status: after("Non-2xx or 3xx responses:").map_or(Some(0), |text| text.parse().ok())?,
        socket_errors,
    })
}

/// wrk prints `12.00us`, `1.20ms`, `1.00s`, `1.02m`, `1.00h`.
fn duration_ms(text: &str) -> Option<f64> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let value: f64 = text[..split].parse().ok()?;
    let factor = match &text[split..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        "h" => 3600e3,
        _ => return None,
    };
    Some(value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Running 2s test @ http://127.0.0.1:18080/4k
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.04ms    1.30ms  20.15ms   92.11%
    Req/Sec    80.01k     4.15k   86.44k    75.00%
  Latency Distribution
     50%  732.00us
     75%    0.95ms
     90%    1.80ms
     99%    6.70ms
  159234 requests in 2.00s, 640.11MB read
Requests/sec:  79600.25
Transfer/sec:    320.01MB
";

    #[test]
    fn a_good_report_is_read_in_full() {
        let report = parse(GOOD).unwrap();
        assert_eq!(
            report,
            Report {
                requests: 159_234,
                seconds: 2.0,
                p50_ms: 0.732,
                p99_ms: 6.7,
                bad_status: 0,
                socket_errors: [0; 4],
            }
        );
        assert!(report.accepted().is_ok());
    }

    #[test]
    fn failures_are_counted_and_refuse_the_report() {
        let text = GOOD.replace(
            "Requests/sec",
            "  Socket errors: connect 1, read 22, write 0, timeout 3\n  Non-2xx or 3xx responses: 159200\nRequests/sec",
        );
        let report = parse(&text).unwrap();
        assert_eq!(report.socket_errors, [1, 22, 0, 3]);
        assert_eq!(report.bad_status, 159_200);
        assert!(matches!(report.accepted(), Err(Error::FailedLoad { .. })));
    }

    #[test]
    fn no_request_is_a_failed_load() {
        let text = GOOD.replace("159234 requests", "0 requests");
        assert!(parse(&text).unwrap().accepted().is_err());
    }

    #[test]
    fn each_unit_of_time_is_known() {
        assert_eq!(duration_ms("1.50s"), Some(1500.0));
        assert_eq!(duration_ms("2.00m"), Some(120_000.0));
        assert_eq!(duration_ms("250.00us"), Some(0.25));
        assert_eq!(duration_ms("3 parsecs"), None);
    }

    #[test]
    fn other_text_is_not_a_report() {
        assert_eq!(parse("unable to connect to 127.0.0.1:1 Connection refused"), None);
    }
}
