//! Programs that others wrote, on both sides of the proxy.

use postrider_tests::kit::process::{self, Finished, Running};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, net, wait_until};
use postrider_tests::{get, needed};
use serde_json::json;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

fn curl(arguments: &[&str]) -> Finished {
    let finished = process::run(
        Command::new(needed("curl")).args(["--silent", "--show-error", "--max-time", "20"]).args(arguments),
    );
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
    finished
}

/// A first number after `label` in a tool's report.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = &text[text.find(label)? + label.len()..];
    rest.split_whitespace().next()?.parse().ok()
}

#[test]
fn curl_gets_heads_posts_and_uploads() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let url = format!("http://{}/p?q=1", proxy.address("http"));
    assert!(curl(&[&url]).stdout.starts_with("GET /p?q=1 HTTP/1.1\r\n"));
    assert!(curl(&["--head", &url]).stdout.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(curl(&["--data", "form=1", &url]).stdout.ends_with("form=1"));

    let directory = TempDir::new();
    let file = directory.write("upload", "0123456789".repeat(200_000));
    let file = file.to_str().unwrap();
    for extra in [&["-H", "Expect: 100-continue"][..], &["-H", "Transfer-Encoding: chunked"], &["-H", "Expect:"]] {
        let mut arguments = vec!["--upload-file", file, "--expect100-timeout", "15"];
        arguments.extend_from_slice(extra);
        arguments.push(&url);
        let sent = curl(&arguments).stdout;
        assert!(sent.starts_with("PUT /p?q=1 HTTP/1.1\r\n"), "{extra:?}");
        assert!(sent.len() > 2_000_000, "{extra:?}: {} bytes", sent.len());
    }
    // Several URLs reuse one connection.
    let before = proxy.stats().value("http.ingress_http.downstream_cx_total");
    curl(&[&url, &url, &url]);
    assert_eq!(proxy.stats().value("http.ingress_http.downstream_cx_total"), before + 1);
}

#[test]
fn curl_speaks_http_10_when_it_is_accepted() {
    let origin = Origin::echo("a");
    let config = Config::proxy_to(origin.address)
        .overlay_filter("http", json!({"http_protocol_options": {"accept_http_10": true}}));
    let proxy = Proxy::start(&config);
    let url = format!("http://{}/old", proxy.address("http"));
    assert!(curl(&["--http1.0", &url]).stdout.starts_with("GET /old HTTP/1.1\r\n"));
    assert!(curl(&["--http1.0", "--data", "x=1", &url]).stdout.ends_with("x=1"));
}

#[test]
fn curl_through_the_proxy_as_a_forward_proxy_uses_absolute_form() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let through = format!("http://{}", proxy.address("http"));
    let answer = curl(&["--proxy", &through, "http://inside.test/x"]).stdout;
    assert!(answer.starts_with("GET /x HTTP/1.1\r\n"), "{answer}");
    assert!(answer.contains("host: inside.test\r\n"), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("proxy-connection"), "{answer}");
}

/// nginx with files to serve and a place that takes uploads.
struct Nginx {
    _process: Running,
    directory: TempDir,
    address: SocketAddr,
}

fn nginx() -> Nginx {
    let directory = TempDir::new();
    let root = directory.path().to_str().unwrap().to_string();
    let port = net::free_port();
    for (name, size) in [("13", 13), ("4k", 4_000), ("500k", 500_000)] {
        directory.write(name, "x".repeat(size));
    }
    // One process, so that ending it leaves no worker behind.
    let config = directory.write(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;\n\
         fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;\n\
         keepalive_requests 100; absolute_redirect off; gzip on; gzip_min_length 100; gzip_types *; default_type text/plain;\n\
         server {{ listen 127.0.0.1:{port}; root {root};\n\
         location /status/ {{ return 204; }}\n\
         location /moved {{ return 302 /4k; }}\n\
         location / {{ }} }} }}\n"
        ),
    );
    let mut command = Command::new(needed("nginx"));
    command.arg("-c").arg(&config).arg("-p").arg(directory.path());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let process = Running::spawn(&mut command);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    wait_until("nginx accepts", || std::net::TcpStream::connect(address).is_ok());
    Nginx { _process: process, directory, address }
}

