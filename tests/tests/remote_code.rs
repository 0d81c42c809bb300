//! Code of plugins from elsewhere: a configuration waits for it, and what cannot be had changes nothing that works.

use std::sync::mpsc;

use postrider_tests::kit::config::{extension, http_filter, router};
use postrider_tests::kit::proxy::{Launch, accepted, run};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::plugins::{config, everything, manifest};
use postrider_tests::registry::{Shelf, gzip, ok, registry, sha256, tar};
use postrider_tests::tls::{Authority, upstream};
use postrider_tests::tls_origin::Serving;
use postrider_tests::{get, modules, postrider_only, wasm};
use serde_json::{Value, json};

/// A plugin that says its version in each response.
fn script(version: u32) -> String {
    format!(
        "require('rider')\nlocal plugin = {{}}\nfunction plugin.on_response() envoy.resp.set_header('x-version', \
         '{version}') end\nreturn plugin\n"
    )
}

/// A plugin with that code, whose failures are answered with 503.
fn plugin(remote: Value) -> Value {
    manifest("versioned", json!({"code": {"remote": remote}, "on_error": "503"}))
}

fn by_url(shelf: &Shelf, path: &str, code: &str) -> Value {
    json!({"url": shelf.url(path), "sha256": sha256(code), "retry_policy": {"num_retries": 0}})
}

/// With a folder for fetched code.
fn launch(cache: &TempDir) -> Launch {
    let folder = cache.path().join("code").to_string_lossy().into_owned();
    Launch { environment: vec![("POSTRIDER_CODE_CACHE".to_owned(), folder)], ..Launch::default() }
}

fn start(plugin: Value, origin: &Origin, cache: &TempDir) -> Proxy {
    Proxy::start_with(&config(&[plugin], everything(), origin), launch(cache))
}

/// What a request is answered.
fn version(proxy: &Proxy) -> (u16, String) {
    let answer = proxy.exchange(get("/"));
    (answer.status, answer.headers.values("x-version").join("|"))
}

fn is(version: u32) -> (u16, String) {
    (200, version.to_string())
}

fn count(proxy: &Proxy, name: &str) -> u64 {
    proxy.stats().value(&format!("code.remote_load_{name}"))
}

#[test]
fn code_is_fetched_before_the_start_and_kept() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    shelf.put("/plugin.lua", script(1));
    let plugin = plugin(by_url(&shelf, "/plugin.lua", &script(1)));
    let proxy = start(plugin.clone(), &origin, &cache);
    assert_eq!((version(&proxy), shelf.asked("/plugin.lua")), (is(1), 1));
    assert_eq!((count(&proxy, "cache_misses"), count(&proxy, "fetch_successes")), (1, 1));
    assert_eq!(count(&proxy, "cache_entries"), 1);
    assert_eq!(proxy.stats().sum("wasm.remote_load_", ""), 0, "those are of modules");
    let plugins = proxy.admin_json("/plugins?format=json").to_string();
    assert!(plugins.contains(&shelf.url("/plugin.lua")), "{plugins}");
    drop(proxy);

    let proxy = start(plugin.clone(), &origin, &cache);
    assert_eq!((version(&proxy), shelf.asked("/plugin.lua")), (is(1), 1), "from the cache");
    assert_eq!((count(&proxy, "cache_hits"), count(&proxy, "fetch_successes")), (1, 0));
    drop(proxy);

    std::fs::write(cache.path().join("code").join(sha256(script(1))), script(2)).unwrap();
    let proxy = start(plugin, &origin, &cache);
    assert_eq!((version(&proxy), shelf.asked("/plugin.lua")), (is(1), 2), "what the cache says is checked");
}

