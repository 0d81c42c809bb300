//! pip's package `pyvoy` with Python applications, as `.ci/pyvoy` installs them.

use crate::kit::proxy::Launch;
use crate::kit::{Proxy, TempDir};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An application that a proxy serves.
pub struct Served {
    pub proxy: Proxy,
    pub folder: TempDir,
}

/// The folder that `.ci/pyvoy` made; panics when nobody did.
fn installed() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let folder = std::env::var_os("PYVOY").map_or_else(|| target.join("tools/pyvoy"), PathBuf::from);
    let python = folder.join("bin/python");
    assert!(python.exists(), "there is no {}: `make test` installs pyvoy, or .ci/pyvoy", python.display());
    std::path::absolute(folder).unwrap()
}

/// The application behind pyvoy's own configuration and environment; `interface` is `asgi` or `wsgi`.
pub fn serve(interface: &str, application: &str, launch: Launch) -> Served {
    let tool = installed();
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
    // Python's sets have the same order in every process.
    let fixed = [("PYTHONHASHSEED".to_owned(), "0".to_owned())];
    let launch = Launch { environment: environment.chain(fixed).collect(), ..launch };
    Served { proxy: Proxy::start_file(TempDir::new(), file, launch), folder }
}
