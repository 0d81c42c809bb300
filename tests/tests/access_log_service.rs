//! Access logs that go to a service by gRPC: what an entry tells, when entries are sent, and what becomes of them when the
//! service is slow or away.

use std::net::{SocketAddr, TcpListener};

use postrider_grpc::core::address::Address as Place;
use postrider_grpc::core::socket_address::PortSpecifier;
use postrider_grpc::core::{Address, RequestMethod};
use postrider_grpc::log::http_access_log_entry::HttpVersion;
use postrider_grpc::log::tls_properties::certificate_properties::subject_alt_name::San;
use postrider_grpc::log::{
    AccessLogCommon, AccessLogType, HttpAccessLogEntry, Identifier, LogEntries, StreamAccessLogsMessage,
    TcpAccessLogEntry, tls_properties,
};
use postrider_grpc::{Message, value};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, file_access_log, router, upstream_http_options};
use postrider_tests::kit::grpc::Step;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::proxy::accepted;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, RawClient, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, secured, tls_inspector};
use postrider_tests::{ask, get, postrider_only};
use rcgen::{DnType, SanType};
use serde_json::{Value, json};

const WRITTEN: &str = "access_logs.grpc_access_log.logs_written";
const DROPPED: &str = "access_logs.grpc_access_log.logs_dropped";

/// A logger called `type_name` whose service is the cluster `logs`.
fn logger(type_name: &str, common: Value, fields: Value) -> Value {
    let mut config = json!({"common_config": {
        "log_name": "shop",
        "transport_api_version": "V3",
        "grpc_service": {"envoy_grpc": {"cluster_name": "logs"}},
    }});
    for (key, value) in common.as_object().unwrap() {
        config["common_config"][key] = value.clone();
    }
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    extension("log", &format!("access_loggers.grpc.v3.{type_name}"), config)
}

fn http_logger(common: Value, fields: Value) -> Value {
    logger("HttpGrpcAccessLogConfig", common, fields)
}

/// A site that logs to `service`, with some paths that the proxy answers itself.
fn site(logger: &Value, origin: SocketAddr, service: SocketAddr) -> Config {
    let trailers = json!({"explicit_http_config": {"http_protocol_options": {"enable_trailers": true}}});
    Config::new()
        .http(json!({
            "access_log": [logger],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/down"}, "direct_response": {"status": 503}},
                {"match": {"prefix": "/old"}, "name": "moved", "route": {"cluster": "origin", "prefix_rewrite": "/new"}},
                {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
            ]}]},
        }))
        .cluster_with("origin", &[origin], upstream_http_options(trailers))
        .cluster_with("logs", &[service], http2())
        .overlay(json!({"node": {"id": "me", "cluster": "edge", "locality": {"zone": "z"}, "metadata": {"k": "v"}}}))
}

fn hello() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-kind: a\r\nx-kind: b\r\n\r\nhello")
}

fn decoded(service: &GrpcOrigin) -> Vec<StreamAccessLogsMessage> {
    service.messages().iter().map(|message| StreamAccessLogsMessage::decode(message.as_slice()).unwrap()).collect()
}

fn entries(service: &GrpcOrigin) -> Vec<HttpAccessLogEntry> {
    let entries = decoded(service).into_iter().flat_map(|message| match message.log_entries {
        Some(LogEntries::HttpLogs(logs)) => logs.log_entry,
        other => panic!("{other:?}"),
    });
    entries.collect()
}

fn await_entries(service: &GrpcOrigin, count: usize) -> Vec<HttpAccessLogEntry> {
    wait_until(&format!("{count} entries"), || entries(service).len() >= count);
    let entries = entries(service);
    assert_eq!(entries.len(), count);
    entries
}

fn common(entry: &HttpAccessLogEntry) -> &AccessLogCommon {
    entry.common_properties.as_ref().unwrap()
}

fn path(entry: &HttpAccessLogEntry) -> &str {
    &entry.request.as_ref().unwrap().path
}

