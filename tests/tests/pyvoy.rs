//! pip's package `pyvoy`, whose module runs Python applications in the proxy, as it comes. See `.ci/pyvoy`.

use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Proxy, TempDir};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The folder that `.ci/pyvoy` made; `None` where nobody did, which a test says.
fn installed() -> Option<PathBuf> {
    let folder = std::env::var_os("PYVOY").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: PYVOY does not name the folder that .ci/pyvoy makes");
    }
    folder
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

struct Served {
    proxy: Proxy,
    _folder: TempDir,
}

/// The application behind pyvoy's own configuration and environment.
fn serve(tool: &std::path::Path, interface: &str, application: &str) -> Served {
    let folder = TempDir::new();
    std::fs::write(folder.path().join("application.py"), application).unwrap();
    // What `pyvoy --print-envoy-config` and `--print-envoy-entrypoint` print, as values.
    let script = "import json, sys\n\
                  from pyvoy._server import PyvoyServer, get_envoy_environ\n\
                  server = PyvoyServer('application:app', interface=sys.argv[1])\n\
                  print(json.dumps([server.get_envoy_config(), get_envoy_environ()]))";
    let told = Command::new(tool.join("bin/python"))
        .args(["-c", script, interface])
        .current_dir(folder.path())
        .env("PYTHONPATH", folder.path())
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let [config, environment]: [Value; 2] = serde_json::from_slice(&told.stdout).unwrap();
    let file = folder.path().join("proxy.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let variables = environment.as_object().unwrap();
    let environment = variables.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
    let launch = Launch { environment: environment.collect(), ..Launch::default() };
    Served { proxy: Proxy::start_file(TempDir::new(), file, launch), _folder: folder }
}

fn serves(interface: &str, application: &str, status: u16, kind: &str) {
    let Some(tool) = installed() else { return };
    let served = serve(&tool, interface, application);
    let address = served.proxy.address("listener");
    for body in [String::new(), "a small letter ".repeat(20_000)] {
        let head = format!("POST /some/where?q HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len());
        let answer = postrider_tests::kit::RawClient::once(address, head + &body).unwrap();
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