#[test]
fn the_user_that_a_url_names_is_told_to_its_host_and_to_nobody_else() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let other = Shelf::start();
    shelf.answer("/a", format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url("/b")));
    other.put("/b", script(1));
    let mut remote = by_url(&shelf, "/a", &script(1));
    let secret = |url: String| url.replacen("http://", "http://robot:s%33cret@", 1);
    remote["url"] = json!(secret(shelf.url("/a")));
    let mut proxy = start(plugin(remote.clone()), &origin, &cache);
    assert_eq!(version(&proxy), is(1));
    let asked = shelf.origin.requests();
    // robot:s3cret
    assert_eq!(asked[0].headers.values("authorization"), ["Basic cm9ib3Q6czNjcmV0"]);
    assert_eq!(asked[0].headers.values("host"), [shelf.origin.address.to_string()]);
    assert!(other.origin.requests()[0].headers.values("authorization").is_empty());
    remote["url"] = json!(secret(shelf.url("/none")));
    remote["sha256"] = json!(sha256(script(2)));
    let verdict = proxy.reload(config(&[plugin(remote)], everything(), &origin).to_yaml());
    assert!(!accepted(&verdict), "{verdict}");
    for told in [verdict.to_string(), proxy.stderr(), proxy.admin_get("/plugins").text().to_owned()] {
        assert!(!told.contains("cret"), "{told}");
    }
}

#[test]
fn redirects_are_followed_so_far() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let to = |path: &str| format!("HTTP/1.1 302 Found\r\nlocation: {path}\r\ncontent-length: 0\r\n\r\n");
    shelf.answer("/a", to("/b"));
    shelf.answer("/b", to(&shelf.url("/c")));
    shelf.put("/c", script(1));
    shelf.answer("/loop", to("loop"));
    let mut proxy = start(plugin(by_url(&shelf, "/a", &script(1))), &origin, &cache);
    assert_eq!(version(&proxy), is(1));
    let looping = config(&[plugin(by_url(&shelf, "/loop", &script(2)))], everything(), &origin);
    let verdict = proxy.reload(looping.to_yaml());
    assert!(!accepted(&verdict) && verdict.to_string().contains("more than 5 redirects"), "{verdict}");
    assert_eq!(version(&proxy), is(1));
}

#[test]
fn what_cannot_be_fetched_leaves_the_last_good_configuration_and_is_tried_again() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    shelf.put("/1.lua", script(1));
    let mut proxy = start(plugin(by_url(&shelf, "/1.lua", &script(1))), &origin, &cache);
    let next = config(&[plugin(by_url(&shelf, "/2.lua", &script(2)))], everything(), &origin).to_yaml();
    let refused = proxy.reload(&next);
    let text = refused.to_string();
    assert!(!accepted(&refused) && text.contains("cannot be fetched: the answer is 404"), "{text}");
    assert!(text.contains("proxy.yaml:") || text.contains(".yaml:"), "with its place: {text}");
    assert_eq!(version(&proxy), is(1));
    assert!(count(&proxy, "fetch_failures") >= 1);
    // Something else than what was asked for is not taken either, and nobody has to say so again.
    shelf.put("/2.lua", script(3));
    let before = count(&proxy, "fetch_failures");
    wait_until("another try", || count(&proxy, "fetch_failures") > before);
    assert_eq!(version(&proxy), is(1));
    shelf.put("/2.lua", script(2));
    wait_until("the new plugin", || version(&proxy) == is(2));
    assert!(accepted(&proxy.latest_verdict().unwrap()));
}

#[test]
fn at_the_start_a_plugin_without_its_code_fails_by_its_policy_until_it_is_there() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let remote = by_url(&shelf, "/plugin.lua", &script(1));
    let open = manifest("open", json!({"code": {"remote": remote.clone()}, "on_error": "continue"}));
    let without = json!({
        "match": {"prefix": "/without"}, "route": {"cluster": "origin"},
        "typed_per_filter_config": {"versioned": {
            "@type": postrider_tests::plugins::MANIFEST_ROUTE, "disabled": true,
        }},
    });
    let rest = json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}});
    let plan = config(&[open, plugin(remote)], json!([without, rest]), &origin);
    let proxy = Proxy::start_with(&plan, launch(&cache));
    assert_eq!(version(&proxy), (503, String::new()));
    assert_eq!(proxy.exchange(get("/without")).status, 200);
    shelf.put("/plugin.lua", script(1));
    wait_until("the plugins", || version(&proxy) == (200, "1".to_owned()));
}

