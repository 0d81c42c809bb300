//! Native modules below HTTP: filters of connections and of listeners, and access loggers, the same shared objects in both. What
//! a client hears, what an origin gets, the lines of the log and of the module's own, and what the module counts.

use std::path::Path;

use postrider_tests::kit::config::{extension, file_access_log, http_filter, tcp_filter};
use postrider_tests::kit::proxy::{Launch, binary};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Stats, TempDir, wait_until};
use postrider_tests::modules::{connections, listeners, logger};
use serde_json::{Value, json};

use crate::seen::{self, Mask, Seen};

/// A listener with modules, and what a client does there.
struct Way {
    name: &'static str,
    /// Filters of the listener and of the connection: module, name, configuration.
    listener: &'static [(Module, &'static str, &'static str)],
    connection: &'static [(Module, &'static str, &'static str)],
    /// Requests are served there; else bytes go to the origin and come back.
    http: bool,
    does: &'static [Does],
}

#[derive(Clone, Copy)]
enum Module {
    Connections,
    Listeners,
}

/// What a client says, and how much it waits to hear of that.
enum Does {
    /// A line comes back.
    Asks(&'static str),
    /// So many bytes come back.
    Says(&'static str, usize),
    /// The last word and that it is the last, in one segment, and hears the rest.
    EndsWith(&'static str),
    /// Nothing more, and hears the rest.
    Ends,
    /// Hears the rest while its own side stays open.
    Listens,
}

fn ways() -> Vec<Way> {
    use Does::{Asks, Ends, EndsWith, Listens, Says};
    use Module::{Connections, Listeners};
    const SCRIPT: &[(Module, &str, &str)] = &[(Connections, "script", "")];
    const LISTENS: &[(Module, &str, &str)] = &[(Listeners, "script", "")];
    const NONE: &[(Module, &str, &str)] = &[];
    let way = |name, listener, connection, does| Way { name, listener, connection, http: false, does };
    let mut ways = vec![
        way("loud", NONE, &[(Connections, "loud", "")], &[Says("hello", 7), Says("again", 7), Ends]),
        way(
            "eights",
            NONE,
            &[(Connections, "eights", "")],
            &[Says("12345678", 8), Says("123456789", 9), EndsWith("1")],
        ),
        way("two", NONE, &[(Connections, "loud", ""), (Connections, "eights", "")], &[Says("12345678", 10), Ends]),
        way("said", NONE, SCRIPT, &[Asks("!say word"), Says("plain", 5), Asks("!SAY more words"), Ends]),
        way("noted", NONE, SCRIPT, &[Asks("!note"), Says("plain", 5), Asks("!note"), Ends]),
        way("injected", NONE, SCRIPT, &[Asks("!back one"), Asks("!forth two"), Ends]),
        way("hosts", NONE, SCRIPT, &[Asks("!hosts origin"), Asks("!hosts none"), Asks("!hosts empty"), Ends]),
        way("calls", NONE, SCRIPT, &[Asks("!call none /"), Asks("!call origin none"), Says("x", 1), Ends]),
        way("counts", NONE, SCRIPT, &[Asks("!gauge"), Says("x", 1), Ends]),
        way("reads", NONE, SCRIPT, &[Asks("!reading"), Says("x", 1), Ends]),
        way("closes", NONE, SCRIPT, &[Says("x", 1), Asks("!close 0"), Listens]),
        way("closes-late", NONE, SCRIPT, &[Says("x", 1), Asks("!close 2"), Listens]),
        way("stays", NONE, SCRIPT, &[Says("x", 1), Says("!stay 0\n", 4), Listens]),
        way("because", NONE, SCRIPT, &[Says("x", 1), Says("!because a_reason\n", 0), Listens]),
        way("none", NONE, &[(Connections, "script", "none")], &[Listens]),
        way("accepted", LISTENS, NONE, &[Says("plain words\n", 12), Ends]),
        way("addresses", LISTENS, NONE, &[Says("!addresses\n", 0), Says("x", 1), Ends]),
        way("known", LISTENS, NONE, &[Says("!known\n", 0), Says("x", 1), Ends]),
        way("notes", LISTENS, NONE, &[Says("!notes\n", 0), Says("x", 1), Ends]),
        way("tells", &[(Listeners, "tells", "")], NONE, &[Says("x", 1), Ends]),
        way("kept-out", &[(Listeners, "wait", "none")], NONE, &[Listens]),
        way("both", LISTENS, &[(Connections, "loud", "")], &[Says("!notes\n", 0), Says("x", 3), Ends]),
    ];
    const GET: &str = "GET /a HTTP/1.1\r\nhost: test\r\nx-many: 1\r\nx-many: 2\r\nconnection: close\r\n\r\n";
    let served = |name, connection, does| Way { name, listener: NONE, connection, http: true, does };
    ways.push(served("requests", NONE, &[Says(GET, 0), Listens]));
    ways.push(served("loud-requests", SCRIPT, &[Says(GET, 0), Listens]));
    ways.push(served("not-http", NONE, &[Says("nonsense\r\n\r\n", 0), Listens]));
    ways
}

fn filter(of: &(Module, &str, &str)) -> Value {
    let (module, name, config) = of;
    let (object, kind) = match module {
        Module::Connections => (connections(), "network.dynamic_modules.v3.DynamicModuleNetworkFilter"),
        Module::Listeners => (listeners(), "listener.dynamic_modules.v3.DynamicModuleListenerFilter"),
    };
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": object}}}, "filter_name": name,
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": config},
    });
    extension("module", &format!("filters.{kind}"), fields)
}

fn lines(path: &Path) -> Value {
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": logger()}}}, "logger_name": "lines",
        "logger_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": path},
    });
    extension("module", "access_loggers.dynamic_modules.v3.DynamicModuleAccessLog", fields)
}

