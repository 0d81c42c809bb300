//! Go code that names the cluster of a request, in libraries that hold nothing else, built with the oldest and the newest
//! SDK that is taken.
//!
//! Real Envoy's pip build runs no Go code, so what is right here is what the SDK's own code expects.

use postrider_tests::golang::{filter, library, specifier};
use postrider_tests::kit::config::router;
use postrider_tests::kit::proxy::{accepted, run};
use postrider_tests::kit::{Config, Origin, Proxy, Response, TempDir, wait_until};
use postrider_tests::{envoy, refusal};
use serde_json::{Value, json};

const NAME: &str = "envoy.router.cluster_specifier_plugin.golang";
const LIBRARIES: [&str; 2] = ["specifier31", "specifier38"];

/// The clusters of these tests, each of which tells its name.
struct Origins(Vec<(String, Origin)>);

impl Origins {
    fn new(names: &[&str]) -> Origins {
        Origins(names.iter().map(|name| ((*name).to_owned(), Origin::echo(name))).collect())
    }

    fn with(&self, config: Config) -> Config {
        self.0.iter().fold(config, |config, (name, origin)| config.cluster(name, &[origin.address]))
    }

    /// A table with this one route.
    fn inline(&self, specifier: &Value) -> Config {
        self.with(Config::routes(
            json!([{"match": {"prefix": "/"}, "route": {"inline_cluster_specifier_plugin": specifier}}]),
        ))
    }
}

fn ask(proxy: &Proxy, path: &str, lines: &str) -> Response {
    proxy.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{lines}\r\n"))
}

/// Which cluster was asked, by its answer.
fn chosen(proxy: &Proxy, lines: &str) -> String {
    let answer = ask(proxy, "/", lines);
    assert_eq!(answer.status, 200, "{lines}");
    answer.header("x-origin").to_owned()
}

#[test]
fn a_request_goes_where_its_headers_send_it() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "blue", "red"]);
    for library in LIBRARIES {
        let proxy = Proxy::start(&origins.inline(&specifier(library, NAME, &json!({"b": "blue", "r": "red"}))));
        assert_eq!(chosen(&proxy, "x-to: b\r\n"), "blue");
        assert_eq!(chosen(&proxy, "x-to: r\r\nx-to: b\r\n"), "red", "the first value counts");
        assert_eq!(chosen(&proxy, ""), "default");
        assert_eq!(chosen(&proxy, "x-do: nothing\r\n"), "default");
    }
}

#[test]
fn it_is_asked_with_the_route_and_again_when_a_filter_has_that_looked_up_again() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "blue", "red"]);
    for (again, cluster) in [(false, "blue"), (true, "red")] {
        let mut does = vec![
            json!({"op": "info", "key": "cluster", "to": "x-before"}),
            json!({"op": "set", "key": "x-to", "value": "r"}),
        ];
        if again {
            does.push(json!({"op": "clear_route"}));
        }
        let changes = filter("sdk38", "script", &json!({"decode_headers": does}));
        let specifier = specifier("specifier38", NAME, &json!({"b": "blue", "r": "red"}));
        let route = json!({"match": {"prefix": "/"}, "route": {"inline_cluster_specifier_plugin": specifier}});
        let config = origins.with(Config::new().http(json!({
            "http_filters": [changes, router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        })));
        let proxy = Proxy::start(&config);
        let answer = ask(&proxy, "/", "x-to: b\r\n");
        assert_eq!(answer.header("x-origin"), cluster);
        assert!(answer.text().contains("x-before: blue,true\r\n"), "filters know it: {}", answer.text());
    }
}

#[test]
fn a_cluster_that_is_not_there_is_an_answer_of_503() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default"]);
    let proxy = Proxy::start(&origins.inline(&specifier("specifier38", NAME, &json!({"x": "nobody"}))));
    assert_eq!(ask(&proxy, "/", "x-to: x\r\n").status, 503, "the default is for no name at all");
    assert_eq!(chosen(&proxy, ""), "default");
}

