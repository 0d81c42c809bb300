//! Connections whose peer leaves what is for it waiting (`per_connection_buffer_high_watermark_timeout`).

use postrider_tests::h2_frames::{self, Frames, window_update};
use postrider_tests::kit::config::{file_access_log, overlay};
use postrider_tests::kit::net::connect_with_small_buffer;
use postrider_tests::kit::{Config, Gate, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::{envoy, get};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

/// More than all buffers on the way hold.
const MUCH: usize = 64 << 20;

fn limit() -> Value {
    json!({"per_connection_buffer_limit_bytes": 16384, "per_connection_buffer_high_watermark_timeout": "0.3s"})
}

/// Answers with `MUCH`, as far as it is taken.
fn generous() -> Origin {
    Origin::start(|connection| {
        if connection.request().is_some() {
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n").as_bytes());
            let piece = vec![b'x'; 1 << 16];
            let mut left = MUCH;
            while left > 0 && connection.write(&piece) {
                left -= piece.len();
            }
        }
    })
}

struct Scene {
    proxy: Proxy,
    log: TempDir,
}

/// An HTTP and a TCP listener with the fields of `listener`, in front of a cluster with those of `cluster`.
fn scene(origin: &Origin, listener: Value, cluster: Value) -> Scene {
    let log = TempDir::new();
    let text = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%\n";
    let to = |name: &str| {
        let format = json!({"log_format": {"text_format_source": {"inline_string": text}}});
        json!([file_access_log(&log.path().join(name), format)])
    };
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]);
    let tables = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]});
    let config = Config::new()
        .http(json!({"route_config": tables, "access_log": to("http")}))
        .tcp("tcp", json!({"cluster": "origin", "access_log": to("tcp")}))
        .cluster_with("origin", &[origin.address], cluster)
        .overlay_listener("http", listener.clone())
        .overlay_listener("tcp", listener);
    Scene { proxy: Proxy::start(&config), log }
}

impl Scene {
    fn line(&self, name: &str) -> String {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let path = self.log.path().join(name);
        wait_until("a line in the log", || read(&path).ends_with('\n'));
        read(&path).trim_end().to_owned()
    }
}

#[test]
fn a_client_of_http_2_that_takes_nothing_is_closed() {
    let origin = generous();
    let scene = scene(&origin, limit(), json!({}));
    let socket = connect_with_small_buffer(scene.proxy.address("http"), 4096);
    // Its windows are open: only the connection is full.
    let mut client = Frames::over(socket, &[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
    client.send([window_update(0, i32::MAX as u32 - 65535), h2_frames::get(1, "/")].concat());
    let reason = match envoy() {
        true => "downstream_local_disconnect(buffer_high_watermark_timeout_reached)",
        false => "downstream_remote_disconnect",
    };
    assert_eq!(scene.line("http"), format!("200 DC {reason}"));
    wait_until("the origin is let go", || origin.open_connections() == 0);
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    let origin = generous();
    let scene = scene(&origin, limit(), json!({}));
    let reason = "200 DC downstream_local_disconnect(buffer_high_watermark_timeout_reached)";
    for (name, line) in [("http", reason), ("tcp", "0 - -")] {
        let mut client = connect_with_small_buffer(scene.proxy.address(name), 4096);
        client.write_all(get("/").as_bytes()).unwrap();
        assert_eq!(scene.line(name), line, "{name}");
        wait_until("the origin is let go", || origin.open_connections() == 0);
        let mut client = RawClient::from_stream(client);
        let (got, _) = (client.read_to_end(), client);
        assert!(got.map_or(true, |bytes| bytes.len() < MUCH), "{name}");
    }
}

#[test]
fn a_client_that_takes_what_comes_gets_everything() {
    let origin = generous();
    let scene = scene(&origin, limit(), limit());
    let mut client = RawClient::connect(scene.proxy.address("http"));
    assert_eq!(client.exchange(get("/")).body.len(), MUCH);
    assert_eq!(scene.line("http"), "200 - via_upstream");
}

#[test]
fn a_host_that_takes_nothing_is_given_up() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |connection| {
        let _ = connection.request_head();
        held.wait();
    });
    let mut cluster = limit();
    overlay(&mut cluster, json!({"connect_timeout": "5s"}));
    let scene = scene(&origin, json!({"per_connection_buffer_limit_bytes": 16384}), cluster);
    let mut client = RawClient::connect(scene.proxy.address("http"));
    client.send(format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {MUCH}\r\n\r\n"));
    let mut sender = client.stream().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 16];
        while sender.write_all(&piece).is_ok() {}
    });
    let response = client.response("POST").unwrap();
    let line = "503 UC upstream_reset_before_response_started{connection_termination}";
    assert_eq!((response.status, scene.line("http").as_str()), (503, line));
    drop(client);
    gate.open();
    sending.join().unwrap();
}
