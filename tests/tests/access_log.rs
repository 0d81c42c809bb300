//! Access logs: Envoy's default line byte for byte, custom text, JSON, flags.

use postrider_tests::get;
use postrider_tests::kit::config::{self, Config, http_filter, tcp_filter};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, net, wait_until};
use serde_json::{Value, json};
use std::path::Path;

const FAST: &[&str] = &["--file-flush-interval-msec", "20"];

fn read_lines(path: &Path, count: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    wait_until(&format!("{count} lines in {}", path.display()), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.len() >= count && text.ends_with('\n')
    });
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

/// Starts with one file log in `format`, lets `drive` send requests, and
/// returns the `count` lines that they made.
fn logged(config: Config, format: Value, launch: Launch, count: usize, drive: impl Fn(&Proxy)) -> Vec<String> {
    let directory = TempDir::new();
    let path = directory.path().join("access.log");
    let config = config.overlay_filter("http", json!({"access_log": [config::file_access_log(&path, format)]}));
    let proxy = Proxy::start_with(&config, launch.with_arguments(FAST));
    drive(&proxy);
    read_lines(&path, count)
}

/// Replaces what differs between runs: the start time, the duration and the
/// upstream's time, all of the default line, after checking their shape.
fn normalise(line: &str, origin: &Origin) -> String {
    let (time, rest) = line.strip_prefix('[').and_then(|l| l.split_once("] ")).expect("[time]");
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "9999-99-99T99:99:99.999Z", "{line}");
    let (request, rest) = rest.rsplit_once("\" ").map_or((rest, ""), |_| {
        let end = rest[1..].find("\" ").expect("end of the request") + 2;
        rest.split_at(end)
    });
    let mut words: Vec<String> = rest.trim_start().splitn(7, ' ').map(str::to_owned).collect();
    for word in &mut words[4..6] {
        if word != "-" {
            assert!(word.bytes().all(|b| b.is_ascii_digit()), "{line}");
            *word = "N".into();
        }
    }
    format!("{request} {}", words.join(" ")).replace(&origin.address.to_string(), "ORIGIN")
}

