use super::*;
use crate::testing::{lines, list, object, place, request, request_headers, text};
use postrider_filter_api::testing::FakeStream;

fn tag<const N: usize>(name: &str, networks: [(&str, i64); N]) -> Value {
    let networks = networks
        .map(|(address, length)| object([("address_prefix", text(address)), ("prefix_len", Value::Integer(length))]));
    object([("ip_tag_name", text(name)), ("ip_list", list(networks))])
}

fn config(more: Vec<(&str, Value)>) -> Value {
    let tags = list([
        tag("a", [("10.0.0.0", 8), ("2001:db8::", 32)]),
        tag("b", [("192.168.0.1", 32)]),
        tag("c", [("10.1.2.3", 16), ("10.1.0.0", 16), ("10.1.1.0", 24)]),
    ]);
    let mut all = vec![("ip_tags".to_owned(), tags)];
    all.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(all)
}

/// A request from that address with these fields, after the filter has seen it.
fn tagged(config: &Value, address: &str, fields: &[(&str, &str)]) -> FakeStream {
    let factory = build("x", config).unwrap_or_else(|errors| panic!("{errors:?}"));
    let filter = factory.filter(&ScopedConfigs::default(), &place());
    let mut stream = request("/", fields);
    stream.info.downstream_remote = Some((address.parse::<std::net::IpAddr>().unwrap(), 1).into());
    request_headers(&mut stream, &*filter);
    stream
}

fn refused(value: &Value) -> String {
    let errors = build("x", value).err().expect("refused");
    errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; ")
}

#[test]
fn all_networks_of_the_client_are_named_once() {
    let config = config(vec![]);
    let of = |address| lines(&tagged(&config, address, &[]).request.fields);
    assert_eq!(of("10.1.1.9"), ["x-envoy-ip-tags: a,c"]);
    assert_eq!(of("::ffff:10.1.1.9"), ["x-envoy-ip-tags: a,c"]);
    assert_eq!(of("10.2.0.1"), ["x-envoy-ip-tags: a"]);
    assert_eq!(of("192.168.0.1"), ["x-envoy-ip-tags: b"]);
    assert_eq!(of("2001:db8::1"), ["x-envoy-ip-tags: a"]);
    assert!(of("192.168.0.2").is_empty() && of("2001:db9::1").is_empty());
    assert!(tagged(&config, "10.0.0.1", &[]).info.route_is_stale);
    assert!(!tagged(&config, "1.1.1.1", &[]).info.route_is_stale);
}

#[test]
fn a_header_of_its_own_is_cleaned_or_added_to() {
    let header =
        |action: &str| config(vec![("ip_tag_header", object([("header", text("X-Tag")), ("action", text(action))]))]);
    let of = |action, address| lines(&tagged(&header(action), address, &[("x-tag", "own")]).request.fields);
    assert_eq!(of("SANITIZE", "192.168.0.1"), ["x-tag: b"]);
    assert!(of("SANITIZE", "1.1.1.1").is_empty());
    assert_eq!(of("APPEND_IF_EXISTS_OR_ADD", "192.168.0.1"), ["x-tag: own,b"]);
    assert_eq!(of("APPEND_IF_EXISTS_OR_ADD", "1.1.1.1"), ["x-tag: own"]);
}

#[test]
fn requests_from_inside_and_outside_are_told_apart() {
    let internal = [("x-envoy-internal", "true")];
    let count = |which: &str, fields| {
        let stream = tagged(&config(vec![("request_type", text(which))]), "192.168.0.1", fields);
        stream.request.fields.get_name(HEADER.as_bytes()).is_some()
    };
    assert_eq!(["BOTH", "INTERNAL", "EXTERNAL"].map(|which| count(which, &internal)), [true, true, false]);
    assert_eq!(["BOTH", "INTERNAL", "EXTERNAL"].map(|which| count(which, &[])), [true, false, true]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(refused(&object([])).contains("at least one of ip_tags"));
    assert!(
        refused(&object([("ip_tags", list([tag("a", [("10.0.0.0", 33)])]))])).contains("10.0.0.0/33 is no network")
    );
    let header = |name: &str| refused(&config(vec![("ip_tag_header", object([("header", text(name))]))]));
    assert!(header("x tag").contains("is no header name"));
    assert!(header("content-length").contains("writes this field itself"));
}

#[test]
fn tags_come_from_a_file_in_json() {
    let folder = std::env::temp_dir().join(format!("ip-tagging-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tags.json");
    let from =
        |name: &std::path::Path| object([("ip_tags_datasource", object([("filename", text(name.to_str().unwrap()))]))]);
    let write = |content: &str| std::fs::write(&path, content).unwrap();
    write(r#"{"ip_tags": [{"ip_tag_name": "office", "ip_list": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}]}"#);
    assert_eq!(lines(&tagged(&from(&path), "10.1.1.1", &[]).request.fields), ["x-envoy-ip-tags: office"]);
    assert_eq!(build("x", &from(&path)).ok().unwrap().files().len(), 1);
    write(r#"{"ip_tags": [{"ip_tag_name": "office", "ip_list": [{"address_prefix": "10.0.0.0", "prefix_len": 80}]}]}"#);
    assert!(refused(&from(&path)).contains("ip_tags[0].ip_list[0]"), "{}", refused(&from(&path)));
    write("{");
    assert!(refused(&from(&path)).contains("EOF"), "{}", refused(&from(&path)));
    write("{}");
    assert!(refused(&from(&path)).contains("at least one of ip_tags"));
    assert!(refused(&from(&folder.join("tags.yaml"))).contains("in JSON"));
    assert!(refused(&from(&folder.join("none.json"))).contains("cannot read"));
    let both = config(vec![("ip_tags_datasource", object([("filename", text(path.to_str().unwrap()))]))]);
    assert!(refused(&both).contains("exclude each other"));
    std::fs::remove_dir_all(&folder).unwrap();
}
