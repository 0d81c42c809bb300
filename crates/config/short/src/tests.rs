//! The short form against what it must mean in Envoy's.

use std::path::Path;
use std::sync::Arc;

use postrider_config_core::{SourceFile, render};
use postrider_config_envoy::{LoadOptions, Outcome, load};
use postrider_model::{
    Action, Data, Discovery, Domain, FilterOverride, HttpConnection, PathMatch, Snapshot, Target, ValueError,
};

use crate::Short;

fn outcome(text: &str) -> Outcome {
    let options = LoadOptions { forms: vec![&Short], ..LoadOptions::default() };
    load(&SourceFile::new("short.yaml", text), &options, &|_: &str| false)
}

fn said(text: &str) -> String {
    let outcome = outcome(text);
    render::text(&outcome.diagnostics, &outcome.sources, false)
}

#[track_caller]
fn snapshot(text: &str) -> Arc<Snapshot> {
    let outcome = outcome(text);
    let said = render::text(&outcome.diagnostics, &outcome.sources, false);
    assert!(outcome.diagnostics.is_empty(), "{said}");
    outcome.snapshot.expect("no errors")
}

fn http(snapshot: &Snapshot) -> &HttpConnection {
    match &snapshot.listeners[0].filter_chains[0].handler {
        postrider_model::ConnectionHandler::Http(http) => http,
        _ => panic!("no HTTP"),
    }
}