/// Exchanges with fixed values, one line each.
fn default_line_config(origin: &Origin, dead: std::net::SocketAddr) -> Config {
    Config::routes(json!([
        {"match": {"prefix": "/rewritten"}, "route": {"cluster": "origin", "prefix_rewrite": "/new"}},
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
        {"match": {"prefix": "/redirect"}, "redirect": {"path_redirect": "/x"}},
        {"match": {"prefix": "/dead"}, "route": {"cluster": "dead"}},
        {"match": {"prefix": "/empty"}, "route": {"cluster": "empty"}},
        {"match": {"prefix": "/late"}, "route": {"cluster": "silent", "timeout": "0.1s"}},
        {"match": {"prefix": "/o"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address])
    .cluster("dead", &[dead])
    .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
}

const EXCHANGES: &[(&str, &str)] = &[
    ("GET /o?q=1 HTTP/1.1\r\nhost: test\r\n\r\n", r#""GET /o?q=1 HTTP/1.1" 200 - 0 5 N N "-" "-" "-" "test" "ORIGIN""#),
    (
        "POST /o HTTP/1.1\r\nhost: a.test:81\r\nuser-agent: probe/1 (x)\r\nx-forwarded-for: 1.2.3.4\r\nx-request-id: id-1\r\ncontent-length: 4\r\n\r\nbody",
        r#""POST /o HTTP/1.1" 200 - 4 5 N N "1.2.3.4" "probe/1 (x)" "id-1" "a.test:81" "ORIGIN""#,
    ),
    (
        "GET /rewritten/x HTTP/1.1\r\nhost: test\r\n\r\n",
        r#""GET /rewritten/x HTTP/1.1" 200 - 0 5 N N "-" "-" "-" "test" "ORIGIN""#,
    ),
    ("HEAD /o HTTP/1.1\r\nhost: test\r\n\r\n", r#""HEAD /o HTTP/1.1" 200 - 0 0 N N "-" "-" "-" "test" "ORIGIN""#),
    ("GET /direct HTTP/1.1\r\nhost: test\r\n\r\n", r#""GET /direct HTTP/1.1" 200 - 0 5 N - "-" "-" "-" "test" "-""#),
    (
        "GET /redirect HTTP/1.1\r\nhost: test\r\n\r\n",
        r#""GET /redirect HTTP/1.1" 301 - 0 0 N - "-" "-" "-" "test" "-""#,
    ),
    ("GET /nothing HTTP/1.1\r\nhost: test\r\n\r\n", r#""GET /nothing HTTP/1.1" 404 NR 0 0 N - "-" "-" "-" "test" "-""#),
    ("GET /empty HTTP/1.1\r\nhost: test\r\n\r\n", r#""GET /empty HTTP/1.1" 503 UH 0 19 N - "-" "-" "-" "test" "-""#),
    (
        "GET /o HTTP/1.1\r\nhost: test\r\nuser-agent: a\"b\\c\r\n\r\n",
        r#""GET /o HTTP/1.1" 200 - 0 5 N N "-" "a"b\c" "-" "test" "ORIGIN""#,
    ),
    ("rubbish\r\n\r\n", r#""- - HTTP/1.1" 400 DPE 0 11 N - "-" "-" "-" "-" "-""#),
];

fn drive_default(proxy: &Proxy) {
    for (request, _) in EXCHANGES {
        // One after the other, each on a connection of its own: lines come in order.
        RawClient::once(proxy.address("http"), request).unwrap();
    }
}

fn fixed_origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
            if request.method != "HEAD" {
                connection.write(b"hello");
            }
        }
    })
}

#[test]
fn the_default_line_is_envoys() {
    let origin = fixed_origin();
    let config = default_line_config(&origin, net::refusing_address()).cluster("silent", &[net::refusing_address()]);
    let lines = logged(config, json!({}), Launch::default(), EXCHANGES.len(), drive_default);
    for (line, (request, expected)) in lines.iter().zip(EXCHANGES) {
        assert_eq!(normalise(line, &origin), *expected, "{request:?}");
    }
}

#[test]
fn the_default_line_equals_that_of_envoy_in_the_same_run() {
    let Some(envoy) = Launch::envoy() else {
        eprintln!("envoy is not on PATH: its lines are held by the_default_line_is_envoys alone");
        return;
    };
    let origin = fixed_origin();
    let config = || default_line_config(&origin, net::refusing_address()).cluster("silent", &[net::refusing_address()]);
    let normal = |lines: Vec<String>| -> Vec<String> { lines.iter().map(|line| normalise(line, &origin)).collect() };
    let ours = logged(config(), json!({}), Launch::default(), EXCHANGES.len(), drive_default);
    let theirs = logged(config(), json!({}), envoy, EXCHANGES.len(), drive_default);
    assert_eq!(normal(ours), normal(theirs));
}

const FORMAT: &str = "%REQ(:METHOD)%|%REQ(X-A)%|%REQ(absent)%|%REQ(absent?x-a)%|%REQ(x-a):2%|%RESP(x-b)%|%PROTOCOL%|\
    %RESPONSE_CODE%|%RESPONSE_CODE_DETAILS%|%RESPONSE_FLAGS%|%RESPONSE_FLAGS_LONG%|%BYTES_RECEIVED%|%BYTES_SENT%|%ROUTE_NAME%|\
    %UPSTREAM_CLUSTER%|%UPSTREAM_HOST%|%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%|%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%|\
    %PATH%|%QUERY_PARAM(q)%|100%%|%START_TIME(%Y)%|%REQ(:AUTHORITY)%|%FILTER_CHAIN_NAME%|%VIRTUAL_CLUSTER_NAME%\n";

fn text_format(format: &str) -> Value {
    json!({"log_format": {"text_format_source": {"inline_string": format}}})
}

#[test]
fn custom_text_expands_every_command() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nx-b: answer\r\ncontent-length: 2\r\n\r\nok");
    let config = Config::routes(json!([{"name": "named", "match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .cluster("origin", &[origin.address]);
    let lines = logged(config, text_format(FORMAT), Launch::default(), 1, |proxy| {
        proxy.exchange("POST /p?q=v HTTP/1.1\r\nhost: test\r\nx-a: value\r\ncontent-length: 3\r\n\r\nabc");
    });
    let year = std::process::Command::new("date").args(["-u", "+%Y"]).output().unwrap();
    let year = String::from_utf8(year.stdout).unwrap();
    let expected = format!(
        "POST|value|-|value|va|answer|HTTP/1.1|200|via_upstream|-|-|3|2|named|origin|{}|127.0.0.1|127.0.0.1|/p?q=v|v|100%|{}|test|-|-",
        origin.address,
        year.trim(),
    );
    assert_eq!(lines[0], expected);
}

#[test]
fn json_lines_have_typed_values_and_omit_what_is_empty_on_request() {
    let fields = json!({
        "method": "%REQ(:METHOD)%",
        "code": "%RESPONSE_CODE%",
        "bytes": "%BYTES_SENT%",
        "mixed": "code %RESPONSE_CODE%",
        "absent": "%REQ(absent)%",
        "nested": {"path": "%PATH%", "list": ["%PROTOCOL%", "%REQ(quote)%"]},
        "flags": "%RESPONSE_FLAGS%",
        "constant": "text",
    });
    let origin = fixed_origin();
    for omit in [false, true] {
        let format = json!({"log_format": {"json_format": fields, "omit_empty_values": omit}});
        let lines = logged(Config::proxy_to(origin.address), format, Launch::default(), 1, |proxy| {
            proxy.exchange("GET /p HTTP/1.1\r\nhost: test\r\nquote: say \"hi\" \\ \t\u{e9}\r\n\r\n");
        });
        // Keys sorted, no space, as Envoy writes it.
        let expected = if omit {
            r#"{"bytes":5,"code":200,"constant":"text","flags":"-","method":"GET","mixed":"code 200","nested":{"list":["HTTP/1.1","say \"hi\" \\ \té"],"path":"/p"}}"#
        } else {
            r#"{"absent":null,"bytes":5,"code":200,"constant":"text","flags":"-","method":"GET","mixed":"code 200","nested":{"list":["HTTP/1.1","say \"hi\" \\ \té"],"path":"/p"}}"#
        };
        assert_eq!(lines[0], expected);
        serde_json::from_str::<Value>(&lines[0]).unwrap();
    }
}

#[test]
fn response_flags_and_details_tell_why() {
    let silent = Origin::silent();
    let dropping = Origin::start(|connection| {
        connection.request();
    });
    let rubbish = Origin::fixed("rubbish\r\n\r\n");
    let hole = net::Blackhole::start();
    let config = Config::new()
        .http(json!({"route_config": {"validate_clusters": false, "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/UT"}, "route": {"cluster": "silent", "timeout": "0.1s"}},
            {"match": {"prefix": "/SI"}, "route": {"cluster": "silent", "timeout": "0s", "idle_timeout": "0.1s"}},
            {"match": {"prefix": "/UF"}, "route": {"cluster": "refused"}},
            {"match": {"prefix": "/CT"}, "route": {"cluster": "hole"}},
            {"match": {"prefix": "/UC"}, "route": {"cluster": "dropping"}},
            {"match": {"prefix": "/UPE"}, "route": {"cluster": "rubbish"}},
            {"match": {"prefix": "/UH"}, "route": {"cluster": "empty"}},
            {"match": {"prefix": "/UO"}, "route": {"cluster": "full"}},
            {"match": {"prefix": "/NC"}, "route": {"cluster": "nowhere"}},
            {"match": {"prefix": "/DR"}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/RD"}, "redirect": {"path_redirect": "/"}},
        ]}]}}))
        .cluster("silent", &[silent.address])
        .cluster("refused", &[net::refusing_address()])
        .cluster_with("hole", &[hole.address], json!({"connect_timeout": "0.1s"}))
        .cluster("dropping", &[dropping.address])
        .cluster("rubbish", &[rubbish.address])
        .cluster_with("empty", &[], json!({"load_assignment": {"endpoints": []}}))
        .cluster_with("full", &[silent.address], json!({"circuit_breakers": {"thresholds": [{"max_pending_requests": 0}]}}));
    let table = [
        ("/UT", "504 UT response_timeout"),
        ("/SI", "504 SI stream_idle_timeout"),
        ("/UF", "503 UF upstream_reset_before_response_started{remote_connection_failure"),
        ("/CT", "503 UF upstream_reset_before_response_started{connection_timeout"),
        ("/UC", "503 UC upstream_reset_before_response_started{connection_termination}"),
        ("/UPE", "502 UPE upstream_reset_before_response_started{protocol_error}"),
        ("/UH", "503 UH no_healthy_upstream"),
        ("/UO", "503 UO upstream_reset_before_response_started{overflow}"),
        ("/NC", "503 NC cluster_not_found"),
        ("/DR", "200 - direct_response"),
        ("/RD", "301 - direct_response"),
        ("/NR", "404 NR route_not_found"),
    ];
    let format = text_format("%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%\n");
    let lines = logged(config, format, Launch::default(), table.len(), |proxy| {
        for (path, _) in table {
            proxy.get(path);
        }
    });
    for ((path, expected), line) in table.iter().zip(&lines) {
        assert!(line.starts_with(expected), "{path}: {line}");
    }
}

/// Requests, and what is logged of `content-length`, `server`, `connection`, `transfer-encoding` and `date`.
const WRITTEN: &[(&str, &str)] = &[
    ("GET /o HTTP/1.1\r\nhost: test\r\n\r\n", "5 envoy - - there"),
    ("GET /o HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n", "5 envoy close - there"),
    ("HEAD /o HTTP/1.1\r\nhost: test\r\n\r\n", "5 envoy - - there"),
    ("GET /chunks HTTP/1.1\r\nhost: test\r\n\r\n", "- envoy - - there"),
    ("GET /direct HTTP/1.1\r\nhost: test\r\n\r\n", "5 envoy - - there"),
    ("HEAD /direct HTTP/1.1\r\nhost: test\r\n\r\n", "5 envoy - - there"),
    ("GET /direct HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n", "5 envoy close - there"),
    ("GET /direct HTTP/1.0\r\nhost: test\r\nconnection: keep-alive\r\n\r\n", "5 envoy keep-alive - there"),
    ("GET /redirect HTTP/1.1\r\nhost: test\r\n\r\n", "- envoy - - there"),
    ("GET /nothing HTTP/1.1\r\nhost: test\r\n\r\n", "- envoy - - there"),
    ("GET /dead HTTP/1.1\r\nhost: test\r\n\r\n", "N envoy - - there"),
    ("rubbish\r\n\r\n", "11 envoy close - there"),
];

fn written_fields(launch: Launch) -> Vec<String> {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            connection.write(match (request.method.as_str(), request.target.as_str()) {
                ("HEAD", _) => b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".as_slice(),
                (_, "/chunks") => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\nserver: origin\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello",
            });
        }
    });
    let format =
        "%RESP(CONTENT-LENGTH)% %RESP(x-none?server)% %RESP(connection)% %RESP(transfer-encoding)% %RESP(date):3%\n";
    let config = Config::routes(json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
        {"match": {"prefix": "/redirect"}, "redirect": {"path_redirect": "/x"}},
        {"match": {"prefix": "/dead"}, "route": {"cluster": "dead"}},
        {"match": {"prefix": "/o"}, "route": {"cluster": "origin"}},
        {"match": {"prefix": "/chunks"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address])
    .cluster("dead", &[net::refusing_address()])
    .overlay_filter("http", json!({"http_protocol_options": {"accept_http_10": true}}));
    let lines = logged(config, text_format(format), launch, WRITTEN.len(), |proxy| {
        for (request, _) in WRITTEN {
            RawClient::once(proxy.address("http"), request).unwrap();
        }
    });
    let normal = |line: String| {
        let mut words: Vec<&str> = line.split(' ').collect();
        // Why no connection could be made is told in each proxy's own words.
        if words[0].parse::<u32>().is_ok_and(|length| length > 11) {
            words[0] = "N";
        }
        let day = words.pop().filter(|day| day.len() == 3);
        words.push(day.map_or("-", |_| "there"));
        words.join(" ")
    };
    lines.into_iter().map(normal).collect()
}

#[test]
fn fields_that_the_proxy_gives_an_answer_are_logged() {
    for (line, (request, expected)) in written_fields(Launch::default()).iter().zip(WRITTEN) {
        assert_eq!(line, expected, "{request:?}");
    }
}

#[test]
fn fields_that_the_proxy_gives_an_answer_are_logged_as_by_envoy() {
    let Some(envoy) = Launch::envoy() else {
        eprintln!("envoy is not on PATH: what it logs is held by the test before alone");
        return;
    };
    assert_eq!(written_fields(Launch::default()), written_fields(envoy));
}

#[test]
fn a_client_that_leaves_is_logged_with_dc() {
    let origin = Origin::silent();
    let format = text_format("%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%\n");
    let lines = logged(Config::proxy_to(origin.address), format, Launch::default(), 1, |proxy| {
        let mut client = proxy.client();
        client.send(get("/"));
        origin.wait_connections(1);
        client.reset();
    });
    assert_eq!(lines[0], "0 DC downstream_remote_disconnect");
}

#[test]
fn refused_requests_are_logged_with_their_reason() {
    let origin = fixed_origin();
    let format = text_format("%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%\n");
    let requests = ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nhost: a\r\nx y\r\n\r\n"];
    let lines = logged(Config::proxy_to(origin.address), format, Launch::default(), 2, |proxy| {
        for request in requests {
            RawClient::once(proxy.address("http"), request).unwrap();
        }
    });
    for line in &lines {
        assert!(line.starts_with("400 "), "{line}");
        let details = line.rsplit(' ').next().unwrap();
        assert!(details.len() > 3, "{line}");
    }
}

#[test]
fn tcp_connections_are_logged_when_they_end() {
    let directory = TempDir::new();
    let path = directory.path().join("tcp.log");
    let origin = Origin::tcp_echo("hello");
    let log = config::file_access_log(
        &path,
        text_format(
            "%BYTES_RECEIVED% %BYTES_SENT% %UPSTREAM_CLUSTER% %UPSTREAM_HOST% %RESPONSE_FLAGS% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\n",
        ),
    );
    let config = Config::new()
        .listener(
            "tcp",
            json!({"filter_chains": [{"filters": [tcp_filter(json!({"cluster": "origin", "access_log": [log]}))]}]}),
        )
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(FAST));
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("abc");
    client.read_exact(8).unwrap();
    drop(client);
    let lines = read_lines(&path, 1);
    assert_eq!(lines[0], format!("3 8 origin {} - 127.0.0.1", origin.address));
}

#[test]
fn several_logs_and_standard_output_work_at_once() {
    let directory = TempDir::new();
    let (first, second) = (directory.path().join("1.log"), directory.path().join("2.log"));
    let stdout = config::extension(
        "envoy.access_loggers.stdout",
        "access_loggers.stream.v3.StdoutAccessLog",
        text_format("to-stdout %PATH%\n"),
    );
    let filter = http_filter(json!({
        "access_log": [
            config::file_access_log(&first, text_format("1 %PATH%\n")),
            config::file_access_log(&second, text_format("2 %PATH%\n")),
            stdout,
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
        ]}]},
    }));
    let config = Config::new().listener("http", json!({"filter_chains": [{"filters": [filter]}]}));
    let proxy = Proxy::start_with(&config, Launch::default().with_arguments(FAST));
    let mut client = proxy.client();
    for turn in 0..100 {
        client.exchange(get(&format!("/{turn}")));
    }
    let numbered = |log: u32| -> Vec<String> { (0..100).map(|n| format!("{log} /{n}")).collect() };
    assert_eq!(read_lines(&first, 100), numbered(1));
    assert_eq!(read_lines(&second, 100), numbered(2));
    let printed = read_lines(&proxy.directory().path().join("stdout"), 100);
    assert_eq!(printed[99], "to-stdout /99");
}

