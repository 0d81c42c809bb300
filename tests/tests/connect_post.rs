//! Tunnels in the bodies of POST requests, which end at the proxy.

use http::Request;
use postrider_tests::h2_client::H2Client;
use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::{Value, json};

const POST: &str = "POST /a HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";

/// Says hello, echoes what it gets, and at its end how much that was.
fn origin() -> Origin {
    Origin::start(|connection| {
        connection.write(b"hello");
        let first = connection.read_exact(4).unwrap_or_default();
        connection.write(&first);
        let rest = connection.read_to_end().unwrap_or_default();
        connection.write(format!(" got {}", first.len() + rest.len()).as_bytes());
    })
}

fn proxy(origin: &Origin, upgrade: Value) -> Proxy {
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin", "upgrade_configs": [upgrade]}}]);
    Proxy::start(&Config::routes(routes).cluster("origin", &[origin.address]))
}

fn terminating(allow_post: bool) -> Value {
    json!({"upgrade_type": "CONNECT", "connect_config": {"allow_post": allow_post}})
}

#[test]
fn the_bodies_of_a_post_and_its_answer_carry_plain_bytes() {
    let origin = origin();
    let proxy = proxy(&origin, terminating(true));
    let mut client = proxy.client();
    client.send(POST);
    let head = client.response_head("POST").unwrap();
    assert_eq!((head.status, head.header("transfer-encoding")), (200, "chunked"));
    assert_eq!(client.read_exact(10).unwrap(), b"5\r\nhello\r\n");
    client.send("4\r\nabcd\r\n");
    assert_eq!(client.read_exact(9).unwrap(), b"4\r\nabcd\r\n");
    // The end of the body is the end of what the endpoint gets; the end of what it says is that of the answer.
    client.send("3\r\nefg\r\n0\r\n\r\n");
    assert_eq!(client.read_exact(16).unwrap(), b"6\r\n got 7\r\n0\r\n\r\n");
    assert_eq!(origin.bytes(0), b"abcdefg");
    proxy.wait_stat("cluster.origin.upstream_rq_200", 1);
    proxy.wait_stat("cluster.origin.upstream_cx_active", 0);
}

#[test]
fn a_body_of_known_length_and_a_client_of_http_2_do_as_well() {
    let origin = origin();
    let proxy = proxy(&origin, terminating(true));
    let sized = proxy.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\nabcdef");
    assert_eq!((sized.status, sized.text()), (200, "helloabcd got 6"));
    let mut client = H2Client::connect(proxy.address("http"));
    let request = Request::builder().method("POST").uri("http://test/").body(()).unwrap();
    let answer = client.exchange(request, b"abcdefgh");
    assert_eq!((answer.status, answer.text()), (200, "helloabcd got 8"));
    assert_eq!(origin.bytes(1), b"abcdefgh");
}

#[test]
fn other_methods_and_other_routes_ask_as_ever() {
    let origin = Origin::echo("origin");
    let tunnels = proxy(&origin, terminating(true));
    assert_eq!(tunnels.get("/").status, 200);
    let plain = proxy(&origin, terminating(false));
    assert_eq!(plain.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\nx").status, 200);
    let methods: Vec<String> = origin.requests().iter().map(|request| request.method.clone()).collect();
    assert_eq!(methods, ["GET", "POST"]);
}
