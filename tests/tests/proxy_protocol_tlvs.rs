//! TLVs of the PROXY protocol: where they are noted, who sees them, and what of them upstreams are told.

use postrider_grpc::Message;
use postrider_grpc::auth::{CheckRequest, CheckResponse, OkHttpResponse, check_response::HttpResponse};
use postrider_grpc::core::{Metadata, Status};
use postrider_grpc::value::Kind;
use postrider_tests::get;
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, file_access_log, overlay, router};
use postrider_tests::kit::origin::echo_answer;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::processor::{Processor, plain};
use serde_json::{Value, json};
use std::path::Path;

/// The beginning of a connection from 10.1.2.3 with TLVs.
fn header(tlvs: &[(u8, &[u8])]) -> Vec<u8> {
    let mut content = vec![10, 1, 2, 3, 10, 4, 5, 6, 0x04, 0x57, 0x08, 0xae];
    for (kind, value) in tlvs {
        content.push(*kind);
        content.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        content.extend_from_slice(value);
    }
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[0x21, 0x11][..], &length, &content].concat()
}

/// The TLVs of a header of version 2 over IPv4, and what follows it.
fn tlvs_of(bytes: &[u8]) -> (Vec<(u8, String)>, &[u8]) {
    assert_eq!(bytes[..14], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "{bytes:02x?}");
    let (mut content, rest) = bytes[16..].split_at(usize::from(u16::from_be_bytes([bytes[14], bytes[15]])));
    content = &content[12..];
    let mut found = Vec::new();
    while let [kind, high, low, after @ ..] = content {
        let (value, next) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        found.push((*kind, String::from_utf8(value.to_vec()).unwrap()));
        content = next;
    }
    (found, rest)
}

fn filter(fields: Value) -> Value {
    extension("envoy.filters.listener.proxy_protocol", "filters.listener.proxy_protocol.v3.ProxyProtocol", fields)
}

fn rules() -> Value {
    json!([
        {"tlv_type": 0xe1, "on_tlv_present": {"key": "a"}},
        {"tlv_type": 0xe2, "on_tlv_present": {"key": "b", "metadata_namespace": "ns"}},
        {"tlv_type": 0xe3, "on_tlv_present": {"key": "c", "value_string_encoding": "BASE64"}},
        {"tlv_type": 0xe4, "on_tlv_present": {"key": "d"}},
        {"tlv_type": 0xe5, "on_tlv_present": {"key": "earlier"}},
        {"tlv_type": 0xe5, "on_tlv_present": {"key": "later"}},
    ])
}

const SAID: &[(u8, &[u8])] = &[
    (0xe1, b"one"),
    (0xe1, b"two"),
    (0xe2, b"in-ns"),
    (0xe3, b"\xff\xfe"),
    (0xe4, b"x\xff\xe2\x82y"),
    (0xe5, b"five"),
    (0xe9, b"nobody asks"),
];

/// Logs of a format, one file each.
struct Logs(TempDir);