#[test]
fn a_rotated_log_is_reopened_on_sigusr1() {
    let directory = TempDir::new();
    let path = directory.path().join("access.log");
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]))
        .overlay_filter("http", json!({"access_log": [config::file_access_log(&path, text_format("%PATH%\n"))]}));
    let mut proxy = Proxy::start_with(&config, Launch::default().with_arguments(FAST));
    proxy.get("/before");
    assert_eq!(read_lines(&path, 1), ["/before"]);
    let rotated = directory.path().join("access.log.1");
    std::fs::rename(&path, &rotated).unwrap();
    proxy.signal("USR1");
    wait_until("the log is there again", || {
        proxy.get("/after");
        std::fs::read_to_string(&path).is_ok_and(|text| text.contains("/after"))
    });
}

#[test]
fn upstream_local_address_is_the_address_that_the_origin_sees() {
    let origin = Origin::start(|connection| {
        let peer = connection.stream().peer_addr().expect("a peer");
        while connection.request().is_some() {
            let peer = peer.to_string();
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{peer}", peer.len()).as_bytes());
        }
    });
    let config = Config::proxy_to(origin.address);
    let peers = std::cell::RefCell::new(Vec::new());
    let lines = logged(config, text_format("%UPSTREAM_LOCAL_ADDRESS%\n"), Launch::default(), 2, |proxy| {
        // The second goes over the connection of the first.
        for _ in 0..2 {
            let answer = proxy.get("/");
            peers.borrow_mut().push(String::from_utf8(answer.body).unwrap());
        }
    });
    assert_eq!(lines, peers.into_inner());
}
