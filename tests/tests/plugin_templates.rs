//! Templates of `postrider plugin new` that are compiled: from nothing to a request that is served.

use std::path::Path;
use std::process::Command;

use postrider_tests::kit::proxy::{Launch, run};
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir};
use postrider_tests::{get, needed, postrider_only, wasm};

/// Makes a plugin, builds it by `build`, and serves requests with the configuration beside it. `greeting` is what upstreams
/// get, and `built` is what the configuration names.
fn is_built_and_serves(runtime: &str, built: &str, greeting: &str, build: impl Fn(&Path)) {
    let directory = TempDir::new();
    let dir = directory.path().to_str().unwrap();
    let made = run(&["plugin", "new", "greeter", "--runtime", runtime, "--dir", dir]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let folder = directory.path().join("greeter");
    build(&folder);
    let tested = run(&["plugin", "test", folder.to_str().unwrap()]);
    assert_eq!(tested.code, Some(0), "{}", tested.stdout);
    assert!(tested.stdout.contains("2 passed, 0 failed"), "{}", tested.stdout);

    let origin = Origin::echo("a");
    let text = std::fs::read_to_string(folder.join("proxy.yaml")).unwrap();
    let text = text
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:9901", "127.0.0.1:0")
        .replace("127.0.0.1:9000", &origin.address.to_string())
        .replace(built, folder.join(built).to_str().unwrap());
    let config = directory.write("served.yaml", text);
    let proxy = Proxy::start_file(directory, config, Launch::default());
    let ask = |request: &str| RawClient::connect(proxy.address("http")).exchange(request);
    let response = ask(&get("/hello"));
    assert_eq!((response.status, response.header("x-plugin")), (200, "greeter"), "{runtime}");
    assert_eq!(origin.requests()[0].header("x-greeting"), greeting, "{runtime}");
    let refused = ask("GET / HTTP/1.1\r\nhost: test\r\nx-refuse: 1\r\n\r\n");
    assert_eq!((refused.status, refused.text()), (403, "refused by greeter\n"), "{runtime}");
    assert_eq!(ask(&get("/quiet")).header("x-plugin"), "", "{runtime}");
}

/// Builds with what is on this machine: the tests' own modules use the same. Where only what they became is there, it is
/// fetched as theirs was.
fn is_built(apart: impl Fn() -> Command, together: impl Fn() -> Command) {
    let run = |mut command: Command| {
        let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        (done.status.success(), format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr)))
    };
    let (succeeded, _) = run(apart());
    if !succeeded {
        let (succeeded, said) = run(together());
        assert!(succeeded, "{said}");
    }
}

#[test]
fn a_wasm_plugin_from_nothing_is_built_and_served() {
    // A compiler for that target is not everywhere.
    if !postrider_only() || !wasm::languages().contains(&"rust") {
        return;
    }
    let built = "target/wasm32-wasip1/release/plugin.wasm";
    is_built_and_serves("wasm", built, r#"{"greeting":"hello"}"#, |folder| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = |more: &[&str]| {
            let mut command = Command::new(&cargo);
            command.current_dir(folder).env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
            command.args(["build", "--quiet", "--release", "--target", "wasm32-wasip1"]).args(more);
            command
        };
        is_built(|| build(&["--offline"]), || build(&[]));
    });
}

#[test]
fn a_go_plugin_from_nothing_is_built_and_served() {
    if !postrider_only() {
        return;
    }
    is_built_and_serves("go", "plugin.so", "hello", |folder| {
        // The sums of the tests' own modules, so that nothing is asked of the network.
        let sums = concat!(env!("CARGO_MANIFEST_DIR"), "/modules/golang/go.sum");
        std::fs::copy(sums, folder.join("go.sum")).unwrap();
        let build = || {
            let mut command = Command::new(needed("go"));
            command.current_dir(folder).env("GOFLAGS", "-mod=mod").env("CGO_ENABLED", "1");
            command.args(["build", "-buildmode=c-shared", "-o", "plugin.so", "."]);
            command
        };
        let apart = || {
            let mut command = build();
            command.env("GOPROXY", "off");
            command
        };
        is_built(apart, build);
    });
}
