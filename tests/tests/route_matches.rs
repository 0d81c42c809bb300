//! Routes by cookies, by the client's certificate, by what filters found out and by templates; paths and hosts by format.

use postrider_tests::kit::config::{extension, overlay, router};
use postrider_tests::kit::{Config, Origin, Proxy, Response, net::refusing_address};
use postrider_tests::{ask, named_route};
use serde_json::{Value, json};

fn path_template(template: &str) -> Value {
    json!({"name": "envoy.path.match.uri_template.uri_template_matcher", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig",
        "path_template": template,
    }})
}

fn rewrite_template(template: &str) -> Value {
    json!({"name": "envoy.path.rewrite.uri_template.uri_template_rewriter", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig",
        "path_template_rewrite": template,
    }})
}

/// What an origin saw of a request for `path`: its target and its host.
fn seen(origin: &Origin, proxy: &Proxy, path: &str, fields: &str) -> (String, String) {
    assert_eq!(ask(proxy, "GET", "test", path, fields).status, 200, "{path}");
    let request = origin.requests().pop().expect("a request");
    (request.target.clone(), request.header("host").to_owned())
}

#[test]
fn cookies_are_compared_one_by_one() {
    let proxy = Proxy::start(&Config::routes(json!([
        named_route(
            "both",
            json!({"cookies": [
                {"name": "a", "string_match": {"exact": "1"}},
                {"name": "b", "string_match": {"prefix": "x"}, "invert_match": true},
            ]})
        ),
        named_route("other", json!({})),
    ])));
    for (cookies, want) in [
        ("cookie: a=1\r\n", "both"),
        ("cookie: a=1; b=y\r\n", "both"),
        ("cookie: a=1; b=x1\r\n", "other"),
        ("cookie: a=2; a=1\r\n", "other"),
        ("cookie: a=1; a=2\r\n", "both"),
        ("cookie: a=\"1\"; b=y\r\n", "both"),
        ("cookie:  b=y;a=1\r\n", "both"),
        ("cookie: A=1; b=y\r\n", "other"),
        ("cookie: a = 1;b=y\r\n", "other"),
        ("cookie: b=y\r\ncookie: a=1\r\n", "both"),
        ("", "other"),
    ] {
        assert_eq!(ask(&proxy, "GET", "test", "/", cookies).text(), want, "{cookies}");
    }
}