fn place(address: Option<&Address>) -> (String, u32) {
    match address.and_then(|address| address.address.as_ref()) {
        Some(Place::SocketAddress(socket)) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => (socket.address.clone(), port),
            _ => panic!("no port"),
        },
        other => panic!("{other:?}"),
    }
}

fn soon() -> Value {
    json!({"buffer_flush_interval": "0.02s"})
}

/// Nothing is sent by the clock.
fn never() -> Value {
    json!({"buffer_flush_interval": "3600s"})
}

#[test]
fn an_entry_tells_what_a_line_could() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let more = json!({
        "additional_request_headers_to_log": ["X-Two", "x-none"],
        "additional_response_headers_to_log": ["x-kind"],
    });
    let mut common_config = soon();
    common_config["grpc_service"] = json!({
        "envoy_grpc": {"cluster_name": "logs", "authority": "logs.example:1"},
        "initial_metadata": [{"key": "X-Token", "value": "secret"}],
    });
    let proxy = Proxy::start(&site(&http_logger(common_config, more), origin.address, service.address));
    let fields =
        "user-agent: probe\r\nreferer: /from\r\nx-request-id: id-1\r\nx-two: 1\r\nx-two: 2\r\ncontent-length: 3\r\n";
    let request = format!("POST /old/a?q=1 HTTP/1.1\r\nhost: test:81\r\n{fields}\r\nabc");
    assert_eq!(proxy.exchange(request).status, 200);
    let entry = await_entries(&service, 1).remove(0);
    assert_eq!(proxy.get("/down").status, 503);
    let refused = await_entries(&service, 2).remove(1);

    let request = entry.request.as_ref().unwrap();
    assert_eq!(entry.protocol_version(), HttpVersion::Http11);
    assert_eq!(request.request_method(), RequestMethod::Post);
    assert_eq!((&*request.scheme, &*request.authority), ("http", "test:81"));
    assert_eq!((&*request.path, &*request.original_path), ("/new/a?q=1", "/old/a?q=1"));
    assert_eq!((&*request.user_agent, &*request.referer, &*request.request_id), ("probe", "/from", "id-1"));
    assert_eq!(request.request_body_bytes, 3);
    assert!(request.request_headers_bytes > 0);
    assert!(request.upstream_header_bytes_sent > 0 && request.downstream_header_bytes_received > 0, "{request:?}");
    assert_eq!(request.request_headers.iter().collect::<Vec<_>>(), [(&"x-two".to_owned(), &"1,2".to_owned())]);
    let response = entry.response.as_ref().unwrap();
    assert_eq!((response.response_code, response.response_body_bytes), (Some(200), 5));
    assert_eq!(response.response_code_details, "via_upstream");
    assert_eq!(response.response_headers["x-kind"], "a,b");
    assert!(response.upstream_header_bytes_received > 0 && response.downstream_header_bytes_sent > 0, "{response:?}");
    let known = common(&entry);
    assert_eq!((&*known.upstream_cluster, &*known.route_name), ("origin", "moved"));
    assert_eq!(place(known.upstream_remote_address.as_ref()), ("127.0.0.1".into(), origin.address.port().into()));
    assert_eq!(place(known.downstream_local_address.as_ref()).1, u32::from(proxy.address("http").port()));
    assert_eq!(place(known.downstream_direct_remote_address.as_ref()).0, "127.0.0.1");
    assert!(known.start_time.is_some_and(|time| time.seconds > 1_500_000_000));
    for time in [&known.time_to_last_rx_byte, &known.time_to_first_upstream_rx_byte, &known.duration] {
        assert!(time.as_ref().is_some_and(|time| time.seconds < 60), "{known:?}");
    }
    assert_eq!((known.upstream_request_attempt_count, known.access_log_type()), (1, AccessLogType::DownstreamEnd));
    assert_eq!(&*known.stream_id, "id-1");
    assert!(known.tls_properties.is_none() && known.response_flags.is_none());

    assert_eq!(refused.response.as_ref().unwrap().response_code, Some(503));
    assert_eq!(refused.response.as_ref().unwrap().response_code_details, "direct_response");
    assert!(common(&refused).upstream_remote_address.is_none());
    assert_eq!(common(&refused).stream_id, "");

    // Both came on one stream, and the first message says whose it is.
    let calls = service.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].path, "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs");
    assert_eq!((&*calls[0].authority, calls[0].headers.value("x-token")), ("logs.example:1", Some("secret")));
    let identifiers: Vec<Option<Identifier>> =
        decoded(&service).into_iter().map(|message| message.identifier).collect();
    let [Some(first), None] = identifiers.as_slice() else { panic!("{identifiers:?}") };
    let node = first.node.as_ref().unwrap();
    assert_eq!((&*first.log_name, &*node.id, &*node.cluster), ("shop", "me", "edge"));
    assert_eq!(node.locality.as_ref().unwrap().zone, "z");
    assert!(node.metadata.as_ref().unwrap().fields.contains_key("k"));
    assert_eq!((proxy.stats().value(WRITTEN), proxy.stats().value(DROPPED)), (2, 0));
}

