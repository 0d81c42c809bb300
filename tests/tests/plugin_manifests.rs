//! Plugins that the admin interface brings, and what hosts of the short form say about plugins.

use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Gate, Origin, Proxy, RawClient, Response, TempDir, wait_until};
use postrider_tests::load::Load;
use postrider_tests::plugins::{config, everything, manifest};
use postrider_tests::registry::{Shelf, sha256};
use postrider_tests::{ask, get, postrider_only};
use serde_json::json;

/// Says in the request which one it is, and what it sees.
fn marking(word: &str) -> String {
    format!(
        "require(\"rider.v2\")\nlocal envoy = require(\"envoy\")\nlocal plugin = {{ version = \"v2\" }}\n\
         function plugin:on_request_header()\n  local seen = envoy.get_route_config() or envoy.get_base_config()\n  \
         envoy.req.set_header(\"x-mark\", \"{word}/\" .. (seen.word or \"-\"))\nend\n\
         function plugin:on_response_header() envoy.resp.set_header(\"x-mark\", \"{word}\") end\nreturn plugin\n"
    )
}

/// A manifest in the words of the short form, as JSON.
fn of(word: &str) -> String {
    json!({"runtime": "rider", "code": {"inline": marking(word)}, "config": {"word": "base"}}).to_string()
}

/// Changes a plugin.
fn change(proxy: &Proxy, method: &str, plugin: &str, body: &str, fields: &str) -> Response {
    RawClient::once(proxy.admin_address(), asking(method, plugin, body, fields)).unwrap()
}

fn asking(method: &str, plugin: &str, body: &str, fields: &str) -> String {
    let length = body.len();
    let head = format!("{method} /plugins/{plugin} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n{fields}");
    format!("{head}content-length: {length}\r\n\r\n{body}")
}

fn put(proxy: &Proxy, plugin: &str, body: &str) -> Response {
    change(proxy, "PUT", plugin, body, "")
}

fn delete(proxy: &Proxy, plugin: &str) -> Response {
    change(proxy, "DELETE", plugin, "", "")
}

/// A file in the short form; `more` are further lines.
fn short(directory: &TempDir, origin: &Origin, more: &str) -> std::path::PathBuf {
    let to = format!("http://{}", origin.address);
    let text = more.replace("ORIGIN", &to);
    directory.write("proxy.yaml", format!("listen: \"127.0.0.1:0\"\nadmin: \"127.0.0.1:0\"\n{text}"))
}

fn mark(proxy: &Proxy, host: &str, path: &str) -> String {
    ask(proxy, "GET", host, path, "").header("x-mark").to_owned()
}

fn seen(proxy: &Proxy, origin: &Origin, host: &str, path: &str) -> String {
    assert_eq!(ask(proxy, "GET", host, path, "").status, 200);
    origin.requests().last().unwrap().header("x-mark").to_owned()
}

#[test]
fn hosts_of_the_short_form_have_plugin_configurations() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let code = directory.write("plugin.lua", marking("one"));
    let lines = format!(
        "plugins: [{{ name: p, runtime: rider, code: {}, config: {{ word: base }} }}]\n\
         hosts:\n  a.test: {{ plugins: {{ p: {{ word: host }} }} }}\n  \"*.test\": {{ plugins: {{ p: false }} }}\n\
         routes:\n- {{ match: /own, to: \"ORIGIN\", plugins: {{ p: {{ word: route }} }} }}\n- {{ to: \"ORIGIN\" }}\n",
        code.display()
    );
    let file = short(&directory, &origin, &lines);
    let explained = postrider_tests::kit::proxy::run(&[
        "explain",
        file.to_str().unwrap(),
        "GET",
        "http://a.test/",
        "--listener",
        "http",
    ]);
    let proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(seen(&proxy, &origin, "a.test", "/"), "one/host");
    assert_eq!(seen(&proxy, &origin, "a.test", "/own"), "one/route");
    assert_eq!(seen(&proxy, &origin, "b.test", "/"), "");
    assert_eq!(seen(&proxy, &origin, "other", "/"), "one/base");
    let plugin = proxy.admin_json("/plugins/p");
    let told: Vec<_> = plugin["route_configs"].as_array().unwrap().iter().collect();
    let of_host = json!({"route": "a.test.1", "scope": "virtual host", "config": {"config": {"word": "host"}},
        "runs": true, "sees": {"word": "host"}});
    assert!(told.contains(&&of_host), "{told:?}");
    let said = explained.stdout + &explained.stderr;
    let line = said.lines().find(|line| line.contains("virtual host:")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("\"word\":\"host\"") && line.contains(":5:"), "{said}");
}

