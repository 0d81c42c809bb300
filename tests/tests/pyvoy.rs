//! pip's package `pyvoy`, whose module runs Python applications in the proxy, as it comes. See `.ci/pyvoy`.

use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{RawClient, TempDir, wait_until};
use postrider_tests::pyvoy::{self, Served};

fn serve(interface: &str, application: &str) -> Served {
    pyvoy::serve(interface, application, Launch::default())
}

const ASGI: &str = r#"
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(b"content-type", b"text/x"), (b"x-path", scope["path"].encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": scope["method"].encode() + b" ", "more_body": True})
    await send({"type": "http.response.body", "body": body.upper()})
"#;

const WSGI: &str = r#"
def app(environ, start_response):
    body = b"".join(environ["wsgi.input"])
    start_response("202 Accepted", [("content-type", "text/y"), ("x-path", environ["PATH_INFO"])])
    return [environ["REQUEST_METHOD"].encode(), b" ", body.upper()]
"#;

fn serves(interface: &str, application: &str, status: u16, kind: &str) {
    let served = serve(interface, application);
    let address = served.proxy.address("listener");
    for body in [String::new(), "a small letter ".repeat(20_000)] {
        let head = format!("POST /some/where?q HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
        let answer = RawClient::once(address, head + &body).unwrap();
        assert_eq!(
            (answer.status, answer.header("content-type"), answer.header("x-path")),
            (status, kind, "/some/where")
        );
        let wanted = format!("POST {}", body.to_uppercase());
        assert!(answer.text() == wanted, "{} bytes of {}", answer.text().len(), wanted.len());
    }
}

#[test]
fn an_asgi_application_is_served() {
    serves("asgi", ASGI, 201, "text/x");
}

#[test]
fn a_wsgi_application_is_served() {
    serves("wsgi", WSGI, 202, "text/y");
}

/// Tells of each piece of the request by a file, and waits for a file before the second piece of its answer.
const PIECES: &str = r#"
import asyncio, os

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    sizes, more = [], True
    while more:
        message = await receive()
        if message.get("body"):
            sizes.append(len(message["body"]))
            open(os.path.join(FOLDER, "came-%d" % sum(sizes)), "w").close()
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-bytes", b"%d" % sum(sizes))]})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    while not os.path.exists(os.path.join(FOLDER, "go")):
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"second"})
"#;

#[test]
fn an_asgi_application_reads_and_answers_in_pieces() {
    let shared = TempDir::new();
    let code = format!("FOLDER = {:?}\n{PIECES}", shared.path());
    let served = serve("asgi", &code);
    let mut client = RawClient::connect(served.proxy.address("listener"));
    client.send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    wait_until("the first piece", || shared.path().join("came-5").exists());
    client.send("6\r\n world\r\n0\r\n\r\n");
    let head = client.response_head("POST").unwrap();
    assert_eq!((head.status, head.header("x-bytes")), (200, "11"));
    let (mut seen, gate) = (Vec::new(), shared.path().join("go"));
    client
        .body(&head, &mut |piece| {
            seen.extend_from_slice(piece);
            if seen.starts_with(b"first ") && !gate.exists() {
                std::fs::write(&gate, "").unwrap();
            }
        })
        .unwrap();
    assert_eq!(seen, b"first second");
}

const ASGI_FACTS: &str = r#"
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/fails":
        raise ValueError("told to")
    many = b",".join(value for name, value in scope["headers"] if name == b"x-many")
    text = b"|".join([scope["method"].encode(), scope["query_string"], scope["scheme"].encode(),
        scope["http_version"].encode(), many, scope["client"][0].encode()])
    headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": text})
"#;

#[test]
fn an_asgi_application_knows_its_request_and_may_fail() {
    let served = serve("asgi", ASGI_FACTS);
    let address = served.proxy.address("listener");
    let ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nx-many: 1\r\nx-many: 2\r\n\r\n");
        RawClient::once(address, request).unwrap()
    };
    let answer = ask("/a%20b?c=d&e");
    assert_eq!((answer.status, answer.text()), (404, "GET|c=d&e|http|1.1|1,2|127.0.0.1"));
    assert_eq!(answer.headers.values("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(ask("/fails").status, 500);
    assert_eq!(ask("/").status, 404, "the next request is served");
}

const WSGI_FACTS: &str = r#"
def app(environ, start_response):
    if environ["PATH_INFO"] == "/fails":
        raise ValueError("told to")
    names = ["REQUEST_METHOD", "QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH", "SERVER_PROTOCOL", "wsgi.url_scheme", "HTTP_X_A"]
    text = "|".join(environ.get(name, "-") for name in names)
    body = environ["wsgi.input"].read(3) + b"/" + environ["wsgi.input"].read()
    start_response("409 Conflict", [("set-cookie", "a=1"), ("set-cookie", "b=2")])
    return [text.encode(), b"|", body]
"#;

#[test]
fn a_wsgi_application_knows_its_request_and_may_fail() {
    let served = serve("wsgi", WSGI_FACTS);
    let address = served.proxy.address("listener");
    let ask = |path: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: text/z\r\ncontent-length: 5\r\nx-a: 7\r\n\r\n"
        );
        RawClient::once(address, head + "hello").unwrap()
    };
    let answer = ask("/a?b=c");
    assert_eq!((answer.status, answer.text()), (409, "POST|b=c|text/z|5|HTTP/1.1|http|7|hel/lo"));
    assert_eq!(answer.headers.values("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(ask("/fails").status, 500);
    assert_eq!(ask("/").status, 409, "the next request is served");
    assert!(served.folder.path().join("application.py").exists());
}