#[test]
fn names_before_the_fields_of_a_head_are_told_where_they_are_listed() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let more = json!({
        "additional_request_headers_to_log": [":Path", ":method", ":authority", ":scheme"],
        "additional_response_headers_to_log": [":status", "x-kind"],
    });
    let proxy = Proxy::start(&site(&http_logger(soon(), more), origin.address, service.address));
    assert_eq!(proxy.get("/a").status, 200);
    let entry = await_entries(&service, 1).remove(0);
    let told = entry.request.as_ref().unwrap().request_headers.clone();
    let told: Vec<(&str, &str)> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let authority = entry.request.as_ref().unwrap().authority.as_str();
    let want = [(":authority", authority), (":method", "GET"), (":path", "/a"), (":scheme", "http")];
    assert_eq!(told, want);
    assert_eq!(entry.response.as_ref().unwrap().response_headers[":status"], "200");
}

/// Services that count entries would count a request twice.
#[test]
#[allow(deprecated, reason = "services read it")]
fn an_entry_before_the_end_says_that_another_one_follows() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let config = site(&http_logger(soon(), json!({})), origin.address, service.address)
        .overlay_filter("http", json!({"access_log_options": {"flush_access_log_on_new_request": true}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let entries = await_entries(&service, 2);
    let told = entries.iter().map(common).map(|common| (common.intermediate_log_entry, common.duration.is_some()));
    assert_eq!(told.collect::<Vec<_>>(), [(true, false), (false, true)]);
}

#[test]
fn an_entry_of_a_try_tells_the_upstreams_side() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let fields = json!({
        "upstream_log": [http_logger(soon(), json!({"additional_response_headers_to_log": ["x-kind"]}))],
        "upstream_log_options": {"flush_upstream_log_on_upstream_stream": true},
    });
    let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", fields);
    let config = site(&http_logger(never(), json!({})), origin.address, service.address);
    let proxy = Proxy::start(&config.overlay_filter("http", json!({"access_log": [], "http_filters": [router]})));
    let request = "POST /old/a HTTP/1.1\r\nhost: test\r\nx-request-id: known\r\ncontent-length: 7\r\n\r\n1234567";
    assert_eq!(proxy.exchange(request).status, 200);
    let entries = await_entries(&service, 2);
    let kinds = entries.iter().map(|entry| common(entry).access_log_type).collect::<Vec<_>>();
    assert_eq!(kinds, [AccessLogType::UpstreamPoolReady as i32, AccessLogType::UpstreamEnd as i32]);
    for entry in &entries {
        assert_eq!(entry.protocol_version, HttpVersion::Http11 as i32);
        assert_eq!(path(entry), "/new/a");
        let common = common(entry);
        assert_eq!(place(common.upstream_remote_address.as_ref()).1, u32::from(origin.address.port()));
        assert_eq!((common.route_name.as_str(), common.stream_id.as_str()), ("moved", ""));
        assert!(common.time_to_last_rx_byte.is_none() && common.time_to_last_downstream_tx_byte.is_none());
    }
    let [ready, end] = [0, 1].map(|index| entries[index].response.clone().unwrap());
    assert_eq!((ready.response_code.unwrap_or_default(), end.response_code), (0, Some(200)));
    assert_eq!(end.response_headers["x-kind"], "a,b");
    // What was received came from the upstream, as in a line.
    assert_eq!((entries[1].request.as_ref().unwrap().request_body_bytes, end.response_body_bytes), (5, 7));
    assert!(common(&entries[1]).time_to_first_upstream_rx_byte.is_some());
}

#[test]
fn flags_say_what_went_wrong() {
    let (origin, service) = (Origin::start(|connection| drop(connection.request())), GrpcOrigin::silent());
    let proxy = Proxy::start(&site(&http_logger(soon(), json!({})), origin.address, service.address));
    assert_eq!(proxy.get("/").status, 503);
    let entry = await_entries(&service, 1).remove(0);
    let flags = common(&entry).response_flags.as_ref().unwrap();
    assert!(flags.upstream_connection_termination && !flags.no_route_found, "{flags:?}");
}

#[test]
fn the_reason_of_a_failure_has_its_spaces() {
    let (dead, service) = (refusing_address(), GrpcOrigin::silent());
    let proxy = Proxy::start(&site(&http_logger(soon(), json!({})), dead, service.address));
    assert_eq!(proxy.get("/").status, 503);
    let entry = await_entries(&service, 1).remove(0);
    let reason = &common(&entry).upstream_transport_failure_reason;
    assert_eq!(reason, "delayed connect error: Connection refused");
}

#[test]
fn a_condition_holds_for_entries_as_well() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let mut logger = http_logger(soon(), json!({}));
    logger["filter"] = json!({"grpc_status_filter": {"statuses": ["UNAVAILABLE"]}});
    let proxy = Proxy::start(&site(&logger, origin.address, service.address));
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(proxy.get("/down").status, 503);
    assert_eq!(path(&await_entries(&service, 1)[0]), "/down");
    assert_eq!(proxy.stats().value(WRITTEN), 1);
}

