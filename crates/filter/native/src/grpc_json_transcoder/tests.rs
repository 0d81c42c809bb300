use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::testing::FakeStream;
use protox::Compiler;

use super::*;
use crate::testing::{list, object, place, request, request_headers, text};

/// What of `google/api/annotations.proto` the rules here need.
const ANNOTATIONS: &str = r#"
syntax = "proto3";
package google.api;
import "google/protobuf/descriptor.proto";
message HttpRule {
  oneof pattern {
    string get = 2; string put = 3; string post = 4; string delete = 5; string patch = 6; Custom custom = 8;
  }
  string body = 7;
  string response_body = 12;
  repeated HttpRule additional_bindings = 11;
}
message Custom { string kind = 1; string path = 2; }
extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
"#;

/// A descriptor set of one file with these methods, compiled in a folder of its own.
fn compiled(name: &str, methods: &str) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("postrider-transcoder-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let schema = format!(
        "syntax = \"proto3\"; package t; import \"google/api/annotations.proto\";\n\
         message M {{ string a = 1; repeated string list = 2; M inner = 3; repeated M inners = 4; }}\n\
         service S {{ {methods} }}"
    );
    std::fs::write(folder.join("t.proto"), schema).unwrap();
    std::fs::create_dir_all(folder.join("google/api")).unwrap();
    std::fs::write(folder.join("google/api/annotations.proto"), ANNOTATIONS).unwrap();
    let mut compiler = Compiler::new([&folder]).unwrap();
    compiler.include_imports(true).open_file("t.proto").unwrap();
    let set = compiler.encode_file_descriptor_set();
    std::fs::remove_dir_all(&folder).unwrap();
    set
}

fn rpc(name: &str, rule: &str) -> String {
    format!("rpc {name}(M) returns (M) {{ option (google.api.http) = {{ {rule} }}; }}\n")
}

fn config(set: &[u8], more: &[(&str, Value)]) -> Value {
    let set = text(&STANDARD.encode(set));
    let mut entries = vec![("proto_descriptor_bin".to_owned(), set), ("services".to_owned(), list([text("t.S")]))];
    entries.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Value::Map(entries)
}

fn errors(config: &Value) -> Vec<String> {
    let errors = build("x", config).err().unwrap_or_default();
    errors.into_iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
}

fn filter(config: &Value) -> Rc<dyn Filter> {
    build("x", config).unwrap_or_else(|errors| panic!("{errors:?}")).filter(&ScopedConfigs::default(), &place())
}

#[test]
fn rules_that_cannot_work_are_refused_with_the_method_that_has_them() {
    let set = compiled(
        "refused",
        &[
            rpc("Taken", "get: \"/a/{a}\""),
            rpc("Again", "get: \"/a/{inner.a}\""),
            rpc("Head", "custom { kind: \"HEAD\" path: \"/h\" }"),
            rpc("Path", "get: \"/b/{a\""),
            rpc("Field", "get: \"/c/{nope}\""),
            rpc("List", "get: \"/d/{list}\""),
            rpc("Body", "post: \"/e\" body: \"nope\""),
            rpc("Below", "post: \"/f\" body: \"inners.a\""),
            rpc("Answer", "get: \"/g\" response_body: \"nope\""),
            rpc("Nothing", "body: \"*\""),
        ]
        .concat(),
    );
    let found = errors(&config(&set, &[]));
    let wants = [
        ("`t.S.Again`", "is taken by `/t.S/Taken`"),
        ("`t.S.Head`", "HEAD is not supported"),
        ("`t.S.Path`", "a `{` is not closed"),
        ("`t.S.Field`", "Could not find field \"nope\""),
        ("`t.S.List`", "repeated field `list`"),
        ("`t.S.Body`", "Could not find field \"nope\""),
        ("`t.S.Below`", "below a repeated field"),
        ("`t.S.Answer`", "Could not find field \"nope\""),
        ("`t.S.Nothing`", "no method and path"),
    ];
    assert_eq!(found.len(), wants.len(), "{found:#?}");
    for (error, (method, text)) in found.iter().zip(wants) {
        assert!(error.starts_with(&format!("services[0]: {method}")) && error.contains(text), "{error}");
    }
}