#[test]
fn shares_of_a_route_in_the_short_form_have_plugin_configurations() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let code = directory.write("plugin.lua", marking("one"));
    let share = |weight: u32, word: &str| {
        format!("{{ url: \"ORIGIN\", weight: {weight}, plugins: {{ p: {{ word: {word} }} }} }}")
    };
    let lines = format!(
        "plugins: [{{ name: p, runtime: rider, code: {}, config: {{ word: base }} }}]\n\
         routes:\n- {{ match: /all, to: [{}, {}], plugins: {{ p: {{ word: route }} }} }}\n\
         - {{ match: /off, to: [{{ url: \"ORIGIN\", plugins: {{ p: false }} }}] }}\n\
         - {{ to: [{{ url: \"ORIGIN\" }}], plugins: {{ p: {{ word: route }} }} }}\n",
        code.display(),
        share(0, "none"),
        share(1, "share"),
    );
    let file = short(&directory, &origin, &lines);
    let proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(seen(&proxy, &origin, "test", "/all"), "one/share");
    let told = proxy.admin_json("/plugins/p")["route_configs"].to_string();
    for (scope, word) in [("weighted cluster", "share"), ("weighted cluster", "none"), ("route", "route")] {
        let of_scope = format!(r#""scope":"{scope}","config":{{"config":{{"word":"{word}"}}}}"#);
        assert!(told.contains(&of_scope), "{scope} {word}: {told}");
    }
    assert!(told.contains(r#""config":{"disabled":true},"runs":false,"sees":null"#), "{told}");
    assert_eq!(seen(&proxy, &origin, "test", "/off"), "");
    assert_eq!(seen(&proxy, &origin, "test", "/"), "one/route");
}

#[test]
fn a_manifest_is_put_shown_listed_and_removed() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(proxy.admin_get("/plugins/p").status, 404);
    assert_eq!(delete(&proxy, "p").status, 404);
    let text = of("one");
    let answer = put(&proxy, "p", &text);
    assert_eq!((answer.status, answer.text()), (200, "OK\n"));
    assert_eq!(seen(&proxy, &origin, "test", "/"), "one/base");
    let shown = proxy.admin_json("/plugins/p");
    assert_eq!((&shown["name"], &shown["by_admin"], &shown["manifest"]), (&json!("p"), &json!(true), &json!(text)));
    let listed = proxy.admin_json("/plugins?format=json");
    assert_eq!((&listed["plugins"][0]["name"], &listed["plugins"][0]["by_admin"]), (&json!("p"), &json!(true)));
    assert!(proxy.admin_get("/plugins").text().contains("by PUT /plugins/p"));
    assert!(proxy.admin_get("/config_dump").text().contains("postrider.filters.http.plugin.v1.Plugin"));
    // Another one, by the other verb.
    assert_eq!(change(&proxy, "POST", "p", &of("two"), "").status, 200);
    assert_eq!(mark(&proxy, "test", "/"), "two");
    assert_eq!(delete(&proxy, "p").status, 200);
    assert_eq!((mark(&proxy, "test", "/").as_str(), proxy.admin_get("/plugins/p").status), ("", 404));
}

#[test]
fn what_changes_plugins_is_guarded_as_other_orders_are() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let proxy = Proxy::start_file(directory, file, Launch::default());
    for method in ["PUT", "POST", "DELETE"] {
        assert_eq!(change(&proxy, method, "p", &of("one"), "origin: http://evil.example\r\n").status, 403, "{method}");
    }
    let patched = change(&proxy, "PATCH", "p", &of("one"), "");
    assert_eq!((patched.status, patched.header("allow")), (405, "GET, HEAD, PUT, POST, DELETE"));
    assert_eq!(mark(&proxy, "test", "/"), "");
}

#[test]
fn a_wrong_manifest_is_refused_with_every_place_and_the_last_good_one_stays() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(put(&proxy, "p", &of("one")).status, 200);
    let wrong = "runtime: rider\ncode: |\n  return {}\n  --\nbudget: { cpu: fast }\ncolour: red\nname: q\n";
    let refused = put(&proxy, "p", wrong);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("/plugins/p:7:7: error"), "{}", refused.text());
    let refused = put(&proxy, "p", &wrong.replace("name: q\n", ""));
    for place in ["/plugins/p:5:16: error", "/plugins/p:6:1: error"] {
        assert!(refused.text().contains(place), "{place}: {}", refused.text());
    }
    let schema = "runtime: rider\ncode: |\n  require(\"rider.v2\")\n  return { version = \"v2\" }\nconfig:\n  word: 3\n\
                  schema: { properties: { word: { type: string } } }\n";
    let refused = put(&proxy, "p", schema);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("/plugins/p:6:9: error"), "{}", refused.text());
    let broken = put(&proxy, "p", "runtime: rider\ncode: |\n  return nil +\n");
    assert_eq!(broken.status, 400, "{}", broken.text());
    assert_eq!(put(&proxy, "p", "").status, 400);
    assert_eq!(mark(&proxy, "test", "/"), "one");
    assert!(!accepted(&proxy.latest_verdict().unwrap()));
}