impl Logs {
    fn to(&self, name: &str, format: &str) -> Value {
        let format = json!({"log_format": {"text_format_source": {"inline_string": format!("{format}\n")}}});
        file_access_log(&self.path(name), format)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn line(&self, name: &str) -> String {
        let path = self.path(name);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        wait_until("a line in the log", || read(&path).ends_with('\n'));
        read(&path).trim_end().to_owned()
    }
}

/// An HTTP listener and a TCP one that note the TLVs of [`rules`], each with its own log and that of what it does.
fn noting(location: &str, format: &str, filters: Value) -> (Proxy, Origin, Logs) {
    let (logs, origin) = (Logs(TempDir::new()), Origin::echo("a"));
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let mut hcm = json!({
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "access_log": [logs.to("http", format)],
    });
    overlay(&mut hcm, filters);
    let listener = |name: &str| {
        json!({
            "listener_filters": [filter(json!({"rules": rules(), "tlv_location": location}))],
            "access_log": [logs.to(name, format)],
        })
    };
    let config = Config::new()
        .http(hcm)
        .tcp("tcp", json!({"cluster": "origin", "access_log": [logs.to("tcp", format)]}))
        .cluster("origin", &[origin.address])
        .overlay_listener("http", listener("http-listener"))
        .overlay_listener("tcp", listener("tcp-listener"));
    (Proxy::start(&config), origin, logs)
}

/// One exchange on a new connection of each listener, which then ends.
fn visit(proxy: &Proxy) {
    for name in ["http", "tcp"] {
        let mut client = RawClient::connect(proxy.address(name));
        client.send([&header(SAID)[..], get("/").as_bytes()].concat());
        assert_eq!(client.response("GET").unwrap().status, 200);
    }
}

#[test]
fn values_are_noted_in_the_metadata_of_the_connection() {
    let format = "%DYNAMIC_METADATA(envoy.filters.listener.proxy_protocol)% %DYNAMIC_METADATA(ns:b)%";
    let (proxy, _origin, logs) = noting("DYNAMIC_METADATA", format, json!({}));
    visit(&proxy);
    let noted = r#"{"a":"one","c":"//4=","d":"x!!!y","later":"five"} in-ns"#;
    for name in ["http-listener", "tcp-listener", "tcp"] {
        assert_eq!(logs.line(name), noted, "{name}");
    }
    assert_eq!(logs.line("http"), "- -", "a request has metadata of its own");
}

#[test]
fn values_are_noted_in_the_filter_state_that_requests_see_as_well() {
    let field = |key: &str| format!("%FILTER_STATE(envoy.network.proxy_protocol.tlv:FIELD:{key})%");
    let format = ["a", "b", "c", "d", "earlier", "later"].map(field).join(" ");
    let (proxy, _origin, logs) = noting("FILTER_STATE", &format, json!({}));
    visit(&proxy);
    for name in ["http-listener", "tcp-listener", "tcp", "http"] {
        assert_eq!(logs.line(name), "two in-ns //4= x!!!y - five", "{name}");
    }
}

#[test]
fn scripts_see_the_metadata_of_the_connection_and_the_bytes() {
    let script = r#"
        function envoy_on_request(handle)
          local info, spaces = handle:connectionStreamInfo(), {}
          for name in pairs(info:dynamicMetadata()) do spaces[#spaces + 1] = name end
          local of = info:dynamicMetadata():get("envoy.filters.listener.proxy_protocol")
          local typed = info:dynamicTypedMetadata("envoy.filters.listener.proxy_protocol").typed_metadata
          local none = info:dynamicTypedMetadata("other")
          handle:headers():add("x-saw", table.concat(
            { #spaces, of.a, of.d, typed.a, #typed.c, typed.c:byte(2), tostring(none) }, " "))
        end"#;
    let lua = extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string": script}}));
    let filters = json!({"http_filters": [lua, router()]});
    let (proxy, origin, _logs) = noting("DYNAMIC_METADATA", "-", filters);
    let mut client = RawClient::connect(proxy.address("http"));
    client.send(header(SAID));
    for _ in 0..2 {
        client.exchange(get("/"));
    }
    for request in origin.requests() {
        assert_eq!(request.headers.value("x-saw"), Some("2 one x!!!y two 2 254 nil"));
    }
    assert_eq!(origin.requests().len(), 2);
}

/// The transport of a cluster that says who the client is.
fn introducing(config: Value) -> Value {
    let raw = extension("raw", "transport_sockets.raw_buffer.v3.RawBuffer", json!({}));
    let name = "transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport";
    json!({"transport_socket": extension("proxied", name, json!({"config": config, "transport_socket": raw}))})
}

/// What an origin behind a cluster with `transport` is told of a connection that begins with `tlvs`.
fn told(kept: Value, transport: Value, tcp: Option<Value>, first: &[u8]) -> Vec<(u8, String)> {
    // It answers anything.
    let origin = Origin::start(|connection| {
        let Some(fixed) = connection.read_exact(16) else { return };
        let _ = connection.read_exact(usize::from(u16::from_be_bytes([fixed[14], fixed[15]])));
        while let Some(request) = connection.request() {
            connection.write(&echo_answer("a", &request));
        }
    });
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
    let config = match tcp {
        None => Config::routes(routes),
        Some(fields) => {
            let mut proxy = json!({"cluster": "origin"});
            overlay(&mut proxy, fields);
            Config::new().tcp("http", proxy)
        }
    };
    let mut fields = json!({"allow_requests_without_proxy_protocol": true});
    overlay(&mut fields, kept);
    let listener = json!({"listener_filters": [filter(fields)]});
    let config = config.cluster_with("origin", &[origin.address], introducing(transport));
    let proxy = Proxy::start(&config.overlay_listener("http", listener));
    let mut client = RawClient::connect(proxy.address("http"));
    client.send([first, get("/").as_bytes()].concat());
    assert_eq!(client.response("GET").unwrap().status, 200);
    let bytes = origin.bytes(0);
    let (tlvs, rest) = tlvs_of(&bytes);
    assert!(rest.starts_with(b"GET / HTTP/1.1\r\n"), "{:?}", String::from_utf8_lossy(rest));
    tlvs
}

fn list(tlvs: &[(u8, &str)]) -> Vec<(u8, String)> {
    tlvs.iter().map(|(kind, value)| (*kind, (*value).to_owned())).collect()
}

const FIRST: &[(u8, &[u8])] = &[(0xe1, b"one"), (0xe1, b"two"), (0xe2, b"three"), (5, b"id")];

#[test]
fn tlvs_are_passed_on_where_both_sides_say_so() {
    let all = || json!({"pass_through_tlvs": {"match_type": "INCLUDE_ALL"}});
    let some = |kinds: Value| json!({"pass_through_tlvs": {"match_type": "INCLUDE", "tlv_type": kinds}});
    let version2 = |fields: Value| {
        let mut config = json!({"version": "V2"});
        overlay(&mut config, fields);
        config
    };
    let first = header(FIRST);
    let cases = [
        (all(), all(), list(&[(0xe1, "one"), (0xe1, "two"), (0xe2, "three"), (5, "id")])),
        (some(json!([5, 0xe1])), all(), list(&[(0xe1, "one"), (0xe1, "two"), (5, "id")])),
        (all(), some(json!([0xe2])), list(&[(0xe2, "three")])),
        (all(), json!({}), list(&[])),
        (json!({}), all(), list(&[])),
    ];
    for (kept, passed, want) in cases {
        for tcp in [None, Some(json!({}))] {
            assert_eq!(told(kept.clone(), version2(passed.clone()), tcp, &first), want, "{kept} {passed}");
        }
    }
    let own = json!([{"type": 0xe1, "value": "b3du"}, {"type": 9, "value": "OQ=="}]);
    let mut passed = version2(all());
    passed["added_tlvs"] = own;
    assert_eq!(
        told(all(), passed, None, &first),
        list(&[(0xe1, "own"), (9, "9"), (0xe2, "three"), (5, "id")]),
        "the cluster's own come first and replace"
    );
}

#[test]
fn a_tcp_proxy_adds_its_own() {
    let all = || json!({"pass_through_tlvs": {"match_type": "INCLUDE_ALL"}});
    let text = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %DYNAMIC_METADATA(envoy.filters.listener.proxy_protocol:a)%";
    let added = json!([
        {"type": 0xe1, "value": "b3du"},
        {"type": 0xe9, "format_string": {"text_format_source": {"inline_string": text}}},
        {"type": 0xea, "format_string": {"json_format": {"none": "%REQ(x)%", "text": "t"}}},
        {"type": 0xe1, "value": "dG9v"},
    ]);
    let json = "{\"none\":null,\"text\":\"t\"}\n";
    let own = |who: &'static str| vec![(0xe1, "own"), (0xe1, "too"), (0xe9, who), (0xea, json)];
    let known = [(0xe1, "one"), (0xe1, "two"), (0xe2, "three"), (5, "id")];
    let (with, without) = (header(FIRST), Vec::new());
    let joined = |one: &[(u8, &'static str)], other: &[(u8, &'static str)]| list(&[one, other].concat());
    for (policy, want) in [
        (None, list(&known)),
        (Some("ADD_IF_ABSENT"), list(&known)),
        (Some("OVERWRITE_BY_TYPE_IF_EXISTS_OR_ADD"), joined(&own("10.1.2.3 one"), &known[2..])),
        (Some("APPEND_IF_EXISTS_OR_ADD"), joined(&known, &own("10.1.2.3 one"))),
    ] {
        let mut kept = all();
        kept["rules"] = rules();
        let mut tcp = json!({"proxy_protocol_tlvs": added});
        if let Some(policy) = policy {
            tcp["proxy_protocol_tlv_merge_policy"] = json!(policy);
        }
        let mut passed = all();
        passed["version"] = json!("V2");
        let of = |first: &[u8]| told(kept.clone(), passed.clone(), Some(tcp.clone()), first);
        assert_eq!(of(&with), want, "{policy:?}");
        assert_eq!(of(&without), list(&own("127.0.0.1 -")), "{policy:?} without a header");
        passed["pass_through_tlvs"] = json!({"match_type": "INCLUDE", "tlv_type": [0xe2]});
        assert_eq!(told(kept, passed, Some(tcp), &without), list(&[]), "{policy:?}: they need the cluster's leave");
    }
}

#[test]
fn tlvs_that_do_not_fit_are_left_out_and_counted() {
    let origin = Origin::silent();
    let all = json!({"match_type": "INCLUDE_ALL"});
    // 60,000 bytes.
    let own = json!([{"type": 0xf0, "value": "QUFB".repeat(20_000)}]);
    let transport = introducing(json!({"version": "V2", "pass_through_tlvs": all, "added_tlvs": own}));
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "origin"}))
        .cluster_with("origin", &[origin.address], transport)
        .overlay_listener("tcp", json!({"listener_filters": [filter(json!({"pass_through_tlvs": all}))]}));
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send([&header(&[(1, &[b'x'; 6000]), (2, b"y")])[..], b"ping"].concat());
    let length = 16 + 12 + 3 + 60_000 + 4;
    wait_until("the first bytes", || origin.connection_count() > 0 && origin.bytes(0).len() >= length + 4);
    let bytes = origin.bytes(0);
    let (tlvs, rest) = tlvs_of(&bytes);
    let kinds: Vec<u8> = tlvs.iter().map(|(kind, _)| *kind).collect();
    assert_eq!((&kinds[..], rest), (&[0xf0, 2][..], &b"ping"[..]));
    let name = "cluster.origin.upstream.proxyprotocol.v2_tlvs_exceed_max_length";
    wait_until("it is counted", || proxy.stats().value(name) == 1);
}

/// What a service was told of the values that were noted, sorted by key.
fn shown(metadata: Option<Metadata>) -> Vec<(String, String)> {
    let mut all = metadata.expect("metadata").filter_metadata;
    let noted = all.remove("envoy.filters.listener.proxy_protocol").expect("what was noted");
    assert!(all.is_empty(), "what was not asked for: {all:?}");
    let text = |kind| match kind {
        Some(Kind::StringValue(text)) => text,
        other => panic!("{other:?} is no text"),
    };
    noted.fields.into_iter().map(|(key, value)| (key, text(value.kind))).collect()
}

/// An HTTP listener that notes, with a filter that asks the cluster `service`.
fn asking(service: std::net::SocketAddr, filter_of_service: Value) -> (Proxy, Origin) {
    let origin = Origin::echo("a");
    let listener = json!({"listener_filters": [filter(json!({"rules": rules(), "tlv_location": "DYNAMIC_METADATA"}))]});
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
        .overlay_filter("http", json!({"http_filters": [filter_of_service, router()]}))
        .overlay_listener("http", listener)
        .cluster("origin", &[origin.address])
        .cluster_with("service", &[service], http2());
    (Proxy::start(&config), origin)
}

/// Two requests on one connection.
fn ask_twice(proxy: &Proxy) {
    let mut client = RawClient::connect(proxy.address("http"));
    client.send(header(SAID));
    for _ in 0..2 {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
}

const SHOWN: [(&str, &str); 4] = [("a", "one"), ("c", "//4="), ("d", "x!!!y"), ("later", "five")];

fn expected() -> Vec<(String, String)> {
    SHOWN.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn an_authorization_service_is_told_what_was_noted() {
    let answer = CheckResponse {
        status: Some(Status::default()),
        http_response: Some(HttpResponse::OkResponse(OkHttpResponse::default())),
        ..CheckResponse::default()
    };
    let service = GrpcOrigin::fixed(answer.encode_to_vec());
    let fields = json!({
        "grpc_service": {"envoy_grpc": {"cluster_name": "service"}, "timeout": "10s"}, "transport_api_version": "V3",
        "metadata_context_namespaces": ["envoy.filters.listener.proxy_protocol"],
    });
    let authz = extension("envoy.filters.http.ext_authz", "filters.http.ext_authz.v3.ExtAuthz", fields);
    let (proxy, _origin) = asking(service.address, authz);
    ask_twice(&proxy);
    let messages = service.messages();
    assert_eq!(messages.len(), 2);
    for message in messages {
        let attributes = CheckRequest::decode(message.as_slice()).unwrap().attributes.unwrap();
        assert_eq!(shown(attributes.metadata_context), expected());
    }
}

#[test]
fn a_processor_is_told_what_was_noted() {
    let processor = Processor::answering(plain);
    let fields = json!({
        "grpc_service": {"envoy_grpc": {"cluster_name": "service"}}, "message_timeout": "20s",
        "metadata_options": {"forwarding_namespaces": {"untyped": ["envoy.filters.listener.proxy_protocol"]}},
    });
    let filter = extension("envoy.filters.http.ext_proc", "filters.http.ext_proc.v3.ExternalProcessor", fields);
    let (proxy, _origin) = asking(processor.address, filter);
    ask_twice(&proxy);
    processor.wait_messages(4);
    for heard in processor.calls() {
        for request in heard.requests {
            assert_eq!(shown(request.metadata_context), expected());
        }
    }
}
