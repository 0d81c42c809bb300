//! Commands of formats that look at several places: expressions, alternatives, what hosts are called and were told.

use postrider_tests::envoy;
use postrider_tests::kit::config::extension;
use postrider_tests::kit::{Origin, TempDir, net, wait_until};
use postrider_tests::site;
use serde_json::{Value, json};

#[test]
fn expressions_have_values() {
    let line = "%CEL(request.path)%|%CEL(size(request.path) > 3):2%|%CEL(request.headers['x-none'])%|%CEL(1.5)%|%CEL(null)%|\
                %CEL([1])%|%CEL(response.code)%";
    let site = site::with([]).log(line).start();
    site.get("/abc?x=1", "");
    assert_eq!(site.logged(1), "/abc?x=1|tr|-|1.5|NULL|CelList value|200");
}

#[test]
fn expressions_know_the_proxy_the_listener_and_the_upstream() {
    let line = concat!(
        "%CEL(xds.node.id)%|%CEL(xds.node.cluster)%|%CEL(xds.node.metadata.role)%|%CEL(xds.node.metadata.list[1])%|",
        "%CEL(xds.node.locality.region)%|%CEL(has(xds.node.locality.sub_zone))%|%CEL(xds.node.locality.sub_zone)%|",
        "%CEL(xds.listener_direction)%|%CEL(xds.listener_metadata.filter_metadata.l.key)%|",
        "%CEL(has(xds.listener_metadata.filter_metadata.none))%|%CEL(xds.cluster_metadata.filter_metadata.c.key)%|",
        "%CEL(xds.upstream_host_metadata.filter_metadata.h.number)%|%CEL(upstream.locality.region)%|",
        "%CEL(has(upstream.locality.zone))%|%CEL(upstream.num_endpoints)%",
    );
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let endpoints = json!([{
        "locality": {"region": "there"},
        "lb_endpoints": [{
            "endpoint": {"address": {"socket_address": {
                "address": origin.address.ip().to_string(), "port_value": origin.address.port()}}},
            "metadata": {"filter_metadata": {"h": {"number": 1.5}}},
        }],
    }]);
    let routes = json!([
        {"match": {"prefix": "/own"}, "direct_response": {"status": 200}},
        {"match": {"prefix": "/"}, "route": {"cluster": "other"}},
    ]);
    let site = site::with([])
        .log(line)
        .routes(routes)
        .cluster(
            "other",
            &[],
            json!({
                "metadata": {"filter_metadata": {"c": {"key": "of cluster"}}},
                "load_assignment": {"cluster_name": "other", "endpoints": endpoints},
            }),
        )
        .listener(json!({
            "traffic_direction": "OUTBOUND",
            "metadata": {"filter_metadata": {"l": {"key": "of listener"}}},
        }))
        .whole(json!({"node": {
            "id": "one", "cluster": "many", "locality": {"region": "here"},
            "metadata": {"role": "edge", "list": [1, "two"]},
        }}))
        .start();
    site.get("/", "");
    site.get("/own", "");
    let own = "one|many|edge|two|here|false||2|of listener|false|";
    assert_eq!(site.logged(1), format!("{own}of cluster|1.5|there|false|1"));
    assert_eq!(site.logged(2), format!("{own}-|-|-|-|-"));
}

#[test]
fn localities_have_metadata_and_are_values_as_a_whole() {
    let line = concat!(
        "%CEL(upstream.locality)%|%CEL(has(upstream.locality))%|%CEL(upstream.locality == xds.node.locality)%|",
        "%CEL(upstream.locality['region'])%|%CEL(type(upstream.locality))%|",
        "%CEL(xds.upstream_host_locality_metadata.filter_metadata.l.key)%|",
        "%CEL(has(xds.upstream_host_locality_metadata.filter_metadata.none))%|",
        "%CEL(xds.node.locality)%|%CEL(has(xds.node.locality))%",
    );
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let endpoints = json!([{
        "locality": {"region": "there", "zone": "z"},
        "metadata": {"filter_metadata": {"l": {"key": "of locality"}}},
        "lb_endpoints": [{"endpoint": {"address": {"socket_address": {
            "address": origin.address.ip().to_string(), "port_value": origin.address.port()}}}}],
    }]);
    let site = site::with([])
        .log(line)
        .routes(json!([
            {"match": {"prefix": "/own"}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/"}, "route": {"cluster": "other"}},
        ]))
        .cluster("other", &[], json!({"load_assignment": {"cluster_name": "other", "endpoints": endpoints}}))
        .whole(json!({"node": {"id": "one", "cluster": "many", "locality": {"region": "here"}}}))
        .start();
    site.get("/", "");
    site.get("/own", "");
    let there = r#"region: "there" zone: "z" "#;
    let here = r#"region: "here" |true"#;
    assert_eq!(site.logged(1), format!("{there}|true|false|-|CelType value|of locality|false|{here}"));
    assert_eq!(site.logged(2), format!("-|false|-|-|-|-|-|{here}"));
}

#[test]
fn the_first_of_several_commands_with_a_value_counts() {
    let line = concat!(
        r#"%COALESCE({"operators": ["REQUESTED_SERVER_NAME", {"command": "REQ", "param": "x-a"}, "#,
        r#"{"command": "REQ", "param": ":authority", "max_length": 2}]})%|"#,
        r#"%COALESCE({"operators": [{"command": "REQ", "param": "x-a"}, {"command": "REQ", "param": "x-b"}]}):3%"#,
    );
    let site = site::with([]).log(line).start();
    site.get("/", "");
    site.get("/", "x-a: one\r\nx-b: another\r\n");
    site.get("/", "x-b: another\r\n");
    assert_eq!(site.logged(1), "te|-");
    assert_eq!(site.logged(2), "one|one");
    assert_eq!(site.logged(3), "te|ano");
}

#[test]
fn a_header_may_be_shown_without_its_query() {
    let formatter = json!({
        "name": "envoy.formatter.req_without_query",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery"},
    });
    let reply = json!({"local_reply_config": {"body_format": {
        "text_format_source": {"inline_string": "%REQ_WITHOUT_QUERY(X-NONE?:PATH):3%|%REQ_WITHOUT_QUERY(X-NONE)%"},
        "formatters": [formatter],
    }}});
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 404}}]);
    let site = site::with([]).manager(reply).routes(routes).start();
    assert_eq!(site.get("/abc?x=1", "").text(), "/ab|-");
}