#[test]
fn a_module_that_is_not_there_lets_nothing_pass_unless_it_fails_open() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let module = std::fs::read(wasm::module("c", "passthrough")).unwrap();
    let site = |policy: &str| {
        let uri = json!({"uri": "http://code.test/module.wasm", "cluster": "code", "timeout": "5s"});
        let code = json!({"remote": {"http_uri": uri, "sha256": sha256(&module), "retry_policy": {"num_retries": 0}}});
        let filter = wasm::with_code(code, &json!({}), json!({"failure_policy": policy}));
        config(&[filter], everything(), &origin).cluster("code", &[shelf.origin.address])
    };
    let status = |proxy: &Proxy| proxy.exchange(get("/")).status;
    for (policy, wanted) in [("FAIL_OPEN", 200), ("UNSPECIFIED", 503), ("FAIL_RELOAD", 503), ("FAIL_CLOSED", 503)] {
        let proxy = Proxy::start_with(&site(policy), launch(&cache));
        assert_eq!(status(&proxy), wanted, "{policy}");
        if policy == "FAIL_CLOSED" {
            shelf.put("/module.wasm", &module);
            wait_until("the module", || status(&proxy) == 200);
            let counted = |name: &str| proxy.stats().value(&format!("wasm.remote_load_{name}"));
            let names = ["cache_misses", "fetch_successes", "cache_hits", "cache_entries"];
            assert_eq!(names.map(counted), [1, 1, 0, 1]);
            let failures = counted("fetch_failures");
            assert!(failures >= 1 && failures == count(&proxy, "fetch_failures"));
        }
    }
}

const OF_MODULES: &str = "dynamic_modules.v3.DynamicModule";

/// A native module that is asked of a cluster, as Envoy has it.
fn native(module: &[u8]) -> Value {
    let uri = json!({"uri": "http://code.test/filters.so", "cluster": "code", "timeout": "5s"});
    json!({"module": {"remote": {"http_uri": uri, "sha256": sha256(module), "retry_policy": {"num_retries": 0}}}})
}

#[test]
fn native_modules_come_from_elsewhere_and_let_everything_pass_until_they_are_here() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let module = std::fs::read(modules::filters()).unwrap();
    let credentials = |pair: &str| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": pair});
    let filter = |pair: &str| {
        let fields = json!({
            "dynamic_module_config": native(&module), "filter_name": "basic_auth", "filter_config": credentials(pair),
        });
        extension("envoy.filters.http.dynamic_modules", &format!("filters.http.{OF_MODULES}Filter"), fields)
    };
    let site = |pair: &str| config(&[filter(pair)], everything(), &origin).cluster("code", &[shelf.origin.address]);
    let with = launch(&cache);
    let mut proxy = Proxy::start_with(&site("dXNlcjpwYXNz"), with.clone());
    assert_eq!(proxy.exchange(get("/")).status, 200, "as in Envoy, what is not here lets everything pass");
    let before = proxy.latest_verdict();
    shelf.put("/filters.so", &module);
    wait_until("the module", || proxy.exchange(get("/")).status == 401);
    // It serves before its verdict is told, which is not that of the next file.
    assert!(accepted(&proxy.await_verdict(before.as_ref())));
    let known = get("/").replace("\r\n\r\n", "\r\nauthorization: Basic dXNlcjpwYXNz\r\n\r\n");
    assert_eq!(proxy.exchange(&*known).status, 200);

    // Another configuration of the same module needs nobody to be asked; what is not what was asked for is refused.
    let asked = shelf.asked("/filters.so");
    assert!(accepted(&proxy.reload(site("b3RoZXI6cGFzcw==").to_yaml())));
    assert_eq!((proxy.exchange(&*known).status, shelf.asked("/filters.so")), (401, asked));
    let other = site("b3RoZXI6cGFzcw==").to_yaml().replace(&sha256(&module), &"0".repeat(64));
    let verdict = proxy.reload(other);
    assert!(!accepted(&verdict) && verdict.to_string().contains("its SHA-256 is"), "{verdict}");
    assert_eq!(proxy.exchange(&*known).status, 401, "the last good configuration serves");
}

