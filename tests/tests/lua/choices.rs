//! Scripts outside the filter chain: one names the cluster, one judges a header.

use postrider_tests::get;
use postrider_tests::kit::{Config, Origin, Proxy};
use serde_json::json;

#[test]
fn a_script_names_the_cluster() {
    let (one, two) = (Origin::echo("one"), Origin::echo("two"));
    let script = "function envoy_on_route(handle)
        local to = handle:headers():get('x-to')
        if to == 'fail' then error('on purpose') end
        return to
      end";
    let specifier = json!({
        "extension": {
            "name": "envoy.router.cluster_specifier_plugin.lua",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig",
                "source_code": {"inline_string": script},
                "default_cluster": "one",
            },
        },
    });
    let config =
        Config::routes(json!([{"match": {"prefix": "/"}, "route": {"inline_cluster_specifier_plugin": specifier}}]))
            .cluster("one", &[one.address])
            .cluster("two", &[two.address]);
    let proxy = Proxy::start(&config);
    let ask = |to: &str| proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\nx-to: {to}\r\n\r\n"));
    assert_eq!(ask("two").header("x-origin"), "two");
    assert_eq!(ask("one").header("x-origin"), "one");
    assert_eq!(ask("fail").header("x-origin"), "one", "the default");
    assert_eq!(ask("nobody").status, 503);
}

#[test]
fn a_script_judges_a_header() {
    let origin = Origin::echo("a");
    let matcher = json!({
        "name": "x-value",
        "string_match": {"custom": {
            "name": "envoy.string_matcher.lua",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.string_matcher.lua.v3.Lua",
                "source_code": {"inline_string": "function envoy_match(text) return text:sub(1, 1) == 'g' end"},
            },
        }},
    });
    let config = Config::routes(json!([
        {"match": {"prefix": "/", "headers": [matcher]}, "direct_response": {"status": 200, "body": {"inline_string": "matched"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let ask = |value: &str| proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\nx-value: {value}\r\n\r\n"));
    assert_eq!(ask("good").text(), "matched");
    assert_ne!(ask("bad").text(), "matched");
    assert_ne!(proxy.exchange(get("/")).text(), "matched");
}
