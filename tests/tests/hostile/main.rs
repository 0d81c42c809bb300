//! Messages that try to be read in two ways. Each must be refused with the
//! right status, or forwarded as exactly one request with exactly the expected
//! content; a second request seen by the origin, or a canary, fails.
//!
//! The config is the one an operator writes first: nothing is hardened in it.

mod requests;
mod responses;
mod verdict;

use postrider_tests::kit::{Config, Origin, Proxy, RawClient, WireError};
use postrider_tests::{envoy, get};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use verdict::{Case, Verdict, describe, sorted};

#[test]
fn ambiguous_framing_is_refused_or_read_once() {
    judge(requests::framing());
}

#[test]
fn chunks_follow_the_grammar_or_are_refused() {
    judge(requests::chunks());
}

#[test]
fn request_lines_follow_the_grammar_or_are_refused() {
    judge(requests::start_line());
}

#[test]
fn field_lines_follow_the_grammar_or_are_refused() {
    judge(requests::fields());
}

#[test]
fn a_request_has_exactly_one_well_formed_authority() {
    judge(requests::authority());
}

#[test]
fn paths_reach_the_origin_normalised_or_not_at_all() {
    judge(requests::paths());
}

#[test]
fn hop_by_hop_fields_stay_on_their_hop() {
    judge(requests::hops());
}

#[test]
fn hostile_answers_are_refused_or_read_once() {
    responses::judge();
}

#[test]
fn bytes_pushed_on_an_idle_upstream_connection_answer_nobody() {
    responses::unsolicited();
}

#[test]
fn the_request_corpus_is_large_enough_to_mean_something() {
    let count = [
        requests::framing(),
        requests::chunks(),
        requests::start_line(),
        requests::fields(),
        requests::authority(),
        requests::paths(),
        requests::hops(),
    ]
    .iter()
    .map(Vec::len)
    .sum::<usize>();
    assert!(count >= 200, "{count}");
}

/// The config that an operator writes first. Only the wait before a refused
/// connection is closed is short, since every refusal is followed to its end.
fn config(origin: &Origin) -> Config {
    Config::proxy_to(origin.address).overlay_filter("http", json!({"delayed_close_timeout": "0.1s"}))
}

fn judge(cases: Vec<Case>) {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&config(&origin));
    let address = proxy.address("http");
    let mut failures = Vec::new();
    for case in &cases {
        origin.forget();
        let verdict = match (&case.envoy, envoy()) {
            (Some(lenient), true) => lenient,
            _ => &case.verdict,
        };
        let observed = send(address, case, matches!(verdict, Verdict::Open));
        // Whatever the proxy was going to send for this case has left it
        // before a later request on a fresh connection comes back.
        RawClient::once(address, get("/fence")).expect("the proxy still serves");
        if let Err(why) = assess(verdict, case.closing, &observed, &origin) {
            let seen: Vec<_> = origin.requests().iter().map(describe).collect();
            failures.push(format!("{}: {why}\n    observed {observed:?}, origin saw {seen:?}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// What the client saw.
#[derive(Debug)]
struct Observed {
    /// The answer's status, or how reading ended instead.
    status: Result<u16, WireError>,
    /// After a refusal: whether the connection ended without another answer.
    /// After an answer: whether a next request on it got its own answer.
    clean_end: bool,
}

fn send(address: SocketAddr, case: &Case, hasty: bool) -> Observed {
    let mut client = RawClient::connect(address);
    // An open verdict may leave the proxy waiting for more.
    client.set_timeout(if hasty { Duration::from_millis(200) } else { Duration::from_secs(8) });
    client.send(&case.raw);
    if case.closing {
        client.half_close();
    }
    let method = if case.raw.starts_with(b"CONNECT") { "CONNECT" } else { "POST" };
    let status = client
        .response(method)
        .map(|response| (response.status, response.header("connection").eq_ignore_ascii_case("close")));
    match status {
        Ok((200, false)) if !hasty => {
            client.send(get("/after"));
            let next = client.response("GET");
            let paired = next.is_ok_and(|r| r.text().starts_with("GET /after "));
            Observed { status: Ok(200), clean_end: paired && client.leftover().is_empty() }
        }
        // What was understood and is not wanted need not cost the connection.
        Ok((status @ (403..=405), false)) if !hasty => {
            client.send(get("/after"));
            let clean_end = match client.response("GET") {
                Ok(next) => next.text().starts_with("GET /after ") && client.leftover().is_empty(),
                Err(error) => matches!(error, WireError::Eof(_) | WireError::Reset),
            };
            Observed { status: Ok(status), clean_end }
        }
        Ok((status, _)) if !hasty => Observed { status: Ok(status), clean_end: client.closed() },
        Ok((status, _)) => Observed { status: Ok(status), clean_end: true },
        Err(error) => Observed { status: Err(error), clean_end: true },
    }
}

fn assess(verdict: &Verdict, closing: bool, observed: &Observed, origin: &Origin) -> Result<(), String> {
    let requests: Vec<_> = origin
        .requests()
        .iter()
        .filter(|request| request.target != "/fence" && request.target != "/after")
        .map(describe)
        .collect();
    if requests.iter().any(|request| request.starts_with("GET /canary")) {
        // Envoy takes a look-alike or bare line ends for what they are not, so
        // there the canary is a request by its reading.
        return match verdict {
            Verdict::Open => Ok(()),
            _ => Err("a canary reached the origin".into()),
        };
    }
    if matches!(verdict, Verdict::Open) {
        return Ok(());
    }
    if !origin.malformed().is_empty() {
        return Err(format!("malformed at the origin: {:?}", origin.malformed()));
    }
    let refused = |statuses: &[u16]| match &observed.status {
        Ok(status) if !statuses.contains(status) => Err(format!("status {status}, not {statuses:?}")),
        // A head without an end may also be dropped with its connection.
        Err(WireError::Eof(rest)) if rest.is_empty() && closing && requests.is_empty() => Ok(()),
        Err(error) => Err(format!("{error:?} instead of {statuses:?}")),
        Ok(_) if !requests.is_empty() => Err("refused, yet forwarded".into()),
        Ok(_) if !observed.clean_end => Err("the connection did not end after the refusal".into()),
        Ok(_) => Ok(()),
    };
    let forwarded = |expected: &str| {
        let expected = sorted(expected);
        match requests.as_slice() {
            [one] if *one != expected => Err(format!("the origin saw {one:?}, not {expected:?}")),
            [_] if observed.status != Ok(200) => Err(format!("forwarded, but answered {:?}", observed.status)),
            [_] if !observed.clean_end => Err("the next request was not answered in step".into()),
            [_] => Ok(()),
            other => Err(format!("{} requests at the origin", other.len())),
        }
    };
    match verdict {
        Verdict::Reject(statuses) => refused(statuses),
        Verdict::Forward(expected) => forwarded(expected),
        Verdict::Either(statuses, expected) => match observed.status {
            Ok(200) => forwarded(expected),
            _ => refused(statuses),
        },
        Verdict::Open => Ok(()),
    }
}