#[test]
fn entries_go_when_there_are_enough() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let mut at_once = never();
    at_once["buffer_size_bytes"] = json!(1);
    let proxy = Proxy::start(&site(&http_logger(at_once, json!({})), origin.address, service.address));
    assert_eq!(proxy.get("/a").status, 200);
    assert_eq!(path(&await_entries(&service, 1)[0]), "/a");
}

/// What was sent on the stream that failed is sent again; a policy of the log's own knows connections alone.
#[test]
fn a_stream_that_fails_at_once_is_opened_again_as_its_policy_says() {
    let policy = json!({"retry_on": "unavailable", "num_retries": 2, "retry_back_off": {"base_interval": "0.005s"}});
    let with = |common: Value| {
        let mut all = never();
        all["buffer_size_bytes"] = json!(1);
        all.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
        all
    };
    let service_with = json!({"envoy_grpc": {"cluster_name": "logs"}, "retry_policy": policy});
    for (common, tries) in
        [(json!({"grpc_service": service_with}), 3), (json!({"grpc_stream_retry_policy": policy}), 1)]
    {
        let service = GrpcOrigin::start(|_| vec![Step::End(14, "")]);
        let proxy = Proxy::start(&site(&http_logger(with(common), json!({})), hello().address, service.address));
        assert_eq!(proxy.get("/down").status, 503);
        wait_until("the tries", || entries(&service).len() == tries);
        assert_eq!(entries(&service).iter().map(path).collect::<Vec<_>>(), vec!["/down"; tries]);
        assert_eq!(proxy.stats().value("cluster.logs.upstream_rq_retry"), tries as u64 - 1);
    }
    let own =
        with(json!({"grpc_stream_retry_policy": {"num_retries": 2, "retry_back_off": {"base_interval": "0.005s"}}}));
    let proxy = Proxy::start(&site(&http_logger(own, json!({})), hello().address, refusing_address()));
    assert_eq!(proxy.get("/down").status, 503);
    proxy.wait_stat("cluster.logs.upstream_rq_retry_limit_exceeded", 1);
    assert_eq!(proxy.stats().value("cluster.logs.upstream_rq_retry"), 2);
}

