//! Programs that others wrote, over HTTP/2 and TLS: nghttp, h2load, curl, `openssl s_client`.

use postrider_tests::kit::process::{self, Finished};
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, TempDir};
use postrider_tests::needed;
use postrider_tests::tls::{Authority, secured};
use serde_json::json;
use std::process::Command;

/// One origin that echoes requests; listeners `http` with TLS and `plain` without.
struct Site {
    _origin: Origin,
    proxy: Proxy,
    folder: TempDir,
}

impl Site {
    fn start() -> Self {
        let origin = Origin::echo("a");
        let authority = Authority::new("authority");
        let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        let hosts = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}});
        let config = Config::proxy_to(origin.address)
            .http_named("plain", hosts)
            .overlay_filter("plain", json!({"stat_prefix": "plain"}));
        let alpn = json!({"common_tls_context": {"alpn_protocols": ["h2", "http/1.1"]}});
        let config = secured(config, &authority.issue(&["site.test"]), alpn);
        let proxy = Proxy::start_with(&config, Launch { concurrency: 2, ..Launch::default() });
        let folder = TempDir::new();
        folder.write("ca.pem", authority.pem());
        Self { _origin: origin, proxy, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.proxy.address("http"))
    }

    fn plain_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.address("plain"))
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn run(program: &str, arguments: &[&str]) -> Finished {
    let finished = process::run(Command::new(needed(program)).args(arguments));
    assert_eq!(finished.code, Some(0), "{program} {arguments:?}: {finished:?}");
    finished
}

#[test]
fn nghttp_gets_many_things_at_once_and_posts() {
    let site = Site::start();
    let upload = site.folder.write("upload", "0123456789".repeat(50_000)).display().to_string();
    for url in [site.url("/p?q=1"), site.plain_url("/p?q=1")] {
        // A window smaller than a frame makes every body wait for updates.
        let seen = run("nghttp", &["-nv", "-m", "40", "--window-bits=12", "--connection-window-bits=13", &url]).stdout;
        assert_eq!(seen.matches(":status: 200").count(), 40, "{seen}");
        assert_eq!(seen.matches("recv RST_STREAM").count(), 0, "{seen}");
        assert!(!seen.contains("recv GOAWAY"), "{seen}");
        let sent = run("nghttp", &["-d", &upload, "-H", ":method: PUT", &url]).stdout;
        assert!(sent.starts_with("PUT /p?q=1 HTTP/1.1\r\n"), "{}", &sent[..100.min(sent.len())]);
        assert!(sent.ends_with(&"0123456789".repeat(50_000)), "{} bytes", sent.len());
        let trailers = run("nghttp", &["-nv", "-d", &upload, "--trailer", "x-last: 1", "--expect-continue", &url]);
        assert!(trailers.stdout.contains(":status: 200"), "{}", trailers.stdout);
    }
    let stats = site.proxy.stats();
    for prefix in ["ingress_http", "plain"] {
        assert_eq!(stats.value(&format!("http.{prefix}.downstream_cx_http2_total")), 3);
        assert_eq!(stats.value(&format!("http.{prefix}.downstream_cx_protocol_error")), 0);
    }
}

#[test]
fn h2load_sees_no_failure_over_tls_and_in_plain_text() {
    let site = Site::start();
    let body = site.folder.write("body", "y".repeat(2_000)).display().to_string();
    for url in [site.url("/load"), site.plain_url("/load")] {
        for extra in [&[][..], &["-d", &body], &["--h1"]] {
            let mut arguments = vec!["-n", "2000", "-c", "8", "-m", "16", "-t", "1"];
            arguments.extend_from_slice(extra);
            arguments.push(&url);
            let said = run("h2load", &arguments).stdout;
            let totals = "2000 total, 2000 started, 2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout";
            assert!(said.contains(totals), "{arguments:?}: {said}");
            assert!(said.contains("status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn curl_knows_http_2_before_it_asks() {
    let site = Site::start();
    let ask = |version: &str| {
        let url = site.plain_url("/known");
        let format = " %{http_version} %{response_code}";
        run("curl", &["--silent", "--show-error", "--max-time", "20", version, "--write-out", format, &url]).stdout
    };
    assert!(ask("--http2-prior-knowledge").ends_with(" 2 200"));
    // An upgrade to h2c is not taken (RFC 9113 section 3.1); the request is answered all the same.
    let upgrade = ask("--http2");
    assert!(upgrade.starts_with("GET /known HTTP/1.1\r\n") && upgrade.ends_with(" 1.1 200"), "{upgrade}");
    assert!(!upgrade.to_ascii_lowercase().contains("http2-settings"), "{upgrade}");
    assert_eq!(site.proxy.stats().value("http.plain.downstream_cx_http2_total"), 1);
}

#[test]
fn curl_asks_for_many_things_at_once() {
    let site = Site::start();
    let url = format!("https://site.test:{}/[1-50]", site.proxy.address("http").port());
    let place = format!("site.test:{}:127.0.0.1", site.proxy.address("http").port());
    // Not with prior knowledge: curl 7.88 fails itself when it adds a second stream then.
    let said = run(
        "curl",
        &["--silent", "--max-time", "20", "--parallel", "--cacert", &site.file("ca.pem"), "--resolve", &place, &url],
    );
    assert_eq!(said.stdout.matches("GET /").count(), 50, "{said:?}");
    let stats = site.proxy.stats();
    assert_eq!(stats.value("http.ingress_http.downstream_rq_http2_total"), 50);
    assert_eq!(stats.value("http.ingress_http.downstream_cx_http1_total"), 0);
}

#[test]
fn openssl_resumes_its_session_and_agrees_on_a_protocol() {
    let site = Site::start();
    let (address, ca, session) = (site.proxy.address("http").to_string(), site.file("ca.pem"), site.file("session"));
    let connect = |version: &str, protocols: &str, more: &[&str]| {
        let request = site.folder.write("request", "GET / HTTP/1.1\r\nhost: site.test\r\nconnection: close\r\n\r\n");
        let mut command = Command::new(needed("sh"));
        // Its end comes after the proxy's: the tickets of TLS 1.3 come behind the handshake.
        command.args(["-c", "openssl s_client -ign_eof \"$@\" < \"$0\""]).arg(request);
        command.args(["-connect", &address, "-CAfile", &ca, "-servername", "site.test", "-verify_return_error"]);
        let finished = process::run(command.args([version, "-alpn", protocols]).args(more));
        assert_eq!(finished.code, Some(0), "{version} {protocols}: {finished:?}");
        finished.stdout
    };
    needed("openssl");
    for version in ["-tls1_2", "-tls1_3"] {
        let first = connect(version, "http/1.1", &["-sess_out", &session]);
        assert!(first.contains("New, TLSv1."), "{first}");
        assert!(first.contains("ALPN protocol: http/1.1") && first.contains("HTTP/1.1 200 OK"), "{first}");
        let again = connect(version, "http/1.1", &["-sess_in", &session]);
        assert!(again.contains("Reused, TLSv1."), "{version}: {again}");
        assert!(again.contains("HTTP/1.1 200 OK"), "{version}: {again}");
    }
    // None of ours: no protocol is agreed on, and HTTP/1 is spoken.
    let other = connect("-tls1_3", "acme-tls/1", &[]);
    assert!(other.contains("No ALPN negotiated") && other.contains("HTTP/1.1 200 OK"), "{other}");
}