#[test]
fn a_text_as_a_configuration_is_for_runtimes_that_take_one() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let proxy = Proxy::start_file(directory, file, Launch::default());
    let native = |config: &str| {
        let module = postrider_tests::modules::filters().display();
        format!("runtime: native\ncode: {module}\noptions: {{ filter_name: notes }}\nconfig: {config}\n")
    };
    assert_eq!(put(&proxy, "p", &native("plain words")).text(), "OK\n");
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 200);
    assert_eq!(origin.requests().last().unwrap().header("x-config"), "plain words");
    let refused = |manifest: &str, place: &str, why: &str| {
        let refused = put(&proxy, "p", manifest);
        assert_eq!(refused.status, 400);
        for part in [place, why] {
            assert!(refused.text().contains(part), "{part}: {}", refused.text());
        }
    };
    refused(&native("5"), "/plugins/p:4:9: error", "expected an object, or a text");
    let schema = format!("{}schema: {{ type: object }}\n", native("words"));
    refused(&schema, "/plugins/p:4:9: error", "expected an object, found \"words\"");
    let rider = "runtime: rider\ncode: |\n  require(\"rider.v2\")\n  return { version = \"v2\" }\nconfig: words\n";
    refused(rider, "/plugins/p:5:9: error", "plugins of this runtime take no text");
}

#[test]
fn a_manifest_lies_over_the_file_until_it_is_taken_back() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let code = directory.write("plugin.lua", marking("file"));
    let lines = format!("plugins: [{{ name: p, runtime: rider, code: {} }}]\n", code.display());
    let file = short(&directory, &origin, &format!("{lines}routes: [{{ to: \"ORIGIN\" }}]\n"));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(mark(&proxy, "test", "/"), "file");
    assert_eq!(delete(&proxy, "p").status, 409);
    assert_eq!(put(&proxy, "p", &of("admin")).status, 200);
    assert_eq!(mark(&proxy, "test", "/"), "admin");
    // The file is read again, and says something else: the manifest still counts.
    assert!(accepted(&proxy.reload(text.replace("name: p,", "name: p, version: \"2\","))));
    assert_eq!(mark(&proxy, "test", "/"), "admin");
    assert_eq!(delete(&proxy, "p").status, 200);
    assert_eq!(mark(&proxy, "test", "/"), "file");
    assert_eq!(proxy.admin_json("/plugins/p")["version"], json!("2"));
}

#[test]
fn a_plugin_that_routes_name_is_not_removed() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut proxy = Proxy::start_file(directory, file, Launch::default());
    assert_eq!(put(&proxy, "p", &of("one")).status, 200);
    let route = format!("{{ to: \"http://{}\", plugins: {{ p: {{ word: own }} }} }}", origin.address);
    let named = text.replace(
        &format!("{{ to: \"http://{}\" }}", origin.address),
        &format!("{{ match: /a, hosts: a.test, respond: a }}, {route}"),
    );
    assert_ne!(named, text);
    assert!(accepted(&proxy.reload(&named)));
    assert_eq!(seen(&proxy, &origin, "test", "/"), "one/own");
    let refused = delete(&proxy, "p");
    assert_eq!(
        (refused.status, refused.text()),
        (409, "the plugin `p` is in use by the route a.test.1, the route any.2\n")
    );
    assert_eq!(mark(&proxy, "test", "/"), "one");
    assert!(accepted(&proxy.reload(&text)));
    assert_eq!((delete(&proxy, "p").status, mark(&proxy, "test", "/").as_str()), (200, ""));
}

