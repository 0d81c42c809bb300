//! One exchange through the codec, many times over: run it under callgrind and divide by the count.
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null target/…/examples/exchange 10000`, less the
//! same with 0, gives the user instructions for parsing and serialising both heads. A second argument
//! `plain` takes the request of a load generator instead of a browser's.

use postrider_h1::{HeadScan, RequestParse, ResponseParse, parse_request, parse_response};
use postrider_http::{
    Asked, FieldLine, HeaderId, RequestHead, RequestRules, RequestWrite, ResponseHead, ResponseRules, ResponseWrite,
    write_request, write_response,
};

const REQUEST: &[u8] = b"GET /some/path/to/a/thing?id=17 HTTP/1.1\r\nHost: www.example.test:8080\r\n\
    User-Agent: load/1.0 (bench)\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\nCookie: session=0123456789abcdef\r\n\
    X-Custom: some value\r\n\r\n";

/// What a load generator sends.
const PLAIN_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:10000\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\n\
    Content-Type: application/octet-stream\r\nContent-Length: 4000\r\nLast-Modified: Fri, 20 Nov 2026 10:00:00 GMT\r\n\
    Connection: keep-alive\r\nETag: \"691f0a40-fa0\"\r\nAccept-Ranges: bytes\r\n\r\n";

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let wire = if std::env::args().nth(2).is_some_and(|kind| kind == "plain") { PLAIN_REQUEST } else { REQUEST };
    let (request_rules, response_rules) = (RequestRules::default(), ResponseRules::default());
    let mut scan = HeadScan::new();
    let (mut request, mut response) = (RequestHead::new(), ResponseHead::new());
    let mut out = Vec::with_capacity(4096);
    let mut bytes = 0;
    for _ in 0..count {
        out.clear();
        let RequestParse::Complete { facts, .. } =
            parse_request(std::hint::black_box(wire), &request_rules, &mut scan, &mut request)
        else {
            return println!("request refused");
        };
        let Ok(server) = FieldLine::new(HeaderId::Server, b"postrider") else { return };
        let extra: &[(HeaderId, &[u8])] = &[(HeaderId::XRequestId, b"4b0e1d9c-6a55-4b5f-9f7e-0123456789ab")];
        write_request(&request, &RequestWrite { framing: facts.framing, extra, ..Default::default() }, &mut out);
        let asked = Asked { method: request.method(), upgrade: false };
        let ResponseParse::Complete { facts, .. } =
            parse_response(std::hint::black_box(RESPONSE), asked, &response_rules, &mut scan, &mut response)
        else {
            return println!("response refused");
        };
        let options = ResponseWrite {
            framing: facts.framing,
            framing_as_received: true,
            server: Some(&server),
            ..Default::default()
        };
        write_response(&response, &options, &mut out);
        bytes += std::hint::black_box(&out).len();
    }
    println!("{count} exchanges, {bytes} bytes written");
}
