//! Packing and unpacking: compressor and decompressor. Bodies are compared unpacked.

use super::{filter, scope};
use crate::made::text;
use crate::packing::pack;
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::{extension, overlay};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![accepted(), answers(), statuses(), compressor_scopes(), requests(), unpacked_requests(), unpacked_answers()]
}

fn library(way: &str, kind: &str, settings: Value) -> Value {
    let message = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    extension(kind, &format!("compression.{kind}.{way}.v3.{message}"), settings)
}

fn compressor(kind: &str, fields: Value) -> Value {
    let mut all = json!({"compressor_library": library("compressor", kind, json!({}))});
    overlay(&mut all, fields);
    let mut made = filter("compressor", "Compressor", all);
    made["name"] = json!(format!("compressor.{kind}"));
    made
}

fn per_route(name: &str, fields: Value) -> Value {
    let mut made = scope("compressor", "CompressorPerRoute", fields);
    let config = made["typed_per_filter_config"]["envoy.filters.http.compressor"].take();
    json!({"typed_per_filter_config": {format!("compressor.{name}"): config}})
}

/// Which of three a client gets.
fn accepted() -> Scene {
    let mut scene = Scene::filtered(
        "compressor-accepted",
        vec![
            compressor("gzip", json!({"response_direction_config": {}})),
            compressor("brotli", json!({"response_direction_config": {}, "choose_first": true})),
            compressor("zstd", json!({"response_direction_config": {}})),
        ],
        json!([{"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "own ".repeat(50)}}}]),
    );
    for accept in [
        "gzip",
        "br",
        "zstd",
        "gzip, br",
        "br, gzip",
        "gzip, br;q=0.9",
        "zstd;q=0.5, *;q=0.2",
        "*",
        "*;q=0",
        "br;q=0, *",
        "identity",
        "deflate",
        "GZIP",
        "gzip;q=0",
        "gzip;q=2",
        "gzip;q=x",
        "gzip;q=0.001",
        "identity;q=1, gzip;q=0.5",
        "identity;q=0",
        "",
        ",",
        "gzip;level=5;q=0.5, zstd;q=0.4",
        " gzip ;q=1 ,zstd",
        "x-gzip",
        "deflate, gzip",
    ] {
        let lines = format!("accept-encoding: {accept}\r\n");
        scene = scene.get_with("/own", &lines).makes("/", &lines, &["200|content-type=text/html|length=300"]);
    }
    scene
        .makes("/", "", &["200|content-type=text/html|length=300"])
        .makes("/", "accept-encoding: zstd\r\naccept-encoding: gzip\r\n", &["200|content-type=text/html|length=300"])
        .makes(
            "/",
            "accept-encoding: gzip\r\n",
            &["200|length=60000|chunked=1", "200|length=60000|chunked=1|trailer-x-end=1"],
        )
}

/// Which answers are packed.
const MADE: &[&str] = &[
    "200|content-type=text/html|length=300",
    "200|content-type=text/html; charset=utf-8|length=300",
    "200|content-type=TEXT/HTML|length=300",
    "200|content-type=application/json|length=300",
    "200|content-type=image/png|length=300",
    "200|content-type=image/svg+xml|length=300",
    "200|content-type=|length=300",
    "200|length=300",
    "200|content-type=text/html|length=99",
    "200|content-type=text/html|length=100",
    "200|content-type=text/html|length=0",
    "200|content-type=text/html|length=50|chunked=1",
    "200|content-type=text/html|length=300|etag=\"a\"",
    "200|content-type=text/html|length=300|etag=W/\"a\"",
    "200|content-type=text/html|length=300|etag=a",
    "200|content-type=text/html|length=300|cache-control=no-transform",
    "200|content-type=text/html|length=300|cache-control=max-age=5, No-Transform",
    "200|content-type=text/html|length=300|vary=origin",
    "200|content-type=text/html|length=300|vary=Accept-Encoding",
    "200|content-type=text/html|length=300|vary=*",
    "200|content-type=text/html|length=300|content-encoding=identity",
    "200|content-type=text/html|length=300|content-encoding=gzip|packed=gzip",
    "200|content-type=text/html|length=300|content-range=bytes 0-299/300",
    "200|content-type=text/html|length=300|accept-ranges=bytes|content-md5=x",
    "206|content-type=text/html|length=300",
    "404|content-type=text/html|length=300",
    "500|content-type=text/html|length=300",
    "204",
    "304|etag=\"a\"",
];

fn answers() -> Scene {
    let lines = "accept-encoding: gzip\r\n";
    let fields = json!({"response_direction_config": {
        "common_config": {"min_content_length": 100}, "uncompressible_response_codes": [206, 500], "weaken_etag_on_compress": true,
    }});
    let mut scene =
        Scene::filtered("compressor-answers", vec![compressor("gzip", fields)], json!([])).makes("/", lines, MADE);
    for order in &MADE[..3] {
        scene = scene.ask("HEAD", "test", "/", &format!("x-make: {order}\r\n{lines}"));
    }
    scene.makes("/", "accept-encoding: br\r\n", &MADE[..12]).makes("/", "", &MADE[..2])
}

/// The header that says what was done and why.
fn statuses() -> Scene {
    let common = json!({"common_config": {"min_content_length": 100, "content_type": ["text/html", "a/b"]}, "status_header_enabled": true,
        "uncompressible_response_codes": [206]});
    let fields = |more: Value| {
        let mut all = json!({"response_direction_config": common});
        overlay(&mut all, more);
        all
    };
    let filters = vec![
        compressor(
            "gzip",
            fields(
                json!({"response_direction_config": {"disable_on_etag_header": true, "remove_accept_encoding_header": true}}),
            ),
        ),
        compressor("zstd", fields(json!({}))),
    ];
    let mut scene = Scene::filtered("compressor-statuses", filters, json!([]));
    for lines in ["accept-encoding: gzip\r\n", "accept-encoding: zstd\r\n", "accept-encoding: br\r\n"] {
        scene = scene.makes("/", lines, MADE);
    }
    scene.makes("/", "", &MADE[..3])
}

/// Where a route or virtual host wants something else.
fn compressor_scopes() -> Scene {
    let remove = json!({"response_direction_config": {"remove_accept_encoding_header": true}});
    let mut cluster = json!({"name": "a", "weight": 1});
    overlay(&mut cluster, per_route("gzip", json!({"disabled": true})));
    let routes = json!([
        to_a("/off", per_route("gzip", json!({"disabled": true}))),
        to_a("/removed", per_route("gzip", json!({"overrides": remove}))),
        to_a("/zstd", per_route("gzip", json!({"overrides": {"compressor_library": library("compressor", "zstd", json!({}))}}))),
        {"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": [cluster]}}},
        to_a("/", json!({})),
    ]);
    let mut host = json!({"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]});
    overlay(&mut host, per_route("gzip", json!({"disabled": true})));
    let table = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}, host]});
    let off = json!({"response_direction_config": {"common_config": {"enabled": {"default_value": false, "runtime_key": "compress_answers"}}}});
    let filters = vec![compressor("gzip", json!({})), compressor("brotli", off)];
    let mut scene = Scene::with_table("compressor-scopes", filters, table);
    for path in ["/off", "/removed", "/zstd", "/weighted", "/"] {
        for accept in ["gzip", "br", "zstd", "gzip, zstd, br"] {
            let lines = format!("accept-encoding: {accept}\r\nx-make: 200|length=300|content-type=text/css\r\n");
            scene = scene.get_with(path, &lines).ask("GET", "own.test", path, &lines);
        }
    }
    scene
}