#[test]
fn what_is_left_at_the_end_is_sent() {
    if !postrider_only() {
        return;
    }
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let mut proxy = Proxy::start(&site(&http_logger(never(), json!({})), origin.address, service.address));
    for path in ["/a", "/b"] {
        assert_eq!(proxy.get(path).status, 200);
    }
    assert_eq!(service.connections(), 0);
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
    let entries = await_entries(&service, 2);
    assert_eq!((path(&entries[0]), path(&entries[1])), ("/a", "/b"));
    assert_eq!(service.messages().len(), 1);
    assert!(service.calls()[0].ended);
}

#[test]
fn a_broken_stream_is_opened_again_and_says_anew_whose_it_is() {
    let origin = hello();
    let service = GrpcOrigin::start(|_| vec![Step::End(0, "")]);
    let proxy = Proxy::start(&site(&http_logger(soon(), json!({})), origin.address, service.address));
    for turn in 1..=3 {
        assert_eq!(proxy.get(&format!("/{turn}")).status, 200);
        wait_until("the entry", || service.messages().len() == turn);
        wait_until("the end of the stream", || proxy.stats().value("cluster.logs.upstream_rq_active") == 0);
    }
    let messages: Vec<usize> = service.calls().iter().map(|call| call.messages.len()).collect();
    assert_eq!(messages, [1, 1, 1]);
    assert!(decoded(&service).iter().all(|message| message.identifier.is_some()));
    let entries = await_entries(&service, 3);
    assert_eq!(entries.iter().map(path).collect::<Vec<_>>(), ["/1", "/2", "/3"]);
}

#[test]
fn a_service_that_is_away_costs_entries_and_no_request() {
    if !postrider_only() {
        return;
    }
    let origin = hello();
    let mut at_once = never();
    at_once["buffer_size_bytes"] = json!(1);
    let proxy = Proxy::start(&site(&http_logger(at_once, json!({})), origin.address, refusing_address()));
    let mut sent = 0;
    wait_until("entries are dropped", || {
        assert_eq!(proxy.get("/").status, 200);
        sent += 1;
        proxy.stats().value(DROPPED) >= 10
    });
    assert!(proxy.stats().value(WRITTEN) < sent);
    // It was called once, and is called again when the interval is over.
    assert_eq!(proxy.stats().value("cluster.logs.upstream_cx_connect_fail"), 1);
}

#[test]
fn a_service_that_takes_nothing_is_waited_for_within_bounds() {
    if !postrider_only() {
        return;
    }
    let origin = hello();
    // Connections are made, and nobody ever speaks on them.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut common = never();
    common["buffer_size_bytes"] = json!(1024);
    let logger = http_logger(common, json!({"additional_request_headers_to_log": ["x-large"]}));
    let proxy = Proxy::start(&site(&logger, origin.address, deaf.local_addr().unwrap()));
    let large = format!("x-large: {}\r\n", "x".repeat(16 * 1024));
    let mut sent = 0u64;
    wait_until("entries are dropped", || {
        assert_eq!(ask(&proxy, "GET", "test", "/", &large).status, 200);
        sent += 1;
        proxy.stats().value(DROPPED) > 0
    });
    let stats = proxy.stats();
    assert_eq!(stats.value(WRITTEN) + stats.value(DROPPED), sent);
    // What waits is what the queue in front of the stream holds, what is framed for it, and what gathered.
    assert!((10..60).contains(&stats.value(WRITTEN)), "{}", stats.value(WRITTEN));
}