fn log_format() -> Value {
    json!({
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "ended": "%CONNECTION_TERMINATION_DETAILS%",
        "received": "%BYTES_RECEIVED%",
        "sent": "%BYTES_SENT%",
        "host": "%UPSTREAM_HOST%",
        "own": "%DYNAMIC_METADATA(own)%",
        "told": "%DYNAMIC_METADATA(module)%",
        "state": "%FILTER_STATE(own.state:PLAIN)%",
    })
}

/// The last whole line of a file that has more of them than before.
fn fresh(path: &Path, before: usize, what: &str) -> String {
    let mut line = String::new();
    wait_until(what, || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        line = whole.lines().last().unwrap_or_default().to_owned();
        text.matches('\n').count() > before
    });
    line
}

fn count(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().matches('\n').count()
}

fn converse(client: &mut RawClient, does: &[Does], seen: &mut Seen) {
    for does in does {
        let heard = match does {
            Does::Asks(line) => {
                client.send(format!("{line}\n"));
                let mut heard = Vec::new();
                while !heard.ends_with(b"\n") {
                    match client.read_exact(1) {
                        Ok(byte) => heard.extend(byte),
                        Err(_) => break,
                    }
                }
                heard
            }
            Does::Says(text, count) => {
                let _ = client.try_send(text.as_bytes());
                client.read_exact(*count).map(|heard| heard.to_vec()).unwrap_or_default()
            }
            // Envoy counts a byte once more that a module kept before the end came.
            Does::EndsWith(text) => {
                client.send_and_half_close(text);
                client.read_to_end().unwrap_or_default()
            }
            Does::Ends => {
                client.half_close();
                client.read_to_end().unwrap_or_default()
            }
            Does::Listens => client.read_to_end().unwrap_or_default(),
        };
        if heard.starts_with(b"HTTP/") {
            // Fields come in each side's own order.
            let text = String::from_utf8_lossy(&heard).into_owned();
            let own = |line: &&str| !line.starts_with("date:") && !line.starts_with("x-envoy-upstream-service-time:");
            seen.extend(text.lines().filter(own).map(|line| format!("heard: {line}")));
            continue;
        }
        seen.push(format!("heard: {}", heard.escape_ascii()));
    }
}

