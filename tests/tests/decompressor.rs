//! Compressed requests and answers that go on plain.

use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::{Config, Origin, Proxy, Response, TempDir, wait_until};
use postrider_tests::{ask, envoy};
use serde_json::{Value, json};
use zlib_rs::{DeflateConfig, Status};

fn gzip(body: &[u8]) -> Vec<u8> {
    let config = DeflateConfig { window_bits: 31, ..DeflateConfig::default() };
    let mut packed = vec![0; body.len() + 200];
    let mut deflate = zlib_rs::Deflate::new_with_config(config);
    assert_eq!(deflate.compress(body, &mut packed, zlib_rs::DeflateFlush::Finish).unwrap(), Status::StreamEnd);
    packed.truncate(deflate.total_out() as usize);
    packed
}

fn pack(kind: &str, body: &[u8]) -> Vec<u8> {
    match kind {
        "gzip" => gzip(body),
        "zstd" => zstd::encode_all(body, 3).unwrap(),
        _ => {
            let mut packed = Vec::new();
            brotli::BrotliCompress(&mut &body[..], &mut packed, &brotli::enc::BrotliEncoderParams::default()).unwrap();
            packed
        }
    }
}

fn decompressor(kind: &str, settings: Value, fields: Value) -> Value {
    let message = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    let mut fields = fields;
    fields["decompressor_library"] =
        extension(kind, &format!("compression.{kind}.decompressor.v3.{message}"), settings);
    extension("unpack", "filters.http.decompressor.v3.Decompressor", fields)
}

struct Site {
    proxy: Proxy,
    log: std::path::PathBuf,
    _directory: TempDir,
}

fn site(filter: Value, origin: &Origin) -> Site {
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let line = json!({"log_format": {"text_format_source": {"inline_string": "%RESPONSE_CODE_DETAILS%\n"}}});
    let config = Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "http_protocol_options": {"enable_trailers": true},
            "access_log": [file_access_log(&log, line)],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .cluster("origin", &[origin.address]);
    Site { proxy: Proxy::start(&config), log, _directory: directory }
}

fn origin(fields: &str, body: &[u8]) -> Origin {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
    Origin::fixed([head.as_bytes(), body].concat())
}

fn post(proxy: &Proxy, fields: &str, body: &[u8]) -> Response {
    let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
    proxy.exchange([head.as_bytes(), body].concat())
}

fn sample(length: usize) -> Vec<u8> {
    let mut state = 7u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (state >> 28) as u8
        })
        .collect()
}

#[test]
fn answers_arrive_plain() {
    let body = sample(300_000);
    for (kind, coding) in [("gzip", "gzip"), ("brotli", "br"), ("zstd", "zstd")] {
        let packed = pack(kind, &body);
        let origin = origin(&format!("content-encoding: {coding}\r\n"), &packed);
        let site = site(decompressor(kind, json!({}), json!({})), &origin);
        let answer = ask(&site.proxy, "GET", "test", "/", "accept-encoding: x;q=0.1\r\n");
        assert!(answer.body == body, "{kind}: {}", answer.body.len());
        assert_eq!((answer.header("content-encoding"), answer.header("content-length")), ("", ""));
        let trailer = |what: &str| {
            let name = format!("x-envoy-decompressor-{kind}-{what}-bytes");
            answer.trailers.value(&name).map(str::to_owned)
        };
        assert_eq!(trailer("compressed"), Some(packed.len().to_string()));
        assert_eq!(trailer("uncompressed"), Some(body.len().to_string()));
        assert_eq!(origin.requests().pop().unwrap().header("accept-encoding"), format!("x;q=0.1,{coding}"));
        let stats = site.proxy.stats();
        let of = |name: &str| stats.value(&format!("http.ingress_http.decompressor.{kind}.{kind}.response.{name}"));
        assert_eq!((of("decompressed"), of("not_decompressed")), (1, 0));
        assert_eq!(of("total_compressed_bytes"), packed.len() as u64);
        assert_eq!(of("total_uncompressed_bytes"), body.len() as u64);
    }
}

#[test]
fn requests_arrive_plain() {
    let origin = Origin::echo("a");
    let site = site(decompressor("gzip", json!({}), json!({})), &origin);
    let body = sample(200_000);
    assert_eq!(post(&site.proxy, "content-encoding: gzip\r\n", &pack("gzip", &body)).status, 200);
    let seen = origin.requests().pop().unwrap();
    assert!(seen.body == body);
    assert_eq!((seen.header("content-encoding"), seen.header("transfer-encoding")), ("", "chunked"));
    // What may not be touched, or is of another coding, stays.
    for fields in ["content-encoding: gzip\r\ncache-control: no-transform\r\n", "content-encoding: br, gzip\r\n"] {
        let packed = pack("gzip", b"body");
        assert_eq!(post(&site.proxy, fields, &packed).status, 200);
        assert_eq!(origin.requests().pop().unwrap().body, packed);
    }
}

/// Envoy lets the beginning pass for the whole.
#[test]
fn what_cannot_be_decompressed_goes_nowhere() {
    if envoy() {
        return;
    }
    let bomb = pack("gzip", &vec![0; 10_000_000]);
    let cut = pack("gzip", &sample(1000));
    let cut = &cut[..cut.len() - 5];
    for (body, status) in [(b"no gzip at all".as_slice(), 400), (&bomb, 413), (cut, 400)] {
        let to = Origin::echo("a");
        let site = site(decompressor("gzip", json!({}), json!({})), &to);
        assert_eq!(post(&site.proxy, "content-encoding: gzip\r\n", body).status, status);
        assert!(to.requests().iter().all(|request| request.body.len() < 2_000_000));
        wait_until("the line", || std::fs::read_to_string(&site.log).unwrap_or_default().contains('\n'));
        assert_eq!(std::fs::read_to_string(&site.log).unwrap(), "request_decompression_failed\n");
    }
    let from = origin("content-encoding: gzip\r\n", b"no gzip at all");
    let site_of_plain = site(decompressor("gzip", json!({}), json!({})), &from);
    let answer = ask(&site_of_plain.proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.text()), (502, "The body cannot be decompressed."));
    let stats = site_of_plain.proxy.stats();
    assert_eq!(stats.value("http.ingress_http.decompressor.gzip.gzip.decompressor_library.zlib_data_error"), 1);
    // What began well is cut off.
    let from = origin("content-encoding: gzip\r\n", cut);
    let site_of_cut = site(decompressor("gzip", json!({}), json!({})), &from);
    let mut client = site_of_cut.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!(client.response("GET").map_or(true, |answer| answer.status == 502));
    // A ratio that is allowed is fine.
    let from = origin("content-encoding: gzip\r\n", &bomb);
    let wide = site(decompressor("gzip", json!({"max_inflate_ratio": 1032}), json!({})), &from);
    assert_eq!(ask(&wide.proxy, "GET", "test", "/", "").body.len(), 10_000_000);
}