#[test]
fn a_service_that_moved_is_followed() {
    if !postrider_only() {
        return;
    }
    let (origin, first, second) = (hello(), GrpcOrigin::silent(), GrpcOrigin::silent());
    let config = |service: &GrpcOrigin| site(&http_logger(soon(), json!({})), origin.address, service.address);
    let mut proxy = Proxy::start(&config(&first));
    assert_eq!(proxy.get("/first").status, 200);
    assert_eq!(path(&await_entries(&first, 1)[0]), "/first");
    assert!(accepted(&proxy.reload(config(&second).to_yaml())));
    wait_until("the old stream ends", || first.calls()[0].ended);
    assert_eq!(proxy.get("/second").status, 200);
    assert_eq!(path(&await_entries(&second, 1)[0]), "/second");
    assert!(decoded(&second)[0].identifier.is_some());
}

#[test]
fn a_logger_that_goes_sends_what_it_has() {
    if !postrider_only() {
        return;
    }
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let mut common = soon();
    common["buffer_flush_interval"] = json!("0.5s");
    let with = site(&http_logger(common, json!({})), origin.address, service.address);
    let without = Config::proxy_to(origin.address).cluster_with("logs", &[service.address], http2());
    let mut proxy = Proxy::start(&with);
    assert_eq!(proxy.get("/a").status, 200);
    assert!(accepted(&proxy.reload(without.to_yaml())));
    assert_eq!(path(&await_entries(&service, 1)[0]), "/a");
    wait_until("the stream ends", || service.calls()[0].ended);
}

#[test]
fn a_connection_is_an_entry_of_its_own() {
    let (origin, service) = (Origin::tcp_echo("hello"), GrpcOrigin::silent());
    let logger = logger("TcpGrpcAccessLogConfig", soon(), json!({}));
    let folder = TempDir::new();
    let lines = folder.path().join("lines");
    let format = json!({"log_format": {"text_format_source": {"inline_string": "%STREAM_ID%\n"}}});
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "origin", "access_log": [logger, file_access_log(&lines, format)]}))
        .cluster("origin", &[origin.address])
        .cluster_with("logs", &[service.address], http2());
    let proxy = Proxy::start(&config);
    let mut client = RawClient::connect(proxy.address("tcp"));
    client.send("abc");
    assert_eq!(client.read_exact(8).unwrap(), b"helloabc");
    drop(client);
    service.wait_messages(1);
    let message = decoded(&service).remove(0);
    let Some(LogEntries::TcpLogs(logs)) = message.log_entries else { panic!("{message:?}") };
    let [TcpAccessLogEntry { common_properties: Some(common), connection_properties: Some(connection) }] =
        logs.log_entry.as_slice()
    else {
        panic!("{logs:?}")
    };
    assert_eq!((connection.received_bytes, connection.sent_bytes), (3, 8));
    assert_eq!((&*common.upstream_cluster, common.access_log_type()), ("origin", AccessLogType::TcpConnectionEnd));
    // The connection has an identifier of its own, the same in every log.
    let dashes: Vec<usize> = common.stream_id.match_indices('-').map(|(at, _)| at).collect();
    assert_eq!((common.stream_id.len(), dashes.as_slice()), (36, &[8, 13, 18, 23][..]), "{}", common.stream_id);
    let logged = || std::fs::read_to_string(&lines).unwrap_or_default();
    wait_until("a line", || logged().ends_with('\n'));
    assert_eq!(logged().trim_end(), common.stream_id);
}

#[test]
fn workers_have_a_stream_each_and_loggers_share_it() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let logger = http_logger(soon(), json!({}));
    let more = http_logger(soon(), json!({"additional_request_headers_to_log": ["host"]}));
    let config =
        site(&logger, origin.address, service.address).overlay_filter("http", json!({"access_log": [logger, more]}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.exchange(get("/")).status, 200);
    await_entries(&service, 2);
    assert_eq!(service.calls().len(), 1);
}

