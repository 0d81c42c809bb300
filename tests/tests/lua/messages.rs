//! Messages in metadata, as scripts see them: in Envoy 1.40 and in Postrider the same tables.

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient};
use postrider_tests::postrider_only;
use serde_json::{Value, json};

use crate::site::{beside, lua};

/// Says of values whose name is in the request's path what `dynamicTypedMetadata` says: as text, with keys in order.
const SCRIPT: &str = r#"
    local function shown(value)
      if type(value) == "string" then
        return '"' .. value:gsub("[^%g ]", function(c) return ("\\%02x"):format(c:byte()) end) .. '"'
      end
      if type(value) ~= "table" then return tostring(value) end
      local keys, parts = {}, {}
      for key in pairs(value) do keys[#keys + 1] = key end
      table.sort(keys, function(a, b) return shown(a) < shown(b) end)
      for i, key in ipairs(keys) do parts[i] = shown(key) .. "=" .. shown(value[key]) end
      return "{" .. table.concat(parts, " ") .. "}"
    end
    local odd = { ["/nothing"] = {}, ["/nil"] = { nil }, ["/table"] = { {} }, ["/number"] = { 12 }, ["/true"] = { true } }
    function envoy_on_request(handle)
      local path = handle:headers():get(":path")
      local arguments = odd[path] or { path:sub(2) }
      local function of(info)
        local results = { pcall(function() return info:dynamicTypedMetadata(unpack(arguments)) end) }
        local count = odd[path] and "" or #results
        return shown(results[2]) .. count
      end
      handle:respond({ [":status"] = "200" }, of(handle:streamInfo()) .. "\n" .. of(handle:connectionStreamInfo()))
    end"#;

fn any(kind: &str, fields: Value) -> Value {
    let mut any = json!({"@type": format!("type.googleapis.com/{kind}")});
    postrider_tests::kit::config::overlay(&mut any, fields);
    any
}

/// By the names of the namespaces that they stand in.
fn messages() -> Vec<(&'static str, Value)> {
    vec![
        ("text", any("google.protobuf.StringValue", json!({"value": "a\u{e9}\n"}))),
        ("empty", any("google.protobuf.StringValue", json!({}))),
        (
            "struct",
            any("google.protobuf.Struct", json!({"value": {"n": 1.5, "z": null, "l": [1, "x", []], "o": {"b": true}}})),
        ),
        (
            "address",
            any("envoy.config.core.v3.SocketAddress", json!({"address": "::1", "port_value": 80, "protocol": "UDP"})),
        ),
        ("bytes", any("envoy.data.core.v3.TlvsMetadata", json!({"typed_metadata": {"k": "/wA=", "empty": ""}}))),
        (
            "listener",
            any(
                "envoy.config.listener.v3.Listener",
                json!({
                    "name": "l",
                    "per_connection_buffer_limit_bytes": 0,
                    "tcp_backlog_size": 4_000_000_000_u32,
                    "transparent": false,
                    "address": {"socket_address": {"address": "a.b", "port_value": 0}},
                    "filter_chains": [
                        {"name": "one", "filter_chain_match": {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 0}]}},
                        {"filters": [{"name": "f", "typed_config": any("google.protobuf.StringValue", json!({"value": "in"}))}]},
                    ],
                    "connection_balance_config": {"exact_balance": {}},
                    "drain_type": "MODIFY_ONLY",
                }),
            ),
        ),
        ("long", any("google.protobuf.Int64Value", json!({"value": "-9007199254740993"}))),
        ("float", any("google.protobuf.FloatValue", json!({"value": 0.1}))),
        ("infinite", any("google.protobuf.DoubleValue", json!({"value": "-Infinity"}))),
        ("duration", any("google.protobuf.Duration", json!({"value": "1.5s"}))),
    ]
}

/// The beginning of a connection from 10.1.2.3 with TLVs of bytes that are no text.
fn introduction() -> Vec<u8> {
    let mut content = vec![10, 1, 2, 3, 10, 4, 5, 6, 0x04, 0x57, 0x08, 0xae];
    for (kind, value) in [(0xe1, &b"one"[..]), (0xe1, b"two"), (0xe2, b"\xff\0"), (0xe3, b"own")] {
        content.extend([kind, 0, u8::try_from(value.len()).unwrap()]);
        content.extend_from_slice(value);
    }
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[0x21, 0x11][..], &length, &content].concat()
}

#[test]
fn scripts_see_messages_as_in_envoy() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let noted: Vec<Value> = messages()
        .into_iter()
        .map(|(namespace, message)| json!({"metadata_namespace": namespace, "typed_value": message}))
        .chain([json!({"metadata_namespace": "plain", "value": {"a": 1}})])
        .collect();
    let noter = extension("noter", "filters.http.set_metadata.v3.Config", json!({"metadata": noted}));
    let rules = json!([
        {"tlv_type": 0xe1, "on_tlv_present": {"key": "a"}},
        {"tlv_type": 0xe2, "on_tlv_present": {"key": "b"}},
        {"tlv_type": 0xe3, "on_tlv_present": {"key": "c", "metadata_namespace": "own"}},
    ]);
    let listening = extension(
        "envoy.filters.listener.proxy_protocol",
        "filters.listener.proxy_protocol.v3.ProxyProtocol",
        json!({"rules": rules}),
    );
    let script = lua(json!({"default_source_code": {"inline_string": SCRIPT}}));
    let config = Config::new()
        .http(json!({
            "http_filters": [noter, script, router()],
            "route_config": {"virtual_hosts": [{
                "name": "all", "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}],
            }]},
        }))
        .cluster("origin", &[origin.address])
        .overlay_listener("http", json!({"listener_filters": [listening]}));
    let asked: Vec<&str> = messages().iter().map(|(name, _)| *name).collect();
    let more = [
        "plain",
        "own",
        "envoy.filters.listener.proxy_protocol",
        "no.such",
        "nothing",
        "nil",
        "table",
        "number",
        "true",
    ];
    let seen = beside().map(|launch| {
        let proxy = Proxy::start_with(&config, launch);
        let ask = |name: &&str| {
            let mut client = RawClient::connect(proxy.address("http"));
            client.send([&introduction()[..], postrider_tests::get(&format!("/{name}")).as_bytes()].concat());
            let answer = client.response("GET").unwrap();
            // Each names the place of an error in its own way.
            let text = answer.text().lines().map(|line| match line.split_once("bad argument #") {
                Some((_, words)) => words.split_once('(').map_or(words, |(_, words)| words),
                None => line,
            });
            format!("{name}: {}", text.collect::<Vec<_>>().join(" | "))
        };
        asked.iter().chain(&more).map(ask).collect::<Vec<String>>()
    });
    let [theirs, ours] = seen;
    assert_eq!(ours.join("\n"), theirs.join("\n"));
    let line = |name: &str| ours.iter().find(|line| line.starts_with(name)).unwrap();
    assert_eq!(line("address"), r#"address: {"address"="::1" "port_value"=80 "protocol"=1}2 | nil1"#);
    assert_eq!(line("own"), r#"own: nil1 | {"typed_metadata"={"c"="own"}}2"#);
}