#[test]
fn native_modules_from_elsewhere_see_connections_listeners_and_records() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    for (path, module) in
        [("/c.so", modules::connections()), ("/l.so", modules::listeners()), ("/r.so", modules::logger())]
    {
        shelf.put(path, std::fs::read(module).unwrap());
    }
    let of = |path: &str, module: &std::path::Path| {
        let sum = sha256(std::fs::read(module).unwrap());
        json!({"module": {"remote": {"http_uri": {
            "uri": shelf.url(path), "cluster": "_", "timeout": "5s",
        }, "sha256": sum}}})
    };
    let text = |value: &str| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": value});
    let lines = cache.path().join("lines");
    let network = extension(
        "c",
        &format!("filters.network.{OF_MODULES}NetworkFilter"),
        json!({
            "dynamic_module_config": of("/c.so", modules::connections()), "filter_name": "eights",
        }),
    );
    let listener = extension(
        "l",
        &format!("filters.listener.{OF_MODULES}ListenerFilter"),
        json!({
            "dynamic_module_config": of("/l.so", modules::listeners()), "filter_name": "tells",
        }),
    );
    let logger = extension(
        "r",
        &format!("access_loggers.{OF_MODULES}AccessLog"),
        json!({
            "dynamic_module_config": of("/r.so", modules::logger()), "logger_name": "lines",
            "logger_config": text(lines.to_str().unwrap()),
        }),
    );
    let routes = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": everything()}]});
    let http = http_filter(json!({"route_config": routes, "access_log": [logger]}));
    let site = Config::new()
        .listener("http", json!({"listener_filters": [listener], "filter_chains": [{"filters": [network, http]}]}))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&site, launch(&cache));
    assert_eq!(proxy.exchange(get("/")).status, 200);
    wait_until("a record", || std::fs::read_to_string(&lines).is_ok_and(|text| !text.is_empty()));
    wait_until("the module of connections", || proxy.stats().value("dynamicmodulescustom.connected") >= 1);
    assert_eq!((count(&proxy, "fetch_successes"), count(&proxy, "fetch_failures")), (3, 0));
    let plugins = proxy.admin_json("/plugins?format=json");
    let names: Vec<&str> =
        plugins["plugins"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c", "l", "r"], "{plugins}");
    assert_eq!(plugins["plugins"][0]["places"][0]["listener"], "http", "{plugins}");
}

#[test]
fn native_plugins_by_manifest_come_from_elsewhere_by_their_sum_alone() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let module = std::fs::read(modules::plugins_in_c()).unwrap();
    shelf.put("/plugins.so", &module);
    let plugin = |remote: Value| {
        let options = json!({"filter_name": "passthrough"});
        manifest("native", json!({"runtime": "native", "code": {"remote": remote}, "options": options}))
    };
    let good = json!({"url": shelf.url("/plugins.so"), "sha256": sha256(&module)});
    let mut proxy = start(plugin(good), &origin, &cache);
    assert_eq!(proxy.exchange(get("/")).status, 200);
    assert!(proxy.admin_json("/plugins?format=json").to_string().contains(&shelf.url("/plugins.so")));
    for (remote, reason) in [
        (json!({"url": shelf.url("/plugins.so")}), "there is no `sha256`"),
        (json!({"url": "oci://r.io/a:1"}), "not an image"),
    ] {
        let verdict = proxy.reload(config(&[plugin(remote)], everything(), &origin).to_yaml());
        assert!(!accepted(&verdict) && verdict.to_string().contains(reason), "{verdict}");
    }
}