/// What can be seen of each way, in order.
fn play(launch: Launch) -> Vec<Seen> {
    let (echo, served) = (Origin::tcp_echo(""), Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let folder = TempDir::new();
    let (log, own) = (folder.path().join("log"), folder.path().join("own"));
    let logger = file_access_log(&log, json!({"log_format": {"json_format": log_format()}}));
    let mut config =
        Config::new().cluster("origin", &[echo.address]).cluster("served", &[served.address]).cluster("empty", &[]);
    for way in ways() {
        let logs = json!([logger, lines(&own)]);
        let last = match way.http {
            true => http_filter(json!({
                "stat_prefix": way.name, "access_log": logs, "http_filters": [postrider_tests::kit::config::router()],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "name": "named", "route": {"cluster": "served"}},
                ]}]},
            })),
            false => tcp_filter(json!({"stat_prefix": way.name, "cluster": "origin", "access_log": logs})),
        };
        let filters: Vec<Value> = way.connection.iter().map(filter).chain([last]).collect();
        let of_listener: Vec<Value> = way.listener.iter().map(filter).collect();
        let fields = json!({"filter_chains": [{"filters": filters}], "listener_filters": of_listener,
            "per_connection_buffer_limit_bytes": 100_000});
        config = config.listener(way.name, fields);
    }
    let proxy = Proxy::start_with(&config, launch.with_arguments(&["--file-flush-interval-msec", "1"]));
    // What configurations schedule for themselves comes behind the start.
    let mut last = Vec::new();
    wait_until("the configurations' own events", || {
        let own = proxy.stats().0.into_iter().filter(|(name, _)| name.ends_with("dynamicmodulescustom.scheduled"));
        let now: Vec<_> = own.collect();
        let settled = now == last && now.iter().any(|(_, count)| count != "0");
        last = now;
        settled
    });
    let mut all = Vec::new();
    for way in ways() {
        let (before, lines) = (proxy.stats(), (count(&log), count(&own)));
        let carried = echo.connection_count();
        let mut client = RawClient::connect(proxy.address(way.name));
        let name = client.local_addr().to_string();
        let mut seen = Seen::new();
        converse(&mut client, way.does, &mut seen);
        drop(client);
        let masks = [
            (echo.address.to_string(), "<origin>".to_owned()),
            (served.address.to_string(), "<served>".to_owned()),
            (proxy.address(way.name).to_string(), "<listener>".to_owned()),
            (name, "<client>".to_owned()),
        ];
        // One that never came to a filter chain is logged nowhere.
        if !matches!(way.name, "kept-out") {
            let line: Value = serde_json::from_str(&fresh(&log, lines.0, way.name)).expect("a line of JSON");
            seen::note_log(&mut seen, &Mask(masks.to_vec()), &line);
            let told = fresh(&own, lines.1, way.name);
            // Bytes of heads are each side's own.
            let told: Vec<&str> = told.split(' ').filter(|part| !part.starts_with("wire=")).collect();
            seen.push(format!("told: {}", told.join(" ")));
        }
        if !way.http && echo.connection_count() > carried {
            seen.push(format!("the origin got: {}", echo.bytes(carried).escape_ascii()));
        }
        note_counts(&mut seen, way.name, &before, &proxy);
        all.push(seen);
    }
    all
}

/// What the modules counted.
fn note_counts(seen: &mut Seen, name: &str, before: &Stats, proxy: &Proxy) {
    let wanted = |name: &str| name.contains("dynamicmodulescustom.") && !name.contains(".sizes");
    let moved = |after: &Stats| {
        let numbers = after.0.iter().filter(|(name, _)| wanted(name));
        let moved = numbers.filter_map(|(name, value)| {
            let by = value.parse::<i64>().ok()? - i64::try_from(before.value(name)).ok()?;
            let name = name.rsplit_once("dynamicmodulescustom.").map_or(name.as_str(), |(_, name)| name);
            (by != 0).then(|| format!("counted {name}: {by}"))
        });
        moved.collect::<Vec<_>>()
    };
    // Ends are counted behind what the client sees.
    let mut last = moved(&proxy.stats());
    if !matches!(name, "requests" | "not-http" | "none") {
        wait_until(&format!("the counts of {name}"), || {
            let now = moved(&proxy.stats());
            let same = now == last;
            last = now;
            same
        });
    }
    for line in last {
        seen.push(line);
    }
}

#[test]
fn connections_listeners_and_loggers_of_modules_are_as_in_envoy() {
    let theirs = play(Launch::envoy().expect("Envoy 1.40 to compare with"));
    let ours = play(Launch { binary: Some(binary().to_owned()), ..Launch::default() });
    let mut report = String::new();
    for ((way, theirs), ours) in ways().iter().zip(&theirs).zip(&ours) {
        let difference = seen::compare(theirs, ours);
        if !difference.is_empty() {
            report += &format!("\n{}:\n{difference}", way.name);
        }
    }
    assert!(report.is_empty(), "{report}");
}
