//! Compressed answers and requests, as Envoy compresses them.

use std::io::Read;

use postrider_tests::ask;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy, Response};
use serde_json::{Value, json};
use zlib_rs::{Inflate, InflateConfig, InflateFlush, decompress_slice};

const ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.compressor.v3.CompressorPerRoute";

fn library(kind: &str) -> Value {
    let message = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    extension(kind, &format!("compression.{kind}.compressor.v3.{message}"), json!({}))
}

fn compressor(kind: &str, fields: Value) -> Value {
    let mut fields = fields;
    fields["compressor_library"] = library(kind);
    extension(&format!("compressor.{kind}"), "filters.http.compressor.v3.Compressor", fields)
}

fn site(filters: Vec<Value>, origin: &Origin) -> Proxy {
    let route = |prefix: &str, own: Value| {
        let mut own = own;
        own["@type"] = ROUTE.into();
        json!({
            "match": {"prefix": prefix},
            "route": {"cluster": "origin"},
            "typed_per_filter_config": {"compressor.gzip": own},
        })
    };
    let routes = json!([
        route("/off", json!({"disabled": true})),
        route("/br", json!({"overrides": {"compressor_library": library("brotli")}})),
        route("/rm", json!({"overrides": {"response_direction_config": {"remove_accept_encoding_header": true}}})),
        {"match": {"path": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own ".repeat(90)}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]);
    let mut filters = filters;
    filters.push(router());
    let config = Config::new()
        .http(json!({
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster("origin", &[origin.address]);
    Proxy::start(&config)
}

fn unpack(answer: &Response) -> Vec<u8> {
    let mut plain = Vec::new();
    match answer.header("content-encoding") {
        "gzip" => {
            plain.resize(4 << 20, 0);
            let (made, _) = decompress_slice(&mut plain, &answer.body, InflateConfig { window_bits: 31 });
            let length = made.len();
            plain.truncate(length);
        }
        "br" => {
            brotli::Decompressor::new(&answer.body[..], 4096).read_to_end(&mut plain).unwrap();
        }
        "zstd" => plain = zstd::decode_all(&answer.body[..]).unwrap(),
        _ => plain = answer.body.clone(),
    }
    plain
}

/// An origin whose answer has these fields and this body.
fn origin(fields: &str, body: &[u8]) -> Origin {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
    Origin::fixed([head.as_bytes(), body].concat())
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"the quick brown fox"[at * at % 19]).collect()
}

#[test]
fn clients_get_what_they_accept() {
    let body = text(300_000);
    let origin = origin("content-type: text/html\r\netag: \"a\"\r\n", &body);
    let proxy = site(
        vec![
            compressor("gzip", json!({})),
            compressor("brotli", json!({"choose_first": true})),
            compressor("zstd", json!({})),
        ],
        &origin,
    );
    for (accept, coding) in [
        ("gzip", "gzip"),
        ("br", "br"),
        ("zstd", "zstd"),
        ("gzip, br", "br"),
        ("gzip, br;q=0.9", "gzip"),
        ("zstd;q=0.5, *;q=0.2", "zstd"),
        ("*", "gzip"),
        ("br;q=0, *", "gzip"),
        ("identity", ""),
        ("deflate", ""),
        ("GZIP", ""),
    ] {
        let answer = ask(&proxy, "GET", "test", "/", &format!("accept-encoding: {accept}\r\n"));
        assert_eq!((answer.header("content-encoding"), answer.header("vary")), (coding, "Accept-Encoding"), "{accept}");
        assert!(unpack(&answer) == body, "{accept}");
        assert_eq!(answer.header("content-length").is_empty(), !coding.is_empty());
        assert_eq!(answer.header("etag").is_empty(), !coding.is_empty());
    }
    let none = ask(&proxy, "GET", "test", "/", "");
    assert_eq!(
        (none.header("content-encoding"), none.header("vary"), none.body.len()),
        ("", "Accept-Encoding", 300_000)
    );
    let head = ask(&proxy, "HEAD", "test", "/", "accept-encoding: gzip\r\n");
    assert_eq!((head.header("content-encoding"), head.header("content-length")), ("", "300000"));

    let stats = proxy.stats();
    let of = |name: &str| stats.value(&format!("http.ingress_http.compressor.{name}"));
    assert_eq!((of("gzip.gzip.compressed"), of("gzip.gzip.not_compressed")), (4, 9));
    assert_eq!((of("brotli.brotli.compressed"), of("brotli.brotli.header_compressor_used")), (2, 2));
    assert_eq!((of("gzip.gzip.header_wildcard"), of("gzip.gzip.header_not_valid")), (2, 2));
    assert_eq!((of("gzip.gzip.header_identity"), of("gzip.gzip.no_accept_header")), (1, 1));
    assert_eq!(of("zstd.zstd.header_compressor_overshadowed"), 4);
    assert_eq!(of("gzip.gzip.total_uncompressed_bytes"), 4 * 300_000);
    assert!((1..4 * 300_000).contains(&of("gzip.gzip.total_compressed_bytes")));
}

#[test]
fn answers_that_are_not_worth_it_stay() {
    let told = json!({"response_direction_config": {
        "status_header_enabled": true,
        "disable_on_etag_header": true,
        "uncompressible_response_codes": [200],
    }});
    for (fields, length, status) in [
        ("content-type: text/html\r\n", 29, "gzip;ContentLengthTooSmall"),
        ("content-type: image/png\r\n", 100, "gzip;ContentTypeNotAllowed"),
        ("etag: \"a\"\r\n", 100, "gzip;EtagNotAllowed"),
        ("", 100, "gzip;StatusCodeNotAllowed"),
        ("cache-control: no-transform\r\n", 100, ""),
        ("content-encoding: br\r\n", 100, ""),
    ] {
        let body = text(length);
        let origin = origin(fields, &body);
        let proxy = site(vec![compressor("gzip", told.clone())], &origin);
        let answer = ask(&proxy, "GET", "test", "/", "accept-encoding: gzip\r\n");
        assert_eq!(answer.header("x-envoy-compression-status"), status, "{fields}");
        assert_eq!((answer.body.len(), answer.header("content-length")), (length, &*length.to_string()));
        assert_eq!(answer.header("vary"), "");
        assert_eq!(proxy.stats().value("http.ingress_http.compressor.gzip.gzip.response.not_compressed"), 1);
    }
}

#[test]
fn answers_of_grpc_web_are_compressed() {
    for kind in ["application/grpc-web", "application/grpc-web+proto"] {
        let origin = origin(&format!("content-type: {kind}\r\n"), &text(240));
        let proxy = site(vec![compressor("gzip", json!({}))], &origin);
        let answer = ask(&proxy, "GET", "test", "/", "accept-encoding: gzip\r\n");
        assert_eq!((answer.header("content-encoding"), answer.header("vary")), ("gzip", "Accept-Encoding"), "{kind}");
    }
}

#[test]
fn a_least_length_of_zero_is_the_usual_one() {
    let newer = json!({"response_direction_config": {"common_config": {"min_content_length": 0}}});
    for zero in [newer, json!({"content_length": 0})] {
        for (length, coding) in [(2, ""), (29, ""), (30, "gzip")] {
            let origin = origin("content-type: text/html\r\n", &text(length));
            let proxy = site(vec![compressor("gzip", zero.clone())], &origin);
            let answer = ask(&proxy, "GET", "test", "/", "accept-encoding: gzip\r\n");
            assert_eq!(answer.header("content-encoding"), coding, "{zero} {length}");
        }
    }
}

#[test]
fn routes_say_otherwise() {
    let body = text(5000);
    let origin = origin("content-type: text/html\r\n", &body);
    let proxy = site(vec![compressor("gzip", json!({}))], &origin);
    for (path, accept, coding) in [
        ("/off", "gzip, br", ""),
        ("/br", "gzip, br", "br"),
        ("/br", "gzip", ""),
        ("/rm", "gzip", "gzip"),
        ("/own", "gzip", "gzip"),
    ] {
        let answer = ask(&proxy, "GET", "test", path, &format!("accept-encoding: {accept}\r\n"));
        assert_eq!(answer.header("content-encoding"), coding, "{path} {accept}");
        let plain = unpack(&answer);
        assert!(if path == "/own" { plain == "own ".repeat(90).as_bytes() } else { plain == body });
    }
    let asked: Vec<bool> =
        origin.requests().iter().map(|request| request.headers.contains("accept-encoding")).collect();
    assert_eq!(asked, [true, true, true, false]);
}

#[test]
fn requests_are_compressed_where_that_is_configured() {
    let origin = Origin::echo("a");
    let requests = json!({"request_direction_config": {"common_config": {"min_content_length": 10}}});
    let proxy = site(vec![compressor("zstd", requests)], &origin);
    let body = text(200_000);
    let sent = |fields: &str, body: &[u8]| {
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
        assert_eq!(proxy.exchange([head.as_bytes(), body].concat()).status, 200);
        origin.requests().pop().unwrap()
    };
    let packed = sent("content-type: text/plain\r\n", &body);
    assert_eq!((packed.header("content-encoding"), packed.header("transfer-encoding")), ("zstd", "chunked"));
    assert!(zstd::decode_all(&packed.body[..]).unwrap() == body);
    for (fields, length) in [("", 9), ("content-type: image/png\r\n", 50), ("content-encoding: br\r\n", 50)] {
        let plain = sent(fields, &body[..length]);
        assert_eq!(plain.body, &body[..length], "{fields}");
    }
}

/// Whoever sends an event now and then is heard at once.
#[test]
fn each_piece_leaves_when_it_came() {
    let (go, wait) = std::sync::mpsc::sync_channel::<()>(2);
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |connection| {
        if connection.request().is_none() {
            return;
        }
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n");
        for piece in ["one", "two"] {
            connection.write(format!("3\r\n{piece}\r\n").as_bytes());
            let _ = wait.lock().unwrap().recv();
        }
        connection.write(b"0\r\n\r\n");
    });
    let proxy = site(vec![compressor("gzip", json!({}))], &origin);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: test\r\naccept-encoding: gzip\r\n\r\n");
    let head = client.response_head("GET").unwrap();
    assert_eq!(head.header("content-encoding"), "gzip");
    let (mut all, mut heard) = (Vec::new(), 0);
    client
        .body(&head, &mut |piece| {
            all.extend_from_slice(piece);
            let plain = inflate(&all);
            // The origin goes on only when what it sent is here.
            if heard < 2 && plain == b"onetwo"[..3 * (heard + 1)] {
                heard += 1;
                go.send(()).unwrap();
            }
        })
        .unwrap();
    assert_eq!((heard, inflate(&all)), (2, b"onetwo".to_vec()));
}

/// What there is of a body that may not be over.
fn inflate(packed: &[u8]) -> Vec<u8> {
    let (mut inflate, mut plain) = (Inflate::new(true, 31), vec![0; 1000]);
    inflate.decompress(packed, &mut plain, InflateFlush::NoFlush).unwrap();
    plain.truncate(inflate.total_out() as usize);
    plain
}
