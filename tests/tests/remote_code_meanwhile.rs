//! Code of plugins that is on its way or cannot be had, and what else changes meanwhile: neither keeps the other back, and
//! what serves goes on serving.

use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Gate, Origin, Proxy, RawClient, Response, TempDir, wait_until};
use postrider_tests::plugins::{config, everything, manifest};
use postrider_tests::registry::{Shelf, ok, registry, sha256};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};

const MODULE: &str = "application/vnd.module.wasm.content.layer.v1+wasm";

/// A plugin that says its version in a field of each response.
fn script(field: &str, version: u32) -> String {
    format!(
        "require('rider')\nlocal plugin = {{}}\nfunction plugin.on_response() envoy.resp.set_header('x-{field}', \
         '{version}') end\nreturn plugin\n"
    )
}

/// A plugin with that code, whose failures are answered with 503.
fn plugin(name: &str, remote: Value) -> Value {
    manifest(name, json!({"code": {"remote": remote}, "on_error": "503"}))
}

fn by_url(url: String, code: &str) -> Value {
    json!({"url": url, "sha256": sha256(code), "retry_policy": {"num_retries": 0}})
}

fn start(config: &Config, cache: &TempDir) -> Proxy {
    let folder = cache.path().join("code").to_string_lossy().into_owned();
    Proxy::start_with(
        config,
        Launch { environment: vec![("POSTRIDER_CODE_CACHE".to_owned(), folder)], ..Launch::default() },
    )
}

/// A request's status, and what a plugin says in its field.
fn seen(proxy: &Proxy, field: &str) -> (u16, String) {
    let answer = proxy.exchange(get("/"));
    (answer.status, answer.headers.values(&format!("x-{field}")).join("|"))
}

fn is(version: u32) -> (u16, String) {
    (200, version.to_string())
}

/// Asks the admin for a change of a plugin.
fn change(proxy: &Proxy, method: &str, plugin: &str, body: &str) -> Response {
    let length = body.len();
    let head = format!("{method} /plugins/{plugin} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n");
    RawClient::once(proxy.admin_address(), format!("{head}content-length: {length}\r\n\r\n{body}")).unwrap()
}

fn inline(field: &str, version: u32) -> String {
    json!({"runtime": "rider", "code": {"inline": script(field, version)}}).to_string()
}

#[test]
fn a_registry_that_fails_takes_no_plugin_out_of_service_when_another_one_changes() {
    if !postrider_only() {
        return;
    }
    let (origin, cache, shelf) = (Origin::echo("a"), TempDir::new(), registry(None));
    shelf.image("moving", "latest", &[(MODULE, script("version", 1).as_bytes())]);
    let remote = json!({
        "url": format!("oci://{}/moving", shelf.host()), "insecure": true, "retry_policy": {"num_retries": 0},
    });
    let mut proxy = start(&config(&[plugin("versioned", remote)], everything(), &origin), &cache);
    assert_eq!(change(&proxy, "PUT", "other", &inline("other", 1)).status, 200);
    assert_eq!((seen(&proxy, "version"), seen(&proxy, "other")), (is(1), is(1)));
    shelf.answer("/v2/moving/manifests/latest", "HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n");
    let before = proxy.latest_verdict();
    proxy.signal("HUP");
    let refused = proxy.await_verdict(before.as_ref());
    assert!(!accepted(&refused) && refused.to_string().contains("cannot be fetched"), "{refused}");
    assert_eq!(seen(&proxy, "version"), is(1));
    // One that changes is not asked to wait for it, either.
    assert_eq!(change(&proxy, "PUT", "other", &inline("other", 2)).status, 200);
    assert_eq!((seen(&proxy, "version"), seen(&proxy, "other")), (is(1), is(2)));
    assert_eq!(change(&proxy, "DELETE", "other", "").status, 200);
    assert_eq!((seen(&proxy, "version"), seen(&proxy, "other").1.as_str()), (is(1), ""));
    let entries = || proxy.stats().value("code.remote_load_cache_entries");
    assert_eq!(entries(), 1, "it is in use");
    // It is looked for all the same.
    shelf.image("moving", "latest", &[(MODULE, script("version", 2).as_bytes())]);
    wait_until("the new image", || seen(&proxy, "version") == is(2));
}