#[test]
fn traffic_goes_on_while_code_is_on_its_way() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    shelf.put("/1.lua", script(1));
    let (go, wait) = mpsc::sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let slow = Origin::start(move |connection| {
        while connection.request().is_some() {
            let _ = wait.lock().unwrap().recv();
            connection.write(&ok("text/plain", script(2)));
        }
    });
    let proxy = start(plugin(by_url(&shelf, "/1.lua", &script(1))), &origin, &cache);
    let url = format!("http://{}/2.lua", slow.address);
    let remote = json!({"url": url, "sha256": sha256(script(2))});
    let next = config(&[plugin(remote)], everything(), &origin).to_yaml();
    let name = proxy.config_path().file_name().unwrap().to_str().unwrap().to_owned();
    proxy.directory().write(&name, next);
    let before = proxy.latest_verdict();
    slow.wait_requests(1);
    assert_eq!((version(&proxy), proxy.latest_verdict()), (is(1), before.clone()));
    go.send(()).unwrap();
    assert!(accepted(&proxy.await_verdict(before.as_ref())));
    assert_eq!(version(&proxy), is(2));
}

#[test]
fn a_cluster_is_asked_in_its_way() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, cache) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    shelf.put("/plugin.lua", script(1));
    let through = |cluster: &str, version: u32| {
        let uri = json!({"uri": "https://code.test/plugin.lua", "cluster": cluster, "timeout": "5s"});
        plugin(json!({"http_uri": uri, "sha256": sha256(script(version))}))
    };
    let authority = Authority::new("code");
    let answer = String::from_utf8(ok("text/plain", script(2))).unwrap();
    let secure = Serving::new(&authority.issue(&["code.test"])).answering_once(&answer, true).start();
    let context = json!({"sni": "code.test", "common_tls_context": {"validation_context": {
        "trusted_ca": {"inline_string": authority.pem()},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "code.test"}}],
    }}});
    let sites = |plugin: Value| {
        config(&[plugin], everything(), &origin).cluster("code", &[shelf.origin.address]).cluster_with(
            "secure",
            &[secure.address],
            json!({"transport_socket": upstream(context.clone())}),
        )
    };
    let mut proxy = Proxy::start_with(&sites(through("code", 1)), launch(&cache));
    assert_eq!(version(&proxy), is(1));
    let seen = &shelf.origin.requests()[0];
    assert_eq!((seen.target.as_str(), seen.headers.values("host")), ("/plugin.lua", vec!["code.test"]));
    let verdict = proxy.reload(sites(through("secure", 2)).to_yaml());
    assert!(accepted(&verdict), "{verdict}");
    assert_eq!(version(&proxy), is(2));
    assert_eq!(secure.hellos()[0].server_name.as_deref(), Some("code.test"));
}

const MODULE: &str = "application/vnd.module.wasm.content.layer.v1+wasm";
const OCI_ARCHIVE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER_ARCHIVE: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

fn image(shelf: &Shelf, name: &str, more: Value) -> Value {
    let mut remote = json!({
        "url": format!("oci://{}/{name}", shelf.host()), "insecure": true, "retry_policy": {"num_retries": 0},
    });
    for (key, value) in more.as_object().unwrap() {
        remote[key] = value.clone();
    }
    remote
}

