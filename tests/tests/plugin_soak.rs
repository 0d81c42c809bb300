//! Plugins that come and go for half an hour: what they took is given back.
//!
//! `make soak` runs it for as long as `SOAK_SECONDS` says.

use std::time::{Duration, Instant};

use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, TempDir, wait_until};
use postrider_tests::load::Load;
use postrider_tests::plugins::{config, everything, manifest, typed};
use postrider_tests::postrider_only;
use serde_json::json;

/// Updates over the whole time, and not more than one a second.
const UPDATES: u64 = 1_000;

/// How long without an order from outside.
const SECONDS: u64 = 30 * 60;

/// In the first of so many parts the process may still grow: workers meet their machines, allocators their sizes.
const WARM_UP: usize = 5;

/// What the process may have grown by between the two halves of the rest.
const MAX_GROWTH: f64 = 0.02;

const POST: &str = "POST / HTTP/1.1\r\nhost: test\r\nx-key: value\r\ncontent-length: 11\r\n\r\nhello world";

/// A Rider plugin that uses what plugins use, with a table of its own that is full at once.
fn rider(version: u32) -> String {
    format!(
        r#"
require("rider.v2")
local json, sha2 = require("cjson"), require("sha2")
local hits = envoy.define_metric(0, "hits")
local table_of_its_own = {{}}
for i = 1, 5000 do table_of_its_own[i] = "{version}:" .. i end
local plugin = {{ version = "v2" }}
function plugin.on_request_header()
  local shared = envoy.stream.shared
  shared.digest = sha2.sha256(envoy.req.get_header("x-key") or "")
  shared.json = json.encode(envoy.req.get_headers())
  for i = 1, 20 do envoy.req.set_header("x-" .. i, table_of_its_own[i]) end
  envoy.increment_metric(hits, 1)
end
function plugin.on_request_body() envoy.stream.shared.body = envoy.req.get_body() end
function plugin.on_response_header()
  local shared = envoy.stream.shared
  if json.decode(shared.json)["x-key"] ~= "value" then error("lost") end
  envoy.resp.set_header("x-version", "{version}." .. #shared.body .. "." .. #shared.digest)
end
return plugin
"#
    )
}

/// One of Envoy's dialect, which waits for the body and keeps what it saw.
fn script(version: u32) -> String {
    format!(
        r#"
local seen = {{}}
for i = 1, 5000 do seen[i] = "{version}/" .. i end
function envoy_on_request(handle)
  local body = handle:body()
  handle:streamInfo():dynamicMetadata():set("soak", "body", body:getBytes(0, body:length()))
  for name, value in pairs(handle:headers()) do seen[name] = value end
end
function envoy_on_response(handle)
  local body = handle:streamInfo():dynamicMetadata():get("soak").body
  handle:headers():replace("x-script", "{version}." .. #body)
end
"#
    )
}

#[expect(clippy::disallowed_methods, reason = "the time between two updates is what is asked for")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
#[ignore = "half an hour: make soak"]
fn plugin_updates_for_half_an_hour_leave_the_process_as_large_as_it_was() {
    if !postrider_only() {
        return;
    }
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let whole = Duration::from_secs(seconds);
    let updates = u32::try_from(UPDATES.min(seconds)).unwrap();
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let directory = TempDir::new();
    let (plugin, filter) = (directory.write("plugin.lua", rider(0)), directory.write("filter.lua", script(0)));
    let filters = [
        manifest("soak", json!({"code": {"filename": plugin.to_str().unwrap()}})),
        typed(
            "envoy.filters.http.lua",
            "envoy.extensions.filters.http.lua.v3.Lua",
            json!({"default_source_code": {"filename": filter.to_str().unwrap()}}),
        ),
    ];
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let proxy = Proxy::start_with(&config(&filters, everything(), &origin), launch);
    let load = Load::start(proxy.address("http"), 4, "POST", POST);
    let began = Instant::now();
    let mut sizes: Vec<u64> = Vec::new();
    for update in 1..=updates {
        let due = whole.mul_f64(f64::from(update) / f64::from(updates));
        pause(due.saturating_sub(began.elapsed()));
        let header = match update % 2 {
            0 => {
                directory.write("plugin.lua", rider(update));
                "x-version"
            }
            _ => {
                directory.write("filter.lua", script(update));
                "x-script"
            }
        };
        wait_until("the new one serves", || {
            proxy.exchange(POST).header(header).split('.').next() == Some(update.to_string().as_str())
        });
        sizes.push(proxy.resident_kib());
        // What it remembers of every request would fill the machine's memory in half an hour.
        origin.forget();
        if update % (updates / 20).max(1) == 0 {
            println!("{:5.0} s, {update} updates: {} KiB", began.elapsed().as_secs_f64(), proxy.resident_kib());
        }
    }
    let failures = load.finish();
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
    let rest = &sizes[sizes.len() / WARM_UP..];
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    };
    let (first, second) = rest.split_at(rest.len() / 2);
    let (first, second) = (median(first), median(second));
    let growth = second as f64 / first as f64 - 1.0;
    println!("medians of {first} and {second} KiB: {:+.2}%", growth * 100.0);
    assert!(growth < MAX_GROWTH, "it grew from {first} to {second} KiB");
}