#[test]
fn code_that_came_serves_although_other_code_did_not_come() {
    if !postrider_only() {
        return;
    }
    let (origin, cache, shelf) = (Origin::echo("a"), TempDir::new(), Shelf::start());
    let first = || plugin("first", by_url(shelf.url("/first.lua"), &script("first", 1)));
    let second = by_url(shelf.url("/second.lua"), &script("second", 1));
    let second = manifest("second", json!({"code": {"remote": second}, "on_error": "continue"}));
    let proxy = start(&config(&[first(), second.clone()], everything(), &origin), &cache);
    let name = proxy.config_path().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(seen(&proxy, "first").0, 503);
    shelf.put("/first.lua", script("first", 1));
    wait_until("the first plugin", || seen(&proxy, "first") == is(1));
    // What lacks its code anyway keeps nothing else from being changed.
    let third = manifest("third", json!({"code": {"inline_string": script("third", 1)}}));
    let next = config(&[first(), second.clone(), third.clone()], everything(), &origin);
    proxy.directory().write(&name, next.to_yaml());
    wait_until("the third plugin", || seen(&proxy, "third") == is(1));
    assert_eq!(seen(&proxy, "first"), is(1));
    // Code that nothing in force lacks refuses it, as ever.
    let fourth = plugin("fourth", by_url(shelf.url("/fourth.lua"), &script("fourth", 1)));
    proxy.directory().write(&name, config(&[first(), second, third, fourth], everything(), &origin).to_yaml());
    let is_refused = |entry: &Value| !accepted(entry) && entry.to_string().contains("/fourth.lua cannot be fetched");
    wait_until("the refusal", || proxy.latest_verdict().is_some_and(|entry| is_refused(&entry)));
    assert_eq!(seen(&proxy, "third"), is(1));
    shelf.put("/second.lua", script("second", 1));
    shelf.put("/fourth.lua", script("fourth", 1));
    wait_until("the others", || seen(&proxy, "second") == is(1) && seen(&proxy, "fourth") == is(1));
}

#[test]
fn a_manifest_with_code_from_elsewhere_does_not_end_the_wait_of_the_file_for_its_code() {
    if !postrider_only() {
        return;
    }
    let (origin, cache, shelf) = (Origin::echo("a"), TempDir::new(), Shelf::start());
    shelf.put("/1.lua", script("version", 1));
    let gate = Gate::default();
    let opened = gate.clone();
    let slow = Origin::start(move |connection| {
        if connection.request().is_some() {
            opened.wait();
            connection.write(&ok("text/plain", script("version", 2)));
        }
    });
    let first = plugin("versioned", by_url(shelf.url("/1.lua"), &script("version", 1)));
    let proxy = start(&config(&[first], everything(), &origin), &cache);
    assert_eq!(seen(&proxy, "version"), is(1));
    let next = by_url(format!("http://{}/2.lua", slow.address), &script("version", 2));
    let name = proxy.config_path().file_name().unwrap().to_str().unwrap().to_owned();
    proxy.directory().write(&name, config(&[plugin("versioned", next)], everything(), &origin).to_yaml());
    slow.wait_requests(1);
    shelf.put("/other.lua", script("other", 1));
    let remote = by_url(shelf.url("/other.lua"), &script("other", 1));
    let text = json!({"runtime": "rider", "code": {"remote": remote}}).to_string();
    let answer = change(&proxy, "PUT", "other", &text);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((seen(&proxy, "version"), seen(&proxy, "other")), (is(1), is(1)));
    gate.open();
    wait_until("the file's plugin", || seen(&proxy, "version") == is(2));
    assert_eq!(seen(&proxy, "other"), is(1), "the manifest lies over the file");
}

#[test]
fn a_changed_value_of_the_runtime_does_not_end_the_wait_of_the_file_for_its_code() {
    if !postrider_only() {
        return;
    }
    let (origin, cache, shelf) = (Origin::echo("a"), TempDir::new(), Shelf::start());
    shelf.put("/1.lua", script("version", 1));
    let of = |version: u32| {
        let remote = by_url(shelf.url(&format!("/{version}.lua")), &script("version", version));
        config(&[plugin("versioned", remote)], everything(), &origin)
            .overlay(json!({"layered_runtime": {"layers": [{"name": "admin", "admin_layer": {}}]}}))
    };
    let mut proxy = start(&of(1), &cache);
    let refused = proxy.reload(of(2).to_yaml());
    assert!(!accepted(&refused), "{refused}");
    assert_eq!(proxy.admin_post("/runtime_modify?some=1").status, 200);
    assert_eq!(seen(&proxy, "version"), is(1));
    shelf.put("/2.lua", script("version", 2));
    wait_until("the file's plugin", || seen(&proxy, "version") == is(2));
}