#[test]
fn images_are_artifacts_and_archives() {
    if !postrider_only() {
        return;
    }
    let (origin, cache) = (Origin::echo("a"), TempDir::new());
    let shelf = registry(None);
    let archive = |version: u32| gzip(&tar("plugin.wasm", script(version)));
    shelf.image("plugins/module", "v1", &[(MODULE, script(1).as_bytes())]);
    shelf.image("plugins/oci", "v1", &[(OCI_ARCHIVE, b"base"), (OCI_ARCHIVE, &archive(2))]);
    shelf.image("plugins/docker", "v1", &[(DOCKER_ARCHIVE, &archive(3))]);
    let listed = shelf.image("plugins/list", "inner", &[(MODULE, script(4).as_bytes())]);
    let entry =
        |digest: &str, kind: &str| json!({"digest": format!("sha256:{digest}"), "platform": {"architecture": kind}});
    let list = json!({"manifests": [entry(&"0".repeat(64), "amd64"), entry(&listed, "wasm")]});
    let sum = shelf.manifest("plugins/list", "v1", &list);
    let mut proxy = start(plugin(image(&shelf, "plugins/module:v1", json!({}))), &origin, &cache);
    assert_eq!(version(&proxy), is(1));
    for (name, wanted) in [
        ("plugins/oci:v1".to_owned(), 2),
        ("plugins/docker:v1".to_owned(), 3),
        (format!("plugins/list@sha256:{sum}"), 4),
    ] {
        let next = config(&[plugin(image(&shelf, &name, json!({})))], everything(), &origin);
        let verdict = proxy.reload(next.to_yaml());
        assert!(accepted(&verdict), "{name}: {verdict}");
        assert_eq!(version(&proxy), is(wanted), "{name}");
    }
    shelf.image("plugins/other", "v1", &[("application/vnd.oci.image.layer.v1.tar+zstd", b"x")]);
    shelf.image("plugins/empty", "v1", &[(OCI_ARCHIVE, &gzip(&tar("other.wasm", "x")))]);
    // Hears a greeting where it is not plain HTTP.
    let closing = Origin::start(|_| {});
    let silent = format!("oci://{}/a:v1", closing.address);
    for (name, more, reason) in [
        ("plugins/none:v1", json!({}), "the registry answers 404"),
        ("plugins/other:v1", json!({}), "tar+zstd"),
        ("plugins/empty:v1", json!({}), "has no plugin.wasm"),
        ("plugins/oci:v1", json!({"sha256": "0".repeat(64)}), "the SHA-256 of its manifest is"),
        ("plugins/none:v2", json!({"insecure": false, "url": silent}), "TLS with"),
        ("plugins/OCI:v1", json!({}), "is no image"),
    ] {
        let next = config(&[plugin(image(&shelf, name, more))], everything(), &origin);
        let verdict = proxy.reload(next.to_yaml());
        assert!(!accepted(&verdict) && verdict.to_string().contains(reason), "{name}: {verdict}");
        assert_eq!(version(&proxy), is(4), "{name}");
    }
}

/// Adds a field to answers, and counts connections, records and services in which it is.
const EVERYWHERE: &str = r#"
    (func $count (param i32 i32)
        (drop (call $define_metric (i32.const 0) (local.get 0) (local.get 1) (i32.const 32)))
        (drop (call $increment (i32.load (i32.const 32)) (i64.const 1))))
    (func (export "proxy_on_configure") (param i32 i32) (result i32) (call $count $"configured") (i32.const 1))
    (func (export "proxy_on_tick") (param i32))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $add (i32.const 2) $"x-version" $"7")) (i32.const 0))
    (func (export "proxy_on_new_connection") (param i32) (result i32) (call $count $"connections") (i32.const 0))
    (func (export "proxy_on_log") (param i32) (call $count $"records"))"#;

/// A module's configuration as Istio has it.
fn as_istio_has_it(shelf: &Shelf, image: &str, vm_id: &str, secret: &str) -> Value {
    let uri = json!({"uri": format!("oci://{}/{image}", shelf.host()), "cluster": "_", "timeout": "30s"});
    json!({"name": vm_id, "root_id": "root", "vm_config": {
        "vm_id": vm_id, "runtime": "envoy.wasm.runtime.v8",
        "code": {"remote": {"http_uri": uri, "sha256": "nil", "retry_policy": {"num_retries": 0}}},
        "environment_variables": {"key_values": {
            "ISTIO_META_WASM_IMAGE_PULL_SECRET": secret,
            "ISTIO_META_WASM_IMAGE_PULL_POLICY": "IfNotPresent",
            "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "1",
        }},
    }})
}