#[test]
fn an_entry_tells_who_was_there_by_tls() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let authority = Authority::new("root");
    let shown = |name: &str| {
        authority.issue_as(|params| {
            let uri = format!("spiffe://{name}").try_into().unwrap();
            params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap()), SanType::URI(uri)];
            params.distinguished_name.push(DnType::CommonName, name);
        })
    };
    let client = Client::showing(&authority, &shown("client.test"));
    let fields = json!({
        "require_client_certificate": true,
        "common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": authority.pem()}}},
    });
    let config = site(&http_logger(soon(), json!({})), origin.address, service.address)
        .overlay_listener("http", json!({"listener_filters": [tls_inspector()]}));
    let proxy = Proxy::start(&secured(config, &shown("server.test"), fields));
    assert_eq!(client.get(proxy.address("http"), "server.test").unwrap().status, 200);
    let entry = await_entries(&service, 1).remove(0);
    let tls = common(&entry).tls_properties.as_ref().unwrap();
    assert_eq!((tls.tls_version(), &*tls.tls_sni_hostname), (tls_properties::TlsVersion::TlSv13, "server.test"));
    assert!(matches!(tls.tls_cipher_suite, Some(0x1301..=0x1303)), "{tls:?}");
    let told = [&tls.peer_certificate_properties, &tls.local_certificate_properties].map(|certificate| {
        let certificate = certificate.as_ref().unwrap();
        let names = certificate.subject_alt_name.iter().map(|name| name.san.clone().unwrap());
        (names.collect::<Vec<_>>(), &*certificate.subject, &*certificate.issuer)
    });
    let uri = |name: &str| vec![San::Uri(format!("spiffe://{name}"))];
    assert_eq!(told[0], (uri("client.test"), "CN=client.test", "CN=root"));
    assert_eq!(told[1], (uri("server.test"), "CN=server.test", ""));
}

#[test]
fn an_entry_tells_whom_tls_that_is_passed_on_asks_for() {
    let (origin, service) = (Origin::tcp_echo(""), GrpcOrigin::silent());
    let takes = json!({"enable_ja3_fingerprinting": true});
    let inspector =
        extension("envoy.filters.listener.tls_inspector", "filters.listener.tls_inspector.v3.TlsInspector", takes);
    let logger = logger("TcpGrpcAccessLogConfig", soon(), json!({}));
    let config = Config::new()
        .tcp("tcp", json!({"cluster": "origin", "access_log": [logger]}))
        .cluster("origin", &[origin.address])
        .cluster_with("logs", &[service.address], http2())
        .overlay_listener("tcp", json!({"listener_filters": [inspector]}));
    let proxy = Proxy::start(&config);
    // It ends when it is sent its own greeting.
    drop(Client::trusting(&Authority::new("root")).get(proxy.address("tcp"), "asked.test"));
    service.wait_messages(1);
    let message = decoded(&service).remove(0);
    let Some(LogEntries::TcpLogs(logs)) = message.log_entries else { panic!("{message:?}") };
    let tls = logs.log_entry[0].common_properties.as_ref().unwrap().tls_properties.as_ref().unwrap();
    assert_eq!((&*tls.tls_sni_hostname, tls.ja3_fingerprint.len()), ("asked.test", 32));
    assert!(tls.peer_certificate_properties.is_none() && tls.local_certificate_properties.is_none());
}

#[test]
fn an_entry_tells_why_a_handshake_failed() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let logger = logger("TcpGrpcAccessLogConfig", soon(), json!({}));
    let config = site(&http_logger(never(), json!({})), origin.address, service.address)
        .overlay_listener("http", json!({"access_log": [logger]}));
    let authority = Authority::new("root");
    let proxy = Proxy::start(&secured(config, &authority.issue(&["a.test"]), json!({})));
    let mut plain = proxy.client();
    plain.send(get("/"));
    plain.closed();
    drop(plain);
    service.wait_messages(1);
    let message = decoded(&service).remove(0);
    let Some(LogEntries::TcpLogs(logs)) = message.log_entries else { panic!("{message:?}") };
    let why = &logs.log_entry[0].common_properties.as_ref().unwrap().downstream_transport_failure_reason;
    assert!(why.starts_with("TLS_error:"), "{why}");
}