/// The SDK recovers no panic of code that reads a configuration.
#[test]
fn a_panic_about_a_configuration_is_a_refusal() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "red"]);
    for name in LIBRARIES {
        let mut proxy = Proxy::start(&origins.inline(&specifier(name, NAME, &json!({}))));
        let verdict = proxy.reload(origins.inline(&specifier(name, NAME, &json!({"panic": 1}))).to_yaml());
        assert!(!accepted(&verdict), "{verdict}");
        let said = verdict.to_string();
        assert!(said.contains("would end the process with this configuration: panic: told to"), "{said}");
        assert_eq!(chosen(&proxy, ""), "default", "the old one serves");
        // The refused file may be judged twice, so that the next verdict is not always about this one.
        proxy.reload(origins.inline(&specifier(name, NAME, &json!({"r": "red"}))).to_yaml());
        wait_until("the next one", || chosen(&proxy, "x-to: r\r\n") == "red");
        assert!(proxy.children().is_empty(), "what tried it out is gone");
    }
}

#[test]
fn a_panic_leaves_the_default_and_is_logged() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "blue"]);
    for name in LIBRARIES {
        let proxy = Proxy::start(&origins.inline(&specifier(name, NAME, &json!({"b": "blue"}))));
        assert_eq!(chosen(&proxy, "x-do: panic\r\n"), "default");
        assert_eq!(chosen(&proxy, "x-to: b\r\n"), "blue", "the next request is asked about");
        let said = format!("{}: golang cluster specifier plugin panic: on purpose", library(name).display());
        assert!(proxy.stderr().contains(&said), "{}", proxy.stderr());
    }
}

#[test]
fn a_name_may_be_longer_than_the_room_for_it() {
    if envoy() {
        return;
    }
    let long = |len: usize| "x".repeat(len - 1) + "y";
    let names: Vec<String> = [256, 257, 8192].map(long).into();
    let mut origins = Origins::new(&["default"]);
    origins.0.extend(names.iter().map(|name| (name.clone(), Origin::echo(&name.len().to_string()))));
    for library in LIBRARIES {
        let proxy = Proxy::start(&origins.inline(&specifier(library, NAME, &json!({}))));
        for name in &names {
            let len = name.len().to_string();
            assert_eq!(chosen(&proxy, &format!("x-do: long {len}\r\n")), len);
        }
        assert_eq!(chosen(&proxy, "x-do: long 8193\r\n"), "default", "above Envoy's limit");
        assert!(proxy.stderr().contains("the name of a cluster has 8193 bytes: at most 8192 are taken"));
    }
}

#[test]
fn headers_are_shown_as_they_are_and_during_the_call_alone() {
    if envoy() {
        return;
    }
    let all = ":authority=test :method=GET :path=/a?b :scheme=http x-a=1+2 x-ab=";
    let origins = Origins::new(&["default", "test,true", "/a?b,true", "GET,true", "1,true", ",true", ",false", all]);
    for library in LIBRARIES {
        let proxy = Proxy::start(&origins.inline(&specifier(library, NAME, &json!({}))));
        let first = |name: &str| {
            let lines = format!("x-do: first {name}\r\nx-a: 1\r\nx-a: 2\r\nx-ab:\r\n");
            ask(&proxy, "/a?b", &lines).header("x-origin").to_owned()
        };
        let told = [":authority", ":path", ":method", "X-A", "x-ab", "x-none"].map(first);
        assert_eq!(told, ["test,true", "/a?b,true", "GET,true", "1,true", ",true", ",false"], "{library}");
        assert_eq!(chosen(&proxy, "x-do: elsewhere\r\n"), ",false", "another thread finds nothing");
    }
    let proxy = Proxy::start(&origins.inline(&specifier("specifier38", NAME, &json!({}))));
    let answer = ask(&proxy, "/a?b", "x-do: all\r\nx-a: 1\r\nx-a: 2\r\nx-ab:\r\n");
    assert_eq!(answer.header("x-origin"), all);
}