#[test]
fn images_are_modules_of_filters_loggers_and_services_as_istio_names_them() {
    if !postrider_only() {
        return;
    }
    let (origin, cache) = (Origin::echo("a"), TempDir::new());
    let shelf = registry(Some("robot:secret"));
    let module = wasm::text_module("0_2_1", EVERYWHERE);
    let archive = gzip(&tar("plugin.wasm", &module));
    shelf.image("private/http", "v1", &[(MODULE, &module)]);
    shelf.image("private/tcp", "v1", &[(OCI_ARCHIVE, &archive)]);
    shelf.image("private/log", "v1", &[(DOCKER_ARCHIVE, &archive)]);
    let sum = shelf.image("private/service", "v1", &[(MODULE, &module)]);
    let secret = json!({"auths": {shelf.host(): {"username": "robot", "password": "secret"}}}).to_string();
    let of = |image: &str, name: &str| json!({"config": as_istio_has_it(&shelf, image, name, &secret)});
    let site = || {
        let filter = extension("envoy.filters.http.wasm", "filters.http.wasm.v3.Wasm", of("private/http:v1", "http"));
        let network = extension("tcp", "filters.network.wasm.v3.Wasm", of("private/tcp:v1", "tcp"));
        let logger = extension("log", "access_loggers.wasm.v3.WasmAccessLog", of("private/log:v1", "log"));
        let mut service = extension("service", "x", of(&format!("private/service@sha256:{sum}"), "service"));
        service["typed_config"]["@type"] = json!("type.googleapis.com/envoy.extensions.wasm.v3.WasmService");
        let routes = json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": everything()}]});
        let http = json!({"http_filters": [filter, router()], "route_config": routes, "access_log": [logger]});
        Config::new()
            .listener("http", json!({"filter_chains": [{"filters": [network, http_filter(http)]}]}))
            .cluster("origin", &[origin.address])
            .overlay(json!({"bootstrap_extensions": [service]}))
    };
    let mut with = launch(&cache);
    with.environment.push(("WASM_INSECURE_REGISTRIES".to_owned(), shelf.host()));
    let proxy = Proxy::start_with(&site(), with.clone());
    assert_eq!(version(&proxy), is(7));
    wait_until("records of filter and logger", || proxy.stats().value("wasmcustom.records") >= 2);
    assert!(proxy.stats().value("wasmcustom.connections") >= 1);
    assert!(proxy.stats().value("wasmcustom.configured") >= 4);
    assert!(!proxy.admin_json("/plugins?config=1&format=json").to_string().contains("robot"));
    assert!(!proxy.stderr().contains("robot"), "no password in the log");
    drop(proxy);

    let asked = shelf.origin.requests().len();
    let proxy = Proxy::start_with(&site(), with);
    assert_eq!((version(&proxy), shelf.origin.requests().len()), (is(7), asked), "from the cache");
}

#[test]
fn a_private_registry_takes_a_pull_secret() {
    if !postrider_only() {
        return;
    }
    let (origin, cache) = (Origin::echo("a"), TempDir::new());
    let shelf = registry(Some("robot:secret"));
    shelf.image("private", "v1", &[(MODULE, script(1).as_bytes())]);
    let secret = |password: &str| {
        let auths = json!({"auths": {shelf.host(): {"username": "robot", "password": password}}});
        cache.write(&format!("{password}.json"), auths.to_string()).to_str().unwrap().to_owned()
    };
    let with = |password: &str| plugin(image(&shelf, "private:v1", json!({"image_pull_secret": secret(password)})));
    let mut proxy = start(with("wrong"), &origin, &cache);
    assert_eq!(version(&proxy).0, 503);
    assert!(!proxy.stderr().contains("wrong\""), "no password in the log");
    let verdict = proxy.reload(config(&[with("secret")], everything(), &origin).to_yaml());
    assert!(accepted(&verdict), "{verdict}");
    assert_eq!(version(&proxy), is(1));
    let scopes = "/token?service=test&scope=repository:private:pull";
    assert!(shelf.asked(scopes) >= 2);
}

