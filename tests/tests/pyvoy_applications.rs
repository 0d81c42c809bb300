//! Applications written with Flask and Starlette in pip's package `pyvoy`, and plain ones that do what few do: what both proxies
//! answer is the same.

use postrider_tests::kit::message::Response;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{RawClient, wait_until};
use postrider_tests::pyvoy::{Served, serve};

/// A request as bytes, with what the method of its answer is.
fn request(method: &str, path: &str, fields: &str, body: &[u8]) -> (String, Vec<u8>) {
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{fields}{length}\r\n");
    (method.to_owned(), [head.as_bytes(), body].concat())
}

fn get(path: &str) -> (String, Vec<u8>) {
    request("GET", path, "", b"")
}

/// What can be seen of an answer; who sent it and when, and whether the connection goes on, is each side's own.
fn seen(answer: &Response) -> String {
    let own = ["connection", "date", "server", "x-envoy-upstream-service-time"];
    let fields = answer.headers.0.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.escape_ascii()));
    let fields = fields.filter(|(name, _)| !own.contains(&name.as_str()));
    let mut fields: Vec<String> = fields.map(|(name, value)| format!("{name}: {value}")).collect();
    fields.sort();
    let mut body = answer.body.clone();
    if answer.headers.value("content-encoding") == Some("gzip")
        && let Some(time) = body.get_mut(4..8)
    {
        // When it was packed (RFC 1952 section 2.3).
        time.fill(0);
    }
    let body = match body.len() {
        0..=2_000 => body.escape_ascii().to_string(),
        long => format!("{long} bytes, {:x}", sum(&body)),
    };
    format!("{} {}\n{body}", answer.status, fields.join("; "))
}

/// Of a long body, in the place of which it stands.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// Has both proxies serve the application, and compares what they answer on one connection as long as it lasts.
fn compare(interface: &str, application: &str, requests: &[(String, Vec<u8>)]) -> (Served, Served, Vec<String>) {
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    let (theirs, ours) = (serve(interface, application, envoy), serve(interface, application, Launch::default()));
    let ask = |served: &Served| {
        let mut answers = Vec::new();
        let mut client = RawClient::connect(served.proxy.address("listener"));
        for (method, bytes) in requests {
            client.send(bytes);
            let answer = client.any_response(method).unwrap_or_else(|error| {
                let request = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
                panic!("{:?} to {request}: {error:?}", served.proxy.flavour())
            });
            if answer.headers.value("connection") == Some("close") {
                client = RawClient::connect(served.proxy.address("listener"));
            }
            answers.push(seen(&answer));
        }
        answers
    };
    let (of_envoy, of_us) = (ask(&theirs), ask(&ours));
    for (((_, request), theirs), ours) in requests.iter().zip(&of_envoy).zip(&of_us) {
        let request = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        assert_eq!(ours, theirs, "to {request}");
    }
    (theirs, ours, of_us)
}

const FLASK: &str = r#"
from flask import Flask, Response, abort, jsonify, make_response, redirect, request, session, url_for

app = Flask(__name__)
app.secret_key = "not a secret"

@app.get("/json/<int:number>")
def json(number):
    return jsonify(number=number, args=request.args.to_dict(flat=False), agent=request.headers.get("User-Agent"))

@app.post("/form")
def form():
    sent = request.files["file"]
    data = sent.read()
    return {"name": sent.filename, "size": len(data), "sum": sum(data), "field": request.form["field"]}

@app.post("/echo")
def echo():
    return Response(request.get_data(), mimetype=request.mimetype)

@app.get("/stream")
def stream():
    def pieces():
        for number in range(200):
            yield "line %d\n" % number
    return Response(pieces(), mimetype="text/plain")

@app.get("/large")
def large():
    return Response(b"0123456789" * 300_000, mimetype="application/octet-stream")

@app.get("/moved")
def moved():
    return redirect(url_for("json", number=7))

@app.get("/cookie")
def cookie():
    answer = make_response("", 204)
    answer.set_cookie("a", "1", httponly=True)
    answer.set_cookie("b", "2", samesite="Lax")
    return answer

@app.get("/fails")
def fails():
    raise ValueError("told to")

@app.get("/teapot")
def teapot():
    abort(418)

@app.errorhandler(404)
def absent(error):
    return {"error": str(error.code)}, 404
"#;

#[test]
fn an_application_in_flask_is_served_as_in_envoy() {
    let large: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let part = |head: &str| format!("--edge\r\ncontent-disposition: form-data; {head}\r\n\r\n").into_bytes();
    let form = [
        part("name=\"field\""),
        b"a value\r\n".to_vec(),
        part("name=\"file\"; filename=\"f.bin\""),
        large.clone(),
        b"\r\n--edge--\r\n".to_vec(),
    ];
    let requests = [
        request("GET", "/json/5?a=1&a=2&b=%20", "user-agent: me\r\n", b""),
        get("/json/none"),
        request("POST", "/form", "content-type: multipart/form-data; boundary=edge\r\n", &form.concat()),
        request("POST", "/echo", "content-type: text/x\r\n", b"small"),
        request("POST", "/echo", "content-type: text/x\r\n", &large),
        get("/stream"),
        get("/large"),
        request("HEAD", "/large", "", b""),
        get("/moved"),
        get("/cookie"),
        get("/fails"),
        get("/teapot"),
        request("PUT", "/cookie", "", b""),
        request("OPTIONS", "/echo", "", b""),
        get("/json/6"),
    ];
    let (_, _, answers) = compare("wsgi", FLASK, &requests);
    for (index, wanted) in
        [(0, "200 "), (1, "404 "), (4, "200 "), (6, "200 "), (8, "302 "), (10, "500 "), (12, "405 "), (14, "200 ")]
    {
        assert!(answers[index].starts_with(wanted), "{index}: {}", answers[index]);
    }
    assert!(answers[2].contains("124998120"), "the sum of the file: {}", answers[2]);
}