/// Requests that go on packed.
fn requests() -> Scene {
    let fields = json!({"request_direction_config": {"common_config": {"min_content_length": 50}}, "response_direction_config": {
        "common_config": {"enabled": {"default_value": false, "runtime_key": "compress_answers"}},
    }});
    let body = text(400);
    Scene::filtered("compressor-requests", vec![compressor("gzip", fields)], json!([]))
        .post("/", "content-type: text/html\r\n", &body)
        .post("/", "content-type: image/png\r\n", &body)
        .post("/", "", &body)
        .post("/", "", text(49))
        .post("/", "", text(50))
        .post("/", "content-encoding: br\r\n", pack("br", &body))
        .post("/", "cache-control: no-transform\r\n", &body)
        .post("/", "etag: \"x\"\r\n", &body)
        .post("/", "accept-encoding: gzip\r\n", "")
        .get("/")
        .raw("PUT / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
}

fn decompressor(kind: &str, fields: Value) -> Value {
    let mut all = json!({"decompressor_library": library("decompressor", kind, json!({}))});
    overlay(&mut all, fields);
    let mut made = filter("decompressor", "Decompressor", all);
    made["name"] = json!(format!("decompressor.{kind}"));
    made
}

/// Packed requests, in front of an upstream that wants them plain.
fn unpacked_requests() -> Scene {
    let filters = vec![
        decompressor("gzip", json!({})),
        decompressor("brotli", json!({"request_direction_config": {"advertise_accept_encoding": false}})),
        decompressor(
            "zstd",
            json!({"response_direction_config": {"common_config": {"enabled": {"default_value": false, "runtime_key": "unpack"}}}}),
        ),
    ];
    let mut scene = Scene::filtered(
        "decompressor-requests",
        filters,
        json!([to_a("/", json!({"route": {"cluster": "trailers"}}))]),
    )
    .with(json!({"http_protocol_options": {"enable_trailers": true}}));
    for coding in ["gzip", "br", "zstd"] {
        let body = pack(coding, &text(300));
        scene = scene
            .post("/", &format!("content-encoding: {coding}\r\n"), &body)
            .post("/", &format!("content-encoding: {}\r\n", coding.to_uppercase()), &body)
            .post("/", &format!("content-encoding: identity, {coding}\r\n"), &body)
            .post("/", &format!("content-encoding: {coding}\r\ncache-control: no-transform\r\n"), &body)
            .post("/", &format!("content-encoding: {coding}\r\naccept-encoding: br;q=0.5\r\n"), &body)
            .post("/", &format!("x-packed: {coding}\r\n"), &body);
    }
    scene
        .post("/", "content-encoding: br,gzip\r\n", pack("br", &pack("gzip", &text(100))))
        .post("/", "content-encoding: deflate\r\n", "whatever")
        .post("/", "content-encoding: gzip\r\n", "")
        .get("/")
        .each("/", &["accept-encoding: identity\r\n", "accept-encoding: gzip, br\r\n", "content-encoding: gzip\r\n"])
}

/// Packed answers, for clients that are to get them plain.
fn unpacked_answers() -> Scene {
    let filters = vec![
        decompressor(
            "gzip",
            json!({"request_direction_config": {"common_config": {"enabled": {"default_value": false, "runtime_key": "unpack"}}}}),
        ),
        decompressor(
            "brotli",
            json!({"response_direction_config": {"common_config": {"ignore_no_transform_header": true}}}),
        ),
        decompressor("zstd", json!({})),
    ];
    let mut scene = Scene::filtered("decompressor-answers", filters, json!([]));
    for (coding, packed) in [("gzip", "gzip"), ("br", "br"), ("zstd", "zstd"), ("GZIP", "gzip")] {
        for more in [
            "",
            "|chunked=1",
            "|chunked=1|trailer-x-end=1",
            "|cache-control=no-transform",
            "|etag=\"a\"|vary=origin",
            "|content-type=text/html",
        ] {
            scene = scene.makes("/", "", &[&format!("200|content-encoding={coding}|packed={packed}|length=300{more}")]);
        }
    }
    scene
        .makes(
            "/",
            "",
            &[
                "200|content-encoding=deflate|length=10",
                "204|content-encoding=gzip",
                "304|content-encoding=gzip",
                "404|length=3",
            ],
        )
        .ask("HEAD", "test", "/", "x-make: 200|content-encoding=gzip|packed=gzip|length=300\r\n")
        .post("/", "content-encoding: gzip\r\n", pack("gzip", b"stays"))
}