#[test]
fn images_that_istio_takes_are_taken() {
    if !postrider_only() {
        return;
    }
    let (origin, cache) = (Origin::echo("a"), TempDir::new());
    // It leaves it to its clients to say what a token is for.
    let shelf = Shelf::guarded(|request| {
        let (host, shown) =
            (request.headers.values("host").join("|"), request.headers.values("authorization").join("|"));
        if request.target.starts_with("/token?") {
            return Some(match shown.is_empty() {
                true => b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec(),
                false => ok("application/json", json!({"access_token": "t"}).to_string()),
            });
        }
        let challenge = format!("Bearer realm=\"http://{host}/token\"");
        let denied = format!("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: {challenge}\r\ncontent-length: 0\r\n\r\n");
        (shown != "Bearer t").then(|| denied.into_bytes())
    });
    // Docker takes the URL for its host.
    let auths =
        json!({"auths": {format!("https://{}/v2/", shelf.host()): {"username": "robot", "password": "secret"}}});
    let secret = cache.write("secret.json", auths.to_string());
    shelf.image("below", "v1", &[(OCI_ARCHIVE, &gzip(&tar("opt/plugin.wasm", script(1))))]);
    shelf.image("plain", "v1", &[("application/wasm", script(2).as_bytes())]);
    let inner = shelf.image("listed", "inner", &[(MODULE, script(3).as_bytes())]);
    let list = json!({"manifests": [{"digest": format!("sha256:{inner}"), "platform": {"architecture": "wasm"}}]});
    shelf.manifest("listed", "v1", &list);
    let with = |name: &str, more: Value| {
        let mut remote = image(&shelf, name, json!({"image_pull_secret": secret.to_str().unwrap()}));
        for (key, value) in more.as_object().unwrap() {
            remote[key] = value.clone();
        }
        plugin(remote)
    };
    let mut proxy = start(with("below:v1", json!({})), &origin, &cache);
    assert_eq!(version(&proxy), is(1));
    assert!(shelf.asked("/token?scope=repository:below:pull") >= 1);
    for (next, wanted) in [(with("plain:v1", json!({})), 2), (with("listed:v1", json!({"sha256": inner})), 3)] {
        let verdict = proxy.reload(config(&[next], everything(), &origin).to_yaml());
        assert!(accepted(&verdict), "{verdict}");
        assert_eq!(version(&proxy), is(wanted));
    }
}

#[test]
fn a_tag_that_moves_is_looked_for_with_each_reload() {
    if !postrider_only() {
        return;
    }
    let (origin, cache) = (Origin::echo("a"), TempDir::new());
    let shelf = registry(None);
    shelf.image("moving", "latest", &[(MODULE, script(1).as_bytes())]);
    let mut proxy = start(plugin(image(&shelf, "moving", json!({}))), &origin, &cache);
    assert_eq!(version(&proxy), is(1));
    shelf.image("moving", "latest", &[(MODULE, script(2).as_bytes())]);
    let before = proxy.latest_verdict();
    proxy.signal("HUP");
    assert!(accepted(&proxy.await_verdict(before.as_ref())));
    assert_eq!(version(&proxy), is(2));
    // Only the manifest is asked for when the code is here.
    let blobs = |shelf: &Shelf| shelf.origin.requests().iter().filter(|it| it.target.contains("/blobs/")).count();
    let asked = blobs(&shelf);
    let before = proxy.latest_verdict();
    proxy.signal("HUP");
    assert!(accepted(&proxy.await_verdict(before.as_ref())));
    assert_eq!((version(&proxy), blobs(&shelf)), (is(2), asked));
}

#[test]
fn validate_contacts_nobody_and_says_so() {
    if !postrider_only() {
        return;
    }
    let (origin, shelf, folder) = (Origin::echo("a"), Shelf::start(), TempDir::new());
    let text = config(&[plugin(by_url(&shelf, "/plugin.lua", "x"))], everything(), &origin).to_yaml();
    let file = folder.write("proxy.yaml", text);
    let done = run(&["validate", file.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("is not fetched here, so the plugin was not tried"), "{}", done.stderr);
    assert_eq!(shelf.origin.connection_count(), 0);
}