#[test]
fn manifests_find_their_place_in_envoys_form() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let file = manifest("old", json!({"code": {"inline_string": marking("file")}, "config": {}}));
    let proxy = Proxy::start(&config(&[file], everything(), &origin));
    assert_eq!(mark(&proxy, "test", "/"), "file");
    assert_eq!(put(&proxy, "old", &of("admin")).status, 200);
    assert_eq!(mark(&proxy, "test", "/"), "admin");
    // A new one stands behind it, in front of the router, and may call clusters of the file and servers beside it.
    let more = json!({
        "runtime": "rider", "code": {"inline": marking("more")}, "config": {}, "clusters": ["origin", "127.0.0.1:1"],
    });
    let answer = put(&proxy, "more", &more.to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(seen(&proxy, &origin, "test", "/"), "more/-");
    assert_eq!(proxy.admin_json("/plugins/more")["policy"]["clusters"], json!(["origin", "127.0.0.1:1"]));
    let taken = put(&proxy, "envoy.filters.http.router", &of("x"));
    assert_eq!(taken.status, 400);
    assert!(taken.text().contains("that is no plugin with a manifest"), "{}", taken.text());
    assert_eq!((delete(&proxy, "more").status, delete(&proxy, "old").status), (200, 200));
    assert_eq!(mark(&proxy, "test", "/"), "file");
}

#[test]
fn a_manifests_code_from_elsewhere_is_fetched_before_the_answer() {
    if !postrider_only() {
        return;
    }
    let (directory, origin, shelf, cache) = (TempDir::new(), Origin::echo("a"), Shelf::start(), TempDir::new());
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let folder = cache.path().join("code").to_string_lossy().into_owned();
    let environment = vec![("POSTRIDER_CODE_CACHE".to_owned(), folder)];
    let proxy = Proxy::start_file(directory, file, Launch { environment, ..Launch::default() });
    let (url, sum) = (shelf.url("/p.lua"), sha256(marking("away")));
    let remote = json!({"url": url, "sha256": sum, "retry_policy": {"num_retries": 0}});
    let text = json!({"runtime": "rider", "code": {"remote": remote}}).to_string();
    let refused = put(&proxy, "p", &text);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("cannot be fetched: the answer is 404"), "{}", refused.text());
    assert!(refused.text().contains("/plugins/p:1:"), "{}", refused.text());
    assert_eq!(mark(&proxy, "test", "/"), "");
    shelf.put("/p.lua", marking("away"));
    let answer = put(&proxy, "p", &text);
    assert_eq!((answer.status, mark(&proxy, "test", "/").as_str()), (200, "away"), "{}", answer.text());
}

#[test]
fn the_process_ends_while_a_manifests_code_is_still_to_come() {
    if !postrider_only() {
        return;
    }
    let (directory, origin, cache) = (TempDir::new(), Origin::echo("a"), TempDir::new());
    let (asked, over) = (Gate::default(), Gate::default());
    let (asks, ends) = (asked.clone(), over.clone());
    let shelf = Origin::start(move |connection| {
        if connection.request().is_some() {
            asks.open();
            ends.wait();
        }
    });
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let folder = cache.path().join("code").to_string_lossy().into_owned();
    let environment = vec![("POSTRIDER_CODE_CACHE".to_owned(), folder)];
    let mut proxy = Proxy::start_file(directory, file, Launch { environment, ..Launch::default() });
    let remote = json!({"url": format!("http://{}/p.lua", shelf.address), "sha256": sha256(marking("never"))});
    let text = json!({"runtime": "rider", "code": {"remote": remote}}).to_string();
    let mut operator = RawClient::connect(proxy.admin_address());
    operator.send(asking("PUT", "p", &text, ""));
    asked.wait();
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
    over.open();
    assert!(!proxy.stderr().contains("did not come"), "{}", proxy.stderr());
}

#[test]
fn manifests_change_under_load_and_no_request_is_lost() {
    if !postrider_only() {
        return;
    }
    let (directory, origin) = (TempDir::new(), Origin::echo("a"));
    let file = short(&directory, &origin, "routes: [{ to: \"ORIGIN\" }]\n");
    let proxy = Proxy::start_file(directory, file, Launch { concurrency: 2, ..Launch::default() });
    let load = Load::start(proxy.address("http"), 4, "GET", get("/"));
    for turn in 0..8 {
        let word = format!("v{turn}");
        assert_eq!(put(&proxy, "p", &of(&word)).status, 200);
        wait_until("the manifest is in force", || mark(&proxy, "test", "/") == word);
        load.wait_progress(20);
        assert_eq!(put(&proxy, "p", "runtime: nonsense\n").status, 400);
        if turn % 2 == 1 {
            assert_eq!(delete(&proxy, "p").status, 200);
            wait_until("the plugin is gone", || mark(&proxy, "test", "/").is_empty());
        }
        load.wait_progress(20);
    }
    let failures = load.finish();
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
}
