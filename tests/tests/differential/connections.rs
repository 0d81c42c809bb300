//! Filters of connections: whom they let in, what they say, and what the listener's log and the counters tell of it.

use crate::commands;
use crate::seen::{self, Mask, Seen};
use postrider_tests::kit::config::{extension, file_access_log, overlay, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};

/// A listener, and what clients do there.
struct Way {
    name: &'static str,
    filters: Vec<Value>,
    /// So many clients were served before, and stay.
    before: usize,
    /// The client's words, before it says that these were all.
    says: &'static [u8],
}

fn filter(name: &str, kind: &str, fields: Value) -> Value {
    extension(&format!("envoy.filters.network.{name}"), &format!("filters.network.{name}.v3.{kind}"), fields)
}

fn echo() -> Value {
    filter("echo", "Echo", json!({}))
}

fn saying(fields: Value) -> Value {
    filter("direct_response", "Config", fields)
}

fn with(mut fields: Value, more: Value) -> Value {
    overlay(&mut fields, more);
    fields
}

fn limit(name: &str, more: Value) -> Value {
    filter("connection_limit", "ConnectionLimit", with(json!({"stat_prefix": name, "max_connections": 1}), more))
}

fn rate(name: &str, tokens: u32, more: Value) -> Value {
    let bucket = json!({"max_tokens": tokens, "tokens_per_fill": 1, "fill_interval": "36000s"});
    filter("local_ratelimit", "LocalRateLimit", with(json!({"stat_prefix": name, "token_bucket": bucket}), more))
}

fn rules(action: &str, principal: Value) -> Value {
    json!({"action": action, "policies": {"who": {"permissions": [{"any": true}], "principals": [principal]}}})
}

fn rbac(name: &str, fields: Value) -> Value {
    filter("rbac", "RBAC", with(json!({"stat_prefix": format!("{name}.")}), fields))
}

fn from(network: &str) -> Value {
    json!({"direct_remote_ip": {"address_prefix": network, "prefix_len": 8}})
}

fn ways() -> Vec<Way> {
    let way = |name, filters, before, says| Way { name, filters, before, says };
    let to_a = || tcp_filter(json!({"cluster": "a", "stat_prefix": "to-a"}));
    let off = || json!({"runtime_enabled": {"default_value": false, "runtime_key": "none"}});
    vec![
        way("echo", vec![echo()], 0, b"some words"),
        way("echo-nothing", vec![echo()], 0, b""),
        way("said", vec![saying(json!({"response": {"inline_string": "go away"}}))], 0, b""),
        way("said-to-words", vec![saying(json!({"response": {"inline_bytes": "AAEC"}}))], 0, b"words"),
        way("said-nothing", vec![saying(json!({}))], 0, b""),
        way("few", vec![limit("few", json!({})), echo()], 0, b"words"),
        way("too-many", vec![limit("too-many", json!({})), echo()], 1, b"words"),
        way("too-many-tcp", vec![limit("too-many-tcp", json!({})), to_a()], 1, b"words"),
        way("too-many-late", vec![limit("too-many-late", json!({"delay": "0.1s"})), echo()], 1, b"words"),
        way("two", vec![limit("two", json!({"max_connections": 2})), echo()], 1, b"words"),
        way("limit-off", vec![limit("limit-off", off()), echo()], 2, b"words"),
        way("seldom", vec![rate("seldom", 1, json!({})), echo()], 0, b"words"),
        way("too-often", vec![rate("too-often", 1, json!({})), echo()], 1, b"words"),
        way("too-often-tcp", vec![rate("too-often-tcp", 2, json!({})), to_a()], 2, b"words"),
        way("rate-off", vec![rate("rate-off", 1, off()), echo()], 2, b"words"),
        way("allowed", vec![rbac("allowed", json!({"rules": rules("ALLOW", from("127.0.0.0"))})), echo()], 0, b"words"),
        way(
            "not-allowed",
            vec![rbac("not-allowed", json!({"rules": rules("ALLOW", from("10.0.0.0"))})), echo()],
            0,
            b"words",
        ),
        way("denied", vec![rbac("denied", json!({"rules": rules("DENY", from("127.0.0.0"))})), to_a()], 0, b"words"),
        way(
            "not-denied",
            vec![rbac("not-denied", json!({"rules": rules("DENY", from("10.0.0.0"))})), to_a()],
            0,
            b"words",
        ),
        way("logged", vec![rbac("logged", json!({"rules": rules("LOG", from("127.0.0.0"))})), echo()], 0, b"words"),
        way(
            "shadow-denied",
            vec![rbac("shadow-denied", json!({"shadow_rules": rules("DENY", from("127.0.0.0"))})), echo()],
            0,
            b"words",
        ),
        way(
            "shadow-named",
            vec![
                rbac(
                    "shadow-named",
                    json!({
                        "rules": rules("ALLOW", json!({"any": true})),
                        "shadow_rules": rules("ALLOW", from("10.0.0.0")), "shadow_rules_stat_prefix": "later.",
                    }),
                ),
                echo(),
            ],
            0,
            b"words",
        ),
        way("no-rules", vec![rbac("no-rules", json!({})), echo()], 0, b"words"),
        way("rbac-off", vec![rbac("rbac-off", json!({"rules": {"action": "ALLOW"}})), echo()], 0, b"words"),
        way(
            "both",
            vec![
                limit("both", json!({"max_connections": 5})),
                rate("both", 5, json!({})),
                rbac("both", json!({"rules": rules("ALLOW", json!({"any": true}))})),
                to_a(),
            ],
            1,
            b"words",
        ),
    ]
}