#[test]
fn nginx_as_the_origin_is_proxied_in_all_its_framings() {
    let nginx = nginx();
    let proxy = Proxy::start(&Config::proxy_to(nginx.address));
    let mut client = proxy.client();
    for name in ["13", "4k", "500k"] {
        let expected = std::fs::read(nginx.directory.path().join(name)).unwrap();
        assert!(client.exchange(get(&format!("/{name}"))).body == expected, "{name}");
    }
    // Compressed on the fly: chunked.
    let packed = client.exchange("GET /500k HTTP/1.1\r\nhost: test\r\naccept-encoding: gzip\r\n\r\n");
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body.starts_with(&[0x1f, 0x8b]) && packed.body.len() < 10_000);
    let part = client.exchange("GET /4k HTTP/1.1\r\nhost: test\r\nrange: bytes=10-19\r\n\r\n");
    assert_eq!((part.status, part.body.len()), (206, 10));
    let etag = client.exchange(get("/4k")).header("etag").to_string();
    let same = client.exchange(format!("GET /4k HTTP/1.1\r\nhost: test\r\nif-none-match: {etag}\r\n\r\n"));
    assert_eq!((same.status, same.text()), (304, ""));
    assert_eq!(client.exchange(get("/status/x")).status, 204);
    assert_eq!(client.exchange(get("/moved")).header("location"), "/4k");
    assert_eq!(client.exchange(get("/none")).status, 404);
    // Over the origin's 100 requests per connection.
    for _ in 0..250 {
        assert_eq!(client.exchange(get("/13")).body.len(), 13);
    }
    assert_eq!(proxy.stats().value("cluster.origin.upstream_rq_5xx"), 0);
}

#[test]
fn wrk_runs_without_an_error() {
    let nginx = nginx();
    let proxy = Proxy::start_with(&Config::proxy_to(nginx.address), Launch { concurrency: 2, ..Launch::default() });
    let url = format!("http://{}/4k", proxy.address("http"));
    let finished = process::run(Command::new(needed("wrk")).args(["-t1", "-c32", "-d2s", &url]));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(!finished.stdout.contains("Socket errors"), "{}", finished.stdout);
    assert!(!finished.stdout.contains("Non-2xx"), "{}", finished.stdout);
    let rate = number_after(&finished.stdout, "Requests/sec:").unwrap();
    assert!(rate > 100.0, "{}", finished.stdout);
}

#[test]
fn ab_runs_without_an_error_with_and_without_keep_alive() {
    let nginx = nginx();
    let config = Config::proxy_to(nginx.address)
        .overlay_filter("http", json!({"http_protocol_options": {"accept_http_10": true}}));
    let proxy = Proxy::start(&config);
    let url = format!("http://{}/4k", proxy.address("http"));
    for keep_alive in [true, false] {
        let mut command = Command::new(needed("ab"));
        command.args(["-q", "-n", "2000", "-c", "16"]);
        if keep_alive {
            command.arg("-k");
        }
        let finished = process::run(command.arg(&url));
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_eq!(number_after(&finished.stdout, "Complete requests:"), Some(2000.0), "{}", finished.stdout);
        assert_eq!(number_after(&finished.stdout, "Failed requests:"), Some(0.0), "{}", finished.stdout);
        assert!(!finished.stdout.contains("Non-2xx"), "{}", finished.stdout);
        if keep_alive {
            assert_eq!(number_after(&finished.stdout, "Keep-Alive requests:"), Some(2000.0), "{}", finished.stdout);
        }
    }
}

#[test]
fn ab_posts_over_the_tcp_proxy_to_four_endpoints() {
    let origins: Vec<Origin> = (0..4).map(|n| Origin::echo(&n.to_string())).collect();
    let addresses: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
    let config = Config::new().tcp("tcp", json!({"cluster": "four"})).cluster("four", &addresses);
    let proxy = Proxy::start(&config);
    let directory = TempDir::new();
    let body = directory.write("1k.txt", "y".repeat(1024));
    let mut command = Command::new(needed("ab"));
    command.args(["-q", "-n", "400", "-c", "8", "-T", "text/plain", "-p"]).arg(&body);
    let finished = process::run(command.arg(format!("http://{}/", proxy.address("tcp"))));
    assert_eq!(number_after(&finished.stdout, "Complete requests:"), Some(400.0), "{}", finished.stdout);
    for origin in &origins {
        assert!(origin.requests().len() >= 90, "{}", origin.requests().len());
    }
}