#[test]
fn routes_have_configurations_of_their_own_or_share_one() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "blue", "red", "cluster-1", "cluster-2"]);
    let to = |color: &str| specifier("specifier38", NAME, &json!({"x": color}));
    let shared = |path: &str| json!({"match": {"prefix": path}, "route": {"cluster_specifier_plugin": "shared"}});
    let own = |path: &str, color: &str| json!({"match": {"prefix": path}, "route": {"inline_cluster_specifier_plugin": to(color)}});
    let config = origins.with(Config::new().http(json!({"route_config": {
        "cluster_specifier_plugins": [specifier("specifier38", "shared", &json!({}))],
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            own("/blue", "blue"), own("/red", "red"), shared("/one"), shared("/two"),
        ]}],
    }})));
    let proxy = Proxy::start(&config);
    let to = |path: &str, lines: &str| ask(&proxy, path, lines).header("x-origin").to_owned();
    assert_eq!(to("/blue", "x-to: x\r\n"), "blue");
    assert_eq!(to("/red", "x-to: x\r\n"), "red");
    assert_eq!(to("/one", "x-do: count\r\n"), "cluster-1");
    assert_eq!(to("/two", "x-do: count\r\n"), "cluster-2", "the same code answers for both routes");
}

#[test]
fn a_reload_brings_another_configuration_and_a_bad_one_is_refused() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "blue", "red"]);
    let of = |fields: Value| origins.inline(&specifier("specifier38", NAME, &fields));
    let mut proxy = Proxy::start(&of(json!({"x": "blue"})));
    assert_eq!(chosen(&proxy, "x-to: x\r\n"), "blue");
    let mut bad = specifier("specifier38", NAME, &json!({}));
    bad["extension"]["typed_config"]["config"] = json!({"@type": "type.googleapis.com/shop.Unknown", "value": "1s"});
    let verdict = proxy.reload(origins.inline(&bad).to_yaml());
    assert_eq!(verdict["outcome"], "refused");
    assert!(verdict["errors"].to_string().contains("shop.Unknown"), "{verdict}");
    assert_eq!(chosen(&proxy, "x-to: x\r\n"), "blue");
    let verdict = proxy.reload(of(json!({"x": "red"})).to_yaml());
    assert_eq!(verdict["outcome"], "accepted", "{verdict}");
    assert_eq!(chosen(&proxy, "x-to: x\r\n"), "red");
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
}

#[test]
fn explain_asks_the_code() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default", "blue"]);
    let folder = TempDir::new();
    let config = origins.inline(&specifier("specifier38", NAME, &json!({"x": "blue"})));
    let file = folder.write("c.yaml", config.to_yaml());
    let told = run(&["explain", file.to_str().unwrap(), "GET", "http://test/", "-H", "x-to: x"]);
    assert!(told.code == Some(0) && told.stdout.contains("blue"), "{} {}", told.stdout, told.stderr);
    let told = run(&["explain", file.to_str().unwrap(), "GET", "http://test/"]);
    assert!(told.stdout.contains("default"), "{}", told.stdout);
}

#[test]
fn a_library_without_such_code_is_refused_with_the_reason() {
    if envoy() {
        return;
    }
    let origins = Origins::new(&["default"]);
    let refused = |specifier: &Value| refusal(&origins.inline(specifier));
    let said = refused(&specifier("sdk38", NAME, &json!({})));
    assert!(
        said.contains("chooses no clusters: it lacks functions of Envoy's Go SDK: envoyGoClusterSpecifierNewPlugin"),
        "{said}"
    );
    let mut lost = specifier("sdk38", NAME, &json!({}));
    lost["extension"]["typed_config"]["library_path"] = json!("/no/such.so");
    assert!(refused(&lost).contains("cannot read /no/such.so"));
    let filter = postrider_tests::golang::filter("specifier38", "script", &json!({}));
    let said = refusal(&postrider_tests::golang::gateway(&[filter], &Origin::echo("a"), json!({})));
    assert!(said.contains("it lacks functions of Envoy's Go SDK: envoyGoFilterNewHttpPluginConfig"), "{said}");
}