#[test]
fn an_entry_tells_what_filters_noted_and_what_came_last() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-end: e\r\n\r\n";
    let (origin, service) = (Origin::fixed(answer), GrpcOrigin::silent());
    let logger = http_logger(soon(), json!({"additional_response_trailers_to_log": ["X-End"]}));
    let code = "function envoy_on_request(h) h:streamInfo():dynamicMetadata():set('shop', 'k', 'v') end";
    let script = json!({"default_source_code": {"inline_string": code}});
    let lua = extension("envoy.filters.http.lua", "filters.http.lua.v3.Lua", script);
    let config = site(&logger, origin.address, service.address).overlay_filter(
        "http",
        json!({"http_filters": [lua, router()], "http_protocol_options": {"enable_trailers": true}}),
    );
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let entry = await_entries(&service, 1).remove(0);
    let metadata = &common(&entry).metadata.as_ref().unwrap().filter_metadata;
    assert!(matches!(&metadata["shop"].fields["k"].kind, Some(value::Kind::StringValue(text)) if text == "v"));
    assert_eq!(entry.response.as_ref().unwrap().response_trailers["x-end"], "e");
}

#[test]
fn an_entry_tells_messages_of_metadata_and_objects_of_the_filter_state() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let mut common_config = soon();
    common_config["filter_state_objects_to_log"] = json!(["text", "yes", "idle", "absent"]);
    let message = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "v"});
    let noter = extension(
        "envoy.filters.http.set_metadata",
        "filters.http.set_metadata.v3.Config",
        json!({"metadata": [
            {"metadata_namespace": "shop", "typed_value": message},
            // Envoy tells messages where there are values, too.
            {"metadata_namespace": "plain", "value": {"k": 1}},
        ]}),
    );
    let object = |key: &str, factory: &str, text: &str| {
        json!({"object_key": key, "factory_key": factory,
            "format_string": {"text_format_source": {"inline_string": text}}})
    };
    let objects = extension(
        "envoy.filters.http.set_filter_state",
        "filters.http.set_filter_state.v3.Config",
        json!({"on_request_headers": [
            object("text", "envoy.string", "%REQ(:METHOD)%"), object("yes", "envoy.bool", "true"),
            object("untold", "envoy.string", "x"),
        ]}),
    );
    let config = site(&http_logger(common_config, json!({})), origin.address, service.address)
        .overlay_filter("http", json!({"http_filters": [noter, objects, router()]}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.get("/").status, 200);
    let entry = await_entries(&service, 1).remove(0);
    let metadata = common(&entry).metadata.as_ref().unwrap();
    assert_eq!(metadata.filter_metadata.keys().collect::<Vec<_>>(), ["plain"]);
    let shown = |message: &postrider_grpc::Any| (message.type_url.clone(), message.value.clone());
    let kind = |name: &str| format!("type.googleapis.com/google.protobuf.{name}");
    assert_eq!(shown(&metadata.typed_filter_metadata["shop"]), (kind("StringValue"), b"\n\x01v".to_vec()));
    let told: Vec<_> =
        common(&entry).filter_state_objects.iter().map(|(name, it)| (name.as_str(), shown(it))).collect();
    let want = [("text", (kind("StringValue"), b"\n\x03GET".to_vec())), ("yes", (kind("BoolValue"), vec![8, 1]))];
    assert_eq!(told, want);
}

#[test]
fn tags_of_the_configuration_stand_in_entries() {
    let (origin, service) = (hello(), GrpcOrigin::silent());
    let mut common_config = soon();
    common_config["custom_tags"] = json!([
        {"tag": "t", "literal": {"value": "v"}},
        {"tag": "h", "request_header": {"name": "x-a"}},
        {"tag": "none", "request_header": {"name": "x-b"}},
        {"tag": "code", "value": "%RESPONSE_CODE%", "value_type": "INT"},
    ]);
    let proxy = Proxy::start(&site(&http_logger(common_config, json!({})), origin.address, service.address));
    ask(&proxy, "GET", "test", "/", "x-a: 1\r\n");
    let told = await_entries(&service, 1);
    let tags = common(&told[0]).custom_tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    assert_eq!(tags.collect::<Vec<_>>(), [("code", "200"), ("h", "1"), ("t", "v")]);
}
