//! `postrider plugin new`, `test` and `run`, as somebody who writes a plugin uses them.

use std::time::{Duration, Instant};

use postrider_tests::kit::proxy::{Launch, run};
use postrider_tests::kit::{Origin, Proxy, TempDir};
use postrider_tests::{get, postrider_only};

#[test]
fn a_plugin_that_is_no_script_is_refused_by_what_it_is() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    for (bytes, what) in
        [("\0asm\u{1}\0\0\0", "a WebAssembly module"), ("\u{7f}ELF", "a native module or a Go library")]
    {
        let file = directory.write("plugin.bin", bytes);
        for runtime in ["auto", "rider"] {
            let tried = run(&["plugin", "run", file.to_str().unwrap(), "--runtime", runtime]);
            assert_ne!(tried.code, Some(0));
            assert!(tried.stderr.contains(what) && tried.stderr.contains("only scripts"), "{}", tried.stderr);
        }
    }
}

#[test]
fn a_plugin_from_nothing_is_tested_tried_and_served() {
    if !postrider_only() {
        return;
    }
    for runtime in ["rider", "envoy-lua"] {
        let directory = TempDir::new();
        let folder = directory.path().join("greeter");
        let new = ["plugin", "new", "greeter", "--runtime", runtime, "--dir", directory.path().to_str().unwrap()];
        let made = run(&new);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        assert_eq!(run(&new).code, Some(1), "nothing is overwritten");

        let began = Instant::now();
        let tested = run(&["plugin", "test", folder.to_str().unwrap()]);
        assert_eq!(tested.code, Some(0), "{}", tested.stdout);
        for part in ["3 passed, 0 failed", "plugin.lua: 100% of lines"] {
            assert!(tested.stdout.contains(part), "{part} in {}", tested.stdout);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

        let file = folder.join("plugin.lua");
        let plugin = file.to_str().unwrap();
        let tried = run(&["plugin", "run", plugin, "--request", "GET /hello", "-H", "x-greeting: old"]);
        assert_eq!(tried.code, Some(0), "{}", tried.stderr);
        for edit in ["x-greeting", "old", "hello", "x-plugin", "greeter"] {
            assert!(tried.stdout.contains(edit), "{edit} in {}", tried.stdout);
        }
        let refused = run(&["plugin", "run", plugin, "-H", "x-refuse: 1"]);
        assert!(refused.stdout.contains("403") && refused.stdout.contains("refused by greeter"), "{}", refused.stdout);

        // The configuration beside it, but for places.
        let origin = Origin::echo("a");
        let port = origin.address.port();
        let text = std::fs::read_to_string(folder.join("proxy.yaml")).unwrap();
        let text = text
            .replace("port_value: 8080", "port_value: 0")
            .replace("port_value: 9901", "port_value: 0")
            .replace("port_value: 9000", &format!("port_value: {port}"))
            .replace("127.0.0.1:8080", "127.0.0.1:0")
            .replace("127.0.0.1:9901", "127.0.0.1:0")
            .replace("127.0.0.1:9000", &format!("127.0.0.1:{port}"))
            .replace("plugin.lua }", &format!("{plugin} }}"))
            .replace("code: plugin.lua", &format!("code: {plugin}"));
        let config = directory.write("served.yaml", text);
        let proxy = Proxy::start_file(directory, config, Launch::default());
        let listeners = proxy.admin_json("/listeners?format=json");
        let name = listeners["listener_statuses"][0]["name"].as_str().unwrap().to_owned();
        let response = postrider_tests::kit::RawClient::connect(proxy.address(&name)).exchange(get("/hello"));
        assert_eq!((response.status, response.header("x-plugin")), (200, "greeter"), "{runtime}");
        assert_eq!(origin.requests()[0].header("x-greeting"), "hello", "{runtime}");
    }
}

#[test]
fn a_case_that_fails_is_told_with_its_place() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    directory.write(
        "plugin.lua",
        "require('rider.v2')\nlocal p = { version = 'v2' }\nfunction p.on_request_header()\n  \
         if envoy.req.get_header('x-other') then\n    envoy.req.set_header('x-a', 'other')\n  end\nend\nreturn p\n",
    );
    directory.write(
        "plugin_test.lua",
        "local test = require('postrider.test')\ntest.case('greets', function()\n  \
         test.equal(test.stream {}:run().request.headers['x-a'], 'b')\nend)\n",
    );
    let tested = run(&["plugin", "test", directory.path().to_str().unwrap()]);
    assert_eq!(tested.code, Some(1));
    for part in ["FAIL  greets", "plugin_test.lua:3", "expected", "0 passed, 1 failed", "not run: 5"] {
        assert!(tested.stdout.contains(part), "{part} in {}", tested.stdout);
    }
}

#[test]
fn a_run_shows_calls_errors_and_configurations() {
    if !postrider_only() {
        return;
    }
    let directory = TempDir::new();
    let file = directory.write(
        "plugin.lua",
        "require('rider')\nlocal p = {}\nfunction p.on_request()\n  \
         local headers, body = envoy.httpCall('auth', { [':method'] = 'GET', [':path'] = '/check', [':authority'] = 'a' }, nil, 100)\n  \
         envoy.req.set_header('x-auth', headers[':status'] .. body .. envoy.get_route_config().word)\n  error('on purpose')\nend\nreturn p\n",
    );
    let plugin = file.to_str().unwrap();
    let tried = run(&["plugin", "run", plugin, "--call", "auth=200:welcome", "--route-config", r#"{"word": "!"}"#]);
    assert_eq!(tried.code, Some(1), "an error is one");
    for part in ["auth", "/check", "200welcome!", "plugin.lua:6: on purpose"] {
        assert!(tried.stdout.contains(part), "{part} in {}", tried.stdout);
    }
    let failed = run(&["plugin", "run", plugin, "--call", "auth=nonsense"]);
    assert_eq!(failed.code, Some(2), "{}", failed.stderr);
}