#[test]
fn hosts_have_names_and_those_that_were_tried_are_known() {
    let origin = Origin::echo("a");
    let closed = net::refusing_address();
    let endpoint = |port: u16, name: &str| {
        json!({"endpoint": {
            "hostname": name, "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        }, "metadata": {"filter_metadata": {"of.host": {"rack": name}}}})
    };
    let load = json!({"cluster_name": "pair", "endpoints": [
        {"lb_endpoints": [endpoint(closed.port(), "first.test")], "priority": 0},
        {"lb_endpoints": [endpoint(origin.address.port(), "second.test:81")], "priority": 1},
    ]});
    let line = "%UPSTREAM_HOST_NAME%|%UPSTREAM_HOST_NAME_WITHOUT_PORT%|%UPSTREAM_HOST_NAMES_ATTEMPTED%|\
                %UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT%|%UPSTREAM_HOSTS_ATTEMPTED%|\
                %UPSTREAM_METADATA(of.host:rack)%|%METADATA(CLUSTER:of.cluster:tier)%|%CLUSTER_METADATA(of.cluster)%|%TRACE_ID%";
    let priority = json!({
        "name": "envoy.retry_priorities.previous_priorities",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
            "update_frequency": 1,
        },
    });
    let retry = json!({"retry_on": "connect-failure", "num_retries": 1, "retry_priority": priority});
    let site = site::with([])
        .log(line)
        .routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "pair", "retry_policy": retry}}]))
        .cluster(
            "pair",
            &[],
            json!({
                "load_assignment": load, "metadata": {"filter_metadata": {"of.cluster": {"tier": "gold"}}},
            }),
        )
        .start();
    assert_eq!(site.get("/", "").status, 200);
    let second = origin.address;
    // Envoy knows of those of the last try alone.
    let tried = match envoy() {
        true => format!("second.test:81|second.test|{second}"),
        false => format!("first.test,second.test:81|first.test,second.test|{closed},{second}"),
    };
    let noted = r#"second.test:81|gold|{"tier":"gold"}|-"#;
    assert_eq!(site.logged(1), format!("second.test:81|second.test|{tried}|{noted}"));
}

/// Formatters for commands that stand for files and secrets.
fn formatters() -> Value {
    json!([
        extension("envoy.formatter.file_content", "formatter.file_content.v3.FileContent", json!({})),
        extension(
            "envoy.formatter.generic_secret",
            "formatter.generic_secret.v3.GenericSecret",
            json!({
                "secret_configs": {"key": {"name": "written"}, "none": {"name": "empty"}},
            })
        ),
    ])
}

fn secrets() -> Value {
    let secret = |name: &str, text: &str| json!({"name": name, "generic_secret": {"secret": {"inline_string": text}}});
    json!({"static_resources": {"secrets": [secret("written", "hush"), secret("empty", "")]}})
}

#[test]
fn files_and_secrets_stand_in_bodies_and_are_read_again() {
    let folder = TempDir::new();
    let file = folder.write("a.txt", "one\n");
    // Without the folder, Envoy does not see another file take the place of this one.
    let content = format!("FILE_CONTENT({}:{})", file.display(), folder.path().display());
    let line = format!("<%{content}%|%{content}:2%|%SECRET(key)%|%SECRET(key):2%|%SECRET(none)%>");
    let format = json!({"text_format_source": {"inline_string": line}, "formatters": formatters()});
    let routes = json!([{"match": {"prefix": "/"}, "direct_response": {"status": 404}}]);
    let manager = json!({"local_reply_config": {"body_format": format}});
    let site = site::with([]).manager(manager).routes(routes).whole(secrets()).start();
    assert_eq!(site.get("/", "").text(), "<one\n|on|hush|hu|->");
    folder.write("a.txt", "two");
    wait_until("the file is read again", || site.get("/", "").text() == "<two|tw|hush|hu|->");
}

#[test]
fn secrets_stand_in_headers() {
    let mutation = |name: &str| {
        json!({"mutations": {
            "response_mutations": [{"append": {"header": {"key": name, "value": "<%SECRET(key)%>"}}}],
            "formatters": formatters(),
        }})
    };
    let own = extension("m", "filters.http.header_mutation.v3.HeaderMutationPerRoute", mutation("x-own"));
    let routes = json!([site::route("/own", "m", own["typed_config"].clone()), site::rest()]);
    let mutation = extension("m", "filters.http.header_mutation.v3.HeaderMutation", mutation("x-key"));
    let site = site::with([mutation]).routes(routes).whole(secrets()).start();
    let told = |path: &str| ["x-key", "x-own"].map(|name| site.get(path, "").header(name).to_owned());
    assert_eq!(told("/"), ["<hush>", ""]);
    assert_eq!(told("/own"), ["<hush>", "<hush>"]);
}