/// What can be seen of each way, in order.
fn play(launch: Launch) -> Vec<Seen> {
    let origin = Origin::tcp_echo("");
    let folder = TempDir::new();
    let log = folder.path().join("log");
    let mut format = commands::all();
    overlay(
        &mut format,
        json!({
            "client": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%", "flags": "%RESPONSE_FLAGS%",
            "details": "%RESPONSE_CODE_DETAILS%", "ended": "%CONNECTION_TERMINATION_DETAILS%",
            "noted": "%DYNAMIC_METADATA(envoy.filters.network.rbac)%",
        }),
    );
    let kind = "formatter.req_without_query.v3.ReqWithoutQuery";
    let formatters = [extension("envoy.formatter.req_without_query", kind, json!({}))];
    let logger = file_access_log(&log, json!({"log_format": {"json_format": format, "formatters": formatters}}));
    let mut config = Config::new().cluster("a", &[origin.address]);
    for way in ways() {
        let chain = json!({"name": "chain", "filters": way.filters});
        config = config.listener(way.name, json!({"filter_chains": [chain], "access_log": [logger]}));
    }
    let proxy = Proxy::start_with(&config, launch.with_arguments(&["--file-flush-interval-msec", "1"]));
    let mut all = Vec::new();
    for way in ways() {
        // A client may have the port of an earlier one.
        let written = std::fs::metadata(&log).map_or(0, |file| file.len());
        let address = proxy.address(way.name);
        let earlier: Vec<RawClient> = (0..way.before)
            .map(|_| {
                let mut client = RawClient::connect(address);
                client.send("early");
                assert_eq!(client.read_exact(5).expect("its own words"), b"early", "{}", way.name);
                client
            })
            .collect();
        let mut client = RawClient::connect(address);
        let name = client.local_addr().to_string();
        let _ = client.try_send(way.says);
        // A client that ends its side before it heard everything may hear nothing more.
        let heard = client.read_exact(way.says.len()).unwrap_or_else(|_| client.leftover().to_vec());
        let _ = client.stream().shutdown(std::net::Shutdown::Write);
        // A close with bytes that nobody read is a reset.
        let rest = client.read_to_end().unwrap_or_default();
        let mut seen = vec![format!("answer: {}", [heard, rest].concat().escape_ascii())];
        drop((client, earlier));
        let mut line = None;
        wait_until(&format!("the line of {}", way.name), || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let text = text.get(usize::try_from(written).expect("a short log")..).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            line = whole.lines().find(|line| line.contains(&format!("\"{name}\""))).map(str::to_owned);
            line.is_some()
        });
        let masks = [(origin.address, "<a>"), (address, "<listener>")];
        let mut masks: Vec<(String, String)> =
            masks.iter().map(|(address, name)| (address.to_string(), (*name).to_owned())).collect();
        masks.push((name, "<client>".to_owned()));
        let line: Value = serde_json::from_str(&line.unwrap_or_default()).expect("a line of JSON");
        seen::note_log(&mut seen, &Mask(masks), &line);
        let own = [
            format!("connection_limit.{}.", way.name),
            format!("local_rate_limit.{}.", way.name),
            format!("{}.rbac.", way.name),
        ];
        // Whoever was served is gone when nothing is counted as there any more.
        let is_of_listener =
            |name: &str| name.starts_with("listener.127.0.0.1_") && name.ends_with(".downstream_cx_active");
        // In Envoy, a limit that is off counts connections and forgets them.
        let counts_down = |name: &str| !name.contains("limit-off");
        wait_until("no connection is left", || {
            let stats = proxy.stats();
            let active = stats
                .0
                .iter()
                .filter(|(name, _)| is_of_listener(name) || name.ends_with(".active_connections") && counts_down(name));
            active.map(|(_, value)| value.parse::<u64>().unwrap_or(0)).sum::<u64>() == 0
        });
        for (name, value) in &proxy.stats().0 {
            if own.iter().any(|own| name.starts_with(own.as_str())) && value != "0" {
                seen.push(format!("counted {name}: {value}"));
            }
        }
        all.push(seen);
    }
    all
}

/// What stands in `docs/envoy-differences.md`.
fn is_known(way: &str, line: &str) -> bool {
    // In the log of a listener Envoy counts such bytes for a TCP proxy only.
    let wire = line.starts_with("log DOWNSTREAM_WIRE_BYTES_");
    let refused = way.starts_with("too-") || matches!(way, "denied" | "not-allowed" | "rbac-off");
    // Postrider turns a connection away before it reads of it, or asks anything of a cluster.
    let unread = line.starts_with("log BYTES_RECEIVED");
    let unasked = line.contains("UPSTREAM_") || line.contains("US_CX_") || line.contains("STREAM_ID");
    let gauge = way == "limit-off" && line.contains("active_connections");
    wire || gauge || refused && (unread || unasked) || way == "said-to-words" && unread
}

#[test]
fn connections_are_filtered_as_in_envoy() {
    let theirs = play(Launch::envoy().expect("Envoy 1.40 to compare with"));
    let ours = play(Launch { binary: Some(postrider_tests::kit::proxy::binary().to_owned()), ..Launch::default() });
    let mut report = String::new();
    for ((way, theirs), ours) in ways().iter().zip(&theirs).zip(&ours) {
        let mut difference = seen::compare(theirs, ours);
        for side in [&mut difference.envoy, &mut difference.postrider] {
            side.retain(|line| !is_known(way.name, line));
        }
        if !difference.is_empty() {
            report += &format!("\n{}:\n{difference}", way.name);
        }
    }
    assert!(report.is_empty(), "{report}");
}