/// The same text goes to Envoy itself, where it is installed.
#[track_caller]
fn envoy_accepts(text: &str) {
    if std::process::Command::new("envoy").arg("--version").output().is_err() {
        return;
    }
    let yaml = outcome(text).to_envoy_yaml().unwrap();
    let path = std::env::temp_dir().join(format!(
        "postrider-short-{}-{:?}.yaml",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, &yaml).unwrap();
    let output = std::process::Command::new("envoy")
        .args(["--mode", "validate", "-l", "error", "-c"])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{yaml}\n{}", String::from_utf8_lossy(&output.stderr));
}

const FULL: &str = r#"
listen: [":8080", "[::1]:8080", "unix:/tmp/postrider.sock"]
admin: "127.0.0.1:9901"
access_log: { to: stdout, format: "%RESPONSE_CODE% %PROTOCOL%" }
routes:
- { match: /api/v2, hosts: [shop.example], to: "http://127.0.0.1:9000", timeout: 1.5s }
- { match: /api, methods: [GET, HEAD], headers: { x-tester: "yes", x-debug: true }, to: "http://localhost:9002", rewrite: / }
- match: /api
  hosts: "*.example"
  to:
  - { url: "http://127.0.0.1:9000", weight: 95 }
  - { url: "http://127.0.0.1:9001", weight: 5 }
- { match: { regex: "/v[0-9]/(.*)" }, to: ["127.0.0.1:9000", "127.0.0.1:9001"], rewrite: { regex: "^/v[0-9]/", to: / } }
- { match: { path: /old }, redirect: /new }
- { match: /moved, redirect: { to: "https://other.example:8443/x", status: 308 } }
- { match: /gone, respond: { status: 410, body: "gone\n" } }
- { match: /health, respond: 204 }
- { match: /, to: "http://127.0.0.1:9003" }
tcp:
- { listen: "127.0.0.1:5432", to: "db.example:5432", idle_timeout: 10m }
- { listen: "127.0.0.1:5433", to: [{ url: "tcp://127.0.0.1:1", weight: 1 }, { url: "127.0.0.1:2", weight: 3 }] }
"#;

#[test]
fn every_key_has_its_meaning() {
    let snapshot = snapshot(FULL);
    assert_eq!(snapshot.listeners.len(), 3);
    assert_eq!(snapshot.listeners[0].addresses.len(), 3);
    assert!(snapshot.admin.is_some());
    let http = http(&snapshot);
    assert_eq!(http.identity.server_name, "postrider");
    assert_eq!(http.upgrades, ["websocket"]);
    assert_eq!(http.access_log.len(), 1);
    let names: Vec<&str> = snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert!(names.contains(&"127.0.0.1:9000,127.0.0.1:9001"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "127.0.0.1:9000").count(), 1);
    let local = snapshot.clusters.iter().find(|cluster| cluster.name == "localhost:9002").unwrap();
    assert!(matches!(local.discovery, Discovery::StrictDns(_)));
}

#[test]
fn routes_keep_their_order_whatever_their_hosts() {
    let snapshot = snapshot(FULL);
    let hosts = &http(&snapshot).routes.virtual_hosts;
    let counts: Vec<(String, usize)> =
        hosts.iter().map(|host| (format!("{:?}", host.domains[0]), host.routes.len())).collect();
    assert_eq!(counts, [("Exact(\"shop.example\")".into(), 9), ("Suffix(\".example\")".into(), 8), ("Any".into(), 7)]);
    assert_eq!(hosts[2].domains, [Domain::Any]);
    let Action::Forward(first) = &hosts[0].routes[0].action else { panic!() };
    assert_eq!(first.timeout, Some(std::time::Duration::from_millis(1500)));
    assert_eq!(hosts[0].routes[1].matches.headers.len(), 3);
    let Action::Forward(weighted) = &hosts[0].routes[2].action else { panic!() };
    assert!(matches!(&weighted.target, Target::Weighted(parts) if parts[0].weight == 95));
    assert!(matches!(&hosts[2].routes[1].matches.path, PathMatch::Regex(_)) || hosts[2].routes.len() == 7);
    let Action::Redirect(moved) = &hosts[2].routes[3].action else { panic!("{:?}", hosts[2].routes[3].action) };
    assert_eq!((moved.status, moved.port), (308, Some(8443)));
}

#[test]
fn what_it_means_is_a_file_that_envoy_accepts() {
    envoy_accepts(FULL);
    envoy_accepts("listen: \":8080\"\nroutes: [{ match: /api, to: \"http://127.0.0.1:9000\" }]\n");
    envoy_accepts(
        "tcp: { listen: \":5432\", to: \"127.0.0.1:1\" }\naccess_log: { to: /dev/null, json: { a: \"%PROTOCOL%\" } }\n",
    );
}

#[test]
fn converting_and_loading_again_means_the_same() {
    let short = outcome(FULL);
    let yaml = short.to_envoy_yaml().unwrap();
    let again = outcome(&yaml);
    let said = render::text(&again.diagnostics, &again.sources, false);
    assert_eq!(short.snapshot, again.snapshot, "{said}");
}

#[test]
fn mistakes_are_told_where_they_stand() {
    let mut wrong = Vec::new();
    for (text, place, message) in [
        ("lisen: \":80\"\nroutes: []\n", "short.yaml:1:1", "did you mean `listen`?"),
        ("routes: [{ match: /, to: \"http://127.0.0.1:1\" }]\n", "short.yaml:1:9", "`routes` needs `listen`"),
        ("listen: \":80\"\n", "short.yaml:1:9", "`listen` needs `routes`"),
        ("listen: nowhere\nroutes: []\n", "short.yaml:1:9", "`nowhere` is no port"),
        ("listen: \"a.example:80\"\nroutes: []\n", "short.yaml:1:9", "`a.example` is no IP address"),
        (
            "listen: \":80\"\nroutes:\n- { match: api, to: \"http://127.0.0.1:1\" }\n",
            "short.yaml:3:12",
            "must start with `/`",
        ),
        (
            "listen: \":80\"\nroutes:\n- { match: /, too: \"http://127.0.0.1:1\" }\n",
            "short.yaml:3:15",
            "did you mean `to`?",
        ),
        ("listen: \":80\"\nroutes:\n- { match: / }\n", "short.yaml:3:3", "one of `to`, `redirect` and `respond`"),
        (
            "listen: \":80\"\nroutes:\n- { to: \"http://127.0.0.1:1\", respond: 404 }\n",
            "short.yaml:3:40",
            "a route has one action",
        ),
        (
            "listen: \":80\"\nroutes:\n- { to: \"https://a.example\" }\n",
            "short.yaml:3:9",
            "TLS to a server is not supported",
        ),
        ("listen: \":80\"\nroutes:\n- { to: \"ftp://a.example\" }\n", "short.yaml:3:9", "`ftp://` is no way to reach"),
        (
            "listen: \":80\"\nroutes:\n- { to: \"http://a.example/x\" }\n",
            "short.yaml:3:9",
            "change the path of requests with `rewrite`",
        ),
        (
            "listen: \":80\"\nroutes:\n- { to: \"http://a.example\", timeout: 5 }\n",
            "short.yaml:3:38",
            "`5` is no duration",
        ),
        (
            "listen: \":80\"\nroutes:\n- { to: \"http://a.example\", methods: get }\n",
            "short.yaml:3:38",
            "`get` is no method",
        ),
        (
            "listen: \":80\"\nroutes:\n- { to: \"http://a.example\", hosts: [\"a*b\"] }\n",
            "short.yaml:3:37",
            "`a*b` is no host",
        ),
        ("listen: \":80\"\nroutes:\n- { redirect: new }\n", "short.yaml:3:15", "neither a path nor a URL"),
        (
            "listen: \":80\"\nroutes:\n- { redirect: { to: /a, status: 200 } }\n",
            "short.yaml:3:33",
            "no status of a redirect",
        ),
        ("listen: \":80\"\nroutes:\n- { respond: { status: 99 } }\n", "short.yaml:3:24", "no status of an answer"),
        (
            "listen: \":80\"\nroutes:\n- { match: { regex: \"(\" }, respond: 404 }\n",
            "short.yaml:3:21",
            "no regular expression",
        ),
        (
            "listen: \":80\"\nroutes:\n- { to: [{ url: \"http://a.example\", weight: x }] }\n",
            "short.yaml:3:45",
            "`weight` cannot be",
        ),
        ("listen: \":80\"\nroutes: {}\n", "short.yaml:2:9", "a list of routes"),
        ("tcp: { listen: \":1\" }\n", "short.yaml:1:6", "`tcp` needs `to`"),
        (
            "listen: \":443\"\ntls: auto\nroutes: [{ respond: a }]\n",
            "short.yaml:2:6",
            "no host to get a certificate for",
        ),
        ("listen: \":443\"\ntls: off\nroutes: []\n", "short.yaml:2:6", "the one way to TLS"),
        ("tls: auto\ntcp: { listen: \":1\", to: \"a:1\" }\n", "short.yaml:1:6", "`tls` needs `routes`"),
        (
            "listen: \":443\"\ntls: auto\nroutes: [{ hosts: [\"*.a.example\"], respond: a }]\n",
            "short.yaml:3:20",
            "takes a DNS-01 challenge",
        ),
        (
            "listen: \":443\"\ntls: { auto: { names: [\"*.a.example\", 127.0.0.1] } }\nroutes: [{ respond: a }]\n",
            "short.yaml:2:24",
            "`*.a.example`: a wildcard takes a DNS-01 challenge",
        ),
        (
            "listen: \":443\"\ntls: { auto: { names: a.example, challenge: dns-01 } }\nroutes: [{ respond: a }]\n",
            "short.yaml:2:45",
            "the challenge `dns-01` is not supported",
        ),
        (
            "listen: \":443\"\ntls: { auto: { names: a.example, directory: \"http://a/\" } }\nroutes: [{ respond: a }]\n",
            "short.yaml:2:45",
            "`http://a/` is no `https` URL",
        ),
        (
            "listen: \":443\"\ntls: { auto: { names: [a.example, A.example] } }\nroutes: [{ respond: a }]\n",
            "short.yaml:2:35",
            "another certificate has the first name `a.example`",
        ),
        (
            "listen: \":80\"\naccess_log: { to: stdout, format: \"%PROTOCL%\" }\nroutes: []\n",
            "short.yaml:2:36",
            "did you mean `%PROTOCOL%`?",
        ),
    ] {
        let said = said(text);
        if !said.contains(&format!("{place}: error")) || !said.contains(message) {
            wrong.push(format!("{place} `{message}` is not in\n{said}"));
        }
        assert!(outcome(text).snapshot.is_none());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const WITH_PLUGINS: &str = r#"
listen: ":8080"
plugins:
- name: limit
  runtime: rider
  version: 1.10
  code: plugins/limit.lua
  config: { perSecond: 0.5, keys: [{ name: Host }] }
  schema: { type: object, required: [perSecond] }
  phases: [request_headers]
  on_error: 503
  budget: { cpu: 10ms, memory: 16MiB }
  circuit: { faults: 5, cpu_kills: 2, window: 1m, retry: 500ms }
  clusters: ["http://127.0.0.1:9100", "http://127.0.0.1:9000"]
  options: { sandbox: strict }
- name: inline
  runtime: rider
  code: |
    local rider = require("rider.v2")
    return {}
  circuit: false
- { name: folder, runtime: rider, code: plugins/folder/ }
- { name: one-line, runtime: rider, code: { inline: "return {}" } }
- { name: away, runtime: rider, code: { remote: { url: "oci://a.test/b:1" } } }
routes:
- { match: /free, to: "http://127.0.0.1:9000", plugins: { limit: false, inline: { userId: 7 } } }
- { match: /, to: "http://127.0.0.1:9000" }
"#;

/// As if the plugins' types had a filter.
fn with_filters(text: &str) -> Outcome {
    let options = LoadOptions { forms: vec![&Short], ..LoadOptions::default() };
    load(&SourceFile::new("short.yaml", text), &options, &|kind: &str| {
        kind == "postrider.filters.http.plugin.v1.Plugin"
    })
}

#[test]
fn plugins_become_filters_before_the_router_and_overrides_of_routes() {
    let outcome = with_filters(WITH_PLUGINS);
    let said = render::text(&outcome.diagnostics, &outcome.sources, false);
    assert!(outcome.diagnostics.is_empty(), "{said}");
    let snapshot = outcome.snapshot.clone().unwrap();
    let http = http(&snapshot);
    let names: Vec<&str> = http.filters.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(names, ["limit", "inline", "folder", "one-line", "away"]);
    let yaml = outcome.to_envoy_yaml().unwrap();
    let limit = r#"
          - name: limit
            typed_config:
              "@type": type.googleapis.com/postrider.filters.http.plugin.v1.Plugin
              name: limit
              version: "1.10"
              runtime: rider
              code:
                filename: plugins/limit.lua
              config:
                perSecond: 0.5
                keys:
                - name: Host
              config_schema:
                type: object
                required:
                - perSecond
              phases:
              - request_headers
              on_error: "503"
              budget:
                cpu: 0.010s
                memory_bytes: "16777216"
              circuit:
                faults: 5
                cpu_kills: 2
                window: 60s
                retry: 0.500s
              clusters:
              - "127.0.0.1:9100"
              - "127.0.0.1:9000"
              options:
                sandbox: strict
"#;
    assert!(yaml.contains(limit), "{yaml}");
    for part in [
        "inline_string: |\n                  local rider = require(\"rider.v2\")\n",
        "circuit:\n                faults: 0\n",
        "directory: plugins/folder/\n",
        "inline_string: \"return {}\"\n",
        "remote:\n                  url: oci://a.test/b:1\n",
    ] {
        assert!(yaml.contains(part), "{part}\n{yaml}");
    }
    let routes = &http.routes.virtual_hosts[0].routes;
    let changes: Vec<String> = routes[0]
        .filter_overrides
        .iter()
        .map(|change| format!("{} {:?}", change.name, change.config.as_ref().map(|config| &config.value)))
        .collect();
    assert_eq!(
        changes,
        [
            r#"limit Some(Map([("disabled", Bool(true))]))"#,
            r#"inline Some(Map([("config", Map([("userId", Integer(7))]))]))"#
        ]
    );
    assert!(routes[1].filter_overrides.is_empty());
    let again = with_filters(&yaml);
    assert_eq!(again.snapshot, Some(snapshot));
}

#[test]
fn mistakes_about_plugins_are_told_where_they_stand() {
    let mut wrong = Vec::new();
    let plugin = "{ name: p, runtime: rider, code: p.lua }";
    for (plugins, route, place, message) in [
        ("{}".to_owned(), "", "2:10", "a list of plugins"),
        ("[3]".to_owned(), "", "2:11", "a mapping"),
        ("[{ name: p, code: p.lua }]".to_owned(), "", "2:11", "needs `runtime`"),
        ("[{ name: p, runtime: rider }]".to_owned(), "", "2:11", "needs `code`"),
        (plugin.replace("name", "nmae"), "", "2:10", "a list of plugins"),
        (format!("[{}]", plugin.replace("runtime", "runtme")), "", "2:22", "did you mean `runtime`?"),
        (format!("[{plugin}, {plugin}]"), "", "2:61", "there is another plugin `p`"),
        (format!("[{}]", plugin.replace("p.lua", "{ file: a, inline: b }")), "", "2:44", "code has one place"),
        (format!("[{}]", plugin.replace("p.lua", "{ file: a, remote: {} }")), "", "2:44", "code has one place"),
        (format!("[{}]", plugin.replace("p.lua", "p.lua, budget: { memory: 16MB }")), "", "2:69", "no number of bytes"),
        (format!("[{}]", plugin.replace("p.lua", "p.lua, budget: { cpu: fast }")), "", "2:66", "`fast` is no duration"),
        (format!("[{}]", plugin.replace("p.lua", "p.lua, clusters: [{}]")), "", "2:62", "a server such as"),
        (
            format!("[{}]", plugin.replace("p.lua", "p.lua, clusters: [nosuch]")),
            "",
            "2:62",
            "there is no cluster `nosuch`",
        ),
        (format!("[{plugin}]"), ", plugins: { q: {} }", "4:30", "did you mean `p`?"),
        (format!("[{plugin}]"), ", plugins: { p: true }", "4:33", "or `false`"),
        (format!("[{plugin}]"), ", plugins: [p]", "4:28", "a mapping of plugins' names"),
    ] {
        let text = format!("listen: \":80\"\nplugins: {plugins}\nroutes:\n- {{ respond: 200{route} }}\n");
        let outcome = with_filters(&text);
        let said = render::text(&outcome.diagnostics, &outcome.sources, false);
        if !said.contains(&format!("short.yaml:{place}: error")) || !said.contains(message) {
            wrong.push(format!("{place} `{message}` is not in\n{said}"));
        }
        assert!(outcome.snapshot.is_none());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let said = said("tcp: { listen: \":1\", to: \"127.0.0.1:1\" }\nplugins: []\n");
    assert!(said.contains("short.yaml:2:10: error") && said.contains("`plugins` needs `routes`"), "{said}");
}

/// What a schema finds below a route's configuration is told at the user's key.
#[test]
fn a_plugins_own_error_points_into_the_short_form() {
    let mut outcome = with_filters(WITH_PLUGINS);
    let snapshot = outcome.snapshot.clone().unwrap();
    let slot = &http(&snapshot).filters[0];
    let error = |path: &str| ValueError { path: path.into(), message: format!("wrong: {path}") };
    outcome.refuse_filter(&slot.origin, &error("config.keys[0].name"));
    outcome.refuse_filter(&slot.origin, &error("budget.memory_bytes"));
    outcome.refuse_filter(&slot.origin, &error("code.filename"));
    let change = &http(&snapshot).routes.virtual_hosts[0].routes[0].filter_overrides[1];
    outcome.refuse_filter(&change.origin, &error("config.userId"));
    let said = render::text(&outcome.diagnostics, &outcome.sources, false);
    for place in ["8:44", "12:32", "7:9", "26:91"] {
        assert!(said.contains(&format!("short.yaml:{place}: error[invalid-filter-config]: wrong")), "{place}\n{said}");
    }
}

#[test]
fn the_example_is_accepted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/short.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    snapshot(&text);
    envoy_accepts(&text);
}

#[test]
fn auto_tls_gets_a_certificate_for_each_host_and_answers_on_port_80() {
    let text = "listen: \":8443\"\ntls: auto\nroutes:\n\
        - { match: /a, hosts: [A.example, b.example], respond: a }\n- { match: /, respond: any }\n";
    let snapshot = snapshot(text);
    let acme = snapshot.acme.as_ref().expect("an authority");
    assert_eq!(acme.certificates, [["a.example"], ["b.example"]]);
    assert_eq!(acme.directory, "https://acme-v02.api.letsencrypt.org/directory");
    let tls = snapshot.listeners[0].filter_chains[0].tls.as_ref().expect("TLS");
    let files: Vec<_> = acme.certificates.iter().map(|names| Data::File(acme.certificate_file(&names[0]))).collect();
    let named: Vec<_> = tls.certificates.iter().map(|it| (it.chain.clone(), it.key.clone())).collect();
    assert_eq!(named, files.into_iter().map(|file| (file.clone(), file)).collect::<Vec<_>>());
    assert_eq!(tls.common.alpn, ["h2", "http/1.1"]);
    let port_80 = &snapshot.listeners[1];
    assert_eq!((port_80.name.as_str(), port_80.addresses[0].to_string().as_str()), ("acme-http", "0.0.0.0:80"));
    let socket = match &snapshot.clusters[0].discovery {
        Discovery::Static(endpoints) => format!("{endpoints:?}"),
        other => panic!("{other:?}"),
    };
    assert!(socket.contains(acme.challenge_socket().to_str().unwrap()), "{socket}");
}

#[test]
fn auto_tls_by_alpn_answers_in_the_listener_itself() {
    let text =
        "listen: \":443\"\ntls: { auto: { challenge: tls-alpn-01 } }\nroutes: [{ hosts: a.example, respond: a }]\n";
    let snapshot = snapshot(text);
    let acme = snapshot.acme.as_ref().expect("an authority");
    assert_eq!(acme.challenge, postrider_model::AcmeChallenge::TlsAlpn01);
    assert_eq!((snapshot.listeners.len(), snapshot.clusters.len()), (1, 0));
    let chains = &snapshot.listeners[0].filter_chains;
    let tls = chains[1].tls.as_ref().expect("TLS");
    assert_eq!(tls.common.alpn, ["acme-tls/1"]);
    assert_eq!(tls.certificates[0].chain, Data::File(acme.challenge_file("a.example")));
    let said = said(&text.replace("tls-alpn-01", "tls-alpn-01, http: \":80\""));
    assert!(said.contains("`http` has no effect"), "{said}");
}

#[test]
fn the_plugins_of_a_share_stand_at_its_weighted_cluster() {
    let text = r#"
listen: ":8080"
plugins: [{ name: p, runtime: rider, code: p.lua }, { name: q, runtime: rider, code: q.lua }]
routes:
- to:
  - { url: "http://127.0.0.1:9000", weight: 95, plugins: { p: { tier: old } } }
  - { url: "http://127.0.0.1:9001", weight: 5, plugins: { p: { tier: new }, q: false } }
  - { url: "http://127.0.0.1:9002" }
"#;
    let outcome = with_filters(text);
    assert!(outcome.diagnostics.is_empty(), "{}", render::text(&outcome.diagnostics, &outcome.sources, false));
    let snapshot = outcome.snapshot.clone().unwrap();
    let Action::Forward(forward) = &http(&snapshot).routes.virtual_hosts[0].routes[0].action else { panic!() };
    let Target::Weighted(parts) = &forward.target else { panic!() };
    let told: Vec<String> =
        parts.iter().map(|part| format!("{}: {}", part.weight, changes(&part.filter_overrides))).collect();
    let config = change_to_tier;
    let off = r#"q Some(Map([("disabled", Bool(true))]))"#;
    assert_eq!(told, [format!("95: {}", config("old")), format!("5: {}, {off}", config("new")), "1: ".to_owned()]);
    let again = with_filters(&outcome.to_envoy_yaml().unwrap());
    assert_eq!(again.snapshot, Some(snapshot));
}

#[test]
fn a_text_configures_a_plugin_at_a_route() {
    let change = |written: &str| {
        let text = format!(
            "listen: \":80\"\nplugins: [{{ name: p, runtime: native, code: p.so, config: all }}]\nroutes:\n\
             - {{ respond: 200, plugins: {{ p: {written} }} }}\n"
        );
        let outcome = with_filters(&text);
        let said = render::text(&outcome.diagnostics, &outcome.sources, false);
        let snapshot = outcome.snapshot.clone().unwrap_or_else(|| panic!("{said}"));
        assert_eq!(with_filters(&outcome.to_envoy_yaml().unwrap()).snapshot, Some(snapshot.clone()));
        changes(&http(&snapshot).routes.virtual_hosts[0].routes[0].filter_overrides)
    };
    for (written, text) in [("mode=a", "mode=a"), ("\"false\"", "false"), ("\"1\"", "1"), ("\"\"", "")] {
        assert_eq!(change(written), format!("p Some(Map([(\"config\", String({text:?}))]))"));
    }
    assert_eq!(change("false"), "p Some(Map([(\"disabled\", Bool(true))]))");
}

#[test]
fn mistakes_about_the_plugins_of_a_share_are_told_where_they_stand() {
    for (share, place, message) in [
        ("plugin: {}", "4:42", "did you mean `plugins`?"),
        ("plugins: { q: {} }", "4:53", "there is no plugin `q`"),
        ("plugins: { plugin: 1 }", "4:61", "or `false`"),
        ("plugins: [plugin]", "4:51", "a mapping of plugins' names"),
    ] {
        let text = format!(
            "listen: \":80\"\nplugins: [{{ name: plugin, runtime: rider, code: p.lua }}]\nroutes:\n\
             - {{ to: [{{ url: \"http://127.0.0.1:9000\", {share} }}] }}\n"
        );
        let outcome = with_filters(&text);
        let said = render::text(&outcome.diagnostics, &outcome.sources, false);
        assert!(said.contains(&format!("short.yaml:{place}: error")) && said.contains(message), "{message}:\n{said}");
        assert!(outcome.snapshot.is_none());
    }
    // Connections have no plugins.
    let said = said("tcp: { listen: \":1\", to: [{ url: \"127.0.0.1:1\", plugins: {} }] }\n");
    assert!(said.contains("short.yaml:1:49: error") && said.contains("plugins"), "{said}");
}

/// What is said of plugins at a place, as one line.
fn changes(overrides: &[FilterOverride]) -> String {
    let change =
        |change: &FilterOverride| format!("{} {:?}", change.name, change.config.as_ref().map(|config| &config.value));
    overrides.iter().map(change).collect::<Vec<_>>().join(", ")
}

/// The configuration of the plugin `p` as [`changes`] tells it.
fn change_to_tier(tier: &str) -> String {
    format!(r#"p Some(Map([("config", Map([("tier", String("{tier}"))]))]))"#)
}

const WITH_HOSTS: &str = r#"
listen: ":8080"
plugins: [{ name: p, runtime: rider, code: p.lua }]
hosts:
  Shop.example: { plugins: { p: { tier: gold } } }
  "*.example": { plugins: { p: false } }
  "*": { plugins: { p: { tier: none } } }
routes:
- { match: /a, hosts: [shop.example, blog.example, other.test], respond: a }
- { match: /, respond: rest, plugins: { p: { tier: route } } }
"#;

#[test]
fn a_hosts_plugins_stand_at_its_virtual_host() {
    let outcome = with_filters(WITH_HOSTS);
    assert!(outcome.diagnostics.is_empty(), "{}", render::text(&outcome.diagnostics, &outcome.sources, false));
    let snapshot = outcome.snapshot.clone().unwrap();
    let hosts: Vec<_> = http(&snapshot).routes.virtual_hosts.iter().collect();
    let told: Vec<String> = hosts
        .iter()
        .map(|host| format!("{}: {} routes, {}", host.name, host.routes.len(), changes(&host.filter_overrides)))
        .collect();
    let config = change_to_tier;
    assert_eq!(
        told,
        [
            format!("shop.example: 2 routes, {}", config("gold")),
            // The entry that says most about a host counts, and hosts of one entry with other routes stand apart.
            r#"blog.example: 2 routes, p Some(Map([("disabled", Bool(true))]))"#.to_owned(),
            format!("other.test: 2 routes, {}", config("none")),
            r#"*.example: 1 routes, p Some(Map([("disabled", Bool(true))]))"#.to_owned(),
            format!("any: 1 routes, {}", config("none")),
        ]
    );
    let again = with_filters(&outcome.to_envoy_yaml().unwrap());
    assert_eq!(again.snapshot, Some(snapshot));
}

#[test]
fn mistakes_about_hosts_are_told_where_they_stand() {
    for (hosts, place, message) in [
        ("[a]", "3:8", "a mapping of hosts"),
        ("{ \"a b\": {} }", "3:10", "`a b` is no host"),
        ("{ \"*a*\": {} }", "3:10", "is no host"),
        ("{ a: {}, A: {} }", "3:17", "stands here already"),
        ("{ a: { plugin: {} } }", "3:15", "did you mean `plugins`?"),
        ("{ a: { plugins: { q: {} } } }", "3:26", "there is no plugin `q`"),
        ("{ b: {} }", "3:10", "no route takes requests for `b`"),
    ] {
        let text = format!(
            "listen: \":80\"\nplugins: [{{ name: plugin, runtime: rider, code: p.lua }}]\nhosts: {hosts}\n\
             routes:\n- {{ hosts: a, respond: 200 }}\n"
        );
        let outcome = with_filters(&text);
        let said = render::text(&outcome.diagnostics, &outcome.sources, false);
        assert!(said.contains(&format!("short.yaml:{place}: error")) && said.contains(message), "{message}:\n{said}");
        assert!(outcome.snapshot.is_none());
    }
    let said = said("tcp: { listen: \":1\", to: \"127.0.0.1:1\" }\nhosts: {}\n");
    assert!(said.contains("short.yaml:2:8: error") && said.contains("`hosts` needs `routes`"), "{said}");
}