#[test]
fn settings_that_are_wrong_are_refused_where_they_stand() {
    let set = compiled("settings", &rpc("Get", "get: \"/a/{a}\""));
    let starts = |config: &Value, want: &[&str]| {
        let found = errors(config);
        assert_eq!(found.len(), want.len(), "{found:#?}");
        for (error, want) in found.iter().zip(want) {
            assert!(error.starts_with(want), "{error} {want}");
        }
    };
    starts(&object([("services", list([text("t.S")]))]), &["proto_descriptor: a descriptor set is required"]);
    starts(&config(b"\xff", &[]), &["proto_descriptor_bin: this is no complete set of descriptors"]);
    starts(
        &config(&set, &[("proto_descriptor", text("/x"))]),
        &["proto_descriptor_bin: `proto_descriptor` and `proto_descriptor_bin` exclude each other"],
    );
    starts(&object([("proto_descriptor", text("/nowhere/x.pb"))]), &["proto_descriptor: cannot read `/nowhere/x.pb`"]);
    let mut other = config(&set, &[]);
    if let Value::Map(entries) = &mut other {
        entries[1].1 = list([text("t.S"), text("t.Other")]);
    }
    starts(&other, &["services[1]: the descriptors have no service `t.Other`; they have t.S"]);
    starts(
        &config(
            &set,
            &[
                ("max_request_body_size", Value::Integer(0)),
                ("url_unescape_spec", text("NOTHING")),
                ("print_options", object([("colour", Value::Bool(true))])),
                ("nope", Value::Bool(true)),
            ],
        ),
        &[
            "url_unescape_spec: `NOTHING` is no way of unescaping",
            "print_options.colour: the field `colour` is not supported",
            "max_request_body_size: expected a number above 0",
            "nope: the field `nope` is not supported",
        ],
    );
    let factory = build("x", &config(&set, &[])).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert!(factory.route_config("other.Kind", &Value::Null).is_err());
    assert!(factory.route_config(KIND, &config(&set, &[])).is_ok());
}

#[test]
fn a_filter_without_services_looks_at_nothing() {
    let set = compiled("none", &rpc("Get", "get: \"/a/{a}\""));
    let filter = filter(&object([("proto_descriptor_bin", text(&STANDARD.encode(set)))]));
    assert_eq!(filter.hooks(), Hooks::default());
}

#[test]
fn a_request_without_a_body_becomes_a_call_at_once() {
    let filter = filter(&config(&compiled("call", &rpc("Get", "get: \"/a/{a}\"")), &[]));
    let mut stream = request("/a/x?inner.a=y", &[("content-length", "0")]);
    assert!(matches!(request_headers(&mut stream, &*filter), Action::Continue));
    assert_eq!(stream.request.path(), b"/t.S/Get");
    assert_eq!(stream.request.method_bytes(), b"POST");
    assert!(stream.info.route_is_stale);
    assert_eq!(stream.request_body.bytes(), b"\0\0\0\0\x08\n\x01x\x1a\x03\n\x01y");
    let mut other = request("/b", &[]);
    assert!(matches!(request_headers(&mut other, &*filter), Action::Done));
    assert!(!other.info.route_is_stale && other.request_body.bytes().is_empty());
}

#[test]
fn a_body_is_held_until_it_is_whole_and_never_beyond_the_limit() {
    let rule = rpc("Post", "post: \"/a\" body: \"*\"");
    let filter = filter(&config(&compiled("held", &rule), &[("max_request_body_size", Value::Integer(10))]));
    let mut state = State::default();
    let mut stream = FakeStream::new("POST", "/a", &[("content-length", "9")]);
    stream.with(|stream| {
        assert!(matches!(filter.on_request_headers(&mut state, stream, false), Action::Buffer));
        stream.request_body.replace(br#"{"a":"#);
        assert!(matches!(filter.on_request_body(&mut state, stream, false), Action::Buffer));
        assert!(stream.request_body.bytes().is_empty());
        stream.request_body.replace(br#""x"}"#);
        assert!(matches!(filter.on_request_body(&mut state, stream, true), Action::Continue));
        assert_eq!(stream.request_body.bytes(), b"\0\0\0\0\x03\n\x01x");
    });
    let mut state = State::default();
    let mut stream = FakeStream::new("POST", "/a", &[]);
    stream.with(|stream| {
        filter.on_request_headers(&mut state, stream, false);
        for piece in [&b"12345"[..], b"67890"] {
            stream.request_body.replace(piece);
            assert!(matches!(filter.on_request_body(&mut state, stream, false), Action::Buffer));
        }
        stream.request_body.replace(b"1");
        let Action::Respond(reply) = filter.on_request_body(&mut state, stream, false) else { panic!("taken") };
        let details = "grpc_json_transcode_failure{request_buffer_size_limit_reached}";
        assert_eq!((reply.status, &*reply.details), (413, details));
    });
}

#[test]
fn an_answer_of_the_proxys_own_stays_as_it_is() {
    let filter = filter(&config(&compiled("own", &rpc("Get", "get: \"/a/{a}\"")), &[]));
    let mut state = State::default();
    let mut stream = request("/a/x", &[]);
    stream.with(|stream| {
        filter.on_request_headers(&mut state, stream, true);
        stream.response.reply(503);
        stream.response_body.replace(b"no upstream");
        assert!(matches!(filter.on_response_headers(&mut state, stream, false), Action::Done));
    });
    assert_eq!(stream.response_body.bytes(), b"no upstream");
}
