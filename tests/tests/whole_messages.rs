//! Whole messages as values of expressions, and the metadata of listeners and filter chains in logs.

use postrider_tests::kit::config::{extension, file_access_log, http_filter, router};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::{ask, site};
use serde_json::{Value, json};

fn whole() -> Value {
    json!({"node": {
        "id": "me", "cluster": "it's", "metadata": {"a": [1, "two", null], "b": {"t": true}}, "locality": {"zone": "z"},
    }})
}

fn noting() -> Value {
    extension(
        "envoy.filters.http.set_metadata",
        "filters.http.set_metadata.v3.Config",
        json!({"metadata": [{"metadata_namespace": "ns", "value": {"s": "é\n", "l": [], "m": {}}}]}),
    )
}

/// Rows were observed on Envoy.
#[test]
fn metadata_is_shown_as_a_whole() {
    let rows = [
        (
            "metadata",
            "filter_metadata { key: \"ns\" value { fields { key: \"l\" value { list_value { } } } \
             fields { key: \"m\" value { struct_value { } } } \
             fields { key: \"s\" value { string_value: \"\\303\\251\\n\" } } } } ",
        ),
        (
            "xds.route_metadata",
            "filter_metadata { key: \"r\" value { fields { key: \"k\" value { number_value: 2 } } } } ",
        ),
        ("xds.virtual_host_metadata", ""),
        (
            "xds.listener_metadata",
            "filter_metadata { key: \"l\" value { fields { key: \"k\" value { string_value: \"of listener\" } } } } ",
        ),
        (
            "xds.cluster_metadata",
            "filter_metadata { key: \"c\" value { fields { key: \"k\" value { bool_value: false } } } } ",
        ),
        ("metadata == metadata", "true"),
        ("metadata == xds.route_metadata", "false"),
        ("xds.node == xds.node", "true"),
        ("has(xds.node)", "true"),
        ("type(metadata) == type(xds.route_metadata)", "true"),
        ("filter_state", "CelMap value"),
    ];
    let line = rows.map(|(text, _)| format!("%CEL({text})%")).join("|");
    let metadata = |namespace: &str, value: Value| json!({"filter_metadata": {namespace: {"k": value}}});
    let site = site::with([noting()])
        .routes(json!([{
            "match": {"prefix": "/"}, "route": {"cluster": "origin"}, "metadata": metadata("r", json!(2)),
        }]))
        .listener(json!({"metadata": metadata("l", json!("of listener"))}))
        .upstream(json!({"metadata": metadata("c", json!(false))}))
        .whole(whole())
        .log(&line)
        .start();
    assert_eq!(site.get("/", "").status, 200);
    let logged = site.logged(1);
    assert_eq!(logged.split('|').collect::<Vec<_>>(), rows.map(|(_, shown)| shown));
}

#[test]
fn a_node_is_shown_as_a_whole() {
    let site = site::with([]).whole(whole()).log("%CEL(xds.node)%").start();
    assert_eq!(site.get("/", "").status, 200);
    let logged = site.logged(1);
    for part in [
        "id: \"me\" cluster: \"it\\'s\" metadata { fields { key: \"a\" value { list_value { \
         values { number_value: 1 } values { string_value: \"two\" } values { null_value: NULL_VALUE } } } }",
        "locality { zone: \"z\" }",
    ] {
        assert!(logged.contains(part), "{logged}");
    }
}

#[test]
fn logs_show_metadata_of_listeners_and_of_filter_chains() {
    let folder = TempDir::new();
    let path = folder.path().join("log");
    let line = "%METADATA(LISTENER:l:k)% %METADATA(LISTENER:l)% %METADATA(LISTENER:none:k)% \
                %METADATA(LISTENER_FILTER_CHAIN:c:k:deep)% %METADATA(LISTENER_FILTER_CHAIN:l:k)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let origin = Origin::echo("a");
    let manager = json!({
        "access_log": [file_access_log(&path, format)],
        "http_filters": [router()],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [site::rest()]}]},
    });
    let chain = json!({
        "filters": [http_filter(manager)], "metadata": {"filter_metadata": {"c": {"k": {"deep": 7}}}},
    });
    let config = Config::new()
        .listener(
            "http",
            json!({
                "filter_chains": [chain], "metadata": {"filter_metadata": {"l": {"k": "of listener"}}},
            }),
        )
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 200);
    let mut logged = String::new();
    wait_until("a line", || {
        logged = std::fs::read_to_string(&path).unwrap_or_default();
        logged.ends_with('\n')
    });
    assert_eq!(logged, "of listener {\"k\":\"of listener\"} - 7 -\n");
}