#[test]
fn without_tls_and_filters_there_is_nothing_to_match() {
    let proxy = Proxy::start(&Config::routes(json!([
        named_route("presented", json!({"prefix": "/tls", "tls_context": {"presented": true}})),
        named_route("validated", json!({"prefix": "/tls", "tls_context": {"validated": true}})),
        named_route("neither", json!({"prefix": "/tls", "tls_context": {"presented": false, "validated": false}})),
        named_route(
            "noted",
            json!({"prefix": "/md", "dynamic_metadata": [
            {"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}}]})
        ),
        named_route(
            "unnoted",
            json!({"prefix": "/md", "dynamic_metadata": [
            {"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}, "invert": true}]})
        ),
        named_route("state", json!({"prefix": "/fs", "filter_state": [{"key": "k", "string_match": {"prefix": "x"}}]})),
        named_route("other", json!({})),
    ])));
    for (path, want) in [("/tls", "neither"), ("/md", "unnoted"), ("/fs", "other")] {
        assert_eq!(proxy.get(path).text(), want, "{path}");
    }
}

/// A filter that notes `f.k`, and has the route chosen anew.
fn noting() -> Value {
    let script = "function envoy_on_request(handle)\n  handle:streamInfo():dynamicMetadata():set(\"f\", \"k\", \
                  handle:headers():get(\"x-k\") or \"\")\n  handle:clearRouteCache()\nend";
    json!({"name": "envoy.filters.http.lua", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": script},
    }})
}

#[test]
fn what_a_filter_noted_chooses_the_route_when_it_is_chosen_anew() {
    let matcher = json!({"filter": "f", "path": [{"key": "k"}], "value": {"string_match": {"exact": "v"}}});
    let config = Config::routes(json!([
        named_route("noted", json!({"dynamic_metadata": [matcher]})),
        named_route("other", json!({})),
    ]))
    .overlay_filter("http", json!({"http_filters": [noting(), router()]}));
    let proxy = Proxy::start(&config);
    assert_eq!(ask(&proxy, "GET", "test", "/", "x-k: v\r\n").text(), "noted");
    assert_eq!(ask(&proxy, "GET", "test", "/", "x-k: w\r\n").text(), "other");
}

#[test]
fn templates_match_paths_and_make_others() {
    let origin = Origin::echo("a");
    let template = |name: &str, template: &str| {
        json!({"match": {"path_match_policy": path_template(template)},
               "direct_response": {"status": 200, "body": {"inline_string": name}}})
    };
    let config = Config::routes(json!([
        {"match": {"path_match_policy": path_template("/u/{lang}/{rest=**}")},
         "route": {"cluster": "origin", "path_rewrite_policy": rewrite_template("/new/{rest}/l/{lang}")}},
        template("segment", "/t/*/x"),
        template("deep", "/v/{a=*}/{b=foo/*}"),
        named_route("other", json!({})),
    ]))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    for (path, want) in
        [("/u/en/a/b?q=1", "/new/a/b/l/en?q=1"), ("/u/en/", "/new//l/en"), ("/u/e-n/a%20b", "/new/a%20b/l/e-n")]
    {
        assert_eq!(seen(&origin, &proxy, path, "").0, want, "{path}");
    }
    for (path, want) in [
        ("/u/en", "other"),
        ("/t/a/x", "segment"),
        ("/t/a/b/x", "other"),
        ("/v/1/foo/2", "deep"),
        ("/v/1/bar/2", "other"),
    ] {
        assert_eq!(proxy.get(path).text(), want, "{path}");
    }
}

#[test]
fn formats_make_paths_and_hosts() {
    let origin = Origin::echo("a");
    let forward = |prefix: &str, way: &str, format: &str| {
        let mut action = json!({"cluster": "origin"});
        action[way] = json!(format);
        json!({"match": {"prefix": prefix}, "route": action})
    };
    let config = Config::routes(json!([
        forward("/pf", "path_rewrite", "/f%REQ(x-p)%/z"),
        forward("/pe", "path_rewrite", "%REQ(x-p)%"),
        forward("/hf", "host_rewrite", "h-%REQ(x-p)%"),
        {"match": {"prefix": "/rf"}, "redirect": {"path_rewrite": "/f%REQ(x-p)%/z"}},
        {"match": {"prefix": "/rq"}, "redirect": {"path_rewrite": "/f%REQ(x-p)%?n=1", "strip_query": true}},
        {"match": {"prefix": "/re"}, "redirect": {"path_rewrite": "%REQ(x-none)%"}},
    ]))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    for (path, fields, target, host) in [
        ("/pf?a=1", "", "/f/z?a=1", "test"),
        ("/pf?a=1", "x-p: A\r\n", "/fA/z?a=1", "test"),
        ("/pe/x?a=1", "", "/pe/x?a=1", "test"),
        ("/pe/x?a=1", "x-p: /b\r\n", "/b?a=1", "test"),
        ("/hf", "", "/hf", "h--"),
        ("/hf", "x-p: A\r\n", "/hf", "h-A"),
    ] {
        assert_eq!(seen(&origin, &proxy, path, fields), (target.to_owned(), host.to_owned()), "{path} {fields}");
    }
    for (path, want) in [("/rf?a=1", "/fA/z?a=1"), ("/rq?a=1", "/fA?n=1"), ("/re?a=1", "/re?a=1")] {
        let response = ask(&proxy, "GET", "test", path, "x-p: A\r\n");
        assert_eq!(response.header("location"), format!("http://test{want}"));
    }
}

#[test]
fn a_header_names_a_weighted_cluster_or_chooses_among_them() {
    let origin = Origin::echo("a");
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"weighted_clusters": {
        "header_name": "x-ticket",
        "clusters": [{"cluster_header": "x-cluster", "weight": 1}, {"name": "down", "weight": 1}],
    }}}]))
    .cluster("origin", &[origin.address])
    .cluster("down", &[refusing_address()]);
    let proxy = Proxy::start(&config);
    let get = |ticket: &str| -> Response {
        ask(&proxy, "GET", "test", "/", &format!("x-cluster: origin\r\nx-ticket: {ticket}\r\n"))
    };
    for (ticket, want) in [("0", 200), ("1", 503), ("2", 200), ("18446744073709551615", 503)] {
        assert_eq!(get(ticket).status, want, "{ticket}");
    }
    assert_eq!(ask(&proxy, "GET", "test", "/", "x-ticket: 0\r\n").status, 503);
}

#[test]
fn addresses_in_the_filter_state_choose_routes() {
    let noting = extension(
        "envoy.filters.http.set_filter_state",
        "filters.http.set_filter_state.v3.Config",
        json!({"clear_route_cache": true, "on_request_headers": [{
            "object_key": "from", "factory_key": "envoy.network.ip", "skip_if_empty": true,
            "format_string": {"text_format_source": {"inline_string": "%REQ(x-from)%"}, "omit_empty_values": true},
        }]}),
    );
    let ranges = json!([
        {"address_prefix": "10.0.0.0", "prefix_len": 8}, {"address_prefix": "2001:db8::", "prefix_len": 32},
    ]);
    let within = |more: Value| {
        let mut condition = json!({"ranges": ranges});
        overlay(&mut condition, more);
        json!({"filter_state": [{"key": "from", "address_match": condition}]})
    };
    let config = Config::routes(json!([
        named_route("inside", within(json!({}))),
        named_route("outside", within(json!({"invert_match": true}))),
        named_route("unknown", json!({})),
    ]))
    .overlay_filter("http", json!({"http_filters": [noting, router()]}));
    let proxy = Proxy::start(&config);
    for (from, want) in [
        ("10.1.2.3", "inside"),
        ("2001:db8::1", "inside"),
        ("11.0.0.1", "outside"),
        ("2001:db9::1", "outside"),
        ("localhost", "unknown"),
        ("", "unknown"),
    ] {
        let fields = if from.is_empty() { String::new() } else { format!("x-from: {from}\r\n") };
        assert_eq!(ask(&proxy, "GET", "test", "/", &fields).text(), want, "{from}");
    }
}
