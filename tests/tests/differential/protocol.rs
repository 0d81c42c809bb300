//! HTTP/1 itself: framing, versions, what is malformed, what is too large, upgrades.

use crate::scene::{Scene, to_a};
use serde_json::json;

pub fn scenes() -> Vec<Scene> {
    vec![
        bodies(),
        versions(),
        old_refused(),
        malformed(),
        targets(),
        trailers(),
        trailers_kept(),
        expectations(),
        limits(),
        upgrades(),
        connects(),
        absolute(),
    ]
}

fn bodies() -> Scene {
    Scene::forward("bodies")
        .post("/", "", "hello")
        .post("/", "content-type: text/plain\r\n", "x".repeat(70_000))
        .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        .raw(
            "POST / HTTP/1.1\r\nhost: test\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        )
        .raw("GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
        .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n0;last\r\n\r\n")
        .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n000005\r\nhello\r\n000\r\n\r\n")
        .raw("POST / HTTP/1.1\r\nhost: test\r\n\r\n")
        .raw("PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: 005\r\n\r\nhello")
        .raw("DELETE / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi")
        .raw("GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi")
        .raw("HEAD / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi")
}

fn versions() -> Scene {
    Scene::forward("old-versions")
        .with(json!({"http_protocol_options": {"accept_http_10": true, "default_host_for_http_10": "default.test"}}))
        .raw("GET / HTTP/1.0\r\n\r\n")
        .raw("GET / HTTP/1.0\r\nhost: test\r\n\r\n")
        .raw("GET / HTTP/1.0\r\nhost: test\r\nconnection: keep-alive\r\n\r\n")
        .raw("POST / HTTP/1.0\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi")
        .raw("GET /?answer=chunked HTTP/1.0\r\nhost: test\r\n\r\n")
        .raw("GET /?answer=chunked HTTP/1.0\r\nhost: test\r\nconnection: keep-alive\r\n\r\n")
        .raw("GET /?answer=until-close HTTP/1.0\r\nhost: test\r\n\r\n")
        .raw("HEAD / HTTP/1.0\r\nhost: test\r\n\r\n")
        .raw("GET /?answer=early HTTP/1.0\r\nhost: test\r\n\r\n")
}

fn old_refused() -> Scene {
    Scene::forward("new-versions")
        .raw("GET / HTTP/1.0\r\nhost: test\r\n\r\n")
        .raw("GET / HTTP/1.0\r\n\r\n")
        .raw("GET / HTTP/1.2\r\nhost: test\r\n\r\n")
        .raw("GET / HTTP/2.0\r\nhost: test\r\n\r\n")
        .raw("GET / HTTP/0.9\r\nhost: test\r\n\r\n")
        .raw("GET / HTTP/1.10\r\nhost: test\r\n\r\n")
        .raw("GET / http/1.1\r\nhost: test\r\n\r\n")
        .raw("GET /\r\n\r\n")
}

fn malformed() -> Scene {
    let heads = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost:\r\n\r\n",
        "GET  / HTTP/1.1\r\nhost: test\r\n\r\n",
        "GET / HTTP/1.1 \r\nhost: test\r\n\r\n",
        " GET / HTTP/1.1\r\nhost: test\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nhost: test\r\n\r\n",
        "G@T / HTTP/1.1\r\nhost: test\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nx y: z\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nx : z\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\n: z\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nx: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nx: a\u{1}b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nx: a\u{7f}b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: te st\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: te/st\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: +1\r\n\r\nx",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 1,1\r\n\r\nx",
        "GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: gzip\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: identity\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding:\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        "rubbish\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: test\r\nx: \u{ff}\u{fe}\r\n\r\n",
    ];
    let scene = heads.iter().fold(Scene::forward("malformed"), |scene, head| scene.raw(head));
    scene.raw("GET / HTTP/1.1\r\nhost: one\r\nhost: two\r\n\r\n")
}

fn targets() -> Scene {
    let targets = [
        "/", "//", "/a b", "/a\tb", "a", "?a", "#a", "/#a", "/a?b#c", "/%", "/%zz", "/%00", "/\u{e9}", "/a\\b", "/a|b",
        "/a\"b", "/a<b>", "/a{b}", "/a^b", "/a`b", "/[a]", "/~a", "/a'b", "/a(b)", "/a,b", "/a;b", "/a:b", "/a@b",
        "/a=b", "/a+b", "/a$b", "/a!b", "/a*b", "/a&b",
    ];
    targets.iter().fold(Scene::forward("targets"), |scene, target| scene.get(target))
}

fn absolute() -> Scene {
    let targets = [
        "http://other/x",
        "http://other:80/x?y",
        "http://other",
        "http://",
        "http:///x",
        "https://other/x",
        "ftp://other/x",
        "HTTP://other/x",
        "http://user@other/x",
        "http://other/x#f",
        "http://[::1]/x",
        "http://[::1/x",
        "http://other:abc/x",
        "http://OTHER/x",
        "other:80",
        "http:/x",
        "http:x",
    ];
    targets.iter().fold(Scene::forward("absolute"), |scene, target| scene.get(target))
}

const TRAILED: &str = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n2\r\nhi\r\n0\r\nx-end: 1\r\nX-More: a, b\r\n\r\n";

fn trailers() -> Scene {
    Scene::forward("trailers").raw(TRAILED).answers("/", &["trailers", "grpc"])
}

fn trailers_kept() -> Scene {
    Scene::forward("trailers-kept")
        .with(json!({"http_protocol_options": {"enable_trailers": true}}))
        .raw(TRAILED)
        .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nno colon\r\n\r\n")
        .raw("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-end: 1\r\n\r\n")
        .answers("/", &["trailers", "grpc"])
}

fn expectations() -> Scene {
    Scene::routes(
        "expectations",
        json!([to_a("/a", json!({})), {"match": {"prefix": "/own"}, "direct_response": {"status": 403}}]),
    )
    .post("/a", "expect: 100-continue\r\n", "hello")
    .post("/a", "Expect: 100-Continue\r\n", "hello")
    .post("/own", "expect: 100-continue\r\n", "hello")
    .post("/none", "expect: 100-continue\r\n", "hello")
    .get_with("/a", "expect: 100-continue\r\n")
    .raw("POST /a HTTP/1.0\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi")
}

fn limits() -> Scene {
    let long = |count: usize| "x".repeat(count);
    Scene::forward("limits")
        .with(json!({"max_request_headers_kb": 8}))
        .get_with("/", &format!("x-long: {}\r\n", long(5_000)))
        .get_with("/", &format!("x-long: {}\r\n", long(9_000)))
        .get(&format!("/{}", long(5_000)))
        .get(&format!("/{}", long(9_000)))
        .get_with("/", &"x-many: 1\r\n".repeat(90))
        .get_with("/", &"x-many: 1\r\n".repeat(101))
        .ask("HEAD", "test", "/", &format!("x-long: {}\r\n", long(9_000)))
}

fn upgrades() -> Scene {
    let lines = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n";
    Scene::forward("upgrades")
        .get_with("/", lines)
        .get_with("/", "connection: upgrade\r\nupgrade: h2c\r\n")
        .get_with("/", "connection: upgrade\r\nupgrade: TLS/1.0\r\n")
        .get_with("/", "upgrade: websocket\r\n")
        .get_with("/", "connection: Upgrade\r\n")
        .post("/", lines, "body")
        .with(json!({"upgrade_configs": [{"upgrade_type": "other"}]}))
        .get_with("/", "connection: upgrade\r\nupgrade: other\r\n")
        .get_with("/", "connection: upgrade\r\nupgrade: OTHER\r\nx-answer: 404\r\n")
}

fn connects() -> Scene {
    Scene::forward("connects")
        .raw("CONNECT test:80 HTTP/1.1\r\nhost: test:80\r\n\r\n")
        .raw("CONNECT / HTTP/1.1\r\nhost: test\r\n\r\n")
        .raw("CONNECT test HTTP/1.1\r\nhost: other\r\n\r\n")
}
