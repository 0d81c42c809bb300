//! What is noted on the way: header_to_metadata, json_to_metadata, set_metadata and set_filter_state.

use super::{filter, own, scope};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::overlay;
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        from_headers(),
        from_headers_scopes(),
        from_headers_counted(),
        from_json(),
        from_json_answers(),
        fixed(),
        state(),
        state_scopes(),
        older_forms(),
        messages(),
    ]
}

/// Commands that header values know in older forms.
fn older_forms() -> Scene {
    let object = |key: &str, factory: &str, text: &str| {
        json!({"object_key": key, "factory_key": factory,
            "format_string": {"text_format_source": {"inline_string": text}}})
    };
    let objects = json!([object("a", "envoy.string", "%REQ(x-a)%"), object("b", "envoy.bool", "true")]);
    let noted = json!([{"metadata_namespace": "ns", "value": {"k": "v", "o": {"p": 1}}}]);
    let filters = vec![
        filter("set_filter_state", "Config", json!({"on_request_headers": objects})),
        filter("set_metadata", "Config", json!({"metadata": noted})),
    ];
    let add = |name: &str, value: &str| json!({"header": {"key": name, "value": value}});
    let added = json!([
        add("x-one", "%PER_REQUEST_STATE(a)%"),
        add("x-two", "<%PER_REQUEST_STATE(a)%|%PER_REQUEST_STATE(b)%>"),
        add("x-three", "%PER_REQUEST_STATE(absent)%"),
        add("x-four", r#"%DYNAMIC_METADATA(["ns", "k"])%"#),
        add("x-five", r#"100%% %DYNAMIC_METADATA(["ns","o","p"])%"#),
        add("x-six", r#"%DYNAMIC_METADATA(["ns"])%"#),
    ]);
    let host = json!({"name": "all", "domains": ["*"], "routes": [to_a("/", json!({}))]});
    let table = json!({"virtual_hosts": [host], "request_headers_to_add": added, "response_headers_to_add": added});
    Scene::with_table("header-older-forms", filters, table).each("/", &["", "x-a: 1\r\n", "x-a: a b\r\n"])
}

/// Messages of types of their own, beside values of the same namespace.
fn messages() -> Scene {
    let message = |text: &str| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": text});
    let entry = |more: Value| {
        let mut entry = json!({"metadata_namespace": "ns"});
        overlay(&mut entry, more);
        entry
    };
    let entries = json!([
        entry(json!({"typed_value": message("one")})),
        entry(json!({"typed_value": message("two")})),
        entry(json!({"typed_value": message("three"), "allow_overwrite": true})),
        {"metadata_namespace": "other", "typed_value": message("four")},
    ]);
    let routes = json!([to_a("/", json!({}))]);
    let scene = Scene::filtered(
        "set-metadata-messages",
        vec![filter("set_metadata", "Config", json!({"metadata": entries}))],
        routes,
    );
    shows(scene, &["ns", "other"]).get("/")
}

/// The log shows a namespace as a whole.
fn shows(scene: Scene, namespaces: &[&str]) -> Scene {
    namespaces.iter().fold(scene, |scene, name| {
        scene.logging(json!({format!("noted {name}"): format!("%DYNAMIC_METADATA({name})%")}))
    })
}

fn from_headers() -> Scene {
    let noted = |key: &str, more: Value| {
        let mut noted = json!({"metadata_namespace": "seen", "key": key});
        overlay(&mut noted, more);
        noted
    };
    let rules = json!([
        {"header": "x-text", "on_header_present": noted("text", json!({})), "on_header_missing": noted("text", json!({"value": "nothing"}))},
        {"header": "x-number", "on_header_present": noted("number", json!({"type": "NUMBER"})), "remove": true},
        {"header": "x-fixed", "on_header_present": noted("fixed", json!({"value": "5", "type": "NUMBER"}))},
        {"header": "x-base", "on_header_present": noted("base", json!({"encode": "BASE64"}))},
        {"header": "x-number-base", "on_header_present": noted("number-base", json!({"encode": "BASE64", "type": "NUMBER"}))},
        {"header": "x-regex", "on_header_present": noted("regex", json!({"regex_value_rewrite": {"pattern": {"regex": "^([a-z]+)-(\\d+)$"}, "substitution": "\\2.\\1"}}))},
        {"cookie": "ck", "on_header_present": noted("cookie", json!({})), "on_header_missing": noted("cookie", json!({"value": "none"}))},
        {"header": ":path", "on_header_present": noted("path", json!({}))},
        {"header": ":method", "on_header_present": noted("method", json!({}))},
        {"header": ":authority", "on_header_present": noted("authority", json!({}))},
        {"header": "x-usual", "on_header_present": {"key": "usual"}},
        {"header": "x-twice", "on_header_present": noted("once", json!({}))},
        {"header": "x-twice", "on_header_present": noted("twice", json!({})), "remove": true},
    ]);
    let answered = json!([
        {"header": ":status", "on_header_present": noted("status", json!({"type": "NUMBER"}))},
        {"header": "x-origin", "on_header_present": noted("origin", json!({})), "remove": true},
        {"header": "x-none", "on_header_missing": noted("none", json!({"value": "absent"}))},
        {"header": "content-length", "on_header_present": noted("length", json!({"type": "NUMBER"}))},
    ]);
    let fields = json!({"request_rules": rules, "response_rules": answered});
    let routes = json!([
        {"match": {"prefix": "/own"}, "direct_response": {"status": 404, "body": {"inline_string": "own"}}},
    ]);
    let scene = Scene::filtered("header-to-metadata", vec![filter("header_to_metadata", "Config", fields)], routes);
    shows(scene, &["seen", "envoy.filters.http.header_to_metadata"])
        .gets(&["/", "/own", "/p?q=1", "/?answer=404", "/?answer=204", "/?answer=fields"])
        .each(
            "/",
            &[
                "x-text: a\r\n",
                "x-text: a\r\nx-text: b\r\n",
                "x-text:\r\n",
                "x-text: caf\u{e9}\r\n",
                "x-number: 5\r\n",
                "x-number: -2.50\r\n",
                "x-number: 1e3\r\n",
                "x-number: 0x10\r\n",
                "x-number: 5 apples\r\n",
                "x-number: NaN\r\n",
                "x-number: 12345678901234567890\r\n",
                "x-fixed: whatever\r\n",
                "x-base: aGVsbG8=\r\n",
                "x-base: aGVsbG8\r\n",
                "x-base: !!\r\n",
                "x-number-base: NQ==\r\n",
                "x-regex: abc-12\r\n",
                "x-regex: abc\r\n",
                "cookie: a=b; ck=c; ck=d\r\n",
                "cookie: a=b\r\n",
                "cookie: ck=\r\n",
                "cookie: ck=\"q\"\r\n",
                "x-usual: 1\r\n",
                "x-twice: 1\r\n",
                "x-twice: 1\r\nx-twice: 2\r\n",
            ],
        )
}

fn from_headers_scopes() -> Scene {
    let rule = |value: &str| json!({"request_rules": [{"header": "x-a", "on_header_present": {"metadata_namespace": "seen", "key": value}}]});
    let mut host = json!({"name": "all", "domains": ["*"], "routes": [
        own("/route", "header_to_metadata", "Config", rule("route")),
        to_a("/", json!({})),
    ]});
    overlay(&mut host, scope("header_to_metadata", "Config", rule("host")));
    let filters = vec![filter("header_to_metadata", "Config", rule("filter"))];
    let table =
        json!({"virtual_hosts": [host, {"name": "own", "domains": ["own.test"], "routes": [to_a("/", json!({}))]}]});
    let mut scene = shows(Scene::with_table("header-to-metadata-scopes", filters, table), &["seen"]);
    for path in ["/route", "/nothing", "/"] {
        scene = scene.get_with(path, "x-a: 1\r\n").ask("GET", "own.test", path, "x-a: 1\r\n");
    }
    scene
}

/// What rules with a name of their own count, and serialised values.
fn from_headers_counted() -> Scene {
    const NAME: &str = "header-to-metadata-counted";
    let noted = |key: &str, more: Value| {
        let mut noted = json!({"metadata_namespace": "seen", "key": key});
        overlay(&mut noted, more);
        noted
    };
    let message = json!({"type": "PROTOBUF_VALUE", "encode": "BASE64"});
    let fields = json!({
        "stat_prefix": NAME,
        "request_rules": [
            {"header": "x-a", "on_header_present": noted("a", json!({})), "on_header_missing": noted("a", json!({"value": "none"}))},
            {"header": "x-number", "on_header_present": noted("number", json!({"type": "NUMBER"}))},
            {"header": "x-base", "on_header_present": noted("base", json!({"encode": "BASE64"}))},
            {"header": "x-value", "on_header_present": noted("value", message)},
            {"header": "x-plain", "on_header_present": noted("plain", json!({"type": "PROTOBUF_VALUE"}))},
        ],
        "response_rules": [
            {"header": "x-origin", "on_header_present": noted("origin", json!({}))},
            {"header": "x-none", "on_header_missing": noted("none", json!({"value": "absent"}))},
        ],
    });
    let scene = Scene::filtered(NAME, vec![filter("header_to_metadata", "Config", fields)], json!([]));
    let long = format!("x-a: {}\r\n", "a".repeat(8192));
    shows(scene, &["seen"]).get("/").each(
        "/",
        &[
            "x-a: 1\r\nx-number: 5\r\nx-base: aGk=\r\n",
            "x-a:\r\n",
            "x-number: five\r\n",
            "x-base: *\r\n",
            &long,
            // {a: 1, l: [true, null, "x"]}, "hello", 1.5, null, nothing and rubbish.
            "x-value: KiYKDgoBYRIJEQAAAAAAAPA/ChQKAWwSDzINCgIgAQoCCAAKAxoBeA==\r\n",
            "x-value: GgVoZWxsbw==\r\n",
            "x-value: EQAAAAAAAPg/\r\n",
            "x-value: CAA=\r\n",
            "x-value:\r\n",
            "x-value: //8=\r\n",
            "x-plain: plain\r\n",
        ],
    )
}

/// A rule for a path of keys, that notes what happens under its name.
fn found(name: &str, keys: &[&str], present: Value) -> Value {
    let selectors: Vec<Value> = keys.iter().map(|key| json!({"key": key})).collect();
    let noted = |value: &str| json!({"metadata_namespace": "body", "key": name, "value": value});
    let mut here = json!({"metadata_namespace": "body", "key": name});
    overlay(&mut here, present);
    json!({"selectors": selectors, "on_present": here, "on_missing": noted("missing"), "on_error": noted("error")})
}

fn json_rules() -> Value {
    json!({
        "rules": [
            found("top", &["a"], json!({})),
            found("deep", &["m", "n", "o"], json!({})),
            found("text", &["a"], json!({"type": "STRING"})),
            found("number", &["a"], json!({"type": "NUMBER"})),
            found("fixed", &["a"], json!({"value": "there"})),
            found("kept", &["a"], json!({"preserve_existing_metadata_value": true})),
            {"selectors": [{"key": "b"}], "on_missing": {"metadata_namespace": "body", "key": "b", "value": 7}},
            {"selectors": [{"key": "usual"}], "on_present": {"key": "usual"}},
        ],
        "allow_content_types": ["application/json", "text/json"],
        "allow_content_types_regex": {"regex": "application/vnd\\..*\\+json"},
    })
}

const BODIES: &[&str] = &[
    "{}",
    "{\"a\":\"text\"}",
    "{\"a\":\"12\"}",
    "{\"a\":\"\"}",
    "{\"a\":5}",
    "{\"a\":-1.5e2}",
    "{\"a\":12345678901234567890}",
    "{\"a\":true}",
    "{\"a\":null}",
    "{\"a\":[1]}",
    "{\"a\":{\"b\":1}}",
    "{\"m\":{\"n\":{\"o\":\"deep\"}}}",
    "{\"m\":{\"n\":5}}",
    "{\"m\":5}",
    "{\"b\":1,\"usual\":\"u\"}",
    "{\"a\":1,\"a\":2}",
    " {\"a\" : \"\\u00e9\\n\"} ",
    "[1,2]",
    "\"text\"",
    "5",
    "null",
    "{\"a\":",
    "{\"a\":1} more",
    "{'a':1}",
    "not json",
    "",
];

fn from_json() -> Scene {
    let before = filter(
        "set_metadata",
        "Config",
        json!({"metadata": [{"metadata_namespace": "body", "value": {"kept": "old"}}]}),
    );
    let fields = json!({"request_rules": json_rules()});
    let mut scene = Scene::filtered(
        "json-to-metadata",
        vec![before, filter("json_to_metadata", "JsonToMetadata", fields)],
        json!([own(
            "/empty",
            "json_to_metadata",
            "JsonToMetadata",
            json!({"request_rules": {
                "rules": [found("route", &["a"], json!({}))], "allow_empty_content_type": true,
            }})
        ),]),
    );
    scene = shows(scene, &["body", "envoy.filters.http.json_to_metadata"]);
    for body in BODIES {
        scene = scene.post("/", "content-type: application/json\r\n", body);
    }
    for kind in
        ["text/json", "application/vnd.x+json", "application/json; charset=utf-8", "text/plain", "APPLICATION/JSON", ""]
    {
        scene = scene.post("/", &format!("content-type: {kind}\r\n"), "{\"a\":1}");
    }
    scene
        .post("/", "", "{\"a\":1}")
        .post("/empty", "", "{\"a\":1}")
        .post("/empty", "content-type: text/plain\r\n", "{\"a\":1}")
        .get("/")
        .get_with("/", "content-type: application/json\r\n")
        .raw("POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n3\r\n:5}\r\n0\r\n\r\n")
}

fn from_json_answers() -> Scene {
    let fields = json!({"response_rules": json_rules()});
    let mut scene = Scene::filtered(
        "json-to-metadata-answers",
        vec![filter("json_to_metadata", "JsonToMetadata", fields)],
        json!([{"match": {"prefix": "/own"}, "direct_response": {"status": 200, "body": {"inline_string": "{\"a\":1}"}}}]),
    );
    scene = shows(scene, &["body", "envoy.filters.http.json_to_metadata"]);
    for body in BODIES {
        scene = scene.makes("/", "", &[&format!("200|content-type=application/json|body={body}")]);
    }
    scene.gets(&["/own", "/?answer=204", "/?answer=304"]).makes(
        "/",
        "",
        &[
            "200|content-type=application/json|body={\"a\":1}|chunked=1",
            "404|content-type=text/json|body={\"a\":1}",
            "200|body={\"a\":1}",
        ],
    )
}

/// Metadata of the configuration, merged and not.
fn fixed() -> Scene {
    let first = json!({"metadata": [
        {"metadata_namespace": "one", "value": {"text": "a", "number": 1.5, "whole": 3, "yes": true, "none": null, "list": [1, "b"], "map": {"a": {"b": 1}}}},
        {"metadata_namespace": "one", "value": {"text": "denied"}},
        {"metadata_namespace": "one", "value": {"text": "b", "list": [2], "map": {"a": {"c": 2}}, "new": "n"}, "allow_overwrite": true},
        {"metadata_namespace": "two", "value": {}},
    ]});
    let mut second =
        filter("set_metadata", "Config", json!({"metadata_namespace": "one", "value": {"old": "form", "yes": "no"}}));
    second["name"] = json!("second");
    let scene = Scene::filtered(
        "set-metadata",
        vec![filter("set_metadata", "Config", first), second],
        json!([
            {"match": {"prefix": "/own"}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/", "dynamic_metadata": [{"filter": "one", "path": [{"key": "new"}], "value": {"string_match": {"exact": "n"}}}]},
                "direct_response": {"status": 200, "body": {"inline_string": "by metadata"}}},
        ]),
    );
    shows(
        scene,
        &["one", "two", "three", "one:text", "one:map:a", "one:list", "one:none", "one:number", "one:yes:more"],
    )
    .gets(&["/", "/own"])
    .get_with("/", "x-clear: 1\r\n")
}

fn object(key: &str, format: &str, more: Value) -> Value {
    let mut object = json!({"object_key": key, "factory_key": "envoy.string", "format_string": {"text_format_source": {"inline_string": format}}});
    overlay(&mut object, more);
    object
}

/// The log shows objects in both forms.
fn objects(scene: Scene, keys: &[&str]) -> Scene {
    keys.iter().fold(scene, |scene, key| {
        scene.logging(json!({
            format!("plain {key}"): format!("%FILTER_STATE({key}:PLAIN)%"), format!("typed {key}"): format!("%FILTER_STATE({key}:TYPED)%"),
        }))
    })
}

/// Objects in the filter state, made from requests.
fn state() -> Scene {
    let maybe =
        json!({"format_string": {"text_format_source": {"inline_string": "%REQ(x-b)%"}, "omit_empty_values": true}});
    let skipped = json!({"skip_if_empty": true, "format_string": maybe["format_string"]});
    let as_json = json!({"format_string": {"text_format_source": null, "json_format": {"path": "%REQ(:path)%", "none": "%REQ(x-none)%"}}});
    let fields = json!({"on_request_headers": [
        object("a", "(%REQ(x-a)%)", json!({"read_only": true})),
        object("b", "%REQ(x-a)%", json!({})),
        object("b", "", skipped),
        object("c", "", maybe),
        object("bool", "%REQ(x-bool)%", json!({"factory_key": "envoy.bool"})),
        object("hash", "h-%REQ(x-a)%", json!({"factory_key": "envoy.hashable_string"})),
        object("then", "%FILTER_STATE(a:PLAIN)%!%PROTOCOL%", json!({})),
        object("json", "", as_json),
        object("envoy.string", "named by itself", json!({"factory_key": null})),
        object("plain", "%REQ(x-a?x-b)% %REQ(:method)% %ROUTE_NAME%", json!({})),
    ]});
    let scene = Scene::filtered("set-filter-state", vec![filter("set_filter_state", "Config", fields)], json!([]));
    objects(scene, &["a", "b", "c", "bool", "hash", "then", "json", "envoy.string", "plain", "nobody"])
        .get("/p?q")
        .each("/", &["x-a: A\r\n", "x-a: A\r\nx-b: B\r\n", "x-b: B\r\n", "x-a:\r\n", "x-a: 1\r\nx-a: 2\r\n"])
        .each("/", &["x-bool: true\r\n", "x-bool: YES\r\n", "x-bool: 0\r\n", "x-bool: maybe\r\n"])
}

/// Objects of all scopes, and routes that depend on them.
fn state_scopes() -> Scene {
    let config = |who: &str| json!({"on_request_headers": [object("who", who, json!({})), object("all", &format!("%FILTER_STATE(all:PLAIN)%+{who}"), json!({}))]});
    let by_state = |who: &str| {
        json!({
            "match": {"prefix": "/", "filter_state": [{"key": "who", "string_match": {"exact": who}}], "headers": [{"name": "x-again", "present_match": true}]},
            "direct_response": {"status": 200, "body": {"inline_string": who}},
        })
    };
    let mut host = json!({"name": "all", "domains": ["*"], "routes": [
        by_state("host"), by_state("filter"), own("/route", "set_filter_state", "Config", config("route")), to_a("/", json!({})),
    ]});
    overlay(&mut host, scope("set_filter_state", "Config", config("host")));
    let mut fields = config("filter");
    fields["clear_route_cache"] = json!(true);
    let table = json!({"virtual_hosts": [host, {"name": "own", "domains": ["own.test"], "routes": [by_state("filter"), to_a("/", json!({}))]}]});
    let mut scene =
        Scene::with_table("set-filter-state-scopes", vec![filter("set_filter_state", "Config", fields)], table);
    scene = objects(scene, &["who", "all"]);
    for path in ["/route", "/"] {
        for lines in ["", "x-again: 1\r\n"] {
            scene = scene.get_with(path, lines).ask("GET", "own.test", path, lines);
        }
    }
    scene
}
