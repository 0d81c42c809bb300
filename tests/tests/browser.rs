//! A page in headless Chromium, over TLS and HTTP/2: many resources at once, a WebSocket, a streamed upload, a download
//! that is given up.

use aws_lc_rs::digest;
use base64::Engine as _;
use postrider_tests::kit::process::Running;
use postrider_tests::kit::{Config, Origin, OriginConnection, Proxy, TempDir};
use postrider_tests::needed;
use postrider_tests::tls::{Authority, Identity, secured};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

const PAGE: &str = include_str!("browser/page.html");
/// A browser's first start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn answer(kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncache-control: no-store\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The site's server; what the page reports goes to `reports`.
fn site(connection: &mut OriginConnection, reports: &Mutex<SyncSender<Value>>) {
    while let Some(request) = connection.request() {
        let (place, rest) = request.target[1..].split_once('/').unwrap_or((&request.target[1..], ""));
        let sent = match place {
            "" => connection.write(&answer("text/html; charset=utf-8", PAGE.as_bytes())),
            "script" => connection.write(&answer("text/javascript", b"window.ran += 1")),
            "bytes" => connection.write(&answer("text/plain", "x".repeat(rest.parse().unwrap()).as_bytes())),
            "upload" => connection.write(&answer("text/plain", &request.body)),
            "chat" => return chat(connection, request.header("sec-websocket-key")),
            "endless" => return endless(connection),
            "report" => {
                let _ = reports.lock().unwrap().send(serde_json::from_slice(&request.body).unwrap());
                connection.write(&answer("text/plain", b"thanks"))
            }
            _ => connection.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
        };
        if !sent {
            return;
        }
    }
}

fn endless(connection: &mut OriginConnection) {
    connection.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n");
    while connection.write(&[b'x'; 10_000]) {}
}

/// A WebSocket server that sends messages of one frame back until the client closes (RFC 6455 section 5.2).
fn chat(connection: &mut OriginConnection, key: &str) {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let accept = base64::engine::general_purpose::STANDARD.encode(digest);
    connection.write(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        )
        .as_bytes(),
    );
    while let Some((opcode, payload)) = frame(connection) {
        let mut reply = vec![0x80 | opcode];
        match u8::try_from(payload.len()) {
            Ok(length) if length < 126 => reply.push(length),
            _ => {
                reply.push(126);
                reply.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
            }
        }
        reply.extend_from_slice(&payload);
        connection.write(&reply);
        if opcode == 8 {
            return;
        }
    }
}

/// The opcode and the unmasked payload of the client's next frame.
fn frame(connection: &mut OriginConnection) -> Option<(u8, Vec<u8>)> {
    let head = connection.read_exact(2)?;
    assert_eq!((head[0] & 0xf0, head[1] & 0x80), (0x80, 0x80), "whole and masked");
    let length = match head[1] & 0x7f {
        126 => connection.read_exact(2)?.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte)),
        short => usize::from(short),
    };
    let mask = connection.read_exact(4)?;
    let payload = connection.read_exact(length)?;
    Some((head[0] & 0x0f, payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()))
}

/// Opens `url` in a browser that trusts `identity`, and finds no host but the proxy's.
fn open(url: &str, identity: &Identity, profile: &TempDir) -> Running {
    let mut command = Command::new(needed("chromium"));
    command.args(["--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage"]);
    // Its sandbox needs rights that a container may lack; it only ever sees the page above.
    command.args(["--no-sandbox", "--no-proxy-server", "--password-store=basic"]);
    command.arg("--host-resolver-rules=MAP site.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
    command.arg(format!("--ignore-certificate-errors-spki-list={}", identity.pin()));
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.env("HOME", profile.path()).stdout(Stdio::null()).stderr(Stdio::null());
    Running::spawn(command.arg(url))
}

#[test]
fn chromium_uses_all_of_http_2_and_a_websocket_in_it() {
    let (sender, reports) = sync_channel(1);
    let sender = Mutex::new(sender);
    let origin = Origin::start(move |connection| site(connection, &sender));
    let identity = Authority::new("authority").issue(&["site.test"]);
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]))
        .cluster("origin", &[origin.address])
        .overlay_filter(
            "http",
            json!({
                "upgrade_configs": [{"upgrade_type": "websocket"}],
                "http2_protocol_options": {"allow_connect": true},
            }),
        );
    let alpn = json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}});
    let proxy = Proxy::start(&secured(config, &identity, alpn));
    let profile = TempDir::new();
    let url = format!("https://site.test:{}/", proxy.address("http").port());
    let mut browser = open(&url, &identity, &profile);
    let report = reports.recv_timeout(PATIENCE);
    let stats = proxy.stats();
    // Asked to end, it takes its helpers with it.
    browser.signal("TERM");
    browser.wait();
    let expected = json!({
        "scripts": 64,
        "sizes": 64,
        "chat": {"heard": [true, true, true], "code": 3000, "reason": "enough", "clean": true},
        "upload": true,
        "abandon": true,
        "protocols": ["h2"],
    });
    assert_eq!(report.expect("a report from the page"), expected);
    let value = |name: &str| stats.value(&format!("http.ingress_http.{name}"));
    // No connection of HTTP/1, so the WebSocket was a stream of HTTP/2.
    assert_eq!(value("downstream_cx_http1_total"), 0);
    assert!(value("downstream_cx_http2_total") >= 1);
    assert_eq!(value("downstream_cx_upgrades_total"), 1);
    assert_eq!((value("downstream_rq_5xx"), value("downstream_cx_protocol_error")), (0, 0));
    proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
    proxy.wait_stat("http.ingress_http.downstream_cx_upgrades_active", 0);
    assert!(origin.malformed().is_empty(), "{:?}", origin.malformed());
}
