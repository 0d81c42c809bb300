//! The filter that names the networks of clients, as Envoy's does.

use postrider_tests::kit::config::extension;
use postrider_tests::kit::{TempDir, wait_until};
use postrider_tests::site::{self, Plan, Site};
use serde_json::{Value, json};

fn tag(name: &str, address: &str, length: u8) -> Value {
    json!({"ip_tag_name": name, "ip_list": [{"address_prefix": address, "prefix_len": length}]})
}

/// Clients are who `x-forwarded-for` says.
fn plan(more: Value) -> Plan {
    let mut config =
        json!({"ip_tags": [tag("ten", "10.0.0.0", 8), tag("out", "9.9.9.0", 24), tag("six", "2001:db8::", 32)]});
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    site::with([extension("envoy.filters.http.ip_tagging", "filters.http.ip_tagging.v3.IPTagging", config)])
        .manager(json!({"stat_prefix": "edge"}))
        .log("%REQ(x-envoy-ip-tags)% %REQ(x-tag)%")
}

/// What the log says of a request from there.
fn logged(site: &Site, line: usize, client: &str, fields: &str) -> String {
    site.get("/", &format!("x-forwarded-for: {client}\r\n{fields}"));
    site.logged(line)
}

#[test]
fn clients_are_tagged_by_their_networks() {
    let by_tag = json!({
        "match": {"prefix": "/", "headers": [{"name": "x-envoy-ip-tags", "string_match": {"exact": "six"}}]},
        "direct_response": {"status": 200, "body": {"inline_string": "six"}},
    });
    let site = plan(json!({})).routes(json!([by_tag, site::rest()])).start();
    assert_eq!(logged(&site, 1, "10.1.1.1", ""), "ten -");
    // What a client from outside says of itself does not count.
    assert_eq!(logged(&site, 2, "9.9.9.1", "x-envoy-ip-tags: ten\r\nx-tag: own\r\n"), "out own");
    assert_eq!(logged(&site, 3, "8.8.8.8", "x-envoy-ip-tags: ten\r\n"), "- -");
    assert_eq!(site.get("/", "x-forwarded-for: 2001:db8::1\r\n").text(), "six");
    let stat = |name: &str| site.stat(&format!("http.edge.ip_tagging.{name}"));
    assert_eq!((stat("total"), stat("no_hit"), stat("ten.hit"), stat("out.hit"), stat("six.hit")), (4, 1, 1, 1, 1));
}

#[test]
fn a_header_of_its_own_is_cleaned_or_added_to() {
    for (action, known, unknown) in [("SANITIZE", "- out", "- -"), ("APPEND_IF_EXISTS_OR_ADD", "- own,out", "- own")] {
        let site = plan(json!({"ip_tag_header": {"header": "x-tag", "action": action}})).start();
        assert_eq!(logged(&site, 1, "9.9.9.9", "x-tag: own\r\n"), known);
        assert_eq!(logged(&site, 2, "8.8.8.8", "x-tag: own\r\n"), unknown);
    }
}

#[test]
fn only_requests_from_outside_may_be_tagged() {
    let site = plan(json!({"request_type": "EXTERNAL"})).start();
    assert_eq!(logged(&site, 1, "9.9.9.9", ""), "out -");
    let site = plan(json!({"request_type": "INTERNAL"})).start();
    assert_eq!(logged(&site, 1, "9.9.9.9", ""), "- -");
}

#[test]
fn tags_come_from_a_file_that_is_watched() {
    let folder = TempDir::new();
    let file = folder.path().join("tags.json");
    let write = |name: &str| {
        let fresh = folder.path().join("fresh");
        std::fs::write(&fresh, json!({"ip_tags": [tag(name, "10.0.0.0", 8)]}).to_string()).unwrap();
        std::fs::rename(fresh, &file).unwrap();
    };
    write("first");
    let source = json!({"filename": file, "watched_directory": {"path": folder.path()}});
    let site = plan(json!({"ip_tags": [], "ip_tags_datasource": source})).start();
    assert_eq!(logged(&site, 1, "10.1.1.1", ""), "first -");
    write("second");
    let mut line = 1;
    wait_until("the new tags", || {
        line += 1;
        logged(&site, line, "10.1.1.1", "") == "second -"
    });
}