const STARLETTE: &str = r#"
import asyncio, contextlib

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute

done = []

@contextlib.asynccontextmanager
async def lifespan(app):
    done.append("started")
    yield {"kept": "by the lifespan"}

async def state(request):
    return JSONResponse({"kept": request.state.kept, "done": done, "path": request.path_params, "query": str(request.query_params)})

async def echo(request):
    size, total = 0, 0
    async for piece in request.stream():
        size += len(piece)
        total += sum(piece)
    return JSONResponse({"size": size, "sum": total})

async def stream(request):
    async def pieces():
        for number in range(200):
            yield "line %d\n" % number
            if number % 50 == 0:
                await asyncio.sleep(0)
    return StreamingResponse(pieces(), media_type="text/plain", background=BackgroundTask(done.append, "streamed"))

async def large(request):
    return Response(b"0123456789" * 300_000, media_type="application/octet-stream")

async def fails(request):
    raise ValueError("told to")

async def breaks(request):
    async def pieces():
        yield "first"
        raise ValueError("told to")
    return StreamingResponse(pieces(), media_type="text/plain")

async def socket(websocket):
    await websocket.close(code=1008)

async def absent(request, error):
    return PlainTextResponse("nothing at " + request.url.path, status_code=404)

app = Starlette(
    routes=[
        Route("/state/{number:int}", state),
        Route("/echo", echo, methods=["POST"]),
        Route("/stream", stream),
        Route("/large", large),
        Route("/fails", fails),
        Route("/moved", lambda request: RedirectResponse("/state/1", status_code=308)),
        Mount("/below", routes=[Route("/state/{number:int}", state)]),
        WebSocketRoute("/socket", socket),
    ],
    middleware=[Middleware(GZipMiddleware, minimum_size=10)],
    exception_handlers={404: absent},
    lifespan=lifespan,
)
"#;

#[test]
fn an_application_in_starlette_is_served_as_in_envoy() {
    let large: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let handshake = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let requests = [
        get("/state/5?a=1&b=%20"),
        get("/state/none"),
        request("POST", "/echo", "", &large),
        request("POST", "/echo", "", b"x"),
        get("/stream"),
        get("/large"),
        request("GET", "/large", "accept-encoding: gzip\r\n", b""),
        get("/fails"),
        get("/moved"),
        get("/below/state/9"),
        request("DELETE", "/echo", "", b""),
        request("GET", "/socket", handshake, b""),
        get("/state/6"),
    ];
    let (_, _, answers) = compare("asgi", STARLETTE, &requests);
    for (index, wanted) in [(0, "200 "), (1, "404 "), (2, "200 "), (5, "200 "), (7, "500 "), (10, "405 "), (12, "200 ")]
    {
        assert!(answers[index].starts_with(wanted), "{index}: {}", answers[index]);
    }
    assert!(answers[0].contains("by the lifespan"), "{}", answers[0]);
    assert!(answers[12].contains("streamed"), "what ran behind an answer: {}", answers[12]);
}

#[test]
fn an_answer_that_breaks_off_is_cut_off_in_both() {
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    for launch in [envoy, Launch::default()] {
        let served =
            serve("asgi", &format!("{STARLETTE}\napp.router.routes.append(Route('/breaks', breaks))\n"), launch);
        let address = served.proxy.address("listener");
        let mut client = RawClient::connect(address);
        client.send(get("/breaks").1);
        let head = client.response_head("GET").unwrap();
        assert_eq!(head.status, 200);
        let mut body = Vec::new();
        let ended = client.body(&head, &mut |piece| body.extend_from_slice(piece));
        assert_eq!((body.as_slice(), ended.is_err()), (b"first".as_slice(), true));
        assert_eq!(RawClient::once(address, get("/state/1").1).unwrap().status, 200);
    }
}

/// Fails at once behind a piece.
const FAILS: &str = r#"
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        raise ValueError("told to")
"#;

#[test]
fn an_application_that_fails_behind_a_piece_keeps_nobody_waiting() {
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    for launch in [envoy, Launch::default()] {
        let served = serve("asgi", FAILS, launch);
        let mut client = RawClient::connect(served.proxy.address("listener"));
        client.send(get("/").1);
        let head = client.response_head("GET").unwrap();
        let mut body = Vec::new();
        let ended = client.body(&head, &mut |piece| body.extend_from_slice(piece));
        assert_eq!((head.status, body.as_slice(), ended.is_err()), (200, b"first".as_slice(), true));
    }
}

/// Notes when it is started and ended, in the folder that it is told.
const LIFE: &str = r#"
import os

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            open(os.path.join(FOLDER, message["type"]), "w").close()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
"#;

#[test]
fn an_application_hears_that_it_begins() {
    let envoy = Launch::envoy().expect("Envoy 1.40 is needed to compare with: set ENVOY_BIN");
    for launch in [envoy, Launch::default()] {
        let shared = postrider_tests::kit::TempDir::new();
        let code = format!("FOLDER = {:?}\n{LIFE}", shared.path());
        let served = serve("asgi", &code, launch);
        assert_eq!(RawClient::once(served.proxy.address("listener"), get("/").1).unwrap().text(), "ok");
        wait_until("the beginning", || shared.path().join("lifespan.startup").exists());
    }
}
